"""Chapter 4: turn each pair of features by its angle, in either layout."""

from functools import partial

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import normal, theta_drawn
from ledger.reference import rope


def make(rng, dtype, tokens, rope_dim, num_heads=None, interleaved=True, high=1000):
    heads = () if num_heads is None else (num_heads,)
    return {
        "x": normal(rng, dtype, tokens, *heads, rope_dim),
        "positions": rng.integers(0, high, tokens),
        "theta": theta_drawn(rng),
        "interleaved": interleaved,
    }


def make_toy(rng, dtype, tokens, rope_dim):
    x = np.array([(1, 0), (1, 0), (0, 1)], dtype)
    return {"x": x, "positions": np.array([0, 1, 1]), "theta": 10000.0, "interleaved": True}


def make_deep(rng, dtype, tokens, num_groups, num_heads, rope_dim, interleaved=True):
    """Two axes between the tokens and the features."""
    inputs = make(rng, dtype, tokens, rope_dim, interleaved=interleaved)
    inputs["x"] = normal(rng, dtype, tokens, num_groups, num_heads, rope_dim)
    return inputs


def make_long(rng, dtype, tokens, num_heads, rope_dim):
    """A long context, whose last position is 131,071."""
    inputs = make(rng, dtype, tokens, rope_dim, num_heads, high=131_072)
    inputs["positions"][[1, -1]] = 131_071, 90_001
    return inputs


make_half_split = partial(make, interleaved=False)


def other_layout(x, positions, theta, interleaved):
    half = x.shape[-1] // 2
    angles = positions[:, None] * theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = angles.reshape(len(x), *[1] * (x.ndim - 2), half)
    cos, sin = np.cos(angles), np.sin(angles)
    if interleaved:
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1).astype(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    return np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(x.shape).astype(x.dtype)


def result_in_the_other_layout(x, positions, theta, interleaved):
    half = x.shape[-1] // 2
    angles = positions[:, None] * theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = angles.reshape(len(x), *[1] * (x.ndim - 2), half)
    cos, sin = np.cos(angles), np.sin(angles)
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1).astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(x.shape).astype(x.dtype)


def turned_backwards(x, positions, theta, interleaved):
    half = x.shape[-1] // 2
    pairs = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    angles = -positions[:, None] * theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = angles.reshape(len(x), *[1] * (x.ndim - 2), half)
    rotated = np.empty_like(x)
    rotated[..., pairs[0]] = x[..., pairs[0]] * np.cos(angles) - x[..., pairs[1]] * np.sin(angles)
    rotated[..., pairs[1]] = x[..., pairs[0]] * np.sin(angles) + x[..., pairs[1]] * np.cos(angles)
    return rotated


def places_for_positions(x, positions, theta, interleaved):
    half = x.shape[-1] // 2
    pairs = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    angles = np.arange(len(x))[:, None] * theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = angles.reshape(len(x), *[1] * (x.ndim - 2), half)
    rotated = np.empty_like(x)
    rotated[..., pairs[0]] = x[..., pairs[0]] * np.cos(angles) - x[..., pairs[1]] * np.sin(angles)
    rotated[..., pairs[1]] = x[..., pairs[0]] * np.sin(angles) + x[..., pairs[1]] * np.cos(angles)
    return rotated


def one_angle_for_all_pairs(x, positions, theta, interleaved):
    half = x.shape[-1] // 2
    pairs = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    angles = positions.reshape(len(x), *[1] * (x.ndim - 1)).astype(float)
    rotated = np.empty_like(x)
    rotated[..., pairs[0]] = x[..., pairs[0]] * np.cos(angles) - x[..., pairs[1]] * np.sin(angles)
    rotated[..., pairs[1]] = x[..., pairs[0]] * np.sin(angles) + x[..., pairs[1]] * np.cos(angles)
    return rotated


def first_half_of_the_pair_used_twice(x, positions, theta, interleaved):
    half = x.shape[-1] // 2
    pairs = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    angles = positions[:, None] * theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = angles.reshape(len(x), *[1] * (x.ndim - 2), half)
    rotated = x.copy()
    rotated[..., pairs[0]] = rotated[..., pairs[0]] * np.cos(angles) - rotated[..., pairs[1]] * np.sin(angles)
    rotated[..., pairs[1]] = rotated[..., pairs[0]] * np.sin(angles) + rotated[..., pairs[1]] * np.cos(angles)
    return rotated


def always_interleaved(x, positions, theta, interleaved):
    angles = positions[:, None] * theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = angles.reshape(len(x), *[1] * (x.ndim - 2), x.shape[-1] // 2)
    rotated = np.empty_like(x)
    rotated[..., 0::2] = x[..., 0::2] * np.cos(angles) - x[..., 1::2] * np.sin(angles)
    rotated[..., 1::2] = x[..., 0::2] * np.sin(angles) + x[..., 1::2] * np.cos(angles)
    return rotated


def theta_ignored(x, positions, theta, interleaved):
    half = x.shape[-1] // 2
    pairs = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    angles = positions[:, None] * 10000.0 ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = angles.reshape(len(x), *[1] * (x.ndim - 2), half)
    rotated = np.empty_like(x)
    rotated[..., pairs[0]] = x[..., pairs[0]] * np.cos(angles) - x[..., pairs[1]] * np.sin(angles)
    rotated[..., pairs[1]] = x[..., pairs[0]] * np.sin(angles) + x[..., pairs[1]] * np.cos(angles)
    return rotated


def angles_in_the_dtype_of_x(x, positions, theta, interleaved):
    half = x.shape[-1] // 2
    pairs = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    steps = (theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])).astype(x.dtype)
    angles = (positions[:, None].astype(x.dtype) * steps).reshape(len(x), *[1] * (x.ndim - 2), half)
    rotated = np.empty_like(x)
    rotated[..., pairs[0]] = x[..., pairs[0]] * np.cos(angles) - x[..., pairs[1]] * np.sin(angles)
    rotated[..., pairs[1]] = x[..., pairs[0]] * np.sin(angles) + x[..., pairs[1]] * np.cos(angles)
    return rotated


def angles_in_float32(x, positions, theta, interleaved):
    half = x.shape[-1] // 2
    pairs = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    steps = (theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])).astype(np.float32)
    angles = (positions[:, None].astype(np.float32) * steps).reshape(len(x), *[1] * (x.ndim - 2), half)
    rotated = np.empty_like(x)
    rotated[..., pairs[0]] = x[..., pairs[0]] * np.cos(angles) - x[..., pairs[1]] * np.sin(angles)
    rotated[..., pairs[1]] = x[..., pairs[0]] * np.sin(angles) + x[..., pairs[1]] * np.cos(angles)
    return rotated


def steps_in_float32(x, positions, theta, interleaved):
    half = x.shape[-1] // 2
    pairs = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    steps = (theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])).astype(np.float32).astype(np.float64)
    angles = (positions[:, None] * steps).reshape(len(x), *[1] * (x.ndim - 2), half)
    rotated = np.empty_like(x)
    rotated[..., pairs[0]] = x[..., pairs[0]] * np.cos(angles) - x[..., pairs[1]] * np.sin(angles)
    rotated[..., pairs[1]] = x[..., pairs[0]] * np.sin(angles) + x[..., pairs[1]] * np.cos(angles)
    return rotated


def products_in_float32(x, positions, theta, interleaved):
    half = x.shape[-1] // 2
    pairs = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    angles = (positions[:, None] * theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])).astype(np.float32)
    angles = angles.reshape(len(x), *[1] * (x.ndim - 2), half)
    rotated = np.empty_like(x)
    rotated[..., pairs[0]] = x[..., pairs[0]] * np.cos(angles) - x[..., pairs[1]] * np.sin(angles)
    rotated[..., pairs[1]] = x[..., pairs[0]] * np.sin(angles) + x[..., pairs[1]] * np.cos(angles)
    return rotated


def positions_along_the_heads(x, positions, theta, interleaved):
    half = x.shape[-1] // 2
    pairs = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    angles = positions[:, None] * theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    rotated = np.empty_like(x)
    rotated[..., pairs[0]] = x[..., pairs[0]] * np.cos(angles) - x[..., pairs[1]] * np.sin(angles)
    rotated[..., pairs[1]] = x[..., pairs[0]] * np.sin(angles) + x[..., pairs[1]] * np.cos(angles)
    return rotated


def float64_for_float32(x, positions, theta, interleaved):
    half = x.shape[-1] // 2
    pairs = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    angles = positions[:, None] * theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = angles.reshape(len(x), *[1] * (x.ndim - 2), half)
    rotated = np.empty(x.shape)
    rotated[..., pairs[0]] = x[..., pairs[0]] * np.cos(angles) - x[..., pairs[1]] * np.sin(angles)
    rotated[..., pairs[1]] = x[..., pairs[0]] * np.sin(angles) + x[..., pairs[1]] * np.cos(angles)
    return rotated


EXERCISE = Exercise(
    id="apply_rope",
    chapter=4,
    order=2,
    title="turn the pairs",
    checks="every vector rotated by its token's position, in its own layout",
    points=3,
    difficulty=2,
    minutes=12,
    make=make,
    oracle=rope.apply_rope,
    cases=(
        Case("square sizes", {"tokens": 4, "num_heads": 4, "rope_dim": 4}),
        Case("the toy by hand", {"tokens": 3, "rope_dim": 2}, make=make_toy),
        Case("odd sizes, interleaved", {"tokens": 5, "num_heads": 3, "rope_dim": 14}),
        Case("odd sizes, half-split", {"tokens": 5, "num_heads": 3, "rope_dim": 14}, make=make_half_split),
        Case("no head axis, half-split", {"tokens": 7, "rope_dim": 6}, make=make_half_split),
        Case("one token, one head", {"tokens": 1, "num_heads": 1, "rope_dim": 6}),
        Case("no rope width", {"tokens": 3, "num_heads": 2, "rope_dim": 0}),
        Case("no tokens, float32", {"tokens": 0, "num_heads": 3, "rope_dim": 8}, dtype="float32"),
        Case("two axes in between", {"tokens": 5, "num_groups": 2, "num_heads": 3, "rope_dim": 8}, make=make_deep),
        Case(
            "two axes in between, half-split",
            {"tokens": 3, "num_groups": 4, "num_heads": 2, "rope_dim": 6},
            make=partial(make_deep, interleaved=False),
        ),
        Case(
            "float32, half-split", {"tokens": 6, "num_heads": 2, "rope_dim": 10}, dtype="float32", make=make_half_split
        ),
        Case("strided inputs", {"tokens": 6, "num_heads": 4, "rope_dim": 10}, layout="strided"),
        Case(
            "DeepSeek-V3 width, a long context, float32",
            {"tokens": 5, "num_heads": 3, "rope_dim": 64},
            dtype="float32",
            make=make_long,
        ),
    ),
    hints=(
        "Take one token, no heads, width 2: what happens to (a, b)? Wider vectors do that to each of their pairs, each "
        "with an angle of its own. All that the layout decides is which features are a pair.",
        "Cut x into the first features of all pairs and the second ones: strides of two in one layout, halves in the "
        "other. Give the angles, (tokens, rope_dim / 2), an axis of size 1 for each axis in between, so that they "
        "broadcast. Write both results into a new array at the places where the features came from.",
        "Fill the gaps:\n\n"
        "    first, second = ____  # two slices of the last axis, one choice for each layout\n"
        "    angles = ____  # (tokens, 1, …, 1, rope_dim / 2)\n"
        "    rotated = np.empty_like(x)\n"
        "    rotated[..., first] = ____\n"
        "    rotated[..., second] = ____",
    ),
    mistakes=(
        Mistake(
            "interleaved always",
            "features (0, 1), (2, 3), … are paired in both layouts. Without interleaved, i pairs with i + rope_dim / 2",
            always_interleaved,
        ),
        Mistake(
            "the other layout",
            "the wrong features are paired. interleaved pairs (0, 1), (2, 3), …; otherwise feature i pairs with "
            "feature i + rope_dim / 2",
            other_layout,
        ),
        Mistake(
            "result in the other layout",
            "the pairs are turned rightly, but stand in the other layout. Each feature goes back to where it came from",
            result_in_the_other_layout,
        ),
        Mistake(
            "turned backwards",
            "every pair is turned by minus its angle. (a, b) becomes (a cos − b sin, a sin + b cos)",
            turned_backwards,
        ),
        Mistake(
            "places taken for positions",
            "token number t is turned as if it stood at position t. Use the values in positions",
            places_for_positions,
        ),
        Mistake(
            "one angle for all pairs",
            "every pair is turned by the angle of the first one. Pair i turns by position · theta^(-2i/rope_dim)",
            one_angle_for_all_pairs,
        ),
        Mistake(
            "theta ignored",
            "the angles are those of a theta of 10000. Use the theta that is given: models differ in it",
            theta_ignored,
        ),
        Mistake(
            "float32 angles",
            "the angles were rounded to float32. At position 131,071 they are then off by thousandths of a "
            "radian: make them in float64, and round the result",
            angles_in_the_dtype_of_x,
            also=(angles_in_float32, steps_in_float32, products_in_float32),
        ),
        Mistake(
            "positions along the heads",
            "the angles lie along the heads: head h is turned by position number h. It goes unnoticed where there are "
            "as many heads as tokens. Give the angles an axis of size 1 for each axis in between",
            positions_along_the_heads,
        ),
        Mistake(
            "a feature overwritten too early",
            "the second feature of a pair was made from the first one after that had been turned. Keep the old one "
            "until both are done",
            first_half_of_the_pair_used_twice,
        ),
    ),
    mutants=(
        Mutant(other_layout, "the other layout"),
        Mutant(always_interleaved, "interleaved always"),
        Mutant(result_in_the_other_layout, "result in the other layout"),
        Mutant(turned_backwards, "turned backwards"),
        Mutant(places_for_positions, "places taken for positions"),
        Mutant(one_angle_for_all_pairs, "one angle for all pairs"),
        Mutant(first_half_of_the_pair_used_twice, "a feature overwritten too early"),
        Mutant(theta_ignored, "theta ignored"),
        Mutant(angles_in_the_dtype_of_x, "float32 angles"),
        Mutant(angles_in_float32, "float32 angles"),
        Mutant(steps_in_float32, "float32 angles"),
        Mutant(products_in_float32, "float32 angles"),
        Mutant(positions_along_the_heads, "positions along the heads"),
        Mutant(float64_for_float32, "has dtype float64; wanted float32"),
    ),
)
