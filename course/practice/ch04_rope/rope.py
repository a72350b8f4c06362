# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Practice 4: RoPE does not absorb
#
# You write the rotation, prove that it depends on a distance and that no single matrix replaces it, and then build a
# whole decode step as an engine runs it. Eight exercises, about 85 minutes. The lesson that goes with them is
# [4 RoPE does not absorb](../../notebooks/ch04_rope/rope.ipynb).
#
# The rules are those of practice 1: the result keeps the floating dtype of the inputs; inputs are never changed, may be
# read-only and need not be contiguous; sizes of 0 and 1 are legal, and an empty result still has the right shape.
# Positions are integers, 0 or more; they may come in any order and more than once, and they do not count for the dtype.
#
# The rotation is the same everywhere. Pair $i$ of a vector of `rope_dim` features turns by position · theta to the
# power of −2i/rope_dim, and a pair $(a, b)$ turned by an angle $\varphi$ is
# $(a \cos\varphi - b \sin\varphi,\; a \sin\varphi + b \cos\varphi)$. `rope_dim` is even. Unless an exercise says
# otherwise, the pairs are features (0, 1), (2, 3), and so on. (YaRN, which would slow some pairs, is left out.)
#
# `%judge` in a cell, after the import below, shows how far you are. In a browser it also gives your answers as a file,
# and takes one back.

# %%
import math

import numpy as np
from ledger import case, check, hint

# %% [markdown]
# ## rope_tables
#
# *8 minutes · difficulty 1 of 3 · 2 points*
#
# Make the two tables that every rotation reads: the cosine and the sine of each position's angle, for each pair.
#
# | | |
# |---|---|
# | `positions` | (positions,), integers, none of them negative |
# | `rope_dim` | an even int |
# | `theta` | a float, the base of the angles |
# | result, first: cosines | (positions, rope_dim / 2) |
# | result, second: sines | (positions, rope_dim / 2) |
#
# One column for each *pair*, not for each feature. The positions are integers, so the tables are float64, and the
# angles have to be made in float64 too: a long context has positions above 100,000. rope_dim may be 0. Return a tuple
# of two arrays.
#
# By hand, for rope_dim 2 and positions 0, 1, 2: the only pair turns by one radian a position, whatever theta is. The
# cosines are 1, 0.5403, −0.4161, the sines 0, 0.8415, 0.9093.


# %% exercise="rope_tables"
def rope_tables(positions: np.ndarray, rope_dim: int, theta: float) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of the angle of every position and pair.

    positions: (positions,), integers
    rope_dim: features of a rotated vector, even; theta: base of the angles
    returns cos, sin: each (positions, rope_dim / 2), float64
    """
    ### BEGIN SOLUTION
    per_position = theta ** (-np.arange(0, rope_dim, 2) / rope_dim)  # radians, one a pair
    turned = np.outer(positions, per_position)
    return np.cos(turned), np.sin(turned)
    ### END SOLUTION


# %% check="rope_tables"
check("rope_tables", rope_tables)

# %% [markdown] hints="rope_tables"
# The hints of rope_tables.

# %% [markdown]
# ## apply_rope
#
# *12 minutes · difficulty 2 of 3 · 3 points*
#
# Turn every vector by its token's position, in either of the two layouts that checkpoints use.
#
# | | |
# |---|---|
# | `x` | (tokens, …, rope_dim): any number of axes in between, for instance one for heads |
# | `positions` | (tokens,), integers |
# | `theta` | a float |
# | `interleaved` | True: features (0, 1), (2, 3), … are pairs. False: feature i and feature i + rope_dim / 2 |
# | result | the shape, the dtype and the layout of `x` |
#
# Pair $i$ turns by the same angle in both layouts. All that differs is where its two features stand. Everything of one
# token turns by that token's position, all its heads alike. Make the angles in float64, whatever the dtype of `x`.
# rope_dim may be 0.
#
# By hand, width 2: the vector (1, 0) stays as it is at position 0, and at position 1 becomes (0.5403, 0.8415). The
# vector (0, 1) at position 1 becomes (−0.8415, 0.5403).


# %% exercise="apply_rope"
def apply_rope(x: np.ndarray, positions: np.ndarray, theta: float, interleaved: bool) -> np.ndarray:
    """Every vector rotated by its token's position.

    x: (tokens, ..., rope_dim), in the layout that interleaved names
    positions: (tokens,), integers; theta: base of the angles
    returns the rotated vectors: shape, layout and dtype of x
    """
    ### BEGIN SOLUTION
    rope_dim, half = x.shape[-1], x.shape[-1] // 2
    angles = np.outer(positions, theta ** (-np.arange(0, rope_dim, 2) / rope_dim))
    angles = angles.reshape(len(x), *[1] * (x.ndim - 2), half)
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = (np.s_[0::2], np.s_[1::2]) if interleaved else (np.s_[:half], np.s_[half:])
    a, b = x[..., first], x[..., second]
    turned = np.empty(x.shape, x.dtype)
    turned[..., first] = a * cos - b * sin
    turned[..., second] = a * sin + b * cos
    return turned
    ### END SOLUTION


# %% check="apply_rope"
check("apply_rope", apply_rope)

# %% [markdown] hints="apply_rope"
# The hints of apply_rope.

# %% [markdown]
# ## relative_rotation
#
# *8 minutes · difficulty 2 of 3 · 2 points*
#
# A query at position $m$ and a key at position $n$ are rotated, each by its own position, and then multiplied. Find the
# one matrix that could stand between the two *unrotated* vectors:
#
# $$(R_m q) \cdot (R_n k) = q^\top M\, k \qquad \text{for all } q, k$$
#
# | | |
# |---|---|
# | `m`, `n` | ints, the positions of the query and of the key; either may be the larger one |
# | `rope_dim`, `theta` | an even int (0 gives an empty matrix), a float |
# | result: $M$ | (rope_dim, rope_dim), float64 |
#
# $q$ and $k$ are columns here: $R_m q$ is the query rotated to position $m$. The pairs are interleaved.
#
# By hand, for rope_dim 2, $m = 1$, $n = 3$: the key is two radians ahead of the query, and $M$ is the rotation by two
# radians, with the rows (−0.4161, −0.9093) and (0.9093, −0.4161).


# %% exercise="relative_rotation"
def relative_rotation(m: int, n: int, rope_dim: int, theta: float) -> np.ndarray:
    """The matrix between an unrotated query at position m and an unrotated key at position n.

    m, n: positions; rope_dim: width of both vectors, even, interleaved; theta: base of the angles
    returns M with (R_m q) · (R_n k) = qᵀ M k: (rope_dim, rope_dim), float64
    """
    ### BEGIN SOLUTION
    turn = (n - m) * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    matrix = np.zeros((rope_dim, rope_dim))
    even, odd = np.arange(0, rope_dim, 2), np.arange(1, rope_dim, 2)
    matrix[even, even] = matrix[odd, odd] = np.cos(turn)
    matrix[even, odd] = -np.sin(turn)
    matrix[odd, even] = np.sin(turn)
    return matrix
    ### END SOLUTION


# %% check="relative_rotation"
check("relative_rotation", relative_rotation)

# %% [markdown] hints="relative_rotation"
# The hints of relative_rotation.

# %% [markdown]
# ## single_matrix_residual
#
# *12 minutes · difficulty 3 of 3 · 3 points*
#
# To absorb a rotation, one matrix $M$ would have to stand in for the rotations $R_p$ of all cached positions. Take the
# $M$ that comes nearest to all of them in least squares, and say how much is left over:
#
# $$\min_M \sqrt{\frac{\sum_p \lVert R_p - M\rVert^2}{\sum_p \lVert R_p\rVert^2}}$$
#
# $\lVert\cdot\rVert^2$ is the sum of the squares of all elements. $M$ may be any matrix, it need not be a rotation.
#
# | | |
# |---|---|
# | `positions` | (positions,), integers; a position that comes twice counts twice |
# | `rope_dim`, `theta` | an even int above 0, a float |
# | result | a float between 0 and 1, without unit |
#
# With a single position the residual is 0, however often it comes: rounding may leave a difference of nearly equal
# numbers a little below 0. Without any position there is nothing to fit: raise a ValueError.
#
# By hand, for rope_dim 2 and positions 0 and 1: $M$ is halfway between the identity and the turn by one radian. Each of
# the two is $\sin\frac12$ = 0.4794 away from it, relative to its own size, and that is the residual.


# %% exercise="single_matrix_residual"
def single_matrix_residual(positions: np.ndarray, rope_dim: int, theta: float) -> float:
    """What the best position-free matrix leaves over of the rotations, relative to their size.

    positions: (positions,), integers; rope_dim: even; theta: base of the angles
    returns the root of the relative sum of squares, between 0 and 1; raises ValueError without positions
    """
    ### BEGIN SOLUTION
    if len(positions) == 0:
        raise ValueError("there is no position, so no matrix to fit: give at least one")
    turned = np.outer(positions, theta ** (-np.arange(0, rope_dim, 2) / rope_dim))
    off_cos = np.cos(turned) - np.cos(turned).mean(axis=0)
    off_sin = np.sin(turned) - np.sin(turned).mean(axis=0)
    return math.sqrt(np.mean(off_cos**2 + off_sin**2))
    ### END SOLUTION


# %% check="single_matrix_residual"
check("single_matrix_residual", single_matrix_residual)

# %% [markdown] hints="single_matrix_residual"
# The hints of single_matrix_residual.

# %% [markdown]
# ## cache_entry
#
# *12 minutes · difficulty 2 of 3 · 3 points*
#
# Make what an engine stores for each token, from what the projection gives:
#
# $$[\ \text{RMSNorm}(c)\ |\ R_p\, k_\text{rope}\ ]$$
#
# | | |
# |---|---|
# | `latent` | (tokens, latent_dim), raw |
# | `k_rope` | (tokens, rope_dim), not rotated, interleaved; one for all heads |
# | `positions` | (tokens,), integers |
# | `norm_weight` | (latent_dim,) |
# | `eps`, `theta` | floats |
# | result: the entries | (tokens, latent_dim + rope_dim) |
#
# RMSNorm divides a latent $c$ by $\sqrt{\text{mean}(c^2) + \text{eps}}$ and multiplies it by `norm_weight`, feature by
# feature. It sees the latent only: the rope key is rotated and not normed, the latent is normed and not rotated.
# rope_dim may be 0, and norm_weight may be negative. The angles are made in float64; the result has the common dtype of
# `latent`, `k_rope` and `norm_weight`: they may differ here. You may call your `apply_rope`, here and in the next
# exercise: the judge runs the cells above first. If it is not written yet, so that it raises, write its lines here.
#
# By hand, with eps 0, norm_weight [1, 1, 1, 10] and the rope key (1, 0) for both tokens. The latent [1, −1, 1, 1] at
# position 0 is stored as [1, −1, 1, 10, 1, 0]. The latent [2, 2, −2, 2] at position 1 has a root mean square of 2, and
# is stored as [1, 1, −1, 10, 0.5403, 0.8415].


# %% exercise="cache_entry"
def cache_entry(
    latent: np.ndarray,
    k_rope: np.ndarray,
    positions: np.ndarray,
    norm_weight: np.ndarray,
    eps: float,
    theta: float,
) -> np.ndarray:
    """What is stored for each token: the normed latent, and beside it the rotated rope key.

    latent: (tokens, latent_dim), raw; k_rope: (tokens, rope_dim), not rotated, interleaved
    positions: (tokens,), integers; norm_weight: (latent_dim,); eps, theta: floats
    returns the entries: (tokens, latent_dim + rope_dim), in the dtype of the inputs
    """
    ### BEGIN SOLUTION
    root = np.sqrt((latent * latent).mean(axis=1, keepdims=True) + eps)
    rope_dim = k_rope.shape[1]
    turned = np.outer(positions, theta ** (-np.arange(0, rope_dim, 2) / rope_dim))
    cos, sin, a, b = np.cos(turned), np.sin(turned), k_rope[:, 0::2], k_rope[:, 1::2]
    entries = np.empty(
        (len(latent), latent.shape[1] + rope_dim), np.result_type(latent, k_rope, norm_weight)
    )
    content, rope = np.split(entries, [latent.shape[1]], axis=1)
    content[:] = latent / root * norm_weight
    rope[:, 0::2] = a * cos - b * sin
    rope[:, 1::2] = a * sin + b * cos
    return entries
    ### END SOLUTION


# %% check="cache_entry"
check("cache_entry", cache_entry)

# %% [markdown] hints="cache_entry"
# The hints of cache_entry.

# %% [markdown]
# ## absorbed_queries
#
# *10 minutes · difficulty 2 of 3 · 3 points*
#
# Make the queries that meet those entries, for every head:
#
# $$[\ q_\text{nope} W_h\ |\ R_p\, q_\text{rope}\ ]$$
#
# | | |
# |---|---|
# | `q_nope` | (new_tokens, num_heads, nope_dim) |
# | `q_rope` | (new_tokens, num_heads, rope_dim), not rotated, interleaved |
# | `w_kc` | (num_heads, nope_dim, latent_dim) |
# | `positions` | (new_tokens,), integers |
# | `theta` | a float |
# | result: the queries | (new_tokens, num_heads, latent_dim + rope_dim) |
#
# Head $h$ meets its own `w_kc[h]`. The rope part of every head is turned by the token's position, by angles made in
# float64. Nothing is scaled. rope_dim may be 0.
#
# By hand, two heads at position 1. `q_nope` is (1, 0) for the first and (1, 1) for the second. Their matrices have the
# rows (1, 0, 1), (0, 2, 1) and (0, 1, 2), (1, 0, 1), so the content parts become [1, 0, 1] and [1, 1, 3]. The rope
# parts (1, 0) and (2, 0) become (0.5403, 0.8415) and (1.0806, 1.6829).


# %% exercise="absorbed_queries"
def absorbed_queries(
    q_nope: np.ndarray, q_rope: np.ndarray, w_kc: np.ndarray, positions: np.ndarray, theta: float
) -> np.ndarray:
    """Every head's query as it meets stored entries: absorbed content, and beside it the rotated rope part.

    q_nope: (new_tokens, num_heads, nope_dim); q_rope: (new_tokens, num_heads, rope_dim), not rotated, interleaved
    w_kc: (num_heads, nope_dim, latent_dim); positions: (new_tokens,), integers; theta: base of the angles
    returns the queries: (new_tokens, num_heads, latent_dim + rope_dim), in the dtype of the inputs
    """
    ### BEGIN SOLUTION
    rope_dim = q_rope.shape[2]
    turned = np.outer(positions, theta ** (-np.arange(0, rope_dim, 2) / rope_dim))[:, None]  # [s, 1, r/2]
    cos, sin, a, b = np.cos(turned), np.sin(turned), q_rope[..., 0::2], q_rope[..., 1::2]
    pair_by_pair = np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1)  # [s, h, r/2, 2]
    absorbed = (q_nope.swapaxes(0, 1) @ w_kc).swapaxes(0, 1)  # [s, h, c]
    parts = [absorbed, pair_by_pair.reshape(q_rope.shape)]
    return np.concatenate(parts, axis=-1, dtype=np.result_type(q_nope, q_rope, w_kc))
    ### END SOLUTION


# %% check="absorbed_queries"
check("absorbed_queries", absorbed_queries)

# %% [markdown] hints="absorbed_queries"
# The hints of absorbed_queries.

# %% [markdown]
# ## decode_absorbed
#
# *18 minutes · difficulty 3 of 3 · 4 points*
#
# Put it together: attention of every head over the stored entries, up to the output in each head's value space. The
# queries and the cache are those of the two exercises above.
#
# | | |
# |---|---|
# | `queries` | (new_tokens, num_heads, latent_dim + rope_dim) |
# | `cache` | (cached_tokens, latent_dim + rope_dim), shared by all heads |
# | `w_vc` | (num_heads, latent_dim, value_dim) |
# | `latent_dim` | an int: the first latent_dim features of an entry are the latent |
# | `scale` | a float that the scores are multiplied by |
# | result: the output | (new_tokens, num_heads, value_dim) |
#
# A score is query times *whole* entry, times `scale`. The softmax runs over the cached tokens, for each head and new
# token by itself. What the weights mix are the latents, and each head's mix goes through its own `w_vc[h]`. Every new
# token sees every cached one: no causal mask. Scores may be in the thousands. rope_dim may be 0. Without cached tokens
# the output is 0.
#
# **Budget.** No value is ever built: no array of cached_tokens × value_dim, no copy of the cache for each head, and
# the multiply-adds spent on w_vc do not grow with cached_tokens.
#
# Free on top of the products are scaling the queries, two multiplications for each score and one for each output, and
# mixing whole entries of which you then keep the latent.
#
# By hand, one head, scale 0.5, the query [0, 0, 0 | 2, 0], and three entries whose latents are the rows of the
# identity and whose rope keys are (ln 2, 5), (0, 7) and (0, 9). The scaled scores are ln 2, 0, 0, so the weights are
# 1/2, 1/4, 1/4, and they are the mixed latent, too. With the value matrix of chapter 3 (rows (1, 0), (0, 1), (0, 1))
# the output is (0.5, 0.5).


# %% exercise="decode_absorbed"
def decode_absorbed(
    queries: np.ndarray, cache: np.ndarray, w_vc: np.ndarray, latent_dim: int, scale: float
) -> np.ndarray:
    """Attention of every head over stored entries, without building a value.

    queries: (new_tokens, num_heads, latent_dim + rope_dim); cache: (cached_tokens, latent_dim + rope_dim)
    w_vc: (num_heads, latent_dim, value_dim); scale: what scores are multiplied by
    returns the output: (new_tokens, num_heads, value_dim), in the dtype of the inputs; 0 without cached tokens
    """
    ### BEGIN SOLUTION
    scores = (queries * scale).swapaxes(0, 1) @ cache.T  # [h, s, t]
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    mixed = exponentials @ cache[:, :latent_dim]  # [h, s, c], not divided yet
    if len(cache):
        mixed = mixed / exponentials.sum(axis=-1, keepdims=True)
    return (mixed @ w_vc).swapaxes(0, 1)  # [s, h, v]
    ### END SOLUTION


# %% check="decode_absorbed"
check("decode_absorbed", decode_absorbed)

# %% [markdown] hints="decode_absorbed"
# The hints of decode_absorbed.

# %% [markdown]
# ## softmax_scale
#
# *6 minutes · difficulty 1 of 3 · 1 point*
#
# Compute the number that scores are multiplied by before the softmax.
#
# * The plain scale is one over the root of nope_dim + rope_dim ($d_n + r$), the width of a query and of its key before
#   anything is absorbed.
# * YaRN stretches a model's context by `yarn_factor`, here $f$, and makes up for it with a number $y$ on the query and on
#   the key. With $a$ for `mscale_all_dim`:
#
# $$y = 0.1\, a \ln f + 1, \qquad \text{scale} = \frac{y^2}{\sqrt{d_n + r}}$$
#
# `yarn_factor` and `mscale_all_dim` are numbers or None. Where the factor is None or at most 1, or mscale_all_dim is
# None or 0, the scale is the plain one. The two widths are ints, at least one of them above 0. Return a float.
#
# By hand, for nope_dim 12 and rope_dim 4 without YaRN: 1/4.


# %% exercise="softmax_scale"
def softmax_scale(
    nope_dim: int, rope_dim: int, yarn_factor: float | None, mscale_all_dim: float | None
) -> float:
    """The factor on scores before the softmax.

    nope_dim, rope_dim: widths of the two parts of a query
    yarn_factor, mscale_all_dim: YaRN's numbers, or None without it
    returns a number without unit
    """
    ### BEGIN SOLUTION
    y = 1.0
    if yarn_factor is not None and yarn_factor > 1 and mscale_all_dim:
        y += 0.1 * mscale_all_dim * math.log(yarn_factor)
    return y**2 / math.sqrt(nope_dim + rope_dim)
    ### END SOLUTION


# %% check="softmax_scale"
check("softmax_scale", softmax_scale)

# %% [markdown] hints="softmax_scale"
# The hints of softmax_scale.

# %% [markdown]
# ## What you can now explain
#
# * What a rotation does to a pair, and that two layouts hold the same pairs at other places.
# * Why a score sees a distance, and why no matrix without a position in it can take the rotation's place.
# * What stands in a cache entry, what meets it, and what the value is: the same latent.
# * Why the scale belongs to a width that no longer appears in the computation.
