"""The most this machine moves and multiplies, measured here: what a measured result is a share of."""

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ledger.measure.machine import find_torch
from ledger.measure.timing import Clock, time_call, time_pairs

#: A product that lasts this long is large enough to reach the machine's rate.
LONG_PRODUCT = 20e-3
#: On a CPU each rate is the fastest of this many samples, taken in turn: another program's busy moment spoils a few.
SAMPLES, SAMPLE_SECONDS = 5, 0.03
#: Bytes of the array that is copied and read on a CPU: twice the last cache, within these.
LEAST_COPY, MOST_COPY = 64 << 20, 256 << 20
#: Bytes of the array that is copied on a GPU, several times the largest second-level cache.
GPU_COPY = 512 << 20

CPU_DTYPES = ("float16", "float32", "float64")
GPU_DTYPES = (*CPU_DTYPES, "bfloat16")


class Ceilings(NamedTuple):
    """Memory bandwidth in bytes/s, rate of matrix products in FLOP/s, and the name of what was measured."""

    bandwidth: float
    flops: float
    device: str


def ceilings(dtype: str = "float32", device: str | None = None, clock: Clock = time.perf_counter) -> Ceilings:
    """Measure memory's bandwidth and the rate of a large square product of ``dtype``, in a second or two.

    ``device`` is ``"cpu"`` or ``"cuda"``; None takes CUDA where torch finds it. On the CPU the bandwidth is the larger
    of NumPy's copy (bytes read and written) and of a dot product of float32 (bytes read alone), since products mostly
    read; the rate is that of NumPy's BLAS (float16 has none there, and is slow), and each is its fastest sample. On a
    GPU the bandwidth is a copy's, and each is the faster quartile of its runs. A ValueError names the devices of this
    machine, or the dtypes that the device can multiply.
    """
    torch = find_torch()
    devices = ("cuda", "cpu") if torch is not None and torch.cuda.is_available() else ("cpu",)
    device = device or devices[0]
    if device not in devices:
        raise ValueError(f"no device {device!r} on this machine; the choices are: {', '.join(devices)}")
    choices = GPU_DTYPES if device == "cuda" else CPU_DTYPES
    if dtype not in choices:
        raise ValueError(f"no ceiling for {dtype!r} on {device}; the choices are: {', '.join(choices)}")
    return _gpu(torch, dtype, clock) if device == "cuda" else _cpu(dtype, clock)


def _cpu(dtype: str, clock: Clock) -> Ceilings:
    source = np.ones(min(max(2 * _last_cache_bytes(), LEAST_COPY), MOST_COPY) // 4, np.float32)
    target = np.empty_like(source)

    def matrix(size: int) -> np.ndarray:
        return np.ones((size, size), dtype)

    # A browser has no BLAS: a larger product runs at half the rate there.
    largest = 256 if sys.platform == "emscripten" else 4096
    product, flop = _long_product(matrix, np.matmul, 256, largest, clock)
    copy, read = partial(np.copyto, target, source), partial(np.dot, source, source)
    fastest = _fastest({"copy": copy, "read": read, "product": product}, clock)
    return Ceilings(
        bandwidth=max(2 * source.nbytes / fastest["copy"], source.nbytes / fastest["read"]),
        flops=flop / fastest["product"],
        device="CPU (NumPy)",
    )


def _gpu(torch: Any, dtype: str, clock: Clock) -> Ceilings:
    source = torch.ones(GPU_COPY, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def matrix(size: int) -> Any:
        return torch.ones((size, size), dtype=getattr(torch, dtype), device="cuda")

    product, flop = _long_product(matrix, torch.matmul, 4096, 8192, clock)
    return Ceilings(
        bandwidth=2 * source.nbytes / time_call(target.copy_, source, clock=clock).low,
        flops=flop / time_call(product, clock=clock).low,
        device=torch.cuda.get_device_name(),
    )


def _fastest(calls: Mapping[str, Callable[[], Any]], clock: Clock) -> dict[str, float]:
    """Seconds of each of ``calls`` in the fastest of its samples; one sample in a browser, where a call is slow."""
    times = 1 if sys.platform == "emscripten" else SAMPLES
    samples = [time_pairs(calls, seconds=SAMPLE_SECONDS, clock=clock) for _ in range(times)]
    return {name: min(sample[name].low for sample in samples) for name in calls}


def _long_product(
    matrix: Callable[[int], Any], matmul: Callable[..., Any], size: int, largest: int, clock: Clock
) -> tuple[Callable[[], Any], int]:
    """A square product and its FLOP, ``size`` doubled until it lasts ``LONG_PRODUCT`` or is ``largest``."""
    while True:
        product = partial(matmul, matrix(size), matrix(size), out=matrix(size))
        if size >= largest or time_call(product, seconds=0, clock=clock).low >= LONG_PRODUCT:
            return product, 2 * size**3
        size *= 2


def _last_cache_bytes() -> int:
    """Size of the CPU's last cache where Linux tells it, otherwise 0."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text().strip()
        return int(text.removesuffix("K")) * 1024
    except (OSError, ValueError):
        return 0
