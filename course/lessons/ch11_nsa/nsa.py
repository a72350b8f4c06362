# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 11 NSA: three short looks instead of a long one
#
# DSA, of the last lesson, scores every cached token and then reads the best ones wherever they lie. *Native sparse
# attention* asks for less: it looks at everything through a coarse summary, at a few blocks in full, and at what came
# last. Its blocks lie in one piece, and it is trained that way from the first step.
#
# **The question:** which tokens does such a query read, how many are they, why in blocks, and what is lost beside DSA
# and beside *StreamingLLM*, which keeps the first tokens and the last and throws the others away?

# %% [markdown]
# ## Can you skip this lesson?
#
# Answer these seven. If you get them right, go to the exercises at the end.
#
# 1. Name the three branches. Do their gates sum to one?
# 2. Compressed blocks are 32 tokens long, one every 16. How many does the query at position 30 see? At 63?
# 3. A selected block has 64 tokens. Which compressed blocks score it, and with which weights?
# 4. Why do all heads of a group take the same blocks?
# 5. How many tokens does a step read at 65,536? What does the ratio tend to as the text grows?
# 6. DSA and NSA read about the same number of tokens at 8K. Whose come faster per byte, and why?
# 7. Who trains the part that selects, in NSA, in DSA and in StreamingLLM?
#
# <details><summary>Answers</summary>
#
# 1. Compressed, selected, window. No: each gate is a sigmoid of its own.
# 2. None, and three (those that end at 31, 47 and 63).
# 3. With indices from 0, blocks $4j-1 \ldots 4j+3$ with 1, 2, 2, 2, 1.
# 4. They share keys and values. With blocks of their own each head would pull in others, and all would be read.
# 5. 4,095 + 1,024 + 512 = 5,631, 11.6 times fewer. To 16, the stride.
# 6. NSA's: 64 tokens lie in one piece. (Measured here on a CPU only; and DSA reads fewer bytes.)
# 7. The model's own loss, through the compressed branch, which is part of the output. A loss of its own that imitates
#    dense attention. Nobody.
#
# </details>
#
# ## What should you know before?
#
# DSA's indexer, which scores every token, and what is saved by reading few ([lesson 10](../ch10_dsa/indexer.ipynb));
# groups of heads that share keys and values ([lesson 2](../ch02_heads/heads.ipynb)); log-sum-exps
# ([lesson 3](../ch03_values/values.ipynb)).
#
# (The next cell keeps NumPy's products to one core, so that the times on this page vary less.)

# %%
import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")

# %% [markdown]
# ## Can you do a query by hand?
#
# 16 tokens, one head, keys and values of one number. The query is 1, so a key is a score. Compressed blocks are 4
# tokens long, one every 2; their key is the **mean** of the keys. (In the paper it is a small learned network that
# sees all keys of the block and their places. The mean is what you can check by hand.)

# %%
import numpy as np
from ledger.reference.sparse import attend, compress_blocks, pick_blocks, selection_scores

ln2 = np.log(2)
keys = ln2 * np.array([0, 0, 0, 0, 0, 0, 2, 2, 4, 4, 0, 0, 2, 2, 0, 0])[:, None]
values, query = np.arange(16.0)[:, None], np.ones((1, 1))
small_keys, small_values = compress_blocks(keys, 4, 2), compress_blocks(values, 4, 2)
weights = np.exp(small_keys[:, 0])
print("weight of each token       ", np.exp(keys[:, 0]).round().astype(int))
print("weight of each compressed  ", weights.round().astype(int), " sum", weights.sum().round())

# %% [markdown]
# 16 tokens have become 7 keys, and their attention is 1, 1, 2, 8, 4, 2, 2 twentieths. That is the first branch, the
# overview. It also says where to look closer. Selected blocks have 4 tokens here. Block 1 is tokens 4 to 7:
# compressed block 2 lies in it whole, blocks 1 and 3 by half. So it scores $1 + 2 \cdot 2 + 8 = 13$ twentieths.

# %%
probs = weights / weights.sum()
scores = selection_scores(probs, 16, block=4, stride=2, selection_block=4)
print("scores of the blocks, in twentieths:", (20 * scores).round().astype(int))
picked = pick_blocks(scores, count=3, initial=1, local=1)
print("three blocks, the first and the last forced:", picked)

# %% [markdown]
# The forced blocks take two of three places, whatever they score. Block 2 wins the third. (This function returns a
# list; yours in the exercises returns `count` int32, with −1 where no block is left.) The last branch is the window,
# here 4 tokens. Three separate softmaxes, and a gate for each:
#
# $$o = \sum_{c} g_c \cdot \text{softmax}\left(q K_c^{\top}\right) V_c \qquad g_c = \text{sigmoid}(f_c(x))$$
#
# A gate comes from the new token's hidden state $x$, through a small learned map $f_c$: one value a head and branch.

# %%
selected = [4 * j + i for j in sorted(picked) for i in range(4)]
window = list(range(12, 16))
compressed, _ = attend(query, small_keys, small_values, list(range(7)), scale=1.0)
branches = [compressed] + [attend(query, keys, values, tokens, 1.0)[0] for tokens in (selected, window)]
branches = np.array(branches)[:, 0, 0]
gates = 1 / (1 + np.exp(-np.array([0, np.log(3), -np.log(3)])))
print("branches:", branches.round(3), "  gates:", gates, " sum", gates.sum())
print(f"output: {gates @ branches:.4f}")

# %% [markdown]
# The gates sum to 1.5, and nobody divides by it: a model can turn a branch off, or all of them. The last block lies in
# the selection *and* in the window. In the toy both read the same keys; in the model each branch has keys and values
# of its own, so that tokens 12 to 15 are read twice and are two different things.
#
# Why separate keys? What is near is easy to learn and helps at once. With shared keys the window could do most of the
# work, and the others might learn little: that is the paper's reason.

# %% [markdown]
# ## What does a query read at real sizes?
#
# The paper's model has 64 heads in 4 groups, keys of 192 and values of 128. A group has one set of keys and values
# for its 16 heads, as in GQA. Sizes are in `NSA_PAPER`. Here is one group of a query at the end of 8,192 tokens,
# itself among them.

# %%
from ledger.account.nsa import compressed_seen, tokens_read
from ledger.setups import NSA_PAPER as nsa
from ledger.widgets.base import COLORS, new_figure, plain_ticks
from ledger.widgets.flow import Arrow, Box, Lane, flow

T, H, D, V = 8192, 16, 192, 128  # tokens, heads of a group, widths of key and value
now = tokens_read(T, nsa)
print({name: size for name, size in vars(nsa).items() if name != "scale"})
print(now, "in all", now.total)

# %%
few = f"{nsa.block - nsa.stride}–{nsa.block - 1} × {D}"
ways = {"compressed": ("waiting keys", few, "32 to 1,\nevery 16", "a learned map", "coarse keys", "latent")}
ways["selected"] = ("all keys", (T, D), "16 best\nblocks of 64", "by coarse scores", "block keys", "absorb")
ways["window"] = ("new key", (1, D), "and those\nbefore it", "the last 512", "near keys", "rope")
rows = []
for (name, (kept, shape, how, by, keys_of, color)), read in zip(ways.items(), now, strict=True):
    lane = [Box(kept, shape), Arrow(how, by), Box(keys_of, (read, D))]
    lane += [Arrow("softmax", f"{read * (D + V) * 2 / 1e3:,.0f} KB"), Box("out", (H, V))]
    rows.append(Lane(name, [*lane, Arrow("× gate", "a sigmoid"), Box("gated", (H, V))], COLORS[color]))
flow("One group, one query; values go the same way; the three are added", rows)

# %% [markdown]
# The KB are keys and values in bf16. A new key waits with those before it until its block of 32 is full. The coarse
# key is made once and cached: a step reads *it*, not the tokens under it.
#
# And at the start of a text? A compressed block exists only once it is full.

# %%
print("position   tokens   compressed   in none of them")
for position in (0, 30, 31, 46, 47, 63, 8191):
    tokens = position + 1
    seen = compressed_seen(tokens, nsa)
    left = tokens - (nsa.stride * (seen - 1) + nsa.block if seen else 0)
    print(f"{position:8} {tokens:8} {seen:12} {left:12}")
nothing = attend(np.ones((H, D)), np.zeros((0, D)), np.zeros((0, V)), [], 1.0)
print("attention over nothing:", np.unique(nothing[0]))

# %% [markdown]
# Below position 31 there is **no compressed branch**: a softmax over nothing is 0 ÷ 0, and the right answer is a zero
# for every output. A kernel that forgets this starts every text with NaN. The newest tokens, up to 15 of them after
# that, are in no compressed block yet. The window and the forced local blocks have them.

# %% [markdown]
# ## How does a block get its score?
#
# By what it shares with the compressed blocks, counted in strides of 16 tokens. A compressed block is 2 strides long,
# a selected one 4. Five compressed blocks touch block $j$ (indices from 0):
#
# $$s_j = p_{4j-1} + 2p_{4j} + 2p_{4j+1} + 2p_{4j+2} + p_{4j+3}$$
#
# Check it against the overlap of token ranges, and hold beside it the paper's formula, $s_j = \sum_{m=0}^{3}
# \sum_{n=0}^{1} p[4j - m - n]$, typed in with indices from 0.

# %%
blocks, made = 4, compressed_seen(256, nsa)
one_hot = np.eye(made)
sizes = (256, nsa.block, nsa.stride, nsa.selection_block)
overlap = np.array([selection_scores(p, *sizes) for p in one_hot]).T  # [blocks, compressed]
typed_in = np.zeros((blocks, made))
for j in range(blocks):
    for m in range(4):
        for n in range(2):
            typed_in[j, 4 * j - m - n] += 1  # a negative index counts from the end

# %%
fig = new_figure(9.0, 2.7, alt="Weights of compressed on selected blocks: by overlap, and typed in from 0")
pairs = (("by overlap of tokens", overlap), ("the formula, indices from 0", typed_in))
for ax, (title, table) in zip(fig.subplots(1, 2, sharey=True), pairs, strict=True):
    ax.imshow(table, cmap="Blues", vmin=0, vmax=2.6, aspect="auto")
    for j, i in np.argwhere(table):
        color = COLORS["paper" if table[j, i] > 1 else "ink"]
        ax.text(i, j, f"{table[j, i]:.0f}", ha="center", va="center", color=color)
    ax.set(xlabel="compressed block", title=title)
    ax.set_yticks(range(blocks))
    ax.grid(visible=False)
fig.axes[0].set_ylabel("selected block")
fig

# %% [markdown]
# On the left the middle blocks have 1, 2, 2, 2, 1, and block 0 has 2, 2, 2, 1: nothing lies before it. On the right
# all weights stand 3 strides too early: block $j$ is chosen for what tokens up to 64 places before it say, where 16
# is right. Block 0 wraps around to the *end* of the text, with Python's negative indices, and nothing fails.
#
# The formula is right, for indices from 1 (then block 1 starts at $p[0]$, which does not exist and counts nothing).
# Everything else on this page counts from 0.

# %% [markdown]
# ## Why does a group share its blocks?
#
# Give 16 heads of a group queries that are half the same, and random keys. Let each head pick 16 blocks of its own,
# and count what the group has to read. Then sum the heads' probabilities, and pick once.

# %%
from ledger.reference.values import softmax_lse

rng = np.random.default_rng(11)
heads = np.sqrt(0.5) * rng.standard_normal(D) + np.sqrt(0.5) * rng.standard_normal((H, D))
some_keys = rng.standard_normal((T, D))
coarse = compress_blocks(some_keys, nsa.block, nsa.stride)
probs, _ = softmax_lse(nsa.scale * heads @ coarse.T)
sizes = (T, nsa.block, nsa.stride, nsa.selection_block)
places = (nsa.count, nsa.initial, nsa.local)
own = [pick_blocks(selection_scores(p, *sizes), *places) for p in probs]
shared = pick_blocks(selection_scores(probs.sum(axis=0), *sizes), *places)
block_bytes = nsa.selection_block * (D + V) * 2
for name, read in (("each head its own", set().union(*own)), ("all the same", set(shared))):
    print(f"{name:18} {len(read):3} blocks, {len(read) * block_bytes / 1e6:.2f} MB in bf16")

# %% [markdown]
# A block that one head wants is in fast memory for all 16, so the price is the *union* of the choices. Sharing makes it
# 16 again, and gives the matrix units 16 rows to work on in each product, which is the least they want.

# %% [markdown]
# ## How many tokens does a step read?
#
# **Predict.** With $s$ cached tokens, and $s$ large enough for all three:
#
# $$\left\lfloor \frac{s - 32}{16} \right\rfloor + 1 \;+\; 16 \cdot 64 \;+\; 512$$

# %%
print("cached     compressed   selected   window     read    fewer by")
for s in (1024, 8192, 16384, 32768, 65536, 1 << 20):
    r = tokens_read(s, nsa)
    print(f"{s:9,} {r.compressed:11,} {r.selected:10,} {r.window:8} {r.total:8,} {s / r.total:10.1f} ×")
even = next(s for s in range(512, T) if tokens_read(s, nsa).total < s)
print(f"fewer than all from {even:,} tokens on")

# %% [markdown]
# 4.0, 6.4, 9.1 and 11.6 from 8K to 64K are the paper's numbers for decoding. They are counts of tokens, *expected*
# ratios of memory traffic, and no clock has seen them. What the paper measured is training: up to 9 times as fast
# forward and 6 times backward at 64K, against FlashAttention-2 in Triton on A100.
#
# A short text reads *more* than all of itself. And the ratio tends to 16, the stride, since the overview grows with
# the text. In bytes, beside other attentions:

# %%
from ledger.account.dsa import dsa_decode_ledger
from ledger.models import model

lengths = [float(1 << n) for n in range(9, 21)]
v32 = model("DeepSeek-V3.2")
dsa = [dsa_decode_ledger(int(s), v32, v32.index_topk, "bf16_mla") for s in lengths]
token_bytes = 4 * (D + V) * 2  # four groups, bf16
lines = {"GQA, dense": [token_bytes * s for s in lengths]}
lines["GQA with NSA"] = [token_bytes * tokens_read(int(s), nsa).total for s in lengths]
lines |= {"MLA, dense": [r.dense_bytes for r in dsa], "MLA with DSA": [r.sparse_bytes for r in dsa]}
entry = dsa[0].dense_bytes / lengths[0]
print(f"a token: {token_bytes:,} bytes in 4 groups of GQA, {entry:,.0f} in MLA")
even = next(s for s in range(512, T) if token_bytes * tokens_read(s, nsa).total < entry * s)
print(f"NSA reads less than dense MLA from {even:,} on\n{'':13} MB at 8K  at 64K  bytes a token at 1M")
for name, line in lines.items():
    print(f"{name:13} {line[4] / 1e6:8.1f} {line[7] / 1e6:7.1f} {line[-1] / lengths[-1]:20.0f}")

# %%
fig = new_figure(5.6, 3.2, alt="Bytes read a step by cached tokens: GQA and MLA, dense and sparse")
ax = fig.subplots()
for name, line in lines.items():
    dashes, color = "--" if "dense" in name else "-", "latent" if "MLA" in name else "absorb"
    ax.plot(lengths, [x / 1e6 for x in line], dashes, color=COLORS[color], label=name)
ax.set(xscale="log", yscale="log", xlabel="cached tokens", ylabel="MB read a layer and step")
ax.set_xticks([1e3, 1e4, 1e5, 1e6])
plain_ticks(ax.xaxis)
plain_ticks(ax.yaxis)
ax.legend()
fig

# %% [markdown]
# A token of this GQA takes more than twice the bytes of an MLA token, so that NSA needs some length to read less than
# *dense* latent attention does. DSA reads less than NSA everywhere in this picture: of each token an index key of 132
# bytes, while a sixteenth of a GQA token has 160. MHA with 64 heads would read 16 times GQA's bytes, MQA a quarter.

# %% [markdown]
# ## Blocks or rows: what does memory say?
#
# At 8K NSA reads 2,047 tokens; DSA reads 2,048, and an index key of all 8K to find them. NSA's selection comes in
# pieces of 64, DSA's in rows. **Measure** what that is worth: fetch 1,024 keys of 192 numbers of 16 bits, in pieces
# of 1 to 256 tokens, from random places of an array that is larger than the processor's cache, and of one that fits.

# %%
import itertools

from ledger.browser import IN_BROWSER
from ledger.measure import time_pairs

runs = [1, 4, 16, 64, 256]


def fetches(tokens):
    """A call for each length of a piece, which fetches 1,024 keys from new places each time."""
    store, calls = np.ones((tokens, D), np.float16), {}
    for run in runs:
        pieces = store.reshape(-1, run, D)
        places = itertools.cycle([rng.integers(0, len(pieces), 1024 // run) for _ in range(64)])
        calls[run] = lambda pieces=pieces, places=places: pieces[next(places)]
    return calls


where = {"memory": 1 << (15 if IN_BROWSER else 18), "cache": 1 << 12}
took = {name: time_pairs(fetches(tokens), seconds=0.2) for name, tokens in where.items()}

# %%
fig = new_figure(6.4, 3.0, alt="Time to fetch 1,024 keys, by the length of a piece")
ax = fig.subplots()
for (name, times), mark in zip(took.items(), ("o-", "s--"), strict=True):
    alone, together = 1e6 * times[1].median, 1e6 * times[64].median
    print(f"from {name:6} {alone:6.1f} µs one by one, {together:5.1f} µs by 64: {alone / together:.1f} ×")
    color = COLORS["measure" if name == "memory" else "neutral"]
    each = [1e6 * times[run].median for run in runs]
    ax.plot(runs, each, mark, color=color, label=f"from {name}")
ax.set(xscale="log", xlabel="tokens in a piece", ylabel="µs to fetch 1,024 keys", ylim=(0, None))
ax.set_xticks(runs, [str(run) for run in runs])
ax.minorticks_off()
ax.legend()
fig

# %% [markdown]
# The same bytes, one by one and by 64. Some of the difference is NumPy, which copies piece by piece: from cache there
# is one too. (The two cannot be subtracted: copying and waiting overlap.) A processor fetches ahead when reads follow
# each other; at a random place it cannot, and it also has to look up the page.
#
# A GPU has thousands of reads under way at once, so the gap should be smaller there; this page has not measured it. An
# entry of MLA is three times as long as one of NSA's keys: *DSA can better afford single tokens*. And where tiles feed
# matrix units, in training above all, a block *is* a tile, while scattered rows have to be gathered into one first.

# %% [markdown]
# ## NSA, DSA, or simply forget?
#
# StreamingLLM drops tokens after the fact, from a model that was trained dense: it keeps the first 4 tokens and a
# window of the last. Set all three on the same input. It is made up. In two cases a *needle* in the middle takes half
# of every head's attention: one token, then a passage of 64. In the other two there is none, and attention is
# diffuse. Values have a part in common to all tokens, but for the last case; the needle's is different.


# %%
def made_up(width, common, seed=0):
    """Queries of a group, keys, values, and where the needle is; every head likes it equally."""
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((H, D)), rng.standard_normal((T, D))
    v = common * rng.standard_normal(V) + rng.standard_normal((T, V))
    needle = np.arange(T // 2 + 5, T // 2 + 5 + width)
    if width:
        likes = np.log(T * np.exp(0.5) / width)  # then it weighs about as much as all others together
        k[needle] += (np.linalg.pinv(q) @ (likes / nsa.scale - q @ k[needle].T)).T
        v[needle] = rng.standard_normal(V)
    return q, k, v, needle


# %% [markdown]
# What stands for each method, since nothing here is trained:
#
# * **DSA** gets a *perfect* indexer: the tokens with the most attention, summed over the heads. It comes twice: with
#   as many tokens as NSA reads at 8K, the overview included, and with as few as NSA has left. Its index is **not**
#   charged, though all of it is read.
# * **NSA** picks blocks by means of keys, untrained; its tokens are the selected blocks and the window, all with the
#   same keys and under one softmax. (Branches with their own keys and gates mean nothing without training.)
# * **StreamingLLM** needs no training. It is itself.


# %%
from ledger.reference.sparse import select_topk


def choices(q, k, truth, budget):
    """The tokens that each method attends to; ``truth`` is dense attention (heads, tokens)."""
    coarse = compress_blocks(k, nsa.block, nsa.stride)
    probs = softmax_lse(nsa.scale * q @ coarse.T)[0].sum(axis=0)
    picked = pick_blocks(selection_scores(probs, *sizes), *places)
    near = set(range(T - nsa.window, T))
    kept = sorted(near.union(64 * j + i for j in picked for i in range(64)))
    chosen = {"DSA": select_topk(truth.sum(axis=0), budget)}
    chosen["DSA, fewer"] = select_topk(truth.sum(axis=0), len(kept))
    return chosen | {"NSA": kept, "StreamingLLM": [*range(4), *range(T - budget + 4, T)]}


# %%
inputs = {"one token": (1, 1), "passage of 64": (64, 1), "diffuse": (0, 1), "nothing in common": (0, 0)}
print(f"an index of {T:,} keys is {T * (v32.index_dim + 4) / entry:,.0f} MLA tokens")
print(f"{'':31} tokens  of all  mass kept  output error")
for name, given in inputs.items():
    q, k, v, needle = made_up(*given)
    truth, _ = softmax_lse(nsa.scale * q @ k.T)
    dense, of_needle = truth @ v, truth[:, needle].sum(axis=1)
    print(f"{name}: needle's mass {of_needle.min():.0%} to {of_needle.max():.0%} a head")
    for method, tokens in choices(q, k, truth, now.total).items():
        mass = truth[:, tokens].sum(axis=1).mean()
        output, _ = attend(q, k, v, tokens, nsa.scale)
        error = np.linalg.norm(output - dense) / np.linalg.norm(dense)
        print(f"{'':16} {method:14} {len(tokens):6,} {len(tokens) / T:7.0%} {mass:10.0%} {error:13.0%}")

# %% [markdown]
# The needle is in the middle, so StreamingLLM *cannot* see it, unless its budget is half of the text, and its output
# is about as wrong as none (0 has an error of 100%). The others find it. Beyond it DSA keeps more, for two reasons.
# With as few tokens as NSA it still picks the best one by one: the gap to NSA is the price of whole blocks and a fixed
# window. With all it also has what NSA spent on its overview, and on blocks that are in the window already. That part
# is bookkeeping: DSA's own index is free here, and its bytes are those of nearly half the tokens.
#
# In the diffuse case NSA and StreamingLLM keep about the share of the mass that they have of the tokens: **mass kept
# is then the number of tokens**, and says nothing about the rule. The small errors are the common part of the values,
# which any thousand tokens have in their mean. Without it, in the last case, every output is worse than 0, and fewer
# tokens are worse still.
#
# **What such an input can show:** which tokens a rule is able to reach, and what whole blocks cost. **What it cannot
# show:** how good a model is. Keys of trained models hang together; an indexer is not perfect; the overview, left out
# here, stands for the very mass that the blocks miss; and a model trained with a rule arranges itself to it.

# %% [markdown]
# ## Can a mean hide a needle?
#
# The score of a mean key is the mean of the scores. So one token in 32 speaks with a thirty-second of its voice,
# before the exponential. In the table above it was found nevertheless, because all 16 heads liked it, and their small
# signs add up. What if only some heads do? Keys are not even needed: draw scores, set the needle's so that it has half
# of the attention of those heads, and take means.

# %%
from ledger.widgets.nsa import block_scores, compressed_probs

trials, widths = (5 if IN_BROWSER else 20), [1, 2, 4, 8, 16, 32, 64]


def found(width, liked_by):
    """In how many of the trials the block with the needle is among the 16."""
    hits = 0
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        scores, at = rng.standard_normal((H, T)), int(rng.integers(1000, 7000))
        scores[:liked_by, at : at + width] = np.log(T * np.exp(0.5) / width)
        voted = block_scores(compressed_probs(scores, nsa).sum(axis=0), T, nsa)
        hits += (at + width // 2) // 64 in pick_blocks(voted, *places)
    return hits / trials


shares = {liked_by: [found(width, liked_by) for width in widths] for liked_by in (16, 4, 1)}
by_chance = (nsa.count - nsa.initial - nsa.local) / (T // nsa.selection_block - nsa.initial - nsa.local)
print(f"one token of one head: found in {shares[1][0]:.0%} of {trials} trials, by chance {by_chance:.0%}")

# %%
fig = new_figure(7.2, 3.0, alt="How often the block with the needle is picked, by the needle's width")
ax = fig.subplots()
lines = zip(shares.items(), ("o-", "s--", "^:"), ("absorb", "latent", "materialize"), strict=True)
for (liked_by, line), mark, color in lines:
    ax.plot(widths, line, mark, color=COLORS[color], label=f"{liked_by} of 16 heads like it")
ax.axhline(by_chance, color=COLORS["neutral"], linewidth=1)
ax.text(64, by_chance + 0.02, "by chance", ha="right", fontsize=9)
ax.set(xscale="log", xlabel="tokens of the needle", ylabel="share of trials that find it", ylim=(0, 1.05))
ax.set_xticks(widths, [str(width) for width in widths])
ax.minorticks_off()
ax.legend(loc="center right")
fig

# %% [markdown]
# A single token of a single head is missed in most trials; a passage of 8 is found in all, whoever likes it. A perfect
# indexer of DSA would find each of them, since it scores tokens: one with half of a head's attention is among the 2,048
# best. That is the price of the coarse look, for a **mean**, without training. A learned map need not be a mean, and
# the model learns to write keys that survive it: the paper finds its needle at every place of a 64K text.

# %% [markdown]
# ## Are the real kernels right, and do they read that?
#
# `kernels/gpu/nsa.py` has them in Triton: `nsa_compress`, `nsa_select`, and `nsa_attend`, which runs each branch. They
# run here on 512 tokens, on a GPU or in Triton's interpreter. First: do they choose the same blocks and give the same
# outputs as the course's own float64?

# %% tags=["no-browser"]
try:
    from ledger.account import sparse_kernels
    from ledger.kernels import gpu
    from ledger.kernels.interpret.mode import DEVICE, torch
    from ledger.kernels.interpret.watched import watched
except ImportError as reason:
    gpu = None
    print(f"{reason}: torch and Triton are needed to run the kernels. All else on this page runs without.")
else:
    print("in Triton's interpreter" if gpu.INTERPRETED else torch.cuda.get_device_name())

# %% tags=["no-browser"]
if gpu is not None:
    tokens, heads, groups, dim, value, four = 512, 32, 2, 32, 16, 4
    shapes = ((1, 1, heads, dim), (1, tokens, groups, dim), (1, tokens, groups, value))
    q, k, v = (torch.randn(shape, device=DEVICE) for shape in shapes)
    length = torch.tensor([tokens], dtype=torch.int32, device=DEVICE)
    once = dict(scale=dim**-0.5, num_splits=1)  # one split, so that queries are read once
    pair = [gpu.nsa_compress(x, length) for x in (k, v)]
    _, lse = gpu.nsa_attend(q, *pair, length, compressed=(32, 16), **once)
    blocks = gpu.nsa_select(q, pair[0], lse, length, once["scale"], count=four)
    ways = {"compressed": (pair, dict(compressed=(32, 16)), compressed_seen(tokens, nsa), 0)}
    ways["selected"] = ((k, v), dict(blocks=blocks), four * 64, blocks.numel())
    ways["window"] = ((k, v), dict(window=64), 64, 0)


# %% tags=["no-browser"]
def exact(q, k, v):
    """One group: q (heads, dim), k (tokens, dim), v (tokens, value) -> its blocks, each branch's output."""
    scale, last = q.shape[1] ** -0.5, len(k)
    small = [compress_blocks(x, 32, 16) for x in (k, v)]
    probs = np.exp(scale * q @ small[0].T)
    probs = (probs / probs.sum(axis=1, keepdims=True)).sum(axis=0)
    chosen = sorted(pick_blocks(selection_scores(probs, last, 32, 16, 64), count=4, initial=1, local=2))
    inside = [64 * block + i for block in chosen for i in range(64)]
    read = {"compressed": (*small, list(range(len(probs)))), "selected": (k, v, inside)}
    read["window"] = k, v, list(range(last - 64, last))
    return chosen, {name: attend(q, *each, scale)[0] for name, each in read.items()}


# %% tags=["no-browser"]
if gpu is not None:
    got = {n: gpu.nsa_attend(q, *pair, length, **way, **once).out for n, (pair, way, *_) in ways.items()}
    for g in range(groups):
        mine = slice(g * heads // groups, (g + 1) * heads // groups)
        chosen, right = exact(*(x.double().cpu().numpy() for x in (q[0, 0, mine], k[0, :, g], v[0, :, g])))
        print(
            f"group {g}: blocks {sorted(blocks[0, 0, g].tolist())}, the oracle's {chosen}; off by", end=""
        )
        for n, want in right.items():
            error = np.abs(got[n][0, 0, mine].double().cpu().numpy() - want).max() / np.abs(want).max()
            print(f" {error:.0e} ({n})", end="")
        print(" of the largest")

# %% [markdown]
# In the interpreter every load is counted. **Predict** them first: a branch reads the queries, the list of blocks, and a
# key and a value of each group for each of its tokens, once for all heads of the group. Then **count**. (On a GPU there is
# a clock instead: `python bench/kernels.py` has the selected blocks beside single tokens.)

# %% tags=["no-browser"]
if gpu is not None and gpu.INTERPRETED:
    print("branch         tokens   bytes loaded    predicted")
    for name, (pair, way, read, listed) in ways.items():
        with watched() as works:
            gpu.nsa_attend(q, *pair, length, **way, **once)
        loaded = works["attend_group"].loaded
        in_all = sum(loaded.values()) - loaded["p_starts"] - loaded["p_stops"]
        guess = sparse_kernels.attend_group_bytes(read, heads, groups, dim, value, 4, listed).read
        print(f"{name:12} {read:8} {in_all:14,} {guess:12,}")

# %% [markdown]
# To the byte, but for the two integers that each program loads as the ends of its range. (`lse` is the logarithm of a
# softmax's sum, with which `nsa_select` makes the probabilities again.)

# %% [markdown]
# ## What happens when you turn the knobs?
#
# One query over made-up scores that hang together in stretches:
#
# * Go from position 30 to 31. What appears? Then to 255: how many tokens are read, out of 256?
# * At 8,191, take compressed blocks of 16, every 8. How many more tokens are read? What is the ratio at 1M now?
# * Read the same 1,024 tokens as 32 blocks of 32 and as 8 blocks of 128, three of them forced each time. How much of
#   the scores do they catch?
# * Set the number of blocks to 3. Does anything follow the scores now?

# %%
from ledger.widgets.nsa import NsaExplorer

NsaExplorer().show()

# %% [markdown]
# ## What does it not save?
#
# Memory. Any block may be selected by the next query, so all stay. What does a group keep of $s$ tokens?

# %%
print("cached     selected   compressed   window    waiting   of dense GQA")
for s in (8192, 65536, 1 << 20):
    waiting = s - nsa.stride * compressed_seen(s, nsa)  # raw keys that the next compressed block will need
    kept = [s, compressed_seen(s, nsa), min(s, nsa.window), waiting]
    print(f"{s:9,} {kept[0]:9,} {kept[1]:12,} {kept[2]:8} {kept[3]:10} {sum(kept) / s:13.1%}")

# %% [markdown]
# The separate keys cost little: the window's are dropped after 512 tokens, the compressed branch's raw ones as soon
# as their last block is made. But nothing is saved either. Only forgetting saves memory, as StreamingLLM does.

# %% [markdown]
# ## Native, continued, or after the fact?
#
# | | NSA | DSA | StreamingLLM |
# |---|---|---|---|
# | trained sparse | from the first step | continued from a dense model | never |
# | who teaches the choice | the model's loss: the scores are a branch of the output | a loss of its own: imitate dense attention; 1,000 steps with attention dense, then sparse | nobody; a rule |
# | what is chosen | blocks of 64, a group at a time | tokens, one list for all heads | the first and the last |
# | a token not chosen | is in the overview | is not seen, the next query may see it | is gone |
# | memory | a little more than dense | 132 bytes a token more | bounded |
#
# The choice of the best blocks has no gradient. NSA gets around that: the scores that choose are the softmax of the
# compressed branch, and *that* branch is in the output, so the loss reaches it. DSA's indexer is not in the output,
# so it needs a teacher. One often reads that both are "native". DSA is not: it began as a dense model.
#
# Is training worth it? In the paper's long-context test *Exact-Top* gets the truly best tokens of a dense model after
# the fact. It scored below the dense model (0.423 against 0.437), and NSA, whose choice is cruder, above both (0.469):
# one model of 27 billion parameters, and nothing on this page can test it.

# %% [markdown]
# ## What do engines do?
#
# * **The name is a trap.** In SGLang `nsa` was for a long time the name of *DSA*: `layers/attention/nsa/`,
#   `nsa_backend.py`, `--nsa-prefill-backend`. Newer versions say `dsa`. The model of the NSA paper was not released,
#   so engines have had nothing of it to serve.
# * **Kernels** for training: `fla-org/native-sparse-attention`, in `native_sparse_attention/ops/parallel.py`. It takes
#   plain means, of blocks that do not overlap and are as long as the selected ones. All branches share keys and values.
# * **MiniMax-M3** serves the idea of blocks for a group: an indexer of its own in place of the compressed branch,
#   which reads a key of every token as DSA's does, the largest score of each 128 tokens, 16 blocks with the local one
#   forced. vLLM: `vllm/models/minimax_m3/`, with `common/indexer.py`, `common/ops/index_topk.py` and
#   `common/sparse_attention.py`. If pages have 128 tokens too, a list of blocks is a list of pages.

# %% [markdown]
# ## How to explain it
#
# *"NSA replaces one long attention by three short ones and adds them, each with a gate that is a sigmoid by itself.
# One sees everything coarsely, a summary of 32 tokens every 16. Its attention picks 16 blocks of 64, the same for the
# heads of a group, and the second reads those in full. The third sees the last 512. A step at 64K reads 5,631 tokens,
# 11.6 times fewer: a count, not a time. It saves no memory. DSA picks single tokens with an indexer, on a model that
# was dense before; StreamingLLM forgets, and what is forgotten no budget brings back."*

# %% [markdown]
# ## Summary
#
# * Each branch has keys and values of its own; gates are not normalised. Below position 31 the compressed one is 0.
# * A block's score: $p_{4j-1} + 2p_{4j} + 2p_{4j+1} + 2p_{4j+2} + p_{4j+3}$, from 0; block 0 has 2, 2, 2, 1. Scores
#   are summed over the group's heads; forced blocks are among the 16.
# * Reads: $\lfloor(s-32)/16\rfloor + 1 + 1{,}024 + 512$; more than all tokens in a short text.
# * A mean of 32 keys can hide a token that few heads like; a learned map need not. Mass kept is not quality.

# %% [markdown]
# ## Exercises to do next
#
# 1. [compress_blocks](../../practice/ch11_nsa/nsa.ipynb#cell-id=compress_blocks-statement): make the overview.
# 2. [selection_scores](../../practice/ch11_nsa/nsa.ipynb#cell-id=selection_scores-statement): score the blocks.
# 3. [pick_blocks](../../practice/ch11_nsa/nsa.ipynb#cell-id=pick_blocks-statement): choose, with some places taken.
# 4. [window_range](../../practice/ch11_nsa/nsa.ipynb#cell-id=window_range-statement): say where the window is.
# 5. [gated_sum](../../practice/ch11_nsa/nsa.ipynb#cell-id=gated_sum-statement): add the branches up.
# 6. [nsa_tokens_read](../../practice/ch11_nsa/nsa.ipynb#cell-id=nsa_tokens_read-statement): count a step's reads.
# 7. [nsa_decode](../../practice/ch11_nsa/nsa.ipynb#cell-id=nsa_decode-statement): the whole query.
#
# ```
# python judge.py 11
# ```
