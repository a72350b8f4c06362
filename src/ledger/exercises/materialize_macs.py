"""Chapter 5: what a layer pays that rebuilds its keys and values."""

from ledger.account import crossover
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import drawn

V3 = {"latent_dim": 512, "nope_dim": 128, "rope_dim": 64, "value_dim": 128, "num_heads": 128}
GLM_52 = {"latent_dim": 512, "nope_dim": 192, "rope_dim": 64, "value_dim": 256, "num_heads": 64}
ODD = {"latent_dim": 7, "nope_dim": 5, "rope_dim": 2, "value_dim": 3, "num_heads": 11}


def make(rng, dtype, **sizes):
    return dict(sizes)


def make_drawn(rng, dtype):
    return drawn(
        rng,
        new_tokens=(2, 900),
        cached_tokens=(1000, 9000),
        latent_dim=(200, 900),
        nope_dim=(70, 190),
        rope_dim=(20, 65),
        value_dim=(200, 300),
        num_heads=(2, 128),
    )


#: Both routes are asked for the same sizes.
CASES = (
    Case(
        "the toy by hand",
        {
            "new_tokens": 1,
            "cached_tokens": 3,
            "latent_dim": 3,
            "nope_dim": 2,
            "rope_dim": 2,
            "value_dim": 2,
            "num_heads": 1,
        },
    ),
    Case("odd sizes", {"new_tokens": 13, "cached_tokens": 17, **ODD}),
    Case("decode at DeepSeek-V3", {"new_tokens": 1, "cached_tokens": 4096, **V3}),
    Case("prefill at GLM-5.2", {"new_tokens": 2048, "cached_tokens": 4096, **GLM_52}),
    Case("sizes drawn at random", make=make_drawn),
    Case("no rope part", {"new_tokens": 3, "cached_tokens": 19, **ODD, "rope_dim": 0}),
    Case("empty cache", {"new_tokens": 3, "cached_tokens": 0, **ODD}),
    Case("no new token", {"new_tokens": 0, "cached_tokens": 5, **ODD}),
    Case(
        "more than a float counts exactly",
        {"new_tokens": 10_000_019, "cached_tokens": 10_000_079, **V3, "nope_dim": 129},
    ),
    Case("beyond 63 bits", {"new_tokens": 10**12 + 39, "cached_tokens": 10**12 + 61, **V3}),
)


def flops(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = 2 * num_heads * cached_tokens * latent_dim * (nope_dim + value_dim)
    attention = 2 * num_heads * new_tokens * cached_tokens * (nope_dim + rope_dim + value_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def one_head(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = cached_tokens * latent_dim * (nope_dim + value_dim)
    attention = new_tokens * cached_tokens * (nope_dim + rope_dim + value_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def rope_forgotten(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * cached_tokens * latent_dim * (nope_dim + value_dim)
    attention = num_heads * new_tokens * cached_tokens * (nope_dim + value_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def rope_projected(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    width = nope_dim + rope_dim + value_dim
    projection = num_heads * cached_tokens * latent_dim * width
    attention = num_heads * new_tokens * cached_tokens * width
    return {"projection": projection, "attention": attention, "total": projection + attention}


def rope_mixed(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * cached_tokens * latent_dim * (nope_dim + value_dim)
    attention = num_heads * new_tokens * cached_tokens * (nope_dim + 2 * rope_dim + value_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def new_tokens_projected(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * new_tokens * latent_dim * (nope_dim + value_dim)
    attention = num_heads * new_tokens * cached_tokens * (nope_dim + rope_dim + value_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def new_tokens_cached_too(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    tokens = cached_tokens + new_tokens
    projection = num_heads * tokens * latent_dim * (nope_dim + value_dim)
    attention = num_heads * new_tokens * tokens * (nope_dim + rope_dim + value_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def new_tokens_rebuilt_too(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * (cached_tokens + new_tokens) * latent_dim * (nope_dim + value_dim)
    attention = num_heads * new_tokens * cached_tokens * (nope_dim + rope_dim + value_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def new_tokens_attended_too(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * cached_tokens * latent_dim * (nope_dim + value_dim)
    attention = num_heads * new_tokens * (cached_tokens + new_tokens) * (nope_dim + rope_dim + value_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def keys_alone(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * cached_tokens * latent_dim * nope_dim
    attention = num_heads * new_tokens * cached_tokens * (nope_dim + rope_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def value_width_of_the_keys(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * cached_tokens * latent_dim * 2 * nope_dim
    attention = num_heads * new_tokens * cached_tokens * (2 * nope_dim + rope_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


def total_forgotten(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = num_heads * cached_tokens * latent_dim * (nope_dim + value_dim)
    attention = num_heads * new_tokens * cached_tokens * (nope_dim + rope_dim + value_dim)
    return {"projection": projection, "attention": attention}


def in_floats(new_tokens, cached_tokens, latent_dim, nope_dim, rope_dim, value_dim, num_heads):
    projection = 1.0 * num_heads * cached_tokens * latent_dim * (nope_dim + value_dim)
    attention = 1.0 * num_heads * new_tokens * cached_tokens * (nope_dim + rope_dim + value_dim)
    return {"projection": projection, "attention": attention, "total": projection + attention}


EXERCISE = Exercise(
    id="materialize_macs",
    chapter=5,
    order=1,
    title="what rebuilding costs",
    checks="multiply-adds of one layer that materializes: projection, attention, total",
    points=2,
    difficulty=1,
    minutes=8,
    make=make,
    oracle=crossover.materialize_macs,
    cases=CASES,
    hints=(
        "Four products a head: latents into keys, latents into values, queries against keys, weights against values. "
        "Write (rows, inner) times (inner, cols) for each.",
        "The two projections have a row for each cached token and nothing else in common with the queries. In the "
        "attention every pair of a new and a cached token costs the width of a key plus the width of a value; a key is "
        "its content part and the shared rope part side by side.",
        "Fill the gaps:\n\n"
        "    projection = num_heads * cached_tokens * ____ * (____ + ____)\n"
        "    attention = num_heads * ____ * ____ * (____ + ____ + ____)\n"
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
            "the scores are counted nope_dim wide. A query also meets the rope part of each key",
            rope_forgotten,
        ),
        Mistake(
            "rope projected",
            "the projection makes rope_dim columns too. The rope part is in the cache already, ready to use",
            rope_projected,
        ),
        Mistake(
            "rope mixed into the values",
            "a value has no rope part: the rope width counts once, in the scores",
            rope_mixed,
        ),
        Mistake(
            "new tokens projected",
            "the projection is counted over the new tokens. This route rebuilds every cached token",
            new_tokens_projected,
        ),
        Mistake(
            "new tokens among the cached",
            "the new tokens are counted as cached ones as well. They are not among them here",
            new_tokens_cached_too,
            also=(new_tokens_rebuilt_too, new_tokens_attended_too),
        ),
        Mistake("keys alone", "values are missing: they are rebuilt too, and mixed after the softmax", keys_alone),
        Mistake(
            "nope for value",
            "values are counted nope_dim wide. They are value_dim wide, which is another width in some models",
            value_width_of_the_keys,
        ),
    ),
    mutants=(
        Mutant(flops, "FLOPs for multiply-adds"),
        Mutant(one_head, "one head"),
        Mutant(rope_forgotten, "rope dims forgotten"),
        Mutant(rope_projected, "rope projected"),
        Mutant(rope_mixed, "rope mixed into the values"),
        Mutant(new_tokens_projected, "new tokens projected"),
        Mutant(new_tokens_cached_too, "new tokens among the cached"),
        Mutant(new_tokens_rebuilt_too, "new tokens among the cached"),
        Mutant(new_tokens_attended_too, "new tokens among the cached"),
        Mutant(keys_alone, "keys alone"),
        Mutant(value_width_of_the_keys, "nope for value"),
        Mutant(total_forgotten, "wanted ['attention', 'projection', 'total']"),
        Mutant(in_floats, "counts are whole numbers"),
    ),
)
