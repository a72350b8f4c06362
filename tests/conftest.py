"""What every test needs: the course's root."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def root() -> Path:
    """The course's folder."""
    return Path(__file__).resolve().parent.parent
