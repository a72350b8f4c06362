"""Chapter 1: what the two routes to a head's scores cost."""

from ledger.account.attention import key_path_absorb, key_path_materialize
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import drawn


def make(rng, dtype, new_tokens, cached_tokens, latent_dim, nope_dim):
    return {
        "new_tokens": new_tokens,
        "cached_tokens": cached_tokens,
        "latent_dim": latent_dim,
        "nope_dim": nope_dim,
    }


def make_decode(rng, dtype):
    return drawn(rng, new_tokens=(2, 9), cached_tokens=(1000, 9000), latent_dim=(200, 900), nope_dim=(30, 190))


def make_prefill(rng, dtype):
    return drawn(rng, new_tokens=(900, 9000), cached_tokens=(900, 9000), latent_dim=(200, 900), nope_dim=(30, 190))


def oracle(new_tokens, cached_tokens, latent_dim, nope_dim):
    sizes = new_tokens, cached_tokens, latent_dim, nope_dim
    return key_path_materialize(*sizes).total, key_path_absorb(*sizes).total


def flops(new_tokens, cached_tokens, latent_dim, nope_dim):
    materialize = 2 * nope_dim * cached_tokens * (latent_dim + new_tokens)
    absorb = 2 * latent_dim * new_tokens * (nope_dim + cached_tokens)
    return materialize, absorb


def projections_only(new_tokens, cached_tokens, latent_dim, nope_dim):
    return cached_tokens * latent_dim * nope_dim, new_tokens * latent_dim * nope_dim


def scores_only(new_tokens, cached_tokens, latent_dim, nope_dim):
    return new_tokens * cached_tokens * nope_dim, new_tokens * cached_tokens * latent_dim


def absorb_named_first(new_tokens, cached_tokens, latent_dim, nope_dim):
    materialize = nope_dim * cached_tokens * (latent_dim + new_tokens)
    absorb = latent_dim * new_tokens * (nope_dim + cached_tokens)
    return absorb, materialize


def narrow_scores_on_both_routes(new_tokens, cached_tokens, latent_dim, nope_dim):
    scores = new_tokens * cached_tokens * nope_dim
    return cached_tokens * latent_dim * nope_dim + scores, new_tokens * latent_dim * nope_dim + scores


def projections_over_the_cache_on_both_routes(new_tokens, cached_tokens, latent_dim, nope_dim):
    projection = cached_tokens * latent_dim * nope_dim
    return projection + new_tokens * cached_tokens * nope_dim, projection + new_tokens * cached_tokens * latent_dim


def wide_scores_on_both_routes(new_tokens, cached_tokens, latent_dim, nope_dim):
    scores = new_tokens * cached_tokens * latent_dim
    return cached_tokens * latent_dim * nope_dim + scores, new_tokens * latent_dim * nope_dim + scores


def new_tokens_taken_for_cached_too(new_tokens, cached_tokens, latent_dim, nope_dim):
    materialize = nope_dim * (cached_tokens + new_tokens) * (latent_dim + new_tokens)
    absorb = latent_dim * new_tokens * (nope_dim + cached_tokens + new_tokens)
    return materialize, absorb


EXERCISE = Exercise(
    id="key_path_macs",
    chapter=1,
    order=4,
    title="what each route costs",
    checks="multiply-adds of one head, projection and scores: (materialize, absorb)",
    points=2,
    difficulty=2,
    minutes=8,
    make=make,
    oracle=oracle,
    returns=("materialize", "absorb"),
    cases=(
        Case("the toy by hand", {"new_tokens": 1, "cached_tokens": 3, "latent_dim": 3, "nope_dim": 2}),
        Case("decode at DeepSeek-V3", {"new_tokens": 1, "cached_tokens": 4096, "latent_dim": 512, "nope_dim": 128}),
        Case("prefill at DeepSeek-V3", {"new_tokens": 4096, "cached_tokens": 4096, "latent_dim": 512, "nope_dim": 128}),
        Case("decode sizes drawn at random", make=make_decode),
        Case("prefill sizes drawn at random", make=make_prefill),
        Case("empty cache", {"new_tokens": 3, "cached_tokens": 0, "latent_dim": 512, "nope_dim": 128}),
        Case("no new token", {"new_tokens": 0, "cached_tokens": 5, "latent_dim": 512, "nope_dim": 128}),
        Case(
            "more than a float counts exactly",
            {"new_tokens": 10_000_019, "cached_tokens": 10_000_079, "latent_dim": 576, "nope_dim": 193},
        ),
    ),
    hints=(
        "Each route is two matrix products. Draw the four products with their shapes: (rows, inner) times "
        "(inner, cols) costs rows · inner · cols.",
        "Projecting one token costs the same on either route; the routes differ in which tokens are projected. Then "
        "comes a score for each pair of a new and a cached token: how long is the sum behind it on each route?",
        "Fill the gaps, and return both:\n\n"
        "    materialize = cached_tokens * ____ + new_tokens * cached_tokens * ____\n"
        "    absorb = new_tokens * ____ + new_tokens * cached_tokens * ____",
    ),
    mistakes=(
        Mistake(
            "FLOPs for multiply-adds",
            "both numbers are doubled. One multiply-add is two FLOP; multiply-adds are asked for",
            flops,
        ),
        Mistake("projections only", "the scores are missing: each route has a second product", projections_only),
        Mistake("scores only", "the projections are missing: each route has a first product with w_k", scores_only),
        Mistake("absorb first", "the two numbers stand in the wrong order: materialize first", absorb_named_first),
        Mistake(
            "narrow scores",
            "absorb's scores are counted nope_dim wide. An absorbed query is as wide as a latent",
            narrow_scores_on_both_routes,
        ),
        Mistake(
            "wide scores",
            "materialize's scores are counted latent_dim wide. A key is nope_dim wide, and so is the sum",
            wide_scores_on_both_routes,
        ),
        Mistake(
            "new tokens among the cached",
            "the new tokens are counted as cached ones too. Keys and scores are those of cached_tokens alone",
            new_tokens_taken_for_cached_too,
        ),
        Mistake(
            "cache projected twice",
            "absorb's projection is counted over the cached tokens. It runs over the new ones",
            projections_over_the_cache_on_both_routes,
        ),
    ),
    mutants=(
        Mutant(flops, "FLOPs for multiply-adds"),
        Mutant(projections_only, "projections only"),
        Mutant(scores_only, "scores only"),
        Mutant(absorb_named_first, "absorb first"),
        Mutant(narrow_scores_on_both_routes, "narrow scores"),
        Mutant(wide_scores_on_both_routes, "wide scores"),
        Mutant(new_tokens_taken_for_cached_too, "new tokens among the cached"),
        Mutant(projections_over_the_cache_on_both_routes, "cache projected twice"),
    ),
)
