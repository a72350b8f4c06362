"""Execute the cells of an answer, in order, as a notebook would, and find its function.

A cell runs statement by statement. In a cell above the answer's own a statement may fail and the next ones run: what
failed is noted, and said where the answer then fails. A statement that works on the inputs of ``case``, which are not
there while an answer is graded, is passed over in every cell.
"""

import __future__

import ast
import builtins
import inspect
import linecache
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import CodeType
from typing import Any, NamedTuple, NoReturn

from ledger.judge.guard import Spent
from ledger.judge.observe import raised
from ledger.judge.outcome import Cell, Outcome

#: A line of IPython's own, wherever a cell does not compile because of it; and one that is that beyond doubt.
_MAGIC = re.compile(r"\s*(?:[%!?]|[\w.\[\], ]+=\s*[%!])|[\s\w.]+\?\s*$")
_PLAIN_MAGIC = re.compile(r"\s*[%!][%\w./]")
#: What ``from __future__ import annotations`` switches on, for the statements and cells after it too.
_FUTURE = __future__.annotations.compiler_flag
#: Cell magics whose cell is Python still; the body of any other (%%bash, %%writefile …) is not run.
_PYTHON_MAGIC = re.compile(r"\s*%%(?:time|timeit|capture|prun)\b")


class Loaded(NamedTuple):
    """The answer's function, or the outcome that says why there is none; and what else happened on the way."""

    function: Callable[..., Any] | None
    outcome: Outcome | None
    notes: list[str]


class Skipped(BaseException):
    """Ends a statement without fault: what it works on is not there while an answer is graded."""


def _skip(*operands: object) -> NoReturn:
    raise Skipped("case() has no inputs while an answer is graded")


class NoInputs:
    """Stands for the inputs that ``case`` gives in a notebook, and for what is made of them. A cell may keep it; a
    statement ends where it is used."""

    __getattr__ = _skip


for _name in (  # noqa: SIM905
    "iter len getitem setitem contains bool int float complex index round format lt le gt ge eq ne neg pos abs invert "
    "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or "
    "radd rsub rmul rmatmul rtruediv rfloordiv rmod rdivmod rpow rlshift rrshift rand rxor ror"
).split():
    setattr(NoInputs, f"__{_name}__", _skip)


class Nothing:
    """Stands for what only a running notebook has: every attribute of it and every call of it is this again."""

    def __getattr__(self, name: str) -> "Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: object, **options: object) -> "Nothing":
        return self


#: What notebooks call of ``ledger``, harmless while an answer is graded.
QUIET = {
    "check": lambda *arguments, **options: None,
    "hint": lambda *arguments, **options: None,
    "case": lambda *arguments, **options: NoInputs(),
}


def load(
    cells: Iterable[Cell],
    function: str,
    namespace: dict[str, Any] | None = None,
    entering: Callable[[int], None] = lambda number: None,
) -> Loaded:
    """Run ``cells`` in one namespace and return what ``function`` is bound to afterwards.

    The last cell is the answer: an exception in it, SystemExit and KeyboardInterrupt included, is the outcome. A name
    that is not bound, or not to something callable, is ``missing``. Lines of magics and of the shell are not run.
    ``entering`` is called with the number of each cell, from 0, before it runs.
    """
    cells = tuple(cells)
    space = {"__name__": "__main__", "__builtins__": builtins} if namespace is None else namespace
    space.setdefault("display", lambda *values, **options: None)
    space.setdefault("get_ipython", Nothing)
    notebook = Notebook(cells, space)
    for number in range(len(cells)):
        entering(number)
        notebook.run(number)
    notes = notebook.notes
    if notebook.error is not None:
        return Loaded(None, replace(own(raised(notebook.error, "load"), cells), detail="; ".join(notes)), notes)
    found = space.get(function)
    if not callable(found):
        return Loaded(None, Outcome("missing", "load", detail="; ".join(notes)), notes)
    return Loaded(found, None, notes)


class Notebook:
    """Cells on their way through one namespace; ``error`` is the exception that ended the last one, if one did."""

    def __init__(self, cells: tuple[Cell, ...], space: dict[str, Any]):
        self.cells = cells
        self.space = space
        self.notes: list[str] = []
        self.error: BaseException | None = None
        self._flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # and what a cell imports from __future__

    def run(self, number: int) -> None:
        """Execute one cell. A spent budget is raised."""
        cell, above = self.cells[number], number < len(self.cells) - 1
        # Without a modification time linecache keeps the entry, and tracebacks find the cell's text.
        linecache.cache[cell.file] = (len(cell.source), None, cell.source.splitlines(keepends=True), cell.file)
        whole = True
        try:
            for statement, code in self._compile(cell):
                try:
                    execute(code, self.space)
                except Skipped as skipped:
                    self.space.update((name, NoInputs()) for name in names_bound_by(statement))
                    if whole:
                        self.notes.append(f"{cell.file}, line {statement.lineno} was passed over: {skipped}")
                    whole = False
                except Exception as error:
                    if not above:
                        raise
                    self._note(cell, error)
        except Spent:
            raise
        except BaseException as error:
            if above:
                self._note(cell, error)
            else:
                self.error = error

    def _note(self, cell: Cell, error: BaseException) -> None:
        outcome = own(raised(error, "load"), self.cells)
        where = f", line {outcome.lines[-1].number}" if outcome.lines else ""
        self.notes.append(f"{cell.file}{where}, above the answer, raised {outcome.error}: {outcome.message}"[:300])

    def _compile(self, cell: Cell) -> list[tuple[ast.stmt, CodeType]]:
        """Every statement of a cell with its code, the line numbers those of the cell; raises what ``compile`` does."""
        compiled = []
        for statement in parse(cell, self.notes).body:
            module = ast.Module([statement], type_ignores=[])
            code = compile(module, cell.file, "exec", self._flags, dont_inherit=True)
            self._flags |= code.co_flags & _FUTURE
            compiled.append((statement, code))
        return compiled


def parse(cell: Cell, notes: list[str]) -> ast.Module:
    """The tree of a cell, with its magics and shell lines commented out; raises what ``compile`` raises.

    A line is taken for a magic only where it keeps the cell from being parsed, so that a line of Python that begins
    with ``%`` (a remainder carried over from the line above) stays what it is. Line numbers do not change.
    """
    lines = cell.source.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("%%") and not _PYTHON_MAGIC.match(first):
        notes.append(f"{cell.file} was not run: {first.strip()}"[:200])
        return ast.Module([], [])
    while True:
        try:
            return ast.parse("\n".join(lines), cell.file)
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


def execute(code: CodeType, space: dict[str, Any]) -> None:
    """Run a statement, to its end where it awaits something.

    That takes an event loop of its own: without the pair of sockets that wakes one up from another thread, which the
    jail denies, and beside the loop that a notebook may be running.
    """
    result = eval(code, space)
    if not code.co_flags & inspect.CO_COROUTINE:
        return
    import asyncio

    class Loop(asyncio.SelectorEventLoop):
        def _make_self_pipe(self) -> None:
            self._csock = None

        def _close_self_pipe(self) -> None:
            pass

    outer, loop = asyncio._get_running_loop(), Loop()
    asyncio._set_running_loop(None)
    try:
        loop.run_until_complete(result)
    finally:
        loop.close()
        asyncio._set_running_loop(outer)


def names_bound_by(node: ast.AST) -> Iterator[str]:
    """The names of the namespace that a statement would have bound."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif not isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from names_bound_by(child)


def own(outcome: Outcome, cells: Iterable[Cell]) -> Outcome:
    """``outcome`` with the lines of the cells' own files alone."""
    files = {cell.file for cell in cells}
    return replace(outcome, lines=tuple(line for line in outcome.lines if line.file in files))
