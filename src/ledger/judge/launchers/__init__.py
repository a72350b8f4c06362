"""Ways to run an answer that is not simply called with a case's inputs: a kernel is launched, a collective needs ranks.

A launcher takes the answer and the inputs of a case and returns what the exercise's oracle gives the right value of. It
runs where the answer runs, in the jail or in a notebook, and knows no right value. What it counts there can be forged
by code that sets out to, as a budget's counts can.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any


def launched(launcher: str, answer: Callable[..., Any]) -> Callable[..., Any]:
    """``answer`` as a function of a case's inputs. ``launcher`` is ``module.function`` below this package, or empty
    where the answer is such a function itself."""
    if not launcher:
        return answer
    module, name = launcher.split(".")
    return partial(getattr(import_module(f"{__name__}.{module}"), name), answer)
