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
# [The first part](indexer.ipynb) built the indexer: it scores every cached token, and attention meets only the 2,048
# best, the query's *picks*. This part keeps the books.
#
# **The question:** what does DSA save in arithmetic, in reading and in memory, from which context on, and do published
# numbers say the same?
#
# (Read before: [speculative decoding](../ch08_mtp/speed.ipynb), and a [long context's cache](../ch06_cache/cache.ipynb).)

# %% [markdown]
# ## Can you skip this lesson?
#
# If you get these right, go to the exercises at the end.
#
# 1. Does sparse attention save compute, bandwidth, memory?
# 2. "The indexer's keys add 11 % to the cache." Of which cache, and what is it of an FP8 cache?
# 3. Why is DSA's prefill of a short prompt dearer than a dense one?
# 4. At which length does that end? (There is more than one right answer.)
# 5. "At 128K DSA needs about 30 times less arithmetic to decode." Can that be, for DeepSeek-V3.2?
# 6. With one draft a step verifies two *rows*, the last token's query and the draft's. Dense attention reads the
#    cache once for both. And DSA?
# 7. Two requests share a prefix of 100K tokens. What does the second still compute for all of it?
#
# <details><summary>Answers</summary>
#
# 1. Compute and bandwidth. Not memory: the next query may pick any token, so all must stay, and the indexer's keys come
#    on top.
# 2. Of the bf16 cache, 11.5 %. Of the FP8 cache that engines run DSA with, 656 bytes a token, 20.1 %.
# 3. Each query picks its own tokens, which only the absorbed form can serve, and a pair costs 3.4 times as much there as
#    with expanded keys. A short prompt has too few pairs to leave out. So DeepSeek's own prefill of a short prompt
#    computes all pairs with expanded keys and masks those that are not picked (*masked MHA*).
# 4. By FLOP one query breaks even at position 6,963, a whole prompt against masked MHA at 12,813, against dense
#    attention without an indexer at 16,315 tokens. By published times of an H200, at about 28,500.
# 5. No. The ledger says 13.4, and 17.0 is the limit at any length.
# 6. Each row picks its own 2,048 tokens, so up to twice as many are read. Only the indexer's keys are shared.
# 7. The indexer's scores, for every new token against all 100K.
#
# </details>
#
# (The next cell keeps NumPy's products to one core, so that the times on this page repeat better.)

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
# Decoding costs a third. The prompt costs *more*, because its dense side has a cheaper price to begin with.

# %% [markdown]
# ## Where do 17, 5 and 1 come from?
#
# From the widths: $h$ heads, latent $c$, rope $r$, nope $n$, value $v$, and an indexer of $h_I$ heads of width $d_I$.
# Two FLOP a multiply-add:
#
# $$\text{absorbed} = 2h\,(c + r) + 2h\,c \qquad \text{expanded} = 2h\,(n + r) + 2h\,v \qquad \text{indexer} = 2h_I\,d_I$$
#
# The ledger holds these products alone. It leaves out softmax, ReLU and the choice of the best, and all projections:
# expanding a token once, or absorbing a query and projecting its mix once, takes the same products and cancels.

# %%
from ledger.account.cache import cache_bytes_per_token, indexer_bytes_per_token
from ledger.account.dsa import pair_flops
from ledger.models import model

v32, glm, glm52 = model("DeepSeek-V3.2"), model("GLM-5"), model("GLM-5.2")
K = v32.index_topk
for m in (v32, glm):
    pair, key = pair_flops(m), indexer_bytes_per_token(m)
    prices = " : ".join(f"{flops / pair.indexer:.0f}" for flops in pair)
    counts = ", ".join(f"{name} {flops:,}" for name, flops in pair._asdict().items())
    print(f"{m.name:13} {counts} = {prices};  absorbed ÷ expanded = {pair.absorbed / pair.expanded:.1f}")
    print(f"   a cached token: {cache_bytes_per_token(m, 'bf16_mla'):,} bytes, {key} of the indexer's key")

# %%
from ledger.widgets.base import COLORS
from ledger.widgets.flow import Arrow, Box, Lane, flow

pair, L = pair_flops(v32), 131_072
entry, key = cache_bytes_per_token(v32, "bf16_mla"), indexer_bytes_per_token(v32)
mix = Box("mix", (v32.num_heads, v32.latent_dim))


def meet(verb, what, met, flops, size):
    """``met`` tokens of ``size`` bytes are read and met by the query's heads."""
    cost = f"{met * size / 1e6:.1f} MB, {met * flops / 1e9:.2f} GFLOP"
    return Box(what, f"{met:,} × {size:,} bytes"), Arrow(verb, cost)


dense = Lane("dense", [*meet("attend", "all entries", L, pair.absorbed, entry), mix], COLORS["materialize"])
score = meet("score, pick", "all index keys", L, pair.indexer, key)
picks = *meet("attend", "the picks' entries", K, pair.absorbed, entry), mix
flow(f"One decoded token in one layer, {L:,} cached", [dense, Lane("DSA", score + picks, COLORS["absorb"])])

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
# stays. Its prompts win more: its prices are 17 : 8 : 1, so its dense prompts cost relatively more.

# %% [markdown]
# The prompts are the short form's. It gives every query $k$ picks, but the first 2,048 have fewer tokens to pick from:
# $k^2/2$ pairs too many, a quarter of DSA's picks at 4K. Added up query by query, dense over DSA is:

# %%
for m in (v32, glm):
    exact = [dsa_prefill_ledger(L, m, K, exact=True) for L in contexts]
    ratios = ", ".join(f"{p.dense_flops / p.sparse_flops:.2f}" for p in exact)
    short = [dsa_prefill_ledger(L, m, K, exact=False) for L in contexts]
    shorts = ", ".join(f"{p.dense_flops / p.sparse_flops:.2f}" for p in short)
    print(f"{m.name:13} query by query {ratios} ×; short form {shorts} × at 4K, 32K, 128K")

# %% [markdown]
# Decode's arithmetic gains with the context: 13.4 times at 128K. Does that go on, to 30 times say, if the context only is
# long enough? And what do reads gain in the FP8 format that engines run DSA with (`fp8_ds_mla`: 512 bytes of latent, 4
# scales, a bf16 rope part)?

# %%
from ledger.widgets.dsa import saving_lines

most = pair.absorbed / pair.indexer
print(f"limit of compute: {most:.1f} ×")
for cache_format in ("bf16_mla", "fp8_ds_mla"):
    entry = cache_bytes_per_token(v32, cache_format)
    books = [dsa_decode_ledger(L, v32, K, cache_format) for L in contexts]
    gains = ", ".join(f"{d.dense_bytes / d.sparse_bytes:.1f}" for d in books)
    limit = f"{entry} / {key} = {entry / key:.1f}"
    print(f"reads, {cache_format:10}: {gains} × at 4K, 32K, 128K; limit {limit} ×")
turn = K * pair.absorbed // pair.indexer
print(f"the indexer computes more than attention over the picks from {turn:,} tokens on")
owners, layers = glm52.num_indexer_layers, glm52.num_mla_layers
print(f"{glm52.name}: {owners} of {layers} layers index, so its limit is {most * layers / owners:.0f} ×")
saving_lines(v32)

# %% [markdown]
# No context gives 30. The indexer still meets every token, and what it costs is the limit. (So GLM-5.2 lets most layers
# reuse the picks of one below them.) In FP8 reads gain less, since the entries are smaller and the keys are not.

# %% [markdown]
# ## Eleven percent of what?

# %%
from ledger.widgets.dsa import overhead_strips

overhead_strips([(v32, "bf16_mla"), (v32, "fp8_ds_mla"), (glm52, "fp8_ds_mla")])

# %% [markdown]
# The key takes 132 bytes beside either entry: 128 e4m3 values and a scale. Of the bf16 cache that is 11.5 %, of the FP8
# cache 20.1 %. Averaged over GLM-5.2's layers it is 5.4 %, because the others own no keys.
# All of it is *more*.

# %% [markdown]
# ## Why is a short prompt dearer?
#
# Dense prefill expands each token's latent into keys and values once, and all queries share them: 5 a pair. Under DSA
# each query has tokens of its own. Why not keep the price of 5 there? Work out two ways for one query.

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
# Expanding for one query alone is a hundred times the work. Gathering expanded keys moves seventy times the bytes, and
# does one FLOP for each: hopeless. So a query with picks of its own pays 17.
#
# There is a third way for short prompts, **masked MHA**: score with the indexer, compute *all* pairs with expanded
# keys, and mask those that were not picked before the softmax. Price: 5 + 1 for every pair, and the same answer.
# DeepSeek-V3.2's report says that its prefill does this.

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
# ## At which length does that end?
#
# It depends on the question. Each of these is somebody's "break-even":

# %%
from ledger.account.dsa import break_even_position, break_even_prompt
from ledger.published import PREFILL_MODULE_H200, crossing
from ledger.widgets.dsa import about, break_even_pictures

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
print(f"{'equal time, published for a layer on an H200, a prompt':54}    about {about(crossing(*clock)):,}")
break_even_pictures(v32)

# %% [markdown]
# * **6,963 is a position, not a prompt.** It is where *one more* query costs the same either way. A prompt of that
#   length is made of cheaper queries, all those before it.
# * **A whole prompt** breaks even at twice that by the short form: $\tfrac12 L^2 \cdot 5 = L\,k \cdot 17$. The short
#   form charges 2,048 picks to early queries too, which have fewer tokens than that. The exact sum comes earlier.
# * **Does the other side run an indexer?** Masked MHA does. DeepSeek-V3 does not, and a dense model is harder to beat.
# * **By the clock** it is later still. (The published lengths next to it are 16K and 32K.) Why, we ask below.

# %% [markdown]
# ## Does a run count the same?
#
# Let the reference decode one token at small widths, and **count** its multiply-adds. The counter also sees the softmax
# scale, one for each head of a pick, and the indexer's weights, one for each of its heads and tokens. With these few
# added the numbers must be equal, not close.

# %%
from dataclasses import replace

from ledger.count import count
from ledger.reference.sparse import attend, index_scores, select_topk


def sparse_query(q_index, index_keys, weights, queries, entries):
    chosen = select_topk(index_scores(q_index[None], index_keys, weights[None])[0], 40)
    return attend(queries, entries, entries[:, :32], chosen, 0.1)


small = replace(v32, num_heads=4, latent_dim=32, rope_dim=8, index_heads=2, index_dim=12)
arrays = [rng.standard_normal(shape) for shape in ((2, 12), (120, 12), 2, (4, 40), (120, 40))]
counted, few = count(sparse_query, *arrays)[1].macs, 4 * 40 + 2 * 120
ledger = dsa_decode_ledger(120, small, 40, "bf16_mla").sparse_flops // 2
print(f"multiply-adds: ledger {ledger:,} + few {few:,} = {ledger + few:,}, counted {counted:,}")
assert ledger + few == counted

# %% [markdown]
# ## What does this machine say?
#
# **Measure** one decoded token of DeepSeek-V3.2's widths in NumPy, in float32: dense against index, select, gather and
# attend. By FLOP the two are equal at 2,176 tokens.

# %%
from ledger.browser import IN_BROWSER
from ledger.measure import time_pairs

# A browser takes an eighth of the heads on both sides.
share, most = (8, 8192) if IN_BROWSER else (1, 32768)
heads, index_heads = v32.num_heads // share, v32.index_heads // share
shapes = (most, v32.cache_dim), (most, v32.index_dim), (heads, v32.cache_dim), (index_heads, v32.index_dim)
draw = np.random.default_rng(11).standard_normal
cache, keys, queries, q_index, w_index = (draw(shape, np.float32) for shape in (*shapes, index_heads))


def attend_rows(rows):
    return softmax(queries @ rows.T / np.float32(24)) @ rows[:, : v32.latent_dim]


def pick(keys):
    return np.argpartition(w_index @ np.maximum(q_index @ keys.T, 0), -K)[-K:]


# %%
def measured(L):
    """Milliseconds with ``L`` cached tokens: dense, DSA, and of DSA the picking."""
    runs = {"dense": lambda: attend_rows(cache[:L]), "pick": lambda: pick(keys[:L])}
    runs["DSA"] = lambda: attend_rows(cache[pick(keys[:L])])
    took = time_pairs(runs, seconds=0.3)
    return [1e3 * took[name].low for name in ("dense", "DSA", "pick")]


print("cached   dense, ms   DSA, ms    of it picking   times as fast   by FLOP")
for L in (n for n in (2048, 4096, 8192, 16384, 32768) if n <= most):
    took, d = measured(L), dsa_decode_ledger(L, v32, K, "bf16_mla")
    print("{:6,} {:11.1f} {:9.1f} {:13.1f}".format(L, *took), end="")
    print(f"{took[0] / took[1]:16.1f} {d.dense_flops / d.sparse_flops:11.1f}")

# %% [markdown]
# The ratio grows much as the ledger says. At the long end it lags: picking is more than its products.

# %% [markdown]
# ## Does the report's own curve agree?
#
# DeepSeek-V3.2's report draws the cost of *one token at a position*, on H800 GPUs at 2 US$ an hour. Of each line we read
# off its start, its slope and, for V3.2, a kink and the slope after it. The picture draws these readings.

# %%
from ledger.widgets.dsa import cost_curves

cost_curves()

# %% [markdown]
# A slope is a price of a pair. Turn it into a speed: with 61 layers, FLOP a pair from the ledger, and 2 US$ an hour, how
# many FLOP/s must a GPU do for the line to rise as it does?

# %%
from ledger.machines import machine
from ledger.published import V32_COST, rate_of_slope, v32_rates

rates, h800 = v32_rates(v32), machine("H800")
for name, (rate, dtype) in rates.items():
    print(f"{name:24} {rate / 1e12:6.1f} TFLOPS, {rate / h800.rate(dtype):5.1%} of {dtype}'s peak")
old, new = V32_COST["V3.1", "decode"], V32_COST["V3.2", "decode"]
rate = rate_of_slope(new.slope - new.slope_after, pair.absorbed, v32.num_mla_layers)
print(f"the last, from its slopes alone: {rate / h800.rate('bf16'):.1%}")
for phase, ledger in (("decode", K), ("prefill", break_even_position(v32, K))):
    kink = V32_COST["V3.2", phase].kink
    print(f"kink of {phase}: read at {kink:,}, by the ledger at {ledger:,.0f}: {kink / ledger - 1:+.1%}")

# %% [markdown]
# Look at the first two. Two kernels that have nothing in common, one with expanded keys and one in the absorbed form,
# at the same speed to four digits, 60.0 % of the peak. Measured kernels do not do that. So the dense lines are a
# *model*: FLOP by this ledger, over a share of the peak. Decode looks like one too: 35 % for the indexer, 40 or 41 %
# over the picks. (The kinks are read to 3 % or so. What hangs on them is no better.)
#
# V3.2's prefill is less clear. Before its kink it does expanded pairs, masked, at 55.6 %, where the dense line has
# 60.0. The picks' 57.4 % is taken from the height of the kink, so it explains nothing. Where they are clear, the
# lines confirm how the account is built. They are no measurement of its speed.
#
# At 128K the curve's attention gains 13.54, and the ledger says 13.43. A fine agreement, one would think. Try 32K.

# %%
print("position   FLOP, dense ÷ DSA   the curve   indexer's share of DSA's FLOP   mean speed of DSA")
for L in (8192, 32768, 131072):
    d = dsa_decode_ledger(L, v32, K, "bf16_mla")
    gain, curve = d.dense_flops / d.sparse_flops, old.attention(L) / new.attention(L)
    part, speed = L * pair.indexer / d.sparse_flops, curve / gain * rates["dense, decode"].rate
    print(f"{L:9,} {gain:15.2f} {curve:15.2f} {part:21.0%} {speed / 1e12:28.0f} TFLOPS")
print(f"V3.2's line starts {new.start / old.start - 1:.0%} higher;", end=" ")
print(f"a whole token at 131,071 is {old.at(131071) / new.at(131071):.2f} times cheaper")

# %% [markdown]
# DSA's two parts run at unequal speeds: the indexer in FP8 faster than the dense kernel, attention over the picks
# slower. Their mean depends on the mix. At 32K the slow part weighs, and the curve gains less than the FLOP. At 128K
# the mean happens to pass the dense kernel's 594: the agreement there is a coincidence. So when two numbers agree at
# one point, look at a second. And a whole token gains less than its attention, for it has a start.

# %% [markdown]
# ## And what do measured times say?
#
# Times of a whole attention layer on an H200, with its projections, published by NVIDIA's aiconfigurator (vLLM 0.24.0,
# FP8 projections, 128 heads). In decode dense has a bf16 cache and DSA the 656-byte one. **Predict**: where do they
# cross, with 64 requests and with one?

# %%
from ledger.published import decode_module_h200
from ledger.widgets.dsa import module_times

module_times()

# %%
equal = K * pair.absorbed / (pair.absorbed - pair.indexer)
print(f"a decoded token, equal by FLOP at {equal:,.0f}", end="")
for cache_format in ("bf16_mla", "fp8_ds_mla"):
    entry = cache_bytes_per_token(v32, cache_format)
    print(f", by bytes at {K * entry / (entry - key):,.0f} ({entry} on both sides)", end="")
print("\nrequests   at 512 tokens: dense, DSA, µs     64K to 128K adds: dense, DSA, µs   ratio    crossing")
for n in (1, 16, 64):
    old, new = decode_module_h200("dense", "bf16", n), decode_module_h200("sparse", "fp8", n)
    adds = [1e6 * (table[131072] - table[65536]) for table in (old, new)]
    print(f"{n:8} {1e6 * old[512]:21.0f} {1e6 * new[512]:8.0f} {adds[0]:25.0f} {adds[1]:8.0f}", end="")
    print(f"{adds[0] / adds[1]:14.1f} {about(crossing(old, new)):11,}")
for cache in ("bf16", "fp8"):
    both = [1e6 * decode_module_h200(kind, cache, 1)[131072] for kind in ("dense", "sparse")]
    print(f"1 request, both {cache}, at 131,072: dense {both[0]:.0f} µs, DSA {both[1]:.0f}")

# %% [markdown]
# By bytes in these formats, dense 1,152 and DSA 656 and 132, DSA even reads less at every length. By the clock it wins
# from about 7,500 with 64 requests, 18,000 with 16, and 90,000 with one. The *slope* is not what delays it: with 64
# requests each further token costs dense attention 10 times what it costs DSA. That is somewhat above the limit of reads,
# 8.7, and below that of FLOP, 17: a layer's time is neither bytes nor FLOP alone. What the ledger does not have is the
# *start*. DSA runs more kernels: the indexer's projections, scores, a choice, a gather.
# With one request a token adds so little that the start decides for long; with bf16 on both sides, or FP8 on both (576
# and 656 bytes), DSA has not won by 128K at all.
#
# A prompt has work enough. Divide the ledger's FLOP by the time of the whole layer:

# %%
print("prompt    dense ÷ DSA: FLOP, time     FLOP of the ledger ÷ time, TFLOPS: dense, DSA")
for row in PREFILL_MODULE_H200[-3:]:
    p = dsa_prefill_ledger(row.tokens, v32, K, exact=True)
    print(f"{row.tokens:6,} {p.dense_flops / p.sparse_flops:19.2f} {row.dense / row.sparse:6.2f}", end="")
    print(f"{p.dense_flops / row.dense / 1e9:44.0f} {p.sparse_flops / row.sparse / 1e9:5.0f}")

# %% [markdown]
# At 16K the FLOP are equal, and DSA takes 1.4 times as long, though its indexer works in FP8, at twice the peak. Slower
# kernels, or the indexer's projections, which the ledger leaves out? Times of whole layers do not tell: that would take
# times of the parts. A FLOP count says what must be done. It does not say how fast it can be.

# %% [markdown]
# ## What happens when you turn the knobs?
#
# The ledger of whole models. Four things to try:
#
# * Go to 1M with GLM-5.2. Which number of DeepSeek-V3.2's does it beat most, and why?
# * Switch the cache to `fp8_ds_mla`, then to `fp8_plain_mla`. Which of the three gains changes? Which way?
# * In decode DSA's line is nearly flat, then bends upward. At which context? What rises there?
# * Is there a context where a decoded token gains and a prompt loses? One where both lose?

# %%
from ledger.widgets.dsa import DsaLedger

DsaLedger().show()

# %% [markdown]
# ## What do drafts find when they meet DSA?
#
# Lesson 8 made drafts pay because the rows of a request, one for each draft and one more, share one reading of its
# cache. Under DSA each row has picks of its own. What is read is the *distinct* tokens of all rows' picks. By hand:
# rows that pick $\{3, 5, 8\}$ and $\{5, 8, 9\}$ read 4 tokens, not 3 and not 6.

# %%
from ledger.widgets.dsa import draft_lines, verified_rows

for shared in (0.0, K / 8192, 0.7):
    fp8, bf16 = (verified_rows(v32, 8192, form, 1, shared) for form in ("fp8_ds_mla", "bf16_mla"))
    print(f"one draft at 8K, {shared:4.0%} of its row's picks already read: ", end="")
    print(f"{fp8:.2f} times the bytes in fp8_ds_mla, {bf16:.2f} in bf16_mla")
draft_lines(v32, "fp8_ds_mla")

# %% [markdown]
# With nothing in common a layer reads 1.55 times as much at 8K from the FP8 cache. (From a bf16 one it is 1.69 times, for
# its entries are larger and the keys are not.) Two rows that pick at random share a quarter, 2,048 of 8,192; with 70 % in
# common it is 1.17 times in FP8. Dense attention stays at 1. Only the indexer's keys are shared for sure. Far out they
# are most of what is read, and drafts are nearly free again. Compute, of course, doubles: indexer and attention alike.

# %% [markdown]
# ## What about memory?
#
# Nothing is saved, and the keys come on top. So ask two things of a GPU. *Does it fit?* That is capacity. *Is it fast
# enough?* That is time. Take an H200 with 30 % of its memory for the cache, and allow the attention of all layers 20 ms
# of a step. The times are the published ones above, with FP8 caches on both sides. Between 1, 16 and 64 requests
# (dense: 1 and 64), and beyond, we draw straight lines.

# %%
from ledger.widgets.dsa import limits_by_context, two_limits

rows = limits_by_context(v32, memory=0.3 * machine("H200").memory, seconds=0.020)
print("tokens of each   dense: fit, fast enough   DSA: fit, fast enough   served: dense, DSA")
for L, *limits in rows:
    if L in contexts:
        served = min(limits[:2]), min(limits[2:])
        print("{:14,} {:12.1f} {:12.1f} {:11.1f} {:13.1f} {:13.1f} {:6.1f}".format(L, *limits, *served))
two_limits(rows)

# %% [markdown]
# Under these limits dense attention runs out of time first, at every length. With DSA time is up first in short
# contexts, where its start weighs: at 4K the GPU serves *fewer* requests. From somewhere between 16K and 32K on memory
# ends first, and at 128K more than twice as many requests would be fast enough as fit. DSA makes long contexts fast
# enough. It does not make them fit. For that there are smaller formats, offloading and shared prefixes.

# %% [markdown]
# ## Is a shared prefix free?
#
# Its latents and its index keys depend on the prefix alone, so both are cached, hit and evicted together. The picks are
# not cached: they depend on the query. So every new token is scored against the whole prefix, and each step reads all of
# the prefix's index keys.

# %%
from ledger.account.experts import V3_DENSE_LAYERS, attention_params, expert_params

prefix, layers = 100_000, v32.num_mla_layers
active = layers * attention_params(v32) + (layers - V3_DENSE_LAYERS) * 9 * expert_params(v32)
for name, price in pair._asdict().items():
    total = f"{layers} · {prefix:,} · {price:7,} = {layers * prefix * price / 1e9:5.0f} GFLOP"
    print(f"one new token, {name:8} {total}")
print(f"weights of attention and of 9 experts a layer: {2 * active / 1e9:.0f} GFLOP")
read = 1e3 * layers * prefix * key / h800.bandwidth
for new in (1, 10_000):
    compute = 1e3 * new * layers * prefix * pair.indexer / rates["indexer, prefill"].rate
    print(f"{new:6,} new: scores {compute:7.2f} ms, keys read {read:.2f} ms: the longer counts")

# %% [markdown]
# Dense attention meets the whole prefix too, at 5 or 17 times the price. But a fifth of much is not nothing: it grows
# with the prefix, and at 100K scoring alone is more arithmetic than these weights ask for. (They leave out the head and
# the first layers' MLPs. Times: an H800 with the curve's speed for scores and its full bandwidth.)

# %% [markdown]
# ## What do engines do?
#
# * **vLLM**: `v1/attention/backends/mla/` holds `indexer.py`, which keeps the keys' own cache, and the sparse backends
#   `flashmla_sparse.py` (the 656-byte entry) and `flashinfer_mla_sparse.py`.
# * **SGLang**: `srt/layers/attention/dsa_backend.py` and `dsa/`. Prefill runs dense MHA up to 2,048 tokens, where the
#   picks would be everything and nothing need be masked. `index_topk_freq` in a model's configuration says how many
#   layers share their picks.
# * **Two caches**: pages, prefix hits, transfers between machines and evictions must treat latents and index keys as
#   one. Schedulers still admit requests by memory.

# %% [markdown]
# ## How to explain it
#
# *"A cheap indexer scores all tokens, attention meets 2,048. In DeepSeek-V3.2 attending costs 17 times what scoring does,
# so 17 is the most that decode can save in arithmetic, and 8.7 in reads, or 5.0 with the FP8 cache that engines use; at
# 128K it is 13.4, and 7.7 or 4.6. Prompts save less, because their dense side has cheaper pairs: 5 in place of 17.
# There DSA wins by FLOP from about 16,000 tokens, by the clock of an H200 from about 28,500. In decode it wins by the
# clock from about 7,500 with 64 requests, and only near 90,000 with one. Memory is not saved: 11.5 % comes on top of a
# bf16 cache, 20.1 % on top of the FP8 one. And one draft makes a layer read up to 1.55 times as much of the FP8 cache at
# 8K, for each row picks its own tokens."*

# %% [markdown]
# ## Summary
#
# * All is adding up prices of a pair: 17 : 5 : 1, in GLM-5 17 : 8 : 1.
# * Decode gains with the context, towards a limit that the indexer sets. In FP8 reads gain less: 1.4, 3.8 and 4.6 times
#   at 4K, 32K, 128K.
# * Picks cannot be expanded, so short prompts are dearer. Masked MHA computes all pairs at 5 + 1 and answers the same.
# * A break-even needs its question: a position or a prompt, an indexer on one side or on both, FLOP or time.
# * The report's dense lines are this ledger over 60 % of the peak. Agreement with the FLOP at 128K is a coincidence.
# * Measured times have about the ledger's slope, and a start that it does not have.
# * Not saved: memory. Not shared between verified rows: picks. Not cached with a prefix: picks.

# %% [markdown]
# ## Exercises to do next
#
# 7. [pair_flops](../../practice/ch10_dsa/ledger.ipynb#cell-id=pair_flops-statement): price a pair.
# 8. [dsa_decode_ledger](../../practice/ch10_dsa/ledger.ipynb#cell-id=dsa_decode_ledger-statement): decode's books.
# 9. [dsa_prefill_ledger](../../practice/ch10_dsa/ledger.ipynb#cell-id=dsa_prefill_ledger-statement): a prompt's.
# 10. [break_even_position](../../practice/ch10_dsa/ledger.ipynb#cell-id=break_even_position-statement): one query.
# 11. [break_even_prompt](../../practice/ch10_dsa/ledger.ipynb#cell-id=break_even_prompt-statement): a whole prompt.
# 12. [index_cache_overhead](../../practice/ch10_dsa/ledger.ipynb#cell-id=index_cache_overhead-statement): percent of
#    what.
# 13. [rows_read](../../practice/ch10_dsa/ledger.ipynb#cell-id=rows_read-statement): what verified rows read.
#
# ```
# python judge.py 10
# ```
#
# Then go on to [chapter 11](../ch11_nsa/nsa.ipynb), where sparsity is trained from the start.
