"""How numbers are written and read: rounding that is the same on a GPU and in the interpreter, e4m3 without FP8 units.

Everything is integer arithmetic on the bits of a float32, so a GPU without FP8 (Ampere, AMD's with another FP8) reads
and writes the same codes.
"""

from ledger.kernels.interpret.mode import tl, triton


@triton.jit
def rounded(b_x, dtype: tl.constexpr):
    """float32 ``b_x`` as ``dtype``, to nearest, ties to even; bf16 is rounded by hand, since the interpreter cuts."""
    if dtype == tl.bfloat16:
        bits = b_x.to(tl.int32, bitcast=True)
        # A NaN of all ones would be carried over into −0.
        bits = tl.where(b_x != b_x, 0x7FC0, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
        return bits.to(tl.int16).to(tl.bfloat16, bitcast=True)
    else:
        return b_x.to(dtype)


@triton.jit
def to_e4m3(b_x):
    """float32 to the codes of e4m3fn (uint8): to nearest, ties to even, saturating at 448; −0 keeps its sign."""
    b_abs = tl.minimum(tl.abs(b_x), 448.0)
    bits = b_abs.to(tl.int32, bitcast=True)
    # From 2^-6 on: keep three digits of the fraction, and count the exponent from 7 in place of 127.
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
    # Below: multiples of 2^-9. Adding 1.5 · 2^14 leaves exactly those digits in a float32.
    small = (((b_abs + 24576.0) - 24576.0) * 512.0).to(tl.int32)
    sign = (b_x.to(tl.int32, bitcast=True) >> 24) & 0x80
    return (tl.where(b_abs >= 0.015625, normal, small) | sign).to(tl.uint8)


@triton.jit
def from_e4m3(b_codes):
    """Codes of e4m3fn (uint8) to float32; the code of NaN is not looked for."""
    bits = b_codes.to(tl.int32)
    # The digits in a float32's places mean 2^-120 of what they mean in e4m3, subnormal ones too.
    bits = ((bits & 0x7F) << 20) | ((bits & 0x80) << 24)
    return bits.to(tl.float32, bitcast=True) * 1.329227995784916e36
