# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 10 DSA: what it saves, and what it does not
#
# [The first part](indexer.ipynb) built the indexer: it scores every cached token, and attention meets only the 2,048 best.
# This part keeps the books.
#
# **The question:** what does DSA save in arithmetic, in reading and in memory, from which context on, and do published
# numbers say the same?
#
# (It leans on two earlier lessons: [speculative decoding](../ch08_mtp/speed.ipynb), and what a
# [long context](../ch06_cache/cache.ipynb) takes in the cache.)

# %% [markdown]
# ## Can you skip this lesson?
#
# Answer these seven. If you get them right, go to the exercises at the end.
#
# 1. Does sparse attention save compute, bandwidth, memory?
# 2. "The indexer's keys add 11 % to the cache." Of which cache, and what is it of an FP8 cache?
# 3. Why is DSA's prefill of a short prompt dearer than a dense one?
# 4. At which length does that end? (There are four right answers.)
# 5. "At 128K DSA needs about 30 times less arithmetic to decode." Can that be, for DeepSeek-V3.2?
# 6. One draft, dense attention: the cache is read once for both rows. And with DSA?
# 7. Two requests share a prefix of 100K tokens. What does the second still compute for all of it?
#
# <details><summary>Answers</summary>
#
# 1. Compute and bandwidth. Not memory: the next query may pick any token, so all must stay, and the indexer's keys come
#    on top.
# 2. Of the bf16 cache, 11.5 %. Of the 656-byte FP8 cache that engines run DSA with, 20.1 %.
# 3. Each query picks its own tokens, which only the absorbed form can serve, and a pair costs 3.4 times as much there as
#    with expanded keys. A short prompt has too few pairs to leave out. So engines compute all pairs and mask those that
#    are not picked.
# 4. By FLOP one query breaks even at position 6,963, a whole prompt against masked MHA at 12,813, against dense attention
#    without an indexer at 16,315 tokens. By published times of an H200 it is about 28,500.
# 5. No. The table says 13.4, and 17.0 is the limit at any length.
# 6. Each row picks its own 2,048 tokens, so up to twice as many are read. Only the indexer's keys are shared.
# 7. The indexer's scores, for every new token against all 100K.
#
# </details>
#
# (The next cell keeps NumPy's products to one core, so that the times on this page repeat.)

# %%
import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")

# %% [markdown]
# ## Can you keep the books by hand?
#
# A query that meets a token is a *pair*. There are three things to do with a pair, and for DeepSeek-V3.2 their prices
# stand as 17 : 5 : 1.
#
# * **17**: attend in the *absorbed* form, straight from the latent. All decode does.
# * **5**: attend with *expanded* keys and values. A dense prefill does, having expanded each token once for all queries.
# * **1**: let the indexer score it.
#
# Take 8 tokens and a top-k of 2. What does one decoded token cost, and what a prompt of 8?

# %%
absorbed, expanded, indexer, tokens, topk = 17, 5, 1, 8, 2
pairs = tokens * (tokens + 1) // 2
met = sum(min(seen, topk) for seen in range(1, tokens + 1))
print(f"decode   dense {tokens} · {absorbed} = {tokens * absorbed}", end="     ")
print(f"DSA {tokens} · {indexer} + {topk} · {absorbed} = {tokens * indexer + topk * absorbed}")
print(f"prompt   dense {pairs} · {expanded} = {pairs * expanded}", end="     ")
print(f"DSA {pairs} · {indexer} + {met} · {absorbed} = {pairs * indexer + met * absorbed}")

# %% [markdown]
# That is the whole lesson in two lines. Decoding costs a third. The prompt costs *more*, because its dense side has a
# cheaper price to begin with. All that follows is the same sum with large numbers.

# %% [markdown]
# ## Where do 17, 5 and 1 come from?
#
# From the widths: $h$ heads, latent $c$, rope $r$, nope $n$, value $v$, and an indexer of $h_I$ heads of width $d_I$. Two
# FLOP a multiply-add:
#
# $$\text{absorbed} = 2h\,(c + r) + 2h\,c \qquad \text{expanded} = 2h\,(n + r) + 2h\,v \qquad \text{indexer} = 2h_I\,d_I$$

# %%
from ledger.account.cache import cache_bytes_per_token, indexer_bytes_per_token
from ledger.account.dsa import pair_flops
from ledger.models import model

v32, glm, glm52 = model("DeepSeek-V3.2"), model("GLM-5"), model("GLM-5.2")
K = v32.index_topk
for m in (v32, glm):
    pair, key = pair_flops(m), indexer_bytes_per_token(m)
    prices = " : ".join(f"{flops / pair.indexer:.0f}" for flops in pair)
    print(
        f"{m.name:13} absorbed {pair.absorbed:,}, expanded {pair.expanded:,}, indexer {pair.indexer:,}",
        end="",
    )
    print(f" = {prices};  absorbed ÷ expanded = {pair.absorbed / pair.expanded:.1f}")
    print(f"   a cached token: {cache_bytes_per_token(m, 'bf16_mla'):,} bytes, {key} of the indexer's key")

# %%
from ledger.widgets.base import COLORS
from ledger.widgets.flow import Arrow, Box, Lane, flow

pair, L = pair_flops(v32), 131_072
entry, key = cache_bytes_per_token(v32, "bf16_mla"), indexer_bytes_per_token(v32)
query, index_query = (v32.num_heads, v32.cache_dim), (v32.index_heads, v32.index_dim)


def lane(name, shape, verb, met, flops, of_tokens, size, color):
    """Queries of ``shape`` meet ``met`` tokens of ``size`` bytes."""
    items = [Box("queries", shape), Arrow(verb, f"{met * flops / 1e9:.2f} GFLOP")]
    items += [Box(of_tokens, f"{met:,}"), Arrow("read", f"{met * size / 1e6:.1f} MB")]
    items += [Box("each", f"{size:,} bytes")]
    return Lane(name, items, COLORS[color])


# %%
dense = lane("dense", query, "attend", L, pair.absorbed, "all latents", entry, "materialize")
first = lane("DSA: score", index_query, "index", L, pair.indexer, "all keys", key, "value")
then = lane("DSA: attend", query, "attend", K, pair.absorbed, "the best latents", entry, "absorb")
flow(f"One decoded token in one layer, {L:,} cached", [dense, first, then])

# %% [markdown]
# ## What does the ledger say?
#
# With $L$ cached tokens and $k = \min(L, 2048)$,
#
# $$\frac{\text{dense}}{\text{DSA}} = \frac{L \cdot \text{absorbed}}{L \cdot \text{indexer} + k \cdot \text{absorbed}}
# \;\longrightarrow\; \frac{\text{absorbed}}{\text{indexer}}\ \text{ as } L \text{ grows}$$
#
# and the same for bytes, with the entry in place of "absorbed" and the key in place of "indexer". A prompt adds its
# queries up: a common short form takes $L^2/2$ pairs and $L\,k$ picks.
#
# **Predict** before you look: by how much does decode win at 4K, 32K, 128K? Is GLM-5, with half the heads, better or
# worse?

# %%
from ledger.account.dsa import dsa_decode_ledger, dsa_prefill_ledger

contexts = (4096, 32768, 131072)
print("            decode, GFLOP a layer      decode, MiB a layer        prompt, TFLOP a layer")
for m in (v32, glm):
    print(m.name)
    for L in contexts:
        d, p = dsa_decode_ledger(L, m, K, "bf16_mla"), dsa_prefill_ledger(L, m, K, exact=False)
        print(f"{L // 1024:6}K", end="")
        columns = [(d[:2], 1e9, 2), (d[2:], 2**20, 1), (p, 1e12, 1)]
        for (dense, sparse), unit, digits in columns:
            shown = f"{dense / unit:.{digits}f} → {sparse / unit:.{digits}f}"
            print(f"{shown:>18} ({dense / sparse:4.1f} ×)", end="")
        print()

# %% [markdown]
# Decode wins at all three, more in arithmetic than in reading. A prompt of 4K loses. GLM-5 does half the work of
# DeepSeek-V3.2 and wins by the *same* factors in decode: it has half the heads and half the index heads, and 17 : 1
# stays. Its prompts win more: its prices are 17 : 8 : 1, so the dense side is the one that is dearer.
#
# (The short form of a prompt sets a triangle of pairs against a rectangle of picks. Added up over positions, DeepSeek-V3.2
# at 4K comes to the next line. It loses all the same.)

# %%
dense, sparse = dsa_prefill_ledger(4096, v32, K, exact=True)
print(f"a prompt of 4K, exact: {dense / 1e12:.2f} → {sparse / 1e12:.2f} TFLOP ({dense / sparse:.2f} ×)")

# %% [markdown]
# A widely shared figure says "about 30 × the decode compute at 128K". Its own table says 13.4. Could a longer context get
# there?

# %%
far = dsa_decode_ledger(10**9, v32, K, "bf16_mla")
most = pair.absorbed / pair.indexer
print(f"limit of compute: {most:.1f} ×    (at a billion tokens {far.dense_flops / far.sparse_flops:.2f})")
for cache_format in ("bf16_mla", "fp8_ds_mla"):
    entry = cache_bytes_per_token(v32, cache_format)
    print(f"limit of reads, {cache_format:10}: {entry} / {key} = {entry / key:.1f} ×")
turn = K * pair.absorbed // pair.indexer
print(f"from {turn:,} tokens on the indexer computes more than the attention that it serves")
owners, all_layers = glm52.num_indexer_layers, glm52.num_mla_layers
print(
    f"{glm52.name}: {owners} of {all_layers} layers index, its limit is {most * all_layers / owners:.0f} ×"
)

# %%
from ledger.widgets.dsa import saving_lines

saving_lines(v32)

# %% [markdown]
# No context gives 30. The indexer still meets every token, and what it costs is the limit. (So making the indexer rarer is
# the next step: GLM-5.2 lets most layers reuse the selection of one below them.)
#
# In FP8 the limit of reads is lower, since the latents are smaller and the keys are not.

# %% [markdown]
# ## Eleven percent of what?

# %%
from ledger.widgets.dsa import overhead_strips

overhead_strips([(v32, "bf16_mla"), (v32, "fp8_ds_mla"), (glm52, "fp8_ds_mla")])

# %% [markdown]
# The key takes 132 bytes beside either entry: 128 e4m3 values and a scale. Of the bf16 cache that is 11.5 %, of the FP8
# cache that engines run DSA with 20.1 %. Averaged over GLM-5.2's layers it is 5.4 %, because the others own no keys.
#
# All of it is *more*. The cache of a DSA model is larger than that of the same model without.

# %% [markdown]
# ## Why is a short prompt dearer?
#
# Dense prefill expands each token's latent into keys and values once, and all queries share them: 5 a pair. Under DSA
# each query has tokens of its own. Why not keep the price of 5 there? Two ways come to mind. Work them out for one query.

# %%
from ledger.account.cache import full_bytes_per_token

expand = 2 * v32.latent_dim * v32.num_heads * (v32.nope_dim + v32.value_dim)
entry, full = cache_bytes_per_token(v32, "bf16_mla"), full_bytes_per_token(v32)
ways = {"absorbed, from latents": (pair.absorbed, entry)}
ways |= {"expand the picks for this query": (expand + pair.expanded, entry)}
ways |= {"gather what was expanded before": (pair.expanded, full)}
print(f"one query, {K:,} picks              GFLOP   MB gathered   FLOP a byte")
for name, (flops, size) in ways.items():
    print(f"{name:34} {K * flops / 1e9:6.2f} {K * size / 1e6:13.1f} {flops / size:13.0f}")

# %% [markdown]
# Expanding for one query alone is a hundred times the work. Gathering expanded keys moves seventy times the bytes, and does
# one FLOP for each: hopeless. So a query with picks of its own pays 17.
#
# There is a third way for short prompts, **masked MHA**: score with the indexer, compute *all* pairs with expanded keys,
# and mask those that were not picked before the softmax. Price: 5 + 1 for every pair, and the same answer.

# %%
import numpy as np

rng = np.random.default_rng(10)
S, H, N, C, V, k = 12, 3, 4, 6, 5, 4
q, latents, w_k, w_v = (rng.standard_normal(shape) for shape in ((S, H, N), (S, C), (H, N, C), (H, C, V)))
scores = np.where(np.tri(S, dtype=bool), rng.standard_normal((S, S)), -np.inf)  # the indexer's
picked = (scores >= np.sort(scores, axis=1)[:, [-k]]) & (scores > -np.inf)


def softmax(logits):
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


# %%
keys, values = np.einsum("tc,hnc->thn", latents, w_k), np.einsum("tc,hcv->thv", latents, w_v)
logits = np.einsum("shn,thn->sht", q, keys)  # all pairs, expanded
masked = np.einsum("sht,thv->shv", softmax(np.where(picked[:, None], logits, -np.inf)), values)
for s in range(S):
    own = latents[picked[s]]  # [picks, c]: these alone, absorbed
    mixed = softmax(np.einsum("hn,hnc->hc", q[s], w_k) @ own.T) @ own
    assert np.allclose(np.einsum("hc,hcv->hv", mixed, w_v), masked[s], rtol=0, atol=1e-12)
print(f"{S} queries, {picked.sum()} of {S * (S + 1) // 2} pairs picked: the same outputs to 1e-12")

# %% [markdown]
# DeepSeek-V3.2's report says that its prefill does this for short prompts.

# %% [markdown]
# ## At which length does that end?
#
# It depends on the question. Each of these is somebody's "break-even":

# %%
from ledger.account.dsa import break_even_position, break_even_prompt
from ledger.published import PREFILL_MODULE_H200, crossing
from ledger.widgets.dsa import to_500

questions = {"a query at a position: expanded against its picks": lambda m: break_even_position(m, K)}
for exact, how in ((False, "half a square"), (True, "exact sum")):
    for alone, other in ((False, "masked MHA against sparse"), (True, "no indexer against DSA")):
        questions[f"a prompt: {other}, {how}"] = lambda m, e=exact, a=alone: break_even_prompt(m, K, e, a)
questions["a decoded token: no indexer against DSA"] = lambda m: (
    K * pair_flops(m).absorbed / (pair_flops(m).absorbed - pair_flops(m).indexer)
)

# %%
print(f"{'equal FLOP, at how many tokens':54} {v32.name:>14} {glm.name:>9}")
for asked, answer in questions.items():
    print(f"{asked:54} {answer(v32):14,.0f} {answer(glm):9,.0f}")
clock = [{row.tokens: getattr(row, kind) for row in PREFILL_MODULE_H200} for kind in ("dense", "sparse")]
print(f"{'equal time, published for a layer on an H200, a prompt':54} {to_500(crossing(*clock)):14,}")

# %% [markdown]
# * **6,963 is a position, not a prompt.** It is where *one more* query costs the same either way. A prompt of that length
#   is made of cheaper queries, all those before it.
# * **A whole prompt** breaks even at twice that by the short form: $\tfrac12 L^2 \cdot 5 = L\,k \cdot 17$. The short form
#   charges 2,048 picks to early queries too, which have fewer tokens than that. The exact sum comes earlier.
# * **Does the other side run an indexer?** Masked MHA does. DeepSeek-V3 does not, and a dense model is harder to beat.
# * **By the clock** it is later still (between two published lengths, so to the nearest 500). Why, we ask below.

# %%
from ledger.widgets.dsa import break_even_pictures

break_even_pictures(v32)

# %% [markdown]
# ## Does a run count the same?
#
# The ledger is a formula. Let the reference run at small widths and **count** its multiply-adds. Predict them with the same
# ledger, for a model of these widths.

# %%
from dataclasses import replace

from ledger.count import count
from ledger.reference.sparse import attend, index_scores, select_topk

heads, T = 4, 120
widths = dict(num_heads=heads, latent_dim=32, rope_dim=8, nope_dim=16, value_dim=20)
small = replace(v32, **widths, index_heads=2, index_dim=12, index_topk=40)
q_index, k_index, w_index, queries, entries = (
    rng.standard_normal(shape) for shape in ((T, 2, 12), (T, 12), (T, 2), (T, heads, 40), (T, 40))
)
q_head, k_head, v_head = (rng.standard_normal((T, heads, width)) for width in (24, 24, 20))


# %%
def sparse_query(q_index, k_index, w_index, queries, entries):
    chosen = select_topk(index_scores(q_index[None], k_index, w_index[None])[0], small.index_topk)
    return attend(queries, entries, entries[:, : small.latent_dim], chosen, 0.1)


def sparse_prompt(q_index, k_index, w_index, queries, entries):
    for s in range(T):
        sparse_query(q_index[s], k_index[: s + 1], w_index[s], queries[s], entries[: s + 1])


def dense_prompt(q, k, v):
    for s, h in np.ndindex(T, heads):
        attend(q[s, h][None], k[: s + 1, h], v[: s + 1, h], list(range(s + 1)), 0.1)


# %% [markdown]
# The counter sees two kinds of multiplications that the ledger leaves out, since they are so few: the softmax scale, one
# for each head of a pair that meets, and the indexer's weights, one for each of its heads of a pair that is scored. With
# them on both sides the numbers must be equal, not close.

# %%
topk, scored = small.index_topk, T * (T + 1) // 2
met = topk * (topk + 1) // 2 + (T - topk) * topk
decode = dsa_decode_ledger(T, small, topk, "bf16_mla").sparse_flops
sparse, dense = reversed(dsa_prefill_ledger(T, small, topk, exact=True))
last = (q_index[-1], k_index, w_index[-1], queries[-1], entries)
whole = (q_index, k_index, w_index, queries, entries)
runs = [("DSA, one query", decode, heads * topk + 2 * T, sparse_query, last)]
runs += [("DSA, a prompt", sparse, heads * met + 2 * scored, sparse_prompt, whole)]
runs += [("dense, a prompt", dense, heads * scored, dense_prompt, (q_head, k_head, v_head))]
print("multiply-adds        ledger       + few     counted")
for name, flops, few, run, arrays in runs:
    counted = count(run, *arrays)[1].macs
    print(f"{name:16} {flops // 2:10,} {few:11,} {counted:11,}")
    assert flops // 2 + few == counted

# %% [markdown]
# ## What does this machine say?
#
# **Measure** one decoded token of DeepSeek-V3.2's widths in NumPy, in float32: dense against index, select, gather and
# attend. By FLOP the two are equal at 2,176 tokens.

# %%
from ledger.browser import IN_BROWSER
from ledger.measure import time_pairs

share = 8 if IN_BROWSER else 1  # a browser takes an eighth of the heads on both sides
heads, index_heads, most = v32.num_heads // share, v32.index_heads // share, 8192 if IN_BROWSER else 32768
draw = np.random.default_rng(11).standard_normal
cache, keys = draw((most, v32.cache_dim), np.float32), draw((most, v32.index_dim), np.float32)
queries, q_index = draw((heads, v32.cache_dim), np.float32), draw((index_heads, v32.index_dim), np.float32)
w_index = draw(index_heads, np.float32)


def attend_rows(queries, rows):
    logits = queries @ rows.T / np.float32(24)
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return (weights @ rows[:, : v32.latent_dim]) / weights.sum(1, keepdims=True)


# %%
def pick(keys):
    scores = w_index @ np.maximum(q_index @ keys.T, 0)
    return np.argpartition(scores, -K)[-K:] if len(scores) > K else np.arange(len(scores))


def measured(L):
    """Milliseconds with ``L`` cached tokens: dense, DSA, and of DSA the picking."""
    runs = {"dense": lambda: attend_rows(queries, cache[:L]), "pick": lambda: pick(keys[:L])}
    runs["DSA"] = lambda: attend_rows(queries, cache[pick(keys[:L])])
    took = time_pairs(runs, seconds=0.3)
    return [1e3 * took[name].low for name in ("dense", "DSA", "pick")]


# %%
print("cached   dense, ms   DSA, ms    of it picking   times as fast   by FLOP")
for L in (n for n in (1024, 2048, 4096, 8192, 16384, 32768) if n <= most):
    took, d = measured(L), dsa_decode_ledger(L, v32, K, "bf16_mla")
    print("{:6,} {:11.1f} {:9.1f} {:13.1f}".format(L, *took), end="")
    print(f"{took[0] / took[1]:16.1f} {d.dense_flops / d.sparse_flops:11.1f}")

# %% [markdown]
# The ratio grows with the context much as the ledger says. At the long end it lags: picking is more than its products,
# and gathering costs. On a GPU such costs are what moves a break-even, as two published sources show.

# %% [markdown]
# ## Does the report's own curve agree?
#
# DeepSeek-V3.2's report draws the cost of a token by its position, on H800 GPUs at 2 US$ an hour. These lines are read
# off the drawing.

# %%
from ledger.widgets.dsa import cost_curves

cost_curves()

# %% [markdown]
# A cost *at a position*: not that of a whole prompt. Each line is straight, or has one kink. So every slope is a price of a
# pair. Turn it into a speed: with 61 layers, FLOP a pair from the ledger, and 2 US$ an hour, how many FLOP/s must a GPU do
# for the line to rise as it does?

# %%
from ledger.machines import machine
from ledger.published import V32_COST, v32_rates

rates, h800 = v32_rates(v32), machine("H800")
for name, (rate, dtype) in rates.items():
    print(f"{name:24} {rate / 1e12:6.1f} TFLOPS, {rate / h800.rate(dtype):5.1%} of {dtype}'s peak")

# %% [markdown]
# Look at the first two. Two kernels that have nothing in common, one with expanded keys and one in the absorbed form, at
# the same speed to four digits, 60.0 % of the peak. Most other shares are as round: 40, 35, 40. Measured kernels do not do
# that. So the drawn lines are a *model*: FLOP by this ledger, over a share of the peak for each part. They confirm how the
# account is built. They are no measurement of its speed.
#
# The kinks say the same. In decode it stands where nothing is added any more but index scores, read at 2,105 and to be
# expected at 2,048. In prefill it stands where masked MHA stops paying: read at 6,747, to be expected at 6,963 if both
# forms ran at one speed. (The table's speeds over the picks take the height of the curve at the kink.)

# %% [markdown]
# At 128K the curve's attention gains 13.54, and the ledger says 13.43. A fine agreement, one would think. Try 32K.

# %%
old, new = V32_COST["V3.1", "decode"], V32_COST["V3.2", "decode"]
print("position   FLOP, dense ÷ DSA   the curve   indexer's share of DSA's FLOP   mean speed of DSA")
for L in (8192, 32768, 131072, 2**20):
    d = dsa_decode_ledger(L, v32, K, "bf16_mla")
    gain, curve = d.dense_flops / d.sparse_flops, old.attention(L) / new.attention(L)
    part, speed = L * pair.indexer / d.sparse_flops, curve / gain * rates["dense, decode"].rate
    print(f"{L:9,} {gain:15.2f} {curve:15.2f} {part:21.0%} {speed / 1e12:28.0f} TFLOPS")
print(f"the whole token at 131,071: {old.at(131071) / new.at(131071):.2f} times cheaper")

# %% [markdown]
# DSA's two parts run at unequal speeds: the indexer in FP8 faster than the dense kernel, attention over the picks slower.
# Their mean depends on the mix. At 32K the slow half weighs, and the curve gains less than the FLOP. Far out the indexer is
# all, and it gains more. At 128K the mean happens to pass the dense kernel's 594: the agreement there is a coincidence. So
# when two numbers agree at one point, look at a second.

# %% [markdown]
# ## And what do measured times say?
#
# Times of a whole attention layer on an H200, with its projections, published by NVIDIA's aiconfigurator (vLLM 0.24.0, FP8
# projections, 128 heads). In decode dense has a bf16 cache and DSA the 656-byte one. **Predict**: where do they cross, with
# 64 requests and with one?

# %%
from ledger.published import decode_module_h200
from ledger.widgets.dsa import module_times

module_times()

# %% [markdown]
# By FLOP a decoded token breaks even at 2,176, by bytes at 2,313. By the clock it is between 4K and 8K with 64 requests,
# and between 64K and 128K with one. Why later?

# %%
print("requests   at 512 tokens: dense, DSA, µs     64K to 128K adds: dense, DSA, µs   ratio   crossing")
for n in (1, 16, 64):
    old, new = decode_module_h200("dense", "bf16", n), decode_module_h200("sparse", "fp8", n)
    adds = [1e6 * (table[131072] - table[65536]) for table in (old, new)]
    print(f"{n:8} {1e6 * old[512]:21.0f} {1e6 * new[512]:8.0f} {adds[0]:25.0f} {adds[1]:8.0f}", end="")
    print(f"{adds[0] / adds[1]:14.1f} {to_500(crossing(old, new)):10,}")
for cache in ("bf16", "fp8"):
    both = [1e6 * decode_module_h200(kind, cache, 1)[131072] for kind in ("dense", "sparse")]
    print(f"1 request, both {cache}, at 131,072: dense {both[0]:.0f} µs, DSA {both[1]:.0f}")

# %% [markdown]
# The *slope* is as the ledger says: with 64 requests each further token costs dense attention ten times what it costs DSA,
# between the limits of reads, 8.7, and of compute, 17.0. What the ledger does not have is the *start*. More kernels run (the
# indexer's projections, scores, a selection, a gather), each with a floor of its own. One request has little else to do, so the
# floor rules to nearly 100K; with the same cache format on both sides DSA has not won by 128K at all.
#
# In prefill there is work enough to hide the floors. There it is speed. Fit a parabola through the last three lengths: what
# grows with $L^2$ is pairs, dense ones or the indexer's; what grows with $L$ is projections and, for DSA, the picks.

# %%
from ledger.published import prefill_speeds_h200

speed, h200 = prefill_speeds_h200(v32), machine("H200")
for name, (rate, dtype) in speed.items():
    print(f"{name:26} {rate / 1e12:5.0f} TFLOPS, {rate / h200.rate(dtype):3.0%} of peak")
dense_rate, index_rate, pick_rate = (rate for rate, _ in speed.values())
pays = pair.expanded / 2 / dense_rate - pair.indexer / 2 / index_rate
print(f"equal at {break_even_prompt(v32, K, False, True):,.0f} tokens if all ran at one speed,", end=" ")
print(f"at {K * pair.absorbed / pick_rate / pays:,.0f} at these")

# %% [markdown]
# The dense kernel reaches more than three quarters of the peak, the sparse one with its selection and scattered reads less
# than half. That alone moves 17,408 to about where the times cross. A FLOP count says what must be done. It does not say how
# fast it can be.

# %% [markdown]
# ## What happens when you turn the knobs?
#
# The ledger of whole models. Four things to try:
#
# * Go to 1M with GLM-5.2. Which number of DeepSeek-V3.2's does it beat most, and why?
# * Switch the cache to FP8. Which of the three gains changes? Which way?
# * At which context does DSA's line start to rise again? What rises there?
# * Is there a context where a decoded token gains and a prompt loses? One where both lose?

# %%
from ledger.widgets.dsa import DsaLedger

DsaLedger().show()

# %% [markdown]
# ## What do drafts find when they meet DSA?
#
# Lesson 8 made drafts pay because the rows of a request share one reading of its cache. Under DSA each row has a selection
# of its own. What is read is the *distinct* tokens of all selections.
#
# By hand: rows that pick $\{3, 5, 8\}$ and $\{5, 8, 9\}$ read 4 tokens, not 3 and not 6.

# %%
from ledger.widgets.dsa import draft_lines, verified_rows


def rows_read(selections):
    """Distinct tokens of several rows' selections; -1 is nothing."""
    return len(np.unique(selections[selections >= 0]))


assert rows_read(np.array([[3, 5, 8], [5, 8, 9]])) == 4
first, noise = rng.standard_normal(8192), rng.standard_normal(8192)
keys_read, entry = 8192 * key, cache_bytes_per_token(v32, "fp8_ds_mla")
print("likeness of the rows' scores   tokens read   share found   bytes ÷ one row's")
for alike in (0.0, 0.5, 0.9, 0.95, 1.0):
    second = alike * first + (1 - alike**2) ** 0.5 * noise
    read = rows_read(np.array([np.argsort(-scores)[:K] for scores in (first, second)]))
    bytes_read = (keys_read + read * entry) / (keys_read + K * entry)
    print(f"{alike:20.2f} {read:20,} {2 - read / K:13.0%} {bytes_read:16.2f}")
print(f"none shared {verified_rows(v32, 8192, 'fp8_ds_mla', 1, 0.0):.2f}, 70 % shared", end=" ")
print(f"{verified_rows(v32, 8192, 'fp8_ds_mla', 1, 0.7):.2f}; dense attention 1.00")

# %%
draft_lines(v32, "fp8_ds_mla")

# %% [markdown]
# (The scores are invented, and even unlike ones share a quarter of their picks: 2,048 of 8,192 by chance.) With one draft at
# 8K and nothing in common a layer reads 1.55 times as much, with 70 % in common 1.17 times. Only the indexer's keys are
# shared for sure. Far out they are most of what is read, and drafts are nearly free again. Compute, of course, doubles:
# indexer and attention alike.

# %% [markdown]
# ## What about memory?
#
# Nothing is saved, and the keys come on top. So two questions part that used to have one answer. *Does it fit?* That is
# capacity. *Is it fast enough?* That is time. Take an H200 with 30 % of its memory for the cache, and allow the attention of
# all layers 20 ms of a step. It works at what published kernels reached (taken for dense and sparse alike).

# %%
from ledger.widgets.dsa import limits_by_context, two_limits

rows = limits_by_context(v32, "bf16_mla", memory=0.3 * h200.memory, seconds=0.020)
for L, fits, fast_dense, fast_sparse in rows:
    if L in contexts:
        print(f"{L:7,} tokens: {fits:6.1f} fit;", end=" ")
        print(f"fast enough are {fast_dense:6.1f} dense, {fast_sparse:6.1f} with DSA")
two_limits(rows)

# %% [markdown]
# With these limits dense attention is out of time about where it is out of memory. With DSA memory ends first, and by more
# the longer the context: an order of magnitude at 128K. DSA makes long contexts fast enough. It does not make them fit.
# For that there are smaller formats, offloading and shared prefixes.

# %% [markdown]
# ## Is a shared prefix free?
#
# Its latents and its index keys depend on the prefix alone, so both are cached, hit and evicted together. The selection is
# not cached: it depends on the query. So every new token is scored against the whole prefix again.

# %%
from ledger.account.experts import V3_DENSE_LAYERS, attention_params, expert_params

prefix, layers = 100_000, v32.num_mla_layers
work = layers * prefix * pair.indexer
active = layers * attention_params(v32) + (layers - V3_DENSE_LAYERS) * 9 * expert_params(v32)
each, alone = prefix * pair.indexer, f"one new token: {prefix:,} · {pair.indexer:,}"
print(f"{alone} = {each / 1e9:.2f} GFLOP a layer, {work / 1e9:.0f} GFLOP in {layers}")
print(f"the model's own weights, attention and 9 experts: {2 * active / 1e9:.0f} GFLOP")
for new in (1, 1000, 10_000):
    seconds = new * work / rates["indexer, prefill"].rate
    print(f"{new:6,} new: {new * work / 1e12:6.1f} TFLOP, {1e3 * seconds:7.1f} ms as on the curve's H800")

# %% [markdown]
# It grows linearly with the prefix, and at 100K it is more arithmetic than the model's own weights ask for.

# %% [markdown]
# ## What do engines do?
#
# * **vLLM**: `v1/attention/backends/mla/` holds `indexer.py`, which keeps the keys' own cache, and the sparse backends
#   `flashmla_sparse.py` (the 656-byte entry) and `flashinfer_mla_sparse.py`.
# * **SGLang**: `srt/layers/attention/dsa_backend.py` and `dsa/`. Prefill runs dense MHA up to 2,048 tokens, where a
#   selection would keep everything. `index_topk_freq` in a model's configuration says how many layers share one selection.
# * **Two caches**: pages, prefix hits, transfers between machines and evictions must treat latents and index keys as one.
# * **Schedulers** still admit requests by memory.

# %% [markdown]
# ## How to explain it
#
# *"A cheap indexer scores all tokens, attention meets 2,048. In DeepSeek-V3.2 attending costs 17 times what scoring does,
# so 17 is the most that decode can save in arithmetic, and 8.7 in reads; at 128K it is 13.4 and 7.7. Prompts save less,
# because their dense side has cheaper pairs: 5 in place of 17. By FLOP DSA wins from about 16,000 tokens there, by the clock
# of an H200 from about 28,500. In decode it wins by the clock from 4K to 8K with many requests, and only near 100K with
# one. Memory is not saved: 11.5 % comes on top of a bf16 cache, 20.1 % on top of the FP8 one. And one draft
# makes a layer read up to 1.55 times as much at 8K, for each row picks its own tokens."*

# %% [markdown]
# ## Summary
#
# * Prices of a pair: 17 absorbed, 5 expanded, 1 indexed (GLM-5: 17 : 8 : 1). All else is adding up.
# * Decode at 4K, 32K, 128K: 1.8, 8.2, 13.4 in compute, 1.6, 5.6, 7.7 in reads; limits 17.0 and 8.7 (5.0 in FP8).
# * Short prompts are dearer, since picks cannot be expanded. Masked MHA computes all pairs at 5 + 1 and answers the same.
# * Break-evens: a position 6,963; a prompt against masked MHA 13,926 or 12,813, against no indexer 17,408 or 16,315; by the
#   clock about 28,500.
# * The report's curve is this ledger over round shares of the peak. It agrees with the FLOP at 128K by coincidence.
# * Measured times have the ledger's slope, and a start that it does not have.
# * Not saved: memory. Not shared between verified rows: picks. Not cached with a prefix: the selection.

# %% [markdown]
# ## Exercises to do next
#
# 1. [pair_flops](../../practice/ch10_dsa/ledger.ipynb#cell-id=pair_flops-statement): price a pair.
# 2. [dsa_decode_ledger](../../practice/ch10_dsa/ledger.ipynb#cell-id=dsa_decode_ledger-statement): decode's books.
# 3. [dsa_prefill_ledger](../../practice/ch10_dsa/ledger.ipynb#cell-id=dsa_prefill_ledger-statement): a prompt's.
# 4. [break_even_position](../../practice/ch10_dsa/ledger.ipynb#cell-id=break_even_position-statement): one query.
# 5. [break_even_prompt](../../practice/ch10_dsa/ledger.ipynb#cell-id=break_even_prompt-statement): a whole prompt.
# 6. [index_cache_overhead](../../practice/ch10_dsa/ledger.ipynb#cell-id=index_cache_overhead-statement): percent of what.
# 7. [rows_read](../../practice/ch10_dsa/ledger.ipynb#cell-id=rows_read-statement): what verified rows read.
#
# ```
# python judge.py 10
# ```
#
# Then go on to [chapter 11](../ch11_nsa/nsa.ipynb), where sparsity is trained from the start.
