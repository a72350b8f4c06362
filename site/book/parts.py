"""What the book takes from npm, by the hashes of ``package-lock.json``: MathJax, and axe-core for the tests."""

import json
import shutil
from pathlib import Path

from node import npm

HERE = Path(__file__).resolve().parent
# MathJax asks for further files of itself as a page needs them; these are all that the book's settings let it ask for.
PARTS = ("tex-chtml.js", "a11y", "input/tex/extensions", "ui", "sre/speech-worker.js")
SPEECH = ("base.json", "en.json", "nemeth.json")
FONT = ("chtml.js", "chtml")


def modules(cache: Path) -> Path:
    """The ``node_modules`` folder with the locked packages, fetched where ``cache`` has not these versions."""
    folder = cache / "npm"
    lock = (HERE / "package-lock.json").read_text()
    stamp = folder / "installed.json"
    if not stamp.is_file() or stamp.read_text() != lock:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, folder)
        npm("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", cwd=folder)
        stamp.write_text(lock)
    return folder / "node_modules"


def mathjax(cache: Path, to: Path) -> None:
    """Lay MathJax with its font into ``to``, without the parts that no page of the book asks for."""
    package = modules(cache) / "mathjax"
    stamp, wanted = to / "version.json", json.loads((package / "package.json").read_text())["version"]
    if stamp.is_file() and json.loads(stamp.read_text()) == wanted:
        return
    shutil.rmtree(to, ignore_errors=True)
    font = modules(cache) / "@mathjax" / "mathjax-newcm-font"
    for part in PARTS:
        _copy(package / part, to / part)
    for name in SPEECH:
        _copy(package / "sre" / "mathmaps" / name, to / "sre" / "mathmaps" / name)
    for part in FONT:
        _copy(font / part, to / "fonts" / "mathjax-newcm-font" / part)
    _copy(package / "LICENSE", to / "LICENSE")
    stamp.write_text(json.dumps(wanted))


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
