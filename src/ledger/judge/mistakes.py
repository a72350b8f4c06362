"""Recognise a known mistake by what the wrong values are.

An exercise's own mistakes are tried first: the value that code with the mistake would return, for the very inputs of
the case. Then come transformations of the expected value that any exercise can meet. A mistake is named only where it
explains every wrong value that it could have made: at square sizes several may fit, and other cases tell them apart.
"""

from collections.abc import Iterator, Mapping
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
    values to return, chance makes many agree."""
    own = (mistake for mistake in exercise.mistakes if explains(mistake, wrongs) and allows(mistake, rights))
    found = next(own, None)
    if found or not wrongs:
        return [found] * len(wrongs)
    whole = [[Part(*wrong, told(wrong, exercise.returns))] for wrong in wrongs]
    apart = [list(parts(wrong, exercise.returns)) for wrong in wrongs]
    for one in LIBRARY:
        says = sentences(one, whole if one.whole else apart)
        if says:
            return [Mistake(one.name, sentence, None) for sentence in says]
    return [None] * len(wrongs)


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


def told(wrong: Wrong, names: tuple[str, ...]) -> str:
    """The line that says where a value parts from the wanted one."""
    found = difference(wrong.got, wrong.want, names=names)
    return found.message if found else ""


def parts(wrong: Wrong, names: tuple[str, ...] = (), place: str = "") -> Iterator[Part]:
    """The wrong numbers and arrays of a wrong value, as far as it has the parts that were wanted."""
    args, got, want = wrong
    found = difference(got, want, place, names)
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
        yield from parts(Wrong(args, g, w), place=name)


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
    """Whether ``got`` is ``value`` but for rounding; a mistake keeps the dtype that it was made in."""
    if is_real(got) and is_real(value):
        value = value.astype(got.dtype)
    return difference(got, value) is None


def is_real(value: Any) -> bool:
    """Whether a value is an array of real floating numbers."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"
