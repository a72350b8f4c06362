"""DeepSeek-V3.2's lightning indexer, whole: what it makes of hidden states, how it scores, what it picks; in float64.

A query's index heads come from the normed query latent, the one key of a token from its hidden state through a
LayerNorm. RoPE turns the first ``rope_dim`` features of both, in halves (not interleaved, unlike the model's own
attention), here by plain frequencies: the model's own are stretched by YaRN, as those of its attention. Both are then
rotated by a Hadamard matrix and stored as e4m3 codes under a power of two for each vector.
Source: DeepSeek-V3.2-Exp, inference/model.py and kernel.py, with the correction of its notice on RoPE.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ledger.reference.formats import E4M3_MAX, dequantize_e4m3, quantize_e4m3
from ledger.reference.mla import narrow
from ledger.reference.rope import apply_rope

#: The least magnitude that a scale is made for, so that a vector of zeros has one.
LEAST_AMAX = 1e-4


class Indexed(NamedTuple):
    """What the indexer makes of tokens: q (tokens, index_heads, index_dim), k (tokens, index_dim), weights (tokens,
    index_heads) with index_heads^(−1/2) in them."""

    q: np.ndarray
    k: np.ndarray
    weights: np.ndarray


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float) -> np.ndarray:
    """(x − mean) / √(variance + eps) · weight + bias over the last axis."""
    wide = np.asarray(x, np.float64)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + eps)
    return narrow(centred / spread * weight + bias, x, weight, bias)


def rope_first(
    x: np.ndarray, positions: np.ndarray, rope_dim: int, theta: float, interleaved: bool = False
) -> np.ndarray:
    """The first ``rope_dim`` features rotated, the others as they are: x (tokens, …, dim), positions (tokens,)."""
    rotated = apply_rope(x[..., :rope_dim], positions, theta, interleaved)
    return np.concatenate([rotated, x[..., rope_dim:]], axis=-1)


def hadamard(dim: int) -> np.ndarray:
    """The orthogonal matrix of ±dim^(−1/2), (dim, dim): its own transpose and its own inverse. A ValueError for a
    ``dim`` that is no power of two."""
    if dim < 1 or dim & (dim - 1):
        raise ValueError(f"dim is {dim}; a Hadamard matrix is built by doubling, so it must be a power of two")
    matrix = np.ones((1, 1))
    while len(matrix) < dim:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / math.sqrt(dim)


def power_of_two_scale(x: np.ndarray) -> np.ndarray:
    """The least power of two under which no feature of a vector goes beyond 448: x (…, dim) -> (…) float32."""
    amax = np.maximum(np.abs(np.asarray(x, np.float64)).max(axis=-1, initial=0.0), LEAST_AMAX)
    mantissa, exponent = np.frexp(amax / E4M3_MAX)  # mantissa in [1/2, 1)
    return np.ldexp(1.0, exponent - (mantissa == 0.5)).astype(np.float32)


def quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index queries or keys as they are stored: x (…, dim) -> e4m3 codes (…, dim) uint8, scales (…) float32."""
    scales = power_of_two_scale(x)
    return quantize_e4m3(np.asarray(x, np.float64) / scales[..., None]), scales


def project(
    q_latent: np.ndarray,
    hidden: np.ndarray,
    weights: Mapping[str, np.ndarray],
    positions: np.ndarray,
    rope_dim: int,
    theta: float,
    eps: float,
    interleaved: bool = False,
) -> Indexed:
    """Queries, keys and weights, not yet rotated by Hadamard's matrix nor rounded: q_latent (tokens, q_lora_dim) after
    its norm, hidden (tokens, hidden_dim), positions (tokens,).

    ``weights`` has its features on the left: ``w_q`` (q_lora_dim, index_heads·index_dim), ``w_k`` (hidden_dim,
    index_dim) with ``k_norm`` and ``k_bias`` (index_dim,), ``w_weights`` (hidden_dim, index_heads).
    """
    dim, heads = weights["w_k"].shape[1], weights["w_weights"].shape[1]
    q = (q_latent @ weights["w_q"]).reshape(len(q_latent), heads, dim)
    k = layer_norm(hidden @ weights["w_k"], weights["k_norm"], weights["k_bias"], eps)
    q, k = (rope_first(x, positions, rope_dim, theta, interleaved) for x in (q, k))
    return Indexed(q, k, hidden @ weights["w_weights"] * heads**-0.5)


def scores(indexed: Indexed, rotate: bool = True, fp8: bool = True) -> np.ndarray:
    """Every query against every key, causal or not is the caller's affair: -> (tokens, tokens).

    With ``rotate`` both are turned by Hadamard's matrix first, with ``fp8`` they go through e4m3. The scales of queries
    go into the weights, with index_dim^(−1/2); a key's scale is common to all heads and comes behind their sum.
    """
    q, k = indexed.q, indexed.k
    dim = k.shape[-1]
    if rotate:
        q, k = q @ hadamard(dim), k @ hadamard(dim)
    q_scales, k_scales = np.ones(q.shape[:-1]), np.ones(len(k))
    if fp8:
        (q, q_scales), (k, k_scales) = quantize(q), quantize(k)
        q, k = (dequantize_e4m3(codes).astype(np.float64) for codes in (q, k))
    heads = np.maximum(np.einsum("sjd,td->sjt", q, k, optimize=True), 0)
    return np.einsum("sj,sjt->st", indexed.weights * q_scales * dim**-0.5, heads) * k_scales


def pick(score: np.ndarray, topk: int) -> np.ndarray:
    """The indices of the ``topk`` largest of one row, rising, all where there are fewer; of equal ones the first."""
    return np.sort(np.argsort(-score, kind="stable")[:topk])
