"""How long the judge takes, beside nbgrader's autograder on the same notebooks: ``python bench/judge.py``.

* The first verdict and the end of ``python judge.py --from solutions``, the memory of its process at the height, the
  ladder when nothing changed, and one ``check`` of each exercise.
* From a save to the verdict under ``judge.py watch``.
* nbgrader's own autograder, which executes each notebook in a kernel, on the same solutions in the same run: all
  notebooks as one assignment, and what one notebook more costs it and ``judge.py class``.
* With ``--students N`` a class of N who each hand in the first eight notebooks.

What is compared is measured in turn, in one run, and the ratio of the medians is what counts.
"""

import argparse
import contextlib
import io
import json
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


def solved_course(folder: Path) -> Path:
    """A copy of the course in which every answer is filled in."""
    for name in ("judge.py", "src", "kernels", "course", "solutions"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, folder / name)
    shutil.copytree(ROOT / "solutions", folder / "practice")
    return folder


def ladder_seconds(course: Path) -> float:
    """Seconds of ``judge.py`` when every answer has passed before and none changed since."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "judge.py"], cwd=course, capture_output=True, text=True, env=own(course))
    if "nothing had to run" not in done.stdout:
        sys.exit(f"the ladder ran something:\n{done.stdout[-500:]}{done.stderr[-500:]}")
    return time.perf_counter() - start


def own(course: Path) -> dict[str, str]:
    """An environment in which a copy of the course finds its own library."""
    return {**os.environ, "PYTHONPATH": str(course / "src")}


def watch_seconds(course: Path, repeat: int) -> list[float]:
    """Seconds from a save to the verdict, each time for another text of one answer."""
    path = course / "practice" / "ch01_keys" / "keys.ipynb"
    notebook = json.loads(path.read_text())
    cell = next(cell for cell in notebook["cells"] if cell["id"] == "absorb_query")
    times, text = [], "".join(cell["source"])
    command = [sys.executable, "-u", "judge.py", "watch"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=course, env=own(course), **pipes) as judge:
        lines = iter(judge.stdout.readline, "")
        next(line for line in lines if "Watching" in line)
        for number in range(repeat + 1):
            cell["source"] = f"{text}\n# {number}\n"
            data = json.dumps(notebook)
            start = time.perf_counter()
            path.write_text(data)
            next(line for line in lines if "absorb_query" in line)
            times.append(time.perf_counter() - start)
        judge.stdin.write("q\n")
        judge.stdin.flush()
    return times[1:]


def class_of(folder: Path, students: int, notebooks: list[Path]) -> Path:
    """A folder of submissions: each student hands in ``notebooks``, solved, with a remark that no other one has."""
    for number in range(students):
        for notebook in notebooks:
            data = json.loads(notebook.read_text())
            for cell in data["cells"]:
                if cell["cell_type"] == "code":
                    cell["source"] = f"{''.join(cell['source'])}\n# {number}"
            path = folder / "submitted" / f"student{number:04}" / notebook.relative_to(ROOT / "solutions")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(data))
    return folder / "submitted"


def class_seconds(submitted: Path, out: Path) -> float:
    """Seconds of ``judge.py class`` from nothing."""
    start = time.perf_counter()
    command = [sys.executable, "judge.py", "class", str(submitted), "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"judge.py class failed:\n{done.stderr[-2000:]}")
    return time.perf_counter() - start


def autograde_course(folder: Path, notebooks: list[Path]) -> None:
    """One assignment of ``notebooks``, and one student who hands in the solutions."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nbgrader_config.py").write_text(CONFIG)
    for place in (folder / "source" / "course", folder / "submitted" / "student" / "course"):
        place.mkdir(parents=True)
        for notebook in notebooks:
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
    parser.add_argument("--students", type=int, default=0, help="grade a class of so many as well")
    options = parser.parse_args()
    notebooks = sorted((ROOT / "solutions").rglob("*.ipynb"))
    first_eight = notebooks[:8]
    judge, autograde, ladder, one, eight, some, more = [], [], [], [], [], [], []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        autograde_course(place / "all", notebooks)
        autograde_course(place / "one", notebooks[:1])
        autograde_course(place / "eight", first_eight)
        course = solved_course(place / "course")
        subprocess.run([sys.executable, "judge.py"], cwd=course, capture_output=True, env=own(course))
        few, many = class_of(place / "few", 2, first_eight), class_of(place / "many", 12, first_eight)
        judge_run()
        for round in range(options.rounds):
            judge.append(judge_run())
            ladder.append(ladder_seconds(course))
            autograde.append(run_nbgrader(place / "all", "autograde", "course", "--force"))
            one.append(run_nbgrader(place / "one", "autograde", "course", "--force"))
            eight.append(run_nbgrader(place / "eight", "autograde", "course", "--force"))
            some.append(class_seconds(few, place / f"some{round}"))
            more.append(class_seconds(many, place / f"more{round}"))
        saves = watch_seconds(course, 10)
        class_figures = {}
        if options.students:
            seconds = class_seconds(class_of(place / "class", options.students, first_eight), place / "graded")
            class_figures = {"class_notebooks": 8 * options.students, "class_s": round(seconds, 1)}
    first, whole, memory = (statistics.median(column) for column in zip(*judge, strict=True))
    theirs = (statistics.median(eight) - statistics.median(one)) / 7
    ours = (statistics.median(more) - statistics.median(some)) / (10 * 8)
    checks = check_seconds(20)
    figures = {
        "rounds": options.rounds,
        "exercises": len(checks),
        "notebooks": len(notebooks),
        "judge_first_verdict_s": round(first, 3),
        "judge_all_s": round(whole, 3),
        "judge_peak_mb": round(memory, 1),
        "ladder_unchanged_s": round(statistics.median(ladder), 3),
        "save_to_verdict_s": round(statistics.median(saves), 3),
        "autograde_s": round(statistics.median(autograde), 2),
        "autograde_over_judge": round(statistics.median(autograde) / whole, 1),
        "autograde_notebook_more_ms": round(1000 * theirs, 1),
        "class_notebook_more_ms": round(1000 * ours, 1),
        "autograde_over_class": round(theirs / ours, 1),
        **class_figures,
        "check_ms": {id: round(1000 * seconds, 2) for id, seconds in checks.items()},
        "slowest_check_ms": round(1000 * max(checks.values()), 2),
    }
    for key, value in figures.items():
        print(f"{key:<26} {value}")
    print(f"recorded in {record('judge', figures).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
