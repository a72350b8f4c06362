"""Chapter 10: index keys in FP8, each with a power of two for its scale."""

import math
from fractions import Fraction

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import normal, rewritten

#: The numbers of e4m3 from 0 to 448 in the order of their codes, and the middles between neighbours.
NUMBERS = np.array(
    [float((8 + c % 8) * Fraction(2) ** (c // 8 - 10) if c >= 8 else Fraction(c, 512)) for c in range(127)]
)
MIDDLES = (NUMBERS[1:] + NUMBERS[:-1]) / 2


def make(rng, dtype, keys, dim, low=-3.0, high=3.0):
    """Keys of sizes far apart. Every number is one of float32, so that a way through float32 rounds once as well."""
    sizes = 10 ** rng.uniform(low, high, (keys, 1))
    return {"k": (sizes * normal(rng, np.dtype("float64"), keys, dim)).astype(np.float32).astype(dtype)}


def make_toy(rng, dtype, **dims):
    return {"k": np.array([(448, -1, 0.0625, 17), (1, -2, -0.0, 0)], dtype)}


def make_signed(rng, dtype, keys, dim):
    """Every number of the format with both signs, over a power of two of each key's own."""
    numbers = np.concatenate([NUMBERS, -NUMBERS])
    return {"k": (numbers * 2.0 ** rng.integers(-9, 10, (keys, 1))).astype(dtype)}


def make_middles(rng, dtype, keys, dim):
    """Every middle between two numbers, with both signs, and 448 for the scale: ties, carries and subnormals."""
    numbers = np.concatenate([MIDDLES, -MIDDLES, [448.0]])
    return {"k": (numbers * 2.0 ** rng.integers(-9, 10, (keys, 1))).astype(dtype)}


def make_powers(rng, dtype, keys, dim):
    """The largest magnitude is 448 times a power of two, or a power of two, as often below zero as above."""
    largest = rng.choice([448.0, 256.0, 1.0], (keys, 1)) * 2.0 ** rng.integers(-12, 13, (keys, 1))
    k = 0.9 * largest * rng.uniform(-1, 1, (keys, dim))
    k[np.arange(keys), rng.integers(0, dim, keys)] = largest[:, 0] * rng.choice([-1, 1], keys)
    return {"k": k.astype(np.float32).astype(dtype)}


def make_just_above(rng, dtype, keys, dim):
    """The largest magnitude is the next number after 448 · 2^e in the dtype, for ``keys`` neighbouring e around 0. Here
    alone float64 holds numbers that float32 does not."""
    largest = np.nextafter(np.ldexp(448.0, np.arange(keys) - keys // 2).astype(dtype), np.dtype(dtype).type(np.inf))
    k = (0.9 * largest[:, None] * rng.uniform(-1, 1, (keys, dim))).astype(np.float32).astype(dtype)
    k[np.arange(keys), rng.integers(0, dim, keys)] = largest * rng.choice([-1, 1], keys).astype(dtype)
    return {"k": k}


def make_small(rng, dtype, keys, dim):
    """Keys whose largest magnitude lies below the least one that the scale looks at, one of them all zeros."""
    k = make(rng, dtype, keys, dim, low=-11, high=-5)["k"]
    k[-1] = 0
    return {"k": k}


def make_zeros(rng, dtype, keys, dim):
    """Zeros of both signs, and numbers of both signs that become zero beside a large one."""
    k = rng.choice([-1.0, 1.0], (keys, dim)) * np.where(rng.random((keys, dim)) < 0.5, 0.0, 1e-6)
    k[:, 0] = 300
    return {"k": k.astype(np.float32).astype(dtype)}


def oracle(k):
    """The scale by comparing with every power of two, and each code by the middles that a magnitude lies beyond."""
    powers = [2.0**n for n in range(-40, 60)]
    scales = [next(p for p in powers if 448 * p >= max((abs(float(x)) for x in row), default=0.0)) for row in k]
    scales = np.array([max(scale, 2.0 ** math.ceil(math.log2(1e-4 / 448))) for scale in scales])
    x = np.abs(np.asarray(k, np.float64)) / scales[:, None]
    lower, upper = np.searchsorted(MIDDLES, x, side="left"), np.searchsorted(MIDDLES, x, side="right")
    codes = np.where(lower % 2 == 0, lower, upper)  # the two differ in the middle alone, by one
    return (codes + 128 * np.signbit(k)).astype(np.uint8), scales.astype(np.float32)


#: A right answer, which the wrong ones are made of.
ANSWER = """def quantize_index_keys(k):
    wide = np.array(k, np.float64)
    largest = np.maximum(np.abs(wide).max(axis=1, initial=0.0), 1e-4)
    fraction, exponent = np.frexp(largest / 448)
    scales = np.ldexp(1.0, exponent - (fraction == 0.5))
    x = wide / scales[:, None]
    power = np.floor(np.log2(np.maximum(np.abs(x), 2.0**-6)))
    eighths = np.rint(np.abs(x) * np.exp2(3 - power))
    codes = np.minimum(8 * (power + 6) + eighths, 126).astype(np.int64)
    codes = codes + np.where(np.signbit(x), 128, 0)
    return codes.astype(np.uint8), scales.astype(np.float32)
"""
_SCALES = "np.ldexp(1.0, exponent - (fraction == 0.5))"
_AMAX = "np.maximum(np.abs(wide).max(axis=1, initial=0.0), 1e-4)"
_LARGEST = "np.abs(wide).max(axis=1, initial=0.0)"
_CODES = "np.minimum(8 * (power + 6) + eighths, 126).astype(np.int64)"
_SIGN = "codes + np.where(np.signbit(x), 128, 0)"
_LEAST = "np.maximum(np.abs(x), 2.0**-6)"
_CAP = "np.minimum(8 * (power + 6) + eighths, 126)"
_X = "x = wide / scales[:, None]"
#: Codes that change below 2⁻⁶ alone.
_BELOW = "np.where(np.abs(x) < 2.0**-6, {}, np.minimum(8 * (power + 6) + eighths, 126)).astype(np.int64)"

#: Name, sentence and what is changed in ``ANSWER`` of each known mistake.
WRONG = {
    "by_a_logarithm_in_float64": (
        "the exponent from a logarithm in float64",
        "where a of a float64 key lies just above 448 times a power of two, the scale is often that power, and should "
        "be the next one: the logarithm was rounded to a whole number. np.frexp takes the exponent without rounding",
        {_SCALES: "np.exp2(np.ceil(np.log2(largest / 448)))"},
    ),
    "found_in_float32": (
        "float32 on the way",
        "where a of a float64 key lies just above 448 times a power of two, the scale is that power, and should be the "
        "next one: float32 does not hold the difference",
        {"wide = np.array(k, np.float64)": "wide = np.array(k, np.float32).astype(np.float64)"},
    ),
    "any_number_for_a_scale": (
        "scales that are no powers of two",
        "the scales are a / 448. Round them up to a power of two",
        {_SCALES: "largest / 448"},
    ),
    "any_number_stored": (
        "scales stored that are no powers of two",
        "the codes are right, but the scales beside them are a / 448. Return the powers of two",
        {"scales.astype(np.float32)": "(largest / 448).astype(np.float32)"},
    ),
    "by_a_logarithm": (
        "the exponent from a logarithm",
        "where a lies just above 448 times a power of two, the scale is that power, and should be the next one: the "
        "logarithm was rounded to a whole number. np.frexp takes the exponent without rounding",
        {_SCALES: "np.exp2(np.ceil(np.log2((largest / 448).astype(k.dtype))))"},
    ),
    "rounded_down": (
        "scale rounded down",
        "the scale is the power of two below a / 448, so the largest values saturate. Round up",
        {_SCALES: "np.exp2(np.floor(np.log2(largest / 448)))"},
    ),
    "rounded_to_nearest": (
        "scale rounded to nearest",
        "the exponent of the scale was rounded to nearest, so that some keys saturate. Round it up",
        {_SCALES: "np.exp2(np.rint(np.log2(largest / 448)))"},
    ),
    "always_the_next": (
        "a power of two too far",
        "where a / 448 is a power of two itself, the scale is the next one. It is the least that is at least a / 448",
        {_SCALES: "np.ldexp(1.0, exponent)"},
    ),
    "power_of_two_of_the_largest": (
        "448 forgotten",
        "the scale is a power of two near a itself. Divide a by 448 first, and the whole range is used",
        {"largest / 448": "largest"},
    ),
    "range_of_240": (
        "another largest number",
        "the scale is made for a largest number of 240. This e4m3 has no infinities and reaches 448",
        {"largest / 448": "largest / 240"},
    ),
    "never_clamped": (
        "small keys not clamped",
        "the scale of keys smaller than 10⁻⁴ follows their largest magnitude. Put 10⁻⁴ in its place there",
        {"1e-4)": "1e-30)"},
    ),
    "a_key_of_zeros_over_1": (
        "nothing put in the place of 0",
        "a key of zeros has the scale 1, and the scale of other small keys follows their magnitude. Put 10⁻⁴ in its "
        "place where it is smaller",
        {_AMAX: _LARGEST},
    ),
    "a_key_of_zeros_over_0": (
        "a scale of 0",
        "a key of zeros has the scale 0. Put 10⁻⁴ in the place of smaller magnitudes",
        {
            _AMAX: _LARGEST,
            _SCALES: (
                "np.exp2(np.ceil(np.log2((largest / 448).astype(k.dtype), "
                "out=np.full(len(k), -np.inf, k.dtype), where=largest > 0)))"
            ),
            _X: "x = wide / np.where(scales == 0, 1, scales)[:, None]",
        },
    ),
    "scale_clamped": (
        "scale clamped",
        "10⁻⁴ was put in the place of small scales. It belongs in the place of small magnitudes, before the division",
        {"1e-4)": "1e-30)", "np.frexp(largest / 448)": "np.frexp(np.maximum(largest / 448, 1e-4))"},
    ),
    "largest_with_its_sign": (
        "largest value for largest magnitude",
        "the scale looks at the largest value. A value far below 0 counts by its magnitude",
        {_LARGEST: "wide.max(axis=1, initial=0.0)"},
    ),
    "one_scale_for_all": (
        "one scale for all keys",
        "all keys share a scale. Each has its own",
        {_LARGEST: "np.full(len(k), np.abs(wide).max(initial=0.0))"},
    ),
    "reciprocals": (
        "scales upside down",
        "the codes are right, but the scales are one over what a code is multiplied by to give the value back",
        {"scales.astype(np.float32)": "(1 / scales).astype(np.float32)"},
    ),
    "exponent_of_zero": (
        "the exponent of 0",
        "a value of 0 has the code of another number. np.frexp says that 0 starts with 2⁻¹: put 2⁻⁶ in the place of "
        "magnitudes below it first",
        {_LEAST: "np.where(x == 0, 0.5, np.maximum(np.abs(x), 2.0**-6))"},
    ),
    "sign_by_comparing": (
        "sign of zero lost",
        "a value that is −0 has lost its sign: it is not below 0, but np.signbit sees it",
        {"np.signbit(x)": "x < 0"},
    ),
    "sign_of_what_is_left": (
        "sign lost where a value becomes zero",
        "a value that rounds to zero has lost its sign. Take the sign from the value",
        {_SIGN: "codes + np.where(np.signbit(x) & ((codes > 0) | (x == 0)), 128, 0)"},
    ),
    "no_sign": ("signs lost", "the sign bit is never set", {_SIGN: "codes"}),
    "twos_complement": (
        "negative codes",
        "the codes of negative values are those of positive ones, negated. A byte has one sign bit: add 128",
        {_SIGN: "np.where(np.signbit(x), -codes, codes) % 256"},
    ),
    "ties_away_from_zero": (
        "ties away from zero",
        "a value in the middle went to the larger number. It goes to the one whose code is even, as np.rint does",
        {"np.rint(np.abs(x) * np.exp2(3 - power))": "np.floor(np.abs(x) * np.exp2(3 - power) + 0.5)"},
    ),
    "cut_off": (
        "cut off for rounded",
        "the digits behind the third bit were cut off. Round to the nearest number",
        {"np.rint": "np.floor"},
    ),
    "no_subnormals": (
        "no subnormals",
        "values below 2⁻⁶ became 0. Below it the format goes on in steps of 2⁻⁹",
        {_CODES: _BELOW.format(0)},
    ),
    "subnormals_with_a_leading_1": (
        "E = 0 read as 2⁻⁷",
        "values below 2⁻⁶ were given codes by the power 2⁻⁷. E = 0 has the power of E = 1, and no leading 1: it stands "
        "for 2⁻⁶ · M/8",
        {_CODES: _BELOW.format("np.clip(np.rint(np.abs(x) * 2.0**10) - 8, 0, 8)")},
    ),
    "bias_8": (
        "bias 8",
        "the exponents are stored with 8 added. It is 7: E = 7 stands for 2⁰",
        {_LEAST: "np.maximum(np.abs(x), 2.0**-7)", _CAP: "np.minimum(8 * (power + 7) + eighths, 126)"},
    ),
    "not_divided": (
        "values not divided by the scale",
        "the codes are those of the values themselves. Divide each key by its scale first",
        {_X: "x = wide"},
    ),
    "carry_lost": (
        "carry lost",
        "where the fraction was rounded up to 2, the exponent stayed: 15.5 became 8. Add the carry, do not mask it",
        {"+ eighths, 126)": "+ np.where(eighths == 16, 8, eighths), 126)"},
    ),
    "leading_bit_kept": (
        "leading bit kept",
        "the leading 1 was stored, too, or 8 added to the exponents for 7. Only the three bits behind it are: M counts "
        "eighths above 1",
        {"8 * (power + 6)": "8 * (power + 7)", "126)": "127)"},
    ),
    "whole_numbers": (
        "whole numbers",
        "values over their scales were rounded to whole numbers. e4m3 has three bits behind the leading one, anywhere",
        {_CODES: "np.minimum(np.rint(np.abs(x)), 126).astype(np.int64)"},
    ),
}
MADE = {name: rewritten(ANSWER, name, changes) for name, (_, _, changes) in WRONG.items()}
_BIAS_8 = {_LEAST: "np.maximum(np.abs(x), 2.0**-7)"}
_OR = {_SIGN: "codes | np.where(np.signbit(x), 128, 0)"}
#: The same mistakes in other code, by the answer's name. Codes beyond 127 run into the sign, which is added or set.
OTHERWISE = {
    "subnormals_with_a_leading_1": {
        "subnormals_of_half_the_step": {
            _CODES: _BELOW.format("np.where(np.abs(x) < 11.5 / 1024, np.minimum(np.rint(np.abs(x) * 1024), 7), 8)")
        },
        "subnormals_below_0": {_LEAST: "np.maximum(np.abs(x), 2.0**-7)"},
    },
    "leading_bit_kept": {
        "leading_bit_beyond_127": {_CAP: "(8 * (power + 7) + eighths)"},
        "leading_bit_beside_the_sign": _OR | {_CAP: "(8 * (power + 7) + eighths)"},
    },
    "bias_8": {
        "bias_8_beyond_127": _BIAS_8 | {_CAP: "(8 * (power + 7) + eighths)"},
        "bias_8_beside_the_sign": _BIAS_8 | _OR | {_CAP: "(8 * (power + 7) + eighths)"},
        "bias_8_of_normals": {_CODES: _BELOW.format("eighths").replace("power + 6", "power + 7")},
        "bias_8_of_normals_beside_the_sign": _OR | {_CAP: "np.where(eighths < 8, eighths, 8 * (power + 7) + eighths)"},
    },
    "not_divided": {
        "not_divided_beyond_127": {_X: "x = wide", _CAP: "(8 * (power + 6) + eighths)"},
        "not_divided_beside_the_sign": _OR | {_X: "x = wide", _CAP: "(8 * (power + 6) + eighths)"},
    },
}
MORE = {
    made: tuple(rewritten(ANSWER, name, changes) for name, changes in others.items())
    for made, others in OTHERWISE.items()
}


def scales_in_float64(k):
    largest = np.maximum(np.abs(k).max(axis=1, initial=0), 1e-4)
    scales = np.exp2(np.ceil(np.log2(largest / 448))).astype(np.float64)
    return np.zeros(k.shape, np.uint8), scales


def codes_in_int8(k):
    scales = np.exp2(np.ceil(np.log2(np.maximum(np.abs(k).max(axis=1, initial=0), 1e-4) / 448)))
    return np.rint(np.clip(k / scales[:, None], -127, 127)).astype(np.int8), scales.astype(np.float32)


def no_initial_value(k):
    largest = np.maximum(np.abs(k).max(axis=1), 1e-4)
    return np.zeros(k.shape, np.uint8), largest.astype(np.float32)


EXERCISE = Exercise(
    id="quantize_index_keys",
    chapter=10,
    order=2,
    title="a key in FP8",
    checks="the byte of every value and the scale of every key",
    points=4,
    difficulty=3,
    minutes=20,
    make=make,
    oracle=oracle,
    cases=(
        Case("two keys by hand", {"keys": 2, "dim": 4}, make=make_toy),
        Case("odd sizes", {"keys": 5, "dim": 7}),
        Case("every number of the format", {"keys": 4, "dim": len(NUMBERS) * 2}, make=make_signed),
        Case("every middle between two numbers", {"keys": 4, "dim": len(MIDDLES) * 2 + 1}, make=make_middles),
        Case("largest magnitudes of few bits", {"keys": 24, "dim": 9}, make=make_powers),
        Case("just above a power of two", {"keys": 31, "dim": 5}, make=make_just_above),
        Case("just above, float32", {"keys": 31, "dim": 5}, dtype="float32", make=make_just_above),
        Case("small keys and one of zeros", {"keys": 8, "dim": 6}, make=make_small),
        Case("zeros of both signs", {"keys": 3, "dim": 24}, make=make_zeros),
        Case("one value", {"keys": 1, "dim": 1}),
        Case("keys without values, float32", {"keys": 3, "dim": 0}, dtype="float32"),
        Case("no keys", {"keys": 0, "dim": 8}),
        Case("float32", {"keys": 9, "dim": 33}, dtype="float32"),
        Case("ties in float32", {"keys": 3, "dim": len(MIDDLES) * 2 + 1}, dtype="float32", make=make_middles),
        Case("strided inputs", {"keys": 6, "dim": 20}, layout="strided"),
        Case("DeepSeek-V3.2's keys", {"keys": 40, "dim": 128}),
    ),
    hints=(
        "Two jobs: a scale for each key, and a byte for each value / scale. For the byte look at one magnitude, such "
        "as 17. Which power of two does it start with, and how large is the step between neighbours there? It is an "
        "eighth of that power.",
        "np.frexp splits a number into a fraction from 1/2 to below 1 and a power of two, so a magnitude starts with "
        "the power that is its second part less 1. Below 2⁻⁶ the power stays −6. Count in eighths of the power with "
        "np.rint, which takes ties to even: 8 to 16 for a normal number. Add the exponent's bits and the mantissa's as "
        "numbers, and a carry takes care of itself. Mind what frexp says of 0.",
        "Fill the gaps:\n\n"
        "    fraction, exponent = np.frexp(____ / 448)\n"
        "    scales = np.ldexp(np.float32(1), exponent - ____)  # a fraction of just 1/2 is a power of two already\n"
        "    magnitude = ____\n"
        "    power = ____  # at least -6\n"
        "    eighths = np.rint(____)\n"
        "    codes = ____  # E is power + 7, and 8 of the eighths are the leading 1\n"
        "    sign = np.where(np.signbit(k), 128, 0)",
    ),
    returns=("codes", "scales"),
    fixed_dtypes=("scales",),
    mistakes=tuple(Mistake(name, says, MADE[made], MORE.get(made, ())) for made, (name, says, _) in WRONG.items()),
    mutants=(
        *(Mutant(MADE[made], name) for made, (name, _, _) in WRONG.items()),
        *(Mutant(answer, WRONG[made][0]) for made, answers in MORE.items() for answer in answers),
        Mutant(scales_in_float64, "codes is wrong"),
        Mutant(codes_in_int8, "codes has dtype int8"),
        Mutant(no_initial_value, "ValueError"),
    ),
)
