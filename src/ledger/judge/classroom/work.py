"""One student's work: what of it is to grade, as plain data that can be sent anywhere, and the grading of it."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ledger import exercises
from ledger.judge.collect import Submission, collect, notebooks_under, read_notebook, real, show_path
from ledger.judge.errors import Unreadable
from ledger.judge.outcome import Cell
from ledger.judge.run import Runner
from ledger.judge.session import grade_one, installed
from ledger.judge.verdicts import ExerciseResult
from ledger.judge.version import answer_digest, course_digest

#: What stands in the place of a mistake where there is nothing to read, the same for everybody.
UNREADABLE = "the notebook cannot be read"


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
        """Whether a cell of it is there."""
        return not self.problem


@dataclass(frozen=True)
class Work:
    """Answers of one student, to be graded on the cases of ``seed`` where ``surroundings()`` is ``course``."""

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
    """The process that is to grade has another version of the course, or other libraries, than the one that asks."""


def surroundings() -> str:
    """What decides a verdict beside the answer: the version of the course, and the libraries that exercises need."""
    return "+".join([course_digest(), *(name for name in ("torch", "triton") if installed(name))])


def storable(text: str) -> str:
    """A text that any file can hold: half a character, which JSON allows, becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def students_in(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """The students by name, each with what was handed in: a folder, or a single notebook that lies in ``folder``; and a
    line on everything else. What begins with a dot is passed over."""
    students: dict[str, Path] = {}
    strange = []
    for path in sorted(folder.iterdir()):
        is_notebook = path.suffix.lower() == ".ipynb"
        name = printable(path.stem if is_notebook else path.name)
        if path.name.startswith(".") or path.name == "__MACOSX":
            continue
        if not real(path).is_relative_to(real(folder)) or not path.exists():
            strange.append(f"{printable(show_path(path))} is a link that leads outside of this folder, or nowhere")
        elif not path.is_dir() and not (path.is_file() and is_notebook):
            packed = ": unpack it into a folder of its own" if path.suffix in (".zip", ".gz", ".tar", ".7z") else ""
            strange.append(f"{printable(show_path(path))} is neither a folder nor a notebook{packed}")
        elif name in students:
            strange.append(f"two are called {name}: rename one of them")
        else:
            students[name] = path
    return students, strange


def printable(name: str) -> str:
    """A name on one line, with escapes for what a terminal would obey and a table could not hold."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def answers_of(path: Path, ids: Iterable[str], seed: int) -> tuple[tuple[Answer, ...], list[str]]:
    """The answers to ``ids`` in one student's folder or notebook, to be graded on the cases of ``seed``; and a line on
    each notebook that cannot be read, or on there being none."""
    read, unreadable = [], []
    if path.is_dir():
        read, unreadable = notebooks_under(path, links=False)
    else:
        try:
            read = [read_notebook(path, show_path(path))]
        except Unreadable as error:
            error.path = path
            unreadable = [error]
    remarks = [printable(str(error)) for error in unreadable]
    if not read and not unreadable:
        remarks = [f"{printable(show_path(path))} holds no notebook"]
    return tuple(answer_of(collect(exercises.get(id), read, unreadable), seed) for id in ids), remarks


def answer_of(submission: Submission, seed: int) -> Answer:
    """A submission as plain data."""
    texts = [cell.source for cell in submission.cells]
    digest = answer_digest(submission.exercise.id, str(seed), submission.problem, *texts)
    kept = (submission.cells, submission.where, submission.problem, submission.broken, tuple(submission.notes))
    return Answer(submission.exercise.id, digest, *kept)


_runner: Runner | None = None
_lock = threading.Lock()


def start_worker(hidden: Iterable[str]) -> None:
    """Begin in a process of a pool: it ends as soon as the one that started it does, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asked
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    start(hidden)


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
    if work.course != surroundings():
        raise OtherCourse("a worker has another version of the course, or other libraries: install the same everywhere")
    runner = start()
    runner.ending.clear()  # what one student's cells do says nothing of another's
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
        storable(result.message),
        UNREADABLE if answer.broken else storable(stumble(result)),
        storable(answer.where),
        storable("; ".join(result.notes)),
        round(result.seconds, 4),
        storable(answer.cells[-1].source) if answer.cells else "",
    )


def lost(student: str, ids: Iterable[str], why: str) -> list[Row]:
    """Rows for answers that could not be graded: the judge's own fault, not held against the student."""
    return [Row(student, id, "", "judge_error", 0, exercises.get(id).points, why, why, "", "", 0.0, "") for id in ids]


def stumble(result: ExerciseResult) -> str:
    """Why an answer did not pass: its known mistake by name, the unwritten exercise that it calls, the exception's
    type, the first case that failed, or else the verdict alone. Empty where it passed or nothing was tried."""
    failure = result.failure
    if failure is None or result.verdict in ("todo", "missing", "skipped"):
        return ""
    pattern = dict(failure.rows).get("pattern", "")
    if pattern:
        return pattern.split(":")[0]
    if failure.calls:
        return f"calls {failure.calls}"
    if result.verdict == "error":
        return result.message.split(":")[0].split(" ")[0]
    if result.verdict == "wrong":
        return f"another value in {failure.name!r}"
    return result.verdict
