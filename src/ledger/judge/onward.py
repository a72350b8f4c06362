"""Where to go next, and what a solution looks like."""

import re
import urllib.parse
import webbrowser
from collections.abc import Mapping
from pathlib import Path

from ledger import exercises
from ledger.exercises import Exercise
from ledger.judge.cli import FAILED, PASSED, complain
from ledger.judge.collect import collect, notebooks_under, show_path
from ledger.judge.errors import UsageError
from ledger.judge.session import what_lacks

_MARKER = re.compile(r"^[ \t]*### (?:BEGIN|END) SOLUTION\n?", re.MULTILINE)


def next_exercise(entries: Mapping[str, Mapping]) -> Exercise | None:
    """The first exercise of the course that has not passed and can run here; None where there is none."""
    everything = exercises.registry().values()
    ahead = (e for e in everything if entries.get(e.id, {}).get("verdict") != "passed" and not what_lacks(e))
    return next(ahead, None)


def next_lines(exercise: Exercise, root: Path, entries: Mapping[str, Mapping]) -> list[str]:
    """The exercise in a few lines: what it is, how long it takes, and where it waits."""
    answer = collect(exercise, *notebooks_under(root / "practice"))
    tried = entries.get(exercise.id, {}).get("verdict") not in (None, "todo", "missing")
    seen, last = entries.get(exercise.id, {}).get("hints", 0), len(exercise.hints)
    return [
        f"{'Go on with' if tried else 'Next'}: {exercise.id} (about {exercise.minutes} min): {exercise.title}",
        f"It waits in {answer.where}." if answer.where else f"{answer.problem}: python judge.py reset {exercise.id}",
        f"Hints read: {seen} of {last} (python judge.py hint {exercise.id})",
    ]


def show_next(root: Path, entries: Mapping[str, Mapping], open_it: bool) -> int:
    """Print the next exercise; with ``open_it`` also open it in the JupyterLab that serves the course."""
    exercise = next_exercise(entries)
    if exercise is None:
        print("Every exercise that can run here has passed.")
        return PASSED
    print(*next_lines(exercise, root, entries), sep="\n")
    if not open_it:
        return PASSED
    answer = collect(exercise, *notebooks_under(root / "practice"))
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
        place = Path(server.get("root_dir", "")).resolve()
        if notebook.resolve().is_relative_to(place):
            path = urllib.parse.quote(notebook.resolve().relative_to(place).as_posix())
            token = f"?token={server['token']}" if server.get("token") else ""
            return f"{server['url']}lab/tree/{path}{token}#cell-id={id}-statement"
    return None


def solution_of(exercise: Exercise, root: Path) -> str:
    """The reference answer as it stands in ``solutions/``; raises UsageError where it is not there."""
    answer = collect(exercise, *notebooks_under(root / "solutions"))
    if answer.problem:
        raise UsageError(f"the solution is not here: {answer.problem} in {show_path(root / 'solutions')}")
    return _MARKER.sub("", answer.cells[-1].source).strip()
