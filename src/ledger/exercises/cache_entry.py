"""Chapter 4: what an engine stores for each token."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import normal, theta_drawn
from ledger.reference import layer


def make(rng, dtype, tokens, latent_dim, rope_dim, eps=1e-6, high=1000):
    return {
        "latent": 3 * normal(rng, dtype, tokens, latent_dim),
        "k_rope": normal(rng, dtype, tokens, rope_dim),
        "positions": rng.integers(3, high, tokens),
        "norm_weight": ((1.5 + rng.random(latent_dim)) * rng.choice([-1, 1], latent_dim)).astype(dtype),
        "eps": eps,
        "theta": theta_drawn(rng),
    }


def make_toy(rng, dtype, tokens, latent_dim, rope_dim):
    """The latents' mean squares are 1 and 4."""
    return {
        "latent": np.array([(1, -1, 1, 1), (2, 2, -2, 2)], dtype),
        "k_rope": np.array([(1, 0), (1, 0)], dtype),
        "positions": np.array([0, 1]),
        "norm_weight": np.array([1, 1, 1, 10], dtype),
        "eps": 0.0,
        "theta": 10000.0,
    }


def make_small(rng, dtype, **dims):
    """Latents so small that eps counts; one is zero."""
    inputs = make(rng, dtype, **dims, eps=1e-3)
    inputs["latent"] = inputs["latent"] / 64
    inputs["latent"][0] = 0
    return inputs


def make_mixed(rng, dtype, tokens, latent_dim, rope_dim):
    """The toy's latents and weight in float32, which holds every number of their norm, beside a rope key in float64."""
    inputs = make_toy(rng, np.dtype(np.float32), tokens, latent_dim, rope_dim)
    return inputs | {"k_rope": normal(rng, dtype, tokens, rope_dim), "positions": rng.integers(3, 1000, tokens)}


def make_long(rng, dtype, **dims):
    """A long context, whose last position is 131,071."""
    inputs = make(rng, dtype, **dims, high=131_072)
    inputs["positions"][[1, -1]] = 131_071, 90_001
    return inputs


def norm_over_the_rope_half(latent, k_rope, positions, norm_weight, eps, theta):
    angles = positions[:, None] * theta ** (-np.arange(0, k_rope.shape[1], 2) / k_rope.shape[1])
    a, b = k_rope[:, 0::2], k_rope[:, 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    entry = np.concatenate([latent, np.stack(turned, axis=-1).reshape(k_rope.shape)], axis=1)
    entry = entry / np.sqrt(np.mean(entry * entry, axis=1, keepdims=True) + eps)
    entry[:, : latent.shape[1]] *= norm_weight
    return entry.astype(k_rope.dtype)


def latent_left_raw(latent, k_rope, positions, norm_weight, eps, theta):
    angles = positions[:, None] * theta ** (-np.arange(0, k_rope.shape[1], 2) / k_rope.shape[1])
    a, b = k_rope[:, 0::2], k_rope[:, 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    return np.concatenate([latent, np.stack(turned, axis=-1).reshape(k_rope.shape)], axis=1).astype(k_rope.dtype)


def rope_left_unrotated(latent, k_rope, positions, norm_weight, eps, theta):
    normed = latent / np.sqrt(np.mean(latent * latent, axis=1, keepdims=True) + eps) * norm_weight
    return np.concatenate([normed, k_rope], axis=1).astype(k_rope.dtype)


def latent_rotated_too(latent, k_rope, positions, norm_weight, eps, theta):
    entry = [latent / np.sqrt(np.mean(latent * latent, axis=1, keepdims=True) + eps) * norm_weight, k_rope]
    for place, part in enumerate(entry):
        angles = positions[:, None] * theta ** (-np.arange(0, part.shape[1], 2) / part.shape[1])
        a, b = part[:, 0::2], part[:, 1::2]
        turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
        entry[place] = np.stack(turned, axis=-1).reshape(part.shape)
    return np.concatenate(entry, axis=1).astype(k_rope.dtype)


def rope_first(latent, k_rope, positions, norm_weight, eps, theta):
    normed = latent / np.sqrt(np.mean(latent * latent, axis=1, keepdims=True) + eps) * norm_weight
    angles = positions[:, None] * theta ** (-np.arange(0, k_rope.shape[1], 2) / k_rope.shape[1])
    a, b = k_rope[:, 0::2], k_rope[:, 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    return np.concatenate([np.stack(turned, axis=-1).reshape(k_rope.shape), normed], axis=1).astype(k_rope.dtype)


def halves_paired(latent, k_rope, positions, norm_weight, eps, theta):
    normed = latent / np.sqrt(np.mean(latent * latent, axis=1, keepdims=True) + eps) * norm_weight
    angles = positions[:, None] * theta ** (-np.arange(0, k_rope.shape[1], 2) / k_rope.shape[1])
    half = k_rope.shape[1] // 2
    a, b = k_rope[:, :half], k_rope[:, half:]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    return np.concatenate([normed, *turned], axis=1).astype(k_rope.dtype)


def weight_left_out(latent, k_rope, positions, norm_weight, eps, theta):
    normed = latent / np.sqrt(np.mean(latent * latent, axis=1, keepdims=True) + eps)
    angles = positions[:, None] * theta ** (-np.arange(0, k_rope.shape[1], 2) / k_rope.shape[1])
    a, b = k_rope[:, 0::2], k_rope[:, 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    return np.concatenate([normed, np.stack(turned, axis=-1).reshape(k_rope.shape)], axis=1).astype(k_rope.dtype)


def weight_counted_from_one(latent, k_rope, positions, norm_weight, eps, theta):
    normed = latent / np.sqrt(np.mean(latent * latent, axis=1, keepdims=True) + eps) * (1 + norm_weight)
    angles = positions[:, None] * theta ** (-np.arange(0, k_rope.shape[1], 2) / k_rope.shape[1])
    a, b = k_rope[:, 0::2], k_rope[:, 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    return np.concatenate([normed, np.stack(turned, axis=-1).reshape(k_rope.shape)], axis=1).astype(k_rope.dtype)


def mean_taken_off(latent, k_rope, positions, norm_weight, eps, theta):
    centred = latent - latent.mean(axis=1, keepdims=True)
    normed = centred / np.sqrt(np.mean(centred * centred, axis=1, keepdims=True) + eps) * norm_weight
    angles = positions[:, None] * theta ** (-np.arange(0, k_rope.shape[1], 2) / k_rope.shape[1])
    a, b = k_rope[:, 0::2], k_rope[:, 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    return np.concatenate([normed, np.stack(turned, axis=-1).reshape(k_rope.shape)], axis=1).astype(k_rope.dtype)


def sum_for_mean(latent, k_rope, positions, norm_weight, eps, theta):
    normed = latent / np.sqrt(np.sum(latent * latent, axis=1, keepdims=True) + eps) * norm_weight
    angles = positions[:, None] * theta ** (-np.arange(0, k_rope.shape[1], 2) / k_rope.shape[1])
    a, b = k_rope[:, 0::2], k_rope[:, 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    return np.concatenate([normed, np.stack(turned, axis=-1).reshape(k_rope.shape)], axis=1).astype(k_rope.dtype)


def eps_outside_the_root(latent, k_rope, positions, norm_weight, eps, theta):
    normed = latent / (np.sqrt(np.mean(latent * latent, axis=1, keepdims=True)) + eps) * norm_weight
    angles = positions[:, None] * theta ** (-np.arange(0, k_rope.shape[1], 2) / k_rope.shape[1])
    a, b = k_rope[:, 0::2], k_rope[:, 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    return np.concatenate([normed, np.stack(turned, axis=-1).reshape(k_rope.shape)], axis=1).astype(k_rope.dtype)


def places_for_positions(latent, k_rope, positions, norm_weight, eps, theta):
    normed = latent / np.sqrt(np.mean(latent * latent, axis=1, keepdims=True) + eps) * norm_weight
    angles = np.arange(len(k_rope))[:, None] * theta ** (-np.arange(0, k_rope.shape[1], 2) / k_rope.shape[1])
    a, b = k_rope[:, 0::2], k_rope[:, 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    return np.concatenate([normed, np.stack(turned, axis=-1).reshape(k_rope.shape)], axis=1).astype(k_rope.dtype)


def mean_over_the_whole_entry(latent, k_rope, positions, norm_weight, eps, theta):
    entry = np.concatenate([latent, k_rope], axis=1)
    normed = latent / np.sqrt(np.mean(entry * entry, axis=1, keepdims=True) + eps) * norm_weight
    angles = positions[:, None] * theta ** (-np.arange(0, k_rope.shape[1], 2) / k_rope.shape[1])
    a, b = k_rope[:, 0::2], k_rope[:, 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    return np.concatenate([normed, np.stack(turned, axis=-1).reshape(k_rope.shape)], axis=1).astype(k_rope.dtype)


def mean_over_the_tokens(latent, k_rope, positions, norm_weight, eps, theta):
    squares = np.sum(latent * latent, axis=0) / np.asarray(max(len(latent), 1), latent.dtype)
    with np.errstate(all="ignore"):
        normed = latent / np.sqrt(squares + eps) * norm_weight
    angles = positions[:, None] * theta ** (-np.arange(0, k_rope.shape[1], 2) / k_rope.shape[1])
    a, b = k_rope[:, 0::2], k_rope[:, 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    return np.concatenate([normed, np.stack(turned, axis=-1).reshape(k_rope.shape)], axis=1).astype(k_rope.dtype)


def eps_forgotten(latent, k_rope, positions, norm_weight, eps, theta):
    with np.errstate(all="ignore"):
        normed = latent / np.sqrt(np.mean(latent * latent, axis=1, keepdims=True)) * norm_weight
    angles = positions[:, None] * theta ** (-np.arange(0, k_rope.shape[1], 2) / k_rope.shape[1])
    a, b = k_rope[:, 0::2], k_rope[:, 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    return np.concatenate([normed, np.stack(turned, axis=-1).reshape(k_rope.shape)], axis=1).astype(k_rope.dtype)


def theta_ignored(latent, k_rope, positions, norm_weight, eps, theta):
    normed = latent / np.sqrt(np.mean(latent * latent, axis=1, keepdims=True) + eps) * norm_weight
    angles = positions[:, None] * 10000.0 ** (-np.arange(0, k_rope.shape[1], 2) / k_rope.shape[1])
    a, b = k_rope[:, 0::2], k_rope[:, 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    return np.concatenate([normed, np.stack(turned, axis=-1).reshape(k_rope.shape)], axis=1).astype(k_rope.dtype)


def float32_angles(latent, k_rope, positions, norm_weight, eps, theta):
    normed = latent / np.sqrt(np.mean(latent * latent, axis=1, keepdims=True) + eps) * norm_weight
    steps = (theta ** (-np.arange(0, k_rope.shape[1], 2) / k_rope.shape[1])).astype(k_rope.dtype)
    angles = positions[:, None].astype(k_rope.dtype) * steps
    a, b = k_rope[:, 0::2], k_rope[:, 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    return np.concatenate([normed, np.stack(turned, axis=-1).reshape(k_rope.shape)], axis=1).astype(k_rope.dtype)


EXERCISE = Exercise(
    id="cache_entry",
    chapter=4,
    order=5,
    title="what is stored",
    checks="one cache entry a token: the normed latent, and beside it the rotated rope key",
    points=3,
    difficulty=2,
    minutes=12,
    make=make,
    oracle=layer.cache_entry,
    cases=(
        Case("square sizes", {"tokens": 4, "latent_dim": 4, "rope_dim": 4}),
        Case("the toy by hand", {"tokens": 2, "latent_dim": 4, "rope_dim": 2}, make=make_toy),
        Case("odd sizes", {"tokens": 5, "latent_dim": 9, "rope_dim": 6}),
        Case("small latents, where eps counts", {"tokens": 3, "latent_dim": 7, "rope_dim": 4}, make=make_small),
        Case("one token", {"tokens": 1, "latent_dim": 8, "rope_dim": 2}),
        Case("no tokens, float32", {"tokens": 0, "latent_dim": 8, "rope_dim": 4}, dtype="float32"),
        Case("no rope width", {"tokens": 3, "latent_dim": 5, "rope_dim": 0}),
        Case("a rope key in float64 beside float32", {"tokens": 2, "latent_dim": 4, "rope_dim": 6}, make=make_mixed),
        Case("float32", {"tokens": 6, "latent_dim": 12, "rope_dim": 10}, dtype="float32"),
        Case("strided inputs", {"tokens": 7, "latent_dim": 12, "rope_dim": 10}, layout="strided"),
        Case(
            "DeepSeek-V3 widths, a long context, float32",
            {"tokens": 11, "latent_dim": 512, "rope_dim": 64},
            dtype="float32",
            make=make_long,
        ),
    ),
    hints=(
        "Two parts are stored side by side, and each is made ready in its own way. Which of the two is normed, which "
        "is turned, and which number says how far?",
        "RMSNorm divides each latent by the root of its mean square (eps is added before the root) and multiplies by "
        "norm_weight. The mean runs over the latent's own features. The rope key goes through apply_rope, interleaved.",
        "Fill the gaps:\n\n"
        "    mean_square = ____  # (tokens, 1)\n"
        "    normed = latent / ____ * ____\n"
        "    rotated = ____  # as in apply_rope, interleaved\n"
        "    return np.concatenate(____, axis=1)  # and mind the dtype",
    ),
    mistakes=(
        Mistake(
            "RMSNorm over the rope half",
            "the norm was taken over latent and rope key together. It sees the latent alone, and the rope key is not "
            "normed",
            norm_over_the_rope_half,
        ),
        Mistake(
            "mean over the whole entry",
            "the mean of the squares was taken over latent and rope key. It runs over the latent's features alone",
            mean_over_the_whole_entry,
        ),
        Mistake(
            "mean over the tokens",
            "the squares were averaged over the tokens. Each token's latent has a mean of its own, over its features",
            mean_over_the_tokens,
        ),
        Mistake("eps forgotten", "eps is missing: it is added to the mean of the squares", eps_forgotten),
        Mistake("latent not normed", "the latent is stored as it came. It is normed first", latent_left_raw),
        Mistake("rope key not rotated", "the rope key is stored as it came. It is rotated first", rope_left_unrotated),
        Mistake(
            "latent rotated", "the latent was rotated too. Only the rope key knows the position", latent_rotated_too
        ),
        Mistake("rope key first", "the entry is [latent | rope key]; here the rope key stands first", rope_first),
        Mistake(
            "halves paired",
            "the rope key's feature i was paired with i + rope_dim / 2. Its layout is interleaved: (0, 1), (2, 3), …",
            halves_paired,
        ),
        Mistake("norm_weight left out", "the normed latent must be multiplied by norm_weight", weight_left_out),
        Mistake(
            "1 + norm_weight",
            "the latent was multiplied by 1 + norm_weight, as some models' norms do. Here it is norm_weight alone",
            weight_counted_from_one,
        ),
        Mistake("mean taken off", "the mean was subtracted, as LayerNorm does. RMSNorm only divides", mean_taken_off),
        Mistake(
            "sum for mean", "the latent is divided by the root of the sum of squares. Take their mean", sum_for_mean
        ),
        Mistake("eps outside the root", "eps was added after the root. It belongs under it", eps_outside_the_root),
        Mistake(
            "places taken for positions",
            "token number t is rotated as if it stood at position t. Use the values in positions",
            places_for_positions,
        ),
        Mistake(
            "theta ignored",
            "the angles are those of a theta of 10000. Use the theta that is given: models differ in it",
            theta_ignored,
        ),
        Mistake(
            "float32 angles",
            "the angles were rounded to float32, as the rope key is. At position 131,071 they are then off by "
            "thousandths of a radian: make them in float64, and round the result",
            float32_angles,
        ),
    ),
    mutants=(
        Mutant(norm_over_the_rope_half, "RMSNorm over the rope half"),
        Mutant(mean_over_the_whole_entry, "mean over the whole entry"),
        Mutant(mean_over_the_tokens, "mean over the tokens"),
        Mutant(eps_forgotten, "eps forgotten"),
        Mutant(latent_left_raw, "latent not normed"),
        Mutant(rope_left_unrotated, "rope key not rotated"),
        Mutant(latent_rotated_too, "latent rotated"),
        Mutant(rope_first, "rope key first"),
        Mutant(halves_paired, "halves paired"),
        Mutant(weight_left_out, "norm_weight left out"),
        Mutant(weight_counted_from_one, "1 + norm_weight"),
        Mutant(mean_taken_off, "mean taken off"),
        Mutant(sum_for_mean, "sum for mean"),
        Mutant(eps_outside_the_root, "eps outside the root"),
        Mutant(places_for_positions, "places taken for positions"),
        Mutant(theta_ignored, "theta ignored"),
        Mutant(float32_angles, "float32 angles"),
    ),
)
