"""Chapter 4: what scores are multiplied by before the softmax."""

import math

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import drawn
from ledger.models import model


def make(rng, dtype, nope_dim, rope_dim, yarn_factor=None, mscale_all_dim=None):
    return {
        "nope_dim": nope_dim,
        "rope_dim": rope_dim,
        "yarn_factor": yarn_factor,
        "mscale_all_dim": mscale_all_dim,
    }


def of_model(name):
    """A maker of the inputs of one published model."""
    shape = model(name)
    return lambda rng, dtype: make(rng, dtype, shape.nope_dim, shape.rope_dim, shape.yarn_factor, shape.mscale_all_dim)


def with_yarn(yarn_factor, mscale_all_dim):
    return lambda rng, dtype, nope_dim, rope_dim: make(rng, dtype, nope_dim, rope_dim, yarn_factor, mscale_all_dim)


def make_drawn(rng, dtype):
    widths = drawn(rng, nope_dim=(30, 300), rope_dim=(10, 90))
    return make(rng, dtype, **widths, yarn_factor=2 + 60 * rng.random(), mscale_all_dim=0.4 + rng.random())


def oracle(nope_dim, rope_dim, yarn_factor, mscale_all_dim):
    """The scale as powers of e, from the logarithms of its two factors."""
    log_scale = -math.log(nope_dim + rope_dim) / 2
    if yarn_factor is not None and mscale_all_dim is not None:
        stretch = math.log(max(yarn_factor, 1))
        log_scale += 2 * math.log1p(mscale_all_dim * stretch / 10)
    return math.exp(log_scale)


def yarn_left_out(nope_dim, rope_dim, yarn_factor, mscale_all_dim):
    return (nope_dim + rope_dim) ** -0.5


def not_squared(nope_dim, rope_dim, yarn_factor, mscale_all_dim):
    plain = (nope_dim + rope_dim) ** -0.5
    if not mscale_all_dim or yarn_factor is None or yarn_factor <= 1:
        return plain
    return plain * (0.1 * mscale_all_dim * float(np.log(yarn_factor)) + 1)


def mscale_ignored(nope_dim, rope_dim, yarn_factor, mscale_all_dim):
    plain = (nope_dim + rope_dim) ** -0.5
    if not mscale_all_dim or yarn_factor is None or yarn_factor <= 1:
        return plain
    return plain * (0.1 * float(np.log(yarn_factor)) + 1) ** 2


def latent_for_nope(nope_dim, rope_dim, yarn_factor, mscale_all_dim):
    plain = (512 + rope_dim) ** -0.5
    if not mscale_all_dim or yarn_factor is None or yarn_factor <= 1:
        return plain
    return plain * (0.1 * mscale_all_dim * float(np.log(yarn_factor)) + 1) ** 2


def rope_left_out(nope_dim, rope_dim, yarn_factor, mscale_all_dim):
    plain = nope_dim**-0.5
    if not mscale_all_dim or yarn_factor is None or yarn_factor <= 1:
        return plain
    return plain * (0.1 * mscale_all_dim * float(np.log(yarn_factor)) + 1) ** 2


def no_root(nope_dim, rope_dim, yarn_factor, mscale_all_dim):
    plain = 1 / (nope_dim + rope_dim)
    if not mscale_all_dim or yarn_factor is None or yarn_factor <= 1:
        return plain
    return plain * (0.1 * mscale_all_dim * float(np.log(yarn_factor)) + 1) ** 2


def another_logarithm(nope_dim, rope_dim, yarn_factor, mscale_all_dim):
    plain = (nope_dim + rope_dim) ** -0.5
    if not mscale_all_dim or yarn_factor is None or yarn_factor <= 1:
        return plain
    return plain * (0.1 * mscale_all_dim * float(np.log2(yarn_factor)) + 1) ** 2


def factors_below_one(nope_dim, rope_dim, yarn_factor, mscale_all_dim):
    plain = (nope_dim + rope_dim) ** -0.5
    if not mscale_all_dim or yarn_factor is None:
        return plain
    with np.errstate(divide="ignore"):
        return plain * (0.1 * mscale_all_dim * float(np.log(yarn_factor)) + 1) ** 2


def none_not_looked_for(nope_dim, rope_dim, yarn_factor, mscale_all_dim):
    plain = (nope_dim + rope_dim) ** -0.5
    if yarn_factor is not None and yarn_factor <= 1:
        return plain
    return plain * (0.1 * mscale_all_dim * float(np.log(yarn_factor)) + 1) ** 2


def no_mscale_taken_for_1(nope_dim, rope_dim, yarn_factor, mscale_all_dim):
    plain = (nope_dim + rope_dim) ** -0.5
    if yarn_factor is None or yarn_factor <= 1:
        return plain
    mscale = 1.0 if mscale_all_dim is None else mscale_all_dim
    return plain * (0.1 * mscale * float(np.log(yarn_factor)) + 1) ** 2


EXERCISE = Exercise(
    id="softmax_scale",
    chapter=4,
    order=8,
    title="the scale",
    checks="the number that scores are multiplied by before the softmax",
    points=1,
    difficulty=1,
    minutes=6,
    make=make,
    oracle=oracle,
    cases=(
        Case("the toy by hand", {"nope_dim": 12, "rope_dim": 4}),
        Case("DeepSeek-V3", make=of_model("DeepSeek-V3")),
        Case("DeepSeek-V2", make=of_model("DeepSeek-V2")),
        Case("Kimi-K2.5", make=of_model("Kimi-K2.5")),
        Case("GLM-5.2, without YaRN", make=of_model("GLM-5.2")),
        Case("MiniCPM3, without YaRN", make=of_model("MiniCPM3-4B")),
        Case("a factor without an mscale", {"nope_dim": 64, "rope_dim": 32}, make=with_yarn(40.0, None)),
        Case("an mscale of zero", {"nope_dim": 64, "rope_dim": 32}, make=with_yarn(40.0, 0.0)),
        Case("an mscale without a factor", {"nope_dim": 64, "rope_dim": 32}, make=with_yarn(None, 1.0)),
        Case("a factor below one", {"nope_dim": 64, "rope_dim": 32}, make=with_yarn(0.5, 1.0)),
        Case("a factor of one", {"nope_dim": 64, "rope_dim": 32}, make=with_yarn(1, 0.707)),
        Case("YaRN with a factor of 0", {"nope_dim": 64, "rope_dim": 32}, make=with_yarn(0, 1.0)),
        Case("YaRN with a factor of 1.5", {"nope_dim": 64, "rope_dim": 32}, make=with_yarn(1.5, 1.0)),
        Case("drawn at random", make=make_drawn),
    ),
    hints=(
        "The scale belongs to a query and a key as the model was trained with them, whatever form they are cached in. "
        "How wide are those?",
        "One over the root of nope_dim + rope_dim. YaRN multiplies query and key by the same number y, so the score "
        "gets it twice. y is 1 + 0.1 · mscale · ln(factor); leave it out where there is nothing to stretch.",
        "Fill the gaps:\n\n"
        "    plain = ____\n"
        "    if ____:  # no factor, none above 1, or no mscale\n"
        "        return plain\n"
        "    return plain * ____",
    ),
    mistakes=(
        Mistake(
            "YaRN left out",
            "this is the plain scale. Where the context is stretched, (0.1 · mscale · ln(factor) + 1)² comes in",
            yarn_left_out,
        ),
        Mistake(
            "not squared", "YaRN's number comes in once: query and key both carry it, so it is squared", not_squared
        ),
        Mistake(
            "mscale ignored", "ln(factor) is multiplied by 0.1 alone, and mscale_all_dim is left out", mscale_ignored
        ),
        Mistake(
            "576 for 192",
            "this scale comes from the width of the cache entry, 512 + rope_dim. The absorbed query is that wide, but "
            "its score is the score of keys of nope_dim + rope_dim",
            latent_for_nope,
        ),
        Mistake("rope dims left out", "the key is nope_dim + rope_dim wide: the rope part is missing", rope_left_out),
        Mistake("no root", "this is one over the width. Take the root of the width", no_root),
        Mistake("another logarithm", "this is the logarithm to base 2. The natural one is meant", another_logarithm),
        Mistake(
            "a factor below one",
            "a factor of at most 1 stretches nothing and leaves the plain scale",
            factors_below_one,
        ),
        Mistake(
            "no mscale taken for 1",
            "a missing mscale_all_dim was taken for 1. Without one the scale is the plain one, whatever the factor",
            no_mscale_taken_for_1,
        ),
    ),
    mutants=(
        Mutant(yarn_left_out, "YaRN left out"),
        Mutant(not_squared, "not squared"),
        Mutant(mscale_ignored, "mscale ignored"),
        Mutant(latent_for_nope, "576 for 192"),
        Mutant(rope_left_out, "rope dims left out"),
        Mutant(no_root, "no root"),
        Mutant(another_logarithm, "another logarithm"),
        Mutant(factors_below_one, "a factor below one"),
        Mutant(no_mscale_taken_for_1, "no mscale taken for 1"),
        Mutant(none_not_looked_for, "TypeError", verdict="error"),
    ),
)
