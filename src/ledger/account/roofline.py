"""The least time of a decode step: its arithmetic, its bytes, and which of the two a machine has to wait for.

A query row is one head of one new token. All rows of a request meet the same cache entries, so an entry that is read
once serves heads · new tokens of them. Left out are queries and outputs, which do not grow with the cache, and the few
pairs that the causal order between the new tokens forbids.
"""

import math
from typing import NamedTuple

from ledger.account.attention import decode_absorbed_macs
from ledger.machines import Machine


class Work(NamedTuple):
    """FLOP, and bytes read from memory."""

    flops: int
    bytes: int

    @property
    def intensity(self) -> float:
        """FLOP for each byte read; ``math.inf`` where nothing is read."""
        return self.flops / self.bytes if self.bytes > 0 else math.inf


class Bound(NamedTuple):
    """Least seconds for the arithmetic and for the reading, which overlap."""

    arithmetic: float
    memory: float

    @property
    def seconds(self) -> float:
        """The longer of the two."""
        return max(self)

    @property
    def name(self) -> str:
        """``"memory"`` or ``"compute"``: what sets the pace. A tie is memory."""
        return "memory" if self.memory >= self.arithmetic else "compute"


def decode_work(
    cached_tokens: int,
    num_heads: int,
    new_tokens: int,
    latent_dim: int,
    rope_dim: int,
    cache_bytes_per_token: int,
) -> Work:
    """One layer's absorbed decode over ``cached_tokens``, of all requests together, each entry read once."""
    macs = decode_absorbed_macs(cached_tokens, num_heads * new_tokens, latent_dim, rope_dim).total
    return Work(2 * macs, cached_tokens * cache_bytes_per_token)


def arithmetic_intensity(
    num_heads: int, new_tokens: int, latent_dim: int, rope_dim: int, cache_bytes_per_token: int
) -> float:
    """FLOP for each cached byte: 2·heads·new_tokens·(latent + rope + latent) / bytes; ``math.inf`` at 0 bytes."""
    return decode_work(1, num_heads, new_tokens, latent_dim, rope_dim, cache_bytes_per_token).intensity


def roofline(flops: float, bytes: float, machine: Machine, dtype: str) -> Bound:
    """Both bounds of ``flops`` in ``dtype`` and of ``bytes`` on ``machine``.

    A ValueError names the formats that the machine has a rate for.
    """
    return Bound(flops / machine.rate(dtype), bytes / machine.bandwidth)


def roofline_seconds(flops: float, bytes: float, machine: Machine, dtype: str) -> float:
    """The longer of the two bounds, in seconds; see ``roofline``."""
    return roofline(flops, bytes, machine, dtype).seconds


def rows_at_ridge(
    machine: Machine, latent_dim: int, rope_dim: int, cache_bytes_per_token: int, dtype: str = "bf16"
) -> float:
    """Query rows of a request (heads · new tokens) at which decode's arithmetic takes as long as its reading."""
    return machine.ridge(dtype) / arithmetic_intensity(1, 1, latent_dim, rope_dim, cache_bytes_per_token)
