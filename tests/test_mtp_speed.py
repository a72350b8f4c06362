"""What drafts gain: the printed table to its last digit, exact fractions, outcomes one by one, published throughputs,
and what the two explorers draw."""

import itertools
import math
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ledger import exercises
from ledger.account import mtp
from ledger.account.attention import family
from ledger.account.cache import CACHE_FORMATS, cache_bytes_per_token
from ledger.account.roofline import decode_work, roofline_seconds
from ledger.exercises.step_seconds import drawn_setup, exact_step
from ledger.judge.grade import describe
from ledger.machines import MACHINES, machine
from ledger.models import MODELS, model
from ledger.published import (
    MTP_16_H200,
    MTP_16_H200_CACHED,
    MTP_16_H200_REQUESTS,
    MTP_GAINS,
    as_reached,
    layer_floor,
    reached_h200,
)
from ledger.setups import ROUNDED
from ledger.widgets import mtp_speed as pictures
from ledger.widgets.base import png

V3, H100, H200 = model("DeepSeek-V3"), machine("H100"), machine("H200")
ACCEPTANCE = [0.85, 0.75, 0.65]
EXACT = mtp.setup_for(V3, 128)

# The table


def row(requests, cached, setup):
    """A line of the table as it is printed."""
    plain = requests / mtp.step_seconds(requests, 0, cached, H100, setup)
    gains = (mtp.mtp_speedup(requests, k, cached, ACCEPTANCE, H100, setup) for k in (1, 2, 3))
    return f"{cached} {requests} {plain:.0f} " + " ".join(f"{gain:.2f}" for gain in gains)


@pytest.mark.parametrize(
    "line",
    [
        "4096 16 2227 1.82 1.72 1.50",
        "4096 64 4716 0.92 0.82 0.72",
        "16384 16 1415 1.80 1.73 1.56",
        "16384 64 2302 1.30 1.16 1.01",
    ],
)
def test_the_table_from_round_numbers_to_its_last_digit(line):
    cached, requests = map(int, line.split()[:2])
    assert row(requests, cached, ROUNDED) == line


@pytest.mark.parametrize(
    "line",
    [
        "4096 16 2226 1.82 1.72 1.50",
        "4096 64 4716 0.92 0.82 0.72",
        "16384 16 1414 1.80 1.73 1.56",
        "16384 64 2301 1.30 1.16 1.01",
    ],
)
def test_the_table_from_exact_shapes_to_its_last_digit(line):
    cached, requests = map(int, line.split()[:2])
    assert row(requests, cached, EXACT) == line


def test_the_round_numbers():
    assert (ROUNDED.attention_bytes, ROUNDED.expert_bytes, ROUNDED.expert_flops) == (187e6, 44e6, 88e6)
    assert (ROUNDED.local_experts, ROUNDED.active_experts, ROUNDED.experts_per_token, ROUNDED.layers) == (3, 9, 8, 61)
    assert (ROUNDED.cache_bytes_per_token, ROUNDED.pair_flops, ROUNDED.token_bytes) == (1152, 278_528, 21_728)


@pytest.mark.parametrize(("ranks", "redundant"), [(128, 0), (144, 32)])
def test_the_round_numbers_are_rounded_shapes(ranks, redundant):
    found = mtp.setup_for(V3, ranks, redundant)
    assert (found.attention_bytes, found.expert_bytes, found.expert_flops) == (187_105_280, 44_040_192, 88_080_384)
    for name, value in vars(ROUNDED).items():
        if name != "name":
            assert getattr(found, name) == pytest.approx(value, rel=1.1e-3), name
    assert found.local_experts == 3


# The shapes


def weights_of_attention(shape):
    """From the arrays of a layer."""
    heads, key = shape.num_heads, shape.nope_dim + shape.rope_dim
    query = [(shape.hidden_dim, heads * key)]
    if shape.q_lora_dim:
        query = [(shape.hidden_dim, shape.q_lora_dim), (shape.q_lora_dim, heads * key)]
    entry = [(shape.hidden_dim, shape.latent_dim + shape.rope_dim)]
    kv_b = [(heads * (shape.nope_dim + shape.value_dim), shape.latent_dim)]
    output = [(heads * shape.value_dim, shape.hidden_dim)]
    return sum(np.empty(sides, "u1").size for sides in (*query, *entry, *kv_b, *output))


@pytest.mark.parametrize("name", MODELS)
def test_attention_params_is_the_size_of_the_matrices(name):
    assert mtp.attention_params(model(name)) == weights_of_attention(model(name))


def test_expert_params_and_dense_models():
    assert mtp.expert_params(V3) == 44_040_192
    assert mtp.expert_params(model("Kimi-K3")) == 3 * 7168 * 3072
    with pytest.raises(ValueError, match="MiniCPM3-4B"):
        mtp.expert_params(model("MiniCPM3-4B"))


def test_a_setup_goes_evenly_onto_gpus():
    assert mtp.setup_for(model("GLM-5.2"), 16).local_experts == 17
    assert mtp.setup_for(V3, 1).local_experts == 257
    assert mtp.setup_for(V3, 128, cache_format="fp8_ds_mla").cache_bytes_per_token == 656
    with pytest.raises(ValueError, match="288 experts do not go evenly onto 128"):
        mtp.setup_for(V3, 128, 32)
    with pytest.raises(ValueError, match="dense"):
        mtp.setup_for(model("MiniCPM3-4B"), 8)
    with pytest.raises(ValueError, match="num_ranks"):
        mtp.setup_for(V3, 0)


def test_pair_flops_of_some_heads():
    assert mtp.pair_flops(V3) == 278_528
    assert mtp.pair_flops(V3, 16) == 2 * 16 * 1088


# Tokens of a step


@pytest.mark.parametrize("acceptance", [[], [0.3], [0.85, 0.75, 0.65], [0.0, 1.0, 0.5], [1.0] * 6])
def test_expected_advance_over_all_outcomes(acceptance):
    """Each draft is right or wrong in turn; the first wrong one ends the step."""
    expected = Fraction(0)
    for outcome in itertools.product([True, False], repeat=len(acceptance)):
        chance = math.prod(
            Fraction(p) if right else 1 - Fraction(p) for p, right in zip(acceptance, outcome, strict=True)
        )
        accepted = next((i for i, right in enumerate(outcome) if not right), len(outcome))
        expected += chance * (accepted + 1)
    assert mtp.expected_advance(acceptance) == pytest.approx(float(expected), rel=1e-14)


def test_no_draft_adds_one_token_as_a_float():
    assert mtp.expected_advance([]) == 1.0
    assert isinstance(mtp.expected_advance([]), float)
    assert mtp.expected_advance([0.9, 0.8, 0.5]) == pytest.approx(2.98)


@pytest.mark.parametrize(
    ("id", "shown"),
    [
        ("expert_params", {"hidden_dim": 5, "expert_dim": 2}),
        ("attention_params", {"hidden_dim": 5, "q_lora_dim": 4, "num_heads": 2, "latent_dim": 3, "value_dim": 2}),
        ("verify_rows_cost", {"num_heads": 2, "latent_dim": 3, "rope_dim": 1}),
    ],
)
def test_a_case_line_shows_the_sizes_that_the_exercise_is_about(id, shown):
    exercise = exercises.get(id)
    case = exercise.cases[0]
    line = describe(exercise, case, exercise.inputs(case, 0), 0)
    for name, size in shown.items():
        assert re.search(rf"\b{name}={size}\b", line), line
    assert ("expert_dim" in line) == (id == "expert_params")
    assert ("hidden_dim" in line) == (id != "verify_rows_cost")


# Steps


@pytest.mark.parametrize("seed", range(20))
def test_steps_are_those_of_exact_fractions(seed):
    rng = np.random.default_rng(seed)
    setup, gpu = drawn_setup(rng), machine(str(rng.choice(["H100", "H200", "B200"])))
    requests, k, cached = (int(rng.integers(0, most)) for most in (100, 5, 30_000))
    exact = exact_step(requests, k, cached, gpu, setup)
    assert mtp.step_seconds(requests, k, cached, gpu, setup) == pytest.approx(float(exact), rel=1e-12)


def test_a_step_by_hand():
    exercise = exercises.get("step_seconds")
    args = exercise.inputs(exercise.case("a slow machine by hand"), 0).values()
    assert exercise.oracle(*args) == 94
    assert mtp.step_seconds(*args) == pytest.approx(94)


def test_64_requests_at_4k_are_past_attention_s_ridge_by_a_hair():
    layer = mtp.layer_times(64, 128, 4096, H100, ROUNDED)
    assert 1e6 * layer.attention_memory == pytest.approx(146.0, abs=0.05)
    assert 1e6 * layer.attention_compute == pytest.approx(147.7, abs=0.05)
    assert layer.bound == "network"
    assert layer.seconds == pytest.approx(128 * 8 * 21_728 / 50e9)


@pytest.mark.parametrize(
    ("requests", "cached", "k", "bound"),
    [(16, 4096, 0, "memory"), (16, 4096, 1, "memory"), (64, 4096, 0, "network"), (64, 16384, 1, "compute")],
)
def test_what_a_layer_waits_for(requests, cached, k, bound):
    assert mtp.layer_times(requests, requests * (k + 1), cached, H100, ROUNDED).bound == bound


def test_a_machine_without_fp8_is_refused_with_its_formats():
    with pytest.raises(ValueError, match="bf16, fp16, fp32"):
        mtp.step_seconds(1, 1, 1, machine("A100"), ROUNDED)


def test_the_list_of_acceptances_is_cut_and_never_stretched():
    long, exact = (mtp.mtp_speedup(16, 1, 4096, a, H100, ROUNDED) for a in (ACCEPTANCE, ACCEPTANCE[:1]))
    assert long == exact
    with pytest.raises(ValueError, match=r"acceptance has 3 .* num_draft_tokens 4"):
        mtp.mtp_speedup(16, 4, 4096, ACCEPTANCE, H100, ROUNDED)
    with pytest.raises(ValueError, match="num_draft_tokens is -1"):
        mtp.mtp_speedup(16, -1, 4096, ACCEPTANCE, H100, ROUNDED)


# Break-even, and the number of drafts


def test_break_even_is_the_ratio_less_one_as_it_is():
    assert mtp.break_even_acceptance(1.5) == 0.5
    assert mtp.break_even_acceptance(2.25) == 1.25
    assert mtp.break_even_acceptance(0.75) == -0.25


def test_64_requests_at_4k_would_need_more_than_certainty():
    none, one = (mtp.step_seconds(64, k, 4096, H100, ROUNDED) for k in (0, 1))
    needed = mtp.break_even_acceptance(one / none)
    assert needed == pytest.approx(1.0, abs=0.02)
    assert needed > 1
    assert mtp.mtp_speedup(64, 1, 4096, [1.0], H100, ROUNDED) < 1
    assert mtp.best_draft_count(64, 4096, [1.0] * 4, H100, ROUNDED) == 0


@pytest.mark.parametrize(("requests", "cached"), [(16, 4096), (16, 16384), (64, 16384)])
def test_at_break_even_one_draft_neither_gains_nor_loses(requests, cached):
    none, one = (mtp.step_seconds(requests, k, cached, H100, ROUNDED) for k in (0, 1))
    needed = mtp.break_even_acceptance(one / none)
    assert mtp.mtp_speedup(requests, 1, cached, [needed], H100, ROUNDED) == pytest.approx(1, abs=1e-14)
    for more, best in ((0, 0), (2e-13, 0), (1e-11, 1), (-1e-11, 0)):
        assert mtp.best_draft_count(requests, cached, [needed + more], H100, ROUNDED) == best


@pytest.mark.parametrize("seed", range(12))
def test_the_best_number_has_the_largest_exact_gain(seed):
    rng = np.random.default_rng([8, seed])
    exercise = exercises.get("best_draft_count")
    args = exercise.inputs(exercise.case("a setup drawn at random"), int(rng.integers(10**6))).values()
    assert mtp.best_draft_count(*args) == exercise.oracle(*args)


def test_no_acceptance_leaves_no_draft():
    assert mtp.best_draft_count(1, 1024, [], H100, ROUNDED) == 0


# Rows


@pytest.mark.parametrize(("heads", "drafts"), [*itertools.product((1, 16, 64, 96, 128), (0, 1, 3))])
def test_rows_cost_what_two_rooflines_say(heads, drafts):
    shape = replace(V3, num_heads=heads)
    for form, gpu in itertools.product(CACHE_FORMATS, (H200, MACHINES["A100"], reached_h200())):
        entry = cache_bytes_per_token(shape, form)
        works = (decode_work(10**6, heads, new, 512, 64, entry) for new in (1, drafts + 1))
        one, many = (roofline_seconds(*work, gpu, "bf16") for work in works)
        assert mtp.verify_rows_cost(shape, drafts, form, gpu, "bf16") == pytest.approx(many / one, rel=1e-12)


@pytest.mark.parametrize(("heads", "sheet", "reached"), [(128, 2.0, 2.0), (64, 1.17, 1.75), (16, 1.0, 1.0)])
def test_a_second_row_by_datasheet_and_as_reached(heads, sheet, reached):
    shape = replace(V3, num_heads=heads)
    found = [mtp.verify_rows_cost(shape, 1, "bf16_mla", gpu, "bf16") for gpu in (H200, reached_h200())]
    assert found == pytest.approx([sheet, reached], abs=0.005)


def test_rows_of_mla_are_those_of_its_scheme():
    scheme = family(V3)[-1]
    for k in range(4):
        wanted = max(H200.ridge(), (k + 1) * scheme.intensity) / max(H200.ridge(), scheme.intensity)
        assert mtp.verify_rows_cost(V3, k, "bf16_mla", H200, "bf16") == pytest.approx(wanted, rel=1e-12)


def test_unknown_formats_and_dtypes_name_the_choices():
    with pytest.raises(ValueError, match="bf16_mla, fp8_ds_mla, fp8_plain_mla"):
        mtp.verify_rows_cost(V3, 1, "int4_mla", H200, "bf16")
    with pytest.raises(ValueError, match="bf16, fp16, fp32"):
        mtp.verify_rows_cost(V3, 1, "bf16_mla", machine("A100"), "fp8")


# Refinements


@pytest.mark.parametrize(("held", "tokens"), [(4, 1), (4, 2), (3, 2), (4, 3)])
def test_experts_touched_over_all_choices(held, tokens):
    """Two of four experts for each token, all pairs alike; the first ``held`` lie here."""
    pairs = list(itertools.combinations(range(4), 2))
    choices = list(itertools.product(pairs, repeat=tokens))
    mean = sum(len({e for pair in choice for e in pair if e < held}) for choice in choices) / len(choices)
    assert mtp.experts_touched(held, 4, 2, tokens) == pytest.approx(mean)


def test_without_refinements_the_plain_step_is_left():
    bare = mtp.Refined(setup=ROUNDED)
    for (cached, requests), k in itertools.product(pictures.MARKED, range(4)):
        assert bare.step(requests, k, cached, H100) == mtp.step_seconds(requests, k, cached, H100, ROUNDED)
        plain = mtp.mtp_speedup(requests, k, cached, [*ACCEPTANCE, 0], H100, ROUNDED)
        assert bare.speedup(requests, k, cached, [*ACCEPTANCE, 0], H100) == pytest.approx(plain)


def test_the_drafter_and_the_head_by_their_weights():
    full = mtp.refined(V3, EXACT, 128, 0.0)
    assert full.drafter_bytes / 2 == pytest.approx(102.8e6, rel=1e-3)
    assert full.head_bytes / 2 == pytest.approx(926.7e6, rel=1e-4)
    bare, heavy = mtp.Refined(setup=EXACT), mtp.Refined(setup=EXACT, drafter_bytes=6e9, head_bytes=10e9)
    for k in (0, 1, 3):
        more = heavy.step(16, k, 4096, H100) - bare.step(16, k, 4096, H100)
        assert more == pytest.approx(((1 + k) * 10e9 + k * 6e9) / 3.35e12)


def test_floor_and_host_time_are_paid_once():
    bare, slow = mtp.Refined(setup=EXACT), mtp.Refined(setup=EXACT, floor=5e-5, host=4e-3)
    assert slow.step(8, 2, 4096, H100) - bare.step(8, 2, 4096, H100) == pytest.approx(63 * 5e-5 + 4e-3)


def test_projections_compute_and_are_kernels_of_their_own():
    found = mtp.Refined(setup=EXACT, projections=True).layer(500, 1000, 256, H100)
    weights = max(187_105_280 / 3.35e12, 2 * 1000 * 187_105_280 / 1979e12)
    cache = max(500 * 256 * 1152 / 3.35e12, 1000 * 256 * 278_528 / 989e12)
    experts = max(3 * 44_040_192 / 3.35e12, 1000 * 9 * 88_080_384 / 1979e12)
    assert found == pytest.approx(max(weights + cache + experts, 1000 * 8 * 21_728 / 50e9))
    fast = replace(H100, network=math.inf)
    assert mtp.Refined(setup=EXACT, projections=True).layer(500, 1000, 256, fast) == pytest.approx(
        weights + cache + experts
    )


def test_only_chosen_experts_are_read():
    setup, fast = mtp.setup_for(V3, 16), replace(H100, network=math.inf)
    full = mtp.Refined(setup=setup).layer(1, 1, 0, fast)
    few = mtp.Refined(setup=setup, num_experts=256, group=2).layer(1, 1, 0, fast)
    touched = 16 * (1 - (1 - 8 / 256) ** 2)
    assert full - few == pytest.approx((16 - touched) * 44_040_192 / 3.35e12)


def test_half_batches_read_the_weights_twice_and_a_sum_hides_nothing():
    bare = mtp.layer_times(16, 32, 4096, H100, EXACT)
    half = mtp.layer_times(8, 16, 4096, H100, EXACT)
    ways = {
        name: mtp.Refined(setup=EXACT, overlap=name).layer(16, 32, 4096, H100) for name in ("none", "halves", "best")
    }
    assert ways["none"] == pytest.approx(bare.compute + bare.network)
    assert ways["halves"] == pytest.approx(max(2 * half.compute, bare.network))
    assert ways["best"] == min(ways["none"], ways["halves"])
    with pytest.raises(ValueError, match="free, halves, none, best"):
        mtp.Refined(setup=EXACT, overlap="twice").layer(1, 1, 1, H100)


def test_tensor_parallel_gpus_share_weights_and_heads_but_not_the_cache():
    shared = mtp.refined(V3, EXACT, 1, 0.0, tensor_parallel=8)
    assert shared.setup.attention_bytes == 187_105_280 / 8
    assert shared.setup.pair_flops == mtp.pair_flops(V3, 16)
    assert shared.setup.cache_bytes_per_token == 1152
    assert shared.head_bytes == 2 * 7168 * 129_280 / 8


# Published


def test_one_draft_on_few_requests_gains_what_the_report_says():
    assert mtp.mtp_speedup(16, 1, 4096, [0.85], H100, EXACT) == pytest.approx(1.8, abs=0.05)
    assert mtp.expected_advance([0.85]) < 1.9


def test_reached_rates_are_shares_of_the_datasheets():
    found = as_reached(H200)
    assert (found.bandwidth, found.rate()) == pytest.approx((reached_h200().bandwidth, reached_h200().rate()))
    assert found.network == pytest.approx(128 * 8 * 21_728 / 561e-6)
    assert as_reached(machine("B200")).bandwidth / 8e12 == pytest.approx(found.bandwidth / 4.8e12)
    assert 1e6 * layer_floor() == pytest.approx(11.905 + 12.557 + 19.51)


def test_by_reached_rates_16_at_16k_falls_furthest_and_64_falls_below_1():
    def gains(gpu):
        steps = {load: [exact_step(load[1], k, load[0], gpu, EXACT) for k in (0, 1)] for load in pictures.MARKED}
        return {load: 1.85 * none / one for load, (none, one) in steps.items()}

    sheet, reached = gains(H100), gains(as_reached(H100))
    assert max(sheet, key=lambda load: sheet[load] - reached[load]) == (16384, 16)
    assert [load for load in sheet if reached[load] < 1 < sheet[load]] == [(16384, 64)]


def test_sglang_s_gains_lie_within_what_one_to_three_drafts_give():
    whole = replace(mtp.setup_for(V3, 1), token_bytes=0)
    shared = mtp.refined(V3, whole, 1, layer_floor(), tensor_parallel=8)
    for published in MTP_GAINS[:2]:
        gains = [shared.speedup(published.requests, k, 4096, ACCEPTANCE, as_reached(H200)) for k in (1, 2, 3)]
        assert min(gains) - 0.05 < published.gain < max(gains)
    alone = replace(shared, floor=0.0).speedup(1, 1, 4096, ACCEPTANCE, as_reached(H200))
    assert alone < 1.2, "a second token asks for other experts"


def lmsys():
    """The account of LMSYS's first case without its fixed time, and that time."""
    small = mtp.refined(V3, mtp.setup_for(V3, 16), 16, layer_floor())
    n, base = MTP_16_H200_REQUESTS, MTP_16_H200[0].tokens_a_second
    return small, n / base - small.step(n, 0, MTP_16_H200_CACHED, as_reached(H200))


def test_lmsys_s_table_is_as_published():
    base, overlapped, three, four = MTP_16_H200
    assert [r.tokens_a_second for r in MTP_16_H200] == [51.0, 60.4, 81.5, 82.0]
    assert (three.advance, four.advance) == (2.18, 2.44)
    assert (overlapped.overlap, overlapped.num_draft_tokens, three.num_draft_tokens) == (True, 0, 2)
    # "+59.8 %" and "+60.8 %" stand beside the throughputs
    assert three.tokens_a_second / base.tokens_a_second == pytest.approx(1.598, abs=5e-4)
    assert four.tokens_a_second / base.tokens_a_second == pytest.approx(1.608, abs=5e-4)
    assert [g.gain for g in MTP_GAINS] == [1.8, 1.5, 1.142]


def test_one_fixed_time_from_the_first_row_predicts_the_other_gains():
    small, fixed = lmsys()
    assert fixed > 0
    n, base = MTP_16_H200_REQUESTS, MTP_16_H200[0].tokens_a_second
    for published in MTP_16_H200[2:]:
        k = published.num_draft_tokens
        seconds = replace(small, host=fixed).step(n, k, MTP_16_H200_CACHED, as_reached(H200))
        measured = published.tokens_a_second / base
        assert published.advance * n / base / seconds == pytest.approx(measured, rel=0.04)
        steps = [mtp.step_seconds(n, drafts, MTP_16_H200_CACHED, H200, small.setup) for drafts in (0, k)]
        assert published.advance * steps[0] / steps[1] > 1.05 * measured, "the plain account is too kind"


def test_the_same_fixed_time_turns_a_predicted_loss_into_the_published_gain():
    _, fixed = lmsys()
    published = MTP_GAINS[2]
    large = mtp.refined(V3, mtp.setup_for(V3, 96, 32), 96, layer_floor(), host=fixed)
    given = published.requests, published.num_draft_tokens, published.cached_tokens, ACCEPTANCE
    assert mtp.mtp_speedup(*given, H200, large.setup) < 1
    assert large.speedup(*given, as_reached(H200)) == pytest.approx(published.gain, rel=0.04)


# A dense model


def test_llama_2_7b_has_its_weights():
    dense = mtp.LLAMA_2_7B
    assert dense.layer_params == 4 * 4096**2 + 3 * 4096 * 11008
    assert 32 * dense.layer_params + 2 * 32000 * 4096 == pytest.approx(6.738e9, rel=1e-3)


def test_a_dense_layer_by_hand():
    found = mtp.LLAMA_2_7B.layer(300, 600, 128, H100)
    products = 2 * 600 * mtp.LLAMA_2_7B.layer_params / 989e12  # past the ridge of 295 tokens
    assert found == pytest.approx(products + 300 * 128 * 16_384 / 3.35e12)


@pytest.mark.parametrize("cached", [128, 1024])
def test_a_dense_model_s_gain_falls_with_the_batch(cached):
    gains = [mtp.LLAMA_2_7B.speedup(2**i, 1, cached, ACCEPTANCE, H100) for i in range(10)]
    assert gains[0] == pytest.approx(1.85 / (33 / 32), rel=1e-6)
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in itertools.pairwise(gains))
    assert gains[-1] < 0.95 * gains[0]


# The explorers


def map_of(**values):
    grid, lines, _ = pictures.SpeedMap().figure(**values).axes
    return grid, lines, {line.get_gid(): line for ax in (grid, lines) for line in ax.lines}


def test_the_map_shows_the_table_s_gains_and_bounds():
    grid, _, artists = map_of()
    [mesh] = grid.collections
    shown = np.asarray(mesh.get_array()).reshape(len(pictures.CACHED), len(pictures.REQUESTS))
    for (cached, requests), gain in zip(pictures.MARKED, (1.82, 0.92, 1.80, 1.30), strict=True):
        place = pictures.CACHED.index(cached), pictures.REQUESTS.index(requests)
        assert shown[place] == pytest.approx(gain, abs=0.005)
        line = artists[f"{requests} requests at {cached // 1024}K"]
        assert line.get_ydata()[:2] == pytest.approx([1, gain], abs=0.005)
    places = {bound: set(zip(*artists[bound].get_data(), strict=True)) for bound in pictures.BOUNDS}
    assert sum(map(len, places.values())) == 72
    assert (pictures.REQUESTS.index(64), pictures.CACHED.index(4096)) in places["network"]
    assert (0, 0) in places["memory"]
    assert "1 draft" in grid.get_title(loc="left")


def test_the_map_follows_its_controls():
    def first_gain(**values):
        return np.asarray(map_of(**values)[0].collections[0].get_array()).ravel()

    plain = first_gain()
    assert np.all(first_gain(first=50) <= plain)
    assert np.any(first_gain(machine="B200") != plain)
    grid, *_ = map_of(kind="refined")
    assert "plain account" in grid.get_legend().get_title().get_text(), "the signs are not the refined account's"
    assert not map_of()[0].get_legend().get_title().get_text()
    full = first_gain(kind="refined")
    assert full[0] != plain[0]
    gpu, index = as_reached(H100), pictures.CACHED.index(16384) * len(pictures.REQUESTS) + pictures.REQUESTS.index(16)
    wanted = mtp.refined(V3, EXACT, 128, layer_floor()).speedup(16, 1, 16384, [0.85], gpu)
    assert full[index] == pytest.approx(wanted)
    count = int(re.search(r"slower in (\d+)", map_of()[0].get_title(loc="left"))[1])
    fits = [
        pictures.held_bytes(n, cached, ROUNDED) <= H100.memory for cached in pictures.CACHED for n in pictures.REQUESTS
    ]
    assert count == np.sum((plain < 1) & fits)


def test_weights_and_caches_of_a_load_in_bytes():
    """61 layers of 187 MB of attention and 3 experts of 44 MB, and 1,152 bytes of each cached token."""
    weights = 61 * (187e6 + 132e6)
    assert pictures.held_bytes(0, 4096, ROUNDED) == weights
    assert pictures.held_bytes(64, 16384, ROUNDED) == pytest.approx(weights + 73_685_532_672)
    assert H100.memory < pictures.held_bytes(64, 16384, ROUNDED) < H200.memory


@pytest.mark.parametrize("name", pictures.DEVICES)
def test_the_map_hatches_what_does_not_fit(name):
    bars = pictures.SpeedMap().figure(machine=name).axes[0].containers[0]
    for column, (bar, requests) in enumerate(zip(bars, pictures.REQUESTS, strict=True)):
        assert bar.get_x() + bar.get_width() / 2 == column
        assert bar.get_y() + bar.get_height() == len(pictures.CACHED) - 0.5
        for row, cached in enumerate(pictures.CACHED):
            held = 61 * (319e6 + requests * cached * 1152)
            assert (row > bar.get_y()) == (held > machine(name).memory)


def test_long_contexts_bring_a_part_of_the_gain_back_until_arithmetic_is_full():
    few, many = ([mtp.mtp_speedup(n, 1, c, ACCEPTANCE, H100, ROUNDED) for c in pictures.CACHED] for n in (16, 64))
    assert [f"{gain:.2f}" for gain in few[2:]] == ["1.82", "1.82", "1.80", "1.50", "1.32", "1.22"]
    assert [f"{gain:.2f}" for gain in many[2:]] == ["0.92", "1.13", "1.30", "1.21", "1.17", "1.14"]
    assert many.index(max(many)) == pictures.CACHED.index(16384)


def test_a_fixed_time_of_each_step_makes_the_gain_higher():
    for cached, requests in pictures.MARKED:
        bare, fixed = (mtp.Refined(setup=ROUNDED, host=host) for host in (0, 5e-3))
        gains = [account.speedup(requests, 1, cached, ACCEPTANCE, H100) for account in (bare, fixed)]
        assert gains[1] > gains[0]


def test_acceptances_fall_by_points_to_nothing():
    assert pictures.acceptances(85, 10) == pytest.approx([0.85, 0.75, 0.65, 0.55])
    assert pictures.acceptances(50, 20) == pytest.approx([0.5, 0.3, 0.1, 0])


def test_the_chooser_draws_the_best_number_of_each_hour():
    fig = pictures.DraftChooser().figure(peak=64, cached_tokens=4096)
    below = fig.subfigs[0].axes[1]
    shown = [int(n) for n in below.lines[0].get_ydata()][:-1]
    accepted = pictures.acceptances(85, 10)
    wanted = [mtp.best_draft_count(n, 4096, accepted, H100, ROUNDED) for n in pictures.load(64)]
    assert shown == wanted
    assert {0, 1} <= set(shown), "a load that changes the choice"


@pytest.mark.parametrize("kind", pictures.ACCOUNTS)
def test_following_the_load_is_never_worse_than_a_fixed_number(kind):
    for peak, cached in itertools.product((4, 64, 256), (1024, 65_536)):
        totals, best = pictures.day("H200", peak, cached, pictures.acceptances(85, 10), kind)
        assert totals[-1] >= max(totals[:-1]) * (1 - 1e-9)
        assert len(best) == len(pictures.HOURS)


def test_a_day_of_one_policy_adds_its_hours():
    totals, _ = pictures.day("H100", 16, 4096, pictures.acceptances(85, 10))
    by_hand = sum(1800 * n * 1.85 / mtp.step_seconds(n, 1, 4096, H100, ROUNDED) for n in pictures.load(16))
    assert totals[1] == pytest.approx(by_hand)
    assert max(pictures.load(64)) == 64
    assert min(pictures.load(4)) == 1


def assert_all_text_inside(fig, axes):
    png(fig)
    texts = [t for ax in axes for t in [*ax.texts, ax._left_title, ax.xaxis.label, ax.yaxis.label]]
    for text in filter(lambda text: text.get_text(), texts):
        box = text.get_window_extent()
        assert box.x0 >= 0, text.get_text()
        assert box.x1 <= fig.bbox.width, text.get_text()
        assert box.y0 >= 0, text.get_text()
        assert box.y1 <= fig.bbox.height, text.get_text()


def test_the_pictures_keep_their_text_inside():
    for values in ({}, {"kind": "refined", "num_draft_tokens": 4, "machine": "B200"}):
        fig = pictures.SpeedMap().figure(**values)
        assert_all_text_inside(fig, fig.axes)
    for values in ({}, {"kind": "refined", "peak": 256, "cached_tokens": 65_536, "machine": "H800"}):
        fig = pictures.DraftChooser().figure(**values)
        assert_all_text_inside(fig, [ax for sub in fig.subfigs for ax in sub.axes])
    fig = pictures.layer_bars(pictures.MARKED, H100, ROUNDED)
    assert_all_text_inside(fig, fig.axes)
    numbers = [text.get_text() for ax in fig.axes for text in ax.texts]
    assert {"118", "222", "445", "642"} <= set(numbers)


def test_importing_needs_numpy_alone():
    code = (
        "import sys, ledger.widgets.mtp_speed, ledger.account.mtp, ledger.setups;"
        "sys.exit(bool({'matplotlib', 'ipywidgets', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
