"""The results of a class in one SQLite file, with one writer: a row a student and exercise, each written once; and by
exercise which answers resemble each other."""

import dataclasses
import json
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from ledger.judge.classroom.work import Row
from ledger.judge.errors import StateError

SCHEMA = 1
_COLUMNS = tuple(field.name for field in dataclasses.fields(Row))
_TABLES = f"""
CREATE TABLE IF NOT EXISTS class (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS results (
  {", ".join(f"{name} NOT NULL" for name in _COLUMNS)},
  graded_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (student, exercise)
);
CREATE TABLE IF NOT EXISTS alike (exercise TEXT PRIMARY KEY, digest TEXT NOT NULL, pairs TEXT NOT NULL);
"""


class Store:
    """The file of results, held by one process alone while it is open.

    Raises StateError where it cannot be written, is held by another run, or is no file of results. What was written is
    on the disk: a run that ends at any moment goes on from there.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=0, isolation_level=None)
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("BEGIN EXCLUSIVE")
            self._db.execute("COMMIT")
            self._db.executescript(_TABLES)
            if self.setting("schema", str(SCHEMA)) != str(SCHEMA):
                raise StateError(f"{path} was written by another version of the judge: name another folder with --out")
            self._db.execute("SELECT " + ", ".join(_COLUMNS) + " FROM results LIMIT 1")
        except (sqlite3.Error, OSError) as error:
            raise StateError(self._why(error)) from None

    def _why(self, error: Exception) -> str:
        if "locked" in str(error):
            return f"{self.path} is held by another run of the judge: wait for it, or name another folder with --out"
        return f"{self.path} cannot be used for the results: {error} (name another folder with --out)"

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *exception: object) -> None:
        self._db.close()

    def setting(self, name: str, default: str) -> str:
        """The value kept under ``name``; the first time it is ``default``, which is then kept."""
        self._db.execute("INSERT OR IGNORE INTO class VALUES (?, ?)", (name, default))
        return self._db.execute("SELECT value FROM class WHERE name = ?", (name,)).fetchone()[0]

    def keep(self, name: str, value: str) -> None:
        """Keep another ``value`` under ``name``."""
        self._db.execute("INSERT OR REPLACE INTO class VALUES (?, ?)", (name, value))

    def digests(self) -> dict[tuple[str, str], str]:
        """The digest of each answer that has a verdict, by student and exercise; what the judge failed on and what the
        machine could not run have none, and are tried again."""
        kept = "verdict NOT IN ('judge_error', 'skipped')"
        rows = self._db.execute(f"SELECT student, exercise, digest FROM results WHERE {kept}")
        return {(student, exercise): digest for student, exercise, digest in rows}

    def write(self, rows: Iterable[Row]) -> None:
        """Put ``rows`` in, all of them or none, in the place of earlier ones of the same student and exercise."""
        marks = ", ".join("?" * len(_COLUMNS))
        try:
            self._db.execute("BEGIN")
            self._db.executemany(
                f"INSERT OR REPLACE INTO results ({', '.join(_COLUMNS)}) VALUES ({marks})",
                [dataclasses.astuple(row) for row in rows],
            )
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise StateError(self._why(error)) from None

    def alike(self, exercise: str, digest: str) -> list[tuple[str, str, float]] | None:
        """An exercise's pairs, two students and a share each; None where they are not of the answers ``digest``, or
        cannot be read."""
        asked = "SELECT pairs FROM alike WHERE exercise = ? AND digest = ?"
        try:
            found = self._db.execute(asked, (exercise, digest)).fetchone()
            return found and [tuple(pair) for pair in json.loads(found[0])]
        except (sqlite3.Error, ValueError):
            return None

    def keep_alike(self, exercise: str, digest: str, pairs: list[tuple[str, str, float]]) -> None:
        """Keep the pairs of the answers ``digest``, in the place of earlier ones of the exercise."""
        try:
            self._db.execute("INSERT OR REPLACE INTO alike VALUES (?, ?, ?)", (exercise, digest, json.dumps(pairs)))
        except sqlite3.Error as error:
            raise StateError(self._why(error)) from None

    def rows(self) -> Iterator[Row]:
        """Every row, by student and in no order within."""
        for values in self._db.execute(f"SELECT {', '.join(_COLUMNS)} FROM results ORDER BY student"):
            yield Row(*values)
