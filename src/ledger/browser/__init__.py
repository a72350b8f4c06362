"""Notebooks: ``%judge`` everywhere, and in a browser what makes up for a computer's own disk and processes.

In a browser (Pyodide) a cell's time and output have a limit, torch and Triton are missing with a sentence, a saved
notebook of another version of the course says so and ``update()`` renews it, and ``download_answers()`` and
``load_answers()`` exchange the bundle of ``judge.py answers`` with a computer.
"""

import sys
from pathlib import Path

IN_BROWSER = sys.platform == "emscripten"


def __getattr__(name: str):
    """Load what a notebook asks for on first use."""
    if name == "allow":
        from ledger.browser.cells import allow as found
    elif name == "update":
        from ledger.browser.versions import update as found
    elif name in ("download_answers", "load_answers"):
        from ledger.browser import exchange

        found = getattr(exchange, name)
    else:
        raise AttributeError(f"module 'ledger.browser' has no attribute {name!r}")
    return found


def install() -> None:
    """Set up the kernel that imports ``ledger``; nothing outside IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None:
        return
    from ledger.browser import ladder

    shell.register_magic_function(ladder.show, "line", "judge")
    if IN_BROWSER:
        from ledger.browser import cells, missing, versions

        missing.install()
        cells.install(shell)
        versions.notice(Path.cwd())


def root_above(start: Path) -> Path | None:
    """The course's folder: the nearest one from ``start`` upwards that holds ``practice``."""
    return next((folder for folder in (start, *start.parents) if (folder / "practice").is_dir()), None)


def need_browser(instead: str) -> None:
    """Raise RuntimeError outside a browser, saying what does the same there."""
    if not IN_BROWSER:
        raise RuntimeError(f"this is for the course in a browser; on a computer: {instead}")
