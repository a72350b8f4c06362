"""How nbgrader makes a released notebook from one with solutions, with two steps of the course's own.

``nbgrader_config.py`` names STEPS for ``nbgrader generate_assignment``, and ``release`` runs the same list in memory,
so that both give equal notebooks.
"""

from copy import deepcopy
from typing import Any

from nbformat import NotebookNode
from nbgrader.converters import GenerateAssignment
from nbgrader.preprocessors import ClearSolutions, NbGraderPreprocessor, SaveCells

from ledger.build.notebook import digest


class NamedStubs(ClearSolutions):
    """ClearSolutions, but the stub names the exercise: a traceback then says which answer is missing."""

    def preprocess_cell(self, cell: NotebookNode, resources: Any, cell_index: int) -> tuple[NotebookNode, Any]:
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        self.code_stub = {"python": f'raise NotImplementedError("{name}: write your answer here")'}
        return super().preprocess_cell(cell, resources, cell_index)


class Stamp(NbGraderPreprocessor):
    """Record a digest of all cells in the notebook, by which a learner's work is told from an older build."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        nb.metadata.setdefault("ledger", NotebookNode())["cells"] = digest(nb)
        return nb, resources


STEPS = [
    *(NamedStubs if step is ClearSolutions else step for step in GenerateAssignment.preprocessors.default()),
    Stamp,
]


def release(solutions: NotebookNode) -> NotebookNode:
    """The practice notebook of ``solutions``, which stays as it is; SaveCells is left out: it only fills a database."""
    notebook, resources = deepcopy(solutions), {}
    for step in STEPS:
        if step is not SaveCells:
            notebook, resources = step().preprocess(notebook, resources)
    return notebook
