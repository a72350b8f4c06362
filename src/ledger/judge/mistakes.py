"""Recognise a known mistake by what the wrong value is.

An exercise's own mistakes are tried first: the value that code with the mistake would return, for the very inputs of
the case. Then come transformations of the expected value that any exercise can meet.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from ledger.exercises import Exercise, Mistake
from ledger.judge.compare import difference, show

_FACTORS = {
    2.0: "twice the expected value: FLOPs (two a multiply-add) where multiply-adds are asked, or a term counted twice",
    0.5: "half the expected value: a term is missing, or multiply-adds were taken for FLOPs",
    -1.0: "the expected value with the sign turned round",
}


def recognise(exercise: Exercise, args: tuple, got: Any, want: Any) -> Mistake | None:
    """The known mistake whose value is ``got``, or None."""
    for mistake in exercise.mistakes:
        try:
            value = mistake.value(*args)
        except Exception:
            continue  # the sizes of this case make the mistake impossible
        if agrees(got, value) and difference(value, want) is not None:
            return mistake
    return next((Mistake(name, says, None) for name, says, value in common(got, want) if agrees(got, value)), None)


def agrees(got: Any, value: Any) -> bool:
    """Whether ``got`` is ``value`` but for rounding; a mistake keeps the dtype that it was made in."""
    if isinstance(got, np.ndarray) and isinstance(value, np.ndarray) and got.dtype.kind == value.dtype.kind == "f":
        value = value.astype(got.dtype)
    return difference(got, value) is None


def common(got: Any, want: Any) -> Iterator[tuple[str, str, Any]]:
    """Transformations of the expected value: (name, sentence, value)."""
    if isinstance(got, np.ndarray) and isinstance(want, np.ndarray) and want.dtype.kind == "f":
        for a, b in combinations(range(want.ndim), 2):
            swapped = np.swapaxes(want, a, b)
            if swapped.shape == got.shape:
                yield "transposed", f"this is the right result with axes {a} and {b} swapped", swapped
        yield "another dtype", f"the values are right; the dtype should be {want.dtype}", want.astype(got.dtype)
        factor = constant_factor(got, want)
        if factor is not None:
            yield "constant factor", f"every element is {show(factor)} times the expected one", want * factor
    elif isinstance(got, int | float) and isinstance(want, int | float) and not isinstance(want, bool):
        for factor, says in _FACTORS.items():
            yield "constant factor", f"this is {says}", type(got)(want * factor)
        if got and want:
            yield "upside down", "this is one over the expected value", 1 / want


def constant_factor(got: np.ndarray, want: np.ndarray) -> float | None:
    """The one factor between two arrays of a shape, from the largest element; None where there is none to tell."""
    if got.shape != want.shape or want.size < 2 or not np.isfinite(got).all():
        return None
    at = np.unravel_index(np.argmax(np.abs(want)), want.shape)
    return float(got[at] / want[at]) if want[at] and got[at] else None
