"""The learner's state: ``.ledger/`` at the course's root. Every write is whole or not at all."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ledger.browser import IN_BROWSER
from ledger.judge.errors import StateError
from ledger.judge.verdicts import ExerciseResult


def write_whole(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` in one step, so that a reader sees the old file or the new one. The mode stays, and
    a link still leads to the file."""
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


class Digests(NamedTuple):
    """What tells an answer from others: ``digest`` with the cells above it and the course's version, ``own`` by its own
    text alone."""

    digest: str
    own: str


#: Hints that an exercise may have.
MOST_HINTS = 9


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold the lock of ``folder``; without one where the system, or the folder, offers none. In a browser nobody else
    is there, and a lock would wait for ever."""
    if IN_BROWSER:
        yield
        return
    try:
        import fcntl

        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / "lock", "a", encoding="utf-8")  # noqa: SIM115
    except (ImportError, OSError):
        yield
        return
    with file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Progress:
    """Best verdict, points and hints seen of each exercise, in ``.ledger/progress.json``."""

    def __init__(self, root: Path):
        self.folder = root / ".ledger"
        self.path = self.folder / "progress.json"
        self.remark = ""
        self.exercises: dict[str, dict] = self._read()

    @classmethod
    @contextlib.contextmanager
    def locked(cls, root: Path) -> Iterator["Progress"]:
        """The progress as it is now, which is written at the end; no other judge reads it to write it meanwhile. Raises
        StateError where it cannot be read or written."""
        with one_at_a_time(root / ".ledger"):
            progress = cls(root)
            yield progress
            progress.save()

    def _read(self) -> dict[str, dict]:
        """What was kept. A file that cannot be read is moved aside, never overwritten."""
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            return {id: checked(entry) for id, entry in data["exercises"].items()}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StateError(f"{self.path} cannot be read: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            aside = self.path.with_name(f"progress.damaged-{stamp()}.json")
            with contextlib.suppress(OSError):
                os.replace(self.path, aside)
                self.remark = f"{self.path} was damaged: it was moved to {aside.name}, and progress starts anew"
            return {}

    def record(self, results: Iterable[ExerciseResult], digests: Mapping[str, Digests] = MappingProxyType({})) -> None:
        """Note the newest verdict of each result, that an exercise was once passed, and of which answer: ``digests``
        has it by exercise."""
        for result in results:
            entry = self.exercises.setdefault(result.id, {})
            entry["verdict"], entry["points"] = result.verdict, result.points
            for kind in Digests._fields:
                entry.pop(kind, None)
            if result.id in digests and result.verdict != "judge_error":
                entry |= digests[result.id]._asdict()
            if result.verdict == "passed":
                entry["passed"] = True

    def hints_seen(self, id: str) -> int:
        """How many hints of an exercise have been shown."""
        return self.exercises.get(id, {}).get("hints", 0)

    def saw_hint(self, id: str, level: int) -> None:
        """Note that hint ``level`` was shown."""
        self.exercises.setdefault(id, {})["hints"] = max(level, self.hints_seen(id))

    def reveal(self, id: str) -> None:
        """Note that the solution was shown before the exercise was passed."""
        self.exercises.setdefault(id, {})["revealed"] = True

    def save(self) -> None:
        """Write the file; raises StateError where the folder cannot be written."""
        data = json.dumps({"schema": 1, "exercises": self.exercises}, indent=2, sort_keys=True) + "\n"
        try:
            write_whole(self.path, data.encode())
        except OSError as error:
            raise StateError(f"progress was not kept: {self.path}: {error.strerror or error}") from None


def checked(entry: dict) -> dict:
    """An exercise's entry with what this version knows of it, in the right types; the rest is kept as it is."""
    kinds = {"verdict": str, "points": int | float, "passed": bool, "hints": int, "revealed": bool}
    kinds |= dict.fromkeys(Digests._fields, str)
    kept = {key: value for key, value in entry.items() if key not in kinds or isinstance(value, kinds[key])}
    return kept | ({"hints": min(max(0, int(kept["hints"])), MOST_HINTS)} if "hints" in kept else {})


def stamp() -> str:
    """The time for a file's name."""
    return datetime.now().strftime("%Y%m%d-%H%M%S-%f")


def back_up(path: Path, root: Path) -> Path:
    """Copy ``path`` to ``.ledger/backups`` under a name of its own and return where; raises StateError."""
    to = root / ".ledger" / "backups" / f"{path.stem}-{stamp()}{path.suffix}"
    try:
        write_whole(to, path.read_bytes())
    except OSError as error:
        raise StateError(f"no backup could be made in {to.parent}: {error.strerror or error}") from None
    return to
