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
#: What a cell may need that not every computer has either.
GPU = "a CUDA GPU"


def key(source: str) -> str:
    """What a cell is found by."""
    return hashlib.sha256(source.strip().encode()).hexdigest()[:16]


def find(source: str) -> dict[str, Any] | None:
    """The record of the cell with this text: ``outputs`` in the notebook format, what it
    ``needs`` in words, ``machine``, ``date``, and whether there was a ``gpu``; or None."""
    if not FILE.is_file():
        return None
    return json.loads(FILE.read_text())["cells"].get(key(source))


def words(record: dict[str, Any]) -> str:
    """Why the cell did not run here, and what stands below."""
    *others, last = record["needs"]
    needs = f"{', '.join(others)} and {last}" if others else last
    reason = f"This cell needs {needs}, which a browser has not. It was not run here"
    if not record["outputs"]:
        return f"{reason}. It shows nothing: it makes what the cells below it need."
    without = ", where there was none" if GPU in record["needs"] and not record["gpu"] else ""
    return f"{reason}; this is what it gave on\n{record['machine']}, {record['date']}{without}:\n"


def show(record: dict[str, Any]) -> None:
    """Say that the cell did not run here, then show its recorded outputs."""
    from IPython.display import display

    print(words(record), flush=True)
    for output in record["outputs"]:
        if output["output_type"] == "stream":
            print(output["text"], end="", flush=True)
        else:
            display(output["data"], metadata=output["metadata"], raw=True)
