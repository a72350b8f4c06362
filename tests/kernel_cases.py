"""What the tests of the Triton kernels share: caches whose unused memory is poison, tolerances, and twins.

To be imported where torch and Triton are.
"""

from typing import NamedTuple

import numpy as np
import torch

from ledger.kernels import gpu
from ledger.kernels.loops import numbers

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
DTYPES = [F32, F16, BF16]
#: Digits behind the leading one.
DIGITS = {F32: 23, F16: 10, BF16: 7}
HUGE = 2**31 - 1
SCALE = 0.25


class Batch(NamedTuple):
    """Arguments of ``mla_decode``, and each request's entries in float64."""

    queries: torch.Tensor
    cache: gpu.PagedCache
    block_table: torch.Tensor
    lengths: torch.Tensor
    entries: list[np.ndarray]


def tensor(array, dtype=F32) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(gpu.DEVICE).to(dtype)


def wide(x: torch.Tensor) -> np.ndarray:
    """In float64."""
    return x.double().cpu().numpy()


def strided(x: torch.Tensor) -> torch.Tensor:
    """The same values in the middle of NaN, the last axis dense and no other."""
    room = torch.full(
        [*(2 * n + 1 for n in x.shape[:-1]), x.shape[-1] + 8], float("nan"), dtype=x.dtype, device=x.device
    )
    inside = room[(*(slice(1, None, 2) for _ in x.shape[:-1]), slice(8, None))]
    inside.copy_(x)
    return inside


def bytes_of(rows: torch.Tensor) -> torch.Tensor:
    """The memory of each of some rows, as uint8."""
    return rows.flatten().view(torch.uint8).reshape(len(rows), rows.shape[1] * rows.element_size())


def fp8_entries(latents: torch.Tensor, keys: torch.Tensor) -> tuple[torch.Tensor, np.ndarray]:
    """The bytes of entries in the FP8 layout, put together by hand, and what they mean."""
    codes, scales, means = [], [], []
    for part in latents.split(128, dim=-1):
        scale = part.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448
        codes.append((part / scale).clamp(-448, 448).to(torch.float8_e4m3fn))
        scales.append(scale)
        means.append(codes[-1].double() * scale.double())
    keys = keys.to(BF16)
    parts = [bytes_of(part) for part in (*codes, *scales, keys)]
    return torch.cat(parts, dim=-1), wide(torch.cat([*means, keys.double()], dim=-1))


def batch(new_tokens, heads, lengths, latent=40, rope_dim=24, *, dtype=F32, fp8=False, page=64, seed=0) -> Batch:
    """Random queries and a cache whose pages lie in any order; all that is not named by a length is poison."""
    rng = np.random.default_rng(seed)
    width = latent + rope_dim
    queries = strided(tensor(rng.standard_normal((len(lengths), new_tokens, heads, width)), dtype))
    counts = [-(-length // page) for length in lengths]
    cache_format = "fp8_ds_mla" if fp8 else "bf16_mla"
    cache = gpu.PagedCache.empty(sum(counts) + 3, page, latent, rope_dim, cache_format, dtype)
    cache.pages.fill_(255 if fp8 else float("nan"))  # 255 is NaN as e4m3, and four of them are NaN as float32
    order = rng.permutation(len(cache.pages))
    table = np.full((len(lengths), max(counts) + 5), HUGE, np.int32)
    entries = []
    for request, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        table[request, :count], order = order[:count], order[count:]
        stored = tensor(rng.standard_normal((length, width)), F32 if fp8 else dtype)
        if fp8:
            stored, meant = fp8_entries(stored[:, :latent], stored[:, latent:])
        else:
            meant = wide(stored)
        entries.append(meant)
        for i in range(count):
            part = stored[i * page : (i + 1) * page]
            cache.pages[int(table[request, i]), : len(part)] = part
    block_table = torch.from_numpy(table).to(gpu.DEVICE)[:, : max(counts) + 2]
    return Batch(queries, cache, block_table, tensor(lengths, torch.int32), entries)


def assert_values(got: torch.Tensor, want: np.ndarray, dtype: torch.dtype, tight: float = 5e-6) -> None:
    """float32 within ``tight`` of the largest; 16 bits as FlashMLA's tests have it, and in the interpreter, which
    multiplies in float32, rounded to nearest besides."""
    assert got.dtype == dtype
    assert tuple(got.shape) == want.shape
    got = wide(got)
    error = np.abs(got - want)
    slack = tight * np.abs(want).max(initial=1)
    if dtype == F32:
        assert not (bad := ~(error <= slack)).any(), f"{bad.sum()} of {bad.size}, the largest {np.nanmax(error)}"
        return
    assert ((error < 8e-4) | (error < 2.01 / 128 * np.abs(want))).all()
    assert 1 - 2 * (got * want).sum() / max((got * got + want * want).sum(), 1e-12) < 5e-6 or not want.any()
    if gpu.INTERPRETED:
        half = np.ldexp(0.5, np.frexp(want)[1] - 1 - DIGITS[dtype])
        assert (error <= half * 1.01 + slack).all()


def assert_decoded(
    got: gpu.Decoded, want: tuple[np.ndarray, np.ndarray], dtype: torch.dtype, tight: float = 5e-6
) -> None:
    out, lse = want
    assert_values(got.out, out, dtype, tight)
    assert got.lse.dtype == F32
    assert tuple(got.lse.shape) == lse.shape
    got_lse, empty = wide(got.lse), np.isneginf(lse)
    np.testing.assert_array_equal(np.isneginf(got_lse), empty)
    assert not wide(got.out)[empty].any()
    error = np.abs(got_lse[~empty] - lse[~empty])
    if dtype == F32 or gpu.INTERPRETED:
        assert (error <= tight + 1e-6 * np.abs(lse[~empty])).all()
    assert ((error < 1e-6) | (error < 8.01 / 65536 * np.abs(lse[~empty]))).all()


def memory(x: torch.Tensor) -> np.ndarray:
    """A copy for a twin: bf16 as uint16."""
    x = x.cpu()
    return (x.contiguous().view(torch.int16).numpy().view(np.uint16) if x.dtype == BF16 else x.numpy()).copy()


def fresh(shape, dtype) -> np.ndarray:
    """Poison: NaN in any of a twin's dtypes."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max, dtype)


def assert_twin(got: torch.Tensor, twin: np.ndarray) -> None:
    """Equal up to the order of sums: float32 to 3e-6, 16 bits to the neighbouring number. A GPU's exponentials are
    others, and its products round the weights to 16 bits."""
    slack = 3e-6 if gpu.INTERPRETED else 1e-5 if got.dtype == F32 else 4e-3
    digits = {np.dtype(np.uint16): 7, np.dtype(np.float16): 10, np.dtype(np.float32): 23}[twin.dtype]
    twin, got = numbers.widened(twin).astype(np.float64), wide(got)
    infinite = np.isneginf(twin)
    np.testing.assert_array_equal(np.isneginf(got), infinite)
    with np.errstate(invalid="ignore"):
        error = np.where(infinite, 0, np.abs(got - twin))
    assert (error <= np.where(infinite, 0, slack * np.maximum(1, np.abs(twin)) + 2.0**-digits * np.abs(twin))).all()


def twin_cache(cache: gpu.PagedCache):
    return memory(cache.latent), memory(cache.scales) if cache.fp8 else None, memory(cache.rope)
