# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Practice 7: a decode kernel
#
# You write the three parts of a decode kernel that go wrong most often, and the two lines of arithmetic that say how
# fast it can be. Five exercises, about 55 minutes. The lesson that goes with them is
# [7 a decode kernel](../../notebooks/ch07_decode_kernel/decode_kernel.ipynb).
#
# The rules are those of practice 1: results keep the floating dtype of the inputs (integers do not count); inputs are
# never changed, may be read-only and need not be contiguous; sizes of 0 and 1 are legal, and an empty result still has
# the right shape. `hint("split_plan")` shows the first of three hints, and `case("split_plan", "one token", 123456)`
# the inputs of a case that a check named.
#
# `%judge` in a cell, after the import below, shows how far you are. In a browser it also gives your answers as a file,
# and takes one back.

# %%
import math

import numpy as np
from ledger import case, check, hint
from ledger.machines import Machine, machine

# %% [markdown]
# ## online_softmax_step
#
# *20 minutes · difficulty 3 of 3 · 4 points*
#
# A kernel meets the cache one block of tokens at a time, and never has all scores at once. It keeps three things for
# each row (a head of a new token) and brings them up to date with each block:
#
# | | shape | over all tokens so far |
# |---|---|---|
# | `m` | (rows,) | the largest score |
# | `l` | (rows,) | $\sum_t e^{s_t - m}$ |
# | `acc` | (rows, value_dim) | $\sum_t e^{s_t - m}\, v_t$, not normalised |
#
# Do one such step. The block brings
#
# | | shape |
# |---|---|
# | `scores` | (rows, block), scaled already |
# | `values` | (block, value_dim), the same for every row |
#
# and you return the new `m`, `l` and `acc` as a tuple, as if all tokens so far had been there at once.
#
# * `m` is the *running* maximum: the largest of all scores so far, not of this block.
# * A masked token has the score −∞ and counts nothing. Its value is finite.
# * A row that has seen nothing but −∞ so far has the state (−∞, 0, 0). If it still sees nothing, it stays so, without
#   NaN.
# * A block without tokens changes nothing.
#
# Scores may differ by thousands, in either direction. Where the true factor is too small for a float, 0 is right.
#
# By hand: `m` $=0$, `l` $=2$, `acc` $=[4, 4]$ have seen two scores of 0. A block with the scores $\ln 4$ and 0 and the
# values $[8, 0]$ and $[0, 8]$ gives `m` $=\ln 4$, `l` $= 2/4 + 1 + 1/4 = 1.75$ and `acc` $= [1 + 8, 1 + 2] = [9, 3]$.


# %% exercise="online_softmax_step"
def online_softmax_step(
    m: np.ndarray, l: np.ndarray, acc: np.ndarray, scores: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The state of an online softmax after one more block.

    m, l: (rows,), largest score and sum of exponentials so far
    acc: (rows, value_dim), values weighted by those exponentials, not normalised
    scores: (rows, block), scaled; -inf where masked
    values: (block, value_dim)
    returns the new (m, l, acc), of the same shapes, in the dtype of the inputs
    """
    ### BEGIN SOLUTION
    m_new = np.maximum(m, scores.max(axis=1, initial=-np.inf))
    safe = np.where(np.isneginf(m_new), 0, m_new)  # -inf minus -inf is NaN
    rescale = np.exp(m - safe)  # [rows]
    weights = np.exp(scores - safe[:, None])  # [rows, block]
    return m_new, rescale * l + weights.sum(axis=1), rescale[:, None] * acc + weights @ values
    ### END SOLUTION


# %% check="online_softmax_step"
check("online_softmax_step", online_softmax_step)

# %% [markdown] hints="online_softmax_step"
# The hints of online_softmax_step.

# %% [markdown]
# ## split_plan
#
# *12 minutes · difficulty 2 of 3 · 3 points*
#
# One long request would keep one part of the GPU busy and leave the rest idle. So its cache is split, and each part is
# read by a program of its own. Plan who reads what: return a list of exactly `num_splits` pairs (start, stop), token
# numbers, half-open as Python's ranges are, such that
#
# * the parts follow each other and cover 0 … cached_tokens: each starts where the one before it stops;
# * every part that is not empty starts at a multiple of `block`, the number of tokens that the kernel loads at once;
# * the blocks are spread evenly: the parts' sizes, counted in blocks, differ by one at most. A block that is only
#   started, at the end of the cache, counts as one;
# * larger parts come first;
# * a part for which no block is left is (cached_tokens, cached_tokens). Such parts come last.
#
# cached_tokens may be 0; num_splits and block are at least 1.
#
# By hand: 10 tokens in 3 parts of blocks of 2 are 5 blocks, so 2, 2 and 1 of them: (0, 4), (4, 8), (8, 10). And 5 tokens
# in 4 parts of blocks of 4: (0, 4), (4, 5), (5, 5), (5, 5).


# %% exercise="split_plan"
def split_plan(cached_tokens: int, num_splits: int, block: int) -> list[tuple[int, int]]:
    """Which tokens of a cache each of several parts takes.

    cached_tokens: tokens to share out, maybe 0
    num_splits: parts, at least 1
    block: tokens of a block, at least 1; parts start at multiples of it
    returns num_splits pairs (start, stop), half-open
    """
    ### BEGIN SOLUTION
    blocks = -(-cached_tokens // block)
    least, more = divmod(blocks, num_splits)
    plan, start = [], 0
    for part in range(num_splits):
        size = least + (1 if part < more else 0)
        stop = min(start + size * block, cached_tokens)
        plan.append((start, stop))
        start = stop
    return plan
    ### END SOLUTION


# %% check="split_plan"
check("split_plan", split_plan)

# %% [markdown] hints="split_plan"
# The hints of split_plan.

# %% [markdown]
# ## gather_pages
#
# *10 minutes · difficulty 2 of 3 · 3 points*
#
# A serving engine keeps its cache in pages. A page holds a fixed number of neighbouring tokens of one request, and a
# request's pages lie anywhere. Its block table says where: entry $i$ is the number of the page with the tokens
# $i \cdot \text{page}$ to $(i + 1)\cdot\text{page} - 1$. Bring the entries of one request into the order of its tokens.
#
# | | shape |
# |---|---|
# | `pages` | (num_pages, page, width) |
# | `block_table` | (entries,), integers |
# | `length` | an int, the request's tokens |
# | result | (length, width), a new array |
#
# The last page need not be full, and other requests' pages are not yours: what belongs to no token of this request may
# be NaN. `page` is at least 1. The block table may be longer than the length needs. **Entries behind the last one that
# is needed may hold anything**, −1 and numbers far beyond the last page among them. A length of 0 gives shape (0,
# width).
#
# By hand, three pages of two tokens, each entry one number: pages $[10, 11]$, $[20, 21]$, $[30, 31]$, block table
# $[2, 0]$ and length 3 give $30, 31, 10$.


# %% exercise="gather_pages"
def gather_pages(pages: np.ndarray, block_table: np.ndarray, length: int) -> np.ndarray:
    """The cache entries of one request, in the order of its tokens.

    pages: (num_pages, page, width)
    block_table: (entries,), the number of the page for each stretch of the request
    length: tokens of the request
    returns (length, width), in the dtype of pages
    """
    ### BEGIN SOLUTION
    _, page, width = pages.shape
    needed = -(-length // page)
    own = pages[block_table[:needed]]  # [needed, page, width]
    return own.reshape(needed * page, width)[:length]
    ### END SOLUTION


# %% check="gather_pages"
check("gather_pages", gather_pages)

# %% [markdown] hints="gather_pages"
# The hints of gather_pages.

# %% [markdown]
# ## arithmetic_intensity
#
# *6 minutes · difficulty 1 of 3 · 2 points*
#
# How many FLOP does absorbed decode do for each byte of the cache that it reads? Compare the result with a machine's
# ridge, and you know what the kernel waits for.
#
# Each head of each new token meets every cached entry, first as a key (latent and rope) and then as a value (the latent
# alone). A multiply-add is 2 FLOP. An entry is read **once**, for all heads, for all new tokens, and for both uses, and
# takes `cache_bytes_per_token` bytes, whatever its format.
#
# Queries and outputs are not counted, nor is a causal mask between the new tokens. Return a float. Sizes may be 0; where
# the entry has 0 bytes, return `math.inf`.
#
# By hand, for 2 heads, 1 new token, latent_dim 3, rope_dim 1 and 8 bytes: $2 \cdot 2\,(4 + 3) / 8 = 3.5$.


# %% exercise="arithmetic_intensity"
def arithmetic_intensity(
    num_heads: int, new_tokens: int, latent_dim: int, rope_dim: int, cache_bytes_per_token: int
) -> float:
    """FLOP of absorbed decode for each byte of the cache.

    num_heads, new_tokens: their product is the number of query rows that meet an entry
    latent_dim, rope_dim: widths of the parts of an entry
    cache_bytes_per_token: bytes of an entry in one layer
    returns FLOP per byte; math.inf where an entry has no bytes
    """
    ### BEGIN SOLUTION
    rows = num_heads * new_tokens
    flops = 2 * rows * (latent_dim + rope_dim + latent_dim)
    return flops / cache_bytes_per_token if cache_bytes_per_token else math.inf
    ### END SOLUTION


# %% check="arithmetic_intensity"
check("arithmetic_intensity", arithmetic_intensity)

# %% [markdown] hints="arithmetic_intensity"
# The hints of arithmetic_intensity.

# %% [markdown]
# ## roofline_seconds
#
# *6 minutes · difficulty 1 of 3 · 2 points*
#
# What is the least time in which a machine can do `flops` of arithmetic and read `bytes` from its memory? A good kernel
# reads the next tile while it computes on this one, so the two overlap completely.
#
# `machine` is a `Machine`, the record behind every table of the course: `machine.bandwidth` is in bytes a second, and
# `machine.flops` maps names of dtypes to FLOP a second, such as `machine.flops["bf16"]`. `dtype` is that of the
# arithmetic.
#
# Return seconds as a float. Either amount may be 0. For a dtype that this machine has no rate for raise a `ValueError`
# that names those that it has.
#
# By hand, for a machine that reads 5 bytes and does 20 FLOP a second: 60 FLOP and 10 bytes take at least 3 seconds.


# %% exercise="roofline_seconds"
def roofline_seconds(flops: float, bytes: float, machine: "Machine", dtype: str) -> float:
    """The least time for some arithmetic and some reading that overlap.

    flops: FLOP, in the given dtype
    bytes: bytes read from the machine's memory
    machine: its bandwidth in bytes/s, and flops, FLOP/s by dtype
    returns seconds; raises ValueError for a dtype without a rate
    """
    ### BEGIN SOLUTION
    if dtype not in machine.flops:
        raise ValueError(f"no rate for {dtype!r}; the choices are: {', '.join(machine.flops)}")
    return max(flops / machine.flops[dtype], bytes / machine.bandwidth)
    ### END SOLUTION


# %% check="roofline_seconds"
check("roofline_seconds", roofline_seconds)

# %% [markdown] hints="roofline_seconds"
# The hints of roofline_seconds.

# %% [markdown]
# ## What you can now explain
#
# * How a softmax is done block by block, and why its maximum must be the running one.
# * How a long cache is shared out, and how a kernel finds a token in a paged one.
# * Why 16 heads wait for memory and 128 for arithmetic, and how to say so for a machine that you have not met.
#
# You can predict what a step of attention costs, and you have its kernel in hand. Chapter 8 asks whether one step may
# make more than one token.
