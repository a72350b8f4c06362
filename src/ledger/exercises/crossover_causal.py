"""Chapter 5: the crossing where the new tokens are keys too."""

import math
from decimal import Decimal, localcontext

import numpy as np

from ledger.account.crossover import absorb_macs, materialize_macs
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.crossover_new_tokens import GLM_52, HEADS_LEFT_IN, V3, make, times_heads
from ledger.exercises.making import drawn


def make_drawn(rng, dtype):
    return drawn(rng, cached_tokens=(300, 3000), latent_dim=(300, 900), nope_dim=(30, 130), value_dim=(140, 290))


def oracle(cached_tokens, latent_dim, nope_dim, value_dim):
    """The positive root of d·S²/2 + d·C·S − C·P in 60 digits, its coefficients from counts of one pair."""
    pair = 1, 1, latent_dim, nope_dim, 0, value_dim, 1
    projection = absorb_macs(*pair)["projection"]
    extra = absorb_macs(*pair)["attention"] - materialize_macs(*pair)["attention"]
    if extra <= 0:
        return math.inf
    with localcontext() as context:
        context.prec = 60
        a, b, c = Decimal(extra) / 2, Decimal(extra * cached_tokens), Decimal(-cached_tokens * projection)
        return float((-b + (b * b - 4 * a * c).sqrt()) / (2 * a))


def not_causal(cached_tokens, latent_dim, nope_dim, value_dim):
    projection = latent_dim * (nope_dim + value_dim)
    denominator = projection + cached_tokens * (2 * latent_dim - nope_dim - value_dim)
    return cached_tokens * projection / denominator if denominator > 0 else np.inf


def whole_square(cached_tokens, latent_dim, nope_dim, value_dim):
    extra = 2 * latent_dim - nope_dim - value_dim
    if extra <= 0:
        return np.inf
    limit = latent_dim * (nope_dim + value_dim) / extra
    return ((cached_tokens**2 + 4 * cached_tokens * limit) ** 0.5 - cached_tokens) / 2


def two_forgotten(cached_tokens, latent_dim, nope_dim, value_dim):
    extra = 2 * latent_dim - nope_dim - value_dim
    if extra <= 0:
        return np.inf
    limit = latent_dim * (nope_dim + value_dim) / extra
    return (cached_tokens**2 + cached_tokens * limit) ** 0.5 - cached_tokens


def long_context_only(cached_tokens, latent_dim, nope_dim, value_dim):
    extra = 2 * latent_dim - nope_dim - value_dim
    return latent_dim * (nope_dim + value_dim) / extra if extra > 0 else np.inf


def other_root(cached_tokens, latent_dim, nope_dim, value_dim):
    extra = 2 * latent_dim - nope_dim - value_dim
    if extra <= 0:
        return np.inf
    limit = latent_dim * (nope_dim + value_dim) / extra
    return -((cached_tokens**2 + 2 * cached_tokens * limit) ** 0.5) - cached_tokens


def cache_not_subtracted(cached_tokens, latent_dim, nope_dim, value_dim):
    extra = 2 * latent_dim - nope_dim - value_dim
    if extra <= 0:
        return np.inf
    limit = latent_dim * (nope_dim + value_dim) / extra
    return (cached_tokens**2 + 2 * cached_tokens * limit) ** 0.5


def halved_once_more(cached_tokens, latent_dim, nope_dim, value_dim):
    extra = 2 * latent_dim - nope_dim - value_dim
    if extra <= 0:
        return np.inf
    limit = latent_dim * (nope_dim + value_dim) / extra
    return ((cached_tokens**2 + 2 * cached_tokens * limit) ** 0.5 - cached_tokens) / 2


def with_the_diagonal(cached_tokens, latent_dim, nope_dim, value_dim):
    extra = 2 * latent_dim - nope_dim - value_dim
    if extra <= 0:
        return np.inf
    limit, half = latent_dim * (nope_dim + value_dim) / extra, cached_tokens + 0.5
    return (half**2 + 2 * cached_tokens * limit) ** 0.5 - half


def heads_left_in(cached_tokens, latent_dim, nope_dim, value_dim):
    extra = 2 * latent_dim - nope_dim - value_dim
    if extra <= 0:
        return np.inf
    limit = latent_dim * (nope_dim + value_dim) / extra
    return 128 * ((cached_tokens**2 + 2 * cached_tokens * limit) ** 0.5 - cached_tokens)


def zero_before_infinite(cached_tokens, latent_dim, nope_dim, value_dim):
    extra = 2 * latent_dim - nope_dim - value_dim
    if not cached_tokens:
        return 0.0
    if extra <= 0:
        return np.inf
    limit = latent_dim * (nope_dim + value_dim) / extra
    return (cached_tokens**2 + 2 * cached_tokens * limit) ** 0.5 - cached_tokens


def infinity_multiplied(cached_tokens, latent_dim, nope_dim, value_dim):
    extra = 2 * latent_dim - nope_dim - value_dim
    limit = latent_dim * (nope_dim + value_dim) / extra if extra > 0 else np.inf
    return (cached_tokens**2 + 2 * cached_tokens * limit) ** 0.5 - cached_tokens


EXERCISE = Exercise(
    id="crossover_causal",
    chapter=5,
    order=5,
    title="the crossing of a prefill",
    checks="the crossing where each new token also attends to the new ones before it",
    points=2,
    difficulty=3,
    minutes=12,
    make=make,
    oracle=oracle,
    cases=(
        Case("the toy by hand", {"cached_tokens": 4, "latent_dim": 3, "nope_dim": 2, "value_dim": 2}),
        Case("DeepSeek-V3 at 4,096", {"cached_tokens": 4096, **V3}),
        Case("GLM-5.2 at 4,096", {"cached_tokens": 4096, **GLM_52}),
        Case("DeepSeek-V3, a short cache", {"cached_tokens": 100, **V3}),
        Case("DeepSeek-V3, one cached token", {"cached_tokens": 1, **V3}),
        Case("sizes drawn at random", make=make_drawn),
        Case("empty cache", {"cached_tokens": 0, **V3}),
        Case("all but two latents wide", {"cached_tokens": 50, "latent_dim": 64, "nope_dim": 47, "value_dim": 80}),
        Case("heads wider than the latents", {"cached_tokens": 50, "latent_dim": 64, "nope_dim": 96, "value_dim": 160}),
        Case(
            "heads wider than the latents, empty cache",
            {"cached_tokens": 0, "latent_dim": 64, "nope_dim": 96, "value_dim": 160},
        ),
        Case(
            "heads twice as wide as the latents",
            {"cached_tokens": 50, "latent_dim": 64, "nope_dim": 48, "value_dim": 80},
        ),
        Case(
            "heads twice as wide as the latents, empty cache",
            {"cached_tokens": 0, "latent_dim": 64, "nope_dim": 48, "value_dim": 80},
        ),
        Case("nothing to project", {"cached_tokens": 50, "latent_dim": 512, "nope_dim": 0, "value_dim": 0}),
    ),
    hints=(
        "Count the pairs first: each new token attends to all cached ones and to about half of the new ones. And which "
        "tokens does each route project now that the new ones are keys as well?",
        "Materialize projects cached and new tokens, absorb projects the new ones: their difference is what the cache "
        "costs to rebuild. Set it equal to what absorb pays more for all pairs. The result is a quadratic equation in "
        "the new tokens, and one of its roots is positive.",
        "Fill the gaps (limit is the exercise before this one):\n\n"
        "    gain = 2 * ____ * limit\n"
        "    return math.sqrt(____ + gain) - ____\n"
        "and deal with an infinite limit before that.",
    ),
    mistakes=(
        Mistake(
            "zero before infinite",
            "where the heads are wide absorb never loses, with an empty cache too: look at the widths first",
            zero_before_infinite,
        ),
        Mistake(
            "not causal",
            "this is the crossing where the new tokens are no keys. In a prefill they attend to each other too",
            not_causal,
        ),
        Mistake(
            "the whole square",
            "every new token is counted against every other. The mask leaves half of that square",
            whole_square,
        ),
        Mistake(
            "factor 2 lost",
            "a factor 2 is missing under the root: multiply the equation by 2 to be rid of S²/2, all of its terms",
            two_forgotten,
        ),
        Mistake(
            "long context only", "this is the limit for a long context; here the cache has a length", long_context_only
        ),
        Mistake(
            "the other root", "the equation has two roots. The number of new tokens is the positive one", other_root
        ),
        Mistake(
            "cache not subtracted",
            "this is cached and new tokens together: the root less cached_tokens is asked for",
            cache_not_subtracted,
        ),
        Mistake(
            "halved once more",
            "this is half the crossing: the leading coefficient is 1/2, so twice it is 1",
            halved_once_more,
        ),
        Mistake(
            "the diagonal counted",
            "the triangle is counted as S·(S + 1)/2, which is exact. Here it is to be taken as S²/2",
            with_the_diagonal,
        ),
        Mistake("head count left in", HEADS_LEFT_IN, heads_left_in, times_heads(oracle)),
    ),
    mutants=(
        Mutant(not_causal, "not causal"),
        Mutant(whole_square, "the whole square"),
        Mutant(two_forgotten, "factor 2 lost"),
        Mutant(long_context_only, "long context only"),
        Mutant(other_root, "the other root"),
        Mutant(cache_not_subtracted, "cache not subtracted"),
        Mutant(halved_once_more, "halved once more"),
        Mutant(with_the_diagonal, "the diagonal counted"),
        Mutant(heads_left_in, "head count left in"),
        Mutant(zero_before_infinite, "zero before infinite"),
        Mutant(infinity_multiplied, "nan"),
    ),
)
