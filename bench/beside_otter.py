"""otter-grader on the same notebooks: what one notebook more costs it in one batch, without containers.

It is installed into a virtual environment of its own in the system's temporary folder, and stays there. An answer's
test file runs the cases that the judge runs, and compares as the judge does; the check cells are taken out of the
notebooks, so that the cases run once. otter executes a notebook in a kernel, as nbgrader does.
"""

import json
import os
import subprocess
import sys
import tempfile
import venv
from importlib.metadata import version
from pathlib import Path

from record import ROOT

VERSION = "7.0.0"

#: The test file of one answer, in otter's own format.
TEST = """
from otter.test_files import test_case

OK_FORMAT = False
name = "{id}"
points = {points}


@test_case()
def test_answer({id}):
    from ledger.judge.notebook import find, run_here

    result = run_here(find("{id}"), {id}, 1)
    assert result.verdict == "passed", result.message
"""

#: The autograder of each notebook's tests.
GENERATE = """
import json, sys
from pathlib import Path
from otter.generate import main

for _, autograder in json.load(sys.stdin):
    tests = Path(autograder).parent / "tests"
    main(tests_dir=str(tests), output_path=autograder, no_environment=True, no_requirements=True)
"""

#: One batch: each notebook with its autograder, and the seconds of each; the first is graded once before, to warm up.
BATCH = """
import json, sys, time
from otter.api import grade_submission

pairs, seconds = json.load(sys.stdin), []
for notebook, autograder in [pairs[0], *pairs]:
    start = time.perf_counter()
    result = grade_submission(notebook, autograder, quiet=True)
    seconds.append(time.perf_counter() - start)
    if result.total != result.possible or not result.possible:
        sys.exit(f"otter gives {notebook} {result.total} of {result.possible} points: {result.summary()[-500:]}")
print(json.dumps(seconds[1:]))
"""


def installed() -> tuple[Path | None, str]:
    """The Python that has otter-grader, with the kernel and the NumPy of this one; or None and why it has not."""
    place = Path(tempfile.gettempdir()) / f"attention-ledger-otter-{VERSION}"
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    ready = place / "ready"
    if not ready.exists():
        try:
            venv.create(place, with_pip=True, clear=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return None, f"no virtual environment in {place.parent}: {error}"
        pinned = [f"otter-grader=={VERSION}", *(f"{name}=={version(name)}" for name in ("ipykernel", "numpy"))]
        pip = subprocess.run([python, "-m", "pip", "install", "--quiet", *pinned], capture_output=True, text=True)
        if pip.returncode:
            errors = [line for line in pip.stderr.splitlines() if line.startswith("ERROR")]
            return None, (errors or ["pip failed"])[-1]
        ready.touch()
    return python, ""


def prepare(python: Path, folder: Path, notebooks: list[Path]) -> list[tuple[str, str]]:
    """Each notebook without its check cells, and the autograder that otter makes of its answers' tests."""
    pairs = []
    for notebook in notebooks:
        place = folder / notebook.stem
        (place / "tests").mkdir(parents=True)
        data = json.loads(notebook.read_text())
        graded = [cell for cell in data["cells"] if cell["metadata"].get("nbgrader", {}).get("grade")]
        data["cells"] = [cell for cell in data["cells"] if cell not in graded]
        (place / notebook.name).write_text(json.dumps(data))
        for cell in graded:
            role = cell["metadata"]["nbgrader"]
            id = role["grade_id"].removesuffix("_check")
            (place / "tests" / f"{id}.py").write_text(TEST.format(id=id, points=role["points"]))
        pairs.append((str(place / notebook.name), str(place / "autograder.zip")))
    run(python, ["-c", GENERATE], input=json.dumps(pairs))
    return pairs


def batch(python: Path, pairs: list[tuple[str, str]]) -> list[float]:
    """Seconds of each notebook, graded one after the other by one process that is warm."""
    return json.loads(run(python, ["-c", BATCH], input=json.dumps(pairs)).splitlines()[-1])


def run(python: Path, arguments: list[str], **options: object) -> str:
    """What otter's Python prints; its kernels find the course's library."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([python, *arguments], capture_output=True, text=True, env=environment, **options)
    if done.returncode:
        sys.exit(f"otter-grader failed:\n{done.stderr[-2000:]}")
    return done.stdout
