"""One run of a kernel as data, and the running of it on whichever device there is."""

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from math import prod
from time import perf_counter
from typing import Any

import numpy as np

from ledger.kernels.web.errors import DeviceLostError, NoAdapterError
from ledger.measure import Timing, time_call

#: What the kernels need of an adapter: bytes of workgroup memory, and invocations in a workgroup.
WORKGROUP_BYTES = 32 << 10
WORKGROUP_SIZE = 256
#: The most workgroups along one axis, by the standard.
MOST_GROUPS = 65535
#: The largest buffer that is asked for: 32-bit indices reach every 4-byte element of it.
MOST_BYTES = 4 << 30
#: Launches are timed in batches that last this long, because a browser's clock and its queue are coarse.
SHORTEST_BATCH = 2e-2
MOST_LAUNCHES = 1 << 12

#: Results start as a float32's NaN, so that an element that a kernel leaves out shows.
POISON = np.uint32(0x7FC00000)

_open: dict[str, Any] = {}


@dataclass(frozen=True)
class Array:
    """A result to be made: its name, shape and dtype, which takes 4 bytes an element."""

    name: str
    shape: tuple[int, ...]
    dtype: type = np.float32

    @property
    def nbytes(self) -> int:
        """Bytes of the result."""
        return 4 * prod(self.shape)


@dataclass(frozen=True)
class Launch:
    """A kernel's text with its inputs by name, its outputs, its sizes and how many workgroups it takes.

    The bindings are numbered in this order: inputs, outputs, sizes.
    """

    kernel: str
    wgsl: str
    inputs: dict[str, np.ndarray]
    outputs: tuple[Array, ...]
    sizes: np.ndarray
    groups: tuple[int, int, int]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compute."""
        return all(output.nbytes == 0 for output in self.outputs)


def source(kernel: str) -> str:
    """The WGSL text of a kernel. Raises ValueError for a name that is none."""
    folder = files("ledger.kernels.web").iterdir()
    texts = {file.name.removesuffix(".wgsl"): file for file in folder if file.name.endswith(".wgsl")}
    if kernel not in texts:
        raise ValueError(f"there is no kernel {kernel!r}; the choices are: {', '.join(sorted(texts))}")
    return texts[kernel].read_text(encoding="utf-8")


def backend() -> Any:
    """The module that reaches WebGPU from here: through the browser in Pyodide, else through ``wgpu``."""
    if sys.platform == "emscripten":
        from ledger.kernels.web import browser as module
    else:
        from ledger.kernels.web import native as module
    return module


def adapter() -> Any:
    """The adapter to run on. Raises NoAdapterError, whose message says how to get one."""
    found = backend().Adapter.find()
    for what, has, needs in (
        ("bytes of workgroup memory", found.workgroup_bytes, WORKGROUP_BYTES),
        ("invocations in a workgroup", found.workgroup_size, WORKGROUP_SIZE),
    ):
        if has < needs:
            raise NoAdapterError(f"{found.name} has {has:,} {what}; the kernels need {needs:,}.")
    return found


def device() -> Any:
    """The device that all calls share, opened by the first of them. Raises NoAdapterError."""
    if "device" not in _open:
        _open["device"] = adapter().open()
    return _open["device"]


def run(launch: Launch) -> list[np.ndarray]:
    """The outputs of one launch. Raises NoAdapterError, ShaderError, DeviceLostError, WebGPUError."""
    if launch.empty:
        return [np.empty(output.shape, output.dtype) for output in launch.outputs]
    with _resident(launch) as (on, job, buffers):
        on.submit(job, launch.groups, 1)
        raw = [on.read(buffer, output.nbytes) for buffer, output in zip(buffers, launch.outputs, strict=True)]
    return [
        np.frombuffer(data, output.dtype).reshape(output.shape).copy()  # that of the bytes may not be written to
        for data, output in zip(raw, launch.outputs, strict=True)
    ]


def time_launch(launch: Launch, seconds: float) -> Timing:
    """How long one launch takes while its arrays stay on the device, measured for about ``seconds`` in batches.

    Raises ValueError where there is nothing to compute, and what ``run`` raises.
    """
    if launch.empty:
        raise ValueError("the result is empty: there is nothing to time")
    with _resident(launch) as (on, job, buffers):
        result = next(buffer for buffer, output in zip(buffers, launch.outputs, strict=True) if output.nbytes)

        def batch(repeats: int) -> float:
            start = perf_counter()
            on.submit(job, launch.groups, repeats)
            on.read(result, 4)  # comes when all of them are done
            return perf_counter() - start

        batch(1)
        repeats = 1
        while repeats < MOST_LAUNCHES and batch(repeats) < SHORTEST_BATCH:
            repeats *= 2
        median, low, high, runs = time_call(batch, repeats, seconds=seconds)
    return Timing(median / repeats, low / repeats, high / repeats, runs)


@contextmanager
def _resident(launch: Launch):
    """The device, the kernel bound to the arrays of a launch there, and its output buffers; freed in the end."""
    on = device()
    _check_limits(launch, on)
    made = []
    try:
        pipeline = on.compile(launch.kernel, launch.wgsl)
        for array in launch.inputs.values():
            made.append(on.upload(array))
        for output in launch.outputs:
            made.append(on.upload(np.full(output.shape, POISON)))
        outputs = made[len(launch.inputs) :]
        made.append(on.upload(launch.sizes, uniform=True))
        yield on, on.bind(pipeline, made), outputs
    except DeviceLostError:
        _open.clear()
        raise
    finally:
        for buffer in made:
            on.free(buffer)


def _check_limits(launch: Launch, on: Any) -> None:
    most = min(on.most_bytes, MOST_BYTES)
    sizes = {name: array.nbytes for name, array in launch.inputs.items()}
    for name, nbytes in (sizes | {output.name: output.nbytes for output in launch.outputs}).items():
        if nbytes > most:
            raise ValueError(f"{name} takes {nbytes:,} bytes; a buffer of {on.name} holds at most {most:,}")
    for axis, groups in zip("xyz", launch.groups, strict=True):
        if groups > MOST_GROUPS:
            raise ValueError(f"{launch.kernel} needs {groups:,} workgroups along {axis}; at most {MOST_GROUPS:,} go")
