"""How long the judge takes, beside nbgrader's autograder on the same notebooks: ``python bench/judge.py``.

* The first verdict and the end of ``python judge.py --from solutions``, the memory of its process at the height, the
  ladder when nothing changed, and one ``check`` of each exercise.
* From a save to the verdict under ``judge.py watch``.
* nbgrader's own autograder and otter-grader, which execute each notebook in a kernel, on the same solutions in the same
  run: what one notebook more costs them in one batch, and ``judge.py class``.
* With ``--students N`` a class of N who each hand in eight notebooks.

What is compared is measured in turn, in one run, and the ratio of the medians is what counts. The eight notebooks are
the first that need NumPy alone: otter-grader's environment has no torch. One notebook of Triton kernels, which run in
Triton's interpreter, is measured by itself.
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
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import beside_otter
from nbgrader.api import Gradebook
from record import ROOT, record

from ledger import check, exercises
from ledger.judge.classroom.pool import processors
from ledger.judge.collect import collect, notebooks_under
from ledger.judge.session import what_lacks

#: What the figures are held to: a figure's name, the most or the least that it may be, and how it reads.
TARGETS = (
    ("judge_all_s", "most", 4, "the whole course"),
    ("ladder_unchanged_s", "most", 0.3, "the ladder with nothing changed"),
    ("save_to_verdict_s", "most", 0.3, "from a save to the verdict"),
    ("class_2400_notebooks_s", "most", 180, "2,400 notebooks"),
    ("autograde_over_class", "least", 20, "nbgrader's time for a notebook more, over ours"),
)

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
    folder.mkdir()
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


def class_seconds(submitted: Path, out: Path, *options: str) -> float:
    """Seconds of ``judge.py class`` from nothing."""
    start = time.perf_counter()
    command = [sys.executable, "judge.py", "class", str(submitted), "--out", str(out), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"judge.py class failed:\n{done.stderr[-2000:]}")
    students, _, passed, _, answers, *_ = done.stdout.split()
    if passed != answers:
        sys.exit(f"judge.py class of {students} let {passed} of {answers} solutions pass")
    return time.perf_counter() - start


def autograde_course(folder: Path, notebooks: list[Path], students: int) -> Path:
    """One assignment of ``notebooks``, and students who hand in the solutions."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nbgrader_config.py").write_text(CONFIG)
    handed_in = [folder / "submitted" / f"student{number:04}" / "course" for number in range(students)]
    for place in (folder / "source" / "course", *handed_in):
        place.mkdir(parents=True)
        for notebook in notebooks:
            shutil.copy(notebook, place)
    run_nbgrader(folder, "generate_assignment", "course")
    return folder


def run_nbgrader(folder: Path, *arguments: str) -> float:
    """Seconds of one nbgrader command; it calls other tools of its environment by name."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "nbgrader", *arguments]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"nbgrader {arguments[0]} failed:\n{done.stderr[-2000:]}")
    return time.perf_counter() - start


def insist_on_full_points(folder: Path) -> None:
    """End the benchmark where nbgrader did not give every point to every student."""
    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}", "bench") as gradebook:
        for submission in gradebook.assignment_submissions("course"):
            if submission.score != submission.max_score:
                sys.exit(f"nbgrader gives {submission.score} of {submission.max_score} points to the solutions")


def check_seconds(repeat: int) -> dict[str, float]:
    """Median seconds of one ``check`` of each exercise's reference that this machine can run, in this process; one that
    needs more than NumPy is checked once."""
    notebooks, _ = notebooks_under(ROOT / "solutions")
    medians = {}
    for id, exercise in exercises.registry().items():
        if what_lacks(exercise):
            continue
        space: dict = {}
        for cell in collect(exercise, notebooks, []).cells:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(cell.source, space)
        times = []
        for _ in range(1 if exercise.needs else repeat):
            start = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()):
                check(id, space[id])
            times.append(time.perf_counter() - start)
        medians[id] = statistics.median(times)
    return medians


def needs_numpy_alone(notebook: Path) -> bool:
    """Whether every exercise of a notebook runs without torch and Triton."""
    text = notebook.read_text()
    return not any(exercise.needs and f'"{id}"' in text for id, exercise in exercises.registry().items())


@contextlib.contextmanager
def part(name: str, took: dict[str, float]) -> Iterator[None]:
    """Say what is measured now, and keep in ``took`` how long that takes."""
    start = time.perf_counter()
    print(f"{name} …", end=" ", flush=True)
    yield
    print(f"{time.perf_counter() - start:.1f} s", flush=True)
    took[name] = round(took.get(name, 0) + time.perf_counter() - start, 1)


def verdicts(figures: dict) -> dict[str, str]:
    """Each target with what was measured, and whether it is met."""
    said = {}
    for name, kind, limit, what in TARGETS:
        if name in figures:
            met = figures[name] <= limit if kind == "most" else figures[name] >= limit
            said[what] = f"{figures[name]} ({'at most' if kind == 'most' else 'at least'} {limit}): "
            said[what] += "met" if met else "missed"
    return said


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the judge and the autograders in turn")
    parser.add_argument("--students", type=int, default=0, help="grade a class of so many as well")
    options = parser.parse_args()
    every = sorted((ROOT / "solutions").rglob("*.ipynb"))
    eight = [notebook for notebook in every if needs_numpy_alone(notebook)][:8]
    kernels = [notebook for notebook in every if notebook.stem == "triton_kernels"]
    judge, ladder, took, seconds = [], [], {}, defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        with part("preparing the course, two classes and two assignments of nbgrader", took):
            course = solved_course(place / "course")
            subprocess.run([sys.executable, "judge.py"], cwd=course, capture_output=True, env=own(course))
            few, many = class_of(place / "few", 2, eight), class_of(place / "many", 12, eight)
            one, two = (autograde_course(place / f"nbgrader{n}", eight, n) for n in (1, 2))
            judge_run()
        with part("installing otter-grader", took):
            otter, why = beside_otter.installed()
            pairs = beside_otter.prepare(otter, place / "otter", eight) if otter else []
        for turn in range(options.rounds):
            with part("the judge and the ladder", took):
                judge.append(judge_run())
                ladder.append(ladder_seconds(course))
            with part("nbgrader, one student and two", took):
                seconds["nbgrader, one"].append(run_nbgrader(one, "autograde", "course", "--force"))
                seconds["nbgrader, two"].append(run_nbgrader(two, "autograde", "course", "--force"))
            with part("judge.py class, two students and twelve", took):
                seconds["few"].append(class_seconds(few, place / f"few{turn}"))
                seconds["many"].append(class_seconds(many, place / f"many{turn}"))
                seconds["few, alone"].append(class_seconds(few, place / f"few-alone{turn}", "--workers", "1"))
                seconds["many, alone"].append(class_seconds(many, place / f"many-alone{turn}", "--workers", "1"))
            if otter:
                with part("otter-grader", took):
                    seconds["otter"].append(statistics.mean(beside_otter.batch(otter, pairs)))
        insist_on_full_points(two)
        with part("watch", took):
            saves = watch_seconds(course, 10)
        figures = {"rounds": options.rounds, "exercises": len(exercises.ids()), "notebooks": len(every)}
        figures |= {"processes": processors()}
        if not what_lacks(exercises.get("absorb_heads_kernel")):
            with part("a notebook of Triton kernels", took):
                times = [class_seconds(class_of(place / f"kernels{n}", n, kernels), place / f"k{n}") for n in (1, 3)]
            figures["class_kernel_notebook_more_ms"] = round(1000 * (times[1] - times[0]) / 2, 1)
        if options.students:
            with part(f"a class of {options.students}", took):
                whole = class_seconds(class_of(place / "class", options.students, eight), place / "graded")
            handed_in = 8 * options.students
            figures |= {
                "class_notebooks": handed_in,
                "class_s": round(whole, 1),
                "class_2400_notebooks_s": round(whole * 2400 / handed_in, 1),
                "class_2400_is": "measured" if handed_in == 2400 else f"scaled from {handed_in} notebooks",
            }
    with part("a check of each exercise", took):
        checks = check_seconds(5)
    first, whole, memory = (statistics.median(column) for column in zip(*judge, strict=True))
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    nbgrader = (middle["nbgrader, two"] - middle["nbgrader, one"]) / 8
    ours, alone = (middle["many"] - middle["few"]) / 80, (middle["many, alone"] - middle["few, alone"]) / 80
    figures |= {
        "judge_first_verdict_s": round(first, 3),
        "judge_all_s": round(whole, 3),
        "judge_peak_mb": round(memory, 1),
        "ladder_unchanged_s": round(statistics.median(ladder), 3),
        "save_to_verdict_s": round(statistics.median(saves), 3),
        "class_notebook_more_ms": round(1000 * ours, 1),
        "class_in_one_process_notebook_more_ms": round(1000 * alone, 1),
        "autograde_notebook_more_ms": round(1000 * nbgrader, 1),
        "autograde_over_class": round(nbgrader / ours, 1),
        "autograde_over_class_in_one_process": round(nbgrader / alone, 1),
        "otter": f"otter-grader {beside_otter.VERSION}" if otter else f"could not be installed: {why}",
    }
    if otter:
        figures |= {
            "otter_notebook_more_ms": round(1000 * middle["otter"], 1),
            "otter_over_class": round(middle["otter"] / ours, 1),
            "otter_over_class_in_one_process": round(middle["otter"] / alone, 1),
        }
    figures |= {
        "check_ms": {id: round(1000 * seconds, 2) for id, seconds in checks.items()},
        "slowest_check_ms": round(1000 * max(checks.values()), 2),
        "parts_s": took,
        "targets": verdicts(figures),
    }
    for key, value in figures.items():
        if isinstance(value, dict):
            print(key, *(f"  {name}: {said}" for name, said in value.items()), sep="\n")
        else:
            print(f"{key:<40} {value}")
    print(f"recorded in {record('judge', figures).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
