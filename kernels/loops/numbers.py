"""``gpu/numbers.py`` in NumPy: how numbers are written and read. NumPy has no bf16, so uint16 holds its bits."""

import numpy as np


def widened(b_x: np.ndarray) -> np.ndarray:
    """What a kernel computes with, float32, from bf16 (as uint16), float16 or float32. float64 stays, to see a twin's
    algebra apart from its rounding."""
    if b_x.dtype == np.uint16:
        return (b_x.astype(np.uint32) << 16).view(np.float32)
    return b_x if b_x.dtype == np.float64 else b_x.astype(np.float32)


def rounded(b_x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """float32 ``b_x`` as ``dtype``, to nearest, ties to even; as bf16 where that is uint16."""
    if dtype == np.uint16:
        bits = b_x.view(np.uint32)
        # A NaN of all ones would be carried over into −0.
        return np.where(np.isnan(b_x), 0x7FC0, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return b_x.astype(dtype)


def to_e4m3(b_x: np.ndarray) -> np.ndarray:
    """float32 to the codes of e4m3fn (uint8): to nearest, ties to even, saturating at 448; −0 keeps its sign."""
    b_abs = np.minimum(np.abs(b_x), np.float32(448))
    bits = b_abs.view(np.int32)
    # From 2^-6 on: keep three digits of the fraction, and count the exponent from 7 in place of 127.
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
    # Below: multiples of 2^-9. Adding 1.5 · 2^14 leaves exactly those digits in a float32.
    small = (((b_abs + np.float32(24576)) - np.float32(24576)) * np.float32(512)).astype(np.int32)
    sign = np.where(np.signbit(b_x), 0x80, 0)
    return (np.where(b_abs >= np.float32(2**-6), normal, small) | sign).astype(np.uint8)


def from_e4m3(b_codes: np.ndarray) -> np.ndarray:
    """Codes of e4m3fn (uint8) to float32; the code of NaN is not looked for."""
    bits = b_codes.astype(np.int32)
    # The digits in a float32's places mean 2^-120 of what they mean in e4m3, subnormal ones too.
    bits = ((bits & 0x7F) << 20) | ((bits & 0x80) << 24)
    return bits.view(np.float32) * np.float32(2.0**120)
