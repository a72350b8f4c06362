"""Chapter 7: arithmetic for each cached byte that a decode step reads."""

from ledger.account import roofline
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import drawn


def make(rng, dtype, num_heads, new_tokens, latent_dim, rope_dim, cache_bytes_per_token):
    return {
        "num_heads": num_heads,
        "new_tokens": new_tokens,
        "latent_dim": latent_dim,
        "rope_dim": rope_dim,
        "cache_bytes_per_token": cache_bytes_per_token,
    }


def make_drawn(rng, dtype):
    sizes = drawn(rng, num_heads=(3, 200), new_tokens=(2, 5), latent_dim=(200, 900), rope_dim=(20, 100))
    return sizes | drawn(rng, cache_bytes_per_token=(300, 2000))


def oracle(num_heads, new_tokens, latent_dim, rope_dim, cache_bytes_per_token):
    return roofline.arithmetic_intensity(num_heads, new_tokens, latent_dim, rope_dim, cache_bytes_per_token)


def multiply_adds(num_heads, new_tokens, latent_dim, rope_dim, cache_bytes_per_token):
    return num_heads * new_tokens * (2 * latent_dim + rope_dim) / cache_bytes_per_token


def one_head(num_heads, new_tokens, latent_dim, rope_dim, cache_bytes_per_token):
    return 2 * new_tokens * (2 * latent_dim + rope_dim) / cache_bytes_per_token


def one_new_token(num_heads, new_tokens, latent_dim, rope_dim, cache_bytes_per_token):
    return 2 * num_heads * (2 * latent_dim + rope_dim) / cache_bytes_per_token


def scores_alone(num_heads, new_tokens, latent_dim, rope_dim, cache_bytes_per_token):
    return 2 * num_heads * new_tokens * (latent_dim + rope_dim) / cache_bytes_per_token


def rope_mixed_too(num_heads, new_tokens, latent_dim, rope_dim, cache_bytes_per_token):
    return 4 * num_heads * new_tokens * (latent_dim + rope_dim) / cache_bytes_per_token


def rope_forgotten(num_heads, new_tokens, latent_dim, rope_dim, cache_bytes_per_token):
    return 4 * num_heads * new_tokens * latent_dim / cache_bytes_per_token


def bytes_of_bf16(num_heads, new_tokens, latent_dim, rope_dim, cache_bytes_per_token):
    return num_heads * new_tokens * (2 * latent_dim + rope_dim) / (latent_dim + rope_dim)


def queries_counted(num_heads, new_tokens, latent_dim, rope_dim, cache_bytes_per_token):
    rows = num_heads * new_tokens
    return 2 * rows * (2 * latent_dim + rope_dim) / (cache_bytes_per_token + 2 * rows * (2 * latent_dim + rope_dim))


def no_bytes_forgotten(num_heads, new_tokens, latent_dim, rope_dim, cache_bytes_per_token):
    return 2 * num_heads * new_tokens * (2 * latent_dim + rope_dim) / cache_bytes_per_token


EXERCISE = Exercise(
    id="arithmetic_intensity",
    chapter=7,
    order=4,
    title="FLOP for each cached byte",
    checks="FLOP of all query rows on an entry, over the bytes of the entry",
    points=2,
    difficulty=1,
    minutes=6,
    make=make,
    oracle=oracle,
    cases=(
        Case(
            "an entry by hand",
            {"num_heads": 2, "new_tokens": 1, "latent_dim": 3, "rope_dim": 1, "cache_bytes_per_token": 8},
        ),
        Case(
            "DeepSeek-V3",
            {"num_heads": 128, "new_tokens": 1, "latent_dim": 512, "rope_dim": 64, "cache_bytes_per_token": 1152},
        ),
        Case(
            "an eighth of its heads, FP8",
            {"num_heads": 16, "new_tokens": 1, "latent_dim": 512, "rope_dim": 64, "cache_bytes_per_token": 656},
        ),
        Case(
            "three drafts verified",
            {"num_heads": 40, "new_tokens": 4, "latent_dim": 256, "rope_dim": 32, "cache_bytes_per_token": 576},
        ),
        Case("sizes drawn at random", make=make_drawn),
        Case(
            "no rope",
            {"num_heads": 96, "new_tokens": 2, "latent_dim": 512, "rope_dim": 0, "cache_bytes_per_token": 1024},
        ),
        Case(
            "no new token",
            {"num_heads": 16, "new_tokens": 0, "latent_dim": 512, "rope_dim": 64, "cache_bytes_per_token": 1152},
        ),
        Case(
            "nothing cached",
            {"num_heads": 16, "new_tokens": 3, "latent_dim": 0, "rope_dim": 0, "cache_bytes_per_token": 0},
        ),
    ),
    hints=(
        "Take one entry of the cache, and follow what one head of one new token does with it. It is used twice: how "
        "wide is it each time?",
        "As a key the entry is latent and rope, as a value the latent alone. That many multiply-adds are done by each "
        "head of each new token, with two FLOP in each. The entry's bytes are read once for all of them.",
        "Fill the gaps:\n\n"
        "    rows = ____\n"
        "    flops = 2 * rows * ____\n"
        "    return ____  # math.inf where no byte is read",
    ),
    mistakes=(
        Mistake(
            "half of it",
            "this is half of it: multiply-adds are two FLOP each, and an entry is read once, as key and value",
            multiply_adds,
        ),
        Mistake(
            "one head",
            "this is one head's arithmetic over the entry's bytes, or all heads' over bytes read for each. One reading "
            "serves all heads",
            one_head,
        ),
        Mistake(
            "one new token",
            "the new tokens are missing: each brings a row for every head, on the same bytes",
            one_new_token,
        ),
        Mistake("scores alone", "the values are missing: after the scores the latents are mixed", scores_alone),
        Mistake(
            "rope dims mixed too",
            "the rope part is counted in the mix. It takes part in the scores only",
            rope_mixed_too,
        ),
        Mistake("rope dims forgotten", "the scores are latent_dim + rope_dim wide", rope_forgotten),
        Mistake(
            "bytes of bf16",
            "these are the bytes of a bf16 entry. Take cache_bytes_per_token as it is given",
            bytes_of_bf16,
        ),
        Mistake(
            "queries counted",
            "queries and outputs are not to be counted: in a long cache they are nothing",
            queries_counted,
        ),
    ),
    mutants=(
        Mutant(multiply_adds, "half of it"),
        Mutant(one_head, "one head"),
        Mutant(one_new_token, "one new token"),
        Mutant(scores_alone, "scores alone"),
        Mutant(rope_mixed_too, "rope dims mixed too"),
        Mutant(rope_forgotten, "rope dims forgotten"),
        Mutant(bytes_of_bf16, "bytes of bf16"),
        Mutant(queries_counted, "queries counted"),
        Mutant(no_bytes_forgotten, "ZeroDivisionError", verdict="error"),
    ),
)
