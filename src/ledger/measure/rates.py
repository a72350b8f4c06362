"""The most this machine moves and multiplies, measured here: what a measured result is a share of."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ledger.measure.machine import find_torch
from ledger.measure.timing import Clock, time_call

#: A product that lasts this long is large enough to reach the machine's rate.
LONG_PRODUCT = 20e-3
#: Bytes of the array that is copied on a CPU: twice the last cache, within these.
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
    """Measure a large copy (bytes read and written) and a large square product of ``dtype``, in under two seconds.

    ``device`` is ``"cpu"`` or ``"cuda"``; None takes CUDA where torch finds it. On the CPU the copy is NumPy's, of one
    core, and the product its BLAS's (float16 has none there, and is slow). Each ceiling is the faster quartile of its
    runs. A ValueError names the devices of this machine, or the dtypes that the device can multiply.
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
    source = np.ones(min(max(2 * _last_cache_bytes(), LEAST_COPY), MOST_COPY), np.uint8)
    target = np.empty_like(source)

    def matrix(size: int) -> np.ndarray:
        return np.ones((size, size), dtype)

    return Ceilings(
        bandwidth=2 * source.nbytes / time_call(np.copyto, target, source, clock=clock).low,
        flops=_product_rate(matrix, np.matmul, 256, 4096, clock),
        device="CPU (NumPy)",
    )


def _gpu(torch: Any, dtype: str, clock: Clock) -> Ceilings:
    source = torch.ones(GPU_COPY, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def matrix(size: int) -> Any:
        return torch.ones((size, size), dtype=getattr(torch, dtype), device="cuda")

    return Ceilings(
        bandwidth=2 * source.nbytes / time_call(target.copy_, source, clock=clock).low,
        flops=_product_rate(matrix, torch.matmul, 4096, 8192, clock),
        device=torch.cuda.get_device_name(),
    )


def _product_rate(
    matrix: Callable[[int], Any], matmul: Callable[..., Any], size: int, largest: int, clock: Clock
) -> float:
    """The best FLOP/s of square products, doubling ``size`` until one lasts ``LONG_PRODUCT`` or is ``largest``."""
    best = 0.0
    while True:
        left, right, out = matrix(size), matrix(size), matrix(size)
        timing = time_call(lambda a, b, o: matmul(a, b, out=o), left, right, out, seconds=0.05, clock=clock)
        best = max(best, 2 * size**3 / timing.low)
        if size >= largest or timing.low >= LONG_PRODUCT:
            return best
        size *= 2


def _last_cache_bytes() -> int:
    """Size of the CPU's last cache where Linux tells it, otherwise 0."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text().strip()
        return int(text.removesuffix("K")) * 1024
    except (OSError, ValueError):
        return 0
