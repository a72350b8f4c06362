"""nbgrader's autograder with the judge in the place of a kernel: no student's code runs outside of a jail, an answer
earns the share of its cases, and the feedback says why.

``nbgrader_config.py`` names SANITIZE, AUTOGRADE, Reader and released_names for ``nbgrader autograde``, and Scores for
``nbgrader export``. A graded cell always gets a number: of one without output nbgrader thinks that it passed.
"""

import atexit
from functools import cache
from pathlib import Path
from typing import Any, TextIO

import nbformat
from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde
from nbgrader.converters.base import NbGraderException
from nbgrader.plugins import CsvExportPlugin
from nbgrader.preprocessors import Execute, NbGraderPreprocessor

from ledger import exercises
from ledger.chapters import CHAPTERS
from ledger.exercises import Exercise
from ledger.judge.classroom.work import storable
from ledger.judge.collect import Notebook, chapter_number, code_cell, collect, is_copy, is_stub, original, read_notebook
from ledger.judge.errors import Unreadable
from ledger.judge.grade import fresh_seed
from ledger.judge.report import one_exercise
from ledger.judge.run import Runner
from ledger.judge.session import grade_one, say_where_to_begin
from ledger.judge.verdicts import ExerciseResult

#: How an exercise's check cell is called, after its id.
CHECK = "_check"


def released_name(path: Path) -> str:
    """The name under which a notebook of a submission was released: its own, or that of which it is a copy, such as
    ``keys`` for ``ch01_keys/keys (1).ipynb``."""
    number = chapter_number(path.parent.name)
    names = [name for chapter in CHAPTERS if chapter.number == number for name in chapter.practice]
    return original(path.stem) if original(path.stem) in names else path.stem


def released_names(assignment: str, student: str, notebooks: list[str]) -> None:
    """Put each of a submission's ``notebooks`` under the name of its release, in place: nbgrader, whose
    ``pre_convert_hook`` this is, passes over any other. Reader finds the file."""
    paths = [Path(name) for name in notebooks]
    notebooks[:] = sorted({str(path.with_stem(released_name(path))) for path in paths})


class Reader(NotebookExporter):
    """Reads one notebook of a submission, under the name of its release or as a copy, with or without a byte order
    mark. What a student handed in stays as it is."""

    def from_filename(self, filename: str, resources: Any = None, **options: Any) -> tuple[str, Any]:
        path = Path(filename)
        chosen = handed_in(path)
        left_out = set().union(*map(answers_in, files_of(path))) - answers_in(chosen)
        if left_out:
            named = ", ".join(sorted(left_out))
            self.log.warning(f"{chosen} is graded; {named} are answered in another copy of it alone, which is not read")
        return super().from_filename(str(chosen), resources, **options)

    def from_file(self, file_stream: TextIO, resources: Any = None, **options: Any) -> tuple[str, Any]:
        notebook = nbformat.reads(file_stream.read().removeprefix("\ufeff"), as_version=4)
        return self.from_notebook_node(notebook, resources, **options)


def handed_in(path: Path) -> Path:
    """The file of the notebook that was released as ``path``: of it and its copies, the one with most answers."""
    files = files_of(path)
    return max(files, key=lambda file: (len(answers_in(file)), not is_copy(file))) if len(files) > 1 else files[0]


def files_of(path: Path) -> list[Path]:
    """The notebook that was released as ``path`` and its copies, those that are there; ``path`` where none is."""
    return [file for file in sorted(path.parent.glob("*.ipynb")) if released_name(file) == path.stem] or [path]


def answers_in(path: Path) -> set[str]:
    """The exercises whose answers in a notebook are written; none where it cannot be read."""
    try:
        cells = read_notebook(path, path.name).cells
    except Unreadable:
        return set()
    ids = set(exercises.ids())
    return {id for cell in cells if cell.written and not cell.graded for id in ids & {*cell.ids, *cell.binds}}


class Scores(CsvExportPlugin):
    """nbgrader's table of scores, empty where a submission could not be graded: nbgrader writes 0 there."""

    def export(self, gradebook: Gradebook) -> None:
        super().export(gradebook)
        path = Path(self.to or "grades.csv")
        lines = [line.split(",") for line in path.read_text().splitlines()]  # as nbgrader wrote them: nothing is quoted
        refused = {(each.name, student) for each in gradebook.assignments for student in ungraded(each)}
        for line in lines:  # assignment, two dates, student, names, raw score, penalty, score, what could be had
            if (line[0], line[3]) in refused:
                line[-4:-1] = [""] * 3
        path.write_text("".join(",".join(line) + "\n" for line in lines))


def ungraded(assignment: Any) -> set[str]:
    """The students whose submission has a check to which neither the judge nor a person gave a score."""
    return {
        submission.student.id
        for submission in assignment.submissions
        for notebook in submission.notebooks
        for grade in notebook.grades
        if grade.name.endswith(CHECK) and grade.auto_score is None and grade.manual_score is None
    }


class Repair(NbGraderPreprocessor):
    """Make the graded cells of a submission those that were released, one each: of copies the one that the judge grades
    keeps its role, and a check that was deleted, or lost its metadata in another editor, is put back at the end. A role
    is what was released, whatever the notebook says of it. Answer cells need none: the judge finds them by their
    function as well."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        told = resources["nbgrader"]
        with Gradebook(told["db_url"]) as gradebook:
            released = gradebook.find_notebook(told["notebook"], told["assignment"])
            sources = {cell.name: cell.source for cell in released.source_cells}
            roles = released_roles(released)
            forget_scores(gradebook, told)
        named: dict[str, list[NotebookNode]] = {}
        for cell in nb.cells:
            cell.source = storable(cell.source)
            role = cell.metadata.pop("nbgrader", None)
            name = role.get("grade_id") if isinstance(role, dict) else None
            if isinstance(name, str) and name in roles and cell.cell_type == roles[name]["cell_type"]:
                named.setdefault(name, []).append(cell)
                cell.metadata["nbgrader"] = NotebookNode(roles[name])
                cell.metadata["nbgrader"] |= (
                    {"checksum": role["checksum"]} if isinstance(role.get("checksum"), str) else {}
                )
        for name, copies in named.items():
            written = [cell for cell in copies if roles[name]["solution"] and not is_stub(cell.source)]
            kept = written[-1] if written else copies[0]
            for cell in copies:
                if cell is not kept:
                    del cell.metadata["nbgrader"]
        for name, role in roles.items():
            if name not in named and role["grade"] and role["cell_type"] == "code":
                nb.cells.append(check_cell(name, role, sources[name]))
        return nb, resources


def forget_scores(gradebook: Gradebook, told: dict) -> None:
    """Take back what nbgrader noted of this submission's notebook before it is graded: 0 where it comes under a copy's
    name, or the scores of an earlier version."""
    for grade in gradebook.find_submission_notebook(told["notebook"], told["assignment"], told["student"]).grades:
        grade.auto_score = None
    gradebook.db.commit()


class Judge(NbGraderPreprocessor):
    """Grade a submission's answers, and put points and reason into the outputs of their check cells.

    Nothing else is run. Raises NbGraderException where the judge itself failed, or an exercise cannot be run on this
    machine: nbgrader then names the submission and gives no points for it, instead of none.
    """

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        name = Path(f"{resources['nbgrader']['assignment']}/{resources['nbgrader']['notebook']}.ipynb")
        notebook = notebook_of(nb, name)
        runner().ending.clear()  # what one student's cells do says nothing of another's
        verdicts: dict[str, str] = {}
        for cell in nb.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
            exercise = exercise_of(cell)
            if exercise:
                submission = collect(exercise, [notebook], [])
                result = grade_one(submission, runner(), seed())
                verdicts[exercise.id] = result.verdict
                say_where_to_begin(result, submission, verdicts)
                if result.verdict in ("judge_error", "skipped"):
                    raise NbGraderException(f"{exercise.id} could not be graded: {result.message}")
                cell.outputs = outputs_of(result, float(cell.metadata.nbgrader["points"]))
        return nb, resources


def exercise_of(cell: NotebookNode) -> Exercise | None:
    """The exercise that a cell checks, or None."""
    role = cell.metadata.get("nbgrader", {})
    id = str(role.get("grade_id", "")).removesuffix(CHECK)
    graded = cell.cell_type == "code" and role.get("grade") and id + CHECK == role.get("grade_id")
    return exercises.get(id) if graded and id in exercises.ids() else None


def notebook_of(nb: NotebookNode, name: Path) -> Notebook:
    """A submission as the judge reads it."""
    cells = (code_cell(number, cell) for number, cell in enumerate(nb.cells, 1))
    return Notebook(name, name.as_posix(), tuple(cell for cell in cells if cell))


def outputs_of(result: ExerciseResult, points: float) -> list[NotebookNode]:
    """What a check cell shows: the judge's words, and the number that nbgrader takes for the points."""
    earned = points if result.verdict == "passed" else round(points * result.points / result.max_points, 3)
    number = new_output("execute_result", {"text/plain": str(earned)}, execution_count=1)
    return [new_output("stream", name="stdout", text=one_exercise(result) + "\n"), number]


def released_roles(released: Any) -> dict[str, dict]:
    """nbgrader's metadata of each cell of a notebook in the gradebook, by its id."""
    points = {cell.name: cell.max_score for cell in released.grade_cells}
    answers, tasks = ({cell.name for cell in cells} for cells in (released.solution_cells, released.task_cells))
    roles = {}
    for cell in released.source_cells:
        name = cell.name
        roles[name] = {
            "cell_type": str(cell.cell_type),
            "grade": name in points and name not in tasks,
            "grade_id": name,
            "locked": bool(cell.locked),
            "schema_version": 3,
            "solution": name in answers,
            "task": name in tasks,
        }
        if name in points:
            roles[name]["points"] = points[name]
    return roles


def check_cell(name: str, role: dict, source: str) -> NotebookNode:
    """A graded cell as it was released."""
    cell = new_code_cell(source, metadata={"nbgrader": NotebookNode(role)})
    cell.id = name.replace("_", "-")[:64]
    return cell


@cache
def runner() -> Runner:
    """This process's runner; it ends with the process."""
    made = Runner(extra_hidden=[Path.cwd()], outer=True)
    atexit.register(made.close)
    return made


@cache
def seed() -> int:
    """One seed for everybody whom this run grades."""
    return fresh_seed()


SANITIZE = [Repair, *Autograde.sanitize_preprocessors.default()]
AUTOGRADE = [Judge if step is Execute else step for step in Autograde.autograde_preprocessors.default()]
