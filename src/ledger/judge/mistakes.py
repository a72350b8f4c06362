"""Recognise a known mistake by what the wrong values are.

An exercise's own mistakes are tried first: the value that code with the mistake would return, for the very inputs of
the case. Then come transformations of the expected value that any exercise can meet. A mistake is named only where it
explains every wrong value that it could have made: at square sizes several may fit, and other cases tell them apart.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from ledger.exercises import Exercise, Mistake
from ledger.judge.compare import DTYPE_RULE, TOLERANCE, difference, show


class Wrong(NamedTuple):
    """A value beside the wanted one: the arguments of the case, what came back, and what was wanted."""

    args: tuple
    got: Any
    want: Any


def recognise(exercise: Exercise, wrongs: list[Wrong], rights: list[Wrong] = ()) -> Mistake | None:
    """The known mistake that explains all of ``wrongs``, or None. One of the exercise's own must also give the right
    values of ``rights``, the cases that passed: where there are few values to return, chance makes many agree."""
    if not wrongs:
        return None
    own = (mistake for mistake in exercise.mistakes if explains(mistake, wrongs) and allows(mistake, rights))
    found = [dict(reversed([(name, says) for name, says, value in common(w) if agrees(w.got, value)])) for w in wrongs]
    shared = (Mistake(name, says, None) for name, says in reversed(found[0].items()) if all(name in f for f in found))
    return next(own, None) or next(shared, None)


def explains(mistake: Mistake, wrongs: list[Wrong]) -> bool:
    """Whether code with this mistake returns every wrong value, where the sizes of the case allow the mistake."""
    made = 0
    for args, got, want in wrongs:
        try:
            value = mistake.value(*args)
        except Exception:
            continue
        if not agrees(got, value) or difference(value, want) is None:
            return False
        made += 1
    return made > 0


def allows(mistake: Mistake, rights: list[Wrong]) -> bool:
    """Whether code with this mistake returns the right value in every case of ``rights`` that it can compute."""
    for args, _, want in rights:
        try:
            value = mistake.value(*args)
        except Exception:
            continue
        if difference(value, want) is not None:
            return False
    return True


def agrees(got: Any, value: Any) -> bool:
    """Whether ``got`` is ``value`` but for rounding; a mistake keeps the dtype that it was made in."""
    if is_real(got) and is_real(value):
        value = value.astype(got.dtype)
    return difference(got, value) is None


def is_real(value: Any) -> bool:
    """Whether a value is an array of real floating numbers."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def common(wrong: Wrong) -> Iterator[tuple[str, str, Any]]:
    """Transformations of the expected value, or of its parts: (name, sentence, value)."""
    _, got, want = wrong
    if is_real(got) and is_real(want):
        yield from common_arrays(got, want)
    elif isinstance(got, int | float) and isinstance(want, int | float) and not isinstance(got, bool):
        yield from common_numbers(got, want)
    elif isinstance(got, tuple | list) and isinstance(want, tuple) and len(got) == len(want) > 1:
        yield "wrong order", "these are the right parts in another order", type(want)(reversed(want))


def common_arrays(got: np.ndarray, want: np.ndarray) -> Iterator[tuple[str, str, Any]]:
    """What may have become of a right array."""
    for a, b in combinations(range(want.ndim), 2):
        swapped = np.swapaxes(want, a, b)
        if swapped.shape == got.shape:
            yield "transposed", f"this is the right result with axes {a} and {b} swapped", swapped
    if got.shape != want.shape:
        return
    if got.dtype != want.dtype:
        says = f"the values are right; the result must be {want.dtype}, {DTYPE_RULE}"
        yield "another dtype", says, want
    masked = np.isneginf(got) & np.isfinite(want)
    if masked.any() and not masked.all():
        says = "the scores are right where they are finite; no mask is asked for: every new token sees every cached one"
        yield "masked", says, np.where(masked, -np.inf, want)
    if want.dtype == np.float64 and lost_digits(got, want):
        yield "float32 on the way", "right to the digits of float32 only: a step in between lost the others", got
    factor = constant_factor(got, want)
    if factor is not None:
        yield "constant factor", f"every element is {show(factor)} times the expected one", want * factor


def lost_digits(got: np.ndarray, want: np.ndarray) -> bool:
    """Whether two float64 arrays agree as float32 arrays would."""
    scale = np.max(np.abs(want[np.isfinite(want)]), initial=0.0)
    return bool(np.all(np.abs(got - want) <= TOLERANCE["float32"] * (scale + np.abs(want))))


def common_numbers(got: float, want: float) -> Iterator[tuple[str, str, Any]]:
    """What may have become of a right number; a count may have been taken for FLOPs."""
    counted = isinstance(want, int)
    double = "FLOPs, two a multiply-add, where multiply-adds are asked" if counted else "a term counted twice"
    half = "multiply-adds where FLOPs are asked" if counted else "a term that is missing"
    for factor, says in ((2, f"twice the expected value: {double}"), (0.5, f"half the expected value: {half}")):
        yield "constant factor", f"this is {says}", type(got)(want * factor) if np.isfinite(want) else None
    if got and want and np.isfinite(want):
        yield "upside down", "this is one over the expected value", 1 / want


def constant_factor(got: np.ndarray, want: np.ndarray) -> float | None:
    """The one factor between two arrays of a shape, from the largest element; None where there is none to tell."""
    if want.size < 2 or not np.isfinite(got).all():
        return None
    at = np.unravel_index(np.argmax(np.abs(want)), want.shape)
    return float(got[at] / want[at]) if want[at] and got[at] else None
