# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 1 Keys: one score, two routes
#
# Latent attention does not cache keys. It caches one short vector a token, the *latent*, from which every head can
# rebuild its key with a matrix of its own. At every step a new token has to be scored against all cached ones.
#
# **The question:** do you have to rebuild the keys before you can score them?

# %% [markdown]
# ## Can you skip this lesson?
#
# Answer these four. If all four answers match, go to the exercises at the end.
#
# 1. In the attention of one layer, what distinguishes a decode step from a prefill step?
# 2. A latent is 512 wide and a key's content part is 128 wide. How wide is a query after absorbing, and why may it
#    then meet the latent directly?
# 3. One head scores 1 new token against 4,096 cached ones. How many multiply-adds does each route take?
# 4. Which route's projection work grows with the cache?
#
# <details><summary>Answers</summary>
#
# 1. One number, the number of new tokens: 1 or a few in decode, many in prefill. The products are the same.
# 2. 512. It has been multiplied by the matrix that the latents would have been multiplied by, so it stands in their
#    space now.
# 3. Rebuilding: 4,096·512·128 + 1·4,096·128 = 268,959,744. Absorbing: 1·128·512 + 1·512·4,096 = 2,162,688.
# 4. The one that rebuilds. Absorbing projects the new queries only.
#
# </details>
#
# (The next cell keeps NumPy's products to one core, so that the times on this page repeat.)

# %%
import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")

# %% [markdown]
# ## Are prefill and decode two computations?
#
# Schedulers, dashboards and papers keep two names. The products of attention know only one case: some new tokens are
# scored against some cached ones. Call their numbers $S$ (new) and $C$ (cached).

# %%
from ledger.models import model
from ledger.widgets.base import COLORS
from ledger.widgets.flow import Arrow, Box, Lane, flow

v3 = model("DeepSeek-V3")
L, n, C = v3.latent_dim, v3.nope_dim, 4096
lanes = []
for name, S in [("decode", 1), ("prefill", 512)]:
    items = [Box("queries", (S, n)), Arrow(f"· {C:,} keys"), Box("scores", (S, C)), Arrow("softmax")]
    items += [Box("weights", (S, C)), Arrow(f"· {C:,} values"), Box("output", (S, v3.value_dim))]
    lanes.append(Lane(f"{name}: S = {S}", items))
flow("Decode and prefill: only S differs", lanes)

# %% [markdown]
# Follow the two lanes from box to box. The operations are the same, and only the first number of each shape differs.
#
# So there is one cost to study, as a function of $S$. This lesson looks at its first half, the way to the scores.
#
# (One simplification: $S$ and $C$ are treated as independent. In a prefill the new tokens are also keys, and half of
# those scores are masked. Chapter 5 puts that in.)

# %% [markdown]
# ## What does the cache hold?
#
# For each token and layer, latent attention keeps one entry, shared by all heads:
#
# $$[\ \underbrace{c}_{\text{latent}}\ |\ \underbrace{k_\text{rope}}_{\text{position}}\ ]$$
#
# The latent holds what the token says. All heads' keys and values are made from it. The short second part holds where
# the token stands. It is stored ready to use and takes no part in this lesson: chapter 4 is about it.
#
# Engines store the latent after its RMSNorm, and the rope part after its rotation. The norm never touches the rope part.
# (The Hugging Face reference caches the expanded keys and values instead.)
#
# For the same heads and widths there are three older choices. MHA caches a key and a value for every head, GQA for
# groups of heads, MQA for one head in all.

# %%
from ledger.account.attention import family

schemes = family(v3, kv_groups=8)
print(f"{v3.name}: entry = {v3.latent_dim} latent + {v3.rope_dim} rope = {v3.cache_dim} values\n")
print("       values a token    bytes    distinct    multiply-adds for     FLOP a")
print("         and layer      in bf16     keys      one cached token    cached byte")
for s in schemes:
    cached = f"{s.cache_values:12,} {s.cache_bytes:12,} {s.distinct_keys:10,}"
    print(f"{s.name:5} {cached} {s.decode_macs():17,} {s.intensity:18.1f}")

# %%
from ledger.widgets.base import new_figure, plain_ticks

fig = new_figure(7.5, 2.7, alt="Values cached for a token and layer by MHA, GQA, MQA and MLA")
ax = fig.subplots()
for place, s in enumerate(reversed(schemes)):
    color = COLORS["latent" if s.name == "MLA" else "neutral"]
    ax.plot([s.cache_values], [place], "o", color=color, markersize=9)
    times = schemes[0].cache_values / s.cache_values
    text = f"{s.cache_values:,} values" + (f", {times:.0f} × less than MHA" if times > 1 else "")
    ax.text(s.cache_values * 1.15, place, text, va="center", fontsize=9.5)
ax.set_yticks(range(4), [s.name for s in reversed(schemes)], fontsize=10.5)
ax.set(xscale="log", xlim=(100, 600_000), ylim=(-0.6, 3.6), xlabel="values cached for a token and layer")
ax.grid(False, axis="y")
plain_ticks(ax.xaxis)
fig

# %% [markdown]
# Hold the picture against the third column of the table. MQA caches even less than MLA, but then all query heads share
# one key. MLA caches little and still shows each head a key of its own, since each head has its own matrix. (It is its
# own in its content part. The rope part is one for all heads, and all content keys are made of the same latent.)
#
# The last two columns show the price, for MLA on the absorbed route that you are about to build: more multiply-adds
# than MHA, on far fewer bytes.
#
# MHA's decode waits for its bytes: its FLOP a byte lie far below the ridge of every GPU in lesson 0. So MLA trades bytes
# that it would wait for against arithmetic that would have stood idle. Lesson 2 looks at where that ends.
#
# The trade is good only if the keys that were not cached are not rebuilt in memory at every step either. Hence the
# question at the top.

# %% [markdown]
# ## Can you do it by hand?
#
# Take one head with a latent of width 3 and keys of width 2, three cached tokens and one new query. Do it on paper
# before you run the cell: first the three keys $k_t = c_t W_K$, then the three scores $q \cdot k_t$.

# %%
import numpy as np

q_nope = np.array([[1, 0]])  # [s, n]
w_k = np.array([[1, 0], [0, 2], [1, 1]])  # [c, n]
latents = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]])  # [t, c]

keys = latents @ w_k  # [t, n]
for t, key in enumerate(keys):
    print(f"k{t} = {latents[t]} · W_K = {key}     score = {q_nope[0]} · {key} = {q_nope[0] @ key}")

# %% [markdown]
# The latents are the rows of the identity, so the keys are the rows of $W_K$. The scores are 1, 0, 1.
#
# Now take the other route. Bring the matrix to the query, once, and leave the latents as they are.

# %%
q_absorbed = q_nope @ w_k.T  # [s, c]
print(f"q_absorbed = {q_nope[0]} · W_Kᵀ = {q_absorbed[0]}")
for t, latent in enumerate(latents):
    print(f"c{t}: score = {q_absorbed[0]} · {latent} = {q_absorbed[0] @ latent}")
assert np.array_equal(q_nope @ keys.T, q_absorbed @ latents.T)

# %% [markdown]
# The scores are 1, 0, 1 again, and no key was built. The query has grown from width 2 to width 3, the width of a
# latent, and this is why the two can meet.

# %% [markdown]
# ## Why are they the same?
#
# Both are one product of three factors with the brackets set in two ways:
#
# $$q\,(c\,W_K)^\top = q\,W_K^\top c^\top = (q\,W_K^\top)\,c^\top$$
#
# Setting them to the right is called **materialize**, because the keys come into being. Setting them to the left is
# called **absorb**, because the query takes the matrix in.

# %%
from ledger.account.attention import key_path_absorb, key_path_materialize
from ledger.widgets.keys import short

S = 1
m, a = key_path_materialize(S, C, L, n), key_path_absorb(S, C, L, n)
first, second = f"{short(m.projection)} multiply-adds", f"{short(a.projection)} multiply-adds"
rebuild = [Box("latents", (C, L), COLORS["latent"]), Arrow(f"· W_K ({L} × {n})", first)]
rebuild += [Box("keys", (C, n)), Arrow("q_nope · keysᵀ", short(m.scores)), Box("scores", (S, C))]
move = [Box("q_nope", (S, n)), Arrow(f"· W_Kᵀ ({n} × {L})", second)]
move += [Box("q_absorbed", (S, L)), Arrow("· latentsᵀ", short(a.scores)), Box("scores", (S, C))]
lanes = [Lane("materialize", rebuild, COLORS["materialize"]), Lane("absorb", move, COLORS["absorb"])]
flow(f"{v3.name}, one head, {S} new token, {C:,} cached", lanes)

# %% [markdown]
# Compare the first arrows. The matrix is the same, and so is the work for each row that meets it. But the upper lane
# sends every cached token through it and the lower lane only the new one.
#
# Compare the second arrows. Here the lower lane pays: its dot products are as wide as the latent, and not as narrow as
# a key.

# %% [markdown]
# ## Are they still the same at a real model's width?
#
# In real numbers the two are equal. In floating point, every bracket rounds somewhere else. Take random values at
# DeepSeek-V3's widths and compare both with the same product in float64.

# %%
rng = np.random.default_rng(1)
S = 16
q_nope = rng.standard_normal((S, n), dtype=np.float32)  # [s, n]
w_k = rng.standard_normal((L, n), dtype=np.float32) / np.float32(L) ** 0.5  # [c, n]
latents = rng.standard_normal((C, L), dtype=np.float32)  # [t, c]


def materialize(q_nope, w_k, latents):
    return q_nope @ (latents @ w_k).T


def absorb(q_nope, w_k, latents):
    return (q_nope @ w_k.T) @ latents.T


# %%
exact = materialize(*(a.astype(np.float64) for a in (q_nope, w_k, latents)))
size = np.abs(exact).mean()
errors = {route.__name__: (route(q_nope, w_k, latents) - exact) / size for route in (materialize, absorb)}
for name, error in errors.items():
    largest, typical = np.abs(error).max(), np.abs(error).mean()
    print(f"{name:12} largest error {largest:.1e} of a mean score, typical {typical:.1e}")
same = np.mean(errors["materialize"] == errors["absorb"])
print(f"float32 keeps steps of {np.finfo(np.float32).eps:.1e}")
print(f"the same bit for bit: {same:.0%} of {S * C:,} scores")
assert max(np.abs(error).max() for error in errors.values()) < 1e-5

# %%
fig = new_figure(7.5, 2.9, alt="Rounding errors of both routes in float32, in millionths of a mean score")
ax = fig.subplots()
reach = 1e6 * max(np.abs(error).max() for error in errors.values())
edges = np.linspace(-reach, reach, 121)
for name, error in errors.items():
    ax.hist(1e6 * error.ravel(), edges, histtype="step", color=COLORS[name], linewidth=1.8, label=name)
ax.set(xlabel="error in millionths of a mean score", ylabel="scores", title="Two routes, two roundings")
ax.legend()
fig

# %% [markdown]
# The two hills are centred on zero and equally wide: neither route is biased, neither is more exact. Yet score by score
# they differ. One adds up 512 products and then 128, the other 128 and then 512, with other numbers in between.
#
# So "the same" means: equal up to rounding. Compare the two with a tolerance, never with `==`.
#
# In bf16 the steps are coarser, and what lies between the products, the keys or the absorbed query, is rounded to 16
# bits too. The two errors need not be equally large then.

# %% [markdown]
# ## What do you predict?
#
# Apply the one rule, rows · inner · cols, to each of the four products:
#
# | route | projection | scores |
# |---|---|---|
# | materialize | $C \cdot L \cdot n$ | $S \cdot n \cdot C$ |
# | absorb | $S \cdot n \cdot L$ | $S \cdot L \cdot C$ |
#
# These are the scores of the content part. The rope part adds $S \cdot r \cdot C$ multiply-adds on either route, with
# $r$ for its width. That is the same number twice, so it moves no crossing. It is added to the score before the scale
# and the softmax.
#
# Before you go on: which entry of this table does not contain $S$, and what does that mean when $S$ is 1?

# %%
for name, S in [("decode", 1), ("prefill", 1024)]:
    for route, path in [("materialize", key_path_materialize), ("absorb", key_path_absorb)]:
        p = path(S, C, L, n)
        print(f"{name:8} {route:12} {p.projection:13,} + {p.scores:13,} = {p.total:13,}")
    print(f"{name:8} {'keys cached':12} {0:13,} + {S * n * C:13,} = {S * n * C:13,}\n")

# %% [markdown]
# Rebuilding the keys costs the same whether one token or a thousand will look at them. At one token it is almost all of
# the work. At a thousand it is shared by a thousand, and the narrow dot products win.
#
# The winner changes, so there is no cheaper route. There is a cheaper route *for a given $S$*.
#
# The third lines are those of MHA, GQA and MQA. They have their keys in the cache and pay the second product only. What
# they pay instead is in the table of bytes above.

# %% [markdown]
# ## Does the code do what you predicted?
#
# Run both functions once more, with the counter watching: the two lines of NumPy from above, without an edit.

# %%
from ledger.account.attention import key_path_bytes_absorb, key_path_bytes_materialize
from ledger.count import count

formulas = {materialize: (key_path_materialize, key_path_bytes_materialize)}
formulas[absorb] = (key_path_absorb, key_path_bytes_absorb)
counted = {}
for S in (1, 1024):
    q = rng.standard_normal((S, n), dtype=np.float32)
    for route, (macs, moved) in formulas.items():
        _, counts = count(route, q, w_k, latents)
        traffic = moved(S, C, L, n, itemsize=4)
        assert counts.macs == macs(S, C, L, n).total
        assert (counts.bytes_read, counts.bytes_written) == (traffic.read, traffic.written)
        counted[route.__name__, S] = counts

# %%
print("                            multiply-adds          bytes   largest array made")
for (name, S), counts in counted.items():
    total = counts.bytes_read + counts.bytes_written
    print(f"{S:5,} new  {name:12} {counts.macs:18,} {total:14,}   {counts.largest_shape}")

long = 131072
all_keys = 2 * long * v3.num_heads * n / 1e9
print(f"\ncontent keys of all {v3.num_heads} heads, {long:,} tokens, one layer: {all_keys:.1f} GB in bf16")

# %% [markdown]
# No `assert` stopped the page: multiply-adds and bytes are predicted to the last one.
#
# The last column tells what lies in memory between the products. At one new token, the largest array that materialize
# makes is the keys. Absorb makes nothing of that size. For one head this is a detail. The line at the bottom says what
# it is for all heads of a layer and a long context, for a single request.
#
# At 1,024 new tokens the largest array is the scores, on both routes. The bytes are equal by chance: here
# $S \cdot L$ happens to be $C \cdot n$.
#
# Read these bytes as NumPy's. It writes the scores out. A fused attention kernel never does, and a serving engine
# rebuilds keys in pieces (chapter 7).

# %% [markdown]
# torch has a counter of its own here, at the place where each operation is dispatched. The numbers must not depend on
# the library.

# %% tags=["no-browser"]
try:
    import torch
except ImportError:
    torch = None
    print("torch is not installed here. Nothing below needs it: the counts above are the same ones.")
if torch is not None:
    q = rng.standard_normal((1, n), dtype=np.float32)
    for route in (materialize, absorb):
        scores, counts = count(route, *(torch.from_numpy(a) for a in (q, w_k, latents)))
        assert counts.macs == counted[route.__name__, 1].macs
        print(f"torch {route.__name__:12} {counts.macs:13,} multiply-adds, scores {tuple(scores.shape)}")

# %% [markdown]
# ## How long does it take here?
#
# Measure both routes from one new token to a thousand (to 64 in a browser, whose NumPy is slow). They run in turn,
# A B A B, so that a machine which slows down slows both. The lower quartile is kept, which is what the machine does
# while nothing else wants its core.
#
# Beside it stands a bound: the least time that the predictions and this machine's ceilings allow, if every byte comes
# from memory.

# %%
from functools import partial

from ledger.browser import IN_BROWSER
from ledger.measure import ceilings, time_pairs

ceiling = ceilings("float32", device="cpu")
new_tokens = [1, 8, 64] if IN_BROWSER else [1, 4, 16, 64, 256, 1024]  # no BLAS in a browser
measured = {"materialize": [], "absorb": []}
for S in new_tokens:
    q = rng.standard_normal((S, n), dtype=np.float32)
    calls = {route.__name__: partial(route, q, w_k, latents) for route in formulas}
    for name, timing in time_pairs(calls, seconds=0.15).items():
        measured[name].append(timing.low)


# %%
def bound(path, moved, S):
    by_flops = 2 * path(S, C, L, n).total / ceiling.flops
    by_bytes = moved(S, C, L, n, itemsize=4).total / ceiling.bandwidth
    return max(by_flops, by_bytes)


predicted = {r.__name__: [path(S, C, L, n).total for S in new_tokens] for r, (path, _) in formulas.items()}
bounds = {r.__name__: [bound(*f, S) for S in new_tokens] for r, f in formulas.items()}
print("            multiply-adds           measured                measured over the bound")
print("   S    materialize / absorb   materialize / absorb        materialize   absorb")
for i, S in enumerate(new_tokens):
    m, a = (measured[name][i] for name in ("materialize", "absorb"))
    macs = predicted["materialize"][i] / predicted["absorb"][i]
    over = m / bounds["materialize"][i], a / bounds["absorb"][i]
    print(f"{S:5,} {macs:20.2f} {m / a:22.2f} {over[0]:22.1f} {over[1]:11.1f}")
print(f"\nthe latents: {latents.nbytes / 1e6:.1f} MB")

# %%
fig = new_figure(9, 3.8, alt="Multiply-adds and measured times of both routes over new tokens, log-log")
left, right = fig.subplots(1, 2)
for name in ("materialize", "absorb"):
    left.plot(new_tokens, predicted[name], "o-", color=COLORS[name], label=name)
    right.plot(new_tokens, [1e3 * t for t in measured[name]], "D-", color=COLORS[name], label=name)
    least = [1e3 * t for t in bounds[name]]
    right.plot(new_tokens, least, ":", color=COLORS[name], label=f"{name}, bound from memory")
left.set(title="predicted: multiply-adds", xlabel="new tokens")
right.set(title="measured: ms", xlabel="new tokens")
for ax in (left, right):
    ax.set(xscale="log", yscale="log")
    ax.legend()
    plain_ticks(ax.xaxis)
fig

# %% [markdown]
# The two pictures have the same shape: one line nearly flat, one rising, and a crossing where the multiply-adds
# promised one (in a browser the lines end before it). The formula got the story right. (Lines that zigzag on the right
# mean that something else is using the machine: run the cells again.)
#
# It did not get the ratio right. Compare the first row of the table: at one new token the multiply-adds differ by a
# factor above a hundred, the times by less. The dotted lines show why. Absorb's few multiply-adds are bandwidth-bound:
# all latents have to come in, to be used once each, and no formula of multiply-adds sees that. Materialize brings in
# the same latents and uses each of them 128 times.
#
# That is one head alone. In a model all heads use a latent that has come in, so the work for a byte grows with the
# heads. This is how MLA comes to the last column of the first table, and it is the subject of lesson 2.
#
# The rest stands in the two last columns. Well above 1, the reasons are ordinary: a product with a handful of rows does
# not keep the multipliers busy, the expanded keys are written and read again, each call has a fixed price.
#
# Below 1, the bytes did not come from memory. The latents are used again by each call, and a few megabytes may stay in
# the processor's last cache, which is faster. (Or the machine was busy while its ceilings were taken.)

# %% [markdown]
# ## Where do the two routes cross?
#
# The routes cost the same where their totals meet. Solved for $S$:
#
# $$C L n + S C n = S L n + S C L \quad\Longrightarrow\quad S^* = \frac{C\,L\,n}{L\,n + C\,(L - n)}$$

# %%
from ledger.widgets.keys import key_crossover

for cached in (512, 4096, 32768, 262144):
    print(f"{cached:8,} cached: equal at {key_crossover(cached, L, n):6.2f} new tokens")
print(f"    limit: L·n / (L − n) = {L * n / (L - n):.2f}")

below = int(key_crossover(C, L, n))
assert key_path_absorb(below, C, L, n).total < key_path_materialize(below, C, L, n).total
assert key_path_materialize(below + 1, C, L, n).total < key_path_absorb(below + 1, C, L, n).total
print(f"\nat {C:,} cached, absorb is cheaper up to {below} new tokens and materialize from {below + 1} on")

# %% [markdown]
# From 4,096 cached tokens on the cache hardly matters: the crossing moves by a few tokens. What it depends on is two
# widths of the model.
#
# This is the crossing of the keys alone. Values have a matrix of their own and may be absorbed too. Where does the whole
# attention cross, in a long context?

# %%
print("limit of the crossing     keys alone    keys and values")
for name in ("DeepSeek-V3", "GLM-5.2"):
    shape = model(name)
    latent, nope, value = shape.latent_dim, shape.nope_dim, shape.value_dim
    keys_alone = latent * nope / (latent - nope)
    whole = latent * (nope + value) / (2 * latent - nope - value)
    print(f"{name:11} n {nope}, v {value} {keys_alone:14.1f} {whole:18.1f}")

# %% [markdown]
# The second limit is $L(n+v)\,/\,(2L-n-v)$, with $v$ for the width of a value. At DeepSeek-V3 values and keys have the
# same width, so the whole attention crosses at the same place. Other models do not.
#
# The times cross at another place than the multiply-adds. That, and the derivation of the second limit, belong to
# chapter 5.

# %% [markdown]
# ## What does another model do?
#
# Choose a model and move the sliders. Watch the diamond while you change the cache, then while you change the model.
# The bars show where the work of the chosen point goes.

# %%
from ledger.widgets.keys import KeysExplorer

KeysExplorer().show()

# %% [markdown]
# Two things to try. Set 1 new token and pull the cache up: the left bar grows with it, and its projection never leaves
# it. Then look for a model whose diamond stands far to the right, and find in its title the width that does it.

# %% [markdown]
# ## What do production engines do?
#
# For most models they ship both routes and pick one for each step.
#
# * **vLLM**, `model_executor/layers/attention/mla_attention.py`: `forward_mha` materializes and `forward_mqa` absorbs.
#   The names say what the attention looks like afterwards: many heads with keys of their own, or many query heads on
#   one shared latent. What picks one is the scheduler's label, prefill or decode. How many new tokens still count as
#   decode depends on the attention backend: at the time of writing 1 by default, 128 with FlashMLA, 512 with
#   FlashAttention 3.
# * **SGLang**, `models/deepseek_common/attention_forward_methods/forward_mla.py`: the query's content part meets `w_kc`
#   in a bmm and then the latent cache. `attention_backend_handler.py` beside that folder picks the route. With
#   FlashAttention 3, FlashInfer or FlashMLA a prefill materializes, with keys rebuilt in chunks where they are many,
#   when its batch has no cached prefix at all or one of 8,192 tokens and more. In between it absorbs.
#   `models/minicpm3.py` has the absorbed route only.
#
# Neither looks up the crossing that you just computed. They use labels and thresholds, which also stand for what the
# formula leaves out: kernels, memory for the rebuilt keys, the shape of a batch.

# %% [markdown]
# ## How to explain it
#
# *"A score is query times matrix times latent. You may start at either end. Starting at the latent rebuilds a key for
# every cached token, starting at the query transforms the new tokens only. The price is a dot product as wide as the
# latent. With one new token the saving dwarfs the price, with a thousand the price dwarfs the saving."*

# %% [markdown]
# ## Summary
#
# * Prefill and decode are one computation with another number of new tokens.
# * The cache holds [latent | k_rope]. It is much smaller than MHA's cache, and each head still sees keys of its own.
# * Materialize: $C L n + S C n$. Absorb: $S n L + S L C$. The same scores, up to rounding.
# * The counter confirmed both to the last multiply-add and byte. The clock confirmed their shape, not their ratio.
# * The crossing is set by the model's widths, and hardly by the length of the cache.

# %% [markdown]
# ## Exercises to do next
#
# 1. [up_project_keys](../../practice/ch01_keys/keys.ipynb#cell-id=up_project_keys-statement): rebuild the keys.
# 2. [absorb_query](../../practice/ch01_keys/keys.ipynb#cell-id=absorb_query-statement): take the matrix to the query.
# 3. [scores_absorbed](../../practice/ch01_keys/keys.ipynb#cell-id=scores_absorbed-statement): score without building a key. The judge
#    counts.
# 4. [key_path_macs](../../practice/ch01_keys/keys.ipynb#cell-id=key_path_macs-statement): predict both routes.
#
# ```
# python judge.py 1
# ```
#
# Then go on to [lesson 2](../ch02_heads/heads.ipynb): one head was easy, and a model has many.
