# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Practice 8, second part: when drafts pay
#
# You build the account of a step with drafts from its parts, and ask it when drafts gain, when they lose, and how many
# to make. Eight exercises, about 65 minutes. The lesson that goes with them is
# [8 multi-token prediction: what it gains](../../notebooks/ch08_mtp/speed.ipynb).
#
# Three records are given to you. A `Model` has the sizes of a published model, a `Machine` has the rates of a GPU's
# datasheet, and a `Setup` has what one GPU holds, reads and sends in one layer, when a model is spread over many. Times
# are in seconds, amounts in bytes and FLOP, rates in bytes/s and FLOP/s. A multiply-add is 2 FLOP.
#
# `hint("step_seconds")` shows the first of three hints, and `case("step_seconds", "one request", 123456)` the inputs of
# a case that a check named.
#
# `%judge` in a cell, after the import below, shows how far you are. In a browser it also gives your answers as a file,
# and takes one back.

# %%
import math

import numpy as np
from ledger import case, check, hint
from ledger.machines import Machine, machine
from ledger.models import Model, model
from ledger.setups import ROUNDED, Setup

# %% [markdown]
# ## expected_advance
#
# *5 minutes · difficulty 1 of 3 · 1 point*
#
# A step verifies some drafts and adds to the text those up to the first wrong one, and then one token of its own. How
# many tokens does it add on average?
#
# Each number of `acceptance` is the probability that a draft is accepted *given that all drafts before it were*. With
# $p_{i+1}$ for `acceptance[i]` the result is
#
# $$1 + p_1 + p_1p_2 + p_1p_2p_3 + \ldots$$
#
# Return one number. The list may have any length; an empty one gives 1.
#
# By hand: acceptances of 0.5 and 0.5 give $1 + 0.5 + 0.25 = 1.75$.


# %% exercise="expected_advance"
def expected_advance(acceptance: list[float]) -> float:
    """Expected tokens that one step adds to a request.

    acceptance: for each draft, the probability that it is accepted given that all before it were
    returns tokens, at least 1
    """
    ### BEGIN SOLUTION
    advance, reached = 1.0, 1.0
    for probability in acceptance:
        reached *= probability
        advance += reached
    return advance
    ### END SOLUTION


# %% check="expected_advance"
check("expected_advance", expected_advance)

# %% [markdown] hints="expected_advance"
# The hints of expected_advance.

# %% [markdown]
# ## attention_params
#
# *10 minutes · difficulty 2 of 3 · 2 points*
#
# How many weights do the projections of **one** layer of latent attention have? There are five of them:
#
# * from the hidden state (`hidden_dim`) down to the query's latent (`q_lora_dim`);
# * from that latent up to the queries of all heads, each `nope_dim + rope_dim` wide;
# * from the hidden state to the cache entry, the latent (`latent_dim`) and the one rotary key (`rope_dim`);
# * from the latent up to the nope keys and the values (`value_dim`) of all heads;
# * from the values of all heads back to the hidden state.
#
# A model whose `q_lora_dim` is None has one projection in place of the first two, from the hidden state straight to the
# queries. No norms, no biases, no indexer. Return an int.
#
# By hand, for hidden_dim 5, 2 heads, q_lora_dim 4, latent_dim 3, nope_dim 2, rope_dim 1 and value_dim 2:
# $5\cdot 4 + 4\cdot 6 + 5\cdot 4 + 3\cdot 8 + 4\cdot 5 = 108$.


# %% exercise="attention_params"
def attention_params(model: "Model") -> int:
    """Weights of the projections of one latent-attention layer.

    model: its hidden_dim, num_heads, q_lora_dim (maybe None), latent_dim, nope_dim, rope_dim and value_dim
    returns a count of weights
    """
    ### BEGIN SOLUTION
    queries = model.num_heads * (model.nope_dim + model.rope_dim)
    values = model.num_heads * model.value_dim
    if model.q_lora_dim is None:
        to_queries = model.hidden_dim * queries
    else:
        to_queries = model.q_lora_dim * (model.hidden_dim + queries)
    to_entry = model.hidden_dim * (model.latent_dim + model.rope_dim)
    from_latent = model.latent_dim * (model.num_heads * model.nope_dim + values)
    return to_queries + to_entry + from_latent + values * model.hidden_dim
    ### END SOLUTION


# %% check="attention_params"
check("attention_params", attention_params)

# %% [markdown] hints="attention_params"
# The hints of attention_params.

# %% [markdown]
# ## expert_params
#
# *4 minutes · difficulty 1 of 3 · 1 point*
#
# How many weights does **one routed expert** have? An expert is a gated feed-forward network: a gate and an up
# projection, both from `hidden_dim` to `expert_dim`, and a down projection back. No biases. Return an int.
#
# A dense model has no experts, and None for `expert_dim`. Raise a `ValueError` for it that holds `model.name`.
#
# By hand, for hidden_dim 5 and expert_dim 2: 30.


# %% exercise="expert_params"
def expert_params(model: "Model") -> int:
    """Weights of one routed expert.

    model: its hidden_dim, expert_dim and name
    returns a count of weights; raises ValueError for a dense model
    """
    ### BEGIN SOLUTION
    if model.expert_dim is None:
        raise ValueError(f"{model.name} has no experts")
    return 3 * model.hidden_dim * model.expert_dim
    ### END SOLUTION


# %% check="expert_params"
check("expert_params", expert_params)

# %% [markdown] hints="expert_params"
# The hints of expert_params.

# %% [markdown]
# ## step_seconds
#
# *15 minutes · difficulty 3 of 3 · 4 points*
#
# How long does a decode step take on one GPU? It serves `requests` requests of `cached_tokens` tokens each, and makes
# `num_draft_tokens` drafts for each of them.
#
# `setup` is a record. Of **one layer** on this GPU it holds:
#
# | `setup.` | |
# |---|---|
# | `attention_bytes` | weights of attention |
# | `cache_bytes_per_token` | of each cached token of a request |
# | `pair_flops` | FLOP of attention for one token and one cached token |
# | `local_experts`, `expert_bytes` | experts that this GPU holds, and the weights of each |
# | `active_experts`, `expert_flops` | experts that work on a token, shared ones among them, and the FLOP of each |
# | `experts_per_token`, `token_bytes` | experts that a token is sent to, and the bytes of both ways together for each |
#
# and `setup.layers`, the number of layers, all alike. With $T$ tokens of all requests together in a layer:
#
# * **attention** reads its weights and each request's cache **once**, whatever $T$ is, and computes $T \cdot$
#   `cached_tokens` $\cdot$ `pair_flops` in bf16. It takes the longer of the two times;
# * the **experts** read the weights of all local experts, and compute $T \cdot$ `active_experts` $\cdot$
#   `expert_flops` in fp8: loads are balanced, so as many copies of tokens come from other GPUs as leave. They take the
#   longer of the two, and follow attention;
# * the **all-to-all** moves $T \cdot$ `experts_per_token` $\cdot$ `token_bytes` over the network. It runs beside
#   attention and experts, so the layer takes the longer of it and of their sum.
#
# A step runs all layers on `num_draft_tokens + 1` tokens of each request. Then the drafter, one layer of the same kind,
# runs `num_draft_tokens` times, each time on one token of each request. Return the sum of it all.
#
# `machine.bandwidth` and `machine.network` are in bytes/s, `machine.flops["bf16"]` and `machine.flops["fp8"]` in
# FLOP/s. `ROUNDED` is a `Setup` to try things with: `step_seconds(16, 1, 4096, machine("H100"), ROUNDED)`. Requests,
# drafts and cached tokens may be 0.
#
# By hand: 1 request of 3 cached tokens, 1 draft. Attention has 10 bytes, 2 a cached token and 6 FLOP a pair; of 2 local
# experts of 4 bytes and 8 FLOP, each token needs 3 (some elsewhere); it is sent to 2, for 6 bytes each, both ways
# together. The machine does 2 bytes/s, 6 FLOP/s in bf16, 4 in fp8, and 2 bytes/s on the network. A layer of the step has
# 2 tokens: $\max(\max(8, 6) + \max(4, 12),\ 12) = 20$ s. In the drafter's it is 1 token: $\max(8 + 6, 6) = 14$ s. With
# 4 layers: $4 \cdot 20 + 14 = 94$ s.


# %% exercise="step_seconds"
def step_seconds(
    requests: int, num_draft_tokens: int, cached_tokens: int, machine: "Machine", setup: "Setup"
) -> float:
    """Seconds of one decode step with drafts on one GPU.

    requests: requests that this GPU serves at a time
    num_draft_tokens: drafts for each request
    cached_tokens: tokens in each request's cache
    machine: bandwidth and network in bytes/s, flops in FLOP/s by dtype
    setup: bytes and FLOP of one layer, numbers of its experts, and the number of layers
    returns seconds
    """

    ### BEGIN SOLUTION
    def layer(tokens):
        cache = requests * cached_tokens * setup.cache_bytes_per_token
        attention = max(
            (setup.attention_bytes + cache) / machine.bandwidth,
            tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"],
        )
        experts = max(
            setup.local_experts * setup.expert_bytes / machine.bandwidth,
            tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"],
        )
        return max(
            attention + experts, tokens * setup.experts_per_token * setup.token_bytes / machine.network
        )

    verify = setup.layers * layer(requests * (num_draft_tokens + 1))
    return verify + num_draft_tokens * layer(requests)
    ### END SOLUTION


# %% check="step_seconds"
check("step_seconds", step_seconds)

# %% [markdown] hints="step_seconds"
# The hints of step_seconds.

# %% [markdown]
# ## mtp_speedup
#
# *8 minutes · difficulty 2 of 3 · 2 points*
#
# How many times as many tokens a second does the GPU make with `num_draft_tokens` drafts as without? Above 1 they gain,
# below 1 they lose.
#
# `acceptance` holds conditional probabilities, as in `expected_advance`. It may have more of them than drafts are made:
# then only the first `num_draft_tokens` count. With fewer, raise a `ValueError` whose message holds the word
# `acceptance`. The other arguments are those of `step_seconds`; where there is no request, the ratio is still that of the
# formula.
#
# You may call your functions from above. Where one of them is not written yet, write its lines here.
#
# By hand, for the example above with an acceptance of 0.5: without a draft a step takes $4 \cdot 14 = 56$ s for one
# token, with one it takes 94 s for 1.5. The gain is $1.5 \cdot 56 / 94 = 0.894$, a loss.


# %% exercise="mtp_speedup"
def mtp_speedup(
    requests: int,
    num_draft_tokens: int,
    cached_tokens: int,
    acceptance: list[float],
    machine: "Machine",
    setup: "Setup",
) -> float:
    """Tokens a second with drafts over tokens a second without.

    requests: requests that this GPU serves at a time
    num_draft_tokens: drafts for each request
    cached_tokens: tokens in each request's cache
    acceptance: conditional probabilities, one for each draft or more
    machine: bandwidth and network in bytes/s, flops in FLOP/s by dtype
    setup: bytes and FLOP of one layer, numbers of its experts, and the number of layers
    returns a ratio; raises ValueError where acceptance is shorter than num_draft_tokens
    """
    ### BEGIN SOLUTION
    if len(acceptance) < num_draft_tokens:
        raise ValueError(f"acceptance has {len(acceptance)} numbers for {num_draft_tokens} drafts")
    plain = step_seconds(requests, 0, cached_tokens, machine, setup)
    drafted = step_seconds(requests, num_draft_tokens, cached_tokens, machine, setup)
    return expected_advance(acceptance[:num_draft_tokens]) * plain / drafted
    ### END SOLUTION


# %% check="mtp_speedup"
check("mtp_speedup", mtp_speedup)

# %% [markdown] hints="mtp_speedup"
# The hints of mtp_speedup.

# %% [markdown]
# ## break_even_acceptance
#
# *3 minutes · difficulty 1 of 3 · 1 point*
#
# One draft makes a step `step_ratio` times as long. At which acceptance does the draft neither gain nor lose?
#
# Return the number as it comes out. Above 1 it says that a draft never pays, and by how much; below 0 that it
# always does.
#
# By hand: a step half as long again, 1.5, is paid for by an acceptance of 0.5.


# %% exercise="break_even_acceptance"
def break_even_acceptance(step_ratio: float) -> float:
    """The acceptance at which one draft neither gains nor loses.

    step_ratio: seconds of a step with one draft over seconds of a step without
    returns a probability, or a number beyond 0 … 1 where there is none
    """
    ### BEGIN SOLUTION
    return step_ratio - 1.0
    ### END SOLUTION


# %% check="break_even_acceptance"
check("break_even_acceptance", break_even_acceptance)

# %% [markdown] hints="break_even_acceptance"
# The hints of break_even_acceptance.

# %% [markdown]
# ## best_draft_count
#
# *8 minutes · difficulty 2 of 3 · 2 points*
#
# Under this load, how many drafts gain most? Choose among 0 and `len(acceptance)` and all numbers between. Gains that
# differ by less than a share of $10^{-12}$ of their size count as equal, and then the smallest number wins. Return an
# int.
#
# You may call your functions from above. Where one of them is not written yet, write its lines here.
#
# By hand, for the example above with acceptances of 0.9 and 0.9: the gains of 0, 1 and 2 drafts are 1, 1.13 and 1.12.
# The answer is 1.


# %% exercise="best_draft_count"
def best_draft_count(
    requests: int, cached_tokens: int, acceptance: list[float], machine: "Machine", setup: "Setup"
) -> int:
    """The number of drafts with the largest gain.

    requests: requests that this GPU serves at a time
    cached_tokens: tokens in each request's cache
    acceptance: conditional probabilities, one for each draft that could be made
    machine: bandwidth and network in bytes/s, flops in FLOP/s by dtype
    setup: bytes and FLOP of one layer, numbers of its experts, and the number of layers
    returns a count from 0 to len(acceptance)
    """
    ### BEGIN SOLUTION
    best, largest = 0, 1.0
    for count in range(1, len(acceptance) + 1):
        gain = mtp_speedup(requests, count, cached_tokens, acceptance, machine, setup)
        if gain > largest * (1 + 1e-12):
            best, largest = count, gain
    return best
    ### END SOLUTION


# %% check="best_draft_count"
check("best_draft_count", best_draft_count)

# %% [markdown] hints="best_draft_count"
# The hints of best_draft_count.

# %% [markdown]
# ## verify_rows_cost
#
# *10 minutes · difficulty 2 of 3 · 2 points*
#
# Verifying gives each request `num_draft_tokens + 1` rows in place of one. By what factor does absorbed **attention**
# become slower, in a cache so long that only cached tokens count?
#
# For each cached token attention reads one entry, **once for all heads and all rows**, and computes 2 · (latent_dim +
# rope_dim) FLOP for the score and 2 · latent_dim for the mix, for each head of each row. Reading and arithmetic overlap:
# the longer one is the time, with one row and with all of them. No causal mask, no sparsity, no projections.
#
# `cache_format` is one of three, and sets the bytes of an entry: `"bf16_mla"` 2 · (latent_dim + rope_dim);
# `"fp8_ds_mla"` latent_dim + 4 · ⌈latent_dim / 128⌉ + 2 · rope_dim, which is 656 for widths of 512 and 64;
# `"fp8_plain_mla"` latent_dim + rope_dim. `dtype` is that of the arithmetic, a key of `machine.flops`. For another
# format or dtype raise a `ValueError` that names the choices.
#
# By hand: 2 heads, latent_dim 3 and rope_dim 1 in bf16, so 8 bytes and 28 FLOP a row. On a machine of 2 bytes/s and 12
# FLOP/s: one row takes $\max(4, 2.33) = 4$ s a token, two take $\max(4, 4.67)$. The factor is 1.167.


# %% exercise="verify_rows_cost"
def verify_rows_cost(
    model: "Model", num_draft_tokens: int, cache_format: str, machine: "Machine", dtype: str
) -> float:
    """Time of absorbed attention with num_draft_tokens + 1 rows a request over its time with one.

    model: its num_heads, latent_dim and rope_dim
    cache_format: "bf16_mla", "fp8_ds_mla" or "fp8_plain_mla"
    machine: bandwidth in bytes/s, flops in FLOP/s by dtype
    dtype: of the arithmetic
    returns a ratio; raises ValueError for another cache format or dtype
    """
    ### BEGIN SOLUTION
    latent, rope = model.latent_dim, model.rope_dim
    entries = {
        "bf16_mla": 2 * (latent + rope),
        "fp8_ds_mla": latent + 4 * -(-latent // 128) + 2 * rope,
        "fp8_plain_mla": latent + rope,
    }
    for name, choices in ((cache_format, entries), (dtype, machine.flops)):
        if name not in choices:
            raise ValueError(f"{name!r} is none of: {', '.join(choices)}")
    reading = entries[cache_format] / machine.bandwidth
    one_row = 2 * model.num_heads * (2 * latent + rope) / machine.flops[dtype]
    return max(reading, (num_draft_tokens + 1) * one_row) / max(reading, one_row)
    ### END SOLUTION


# %% check="verify_rows_cost"
check("verify_rows_cost", verify_rows_cost)

# %% [markdown] hints="verify_rows_cost"
# The hints of verify_rows_cost.

# %% [markdown]
# ## What you can now explain
#
# * What a step with drafts reads once, and what it pays for each token.
# * At which loads drafts gain and at which they lose, and how good they must be to break even.
# * Why the latent's small cache makes verifying dearer than MHA's large one does.
