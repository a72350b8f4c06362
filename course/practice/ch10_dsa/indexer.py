# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Practice 10: score, select, attend
#
# You build sparse attention from its parts, as DeepSeek-V3.2 has them: an indexer scores every cached token from small
# FP8 keys, the best are selected, and attention runs over those alone. Six exercises, about 80 minutes. The lesson that
# goes with them is [10 the indexer](../../notebooks/ch10_dsa/indexer.ipynb).
#
# The rules are those of practice 1: results keep the floating dtype of the inputs (integers do not count); inputs are
# never changed, may be read-only and need not be contiguous; sizes of 0 and 1 are legal, and an empty result still has
# the right shape. `hint("index_scores")` shows the first of three hints, and `case("index_scores", "odd sizes", 123456)`
# the inputs of a case that a check named.
#
# `%judge` in a cell, after the import below, shows how far you are. In a browser it also gives your answers as a file,
# and takes one back.

# %%
import numpy as np
from ledger import case, check, hint

# %% [markdown]
# ## index_scores
#
# *8 minutes · difficulty 1 of 3 · 2 points*
#
# How much would each cached token matter to each query? The indexer has heads of its own. Query $s$ has a small vector
# $q_{s,h}$ and a weight $w_{s,h}$ in each of them; a cached token $t$ has one key $k_t$ for all heads. The score is
#
# $$I_{s,t} = \sum_h w_{s,h} \cdot \mathrm{ReLU}(q_{s,h} \cdot k_t), \qquad \mathrm{ReLU}(x) = \max(x, 0)$$
#
# | | shape |
# |---|---|
# | `q_index` | (queries, heads, dim) |
# | `k_index` | (keys, dim) |
# | `weights` | (queries, heads), of either sign |
# | result: the scores | (queries, keys) |
#
# No factor beside the weights, no softmax and no mask: every query meets every key.
#
# By hand: one query with two heads, $[1, 0]$ of weight 2 and $[0, -1]$ of weight 3, and the keys $[4, 1]$, $[-5, -2]$
# and $[-1, 6]$. The first head gives 4, −5 and −1, the second −1, 2 and −6. What is negative counts 0, so the scores
# are 8, 6 and 0.


# %% exercise="index_scores"
def index_scores(q_index: np.ndarray, k_index: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The indexer's score of every key for every query.

    q_index: (queries, heads, dim); k_index: (keys, dim), shared by the heads
    weights: (queries, heads), what each head counts
    returns (queries, keys), in the dtype of the inputs
    """
    ### BEGIN SOLUTION
    products = np.maximum(q_index @ k_index.T, 0)  # [s, h, t]
    return np.einsum("sh,sht->st", weights, products)
    ### END SOLUTION


# %% check="index_scores"
check("index_scores", index_scores)

# %% [markdown] hints="index_scores"
# The hints of index_scores.

# %% [markdown]
# ## quantize_index_keys
#
# *20 minutes · difficulty 3 of 3 · 4 points*
#
# An index key is stored in FP8: one byte for each of its values, and one fp32 scale for the key. Turn `k`, float64 or
# float32 of shape (keys, dim), into a pair:
#
# | | |
# |---|---|
# | `codes` | (keys, dim), uint8 |
# | `scales` | (keys,), float32 |
#
# **The scale** of a key is a power of two, so that dividing by it changes no digit. With $a$ for the key's largest
# magnitude, or $10^{-4}$ where that is larger, it is the least power of two that is at least $a / 448$:
# $2^{\lceil \log_2(a / 448) \rceil}$. (448 is the largest number of the format. All values are finite, and their
# magnitudes lie below $10^{12}$.) Mind rounding: just above a power of two `np.log2` often returns a whole number.
#
# **The code** of a value is the number of the format e4m3 next to value / scale, as a byte `SEEEEMMM`:
#
# | bits | | the number |
# |---|---|---|
# | $S$ | 1 for minus | |
# | $E = 1 \ldots 15$, $M = 0 \ldots 7$ | normal | $\pm 2^{E - 7} \cdot (1 + M/8)$ |
# | $E = 0$, $M = 0 \ldots 7$ | subnormal | $\pm 2^{-6} \cdot M/8$ |
# | $E = 15$, $M = 7$ | NaN, never used here | |
#
# Under this scale nothing lies beyond ±448.
#
# * In the middle between two numbers, take the one whose code is even.
# * Rounding may carry into the next power of two: 15.5 becomes 16.
# * The sign stays, also where the number is 0 or becomes 0: −0.0 has the code `0x80`.
#
# A key without values has the scale of a key of zeros. NumPy has no FP8: build the codes with integers. Work on whole
# arrays: a loop over the values passes too, but a cache has millions of them.
#
# By hand: the key $[448, -1, 0.0625, 17]$ has $a = 448$, so the scale is 1. 448 is $2^8 \cdot 1.75$, the code
# `0 1111 110` = 126; −1 is `1 0111 000` = 184; $0.0625 = 2^{-4}$ is `0 0011 000` = 24. And 17 lies in the middle of 16,
# `0 1011 000`, and 18, `0 1011 001`: the even code is 88. The key $[1, -2]$ has $a / 448 = 0.00446$, so the scale is
# $2^{-7}$; its values over the scale are 128 and −256, the codes 112 and 248.


# %% exercise="quantize_index_keys"
def quantize_index_keys(k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index keys as e4m3 codes with one power of two each.

    k: (keys, dim), finite
    returns (codes, scales): (keys, dim) uint8, (keys,) float32
    """
    ### BEGIN SOLUTION
    largest = np.maximum(np.abs(k).max(axis=1, initial=0), 1e-4)
    fraction, exponent = np.frexp(largest / 448)  # fraction · 2^exponent, 0.5 <= fraction < 1
    scales = np.ldexp(np.float32(1), exponent - (fraction == 0.5))
    x = np.abs(k) / scales[:, None]
    power = np.frexp(np.maximum(x, 2.0**-6))[1] - 1  # of the leading bit; subnormals share the least
    eighths = np.rint(np.ldexp(x, 3 - power))  # 8 … 16, and 0 … 8 where subnormal; 16 is a carry
    codes = (8 * (power + 6) + eighths).astype(np.uint8)
    return codes | np.where(np.signbit(k), 128, 0).astype(np.uint8), scales
    ### END SOLUTION


# %% check="quantize_index_keys"
check("quantize_index_keys", quantize_index_keys)

# %% [markdown] hints="quantize_index_keys"
# The hints of quantize_index_keys.

# %% [markdown]
# ## select_tokens
#
# *12 minutes · difficulty 2 of 3 · 3 points*
#
# Select the tokens that each query attends to: those with the `topk` largest scores among the tokens that it sees.
#
# | | |
# |---|---|
# | `scores` | (queries, keys), of either sign |
# | `lengths` | (queries,), integers from 0 to keys: query $s$ sees the tokens $0 \ldots$ `lengths[s]` − 1 |
# | `topk` | an int, at least 1, maybe larger than keys |
# | result: the tokens' numbers | (queries, topk), **int32** |
#
# * A token stands at most once in a row.
# * A query that sees fewer than `topk` tokens selects all of them, and −1 fills its row up **behind** them.
# * Scores that a query sees are finite. **What lies beyond its length may hold anything**, NaN and +∞ among it.
#
# **How it is graded.** As sets: the order of the tokens in a row is yours. Where equal scores meet at the edge (ReLU
# makes many zeros), any choice among them is right; −0 and +0 are equal.
#
# By hand: the scores 3, 7, 5, 7 with length 4 and `topk` 2 give `[1, 3]` in any order; with length 3, `[1, 2]`; with
# length 1, `[0, -1]`. The scores 4, 0, 0 with length 3 and `topk` 2 give `[0, 1]` or `[0, 2]`.


# %% exercise="select_tokens"
def select_tokens(scores: np.ndarray, lengths: np.ndarray, topk: int) -> np.ndarray:
    """The tokens with the largest scores of each query, in any order.

    scores: (queries, keys); lengths: (queries,), tokens that each query sees
    topk: tokens to select
    returns (queries, topk), int32, -1 behind the last token where a query sees fewer
    """
    ### BEGIN SOLUTION
    places = np.arange(scores.shape[1])
    visible = np.where(places < lengths[:, None], scores, -np.inf)
    best = np.argsort(-visible, axis=1, kind="stable")[:, :topk]  # what is not seen stands last
    selected = np.full((len(scores), topk), -1, np.int32)
    selected[:, : best.shape[1]] = np.where(places[:topk] < lengths[:, None], best, -1)
    return selected
    ### END SOLUTION


# %% check="select_tokens"
check("select_tokens", select_tokens)

# %% [markdown] hints="select_tokens"
# The hints of select_tokens.

# %% [markdown]
# ## physical_slots
#
# *8 minutes · difficulty 2 of 3 · 2 points*
#
# The cache is paged, as in `gather_pages`: a page holds `page` neighbouring tokens of one request, and the request's
# block table says in its entry $i$ which page holds the tokens $i \cdot \text{page}$ to $(i + 1) \cdot \text{page} - 1$.
# A kernel that gathers single tokens wants the number of each token's slot, counted over all pages of the pool: slot 0
# is the first of page 0, slot `page` the first of page 1.
#
# | | |
# |---|---|
# | `indices` | (queries, topk), the selected tokens, integers; −1 where there is none |
# | `block_table` | (queries, entries), integers, at least one entry: row $s$ is that of query $s$'s request |
# | `page` | an int, at least 1 |
# | result: the slots | (queries, topk), **int64** |
#
# A −1 stays −1. The other indices lie within their block table. **Entries that no index needs may hold anything.** A
# pool may have more slots than int32 can count, although its pages and tokens are numbered in int32.
#
# By hand, with pages of 4: a block table of $[7, 2]$ and the indices 5, 0, −1 give $2 \cdot 4 + 1 = 9$, $7 \cdot 4 = 28$
# and −1.


# %% exercise="physical_slots"
def physical_slots(indices: np.ndarray, block_table: np.ndarray, page: int) -> np.ndarray:
    """The slots of selected tokens in a paged cache.

    indices: (queries, topk), tokens of each query's request, or -1
    block_table: (queries, entries), the number of the page for each stretch of the request
    page: tokens of a page
    returns (queries, topk), int64, -1 where the index is -1
    """
    ### BEGIN SOLUTION
    slots = np.full(indices.shape, -1, np.int64)
    query, place = np.nonzero(indices >= 0)
    entry, offset = np.divmod(indices[query, place], page)
    slots[query, place] = block_table[query, entry].astype(np.int64) * page + offset
    return slots
    ### END SOLUTION


# %% check="physical_slots"
check("physical_slots", physical_slots)

# %% [markdown] hints="physical_slots"
# The hints of physical_slots.

# %% [markdown]
# ## sparse_decode
#
# *18 minutes · difficulty 3 of 3 · 4 points*
#
# Absorbed attention over the selected entries alone. It is `decode_absorbed` up to the mixed latents, but each new token
# has a list of its own, the same for all of its heads.
#
# | | |
# |---|---|
# | `queries` | (new_tokens, num_heads, latent_dim + rope_dim) |
# | `cache` | (cached_tokens, latent_dim + rope_dim), shared by all heads |
# | `indices` | (new_tokens, topk), integers: the entries that each new token attends to |
# | `latent_dim` | an int: the first latent_dim features of an entry are the latent |
# | `scale` | a float that the scores are multiplied by |
# | result: the mixed latents | (new_tokens, num_heads, latent_dim) |
#
# A score is query times *whole* entry, times `scale`; the softmax runs over the new token's list, for each head; what
# the weights mix are the latents of the list.
#
# * An index counts only if it is 0 or more **and** below cached_tokens. −1 and any other number name nothing, wherever
#   they stand. No index that counts stands twice in a list.
# * A new token whose list names nothing gives 0. cached_tokens and topk may be 0.
# * **Entries that are in no list may be NaN**, entry 0 among them: mind that 0 · NaN is NaN.
# * Scores may be in the thousands.
#
# **Budget.** Work follows the picks, not the cache: nothing is made or multiplied for entries that are in no list, and
# each new token meets its own picks alone.
#
# Free on top of the products are scaling the queries or the scores, two more multiplications for each score, one for each
# result, and mixing whole entries of which you then keep the latent.
#
# By hand, one head, scale 0.5, latent_dim 3, the query [0, 0, 0 | 2, 0], and entries whose latents are the rows of the
# identity and whose rope keys are (ln 2, 5), (0, 7) and (0, 9). The list [2, −1, 0] leaves the entries 2 and 0: their
# scaled scores are 0 and ln 2, the weights 1/3 and 2/3, and the result is [2/3, 0, 1/3].


# %% exercise="sparse_decode"
def sparse_decode(
    queries: np.ndarray, cache: np.ndarray, indices: np.ndarray, latent_dim: int, scale: float
) -> np.ndarray:
    """Absorbed attention of every head over each new token's own selection.

    queries: (new_tokens, num_heads, latent_dim + rope_dim); cache: (cached_tokens, latent_dim + rope_dim)
    indices: (new_tokens, topk), entries of the cache; what is no entry counts for nothing
    returns the mixed latents: (new_tokens, num_heads, latent_dim), in the dtype of queries and cache
    """
    ### BEGIN SOLUTION
    mixed = np.zeros((*queries.shape[:2], latent_dim), np.result_type(queries, cache))
    for row, picks in enumerate(indices):
        entries = cache[picks[(picks >= 0) & (picks < len(cache))]]  # [picks, c + r]
        if len(entries):
            scores = (queries[row] * scale) @ entries.T  # [h, picks]
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed[row] = weights @ entries[:, :latent_dim] / weights.sum(axis=1, keepdims=True)
    return mixed
    ### END SOLUTION


# %% check="sparse_decode"
check("sparse_decode", sparse_decode)

# %% [markdown] hints="sparse_decode"
# The hints of sparse_decode.

# %% [markdown]
# ## masked_prefill
#
# *12 minutes · difficulty 2 of 3 · 3 points*
#
# A short prompt is prefilled as dense attention with a mask: every head has its own keys and values, all scores are
# computed, and those of tokens that were not selected count for nothing. Write it.
#
# | | shape |
# |---|---|
# | `q` | (queries, num_heads, qk_dim) |
# | `k` | (keys, num_heads, qk_dim) |
# | `v` | (keys, num_heads, value_dim) |
# | `indices` | (queries, topk), integers: the keys that each query attends to, for all heads |
# | `scale` | a float that the scores are multiplied by |
# | result | (queries, num_heads, value_dim) |
#
# * Head $h$ of query $s$ takes the softmax of scale · $q_{s,h} \cdot k_{t,h}$ over the keys $t$ in its list, and mixes
#   the values $v_{t,h}$.
# * −1 names no key, wherever it stands. The other indices lie between 0 and keys − 1, and none stands twice in a row.
# * The list alone is the mask: put no causal mask on top. (An indexer selects no future token; a case may.)
# * A query whose list names nothing gives 0, without NaN. Keys and values are finite; scores may be in the thousands.
#
# By hand, one head of width 1, scale 1: the query 1, the keys 0, ln 3 and 9, and the values 8, 4 and 100. The list
# [1, 0] has the weights 3/4 and 1/4, so the result is $3 + 2 = 5$; the third key counts for nothing.


# %% exercise="masked_prefill"
def masked_prefill(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, indices: np.ndarray, scale: float
) -> np.ndarray:
    """Dense attention in which each query sees its own selection alone.

    q: (queries, num_heads, qk_dim); k: (keys, num_heads, qk_dim); v: (keys, num_heads, value_dim)
    indices: (queries, topk), keys of each query, or -1
    returns (queries, num_heads, value_dim), in the dtype of q, k and v; 0 for a query without a key
    """
    ### BEGIN SOLUTION
    seen = np.zeros((len(q), len(k)), bool)
    query, place = np.nonzero(indices >= 0)
    seen[query, indices[query, place]] = True
    scores = np.where(seen, scale * np.einsum("shd,thd->hst", q, k), -np.inf)
    largest = scores.max(axis=2, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(largest), 0, largest))  # -inf minus -inf is NaN
    total = weights.sum(axis=2, keepdims=True)
    return np.einsum("hst,thv->shv", weights / np.where(total == 0, 1, total), v)
    ### END SOLUTION


# %% check="masked_prefill"
check("masked_prefill", masked_prefill)

# %% [markdown] hints="masked_prefill"
# The hints of masked_prefill.

# %% [markdown]
# ## What you can now explain
#
# * What the indexer computes for each pair of a query and a cached token, and why its keys fit in 132 bytes.
# * Why a power of two is a good scale, and where the rounding then happens.
# * Why a selection is a set, and what stands where a query sees fewer tokens than it may select.
# * Why sparse attention reads the cache through two tables: the selection, and the block table.
# * Why gathering and masking give the same result.
