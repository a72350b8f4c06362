"""What the products of latent attention cost: multiply-adds, bytes moved and values cached.

One rule gives every number here: the product of a (rows, inner) matrix and an (inner, cols) matrix makes rows·cols
results of inner multiply-adds each. The bytes are those of a product that reads its two operands once and writes its
result once, which is what the counting arrays see of NumPy code.
"""

from dataclasses import dataclass
from operator import index
from typing import NamedTuple

from ledger.models import Model


class Path(NamedTuple):
    """Multiply-adds of one route to the scores: what the projection costs, and what the scores cost after it."""

    projection: int
    scores: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.projection + self.scores


class Attention(NamedTuple):
    """Multiply-adds of attention: what the scores cost, and what the mixing of values costs."""

    scores: int
    values: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.scores + self.values


class Traffic(NamedTuple):
    """Bytes (or values, at an itemsize of 1) that products read and write."""

    read: int
    written: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.read + self.written


class CacheEntry(NamedTuple):
    """Values that latent attention keeps for one token in one layer: [latent | k_rope], shared by all heads."""

    latent: int
    k_rope: int

    @property
    def total(self) -> int:
        """Width of the entry."""
        return self.latent + self.k_rope


class Weights(NamedTuple):
    """Elements of W_UQ·W_UK: multiplied out offline, or kept as two factors."""

    merged: int
    apart: int

    @property
    def ratio(self) -> float:
        """How many times the memory the merged product needs."""
        return self.merged / self.apart


def matmul_macs(rows: int, inner: int, cols: int) -> int:
    """Multiply-adds of (rows, inner) @ (inner, cols). A TypeError for a size that is no integer."""
    return index(rows) * index(inner) * index(cols)


def matmul_bytes(rows: int, inner: int, cols: int, itemsize: int, products: int = 1) -> Traffic:
    """Bytes of ``products`` separate products (rows, inner) @ (inner, cols) of ``itemsize`` bytes a value."""
    rows, inner, cols = index(rows), index(inner), index(cols)
    each = index(products) * index(itemsize)
    return Traffic(read=each * (rows * inner + inner * cols), written=each * rows * cols)


def _both(first: Traffic, second: Traffic) -> Traffic:
    return Traffic(first.read + second.read, first.written + second.written)


def key_path_materialize(new_tokens: int, cached_tokens: int, latent_dim: int, nope_dim: int) -> Path:
    """One head's route to the nope scores (new_tokens, cached_tokens) that builds the keys first.

    Projection: latents (cached_tokens, latent_dim) @ w_k (latent_dim, nope_dim). It grows with the cache.
    """
    return Path(
        projection=matmul_macs(cached_tokens, latent_dim, nope_dim),
        scores=matmul_macs(new_tokens, nope_dim, cached_tokens),
    )


def key_path_absorb(new_tokens: int, cached_tokens: int, latent_dim: int, nope_dim: int) -> Path:
    """One head's route to the nope scores (new_tokens, cached_tokens) that moves w_k to the query.

    Projection: q_nope (new_tokens, nope_dim) @ w_kᵀ (nope_dim, latent_dim). It does not see the cache.
    """
    return Path(
        projection=matmul_macs(new_tokens, nope_dim, latent_dim),
        scores=matmul_macs(new_tokens, latent_dim, cached_tokens),
    )


def key_path_bytes_materialize(
    new_tokens: int, cached_tokens: int, latent_dim: int, nope_dim: int, itemsize: int
) -> Traffic:
    """Bytes of ``key_path_materialize``'s two products: the keys are written once and read once."""
    return _both(
        matmul_bytes(cached_tokens, latent_dim, nope_dim, itemsize),
        matmul_bytes(new_tokens, nope_dim, cached_tokens, itemsize),
    )


def key_path_bytes_absorb(
    new_tokens: int, cached_tokens: int, latent_dim: int, nope_dim: int, itemsize: int
) -> Traffic:
    """Bytes of ``key_path_absorb``'s two products: of the cache, only the latents are read, once."""
    return _both(
        matmul_bytes(new_tokens, nope_dim, latent_dim, itemsize),
        matmul_bytes(new_tokens, latent_dim, cached_tokens, itemsize),
    )


def absorb_heads_macs(new_tokens: int, num_heads: int, nope_dim: int, latent_dim: int) -> int:
    """Multiply-adds of q_nope (new_tokens, num_heads, nope_dim) times each head's own w_kc (nope_dim, latent_dim)."""
    return index(num_heads) * matmul_macs(new_tokens, nope_dim, latent_dim)


def absorb_heads_bytes(new_tokens: int, num_heads: int, nope_dim: int, latent_dim: int, itemsize: int) -> Traffic:
    """Bytes of the same: each head reads its own queries and its own matrix."""
    return matmul_bytes(new_tokens, nope_dim, latent_dim, itemsize, products=num_heads)


def shared_latent_scores_macs(new_tokens: int, cached_tokens: int, num_heads: int, latent_dim: int) -> int:
    """Multiply-adds of every head's absorbed query (latent_dim) against the one set of latents."""
    return matmul_macs(index(new_tokens) * index(num_heads), latent_dim, cached_tokens)


def shared_latent_scores_bytes(
    new_tokens: int, cached_tokens: int, num_heads: int, latent_dim: int, itemsize: int
) -> Traffic:
    """Bytes of the same: the heads are only more rows, so the latents are read once for all of them."""
    return matmul_bytes(index(new_tokens) * index(num_heads), latent_dim, cached_tokens, itemsize)


def decode_absorbed_macs(cached_tokens: int, num_heads: int, latent_dim: int, rope_dim: int) -> Attention:
    """Multiply-adds of one decode step over the cache: every head's score against ``cached_tokens`` entries of latent +
    rope, and its mixing of their latents. For several requests give the sum of their tokens."""
    return Attention(
        scores=matmul_macs(num_heads, index(latent_dim) + index(rope_dim), cached_tokens),
        values=matmul_macs(num_heads, cached_tokens, latent_dim),
    )


def decode_absorbed_bytes(
    cached_tokens: int, num_heads: int, latent_dim: int, rope_dim: int, itemsize: int, requests: int = 1
) -> Traffic:
    """Bytes of the same, where each cached entry is read once, for all heads and as key and value alike.

    Read are the queries of ``requests`` and the entries, ``itemsize`` bytes a value; written are the mixed latents and
    an lse of 4 bytes. The lengths are left out.
    """
    width = index(latent_dim) + index(rope_dim)
    rows = index(requests) * index(num_heads)
    return Traffic(
        read=index(itemsize) * width * (rows + index(cached_tokens)),
        written=rows * (index(itemsize) * index(latent_dim) + 4),
    )


def merged_query_key_elements(q_lora_dim: int, latent_dim: int, nope_dim: int, num_heads: int) -> Weights:
    """Elements of all heads' W_UQ·W_UK multiplied out (q_lora_dim, latent_dim), and of the two factors kept apart.

    A model without a query latent projects from the hidden state: give its ``hidden_dim`` as ``q_lora_dim``.
    """
    return Weights(
        merged=matmul_macs(num_heads, q_lora_dim, latent_dim),
        apart=matmul_macs(num_heads, nope_dim, index(q_lora_dim) + index(latent_dim)),
    )


def mla_cache_entry(latent_dim: int, rope_dim: int) -> CacheEntry:
    """The two pieces of a token's cache entry, in values."""
    return CacheEntry(index(latent_dim), index(rope_dim))


@dataclass(frozen=True)
class Scheme:
    """One way to cache keys and values, in one layer of a given model, and what a decoded token pays for it.

    Each of ``query_heads`` meets keys of ``key_width`` and mixes values of ``value_width``, out of a cache of
    ``kv_heads`` heads that holds ``cache_values`` values a token, ``bytes_per_value`` bytes each. ``distinct_keys`` is
    how many different keys a token can show to the query heads. Decode means one new token.
    """

    name: str
    query_heads: int
    kv_heads: int
    distinct_keys: int
    key_width: int
    value_width: int
    cache_values: int
    bytes_per_value: int = 2

    @property
    def cache_bytes(self) -> int:
        """Bytes cached for a token in one layer."""
        return self.cache_values * self.bytes_per_value

    def decode_score_macs(self, cached_tokens: int = 1) -> int:
        """Multiply-adds of all heads' scores against ``cached_tokens``."""
        return matmul_macs(self.query_heads, self.key_width, cached_tokens)

    def decode_value_macs(self, cached_tokens: int = 1) -> int:
        """Multiply-adds of all heads' mixing of ``cached_tokens`` values."""
        return matmul_macs(self.query_heads, cached_tokens, self.value_width)

    def decode_macs(self, cached_tokens: int = 1) -> int:
        """Scores and values together; what does not grow with the cache (projections, absorbing) is left out."""
        return self.decode_score_macs(cached_tokens) + self.decode_value_macs(cached_tokens)

    @property
    def intensity(self) -> float:
        """FLOP for each byte of cache that decode reads: compare it with a machine's ridge."""
        return 2 * self.decode_macs() / self.cache_bytes


def family(model: Model, kv_groups: int = 8, bytes_per_value: int = 2) -> list[Scheme]:
    """MHA, GQA, MQA and MLA side by side for ``model``'s query heads, key width nope + rope and value width.

    The first three are the model as it would be with keys and values cached in full: for every head, for ``kv_groups``
    heads that the query heads share evenly, for one head. MLA is the model as it decodes, absorbed: one entry of
    latent + rope that serves as the key and, its latent alone, as the value, while w_k still gives every query head
    keys of its own. A ValueError where ``kv_groups`` does not divide the model's heads.
    """
    heads = model.num_heads
    if kv_groups < 1 or heads % kv_groups:
        divisors = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
        raise ValueError(f"{heads} query heads cannot share {kv_groups} key heads evenly; the choices are: {divisors}")

    def full(name: str, kv_heads: int) -> Scheme:
        return Scheme(
            name=name,
            query_heads=heads,
            kv_heads=kv_heads,
            distinct_keys=kv_heads,
            key_width=model.qk_dim,
            value_width=model.value_dim,
            cache_values=kv_heads * (model.qk_dim + model.value_dim),
            bytes_per_value=bytes_per_value,
        )

    entry = mla_cache_entry(model.latent_dim, model.rope_dim)
    mla = Scheme(
        name="MLA",
        query_heads=heads,
        kv_heads=1,
        distinct_keys=heads,
        key_width=entry.total,
        value_width=entry.latent,
        cache_values=entry.total,
        bytes_per_value=bytes_per_value,
    )
    return [full("MHA", heads), full("GQA", kv_groups), full("MQA", 1), mla]
