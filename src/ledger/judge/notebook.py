"""``check``, ``case`` and ``hint`` for a notebook: the judge's cases and comparison in the learner's own process.

A check here teaches; it does not protect. Answers are run apart from the judge only by ``judge.py`` and the autograder.
"""

import html
import os
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ledger import exercises
from ledger.browser import IN_BROWSER, root_above
from ledger.judge import report
from ledger.judge.errors import StateError
from ledger.judge.grade import calls_of, fresh_seed, grade
from ledger.judge.guard import output_limit
from ledger.judge.here import call_all
from ledger.judge.launchers import launched
from ledger.judge.observe import lay_out
from ledger.judge.verdicts import ExerciseResult


class CheckFailed(AssertionError):
    """An answer did not pass its check; the text is the judge's message."""


class Shown:
    """A result as a notebook shows it: text, and the same text in HTML."""

    def __init__(self, text: str, passed: bool):
        self.text, self.passed = text, passed

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        edge = "#2e7d32" if self.passed else "#c62828"
        style = f"border-left:4px solid {edge};padding-left:.8em;margin:0;font-family:monospace"
        style += ";white-space:pre-wrap;overflow-wrap:anywhere"
        return f'<pre style="{style}">{html.escape(self.text)}</pre>'


def find(id: str) -> exercises.Exercise:
    """The exercise called ``id``; a ValueError names the closest ids."""
    try:
        return exercises.get(id)
    except KeyError:
        raise ValueError(f"there is no exercise {id!r}; the exercises are: {', '.join(exercises.ids())}") from None


def check(id: str, answer: Callable[..., Any], seed: int | None = None) -> float | None:
    """Grade ``answer`` on the cases of exercise ``id`` and show the result.

    In a notebook the result appears under the cell and nothing is raised. nbgrader reads a graded cell's last value as
    its score and a cell without output as full marks, so under its autograder the points are returned, and an answer
    that passes no case raises, as does any failure while nbgrader validates. Anywhere else a failure raises CheckFailed
    with the judge's message. ``seed`` repeats the inputs of an earlier run.
    """
    exercise = find(id)
    if not callable(answer):
        raise TypeError(f"check({id!r}, answer) wants the function itself, not {answer!r}; write check({id!r}, {id})")
    result = run_here(exercise, answer, fresh_seed() if seed is None else seed)
    passed = result.verdict == "passed"
    shown = Shown(report.one_exercise(result), passed)
    nbgrader = os.environ.get("NBGRADER_EXECUTION")
    must_raise = not passed and (result.points == 0 or nbgrader != "autograde")
    if nbgrader or not in_notebook():
        if must_raise:
            raise CheckFailed(shown.text)
        print(shown)
        return float(result.points) if nbgrader == "autograde" else None
    from IPython.display import display

    display(shown)
    return None


def run_here(exercise: exercises.Exercise, answer: Callable[..., Any], seed: int) -> ExerciseResult:
    """Observe every case in this process, within the budgets that hold here, and grade it."""
    start = time.perf_counter()
    if exercise.needs:
        from ledger.judge.collect import Submission
        from ledger.judge.session import what_lacks, without_run

        lacking = what_lacks(exercise)
        if lacking:
            return without_run(Submission(exercise), "skipped", lacking)
    calls = calls_of(exercise, seed)
    with output_limit():
        outcomes = call_all(launched(exercise.launcher, answer), calls, exercise.case_seconds)
    return grade(exercise, seed, calls, outcomes, time.perf_counter() - start)


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel, on a machine or in a browser."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and type(shell).__name__ != "TerminalInteractiveShell"


def case(id: str, name: str, seed: int) -> tuple:
    """The inputs of one case as a named tuple, laid out as the judge lays them: ``absorb_query(*case(...))``.

    ``name`` and ``seed`` stand in the judge's message. Raises ValueError for an unknown id or name.
    """
    exercise = find(id)
    chosen = exercise.case(name)
    inputs = exercise.inputs(chosen, seed)
    kind = namedtuple(f"{id}_case", inputs)
    return kind(*(lay_out(value, chosen.layout) for value in inputs.values()))


#: What this kernel has shown, for where the course's folder is not around or cannot be written.
_hints_shown: dict[str, int] = {}


def course_around() -> Path | None:
    """The course's folder around the working folder, where the learner's progress is kept; None where there is none."""
    from ledger.judge.cli import course_root

    try:
        return (root_above if IN_BROWSER else course_root)(Path.cwd())
    except OSError:  # the working folder is gone
        return None


def hints_seen(id: str, root: Path | None) -> int:
    """How many hints of an exercise this kernel, or the learner's progress, has shown."""
    from ledger.judge.progress import Progress

    kept = 0
    if root:
        with suppress(StateError):
            kept = Progress(root).hints_seen(id)
    return max(kept, _hints_shown.get(id, 0))


def hint(id: str, level: int | None = None) -> None:
    """Print a hint of exercise ``id``: hint ``level``, or the next one that was not shown; and remember it, in a course
    as ``judge.py hint`` does.

    Hints go from the idea to a skeleton. Raises ValueError for an unknown id or level.
    """
    from ledger.judge.progress import Progress  # only a hint needs it, and a browser starts the sooner without

    exercise, root = find(id), course_around()
    last = len(exercise.hints)
    if level is None:
        level = min(hints_seen(id, root) + 1, last)
    if not 1 <= level <= last:
        raise ValueError(f"{id} has hints 1 to {last}; {level} was asked")
    _hints_shown[id] = max(level, _hints_shown.get(id, 0))
    print(f"Hint {level} of {last}: {exercise.hints[level - 1]}")
    if root and not os.environ.get("NBGRADER_EXECUTION"):
        try:
            with Progress.locked(root) as progress:
                progress.saw_hint(id, level)
        except StateError as error:
            print(f"this hint is not remembered: {error}", file=sys.stderr)
