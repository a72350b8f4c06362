"""Find answers: read notebooks as JSON, match cells by id and then by function name, and keep the cells above them.

Notebooks are read with ``json`` alone: importing nbformat costs more than grading the whole course.
"""

import ast
import io
import json
import os
import re
import tokenize
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ledger.chapters import CHAPTERS
from ledger.exercises import Exercise
from ledger.judge.errors import Unreadable
from ledger.judge.outcome import Cell

#: Bytes of a notebook that is read; outputs included, one of this course has a few of its hundredths.
LARGEST = 100 << 20
#: How the name of a copy ends.
_COPY = r"-Copy\d+$| \(\d+\)$| copy( \d+)?$"
#: Characters of a cell that somebody may have typed.
MOST_TYPED = 100_000
#: Where a cell's text binds a name: a function, a class, or anything assigned, at any depth.
_BINDS = re.compile(r"^[ \t]*(?:(?:async )?def (\w+)|class (\w+)|(\w+)[ \t]*(?::[^=\n]+)?=(?!=))", re.MULTILINE)


@dataclass(frozen=True)
class NotebookCell:
    """A code cell: its place among all cells from 1, its ids, its text, and whether it is a graded check."""

    number: int
    ids: tuple[str, ...]
    source: str
    graded: bool

    @cached_property
    def binds(self) -> frozenset[str]:
        """The names that its text binds."""
        return bound(self.source)

    @cached_property
    def written(self) -> bool:
        """Whether it is more than an untouched stub."""
        return not is_stub(self.source)


@dataclass(frozen=True)
class Notebook:
    """A notebook's code cells in order. ``name`` is its path as messages show it."""

    path: Path
    name: str
    cells: tuple[NotebookCell, ...]


@dataclass
class Submission:
    """The answer to one exercise: the cells to run, the last of them the answer; or ``problem``, why there is none."""

    exercise: Exercise
    cells: tuple[Cell, ...] = ()
    where: str = ""
    path: Path | None = None
    problem: str = ""
    broken: bool = False
    notes: list[str] = field(default_factory=list)


def read_notebook(path: Path, name: str) -> Notebook:
    """The code cells of the notebook at ``path``; raises Unreadable with one line."""
    try:
        if not path.is_file():
            raise Unreadable(f"{name} is no file")
        if path.stat().st_size > LARGEST:
            raise Unreadable(f"{name} is larger than {LARGEST >> 20} MB")
        data = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise Unreadable(f"{name} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise Unreadable(f"{name} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"{name} is not a notebook: {error.msg} at line {error.lineno}") from None
    except Unreadable:
        raise
    except ValueError:
        raise Unreadable(f"{name} is not a notebook: a number in it has thousands of digits") from None
    except RecursionError:
        raise Unreadable(f"{name} is not a notebook: it is nested too deeply") from None
    if not isinstance(data, dict) or not isinstance(data.get("cells"), list):
        old = isinstance(data, dict) and "worksheets" in data
        why = "it has an old format: open it in JupyterLab and save it" if old else "it has no list of cells"
        raise Unreadable(f"{name} is not a notebook: {why}")
    cells = (code_cell(number, raw) for number, raw in enumerate(data["cells"], 1))
    return Notebook(path, name, tuple(cell for cell in cells if cell))


def code_cell(number: int, raw: object) -> NotebookCell | None:
    """A code cell from its JSON, whatever of it is missing; None for any other cell."""
    if not isinstance(raw, dict) or raw.get("cell_type") != "code":
        return None
    source = raw.get("source", "")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    if not isinstance(source, str):
        return None
    metadata = raw.get("metadata") if isinstance(raw.get("metadata"), dict) else {}
    nbgrader = metadata.get("nbgrader") if isinstance(metadata.get("nbgrader"), dict) else {}
    ids = tuple(i for i in (nbgrader.get("grade_id"), raw.get("id")) if isinstance(i, str))
    graded = bool(nbgrader.get("grade")) or any(i.endswith(("_check", "-check")) for i in ids)
    return NotebookCell(number, ids, source.replace("\r\n", "\n").replace("\r", "\n"), graded)


def notebooks_under(folder: Path, links: bool = True) -> tuple[list[Notebook], list[Unreadable]]:
    """Every notebook below ``folder`` in order of its path, and what could not be read. Without ``links`` a notebook
    that really lies elsewhere is not read: a submission must hold its own answers."""
    read, unreadable = [], []
    for path in find_notebooks(folder, links):
        try:
            if not links and not real(path).is_relative_to(real(folder)):
                raise Unreadable(f"{show_path(path)} is a link to a notebook outside of this folder")
            read.append(read_notebook(path, show_path(path)))
        except Unreadable as error:
            error.path = path
            unreadable.append(error)
    return read, unreadable


def find_notebooks(folder: Path, links: bool) -> list[Path]:
    """The paths of all notebooks below ``folder``, sorted; hidden folders, old versions and what may not be entered are
    passed over. With ``links`` a folder that is a link is entered, once."""
    found, entered = [], set()
    for place, folders, files in os.walk(folder, followlinks=links):
        real = os.path.realpath(place)
        folders[:] = [] if real in entered else [name for name in folders if not name.startswith(".")]
        if real not in entered:
            found += [Path(place, name) for name in files if name.lower().endswith(".ipynb") and name[0] != "."]
        entered.add(real)
    return sorted(path for path in found if not is_set_aside(path))


def show_path(path: Path) -> str:
    """A path relative to the working folder where it lies below it."""
    try:
        return real(path).relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return path.as_posix()


def real(path: Path) -> Path:
    """Where a path really leads; a link that leads to itself stays as it is, where ``Path.resolve`` may raise."""
    return Path(os.path.realpath(path))


def collect(exercise: Exercise, notebooks: list[Notebook], unreadable: list[Unreadable]) -> Submission:
    """The answer to ``exercise`` among ``notebooks``: by cell id, else by the function's name.

    A written answer is preferred to an untouched stub, then a notebook of the exercise's chapter, then one that is no
    copy; within it the last cell that is written. What was passed over is noted.
    """
    found = []
    for notebook in notebooks:
        answers = [cell for cell in notebook.cells if not cell.graded]
        by_id = [cell for cell in answers if exercise.id in cell.ids]
        by_name = [cell for cell in answers if exercise.id in cell.binds]
        if by_id or by_name:
            matches = by_id if any(cell.written for cell in by_id) else by_name or by_id
            found.append((notebook, matches))
    if not found:
        return nothing(exercise, unreadable)

    def rank(match: tuple[Notebook, list[NotebookCell]]) -> tuple[bool, ...]:
        path = match[0].path
        return not any(cell.written for cell in match[1]), not in_chapter(path, exercise), is_copy(path)

    found.sort(key=rank)
    notebook, matches = found[0]
    written = [cell for cell in matches if cell.written] or matches
    answer = written[-1]
    notes = []
    if exercise.id not in answer.ids:
        notes.append(found_by_name(notebook, answer))
    if len(matches) > 1:
        numbers = ", ".join(str(cell.number) for cell in matches)
        notes.append(f"cells {numbers} of {notebook.name} answer it; cell {answer.number} was graded")
    if len(found) > 1:
        others = ", ".join(other.name for other, _ in found[1:])
        notes.append(f"{notebook.name} was graded; it is also answered in {others}")
    above = [cell for cell in notebook.cells if cell.number < answer.number and not cell.graded]
    cells = tuple(Cell(f"{notebook.name}, cell {cell.number}", cell.source) for cell in (*above, answer))
    return Submission(exercise, cells, f"{notebook.name}, cell {answer.number}", notebook.path, notes=notes)


def found_by_name(notebook: Notebook, answer: NotebookCell) -> str:
    """The remark on an answer that bears no id: it is a cell of the learner's own, or an editor took away all ids, and
    then the remark is the same for every answer of the notebook."""
    made_by_course = original(notebook.path.stem) in (name for c in CHAPTERS for name in c.practice)
    if made_by_course and not any(cell.graded for cell in notebook.cells):
        return f"the cells of {notebook.name} have lost their ids: answers were found by their functions' names"
    return f"cell {answer.number} was found by its function's name: it is not the cell made for the answer"


def bound(source: str) -> frozenset[str]:
    """The names that a cell's text binds."""
    return frozenset(name for names in _BINDS.findall(source) for name in names if name)


def nothing(exercise: Exercise, unreadable: list[Unreadable]) -> Submission:
    """No answer was found: the notebook that should hold it cannot be read, or the cell is gone."""
    broken = [error for error in unreadable if in_chapter(error.path, exercise)]
    if broken:
        return Submission(exercise, problem=str(broken[0]), broken=True)
    return Submission(exercise, problem=f"no cell with the id or the function {exercise.id} was found")


def in_chapter(path: Path, exercise: Exercise) -> bool:
    """Whether a notebook lies in the folder of the exercise's chapter, or bears the name of one of its notebooks."""
    if path.parent.name.startswith("ch"):
        return chapter_number(path.parent.name) == exercise.chapter
    names = [name for chapter in CHAPTERS if chapter.number == exercise.chapter for name in chapter.practice]
    return original(path.stem) in names


def chapter_number(name: str) -> int | None:
    """The chapter that a folder or a target names: ``ch02_heads``, ``ch02``, ``ch2`` and ``2`` are chapter 2."""
    match = re.fullmatch(r"(?:ch)?0*(\d{1,2})(?:_\w*)?", name)
    return int(match[1]) if match else None


def original(name: str) -> str:
    """A notebook's name without what JupyterLab or a file manager adds to a copy's, however often it was copied."""
    while (shorter := re.sub(_COPY, "", name)) != name:
        name = shorter
    return name


def is_copy(path: Path) -> bool:
    """Whether JupyterLab or a file manager made this file as a copy."""
    return original(path.stem) != path.stem


def is_set_aside(path: Path) -> bool:
    """Whether this is the old version of a notebook that the course brought up to date."""
    return bool(re.search(r"\.old-[\w-]+$", path.stem))


def is_stub(source: str) -> bool:
    """Whether every function of a cell only raises NotImplementedError, or has a loop that does nothing else, as the
    untouched stub does: of a kernel, all but the body of its loop is given."""
    if "NotImplementedError" not in source:  # so nobody needs to parse it
        return False
    functions = [node for node in parsed(source).body if isinstance(node, ast.FunctionDef)]
    blocks = [[f, *(node for node in f.body if isinstance(node, ast.For))] for f in functions]
    return bool(blocks) and all(any(only_raises(block.body) for block in around) for around in blocks)


def parsed(source: str) -> ast.Module:
    """The tree of a cell, empty where there is none: Python cannot parse it, or it is longer than anybody types, and
    then what it costs to parse is not for the judge's own process to pay."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        if len(source) <= MOST_TYPED:
            return ast.parse(source)
    return ast.Module([], [])


def only_raises(body: list[ast.stmt]) -> bool:
    """Whether a block does nothing, beside a docstring, but raise NotImplementedError."""
    rest = [node for node in body if not isinstance(getattr(node, "value", None), ast.Constant)]
    return len(rest) == 1 and raises_not_implemented(rest[0])


def raises_not_implemented(statement: ast.stmt) -> bool:
    """Whether a statement is ``raise NotImplementedError(...)``."""
    raised = statement.exc if isinstance(statement, ast.Raise) else None
    raised = raised.func if isinstance(raised, ast.Call) else raised
    return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"


def from_source(path: Path, exercise: Exercise) -> Submission:
    """A plain Python file as the answer to one exercise; a file that does not decode is a broken submission."""
    name = show_path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{name} cannot be read: {error.strerror or error}") from None
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        source = raw.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        why = f"byte {error.start} is not {error.encoding}" if isinstance(error, UnicodeDecodeError) else error
        return Submission(exercise, where=name, problem=f"{name} is not Python text: {why}", broken=True)
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    return Submission(exercise, (Cell(name, source),), name)
