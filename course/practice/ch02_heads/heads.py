# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Practice 2: many heads, one latent
#
# You cut the packed weight into one matrix a head, absorb all heads at once, and score them against the latents that
# they share. Four exercises, about 40 minutes. The lesson that goes with them is
# [2 many heads, one latent](../../notebooks/ch02_heads/heads.ipynb).
#
# The rules are those of practice 1: the result keeps the floating dtype of the inputs; inputs are never changed, may be
# read-only and need not be contiguous; sizes of 0 and 1 are legal, and an empty result still has the right shape.
# `hint("split_kv_b")` shows the first of three hints, and `case("split_kv_b", "odd sizes, values wider", 123456)` the
# inputs of a case that a check named.
#
# `%judge` in a cell, after the import below, shows how far you are. In a browser it also gives your answers as a file,
# and takes one back.

# %%
import math

import numpy as np
from ledger import case, check, hint

# %% [markdown]
# ## split_kv_b
#
# *10 minutes · difficulty 2 of 3 · 2 points*
#
# A checkpoint packs the up-projections of all heads into one matrix. Cut it into one key matrix and one value matrix a
# head, as an engine does once when it loads the weights.
#
# | | shape |
# |---|---|
# | `kv_b` | (num_heads · (nope_dim + value_dim), latent_dim) |
# | result, first: `w_kc` | (num_heads, nope_dim, latent_dim) |
# | result, second: `w_vc` | (num_heads, latent_dim, value_dim) |
#
# The rows are head-major: all rows of head 0, then all rows of head 1, and so on. Each head brings its nope_dim key
# rows first, then its value_dim value rows. In `w_kc` the rows of a head stay as they lie. In `w_vc` they become
# columns, because a latent will meet that matrix from the left.
#
# nope_dim and value_dim may differ, and either may be 0. Return a tuple of two arrays. They may be views of `kv_b`:
# this is the only exercise where a result may share memory with its input.
#
# By hand, two heads with 2 key rows and 2 value rows each, over a latent of width 3:
#
# | row | `kv_b` | goes to |
# |---|---|---|
# | 0 | 1 0 1 | `w_kc[0]`, row 0 |
# | 1 | 0 2 1 | `w_kc[0]`, row 1 |
# | 2 | 1 0 0 | `w_vc[0]`, column 0 |
# | 3 | 0 1 1 | `w_vc[0]`, column 1 |
# | 4 | 0 1 2 | `w_kc[1]`, row 0 |
# | 5 | 1 0 1 | `w_kc[1]`, row 1 |
# | 6 | 7 7 7 | `w_vc[1]`, column 0 |
# | 7 | 9 9 9 | `w_vc[1]`, column 1 |


# %% exercise="split_kv_b"
def split_kv_b(
    kv_b: np.ndarray, num_heads: int, nope_dim: int, value_dim: int
) -> tuple[np.ndarray, np.ndarray]:
    """The packed up-projection, cut into one matrix a head for keys and one for values.

    kv_b: (num_heads * (nope_dim + value_dim), latent_dim), head-major, each head [nope | value]
    returns w_kc: (num_heads, nope_dim, latent_dim) and w_vc: (num_heads, latent_dim, value_dim), in the dtype of kv_b
    """
    ### BEGIN SOLUTION
    per_head = kv_b.reshape(num_heads, nope_dim + value_dim, kv_b.shape[1])  # [h, n + v, c]
    w_kc, w_v = np.split(per_head, [nope_dim], axis=1)
    return w_kc, w_v.swapaxes(1, 2)  # [h, n, c], [h, c, v]
    ### END SOLUTION


# %% check="split_kv_b"
check("split_kv_b", split_kv_b)

# %% [markdown] hints="split_kv_b"
# The hints of split_kv_b.

# %% [markdown]
# ## absorb_heads
#
# *12 minutes · difficulty 3 of 3 · 3 points*
#
# Absorb the queries of all heads at once. Head $h$ meets its own matrix and no other:
#
# $$\tilde q_{shc} = \sum_n q_{shn}\, W_{hnc}$$
#
# | | shape |
# |---|---|
# | `q_nope` | (new_tokens, num_heads, nope_dim) |
# | `w_kc` | (num_heads, nope_dim, latent_dim) |
# | result: the absorbed queries | (new_tokens, num_heads, latent_dim) |
#
# Heads are never mixed, and nothing is scaled. Without new tokens the result is empty, of shape
# (0, num_heads, latent_dim).
#
# **Budget.** At most two products in all, whatever num_heads is, and no more multiply-adds than one matrix of
# nope_dim × latent_dim for each head needs.
#
# A product is one call that multiplies and sums: `@`, `einsum`, `dot` and their kind. A Python loop over heads makes
# one for each head. Multiplications element by element are counted as multiply-adds; one for each element of the
# result is free.
#
# By hand, one new token and two heads, with the `w_kc` of the exercise above: the query $[1, 0]$ of head 0 becomes
# $[1, 0, 1]$, and the query $[1, 1]$ of head 1 becomes $[0,1,2] + [1,0,1] = [1, 1, 3]$.


# %% exercise="absorb_heads"
def absorb_heads(q_nope: np.ndarray, w_kc: np.ndarray) -> np.ndarray:
    """Queries of all heads, each moved to latent space by its own matrix.

    q_nope: (new_tokens, num_heads, nope_dim)
    w_kc: (num_heads, nope_dim, latent_dim)
    returns the absorbed queries: (new_tokens, num_heads, latent_dim), in the dtype of the inputs
    """
    ### BEGIN SOLUTION
    q_by_head = q_nope.swapaxes(0, 1)  # [h, s, n]
    return (q_by_head @ w_kc).swapaxes(0, 1)  # [s, h, c]
    ### END SOLUTION


# %% check="absorb_heads"
check("absorb_heads", absorb_heads)

# %% [markdown] hints="absorb_heads"
# The hints of absorb_heads.

# %% [markdown]
# ## scores_shared_latent
#
# *10 minutes · difficulty 2 of 3 · 3 points*
#
# Score the absorbed queries of every head against the cached latents. All heads read the same latents.
#
# | | shape |
# |---|---|
# | `q_absorbed` | (new_tokens, num_heads, latent_dim) |
# | `latents` | (cached_tokens, latent_dim) |
# | result: the scores | (num_heads, new_tokens, cached_tokens) |
#
# Mind the order of the axes: the heads come first in the result. Entry $[h, s, t]$ is $\tilde q_{sh} \cdot c_t$. The
# scores are raw: no scale, no softmax, no causal mask, no RoPE part. An empty cache gives shape
# (num_heads, new_tokens, 0).
#
# **Budget.** No array of cached_tokens × num_heads × latent_dim: one set of latents serves all heads
# as it is, at latent_dim multiply-adds a score.
#
# One multiplication for each score is free on top.
#
# By hand, with the latents $[1,0,0]$, $[0,1,0]$, $[0,0,1]$ and the two absorbed queries from above: head 0 has the
# scores $[1, 0, 1]$ and head 1 has $[1, 1, 3]$.


# %% exercise="scores_shared_latent"
def scores_shared_latent(q_absorbed: np.ndarray, latents: np.ndarray) -> np.ndarray:
    """Raw scores of all heads against the one set of latents.

    q_absorbed: (new_tokens, num_heads, latent_dim)
    latents: (cached_tokens, latent_dim)
    returns the scores: (num_heads, new_tokens, cached_tokens), not scaled, in the dtype of the inputs
    """
    ### BEGIN SOLUTION
    return q_absorbed.swapaxes(0, 1) @ latents.T  # [h, s, t]
    ### END SOLUTION


# %% check="scores_shared_latent"
check("scores_shared_latent", scores_shared_latent)

# %% [markdown] hints="scores_shared_latent"
# The hints of scores_shared_latent.

# %% [markdown]
# ## merged_weight_ratio
#
# *6 minutes · difficulty 1 of 3 · 1 point*
#
# A query's content part is made from a query latent of width q_lora_dim by $W_{UQ}$, and absorbed by $W_{UK}$. Each
# head has one of both. Why not multiply the two once, offline, and save a product at each step? Compute what that costs
# in weights.
#
# * **merged**: one matrix (q_lora_dim, latent_dim) for each head.
# * **apart**: one $W_{UQ}$ (q_lora_dim, nope_dim) and one $W_{UK}$ (latent_dim, nope_dim) for each head.
#
# Return the elements of all heads merged, over the elements of all heads apart, as a float. Above 1, merging needs more
# weights. The columns of $W_{UQ}$ that make the RoPE part are not part of this: they cannot be merged.
#
# The four sizes are ints and may be 0. Where the matrices kept apart have no elements, return `math.inf`.
#
# By hand, for q_lora_dim 5, latent_dim 4, nope_dim 2 and 3 heads: merged 60, apart 54, ratio 1.11.


# %% exercise="merged_weight_ratio"
def merged_weight_ratio(q_lora_dim: int, latent_dim: int, nope_dim: int, num_heads: int) -> float:
    """Elements of W_UQ · W_UK merged for every head, over elements of the two kept apart.

    q_lora_dim, latent_dim: widths of the query latent and of the cached latent
    nope_dim: width of a head's content part
    returns a ratio without unit; math.inf where nothing is kept apart
    """
    ### BEGIN SOLUTION
    merged = num_heads * q_lora_dim * latent_dim
    apart = num_heads * nope_dim * (q_lora_dim + latent_dim)
    return merged / apart if apart else math.inf
    ### END SOLUTION


# %% check="merged_weight_ratio"
check("merged_weight_ratio", merged_weight_ratio)

# %% [markdown] hints="merged_weight_ratio"
# The hints of merged_weight_ratio.

# %% [markdown]
# ## What you can now explain
#
# * How `kv_b` is a stack: two blocks a head, and no row belongs to two heads.
# * Why absorbing is a batched product over heads, and what goes wrong when heads are flattened first.
# * What MLA takes from MQA (one entry for all heads) and from MHA (different keys for different heads).
# * Why engines keep $W_{UQ}$ and $W_{UK}$ apart: at DeepSeek-V3's widths, merging needs three times the weights.
#
# That is the route of the keys, up to the raw scores. After the softmax comes the same question for the values, and the
# same answer: mix latents first, project once. Chapter 3 does it.
