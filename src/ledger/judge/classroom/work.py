"""One student's work: what of it is to grade, as plain data that can be sent anywhere, and the grading of it."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ledger import exercises
from ledger.judge.collect import Submission, collect, notebooks_under, read_notebook, show_path
from ledger.judge.errors import Unreadable
from ledger.judge.outcome import Cell
from ledger.judge.run import Runner
from ledger.judge.session import grade_one
from ledger.judge.verdicts import ExerciseResult
from ledger.judge.version import answer_digest, course_digest


@dataclass(frozen=True)
class Answer:
    """A student's answer to the exercise ``id``: what ``collect.Submission`` says of it, in types that can be sent.
    ``digest`` tells it from every other, on other cases and in other versions of the course as well."""

    id: str
    digest: str
    cells: tuple[Cell, ...] = ()
    where: str = ""
    problem: str = ""
    broken: bool = False
    notes: tuple[str, ...] = ()

    @property
    def handed_in(self) -> bool:
        """Whether anything of it is there: a cell, or a notebook that cannot be read."""
        return self.broken or not self.problem


@dataclass(frozen=True)
class Work:
    """Answers of one student, to be graded on the cases of ``seed`` by the course whose digest is ``course``."""

    student: str
    answers: tuple[Answer, ...]
    seed: int
    course: str


@dataclass(frozen=True)
class Row:
    """One graded answer. ``stumble`` says in a few words why it did not pass, so that others' can be counted with it;
    ``source`` is the text of the answer's own cell."""

    student: str
    exercise: str
    digest: str
    verdict: str
    points: float
    max_points: int
    message: str
    stumble: str
    place: str
    notes: str
    seconds: float
    source: str


class OtherCourse(RuntimeError):
    """The process that is to grade has another version of the course than the one that asks."""


def students_in(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """The students by name, each with what was handed in: a folder, or a single notebook that lies in ``folder``; and a
    line on everything else. What begins with a dot is passed over."""
    students: dict[str, Path] = {}
    strange = []
    for path in sorted(folder.iterdir()):
        name = path.stem if path.suffix == ".ipynb" else path.name
        if path.name.startswith("."):
            continue
        if not path.resolve().is_relative_to(folder.resolve()):
            strange.append(f"{show_path(path)} is a link to what lies outside of this folder")
        elif not path.is_dir() and not (path.is_file() and path.suffix == ".ipynb"):
            packed = ": unpack it into a folder of its own" if path.suffix in (".zip", ".gz", ".tar", ".7z") else ""
            strange.append(f"{show_path(path)} is neither a folder nor a notebook{packed}")
        elif name in students:
            strange.append(f"{show_path(path)} has the name of {show_path(students[name])}: rename one of them")
        else:
            students[name] = path
    return students, strange


def answers_of(path: Path, ids: Iterable[str], seed: int) -> tuple[Answer, ...]:
    """The answers to ``ids`` in one student's folder or notebook, to be graded on the cases of ``seed``."""
    read, unreadable = [], []
    if path.is_dir():
        read, unreadable = notebooks_under(path, links=False)
    else:
        try:
            read = [read_notebook(path, show_path(path))]
        except Unreadable as error:
            error.path = path
            unreadable = [error]
    return tuple(answer_of(collect(exercises.get(id), read, unreadable), seed) for id in ids)


def answer_of(submission: Submission, seed: int) -> Answer:
    """A submission as plain data."""
    texts = [cell.source for cell in submission.cells]
    digest = answer_digest(submission.exercise.id, str(seed), submission.problem, *texts)
    kept = (submission.cells, submission.where, submission.problem, submission.broken, tuple(submission.notes))
    return Answer(submission.exercise.id, digest, *kept)


_runner: Runner | None = None
_lock = threading.Lock()


def start(hidden: Iterable[str] = ()) -> Runner:
    """This process's runner, made when first asked for; answers cannot read the folders ``hidden``."""
    global _runner
    with _lock:
        if _runner is None:
            _runner = Runner(extra_hidden=list(hidden), outer=True)
        return _runner


def grade_work(work: Work) -> list[Row]:
    """Grade every answer of ``work``, each in a jailed process of its own. Raises OtherCourse where this process could
    come to other verdicts than the one that asks."""
    if work.course != course_digest():
        raise OtherCourse("a worker has another version of the course: install the same one everywhere")
    runner = start()
    return [row_of(work.student, answer, grade_answer(answer, runner, work.seed)) for answer in work.answers]


def grade_answer(answer: Answer, runner: Runner, seed: int) -> ExerciseResult:
    """One answer, graded as the command line grades it."""
    submission = Submission(
        exercises.get(answer.id), answer.cells, answer.where, None, answer.problem, answer.broken, list(answer.notes)
    )
    return grade_one(submission, runner, seed)


def row_of(student: str, answer: Answer, result: ExerciseResult) -> Row:
    """What is kept of a graded answer."""
    return Row(
        student,
        answer.id,
        answer.digest,
        result.verdict,
        result.points,
        result.max_points,
        result.message,
        stumble(result),
        answer.where,
        "; ".join(result.notes),
        round(result.seconds, 4),
        answer.cells[-1].source if answer.cells else "",
    )


def lost(student: str, ids: Iterable[str], why: str) -> list[Row]:
    """Rows for answers that could not be graded: the judge's own fault, not held against the student."""
    return [Row(student, id, "", "judge_error", 0, exercises.get(id).points, why, why, "", "", 0.0, "") for id in ids]


def stumble(result: ExerciseResult) -> str:
    """Why an answer did not pass: its known mistake by name, the exception's type, the first case that failed, or else
    the verdict alone. Empty where it passed or nothing was tried."""
    failure = result.failure
    if failure is None or result.verdict in ("todo", "missing", "skipped"):
        return ""
    pattern = dict(failure.rows).get("pattern", "")
    if pattern:
        return pattern.split(":")[0]
    if result.verdict == "error":
        return result.message.split(":")[0].split(" ")[0]
    if result.verdict == "wrong":
        return f"another value in {failure.name!r}"
    return result.verdict
