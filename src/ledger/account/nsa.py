"""Tokens that one query of native sparse attention reads, branch by branch. Source: arXiv 2502.11089, sections 3 and 5.

A compressed block counts as one token: it has one key and one value. All heads of a group read the same.
"""

from typing import NamedTuple

from ledger.checks import check_counts
from ledger.setups import NsaConfig


class TokensRead(NamedTuple):
    """What a query's three branches read, in tokens."""

    compressed: int
    selected: int
    window: int

    @property
    def total(self) -> int:
        """All three; a token that two branches read counts twice, for each has keys and values of its own."""
        return sum(self)


def compressed_seen(cached_tokens: int, config: NsaConfig) -> int:
    """Compressed blocks of ``cached_tokens``: those that are full."""
    check_counts(0, cached_tokens=cached_tokens)
    return max(0, (cached_tokens - config.block) // config.stride + 1)


def tokens_read(cached_tokens: int, config: NsaConfig) -> TokensRead:
    """What the last of ``cached_tokens`` reads, itself among them; a selected block counts whole, although the last one
    need not be full."""
    return TokensRead(
        compressed=compressed_seen(cached_tokens, config),
        selected=min(config.count * config.selection_block, cached_tokens),
        window=min(config.window, cached_tokens),
    )
