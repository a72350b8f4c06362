"""Ranks that live in one process, without threads: each runs until it needs what others have not sent yet.

A rank that comes to its first all-to-all is stopped there. When all have come, each runs **again from its start**, now
knowing what it gets, up to the next all-to-all, and so on. So a function is called once more than it exchanges, every
run takes the same course on every machine, and ranks that exchange unequally often are found at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ledger.parallel.world import Array, World

#: No layer of this course exchanges so often.
MOST_CALLS = 64


class UnequalCalls(RuntimeError):
    """Some ranks wait in an all-to-all that others never come to."""


class AnotherCourse(RuntimeError):
    """A rank did not stop where it waits, or did not do the same when it ran again."""


class Waiting(BaseException):
    """Ends the run of a rank that has come to an all-to-all; no ``except Exception`` catches it."""


class MemoryWorld(World):
    """One of several ranks in this process. ``known`` is what it received in earlier runs."""

    def __init__(self, rank: int, size: int, known: list[list[Array]]):
        super().__init__(rank, size)
        self.waits_with: list[Array] | None = None
        self.gave: list[list[Array]] = []
        self._known = known

    def _exchange(self, tensors: list[Array], name: str) -> list[Array]:
        self.gave.append([copy(tensor) for tensor in tensors])
        if len(self.gave) <= len(self._known):
            return [copy(tensor) for tensor in self._known[len(self.gave) - 1]]
        self.waits_with = self.gave[-1]
        raise Waiting


class Played(NamedTuple):
    """What each rank returned, and its world."""

    results: list[Any]
    worlds: list[MemoryWorld]


def play(function: Callable[[MemoryWorld], Any], size: int) -> Played:
    """Run ``function(world)`` as each of ``size`` ranks, in lock step.

    It must do the same in every run, so it must not change what it did not make. What it raises is raised here.
    UnequalCalls where a rank returns while another waits, and where they exchange more than ``MOST_CALLS`` times;
    AnotherCourse where a rank goes on although it waits, or gives something else when it runs again.
    """
    received: list[list[list[Array]]] = [[] for _ in range(size)]  # by rank, by call
    before: list[MemoryWorld] = []
    for _ in range(MOST_CALLS + 1):
        worlds = [MemoryWorld(rank, size, received[rank]) for rank in range(size)]
        results = [_until_it_waits(function, world) for world in worlds]
        for old, new in zip(before, worlds, strict=False):
            if len(old.gave) > len(new.gave) or not all(map(_same, old.gave, new.gave)):
                raise AnotherCourse(f"rank {new.rank} does not do the same twice: keep nothing between two runs")
        before = worlds
        waiting = [world.rank for world in worlds if world.waits_with is not None]
        if not waiting:
            return Played(results, worlds)
        if len(waiting) < size:
            raise UnequalCalls(_unequal(waiting, size, len(received[0])))
        for rank in range(size):
            given = [world.waits_with[rank] for world in worlds]
            _check_alike(given, rank)
            received[rank].append(given)
    raise UnequalCalls(f"more than {MOST_CALLS} calls of all_to_all: is there a loop without an end?")


def _until_it_waits(function: Callable[[MemoryWorld], Any], world: MemoryWorld) -> Any:
    try:
        result = function(world)
    except Waiting:
        return None
    if world.waits_with is not None:
        raise AnotherCourse(f"rank {world.rank} goes on although it waits in all_to_all: do not catch every exception")
    return result


def _unequal(waiting: list[int], size: int, calls: int) -> str:
    done = [str(rank) for rank in range(size) if rank not in waiting]
    who = f"rank {done[0]} returns" if len(done) == 1 else f"ranks {', '.join(done)} return"
    return (
        f"{who} after {calls} {'call' if calls == 1 else 'calls'} of all_to_all, while rank {waiting[0]} waits in the "
        "next: between processes it would wait as long as the others live. Every rank must call it equally often, with "
        "or without tokens"
    )


def _check_alike(given: list[Array], rank: int) -> None:
    """Refuse tensors that cannot be told apart by their rows alone."""
    kinds = [(str(tensor.dtype), tuple(tensor.shape[1:])) for tensor in given]
    for source, kind in enumerate(kinds):
        if kind != kinds[rank]:
            raise ValueError(
                f"rank {source} sent rows {kind[1]} of {kind[0]} to rank {rank}, which sends rows {kinds[rank][1]} of "
                f"{kinds[rank][0]}; in one all_to_all they must be alike on all ranks"
            )


def copy(tensor: Array) -> Array:
    """A copy of an array or tensor."""
    return tensor.copy() if hasattr(tensor, "copy") else tensor.detach().clone()


def _same(left: list[Array], right: list[Array]) -> bool:
    """Whether two lists of tensors hold the same, NaN for NaN."""
    for a, b in zip(left, right, strict=True):
        if a.dtype != b.dtype or a.shape != b.shape or not bool(((a == b) | ((a != a) & (b != b))).all()):
            return False
    return True
