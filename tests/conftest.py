"""What every test needs: the course's root, and the order in which several processes take up the tests' files."""

from pathlib import Path

import numpy as np
import pytest

# Its assertions say as much as those of a test.
pytest.register_assert_rewrite("kernel_cases")

#: The files that take longest, so that none of them comes last; one process builds the site while others run notebooks
#: and the gate.
FIRST = ("test_book.py", "test_lessons.py", "test_gate.py", "test_lite.py", "test_lab.py", "test_persistence.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort ``items`` by their files: ``FIRST``, then the others as they come."""
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what passing tests have recorded, such as the share of wrong answers that the cases reject."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")


@pytest.fixture(scope="session")
def root() -> Path:
    """The course's folder."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shots(root):
    """The folder of the screenshots that tests leave to be looked at."""
    folder = root / ".cache" / "shots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def usual_arithmetic():
    """NumPy warns of what overflows, whatever an earlier test of this process has left behind."""
    with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
        yield


@pytest.fixture
def poisoned_memory():
    """torch's fresh memory holds NaN, and the largest integer, for as long as a test runs."""
    import torch

    was_on, only_warned = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.utils.deterministic.fill_uninitialized_memory = filled
    torch.use_deterministic_algorithms(was_on, warn_only=only_warned)
