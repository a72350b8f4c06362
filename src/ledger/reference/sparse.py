"""Sparse attention by its definitions, in float64: one query row at a time, its tokens listed one by one.

What the kernels do in blocks and passes is done here by lists, sorting and overlaps of token ranges.
"""

from collections.abc import Iterable

import numpy as np

from ledger.reference.values import softmax_lse


def index_scores(q_index: np.ndarray, k_index: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Σ over heads of weight · ReLU(query · key): q_index (queries, heads, dim), k_index (keys, dim), weights (queries,
    heads) -> (queries, keys)."""
    scores = np.zeros((len(q_index), len(k_index)))
    for head in range(q_index.shape[1]):
        products = np.asarray(q_index[:, head], np.float64) @ np.asarray(k_index, np.float64).T
        scores += np.asarray(weights[:, head, None], np.float64) * np.where(products > 0, products, 0)
    return scores


def select_topk(scores: np.ndarray, topk: int) -> list[int]:
    """The indices of the ``topk`` largest of one row's scores (seen,), rising; of equal ones the lower stay."""
    best = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    return sorted(best[:topk])


def sparse_decode(
    queries: np.ndarray, entries: np.ndarray, indices: Iterable[int], latent_dim: int, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """All heads of one new token over chosen entries: queries (heads, latent + rope), entries (seen, latent + rope) ->
    mixed latents (heads, latent), lse (heads,). An index outside of the entries is nothing."""
    chosen = [i for i in indices if 0 <= i < len(entries)]
    return attend(queries, entries, entries[:, :latent_dim], chosen, scale)


def attend(
    queries: np.ndarray, keys: np.ndarray, values: np.ndarray, tokens: list[int], scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Heads that share keys and values over a list of tokens: queries (heads, dim), keys (tokens, dim), values (tokens,
    value_dim) -> (heads, value_dim), lse (heads,); 0 and −inf for an empty list."""
    keys, values = np.asarray(keys[tokens], np.float64), np.asarray(values[tokens], np.float64)
    weights, lse = softmax_lse(scale * (np.asarray(queries, np.float64) @ keys.T))
    return weights @ values, lse


def compress_blocks(x: np.ndarray, block: int, stride: int) -> np.ndarray:
    """The mean of every full block of ``block`` tokens, ``stride`` apart: x (tokens, …) -> (blocks, …)."""
    starts = range(0, len(x) - block + 1, stride)
    means = [np.asarray(x[start : start + block], np.float64).mean(axis=0) for start in starts]
    return np.array(means) if means else np.zeros((0, *x.shape[1:]))


def selection_scores(
    probs: np.ndarray, cached_tokens: int, block: int, stride: int, selection_block: int
) -> np.ndarray:
    """What the compressed blocks weigh on each selection block, by the tokens they have in common, in strides: probs
    (compressed blocks,) -> (selection blocks of ``cached_tokens``,)."""
    scores = np.zeros(-(-cached_tokens // selection_block))
    for j in range(len(scores)):
        own = range(j * selection_block, (j + 1) * selection_block)
        for i, prob in enumerate(probs):
            common = min(own.stop, i * stride + block) - max(own.start, i * stride)
            scores[j] += prob * max(0, common) / stride
    return scores


def pick_blocks(scores: np.ndarray, count: int, initial: int, local: int) -> list[int]:
    """Blocks of one row and group in the order of choice: the forced ones, then by falling score, lower ones first;
    scores (visible blocks,)."""
    visible = range(len(scores))
    forced = sorted({*visible[:initial], *visible[max(0, len(scores) - local) :]})
    others = sorted(set(visible) - set(forced), key=lambda j: (-scores[j], j))
    return [*forced, *others][:count]
