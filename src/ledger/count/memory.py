"""The memory of a run, for code whose multiply-adds cannot be seen."""

import tracemalloc
from collections.abc import Callable
from typing import Any

#: The highest traced memory so far of each ``peak_bytes`` in progress, the innermost last.
_peaks: list[int] = []


def peak_bytes(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, int]:
    """Run ``fn`` once: its result, and the most bytes alive at once while it ran above those at its start.

    Python and NumPy allocate through ``tracemalloc``, in a browser too; torch does not and is not seen. If
    ``tracemalloc`` is tracing already it goes on afterwards, with its peak reset.
    """
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    before, peak = tracemalloc.get_traced_memory()
    if _peaks:
        _peaks[-1] = max(_peaks[-1], peak)
    _peaks.append(before)
    tracemalloc.reset_peak()
    try:
        result = fn(*args, **kwargs)
    finally:
        highest = max(_peaks.pop(), tracemalloc.get_traced_memory()[1])
        if not was_tracing:
            tracemalloc.stop()
    return result, highest - before
