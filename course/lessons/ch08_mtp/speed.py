# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 8 Multi-token prediction: what it gains
#
# [The first part](drafts.ipynb) built the module that drafts, and showed that verifying its drafts changes nothing in
# what the model says. This part asks what it changes in time.
#
# **The question:** at which loads do drafts make a server faster, at which slower, and how many of them are right?

# %% [markdown]
# ## Can you skip this lesson?
#
# Answer these six. If you get them right, go to the exercises at the end.
#
# 1. Three drafts are accepted with probabilities 0.9, 0.8 and 0.5, each given that those before it were. How many tokens
#    does a step add on average?
# 2. The experts are spread over many GPUs, and each request brings two tokens to a step in place of one. Which costs
#    stay, and which double?
# 3. A GPU serves 64 requests. Why does the same draft gain more at 16K tokens each than at 4K, by a plain account?
# 4. One draft makes a step twice as long. How often must it be right to pay?
# 5. MHA caches 71 times as much as MLA does. Whose attention suffers more from a second row for each request?
# 6. A simple account says 1.8 times as fast, and a service measured 1.6. Name two costs that such an account leaves out.
#
# <details><summary>Answers</summary>
#
# 1. $1 + 0.9 + 0.9\cdot 0.8 + 0.9\cdot 0.8\cdot 0.5 = 2.98$.
# 2. What is read for a request or for all of them stays: weights, and the latents in the cache. What is done for a token
#    doubles: attention's and the experts' arithmetic, and above all the way to eight experts and back.
# 3. Long caches take most of a step to read, and both tokens of a request share that reading. The part that doubles is
#    the smaller one.
# 4. Always. $1 + p$ tokens in twice the time break even at $p = 1$.
# 5. MLA's. It does so much arithmetic on each byte that it waits for arithmetic already; MHA waits for its bytes, and
#    a second row on them is free.
# 6. Kernels that reach less than a datasheet's arithmetic, so that rows cost more; the drafter's own projection and LM
#    head. (Fixed time of each step is left out too, but makes the gain *higher*.)
#
# </details>
#
# (The next cell keeps NumPy's products to one core, so that the times on this page repeat.)

# %%
import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")

# %% [markdown]
# ## How many tokens does a step add?
#
# Take two drafts that you can follow by hand. The first is accepted with $p_1 = 0.8$. The second, *where the first was*,
# with $p_2 = 0.5$. Each step ends with one token of the model's own, after the last accepted draft. Three things can
# happen:

# %%
p1, p2 = 0.8, 0.5
outcomes = {"first wrong": (1 - p1, 1), "second wrong": (p1 * (1 - p2), 2), "both right": (p1 * p2, 3)}
for name, (chance, tokens) in outcomes.items():
    print(f"{name:13} with probability {chance:.1f}: {tokens} token{'s' * (tokens > 1)}")
print("on average", sum(chance * tokens for chance, tokens in outcomes.values()))

# %% [markdown]
# The same number is shorter as a sum over drafts. Draft $i$ adds a token where it and all before it are accepted:
#
# $$1 + p_1 + p_1p_2 + p_1p_2p_3 + \ldots$$
#
# DeepSeek-V3's report measured 85 to 90 % for its one draft; later ones are right less often. This page assumes 0.85, 0.75
# and 0.65, and 0.55 for the fourth draft of its explorers.

# %%
from ledger.account.mtp import expected_advance
from ledger.widgets.base import COLORS, new_figure, plain_ticks

acceptance = [0.85, 0.75, 0.65]
fig = new_figure(7.6, 3.1, alt="Expected tokens of a step by drafts, for several acceptances")
ax = fig.subplots()
lines = {"0.95 each": ([0.95] * 6, "latent"), "0.85 each": ([0.85] * 6, "absorb")}
lines |= {"0.85, 0.75, 0.65": (acceptance, "predict"), "0.6 each": ([0.6] * 6, "materialize")}
for name, (chances, color) in lines.items():
    tokens = [expected_advance(chances[:k]) for k in range(len(chances) + 1)]
    ax.plot(range(len(tokens)), tokens, "o-", color=COLORS[color])
    ax.text(len(tokens) - 0.9, tokens[-1], f"{name}: {tokens[-1]:.2f}", va="center", color=COLORS[color])
ax.set(xlabel="drafts", ylabel="expected tokens of a step", xlim=(-0.2, 8), ylim=(0.8, 6.3))
ax.set_xticks(range(7))
fig

# %% [markdown]
# The curves bend: every further draft adds less than the one before it. Its cost does not shrink. So there is a best
# number of drafts, and it may be 0.

# %% [markdown]
# ## What is paid once, and what for each token?
#
# Follow one layer on one GPU of a large deployment. Attention and the shared expert are on every GPU, the routed experts
# are dealt out, and this GPU serves `requests` of its own. A step with $k$ drafts has $k + 1$ tokens for each of them.

# %%
from ledger.account.experts import token_bytes
from ledger.models import model
from ledger.setups import ROUNDED
from ledger.widgets.flow import Arrow, Box, Lane, flow

R, sent = ROUNDED, token_bytes(model("DeepSeek-V3").hidden_dim)
away, back = (f"{R.experts_per_token} · {size:,} bytes" for size in sent)
once = [Box("weights of attention", f"{R.attention_bytes / 1e6:.0f} MB")]
once += [Box("+  the latents", f"requests · cached · {R.cache_bytes_per_token:,} bytes")]
once += [Box("+  local experts", f"{R.local_experts} · {R.expert_bytes / 1e6:.0f} MB")]
each = [Box("attention", f"{R.pair_flops:,} FLOP a cached token"), Arrow("to experts", away)]
each += [Box("experts", f"{R.active_experts} · {R.expert_flops / 1e6:.0f} MFLOP"), Arrow("back", back)]
lanes = [Lane("read once, however many tokens verify", once, COLORS["latent"])]
lanes += [Lane("paid for each token", [*each, Box("next layer")], COLORS["materialize"])]
flow("One layer of a verifying step", lanes)

# %% [markdown]
# With $n$ requests of $C$ cached tokens and $T = n\,(k+1)$ tokens, the account of a layer has three parts:
#
# $$\text{attention} = \max\!\left(\frac{187\text{e}6 + n\,C\cdot 1152}{\text{bandwidth}},\
# \frac{T\,C \cdot 278528}{\text{bf16}}\right) \qquad
# \text{experts} = \max\!\left(\frac{3\cdot 44\text{e}6}{\text{bandwidth}},\ \frac{T\cdot 9 \cdot 88\text{e}6}{\text{fp8}}\right)$$
#
# $$\text{layer} = \max\left(\text{attention} + \text{experts},\ \ T\cdot 8\cdot 21728\,/\,\text{network}\right)$$
#
# The second supposes balanced loads: as many copies of tokens come from other GPUs as leave, so this one computes as much
# as its own $T$ tokens need. The last line supposes that the way to the experts and back, the **all-to-all**, is hidden
# behind the rest, or the rest behind it. (Chapter 9 shows how two half batches do that, and where the bytes of a token come
# from.) "Read once" is from the GPU's memory; what a kernel's programs load is counted further down. A whole step is 61
# such layers (taken as alike; the first three have no experts), and for each draft one more, the drafter, with a single
# token of each request.

# %% [markdown]
# ## Where do 187e6, 44e6, 88e6 and 3 come from?
#
# From the model's shapes. Weights are FP8, a byte each, and a weight takes part in one multiply-add, two FLOP, for each
# token.

# %%
from ledger.account.experts import attention_params, expert_params
from ledger.account.mtp import pair_flops, setup_for

v3 = model("DeepSeek-V3")
queries, values = v3.num_heads * v3.qk_dim, v3.num_heads * v3.value_dim
sides = [(v3.hidden_dim, v3.q_lora_dim), (v3.q_lora_dim, queries), (v3.hidden_dim, v3.cache_dim)]
sides += [(v3.latent_dim, v3.num_heads * v3.nope_dim + values), (values, v3.hidden_dim)]
print("attention:", " + ".join(f"{a:,}·{b:,}" for a, b in sides))
assert sum(a * b for a, b in sides) == attention_params(v3)
print(f"   = {attention_params(v3):,} weights, {ROUNDED.attention_bytes:,.0f} in round numbers")
print(f"an expert: 3·{v3.hidden_dim:,}·{v3.expert_dim:,} = {expert_params(v3):,} weights, ", end="")
print(f"{ROUNDED.expert_bytes:,.0f} in round numbers; twice that in FLOP: {ROUNDED.expert_flops:,.0f}")
print(f"a pair: 2·{v3.num_heads}·({v3.cache_dim} + {v3.latent_dim}) = {pair_flops(v3):,} FLOP")

# %%
for ranks, copies in ((128, 0), (144, 32)):
    routed, shared = (
        setup_for(v3, ranks, copies).local_experts - v3.num_shared_experts,
        v3.num_shared_experts,
    )
    print(f"{ranks} GPUs, {copies} experts held twice: {routed} routed + {shared} shared on each")
exact = setup_for(v3, num_ranks=128)

# %% [markdown]
# DeepSeek's own decoding units were of the second kind, with copies of the experts that are asked for most.

# %% [markdown]
# ## What do you predict?
#
# An H100, 16 or 64 requests on each GPU, 4,096 or 16,384 tokens in each cache. Which of the four loads gains most from
# one draft, and does one of them lose? Predict before you look.

# %%
from ledger.account.mtp import mtp_speedup, step_seconds
from ledger.machines import machine

h100, h200, loads = machine("H100"), machine("H200"), [(4096, 16), (4096, 64), (16384, 16), (16384, 64)]
print("                        from round numbers                          from exact shapes")
print("cached  requests     tok/s   1 draft        2        3         tok/s   1 draft        2        3")
for cached, requests in loads:
    print(f"{cached:6,} {requests:9}", end="")
    for setup in (ROUNDED, exact):
        print(f"{requests / step_seconds(requests, 0, cached, h100, setup):10.0f}", end="  ")
        gains = (mtp_speedup(requests, k, cached, acceptance, h100, setup) for k in (1, 2, 3))
        print("".join(f"{gain:7.2f} ×" for gain in gains), end="    ")
    print()

# %% [markdown]
# (tok/s are of one GPU without drafts.) Rounding 187e6, 44e6 and 88e6 moves three of the throughputs by one, and no gain.
#
# * Few requests gain 1.8, nearly all that 1.85 tokens could bring.
# * 64 requests at 4K *lose* with every draft.
# * The same 64 at 16K gain again, a little.
# * In all four a second draft is worse than one. A row is free only while something else takes longer.
#
# Do their weights and bf16 caches fit? The last one needs an H200:

# %%
from ledger.widgets.mtp_speed import held_bytes

held = (f"{n} at {c // 1024}K: {held_bytes(n, c, ROUNDED) / 1e9:.0f} GB" for c, n in loads)
print(*held, *(f"{gpu.name}: {gpu.memory / 1e9:.0f} GB" for gpu in (h100, h200)), sep="; ")

# %% [markdown]
# ## What does each load wait for?
#
# Draw the parts of a layer, without a draft and with one. Attention and experts stand on each other; the all-to-all
# beside them counts where it is taller. Hatched is what waits for arithmetic.

# %%
from ledger.widgets.mtp_speed import layer_bars

layer_bars(loads, h100, ROUNDED)

# %% [markdown]
# At 16 requests the second token of each request comes along: the layer reads what it read before, and where attention's
# arithmetic (hatched) has overtaken its reading, it has only just done so.
#
# At 64 requests and 4K the all-to-all is the taller bar already, and a draft doubles it. At 16K reading is the taller
# one. There a draft is stopped by something else: attention's arithmetic (hatched) grows past its reading. (That of the
# experts does so too, at both lengths.)
#
# At 4K it is past it as well, by a hair. What would this load gain if its network were free?

# %%
from dataclasses import replace

from ledger.account.mtp import layer_times

t = layer_times(64, 128, 4096, h100, ROUNDED)
print(f"64 requests at 4K, 1 draft: attention reads for {1e6 * t.attention_memory:.1f} µs", end=" ")
print(f"and computes for {1e6 * t.attention_compute:.1f} µs")
free = replace(h100, network=float("inf"))
print(f"gain with a free network: {mtp_speedup(64, 1, 4096, acceptance, free, ROUNDED):.2f} ×")

# %% [markdown]
# So it is the network alone that eats the gain at this load.

# %% [markdown]
# ## How often must a draft be right to pay?
#
# With one draft a step takes $r$ times as long and adds $1 + p$ tokens. It breaks even where
#
# $$\frac{1 + p}{r} = 1 \quad\Longleftrightarrow\quad p = r - 1$$

# %%
from ledger.account.mtp import best_draft_count, break_even_acceptance

print("load         without     1 draft   ratio r    needed    best number of drafts")
for cached, requests in loads:
    none, one = (step_seconds(requests, k, cached, h100, ROUNDED) for k in (0, 1))
    needed, name = break_even_acceptance(one / none), f"{requests} at {cached // 1024}K"
    best = best_draft_count(requests, cached, acceptance, h100, ROUNDED)
    print(f"{name:10} {1e3 * none:6.1f} ms {1e3 * one:8.1f} ms {one / none:9.3f} {needed:9.1%} {best:9}")

# %% [markdown]
# 64 requests at 4K need more than 100 %. Both steps are all network, the second carries twice the bytes, and the drafter
# comes on top. By this account no drafter is good enough there: the right number is 0.

# %% [markdown]
# ## Do the counts say the same?
#
# Write a small layer and count it. Predict first: how do multiply-adds and bytes read grow when each request brings two
# or four rows?

# %%
import numpy as np
from ledger.account.attention import decode_absorbed_macs, matmul_macs
from ledger.browser import IN_BROWSER
from ledger.count import count

D, F = (256, 512) if IN_BROWSER else (512, 2048)  # hidden, feed-forward
B, L, R = 4, 128, 16  # requests, latent, rope


def layer(hidden, caches, w_q, w_o, w_up, w_down):
    b, s, _ = hidden.shape
    queries = (hidden.reshape(b * s, D) @ w_q).reshape(b, -1, L + R)  # heads and rows are rows
    scores = queries @ caches.swapaxes(1, 2)  # [b, s h, t]
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (weights / weights.sum(-1, keepdims=True)) @ caches[..., :L]  # [b, s h, c]
    return np.maximum(mixed.reshape(b * s, -1) @ w_o @ w_up, 0) @ w_down


# %%
rng = np.random.default_rng(8)


def draw(*shape):
    return rng.standard_normal(shape, dtype=np.float32) / np.float32(shape[-1] ** 0.5)


def inputs(heads, cached):
    return draw(B, cached, L + R), draw(D, heads * (L + R)), draw(heads * L, D), draw(D, F), draw(F, D)


def predicted(heads, cached, s):
    weights = [(D, heads * (L + R)), (heads * L, D), (D, F), (F, D)]
    return (
        sum(matmul_macs(B * s, *w) for w in weights)
        + decode_absorbed_macs(B * cached, heads * s, L, R).total
    )


# %%
given = inputs(4, 1024)
print("rows      multiply-adds predicted         counted       bytes of cache and weights    counted read")
own = 2 * given[0].nbytes + sum(
    w.nbytes for w in given[1:]
)  # NumPy reads the cache for scores and for the mix
for s in (1, 2, 4):
    seen = count(layer, draw(B, s, D), *given)[1]
    print(f"{s:4} {predicted(4, 1024, s):28,} {seen.macs:15,} {own:32,} {seen.bytes_read:15,}")
    assert seen.macs == predicted(4, 1024, s)

# %% [markdown]
# Multiply-adds grow with the rows, exactly. Of the bytes, cache and weights stay what they are; what grows is the small
# rest, queries and scores, which a fused kernel would not even write.

# %% [markdown]
# ## What does a second row cost on this machine?
#
# Measure the same layer with a short cache and a long one, with 4 heads and with 32. More heads on the same cache mean
# more arithmetic for each byte.

# %%
from functools import partial

from ledger.measure import time_pairs

size, seconds = (1 / 32, 0.1) if IN_BROWSER else (1, 0.4)
cases = [(heads, int(size * cached)) for heads in (4, 32) for cached in (64, 4096)]
ratios = {}
for heads, cached in cases:
    given, rows = inputs(heads, cached), {s: draw(B, s, D) for s in (1, 2, 4)}
    times = time_pairs({s: partial(layer, hidden, *given) for s, hidden in rows.items()}, seconds)
    ratios[heads, cached] = [times[s].low / times[1].low for s in rows]
    print(f"{heads:3} heads, {cached:5,} cached: {1e3 * times[1].low:6.2f} ms with one row, ", end="")
    print(" and ".join(f"{ratio:.2f} ×" for ratio in ratios[heads, cached][1:]), "with two and four")

# %%
fig = new_figure(
    7.6, 3.0, alt="Time of the layer with one, two and four rows a request, over its time with one"
)
ax = fig.subplots()
for (heads, cached), ratio in ratios.items():
    look = dict(
        color=COLORS["absorb" if heads == 4 else "materialize"], linestyle="-" if cached > 999 else "--"
    )
    ax.plot([1, 2, 4], ratio, "o", label=f"{heads} heads, {cached:,} cached", **look)
ax.plot([1, 4], [1, 4], ":", color=COLORS["neutral"], label="rows paid in full")
ax.set(xlabel="rows of each request", ylabel="time relative to one row", ylim=(0.8, 4.1), xlim=(0.9, 4.1))
ax.set_xticks([1, 2, 4])
ax.legend(handlelength=4)
fig

# %% [markdown]
# With a fast NumPy no line reaches the dotted one: weights and caches are read once for all rows. With 32
# heads on a long cache rows cost more than with 4. (A browser's NumPy computes slowly, so there it waits for arithmetic
# everywhere, and rows cost nearly in full.)

# %% [markdown]
# ## Whose attention slows down?
#
# Attention does $I$ FLOP of one row for each byte of the cache. The machine's ridge is
# where arithmetic takes as long as reading. So with $k + 1$ rows attention takes
#
# $$\frac{\max(\text{ridge},\ (k+1)\,I)}{\max(\text{ridge},\ I)}$$
#
# times as long. By datasheet an H200 has one ridge; what FlashAttention 3 reached there gives a lower one.

# %%
from ledger.account.attention import family
from ledger.account.mtp import verify_rows_cost
from ledger.published import decode_h200, reached_h200

machines = (h200, reached_h200())
print("                FLOP a byte      2 rows: datasheet  reached       4 rows: datasheet  reached")
for scheme in family(v3):
    print(f"{scheme.name:18} {scheme.intensity:8.1f}", end=" ")
    for rows in (2, 4):
        ratios = (
            max(m.ridge(), rows * scheme.intensity) / max(m.ridge(), scheme.intensity) for m in machines
        )
        print("{:18.2f} {:8.2f}".format(*ratios), end=" ")
    print()

# %%
for heads in (64, 16):
    print(f"{f'MLA, {heads} heads':27}", end=" ")
    for drafts in (1, 3):
        shard = replace(v3, num_heads=heads)
        ratios = (verify_rows_cost(shard, drafts, "bf16_mla", m, "bf16") for m in machines)
        print("{:18.2f} {:8.2f}".format(*ratios), end=" ")
    print()
few, many = (decode_h200("FlashAttention 3", heads, 64)[65536] for heads in (64, 128))
print(f"\nmeasured, twice the heads for twice the rows, 64 to 128: {many / few:.2f}")

# %% [markdown]
# MHA's rows are free at any length, and GQA's. MLA with all heads on one GPU is past the ridge with a single row: **each
# further row costs in full**.
#
# The measured ratio is near the reached one, but almost by construction: that ridge is made of the times of 16 and of 128
# heads. All it tests is that 64 heads take about as long as 16. (Ridges: datasheets; FlashAttention 3 in SGLang
# 0.5.14, ai-dynamo/aiconfigurator at 095f58a5, Apache-2.0.)

# %% [markdown]
# ## What do rows cost the course's own kernel?
#
# So far "read once" was the account's. Lesson 7's kernel takes several new tokens of a request, too: a query row is a head
# of one of them, and a program serves a *block* of rows. With 16 heads and blocks of 16 rows, does a second token read the
# cache again? **Predict** before you look.

# %% tags=["no-browser"]
try:
    from ledger.kernels import gpu
    from ledger.kernels.gpu import trial, tuning
    from ledger.kernels.interpret.watched import watched
except ImportError as reason:
    gpu = None
    print(f"{reason}: torch and Triton are needed to run the kernels. All else on this page runs without.")

# %% tags=["no-browser"]
if gpu is not None:
    scale = v3.qk_dim**-0.5
    print("heads   new tokens   rows of a block   blocks     error")
    for heads, s in [(16, 1), (16, 2), (16, 4)] + [(128, s) for s in (1, 2, 4) if not gpu.INTERPRETED]:
        block = tuning.decode_blocks(tuning.architecture(), False, s * heads).BLOCK_H
        error = trial.error(trial.make_batch([256], heads, s), scale)
        print(f"{heads:5} {s:12} {block:17} {-(-s * heads // block):8} {error:9.0e}")

# %% [markdown]
# It is right (the error is against float64). In the interpreter every load can be counted; on a GPU there is a clock.

# %% tags=["no-browser"]
if gpu is not None and gpu.INTERPRETED:
    entries = 2 * 256 * v3.latent_dim
    print(f"16 heads, 256 cached tokens, whose latents are {entries:,} bytes\n\nnew tokens   bytes loaded")
    for s in (1, 2, 4):
        with watched() as works:
            gpu.mla_decode(*trial.make_batch([256], 16, s), scale, num_splits=1)
        loaded = works["shared_tile"].loaded["p_latent"]
        print(f"{s:10} {loaded:14,} = {loaded / entries:.0f} · {entries:,}")

# %% tags=["no-browser"]
if gpu is not None and not gpu.INTERPRETED:
    cached, requests = 4096, 64
    for heads in (16, 128):
        batches = {s: trial.make_batch([cached] * requests, heads, s) for s in (1, 2, 4)}
        calls = {s: partial(gpu.mla_decode, *each, scale, longest=cached) for s, each in batches.items()}
        times = time_pairs(calls, 0.4)
        print(f"{heads:3} heads: {1e6 * times[1].median:6.0f} µs with one new token, ", end="")
        print(*(f"{times[s].median / times[1].median:.2f} × with {s}" for s in (2, 4)), sep=", ")
elif gpu is not None:
    print("no GPU here, so no times")

# %% [markdown]
# This kernel reads once for every *block* of rows, not once a request: with 16 heads in blocks of 16 rows four tokens
# load the cache four times. The account's "once" means reading *from the GPU's memory*. A GPU runs the blocks of a
# request side by side, and what one has loaded the others may find in its L2 cache; how often they do only a clock or a
# profiler tells. Larger blocks are the sure way: one of 64 rows, which the kernel takes on an H100 from 64 rows on,
# serves four tokens of 16 heads at once.

# %% [markdown]
# ## How does a dense 7B model compare?
#
# Most of what is written on speculative decoding is about dense models of one GPU: the larger the batch, the smaller the
# gain. Set one beside DeepSeek-V3, with MHA as Llama 2 7B has it, or with GQA of 8 groups, and a drafter of one more layer.

# %%
from ledger.account.mtp import LLAMA_2_7B

gqa = replace(LLAMA_2_7B, cache_values=LLAMA_2_7B.cache_values // 4)
curves = {"7B, MHA, 4K": (LLAMA_2_7B, 4096, "-", "value"), "7B, MHA, 128": (LLAMA_2_7B, 128, "--", "value")}
curves |= {"7B, GQA, 128": (gqa, 128, "--", "absorb")}
curves |= {
    f"DeepSeek-V3, {n}K": (None, 1024 * n, look, "materialize") for n, look in ((4, "--"), (16, "-"))
}


def gain_and_fit(dense, requests, cached):
    """The gain of one draft, and whether weights and caches fit the GPU."""
    if dense is None:
        gain = mtp_speedup(requests, 1, cached, acceptance, h100, ROUNDED)
        return gain, held_bytes(requests, cached, ROUNDED) <= h100.memory
    held = 2 * dense.layers * (dense.layer_params + requests * cached * dense.cache_values)
    return dense.speedup(requests, 1, cached, acceptance, h100), held <= h100.memory


# %%
fig = new_figure(
    8.2, 3.5, alt="Gain of one draft over requests of a GPU, for a dense model and for DeepSeek-V3"
)
ax, batches = fig.subplots(), np.geomspace(1, 512, 60).tolist()
for name, (dense, cached, look, color) in curves.items():
    gains, fits = zip(*(gain_and_fit(dense, n, cached) for n in batches), strict=True)
    ax.plot(batches, gains, look, color=COLORS[color], alpha=0.3)
    fit = sum(fits)
    ax.plot(batches[:fit], gains[:fit], look, color=COLORS[color], label=name)
ax.axhline(1, color=COLORS["neutral"], linewidth=1)
ax.set(xscale="log", xlabel=f"requests of an {h100.name}", ylabel="gain of one draft")
ax.set(ylim=(0.6, 1.9), xlim=(0.9, 600))
plain_ticks(ax.xaxis)
ax.legend(loc="lower left", ncols=2)
fig

# %% [markdown]
# The dense model's products with weights wait for memory up to some 300 tokens, half as many requests with one draft.
# From there on they cost in full, and the gain falls: that is the known curve, and it is steepest where caches are short
# or small. With 4,096 tokens in MHA's cache reading the caches takes over, and verifying shares it. (Pale does not fit the
# GPU.)
#
# DeepSeek-V3 falls *earlier*, at about sixteen requests: at 4K because its tokens travel, at 16K because its attention has
# no arithmetic to spare.
#
# (Shapes of Llama 2 7B: its config.json; all weights and caches bf16.)

# %% [markdown]
# ## Where is this account too kind, and where too harsh?
#
# Add what it leaves out, one thing after another:
#
# * **reached**: bandwidth and arithmetic as FlashAttention 3 reached them, network as DeepEP did;
# * **projections**: attention's projections compute as well, and are kernels of their own;
# * **heads**: each drafting pass reads the drafter's `eh_proj` and the LM head, and the step reads the head too;
# * **halves**: hiding the all-to-all takes two half batches, each of which reads the weights. Where that is dearer, the
#   all-to-all is simply added;
# * **floor**: a layer of kernels takes some time however little is in it.

# %%
from ledger.account.mtp import Refined, refined
from ledger.published import as_reached, layer_floor

full = refined(v3, exact, group=128, floor=layer_floor())
print(f"eh_proj: 2·{v3.hidden_dim:,}² = {full.drafter_bytes / 2e6:.1f} M weights")
print(f"LM head: {v3.hidden_dim:,}·{v3.vocab_size:,} = {full.head_bytes / 2e6:.1f} M")
print(f"floor of a layer: {1e6 * full.floor:.0f} µs")
stages = {"plain": (Refined(setup=exact), h100), "as reached": (Refined(setup=exact), as_reached(h100))}
added = {"projections": ["projections"], "heads": ["drafter_bytes", "head_bytes"]}
added |= {"halves": ["overlap", "num_experts", "group"], "floor": ["floor"]}
for name, fields in added.items():
    account, gpu = list(stages.values())[-1]
    stages[f"+ {name}"] = (replace(account, **{field: getattr(full, field) for field in fields}), gpu)
assert stages["+ floor"][0] == full

# %%
from ledger.widgets.mtp_speed import waterfall

gains = {name: [m.speedup(n, 1, c, acceptance, gpu) for c, n in loads] for name, (m, gpu) in stages.items()}
waterfall(gains, [f"{requests} at {cached // 1024}K" for cached, requests in loads])

# %%
print("tok/s without drafts, gain of one draft (best number of drafts up to three)")
print(" " * 10, "".join(f"{requests:14} at {cached // 1024:2}K" for cached, requests in loads))
for name in ("plain", "as reached", "+ floor"):
    account, gpu = stages[name]
    print(f"{name:10}", end=" ")
    for cached, requests in loads:
        found = [account.speedup(requests, k, cached, acceptance, gpu) for k in range(4)]
        print(f"{requests / account.step(requests, 0, cached, gpu):8,.0f}", end=" ")
        print(f"{found[1]:5.2f} × ({found.index(max(found))})", end=" ")
    print()
lost = [(a - b) / (a - 1) for a, b in zip(gains["plain"], gains["+ projections"], strict=True)]
print(f"lower ridges and projections take {lost[0]:.0%} of the gain of 16 at 4K, {lost[2]:.0%} at 16K")

# %% [markdown]
# The plain account is **too kind** to small batches: lower ridges, where rows cost more, and projections take much of what it
# promised. 16 at 16K falls furthest. 64 at 16K had less to lose, and falls below 1 at reached rates. With everything in,
# the best numbers of drafts at 16 requests are 3 and 2, no longer 1.
#
# And it may be **too harsh** on the load that lost. The plain step there is nothing but network, which doubles. Where the
# network is not hidden for free, other parts stand beside it that do not double, and even 64 requests at 4K gain a
# little. Which of the two accounts is nearer to the truth can only be measured.

# %% [markdown]
# ## What has been measured?
#
# 1. **DeepSeek-V3's report** (arXiv 2412.19437, section 5.4.3): one draft, accepted 85 to 90 % of the time, 1.8 times the
#    tokens a second. The load is not given.
# 2. **SGLang's documentation**: 1.8 times for one request and 1.5 for 32, eight H200 that share every layer (tensor
#    parallel, no all-to-all). The number of drafts is not given.
#
# For the first, guess the load: 16 requests at 4K, on the 128 GPUs of this page.

# %%
print(
    f"the report 1.8; the plain account {gains['plain'][0]:.2f}, the refined one {gains['+ floor'][0]:.2f}"
)
print("the refined one at its best loads, 90 % accepted:")
for contexts in ((1024, 4096), (64, 256)):
    loads = [(n, c) for n in range(1, 65) for c in contexts]
    best, n, c = max((full.speedup(n, 1, c, [0.9], as_reached(h100)), n, c) for n, c in loads)
    print(f"  {best:.2f} with {n} requests of {c:,} cached tokens")

# %% [markdown]
# The plain account meets the report at this load. The refined one stays below it from 1K cached tokens on, and comes
# near only with hardly any cache. That is not in favour of the plain one: with $1 + p$ tokens from 1.85 to 1.90, a gain
# of 1.8 says no more than that a second row cost next to nothing. A time that passes in each step whatever it verifies
# makes rows cheap as well, and the third measurement shows such a time.
#
# For the second, deal every weight out to 8 GPUs, leave the cache whole on each, and read only the experts that some
# token asked for:

# %%
from ledger.published import MTP_GAINS

whole = replace(setup_for(v3, 1), token_bytes=0)
shared = refined(v3, whole, group=1, floor=layer_floor(), tensor_parallel=8)
reached = as_reached(h200)
print("requests   published     refined, with 1 draft, 2, 3      without the floor               plain")
for row in MTP_GAINS[:2]:
    print(f"{row.requests:8} {row.gain:11}", end="     ")
    for account in (shared, replace(shared, floor=0), Refined(setup=shared.setup)):
        found = (account.speedup(row.requests, k, 4096, acceptance, reached) for k in (1, 2, 3))
        print("".join(f"{gain:9.2f}" for gain in found), end="     ")
    print()

# %% [markdown]
# No single number of drafts fits both rows: one request wants 2, and 32 want 1. (The plain account reads all experts
# for one token as for many. So rows are free to it at both loads, and it cannot tell them apart. Its gains are the same
# by datasheet rates and by reached ones.) Without the floor the account would say 1.2 for one request: a second token
# asks for up to eight *other* experts, and they must be read. So a step for one request is mostly waiting, for launches
# and other GPUs, if this account is right. A floor makes extra rows cheap.
#
# 3. **LMSYS** (blog of 17 July 2025) served prompts of 65,536 tokens on 16 H200, two requests on each. It gives
# throughputs with and without drafts. Take the time of the *first* row as it is.
# What the refined account does not explain of it is fixed: scheduling on the CPU, launches, imbalance. Then predict the
# other rows.

# %%
from ledger.published import MTP_16_H200, MTP_16_H200_CACHED, MTP_16_H200_REQUESTS

small = refined(v3, setup_for(v3, 16), group=16, floor=layer_floor())
n, cached, base = MTP_16_H200_REQUESTS, MTP_16_H200_CACHED, MTP_16_H200[0].tokens_a_second
measured = n / base
fixed = measured - small.step(n, 0, cached, reached)
print(
    f"a measured step without drafts: {1e3 * measured:.1f} ms, {1e3 * fixed:.1f} of them not in the account"
)
hidden = measured - n / MTP_16_H200[1].tokens_a_second
print(f"what hiding the CPU's scheduling saved: {1e3 * hidden:.1f} ms")

# %% [markdown]
# The second row hides the CPU's scheduling behind the GPU's work. Rows with drafts were measured without that, like the first.

# %%
print("drafts   tokens a step   measured tok/s    gain     refined, with that time     plain")
for row in MTP_16_H200[2:]:
    k = row.num_draft_tokens
    known = replace(small, host=fixed).step(n, k, cached, reached)
    plain = [step_seconds(n, drafts, cached, h200, small.setup) for drafts in (0, k)]
    print(f"{k:4} {row.advance:14} {row.tokens_a_second:16} {row.tokens_a_second / base:10.2f}", end="")
    print(f"{row.advance * measured / known:18.2f} {row.advance * plain[0] / plain[1]:20.2f}")

# %% [markdown]
# With one number taken from the first row, the account predicts the gains of the other two to a few percent. The plain
# one promised a good deal more. Now take the same fixed time to LMSYS's second case, which has no such row: 96 H200, 128
# requests on each, about 2,000 tokens.

# %%
large = refined(v3, setup_for(v3, 96, redundant=32), group=96, floor=layer_floor(), host=fixed)
row = MTP_GAINS[2]
arguments = (row.requests, row.num_draft_tokens, row.cached_tokens, acceptance)
print(f"published     {row.gain:.3f}")
print(f"plain         {mtp_speedup(*arguments, h200, large.setup):.3f}")
print(f"refined       {replace(large, host=0.0).speedup(*arguments, reached):.3f}")
print(f"with fixed    {large.speedup(*arguments, reached):.3f}")

# %% [markdown]
# The plain account has the wrong side of 1. The fixed time of another deployment puts it right: it is paid once a step,
# whatever the step verifies. (The acceptance there was not published; 0.85 is this page's. One fitted number and four
# rows are a plausible story, not a proof.)
#
# Keep these apart: an account without floors tells what *could* be gained by a perfect engine. The more time a real
# engine loses in each step, the more it gains by drafting, for a poor reason.

# %% [markdown]
# ## Where do drafts gain?
#
# Each cell is a load. Violet gains, orange loses; the sign says what a layer of the verifying step waits for. Hatched loads
# do not fit. Rings are the loads of the table. Up the column of 64 the gain rises with the reading of caches, and falls
# again where attention's arithmetic outgrows it.
#
# * Go from 1 draft to 4. Which column turns first, and which sign does it carry?
# * Lower the first acceptance until the upper right corner turns.
# * Compare H100, H200 and B200. Memory became much faster, the network did not.
# * Choose the refined account.

# %%
from ledger.widgets.mtp_speed import DraftChooser, SpeedMap

SpeedMap().show()

# %% [markdown]
# ## How many drafts, when the load changes?
#
# A day has quiet hours and busy ones. Here is a made-up day: above, the requests of a GPU; below, the best number of
# drafts; right, the tokens of the day if that number is kept all day, or follows the load.
#
# * At which load does the best number drop to 0?
# * Make the peak 16. Is there still anything to adapt?
# * How much does following the load bring over the best fixed number? Is it worth a mechanism?

# %%
DraftChooser().show()

# %% [markdown]
# ## What do engines do with this?
#
# The number of drafts is a flag (the [first part](drafts.ipynb) has them). Two engines can change it while they run:
#
# * **vLLM**: `num_speculative_tokens_per_batch_size` in the speculative configuration, a list of ranges of batch sizes and
#   the number of drafts for each: `[[1, 16, 3], [17, 256, 1]]`. That is this page's rule, by load. The method is `mtp`;
#   `deepseek_mtp`, which many guides still show, is an older alias.
# * **SGLang**: `--speculative-adaptive` changes the number of steps by what was accepted lately, in newer versions by the
#   batch size too; a file named with `--speculative-adaptive-config` has the numbers to choose from. It needs
#   `--speculative-algorithm EAGLE`, of which `NEXTN` is another name (newer versions take EAGLE3 as well), and
#   `--speculative-eagle-topk 1`; otherwise the number stays fixed.
# * Both can switch drafting off, and a deployment for throughput often does; one for latency seldom.
#
# With a sparse indexer (chapter 10) each row picks cached tokens of its own, so the rows share less of the reading.

# %% [markdown]
# ## How to explain it
#
# *"The drafter is one layer that was trained with the model, and its first guess is right about 85 times in 100. Whether
# that helps depends on the step. What a request needs once, weights and its cache, is read once for all its rows. What a
# token needs, arithmetic and the trip to its experts, is paid for every row, right or wrong. Few requests: nearly twice as
# fast. Many requests and a busy network: nothing, or a loss, because a step twice as long would need a guess that is always
# right; long contexts bring a part back, until attention's arithmetic is full. MLA makes this sharper than MHA, since its
# attention has no arithmetic to spare. So measure the acceptance, know the load, and let the load choose the number."*

# %% [markdown]
# ## Summary
#
# * A step adds $1 + p_1 + p_1p_2 + \ldots$ tokens, with conditional probabilities.
# * Read once: weights, caches, local experts. For each row: pairs, experts, 8 trips.
# * On an H100, one draft at 0.85: 1.82, 0.92, 1.80 and 1.30 times, for 16 and 64 requests at 4K and at 16K.
# * Break-even is $r - 1$. At 64 requests and 4K it is above 1: no draft pays.
# * Rows cost MLA with 128 heads in full, 64 heads 1.75 times by reached rates (1.17 by datasheet), MHA nothing.
# * Against measurements the plain account is too kind to small batches and too harsh on busy networks. Lower ridges, the
#   drafter's own weights, floors and a fixed time of each step explain most of the difference.

# %% [markdown]
# ## Exercises to do next
#
# 4. [expected_advance](../../practice/ch08_mtp/speed.ipynb#cell-id=expected_advance-statement): tokens of a step.
# 5. [attention_params](../../practice/ch08_mtp/speed.ipynb#cell-id=attention_params-statement): where 187e6 comes from.
# 6. [expert_params](../../practice/ch08_mtp/speed.ipynb#cell-id=expert_params-statement): where 44e6 comes from.
# 7. [step_seconds](../../practice/ch08_mtp/speed.ipynb#cell-id=step_seconds-statement): the account of a step.
# 8. [mtp_speedup](../../practice/ch08_mtp/speed.ipynb#cell-id=mtp_speedup-statement): the gain.
# 9. [break_even_acceptance](../../practice/ch08_mtp/speed.ipynb#cell-id=break_even_acceptance-statement): how often a
#    draft must be right. Try it on 64 requests at 4K.
# 10. [best_draft_count](../../practice/ch08_mtp/speed.ipynb#cell-id=best_draft_count-statement): let the load choose.
# 11. [verify_rows_cost](../../practice/ch08_mtp/speed.ipynb#cell-id=verify_rows_cost-statement): what rows cost attention.
#
# ```
# python judge.py 8
# ```
#
# Then go on to [lesson 9](../ch09_experts/experts.ipynb), which takes the all-to-all apart.
