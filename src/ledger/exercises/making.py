"""Inputs that several exercises share: random arrays, and the small example that the lessons work by hand."""

import __future__

import linecache
import re
from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np

from ledger.exercises.base import Mistake

#: The worked example: one query, one head's weight (latent 3, nope 2) and three cached latents.
TOY_Q_NOPE = ((1, 0),)
TOY_W_K = ((1, 0), (0, 2), (1, 1))
TOY_W_V = ((1, 0), (0, 1), (0, 1))
TOY_LATENTS = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
#: A second head's key matrix, (nope 2, latent 3).
TOY_HEAD_1 = ((0, 1, 2), (1, 0, 1))

_HUGE = 2.0**40


def normal(rng: np.random.Generator, dtype: np.dtype, *shape: int) -> np.ndarray:
    """Standard normal values."""
    return rng.standard_normal(shape).astype(dtype, copy=False)


def whole(rng: np.random.Generator, dtype: np.dtype, *shape: int) -> np.ndarray:
    """Whole numbers from -4 to 4 without 0, so that sums of products are exact and easy to follow by hand."""
    return (rng.integers(1, 5, shape) * rng.choice([-1, 1], shape)).astype(dtype)


def cancel(left: np.ndarray, right: np.ndarray, axis: int) -> None:
    """Put a huge number and its negative into ``left``, for ``right`` to cancel; both are changed in place.

    The last axis of ``left`` meets ``axis`` of ``right`` in a sum of products. Afterwards feature 0 of ``left`` is
    2^40 + 1, feature 1 is 2 - 2^40, and ``right`` is alike in both. With whole numbers float64 leaves exactly three
    times feature 0 of ``right``; float32 cannot hold the 1 and the 2, and loses it. Errors of that kind drown in the
    tolerance on normal values.
    """
    left[..., 0], left[..., 1] = _HUGE + 1, 2 - _HUGE
    features = np.moveaxis(right, axis, 0)
    features[1] = features[0]


def theta_drawn(rng: np.random.Generator) -> float:
    """A base of rotary angles between 1,000 and 10 million."""
    return float(10 ** rng.uniform(3, 7))


def drawn(rng: np.random.Generator, **ranges: tuple[int, int]) -> dict[str, int]:
    """One size from each half-open range."""
    return {name: int(rng.integers(*ends)) for name, ends in ranges.items()}


class Rewritten:
    """A function that is compiled when something of it is first asked for: most runs of the judge need no wrong answer.

    Its name is known before, and everything else is the function's own. ``file`` is where tools find its source.
    """

    def __init__(self, source: str, name: str, file: str):
        self.source, self.__name__, self.file = source, name, file

    @cached_property
    def __wrapped__(self) -> Callable:
        """The function; it finds ``np``."""
        linecache.cache[self.file] = (len(self.source), None, self.source.splitlines(keepends=True), self.file)
        code = compile(self.source, self.file, "exec", __future__.annotations.compiler_flag, dont_inherit=True)
        namespace = {"__name__": __name__, "np": np}
        exec(code, namespace)
        return namespace[self.__name__]

    def __call__(self, *args, **kwargs):
        return self.__wrapped__(*args, **kwargs)

    def __getattr__(self, name: str):
        if "source" not in self.__dict__:  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)


def rewritten(source: str, name: str, changes: Mapping[str, str]) -> Rewritten:
    """The function that ``source`` defines, called ``name`` and with each text of ``changes``, which must stand in it
    once, replaced; names in annotations may be missing. Raises ValueError where one does not."""
    for old, new in changes.items():
        if source.count(old) != 1:
            raise ValueError(f"{name}: {old!r} stands {source.count(old)} times in the source, not once")
        source = source.replace(old, new)
    head, _, rest = source.partition("(")
    return Rewritten(f"def {name}({rest}", name, f"<{head.removeprefix('def ')}: {name}>")


def wrong(source: str, name: str, says: str, changes: Mapping[str, str]) -> Mistake:
    """The mistake of an answer that is ``source`` with ``changes``."""
    return Mistake(name, says, rewritten(source, "wrong_" + re.sub(r"\W+", "_", name), changes))
