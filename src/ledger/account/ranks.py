"""Who holds what: the bytes of a cache on each GPU of a group that shares the heads, with and without decode context
parallelism, and what that exchanges.

A group of ``ranks`` GPUs shares the query heads (tensor parallelism). Key heads go to the GPUs of their query heads, so
where there are fewer of them than GPUs each is held by several: latent attention's one entry by all. Decode context
parallelism of ``context_ranks`` shares the tokens among such GPUs: token t lies on the (t mod context_ranks)-th.
"""

from typing import NamedTuple

from ledger.account.attention import Scheme
from ledger.checks import check_counts
from ledger.models import Model

#: Bytes of a log-sum-exp, which travels in fp32.
LSE_BYTES = 4


def replicas(kv_heads: int, ranks: int) -> int:
    """On how many of ``ranks`` GPUs each of ``kv_heads`` lies. A ValueError where neither number divides the other."""
    check_counts(1, kv_heads=kv_heads, ranks=ranks)
    if ranks % kv_heads and kv_heads % ranks:
        raise ValueError(f"{kv_heads} key heads do not go evenly onto {ranks} GPUs; choose a divisor or a multiple")
    return max(1, ranks // kv_heads)


def cache_bytes_on_gpu(scheme: Scheme, ranks: int, context_ranks: int = 1) -> float:
    """Bytes cached for a token in one layer on each of ``ranks`` GPUs, on average over the tokens.

    A ValueError where ``context_ranks`` does not divide the replicas that there are: a GPU has nothing to share with
    one that holds other heads.
    """
    check_counts(1, context_ranks=context_ranks)
    held = replicas(scheme.kv_heads, ranks)
    if held % context_ranks:
        raise ValueError(
            f"{scheme.name} with {scheme.kv_heads} key heads on {ranks} GPUs has each head {held} times, which "
            f"{context_ranks} GPUs cannot share; choose a divisor of {held}"
        )
    return scheme.cache_bytes * held / ranks / context_ranks


def tokens_on_rank(cached_tokens: int, rank: int, context_ranks: int) -> int:
    """How many of the tokens 0 … cached_tokens − 1 lie on ``rank``."""
    check_counts(cached_tokens=cached_tokens, rank=rank)
    return len(range(rank, cached_tokens, context_ranks))


class Exchange(NamedTuple):
    """Bytes that leave each GPU in a decode step of one layer: queries, partial outputs, their log-sum-exps."""

    queries: int
    outputs: int
    lse: int

    @property
    def total(self) -> int:
        """Bytes of all three."""
        return sum(self)


def exchange_bytes(model: Model, ranks: int, new_tokens: int = 1, bytes_per_value: int = 2) -> Exchange:
    """What decode context parallelism over all ``ranks`` sends for ``new_tokens``: each GPU gives the queries of its
    own heads to all others, and to each of them partial outputs and log-sum-exps of that one's heads. A ValueError
    where the heads do not go evenly onto the GPUs."""
    check_counts(1, ranks=ranks)
    check_counts(new_tokens=new_tokens)
    if model.num_heads % ranks:
        raise ValueError(f"{model.num_heads} heads do not go evenly onto {ranks} GPUs; choose a divisor")
    rows = (ranks - 1) * new_tokens * (model.num_heads // ranks)
    return Exchange(
        rows * model.cache_dim * bytes_per_value, rows * model.latent_dim * bytes_per_value, rows * LSE_BYTES
    )
