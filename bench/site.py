"""How long the course in a browser takes to start, and what it transfers: ``python bench/site.py``.

It measures the site that ``make site OFFLINE=1`` left in ``dist/``. A cold round has a new Chromium with an empty
profile; the warm one follows in the same profile. Times run from the navigation to a practice notebook. Transferred is
what the server was asked for in a cold round, compressed with gzip as a pages host does; archives and pictures go as
they are. Sites that are built without the later steps show what each step is worth.
"""

import argparse
import gzip
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import BrowserContext, Playwright, sync_playwright
from record import ROOT, record

sys.path[:0] = [str(ROOT / folder) for folder in ("site", "tests", "tests/site")]
import build  # noqa: E402
import chromium  # noqa: E402
import pyodide  # noqa: E402
from lab import open_notebook, run_cell, type_into_cell  # noqa: E402
from serve import Handler, server  # noqa: E402

from ledger.build import fresh_solutions  # noqa: E402

NOTEBOOK, LESSON = "practice/ch01_keys/keys.ipynb", "notebooks/ch01_keys/keys.ipynb"
EXERCISE = "up_project_keys"
TARGETS = {"cold_first_cell_s": 7, "cold_first_graded_s": 9, "warm_first_cell_s": 5, "gzip_mb": 30, "slider_ms": 300}
#: The steps of the build that a site is left without, by the name of the last one that it has.
STEPS = {
    "as fetched": ("trimmed", "precompiled", "early", "mended"),
    "trimmed": ("precompiled", "early", "mended"),
    "compiled to bytecode": ("early", "mended"),
    "the drive asked last for modules": ("mended",),
}
LAST_STEP = "the notebook opened at once"
COMPRESSED = (".whl", ".zip", ".woff", ".woff2", ".png", ".gz", ".ico")
FLAGS = ["--no-sandbox", "--no-first-run", "--disable-quic", "--disable-background-networking", "--disable-sync"]

#: Starts a watch that stops, in `took`, when the page shows another picture.
WATCH = """() => {
    const picture = () => [...document.querySelectorAll(
        '.jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea .widget-image')].at(-1);
    const before = picture().src, start = performance.now();
    const look = () => {
        if (picture().src !== before && picture().complete) window.took = performance.now() - start;
        else requestAnimationFrame(look);
    };
    window.took = 0;
    look();
}"""
CODE = "() => jupyterapp.shell.currentWidget.content.widgets.findIndex(cell => cell.model.type === 'code')"


def visit(page, address: str, answer: str) -> dict[str, float]:
    """Open the notebook, run its first cell, then answer and check an exercise; seconds from the navigation."""
    start = time.perf_counter()
    open_notebook(page, address, NOTEBOOK)
    ready = time.perf_counter() - start
    run_cell(page, page.evaluate(CODE))
    first = time.perf_counter() - start
    type_into_cell(page, EXERCISE, answer)
    run_cell(page, EXERCISE)
    if not run_cell(page, f"{EXERCISE}-check"):
        sys.exit("the check said nothing")
    return {"page_s": ready, "first_cell_s": first, "first_graded_s": time.perf_counter() - start}


def variant(place: Path, without: tuple[str, ...]) -> Path:
    """JupyterLite in ``place``, built offline without some steps."""
    files, python = pyodide.Files(build.CACHE / "files"), place / "python"
    pyodide.assemble(python, files, **{step: step not in without for step in ("trimmed", "precompiled")})
    others = build.other_wheels(files)
    if "early" in without:
        others = [*(wheel for wheel in others if not wheel.name.startswith("piplite-")), build.kernel_wheels()[0]]
    core = files.core()["pyodide-lock.json"]
    build.lay_out(place, build.contents(), [build.course_wheel(files), *others], python, core)
    build.jupyter_lite(place)
    if "mended" not in without:
        build.mend(place / "site")
    (place / "site").rename(place / "lite")
    return place


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a site while it is served."""
    with server(folder, under="/a-course/") as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}/a-course/"
        serving.shutdown()


@contextmanager
def fresh_browser(playwright: Playwright) -> Iterator[BrowserContext]:
    """A new Chromium with an empty profile."""
    with tempfile.TemporaryDirectory() as profile:
        browser = playwright.chromium.launch_persistent_context(
            profile, executable_path=chromium.find(), args=FLAGS, viewport={"width": 1280, "height": 1000}
        )
        yield browser
        browser.close()


def slider_steps(page, address: str, steps: int) -> list[float]:
    """Milliseconds of each step of the last slider of a lesson's explorer."""
    open_notebook(page, address, LESSON)
    last = page.evaluate(
        "() => jupyterapp.shell.currentWidget.content.widgets.findLastIndex(cell => cell.model.type === 'code')"
    )
    run_cell(page, last)
    slider = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea .noUi-handle").last
    slider.wait_for()
    least = slider.get_attribute("aria-valuenow") == slider.get_attribute("aria-valuemin")
    keys = ("ArrowRight", "ArrowLeft") if least else ("ArrowLeft", "ArrowRight")
    taken = []
    for step in range(steps):
        page.evaluate(WATCH)
        slider.press(keys[step % 2])
        page.wait_for_function("() => window.took")
        taken.append(page.evaluate("() => window.took"))
    return taken


def transferred(paths: set[str], folder: Path) -> tuple[float, float]:
    """Megabytes of the files asked for: as they are, and with gzip where a host compresses."""
    raw = packed = 0
    for path in paths:
        file = folder / path
        if file.is_file():
            data = file.read_bytes()
            raw += len(data)
            packed += len(data) if file.suffix in COMPRESSED else len(gzip.compress(data, 6))
    return raw / 1e6, packed / 1e6


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="cold profiles")
    rounds = parser.parse_args().rounds
    dist = ROOT / "dist"
    if not (dist / "lite" / "static" / "pyodide").is_dir():
        sys.exit("There is no offline site in dist/: make site OFFLINE=1")
    cells = [cell for notebook in fresh_solutions(ROOT).values() for cell in notebook["cells"]]
    answer = "".join(next(cell["source"] for cell in cells if cell["id"] == EXERCISE))
    asked: set[str] = set()
    load = os.getloadavg()[0]

    def log(handler, code="-", size="-"):
        asked.add(handler.path.split("?")[0].removeprefix(handler.under))

    Handler.log_request = log
    Handler.cache_control = "max-age=600"  # as pages hosts have it
    cold, warm, steps = [], [], []
    starts: dict[str, float] = {}
    with sync_playwright() as playwright:
        with served(dist) as address:
            for number in range(rounds):
                with fresh_browser(playwright) as browser:
                    asked.clear()
                    for visits in (cold, warm):
                        page = browser.new_page()
                        visits.append(visit(page, address, answer))
                        page.close()
                        if visits is cold:
                            sizes = transferred(asked, dist)
                    if number == rounds - 1:
                        steps = slider_steps(browser.new_page(), address, 20)
        for name, without in STEPS.items():
            taken = []
            with tempfile.TemporaryDirectory() as place, served(variant(Path(place), without)) as address:
                for _ in range(min(rounds, 3)):
                    with fresh_browser(playwright) as browser:
                        taken.append(visit(browser.new_page(), address, answer)["first_cell_s"])
            starts[name] = round(statistics.median(taken), 2)

    built = json.loads((ROOT / ".cache/site/python/sizes.json").read_text())
    figures = {"rounds": rounds, "load_before": round(load, 1)}
    for name, visits in (("cold", cold), ("warm", warm)):
        for key in visits[0]:
            figures[f"{name}_{key}"] = round(statistics.median(v[key] for v in visits), 2)
    starts[LAST_STEP] = figures["cold_first_cell_s"]
    figures |= {
        "slider_ms": round(statistics.median(steps)),
        "raw_mb": round(sizes[0], 1),
        "gzip_mb": round(sizes[1], 1),
        "python_mb_after_each_build_step": {step: round(size / 1e6, 2) for step, size in built.items()},
        "cold_first_cell_s_by_build_step": starts,
        "targets": TARGETS,
    }
    figures["missed"] = [name for name, most in TARGETS.items() if figures[name] > most]
    for key, value in figures.items():
        print(f"{key:<24} {value}")
    print(f"recorded in {record('site', figures).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
