# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 5 Cost and crossover: which route, from how many new tokens on
#
# You have both routes whole now: keys and scores (lessons 1 and 2), values (lesson 3), and the rope part that neither of
# them folds away (lesson 4). They give the same output. One rebuilds the cache, the other dots in a wider space.
#
# **The question:** at how many new tokens does the winner change, and does the clock agree?

# %% [markdown]
# ## Can you skip this lesson?
#
# Answer these five. If you get them right, go to the exercises at the end.
#
# 1. Both routes have a projection term. What is the same in the two, and what differs?
# 2. Why do neither the number of heads nor the rope width appear in the crossing?
# 3. DeepSeek-V3 caches 4,096 tokens. At how many new tokens do the routes take equally many multiply-adds? In a cache
#    of a million?
# 4. At the crossing, one line on log-log paper has slope 1. Which one, and what is the slope of the other?
# 5. By a GPU's data sheet the *times* cross at more new tokens than the multiply-adds. What does the formula leave out?
#
# <details><summary>Answers</summary>
#
# 1. Both pay latent · (nope + value) for a token and head. Materialize pays it for the cached tokens, absorb for the
#    new ones.
# 2. Each term is proportional to the heads, so they cancel. The rope scores are the same on both sides.
# 3. 163.8, and 170.7 in a cache so long that its length no longer counts.
# 4. Absorb's: all of its work is proportional to the new tokens. Materialize's slope is about 0.29 there.
# 5. The expanded keys and values, which go to memory and come back. (What is measured also depends on the kernels.)
#
# </details>
#
# (The next cell keeps NumPy's products to one core, so that the times on this page repeat.)

# %%
import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")

# %% [markdown]
# ## Can you do it by hand?
#
# Take the toy of the lessons before: one head, three cached latents of width 3, keys and values of width 2. Add a rope
# part of width 2. The rule is still the only one: a product of (rows, inner) and (inner, cols) takes
# rows · inner · cols multiply-adds.
#
# Write down four products for each route before you run the cell, for one new token.

# %%
from ledger.account.crossover import absorb_steps, materialize_steps

toy = dict(latent_dim=3, nope_dim=2, rope_dim=2, value_dim=2, num_heads=1)
for route, steps in (("materialize", materialize_steps), ("absorb", absorb_steps)):
    print(route)
    for step in steps(1, 3, **toy):
        product = f"({step.rows} × {step.inner}) · ({step.inner} × {step.cols})"
        print(f"   {step.part:10}  {step.name:20} {product:20} {step.macs:3}")

# %% [markdown]
# Now add new tokens, one by one. Which numbers of the list above grow?

# %%
from ledger.account.crossover import absorb_macs, materialize_macs

print("new tokens    materialize           absorb")
for S in range(1, 5):
    m, a = materialize_macs(S, 3, **toy), absorb_macs(S, 3, **toy)
    sums = [f"{p['projection']:3} + {p['attention']:3} = {p['total']:3}" for p in (m, a)]
    print(f"{S:6}        {sums[0]}     {sums[1]}")

# %% [markdown]
# Materialize starts at 36 for its projection and adds 18 a token. Absorb starts at nothing and adds 36 a token. They
# are equal at two new tokens. The rest of this lesson is this table at a real model's widths.

# %% [markdown]
# ## What does each step cost at a real model's width?
#
# Here are both routes for one new token of DeepSeek-V3, all 128 heads of one layer. Follow the multiply-adds on the
# arrows.

# %%
from ledger.account.crossover import widths
from ledger.models import MODELS, model
from ledger.widgets.base import COLORS, new_figure, plain_ticks
from ledger.widgets.flow import Arrow, Box, Lane, flow
from ledger.widgets.keys import short

v3 = model("DeepSeek-V3")
L, n, r, v, H = widths(v3).values()
C = 4096

# %%
up = [short(step.macs) for step in materialize_steps(1, C, **widths(v3))]
low = [short(step.macs) for step in absorb_steps(1, C, **widths(v3))]
upper = [Box("latents", (C, L), COLORS["latent"]), Arrow("· W_K, W_V", f"{up[0]} + {up[1]}")]
upper += [Box("keys | values", f"{H} × {C:,} × ({n} | {v})"), Arrow("queries · keysᵀ", up[2])]
upper += [Box("weights", (H, C)), Arrow("· values", up[3]), Box("output", (H, v))]
lower = [Box("q_nope", (H, n)), Arrow("· W_Kᵀ", low[0]), Box("absorbed", (H, L))]
lower += [Arrow("| q_rope,\n· entriesᵀ", low[1]), Box("weights", (H, C)), Arrow("· latents", low[2])]
lower += [Box("mixed", (H, L)), Arrow("· W_V", low[3]), Box("output", (H, v))]
lanes = [Lane("materialize", upper, COLORS["materialize"]), Lane("absorb", lower, COLORS["absorb"])]
flow(f"{v3.name}, one layer, 1 new token, {C:,} cached", lanes)

# %% [markdown]
# The upper lane does nearly everything in its first arrow, before any query has come in. The lower lane never touches
# more than one row with a weight matrix, and pays in the middle instead.
#
# The same as a table, for one head, with $P = L\,(n+v)$ for what it takes to project one token:
#
# | step | materialize | absorb |
# |---|---|---|
# | keys | $C \cdot L \cdot n$ | $S \cdot n \cdot L$ |
# | scores | $S \cdot (n+r) \cdot C$ | $S \cdot (L+r) \cdot C$ |
# | mix | $S \cdot C \cdot v$ | $S \cdot C \cdot L$ |
# | values | $C \cdot L \cdot v$ | $S \cdot L \cdot v$ |
# | **projection** | $C \cdot P$ | $S \cdot P$ |
# | **attention** | $S\,C\,(n+r+v)$ | $S\,C\,(2L+r)$ |
#
# Where does each route's work go, at one new token and at 2,048?

# %%
from ledger.widgets.crossover import step_bars

step_bars(v3, C, (1, 2048))

# %% [markdown]
# At one new token, materialize spends over 99% on rebuilding. At 2,048 its attention is the larger part, and absorb is
# the dearer route by far.

# %% [markdown]
# ## What do these counts leave out?
#
# Accounts of this kind usually pass over several steps "because they are the same on both sides". Let us count them
# once and see. Three are outside of both routes: the new tokens' queries, their cache entries, and the output
# projection back to the hidden width. One is inside of both: the scores of the rope part.

# %%
from ledger.account.crossover import shared_macs

one, many = (shared_macs(new, C, v3) for new in (1, 2048))
print(f"{'multiply-adds of one layer':32} {'1 new token':>15} {'2,048 new tokens':>19}")
for name in one:
    print(f"{name:32} {one[name]:15,} {many[name]:19,}")
shared = [sum(one.values()), sum(many.values())]
print(f"{'shared by both routes':32} {shared[0]:15,} {shared[1]:19,}\n")
for route, macs in (("materialize", materialize_macs), ("absorb", absorb_macs)):
    totals = [macs(S, C, **widths(v3))["total"] for S in (1, 2048)]
    found = [total - part["rope scores"] for total, part in zip(totals, (one, many), strict=True)]
    print(f"{route + ', its own':32} {found[0]:15,} {found[1]:19,}")
    parts = [both / (own + both) for own, both in zip(found, shared, strict=True)]
    print(f"{'   share of what is shared':32} {parts[0]:15.1%} {parts[1]:19.1%}")

# %% [markdown]
# They are not small. Look at absorb's share at one new token: an account of a whole *layer* must have them.
#
# But the list was made without asking which route runs: none of its lines depends on it. So the difference between the
# routes is the same with them and without, and so is the place where that difference is zero. The next cell tests this
# for the rope scores; the output projection is counted behind both routes when they run.
#
# (The rope key is stored once and shown to every head. Copying it beside each head's rebuilt key takes bytes and no
# multiply-add. Those bytes come back further down.)

# %%
both = (materialize_macs, absorb_macs)
for S in (1, 164, 2048):
    with_rope = [macs(S, C, **widths(v3))["total"] for macs in both]
    without = [macs(S, C, **(widths(v3) | {"rope_dim": 0}))["total"] for macs in both]
    rope = shared_macs(S, C, v3)["rope scores"]
    assert [a - b for a, b in zip(with_rope, without, strict=True)] == [rope, rope]
    print(f"{S:5,} new: materialize − absorb = {with_rope[0] - with_rope[1]:19,}", end="")
    print(f"   without rope {without[0] - without[1]:19,}")

# %% [markdown]
# ## What stands side by side?
#
# The difference between the routes is one of projections and one of pairs. In projections,
#
# $$\underbrace{C \cdot L\,(n+v)}_\text{materialize} \qquad \underbrace{S \cdot L\,(n+v)}_\text{absorb}$$
#
# both have the factor $P = L\,(n+v)$. What stands before it is the length of the cache or the number of new tokens, so
# absorb is ahead by $(C - S)\,P$. For that it loses $2L - n - v$ on every pair of a new and a cached token.

# %%
P, narrow, wide = L * (n + v), n + r + v, 2 * L + r
print(f"project one token for one head:  {L} · ({n} + {v}) = {P:,}")
print(f"one pair, keys and values built: {n} + {r} + {v} = {narrow}")
print(f"one pair, on the entries:        {L} + {r} + {L} = {wide:,}, {wide / narrow:.2f} times as much")
for S in (1, 2048):
    saved, paid = (C - S) * P, S * C * (wide - narrow)
    print(f"{S:5,} new: absorb saves {saved:13,} in projections and pays {paid:13,} more for pairs")

# %% [markdown]
# ## What do you predict, and where do the older schemes stand?
#
# MHA, GQA and MQA have their keys and values in the cache. Their step costs the attention term of materialize and
# nothing else, so they have one route and no crossing. The next cell sets them beside MLA's two, at 4,096 cached tokens
# and 1, 128 and 2,048 new ones. Predict before you look: between which two of these does MLA's winner change?

# %%
from ledger.account.attention import family

print("                   multiply-adds of a layer, all heads   bytes cached")
print("                      1 new      128 new    2,048 new         a token")
for scheme in family(v3)[:3]:
    row = "".join(f"{short(S * scheme.decode_macs(C)):>13}" for S in (1, 128, 2048))
    print(f"{scheme.name:15}{row} {scheme.cache_bytes:14,}")
for route, macs in (("materialize", materialize_macs), ("absorb", absorb_macs)):
    row = "".join(f"{short(macs(S, C, **widths(v3))['total']):>13}" for S in (1, 128, 2048))
    print(f"{'MLA ' + route:15}{row} {2 * v3.cache_dim:14,}")
mha = family(v3)[0]
ratio = absorb_macs(1, C, **widths(v3))["total"] / mha.decode_macs(C)
print(f"\nabsorbed decode / MHA: {ratio:.2f} times the multiply-adds, ", end="")
print(f"1/{mha.cache_bytes / (2 * v3.cache_dim):.0f} of the cache")

# %% [markdown]
# This is the bargain of MLA in one line: decode with a few times the multiply-adds of MHA on a small fraction of its
# bytes. At 2,048 new tokens materialize comes close to MHA, because so many queries share what was rebuilt. MLA's
# winner changes between the last two columns.

# %% [markdown]
# ## Does real code take exactly that many?
#
# Here are both routes whole, in NumPy: the projections, the concatenation with the rope part, a softmax with its scale,
# and the values. The queries come with the head axis in front, ready rotated. The cache holds [latent | k_rope].

# %%
import numpy as np


def softmax(scores, visible=None):
    scores = scores / (n + r) ** 0.5
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def absorb(q_nope, q_rope, cache, w_kc, w_vc, visible=None):
    entry, latent = cache.shape[1], w_vc.shape[1]
    queries = np.concatenate([q_nope @ w_kc, q_rope], axis=-1)  # [h, s, c + r]
    scores = (queries.reshape(-1, entry) @ cache.T).reshape(*q_nope.shape[:2], -1)  # heads are rows
    rows = softmax(scores, visible).reshape(-1, len(cache))
    return (rows @ cache[:, :latent]).reshape(*q_nope.shape[:2], latent) @ w_vc  # [h, s, v]


# %%
def rebuild(cache, w_kc, w_vc):
    latents, k_rope = np.split(cache, [w_vc.shape[1]], axis=1)
    k_nope = latents @ w_kc.swapaxes(1, 2)  # [h, t, n]
    shared = np.broadcast_to(k_rope, (len(w_kc), *k_rope.shape))
    return np.concatenate([k_nope, shared], axis=-1), latents @ w_vc  # [h, t, n + r], [h, t, v]


def materialize(q_nope, q_rope, cache, w_kc, w_vc, visible=None):
    keys, values = rebuild(cache, w_kc, w_vc)
    queries = np.concatenate([q_nope, q_rope], axis=-1)
    return softmax(queries @ keys.swapaxes(1, 2), visible) @ values  # [h, s, v]


# %% [markdown]
# Run both while the counter watches, at DeepSeek-V3's widths with two heads. (A browser's NumPy is slow: there it is one
# head and a short cache.)

# %%
from ledger.browser import IN_BROWSER
from ledger.count import count

heads, cached = (1, 256) if IN_BROWSER else (2, 2048)
sizes = widths(v3) | {"num_heads": heads}
rng = np.random.default_rng(5)


def draw(*shape, by=1.0):
    return rng.standard_normal(shape, dtype=np.float32) / np.float32(by)


weights = draw(heads, n, L, by=L**0.5), draw(heads, L, v, by=L**0.5)
cache = draw(cached, L + r)

# %%
print("  new                  predicted           counted   bytes counted   largest array made")
for S in (1, 64, 512) if not IN_BROWSER else (1, 16):
    queries = draw(heads, S, n), draw(heads, S, r)
    outputs = []
    for route, macs in ((materialize, materialize_macs), (absorb, absorb_macs)):
        output, counts = count(route, *queries, cache, *weights)
        predicted, moved = macs(S, cached, **sizes)["total"], counts.bytes_read + counts.bytes_written
        print(f"{S:5,} {route.__name__:12} {predicted:13,} {counts.macs:17,} {moved:15,}", end="   ")
        print(counts.largest_shape)
        assert counts.macs == predicted
        outputs.append(output)
    assert np.allclose(*outputs, atol=1e-5)

# %% [markdown]
# Every count equals its prediction, to the last multiply-add, and both routes give the same output. (The scale is a
# division here; written as a multiplication it would count one for each score, on both sides.)
#
# And the output projection, which was left out? Put it behind each route, and let the counter see both together.

# %%
from dataclasses import replace

S = 16
w_o = draw(heads * v, v3.hidden_dim, by=(heads * v) ** 0.5)
queries = draw(heads, S, n), draw(heads, S, r)


def projected(route, *given):
    return route(*given).swapaxes(0, 1).reshape(S, -1) @ w_o  # [s, h·v] · [h·v, hidden]


print(f"{S} new                alone   with the projection    difference")
for route in (materialize, absorb):
    calls = (route,), (projected, route)
    alone, more = (count(*call, *queries, cache, *weights)[1].macs for call in calls)
    print(f"{route.__name__:12} {alone:13,} {more:21,} {more - alone:13,}")
    assert more - alone == shared_macs(S, cached, replace(v3, num_heads=heads))["output projection"]

# %% [markdown]
# It adds the same number to both.
#
# Look at the last columns of the first table, too. With few new tokens the largest array that materialize makes is the
# expanded keys, and it moves more bytes than absorb for the same output. No multiply-add tells of that. Keep it in mind
# for the clock.

# %% [markdown]
# ## How do the two lines run?
#
# Draw both totals over the new tokens on paper with two logarithmic scales. A post on these two routes (S. Dong, 2026,
# [Understanding MLA Decoding](https://simondong1.github.io/mla-decoding.html)) calls the lines "nearly parallel" there.
# Are they? On such paper, parallel means growing by the same percentage.
#
# All of absorb's work is proportional to $S$: one percent more tokens, one percent more work, slope 1. Of materialize's
# work only the attention grows, so its slope is the share of the attention in the total:
#
# $$\frac{S\,C\,(n+r+v)}{C\,P + S\,C\,(n+r+v)}$$

# %%
from ledger.account.crossover import crossover_new_tokens, log_slopes


def total(macs, tokens):
    """A total at any number of new tokens, whole or not: it is a straight line in them."""
    start, one = (macs(S, C, **widths(v3))["total"] for S in (0, 1))
    return start + tokens * (one - start)


at = crossover_new_tokens(C, L, n, v)
print("      new    slope of materialize    of absorb      from totals 0.1% apart")
for S in (1, 16, round(at), 1024, 16384):
    by_share = log_slopes(S, C, **widths(v3))
    growth = [total(macs, 1.001 * S) / total(macs, S) for macs in (materialize_macs, absorb_macs)]
    by_totals = np.log(growth) / np.log(1.001)
    print(f"{S:9,} {by_share[0]:20.3f} {by_share[1]:13.3f} {by_totals[0]:17.3f} {by_totals[1]:8.3f}")
    assert np.allclose(by_share, by_totals, atol=1e-3)

# %%
from ledger.widgets.crossover import slopes_chart

slopes_chart(v3, C)

# %% [markdown]
# They are far from parallel. At the crossing, one percent more tokens makes absorb 1% dearer and materialize about 0.29%.
# The lines become parallel only far to the right, where both are attention. If they *were* nearly parallel where they
# cross, a small error in a count would move the crossing by a lot. As they are, it is well determined.

# %% [markdown]
# ## Where exactly do they cross?
#
# Set both totals of a head equal. The rope scores cancel, and with $d = 2L - n - v$ for what absorb pays more a pair:
#
# $$C P + S C\,(n+v) = S P + S C \cdot 2L \quad\Longrightarrow\quad S^* = \frac{C\,P}{P + C\,d}$$
#
# In a long cache $P$ is negligible beside $C\,d$, and what remains does not know the cache at all:
#
# $$S^* \to \frac{P}{d} = \frac{L\,(n+v)}{2L-n-v}$$

# %%
from ledger.account.crossover import crossover_causal, crossover_limit

for cached_tokens in (64, 512, 4096, 32768, 262144):
    found = crossover_new_tokens(cached_tokens, L, n, v)
    print(f"{cached_tokens:9,} cached: {found:7.2f} new tokens, {found / cached_tokens:8.2%} of the cache")
print(f"     long context: {L} · ({n} + {v}) / (2 · {L} − {n} − {v}) = {crossover_limit(L, n, v):.2f}")
below = int(crossover_new_tokens(C, L, n, v))
for S, cheaper in ((below, "absorb"), (below + 1, "materialize")):
    totals = {f.__name__[:-5]: f(S, C, **widths(v3))["total"] for f in (materialize_macs, absorb_macs)}
    assert min(totals, key=totals.get) == cheaper
print(f"at {C:,} cached tokens, {below} new ones are cheaper absorbed and {below + 1} materialized")

# %% [markdown]
# The crossing is a number of tokens and not a share of the context. Between 4,096 and 262,144 cached tokens it moves by
# 4%.
#
# What if the heads are wider than the latents, $n + v \ge 2L$? Then a pair is never cheaper on rebuilt keys. With
# $d = 0$ the lines cross at $S^* = C$, so that the crossing grows without bound. With $d < 0$ they cross in a cache
# shorter than $P / \lvert d \rvert$, and in a longer one never. No model in the course's list is built like that.

# %% [markdown]
# ## Where do other models cross?

# %%
rows = {}
for shape in MODELS.values():
    key = (shape.latent_dim, shape.nope_dim, shape.value_dim)
    rows.setdefault(key, []).append(shape.name)
print("latent  nope  value   4,096 cached   causal   long context   models")
for key, names in sorted(rows.items(), key=lambda row: crossover_limit(*row[0])):
    exact, causal, limit = crossover_new_tokens(C, *key), crossover_causal(C, *key), crossover_limit(*key)
    shown = names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
    print(f"{key[0]:6} {key[1]:5} {key[2]:6} {exact:14.1f} {causal:8.1f} {limit:14.2f}   {shown}")

# %% [markdown]
# Kimi K2.x shares DeepSeek-V3's three widths. It has half as many heads and crosses at the same place, because the
# heads cancel. GLM-5.2 has wide heads, which makes rebuilding dearer and its advantage in a pair smaller. So it crosses
# at more than twice as many tokens.
#
# The same post says 228 tokens for GLM-5.2, beside the very formula of this page. Put its widths in:

# %%
glm = model("GLM-5.2")
G = (glm.latent_dim, glm.nope_dim, glm.value_dim)
d = 2 * G[0] - G[1] - G[2]
print(f"{G[0]} · ({G[1]} + {G[2]}) / (2 · {G[0]} − {G[1]} − {G[2]})")
print(f"   = {crossover_limit(*G):.1f}, and {crossover_new_tokens(C, *G):.1f} at {C:,} cached tokens")
print("\nwhat gives 228?")
print(f"   DeepSeek-V3's projection over GLM-5.2's pair: {L} · ({n} + {v}) / {d} = {L * (n + v) / d:.1f}")
print(f"   GLM-5.2 with its values alone projected:      {G[0]} · {G[2]} / {d} = {G[0] * G[2] / d:.1f}")
for new in (228, 398):
    totals = [f(new, 10**9, **widths(glm))["total"] for f in (materialize_macs, absorb_macs)]
    print(f"at {new} new tokens, a billion cached: materialize / absorb = {totals[0] / totals[1]:.3f}")

# %% [markdown]
# The formula says 398.2, and the totals at that number are equal. At 228 tokens, materialize is still the dearer route
# by far.
#
# Two slips lead to 228, and the number cannot tell which it was: one projects with DeepSeek-V3's head widths, the
# other forgets the keys. In both, the numerator has 256 where GLM-5.2 has 448.

# %% [markdown]
# ## What changes in a prefill?
#
# So far the new tokens were not keys. In a prefill they are: each attends to all cached tokens and to the new ones up
# to itself. Materialize then projects $C + S$ tokens and absorb $S$, so the difference is $C \cdot P$ as before. The
# pairs are a rectangle and a triangle, $S\,C + S^2/2$ (taken without the half token of its diagonal):
#
# $$C\,P = \left(S\,C + \tfrac{1}{2}S^2\right) d \quad\Longrightarrow\quad S^* = -C + \sqrt{C^2 + 2\,C\,P/d}$$
#
# Which count is the right one depends on the code. Take a small cache and let the counter watch two programs.

# %%
from ledger.account.crossover import causal_pairs

few, S_few, C_few = dict(latent_dim=16, nope_dim=6, rope_dim=4, value_dim=5, num_heads=3), 9, 12
small = draw(3, 6, 16), draw(3, 16, 5)
q_nope, q_rope, entries = draw(3, S_few, 6), draw(3, S_few, 4), draw(C_few + S_few, 20)
visible = np.arange(C_few + S_few) <= C_few + np.arange(S_few)[:, None]  # [s, t]


def row_by_row(q_nope, q_rope, cache, w_kc, w_vc):
    ends = range(C_few + 1, C_few + S_few + 1)
    rows = [absorb(q_nope[:, [s]], q_rope[:, [s]], cache[:end], w_kc, w_vc) for s, end in enumerate(ends)]
    return np.concatenate(rows, axis=1)


# %%
rectangle, triangle = S_few * (C_few + S_few), causal_pairs(S_few, C_few)
pair, project = 2 * 16 + 4, 16 * (6 + 5)
outputs = []
for name, route, extra in (("masked", absorb, (visible,)), ("row by row", row_by_row, ())):
    output, counts = count(route, q_nope, q_rope, entries, *small, *extra)
    pairs = rectangle if extra else triangle
    predicted = 3 * (S_few * project + pairs * pair)
    print(f"{name:11} {pairs} pairs: predicted {predicted:,}, counted {counts.macs:,}")
    assert counts.macs == predicted
    outputs.append(output)
_, counts = count(materialize, q_nope, q_rope, entries, *small, visible)
assert counts.macs == materialize_macs(S_few, C_few + S_few, **few)["total"]
assert np.allclose(*outputs, atol=1e-5)

# %% [markdown]
# A mask saves nothing by itself: the masked program computes the whole rectangle and throws half of the square away. Its
# counts are those of the formula without a mask, with $C + S$ for the cache. A kernel that skips what the mask hides,
# as the good ones do tile by tile, computes the triangle.

# %%
masked = crossover_new_tokens(C, L, n, v)
for _ in range(20):  # until the cache that the formula gets is C and the crossing itself
    masked = (C + masked) * P / (P + (C + masked) * (2 * L - n - v))
shifted = C + 0.5  # with its diagonal the triangle adds half a pair for each new token
diagonal = np.sqrt(shifted**2 + 2 * C * crossover_limit(L, n, v)) - shifted
print(f"new tokens at which the routes cost the same, {v3.name}, {C:,} cached")
print(f"   they are no keys:                 {crossover_new_tokens(C, L, n, v):.2f}")
print(f"   keys, masked in a dense product:  {masked:.2f}")
print(f"   keys, triangle as S²/2:           {crossover_causal(C, L, n, v):.2f}")
print(f"   keys, triangle with its diagonal: {diagonal:.2f}")
print(f"   long context:                     {crossover_limit(L, n, v):.2f}")

# %% [markdown]
# All within a few tokens. What matters more: with an empty cache the causal crossing is 0. Both routes then project the
# new tokens and no others, materialize has the cheaper pairs, and there is nothing to set against them. A first prefill
# always materializes.

# %% [markdown]
# ## What happens when you turn the knobs?
#
# Dashed lines are the projection terms, dotted lines the attention terms, solid lines their sums. (Absorb's dotted line
# often hides under its solid one.) The shading says who wins. Three things to try:
#
# * Pull the cache from 64 to 131,072 tokens. Both lines rise by hundreds of times or more. How far does the diamond go?
# * At 4,096 cached tokens, find the dashed line that does not rise. Which term is it?
# * Take MiniCPM3-4B, then GLM-5.2. Before you look, say on which side of DeepSeek-V3's diamond theirs will be.

# %%
from ledger.widgets.crossover import CrossoverExplorer

CrossoverExplorer().show()

# %% [markdown]
# ## Does the clock cross there too?
#
# Measure both functions of this page, and compare three ratios of materialize to absorb: of multiply-adds, of a time
# that adds up what the counter saw (multiply-adds at this machine's best rate, then bytes at its memory's), and of
# measured times. Each ratio crosses 1 somewhere.
#
# (Lesson 0 took the larger of the two, the *least* time. Here they are added, because NumPy's passes run one after
# another, and those that only copy have no arithmetic to hide behind.)

# %%
from functools import partial

from ledger.measure import ceilings, time_pairs

roof = ceilings("float32", device="cpu")


def look_at(S):
    """For each route: multiply-adds, seconds of them and of their bytes added up, measured seconds."""
    given = draw(heads, S, n), draw(heads, S, r), cache, *weights
    calls = {route.__name__: partial(route, *given) for route in (materialize, absorb)}
    times = time_pairs(calls, seconds=0.3)
    seen = []
    for route in (materialize, absorb):
        counts = count(route, *given)[1]
        added = 2 * counts.macs / roof.flops + (counts.bytes_read + counts.bytes_written) / roof.bandwidth
        seen.append((counts.macs, added, times[route.__name__].low))
    return seen


# %%
news = [1, 16, 64, 256] if IN_BROWSER else [1, 8, 32, 64, 128, 192, 256, 512]
seen = np.array([look_at(S) for S in news])  # [S, route, (macs, added, time)]
names = ("multiply-adds", "multiply-adds, then bytes", "measured")
ratios = dict(zip(names, (seen[:, 0] / seen[:, 1]).T, strict=True))


# %%
def crossing(new_tokens, ratio):
    """Where a ratio falls below 1 for the last time, between two points; None where it does not."""
    logs = np.log(ratio)
    for i in reversed(range(len(logs) - 1)):
        if logs[i] >= 0 > logs[i + 1]:
            share = logs[i] / (logs[i] - logs[i + 1])
            return new_tokens[i] * (new_tokens[i + 1] / new_tokens[i]) ** share
    return None


def equal_at(new_tokens, ratio):
    found = crossing(new_tokens, ratio)
    return f"{found:.0f}" if found else f"no crossing between {new_tokens[0]} and {new_tokens[-1]}"


# %%
predicted, found = crossover_new_tokens(cached, L, n, v), crossing(news, ratios["measured"])
print(f"predicted {predicted:.0f}, measured {equal_at(news, ratios['measured'])} new tokens", end="")
print(f": {found / predicted:.2f} of the prediction" if found else "")
speeds = 2 * seen[:, :, 0] / seen[:, :, 2] / 1e9
print(f"this core: {roof.flops / 1e9:.1f} GFLOP/s, {roof.flops / roof.bandwidth:.1f} FLOP a byte")
for i in (0, len(news) // 2, -1):
    print(f"{news[i]:5,} new: materialize {speeds[i, 0]:6.1f} GFLOP/s, absorb {speeds[i, 1]:6.1f}")

# %%
fig = new_figure(7.5, 3.6, alt="Materialize over absorb by new tokens: predicted, with bytes, measured")
ax = fig.subplots()
looks = (("predict", "o-"), ("count", "s--"), ("measure", "D-"))
for (name, ratio), (color, look) in zip(ratios.items(), looks, strict=True):
    ax.plot(news, ratio, look, color=COLORS[color], label=f"{name}: {equal_at(news, ratio)}")
ax.axhline(1, color=COLORS["ink"], linewidth=1)
ax.set(xscale="log", yscale="log", xlabel="new tokens", ylabel="materialize ÷ absorb")
ax.set_title(f"{heads} head{'s' * (heads > 1)} of {v3.name}, {cached:,} cached, one core")
plain_ticks(ax.xaxis)
ax.yaxis.set_major_formatter("{x:g}")
ax.legend(title="equal at")
fig

# %% [markdown]
# The story is the predicted one: a ratio far above 1 on the left, and a fall through 1. The first line says how far from
# the predicted place that is, or that the fall lies beyond the points. Two things move it.
#
# * **Traffic of what was expanded** moves it to the right. Materialize writes keys and values of all heads to memory,
#   copies the rope key beside each, and reads everything again. The second curve adds those bytes, and crosses only a
#   little later: a core does few FLOP for each byte that it can move.
# * **Unequal rates** move it either way. Compare the two GFLOP/s: where absorb's one large product runs better than
#   materialize's smaller ones, the crossing comes later, and otherwise earlier. With few new tokens absorb has too few
#   rows and waits for the cache, so its advantage on the far left is smaller than predicted.
#
# So within about a tenth of 1 the formula was right, and the rest is noise or rates. Further off, look at the rates first.
#
# (If another program runs beside this page, the third curve wobbles. Run the measuring cells again.)

# %% [markdown]
# ## And on a GPU?
#
# Where torch finds one, the next cell does the same there, with 16 heads (DeepSeek-V3's share of one GPU in eight) and
# 8,192 cached tokens, each product by itself and in 16 bits.

# %% tags=["no-browser"]
try:
    import torch
except ImportError:
    torch = None


def torch_routes(S, C, heads, device, dtype):
    given = dict(device=device, dtype=dtype)
    q_n, q_r = (torch.randn(heads, S, width, **given) / (n + r) ** 0.5 for width in (n, r))  # scaled
    w_k, w_v = (torch.randn(heads, *shape, **given) / L**0.5 for shape in ((n, L), (L, v)))
    entries = torch.randn(C, L + r, **given)

    def rebuilt():
        keys = torch.cat([entries[:, :L] @ w_k.mT, entries[:, L:].expand(heads, C, r)], -1)
        return torch.softmax(torch.cat([q_n, q_r], -1) @ keys.mT, -1) @ (entries[:, :L] @ w_v)

    def absorbed():
        return torch.softmax(torch.cat([q_n @ w_k, q_r], -1) @ entries.T, -1) @ entries[:, :L] @ w_v

    return {"materialize": rebuilt, "absorb": absorbed}


# %% tags=["no-browser"]
if torch is None or not torch.cuda.is_available():
    print("torch finds no GPU here. The formula and the published times below stand in for it.")
else:
    from ledger.measure import fast_half

    points, measured = [32, 64, 128, 192, 256, 384, 512, 1024], []
    for S in points:
        calls = torch_routes(S, 8192, 16, "cuda", getattr(torch, fast_half()))
        timing = time_pairs(calls, seconds=0.2)
        measured.append(timing["materialize"].low / timing["absorb"].low)
    found, by_count = crossing(points, measured), crossover_new_tokens(8192, L, n, v)
    print(f"{torch.cuda.get_device_name()}, {fast_half()}: predicted {by_count:.0f}", end=", ")
    print(f"measured {equal_at(points, measured)} new tokens", end="")
    print(f": {found / by_count:.2f} of the prediction" if found else "")

# %% [markdown]
# ## How far does traffic move it on a GPU?
#
# A GPU does far more arithmetic for each byte than the core above, so bytes that were free there cost something here.
# Take a long context, and count for each cached token the seconds of both routes on an H200: arithmetic at its bf16
# rate, and the expanded keys and values once out to memory and once back, at its bandwidth.
#
# A pass may overlap with the arithmetic of its product: then only the longer of the two counts. A kernel that computes
# first and writes afterwards pays both.
#
# Write $t_P$ for rebuilding a token, $t_B$ for one pass, $t_n$ and $t_w$ for its pair with one new token on the narrow
# and on the wide route. With both passes exposed
#
# $$t_w\,S = t_P + 2\,t_B + t_n\,S \quad\Longrightarrow\quad S^* = \frac{t_P + 2\,t_B}{t_w - t_n},$$
#
# with one of them hidden $t_P + t_B$ over the same. With both overlapped, writing hides behind $t_P$, but reading takes
# longer than so few narrow pairs, $t_B > t_n S$, and so $S^* = (t_P + t_B)/t_w$.

# %%
from ledger.account.crossover import expanded_bytes, time_crossover_limit
from ledger.machines import machine

h200 = machine("H200")
each = expanded_bytes(1, v3)
print(f"{h200.name} by its data sheet: {h200.ridge():.0f} FLOP a byte")
print(f"a cached token, one layer: {2 * v3.cache_dim:,} bytes in the cache, {each:,} expanded")
print(f"rebuild it: {2 * H * P / h200.flops['bf16'] * 1e9:5.1f} ns of arithmetic")
print(f"one pass:   {each / h200.bandwidth * 1e9:5.1f} ns of traffic")
cases = {"arithmetic alone": crossover_limit(L, n, v)}
cases["both passes overlapped"] = time_crossover_limit(v3, h200, write_hidden=True, read_hidden=True)
cases["one pass serial"] = time_crossover_limit(v3, h200, write_hidden=True, read_hidden=False)
cases["both passes serial"] = time_crossover_limit(v3, h200, write_hidden=False, read_hidden=False)

# %%
fig = new_figure(7.5, 2.4, alt="Crossing in time on an H200 as more of the expanded traffic is exposed")
ax = fig.subplots()
for place, tokens in enumerate(cases.values()):
    ax.plot([0, tokens], [place, place], color=COLORS["predict"], linewidth=1.5)
    ax.plot([tokens], [place], "o", color=COLORS["predict"], markersize=8)
    ax.text(tokens + 7, place, f"{tokens:.1f}", va="center")
ax.set_yticks(range(len(cases)), list(cases))
ax.set(xlim=(0, 400), ylim=(3.6, -0.6), xlabel=f"new tokens at which the times are equal, {h200.name}")
ax.grid(visible=False, axis="y")
fig

# %% [markdown]
# Traffic only moves the crossing to the right, at worst to twice the predicted place. This is a computation, not a
# measurement: kernels of unequal quality move it either way. (Here, too, the heads cancel: traffic and arithmetic are
# both proportional to them.)

# %% [markdown]
# ## What has been measured on an H200?
#
# Far right of the crossing only the pairs are left, and the ratio of both routes tends to the ratio of their pairs. Two
# engines' attention kernels have published times for the same prefill at DeepSeek-V3's widths: one request without
# a cached prefix, 128 heads, bf16. SGLang's attends to the entries, TensorRT-LLM's to expanded keys and values. The
# projections are in neither time.

# %%
from ledger.published import PREFILL_H200

print(f"predicted: ({L} + {r} + {L}) / ({n} + {r} + {v}) = {wide:,} / {narrow} = {wide / narrow:.2f}\n")
print(" prompt   absorbed, ms   expanded, ms   ratio    TFLOP/s absorbed   expanded")
for row in PREFILL_H200:
    flop = 2 * H * causal_pairs(row.tokens, 0)
    speeds = [flop * width / ms / 1e9 for width, ms in ((wide, row.absorbed), (narrow, row.expanded))]
    ratio = row.absorbed / row.expanded
    print(f"{row.tokens:7,} {row.absorbed:14.2f} {row.expanded:14.2f} {ratio:7.2f}", end=" ")
    print(f"{speeds[0]:19.0f} {speeds[1]:10.0f}")
print(f"\n{ratio:.2f} = {wide / narrow:.2f} · {speeds[1]:.0f} / {speeds[0]:.0f}")

# %% [markdown]
# At 32,768 tokens 3.19 is measured where the pairs predict 3.40. The last line of the table says where the difference
# is: the wide kernel runs a little nearer to the machine's limit than the narrow one. For short prompts both are far
# from it, the narrow one more so, and the ratio is smaller still.
#
# (Times: ai-dynamo/aiconfigurator at 095f58a5, Apache-2.0; SGLang 0.5.14 with FlashAttention 3 and TensorRT-LLM
# 1.3.0rc20. Two engines, so two authors of kernels: this compares what is deployed, not one program with another.)

# %% [markdown]
# ## What do engines do with this?
#
# They ship both routes.
#
# * **vLLM**, `model_executor/layers/attention/mla_attention.py`: `forward_mha` materializes and `forward_mqa` absorbs.
#   The file calls the first "compute-friendly" and the second "data-movement-friendly".
# * **SGLang**, `models/deepseek_common/attention_forward_methods/`: `forward_mha.py` and `forward_mla.py`.
#
# None was found that evaluates the crossing. They choose by rules of thumb, which [lesson 6](../ch06_cache/cache.ipynb)
# holds against this page's. By multiply-adds, with a long cache, the choice would be:

# %%
from ledger.account.crossover import pick_path

asked = (1, 128, 171, 300, 512)
print("new tokens    " + "".join(f"{new:13,}" for new in asked))
for name in ("MiniCPM3-4B", "DeepSeek-V3", "GLM-5.2"):
    routes = [pick_path(new, 32768, model(name)) for new in asked]
    print(f"{name:14}" + "".join(f"{route:>13}" for route in routes))

# %% [markdown]
# ## How to explain it
#
# *"Both routes project each token with the same matrices. One projects the cache, the other the new tokens. For that,
# the second pays more than three times as much for each pair of a new and a cached token. Few new tokens: projecting
# the cache is the waste. Many: the wide pairs are. The two balance at a number of tokens that three widths of the model
# decide, about 171 for DeepSeek-V3, almost whatever the context. On a GPU, by its data sheet, the clock turns later,
# because what was rebuilt has to travel to memory and back."*

# %% [markdown]
# ## Summary
#
# * Materialize: $C\,P + S\,C\,(n+r+v)$ a head. Absorb: $S\,P + S\,C\,(2L+r)$, with $P = L\,(n+v)$. Counted code agrees
#   exactly.
# * What both share, from the queries to the output projection, is counted once and moves no crossing.
# * $S^* = CP/(P + Cd)$, $d = 2L - n - v$; in a long context $P/d$: 170.67 for DeepSeek-V3 and 398.2 for GLM-5.2. In a
#   causal prefill $-C + \sqrt{C^2 + 2CP/d}$, and none without a cached prefix.
# * At the crossing the slopes are 0.29 and 1, so it is sharp.
# * By an H200's data sheet, time crosses later: at 181 to 342, as less of the expanded traffic is hidden.
# * Far from the crossing the pairs decide: 3.40 predicted, 3.19 measured at 32,768 tokens.

# %% [markdown]
# ## Exercises to do next
#
# 1. [materialize_macs](../../practice/ch05_crossover/crossover.ipynb#cell-id=materialize_macs-statement): count the
#    route that rebuilds.
# 2. [absorb_macs](../../practice/ch05_crossover/crossover.ipynb#cell-id=absorb_macs-statement): count the route that
#    absorbs.
# 3. [crossover_new_tokens](../../practice/ch05_crossover/crossover.ipynb#cell-id=crossover_new_tokens-statement): set
#    them equal.
# 4. [crossover_limit](../../practice/ch05_crossover/crossover.ipynb#cell-id=crossover_limit-statement): let the cache
#    grow.
# 5. [crossover_causal](../../practice/ch05_crossover/crossover.ipynb#cell-id=crossover_causal-statement): let the new
#    tokens be keys.
# 6. [pick_path](../../practice/ch05_crossover/crossover.ipynb#cell-id=pick_path-statement): choose for a model.
#
# ```
# python judge.py 5
# ```
#
# Then go on to [lesson 6](../ch06_cache/cache.ipynb): what the small cache buys, and what engines choose with it.
