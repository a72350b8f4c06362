"""Chapter 7: one more block of scores, folded into a softmax that is under way."""
# ruff: noqa: E741

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import normal
from ledger.reference import kernels


def make(rng, dtype, rows, block, value_dim):
    """A state as earlier blocks leave it: the largest of them counts 1, so l is at least that."""
    return {
        "m": 2 * normal(rng, dtype, rows),
        "l": (1 + 4 * rng.random(rows)).astype(dtype),
        "acc": normal(rng, dtype, rows, value_dim),
        "scores": 2 * normal(rng, dtype, rows, block),
        "values": normal(rng, dtype, block, value_dim),
    }


def make_first(rng, dtype, **dims):
    """Nothing has been seen yet."""
    inputs = make(rng, dtype, **dims)
    inputs["m"][...], inputs["l"][...], inputs["acc"][...] = -np.inf, 0, 0
    return inputs


def make_masked(rng, dtype, **dims):
    """Some tokens are masked; row 0 sees nothing of the block, row 1 has seen nothing and still does not, and row 2
    sees its first token."""
    inputs = make(rng, dtype, **dims)
    inputs["scores"][rng.random(inputs["scores"].shape) < 0.4] = -np.inf
    inputs["scores"][:2] = -np.inf
    inputs["scores"][2:, 0] = normal(rng, dtype, dims["rows"] - 2)
    inputs["m"][1:3], inputs["l"][1:3], inputs["acc"][1:3] = -np.inf, 0, 0
    return inputs


def make_all_masked(rng, dtype, **dims):
    inputs = make_first(rng, dtype, **dims)
    inputs["scores"][...] = -np.inf
    return inputs


def make_far(sign):
    """The block's scores stand 1,600 above or below those before it."""

    def make_far_apart(rng, dtype, **dims):
        inputs = make(rng, dtype, **dims)
        inputs["m"] = inputs["m"] - sign * dtype.type(800)
        inputs["scores"] = inputs["scores"] + sign * dtype.type(800)
        return inputs

    return make_far_apart


def make_toy(rng, dtype, **dims):
    """Two scores of 0 have been seen; the sums come out in quarters."""
    rows = {"m": [0], "l": [2], "acc": [(4, 4)], "scores": [(np.log(4), 0)], "values": [(8, 0), (0, 8)]}
    return {name: np.array(values, dtype) for name, values in rows.items()}


def block_maximum(m, l, acc, scores, values):
    with np.errstate(all="ignore"):
        m_new = scores.max(axis=1, initial=-np.inf)
        safe = np.where(np.isneginf(m_new), 0, m_new)
        rescale, weights = np.exp(m - safe), np.exp(scores - safe[:, None])
        return m_new, rescale * l + weights.sum(axis=1), rescale[:, None] * acc + weights @ values


def nothing_rescaled(m, l, acc, scores, values):
    m_new = np.maximum(m, scores.max(axis=1, initial=-np.inf))
    safe = np.where(np.isneginf(m_new), 0, m_new)
    weights = np.exp(scores - safe[:, None])
    return m_new, l + weights.sum(axis=1), acc + weights @ values


def acc_not_rescaled(m, l, acc, scores, values):
    m_new = np.maximum(m, scores.max(axis=1, initial=-np.inf))
    safe = np.where(np.isneginf(m_new), 0, m_new)
    weights = np.exp(scores - safe[:, None])
    return m_new, np.exp(m - safe) * l + weights.sum(axis=1), acc + weights @ values


def l_not_rescaled(m, l, acc, scores, values):
    m_new = np.maximum(m, scores.max(axis=1, initial=-np.inf))
    safe = np.where(np.isneginf(m_new), 0, m_new)
    weights = np.exp(scores - safe[:, None])
    return m_new, l + weights.sum(axis=1), np.exp(m - safe)[:, None] * acc + weights @ values


def rescaled_the_wrong_way(m, l, acc, scores, values):
    with np.errstate(all="ignore"):
        m_new = np.maximum(m, scores.max(axis=1, initial=-np.inf))
        safe = np.where(np.isneginf(m_new), 0, m_new)
        rescale = np.where(np.isneginf(m), 0, np.exp(safe - m))
        weights = np.exp(scores - safe[:, None])
        return m_new, rescale * l + weights.sum(axis=1), rescale[:, None] * acc + weights @ values


def normalised(m, l, acc, scores, values):
    m_new = np.maximum(m, scores.max(axis=1, initial=-np.inf))
    safe = np.where(np.isneginf(m_new), 0, m_new)
    rescale, weights = np.exp(m - safe), np.exp(scores - safe[:, None])
    l_new = rescale * l + weights.sum(axis=1)
    return m_new, l_new, (rescale[:, None] * acc + weights @ values) / np.where(l_new > 0, l_new, 1)[:, None]


def acc_taken_for_normalised(m, l, acc, scores, values):
    m_new = np.maximum(m, scores.max(axis=1, initial=-np.inf))
    safe = np.where(np.isneginf(m_new), 0, m_new)
    rescale, weights = np.exp(m - safe), np.exp(scores - safe[:, None])
    return m_new, rescale * l + weights.sum(axis=1), (rescale * l)[:, None] * acc + weights @ values


def unseen_rows_give_nan(m, l, acc, scores, values):
    with np.errstate(all="ignore"):
        m_new = np.maximum(m, scores.max(axis=1, initial=-np.inf))
        rescale, weights = np.exp(m - m_new), np.exp(scores - m_new[:, None])
        return m_new, rescale * l + weights.sum(axis=1), rescale[:, None] * acc + weights @ values


def block_alone(m, l, acc, scores, values):
    m_new = scores.max(axis=1, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(m_new), 0, m_new)[:, None])
    return m_new, weights.sum(axis=1), weights @ values


def one_maximum_for_all_rows(m, l, acc, scores, values):
    with np.errstate(all="ignore"):
        largest = max(m.max(initial=-np.inf), scores.max(initial=-np.inf))
        m_new = np.full_like(m, largest)
        safe = np.where(np.isneginf(m_new), 0, m_new)
        rescale, weights = np.exp(m - safe), np.exp(scores - safe[:, None])
        return m_new, rescale * l + weights.sum(axis=1), rescale[:, None] * acc + weights @ values


def empty_block_refused(m, l, acc, scores, values):
    m_new = np.maximum(m, scores.max(axis=1))
    safe = np.where(np.isneginf(m_new), 0, m_new)
    rescale, weights = np.exp(m - safe), np.exp(scores - safe[:, None])
    return m_new, rescale * l + weights.sum(axis=1), rescale[:, None] * acc + weights @ values


def state_changed_in_place(m, l, acc, scores, values):
    m_new = np.maximum(m, scores.max(axis=1, initial=-np.inf))
    safe = np.where(np.isneginf(m_new), 0, m_new)
    rescale, weights = np.exp(m - safe), np.exp(scores - safe[:, None])
    acc *= rescale[:, None]
    return m_new, rescale * l + weights.sum(axis=1), acc + weights @ values


EXERCISE = Exercise(
    id="online_softmax_step",
    chapter=7,
    order=1,
    title="one block more",
    checks="maximum, sum and accumulator of each row after one more block of scores and values",
    points=4,
    difficulty=3,
    minutes=20,
    make=make,
    oracle=kernels.online_softmax_step,
    returns=("m", "l", "acc"),
    cases=(
        Case("square sizes", {"rows": 4, "block": 4, "value_dim": 4}),
        Case("the toy by hand", {"rows": 1, "block": 2, "value_dim": 2}, make=make_toy),
        Case("odd sizes", {"rows": 7, "block": 5, "value_dim": 9}),
        Case("the first block", {"rows": 3, "block": 6, "value_dim": 4}, make=make_first),
        Case("scores far above those before", {"rows": 4, "block": 6, "value_dim": 3}, make=make_far(1)),
        Case("scores far below those before", {"rows": 4, "block": 6, "value_dim": 3}, make=make_far(-1)),
        Case("masked tokens", {"rows": 6, "block": 8, "value_dim": 5}, make=make_masked),
        Case(
            "nothing seen yet, nothing to see, float32",
            {"rows": 3, "block": 4, "value_dim": 5},
            dtype="float32",
            make=make_all_masked,
        ),
        Case("an empty block", {"rows": 3, "block": 0, "value_dim": 4}),
        Case("float32", {"rows": 5, "block": 8, "value_dim": 6}, dtype="float32"),
        Case("strided inputs", {"rows": 5, "block": 7, "value_dim": 6}, layout="strided"),
        Case("a tile at DeepSeek-V3's width", {"rows": 8, "block": 64, "value_dim": 512}),
    ),
    hints=(
        "Every term of l and of acc carries the factor exp(-m) of the old maximum. Which factor turns it into the "
        "factor of the new one?",
        "The new maximum is the larger of the old one and of the block's. Multiply what you have by exp(old - new), "
        "and add the block's own terms. A row that has seen nothing has a new maximum of -inf, and -inf minus -inf is "
        "NaN: subtract something finite there.",
        "Fill the gaps:\n\n"
        "    m_new = np.maximum(____, ____)  # initial=-np.inf lets an empty block through\n"
        "    safe = ____  # m_new, with 0 where it is -inf\n"
        "    rescale = np.exp(____)  # (rows,)\n"
        "    weights = np.exp(____)  # (rows, block)\n"
        "    return m_new, ____ + weights.sum(axis=1), ____ + ____",
    ),
    mistakes=(
        Mistake(
            "block maximum for running maximum",
            "m is the largest score of this block. It must be the largest of all so far, or rescaling overflows as "
            "soon as scores fall",
            block_maximum,
        ),
        Mistake(
            "nothing rescaled",
            "l and acc were made with the old maximum: multiply them by exp(old - new) before you add",
            nothing_rescaled,
        ),
        Mistake("acc not rescaled", "l was rescaled to the new maximum, acc was not", acc_not_rescaled),
        Mistake("l not rescaled", "acc was rescaled to the new maximum, l was not", l_not_rescaled),
        Mistake(
            "rescaled the wrong way",
            "the factor is exp(new - old). The old terms must shrink: exp(old - new)",
            rescaled_the_wrong_way,
        ),
        Mistake(
            "normalised",
            "acc was divided by l. That happens once, after the last block",
            normalised,
        ),
        Mistake(
            "acc taken for normalised",
            "the old acc was multiplied by l. It comes in not normalised, so exp(old - new) is its whole factor",
            acc_taken_for_normalised,
        ),
        Mistake(
            "unseen rows give NaN",
            "-inf minus -inf is NaN: a row that has seen nothing stays (-inf, 0, 0)",
            unseen_rows_give_nan,
        ),
        Mistake("block alone", "this is the softmax of the block alone: the state before it is lost", block_alone),
        Mistake(
            "one maximum for all rows",
            "the rows share one maximum. Each row is a softmax of its own",
            one_maximum_for_all_rows,
        ),
    ),
    mutants=(
        Mutant(block_maximum, "block maximum for running maximum"),
        Mutant(nothing_rescaled, "nothing rescaled"),
        Mutant(acc_not_rescaled, "acc not rescaled"),
        Mutant(l_not_rescaled, "l not rescaled"),
        Mutant(rescaled_the_wrong_way, "rescaled the wrong way"),
        Mutant(normalised, "normalised"),
        Mutant(acc_taken_for_normalised, "acc taken for normalised"),
        Mutant(unseen_rows_give_nan, "unseen rows give NaN"),
        Mutant(block_alone, "block alone"),
        Mutant(one_maximum_for_all_rows, "one maximum for all rows"),
        Mutant(empty_block_refused, "zero-size array", verdict="error"),
        Mutant(state_changed_in_place, "changed acc in place"),
    ),
)
