"""Chapter 2: cut the packed up-projection into one small matrix a head, as engines do at load time."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import TOY_HEAD_1, TOY_W_K, TOY_W_V, normal
from ledger.reference import mla


def make(rng, dtype, num_heads, nope_dim, value_dim, latent_dim):
    rows = num_heads * (nope_dim + value_dim)
    return {
        "kv_b": normal(rng, dtype, rows, latent_dim),
        "num_heads": num_heads,
        "nope_dim": nope_dim,
        "value_dim": value_dim,
    }


def make_numbered(rng, dtype, num_heads, nope_dim, value_dim, latent_dim):
    """Every element says where it stands, in steps that float32 cannot tell apart and the tolerance can."""
    rows = num_heads * (nope_dim + value_dim)
    places = rng.integers(1000) + np.arange(rows * latent_dim, dtype=dtype).reshape(rows, latent_dim)
    return {"kv_b": 2.0**40 + 2.0**16 * places, "num_heads": num_heads, "nope_dim": nope_dim, "value_dim": value_dim}


def make_toy(rng, dtype, num_heads, nope_dim, value_dim, latent_dim):
    """Head 0 is the toy of one head; head 1 has value rows that the eye can follow."""
    packed = np.array([*np.transpose(TOY_W_K), *np.transpose(TOY_W_V), *TOY_HEAD_1, (7, 7, 7), (9, 9, 9)], dtype)
    return {"kv_b": packed, "num_heads": num_heads, "nope_dim": nope_dim, "value_dim": value_dim}


def values_before_keys(kv_b, num_heads, nope_dim, value_dim):
    per_head = kv_b.reshape(num_heads, value_dim + nope_dim, kv_b.shape[1])
    return per_head[:, value_dim:].copy(), per_head[:, :value_dim].swapaxes(1, 2).copy()


def heads_interleaved(kv_b, num_heads, nope_dim, value_dim):
    per_head = kv_b.reshape(nope_dim + value_dim, num_heads, kv_b.shape[1]).swapaxes(0, 1)
    return per_head[:, :nope_dim].copy(), per_head[:, nope_dim:].swapaxes(1, 2).copy()


def all_keys_then_all_values(kv_b, num_heads, nope_dim, value_dim):
    latent_dim = kv_b.shape[1]
    keys, values = kv_b[: num_heads * nope_dim], kv_b[num_heads * nope_dim :]
    w_kc = keys.reshape(num_heads, nope_dim, latent_dim)
    return w_kc.copy(), values.reshape(num_heads, value_dim, latent_dim).swapaxes(1, 2).copy()


def values_not_transposed(kv_b, num_heads, nope_dim, value_dim):
    per_head = kv_b.reshape(num_heads, nope_dim + value_dim, kv_b.shape[1])
    return per_head[:, :nope_dim].copy(), per_head[:, nope_dim:].copy()


def values_reshaped(kv_b, num_heads, nope_dim, value_dim):
    latent_dim = kv_b.shape[1]
    per_head = kv_b.reshape(num_heads, nope_dim + value_dim, latent_dim)
    return per_head[:, :nope_dim].copy(), per_head[:, nope_dim:].reshape(num_heads, latent_dim, value_dim)


def both_transposed(kv_b, num_heads, nope_dim, value_dim):
    per_head = kv_b.reshape(num_heads, nope_dim + value_dim, kv_b.shape[1]).swapaxes(1, 2)
    return per_head[:, :, :nope_dim].copy(), per_head[:, :, nope_dim:].copy()


def cut_in_halves(kv_b, num_heads, nope_dim, value_dim):
    per_head = kv_b.reshape(num_heads, nope_dim + value_dim, kv_b.shape[1])
    middle = (nope_dim + value_dim) // 2
    return per_head[:, :middle].copy(), per_head[:, middle:].swapaxes(1, 2).copy()


EXERCISE = Exercise(
    id="split_kv_b",
    chapter=2,
    order=1,
    title="cut the packed weight",
    checks="one key matrix and one value matrix a head, out of the packed kv_b",
    points=2,
    difficulty=2,
    minutes=10,
    make=make,
    oracle=mla.split_kv_b,
    returns=("w_kc", "w_vc"),
    may_share=True,
    cases=(
        Case("square sizes", {"num_heads": 3, "nope_dim": 3, "value_dim": 3, "latent_dim": 3}),
        Case(
            "the toy by hand, two heads",
            {"num_heads": 2, "nope_dim": 2, "value_dim": 2, "latent_dim": 3},
            make=make_toy,
        ),
        Case("odd sizes, values wider", {"num_heads": 3, "nope_dim": 5, "value_dim": 7, "latent_dim": 9}),
        Case("keys wider", {"num_heads": 4, "nope_dim": 6, "value_dim": 2, "latent_dim": 5}),
        Case("one head, one row of each", {"num_heads": 1, "nope_dim": 1, "value_dim": 1, "latent_dim": 6}),
        Case("no heads", {"num_heads": 0, "nope_dim": 3, "value_dim": 2, "latent_dim": 5}),
        Case("no value rows", {"num_heads": 2, "nope_dim": 3, "value_dim": 0, "latent_dim": 5}),
        Case(
            "huge numbered elements",
            {"num_heads": 3, "nope_dim": 4, "value_dim": 6, "latent_dim": 5},
            make=make_numbered,
        ),
        Case("float32", {"num_heads": 2, "nope_dim": 6, "value_dim": 5, "latent_dim": 7}, dtype="float32"),
        Case(
            "strided inputs",
            {"num_heads": 4, "nope_dim": 3, "value_dim": 5, "latent_dim": 10},
            layout="strided",
        ),
        Case(
            "Mistral Small 4 widths, two heads",
            {"num_heads": 2, "nope_dim": 64, "value_dim": 128, "latent_dim": 256},
            make=make_numbered,
        ),
    ),
    hints=(
        "Which head and which feature does row number r belong to, when every head brings nope_dim + value_dim rows? "
        "Quotient and remainder of r answer it, and a reshape does the division for all rows at once.",
        "Give the rows two axes: the head, and the place within the head. Then cut the second one after nope_dim. The "
        "value part comes out as (num_heads, value_dim, latent_dim): one more step swaps its last two axes.",
        "Fill the gaps, and return both:\n\n"
        "    by_head = kv_b.reshape(____, ____, ____)  # head, place within the head, latent\n"
        "    w_kc = by_head[:, ____]\n"
        "    w_vc = by_head[:, ____]  # and swap its last two axes",
    ),
    mistakes=(
        Mistake(
            "values before keys",
            "each head's rows are cut as [value | nope]. They stand as [nope | value]",
            values_before_keys,
        ),
        Mistake(
            "heads interleaved",
            "the head is taken to change from row to row. All rows of one head stand together: the head is the slow "
            "index",
            heads_interleaved,
        ),
        Mistake(
            "all keys, then all values",
            "the key rows of all heads are taken from the top. Each head brings its value rows right after its own "
            "keys",
            all_keys_then_all_values,
        ),
        Mistake(
            "w_vc not transposed",
            "w_vc keeps the rows as rows. Its last two axes must be swapped, to (latent_dim, value_dim) a head; a "
            "reshape mends the shape only",
            values_reshaped,
        ),
        Mistake(
            "w_vc left as the rows lie",
            "w_vc is (num_heads, value_dim, latent_dim). Swap its last two axes",
            values_not_transposed,
        ),
        Mistake(
            "w_kc transposed",
            "w_kc is (num_heads, latent_dim, nope_dim). Its rows stay as they lie: (nope_dim, latent_dim) for each "
            "head",
            both_transposed,
        ),
    ),
    mutants=(
        Mutant(values_before_keys, "values before keys"),
        Mutant(heads_interleaved, "heads interleaved"),
        Mutant(all_keys_then_all_values, "all keys, then all values"),
        Mutant(values_reshaped, "w_vc not transposed"),
        Mutant(values_not_transposed, "w_vc left as the rows lie"),
        Mutant(both_transposed, "w_kc transposed"),
        Mutant(cut_in_halves, "has shape (3, 6, 9); wanted (3, 5, 9)"),
    ),
)
