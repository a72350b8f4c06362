"""Chapter 2: what merging the query's and the key's up-projection offline would cost in weights."""

import math

from ledger.account.attention import merged_query_key_elements
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import drawn


def make(rng, dtype, q_lora_dim, latent_dim, nope_dim, num_heads):
    return {"q_lora_dim": q_lora_dim, "latent_dim": latent_dim, "nope_dim": nope_dim, "num_heads": num_heads}


def make_drawn(rng, dtype):
    return drawn(rng, q_lora_dim=(300, 2000), latent_dim=(100, 900), nope_dim=(30, 300), num_heads=(2, 128))


def oracle(q_lora_dim, latent_dim, nope_dim, num_heads):
    merged, apart = merged_query_key_elements(q_lora_dim, latent_dim, nope_dim, num_heads)
    return merged / apart if apart else math.inf


def upside_down(q_lora_dim, latent_dim, nope_dim, num_heads):
    return nope_dim * (q_lora_dim + latent_dim) / (q_lora_dim * latent_dim)


def rope_counted(q_lora_dim, latent_dim, nope_dim, num_heads):
    rope_dim = 64
    return q_lora_dim * latent_dim / (q_lora_dim * (nope_dim + rope_dim) + latent_dim * nope_dim)


def one_merged_matrix_for_all_heads(q_lora_dim, latent_dim, nope_dim, num_heads):
    return q_lora_dim * latent_dim / (num_heads * nope_dim * (q_lora_dim + latent_dim))


def one_head_kept_apart(q_lora_dim, latent_dim, nope_dim, num_heads):
    return num_heads * q_lora_dim * latent_dim / (nope_dim * (q_lora_dim + latent_dim))


def only_the_query_factor(q_lora_dim, latent_dim, nope_dim, num_heads):
    return latent_dim / nope_dim


def only_the_key_factor(q_lora_dim, latent_dim, nope_dim, num_heads):
    return q_lora_dim / nope_dim


def zero_widths_forgotten(q_lora_dim, latent_dim, nope_dim, num_heads):
    return q_lora_dim * latent_dim / (nope_dim * (q_lora_dim + latent_dim))


def a_whole_number(q_lora_dim, latent_dim, nope_dim, num_heads):
    apart = nope_dim * (q_lora_dim + latent_dim)
    return q_lora_dim * latent_dim // apart if apart else float("inf")


EXERCISE = Exercise(
    id="merged_weight_ratio",
    chapter=2,
    order=4,
    title="why not one merged matrix",
    checks="elements of W_UQ·W_UK merged offline, over elements of the two kept apart",
    points=1,
    difficulty=1,
    minutes=6,
    make=make,
    oracle=oracle,
    cases=(
        Case("small widths", {"q_lora_dim": 5, "latent_dim": 4, "nope_dim": 2, "num_heads": 3}),
        Case("DeepSeek-V3", {"q_lora_dim": 1536, "latent_dim": 512, "nope_dim": 128, "num_heads": 128}),
        Case("GLM-5.2", {"q_lora_dim": 2048, "latent_dim": 512, "nope_dim": 192, "num_heads": 64}),
        Case("merging saves", {"q_lora_dim": 96, "latent_dim": 80, "nope_dim": 70, "num_heads": 7}),
        Case("one head", {"q_lora_dim": 384, "latent_dim": 128, "nope_dim": 48, "num_heads": 1}),
        Case("sizes drawn at random", make=make_drawn),
        Case("no nope width", {"q_lora_dim": 384, "latent_dim": 128, "nope_dim": 0, "num_heads": 4}),
        Case("no heads", {"q_lora_dim": 384, "latent_dim": 128, "nope_dim": 48, "num_heads": 0}),
        Case("no latent", {"q_lora_dim": 384, "latent_dim": 0, "nope_dim": 48, "num_heads": 4}),
    ),
    hints=(
        "For one head, write the shapes of three matrices: W_UQ, W_UK, and their product. Which width is gone in the "
        "product?",
        "The nope width is summed away, so the product has one row for each query latent feature and one column for "
        "each latent feature. The two factors have nope_dim numbers for each of those rows and for each of those "
        "columns. Multiply by the heads on both sides, and mind a denominator of 0.",
        "Fill the gaps:\n\n"
        "    merged = num_heads * ____\n"
        "    apart = num_heads * nope_dim * ____\n"
        "    return ____  # math.inf where apart is 0",
    ),
    mistakes=(
        Mistake("upside down", "this is apart over merged; merged over apart is asked for", upside_down),
        Mistake(
            "rope dims counted",
            "W_UQ is counted with its 64 rope columns. Those are rotated, not merged: only nope_dim columns take part",
            rope_counted,
        ),
        Mistake(
            "one merged matrix for all heads",
            "each head has a product of its own: the merged elements must be counted num_heads times",
            one_merged_matrix_for_all_heads,
        ),
        Mistake(
            "one head kept apart",
            "the merged elements count all heads, the ones kept apart only one",
            one_head_kept_apart,
        ),
        Mistake("W_UK left out", "apart means both factors: W_UK is missing", only_the_query_factor),
        Mistake("W_UQ left out", "apart means both factors: W_UQ is missing", only_the_key_factor),
    ),
    mutants=(
        Mutant(upside_down, "upside down"),
        Mutant(rope_counted, "rope dims counted"),
        Mutant(one_merged_matrix_for_all_heads, "one merged matrix for all heads"),
        Mutant(one_head_kept_apart, "one head kept apart"),
        Mutant(only_the_query_factor, "W_UK left out"),
        Mutant(only_the_key_factor, "W_UQ left out"),
        Mutant(zero_widths_forgotten, "ZeroDivisionError", verdict="error"),
        Mutant(a_whole_number, "wanted"),
    ),
)
