"""Chapter 4: what meets the stored entries, the absorbed content beside the rotated rope part."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import TOY_HEAD_1, TOY_Q_NOPE, TOY_W_K, normal, theta_drawn
from ledger.reference import layer


def make(rng, dtype, new_tokens, num_heads, nope_dim, rope_dim, latent_dim, high=1000):
    return {
        "q_nope": normal(rng, dtype, new_tokens, num_heads, nope_dim),
        "q_rope": normal(rng, dtype, new_tokens, num_heads, rope_dim),
        "w_kc": normal(rng, dtype, num_heads, nope_dim, latent_dim),
        "positions": rng.integers(3, high, new_tokens),
        "theta": theta_drawn(rng),
    }


def make_toy(rng, dtype, **dims):
    """Head 0 is the toy of one head; both rope parts point along their first feature, at position 1."""
    return {
        "q_nope": np.array([[*TOY_Q_NOPE, (1, 1)]], dtype),
        "q_rope": np.array([[(1, 0), (2, 0)]], dtype),
        "w_kc": np.array([np.transpose(TOY_W_K), TOY_HEAD_1], dtype),
        "positions": np.array([1]),
        "theta": 10000.0,
    }


def make_long(rng, dtype, **dims):
    """A long context, whose last position is 131,071."""
    inputs = make(rng, dtype, **dims, high=131_072)
    inputs["positions"][[1, -1]] = 131_071, 90_001
    return inputs


def rope_left_unrotated(q_nope, q_rope, w_kc, positions, theta):
    return np.concatenate([np.einsum("shn,hnc->shc", q_nope, w_kc), q_rope], axis=-1)


def rope_first(q_nope, q_rope, w_kc, positions, theta):
    angles = positions[:, None, None] * theta ** (-np.arange(0, q_rope.shape[2], 2) / q_rope.shape[2])
    a, b = q_rope[..., 0::2], q_rope[..., 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    rotated = np.stack(turned, axis=-1).reshape(q_rope.shape).astype(q_rope.dtype)
    return np.concatenate([rotated, np.einsum("shn,hnc->shc", q_nope, w_kc)], axis=-1)


def halves_paired(q_nope, q_rope, w_kc, positions, theta):
    angles = positions[:, None, None] * theta ** (-np.arange(0, q_rope.shape[2], 2) / q_rope.shape[2])
    half = q_rope.shape[2] // 2
    a, b = q_rope[..., :half], q_rope[..., half:]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    content = np.einsum("shn,hnc->shc", q_nope, w_kc)
    return np.concatenate([content, *turned], axis=-1).astype(q_rope.dtype)


def rope_forgotten(q_nope, q_rope, w_kc, positions, theta):
    return np.einsum("shn,hnc->shc", q_nope, w_kc)


def content_left_narrow(q_nope, q_rope, w_kc, positions, theta):
    angles = positions[:, None, None] * theta ** (-np.arange(0, q_rope.shape[2], 2) / q_rope.shape[2])
    a, b = q_rope[..., 0::2], q_rope[..., 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    rotated = np.stack(turned, axis=-1).reshape(q_rope.shape).astype(q_rope.dtype)
    return np.concatenate([q_nope, rotated], axis=-1)


def first_head_for_all(q_nope, q_rope, w_kc, positions, theta):
    angles = positions[:, None, None] * theta ** (-np.arange(0, q_rope.shape[2], 2) / q_rope.shape[2])
    a, b = q_rope[..., 0::2], q_rope[..., 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    rotated = np.stack(turned, axis=-1).reshape(q_rope.shape).astype(q_rope.dtype)
    return np.concatenate([q_nope @ w_kc[0], rotated], axis=-1)


def turned_by_head(q_nope, q_rope, w_kc, positions, theta):
    heads = np.arange(q_rope.shape[1])[:, None]
    angles = heads * theta ** (-np.arange(0, q_rope.shape[2], 2) / q_rope.shape[2])
    a, b = q_rope[..., 0::2], q_rope[..., 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    rotated = np.stack(turned, axis=-1).reshape(q_rope.shape).astype(q_rope.dtype)
    return np.concatenate([np.einsum("shn,hnc->shc", q_nope, w_kc), rotated], axis=-1)


def content_rotated_too(q_nope, q_rope, w_kc, positions, theta):
    parts = [np.einsum("shn,hnc->shc", q_nope, w_kc), q_rope]
    for place, part in enumerate(parts):
        angles = positions[:, None, None] * theta ** (-np.arange(0, part.shape[2], 2) / part.shape[2])
        a, b = part[..., 0::2], part[..., 1::2]
        turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
        parts[place] = np.stack(turned, axis=-1).reshape(part.shape)
    return np.concatenate(parts, axis=-1).astype(q_rope.dtype)


def rotated_backwards(q_nope, q_rope, w_kc, positions, theta):
    angles = -positions[:, None, None] * theta ** (-np.arange(0, q_rope.shape[2], 2) / q_rope.shape[2])
    a, b = q_rope[..., 0::2], q_rope[..., 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    rotated = np.stack(turned, axis=-1).reshape(q_rope.shape).astype(q_rope.dtype)
    return np.concatenate([np.einsum("shn,hnc->shc", q_nope, w_kc), rotated], axis=-1)


def heads_flattened(q_nope, q_rope, w_kc, positions, theta):
    angles = positions[:, None, None] * theta ** (-np.arange(0, q_rope.shape[2], 2) / q_rope.shape[2])
    a, b = q_rope[..., 0::2], q_rope[..., 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    rotated = np.stack(turned, axis=-1).reshape(q_rope.shape).astype(q_rope.dtype)
    summed = np.einsum("shn,hnc->sc", q_nope, w_kc)[:, None]
    return np.concatenate([np.repeat(summed, q_rope.shape[1], axis=1), rotated], axis=-1)


def heads_reshaped(q_nope, q_rope, w_kc, positions, theta):
    angles = positions[:, None, None] * theta ** (-np.arange(0, q_rope.shape[2], 2) / q_rope.shape[2])
    a, b = q_rope[..., 0::2], q_rope[..., 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    rotated = np.stack(turned, axis=-1).reshape(q_rope.shape).astype(q_rope.dtype)
    new_tokens, num_heads, nope_dim = q_nope.shape
    content = (q_nope.reshape(num_heads, new_tokens, nope_dim) @ w_kc).reshape(new_tokens, num_heads, w_kc.shape[2])
    return np.concatenate([content, rotated], axis=-1)


def heads_reshaped_back_alone(q_nope, q_rope, w_kc, positions, theta):
    angles = positions[:, None, None] * theta ** (-np.arange(0, q_rope.shape[2], 2) / q_rope.shape[2])
    a, b = q_rope[..., 0::2], q_rope[..., 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    rotated = np.stack(turned, axis=-1).reshape(q_rope.shape).astype(q_rope.dtype)
    content = np.einsum("shn,hnc->hsc", q_nope, w_kc).reshape(*q_nope.shape[:2], w_kc.shape[2])
    return np.concatenate([content, rotated], axis=-1)


def places_for_positions(q_nope, q_rope, w_kc, positions, theta):
    places = np.arange(len(q_rope))[:, None, None]
    angles = places * theta ** (-np.arange(0, q_rope.shape[2], 2) / q_rope.shape[2])
    a, b = q_rope[..., 0::2], q_rope[..., 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    rotated = np.stack(turned, axis=-1).reshape(q_rope.shape).astype(q_rope.dtype)
    return np.concatenate([np.einsum("shn,hnc->shc", q_nope, w_kc), rotated], axis=-1)


def theta_ignored(q_nope, q_rope, w_kc, positions, theta):
    angles = positions[:, None, None] * 10000.0 ** (-np.arange(0, q_rope.shape[2], 2) / q_rope.shape[2])
    a, b = q_rope[..., 0::2], q_rope[..., 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    rotated = np.stack(turned, axis=-1).reshape(q_rope.shape).astype(q_rope.dtype)
    return np.concatenate([np.einsum("shn,hnc->shc", q_nope, w_kc), rotated], axis=-1)


def float32_angles(q_nope, q_rope, w_kc, positions, theta):
    steps = (theta ** (-np.arange(0, q_rope.shape[2], 2) / q_rope.shape[2])).astype(q_rope.dtype)
    angles = positions[:, None, None].astype(q_rope.dtype) * steps
    a, b = q_rope[..., 0::2], q_rope[..., 1::2]
    turned = [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)]
    rotated = np.stack(turned, axis=-1).reshape(q_rope.shape).astype(q_rope.dtype)
    return np.concatenate([np.einsum("shn,hnc->shc", q_nope, w_kc), rotated], axis=-1)


EXERCISE = Exercise(
    id="absorbed_queries",
    chapter=4,
    order=6,
    title="queries as wide as an entry",
    checks="every head's query: its absorbed content part, and beside it its rotated rope part",
    points=3,
    difficulty=2,
    minutes=10,
    make=make,
    oracle=layer.absorbed_queries,
    cases=(
        Case("square sizes", {"new_tokens": 4, "num_heads": 4, "nope_dim": 4, "rope_dim": 4, "latent_dim": 4}),
        Case(
            "the toy by hand, two heads",
            {"new_tokens": 1, "num_heads": 2, "nope_dim": 2, "rope_dim": 2, "latent_dim": 3},
            make=make_toy,
        ),
        Case("odd sizes", {"new_tokens": 5, "num_heads": 3, "nope_dim": 7, "rope_dim": 6, "latent_dim": 9}),
        Case(
            "one new token, one head", {"new_tokens": 1, "num_heads": 1, "nope_dim": 3, "rope_dim": 4, "latent_dim": 5}
        ),
        Case(
            "no new token, float32",
            {"new_tokens": 0, "num_heads": 3, "nope_dim": 5, "rope_dim": 4, "latent_dim": 6},
            dtype="float32",
        ),
        Case("no rope width", {"new_tokens": 2, "num_heads": 3, "nope_dim": 5, "rope_dim": 0, "latent_dim": 6}),
        Case(
            "float32",
            {"new_tokens": 3, "num_heads": 2, "nope_dim": 5, "rope_dim": 8, "latent_dim": 12},
            dtype="float32",
        ),
        Case(
            "strided inputs",
            {"new_tokens": 3, "num_heads": 4, "nope_dim": 7, "rope_dim": 8, "latent_dim": 10},
            layout="strided",
        ),
        Case(
            "DeepSeek-V3 widths, three heads, a long context, float32",
            {"new_tokens": 5, "num_heads": 3, "nope_dim": 128, "rope_dim": 64, "latent_dim": 512},
            dtype="float32",
            make=make_long,
        ),
    ),
    hints=(
        "You have written both halves: absorb_heads (in practice 2: write its lines again here) and apply_rope. What "
        "is left is to put their results side by side, in the order in which an entry is stored.",
        "The content half is a batched product over heads. The rope half is turned by the token's position, the same "
        "for all heads: give the angles an axis of size 1 for the heads. Concatenate along the last axis.",
        "Fill the gaps:\n\n"
        "    content = ____  # (new_tokens, num_heads, latent_dim)\n"
        "    rotated = ____  # (new_tokens, num_heads, rope_dim), interleaved\n"
        "    return np.concatenate(____)  # and mind the dtype",
    ),
    mistakes=(
        Mistake(
            "rope dims forgotten",
            "the queries are latent_dim wide. The rope part belongs beside the content, or positions count for nothing",
            rope_forgotten,
        ),
        Mistake("rope part not rotated", "the rope part stands as it came. Rotate it first", rope_left_unrotated),
        Mistake("rope part first", "the order is [content | rope], as in a cache entry", rope_first),
        Mistake(
            "halves paired",
            "the rope part's feature i was paired with i + rope_dim / 2. Its layout is interleaved: (0, 1), (2, 3), …",
            halves_paired,
        ),
        Mistake(
            "content not absorbed",
            "the content part is nope_dim wide, as it came. It has to meet latents: take w_kc in first",
            content_left_narrow,
        ),
        Mistake("one matrix for all heads", "every head met w_kc[0]. Head h meets w_kc[h]", first_head_for_all),
        Mistake(
            "turned by head",
            "the angle is that of the head's number. All heads of a token are turned by the token's position",
            turned_by_head,
        ),
        Mistake(
            "content rotated",
            "the content part was rotated too. Position lives in the rope part alone",
            content_rotated_too,
        ),
        Mistake(
            "turned backwards",
            "the rope part is turned by minus its angle. Query and key are turned the same way: the dot product takes "
            "the difference",
            rotated_backwards,
        ),
        Mistake(
            "places taken for positions",
            "token number t is rotated as if it stood at position t. Use the values in positions",
            places_for_positions,
        ),
        Mistake(
            "heads reshaped",
            "the token and the head axis were exchanged with reshape, which keeps the order of the numbers in memory. "
            "Exchange two axes with swapaxes or transpose",
            heads_reshaped,
            also=(heads_reshaped_back_alone,),
        ),
        Mistake(
            "theta ignored",
            "the angles are those of a theta of 10000. Use the theta that is given: models differ in it",
            theta_ignored,
        ),
        Mistake(
            "float32 angles",
            "the angles were rounded to float32, as the rope part is. At position 131,071 they are then off by "
            "thousandths of a radian: make them in float64, and round the result",
            float32_angles,
        ),
        Mistake(
            "heads flattened",
            "every head got the sum of all heads' content. The head axis must never be summed over",
            heads_flattened,
        ),
    ),
    mutants=(
        Mutant(rope_forgotten, "rope dims forgotten"),
        Mutant(rope_left_unrotated, "rope part not rotated"),
        Mutant(rope_first, "rope part first"),
        Mutant(halves_paired, "halves paired"),
        Mutant(content_left_narrow, "content not absorbed"),
        Mutant(first_head_for_all, "one matrix for all heads"),
        Mutant(turned_by_head, "turned by head"),
        Mutant(content_rotated_too, "content rotated"),
        Mutant(rotated_backwards, "turned backwards"),
        Mutant(places_for_positions, "places taken for positions"),
        Mutant(heads_reshaped, "heads reshaped"),
        Mutant(heads_reshaped_back_alone, "heads reshaped"),
        Mutant(theta_ignored, "theta ignored"),
        Mutant(float32_angles, "float32 angles"),
        Mutant(heads_flattened, "heads flattened"),
    ),
)
