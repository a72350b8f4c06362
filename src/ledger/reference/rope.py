"""Rotary position embedding by its definition, in float64.

A pair of features (a, b) at position p becomes (a cos − b sin, a sin + b cos) with the angle p·θ^(−2i/r), where i
counts the pairs of a vector of r features. Two layouts are in use: interleaved pairs features (0, 1), (2, 3), …;
half-split pairs feature i with feature i + r/2. Rotations are matrices here, built pair by pair; nothing is sliced.
"""

import math

import numpy as np

from ledger.checks import check_floating
from ledger.reference.mla import narrow


def pairs(rope_dim: int, interleaved: bool = True) -> list[tuple[int, int]]:
    """The two features of each of the rope_dim/2 pairs. A ValueError for an odd width."""
    if rope_dim % 2:
        raise ValueError(f"rope_dim is {rope_dim}; features are rotated in pairs, so it must be even")
    half = rope_dim // 2
    return [(2 * i, 2 * i + 1) if interleaved else (i, i + half) for i in range(half)]


def frequencies(rope_dim: int, theta: float) -> np.ndarray:
    """Radians that each pair turns by from one position to the next: (rope_dim/2,), from 1 down to almost 1/θ."""
    return np.array([theta ** (-2 * i / rope_dim) for i in range(len(pairs(rope_dim)))])


def yarn_frequencies(
    rope_dim: int, theta: float, factor: float, trained: int = 4096, fast: float = 32, slow: float = 1
) -> np.ndarray:
    """The same with YaRN, which stretches a context of ``trained`` tokens: (rope_dim/2,).

    A pair that goes round more than ``fast`` times in that context keeps its speed, one that goes round less than
    ``slow`` times becomes ``factor`` times slower, and from the one to the other the share of the slower speed grows
    pair by pair. The defaults are those of DeepSeek-V3's configuration, and the ends of the ramp are whole pairs, as in
    its published inference code (deepseek-ai/DeepSeek-V3, inference/model.py).
    """
    steps = frequencies(rope_dim, theta)
    at = [rope_dim / 2 * math.log(trained / (2 * math.pi * turns), theta) for turns in (fast, slow)]  # pairs, unrounded
    first, last = max(math.floor(at[0]), 0), min(math.ceil(at[1]), rope_dim - 1)
    slowed = np.clip((np.arange(len(steps)) - first) / max(last - first, 1e-3), 0, 1)
    return steps * (1 - slowed) + steps / factor * slowed


def rope_tables(positions: np.ndarray, rope_dim: int, theta: float) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of every position and pair: positions (tokens,) -> two arrays (tokens, rope_dim/2), without
    YaRN. In float64 for integer positions; floating ones keep their dtype."""
    positions = np.asarray(positions)
    dtype = positions.dtype if positions.dtype.kind == "f" else np.float64
    steps = frequencies(rope_dim, theta)
    cos, sin = (np.empty((len(positions), len(steps))) for _ in range(2))
    for token, position in enumerate(positions.tolist()):
        for pair, step in enumerate(steps.tolist()):
            cos[token, pair], sin[token, pair] = math.cos(position * step), math.sin(position * step)
    return cos.astype(dtype, copy=False), sin.astype(dtype, copy=False)


def rotation(position: int, rope_dim: int, theta: float, interleaved: bool = True) -> np.ndarray:
    """The matrix R of one position: (rope_dim, rope_dim), and R @ x is x rotated. ``position`` may be negative."""
    matrix = np.zeros((rope_dim, rope_dim))
    for (first, second), step in zip(pairs(rope_dim, interleaved), frequencies(rope_dim, theta), strict=True):
        cos, sin = math.cos(position * step), math.sin(position * step)
        matrix[first, first], matrix[first, second] = cos, -sin
        matrix[second, first], matrix[second, second] = sin, cos
    return matrix


def apply_rope(x: np.ndarray, positions: np.ndarray, theta: float, interleaved: bool) -> np.ndarray:
    """Every vector rotated by its token's position: x (tokens, …, rope_dim), positions (tokens,) -> the shape and the
    layout of x. A ValueError where not every token has a position, and for an x of integers."""
    check_floating(x=x)
    positions = np.asarray(positions)
    if positions.shape != x.shape[:1]:
        raise ValueError(f"positions are {positions.shape}; give one for each token of x, {x.shape[:1]}")
    rotated = np.zeros(x.shape)
    for token, position in enumerate(positions.tolist()):
        matrix = rotation(position, x.shape[-1], theta, interleaved)
        rotated[token] = np.asarray(x[token], np.float64) @ matrix.T
    return narrow(rotated, x)


def relative_rotation(m: int, n: int, rope_dim: int, theta: float) -> np.ndarray:
    """The matrix M between an unrotated query at position m and an unrotated key at n, (R_m q)·(R_n k) = qᵀ M k, as the
    product R_mᵀ R_n: (rope_dim, rope_dim), interleaved."""
    return rotation(m, rope_dim, theta).T @ rotation(n, rope_dim, theta)


def single_matrix_residual(positions: np.ndarray, rope_dim: int, theta: float) -> float:
    """How far the best position-free matrix M stays from the rotations: √(Σ‖R_p − M‖² / Σ‖R_p‖²).

    M is the mean of the R_p, since ‖·‖² is a sum of squares over their elements. Between 0 and 1, without unit; a
    ValueError without positions.
    """
    places = np.asarray(positions).tolist()
    if not places:
        raise ValueError("without positions there is no matrix to fit: give at least one")
    best = sum(rotation(p, rope_dim, theta) for p in places) / len(places)
    missed = sum(float(np.sum((rotation(p, rope_dim, theta) - best) ** 2)) for p in places)
    return math.sqrt(missed / (len(places) * rope_dim))


def half_split_order(rope_dim: int) -> np.ndarray:
    """Where the half-split layout takes its features from: ``x[..., order]`` of an interleaved x is half-split, and
    ``np.argsort(order)`` goes back. (rope_dim,) integers."""
    return np.array([feature for place in (0, 1) for feature in (pair[place] for pair in pairs(rope_dim))], int)


def softmax_scale(nope_dim: int, rope_dim: int, yarn_factor: float | None, mscale_all_dim: float | None) -> float:
    """What scores are multiplied by before the softmax: (nope_dim + rope_dim)^(−1/2), times
    (0.1·mscale_all_dim·ln(yarn_factor) + 1)² where YaRN stretches the context (a factor above 1 and an mscale)."""
    plain = 1 / math.sqrt(nope_dim + rope_dim)
    if not mscale_all_dim or yarn_factor is None or yarn_factor <= 1:
        return plain
    return plain * (0.1 * mscale_all_dim * math.log(yarn_factor) + 1) ** 2
