# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Practice 3: values
#
# You make queries and cache entries from hidden states, bring outputs out of a cache without building a value, put the
# whole content path together, and merge the results of a cache that was cut into parts. Seven exercises, about 70
# minutes. The lesson that goes with them is [3 values](../../notebooks/ch03_values/values.ipynb).
#
# The rules are those of practice 1: the result keeps the floating dtype of the inputs; inputs are never changed, may be
# read-only and need not be contiguous; sizes of 0 and 1 are legal, and an empty result still has the right shape.
# `hint("project_mla")` shows the first of three hints, and `case("project_mla", "odd sizes", 123456)` the inputs of a
# case that a check named.
#
# `%judge` in a cell, after the import below, shows how far you are. In a browser it also gives your answers as a file,
# and takes one back.

# %%
import math

import numpy as np
from ledger import case, check, hint

# %% [markdown]
# ## project_mla
#
# *15 minutes · difficulty 2 of 3 · 3 points*
#
# Everything that attention needs is made from the hidden states. Make it: both parts of every head's query, and the
# two parts of the cache entry.
#
# | | shape |
# |---|---|
# | `hidden` | (tokens, hidden_dim) |
# | `weights["w_dq"]` | (hidden_dim, q_lora_dim): down to the query latent |
# | `weights["q_norm"]` | (q_lora_dim,): the weight of its RMSNorm |
# | `weights["w_uq"]` | (q_lora_dim, num_heads · (nope_dim + rope_dim)): up to all heads |
# | `weights["w_dkv"]` | (hidden_dim, latent_dim + rope_dim): down to the cache entry |
# | result, first: `q_nope` | (tokens, num_heads, nope_dim) |
# | second: `q_rope` | (tokens, num_heads, rope_dim) |
# | third: `latent` | (tokens, latent_dim) |
# | fourth: `k_rope` | (tokens, rope_dim) |
#
# The query's path is `hidden · w_dq`, RMSNorm, `· w_uq`. RMSNorm divides a row $x$ by
# $\sqrt{\text{mean}(x^2) + \text{eps}}$ and multiplies it by `q_norm`. A model without a query latent has neither
# `w_dq` nor `q_norm` in `weights`. Its `w_uq` is (hidden_dim, num_heads · (nope_dim + rope_dim)) and meets the hidden
# state directly, without a norm.
#
# The columns of `w_uq` are head-major, and each head has [nope | rope]. The columns of `w_dkv` are [latent | k_rope].
# The latent is returned raw: its own RMSNorm comes later, when it is cached. Nothing is rotated.
#
# Neither latent_dim nor rope_dim is given; both follow from the shapes. num_heads and the widths that are summed over
# are at least 1. There may be no token, and rope_dim may be 0. Return a tuple of four arrays.
#
# By hand, with one token $[3, 4]$, an identity for `w_dq`, eps 12.5 (far too large, so that the root is a whole number)
# and `q_norm` $[5, 10]$: the root is $\sqrt{12.5 + 12.5} = 5$, and the normed query latent is $[3, 8]$. With two heads
# of nope and rope width 1,
#
# $$W_{UQ} = \begin{bmatrix} 1 & 0 & 0 & 1 \\ 0 & 1 & 1 & 1 \end{bmatrix} \qquad
# W_{DKV} = \begin{bmatrix} 1 & 0 & 2 \\ 0 & 1 & 1 \end{bmatrix}$$
#
# the query is $[3, 8, 8, 11]$: head 0 has nope 3 and rope 8, head 1 has nope 8 and rope 11. The latent is $[3, 4]$
# and k_rope is $[10]$.


# %% exercise="project_mla"
def project_mla(
    hidden: np.ndarray, weights: dict[str, np.ndarray], num_heads: int, nope_dim: int, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Queries and cache entries of latent attention, before any rotation.

    hidden: (tokens, hidden_dim)
    weights: w_dq, q_norm, w_uq and w_dkv, or only w_uq and w_dkv, features on the left
    returns q_nope: (tokens, num_heads, nope_dim), q_rope: (tokens, num_heads, rope_dim),
    latent: (tokens, latent_dim), not normalised, and k_rope: (tokens, rope_dim), in the dtype of the inputs
    """
    ### BEGIN SOLUTION
    query = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        query = low / np.sqrt(np.mean(low * low, axis=-1, keepdims=True) + eps) * weights["q_norm"]
    head_width = weights["w_uq"].shape[1] // num_heads
    latent_dim = weights["w_dkv"].shape[1] - (head_width - nope_dim)
    by_head = (query @ weights["w_uq"]).reshape(len(hidden), num_heads, head_width)
    kept = hidden @ weights["w_dkv"]
    return (*np.split(by_head, [nope_dim], axis=-1), *np.split(kept, [latent_dim], axis=-1))
    ### END SOLUTION


# %% check="project_mla"
check("project_mla", project_mla)

# %% [markdown] hints="project_mla"
# The hints of project_mla.

# %% [markdown]
# ## materialize_values
#
# *4 minutes · difficulty 1 of 3 · 1 point*
#
# Build the values of one head: multiply each cached latent by `w_v`. It is what materialize does, and the next exercise
# does without.
#
# | | shape |
# |---|---|
# | `latents` | (cached_tokens, latent_dim) |
# | `w_v` | (latent_dim, value_dim) |
# | result: the values | (cached_tokens, value_dim) |
#
# The latents are used as they are. value_dim may be larger than latent_dim. An empty cache gives an empty array of
# shape (0, value_dim).
#
# By hand, with
#
# $$W_V = \begin{bmatrix} 1 & 0 \\ 0 & 1 \\ 0 & 1 \end{bmatrix}$$
#
# the three latents $[1,0,0]$, $[0,1,0]$ and $[0,0,1]$ have the values $[1,0]$, $[0,1]$ and $[0,1]$.


# %% exercise="materialize_values"
def materialize_values(latents: np.ndarray, w_v: np.ndarray) -> np.ndarray:
    """Values of one head from cached latents.

    latents: (cached_tokens, latent_dim)
    w_v: (latent_dim, value_dim)
    returns the values: (cached_tokens, value_dim), in the dtype of the inputs
    """
    ### BEGIN SOLUTION
    return latents @ w_v  # [t, v]
    ### END SOLUTION


# %% check="materialize_values"
check("materialize_values", materialize_values)

# %% [markdown] hints="materialize_values"
# The hints of materialize_values.

# %% [markdown]
# ## mix_then_project
#
# *8 minutes · difficulty 2 of 3 · 2 points*
#
# The output of one head is the sum of the values, each times its weight. Compute it for every new token without
# building a value.
#
# | | shape |
# |---|---|
# | `weights` | (new_tokens, cached_tokens), post-softmax |
# | `latents` | (cached_tokens, latent_dim) |
# | `w_v` | (latent_dim, value_dim) |
# | result: the outputs | (new_tokens, value_dim) |
#
# Row $s$ of the result is $\sum_t \text{weights}_{st}\, (c_t W_V)$. Use the weights as they are: nothing is masked, and
# nothing is normalised again. A row of weights adds to 1, or to less where these tokens are a part of a longer cache.
# An empty cache gives zeros of shape (new_tokens, value_dim).
#
# **Budget.** No value is ever built: no array of cached_tokens × value_dim, and the multiply-adds spent on w_v do not
# grow with cached_tokens.
#
# The judge allows the multiply-adds of two matrix products, and one multiplication for each output on top. No array may
# be larger than the largest of the inputs and the result, so the terms of a sum, (new_tokens, cached_tokens,
# latent_dim), may not stand in one.
#
# By hand, with the latents and the weight of the exercise above: the weights $[0.5, 0, 0.5]$ give the mixed latent
# $[0.5, 0, 0.5]$ and the output $[0.5, 0.5]$.


# %% exercise="mix_then_project"
def mix_then_project(weights: np.ndarray, latents: np.ndarray, w_v: np.ndarray) -> np.ndarray:
    """Output of one head, without values.

    weights: (new_tokens, cached_tokens), post-softmax
    latents: (cached_tokens, latent_dim)
    w_v: (latent_dim, value_dim)
    returns the outputs: (new_tokens, value_dim), in the dtype of the inputs
    """
    ### BEGIN SOLUTION
    latent_sums = weights @ latents  # [s, c]
    return latent_sums @ w_v  # [s, v]
    ### END SOLUTION


# %% check="mix_then_project"
check("mix_then_project", mix_then_project)

# %% [markdown] hints="mix_then_project"
# The hints of mix_then_project.

# %% [markdown]
# ## absorb_values_heads
#
# *12 minutes · difficulty 3 of 3 · 3 points*
#
# Do it for all heads. Each head has weights of its own and a matrix of its own; the latents serve all of them:
#
# $$o_{shv} = \sum_c \Big( \sum_t \text{weights}_{hst}\, c_{tc} \Big)\, W_{hcv}$$
#
# | | shape |
# |---|---|
# | `weights` | (num_heads, new_tokens, cached_tokens), post-softmax |
# | `latents` | (cached_tokens, latent_dim) |
# | `w_vc` | (num_heads, latent_dim, value_dim) |
# | result: the outputs | (new_tokens, num_heads, value_dim) |
#
# Use the weights as they are: a row of them adds to 1, or to less where these tokens are a part of a longer cache. Mind
# the axes: the heads come first in the weights and second in the result. Heads are never mixed. An empty cache gives
# zeros.
#
# **Budget.** No value is ever built, and no latent copied for a head: no array of cached_tokens × value_dim or of
# cached_tokens × num_heads × latent_dim, and the multiply-adds spent on w_vc do not grow with cached_tokens.
#
# One multiplication for each output is free on top of the products. A loop over heads is allowed; an array of all terms
# of a sum is not.
#
# By hand, with the three latents from above and two heads: head 0 is the head of the exercise above, with the output
# $[0.5, 0.5]$. Head 1 has the weights $[0, 0.25, 0.75]$ and a matrix whose rows are all $[7, 9]$. Its mixed latent
# adds to 1, so its output is $[7, 9]$.


# %% exercise="absorb_values_heads"
def absorb_values_heads(weights: np.ndarray, latents: np.ndarray, w_vc: np.ndarray) -> np.ndarray:
    """Outputs of all heads, without values.

    weights: (num_heads, new_tokens, cached_tokens), post-softmax
    latents: (cached_tokens, latent_dim)
    w_vc: (num_heads, latent_dim, value_dim)
    returns the outputs: (new_tokens, num_heads, value_dim), in the dtype of the inputs
    """
    ### BEGIN SOLUTION
    latent_sums = weights @ latents  # [h, s, c]
    outputs = latent_sums @ w_vc  # [h, s, v]
    return outputs.swapaxes(0, 1)  # [s, h, v]
    ### END SOLUTION


# %% check="absorb_values_heads"
check("absorb_values_heads", absorb_values_heads)

# %% [markdown] hints="absorb_values_heads"
# The hints of absorb_values_heads.

# %% [markdown]
# ## attend_absorbed
#
# *20 minutes · difficulty 3 of 3 · 4 points*
#
# Put the content path together, from the queries of all heads to their outputs:
#
# 1. each head's query through that head's `w_kc`, to latent space;
# 2. scores against the latents, times `scale`;
# 3. a softmax over the cached tokens;
# 4. the latents, mixed by these weights;
# 5. each mixture through that head's `w_vc`.
#
# | | shape |
# |---|---|
# | `q_nope` | (new_tokens, num_heads, nope_dim) |
# | `w_kc` | (num_heads, nope_dim, latent_dim) |
# | `latents` | (cached_tokens, latent_dim) |
# | `w_vc` | (num_heads, latent_dim, value_dim) |
# | `scale` | a float |
# | result: the outputs | (new_tokens, num_heads, value_dim) |
#
# Use the scale that is given, once. It is not $1/\sqrt{\text{nope\_dim}}$, since a real score has a rope part too, and it
# has nothing to do with latent_dim. There is no RoPE part here, and no mask: every new token sees every cached one.
# Scaled scores may be as large as 800 and as small as −800. An empty cache gives zeros.
#
# **Budget.** No key and no value is ever built: no array of cached_tokens × nope_dim or of cached_tokens × value_dim,
# and the multiply-adds spent on w_kc and w_vc do not grow with cached_tokens.
#
# Copies of the latents for each head break the budget as well. Scaling the queries, two multiplications for each score
# and one for each output are free on top of the products. The formula that the check shows beside the count is that of
# the products alone: a scale on the queries adds new_tokens · num_heads · nope_dim.
#
# By hand, one new token and two heads, with scale $\ln 2$, so that a score of 1 counts twice as much as a score of 0.
# Head 0 has the scores 1, 0, 1 of practice 1. Its weights are 2/5, 1/5 and 2/5, and with the $W_V$ from above its output
# is $[0.4, 0.6]$. Head 1 has the scores 1, 1, 3 of practice 2, hence the weights 1/6, 1/6 and 2/3. Its value matrix has
# the rows $[6,0]$, $[6,0]$, $[0,3]$, and its output is $[2, 2]$.


# %% exercise="attend_absorbed"
def attend_absorbed(
    q_nope: np.ndarray, w_kc: np.ndarray, latents: np.ndarray, w_vc: np.ndarray, scale: float
) -> np.ndarray:
    """Content attention of all heads, without keys and values.

    q_nope: (new_tokens, num_heads, nope_dim)
    w_kc: (num_heads, nope_dim, latent_dim)
    latents: (cached_tokens, latent_dim)
    w_vc: (num_heads, latent_dim, value_dim)
    scale: the factor on every score before the softmax
    returns the outputs: (new_tokens, num_heads, value_dim), in the dtype of the inputs
    """
    ### BEGIN SOLUTION
    q_absorbed = (q_nope * scale).swapaxes(0, 1) @ w_kc  # [h, s, c]
    scores = q_absorbed @ latents.T  # [h, s, t]
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    shares = shares / shares.sum(axis=-1, keepdims=True)
    outputs = shares @ latents @ w_vc  # [h, s, v]
    return outputs.swapaxes(0, 1)  # [s, h, v]
    ### END SOLUTION


# %% check="attend_absorbed"
check("attend_absorbed", attend_absorbed)

# %% [markdown] hints="attend_absorbed"
# The hints of attend_absorbed.

# %% [markdown]
# ## merge_partials
#
# *20 minutes · difficulty 3 of 3 · 4 points*
#
# A long cache is cut into parts, and each part is attended to by itself, with a softmax of its own. Each part gives an
# output, normalised within the part, and the natural logarithm of its sum of exponentials:
#
# $$\text{lse} = \ln \sum_{t\,\in\,\text{part}} e^{\text{score}_t}$$
#
# with scores that are already scaled. From these two numbers of each part, compute what one softmax over the whole
# cache would have given: its output, and its lse.
#
# | | shape |
# |---|---|
# | `outputs` | (parts, …, value_dim) |
# | `lses` | (parts, …) |
# | result, first: the output | (…, value_dim) |
# | result, second: the lse | (…) |
#
# The axes in between, the same in both inputs, may be any number of axes or none. Each entry of them is merged by
# itself. Where there are none, the merged lse is a 0-d array.
#
# A part that saw no token has lse $-\infty$. Its output may hold anything, NaN and infinity included, and must not leak
# into the result. Where all parts are empty, or where there are none, the output is 0 and the lse is $-\infty$. The lses
# may be near 900 or near −900, where an exponential overflows or vanishes. Return a tuple of two arrays.
#
# By hand, take head 0 of the exercise above and cut its cache after the first token. The first part has the one
# exponential 2 and the output $[1, 0]$. The second has the exponentials 1 and 2, which add to 3, and the output
# $[0, 1]$. So the lses are $\ln 2$ and $\ln 3$, the merged output is
# $\tfrac25 [1,0] + \tfrac35 [0,1] = [0.4, 0.6]$ and its lse is $\ln 5$.


# %% exercise="merge_partials"
def merge_partials(outputs: np.ndarray, lses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Attention over a whole cache, from the results of its parts.

    outputs: (parts, ..., value_dim), each normalised within its part; anything where the part is empty
    lses: (parts, ...), natural logarithms of sums of exponentials; -inf where the part is empty
    returns the output: (..., value_dim), and the lse: (...), in the dtype of the inputs
    """
    ### BEGIN SOLUTION
    largest = lses.max(axis=0, initial=-np.inf)
    largest = np.where(np.isneginf(largest), 0, largest)
    shares = np.exp(lses - largest)  # 0 for an empty part
    total = shares.sum(axis=0)
    live = np.where(shares[..., None] > 0, outputs, 0)
    weighted = (shares[..., None] * live).sum(axis=0)
    with np.errstate(divide="ignore"):
        return weighted / np.where(total > 0, total, 1)[..., None], largest + np.log(total)
    ### END SOLUTION


# %% check="merge_partials"
check("merge_partials", merge_partials)

# %% [markdown] hints="merge_partials"
# The hints of merge_partials.

# %% [markdown]
# ## merged_output_ratio
#
# *5 minutes · difficulty 1 of 3 · 1 point*
#
# After $W_{UV}$ comes the output projection $W_O$, which takes the outputs of all heads back to the hidden state. Head
# $h$ meets its own $W_{UV}$ and its own block of rows of $W_O$. Two matrices in a row, and nothing between them: why not
# multiply them once, offline? Compute what that costs in weights.
#
# * **merged**: one matrix (latent_dim, hidden_dim) for each head.
# * **apart**: one $W_{UV}$ (latent_dim, value_dim) and one block of $W_O$ (value_dim, hidden_dim) for each head.
#
# Return the elements of all heads merged, over the elements of all heads apart, as a float. The four sizes are ints and
# may be 0. Where the matrices kept apart have no elements, return `math.inf`.
#
# By hand, for hidden_dim 7, latent_dim 4, value_dim 2 and 3 heads: merged 84, apart 66, ratio 1.27.


# %% exercise="merged_output_ratio"
def merged_output_ratio(hidden_dim: int, latent_dim: int, value_dim: int, num_heads: int) -> float:
    """Elements of W_UV · W_O merged for every head, over elements of the two kept apart.

    hidden_dim, latent_dim: widths of the hidden state and of the cached latent
    value_dim: width of a head's value
    returns a ratio without unit; math.inf where nothing is kept apart
    """
    ### BEGIN SOLUTION
    merged = num_heads * latent_dim * hidden_dim
    apart = num_heads * value_dim * (latent_dim + hidden_dim)
    return merged / apart if apart else math.inf
    ### END SOLUTION


# %% check="merged_output_ratio"
check("merged_output_ratio", merged_output_ratio)

# %% [markdown] hints="merged_output_ratio"
# The hints of merged_output_ratio.

# %% [markdown]
# ## What you can now explain
#
# * Which weights make a query and a cache entry, and why only one of the two latents is normed on its way.
# * Why a weighted sum may be projected after it is taken, and what stands in each bracket.
# * What attention in latent space is, from query to output, and where the scale belongs.
# * How a softmax over a cut cache is put together again, from one output and one number a part.
# * Why engines keep $W_{UV}$ and $W_O$ apart.
#
# Try `attend_absorbed` on two halves of a cache and `merge_partials` on the results. What does `attend_absorbed` have to
# return besides its output?
#
# One part of the score is still missing: the one that knows positions. Chapter 4 shows why it cannot be absorbed.
