"""Take an edit made in JupyterLab back to the master: text and order of cells, new cells, and nothing else."""

import json
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ledger.build.masters import BuildError, Cell, compose, parse, rewrite, write_cell
from ledger.build.notebook import Course, anchor, digest, master_of, notebook
from ledger.build.tree import BUILD


@dataclass(frozen=True)
class Pulled:
    """New texts by path from the root (the master, included files), and notes on what was not taken."""

    texts: dict[str, str]
    notes: list[str]


def pull(course: Course, path: str) -> Pulled:
    """What the notebook at ``path`` (from the root, in ``notebooks/`` or ``solutions/``) changes; nothing is written.

    Raises BuildError where taking the edit would lose something or leave a master that does not build.
    """
    tree, *_ = Path(path).parts
    if tree == "practice":
        raise BuildError(
            f"{path}: practice/ is where learners answer, and nothing is pulled from it; "
            f"edit {path.replace('practice', 'solutions', 1)} and pull that, or edit {master_of(path)} itself"
        )
    if tree not in ("notebooks", "solutions") or Path(path).suffix != ".ipynb":
        raise BuildError(f"{path}: only notebooks in notebooks/ and solutions/ have a master to pull to")
    master_path = master_of(path)
    try:
        master = parse(master_path, course.read(master_path))
    except FileNotFoundError:
        raise BuildError(f"{path}: its master {master_path} does not exist") from None
    edited = _read(course, path)
    made = notebook(course, master)
    if digest(edited) == made.metadata.ledger.cells:
        return Pulled({}, [])
    if edited["metadata"].get("ledger", {}).get("cells") != made.metadata.ledger.cells:
        raise BuildError(
            f"{path} was not built from {master_path} as it is now, so that a pull could undo later edits there; "
            f"carry your edit into the master by hand, delete {path} and run {BUILD}"
        )
    return _Merge(course, path, master, edited, made).result()


def _read(course: Course, path: str) -> dict[str, Any]:
    try:
        found = json.loads(course.read(path))
        for cell in found["cells"]:
            cell["source"] = "".join(cell["source"]).rstrip("\n")
            if cell.get("attachments"):
                raise BuildError(f"{path}: a cell holds a pasted picture, which a master cannot; draw it by code")
        found["metadata"].get("ledger", {})
    except FileNotFoundError:
        raise BuildError(f"{path}: there is no such file") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise BuildError(f"{path}: it is not a notebook that can be read") from None
    return found


class _Merge:
    """One pull: the cells of the edited notebook set against those just made from the master, by cell id."""

    def __init__(self, course: Course, path: str, master: Any, edited: dict[str, Any], made: Any) -> None:
        self.course, self.path, self.master, self.edited = course, path, master, edited
        self.pairs = {
            made_cell.id: (cell, made_cell.source) for cell, made_cell in zip(master.cells, made.cells, strict=True)
        }
        self.texts: dict[str, str] = {}
        self.notes: list[str] = []

    def result(self) -> Pulled:
        left = dict(self.pairs)
        cells = []
        for number, cell in enumerate(self.edited["cells"], 1):
            pair = left.pop(cell.get("id"), None)
            cells.append(self._known(number, cell, *pair) if pair else self._new(number, cell))
        text = compose(self.master.front, cells)
        self._prove(text, cells)
        if text != self.course.read(self.master.path):
            self.texts[self.master.path] = text
        return Pulled(self.texts, self.notes)

    def _known(self, number: int, edited: dict[str, Any], cell: Cell, made: str) -> Cell:
        if edited["cell_type"] != cell.kind:
            if cell.flags:
                raise BuildError(f"{self.path}, cell {number} ({edited['id']}): its type must stay {cell.kind}")
            return self._new(number, edited)
        if edited["source"] == made:
            return cell
        if "hints" in cell.flags:
            self.notes.append(
                f"{edited['id']}: not pulled; hints are written in src/ledger/exercises/{cell.flags['hints']}.py"
            )
            return cell
        if include := cell.flags.get("include"):
            text = edited["source"] + "\n"
            if self.texts.setdefault(include, text) != text:
                raise BuildError(f"{self.path}, cell {number}: {include} is included twice, and the two edits differ")
            return cell
        return rewrite(cell, self._without_anchor(edited))

    def _new(self, number: int, edited: dict[str, Any]) -> Cell:
        kind, source = edited["cell_type"], self._without_anchor(edited)
        if kind not in ("code", "markdown", "raw"):
            raise BuildError(f"{self.path}, cell {number}: unknown cell type {kind!r}")
        tags = tuple(edited.get("metadata", {}).get("tags", ()))
        return Cell(0, write_cell(kind, source, tags), kind, source, {}, tags)

    def _without_anchor(self, edited: dict[str, Any]) -> str:
        source = edited["source"]
        for cell, _ in self.pairs.values():
            if id := cell.flags.get("exercise"):
                source = source.removeprefix(anchor(id))
        return source

    def _prove(self, text: str, cells: list[Cell]) -> None:
        """Raise BuildError unless the new master builds and reads back as the very cells that were edited."""
        try:
            after = parse(self.master.path, text)
            notebook(replace(self.course, instead={**self.course.instead, **self.texts}), after)
        except BuildError as fault:
            raise BuildError(
                f"{self.path}: nothing was pulled, since the master would no longer build: {fault}"
            ) from None
        told = [(c.kind, c.source, c.flags, c.tags) for c in cells]
        read = [(c.kind, c.source, c.flags, c.tags) for c in after.cells]
        for number, (want, got) in enumerate(zip_longest(told, read), 1):
            if want != got:
                raise BuildError(
                    f"{self.path}, cell {number}: nothing was pulled, since its text cannot stand in a master"
                )
