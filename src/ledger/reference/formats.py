"""Number formats of a cache, emulated in NumPy: bf16 and e4m3 by their definitions, and the layouts made of them.

Rounding is to nearest, ties to even. Rounded numbers come back as numbers, in the floating dtype that they came in;
integers are refused by a ValueError.
"""

import numpy as np

from ledger.account.cache import CACHE_FORMATS, TILE
from ledger.checks import check_floating

#: The largest finite number of e4m3 ("fn": without infinities), and its smallest exponent and mantissa bits.
E4M3_MAX = 448.0
_E4M3 = {"mantissa_bits": 3, "least_exponent": -6}
_BF16 = {"mantissa_bits": 7, "least_exponent": -126}
_BF16_MAX = 2.0**127 * (2 - 2**-7)
_E4M3_NAN = 0x7F
_FP32 = np.finfo(np.float32)


def round_bf16(x: np.ndarray) -> np.ndarray:
    """``x`` rounded to bf16; beyond its largest finite number, infinity."""
    rounded = _round(x, **_BF16)
    return np.where(np.abs(rounded) > _BF16_MAX, np.copysign(np.inf, x), rounded).astype(x.dtype)


def round_e4m3(x: np.ndarray) -> np.ndarray:
    """``x`` rounded to e4m3; beyond ±448 it saturates, as the conversions of engines do. NaN stays NaN."""
    return np.clip(_round(x, **_E4M3), -E4M3_MAX, E4M3_MAX).astype(x.dtype)


def quantize_e4m3(x: np.ndarray) -> np.ndarray:
    """The e4m3 code of each number, uint8: sign, 4 bits of exponent, 3 of mantissa; saturating, NaN is 0x7f."""
    magnitude = np.abs(round_e4m3(x))
    codes = np.searchsorted(_VALUES[:_E4M3_NAN], np.where(np.isnan(x), 0.0, magnitude)).astype(np.uint8)
    codes |= np.where(np.signbit(x), 0x80, 0).astype(np.uint8)
    return np.where(np.isnan(x), np.uint8(_E4M3_NAN), codes)


def dequantize_e4m3(codes: np.ndarray) -> np.ndarray:
    """The number behind each e4m3 code, float32. A ValueError for codes that are not uint8."""
    if np.asarray(codes).dtype != np.uint8:
        raise ValueError(f"codes are of {np.asarray(codes).dtype}; make them uint8, as quantize_e4m3 does")
    return _VALUES[codes]


def round_tiles(x: np.ndarray, tile: int = TILE) -> np.ndarray:
    """``x`` through e4m3 with one fp32 scale, the largest magnitude / 448, for each started ``tile`` of a row.

    A scale stays among the normal numbers of fp32: beyond 448 times the largest one ``x`` saturates.
    """
    parts = [x[..., start : start + tile] for start in range(0, x.shape[-1], tile)]
    return np.concatenate([_scaled(part, _tile_scale(part)) for part in parts], axis=-1) if parts else x.copy()


def round_entry(
    latents: np.ndarray, k_rope: np.ndarray, cache_format: str, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """What is read back of latents (tokens, latent_dim) and k_rope (tokens, rope_dim) stored in ``cache_format``.

    ``scale`` is the one number that ``fp8_plain_mla`` divides by before rounding, for the whole cache; the other
    formats need none. A ValueError names the formats, or refuses a scale that is not positive and finite.
    """
    if cache_format == "bf16_mla":
        return round_bf16(latents), round_bf16(k_rope)
    if cache_format == "fp8_ds_mla":
        return round_tiles(latents), round_bf16(k_rope)
    if cache_format == "fp8_plain_mla":
        if not 0 < scale < np.inf:
            raise ValueError(f"scale is {scale}; it must be positive and finite")
        return _scaled(latents, scale), _scaled(k_rope, scale)
    raise ValueError(f"no cache format {cache_format!r}; the choices are: {', '.join(CACHE_FORMATS)}")


def _tile_scale(part: np.ndarray) -> np.ndarray:
    """The fp32 scale of one tile of each row; NaN has no say in it."""
    largest = np.fmax.reduce(np.abs(part), axis=-1, keepdims=True, initial=0.0)
    return np.clip(largest / E4M3_MAX, _FP32.tiny, _FP32.max).astype(np.float32)


def _scaled(x: np.ndarray, scale: float | np.ndarray) -> np.ndarray:
    """``x`` through e4m3 under ``scale``, in its own dtype."""
    check_floating(x=x)
    return (round_e4m3(x / scale) * scale).astype(x.dtype)


def _round(x: np.ndarray, mantissa_bits: int, least_exponent: int) -> np.ndarray:
    """``x`` in float64 on the grid whose step is 2^-mantissa_bits of the number's own power of two, and no finer than
    that of ``least_exponent`` (where numbers are subnormal)."""
    check_floating(x=x)
    wide = np.asarray(x, np.float64)
    exponent = np.maximum(np.frexp(wide)[1] - 1, least_exponent)
    step = np.ldexp(1.0, exponent - mantissa_bits)
    return np.rint(wide / step) * step


def _e4m3_values() -> np.ndarray:
    """The number behind each of the 256 codes, by the format's definition."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    normal = (8 + mantissa) * 2.0 ** (exponent - 10)
    magnitude = np.where(exponent > 0, normal, mantissa * 2.0**-9)
    magnitude[(codes & _E4M3_NAN) == _E4M3_NAN] = np.nan
    return np.where(codes & 0x80, -magnitude, magnitude).astype(np.float32)


_VALUES = _e4m3_values()
