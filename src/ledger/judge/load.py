"""Execute the cells of an answer, in order, as a notebook would, and find its function.

A cell above the answer's own may fail: in a notebook the learner would have gone on too. What it did is noted, and said
where the answer then fails.
"""

import builtins
import linecache
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import CodeType
from typing import Any, NamedTuple

from ledger.judge.observe import raised
from ledger.judge.outcome import Cell, Outcome

#: A line of IPython's own, wherever a cell does not compile because of it; and one that is that beyond doubt.
_MAGIC = re.compile(r"\s*(?:[%!?]|[\w.\[\], ]+=\s*[%!])|[\s\w.]+\?\s*$")
_PLAIN_MAGIC = re.compile(r"\s*[%!][%\w./]")
#: Cell magics whose cell is Python still; the body of any other (%%bash, %%writefile …) is not run.
_PYTHON_MAGIC = re.compile(r"\s*%%(?:time|timeit|capture|prun)\b")


class Loaded(NamedTuple):
    """The answer's function, or the outcome that says why there is none; and what else happened on the way."""

    function: Callable[..., Any] | None
    outcome: Outcome | None
    notes: list[str]


class CellEnds(BaseException):
    """Ends a cell without fault: what the cell asks for is not there while an answer is graded."""


def load(cells: Iterable[Cell], function: str, namespace: dict[str, Any] | None = None) -> Loaded:
    """Run ``cells`` in one namespace and return what ``function`` is bound to afterwards.

    The last cell is the answer: an exception in it, SystemExit and KeyboardInterrupt included, is the outcome. A name
    that is not bound, or not to something callable, is ``missing``. Lines of magics and of the shell are not run.
    """
    cells = tuple(cells)
    space = {"__name__": "__main__", "__builtins__": builtins} if namespace is None else namespace
    space.setdefault("display", lambda *values, **options: None)
    notes, error = [], None
    for cell in cells:
        error = run_cell(cell, space, notes)
        if error is not None and cell is not cells[-1]:
            outcome = own(raised(error, "load"), cells)
            where = f", line {outcome.lines[-1].number}" if outcome.lines else ""
            notes.append(f"{cell.file}{where}, above the answer, raised {outcome.error}: {outcome.message}"[:300])
    if error is not None:
        return Loaded(None, replace(own(raised(error, "load"), cells), detail="; ".join(notes)), notes)
    found = space.get(function)
    if not callable(found):
        return Loaded(None, Outcome("missing", "load", detail="; ".join(notes)), notes)
    return Loaded(found, None, notes)


def run_cell(cell: Cell, space: dict[str, Any], notes: list[str]) -> BaseException | None:
    """Execute one cell in ``space`` and return the exception that ended it, if one did."""
    # Without a modification time linecache keeps the entry, and tracebacks find the cell's text.
    linecache.cache[cell.file] = (len(cell.source), None, cell.source.splitlines(keepends=True), cell.file)
    try:
        exec(compile_cell(cell, notes), space)
    except CellEnds as end:
        notes.append(f"{cell.file} stopped at {end}")
    except BaseException as error:
        return error
    return None


def compile_cell(cell: Cell, notes: list[str]) -> CodeType:
    """Compile a cell, with its magics and shell lines commented out; raises what ``compile`` raises.

    A line is taken for a magic only where it keeps the cell from compiling, so that a line of Python that begins with
    ``%`` (a remainder carried over from the line above) stays what it is. Line numbers do not change.
    """
    lines = cell.source.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("%%") and not _PYTHON_MAGIC.match(first):
        notes.append(f"{cell.file} was not run: {first.strip()}"[:200])
        return compile("", cell.file, "exec")
    while True:
        try:
            return compile("\n".join(lines), cell.file, "exec", dont_inherit=True)
        except SyntaxError as error:
            number = (error.lineno or 0) - 1
            if not (0 <= number < len(lines) and _MAGIC.match(lines[number])):
                # A quote or a bracket in a magic moves the error to another line.
                number = next((n for n, line in enumerate(lines) if _PLAIN_MAGIC.match(line)), None)
            if number is None:
                raise
        notes.append(f"{cell.file}, line {number + 1} was not run: {lines[number].strip()}"[:200])
        indent = lines[number][: len(lines[number]) - len(lines[number].lstrip())]
        lines[number] = f"{indent}pass  # {lines[number].strip()}"


def own(outcome: Outcome, cells: Iterable[Cell]) -> Outcome:
    """``outcome`` with the lines of the cells' own files alone."""
    files = {cell.file for cell in cells}
    return replace(outcome, lines=tuple(line for line in outcome.lines if line.file in files))
