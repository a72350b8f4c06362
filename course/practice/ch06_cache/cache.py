# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Practice 6: cache, capacity, which path when
#
# You count what a token leaves in the cache, find out how many of them a GPU holds, and attend to a long context
# without ever holding its scores. Five exercises, about 50 minutes. The lesson that goes with them is
# [6 cache, capacity, which path when](../../notebooks/ch06_cache/cache.ipynb).
#
# The first four take a `Model`, the record behind every table of the course. `model("DeepSeek-V3")` is one. The fields
# that you need here: `num_heads`, `latent_dim`, `nope_dim`, `rope_dim`, `value_dim`, `num_mla_layers`,
# `num_indexer_layers` (0 without) and `index_dim` (None without). Counts are whole numbers, exact at any size.
#
# `hint("tokens_that_fit")` shows the first of three hints, and `case("tokens_that_fit", "less than a token", 123456)`
# the inputs of a case that a check named.
#
# `%judge` in a cell, after the import below, shows how far you are. In a browser it also gives your answers as a file,
# and takes one back.

# %%
import math

import numpy as np
from ledger import case, check, hint
from ledger.models import Model, model

# %% [markdown]
# ## cache_values_per_token
#
# *6 minutes · difficulty 1 of 3 · 1 point*
#
# How many values does a token leave in the cache of **one attention block**? A layer has one of them, in LongCat-Flash
# two. Count twice:
#
# * **latent**: what latent attention stores, one entry of latent and rotary key that all heads share;
# * **full**: what would be stored if keys and values were expanded and cached for every head, as MHA does.
#
# A head's full key is as wide as the query that it meets, nope and rope part. The rotary part is the same in every
# head, and each head's key repeats it. A value is `value_dim` wide, which may differ from a key's width.
#
# Return the two counts in this order, as ints. Widths of 0 are legal.
#
# By hand, for latent_dim 3, nope_dim 2, rope_dim 1, value_dim 2 and 2 heads: latent 4, full 10.


# %% exercise="cache_values_per_token"
def cache_values_per_token(model: "Model") -> tuple[int, int]:
    """Values that one token leaves in the cache of one attention block.

    model: its num_heads, latent_dim, nope_dim, rope_dim and value_dim
    returns (latent, full): the shared entry, and the keys and values of all heads
    """
    ### BEGIN SOLUTION
    key_dim = model.nope_dim + model.rope_dim
    return model.latent_dim + model.rope_dim, model.num_heads * (key_dim + model.value_dim)
    ### END SOLUTION


# %% check="cache_values_per_token"
check("cache_values_per_token", cache_values_per_token)

# %% [markdown] hints="cache_values_per_token"
# The hints of cache_values_per_token.

# %% [markdown]
# ## cache_bytes_per_token
#
# *8 minutes · difficulty 2 of 3 · 2 points*
#
# How many bytes does an entry take in **one attention block**? Three layouts are in use:
#
# | `cache_format` | latent | scales | rope part |
# |---|---|---|---|
# | `"bf16_mla"` | bf16 | none | bf16 |
# | `"fp8_ds_mla"` | e4m3 | one fp32 number for each started 128 values of the latent | bf16 |
# | `"fp8_plain_mla"` | e4m3 | none in the entry: one scale serves the whole cache | e4m3 |
#
# bf16 takes 2 bytes a value, e4m3 takes 1, fp32 takes 4. Compute from the model's `latent_dim` and `rope_dim`: the
# cases have other widths than DeepSeek's. The key that an indexer caches is not part of the entry. Nothing is rounded
# up to a page.
#
# Return an int. For any other name raise a `ValueError` that names the three formats.
#
# By hand, for latent_dim 130 and rope_dim 2: 264, 142 (130 + 2 scales of 4 + 4) and 132.


# %% exercise="cache_bytes_per_token"
def cache_bytes_per_token(model: "Model", cache_format: str) -> int:
    """Bytes of one token's entry in the cache of one attention block.

    model: its latent_dim and rope_dim
    cache_format: "bf16_mla", "fp8_ds_mla" or "fp8_plain_mla"
    returns bytes, without an indexer's key; raises ValueError for another format
    """
    ### BEGIN SOLUTION
    scales = -(-model.latent_dim // 128)
    layouts = {
        "bf16_mla": 2 * model.latent_dim + 2 * model.rope_dim,
        "fp8_ds_mla": model.latent_dim + 4 * scales + 2 * model.rope_dim,
        "fp8_plain_mla": model.latent_dim + model.rope_dim,
    }
    if cache_format not in layouts:
        raise ValueError(f"no cache format {cache_format!r}; the choices are: {', '.join(layouts)}")
    return layouts[cache_format]
    ### END SOLUTION


# %% check="cache_bytes_per_token"
check("cache_bytes_per_token", cache_bytes_per_token)

# %% [markdown] hints="cache_bytes_per_token"
# The hints of cache_bytes_per_token.

# %% [markdown]
# ## tokens_that_fit
#
# *10 minutes · difficulty 2 of 3 · 2 points*
#
# An engine has loaded the weights and set aside what its kernels need. `free_bytes` are left **on each GPU**. How many
# whole tokens does **one GPU** hold?
#
# A token leaves on a GPU:
#
# * an entry in each of `num_mla_layers` layers, in the given format (see the exercise above; the cases name these three
#   formats only);
# * a key in each of the `num_indexer_layers` layers that own an indexer, `index_dim + 4` bytes whatever the format.
#   Models without one have 0 such layers, and `index_dim` is None.
#
# The MTP layer is not counted, and no page is rounded up.
#
# `tensor_parallel` is the number of GPUs that share the heads of each layer. Every one of them needs the whole entry
# for the heads that it has.
#
# `free_bytes` is positive, an int or a float; `tensor_parallel` is a positive int; a token takes at least one byte.
# Return an int, rounded down, exact for ints of any size. You may call your `cache_bytes_per_token`: the judge runs the
# cells above this one first. If it is not written yet, so that it raises, write its three lines here.
#
# By hand, for 2 layers, latent_dim 3, rope_dim 1 and bf16: 16 bytes a token, so 1,000 bytes hold 62 tokens.


# %% exercise="tokens_that_fit"
def tokens_that_fit(free_bytes: float, model: "Model", cache_format: str, tensor_parallel: int) -> int:
    """Whole tokens whose cache one GPU holds, in all layers.

    free_bytes: bytes left for the cache on each GPU
    model: its widths, num_mla_layers, num_indexer_layers and index_dim
    cache_format: "bf16_mla", "fp8_ds_mla" or "fp8_plain_mla"
    tensor_parallel: GPUs that share the heads
    returns a count of tokens, rounded down
    """
    ### BEGIN SOLUTION
    entry = cache_bytes_per_token(model, cache_format)
    bytes_per_token = model.num_mla_layers * entry
    if model.num_indexer_layers:
        bytes_per_token += model.num_indexer_layers * (model.index_dim + 4)
    return int(free_bytes // bytes_per_token)  # tensor_parallel changes nothing
    ### END SOLUTION


# %% check="tokens_that_fit"
check("tokens_that_fit", tokens_that_fit)

# %% [markdown] hints="tokens_that_fit"
# The hints of tokens_that_fit.

# %% [markdown]
# ## requests_that_fit
#
# *4 minutes · difficulty 1 of 3 · 1 point*
#
# The same GPU serves requests of `cached_tokens` tokens each, all cached in full. How many whole requests does it hold?
#
# The arguments mean what they mean above, and `cached_tokens` is a positive int. Requests share nothing here. Return an
# int, rounded down.
#
# By hand: 1,000 bytes hold 62 of the tokens above, so 6 requests of 10 tokens.


# %% exercise="requests_that_fit"
def requests_that_fit(
    free_bytes: float, cached_tokens: int, model: "Model", cache_format: str, tensor_parallel: int
) -> int:
    """Whole requests of cached_tokens each whose cache one GPU holds.

    free_bytes, model, cache_format, tensor_parallel: as in tokens_that_fit
    cached_tokens: tokens of each request
    returns a count of requests, rounded down
    """
    ### BEGIN SOLUTION
    tokens = tokens_that_fit(free_bytes, model, cache_format, tensor_parallel)
    return tokens // cached_tokens
    ### END SOLUTION


# %% check="requests_that_fit"
check("requests_that_fit", requests_that_fit)

# %% [markdown] hints="requests_that_fit"
# The hints of requests_that_fit.

# %% [markdown]
# ## merge_chunked_context
#
# *20 minutes · difficulty 3 of 3 · 4 points*
#
# A context may be too long to score at once. Read its cache `chunk` entries at a time, attend to each chunk by itself,
# and merge the results, so that they equal one pass over everything.
#
# | | shape |
# |---|---|
# | `queries`: absorbed, [content in latent space, rope] | (new_tokens, num_heads, latent_dim + rope_dim) |
# | `cache`: entries [latent, rope], shared by all heads | (cached_tokens, latent_dim + rope_dim) |
# | result, first: the mixed latents | (new_tokens, num_heads, latent_dim) |
# | result, second: `lse` | (new_tokens, num_heads) |
#
# The key of a cached token is its whole entry; its value is the first `latent_dim` features. With the scores
# $x_{sht} = \text{scale}\cdot q_{sh}\cdot\text{entry}_t$ over **all** cached tokens:
#
# $$\text{lse}_{sh} = \ln\sum_t e^{x_{sht}} \qquad \text{mixed}_{sh} = \sum_t e^{x_{sht}-\text{lse}_{sh}}\,c_t$$
#
# Every new token sees every cached one. The logarithm is the natural one. Scores may be as large as ±800, where $e^x$
# leaves the range of numbers: never take the exponential of a bare score. The last chunk may be shorter; `chunk` is at
# least 1 and may be longer than the cache. An empty cache gives 0 and −inf, without NaN. `latent_dim` and `scale` are
# given as numbers; the scale need not fit the width.
#
# **Budget.** No array of cached_tokens × num_heads, nor any other as long as the cache: entries, scores and weights are
# taken one chunk at a time, and each entry is scored once and mixed once.
#
# A slice of the cache is no new array. Multiplications element by element, over a chunk's scores and over the result,
# are free twice in each chunk. So are scaling the queries, and mixing whole entries of which you then keep the latent.
#
# By hand: entries $[1,0,0\,|\,0]$, $[0,1,0\,|\,0]$, $[0,0,1\,|\,1]$, the query $[1,0,1\,|\,1]$, scale $\ln 2$ and
# chunks of 2. The exponentials of the scores are 2, 1 and 4. The first chunk gives $[\frac23,\frac13,0]$ and $\ln 3$,
# the second $[0,0,1]$ and $\ln 4$. Together: $[\frac27,\frac17,\frac47]$ and $\ln 7$.


# %% exercise="merge_chunked_context"
def merge_chunked_context(
    queries: np.ndarray, cache: np.ndarray, chunk: int, latent_dim: int, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Absorbed attention to a cache that is read one chunk at a time.

    queries: (new_tokens, num_heads, latent_dim + rope_dim)
    cache: (cached_tokens, latent_dim + rope_dim)
    chunk: entries that are read at once
    scale: factor of the scores before the softmax
    returns the mixed latents (new_tokens, num_heads, latent_dim) and the natural log of the sum of exponentials
    (new_tokens, num_heads), both in the dtype of the inputs
    """
    ### BEGIN SOLUTION
    rows, dtype = queries.shape[:2], np.result_type(queries, cache)
    mixed, lse = np.zeros((*rows, latent_dim), dtype), np.full(rows, -np.inf, dtype)
    for start in range(0, len(cache), chunk):
        entries = cache[start : start + chunk]
        scores = scale * (queries @ entries.T)  # [s, h, chunk]
        merged_lse = np.logaddexp(lse, np.logaddexp.reduce(scores, axis=-1))
        weights = np.exp(scores - merged_lse[..., None])
        mixed = np.exp(lse - merged_lse)[..., None] * mixed + weights @ entries[:, :latent_dim]
        lse = merged_lse
    return mixed, lse
    ### END SOLUTION


# %% check="merge_chunked_context"
check("merge_chunked_context", merge_chunked_context)

# %% [markdown] hints="merge_chunked_context"
# The hints of merge_chunked_context.

# %% [markdown]
# ## What you can now explain
#
# * What a token costs in values and in bytes, and why the full cache is tens of times larger.
# * Why more GPUs under tensor parallelism hold no more tokens, and which layers count.
# * Why a chunk's result needs its log-sum-exp beside it, and how two of them become one.
#
# Chapter 7 turns the last exercise into a kernel: the chunks become splits that run at the same time, and the merge
# becomes a kernel of its own.
