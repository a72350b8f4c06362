"""Build the book: every lesson executed, the exercises' statements, the reference pages.

``build_book`` writes static files that ask for nothing outside their own folder, whether a site is online or not. A
second build takes the lessons' outputs from ``.cache/book`` unless a lesson or the library has changed.
"""

import os
import shutil
import subprocess
import sys
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from book import pages
from book.parts import mathjax

HERE = Path(__file__).resolve().parent


def build_book(root: Path, out: Path, offline: bool = False) -> None:
    """Write the book of the course at ``root`` into ``out``, beside whatever else stands there.

    ``offline`` leaves out the links to services that a reader without a network cannot reach. Raises SystemExit with
    Sphinx's complaint where a page is at fault: a warning is a fault.
    """
    cache = root / ".cache" / "book"
    executed = cache / "executed" / _library(root)
    for old in (cache / "executed").glob("*"):
        if old != executed:
            shutil.rmtree(old)
    for folder in ("source", "html", "doctrees"):
        shutil.rmtree(cache / folder, ignore_errors=True)
    pages.write(root, cache / "source")
    mathjax(cache, cache / "static" / "mathjax")

    profile = cache / "ipython" / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 'ERROR'\n")
    settings = {
        "BOOK_STATIC": cache / "static",
        "BOOK_EXECUTED": executed,
        "BOOK_ROOT": root,
        "IPYTHONDIR": cache / "ipython",
    }
    environment = os.environ | {name: str(path) for name, path in settings.items()}
    environment |= {"LEDGER_STATIC": "1", "BOOK_OFFLINE": "1" if offline else ""}
    command = [sys.executable, "-m", "sphinx", "-q", "-E", "-W", "--keep-going", "-b", "html", "-c", HERE]
    command += ["-d", cache / "doctrees", cache / "source", cache / "html"]
    if subprocess.run(command, env=environment).returncode:
        raise SystemExit("The book was not built: see the lines above.")
    (cache / "html" / "_static" / "webpack-macros.html").unlink()  # a template that the theme leaves lying there
    _move(cache / "html", out)


def _library(root: Path) -> str:
    """What, beside its own cells, decides a lesson's outputs: the library, the kernels, Python and three packages."""
    seen = sha256(sys.version.encode())
    for package in ("numpy", "matplotlib", "ipython"):
        seen.update(version(package).encode())
    files = (p for tree in ("src/ledger", "kernels") for p in (root / tree).rglob("*") if p.suffix in (".py", ".wgsl"))
    for path in sorted(files):
        seen.update(path.read_bytes())
    return seen.hexdigest()[:16]


def _move(built: Path, out: Path) -> None:
    """Put each file and folder of ``built`` in the place of its namesake in ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    for new in built.iterdir():
        old = out / new.name
        if old.is_dir():
            shutil.rmtree(old)
        elif old.exists():
            old.unlink()
        shutil.move(new, old)
