"""Run the lessons and keep what their cells tagged ``no-browser`` give, for the browser to show in their place."""

import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ledger.browser.recorded import FILE, TAG, key
from ledger.build.masters import BuildError


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
                "machine": _machine(),
                "date": datetime.now(UTC).date().isoformat(),
                "outputs": [{k: v for k, v in output.items() if k != "execution_count"} for output in cell.outputs],
            }
    FILE.write_text(json.dumps({"cells": cells}, indent=1, ensure_ascii=False) + "\n")
    return sorted({entry["cell"] for entry in cells.values()})


def for_record(cells: list) -> list:
    """The cells that a browser cannot run."""
    return [cell for cell in cells if TAG in cell["metadata"].get("tags", ())]


def _machine() -> str:
    """What ran, in one line."""
    import torch

    from ledger.measure import processor

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else processor()
    return f"{device} with torch {torch.__version__} and Python {platform.python_version()}"
