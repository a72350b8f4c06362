"""Chapter 3: the output of one head without building a value."""

import numpy as np

from ledger.account.values import value_path_absorb
from ledger.exercises.base import Budget, Case, Exercise, Forbidden, Mistake, Mutant
from ledger.exercises.making import TOY_LATENTS, TOY_W_V, cancel, normal, whole
from ledger.reference import values


def make(rng, dtype, new_tokens, cached_tokens, latent_dim, value_dim):
    weights, _ = values.softmax_lse(normal(rng, dtype, new_tokens, cached_tokens))
    return {
        "weights": weights,
        "latents": normal(rng, dtype, cached_tokens, latent_dim),
        "w_v": normal(rng, dtype, latent_dim, value_dim),
    }


def make_whole(rng, dtype, new_tokens, cached_tokens, latent_dim, value_dim):
    """Weights in eighths that add to 1, and whole numbers elsewhere: every sum is exact."""
    eighths = rng.multinomial(8, np.full(cached_tokens, 1 / cached_tokens), size=new_tokens)
    return {
        "weights": (eighths / 8).astype(dtype),
        "latents": whole(rng, dtype, cached_tokens, latent_dim),
        "w_v": whole(rng, dtype, latent_dim, value_dim),
    }


def make_part(rng, dtype, **dims):
    """Weights over one part of a longer cache: a row adds to less than 1."""
    inputs = make(rng, dtype, **dims)
    inputs["weights"] *= rng.uniform(0.2, 0.8, (dims["new_tokens"], 1)).astype(dtype)
    return inputs


def make_cancelling(rng, dtype, **dims):
    inputs = make_whole(rng, dtype, **dims)
    cancel(inputs["latents"], inputs["w_v"], axis=0)
    return inputs


def make_toy(rng, dtype, **dims):
    toy = {"weights": ((0.5, 0, 0.5),), "latents": TOY_LATENTS, "w_v": TOY_W_V}
    return {name: np.array(rows, dtype) for name, rows in toy.items()}


def least_macs(new_tokens, cached_tokens, latent_dim, value_dim):
    return value_path_absorb(new_tokens, cached_tokens, latent_dim, value_dim).total


def most_macs(new_tokens, cached_tokens, latent_dim, value_dim):
    """The two products, and one elementwise step over the outputs."""
    return least_macs(new_tokens, cached_tokens, latent_dim, value_dim) + new_tokens * value_dim


def largest(new_tokens, cached_tokens, latent_dim, value_dim):
    """A copy of any input, or the outputs."""
    return max(
        cached_tokens * latent_dim, latent_dim * value_dim, new_tokens * max(cached_tokens, latent_dim, value_dim)
    )


def peak_values(new_tokens, cached_tokens, latent_dim, value_dim):
    """The mixed latents and the outputs, each with a copy, and a copy of every input."""
    made = 2 * new_tokens * (latent_dim + value_dim)
    return made + new_tokens * cached_tokens + cached_tokens * latent_dim + latent_dim * value_dim


def weight_reshaped(weights, latents, w_v):
    latent_dim, value_dim = w_v.shape
    return weights @ latents @ w_v.reshape(value_dim, latent_dim).T


def not_projected(weights, latents, w_v):
    return weights @ latents


def all_tokens_alike(weights, latents, w_v):
    mean = latents.sum(axis=0, keepdims=True) / max(len(latents), 1)
    return np.repeat(mean @ w_v, len(weights), axis=0)


def softmax_once_more(weights, latents, w_v):
    again = np.exp(weights)
    return again / again.sum(-1, keepdims=True) @ latents @ w_v


def normalised_again(weights, latents, w_v):
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total > 0, total, 1) @ latents @ w_v


def divided_by_the_tokens(weights, latents, w_v):
    return weights @ latents @ w_v / max(len(latents), 1)


def features_first(weights, latents, w_v):
    return (weights @ latents @ w_v).T


def values_first(weights, latents, w_v):
    return weights @ (latents @ w_v)


def one_value_at_a_time(weights, latents, w_v):
    output = np.zeros((len(weights), w_v.shape[1]), weights.dtype)
    for token, latent in enumerate(latents):
        output = output + np.outer(weights[:, token], latent @ w_v)
    return output


def all_three_in_one_sum(weights, latents, w_v):
    return np.einsum("st,tc,cv->sv", weights, latents, w_v)


def all_terms_in_one_array(weights, latents, w_v):
    return (weights[:, :, None] * latents).sum(axis=1) @ w_v


EXERCISE = Exercise(
    id="mix_then_project",
    chapter=3,
    order=3,
    title="outputs without values",
    checks="the weighted sum of one head's values for each new token, without building a value",
    points=2,
    difficulty=2,
    minutes=8,
    make=make,
    oracle=values.mix_then_project,
    least_macs=least_macs,
    cases=(
        Case(
            "square sizes, whole numbers",
            {"new_tokens": 3, "cached_tokens": 3, "latent_dim": 3, "value_dim": 3},
            make=make_whole,
        ),
        Case(
            "the toy by hand",
            {"new_tokens": 1, "cached_tokens": 3, "latent_dim": 3, "value_dim": 2},
            make=make_toy,
        ),
        Case("odd sizes", {"new_tokens": 5, "cached_tokens": 7, "latent_dim": 9, "value_dim": 3}),
        Case("one new token, one cached", {"new_tokens": 1, "cached_tokens": 1, "latent_dim": 6, "value_dim": 4}),
        Case(
            "a part of a longer cache",
            {"new_tokens": 4, "cached_tokens": 6, "latent_dim": 8, "value_dim": 5},
            make=make_part,
        ),
        Case(
            "empty cache, float32",
            {"new_tokens": 2, "cached_tokens": 0, "latent_dim": 6, "value_dim": 4},
            dtype="float32",
        ),
        Case(
            "huge parts that cancel",
            {"new_tokens": 3, "cached_tokens": 6, "latent_dim": 10, "value_dim": 4},
            make=make_cancelling,
        ),
        Case("float32", {"new_tokens": 4, "cached_tokens": 11, "latent_dim": 12, "value_dim": 6}, dtype="float32"),
        Case(
            "strided inputs", {"new_tokens": 4, "cached_tokens": 10, "latent_dim": 12, "value_dim": 7}, layout="strided"
        ),
        Case("GLM-5.2 widths", {"new_tokens": 3, "cached_tokens": 97, "latent_dim": 512, "value_dim": 256}),
        # Values far larger than the latents, so that memory alone tells them apart.
        Case("wide values, a long cache", {"new_tokens": 3, "cached_tokens": 1201, "latent_dim": 16, "value_dim": 192}),
    ),
    hints=(
        "An output is a product of three things: weights, latents, matrix. Two of the brackets are possible. Which one "
        "holds something with a row for every cached token, and which only a row for every new one?",
        "A weighted sum of projected latents is the projection of the weighted sum. So make one mixed latent for each "
        "new token first, (new_tokens, latent_dim). Then w_v meets that, once.",
        "Fill the gaps:\n\n"
        "    mixed = ____  # (new_tokens, latent_dim)\n"
        "    return mixed @ ____  # (new_tokens, latent_dim) @ (latent_dim, value_dim)",
    ),
    budget=Budget(
        text="No value is ever built: no array of cached_tokens × value_dim, and the multiply-adds spent on w_v do not "
        "grow with cached_tokens.",
        case="wide values, a long cache",
        macs=most_macs,
        largest=largest,
        peak_values=peak_values,
        says="the outputs are right, but the shortest way spends less. Look for w_v where it meets cached tokens, and "
        "for an array of all terms of a sum: a matrix product adds them up as it goes",
        forbidden=(
            Forbidden(
                "values materialized",
                ("cached_tokens", "value_dim"),
                "the outputs are right, but a value was built for every cached token. Mix latents, and project the "
                "sums",
            ),
        ),
    ),
    mistakes=(
        Mistake(
            "transposed weight",
            "w_v is (latent_dim, value_dim), and here it is read as (value_dim, latent_dim). The sum runs over "
            "latent_dim",
            weight_reshaped,
        ),
        Mistake(
            "not projected",
            "these are the mixed latents, (new_tokens, latent_dim). One product with w_v is still to come",
            not_projected,
        ),
        Mistake(
            "weights ignored",
            "every cached token counts alike. Row s of weights says how much each of them counts for new token s",
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
        Mistake(
            "divided by the tokens",
            "the sum is divided by cached_tokens. The weights are shares already",
            divided_by_the_tokens,
        ),
        Mistake(
            "features first",
            "the axes are (value_dim, new_tokens). One row belongs to one new token",
            features_first,
        ),
    ),
    mutants=(
        Mutant(weight_reshaped, "transposed weight"),
        Mutant(not_projected, "not projected"),
        Mutant(all_tokens_alike, "weights ignored"),
        Mutant(softmax_once_more, "softmax once more"),
        Mutant(normalised_again, "normalised again"),
        Mutant(divided_by_the_tokens, "divided by the tokens"),
        Mutant(features_first, "features first"),
        Mutant(values_first, "values materialized"),
        Mutant(one_value_at_a_time, "too many multiply-adds"),
        Mutant(all_three_in_one_sum, "too many multiply-adds"),
        Mutant(all_terms_in_one_array, "too large an array"),
    ),
)
