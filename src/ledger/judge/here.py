"""Run answers in this very process: the check in a notebook, and the whole ladder where no other process can be had.

It gives the outcomes that ``ledger.judge.run`` gives, as far as ``ledger.judge.guard`` reaches, and protects nothing.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import ledger
from ledger.judge.guard import OUTPUT_BYTES, OutOfTime, Spent, output_limit, within
from ledger.judge.launchers import launched
from ledger.judge.load import QUIET, load, own
from ledger.judge.observe import observe, own_lines
from ledger.judge.outcome import Call, Cell, Job, Outcome, Run

#: Characters of an answer's output that a run keeps.
_HEAD = 4096


def call_all(
    function: Callable[..., Any],
    calls: Iterable[Call],
    case_seconds: float = Job.case_seconds,
    total_seconds: float = Job.total_seconds,
) -> list[Outcome]:
    """Observe every call of ``function``, in order. The first that is ended for its time or its output ends them
    all."""
    outcomes: list[Outcome] = []
    end = time.monotonic() + total_seconds
    final: Outcome | None = None
    for call in calls:
        if final is not None:
            outcomes.append(final)
            continue
        # A counted call runs twice and so has twice the time.
        seconds, left = case_seconds * (2 if call.counted else 1), end - time.monotonic()
        allowed = f"{seconds:g} s" if seconds <= left else f"{total_seconds:g} s for all cases together"
        try:
            outcome = within(min(seconds, left), observe, function, call)
        except Spent as spent:
            outcome = outcome_of(spent, "call", allowed)
            final = replace(outcome, lines=(), detail="not run")
        outcomes.append(outcome)
    return outcomes


def outcome_of(spent: Spent, stage: str, allowed: str) -> Outcome:
    """The outcome of code that used up a budget, with the learner's own lines."""
    detail = allowed if isinstance(spent, OutOfTime) else f"more than {OUTPUT_BYTES:,} bytes"
    return Outcome(spent.kind, stage, detail=detail, lines=own_lines(spent))


@contextlib.contextmanager
def patch_dict(namespace: dict[str, Any], instead: dict[str, Any]) -> Iterator[None]:
    """Let the names of ``instead`` mean something else for a while."""
    before = {name: namespace[name] for name in instead if name in namespace}
    namespace.update(instead)
    try:
        yield
    finally:
        for name in instead:
            namespace.pop(name, None)
        namespace.update(before)


class Here:
    """Stands in for ``ledger.judge.run.Runner`` where there is no other process: one job at a time, in this one."""

    layers: tuple[str, ...] = ()

    def __init__(self):
        self.ending: set[tuple[Cell, ...]] = set()  # as a Runner's; nothing ends this process

    def run(self, job: Job) -> Run:
        """Load the cells of ``job`` in a namespace of their own and run its calls."""
        start = time.perf_counter()
        printed: list[str] = []
        try:
            with output_limit(job.output_bytes, printed), patch_dict(vars(ledger), QUIET):
                outcomes, notes = self._run(job)
        except Spent as spent:  # between two calls
            outcomes, notes = [outcome_of(spent, "call", f"{job.total_seconds:g} s")] * len(job.calls), []
        return Run(outcomes, self.layers, "".join(printed)[:_HEAD], time.perf_counter() - start, notes=notes)

    def _run(self, job: Job) -> tuple[list[Outcome], list[str]]:
        try:
            loaded = within(job.load_seconds, load, job.cells, job.function)
        except Spent as spent:
            stopped = own(outcome_of(spent, "load", f"{job.load_seconds:g} s"), job.cells)
            return [stopped] * len(job.calls), []
        if loaded.outcome is not None:
            return [loaded.outcome] * len(job.calls), loaded.notes
        function = launched(job.launcher, loaded.function)
        outcomes = call_all(function, job.calls, job.case_seconds, job.total_seconds)
        return [own(outcome, job.cells) for outcome in outcomes], loaded.notes
