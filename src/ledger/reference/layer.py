"""One layer's latent attention, two ways, in float64: absorbed as engines decode, and from full keys and values.

The two share no step but the softmax. The absorbed way rotates by absolute positions, concatenates, keeps to one cache
entry a token, and masks scores. The materialized way builds every head's keys and values, leaves out what a token does
not see, and can take unrotated rope parts and put the rotation of the distance, R_{t−s}, between them.

``positions`` are a pair: those of the new tokens and those of the cached ones. Where they are not given, the cached
tokens stand at 0, 1, …, and the new tokens are the last of them. With ``causal`` a new token sees the cached tokens at
its own position or before. A token that sees nothing gives 0.
"""

import numpy as np

from ledger.reference.mla import contract, narrow
from ledger.reference.rope import apply_rope, rotation

Positions = tuple[np.ndarray, np.ndarray]


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x / √(mean of x² + eps) · weight over the last axis."""
    wide = np.asarray(x, np.float64)
    mean_square = np.sum(wide * wide, axis=-1, keepdims=True) / max(wide.shape[-1], 1)
    return narrow(wide / np.sqrt(mean_square + eps) * weight, x, weight)


def cache_entry(
    latent: np.ndarray,
    k_rope: np.ndarray,
    positions: np.ndarray,
    norm_weight: np.ndarray,
    eps: float,
    theta: float | None,
) -> np.ndarray:
    """What is stored for each token, [RMSNorm(latent) | RoPE(k_rope)]: latent (tokens, latent_dim) raw, k_rope (tokens,
    rope_dim) not rotated, interleaved, positions (tokens,), norm_weight (latent_dim,) -> (tokens, latent_dim +
    rope_dim). A ``theta`` of None rotates nothing (NoPE)."""
    stored = [rms_norm(latent, norm_weight, eps), _rotated(k_rope, positions, theta)]
    return np.concatenate(stored, axis=-1)


def absorbed_queries(
    q_nope: np.ndarray, q_rope: np.ndarray, w_kc: np.ndarray, positions: np.ndarray, theta: float | None
) -> np.ndarray:
    """What meets the stored entries, [q_nope · w_kc | RoPE(q_rope)]: q_nope (new_tokens, num_heads, nope_dim), q_rope
    (new_tokens, num_heads, rope_dim) not rotated, interleaved, w_kc (num_heads, nope_dim, latent_dim), positions
    (new_tokens,) -> (new_tokens, num_heads, latent_dim + rope_dim). A ``theta`` of None rotates nothing."""
    content = narrow(contract("shn,hnc->shc", q_nope, w_kc), q_nope, w_kc)
    return np.concatenate([content, _rotated(q_rope, positions, theta)], axis=-1)


def decode_absorbed(
    queries: np.ndarray,
    cache: np.ndarray,
    w_vc: np.ndarray,
    latent_dim: int,
    scale: float,
    causal: bool = False,
    positions: Positions | None = None,
) -> np.ndarray:
    """Attention in latent space: queries (new_tokens, num_heads, latent_dim + rope_dim), cache (cached_tokens,
    latent_dim + rope_dim), w_vc (num_heads, latent_dim, value_dim) -> (new_tokens, num_heads, value_dim)."""
    visible = visible_tokens(len(queries), len(cache), causal, positions)
    scores = contract("shf,tf->sht", queries, cache)
    weights = softmax(np.where(visible[:, None], scale * scores, -np.inf))
    mixed = contract("sht,tc->shc", weights, cache[:, :latent_dim])
    return narrow(contract("shc,hcv->shv", mixed, w_vc), queries, cache, w_vc)


def attend_materialized(
    q_nope: np.ndarray,
    q_rope: np.ndarray,
    latents: np.ndarray,
    k_rope: np.ndarray,
    w_kc: np.ndarray,
    w_vc: np.ndarray,
    scale: float,
    causal: bool = False,
    positions: Positions | None = None,
    theta: float | None = None,
) -> np.ndarray:
    """Attention over keys and values built for every head: q_nope (new_tokens, num_heads, nope_dim), q_rope
    (new_tokens, num_heads, rope_dim), latents (cached_tokens, latent_dim) after their norm, k_rope (cached_tokens,
    rope_dim), w_kc (num_heads, nope_dim, latent_dim), w_vc (num_heads, latent_dim, value_dim) -> (new_tokens,
    num_heads, value_dim).

    Without ``theta`` the rope parts meet as they are: give both rotated. With it both are unrotated, and each score
    takes the rotation of the distance between its two tokens.
    """
    new_tokens, num_heads, _ = q_nope.shape
    queries_at, keys_at = positions or default_positions(new_tokens, len(latents))
    seen = [[t for t, at in enumerate(keys_at) if not causal or at <= limit] for limit in queries_at]
    rope_scores = _rope_scores(q_rope, k_rope, queries_at, keys_at, theta)
    output = np.zeros((new_tokens, num_heads, w_vc.shape[2]))
    for head in range(num_heads):
        keys = contract("tc,nc->tn", latents, w_kc[head])
        values = contract("tc,cv->tv", latents, w_vc[head])
        scores = contract("sn,tn->st", q_nope[:, head], keys) + rope_scores[head]
        for s, tokens in enumerate(seen):
            output[s, head] = softmax(scale * scores[s, tokens]) @ values[tokens]
    return narrow(output, q_nope, q_rope, latents, k_rope, w_kc, w_vc)


def decode_absorbed_batch(
    queries: np.ndarray,
    cache: np.ndarray,
    new_lengths: np.ndarray,
    cached_lengths: np.ndarray,
    w_vc: np.ndarray,
    latent_dim: int,
    scale: float,
    causal: bool = True,
) -> np.ndarray:
    """All requests of a padded batch at once: queries (requests, new_tokens, num_heads, latent_dim + rope_dim), cache
    (requests, cached_tokens, latent_dim + rope_dim), both lengths (requests,) -> (requests, new_tokens, num_heads,
    value_dim).

    Each request's new tokens are the last of its cached ones. What stands behind a length may be NaN; a padded query
    gives 0.
    """
    new_lengths, cached_lengths = np.asarray(new_lengths), np.asarray(cached_lengths)
    at_s, at_t = np.arange(queries.shape[1]), np.arange(cache.shape[1])
    is_query, is_cached = at_s < new_lengths[:, None], at_t < cached_lengths[:, None]  # [b, s], [b, t]
    visible = is_query[:, :, None] & is_cached[:, None]  # [b, s, t]
    if causal:
        last = (cached_lengths - new_lengths)[:, None] + at_s  # [b, s]
        visible &= at_t <= last[:, :, None]
    entries = np.where(is_cached[..., None], cache, 0)
    scores = contract("bshf,btf->bsht", np.where(is_query[..., None, None], queries, 0), entries)
    weights = softmax(np.where(visible[:, :, None], scale * scores, -np.inf))
    mixed = contract("bsht,btc->bshc", weights, entries[..., :latent_dim])
    return narrow(contract("bshc,hcv->bshv", mixed, w_vc), queries, cache, w_vc)


def default_positions(new_tokens: int, cached_tokens: int) -> Positions:
    """The cached tokens at 0, 1, …; the new ones are the last of them."""
    return np.arange(cached_tokens - new_tokens, cached_tokens), np.arange(cached_tokens)


def visible_tokens(
    new_tokens: int, cached_tokens: int, causal: bool = True, positions: Positions | None = None
) -> np.ndarray:
    """Which cached token each new one sees: (new_tokens, cached_tokens), True where it does."""
    queries_at, keys_at = positions or default_positions(new_tokens, cached_tokens)
    everything = np.ones((new_tokens, cached_tokens), bool)
    return everything & (np.asarray(keys_at) <= np.asarray(queries_at)[:, None]) if causal else everything


def softmax(scores: np.ndarray) -> np.ndarray:
    """Weights over the last axis; a row of nothing but −∞, or of no scores, gives zeros."""
    largest = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total > 0, total, 1)


def _rotated(x: np.ndarray, positions: np.ndarray, theta: float | None) -> np.ndarray:
    return x if theta is None else apply_rope(x, positions, theta, interleaved=True)


def _rope_scores(q_rope, k_rope, queries_at, keys_at, theta: float | None) -> np.ndarray:
    """Every head's rope scores (num_heads, new_tokens, cached_tokens); with ``theta``, through their distance."""
    if theta is None:
        return contract("shr,tr->hst", q_rope, k_rope)
    scores = np.zeros((q_rope.shape[1], len(q_rope), len(k_rope)))
    for s, t in np.ndindex(*scores.shape[1:]):
        between = rotation(int(keys_at[t]) - int(queries_at[s]), q_rope.shape[2], theta)
        scores[:, s, t] = np.asarray(q_rope[s], np.float64) @ (between @ np.asarray(k_rope[t], np.float64))
    return scores
