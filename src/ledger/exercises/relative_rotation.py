"""Chapter 4: what stands between an unrotated query and an unrotated key."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import drawn
from ledger.reference import rope


def make(rng, dtype, m, n, rope_dim, theta=10000.0):
    return {"m": m, "n": n, "rope_dim": rope_dim, "theta": theta}


def make_drawn(rng, dtype):
    sizes = drawn(rng, m=(200, 900), n=(0, 190), pairs=(3, 9))
    return {"m": sizes["m"], "n": sizes["n"], "rope_dim": 2 * sizes["pairs"], "theta": 50000.0}


def wrong_way_round(m, n, rope_dim, theta):
    angles = (m - n) * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    matrix = np.zeros((rope_dim, rope_dim))
    first, second = np.arange(0, rope_dim, 2), np.arange(1, rope_dim, 2)
    matrix[first, first] = matrix[second, second] = np.cos(angles)
    matrix[first, second], matrix[second, first] = -np.sin(angles), np.sin(angles)
    return matrix


def positions_added(m, n, rope_dim, theta):
    angles = (m + n) * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    matrix = np.zeros((rope_dim, rope_dim))
    first, second = np.arange(0, rope_dim, 2), np.arange(1, rope_dim, 2)
    matrix[first, first] = matrix[second, second] = np.cos(angles)
    matrix[first, second], matrix[second, first] = -np.sin(angles), np.sin(angles)
    return matrix


def distance_without_sign(m, n, rope_dim, theta):
    angles = abs(n - m) * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    matrix = np.zeros((rope_dim, rope_dim))
    first, second = np.arange(0, rope_dim, 2), np.arange(1, rope_dim, 2)
    matrix[first, first] = matrix[second, second] = np.cos(angles)
    matrix[first, second], matrix[second, first] = -np.sin(angles), np.sin(angles)
    return matrix


def halves_paired(m, n, rope_dim, theta):
    angles = (n - m) * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    matrix = np.zeros((rope_dim, rope_dim))
    first, second = np.arange(rope_dim // 2), np.arange(rope_dim // 2, rope_dim)
    matrix[first, first] = matrix[second, second] = np.cos(angles)
    matrix[first, second], matrix[second, first] = -np.sin(angles), np.sin(angles)
    return matrix


def only_the_key_turned(m, n, rope_dim, theta):
    angles = n * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    matrix = np.zeros((rope_dim, rope_dim))
    first, second = np.arange(0, rope_dim, 2), np.arange(1, rope_dim, 2)
    matrix[first, first] = matrix[second, second] = np.cos(angles)
    matrix[first, second], matrix[second, first] = -np.sin(angles), np.sin(angles)
    return matrix


def cosines_only(m, n, rope_dim, theta):
    angles = (n - m) * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)
    return np.diag(np.repeat(np.cos(angles), 2))


EXERCISE = Exercise(
    id="relative_rotation",
    chapter=4,
    order=3,
    title="what a score holds",
    checks="the one matrix between an unrotated query at m and an unrotated key at n",
    points=2,
    difficulty=2,
    minutes=8,
    make=make,
    oracle=rope.relative_rotation,
    cases=(
        Case("the toy by hand", {"m": 1, "n": 3, "rope_dim": 2}),
        Case("query after key", {"m": 7, "n": 3, "rope_dim": 6}),
        Case("key after query", {"m": 3, "n": 7, "rope_dim": 6}),
        Case("the same position", {"m": 11, "n": 11, "rope_dim": 4}),
        Case("key at the start", {"m": 5, "n": 0, "rope_dim": 10}),
        Case("no rope width", {"m": 5, "n": 2, "rope_dim": 0}),
        Case("positions drawn at random", make=make_drawn),
        Case("DeepSeek-V3 width, far apart", {"m": 131_071, "n": 4096, "rope_dim": 64}),
    ),
    hints=(
        "A rotated vector is a matrix times the vector. Write the dot product of two rotated vectors with the "
        "transpose sign, and see which two matrices come to stand next to each other.",
        "They are R_mᵀ and R_n. A transposed rotation turns backwards, and turning back by m and then forward by n is "
        "turning once. By how much? Put the cosines of that on the diagonal, and beside them the sines of each pair, "
        "one of them with a minus.",
        "Fill the gaps:\n\n"
        "    angles = ____ * theta ** (-np.arange(0, rope_dim, 2) / rope_dim)\n"
        "    first, second = ____, ____  # the two features of each pair, as indices\n"
        "    matrix[first, first] = matrix[second, second] = ____\n"
        "    matrix[first, second], matrix[second, first] = ____, ____",
    ),
    mistakes=(
        Mistake(
            "distance without its sign",
            "this turns by |n − m|. A key behind the query is turned the other way",
            distance_without_sign,
        ),
        Mistake(
            "the wrong way round",
            "this turns by m − n. The query's matrix is transposed, so it is the query that turns back: n − m",
            wrong_way_round,
        ),
        Mistake(
            "positions added",
            "this turns by m + n. R_m stands transposed in the dot product, and turns back",
            positions_added,
        ),
        Mistake(
            "halves paired",
            "feature i is paired with i + rope_dim / 2. The pairs here are (0, 1), (2, 3), …",
            halves_paired,
        ),
        Mistake("only the key turned", "this is R_n alone: the query is turned too", only_the_key_turned),
        Mistake("cosines only", "the sines are missing: a pair's two features mix", cosines_only),
    ),
    mutants=(
        Mutant(wrong_way_round, "the wrong way round"),
        Mutant(positions_added, "positions added"),
        Mutant(distance_without_sign, "distance without its sign"),
        Mutant(halves_paired, "halves paired"),
        Mutant(only_the_key_turned, "only the key turned"),
        Mutant(cosines_only, "cosines only"),
    ),
)
