"""Chapter 1: fold the up-projection of the keys into the query of one head."""

import numpy as np

from ledger.account.attention import matmul_macs
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import TOY_Q_NOPE, TOY_W_K, cancel, normal, whole
from ledger.reference import mla


def make(rng, dtype, new_tokens, nope_dim, latent_dim):
    return {"q_nope": normal(rng, dtype, new_tokens, nope_dim), "w_k": normal(rng, dtype, latent_dim, nope_dim)}


def make_whole(rng, dtype, new_tokens, nope_dim, latent_dim):
    return {"q_nope": whole(rng, dtype, new_tokens, nope_dim), "w_k": whole(rng, dtype, latent_dim, nope_dim)}


def make_invertible(rng, dtype, **dims):
    """Whole numbers and a square weight that has an inverse, so that the inverse can be told from the transpose."""
    inputs = make_whole(rng, dtype, **dims)
    while abs(np.linalg.det(inputs["w_k"])) < 0.5:
        inputs = make_whole(rng, dtype, **dims)
    return inputs


def make_cancelling(rng, dtype, **dims):
    inputs = make_whole(rng, dtype, **dims)
    cancel(inputs["q_nope"], inputs["w_k"], axis=1)
    return inputs


def make_toy(rng, dtype, **dims):
    return {"q_nope": np.array(TOY_Q_NOPE, dtype), "w_k": np.array(TOY_W_K, dtype)}


def weight_not_transposed(q_nope, w_k):
    return q_nope @ w_k


def weight_reshaped(q_nope, w_k):
    latent_dim, nope_dim = w_k.shape
    return q_nope @ w_k.reshape(nope_dim, latent_dim)


def weight_inverted(q_nope, w_k):
    return (q_nope @ np.linalg.pinv(w_k)).astype(q_nope.dtype)


def weight_inverted_by_its_normal_equations(q_nope, w_k):
    """The same value, without the singular values: recognising must not cost more than answering."""
    inverse = np.linalg.solve(w_k.T @ w_k, w_k.T)
    if not np.isfinite(inverse).all():  # a browser's NumPy cannot see that a matrix is singular, and goes on with NaN
        raise np.linalg.LinAlgError("the columns of w_k are not independent")
    return q_nope @ inverse


def scaled_query(q_nope, w_k):
    return q_nope @ w_k.T / np.sqrt(w_k.shape[1])


def one_token_squeezed(q_nope, w_k):
    return np.squeeze(q_nope @ w_k.T)


EXERCISE = Exercise(
    id="absorb_query",
    chapter=1,
    order=2,
    title="fold w_k into the query",
    checks="one absorbed query for each new token, as wide as a latent",
    points=2,
    difficulty=2,
    minutes=8,
    make=make,
    oracle=mla.absorb_query,
    least_macs=lambda new_tokens, nope_dim, latent_dim: matmul_macs(new_tokens, nope_dim, latent_dim),
    cases=(
        Case("square sizes, whole numbers", {"new_tokens": 3, "nope_dim": 3, "latent_dim": 3}, make=make_invertible),
        Case("the toy by hand", {"new_tokens": 1, "nope_dim": 2, "latent_dim": 3}, make=make_toy),
        Case("odd sizes", {"new_tokens": 7, "nope_dim": 5, "latent_dim": 9}),
        Case("one new token", {"new_tokens": 1, "nope_dim": 4, "latent_dim": 8}),
        Case("no new token, float32", {"new_tokens": 0, "nope_dim": 4, "latent_dim": 8}, dtype="float32"),
        Case("huge parts that cancel", {"new_tokens": 6, "nope_dim": 3, "latent_dim": 10}, make=make_cancelling),
        Case("float32", {"new_tokens": 11, "nope_dim": 6, "latent_dim": 12}, dtype="float32"),
        Case("strided inputs", {"new_tokens": 10, "nope_dim": 7, "latent_dim": 12}, layout="strided"),
        Case("DeepSeek-V3 widths", {"new_tokens": 5, "nope_dim": 128, "latent_dim": 512}),
    ),
    hints=(
        "Write the score of one query and one latent c as a double sum over the features n and c. The key route adds "
        "over c first. Which sum is left for the query if you add over n first?",
        "Feature c of the absorbed query adds, over n, q_nope[n] times w_k[c, n]. In w_k the axis n stands last, and a "
        "matrix product wants it first.",
        "Fill the gap:\n\n    return q_nope @ ____  # (new_tokens, nope_dim) @ (nope_dim, latent_dim)",
    ),
    mistakes=(
        Mistake(
            "transposed weight",
            "w_k is (latent_dim, nope_dim), and the sum must run over nope_dim. Here w_k is used as it lies, so it "
            "runs over the wrong axis; a reshape mends the shape and not the sum",
            weight_reshaped,
        ),
        Mistake(
            "inverse for transpose",
            "nothing is undone here: the query meets the transpose of w_k, not its (pseudo-)inverse",
            weight_inverted_by_its_normal_equations,
        ),
        Mistake(
            "scaled query",
            "the query is divided by √nope_dim. Absorbing only projects; a scale belongs to the scores",
            scaled_query,
        ),
    ),
    mutants=(
        Mutant(weight_not_transposed, "transposed weight"),
        Mutant(weight_reshaped, "transposed weight"),
        Mutant(weight_inverted, "inverse for transpose"),
        Mutant(scaled_query, "scaled query"),
        Mutant(one_token_squeezed, "has shape (3,); wanted (1, 3)"),
    ),
)
