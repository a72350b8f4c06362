"""What holds on this machine, in plain rows: the libraries, the course's files, the layers of isolation."""

from pathlib import Path
from typing import TextIO

from ledger.judge.collect import notebooks_under
from ledger.judge.errors import StateError
from ledger.judge.launch import bubblewrap
from ledger.judge.progress import Progress
from ledger.judge.run import Runner
from ledger.measure import describe_machine


def doctor(root: Path | None, out: TextIO) -> int:
    """Print the rows and return 0, or 3 where the judge cannot grade here."""
    faults = []
    print("This machine", file=out)
    for what, state in describe_machine():
        print(f"  {what:<14} {state}", file=out)
    print("\nThe course", file=out)
    for what, state in course_rows(root, faults):
        print(f"  {what:<14} {state}", file=out)
    print("\nIsolation of answers", file=out)
    for what, state in isolation_rows(faults):
        print(f"  {what:<14} {state}", file=out)
    for fault in faults:
        print(f"\njudge: {fault}", file=out)
    return 3 if faults else 0


def course_rows(root: Path | None, faults: list[str]) -> list[tuple[str, str]]:
    """The practice notebooks and the learner's state."""
    if root is None:
        return [("folder", "none here: run judge.py from the course's folder")]
    read, unreadable = notebooks_under(root / "practice")
    rows = [("practice", f"{len(read)} notebooks"), *(("", str(error)) for error in unreadable)]
    try:
        progress = Progress(root)
        passed = sum(bool(entry.get("passed")) for entry in progress.exercises.values())
        progress.save()
        rows.append(("progress", f"{passed} exercises passed so far, kept in .ledger/"))
    except StateError as error:
        rows.append(("progress", str(error)))
    return rows


def isolation_rows(faults: list[str]) -> list[tuple[str, str]]:
    """The layers that hold in a jailed process here, and every forbidden action that one of them did not deny."""
    try:
        with Runner() as runner:
            isolation = runner.isolation
    except OSError as error:
        faults.append(f"no answer can be run apart here: {error}")
        return [("layers", "none")]
    if not isolation.probes:
        faults.append("the self-test of the isolation did not run")
    tried = len(isolation.probes)
    outer = "works: a class is graded inside of it" if bubblewrap() else "none that works: a class is graded without it"
    rows = [
        ("bubblewrap", outer),
        ("layers", ", ".join(isolation.layers) or "none: answers run in a process of their own and no more"),
        ("self-test", f"{tried - len(isolation.allowed)} of {tried} forbidden actions were denied"),
    ]
    return rows + [("not denied", action) for action in isolation.allowed]
