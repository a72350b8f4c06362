"""Chapter 9: bytes against packed tokens and torch's formats, the router against scalar loops and torch, schedules
against a simulation and the longest path, published times against published rates, and what the explorer draws."""

import itertools
import math
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from ledger import exercises
from ledger.account import experts as account
from ledger.exercises.overlap_seconds import simulate
from ledger.machines import machine
from ledger.models import MODELS, model
from ledger.published import DEEPEP_H200, DEEPEP_H800
from ledger.reference import experts
from ledger.widgets import experts as pictures
from ledger.widgets.base import png

V3, H200, H800 = model("DeepSeek-V3"), machine("H200"), machine("H800")
RNG = np.random.default_rng(9)

# Bytes


@pytest.mark.parametrize(
    ("hidden", "block", "wanted"),
    [
        (7168, 128, (7392, 14336)),
        (7168, 129, (7392, 14336)),
        (6144, 32, (6912, 12288)),
        (1, 128, (5, 2)),
        (0, 1, (0, 0)),
    ],
)
def test_what_a_token_weighs(hidden, block, wanted):
    assert account.token_bytes(hidden, block) == wanted


def test_both_ways_of_deepseek_v3():
    assert account.token_bytes(7168).total == 21728


@pytest.mark.parametrize(("hidden", "block"), [(7168, 128), (300, 128), (10, 4), (7, 1)])
def test_packed_tokens_are_as_long_as_predicted(hidden, block):
    tokens = RNG.standard_normal((3, hidden)).astype(np.float32)
    packed = experts.pack_dispatch(tokens, block)
    assert (packed.codes.dtype, packed.scales.dtype) == (np.uint8, np.float32)
    assert len(packed.codes.tobytes() + packed.scales.tobytes()) == 3 * account.token_bytes(hidden, block).dispatch
    assert packed.nbytes == 3 * account.token_bytes(hidden, block).dispatch
    assert len(experts.pack_combine(tokens).tobytes()) == 3 * account.token_bytes(hidden, block).combine


def test_sizes_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="scale_block is 0"):
        account.token_bytes(7168, 0)
    with pytest.raises(ValueError, match="hidden_dim is -1"):
        account.token_bytes(-1)


@pytest.mark.parametrize("block", [128, 50])
def test_a_packed_token_is_torchs_e4m3_under_a_scale_for_each_block(block):
    torch = pytest.importorskip("torch")
    tokens = (RNG.standard_normal((4, 300)) * np.exp(RNG.uniform(-8, 8, 300))).astype(np.float32)
    packed = experts.pack_dispatch(tokens, block)
    for row, start in itertools.product(range(4), range(0, 300, block)):
        part = tokens[row, start : start + block]
        scale = np.float32(np.abs(part).max() / 448)
        assert packed.scales[row, start // block] == scale
        codes = torch.tensor(part / scale).to(torch.float8_e4m3fn)
        assert packed.codes[row, start : start + block].tolist() == codes.view(torch.uint8).tolist()
        read = experts.unpack_dispatch(packed, block)[row, start : start + block]
        assert read.tolist() == (codes.float() * torch.tensor(scale)).tolist()


def test_what_comes_back_is_torchs_bf16():
    torch = pytest.importorskip("torch")
    outputs = (RNG.standard_normal((5, 64)) * 1e3).astype(np.float32)
    packed, right = experts.pack_combine(outputs), torch.tensor(outputs).to(torch.bfloat16)
    assert packed.tolist() == right.view(torch.uint16).tolist()
    assert experts.unpack_combine(packed).tolist() == right.float().tolist()


def test_a_block_of_zeros_comes_back_as_zeros():
    tokens = np.zeros((2, 200), np.float32)
    tokens[0, :128] = 3.0
    read = experts.unpack_dispatch(experts.pack_dispatch(tokens))
    assert np.array_equal(read, tokens)


def test_integers_are_refused():
    with pytest.raises(ValueError, match="make it floating"):
        experts.pack_dispatch(np.ones((2, 8), int))


def test_weights_of_deepseek_v3_and_others():
    """The shapes of released checkpoints: V3's experts, and projections multiplied out by hand."""
    assert account.expert_params(V3) == 44_040_192
    assert (
        account.attention_params(V3)
        == 187_105_280
        == 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    )
    lite = 2048 * 16 * 192 + 2048 * 576 + 512 * 16 * 256 + 16 * 128 * 2048
    assert account.attention_params(model("DeepSeek-V2-Lite")) == lite
    routed = (V3.num_layers - account.V3_DENSE_LAYERS) * V3.num_experts * account.expert_params(V3)
    assert routed == pytest.approx(653.9e9, rel=1e-4)
    with pytest.raises(ValueError, match="MiniCPM3-4B is dense"):
        account.expert_params(model("MiniCPM3-4B"))


# The all-to-all


def test_seconds_of_a_journey():
    assert account.all_to_all_seconds(2, 3, 10, 40.0, 1.0) == pytest.approx(6.1)
    assert account.all_to_all_seconds(128, 8, 7168, 50e9, 0.0) == pytest.approx(444.99e-6, rel=1e-4)
    assert account.all_to_all_seconds(0, 8, 7168, 50e9, 3e-5) == 3e-5
    assert account.all_to_all_seconds(5, 8, 7168, 0.0, 3e-5) == math.inf


def test_a_fit_finds_the_floor_and_bandwidth_that_made_the_times():
    moved = np.array([0, 1e3, 1e5, 3e6, 1e8])
    fit = account.fit_floor(moved, 12e-6 + moved / 250e9)
    assert fit == pytest.approx((12e-6, 250e9))
    assert fit.seconds([0, 250e3]) == pytest.approx([12e-6, 13e-6])


def test_a_fit_counts_relative_errors():
    """Two times for the same bytes: the best constant for squared relative errors is Σ1/t over Σ1/t²."""
    fit = account.fit_floor([0, 0, 1e9], [1.0, 3.0, 10.0])
    assert fit.floor == pytest.approx((1 + 1 / 3) / (1 + 1 / 9))


@pytest.mark.parametrize(
    ("way", "floor_us", "rate", "larger"), [("dispatch", 11.2, 308, 0.329), ("combine", 11.6, 260, 0.315)]
)
def test_floor_plus_bytes_fits_deepep_and_the_larger_of_them_does_not(way, floor_us, rate, larger):
    moved = np.array([row.tokens * 8 * getattr(account.token_bytes(7168), way) for row in DEEPEP_H200], float)
    taken = np.array([getattr(row, way) / 1e6 for row in DEEPEP_H200])
    fit = account.fit_floor(moved, taken)
    assert (1e6 * fit.floor, fit.bandwidth / 1e9) == pytest.approx((floor_us, rate), rel=0.005)
    assert np.max(np.abs(fit.seconds(moved) / taken - 1)) < 0.10

    def squares(floor, bandwidth):
        return ((np.maximum(floor, moved / bandwidth) / taken - 1) ** 2).sum(axis=-1)

    roof = account.fit_larger(moved, taken)
    assert np.max(np.abs(np.maximum(roof.floor, moved / roof.bandwidth) / taken - 1)) == pytest.approx(
        larger, abs=0.002
    )
    near = itertools.product(np.linspace(8e-6, 20e-6, 61), np.linspace(180e9, 330e9, 61))
    assert squares(*roof) <= min(squares(*each) for each in near)


def test_a_fit_of_the_larger_finds_the_floor_and_bandwidth_that_made_the_times():
    moved = np.array([1e8, 0, 1e3, 1e5, 3e6])
    assert account.fit_larger(moved, np.maximum(12e-6, moved / 250e9)) == pytest.approx((12e-6, 250e9))
    with pytest.raises(ValueError, match="1 measured times"):
        account.fit_larger([1], [1])


def test_published_times_on_h800_give_the_rates_published_beside_them():
    """GB/s of the same table, in its own rounding (which is a little below bytes over the rounded times)."""
    rates = {8: (98, 127), 16: (63, 74), 32: (48, 53), 64: (43, 46), 128: (39, 39), 256: (39, 40)}
    assert [row.ranks for row in DEEPEP_H800] == list(rates)
    for row in DEEPEP_H800:
        sizes = account.token_bytes(7168)
        for size, taken, rate in zip(sizes, (row.dispatch, row.combine), rates[row.ranks], strict=True):
            assert 0 <= row.tokens * 8 * size / taken / 1e3 - rate < 2


def test_what_leaves_the_node_leaves_a_floor_over():
    for row in DEEPEP_H800[1:]:
        moved = [row.tokens * 8 * size * (1 - 8 / row.ranks) for size in account.token_bytes(7168)]
        left = [
            taken - 1e6 * each / H800.network for taken, each in zip((row.dispatch, row.combine), moved, strict=True)
        ]
        assert 40 < left[0] < 51
        assert 48 <= round(left[1]) < 95


@pytest.mark.parametrize(("ranks", "left_over", "published"), [(64, 97.6, 173 + 314), (128, 143.8, 192 + 369)])
def test_with_the_copies_that_leave_the_node_the_formula_gives_back_what_was_published(ranks, left_over, published):
    speed, floor = H800.network / (1 - 8 / ranks), left_over / 1e6
    assert 1e6 * account.all_to_all_seconds(128, 8, 7168, speed, floor) == pytest.approx(published, abs=0.1)
    stages = account.layer_stages(128, 4096, V3, H200, ranks, speed, floor)
    assert 1e6 * (stages.dispatch + stages.combine) == pytest.approx(published, abs=0.1)


@pytest.mark.parametrize(
    ("ranks", "floor_us", "loses", "wins"),
    [(64, 22.8, 16, 32), (128, 22.8, 8, 16), (64, 97.6, 8, 16), (128, 143.8, 64, 128)],
)
def test_two_half_batches_break_even_where_the_lesson_says(ranks, floor_us, loses, wins):
    def gain(tokens):
        setting = (4096, V3, H200, ranks, H800.network / (1 - 8 / ranks), floor_us / 1e6)
        full, half = (account.layer_stages(each, *setting) for each in (tokens, tokens / 2))
        one, _ = account.overlap_seconds(full.compute * 58, full.communication * 58)
        return one / account.finish(account.timeline(half.compute * 58, half.communication * 58, batches=2))

    assert gain(loses) < 1 < gain(wins)


def test_published_times_on_h200_grow_with_the_tokens():
    tokens = [row.tokens for row in DEEPEP_H200]
    assert tokens == [2**n for n in range(11)]
    assert all(later.combine > earlier.combine for earlier, later in itertools.pairwise(DEEPEP_H200))
    assert {row.ranks for row in DEEPEP_H200} == {8}


# The router


def route_by_loops(logits, bias, num_groups, top_groups, top_k, scale):
    """The definition, a token and an expert at a time; ties go to the lower number because it is looked at first."""
    size = len(bias) // num_groups
    all_ids, all_weights = [], []
    for row in logits.tolist():
        affinity = [1 / (1 + math.exp(-x)) for x in row]
        score = [a + b for a, b in zip(affinity, bias.tolist(), strict=True)]
        sums = [sum(sorted(score[g * size : (g + 1) * size])[-2:]) for g in range(num_groups)]
        is_open = set()
        for _ in range(top_groups):
            is_open.add(max((g for g in range(num_groups) if g not in is_open), key=lambda g: sums[g]))
        ids = []
        for _ in range(top_k):
            left = (e for e in range(len(row)) if e // size in is_open and e not in ids)
            ids.append(max(left, key=lambda e: score[e]))
        total = math.fsum(affinity[e] for e in ids)
        all_ids.append(ids)
        all_weights.append([scale * affinity[e] / total for e in ids])
    return all_ids, all_weights


ROUTERS = [(4, 3, 5, 2, 4), (9, 8, 32, 4, 8), (6, 5, 1, 3, 2), (5, 1, 12, 1, 3), (7, 4, 6, 4, 9), (3, 6, 4, 1, 4)]


@pytest.mark.parametrize("sizes", ROUTERS)
@pytest.mark.parametrize("offset", [0.0, -3.0])
def test_routing_is_that_of_scalar_loops(sizes, offset):
    tokens, groups, size, top_groups, top_k = sizes
    logits, bias = RNG.standard_normal((tokens, groups * size)), offset + 0.3 * RNG.standard_normal(groups * size)
    ids, weights = experts.route_tokens(logits, bias, groups, top_groups, top_k, 2.5)
    right_ids, right_weights = route_by_loops(logits, bias, groups, top_groups, top_k, 2.5)
    assert ids.tolist() == right_ids
    assert weights == pytest.approx(np.array(right_weights), rel=1e-12)
    assert ids.dtype == np.int64


def test_the_lower_number_wins_ties_between_experts_and_between_groups():
    logits = RNG.choice([-1.0, 2.0], (200, 24))
    ids, _ = experts.route_tokens(logits, np.zeros(24), 6, 3, 7, 1.0)
    assert ids.tolist() == route_by_loops(logits, np.zeros(24), 6, 3, 7, 1.0)[0]
    ids, weights = experts.route_tokens(np.zeros((1, 12)), np.zeros(12), 4, 2, 4, 1.0)
    assert ids.tolist() == [[0, 1, 2, 3]]
    assert weights.tolist() == [[0.25] * 4]


@pytest.mark.parametrize("offset", [0.0, -3.0])
def test_routing_is_that_of_torch(offset):
    torch = pytest.importorskip("torch")
    logits, bias = RNG.standard_normal((64, 256)), offset + 0.1 * RNG.standard_normal(256)
    affinity = torch.sigmoid(torch.tensor(logits))
    score = affinity + torch.tensor(bias)
    by_group = score.view(64, 8, 32).topk(2, dim=-1).values.sum(-1)
    is_open = torch.zeros(64, 8).scatter(1, by_group.topk(4, dim=-1).indices, 1.0).bool()
    closed = ~is_open.repeat_interleave(32, dim=1)
    right = score.masked_fill(closed, -math.inf).topk(8, dim=-1).indices
    weights = affinity.gather(1, right)
    ids, got = experts.route_tokens(logits, bias, **account.V3_ROUTING)
    assert ids.tolist() == right.tolist()
    assert got == pytest.approx((2.5 * weights / weights.sum(1, keepdim=True)).numpy(), rel=1e-12)


def test_the_bias_steers_and_does_not_weigh():
    logits, bias = RNG.standard_normal((5, 16)), np.zeros(16)
    bias[3] = 10.0
    ids, weights = experts.route_tokens(logits, bias, 1, 1, 4, 1.0)
    assert (ids[:, 0] == 3).all()
    own = experts.sigmoid(np.take_along_axis(logits, ids, axis=1))
    assert weights == pytest.approx(own / own.sum(axis=1, keepdims=True))


@pytest.mark.parametrize(("groups", "top_groups", "top_k"), [(3, 1, 2), (4, 1, 3), (4, 5, 2), (4, 0, 1)])
def test_experts_that_cannot_be_taken_are_refused(groups, top_groups, top_k):
    with pytest.raises(ValueError, match="cannot be taken"):
        experts.route_tokens(np.zeros((1, 8)), np.zeros(8), groups, top_groups, top_k, 1.0)


def test_the_routing_constants_are_deepseek_v3s():
    assert account.V3_ROUTING["top_k"] == V3.experts_per_token
    assert V3.num_experts % account.V3_ROUTING["num_groups"] == 0


@pytest.mark.parametrize("x", [-700.0, -30.0, 0.0, 1.5, 30.0, 700.0])
def test_a_sigmoid_keeps_its_digits_on_both_sides(x):
    assert float(experts.sigmoid(np.array(x))) == pytest.approx(1 / (1 + math.exp(-x)), rel=1e-12)


# Loads, the layer, the balance


def test_loads_count_every_copy_and_the_wait_is_largest_less_mean():
    ids = RNG.integers(0, 24, (37, 5))
    loads, wait = experts.rank_loads(ids, 4, 6)
    right = Counter(int(expert) // 4 for expert in ids.ravel())
    assert loads.tolist() == [right[rank] for rank in range(6)]
    assert wait == pytest.approx(max(right.values()) - 37 * 5 / 6)
    assert loads.dtype == np.int64


def test_no_tokens_make_nobody_wait():
    loads, wait = experts.rank_loads(np.zeros((0, 8), np.int64), 4, 3)
    assert loads.tolist() == [0, 0, 0]
    assert wait == 0.0


def test_the_layer_is_the_weighted_sum_over_each_tokens_experts():
    tokens, hidden, wide, number, top_k = 9, 6, 5, 7, 3
    weights = [
        [RNG.standard_normal(s) for s in ((hidden, wide), (hidden, wide), (wide, hidden))] for _ in range(number)
    ]
    x = RNG.standard_normal((tokens, hidden))
    ids = np.array([RNG.permutation(number - 1)[:top_k] for _ in range(tokens)])  # nobody takes the last
    scale = RNG.uniform(0, 1, (tokens, top_k))

    def never(rows):
        raise AssertionError("an expert without tokens was called")

    called = [experts.swiglu(*w) for w in weights[:-1]] + [never]
    right = np.zeros((tokens, hidden))
    for t, place in itertools.product(range(tokens), range(top_k)):
        gate, up, down = weights[ids[t, place]]
        g = x[t] @ gate
        right[t] += scale[t, place] * ((g / (1 + np.exp(-g)) * (x[t] @ up)) @ down)
    assert experts.moe_layer(x, ids, scale, called) == pytest.approx(right, rel=1e-12)
    assert experts.moe_layer(x.astype(np.float32), ids, scale.astype(np.float32), called).dtype == np.float32


def test_an_expert_is_torchs_swiglu():
    torch = pytest.importorskip("torch")
    gate, up, down, x = (RNG.standard_normal(shape) for shape in ((4, 6), (4, 6), (6, 4), (3, 4)))
    t = [torch.tensor(a) for a in (gate, up, down, x)]
    right = (torch.nn.functional.silu(t[3] @ t[0]) * (t[3] @ t[1])) @ t[2]
    assert experts.swiglu(gate, up, down)(x) == pytest.approx(right.numpy(), rel=1e-12)


def test_a_balance_step_goes_down_for_the_popular_and_up_for_the_others():
    ids = np.array([[0, 1], [0, 2], [0, 1]])  # loads 3, 2, 1, 0; mean 1.5
    assert experts.balance_step(np.zeros(4), ids, 0.1).tolist() == [-0.1, -0.1, 0.1, 0.1]
    assert experts.balance_step(np.ones(2), np.array([[0], [1]]), 0.1).tolist() == [1, 1]


def test_balancing_takes_what_is_systematic_away():
    rng, bias = np.random.default_rng(3), np.zeros(64)
    popularity = rng.standard_normal(64)
    routing = {"num_groups": 4, "top_groups": 2, "top_k": 4, "scale": 1.0}
    largest = []
    for _ in range(80):
        ids, _ = experts.route_tokens(rng.standard_normal((256, 64)) + popularity, bias, **routing)
        loads, _ = experts.rank_loads(ids, 4, 16)
        largest.append(loads.max() / loads.mean())
        bias = experts.balance_step(bias, ids, 0.01)
    assert largest[0] > 2
    assert np.mean(largest[-20:]) < 1.5


# Schedules


def longest_path(compute, communication, batches):
    """The end of the schedule as the longest path over its jobs: each waits for the job before it in its lane and for
    the one before it in its batch. Relaxed over and over until nothing changes."""
    jobs = [(stage, batch, lane) for stage in range(len(compute)) for batch in range(batches) for lane in (0, 1)]
    before = []
    for stage, batch, lane in jobs:
        needs = [(stage, batch, 0)] if lane else [(stage - 1, batch, 1)] if stage else []
        at = stage * batches + batch
        needs += [(*divmod(at - 1, batches), lane)] if at else []
        before.append([jobs.index(need) for need in needs])
    seconds = [(compute, communication)[lane][stage] for stage, _, lane in jobs]
    ends = list(seconds)
    for _ in jobs:
        ends = [s + max((ends[i] for i in needs), default=0.0) for s, needs in zip(seconds, before, strict=True)]
    return max(ends, default=0.0)


@pytest.mark.parametrize("batches", [1, 2])
def test_a_schedule_is_that_of_a_simulation_and_of_the_longest_path(batches):
    for stages in (0, 1, 2, 3, 7):
        for _ in range(10):
            compute, communication = RNG.uniform(0, 5, (2, stages)).tolist()
            end = account.finish(account.timeline(compute, communication, batches))
            assert end == pytest.approx(longest_path(compute, communication, batches))
            assert end == pytest.approx(
                simulate([batches * c for c in compute], [batches * m for m in communication], batches)
            )


def test_two_and_two_take_four_and_three():
    assert account.overlap_seconds([2], [2]) == (4, 3)
    assert account.overlap_seconds([2] * 50, [2] * 50) == (200, 101)
    assert account.overlap_seconds([], []) == (0, 0)


def test_no_lane_does_two_things_at_once_and_nothing_runs_before_what_it_needs():
    compute, communication = RNG.uniform(0.1, 5, (2, 9)).tolist()
    spans = account.timeline(compute, communication, 2)
    for lane in ("compute", "communication"):
        own = [span for span in spans if span.lane == lane]
        assert [(span.stage, span.batch) for span in own] == [(stage, batch) for stage in range(9) for batch in (0, 1)]
        assert all(later.start >= earlier.stop for earlier, later in itertools.pairwise(own))
    for batch in (0, 1):
        own = [span for span in spans if span.batch == batch]
        assert all(later.start >= earlier.stop for earlier, later in itertools.pairwise(own))


def test_overlap_is_never_better_than_the_longer_lane_nor_worse_than_one_batch():
    for _ in range(50):
        compute, communication = RNG.uniform(0, 5, (2, 6)).tolist()
        one, two = account.overlap_seconds(compute, communication)
        assert one == pytest.approx(sum(compute) + sum(communication))
        assert max(sum(compute), sum(communication)) < two <= one


def test_lists_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="2 compute stages and 1 of communication"):
        account.timeline([1, 2], [1])


def test_stages_of_a_layer_at_known_sizes():
    stages = account.layer_stages(64, 4096, V3, H200, 128, 50e9, 20e-6)
    reads = 187_105_280 + 64 * 4096 * 1152
    assert stages.attention == pytest.approx(reads / 4.8e12)
    assert stages.experts == pytest.approx(3 * 44_040_192 / 4.8e12)
    assert stages.dispatch == pytest.approx(10e-6 + 64 * 8 * 7392 / 50e9)
    assert stages.combine == pytest.approx(10e-6 + 64 * 8 * 14336 / 50e9)
    journey = account.all_to_all_seconds(64, 8, 7168, 50e9, 20e-6)
    assert sum(stages.communication) == pytest.approx(journey)
    many = account.layer_stages(512, 4096, V3, H200, 128, 50e9)
    pairs = 512 * 4096 * 2 * 128 * (576 + 512)
    assert many.attention == pytest.approx(2 * 512 * 187_105_280 / 1979e12 + pairs / 989e12)
    assert many.experts == pytest.approx(2 * 512 * 9 * 44_040_192 / 1979e12)


def test_half_a_batch_reads_all_weights_and_pays_every_floor():
    full, half = (account.layer_stages(b, 4096, V3, H200, 128, 50e9, 20e-6) for b in (64, 32))
    assert half.experts == full.experts
    assert full.attention / 2 < half.attention < full.attention
    assert 2 * half.dispatch - full.dispatch == pytest.approx(10e-6)
    one = account.finish(account.timeline(full.compute, full.communication))
    assert one == pytest.approx(sum(full))


@pytest.mark.parametrize("name", [name for name, m in MODELS.items() if m.num_experts])
def test_every_model_with_experts_has_stages(name):
    assert all(seconds > 0 for seconds in account.layer_stages(16, 1024, model(name), H200, 8, 50e9))


def test_stages_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="256 experts do not go evenly onto 7 GPUs"):
        account.layer_stages(16, 1024, V3, H200, 7, 50e9)
    with pytest.raises(ValueError, match="is dense"):
        account.layer_stages(16, 1024, model("MiniCPM3-4B"), H200, 8, 50e9)


# The exercises by hand


@pytest.mark.parametrize(
    ("id", "case", "wanted"),
    [
        ("token_bytes", "by hand", (22, 20)),
        ("token_bytes", "DeepSeek-V3", (7392, 14336)),
        ("all_to_all_seconds", "by hand", 6.1),
        ("overlap_seconds", "2 and 2 by hand", (4, 3)),
        ("overlap_seconds", "no stages", (0, 0)),
    ],
)
def test_hand_values(id, case, wanted):
    exercise = exercises.get(id)
    assert exercise.oracle(*exercise.inputs(exercise.case(case), 0).values()) == pytest.approx(wanted)


def test_the_token_by_hand():
    exercise = exercises.get("route_tokens")
    ids, weights = exercise.oracle(*exercise.inputs(exercise.case("one token by hand"), 0).values())
    assert ids.tolist() == [[0, 2]]
    assert weights == pytest.approx(np.array([[1.5, 0.5]]))


def test_the_loads_by_hand():
    exercise = exercises.get("rank_loads")
    loads, wait = exercise.oracle(*exercise.inputs(exercise.case("three tokens by hand"), 0).values())
    assert (loads.tolist(), wait) == ([4, 1, 1], 2)


def test_excluded_groups_at_0_fall_where_every_score_is_negative():
    exercise = exercises.get("route_tokens")
    args = exercise.inputs(exercise.case("biases that make every score negative"), 1)
    assert (experts.sigmoid(args["logits"]) + args["bias"]).max() < 0


# The pictures


def explorer(**values):
    """The explorer's axes (one batch, two halves, gain) and its gain line and chosen point."""
    one, two, gain = pictures.OverlapExplorer().figure(**values).axes
    artists = {line.get_gid(): line for line in gain.lines}
    return one, two, gain, artists["gain"], artists["chosen"]


def test_the_explorer_draws_the_schedules():
    one, two, *_ = explorer(tokens=128, bandwidth=100, floor=50)
    full, half = (account.layer_stages(b, 4096, V3, H200, 128, 100e9, 50e-6) for b in (128, 64))
    for ax, stages, batches in ((one, full, 1), (two, half, 2)):
        spans = account.timeline(stages.compute * 3, stages.communication * 3, batches)
        assert [bar.get_x() for bar in ax.patches] == pytest.approx([1e6 * span.start for span in spans])
        assert [bar.get_width() for bar in ax.patches] == pytest.approx([1e6 * (s.stop - s.start) for s in spans])
        lanes = [round(bar.get_y() + bar.get_height() / 2) for bar in ax.patches]
        assert lanes == [pictures.LANES[span.lane] for span in spans]
        assert ax.get_xlim()[1] > 1e6 * account.finish(spans)
    assert one.get_xlim() == two.get_xlim()


@pytest.mark.parametrize(
    ("values", "wanted"), [({}, 1.30), ({"tokens": 8}, 0.87), ({"bandwidth": 400, "tokens": 8}, 0.69)]
)
def test_the_explorer_says_what_two_halves_gain(values, wanted):
    *_, gain, line, dot = explorer(**values)
    x, y = dot.get_data()
    assert y[0] == pytest.approx(wanted, abs=0.006)
    assert line.get_ydata()[list(line.get_xdata()).index(x[0])] == y[0]
    assert gain.get_title(loc="left") == f"halves: {y[0]:.2f} times as fast"


def test_halves_that_take_half_the_time_never_lose():
    *_, line, _ = explorer(halves=pictures.HALF, bandwidth=400)
    assert min(line.get_ydata()) > 1
    assert max(line.get_ydata()) < 2


def assert_all_text_inside(fig):
    png(fig)
    texts = [*fig.texts, *(t for ax in fig.axes for t in [*ax.texts, ax._left_title, ax.xaxis.label, ax.yaxis.label])]
    for text in filter(lambda text: text.get_text(), texts):
        box = text.get_window_extent()
        assert box.x0 >= 0, text.get_text()
        assert box.x1 <= fig.bbox.width, text.get_text()
        assert box.y0 >= 0, text.get_text()
        assert box.y1 <= fig.bbox.height, text.get_text()


def test_the_explorer_keeps_its_point_and_texts_inside():
    controls = pictures.OverlapExplorer().controls()
    ends = itertools.product(*([c.options[0], c.options[-1]] for c in controls.values()))
    for values in itertools.islice(ends, 0, None, 5):
        fig = pictures.OverlapExplorer().figure(**dict(zip(controls, values, strict=True)))
        gain = fig.axes[2]
        for y in gain.lines[1].get_ydata():
            assert gain.get_ylim()[0] < y < gain.get_ylim()[1]
    assert_all_text_inside(fig)


def test_the_schedule_picture_labels_its_blocks_and_says_when_it_ends():
    spans = {"one batch": account.timeline([2, 2], [2, 2]), "halves": account.timeline([1, 1], [1, 1], 2)}
    fig = pictures.schedule_picture(spans)
    one, two = fig.axes
    assert [text.get_text() for text in one.texts] == ["1", "1", "2", "2"]
    assert Counter(text.get_text() for text in two.texts) == {"A1": 2, "B1": 2, "A2": 2, "B2": 2}
    assert [ax.get_title(loc="left") for ax in fig.axes] == ["one batch: 8 seconds", "halves: 5 seconds"]
    assert "halves: 5 seconds" in fig.get_label()
    assert_all_text_inside(fig)


def test_importing_needs_numpy_alone():
    code = (
        "import sys, ledger.widgets.experts, ledger.reference.experts, ledger.account.experts;"
        "sys.exit(bool({'matplotlib', 'ipywidgets', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
