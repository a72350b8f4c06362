# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 6 Cache, capacity, which path when
#
# Five lessons have shown that nothing is lost when the cache holds a latent in place of keys and values. This one asks
# what is gained: bytes, and with them requests that a GPU can serve.
#
# **The question:** how small is the cache really, how many requests fit, and which of the two paths should an engine
# take for each of them?

# %% [markdown]
# ## Can you skip this lesson?
#
# Answer these six. If you get them right, go to the exercises at the end.
#
# 1. How many values does DeepSeek-V3 cache for a token in one layer, and how many would full keys and values take?
# 2. One format takes 656 bytes for these values. Which bytes are they?
# 3. You double the GPUs of a tensor-parallel group. How many more tokens does each of them hold?
# 4. An engine absorbs up to 512 new tokens and materializes beyond. Between which two numbers of new tokens does it pay
#    more multiply-adds than it must?
# 5. A context is attended to in two chunks. What do you need of each chunk, besides its output?
# 6. Both paths are the same algebra. Do they make the same rounding errors? And what happens to them when the cache is
#    stored in FP8?
#
# <details><summary>Answers</summary>
#
# 1. 512 + 64 = 576, one entry for all heads. In full 128 · (128 + 64 + 128) = 40,960, 71 times as many.
# 2. 512 for the latent in e4m3, 16 for its four fp32 scales, 128 for the rotary key in bf16.
# 3. None. The heads are shared out, but each GPU needs the whole latents. The cache is replicated.
# 4. From the crossover on, about 171 in a long context, up to 512. At 512 it pays almost twice.
# 5. The log-sum-exp of its scores. A chunk counts by its share of the sum of exponentials.
# 6. No: of about the same size in bf16, but not the same. With an FP8 cache the entry's own rounding is about ten
#    times larger, and which path reads it hardly matters.
#
# </details>
#
# (The next cell keeps NumPy's products to one core, so that the times on this page repeat.)

# %%
import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")

# %% [markdown]
# ## What does a token leave in the cache?
#
# Take a toy that you can count by hand: two heads, a latent of width 3, nope 2, rope 1, value 2. Latent attention
# stores $[\,c \mid k_\text{rope}\,]$ once. A full cache stores a key and a value for each head, and each key repeats the
# rotary part.
#
# $$\text{latent: } L + r = 3 + 1 = 4 \qquad\qquad \text{full: } h\,(n + r + v) = 2\,(2 + 1 + 2) = 10$$
#
# Build both and count what is there.

# %%
import numpy as np

toy_c, toy_rope = np.array([1, 0, 2]), np.array([5])
toy_k = np.array([[[1, 0, 1], [0, 2, 1]], [[0, 1, 2], [1, 0, 1]]])  # [h, n, c]
toy_v = np.array([[[1, 0], [0, 1], [0, 1]], [[7, 9], [7, 9], [7, 9]]])  # [h, c, v]

entry = np.concatenate([toy_c, toy_rope])
full = [np.concatenate([toy_k[head] @ toy_c, toy_rope, toy_c @ toy_v[head]]) for head in range(2)]
print("entry:", entry, " ", entry.size, "values")
for head, values in enumerate(full):
    print(f"head {head}: key {values[:3]}, value {values[3:]}")
print("full:", sum(values.size for values in full), "values")

# %% [markdown]
# The 5 stands in the entry once and in the full cache once a head. Everything else in the full cache was computed from
# the latent, and can be again.
#
# Now at the widths of real models. Predict one row before you look: Kimi K2.5 has DeepSeek-V3's widths and half its
# heads.

# %%
from ledger.account.cache import cache_values_per_token
from ledger.models import MODELS, model

print("                     heads   nope  rope  value   latent entry      full    ratio")
for name in ("DeepSeek-V3", "Kimi-K2.5", "GLM-5.2", "GLM-4.7-Flash", "Mistral-Small-4-119B", "MiniCPM3-4B"):
    m, values = model(name), cache_values_per_token(model(name))
    print(f"{name:21} {m.num_heads:4} {m.nope_dim:6} {m.rope_dim:5} {m.value_dim:6}", end="")
    print(f"{values.latent:15} {values.full:9,} {values.ratio:7.1f} ×")

# %% [markdown]
# The entry does not know how many heads there are, so models with the same latent share one number and their ratios
# differ. The ratio falls with the heads: half the heads, half the gain. (Lesson 2 set the entry beside the caches of MHA,
# GQA and MQA.)
#
# **Who caches in full?** The Hugging Face reference does: `modeling_deepseek_v3.py` expands keys and values first and
# hands the expanded tensors to its cache. It is right, and easy to read, and it pays the last column. Serving engines
# store the entry.

# %% [markdown]
# ## How many bytes are 576 values?
#
# That depends on the format, and three are in use. The first column is its name in engines' code or close to it.
#
# | format | latent | scales | rotary key |
# |---|---|---|---|
# | `bf16_mla` | bf16 | | bf16 |
# | `fp8_ds_mla` | e4m3 | one fp32 number for each 128 values | bf16 |
# | `fp8_plain_mla` | e4m3 | (one for the whole cache) | e4m3 |
#
# e4m3 is an 8-bit float: a sign, 4 bits of exponent, 3 of mantissa. The formula for the middle row:
#
# $$L + 4\,\lceil L / 128\rceil + 2r$$

# %%
from ledger.widgets import cache as pictures

v3 = model("DeepSeek-V3")
pictures.entry_strips(v3)

# %% [markdown]
# The middle strip costs 80 bytes more than the bottom one. They buy two things, scales and an exact rotary key, and the
# section on rounding below shows what those are worth.
#
# Does the formula count right? Pack a real entry, byte by byte, and take its length. NumPy has no bf16: the upper half
# of a float32 is one, so 16-bit integers carry it here.

# %%
from ledger.account.cache import CACHE_FORMATS, cache_bytes_per_token, entry_bytes
from ledger.reference.formats import E4M3_MAX, quantize_e4m3, round_bf16

rng = np.random.default_rng(6)
L, r = v3.latent_dim, v3.rope_dim
latent, k_rope = (rng.standard_normal(width, dtype=np.float32) for width in (L, r))
tiles = latent.reshape(-1, 128)
scales = np.abs(tiles).max(axis=1) / np.float32(E4M3_MAX)  # [tiles]
codes = quantize_e4m3(tiles / scales[:, None])
upper_half = (round_bf16(k_rope).view(np.uint32) >> 16).astype(np.uint16)

packed = codes.tobytes() + scales.tobytes() + upper_half.tobytes()
print(f"counted: {codes.nbytes} + {scales.nbytes} + {upper_half.nbytes} = {len(packed)} bytes")
print(f"predicted: {tuple(entry_bytes(v3, 'fp8_ds_mla'))}")
assert len(packed) == cache_bytes_per_token(v3, "fp8_ds_mla")

# %% [markdown]
# 656 is so well known that code and slides treat it as a constant. It is the value of a formula at two widths:

# %%
print("                  latent  rope ", *(f"{name:>14}" for name in CACHE_FORMATS))
for name in ("DeepSeek-V3", "GLM-5.2", "Mistral-Small-4-119B", "MiniCPM3-4B"):
    m = model(name)
    sizes = [cache_bytes_per_token(m, cache_format) for cache_format in CACHE_FORMATS]
    print(f"{name:21} {m.latent_dim} {m.rope_dim:5} ", *(f"{size:14,}" for size in sizes))

# %% [markdown]
# ### What does an indexer add?
#
# DeepSeek-V3.2 and the GLM-5 models attend to a selection of the cache (chapter 10). A small network, the indexer,
# scores all cached tokens to make the selection, and keeps a key of its own for each: `index_dim` e4m3 values and one
# fp32 scale, in the layers that own an indexer. How much is that?

# %%
from ledger.account.cache import indexer_bytes_per_token

key = indexer_bytes_per_token(model("DeepSeek-V3.2"))
print(f"an indexer's key: {model('DeepSeek-V3.2').index_dim} + 4 = {key} bytes\n")
print("                 layers   own an indexer    over bf16   over fp8_ds_mla")
for name in ("DeepSeek-V3.2", "GLM-5", "GLM-5.2"):
    m = model(name)
    keys = m.num_indexer_layers * key
    over = [keys / (m.num_mla_layers * cache_bytes_per_token(m, f)) for f in ("bf16_mla", "fp8_ds_mla")]
    print(f"{name:15} {m.num_mla_layers:6} {m.num_indexer_layers:12} {over[0]:16.1%} {over[1]:14.1%}")

# %% [markdown]
# You may read that "the indexer adds 11 %". That is the first row, against bf16. The engines that run these models
# store the FP8 entry, and against that the same key weighs nearly twice as much. GLM-5.2 found a way down: most of its
# layers own no indexer and reuse the selection of a layer before them.

# %% [markdown]
# ## How many tokens fit on a GPU?
#
# A token leaves an entry in *every* layer of latent attention, and the indexer's keys where there are any. Say that
# weights, activations and the kernels' own buffers leave 30 % of each GPU for the cache. How many tokens fit, and how
# many requests of 8,192? Predict the first row: it is a division.

# %%
from ledger.account.cache import model_bytes_per_token, requests_that_fit, tokens_that_fit
from ledger.machines import machine

h200, request = machine("H200"), 8192
free = 0.3 * h200.memory
print(f"{h200.name}: {h200.memory / 1e9:.0f} GB (of 10^9), {h200.memory / 2**30:.1f} GiB (of 2^30)")
print(f"free for the cache: {free / 1e9:.1f} GB\n")
print(f"               MLA        bytes a token                tokens   requests of {request:,}")
print("            layers      bf16    fp8_ds        bf16      fp8_ds      bf16    fp8_ds")
for name in ("DeepSeek-V3", "DeepSeek-V3.2", "GLM-5.2", "Kimi-K3", "LongCat-Flash"):
    m, two = model(name), ("bf16_mla", "fp8_ds_mla")
    row = [f"{model_bytes_per_token(m, f):10,}" for f in two]
    row += [f"{tokens_that_fit(free, m, f):12,}" for f in two]
    row += [f"{requests_that_fit(free, request, m, f):10,}" for f in two]
    print(f"{name:14}{m.num_mla_layers:4}", *row, sep="")

# %% [markdown]
# Read the column of layers again. Kimi K3 has 93 decoder layers and latent attention in 24 of them. LongCat has 28, and
# two attentions in each. Whoever multiplies by `num_layers` is wrong by a factor of four or of two.
#
# Mind the unit too. A datasheet's GB is $10^9$ bytes, a tool that prints GiB divides by $2^{30}$, and mixing them loses
# 7 %. (Left out here: the MTP layer's entries, and the last page of each request, which is not full.)
#
# What would the full cache hold in the same bytes?

# %%
from ledger.account.cache import full_bytes_per_token

everything = v3.num_mla_layers * full_bytes_per_token(v3)
kept = tokens_that_fit(free, v3, "bf16_mla")
print(f"full: {everything / 1e6:.2f} MB a token, {int(free // everything):,} tokens on one GPU")
print(f"latent: {model_bytes_per_token(v3, 'bf16_mla') / 1e6:.3f} MB a token, {kept:,} tokens")

# %% [markdown]
# ## What does tensor parallelism replicate?
#
# DeepSeek-V3's weights do not fit on one GPU, so a group of them shares each layer. Tensor parallelism deals out the
# heads. What does each GPU then need of the cache?

# %%
from ledger.widgets.base import COLORS, new_figure, plain_ticks
from ledger.widgets.flow import Arrow, Box, Lane, flow

own, tokens = v3.num_heads // 8, 4096  # heads of one GPU, cached tokens
mha = [Box("queries", (own, v3.qk_dim)), Arrow("attend to")]
mha += [Box("keys and values", (tokens, own, v3.qk_dim + v3.value_dim))]
mla = [Box("queries", (own, v3.cache_dim)), Arrow("attend to"), Box("entries", (tokens, v3.cache_dim))]
each = full_bytes_per_token(v3, 8), cache_bytes_per_token(v3, "bf16_mla")
for items, size in zip((mha, mla), each, strict=True):
    items += [Arrow("read", f"{tokens * size / 1e6:.1f} MB"), Box("output", (own, v3.value_dim))]
lanes = [Lane("MHA: a GPU keeps the keys and values of its heads", mha)]
lanes += [Lane("MLA: a GPU keeps every entry, whole", mla, COLORS["latent"])]
flow(f"One of 8 GPUs, {tokens:,} cached tokens, one layer", lanes)

# %% [markdown]
# The latent has no head axis. A head's score needs all 512 features of it, and there is nothing to deal out. So every
# GPU of the group keeps the same entries: the latent is **replicated**, and so are the rotary key and the indexer's key.

# %%
from ledger.account.attention import family

gqa, ranks = family(v3)[1], [2**k for k in range(8)]
lines = {"MHA": [full_bytes_per_token(v3, gpus) for gpus in ranks]}
lines["GQA, 8 groups"] = [gqa.cache_bytes // min(gpus, gqa.kv_heads) for gpus in ranks]
lines["MLA"] = [cache_bytes_per_token(v3, "bf16_mla")] * len(ranks)
for gpus in ranks:
    fits = tokens_that_fit(free, v3, "bf16_mla", tensor_parallel=gpus)
    assert fits == kept, "tensor parallelism changes nothing"

# %%
fig = new_figure(8.2, 3.2, alt="Bytes a GPU holds of one token in one layer, over the GPUs of the group")
ax = fig.subplots()
for (name, held), color in zip(lines.items(), ("neutral", "rope", "latent"), strict=True):
    ax.plot(ranks, held, "o-", color=COLORS[color])
    for at in (0, 3) if color == "rope" else (0, 3, -1):  # at the end GQA's is MHA's
        text = f"{name}: {held[at]:,}" if at == 0 else f"{held[at]:,}"
        place = dict(xytext=(3, -11 if color == "rope" and at else 10), textcoords="offset points")
        ax.annotate(text, (ranks[at], held[at]), color=COLORS[color], va="center", **place)
ax.set(xscale="log", yscale="log", xlabel="GPUs that share the heads", ylabel="bytes a GPU, bf16")
ax.set(xlim=(0.9, 190), ylim=(350, 150000))
ax.set_xticks(ranks, ranks)
ax.minorticks_off()
plain_ticks(ax.yaxis)
fig

# %% [markdown]
# MLA's line is flat. MHA's falls, and goes below it only where every head has a GPU of its own. GQA's falls until
# each GPU has one group: at 8 GPUs a model with 8 groups holds *fewer* bytes on each than MLA does.
#
# That is why MLA models are served in another way. **Data parallelism for attention** gives each GPU its own requests,
# with all heads, and shares out the experts alone: n GPUs then hold n times the tokens. **Context parallelism** deals
# out the tokens of a request, and merges the results by log-sum-exp, which you are about to do.

# %% [markdown]
# ## What does another model or GPU do?
#
# Two models side by side, the second one hatched and hollow. Left: a token's bytes in all layers, part by part. Right:
# how many requests fit on one GPU, on a logarithmic axis.
#
# * Set tensor parallel to 1 and to 16. Which dots move?
# * Take GLM-5.2 and DeepSeek-V3.2, and compare what their indexers take.
# * Find a GPU and a length at which a full cache holds no request at all.

# %%
pictures.CacheExplorer().show()

# %% [markdown]
# ## Which path do engines take, and when?
#
# Lesson 5 computed where the two paths cost the same. For DeepSeek-V3 that is at about 171 new tokens in a long
# context, a little earlier in a short one. Does an engine look that number up?
#
# None was found that does. They go by labels and thresholds. For a lone request, at the time of writing:
#
# * **vLLM** asks how many new tokens a request has. Up to a threshold it counts as a decode and absorbs, beyond it is a
#   prefill and materializes. The threshold belongs to the attention backend: it says how many rows of a
#   request its decode kernel takes.
# * **SGLang** asks how many *cached* tokens a prefill has (with FlashAttention 3, FlashInfer or FlashMLA). Without any,
#   or with 8,192 and more, it materializes, in chunks where they are many. In between it absorbs. Decodes always absorb.
#
# Take six requests to each of the rules. In capitals: the path with more multiply-adds.

# %%
from ledger.account.cache import ENGINE_RULES
from ledger.account.crossover import crossover_limit, pick_path

limit = crossover_limit(v3.latent_dim, v3.nope_dim, v3.value_dim)
print(f"crossover in a long context: {limit:.2f} new tokens\n")
cases = [(1, 4096), (16, 4096), (256, 4096), (4096, 4096), (16, 32768), (256, 32768)]
print(f"{'new tokens':22}", *(f"{new:12,}" for new, _ in cases), sep="")
print(f"{'cached tokens':22}", *(f"{cached:12,}" for _, cached in cases), sep="")
rules = [("fewest multiply-adds", lambda new, cached: pick_path(new, cached, v3))]
for name, pick in [*rules, *ENGINE_RULES]:
    row = []
    for new, cached in cases:
        path, best = pick(new, cached), pick_path(new, cached, v3)
        row.append(f"{path if path == best else path.upper():>12}")
    print(f"{name:22}", *row, sep="")

# %% [markdown]
# What does each wrong turn cost? The model knows: divide the multiply-adds of the chosen path by those of the cheaper
# one. The picture does it for every number of new tokens.

# %%
pictures.overpay_lines(v3, (4096, 32768))

# %%
looked_at = [*range(1, 601), 1024, 2048, 4096, 8192]
print("the worst                 4,096 cached           32,768 cached")
for rule in ENGINE_RULES:
    row = ""
    for cached in (4096, 32768):
        pays = {new: pictures.overpay(rule.pick, v3, new, cached) for new in looked_at}
        worst = max(pays, key=pays.get)
        row += f"  {pays[worst]:6.2f} × at {worst:5,} new"
    print(f"{rule.name:22}{row}")

# %% [markdown]
# Rule by rule:
#
# * **A threshold of 1** is right for plain decoding, and dear from two new tokens on: a few drafted tokens that are
#   verified as a "prefill" rebuild the whole cache, at dozens of times the multiply-adds. (With drafts in use, vLLM
#   raises the threshold to their number where the backend's kernel allows it.)
# * **A threshold of 128** stays below the crossover, so its only loss is a small one just above it. Of the three fixed
#   thresholds it follows the model best.
# * **A threshold of 512** is past the crossover, and absorbs a few hundred tokens at up to twice the multiply-adds. For
#   a whole chunk of prefill that is real time.
# * **SGLang's rule** does not see the new tokens at all. With a short prefix it absorbs even a long prompt; with a long
#   prefix it materializes even for a few tokens.
#
# Before you call this a bug, remember what the formula leaves out. Materializing writes expanded keys and values: lesson
# 5 computed, for an H200, that the crossing in *time* then comes later. Rows of different requests share a kernel.
# The new tokens attend to each other too, which matters where they are more than the cached ones. And a 512-row
# threshold makes sense on a GPU whose absorbed kernel is the better tuned one. The formula tells you which decision to
# measure.

# %% [markdown]
# ## How do you materialize a context that does not fit?
#
# Materialize expands what was cached. For all heads of one layer, in bf16:

# %%
from ledger.account.crossover import expanded_bytes

for tokens in (8192, 65536, 131072, 1 << 20):
    expanded, stored = expanded_bytes(tokens, v3), tokens * cache_bytes_per_token(v3, "bf16_mla")
    print(f"{tokens:9,} tokens: {expanded / 1e9:7.2f} GB expanded, {stored / 1e9:6.3f} GB of entries")

# %% [markdown]
# That is one layer's worth, thrown away after it, and still more than an engine can set aside. So it goes through the
# context in **chunks**: expand some entries, attend to them, keep the result, reuse the memory for the next chunk.
#
# Each chunk gives an output with a softmax of its own, and the log-sum-exp of its scores. With that, two results merge
# into one, as in [lesson 3](../ch03_values/values.ipynb).
#
# Here is the path, at DeepSeek-V3's widths with four heads. A prefill of 64 new tokens meets a cached context: first
# the new tokens attend to each other, causally, then to the context, chunk by chunk, without a mask.


# %%
def lane(name, entries, shape, tokens, how, which, last):
    items = [Box(entries, shape, COLORS["latent"]), Arrow("· W_K, · W_V")]
    items += [Box("keys, values", f"h × {tokens}"), Arrow(how), Box("output, lse", f"of the {which}")]
    items += [Arrow(last), Box("output, lse", "so far")]
    return Lane(name, items, COLORS["materialize"])


new_lane = lane("first: the new tokens", "entries", "s × (c+r)", "s", "attend, causal", "new", "start")
chunk_lane = ("entries", "chunk × (c+r)", "chunk", "attend", "chunk", "merge")
flow("Chunked context", [new_lane, lane("then, for each chunk of the context", *chunk_lane)])

# %%
from ledger.browser import IN_BROWSER

H, S, C = 4, 64, 256 if IN_BROWSER else 4096  # heads, new tokens, cached tokens
n, v = v3.nope_dim, v3.value_dim
w_kc = rng.standard_normal((H, n, L), dtype=np.float32) / np.float32(L) ** 0.5
w_vc = rng.standard_normal((H, L, v), dtype=np.float32) / np.float32(L) ** 0.5
queries = rng.standard_normal((H, S, n + r), dtype=np.float32)
cache = rng.standard_normal((C + S, L + r), dtype=np.float32)  # the new tokens' entries stand last
context, new_entries = cache[:C], cache[C:]
scale = (n + r) ** -0.5


# %%
def expand(entries):
    latents, k_rope = entries[:, :L], entries[:, L:]
    shared = np.broadcast_to(k_rope, (H, *k_rope.shape))
    return np.concatenate([latents @ w_kc.swapaxes(1, 2), shared], axis=-1), latents @ w_vc


def attend(queries, entries, mask=0.0):
    keys, values = expand(entries)  # [h, t, n+r], [h, t, v]
    scores = scale * (queries @ keys.swapaxes(1, 2)) + np.float32(mask)
    largest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - largest)  # [h, s, t]
    total = weights.sum(axis=-1, keepdims=True)
    return weights @ values / total, (largest + np.log(total))[..., 0]


def merge(output, lse, more, more_lse):
    both = np.logaddexp(lse, more_lse)
    return np.exp(lse - both)[..., None] * output + np.exp(more_lse - both)[..., None] * more, both


# %%
def over_context(queries, context, chunk, output, lse):
    for start in range(0, len(context), chunk):
        output, lse = merge(output, lse, *attend(queries, context[start : start + chunk]))
    return output, lse


def prefill(queries, new_entries, context, chunk):
    causal = np.triu(np.full((S, S), -np.inf), 1)
    return over_context(queries, context, chunk, *attend(queries, new_entries, causal))


whole, whole_lse = prefill(queries, new_entries, context, chunk=C)
for chunk in (C, C // 4, 100):
    output, lse = prefill(queries, new_entries, context, chunk)
    apart = np.abs(output - whole).max() / np.abs(whole).max()
    print(f"chunks of {chunk:5,}: {-(-C // chunk):3} of them, apart by {apart:.0e} of the largest output")
    assert np.allclose(output, whole, atol=1e-5)
    assert np.allclose(lse, whole_lse, atol=1e-4)

# %% [markdown]
# Equal up to rounding, whatever the chunk, also where it does not divide the context. One more check, by the other path
# and without any merge: absorb the queries and take one masked softmax over everything, in float64.

# %%
from ledger.reference.layer import decode_absorbed

by_token = queries.swapaxes(0, 1).astype(float)  # [s, h, n+r]
content = np.einsum("shn,hnc->shc", by_token[..., :n], w_kc.astype(float), optimize=True)
absorbed = np.concatenate([content, by_token[..., n:]], axis=-1)
exact = decode_absorbed(absorbed, cache.astype(float), w_vc, L, scale, causal=True).swapaxes(0, 1)
print(f"largest difference: {np.abs(whole - exact).max():.1e}, in outputs up to {np.abs(exact).max():.2f}")
assert np.allclose(whole, exact, atol=1e-5)

# %% [markdown]
# ### What does a smaller chunk cost?
#
# **Predict.** The products take the same multiply-adds in any order, and so does the scale, one multiplication for each
# of the $S\,H\,C$ scores. What shrinks is the memory: the keys and values of a chunk, $\text{chunk}\cdot H\,(n+r+v)$, and
# its scores, $S\,H\cdot\text{chunk}$. What is added is a merge for each chunk, two multiplications for each element of
# the output, $2\,S\,H\,v$.
#
# **Count** the context's part with the counter watching, and **measure** its time, and its memory at the height of the
# call.

# %%
from functools import partial

from ledger.account.crossover import materialize_macs
from ledger.count import count, peak_bytes
from ledger.measure import time_pairs

nothing = np.zeros((H, S, v), np.float32), np.full((H, S), -np.inf, np.float32)
chunks = [C, C // 4, C // 16, C // 64]
calls = {chunk: partial(over_context, queries, context, chunk, *nothing) for chunk in chunks}
seconds = {chunk: timing.low for chunk, timing in time_pairs(calls, seconds=0.3).items()}

# %%
products = materialize_macs(S, C, L, n, r, v, H)["total"]
print("         multiply-adds, millions         memory, MB      measured")
print("chunk       predicted    counted   predicted    peak           ms")
for chunk in chunks:
    predicted = products + S * H * C + -(-C // chunk) * 2 * S * H * v
    _, counts = count(calls[chunk])
    assert counts.macs == predicted
    _, peak = peak_bytes(calls[chunk])
    work, megabytes = (
        (predicted / 1e6, counts.macs / 1e6),
        (4 * chunk * H * (n + r + v + S) / 1e6, peak / 1e6),
    )
    print(f"{chunk:5,} {work[0]:15,.3f} {work[1]:10,.3f} {megabytes[0]:11.2f} {megabytes[1]:7.2f}", end="")
    print(f"{1e3 * seconds[chunk]:13.1f}")

# %% [markdown]
# Predicted and counted agree exactly: the merges add next to nothing, and the memory falls with the chunk. (NumPy's peak
# is higher than the prediction: it makes keys before it can join the rope part to them, and weights beside the scores. A
# fused kernel writes no scores at all.)
#
# Time need not rise. On a CPU a smaller chunk may even be faster, because its keys stay in the processor's cache. Only
# the smallest chunks pay, with products of few rows and a fixed price for each call. That is why engines take chunks of
# tens of thousands of tokens: large enough to be efficient, small enough to fit.

# %%
room = [expanded_bytes(65536, v3) / 1e9, 65536 * full_bytes_per_token(v3, 8) / 1e9]
print(f"{65536:,} tokens expanded, {v3.num_heads} heads:       {room[0]:.2f} GB in bf16")
print(f"the same on each of 8 GPUs, {v3.num_heads // 8} heads: {room[1]:.2f} GB")

# %% [markdown]
# Here tensor parallelism does help: what is expanded has heads, and they are shared out.

# %% [markdown]
# ## Same algebra, different rounding: how different?
#
# In real numbers the two paths are equal. A machine rounds, and each path rounds something else:
#
# | path | is rounded to bf16 on the way |
# |---|---|
# | materialize | every key, every value, the softmax weights, the output |
# | absorb | the absorbed queries, the softmax weights, the mixed latents, the output |
#
# And with an FP8 cache the entries themselves are rounded before any path sees them. First look at the formats: how far
# apart are neighbours?

# %%
from ledger.reference.formats import round_e4m3

print("      number        in bf16    error        in e4m3    error")
for x in (0.001, 0.0123, 1.1, 3.3, 27.0, 300.0, 500.0):
    x = np.array(x)
    b, e = round_bf16(x), round_e4m3(x)
    print(f"{x:12} {b:14.6g} {abs(b - x) / x:8.2%} {e:14.6g} {abs(e - x) / x:8.2%}")

# %%
fig = new_figure(8.2, 3.0, alt="Largest relative rounding error of bf16 and e4m3 over a number's size")
ax = fig.subplots()
octaves = 2.0 ** np.arange(-13, 12)
for name, rounding, color in (("bf16", round_bf16, "latent"), ("e4m3", round_e4m3, "value")):
    at = octaves * np.linspace(1, 2, 1001, endpoint=False)[:, None]  # numbers of each octave
    error = 100 * np.max(np.abs(rounding(at) - at) / at, axis=0)
    ax.plot(octaves, error, color=COLORS[color], label=name, drawstyle="steps-post")
ax.axvspan(0.02, 4, color=COLORS["grid"], alpha=0.6, label="most features of a normalised latent")
ax.set(xscale="log", yscale="log", ylim=(0.1, 400), xlabel="size of the number", ylabel="largest error, %")
ax.legend(loc="upper center", ncols=3)
fig

# %% [markdown]
# Both are floating formats: within their range the error is a constant share of the number. bf16 has 7 bits of mantissa
# and the range of float32. e4m3 has 3 bits, so its steps are sixteen times as wide, and it ends: below about 0.016 the
# steps stop shrinking, beyond 448 everything saturates.
#
# A latent has been through RMSNorm. Its features are around 1, and a scale for each 128 of them moves the tile to where
# e4m3 is best. **The rotary key has not been normalised.** Nothing bounds its features.

# %% [markdown]
# ### How large are the errors of the two paths?
#
# Now both paths in emulated bf16, and in float64 for comparison. `rd` rounds what a kernel would store. (Sums are kept
# wide, as tensor cores keep them in fp32.)


# %%
def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def materialize(q_nope, q_rope, latents, k_rope, w_kc, w_vc, rd):
    keys, values = rd(latents @ w_kc.swapaxes(1, 2)), rd(latents @ w_vc)  # [h, t, n], [h, t, v]
    scores = q_nope @ keys.swapaxes(1, 2) + q_rope @ k_rope.T
    return rd(rd(softmax(scale * scores)) @ values)


def absorb(q_nope, q_rope, latents, k_rope, w_kc, w_vc, rd):
    scores = rd(q_nope @ w_kc) @ latents.T + q_rope @ k_rope.T
    return rd(rd(rd(softmax(scale * scores)) @ latents) @ w_vc)


# %% [markdown]
# **Which inputs?** The errors depend on them, so here is what the numbers below are for: DeepSeek-V3's widths, four
# heads. Everything is drawn normal: weights scaled to keep sizes, latents normalised to a mean square of 1, rotary keys
# of size 1. The queries are scaled to make the attention soft or sharp, and in the last row all latents have a large
# part in common. All inputs are bf16 numbers, as a checkpoint's are. The error is that of the whole output,
# $\lVert o - o_{64}\rVert / \lVert o_{64}\rVert$.

# %%
tokens, rows = (256 if IN_BROWSER else 1024), 8  # cached and new


def inputs(sharpness, in_common=0.0, rope_size=1.0):
    rng = np.random.default_rng(14)
    latents = rng.standard_normal((tokens, L)) + in_common * rng.standard_normal(L)
    latents /= np.sqrt((latents**2).mean(axis=1, keepdims=True))
    k_rope = rope_size * rng.standard_normal((tokens, r))
    w_kc, w_vc = (rng.standard_normal(shape) / L**0.5 for shape in ((H, n, L), (H, L, v)))
    q_nope, q_rope = (sharpness * rng.standard_normal((H, rows, width)) for width in (n, r))
    return tuple(round_bf16(a) for a in (q_nope, q_rope, latents, k_rope, w_kc, w_vc))


# %%
from ledger.reference.formats import round_entry


def exactly(x):
    return x


def error(path, given, cache_format="bf16_mla"):
    q_nope, q_rope, latents, k_rope, w_kc, w_vc = given
    stored = round_entry(latents, k_rope, cache_format)
    output, wide = path(q_nope, q_rope, *stored, w_kc, w_vc, round_bf16), absorb(*given, exactly)
    return np.linalg.norm(output - wide) / np.linalg.norm(wide)


given = inputs(sharpness=1)
agree = np.abs(materialize(*given, exactly) - absorb(*given, exactly)).max()
print(f"both paths in float64, without rounding: apart by {agree:.0e}")
assert agree < 1e-12

# %%
ways = [(materialize, "bf16_mla"), (absorb, "bf16_mla")]
ways += [(path, f) for f in ("fp8_ds_mla", "fp8_plain_mla") for path in (materialize, absorb)]
print("error of the output                 bf16_mla           fp8_ds_mla        fp8_plain_mla")
print("inputs                         mater.    absorb     mater.    absorb     mater.    absorb")
settings = {"soft attention": {"sharpness": 0.5}, "medium": {"sharpness": 1}, "sharp": {"sharpness": 4}}
settings["medium, latents alike"] = {"sharpness": 1, "in_common": 3}
for name, setting in settings.items():
    given = inputs(**setting)
    print(f"{name:26}", *(f"{100 * error(path, given, f):8.2f} %" for path, f in ways))
given = inputs(sharpness=1)
m, a = (path(*given, round_bf16) for path in (materialize, absorb))
print(f"\nmedium, in bf16, one path from the other: {np.linalg.norm(m - a) / np.linalg.norm(a):.2%}")

# %% [markdown]
# Four readings:
#
# * In bf16 both paths are wrong by a few tenths of a percent, and neither is the better one everywhere. They differ from
#   each other about as much as from the right value: compare engines with a tolerance of that size, never bit for bit.
# * With an FP8 cache, in the first three rows, the entry's rounding drowns the path's. Both paths read the same rounded
#   entry, so it hardly matters which one you take.
# * The sharper the attention, the larger the error. A score's error becomes a *relative* error of its weight, and sharp
#   attention has large scores.
# * Where the latents are alike, the noise of many tokens averages out against what they have in common, and even FP8
#   comes close to bf16. Real latents lie somewhere between these rows. A single percentage for "FP8 cache" says nothing
#   without its inputs.

# %% [markdown]
# ### Why does the rotary key stay in bf16?
#
# The two FP8 formats above are close, since there the rotary key was as small as the latent. Let its features grow, with
# the same queries, and compare four ways to store an entry: the three formats, and one that
# gives the rotary key e4m3 *with* a scale.

# %%
from ledger.reference.formats import round_tiles


def stored_in_tiles(latents, k_rope):
    return round_tiles(latents), round_tiles(k_rope)


formats = {f: partial(round_entry, cache_format=f) for f in CACHE_FORMATS}
formats["rope in e4m3 with scales"] = stored_in_tiles
sizes, errors = [1, 2, 4, 8, 16, 32, 64, 128, 256], {name: [] for name in formats}
for size in sizes:
    q_nope, q_rope, latents, k_rope, *both = given = inputs(sharpness=0.5, rope_size=size)
    wide = absorb(*given, exactly)
    for name, store in formats.items():
        output = absorb(q_nope, q_rope, *store(latents, k_rope), *both, round_bf16)
        errors[name].append(100 * np.linalg.norm(output - wide) / np.linalg.norm(wide))

# %%
fig = new_figure(8.2, 3.5, alt="Error of the output over the size of the rotary key's features, by format")
ax = fig.subplots()
looks = zip(("o-", "s-", "D-", "^--"), ("latent", "neutral", "value", "rope"), strict=True)
for (name, curve), (mark, color) in zip(errors.items(), looks, strict=True):
    ax.plot(sizes, curve, mark, color=COLORS[color], label=name)
ax.set(xscale="log", yscale="log", ylim=(0.1, 200), ylabel="error of the output, %")
ax.set_xlabel("size of the rotary key's features (the latent's: 1)")
ax.set_xticks(sizes, [str(size) for size in sizes])
ax.minorticks_off()
ax.legend(loc="upper left")
fig

# %%
saved = cache_bytes_per_token(v3, "fp8_ds_mla") - (v3.latent_dim + 4 * 4 + v3.rope_dim + 4)
whole_entry = cache_bytes_per_token(v3, "fp8_ds_mla")
print(f"rope in e4m3 with one scale would save {saved} of {whole_entry} bytes, {saved / whole_entry:.0%}")

# %% [markdown]
# The 656-byte entry holds its line: it rounds the latent, and the latent's part of the score does not grow. Both e4m3
# ropes rise with the rotary key, because an error of a few percent of a *large* score is a large error. Scales do not
# help there. They help beyond 448, where the plain format saturates and its line turns up once more.
#
# So the rotary key stays in bf16 for three reasons that you can now show: it is not normalised, its error goes straight
# into the scores, and it is 64 values of 576, so exactness costs little.

# %% [markdown]
# ## What do engines do?
#
# * **vLLM**, `model_executor/layers/attention/mla_attention.py`: `forward_mqa` absorbs and `forward_mha` materializes.
#   What counts as a decode is `reorder_batch_threshold`, 1 unless the backend in `v1/attention/backends/mla/` says more:
#   `flashmla.py` 128, `flashattn_mla.py` 512. Cached context is gathered into a workspace of at most 65,536 tokens (a
#   little more only to give each request a page), expanded chunk by chunk, and merged by log-sum-exp. The layout of the
#   656-byte entry is described in `flashmla_sparse.py` and in FlashMLA's README.
# * **SGLang**, `models/deepseek_common/attention_backend_handler.py`, picks the path; `forward_mha.py` beside
#   `forward_mla.py` in `attention_forward_methods/` materializes in chunks and merges. The 8,192 are
#   `SGLANG_CHUNKED_PREFIX_CACHE_THRESHOLD`. Models with an indexer materialize prefills of up to 2,048 tokens of
#   context, and attend to all of it.
# * Against the copies of the latent: `--enable-dp-attention` in SGLang gives each GPU its own requests, and
#   `--decode-context-parallel-size` in vLLM deals out the tokens.
# * **Hugging Face transformers**, `models/deepseek_v3/modeling_deepseek_v3.py`, caches the expanded keys and values.
#
# Thresholds move between versions. The formulas do not.

# %% [markdown]
# ## How to explain it
#
# *"We cache one short vector a token and layer instead of a key and a value for each head: tens of times less, at 128
# heads about seventy times. All heads read it, so tensor parallelism cannot split it: more GPUs in the group, same
# capacity. In FP8 it shrinks again by not quite half, with the rotary part left in bf16, because nothing bounds it.
# Decode reads the entries as they are. A long prefill expands them in chunks and merges the chunks by log-sum-exp.
# Where one turns into the other, engines use thresholds; the multiply-adds say about 171 new tokens for DeepSeek-V3."*

# %% [markdown]
# ## Summary
#
# * Values a token and layer: $L + r$ for the latent, $h\,(n + r + v)$ in full. Bytes by format: $2(L+r)$,
#   $L + 4\lceil L/128\rceil + 2r$, $L + r$. An indexer's key takes $d_\text{index} + 4$ more, where a layer owns one.
# * Tokens that fit: free bytes over the bytes of all MLA layers and indexer keys. Tensor parallelism changes nothing,
#   because the latent is replicated.
# * Engines pick the path by thresholds. Against the model of multiply-adds, one of 1 is dear for a few new tokens, one of
#   512 is up to twice too dear, one of 128 is close.
# * A context is materialized in chunks and merged by log-sum-exp: equal to one pass, with the memory of one chunk.
# * Both paths round alike in size and differently in detail. An FP8 cache rounded about ten times as much on independent
#   inputs; the rotary key stays in bf16.

# %% [markdown]
# ## Exercises to do next
#
# 1. [cache_values_per_token](../../practice/ch06_cache/cache.ipynb#cell-id=cache_values_per_token-statement): the entry
#    and the full cache, in values.
# 2. [cache_bytes_per_token](../../practice/ch06_cache/cache.ipynb#cell-id=cache_bytes_per_token-statement): three
#    formats, computed from the model's widths.
# 3. [tokens_that_fit](../../practice/ch06_cache/cache.ipynb#cell-id=tokens_that_fit-statement): what one GPU holds, and
#    what more GPUs do not change.
# 4. [requests_that_fit](../../practice/ch06_cache/cache.ipynb#cell-id=requests_that_fit-statement): the same in
#    requests.
# 5. [merge_chunked_context](../../practice/ch06_cache/cache.ipynb#cell-id=merge_chunked_context-statement): a long
#    context, chunk by chunk, absorbed. The judge counts.
#
# ```
# python judge.py 6
# ```
#
# Then go on to [lesson 7](../ch07_decode_kernel/decode_kernel.ipynb), which makes a kernel of a decode step.
