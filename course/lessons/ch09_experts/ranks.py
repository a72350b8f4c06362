# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 9 Ranks: tokens travel, and so does attention
#
# The [first half](experts.ipynb) weighed a token's journey. Here it takes place: four processes, each with a quarter of
# the experts, exchange real tokens. The same processes then share something else, the cache of one request.
#
# **The question:** does a layer that is spread over ranks compute the same as one process, do exactly the predicted bytes
# travel, and can ranks share a cache that tensor parallelism can only copy?

# %% [markdown]
# ## Can you skip this lesson?
#
# Answer these six. If you get them right, go to the exercise at the end.
#
# 1. Which three things does a rank send for each token copy, there and back?
# 2. Why must numbers be exchanged before tokens can be?
# 3. A rank has no tokens in this step. What must it do, and what happens if it does not?
# 4. The layer on four ranks rounds to FP8 and bf16. May it still equal one process to the last bit? What could break that?
# 5. With 8 GPUs in a tensor-parallel group, how often does the group store a token of MHA's cache, and of MLA's?
# 6. Ranks share a cache by tokens. What do they exchange in a decode step, and does it grow with the cache?
#
# <details><summary>Answers</summary>
#
# 1. The token, in FP8 with scales, and the expert's number; back comes the output, in bf16.
# 2. A receiver must know how much comes from whom. No two ranks send the same numbers.
# 3. Join every exchange with nothing in its hands. If it does not, all others wait.
# 4. Yes, if one process rounds at the same places and every sum runs in the same order. Other batches of rows, other
#    numbers of threads, or sums in order of arrival break it.
# 5. MHA's once, each GPU its heads. MLA's eight times, because the latent has no heads to deal out.
# 6. Queries of all heads, and partial outputs with their log-sum-exps. It does not grow with the cache.
#
# </details>

# %% [markdown]
# ## Can you do an exchange by hand?
#
# One operation is enough for this lesson. In an **all-to-all** each rank hands over a list, one part for each rank, and
# gets a list, one part from each:
#
# $$\text{got}_r[s] = \text{gave}_s[r]$$
#
# It is a transposition. Three ranks; rank $r$ gives $r$ numbers to each, so rank 0 gives nothing at all. Write down what
# rank 2 gets before you look.

# %%
import numpy as np
from ledger.parallel.memory import play


def step(world):
    """Rank r gives r times the number 10 r + s to rank s."""
    gives = [np.full(world.rank, 10 * world.rank + to) for to in range(world.size)]
    return [part.tolist() for part in world.all_to_all(gives)]


for rank, got in enumerate(play(step, 3).results):
    print("rank", rank, "gets", got)

# %% [markdown]
# These three ranks live in this process. `play` runs each of them until it wants something that others have not given yet,
# exchanges, and runs each again from its start. On real processes the same function runs once, and waits.
#
# Rank 0 had nothing to give. Why did it call at all? Let it skip the call:


# %%
def skip_when_idle(world):
    return [] if world.rank == 0 else step(world)


try:
    play(skip_when_idle, 3)
except RuntimeError as error:
    print(type(error).__name__, "-", error)

# %% [markdown]
# In memory that is a message. In an engine, whose process lives on, it is a hang for all others, and the one at fault looks
# healthy. (A process that ends closes its connections, and the others fail at once.) **An idle rank joins every exchange.**
# With experts that is the rule, not the exception: the ranks step together, and some have no requests.

# %% [markdown]
# ## What travels in a layer?
#
# Each token copy takes the same road. It is sorted by the rank of its expert, sent, computed, sent back, put back into
# its place, and weighted. At DeepSeek-V3's width:

# %%
from ledger.account.experts import fit_floor, token_bytes
from ledger.models import model
from ledger.widgets.base import COLORS, new_figure
from ledger.widgets.ranks import journey_picture

v3, R = model("DeepSeek-V3"), 4
k, weigh = v3.experts_per_token, token_bytes(v3.hidden_dim)
journey_picture(v3)

# %% [markdown]
# $n$ and $m$ differ from rank to rank and from step to step. So the ranks first tell each other how many rows will come:
# a number for each pair, a few bytes.
#
# **Predict** what the pairs send. Four ranks with 24, 40, 0 and 16 tokens, the third is idle; 256 experts, 64 on each.

# %%
from ledger.account.experts import V3_ROUTING
from ledger.reference.experts import rank_loads, route_tokens
from ledger.widgets.ranks import traffic_picture

tokens = (24, 40, 0, 16)
rng = np.random.default_rng(9)
logits = rng.standard_normal((sum(tokens), v3.num_experts)) + 0.7 * rng.standard_normal(v3.num_experts)
ids, _ = route_tokens(logits, np.zeros(v3.num_experts), **V3_ROUTING)
of_rank = np.split(ids, np.cumsum(tokens)[:-1])
copies = np.stack([rank_loads(mine, v3.num_experts // R, R)[0] for mine in of_rank])  # [from, to]
print(f"copies from rank (down) to rank (across)\n{copies}")
print(f"{copies.sum()} copies = {sum(tokens)} tokens · {k}")
megabytes = {"dispatch": copies * weigh.dispatch / 1e6, "combine": copies.T * weigh.combine / 1e6}
traffic_picture(megabytes, "MB", digits=2)

# %% [markdown]
# The second picture is the first one turned over, and almost twice as heavy. The idle rank's row is empty in the first and
# full in the second: it has nothing to ask, and works for everybody else. On the diagonal stands what never leaves its
# rank; the formula counts it too.

# %% [markdown]
# ## Does the layer compute the same?
#
# Now four processes. To be quick on any machine the layer is scaled down: an eighth of DeepSeek-V3's widths, 32 experts,
# 8 to each rank, still in 8 groups of which 4 are open, and the same uneven tokens. `launch.run` starts a process for each
# rank, and `tour` is what each of them runs: the layer, the answer to this lesson's exercise, a decode step, a few
# timings. What **must** be equal, before you look?

# %% tags=["no-browser"]
import time

from ledger.exercises.dispatch_and_combine import ANSWER
from ledger.parallel import launch, steps
from ledger.parallel.tour import fails, tour

cached, sizes = 4097, (64, 2**12, 2**15, 2**18, 2**20, 2**22)  # tokens; bytes
start = time.perf_counter()
toured = launch.run(tour, R, cached, sizes, ANSWER)
print(f"{R} processes, {time.perf_counter() - start:.1f} s, most of it imports of torch")
layers = [found["experts"] for found in toured]
for rank, found in enumerate(layers):
    print(f"rank {rank}: {steps.TOKENS[rank]:2} tokens, {found['load']:3} copies to compute, ", end="")
    print(f"{found['calls']} exchanges, equal to one process to the last bit: {found['equal']}")
assert all(found["equal"] for found in layers)

# %% [markdown]
# The 4 exchanges are ids, codes and scales out and outputs home; before each go its counts. And equal to the last bit,
# although tokens were rounded to FP8 and outputs to bf16. That is no luck. One process was asked to round at the same
# places. An expert gets the same rows in one batch, so its products sum in the same order. And a token's outputs are
# summed in the order of its choices, not in that of their arrival.
#
# What happens without that care?

# %% tags=["no-browser"]
print(f"sums over experts in the order of arrival: {layers[0]['turned']:.0e} of the largest value")
print(f"nothing rounded to FP8 and bf16:           {layers[0]['rounded']:.0e}")

# %% [markdown]
# The order of a sum moves the last bits of float32. The formats move the second digit or so; that part is the price of small
# tokens, and it is the same in one process. So a test of such a layer has two halves: against one process that
# rounds alike, nearly exact; against one that does not round, with the tolerance of FP8.

# %% [markdown]
# ## Do the predicted bytes travel?
#
# **Count.** The world notes what a rank hands over, in each exchange and for each rank. **Predict** first: a token of
# this layer has 896 values. What does a copy weigh each way?

# %% tags=["no-browser"]
small = token_bytes(steps.HIDDEN)
print(f"a copy: {steps.HIDDEN} + {small.dispatch - steps.HIDDEN} out, {small.combine:,} back\n")
print("         copies   bytes of dispatch       copies to    bytes of combine       bytes of")
print("rank       sent  predicted  counted       compute  predicted  counted     expert ids")
for rank, found in enumerate(layers):
    sent, out, home = found["sent"], found["copies"] * small.dispatch, found["load"] * small.combine
    counted = sent["codes"] + sent["scales"]
    print(f"{rank:3} {found['copies']:11} {out:10,} {counted:8,}", end="")
    print(f"{found['load']:14} {home:10,} {sent['outputs']:8,} {sent['ids']:14,}")
    assert (counted, sent["outputs"]) == (out, home)

# %% [markdown]
# Byte by byte. At the full width the same two formulas give 7,392 and 14,336. The ids are 8 bytes a copy, a thousandth of a
# token at full width, and no formula of the course counts them.
#
# The exercise below asks for the same layer in plain steps: nothing is rounded, and a copy travels with its expert's
# number and comes home. Its reference answer ran on the same four processes, in float64, with 64 values a token. A copy
# is 64 · 8 + 8 bytes out and 64 · 8 bytes back; a rank without tokens of its own sends outputs alone.

# %% tags=["no-browser"]
for rank, found in enumerate(found["answer"] for found in toured):
    print(f"rank {rank}: off by {found['error']:.0e} from one process, ", end="")
    print(f"{found['leaving']:7,} bytes left for other ranks, {found['need']:7,} needed")
    assert found["error"] < 1e-12
    assert found["leaving"] == found["need"]

# %% [markdown]
# ## What if a rank dies?
#
# It will, some day, in a group of hundreds. `launch.run` looks at the processes; torch looks at the connections, and at the
# clock. Of two ranks one dies without a word between two exchanges, and in another run it hangs:

# %% tags=["no-browser"]
for how in ("dies", "hangs"):
    start = time.perf_counter()
    try:
        launch.run(fails, 2, how, seconds=1)
    except launch.RankFailed as error:
        print(f"{how}, after {time.perf_counter() - start:.1f} s with the start: {error}")

# %% [markdown]
# Errors that name the rank and the exchange, and no process is left behind. A rank that hangs is harder: nobody can tell it
# from a slow one but by a limit on time. That is what the time limits of communication libraries are for.

# %% [markdown]
# ## How long does an exchange take here?
#
# **Measure**: the same all-to-all with ever more bytes. The model is the first half's, a floor and bytes over a bandwidth.

# %% tags=["no-browser"]
seconds = np.median([found["seconds"] for found in toured], axis=0)
fit = fit_floor(sizes, seconds)
fig = new_figure(7.2, 2.9, alt="Time of an all-to-all between four local processes over its bytes")
ax = fig.subplots()
ax.plot(sizes, 1e6 * seconds, "o", color=COLORS["measure"], label="measured")
at = np.geomspace(sizes[0], sizes[-1])
ax.plot(at, 1e6 * fit.seconds(at), color=COLORS["predict"], label="floor + bytes ÷ bandwidth, fitted")
ax.set(xscale="log", xlabel="bytes that a rank gives", ylabel="µs", ylim=(0, None))
ax.legend()
print(f"floor {1e6 * fit.floor:,.0f} µs, {fit.bandwidth / 1e9:.2f} GB/s of a rank")
fig

# %% [markdown]
# The form is the same, as far as a busy machine lets one see it. But the numbers say nothing about a network card. These
# processes copy through one kernel and share its cores; where there are fewer cores than processes the floor is the time
# until a process gets its turn. Inside a node a GPU writes into another one's memory without asking any processor. What
# carries over is the count of bytes and the number of exchanges.
#
# `python -m ledger.parallel` runs these checks in a terminal, without any GPU. They are written for NCCL too, with a GPU for
# each rank (`torchrun --nproc-per-node 4 -m ledger.parallel --backend nccl`), but have not run there yet.

# %% [markdown]
# ## Who holds what of a cache?
#
# Now the other thing to share. A group of GPUs serves one layer of attention, and each GPU has some of the query heads. What
# of the cache does it need? With MHA the keys and values of its own heads. With MLA every head reads every latent.
#
# So **the latent is copied to every GPU of the group**, and the group holds no more tokens than one GPU. The remedy is to
# deal out tokens instead: token $t$ goes to rank $t \bmod R$. That is **decode context parallelism**.

# %%
from ledger.widgets.ranks import HoldingExplorer, holding_picture

groups = {"MHA, heads shared out": (8, 8, 1), "MLA, heads shared out": (1, 8, 1)}
holding_picture(groups | {"MLA, tokens shared out": (1, 8, 8)})

# %% [markdown]
# Each strip is a GPU, each column a token. The height is the share of the heads, where in the strip says which heads.
# **Predict** the bytes of a token on each of 8 GPUs, for DeepSeek-V3's heads and four ways to cache:

# %%
from ledger.account.attention import family
from ledger.account.ranks import cache_bytes_on_gpu, exchange_bytes, replicas

print("bytes of a token and layer               on one GPU   on each of 8: heads shared    tokens too")
for scheme in family(v3):
    stored = replicas(scheme.kv_heads, 8)
    heads, both = (cache_bytes_on_gpu(scheme, 8, shared) for shared in (1, stored))
    name = f"{scheme.name}, key heads {scheme.kv_heads}, each on {stored} of them"
    print(f"{name:38} {scheme.cache_bytes:12,} {heads:28,.0f} {both:13,.0f}")

# %% [markdown]
# MHA and GQA with 8 groups shard by heads and leave nothing to remove. MQA and MLA have one key head for all, so tensor
# parallelism copies it 8 times. Sharing the tokens takes the copies away: 144 bytes instead of 1,152. Only GPUs that hold
# the same heads can share tokens, so for MHA there is nothing to share.

# %% [markdown]
# ## How can a head attend to tokens that are elsewhere?
#
# By lesson 3's rule. Attention over a part of the cache gives an output and a log-sum-exp, and parts merge:
#
# $$o = \sum_p e^{\mathrm{lse}_p - \mathrm{lse}}\, o_p \qquad\qquad \mathrm{lse} = \log \sum_p e^{\mathrm{lse}_p}$$
#
# Four ranks in this process, two heads, absorbed as in lesson 4, with every fourth token to each:

# %%
from ledger.reference.values import merge_partials, softmax_lse

L, scale = v3.latent_dim, v3.qk_dim**-0.5
queries, cache = rng.standard_normal((2, v3.cache_dim)), rng.standard_normal((101, v3.cache_dim))


def attend(queries, entries):
    """Mixed latents and lse of all heads over these entries."""
    weights, lse = softmax_lse(scale * queries @ entries.T)
    return weights @ entries[:, :L], lse


parts = [attend(queries, cache[rank::R]) for rank in range(R)]
merged, _ = merge_partials(*(np.stack(part) for part in zip(*parts, strict=True)))
whole, _ = attend(queries, cache)
print("tokens on each rank:", [len(cache[rank::R]) for rank in range(R)])
print(f"merged against the whole: {np.abs(merged - whole).max() / np.abs(whole).max():.0e}")
mean = np.mean([part[0] for part in parts], axis=0)
print(f"a plain mean of the parts: {np.abs(mean - whole).max() / np.abs(whole).max():.0e}")

# %% [markdown]
# On ranks it is the same with two exchanges around it. Each rank gives the queries of its heads to all. Each attends with
# *all* heads to *its* tokens. Then the partial outputs go to the ranks of their heads, with their lse, and are merged there.
# DeepSeek-V3's attention with all 128 heads on the four processes, with 4,097 tokens, in float64:

# %% tags=["no-browser"]
from ledger.account.ranks import tokens_on_rank

sends = exchange_bytes(v3, R, bytes_per_value=8)
print("                         tokens     bytes held   queries sent   outputs sent     error")
for rank, found in enumerate(found["decode"] for found in toured):
    own = tokens_on_rank(cached, rank, R)
    predicted = own, own * v3.cache_dim * 8, sends.queries, sends.outputs
    counted = found["tokens"], found["held"], *list(found["leaving"].values())[:2]
    print(f"rank {rank} predicted", *(f"{value:14,}" for value in predicted))
    print("       counted  ", *(f"{value:14,}" for value in counted), f"{found['error']:9.0e}")
    assert counted == predicted
    assert found["error"] < 1e-12
print(f"\nheads shared out alone: {found['whole']:,} bytes on each rank")

# %% [markdown]
# The replica is gone, and the result is that of the whole cache to the accuracy of float64. (The lse are an exchange of
# their own, not in this table: 8 bytes a head in float64, 4 in fp32.)

# %% [markdown]
# ## When does it pay?
#
# A step exchanges queries and outputs of all heads, *however long the cache is*. It saves the reading of all tokens but the
# $R$-th part. So memory is always won, and time where the cache is long. How long? Eight H200, bf16; suppose that queries
# travel like the first half's dispatch on such a node and outputs like its combine. A batch's requests share the floors.

# %%
from ledger.machines import machine
from ledger.published import DEEPEP_H200

moved = {way: [row.tokens * k * size for row in DEEPEP_H200] for way, size in weigh._asdict().items()}
out, home = (fit_floor(moved[way], [getattr(row, way) / 1e6 for row in DEEPEP_H200]) for way in moved)
gpus, entry, memory = 8, family(v3)[-1].cache_bytes, machine("H200").bandwidth
each = exchange_bytes(v3, gpus)
print(f"{each.total:,} bytes leave a GPU for each new token in each layer, {each.lse} of them lse")

# %%
many, read = 2.0 ** np.arange(6, 21), 1e6 * entry / memory  # tokens, µs of one
fig = new_figure(7.6, 3.1, alt="Time of a request in a layer by its tokens, with and without shared tokens")
ax = fig.subplots()
ax.plot(many, read * many, color=COLORS["materialize"], label="every GPU reads the whole cache")
for batch, style in ((1, "-"), (64, "--")):
    there, back = out.seconds(batch * each.queries), home.seconds(batch * (each.outputs + each.lse))
    exchange = 1e6 * (there + back) / batch
    pays, label = exchange / (read * (1 - 1 / gpus)), f"tokens shared out, {batch} in a batch"
    ax.plot(many, read * many / gpus + exchange, style, color=COLORS["absorb"], label=label)
    ax.plot(pays, read * pays, "o", color=COLORS["ink"])
    print(f"batch of {batch:2}: {exchange:4.1f} µs a request, pays from {pays:,.0f} tokens on")
ax.set(xscale="log", yscale="log", xlabel="cached tokens of a request", ylabel="µs a request and layer")
ax.legend()
fig

# %% [markdown]
# The floors decide: a short request alone loses time, a batch pays them once. The room is won whatever the length. (The
# other way out is data parallelism for attention: each GPU has its own requests, with all heads. It needs no exchange and
# stores nothing twice, as long as there are enough requests, and none is too long for one GPU.)

# %% [markdown]
# ## What happens when you turn the knobs?
#
# Left: who holds what. Right: how many tokens fit on the whole group.
#
# * MLA on 8 GPUs: let 1, 2, 4, 8 of them share the tokens. Which numbers move?
# * GQA with 8 key heads: from how many GPUs on is there something to share?
# * Choose MLA again. From how many GPUs on does MHA hold more tokens than MLA? What does the dashed line say to that?

# %%
HoldingExplorer().show()

# %% [markdown]
# ## What do engines do?
#
# * **torch.distributed**: `all_to_all_single` takes the numbers of rows for each rank on both sides (`input_split_sizes`,
#   `output_split_sizes`); that is why counts go first.
# * **DeepEP** does the exchange in kernels of its own. For decode each rank keeps room for the most tokens that any
#   other may send, so nothing has to be counted in advance.
# * **vLLM**: `--decode-context-parallel-size` shares the tokens inside the tensor-parallel group, at most among as many
#   GPUs as hold the same heads. `--cp-kv-cache-interleave-size` deals out blocks of tokens instead of single ones.
# * **SGLang**: `--dcp-size` does it for latent attention, token by token as here. `--enable-dp-attention` is the
#   other way out.
#
# Names move between versions. Partial results and their log-sum-exps do not.

# %% [markdown]
# ## How to explain it
#
# *"Experts on many ranks are a dispatch and a combine: ids and tokens in FP8 go out, outputs come home in bf16, counts go
# first. Each rank joins every exchange, idle or not, or all others hang. With the same roundings and order of sums it equals
# one process to the last bit. Latent attention has no heads to deal out, so tensor parallelism copies the cache to every
# GPU; context parallelism deals out tokens and exchanges queries and partial outputs, however long the cache."*

# %% [markdown]
# ## Summary
#
# * An all-to-all transposes: rank $r$ gets from $s$ what $s$ gave to $r$. Splits are uneven, so counts go first.
# * Counted bytes are predicted bytes: $d + 4\lceil d/128\rceil$ out and $2d$ back for each copy, numbers of experts apart.
# * Equal to the last bit takes the same roundings and orders of sums; FP8 itself moves the second digit.
# * A rank that dies is an error within seconds if somebody looks; one that lives and does not join is a hang.
# * MLA's cache is stored on all GPUs of a group, or once, if the tokens are shared out: $1152$ or $1152/R$ bytes a token.

# %% [markdown]
# ## Exercise to do next
#
# 6. [dispatch_and_combine](../../practice/ch09_experts/ranks.ipynb#cell-id=dispatch_and_combine-statement): write what
#    one rank does.
#
# ```
# python judge.py 9
# ```
#
# Then go on to [lesson 10](../ch10_dsa/indexer.ipynb), where a query no longer reads the whole cache.
