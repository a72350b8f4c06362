"""Chapter 7's bounds and published times: against products that are counted, datasheets, the rates that were published
beside the times, and what the explorer draws."""

import math
import subprocess
import sys
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from ledger.account import roofline
from ledger.account.attention import family
from ledger.account.cache import CACHE_FORMATS
from ledger.count import count
from ledger.machines import MACHINES, machine
from ledger.models import model
from ledger.published import CACHED_TOKENS, DECODE_H200, decode_h200, reached_h200
from ledger.widgets import roofline as pictures
from ledger.widgets.base import png

V3 = (512, 64)
H200 = machine("H200")

# Counts and bounds


@pytest.mark.parametrize("sizes", [(7, 3, 2, 5, 4), (1, 1, 1, 1, 1), (9, 2, 4, 8, 0), (0, 3, 1, 5, 2), (6, 0, 1, 5, 2)])
def test_decode_work_is_what_two_products_over_shared_entries_are_counted_at(sizes):
    cached, heads, new, latent, rope = sizes
    entries, queries = np.ones((cached, latent + rope)), np.ones((heads * new, latent + rope))

    def decode(queries, entries):
        return (queries @ entries.T) @ entries[:, :latent]

    work = roofline.decode_work(cached, heads, new, latent, rope, cache_bytes_per_token=10)
    assert work.flops == 2 * count(decode, queries, entries)[1].macs
    assert work.bytes == 10 * cached


@pytest.mark.parametrize(
    ("heads", "new", "entry", "wanted"),
    [
        (1, 1, 1152, 2176 / 1152),
        (16, 1, 1152, 30.2222222),
        (64, 1, 1152, 120.8888889),
        (128, 1, 1152, 241.7777778),
        (128, 2, 1152, 483.5555556),
        (16, 1, 656, 53.0731707),
        (128, 1, 576, 483.5555556),
    ],
)
def test_intensity_at_deepseek_v3_widths(heads, new, entry, wanted):
    assert roofline.arithmetic_intensity(heads, new, *V3, entry) == pytest.approx(wanted, rel=1e-8)


def test_intensity_of_an_entry_without_bytes_is_infinite():
    assert roofline.arithmetic_intensity(8, 1, 0, 0, 0) == math.inf


@pytest.mark.parametrize("name", ["DeepSeek-V3", "Kimi-K2.5", "MiniCPM3-4B"])
def test_intensity_is_that_of_the_scheme_in_lesson_1(name):
    shape = model(name)
    scheme = family(shape, kv_groups=1)[-1]
    widths = shape.num_heads, 1, shape.latent_dim, shape.rope_dim
    assert roofline.arithmetic_intensity(*widths, scheme.cache_bytes) == pytest.approx(scheme.intensity, rel=1e-14)


@pytest.mark.parametrize(("name", "ridge", "rows"), [("H200", 206.04, 109.1), ("H800", 295.2, 156.3)])
def test_rows_at_the_datasheets_ridge(name, ridge, rows):
    assert machine(name).ridge() == pytest.approx(ridge, abs=0.05)
    assert roofline.rows_at_ridge(machine(name), *V3, 1152) == pytest.approx(rows, abs=0.05)


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_at_the_ridge_both_bounds_are_the_same(dtype):
    rows = roofline.rows_at_ridge(H200, *V3, 1152, dtype)
    flops, read = rows * 2176 * 1000, 1152 * 1000
    assert flops / H200.flops[dtype] == pytest.approx(read / H200.bandwidth, rel=1e-12)


def test_a_bound_is_the_longer_time_and_says_which():
    slow = roofline.roofline(2 * 989e12, 4.8e12, H200, "bf16")
    assert slow == pytest.approx((2, 1))
    assert (slow.seconds, slow.name) == (pytest.approx(2), "compute")
    waits = roofline.roofline(989e12, 3 * 4.8e12, H200, "bf16")
    assert (waits.seconds, waits.name) == (pytest.approx(3), "memory")
    assert roofline.Bound(1.0, 1.0).name == "memory"
    assert roofline.roofline_seconds(0, 0, H200, "fp8") == 0


def test_16_heads_wait_for_memory_and_128_for_arithmetic():
    few, many = (roofline.roofline(*roofline.decode_work(10**6, h, 1, *V3, 1152), H200, "bf16") for h in (16, 128))
    assert (few.name, many.name) == ("memory", "compute")
    assert few.seconds == pytest.approx(1152e6 / 4.8e12)
    assert many.seconds == pytest.approx(2 * 128 * 1088e6 / 989e12)


def test_a_bound_names_the_dtypes_that_there_are():
    with pytest.raises(ValueError, match="bf16, fp16, fp32"):
        roofline.roofline_seconds(1, 1, machine("A100"), "fp8")


def test_exact_bounds_on_a_machine_of_whole_rates():
    for flops, read in product((0, 7, 10**12), (0, 3, 10**9)):
        exact = max(Fraction(flops, int(989e12)), Fraction(read, int(4.8e12)))
        assert roofline.roofline_seconds(flops, read, H200, "bf16") == pytest.approx(float(exact), rel=1e-12)


# Published times

#: TFLOP/s and GB/s that were published beside the times, in their own rounding.
RATES = [
    ("FlashAttention 3", 16, 1, 2048, 4.2, 138.0),
    ("FlashAttention 3", 16, 1, 65536, 50.5, 1672.0),
    ("FlashAttention 3", 64, 1, 2048, 14.9, 123.0),
    ("FlashAttention 3", 64, 1, 65536, 178.2, 1474.0),
    ("FlashAttention 3", 128, 1, 2048, 28.1, 116.0),
    ("FlashAttention 3", 128, 1, 65536, 285.5, 1181.0),
    ("FlashAttention 3", 16, 64, 2048, 82.4, 2726.0),
    ("FlashAttention 3", 16, 64, 65536, 132.4, 4380.0),
    ("FlashAttention 3", 64, 64, 2048, 267.6, 2213.0),
    ("FlashAttention 3", 64, 64, 65536, 510.0, 4219.0),
    ("FlashAttention 3", 128, 64, 2048, 479.3, 1982.0),
    ("FlashAttention 3", 128, 64, 65536, 605.3, 2504.0),
    ("TensorRT-LLM", 16, 64, 2048, 81.0, 2679.0),
    ("TensorRT-LLM", 16, 64, 65536, 134.2, 4439.0),
    ("TensorRT-LLM", 64, 64, 2048, 266.5, 2204.0),
    ("TensorRT-LLM", 64, 64, 65536, 525.4, 4346.0),
    ("TensorRT-LLM", 128, 64, 2048, 459.3, 1900.0),
    ("TensorRT-LLM", 128, 64, 65536, 660.9, 2734.0),
]


@pytest.mark.parametrize(("kernel", "heads", "requests", "cached", "tflops", "gbps"), RATES)
def test_published_times_give_the_rates_published_beside_them(kernel, heads, requests, cached, tflops, gbps):
    seconds = decode_h200(kernel, heads, requests)[cached]
    work = roofline.decode_work(requests * cached, heads, 1, *V3, 1152)
    assert work.flops / seconds / 1e12 == pytest.approx(tflops, abs=0.1)
    assert work.bytes / seconds / 1e9 == pytest.approx(gbps, abs=1)


def test_every_published_series_is_checked_and_grows_with_the_cache():
    assert {row[:3] for row in RATES} == set(DECODE_H200)
    for times in DECODE_H200.values():
        assert len(times) == len(CACHED_TOKENS)
        assert all(shorter < longer for shorter, longer in pairwise(times))


def test_an_unpublished_series_is_refused_with_the_choices():
    with pytest.raises(ValueError, match="TensorRT-LLM, 128 heads, 64 requests"):
        decode_h200("FlashMLA", 128, 64)


def test_no_published_time_beats_the_datasheet():
    for (kernel, heads, requests), cached in product(DECODE_H200, CACHED_TOKENS):
        work = roofline.decode_work(requests * cached, heads, 1, *V3, 1152)
        assert decode_h200(kernel, heads, requests)[cached] > roofline.roofline(*work, H200, "bf16").seconds


def test_what_kernels_reach_moves_the_ridge_to_73_rows():
    reached = reached_h200()
    assert reached.bandwidth == pytest.approx(4.380e12, rel=1e-3)
    assert reached.flops["bf16"] == pytest.approx(605.3e12, rel=1e-3)
    assert reached.ridge() == pytest.approx(138.2, abs=0.1)
    assert roofline.rows_at_ridge(reached, *V3, 1152) == pytest.approx(73.2, abs=0.1)


def test_doubling_64_heads_by_datasheet_as_reached_and_published():
    def ratio(m):
        works = (roofline.decode_work(65536, h, 1, *V3, 1152) for h in (64, 128))
        few, many = (roofline.roofline_seconds(*work, m, "bf16") for work in works)
        return many / few

    published = [decode_h200("FlashAttention 3", h, 64)[65536] for h in (64, 128)]
    assert ratio(H200) == pytest.approx(1.17, abs=0.005)
    assert ratio(reached_h200()) == pytest.approx(1.75, abs=0.005)
    assert published[1] / published[0] == pytest.approx(1.69, abs=0.005)


# The explorer and the pictures


def shown(**values):
    """The explorer's two axes, and its artists by their gid."""
    roof, times = pictures.RooflineExplorer().figure(**values).axes
    return roof, times, {line.get_gid(): line for ax in (roof, times) for line in ax.lines}


def test_the_explorer_draws_the_roof_of_the_machine():
    for name, m in pictures.DEVICES.items():
        _, _, artists = shown(machine=name)
        x, y = artists["roof"].get_data()
        assert x[1] == pytest.approx(m.flops["bf16"] / m.bandwidth)
        assert list(y) == pytest.approx([m.bandwidth / 1e12, m.flops["bf16"] / 1e12, m.flops["bf16"] / 1e12])
    assert set(pictures.DEVICES) == {*MACHINES, "H200, as reached"}


def test_the_explorer_puts_decode_on_the_roof_and_the_next_token_beside_it():
    roof, _, artists = shown(num_heads=16)
    assert artists["chosen"].get_data() == (pytest.approx([30.22], abs=0.01), pytest.approx([145.07], abs=0.01))
    assert artists["next"].get_data() == (pytest.approx([60.44], abs=0.01), pytest.approx([290.13], abs=0.01))
    assert "memory-bound" in roof.get_title(loc="left")
    roof, _, artists = shown(num_heads=128, new_tokens=2)
    assert artists["chosen"].get_data() == (pytest.approx([483.56], abs=0.01), pytest.approx([989]))
    assert "compute-bound" in roof.get_title(loc="left")
    assert [text.get_text() for text in roof.get_legend().get_texts()] == [
        "chosen: 484 FLOP/B",
        "one token more: 725 FLOP/B",
    ]


@pytest.mark.parametrize(
    ("values", "extra"),
    [
        ({"num_heads": 16}, "+0%"),
        ({"num_heads": 128}, "+100%"),
        ({"num_heads": 128, "new_tokens": 4}, "+25%"),
        ({"num_heads": 64}, "+17%"),
        ({"num_heads": 64, "machine": "H200, as reached"}, "+75%"),
        ({"num_heads": 128, "machine": "B200"}, "+72%"),
    ],
)
def test_the_explorer_says_what_one_more_token_costs(values, extra):
    _, times, _ = shown(**values)
    assert times.get_title(loc="left").endswith(f"one token more: {extra}")


def test_the_explorers_bars_are_least_times():
    _, times, artists = shown(num_heads=64, cached_tokens=1 << 20, cache_format="fp8_ds_mla")
    memory = 1e6 * 656 * 2**20 / 4.8e12
    arithmetic = [1e6 * 2 * 64 * n * 1088 * 2**20 / 989e12 for n in range(1, 6)]
    assert [bar.get_height() for bar in times.patches] == pytest.approx([max(memory, a) for a in arithmetic])
    assert list(artists["memory"].get_ydata()) == pytest.approx([memory] * 5)
    assert list(artists["compute"].get_ydata()) == pytest.approx(arithmetic)
    assert times.get_ylim()[1] > max(arithmetic)


def assert_all_text_inside(fig):
    png(fig)
    texts = [*fig.texts, *(t for ax in fig.axes for t in [*ax.texts, ax._left_title, ax.xaxis.label, ax.yaxis.label])]
    for text in filter(lambda text: text.get_text(), texts):
        box = text.get_window_extent()
        assert box.x0 >= 0, text.get_text()
        assert box.x1 <= fig.bbox.width, text.get_text()
        assert box.y0 >= 0, text.get_text()
        assert box.y1 <= fig.bbox.height, text.get_text()


def test_the_explorer_keeps_its_points_and_texts_inside():
    explorer = pictures.RooflineExplorer()
    for name, form in product(pictures.DEVICES, CACHE_FORMATS):
        for heads, new in ((1, 1), (128, 4)):
            fig = explorer.figure(machine=name, cache_format=form, num_heads=heads, new_tokens=new)
            roof = fig.axes[0]
            for line in roof.lines:
                if line.get_gid() in ("chosen", "next"):
                    (x,), (y,) = line.get_data()
                    assert roof.get_xlim()[0] < x < roof.get_xlim()[1]
                    assert roof.get_ylim()[0] < y < roof.get_ylim()[1]
    for cached in (1 << 16, 1 << 24):
        assert_all_text_inside(explorer.figure(cached_tokens=cached, num_heads=128, new_tokens=4))


def test_the_pool_numbers_the_tokens_of_each_request_where_its_table_says():
    fig = pictures.page_pool({"a": [2, 0], "b": [3]}, lengths=[3, 1], num_pages=4, page=2)
    (ax,) = fig.axes
    texts = {text.get_text(): text for text in ax.texts}
    assert {"a, 3 tokens", "b, 1 tokens", "page 0", "page 3"} <= set(texts)
    slots = {}
    for number in range(4):
        x = texts[f"page {number}"].get_position()[0]
        near = [t for t in ax.texts if abs(t.get_position()[0] - x) < 0.3 and t.get_fontsize() == 7.5]
        slots[number] = [t.get_text() for t in sorted(near, key=lambda t: t.get_position()[0])]
    assert slots == {0: ["2"], 1: [], 2: ["0", "1"], 3: ["0"]}
    assert_all_text_inside(fig)


def test_importing_needs_numpy_alone():
    code = (
        "import sys, ledger.widgets.roofline, ledger.published, ledger.reference.kernels;"
        "sys.exit(bool({'matplotlib', 'ipywidgets', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
