# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 7 A decode kernel
#
# Six lessons counted what decode has to multiply and to read. NumPy did it one array after the other. A GPU does it in
# one kernel that reads the cache once and never writes a score to memory.
#
# **The question:** how fast can one decode step be, and what must a kernel do to come near?

# %% [markdown]
# ## Can you skip this lesson?
#
# Answer these six. If you get them right, go to the exercises at the end.
#
# 1. DeepSeek-V3 decodes in bf16 with 16 heads on a GPU, or with all 128. An H200 does 206 FLOP in the time in which it
#    reads a byte. What does the kernel wait for in each case?
# 2. The measured answer to question 1 lies elsewhere than the datasheet's. In which direction, and why?
# 3. You verify one draft token along with the new one. When is that free, and when does it double the time?
# 4. A kernel takes each block's own maximum for its softmax. All tests on random numbers pass. Which input breaks it?
# 5. One request of 65,536 tokens and 16 heads runs on a GPU of 132 multiprocessors. How many of them work, and what do
#    engines do about it?
# 6. A block of 64 tokens ends behind the request's last one. Why is it not enough to give the rest the weight 0?
#
# <details><summary>Answers</summary>
#
# 1. 16 heads do 30 FLOP a byte and wait for memory, 128 do 242 and wait for arithmetic.
# 2. Kernels come nearer to the bandwidth than to the tensor cores' rate, so the ridge moves down: to about 138 FLOP a
#    byte, or 73 heads.
# 3. It is free while memory sets the pace, since both tokens' rows use the same entry. Where arithmetic does, it doubles.
# 4. Scores that fall by more than 88 from one block to the next: the factor exp(old − new) overflows float32.
# 5. One, if a program takes 16 heads and the whole request. They split the request's tokens among many programs and
#    merge the parts by log-sum-exp.
# 6. The memory there may hold NaN, and 0 · NaN is NaN. The load itself must be masked.
#
# </details>
#
# (The next cell keeps NumPy's products to one core, so that the times on this page repeat.)

# %%
import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")

# %% [markdown]
# ## What does a decode step move?
#
# Start on paper, with two heads, a latent of width 2, rope 1, and three cached tokens. As a key, an entry is 3 wide. As
# a value it is its latent, 2 wide. How many multiply-adds do both heads do, and how many bytes are the entries in bf16?

# %%
heads, latent, rope, tokens = 2, 2, 1, 3
flop = 2 * heads * tokens * (latent + rope + latent)
entries = 2 * tokens * (latent + rope)
print(f"{heads} heads · {tokens} tokens · ({latent + rope} + {latent}) multiply-adds · 2 = {flop} FLOP")
print(f"{tokens} entries · {latent + rope} values · 2 = {entries} bytes")
print(f"read once for both heads:  {flop / entries:.2f} FLOP a byte")
print(f"read again for each head:  {flop / (heads * entries):.2f} FLOP a byte")

# %% [markdown]
# The two last lines do the same arithmetic. They differ in how often the entries come in, and that is a matter of how
# the work is shared out.
#
# Now DeepSeek-V3 in one layer, 64 requests with 65,536 cached tokens each. What is there to move?

# %%
from ledger.account.cache import cache_bytes_per_token
from ledger.models import model

v3 = model("DeepSeek-V3")
H, L, r = v3.num_heads, v3.latent_dim, v3.rope_dim
requests, C = 64, 65536
entry = cache_bytes_per_token(v3, "bf16_mla")
rows = requests * H
moved = {"queries": rows * (L + r) * 2, "entries": requests * C * entry}
moved |= {"mixed latents": rows * L * 2, "log-sum-exp": rows * 4}
for name, size in moved.items():
    print(f"{name:14} {size / 1e6:10,.2f} MB   {size / sum(moved.values()):7.2%}")
scores = rows * C * 4
print(f"\nthe scores, if they were written in float32: {scores / 1e6:,.0f} MB, and read again as often")

# %% [markdown]
# The entries are everything. What a kernel may not do is plain from here: read them more than once, or let a score out
# of the chip.

# %% [markdown]
# ## Why does one tile of latents serve all heads?
#
# In MHA a head meets its own keys. A cached byte then has one user, and nothing is gained by putting heads together. In
# MLA, after the absorb, all heads meet the same entries (lesson 2). A *tile*, a handful of entries that was brought
# onto the chip, can serve all of them, and it serves each twice: as keys, and as values.

# %%
from ledger.widgets.base import COLORS
from ledger.widgets.flow import Arrow, Box, Lane, flow

once = C * entry
lanes = []
for name, times, color in (("a program a head", H, "materialize"), ("heads share the tile", 1, "absorb")):
    items = [Box("entries in memory", (C, L + r), COLORS["latent"])]
    items += [Arrow(f"read {times} ×" if times > 1 else "read once", f"{times * once / 1e6:,.1f} MB")]
    items += [Box("tile on the chip", (32, L + r), COLORS["latent"])]
    items += [Arrow("as keys", "scores"), Box("weights", (H // times, 32)), Arrow("as values", "mix")]
    items += [Box("acc", (H // times, L))]
    lanes.append(Lane(name, items, COLORS[color]))
flow(f"One request of {C:,} tokens, {H} heads", lanes)

# %% [markdown]
# Compare the first arrows. (A GPU's second-level cache catches part of the repeated reading, at a price of its own: it
# has a bandwidth too.)
#
# So a good kernel does, for each byte of the cache,
#
# $$\frac{2\,h\,s\,(L + r + L)}{\text{bytes of an entry}}\ \text{FLOP},$$
#
# with $h$ heads on this GPU and $s$ new tokens of a request. $h\,s$ is the number of **query rows** that share a tile.
# How do the schemes compare that cache keys and values in full?

# %%
from ledger.account.attention import family
from ledger.account.roofline import arithmetic_intensity

print("        users of a cached     FLOP a byte")
print("        key or value          in decode")
for s in family(v3):
    print(f"{s.name:6} {s.query_heads // s.kv_heads:10} heads {s.intensity:17.1f}")
mla = arithmetic_intensity(H, 1, L, r, entry)
print(f"\n{H} heads, {entry} bytes: {mla:.1f} FLOP a byte, or {mla / H:.3f} for each row")
assert mla == family(v3)[-1].intensity

# %% [markdown]
# Each byte has as many users as heads share it. MLA's line is above MQA's because each entry is used as key *and*
# value: the byte is read once for both.

# %% [markdown]
# ## What does a GPU wait for?
#
# A GPU reads and computes at the same time. So a step takes at least as long as the longer of the two:
#
# $$t \ge \max\left(\frac{\text{FLOP}}{\text{FLOP/s}},\ \frac{\text{bytes}}{\text{bytes/s}}\right)$$
#
# They are equal at the machine's **ridge**, its FLOP/s over its bytes/s. Below the ridge a kernel is *memory-bound*,
# above it *compute-bound*. Predict before you run the cell: on which side are 16 heads, and on which are 128?

# %%
from ledger.account.roofline import decode_work, roofline, rows_at_ridge
from ledger.machines import machine

h200 = machine("H200")
rate = h200.flops["bf16"]
print(f"{h200.name} by its datasheet: {rate / 1e12:.0f} TFLOP/s, {h200.bandwidth / 1e12} TB/s")
print(f"ridge {h200.ridge():.0f} FLOP a byte = {rows_at_ridge(h200, L, r, entry):.0f} rows\n")
print(f"{requests} requests of {C:,}:   bf16 cache, {entry} bytes      FP8 cache, 656 bytes")
print("   heads       FLOP/B   waits for      µs     FLOP/B   waits for      µs")
for heads in (1, 8, 16, 32, 64, 128):
    print(f"{heads:8}", end="")
    for f in ("bf16_mla", "fp8_ds_mla"):
        work = decode_work(requests * C, heads, 1, L, r, cache_bytes_per_token(v3, f))
        bound = roofline(*work, h200, "bf16")
        print(f"{work.intensity:13.0f} {bound.name:>11} {1e6 * bound.seconds:7,.0f}", end="")
    print()

# %% [markdown]
# With 16 heads, DeepSeek-V3's share of a GPU in a group of eight, decode does 30 FLOP a byte where the machine could do
# 206. With 128 heads, which is how DeepSeek itself serves it, decode does 242. **The same kernel on the same GPU
# changes its nature with the number of heads.**
#
# The time does not move from 1 head to 64. What the heads do is free, as long as memory sets the pace.
#
# An FP8 cache is read in 57 % of the time. (The numbers are widened to bf16 on the chip, so the arithmetic stays.) At
# 128 heads that gains nothing in speed: only room.

# %%
import numpy as np
from ledger.widgets.base import log_axes, new_figure, plain_ticks

fig = new_figure(8.4, 3.7, alt="Roofline of an H200 with decode by MHA, GQA, MQA and MLA")
ax = fig.subplots()
x = np.geomspace(0.5, 1000, 2000)
ax.plot(x, np.minimum(x * h200.bandwidth, rate) / 1e12, color=COLORS["ink"])
points = [(s.name, s.intensity, "neutral", (-36, 5)) for s in family(v3)[:-1]]
points += [(f"MLA, {h} heads", h * mla / H, "latent", (8, -12)) for h in (16, 64, 128)]
for name, at, color, place in points:
    reach = min(at * h200.bandwidth, rate) / 1e12
    ax.plot([at], [reach], "o", color=COLORS[color], markersize=8)
    ax.annotate(name, (at, reach), place, textcoords="offset points", fontsize=9)
log_axes(ax)
ax.set(xlabel="FLOP for each byte of the cache", ylabel="TFLOP/s at most", ylim=(1, 3000))
fig

# %% [markdown]
# ## Is the datasheet's ridge the real one?
#
# A datasheet is a promise. What did a good kernel reach? FlashAttention 3 has published times on an H200, for 64
# requests of 65,536 tokens. Take the bytes a second that it reached where it waits for memory (16 heads), and the
# FLOP a second where it waits for arithmetic (128 heads), and make a machine of them.

# %%
from dataclasses import replace

from ledger.published import reached_h200

reached, h800 = reached_h200(), machine("H800")
held = replace(h800, name="H800, as held", flops={"bf16": 865e12})  # FlashMLA's authors, under load
print("                    TFLOP/s    TB/s    ridge    rows at the ridge")
for m in (h800, held, h200, reached):
    at = rows_at_ridge(m, L, r, entry)
    print(f"{m.name:16} {m.flops['bf16'] / 1e12:10.0f} {m.bandwidth / 1e12:8.2f}", end="")
    print(f"{m.ridge():9.0f} {at:14.0f}")
share = reached.bandwidth / h200.bandwidth, reached.flops["bf16"] / h200.flops["bf16"]
print(f"\nreached on an H200: {share[0]:.0%} of the datasheet's bytes/s, {share[1]:.0%} of its FLOP/s")

# %% [markdown]
# Kernels come close to the bandwidth and not nearly as close to the tensor cores' rate: these slow down when they get
# hot, and a softmax stands between their two products. So the ridge that counts is lower, **138 FLOP a byte in place of
# 206**, and decode turns compute-bound at 73 rows, not at 109.
#
# (FlashMLA's authors call 128 heads compute-bound on an H800 too, with its slower memory. They take 865 TFLOP/s for
# what its tensor cores hold under load, and 2 FLOP a byte for each row where the exact number is 1.889: their ridge is
# at about 128 rows, the second line's a little above. On either, 128 heads stand next to the ridge.)
#
# Here is a question that can be checked. Go from 64 heads to 128, which doubles the arithmetic and reads the same
# bytes. How much longer does it take?

# %%
predicted = {}
for m in (h200, reached):
    few, many = (roofline(*decode_work(C, h, 1, L, r, entry), m, "bf16") for h in (64, 128))
    predicted[m.name] = many.seconds / few.seconds
    print(f"{m.name:16} 64 heads wait for {few.name}, 128 for {many.name}: × {predicted[m.name]:.2f}")

# %% [markdown]
# Two predictions, one formula. Write down which one you believe. The published times follow further down.

# %% [markdown]
# ## What does one more new token cost?
#
# With multi-token prediction (chapter 8) a request brings its new token and some drafts, which are verified in the same
# step. Each adds $h$ query rows to the tile, and not one byte of cache.

# %%
print("time of a step with several new tokens, over that with one")
print("                      by datasheet               as reached")
print("  heads         2      3      4             2      3      4")
for heads in (16, 32, 64, 128):
    print(f"{heads:7}", end="   ")
    for m in (h200, reached):
        works = (decode_work(C, heads, s, L, r, entry) for s in (1, 2, 3, 4))
        one, *more = (roofline(*work, m, "bf16").seconds for work in works)
        print(*(f"{t / one:6.2f}" for t in more), end="        ")
    print()

# %% [markdown]
# With 16 heads three drafts are free. With 128 heads each costs what the first token cost. So the answer to
# "does MTP make attention cheaper?" is a matter of how many heads a GPU has, before anything is said about acceptance.

# %% [markdown]
# ## How can a softmax be done block by block?
#
# The tile that serves all heads is small: on-chip memory holds a hundred entries or two. So a head sees its scores
# a block at a time, and the largest score, which keeps $e^s$ from overflowing, is known only at the end.
#
# The way out is to keep three things and to correct them: the largest score so far $m$, the sum $l$ of $e^{s-m}$, and
# acc, the sum of $e^{s-m}\,v$. By hand: two tokens with score 0 have gone by, and two more come, with the scores
# $\ln 4$ and 0.

# %%
values = np.array([[4, 0], [0, 4], [8, 0], [0, 8]])
scores = np.array([0, 0, np.log(4), 0])
m, l, acc = 0.0, 2.0, values[:2].sum(axis=0)
print(f"after block 1: m = {m:.3f}   l = {l}    acc = {acc}")
m_new = max(m, scores[2:].max())
rescale, weights = np.exp(m - m_new), np.exp(scores[2:] - m_new)
print(f"               new m = {m_new:.3f}: what is there shrinks by {rescale:.2f}; new weights {weights}")
m, l, acc = m_new, rescale * l + weights.sum(), rescale * acc + weights @ values[2:]
print(f"after block 2: m = {m:.3f}   l = {l}   acc = {acc}")
print(f"\nacc / l = {acc / l},  all at once: {np.exp(scores) @ values / np.exp(scores).sum()}")

# %% [markdown]
# Every term of $l$ and acc carried the factor $e^{-m}$. Times $e^{m - m'}$ it carries $e^{-m'}$:
#
# $$m' = \max(m, \max_t s_t) \qquad l' = e^{m-m'}\,l + \sum_t e^{s_t-m'} \qquad
# \text{acc}' = e^{m-m'}\,\text{acc} + \sum_t e^{s_t-m'} v_t$$
#
# Nothing is approximated. After each block the three are what one pass over all tokens so far would have given.
#
# Here is the whole decode step as a loop over tiles, with the five step words that every kernel of this course uses.
# The softmax has become bookkeeping between two products.


# %%
def tile_loop(queries, entries, latent_dim, scale, block=64):
    """queries [h, c + r], entries [t, c + r] -> out [h, c], lse [h]"""
    m, l = np.full(len(queries), -np.inf, queries.dtype), np.zeros(len(queries), queries.dtype)
    acc = np.zeros((len(queries), latent_dim), queries.dtype)
    for start in range(0, len(entries), block):
        tile = entries[start : start + block]  # load tile
        scores = scale * (queries @ tile.T)  # scores [h, block]
        m_new = np.maximum(m, scores.max(axis=1))  # new maximum, rescale
        rescale, weights = np.exp(m - m_new), np.exp(scores - m_new[:, None])
        m, l = m_new, rescale * l + weights.sum(axis=1)
        acc = rescale[:, None] * acc + weights @ tile[:, :latent_dim]  # accumulate
    return acc / l[:, None], m + np.log(l)  # store


# %% [markdown]
# Predict its multiply-adds. The two products take $h\,C\,(L + r)$ and $h\,C\,L$, as in lesson 4. New is the rescaling:
# one multiplication for each element of acc and of $l$, for each tile. Then count, and compare with the float64 oracle,
# which has all scores at once.

# %%
from ledger.account.attention import decode_absorbed_macs
from ledger.count import count
from ledger.reference import mla

rng = np.random.default_rng(7)
heads, tokens, scale = 16, 1024, 0.135
q, entries = (rng.standard_normal((n, L + r), dtype=np.float32) for n in (heads, tokens))
right = mla.decode_absorbed(*(a[None].astype(float) for a in (q, entries)), [tokens], L, scale)
products = decode_absorbed_macs(tokens, heads, L, r).total + heads * tokens  # and the scale
print("block     multiply-adds   for rescaling   largest array made      error")
for block in (8, 32, 64, 256, 1024):
    out, counts = count(tile_loop, q, entries, L, scale, block)
    assert counts.macs == products + tokens // block * heads * (L + 1)
    error = np.abs(out[0] - right[0]).max()
    print(f"{block:5} {counts.macs:17,} {counts.macs / products - 1:15.2%}", end="")
    print(f"   {counts.largest_shape!s:18} {error:11.1e}")

# %% [markdown]
# Larger tiles rescale less often, and the result does not depend on the tile. What limits a tile is room. On a GPU it
# must lie in the shared memory of a multiprocessor, along with what is loaded for the next one.
#
# `kernels/loops/mla_decode.py` is this loop under the kernels' own names, for all requests. `mla_decode_paged.py`
# beside it goes step by step with the Triton kernel below. Both run here and can be stepped through.

# %% [markdown]
# ## Why must the maximum be the running one?
#
# Somebody writes `m_new = scores.max(axis=1)`, the maximum of the block alone. The algebra still holds: $e^{m - m'}$
# corrects in either direction. It even passes tests on random numbers. Change that one line and try two inputs: random
# scores, and scores that fall from 800 to −800 along the cache.


# %%
def block_maximum(queries, entries, latent_dim, scale, block=64):
    m, l, acc = np.full(len(queries), -np.inf, np.float32), 0, 0
    for start in range(0, len(entries), block):
        tile = entries[start : start + block]
        scores = scale * (queries @ tile.T)
        m_new = scores.max(axis=1)  # of this block alone
        rescale, weights = np.exp(m - m_new), np.exp(scores - m_new[:, None])
        m, l = m_new, rescale * l + weights.sum(axis=1)
        acc = rescale[:, None] * acc + weights @ tile[:, :latent_dim]
    return acc / l[:, None], m + np.log(l)


# %%
falling_q, falling = np.zeros_like(q), entries.copy()
falling_q[:, 0], falling[:, 0] = 1 / scale, np.linspace(800, -800, tokens)  # the score is feature 0
inputs = {"random": (q, entries), "falling": (falling_q, falling)}
for name, (queries, cache) in inputs.items():
    right = mla.decode_absorbed(queries[None].astype(float), cache[None].astype(float), [tokens], L, scale)
    for kernel in (tile_loop, block_maximum):
        with np.errstate(all="ignore"):
            out, lse = kernel(queries, cache, L, scale)
        wrong = np.abs(out - right[0]).max() / np.abs(right[0]).max()
        print(f"{name:8} {kernel.__name__:14} relative error {wrong:8.1e}, lse {lse[0]:8.2f}")

# %%
fig = new_figure(9.0, 3.3, alt="Largest score of each block and so far, and the exponents that rescale")
left, right_ax = fig.subplots(1, 2)
limit = np.log(np.finfo(np.float32).max)
for name, color in (("random", "absorb"), ("falling", "materialize")):
    queries, cache = inputs[name]
    of_block = (scale * queries[0] @ cache.T).reshape(-1, 64).max(axis=1)
    left.plot(of_block, "o-", color=COLORS[color], label=f"{name}: of the block")
    left.plot(np.maximum.accumulate(of_block), "--", color=COLORS[color], label=f"{name}: running")
    right_ax.plot(-np.diff(of_block), "o-", color=COLORS[color])
right_ax.axhline(limit, color=COLORS["ink"], linestyle=":")
right_ax.text(0, limit - 12, f"exp overflows float32 above {limit:.1f}", fontsize=9)
left.set(xlabel="block of 64 tokens", ylabel="largest score", ylim=(-900, 1500))
right_ax.set(xlabel="block of 64 tokens", ylabel="old − new, maximum of the block", ylim=(-60, 170))
left.legend(ncols=2, loc="upper center", fontsize=8)
fig

# %% [markdown]
# The running maximum never falls, so old − new is never positive and the factor is at most 1. The block's own maximum
# may fall, and where it falls by more than 88 the factor is infinite in float32. Random scores never fall that far.
# Nothing forbids it to real ones.
#
# The lesson for testing: a bug in the softmax needs an input that was made for it.

# %% [markdown]
# ## Why split a request's cache?
#
# A GPU is not one processor. An H200 has 132 multiprocessors, and a program of a kernel runs on one of them. If a
# program takes 16 query rows of a request and walks over its whole context, how many are there?

# %%
from math import ceil

processors, row_block = 132, 16
print("requests   heads    programs    multiprocessors at work")
for batch, heads in ((1, 16), (1, 128), (8, 16), (64, 16), (64, 128)):
    programs = batch * ceil(heads / row_block)
    print(f"{batch:8} {heads:7} {programs:11} {min(programs, processors):18} of {processors}")

# %% [markdown]
# One request of 16 heads is read by one multiprocessor, at perhaps a 132nd of the bandwidth, while 131 wait. Even 64
# such requests leave half of them idle. The cure is called **split-KV**: cut the request's tokens into parts, let a
# program read each, and merge what they found. Each part is attention over some of the tokens, with its own output and
# its own log-sum-exp. You merged such parts in chapter 3.

# %%
from ledger.reference.kernels import split_plan
from ledger.reference.values import merge_partials

whole, whole_lse = tile_loop(q, entries, L, scale)
for num_splits in (2, 3, 7, 16):
    plan = split_plan(tokens, num_splits, block=64)
    parts = [tile_loop(q, entries[start:stop], L, scale) for start, stop in plan]
    out, lse = merge_partials(*(np.stack(what) for what in zip(*parts, strict=True)))
    apart = max(np.abs(out - whole).max(), np.abs(lse - whole_lse).max())
    print(f"{num_splits:3} parts, the last {plan[-1]}: apart from one pass by {apart:.1e}")

# %% [markdown]
# The split is no approximation either. But it is not free: each part writes its results in float32, and the merge reads
# them again. Put both into a model of one request: programs run in waves of 132, each program at a 132nd of the
# bandwidth, and then the parts are written and read.

# %%
from ledger.account.values import partials_bytes
from ledger.published import decode_h200


def split_seconds(num_splits, heads, cached):
    programs = num_splits * ceil(heads / row_block)
    longest = 64 * ceil(ceil(cached / 64) / num_splits)  # tokens of the longest part
    reading = ceil(programs / processors) * longest * entry * processors / h200.bandwidth
    return reading + 2 * partials_bytes(num_splits, heads, L) / h200.bandwidth


ways = range(1, 513)
times = [1e6 * split_seconds(n, 16, C) for n in ways]
best = ways[int(np.argmin(times))]
print(f"one part {times[0]:,.0f} µs, {best} parts {min(times):,.1f} µs", end=", ")
print(f"memory's bound {1e6 * C * entry / h200.bandwidth:.1f} µs")
print(f"published, FlashAttention 3: {1e6 * decode_h200('FlashAttention 3', 16, 1)[C]:.1f} µs")

# %%
fig = new_figure(7.6, 3.1, alt="Modelled time of one request over the parts of its cache, log-log")
ax = fig.subplots()
ax.plot(ways, times, color=COLORS["predict"], label="model of the text")
published = 1e6 * decode_h200("FlashAttention 3", 16, 1)[C]
ax.axhline(published, color=COLORS["measure"], linestyle="--", label="published, FlashAttention 3")
ax.axhline(1e6 * C * entry / h200.bandwidth, color=COLORS["ink"], linestyle=":", label="memory's bound")
ax.set(xscale="log", yscale="log", xlabel="parts of the request", ylabel="µs")
ax.set_title(f"One request of {C:,} tokens, 16 heads, {h200.name}", fontsize=10.5)
plain_ticks(ax.xaxis)
plain_ticks(ax.yaxis)
ax.legend()
fig

# %% [markdown]
# The line falls until every multiprocessor has a part. Then it is a saw: one part too many starts a new wave that is
# almost empty. On the right the partial results begin to cost.
#
# The published time lies between: it was split, or it would be at the left end. What keeps it from the bound are
# launches, the merge, and the start of every part, which the model leaves out. They make a floor of 16 to 20 µs,
# however short the context.

# %% [markdown]
# ## Where is a token in memory?
#
# An engine cannot give each request a long array of its own, because it does not know how long the answer will be. So
# the cache is a pool of **pages** of, say, 64 tokens, and a request has a **block table**, the list of its pages.

# %%
from ledger.widgets import roofline as pictures

tables = {"request 0": [5, 1, 7], "request 1": [0], "request 2": [3, 6]}
pictures.page_pool(tables, lengths=[10, 3, 8], num_pages=8, page=4)

# %% [markdown]
# Find token 6 of request 0 by hand: $6 = 1 \cdot 4 + 2$, so entry 1 of its table, page 1, slot 2. For a page of
# $p$ tokens:
#
# $$\text{page} = \text{table}[t\ \text{div}\ p] \qquad \text{slot} = t\ \text{mod}\ p$$
#
# A kernel has no arrays. It has a pointer to the first element, and **strides**: how many elements it is to the next
# page, to the next slot. An index becomes an offset:
#
# $$\text{offset} = \text{page}\cdot\text{stride}_\text{page} + \text{slot}\cdot\text{stride}_\text{slot} + \text{feature}$$

# %%
page, width = 4, 3
pages = rng.standard_normal((8, page, width))
flat = pages.ravel()  # what a pointer sees
stride_page, stride_slot = (stride // pages.itemsize for stride in pages.strides[:2])
t, table = 6, np.array(tables["request 0"])
number, slot = table[t // page], t % page
offset = number * stride_page + slot * stride_slot + np.arange(width)
print(f"token {t}: page {number}, slot {slot}; strides {stride_page} and {stride_slot}; offsets {offset}")
assert np.array_equal(flat[offset], pages[number, slot])

# %% [markdown]
# Two traps wait here, and both stay silent in small tests.
#
# **Offsets outgrow 32 bits.** Block tables are int32, and int32 times an int32 stride is an int32. How many tokens until
# it wraps?

# %%
last = 2**31 // (64 * (L + r))
for number in (last - 1, last + 1):
    narrow = np.int32(number) * np.array(64 * (L + r), np.int32).reshape(1)  # an array wraps in silence
    print(f"page {number:,}: offset {number * 64 * (L + r):,}, in 32 bits {narrow[0]:,}")
print(f"{last * 64:,} tokens in a layer, {last * 64 * entry / 1e9:.1f} GB, are too many;", end=" ")
print(f"{requests} requests of {C:,} have {requests * C:,}")

# %% [markdown]
# The batch of this lesson is already beyond it. So a kernel widens the page's number to int64 *before* it multiplies.
#
# **What is behind the end is not nothing.** The last page is rarely full, and the last tile rarely ends with a request.
# Behind the end lie other requests' tokens, or whatever was there before, and that may be NaN. Giving those tokens a
# weight of 0 is not enough:

# %%
tile = np.array([[1.0, 2.0], [np.nan, np.nan]])  # the second token is behind the end
weights = np.array([1.0, 0.0])
print("weight 0:       ", weights @ tile)
m_token = np.array([True, False])
print("a masked load:  ", weights @ np.where(m_token[:, None], tile, 0.0))

# %% [markdown]
# So the *load* is masked: an element that is not wanted is never fetched, and counts as 0. The same holds for the block
# table, whose unused entries may point anywhere. The course's tests fill all of that with NaN and absurd numbers.

# %% [markdown]
# ## What does the kernel look like?
#
# Triton is Python that is compiled for a GPU. One **program** works on blocks: `tl.load` brings a block of elements
# from a block of pointers, `tl.dot` multiplies two blocks on the tensor cores. The next cells read
# `kernels/gpu/mla_decode.py`, section by section. What a name is, its prefix says: `p_` a pointer, `o_` an offset, `i_`
# an index, `m_` a mask, `b_` a loaded block.

# %%
from importlib.resources import files
from textwrap import dedent

source = files("ledger.kernels").joinpath("gpu/mla_decode.py").read_text(encoding="utf-8")


def show(kernel, start, stop="\n"):
    """The kernel's lines from the one that begins with `start` to before one with `stop`, or to the end."""
    lines = source.split(f"def {kernel}(")[1].split("\n@triton.jit")[0].splitlines()
    first = next(i for i, line in enumerate(lines) if line.strip().startswith(start))
    ends = (i for i in range(first + 1, len(lines)) if lines[i].strip().startswith(stop))
    print(dedent("\n".join(lines[first : next(ends, len(lines))])).strip())


show("shared_tile", "# pointers", "# strides")

# %% [markdown]
# Everything that the kernel knows comes in as pointers and numbers. (Strides and block sizes follow, left out here.)
# `p_out` has an axis of splits: each part writes a result of its own, and another kernel merges them.
#
# **Which rows and which tokens are mine?**

# %%
show("shared_tile", "o_row, i_request", "i_latent, i_rope")

# %% [markdown]
# A program's number has three parts: a block of rows, a request, a split. A row is a head of a new token, so `i_row`
# splits into both. That is how 16 heads of one token, or 4 heads of 4 tokens, share a tile: the kernel does not care.
# `m_row` masks rows that do not exist, for 3 heads or 63.
#
# `seen` holds the causal order: the last new token sees the whole length, the one before it one less. `part_of` is the
# plan of your exercise.
#
# **Load tile.** The block table, then the two traps from above: int64 before the strides, and a mask on each load.

# %%
show("shared_tile", "# load tile", "# scores")

# %% [markdown]
# Latents and rope are two loads, because Triton's blocks have powers of two for sizes: 512 and 64 are, 576 is not.
# `load_latents` returns the latents as they are, or makes them from e4m3 codes and scales.
#
# `b_latent` is loaded once, and used by all rows of the block in what follows, twice.
#
# **Scores.** Two products, one sum. A token that does not exist, or that this row may not see, gets −∞.

# %%
show("shared_tile", "# scores", "# new maximum")

# %% [markdown]
# **New maximum, rescale, accumulate.** Line by line the loop from above. `m_safe` is for a row that has seen nothing
# yet: −∞ − (−∞) would be NaN.

# %%
show("shared_tile", "# new maximum", "# store")

# %% [markdown]
# **Store.** A part that has seen nothing writes 0 and a log-sum-exp of −∞, which weighs nothing in the merge.

# %%
show("shared_tile", "# store")

# %% [markdown]
# The file holds a ladder of three kernels with one signature. `one_head` is the easiest to read: one program for each
# head, vectors in place of blocks of rows, and every head reads the cache for itself. `shared_tile` is what you have
# just read. `split_kv` is the same kernel with more than one split, and this merge behind it:

# %%
show("merged", "acc = tl.zeros", "return")

# %% [markdown]
# ## Does it run here?
#
# On a GPU the kernel is compiled. Without one Triton *interprets* it: the same text runs on the CPU, program after
# program, in NumPy. That is slow, so the sizes are small then, but it is the kernel itself that is checked, and not a
# copy.
#
# The batch is made the way an engine's looks: pages in random order, and everything unused poisoned.

# %% tags=["no-browser"]
from ledger.account.kernels import decode_paged_bytes
from ledger.measure import fast_half
from ledger.reference.kernels import gather_pages

try:
    from ledger.kernels import gpu
    from ledger.kernels.gpu.mode import torch

    half = torch.bfloat16 if gpu.INTERPRETED else getattr(torch, fast_half())
except ImportError as reason:
    gpu = None
    print(f"{reason}: torch and Triton are needed to run the kernels. All else on this page runs without.")


# %% tags=["no-browser"]
def make_batch(lengths, heads, new_tokens=1, page=64):
    """queries, cache, block table, lengths; NaN where no token is, absurd pages behind a table's end"""
    needed = [-(-length // page) for length in lengths]
    cache = gpu.PagedCache.empty(sum(needed) + 2, page, L, r, dtype=half)
    cache.pages.fill_(float("nan"))
    block_table = torch.full((len(lengths), max(needed) + 2), 2**30, dtype=torch.int32)
    order = iter(torch.randperm(sum(needed) + 2).tolist())
    for request, length in enumerate(lengths):
        for i in range(needed[request]):
            block_table[request, i] = number = next(order)
            cache.pages[number, : min(page, length - i * page)].normal_()
    queries = torch.randn(len(lengths), new_tokens, heads, L + r, dtype=half)
    table_and_lengths = (a.int().to(gpu.DEVICE) for a in (block_table, torch.tensor(lengths)))
    return [queries.to(gpu.DEVICE), cache, *table_and_lengths]


# %% [markdown]
# The oracle gathers each request's pages, and does the softmax over all of its tokens at once in float64. Its inputs
# are the same bf16 numbers, so what differs is the kernel's arithmetic and its output's rounding to bf16.


# %% tags=["no-browser"]
def oracle(queries, cache, block_table, lengths):
    """out and lse in float64; the new token i from the end sees i tokens fewer"""
    pages, table, n = cache.entries().cpu().numpy(), block_table.cpu().numpy(), lengths.tolist()
    entries = np.zeros((len(n), max(n), L + r))
    for request, length in enumerate(n):
        entries[request, :length] = gather_pages(pages, table[request], length)
    new = queries.shape[1]
    seen = [[max(0, length - (new - 1 - i)) for length in n] for i in range(new)]
    q = queries.double().cpu().numpy()
    steps = [mla.decode_absorbed(q[:, i], entries, seen[i], L, scale) for i in range(new)]
    return [np.stack(what, axis=1) for what in zip(*steps, strict=True)]


# %% tags=["no-browser"]
if gpu is not None:
    lengths, heads = ([300, 77], 16) if gpu.INTERPRETED else ([4096, 4000], 128)
    batch = make_batch(lengths, heads)
    out, lse = gpu.mla_decode(*batch, scale)
    error = np.abs(out.double().cpu().numpy() - oracle(*batch)[0]).max()
    how = "interpreted" if gpu.INTERPRETED else f"on {torch.cuda.get_device_name()}"
    print(f"Triton, {how}: {heads} heads, lengths {lengths}, largest error {error:.1e}", end=" ")
    print(f"in values up to {out.abs().max():.1f}")

# %% [markdown]
# A browser runs neither torch nor Triton, but it may reach a GPU through WebGPU. The kernel's twin in WGSL has the same
# five steps over an unpaged float32 cache, and runs wherever an adapter is found:

# %%
from ledger.kernels import web

missing = web.available()
if missing is None:
    n = np.array([300, 77, 0])
    cache = rng.standard_normal((3, 300, L + r), dtype=np.float32)
    queries = rng.standard_normal((3, 16, L + r), dtype=np.float32)
    out, lse = web.mla_decode(queries, cache, n, L, scale)
    right = mla.decode_absorbed(queries.astype(float), cache.astype(float), n, L, scale)
    print(f"WGSL on {web.adapter_name()}: lengths {n}, largest error {np.abs(out - right[0]).max():.1e}")
    print(f"the empty request: out {np.unique(out[2])}, lse {np.unique(lse[2])}")
else:
    print(missing)

# %% [markdown]
# ## Does it read what you predicted?
#
# In the interpreter each access can be watched. Count the bytes that the three rungs of the ladder load of the cache,
# and what they load in all, and hold them against the formula: the bytes of the entries and their page numbers, once
# for every block of rows that shares a tile, and the queries, once for every split.

# %% tags=["no-browser"]
if gpu is None or not gpu.INTERPRETED:
    print("The counting is done in the interpreter, which is not what runs here.")
else:
    from ledger.kernels.gpu.watched import watched

    batch = make_batch([40, 24], heads=16)
    print("rung           bytes of the cache   in all     predicted     multiply-adds on tensor cores")
    for rung, row_blocks, splits in (("one_head", 16, 1), ("shared_tile", 1, 1), ("split_kv", 1, 4)):
        with watched() as works:
            gpu.mla_decode(*batch, scale, rung=rung, num_splits=splits)
        work = works["one_head" if rung == "one_head" else "shared_tile"]
        of_cache = work.loaded["p_latent"] + work.loaded["p_rope"]
        loaded = sum(work.loaded.values()) - work.loaded["p_lengths"]
        guess = decode_paged_bytes(64, 16, L, r, 2, entry, 2, row_blocks, splits).read
        print(f"{rung:14} {of_cache:17,} {loaded:12,} {guess:11,} {work.macs:16,}")
        assert loaded == guess

# %% [markdown]
# The first rung reads the cache once for each head, the others once. That is the whole difference between 1.9 and 30
# FLOP a byte. (Multiply-adds include the padding of the last tile. `one_head` has no block of rows, so tensor cores are
# of no use to it.)

# %% [markdown]
# ## Why are bf16 numbers widened in the interpreter?
#
# Ask the interpreter for a product of two bf16 blocks, and look at it.

# %% tags=["no-browser"]
if gpu is None or not gpu.INTERPRETED:
    print("Nothing is interpreted here; on a GPU the product of bf16 blocks is right.")
else:
    from ledger.kernels.gpu.mode import tl, triton

    @triton.jit
    def multiply(p_a, p_b, p_out, DOT: tl.constexpr):
        o_all = 16 * tl.arange(0, 16)[:, None] + tl.arange(0, 16)[None, :]
        b_a, b_b = tl.load(p_a + o_all).to(DOT), tl.load(p_b + o_all).to(DOT)
        tl.store(p_out + o_all, tl.dot(b_a, b_b, input_precision="ieee"))

    a, b = (torch.randn(16, 16).bfloat16() for _ in range(2))
    for dtype in (tl.bfloat16, tl.float32):
        out = torch.empty(16, 16)
        multiply[(1,)](a, b, out, DOT=dtype)
        error = (out - a.float() @ b.float()).abs().max().item()
        print(f"bf16 numbers, multiplied as {dtype}: largest error {error:.1e}")

# %% [markdown]
# Interpreted, the bf16 product is garbage. NumPy has no bf16, so the interpreter keeps such numbers as 16-bit integers,
# and multiplies those. It raises nothing (triton-lang/triton issue 11584; on a GPU the product is right).
#
# Stores are affected too: where a GPU rounds to the nearest bf16, the interpreter cuts digits off. The kernels
# therefore name the dtype of their products, `DOT`, which is float32 in the interpreter and the queries' on a GPU,
# and `rounded` in `kernels/gpu/numbers.py` rounds to bf16 by integer arithmetic, the same in both. What you checked
# above is then the kernel's logic to float32's precision, and not the tensor cores' rounding: that needs a GPU.

# %% [markdown]
# ## How do you test a kernel?
#
# Not with one random batch. Each of these finds what such a batch hides:
#
# | case | what it finds |
# |---|---|
# | lengths 0, 1, 63, 64, 65 | empty requests (NaN in place of 0 and −∞), page and tile ends |
# | 3 heads, 63 heads | rows that do not exist, and are stored all the same |
# | 2 and 4 new tokens | the causal order between them |
# | more splits than blocks | parts without tokens that leak into the merge |
# | scores from 800 down to −800 | the block maximum |
# | pages in another order | a block table that is not used, or used wrongly |
# | NaN wherever no token is | loads without a mask |
#
# (An empty request shows that conventions differ: its lse is +∞ in FlashMLA and NaN in vLLM's Triton kernel. Here the
# output is 0 and the lse −∞, which a merge understands.)
#
# What may differ? An element passes here if it is off by less than 0.0008, or by 2.01/128 of itself, about two steps of
# bf16, as FlashMLA's own tests have it. All elements together may differ by a cosine difference of $5\cdot10^{-6}$.


# %% tags=["no-browser"]
def passes(batch, **how):
    with np.errstate(divide="ignore"):  # the interpreter takes the logarithm of 0
        out, lse = (part.double().cpu().numpy() for part in gpu.mla_decode(*batch, scale, **how))
    right, right_lse = oracle(*batch)
    off = np.abs(out - right)
    assert np.all((off < 8e-4) | (off < 2.01 / 128 * np.abs(right)))
    assert 1 - 2 * (out * right).sum() / (out**2 + right**2).sum() < 5e-6
    assert np.array_equal(np.isneginf(lse), np.isneginf(right_lse))
    lse, right_lse = lse[np.isfinite(right_lse)], right_lse[np.isfinite(right_lse)]
    assert np.all(np.abs(lse - right_lse) < np.maximum(1e-6, 8.01 / 65536 * np.abs(right_lse)))
    return f"{off.max() / np.abs(right).max():.1e}"


# %% tags=["no-browser"]
if gpu is not None:
    print("largest error, over the largest element")
    print("ends of pages and tiles:", passes(make_batch([0, 1, 63, 64, 65], 16)))
    print("3 heads, 63 heads:", *(passes(make_batch([20, 70], heads)) for heads in (3, 63)))
    print("2 and 4 new tokens:", *(passes(make_batch([130, new, 1], 16, new)) for new in (2, 4)))
    batch = make_batch([200, 9], 16)
    print("1, 2 and 11 splits:", *(passes(batch, num_splits=n) for n in (1, 2, 11)))
    queries, cache, block_table, lengths = make_batch([512], 16)
    queries[...], queries[..., 0] = 0, 1 / scale
    down = torch.linspace(800, -800, 512).view(8, 64).to(cache.pages)
    cache.pages[block_table[0, :8].long(), :, 0] = down
    print("falling scores:", passes((queries, cache, block_table, lengths)))

# %% [markdown]
# Every batch above had NaN in its unused memory and absurd numbers behind its block tables, so the last row of the
# table was in all of them. The course's tests run the full list, on both formats of the cache.

# %% [markdown]
# ## What does a compiler make of it?
#
# A kernel can be right and still be slow, if its blocks do not fit. The compiler needs no GPU to tell: it says how much
# of a multiprocessor's shared memory a program takes, how many registers a thread has, whether some were *spilled* to
# memory, and which matrix instruction it uses. Here for Hopper (H100, H200), at DeepSeek-V3's widths.

# %% tags=["no-browser"]
from ledger.kernels.gpu.compiled import TARGETS, table

if gpu is not None:
    target = "sm_90"
    compiled = table((target,))
    room = TARGETS[target].shared
    print(f"{target} ({TARGETS[target].example}): {room:,} bytes of shared memory a program\n")
    print(f"{'kernel':24} {'shared':>9} {'registers':>10} {'spilled':>8}   products by")
    for row in compiled:
        how = row.matrix or "-"
        print(f"{row.kernel:24} {row.shared:9,} {row.registers:10} {row.spilled:8}   {how}")

# %% [markdown]
# Nothing spills, and all fits. `shared_tile` for 16 rows uses `mma`, the instruction of older tensor cores, since
# Hopper's `wgmma` wants 64 rows at least. From 64 rows on another block size is launched, which has them. Why not
# more? Look at acc: 64 rows of 512 float32 are half of all the registers of a multiprocessor. So 128 heads are two
# programs, and both read the same tiles. They run side by side, and one finds in the second-level cache what the other
# has just brought in.
#
# The same table for a T4, an A100 and an MI300X: `python -m ledger.kernels.gpu.compiled`.

# %% [markdown]
# ## How long does it take here?
#
# The roofline holds for any machine. Measure this one: its ceilings for one core, and the tile loop from above over
# growing numbers of heads. The cache does not fit the processor's own. Beside it runs the first rung of the ladder, the
# same loop for one head after the other.
#
# Predict the picture: where heads share the tile, the line should be flat at first and then rise with the heads. Where
# they do not, it should rise from the start.

# %%
from functools import partial

from ledger.browser import IN_BROWSER
from ledger.measure import ceilings, time_pairs

cached, steps = (2048, [1, 4, 16]) if IN_BROWSER else (32768, [1, 2, 4, 8, 16, 32, 64])
entries = rng.standard_normal((cached, L + r), dtype=np.float32)


def head_by_head(queries, *how):
    return [tile_loop(queries[[head]], *how) for head in range(len(queries))]


calls = {}
for h in steps:
    how = rng.standard_normal((h, L + r), dtype=np.float32), entries, L, scale
    calls["shared tile", h] = partial(tile_loop, *how)
    calls |= {("head by head", h): partial(head_by_head, *how)} if h <= 8 else {}
times = {call: timing.low for call, timing in time_pairs(calls, seconds=0.15).items()}

# %%
roof = ceilings("float32", device="cpu")
ridge, per_row = roof.flops / roof.bandwidth, arithmetic_intensity(1, 1, L, r, 4 * (L + r))
print(
    f"this core: {roof.flops / 1e9:.0f} GFLOP/s, {roof.bandwidth / 1e9:.0f} GB/s: {ridge:.1f} FLOP a byte,"
)
print(f"which is {ridge / per_row:.1f} heads in float32, at {per_row:.3f} FLOP a byte and head\n")
bounds = {}
print("heads   head by head, ms   shared tile, ms   GFLOP/s    bound, ms   bound/shared tile")
for h in steps:
    work, shared = decode_work(cached, h, 1, L, r, 4 * (L + r)), times["shared tile", h]
    bounds[h] = max(work.flops / roof.flops, work.bytes / roof.bandwidth)
    alone = times.get(("head by head", h))
    print(f"{h:5} {'' if alone is None else f'{1e3 * alone:.1f}':>18} {1e3 * shared:17.1f}", end="")
    print(f"{work.flops / shared / 1e9:10.1f} {1e3 * bounds[h]:12.1f} {bounds[h] / shared:19.0%}")

# %%
fig = new_figure(7.6, 3.4, alt="Time over heads: head by head, with a shared tile, and the bound")
ax = fig.subplots()
for name, color, mark in (("head by head", "materialize", "s-"), ("shared tile", "absorb", "D-")):
    seen = [h for h in steps if (name, h) in times]
    ax.plot(seen, [1e3 * times[name, h] for h in seen], mark, color=COLORS[color], label=name)
least = [1e3 * bounds[h] for h in steps]
ax.plot(steps, least, "--", color=COLORS["ink"], label="bound, each entry read once")
ax.set(xscale="log", yscale="log", xlabel="heads", ylabel="ms")
ax.set_xticks(steps, [str(h) for h in steps])
ax.minorticks_off()
ax.set_title(f"Decode over {cached:,} cached tokens, float32, one core", fontsize=10.5)
ax.legend()
fig

# %% [markdown]
# Head by head, the time doubles with the heads. With a shared tile the first heads after one cost little, and then the
# line turns up and comes towards the bound, because products with many rows use the core well.
#
# On the left the loop is far from its bound: it is a few thousand calls of NumPy, and a BLAS is not made for products
# with one row. A core's ridge is low, so the bound itself rises almost from the start. A GPU's is a hundred times
# higher, and there the flat part is what decode lives on.
#
# (If another program runs beside this page, the lines wobble. Run the measuring cells again.)

# %% [markdown]
# Where there is a GPU, this cell measures the kernel there, beside the same step in torch: gather the entries, one
# product, a softmax, another product.

# %% tags=["no-browser"]
if gpu is None or gpu.INTERPRETED:
    print("not measured here: torch finds no GPU")
else:
    for heads in (16, 128):
        batch = queries, cache, block_table, lengths = make_batch([4096] * 64, heads)
        pages = block_table[:, :64].long()

        def in_torch(queries=queries, cache=cache, pages=pages):
            entries = cache.pages[pages].flatten(1, 2)  # [b, t, c + r]
            weights = torch.softmax(scale * (queries[:, 0] @ entries.mT).float(), -1).to(half)
            return weights @ entries[..., :L]

        ways = {"this kernel": partial(gpu.mla_decode, *batch, scale), "torch": in_torch}
        work = decode_work(64 * 4096, heads, 1, L, r, entry)
        for name, timing in time_pairs(ways).items():
            flop_rate, byte_rate = (amount / timing.median / 1e12 for amount in work)
            print(f"{heads} heads, {name}: {flop_rate:.0f} TFLOP/s, {byte_rate:.2f} TB/s")

# %% [markdown]
# Careful measurements, on inputs that rotate through more memory than the GPU's own cache holds, are the business of
# `bench/`. What was recorded there on a GPU:

# %% tags=["no-browser"]
import json
from pathlib import Path

import ledger

results = sorted((Path(ledger.__file__).parents[2] / "bench" / "results").glob("*.json"))
runs = [json.loads(path.read_text()) for path in results]
recorded = [run for run in runs if "mla_decode" in run["figures"]]
if not recorded:
    print("not measured here: bench/results has no run of the kernels on a GPU")
for run in recorded:
    print(f"{run['machine']['CUDA device']}, {run['date']}, commit {run['commit']}")
    for row in run["figures"]["mla_decode"]:
        print(f"{row['num_heads']:5} heads, {row['requests']} × {row['cached_tokens']:,}:", end=" ")
        print(f"{row['us']:,.0f} µs")

# %% [markdown]
# ## What do published times say?
#
# Two production kernels have published times on an H200, for bf16 and one new token. First the promised check: from 64
# to 128 heads, at 64 requests of 65,536 tokens.

# %%
from ledger.published import CACHED_TOKENS

observed = dict(predicted)
for kernel in ("FlashAttention 3", "TensorRT-LLM"):
    few, many = (decode_h200(kernel, heads, requests)[C] for heads in (64, 128))
    observed[kernel] = many / few
    print(f"{kernel:17} 64 heads {1e6 * few:,.0f} µs, 128 heads {1e6 * many:,.0f} µs", end=": ")
    print(f"× {observed[kernel]:.2f}")
print(f"predicted: × {predicted['H200']:.2f} by datasheet,", end=" ")
print(f"× {predicted['H200, as reached']:.2f} by what kernels reach")

# %%
fig = new_figure(7.8, 2.3, alt="Time of 128 heads over that of 64: two predictions, two measurements")
ax = fig.subplots()
names = ["by datasheet", "as reached", "FlashAttention 3", "TensorRT-LLM"]
for place, (ratio, kind) in enumerate(
    zip(observed.values(), ("predict", "predict", "measure", "measure"), strict=True)
):
    ax.barh(place, ratio - 1, left=1, color=COLORS[kind], height=0.6)
    ax.text(ratio + 0.01, place, f"× {ratio:.2f}", va="center")
ax.set_yticks(range(4), names)
ax.set(xlim=(1, 2), ylim=(3.6, -0.6), xlabel="time of 128 heads ÷ time of 64 heads, 64 requests of 65,536")
ax.grid(visible=False, axis="y")
fig

# %% [markdown]
# The measured step from 64 to 128 heads is ×1.69, and ×1.59 with the other kernel. The datasheet's ridge promised
# ×1.17. The ridge that kernels reach predicts ×1.75: a little much, because at 64 heads, close to its ridge, a kernel
# no longer reaches the full bandwidth either. **Near a ridge, neither bound is tight.**
#
# So hold three numbers side by side, always: what the datasheet allows, what kernels reach, what was measured. Here
# they are for contexts from 1,024 tokens (in the picture the lowest dot of a column) to 131,072.

# %%
print("64 requests, FlashAttention 3, share of the datasheet's bound")
print("  heads ", *(f"{t:>9,}" for t in CACHED_TOKENS))
rates = {}  # FLOP/s by heads
for heads in (16, 64, 128):
    seconds = decode_h200("FlashAttention 3", heads, requests)
    works = [decode_work(requests * t, heads, 1, L, r, entry) for t in seconds]
    least = [roofline(*work, h200, "bf16").seconds for work in works]
    shares = np.array(least) / list(seconds.values())
    rates[heads] = np.array([work.flops for work in works]) / list(seconds.values())
    print(f"{heads:6}  ", *(f"{share:9.0%}" for share in shares))
floor = [1e6 * decode_h200("FlashAttention 3", heads, 1)[1024] for heads in (16, 64, 128)]
print("\none request of 1,024 tokens:", ", ".join(f"{us:.1f} µs" for us in floor), end="; bound ")
print(f"{1e6 * 1024 * entry / h200.bandwidth:.2f} µs")

# %%
fig = new_figure(8.4, 4.0, alt="Two rooflines of an H200 with published rates below them")
ax = fig.subplots()
for m, line in ((h200, "-"), (reached, "--")):
    roof = np.minimum(x * m.bandwidth, m.flops["bf16"]) / 1e12
    ax.plot(x, roof, line, color=COLORS["ink"], label=m.name)
for (heads, reach), color in zip(rates.items(), ("latent", "absorb", "materialize"), strict=True):
    at = arithmetic_intensity(heads, 1, L, r, entry)
    ax.plot([at] * len(reach), reach / 1e12, "o", color=COLORS[color], label=f"{heads} heads")
log_axes(ax)
ax.set(xlabel="FLOP for each byte of the cache", ylabel="TFLOP/s", xlim=(15, 600), ylim=(40, 1500))
ax.set_xticks([20, 50, 100, 200, 500], ["20", "50", "100", "200", "500"])
ax.set_yticks([50, 100, 200, 500, 1000], ["50", "100", "200", "500", "1,000"])
ax.legend(loc="lower right")
fig

# %% [markdown]
# Long contexts with few heads come within a tenth of the bound. Short ones do not: a launch, a merge and the filling of
# 132 multiprocessors take their 16 to 20 µs, however little there is to read.
#
# (Times: ai-dynamo/aiconfigurator at 095f58a5, Apache-2.0: SGLang 0.5.14 with FlashAttention 3, TensorRT-LLM
# 1.3.0rc20. They were measured by others, not by this course.)

# %% [markdown]
# ## What happens when you turn the knobs?
#
# Left: a machine's roofline and where decode stands on it. Right: the least time, with one to five new tokens a
# request. Three things to try:
#
# * With 16 heads, how many new tokens are free? And as kernels reach it (the last GPU in the list)?
# * Take 128 heads, and change bf16_mla to fp8_ds_mla. What happens to the time, and what to the dashed lines?
# * Which GPUs in the list wait for memory with 128 heads?

# %%
pictures.RooflineExplorer().show()

# %% [markdown]
# The dot moves along the roof with everything that changes rows or bytes. The time moves only if the change touches
# what sets the pace.

# %% [markdown]
# ## What do engines do?
#
# * **FlashMLA** (`docs/20250422-new-kernel-deep-dive.md` in its repository) is written for the compute-bound side: 64
#   rows a program, and two groups of warps that take turns at the tensor cores, since one acc of 64 × 512 leaves no room
#   for two. `splitkv_mla` does the parts, `combine` the merge, and a scheduler hands out blocks so that all
#   multiprocessors end together. Its lse is natural.
# * **vLLM**, `v1/attention/ops/triton_decode_attention.py`: two Triton stages, parts and merge, with 16 heads in a block
#   and 32 tokens in a tile. It runs wherever Triton does. Where tensor cores set the pace it falls behind: TileLang's authors
#   measured 30 to 153 TFLOP/s for two-stage Triton, and 353 to 495 for FlashMLA. `v1/attention/backends/mla/` holds one
#   file for each kernel that vLLM can use.
# * **SGLang**, `layers/attention/triton_ops/decode_attention.py`: the same two stages. FlashAttention 3 is its default
#   for these models on Hopper.
# * **FlashInfer**, `flashinfer/mla.py`: lse to base 2. Whoever merges its parts with another kernel's must convert.
#
# This course's kernels are `kernels/gpu/mla_decode.py` and its neighbours: `absorb_heads` before it, `write_cache`,
# `value_up` behind it, fused with the merge, and `materialize_prefill` for the other path.

# %% [markdown]
# ## How to explain it
#
# *"All heads read the same latents, so a kernel loads a tile of them once and lets all heads use it, as keys and as
# values. With 16 heads that is 30 FLOP a byte, and the GPU waits for memory; with 128 it is 242, and it waits for the
# tensor cores. Where that changes is the machine's ridge: 109 heads by an H200's datasheet, 73 by what kernels reach.
# The softmax runs along, with a running maximum. One long request is split so that all multiprocessors read, and the
# parts are merged by log-sum-exp."*

# %% [markdown]
# ## Summary
#
# * Decode moves the cache entries and hardly anything else. FLOP a byte: $2\,h\,s\,(2L + r)$ over the bytes of an entry,
#   1.89 for each query row in bf16.
# * Least time: the longer of arithmetic and reading. On an H200, 16 heads are memory-bound. 128 are compute-bound. From
#   64 to 128 heads the datasheet predicts ×1.17, the ridge that kernels reach ×1.75, and ×1.69 was measured.
# * A further new token is free on the memory side of the ridge, and has its full price on the other.
# * Online softmax: keep $m$, $l$, acc; rescale by $e^{m-m'}$. The maximum must be the running one.
# * Split-KV puts all multiprocessors on one request. The merge is exact, and costs the partial results' traffic.
# * Pages: table[t div p], t mod p, strides, in 64 bits. Mask the loads; what is behind the end may be NaN.
# * Triton's interpreter checks a kernel's logic without a GPU. Its bf16 products are garbage, so kernels widen there.

# %% [markdown]
# ## Exercises to do next
#
# 1. [online_softmax_step](../../practice/ch07_decode_kernel/decode_kernel.ipynb#cell-id=online_softmax_step-statement): one block more.
# 2. [split_plan](../../practice/ch07_decode_kernel/decode_kernel.ipynb#cell-id=split_plan-statement): who reads which tokens.
# 3. [gather_pages](../../practice/ch07_decode_kernel/decode_kernel.ipynb#cell-id=gather_pages-statement): a request out of its pages.
# 4. [arithmetic_intensity](../../practice/ch07_decode_kernel/decode_kernel.ipynb#cell-id=arithmetic_intensity-statement): FLOP for each
#    cached byte.
# 5. [roofline_seconds](../../practice/ch07_decode_kernel/decode_kernel.ipynb#cell-id=roofline_seconds-statement): the bound.
#
# ```
# python judge.py 7
# ```
#
# Chapter 8 makes use of the free rows: several tokens in one step.
