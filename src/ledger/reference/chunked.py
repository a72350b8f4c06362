"""Attention over a cache that is read piece by piece: what it must equal, and its pieces, in float64.

Nothing is merged here. The whole softmax is the right value; ``parts`` are what a merge by log-sum-exp starts from.
"""

import numpy as np

from ledger.checks import check_counts
from ledger.reference import mla


def merge_chunked_context(
    queries: np.ndarray, cache: np.ndarray, chunk: int, latent_dim: int, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Absorbed attention without a mask, in one pass whatever ``chunk`` is: queries (new_tokens, num_heads,
    latent_dim + rope_dim), cache (cached_tokens, latent_dim + rope_dim) -> mixed latents (new_tokens, num_heads,
    latent_dim) and the natural log of the sum of exp(scale · score), (new_tokens, num_heads). An empty cache gives 0
    and −inf. A ValueError for a chunk below 1, here and in ``parts``."""
    check_counts(1, chunk=chunk)
    of_each_query = np.broadcast_to(cache, (len(queries), *cache.shape))
    return mla.decode_absorbed(queries, of_each_query, [len(cache)] * len(queries), latent_dim, scale)


def parts(
    queries: np.ndarray, cache: np.ndarray, chunk: int, latent_dim: int, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """The results of each ``chunk`` of the cache by itself, the last one shorter where it does not divide: mixed
    latents (chunks, new_tokens, num_heads, latent_dim) and lses (chunks, new_tokens, num_heads). An empty cache has no
    chunk."""
    check_counts(1, chunk=chunk)
    results = [
        merge_chunked_context(queries, cache[start : start + chunk], chunk, latent_dim, scale)
        for start in range(0, len(cache), chunk)
    ]
    rows, dtype = queries.shape[:2], np.result_type(queries, cache)
    mixed = np.array([output for output, _ in results], dtype).reshape(len(results), *rows, latent_dim)
    return mixed, np.array([lse for _, lse in results], dtype).reshape(len(results), *rows)
