# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 2 Many heads, one latent
#
# In lesson 1 you folded one matrix into the query of one head. A model has many heads. Each of them has a matrix of
# its own, and all of them read the same latent.
#
# **The question:** how does the fold go for all heads at once, and what does it cost? And if matrices may be
# multiplied together, why do engines not multiply two of them once, before serving starts?

# %% [markdown]
# ## Can you skip this lesson?
#
# Answer these four. If you get them right, go to the exercises at the end.
#
# 1. `kv_b` has `num_heads * (nope_dim + value_dim)` rows. Which of them make the key of head `h`?
# 2. You reshape the queries to `(new_tokens, num_heads * nope_dim)` and multiply by a matrix of shape
#    `(num_heads * nope_dim, latent_dim)`. What did you compute?
# 3. After the absorb, how many queries does a new token have, how wide are they, and how many vectors does a cached
#    token keep for them?
# 4. `W_UQ` and `W_UK` stand next to each other in the score. What would you lose by storing their product?
#
# <details><summary>Answers</summary>
#
# 1. The `nope_dim` rows from `h * (nope_dim + value_dim)` on. Its `value_dim` value rows come right after them.
# 2. The sum of the absorbed queries of all heads. One query is left, and no later step can tell the heads apart.
# 3. `num_heads` queries of width `latent_dim`. A cached token keeps one latent, and every head reads that one.
# 4. Memory, and time at every step. The product has `q_lora_dim * latent_dim` elements a head, while its rank is at
#    most `nope_dim`. At DeepSeek-V3's widths that is 3.0 times the elements of the two factors.
#
# </details>
#
# (The next cell keeps NumPy's products to one core, so that the times on this page repeat.)

# %%
import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")

# %% [markdown]
# ## What is in the packed weight?
#
# A checkpoint keeps the up-projections of all heads in one matrix, `kv_b`. Each row is as wide as the latent. The
# rows go head by head, and each head brings first its key rows, then its value rows. Key feature $i$ of head $h$
# stands in row
#
# $$h \cdot (d_\text{nope} + d_\text{value}) + i .$$
#
# Here is `kv_b` at DeepSeek-V3's widths, cut where one head ends and the next begins.

# %%
import numpy as np
from ledger.models import MODELS, model
from ledger.widgets import heads as pictures
from ledger.widgets.base import COLORS, new_figure

v3 = model("DeepSeek-V3")
rows = v3.num_heads * (v3.nope_dim + v3.value_dim)
print(f"kv_b: {rows:,} rows × {v3.latent_dim} = {rows * v3.latent_dim:,} elements in each layer")
print(f"a head: {v3.nope_dim} key rows and {v3.value_dim} value rows, {v3.num_heads} heads")
pictures.packed_weight(v3.num_heads, v3.nope_dim, v3.value_dim, v3.latent_dim)

# %% [markdown]
# `kv_b` is a stack: two blocks a head, and no row belongs to two heads. What the heads share is the input. The same
# latent goes through all of these blocks.

# %% [markdown]
# ## Can you cut it by hand?
#
# Take two heads, a latent of width 3, keys of width 2 and values of width 1. Head 0 has the key matrix of lesson 1.
# The value rows are sevens and nines, so that you can follow them.

# %%
nope_dim, value_dim, latent_dim, num_heads = 2, 1, 3, 2
head_0 = [[1, 0, 1], [0, 2, 1], [7, 7, 7]]
head_1 = [[0, 1, 2], [1, 0, 1], [9, 9, 9]]
kv_b = np.array(head_0 + head_1, dtype=float)  # [h·(n+v), c]
pictures.packed_weight(num_heads, nope_dim, value_dim, latent_dim, kv_b=kv_b)

# %% [markdown]
# An engine cuts this once, when it loads the weights, into two stacks with the head axis in front. `w_kc` holds the
# key matrices, `w_vc` the value matrices.

# %%
from ledger.widgets.flow import Arrow, Box, Lane, flow

start = [Box("kv_b", "(h·(n+v), c)"), Arrow("reshape", "0 bytes"), Box("by head", "(h, n+v, c)")]
to_keys = [Arrow("rows 0 … n−1"), Box("w_kc", "(h, n, c)")]
to_values = [Arrow("the other rows, transposed"), Box("w_vc", "(h, c, v)")]
flow("kv_b at load time", [Lane("keys", start + to_keys), Lane("values", start + to_values)])

# %% [markdown]
# Because the rows are head-major, the reshape moves nothing: it only says how many rows make a head. The next cell
# checks that, and then cuts.

# %%
from ledger.reference.mla import split_kv_b

assert np.shares_memory(kv_b.reshape(num_heads, -1, latent_dim), kv_b)
w_kc, w_vc = split_kv_b(kv_b, num_heads, nope_dim, value_dim)
for head in range(num_heads):
    print(f"head {head}: w_kc[{head}] = {w_kc[head].tolist()}   w_vc[{head}] = {w_vc[head].tolist()}")

# %% [markdown]
# `w_kc[0]` is the $W_K^\top$ of lesson 1: the rows stay as they were, because the absorb multiplies by exactly this
# transposed matrix. `w_vc[h]` is transposed to `(latent, value)`, because a latent will meet it from the left, in
# chapter 3. (The function used here cuts row by row, in loops. You write the one with a reshape in the exercise.)

# %% [markdown]
# ## How does every head absorb its own matrix?
#
# Each query head meets the matrix of the same head:
#
# $$\tilde q_{shc} = \sum_n q_{shn}\, W_{hnc}$$
#
# Find $h$ in this sum. It stands on both sides and is not summed over. An axis like that is a *batch* axis: it
# pairs matrices, it is no part of a product.
#
# By hand, for one new token with $q_0 = [1, 0]$ and $q_1 = [1, 1]$:
#
# $$\tilde q_0 = 1\cdot[1,0,1] + 0\cdot[0,2,1] = [1,0,1] \qquad \tilde q_1 = 1\cdot[0,1,2] + 1\cdot[1,0,1] = [1,1,3]$$

# %%
q_nope = np.array([[[1, 0], [1, 1]]], dtype=float)  # [s, h, n]

by_loop = np.stack([q_nope[:, head] @ w_kc[head] for head in range(num_heads)], axis=1)
by_einsum = np.einsum("shn,hnc->shc", q_nope, w_kc)
by_bmm = np.matmul(q_nope.transpose(1, 0, 2), w_kc).transpose(1, 0, 2)  # head axis in front, and back

assert np.array_equal(by_loop, by_einsum)
assert np.array_equal(by_loop, by_bmm)
for head in range(num_heads):
    print(f"head {head}: {by_bmm[0, head]}")

# %% [markdown]
# Three spellings, one result, and it is the one from your paper. The last is what engines run. It is called **bmm**,
# a batched matrix multiplication: `np.matmul` and `torch.bmm` take the front axis as the batch axis, so the head axis
# has to go to the front for the product and back behind the token axis after it.

# %%
from ledger.account.attention import absorb_heads_macs

heads, one_token = v3.num_heads, absorb_heads_macs(1, v3.num_heads, v3.nope_dim, v3.latent_dim)
lane = [
    Box("q_nope", (1, heads, v3.nope_dim)),
    Arrow("heads first"),
    Box("a block a head", (heads, 1, v3.nope_dim)),
    Arrow("bmm with w_kc", f"{one_token / 1e6:.1f} M multiply-adds"),
    Box("absorbed", (heads, 1, v3.latent_dim)),
    Arrow("heads back"),
    Box("q_absorbed", (1, heads, v3.latent_dim)),
]
flow("Absorb in every head, one new token at DeepSeek-V3's widths", [Lane("", lane, COLORS["absorb"])])

# %% [markdown]
# Only the middle arrow computes. The other two swap axes, which moves no number. torch has the same operation under its
# own name. The next cell needs torch, and says so where there is none.

# %% tags=["no-browser"]
try:
    import torch
except ImportError:
    torch = None
    print(
        "torch is not installed here. Nothing below depends on it: np.matmul above is the same operation."
    )
if torch is not None:
    q_heads_first = torch.from_numpy(q_nope).transpose(0, 1)
    by_torch = torch.bmm(q_heads_first, torch.from_numpy(w_kc)).transpose(0, 1)
    assert np.array_equal(by_torch.numpy(), by_bmm)
    print("torch.bmm:", by_torch.tolist())

# %% [markdown]
# ## What goes wrong when you flatten the heads?
#
# One big product looks simpler than many small ones. Reshape the queries to `(s, h·n)`, reshape `w_kc` to `(h·n, c)`,
# multiply. The shapes fit, and no error comes.

# %%
flattened = q_nope.reshape(1, -1) @ w_kc.reshape(-1, latent_dim)  # [s, c]
print("flattened:          ", flattened[0])
print("each head, absorbed:", by_bmm[0, 0], by_bmm[0, 1])
print("their sum:          ", by_bmm[0].sum(axis=0))
assert np.array_equal(flattened, by_bmm.sum(axis=1))

# %% [markdown]
# The flattened product sums over $h$ as well, because $h$ is now inside the summed axis. You get one query, the sum of
# all heads' queries. Its score is the sum of the heads' scores, and from a sum you cannot get the softmax of each
# head back. Where later code broadcasts, nothing fails either: every head attends alike, and the answers are worthless.
#
# To keep the heads apart in one product, the matrix needs zeros where head $h$ would meet the matrix of another head:

# %%
pictures.placements(num_heads=4, nope_dim=2, latent_dim=3)

# %% [markdown]
# Left: what the bmm reads. Middle: the same numbers stacked into one matrix, which is the sum. Right: one matrix that
# is right, and mostly zeros. Predict what the three cost, then let the counter watch real code. The widths are
# DeepSeek-V3's, the heads are cut to 16, so that the right-hand matrix stays small.

# %%
from ledger.count import count

S, H, n, L = 3, 16, v3.nope_dim, v3.latent_dim
rng = np.random.default_rng(2)
q = rng.standard_normal((S, H, n), dtype=np.float32)
w = rng.standard_normal((H, n, L), dtype=np.float32) / np.float32(n) ** 0.5
diagonal = np.zeros((H, n, H, L), dtype=np.float32)  # [h, n, h, c]
diagonal[np.arange(H), :, np.arange(H)] = w
diagonal = diagonal.reshape(H * n, H * L)


# %%
def bmm(q, w):
    return np.matmul(q.transpose(1, 0, 2), w).transpose(1, 0, 2)


def one_sum(q, w):
    return q.reshape(S, H * n) @ w.reshape(H * n, L)


def block_diagonal(q, diagonal):
    return (q.reshape(S, H * n) @ diagonal).reshape(S, H, L)


# %%
predicted = absorb_heads_macs(S, H, n, L)
print(f"predicted for the absorb: {S} · {H} · {n} · {L} = {predicted:,} multiply-adds\n")
right = np.einsum("shn,hnc->shc", q, w)
ways = [("bmm", bmm, w), ("one sum", one_sum, w), ("block diagonal", block_diagonal, diagonal)]
for name, answer, weight in ways:
    result, counts = count(answer, q, weight)
    is_right = result.shape == right.shape and np.allclose(result, right, atol=1e-4)
    print(f"{name:15} {counts.macs:>11,} counted   {weight.size:>10,} weights   right: {is_right}")
    assert counts.macs == predicted * (H if name == "block diagonal" else 1)

# %% [markdown]
# The sum costs exactly what the bmm costs, so no profiler will tell you that it is wrong. The block-diagonal matrix is
# right, and costs `num_heads` times the multiply-adds and `num_heads` times the weights. The bmm is the cheap one *and*
# the right one. That is why engines never flatten the heads of a query before this step.

# %% [markdown]
# ## What is left after the absorb: many keys or one?
#
# Each head has its own absorbed query, of the latent's width. All of them are dotted with the same cached latents:
#
# $$\text{score}_{hst} = \sum_c \tilde q_{shc}\, c_{tc}$$
#
# The latent carries no $h$. To the attention that follows, this looks like multi-query attention (MQA): many query
# heads, one key head. Only the matrices that made the queries remember that the heads were different.

# %%
from ledger.account.attention import shared_latent_scores_macs

C = 4096
macs = shared_latent_scores_macs(1, C, heads, v3.latent_dim)
queries = [Box("q_nope", (heads, v3.nope_dim)), Arrow("own matrix\nfor each head")]
queries += [Box("q_absorbed", (heads, v3.latent_dim)), Arrow("dot", f"{macs / 1e6:.0f} M multiply-adds")]
queries += [Box("scores", (heads, C))]
cache = [Box("latents", (C, v3.latent_dim)), Arrow("read once", f"{C * v3.latent_dim * 2 / 2**20:.1f} MiB")]
cache += [Box("the same", "for all heads")]
lanes = [Lane("a query a head", queries, COLORS["absorb"]), Lane("one cache", cache, COLORS["latent"])]
flow(f"One new token, {C:,} cached tokens", lanes)

# %% [markdown]
# So which is it, the cache of MQA or the heads of MHA? Put MLA beside its relatives at the same widths once more, and
# look at the middle of the picture this time. (Here the rope part is in, so MLA's queries are as wide as the whole
# cache entry.)

# %%
from ledger.account.attention import family

schemes = family(v3)
print("      values cached   different keys   multiply-adds   FLOP a byte")
for scheme in schemes:
    print(f"{scheme.name}: {scheme.cache_values:>13,} {scheme.distinct_keys:>16,}", end=" ")
    print(f"{scheme.decode_macs():>15,} {scheme.intensity:>13.1f}")
print(f"\nMLA's query: {v3.latent_dim} absorbed + {v3.rope_dim} rope = {v3.cache_dim} wide")
pictures.family_bars(schemes, "DeepSeek-V3 widths, one layer")

# %% [markdown]
# From left to right: MLA caches less than twice what MQA does, shows every head a key of its own as MHA does, and pays
# for it in the third panel. Every score is a sum as wide as the cache entry, and every mixed value is as wide as the
# latent.
#
# The last column of the table says why it is one latent *for all heads* that pays. Each byte of MHA's cache serves one
# head. Each byte of MQA's and of MLA's serves all of them. MLA's latent serves twice, as key and as value, which is why
# its last number is nearly twice MQA's.
#
# Is it still the bytes that decode waits for?

# %%
from dataclasses import replace

from ledger.machines import machine

h200 = machine("H200")
print(f"{h200.name} by its datasheet: {h200.ridge():.0f} FLOP a byte")
for scheme in schemes:
    side = "its bytes" if scheme.intensity < h200.ridge() else "its arithmetic"
    print(f"{scheme.name}: {scheme.intensity:6.1f} FLOP a byte, waits for {side}")
shard = family(replace(v3, num_heads=v3.num_heads // 8))[-1]
print(f"MLA, {shard.query_heads} heads on each of 8 GPUs: {shard.intensity:.1f} FLOP a byte")

# %% [markdown]
# With all heads on one such GPU, a single new token is already past the ridge. Spread the heads over eight GPUs, and
# each keeps a whole copy of the latents for an eighth of the heads: it waits for bytes again.
#
# Kernels reach less than the datasheet on both sides, as chapter 7 shows.
#
# "A key of its own" needs a proof, since the cache holds no key at all. Build the keys of each head, as lesson 1's
# materialize does, and compare the scores:

# %%
latents = np.eye(3)  # [t, c]: the three cached tokens of lesson 1
keys = np.einsum("tc,hnc->thn", latents, w_kc)
from_keys = np.einsum("shn,thn->hst", q_nope, keys)
from_latents = np.einsum("shc,tc->hst", by_bmm, latents)
assert np.array_equal(from_keys, from_latents)
for head in range(num_heads):
    print(f"head {head}: keys {keys[:, head].tolist()}   scores {from_latents[head, 0]}")

# %% [markdown]
# The two heads see different keys for the same three tokens, and the absorbed queries give the same scores without
# them. Head 0's scores are those of lesson 1.

# %% [markdown]
# ## Does every head need its own copy of the latents?
#
# `np.matmul` pairs the matrices of a batch. So it is tempting to give each head a copy of the latents and to run the
# bmm of before once more. What is that copy at full width?

# %%
copy = v3.num_heads * C * v3.latent_dim * 2  # bf16: 2 bytes
print(f"latents of {C:,} tokens, one layer:  {C * v3.latent_dim * 2 / 2**20:6.1f} MiB")
print(f"a copy for each of {v3.num_heads} heads:   {copy / 2**20:6.1f} MiB, written and read at each step")

# %% [markdown]
# The copy would undo the whole saving. It is also not needed. A *row* of a product may come from anywhere, as long as
# it meets the same matrix. All heads meet the same latents, so heads and new tokens together are just rows:
#
# $$(h \cdot s,\; c) \times (c,\; t) = (h \cdot s,\; t)$$
#
# Here you may flatten the heads. Before the absorb the heads stood in the summed axis, and flattening added them up.
# Now they stand in the row axis, which nobody sums.

# %%
C = 500
q_absorbed = bmm(q, w)  # [s, h, c]
latents = rng.standard_normal((C, L), dtype=np.float32)  # [t, c]


def expanded(q_absorbed, latents):
    copies = np.repeat(latents[np.newaxis], H, axis=0)  # [h, t, c]
    return np.matmul(q_absorbed.transpose(1, 0, 2), copies.transpose(0, 2, 1))


def as_rows(q_absorbed, latents):
    rows = q_absorbed.transpose(1, 0, 2).reshape(H * S, L)
    return (rows @ latents.T).reshape(H, S, -1)


# %%
predicted = shared_latent_scores_macs(S, C, H, L)
print(f"predicted: {H} · {S} · {C} · {L} = {predicted:,} multiply-adds; {H} heads, {C} cached tokens\n")
for name, answer in [("a copy a head", expanded), ("heads as rows", as_rows)]:
    result, counts = count(answer, q_absorbed, latents)
    moved = (counts.bytes_read + counts.bytes_written) / 1e6
    print(f"{name}: {counts.macs:,} counted, {moved:5.1f} MB moved, largest array {counts.largest_shape}")
    assert counts.macs == predicted
    assert np.allclose(result, np.einsum("shc,tc->hst", q_absorbed, latents), atol=1e-3)

# %% [markdown]
# Same multiply-adds, same scores. The difference is in the bytes, and in the largest array that ever existed. With
# heads as rows it is the scores or the queries, and nothing is as large as `heads × tokens × latent`. `np.einsum` makes
# no copy either.
#
# A decode kernel goes further: it loads a tile of latents and uses it for a whole block of heads before it lets it go.
# So the more heads there are, the more work each loaded byte does. Chapter 7 builds its kernel on this.

# %% [markdown]
# ## Why not one merged matrix?
#
# Go one step back. In most models the query itself comes from a latent $c^Q$, through $W_{UQ}$. The absorb follows:
#
# $$\tilde q_h = \underbrace{c^Q\, W_{UQ,h}}_{q_h}\; W_{UK,h}^\top = c^Q\, M_h \qquad M_h = W_{UQ,h}\, W_{UK,h}^\top$$
#
# Two matrices in a row, and nothing between them: the norm comes before $W_{UQ}$, and RoPE only touches the other part
# of the query. So you may multiply them once, offline, and save one product at every step. It even sounds like what
# "absorb" means. Predict before you run the next cell: does $M$ need more memory than the two factors, or less?

# %%
from ledger.account.attention import merged_query_key_elements

merged, apart = merged_query_key_elements(v3.q_lora_dim, v3.latent_dim, v3.nope_dim, v3.num_heads)
print(f"merged: {v3.num_heads} · {v3.q_lora_dim} · {v3.latent_dim} = {merged:,} elements a layer")
print(f"apart:  {v3.num_heads} · {v3.nope_dim} · ({v3.q_lora_dim} + {v3.latent_dim}) = {apart:,}")
print(f"merged / apart = {merged / apart:.1f}")
print(f"in bf16, {v3.num_mla_layers} layers: {merged * 2 * v3.num_mla_layers / 1e9:.1f} GB", end=" ")
print(f"against {apart * 2 * v3.num_mla_layers / 1e9:.1f} GB")

# %%
up, down = heads * v3.nope_dim * v3.q_lora_dim, heads * v3.nope_dim * v3.latent_dim
first, last = Box("c_Q", (v3.q_lora_dim,)), Box("q_absorbed", (heads, v3.latent_dim))
two = [first, Arrow("W_UQ", f"{up / 1e6:.1f} M"), Box("q_nope", (heads, v3.nope_dim))]
two += [Arrow("W_UK of each head", f"{down / 1e6:.1f} M"), last]
one = [first, Arrow("M of each head", f"{merged / 1e6:.1f} M"), last]
lanes = [
    Lane("two products, through the narrow q_nope", two, COLORS["absorb"]),
    Lane("one product with the merged matrix", one, COLORS["materialize"]),
]
flow("One new token: elements read = multiply-adds", lanes)

# %% [markdown]
# Multiplying the matrices made them larger. One token uses each element once, so the same numbers are the
# multiply-adds of a token, and at decode they are the weights that every step has to read. Merging loses memory and
# time together.
#
# And it would not replace anything: the materializing route still needs $W_{UK}$ by itself. Is DeepSeek-V3 a special
# case?

# %%
pictures.merged_bars(MODELS)

# %% [markdown]
# No model in the list gains. The number of heads cancels, and what decides is the width that the two products go
# through:
#
# $$\frac{H\,d_q L}{H\,n\,(d_q + L)} = \frac{1}{n}\cdot\frac{d_q L}{d_q + L}$$
#
# with $H$ heads, $d_q$ for `q_lora_dim`, $L$ for `latent_dim` and $n$ for `nope_dim`. Merging pays only for heads wider
# than $d_q L/(d_q + L)$. Wide heads are why the GLM models stand lower; GLM-4.7-Flash has a narrow query latent on top.
#
# A model without a query latent projects from the hidden state instead, which takes the place of $d_q$:

# %%
print(f"DeepSeek-V3: merging pays from nope_dim {pictures.even_nope(v3):.0f} on; it has {v3.nope_dim}")
lite = model("DeepSeek-V2-Lite")
ratio = merged_query_key_elements(lite.hidden_dim, lite.latent_dim, lite.nope_dim, lite.num_heads).ratio
print(f"{lite.name}: {lite.hidden_dim} in place of q_lora_dim, merged / apart = {ratio:.1f}")

# %% [markdown]
# ## What does the merged matrix store?
#
# Nothing new. A product of a $(d_q \times n)$ and an $(n \times L)$ matrix has rank at most $n$, however large it is.
# You can see this in its singular values. Here are DeepSeek-V3's widths divided by 16, so that it takes no time.

# %%
q_small, n_small, latent_small = v3.q_lora_dim // 16, v3.nope_dim // 16, v3.latent_dim // 16
product = rng.standard_normal((q_small, n_small)) @ rng.standard_normal((n_small, latent_small))
singular = np.linalg.svd(product, compute_uv=False)

fig = new_figure(7.0, 3.0, alt="Singular values of a merged matrix fall to rounding error after nope_dim")
ax = fig.subplots()
ax.semilogy(np.arange(1, latent_small + 1), singular / singular[0], "o", color=COLORS["materialize"])
ax.axvline(n_small + 0.5, color=COLORS["absorb"], linestyle=":")
ax.set(
    xlabel=f"singular value, of {latent_small}   (dotted: after nope_dim = {n_small})",
    ylabel="size, relative",
)
print(f"merged {q_small} × {latent_small}: rank {np.linalg.matrix_rank(product)} of {latent_small}")
fig

# %% [markdown]
# After `nope_dim` values comes rounding error. The merged matrix spends $d_q L$ numbers on what $n\,(d_q + L)$ numbers
# say exactly.
#
# Compare the cache: the keys of all heads are a wide thing made of one narrow latent, and you save by not building
# them. Merging makes the same mistake with weights. Two factors *are* the compressed form.

# %% [markdown]
# ## Do the predictions hold when it runs?
#
# You have two predictions. A block-diagonal matrix costs `num_heads` times the bmm. A merged matrix costs `merged /
# apart` times the two factors. Decode makes one token at a time, so take one. The heads are cut to 16 again, all other
# widths are DeepSeek-V3's, in float32. Of the times the lower quartile is kept, as in lesson 1.

# %%
S, q = 1, q[:1]
c_q = rng.standard_normal((S, v3.q_lora_dim), dtype=np.float32)
w_uq = rng.standard_normal((v3.q_lora_dim, H, n), dtype=np.float32) / np.float32(v3.q_lora_dim) ** 0.5
w_merged = np.matmul(w_uq.transpose(1, 0, 2), w).transpose(1, 0, 2).reshape(v3.q_lora_dim, H * L)
w_uq = w_uq.reshape(v3.q_lora_dim, H * n)


def two_products(c_q, w_uq, w):
    return bmm((c_q @ w_uq).reshape(S, H, n), w)


def one_merged(c_q, w_merged):
    return (c_q @ w_merged).reshape(S, H, L)


def loop(q, w):
    return np.stack([q[:, head] @ w[head] for head in range(H)], axis=1)


# %%
calls = {
    "bmm": (bmm, q, w),
    "loop": (loop, q, w),
    "block diagonal": (block_diagonal, q, diagonal),
    "two products": (two_products, c_q, w_uq, w),
    "merged": (one_merged, c_q, w_merged),
}
counted = {name: count(*call)[1].macs for name, call in calls.items()}
assert counted["loop"] == counted["bmm"] == absorb_heads_macs(S, H, n, L)
assert counted["block diagonal"] == H * counted["bmm"]
assert counted["merged"] * apart == counted["two products"] * merged
assert np.allclose(one_merged(c_q, w_merged), two_products(c_q, w_uq, w), atol=1e-3)

# %%
from functools import partial

from ledger.measure import ceilings, fast_half, time_pairs

times = time_pairs({name: partial(*call) for name, call in calls.items()}, seconds=0.4)
roof = ceilings("float32", device="cpu")
weight = {name: sum(a.nbytes for a in call[2:]) for name, call in calls.items()}
share = "of memory's ceiling"
print(f"{'':15} {'multiply-adds':>14} {'weights, MB':>12} {'µs':>8} {'GB/s':>6} {share:>20}")
for name, timing in times.items():
    speed = weight[name] / timing.low
    print(f"{name:15} {counted[name]:>14,} {weight[name] / 1e6:>12.1f} {timing.low * 1e6:>8,.0f}", end=" ")
    print(f"{speed / 1e9:>6.1f} {speed / roof.bandwidth:>20.0%}")

# %%
pairs = [("block diagonal", "bmm", H), ("merged", "two products", merged / apart)]
fig = new_figure(8.0, 3.0, alt="Two ratios of dear to cheap routes: predicted, counted, measured")
for ax, (dear, cheap, guess) in zip(fig.subplots(1, 2), pairs, strict=True):
    ratios = {"predict": guess, "count": counted[dear] / counted[cheap]}
    ratios["measure"] = times[dear].low / times[cheap].low
    ax.bar(list(ratios), list(ratios.values()), color=[COLORS[kind] for kind in ratios], width=0.6)
    for place, ratio in enumerate(ratios.values()):
        ax.text(place, ratio, f"{ratio:.1f}", ha="center", va="bottom")
    ax.set_title(f"{dear} ÷ {cheap}", loc="left", fontsize=10.5)
    ax.margins(y=0.15)
fig

# %% [markdown]
# Prediction and count agree. The measured bars need an explanation, since seconds are another unit. With one new token
# each weight is read once and used once, so the time is the time of reading weights. That is why the table sets their
# speed beside the ceiling of the machine's memory. A share above 100% means that the weights came from a cache, or that
# the ceiling was measured while the machine was busy. Lesson 0 shows both.
#
# Where two rows read at the same speed, the ratio of their bytes is the ratio of their times, and it is the predicted
# one. Where the cheap route reads faster, look at its weights: they may fit into a cache of the processor where the
# dear ones do not. Then the dear route looks even worse than predicted. In a server nothing stays in a cache for long,
# since each step reads the whole model. Where the cheap route reads more slowly, it has more and smaller products, and
# each call has a fixed price.
#
# The loop has the multiply-adds of the bmm, and a call for each head on top. On a GPU those calls are kernel launches.
# If another program runs beside this page, run the last two cells again: what it takes is not shared out evenly.

# %% [markdown]
# torch counts the same.

# %% tags=["no-browser"]
if torch is None:
    print("torch is not installed here, so this cell has nothing to count.")
else:
    _, counts = count(
        lambda a, b: torch.bmm(a.transpose(0, 1), b), torch.from_numpy(q), torch.from_numpy(w)
    )
    print(f"torch.bmm: {counts.macs:,} counted, {absorb_heads_macs(S, H, n, L):,} predicted")
    assert counts.macs == absorb_heads_macs(S, H, n, L)

# %% [markdown]
# What does a GPU do with them, all heads in 16 bits? With one new token it reads weights, and bytes over bandwidth is
# the least time. Data sheets give the bandwidth.

# %%
from ledger.machines import MACHINES

print(f"two products: {2 * apart / 1e6:.0f} MB of weights, merged: {2 * merged / 1e6:.0f} MB")
for gpu in MACHINES.values():
    least = [1e6 * 2 * elements / gpu.bandwidth for elements in (apart, merged)]
    print(f"{gpu.name:5} at least {least[0]:5.1f} µs for the two products, {least[1]:5.1f} µs merged")

# %% [markdown]
# Where torch finds a GPU, the next cell measures both routes there: in bf16, or in fp16 on a GPU that has no bf16 of
# its own, as a T4.

# %% tags=["no-browser"]
if torch is None or not torch.cuda.is_available():
    print("torch finds no GPU here: the bounds above are all that this page can say of one.")
else:
    half = fast_half()
    sizes = ((1, S, v3.q_lora_dim), (heads, v3.q_lora_dim, n), (heads, n, L))
    dtype, gpu = getattr(torch, half), ceilings(half, device="cuda")
    latent_q, up, down = (torch.randn(s, device="cuda", dtype=dtype) for s in sizes)
    both = torch.bmm(up, down)
    routes = {"two products": lambda: (latent_q @ up) @ down, "merged": lambda: latent_q @ both}
    read = {"two products": up.nbytes + down.nbytes, "merged": both.nbytes}
    print(f"{gpu.device}, {half}")
    for name, timing in time_pairs(routes).items():
        speed = read[name] / timing.low
        print(f"{name}: {read[name] / 1e6:.0f} MB in {timing.low * 1e6:.1f} µs,", end=" ")
        print(f"{speed / 1e9:,.0f} GB/s, {speed / gpu.bandwidth:.0%} of memory's ceiling")

# %% [markdown]
# The two factors together may nearly fit the GPU's L2 cache; the merged matrix does not. A share above 100% says that
# weights stayed there from one call to the next.

# %% [markdown]
# ## Can your own GPU do it, even in a browser?
#
# WebGPU reaches the GPU of almost any machine: from Python through the package `wgpu`, and on the browser's version of
# this page through the browser. Does it find one here?

# %%
from ledger.kernels import web

missing = web.available()
print(missing or f"The kernels of this course run on: {web.adapter_name()}")

# %% [markdown]
# The kernel is `kernels/web/absorb_heads.wgsl`. Its lanes run side by side. Each makes one column of $\tilde q$ of one
# head, for up to eight new tokens. This is its inner loop:

# %%
print(web.source("absorb_heads").split("// accumulate\n")[1].split("    workgroupBarrier")[0])

# %% [markdown]
# A weight is read once and used for eight tokens, and the lanes next to each other read weights next to each other. So
# the time should follow the bytes, and nearly all bytes are `w_kc`. Predict them, run the kernel, hold the result
# against the float64 oracle, and measure.

# %%
from ledger.account.attention import absorb_heads_bytes
from ledger.reference import mla

if missing is None:
    q_all = rng.standard_normal((8, heads, n), dtype=np.float32)
    w_all = rng.standard_normal((heads, n, L), dtype=np.float32)
    right = mla.absorb_heads(q_all.astype(float), w_all.astype(float))
    error = np.abs(web.absorb_heads(q_all, w_all) - right).max()
    seconds = web.time_kernel(web.absorb_heads, q_all, w_all).low
    nbytes = absorb_heads_bytes(8, heads, n, L, itemsize=4).total
    print(f"largest error against float64: {error:.1e}, in values up to {np.abs(right).max():.0f}")
    print(f"{nbytes / 1e6:.1f} MB in {seconds * 1e3:.3f} ms: {nbytes / seconds / 1e9:.3g} GB/s")
    print(f"{absorb_heads_macs(8, heads, n, L) / seconds / 1e9:.3g} billion multiply-adds a second")

# %% [markdown]
# The error is that of float32 sums. Now compare the GB/s with what your GPU's data sheet promises. A software adapter
# (llvmpipe, SwiftShader) runs the same text on the CPU: its numbers are right, and its speed says nothing about a GPU.
#
# To experiment, take the text, change it and run it: `web.absorb_heads(q, w, wgsl=text)`. If it does not compile, the
# exception shows the line. [Lesson 7](../ch07_decode_kernel/decode_kernel.ipynb) takes a decode kernel apart, and runs
# this folder's other one, `mla_decode`, on your GPU.

# %% [markdown]
# ## What happens when you turn the knobs?
#
# Left: the cache of the four schemes while the number of heads grows. Right: the elements of $W_{UQ}W_{UK}$, merged and
# apart, while the heads get wider. Three things to try:
#
# * Double `num_heads`. Which caches do not grow, and which of those still show a key to every head?
# * Move `nope_dim` until merging loses nothing.
# * Take GLM-4.7-Flash. Say before you look whether it is nearer to that point than DeepSeek-V3.
#
# (A new model sets both sliders to its own widths. GQA has 4 groups here, because not every model's heads split into 8.)

# %%
pictures.HeadsExplorer().show()

# %% [markdown]
# On the left only MHA grows with the heads. Of the three that do not, MLA alone still shows each head a key of its own.
#
# On the right the merged line is flat, because $M$ has no `nope_dim` in its shape, while the factors grow with it. The
# diamond marks where they meet. Every published model stands to the left.

# %% [markdown]
# ## What do engines do?
#
# All of this, under other names. In SGLang:
#
# * `models/minicpm3.py` cuts `kv_b` at the end of `load_weights`, into `w_kc` and `w_vc`, and then deletes it. Its
#   `forward` is a `torch.bmm` on `w_kc`, the attention, and a `torch.bmm` on `w_vc`. The attention is told that it
#   has one KV head, as wide as latent and rope together.
# * DeepSeek's models cut in the same way, in `models/deepseek_common/`: the cut is in `deepseek_weight_loader.py`, the
#   bmm on `w_kc` (in FP8 where the weight is) in `attention_forward_methods/forward_mla.py`. But they keep `kv_b`: their
#   materializing route, `forward_mha.py`, needs it.
#
# In vLLM, all of it is in `model_executor/layers/attention/mla_attention.py`:
#
# * `process_weights_after_loading` makes `W_UK_T` and `W_UV`, which are `w_kc` and `w_vc`. A weight that is quantised
#   is converted back to 16-bit numbers for this, because the bmm is a 16-bit one. (On AMD with aiter it can be FP8 or
#   FP4, and the attributes are then `W_K` and `W_V`.)
# * It keeps `kv_b` as well. Prefill materializes with it, so this weight is there twice.
# * The decode path is called `forward_mqa`, and `num_kv_heads` is 1.
#
# None of these files multiplies $W_{UQ}$ and $W_{UK}$.

# %% [markdown]
# ## How to explain it
#
# *"`kv_b` is a stack of small matrices, two for each head. We cut it once, at load time. At each decode step every
# query head goes through its own key matrix, which is a bmm over heads, and comes out as wide as the latent. From there
# it is MQA: all heads read the same cache entry. The heads still differ, but the difference sits in the queries. And
# the two query matrices stay apart, because going through the narrow middle costs less than their wide product."*
#
# If somebody asks why it is not one big product: *"Before the absorb the head would be in the summed axis. After it the
# heads are rows, and then it is one big product."*

# %% [markdown]
# ## Summary
#
# * `kv_b` is head-major, each head [nope | value]. Cut once, it gives `w_kc` (heads, nope, latent) and `w_vc` (heads,
#   latent, value).
# * Absorb for all heads is a bmm: $\tilde q_{shc} = \sum_n q_{shn} W_{hnc}$, with $S H\,n\,L$ multiply-adds. The
#   head axis pairs, and is never summed.
# * Flattening heads before the absorb adds them up, for the same price and without an error. A block-diagonal matrix is
#   right and costs `num_heads` times as much.
# * After the absorb, `num_heads` different queries share one latent a token: MQA's cache, MHA's heads, and wider sums.
#   Heads are rows there, and no latent is copied.
# * $W_{UQ} W_{UK}$ merged is $\frac{1}{n}\cdot\frac{d_q L}{d_q+L}$ times the size of its factors, with a rank of at
#   most $n$ for each head.

# %% [markdown]
# ## Exercises to do next
#
# 1. [split_kv_b](../../practice/ch02_heads/heads.ipynb#cell-id=split_kv_b-statement): cut the packed weight, with a
#    reshape.
# 2. [absorb_heads](../../practice/ch02_heads/heads.ipynb#cell-id=absorb_heads-statement): every head through its own
#    matrix, in at most two counted products.
# 3. [scores_shared_latent](../../practice/ch02_heads/heads.ipynb#cell-id=scores_shared_latent-statement): all heads
#    against one set of latents. The judge looks for copies.
# 4. [merged_weight_ratio](../../practice/ch02_heads/heads.ipynb#cell-id=merged_weight_ratio-statement): what merging
#    would cost a model that you have not seen.
#
# ```
# python judge.py 2
# ```
#
# Then go on to [lesson 3](../ch03_values/values.ipynb): the values, where the same trick stands after the softmax.
