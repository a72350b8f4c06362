"""One grading session: submissions in, graded exercises out, in the course's order as they are ready."""

import ast
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from importlib.util import find_spec
from types import MappingProxyType

from ledger import exercises
from ledger.browser import IN_BROWSER
from ledger.exercises import Exercise
from ledger.judge.collect import Submission, bound, is_stub, parsed
from ledger.judge.grade import calls_of, grade
from ledger.judge.here import Here
from ledger.judge.launch import ServerLost
from ledger.judge.outcome import Call, Cell, Job, Outcome, Run
from ledger.judge.run import Runner
from ledger.judge.verdicts import CaseResult, ExerciseResult
from ledger.judge.version import answer_digest

#: Runs of an answer whose process cells above it end before the judge leaves it at that.
LEFT_OUT = 3
#: Verdicts of an answer that was run and is at fault.
_AT_FAULT = ("wrong", "error", "timeout", "memory", "output", "crash")


def grade_all(
    submissions: Iterable[Submission],
    runner: Runner | Here,
    seed: int,
    entries: Mapping[str, Mapping] = MappingProxyType({}),
) -> Iterator[ExerciseResult]:
    """Grade each submission, two at a time where the runner can, and yield the results in order. One that fails says
    which exercise it calls that fails too, here or by ``entries``, the learner's progress.

    Whoever stops before the last result ends the runner with what still runs; after it the runner is left as it is.
    """
    submissions, verdicts = list(submissions), {}
    with closing(run_all(submissions, runner, seed)) as results:
        for submission, result in zip(submissions, results, strict=True):
            verdicts[result.id] = result.verdict
            say_where_to_begin(result, submission, verdicts, entries)
            yield result


def run_all(submissions: list[Submission], runner: Runner | Here, seed: int) -> Iterator[ExerciseResult]:
    """The result of each submission, in order, as ``grade_all`` yields them."""
    if isinstance(runner, Here):
        yield from (grade_one(submission, runner, seed) for submission in submissions)
        return
    pool = ThreadPoolExecutor(min(2, os.cpu_count() or 1))
    asked = []
    warm_up(submissions, runner)
    try:
        asked += (pool.submit(grade_one, submission, runner, seed) for submission in submissions)
        for one in asked:
            yield one.result()
    except BaseException:
        if not all(one.done() for one in asked):
            runner.close()  # what still runs ends now, so that nobody waits for it
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def say_where_to_begin(
    result: ExerciseResult,
    submission: Submission,
    verdicts: Mapping[str, str],
    entries: Mapping[str, Mapping] = MappingProxyType({}),
) -> None:
    """Name in a failed result the first exercise that the answer calls and that does not pass either: by the
    ``verdicts`` of this run, or by those in ``entries`` of answers that are unchanged since."""
    failure = result.failure
    if result.verdict not in _AT_FAULT or failure.calls:
        return
    names = called(submission)
    for number, cell in enumerate(submission.cells[:-1] if names else (), 1):
        for id in sorted(names & bound(cell.source)):
            entry = entries.get(id, {})
            digest = answer_digest(id, *(above.source for above in submission.cells[:number]))
            kept = entry.get("verdict") if entry.get("digest") == digest else None
            if verdicts.get(id, kept) in _AT_FAULT:
                row = ("calls", f"{id}, which does not pass: begin there")
                place = result.cases.index(failure)
                result.cases[place] = replace(failure, rows=(*failure.rows, row), calls=id)
                return


def called(submission: Submission) -> set[str]:
    """The other exercises that the answer's own cell calls by name and does not define itself."""
    source = submission.cells[-1].source if len(submission.cells) > 1 else ""
    calls = [node.func for node in ast.walk(parsed(source)) if isinstance(node, ast.Call)]
    names = {name.id for name in calls if isinstance(name, ast.Name)}
    return (names & set(exercises.ids())) - bound(source) - {submission.exercise.id}


def warm_up(submissions: Iterable[Submission], runner: Runner) -> None:
    """Let what the answers need beside NumPy be imported while others are graded: torch takes a second or two."""
    needed = {one.exercise.needs for one in submissions if one.exercise.needs and has_to_run(one)}
    with suppress(OSError, ServerLost):  # whoever needs it will say so
        for modules in sorted(needed, key=len, reverse=True):
            runner.start(*modules)


def grade_one(submission: Submission, runner: Runner | Here, seed: int) -> ExerciseResult:
    """Run one answer apart and grade it; the judge's own failure is a verdict of its own."""
    exercise = submission.exercise
    lacking = what_lacks(exercise)
    if lacking and not submission.broken:
        return without_run(submission, "skipped", lacking)
    if submission.problem:
        return without_run(submission, "error" if submission.broken else "missing", submission.problem)
    start = time.perf_counter()
    calls = calls_of(exercise, seed)
    try:
        run = run_answer(job_of(submission, calls), runner)
        result = grade(exercise, seed, calls, run.outcomes, time.perf_counter() - start)
        result.output = run.output
        remarks = run.left_out if result.verdict == "passed" else [*run.notes, *notes_on(submission, run, calls[0])]
    except Exception as error:
        failed = Outcome("judge_error", detail=f"{type(error).__name__}: {error}")
        result = grade(exercise, seed, calls, [failed] * len(calls), time.perf_counter() - start)
        remarks = []
    result.notes, result.where = [*submission.notes, *remarks], submission.where
    return result


def run_answer(job: Job, runner: Runner | Here) -> Run:
    """Run a job; where a cell above the answer ends the process, without that cell: an endless loop or an exit in one
    answer must not cost the answers below it. A cell that did so once, after the same cells, is left out of later jobs
    from the start."""
    for _ in range(LEFT_OUT):
        tried, left_out = without(runner.ending, job)
        run = runner.run(tried)
        if run.ended_in is None:
            break
        runner.ending.add(tried.cells[: run.ended_in + 1])
    run.left_out = left_out
    run.notes = [*left_out, *run.notes]
    return run


def without(ending: set[tuple[Cell, ...]], job: Job) -> tuple[Job, list[str]]:
    """A job without the cells above the answer that are known to end its process, and a note on each."""
    *above, answer = job.cells
    kept, notes = (), []
    for cell in above:
        if (*kept, cell) in ending:
            notes.append(f"{cell.file}, above the answer, ended the process and was left out")
        else:
            kept += (cell,)
    return replace(job, cells=(*kept, answer)), notes


def has_to_run(submission: Submission) -> bool:
    """Whether grading an answer starts a process: it is there, can be read, and what it needs is installed."""
    return not submission.problem and not what_lacks(submission.exercise)


def untouched(submission: Submission) -> bool:
    """Whether the answer is a stub as it was handed out, whose verdict nobody needs to run it for."""
    if submission.problem or not submission.cells:
        return False
    source = submission.cells[-1].source
    return is_stub(source) and all(isinstance(node, ast.FunctionDef) for node in parsed(source).body)


def job_of(submission: Submission, calls: list[Call]) -> Job:
    """What the process of an answer is to do."""
    exercise = submission.exercise
    return Job(
        exercise.id,
        submission.cells,
        tuple(calls),
        case_seconds=exercise.case_seconds,
        launcher=exercise.launcher,
        needs=exercise.needs,
    )


def what_lacks(exercise: Exercise) -> str:
    """Why an exercise cannot be run here, in a sentence; nothing where it can."""
    lacking = [name for name in exercise.needs if not installed(name)]
    where = ", which no browser has: open the course on a computer" if IN_BROWSER else ""
    return f"this needs {' and '.join(lacking)}{where}" if lacking else ""


def installed(name: str) -> bool:
    """Whether a package is here; in a browser looking for torch raises a sentence."""
    try:
        return find_spec(name) is not None
    except ImportError:
        return False


def notes_on(submission: Submission, run: Run, call: Call) -> list[str]:
    """What the answer's text and output say about why it failed."""
    notes, wanted = [], list(call.args)
    functions = (n for n in ast.walk(parsed(submission.cells[-1].source)) if isinstance(n, ast.FunctionDef))
    found = [[arg.arg for arg in f.args.args] for f in functions if f.name == submission.exercise.id]
    if not submission.exercise.launcher and found and found[-1] != wanted and sorted(found[-1]) == sorted(wanted):
        notes.append(f"your parameters are ({', '.join(found[-1])}); the exercise has ({', '.join(wanted)})")
    if run.output.strip() and any(o.kind == "returned" and o.value is None for o in run.outcomes):
        notes.append("your function prints something and returns None: return the result")
    return notes


def without_run(submission: Submission, verdict: str, message: str) -> ExerciseResult:
    """An exercise that has nothing to run."""
    exercise = submission.exercise
    cases = [CaseResult(case.name, verdict, message, (("happened", message),)) for case in exercise.cases]
    head = (exercise.id, exercise.chapter, exercise.title, verdict, 0, exercise.points, 0.0, message)
    return ExerciseResult(*head, cases, notes=list(submission.notes), where=submission.where)
