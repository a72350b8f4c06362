"""Rotations, layouts, residuals, scales: against complex numbers, LAPACK's least squares and published values."""

import math

import numpy as np
import pytest

from ledger.models import MODELS, model
from ledger.reference import rope
from ledger.widgets import rope as pictures

THETA = 10000.0
#: Softmax scales as published configurations give them, to six digits.
SCALES = {
    "DeepSeek-V3": 0.135234,
    "DeepSeek-V2": 0.114721,
    "Kimi-K2-Instruct": 0.130861,
    "Kimi-K2.5": 0.144680,
    "GLM-5": 0.0625,
    "MiniCPM3-4B": 0.102062,
}


def turns(positions, rope_dim, theta):
    """e^(i·angle) of every position and pair."""
    steps = np.exp(-np.log(theta) * np.arange(rope_dim // 2) / (rope_dim // 2))
    return np.exp(1j * np.multiply.outer(np.asarray(positions, float), steps))


def as_complex(x, interleaved):
    half = x.shape[-1] // 2
    return x[..., 0::2] + 1j * x[..., 1::2] if interleaved else x[..., :half] + 1j * x[..., half:]


@pytest.mark.parametrize(("rope_dim", "theta"), [(2, 1e4), (14, 1e4), (64, 8e6), (32, 5e4)])
def test_tables_are_the_parts_of_complex_numbers_on_the_unit_circle(rope_dim, theta):
    positions = np.array([0, 1, 7, 4096, 131071])
    cos, sin = rope.rope_tables(positions, rope_dim, theta)
    assert cos.shape == sin.shape == (5, rope_dim // 2)
    np.testing.assert_allclose(cos + 1j * sin, turns(positions, rope_dim, theta), rtol=0, atol=3e-10)


def test_tables_by_hand_at_width_2():
    cos, sin = rope.rope_tables(np.arange(3), 2, THETA)
    np.testing.assert_allclose(cos[:, 0], [1, 0.5403023058681398, -0.4161468365471424], rtol=1e-15)
    np.testing.assert_allclose(sin[:, 0], [0, 0.8414709848078965, 0.9092974268256817], rtol=1e-15)


@pytest.mark.parametrize(
    ("positions", "dtype"), [(np.arange(2, dtype="i4"), "f8"), (np.arange(2, dtype="f4"), "f4"), ([0, 1], "f8")]
)
def test_tables_of_integers_are_float64_and_of_floats_keep_their_dtype(positions, dtype):
    assert {table.dtype for table in rope.rope_tables(positions, 4, THETA)} == {np.dtype(dtype)}


def test_the_first_pair_turns_by_a_radian_and_the_last_hardly():
    steps = rope.frequencies(64, THETA)
    assert steps[0] == 1
    assert steps[-1] == pytest.approx(10000 ** (-62 / 64))
    assert np.all(np.diff(np.log(steps)) == pytest.approx(-math.log(10000) / 32))


def test_yarn_keeps_the_fast_pairs_and_divides_the_slow_ones():
    """DeepSeek-V3's numbers; how often a pair goes round in the 4,096 trained tokens says which it is."""
    plain, slower = rope.frequencies(64, THETA), rope.yarn_frequencies(64, THETA, 40)
    rounds = 4096 * plain / (2 * math.pi)
    np.testing.assert_allclose(slower[rounds > 32], plain[rounds > 32], rtol=1e-15)
    np.testing.assert_allclose(slower[rounds < 1], plain[rounds < 1] / 40, rtol=1e-15)
    assert (np.sum(rounds > 32), np.sum(rounds < 1)) == (11, 9)
    assert slower[16] == pytest.approx(plain[16] * (7 + 6 / 40) / 13, rel=1e-14)  # 6 of 13 pairs down the ramp
    assert 2 * math.pi / slower[-1] == pytest.approx(1_884_690, abs=1)


@pytest.mark.parametrize(("count", "plain", "yarn"), [(4096, 0.904, 0.806), (131072, 0.9998, 0.892)])
def test_with_yarn_less_is_left_over_of_the_rotations(count, plain, yarn):
    speeds = (rope.frequencies(64, THETA), rope.yarn_frequencies(64, THETA, 40))
    for steps, wanted in zip(speeds, (plain, yarn), strict=True):
        means = np.array([np.exp(1j * step * np.arange(count)).mean() for step in steps])
        assert math.sqrt(1 - np.mean(np.abs(means) ** 2)) == pytest.approx(wanted, abs=5e-4)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("shape", [(5, 6), (5, 3, 14), (4, 2, 3, 8), (0, 3, 4), (3, 0, 4), (2, 3, 0)])
def test_rotating_is_multiplying_complex_numbers(shape, interleaved):
    rng = np.random.default_rng(1)
    x, positions = rng.standard_normal(shape), rng.integers(0, 5000, shape[0])
    turn = turns(positions, shape[-1], THETA) if shape[-1] else np.ones((shape[0], 0))
    expected = as_complex(x, interleaved) * turn.reshape(shape[0], *[1] * (len(shape) - 2), shape[-1] // 2)
    got = rope.apply_rope(x, positions, THETA, interleaved)
    assert got.shape == shape
    np.testing.assert_allclose(as_complex(got, interleaved), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("x", "positions", "says"),
    [
        (np.ones((3, 4)), [0, 1], r"positions are \(2,\); give one for each token of x, \(3,\)"),
        (np.ones((1, 4)), [0, 1], r"positions are \(2,\); give one for each token of x, \(1,\)"),
        (np.ones((3, 4), int), [0, 1, 2], "x is of int64; make it floating"),
    ],
)
def test_what_cannot_be_rotated_is_refused(x, positions, says):
    with pytest.raises(ValueError, match=says):
        rope.apply_rope(x, positions, THETA, True)


def test_rotating_keeps_the_dtype_and_the_input():
    x = np.ones((2, 4), np.float32)
    x.flags.writeable = False
    assert rope.apply_rope(x, np.array([1, 2]), THETA, True).dtype == np.float32


def test_the_order_converts_one_layout_into_the_other():
    order = rope.half_split_order(8)
    assert order.tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    rng = np.random.default_rng(2)
    x, positions = rng.standard_normal((5, 8)), np.arange(5)
    interleaved = rope.apply_rope(x, positions, THETA, interleaved=True)
    half_split = rope.apply_rope(x[:, order], positions, THETA, interleaved=False)
    np.testing.assert_allclose(interleaved[:, order], half_split, rtol=0, atol=1e-15)
    np.testing.assert_allclose(half_split[:, np.argsort(order)], interleaved, rtol=0, atol=1e-15)


def test_converting_the_rows_of_the_weight_converts_every_query():
    rng = np.random.default_rng(3)
    hidden, weight = rng.standard_normal((4, 10)), rng.standard_normal((10, 6))
    order = rope.half_split_order(6)
    np.testing.assert_array_equal((hidden @ weight)[:, order], hidden @ weight[:, order])


@pytest.mark.parametrize("width", [1, 7])
def test_an_odd_width_is_refused(width):
    with pytest.raises(ValueError, match="must be even"):
        rope.rotation(1, width, THETA)


@pytest.mark.parametrize(("m", "n"), [(0, 0), (3, 7), (7, 3), (131071, 4096)])
def test_the_relative_rotation_turns_by_the_distance(m, n):
    got = rope.relative_rotation(m, n, 14, THETA)
    expected = rope.rotation(n - m, 14, THETA)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10)
    q, k = np.random.default_rng(4).standard_normal((2, 14))
    turned_q, turned_k = (as_complex(v, True) * turns([p], 14, THETA)[0] for v, p in ((q, m), (k, n)))
    rotated = np.sum(turned_q.conj() * turned_k)
    np.testing.assert_allclose(q @ got @ k, rotated.real, rtol=1e-9)


@pytest.mark.parametrize("interleaved", [True, False])
def test_rotations_are_orthogonal_and_add_up(interleaved):
    turn = rope.rotation(5, 10, THETA, interleaved)
    np.testing.assert_allclose(turn @ turn.T, np.eye(10), atol=1e-15)
    both = rope.rotation(3, 10, THETA, interleaved) @ rope.rotation(2, 10, THETA, interleaved)
    np.testing.assert_allclose(both, turn, atol=1e-14)


@pytest.mark.parametrize(("count", "residual"), [(1, 0.0), (2, 0.130094), (8, 0.376548), (4096, 0.904194)])
def test_published_residuals(count, residual):
    assert pictures.residual_over(64, THETA, [count]) == pytest.approx([residual], abs=5e-7)
    if count < 100:
        assert rope.single_matrix_residual(range(count), 64, THETA) == pytest.approx(residual, abs=5e-7)


@pytest.mark.parametrize("rope_dim", [2, 6])
def test_the_residual_is_that_of_least_squares(rope_dim):
    """Unknown: the elements of M. One equation for each element of each rotation, solved by LAPACK."""
    positions = np.array([0, 4, 9, 9, 30])
    wanted = np.stack([rope.rotation(p, rope_dim, THETA).ravel() for p in positions.tolist()])
    equations = np.kron(np.ones((len(positions), 1)), np.eye(rope_dim**2))
    solution, squares, *_ = np.linalg.lstsq(equations, wanted.ravel(), rcond=None)
    np.testing.assert_allclose(solution, wanted.mean(0), atol=1e-14)
    expected = math.sqrt(squares[0] / np.sum(wanted**2))
    assert rope.single_matrix_residual(positions, rope_dim, THETA) == pytest.approx(expected, rel=1e-12)


def test_the_residual_of_two_positions_at_width_2_is_a_sine():
    assert rope.single_matrix_residual([0, 1], 2, THETA) == pytest.approx(math.sin(0.5), rel=1e-14)


def test_a_residual_needs_a_position():
    with pytest.raises(ValueError, match="at least one"):
        rope.single_matrix_residual([], 4, THETA)


@pytest.mark.parametrize("name", SCALES)
def test_published_softmax_scales(name):
    shape = model(name)
    scale = rope.softmax_scale(shape.nope_dim, shape.rope_dim, shape.yarn_factor, shape.mscale_all_dim)
    assert scale == pytest.approx(SCALES[name], abs=5e-7)


@pytest.mark.parametrize(("factor", "mscale"), [(None, None), (None, 1.0), (40, None), (40, 0), (1, 1.0), (0.5, 1.0)])
def test_the_scale_is_plain_without_a_stretch(factor, mscale):
    assert rope.softmax_scale(12, 4, factor, mscale) == 0.25


# The exercises, beyond what every exercise is held to


def exercise(id):
    from ledger import exercises

    return exercises.registry()[id]


@pytest.mark.parametrize("name", SCALES)
def test_the_exercise_on_scales_wants_the_published_ones(name):
    shape = model(name)
    oracle = exercise("softmax_scale").oracle
    got = oracle(shape.nope_dim, shape.rope_dim, shape.yarn_factor, shape.mscale_all_dim)
    assert got == pytest.approx(SCALES[name], abs=5e-7)


def test_the_scale_exercise_has_a_plain_case_for_each_missing_number():
    cases = exercise("softmax_scale").cases
    plain = [c.name for c in cases if c.name.startswith(("a factor", "an mscale"))]
    assert len(plain) == 5
    for name in plain:
        inputs = exercise("softmax_scale").inputs(exercise("softmax_scale").case(name), 0)
        assert exercise("softmax_scale").oracle(**inputs) == pytest.approx((64 + 32) ** -0.5)


def test_the_toy_of_the_decode_step_by_hand():
    toy = exercise("decode_absorbed")
    inputs = toy.inputs(toy.case("the toy by hand"), 0)
    assert toy.oracle(**inputs) == pytest.approx(np.array([[[0.5, 0.5]]]), rel=1e-14)


def test_the_toy_of_the_cache_entry_by_hand():
    toy = exercise("cache_entry")
    got = toy.oracle(**toy.inputs(toy.case("the toy by hand"), 0))
    wanted = [[1, -1, 1, 10, 1, 0], [1, 1, -1, 10, math.cos(1), math.sin(1)]]
    np.testing.assert_allclose(got, wanted, rtol=1e-14)


def test_the_toy_of_the_queries_by_hand():
    toy = exercise("absorbed_queries")
    got = toy.oracle(**toy.inputs(toy.case("the toy by hand, two heads"), 0))
    c, s = math.cos(1), math.sin(1)
    np.testing.assert_allclose(got, [[[1, 0, 1, c, s], [1, 1, 3, 2 * c, 2 * s]]], rtol=1e-14)


def test_the_small_latents_tell_where_eps_stands():
    """With everyday latents an eps outside the root is within the tolerance of nothing."""
    small = exercise("cache_entry").case("small latents, where eps counts")
    inputs = exercise("cache_entry").inputs(small, 0)
    assert not inputs["latent"][0].any()
    assert np.isfinite(exercise("cache_entry").oracle(**inputs)).all()


def test_right_answers_in_other_words_pass():
    from ledger.judge.notebook import run_here

    def by_matrices(x, positions, theta, interleaved):
        turned = np.zeros_like(x)
        for token, position in enumerate(positions):
            turned[token] = x[token] @ rope.rotation(int(position), x.shape[-1], theta, interleaved).T
        return turned

    def from_complex(x, positions, theta, interleaved):
        z = as_complex(x.astype(float), interleaved)
        angles = np.outer(positions, theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1]))
        z = z * np.exp(1j * angles).reshape(len(x), *[1] * (x.ndim - 2), x.shape[-1] // 2)
        both = np.stack([z.real, z.imag], axis=-1 if interleaved else -2)
        return both.reshape(x.shape).astype(x.dtype)

    def head_by_head(queries, cache, w_vc, latent_dim, scale):
        output = np.zeros((len(queries), len(w_vc), w_vc.shape[2]), queries.dtype)
        for head in range(len(w_vc) if len(cache) else 0):
            scores = queries[:, head] @ cache.T * scale
            scores = np.exp(scores - scores.max(1, keepdims=True))
            output[:, head] = (scores / scores.sum(1, keepdims=True)) @ cache[:, :latent_dim] @ w_vc[head]
        return output

    def all_rows_at_once(queries, cache, w_vc, latent_dim, scale):
        new, heads, width = queries.shape
        scores = queries.reshape(-1, width) @ cache.T * scale
        scores = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        weights = np.divide(scores, scores.sum(-1, keepdims=True))
        return np.einsum("shc,hcv->shv", (weights @ cache[:, :latent_dim]).reshape(new, heads, latent_dim), w_vc)

    for id, answer in [
        ("apply_rope", by_matrices),
        ("apply_rope", from_complex),
        ("decode_absorbed", head_by_head),
        ("decode_absorbed", all_rows_at_once),
    ]:
        result = run_here(exercise(id), answer, seed=3)
        assert result.verdict == "passed", (answer.__name__, result.message)


# The pictures


def named(fig):
    return {line.get_gid(): line for ax in fig.axes for line in ax.lines if line.get_gid()}


@pytest.mark.parametrize("positions", [2, 8, 4096])
def test_the_residual_by_running_sums_is_that_of_whole_matrices(positions):
    sample = rope.single_matrix_residual(range(positions), 6, THETA)
    assert pictures.residual_over(6, THETA, [1, positions])[1] == pytest.approx(sample, rel=1e-9)
    assert pictures.residual_over(6, THETA, [1])[0] == 0


FEATURES = [feature for pair in pictures.SHOWN for feature in (2 * pair, 2 * pair + 1)]


@pytest.mark.parametrize("position", [0, 3, 64, 4096])
def test_the_dial_shows_the_rotation_of_the_chosen_position(position):
    fig = pictures.RopeDial().figure(position=position)
    expected = rope.rotation(position, 64, THETA)[np.ix_(FEATURES, FEATURES)]
    np.testing.assert_allclose(fig.axes[1].images[0].get_array(), expected, atol=1e-12)
    hands = named(fig)
    for pair in pictures.DIAL_PAIRS:
        (x0, x1), (y0, y1) = hands[f"hand {pair}"].get_data()
        assert (x0, y0) == pictures.center(pair)
        angle = position * THETA ** (-2 * pair / 64)
        np.testing.assert_allclose((x1 - x0, y1 - y0), (math.cos(angle), math.sin(angle)), atol=1e-9)


@pytest.mark.parametrize("cached", [1, 8, 1024])
def test_the_dial_shows_the_best_matrix_and_its_residual(cached):
    fig = pictures.RopeDial().figure(cached_tokens=cached)
    mean = np.mean([rope.rotation(p, 64, THETA)[np.ix_(FEATURES, FEATURES)] for p in range(cached)], axis=0)
    np.testing.assert_allclose(fig.axes[2].images[0].get_array(), mean, atol=1e-9)
    (x,), (y,) = named(fig)["chosen"].get_data()
    assert x == cached
    assert y == pytest.approx(rope.single_matrix_residual(range(cached), 64, THETA), abs=1e-7)


def test_a_model_that_rotates_nothing_has_one_matrix():
    fig = pictures.RopeDial().figure(model="Kimi-K3", position=4096, cached_tokens=4096)
    for ax in fig.axes[1:3]:
        image = ax.images[0].get_array()
        np.testing.assert_array_equal(image, np.eye(len(image)))
    assert set(named(fig)["residual"].get_ydata()) == {0.0}


@pytest.mark.parametrize("name", pictures.CHOICES)
def test_every_choice_draws(name):
    assert MODELS[name].rope_dim == 64
    fig = pictures.RopeDial().figure(model=name, cached_tokens=65536, position=65536)
    curve = named(fig)["residual"].get_ydata()
    assert np.all((np.asarray(curve) >= 0) & (np.asarray(curve) <= 1))


def test_the_choices_have_every_published_base():
    wide = {shape.rope_theta for shape in MODELS.values() if shape.rope_dim == 64}
    assert {MODELS[name].rope_theta for name in pictures.CHOICES} == wide


def test_the_layouts_hold_the_same_names_at_other_places():
    ax = pictures.layout_picture(8).axes[0]
    rows = {y: [t.get_text() for t in sorted(ax.texts, key=lambda t: t.get_position()[0]) if t.get_position()[1] == y]
            for y in (0, 1)}  # fmt: skip
    assert rows[1] == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"]
    assert rows[0] == [rows[1][feature] for feature in rope.half_split_order(8)]


def test_importing_the_pictures_needs_numpy_alone():
    import subprocess
    import sys

    code = "import sys, ledger.widgets.rope; sys.exit('matplotlib' in sys.modules or 'ipywidgets' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
