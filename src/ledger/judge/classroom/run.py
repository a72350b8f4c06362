"""``judge.py class DIR``: grade a folder of submissions, keep the results, and write the tables."""

import argparse
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ledger import exercises
from ledger.judge.classroom import pool, report
from ledger.judge.classroom.similar import similar
from ledger.judge.classroom.store import Store
from ledger.judge.classroom.work import Answer, Row, Work, answers_of, students_in, surroundings
from ledger.judge.cli import FAILED, FAULT, PASSED, complain
from ledger.judge.collect import real, show_path
from ledger.judge.errors import StateError, UsageError
from ledger.judge.grade import fresh_seed
from ledger.judge.progress import write_whole
from ledger.judge.run import Runner

#: Students, or stumbles, that a line names.
NAMED = 5


def run_class(options: argparse.Namespace, ids: list[str], root: Path | None) -> int:
    """Grade the class in ``options.folder`` on the exercises ``ids``, or on all that anybody handed in."""
    folder = real(options.folder)
    out = options.out or folder.with_name(f"{folder.name}-graded")
    if not folder.is_dir():
        raise UsageError(f"{show_path(folder)} is no folder: name one that holds a folder for each student")
    if real(out).is_relative_to(folder):
        raise UsageError("--out lies among the submissions: name a folder outside of them")
    if options.workers is not None and options.workers < 1:
        raise UsageError("--workers wants a number from 1 up")
    students, remarks = students_in(folder)
    if not students:
        raise UsageError(f"{show_path(folder)} holds no folder of a student and no notebook")
    if options.require_isolation:
        with Runner(extra_hidden=[folder], outer=True) as runner:
            if not runner.isolation.holds:
                return complain("answers cannot be isolated here, so none was run; see judge.py doctor", FAULT)
    for remark in remarks:
        complain(remark, PASSED)
    with Store(out / "results.sqlite") as store:
        graded = Class(store, options, ids or list(exercises.registry()), root)
        graded.grade(students)
        remarks += graded.remarks
        kept = list(store.rows())
        wanted = ids or graded.handed_in
        rows = [row for row in kept if row.student in students and row.exercise in wanted]
        gone = sorted({row.student for row in kept} - students.keys())
        if gone:
            named = ", ".join(gone[:NAMED]) + (f" and {len(gone) - NAMED} more" if len(gone) > NAMED else "")
            remarks.append(f"kept, but not in the tables, since nothing of theirs is there any more: {named}")
        if not rows:
            return complain(f"nobody in {show_path(folder)} handed in an answer to an exercise of this course", FAILED)
        write_tables(rows, remarks, f"{show_path(folder)}, seed {graded.seed}", out, store)
    print(*closing(rows, graded, out), sep="\n")
    return FAULT if any(row.verdict == "judge_error" for row in rows) else PASSED


class Class:
    """One run over a class: what is new is given out, and what comes back is kept at once."""

    def __init__(self, store: Store, options: argparse.Namespace, ids: list[str], root: Path | None):
        self.store, self.options, self.ids, self.root = store, options, ids, root
        if options.seed is not None:
            store.keep("seed", str(options.seed))
        kept = store.setting("seed", str(fresh_seed()))
        if not kept.isdecimal():
            raise StateError(f"{store.path} holds no seed but {kept[:20]!r}: set one with --seed N")
        self.seed = int(kept)
        self.known = {} if options.again else store.digests()
        self.handed_in: set[str] = set()
        self.remarks: list[str] = []
        self.new = self.unchanged = 0

    def grade(self, students: dict[str, Path]) -> None:
        """Grade what changed since the last run. Raises StateError where a result cannot be kept."""
        progress = Progress(len(students))
        works = self.works(students, progress)
        if self.options.scheduler:
            results = pool.grade_on_cluster(works, self.options.scheduler)
        else:
            hidden = [path for path in (real(self.options.folder), self.root) if path]
            results = pool.grade_here(works, self.options.workers or pool.processors(), hidden)
        with contextlib.closing(results):
            for rows in results:
                self.store.write(rows)
                self.new += sum(row.verdict != "missing" for row in rows)
                progress.step()
        progress.end()

    def works(self, students: dict[str, Path], progress: "Progress") -> Iterator[Work]:
        """The work of each student that has something new, read when it is asked for."""
        for student, path in students.items():
            try:
                answers, remarks = answers_of(path, self.ids, self.seed)
            except Exception as error:  # a student's files are anything; those of the others are graded all the same
                why = f"what {student} handed in could not be read: {type(error).__name__}: {error}"[:300]
                answers = tuple(Answer(id, "", problem=why, broken=True) for id in self.ids)
                remarks = [why]
            for remark in remarks:
                complain(remark, PASSED)
            self.remarks += remarks
            self.handed_in |= {answer.id for answer in answers if answer.handed_in}
            new = tuple(answer for answer in answers if self.known.get((student, answer.id)) != answer.digest)
            self.unchanged += sum(answer.handed_in for answer in answers if answer not in new)
            if new:
                yield Work(student, new, self.seed, surroundings())
            else:
                progress.step()


class Progress:
    """How many students are done and how long the others may take, on standard error: a line that is written over on a
    terminal, else one now and then."""

    def __init__(self, total: int, every: float = 10.0):
        self.total, self.every = total, every
        self.count = 0
        self.start = self.said = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def step(self) -> None:
        """One student more is done."""
        self.count += 1
        now = time.monotonic()
        if self.terminal or now - self.said >= self.every:
            self.said = now
            left = (now - self.start) / self.count * (self.total - self.count)
            text = f"  {self.count} of {self.total} students, about {duration(left)} left"
            print(
                f"\r\x1b[K{text}" if self.terminal else text,
                end="" if self.terminal else "\n",
                file=sys.stderr,
                flush=True,
            )

    def end(self) -> None:
        """Take the line away."""
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """A time in the unit that fits."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def write_tables(rows: list[Row], remarks: list[str], about: str, out: Path, store: Store) -> None:
    """``grades.csv`` and ``report.html``, each whole or not at all; ``store`` keeps which answers are alike."""
    written = [(row.student, row.exercise, row.source) for row in rows if row.verdict not in ("todo", "missing")]
    if sys.stderr.isatty():
        print("  comparing answers …", end="", file=sys.stderr, flush=True)
    page = report.to_html(rows, similar(written, store), remarks, about)
    pages = {"grades.csv": report.to_csv(rows), "report.html": page}
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    for name, page in pages.items():
        try:
            write_whole(out / name, page.encode())
        except OSError as error:
            raise StateError(f"{out / name} could not be written: {error.strerror or error}") from None


def closing(rows: list[Row], graded: Class, out: Path) -> list[str]:
    """What was done, what the class stumbled over most, and where the results are."""
    students, answers = {row.student for row in rows}, len(rows)
    passed = sum(row.verdict == "passed" for row in rows)
    failed = sum(row.verdict == "judge_error" for row in rows)
    lines = [
        f"{len(students)} students, {passed} of {answers} answers passed · {graded.new} graded, "
        f"{graded.unchanged} unchanged since the last run · seed {graded.seed}"
    ]
    common = Counter((row.exercise, row.stumble) for row in rows if row.stumble and row.verdict != "judge_error")
    lines += [f"  {count:>4} x  {exercise}: {name}" for (exercise, name), count in common.most_common(NAMED)]
    if failed:
        lines.append(f"{failed} answers could not be graded; run the same command again (judge.py doctor says more)")
    return [*lines, f"{show_path(out / 'report.html')}, grades.csv, results.sqlite"]
