# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Practice 9: expert parallelism
#
# You weigh what travels to an expert and back, choose the experts as DeepSeek-V3 does, find out who waits for whom, and
# hide communication behind computation. Five exercises, about 55 minutes. The lesson that goes with them is
# [9 experts](../../notebooks/ch09_experts/experts.ipynb).
#
# The rules are those of practice 1: results keep the floating dtype of the inputs; inputs are never changed, may be
# read-only and need not be contiguous; sizes of 0 and 1 are legal. Counts and bytes are ints, times are floats in
# seconds. `hint("route_tokens")` shows the first of three hints, and `case("route_tokens", "odd sizes", 123456)` the
# inputs of a case that a check named.
#
# `%judge` in a cell, after the import below, shows how far you are. In a browser it also gives your answers as a file,
# and takes one back.

# %%
import math

import numpy as np
from ledger import case, check, hint

# %% [markdown]
# ## token_bytes
#
# *6 minutes · difficulty 1 of 3 · 2 points*
#
# A token that is sent to an expert on another GPU travels in FP8: one byte for each of its `hidden_dim` values, and one
# fp32 scale for each block of `scale_block` values. A block at the end that is only started has a scale too. What the
# expert makes of the token comes back in bf16, without scales.
#
# Return two ints, the bytes of one copy to one expert (`dispatch`) and of what comes back (`combine`). The expert's
# number travels as well, a few bytes that are not counted here.
#
# `hidden_dim` may be 0; `scale_block` is at least 1.
#
# By hand: 10 values in blocks of 4 are 10 bytes and 3 scales, so 22 out, and 20 back.


# %% exercise="token_bytes"
def token_bytes(hidden_dim: int, scale_block: int) -> tuple[int, int]:
    """Bytes of one token on its way to one expert, and back.

    hidden_dim: values of a token
    scale_block: FP8 values that share one fp32 scale
    returns (dispatch, combine) in bytes, ints
    """
    ### BEGIN SOLUTION
    blocks = -(-hidden_dim // scale_block)
    return hidden_dim + 4 * blocks, 2 * hidden_dim
    ### END SOLUTION


# %% check="token_bytes"
check("token_bytes", token_bytes)

# %% [markdown] hints="token_bytes"
# The hints of token_bytes.

# %% [markdown]
# ## all_to_all_seconds
#
# *6 minutes · difficulty 1 of 3 · 2 points*
#
# A GPU has `tokens` tokens, and each goes to `experts_per_token` experts and comes back from each of them. How long do
# the dispatch and the combine take together? Take the simple model
#
# $$t = \text{floor} + \frac{\text{bytes of both ways}}{\text{bandwidth}}$$
#
# * One copy for each token and expert, with a scale for each started block of 128: your `token_bytes(hidden_dim, 128)`,
#   which must be right first. Experts on this GPU are not spared.
# * `floor` is one number of seconds for both ways together, paid however little travels: with no tokens it is all.
# * `bandwidth` is in bytes a second, and the two ways follow each other. With a bandwidth of 0 return `math.inf`,
#   whatever travels.
#
# Return seconds as a float.
#
# By hand: 2 tokens, 3 experts each, 10 values: a copy is $14 + 20$ bytes, 6 of them are 204. At 40 bytes a second and
# with a floor of 1 second that is $1 + 5.1 = 6.1$.


# %% exercise="all_to_all_seconds"
def all_to_all_seconds(
    tokens: int, experts_per_token: int, hidden_dim: int, bandwidth: float, floor: float
) -> float:
    """Seconds of one dispatch and one combine.

    tokens: tokens of this GPU
    experts_per_token: experts that each of them goes to
    hidden_dim: values of a token
    bandwidth: bytes/s
    floor: seconds that both ways take however little travels
    returns seconds; math.inf for a bandwidth of 0
    """
    ### BEGIN SOLUTION
    if bandwidth == 0:
        return math.inf
    copies = tokens * experts_per_token
    return floor + copies * sum(token_bytes(hidden_dim, 128)) / bandwidth
    ### END SOLUTION


# %% check="all_to_all_seconds"
check("all_to_all_seconds", all_to_all_seconds)

# %% [markdown] hints="all_to_all_seconds"
# The hints of all_to_all_seconds.

# %% [markdown]
# ## route_tokens
#
# *20 minutes · difficulty 3 of 3 · 4 points*
#
# Choose the experts of each token as DeepSeek-V3's router does. `logits` are (tokens, experts), `bias` is (experts,).
# The experts stand in `num_groups` equal groups, neighbours together. For each token:
#
# 1. An expert's *affinity* is the sigmoid of its logit. Its *selection score* is the affinity plus its bias.
# 2. A group's score is the sum of the selection scores of its two best experts (of its one, where it has one).
# 3. The `top_groups` best groups are open. All other experts are out, whatever their score.
# 4. Among the open experts those with the `top_k` best selection scores are taken.
# 5. The weight of each is its *affinity*, without the bias, over the sum of the affinities of those taken, times
#    `scale`.
#
# Return a tuple: `ids`, (tokens, top_k) int64, numbers among all experts, by falling selection score; and `weights`,
# (tokens, top_k), in the same order, in the dtype of `logits`. **The lower number wins a tie**, between groups as between
# experts.
#
# Biases may be negative enough to put every selection score below 0. The open groups always hold at least `top_k`
# experts. There may be no tokens. Logits stay between −30 and 30.
#
# By hand: one token, three groups of two, affinities $\tfrac34, \tfrac12 \mid \tfrac14, \tfrac12 \mid \tfrac9{10},
# \tfrac1{10}$, biases $0, 0 \mid 0.45, 0.1 \mid 0, 0$. The groups score 1.25, 1.3 and 1.0, so the two first are open
# and the best expert of all is out. For `top_k` 2 and scale 2 the ids are 0 and 2, and their weights $2 \cdot
# \tfrac34 = 1.5$ and $2 \cdot \tfrac14 = 0.5$.


# %% exercise="route_tokens"
def route_tokens(
    logits: np.ndarray, bias: np.ndarray, num_groups: int, top_groups: int, top_k: int, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """The experts of each token, and what each of them counts.

    logits: (tokens, experts)
    bias: (experts,), added to the affinity for selection alone
    num_groups: equal groups of neighbouring experts
    top_groups: groups that are open to a token
    top_k: experts of a token
    scale: sum of a token's weights
    returns (ids, weights): (tokens, top_k) int64, and (tokens, top_k) in the dtype of logits
    """
    ### BEGIN SOLUTION
    tokens, experts = logits.shape
    affinity = 1 / (1 + np.exp(-logits))
    selection = affinity + bias
    by_group = selection.reshape(tokens, num_groups, experts // num_groups)
    group_scores = np.sort(by_group, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-group_scores, axis=1, kind="stable")[:, :top_groups]
    is_open = np.zeros(group_scores.shape, bool)
    np.put_along_axis(is_open, best, True, axis=1)
    allowed = np.repeat(is_open, experts // num_groups, axis=1)  # [tokens, experts]
    order = np.argsort(-np.where(allowed, selection, -np.inf), axis=1, kind="stable")
    ids = order[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(affinity, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)
    ### END SOLUTION


# %% check="route_tokens"
check("route_tokens", route_tokens)

# %% [markdown] hints="route_tokens"
# The hints of route_tokens.

# %% [markdown]
# ## rank_loads
#
# *8 minutes · difficulty 1 of 3 · 2 points*
#
# The experts are spread over `num_ranks` GPUs, called ranks: rank 0 has the first `experts_per_rank` of them, rank 1 the
# next ones. `expert_ids` (tokens, top_k) says where the tokens go, of all ranks together. Return
#
# * `loads`, (num_ranks,) int64: how many token copies each rank gets. A token with two experts on one rank brings two.
# * `wait`, a float: the largest load less the mean of all ranks. A layer is over when its slowest rank is, so this is
#   how many copies' worth of time a rank waits on average.
#
# All ids are valid. There may be no tokens, and ranks may get nothing.
#
# By hand: three tokens with the experts 0 and 1, 1 and 5, 0 and 2, on three ranks of two experts: loads 4, 1, 1 and a
# wait of $4 - 2 = 2$.


# %% exercise="rank_loads"
def rank_loads(expert_ids: np.ndarray, experts_per_rank: int, num_ranks: int) -> tuple[np.ndarray, float]:
    """The token copies that each rank gets, and the wait that the largest of them causes.

    expert_ids: (tokens, top_k), integers
    experts_per_rank: neighbouring experts on one rank
    num_ranks: number of ranks
    returns (loads, wait): (num_ranks,) int64, and largest less mean, in token copies
    """
    ### BEGIN SOLUTION
    ranks = expert_ids // experts_per_rank
    loads = np.bincount(ranks.ravel(), minlength=num_ranks).astype(np.int64)
    return loads, float(loads.max() - loads.mean())
    ### END SOLUTION


# %% check="rank_loads"
check("rank_loads", rank_loads)

# %% [markdown] hints="rank_loads"
# The hints of rank_loads.

# %% [markdown]
# ## overlap_seconds
#
# *15 minutes · difficulty 3 of 3 · 4 points*
#
# A step is a list of stages. Stage $i$ computes for `compute[i]` seconds and then communicates for `communication[i]`;
# the next stage needs what came back. (Attention and dispatch are one stage, experts and combine the next.) A single
# batch does all of this in a row, and the network idles while the GPU works.
#
# Two half batches A and B can do better. The GPU computes one thing at a time, the network carries one thing at a time,
# and both can be busy at once. Both work in the order A1 B1 A2 B2 A3 …. A job starts as soon as its
# lane, the GPU or the network, is through with the job before it in that order, and
#
# * for a communication: its own half batch's computation of this stage is over;
# * for a computation: its own half batch's communication of the stage before is over (the first stage waits for none).
#
# **Each stage of a half batch takes half** the time of the whole, computing and communicating.
#
# Return two floats in seconds: the time of one whole batch, and the time until both half batches are through. The two
# lists are of the same length, times may be 0, and without stages both results are 0.0.
#
# By hand, one stage of 2 and 2: one batch takes 4. A computes until 1 and is sent until 2, B computes until 2 and is
# sent until 3: so 4 and 3.


# %% exercise="overlap_seconds"
def overlap_seconds(compute: list[float], communication: list[float]) -> tuple[float, float]:
    """Seconds of one batch, and of two half batches that overlap.

    compute: seconds that each stage of the whole batch computes
    communication: seconds that each of them communicates afterwards
    returns (one batch, two half batches) in seconds
    """
    ### BEGIN SOLUTION
    lane_free, ready = [0.0, 0.0], [0.0, 0.0]
    for times in zip(compute, communication, strict=True):
        for half in (0, 1):
            for lane in (0, 1):
                end = max(lane_free[lane], ready[half]) + times[lane] / 2
                lane_free[lane] = ready[half] = end
    return float(sum(compute) + sum(communication)), max(ready)
    ### END SOLUTION


# %% check="overlap_seconds"
check("overlap_seconds", overlap_seconds)

# %% [markdown] hints="overlap_seconds"
# The hints of overlap_seconds.

# %% [markdown]
# ## What you can now explain
#
# * Why a token goes out with half the bytes that it comes back with, and eight times each.
# * Why a bias may steer the selection of experts, and must not touch their weights.
# * Why the mean load says nothing about a layer's time.
# * When two half batches are faster than one, and what they can never hide.
#
# Try `overlap_seconds([2, 2, 2], [2, 2, 2])` and then the same with twenty stages. What does the ratio tend to?
#
# Next: [lesson 9, ranks](../../notebooks/ch09_experts/ranks.ipynb). There the tokens really travel, between processes.
