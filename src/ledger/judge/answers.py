"""Carry a learner's work from one place or version to another: one bundle, and nothing of it is lost.

A bundle is a JSON file: ``kind``, ``schema``, the ``course``'s version, ``answers`` (by exercise id, the source of the
answer cell and the notebook that it stood in) and ``notebooks`` (by name below ``practice/``, the cells that are the
learner's own). Answers are matched by id and then by function name, as ``ledger.judge.collect`` does. Loading puts them
into whatever version of the notebooks lies there; a notebook is backed up before it is changed.

``fresh`` is everywhere the notebooks as this version of the course ships them, by name below ``practice/``.
"""

import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import md5
from pathlib import Path, PurePosixPath
from typing import Any

from ledger import __version__, exercises
from ledger.judge.collect import Notebook, bound, code_cell, collect, is_copy, is_set_aside, is_stub, show_path
from ledger.judge.errors import StateError, Unreadable, UsageError
from ledger.judge.progress import back_up, write_whole
from ledger.judge.reset import RELOAD, check_place, load, write

KIND = "attention-ledger answers"
SCHEMA = 1

#: What a cell of the learner's own does not keep: it would make the cell one of the course's.
_COURSE_METADATA = ("nbgrader", "exercise", "check", "hints", "include", "deletable", "editable", "trusted")
_KINDS = ("code", "markdown", "raw")
_COURSE_ID = re.compile(r".+-(?:statement|check|hints)")
_SKELETON = {
    "metadata": {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}

Books = dict[str, dict[str, Any]]


@dataclass
class Loaded:
    """What became of a bundle: ids and cells that were put back, that took the place of another answer, that were
    there already; ``left`` is a bundle of what had no place, or None; ``backups`` are the notebooks as they were."""

    put: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    already: list[str] = field(default_factory=list)
    homeless: list[str] = field(default_factory=list)
    left: dict[str, Any] | None = None
    backups: list[Path] = field(default_factory=list)

    def lines(self, kept_in: str = "") -> list[str]:
        """The report: a line for each thing that happened."""
        told = (
            ("put back", self.put),
            ("put in place of another answer", self.replaced),
            ("there already", self.already),
            (f"no place here, kept in {kept_in}", self.homeless),
        )
        lines = [f"{what}: {', '.join(names)}" for what, names in told if names]
        lines += [f"the notebook as it was: {show_path(path)}" for path in self.backups]
        return lines or ["the bundle holds nothing"]


def fresh_books(root: Path) -> Books:
    """The practice notebooks as a build makes them now, by name below ``practice/``."""
    from ledger.build import fresh_practice

    return {name.removeprefix("practice/"): notebook for name, notebook in fresh_practice(root).items()}


def read_books(folder: Path) -> tuple[Books, list[str]]:
    """The notebooks below ``folder`` by name, and a line for each that cannot be read."""
    books, faults = {}, []
    for path in sorted(folder.rglob("*.ipynb")):
        name = path.relative_to(folder)
        if is_set_aside(path) or any(part.startswith(".") for part in name.parts):
            continue
        try:
            books[name.as_posix()] = load(path, show_path(path))
        except Unreadable as error:
            faults.append(str(error).rpartition(":")[0])
    return books, faults


def bundle(books: Mapping[str, dict], fresh: Mapping[str, dict]) -> dict[str, Any]:
    """The answers and the learner's own cells in ``books``."""
    views = [view(name, book) for name, book in books.items()]
    answers, taken = {}, set()
    for id, exercise in exercises.registry().items():
        found = collect(exercise, views, [])
        if not found.problem:
            name, number = found.where.rsplit(", cell ", 1)
            taken.add((name, int(number)))
            cell = books[name]["cells"][int(number) - 1]
            if not untouched(cell, id, fresh):
                answers[id] = {"source": text_of(cell), "notebook": name}
    notebooks = {}
    for name, book in books.items():
        for number, cell, id in retired(book, exercises.ids()):
            taken.add((name, number))
            if not untouched(cell, id, fresh):
                answers.setdefault(id, {"source": text_of(cell), "notebook": name})
        own = list(own_cells(name, book, fresh, {number for book_name, number in taken if book_name == name}))
        if own:
            notebooks[name] = {"made_from": record(book), "cells": own}
    return {"kind": KIND, "schema": SCHEMA, "course": __version__, "answers": answers, "notebooks": notebooks}


def view(name: str, book: dict) -> Notebook:
    """A notebook as ``collect`` reads it."""
    cells = (code_cell(number, cell) for number, cell in enumerate(book["cells"], 1))
    return Notebook(Path(name), name, tuple(filter(None, cells)))


def retired(book: dict, known: tuple[str, ...]) -> Iterator[tuple[int, dict, str]]:
    """Answer cells of exercises that this version of the course no longer has."""
    for number, cell in enumerate(book["cells"], 1):
        grading = grading_of(cell)
        id = grading.get("grade_id")
        if grading.get("solution") and isinstance(id, str) and id.isidentifier() and id not in known:
            yield number, cell, id


def own_cells(name: str, book: dict, fresh: Mapping[str, dict], taken: set[int]) -> Iterator[dict[str, Any]]:
    """The cells that no fresh notebook has, with the course's cell that each stood after.

    A cell of the course with another text, by the learner's edit or of another version, keeps its id.
    """
    shipped = {(cell["cell_type"], text_of(cell)) for other in fresh.values() for cell in other["cells"]}
    after = None
    for number, cell in enumerate(book["cells"], 1):
        if not isinstance(cell, dict):
            continue
        kind, text, id = kind_of(cell), text_of(cell), cell.get("id")
        made_by_course = from_course(cell, name)
        repeats = answers_what(cell)
        idle = not text.strip() or (kind, text) in shipped or grading_of(cell).get("grade")
        if number not in taken and not idle and not (repeats and untouched(cell, repeats, fresh)):
            own = {"cell_type": kind, "source": text, "after": after}
            if repeats:
                own["answers"] = repeats
            elif made_by_course:
                own["id"] = id
            metadata = {key: value for key, value in metadata_of(cell).items() if key not in _COURSE_METADATA}
            attached = cell["attachments"] if isinstance(cell.get("attachments"), dict) else {}
            yield own | {key: v for key, v in (("metadata", metadata), ("attachments", attached)) if v}
        if made_by_course:
            after = id


def from_course(cell: dict, name: str) -> bool:
    """Whether a build made this cell, told by its id: JupyterLab gives random ones."""
    id = cell.get("id")
    if not isinstance(id, str):
        return False
    stem = re.sub(r"[^a-z0-9]+", "-", PurePosixPath(name).stem.lower()).strip("-")
    return id.startswith(f"{stem}-") or bool(_COURSE_ID.fullmatch(id)) or id in exercises.ids()


def answers_what(cell: dict) -> str | None:
    """The exercise that a code cell answers, by id or by the function that it defines."""
    if cell.get("cell_type") != "code":
        return None
    named = next((id for id in exercises.ids() if id in ids_of(cell)), None)
    return named or next((id for id in exercises.ids() if id in bound(text_of(cell))), None)


def untouched(cell: dict, id: str, fresh: Mapping[str, dict]) -> bool:
    """Whether an answer cell is still a stub: this version's, or by nbgrader's checksum the one it was made with."""
    text = text_of(cell)
    if not is_stub(text):
        return not text.strip()
    if any(id in ids_of(other) and text_of(other) == text for book in fresh.values() for other in book["cells"]):
        return True
    return grading_of(cell).get("checksum") == checksum(cell)


def checksum(cell: dict) -> str:
    """What nbgrader notes in an answer cell of this text on release (``nbgrader.utils.compute_checksum``)."""
    flags = "FalseTrueFalse"  # not graded itself, a solution, not locked
    text = f"{text_of(cell)}{cell.get('cell_type')}{flags}{grading_of(cell).get('grade_id')}"
    return md5(text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()


def put_back(
    held: Mapping[str, Any],
    books: Books,
    fresh: Mapping[str, dict],
    done: Loaded,
) -> set[str]:
    """Put what a bundle holds into ``books``, in place, and note it in ``done``; the names of the changed ones."""
    changed, left_answers, left_books = set(), {}, {}
    for id, entry in held["answers"].items():
        name = home_of(id, books, fresh)
        if name is None:
            left_answers[id] = entry
            done.homeless.append(id)
            continue
        if name not in books:
            books[name] = deepcopy(dict(fresh[name]))
            changed.add(name)
        if put_answer(id, entry["source"], books[name], fresh, done):
            changed.add(name)
    for name, kept in held["notebooks"].items():
        left = put_cells(name, kept, books, fresh, done, changed)
        if left:
            left_books[name] = {**kept, "cells": left}
            done.homeless.append(f"{count_of(left)} of {name}")
    if left_answers or left_books:
        done.left = {**held, "answers": left_answers, "notebooks": left_books}
    return changed


def home_of(id: str, books: Books, fresh: Mapping[str, dict]) -> str | None:
    """The notebook that an answer belongs into: the one that ships it, else one that holds its cell; or None."""
    holding = [name for name, book in books.items() if any(id in ids_of(cell) for cell in book["cells"])]
    holding.sort(key=lambda name: is_copy(Path(name)))
    home = next((n for n, book in fresh.items() if any(id in ids_of(cell) for cell in book["cells"])), None)
    if home in books or not holding:
        return home
    return holding[0]


def put_answer(id: str, source: str, book: dict, fresh: Mapping[str, dict], done: Loaded) -> bool:
    """Put an answer into its cell, or a new cell where that is gone; whether ``book`` changed."""
    cell = answer_cell(id, book)
    if cell is None:
        stub = next((c for other in fresh.values() for c in other["cells"] if id in ids_of(c)), None)
        cell = deepcopy(stub) if stub else new_cell({"cell_type": "code", "source": ""}, book)
        book["cells"].insert(check_place(book, id), cell)
    elif text_of(cell).rstrip() == source.rstrip():
        done.already.append(id)
        return False
    (done.put if untouched(cell, id, fresh) else done.replaced).append(id)
    cell.update(source=source.splitlines(keepends=True), outputs=[], execution_count=None)
    return True


def answer_cell(id: str, book: dict) -> dict | None:
    """The cell that answers ``id``, as ``collect`` chooses it: by id, else by name; the last that is no stub."""
    cells = [cell for cell in view("", book).cells if not cell.graded]
    by_id = [cell for cell in cells if id in cell.ids]
    by_name = [cell for cell in cells if id in cell.binds]
    matches = by_id if any(cell.written for cell in by_id) else by_name or by_id
    written = [cell for cell in matches if cell.written] or matches
    return book["cells"][written[-1].number - 1] if written else None


def put_cells(
    name: str, kept: Mapping[str, Any], books: Books, fresh: Mapping[str, dict], done: Loaded, changed: set[str]
) -> list[dict]:
    """Put the learner's own cells of one notebook where they stood; those that have no place are returned."""
    if name not in books:
        books[name] = deepcopy(dict(fresh[name])) if name in fresh else {"cells": [], **deepcopy(_SKELETON)}
        changed.add(name)
    book, left, added, there = books[name], [], 0, 0
    same_version = kept["made_from"] is not None and kept["made_from"] == record(book)
    placed: set[int] = set()
    for own in kept["cells"]:
        twin = next((c for c in book["cells"] if (kind_of(c), text_of(c)) == (own["cell_type"], own["source"])), None)
        if twin is not None:
            placed.add(id(twin))
            there += 1
            continue
        if "id" in own:
            cell = next((c for c in book["cells"] if isinstance(c, dict) and c.get("id") == own["id"]), None)
            if not (cell and same_version and shipped_text(cell, fresh.get(name))):
                left.append(own)
                continue
            cell["source"] = own["source"].splitlines(keepends=True)
        else:
            cell = new_cell(own, book)
            book["cells"].insert(place_for(own, book, placed), cell)
        placed.add(id(cell))
        changed.add(name)
        added += 1
    if added:
        done.put.append(f"{count_of(range(added))} of {name}")
    if there:
        done.already.append(f"{count_of(range(there))} of {name}")
    return left


def place_for(own: Mapping[str, Any], book: dict, placed: set[int]) -> int:
    """Where a cell of the learner's own goes: after the cell that it stood after and those already put there.

    A second answer to an exercise goes before the answer cell, so that running the notebook leaves the graded one.
    """
    cells = book["cells"]
    if "answers" in own:
        before = next((i for i, cell in enumerate(cells) if own["answers"] in ids_of(cell)), None)
        if before is not None:
            return before
    if own["after"] is None:
        at = 0
    else:
        found = (i for i, cell in enumerate(cells) if isinstance(cell, dict) and cell.get("id") == own["after"])
        at = next(found, len(cells) - 1) + 1
    while at < len(cells) and id(cells[at]) in placed:
        at += 1
    return at


def new_cell(own: Mapping[str, Any], book: dict) -> dict[str, Any]:
    """A raw cell with the text of ``own``."""
    cell = {"cell_type": own["cell_type"], "metadata": dict(own.get("metadata") or {})}
    cell["source"] = own["source"].splitlines(keepends=True)
    version = book.get("nbformat"), book.get("nbformat_minor")
    if all(isinstance(number, int) for number in version) and version >= (4, 5):
        cell["id"] = secrets.token_hex(4)
    if own["cell_type"] == "code":
        cell |= {"outputs": [], "execution_count": None}
    elif own.get("attachments"):
        cell["attachments"] = own["attachments"]
    return cell


def shipped_text(cell: dict, book: dict | None) -> bool:
    """Whether a cell of the course still has the text that ``book`` ships."""
    return any(c["id"] == cell.get("id") and text_of(c) == text_of(cell) for c in (book or {"cells": []})["cells"])


def count_of(cells: Any) -> str:
    """How many cells, for a sentence."""
    return "1 own cell" if len(cells) == 1 else f"{len(cells)} own cells"


def ids_of(cell: Any) -> tuple[str, ...]:
    """The ids that a raw code cell bears."""
    read = code_cell(0, cell)
    return read.ids if read else ()


def text_of(cell: Any) -> str:
    """The source of a raw cell, whatever its form."""
    source = cell.get("source", "") if isinstance(cell, dict) else ""
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    return source.replace("\r\n", "\n").replace("\r", "\n") if isinstance(source, str) else ""


def kind_of(cell: Any) -> str | None:
    """The type of a raw cell; one that nbformat does not know is kept as raw text."""
    if not isinstance(cell, dict):
        return None
    return cell.get("cell_type") if cell.get("cell_type") in _KINDS else "raw"


def metadata_of(thing: Any) -> dict[str, Any]:
    """The metadata of a raw cell or notebook."""
    metadata = thing.get("metadata") if isinstance(thing, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def grading_of(cell: Any) -> dict[str, Any]:
    """nbgrader's metadata of a raw cell."""
    grading = metadata_of(cell).get("nbgrader")
    return grading if isinstance(grading, dict) else {}


def record(book: dict) -> str | None:
    """The digest that the build of a notebook left in it."""
    ledger = metadata_of(book).get("ledger")
    digest = ledger.get("cells") if isinstance(ledger, dict) else None
    return digest if isinstance(digest, str) else None


def read_bundle(data: bytes, name: str) -> dict[str, Any]:
    """A bundle from its bytes; raises Unreadable with one line that says what is wrong with it."""
    try:
        held = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise Unreadable(f"{name} is not a bundle of answers: byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"{name} is not a bundle of answers: {error.msg} at line {error.lineno}") from None
    except (RecursionError, ValueError) as error:
        raise Unreadable(f"{name} is not a bundle of answers: {type(error).__name__}") from None
    if not isinstance(held, dict) or held.get("kind") != KIND:
        what = " but a notebook" if isinstance(held, dict) and "nbformat" in held else ""
        raise Unreadable(f"{name} is not a bundle of answers{what}: answers save makes one")
    if held.get("schema") != SCHEMA:
        raise Unreadable(f"{name} has schema {held.get('schema')!r}, and this course reads {SCHEMA}: update the course")
    fault = fault_in(held)
    if fault:
        raise Unreadable(f"{name} is a damaged bundle: {fault}")
    return held


def fault_in(held: dict[str, Any]) -> str | None:
    """What of a bundle is not as it should be, or None."""
    answers, notebooks = held.get("answers"), held.get("notebooks")
    if not isinstance(answers, dict) or not isinstance(notebooks, dict):
        return "it has no answers or no notebooks"
    for id, entry in answers.items():
        if not (id.isidentifier() and isinstance(entry, dict) and isinstance(entry.get("source"), str)):
            return f"the answer {id[:60]!r} has no source"
    for name, kept in notebooks.items():
        if not is_book_name(name):
            return f"{name[:60]!r} is no notebook below practice/"
        cells = kept.get("cells") if isinstance(kept, dict) else None
        if not isinstance(cells, list) or not all(map(is_own_cell, cells)):
            return f"the cells of {name[:60]!r} are not as they should be"
        kept.setdefault("made_from", None)
    return None


def is_book_name(name: str) -> bool:
    """Whether a bundle's name of a notebook is a path below ``practice/`` that a system can hold, written plainly."""
    try:
        parts = name.encode().split(b"/")
    except UnicodeEncodeError:  # half a character
        return False
    refused = set("\0\\:" if os.name == "nt" else "\0") & set(name)
    plain = all(part and not part.startswith(b".") and len(part) <= 255 for part in parts)
    return name.endswith(".ipynb") and plain and not refused and len(name.encode()) <= 1000


def is_own_cell(cell: Any) -> bool:
    """Whether a bundle's record of a cell has all that it needs."""
    return (
        isinstance(cell, dict)
        and cell.get("cell_type") in _KINDS
        and isinstance(cell.get("source"), str)
        and isinstance(cell.setdefault("after", None), str | None)
        and isinstance(cell.get("metadata", {}), dict)
        and isinstance(cell.get("attachments", {}), dict)
        and all(isinstance(cell.get(key, ""), str) for key in ("id", "answers"))
    )


def to_bytes(held: Mapping[str, Any]) -> bytes:
    """A bundle as a file holds it."""
    return (json.dumps(held, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def save(file: Path, root: Path) -> list[str]:
    """Write a bundle of everything in ``practice/`` to ``file``; say what is in it.

    Raises UsageError where nothing can be saved or ``file`` is something else than a bundle, StateError where it
    cannot be written. An older bundle at ``file`` goes to ``.ledger/backups``.
    """
    books, faults = read_books(root / "practice")
    held = bundle(books, fresh_books(root))
    if not held["answers"] and not held["notebooks"]:
        if faults:
            raise UsageError(f"nothing was saved: {'; '.join(faults)}, and may hold answers; no other is written yet")
        raise UsageError("there is nothing to save: no answer in practice/ is written yet")
    data, older = to_bytes(held), None
    if file.is_dir() or not file.parent.is_dir():
        raise UsageError(f"answers save wants a file in a folder that exists, not {file}")
    if file.exists() and file.read_bytes() != data:
        try:
            read_bundle(file.read_bytes(), str(file))
        except Unreadable:
            raise UsageError(f"{file} is there and is no bundle of answers: choose another name") from None
        older = back_up(file, root)
    try:
        write_whole(file, data)
    except OSError as error:
        raise StateError(f"{file} could not be written: {error.strerror or error}") from None
    lines = [f"{file}: {said(held)}"]
    lines += [f"not saved, for it cannot be read, and it may hold answers: {fault}" for fault in faults]
    return lines + ([f"the older bundle of this name: {show_path(older)}"] if older else [])


def said(held: Mapping[str, Any]) -> str:
    """What a bundle holds, for a sentence."""
    answers = ", ".join(held["answers"]) or "no answer"
    own = sum(len(kept["cells"]) for kept in held["notebooks"].values())
    return answers + (f"; {count_of(range(own))}" if own else "")


def load_bundle(file: Path, root: Path) -> tuple[Loaded, list[str]]:
    """Put the bundle at ``file`` back into ``practice/``; what was done, and the lines that say it.

    Raises Unreadable for a bundle that is none, and StateError where something cannot be written.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise Unreadable(f"{file} cannot be read: {error.strerror or error}") from None
    held = read_bundle(data, str(file))
    beside = file.with_name(f"{file.stem}.left.json")
    done, lines = load_into(held, root, fresh_books(root), beside, lambda path: back_up(path, root))
    return done, lines + [RELOAD] * bool(done.put or done.replaced)


def load_into(
    held: Mapping[str, Any],
    root: Path,
    fresh: Mapping[str, dict],
    beside: Path,
    keep: Callable[[Path], Path],
    write: Callable[[Path, dict], None] = write,
) -> tuple[Loaded, list[str]]:
    """Put a bundle into the notebooks below ``root/practice``; ``keep`` backs a file up, ``write``
    writes a notebook, ``beside`` takes what has no place."""
    folder = root / "practice"
    books, faults = read_books(folder)
    broken = [fault for fault in faults if any(name in fault for name in fresh)]
    if broken:
        raise Unreadable(f"nothing was loaded, for a notebook is in the way: {broken[0]}; move it away")
    done = Loaded()
    for name in sorted(put_back(held, books, fresh, done)):
        path = folder / name
        if path.exists():
            done.backups.append(keep(path))
        else:
            make_folder(path.parent)
        write(path, books[name])
    if done.left:
        left = to_bytes(done.left)
        if beside.exists() and beside.read_bytes() != left:
            done.backups.append(keep(beside))
        try:
            write_whole(beside, left)
        except OSError as error:
            raise StateError(f"{beside} could not be written: {error.strerror or error}") from None
    return done, done.lines(show_path(beside))


def make_folder(folder: Path) -> None:
    """Make the folder of a notebook; raises StateError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(f"{show_path(folder)} could not be made: {error.strerror or error}") from None
