"""Grade the same answers over and over, each time on fresh seeds: ``python tests/repeats.py --runs 50``.

The answers are the reference, the stub and the first known wrong answer of every exercise that needs NumPy alone, and
the hostile files for ``project`` that take a moment: none that waits for a limit of time or memory, none of ``SLOW``,
and none that may get one verdict or another. All of them run in the jail, several at a time, with one runner for all
runs, so that what an answer leaves behind would be met by those after it. Exercises in torch and Triton, whose imports
take most of the time, are left out; the cases are the same to the judge.

Each answer must get the verdict that it should, and in every run the same verdict, the same points and the same first
case that fails, for the same reason. The numbers in a reason are drawn anew and not compared. A wrong answer may be
right by chance in a case that is drawn, so of it only the verdict and the known mistake that is named must stay; how
many kept their points and their first failed case as well is counted. The first answer that differs ends it all, and
nothing is recorded. On two cores a run of the whole set takes about five seconds.
"""

import argparse
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from attacks import suite

from ledger import exercises
from ledger.build import fresh_practice, fresh_solutions
from ledger.judge.collect import Submission, collect
from ledger.judge.gate import names_reason, notebooks_of, submission_of
from ledger.judge.run import Runner
from ledger.judge.session import grade_one
from ledger.judge.version import course_digest

ROOT = Path(__file__).resolve().parent.parent
SEED = 1
#: Hostile files that take longer than all cases of most exercises.
SLOW = {
    *("wrong_long_list", "wrong_changing_array", "output_phoenix", "error_huge_message"),
    *("crash_abort", "crash_deep_recursion", "ok_blank_lines", "error_imports"),
}
_NUMBER = re.compile(r"-?\b(?:\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?\b|inf\b|nan\b)")


class Differs(AssertionError):
    """An answer was not given what it was given before, or not what it should be given."""


class Answer(NamedTuple):
    """One answer: its kind and name, the verdicts that are right, and what grades it with a runner on a seed."""

    kind: str
    name: str
    right: set[str]
    grade: Callable[[Runner, int], "Given"]


class Given(NamedTuple):
    """What one grading gives: the verdict, the points, the first case that fails, and why."""

    verdict: str
    points: float
    case: str
    why: str


def without_numbers(text: str) -> str:
    """A reason without what is drawn anew."""
    return _NUMBER.sub("#", text)


def graded(submission: Submission, because: str, runner: Runner, seed: int) -> Given:
    """Grade an answer to an exercise; why it fails is ``because``, where a case says so."""
    result = grade_one(submission, runner, seed)
    why = because if because and names_reason(result, because) else without_numbers(result.message)
    return Given(result.verdict, result.points, result.failure.name if result.failure else "", why)


def attacked(path: Path, folder: Path, runner: Runner, seed: int) -> Given:
    """Run a hostile file, on inputs of its own."""
    verdict, why = suite.judged(runner, path, folder, f"mark_{os.getpid()}")
    return Given(verdict, 0.0, "", without_numbers("; ".join(why)))


def answers_to(ids: Iterable[str]) -> list[Answer]:
    """Reference, stub and first wrong answer of each of the exercises ``ids``."""
    solutions, practice = notebooks_of(fresh_solutions(ROOT)), notebooks_of(fresh_practice(ROOT))
    found = []
    for exercise in map(exercises.get, ids):
        wrong = exercise.mutants[0]
        for kind, right, submission, because in (
            ("reference", "passed", collect(exercise, solutions, []), ""),
            ("stub", "todo", collect(exercise, practice, []), ""),
            ("wrong", wrong.verdict, submission_of(exercise, wrong), wrong.because),
        ):
            found.append(Answer(kind, exercise.id, {right}, partial(graded, submission, because)))
    return found


def hostile(folder: Path) -> list[Answer]:
    """The quick hostile files; ``folder`` is what they are after."""
    (folder / "solutions").mkdir()
    (folder / "solutions" / "project.py").write_text("def project(x, w):\n    return x @ w\n")
    (folder / "keep.txt").write_text("keep")
    paths = [path for path in suite.FILES if not suite.exercise_of(path) and path.stem not in SLOW | suite.ALSO.keys()]
    quick = [path for path in paths if not path.stem.startswith(("timeout", "memory"))]
    return [Answer("hostile", path.stem, suite.allowed(path), partial(attacked, path, folder)) for path in quick]


def once(answers: list[Answer], runner: Runner, seed: int) -> list[Given]:
    """What each answer is given on one seed."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(lambda answer: answer.grade(runner, seed), answers))


def repeat(answers: list[Answer], runner: Runner, seed: int, runs: int) -> set[str]:
    """Grade all answers so often, on seeds made from ``seed``, and name the wrong ones whose points or first failed
    case changed. Raises Differs at the first answer that is not as before."""
    before: list[Given] = []
    changed = set()
    for number in range(runs):
        drawn = random.Random(f"{seed} {number}").randrange(100_000, 1_000_000)
        now = once(answers, runner, drawn)
        before = before or now
        for answer, was, given in zip(answers, before, now, strict=True):
            told = f"run {number}, seed {drawn}: {answer.kind} {answer.name}: {given}"
            if given.verdict not in answer.right:
                raise Differs(f"{told}; right is {' or '.join(sorted(answer.right))}")
            if given != was and answer.kind == "wrong":
                changed.add(answer.name)
                given = given._replace(points=was.points, case=was.case)
            if given != was:
                raise Differs(f"{told}; before it was {was}")
        print(f"run {number}: {len(answers)} answers, all as they should be", flush=True)
    return changed


def main() -> None:
    """Repeat and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "bench"))
    from record import record

    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Runner(extra_hidden=[folder]) as runner:
        ids = [id for id, exercise in exercises.registry().items() if not exercise.needs]
        answers = answers_to(ids) + hostile(Path(folder))
        changed = repeat(answers, runner, options.seed, options.runs)
    kinds = Counter(answer.kind for answer in answers)
    figures = {"seed": options.seed, "runs": options.runs, "judge": course_digest(), "answers": dict(kinds)}
    figures |= {
        "graded": options.runs * len(answers),
        "wrong_with_other_points_or_first_case": sorted(changed),
        "seconds": round(time.monotonic() - start, 1),
    }
    print(record("repeats", figures))


if __name__ == "__main__":
    main()
