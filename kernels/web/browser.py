"""WebGPU in a browser's Pyodide. The browser answers by promises; ``run_sync`` waits for them, so every call blocks."""

from contextlib import contextmanager
from typing import Any

import js
import numpy as np
from pyodide.ffi import JsException, can_run_sync, run_sync, to_js

from ledger.kernels.web.errors import DeviceLostError, NoAdapterError, ShaderError, WebGPUError
from ledger.kernels.web.launch import MOST_BYTES

# What browsers offer: github.com/gpuweb/gpuweb, wiki, Implementation Status.
NO_WEBGPU = (
    "This browser does not offer WebGPU here. Open the page in a current Chrome or Edge, over https or from this very "
    "machine."
)
NO_ADAPTER = (
    "The browser offers WebGPU but gave no adapter. Turn on graphics acceleration in its settings; chrome://gpu says "
    "what is missing. On Linux some GPUs need Chrome started with --enable-unsafe-webgpu --use-angle=vulkan "
    "--enable-features=Vulkan,VulkanFromANGLE. Without a GPU the kernels run in software: --enable-unsafe-webgpu "
    "--use-webgpu-adapter=swiftshader."
)
NO_WAITING = (
    "This browser cannot let Python wait for its GPU: that takes JavaScript Promise Integration, which a current "
    "Chrome or Edge has."
)


class Adapter:
    """A GPU, or software that stands in for one, as the browser sees it."""

    def __init__(self, adapter: Any):
        self._adapter = adapter
        info = adapter.info
        words = dict.fromkeys(filter(None, (info.vendor, info.architecture, info.device, info.description)))
        self.name = " ".join(words) or "an adapter that the browser does not name"
        self.workgroup_bytes = adapter.limits.maxComputeWorkgroupStorageSize
        self.workgroup_size = adapter.limits.maxComputeInvocationsPerWorkgroup

    @classmethod
    def find(cls) -> "Adapter":
        """The browser's fastest adapter. Raises NoAdapterError."""
        gpu = getattr(js.navigator, "gpu", None)
        if not gpu:
            raise NoAdapterError(NO_WEBGPU)
        if not can_run_sync():
            raise NoAdapterError(NO_WAITING)
        with _translated():
            found = run_sync(gpu.requestAdapter(_object(powerPreference="high-performance")))
        if not found:
            raise NoAdapterError(NO_ADAPTER)
        return cls(found)

    def open(self) -> "Device":
        """A device with this adapter's limits."""
        limits = self._adapter.limits
        names = ("maxBufferSize", "maxStorageBufferBindingSize", "maxComputeWorkgroupStorageSize")
        required = {name: int(min(getattr(limits, name), MOST_BYTES)) for name in names}
        with _translated():
            return Device(run_sync(self._adapter.requestDevice(_object(requiredLimits=required))), self.name)


class Device:
    """Buffers and launches on one device; every method blocks until its work is handed over or done."""

    def __init__(self, device: Any, name: str):
        self._device = device
        self.name = name
        self.most_bytes = int(min(device.limits.maxStorageBufferBindingSize, device.limits.maxBufferSize))
        self._pipelines: dict[str, Any] = {}

    def compile(self, kernel: str, wgsl: str) -> Any:
        """The pipeline of a kernel's ``main``. Raises ShaderError."""
        if wgsl not in self._pipelines:
            try:
                with self._checked():
                    module = self._device.createShaderModule(_object(label=kernel, code=wgsl))
                    for message in run_sync(module.getCompilationInfo()).messages:
                        if message.type == "error":
                            raise ShaderError(kernel, wgsl, message.lineNum, message.linePos, message.message)
                    stage = {"module": module, "entryPoint": "main"}
                    descriptor = _object(layout="auto", compute=stage)
                    self._pipelines[wgsl] = run_sync(self._device.createComputePipelineAsync(descriptor))
            except (DeviceLostError, ShaderError):
                raise
            except WebGPUError as error:
                raise ShaderError(kernel, wgsl, 0, 0, str(error).strip()) from None
        return self._pipelines[wgsl]

    def upload(self, array: np.ndarray, uniform: bool = False) -> Any:
        """A buffer that holds ``array``, of 4-byte elements."""
        kind = js.GPUBufferUsage.UNIFORM if uniform else js.GPUBufferUsage.STORAGE
        usage = kind | js.GPUBufferUsage.COPY_DST | js.GPUBufferUsage.COPY_SRC
        with self._checked():
            buffer = self._device.createBuffer(_object(size=max(array.nbytes, 4), usage=usage))
            if array.nbytes:
                data = to_js(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
                self._device.queue.writeBuffer(buffer, 0, data)
        return buffer

    def bind(self, pipeline: Any, buffers: list[Any]) -> Any:
        """``pipeline`` with its buffers, bound in order."""
        entries = [{"binding": i, "resource": {"buffer": buffer}} for i, buffer in enumerate(buffers)]
        with self._checked():
            layout = pipeline.getBindGroupLayout(0)
            group = self._device.createBindGroup(_object(layout=layout, entries=entries))
        return pipeline, group

    def submit(self, job: Any, groups: tuple[int, int, int], repeats: int) -> None:
        """Hand ``repeats`` launches over to the device."""
        pipeline, group = job
        with self._checked():
            encoder = self._device.createCommandEncoder()
            work = encoder.beginComputePass()
            work.setPipeline(pipeline)
            work.setBindGroup(0, group)
            for _ in range(repeats):
                work.dispatchWorkgroups(*groups)
            work.end()
            self._device.queue.submit(to_js([encoder.finish()]))

    def read(self, buffer: Any, nbytes: int) -> bytes:
        """The first ``nbytes`` of a buffer, once the work on it is done."""
        if nbytes == 0:
            return b""
        with self._checked():
            usage = js.GPUBufferUsage.COPY_DST | js.GPUBufferUsage.MAP_READ
            staging = self._device.createBuffer(_object(size=nbytes, usage=usage))
            encoder = self._device.createCommandEncoder()
            encoder.copyBufferToBuffer(buffer, 0, staging, 0, nbytes)
            self._device.queue.submit(to_js([encoder.finish()]))
            run_sync(staging.mapAsync(js.GPUMapMode.READ))
            data = staging.getMappedRange().to_bytes()
            staging.destroy()
        return data

    def free(self, buffer: Any) -> None:
        """Give a buffer's memory back."""
        buffer.destroy()

    def close(self) -> None:
        """Give the device back; what uses it afterwards raises DeviceLostError."""
        self._device.destroy()

    @contextmanager
    def _checked(self):
        """The faults of the calls inside as the course's exceptions: WebGPU keeps them back in error scopes."""
        for kind in ("internal", "out-of-memory", "validation"):
            self._device.pushErrorScope(kind)
        try:
            with _translated():
                yield
        except WebGPUError:
            self._faults()
            self._raise_if_lost()
            raise
        faults = self._faults()
        self._raise_if_lost()
        if faults:
            raise WebGPUError("; ".join(faults))

    def _faults(self) -> list[str]:
        """What the three scopes opened last kept back."""
        popped = [self._device.popErrorScope() for _ in range(3)]
        found = []
        for promise in popped:
            try:
                fault = run_sync(promise)
            except JsException:  # the device is lost, and its scopes with it
                continue
            if fault:
                found.append(fault.message)
        return found

    def _raise_if_lost(self) -> None:
        """DeviceLostError where the promise of the device's loss has come true already."""
        info = run_sync(js.Promise.race(to_js([self._device.lost, js.Promise.resolve()])))
        if info:
            raise DeviceLostError(f"The GPU was lost ({info.reason}). {info.message}".strip())


@contextmanager
def _translated():
    """JavaScript's exceptions as the course's."""
    try:
        yield
    except JsException as error:
        raise WebGPUError(f"{error.name}: {error.message}") from error


def _object(**items: Any) -> Any:
    """A JavaScript object, nested ones too, where Pyodide by itself would make a Map."""
    return to_js(items, dict_converter=js.Object.fromEntries)
