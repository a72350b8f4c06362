"""What may have become of a right value: a library of transformations that any exercise can meet.

A transformation takes one wrong number or array, or one whole result, and says what it would have made of the right
one. ``Fit`` holds that claim; None stands for a value on which the transformation cannot be made, or cannot be told.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import combinations, permutations, product
from typing import Any, NamedTuple

import numpy as np

from ledger.judge.compare import TOLERANCE, show


class Part(NamedTuple):
    """A wrong value as a transformation sees it: the case's arguments, what came back, what was wanted, and the line
    that says where the two part."""

    args: tuple
    got: Any
    want: Any
    told: str


class Fit(NamedTuple):
    """A claim: ``got``, what came back or a piece of it, is ``value``. ``bits`` is what chance would have to guess for
    that; ``length`` is the size that the claim rests on, which must change from case to case."""

    says: str
    got: Any
    value: Any
    bits: float
    length: int | None = None


#: The claim of a transformation that something about the value rules out.
NOT_SO = Fit("", False, True, 0.0)


class Transformation(NamedTuple):
    """``fit`` on the values that ``takes`` allows; ``whole`` for results that are seen as one, not part by part."""

    name: str
    takes: Callable[[Part], bool]
    fit: Callable[[Part], Fit | None]
    whole: bool = False


# How much a value tells


def bits(value: Any) -> float:
    """The bits that chance would have to guess to meet a value, within the tolerance of its dtype; no more than eight
    elements are asked."""
    if isinstance(value, np.ndarray):
        some = np.unique(value.ravel()[:64])[:8]
        most = -math.log2(TOLERANCE.get(value.dtype.name, 1e-9))
        return sum(min(most, bits(one.item())) for one in some)
    if isinstance(value, Mapping):
        return sum(map(bits, value.values()))
    if isinstance(value, tuple | list):
        return sum(map(bits, value))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0.0
    top, bottom = value.as_integer_ratio()
    return min(30, top.bit_length() + bottom.bit_length() - 1)


def coarse_bits(value: np.ndarray, tolerance: float) -> float:
    """The bits that are left where only differences beyond ``tolerance``, a share of the largest element, are seen."""
    finite = value[np.isfinite(value)].astype(np.float64)
    largest = np.max(np.abs(finite), initial=0.0)
    seen = np.ptp(finite) / (tolerance * largest) if largest else 0.0
    return min(bits(value), (finite.size - 1) * math.log2(seen)) if seen > 1 else 0.0


def orders(count: int) -> float:
    """The bits of one order among all orders of ``count`` things."""
    return math.lgamma(count + 1) / math.log(2)


# What a transformation takes


def array(part: Part) -> bool:
    """Whether both are arrays of numbers, of one dtype."""
    return numeric(part) and part.got.dtype == part.want.dtype


def numeric(part: Part) -> bool:
    """Whether both are arrays of real numbers."""
    return all(isinstance(value, np.ndarray) and value.dtype.kind in "fiu" for value in (part.got, part.want))


def alike(part: Part) -> bool:
    """Whether both are arrays of one shape and dtype."""
    return array(part) and part.got.shape == part.want.shape


def floats(part: Part) -> bool:
    """Whether both are arrays of floats of one shape and dtype."""
    return alike(part) and part.want.dtype.kind == "f"


def whole_numbers(part: Part) -> bool:
    """Whether both are arrays of whole numbers of one shape and dtype."""
    return alike(part) and part.want.dtype.kind in "iu"


def number(part: Part) -> bool:
    """Whether both are numbers."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in (part.got, part.want))


def real_number(part: Part) -> bool:
    """Whether both are numbers and the wanted one is a float."""
    return number(part) and isinstance(part.want, float)


def anything(part: Part) -> bool:
    """Whatever came back."""
    return True


# Shape, dtype and container


def another_dtype(part: Part) -> Fit | None:
    """The values in another dtype: float64 for float32, floats for counts, integers for floats."""
    got, want = part.got, part.want
    if got.dtype == want.dtype or got.shape != want.shape:
        return NOT_SO
    if got.dtype.kind != "f" and want.dtype.kind == "f":
        cut = np.trunc(want) if np.array_equal(got, np.trunc(want)) else np.rint(want)
        return Fit(f"the fractions are lost: {part.told}", got.astype(want.dtype), cut, bits(cut))
    coarse = got.dtype if want.dtype.kind != "f" or got.dtype.itemsize < want.dtype.itemsize else want.dtype
    says = f"the values are right: {part.told}"
    return Fit(says, got.astype(coarse), want.astype(coarse), bits(want))


def axes_swapped(part: Part, a: int, b: int) -> Fit | None:
    """The array with two axes swapped."""
    got, want = part.got, part.want
    if max(a, b) >= want.ndim:
        return None
    swapped = np.swapaxes(want, a, b)
    told = bits(want) if swapped.shape != want.shape else min(bits(want), orders(want.size))
    return Fit(f"this is the right result with axes {a} and {b} swapped", got, swapped, told)


def another_shape(part: Part) -> Fit | None:
    """The elements in their order, in another shape."""
    got, want = part.got, part.want
    if got.shape == want.shape or got.size != want.size:
        return NOT_SO
    ones = [tuple(size for size in one.shape if size != 1) for one in (got, want)]
    much = "an axis of size 1 too many" if got.ndim > want.ndim else "an axis of size 1 is missing"
    why = much if ones[0] == ones[1] else "the elements are right and in order, in another shape"
    return Fit(f"{why}: {part.told}", got.reshape(want.shape), want, bits(want))


def one_too_few(part: Part, axis: int, first: bool) -> Fit | None:
    """The array without the first or the last place along an axis."""
    got, want = part.got, part.want
    if not has(want, axis):
        return None
    rest = piece(want, axis, 1, None) if first else piece(want, axis, 0, -1)
    where = "first" if first else "last"
    return Fit(f"all is right but the {where} place of axis {axis} is missing: {part.told}", got, rest, bits(rest))


def one_too_many(part: Part, axis: int, first: bool) -> Fit | None:
    """The array with one more place before the first or after the last along an axis."""
    got, want = part.got, part.want
    if not has(got, axis):
        return None
    rest = piece(got, axis, 1, None) if first else piece(got, axis, 0, -1)
    where = "before the first" if first else "after the last"
    return Fit(f"all is right but for one place too many {where} of axis {axis}: {part.told}", rest, want, bits(want))


def number_in_array(part: Part) -> Fit | None:
    """An array of one element for a number."""
    got, want = part.got, part.want
    one = isinstance(got, np.ndarray) and got.size == 1 and got.dtype.kind in "fiu" and isinstance(want, int | float)
    says = f"the number is right, but it stands in an array: {part.told}"
    return Fit(says, got.item(), want, bits(want)) if one else NOT_SO


def not_an_array(part: Part) -> Fit | None:
    """A number or a list for an array."""
    got, want = part.got, part.want
    if not (isinstance(got, int | float | list | tuple) and isinstance(want, np.ndarray)):
        return NOT_SO
    made = np.asarray(got)
    rounds = made.size > 0 and made.dtype.kind == "f" != want.dtype.kind
    if made.dtype.kind not in "fiu" or made.size != want.size or rounds:
        return NOT_SO
    return Fit(f"the values are right: {part.told}", made.reshape(want.shape).astype(want.dtype), want, bits(want))


def float_for_count(part: Part) -> Fit | None:
    """The right count as a float."""
    if not (isinstance(part.got, float) and isinstance(part.want, int)):
        return NOT_SO
    return Fit(f"the value is right: {part.told}", part.got, float(part.want), bits(part.want))


def parts_in_order(part: Part, order: tuple[int, ...]) -> Fit | None:
    """The parts of a tuple in another order."""
    got, want = part.got, part.want
    if not (isinstance(got, tuple | list) and isinstance(want, tuple) and len(got) == len(want)):
        return NOT_SO
    if len(want) != len(order):
        return None
    made = tuple(want[i] for i in order)
    moved = [one for i, one in enumerate(made) if order[i] != i]
    return Fit("these are the right parts in another order", got, made, bits(moved))


def other_keys(part: Part) -> Fit | None:
    """The values of a mapping, in order, under other keys."""
    got, want = part.got, part.want
    if not (isinstance(got, Mapping) and isinstance(want, Mapping)) or len(got) != len(want) or set(got) == set(want):
        return NOT_SO
    renamed = dict(zip([key for key in got if key not in want], [key for key in want if key not in got], strict=True))
    made = {renamed.get(key, key): value for key, value in got.items()}
    return Fit(f"the values are right: {part.told}", made, want, bits(want))


def another_container(part: Part) -> Fit | None:
    """The parts of a tuple or a mapping, in order, in another kind of container: an array, a tuple or a mapping."""
    kinds = [kind_of_container(value) for value in (part.got, part.want)]
    if None in kinds or kinds[0] == kinds[1] or kinds[1] == "array":
        return NOT_SO
    got, want = (list(value.values() if isinstance(value, Mapping) else value) for value in (part.got, part.want))
    return Fit(f"the parts are right: {part.told}", [plain(one) for one in got], want, bits(want))


def kind_of_container(value: Any) -> str | None:
    """Which kind of container a value is: an array, a sequence or a mapping; None for anything else."""
    if isinstance(value, np.ndarray):
        return "array" if value.ndim else None
    return "mapping" if isinstance(value, Mapping) else "sequence" if isinstance(value, tuple | list) else None


# Places along an axis


def turned_round(part: Part, axis: int) -> Fit | None:
    """An axis from its end to its start."""
    if not has(part.want, axis):
        return None
    told = order_along(part.want, axis)
    return Fit(f"this is the right result with axis {axis} reversed", part.got, np.flip(part.want, axis), told)


def moved_on(part: Part, axis: int, step: int) -> Fit | None:
    """Everything one place further along an axis, or one place back; nothing is said of the place that is left."""
    got, want = part.got, part.want
    if not has(want, axis) or want.shape[axis] < 2:
        return None
    early, late = (0, -1), (1, None)
    of_got, of_want = (late, early) if step > 0 else (early, late)
    way = "later" if step > 0 else "sooner"
    told = order_along(want, axis)
    says = f"along axis {axis} every element stands one place {way} than it should"
    return Fit(says, piece(got, axis, *of_got), piece(want, axis, *of_want), told)


def halves_swapped(part: Part) -> Fit | None:
    """The second half of the last axis first."""
    length = part.want.shape[-1] if part.want.ndim else 0
    if length < 4 or length % 2:
        return None
    says = "the two halves of the last axis are swapped"
    return Fit(says, part.got, np.roll(part.want, length // 2, axis=-1), order_along(part.want, -1))


def pairs_split(part: Part) -> Fit | None:
    """Neighbours of the last axis, (0, 1), (2, 3) and so on, taken apart into two halves."""
    length = part.want.shape[-1] if part.want.ndim else 0
    if length < 4 or length % 2:
        return None
    made = np.concatenate([part.want[..., 0::2], part.want[..., 1::2]], axis=-1)
    says = "the last axis has the half-split order where the interleaved one is asked"
    return Fit(says, part.got, made, order_along(part.want, -1))


def halves_paired(part: Part) -> Fit | None:
    """The halves of the last axis, element by element, made neighbours."""
    length = part.want.shape[-1] if part.want.ndim else 0
    if length < 4 or length % 2:
        return None
    made = np.stack(np.split(part.want, 2, axis=-1), axis=-1).reshape(part.want.shape)
    says = "the last axis has the interleaved order where the half-split one is asked"
    return Fit(says, part.got, made, order_along(part.want, -1))


def summed_up(part: Part, axis: int) -> Fit | None:
    """Each place of an axis and all before it, added."""
    if not has(part.want, axis):
        return None
    says = f"along axis {axis} every element is added to those before it: a cumulative sum where the terms are asked"
    return Fit(says, part.got, np.cumsum(part.want, axis, dtype=part.want.dtype), bits(part.want))


def terms_alone(part: Part, axis: int) -> Fit | None:
    """The terms of a cumulative sum."""
    if not has(part.want, axis):
        return None
    terms = np.diff(part.want, axis=axis, prepend=np.zeros_like(piece(part.want, axis, 0, 1)))
    says = f"along axis {axis} these are the terms where a cumulative sum is asked"
    return Fit(says, part.got, terms, bits(terms))


def has(value: np.ndarray, axis: int) -> bool:
    """Whether an array has an axis, counted from the front or from the back, with anything along it."""
    return -value.ndim <= axis < value.ndim and value.size > 0


def piece(value: np.ndarray, axis: int, start: int, stop: int | None) -> np.ndarray:
    """``value[start:stop]`` along one axis; all of an array without that axis."""
    return value[(slice(None),) * (axis % value.ndim) + (slice(start, stop),)] if has(value, axis) else value


def order_along(value: np.ndarray, axis: int) -> float:
    """What one order along an axis tells."""
    return min(bits(value), orders(value.shape[axis]))


# Values


def masked(part: Part) -> Fit | None:
    """Minus infinity here and there in an array that is finite."""
    out = np.isneginf(part.got) & np.isfinite(part.want)
    says = "the scores are right where they are finite; no mask is asked for: every new token sees every cached one"
    if not out.any() or out.all():
        return NOT_SO
    return Fit(says, part.got[~out], part.want[~out], bits(part.want[~out]))


def float32_on_the_way(part: Part) -> Fit | None:
    """A float64 array with the digits of float32."""
    says = "right to some six digits only: a step in float32 lost the others, or a small constant was added on the way"
    if part.want.dtype != np.float64:
        return NOT_SO
    scale = np.max(np.abs(part.want[np.isfinite(part.want)]), initial=0.0)
    near = np.abs(part.got - part.want) <= TOLERANCE["float32"] * (scale + np.abs(part.want))
    return Fit(says, bool(np.all(near)), True, coarse_bits(part.want, TOLERANCE["float32"]))


def few_digits(part: Part, name: str, digits: int) -> Fit | None:
    """An array whose every element has a mantissa of ``digits`` bits, and is right to that."""
    got, want = part.got, part.want
    if want.dtype == np.float16 or not np.isfinite(got).all() or not np.isfinite(want).all():
        return NOT_SO
    mantissa = np.frexp(got)[0] * 2.0**digits
    coarse = np.all(mantissa == np.rint(mantissa))
    tolerance = 4 * 0.5**digits
    near = np.all(np.abs(got - want) <= tolerance * (np.abs(want) + np.max(np.abs(want), initial=0.0)))
    says = f"right to the digits of {name} only: each element is one that {name} can hold"
    return Fit(says, bool(coarse and near), True, coarse_bits(want, tolerance))


def times_length(part: Part, argument: int, axis: int, up: bool) -> Fit | None:
    """A mean times, or a sum over, the length of an axis of an input."""
    given = part.args[argument] if argument < len(part.args) else None
    if not isinstance(given, np.ndarray) or not has(given, axis):
        return None
    length = given.shape[axis]
    asked, made = ("a mean", "a sum") if up else ("a sum", "a mean")
    how = f"{length} times the expected one" if up else f"the expected one over {length}"
    says = f"every value is {how}, the length of an axis of the inputs: {made} where {asked} is asked"
    value = part.want * length if up else part.want / length
    return Fit(says, part.got, value, bits(part.want), length)


def scaled(part: Part, factor: float, says: str) -> Fit | None:
    """Every element times one known factor."""
    return Fit(says, part.got, part.want * factor, bits(part.want))


def one_factor(part: Part) -> Fit | None:
    """Every element times one factor, which the largest element gives and all others must meet."""
    got, want = part.got, part.want
    if want.size < 2:
        return None
    if want.dtype.kind != "f":
        got, want = got.astype(np.float64), want.astype(np.float64)
    at = np.unravel_index(np.argmax(np.abs(want)), want.shape)
    if not np.isfinite(got).all() or not want[at] or not got[at]:
        return NOT_SO
    factor = float(got[at] / want[at])
    others = np.delete(want.ravel(), np.ravel_multi_index(at, want.shape))
    return Fit(f"every element is {show(factor)} times the expected one", got, want * factor, bits(others))


def shifted(part: Part, by: int) -> Fit | None:
    """Every whole number of an array, or a number, one larger or smaller; negative ones, which fill rows, may stay."""
    got, want = part.got, part.want
    than = f"one {'more' if by > 0 else 'less'} than expected"
    if not isinstance(want, np.ndarray):
        return Fit(f"this is {than}", got, want + by, bits(want))
    got, want = got.astype(np.int64), want.astype(np.int64)
    return Fit(f"every number is {than}", got, np.where((want < 0) & (got == want), want, want + by), bits(want))


def rescaled(part: Part, factor: float, says: str) -> Fit | None:
    """A number times a known factor; a count over a whole number may have been cut."""
    got, want = part.got, part.want
    if isinstance(got, int) and isinstance(want, int):
        over = round(1 / factor) if 0 < factor < 1 else 1
        value = want // over if over > 1 else want * factor
        return Fit(says, got, value, max(0.0, bits(want) - math.log2(over)))
    return Fit(says, float_of(got), float_of(want) * factor, bits(want))


def in_unit(part: Part, factor: float, says: str) -> Fit | None:
    """A number times a known ratio of units; a count may have been cut before or after."""
    got, want = part.got, part.want
    if not isinstance(want, int):
        return Fit(says, float_of(got), want * factor, bits(want))
    return Fit(says, abs(float_of(got) - float_of(want) * factor) <= 1 + factor, True, max(0.0, bits(want) - 4))


def one_over(part: Part) -> Fit | None:
    """One over a number."""
    want = float_of(part.want)
    value = 1 / want if want and math.isfinite(want) else math.nan
    return Fit("this is one over the expected value", float_of(part.got), value, bits(part.want))


def rounded(part: Part, decimals: int) -> Fit | None:
    """A float rounded to so many decimals."""
    if not math.isfinite(part.want):
        return NOT_SO
    to = "a whole number" if decimals == 0 else f"{decimals} decimals"
    value = round(part.want, decimals)
    return Fit(
        f"this is the expected value rounded to {to}", float_of(part.got), value, bits(round(value * 10**decimals))
    )


def cut_off(part: Part) -> Fit | None:
    """A float without its fraction."""
    if not math.isfinite(part.want):
        return NOT_SO
    value = float(math.trunc(part.want))
    return Fit("this is the expected value without its fraction", float_of(part.got), value, bits(value))


def float_of(value: int | float) -> float:
    """A number as a float; a count that no float can hold is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def plain(value: Any) -> Any:
    """A number out of NumPy's scalars and arrays without axes."""
    return value.item() if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 else value


# The library, the more telling first

AXES = (0, 1, 2, 3, -1, -2, -3)
UNITS = {"GiB for GB": 2**30 / 10**9, "MiB for MB": 2**20 / 10**6, "KiB for kB": 2**10 / 10**3}
_DOUBLE = "a factor of 2 or a term too many; in costs: two FLOPs a multiply-add, or two bytes a value, for one"
_HALF = "a factor of 2 or a term is missing; in costs: one FLOP a multiply-add, or one byte a value, for two"
FACTORS = (
    ("constant factor", 2, f"this is twice the expected value: {_DOUBLE}"),
    ("constant factor", 0.5, f"this is half the expected value: {_HALF}"),
    ("negative", -1, "this is the expected value with the other sign"),
    ("another size of a value", 4, "this is 4 times the expected value: values of 4 bytes where 1 is asked"),
    ("another size of a value", 0.25, "this is a quarter of the expected value: values of 1 byte where 4 are asked"),
    ("bits for bytes", 8, "this is 8 times the expected value: bits where bytes are asked"),
    ("bytes for bits", 0.125, "this is an eighth of the expected value: bytes where bits are asked"),
    ("percent for a fraction", 100, "this is 100 times the expected value: percent where a fraction is asked"),
    ("a fraction for percent", 0.01, "this is a hundredth of the expected value: a fraction where percent is asked"),
    ("milliseconds for seconds", 10**3, "this is 1,000 times the expected value: another unit"),
    ("microseconds for seconds", 10**6, "this is 1,000,000 times the expected value: another unit"),
    ("nanoseconds for seconds", 10**9, "this is 1,000,000,000 times the expected value: another unit"),
    ("seconds for milliseconds", 1e-3, "this is a thousandth of the expected value: another unit"),
    ("seconds for microseconds", 1e-6, "this is a millionth of the expected value: another unit"),
    ("seconds for nanoseconds", 1e-9, "this is a billionth of the expected value: another unit"),
)
LOGARITHMS = (
    ("log base 2", 1 / math.log(2), "over ln 2: logarithms to base 2 where natural ones are asked"),
    ("natural log", math.log(2), "times ln 2: natural logarithms where those to base 2 are asked"),
)
ORDERS = [order for count in (2, 3, 4) for order in permutations(range(count)) if order != tuple(range(count))]


def library() -> tuple[Transformation, ...]:
    """Every transformation; of those that fit, the first is named."""
    return (*of_form(), *of_places(), *of_elements(), *of_numbers())


def of_form() -> Iterator[Transformation]:
    """Right values in another shape, dtype or container."""
    for a, b in combinations(range(4), 2):
        yield Transformation("transposed", array, partial(axes_swapped, a=a, b=b))
    yield Transformation("another dtype", numeric, another_dtype)
    yield Transformation("another shape", array, another_shape)
    yield Transformation("number in an array", anything, number_in_array)
    yield Transformation("not an array", anything, not_an_array)
    yield Transformation("float for a count", number, float_for_count)
    yield Transformation("other keys", anything, other_keys, whole=True)
    yield Transformation("another container", anything, another_container, whole=True)
    for order in ORDERS:
        yield Transformation("wrong order", anything, partial(parts_in_order, order=order), whole=True)
    for axis, first in product(AXES, (False, True)):
        yield Transformation("one too few", array, partial(one_too_few, axis=axis, first=first))
        yield Transformation("one too many", array, partial(one_too_many, axis=axis, first=first))


def of_places() -> Iterator[Transformation]:
    """Right elements in other places, or some of them missing, or added up."""
    yield Transformation("masked", floats, masked)
    yield Transformation("half-split for interleaved", alike, pairs_split)
    yield Transformation("interleaved for half-split", alike, halves_paired)
    yield Transformation("halves swapped", alike, halves_swapped)
    for axis in AXES:
        yield Transformation("reversed", alike, partial(turned_round, axis=axis))
        yield Transformation("off by one place", alike, partial(moved_on, axis=axis, step=1))
        yield Transformation("off by one place", alike, partial(moved_on, axis=axis, step=-1))
        yield Transformation("cumulative sum", alike, partial(summed_up, axis=axis))
        yield Transformation("terms for a cumulative sum", alike, partial(terms_alone, axis=axis))


def of_elements() -> Iterator[Transformation]:
    """Every element, or the one number, changed in the same way."""
    for by, takes in product((1, -1), (whole_numbers, number)):
        yield Transformation("off by one", takes, partial(shifted, by=by))
    for argument, axis, takes in product(range(8), range(4), (floats, real_number)):
        yield Transformation("sum for mean", takes, partial(times_length, argument=argument, axis=axis, up=True))
        yield Transformation("mean for sum", takes, partial(times_length, argument=argument, axis=axis, up=False))
    for name, factor, says in LOGARITHMS:
        yield Transformation(
            name, floats, partial(scaled, factor=factor, says=f"every element is the right one {says}")
        )
        yield Transformation(name, real_number, partial(rescaled, factor=factor, says=f"this is the right one {says}"))
    yield Transformation("negative", floats, partial(scaled, factor=-1, says="every element has the other sign"))
    yield Transformation("float16 on the way", floats, partial(few_digits, name="float16", digits=11))
    yield Transformation("bfloat16 on the way", floats, partial(few_digits, name="bfloat16", digits=8))
    yield Transformation("float32 on the way", floats, float32_on_the_way)
    yield Transformation("constant factor", floats, one_factor)
    yield Transformation("constant factor", whole_numbers, one_factor)


def of_numbers() -> Iterator[Transformation]:
    """A number in another unit, upside down or rounded."""
    for name, factor, says in FACTORS:
        yield Transformation(name, number, partial(rescaled, factor=factor, says=says))
    for name, ratio in UNITS.items():
        units = f"{' and '.join(name.split(' for '))} are exchanged"
        up = f"this is {show(ratio)} times the expected value: {units}"
        down = f"this is the expected value over {show(ratio)}: {units}"
        yield Transformation(name, number, partial(in_unit, factor=ratio, says=up))
        yield Transformation(name, number, partial(in_unit, factor=1 / ratio, says=down))
    yield Transformation("upside down", number, one_over)
    for decimals in range(7):
        yield Transformation("rounded", real_number, partial(rounded, decimals=decimals))
    yield Transformation("cut to a whole number", real_number, cut_off)


LIBRARY = library()
