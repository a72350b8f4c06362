"""Decode context parallelism: the ranks share a cache's tokens instead of holding all of them each. torch is needed.

Every rank has the queries of its own heads, as in tensor parallelism, and the cache entries of its own tokens: token t
lies on rank t mod size. A step takes two exchanges. Queries go to all ranks, each attends with all heads to the
tokens that it has, and the partial outputs go back to the ranks of their heads, which merge them. Their log-sum-exps
go in an all-to-all of their own, since their dtype may be another.
"""

from typing import TYPE_CHECKING

from ledger.parallel.world import World

if TYPE_CHECKING:
    import torch


def own_tokens(cache: "torch.Tensor", world: World) -> "torch.Tensor":
    """The entries of this rank, in order, of a whole cache (cached_tokens, width): each ``size``-th."""
    return cache[world.rank :: world.size]


def attend(
    queries: "torch.Tensor", cache: "torch.Tensor", latent_dim: int, scale: float
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Absorbed decode over the entries that are here: queries (new_tokens, num_heads, latent_dim + rope_dim), cache
    (cached_tokens, latent_dim + rope_dim) -> mixed latents (new_tokens, num_heads, latent_dim), normalised, in the
    dtype of ``queries``, and lse (new_tokens, num_heads), natural logarithm, in float32 or wider. Without an entry 0
    and −inf."""
    import torch

    wide = torch.promote_types(queries.dtype, torch.float32)
    scores = scale * torch.einsum("shf,tf->sht", queries.to(wide), cache.to(wide))
    lse = torch.logsumexp(scores, dim=2)
    weights = torch.exp(scores - lse[..., None])  # without an entry there is no column
    return torch.einsum("sht,tc->shc", weights, cache[:, :latent_dim].to(wide)).to(queries.dtype), lse


def merge_partials(outputs: "torch.Tensor", lses: "torch.Tensor") -> tuple["torch.Tensor", "torch.Tensor"]:
    """Attention over all parts from the results of the parts: outputs (parts, …, latent_dim), lses (parts, …) ->
    output in the dtype of ``outputs``, lse. A part with lse −inf counts nothing; where all are such, 0 and −inf."""
    import torch

    lse = torch.logsumexp(lses, dim=0)
    shares = torch.exp(lses - lse.masked_fill(lse.isneginf(), 0.0))
    parts = outputs.masked_fill(lses.isneginf()[..., None], 0.0).to(lses.dtype)
    return (shares[..., None] * parts).sum(dim=0).to(outputs.dtype), lse


def decode(
    world: World, queries: "torch.Tensor", cache: "torch.Tensor", latent_dim: int, scale: float
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """One step on this rank: the queries of its heads (new_tokens, heads, width), its own entries (tokens, width) ->
    mixed latents of its heads over all ranks' entries (new_tokens, heads, latent_dim), lse (new_tokens, heads).

    Every rank has as many heads. What travels stands in ``world.sent`` as ``queries``, ``partial outputs`` and
    ``lse``.
    """
    import torch

    everyones = world.all_to_all([queries] * world.size, "queries")
    output, lse = attend(torch.cat(everyones, dim=1), cache, latent_dim, scale)
    by_owner = [part.contiguous() for part in output.chunk(world.size, dim=1)]
    outputs = world.all_to_all(by_owner, "partial outputs")
    lses = world.all_to_all([part.contiguous() for part in lse.chunk(world.size, dim=1)], "lse")
    return merge_partials(torch.stack(outputs), torch.stack(lses))
