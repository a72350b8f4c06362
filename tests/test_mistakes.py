"""Known mistakes that any exercise can meet: each made by code in a real exercise and named, and no name by chance."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from ledger import exercises
from ledger.judge.compare import difference
from ledger.judge.grade import explain
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
    assert recognise(THREE_TIMES, [Wrong((X,), 3 * X, X)]).name == "own"


# First drafts, which have another fault beside the mistake

F32 = X.astype(np.float32)
THREE_TIMES = replace(PLAIN, mistakes=(exercises.Mistake("own", "three times", lambda x: 3 * x),))


def names_of(*pairs):
    """What each of the wrong values, (got, argument and wanted value) a case, is called; an empty text for no name."""
    found = recognise_each(THREE_TIMES, [Wrong((want,), got, want) for got, want in pairs])
    return [mistake.name if mistake else "" for mistake in found]


def test_a_mistake_is_named_in_another_dtype():
    assert names_of((3 * X, F32)) == ["own"], "float64 where float32 is asked"
    assert names_of((3 * F32, X)) == ["own"], "float32 where float64 is asked"
    assert names_of((3 * X, X), (3 * X, F32), (X[:0], F32[:0]), (X, F32)) == ["own", "own", "", ""]
    assert names_of((21.0, 7)) == ["own"], "a float for a count"
    assert names_of((-X.astype(np.float64), F32), (-X, X)) == ["negative"] * 2, "and so is one of the library"


@pytest.mark.parametrize("broken", [X[:0], np.full_like(X, np.nan), X[None], "text", None], ids=repr)
def test_a_case_that_nothing_can_be_told_of_is_no_objection_to_an_own_mistake(broken):
    """As where the edge case is left out; it is given no name itself."""
    assert names_of((3 * X, X), (broken, X)) == ["own", ""]
    assert names_of((3 * X, X), (broken, X), (broken, X)) == ["", "", ""], "one case is too few to say it of three"


def test_a_value_that_can_be_compared_is_an_objection():
    for other in (X + 1, (X + 1).astype(np.float32), X**2, np.where(X > 2, 3 * X, X)):
        assert names_of((3 * X, X), (other, X)) == ["", ""]
    assert names_of((3 * X, X), (X + 1, F32)) == ["", ""]
    assert names_of((21.0, 7), (8.0, 7)) == ["", ""]
    passed = [Wrong((X,), X, X)]  # where three times would be wrong
    assert recognise(THREE_TIMES, [Wrong((X,), 3 * X, X)], passed).name == "constant factor"


def entry_in_float64(latent, k_rope, positions, norm_weight, eps, theta):
    """A cache entry that is written into an array of zeros and then normed as a whole."""
    pairs = np.arange(k_rope.shape[1] // 2)
    turns = np.exp(1j * positions[:, None] * theta ** (-2.0 * pairs / max(k_rope.shape[1], 1)))
    turned = (k_rope[:, 0::2] + 1j * k_rope[:, 1::2]) * turns
    entry = np.zeros((len(latent), latent.shape[1] + k_rope.shape[1]))
    entry[:, : latent.shape[1]] = latent
    entry[:, latent.shape[1] :: 2], entry[:, latent.shape[1] + 1 :: 2] = turned.real, turned.imag
    entry /= np.sqrt((entry**2).mean(axis=1, keepdims=True) + eps)
    entry[:, : latent.shape[1]] *= norm_weight
    return entry


def merged_in_float64(queries, cache, chunk, latent_dim, scale):
    """A chunk's maximum for the running one, sums in float64, and nothing said of an empty cache."""
    mixed, total = np.zeros((*queries.shape[:2], latent_dim)), np.zeros(queries.shape[:2])
    largest = np.full(queries.shape[:2], -np.inf)
    for start in range(0, len(cache), chunk):
        scores = scale * (queries @ cache[start : start + chunk].T)
        largest = scores.max(axis=-1)
        weights = np.exp(scores - largest[..., None])
        mixed += weights @ cache[start : start + chunk, :latent_dim]
        total += weights.sum(axis=-1)
    with np.errstate(all="ignore"):
        return mixed / total[..., None], largest + np.log(total)


@pytest.mark.parametrize("id", ["crossover_new_tokens", "crossover_limit", "crossover_causal"])
@pytest.mark.parametrize("heads", [64, 128, 32, 20])
def test_a_head_count_that_is_left_in_is_named_whatever_it_is(id, heads):
    exercise = REGISTRY[id]
    result = run_here(exercise, lambda *sizes: heads * exercise.oracle(*sizes), 1)
    assert result.message.startswith("head count left in: ")
    assert str(heads) not in result.message
    other = run_here(exercise, lambda *sizes: 7 * exercise.oracle(*sizes), 1)
    assert "head count" not in other.message, "no model has 7 heads"


DRAFTS = [
    ("cache_entry", entry_in_float64, "RMSNorm over the rope half"),
    ("merge_chunked_context", merged_in_float64, "block maximum for the running one"),
]


@pytest.mark.parametrize(("id", "draft", "name"), DRAFTS, ids=[id for id, _, _ in DRAFTS])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_first_draft_is_told_its_mistake(id, draft, name, seed):
    result = run_here(REGISTRY[id], draft, seed)
    assert result.message.startswith(f"{name}: ")
    assert name in dict(explain(result))["pattern"]
    others = [case.message for case in result.cases if case.verdict == "wrong" and not case.message.startswith(name)]
    assert len(others) == 1
    assert "has dtype float64; wanted float32" in others[0], "the case without a token, or without a cache"


def test_a_dtype_that_the_statement_fixes_is_told_without_the_rule_for_others():
    """Whatever the case's inputs are: scales are float32, of float64 keys as well."""
    exercise = REGISTRY["quantize_index_keys"]

    def scales_in_float64(k):
        codes, scales = exercise.oracle(k)
        return codes, scales.astype(np.float64)

    result = run_here(exercise, scales_in_float64, 1)
    wrong = [case for case in result.cases if case.verdict == "wrong"]
    assert {case.message for case in wrong} == {
        "another dtype: the values are right: scales has dtype float64; wanted float32"
    }
    assert {dict(case.rows)["dtype"] for case in wrong} == {"scales: float64; wanted float32"}


@pytest.mark.parametrize(("factor", "name"), [(0.5, "a whole square"), (2, "the factor 2 twice")])
def test_a_length_that_is_off_by_two_is_no_matter_of_flops_or_bytes(factor, name):
    exercise = REGISTRY["break_even_prompt"]

    def off_by_two(model, topk, exact, with_indexer):
        return exercise.oracle(model, topk, exact, with_indexer) * (1 if exact else factor)

    result = run_here(exercise, off_by_two, 1)
    assert result.message.startswith(f"{name}: ")
    assert "2 · topk · absorbed / saved" in result.message


FAULTY = [("rows_read", "neighbours compared"), ("relative_rotation", "the wrong way round")]


@pytest.mark.parametrize(("id", "name"), FAULTY, ids=[id for id, _ in FAULTY])
def test_no_other_mistake_is_named_where_some_values_are_spoilt(id, name):
    """Whichever two wrong values are NaN or of another shape: those that are left may fit several mistakes."""
    exercise = REGISTRY[id]
    [answer] = {mutant.answer for mutant in exercise.mutants if mutant.because == name}
    wrongs = []
    for case in exercise.cases:
        args = tuple(exercise.inputs(case, 3).values())
        got, want = answer(*args), exercise.oracle(*args)
        if difference(got, want) is not None:
            wrongs.append(Wrong(args, got, want))
    for two in itertools.combinations(range(len(wrongs)), 2):
        tried = [w._replace(got=np.full(7, np.nan)) if i in two else w for i, w in enumerate(wrongs)]
        assert {found.name for found in recognise_each(exercise, tried) if found} <= {name}


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
