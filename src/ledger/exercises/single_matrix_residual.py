"""Chapter 4: how badly one matrix stands in for the rotations of many positions."""

from functools import partial

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant, Raises
from ledger.reference import rope


def make(rng, dtype, tokens, rope_dim, theta=10000.0):
    return {"positions": np.arange(tokens), "rope_dim": rope_dim, "theta": theta}


def make_drawn(rng, dtype, tokens, rope_dim):
    return {"positions": rng.integers(0, 5000, tokens), "rope_dim": rope_dim, "theta": 50000.0}


def make_repeated(rng, dtype, tokens, rope_dim):
    """Two of three positions are one, so it weighs double."""
    return {"positions": np.array([2, 9, 2]), "rope_dim": rope_dim, "theta": 10000.0}


def make_twice(rng, dtype, tokens, rope_dim):
    """One position, twice; the squares of its only pair's cosine and sine add up to more than 1, by rounding."""
    drawn = rng.integers(1, 5000, 300)
    above = (np.cos(drawn) ** 2 + np.sin(drawn) ** 2 > 1) & (np.abs(np.exp(1j * drawn)) ** 2 > 1)
    return {"positions": np.full(tokens, drawn[np.argmax(above)]), "rope_dim": rope_dim, "theta": 10000.0}


def squared(positions, rope_dim, theta):
    if len(positions) == 0:
        raise ValueError("no positions")
    angles = positions[:, None] * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    turns = np.exp(1j * angles)
    return float(np.mean(np.abs(turns - turns.mean(0)) ** 2))


def not_relative(positions, rope_dim, theta):
    if len(positions) == 0:
        raise ValueError("no positions")
    angles = positions[:, None] * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    turns = np.exp(1j * angles)
    return float(np.sqrt(2 * np.sum(np.abs(turns - turns.mean(0)) ** 2)))


def first_rotation(positions, rope_dim, theta):
    if len(positions) == 0:
        raise ValueError("no positions")
    angles = positions[:, None] * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    turns = np.exp(1j * angles)
    return float(np.sqrt(np.mean(np.abs(turns - turns[0]) ** 2)))


def rotation_of_the_mean_position(positions, rope_dim, theta):
    if len(positions) == 0:
        raise ValueError("no positions")
    angles = positions[:, None] * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    turns = np.exp(1j * angles)
    middle = np.exp(1j * np.mean(positions) * theta ** (-np.arange(0, rope_dim, 2) / rope_dim))
    return float(np.sqrt(np.mean(np.abs(turns - middle) ** 2)))


def identity(positions, rope_dim, theta):
    if len(positions) == 0:
        raise ValueError("no positions")
    angles = positions[:, None] * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    return float(np.sqrt(np.mean(np.abs(np.exp(1j * angles) - 1) ** 2)))


def mean_of_the_residuals(positions, rope_dim, theta):
    if len(positions) == 0:
        raise ValueError("no positions")
    angles = positions[:, None] * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    turns = np.exp(1j * angles)
    return float(np.mean(np.sqrt(np.mean(np.abs(turns - turns.mean(0)) ** 2, axis=1))))


def repeats_left_out(positions, rope_dim, theta):
    if len(positions) == 0:
        raise ValueError("no positions")
    angles = np.unique(positions)[:, None] * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    turns = np.exp(1j * angles)
    return float(np.sqrt(np.mean(np.abs(turns - turns.mean(0)) ** 2)))


def places_for_positions(positions, rope_dim, theta):
    if len(positions) == 0:
        raise ValueError("no positions")
    angles = np.arange(len(positions))[:, None] * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    turns = np.exp(1j * angles)
    return float(np.sqrt(np.mean(np.abs(turns - turns.mean(0)) ** 2)))


def no_position_let_through(positions, rope_dim, theta):
    if len(positions) == 0:
        return 0.0
    angles = positions[:, None] * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    turns = np.exp(1j * angles)
    return float(np.sqrt(np.mean(np.abs(turns - turns.mean(0)) ** 2)))


EXERCISE = Exercise(
    id="single_matrix_residual",
    chapter=4,
    order=4,
    title="the best single matrix",
    checks="what the best position-free matrix leaves over of the rotations",
    points=3,
    difficulty=3,
    minutes=12,
    make=make,
    oracle=rope.single_matrix_residual,
    absolute=1e-7,
    cases=(
        Case("the toy by hand", {"tokens": 2, "rope_dim": 2}),
        Case("two positions, DeepSeek-V3 width", {"tokens": 2, "rope_dim": 64}),
        Case("eight positions, DeepSeek-V3 width", {"tokens": 8, "rope_dim": 64}),
        Case("one position", {"tokens": 1, "rope_dim": 6}),
        Case("a position that comes twice", {"tokens": 3, "rope_dim": 10}, make=make_repeated),
        Case("one position, twice", {"tokens": 2, "rope_dim": 2}, make=make_twice),
        Case("random positions", {"tokens": 21, "rope_dim": 14}, make=make_drawn),
        Case("strided positions, MiniCPM3 width", {"tokens": 33, "rope_dim": 32}, layout="strided"),
        Case("another theta", {"tokens": 150, "rope_dim": 12}, make=partial(make, theta=8_000_000.0)),
        Case("no positions", {"tokens": 0, "rope_dim": 6}, raises=Raises("ValueError")),
    ),
    hints=(
        "The sum of squares runs over elements, and each element of M may be chosen by itself. Which single number is "
        "nearest, in squares, to a list of numbers?",
        "M is the mean of the rotations. A rotation is two numbers a pair, so you need no matrices: each pair's cosine "
        "stands twice in it, and its sine twice. The squares of one R_p add up to rope_dim.",
        "Fill the gaps:\n\n"
        "    angles = ____  # (positions, rope_dim / 2)\n"
        "    spread = ____ + ____  # squared distance of each cosine, and of each sine, from its mean over positions\n"
        "    return float(____)",
    ),
    mistakes=(
        Mistake("not the root", "this is the share of the squares. The root of it is asked for", squared),
        Mistake(
            "not relative",
            "this is √Σ‖R_p − M‖². Divide by the size of the rotations, √Σ‖R_p‖²",
            not_relative,
        ),
        Mistake(
            "the first rotation for M",
            "M is the rotation of the first position here. Another matrix is nearer to all of them",
            first_rotation,
        ),
        Mistake(
            "the middle rotation for M",
            "M is the rotation of the mean position here. The best M is the mean of the matrices, which is no rotation",
            rotation_of_the_mean_position,
        ),
        Mistake("the identity for M", "M is the identity here. Another matrix is nearer to all of them", identity),
        Mistake(
            "the mean of the residuals",
            "each position's own residual was taken and averaged. Add up all squares, and take the root once",
            mean_of_the_residuals,
        ),
        Mistake(
            "repeats left out",
            "a position that comes twice counts twice",
            repeats_left_out,
        ),
        Mistake(
            "places taken for positions",
            "these are the rotations of positions 0, 1, 2, …. Use the values in positions",
            places_for_positions,
        ),
    ),
    mutants=(
        Mutant(squared, "not the root"),
        Mutant(not_relative, "not relative"),
        Mutant(first_rotation, "the first rotation for M"),
        Mutant(rotation_of_the_mean_position, "the middle rotation for M"),
        Mutant(identity, "the identity for M"),
        Mutant(mean_of_the_residuals, "the mean of the residuals"),
        Mutant(repeats_left_out, "repeats left out"),
        Mutant(places_for_positions, "places taken for positions"),
        Mutant(no_position_let_through, "want a ValueError"),
    ),
)
