"""From a master to its notebooks: cell ids, nbgrader's metadata, hints from the registry, included files.

Nothing depends on time, machine or the notebooks on disk, so the same masters always give the same bytes.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from ledger.build.masters import BuildError, Cell, Master, masters, parse

TREES = ("notebooks", "practice", "solutions")
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LONGEST_ID = 64  # nbformat 4.5


def _registered(id: str) -> Any:
    from ledger.exercises import get

    return get(id)


@dataclass(frozen=True)
class Course:
    """The course at ``root``. ``exercise(id)`` gives hints and points; ``instead`` stands in for files, by path."""

    root: Path
    exercise: Callable[[str], Any] = _registered
    instead: Mapping[str, str] = field(default_factory=dict)

    def read(self, path: str) -> str:
        """The text of a file at ``path`` from the root."""
        return self.instead[path] if path in self.instead else (self.root / path).read_bytes().decode()


def outputs(master: str) -> dict[str, str]:
    """The notebook of each tree that ``master`` is made into: ``{"notebooks": path}``, or practice and solutions."""
    _, part, *rest = Path(master).with_suffix(".ipynb").parts
    trees = ("notebooks",) if part == "lessons" else ("practice", "solutions")
    return {tree: Path(tree, *rest).as_posix() for tree in trees}


def master_of(notebook: str) -> str:
    """The master that ``notebook``, a path from the root, is made from."""
    tree, *rest = Path(notebook).with_suffix(".py").parts
    return Path("course", "lessons" if tree == "notebooks" else "practice", *rest).as_posix()


def fresh(course: Course, trees: Iterable[str] = TREES) -> dict[str, str]:
    """Every notebook of ``trees`` as text by its path from the root; a BuildError lists what is wrong with masters."""
    texts, faults, seen = {}, [], {}
    for path in masters(course.root):
        wanted = {tree: out for tree, out in outputs(path).items() if tree in trees}
        if not wanted:
            continue
        try:
            master = parse(path, course.read(path))
            for cell in master.cells:
                if (id := cell.flags.get("exercise")) and seen.setdefault(id, path) != path:
                    raise BuildError(f"{path}:{cell.line}: exercise {id} already stands in {seen[id]}")
            texts |= {wanted[tree]: text for tree, text in _texts(course, master, wanted).items()}
        except UnicodeDecodeError:
            faults.append(f"{path}: not UTF-8 text")
        except BuildError as fault:
            faults.append(str(fault))
    if faults:
        raise BuildError("\n".join(faults))
    return texts


def _texts(course: Course, master: Master, trees: Iterable[str]) -> dict[str, str]:
    import nbformat

    from ledger.build.nbgrader_steps import release

    made = notebook(course, master)
    texts = {}
    for tree in trees:
        result = release(made) if tree == "practice" else made
        nbformat.validate(result)
        texts[tree] = nbformat.writes(result, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"
    return texts


def notebook(course: Course, master: Master) -> Any:
    """The notebook of a lesson, or the one with solutions: one cell for each of the master's, in its order."""
    import nbformat

    _rules(course, master)
    ids: set[str] = set()
    cells = []
    for cell, following in zip(master.cells, [*master.cells[1:], None], strict=True):
        states = following.flags.get("exercise") if following else None
        metadata: dict[str, Any] = dict(cell.flags)
        if cell.tags:
            metadata["tags"] = list(cell.tags)
        if id := cell.flags.get("exercise"):
            metadata["nbgrader"] = _grading(id, solution=True)
        elif id := cell.flags.get("check"):
            metadata["nbgrader"] = _grading(f"{id}_check", points=course.exercise(id).points)
        made = {
            "cell_type": cell.kind,
            "id": _id(master, cell, states, ids),
            "metadata": metadata,
            "source": _source(course, master, cell, states),
        }
        cells.append(made | ({"execution_count": None, "outputs": []} if cell.kind == "code" else {}))
    return nbformat.from_dict(
        {
            "cells": cells,
            "metadata": {
                "kernelspec": KERNEL,
                "language_info": {"name": "python"},
                "ledger": {"cells": digest({"cells": cells}), "made_from": master.path},
            },
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    )


def digest(notebook: Any) -> str:
    """16 hex digits of what a reader can edit: type and text of each cell in order, no ids, outputs or metadata.

    ``notebook`` is a notebook or the JSON of one (a source may be a list of lines).
    """
    seen = sha256()
    for cell in notebook["cells"]:
        seen.update(repr((cell["cell_type"], "".join(cell["source"]))).encode())
    return seen.hexdigest()[:16]


def anchor(id: str) -> str:
    """What stands above the statement of exercise ``id``, so that a link to ``#id`` finds it."""
    return f'<a id="{id}"></a>\n\n'


def _source(course: Course, master: Master, cell: Cell, states: str | None) -> str:
    if path := cell.flags.get("include"):
        return _included(course, f"{master.path}:{cell.line}", path)
    if id := cell.flags.get("hints"):
        folds = (
            f"<details><summary>Hint {n}</summary>\n\n{hint.strip()}\n\n</details>"
            for n, hint in enumerate(course.exercise(id).hints, 1)
        )
        return "\n\n".join(folds)
    return anchor(states) + cell.source if states else cell.source


def _included(course: Course, where: str, path: str) -> str:
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise BuildError(f"{where}: include={path!r} must be a path inside the course, from its root")
    try:
        return course.read(path).rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BuildError(f"{where}: the included file {path} cannot be read ({type(error).__name__})") from None


def _grading(grade_id: str, *, solution: bool = False, points: int | None = None) -> dict[str, Any]:
    grading = {
        "grade": not solution,
        "grade_id": grade_id,
        "locked": not solution,
        "schema_version": 3,
        "solution": solution,
        "task": False,
    }
    return grading if points is None else grading | {"points": points}


def _id(master: Master, cell: Cell, states: str | None, taken: set[str]) -> str:
    """An exercise's cells are called by its id and their role, others by stem and heading, file or text.

    An id thus depends on its own cell alone; cells that would be called the same are numbered from the second on.
    """
    if id := cell.flags.get("exercise"):
        name = id
    elif role := next((role for role in ("check", "hints") if role in cell.flags), None):
        name = f"{cell.flags[role]}-{role}"
    elif states:
        name = f"{states}-statement"
    else:
        heading = re.match(r"#{1,6} +(.+)", cell.source) if cell.kind == "markdown" else None
        told = _slug(cell.flags.get("include", "") or (heading[1] if heading else ""))
        name = f"{_slug(Path(master.path).stem)}-{told or sha256(cell.source.encode()).hexdigest()[:8]}"
        name = next(n for n in _numbered(name) if n not in taken)
    taken.add(name)
    return name


def _slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def _numbered(name: str) -> Iterable[str]:
    yield name[:LONGEST_ID]
    for n in count(2):
        yield f"{name[: LONGEST_ID - 1 - len(str(n))]}-{n}"


def _rules(course: Course, master: Master) -> None:
    """Raise BuildError where the cells of an exercise are not what judge and nbgrader need."""

    def fault(cell: Cell, says: str) -> BuildError:
        return BuildError(f"{master.path}:{cell.line}: {says}")

    seen: dict[tuple[str, str], Cell] = {}
    before: Cell | None = None
    for cell in master.cells:
        if len(cell.flags.keys() & {"exercise", "check", "hints"}) > 1:
            raise fault(cell, "a cell is one of exercise, check and hints, not two")
        for role in cell.flags.keys() & {"exercise", "check", "hints"}:
            id = cell.flags[role]
            if not master.path.startswith("course/practice/"):
                raise fault(cell, f"{role}={id!r}: exercises stand in course/practice/")
            if (role, id) in seen:
                raise fault(cell, f"a second cell has {role}={id!r}")
            seen[role, id] = cell
            try:
                course.exercise(id)
            except KeyError:
                raise fault(cell, f"{role}={id!r}: there is no exercise of this id in src/ledger/exercises/") from None
            if cell.kind != ("markdown" if role == "hints" else "code"):
                raise fault(cell, f"{role}={id!r} must be a {'markdown' if role == 'hints' else 'code'} cell")
            if role == "check" and f'check("{id}", {id})' not in cell.source:
                raise fault(cell, f'the check cell of {id} must call check("{id}", {id})')
            if role == "exercise":
                if before is None or before.kind != "markdown" or before.flags:
                    raise fault(cell, f"a markdown cell with the statement of {id} must stand right before it")
                text = _source(course, master, cell, None)
                if not re.search(rf"^def {id}\(", text, re.MULTILINE):
                    raise fault(cell, f"the answer cell of {id} must define a function {id}")
                marks = re.findall(r"^\s*### (BEGIN|END) SOLUTION$", text, re.MULTILINE)
                if marks[:2] != ["BEGIN", "END"] or marks != ["BEGIN", "END"] * (len(marks) // 2):
                    raise fault(cell, "the reference body must stand between ### BEGIN SOLUTION and ### END SOLUTION")
        if "exercise" not in cell.flags and "### BEGIN SOLUTION" in cell.source:
            raise fault(cell, "a solution region stands outside an exercise's cell")
        before = cell
    exercises = {id for role, id in seen if role == "exercise"}
    for (role, id), cell in seen.items():
        if id not in exercises:
            raise fault(cell, f"{role}={id!r}, but no cell has exercise={id!r}")
        if role == "exercise" and ("check", id) not in seen:
            raise fault(cell, f"no cell has check={id!r}")
