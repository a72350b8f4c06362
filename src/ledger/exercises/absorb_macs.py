"""Chapter 5: what a layer pays that absorbs both projections."""

from ledger.account import crossover
from ledger.exercises.base import Exercise, Mistake, Mutant
from ledger.exercises.materialize_macs import CASES, make


def flops(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = 2 * num_heads * new_tokens * latent_dim * (nope_dim + value_dim)
    attention = 2 * num_heads * new_tokens * cached_tokens * (2 * latent_dim + rope_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def one_head(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = new_tokens * latent_dim * (nope_dim + value_dim)
    attention = new_tokens * cached_tokens * (2 * latent_dim + rope_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def rope_forgotten(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * new_tokens * latent_dim * (nope_dim + value_dim)
    attention = num_heads * new_tokens * cached_tokens * 2 * latent_dim
    return {"projection": projection, "attention": attention, "total": projection + attention}


def rope_mixed(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * new_tokens * latent_dim * (nope_dim + value_dim)
    attention = num_heads * new_tokens * cached_tokens * 2 * (latent_dim + rope_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def narrow_scores(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * new_tokens * latent_dim * (nope_dim + value_dim)
    attention = num_heads * new_tokens * cached_tokens * (nope_dim + rope_dim + latent_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def narrow_mix(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * new_tokens * latent_dim * (nope_dim + value_dim)
    attention = num_heads * new_tokens * cached_tokens * (latent_dim + rope_dim + value_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def attention_of_materialize(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * new_tokens * latent_dim * (nope_dim + value_dim)
    attention = num_heads * new_tokens * cached_tokens * (nope_dim + rope_dim + value_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def cache_projected(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * cached_tokens * latent_dim * (nope_dim + value_dim)
    attention = num_heads * new_tokens * cached_tokens * (2 * latent_dim + rope_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def cached_values_projected(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * latent_dim * (new_tokens * nope_dim + cached_tokens * value_dim)
    attention = num_heads * new_tokens * cached_tokens * (2 * latent_dim + rope_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def values_not_projected(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * new_tokens * latent_dim * nope_dim
    attention = num_heads * new_tokens * cached_tokens * (2 * latent_dim + rope_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def latents_once_for_all_heads(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * new_tokens * latent_dim * (nope_dim + value_dim)
    attention = new_tokens * cached_tokens * (2 * latent_dim + rope_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def total_of_the_attention(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * new_tokens * latent_dim * (nope_dim + value_dim)
    attention = num_heads * new_tokens * cached_tokens * (2 * latent_dim + rope_dim)
    return {"projection": projection, "attention": attention, "total": attention}


def in_floats(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = 1.0 * num_heads * new_tokens * latent_dim * (nope_dim + value_dim)
    attention = 1.0 * num_heads * new_tokens * cached_tokens * (2 * latent_dim + rope_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


EXERCISE = Exercise(
    id="absorb_macs",
    chapter=5,
    order=2,
    title="what absorbing costs",
    checks="multiply-adds of one layer that absorbs: projection, attention, total",
    points=2,
    difficulty=1,
    minutes=8,
    make=make,
    oracle=crossover.absorb_macs,
    cases=CASES,
    hints=(
        "Again four products a head, in another order: W_K meets the queries first, W_V meets the mixed latents last. "
        "What are the rows of these two?",
        "Neither projection sees the cache. In between, a query is as wide as a cache entry, latent and rope, and what "
        "is mixed after the softmax is the latents, not values.",
        "Fill the gaps:\n\n"
        "    projection = num_heads * ____ * latent_dim * (____ + ____)\n"
        "    attention = num_heads * new_tokens * cached_tokens * (____ + ____ + ____)\n"
        "and return both with their sum under the three names.",
    ),
    mistakes=(
        Mistake(
            "FLOPs for multiply-adds",
            "every number is doubled. One multiply-add is two FLOP; multiply-adds are asked for",
            flops,
        ),
        Mistake("one head", "these are the counts of one head. Every head has its own four products", one_head),
        Mistake(
            "rope dims forgotten",
            "the scores are counted latent_dim wide. A query also meets the rope part of each entry",
            rope_forgotten,
        ),
        Mistake(
            "rope mixed into the values",
            "the mix is counted as wide as a whole entry. Only the latents are mixed; the rope part has done its work "
            "in the scores",
            rope_mixed,
        ),
        Mistake(
            "192 where 576 belongs",
            "the scores are counted nope_dim + rope_dim wide, as if keys had been built. An absorbed query is as wide "
            "as a cache entry",
            narrow_scores,
        ),
        Mistake(
            "values mixed",
            "the mix is counted value_dim wide. Absorb mixes latents, and projects the result once",
            narrow_mix,
        ),
        Mistake(
            "attention of the other route",
            "the attention is counted on rebuilt keys and values. This route attends to the latents themselves",
            attention_of_materialize,
        ),
        Mistake(
            "cache projected",
            "the projection is counted over the cached tokens. This route projects the new ones alone",
            cache_projected,
        ),
        Mistake(
            "cached values projected",
            "W_V is counted over the cached tokens. It meets the mixed latents: one for each new token and head",
            cached_values_projected,
        ),
        Mistake(
            "values not projected",
            "W_V is missing: the mixed latents of each head still have to become an output of width value_dim",
            values_not_projected,
        ),
        Mistake(
            "one attention for all heads",
            "the attention is counted once. The latents are shared, but each head has queries and weights of its own",
            latents_once_for_all_heads,
        ),
    ),
    mutants=(
        Mutant(flops, "FLOPs for multiply-adds"),
        Mutant(one_head, "one head"),
        Mutant(rope_forgotten, "rope dims forgotten"),
        Mutant(rope_mixed, "rope mixed into the values"),
        Mutant(narrow_scores, "192 where 576 belongs"),
        Mutant(narrow_mix, "values mixed"),
        Mutant(attention_of_materialize, "attention of the other route"),
        Mutant(cache_projected, "cache projected"),
        Mutant(cached_values_projected, "cached values projected"),
        Mutant(values_not_projected, "values not projected"),
        Mutant(latents_once_for_all_heads, "one attention for all heads"),
        Mutant(total_of_the_attention, "result['total']"),
        Mutant(in_floats, "counts are whole numbers"),
    ),
)
