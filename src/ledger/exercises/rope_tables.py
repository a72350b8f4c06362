"""Chapter 4: the cosines and sines by which rotary embedding turns each pair of features."""

from functools import partial

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.reference import rope


def make(rng, dtype, tokens, rope_dim, theta=10000.0, low=0, high=1000):
    return {"positions": rng.integers(low, high, tokens), "rope_dim": rope_dim, "theta": theta}


def make_toy(rng, dtype, tokens, rope_dim):
    return {"positions": np.arange(tokens), "rope_dim": rope_dim, "theta": 10000.0}


def make_long(rng, dtype, tokens, rope_dim):
    """One of the positions is the last of a long context, and one comes twice."""
    inputs = make(rng, dtype, tokens, rope_dim, theta=8_000_000.0, high=131_072)
    inputs["positions"][[0, 1, -1]] = 131_071, 90_000, 90_000
    return inputs


def exponent_halved(positions, rope_dim, theta):
    angles = positions[:, None] * theta ** (-np.arange(rope_dim // 2) / rope_dim)
    return np.cos(angles), np.sin(angles)


def exponent_doubled(positions, rope_dim, theta):
    angles = positions[:, None] * theta ** (-4 * np.arange(rope_dim // 2) / rope_dim)
    return np.cos(angles), np.sin(angles)


def sign_of_the_exponent(positions, rope_dim, theta):
    angles = positions[:, None] * theta ** (2 * np.arange(rope_dim // 2) / rope_dim)
    return np.cos(angles), np.sin(angles)


def places_for_positions(positions, rope_dim, theta):
    angles = np.arange(len(positions))[:, None] * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    return np.cos(angles), np.sin(angles)


def counted_from_one(positions, rope_dim, theta):
    angles = (positions[:, None] + 1) * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    return np.cos(angles), np.sin(angles)


def one_column_a_feature(positions, rope_dim, theta):
    angles = np.repeat(positions[:, None] * theta ** (-np.arange(0, rope_dim, 2) / rope_dim), 2, axis=1)
    return np.cos(angles), np.sin(angles)


def halves_repeated(positions, rope_dim, theta):
    angles = np.tile(positions[:, None] * theta ** (-np.arange(0, rope_dim, 2) / rope_dim), 2)
    return np.cos(angles), np.sin(angles)


def sine_first(positions, rope_dim, theta):
    angles = positions[:, None] * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    return np.sin(angles), np.cos(angles)


def float32_angles(positions, rope_dim, theta):
    steps = (theta ** (-np.arange(0, rope_dim, 2) / rope_dim)).astype(np.float32)
    angles = (positions[:, None].astype(np.float32) * steps).astype(np.float64)
    return np.cos(angles), np.sin(angles)


def float32_steps(positions, rope_dim, theta):
    steps = np.float32(theta) ** (-np.arange(0, rope_dim, 2, dtype=np.float32) / np.float32(rope_dim))
    angles = (positions[:, None].astype(np.float32) * steps).astype(np.float64)
    return np.cos(angles), np.sin(angles)


def float32_steps_alone(positions, rope_dim, theta):
    steps = (theta ** (-np.arange(0, rope_dim, 2) / rope_dim)).astype(np.float32)
    angles = positions[:, None] * steps.astype(np.float64)
    return np.cos(angles), np.sin(angles)


def float32_products(positions, rope_dim, theta):
    angles = (positions[:, None] * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)).astype(np.float32)
    return np.cos(angles.astype(np.float64)), np.sin(angles.astype(np.float64))


def float32_tables(positions, rope_dim, theta):
    angles = positions[:, None] * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


EXERCISE = Exercise(
    id="rope_tables",
    chapter=4,
    order=1,
    title="the angles",
    checks="cosine and sine of every position's angle, one column a pair of features",
    points=2,
    difficulty=1,
    minutes=8,
    make=make,
    oracle=rope.rope_tables,
    returns=("cos", "sin"),
    cases=(
        Case("square sizes", {"tokens": 4, "rope_dim": 4}),
        Case("the toy by hand", {"tokens": 3, "rope_dim": 2}, make=make_toy),
        Case("odd sizes", {"tokens": 5, "rope_dim": 14}),
        Case("one position, one pair", {"tokens": 1, "rope_dim": 2}),
        Case("no positions", {"tokens": 0, "rope_dim": 6}),
        Case("no rope width", {"tokens": 3, "rope_dim": 0}),
        Case("another theta", {"tokens": 6, "rope_dim": 10}, make=partial(make, theta=50000.0)),
        Case("strided positions", {"tokens": 9, "rope_dim": 12}, layout="strided"),
        Case("GLM-5.2 width and theta, a long context", {"tokens": 11, "rope_dim": 64}, make=make_long),
    ),
    hints=(
        "There is one angle for each position and each pair. It is a product: the position, times a step that depends "
        "on the pair alone. How many steps are there?",
        "Make the steps first, one for each pair: theta to the power of -2i/rope_dim for i = 0, 1, …. The exponents "
        "are 0, 2, 4, … over rope_dim, with a minus. Then let a column of positions meet the row of steps.",
        "Fill the gaps, and return both tables:\n\n"
        "    steps = theta ** ____  # (rope_dim / 2,)\n"
        "    angles = positions[:, None] * ____  # (positions, rope_dim / 2)",
    ),
    mistakes=(
        Mistake(
            "the exponent is halved",
            "the exponent runs over -i/rope_dim. Pair i holds features 2i and 2i + 1: the exponent is -2i/rope_dim",
            exponent_halved,
        ),
        Mistake(
            "the exponent is doubled",
            "the exponent runs over -4i/rope_dim, perhaps because the 2 stands in it twice. It is -2i/rope_dim",
            exponent_doubled,
        ),
        Mistake(
            "sign of the exponent",
            "the later pairs turn faster here. They turn slower: the exponent is negative",
            sign_of_the_exponent,
        ),
        Mistake(
            "places taken for positions",
            "the angles are those of positions 0, 1, 2, …. Use the values in positions, not their places in the array",
            places_for_positions,
        ),
        Mistake(
            "positions counted from one", "every angle is one step too far: position 0 is not turned", counted_from_one
        ),
        Mistake(
            "one column a feature",
            "each column stands twice, once for each feature of the pair. The tables have rope_dim / 2 columns",
            one_column_a_feature,
        ),
        Mistake(
            "the columns repeated",
            "the columns come a second time, as for half-split features. The tables have rope_dim / 2 columns",
            halves_repeated,
        ),
        Mistake("sine first", "the two tables stand in the wrong order: the cosines first", sine_first),
        Mistake(
            "float32 angles",
            "the angles were rounded to float32. At position 131,071 that leaves an error of thousandths of a turn in "
            "the fast pairs. Make the angles in float64",
            float32_angles,
            also=(float32_steps, float32_steps_alone, float32_products),
        ),
    ),
    mutants=(
        Mutant(exponent_halved, "the exponent is halved"),
        Mutant(exponent_doubled, "the exponent is doubled"),
        Mutant(sign_of_the_exponent, "sign of the exponent"),
        Mutant(places_for_positions, "places taken for positions"),
        Mutant(counted_from_one, "positions counted from one"),
        Mutant(one_column_a_feature, "one column a feature"),
        Mutant(halves_repeated, "the columns repeated"),
        Mutant(sine_first, "sine first"),
        Mutant(float32_angles, "float32 angles"),
        Mutant(float32_steps, "float32 angles"),
        Mutant(float32_steps_alone, "float32 angles"),
        Mutant(float32_products, "float32 angles"),
        Mutant(float32_tables, "cos has dtype float32; wanted float64"),
    ),
)
