"""What an exercise is: its cases, its oracle, its hints, its known mistakes, its wrong answers and its budget.

Everything here is data that the judge, the in-notebook check and the builder read; nothing here grades.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Dims = Mapping[str, int]
Make = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Raises:
    """What the answer must raise: the name of the exception's type, and words that its message must hold."""

    error: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """One set of inputs: named sizes, and values drawn from a seed that changes on every run.

    ``layout="strided"`` hands every array over non-contiguous and read-only. ``make`` replaces the exercise's own
    ``make`` for this case: ``make(rng, dtype, **dims)``. With ``raises`` the inputs are to be refused, and no oracle is
    asked.
    """

    name: str
    dims: Dims = field(default_factory=dict)
    dtype: str = "float64"
    layout: str = "plain"
    make: Make | None = None
    raises: Raises | None = None


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that is recognised by its value: ``value(*args)`` is what code with this mistake returns.

    ``value`` may raise where the sizes of a case make the mistake impossible; it is then not a match. The functions in
    ``also`` give what the same mistake returns with another number in it; one function must fit all cases.
    """

    name: str
    says: str
    value: Callable[..., Any]
    also: tuple[Callable[..., Any], ...] = ()


@dataclass(frozen=True)
class Forbidden:
    """An array that must never exist, by the names of the sizes it would have."""

    name: str
    dims: tuple[str, ...]
    says: str


@dataclass(frozen=True)
class Budget:
    """What an answer may spend, counted while it runs on the case named ``case``.

    Counting happens in the answer's own process: a budget teaches, and does not stop somebody who forges the counts.

    ``text`` is the line of the statement. ``macs(**dims)`` is the most multiply-adds, ``products`` the most product
    calls, ``largest(**dims)`` the most elements of one array; ``peak_values(**dims)`` is the most array elements alive
    at once, the yardstick for code that leaves the counted arrays, whose memory alone can be seen. ``says`` (and
    ``says_products``) tell what to look for; they follow "too many multiply-adds:" and the like.
    """

    text: str
    case: str
    macs: Callable[..., int]
    largest: Callable[..., int]
    peak_values: Callable[..., int]
    says: str
    products: int | None = None
    says_products: str = ""
    forbidden: tuple[Forbidden, ...] = ()


@dataclass(frozen=True)
class Mutant:
    """A plausible wrong answer that the cases must reject, with a message that contains ``because``."""

    answer: Callable[..., Any]
    because: str
    verdict: str = "wrong"


@dataclass(frozen=True, eq=False)
class Exercise:
    """One exercise of the course, equal to itself alone; its statement, signature and reference body stand in
    ``course/practice``.

    ``make(rng, dtype, **dims)`` returns the arguments by name, in the order of the signature. ``oracle(*args)`` is an
    independent float64 route to the right value. ``least_macs(**dims)`` is the multiply-adds of the shortest right
    answer by formula: the prediction shown beside the count, and the line below which code was not counted. ``returns``
    names the parts of a result that is a tuple, and ``fixed_dtypes`` those of them whose dtype the statement fixes,
    whatever the inputs' own; ``may_share`` allows it to lie in its input's memory; ``needs`` are libraries without
    which the exercise is skipped. A float result may differ from the right one by ``absolute`` beside what rounding
    allows: for results near 0 that right answers reach by cancelling. ``launcher`` says how an answer is run that is
    not simply called with a case's inputs, which are then not its parameters (``ledger.judge.launchers``);
    ``case_seconds`` is what one case may take.
    """

    id: str
    chapter: int
    order: int
    title: str
    checks: str
    points: int
    difficulty: int
    minutes: int
    make: Make
    oracle: Callable[..., Any]
    cases: tuple[Case, ...]
    hints: tuple[str, ...]
    mutants: tuple[Mutant, ...]
    mistakes: tuple[Mistake, ...] = ()
    budget: Budget | None = None
    least_macs: Callable[..., int] | None = None
    returns: tuple[str, ...] = ()
    fixed_dtypes: tuple[str, ...] = ()
    may_share: bool = False
    needs: tuple[str, ...] = ()
    absolute: float = 0.0
    launcher: str = ""
    case_seconds: float = 2.0

    def case(self, name: str) -> Case:
        """The case called ``name``; a ValueError names the choices."""
        for case in self.cases:
            if case.name == name:
                return case
        raise ValueError(f"{self.id} has no case {name!r}; its cases are: {', '.join(c.name for c in self.cases)}")

    def inputs(self, case: Case, seed: int) -> dict[str, Any]:
        """The arguments of ``case`` by name, from ``seed`` and the case's place in the list."""
        rng = np.random.default_rng([seed, self.cases.index(case)])
        return (case.make or self.make)(rng, np.dtype(case.dtype), **case.dims)
