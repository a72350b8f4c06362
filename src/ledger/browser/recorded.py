"""What cells that a browser cannot run gave on a computer: such a cell shows that in the browser, and says so.

``python -m ledger.build --record`` runs the lessons and writes the record beside this file. A cell is found by its
text, so a cell that a learner has changed is run, and not answered with what another text gave.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("recorded.json")
#: The tag of a cell that a browser cannot run.
TAG = "no-browser"


def key(source: str) -> str:
    """What a cell is found by."""
    return hashlib.sha256(source.strip().encode()).hexdigest()[:16]


def find(source: str) -> dict[str, Any] | None:
    """The record of the cell with this text: ``outputs`` in the notebook format, ``machine`` and ``date``; or None."""
    if not FILE.is_file():
        return None
    return json.loads(FILE.read_text())["cells"].get(key(source))


def show(record: dict[str, Any]) -> None:
    """Say that the cell did not run here, then show its recorded outputs."""
    from IPython.display import display

    print("This cell needs PyTorch, which a browser cannot run. It was not run here; this is what it gave on")
    print(f"{record['machine']}, {record['date']}:\n", flush=True)
    for output in record["outputs"]:
        if output["output_type"] == "stream":
            print(output["text"], end="", flush=True)
        else:
            display(output["data"], metadata=output["metadata"], raw=True)
