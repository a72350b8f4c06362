"""Chapter 11: three branches, each through its gate."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import normal


def make(rng, dtype, heads, dim):
    """Gates as a sigmoid leaves them."""
    return {
        "branches": normal(rng, dtype, 3, heads, dim),
        "gates": rng.uniform(0.05, 0.95, (3, heads)).astype(dtype),
    }


def make_toy(rng, dtype, **dims):
    branches = np.array([[(4, 0)], [(0, 8)], [(2, 2)]], dtype)
    return {"branches": branches, "gates": np.array([[0.5], [0.25], [1.0]], dtype)}


def make_open_and_shut(rng, dtype, heads, dim):
    """Gates of exactly 0 and 1, all open in one head and all shut in another."""
    gates = rng.integers(0, 2, (3, heads)).astype(dtype)
    gates[:, 0], gates[:, -1] = 1, 0
    return make(rng, dtype, heads, dim) | {"gates": gates}


def oracle(branches, gates):
    """A matrix for each head, (1, 3) times (3, dim)."""
    wide = np.asarray(branches, np.float64), np.asarray(gates, np.float64)
    return np.einsum("bhd,bh->hd", *wide).astype(branches.dtype)


def normalised(branches, gates):
    with np.errstate(invalid="ignore"):
        return (branches * gates[:, :, None]).sum(axis=0) / gates.sum(axis=0)[:, None]


def softmax_of_the_gates(branches, gates):
    shares = np.exp(gates) / np.exp(gates).sum(axis=0)
    return (branches * shares[:, :, None]).sum(axis=0)


def sigmoid_again(branches, gates):
    return (branches * (1 / (1 + np.exp(-gates)))[:, :, None]).sum(axis=0)


def gates_left_out(branches, gates):
    return branches.sum(axis=0)


def mean_of_the_branches(branches, gates):
    return (branches * gates[:, :, None]).mean(axis=0)


def reversed_gates(branches, gates):
    return (branches * gates[::-1, :, None]).sum(axis=0)


def one_gate_for_all_heads(branches, gates):
    return (branches * gates[:, :1, None]).sum(axis=0)


def gates_along_the_features(branches, gates):
    return (branches * gates[:, None, :]).sum(axis=0)


def heads_added(branches, gates):
    return (branches * gates[:, :, None]).sum(axis=1)


def not_added(branches, gates):
    return branches * gates[:, :, None]


def always_float64(branches, gates):
    return np.einsum("bhd,bh->hd", branches.astype(np.float64), gates.astype(np.float64))


EXERCISE = Exercise(
    id="gated_sum",
    chapter=11,
    order=5,
    title="three gates",
    checks="the three branches, each times its head's gate, added",
    points=1,
    difficulty=1,
    minutes=5,
    make=make,
    oracle=oracle,
    cases=(
        Case("one head by hand", make=make_toy),
        Case("odd sizes", {"heads": 5, "dim": 7}),
        Case("as many heads as features", {"heads": 6, "dim": 6}),
        Case("three heads of three features", {"heads": 3, "dim": 3}),
        Case("one head", {"heads": 1, "dim": 9}),
        Case("one feature", {"heads": 4, "dim": 1}),
        Case("no heads", {"heads": 0, "dim": 8}),
        Case("gates of 0 and 1", {"heads": 8, "dim": 5}, make=make_open_and_shut),
        Case("float32", {"heads": 6, "dim": 10}, dtype="float32"),
        Case("strided inputs", {"heads": 4, "dim": 11}, layout="strided"),
        Case("a group of the paper", {"heads": 16, "dim": 128}),
    ),
    hints=(
        "A gate is one number for a branch and a head. Which axes does it lack that the branches have?",
        "`gates[:, :, None]` gives the gates an axis of length 1 at the end, which stretches over the features. Which "
        "axis is to be added up then? What are the gates divided by? (By nothing.)",
        "Fill the gaps:\n\n    gated = branches * gates[____]\n    return gated.sum(axis=____)",
    ),
    mistakes=(
        Mistake(
            "gates normalised",
            "the gates were made to add up to 1. Each is a sigmoid of its own, and they add up to what they add up to",
            normalised,
        ),
        Mistake(
            "softmax of the gates", "the gates went through a softmax. Take them as they are", softmax_of_the_gates
        ),
        Mistake(
            "sigmoid again", "the gates went through a sigmoid once more. They have been through it", sigmoid_again
        ),
        Mistake("gates left out", "the branches were added without their gates", gates_left_out),
        Mistake("mean of the branches", "this is a third of the sum", mean_of_the_branches),
        Mistake("gates reversed", "the gates are in the order of the branches; here they are reversed", reversed_gates),
        Mistake(
            "one gate for all heads",
            "the first head's gates are used for all. Each has its own",
            one_gate_for_all_heads,
        ),
        Mistake(
            "gates along the features",
            "the gates lie along the features. They belong to the heads, which are the axis before",
            gates_along_the_features,
        ),
    ),
    mutants=(
        Mutant(normalised, "gates normalised"),
        Mutant(softmax_of_the_gates, "softmax of the gates"),
        Mutant(sigmoid_again, "sigmoid again"),
        Mutant(gates_left_out, "gates left out"),
        Mutant(mean_of_the_branches, "mean of the branches"),
        Mutant(reversed_gates, "gates reversed"),
        Mutant(one_gate_for_all_heads, "one gate for all heads"),
        Mutant(gates_along_the_features, "gates along the features", verdict="error"),
        Mutant(heads_added, "has shape"),
        Mutant(not_added, "has shape"),
        Mutant(always_float64, "dtype float64; wanted float32"),
    ),
)
