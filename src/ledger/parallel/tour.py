"""What the ranks of lesson 9 do, in one start of their processes; and a rank that fails."""

import os
import time
from typing import Any

from ledger.parallel import steps
from ledger.parallel.world import World


def tour(world: World, cached_tokens: int, sizes: tuple[int, ...], answer: str) -> dict[str, Any]:
    """``steps.moe_step``, ``steps.answer_step`` of the text ``answer``, ``steps.decode_step`` of ``cached_tokens`` and
    ``steps.exchange_seconds`` of ``sizes`` on this rank, as ``experts``, ``answer``, ``decode`` and ``seconds``."""
    found = {}
    for name, step in (
        ("experts", lambda: steps.moe_step(world)),
        ("answer", lambda: steps.answer_step(world, answer)),
        ("decode", lambda: steps.decode_step(world, cached_tokens)),
        ("seconds", lambda: steps.exchange_seconds(world, sizes)),
    ):
        found[name] = step()
        world.sent.clear()
    return found


def fails(world: World, how: str) -> None:
    """Two all-to-alls of all ranks. Between them rank 1 ``"dies"`` without a word, ``"hangs"`` or ``"returns"``."""
    import torch

    rows = [torch.zeros(1)] * world.size
    world.all_to_all(rows, "dispatch")
    if world.rank == 1:
        if how == "dies":
            os._exit(3)
        if how == "hangs":
            time.sleep(600)
        return
    world.all_to_all(rows, "combine")
