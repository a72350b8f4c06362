"""Refusals that several modules share: each names the argument and says what it must be."""

from numbers import Integral

import numpy as np


def check_counts(least: int = 0, **counts: int) -> None:
    """A ValueError for a count that is no whole number or below ``least``."""
    for name, count in counts.items():
        if not isinstance(count, Integral) or count < least:
            raise ValueError(f"{name} is {count}; it must be a whole number, {least} or more")


def check_floating(**arrays: np.ndarray) -> None:
    """A ValueError for an array of another kind than floating, whose dtype could not hold the result."""
    for name, array in arrays.items():
        if np.asarray(array).dtype.kind != "f":
            raise ValueError(f"{name} is of {np.asarray(array).dtype}; make it floating, such as float32")
