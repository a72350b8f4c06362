"""What DeepSeek Sparse Attention costs beside dense latent attention: FLOP, bytes read, bytes cached, in one layer.

An indexer scores every cached token; attention then meets the ``topk`` best alone, in the absorbed form, since each
query picks its own. One query and one token are a pair; FLOP are two a multiply-add. Of the indexer only its products
of queries and keys are counted, of attention those of scores and of the mix. Source: DeepSeek-V3.2-Exp,
inference/model.py; ``Model`` holds each model's widths.
"""

import math
from typing import NamedTuple

from ledger.account.attention import decode_absorbed_macs
from ledger.account.cache import cache_bytes_per_token, indexer_bytes_per_token
from ledger.checks import check_counts
from ledger.models import Model


class PairFlops(NamedTuple):
    """FLOP that one query and one token cost, all heads together: attention in the absorbed form and with expanded keys
    and values, and the indexer's score, 0 for a model without one."""

    absorbed: int
    expanded: int
    indexer: int


class Decode(NamedTuple):
    """One query of one request in one layer: FLOP and bytes read, dense and sparse."""

    dense_flops: int
    sparse_flops: int
    dense_bytes: int
    sparse_bytes: int


class Prefill(NamedTuple):
    """FLOP of all queries of a prompt in one layer: dense with expanded keys, sparse in the absorbed form."""

    dense_flops: int
    sparse_flops: int


def pair_flops(model: Model) -> PairFlops:
    """What a pair costs in ``model``."""
    absorbed = 2 * decode_absorbed_macs(1, model.num_heads, model.latent_dim, model.rope_dim).total
    expanded = 2 * model.num_heads * (model.qk_dim + model.value_dim)
    indexer = 2 * model.index_heads * model.index_dim if model.index_heads else 0
    return PairFlops(absorbed, expanded, indexer)


def dsa_decode_ledger(cached_tokens: int, model: Model, topk: int, cache_format: str) -> Decode:
    """One query against ``cached_tokens``: dense meets all in the absorbed form, sparse scores all and meets at most
    ``topk``. A ValueError names the cache formats, or the count that makes no sense."""
    check_counts(0, cached_tokens=cached_tokens, topk=topk)
    pair, entry = pair_flops(model), cache_bytes_per_token(model, cache_format)
    met = min(cached_tokens, topk)
    return Decode(
        dense_flops=cached_tokens * pair.absorbed,
        sparse_flops=cached_tokens * pair.indexer + met * pair.absorbed,
        dense_bytes=cached_tokens * entry,
        sparse_bytes=cached_tokens * indexer_bytes_per_token(model) + met * entry,
    )


def dsa_prefill_ledger(prompt_tokens: int, model: Model, topk: int, exact: bool) -> Prefill:
    """A whole prompt. ``exact`` adds up over positions, each query meeting itself and what is before it; without it the
    pairs of dense attention are half a square, and every query of the sparse one meets min(prompt_tokens, topk)."""
    check_counts(0, prompt_tokens=prompt_tokens, topk=topk)
    pair, all_met = pair_flops(model), min(prompt_tokens, topk)
    if exact:
        scored = prompt_tokens * (prompt_tokens + 1) // 2
        met = all_met * (all_met + 1) // 2 + (prompt_tokens - all_met) * all_met
        return Prefill(scored * pair.expanded, scored * pair.indexer + met * pair.absorbed)
    square = prompt_tokens * prompt_tokens
    # A pair's FLOP are even, so that half a square of them is a whole number.
    return Prefill(square * pair.expanded // 2, square * pair.indexer // 2 + prompt_tokens * all_met * pair.absorbed)


def break_even_position(model: Model, topk: int) -> float:
    """The position at which one query's attention costs the same dense, with expanded keys, and over ``topk`` in the
    absorbed form; the indexer, which runs in either case where a model has one, is left out."""
    check_counts(0, topk=topk)
    pair = pair_flops(model)
    return topk * pair.absorbed / pair.expanded


def break_even_prompt(model: Model, topk: int, exact: bool, with_indexer: bool) -> float:
    """The length of a prompt from which on its sparse prefill costs less than its dense one, in tokens.

    ``with_indexer`` charges the indexer to the sparse side alone, against a model without one; otherwise both sides run
    it. ``exact`` as in ``dsa_prefill_ledger``. Infinite where a dense pair costs no more than the indexer's.
    """
    check_counts(0, topk=topk)
    pair = pair_flops(model)
    saved = pair.expanded - (pair.indexer if with_indexer else 0)
    if saved <= 0:
        return math.inf
    if not exact:
        return 2 * topk * pair.absorbed / saved
    # saved · L(L + 1)/2 = absorbed · (topk · L − topk(topk − 1)/2)
    half = topk * pair.absorbed / saved - 0.5
    return half + math.sqrt(half * half - topk * (topk - 1) * pair.absorbed / saved)


def index_cache_overhead(model: Model, cache_format: str) -> float:
    """Bytes of the indexer's keys over those of the latent entries, averaged over the layers with latent attention."""
    keys = model.num_indexer_layers * indexer_bytes_per_token(model)
    return keys / (model.num_mla_layers * cache_bytes_per_token(model, cache_format))
