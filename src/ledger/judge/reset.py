"""Put the stub of one exercise back into its practice notebook."""

import json
from pathlib import Path

from ledger.exercises import Exercise
from ledger.judge.collect import is_copy, notebooks_under
from ledger.judge.errors import StateError, Unreadable
from ledger.judge.progress import back_up, write_whole


def reset(exercise: Exercise, root: Path) -> str:
    """Replace the answer cell of ``exercise`` by this version's stub, after a backup; say what was done.

    A cell that is gone is put back in front of its check, or at the end. Every other cell stays as it is. Raises
    Unreadable for a notebook that cannot be read and StateError where nothing can be written.
    """
    from ledger.build import fresh_practice

    place, fresh = next(
        (Path(path), notebook) for path, notebook in fresh_practice(root).items() if answer_index(notebook, exercise.id)
    )
    path = current_notebook(exercise, root, root / place)
    stub = fresh["cells"][answer_index(fresh, exercise.id) - 1]
    name = path.relative_to(root)
    if not path.exists():
        write(path, fresh)
        return f"{name} was missing: it is new again."
    notebook = load(path, str(name))
    at = answer_index(notebook, exercise.id)
    if at and "".join(notebook["cells"][at - 1]["source"]) == "".join(stub["source"]):
        return f"{exercise.id} is the untouched stub already; nothing was changed."
    kept = back_up(path, root)
    if at:
        notebook["cells"][at - 1] |= {"source": stub["source"], "outputs": [], "execution_count": None}
    else:
        notebook["cells"].insert(check_index(notebook, exercise.id), stub)
    write(path, notebook)
    return f"{exercise.id} is the stub again in {name}; the notebook as it was: {kept.relative_to(root)}"


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
        raise Unreadable(f"{name} is not a readable notebook: move it away, and reset makes a new one")
    return notebook


def write(path: Path, notebook: dict) -> None:
    """Write a notebook in one step, in nbformat's layout."""
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise StateError(f"{path} could not be written: {error.strerror or error}") from None


def answer_index(notebook: dict, id: str) -> int:
    """The place of the answer cell from 1; 0 where there is none."""
    return next((i for i, cell in enumerate(notebook["cells"], 1) if id in ids_of(cell)), 0)


def check_index(notebook: dict, id: str) -> int:
    """Where a lost answer cell belongs: in front of its check, else at the end."""
    cells = notebook["cells"]
    return next((i for i, cell in enumerate(cells) if f"{id}_check" in ids_of(cell)), len(cells))


def ids_of(cell: object) -> tuple[str, ...]:
    """The ids that a raw cell bears."""
    if not isinstance(cell, dict) or cell.get("cell_type") != "code":
        return ()
    nbgrader = (cell.get("metadata") or {}).get("nbgrader") or {}
    return tuple(i for i in (nbgrader.get("grade_id"), cell.get("id")) if isinstance(i, str))
