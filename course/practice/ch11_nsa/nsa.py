# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Practice 11: native sparse attention
#
# You build one decoding step of native sparse attention out of its parts: means of blocks, scores for the blocks that
# are read in full, the choice among them, a window, three gates. Seven exercises, about 90 minutes. The lesson that
# goes with them is [11 native sparse attention](../../notebooks/ch11_nsa/nsa.ipynb).
#
# The rules are those of practice 1: results keep the floating dtype of the inputs; inputs are never changed, may be
# read-only and need not be contiguous; sizes of 0 and 1 are legal where nothing else is said. Counts and positions are
# ints, and positions count from 0. `hint("pick_blocks")` shows the first of three hints, and
# `case("pick_blocks", "odd sizes", 123456)` the inputs of a case that a check named.
#
# `%judge` in a cell, after the import below, shows how far you are. In a browser it also gives your answers as a file,
# and takes one back.

# %%
import numpy as np
from ledger import case, check, hint

# %% [markdown]
# ## compress_blocks
#
# *8 minutes · difficulty 1 of 3 · 2 points*
#
# The compressed branch sees one key in place of many. Block $i$ holds `block` tokens, from token $i \cdot$ `stride`
# on. Return the mean of the keys of each block, (blocks, dim), for `keys` of (tokens, dim).
#
# * **Complete blocks only**: one whose last token is not there yet has no row. With fewer tokens than `block` the
#   result is (0, dim).
# * Blocks overlap where `stride` is less than `block`, and leave gaps where it is more.
#
# (A model may learn how to compress; here it is the mean.) `block` and `stride` are at least 1.
#
# By hand, blocks of 4 tokens, 2 apart: the tokens $(2, 0), (4, 0), (6, 4), (8, 4), (0, 8), (2, 8), (7, 7)$ make
# two blocks, tokens 0 to 3 and 2 to 5, with the means $(5, 2)$ and $(4, 6)$. Token 6 would be in a third one, which
# has only begun.


# %% exercise="compress_blocks"
def compress_blocks(keys: np.ndarray, block: int, stride: int) -> np.ndarray:
    """The mean of each complete block.

    keys: (tokens, dim)
    block: tokens of a block
    stride: tokens from the start of one block to the start of the next
    returns (complete blocks, dim)
    """
    ### BEGIN SOLUTION
    starts = range(0, len(keys) - block + 1, stride)
    rows = [keys[start : start + block].mean(axis=0) for start in starts]
    return np.array(rows, keys.dtype).reshape(len(rows), keys.shape[1])
    ### END SOLUTION


# %% check="compress_blocks"
check("compress_blocks", compress_blocks)

# %% [markdown] hints="compress_blocks"
# The hints of compress_blocks.

# %% [markdown]
# ## selection_scores
#
# *20 minutes · difficulty 3 of 3 · 4 points*
#
# The softmax weights of the compressed branch say where a query looks. From them come scores for the blocks that the
# selected branch may read in full. `compression_probs` is (…, compressed blocks): whatever axes come first, each row
# has one weight for each complete compressed block of the `cached_tokens`. Compressed block $i$ holds `block` tokens
# from token $i \cdot$ `stride` on; selection block $j$ holds `selection_block` tokens from
# $j \cdot$ `selection_block` on.
#
# $$\text{score}_j = \sum_i p_i \cdot \frac{\text{tokens that compressed block } i \text{ and selection block } j
# \text{ share}}{\text{stride}}$$
#
# Return (…, selection blocks). A selection block that has only begun counts, so there are `cached_tokens` over
# `selection_block` of them, rounded up. Rows are not summed.
#
# The sizes need not be multiples of each other. There may be no compressed block, and then every score is 0;
# `cached_tokens` may be 0. With the sizes of the paper, 32, 16 and 64, a block meets five compressed blocks, with the
# weights 1, 2, 2, 2, 1, and block 0 the first four of them, with 2, 2, 2, 1. (The paper has a formula for it, a double
# sum whose indices count from 1. Take care if you use it.)
#
# By hand: 16 tokens, compressed blocks of 4, 2 apart, selection blocks of 8, weights
# $\tfrac1{16}(1, 2, 1, 4, 2, 5, 1)$. Compressed block 3 holds tokens 6 to 9, two on either side. The scores are
# $\tfrac1{16}(2 + 4 + 2 + 4) = 0.75$ and $\tfrac1{16}(4 + 4 + 10 + 2) = 1.25$.


# %% exercise="selection_scores"
def selection_scores(
    compression_probs: np.ndarray, cached_tokens: int, block: int, stride: int, selection_block: int
) -> np.ndarray:
    """What the compressed branch's weights give each selection block.

    compression_probs: (..., compressed blocks), softmax weights
    cached_tokens: tokens that the selection blocks cover
    block: tokens of a compressed block
    stride: tokens from one compressed block's start to the next
    selection_block: tokens of a selection block
    returns (..., selection blocks)
    """
    ### BEGIN SOLUTION
    compressed = stride * np.arange(compression_probs.shape[-1])  # first tokens
    selected = selection_block * np.arange(-(-cached_tokens // selection_block))[:, None]
    shared = np.minimum(compressed + block, selected + selection_block) - np.maximum(compressed, selected)
    weights = np.maximum(shared, 0) / stride  # [selection blocks, compressed blocks]
    return compression_probs @ weights.T.astype(compression_probs.dtype)
    ### END SOLUTION


# %% check="selection_scores"
check("selection_scores", selection_scores)

# %% [markdown] hints="selection_scores"
# The hints of selection_scores.

# %% [markdown]
# ## pick_blocks
#
# *15 minutes · difficulty 2 of 3 · 3 points*
#
# Which blocks does a group of heads read in full? `scores`, (blocks,), are those of one query, already summed over
# the heads of the group, since they all read the same blocks. The query stands at `position` and sees the tokens up
# to and including its own: the **visible** blocks are those that hold one of these, the last of them maybe only begun.
# `scores` may go on after them, and what stands there may be anything, NaN too.
#
# Return `count` block numbers, (count,) int32, in this order:
#
# 1. the forced ones, ascending: the first `initial` and the last `local` visible blocks, whatever their scores. The
#    query's own block is one of the `local` ones. **Forced blocks are among the `count`**, not on top of it.
# 2. of the other visible blocks those with the highest scores, descending. **The lower block wins a tie.**
# 3. −1 where no visible block is left.
#
# No block comes twice: at early positions the first ones and the last ones may be the same. `initial` and `local` may
# be 0 and together are at most `count`. Scores of visible blocks are finite; they may be equal, and may be negative.
#
# By hand: scores 0.1, 0.7, 0.2, 0.7, 0.3, 0.4, 0.9 for blocks of 8 tokens, position 47, four blocks, one initial and
# one local: blocks 0 to 5 are visible. 0 and 5 are forced, 1 and 3 are the best of the others: 0, 5, 1, 3.


# %% exercise="pick_blocks"
def pick_blocks(
    scores: np.ndarray, position: int, count: int, initial: int, local: int, selection_block: int
) -> np.ndarray:
    """The blocks that one query's group of heads reads.

    scores: (blocks,), at least the visible ones
    position: of the query, from 0
    count: blocks to choose, forced ones among them
    initial: first blocks that are forced
    local: last visible blocks that are forced
    selection_block: tokens of a block
    returns (count,) int32: forced blocks, then by descending score, then -1
    """
    ### BEGIN SOLUTION
    visible = position // selection_block + 1
    ranked = scores[:visible].copy()
    ranked[:initial] = np.inf
    ranked[max(0, visible - local) :] = np.inf
    best = np.argsort(-ranked, kind="stable")[:count]
    picks = np.full(count, -1, np.int32)
    picks[: len(best)] = best
    return picks
    ### END SOLUTION


# %% check="pick_blocks"
check("pick_blocks", pick_blocks)

# %% [markdown] hints="pick_blocks"
# The hints of pick_blocks.

# %% [markdown]
# ## window_range
#
# *4 minutes · difficulty 1 of 3 · 1 point*
#
# The window branch reads the last `window` tokens that the query at `position` sees, its own among them. Return them
# as a half-open range of two ints: the first token, and the one after the last, which is `position` + 1.
#
# At early positions there are fewer tokens than `window`. A window of 0 gives an empty range that begins and ends at
# `position` + 1.
#
# By hand: position 9 and a window of 4 give 6 and 10.


# %% exercise="window_range"
def window_range(position: int, window: int) -> tuple[int, int]:
    """The tokens of the window, half-open.

    position: of the query, from 0
    window: tokens of a full window
    returns (start, stop), ints
    """
    ### BEGIN SOLUTION
    stop = position + 1
    return max(0, stop - window), stop
    ### END SOLUTION


# %% check="window_range"
check("window_range", window_range)

# %% [markdown] hints="window_range"
# The hints of window_range.

# %% [markdown]
# ## gated_sum
#
# *5 minutes · difficulty 1 of 3 · 1 point*
#
# Each head has three outputs, one a branch, and three gates. `branches` is (3, heads, dim), `gates` is (3, heads),
# both in the order compressed, selected, window. Return the sum of the branches, each times its gate, (heads, dim).
#
# The gates have been through the sigmoid already and are taken as they are: they need not add up to 1. There is no
# NaN. There may be no heads.
#
# By hand: one head, branches $(4, 0), (0, 8), (2, 2)$, gates $0.5, 0.25, 1$: $(2, 0) + (0, 2) + (2, 2) = (4, 4)$.


# %% exercise="gated_sum"
def gated_sum(branches: np.ndarray, gates: np.ndarray) -> np.ndarray:
    """The branches of each head, weighed by its gates and added.

    branches: (3, heads, dim)
    gates: (3, heads), already through the sigmoid
    returns (heads, dim)
    """
    ### BEGIN SOLUTION
    return (branches * gates[:, :, None]).sum(axis=0)
    ### END SOLUTION


# %% check="gated_sum"
check("gated_sum", gated_sum)

# %% [markdown] hints="gated_sum"
# The hints of gated_sum.

# %% [markdown]
# ## nsa_tokens_read
#
# *6 minutes · difficulty 1 of 3 · 2 points*
#
# How many keys does one query of a group meet, with `cached_tokens` in the cache, its own among them? Add up
#
# * the compressed keys, one for each complete block of `block` tokens, `stride` apart (none while there are fewer
#   tokens than `block`);
# * the tokens of `count` blocks of `selection_block`, but no more than are cached;
# * the tokens of the window, but no more than are cached.
#
# Each branch has keys of its own, so a token that two branches meet counts twice. Return an int. (A last selection
# block that has only begun is counted as if it were full, but the sum over the blocks is cut to `cached_tokens`.)
# `block`, `stride` and `selection_block` are at least 1; `cached_tokens` may be 0.
#
# By hand: 100 tokens, blocks of 8, 4 apart: 24 are complete. Three blocks of 10 and a window of 20:
# $24 + 30 + 20 = 74$.


# %% exercise="nsa_tokens_read"
def nsa_tokens_read(
    cached_tokens: int, block: int, stride: int, selection_block: int, count: int, window: int
) -> int:
    """Keys that one query meets in the three branches together.

    cached_tokens: tokens that the query sees
    block: tokens of a compressed block
    stride: tokens from one compressed block's start to the next
    selection_block: tokens of a selection block
    count: selection blocks that are read
    window: tokens of a full window
    returns their number, an int
    """
    ### BEGIN SOLUTION
    compressed = max(0, (cached_tokens - block) // stride + 1)
    return compressed + min(count * selection_block, cached_tokens) + min(window, cached_tokens)
    ### END SOLUTION


# %% check="nsa_tokens_read"
check("nsa_tokens_read", nsa_tokens_read)

# %% [markdown] hints="nsa_tokens_read"
# The hints of nsa_tokens_read.

# %% [markdown]
# ## nsa_decode
#
# *30 minutes · difficulty 3 of 3 · 5 points*
#
# One whole decoding step for one group of heads. `query`, (heads, dim), is the new token's, which stands at the last
# position; its own keys and values are in the cache already. `branches` maps `"compressed"`, `"selected"` and
# `"window"` to a tuple (keys, values) each, (tokens, dim) and (tokens, value_dim): every branch has keys and values
# of its own, all of the same tokens, and those of the compressed branch are not compressed yet. `gates` is (3, heads)
# as in `gated_sum`. `config` has the sizes as attributes: `block`, `stride`, `selection_block`, `count`, `initial`,
# `local`, `window`, and `scale`.
#
# Attention over some keys is $\text{softmax}(\text{scale} \cdot q k^\top)$ times their values, each head with its own
# weights.
#
# 1. Compressed: compress keys and values, and attend over all complete blocks.
# 2. Selected: from the weights of step 1 make each head's scores, add them up over the heads, pick blocks for the last
#    position, and attend over all tokens of these blocks that there are. **All heads share the blocks.**
# 3. Window: attend over the last `window` tokens.
# 4. Return the gated sum, (heads, value_dim).
#
# Your answers from above do most of the work: call them. A branch without any key gives 0. So it is with the
# compressed branch while there are fewer tokens than `block`; every score is then 0, and the lower blocks win. There
# is at least one token, `initial` + `local` is at most `count`, and there is no NaN. Products may be so large that
# `np.exp` of them overflows, or so low that it is 0. Scores of blocks that are not exactly equal are far enough apart
# for rounding not to change the choice.
#
# By hand: one head, one feature, blocks of 2, 2 apart, selection blocks of 2, two of them, none initial, one local, a
# window of 1, scale 1, gates 1. Six tokens, every key of the selected and the window branch 0. Compressed keys
# $\ln 3, \ln 3, 0, 0, 0, 0$ and query 1 give the weights $\tfrac35, \tfrac15, \tfrac15$, which are the scores too.
# Blocks 2 (local) and 0 are read. If the value of token $t$ is $t$ in every branch, the outputs are
# $\tfrac35 \cdot 0.5 + \tfrac15 \cdot 2.5 + \tfrac15 \cdot 4.5 = 1.7$, the mean of 0, 1, 4 and 5, which is 2.5, and 5:
# together 9.2.


# %% exercise="nsa_decode"
def nsa_decode(query: np.ndarray, branches: dict, gates: np.ndarray, config) -> np.ndarray:
    """One query of one group of heads through the three branches.

    query: (heads, dim), at the last position
    branches: "compressed", "selected" and "window" to (keys, values), (tokens, dim) and (tokens, value_dim)
    gates: (3, heads), already through the sigmoid
    config: block, stride, selection_block, count, initial, local, window, scale
    returns (heads, value_dim)
    """
    ### BEGIN SOLUTION
    c, tokens = config, len(branches["selected"][0])

    def attend(keys, values):
        scores = c.scale * (query @ keys.T)  # [heads, keys]
        weights = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
        weights /= weights.sum(axis=1, keepdims=True)
        return weights @ values, weights

    means = [compress_blocks(x, c.block, c.stride) for x in branches["compressed"]]
    compressed, probs = attend(*means)
    scores = selection_scores(probs, tokens, c.block, c.stride, c.selection_block).sum(axis=0)
    blocks = pick_blocks(scores, tokens - 1, c.count, c.initial, c.local, c.selection_block)
    is_read = np.isin(np.arange(tokens) // c.selection_block, blocks)
    selected, _ = attend(*(x[is_read] for x in branches["selected"]))
    start, stop = window_range(tokens - 1, c.window)
    window, _ = attend(*(x[start:stop] for x in branches["window"]))
    return gated_sum(np.stack([compressed, selected, window]), gates)
    ### END SOLUTION


# %% check="nsa_decode"
check("nsa_decode", nsa_decode)

# %% [markdown] hints="nsa_decode"
# The hints of nsa_decode.

# %% [markdown]
# ## What you can now explain
#
# * Why a block of 64 tokens meets five compressed blocks, and what an index too few does to it.
# * Why the heads of a group share their blocks, and what it would cost if they did not.
# * Why the first and the last blocks need no score, and why they count.
# * Which of the three branches still grows with the context, and how fast.
#
# Compare `nsa_tokens_read(n, 32, 16, 64, 16, 512)` with `n` for 512 to 65,536 tokens. From which context on does the
# step read less than dense attention does?
