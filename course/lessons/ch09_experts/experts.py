# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 9 Experts: who computes, who waits, what travels
#
# Attention is half of a layer. The other half of DeepSeek-V3's layers is a choice of 8 experts from 256, and no GPU
# holds them all. So the tokens travel to the experts and back: two exchanges among all GPUs in each such layer, in every
# step.
#
# **The question:** what does that journey weigh, how long does it take, who waits for whom, and how much of it can hide
# behind computation?

# %% [markdown]
# ## Can you skip this lesson?
#
# Answer these six. If you get them right, go to the exercises at the end.
#
# 1. Why are the experts spread over many GPUs? Name two reasons.
# 2. A token goes to one expert and comes back. How many bytes each way, at a hidden width of 7,168?
# 3. DeepSeek-V3's router adds a bias to each expert's score. Where is it used, and where must it not be?
# 4. Two GPUs get 100 token copies, a third gets 220. How long does a GPU wait on average, in copies?
# 5. Is the time of the journey the larger of a fixed delay and bytes ÷ bandwidth?
# 6. One stage computes for 2 and communicates for 2. How long do two half batches take? And why might a real GPU lose
#    by the split?
#
# <details><summary>Answers</summary>
#
# 1. They do not fit on one. And with more GPUs each expert sees more tokens for one reading of its weights.
# 2. 7,392 out (FP8 and 56 fp32 scales), 14,336 back (bf16).
# 3. In the selection of groups and experts. Not in the weights, which come from the scores without it.
# 4. 220 − 140 = 80.
# 5. No, their sum. The larger of the two, fitted as well as it can be, is wrong by up to about a third, right where
#    decode works.
# 6. 3 instead of 4. Each half reads all weights and pays every delay again, so a small batch loses.
#
# </details>
#
# (The next cell keeps NumPy's products to one core, so that the times on this page repeat.)

# %%
import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")

# %% [markdown]
# ## Can you do a layer by hand?
#
# Six experts in three groups, one token. The router gives each expert an *affinity*, the sigmoid of a product with the
# token. A *bias* is added for the selection. Two groups are open, two experts are taken. Which ones?

# %%
import math

import numpy as np
from ledger.reference.experts import moe_layer, route_tokens, sigmoid

logits = np.array([[math.log(3), 0, -math.log(3), 0, math.log(9), -math.log(9)]])
bias = np.array([0, 0, 0.45, 0.1, 0, 0])
print("expert     group   affinity   with bias")
for expert, (a, with_bias) in enumerate(zip(sigmoid(logits)[0], (sigmoid(logits) + bias)[0], strict=True)):
    print(f"{expert:4} {expert // 2:10} {a:11.2f} {with_bias:11.2f}")

# %% [markdown]
# A group's score is the sum of its two best: 1.25, 1.30 and 1.00. The last group is closed, and with it the expert that
# scores highest of all. In what is open 0.75 and 0.70 are the best, experts 0 and 2.
#
# Their weights come from the affinities *without* the bias, 0.75 and 0.25, divided by their sum, times a scale of the
# model (2 here). Let expert $e$ multiply its token by $e + 1$: what comes out?

# %%
ids, weights = route_tokens(logits, bias, num_groups=3, top_groups=2, top_k=2, scale=2.0)
experts = [lambda x, by=e + 1: by * x for e in range(6)]
print("experts", ids[0], " weights", weights[0])
output = moe_layer(np.array([[1.0, 10.0]]), ids, weights, experts)
print("output", output[0], "= (1.5 · 1 + 0.5 · 3) · token")

# %% [markdown]
# That is the whole layer, in one process. If experts 0 and 2 live on other GPUs, two copies leave, and two outputs
# come back to be summed where the token lives.
#
# Some words for that. A GPU of the group is a *rank*; 8 ranks joined by NVLink, the fast link inside a machine, are a
# *node*. The way out is the *dispatch*, the way back the *combine*; an exchange in which every rank sends to every other
# is an *all-to-all*. Its *floor* is the time that passes even when nothing is sent. DeepEP is DeepSeek's library for it.

# %% [markdown]
# ## Why spread the experts?
#
# First, because they do not fit. (Beside the routed experts a layer has a *shared* one, which every token passes. Each GPU
# holds a copy of it, so nobody travels to it.)

# %%
from ledger.account.experts import V3_DENSE_LAYERS, attention_params, expert_params
from ledger.machines import machine
from ledger.models import model

v3, h200 = model("DeepSeek-V3"), machine("H200")
moe_layers = v3.num_layers - V3_DENSE_LAYERS
each = expert_params(v3)
routed = v3.num_experts * each * moe_layers
millions, own = each / 1e6, attention_params(v3)
print(
    f"one expert: 3 · {v3.hidden_dim:,} · {v3.expert_dim:,} = {millions:.1f} million weights of a byte, FP8"
)
print(f"layers: {v3.num_layers}, of which the first {V3_DENSE_LAYERS} have no experts")
print(f"routed experts: {v3.num_experts} · {moe_layers} · {millions:.1f} MB = {routed / 1e9:.0f} GB")
print(f"attention: {v3.num_layers} · {own / 1e6:.0f} MB = {v3.num_layers * own / 1e9:.1f} GB")
print(f"one {h200.name}: {h200.memory / 1e9:.0f} GB")

# %% [markdown]
# The second reason is subtler. In decode a GPU waits for weights, as lesson 7 showed for the cache. An expert's weights
# are read once for all tokens that come to it. With $b$ tokens a GPU on $G$ GPUs, one of $E$ experts sees
#
# $$\frac{b \cdot G \cdot k}{E}$$
#
# of them. Twice the GPUs, twice the tokens for the same reading. Here are the least times of one layer's experts.

# %%
from ledger.account.roofline import roofline
from ledger.widgets.base import COLORS, new_figure, plain_ticks

b, k = 64, v3.experts_per_token
gpus, bounds = [2**n for n in range(3, 9)], []
for G in gpus:
    local, flops = v3.num_experts // G + v3.num_shared_experts, 2 * b * (k + v3.num_shared_experts) * each
    bounds.append(roofline(flops, local * each, h200, "fp8"))
    seen, held = b * G * k / v3.num_experts, (routed / G + moe_layers * each) / 1e9
    print(f"{G:4} GPUs: {seen:4.0f} tokens an expert, {held:5.1f} GB of experts on each GPU")

# %%
fig = new_figure(
    7.5, 2.9, alt="Time of a layer's experts: reading falls with the GPUs, arithmetic does not"
)
ax = fig.subplots()
work, reading = ([1e6 * seconds for seconds in part] for part in zip(*bounds, strict=True))
ax.plot(gpus, work, "s--", color=COLORS["value"], label="arithmetic")
ax.plot(gpus, reading, "o-", color=COLORS["latent"], label="reading weights")
ax.set(xscale="log", yscale="log", xlabel="GPUs that share the experts", ylabel="µs a layer")
ax.set_title(f"{v3.name} on {h200.name}, {b} tokens a GPU, balanced")
ax.set_xticks(gpus, [str(G) for G in gpus])
ax.minorticks_off()
ax.set_yticks([20, 50, 100, 200, 400], ["20", "50", "100", "200", "400"])
ax.legend()
fig

# %% [markdown]
# At 8 GPUs the experts take an order of magnitude longer to read than to use. At 128 both take about as long. So a large
# group is not only room, it is speed. The price is the journey.
#
# Does latent attention change that price? No. The journey carries hidden states and does not know what attention did: MHA,
# GQA, MQA and MLA pay the same. But look at the size, and at the road:

# %%
from ledger.account.attention import family
from ledger.account.experts import token_bytes

journey = k * token_bytes(v3.hidden_dim).total
entry, h800 = family(v3)[-1].cache_bytes, machine("H800")
print(f"one new token travels with the bytes of {journey / entry:.0f} cached tokens of MLA")
for gpu in (h800, h200):
    slower = gpu.bandwidth / gpu.network
    print(f"{gpu.name}: {gpu.network / 1e9:.0f} GB/s of network, its memory is {slower:.0f} times as fast")

# %% [markdown]
# ## What does a token weigh?
#
# Out it goes in FP8: a byte a value, and an fp32 scale for each started block of 128. Back it comes in bf16, since
# outputs are going to be summed.
#
# $$\text{dispatch} = d + 4\left\lceil\frac{d}{128}\right\rceil \qquad\qquad \text{combine} = 2d$$
#
# **Predict** both for $d = 7168$. Then **count**: pack real tokens, and take the length of what would be sent.

# %%
from ledger.reference.experts import pack_combine, pack_dispatch, unpack_combine, unpack_dispatch

rng = np.random.default_rng(9)
hidden = rng.standard_normal((4, v3.hidden_dim), dtype=np.float32)
sent, back = pack_dispatch(hidden), pack_combine(hidden)
predicted = token_bytes(v3.hidden_dim)
print(f"predicted: {predicted.dispatch:,} out, {predicted.combine:,} back")
codes, scales = sent.codes[0].nbytes, sent.scales[0].nbytes
print(f"counted:   {codes:,} codes and {scales} of scales out, {back[0].nbytes:,} back")
assert sent.nbytes == len(hidden) * predicted.dispatch
assert back.nbytes == len(hidden) * predicted.combine
for name, arrived in (("dispatch", unpack_dispatch(sent)), ("combine", unpack_combine(back))):
    error = np.linalg.norm(arrived - hidden) / np.linalg.norm(hidden)
    print(f"{name} changes the numbers by {error:.2%}")

# %% [markdown]
# Both ways together, each token of a layer with its 8 experts:

# %%
from ledger.widgets.flow import Arrow, Box, Lane, flow

d = v3.hidden_dim
out, home = b * k * predicted.dispatch / 1e6, b * k * predicted.combine / 1e6
copies, work = f"{b * k} × {d:,}", f"{2 * b * k * each / 1e9:.0f} GFLOP"
items = [Box("tokens", (b, d)), Arrow("dispatch, FP8", f"{out:.1f} MB")]
items += [Box("at experts", copies), Arrow("gate, up, down", work), Box("outputs", copies)]
items += [Arrow("combine, bf16", f"{home:.1f} MB"), Box("weighted sum", (b, d))]
flow(f"One layer's journey of {b} tokens", [Lane("on each GPU, at the same time", items, COLORS["rope"])])

# %% [markdown]
# ## How does the router choose?
#
# As in the toy, with 256 experts in 8 groups. The 4 best groups are open, and 8 experts are taken from them.
#
# What are the groups for? Put each group on a node of 8 GPUs, and count how far the copies of a token spread.


# %%
from ledger.account.experts import V3_ROUTING


def spread(ids, per_place):
    """How many places a token's experts are on, on average, with ``per_place`` experts on each."""
    return np.mean([len(set(row)) for row in (ids // per_place).tolist()])


many = rng.standard_normal((500, 256))
for name, open_groups in (("4 of 8 groups open", 4), ("all groups open", 8)):
    ids, _ = route_tokens(many, np.zeros(256), **(V3_ROUTING | {"top_groups": open_groups}))
    print(f"{name:20} {spread(ids, 32):.2f} nodes, {spread(ids, 4):.2f} of 64 GPUs a token")

# %% [markdown]
# With the rule a token meets at most 4 nodes. A sender that knows this sends a token over the slow network once a *node*,
# and lets it be copied inside over NVLink. That pays in prefill. In decode engines send each copy on its own, because
# the detour through a second GPU costs time.

# %% [markdown]
# ## Who waits for whom?
#
# A layer is over when its slowest rank is. If the loads of the ranks are $n_r$, a rank waits on average for
#
# $$\max_r n_r - \tfrac1R \sum_r n_r$$
#
# token copies. Some experts are more popular than others. Invent a popularity for each, and look at 32 ranks.

# %%
from ledger.browser import IN_BROWSER
from ledger.reference.experts import balance_step, rank_loads

tokens, ranks = (256 if IN_BROWSER else 1024), 32
popularity = 0.7 * rng.standard_normal(v3.num_experts)


def a_step(bias, popularity):
    """The experts that one step's tokens take: noise of each token, and what all tokens like."""
    logits = rng.standard_normal((tokens, v3.num_experts)) + popularity
    return route_tokens(logits, bias, **V3_ROUTING)[0]


before, wait = rank_loads(a_step(np.zeros(256), popularity), v3.num_experts // ranks, ranks)
print(f"copies on a rank: mean {before.mean():.0f}, largest {before.max()}, smallest {before.min()}")
print(f"a rank waits for {wait:.0f} copies on average: {wait / before.max():.0%} of the layer's time")

# %% [markdown]
# How much of the machine idles depends on the popularity, and this one is invented: it shows what can happen, not what
# did. DeepSeek-V3 was trained against such waits with the bias: after each step it goes down a little for every expert
# with more than the mean, and up for every one with less. No gradient takes part. (The report's step is 0.001, and a
# very small loss stands beside it. The step here is larger, to see it work in 60 of them.)

# %%
bias, seen, even = np.zeros(v3.num_experts), [], []
for _ in range(60):
    ids = a_step(bias, popularity)
    after, wait = rank_loads(ids, v3.num_experts // ranks, ranks)
    seen.append(after.max() / after.mean())
    by_chance, _ = rank_loads(a_step(np.zeros(256), 0.0), v3.num_experts // ranks, ranks)
    even.append(by_chance.max() / by_chance.mean())
    bias = balance_step(bias, ids, speed=0.004)
print(f"largest / mean: {seen[0]:.2f} at first, {np.mean(seen[-10:]):.2f} in the last ten steps")
print(f"without any popularity, by chance alone: {np.mean(even):.2f}")
print(f"biases from {bias.min():+.2f} to {bias.max():+.2f}, affinities from 0 to 1")

# %%
fig = new_figure(
    8.6, 3.1, alt="Copies on each of 32 ranks before and after balancing, and largest over mean by step"
)
left, right = fig.subplots(1, 2, width_ratios=[1.5, 1])
places = np.arange(ranks)
left.bar(places - 0.2, before, 0.4, color=COLORS["materialize"], label="without bias")
left.bar(places + 0.2, after, 0.4, color=COLORS["absorb"], label="after 60 steps")
left.axhline(before.mean(), color=COLORS["ink"], linewidth=1)
left.set(xlabel="rank", ylabel="token copies")
left.legend(ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
right.plot(range(60), seen, color=COLORS["absorb"], label="with the bias")
right.plot(range(60), even, "--", color=COLORS["neutral"], label="chance alone")
right.set(xlabel="step", ylabel="largest ÷ mean", ylim=(0.95, None))
right.legend()
fig

# %% [markdown]
# The bias takes away what is systematic. Chance stays: with few tokens a step some rank always gets more. Engines go one
# step further and place the experts by measured load, with copies of the popular ones.
#
# Why must the bias not touch the weights? It would change what the layer computes whenever the load changes. As it is,
# it decides only who is asked.

# %% [markdown]
# ## How long does the journey take?
#
# The obvious model is bytes over bandwidth. Hold it against published times: DeepEP's *low-latency* kernels, those
# for decode, on eight H200 of one node, where everything goes over NVLink.
#
# Three forms can be fitted by least squares of the relative error: through the origin, with a floor added, and the larger
# of a floor and the bytes. Each gets the floor and the bandwidth that suit it best.

# %%
from ledger.account.experts import fit_floor, fit_larger
from ledger.published import DEEPEP_H200

fits, larger, forms = {}, {}, ("bytes alone", "floor + bytes", "larger of them")
for way in ("dispatch", "combine"):
    moved = np.array([row.tokens * k * getattr(predicted, way) for row in DEEPEP_H200])
    taken = np.array([getattr(row, way) / 1e6 for row in DEEPEP_H200])
    fit, roof = fits[way], larger[way] = fit_floor(moved, taken), fit_larger(moved, taken)
    alone = moved * (moved / taken).sum() / ((moved / taken) ** 2).sum()
    guesses = (alone, fit.seconds(moved), np.maximum(roof.floor, moved / roof.bandwidth))
    print(f"{way}: floor {1e6 * fit.floor:.1f} µs, {fit.bandwidth / 1e9:.0f} GB/s")
    for form, guess in zip(forms, guesses, strict=True):
        print(f"   {form:15} wrong by up to {np.max(np.abs(guess / taken - 1)):4.0%}")

# %%
at = np.geomspace(DEEPEP_H200[0].tokens, DEEPEP_H200[-1].tokens, 200)
fig = new_figure(8.6, 3.3, alt="Published dispatch and combine times, floor plus bytes, and the larger")
for ax, (way, fit) in zip(fig.subplots(1, 2), fits.items(), strict=True):
    moved = at * k * getattr(predicted, way)
    ax.plot(at, 1e6 * fit.seconds(moved), color=COLORS["predict"], label="floor + bytes")
    roof = np.maximum(larger[way].floor, moved / larger[way].bandwidth)
    ax.plot(at, 1e6 * roof, "--", color=COLORS["neutral"], label="larger of them")
    published = [(float(row.tokens), getattr(row, way)) for row in DEEPEP_H200]
    ax.plot(*zip(*published, strict=True), "o", color=COLORS["measure"], label="published")
    ax.set(xscale="log", yscale="log", xlabel="tokens a GPU", ylabel="µs", title=way)
    ax.set_yticks([10, 30, 100, 300])
    plain_ticks(ax.xaxis)
    plain_ticks(ax.yaxis)
ax.legend()
fig

# %% [markdown]
# Floor plus bytes is within a few percent of every point, from one token to 1,024. The larger of the two is the form of a
# roofline. It is wrong by up to about a third, and most at its knee, where the bytes begin to count and decode lives. A
# roofline is right for things that overlap: a kernel reads while it computes. A delay does not overlap with the bytes that
# come after it.
#
# And across nodes? The same kernels on H800, 128 tokens a GPU, each GPU with a network card of 50 GB/s. Suppose that copies
# inside a node go over NVLink and only the others, $1 - 8/G$ of them, over the card. What is left over when their time is
# taken off?

# %%
from ledger.published import DEEPEP_H800

card, rest, sizes = h800.network, [], [row.ranks for row in DEEPEP_H800]
heads = ("published", "all bytes ÷ card", "leaving the node", "left over")
print("µs  ", *(f"{head:>21}  " for head in heads))
print("GPUs", *(f"{'dispatch':>12} {'combine':>8}  " for _ in heads))
for row in DEEPEP_H800:
    whole = [1e6 * row.tokens * k * size / card for size in predicted]
    leaving = [(1 - 8 / row.ranks) * each_way for each_way in whole]
    rest.append([row.dispatch - leaving[0], row.combine - leaving[1]])
    columns = ((row.dispatch, row.combine), whole, leaving, rest[-1])
    print(f"{row.ranks:4}", *(f"{a:12.0f} {c:8.0f}  " for a, c in columns))

# %% [markdown]
# The bytes explain how the times grow with the group: the more GPUs, the fewer copies stay in the node, and in large groups
# hardly any do. (At 8 GPUs nothing leaves the node, and all of the time is left over.) From 16 GPUs on tens of µs are left
# over at this size. Are they a floor, or is the card slower than its 50 GB/s? Every row has 128 tokens, and one size cannot
# tell. Try the other reading: no floor, and the card speed that fits best.

# %%
for column, way in enumerate(predicted._fields):
    took = np.array([getattr(row, way) / 1e6 for row in DEEPEP_H800[1:]])
    left = [row.tokens * k * predicted[column] * (1 - 8 / row.ranks) for row in DEEPEP_H800[1:]]
    ratio = np.array(left) / took
    speed = (ratio**2).sum() / ratio.sum()
    error = np.max(np.abs(ratio / speed - 1))
    print(f"{way}: {speed / 1e9:.0f} GB/s and no floor, wrong by up to {error:.0%}")

# %% [markdown]
# The combine fits well with a slower card and no floor at all, the dispatch less so. From here on the page *assumes* that
# what is left over is a floor, and says so where that matters.

# %% [markdown]
# ## Is a token of decode the same as one of prefill?
#
# It weighs the same. It does not cost the same, because the floor is shared by whatever travels with it. Take what the
# table of H800 left over at 64 GPUs for the floor, and let the card carry what it carried there: the copies that leave
# the node, $1 - 8/G$ of all. That is the same as sending *all* bytes over a card of 50 GB/s $/\,(1 - 8/G)$: 57 GB/s for
# 64 GPUs. Beside it stands what the experts themselves need at least: the longer of arithmetic and of reading their
# weights. (So a network of H800 meets GPUs of H200 here: no published table has both of one machine.)

# %%
from ledger.account.experts import all_to_all_seconds

left_over = {ranks: sum(both) / 1e6 for ranks, both in zip(sizes, rest, strict=True)}  # seconds, both ways
speed = {ranks: card / (1 - 8 / ranks) for ranks in (64, 128)}  # bytes/s of all copies
floor = left_over[64]
reading = (v3.num_experts // 64 + v3.num_shared_experts) * each / h200.bandwidth
print("                                                               the experts, µs")
print("tokens        MB    journey, µs   of it floor    µs a token    reading   arithmetic")
for batch in (1, 16, 64, 128, 1024, 8192):
    seconds = all_to_all_seconds(batch, k, d, speed[64], floor)
    work = 2 * batch * (k + v3.num_shared_experts) * each / h200.rate("fp8")
    print(f"{batch:6,} {batch * journey / 1e6:9.1f} {1e6 * seconds:14,.0f} {floor / seconds:13.0%}", end="")
    print(f"{1e6 * seconds / batch:14.1f} {1e6 * reading:10.1f} {1e6 * work:12,.1f}")

# %% [markdown]
# The row of 128 tokens is the published one again, 173 + 314 µs, since its rest was taken as the floor. If there is a
# floor of that size, a decode step with few tokens pays mostly delay; a prefill pays for bytes alone. (There the normal
# kernels do better than the formula, which sends every copy that leaves the node over the card.) In every row the
# journey takes longer than the experts. So it had better happen at the same time as something else.

# %% [markdown]
# ## What can hide behind what?
#
# A layer computes, sends, computes, and sends again. One batch cannot compute while its own tokens are away. Two half
# batches can: while A travels, B computes. The smallest case is one stage that computes for 2 and communicates for 2.

# %%
from ledger.account.experts import finish, overlap_seconds, timeline
from ledger.widgets.experts import schedule_picture

schedule_picture({"one batch": timeline([2], [2]), "two half batches": timeline([1], [1], batches=2)})

# %% [markdown]
# 4 becomes 3. With more stages, in the order A1 B1 A2 B2, everything but the first and the last block is hidden:

# %%
for c, m, stages in ((2, 2, 1), (2, 2, 2), (2, 2, 5), (2, 2, 50), (3, 1, 50), (1, 3, 50)):
    one, two = overlap_seconds([c] * stages, [m] * stages)
    print(f"{stages:3} × {c} and {m}: {one:4.0f} becomes {two:4.0f}, {one / two:.2f} times as fast")

# %% [markdown]
# Two times as fast is the limit, and only where both lanes have the same to do. Otherwise the longer lane is what is left:
#
# $$\frac{\text{one batch}}{\text{two halves}} \le \frac{\sum \text{compute} + \sum \text{communication}}
# {\max\left(\sum \text{compute},\, \sum \text{communication}\right)}$$
#
# Lesson 8's model of a step takes that limit for granted. How far is a layer of DeepSeek-V3's decode from it? It has two
# stages: attention and dispatch, then experts and combine. In the picture odd blocks are attention and its dispatch,
# even ones experts and their combine. It takes 64 GPUs, and for the floor what the table left over there.

# %%
from ledger.account.experts import layer_stages

layer = (4096, v3, h200, 64, speed[64], floor)  # cached tokens, model, GPU, ranks, bytes/s, floor
full, half = layer_stages(64, *layer), layer_stages(32, *layer)
print("µs of a layer        attention   dispatch    experts    combine")
for name, stage in (("64 tokens", full), ("32 tokens", half)):
    print(f"{name:18}", *(f"{1e6 * seconds:10.1f}" for seconds in stage))
lanes = [full.compute * 2, full.communication * 2, half.compute * 2, half.communication * 2]
lanes = [[1e6 * seconds for seconds in lane] for lane in lanes]
two_layers = {"one batch": timeline(*lanes[:2]), "two half batches": timeline(*lanes[2:], batches=2)}
schedule_picture(two_layers, unit="µs of two layers")

# %% [markdown]
# Look at the table before the picture. Half the tokens take *more than half* the time of a stage. Attention reads all of
# its weights for either half, and only the cache is halved. The experts take exactly as long as before: their weights
# are read twice now. And every floor is paid twice. So the split has a price, and a small batch cannot pay it.
#
# How small? Take two groups and two floors: the one fitted inside one node, and what was left over across nodes.


# %%
def gain(batch, ranks, floor):
    """Time of one batch over that of two halves, and over that of two halves that take half the time."""
    setting = (4096, v3, h200, ranks, speed[ranks], floor)
    full, half = layer_stages(batch, *setting), layer_stages(batch / 2, *setting)
    one, ideal = overlap_seconds(full.compute * moe_layers, full.communication * moe_layers)
    two = finish(timeline(half.compute * moe_layers, half.communication * moe_layers, batches=2))
    return one / two, one / ideal


cases = [(ranks, sum(fit.floor for fit in fits.values())) for ranks in (64, 128)]
cases += [(ranks, left_over[ranks]) for ranks in (64, 128)]
print("times as fast         (in brackets: if halves took half)")
print("tokens a GPU ", *(f"{ranks:5} GPUs, {1e6 * each_floor:3.0f} µs" for ranks, each_floor in cases))
for batch in (8, 16, 32, 64, 128, 512):
    print(f"{batch:8}     ", *("{:11.2f} ({:.2f})".format(*gain(batch, *each)) for each in cases))

# %% [markdown]
# With 8 tokens a GPU two half batches are slower than one in every column. Where they break even depends on the floor:
# with 128 GPUs what was left over moves that point to several times as many tokens. With 64 GPUs it moves to somewhat
# fewer: each GPU has more experts to read, so two halves hide even both floors behind that, while one batch waits for
# its floor in full. So do not carry a break-even from one machine to another. The numbers in brackets are the
# exercise's rule, where a half takes half the time; it promises a gain everywhere.

# %% [markdown]
# ## What happens when you turn the knobs?
#
# Three layers of the same model. Four things to try:
#
# * Raise the floor from 20 to 100 and to 200 µs. Where do the two halves break even each time?
# * Raise the bandwidth to what was fitted over NVLink, about 300 GB/s. At how many tokens do the two halves break even now?
# * Find a setting where communication is one solid row. What does more computing power buy there?
# * Let a half batch's stage take half the time. Which part of the curve was the weights' second reading?

# %%
from ledger.widgets.experts import OverlapExplorer

OverlapExplorer().show()

# %% [markdown]
# ## What does this machine say?
#
# There is no network on this page ([the next lesson](ranks.ipynb) has one). But a part of the journey is here: before
# tokens are sent, they are copied into the order of their experts, eight times each. **Measure** that copy. It should
# take its bytes, once read and once written, over the bandwidth of memory.

# %%
from functools import partial

from ledger.count import count
from ledger.measure import ceilings, time_pairs

T = 64 if IN_BROWSER else 512
codes = pack_dispatch(rng.standard_normal((T, d), dtype=np.float32)).codes
ids, _ = route_tokens(rng.standard_normal((T, 256)), np.zeros(256), **V3_ROUTING)
order = np.argsort(ids.ravel(), kind="stable")  # copies by expert
source = np.repeat(np.arange(T), k)[order]  # the token of each


def permute(codes, source):
    return codes[source]


# %%
roof = ceilings("float32", device="cpu")
_, counts = count(permute, codes, source)
copies = T * k * d
print(f"predicted: {T} tokens · {k} · {d:,} = {copies:,} bytes to write")
print(f"counted:   {counts.bytes_written:,} written, {counts.bytes_read:,} read (each token once)")
assert counts.bytes_written == copies
took = time_pairs({"permute": partial(permute, codes, source)}, seconds=0.3)["permute"].low
print(f"measured:  {1e3 * took:.2f} ms, {2 * copies / took / 1e9:.1f} GB/s read and written")
print(f"this machine's memory: {roof.bandwidth / 1e9:.1f} GB/s")

# %% [markdown]
# The count of what is written is exact. The time is near what memory allows, or even better, since a token that is copied
# eight times may still be in the processor's cache after the first.

# %% [markdown]
# ## What do engines do?
#
# * **DeepEP** has two kinds of kernels. The normal ones, for prefill, send a token over the network once a node and forward it
#   over NVLink. The low-latency ones, for decode, send each copy directly. Its second version puts both behind one
#   interface.
# * **SGLang**, `layers/moe/token_dispatcher/deepep.py`: `--moe-a2a-backend deepep` turns it on, `--deepep-mode` is
#   `normal`, `low_latency` or `auto`, which picks by prefill and decode. `--enable-two-batch-overlap` splits the batch
#   (`batch_overlap/two_batch_overlap.py`); `--enable-single-batch-overlap` hides the shared expert's work behind one
#   batch's own journey. `--enable-eplb` places experts by measured load.
# * **vLLM**: `--enable-expert-parallel` spreads the experts, `--all2all-backend` picks the way, among others
#   `deepep_high_throughput` and `deepep_low_latency` (`model_executor/layers/fused_moe/prepare_finalize/`). Its two
#   half batches are called dual batch overlap, `--enable-dbo`.
#
# Names move between versions. The bytes do not.

# %% [markdown]
# ## How to explain it
#
# *"DeepSeek-V3's experts take some 650 GB, so they are spread over many GPUs, and each token travels to eight of them and
# back in every layer: 7.4 KB out in FP8, 14.3 KB back in bf16, eight times. The time is a floor plus bytes over bandwidth:
# added, not the larger of the two. The slowest rank sets the pace; a bias on the scores evens the load without touching
# the weights. Two half batches hide one's journey behind the other's work. Twice as fast is the limit; a model
# of DeepSeek-V3's layer stays below one and a half, because each half reads all weights and pays every floor. So it is a
# tool for large batches."*

# %% [markdown]
# ## Summary
#
# * A copy weighs $d + 4\lceil d/128\rceil$ out and $2d$ back: 7,392 and 14,336 bytes. Packed tokens count exactly that.
# * Selection: sigmoid plus bias, the best groups by their two best, then the best experts in them. Weights: the sigmoids
#   without bias, normalised, times the scale.
# * Wait: largest load less mean. The bias removes what is systematic; chance stays.
# * Journey: floor + bytes ÷ bandwidth, within a few percent of DeepEP's times on one node; the larger of the two errs by
#   about a third. Across nodes tens of µs a way are left over at 128 tokens: a floor or a slower card, which one size
#   cannot tell.
# * Overlap: 2 and 2 become 3. The limit is the longer lane, at best two times as fast; small batches lose, and how small
#   depends on the floor and on the group.

# %% [markdown]
# ## Exercises to do next
#
# 1. [token_bytes](../../practice/ch09_experts/experts.ipynb#cell-id=token_bytes-statement): weigh a token.
# 2. [all_to_all_seconds](../../practice/ch09_experts/experts.ipynb#cell-id=all_to_all_seconds-statement): time the
#    journey.
# 3. [route_tokens](../../practice/ch09_experts/experts.ipynb#cell-id=route_tokens-statement): choose the experts.
# 4. [rank_loads](../../practice/ch09_experts/experts.ipynb#cell-id=rank_loads-statement): find out who waits.
# 5. [overlap_seconds](../../practice/ch09_experts/experts.ipynb#cell-id=overlap_seconds-statement): run two half batches.
#
# ```
# python judge.py 9
# ```
#
# Then go on to [ranks](ranks.ipynb): the same layer on real processes, whose tokens really travel.
