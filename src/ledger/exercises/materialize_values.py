"""Chapter 3: make the values of one head from the cached latents."""

import numpy as np

from ledger.account.attention import matmul_macs
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import TOY_LATENTS, TOY_W_V, cancel, normal, whole
from ledger.reference import values


def make(rng, dtype, cached_tokens, latent_dim, value_dim):
    return {"latents": normal(rng, dtype, cached_tokens, latent_dim), "w_v": normal(rng, dtype, latent_dim, value_dim)}


def make_whole(rng, dtype, cached_tokens, latent_dim, value_dim):
    return {"latents": whole(rng, dtype, cached_tokens, latent_dim), "w_v": whole(rng, dtype, latent_dim, value_dim)}


def make_cancelling(rng, dtype, **dims):
    inputs = make_whole(rng, dtype, **dims)
    cancel(inputs["latents"], inputs["w_v"], axis=0)
    return inputs


def make_toy(rng, dtype, **dims):
    return {"latents": np.array(TOY_LATENTS, dtype), "w_v": np.array(TOY_W_V, dtype)}


def weight_the_other_way_round(latents, w_v):
    return latents @ w_v.T


def weight_read_as_value_by_latent(latents, w_v):
    latent_dim, value_dim = w_v.shape
    return latents @ w_v.reshape(value_dim, latent_dim).T


def averaged_over_the_cache(latents, w_v):
    mean = (latents @ w_v).sum(axis=0, keepdims=True) / max(len(latents), 1)
    return np.repeat(mean, len(latents), axis=0)


def features_first(latents, w_v):
    return (latents @ w_v).T


def one_token_squeezed(latents, w_v):
    return np.squeeze(latents @ w_v)


def float64_whatever_comes_in(latents, w_v):
    return latents.astype(float) @ w_v.astype(float)


EXERCISE = Exercise(
    id="materialize_values",
    chapter=3,
    order=2,
    title="values from latents",
    checks="one value for each cached latent: the latent times w_v",
    points=1,
    difficulty=1,
    minutes=4,
    make=make,
    oracle=values.materialize_values,
    least_macs=lambda cached_tokens, latent_dim, value_dim: matmul_macs(cached_tokens, latent_dim, value_dim),
    cases=(
        Case("square sizes, whole numbers", {"cached_tokens": 3, "latent_dim": 3, "value_dim": 3}, make=make_whole),
        Case("the toy by hand", {"cached_tokens": 3, "latent_dim": 3, "value_dim": 2}, make=make_toy),
        Case("odd sizes", {"cached_tokens": 7, "latent_dim": 9, "value_dim": 5}),
        Case("values wider than latents", {"cached_tokens": 6, "latent_dim": 4, "value_dim": 11}),
        Case("one cached token", {"cached_tokens": 1, "latent_dim": 8, "value_dim": 4}),
        Case("empty cache, float32", {"cached_tokens": 0, "latent_dim": 8, "value_dim": 4}, dtype="float32"),
        Case("huge parts that cancel", {"cached_tokens": 6, "latent_dim": 10, "value_dim": 3}, make=make_cancelling),
        Case("float32", {"cached_tokens": 11, "latent_dim": 12, "value_dim": 6}, dtype="float32"),
        Case("strided inputs", {"cached_tokens": 10, "latent_dim": 12, "value_dim": 7}, layout="strided"),
        Case("GLM-5.2 widths", {"cached_tokens": 37, "latent_dim": 512, "value_dim": 256}),
    ),
    hints=(
        "You have done this before, under another name: a value is made of a latent as a key is. Only the matrix is "
        "another, and so is the width that comes out.",
        "One product takes every row of the latents at once. Check that the inner axes meet: (cached_tokens, "
        "latent_dim) times (latent_dim, value_dim).",
        "Fill the gap:\n\n    return ____ @ w_v  # (cached_tokens, latent_dim) @ (latent_dim, value_dim)",
    ),
    mistakes=(
        Mistake(
            "transposed weight",
            "w_v is (latent_dim, value_dim), and here it is read as (value_dim, latent_dim). The sum runs over "
            "latent_dim",
            weight_read_as_value_by_latent,
        ),
        Mistake(
            "averaged over the cache",
            "every token got the mean of all values. The weighting comes later: each cached token keeps its own value",
            averaged_over_the_cache,
        ),
        Mistake(
            "features first",
            "the axes are (value_dim, cached_tokens). One row belongs to one cached token",
            features_first,
        ),
    ),
    mutants=(
        Mutant(weight_the_other_way_round, "transposed weight"),
        Mutant(weight_read_as_value_by_latent, "transposed weight"),
        Mutant(averaged_over_the_cache, "averaged over the cache"),
        Mutant(features_first, "features first"),
        Mutant(one_token_squeezed, "has shape (4,); wanted (1, 4)"),
        Mutant(float64_whatever_comes_in, "dtype float64; wanted float32"),
    ),
)
