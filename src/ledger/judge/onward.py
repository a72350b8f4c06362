"""Where to go next, and what a solution looks like."""

import re
import urllib.parse
import webbrowser
from collections.abc import Iterable, Mapping
from pathlib import Path

from ledger import exercises
from ledger.exercises import Exercise
from ledger.judge.cli import FAILED, PASSED, complain
from ledger.judge.collect import Submission, collect, notebooks_under, real, show_path
from ledger.judge.errors import UsageError
from ledger.judge.grade import plural
from ledger.judge.ladder import SAVE_FIRST, answers_in, is_ahead, kept_result
from ledger.judge.report import way_on
from ledger.judge.session import untouched
from ledger.judge.verdicts import ExerciseResult

ALL_PASSED = "Every exercise that can run here has passed."
_MARKER = re.compile(r"^[ \t]*### (?:BEGIN|END) SOLUTION\n?", re.MULTILINE)


def next_answer(results: Iterable[ExerciseResult]) -> Exercise | None:
    """The first exercise of ``results`` that is still to be solved; None where there is none."""
    return next((exercises.get(result.id) for result in results if is_ahead(result)), None)


def told_next(
    exercise: Exercise | None,
    answers: Mapping[str, Submission],
    results: Iterable[ExerciseResult],
    entries: Mapping[str, Mapping],
) -> list[str]:
    """What to say of the exercise that comes next, and of those that passed before and wait to be run again."""
    lines = next_lines(exercise, answers[exercise.id], entries) if exercise else [ALL_PASSED]
    before = sum(result.verdict == "before" for result in results)
    again = f"{plural(before, 'exercise')} passed with another version of the course or of the cells above"
    return lines + [f"{again}: python judge.py runs what changed."] * bool(before)


def next_lines(exercise: Exercise, answer: Submission, entries: Mapping[str, Mapping]) -> list[str]:
    """The exercise in a few lines: what it is, how long it takes, and where its answer waits."""
    seen, last = entries.get(exercise.id, {}).get("hints", 0), len(exercise.hints)
    begun = "Next" if untouched(answer) or answer.problem else "Go on with"
    where = f"It waits in {answer.where}. {SAVE_FIRST if untouched(answer) else ''}".rstrip()
    if answer.problem:
        where = f"{answer.problem}: {way_on(exercise.id) if answer.broken else f'python judge.py reset {exercise.id}'}"
    return [
        f"{begun}: {exercise.id} (about {exercise.minutes} min): {exercise.title}",
        where,
        f"Hints read: {min(seen, last)} of {last} (python judge.py hint {exercise.id})",
    ]


def show_next(root: Path, entries: Mapping[str, Mapping], open_it: bool) -> int:
    """Print the next exercise; with ``open_it`` also open it in the JupyterLab that serves the course."""
    answers = answers_in(root / "practice")
    results = [kept_result(answer, entries) for answer in answers.values()]
    exercise = next_answer(results)
    print(*told_next(exercise, answers, results, entries), sep="\n")
    if exercise is None or not open_it:
        return PASSED
    answer = answers[exercise.id]
    if answer.path is None:
        return complain(answer.problem, FAILED)
    address = address_in_lab(answer.path, exercise.id)
    if address is None:
        return complain(f"no JupyterLab runs on this course: make lab, or jupyter lab {show_path(answer.path)}", FAILED)
    webbrowser.open(address)
    return PASSED


def address_in_lab(notebook: Path, id: str) -> str | None:
    """The address of an exercise in a JupyterLab whose folder holds ``notebook``; None where none runs."""
    try:
        from jupyter_server.serverapp import list_running_servers
    except ImportError:
        return None
    for server in list_running_servers():
        place = real(Path(server.get("root_dir", "")))
        if real(notebook).is_relative_to(place):
            path = urllib.parse.quote(real(notebook).relative_to(place).as_posix())
            token = f"?token={server['token']}" if server.get("token") else ""
            return f"{server['url']}lab/tree/{path}{token}#cell-id={id}-statement"
    return None


def solution_of(exercise: Exercise, root: Path) -> str:
    """The reference answer as it stands in ``solutions/``; raises UsageError where it is not there."""
    answer = collect(exercise, *notebooks_under(root / "solutions"))
    if answer.problem:
        raise UsageError(f"the solution is not here: {answer.problem} in {show_path(root / 'solutions')}")
    return _MARKER.sub("", answer.cells[-1].source).strip()
