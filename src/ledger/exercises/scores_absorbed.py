"""Chapter 1: the scores of one head without building a key."""

import numpy as np

from ledger.account.attention import key_path_absorb
from ledger.exercises.base import Budget, Case, Exercise, Forbidden, Mistake, Mutant
from ledger.exercises.making import TOY_LATENTS, TOY_Q_NOPE, TOY_W_K, cancel, normal, whole
from ledger.reference import mla


def make(rng, dtype, new_tokens, cached_tokens, nope_dim, latent_dim):
    return {
        "q_nope": normal(rng, dtype, new_tokens, nope_dim),
        "w_k": normal(rng, dtype, latent_dim, nope_dim),
        "latents": normal(rng, dtype, cached_tokens, latent_dim),
    }


def make_whole(rng, dtype, new_tokens, cached_tokens, nope_dim, latent_dim):
    return {
        "q_nope": whole(rng, dtype, new_tokens, nope_dim),
        "w_k": whole(rng, dtype, latent_dim, nope_dim),
        "latents": whole(rng, dtype, cached_tokens, latent_dim),
    }


def make_cancelling(rng, dtype, **dims):
    inputs = make_whole(rng, dtype, **dims)
    cancel(inputs["latents"], inputs["w_k"], axis=0)
    return inputs


def make_toy(rng, dtype, **dims):
    toy = {"q_nope": TOY_Q_NOPE, "w_k": TOY_W_K, "latents": TOY_LATENTS}
    return {name: np.array(rows, dtype) for name, rows in toy.items()}


def least_macs(new_tokens, cached_tokens, nope_dim, latent_dim):
    return key_path_absorb(new_tokens, cached_tokens, latent_dim, nope_dim).total


def most_macs(new_tokens, cached_tokens, nope_dim, latent_dim):
    """The two products, and one elementwise step over the scores."""
    return least_macs(new_tokens, cached_tokens, nope_dim, latent_dim) + new_tokens * cached_tokens


def largest(new_tokens, cached_tokens, nope_dim, latent_dim):
    """A copy of any input, or the scores."""
    return max(cached_tokens * latent_dim, latent_dim * nope_dim, new_tokens * max(cached_tokens, latent_dim, nope_dim))


def peak_values(new_tokens, cached_tokens, nope_dim, latent_dim):
    """The absorbed query and the scores, each with a copy; a copy of w_k; the latents as Python's floats, which take
    four times the room."""
    return 2 * new_tokens * (latent_dim + cached_tokens) + latent_dim * nope_dim + 5 * cached_tokens * latent_dim


def weight_not_transposed(q_nope, w_k, latents):
    return q_nope @ w_k @ latents.T


def weight_reshaped(q_nope, w_k, latents):
    latent_dim, nope_dim = w_k.shape
    return q_nope @ w_k.reshape(nope_dim, latent_dim) @ latents.T


def scaled_scores(q_nope, w_k, latents):
    return q_nope @ w_k.T @ latents.T / np.sqrt(w_k.shape[1])


def attention_weights(q_nope, w_k, latents):
    scores = q_nope @ w_k.T @ latents.T
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    return weights / weights.sum(-1, keepdims=True)


def cached_tokens_first(q_nope, w_k, latents):
    return latents @ (q_nope @ w_k.T).T


def keys_first(q_nope, w_k, latents):
    return q_nope @ (latents @ w_k).T


def one_key_at_a_time(q_nope, w_k, latents):
    scores = np.zeros((len(q_nope), len(latents)), q_nope.dtype)
    for token, latent in enumerate(latents):
        scores[:, token] = q_nope @ (latent @ w_k)
    return scores


def all_three_in_one_sum(q_nope, w_k, latents):
    return np.einsum("sn,cn,tc->st", q_nope, w_k, latents)


EXERCISE = Exercise(
    id="scores_absorbed",
    chapter=1,
    order=3,
    title="scores without keys",
    checks="raw scores of each new token against each cached latent, without building a key",
    points=3,
    difficulty=2,
    minutes=10,
    make=make,
    oracle=mla.scores_absorbed,
    least_macs=least_macs,
    cases=(
        Case(
            "square sizes, whole numbers",
            {"new_tokens": 3, "cached_tokens": 3, "nope_dim": 3, "latent_dim": 3},
            make=make_whole,
        ),
        Case(
            "the toy by hand",
            {"new_tokens": 1, "cached_tokens": 3, "nope_dim": 2, "latent_dim": 3},
            make=make_toy,
        ),
        Case("odd sizes", {"new_tokens": 5, "cached_tokens": 7, "nope_dim": 3, "latent_dim": 9}),
        Case("one new token, one cached", {"new_tokens": 1, "cached_tokens": 1, "nope_dim": 4, "latent_dim": 6}),
        Case(
            "empty cache, float32",
            {"new_tokens": 2, "cached_tokens": 0, "nope_dim": 4, "latent_dim": 6},
            dtype="float32",
        ),
        Case(
            "huge parts that cancel",
            {"new_tokens": 3, "cached_tokens": 6, "nope_dim": 4, "latent_dim": 10},
            make=make_cancelling,
        ),
        Case("float32", {"new_tokens": 4, "cached_tokens": 11, "nope_dim": 6, "latent_dim": 12}, dtype="float32"),
        Case(
            "strided inputs", {"new_tokens": 4, "cached_tokens": 10, "nope_dim": 7, "latent_dim": 12}, layout="strided"
        ),
        Case("DeepSeek-V3 widths", {"new_tokens": 3, "cached_tokens": 149, "nope_dim": 128, "latent_dim": 512}),
        # Keys far larger than the latents, so that memory alone tells them apart.
        Case("wide keys, a long cache", {"new_tokens": 3, "cached_tokens": 1201, "nope_dim": 192, "latent_dim": 16}),
    ),
    hints=(
        "A score is a product of three things: query, weight, latent. You may bracket it on the left or on the right. "
        "Which bracket holds something small that has nothing to do with the cache?",
        "First make the absorbed queries, (new_tokens, latent_dim), as in the exercise before. A latent is then the "
        "key: each score is the absorbed query times one latent.",
        "Fill the gaps:\n\n"
        "    q_absorbed = ____  # (new_tokens, latent_dim), from q_nope and w_k alone\n"
        "    return q_absorbed @ ____  # (new_tokens, latent_dim) @ (latent_dim, cached_tokens)",
    ),
    budget=Budget(
        text="No key is ever built: no array of cached_tokens × nope_dim, and the multiply-adds spent on w_k do not "
        "grow with cached_tokens.",
        case="wide keys, a long cache",
        macs=most_macs,
        largest=largest,
        peak_values=peak_values,
        says="the scores are right, but the shortest way spends less. Apply w_k to the queries, once, and to no cached "
        "token; then one product with the latents is enough",
        forbidden=(
            Forbidden(
                "keys materialized",
                ("cached_tokens", "nope_dim"),
                "the scores are right, but a key was built for every cached token. Fold w_k into the query instead",
            ),
        ),
    ),
    mistakes=(
        Mistake(
            "transposed weight",
            "w_k is (latent_dim, nope_dim), and the query must meet it along nope_dim. Here w_k is used as it lies, so "
            "the sum runs over the wrong axis",
            weight_reshaped,
        ),
        Mistake(
            "scaled scores",
            "the scores are divided by √nope_dim. Raw scores are asked for; the softmax scale comes later",
            scaled_scores,
        ),
        Mistake(
            "softmax applied",
            "these are attention weights: every row adds to 1. Raw scores are asked for",
            attention_weights,
        ),
        Mistake(
            "cached tokens first",
            "the axes are (cached_tokens, new_tokens). One row belongs to one new token",
            cached_tokens_first,
        ),
    ),
    mutants=(
        Mutant(weight_not_transposed, "transposed weight"),
        Mutant(weight_reshaped, "transposed weight"),
        Mutant(scaled_scores, "scaled scores"),
        Mutant(attention_weights, "softmax applied"),
        Mutant(cached_tokens_first, "cached tokens first"),
        Mutant(keys_first, "keys materialized"),
        Mutant(one_key_at_a_time, "too many multiply-adds"),
        Mutant(all_three_in_one_sum, "too many multiply-adds"),
    ),
)
