"""Run kernels that passed in Triton's interpreter on this machine's GPU as well, where that is asked for.

A compiler needs programs to start, files to write and a driver to talk to, so such a run is not jailed: the answer is
in a process of its own and no more. It therefore adds to a run of the judge and never stands in for one. The values are
held against the same oracle on the same inputs; what a kernel loads cannot be seen on a GPU and is not compared.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace

from ledger.exercises import Exercise, Mistake
from ledger.judge.collect import Submission
from ledger.judge.launch import Servers
from ledger.judge.outcome import Job, Run
from ledger.judge.run import Runner
from ledger.judge.session import grade_one, installed
from ledger.judge.verdicts import ExerciseResult

ISOLATION = "a process of its own, no jail"


def find_gpu() -> str:
    """The name of the GPU that torch finds; nothing where it finds none, or where torch or Triton is missing."""
    if not (installed("torch") and installed("triton")):
        return ""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def is_kernel(exercise: Exercise) -> bool:
    """Whether the answers of an exercise are Triton kernels."""
    return exercise.launcher.startswith("kernels.")


class Cuda(Runner):
    """Runs kernels on the GPU called ``gpu``, with time for a compiler in every case."""

    def __init__(self, gpu: str):
        self.gpu = gpu
        self._cache = tempfile.TemporaryDirectory(prefix="ledger-triton-")
        super().__init__(servers=Servers("cold", layers=(), variables=variables(self._cache.name)))

    def run(self, job: Job) -> Run:
        """As ``Runner.run``, more patiently."""
        return super().run(replace(job, case_seconds=60, load_seconds=60, total_seconds=600))

    def close(self) -> None:
        """End every process, and remove what was compiled."""
        super().close()
        self._cache.cleanup()

    def also(self, answer: Submission, result: ExerciseResult, seed: int) -> ExerciseResult:
        """``result`` with the cases of a run on the GPU behind its own, where it is a pass of a kernel."""
        if not is_kernel(answer.exercise) or result.verdict in ("todo", "missing", "skipped"):
            return result
        if result.verdict != "passed":
            return replace(result, notes=[*result.notes, "not run on CUDA: what fails in the interpreter stays there"])
        there = grade_one(replace(answer, exercise=of_values(answer.exercise)), self, seed)
        passed = sum(case.verdict == "passed" for case in there.cases)
        cases = [
            replace(case, name=f"{case.name}, on CUDA", rows=(*case.rows, ("ran", f"compiled, on {self.gpu}")))
            for case in there.cases
        ]
        return replace(
            there,
            points=result.points if there.verdict == "passed" else (result.points + there.points) / 2,
            seconds=result.seconds + there.seconds,
            cases=[*result.cases, *cases],
            notes=[*there.notes, f"on {self.gpu}, in {ISOLATION}: {passed} of {len(cases)} cases pass"],
        )


def variables(cache: str) -> dict[str, str]:
    """What the environment of a process on the GPU has beside or instead of a jailed one's."""
    kept = {name: os.environ[name] for name in ("PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES") if name in os.environ}
    return kept | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": cache}


def of_values(exercise: Exercise) -> Exercise:
    """An exercise in Triton without the last part of its results, which counts what was loaded."""

    def without_count(value: Callable[..., tuple]) -> Callable[..., tuple]:
        return lambda *args: value(*args)[:-1]

    def without_counts(mistake: Mistake) -> Mistake:
        return replace(mistake, value=without_count(mistake.value), also=tuple(map(without_count, mistake.also)))

    return replace(
        exercise,
        launcher=exercise.launcher.replace("kernels.", "cuda."),
        oracle=without_count(exercise.oracle),
        returns=exercise.returns[:-1],
        mistakes=tuple(map(without_counts, exercise.mistakes)),
    )
