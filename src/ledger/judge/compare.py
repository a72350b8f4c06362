"""Compare a returned value with the expected one, structure first, and say in words where they part."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ledger.judge.outcome import Unsupported

#: Allowed error by dtype, relative to the element and to the largest element of the expected array.
TOLERANCE = {"float64": 1e-10, "float32": 2e-5, "float16": 5e-3, "complex128": 1e-10}
NUMBER_TOLERANCE = 1e-9
#: Most parts, and most characters, of a list that a message shows whole.
FEW, SHORT = 8, 60


@dataclass(frozen=True)
class Difference:
    """Where a value parts from the expected one: one line that says it, and rows of detail."""

    message: str
    rows: tuple[tuple[str, str], ...] = ()


def difference(
    got: Any,
    want: Any,
    place: str = "",
    names: tuple[str, ...] = (),
    absolute: float = 0.0,
    fixed: tuple[str, ...] = (),
) -> Difference | None:
    """The first difference between ``got`` and ``want``, or None where they agree within the tolerance.

    Arrays keep shape and dtype; a tuple may be answered by a list of the same length, a dict by any mapping with the
    same keys; an int wants an int, a float any real number. ``place`` is what a message calls the value, ``names`` what
    it calls the parts of a tuple. A number that is the whole result may be off by ``absolute``. The parts that
    ``fixed`` names have a dtype of their own: of any other a message says that it follows the inputs.
    """
    if got is None and want is not None:
        return Difference(f"{place or 'the result'} is None: is a return statement missing?")
    if isinstance(got, Unsupported):
        why = f" ({got.why})" if got.why else ""
        return Difference(f"{place or 'the result'} is of type {got.type_name}{why}; wanted {kind_of(want)}")
    if isinstance(want, np.ndarray):
        return array_difference(got, want, place, fixed)
    if isinstance(want, tuple | list):
        return sequence_difference(got, want, place, names, fixed)
    if isinstance(want, dict):
        return mapping_difference(got, want, place)
    if isinstance(want, str) and isinstance(got, str):
        got = str(got)  # NumPy's strings are strings
    if isinstance(want, bool | str) or want is None:
        agree = got is want if want is None else type(got) in (type(want), np.bool_) and got == want
        return None if agree else Difference(f"{place or 'the result'} is {show(got)}; wanted {show(want)}")
    return number_difference(got, want, place, absolute)


#: Which dtype a result has, as messages say it.
DTYPE_RULE = "the dtype of the floating inputs (float64 where there are none)"


def array_difference(got: Any, want: np.ndarray, place: str, fixed: tuple[str, ...]) -> Difference | None:
    """Shape first, then dtype, then values."""
    name = place or "the result"
    if want.ndim == 0 and isinstance(got, np.generic):
        got = np.asarray(got)
    if not isinstance(got, np.ndarray):
        return Difference(f"{name} is {kind_of(got)}; wanted a NumPy array of shape {want.shape}")
    of = f"{place}: " if place else ""
    if got.shape != want.shape:
        row = ("shape", f"{of}{got.shape}; wanted {want.shape}")
        return Difference(f"{name} has shape {got.shape}; wanted {want.shape}", (row,))
    shape = ("shape", f"{of}{got.shape}, as wanted")
    if got.dtype != want.dtype:
        rule = f", {DTYPE_RULE}" if want.dtype.kind in "fc" and place not in fixed else ""
        row = ("dtype", f"{of}{got.dtype}; wanted {want.dtype}{rule}")
        return Difference(f"{name} has dtype {got.dtype}; wanted {want.dtype}{rule}", (shape, row))
    if want.dtype.kind not in "fc":
        wrong = got != want
        error = np.abs(got.astype(float) - want.astype(float))
        allowed = 0.0
    else:
        tolerance = TOLERANCE.get(want.dtype.name, NUMBER_TOLERANCE)
        wide = np.result_type(want.dtype, np.float64)
        right = want.astype(wide)
        allowed = tolerance * float(np.max(np.abs(right[np.isfinite(right)]), initial=0.0))
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(got.astype(wide) - right)
            # Nothing is near an infinity: only itself will do.
            close = np.isfinite(right) & (error <= allowed + tolerance * np.abs(right))
        wrong = ~(close | (got == want) | (np.isnan(got) & np.isnan(want)))
    if not wrong.any():
        return None
    return value_difference(got, want, wrong, error, allowed, place, shape)


def value_difference(got, want, wrong, error, allowed, place, shape) -> Difference:
    """How many elements are wrong, the first of them, and the largest error beside what is allowed."""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    index = ", ".join(map(str, at))
    name, of = place or "the result", f"{place}: " if place else ""
    many = f"{int(wrong.sum())} of {want.size} elements"
    first = f"[{index}] is {show(got[at], want[at])}, wanted {show(want[at], got[at])}"
    strange = ~np.isfinite(got) & np.isfinite(want) if got.dtype.kind in "fc" else np.zeros_like(wrong)
    if strange.any():
        message = f"{name} holds NaN or infinity in {int(strange.sum())} of {want.size} elements"
    else:
        message = f"{name} is wrong in {many}; {first}"
    finite = error[wrong & np.isfinite(error)]
    largest = f"largest error {finite.max():.3g}, allowed {allowed:.1g}" if finite.size else "no finite error"
    return Difference(message, (shape, ("values", f"{of}{many} wrong; first {first}; {largest}")))


def sequence_difference(
    got: Any, want: Any, place: str, names: tuple[str, ...], fixed: tuple[str, ...]
) -> Difference | None:
    """A tuple or list, element by element."""
    if not isinstance(got, tuple | list):
        return Difference(f"{place or 'the result'} is {kind_of(got)}; wanted {kind_of(want)}")
    if len(got) != len(want):
        held, wanted = listed(got), listed(want)
        told = f"is {held}; wanted {wanted}" if held and wanted else f"has {parts_of(got)}; wanted {len(want)}"
        return Difference(f"{place or 'the result'} {told}")
    names = names or tuple(f"{place or 'result'}[{i}]" for i in range(len(want)))
    parts = (difference(g, w, name, fixed=fixed) for g, w, name in zip(got, want, names, strict=True))
    return next((part for part in parts if part), None)


def mapping_difference(got: Any, want: Mapping, place: str) -> Difference | None:
    """A mapping, key by key."""
    if not isinstance(got, Mapping):
        return Difference(f"{place or 'the result'} is {kind_of(got)}; wanted {kind_of(want)}")
    if set(got) != set(want):
        return Difference(f"{place or 'the result'} has the keys {keys_of(got)}; wanted {keys_of(want)}")
    parts = (difference(got[key], want[key], f"{place or 'result'}[{key!r}]") for key in want)
    return next((part for part in parts if part), None)


def number_difference(got: Any, want: Any, place: str, absolute: float = 0.0) -> Difference | None:
    """A count must be an int; a ratio or a time may be any real number."""
    name = place or "the result"
    if isinstance(got, np.ndarray) and got.ndim == 0:
        got = got[()]
    if isinstance(got, bool | np.bool_) or not isinstance(got, int | float | np.integer | np.floating):
        return Difference(f"{name} is {kind_of(got)}; wanted {kind_of(want)}")
    if isinstance(want, int) and not isinstance(got, int | np.integer):
        return Difference(f"{name} is the float {show(got)}; wanted an int: counts are whole numbers")
    return (
        None
        if numbers_agree(got, want, absolute)
        else Difference(f"{name} is {show(got, want)}; wanted {show(want, got)}")
    )


def numbers_agree(got: Any, want: int | float, absolute: float = 0.0) -> bool:
    """Whether a number is the wanted one: exactly for counts, but for rounding otherwise."""
    if isinstance(want, int):
        return got == want
    try:
        return math.isclose(got, want, rel_tol=NUMBER_TOLERANCE, abs_tol=max(absolute, 1e-300))
    except OverflowError:  # an int that no float can hold
        return False


def kind_of(value: Any) -> str:
    """What a value is, for a sentence."""
    if isinstance(value, Unsupported):
        return f"a {value.type_name}"
    if isinstance(value, np.ndarray):
        return f"a NumPy array of shape {value.shape}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {parts_of(value)}"
    if isinstance(value, Mapping):
        return f"a mapping with the keys {keys_of(value)}"
    words = {"int": "an int", "float": "a float", "bool": "a bool", "str": "a string", "NoneType": "None"}
    name = type(value).__name__
    return words.get(name, f"a {name}")


def show(value: Any, beside: Any = None) -> str:
    """A number to six digits, or to as many as tell it from the number ``beside`` it; a count with its thousands;
    anything else cut short."""
    if isinstance(value, bool | np.bool_):
        return str(value)
    if isinstance(value, int | np.integer):
        digits = int(abs(int(value)).bit_length() * math.log10(2)) + 1
        return f"{int(value):,}" if digits < 40 else f"a number of about {digits:,} digits"
    if isinstance(value, float | np.floating):
        value = float(value)
        other = float(beside) if isinstance(beside, float | np.floating) else None
        digits = next((d for d in range(6, 17) if other is None or f"{value:.{d}g}" != f"{other:.{d}g}"), 17)
        return f"{value:.{digits}g}"
    try:
        return repr(value)[:80]
    except ValueError:  # a number within it has more digits than Python writes
        return kind_of(value)


def listed(values: Any) -> str:
    """A short list of numbers, words and None; nothing where it is long or holds anything else."""
    if len(values) > FEW:
        return ""
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    if not all(value is None or isinstance(value, bool | int | float | str) for value in plain):
        return ""
    texts = [show(value).replace(",", "") if isinstance(value, int | float) else repr(value) for value in plain]
    text = f"[{', '.join(texts)}]"
    return text if len(text) <= SHORT else ""


def parts_of(values: Any) -> str:
    """How many parts a tuple or list has, in words."""
    return f"{len(values)} part{'' if len(values) == 1 else 's'}"


def keys_of(mapping: Mapping) -> str:
    """The keys of a mapping, whatever they are, in the order of their texts; cut short where they are many."""
    shown = ", ".join(sorted(show(key) for key in mapping))
    return f"[{shown}]" if len(shown) <= 300 else f"[{shown[:300]} …]"
