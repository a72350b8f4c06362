"""Chapter 8: what the decoder layer of an MTP module is given."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import normal
from ledger.reference import mtp


def make(rng, dtype, tokens, hidden_dim):
    """States are large and embeddings small, as in a trained model."""
    return {
        "hidden": 3 * normal(rng, dtype, tokens, hidden_dim),
        "next_embedding": normal(rng, dtype, tokens, hidden_dim) / 8,
        "weights": {
            "enorm": (0.5 + rng.random(hidden_dim)).astype(dtype),
            "hnorm": (0.5 + rng.random(hidden_dim)).astype(dtype),
            "eh_proj": normal(rng, dtype, 2 * hidden_dim, hidden_dim),
        },
        "eps": 1e-6,
    }


def make_faint(rng, dtype, **dims):
    """Rows so small that eps decides, and one of zeros."""
    inputs = make(rng, dtype, **dims)
    inputs["hidden"] *= dtype.type(1e-3)
    inputs["next_embedding"] *= dtype.type(1e-3)
    inputs["hidden"][0] = inputs["next_embedding"][-1] = 0
    return inputs | {"eps": 1e-5}


def make_toy(rng, dtype, **dims):
    """Both have a root mean square of 5, so that the norms divide by 5."""
    return {
        "hidden": np.array([(7, 1)], dtype),
        "next_embedding": np.array([(5, -5)], dtype),
        "weights": {
            "enorm": np.array([1, 2], dtype),
            "hnorm": np.array([5, 5], dtype),
            "eh_proj": np.array([(1, 0), (0, 1), (1, 1), (0, 10)], dtype),
        },
        "eps": 0.0,
    }


def state_first(hidden, next_embedding, weights, eps):
    e = next_embedding / np.sqrt((next_embedding**2).mean(-1, keepdims=True) + eps) * weights["enorm"]
    h = hidden / np.sqrt((hidden**2).mean(-1, keepdims=True) + eps) * weights["hnorm"]
    return np.concatenate([h, e], axis=-1) @ weights["eh_proj"]


def norms_swapped(hidden, next_embedding, weights, eps):
    e = next_embedding / np.sqrt((next_embedding**2).mean(-1, keepdims=True) + eps) * weights["hnorm"]
    h = hidden / np.sqrt((hidden**2).mean(-1, keepdims=True) + eps) * weights["enorm"]
    return np.concatenate([e, h], axis=-1) @ weights["eh_proj"]


def no_norm(hidden, next_embedding, weights, eps):
    return np.concatenate([next_embedding, hidden], axis=-1) @ weights["eh_proj"]


def state_not_normed(hidden, next_embedding, weights, eps):
    e = next_embedding / np.sqrt((next_embedding**2).mean(-1, keepdims=True) + eps) * weights["enorm"]
    return np.concatenate([e, hidden], axis=-1) @ weights["eh_proj"]


def embedding_not_normed(hidden, next_embedding, weights, eps):
    h = hidden / np.sqrt((hidden**2).mean(-1, keepdims=True) + eps) * weights["hnorm"]
    return np.concatenate([next_embedding, h], axis=-1) @ weights["eh_proj"]


def one_norm_over_both(hidden, next_embedding, weights, eps):
    both = np.concatenate([next_embedding, hidden], axis=-1)
    both = both / np.sqrt((both**2).mean(-1, keepdims=True) + eps)
    return both * np.concatenate([weights["enorm"], weights["hnorm"]]) @ weights["eh_proj"]


def norm_weights_forgotten(hidden, next_embedding, weights, eps):
    e = next_embedding / np.sqrt((next_embedding**2).mean(-1, keepdims=True) + eps)
    h = hidden / np.sqrt((hidden**2).mean(-1, keepdims=True) + eps)
    return np.concatenate([e, h], axis=-1) @ weights["eh_proj"]


def means_without_an_axis(hidden, next_embedding, weights, eps):
    e = next_embedding / np.sqrt((next_embedding**2).mean(-1) + eps) * weights["enorm"]
    h = hidden / np.sqrt((hidden**2).mean(-1) + eps) * weights["hnorm"]
    return np.concatenate([e, h], axis=-1) @ weights["eh_proj"]


def eps_forgotten(hidden, next_embedding, weights, eps):
    with np.errstate(all="ignore"):
        e = next_embedding / np.sqrt((next_embedding**2).mean(-1, keepdims=True)) * weights["enorm"]
        h = hidden / np.sqrt((hidden**2).mean(-1, keepdims=True)) * weights["hnorm"]
        return np.concatenate([e, h], axis=-1) @ weights["eh_proj"]


def eps_after_the_root(hidden, next_embedding, weights, eps):
    e = next_embedding / (np.sqrt((next_embedding**2).mean(-1, keepdims=True)) + eps) * weights["enorm"]
    h = hidden / (np.sqrt((hidden**2).mean(-1, keepdims=True)) + eps) * weights["hnorm"]
    return np.concatenate([e, h], axis=-1) @ weights["eh_proj"]


def sum_for_mean(hidden, next_embedding, weights, eps):
    e = next_embedding / np.sqrt((next_embedding**2).sum(-1, keepdims=True) + eps) * weights["enorm"]
    h = hidden / np.sqrt((hidden**2).sum(-1, keepdims=True) + eps) * weights["hnorm"]
    return np.concatenate([e, h], axis=-1) @ weights["eh_proj"]


def layer_norm(hidden, next_embedding, weights, eps):
    e = next_embedding - next_embedding.mean(-1, keepdims=True)
    h = hidden - hidden.mean(-1, keepdims=True)
    e = e / np.sqrt((e**2).mean(-1, keepdims=True) + eps) * weights["enorm"]
    h = h / np.sqrt((h**2).mean(-1, keepdims=True) + eps) * weights["hnorm"]
    return np.concatenate([e, h], axis=-1) @ weights["eh_proj"]


def state_added_back(hidden, next_embedding, weights, eps):
    e = next_embedding / np.sqrt((next_embedding**2).mean(-1, keepdims=True) + eps) * weights["enorm"]
    h = hidden / np.sqrt((hidden**2).mean(-1, keepdims=True) + eps) * weights["hnorm"]
    return hidden + np.concatenate([e, h], axis=-1) @ weights["eh_proj"]


def normed_in_place(hidden, next_embedding, weights, eps):
    hidden /= np.sqrt((hidden**2).mean(-1, keepdims=True) + eps)
    e = next_embedding / np.sqrt((next_embedding**2).mean(-1, keepdims=True) + eps) * weights["enorm"]
    return np.concatenate([e, hidden * weights["hnorm"]], axis=-1) @ weights["eh_proj"]


EXERCISE = Exercise(
    id="mtp_forward",
    chapter=8,
    order=1,
    title="the module's input",
    checks="what the decoder layer of an MTP module is given, from a hidden state and the next token's embedding",
    points=2,
    difficulty=1,
    minutes=10,
    make=make,
    oracle=mtp.mtp_forward,
    cases=(
        Case("square sizes", {"tokens": 4, "hidden_dim": 4}),
        Case("the toy by hand", {"tokens": 1, "hidden_dim": 2}, make=make_toy),
        Case("odd sizes", {"tokens": 5, "hidden_dim": 7}),
        Case("one of everything", {"tokens": 1, "hidden_dim": 1}),
        Case("no token", {"tokens": 0, "hidden_dim": 6}),
        Case("faint rows, where eps decides", {"tokens": 4, "hidden_dim": 6}, make=make_faint),
        Case("float32", {"tokens": 3, "hidden_dim": 8}, dtype="float32"),
        Case("strided inputs", {"tokens": 5, "hidden_dim": 6}, layout="strided"),
        Case("a wide state", {"tokens": 3, "hidden_dim": 256}),
    ),
    hints=(
        "Two things say what comes next: the state, which has read everything up to token i, and token i + 1 itself. "
        "What must happen to them before one matrix can weigh them against each other?",
        "Each goes through an RMSNorm of its own: divide each row by the root of (mean of its squares + eps), then "
        "multiply by that norm's weight. Join the two along the last axis, the embedding on the left, and multiply by "
        "eh_proj on the right.",
        "Fill the gaps:\n\n"
        "    def normed(x, weight):\n"
        "        return x / np.sqrt(____ + eps) * ____\n\n"
        "    left, right = normed(____, ____), normed(____, ____)\n"
        "    return np.concatenate(____, axis=-1) @ ____",
    ),
    mistakes=(
        Mistake(
            "state first",
            "the hidden state was put first, as the paper writes it. The rows of the published eh_proj have the "
            "embedding first",
            state_first,
        ),
        Mistake(
            "norms swapped",
            "the weights of the norms are swapped: enorm belongs to the embedding, hnorm to the hidden state",
            norms_swapped,
        ),
        Mistake("no norm", "neither input was normed", no_norm),
        Mistake("state not normed", "the hidden state was not normed", state_not_normed),
        Mistake("embedding not normed", "the embedding was not normed", embedding_not_normed),
        Mistake(
            "one norm over both",
            "the joined vector was normed as one. Each half has a root mean square of its own, or the larger one "
            "drowns the other",
            one_norm_over_both,
        ),
        Mistake("norm weights forgotten", "enorm and hnorm were left out", norm_weights_forgotten),
        Mistake(
            "keepdims forgotten",
            "each column was divided by the root mean square of a row. Keep the axis that the mean is taken over: "
            "keepdims=True",
            means_without_an_axis,
        ),
        Mistake("eps forgotten", "eps was left out: it decides where a row is small", eps_forgotten),
        Mistake(
            "eps after the root", "eps was added to the root. It belongs under it, to the mean", eps_after_the_root
        ),
        Mistake("sum for mean", "the squares were summed. RMS is the root of their mean", sum_for_mean),
        Mistake("LayerNorm", "the mean was subtracted, as LayerNorm does. RMSNorm only divides", layer_norm),
        Mistake(
            "state added back",
            "the hidden state was added to the result. There is no residual around eh_proj",
            state_added_back,
        ),
    ),
    mutants=(
        Mutant(state_first, "state first"),
        Mutant(norms_swapped, "norms swapped"),
        Mutant(no_norm, "no norm"),
        Mutant(state_not_normed, "state not normed"),
        Mutant(embedding_not_normed, "embedding not normed"),
        Mutant(one_norm_over_both, "one norm over both"),
        Mutant(norm_weights_forgotten, "norm weights forgotten"),
        Mutant(means_without_an_axis, "keepdims forgotten"),
        Mutant(eps_forgotten, "eps forgotten"),
        Mutant(eps_after_the_root, "eps after the root"),
        Mutant(sum_for_mean, "sum for mean"),
        Mutant(layer_norm, "LayerNorm"),
        Mutant(state_added_back, "state added back"),
        Mutant(normed_in_place, "changed hidden in place"),
    ),
)
