"""What the way from hidden states to latents, and from attention weights to outputs, costs: multiply-adds, weights and
the bytes of partial results.

The one rule of ``ledger.account.attention`` gives every number here.
"""

from operator import index
from typing import NamedTuple

from ledger.account.attention import Weights, absorb_heads_macs, matmul_macs, shared_latent_scores_macs


class ValuePath(NamedTuple):
    """Multiply-adds of one route from weights to outputs: what ``w_v`` costs, and what the weighted sums cost."""

    projection: int
    mixing: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.projection + self.mixing


class Compression(NamedTuple):
    """Multiply-adds of the projections that stand before attention: the query's way down and up, and the cache entry.

    ``down`` is 0 in a model without a query latent.
    """

    down: int
    up: int
    cache_entry: int

    @property
    def total(self) -> int:
        """All three together."""
        return self.down + self.up + self.cache_entry


class ContentPath(NamedTuple):
    """Multiply-adds of the content path's four products, all heads, in the order in which absorb runs them."""

    keys: int
    scores: int
    mixing: int
    values: int

    @property
    def total(self) -> int:
        """All four together."""
        return sum(self)


def compression_macs(
    tokens: int,
    hidden_dim: int,
    q_lora_dim: int | None,
    latent_dim: int,
    num_heads: int,
    nope_dim: int,
    rope_dim: int,
) -> Compression:
    """Products of ``project_mla`` for ``tokens`` hidden states; ``q_lora_dim`` is None where the queries come from the
    hidden state itself."""
    source = hidden_dim if q_lora_dim is None else q_lora_dim
    return Compression(
        down=0 if q_lora_dim is None else matmul_macs(tokens, hidden_dim, q_lora_dim),
        up=matmul_macs(tokens, source, index(num_heads) * (index(nope_dim) + index(rope_dim))),
        cache_entry=matmul_macs(tokens, hidden_dim, index(latent_dim) + index(rope_dim)),
    )


def value_path_materialize(new_tokens: int, cached_tokens: int, latent_dim: int, value_dim: int) -> ValuePath:
    """One head's route from weights (new_tokens, cached_tokens) to outputs that builds the values first.

    Projection: latents (cached_tokens, latent_dim) @ w_v (latent_dim, value_dim). It grows with the cache.
    """
    return ValuePath(
        projection=matmul_macs(cached_tokens, latent_dim, value_dim),
        mixing=matmul_macs(new_tokens, cached_tokens, value_dim),
    )


def value_path_absorb(new_tokens: int, cached_tokens: int, latent_dim: int, value_dim: int) -> ValuePath:
    """One head's route from weights (new_tokens, cached_tokens) to outputs that mixes latents and projects the sums.

    Projection: mixed latents (new_tokens, latent_dim) @ w_v (latent_dim, value_dim). It does not see the cache.
    """
    return ValuePath(
        projection=matmul_macs(new_tokens, latent_dim, value_dim),
        mixing=matmul_macs(new_tokens, cached_tokens, latent_dim),
    )


def content_path_materialize(
    new_tokens: int, cached_tokens: int, num_heads: int, nope_dim: int, latent_dim: int, value_dim: int
) -> ContentPath:
    """All heads' content path with keys and values built for every cached token; softmax and rope left out."""
    heads = index(num_heads)
    return ContentPath(
        keys=heads * matmul_macs(cached_tokens, latent_dim, nope_dim),
        scores=heads * matmul_macs(new_tokens, nope_dim, cached_tokens),
        mixing=heads * matmul_macs(new_tokens, cached_tokens, value_dim),
        values=heads * matmul_macs(cached_tokens, latent_dim, value_dim),
    )


def content_path_absorb(
    new_tokens: int, cached_tokens: int, num_heads: int, nope_dim: int, latent_dim: int, value_dim: int
) -> ContentPath:
    """All heads' content path in latent space: ``w_kc`` meets the queries and ``w_vc`` the mixed latents; softmax and
    rope left out."""
    return ContentPath(
        keys=absorb_heads_macs(new_tokens, num_heads, nope_dim, latent_dim),
        scores=shared_latent_scores_macs(new_tokens, cached_tokens, num_heads, latent_dim),
        mixing=matmul_macs(index(num_heads) * index(new_tokens), cached_tokens, latent_dim),
        values=index(num_heads) * matmul_macs(new_tokens, latent_dim, value_dim),
    )


def merged_value_output_elements(hidden_dim: int, latent_dim: int, value_dim: int, num_heads: int) -> Weights:
    """Elements of all heads' W_UV·W_O multiplied out (latent_dim, hidden_dim), and of the two factors kept apart."""
    return Weights(
        merged=matmul_macs(num_heads, latent_dim, hidden_dim),
        apart=matmul_macs(num_heads, value_dim, index(latent_dim) + index(hidden_dim)),
    )


def partials_bytes(parts: int, rows: int, width: int, itemsize: int = 4) -> int:
    """Bytes of the partial results of a cache split into ``parts``: an output of ``width`` and an lse for each of
    ``rows`` (new tokens · heads). They are written once and read once by the merge."""
    return index(parts) * index(rows) * (index(width) + 1) * index(itemsize)
