# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 3 Values: mix first, project once
#
# Lessons 1 and 2 ended at the scores. A softmax turns them into weights, and the weights mix the values of all cached
# tokens. The cache holds no values either: it holds latents, from which every head makes its values with a second
# matrix of its own, $W_V$.
#
# **The question:** do you have to rebuild the values before you can mix them? And with the answer in hand, what is the
# whole way from a hidden state to the output of a head?
#
# Each matrix has several names. Here they are once:
#
# | on this page | in the papers | in engines, one slice a head |
# |---|---|---|
# | $W_K$, (latent, nope) | $W_{UK}$ | `w_kc[h]`, (nope, latent): the transpose |
# | $W_V$, (latent, value) | $W_{UV}$ | `w_vc[h]`, (latent, value) |
# | $W_{DKV}$, (hidden, latent + rope) | $W_{DKV}$ and $W_{KR}$ | `kv_a_proj_with_mqa` |

# %% [markdown]
# ## Can you skip this lesson?
#
# Answer these five. If all five match, go to the exercises at the end.
#
# 1. One head has 1 new token and 4,096 cached ones, latents of width 512 and values of width 128. How many
#    multiply-adds does each route take from the weights to the output?
# 2. The softmax is not linear, and it stands between $W_K$ and $W_V$. Why can both be absorbed all the same?
# 3. A cache was cut in two. The parts gave the outputs $o_1$ and $o_2$, with lse $\ln 2$ and $\ln 3$. What is the output
#    over the whole cache, and its lse?
# 4. A part of the cache is empty. Its lse is $-\infty$ and its output NaN. Why is it not enough to weigh it with 0?
# 5. $W_{UV}$ and $W_O$ stand next to each other. What would DeepSeek-V3 lose by storing their product?
#
# <details><summary>Answers</summary>
#
# 1. Rebuilding: 4,096·512·128 + 1·4,096·128 = 268,959,744. Mixing first: 1·4,096·512 + 1·512·128 = 2,162,688.
# 2. Each matrix moves on its own side. $W_K$ goes to the query, before the softmax. $W_V$ goes to the mixed latent,
#    after it. Neither has to pass through.
# 3. $\tfrac25 o_1 + \tfrac35 o_2$ and $\ln 5$.
# 4. 0 times NaN is NaN. The part has to be left out, and not multiplied away.
# 5. Memory and time: 469.8 M elements in each layer against 125.8 M, which is 3.73 times as many.
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
# Take the three cached tokens of lesson 1 and a value matrix of width 2. The weights are made up here, so that the sums
# are easy; a real softmax comes below. Do it on paper first: three values $v_t = c_t W_V$, then their weighted sum.

# %%
import numpy as np

toy_latents = np.eye(3, dtype=int)  # [t, c]
toy_w_v = np.array([[1, 0], [0, 1], [0, 1]])  # [c, v]
toy_weights = np.array([[0.5, 0.0, 0.5]])  # [s, t]

toy_values = toy_latents @ toy_w_v  # [t, v]
for t, value in enumerate(toy_values):
    print(f"v{t} = {toy_latents[t]} · W_V = {value}     times {toy_weights[0, t]}")
print(f"output = {(toy_weights @ toy_values)[0]}")

# %% [markdown]
# Now the other way round. Mix the latents as if they were values, and multiply by the matrix once, at the end.

# %%
toy_mixed = toy_weights @ toy_latents  # [s, c]
print(f"mixed latent = {toy_mixed[0]}")
print(f"output = {toy_mixed[0]} · W_V = {(toy_mixed @ toy_w_v)[0]}")
assert np.array_equal(toy_weights @ toy_values, toy_mixed @ toy_w_v)

# %% [markdown]
# The same output, and no value was built. The middle token has weight 0. Materialize projected it all the same.

# %% [markdown]
# ## Why are they the same?
#
# A weighted sum of products with one matrix is the product of the weighted sum:
#
# $$\sum_t w_t\,(c_t\,W_V) = \Big(\sum_t w_t\,c_t\Big)\,W_V$$
#
# It asks one thing of the matrix: it must not depend on $t$. The same was asked of $W_K$. Two brackets again, then, and
# the same two names for them: **materialize** builds the values, **absorb** mixes latents and projects the sums.
#
# And the softmax in the middle? It is not linear, so no matrix could pass through it. None has to. $W_K$ goes to the
# query, on the left of the softmax. $W_V$ goes to the mixed latent, on its right. By the time that $W_V$ is asked for,
# the weights are just numbers.

# %%
from ledger.account.values import value_path_absorb, value_path_materialize
from ledger.models import MODELS, model
from ledger.widgets.base import COLORS, new_figure, plain_ticks
from ledger.widgets.flow import Arrow, Box, Lane, flow
from ledger.widgets.keys import short

v3 = model("DeepSeek-V3")
L, v, C = v3.latent_dim, v3.value_dim, 4096

# %%
m, a = value_path_materialize(1, C, L, v), value_path_absorb(1, C, L, v)
project = f"· W_V ({L} × {v})"
build = [Box("latents", (C, L), COLORS["latent"]), Arrow(project, short(m.projection))]
build += [Box("values", (C, v)), Arrow("weights · values", short(m.mixing)), Box("output", (1, v))]
mix = [Box("latents", (C, L), COLORS["latent"]), Arrow("weights · latents", short(a.mixing))]
mix += [Box("mixed latent", (1, L)), Arrow(project, short(a.projection)), Box("output", (1, v))]
lanes = [Lane("materialize", build, COLORS["materialize"]), Lane("absorb", mix, COLORS["absorb"])]
flow(f"{v3.name}, one head, 1 new token, {C:,} cached: multiply-adds under the arrows", lanes)

# %% [markdown]
# Look at the two boxes in the middle. The upper one has a row for every cached token, the lower one for every new
# token. The matrix is the same, and it is applied to whatever stands before it.

# %% [markdown]
# ## What do you predict?
#
# The rule is rows · inner · cols. There are $S$ new and $C$ cached tokens, latents of width $L$, values of width $v$:
#
# | route | projection | mixing |
# |---|---|---|
# | materialize | $C \cdot L \cdot v$ | $S \cdot C \cdot v$ |
# | absorb | $S \cdot L \cdot v$ | $S \cdot C \cdot L$ |
#
# Put $n$ for $v$ and "scores" for "mixing", and you have the table of lesson 1. Before you run the cell: at 1,024 new
# tokens, which route is cheaper?

# %%
for name, S in [("decode", 1), ("prefill", 1024)]:
    for route, path in [("materialize", value_path_materialize), ("absorb", value_path_absorb)]:
        p = path(S, C, L, v)
        print(f"{name:8} {route:12} {p.projection:13,} + {p.mixing:13,} = {p.total:13,}")
    print(f"{name:8} {'values cached':12} {0:12,} + {S * C * v:13,} = {S * C * v:13,}\n")
equal = C * L * v / (L * v + C * (L - v))
print(f"both routes cost the same at {equal:.1f} new tokens")

# %% [markdown]
# The third lines are those of MHA, GQA and MQA, which have their values in the cache. What do they pay for it?

# %%
from ledger.account.attention import family
from ledger.widgets.heads import SCHEME_COLORS

schemes = family(v3, kv_groups=8)
cached_values = [s.kv_heads * v3.value_dim if s.name != "MLA" else 0 for s in schemes]
mixing = [s.decode_value_macs() for s in schemes]

# %%
fig = new_figure(8.6, 2.9, alt="Values cached, and multiply-adds to mix them, for MHA, GQA, MQA and MLA")
axes = fig.subplots(1, 2)
for ax, heights in zip(axes, (cached_values, mixing), strict=True):
    ax.bar(list(SCHEME_COLORS), heights, color=list(SCHEME_COLORS.values()), width=0.62)
    for place, height in enumerate(heights):
        ax.text(place, height, f"{height:,}", ha="center", va="bottom", fontsize=9)
    ax.margins(y=0.15)
    ax.grid(False, axis="x")
axes[0].set(title="cached for the value alone", ylabel="values a token and layer")
axes[1].set(title="mixing one cached token", ylabel="multiply-adds, all heads")
fig

# %% [markdown]
# MLA caches nothing for the value. The latent that was the key *is* the value, and it has come in already. The price
# stands on the right: each head mixes vectors as wide as a latent.
#
# That is the bargain of lesson 1 once more, in its better half. The score's width grew from nope to latent; the value's
# width grows in the same way; and the second use of the latent costs no byte.

# %% [markdown]
# ## Does the code do what you predicted?
#
# One head at DeepSeek-V3's widths, in float32, with the counter watching.

# %%
from ledger.count import count

rng = np.random.default_rng(3)
latents = rng.standard_normal((C, L), dtype=np.float32)  # [t, c]
w_v = rng.standard_normal((L, v), dtype=np.float32) / np.float32(L) ** 0.5  # [c, v]


def softmax(scores):
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def materialize(weights, latents, w_v):
    return weights @ (latents @ w_v)


def absorb(weights, latents, w_v):
    return (weights @ latents) @ w_v


# %%
from ledger.browser import IN_BROWSER

formulas = {materialize: value_path_materialize, absorb: value_path_absorb}
for S in (1, 64 if IN_BROWSER else 1024):  # a browser's NumPy is slow
    weights = softmax(rng.standard_normal((S, C), dtype=np.float32))
    by_route = {}
    for route, path in formulas.items():
        by_route[route], counts = count(route, weights, latents, w_v)
        assert counts.macs == path(S, C, L, v).total
        print(f"{S:5,} new  {route.__name__:12} {counts.macs:13,} counted", end="")
        print(f"   largest array made {counts.largest_shape}")
    difference = np.abs(by_route[materialize] - by_route[absorb]).max()
    size = np.abs(by_route[absorb]).max()
    print(f"           largest difference {difference:.0e}, in outputs up to {size:.2f}")

# %% [markdown]
# The formulas hold to the last multiply-add, and the routes agree up to rounding. The last column shows the values that
# materialize builds and absorb does not.

# %% [markdown]
# ## How long does it take here?
#
# Predict the ratio of the two times by the ratio of the multiply-adds, and measure. The routes run in turn, and the
# lower quartile is kept.

# %%
from functools import partial

from ledger.measure import time_pairs

new_tokens = [1, 4, 16, 64] if IN_BROWSER else [1, 4, 16, 64, 256, 1024]
some = latents[:1024] if IN_BROWSER else latents
ratios = {"predict": [], "measure": []}
for S in new_tokens:
    weights = softmax(rng.standard_normal((S, len(some)), dtype=np.float32))
    calls = {route.__name__: partial(route, weights, some, w_v) for route in formulas}
    times = time_pairs(calls, seconds=0.15)
    macs = [path(S, len(some), L, v).total for path in formulas.values()]
    ratios["predict"].append(macs[0] / macs[1])
    ratios["measure"].append(times["materialize"].low / times["absorb"].low)

# %%
for S, *pair in zip(new_tokens, *ratios.values(), strict=True):
    print(f"{S:5,} new tokens: predicted {pair[0]:7.2f}, measured {pair[1]:7.2f}")

fig = new_figure(7.5, 3.2, alt="Materialize over absorb: ratio of multiply-adds and of times")
ax = fig.subplots()
names = {"predict": "multiply-adds, predicted and counted", "measure": "times, measured"}
for (kind, name), marker in zip(names.items(), "oD", strict=True):
    ax.plot(new_tokens, ratios[kind], f"{marker}-", color=COLORS[kind], label=name)
ax.axhline(1, color=COLORS["neutral"], linewidth=1.0, linestyle=":")
ax.set(xscale="log", yscale="log", xlabel="new tokens", ylabel="materialize ÷ absorb")
plain_ticks(ax.xaxis)
ax.legend()
fig

# %% [markdown]
# Above the dotted line absorb wins, below it materialize does. Both curves cross it in the same region (in a browser they
# end before). On the left the times differ by less than the multiply-adds, for the reason that lesson 1 found: with one
# new token absorb has nothing to do but to read the latents.

# %% [markdown]
# ## How does it go for all heads?
#
# Every head has weights of its own, and a value matrix of its own. That matrix is `w_vc[h]`, the other half of what
# lesson 2 cut out of `kv_b`:
#
# $$o_{shv} = \sum_c \Big(\sum_t w_{hst}\, c_{tc}\Big)\, W_{hcv}$$
#
# The inner sum mixes the one set of latents by the weights of each head: heads are rows there. The outer sum pairs each
# head's mixture with that head's matrix: a bmm, as it was for the queries. Heads stay apart.
#
# By hand, with a second head whose matrix has the rows $[7,9]$, $[7,9]$, $[7,9]$ and whose weights are
# $[0, 0.25, 0.75]$: what comes out, and why do its weights not matter?

# %%
two_weights = np.array([[[0.5, 0.0, 0.5]], [[0.0, 0.25, 0.75]]])  # [h, s, t]
two_w_vc = np.array([[[1, 0], [0, 1], [0, 1]], [[7, 9], [7, 9], [7, 9]]])  # [h, c, v]

two_mixed = two_weights @ toy_latents  # [h, s, c]
by_head = two_mixed @ two_w_vc  # [h, s, v]
for head in range(2):
    print(f"head {head}: mixed latent {two_mixed[head, 0]}, output {by_head[head, 0]}")
assert np.array_equal(by_head, np.einsum("hst,tc,hcv->hsv", two_weights, toy_latents, two_w_vc))

# %% [markdown]
# In head 1 all rows of the matrix are alike, and the weights add to 1. So every mixture gives $[7, 9]$.
#
# In lesson 2 flattening the heads was the mistake: it added them up. Here comes the step that wants exactly this. The
# output projection $W_O$ takes all heads' outputs, side by side in one long vector, back to a hidden state. Its rows are
# head-major, and the sum over heads is what it is for.

# %%
hidden_dim = 4
toy_w_o = rng.standard_normal((2 * 2, hidden_dim))  # [h·v, hidden]
by_token = by_head.swapaxes(0, 1)  # [s, h, v]
flattened = by_token.reshape(1, 2 * 2) @ toy_w_o
head_by_head = sum(by_token[:, head] @ toy_w_o[2 * head : 2 * head + 2] for head in range(2))
assert np.allclose(flattened, head_by_head)
print(f"heads flattened: {flattened[0].round(2)}")
print(f"heads added up:  {head_by_head[0].round(2)}")

# %% [markdown]
# So the heads are apart from $W_{UQ}$ to $W_{UV}$, and brought together by $W_O$ alone.

# %% [markdown]
# ## What is the whole content path?
#
# Now everything is there. Set it together for all heads, once by each route, with a real softmax. (The content path is
# attention without its rope part, which joins the scores in lesson 4.)

# %%
from ledger.account.values import content_path_absorb, content_path_materialize

lite = model("DeepSeek-V2-Lite")
heads, n = lite.num_heads, lite.nope_dim

# %%
m, a = (path(1, C, heads, n, L, v) for path in (content_path_materialize, content_path_absorb))
mixing_box, last_box = Box("weights", (heads, C)), Box("output", (heads, v))
rebuild = [Box("latents", (C, L), COLORS["latent"]), Arrow("· w_kc, · w_vc", short(m.keys + m.values))]
rebuild += [
    Box("keys, values", f"{heads} × {C:,} × {n}, {v}"),
    Arrow("q · keysᵀ, softmax", short(m.scores)),
]
rebuild += [mixing_box, Arrow("· values", short(m.mixing)), last_box]
move = [Box("q_nope", (heads, n)), Arrow("· w_kc", short(a.keys)), Box("q_absorbed", (heads, L))]
move += [Arrow("· latentsᵀ, softmax", short(a.scores)), mixing_box, Arrow("· latents", short(a.mixing))]
move += [Box("mixed", (heads, L)), Arrow("· w_vc", short(a.values)), last_box]
lanes = [Lane("materialize", rebuild, COLORS["materialize"]), Lane("absorb", move, COLORS["absorb"])]
flow(f"{lite.name}, all {heads} heads, one new token, {C:,} cached", lanes)


# %%
def attend_materialized(q_nope, w_kc, latents, w_vc, scale):
    keys = latents @ w_kc.swapaxes(1, 2)  # [h, t, n]
    values = latents @ w_vc  # [h, t, v]
    queries = (q_nope * scale).swapaxes(0, 1)  # [h, s, n]
    weights = softmax(queries @ keys.swapaxes(1, 2))  # [h, s, t]
    return (weights @ values).swapaxes(0, 1)  # [s, h, v]


def attend_absorbed(q_nope, w_kc, latents, w_vc, scale):
    queries = (q_nope * scale).swapaxes(0, 1)  # [h, s, n]
    weights = softmax(queries @ w_kc @ latents.T)  # [h, s, t]
    return (weights @ latents @ w_vc).swapaxes(0, 1)  # [s, h, v]


# %% [markdown]
# Compare the two functions line by line. No line of the second makes anything that has a row for every cached token,
# except for the scores and weights themselves.
#
# Both multiply the queries by the scale. The scores are bilinear, so the scale may stand on either factor, and the
# queries are the smallest thing to carry it: $S H n$ multiplications. It is $1/\sqrt{\text{nope} + \text{rope}}$ on both
# routes: absorbing changes no score, so it does not become the latent's width. Lesson 4 comes back to it.
#
# Predict, count, and hold both against a slow reference that works head by head in float64.

# %%
from ledger.reference import values as reference

cached = 128 if IN_BROWSER else 1024
w_kc = rng.standard_normal((heads, n, L), dtype=np.float32) / np.float32(L) ** 0.5
w_vc = rng.standard_normal((heads, L, v), dtype=np.float32) / np.float32(L) ** 0.5
q_nope = 4 * rng.standard_normal((1, heads, n), dtype=np.float32)  # [s, h, n]
scale = lite.qk_dim**-0.5
given = (q_nope, w_kc, latents[:cached], w_vc, scale)
exact = reference.attend_absorbed(*given)

# %%
routes = {"materialize": attend_materialized, "absorb": attend_absorbed}
formulas_of = {"materialize": content_path_materialize, "absorb": content_path_absorb}
numbers = {"predict": {}, "count": {}}
for name, route in routes.items():
    output, counts = count(route, *given)
    numbers["count"][name] = counts.macs
    numbers["predict"][name] = formulas_of[name](1, cached, heads, n, L, v).total + heads * n
    print(f"{name:12} {counts.macs:13,} counted, {numbers['predict'][name]:13,} predicted,", end=" ")
    print(f"largest error {np.abs(output - exact).max():.0e}")
assert numbers["count"] == numbers["predict"]

# %%
calls = {name: partial(route, *given) for name, route in routes.items()}
numbers["measure"] = {name: timing.low for name, timing in time_pairs(calls, seconds=0.3).items()}
bars = {kind: pair["materialize"] / pair["absorb"] for kind, pair in numbers.items()}

fig = new_figure(7.5, 2.7, alt="Whole content path, materialize over absorb: predicted, counted, measured")
ax = fig.subplots()
ax.barh(list(bars), list(bars.values()), color=[COLORS[kind] for kind in bars], height=0.6)
for place, ratio in enumerate(bars.values()):
    ax.text(ratio, place, f" {ratio:.1f}", va="center")
ax.set(xlabel="materialize ÷ absorb, one new token", title=f"{lite.name} widths, {cached:,} cached tokens")
ax.invert_yaxis()
ax.margins(x=0.12)
ax.grid(False, axis="y")
fig

# %% [markdown]
# At one new token the whole path behaves like its halves. Prediction and count agree. The time is kinder to materialize
# than the multiply-adds are, since its products are large and keep the multipliers busy, and absorb's have one row a
# head.

# %% [markdown]
# ## Where do queries and latents come from?
#
# Both have been taken for granted since lesson 1. They are made from the hidden state of a token, on two paths that do
# not touch.

# %%
from ledger.account.values import compression_macs


def compression(shape, q_lora_dim):
    sizes = (shape.latent_dim, shape.num_heads, shape.nope_dim, shape.rope_dim)
    return compression_macs(1, shape.hidden_dim, q_lora_dim, *sizes)


# %%
costs = compression(v3, v3.q_lora_dim)
hidden = Box("hidden", (v3.hidden_dim,))
query = [hidden, Arrow("· W_DQ", short(costs.down)), Box("query latent", (v3.q_lora_dim,))]
query += [Arrow("RMSNorm"), Box("normed", (v3.q_lora_dim,)), Arrow("· W_UQ", short(costs.up))]
query += [Box("q_nope | q_rope", (v3.num_heads, v3.qk_dim))]
entry = [hidden, Arrow("· W_DKV", short(costs.cache_entry)), Box("latent | k_rope", (v3.cache_dim,))]
lanes = [Lane("query, of every head", query, COLORS["absorb"])]
lanes += [Lane("cache entry, one for all heads", entry, COLORS["latent"])]
flow(f"{v3.name}, one token: multiply-adds = weights read", lanes)

# %% [markdown]
# The lower lane is the compression: $W_{DKV}$ makes a cache entry of one narrow product. Its columns are
# [latent | k_rope]. The latent gets its own RMSNorm before it is cached, the rope part its rotation. Both come in lesson
# 4; here the entry is raw.
#
# The upper lane goes down to a query latent and up again. Nobody caches a query, so what is this for?

# %%
print("weights that make the queries, one layer, in M elements")
for name in ("DeepSeek-V3", "GLM-5.2", "MiniCPM3-4B"):
    shape = model(name)
    through, straight = compression(shape, shape.q_lora_dim), compression(shape, None)
    narrow, wide = (through.down + through.up) / 1e6, straight.up / 1e6
    print(f"{name:12} through a query latent {narrow:5.1f}, straight {wide:6.1f}: {wide / narrow:.1f} ×")

# %% [markdown]
# It saves weights, which decode reads at every step. DeepSeek-V2-Lite does without: there $W_{UQ}$ starts at the hidden
# state. Where there is a query latent, its RMSNorm is also why nobody multiplies $W_{DQ}$ and $W_{UQ}$.
#
# Predict, count and measure both kinds, for one token. The norm adds two multiplications for each feature of the query
# latent.

# %%
mini = model("MiniCPM3-4B")


def random_weights(shape):
    heads_wide = shape.num_heads * shape.qk_dim
    shapes = {"w_dkv": (shape.hidden_dim, shape.cache_dim)}
    shapes["w_uq"] = (shape.q_lora_dim or shape.hidden_dim, heads_wide)
    if shape.q_lora_dim is not None:
        shapes |= {"w_dq": (shape.hidden_dim, shape.q_lora_dim), "q_norm": (shape.q_lora_dim,)}
    return {name: rng.standard_normal(s, dtype=np.float32) / 32 for name, s in shapes.items()}


def compress(hidden, weights, eps=1e-6):
    query = hidden
    if "w_dq" in weights:
        low = hidden @ weights["w_dq"]
        query = low / np.sqrt(np.mean(low**2, axis=-1, keepdims=True) + eps) * weights["q_norm"]
    return query @ weights["w_uq"], hidden @ weights["w_dkv"]


# %%
from ledger.measure import ceilings

memory = ceilings("float32", device="cpu").bandwidth
tables = {shape.name: random_weights(shape) for shape in (mini, lite)}

# %%
for shape in (mini, lite):
    table = tables[shape.name]
    state = rng.standard_normal((1, shape.hidden_dim), dtype=np.float32)
    predicted = compression(shape, shape.q_lora_dim).total + 2 * (shape.q_lora_dim or 0)  # and the norm
    _, counts = count(compress, state, table)
    assert counts.macs == predicted
    seconds = time_pairs({"compress": partial(compress, state, table)})["compress"].low
    nbytes = sum(w.nbytes for w in table.values())
    print(f"{shape.name:16} {predicted:11,} predicted {counts.macs:11,} counted")
    print(f"{'':16} {nbytes / 1e6:.1f} MB in {seconds * 1e3:.2f} ms,", end=" ")
    print(f"{nbytes / seconds / memory:.0%} of memory's ceiling")

# %% [markdown]
# One token uses each weight once. So this step reads weights and does little else, whether or not there is a query
# latent. That is why the time is told as a share of what this machine's memory can deliver. (Above 100%: some weights
# came from a cache, as lesson 0 shows.)
#
# What is left is to cut the results at the right columns: a head is [nope | rope], and the heads stand side by side. You
# write that in the first exercise. Here is what comes out of it.

# %%
from ledger.reference.values import project_mla

parts = project_mla(state, tables[lite.name], lite.num_heads, lite.nope_dim, eps=1e-6)
for name, part in zip(("q_nope", "q_rope", "latent", "k_rope"), parts, strict=True):
    print(f"{name:7} {part.shape}")

# %% [markdown]
# ## Can the cache be split?
#
# A decode step of one request gives a GPU one row for each head and a long cache. That is work for a handful of its more
# than a hundred multiprocessors, unless the cache is cut into parts. Long prompts come in chunks as well, and some
# caches lie on several GPUs. Each part can do its own attention. The trouble is the softmax: its denominator is a sum
# over *all* tokens.
#
# Here is the toy with a real softmax: the scores 1, 0, 1 of lesson 1 and a scale of $\ln 2$, so that a score of 1 counts
# twice as much as a score of 0. Cut the cache after the first token.

# %%
exponentials = np.exp(np.log(2) * np.array([1, 0, 1]))
at_once = exponentials @ toy_values / exponentials.sum()
print(f"whole cache: exponentials {exponentials}, output {at_once}")
parts = []
for name, part in [("first", slice(0, 1)), ("second", slice(1, 3))]:
    total = exponentials[part].sum()
    output = exponentials[part] @ toy_values[part] / total
    parts.append((total, output))
    print(f"{name} part: sum {total:.0f}, output {output}")
merged = sum(total * output for total, output in parts) / sum(total for total, _ in parts)
print(f"merged: 2/5 · {parts[0][1]} + 3/5 · {parts[1][1]} = {merged}")
assert np.allclose(merged, at_once)

# %% [markdown]
# Each part was divided by its own sum. Multiplying by that sum undoes it, and then everything is divided by the total.
# So beside its output a part has to hand over one number: its sum of exponentials.

# %% [markdown]
# ## Why is it a logarithm, and why the natural one?
#
# The sum itself would overflow. Real scores of 800 are possible, and $e^{800}$ is not. So its logarithm is handed over,
# the **lse**: the log of the sum of the exponentials. It is of the size of the largest score, and it can be had without
# any large exponential:
#
# $$\text{lse} = \max_t s_t + \ln \sum_t e^{\,s_t - \max s}$$
#
# Two parts then merge by
#
# $$\text{lse} = \ln\big(e^{\text{lse}_1} + e^{\text{lse}_2}\big) \qquad
# o = e^{\text{lse}_1 - \text{lse}}\, o_1 + e^{\text{lse}_2 - \text{lse}}\, o_2$$


# %%
def merge_two(one, lse_one, two, lse_two):
    lse = np.logaddexp(lse_one, lse_two)
    share_one, share_two = np.exp(lse_one - lse), np.exp(lse_two - lse)
    return share_one[..., None] * one + share_two[..., None] * two, lse


first, second = np.array([1.0, 0.0]), np.array([0.0, 1.0])
merged, lse = merge_two(first, np.log(2.0), second, np.log(3.0))
print(f"natural log: output {merged}, sum of exponentials {np.exp(lse):.2f}")
wrong, _ = merge_two(first, np.log2(2.0), second, np.log2(3.0))
print(f"base-2 lses merged as natural ones: {wrong}")

# %% [markdown]
# Any base works, if the one who writes and the one who reads agree. The scores go into $e^x$, so the natural log is the
# plain choice: vLLM and FlashMLA hand it out. GPUs compute $2^x$ faster than $e^x$, so kernels scale their scores by
# $\log_2 e$ and work in base 2 inside. FlashInfer and TileLang hand that out.
#
# The last line shows a mix-up. No shape is wrong and nothing is NaN: the weights are just off. It happened. In 2026 vLLM
# found that answers changed after a hit in the prefix cache, because base-2 lses went into a merge by $e^x$ (its pull
# request 52796). Multiply a base-2 lse by $\ln 2$ before you merge it.

# %% [markdown]
# ## What does a part without tokens do?
#
# Split into eight, a cache of five tokens has empty parts. Their sum is 0, so their lse is $-\infty$. Their output is
# 0/0: NaN, if the kernel does not mind it. Now merge.

# %%
with np.errstate(invalid="ignore"):
    nothing, nan_output = np.float64(-np.inf), np.array([np.nan, np.nan])
    leaks, _ = merge_two(first, np.log(2.0), nan_output, nothing)
    both_empty, lse = merge_two(np.zeros(2), nothing, np.zeros(2), nothing)
    difference = nothing - nothing
print(f"share of the empty part: {np.exp(nothing - np.log(2.0)):.0f}, and 0 · NaN = {0 * np.nan}")
print(f"merged: {leaks}")
print(f"both empty: lse {lse}, output {both_empty}, since −inf − (−inf) = {difference}")

# %% [markdown]
# Two leaks. A share of 0 does not remove NaN: the part must be *left out*. And where all parts are empty, the
# subtraction of two infinities makes a NaN of its own. This course wants an output of 0 and an lse of $-\infty$ there.
#
# One NaN in one head of one layer is enough: the next product spreads it over the whole hidden state. In the exercise
# `merge_partials` you close both holes.

# %% [markdown]
# ## Does it hold at a real width?
#
# Sixteen heads at DeepSeek-V3's widths attend to 4,096 tokens: a few early tokens score high, recent ones higher than
# old ones, all with noise. Cut the cache into 8 parts and look at what each part is worth to head 0.

# %%
from itertools import pairwise

H, P = 16, 8
age = C - 1 - np.arange(C)
scores = 4 * np.exp(-age / 400) + 6 * (age > C - 5) + rng.standard_normal((H, C))  # [h, t]
shares, lse_whole = reference.softmax_lse(scores)
wide = latents.astype(np.float64)
whole = shares @ wide  # [h, c], mixed latents
eighths = list(pairwise(C * part // P for part in range(P + 1)))
part_lses = np.stack([reference.softmax_lse(scores[:, start:stop])[1] for start, stop in eighths])

# %%
fig = new_figure(9.0, 3.0, alt="Scores over cached tokens in eight parts, and the share of each part")
axes = fig.subplots(1, 2, width_ratios=[1.7, 1])
colors = [COLORS["latent"], COLORS["value"]] * (P // 2)  # in turn, to tell neighbours apart
for (start, stop), color in zip(eighths, colors, strict=True):
    axes[0].plot(np.arange(start, stop, 8), scores[0, start:stop:8], ".", color=color, markersize=3)
axes[0].set(xlabel="cached token", ylabel="scaled score", title="head 0 (every eighth token)")
axes[1].bar(range(P), np.exp(part_lses[:, 0] - lse_whole[0]), color=colors)
axes[1].set(xlabel="part", ylabel="share of the attention", title="exp(lse of part − lse of all)")
axes[1].grid(False, axis="x")
fig

# %% [markdown]
# The shares add to 1. The first and the last part weigh most, and the parts in between are not nothing. A plain mean
# over the parts would give each an eighth.
#
# Now the error of a merge, against one softmax over the whole cache, from 1 to 1,024 parts. The parts' results are
# rounded to float32, as a kernel hands them over.

# %%
from ledger.reference.values import merge_partials

errors = []
for parts in (1, 4, 16, 64, 256, 1024):
    made = []
    for start, stop in pairwise(C * part // parts for part in range(parts + 1)):
        shares, lse = reference.softmax_lse(scores[:, start:stop])
        made.append(((shares @ wide[start:stop]).astype(np.float32), lse.astype(np.float32)))
    outputs, lses = (np.stack(part) for part in zip(*made, strict=True))
    merged, lse = merge_partials(outputs.astype(float), lses.astype(float))
    errors.append(np.abs(merged - whole).max() / np.abs(whole).max())
    print(f"{parts:5,} parts: largest error {errors[-1]:.1e}, lse {np.abs(lse - lse_whole).max():.1e}")
assert max(errors) < 1e-6

# %% [markdown]
# The number of parts does not matter. The merge is exact, and what is left is the rounding of the parts' results.
#
# It also does not matter in which order parts are merged, or in how many steps. So a chunked prefill may keep one
# running result and merge each chunk into it. [Lesson 6](../ch06_cache/cache.ipynb) does that.

# %%
running, running_lse = outputs[0].astype(float), lses[0].astype(float)
for output, lse in zip(outputs[1:], lses[1:], strict=True):
    running, running_lse = merge_two(running, running_lse, output, lse)
error = np.abs(running - whole).max() / np.abs(whole).max()
print(f"{len(outputs):,} parts, one after the other: largest error {error:.1e}")

# %% [markdown]
# ## What does splitting cost?
#
# Each part writes an output and an lse for every head, in float32, and the merge reads them. With absorb an output is a
# mixed latent, which is wide. Predict those bytes, a write and a read, beside the bytes of the cache itself: one new
# token of one request, all heads, one layer. (A cache in one piece merges nothing, so the count starts at two parts.)

# %%
from ledger.account.values import partials_bytes

part_counts = [2**k for k in range(1, 8)]
moved = [2 * partials_bytes(parts, v3.num_heads, L) for parts in part_counts]  # written, read
cache_bytes = {tokens: 2 * v3.cache_dim * tokens for tokens in (4096, 32768, 131072)}

# %%
fig = new_figure(7.5, 3.3, alt="Bytes of partial results over bytes of the cache, over the number of parts")
ax = fig.subplots()
for (tokens, size), color in zip(cache_bytes.items(), ("value", "rope", "latent"), strict=True):
    label = f"{tokens:,} cached tokens, {size / 1e6:.1f} MB"
    ax.plot(part_counts, [100 * part / size for part in moved], "o-", color=COLORS[color], label=label)
ax.axhline(100, color=COLORS["neutral"], linewidth=1.0, linestyle=":")
ax.set(xscale="log", yscale="log", xlabel="parts", ylabel="written and read, % of the cache")
ax.set_title(f"{v3.name}, one request, one layer")
plain_ticks(ax.yaxis)
ax.set_xticks(part_counts, part_counts)
ax.minorticks_off()
ax.legend()
fig

# %% [markdown]
# Splitting is cheap where the cache is long, and there it is needed. At the dotted line the partial results move as many
# bytes as the cache. So a scheduler chooses the number of parts by the length of the cache; chapter 7 writes that plan.
#
# (Each part could go through `w_vc` first, and hand over outputs that are narrower. But then `w_vc` would be read by
# every part. Merge first, project once: the lesson's rule again.)
#
# Now count a merge and measure it, against the attention of the parts themselves.

# %%
q = rng.standard_normal((H, L), dtype=np.float32) / np.float32(L) ** 0.5  # [h, c]


def one_part(q, latents):
    scores = q @ latents.T
    largest = scores.max(axis=-1, keepdims=True)
    shares = np.exp(scores - largest)
    total = shares.sum(axis=-1, keepdims=True)
    return shares @ latents / total, (largest + np.log(total))[:, 0]


def split_and_merge(q, latents, parts):
    output, lse = one_part(q, latents[: len(latents) // parts])
    for part in np.split(latents, parts)[1:]:
        output, lse = merge_two(output, lse, *one_part(q, part))
    return output


# %%
attention = 2 * H * len(some) * L
calls, counted = {}, {}
for parts in (1, 4, 16, 64):
    calls[parts] = partial(split_and_merge, q, some, parts)
    counted[parts] = count(split_and_merge, q, some, parts)[1].macs
    assert counted[parts] == attention + (parts - 1) * 2 * H * L
    assert np.allclose(calls[parts](), calls[1](), atol=1e-5)
for parts, timing in time_pairs(calls, seconds=0.15).items():
    merging = counted[parts] / attention - 1
    print(f"{parts:3} parts: merging adds {merging:6.2%} multiply-adds, {1e3 * timing.low:6.2f} ms in all")

# %% [markdown]
# A merge is $2 H L$ multiplications, and the attention $2 H C L$. On one core the parts run one after another, so they
# can save nothing but a trip to memory: small parts stay in the processor's cache, and small calls cost their fixed
# price. On a GPU they run side by side, and that is the gain.

# %% [markdown]
# ## Why not one merged output matrix?
#
# Lesson 2 asked it of $W_{UQ}$ and $W_{UK}$. At the other end the same question waits. Behind $W_{UV}$ comes $W_O$, and
# nothing stands between them:
#
# $$\text{hidden} = \sum_h \bar c_h\, \underbrace{W_{UV,h}\, W_{O,h}}_{M_h} \qquad M_h : L \times d_\text{hidden}$$
#
# with $\bar c_h$ for the mixed latent of head $h$. Predict it: does $M$ take more weights than its two factors, or less?

# %%
from ledger.account.values import merged_value_output_elements

one_matrix, apart = merged_value_output_elements(v3.hidden_dim, L, v, v3.num_heads)
print(f"merged: {v3.num_heads} · {L} · {v3.hidden_dim:,} = {one_matrix / 1e6:.1f} M elements a layer")
print(f"apart:  {v3.num_heads} · {v} · ({L} + {v3.hidden_dim:,}) = {apart / 1e6:.1f} M")
print(f"merged / apart = {one_matrix / apart:.2f}")
gigabytes = [2 * v3.num_mla_layers * elements / 1e9 for elements in (one_matrix, apart)]
print(f"in bf16, {v3.num_mla_layers} layers: {gigabytes[0]:.1f} GB against {gigabytes[1]:.1f} GB")

# %%
from ledger.widgets.values import merged_output_bars

merged_output_bars(MODELS)

# %% [markdown]
# No model in the list gains. The hidden state is so wide that the ratio comes close to latent over value width, which
# is 4 in DeepSeek-V3. As in lesson 2, the narrow middle *is* the compression, and multiplying it out throws it away.
#
# Count and measure it, for one token and a few heads.

# %%
few = 1 if IN_BROWSER else 4  # heads
w_uv = rng.standard_normal((few, L, v), dtype=np.float32) / np.float32(L) ** 0.5
w_o = rng.standard_normal((few, v, v3.hidden_dim), dtype=np.float32) / np.float32(v) ** 0.5
both = (w_uv @ w_o).reshape(few * L, v3.hidden_dim)
w_o = w_o.reshape(few * v, v3.hidden_dim)
mixed = rng.standard_normal((1, few, L), dtype=np.float32)  # [s, h, c]


def two_products(mixed, w_uv, w_o):
    by_head = mixed.swapaxes(0, 1) @ w_uv  # [h, s, v]
    return by_head.swapaxes(0, 1).reshape(len(mixed), -1) @ w_o


def one_merged(mixed, both):
    return mixed.reshape(len(mixed), -1) @ both


# %%
calls = {"two products": (two_products, mixed, w_uv, w_o), "merged": (one_merged, mixed, both)}
assert np.allclose(one_merged(mixed, both), two_products(mixed, w_uv, w_o), atol=1e-3)
counted = {name: count(*call)[1].macs for name, call in calls.items()}
times = time_pairs({name: partial(*call) for name, call in calls.items()}, seconds=0.3)
seconds = {name: timing.low for name, timing in times.items()}
for name, (_, _, *matrices) in calls.items():
    size = sum(w.nbytes for w in matrices)
    print(f"{name:13} {counted[name]:>11,} multiply-adds, {size / 1e6:5.1f} MB", end=" ")
    print(f"in {1e3 * seconds[name]:5.2f} ms: {size / seconds[name] / 1e9:4.1f} GB/s")
more = [costs["merged"] / costs["two products"] for costs in (counted, seconds)]
print(f"\npredicted {one_matrix / apart:.2f} ×, counted {more[0]:.2f} ×, measured {more[1]:.2f} ×")
assert counted["merged"] * apart == counted["two products"] * one_matrix

# %% [markdown]
# With one token each weight is read once, so the time follows the bytes. Where the two speeds differ, look at whether the
# smaller weights fit into a cache of the processor and the larger ones do not.

# %% [markdown]
# ## What do torch and a GPU say?
#
# torch counts the same for both routes through the values.

# %% tags=["no-browser"]
try:
    import torch
except ImportError:
    torch = None
    print("torch is not installed here. Nothing on this page needs it: the counts above are the same ones.")
if torch is not None:
    arrays = [
        torch.from_numpy(a) for a in (softmax(rng.standard_normal((1, C), dtype=np.float32)), latents, w_v)
    ]
    for route, path in formulas.items():
        _, counts = count(route, *arrays)
        assert counts.macs == path(1, C, L, v).total
        print(f"torch {route.__name__:12} {counts.macs:13,} multiply-adds")

# %% [markdown]
# Where torch finds a GPU, the same two functions run there for all heads of DeepSeek-V3: their products broadcast over
# the head axis. They run in bf16, or in fp16 on a GPU that has no bf16 of its own, as a T4.

# %% tags=["no-browser"]
from ledger.measure import fast_half

if torch is None or not torch.cuda.is_available():
    print("torch finds no GPU here, so this page has no time of one.")
else:
    half = getattr(torch, fast_half())
    print(f"{torch.cuda.get_device_name()}, {fast_half()}")
    shapes = ((C, L), (v3.num_heads, L, v))
    gpu_latents, gpu_w_vc = (torch.randn(s, device="cuda", dtype=half) for s in shapes)
    for S in (1, 16, 128, 1024):
        scores = torch.randn(v3.num_heads, S, C, device="cuda", dtype=half)
        calls = {route: partial(route, scores.softmax(-1), gpu_latents, gpu_w_vc) for route in formulas}
        slow, fast = (timing.low for timing in time_pairs(calls).values())
        macs = [path(S, C, L, v).total for path in formulas.values()]
        print(f"{S:5,} new: materialize {1e3 * slow:6.3f} ms,", end=" ")
        print(f"absorb {1e3 * fast:6.3f} ms, ratio {slow / fast:6.2f}, predicted {macs[0] / macs[1]:6.2f}")

# %% [markdown]
# ## Can you watch both routes work?
#
# The toy of lessons 1 and 3, one product at a time. Set the step to 1 and go on from there: say what comes next before
# you look. Three things to try:
#
# * Choose the latents that are two alike. Which numbers are now the same twice, above and below?
# * Choose a $W_K$ that forgets the third feature. Which cached token has lost its key, and does it still reach the
#   output?
# * Choose the given weights, and change the query. What still depends on it?

# %%
from ledger.widgets.values import ToyStepper

ToyStepper().show()

# %% [markdown]
# Whatever you choose, the scores and the outputs stay equal. In the last column the two lanes meet: the upper one came
# there through keys and values, the lower one never left the latents until the end.

# %% [markdown]
# ## What do production engines do?
#
# * **SGLang**, `models/deepseek_common/attention_forward_methods/forward_mla.py`: the attention kernel returns mixed
#   latents, and a bmm with `w_vc` follows, as it does in `models/minicpm3.py`. Where a prefix is attended to in chunks,
#   `layers/attention/merge_state.py` merges them.
# * **vLLM**, `model_executor/layers/attention/mla_attention.py`: `_v_up_proj` is the bmm with `W_UV`. A prefill with
#   cached context runs the context in chunks and merges by `merge_attn_states`, in
#   `v1/attention/ops/merge_attn_states.py`. That function takes an lse of $+\infty$ for an empty part too, since
#   FlashAttention 2 writes it so.
# * **FlashMLA** splits each request's cache over the multiprocessors, and a second kernel, `combine`, merges in base 2
#   and writes a natural log. It skips a part whose share is 0, so a NaN in there is never read. A request without tokens
#   gives output 0 and lse $+\infty$.
# * None of them multiplies $W_{UV}$ and $W_O$.
#
# **Read next:** the papers that introduced latent attention, with both ways to compute it: DeepSeek-V2
# ([arXiv 2405.04434](https://arxiv.org/abs/2405.04434), section 2.1) and DeepSeek-V3
# ([arXiv 2412.19437](https://arxiv.org/abs/2412.19437), section 2.1.1).

# %% [markdown]
# ## How to explain it
#
# *"The output of a head is a weighted sum of values, and each value is a latent times one matrix. The matrix is the same
# for all tokens, so it can wait until after the sum. Keys and values are absorbed on two sides of the softmax: the key
# matrix goes to the query, the value matrix to the mixed latent. In between, attention only ever sees latents."*
#
# And on splitting: *"Each part normalises by itself and hands over its output and the log of its sum of exponentials.
# Weigh the outputs by these sums, and you have the whole softmax. Mind empty parts, and agree on the base."*

# %% [markdown]
# ## Summary
#
# * Materialize: $C L v + S C v$. Absorb: $S C L + S L v$. The same outputs, up to rounding; at decode, mix first.
# * MLA caches nothing for values: the latent serves as key and as value.
# * For all heads the value matrices are a bmm. Heads are apart up to $W_{UV}$, and added by $W_O$.
# * Queries come through a latent of their own in larger models, which saves weights. Only a norm stands between.
# * Parts merge by their lse: natural log, an empty part left out, all empty gives 0 and $-\infty$.
# * $W_{UV} W_O$ merged offline costs a DeepSeek-V3 layer 3.73 times the weights.

# %% [markdown]
# ## Exercises to do next
#
# 1. [project_mla](../../practice/ch03_values/values.ipynb#cell-id=project_mla-statement): from a hidden state to queries
#    and a cache entry.
# 2. [materialize_values](../../practice/ch03_values/values.ipynb#cell-id=materialize_values-statement): build the values.
# 3. [mix_then_project](../../practice/ch03_values/values.ipynb#cell-id=mix_then_project-statement): do without them. The
#    judge counts.
# 4. [absorb_values_heads](../../practice/ch03_values/values.ipynb#cell-id=absorb_values_heads-statement): all heads.
# 5. [attend_absorbed](../../practice/ch03_values/values.ipynb#cell-id=attend_absorbed-statement): the whole content path.
# 6. [merge_partials](../../practice/ch03_values/values.ipynb#cell-id=merge_partials-statement): put a split cache
#    together again, empty parts and all.
# 7. [merged_output_ratio](../../practice/ch03_values/values.ipynb#cell-id=merged_output_ratio-statement): what merging
#    would cost another model.
#
# ```
# python judge.py 3
# ```
#
# Then go on to [lesson 4](../ch04_rope/rope.ipynb): the part of the score that will not be absorbed.
