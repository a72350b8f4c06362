"""Steps to run on every rank of a world, each with its account: what came out, beside one process alone, and what
travelled. ``launch.run(steps.moe_step, 4)`` runs one on four processes, ``python -m ledger.parallel`` all of them.

Every rank draws the inputs of all ranks from one seed, keeps its own part, and computes the whole layer alone as well.
"""

import linecache
import math
import time
from typing import Any

import numpy as np

from ledger.account.experts import V3_ROUTING, token_bytes
from ledger.account.ranks import exchange_bytes, tokens_on_rank
from ledger.models import Model, model
from ledger.parallel.world import World
from ledger.reference.experts import rank_loads, route_tokens

#: DeepSeek-V3's layer of experts with each width an eighth, and 32 of 256 experts.
HIDDEN, EXPERT_WIDTH, NUM_EXPERTS, TOP_K = 7168 // 8, 2048 // 8, 32, 8
#: Tokens on each of four ranks; the third is idle.
TOKENS = (24, 40, 0, 16)


def routed(tokens: int, num_experts: int, top_k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Expert ids and weights (tokens, top_k) of random logits, some experts more popular than others, by DeepSeek-V3's
    rule: the experts in 8 groups, of which 4 are open to a token. ``num_experts`` is a multiple of 8."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((tokens, num_experts)) + 0.7 * rng.standard_normal(num_experts)
    return route_tokens(logits, np.zeros(num_experts), **(V3_ROUTING | {"top_k": top_k}))


def moe_step(
    world: World,
    tokens: tuple[int, ...] = TOKENS,
    hidden: int = HIDDEN,
    num_experts: int = NUM_EXPERTS,
    top_k: int = TOP_K,
    seed: int = 0,
) -> dict[str, Any]:
    """The layer of experts on this rank, with ``tokens[rank]`` tokens, beside the same layer in one process.

    ``equal`` says whether this rank's outputs are those of one process to the last bit, ``turned`` and ``rounded`` how
    far (largest error over largest value) they move when the sums run in the order of arrival, and when nothing is
    rounded to FP8 and bf16. ``sent`` are the bytes by name, ``leaving`` those that went to other ranks; ``copies``
    are the token copies of this rank, ``leaving_copies`` those for other ranks, ``load`` what it computed,
    ``to_ranks`` its copies by rank, ``calls`` how many all-to-alls it took part in.
    """
    import torch

    from ledger.parallel.moe import make_expert, moe_alone, moe_layer

    tokens = (tokens * world.size)[: world.size]
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal((sum(tokens), hidden), dtype=np.float32), *routed(sum(tokens), num_experts, top_k, seed)
    everything, ids, weights = (torch.from_numpy(each).to(_device(world)) for each in drawn)
    experts = [make_expert(number, hidden, EXPERT_WIDTH) for number in range(num_experts)]
    per_rank, first = num_experts // world.size, sum(tokens[: world.rank])
    mine, own = slice(first, first + tokens[world.rank]), experts[world.rank * per_rank :][:per_rank]

    got = moe_layer(world, everything[mine], ids[mine], weights[mine], own)
    sent = {each.name: sum(each.bytes) for each in world.sent}
    leaving = {each.name: sum(each.bytes) - each.bytes[world.rank] for each in world.sent}
    calls, to_ranks = len(world.sent), [size // 8 for size in world.sent[0].bytes]
    alone = moe_alone(everything, ids, weights, experts)
    order = torch.argsort(ids, dim=1)  # by expert, so by rank: as they arrive
    turned = moe_alone(everything, ids.gather(1, order), weights.gather(1, order), experts)
    exact = moe_alone(everything, ids, weights, experts, packed=False)
    return {
        "equal": bool(torch.equal(got, alone[mine])),
        "turned": _apart(turned, alone),
        "rounded": _apart(alone, exact),
        "sent": sent,
        "leaving": leaving,
        "copies": tokens[world.rank] * top_k,
        "leaving_copies": sum(to_ranks) - to_ranks[world.rank],
        "load": int(rank_loads(ids.cpu().numpy(), per_rank, world.size)[0][world.rank]),
        "to_ranks": to_ranks,
        "calls": calls,
    }


def answer_step(world: World, source: str, seed: int = 0) -> dict[str, Any]:
    """The text of a function ``dispatch_and_combine``, run on this rank in float64: its largest ``error`` over the
    largest value, beside one process, the bytes ``leaving`` this rank, and those that a copy of each token for each of
    its experts, its id and its output ``need`` to leave. The text may use ``torch`` and ``np``."""
    import torch

    from ledger.parallel.moe import make_expert, moe_alone

    space: dict[str, Any] = {"torch": torch, "np": np}
    file = "<dispatch_and_combine>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # for errors to show its lines
    exec(compile(source, file, "exec"), space)
    tokens = (TOKENS * world.size)[: world.size]
    rng = np.random.default_rng(seed)
    everything = torch.from_numpy(rng.standard_normal((sum(tokens), 64)))
    ids, weights = map(torch.from_numpy, routed(sum(tokens), NUM_EXPERTS, TOP_K, seed))
    experts = [make_expert(number, 64, 16, torch.float64) for number in range(NUM_EXPERTS)]
    per_rank, first = NUM_EXPERTS // world.size, sum(tokens[: world.rank])
    mine = slice(first, first + tokens[world.rank])
    inputs = [whole[mine].to(_device(world)) for whole in (everything, ids, weights)]
    got = space["dispatch_and_combine"](*inputs, experts[world.rank * per_rank :][:per_rank], world.rank, world)
    want = moe_alone(everything, ids, weights, experts, packed=False)
    homes = np.repeat(np.arange(world.size), tokens)[:, None]
    owners = ids.numpy() // per_rank
    own, here = homes == world.rank, owners == world.rank
    row = everything.shape[1] * everything.element_size()
    need = int((own & ~here).sum()) * (row + ids.element_size()) + int((here & ~own).sum()) * row
    return {"error": _apart(got.cpu(), want[mine]), "leaving": world.bytes_sent(leaving=True), "need": need}


def exchange_seconds(world: World, sizes: tuple[int, ...], repeats: int = 15) -> list[float]:
    """Median seconds of an all-to-all in which this rank gives ``size`` bytes in all, in equal parts, for each of
    ``sizes``."""
    import torch

    taken = []
    for size in sizes:
        parts = list(torch.zeros(world.size, size // world.size, dtype=torch.uint8, device=_device(world)))
        times = []
        for _ in range(repeats):
            world.all_to_all([torch.zeros(1)] * world.size, "wait for all")
            start = time.perf_counter()
            world.all_to_all(parts, "timed")
            times.append(time.perf_counter() - start)
        taken.append(float(np.median(times)))
    return taken


def decode_step(
    world: World, cached_tokens: int = 1001, dtype: str = "float64", of: Model | str = "DeepSeek-V3", seed: int = 0
) -> dict[str, Any]:
    """A decode step of one request on a cache that the ranks share, beside attention over the whole of it.

    ``error`` is the largest error of this rank's heads over their largest value, ``lse_error`` that of their
    log-sum-exps; ``tokens`` and ``held`` what this rank holds in tokens and in bytes, ``whole`` the bytes of the whole
    cache, ``leaving`` what it sent to other ranks by name.
    """
    import torch

    from ledger.parallel.context import attend, decode, own_tokens

    shape = model(of) if isinstance(of, str) else of
    rng = np.random.default_rng(seed)
    kind, each = getattr(torch, dtype), shape.num_heads // world.size
    queries = torch.from_numpy(rng.standard_normal((1, shape.num_heads, shape.cache_dim))).to(kind)
    cache = torch.from_numpy(rng.standard_normal((cached_tokens, shape.cache_dim))).to(kind)
    own_heads = queries[:, world.rank * each :][:, :each].contiguous()
    mine, how = own_tokens(cache, world), (shape.latent_dim, shape.qk_dim**-0.5)
    output, lse = decode(world, own_heads.to(_device(world)), mine.to(_device(world)), *how)
    want, want_lse = attend(own_heads.double(), cache.double(), *how)
    return {
        "error": _apart(output.cpu(), want),
        "lse_error": float((lse.cpu().double() - want_lse).abs().max()),
        "tokens": len(mine),
        "held": mine.numel() * mine.element_size(),
        "whole": cache.numel() * cache.element_size(),
        "leaving": {sent.name: sum(sent.bytes) - sent.bytes[world.rank] for sent in world.sent},
    }


def check_ranks(size: int) -> None:
    """ValueError where the experts and heads of ``check_all`` do not go evenly onto ``size`` ranks."""
    heads = model("DeepSeek-V3").num_heads
    fits = [ranks for ranks in range(1, NUM_EXPERTS + 1) if math.gcd(NUM_EXPERTS, heads) % ranks == 0]
    if size not in fits:
        choices = ", ".join(map(str, fits))
        raise ValueError(f"{NUM_EXPERTS} experts and {heads} heads do not go evenly onto {size} ranks; take {choices}")


def check_all(world: World) -> list[str]:
    """Run both layers, hold them to one process and their bytes to the formulas, and say so in lines; AssertionError
    where something differs, ValueError for a number of ranks that ``check_ranks`` refuses."""
    check_ranks(world.size)
    lines = []
    moe = moe_step(world)
    weight = token_bytes(HIDDEN)
    packed = moe["sent"]["codes"] + moe["sent"]["scales"]
    assert moe["equal"], "the outputs are not those of one process"
    assert packed == moe["copies"] * weight.dispatch, f"dispatch sent {packed} bytes"
    assert moe["sent"]["outputs"] == moe["load"] * weight.combine, f"combine sent {moe['sent']['outputs']} bytes"
    assert moe["sent"]["ids"] == 8 * moe["copies"]
    lines.append(f"experts: as one process to the last bit; {weight.dispatch} + {weight.combine} bytes a copy")
    del world.sent[:]
    cached = 1001
    step = decode_step(world, cached)
    leaving = exchange_bytes(model("DeepSeek-V3"), world.size, bytes_per_value=8)
    assert step["error"] < 1e-13, f"the outputs differ by {step['error']}"
    assert step["tokens"] == tokens_on_rank(cached, world.rank, world.size)
    assert step["leaving"]["queries"] == leaving.queries
    assert step["leaving"]["partial outputs"] == leaving.outputs
    lines.append(f"decode: as on one cache to {step['error']:.0e}; {step['tokens']} of {cached} tokens on this rank")
    return lines


def _device(world: World) -> Any:
    return getattr(world, "device", "cpu")


def _apart(got: Any, want: Any) -> float:
    return float((got.double() - want.double()).abs().max() / want.abs().max()) if want.numel() else 0.0
