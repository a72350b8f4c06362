"""Chapter 3: the whole content path of all heads, in latent space."""

import numpy as np

from ledger.account.values import content_path_absorb
from ledger.exercises.base import Budget, Case, Exercise, Forbidden, Mistake, Mutant
from ledger.exercises.making import TOY_HEAD_1, TOY_LATENTS, TOY_Q_NOPE, TOY_W_K, TOY_W_V, normal, whole
from ledger.reference import values

#: The rows of the case with scores far apart: how far each rises (or falls), and from where.
RISES, FEET = (1600, 800, 10, -1600), (-800, -770, -800, 800)


def make(rng, dtype, new_tokens, cached_tokens, num_heads, nope_dim, latent_dim, value_dim):
    return {
        "q_nope": normal(rng, dtype, new_tokens, num_heads, nope_dim),
        "w_kc": normal(rng, dtype, num_heads, nope_dim, latent_dim) / np.asarray(max(latent_dim, 1) ** 0.5, dtype),
        "latents": normal(rng, dtype, cached_tokens, latent_dim),
        "w_vc": normal(rng, dtype, num_heads, latent_dim, value_dim),
        "scale": float(rng.uniform(0.2, 0.3)),
    }


def make_whole(rng, dtype, new_tokens, cached_tokens, num_heads, nope_dim, latent_dim, value_dim):
    return {
        "q_nope": whole(rng, dtype, new_tokens, num_heads, nope_dim),
        "w_kc": whole(rng, dtype, num_heads, nope_dim, latent_dim),
        "latents": whole(rng, dtype, cached_tokens, latent_dim),
        "w_vc": whole(rng, dtype, num_heads, latent_dim, value_dim),
        "scale": 1 / 16,
    }


def make_far_apart(rng, dtype, **dims):
    """Scaled scores between 800 and -800, which no exponential survives, each row on a level of its own.

    A row rises by as much as its place in RISES says, from the number in FEET: its two largest scores are at most 1
    apart, and where it rises they stand in the middle. The exponential of a score near -790 is 0, not a small number.
    """
    inputs = make(rng, dtype, **dims)
    tokens, heads, cached = dims["new_tokens"], dims["num_heads"], dims["cached_tokens"]
    places = np.sort(rng.uniform(0.05, 0.3, cached))
    places[[0, 1, cached // 2, cached // 2 + 1]] = 0, 1 / 1600, 1, 1 - 1 / 1600
    rows = (np.arange(tokens)[:, None] + np.arange(heads)) % len(RISES)
    inputs["q_nope"][...] = inputs["w_kc"][...] = 0
    inputs["w_kc"][:, [0, 1], [0, 1]] = 1
    inputs["q_nope"][..., 0] = np.take(RISES, rows) / inputs["scale"]
    inputs["q_nope"][..., 1] = np.take(FEET, rows) / inputs["scale"]
    inputs["latents"][:, 0], inputs["latents"][:, 1] = places, 1
    return inputs


def make_toy(rng, dtype, **dims):
    """Head 0 has the toy's scores 1, 0, 1 and weights of 0.4, 0.2, 0.4; head 1 has scores 1, 1, 3 and 1/6, 1/6, 2/3."""
    return {
        "q_nope": np.array([[*TOY_Q_NOPE, (1, 1)]], dtype),
        "w_kc": np.array([np.transpose(TOY_W_K), TOY_HEAD_1], dtype),
        "latents": np.array(TOY_LATENTS, dtype),
        "w_vc": np.array([TOY_W_V, ((6, 0), (6, 0), (0, 3))], dtype),
        "scale": float(np.log(2)),
    }


def least_macs(new_tokens, cached_tokens, num_heads, nope_dim, latent_dim, value_dim):
    """The four products; a scale that is divided by takes no multiplication."""
    return content_path_absorb(new_tokens, cached_tokens, num_heads, nope_dim, latent_dim, value_dim).total


def most_macs(new_tokens, cached_tokens, num_heads, nope_dim, latent_dim, value_dim):
    """The same, the scale on the queries, two elementwise steps over the scores and one over the outputs."""
    rows = new_tokens * num_heads
    sizes = new_tokens, cached_tokens, num_heads, nope_dim, latent_dim, value_dim
    return least_macs(*sizes) + rows * (nope_dim + 2 * cached_tokens + value_dim)


def largest(new_tokens, cached_tokens, num_heads, nope_dim, latent_dim, value_dim):
    """A copy of any input, or anything with a row for each new token and head."""
    rows = new_tokens * num_heads
    matrices = num_heads * latent_dim * max(nope_dim, value_dim)
    return max(cached_tokens * latent_dim, matrices, rows * max(cached_tokens, latent_dim, nope_dim, value_dim))


def peak_values(new_tokens, cached_tokens, num_heads, nope_dim, latent_dim, value_dim):
    """Queries, scores, mixed latents and outputs, each with two copies, and a copy of every input."""
    rows = new_tokens * num_heads
    made = 3 * rows * (nope_dim + cached_tokens + 2 * latent_dim + value_dim)
    return made + cached_tokens * latent_dim + num_heads * latent_dim * (nope_dim + value_dim)


def scale_forgotten(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ latents @ w_vc).swapaxes(0, 1)


def scale_twice(q_nope, w_kc, latents, w_vc, scale):
    scores = (scale * q_nope).swapaxes(0, 1) @ w_kc @ latents.T * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ latents @ w_vc).swapaxes(0, 1)


def scale_from_the_nope_width(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T / np.sqrt(w_kc.shape[1])
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ latents @ w_vc).swapaxes(0, 1)


def scale_from_the_latent_width(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T / np.sqrt(w_kc.shape[2])
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ latents @ w_vc).swapaxes(0, 1)


def scale_after_the_softmax(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = scale * weights / weights.sum(-1, keepdims=True)
    return (weights @ latents @ w_vc).swapaxes(0, 1)


def divided_by_the_scale(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T / scale
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ latents @ w_vc).swapaxes(0, 1)


def softmax_forgotten(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale
    return (scores @ latents @ w_vc).swapaxes(0, 1)


def not_normalised(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    return (weights @ latents @ w_vc).swapaxes(0, 1)


def softmax_over_the_new_tokens(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale
    weights = np.exp(scores - scores.max(-2, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-2, keepdims=True)
    return (weights @ latents @ w_vc).swapaxes(0, 1)


def softmax_over_the_heads(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale
    weights = np.exp(scores - scores.max(0, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(0, keepdims=True)
    return (weights @ latents @ w_vc).swapaxes(0, 1)


def softmax_over_everything(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale
    weights = np.exp(scores - scores.max(initial=-np.inf))
    weights = weights / weights.sum()
    return (weights @ latents @ w_vc).swapaxes(0, 1)


def causal(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale
    seen = np.tri(*scores.shape[1:], k=max(scores.shape[2] - scores.shape[1], 0), dtype=bool)
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ latents @ w_vc).swapaxes(0, 1)


def heads_first(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return weights @ latents @ w_vc


def mixed_latents_only(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ latents).swapaxes(0, 1)


def one_value_matrix_for_all_heads(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ latents @ w_vc[0]).swapaxes(0, 1)


def one_key_matrix_for_all_heads(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc[0] @ latents.T * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ latents @ w_vc).swapaxes(0, 1)


def result_reshaped(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ latents @ w_vc).reshape(len(q_nope), len(w_vc), w_vc.shape[2])


def queries_reshaped(q_nope, w_kc, latents, w_vc, scale):
    num_heads, nope_dim, _ = w_kc.shape
    scores = q_nope.reshape(num_heads, len(q_nope), nope_dim) @ w_kc @ latents.T * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ latents @ w_vc).swapaxes(0, 1)


def maximum_not_subtracted(q_nope, w_kc, latents, w_vc, scale):
    with np.errstate(all="ignore"):
        weights = np.exp(q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale)
        weights = weights / weights.sum(-1, keepdims=True)
        return (weights @ latents @ w_vc).swapaxes(0, 1)


def maximum_of_at_least_0(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True, initial=0))
        weights = weights / weights.sum(-1, keepdims=True)
        return (weights @ latents @ w_vc).swapaxes(0, 1)


def one_maximum_for_a_head(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max((1, 2), keepdims=True, initial=-np.inf))
        weights = weights / weights.sum(-1, keepdims=True)
        return (weights @ latents @ w_vc).swapaxes(0, 1)


def one_maximum_for_all_rows(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(initial=-np.inf))
        weights = weights / weights.sum(-1, keepdims=True)
        return (weights @ latents @ w_vc).swapaxes(0, 1)


def first_score_subtracted(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale
    with np.errstate(all="ignore"):
        weights = np.exp(scores - scores[..., :1])
        weights = weights / weights.sum(-1, keepdims=True)
        return (weights @ latents @ w_vc).swapaxes(0, 1)


def mean_subtracted(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale
    with np.errstate(all="ignore"):
        weights = np.exp(scores - scores.sum(-1, keepdims=True) / max(len(latents), 1))
        weights = weights / weights.sum(-1, keepdims=True)
        return (weights @ latents @ w_vc).swapaxes(0, 1)


def scores_clipped(q_nope, w_kc, latents, w_vc, scale):
    weights = np.exp((q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale).clip(-700, 700))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ latents @ w_vc).swapaxes(0, 1)


def keys_built(q_nope, w_kc, latents, w_vc, scale):
    keys = latents @ w_kc.swapaxes(1, 2)
    scores = q_nope.swapaxes(0, 1) @ keys.swapaxes(1, 2) * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ latents @ w_vc).swapaxes(0, 1)


def values_built(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ w_kc @ latents.T * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ (latents @ w_vc)).swapaxes(0, 1)


def one_key_at_a_time(q_nope, w_kc, latents, w_vc, scale):
    scores = np.zeros((len(w_kc), len(q_nope), len(latents)), q_nope.dtype)
    for head in range(len(w_kc)):
        for token in range(len(latents)):
            scores[head, :, token] = q_nope[:, head] @ (w_kc[head] @ latents[token]) * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return (weights @ latents @ w_vc).swapaxes(0, 1)


EXERCISE = Exercise(
    id="attend_absorbed",
    chapter=3,
    order=5,
    title="the whole content path",
    checks="content attention of every head, from query to output, without building a key or a value",
    points=4,
    difficulty=3,
    minutes=20,
    make=make,
    oracle=values.attend_absorbed,
    least_macs=least_macs,
    cases=(
        Case(
            "square sizes, whole numbers",
            {"new_tokens": 3, "cached_tokens": 3, "num_heads": 3, "nope_dim": 3, "latent_dim": 3, "value_dim": 3},
            make=make_whole,
        ),
        Case(
            "the toy by hand, two heads",
            {"new_tokens": 1, "cached_tokens": 3, "num_heads": 2, "nope_dim": 2, "latent_dim": 3, "value_dim": 2},
            make=make_toy,
        ),
        Case(
            "odd sizes",
            {"new_tokens": 5, "cached_tokens": 7, "num_heads": 3, "nope_dim": 9, "latent_dim": 13, "value_dim": 11},
        ),
        Case(
            "one of everything but the widths",
            {"new_tokens": 1, "cached_tokens": 1, "num_heads": 1, "nope_dim": 5, "latent_dim": 6, "value_dim": 4},
        ),
        Case(
            "empty cache, float32",
            {"new_tokens": 2, "cached_tokens": 0, "num_heads": 3, "nope_dim": 5, "latent_dim": 6, "value_dim": 4},
            dtype="float32",
        ),
        Case(
            "no new token",
            {"new_tokens": 0, "cached_tokens": 7, "num_heads": 3, "nope_dim": 5, "latent_dim": 6, "value_dim": 4},
        ),
        Case(
            "scores from 800 to -800",
            {"new_tokens": 2, "cached_tokens": 9, "num_heads": 3, "nope_dim": 5, "latent_dim": 6, "value_dim": 4},
            make=make_far_apart,
        ),
        Case(
            "float32",
            {"new_tokens": 3, "cached_tokens": 11, "num_heads": 2, "nope_dim": 7, "latent_dim": 12, "value_dim": 6},
            dtype="float32",
        ),
        Case(
            "strided inputs",
            {"new_tokens": 3, "cached_tokens": 9, "num_heads": 4, "nope_dim": 6, "latent_dim": 10, "value_dim": 5},
            layout="strided",
        ),
        Case(
            "GLM-5.2 widths, two heads",
            {
                "new_tokens": 3,
                "cached_tokens": 61,
                "num_heads": 2,
                "nope_dim": 192,
                "latent_dim": 512,
                "value_dim": 256,
            },
        ),
        # Keys and values far larger than the latents, so that memory alone tells them apart.
        Case(
            "wide keys and values, a long cache",
            {"new_tokens": 2, "cached_tokens": 1201, "num_heads": 3, "nope_dim": 64, "latent_dim": 16, "value_dim": 96},
        ),
    ),
    hints=(
        "You have written all the parts: absorb_heads, scores_shared_latent and absorb_values_heads. What is missing "
        "is what stands between the second and the third.",
        "Give the scale to the queries, and the scores come out scaled. The softmax runs over cached tokens, which is "
        "the last axis of the scores. Subtract each row's maximum before the exponential; over an empty axis max wants "
        "an initial value that is smaller than any score: -inf.",
        "Fill the gaps:\n\n"
        "    absorbed = ____  # (num_heads, new_tokens, latent_dim), scaled\n"
        "    scores = absorbed @ ____  # (num_heads, new_tokens, cached_tokens)\n"
        "    weights = np.exp(scores - ____)\n"
        "    weights = weights / ____\n"
        "    return ____  # absorb_values_heads",
    ),
    budget=Budget(
        text="No key and no value is ever built: no array of cached_tokens × nope_dim or of cached_tokens × value_dim, "
        "and the multiply-adds spent on w_kc and w_vc do not grow with cached_tokens.",
        case="wide keys and values, a long cache",
        macs=most_macs,
        largest=largest,
        peak_values=peak_values,
        says="the outputs are right, but the shortest way spends less. Look for w_kc or w_vc where they meet cached "
        "tokens, for a mixture that is rescaled token by token, and for an array of all terms of a sum",
        forbidden=(
            Forbidden(
                "keys materialized",
                ("cached_tokens", "nope_dim"),
                "the outputs are right, but a key was built for every cached token. Fold w_kc into the queries instead",
            ),
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
            "scale forgotten",
            "the softmax saw raw scores. Multiply by scale first",
            scale_forgotten,
        ),
        Mistake(
            "scale twice",
            "the scores are multiplied by scale twice, perhaps once in the queries. Once is enough",
            scale_twice,
        ),
        Mistake(
            "a scale of its own, from nope_dim",
            "the scores are divided by √nope_dim. Multiply them by the scale that is given: it knows of the rope part "
            "as well",
            scale_from_the_nope_width,
        ),
        Mistake(
            "a scale of its own, from latent_dim",
            "the scores are divided by √latent_dim, because the absorbed query is that wide. Absorbing changes no "
            "score, so it changes no scale: use the one that is given",
            scale_from_the_latent_width,
        ),
        Mistake(
            "scale after the softmax",
            "the softmax saw raw scores, and its weights were scaled. The scale belongs to the scores",
            scale_after_the_softmax,
        ),
        Mistake(
            "divided by the scale",
            "the scores are divided by scale. It is a factor: multiply by it",
            divided_by_the_scale,
        ),
        Mistake(
            "softmax forgotten",
            "the latents were mixed by scores. Weights are wanted: a softmax stands between",
            softmax_forgotten,
        ),
        Mistake(
            "weights not normalised",
            "the exponentials were not divided by their sum over the cached tokens",
            not_normalised,
        ),
        Mistake(
            "softmax over the new tokens",
            "the softmax runs over the new tokens. Each new token spreads its attention over the cached ones",
            softmax_over_the_new_tokens,
        ),
        Mistake(
            "softmax over the heads",
            "the softmax runs over the heads. Each head spreads its attention over the cached tokens",
            softmax_over_the_heads,
        ),
        Mistake(
            "softmax over everything",
            "one softmax runs over all heads and tokens. Each row of scores, of one head and one new token, has a "
            "softmax of its own",
            softmax_over_everything,
        ),
        Mistake(
            "causal mask",
            "a causal mask was applied. Every new token sees every cached one",
            causal,
        ),
        Mistake(
            "heads first",
            "the axes are (num_heads, new_tokens, value_dim). Move the head axis back behind the tokens",
            heads_first,
        ),
        Mistake(
            "not projected",
            "these are the mixed latents, latent_dim wide. Each head's own w_vc is still to come",
            mixed_latents_only,
        ),
        Mistake(
            "one matrix for all heads",
            "every head's mixed latent met the matrix of head 0. Head h meets w_vc[h]",
            one_value_matrix_for_all_heads,
        ),
        Mistake(
            "one key matrix for all heads",
            "every head's query met w_kc[0]. Head h meets w_kc[h]",
            one_key_matrix_for_all_heads,
        ),
        Mistake(
            "result reshaped",
            "the result has its heads first and was reshaped. A reshape moves no axis, it cuts the numbers anew: swap "
            "the axes",
            result_reshaped,
        ),
        Mistake(
            "queries reshaped",
            "q_nope was reshaped to put the heads first. A reshape moves no axis, it cuts the numbers anew: swap the "
            "axes",
            queries_reshaped,
        ),
        Mistake(
            "maximum not subtracted",
            "the exponential of a large score overflows. Subtract the row's maximum first: the weights stay the same",
            maximum_not_subtracted,
        ),
        Mistake(
            "a maximum of at least 0",
            "no row's maximum is taken to be below 0, as max with initial=0 does, and the exponentials of a row far "
            "below 0 vanish. The value that an empty row needs is -inf",
            maximum_of_at_least_0,
        ),
        Mistake(
            "one maximum for a head",
            "the largest score of all of a head's rows was subtracted, and the exponentials of a row far below it "
            "vanish. Each new token has a maximum of its own",
            one_maximum_for_a_head,
        ),
        Mistake(
            "one maximum for all rows",
            "the largest score of all rows was subtracted, and the exponentials of a row far below it vanish. Each row "
            "has a maximum of its own",
            one_maximum_for_all_rows,
        ),
        Mistake(
            "first score subtracted",
            "each row's first score was subtracted. It need not be the largest, and what lies far above it overflows",
            first_score_subtracted,
        ),
        Mistake(
            "mean subtracted",
            "each row's mean was subtracted. Only the maximum makes every exponential at most 1",
            mean_subtracted,
        ),
        Mistake(
            "scores clipped",
            "the scores were cut off at ±700, and beyond that they count alike. Subtract the row's maximum instead: it "
            "changes no weight",
            scores_clipped,
        ),
    ),
    mutants=(
        Mutant(scale_forgotten, "scale forgotten"),
        Mutant(scale_twice, "scale twice"),
        Mutant(scale_from_the_nope_width, "a scale of its own, from nope_dim"),
        Mutant(scale_from_the_latent_width, "a scale of its own, from latent_dim"),
        Mutant(scale_after_the_softmax, "scale after the softmax"),
        Mutant(divided_by_the_scale, "divided by the scale"),
        Mutant(softmax_over_everything, "softmax over everything"),
        Mutant(one_key_matrix_for_all_heads, "one key matrix for all heads"),
        Mutant(result_reshaped, "result reshaped"),
        Mutant(queries_reshaped, "queries reshaped"),
        Mutant(softmax_forgotten, "softmax forgotten"),
        Mutant(not_normalised, "weights not normalised"),
        Mutant(softmax_over_the_new_tokens, "softmax over the new tokens"),
        Mutant(softmax_over_the_heads, "softmax over the heads"),
        Mutant(causal, "causal mask"),
        Mutant(heads_first, "heads first"),
        Mutant(mixed_latents_only, "not projected"),
        Mutant(one_value_matrix_for_all_heads, "one matrix for all heads"),
        Mutant(maximum_not_subtracted, "maximum not subtracted"),
        Mutant(maximum_of_at_least_0, "a maximum of at least 0"),
        Mutant(one_maximum_for_a_head, "one maximum for a head"),
        Mutant(one_maximum_for_all_rows, "one maximum for all rows"),
        Mutant(first_score_subtracted, "first score subtracted"),
        Mutant(mean_subtracted, "mean subtracted"),
        Mutant(scores_clipped, "scores clipped"),
        Mutant(keys_built, "keys materialized"),
        Mutant(values_built, "values materialized"),
        Mutant(one_key_at_a_time, "too many multiply-adds"),
    ),
)
