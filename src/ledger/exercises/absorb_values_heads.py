"""Chapter 3: mix latents for every head, and give each mixture that head's own value matrix."""

import numpy as np

from ledger.account.values import value_path_absorb
from ledger.exercises.base import Budget, Case, Exercise, Forbidden, Mistake, Mutant
from ledger.exercises.making import TOY_LATENTS, TOY_W_V, cancel, normal, whole
from ledger.reference import values

#: A second head's value matrix, (latent 3, value 2), and its attention weights in the toy.
TOY_HEAD_1_W_V = ((7, 9), (7, 9), (7, 9))
TOY_HEAD_1_WEIGHTS = ((0, 0.25, 0.75),)


def make(rng, dtype, new_tokens, cached_tokens, num_heads, latent_dim, value_dim):
    weights, _ = values.softmax_lse(normal(rng, dtype, num_heads, new_tokens, cached_tokens))
    return {
        "weights": weights,
        "latents": normal(rng, dtype, cached_tokens, latent_dim),
        "w_vc": normal(rng, dtype, num_heads, latent_dim, value_dim),
    }


def make_whole(rng, dtype, new_tokens, cached_tokens, num_heads, latent_dim, value_dim):
    """Weights in eighths that add to 1, and whole numbers elsewhere: every sum is exact."""
    eighths = rng.multinomial(8, np.full(cached_tokens, 1 / cached_tokens), size=(num_heads, new_tokens))
    return {
        "weights": (eighths / 8).astype(dtype),
        "latents": whole(rng, dtype, cached_tokens, latent_dim),
        "w_vc": whole(rng, dtype, num_heads, latent_dim, value_dim),
    }


def make_part(rng, dtype, **dims):
    """Weights over one part of a longer cache: a row adds to less than 1."""
    inputs = make(rng, dtype, **dims)
    inputs["weights"] *= rng.uniform(0.2, 0.8, (dims["num_heads"], dims["new_tokens"], 1)).astype(dtype)
    return inputs


def make_cancelling(rng, dtype, **dims):
    inputs = make_whole(rng, dtype, **dims)
    cancel(inputs["latents"], inputs["w_vc"], axis=1)
    return inputs


def make_toy(rng, dtype, **dims):
    """Head 0 is the toy of one head; head 1 has weights and a matrix of its own."""
    return {
        "weights": np.array([((0.5, 0, 0.5),), TOY_HEAD_1_WEIGHTS], dtype),
        "latents": np.array(TOY_LATENTS, dtype),
        "w_vc": np.array([TOY_W_V, TOY_HEAD_1_W_V], dtype),
    }


def least_macs(new_tokens, cached_tokens, num_heads, latent_dim, value_dim):
    return num_heads * value_path_absorb(new_tokens, cached_tokens, latent_dim, value_dim).total


def most_macs(new_tokens, cached_tokens, num_heads, latent_dim, value_dim):
    """The two products of every head, and one elementwise step over the outputs."""
    sizes = new_tokens, cached_tokens, num_heads, latent_dim, value_dim
    return least_macs(*sizes) + new_tokens * num_heads * value_dim


def largest(new_tokens, cached_tokens, num_heads, latent_dim, value_dim):
    """A copy of any input, the mixed latents or the outputs."""
    rows = new_tokens * num_heads
    return max(
        cached_tokens * latent_dim, num_heads * latent_dim * value_dim, rows * max(cached_tokens, latent_dim, value_dim)
    )


def peak_values(new_tokens, cached_tokens, num_heads, latent_dim, value_dim):
    """The mixed latents and the outputs, each with a copy, and a copy of every input."""
    rows = new_tokens * num_heads
    copies = rows * cached_tokens + cached_tokens * latent_dim + num_heads * latent_dim * value_dim
    return 2 * rows * (latent_dim + value_dim) + copies


def first_head_for_all(weights, latents, w_vc):
    return (weights @ latents @ w_vc[0]).swapaxes(0, 1)


def matrices_added_up(weights, latents, w_vc):
    return np.einsum("hsc,gcv->shv", weights @ latents, w_vc)


def heads_flattened(weights, latents, w_vc):
    num_heads, latent_dim, value_dim = w_vc.shape
    mixed = (weights @ latents).swapaxes(0, 1).reshape(-1, num_heads * latent_dim)
    summed = mixed @ w_vc.reshape(num_heads * latent_dim, value_dim)
    return np.repeat(summed[:, None], num_heads, axis=1)


def heads_summed(weights, latents, w_vc):
    return (weights @ latents @ w_vc).sum(axis=0)


def result_reshaped(weights, latents, w_vc):
    num_heads, new_tokens, _ = weights.shape
    return (weights @ latents @ w_vc).reshape(new_tokens, num_heads, w_vc.shape[2])


def heads_first(weights, latents, w_vc):
    return weights @ latents @ w_vc


def not_projected(weights, latents, w_vc):
    return (weights @ latents).swapaxes(0, 1)


def matrix_reshaped(weights, latents, w_vc):
    num_heads, latent_dim, value_dim = w_vc.shape
    transposed = w_vc.reshape(num_heads, value_dim, latent_dim).swapaxes(1, 2)
    return (weights @ latents @ transposed).swapaxes(0, 1)


def all_tokens_alike(weights, latents, w_vc):
    mean = latents.sum(axis=0, keepdims=True) / max(len(latents), 1)
    return np.repeat((mean @ w_vc).swapaxes(0, 1), weights.shape[1], axis=0)


def softmax_once_more(weights, latents, w_vc):
    again = np.exp(weights)
    return (again / again.sum(-1, keepdims=True) @ latents @ w_vc).swapaxes(0, 1)


def normalised_again(weights, latents, w_vc):
    total = weights.sum(axis=-1, keepdims=True)
    return (weights / np.where(total > 0, total, 1) @ latents @ w_vc).swapaxes(0, 1)


def values_first(weights, latents, w_vc):
    return (weights @ (latents @ w_vc)).swapaxes(0, 1)


def values_first_head_by_head(weights, latents, w_vc):
    return np.stack([w @ (latents @ w_v) for w, w_v in zip(weights, w_vc, strict=True)], axis=1)


def latents_repeated(weights, latents, w_vc):
    for_each_head = np.repeat(latents[None], len(w_vc), axis=0)
    return (weights @ for_each_head @ w_vc).swapaxes(0, 1)


def all_three_in_one_sum(weights, latents, w_vc):
    return np.einsum("hst,tc,hcv->shv", weights, latents, w_vc)


EXERCISE = Exercise(
    id="absorb_values_heads",
    chapter=3,
    order=4,
    title="a value matrix of its own for every head",
    checks="each head's mixed latent times that head's own value matrix, without building a value",
    points=3,
    difficulty=3,
    minutes=12,
    make=make,
    oracle=values.absorb_values_heads,
    least_macs=least_macs,
    cases=(
        Case(
            "square sizes, whole numbers",
            {"new_tokens": 3, "cached_tokens": 3, "num_heads": 3, "latent_dim": 3, "value_dim": 3},
            make=make_whole,
        ),
        Case(
            "the toy by hand, two heads",
            {"new_tokens": 1, "cached_tokens": 3, "num_heads": 2, "latent_dim": 3, "value_dim": 2},
            make=make_toy,
        ),
        Case("odd sizes", {"new_tokens": 5, "cached_tokens": 7, "num_heads": 3, "latent_dim": 11, "value_dim": 9}),
        Case(
            "one of everything but the widths",
            {"new_tokens": 1, "cached_tokens": 1, "num_heads": 1, "latent_dim": 6, "value_dim": 4},
        ),
        Case(
            "empty cache, float32",
            {"new_tokens": 2, "cached_tokens": 0, "num_heads": 3, "latent_dim": 6, "value_dim": 4},
            dtype="float32",
        ),
        Case(
            "a part of a longer cache",
            {"new_tokens": 4, "cached_tokens": 6, "num_heads": 3, "latent_dim": 8, "value_dim": 5},
            make=make_part,
        ),
        Case(
            "huge parts that cancel",
            {"new_tokens": 2, "cached_tokens": 6, "num_heads": 3, "latent_dim": 10, "value_dim": 4},
            make=make_cancelling,
        ),
        Case(
            "float32",
            {"new_tokens": 3, "cached_tokens": 11, "num_heads": 2, "latent_dim": 12, "value_dim": 6},
            dtype="float32",
        ),
        Case(
            "strided inputs",
            {"new_tokens": 3, "cached_tokens": 7, "num_heads": 4, "latent_dim": 10, "value_dim": 5},
            layout="strided",
        ),
        Case(
            "DeepSeek-V3 widths, three heads",
            {"new_tokens": 2, "cached_tokens": 73, "num_heads": 3, "latent_dim": 512, "value_dim": 128},
        ),
        # Values far larger than the latents, so that memory alone tells them apart.
        Case(
            "wide values, a long cache",
            {"new_tokens": 2, "cached_tokens": 1201, "num_heads": 3, "latent_dim": 16, "value_dim": 96},
        ),
    ),
    hints=(
        "For one head this is mix_then_project again. All heads mix the same latents, each with its own weights; then "
        "each mixture meets its own matrix. Which of the two products pairs heads with heads?",
        "weights has the head axis in front, and so has w_vc. A plain matrix such as latents serves every head by "
        "broadcasting. The heads stay in front through both products, and go behind the tokens at the end: by a swap, "
        "not by a reshape.",
        "Fill the gaps:\n\n"
        "    mixed = ____  # (num_heads, new_tokens, latent_dim)\n"
        "    by_head = mixed @ ____  # (num_heads, new_tokens, value_dim)\n"
        "    return ____  # (new_tokens, num_heads, value_dim)",
    ),
    budget=Budget(
        text="No value is ever built, and no latent copied for a head: no array of cached_tokens × value_dim or of "
        "cached_tokens × num_heads × latent_dim, and the multiply-adds spent on w_vc do not grow with cached_tokens.",
        case="wide values, a long cache",
        macs=most_macs,
        largest=largest,
        peak_values=peak_values,
        says="the outputs are right, but the shortest way spends less. Look for w_vc where it meets cached tokens or "
        "another head's sums, and for an array of all terms of a sum: a matrix product adds them up as it goes",
        forbidden=(
            Forbidden(
                "values materialized",
                ("cached_tokens", "value_dim"),
                "the outputs are right, but a value was built for every cached token. Mix latents, and project the "
                "sums",
            ),
            Forbidden(
                "latents expanded to every head",
                ("cached_tokens", "num_heads", "latent_dim"),
                "the outputs are right, but the latents were copied for every head. The heads share one set: let it "
                "broadcast",
            ),
        ),
    ),
    mistakes=(
        Mistake(
            "one matrix for all heads",
            "every head met the matrix of head 0. Head h meets w_vc[h]",
            first_head_for_all,
        ),
        Mistake(
            "matrices added up",
            "every head met the sum of all matrices: the head is one letter in both inputs, and in the result",
            matrices_added_up,
        ),
        Mistake(
            "heads flattened, then handed to all",
            "every head got the sum over all heads. The head axis must never be summed over",
            heads_flattened,
        ),
        Mistake(
            "heads summed",
            "the heads' outputs were added. Each head keeps its own; W_O brings them together, later",
            heads_summed,
        ),
        Mistake(
            "result reshaped",
            "the result has its heads first and was reshaped. A reshape moves no axis, it cuts the numbers anew: swap "
            "the axes",
            result_reshaped,
        ),
        Mistake(
            "heads first",
            "the axes are (num_heads, new_tokens, value_dim). Move the head axis back behind the tokens",
            heads_first,
        ),
        Mistake(
            "not projected",
            "these are the mixed latents, latent_dim wide. Each head's own w_vc is still to come",
            not_projected,
        ),
        Mistake(
            "transposed weight",
            "w_vc[h] is (latent_dim, value_dim), and here it is read as (value_dim, latent_dim). The sum runs over "
            "latent_dim",
            matrix_reshaped,
        ),
        Mistake(
            "weights ignored",
            "every cached token counts alike. weights[h, s] says how much each of them counts for new token s in head "
            "h",
            all_tokens_alike,
        ),
        Mistake(
            "softmax once more",
            "the weights went through a softmax again. They are post-softmax already",
            softmax_once_more,
        ),
        Mistake(
            "normalised again",
            "each row of weights was divided by its sum. Over a part of a longer cache a row adds to less than 1, and "
            "is meant to",
            normalised_again,
        ),
    ),
    mutants=(
        Mutant(first_head_for_all, "one matrix for all heads"),
        Mutant(matrices_added_up, "matrices added up"),
        Mutant(heads_flattened, "heads flattened, then handed to all"),
        Mutant(heads_summed, "heads summed"),
        Mutant(result_reshaped, "result reshaped"),
        Mutant(heads_first, "heads first"),
        Mutant(not_projected, "not projected"),
        Mutant(matrix_reshaped, "transposed weight"),
        Mutant(all_tokens_alike, "weights ignored"),
        Mutant(softmax_once_more, "softmax once more"),
        Mutant(normalised_again, "normalised again"),
        Mutant(values_first, "values materialized"),
        Mutant(values_first_head_by_head, "values materialized"),
        Mutant(latents_repeated, "latents expanded to every head"),
        Mutant(all_three_in_one_sum, "too many multiply-adds"),
    ),
)
