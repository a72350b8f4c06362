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
# Six lessons counted what decode has to multiply and to read, one array after the other. A GPU does it in one kernel that
# reads the cache once and never writes a score to memory.
#
# **The question:** how fast can one decode step be, and what must a kernel do to come near?

# %% [markdown]
# ## Can you skip this lesson?
#
# Answer these six. If you get them right, go to the exercises at the end.
#
# 1. DeepSeek-V3 decodes in bf16 with 16 heads on a GPU, or with all 128. An H200 does 206 FLOP in the time in which it
#    reads a byte. What does the kernel wait for in each case?
# 2. What kernels reach puts the border between the two elsewhere than the datasheet does. Where, and why?
# 3. You verify one draft token (a guess at the next one) along with the new one. When is that free?
# 4. A kernel takes each block's own maximum for its softmax. All tests on random numbers pass. Which input breaks it?
# 5. One request of 65,536 tokens and 16 heads runs on a GPU of 132 processors. How many of them work?
# 6. A block of 64 tokens ends behind the request's last one. Why is it not enough to give the rest the weight 0?
#
# <details><summary>Answers</summary>
#
# 1. 16 heads do 30 FLOP a byte and wait for memory, 128 do 242 and wait for arithmetic.
# 2. Lower: kernels come nearer to the bandwidth than to the rate of arithmetic. One kernel's published times at 16 and
#    at 128 heads put it at 138 FLOP a byte, or 73 heads.
# 3. While memory sets the pace: both tokens' rows use the same entry. Where arithmetic does, it doubles the time.
# 4. Scores that fall by more than 88 from one block to the next: exp(old − new) overflows float32.
# 5. One, if 16 heads of a request are one piece of work. So engines split its tokens, and merge the parts.
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
# The two last lines do the same arithmetic. They differ in how often the entries come in.
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
# The entries are everything. So a kernel may not fetch them from memory more than once, and may not let a score out of
# the chip.

# %% [markdown]
# ## Why does one tile of latents serve all heads?
#
# In MHA a head meets its own keys, so a cached byte has one user. In MLA, after the absorb, all heads meet the same
# entries (lesson 2). A *tile*, a handful of entries that was brought onto the chip, can serve all of them, and each
# twice: as keys, and as values.
#
# A GPU has many processors (an H200 has 132 *multiprocessors*). A *program* is one piece of the kernel's work on one of
# them. *acc* is the sum of weighted latents that it keeps for each head.

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
# Compare the first arrows. A good kernel does, for each byte of the cache,
#
# $$\frac{2\,h\,s\,(L + r + L)}{\text{bytes of an entry}}\ \text{FLOP},$$
#
# with $h$ heads on this GPU and $s$ new tokens of a request. $h\,s$ is the number of **query rows** that share a tile.
# MLA beside the schemes that cache keys and values in full:

# %%
from ledger.account.attention import family
from ledger.account.roofline import arithmetic_intensity

print("FLOP a byte in decode")
for s in family(v3):
    print(f"{s.name:4} {s.query_heads // s.kv_heads:4} heads share a key: {s.intensity:7.1f}")
mla = arithmetic_intensity(H, 1, L, r, entry)
print(f"{H} heads, {entry} bytes: {mla:.1f}, or {mla / H:.3f} for each row")
assert mla == family(v3)[-1].intensity

# %% [markdown]
# ## What does a GPU wait for?
#
# A GPU reads and computes at the same time. So a step takes at least as long as the longer of the two:
#
# $$t \ge \max\left(\frac{\text{FLOP}}{\text{FLOP/s}},\ \frac{\text{bytes}}{\text{bytes/s}}\right)$$
#
# The FLOP/s are those of the *tensor cores*, the units that multiply small matrices. The two are equal at the machine's
# **ridge**, its FLOP/s over its bytes/s. Below the ridge a kernel is *memory-bound*, above it *compute-bound*. Predict:
# on which side are 16 heads, and on which are 128?

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
# With 16 heads, a GPU's share of DeepSeek-V3 in a group of eight, decode does 30 FLOP a byte. With 128, which is how
# DeepSeek serves it, it does 242. **The same kernel on the same GPU changes its nature with the number of heads.** From 1
# head to 64 the bf16 time does not move: what the heads do is free while memory sets the pace.
#
# (Only bytes from off the chip count. Where two programs read a tile, the second finds it in the second-level cache, L2,
# which all processors share.)
#
# An FP8 cache is read in 57 % of the time. The numbers are widened to bf16 on the chip, so the arithmetic stays, and at
# 128 heads that gains room, but no speed.

# %% [markdown]
# ## Is the datasheet's ridge the real one?
#
# A datasheet is a promise. What did good kernels reach? FlashAttention 3's and TensorRT-LLM's have published times on an
# H200, for 64 requests of 65,536 tokens. From the first take the bytes a second where it waits for memory (16 heads) and
# the FLOP a second where it waits for arithmetic (128 heads), and make a machine of them.
#
# Then predict: from 64 heads to 128 the arithmetic doubles, and the bytes stay. How much longer does it take?

# %%
from ledger.published import reached_h200

reached = reached_h200()
print("                    TFLOP/s   TB/s   ridge   rows at it   128 heads over 64")
for m in (h200, reached):
    few, many = (roofline(*decode_work(C, h, 1, L, r, entry), m, "bf16") for h in (64, 128))
    print(f"{m.name:16} {m.flops['bf16'] / 1e12:10.0f} {m.bandwidth / 1e12:6.2f} {m.ridge():7.0f}", end="")
    print(f"{rows_at_ridge(m, L, r, entry):13.0f} {'×':>13} {many.seconds / few.seconds:.2f}")
share = reached.bandwidth / h200.bandwidth, reached.flops["bf16"] / h200.flops["bf16"]
print(f"\nreached: {share[0]:.0%} of the datasheet's bytes/s, {share[1]:.0%} of its FLOP/s")

# %% [markdown]
# Kernels come close to the bandwidth and not nearly as close to the tensor cores' rate: these slow down when they get
# hot, and a softmax stands between their two products. So the ridge that counts is lower, **138 FLOP a byte in place of
# 206**, and decode turns compute-bound at 73 rows, not at 109.
#
# Be careful with the last column. The second machine was made of FlashAttention 3's own times at 16 and at 128 heads, so
# its ×1.75 *is* the second over the first. For this kernel it predicts only that 64 heads cost no more than 16. New to
# it are 64 heads, and all that the other kernel did. Write down what you expect.

# %%
from ledger.published import decode_h200

print(f"µs, {requests} requests of {C:,}     16       64      128 heads   64 over 16   128 over 64")
for kernel in ("FlashAttention 3", "TensorRT-LLM"):
    few, some, many = (1e6 * decode_h200(kernel, heads, requests)[C] for heads in (16, 64, 128))
    print(f"{kernel:23} {few:8,.0f} {some:8,.0f} {many:8,.0f}", end="")
    print(f"{'×':>13} {some / few:.2f} {'×':>9} {many / some:.2f}")

# %% [markdown]
# 64 heads cost nearly what 16 do, 2 to 4 % more, so both wait for memory. To 128 heads it is ×1.69 from there, and ×1.59
# with the kernel that had no part in the prediction. Both are nearer to the lower ridge's ×1.75 than to the datasheet's
# ×1.17. **Near a ridge, neither bound is tight.**
#
# So hold three numbers side by side, always: what the datasheet allows, what kernels reach, what was measured. Here for
# contexts from 1,024 tokens (the lowest dot of a column) to 131,072:

# %%
import numpy as np
from ledger.widgets.base import log_axes, new_figure, plain_ticks

fig = new_figure(8.4, 4.0, alt="Two rooflines of an H200, published rates of 16 to 128 heads below them")
ax = fig.subplots()
x = np.geomspace(15, 600, 500)
for m, line in ((h200, "-"), (reached, "--")):
    roof = np.minimum(x * m.bandwidth, m.flops["bf16"]) / 1e12
    ax.plot(x, roof, line, color=COLORS["ink"], label=m.name)
for heads, color in ((16, "latent"), (64, "absorb"), (128, "materialize")):
    for t, seconds in decode_h200("FlashAttention 3", heads, requests).items():
        work = decode_work(requests * t, heads, 1, L, r, entry)
        label = f"{heads} heads, FlashAttention 3" if t == C else None
        ax.plot(work.intensity, work.flops / seconds / 1e12, "o", color=COLORS[color], label=label)

# %%
log_axes(ax)
ax.set(xlabel="FLOP for each byte of the cache", ylabel="TFLOP/s", xlim=(15, 600), ylim=(40, 1500))
ax.set_xticks([20, 50, 100, 200, 500], ["20", "50", "100", "200", "500"])
ax.set_yticks([50, 100, 200, 500, 1000], ["50", "100", "200", "500", "1,000"])
ax.legend(loc="lower right")
fig

# %% [markdown]
# Long contexts with few heads come within about a tenth of the bound. Short ones do not.
#
# (Times: ai-dynamo/aiconfigurator at 095f58a5, Apache-2.0: SGLang 0.5.14 with FlashAttention 3, TensorRT-LLM
# 1.3.0rc20. They were measured by others, not by this course.)

# %% [markdown]
# ## What does one more new token cost?
#
# With multi-token prediction (MTP, chapter 8) a request brings its new token and some drafts, guesses at the tokens
# behind it, which are verified in the same step. Each adds $h$ query rows to the tile, and not one byte of cache.

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
# With 16 heads three drafts are free. With 128 heads each costs what the first token cost. So "does MTP make attention
# cheaper?" is a matter of how many heads a GPU has, before it is one of how many guesses are right.

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
# The softmax has become bookkeeping between two products. (`running=False` is a mistake, for the next section.)


# %%
def tile_loop(queries, entries, latent_dim, scale, block=64, running=True):
    """queries [h, c + r], entries [t, c + r] -> out [h, c], lse [h]"""
    m, l = np.full(len(queries), -np.inf, queries.dtype), np.zeros(len(queries), queries.dtype)
    acc = np.zeros((len(queries), latent_dim), queries.dtype)
    for start in range(0, len(entries), block):
        tile = entries[start : start + block]  # load tile
        scores = scale * (queries @ tile.T)  # scores [h, block]
        largest = scores.max(axis=1)  # new maximum, rescale
        m_new = np.maximum(m, largest) if running else largest
        rescale, weights = np.exp(m - m_new), np.exp(scores - m_new[:, None])
        m, l = m_new, rescale * l + weights.sum(axis=1)
        acc = rescale[:, None] * acc + weights @ tile[:, :latent_dim]  # accumulate
    return acc / l[:, None], m + np.log(l)  # store


# %% [markdown]
# Predict its multiply-adds. The two products take $h\,C\,(L + r)$ and $h\,C\,L$, as in lesson 4. New is the rescaling:
# one multiplication for each element of acc and of $l$, for each tile. Then count, and compare with the *oracle*, the
# right answer by another way: in float64, with all scores at once.

# %%
from ledger.account.attention import decode_absorbed_macs
from ledger.count import count
from ledger.reference import mla

rng = np.random.default_rng(7)
heads, tokens, scale = 16, 1024, 0.135
q, entries = (rng.standard_normal((n, L + r), dtype=np.float32) for n in (heads, tokens))
right = mla.decode_absorbed(*(a[None].astype(float) for a in (q, entries)), [tokens], L, scale)
products = decode_absorbed_macs(tokens, heads, L, r).total + heads * tokens  # and the scale
print("block     multiply-adds   for rescaling      error")
for block in (8, 32, 64, 256, 1024):
    out, counts = count(tile_loop, q, entries, L, scale, block)
    assert counts.macs == products + tokens // block * heads * (L + 1)
    error = np.abs(out[0] - right[0]).max()
    print(f"{block:5} {counts.macs:17,} {counts.macs / products - 1:15.2%} {error:10.1e}")

# %% [markdown]
# Larger tiles rescale less often, and the result does not depend on the tile. What limits a tile is room: it must lie in
# the *shared memory* of a multiprocessor, along with what is loaded for the next one.

# %% [markdown]
# ## Why must the maximum be the running one?
#
# Somebody takes the maximum of the block alone. The algebra still holds: $e^{m - m'}$ corrects in either direction. Try
# two inputs: random scores, and scores that fall from 800 to −800 along the cache.

# %%
falling_q, falling = np.zeros_like(q), entries.copy()
falling_q[:, 0], falling[:, 0] = 1 / scale, np.linspace(800, -800, tokens)  # the score is feature 0
inputs = {"random": (q, entries), "falling": (falling_q, falling)}
for name, (queries, cache) in inputs.items():
    right = mla.decode_absorbed(queries[None].astype(float), cache[None].astype(float), [tokens], L, scale)
    for running in (True, False):
        with np.errstate(all="ignore"):
            out, lse = tile_loop(queries, cache, L, scale, running=running)
        wrong, which = np.abs(out - right[0]).max(), "running" if running else "of block"
        wrong /= np.abs(right[0]).max()
        print(f"{name:8} {which:9} relative error {wrong:8.1e}, lse {lse[0]:8.2f}")

# %% [markdown]
# The running maximum never falls, so the factor is at most 1. The block's own may fall, and where it falls by more than
# 88 the factor is infinite in float32. Random scores never fall that far. Nothing forbids it to real ones: a bug in the
# softmax needs an input that was made for it.

# %% [markdown]
# ## Why split a request's cache?
#
# If a program takes 16 query rows of a request and walks over its whole context, how many programs are there for the 132
# multiprocessors?

# %%
from math import ceil

processors, row_block = 132, 16
print("requests   heads    programs    multiprocessors at work")
for batch, heads in ((1, 16), (1, 128), (8, 16), (64, 16), (64, 128)):
    programs = batch * ceil(heads / row_block)
    print(f"{batch:8} {heads:7} {programs:11} {min(programs, processors):18} of {processors}")

# %% [markdown]
# One request of 16 heads is read by one multiprocessor, while 131 wait. Even 64 such requests leave half of them idle.
# The cure is **split-KV**: cut the request's tokens into parts, let a program read each, and merge the parts by their
# log-sum-exp, as in chapter 3.

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
# The split is no approximation either. But each part writes its results in float32, and the merge reads them again. A
# model of one request: programs run in *waves* of 132, each at a 132nd of the bandwidth; then the parts are written and
# read.

# %%
from ledger.account.values import partials_bytes


def split_seconds(num_splits, heads, cached):
    programs = num_splits * ceil(heads / row_block)
    longest = 64 * ceil(ceil(cached / 64) / num_splits)  # tokens of the longest part
    reading = ceil(programs / processors) * longest * entry * processors / h200.bandwidth
    return reading + 2 * partials_bytes(num_splits, heads, L) / h200.bandwidth


for n in (1, 66, 132, 133, 264):
    print(f"{n:3} parts {1e6 * split_seconds(n, 16, C):10,.1f} µs")
seconds = decode_h200("FlashAttention 3", 16, 1)
print(f"published: {1e6 * seconds[C]:.1f} µs for {C:,} tokens, {1e6 * seconds[1024]:.1f} for 1,024")
bound = entry / h200.bandwidth
print(f"memory's bound: {1e6 * C * bound:.1f} µs and {1e6 * 1024 * bound:.2f}")

# %% [markdown]
# The time falls until every multiprocessor has a part. One part more starts a wave that is almost empty. Twice as many
# fill it again, and double the partial results.
#
# The model leaves 27 µs of the published time unexplained. The *launch* (start) of the kernel, the merge's, and the
# beginning of each part are not in it. But 1,024 tokens have all of those and hardly anything to read, and take 16 µs.

# %% [markdown]
# ## Where is a token in memory?
#
# An engine does not know how long an answer will be, so a request has no long array of its own. The cache is a pool of
# **pages** of, say, 64 tokens, and a request has a **block table**, the list of its pages.

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
# $$\text{offset} = \text{page}\cdot\text{stride}_\text{page} + \text{slot}\cdot\text{stride}_\text{slot} +
# \text{feature}$$

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
stride = 64 * (L + r)
last = 2**31 // stride
numbers = np.array([last - 1, last + 1], np.int32)
print("pages             ", numbers)
print("offsets in 64 bits", numbers.astype(np.int64) * stride)
print("offsets in 32 bits", numbers * np.int32(stride))
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
# table, whose unused entries may point anywhere.

# %% [markdown]
# ## What does the kernel look like?
#
# Triton is Python that is compiled for a GPU. Where there is none it is *interpreted*: the same text runs on the CPU, one
# program after the other, in NumPy. That is slow, so sizes are small then, but it is the kernel itself that runs.
# Prefixes say what a name is: `p_` a pointer, `o_` an offset, `i_` an index, `m_` a mask, `b_` a loaded block.

# %% tags=["no-browser"]
try:
    from ledger.kernels import gpu
    from ledger.kernels.gpu import trial
    from ledger.kernels.interpret.mode import DEVICE, tl, torch, triton
except ImportError as reason:
    gpu = None
    print(f"{reason}: torch and Triton are needed to run the kernels. All else on this page runs without.")

# %% [markdown]
# First a small one: the sums of 5 rows of 6 numbers, by programs that take 4 rows each. NaN lies all around.

# %% tags=["no-browser"]
if gpu is not None:

    @triton.jit
    def row_sums(p_x, p_sums, rows, width, stride_row, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
        i_row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        i_column = tl.arange(0, COLUMNS)
        m_row, m_column = i_row < rows, i_column < width
        o_x = i_row[:, None] * stride_row + i_column[None, :]
        b_x = tl.load(p_x + o_x, mask=m_row[:, None] & m_column[None, :], other=0.0)
        tl.store(p_sums + i_row, tl.sum(b_x, axis=1), mask=m_row)

    x, sums = torch.full((8, 8), float("nan"), device=DEVICE), torch.full((5,), float("nan"), device=DEVICE)
    x[:5, :6] = torch.arange(30.0).view(5, 6)
    row_sums[(2,)](x, sums, 5, 6, x.stride(0), ROWS=4, COLUMNS=8)
    print("kernel:", sums.tolist(), " torch:", x[:5, :6].sum(1).tolist())

# %% [markdown]
# * `row_sums[(2,)](…)` launches a **grid** of 2 programs of the same text (up to three axes are possible), and
#   `tl.program_id(0)` tells each which one it is.
# * `tl.arange(0, ROWS)` is the block 0, 1, 2, 3. The compiler must know its size (`tl.constexpr`), a power of two. So
#   5 rows are two blocks of 4, 6 columns one of 8, and masks cut off the rest.
# * `[:, None]` makes a column of a block, `[None, :]` a row, and both together a block of 4 × 8, as in NumPy.
# * `tl.load` fetches what a block of pointers points to. Where the mask is False it reads nothing and gives `other`.
#
# Now the whole of `shared_tile` in `kernels/gpu/mla_decode.py`: decode over a paged cache. `tl.dot` is a product on the
# tensor cores. The numbers lead to the notes below.

# %%
from ledger.kernels.listing import listing

noted = ("o_row, i_request", "seen =", "start, stop =", "b_query =", "i_page, i_slot", "b_latent =")
print(listing("gpu/mla_decode.py", "shared_tile", [*noted, "m_safe =", "empty ="]))

# %% [markdown]
# 1. A program's number has three parts: a block of rows, a request, a split. A row is a head of a new token. That is how
#    16 heads of one token, or 4 heads of 4 tokens, share a tile. `m_row` masks rows that do not exist.
# 2. The causal order: the last new token sees the whole length, the one before it one less.
# 3. The tokens of this split. `part_of` is the plan of your exercise.
# 4. Queries are loaded once. `DOT` is the products' dtype: on a GPU that of the queries, in the interpreter float32.
#    NumPy has no bf16, and would multiply the numbers' 16 bits as integers.
# 5. The two traps: int64 before the strides, and a mask on each load.
# 6. Latents and rope are two loads, since 576 is no power of two. `b_latent` is loaded once and used by all rows, twice:
#    for the scores and for acc. (`load_latents` reads FP8 codes too.)
# 7. `m_safe` is for a row that has seen only scores of −∞ so far: −∞ − (−∞) would be NaN.
# 8. A split that has seen nothing writes 0 and a log-sum-exp of −∞, which weighs nothing in the merge.
#
# The file holds a ladder of three: `one_head`, where every head reads the cache for itself; `shared_tile`; and
# `split_kv`, which is `shared_tile` with more than one split and the merge behind it. To step through the same loops in
# NumPy: `kernels/loops/mla_decode_paged.py`.

# %% [markdown]
# ## Does it run here?
#
# The batch looks like an engine's: pages in random order. Everything unused is NaN, and block tables point nowhere behind
# their end. The oracle gathers the pages and does one softmax in float64. (In a browser, which has no Triton, a twin of
# this kernel runs on WebGPU, further down.)

# %% tags=["no-browser"]
if gpu is not None:
    lengths, heads = ([300, 77], 16) if gpu.INTERPRETED else ([4096, 4000], 128)
    error = trial.error(trial.make_batch(lengths, heads), scale)
    how = "interpreted" if gpu.INTERPRETED else f"on {torch.cuda.get_device_name()}"
    print(f"Triton, {how}, {trial.HALF}: {heads} heads, lengths {lengths}:", end=" ")
    print(f"largest error {error:.1e} of the largest element")

# %% [markdown]
# ## Does it read what you predicted?
#
# In the interpreter each access can be watched. Count what the three rungs load of the cache, and in all, and hold it
# against the formula: the entries and their page numbers, once for every block of rows that shares a tile, and the
# queries, once for every split.

# %% tags=["no-browser"]
if gpu is None or not gpu.INTERPRETED:
    print("The counting is done in the interpreter, which is not what runs here.")
else:
    from ledger.account.kernels import decode_paged_bytes
    from ledger.kernels.interpret.watched import watched

    batch = trial.make_batch([40, 24], num_heads=16)
    print("rung           bytes of the cache   in all     predicted")
    for rung, row_blocks, splits in (("one_head", 16, 1), ("shared_tile", 1, 1), ("split_kv", 1, 4)):
        with watched() as works:
            gpu.mla_decode(*batch, scale, rung=rung, num_splits=splits)
        loaded = works["one_head" if rung == "one_head" else "shared_tile"].loaded
        in_all = sum(loaded.values()) - loaded["p_lengths"]
        guess = decode_paged_bytes(64, 16, L, r, 2, entry, 2, row_blocks, splits).read
        print(f"{rung:14} {loaded['p_latent'] + loaded['p_rope']:17,} {in_all:12,} {guess:11,}")

# %% [markdown]
# The first rung reads the cache once for each head, the others once. That is the whole difference between 1.9 and 30
# FLOP a byte. (These are 64 cached tokens only, so the queries dominate in the last column.)

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
# An element passes, as in FlashMLA's own tests, if it is off by less than 0.0008 or by 2.01/128 of itself, about two
# steps of bf16. The last two rows are in every batch.


# %% tags=["no-browser"]
def tried(lengths, heads, new_tokens=1, **how):
    return f"{trial.error(trial.make_batch(lengths, heads, new_tokens), scale, **how):.1e}"


if gpu is not None:
    print("largest error, over the largest element")
    print("ends of pages and tiles:", tried([0, 1, 63, 64, 65], 16))
    print("3 heads, 63 heads:", *(tried([20, 70], heads) for heads in (3, 63)))
    print("2 and 4 new tokens:", *(tried([130, new, 1], 16, new) for new in (2, 4)))
    print("1, 2 and 11 splits:", *(tried([200, 9], 16, num_splits=n) for n in (1, 2, 11)))
    print(f"falling scores: {trial.error(trial.falling_batch(16, scale), scale):.1e}")

# %% [markdown]
# ## What does a compiler make of it?
#
# A kernel can be right and still be slow, if its blocks do not fit. The compiler tells without a GPU: how much shared
# memory a program takes, how many *registers* (numbers at hand) each of its *threads* (lanes of the arithmetic) has, how
# many were *spilled* to memory for want of room, and which instruction multiplies matrices. Here for Hopper (H100, H200).

# %% tags=["no-browser"]
if gpu is not None:
    from ledger.kernels.gpu.compiled import TARGETS, table

    room = TARGETS["sm_90"].shared
    ladder = ("one_head", "shared_tile", "shared_tile, many rows", "shared_tile, FP8", "combine")
    print(f"sm_90 ({TARGETS['sm_90'].example}): {room:,} bytes of shared memory a program\n")
    print(f"{'kernel':24} {'shared':>9} {'registers':>10} {'spilled':>8}   products by")
    for row in table(("sm_90",), ladder):
        how = row.matrix or "-"
        print(f"{row.kernel:24} {row.shared:9,} {row.registers:10} {row.spilled:8}   {how}")

# %% [markdown]
# Nothing spills, and all fits. Hopper's fast instruction, `wgmma`, wants 64 rows; with fewer it is `mma`, that of older
# tensor cores. Why not more than 64? An acc of 64 rows × 512 fills half of a multiprocessor's registers. So 128 heads are
# two programs, which share their tiles through L2.
#
# All kernels, also for a T4, an A100 and an MI300X: `python -m ledger.kernels.gpu.compiled`.

# %% [markdown]
# ## Can your own GPU do it, even in a browser?
#
# `kernels/web/mla_decode.wgsl` is the same loop for WebGPU: in float32, without pages, and a *workgroup* of 256 lanes is
# what a program is in Triton. It takes up to 32 heads of a request. This is how each head's lane corrects $m$ and $l$,
# as `tile_loop` does:

# %%
from ledger.kernels import web

missing = web.available()
print(missing or f"It runs on: {web.adapter_name()}")
print(web.source("mla_decode").split("// new maximum, rescale\n")[1].split("    workgroupBarrier")[0])

# %% [markdown]
# Requests of 20, 0, 9 and 1 tokens, NaN behind each end. Which log-sum-exp should the empty one have?

# %%
if missing is None:
    lengths, heads = np.array([20, 0, 9, 1]), 32
    asked, held = (rng.standard_normal((4, rows, L + r), dtype=np.float32) for rows in (heads, 20))
    held[np.arange(20) >= lengths[:, None]] = np.nan
    right, right_lse = mla.decode_absorbed(asked.astype(float), held.astype(float), lengths, L, scale)
    found = web.mla_decode(asked, held, lengths, L, scale)
    error = np.abs(found.out - right).max() / np.abs(right).max()
    print(f"largest error against float64, over the largest element: {error:.1e}")
    print("log-sum-exp of head 0:", *(f"{lse:.4f}" for lse in found.lse[:, 0]))
    print("in float64:           ", *(f"{lse:.4f}" for lse in right_lse[:, 0]))

# %% [markdown]
# Now the time. One request is one workgroup here, so predict: how much longer do many requests take than one? (On a
# software adapter, which is slow, they are few and short.)

# %%
from ledger.account.attention import decode_absorbed_bytes


def web_time(batch, length):
    made = (rng.standard_normal((batch, rows, L + r), dtype=np.float32) for rows in (32, length))
    how = *made, np.full(batch, length), L, scale
    seconds = web.time_kernel(web.mla_decode, *how, seconds=0.1).low
    nbytes = decode_absorbed_bytes(batch * length, 32, L, r, itemsize=4, requests=batch).total
    print(f"{batch:2} × {length:,} tokens: {seconds * 1e3:.3g} ms, {nbytes / seconds / 1e9:.3g} GB/s")
    return seconds


if missing is None and web_time(1, 16) < 2e-3:
    web_time(1, 1024), web_time(16, 1024)
elif missing is None:
    web_time(4, 16)

# %% [markdown]
# A GPU should take about as long for many as for one, until every processor has a workgroup: a single request leaves
# most of them idle. That is what split-KV is for, which this kernel does not have. (Of a software adapter only the
# results mean anything.)
#
# With 128 heads a request is four workgroups, each of which loads every tile. So the cache comes in four times, mostly
# from the GPU's own cache.

# %% [markdown]
# ## How long does it take here?
#
# The roofline holds for any machine. Measure this one: one core's ceilings, and the tile loop over growing numbers of
# heads, with a cache that does not fit the processor's own. Beside it the same loop takes one head after the other.
#
# Predict: where heads share the tile, the line should be flat at first and then rise. Where they do not, it should rise
# from the start.

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
print(f"this core: {roof.flops / 1e9:.0f} GFLOP/s, {roof.bandwidth / 1e9:.0f} GB/s")
print(f"ridge {ridge:.1f} FLOP a byte, {ridge / per_row:.1f} heads in float32;", end=" ")
print(f"an H200's is {h200.ridge() / ridge:.0f} times that")
works = {h: decode_work(cached, h, 1, L, r, 4 * (L + r)) for h in steps}
bounds = {h: max(work.flops / roof.flops, work.bytes / roof.bandwidth) for h, work in works.items()}
print(f"{steps[-1]} heads with a shared tile reach {bounds[h] / times['shared tile', h]:.0%} of the bound")

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
plain_ticks(ax.yaxis)
ax.minorticks_off()
ax.set_title(f"Decode over {cached:,} cached tokens, float32, one core", fontsize=10.5)
ax.legend()
fig

# %% [markdown]
# Head by head, the time doubles with the heads. With a shared tile the first heads after one cost little. Then the line
# turns up, and nearer to the bound, because a BLAS is made for products with many rows. A core's ridge is low, so the
# bound itself rises almost from the start. On a GPU the flat part is long, and decode lives on it.
#
# (If another program runs beside this page, the lines wobble. Run the measuring cells again.)
#
# On a GPU `python bench/kernels.py` measures the kernel beside torch and what else is installed. What it recorded:

# %% tags=["no-browser"]
import json
from pathlib import Path

import ledger

results = sorted((Path(ledger.__file__).parents[2] / "bench" / "results").glob("*.json"))
runs = [json.loads(path.read_text()) for path in results]
recorded = [run for run in runs if "mla_decode" in run["figures"]]
if not recorded:
    print("nothing yet: the kernel was not measured here. The published times are further up.")
for run in recorded:
    print(f"{run['machine']['CUDA device']}, {run['figures']['ceilings']['dtype']}", end=", ")
    print(f"{run['date']}, commit {run['commit']}")
    for row in run["figures"]["mla_decode"]:
        print(f"{row['num_heads']:5} heads, {row['requests']} × {row['cached_tokens']:,}:", end=" ")
        print(f"{row['us']:,.0f} µs")

# %% [markdown]
# ## What happens when you turn the knobs?
#
# Left: a machine's roofline and where decode stands on it. Right: the least time with one to five new tokens. Try:
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
# * **FlashMLA** (`docs/20250422-new-kernel-deep-dive.md`): 64 rows a program, and two groups of threads that take turns
#   at the tensor cores, since there is no room for a second acc. `splitkv_mla` does the parts, `combine` the merge.
# * **vLLM**, `v1/attention/ops/triton_decode_attention.py`: two Triton stages, parts and merge, 16 heads in a block.
#   TileLang's authors measured 30 to 153 TFLOP/s for two-stage Triton, and 353 to 495 for FlashMLA.
# * **SGLang**, `layers/attention/triton_ops/decode_attention.py`: the same; its default on Hopper is FlashAttention 3.
# * **FlashInfer**, `flashinfer/mla.py`: lse to base 2, to be converted before a merge with others' parts. An empty
#   request's lse is +∞ in FlashMLA, NaN in vLLM's kernel, and −∞ here, which a merge understands.

# %% [markdown]
# ## How to explain it
#
# *"All heads read the same latents, so a kernel loads a tile of them once and lets all heads use it, as keys and as
# values. With 16 heads that is 30 FLOP a byte, and the GPU waits for memory; with 128 it is 242, and it waits for the
# tensor cores. The border is the machine's ridge: 109 heads by an H200's datasheet, 73 by what kernels reach. The softmax
# keeps a running maximum. One long request is split among all multiprocessors, and merged by log-sum-exp."*

# %% [markdown]
# ## Summary
#
# * Decode moves the cache entries and hardly anything else. FLOP a byte: $2\,h\,s\,(2L + r)$ over the bytes of an entry,
#   1.89 for each query row in bf16.
# * Least time: the longer of arithmetic and reading. On an H200, 16 heads are memory-bound and 128 compute-bound. From 64
#   to 128 heads the datasheet promises ×1.17; two kernels took ×1.69 and ×1.59. The ridge that they reach lies lower.
# * A further new token is free on the memory side of the ridge, and has its full price on the other.
# * Online softmax: keep $m$, $l$, acc; rescale by $e^{m-m'}$. The maximum must be the running one.
# * Split-KV puts all multiprocessors on one request. The merge is exact, and costs the partial results' traffic.
# * Pages: table[t div p], t mod p, strides, in 64 bits. Mask the loads; what is behind the end may be NaN.

# %% [markdown]
# ## Exercises to do next
#
# 1. [online_softmax_step](../../practice/ch07_decode_kernel/decode_kernel.ipynb#cell-id=online_softmax_step-statement):
#    one block more.
# 2. [split_plan](../../practice/ch07_decode_kernel/decode_kernel.ipynb#cell-id=split_plan-statement): who reads which
#    tokens.
# 3. [gather_pages](../../practice/ch07_decode_kernel/decode_kernel.ipynb#cell-id=gather_pages-statement): a request out
#    of its pages.
# 4. [arithmetic_intensity](../../practice/ch07_decode_kernel/decode_kernel.ipynb#cell-id=arithmetic_intensity-statement):
#    FLOP for each cached byte.
# 5. [roofline_seconds](../../practice/ch07_decode_kernel/decode_kernel.ipynb#cell-id=roofline_seconds-statement): the
#    bound.
# 6. [absorb_heads_kernel](../../practice/ch07_decode_kernel/triton_kernels.ipynb#cell-id=absorb_heads_kernel-statement):
#    the absorb as a kernel, in Triton.
# 7. [mla_decode_kernel](../../practice/ch07_decode_kernel/triton_kernels.ipynb#cell-id=mla_decode_kernel-statement): a
#    tile of the cache for all heads.
#
# The last two need PyTorch and Triton, so a computer with Linux, and no GPU.
#
# ```
# python judge.py 7
# ```
#
# Then go on to [lesson 8](../ch08_mtp/drafts.ipynb): several tokens of a request in one step. By the account above
# their rows are free with 16 heads on a GPU, up to the ridge, and not with 128. Lesson 8 counts what this kernel really
# loads.
