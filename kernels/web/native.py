"""WebGPU outside a browser, through the package ``wgpu``."""

import os
import re
import tempfile
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

from ledger.kernels.web.errors import DeviceLostError, NoAdapterError, ShaderError, WebGPUError

NO_PACKAGE = (
    "The package wgpu is not installed, so Python does not reach this machine's GPU through WebGPU. `make setup` "
    "brings it; without make: python -m pip install wgpu."
)
NO_ADAPTER = (
    "wgpu found no adapter. Install your GPU's driver (Vulkan on Linux, Metal and Direct3D 12 come with macOS and "
    "Windows), or an adapter in software: on Debian or Ubuntu, sudo apt install mesa-vulkan-drivers."
)


class Adapter:
    """A GPU, or software that stands in for one."""

    def __init__(self, adapter: Any):
        self._adapter = adapter
        self.name = f"{adapter.info['device']} ({adapter.info['backend_type']}, {adapter.info['adapter_type']})"
        self.workgroup_bytes = adapter.limits["max-compute-workgroup-storage-size"]
        self.workgroup_size = adapter.limits["max-compute-invocations-per-workgroup"]

    @classmethod
    def find(cls) -> "Adapter":
        """The fastest adapter of this machine. Raises NoAdapterError."""
        if find_spec("wgpu") is None:
            raise NoAdapterError(NO_PACKAGE)
        import wgpu

        try:
            with _runtime_folder():
                found = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
        except Exception as error:  # the library's own choice of exception differs by version and by platform
            raise NoAdapterError(NO_ADAPTER) from error
        if found is None:
            raise NoAdapterError(NO_ADAPTER)
        return cls(found)

    def open(self) -> "Device":
        """A device with this adapter's limits."""
        limits = ("max-buffer-size", "max-storage-buffer-binding-size", "max-compute-workgroup-storage-size")
        required = {name: self._adapter.limits[name] for name in limits}
        with _translated():
            return Device(self._adapter.request_device_sync(required_limits=required), self.name)


class Device:
    """Buffers and launches on one device; every method blocks until its work is handed over or done."""

    def __init__(self, device: Any, name: str):
        self._device = device
        self.name = name
        self.most_bytes = min(device.limits["max-storage-buffer-binding-size"], device.limits["max-buffer-size"])
        self._pipelines: dict[str, Any] = {}

    def compile(self, kernel: str, wgsl: str) -> Any:
        """The pipeline of a kernel's ``main``. Raises ShaderError."""
        if wgsl not in self._pipelines:
            try:
                with _translated():
                    module = self._device.create_shader_module(label=kernel, code=wgsl)
                    stage = {"module": module, "entry_point": "main"}
                    self._pipelines[wgsl] = self._device.create_compute_pipeline(layout="auto", compute=stage)
            except DeviceLostError:
                raise
            except WebGPUError as error:
                raise ShaderError(kernel, wgsl, *_place(str(error))) from None
        return self._pipelines[wgsl]

    def upload(self, array: np.ndarray, uniform: bool = False) -> Any:
        """A buffer that holds ``array``, of 4-byte elements."""
        import wgpu

        kind = wgpu.BufferUsage.UNIFORM if uniform else wgpu.BufferUsage.STORAGE
        usage = kind | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
        with _translated():
            buffer = self._device.create_buffer(size=max(array.nbytes, 4), usage=usage)
            if array.nbytes:
                self._device.queue.write_buffer(buffer, 0, np.ascontiguousarray(array))
        return buffer

    def bind(self, pipeline: Any, buffers: list[Any]) -> Any:
        """``pipeline`` with its buffers, bound in order."""
        entries = [{"binding": i, "resource": {"buffer": buffer}} for i, buffer in enumerate(buffers)]
        with _translated():
            group = self._device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
        return pipeline, group

    def submit(self, job: Any, groups: tuple[int, int, int], repeats: int) -> None:
        """Hand ``repeats`` launches over to the device."""
        pipeline, group = job
        with _translated():
            encoder = self._device.create_command_encoder()
            work = encoder.begin_compute_pass()
            work.set_pipeline(pipeline)
            work.set_bind_group(0, group)
            for _ in range(repeats):
                work.dispatch_workgroups(*groups)
            work.end()
            self._device.queue.submit([encoder.finish()])

    def read(self, buffer: Any, nbytes: int) -> bytes:
        """The first ``nbytes`` of a buffer, once the work on it is done."""
        with _translated():
            return bytes(self._device.queue.read_buffer(buffer, 0, nbytes)) if nbytes else b""

    def free(self, buffer: Any) -> None:
        """Give a buffer's memory back."""
        buffer.destroy()

    def close(self) -> None:
        """Give the device back; what uses it afterwards raises DeviceLostError."""
        self._device.destroy()


@contextmanager
def _runtime_folder():
    """Mesa's drivers look for a Wayland display; where no session named this folder, they would complain of it in the
    notebook."""
    named = "XDG_RUNTIME_DIR" in os.environ
    if not named:
        os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()
    try:
        yield
    finally:
        if not named:
            del os.environ["XDG_RUNTIME_DIR"]


@contextmanager
def _translated():
    """``wgpu``'s exceptions as the course's."""
    import wgpu

    try:
        yield
    except wgpu.GPUError as error:
        said = str(error).strip()
        if re.search(r"device.{0,20}lost", said, re.IGNORECASE):
            raise DeviceLostError(f"The GPU was lost: {said.splitlines()[-1].strip()}.") from error
        raise WebGPUError(said) from error


def _place(report: str) -> tuple[int, int, str]:
    """Line, column and message of the first fault in a compiler's report."""
    place = re.search(r"┌─ \S+?:(\d+):(\d+)", report)
    line, column = map(int, place.groups()) if place else (0, 0)
    said = re.search(r"(?:parsing|validation) error: (.*)", report)
    note = re.search(r"\^+ (.*)", report)
    parts = [found[1] for found in (said, note) if found] or [report.strip().splitlines()[-1].strip()]
    return line, column, ": ".join(parts)
