"""Published costs and times of sparse attention against rates worked out by hand, and what the pictures draw."""

import itertools
import math

import pytest

from ledger import published
from ledger.account.cache import CACHE_FORMATS, requests_that_fit
from ledger.account.dsa import pair_flops
from ledger.account.experts import attention_params, expert_params
from ledger.machines import machine
from ledger.models import MODELS
from ledger.widgets import dsa
from ledger.widgets.base import png

V32, GLM52 = MODELS["DeepSeek-V3.2"], MODELS["GLM-5.2"]
COST = published.V32_COST

# The report's curve


@pytest.mark.parametrize(
    ("version", "phase", "dollars"),
    [
        ("V3.1", "prefill", 0.6658),
        ("V3.2", "prefill", 0.1871),
        ("V3.1", "decode", 2.1543),
        ("V3.2", "decode", 0.2491),
    ],
)
def test_the_curve_ends_where_it_was_read(version, phase, dollars):
    assert round(COST[version, phase].at(131_071), 4) == dollars


def test_a_line_bends_at_its_kink_and_does_not_jump():
    line = COST["V3.2", "prefill"]
    assert line.at(0) == line.start
    assert line.at(line.kink) == pytest.approx(0.06111 + 0.005889 * 6747 / 1024, rel=1e-12)
    assert line.at(line.kink + 1024) - line.at(line.kink) == pytest.approx(0.000718, rel=1e-9)
    assert line.at(line.kink) - line.at(line.kink - 1024) == pytest.approx(0.005889, rel=1e-9)


def test_both_dense_slopes_are_one_speed():
    """61 layers of 81,920 or 278,528 FLOP a pair; a GPU costs 2 US$ for 3,600 seconds."""
    for phase, flops in (("prefill", 81_920), ("decode", 278_528)):
        dollars_a_token = COST["V3.1", phase].slope / 1e6
        rate = 61 * 1024 * flops / (dollars_a_token / 2 * 3600)
        assert round(rate / 1e12, 1) == 593.7
        assert published.rate_of_slope(COST["V3.1", phase].slope, flops, 61) == pytest.approx(rate, rel=1e-12)


def test_the_curves_rates_as_shares_of_the_peak():
    shares = {
        name: 100 * rate / machine("H800").rate(dtype) for name, (rate, dtype) in published.v32_rates(V32).items()
    }
    assert {name: round(share, 1) for name, share in shares.items()} == {
        "dense, prefill": 60.0,
        "dense, decode": 60.0,
        "masked MHA, prefill": 55.6,
        "indexer, prefill": 40.0,
        "indexer, decode": 35.0,
        "over the picks, prefill": 57.4,
        "over the picks, decode": 40.0,
    }


def test_what_a_new_token_meets_in_a_prefix_of_100000():
    """61 layers; the lesson's GFLOP of each kind of pair and of the weights, and its ms on an H800."""
    meets = [61 * 100_000 * flops / 1e9 for flops in pair_flops(V32)]
    assert [round(each) for each in meets] == [1699, 500, 100]
    assert round(2 * (61 * attention_params(V32) + 58 * 9 * expert_params(V32)) / 1e9) == 69
    rate = published.v32_rates(V32)["indexer, prefill"].rate
    ms = [1e12 * meets[2] / rate, 1e3 * 61 * 100_000 * 132 / 3.35e12, 1e4 * 1e12 * meets[2] / rate]
    assert ms == pytest.approx([0.126, 0.240, 1262], rel=2e-3)


def test_masked_mha_and_the_indexer_make_the_slope_before_the_kink():
    """61 layers, 1,024 positions, each of an expanded and an index pair, at 2 US$ for 3,600 seconds."""
    rates = published.v32_rates(V32)
    seconds = 81_920 / rates["masked MHA, prefill"].rate + 16_384 / rates["indexer, prefill"].rate
    assert 61 * 1024 * seconds * 1e6 * 2 / 3600 == pytest.approx(0.005889, rel=1e-9)


def test_decodes_picks_without_the_kink():
    """The slopes alone give a share of the peak that the place of the kink does not move."""
    line = COST["V3.2", "decode"]
    rate = published.rate_of_slope(line.slope - line.slope_after, 278_528, 61)
    assert round(100 * rate / machine("H800").rate("bf16"), 1) == 41.1


@pytest.mark.parametrize(("position", "curve", "flops"), [(131_072, 13.54, 13.43), (32_768, 6.94, 8.24)])
def test_curve_and_flops_agree_at_128k_alone(position, curve, flops):
    ratio = COST["V3.1", "decode"].attention(position) / COST["V3.2", "decode"].attention(position)
    assert round(ratio, 2) == curve
    assert round(17 * position / (position + 17 * 2048), 2) == flops


def test_the_whole_token_gains_less_than_its_attention():
    assert round(COST["V3.1", "decode"].at(131_071) / COST["V3.2", "decode"].at(131_071), 2) == 8.65


# Times of an H200


@pytest.mark.parametrize(
    ("requests", "tokens", "dense", "sparse"),
    [(64, 4096, 275.5, 355.4), (64, 8192, 375.5, 363.2), (64, 131_072, 3379.1, 672.2), (1, 65_536, 192.2, 211.8)],
)
def test_the_modules_times(requests, tokens, dense, sparse):
    assert round(1e6 * published.decode_module_h200("dense", "bf16", requests)[tokens], 1) == dense
    assert round(1e6 * published.decode_module_h200("sparse", "fp8", requests)[tokens], 1) == sparse


@pytest.mark.parametrize(("requests", "low", "high"), [(64, 4096, 8192), (16, 16384, 32768), (1, 65_536, 131_072)])
def test_where_sparse_decode_begins_to_win(requests, low, high):
    tables = (
        published.decode_module_h200("dense", "bf16", requests),
        published.decode_module_h200("sparse", "fp8", requests),
    )
    assert low < published.crossing(*tables) < high


@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_with_one_request_and_one_format_it_does_not_win(cache):
    tables = published.decode_module_h200("dense", cache, 1), published.decode_module_h200("sparse", cache, 1)
    assert published.crossing(*tables) == math.inf


def test_a_prompt_breaks_even_near_28500():
    rows = published.PREFILL_MODULE_H200
    assert [(r.tokens, round(r.dense, 2), round(r.sparse, 2)) for r in rows[-2:]] == [
        (16384, 20.65, 28.72),
        (32768, 68.64, 63.30),
    ]
    equal = published.crossing({r.tokens: r.dense for r in rows}, {r.tokens: r.sparse for r in rows})
    assert dsa.about(equal) == 28_500


def test_crossing_of_two_power_laws_is_exact():
    sizes = (1, 4, 64, 1024)
    assert published.crossing({n: n**2.0 for n in sizes}, {n: 10 * n**0.5 for n in sizes}) == pytest.approx(
        10 ** (2 / 3)
    )
    assert published.crossing({1: 2.0, 2: 3.0}, {1: 1.0, 2: 1.0}) == 0
    assert published.crossing({1: 1.0, 2: 1.0}, {1: 2.0, 2: 1.0}) == math.inf
    # What counts is the last time that the second becomes the smaller.
    assert 4 < published.crossing({1: 2.0, 2: 2.0, 4: 2.0, 8: 2.0}, {1: 3.0, 2: 1.0, 4: 3.0, 8: 1.0}) < 8


@pytest.mark.parametrize(
    ("tokens", "flops", "time", "dense", "sparse"),
    [(8192, 0.59, 0.54, 378, 344), (16_384, 1.00, 0.72, 533, 382), (32_768, 1.63, 1.08, 641, 425)],
)
def test_a_prompts_flops_take_longer_with_dsa(tokens, flops, time, dense, sparse):
    """Sums over positions by hand: pairs in sight, and picks of at most 2,048."""
    row = next(row for row in published.PREFILL_MODULE_H200 if row.tokens == tokens)
    seen = tokens * (tokens + 1) // 2
    both = seen * 81_920, seen * 16_384 + (2048 * 2049 // 2 + (tokens - 2048) * 2048) * 278_528
    assert (round(both[0] / both[1], 2), round(row.dense / row.sparse, 2)) == (flops, time)
    assert (round(both[0] / row.dense / 1e9), round(both[1] / row.sparse / 1e9)) == (dense, sparse)


@pytest.mark.parametrize(
    ("kind", "cache", "tokens", "us", "requests"),
    [
        ("sparse", "fp8", 4096, 208.1, 1),
        ("sparse", "fp8", 4096, 260.6, 16),
        ("sparse", "fp8", 4096, (260.6 + 355.4) / 2, 40),
        ("dense", "fp8", 131_072, 201.6 + (3174.3 - 201.6) / 7, 10),
        ("dense", "fp8", 4096, 274.1 + (274.1 - 155.5), 127),
        ("dense", "fp8", 4096, 150.0, 0),
    ],
)
def test_requests_in_a_time_lie_on_straight_lines(kind, cache, tokens, us, requests):
    table = published.decode_module_h200(kind, cache, 64 if kind == "dense" else 16)
    assert tokens in table
    assert published.module_requests_h200(kind, cache, tokens, us / 1e6) == pytest.approx(requests)


def test_a_crossing_is_known_no_better_than_the_lengths_around_it():
    crossings = [
        published.crossing(*(published.decode_module_h200(*side, n) for side in (("dense", "bf16"), ("sparse", "fp8"))))
        for n in (64, 16, 1)
    ]
    assert [dsa.about(tokens) for tokens in crossings] == [7500, 18_000, 90_000]


def test_unknown_times_are_refused():
    with pytest.raises(ValueError, match="sparse, fp8, 64 requests"):
        published.decode_module_h200("sparse", "fp8", 7)


# Pictures


def named(ax):
    return {line.get_gid(): line for line in ax.lines if line.get_gid()}


@pytest.mark.parametrize("name", dsa.NAMES)
@pytest.mark.parametrize("cache_format", CACHE_FORMATS)
def test_the_ledgers_lines_and_crossings(name, cache_format):
    size = {"bf16_mla": 1152, "fp8_ds_mla": 656, "fp8_plain_mla": 576}[cache_format]
    absorbed, expanded, index = (278_528, 81_920, 16_384) if name == "DeepSeek-V3.2" else (139_264, 65_536, 8_192)
    layers, owners = {"DeepSeek-V3.2": (61, 61), "GLM-5": (78, 78), "GLM-5.2": (78, 21)}[name]
    fig = dsa.DsaLedger().figure(model=name, cache_format=cache_format, cached_tokens=1 << 20)

    def sides(chart, n):
        """Dense and sparse of the three charts at n tokens, in their units."""
        seen, met = n * (n + 1) / 2, min(n, 2048)
        picks = met * (met + 1) / 2 + max(n - 2048, 0) * 2048
        return (
            (layers * n * absorbed / 1e9, (owners * n * index + layers * met * absorbed) / 1e9),
            (layers * n * size / 1e6, (owners * n * 132 + layers * met * size) / 1e6),
            (layers * seen * expanded / 1e12, (owners * seen * index + layers * picks * absorbed) / 1e12),
        )[chart]

    for chart, ax in enumerate(fig.axes[:3]):
        drawn = named(ax)
        for line, side in (("dense", 0), ("DSA", 1)):
            assert list(drawn[line].get_xdata()) == dsa.CONTEXTS
            assert drawn[line].get_ydata() == pytest.approx([sides(chart, n)[side] for n in dsa.CONTEXTS], rel=1e-12)
        assert drawn["chosen"].get_ydata() == pytest.approx(sides(chart, 1 << 20), rel=1e-12)
        (equal,), (height,) = drawn["crossing"].get_data()
        assert sides(chart, equal) == pytest.approx((height, height), rel=1e-9)
        assert f"equal at {equal:,.0f}" in ax.get_title("left")
    entries, keys = (1 << 20) * layers * size / 1e9, (1 << 20) * owners * 132 / 1e9
    widths = [bar.get_width() for bar in fig.axes[3].patches]
    assert widths == pytest.approx([entries, entries, 0, keys])
    assert fig.axes[3].get_title("left") == f"the cache grows by {keys / entries:.1%}"


def test_what_the_ledger_shows_of_deepseek_v32():
    """At 128K, and with every layer alike, the whole model gains what a layer does."""
    titles = [ax.get_title("left") for ax in dsa.DsaLedger().figure(cached_tokens=1 << 17).axes]
    assert titles[:3] == [
        "decode, FLOP: 13.4 times less, equal at 2,176",
        "decode, reads: 7.7 times less, equal at 2,313",
        "prefill, FLOP: 3.3 times less, equal at 16,315",
    ]
    assert titles[3] == "the cache grows by 11.5%"
    short = dsa.DsaLedger().figure(cached_tokens=1 << 12).axes[2].get_title("left")
    assert short == "prefill, FLOP: 2.7 times more, equal at 16,315"


def test_the_crossings_meet_the_accounts_where_every_layer_owns_an_indexer():
    assert dsa.crossings(V32, "bf16_mla").prompt == pytest.approx(
        dsa.break_even_prompt(V32, 2048, True, True), rel=1e-12
    )


def test_nothing_of_the_ledger_leaves_the_page():
    for values in itertools.product((1024, 1 << 20), dsa.NAMES, CACHE_FORMATS[::2]):
        fig = dsa.DsaLedger().figure(**dict(zip(("cached_tokens", "model", "cache_format"), values, strict=True)))
        png(fig)
        for ax in fig.axes:
            where = ax.get_tightbbox(fig.canvas.get_renderer())
            assert fig.bbox.x0 <= where.x0 < where.x1 <= fig.bbox.x1 + 2
            assert fig.bbox.y0 <= where.y0 < where.y1 <= fig.bbox.y1


@pytest.mark.parametrize(("shared", "factor"), [(0.0, 1.55), (0.7, 1.17), (1.0, 1.0)])
def test_what_verified_rows_read(shared, factor):
    own = 2048 * (2 - shared)
    by_hand = (8192 * 132 + own * 656) / (8192 * 132 + 2048 * 656)
    found = dsa.verified_rows(V32, 8192, "fp8_ds_mla", 1, shared)
    assert found == pytest.approx(by_hand, rel=1e-12)
    assert round(found, 2) == factor


def test_rows_read_no_more_than_there_is():
    assert dsa.verified_rows(V32, 2048, "fp8_ds_mla", 3, 0.0) == 1
    assert dsa.verified_rows(V32, 4096, "bf16_mla", 3, 0.0) == pytest.approx(4096 * 1284 / (4096 * 132 + 2048 * 1152))


@pytest.mark.parametrize(("drafts", "peak"), [(1, 4096), (2, 6144), (3, 8192)])
def test_drafts_read_most_where_their_rows_first_find_tokens_of_their_own(drafts, peak):
    line = dsa.draft_lines(V32, "fp8_ds_mla").axes[1].lines[drafts - 1]
    times = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
    assert max(times, key=times.get) == peak
    by_hand = (peak * 132 + peak * 656) / (peak * 132 + 2048 * 656)
    assert times[peak] == pytest.approx(by_hand, rel=1e-12)
    assert round(by_hand, 2) == {1: 1.71, 2: 2.25, 3: 2.66}[drafts]


def test_limits_are_those_of_memory_and_of_time():
    """What the page says of them: FP8 caches, 20 ms for 61 modules, 328 µs each."""
    rows = {row.cached_tokens: row for row in dsa.limits_by_context(V32, 42.3e9, 0.020)}
    for tokens, row in rows.items():
        assert math.floor(row.sparse_fits) == requests_that_fit(42.3e9, tokens, V32, "fp8_ds_mla")
        assert row.dense_fits == pytest.approx(42.3e9 / (61 * 576 * tokens))
        assert row.dense_fast < row.dense_fits
        assert (row.sparse_fast < row.sparse_fits) == (tokens <= 16_384)
    # 16 requests take 260.6 µs at 4K, 64 take 355.4.
    assert rows[4096].sparse_fast == pytest.approx(16 + 48 * (20_000 / 61 - 260.6) / (355.4 - 260.6))
    assert rows[4096].sparse_fast < rows[4096].dense_fast
    assert rows[131_072].sparse_fast > 2 * rows[131_072].sparse_fits > 2 * rows[131_072].dense_fast


@pytest.mark.parametrize(
    "draw",
    [
        lambda: dsa.saving_lines(V32),
        lambda: dsa.overhead_strips([(V32, "bf16_mla"), (GLM52, "fp8_ds_mla")]),
        lambda: dsa.break_even_pictures(V32),
        dsa.cost_curves,
        dsa.module_times,
        lambda: dsa.draft_lines(V32, "fp8_ds_mla"),
        lambda: dsa.two_limits(dsa.limits_by_context(V32, 42.3e9, 0.020)),
    ],
)
def test_pictures_have_words_and_labelled_axes(draw):
    fig = draw()
    assert png(fig)
    assert len(fig.get_label()) > 20
    assert all(ax.get_xlabel() for ax in fig.axes)


def test_the_pictures_numbers():
    strips = [text.get_text() for text in dsa.overhead_strips([(V32, "bf16_mla"), (GLM52, "fp8_ds_mla")]).axes[0].texts]
    assert strips == ["1,152", "+ 132 = 11.5%", "656", "+ 35.5 = 5.4%"]
    labels = [line.get_label() for line in dsa.saving_lines(V32).axes[0].lines]
    assert [label for label in labels if "limit" in label] == [
        "compute, limit 17.0",
        "reads, bf16, limit 8.7",
        "reads, FP8, limit 5.0",
    ]
    assert [ax.get_title("left") for ax in dsa.break_even_pictures(V32).axes] == [
        "one query: 6,963",
        "a whole prompt: 12,813 and 16,315",
    ]
