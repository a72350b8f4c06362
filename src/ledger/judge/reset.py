"""Put the stub of one exercise back into its practice notebook."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from ledger.exercises import Exercise
from ledger.judge.collect import code_cell, is_copy, notebooks_under
from ledger.judge.errors import StateError, Unreadable, UsageError
from ledger.judge.progress import back_up, write_whole

#: What to do where a notebook that has changed on the disk is open.
RELOAD = "Is it open in JupyterLab? File > Reload Notebook from Disk, before it is saved there."


def reset(exercise: Exercise, root: Path) -> str:
    """Put the stub of ``exercise`` back into the learner's notebook below ``root``; say what was done."""
    from ledger.build import fresh_practice

    said, changed = reset_to(fresh_practice(root), exercise, root, write)
    return f"{said}\n{RELOAD}" if changed else said


def reset_to(
    books: Mapping[str, dict], exercise: Exercise, root: Path, write: Callable[[Path, dict], None]
) -> tuple[str, Path | None]:
    """Replace the answer cell of ``exercise`` by the stub in ``books``, this version's notebooks by path below
    ``root``, after a backup; what was done, in a sentence, and the notebook that was changed. ``write`` writes one.

    A cell that is gone is put back in front of its check, or at the end; of several copies one stub is left. Every
    other cell stays as it is. Raises Unreadable for a notebook that cannot be read, UsageError where no notebook of
    ``books`` has the exercise, and StateError where nothing can be written.
    """
    place, fresh = next(((p, book) for p, book in books.items() if answer_places(book, exercise.id)), (None, None))
    if fresh is None:
        raise UsageError(f"no notebook of the course here has {exercise.id}")
    path = current_notebook(exercise, root, root / place)
    stub = fresh["cells"][answer_places(fresh, exercise.id)[0]]
    name = path.relative_to(root)
    if not path.exists():
        write(path, fresh)
        return f"{name} was missing: it is new again.", path
    notebook = load(path, str(name))
    places = answer_places(notebook, exercise.id)
    if [source_of(notebook["cells"][at]) for at in places] == ["".join(stub["source"])]:
        return f"{exercise.id} is the untouched stub already; nothing was changed.", None
    kept = back_up(path, root)
    cells = notebook["cells"]
    first = places[0] if places else check_place(notebook, exercise.id)
    notebook["cells"] = [cell for at, cell in enumerate(cells) if at not in places]
    notebook["cells"].insert(first, stub)
    write(path, notebook)
    copies = f" (its {len(places)} copies became one)" if len(places) > 1 else ""
    return f"{exercise.id} is the stub again in {name}{copies}; the notebook as it was: {kept.relative_to(root)}", path


def current_notebook(exercise: Exercise, root: Path, built: Path) -> Path:
    """The learner's notebook with this exercise: the built one, else one that holds the cell under another name."""
    if built.exists():
        return built
    read, _ = notebooks_under(root / "practice")
    holding = [n.path for n in read if any(exercise.id in cell.ids for cell in n.cells) and not is_copy(n.path)]
    return holding[0] if holding else built


def load(path: Path, name: str) -> dict:
    """The notebook as JSON; raises Unreadable with one line."""
    try:
        notebook = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise Unreadable(f"{name} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        notebook = None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise Unreadable(f"{name} is not a readable notebook: move it out of practice/, and reset makes a new one")
    return notebook


def write(path: Path, notebook: dict) -> None:
    """Write a notebook in one step, in nbformat's layout."""
    try:
        data = json.dumps(notebook, indent=1, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a character, which JSON can hold and UTF-8 cannot
        data = json.dumps(notebook, indent=1).encode()
    try:
        write_whole(path, data + b"\n")
    except OSError as error:
        raise StateError(f"{path} could not be written: {error.strerror or error}") from None


def answer_places(notebook: dict, id: str) -> list[int]:
    """Where the answer stands: the cells with its id and those that define its function, as the judge finds them."""
    cells = [code_cell(at, raw) for at, raw in enumerate(notebook["cells"])]
    return [c.number for c in cells if c and not c.graded and (id in c.ids or id in c.binds)]


def check_place(notebook: dict, id: str) -> int:
    """Where a lost answer cell belongs: in front of its check, else at the end."""
    cells = [code_cell(at, raw) for at, raw in enumerate(notebook["cells"])]
    return next((cell.number for cell in cells if cell and f"{id}_check" in cell.ids), len(cells))


def source_of(cell: dict) -> str:
    """The text of a cell that ``code_cell`` has read."""
    return code_cell(0, cell).source
