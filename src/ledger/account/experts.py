"""What expert parallelism moves and how long a layer takes with it: bytes of a token on its way to an expert and back,
the all-to-all, and one batch against two half batches that hide each other's communication.

A layer is four stages in a row: attention, dispatch, experts, combine. Compute and communication each do one thing at a
time. Left out are the router, the shared expert's place in the schedule, norms, kernel launches and imbalance.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ledger.account.attention import decode_absorbed_macs
from ledger.account.roofline import roofline
from ledger.checks import check_counts
from ledger.machines import Machine
from ledger.models import Model

#: Hidden values that share one fp32 scale in a dispatched token, and bytes of such a scale (DeepEP, DeepGEMM).
SCALE_BLOCK = 128
SCALE_BYTES = 4
#: DeepSeek-V3's first layers have no experts (``first_k_dense_replace`` of its config.json).
V3_DENSE_LAYERS = 3
#: How DeepSeek-V3 routes (``n_group``, ``topk_group``, ``num_experts_per_tok``, ``routed_scaling_factor``).
V3_ROUTING = {"num_groups": 8, "top_groups": 4, "top_k": 8, "scale": 2.5}


class TokenBytes(NamedTuple):
    """Bytes of one token on its way to one expert, and on its way back."""

    dispatch: int
    combine: int

    @property
    def total(self) -> int:
        """Bytes of both ways."""
        return self.dispatch + self.combine


def token_bytes(hidden_dim: int, scale_block: int = SCALE_BLOCK) -> TokenBytes:
    """Bytes of a token that goes out in FP8 with an fp32 scale for each started ``scale_block`` values, and comes back
    in bf16. Source: DeepEP, FP8 dispatch and bf16 combine. A ValueError for sizes that make no sense."""
    check_counts(hidden_dim=hidden_dim)
    check_counts(1, scale_block=scale_block)
    return TokenBytes(hidden_dim + SCALE_BYTES * -(-hidden_dim // scale_block), 2 * hidden_dim)


def all_to_all_seconds(tokens: int, experts_per_token: int, hidden_dim: int, bandwidth: float, floor: float) -> float:
    """Seconds that a GPU's ``tokens`` take to their experts and back: one ``floor`` (seconds) and all bytes over
    ``bandwidth`` (bytes/s); ``math.inf`` without any bandwidth."""
    if bandwidth <= 0:
        return math.inf
    return floor + token_bytes(hidden_dim).total * tokens * experts_per_token / bandwidth


def expert_params(model: Model) -> int:
    """Weights of one routed expert: gate, up and down projection. A ValueError for a model without experts."""
    if not model.num_experts:
        raise ValueError(f"{model.name} is dense; choose a model with experts, such as DeepSeek-V3")
    return 3 * model.hidden_dim * model.expert_dim


def attention_params(model: Model) -> int:
    """Weights of the projections of one latent-attention layer: to the queries (through their latent, where there is
    one), to the latent and the rotary key, out of the latent, and back to the hidden width. No norms, no indexer."""
    queries = model.num_heads * model.qk_dim
    low = model.q_lora_dim
    to_queries = low * (model.hidden_dim + queries) if low else model.hidden_dim * queries
    from_latent = model.latent_dim * model.num_heads * (model.nope_dim + model.value_dim)
    output = model.num_heads * model.value_dim * model.hidden_dim
    return to_queries + model.hidden_dim * model.cache_dim + from_latent + output


class Stages(NamedTuple):
    """Seconds of the four stages of one layer."""

    attention: float
    dispatch: float
    experts: float
    combine: float

    @property
    def compute(self) -> list[float]:
        """Attention, experts."""
        return [self.attention, self.experts]

    @property
    def communication(self) -> list[float]:
        """Dispatch, combine: each follows the compute stage at its place."""
        return [self.dispatch, self.combine]


def layer_stages(
    tokens: float,
    cached_tokens: int,
    model: Model,
    machine: Machine,
    num_ranks: int,
    bandwidth: float,
    floor: float = 0.0,
) -> Stages:
    """Least seconds of a decode layer on each of ``num_ranks`` GPUs, every GPU with ``tokens`` requests of
    ``cached_tokens`` each: FP8 weights, a bf16 cache read by absorbed attention, routing in perfect balance.

    Compute stages are the longer of their reading and their arithmetic. Each way of the all-to-all takes half of
    ``floor`` (seconds) and its bytes over ``bandwidth`` (bytes/s). The shared experts are on every GPU. ValueErrors for
    a dense model, and where ``num_ranks`` does not divide the experts.
    """
    each = expert_params(model)  # a byte each
    check_counts(1, num_ranks=num_ranks)
    if model.num_experts % num_ranks:
        raise ValueError(f"{model.num_experts} experts do not go evenly onto {num_ranks} GPUs; choose a divisor")
    projections = attention_params(model)
    entry = 2 * model.cache_dim
    pair_flops = 2 * decode_absorbed_macs(1, model.num_heads, model.latent_dim, model.rope_dim).total
    read = roofline(0, projections + tokens * cached_tokens * entry, machine, "bf16").memory
    arithmetic = 2 * tokens * projections / machine.rate("fp8")
    arithmetic += tokens * cached_tokens * pair_flops / machine.rate("bf16")
    local = model.num_experts // num_ranks + model.num_shared_experts
    active = model.experts_per_token + model.num_shared_experts
    experts = roofline(2 * tokens * active * each, local * each, machine, "fp8").seconds
    ways = (floor / 2 + size * tokens * model.experts_per_token / bandwidth for size in token_bytes(model.hidden_dim))
    dispatch, combine = ways
    return Stages(max(read, arithmetic), dispatch, experts, combine)


class Span(NamedTuple):
    """One stage at work: ``lane`` is ``"compute"`` or ``"communication"``, ``batch`` and ``stage`` count from 0, start
    and stop are seconds."""

    lane: str
    batch: int
    stage: int
    start: float
    stop: float


def timeline(compute: Sequence[float], communication: Sequence[float], batches: int = 1) -> list[Span]:
    """When each stage of ``batches`` equal batches runs, in the order A1 B1 … A2 B2 ….

    Stage i of a batch computes ``compute[i]`` seconds, then communicates ``communication[i]``; the same seconds for
    every batch. A stage waits for its own batch's stage before it and for its lane. A ValueError where the lists differ
    in length.
    """
    if len(compute) != len(communication):
        raise ValueError(f"{len(compute)} compute stages and {len(communication)} of communication; make them as many")
    spans, ready = [], [0.0] * batches
    free = {"compute": 0.0, "communication": 0.0}
    for stage, pair in enumerate(zip(compute, communication, strict=True)):
        for batch in range(batches):
            for lane, seconds in zip(free, pair, strict=True):
                start = max(ready[batch], free[lane])
                ready[batch] = free[lane] = start + seconds
                spans.append(Span(lane, batch, stage, start, start + seconds))
    return spans


def finish(spans: Sequence[Span]) -> float:
    """When the last of ``spans`` stops; 0 without any."""
    return max((span.stop for span in spans), default=0.0)


def overlap_seconds(compute: Sequence[float], communication: Sequence[float]) -> tuple[float, float]:
    """Seconds of one batch, and of two half batches whose stages each take half: 2 and 2 take 4 and 3."""
    halves = ([seconds / 2 for seconds in stages] for stages in (compute, communication))
    return finish(timeline(compute, communication)), finish(timeline(*halves, batches=2))


class Fit(NamedTuple):
    """A ``floor`` in seconds and a ``bandwidth`` in bytes/s."""

    floor: float
    bandwidth: float

    def seconds(self, moved: np.ndarray) -> np.ndarray:
        """Floor plus bytes over bandwidth, for ``moved`` bytes."""
        return self.floor + np.asarray(moved, float) / self.bandwidth


def fit_floor(moved: Sequence[float], seconds: Sequence[float]) -> Fit:
    """The floor and bandwidth with the least squared *relative* errors over measured (bytes, seconds) pairs."""
    moved, seconds = np.asarray(moved, float), np.asarray(seconds, float)
    rows = np.stack([1 / seconds, moved / seconds], axis=1)
    floor, per_byte = np.linalg.lstsq(rows, np.ones(len(seconds)), rcond=None)[0]
    return Fit(float(floor), float(1 / per_byte))


def fit_larger(moved: Sequence[float], seconds: Sequence[float]) -> Fit:
    """The floor and bandwidth whose *larger*, max(floor, bytes / bandwidth), has the least squared relative errors over
    measured (bytes, seconds) pairs: the best of all splits into a part that the floor rules and one that the bytes do.
    A ValueError for fewer than two pairs."""
    order = np.argsort(moved)
    moved, seconds = np.asarray(moved, float)[order], np.asarray(seconds, float)[order]
    if len(moved) < 2:
        raise ValueError(f"{len(moved)} measured times; give two at least, one for the floor and one for the bandwidth")
    best, least = None, math.inf
    for split in range(1, len(moved)):
        inverse, slope = 1 / seconds[:split], moved[split:] / seconds[split:]
        fit = Fit(float(inverse.sum() / (inverse**2).sum()), float((slope**2).sum() / slope.sum()))
        errors = np.maximum(fit.floor, moved / fit.bandwidth) / seconds - 1
        if (errors**2).sum() < least:
            best, least = fit, (errors**2).sum()
    return best
