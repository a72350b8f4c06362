"""Run every hostile or broken submission of this folder and say what verdict it gets.

Each file here defines, or fails to define, ``project(x, w)``, which should return ``x @ w``. A file in a folder answers
the exercise that the folder is named after; of those in ``RIGHT`` a right answer stands in a cell above it. A file's
name begins with the verdict that it must get; ``ALSO`` names the others that are right too. ``@CANARY@`` in a file
stands for a planted folder, ``@HOME@`` for the home folder, ``@MARK@`` for a word that no other process and no file
has, ``@COURSE@`` for the course's package, and ``FILLERS`` for what no text file can hold. Every file is bounded, so
that a jail that fails does no lasting harm.

As a program, ``python suite.py MODE FOLDER MARK [NAME ...]`` prints as JSON the verdict of each file (all, or those of
the names), the verdict of the control right after it, and this process's largest size in MB.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

import ledger
from ledger import exercises
from ledger.exercises import Exercise
from ledger.exercises.absorb_heads_kernel import KERNEL
from ledger.exercises.dispatch_and_combine import ANSWER
from ledger.judge.collect import Submission
from ledger.judge.grade import fresh_seed
from ledger.judge.outcome import Call, Cell, Job, Outcome, Run
from ledger.judge.run import Runner
from ledger.judge.session import grade_one

HERE = Path(__file__).parent
FILES = sorted(path for path in HERE.rglob("*_*") if path.suffix in (".py", ".txt"))
#: Other verdicts that are right, by file: what comes first depends on the machine or the mode.
ALSO = {
    "crash_forged_text": {"error", "wrong"},
    "wrong_fake_modules": {"error"},
    "wrong_huge_result": {"memory"},
    "error_huge_message": {"memory"},
    "error_patched_builtins": {"crash"},
    "wrong_alarm_raises": {"error", "crash"},
}
DIMS = ((4, 6, 9), (3, 5, 5), (1, 1, 1), (5, 7, 3), (8, 32, 64))
#: The cell above an answer to an exercise.
RIGHT = {
    "dispatch_and_combine": f"import torch\n{ANSWER}",
    "absorb_heads_kernel": f"import triton\nimport triton.language as tl\n@triton.jit\n{KERNEL}",
}
FILLERS = {
    "NUL": "\0",
    "SURROGATE": "\ud800",
    "DEEP": "not " * 5_000,
    "CHAIN": "1 + " * 20_000,
    "IMPORTS": "import " * 200_000,
    "LINES": "number = 1\n" * 1_000_000,
    "BLANK": "\n" * 1_000_000,
}


def name_of(path: Path) -> str:
    """A file's name without its ending, after that of its folder."""
    return path.relative_to(HERE).with_suffix("").as_posix()


def exercise_of(path: Path) -> Exercise | None:
    """The exercise that a file answers; None for ``project``."""
    return None if path.parent == HERE else exercises.get(path.parent.name)


def allowed(path: Path) -> set[str]:
    """The verdicts that ``path`` may get."""
    verdict = path.stem.split("_")[0]
    return {"passed" if verdict == "ok" else verdict} | ALSO.get(path.stem, set())


def source_of(path: Path, canary: Path, mark: str) -> str:
    """The text of a file with everything in its place."""
    source = path.read_text()
    places = {"CANARY": canary, "HOME": Path.home(), "MARK": mark, "COURSE": Path(ledger.__file__).parent}
    for name, value in (places | FILLERS).items():
        source = source.replace(f"@{name}@", str(value))
    return source


def job(path: Path, canary: Path, mark: str, needs: tuple[str, ...] = ()) -> Job:
    """The job that runs ``path`` on fresh inputs; the first case is counted."""
    rng = np.random.default_rng()
    calls = tuple(
        Call({"x": rng.standard_normal((rows, inner)), "w": rng.standard_normal((inner, cols))}, counted=number == 0)
        for number, (rows, inner, cols) in enumerate(DIMS)
    )
    # A low limit only where reaching it is the point.
    limits = {"timeout": {"case_seconds": 0.5, "load_seconds": 0.5}, "memory": {"memory_mb": 128}}
    limit = limits.get(path.stem.split("_")[0], {})
    return Job("project", (Cell(path.name, source_of(path, canary, mark)),), calls, needs=needs, **limit)


def submission(path: Path, canary: Path, mark: str) -> Submission:
    """``path`` as the answer to its exercise."""
    exercise = exercise_of(path)
    if path.stem.startswith("timeout"):
        exercise = replace(exercise, case_seconds=1.0)
    above = [Cell("the cell above", RIGHT[exercise.id])] if exercise.id in RIGHT else []
    return Submission(exercise, (*above, Cell(path.name, source_of(path, canary, mark))))


def verdict(asked: Job, run: Run) -> str:
    """The verdict of a run: that of its first case that did not pass."""
    each = [case_verdict(call, outcome) for call, outcome in zip(asked.calls, run.outcomes, strict=True)]
    return next((found for found in each if found != "passed"), "passed")


def case_verdict(call: Call, outcome: Outcome) -> str:
    """The verdict of one case."""
    if outcome.kind == "raised":
        return "todo" if outcome.error == "NotImplementedError" else "error"
    if outcome.kind != "returned":
        return outcome.kind
    found, want = outcome.value, call.args["x"] @ call.args["w"]
    plain = type(found) is np.ndarray and not (outcome.subclass or outcome.changed or outcome.shares)
    right = plain and found.dtype == want.dtype and found.shape == want.shape and np.allclose(found, want)
    return "passed" if right else "wrong"


def judged(runner: Runner, path: Path, canary: Path, mark: str) -> tuple[str, list[str]]:
    """The verdict of a file, and why."""
    if exercise_of(path):
        result = grade_one(submission(path, canary, mark), runner, fresh_seed())
        return result.verdict, [f"{case.verdict} {case.message}" for case in result.cases]
    asked = job(path, canary, mark)
    run = runner.run(asked)
    return verdict(asked, run), [f"{outcome.kind} {outcome.error} {outcome.detail}" for outcome in run.outcomes]


def main(mode: str, folder: str, mark: str, *names: str) -> None:
    """Run the files with one runner, the control after each in the same server, and print what came of it."""
    control = HERE / "ok_plain.py"
    verdicts, why, later = {}, {}, {}
    # The folder stands in the command of every process that the runner starts, so that a survivor can be told.
    with Runner(mode=mode, extra_hidden=[folder]) as runner:
        for path in FILES:
            name = name_of(path)
            if names and name not in names:
                continue
            verdicts[name], why[name] = judged(runner, path, Path(folder), mark)
            exercise = exercise_of(path)
            again = job(control, Path(folder), mark, exercise.needs if exercise and mode == "fork" else ())
            later[name] = verdict(again, runner.run(again))
    # The high-water mark of this program: ru_maxrss also holds that of the process that started it.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak_mb = int(status["VmHWM"].split()[0]) >> 10
    print(json.dumps({"verdicts": verdicts, "why": why, "later": later, "peak_mb": peak_mb}))


if __name__ == "__main__":
    main(*sys.argv[1:])
