"""Masters in ``course/`` -> the notebooks in ``notebooks/``, ``practice/`` and ``solutions/``.

``python -m ledger.build`` writes them, ``--check`` proves them in sync, ``--pull NOTEBOOK`` takes an edit made in
JupyterLab back to its master. Importing this package is cheap; the functions import jupytext and nbgrader when called.
"""

import json
from pathlib import Path
from typing import Any

from ledger.build.masters import BuildError, master_ids

__all__ = ["BuildError", "fresh_lessons", "fresh_practice", "fresh_solutions", "master_ids", "stub"]


def fresh_practice(root: Path) -> dict[str, dict[str, Any]]:
    """The practice notebooks of the course at ``root`` as a build makes them now, nothing read from ``practice/``.

    The keys are paths from the root (``practice/ch01_keys/keys.ipynb``), the values what ``json.load`` gives for such a
    file: a cell's source is a list of lines. Raises BuildError where a master is at fault.
    """
    return _fresh(root, "practice")


def fresh_lessons(root: Path) -> dict[str, dict[str, Any]]:
    """The lessons, likewise, without outputs."""
    return _fresh(root, "notebooks")


def fresh_solutions(root: Path) -> dict[str, dict[str, Any]]:
    """The notebooks with solutions, likewise."""
    return _fresh(root, "solutions")


def _fresh(root: Path, tree: str) -> dict[str, dict[str, Any]]:
    from ledger.build.notebook import Course, fresh

    return {path: json.loads(text) for path, text in fresh(Course(Path(root)), trees=(tree,)).items()}


def stub(id: str, root: Path) -> str:
    """The text of the answer cell of exercise ``id`` as a learner first sees it; a KeyError where no master has it."""
    for notebook in fresh_practice(root).values():
        for cell in notebook["cells"]:
            if cell["id"] == id:
                return "".join(cell["source"])
    raise KeyError(id)
