"""The course's kernels on the learner's own GPU, through WebGPU: the browser's adapter in Pyodide, ``wgpu`` elsewhere.

Each kernel has one entry point, which checks its arguments, runs and returns arrays. ``available`` says beforehand
whether they can run; ``time_kernel`` measures one; ``source`` gives a kernel's WGSL, to read or to change.
"""

import re
from collections.abc import Callable
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ledger.kernels.web import launch as _launch
from ledger.kernels.web.errors import DeviceLostError, NoAdapterError, ShaderError, WebGPUError
from ledger.kernels.web.launch import Array, Launch, source
from ledger.measure import Timing

__all__ = [
    "Decoded",
    "DeviceLostError",
    "NoAdapterError",
    "ShaderError",
    "WebGPUError",
    "absorb_heads",
    "adapter_name",
    "available",
    "mla_decode",
    "source",
    "time_kernel",
]


class Decoded(NamedTuple):
    """Mixed latents (requests, num_heads, latent_dim) and their natural-log-sum-exp (requests, num_heads)."""

    out: np.ndarray
    lse: np.ndarray


def available() -> str | None:
    """Why no kernel can run here, with what to do about it, or None where they can."""
    try:
        _launch.adapter()
    except NoAdapterError as reason:
        return str(reason)
    return None


def adapter_name() -> str:
    """What the kernels run on, in the words of its driver. Raises NoAdapterError."""
    return _launch.adapter().name


def absorb_heads(q_nope: np.ndarray, w_kc: np.ndarray, *, wgsl: str | None = None) -> np.ndarray:
    """Every head's queries in latent space: q_nope (new_tokens, num_heads, nope_dim), w_kc (num_heads, nope_dim,
    latent_dim) -> (new_tokens, num_heads, latent_dim), all float32.

    ``wgsl`` runs another text in the kernel's place. Raises ValueError for arguments that do not fit, NoAdapterError,
    ShaderError for WGSL that does not compile, DeviceLostError, and WebGPUError for any other fault of the GPU's.
    """
    (out,) = _launch.run(_absorb_heads(q_nope, w_kc, wgsl=wgsl))
    return out


def mla_decode(
    queries: np.ndarray,
    cache: np.ndarray,
    lengths: np.ndarray,
    latent_dim: int,
    scale: float,
    *,
    wgsl: str | None = None,
) -> Decoded:
    """One absorbed decode step: queries (requests, num_heads, latent_dim + rope_dim), cache (requests, max_tokens,
    latent_dim + rope_dim), both float32 and [latent | rope], lengths (requests,) integers -> Decoded, in float32.

    A request attends to its first ``lengths`` entries; what lies behind them is never used. One without any gives 0 and
    an lse of −inf. Scores are ``scale`` times the products. ``wgsl`` and errors: see ``absorb_heads``.
    """
    out, lse = _launch.run(_mla_decode(queries, cache, lengths, latent_dim, scale, wgsl=wgsl))
    return Decoded(out, lse)


def time_kernel(kernel: Callable, *args: Any, seconds: float = 0.2, **options: Any) -> Timing:
    """Seconds that ``kernel(*args, **options)`` takes on the GPU while its arrays stay there, measured for about
    ``seconds``; the kernel is ``absorb_heads`` or ``mla_decode``.

    Raises ValueError where there is nothing to compute, and what the kernel raises.
    """
    if kernel not in _LAUNCHES:
        names = ", ".join(fn.__name__ for fn in _LAUNCHES)
        raise ValueError(f"{getattr(kernel, '__name__', kernel)!r} is no kernel; the choices are: {names}")
    return _launch.time_launch(_LAUNCHES[kernel](*args, **options), seconds)


def _absorb_heads(q_nope: np.ndarray, w_kc: np.ndarray, *, wgsl: str | None = None) -> Launch:
    new_tokens, num_heads, nope_dim = _float32("q_nope", q_nope, "new_tokens, num_heads, nope_dim")
    weight_heads, weight_nope, latent_dim = _float32("w_kc", w_kc, "num_heads, nope_dim, latent_dim")
    if (num_heads, nope_dim) != (weight_heads, weight_nope):
        raise ValueError(
            f"q_nope {q_nope.shape} has {num_heads} heads of {nope_dim}; "
            f"w_kc {w_kc.shape} has {weight_heads} of {weight_nope}"
        )
    wgsl = source("absorb_heads") if wgsl is None else wgsl
    return Launch(
        kernel="absorb_heads",
        wgsl=wgsl,
        inputs={"q_nope": q_nope, "w_kc": w_kc},
        outputs=(Array("out", (new_tokens, num_heads, latent_dim)),),
        sizes=np.array([new_tokens, num_heads, nope_dim, latent_dim], np.uint32),
        groups=(
            _blocks(latent_dim, _constant(wgsl, "LANES")),
            num_heads,
            _blocks(new_tokens, _constant(wgsl, "BLOCK_S")),
        ),
    )


def _mla_decode(
    queries: np.ndarray,
    cache: np.ndarray,
    lengths: np.ndarray,
    latent_dim: int,
    scale: float,
    *,
    wgsl: str | None = None,
) -> Launch:
    requests, num_heads, width = _float32("queries", queries, "requests, num_heads, latent_dim + rope_dim")
    cache_requests, max_tokens, cache_width = _float32("cache", cache, "requests, max_tokens, latent_dim + rope_dim")
    if (requests, width) != (cache_requests, cache_width):
        raise ValueError(
            f"queries {queries.shape} are of {requests} requests and width {width}; "
            f"cache {cache.shape} is of {cache_requests} and {cache_width}"
        )
    latent_dim = index(latent_dim)
    wgsl = source("mla_decode") if wgsl is None else wgsl
    most_latent, most_width = _constant(wgsl, "MAX_LATENT"), _constant(wgsl, "MAX_WIDTH")
    if width > most_width:
        raise ValueError(f"entries are {width} wide; the kernel has room for {most_width}")
    if not 1 <= latent_dim <= min(width, most_latent):
        raise ValueError(f"latent_dim is {latent_dim}; it lies in 1 … {min(width, most_latent)} for entries of {width}")
    if not np.isfinite(scale):
        raise ValueError(f"scale is {scale}; it must be finite")
    lengths = np.asarray(lengths)
    if lengths.shape != (requests,) or (requests and lengths.dtype.kind not in "iu"):
        raise ValueError(f"lengths must be {requests} integers, one a request; got {lengths.dtype} {lengths.shape}")
    if lengths.size and not 0 <= lengths.min() <= lengths.max() <= max_tokens:
        raise ValueError(f"lengths lie in {lengths.min()} … {lengths.max()}; the cache holds 0 … {max_tokens} tokens")
    sizes = np.array([num_heads, latent_dim, width - latent_dim, max_tokens, 0], np.uint32)
    sizes[4:].view(np.float32)[0] = scale
    return Launch(
        kernel="mla_decode",
        wgsl=wgsl,
        inputs={"queries": queries, "cache": cache, "lengths": lengths.astype(np.uint32)},
        outputs=(Array("out", (requests, num_heads, latent_dim)), Array("lse", (requests, num_heads))),
        sizes=sizes,
        groups=(_blocks(num_heads, _constant(wgsl, "HEADS")), requests, 1),
    )


_LAUNCHES = {absorb_heads: _absorb_heads, mla_decode: _mla_decode}


def _float32(name: str, array: np.ndarray, axes: str) -> tuple[int, ...]:
    """The shape of a float32 array of these axes. Raises ValueError for anything else."""
    if not isinstance(array, np.ndarray) or array.ndim != axes.count(",") + 1:
        raise ValueError(f"{name} must be an array ({axes}); got {getattr(array, 'shape', type(array).__name__)}")
    if array.dtype != np.float32:
        raise ValueError(f"{name} is {array.dtype}; the kernel computes in float32: {name}.astype(np.float32)")
    return array.shape


def _constant(wgsl: str, name: str) -> int:
    """A meta-parameter as the kernel's text gives it. Raises ValueError where it gives none."""
    found = re.search(rf"const {name} = ([1-9]\d*)u;", wgsl)
    if not found:
        raise ValueError(f"the WGSL must say how large its blocks are: const {name} = …u;")
    return int(found[1])


def _blocks(size: int, block: int) -> int:
    """How many blocks cover ``size``."""
    return -(-size // block)
