"""What a decode kernel does step by step, the slow way, in float64: number by number and token by token."""

import math

import numpy as np

from ledger.reference.mla import contract, narrow


def online_softmax_step(
    m: np.ndarray,
    l: np.ndarray,  # noqa: E741
    acc: np.ndarray,
    scores: np.ndarray,
    values: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The state of an online softmax after one more block: m, l (rows,), acc (rows, value_dim) not normalised, scores
    (rows, block) scaled, values (block, value_dim) -> the new m, l, acc.

    m is the largest score so far, l the sum of exp(score − m), acc that of exp(score − m) · value. A row that has seen
    nothing but −inf stays (−inf, 0, 0).
    """
    new_m, new_l, new_acc = np.full(m.shape, -np.inf), np.zeros(l.shape), np.zeros(acc.shape)
    for row, seen in enumerate(np.asarray(scores, np.float64)):
        largest = max([float(m[row]), *seen.tolist()])
        if largest == -math.inf:
            continue
        before = math.exp(m[row] - largest)
        weights = np.array([math.exp(score - largest) for score in seen])
        new_m[row] = largest
        new_l[row] = math.fsum([before * float(l[row]), *weights])
        new_acc[row] = before * np.asarray(acc[row], np.float64) + contract("t,tv->v", weights, values)
    inputs = m, l, acc, scores, values
    return narrow(new_m, *inputs), narrow(new_l, *inputs), narrow(new_acc, *inputs)


def split_plan(cached_tokens: int, num_splits: int, block: int) -> list[tuple[int, int]]:
    """Which tokens each of ``num_splits`` parts of a cache takes, half-open: blocks dealt out like cards, then laid end
    to end. Larger parts come first, empty ones (cached_tokens, cached_tokens) last."""
    shares = [0] * num_splits
    for number in range(0, cached_tokens, block):
        shares[number // block % num_splits] += 1
    ends = [min(cached_tokens, block * sum(shares[: part + 1])) for part in range(num_splits)]
    return list(zip([0, *ends], ends, strict=False))


def gather_pages(pages: np.ndarray, block_table: np.ndarray, length: int) -> np.ndarray:
    """A request's entries in the order of its tokens: pages (num_pages, page, width), block_table (entries,) ->
    (length, width). Token t is entry t mod page of page block_table[t // page]."""
    _, page, width = pages.shape
    entries = np.zeros((length, width), pages.dtype)
    for token in range(length):
        entries[token] = pages[int(block_table[token // page]), token % page]
    return entries
