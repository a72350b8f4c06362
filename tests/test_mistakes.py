"""Known mistakes that any exercise can meet: each made by code in a real exercise and named, and no name by chance."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from ledger import exercises
from ledger.judge.compare import difference
from ledger.judge.mistakes import Wrong, recognise, recognise_each
from ledger.judge.notebook import run_here
from ledger.judge.transformations import LIBRARY

REGISTRY = exercises.registry()
NAMES = {one.name for one in LIBRARY}


def even(change):
    """``change`` where the last axis has two halves of at least two, the right value elsewhere."""
    return lambda x, *args: change(x) if x.shape[-1] % 2 == 0 and x.shape[-1] > 2 else x


def brain_float(x, *args):
    """A float array cut to the first 16 bits of float32."""
    return (x.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(x.dtype)


def shifted_in(x, *args):
    """Rows one place later, and zeros for the first."""
    return np.concatenate([np.zeros_like(x[:1]), x[:-1]])


def without_sum(x, *args):
    """The rows that sum up to ``x``."""
    return np.concatenate([x[:1], x[1:] - x[:-1]])


def causal(x, *args):
    """Scores with the later tokens masked, where there are several tokens."""
    return np.where(np.triu(np.ones(x.shape, bool), 1) & (len(x) > 1), -np.inf, x)


#: (name, exercise, what code with the mistake makes of the right value and the arguments)
MADE = [
    ("transposed", "absorb_query", lambda x, *_: x.T),
    ("transposed", "scores_shared_latent", lambda x, *_: np.swapaxes(x, 0, 2)),
    ("another dtype", "absorb_query", lambda x, *_: x.astype(np.float32)),
    ("another dtype", "absorb_query", lambda x, *_: x.astype(np.float64)),
    ("another dtype", "absorb_query", lambda x, *_: x.astype(np.int64)),
    ("another dtype", "absorb_query", lambda x, *_: np.rint(x).astype(np.int64)),
    ("another dtype", "physical_slots", lambda x, *_: x.astype(np.float64)),
    ("another dtype", "physical_slots", lambda x, *_: x.astype(np.int32)),
    ("another dtype", "rope_tables", lambda x, *_: (x[0], x[1].astype(np.float32))),
    ("another shape", "absorb_query", lambda x, *_: x.ravel()),
    ("another shape", "absorb_query", lambda x, *_: x[None]),
    ("another shape", "absorb_query", lambda x, *_: x.squeeze()),
    ("another shape", "absorb_heads", lambda x, *_: x.reshape(len(x), -1)),
    ("number in an array", "arithmetic_intensity", lambda x, *_: np.array([x])),
    ("number in an array", "nsa_tokens_read", lambda x, *_: np.array([[x]])),
    ("not an array", "absorb_query", lambda x, *_: x.tolist()),
    ("not an array", "physical_slots", lambda x, *_: x.tolist()),
    ("float for a count", "nsa_tokens_read", lambda x, *_: float(x)),
    ("float for a count", "materialize_macs", lambda x, *_: {**x, "total": float(x["total"])}),
    ("other keys", "materialize_macs", lambda x, *_: {key.upper(): value for key, value in x.items()}),
    ("other keys", "absorb_macs", lambda x, *_: {"sum" if k == "total" else k: value for k, value in x.items()}),
    ("another container", "materialize_macs", lambda x, *_: tuple(x.values())),
    ("another container", "pair_flops", lambda x, *_: np.array(x)),
    ("another container", "pair_flops", lambda x, *_: dict(zip("abc", x, strict=True))),
    ("wrong order", "pair_flops", lambda x, *_: (x[2], x[0], x[1])),
    ("wrong order", "project_mla", lambda x, *_: (x[2], x[3], x[1], x[0])),
    ("wrong order", "merge_partials", lambda x, *_: x[::-1]),
    ("one too few", "absorb_query", lambda x, *_: x[:-1]),
    ("one too few", "absorb_query", lambda x, *_: x[1:]),
    ("one too few", "absorb_query", lambda x, *_: x[:, :-1]),
    ("one too many", "absorb_query", lambda x, *_: np.concatenate([x, x[-1:]])),
    ("one too many", "absorb_query", lambda x, *_: np.concatenate([0 * x[:1], x])),
    ("one too many", "absorb_query", lambda x, *_: np.pad(x, ((0, 0), (0, 1)))),
    ("masked", "scores_absorbed", causal),
    ("half-split for interleaved", "absorb_query", even(lambda x: np.concatenate([x[:, ::2], x[:, 1::2]], axis=1))),
    (
        "interleaved for half-split",
        "absorb_query",
        even(lambda x: x.reshape(len(x), 2, -1).swapaxes(1, 2).reshape(x.shape)),
    ),
    ("halves swapped", "absorb_query", even(lambda x: np.concatenate(np.split(x, 2, axis=1)[::-1], axis=1))),
    ("reversed", "absorb_query", lambda x, *_: x[::-1].copy()),
    ("reversed", "apply_rope", lambda x, *_: x[..., ::-1].copy()),
    ("off by one place", "up_project_keys", lambda x, *_: np.roll(x, 1, axis=0)),
    ("off by one place", "up_project_keys", lambda x, *_: np.roll(x, -1, axis=1)),
    ("off by one place", "up_project_keys", shifted_in),
    ("cumulative sum", "up_project_keys", lambda x, *_: np.cumsum(x, axis=0)),
    ("cumulative sum", "physical_slots", lambda x, *_: np.cumsum(x, axis=-1)),
    ("terms for a cumulative sum", "up_project_keys", without_sum),
    ("off by one", "physical_slots", lambda x, *_: x + 1),
    ("off by one", "physical_slots", lambda x, *_: x - 1),
    ("off by one", "nsa_tokens_read", lambda x, *_: x + 1),
    ("off by one", "arithmetic_intensity", lambda x, *_: x - 1),
    ("sum for mean", "up_project_keys", lambda x, latents, w_k: x * len(latents)),
    ("mean for sum", "scores_absorbed", lambda x, q_nope, w_k, latents: x / q_nope.shape[-1]),
    ("log base 2", "merge_partials", lambda x, *_: (x[0], x[1] / math.log(2))),
    ("log base 2", "roofline_seconds", lambda x, *_: x / math.log(2)),
    ("natural log", "merge_partials", lambda x, *_: (x[0], x[1] * math.log(2))),
    ("negative", "absorb_query", lambda x, *_: -x),
    ("negative", "roofline_seconds", lambda x, *_: -x),
    ("float16 on the way", "absorb_query", lambda x, *_: x.astype(np.float16).astype(x.dtype)),
    ("bfloat16 on the way", "absorb_query", brain_float),
    ("float32 on the way", "absorb_query", lambda x, *_: x.astype(np.float32).astype(x.dtype)),
    ("constant factor", "absorb_query", lambda x, *_: 3 * x),
    ("constant factor", "physical_slots", lambda x, *_: 3 * x),
    ("constant factor", "roofline_seconds", lambda x, *_: 2 * x),
    ("constant factor", "nsa_tokens_read", lambda x, *_: 2 * x),
    ("constant factor", "roofline_seconds", lambda x, *_: x / 2),
    ("constant factor", "cache_bytes_per_token", lambda x, *_: x // 2),
    ("another size of a value", "cache_bytes_per_token", lambda x, *_: 4 * x),
    ("another size of a value", "cache_bytes_per_token", lambda x, *_: x / 4),
    ("bits for bytes", "cache_bytes_per_token", lambda x, *_: 8 * x),
    ("bytes for bits", "cache_bytes_per_token", lambda x, *_: x / 8),
    ("percent for a fraction", "arithmetic_intensity", lambda x, *_: 100 * x),
    ("a fraction for percent", "index_cache_overhead", lambda x, *_: x / 100),
    ("milliseconds for seconds", "roofline_seconds", lambda x, *_: 1e3 * x),
    ("microseconds for seconds", "step_seconds", lambda x, *_: 1e6 * x),
    ("nanoseconds for seconds", "roofline_seconds", lambda x, *_: 1e9 * x),
    ("seconds for milliseconds", "roofline_seconds", lambda x, *_: 1e-3 * x),
    ("seconds for microseconds", "roofline_seconds", lambda x, *_: x / 10**6),
    ("seconds for nanoseconds", "roofline_seconds", lambda x, *_: x / 10**9),
    ("GiB for GB", "arithmetic_intensity", lambda x, *_: x * 1.073741824),
    ("GiB for GB", "cache_bytes_per_token", lambda x, *_: x * 10**9 // 2**30),
    ("MiB for MB", "roofline_seconds", lambda x, *_: x / 1.048576),
    ("MiB for MB", "cache_bytes_per_token", lambda x, *_: x * 2**20 // 10**6),
    ("KiB for kB", "roofline_seconds", lambda x, *_: x * 1.024),
    ("KiB for kB", "cache_bytes_per_token", lambda x, *_: x * 1000 // 1024),
    ("upside down", "roofline_seconds", lambda x, *_: 1 / x),
    ("rounded", "arithmetic_intensity", lambda x, *_: round(x)),
    ("rounded", "arithmetic_intensity", lambda x, *_: round(x, 3)),
    ("cut to a whole number", "arithmetic_intensity", lambda x, *_: int(x)),
]


@pytest.mark.parametrize(("name", "id", "change"), MADE, ids=[f"{i}-{m[0]}-{m[1]}" for i, m in enumerate(MADE)])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_common_mistake_is_named_in_every_case_that_it_makes_wrong(name, id, change, seed):
    exercise = REGISTRY[id]
    result = run_here(exercise, lambda *args: change(exercise.oracle(*args), *args), seed)
    wrong = [case for case in result.cases if case.verdict == "wrong" and "want a ValueError" not in case.message]
    assert wrong
    assert {case.message.split(":")[0] for case in wrong} == {name}


def test_every_transformation_is_made_above():
    assert {name for name, _, _ in MADE} == NAMES


# What the cases tell together

PLAIN = replace(REGISTRY["absorb_query"], mistakes=())
X = np.arange(1.0, 8.0) ** 0.5


def named(*pairs, args=()):
    """The name that wrong values, (got, want) a case, are given; None where they are given none."""
    found = recognise(PLAIN, [Wrong(args, got, want) for got, want in pairs])
    return found and found.name


def test_a_case_that_cannot_tell_is_no_objection_and_no_evidence():
    """One element meets any factor; an axis of one place and one place alone meet any shift."""
    one = (np.array([5.0]), np.array([2.5]))
    assert named(one) is None
    assert named((3 * X, X), one) == "constant factor"
    many = np.arange(12.0) ** 0.5
    assert named((np.roll(many, 1), many), one) == "off by one place"


def test_a_case_that_another_mistake_made_is_an_objection():
    assert named((3 * X, X), (X + 1, X)) is None
    assert named((X[::-1], X), (np.roll(X, 1), X)) is None
    assert named((3 * X, X), (X[:-1], X)) is None
    assert named(((3 * X, 5), (X, 4))) is None, "the second part is off by one"
    assert named((3 * X, X), (2.0, 1.0)) is None


def test_few_and_small_values_are_given_no_name():
    assert named((4, 2)) is None
    assert named((8, 7), (3, 2)) is None
    assert named((1_000_001, 1_000_000)) == "off by one"
    assert named(*((n + 1, n) for n in (5, 6, 7, 8, 9, 10))) == "off by one"
    assert named((0.5, 2.0)) is None
    assert named((np.array([2.0, 1.0]), np.array([1.0, 2.0]))) is None


def test_a_length_of_the_inputs_must_change_to_be_told_from_a_factor():
    long, short = np.ones((7, 2)), np.ones((3, 2))
    same = [Wrong((long,), 7 * X, X), Wrong((long,), 7 * X, X)]
    assert recognise(PLAIN, same).name == "constant factor"
    assert recognise(PLAIN, [same[0], Wrong((short,), 3 * X, X)]).name == "sum for mean"


def test_each_case_is_told_in_its_own_words():
    wrongs = [Wrong((), 3 * X, X), Wrong((), np.array([4.0]), np.array([2.0])), Wrong((), 5 * X, X)]
    first, untold, last = (found.says for found in recognise_each(PLAIN, wrongs))
    assert (first, last) == tuple(f"every element is {n} times the expected one" for n in (3, 5))
    assert untold == first


def test_the_exercises_own_mistake_comes_first():
    own = exercises.Mistake("own", "three times", lambda x: 3 * x)
    assert recognise(replace(PLAIN, mistakes=(own,)), [Wrong((X,), 3 * X, X)]).name == "own"


@pytest.mark.parametrize("want", [X, 5, 2.5, (1.5, X), {"a": 7}, "text", True, None, [1, 2]], ids=repr)
def test_whatever_an_answer_returns_raises_nothing(want):
    """NaN, infinities, counts that no float holds, other kinds and containers that hold them."""
    some = [10**400, -(10**400), math.nan, math.inf, True, None, "1", b"1", 1j, X + 1j, X > 2, np.array([]), [], {}, ()]
    some += [np.array("a"), np.full(7, np.nan), np.full(7, -np.inf), X.astype(np.uint8), np.float16(2), [[1], [2, 3]]]
    for got in [*some, *((one, one) for one in some), *({"b": one} for one in some), some]:
        if difference(got, want):
            assert len(recognise_each(PLAIN, [Wrong((), got, want)] * 9)) == 9


# No name by chance


def other_numbers(rng, want, size):
    """A number near the wanted one, and of its type."""
    if isinstance(want, int):
        step = 1 + int(rng.random() * (size * min(abs(want), 2**60) + 9))
        return want + step * int(rng.choice([-1, 1]))
    return want * float(np.exp(size * rng.normal())) if want and math.isfinite(want) else float(rng.normal())


def noisy(rng, want, size):
    """Every element off by a share of its own."""
    if want.dtype.kind == "f":
        return (want * np.exp(size * rng.normal(size=want.shape))).astype(want.dtype)
    return want + rng.integers(-3, 4, want.shape).astype(want.dtype)


def added(rng, want, size):
    """Noise on every element."""
    if want.dtype.kind != "f":
        return rng.permutation(want.ravel()).reshape(want.shape)
    return want + (size * rng.normal(size=want.shape)).astype(want.dtype)


def one_element(rng, want, size):
    """One element of many replaced."""
    got = want.copy()
    if got.size:
        got.flat[rng.integers(got.size)] = rng.integers(0, 100)
    return got


def shuffled(rng, want, size):
    """The elements in any order."""
    return rng.permutation(want.ravel()).reshape(want.shape)


def rows_shuffled(rng, want, size):
    """The places of an axis in any order."""
    return rng.permutation(want, axis=int(rng.integers(want.ndim))) if want.ndim else want


def strange(rng, want, size):
    """Other values altogether, or one value everywhere."""
    kind = rng.integers(4)
    fill = [0, 1, np.nan if want.dtype.kind == "f" else 7][kind % 3]
    return rng.normal(size=want.shape).astype(want.dtype) if kind == 3 else np.full_like(want, fill)


def another_size(rng, want, size):
    """Right values with one axis cut or grown, in any order."""
    shape = [max(0, n + int(rng.integers(-1, 3))) for n in want.shape]
    return rng.permutation(np.resize(want, shape).ravel()).reshape(shape)


KINDS = [noisy, added, one_element, shuffled, rows_shuffled, strange, another_size]


def perturbed(rng, want, kind, size):
    """A wrong answer of the structure of the wanted one, all of whose parts are wrong by chance."""
    if isinstance(want, np.ndarray):
        return kind(rng, want, size)
    if isinstance(want, tuple | list):
        return type(want)(perturbed(rng, one, kind, size) for one in want)
    if isinstance(want, dict):
        return {key: perturbed(rng, one, kind, size) for key, one in want.items()}
    return other_numbers(rng, want, size) if type(want) in (int, float) else want


def wrong_by_chance(exercise, kind, seed):
    """Wrong values of all cases of an exercise, of one part of them or of one case alone."""
    rng = np.random.default_rng([seed, KINDS.index(kind), *exercise.id.encode()])
    size = 10 ** rng.uniform(-3, 0)  # float32 rounds to less than that
    wrongs = []
    for case in exercise.cases:
        if case.raises is None:
            args = tuple(exercise.inputs(case, seed).values())
            want = exercise.oracle(*args)
            with np.errstate(all="ignore"):
                got = perturbed(rng, want, kind, size)
                wrongs += [Wrong(args, got, want)] * (difference(got, want) is not None)
    how_many = [len(wrongs), 3, 1][rng.integers(3)]
    return [wrongs[i] for i in sorted(rng.permutation(len(wrongs))[:how_many])]


@pytest.mark.parametrize("id", [id for id, exercise in REGISTRY.items() if not exercise.needs])
def test_wrong_answers_by_chance_are_given_no_name(id):
    exercise = replace(REGISTRY[id], mistakes=())
    tried = [wrong_by_chance(exercise, kind, seed) for kind, seed in itertools.product(KINDS, (1, 2, 3))]
    with np.errstate(all="ignore"):
        named = [found for found in (recognise(exercise, wrongs) for wrongs in tried) if found]
    assert not named
    assert any(tried) or id == "pick_path"
