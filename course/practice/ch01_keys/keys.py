# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Practice 1: keys
#
# You score new tokens against cached ones, first with keys, then without. Four exercises, about half an hour. The
# lesson that goes with them is [1 keys](../../notebooks/ch01_keys/keys.ipynb).
#
# For each exercise, replace the line that raises `NotImplementedError`, run the cell, and run the check below it. The
# check draws new inputs every time. When it fails it names the case and the seed, and
# `case("absorb_query", "odd sizes", 123456)` gives you those very inputs to look at. `hint("absorb_query")` shows the
# first of three hints.
#
# These rules hold everywhere:
#
# * Inputs are NumPy arrays of any floating dtype, all of the same one. The result keeps it.
# * Never change an input. It may be read-only, and it need not be contiguous.
# * Sizes of 0 and 1 are legal. No axis is dropped, and an empty result still has the right shape.
# * The result is a new array: it never shares memory with an input, unless the statement allows it.
# * The judge gives each case some seconds. A Python loop over every single element may be too
#   slow at a model's widths.
# * A multiply-add is one multiplication and one addition. It is counted as one.
#
# `%judge` in a cell, after the import below, shows how far you are. In a browser it also gives your answers as a file,
# and takes one back.

# %%
import numpy as np
from ledger import case, check, hint

# %% [markdown]
# ## up_project_keys
#
# *5 minutes · difficulty 1 of 3 · 1 point*
#
# The cache holds one latent for each token. Build the keys of one head from it: multiply each latent by `w_k`.
#
# | | shape |
# |---|---|
# | `latents` | (cached_tokens, latent_dim) |
# | `w_k` | (latent_dim, nope_dim) |
# | result: the keys | (cached_tokens, nope_dim) |
#
# This is the content part of the key alone: no RoPE, no scale, no bias. The latents are used as they are. An empty
# cache gives an empty array of shape (0, nope_dim).
#
# By hand, with
#
# $$W_K = \begin{bmatrix} 1 & 0 \\ 0 & 2 \\ 1 & 1 \end{bmatrix}$$
#
# the three latents $[1,0,0]$, $[0,1,0]$ and $[0,0,1]$ each pick a row, so the keys are $[1,0]$, $[0,2]$ and $[1,1]$.


# %% exercise="up_project_keys"
def up_project_keys(latents: np.ndarray, w_k: np.ndarray) -> np.ndarray:
    """Keys of one head from cached latents.

    latents: (cached_tokens, latent_dim)
    w_k: (latent_dim, nope_dim)
    returns the keys: (cached_tokens, nope_dim), in the dtype of the inputs
    """
    ### BEGIN SOLUTION
    return latents @ w_k  # [t, n]
    ### END SOLUTION


# %% check="up_project_keys"
check("up_project_keys", up_project_keys)

# %% [markdown] hints="up_project_keys"
# The hints of up_project_keys.

# %% [markdown]
# ## absorb_query
#
# *8 minutes · difficulty 2 of 3 · 2 points*
#
# The score of a query $q$ and a latent $c$ is $q \cdot (c\, W_K)$. Move the weight to the other side: find the vector
# $\tilde q$ for which $q \cdot (c\, W_K) = \tilde q \cdot c$ holds for every latent $c$. It is called the absorbed
# query, and it is as wide as a latent.
#
# | | shape |
# |---|---|
# | `q_nope` | (new_tokens, nope_dim) |
# | `w_k` | (latent_dim, nope_dim), the same weight as before |
# | result: the absorbed queries | (new_tokens, latent_dim) |
#
# Each new token is absorbed by itself. Nothing is scaled. Without new tokens the result is empty, of shape
# (0, latent_dim).
#
# By hand, with the weight of the first exercise: the query $[1, 0]$ becomes $[1, 0, 1]$. Its dot products with the
# three latents are 1, 0 and 1, which is what the keys give too.


# %% exercise="absorb_query"
def absorb_query(q_nope: np.ndarray, w_k: np.ndarray) -> np.ndarray:
    """Queries of one head, moved to latent space.

    q_nope: (new_tokens, nope_dim)
    w_k: (latent_dim, nope_dim)
    returns the absorbed queries: (new_tokens, latent_dim), in the dtype of the inputs
    """
    ### BEGIN SOLUTION
    return q_nope @ w_k.T  # [s, c]
    ### END SOLUTION


# %% check="absorb_query"
check("absorb_query", absorb_query)

# %% [markdown] hints="absorb_query"
# The hints of absorb_query.

# %% [markdown]
# ## scores_absorbed
#
# *10 minutes · difficulty 2 of 3 · 3 points*
#
# Score every new token against every cached token, for one head, without building a key.
#
# | | shape |
# |---|---|
# | `q_nope` | (new_tokens, nope_dim) |
# | `w_k` | (latent_dim, nope_dim) |
# | `latents` | (cached_tokens, latent_dim) |
# | result: the scores | (new_tokens, cached_tokens) |
#
# Entry $[s, t]$ is $q_s \cdot (c_t W_K)$. The scores are raw: no scale, no softmax, no causal mask, no RoPE part. Only
# cached tokens are scored, not the new ones among themselves. An empty cache gives shape (new_tokens, 0).
#
# **Budget.** No key is ever built: no array of cached_tokens × nope_dim, and the multiply-adds spent on w_k do not grow
# with cached_tokens.
#
# The judge runs your code on arrays that count. It allows the multiply-adds of two matrix products, and one
# multiplication for each score on top. Keys made one at a time break the budget as well. So does a plain `einsum` over
# all three arrays: it multiplies everything with everything. (With `optimize=True` NumPy picks an order by the sizes.
# At the sizes that the judge counts it absorbs, and passes; at DeepSeek-V3's widths it would build the keys.)
#
# By hand, with the weight and the latents of the first exercise: the query $[1, 0]$ has the scores $[1, 0, 1]$.


# %% exercise="scores_absorbed"
def scores_absorbed(q_nope: np.ndarray, w_k: np.ndarray, latents: np.ndarray) -> np.ndarray:
    """Raw scores of one head, without keys.

    q_nope: (new_tokens, nope_dim)
    w_k: (latent_dim, nope_dim)
    latents: (cached_tokens, latent_dim)
    returns the scores: (new_tokens, cached_tokens), not scaled, in the dtype of the inputs
    """
    ### BEGIN SOLUTION
    q_absorbed = q_nope @ w_k.T  # [s, c]
    return q_absorbed @ latents.T  # [s, t]
    ### END SOLUTION


# %% check="scores_absorbed"
check("scores_absorbed", scores_absorbed)

# %% [markdown] hints="scores_absorbed"
# The hints of scores_absorbed.

# %% [markdown]
# ## key_path_macs
#
# *8 minutes · difficulty 2 of 3 · 2 points*
#
# You now know two routes to the same scores. Predict what each costs, in multiply-adds of one head, as a pair:
#
# * **materialize**: build the keys of all cached tokens, then score the queries against them;
# * **absorb**: move all queries to latent space, then score them against the latents.
#
# Count both products of each route, the projection and the scores. A product of (rows, inner) and (inner, cols) takes
# rows · inner · cols multiply-adds. Leave out everything else: softmax, RoPE, values.
#
# All four sizes are ints and may be 0. Return a tuple of two ints, materialize first. Counts are exact, however large:
# do not let a float in.
#
# By hand, for one new token, three cached ones, latents of width 3 and keys of width 2: materialize takes 18 + 6 = 24,
# absorb 6 + 9 = 15.


# %% exercise="key_path_macs"
def key_path_macs(new_tokens: int, cached_tokens: int, latent_dim: int, nope_dim: int) -> tuple[int, int]:
    """Multiply-adds of one head's two routes to its scores, projection and scores together.

    new_tokens, cached_tokens: numbers of tokens
    latent_dim, nope_dim: widths of a latent and of a key's content part
    returns a pair of ints: first of the route that builds keys, then of the route that absorbs
    """
    ### BEGIN SOLUTION
    projection = latent_dim * nope_dim  # one token
    pairs = new_tokens * cached_tokens
    materialize = cached_tokens * projection + pairs * nope_dim
    absorb = new_tokens * projection + pairs * latent_dim
    return materialize, absorb
    ### END SOLUTION


# %% check="key_path_macs"
check("key_path_macs", key_path_macs)

# %% [markdown] hints="key_path_macs"
# The hints of key_path_macs.

# %% [markdown]
# ## What you can now explain
#
# * Why the same score may be bracketed in two ways, and what stands in each bracket.
# * Why absorbing is cheap at decode: the weight meets one query and not the whole cache.
# * What absorbing costs: each score is a sum over latent_dim, four times as long as nope_dim in DeepSeek-V3.
#
# Try `key_path_macs` with 1, 64 and 1,024 new tokens on a cache of 4,096. Which route is cheaper, and where does it turn?
# Lesson 1 has that point in closed form; chapter 5 adds the values.
#
# Next: [lesson 2](../../notebooks/ch02_heads/heads.ipynb), then [practice 2](../ch02_heads/heads.ipynb). One head had
# one matrix; a model packs the matrices of all its heads into one.
