"""Chapter 10: the indexer's score of every cached token for every query."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import normal
from ledger.reference import sparse
from ledger.reference.mla import narrow


def make(rng, dtype, queries, keys, heads, dim):
    return {
        "q_index": normal(rng, dtype, queries, heads, dim),
        "k_index": normal(rng, dtype, keys, dim),
        "weights": normal(rng, dtype, queries, heads),
    }


def make_toy(rng, dtype, **dims):
    return {
        "q_index": np.array([[(1, 0), (0, -1)]], dtype),
        "k_index": np.array([(4, 1), (-5, -2), (-1, 6)], dtype),
        "weights": np.array([(2, 3)], dtype),
    }


def make_below_zero(rng, dtype, **dims):
    """Every query points away from every key."""
    inputs = make(rng, dtype, **dims)
    return inputs | {"q_index": -np.abs(inputs["q_index"]), "k_index": np.abs(inputs["k_index"])}


def oracle(q_index, k_index, weights):
    return narrow(sparse.index_scores(q_index, k_index, weights), q_index, k_index, weights)


def relu_left_out(q_index, k_index, weights):
    return np.einsum("sh,sht->st", weights, q_index @ k_index.T)


def relu_after_the_sum(q_index, k_index, weights):
    return np.maximum(np.einsum("sh,sht->st", weights, q_index @ k_index.T), 0)


def weights_inside_the_relu(q_index, k_index, weights):
    return np.maximum(weights[:, :, None] * (q_index @ k_index.T), 0).sum(axis=1)


def relu_of_the_queries(q_index, k_index, weights):
    return np.einsum("sh,sht->st", weights, np.maximum(q_index, 0) @ k_index.T)


def magnitude_for_relu(q_index, k_index, weights):
    return np.einsum("sh,sht->st", weights, np.abs(q_index @ k_index.T))


def weights_left_out(q_index, k_index, weights):
    return np.maximum(q_index @ k_index.T, 0).sum(axis=1)


def weights_sum_to_1(q_index, k_index, weights):
    powers = np.exp(weights - weights.max(axis=1, keepdims=True, initial=-np.inf))
    return np.einsum("sh,sht->st", powers / powers.sum(axis=1, keepdims=True), np.maximum(q_index @ k_index.T, 0))


def mean_over_the_heads(q_index, k_index, weights):
    return np.einsum("sh,sht->st", weights, np.maximum(q_index @ k_index.T, 0)) / max(1, weights.shape[1])


def best_head_alone(q_index, k_index, weights):
    return (weights[:, :, None] * np.maximum(q_index @ k_index.T, 0)).max(axis=1)


def first_head_alone(q_index, k_index, weights):
    return weights[:, :1] * np.maximum(q_index[:, 0] @ k_index.T, 0)


def divided_by_the_root_of_dim(q_index, k_index, weights):
    return np.einsum("sh,sht->st", weights, np.maximum(q_index @ k_index.T, 0)) / np.sqrt(q_index.shape[2])


def softmax_over_the_keys(q_index, k_index, weights):
    scores = np.einsum("sh,sht->st", weights, np.maximum(q_index @ k_index.T, 0))
    powers = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(axis=1, keepdims=True)


def masked(q_index, k_index, weights):
    scores = np.einsum("sh,sht->st", weights, np.maximum(q_index @ k_index.T, 0))
    queries, keys = scores.shape
    later = np.arange(keys) > keys - queries + np.arange(queries)[:, None]
    return np.where(later, -np.inf, scores)


def weights_of_the_first_query(q_index, k_index, weights):
    return np.einsum("h,sht->st", weights[0], np.maximum(q_index @ k_index.T, 0))


def keys_first(q_index, k_index, weights):
    return np.einsum("sh,sht->ts", weights, np.maximum(q_index @ k_index.T, 0))


def heads_kept(q_index, k_index, weights):
    return weights[:, :, None] * np.maximum(q_index @ k_index.T, 0)


def sizes(queries, keys, heads, dim):
    return {"queries": queries, "keys": keys, "heads": heads, "dim": dim}


EXERCISE = Exercise(
    id="index_scores",
    chapter=10,
    order=1,
    title="a light score for every token",
    checks="the indexer's score of every key for every query",
    points=2,
    difficulty=1,
    minutes=8,
    make=make,
    oracle=oracle,
    cases=(
        Case("the toy by hand", sizes(1, 3, 2, 2), make=make_toy),
        Case("square sizes", sizes(4, 4, 4, 4)),
        Case("odd sizes", sizes(3, 11, 5, 7)),
        Case("one of everything", sizes(1, 1, 1, 1)),
        Case("no keys, float32", sizes(3, 0, 4, 5), dtype="float32"),
        Case("no queries", sizes(0, 6, 4, 5)),
        Case("no heads", sizes(2, 6, 0, 5)),
        Case("every product below zero", sizes(3, 6, 4, 5), make=make_below_zero),
        Case("float32", sizes(5, 9, 6, 12), dtype="float32"),
        Case("strided inputs", sizes(4, 13, 3, 8), layout="strided"),
        Case("DeepSeek-V3.2's indexer", sizes(2, 70, 64, 128)),
    ),
    hints=(
        "Go through the formula from the inside. What shape do the products of all queries, heads and keys have "
        "together? Which of its axes does the sum take away?",
        "One product with the keys gives (queries, heads, keys): @ treats the axes before the last two as a batch. Cut "
        "it off at 0 element by element, and only then let the weights and the sum over the heads come.",
        "Fill the gaps:\n\n"
        "    products = ____  # (queries, heads, keys), never below 0\n"
        '    return np.einsum("____", weights, products)',
    ),
    mistakes=(
        Mistake("ReLU left out", "products below 0 count as they are. They count 0", relu_left_out),
        Mistake(
            "ReLU after the sum",
            "the sum over the heads was cut off at 0. It is each head's product that is, before weights and sum",
            relu_after_the_sum,
        ),
        Mistake(
            "weights inside the ReLU",
            "the products were weighted before they were cut off at 0, so a head of negative weight counts 0 where it "
            "should count against the token. The weight comes behind the ReLU",
            weights_inside_the_relu,
        ),
        Mistake(
            "ReLU on the queries",
            "the queries were cut off at 0. It is the product with the key that is",
            relu_of_the_queries,
        ),
        Mistake("magnitudes for ReLU", "products below 0 count with their magnitude. They count 0", magnitude_for_relu),
        Mistake("weights left out", "the heads count alike. Each has a weight for each query", weights_left_out),
        Mistake(
            "weights that add to 1",
            "the weights went through a softmax. They are used as they are, of either sign",
            weights_sum_to_1,
        ),
        Mistake("mean over the heads", "this is the mean over the heads. The score is their sum", mean_over_the_heads),
        Mistake("best head alone", "only the best head counts. Add all of them up", best_head_alone),
        Mistake("first head alone", "only the first head counts. Add all of them up", first_head_alone),
        Mistake(
            "divided by √dim",
            "the scores are divided by √dim. The formula has no factor but the weights",
            divided_by_the_root_of_dim,
        ),
        Mistake(
            "softmax over the keys",
            "the scores went through a softmax. They are only compared, so they stay as they are",
            softmax_over_the_keys,
        ),
        Mistake("masked", "a causal mask was put in. Every query meets every key here", masked),
        Mistake(
            "weights of the first query",
            "the first query's weights were used for all. Each query has its own",
            weights_of_the_first_query,
        ),
    ),
    mutants=(
        Mutant(relu_left_out, "ReLU left out"),
        Mutant(relu_after_the_sum, "ReLU after the sum"),
        Mutant(weights_inside_the_relu, "weights inside the ReLU"),
        Mutant(relu_of_the_queries, "ReLU on the queries"),
        Mutant(magnitude_for_relu, "magnitudes for ReLU"),
        Mutant(weights_left_out, "weights left out"),
        Mutant(weights_sum_to_1, "weights that add to 1"),
        Mutant(mean_over_the_heads, "mean over the heads"),
        Mutant(best_head_alone, "best head alone"),
        Mutant(first_head_alone, "first head alone"),
        Mutant(divided_by_the_root_of_dim, "divided by √dim"),
        Mutant(softmax_over_the_keys, "softmax over the keys"),
        Mutant(masked, "masked"),
        Mutant(weights_of_the_first_query, "weights of the first query"),
        Mutant(keys_first, "axes 0 and 1 swapped"),
        Mutant(heads_kept, "has shape"),
    ),
)
