# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Practice 5: cost and crossover
#
# You count both routes of a whole layer, find where they cross, and let a model's widths decide which one runs. Six
# exercises, about 50 minutes. The lesson that goes with them is
# [5 cost and crossover](../../notebooks/ch05_crossover/crossover.ipynb).
#
# Everything here is a formula: the inputs are ints (and, in the last exercise, a model). Counts come back as ints,
# exact however large, so let no float in. Crossings come back as floats. `hint("absorb_macs")` shows the first of three
# hints, and `case("absorb_macs", "sizes drawn at random", 123456)` the inputs of a case that a check named.
#
# The letters: $S$ new tokens, $C$ cached tokens, $L$ the width of a latent, $n$, $r$, $v$ the widths of a head's nope,
# rope and value part. No causal mask, and the new tokens are not among the cached ones, unless the statement says so.
#
# `%judge` in a cell, after the import below, shows how far you are. In a browser it also gives your answers as a file,
# and takes one back.

# %%
import math

from ledger import case, check, hint
from ledger.models import model

# %% [markdown]
# ## materialize_macs
#
# *8 minutes · difficulty 1 of 3 · 2 points*
#
# One layer rebuilds the keys and values of all cached tokens, and attends to them. Each head makes four products:
#
# 1. the latents, (cached_tokens, latent_dim), times its key matrix, (latent_dim, nope_dim);
# 2. the latents times its value matrix, (latent_dim, value_dim);
# 3. its queries, nope and rope side by side, against its keys, which have the shared rope part beside their own;
# 4. its attention weights times its values.
#
# Return a dict of three ints, for all heads together: `projection` (products 1 and 2), `attention` (products 3 and 4)
# and `total` (their sum). A product of (rows, inner) and (inner, cols) takes rows · inner · cols multiply-adds, and one
# multiply-add counts as one. Leave out everything else: softmax, scale, RoPE and norms, the projections that make
# queries and cache entries, and the output projection.
#
# All sizes may be 0.
#
# By hand, one head, one new token, three cached ones, latents of width 3, and 2 for each of nope, rope and value:
# projection 36, attention 18, total 54.


# %% exercise="materialize_macs"
def materialize_macs(
    new_tokens: int,
    cached_tokens: int,
    latent_dim: int,
    nope_dim: int,
    rope_dim: int,
    value_dim: int,
    num_heads: int,
) -> dict[str, int]:
    """Multiply-adds of one layer that rebuilds keys and values.

    new_tokens, cached_tokens: numbers of tokens
    latent_dim: width of a cached latent
    nope_dim, rope_dim, value_dim: widths of one head's content key, of the shared rope key, of one head's value
    num_heads: number of heads
    returns a dict of ints: "projection", "attention", "total", each for all heads
    """
    ### BEGIN SOLUTION
    projection = num_heads * cached_tokens * latent_dim * (nope_dim + value_dim)
    attention = num_heads * new_tokens * cached_tokens * (nope_dim + rope_dim + value_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}
    ### END SOLUTION


# %% check="materialize_macs"
check("materialize_macs", materialize_macs)

# %% [markdown] hints="materialize_macs"
# The hints of materialize_macs.

# %% [markdown]
# ## absorb_macs
#
# *8 minutes · difficulty 1 of 3 · 2 points*
#
# The same layer by the other route. Each head makes four products here too:
#
# 1. its nope queries, (new_tokens, nope_dim), times its key matrix, to latent_dim;
# 2. its absorbed queries, latent and rope side by side, against the cache entries, which are as wide;
# 3. its attention weights times the latents of the entries;
# 4. the mixed latents times its value matrix, to value_dim.
#
# Return the same dict of three ints for all heads together. `projection` is products 1 and 4, `attention` is products 2
# and 3, `total` their sum. Counted and left out is the same as before. All sizes may be 0.
#
# By hand, at the sizes of the exercise before: projection 12, attention 24, total 36.


# %% exercise="absorb_macs"
def absorb_macs(
    new_tokens: int,
    cached_tokens: int,
    latent_dim: int,
    nope_dim: int,
    rope_dim: int,
    value_dim: int,
    num_heads: int,
) -> dict[str, int]:
    """Multiply-adds of one layer that absorbs both projections.

    new_tokens, cached_tokens: numbers of tokens
    latent_dim: width of a cached latent
    nope_dim, rope_dim, value_dim: widths of one head's content query, of its rope query, of its value
    num_heads: number of heads
    returns a dict of ints: "projection", "attention", "total", each for all heads
    """
    ### BEGIN SOLUTION
    projection = num_heads * new_tokens * latent_dim * (nope_dim + value_dim)
    attention = num_heads * new_tokens * cached_tokens * (latent_dim + rope_dim + latent_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}
    ### END SOLUTION


# %% check="absorb_macs"
check("absorb_macs", absorb_macs)

# %% [markdown] hints="absorb_macs"
# The hints of absorb_macs.

# %% [markdown]
# ## crossover_new_tokens
#
# *10 minutes · difficulty 2 of 3 · 2 points*
#
# At how many new tokens do both routes cost the same? Return that number as a float: it need not be whole.
#
# The signature tells you what will cancel: heads and rope_dim are not in it.
#
# Your solution is a fraction. Bring it to the denominator
#
# $$L\,(n + v) + C\,(2L - n - v)$$
#
# Where that is not positive, absorb is cheaper however many new tokens there are: return `math.inf`. This needs heads
# wider than latents *and* a long cache; with wide heads and a short cache the denominator is still positive, and the
# formula holds. While it is positive an empty cache gives 0.0, and so does a model with nothing to project,
# $n + v = 0$. With both it is 0, so the result is `math.inf`.
#
# All sizes are ints and may be 0.
#
# By hand, with three cached tokens, latents of width 3 and heads of nope 2 and value 2: 2.0. Both totals of one head
# are 72 there, with a rope part of width 2.


# %% exercise="crossover_new_tokens"
def crossover_new_tokens(cached_tokens: int, latent_dim: int, nope_dim: int, value_dim: int) -> float:
    """The number of new tokens at which both routes take the same multiply-adds.

    cached_tokens: number of cached tokens
    latent_dim, nope_dim, value_dim: widths of a latent, of a head's content key and of its value
    returns a number of tokens; math.inf where the denominator is not positive
    """
    ### BEGIN SOLUTION
    projection = latent_dim * (nope_dim + value_dim)
    denominator = projection + cached_tokens * (2 * latent_dim - nope_dim - value_dim)
    return cached_tokens * projection / denominator if denominator > 0 else math.inf
    ### END SOLUTION


# %% check="crossover_new_tokens"
check("crossover_new_tokens", crossover_new_tokens)

# %% [markdown] hints="crossover_new_tokens"
# The hints of crossover_new_tokens.

# %% [markdown]
# ## crossover_limit
#
# *5 minutes · difficulty 1 of 3 · 1 point*
#
# What does the crossing tend to as the cache grows? Return the limit as a float: it depends on three widths alone.
# Where twice latent_dim is nope_dim + value_dim, the crossing grows without bound, and where it is less, there is none
# in a long context: return `math.inf` for both.
#
# All widths are ints and may be 0.
#
# By hand, with latents of width 3 and heads of nope 2 and value 2: 6.0.


# %% exercise="crossover_limit"
def crossover_limit(latent_dim: int, nope_dim: int, value_dim: int) -> float:
    """The number of new tokens at which both routes cost the same in a long context.

    latent_dim, nope_dim, value_dim: widths of a latent, of a head's content key and of its value
    returns a number of tokens; math.inf where 2 * latent_dim <= nope_dim + value_dim
    """
    ### BEGIN SOLUTION
    extra = 2 * latent_dim - nope_dim - value_dim
    return latent_dim * (nope_dim + value_dim) / extra if extra > 0 else math.inf
    ### END SOLUTION


# %% check="crossover_limit"
check("crossover_limit", crossover_limit)

# %% [markdown] hints="crossover_limit"
# The hints of crossover_limit.

# %% [markdown]
# ## crossover_causal
#
# *12 minutes · difficulty 3 of 3 · 2 points*
#
# In a prefill the new tokens are keys too. Each attends to all cached tokens and to the new ones up to itself. So
# materialize projects the cached *and* the new tokens, absorb projects the new ones as before, and both make the same
# number of pairs: $S \cdot C$ and a triangle. **Take the triangle as $S^2/2$** (it is $S(S+1)/2$ with its diagonal,
# which hardly matters here). Set both sides equal once more and solve for $S$.
#
# Return the positive solution as a float. Where twice latent_dim is not more than nope_dim + value_dim return
# `math.inf`, whatever the cache. Otherwise an empty cache gives 0.0.
#
# All sizes are ints and may be 0.
#
# By hand, with four cached tokens, latents of width 3 and heads of nope 2 and value 2: 4.0.


# %% exercise="crossover_causal"
def crossover_causal(cached_tokens: int, latent_dim: int, nope_dim: int, value_dim: int) -> float:
    """The number of new tokens, causal among themselves, at which both routes take the same multiply-adds.

    cached_tokens: number of cached tokens before the new ones
    latent_dim, nope_dim, value_dim: widths of a latent, of a head's content key and of its value
    returns a number of tokens; math.inf where 2 * latent_dim <= nope_dim + value_dim
    """
    ### BEGIN SOLUTION
    extra = 2 * latent_dim - nope_dim - value_dim
    if extra <= 0:
        return math.inf
    long_context = latent_dim * (nope_dim + value_dim) / extra
    return math.sqrt(cached_tokens**2 + 2 * cached_tokens * long_context) - cached_tokens
    ### END SOLUTION


# %% check="crossover_causal"
check("crossover_causal", crossover_causal)

# %% [markdown] hints="crossover_causal"
# The hints of crossover_causal.

# %% [markdown]
# ## pick_path
#
# *8 minutes · difficulty 2 of 3 · 2 points*
#
# Say which route a step should take if multiply-adds were all that matters. Return the string `"absorb"` or
# `"materialize"`, whichever has fewer of them in this step; **a tie is `"absorb"`**. Count as in the first two
# exercises: the new tokens are not among the cached ones, and there is no mask.
#
# `model` is one of the course's models. Its widths are attributes: `model.latent_dim`, `model.nope_dim`,
# `model.rope_dim`, `model.value_dim`, `model.num_heads`. Any of the published ones may come, and some that nobody
# built: with heads wider than their latents, absorb may be cheaper for every number of new tokens. Either number of
# tokens may be 0, and both are ints.
#
# By hand, for DeepSeek-V3 with 512 cached tokens: 128 new tokens are a tie, so `"absorb"`; 129 are `"materialize"`.


# %% exercise="pick_path"
def pick_path(new_tokens: int, cached_tokens: int, model) -> str:
    """The route with fewer multiply-adds.

    new_tokens, cached_tokens: numbers of tokens
    model: a Model with latent_dim, nope_dim, rope_dim, value_dim and num_heads
    returns "absorb" or "materialize"; a tie is "absorb"
    """
    ### BEGIN SOLUTION
    heads_dim = model.nope_dim + model.value_dim
    pairs = new_tokens * cached_tokens
    rebuilt = cached_tokens * model.latent_dim * heads_dim + pairs * heads_dim
    absorbed = new_tokens * model.latent_dim * heads_dim + pairs * 2 * model.latent_dim
    return "absorb" if absorbed <= rebuilt else "materialize"
    ### END SOLUTION


# %% check="pick_path"
check("pick_path", pick_path)

# %% [markdown] hints="pick_path"
# The hints of pick_path.

# %% [markdown]
# ## What you can now explain
#
# * Which products each route makes, and why only one projection term contains the cache.
# * Why the crossing contains neither the heads nor the rope width.
# * Why it hardly depends on the length of a long cache, and what a causal prefill changes.
# * Why GLM-5.2 crosses at more than twice DeepSeek-V3's number of tokens.
#
# Try `pick_path(200, 4096, model("DeepSeek-V3"))` and the same for `"GLM-5.2"`. Which two widths decide, and why is it
# their sum?
#
# Next: [lesson 6](../../notebooks/ch06_cache/cache.ipynb). Multiply-adds are one half of the account; the other half is
# the memory that the cache takes.
