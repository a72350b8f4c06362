"""Where a page of the book can be opened and run: in the browser, and for cells that want more, on a machine."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ledger.build.browser import wants_computer
from ledger.chapters import LESSONS

# The JupyterLab in the browser, from the site's root; a notebook's path follows.
LITE = "lite/lab/index.html?path="
FIRST = f"{LITE}notebooks/{LESSONS[0]}.ipynb"


@dataclass(frozen=True)
class Launch:
    """The addresses of a page: ``browser`` is relative to it, ``others`` are (name, address) pairs.

    ``install`` is what a machine elsewhere has to run first, where it starts without the course.
    """

    browser: str
    others: tuple[tuple[str, str], ...] = ()
    install: str = ""


def launch(root: Path, page: str, offline: bool) -> Launch:
    """What ``page`` (``notebooks/ch01_keys/keys``) can be opened with; a page that is no notebook leads to the first.

    A page with cells that a browser cannot run has links to machines that can, where the repository's address is known.
    """
    up = "../" * page.count("/")
    notebook = root / f"{page}.ipynb"
    if page.split("/")[0] not in ("notebooks", "practice") or not notebook.is_file():
        return Launch(up + FIRST)
    browser = f"{up}{LITE}{page}.ipynb"
    address = None if offline else repository(root)
    if not address or not wants_more(notebook):
        return Launch(browser)
    return Launch(browser, elsewhere(address, page), f"%pip install git+https://github.com/{address}")


def wants_more(notebook: Path) -> bool:
    """Whether ``notebook`` has a cell that a browser cannot run."""
    read = json.loads(notebook.read_text())
    return wants_computer(read) or any("no-browser" in cell["metadata"].get("tags", ()) for cell in read["cells"])


def elsewhere(address: str, page: str) -> tuple[tuple[str, str], ...]:
    """Colab and Codespaces for ``page`` of the repository ``owner/name`` on GitHub."""
    return (
        ("Colab", f"https://colab.research.google.com/github/{address}/blob/main/{page}.ipynb"),
        ("Codespaces", f"https://codespaces.new/{address}"),
    )


def repository(root: Path) -> str | None:
    """``owner/name`` on GitHub: ``$LEDGER_REPOSITORY`` (that, or the whole address), otherwise git's remote, if any."""
    address = os.environ.get("LEDGER_REPOSITORY")
    if address is None:
        command = ["git", "-C", str(root), "remote", "get-url", "origin"]
        try:
            address = subprocess.run(command, capture_output=True, text=True).stdout
        except OSError:
            return None
        if "github.com" not in address:
            return None
    found = re.fullmatch(r"(?:.*github\.com[/:])?([\w.-]+/[\w.-]+?)(?:\.git)?/?", address.strip())
    return found[1] if found else None
