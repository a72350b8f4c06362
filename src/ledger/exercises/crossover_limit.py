"""Chapter 5: the crossing in a long context."""

import math
from fractions import Fraction

import numpy as np

from ledger.account.crossover import absorb_macs, materialize_macs
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.crossover_new_tokens import HEADS_LEFT_IN, times_heads
from ledger.exercises.making import drawn


def make(rng, dtype, latent_dim, nope_dim, value_dim):
    return {"latent_dim": latent_dim, "nope_dim": nope_dim, "value_dim": value_dim}


def make_drawn(rng, dtype):
    return drawn(rng, latent_dim=(300, 900), nope_dim=(30, 130), value_dim=(140, 290))


def oracle(latent_dim, nope_dim, value_dim):
    """What one new token's projection costs, over what absorb pays more for one pair."""
    pair = 1, 1, latent_dim, nope_dim, 0, value_dim, 1
    extra = absorb_macs(*pair)["attention"] - materialize_macs(*pair)["attention"]
    return float(Fraction(materialize_macs(*pair)["projection"], extra)) if extra > 0 else math.inf


def value_alone(latent_dim, nope_dim, value_dim):
    extra = 2 * latent_dim - nope_dim - value_dim
    return latent_dim * value_dim / extra if extra > 0 else np.inf


def nope_alone(latent_dim, nope_dim, value_dim):
    extra = 2 * latent_dim - nope_dim - value_dim
    return latent_dim * nope_dim / extra if extra > 0 else np.inf


def heads_left_in(latent_dim, nope_dim, value_dim):
    extra = 2 * latent_dim - nope_dim - value_dim
    return 128 * latent_dim * (nope_dim + value_dim) / extra if extra > 0 else np.inf


def one_latent(latent_dim, nope_dim, value_dim):
    extra = latent_dim - nope_dim - value_dim
    return latent_dim * (nope_dim + value_dim) / extra if extra > 0 else np.inf


def rope_on_one_side(latent_dim, nope_dim, value_dim):
    extra = 2 * latent_dim + 64 - nope_dim - value_dim
    return latent_dim * (nope_dim + value_dim) / extra if extra > 0 else np.inf


def at_4096(latent_dim, nope_dim, value_dim):
    projection = latent_dim * (nope_dim + value_dim)
    denominator = projection + 4096 * (2 * latent_dim - nope_dim - value_dim)
    return 4096 * projection / denominator if denominator > 0 else np.inf


def upside_down(latent_dim, nope_dim, value_dim):
    return (2 * latent_dim - nope_dim - value_dim) / (latent_dim * (nope_dim + value_dim))


def negative(latent_dim, nope_dim, value_dim):
    extra = 2 * latent_dim - nope_dim - value_dim
    return latent_dim * (nope_dim + value_dim) / extra if extra else np.inf


def always_divided(latent_dim, nope_dim, value_dim):
    return latent_dim * (nope_dim + value_dim) / (2 * latent_dim - nope_dim - value_dim)


EXERCISE = Exercise(
    id="crossover_limit",
    chapter=5,
    order=4,
    title="the crossing in a long context",
    checks="the crossing that a long cache tends to",
    points=1,
    difficulty=1,
    minutes=5,
    make=make,
    oracle=oracle,
    cases=(
        Case("the toy by hand", {"latent_dim": 3, "nope_dim": 2, "value_dim": 2}),
        Case("DeepSeek-V3", {"latent_dim": 512, "nope_dim": 128, "value_dim": 128}),
        Case("GLM-5.2", {"latent_dim": 512, "nope_dim": 192, "value_dim": 256}),
        Case("MiniCPM3-4B", {"latent_dim": 256, "nope_dim": 64, "value_dim": 64}),
        Case("sizes drawn at random", make=make_drawn),
        Case("heads as wide as two latents", {"latent_dim": 64, "nope_dim": 48, "value_dim": 80}),
        Case("all but two latents wide", {"latent_dim": 64, "nope_dim": 47, "value_dim": 80}),
        Case("heads wider than two latents", {"latent_dim": 64, "nope_dim": 96, "value_dim": 160}),
        Case("nothing to project", {"latent_dim": 512, "nope_dim": 0, "value_dim": 0}),
    ),
    hints=(
        "Start from the crossing with a cache of C tokens. Divide its numerator and its denominator by C. What does "
        "one of the terms tend to as C grows?",
        "What is left is a quotient of two prices: projecting one token for one head, and what absorb pays more for "
        "one pair of a new and a cached token.",
        "Fill the gaps:\n\n"
        "    extra = 2 * ____ - ____ - ____\n"
        "    return latent_dim * (____ + ____) / extra  # math.inf where extra is not positive",
    ),
    mistakes=(
        Mistake(
            "nope left out of the projection",
            "the numerator has value_dim alone. Keys and values are both rebuilt: nope_dim + value_dim columns",
            value_alone,
        ),
        Mistake(
            "value left out of the projection",
            "the numerator has nope_dim alone. Keys and values are both rebuilt: nope_dim + value_dim columns",
            nope_alone,
        ),
        Mistake("head count left in", HEADS_LEFT_IN, heads_left_in, times_heads(oracle)),
        Mistake(
            "one latent",
            "absorb's pair is counted with one latent. It meets the latent twice: in the score and in the mix",
            one_latent,
        ),
        Mistake(
            "rope dims on one side",
            "the 64 rope dims are counted for absorb alone. Both routes score them, so they cancel",
            rope_on_one_side,
        ),
        Mistake("a cache of 4,096", "this is the crossing at 4,096 cached tokens, not the limit", at_4096),
        Mistake("upside down", "this is one over the crossing", upside_down),
        Mistake(
            "negative crossing",
            "a negative number of tokens means that the lines never cross: absorb stays cheaper, so math.inf",
            negative,
        ),
    ),
    mutants=(
        Mutant(value_alone, "nope left out of the projection"),
        Mutant(nope_alone, "value left out of the projection"),
        Mutant(heads_left_in, "head count left in"),
        Mutant(one_latent, "one latent"),
        Mutant(rope_on_one_side, "rope dims on one side"),
        Mutant(at_4096, "a cache of 4,096"),
        Mutant(upside_down, "upside down"),
        Mutant(negative, "negative crossing"),
        Mutant(always_divided, "ZeroDivisionError", verdict="error"),
    ),
)
