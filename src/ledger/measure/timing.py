"""Durations of calls, in seconds, as a median with the range that half of the runs fell in."""

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

Clock = Callable[[], float]

#: A run repeats a short call until it lasts this long, because a browser's clock ticks only every 0.1 to 1 ms.
SHORTEST_RUN = 5e-3
#: However long a call takes, it is timed this often.
LEAST_RUNS = 3
#: Where even this many calls do not last ``SHORTEST_RUN``, the clock stands still; a run stops growing.
MOST_CALLS = 1 << 16


class Timing(NamedTuple):
    """Seconds of one call: the median of ``runs`` runs, with their lower and upper quartile."""

    median: float
    low: float
    high: float
    runs: int


def time_call(fn: Callable[..., Any], *args: Any, seconds: float = 0.2, clock: Clock = time.perf_counter) -> Timing:
    """How long ``fn(*args)`` takes, measured for about ``seconds``; what it raises is raised.

    The first call is not timed: it may compile, allocate or fill a cache.
    """
    return time_pairs({"call": partial(fn, *args)}, seconds=seconds, clock=clock)["call"]


def time_pairs(
    calls: Mapping[str, Callable[[], Any]], seconds: float = 0.2, clock: Clock = time.perf_counter
) -> dict[str, Timing]:
    """How long each of ``calls`` takes, run in turn (A B A B …) so that a machine that slows down slows all of them.

    Each is measured for about ``seconds``, after one call that is not timed.
    """
    repeats = {name: _calls_in_a_run(call, clock) for name, call in calls.items()}
    runs: dict[str, list[float]] = {name: [] for name in calls}
    rounds, start = 0, clock()
    while rounds < LEAST_RUNS or clock() - start < seconds * len(calls):
        for name, call in calls.items():
            runs[name].append(_run(call, repeats[name], clock) / repeats[name])
        rounds += 1
    return {name: _summary(durations) for name, durations in runs.items()}


def _calls_in_a_run(call: Callable[[], Any], clock: Clock) -> int:
    call()
    repeats = 1
    while repeats < MOST_CALLS and _run(call, repeats, clock) < SHORTEST_RUN:
        repeats *= 2
    return repeats


def _run(call: Callable[[], Any], repeats: int, clock: Clock) -> float:
    _finish_gpu_work()
    start = clock()
    for _ in range(repeats):
        call()
    _finish_gpu_work()
    return clock() - start


def _finish_gpu_work() -> None:
    """Wait for the GPU if torch has used one: a kernel's call returns before the kernel is done."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _summary(durations: list[float]) -> Timing:
    low, median, high = np.quantile(durations, [0.25, 0.5, 0.75])
    return Timing(float(median), float(low), float(high), len(durations))
