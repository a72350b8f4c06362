"""A layer of experts in one process: routing as DeepSeek-V3 does it, the load on each rank, the layer itself, and the
bytes that travel when its tokens do.

Source of the routing: DeepSeek-V3's technical report (arXiv 2412.19437, section 2.1.2) and its released code.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ledger.account.experts import SCALE_BLOCK
from ledger.checks import check_floating
from ledger.reference.formats import E4M3_MAX, dequantize_e4m3, quantize_e4m3, round_bf16
from ledger.reference.mla import narrow

Expert = Callable[[np.ndarray], np.ndarray]


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^−x) in float64, without overflow on either side."""
    return np.exp(-np.logaddexp(0.0, -np.asarray(x, np.float64)))


def route_tokens(
    logits: np.ndarray, bias: np.ndarray, num_groups: int, top_groups: int, top_k: int, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Which experts each token takes and how much each counts: logits (tokens, experts), bias (experts,) -> ids
    (tokens, top_k) int64 by falling selection score, weights (tokens, top_k).

    An expert is selected by its sigmoid plus bias, inside the ``top_groups`` groups with the largest sums of their two
    best; the lower index wins a tie. Weights are the sigmoids without bias, normalised over the selection, times
    ``scale``. A ValueError where the groups are unequal or too small for ``top_k``.
    """
    tokens, experts = logits.shape
    size = experts // num_groups
    if size * num_groups != experts or not 0 <= top_groups <= num_groups or top_k > top_groups * size:
        raise ValueError(f"{top_k} of {experts} experts cannot be taken from {top_groups} of {num_groups} groups")
    affinity = sigmoid(logits)
    selection = affinity + np.asarray(bias, np.float64)
    by_group = np.sort(selection.reshape(tokens, num_groups, size), axis=2)
    group_scores = by_group[:, :, -2:].sum(axis=2)
    open_groups = _best(group_scores, top_groups)
    group_of = np.arange(experts) // size
    allowed = (open_groups[:, :, None] == group_of).any(axis=1)  # [tokens, experts]
    ids = _best(np.where(allowed, selection, -np.inf), top_k)
    chosen = np.take_along_axis(affinity, ids, axis=1)
    return ids, narrow(scale * chosen / chosen.sum(axis=1, keepdims=True), logits, bias)


def rank_loads(expert_ids: np.ndarray, experts_per_rank: int, num_ranks: int) -> tuple[np.ndarray, float]:
    """Token copies on each rank, (num_ranks,) int64, and what the slowest rank makes the others wait: largest − mean.

    ``expert_ids`` (tokens, top_k): rank r has the experts r·experts_per_rank and on.
    """
    loads = [0] * num_ranks
    for expert in np.asarray(expert_ids).flat:
        loads[int(expert) // experts_per_rank] += 1
    return np.array(loads, np.int64), float(max(loads) - sum(loads) / num_ranks)


def swiglu(gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> Expert:
    """The expert with these weights, (hidden, expert), (hidden, expert), (expert, hidden): a function of tokens
    (tokens, hidden)."""

    def expert(tokens: np.ndarray) -> np.ndarray:
        gated = tokens @ gate
        return (gated * sigmoid(gated).astype(gated.dtype) * (tokens @ up)) @ down

    return expert


def moe_layer(tokens: np.ndarray, expert_ids: np.ndarray, weights: np.ndarray, experts: Sequence[Expert]) -> np.ndarray:
    """All experts in one process: tokens (tokens, hidden), expert_ids and weights (tokens, top_k) -> the weighted sum
    of the selected experts' outputs, (tokens, hidden). An expert without tokens is not called."""
    output = np.zeros(tokens.shape)
    for number, expert in enumerate(experts):
        rows, places = np.nonzero(expert_ids == number)
        if len(rows):
            outputs = np.asarray(expert(tokens[rows]), np.float64)
            np.add.at(output, rows, np.asarray(weights, np.float64)[rows, places, None] * outputs)
    return narrow(output, tokens, weights)


class Packed(NamedTuple):
    """Dispatched tokens: e4m3 codes (tokens, hidden) uint8, scales (tokens, started blocks) float32."""

    codes: np.ndarray
    scales: np.ndarray

    @property
    def nbytes(self) -> int:
        """Bytes that travel."""
        return self.codes.nbytes + self.scales.nbytes


def pack_dispatch(tokens: np.ndarray, scale_block: int = SCALE_BLOCK) -> Packed:
    """Tokens (tokens, hidden) as they travel to an expert: e4m3, each started block of ``scale_block`` values under an
    fp32 scale of its own, the largest magnitude / 448 (1 for a block of zeros)."""
    check_floating(tokens=tokens)
    count, hidden = tokens.shape
    blocks = -(-hidden // scale_block)
    padded = np.zeros((count, blocks * scale_block), tokens.dtype)
    padded[:, :hidden] = tokens
    tiles = padded.reshape(count, blocks, scale_block)
    largest = np.abs(tiles).max(axis=2, initial=0.0)
    scales = np.where(largest > 0, largest / E4M3_MAX, 1.0).astype(np.float32)
    codes = quantize_e4m3(tiles / scales[:, :, None]).reshape(count, blocks * scale_block)
    return Packed(np.ascontiguousarray(codes[:, :hidden]), scales)


def unpack_dispatch(packed: Packed, scale_block: int = SCALE_BLOCK) -> np.ndarray:
    """What an expert's rank reads of dispatched tokens, float32."""
    by_value = np.repeat(packed.scales, scale_block, axis=1)[:, : packed.codes.shape[1]]
    return dequantize_e4m3(packed.codes) * by_value


def pack_combine(outputs: np.ndarray) -> np.ndarray:
    """Outputs (tokens, hidden) as they travel back: bf16, carried by 16-bit integers."""
    return (round_bf16(outputs).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def unpack_combine(packed: np.ndarray) -> np.ndarray:
    """The numbers that came back, float32."""
    return (packed.astype(np.uint32) << 16).view(np.float32)


def balance_step(bias: np.ndarray, expert_ids: np.ndarray, speed: float) -> np.ndarray:
    """The bias after one step of balancing without an auxiliary loss: ``speed`` less for each expert with more token
    copies than the mean, ``speed`` more for each with fewer."""
    loads = np.bincount(np.asarray(expert_ids).ravel(), minlength=len(bias))
    return bias - speed * np.sign(loads - loads.mean())


def _best(scores: np.ndarray, count: int) -> np.ndarray:
    """Places of the ``count`` largest of each row, largest first, the lower place first among equals."""
    places = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    return np.lexsort((places, -scores), axis=1)[:, :count].astype(np.int64)
