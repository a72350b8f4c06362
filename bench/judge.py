"""How long the judge takes, beside nbgrader's autograder on the same notebooks: ``python bench/judge.py``.

Both grade the reference solutions, in turn, in one run; the ratio of the medians is what counts. The autograder gets
all notebooks as one assignment, so that it starts once. What is measured of the judge: the first verdict and the end of
``python judge.py --from solutions``, the memory of its process at the height, and one ``check`` of each exercise.
"""

import argparse
import contextlib
import io
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import ROOT, record

from ledger import check, exercises
from ledger.judge.collect import collect, notebooks_under

CONFIG = """
c = get_config()
c.CourseDirectory.course_id = "bench"
c.ClearSolutions.code_stub = {"python": "raise NotImplementedError()"}
"""


def judge_run() -> tuple[float, float, float]:
    """Seconds to the first verdict and to the end, and the process's memory at its height in MB."""
    start = time.perf_counter()
    command = [sys.executable, "judge.py", "--from", "solutions"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        first = None
        for line in process.stdout:
            if first is None and line.lstrip().startswith(("✓", "✗")):
                first = time.perf_counter() - start
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or first is None:
        sys.exit(f"the judge ended with status {process.returncode}")
    return first, time.perf_counter() - start, usage.ru_maxrss / 1024


def autograde_course(folder: Path) -> None:
    """One assignment of all notebooks, and one student who hands in the solutions."""
    (folder / "nbgrader_config.py").write_text(CONFIG)
    for place in (folder / "source" / "course", folder / "submitted" / "student" / "course"):
        place.mkdir(parents=True)
        for notebook in sorted((ROOT / "solutions").rglob("*.ipynb")):
            shutil.copy(notebook, place)
    run_nbgrader(folder, "generate_assignment", "course")


def run_nbgrader(folder: Path, *arguments: str) -> float:
    """Seconds of one nbgrader command; it calls other tools of its environment by name."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "nbgrader", *arguments]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"nbgrader {arguments[0]} failed:\n{done.stderr[-2000:]}")
    return time.perf_counter() - start


def check_seconds(repeat: int) -> dict[str, float]:
    """Median seconds of one ``check`` of each exercise's reference, in this process."""
    notebooks, _ = notebooks_under(ROOT / "solutions")
    medians = {}
    for id, exercise in exercises.registry().items():
        space: dict = {}
        for cell in collect(exercise, notebooks, []).cells:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(cell.source, space)
        times = []
        for _ in range(repeat):
            start = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()):
                check(id, space[id])
            times.append(time.perf_counter() - start)
        medians[id] = statistics.median(times)
    return medians


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of judge and autograder in turn")
    rounds = parser.parse_args().rounds
    judge, autograde = [], []
    with tempfile.TemporaryDirectory() as name:
        autograde_course(Path(name))
        judge_run()
        for _ in range(rounds):
            judge.append(judge_run())
            autograde.append(run_nbgrader(Path(name), "autograde", "course", "--force"))
    first, whole, memory = (statistics.median(column) for column in zip(*judge, strict=True))
    checks = check_seconds(20)
    figures = {
        "rounds": rounds,
        "exercises": len(checks),
        "judge_first_verdict_s": round(first, 3),
        "judge_all_s": round(whole, 3),
        "judge_peak_mb": round(memory, 1),
        "autograde_s": round(statistics.median(autograde), 2),
        "autograde_over_judge": round(statistics.median(autograde) / whole, 1),
        "check_ms": {id: round(1000 * seconds, 2) for id, seconds in checks.items()},
        "slowest_check_ms": round(1000 * max(checks.values()), 2),
    }
    for key, value in figures.items():
        print(f"{key:<24} {value}")
    print(f"recorded in {record('judge', figures).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
