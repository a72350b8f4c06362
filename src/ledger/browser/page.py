"""Talk to JupyterLab's page from the kernel, which sees saved files alone: save what is open, show a file anew.

The kernel's thread may wait for the page, never the other way round: the page reads a message while Python still runs.
"""

import contextlib
import json
import secrets
import time
from pathlib import Path
from typing import Any

from ledger.browser import root_above
from ledger.judge.errors import StateError

#: Where the page leaves word that it has saved.
_WORD = Path(".ledger", "page.txt")

# An output acts again when its notebook is opened again, or the widget around it changes: these act once.
_ASK = """(async () => {
  const app = window.jupyterapp, word = "%(word)s";
  if (Date.now() > %(until)d || (window.ledgerWords ??= []).includes(word)) return;
  window.ledgerWords.push(word);
  %(script)s
  await app.serviceManager.contents.save(%(place)s, {type: "file", format: "text", content: word});
})();"""

_SAVE = """
  for (const widget of app.shell.widgets("main")) {
    const context = widget.context;
    if (context?.model?.dirty && !context.model.readOnly) await context.save();
  }"""

_WRITE = """
  await app.serviceManager.contents.save(%s, {type: "notebook", format: "json", content: %s});"""

_REVERT = """
  for (const widget of app.shell.widgets("main"))
    if (widget.context?.path === %s) await widget.context.revert();
  app.commands.execute("apputils:notify", {message: %s, type: "success", options: {autoClose: 15000}});"""


def ask(root: Path, script: str, seconds: float = 10.0) -> bool:
    """Run JavaScript in the page, ``app`` being JupyterLab; whether the page said in time that it was carried out."""
    from IPython.display import Javascript, display

    word = secrets.token_hex(8)
    (root / _WORD).parent.mkdir(exist_ok=True)
    body = _ASK % {
        "word": word,
        "until": 1000 * (time.time() + seconds),
        "script": script,
        "place": json.dumps(_WORD.as_posix()),
    }
    carrier = display(Javascript(body), display_id=word)
    end, said = time.monotonic() + seconds, ""
    while said != word and time.monotonic() < end:
        time.sleep(0.05)
        with contextlib.suppress(OSError):
            said = (root / _WORD).read_text()
    carrier.update({"text/plain": ""}, raw=True)  # nothing of it stays in the notebook
    return said == word


def save_all(root: Path) -> bool:
    """Have the page save every open notebook that has edits; whether it did."""
    saved = ask(root, _SAVE)
    if not saved:
        print("The page did not answer: what is not saved yet (Ctrl+S) is not seen.")
    return saved


def write_notebook(path: Path, notebook: dict[str, Any]) -> None:
    """Have the page write a notebook: what the kernel itself writes anew is not stored as one. Raises StateError."""
    root = root_above(path.parent)
    where = path.relative_to(root).as_posix()
    if not ask(root, _WRITE % (json.dumps(where), json.dumps(notebook))):
        raise StateError(f"{where} could not be written: the page did not answer")


def show_anew(root: Path, path: Path, message: str) -> None:
    """Have the page read the notebook at ``path`` again where it is open, and say ``message`` in a corner."""
    where = json.dumps(path.relative_to(root).as_posix())
    ask(root, _REVERT % (where, json.dumps(message)), seconds=2)
