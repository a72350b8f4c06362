"""Recognise a known mistake by what the wrong values are.

An exercise's own mistakes are tried first: the value that code with the mistake would return, for the very inputs of
the case. Then come transformations of the expected value that any exercise can meet. A mistake is named only where it
explains every wrong value that it could have made: at square sizes several may fit, and other cases tell them apart.

A first draft often has a second fault beside the mistake: float64 where float32 is asked, or an edge case that is left
out. So dtypes are no matter, and where nothing fits all values, a mistake of the exercise's own need not fit those of
another shape, nor NaN and infinity where a number is wanted.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ledger.exercises import Exercise, Mistake
from ledger.judge.compare import difference
from ledger.judge.transformations import LIBRARY, NOT_SO, Fit, Part, Transformation

#: The bits that chance must have to guess before a transformation is named: one in 65,536.
ENOUGH = 16


class Wrong(NamedTuple):
    """A value beside the wanted one: the arguments of the case, what came back, and what was wanted."""

    args: tuple
    got: Any
    want: Any


def recognise(exercise: Exercise, wrongs: list[Wrong], rights: list[Wrong] = ()) -> Mistake | None:
    """The known mistake that explains all of ``wrongs``, or None."""
    return next(iter(recognise_each(exercise, wrongs, rights)), None)


def recognise_each(exercise: Exercise, wrongs: list[Wrong], rights: list[Wrong] = ()) -> list[Mistake | None]:
    """The known mistake that explains all of ``wrongs``, once for each of them and in its words; or None for each. One
    of the exercise's own must also give the right values of ``rights``, the cases that passed: where there are few
    values to return, chance makes many agree. A wrong value that has another fault alone is given no name."""
    if not wrongs:
        return []
    found = own_of(exercise, wrongs, rights)
    names = found[:1] * len(wrongs) or of_library(exercise, wrongs)
    if names:
        return names
    cast = [Wrong(args, coarse(got, want), coarse(want, got)) for args, got, want in wrongs]
    wrong = [i for i, (_, got, want) in enumerate(cast) if difference(got, want) is not None]
    comparable = [i for i in wrong if in_form(cast[i].got, cast[i].want)]
    found = own_of(exercise, [cast[i] for i in comparable], rights)
    if len(found) == 1 and 2 * len(comparable) >= len(wrong):  # where several fit what is left, nobody can tell
        return [found[0] if i in comparable else None for i in range(len(wrongs))]
    names = iter(of_library(exercise, [cast[i] for i in wrong]))
    return [next(names, None) if i in wrong else None for i in range(len(wrongs))]


def own_of(exercise: Exercise, wrongs: list[Wrong], rights: list[Wrong]) -> list[Mistake]:
    """Those of an exercise's own mistakes that explain all of ``wrongs`` and allow all of ``rights``."""
    return [
        mistake
        for mistake in exercise.mistakes
        if any(explains(value, wrongs) and allows(value, rights) for value in (mistake.value, *mistake.also))
    ]


def of_library(exercise: Exercise, wrongs: list[Wrong]) -> list[Mistake]:
    """The first transformation that explains all of ``wrongs``, once for each and in its words; nothing where none
    does."""
    names, fixed = exercise.returns, exercise.fixed_dtypes
    whole = [[Part(*wrong, told(wrong, names, fixed))] for wrong in wrongs]
    apart = [list(parts(wrong, names, fixed)) for wrong in wrongs]
    for one in LIBRARY:
        says = sentences(one, whole if one.whole else apart)
        if says:
            return [Mistake(one.name, sentence, None) for sentence in says]
    return []


def coarse(value: Any, other: Any) -> Any:
    """``value`` with its numbers in the type of those of ``other``, where that holds fewer digits: float32 for float64,
    a whole number for a float that is one."""
    if is_real(value) and is_real(other):
        return value.astype(min(value.dtype, other.dtype, key=lambda dtype: dtype.itemsize), copy=False)
    if type(other) is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, tuple | list) and isinstance(other, tuple | list) and len(value) == len(other):
        inner = [coarse(one, beside) for one, beside in zip(value, other, strict=True)]
        return tuple(inner) if isinstance(value, tuple) else inner
    if isinstance(value, Mapping) and isinstance(other, Mapping) and set(value) == set(other):
        return {key: coarse(value[key], other[key]) for key in other}
    return value


def in_form(got: Any, want: Any) -> bool:
    """Whether the numbers of ``got`` can be held against the wanted ones: the same parts, shapes and dtypes, and a
    number wherever one is wanted."""
    if isinstance(want, tuple | list):
        return isinstance(got, tuple | list) and len(got) == len(want) and all(map(in_form, got, want))
    if isinstance(want, Mapping):
        same = isinstance(got, Mapping) and set(got) == set(want)
        return same and all(in_form(got[key], want[key]) for key in want)
    if isinstance(want, np.ndarray):
        same = isinstance(got, np.ndarray) and (got.shape, got.dtype) == (want.shape, want.dtype)
        return same and (want.dtype.kind not in "fc" or bool(np.all(np.isfinite(got) | ~np.isfinite(want))))
    if isinstance(want, int | float):
        return isinstance(got, int | float) and (not isinstance(got, float) or math.isfinite(got))
    return False


def explains(made_by: Callable[..., Any], wrongs: list[Wrong]) -> bool:
    """Whether code with a mistake returns every wrong value, where the sizes of the case allow the mistake."""
    made = 0
    for args, got, want in wrongs:
        try:
            value = made_by(*args)
        except Exception:
            continue
        if not agrees(got, value) or difference(value, want) is None:
            return False
        made += 1
    return made > 0


def allows(made_by: Callable[..., Any], rights: list[Wrong]) -> bool:
    """Whether code with a mistake returns the right value in every case of ``rights`` that it can compute, in whatever
    dtype."""
    for args, _, want in rights:
        try:
            value = made_by(*args)
        except Exception:
            continue
        if not agrees(value, want):
            return False
    return True


def told(wrong: Wrong, names: tuple[str, ...], fixed: tuple[str, ...]) -> str:
    """The line that says where a value parts from the wanted one."""
    found = difference(wrong.got, wrong.want, names=names, fixed=fixed)
    return found.message if found else ""


def parts(wrong: Wrong, names: tuple[str, ...] = (), fixed: tuple[str, ...] = (), place: str = "") -> Iterator[Part]:
    """The wrong numbers and arrays of a wrong value, as far as it has the parts that were wanted."""
    args, got, want = wrong
    found = difference(got, want, place, names, fixed=fixed)
    if found is None:
        return
    inner = []
    if isinstance(want, tuple | list) and isinstance(got, tuple | list) and len(got) == len(want):
        names = names or [f"{place or 'result'}[{i}]" for i in range(len(want))]
        inner = zip(got, want, names, strict=True)
    elif isinstance(want, Mapping) and isinstance(got, Mapping) and set(got) == set(want):
        inner = [(got[key], want[key], f"{place or 'result'}[{key!r}]") for key in want]
    else:
        if isinstance(got, np.generic | np.ndarray) and got.ndim == 0:
            got = np.asarray(got) if isinstance(want, np.ndarray) else got.item()
        yield Part(args, got, want, found.message)
    for g, w, name in inner:
        yield from parts(Wrong(args, g, w), fixed=fixed, place=name)


def sentences(one: Transformation, wrongs: list[list[Part]]) -> list[str]:
    """What a transformation says of each wrong value, all of whose parts it explains; nothing where it does not explain
    them, or where chance may have made them. A part that it cannot make, or where it cannot be told, is no matter."""
    fits = {}
    for i, part in sorted(((i, part) for i, inner in enumerate(wrongs) for part in inner), key=size):
        fit = attempt(one, part)
        if fit is None:
            continue
        if not agrees(fit.got, fit.value):
            return []
        fits.setdefault(i, []).append(fit)
    all_fits = [fit for inner in fits.values() for fit in inner]
    lengths = {fit.length for fit in all_fits}
    if sum(fit.bits for fit in all_fits) < ENOUGH or (len(lengths) == 1 and None not in lengths):
        return []
    first = fits[min(fits)]
    return [fits.get(i, first)[0].says for i in range(len(wrongs))]


def attempt(one: Transformation, part: Part) -> Fit | None:
    """What a transformation claims of a part; nothing where it cannot be computed."""
    try:
        return one.fit(part) if one.takes(part) else NOT_SO
    except Exception:  # whatever an answer returned, its mistake is only not known
        return NOT_SO


def size(placed: tuple[int, Part]) -> int:
    """How many elements a part was to have: what a small one rules out need not be tried on a large one."""
    return getattr(placed[1].want, "size", 1)


def agrees(got: Any, value: Any) -> bool:
    """Whether ``got`` is ``value`` but for rounding; where their dtypes differ, in the coarser one."""
    return difference(coarse(got, value), coarse(value, got)) is None


def is_real(value: Any) -> bool:
    """Whether a value is an array of real floating numbers."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"
