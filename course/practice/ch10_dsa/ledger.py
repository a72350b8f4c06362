# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Practice 10, second part: what sparse attention costs
#
# You write the ledger of DeepSeek sparse attention, ask it from which length on it pays, and weigh what it adds to the
# cache. Seven exercises, about 70 minutes. The lesson that goes with them is
# [10 DSA: what it saves, and what it does not](../../notebooks/ch10_dsa/costs.ipynb).
#
# Amounts are of **one request in one layer** that has an indexer, unless a statement says otherwise. The indexer scores
# every cached token; attention then meets at most `topk` of them, a number that need not be the model's own. A
# multiply-add is 2 FLOP. FLOP and bytes are ints, exact however large, so let no float in; lengths at which two costs
# meet, and ratios, are floats. Where the lesson's functions give names to what they return (`pair_flops(m).absorbed`),
# yours return plain tuples and dicts: `absorbed, expanded, indexer = pair_flops(m)`.
#
# `model("DeepSeek-V3.2")` is a `Model`. The fields that you need: `num_heads`, `latent_dim`, `nope_dim`, `rope_dim`,
# `value_dim`, `num_mla_layers`, and of the indexer `index_heads`, `index_dim` and `num_indexer_layers` (None, None and
# 0 without one). No width is 0. You may call your answers from above: the judge runs those cells first. Where one of
# them is not written yet, write its lines where you need them.
#
# In the examples by hand, "the small model" has 2 heads, latent_dim 3, nope_dim, rope_dim and value_dim 1, and 1
# indexer head of index_dim 2. `hint("pair_flops")` shows the first of three hints, and
# `case("pair_flops", "GLM-5.2", 123456)` the inputs of a case that a check named.
#
# `%judge` in a cell, after the import below, shows how far you are. In a browser it also gives your answers as a file,
# and takes one back.

# %%
import math

import numpy as np
from ledger import case, check, hint
from ledger.models import Model, model

# %% [markdown]
# ## pair_flops
#
# *8 minutes · difficulty 1 of 3 · 2 points*
#
# One query and one token that it meets are a pair. How many FLOP does a pair cost, all heads together? Count three
# ways:
#
# * **absorbed**: attention against the cache entry. Each head scores the latent and the rotary key, then mixes the
#   latent;
# * **expanded**: attention with the head's own key and value. It scores a key of a nope and a rope part, then mixes
#   the value;
# * **indexer**: each indexer head takes the product of its query with the token's one index key. 0 for a model without
#   an indexer.
#
# Only these products count: no projections, softmax, ReLU, head weights, scales. Return the three counts in this
# order, as ints.
#
# By hand, for the small model: 28, 12 and 4.


# %% exercise="pair_flops"
def pair_flops(model: "Model") -> tuple[int, int, int]:
    """FLOP of one query and one token, all heads together.

    model: its heads and widths, and those of the indexer
    returns (absorbed, expanded, indexer), ints
    """
    ### BEGIN SOLUTION
    absorbed = 2 * model.num_heads * (2 * model.latent_dim + model.rope_dim)
    expanded = 2 * model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim)
    indexer = 2 * model.index_heads * model.index_dim if model.index_heads else 0
    return absorbed, expanded, indexer
    ### END SOLUTION


# %% check="pair_flops"
check("pair_flops", pair_flops)

# %% [markdown] hints="pair_flops"
# The hints of pair_flops.

# %% [markdown]
# ## dsa_decode_ledger
#
# *12 minutes · difficulty 2 of 3 · 3 points*
#
# A request has `cached_tokens` tokens in its cache and decodes one more: **one query** meets the cached tokens, and
# not its own. What does it compute and read in one layer, dense and sparse?
#
# * **Dense** attention meets every cached token, in the absorbed form, and reads every cache entry.
# * **Sparse** attention first lets the indexer score every cached token; this reads every index key. Then attention
#   meets the picked tokens, in the absorbed form, and reads their entries alone. It picks `topk` tokens, or all where
#   there are fewer. The indexer runs even then.
#
# An entry is read once for all heads. `cache_format` sets its bytes: `"bf16_mla"` 2 · (latent_dim + rope_dim);
# `"fp8_ds_mla"` latent_dim + 4 for each started 128 of it + 2 · rope_dim; `"fp8_plain_mla"` latent_dim + rope_dim. For
# another name raise a `ValueError` that names these three. An index key is `index_dim` FP8 values and one fp32 scale,
# whatever the format of the entries. In a model without an indexer the picks come for nothing: 0 FLOP and 0 bytes.
#
# Return a dict of four ints: `dense_flops`, `sparse_flops`, `dense_bytes`, `sparse_bytes`. `cached_tokens` and `topk`
# may be 0. Nothing that is written counts.
#
# By hand, for the small model in bf16, 10 cached tokens and a topk of 4: FLOP $10 \cdot 28 = 280$ dense and
# $10 \cdot 4 + 4 \cdot 28 = 152$ sparse; bytes $10 \cdot 8 = 80$ and $10 \cdot 6 + 4 \cdot 8 = 92$.


# %% exercise="dsa_decode_ledger"
def dsa_decode_ledger(cached_tokens: int, model: "Model", topk: int, cache_format: str) -> dict[str, int]:
    """FLOP and bytes read of one decoded query in one layer, dense and sparse.

    cached_tokens: tokens in the request's cache
    model: its heads and widths, and those of the indexer
    topk: the most tokens that attention meets
    cache_format: "bf16_mla", "fp8_ds_mla" or "fp8_plain_mla"
    returns a dict of ints: "dense_flops", "sparse_flops", "dense_bytes", "sparse_bytes"
    """
    ### BEGIN SOLUTION
    formats = {
        "bf16_mla": 2 * (model.latent_dim + model.rope_dim),
        "fp8_ds_mla": model.latent_dim + 4 * -(-model.latent_dim // 128) + 2 * model.rope_dim,
        "fp8_plain_mla": model.latent_dim + model.rope_dim,
    }
    if cache_format not in formats:
        raise ValueError(f"no cache format {cache_format!r}; the choices are: {', '.join(formats)}")
    entry = formats[cache_format]
    index_key = model.index_dim + 4 if model.num_indexer_layers else 0
    absorbed, _, indexer = pair_flops(model)
    picked = min(cached_tokens, topk)
    return {
        "dense_flops": cached_tokens * absorbed,
        "sparse_flops": cached_tokens * indexer + picked * absorbed,
        "dense_bytes": cached_tokens * entry,
        "sparse_bytes": cached_tokens * index_key + picked * entry,
    }
    ### END SOLUTION


# %% check="dsa_decode_ledger"
check("dsa_decode_ledger", dsa_decode_ledger)

# %% [markdown] hints="dsa_decode_ledger"
# The hints of dsa_decode_ledger.

# %% [markdown]
# ## dsa_prefill_ledger
#
# *12 minutes · difficulty 2 of 3 · 3 points*
#
# A **whole prompt** of $L$ = `prompt_tokens` tokens is prefilled, each of them a query. How many FLOP do all queries
# cost together in one layer?
#
# * **Dense** attention runs with expanded keys and values: each query costs an expanded pair for each token that it
#   sees. No indexer runs.
# * In **sparse** attention the indexer scores each token that a query sees. Attention then meets `topk` of them, or
#   all where there are fewer, in the absorbed form, since each query has its own picks.
#
# There are two ways to count, and `exact` chooses:
#
# * `exact=True` adds up over positions. The query at position $p = 1, 2, \ldots, L$ sees $p$ tokens: itself and those
#   before it. It meets $\min(p, \text{topk})$ of them.
# * `exact=False` is the estimate one often reads: all queries together see half a square, $L^2/2$ pairs, and every one
#   of the $L$ queries, early ones too, meets $\min(L, \text{topk})$ tokens.
#
# Return a dict of two ints, `dense_flops` and `sparse_flops`. A pair's FLOP are even, so half a square of them is
# whole for an odd $L$ too. No projections. $L$ may be 0, and up to a million: a formula is shorter than a loop over
# positions, and far quicker.
#
# By hand, for the small model, 5 tokens and a topk of 2. Exact: 15 pairs are seen and $1 + 2 + 2 + 2 + 2 = 9$ met:
# $15 \cdot 12 = 180$ dense, $15 \cdot 4 + 9 \cdot 28 = 312$ sparse. Otherwise 12.5 seen and 10 met: 150 and 330.


# %% exercise="dsa_prefill_ledger"
def dsa_prefill_ledger(prompt_tokens: int, model: "Model", topk: int, exact: bool) -> dict[str, int]:
    """FLOP of a whole prompt in one layer, dense and sparse.

    prompt_tokens: tokens of the prompt
    model: its heads and widths, and those of the indexer
    topk: the most tokens that a query's attention meets
    exact: add up over positions, or half a square against a rectangle
    returns a dict of ints: "dense_flops", "sparse_flops"
    """
    ### BEGIN SOLUTION
    absorbed, expanded, indexer = pair_flops(model)
    picked = min(prompt_tokens, topk)
    twice_seen, met = prompt_tokens * prompt_tokens, prompt_tokens * picked
    if exact:
        twice_seen += prompt_tokens
        met -= picked * (picked - 1) // 2  # what the first queries cannot see yet
    return {
        "dense_flops": twice_seen * expanded // 2,
        "sparse_flops": twice_seen * indexer // 2 + met * absorbed,
    }
    ### END SOLUTION


# %% check="dsa_prefill_ledger"
check("dsa_prefill_ledger", dsa_prefill_ledger)

# %% [markdown] hints="dsa_prefill_ledger"
# The hints of dsa_prefill_ledger.

# %% [markdown]
# ## break_even_position
#
# *4 minutes · difficulty 1 of 3 · 1 point*
#
# Take one query of a prefill. At which position does its attention cost the same FLOP either way: dense, expanded keys
# and values for every token that it sees; or sparse, `topk` tokens in the absorbed form?
#
# This compares **attention alone**. The indexer is left out: it runs either way where a model has one. `topk` is at
# least 1. An absorbed pair is the dearer one in all cases, so that the position lies beyond `topk`. Return the position
# as a float, not rounded.
#
# By hand, for the small model and a topk of 6: $6 \cdot 28 / 12 = 14$.


# %% exercise="break_even_position"
def break_even_position(model: "Model", topk: int) -> float:
    """The position at which one query's dense and sparse attention cost the same.

    model: its heads and widths
    topk: tokens that the sparse query meets
    returns tokens that the query sees, a real number
    """
    ### BEGIN SOLUTION
    absorbed, expanded, _ = pair_flops(model)
    return topk * absorbed / expanded
    ### END SOLUTION


# %% check="break_even_position"
check("break_even_position", break_even_position)

# %% [markdown] hints="break_even_position"
# The hints of break_even_position.

# %% [markdown]
# ## break_even_prompt
#
# *20 minutes · difficulty 3 of 3 · 4 points*
#
# At which length does a **whole prompt** cost the same, dense and sparse? Below it dense is cheaper, above it sparse.
#
# * `exact` chooses how queries and tokens are counted, as in `dsa_prefill_ledger`.
# * `with_indexer=False`: both sides run the indexer, as DeepSeek-V3.2 does where it prefills a short prompt with
#   masked dense attention. Its cost is the same on both sides.
# * `with_indexer=True`: only the sparse side runs it, against a model that has none and is plainly dense.
#
# Take the ledger's formulas beyond `topk` at any real length $L$, and return the $L > 0$ at which they meet as a
# float, not rounded. In all cases an absorbed pair is dearer than an expanded one, and `topk` is at least 1, so that
# this $L$ lies beyond `topk`. Where sparse never gets cheaper, since the indexer costs as much for a pair as dense
# attention or more, return `math.inf`.
#
# By hand, for the small model and a topk of 6: half a square of 12 FLOP a pair against 6 tokens of 28 each gives
# $L^2/2 \cdot 12 = 6 \cdot 28 \cdot L$, so 28; with the indexer $12 - 4 = 8$ FLOP a pair are saved, and it is 42.
# Exact counts give 24.09 and 38.26.


# %% exercise="break_even_prompt"
def break_even_prompt(model: "Model", topk: int, exact: bool, with_indexer: bool) -> float:
    """The length from which on a prompt's sparse prefill costs less than its dense one.

    model: its heads and widths, and those of the indexer
    topk: the most tokens that a query's attention meets
    exact: as in dsa_prefill_ledger
    with_indexer: charge the indexer to the sparse side alone; else to both
    returns tokens of the prompt, a real number; math.inf where there is no such length
    """
    ### BEGIN SOLUTION
    absorbed, expanded, indexer = pair_flops(model)
    saved = expanded - indexer if with_indexer else expanded
    if saved <= 0:
        return math.inf
    ratio = absorbed / saved
    if not exact:
        return 2 * topk * ratio
    # L (L + 1) / 2 = ratio (topk L − topk (topk − 1) / 2)
    half = topk * ratio - 0.5
    return half + math.sqrt(half**2 - topk * (topk - 1) * ratio)
    ### END SOLUTION


# %% check="break_even_prompt"
check("break_even_prompt", break_even_prompt)

# %% [markdown] hints="break_even_prompt"
# The hints of break_even_prompt.

# %% [markdown]
# ## index_cache_overhead
#
# *8 minutes · difficulty 2 of 3 · 2 points*
#
# Sparse attention forgets no token, so it saves no memory. It adds some: the index keys. By what share does the cache
# of a token grow, in the whole model?
#
# `num_mla_layers` layers each hold one entry of the given `cache_format`, and `num_indexer_layers` of them hold one
# index key too (in some models most layers reuse the picks of a layer below, and own no indexer). Entries and keys
# have the bytes of `dsa_decode_ledger`. Return the bytes of all index keys over the bytes of all entries, as a float:
# 0.1 for a tenth, and 0.0 for a model without an indexer. For another format raise a `ValueError` that names the
# three.
#
# By hand, for the small model in bf16 with 4 layers, 2 of them with an indexer: $2 \cdot 6 / (4 \cdot 8) = 0.375$.


# %% exercise="index_cache_overhead"
def index_cache_overhead(model: "Model", cache_format: str) -> float:
    """Bytes of the index keys over bytes of the latent entries, in all layers.

    model: its widths, num_mla_layers, num_indexer_layers and index_dim
    cache_format: "bf16_mla", "fp8_ds_mla" or "fp8_plain_mla"
    returns a share; raises ValueError for another format
    """
    ### BEGIN SOLUTION
    # Of one cached token and no pick, dense attention reads the entry, sparse attention the index key.
    token = dsa_decode_ledger(1, model, 0, cache_format)
    keys = model.num_indexer_layers * token["sparse_bytes"]
    return keys / (model.num_mla_layers * token["dense_bytes"])
    ### END SOLUTION


# %% check="index_cache_overhead"
check("index_cache_overhead", index_cache_overhead)

# %% [markdown] hints="index_cache_overhead"
# The hints of index_cache_overhead.

# %% [markdown]
# ## rows_read
#
# *6 minutes · difficulty 1 of 3 · 1 point*
#
# With $k$ drafts, a step verifies $k + 1$ rows of one request at a time. Dense attention reads the cache once for all
# of them. In sparse attention each row picks tokens of its own. How many cache entries must be read, each once for all
# rows?
#
# `selections` is an int32 array (rows, topk) of token numbers, counted from 0. A row holds a token at most once, in
# any order; −1 fills the places of a row that has fewer tokens to pick from, and stands for none. Return the number of
# distinct tokens in all rows together, an int. There may be no rows, no places, or padding alone: 0.
#
# By hand: the rows `[3, 5, -1]` and `[5, 0, 3]` read tokens 0, 3 and 5, so 3.


# %% exercise="rows_read"
def rows_read(selections: np.ndarray) -> int:
    """Distinct tokens that the rows of one request read.

    selections: int32, (rows, topk), tokens that each row picks; −1 for none
    returns a count of tokens
    """
    ### BEGIN SOLUTION
    return len(np.unique(selections[selections >= 0]))
    ### END SOLUTION


# %% check="rows_read"
check("rows_read", rows_read)

# %% [markdown] hints="rows_read"
# The hints of rows_read.

# %% [markdown]
# ## What you can now explain
#
# * What a pair of a query and a token costs expanded, absorbed and in the indexer, and which widths decide.
# * Why decode gains more with the context, and which ratio it never passes.
# * Why a short prompt is dearer: its dense pairs are cheaper, and picks cannot be expanded.
# * What a break-even depends on: a position or a whole prompt, and who pays for the indexer.
# * Why verified rows share less of the reading under sparse attention.
#
# Try `dsa_prefill_ledger` at 4,096 tokens, exact and not. Which of the two books changes more, and why?
