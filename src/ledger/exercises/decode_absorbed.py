"""Chapter 4: the whole decode step over stored entries, in latent space."""

import numpy as np

from ledger.account.attention import absorb_heads_macs, decode_absorbed_macs
from ledger.exercises.base import Budget, Case, Exercise, Forbidden, Mistake, Mutant
from ledger.exercises.making import TOY_LATENTS, TOY_W_V, normal
from ledger.reference import mla, values


def make(rng, dtype, new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, value_dim):
    return {
        "queries": normal(rng, dtype, new_tokens, num_heads, latent_dim + rope_dim),
        "cache": normal(rng, dtype, cached_tokens, latent_dim + rope_dim),
        "w_vc": normal(rng, dtype, num_heads, latent_dim, value_dim),
        "latent_dim": latent_dim,
        "scale": 0.25,
    }


def make_toy(rng, dtype, **dims):
    """The content scores of the three entries are 0; the rope scores make weights of 1/2, 1/4 and 1/4."""
    rope = np.array([(np.log(2), 5), (0, 7), (0, 9)])
    return {
        "queries": np.array([[(0, 0, 0, 2, 0)]], dtype),
        "cache": np.concatenate([TOY_LATENTS, rope], axis=1).astype(dtype),
        "w_vc": np.array([TOY_W_V], dtype),
        "latent_dim": 3,
        "scale": 0.5,
    }


def make_huge(rng, dtype, **dims):
    """Scores in the thousands, both ways: their exponentials are 0 or overflow. The last new token's are all far below
    0, and its two largest are 1 apart."""
    inputs = make(rng, dtype, **dims)
    inputs["queries"] = inputs["queries"] * 2000
    inputs["cache"][:, 0] = 1 + rng.uniform(0.05, 0.3, len(inputs["cache"]))
    inputs["cache"][2:4, 0] = 1, 1 + 1 / 2000
    inputs["queries"][-1] = 0
    inputs["queries"][-1, :, 0] = -2000 / inputs["scale"]
    return inputs


def make_real(rng, dtype, new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, value_dim):
    """Sizes of scores as a model has them, and its own scale."""
    inputs = make(rng, dtype, new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, value_dim)
    inputs["w_vc"] = inputs["w_vc"] / latent_dim**0.5
    inputs["scale"] = 0.135
    return inputs


def oracle(queries, cache, w_vc, latent_dim, scale):
    """Scores against whole entries, then every head's own values, which the answer must not build."""
    wide = [np.asarray(array, np.float64) for array in (queries, cache, w_vc)]
    weights, _ = values.softmax_lse(scale * mla.scores_shared_latent(wide[0], wide[1]))
    output = values.absorb_values_heads(weights, wide[1][:, :latent_dim], wide[2])
    return output.astype(np.result_type(queries, cache, w_vc), copy=False)


def least_macs(new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, value_dim):
    """Scores over entries, latents mixed, one value projection a new token; a scale that is divided by takes no
    multiplication."""
    over_the_cache = decode_absorbed_macs(new_tokens * cached_tokens, num_heads, latent_dim, rope_dim)
    return over_the_cache.total + absorb_heads_macs(new_tokens, num_heads, latent_dim, value_dim)


def most_macs(new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, value_dim):
    """The same, the scale on the queries, two elementwise steps over the scores, whole entries mixed and cut
    afterwards, and one elementwise step over the result."""
    sizes = new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, value_dim
    for_a_row = latent_dim + rope_dim + cached_tokens * (2 + rope_dim) + value_dim
    return least_macs(*sizes) + new_tokens * num_heads * for_a_row


def largest(new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, value_dim):
    """A copy of any input, the scores, or the result."""
    entry = latent_dim + rope_dim
    rows = new_tokens * num_heads * max(entry, cached_tokens, value_dim)
    return max(cached_tokens * entry, num_heads * latent_dim * value_dim, rows)


def peak_values(new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, value_dim):
    """Each input copied once, the scores five times (scaled, shifted, exponentials, weights, one to spare), the mixed
    latents and the result twice each."""
    entry = latent_dim + rope_dim
    copies = cached_tokens * (entry + latent_dim) + num_heads * latent_dim * value_dim
    return copies + new_tokens * num_heads * (entry + 5 * cached_tokens + 2 * latent_dim + 2 * value_dim)


def rope_dims_forgotten(queries, cache, w_vc, latent_dim, scale):
    scores = scale * np.einsum("shc,tc->sht", queries[..., :latent_dim], cache[:, :latent_dim])
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("shc,hcv->shv", np.einsum("sht,tc->shc", weights, cache[:, :latent_dim]), w_vc)


def scale_left_out(queries, cache, w_vc, latent_dim, scale):
    scores = np.einsum("shf,tf->sht", queries, cache)
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("shc,hcv->shv", np.einsum("sht,tc->shc", weights, cache[:, :latent_dim]), w_vc)


def scale_of_the_entry_width(queries, cache, w_vc, latent_dim, scale):
    scores = np.einsum("shf,tf->sht", queries, cache) / np.sqrt(cache.shape[1])
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights /= weights.sum(-1, keepdims=True)
    mixed = np.einsum("sht,tc->shc", weights, cache[:, :latent_dim])
    return np.einsum("shc,hcv->shv", mixed, w_vc).astype(queries.dtype)


def softmax_over_heads(queries, cache, w_vc, latent_dim, scale):
    scores = scale * np.einsum("shf,tf->sht", queries, cache)
    weights = np.exp(scores - scores.max(1, keepdims=True, initial=-np.inf))
    weights /= weights.sum(1, keepdims=True)
    return np.einsum("shc,hcv->shv", np.einsum("sht,tc->shc", weights, cache[:, :latent_dim]), w_vc)


def softmax_left_out(queries, cache, w_vc, latent_dim, scale):
    scores = scale * np.einsum("shf,tf->sht", queries, cache)
    return np.einsum("shc,hcv->shv", np.einsum("sht,tc->shc", scores, cache[:, :latent_dim]), w_vc)


def causal_mask(queries, cache, w_vc, latent_dim, scale):
    new, cached = len(queries), len(cache)
    scores = scale * np.einsum("shf,tf->sht", queries, cache)
    later = np.arange(cached) > cached - new + np.arange(new)[:, None]
    scores = np.where(later[:, None], -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights /= weights.sum(-1, keepdims=True)
    mixed = np.einsum("sht,tc->shc", weights, cache[:, :latent_dim])
    return np.einsum("shc,hcv->shv", mixed, w_vc).astype(queries.dtype)


def first_head_for_all(queries, cache, w_vc, latent_dim, scale):
    scores = scale * np.einsum("shf,tf->sht", queries, cache)
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("sht,tc->shc", weights, cache[:, :latent_dim]) @ w_vc[0]


def last_columns_for_values(queries, cache, w_vc, latent_dim, scale):
    scores = scale * np.einsum("shf,tf->sht", queries, cache)
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("shc,hcv->shv", np.einsum("sht,tc->shc", weights, cache[:, -latent_dim:]), w_vc)


def no_maximum_taken_off(queries, cache, w_vc, latent_dim, scale):
    with np.errstate(all="ignore"):
        weights = np.exp(scale * np.einsum("shf,tf->sht", queries, cache))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("shc,hcv->shv", np.einsum("sht,tc->shc", weights, cache[:, :latent_dim]), w_vc)


def no_maximum_and_divided_last(queries, cache, w_vc, latent_dim, scale):
    with np.errstate(all="ignore"):
        weights = np.exp(scale * np.einsum("shf,tf->sht", queries, cache))
        mixed = np.einsum("sht,tc->shc", weights, cache[:, :latent_dim]) / weights.sum(-1, keepdims=True)
        return np.einsum("shc,hcv->shv", mixed, w_vc)


def one_maximum_for_all_rows(queries, cache, w_vc, latent_dim, scale):
    scores = scale * np.einsum("shf,tf->sht", queries, cache)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(initial=-np.inf))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("shc,hcv->shv", np.einsum("sht,tc->shc", weights, cache[:, :latent_dim]), w_vc)


def scores_clipped(queries, cache, w_vc, latent_dim, scale):
    weights = np.exp((scale * np.einsum("shf,tf->sht", queries, cache)).clip(-700, 700))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("shc,hcv->shv", np.einsum("sht,tc->shc", weights, cache[:, :latent_dim]), w_vc)


def whole_entry_as_value(queries, cache, w_vc, latent_dim, scale):
    scores = scale * np.einsum("shf,tf->sht", queries, cache)
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("shc,hcv->shv", np.einsum("sht,tc->shc", weights, cache), w_vc)


def values_built(queries, cache, w_vc, latent_dim, scale):
    scores = scale * np.einsum("shf,tf->sht", queries, cache)
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights /= weights.sum(-1, keepdims=True)
    built = np.einsum("tc,hcv->thv", cache[:, :latent_dim], w_vc)
    return np.einsum("sht,thv->shv", weights, built)


def values_built_head_by_head(queries, cache, w_vc, latent_dim, scale):
    output = np.zeros((len(queries), len(w_vc), w_vc.shape[2]), queries.dtype)
    for head in range(len(w_vc)):
        scores = scale * (queries[:, head] @ cache.T)
        weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        weights /= weights.sum(-1, keepdims=True)
        output[:, head] = weights @ (cache[:, :latent_dim] @ w_vc[head])
    return output


def rescaled_token_by_token(queries, cache, w_vc, latent_dim, scale):
    shape = (*queries.shape[:2], latent_dim)
    mixed, total = np.zeros(shape, queries.dtype), np.zeros(shape[:2], queries.dtype)
    largest = np.full(shape[:2], -np.inf, queries.dtype)
    for entry in cache:
        score = scale * (queries @ entry)
        new = np.maximum(largest, score)
        keep, weight = np.exp(largest - new), np.exp(score - new)
        mixed = keep[..., None] * mixed + weight[..., None] * entry[:latent_dim]
        total, largest = keep * total + weight, new
    mixed = mixed / np.where(total > 0, total, 1)[..., None]
    return np.einsum("shc,hcv->shv", mixed, w_vc)


def cache_copied_for_every_head(queries, cache, w_vc, latent_dim, scale):
    copies = np.repeat(cache[None], len(w_vc), axis=0)
    scores = scale * (queries.swapaxes(0, 1) @ copies.swapaxes(1, 2))
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ copies[:, :, :latent_dim] @ w_vc).swapaxes(0, 1)


def sizes(new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, value_dim):
    return {
        "new_tokens": new_tokens,
        "cached_tokens": cached_tokens,
        "num_heads": num_heads,
        "latent_dim": latent_dim,
        "rope_dim": rope_dim,
        "value_dim": value_dim,
    }


EXERCISE = Exercise(
    id="decode_absorbed",
    chapter=4,
    order=7,
    title="a whole decode step",
    checks="attention of every head over the stored entries, from the queries to the values",
    points=4,
    difficulty=3,
    minutes=18,
    make=make,
    oracle=oracle,
    least_macs=least_macs,
    cases=(
        Case("square sizes", sizes(4, 4, 4, 4, 4, 4)),
        Case("the toy by hand", sizes(1, 3, 1, 3, 2, 2), make=make_toy),
        Case("odd sizes", sizes(5, 7, 3, 9, 6, 11)),
        Case("one of everything but the widths", sizes(1, 1, 1, 6, 4, 5)),
        Case("no cached token, float32", sizes(2, 0, 3, 6, 4, 5), dtype="float32"),
        Case("no new token, float32", sizes(0, 7, 3, 6, 4, 5), dtype="float32"),
        Case("no rope width", sizes(2, 5, 3, 6, 0, 4)),
        Case("huge scores", sizes(2, 9, 3, 8, 4, 5), make=make_huge),
        Case("float32", sizes(3, 11, 2, 12, 6, 7), dtype="float32"),
        Case("strided inputs", sizes(3, 9, 4, 10, 6, 8), layout="strided"),
        Case("DeepSeek-V3 widths, two heads", sizes(1, 61, 2, 512, 64, 128), make=make_real),
        # Values far larger than the latents, so that memory alone tells them apart.
        Case("wide values, a long cache", sizes(3, 401, 4, 24, 2, 192)),
    ),
    hints=(
        "It is ordinary attention with one key and one value for all heads: the key is the whole entry, the value its "
        "first latent_dim features. What comes out is a mixed latent for each head. What is left to do with it?",
        "Scores, (num_heads, new_tokens, cached_tokens), from one product with the cache, as in scores_shared_latent. "
        "Scale them, take off each row's maximum, exponentiate, divide by the row's sum. One product mixes the "
        "latents, one batched product takes each head's mix through its own w_vc. An empty cache needs an initial "
        "value for the maximum.",
        "Fill the gaps:\n\n"
        "    scores = scale * ____  # (num_heads, new_tokens, cached_tokens)\n"
        "    weights = ____  # softmax over the last axis\n"
        "    mixed = weights @ ____  # (num_heads, new_tokens, latent_dim)\n"
        "    return ____  # through w_vc, and the tokens first",
    ),
    budget=Budget(
        text="No value is ever built: no array of cached_tokens × value_dim, no copy of the cache for each head, and "
        "the multiply-adds spent on w_vc do not grow with cached_tokens.",
        case="wide values, a long cache",
        macs=most_macs,
        largest=largest,
        peak_values=peak_values,
        says="the output is right, but the shortest way spends less. Look for w_vc where it meets cached tokens, for a "
        "mix that is rescaled token by token, and for a copy of the cache for each head",
        forbidden=(
            Forbidden(
                "values of all heads built",
                ("cached_tokens", "num_heads", "value_dim"),
                "the output is right, but a value was built for every cached token and head. Mix latents first",
            ),
            Forbidden(
                "values built",
                ("cached_tokens", "value_dim"),
                "the output is right, but a value was built for every cached token. Mix latents first",
            ),
        ),
    ),
    mistakes=(
        Mistake(
            "rope dims forgotten",
            "the scores run over latent_dim features only. The rope part beside them counts too: use whole entries",
            rope_dims_forgotten,
        ),
        Mistake("scale left out", "the scores were not multiplied by scale", scale_left_out),
        Mistake(
            "scale from the entry's width",
            "the scores are divided by √(latent_dim + rope_dim). The scale is given: it comes from the width of the "
            "keys that were never built (192 in DeepSeek-V3, where an entry is 576 wide)",
            scale_of_the_entry_width,
        ),
        Mistake(
            "softmax over the heads",
            "the weights add to 1 over the heads. They add to 1 over the cached tokens, for each head",
            softmax_over_heads,
        ),
        Mistake("softmax left out", "the scores were used as weights", softmax_left_out),
        Mistake("masked", "a causal mask was put in. Every new token sees every cached one here", causal_mask),
        Mistake(
            "one matrix for all heads",
            "every head's mix went through w_vc[0]. Head h meets w_vc[h]",
            first_head_for_all,
        ),
        Mistake(
            "the wrong end of the entry mixed",
            "the values are the last latent_dim features of each entry. The latent stands first: [latent | rope key]",
            last_columns_for_values,
        ),
        Mistake(
            "no maximum subtracted",
            "the exponential of a large score overflows, and a row of very small ones vanishes. Subtract each row's "
            "maximum first: the weights stay the same",
            no_maximum_taken_off,
            also=(no_maximum_and_divided_last,),
        ),
        Mistake(
            "one maximum for all rows",
            "the largest score of all rows was subtracted, and the exponentials of a row far below it vanish. Each row "
            "has a maximum of its own",
            one_maximum_for_all_rows,
        ),
        Mistake(
            "scores clipped",
            "the scores were cut off at ±700, and beyond that they count alike. Subtract the row's maximum instead: it "
            "changes no weight",
            scores_clipped,
        ),
    ),
    mutants=(
        Mutant(rope_dims_forgotten, "rope dims forgotten"),
        Mutant(scale_left_out, "scale left out"),
        Mutant(scale_of_the_entry_width, "scale from the entry's width"),
        Mutant(softmax_over_heads, "softmax over the heads"),
        Mutant(softmax_left_out, "softmax left out"),
        Mutant(causal_mask, "masked"),
        Mutant(first_head_for_all, "one matrix for all heads"),
        Mutant(last_columns_for_values, "the wrong end of the entry mixed"),
        Mutant(no_maximum_taken_off, "no maximum subtracted"),
        Mutant(no_maximum_and_divided_last, "no maximum subtracted"),
        Mutant(one_maximum_for_all_rows, "one maximum for all rows"),
        Mutant(scores_clipped, "scores clipped"),
        Mutant(whole_entry_as_value, "ValueError", verdict="error"),
        Mutant(values_built, "values of all heads built"),
        Mutant(values_built_head_by_head, "values built"),
        Mutant(rescaled_token_by_token, "too many multiply-adds"),
        Mutant(cache_copied_for_every_head, "too large an array"),
    ),
)
