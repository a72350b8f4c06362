"""Chapter 2: the scores of every head against the one set of cached latents."""

import numpy as np

from ledger.account.attention import shared_latent_scores_macs
from ledger.exercises.base import Budget, Case, Exercise, Forbidden, Mistake, Mutant
from ledger.exercises.making import TOY_LATENTS, cancel, normal, whole
from ledger.reference import mla


def make(rng, dtype, new_tokens, cached_tokens, num_heads, latent_dim):
    return {
        "q_absorbed": normal(rng, dtype, new_tokens, num_heads, latent_dim),
        "latents": normal(rng, dtype, cached_tokens, latent_dim),
    }


def make_whole(rng, dtype, new_tokens, cached_tokens, num_heads, latent_dim):
    return {
        "q_absorbed": whole(rng, dtype, new_tokens, num_heads, latent_dim),
        "latents": whole(rng, dtype, cached_tokens, latent_dim),
    }


def make_cancelling(rng, dtype, **dims):
    inputs = make_whole(rng, dtype, **dims)
    cancel(inputs["latents"], inputs["q_absorbed"], axis=2)
    return inputs


def make_toy(rng, dtype, **dims):
    """The absorbed queries of two heads: the toy's own, and a second one."""
    return {"q_absorbed": np.array([[(1, 0, 1), (1, 1, 3)]], dtype), "latents": np.array(TOY_LATENTS, dtype)}


def most_macs(new_tokens, cached_tokens, num_heads, latent_dim):
    """One product, and one elementwise step over the scores."""
    sizes = new_tokens, cached_tokens, num_heads, latent_dim
    return shared_latent_scores_macs(*sizes) + num_heads * new_tokens * cached_tokens


def largest(new_tokens, cached_tokens, num_heads, latent_dim):
    """A copy of either input, or the scores."""
    return max(cached_tokens * latent_dim, new_tokens * num_heads * max(latent_dim, cached_tokens))


def peak_values(new_tokens, cached_tokens, num_heads, latent_dim):
    """The queries in another order of axes, the scores and a copy of them, and one copy of the latents."""
    return num_heads * new_tokens * (latent_dim + 2 * cached_tokens) + cached_tokens * latent_dim


def tokens_before_heads(q_absorbed, latents):
    return q_absorbed @ latents.T


def queries_reshaped(q_absorbed, latents):
    new_tokens, num_heads, latent_dim = q_absorbed.shape
    return q_absorbed.reshape(num_heads, new_tokens, latent_dim) @ latents.T


def heads_summed(q_absorbed, latents):
    return q_absorbed.sum(axis=1) @ latents.T


def scaled_scores(q_absorbed, latents):
    return q_absorbed.swapaxes(0, 1) @ latents.T / np.sqrt(q_absorbed.shape[2])


def attention_weights(q_absorbed, latents):
    scores = q_absorbed.swapaxes(0, 1) @ latents.T
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    return weights / weights.sum(-1, keepdims=True)


def latents_repeated(q_absorbed, latents):
    for_each_head = np.repeat(latents[None], q_absorbed.shape[1], axis=0)
    return q_absorbed.swapaxes(0, 1) @ for_each_head.swapaxes(1, 2)


def products_then_sum(q_absorbed, latents):
    by_head = q_absorbed.swapaxes(0, 1)
    return (by_head[:, :, None] * latents).sum(axis=-1)


EXERCISE = Exercise(
    id="scores_shared_latent",
    chapter=2,
    order=3,
    title="all heads against one latent",
    checks="raw scores of every head against the same cached latents",
    points=3,
    difficulty=2,
    minutes=10,
    make=make,
    oracle=mla.scores_shared_latent,
    least_macs=shared_latent_scores_macs,
    cases=(
        Case(
            "square sizes, whole numbers",
            {"new_tokens": 3, "cached_tokens": 3, "num_heads": 3, "latent_dim": 3},
            make=make_whole,
        ),
        Case(
            "the toy by hand, two heads",
            {"new_tokens": 1, "cached_tokens": 3, "num_heads": 2, "latent_dim": 3},
            make=make_toy,
        ),
        Case("odd sizes", {"new_tokens": 5, "cached_tokens": 7, "num_heads": 3, "latent_dim": 9}),
        Case(
            "one of everything but the latent",
            {"new_tokens": 1, "cached_tokens": 1, "num_heads": 1, "latent_dim": 6},
        ),
        Case(
            "empty cache, float32",
            {"new_tokens": 2, "cached_tokens": 0, "num_heads": 3, "latent_dim": 6},
            dtype="float32",
        ),
        Case(
            "huge parts that cancel",
            {"new_tokens": 2, "cached_tokens": 6, "num_heads": 3, "latent_dim": 10},
            make=make_cancelling,
        ),
        Case("float32", {"new_tokens": 3, "cached_tokens": 11, "num_heads": 2, "latent_dim": 12}, dtype="float32"),
        Case(
            "strided inputs",
            {"new_tokens": 3, "cached_tokens": 6, "num_heads": 4, "latent_dim": 10},
            layout="strided",
        ),
        Case(
            "DeepSeek-V3 widths, a long cache",
            {"new_tokens": 3, "cached_tokens": 301, "num_heads": 4, "latent_dim": 512},
        ),
    ),
    hints=(
        "Fix one head: its queries are (new_tokens, latent_dim), and their scores are the product you know. What "
        "changes from head to head, and what stays the same?",
        "Only the queries have a head axis. `@` lines up leading axes by broadcasting, so a plain matrix on the right "
        "is used for every head without being copied. The result wants the head axis in front.",
        "Fill the gaps:\n\n"
        "    q_by_head = ____  # (num_heads, new_tokens, latent_dim)\n"
        "    return q_by_head @ ____  # (num_heads, new_tokens, cached_tokens)",
    ),
    budget=Budget(
        text="No array of cached_tokens × num_heads × latent_dim: one set of latents serves all heads as it is, at "
        "latent_dim multiply-adds a score.",
        case="DeepSeek-V3 widths, a long cache",
        macs=most_macs,
        largest=largest,
        peak_values=peak_values,
        says="the scores are right, but latent_dim multiply-adds a score are enough",
        forbidden=(
            Forbidden(
                "every product kept before the sum",
                ("new_tokens", "cached_tokens", "num_heads", "latent_dim"),
                "the scores are right, but the latents were spread over all heads and tokens before the sum. A matrix "
                "product adds as it goes",
            ),
            Forbidden(
                "latents expanded to every head",
                ("cached_tokens", "num_heads", "latent_dim"),
                "the scores are right, but the latents were copied for every head. The heads share one set: let it "
                "broadcast",
            ),
        ),
    ),
    mistakes=(
        Mistake(
            "heads and tokens not swapped",
            "the queries were reshaped, or used as they lie, where their token and head axes must be swapped",
            queries_reshaped,
        ),
        Mistake(
            "tokens before heads",
            "the axes are (new_tokens, num_heads, cached_tokens). The head axis comes first",
            tokens_before_heads,
        ),
        Mistake(
            "heads summed",
            "the heads' queries were added before scoring. Every head has scores of its own",
            heads_summed,
        ),
        Mistake(
            "scaled scores",
            "the scores are divided by √latent_dim. Raw scores are asked for, and the scale would not be this one",
            scaled_scores,
        ),
        Mistake(
            "softmax applied",
            "these are attention weights: every row adds to 1. Raw scores are asked for",
            attention_weights,
        ),
    ),
    mutants=(
        Mutant(tokens_before_heads, "tokens before heads"),
        Mutant(queries_reshaped, "heads and tokens not swapped"),
        Mutant(heads_summed, "heads summed"),
        Mutant(scaled_scores, "scaled scores"),
        Mutant(attention_weights, "softmax applied"),
        Mutant(latents_repeated, "latents expanded to every head"),
        Mutant(products_then_sum, "every product kept before the sum"),
    ),
)
