# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Practice 9b: tokens that travel
#
# You write a layer of experts as each of several ranks runs it: send tokens to the ranks of their experts, compute what
# the others have sent, and put together what comes home. One exercise, about 35 minutes, after
# [practice 9](experts.ipynb) and the lesson [9 ranks](../../notebooks/ch09_experts/ranks.ipynb).
#
# This notebook needs PyTorch: in a browser its check is skipped. It needs neither GPU nor network: the check plays all
# ranks in one process, one after the other. A rank runs until it comes to an `all_to_all`, and when all have come, each
# **runs again from its start** with what it now knows. So a `print` in your function shows up several times.
# `hint("dispatch_and_combine")` shows the first of three hints.
#
# `%judge` in a cell, after the import below, shows how far you are. In a browser it also gives your answers as a file,
# and takes one back.

# %%
import inspect

import numpy as np
import torch
from ledger import check, hint

# %% [markdown]
# ## dispatch_and_combine
#
# *35 minutes · difficulty 3 of 3 · 6 points*
#
# The experts are spread over `world.size` ranks, `len(experts)` on each: rank 0 has the first ones, rank 1 the next. So
# expert $e$ lives on rank $\lfloor e / $`len(experts)`$\rfloor$. Every rank calls your function at the same time, each
# with its own tokens:
#
# | | |
# |---|---|
# | `tokens` | (tokens, hidden) floating: those that live on this rank |
# | `expert_ids` | (tokens, top_k) int64: the experts of each, counted over all ranks |
# | `weights` | (tokens, top_k) floating: what each expert's output counts |
# | `experts` | list of this rank's experts. `experts[i](rows)` turns (rows, hidden) into (rows, hidden) |
# | `rank` | this rank's number |
# | `world` | `world.size`, and `world.all_to_all(tensors)` |
# | result | (tokens, hidden): for each of this rank's tokens the weighted sum of its experts' outputs |
#
# `world.all_to_all` takes a list of `world.size` tensors, gives the one at place $r$ to rank $r$, and returns a list: at
# place $r$ is what rank $r$ gave to this one. The tensors may have different numbers of rows, 0 among them. (Between
# processes the world has the ranks tell each other the numbers first.) All else must be alike on all ranks: the dtype, and
# the sizes of the other axes.
#
# * Every rank calls `all_to_all` equally often, whether it has tokens or not, and whether anybody asks its experts or not.
#   Another rank would wait for it.
# * A copy of a token goes to the rank of its expert and to no other, and an expert computes each of its copies once. The
#   judge counts on all ranks and names what is too much. The allowance is `2 * (hidden + top_k)` floating values for each
#   copy that has to leave: the token, its output, and its weights if you like. Ids are whole numbers and travel for
#   nothing. (Whether a token with two experts on a rank goes there once or twice is left to you.)
# * Nothing is rounded: tokens travel as they are. The result has the dtype of `tokens` and `weights`. Inputs are not
#   changed.
# * An expert is a function, and not a linear one. A weight belongs to an output.
# * Any rank may have no tokens, and so may all. `top_k` is at least 1; a token's experts are usually distinct, but add
#   up what comes even if one is asked twice.
#
# By hand: two ranks have one expert each, which multiplies by 1 and by 3 and then squares, keeping the sign. Rank 0 has
# the token $[2]$ with experts 1 and 0 and weights 0.5 and 2. Its copy for expert 1 travels to rank 1, which makes 36 of it.
# The other stays and becomes 4. The result is $0.5 \cdot 36 + 2 \cdot 4 = 26$.


# %% exercise="dispatch_and_combine"
def dispatch_and_combine(
    tokens: torch.Tensor, expert_ids: torch.Tensor, weights: torch.Tensor, experts: list, rank: int, world
) -> torch.Tensor:
    """A layer of experts that live on several ranks, as one of the ranks runs it.

    tokens: (tokens, hidden), this rank's
    expert_ids: (tokens, top_k) int64; expert e lives on rank e // len(experts)
    weights: (tokens, top_k)
    experts: this rank's, each a function of (rows, hidden)
    rank: 0 … world.size - 1
    world: size, and all_to_all(list of tensors) -> list of tensors
    returns (tokens, hidden)
    """
    ### BEGIN SOLUTION
    top_k = expert_ids.shape[1]
    wanted = expert_ids.flatten()
    to_rank = wanted // len(experts)
    sent = [torch.nonzero(to_rank == r).flatten() for r in range(world.size)]  # numbers of copies
    blocks = world.all_to_all([tokens[numbers // top_k] for numbers in sent])
    asked = world.all_to_all([wanted[numbers] for numbers in sent])
    # compute what the others have sent
    rows, places = torch.cat(blocks), torch.cat(asked) - rank * len(experts)
    outputs = torch.zeros_like(rows)
    for place, expert in enumerate(experts):
        of_expert = torch.nonzero(places == place).flatten()
        if len(of_expert):
            outputs[of_expert] = expert(rows[of_expert])
    # and send it home
    returned = world.all_to_all(list(outputs.split([len(block) for block in blocks])))
    of_copies = weights.flatten()[:, None]
    combined = torch.zeros_like(tokens)
    for numbers, block in zip(sent, returned, strict=True):
        combined.index_add_(0, numbers // top_k, of_copies[numbers] * block)
    return combined
    ### END SOLUTION


# %% check="dispatch_and_combine"
check("dispatch_and_combine", dispatch_and_combine)

# %% [markdown] hints="dispatch_and_combine"
# The hints of dispatch_and_combine.

# %% [markdown]
# Does it run between real processes, too? Take the signs of comment away below. Four processes read your function's text
# and run it over torch.distributed. So helpers must stand inside the function; only `torch` and `np` are known there. Each
# process says how far it is from a single one (`error`), the bytes that it sent to others (`leaving`), and those of a copy
# for each expert with its id and its output (`need`).

# %%
# from ledger.parallel import launch, steps
# for found in launch.run(steps.answer_step, 4, inspect.getsource(dispatch_and_combine)):
#     print(found)

# %% [markdown]
# ## What you can now explain
#
# * Why every rank must take part in an exchange, even with nothing to send.
# * Which bytes leave a rank, from its copies alone.
# * Why a copy carries its token's number home, or its place in the order.
#
# Next: [lesson 10, the indexer](../../notebooks/ch10_dsa/indexer.ipynb).
