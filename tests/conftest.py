"""What every test needs: the course's root, and the order in which several processes take up the tests' files."""

from pathlib import Path

import pytest

#: The files that take longest, so that none of them comes last; where two processes share the tests, the first builds
#: the site while the second runs lessons.
FIRST = ("test_book.py", "test_lessons.py", "test_gate.py", "test_lite.py", "test_lab.py", "test_persistence.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort ``items`` by their files: ``FIRST``, then the others as they come."""
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))


@pytest.fixture(scope="session")
def root() -> Path:
    """The course's folder."""
    return Path(__file__).resolve().parent.parent
