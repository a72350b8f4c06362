"""Chapter 3: what merging the value's up-projection and the output projection offline would cost in weights."""

import math

from ledger.account.values import merged_value_output_elements
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import drawn


def make(rng, dtype, hidden_dim, latent_dim, value_dim, num_heads):
    return {"hidden_dim": hidden_dim, "latent_dim": latent_dim, "value_dim": value_dim, "num_heads": num_heads}


def make_drawn(rng, dtype):
    return drawn(rng, hidden_dim=(1000, 9000), latent_dim=(100, 900), value_dim=(30, 300), num_heads=(2, 128))


def oracle(hidden_dim, latent_dim, value_dim, num_heads):
    weights = merged_value_output_elements(hidden_dim, latent_dim, value_dim, num_heads)
    return weights.ratio if weights.apart else math.inf


def upside_down(hidden_dim, latent_dim, value_dim, num_heads):
    return value_dim * (hidden_dim + latent_dim) / (hidden_dim * latent_dim)


def one_merged_matrix_for_all_heads(hidden_dim, latent_dim, value_dim, num_heads):
    return hidden_dim * latent_dim / (num_heads * value_dim * (hidden_dim + latent_dim))


def one_head_kept_apart(hidden_dim, latent_dim, value_dim, num_heads):
    return num_heads * hidden_dim * latent_dim / (value_dim * (hidden_dim + latent_dim))


def only_the_value_factor(hidden_dim, latent_dim, value_dim, num_heads):
    return hidden_dim / value_dim


def only_the_output_factor(hidden_dim, latent_dim, value_dim, num_heads):
    return latent_dim / value_dim


def output_factor_shared(hidden_dim, latent_dim, value_dim, num_heads):
    return num_heads * hidden_dim * latent_dim / (value_dim * (num_heads * latent_dim + hidden_dim))


def zero_widths_forgotten(hidden_dim, latent_dim, value_dim, num_heads):
    return hidden_dim * latent_dim / (value_dim * (hidden_dim + latent_dim))


def a_whole_number(hidden_dim, latent_dim, value_dim, num_heads):
    apart = value_dim * (hidden_dim + latent_dim)
    return hidden_dim * latent_dim // apart if apart else float("inf")


EXERCISE = Exercise(
    id="merged_output_ratio",
    chapter=3,
    order=7,
    title="why not one merged output matrix",
    checks="elements of W_UV·W_O merged offline, over elements of the two kept apart",
    points=1,
    difficulty=1,
    minutes=5,
    make=make,
    oracle=oracle,
    cases=(
        Case("small widths", {"hidden_dim": 7, "latent_dim": 4, "value_dim": 2, "num_heads": 3}),
        Case("DeepSeek-V3", {"hidden_dim": 7168, "latent_dim": 512, "value_dim": 128, "num_heads": 128}),
        Case("GLM-5.2", {"hidden_dim": 6144, "latent_dim": 512, "value_dim": 256, "num_heads": 64}),
        Case("merging saves", {"hidden_dim": 96, "latent_dim": 80, "value_dim": 70, "num_heads": 7}),
        Case("one head", {"hidden_dim": 384, "latent_dim": 128, "value_dim": 48, "num_heads": 1}),
        Case("sizes drawn at random", make=make_drawn),
        Case("no value width", {"hidden_dim": 384, "latent_dim": 128, "value_dim": 0, "num_heads": 4}),
        Case("no heads", {"hidden_dim": 384, "latent_dim": 128, "value_dim": 48, "num_heads": 0}),
        Case("no latent", {"hidden_dim": 384, "latent_dim": 0, "value_dim": 48, "num_heads": 4}),
        Case("no hidden width", {"hidden_dim": 0, "latent_dim": 128, "value_dim": 48, "num_heads": 4}),
    ),
    hints=(
        "For one head, write the shapes of three matrices: W_UV, the head's own rows of W_O, and their product. Which "
        "width is gone in the product?",
        "value_dim is summed away, so a head's product reaches from the latent to the hidden state. Its factors have "
        "value_dim numbers for each latent feature and for each hidden feature. W_O holds a block of rows for every "
        "head. Mind a denominator of 0.",
        "Fill the gaps:\n\n"
        "    merged = num_heads * ____\n"
        "    apart = num_heads * value_dim * ____\n"
        "    return ____  # math.inf where apart is 0",
    ),
    mistakes=(
        Mistake("upside down", "this is apart over merged; merged over apart is asked for", upside_down),
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
        Mistake("W_O left out", "apart means both factors: W_O is missing", only_the_value_factor),
        Mistake("W_UV left out", "apart means both factors: W_UV is missing", only_the_output_factor),
        Mistake(
            "one block of W_O for all heads",
            "W_O is counted for a single head. It has num_heads · value_dim rows: a block for each head",
            output_factor_shared,
        ),
    ),
    mutants=(
        Mutant(upside_down, "upside down"),
        Mutant(one_merged_matrix_for_all_heads, "one merged matrix for all heads"),
        Mutant(one_head_kept_apart, "one head kept apart"),
        Mutant(only_the_value_factor, "W_O left out"),
        Mutant(only_the_output_factor, "W_UV left out"),
        Mutant(output_factor_shared, "one block of W_O for all heads"),
        Mutant(zero_widths_forgotten, "ZeroDivisionError", verdict="error"),
        Mutant(a_whole_number, "wanted"),
    ),
)
