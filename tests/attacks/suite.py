"""Run every hostile or broken submission of this folder and say what verdict it gets.

Each file defines, or fails to define, ``project(x, w)``, which should return ``x @ w``. A file's name begins with the
verdict that it must get; ``ALSO`` names the others that are right too. ``@CANARY@`` in a file stands for a planted
folder, ``@HOME@`` for the home folder, ``@MARK@`` for a word that no other process and no file has. Every file is
bounded, so that a jail that fails does no lasting harm.

As a program, ``python suite.py MODE FOLDER MARK [NAME ...]`` prints as JSON the verdict of each file (all, or those of
the names), the verdict of the control right after it, and this process's largest size in MB.
"""

import json
import sys
from pathlib import Path

import numpy as np

from ledger.judge.outcome import Call, Cell, Job, Outcome, Run
from ledger.judge.run import Runner

HERE = Path(__file__).parent
FILES = sorted(path for path in HERE.iterdir() if path.suffix in (".py", ".txt") and path.stem != "suite")
#: Other verdicts that are right, by file: what comes first depends on the machine or the mode.
ALSO = {
    "crash_forged_text": {"error", "wrong"},
    "wrong_fake_modules": {"error"},
    "wrong_huge_result": {"memory"},
    "error_huge_message": {"memory"},
}
DIMS = ((4, 6, 9), (3, 5, 5), (1, 1, 1), (5, 7, 3), (8, 32, 64))


def allowed(path: Path) -> set[str]:
    """The verdicts that ``path`` may get."""
    verdict = path.stem.split("_")[0]
    return {"passed" if verdict == "ok" else verdict} | ALSO.get(path.stem, set())


def job(path: Path, canary: Path, mark: str) -> Job:
    """The job that runs ``path`` on fresh inputs; the first case is counted."""
    source = path.read_text()
    for name, value in {"CANARY": canary, "HOME": Path.home(), "MARK": mark}.items():
        source = source.replace(f"@{name}@", str(value))
    rng = np.random.default_rng()
    calls = tuple(
        Call({"x": rng.standard_normal((rows, inner)), "w": rng.standard_normal((inner, cols))}, counted=number == 0)
        for number, (rows, inner, cols) in enumerate(DIMS)
    )
    # A short limit only where reaching it is the point.
    seconds = {"case_seconds": 0.5, "load_seconds": 0.5} if path.stem.startswith("timeout") else {}
    return Job("project", (Cell(path.name, source),), calls, **seconds)


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


def main(mode: str, folder: str, mark: str, *names: str) -> None:
    """Run the files with one runner, the control after each, and print what came of it."""
    control = HERE / "ok_plain.py"
    verdicts, why, later = {}, {}, {}
    # The folder stands in the command of every process that the runner starts, so that a survivor can be told.
    with Runner(mode=mode, extra_hidden=[folder]) as runner:
        for path in FILES:
            if names and path.stem not in names:
                continue
            asked, again = job(path, Path(folder), mark), job(control, Path(folder), mark)
            run = runner.run(asked)
            verdicts[path.name] = verdict(asked, run)
            why[path.name] = [f"{outcome.kind} {outcome.error} {outcome.detail}" for outcome in run.outcomes]
            later[path.name] = verdict(again, runner.run(again))
    # The high-water mark of this program: ru_maxrss also holds that of the process that started it.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak_mb = int(status["VmHWM"].split()[0]) >> 10
    print(json.dumps({"verdicts": verdicts, "why": why, "later": later, "peak_mb": peak_mb}))


if __name__ == "__main__":
    main(*sys.argv[1:])
