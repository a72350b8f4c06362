"""Chapter 5: the number of new tokens at which both routes cost the same."""

import math
from fractions import Fraction

import numpy as np

from ledger.account.crossover import absorb_macs, materialize_macs
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import drawn
from ledger.models import MODELS

#: How many heads a model of the course may have.
HEAD_COUNTS = sorted({model.num_heads for model in MODELS.values()})
HEADS_LEFT_IN = "this is the crossing times a model's head count. Every term has the heads as a factor, so they cancel"
V3 = {"latent_dim": 512, "nope_dim": 128, "value_dim": 128}
GLM_52 = {"latent_dim": 512, "nope_dim": 192, "value_dim": 256}


def make(rng, dtype, cached_tokens, latent_dim, nope_dim, value_dim):
    return {"cached_tokens": cached_tokens, "latent_dim": latent_dim, "nope_dim": nope_dim, "value_dim": value_dim}


def make_drawn(rng, dtype):
    return drawn(rng, cached_tokens=(300, 9000), latent_dim=(300, 900), nope_dim=(30, 130), value_dim=(140, 290))


def dearer(new_tokens, cached_tokens, latent_dim, nope_dim, value_dim):
    """Multiply-adds by which materialize is dearer, for one head; the rope part cancels."""
    sizes = new_tokens, cached_tokens, latent_dim, nope_dim, 0, value_dim, 1
    return materialize_macs(*sizes)["total"] - absorb_macs(*sizes)["total"]


def oracle(cached_tokens, latent_dim, nope_dim, value_dim):
    """The zero of the difference of both counts, which is a straight line in the new tokens."""
    widths = cached_tokens, latent_dim, nope_dim, value_dim
    start, fall = dearer(0, *widths), dearer(0, *widths) - dearer(1, *widths)
    return float(Fraction(start, fall)) if fall > 0 else math.inf


def long_context_only(cached_tokens, latent_dim, nope_dim, value_dim):
    extra = 2 * latent_dim - nope_dim - value_dim
    return latent_dim * (nope_dim + value_dim) / extra if extra > 0 else np.inf


def long_context_unguarded(cached_tokens, latent_dim, nope_dim, value_dim):
    return latent_dim * (nope_dim + value_dim) / (2 * latent_dim - nope_dim - value_dim)


def zero_for_an_empty_cache(cached_tokens, latent_dim, nope_dim, value_dim):
    projection = latent_dim * (nope_dim + value_dim)
    denominator = projection + cached_tokens * (2 * latent_dim - nope_dim - value_dim)
    if cached_tokens == 0:
        return 0.0
    return cached_tokens * projection / denominator if denominator > 0 else np.inf


def second_term_subtracted(cached_tokens, latent_dim, nope_dim, value_dim):
    projection = latent_dim * (nope_dim + value_dim)
    denominator = projection - cached_tokens * (2 * latent_dim - nope_dim - value_dim)
    return cached_tokens * projection / denominator if denominator > 0 else np.inf


def infinite_below_zero_alone(cached_tokens, latent_dim, nope_dim, value_dim):
    projection = latent_dim * (nope_dim + value_dim)
    denominator = projection + cached_tokens * (2 * latent_dim - nope_dim - value_dim)
    return cached_tokens * projection / denominator if denominator >= 0 else np.inf


def heads_left_in(cached_tokens, latent_dim, nope_dim, value_dim):
    projection = latent_dim * (nope_dim + value_dim)
    denominator = projection + cached_tokens * (2 * latent_dim - nope_dim - value_dim)
    return 128 * cached_tokens * projection / denominator if denominator > 0 else np.inf


def times_heads(right):
    """For each head count the function that returns it times the ``right`` crossing of its arguments."""
    return tuple(lambda *sizes, heads=heads: heads * right(*sizes) for heads in HEAD_COUNTS)


def one_latent(cached_tokens, latent_dim, nope_dim, value_dim):
    projection = latent_dim * (nope_dim + value_dim)
    denominator = projection + cached_tokens * (latent_dim - nope_dim - value_dim)
    return cached_tokens * projection / denominator if denominator > 0 else np.inf


def keys_alone(cached_tokens, latent_dim, nope_dim, value_dim):
    denominator = latent_dim * nope_dim + cached_tokens * (latent_dim - nope_dim)
    return cached_tokens * latent_dim * nope_dim / denominator if denominator > 0 else np.inf


def nope_twice(cached_tokens, latent_dim, nope_dim, value_dim):
    projection = latent_dim * 2 * nope_dim
    denominator = projection + cached_tokens * 2 * (latent_dim - nope_dim)
    return cached_tokens * projection / denominator if denominator > 0 else np.inf


def rope_on_one_side(cached_tokens, latent_dim, nope_dim, value_dim):
    projection = latent_dim * (nope_dim + value_dim)
    denominator = projection + cached_tokens * (2 * latent_dim + 64 - nope_dim - value_dim)
    return cached_tokens * projection / denominator if denominator > 0 else np.inf


def new_tokens_not_projected(cached_tokens, latent_dim, nope_dim, value_dim):
    projection = latent_dim * (nope_dim + value_dim)
    denominator = cached_tokens * (2 * latent_dim - nope_dim - value_dim)
    return cached_tokens * projection / denominator if denominator > 0 else np.inf


def upside_down(cached_tokens, latent_dim, nope_dim, value_dim):
    projection = latent_dim * (nope_dim + value_dim)
    denominator = projection + cached_tokens * (2 * latent_dim - nope_dim - value_dim)
    return denominator / (cached_tokens * projection)


def infinite_too_early(cached_tokens, latent_dim, nope_dim, value_dim):
    projection, extra = latent_dim * (nope_dim + value_dim), 2 * latent_dim - nope_dim - value_dim
    denominator = projection + cached_tokens * extra
    return cached_tokens * projection / denominator if denominator > 0 and extra > 0 else np.inf


def never_infinite(cached_tokens, latent_dim, nope_dim, value_dim):
    projection = latent_dim * (nope_dim + value_dim)
    return cached_tokens * projection / (projection + cached_tokens * (2 * latent_dim - nope_dim - value_dim))


def a_whole_number(cached_tokens, latent_dim, nope_dim, value_dim):
    projection = latent_dim * (nope_dim + value_dim)
    denominator = projection + cached_tokens * (2 * latent_dim - nope_dim - value_dim)
    return cached_tokens * projection // denominator if denominator > 0 else np.inf


EXERCISE = Exercise(
    id="crossover_new_tokens",
    chapter=5,
    order=3,
    title="where the routes cross",
    checks="the number of new tokens at which both routes take the same multiply-adds",
    points=2,
    difficulty=2,
    minutes=10,
    make=make,
    oracle=oracle,
    cases=(
        Case("the toy by hand", {"cached_tokens": 3, "latent_dim": 3, "nope_dim": 2, "value_dim": 2}),
        Case("DeepSeek-V3 at 4,096", {"cached_tokens": 4096, **V3}),
        Case("GLM-5.2 at 4,096", {"cached_tokens": 4096, **GLM_52}),
        Case("DeepSeek-V3, a short cache", {"cached_tokens": 100, **V3}),
        Case("a million cached tokens", {"cached_tokens": 1_000_003, **GLM_52}),
        Case("sizes drawn at random", make=make_drawn),
        Case("empty cache", {"cached_tokens": 0, **V3}),
        Case(
            "heads wider than the latents", {"cached_tokens": 4096, "latent_dim": 64, "nope_dim": 96, "value_dim": 160}
        ),
        Case(
            "heads wider than the latents, a short cache",
            {"cached_tokens": 50, "latent_dim": 64, "nope_dim": 96, "value_dim": 160},
        ),
        Case("a denominator of 1", {"cached_tokens": 0, "latent_dim": 1, "nope_dim": 1, "value_dim": 0}),
        Case("a denominator of 0", {"cached_tokens": 128, "latent_dim": 64, "nope_dim": 96, "value_dim": 160}),
        Case("nothing to project", {"cached_tokens": 300, "latent_dim": 512, "nope_dim": 0, "value_dim": 0}),
        Case("nothing to project, empty cache", {"cached_tokens": 0, "latent_dim": 512, "nope_dim": 0, "value_dim": 0}),
    ),
    hints=(
        "Take both totals of one head, as you wrote them in the two exercises before, and set them equal. Which terms "
        "stand on both sides?",
        "The rope scores are the same on both sides, and so is the factor num_heads. Gather what contains the new "
        "tokens on one side: it is a common factor there, and dividing by the rest isolates it.",
        "Fill the gaps:\n\n"
        "    projection = latent_dim * ____  # one token, one head\n"
        "    extra = 2 * ____ - ____ - ____  # a pair's price on absorb's side, less its price on the other\n"
        "    denominator = ____ + cached_tokens * ____\n"
        "    return ____ / denominator  # math.inf where the denominator is not positive",
    ),
    mistakes=(
        Mistake(
            "infinite too early",
            "where the heads are wide the crossing is infinite only in a long cache: look at the whole denominator",
            infinite_too_early,
        ),
        Mistake(
            "zero for an empty cache",
            "with an empty cache and nothing to project the denominator is 0 as well, and that comes first: math.inf",
            zero_for_an_empty_cache,
        ),
        Mistake(
            "second term subtracted",
            "the second term of the denominator has the wrong sign. It is what absorb pays more for a pair, and "
            "stands on the side of absorb's own projection",
            second_term_subtracted,
        ),
        Mistake("head count left in", HEADS_LEFT_IN, heads_left_in, times_heads(oracle)),
        Mistake(
            "long context only",
            "this is the limit for a long context; here the cache has a length",
            long_context_only,
            also=(long_context_unguarded,),
        ),
        Mistake(
            "one latent",
            "absorb's pair is counted with one latent. It meets the latent twice: in the score and in the mix",
            one_latent,
        ),
        Mistake(
            "value_dim left out",
            "this is the crossing with nope_dim in place of value_dim, which is also that of chapter 1's key scores "
            "alone. Values are projected and mixed too, and are wider in some models",
            keys_alone,
        ),
        Mistake(
            "rope dims on one side",
            "the 64 rope dims are counted for absorb alone. Both routes score them, so they cancel",
            rope_on_one_side,
        ),
        Mistake(
            "new tokens not projected",
            "absorb's own projection is missing: it does not grow with the cache, and counts while the cache is short",
            new_tokens_not_projected,
        ),
        Mistake("upside down", "this is one over the crossing", upside_down),
    ),
    mutants=(
        Mutant(zero_for_an_empty_cache, "zero for an empty cache"),
        Mutant(second_term_subtracted, "second term subtracted"),
        Mutant(infinite_below_zero_alone, "ZeroDivisionError", verdict="error"),
        Mutant(heads_left_in, "head count left in"),
        Mutant(long_context_only, "long context only"),
        Mutant(long_context_unguarded, "long context only"),
        Mutant(one_latent, "one latent"),
        Mutant(keys_alone, "value_dim left out"),
        Mutant(rope_on_one_side, "rope dims on one side"),
        Mutant(nope_twice, "value_dim left out"),
        Mutant(new_tokens_not_projected, "new tokens not projected"),
        Mutant(upside_down, "upside down"),
        Mutant(infinite_too_early, "infinite too early"),
        Mutant(never_infinite, "wanted inf"),
        Mutant(a_whole_number, "cut to a whole number"),
    ),
)
