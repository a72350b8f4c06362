"""Run the lessons and keep what their cells tagged ``no-browser`` give, for the browser to show in their place."""

import ast
import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ledger.browser.recorded import FILE, GPU, TAG, key
from ledger.build.masters import BuildError

#: What the import of a module, or of a name from it, says that a cell needs.
NEEDS = {
    "torch": ("PyTorch",),
    "triton": ("Triton",),
    "ledger.kernels.gpu": ("PyTorch", "Triton"),
    "ledger.kernels.interpret": ("PyTorch", "Triton"),
    "ledger.parallel": ("PyTorch", "several processes"),
    "pathlib": ("files of the course's folder",),
}


def tagged(root: Path) -> dict[str, dict[str, Any]]:
    """Each fresh lesson that has cells for the record, by its path from ``root``."""
    from ledger.build import fresh_lessons

    return {path: notebook for path, notebook in fresh_lessons(root).items() if for_record(notebook["cells"])}


def unrecorded(root: Path) -> list[str]:
    """The cells that have no record, as ``path#id``: it is made anew when their text changes."""
    kept = json.loads(FILE.read_text())["cells"] if FILE.is_file() else {}
    return [
        f"{path}#{cell['id']}"
        for path, notebook in tagged(root).items()
        for cell in for_record(notebook["cells"])
        if key("".join(cell["source"])) not in kept
    ]


def record(root: Path) -> list[str]:
    """Run every lesson that has such cells and write the record; their paths. A BuildError tells which cell failed."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    cells = {}
    needs = needs_of(root)
    for path, notebook in tagged(root).items():
        ran = nbformat.reads(json.dumps(notebook), as_version=4)
        place = {"metadata": {"path": str(root / Path(path).parent)}}
        try:
            NotebookClient(ran, timeout=600, kernel_name="python3", resources=place).execute()
        except CellExecutionError as error:
            raise BuildError(f"{path} does not run here, so nothing was recorded:\n{error}") from None
        for cell in for_record(ran.cells):
            cells[key(cell.source)] = {
                "cell": f"{path}#{cell.id}",
                "needs": needs[f"{path}#{cell.id}"],
                "gpu": _gpu(),
                "machine": _machine(),
                "date": datetime.now(UTC).date().isoformat(),
                "outputs": [{k: v for k, v in output.items() if k != "execution_count"} for output in cell.outputs],
            }
    FILE.write_text(json.dumps({"cells": cells}, indent=1, ensure_ascii=False) + "\n")
    return sorted({entry["cell"] for entry in cells.values()})


def for_record(cells: list) -> list:
    """The cells that a browser cannot run."""
    return [cell for cell in cells if TAG in cell["metadata"].get("tags", ())]


def needs_of(root: Path) -> dict[str, list[str]]:
    """What each cell for the record needs, in words, by ``path#id``.

    Its imports tell, and the names that it has from such cells above it; asking whether CUDA is there tells of a GPU.
    """
    found = {}
    for path, notebook in tagged(root).items():
        carried: dict[str, tuple[str, ...]] = {}
        for cell in for_record(notebook["cells"]):
            nodes = list(ast.walk(ast.parse("".join(cell["source"]))))
            made = {name for node in nodes for name in _made(node)}
            above = {name: needs for name, needs in carried.items() if name not in made}
            needs = dict.fromkeys(need for node in nodes for need in _needs(node, above))
            carried |= dict.fromkeys(made, tuple(need for need in needs if need != GPU))
            found[f"{path}#{cell['id']}"] = list(needs)
    return found


def _needs(node: ast.AST, carried: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """What one node of a cell's text needs; ``carried`` is what names of the cells above need."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            return carried.get(name, ())
        case ast.Attribute(attr="is_available"):
            return (GPU,)
    modules = _imported(node).values()
    return tuple(need for module in modules for start, needs in NEEDS.items() for need in needs if _in(module, start))


def _made(node: ast.AST) -> list[str]:
    """The names that one node gives a value."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name):
            return [name]
    return list(_imported(node))


def _imported(node: ast.AST) -> dict[str, str]:
    """The names that an import makes, with the module that each is or comes from."""
    match node:
        case ast.Import(names=names):
            return {alias.asname or alias.name.split(".")[0]: alias.name for alias in names}
        case ast.ImportFrom(module=str(module), names=names):
            return {alias.asname or alias.name: f"{module}.{alias.name}" for alias in names}
    return {}


def _in(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def _gpu() -> bool:
    """Whether cells found a GPU."""
    import torch

    return torch.cuda.is_available()


def _machine() -> str:
    """What ran, in one line."""
    import torch

    from ledger.measure import processor

    device = torch.cuda.get_device_name() if _gpu() else processor()
    return f"{device} with torch {torch.__version__} and Python {platform.python_version()}"
