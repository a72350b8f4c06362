"""Run a learner's collective code as every rank of a world in this process: no socket, no thread, no other process."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ledger.parallel.memory import MemoryWorld, play
from ledger.parallel.world import World

#: The two counts beside the ranks' outputs.
SENT, COMPUTED = "values sent beyond the allowance", "rows computed beyond one a copy"


class _Ranks:
    """What an answer may ask its world for."""

    def __init__(self, world: World):
        self._world = world
        self.rank, self.size = world.rank, world.size

    def all_to_all(self, tensors: Any, name: str = "") -> list[Any]:
        """``World.all_to_all``, noted as floating or not: the ids of experts travel for nothing."""
        tensors = list(tensors)
        floating = [getattr(getattr(t, "dtype", None), "is_floating_point", False) for t in tensors]
        return self._world.all_to_all(tensors, "floating" if any(floating) else "whole")


def dispatch_and_combine(
    answer: Callable[..., Any],
    tokens: np.ndarray,
    expert_ids: np.ndarray,
    weights: np.ndarray,
    matrices: np.ndarray,
    tokens_of_rank: np.ndarray,
) -> dict[str, Any]:
    """tokens (all ranks' tokens, hidden), expert_ids and weights (all tokens, top_k), matrices (experts, hidden,
    hidden), tokens_of_rank (ranks,) -> what each rank returned under ``rank 0`` and on, and two counts over all ranks:
    floating values that left a rank beyond 2 · hidden + 2 · top_k for each copy that has to (a token and an output, and
    as many ids and weights as a token has), and rows that experts computed beyond one a copy.

    Expert e turns a row x into y·|y| with y = x · matrices[e].
    """
    import torch

    size, hidden, top_k = len(tokens_of_rank), tokens.shape[1], expert_ids.shape[1]
    per_rank = len(matrices) // size
    stops = np.cumsum(tokens_of_rank).tolist()
    parts = [slice(stop - count, stop) for stop, count in zip(stops, tokens_of_rank.tolist(), strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of inputs that may only be read
        shared = [torch.from_numpy(array) for array in (tokens, expert_ids, weights)]
    before = [tensor.clone() for tensor in shared]
    of_experts = torch.from_numpy(np.array(matrices))
    rows = [0] * size

    def on_rank(world: MemoryWorld) -> Any:
        rank = world.rank
        rows[rank] = 0
        own = [whole[parts[rank]] for whole in shared]
        for part, whole in zip(own, before, strict=True):
            part.copy_(whole[parts[rank]])  # what an earlier run changed; what the last one changes is seen

        def expert(number: int) -> Callable[[Any], Any]:
            def apply(x: Any) -> Any:
                rows[rank] += len(x)
                y = x @ of_experts[number]
                return y * y.abs()

            return apply

        return answer(*own, [expert(rank * per_rank + local) for local in range(per_rank)], rank, _Ranks(world))

    played = play(on_rank, size)
    found = {f"rank {rank}": _array(result) for rank, result in enumerate(played.results)}
    sent = sum(world.bytes_sent("floating", leaving=True) for world in played.worlds) // tokens.itemsize
    owners, homes = expert_ids // per_rank, np.repeat(np.arange(size), tokens_of_rank)
    leaving = int((owners != homes[:, None]).sum())
    found[SENT] = max(0, sent - leaving * 2 * (hidden + top_k))
    found[COMPUTED] = max(0, sum(rows) - len(tokens) * top_k)
    return found


def _array(result: Any) -> Any:
    return result.detach().numpy().copy() if hasattr(result, "detach") else result
