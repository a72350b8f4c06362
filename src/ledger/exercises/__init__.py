"""The registry: one file an exercise, found by its name, loaded when asked for."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from ledger.exercises.base import Budget, Case, Exercise, Forbidden, Mistake, Mutant, Raises

__all__ = ["Budget", "Case", "Exercise", "Forbidden", "Mistake", "Mutant", "Raises", "get", "ids", "registry"]


@cache
def ids() -> tuple[str, ...]:
    """The ids of all exercises, in alphabetical order, without loading any."""
    return tuple(m.name for m in iter_modules(__path__) if m.name not in ("base", "making"))


@cache
def get(id: str) -> Exercise:
    """The exercise called ``id``; a KeyError where there is none."""
    if id not in ids():
        raise KeyError(id)
    return import_module(f"{__name__}.{id}").EXERCISE


@cache
def registry() -> dict[str, Exercise]:
    """Every exercise by id, in the course's order: by chapter, then by ``order`` in the chapter."""
    return {e.id: e for e in sorted(map(get, ids()), key=lambda e: (e.chapter, e.order))}
