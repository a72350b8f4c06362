"""Chapter 1: make the keys of one head from the cached latents."""

import numpy as np

from ledger.account.attention import matmul_macs
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import TOY_LATENTS, TOY_W_K, cancel, normal, whole
from ledger.reference import mla


def make(rng, dtype, cached_tokens, latent_dim, nope_dim):
    return {"latents": normal(rng, dtype, cached_tokens, latent_dim), "w_k": normal(rng, dtype, latent_dim, nope_dim)}


def make_whole(rng, dtype, cached_tokens, latent_dim, nope_dim):
    return {"latents": whole(rng, dtype, cached_tokens, latent_dim), "w_k": whole(rng, dtype, latent_dim, nope_dim)}


def make_cancelling(rng, dtype, **dims):
    inputs = make_whole(rng, dtype, **dims)
    cancel(inputs["latents"], inputs["w_k"], axis=0)
    return inputs


def make_toy(rng, dtype, **dims):
    return {"latents": np.array(TOY_LATENTS, dtype), "w_k": np.array(TOY_W_K, dtype)}


def weight_the_other_way_round(latents, w_k):
    return latents @ w_k.T


def weight_read_as_nope_by_latent(latents, w_k):
    latent_dim, nope_dim = w_k.shape
    return latents @ w_k.reshape(nope_dim, latent_dim).T


def scaled_keys(latents, w_k):
    return latents @ w_k / np.sqrt(w_k.shape[1])


def one_token_squeezed(latents, w_k):
    return np.squeeze(latents @ w_k)


def float64_whatever_comes_in(latents, w_k):
    return latents.astype(float) @ w_k.astype(float)


EXERCISE = Exercise(
    id="up_project_keys",
    chapter=1,
    order=1,
    title="keys from latents",
    checks="one key for each cached latent: the latent times w_k",
    points=1,
    difficulty=1,
    minutes=5,
    make=make,
    oracle=mla.up_project_keys,
    least_macs=lambda cached_tokens, latent_dim, nope_dim: matmul_macs(cached_tokens, latent_dim, nope_dim),
    cases=(
        Case("square sizes, whole numbers", {"cached_tokens": 3, "latent_dim": 3, "nope_dim": 3}, make=make_whole),
        Case("the toy by hand", {"cached_tokens": 3, "latent_dim": 3, "nope_dim": 2}, make=make_toy),
        Case("odd sizes", {"cached_tokens": 7, "latent_dim": 9, "nope_dim": 5}),
        Case("one cached token", {"cached_tokens": 1, "latent_dim": 8, "nope_dim": 4}),
        Case("empty cache, float32", {"cached_tokens": 0, "latent_dim": 8, "nope_dim": 4}, dtype="float32"),
        Case("huge parts that cancel", {"cached_tokens": 6, "latent_dim": 10, "nope_dim": 3}, make=make_cancelling),
        Case("float32", {"cached_tokens": 11, "latent_dim": 12, "nope_dim": 6}, dtype="float32"),
        Case("strided inputs", {"cached_tokens": 10, "latent_dim": 12, "nope_dim": 7}, layout="strided"),
        Case("DeepSeek-V3 widths", {"cached_tokens": 37, "latent_dim": 512, "nope_dim": 128}),
    ),
    hints=(
        "Start with one token. Its latent is a vector of latent_dim numbers; w_k turns it into nope_dim numbers. Which "
        "of the two axes of w_k is summed over?",
        "All tokens go through the same weight, so no loop is needed: one matrix product takes every row of latents at "
        "once. In (cached_tokens, latent_dim) times (latent_dim, nope_dim) the inner axes already meet.",
        "Fill the gap:\n\n    return latents @ ____  # (cached_tokens, latent_dim) @ (latent_dim, nope_dim)",
    ),
    mistakes=(
        Mistake(
            "transposed weight",
            "w_k is (latent_dim, nope_dim), and here it is read as (nope_dim, latent_dim). The sum runs over "
            "latent_dim",
            weight_read_as_nope_by_latent,
        ),
        Mistake(
            "scaled keys",
            "the keys are divided by √nope_dim. A key is only projected; a scale belongs to the scores",
            scaled_keys,
        ),
    ),
    mutants=(
        Mutant(weight_the_other_way_round, "transposed weight"),
        Mutant(weight_read_as_nope_by_latent, "transposed weight"),
        Mutant(scaled_keys, "scaled keys"),
        Mutant(one_token_squeezed, "has shape (4,); wanted (1, 4)"),
        Mutant(float64_whatever_comes_in, "dtype float64; wanted float32"),
    ),
)
