"""Chapter 5: counts against NumPy code that is counted, crossings against exact fractions and published numbers, the
exercises' hand values, and what the explorer draws."""

import ast
import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from ledger import exercises
from ledger.account import crossover as account
from ledger.count import count
from ledger.machines import machine
from ledger.models import MODELS, model
from ledger.published import PREFILL_H200
from ledger.widgets.crossover import MOST_TOKENS, CrossoverExplorer, slopes_chart, step_bars

V3, GLM_52, MINICPM3 = (512, 128, 128), (512, 192, 256), (256, 64, 64)
SIZES = [
    # new, cached, latent, nope, rope, value, heads
    (1, 3, 3, 2, 2, 2, 1),
    (5, 7, 11, 3, 2, 13, 4),
    (1, 1, 1, 1, 1, 1, 1),
    (4, 9, 6, 5, 0, 3, 2),
    (0, 4, 5, 3, 2, 1, 2),
    (3, 0, 5, 3, 2, 1, 2),
    (2, 6, 4, 0, 3, 5, 3),
]


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    return weights / weights.sum(-1, keepdims=True)


def materialize(q_nope, q_rope, latents, k_rope, w_k, w_v):
    """Head by head: keys and values first, the rope part scored apart and added."""
    outputs = []
    for head in range(len(w_k)):
        keys, values = latents @ w_k[head], latents @ w_v[head]
        outputs.append(softmax(q_nope[head] @ keys.T + q_rope[head] @ k_rope.T) @ values)
    return np.stack(outputs)


def absorb(q_nope, q_rope, latents, k_rope, w_k, w_v):
    """All heads at once, on entries of latent and rope."""
    queries = np.concatenate([np.einsum("hsn,hcn->hsc", q_nope, w_k), q_rope], axis=-1)
    entries = np.concatenate([latents, k_rope], axis=-1)
    weights = softmax(np.einsum("hsf,tf->hst", queries, entries))
    return np.einsum("hsc,hcv->hsv", np.einsum("hst,tc->hsc", weights, latents), w_v)


def inputs(new, cached, latent, nope, rope, value, heads, seed=0):
    rng = np.random.default_rng(seed)
    shapes = (heads, new, nope), (heads, new, rope), (cached, latent), (cached, rope)
    return [rng.standard_normal(s) for s in (*shapes, (heads, latent, nope), (heads, latent, value))]


@pytest.mark.parametrize("sizes", SIZES)
def test_totals_are_what_whole_numpy_routes_are_counted_at(sizes):
    given = inputs(*sizes)
    narrow, wide = count(materialize, *given), count(absorb, *given)
    assert account.materialize_macs(*sizes)["total"] == narrow[1].macs
    assert account.absorb_macs(*sizes)["total"] == wide[1].macs
    assert np.allclose(narrow[0], wide[0], atol=1e-12)


def test_totals_are_counted_at_deepseek_v3_widths_too():
    sizes = (3, 37, *V3[:2], 64, 128, 2)
    given = inputs(*sizes)
    assert account.materialize_macs(*sizes)["total"] == count(materialize, *given)[1].macs
    assert account.absorb_macs(*sizes)["total"] == count(absorb, *given)[1].macs


@pytest.mark.parametrize("sizes", SIZES)
def test_parts_are_the_published_formulas(sizes):
    new, cached, latent, nope, rope, value, heads = sizes
    assert account.materialize_macs(*sizes) == {
        "projection": heads * cached * latent * (nope + value),
        "attention": heads * new * cached * (nope + rope + value),
        "total": heads * cached * (latent * (nope + value) + new * (nope + rope + value)),
    }
    assert account.absorb_macs(*sizes) == {
        "projection": heads * new * latent * (nope + value),
        "attention": heads * new * cached * (latent + rope + latent),
        "total": heads * new * (latent * (nope + value) + cached * (2 * latent + rope)),
    }


def test_deepseek_v3_at_decode():
    sizes = account.widths(model("DeepSeek-V3"))
    assert account.materialize_macs(1, 4096, **sizes)["projection"] == 68_719_476_736
    assert account.absorb_macs(1, 4096, **sizes)["projection"] == 16_777_216
    # the entry is 576 wide as a key and 512 wide as a value
    assert account.absorb_macs(1, 4096, **sizes)["attention"] == 128 * 4096 * 1088


def test_counts_stay_exact_beyond_a_float_and_refuse_fractions():
    big = np.int32(2_000_003)
    counts = account.absorb_macs(big, big, *V3[:2], 64, 128, 128)
    assert counts["attention"] == 128 * 2_000_003**2 * 1088
    assert all(type(number) is int for number in counts.values())
    with pytest.raises(TypeError):
        account.materialize_macs(1.5, 2, 3, 2, 2, 2, 1)


def test_steps_are_the_shapes_of_real_products():
    new, cached, heads = 2, 5, 3
    sizes = (new, cached, 7, 3, 4, 6, heads)
    q_nope, q_rope, latents, k_rope, w_k, w_v = (a[0] if a.ndim == 3 else a for a in inputs(*sizes))
    entries = np.concatenate([latents, k_rope], 1)
    keys, values = np.concatenate([latents @ w_k, k_rope], 1), latents @ w_v
    weights = np.ones((new, cached))
    products = {
        account.materialize_steps: [
            (latents, w_k),
            (latents, w_v),
            (np.concatenate([q_nope, q_rope], 1), keys.T),
            (weights, values),
        ],
        account.absorb_steps: [
            (q_nope, w_k.T),
            (np.concatenate([q_nope @ w_k.T, q_rope], 1), entries.T),
            (weights, latents),
            (weights @ latents, w_v),
        ],
    }
    for steps, pairs in products.items():
        for step, (left, right) in zip(steps(*sizes), pairs, strict=True):
            assert (step.heads, step.rows, step.inner, step.cols) == (heads, *left.shape, right.shape[1])
            assert right.shape[0] == step.inner


# What both routes share


@pytest.mark.parametrize("name", ["DeepSeek-V3", "DeepSeek-V2-Lite", "GLM-5.2"])
def test_the_rope_scores_are_the_same_part_of_both_attentions(name):
    shape = model(name)
    sizes = account.widths(shape)
    for new, cached in product((1, 300), (1, 4096)):
        shared = account.shared_macs(new, cached, shape)["rope scores"]
        for macs in (account.materialize_macs, account.absorb_macs):
            without = macs(new, cached, **(sizes | {"rope_dim": 0}))
            assert macs(new, cached, **sizes)["attention"] - without["attention"] == shared
            assert macs(new, cached, **sizes)["projection"] == without["projection"]


def test_the_shared_projections_are_deepseek_v3s_weights():
    # 7168·1536 + 1536·24576, 7168·576 and 16384·7168: the shapes of its checkpoint
    one = account.shared_macs(1, 0, model("DeepSeek-V3"))
    assert one == {
        "queries": 11_010_048 + 37_748_736,
        "cache entries": 4_128_768,
        "rope scores": 0,
        "output projection": 117_440_512,
    }
    lite = model("DeepSeek-V2-Lite")
    assert account.shared_macs(2, 0, lite)["queries"] == 2 * 2048 * 16 * 192
    # GLM-5.2's values are wider than its nope parts: 64·256 outputs of heads
    assert account.shared_macs(3, 0, model("GLM-5.2"))["output projection"] == 3 * 64 * 256 * 6144


# Crossings


@pytest.mark.parametrize("widths", [V3, GLM_52, MINICPM3, (3, 2, 2), (7, 5, 4)])
@pytest.mark.parametrize("cached", [1, 3, 64, 4096, 10**6])
@pytest.mark.parametrize("heads", [1, 128])
@pytest.mark.parametrize("rope", [0, 64])
def test_totals_are_exactly_equal_at_the_crossing(widths, cached, heads, rope):
    """Both totals are straight lines in the new tokens, followed here in fractions."""
    latent, nope, value = widths

    def at(macs, tokens):
        start, one = (macs(s, cached, latent, nope, rope, value, heads)["total"] for s in (0, 1))
        return start + tokens * (one - start)

    found = account.crossover_new_tokens(cached, *widths)
    top = cached * latent * (nope + value)
    exact = Fraction(top, latent * (nope + value) + cached * (2 * latent - nope - value))
    assert at(account.materialize_macs, exact) == at(account.absorb_macs, exact)
    assert found == float(exact)


@pytest.mark.parametrize(
    ("widths", "limit", "at_4096", "causal"),
    [(V3, 170.67, 163.84, 167.25), (GLM_52, 398.22, 362.94, 380.54), (MINICPM3, 85.33, 83.59, 84.46)],
)
def test_published_widths_cross_where_the_formula_says(widths, limit, at_4096, causal):
    assert account.crossover_limit(*widths) == pytest.approx(limit, abs=5e-3)
    assert account.crossover_new_tokens(4096, *widths) == pytest.approx(at_4096, abs=5e-3)
    assert account.crossover_causal(4096, *widths) == pytest.approx(causal, abs=5e-3)


def test_models_with_the_same_three_widths_cross_together_whatever_their_heads():
    for name in ("Kimi-K2.5", "Kimi-K3", "LongCat-Flash", "DeepSeek-V2-Lite"):
        shape = model(name)
        assert (shape.latent_dim, shape.nope_dim, shape.value_dim) == V3
        for new in (163, 164):
            assert account.pick_path(new, 4096, shape) == account.pick_path(new, 4096, model("DeepSeek-V3"))


def test_228_is_not_a_crossing_of_glm_52():
    latent, nope, value = GLM_52
    extra = 2 * latent - nope - value
    assert round(latent * 256 / extra) == 228
    sizes = account.widths(model("GLM-5.2"))
    long = 10**9
    ratio = account.materialize_macs(228, long, **sizes)["total"] / account.absorb_macs(228, long, **sizes)["total"]
    assert ratio > 1.3
    near = account.materialize_macs(398, long, **sizes)["total"] / account.absorb_macs(398, long, **sizes)["total"]
    assert near == pytest.approx(1, abs=1e-3)


def test_the_limit_is_where_long_caches_tend_to():
    for widths in (V3, GLM_52, MINICPM3):
        assert account.crossover_new_tokens(10**12, *widths) == pytest.approx(account.crossover_limit(*widths))


@pytest.mark.parametrize("widths", [V3, GLM_52, MINICPM3, (3, 2, 2)])
@pytest.mark.parametrize("cached", [1, 4, 100, 4096, 10**6])
def test_the_causal_crossing_solves_its_equation(widths, cached):
    latent, nope, value = widths
    found = Fraction(account.crossover_causal(cached, *widths))
    pairs = found * cached + found**2 / 2
    gain = pairs * (2 * latent - nope - value)
    assert float(gain / (cached * latent * (nope + value))) == pytest.approx(1, rel=1e-13)


def test_causal_pairs_are_those_that_a_mask_lets_through():
    for new, cached in product((0, 1, 2, 7), (0, 1, 5)):
        visible = np.tri(new, cached + new, cached)
        assert account.causal_pairs(new, cached) == visible.sum()


def test_a_causal_crossing_lies_between_exact_and_limit():
    for widths, cached in product((V3, GLM_52, MINICPM3), (64, 4096, 131072)):
        exact, limit = account.crossover_new_tokens(cached, *widths), account.crossover_limit(*widths)
        assert exact < account.crossover_causal(cached, *widths) < limit


def test_crossings_without_a_cache_or_without_an_end():
    wide = (64, 96, 160)
    assert account.crossover_new_tokens(0, *V3) == account.crossover_causal(0, *V3) == 0.0
    assert account.crossover_new_tokens(50, *wide) == 50 * 64 * 256 / (64 * 256 - 50 * 128)
    assert account.crossover_new_tokens(4096, *wide) == math.inf
    assert account.crossover_new_tokens(0, 512, 0, 0) == math.inf
    assert account.crossover_limit(*wide) == account.crossover_limit(64, 48, 80) == math.inf
    assert account.crossover_causal(0, *wide) == account.crossover_causal(5, *wide) == math.inf
    found = (account.crossover_new_tokens(0, *V3), account.crossover_limit(512, 0, 0), account.crossover_causal(0, *V3))
    assert [type(number) for number in found] == [float] * 3


@pytest.mark.parametrize(
    ("new", "cached", "name", "route"),
    [
        (1, 4096, "DeepSeek-V3", "absorb"),
        (163, 4096, "DeepSeek-V3", "absorb"),
        (164, 4096, "DeepSeek-V3", "materialize"),
        (128, 512, "DeepSeek-V3", "absorb"),  # a tie
        (129, 512, "DeepSeek-V3", "materialize"),
        (362, 4096, "GLM-5.2", "absorb"),
        (363, 4096, "GLM-5.2", "materialize"),
        (1, 0, "GLM-5.2", "materialize"),
        (0, 9, "GLM-5.2", "absorb"),
    ],
)
def test_the_route_with_fewer_multiply_adds_is_picked(new, cached, name, route):
    assert account.pick_path(new, cached, model(name)) == route


@pytest.mark.parametrize("name", MODELS)
def test_the_route_changes_at_the_crossing_of_every_model(name):
    shape = model(name)
    crossing = account.crossover_new_tokens(4096, shape.latent_dim, shape.nope_dim, shape.value_dim)
    assert account.pick_path(math.floor(crossing), 4096, shape) == "absorb"
    assert account.pick_path(math.floor(crossing) + 1, 4096, shape) == "materialize"


def test_crossings_of_caches_beyond_a_float_or_in_small_integers():
    found = account.crossover_new_tokens(10**400, *V3), account.crossover_causal(10**400, *V3)
    assert found == pytest.approx([512 / 3] * 2)
    for crossing in (account.crossover_new_tokens, account.crossover_causal):
        assert crossing(np.int32(10**6), *V3) == crossing(10**6, *V3)  # its product with P is beyond an int32


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: account.crossover_causal(-1000, *V3), "cached_tokens is -1000"),
        (lambda: account.crossover_new_tokens(-5, *V3), "cached_tokens is -5"),
        (lambda: account.crossover_new_tokens(1.5, *V3), "cached_tokens is 1.5"),
        (lambda: account.crossover_limit(512, -128, 128), "nope_dim is -128"),
        (lambda: account.crossover_causal(0, -1, 128, 128), "latent_dim is -1"),
    ],
)
def test_sizes_that_make_no_sense_are_named(ask, says):
    with pytest.raises(ValueError, match=f"{says}; it must be a whole number, 0 or more"):
        ask()


# Slopes, time, published times


def test_slopes_at_the_crossing_are_0_29_and_1():
    sizes = account.widths(model("DeepSeek-V3"))
    assert account.log_slopes(171, 10**7, **sizes) == pytest.approx((0.29, 1), abs=5e-3)
    assert account.log_slopes(164, 4096, **sizes) == pytest.approx((0.29, 1), abs=5e-3)


@pytest.mark.parametrize("new", [1, 200, 5000])
def test_slopes_are_those_between_counts_one_percent_apart(new):
    sizes = account.widths(model("GLM-5.2"))
    at = 1000 * new  # tokens in thousandths, so that 0.1% is a whole number
    cached = 1000 * 4096  # the same scale for the cache leaves the shape of both lines
    for macs, slope in zip(
        (account.materialize_macs, account.absorb_macs), account.log_slopes(at, cached, **sizes), strict=True
    ):
        low, high = (macs(tokens, cached, **sizes)["total"] for tokens in (at, at + new))
        assert math.log(high / low) / math.log(1.001) == pytest.approx(slope, abs=1e-3)


def test_slopes_of_nothing_are_not_a_number():
    assert all(map(math.isnan, account.log_slopes(0, 0, **account.widths(model("GLM-5.2")))))


@pytest.mark.parametrize(
    ("write_hidden", "read_hidden", "tokens"),
    [(True, True, 181), (True, False, 257), (False, True, 257), (False, False, 342)],
)
def test_traffic_moves_the_crossing_on_an_h200(write_hidden, read_hidden, tokens):
    found = account.time_crossover_limit(model("DeepSeek-V3"), machine("H200"), write_hidden, read_hidden)
    assert round(found) == tokens


@pytest.mark.parametrize("bandwidth", [4.8e12, 4.8e11])
def test_both_routes_take_the_same_seconds_at_the_crossing_in_time(bandwidth):
    """Also where memory is so slow that a hidden pass takes longer than the arithmetic it hides behind."""
    shape, gpu = model("GLM-5.2"), replace(machine("H200"), bandwidth=bandwidth)
    for write_hidden, read_hidden in product((True, False), repeat=2):
        tokens = account.time_crossover_limit(shape, gpu, write_hidden, read_hidden)
        rate, one_pass = 2 * 64 / 989e12, 64 * (192 + 64 + 256) * 2 / bandwidth
        project, attend = rate * 512 * 448, rate * tokens * 512
        narrow = max(project, one_pass) if write_hidden else project + one_pass
        narrow += max(attend, one_pass) if read_hidden else attend + one_pass
        assert rate * tokens * 1088 == pytest.approx(narrow)


def test_without_traffic_time_crosses_where_multiply_adds_do():
    fast = replace(machine("H200"), bandwidth=math.inf)
    for name in ("DeepSeek-V3", "GLM-5.2", "MiniCPM3-4B"):
        shape = model(name)
        found = account.time_crossover_limit(shape, fast, False, False)
        assert found == pytest.approx(account.crossover_limit(shape.latent_dim, shape.nope_dim, shape.value_dim))


def test_time_never_crosses_where_heads_are_wider_than_two_latents():
    wide = replace(model("DeepSeek-V3"), latent_dim=96)
    assert account.time_crossover_limit(wide, machine("H200"), True, True) == math.inf


def test_a_crossing_in_time_needs_a_rate_of_the_machine():
    with pytest.raises(ValueError, match="A100 has no rate for 'fp8'; the choices are: bf16, fp16, fp32"):
        account.time_crossover_limit(model("DeepSeek-V3"), machine("A100"), True, True, "fp8")


def test_expanded_keys_and_values_of_deepseek_v3_are_71_times_its_cache():
    assert account.expanded_bytes(1, model("DeepSeek-V3")) == 2 * 40_960
    assert account.expanded_bytes(3, model("GLM-5.2"), itemsize=1) == 3 * 32_768


def test_published_prefill_at_32k_is_3_19_where_pairs_predict_3_40():
    last = PREFILL_H200[-1]
    assert last.tokens == 32768
    assert last.absorbed / last.expanded == pytest.approx(3.19, abs=5e-3)
    pair = (1, 1, 512, 128, 64, 128, 1)
    wide, narrow = (macs(*pair)["attention"] for macs in (account.absorb_macs, account.materialize_macs))
    assert wide / narrow == pytest.approx(3.40)
    # neither kernel is faster than the data sheet allows, and both come to more than half of it
    for width, milliseconds in ((wide, last.absorbed), (narrow, last.expanded)):
        rate = 2 * 128 * account.causal_pairs(last.tokens, 0) * width / milliseconds * 1e3
        assert 0.5 < rate / machine("H200").flops["bf16"] < 1


# What the lesson itself defines


@pytest.fixture(scope="module")
def lesson():
    """The lesson's functions that find a crossing between measured points, by name."""
    master = Path(__file__).parents[1] / "course" / "lessons" / "ch05_crossover" / "crossover.py"
    body = ast.parse(master.read_text("utf-8")).body
    found = [node for node in body if getattr(node, "name", None) in ("crossing", "equal_at")]
    names = {"np": np}
    exec(compile(ast.Module(found, []), master.name, "exec"), names)
    return names


@pytest.mark.parametrize(
    ("new_tokens", "ratio", "place", "words"),
    [
        ([1, 4, 16, 64], [8, 4, 1 / 4, 1 / 8], 8, "8"),  # halfway between 4 and 16 on logarithmic axes
        ([1, 16, 64, 256], [27, 9, 3, 1 / 9], 64 * 4 ** (1 / 3), "102"),  # a third of the way
        ([1, 4, 16, 64], [2, 1 / 2, 2, 1 / 2], 32, "32"),  # the last one of two
        ([1, 4, 16, 64], [8, 4, 1, 1 / 2], 16, "16"),  # on a point
        ([1, 512], [8, 2], None, "no crossing between 1 and 512"),
        ([32, 128, 1024], [0.9, 0.5, 0.4], None, "no crossing between 32 and 1024"),
        ([1, 16, 64, 256], [0.5, 0.9, 1.1, 2], None, "no crossing between 1 and 256"),  # it only rises
    ],
)
def test_a_measured_crossing_is_a_place_or_none(lesson, new_tokens, ratio, place, words):
    found = lesson["crossing"](new_tokens, ratio)
    assert found is None if place is None else found == pytest.approx(place)
    assert lesson["equal_at"](new_tokens, ratio) == words


# Exercises


@pytest.mark.parametrize(
    ("id", "wanted"),
    [
        ("materialize_macs", {"projection": 36, "attention": 18, "total": 54}),
        ("absorb_macs", {"projection": 12, "attention": 24, "total": 36}),
        ("crossover_new_tokens", 2.0),
        ("crossover_limit", 6.0),
        ("crossover_causal", 4.0),
    ],
)
def test_the_toys_have_the_values_of_their_statements(id, wanted):
    exercise = exercises.get(id)
    assert exercise.oracle(**exercise.inputs(exercise.case("the toy by hand"), 0)) == wanted


@pytest.mark.parametrize("id", ["crossover_new_tokens", "crossover_limit", "crossover_causal"])
def test_oracles_agree_with_the_account_on_every_case(id):
    exercise = exercises.get(id)
    for case, seed in product(exercise.cases, range(5)):
        given = exercise.inputs(case, seed)
        wanted = exercise.oracle(**given)
        assert getattr(account, id)(**given) == pytest.approx(wanted, rel=1e-12), case.name
        assert type(wanted) is float


def test_the_cases_of_pick_path_hold_both_answers_a_tie_and_points_beside_the_crossing():
    exercise = exercises.get("pick_path")
    answers = {case.name: exercise.oracle(**exercise.inputs(case, 0)) for case in exercise.cases}
    assert set(answers.values()) == {"absorb", "materialize"}
    given = exercise.inputs(exercise.case("a tie"), 0)
    sizes = account.widths(given["model"])
    totals = {
        macs(given["new_tokens"], given["cached_tokens"], **sizes)["total"]
        for macs in (account.materialize_macs, account.absorb_macs)
    }
    assert len(totals) == 1
    near = exercise.case("near the crossing, drawn at random")
    for seed in range(40):
        given = exercise.inputs(near, seed)
        shape = given["model"]
        crossing = account.crossover_new_tokens(
            given["cached_tokens"], shape.latent_dim, shape.nope_dim, shape.value_dim
        )
        assert abs(given["new_tokens"] - crossing) <= 6
        assert account.pick_path(**given) == exercise.oracle(**given)


# The pictures


def test_the_bars_of_the_steps_are_shares_of_each_routes_total():
    ax = step_bars(model("DeepSeek-V3"), 4096, (1, 2048)).axes[0]
    shares = {bars.get_label(): bars[0].get_width() for bars in ax.containers}
    # a head's products at 2,048 new tokens, in units of 4,096·128: 512 twice, then 2,048·192/128 and 2,048
    found = [shares[f"materialize 2048 {name}"] for name in ("latents · W_K", "latents · W_V", "queries · keysᵀ")]
    assert found == pytest.approx([100 * part / (512 + 512 + 3072 + 2048) for part in (512, 512, 3072)])
    assert shares["absorb 1 weights · latents"] == pytest.approx(100 * 4096 * 512 / (2 * 128 * 512 + 4096 * 1088))
    for route in ("materialize 1 ", "absorb 1 ", "materialize 2048 ", "absorb 2048 "):
        assert sum(share for name, share in shares.items() if name.startswith(route)) == pytest.approx(100)
    texts = [text.get_text() for text in ax.texts]
    assert {"68.9 G", "587 M", "412 G", "1.2 T"} <= set(texts)


def test_the_tangent_touches_materialize_where_the_lines_cross():
    lines = drawn(slopes_chart(model("DeepSeek-V3"), 4096))
    (x,), (y,) = lines["crossing"].get_data()
    assert x == pytest.approx(163.84)
    for route in ("materialize", "absorb"):
        at = np.log(lines[route].get_xdata()), np.log(lines[route].get_ydata())
        assert np.interp(math.log(x), *at) == pytest.approx(math.log(y), abs=0.01)
    tx, ty = lines["tangent"].get_data()
    slope = math.log(ty[1] / ty[0]) / math.log(tx[1] / tx[0])
    # at S new tokens the attention's share is 320·S / (131,072 + 320·S)
    assert slope == pytest.approx(320 * 164 / (131_072 + 320 * 164))
    assert ty[0] * (x / tx[0]) ** slope == pytest.approx(y)


# The explorer


def drawn(fig):
    return {line.get_gid(): line for ax in fig.axes for line in ax.lines if line.get_gid()}


@pytest.mark.parametrize("name", ["DeepSeek-V3", "GLM-5.2", "MiniCPM3-4B"])
@pytest.mark.parametrize("cached", [64, 131072])
def test_the_explorer_draws_totals_and_terms(name, cached):
    shape = model(name)
    heads, latent, both = shape.num_heads, shape.latent_dim, shape.nope_dim + shape.value_dim
    lines = drawn(CrossoverExplorer().figure(model=name, cached_tokens=cached))
    project, pair = {"materialize": cached, "absorb": 0}, {"materialize": both, "absorb": 2 * latent}
    for route in ("materialize", "absorb"):
        for part in ("projection", "attention", "total"):
            line = lines[f"{route} {part}"]
            new = line.get_xdata()
            assert (new[0], new[-1]) == pytest.approx((1, MOST_TOKENS))
            projection = heads * latent * both * (project[route] or new) + 0 * new
            attention = heads * cached * new * (pair[route] + shape.rope_dim)
            found = {"projection": projection, "attention": attention, "total": projection + attention}
            assert line.get_ydata() == pytest.approx(found[part])
            low, high = line.axes.get_ylim()
            assert low < line.get_ydata().min() <= line.get_ydata().max() < high


@pytest.mark.parametrize("name", ["DeepSeek-V3", "GLM-5.2", "MiniCPM3-4B"])
def test_the_diamond_stands_on_both_lines_and_the_shading_changes_there(name):
    fig = CrossoverExplorer().figure(model=name, cached_tokens=1024)
    lines = drawn(fig)
    (x,), (y,) = lines["crossing"].get_data()
    for route in ("materialize", "absorb"):
        line = lines[f"{route} total"]
        assert np.interp(x, line.get_xdata(), line.get_ydata()) == pytest.approx(y, rel=1e-9)
    left, right = fig.axes[0].patches
    assert (left.get_x(), left.get_x() + left.get_width()) == pytest.approx((1, x))
    assert (right.get_x(), right.get_x() + right.get_width()) == pytest.approx((x, MOST_TOKENS))
    assert f"{x:.1f}" in fig.axes[0].get_title(loc="left")


def test_the_title_tells_exact_causal_and_limit():
    title = CrossoverExplorer().figure(cached_tokens=4096).axes[0].get_title(loc="left")
    assert all(words in title for words in ("cross at 163.8", "causal 167.3", "long context 170.7"))


def test_both_bars_of_the_first_view_can_be_seen():
    bars = CrossoverExplorer().figure().axes[1].patches
    totals = [bars[route].get_height() + bars[route + 2].get_height() for route in (0, 1)]
    assert min(totals) > 0.5 * max(totals)


def test_the_bars_are_the_parts_of_the_chosen_point():
    fig = CrossoverExplorer().figure(model="DeepSeek-V3", cached_tokens=1024, new_tokens=16)
    parts = fig.axes[1]
    heights = [bar.get_height() for bar in parts.patches]
    project, pairs = 128 * 512 * 256, 128 * 1024 * 16
    assert heights == [1024 * project, 16 * project, pairs * 320, pairs * 1088]
    assert [bar.get_y() for bar in parts.patches] == [0, 0, *heights[:2]], "attention stands on the projection"
    tops = [heights[0] + heights[2], heights[1] + heights[3]]
    assert [text.get_text() for text in parts.texts] == ["17.9 G", "2.55 G"]
    for text, top in zip(parts.texts, tops, strict=True):
        assert 0 < text.get_position()[1] - top < 0.05 * max(tops)


@pytest.mark.parametrize(
    "changed",
    [
        {"latent_dim": 96},  # 2L < n + v: absorb never loses
        {"latent_dim": 1024, "nope_dim": 0, "value_dim": 1},  # cross below one new token
        {"latent_dim": 20_000, "nope_dim": 19_900, "value_dim": 19_900},  # and beyond the axis, at 16,300
    ],
)
def test_a_crossing_beside_the_axis_is_not_marked(monkeypatch, changed):
    monkeypatch.setitem(MODELS, "DeepSeek-V3", replace(model("DeepSeek-V3"), **changed))
    fig = CrossoverExplorer().figure(model="DeepSeek-V3", cached_tokens=16_384)
    assert len(drawn(fig)["crossing"].get_xdata()) == 0
    assert not any(text.get_visible() and "equal" in text.get_text() for text in fig.axes[0].texts)


@pytest.mark.parametrize("name", MODELS)
def test_no_model_loses_its_diamond_in_any_cache(name):
    explorer = CrossoverExplorer()
    for cached in explorer.controls()["cached_tokens"].options[::4]:
        assert len(drawn(explorer.figure(model=name, cached_tokens=cached))["crossing"].get_xdata()) == 1
