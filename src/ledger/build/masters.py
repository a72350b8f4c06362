"""Masters: one plain-text file a notebook, in jupytext's percent format, cut into cells that keep their own text.

A cell starts at a line ``# %%``. Its header may carry ``exercise``, ``check``, ``hints``, ``include`` and ``tags``,
nothing else. jupytext says what a cell's text means; the cut says where it stands, so that a pulled edit rewrites one
cell and leaves every other byte alone.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FLAGS = ("exercise", "check", "hints", "include")
HEADER = re.compile(r"^# ?%%(?=\s|$)", re.MULTILINE)
# What jupytext notes for itself on reading a cell.
JUPYTEXT_NOTES = ("lines_to_next_cell", "lines_to_end_of_cell_marker", "cell_marker")


class BuildError(Exception):
    """A master, a notebook or an included file is at fault; the message names it and says what to do."""


@dataclass(frozen=True)
class Cell:
    """One cell: ``text`` is its part of the master, header and blank lines after it included."""

    line: int
    text: str
    kind: str
    source: str
    flags: dict[str, str]
    tags: tuple[str, ...] = ()
    marker: str | None = None


@dataclass(frozen=True)
class Master:
    """A master read: ``path`` from the course's root, the front matter before its first cell, its cells."""

    path: str
    front: str
    cells: tuple[Cell, ...]


def masters(root: Path) -> list[str]:
    """The masters of the course at ``root``, as sorted paths from it."""
    found = (p for part in ("lessons", "practice") for p in (root / "course" / part).glob("*/*.py"))
    return sorted(p.relative_to(root).as_posix() for p in found)


def master_ids(root: Path) -> list[str]:
    """The ids of all exercises in the masters of the course at ``root``, in the order in which they stand."""
    ids = []
    for path in masters(Path(root)):
        ids += re.findall(
            r'^# ?%%.*?\bexercise="([^"]*)"', (Path(root) / path).read_text(encoding="utf-8"), re.MULTILINE
        )
    return ids


def parse(path: str, text: str) -> Master:
    """The master ``text``; a BuildError names file and line where it breaks a rule."""
    import jupytext

    if "\r" in text:
        raise BuildError(f"{path}: it has CRLF line ends; save it with LF")
    front = re.match(r"# ---\n(?:#.*\n)*?# ---\n\s*", text)
    begin = front.end() if front else 0
    starts = [m.start() for m in HEADER.finditer(text, begin)]
    if not starts or text[begin : starts[0]].strip():
        raise BuildError(f"{path}: the text must start with a cell header, '# %%' or '# %% [markdown]'")
    chunks = [text[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]
    lines = [text.count("\n", 0, start) + 1 for start in starts]
    read = jupytext.reads(text[starts[0] :], fmt="py:percent").cells
    if len(read) != len(chunks):
        raise BuildError(
            f"{path}: its cells and its '# %%' lines do not agree; inside a cell stands a line '# %%' or '# In[1]:', "
            "or a triple quote that is never closed"
        )
    cells = [_cell(path, *parts) for parts in zip(lines, chunks, read, strict=True)]
    return Master(path, text[: starts[0]], tuple(cells))


def _cell(path: str, line: int, text: str, read: Any) -> Cell:
    metadata = {k: v for k, v in read.metadata.items() if k not in JUPYTEXT_NOTES}
    tags = tuple(metadata.pop("tags", ()))
    if unknown := metadata.keys() - set(FLAGS):
        raise BuildError(
            f"{path}:{line}: unknown flag {', '.join(sorted(unknown))}; a cell may carry {', '.join(FLAGS)} and tags"
        )
    # jupytext counts all blank lines but one before the next header as the cell's own.
    source = read.source.rstrip("\n")
    return Cell(line, text, read.cell_type, source, metadata, tags, read.metadata.get("cell_marker"))


def write_cell(kind: str, source: str, tags: tuple[str, ...] = (), marker: str | None = None) -> str:
    """A plain cell as it stands in a master: header, text, one blank line."""
    import jupytext
    from nbformat import v4

    new = {"code": v4.new_code_cell, "markdown": v4.new_markdown_cell, "raw": v4.new_raw_cell}[kind]
    metadata = ({"tags": list(tags)} if tags else {}) | ({"cell_marker": marker} if marker else {})
    settings = {"notebook_metadata_filter": "-all", "cell_metadata_filter": "all"}
    notebook = v4.new_notebook(cells=[new(source, metadata=metadata)], metadata={"jupytext": settings})
    return jupytext.writes(notebook, fmt="py:percent").rstrip("\n") + "\n\n"


def rewrite(cell: Cell, source: str) -> Cell:
    """``cell`` with another text: its header line and the blank lines after it stay as they were written."""
    header, _, body = cell.text.partition("\n")
    blank = body[len(body.rstrip("\n")) :] if body.strip("\n") else "\n"
    _, _, new = write_cell(cell.kind, source, marker=cell.marker).rstrip("\n").partition("\n")
    text = f"{header}\n{new}{blank}" if new else f"{header}\n\n"
    return Cell(cell.line, text, cell.kind, source, cell.flags, cell.tags, cell.marker)


def compose(front: str, cells: list[Cell]) -> str:
    """The text of a master: cells that moved get the blank line between two cells, the last one ends the file."""
    if not cells:
        return front
    middle = [c.text if c.text.endswith("\n\n") else c.text.rstrip("\n") + "\n\n" for c in cells[:-1]]
    return front + "".join(middle) + cells[-1].text.rstrip("\n") + "\n"
