"""What a test needs to run the answers of an exercise in its own process."""

import pytest

from ledger.exercises import Exercise


def need(exercise: Exercise) -> None:
    """Skip the test where a library of the exercise is missing, or where Triton compiles its kernels."""
    for name in exercise.needs:
        pytest.importorskip(name)
    if exercise.launcher.startswith("kernels."):
        from ledger.kernels.interpret.mode import INTERPRETED

        if not INTERPRETED:
            pytest.skip("what a kernel loads is counted in Triton's interpreter alone: set TRITON_INTERPRET=1")
