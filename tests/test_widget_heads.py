"""The data behind the pictures of lesson 2, against values worked out by hand from the published shapes."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from ledger.account.attention import family
from ledger.models import MODELS, model
from ledger.widgets import heads

pytest.importorskip("matplotlib")

TOY = np.array([[1, 0, 1], [0, 2, 1], [7, 7, 7], [0, 1, 2], [1, 0, 1], [9, 9, 9]], dtype=float)


def texts(fig) -> list[str]:
    return [text.get_text() for ax in fig.axes for text in ax.texts]


def line(ax, name):
    (found,) = [one for one in ax.lines if one.get_gid() == name]
    return found.get_xdata(), found.get_ydata()


def assert_all_text_inside(fig) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    ticks = {label for ax in fig.axes for axis in (ax.xaxis, ax.yaxis) for label in axis.get_ticklabels(which="both")}
    for text in fig.findobj(Text):
        if text in ticks or not text.get_visible() or not text.get_text():
            continue
        extent = text.get_window_extent(canvas.get_renderer())
        assert extent.x0 >= 0, text.get_text()
        assert extent.y0 >= 0, text.get_text()
        assert extent.x1 <= fig.bbox.width, text.get_text()
        assert extent.y1 <= fig.bbox.height, text.get_text()


def test_importing_the_pictures_does_not_import_matplotlib():
    code = "import sys, ledger.widgets.heads; sys.exit('matplotlib' in sys.modules or 'ipywidgets' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_merged_bars_show_each_models_ratio_and_elements():
    ax = heads.merged_bars(MODELS).axes[0]
    drawn = {bars.get_label(): bars[0].get_width() for bars in ax.containers}
    # q·c / (n·(q + c)), by hand from the configurations
    expected = {"DeepSeek-V3": 3.0, "GLM-5.2": 32 / 15, "GLM-4.7-Flash": 1.6, "MiniCPM3-4B": 3.0}
    expected |= {"Mistral-Small-4-119B": 3.2, "Kimi-K3": 3.0}
    assert {name: drawn[name] for name in expected} == pytest.approx(expected)
    assert "3.00 ×   100.7 M against 33.6 M" in texts(ax.figure)


def test_a_model_without_a_query_latent_gets_a_word_and_no_bar():
    ax = heads.merged_bars(MODELS).axes[0]
    assert "DeepSeek-V2-Lite" not in {bars.get_label() for bars in ax.containers}
    (word,) = [text for text in ax.texts if text.get_text().startswith("no query latent")]
    assert word.get_position()[1] == list(MODELS).index("DeepSeek-V2-Lite")
    assert len(ax.containers) == len(MODELS) - 1


def test_family_bars_of_deepseek_v3():
    drawn = [[bar.get_height() for bar in ax.patches] for ax in heads.family_bars(family(model("DeepSeek-V3"))).axes]
    # 2·128·(192+128), 2·8·320, 2·320, 2·576; 128·(192+128) three times, 128·(576+512)
    assert drawn == [
        [81_920, 5_120, 640, 1_152],
        [128, 8, 1, 128],
        [40_960, 40_960, 40_960, 139_264],
    ]


def test_explorer_caches_of_deepseek_v3():
    caches, _ = heads.HeadsExplorer().figure().axes
    steps, mha = line(caches, "MHA")
    at_128 = list(steps).index(128)
    # 4,096 tokens: 128·320·2 B, 4·320·2 B, 320·2 B, 576·2 B each
    sizes = {name: line(caches, name)[1][at_128] for name in ("MHA", "GQA", "MQA", "MLA")}
    assert sizes == pytest.approx({"MHA": 320, "GQA": 10, "MQA": 2.5, "MLA": 4.5})
    assert mha == pytest.approx(np.array(steps) * 2.5)
    for name in ("GQA", "MQA", "MLA"):
        assert len(set(line(caches, name)[1])) == 1, f"{name} does not grow with the heads"


def test_explorer_caches_grow_with_the_cached_tokens():
    explorer = heads.HeadsExplorer()
    small, large = (line(explorer.figure(cached_tokens=n).axes[0], "MLA")[1][0] for n in (1024, 131072))
    assert (small, large) == pytest.approx((1024 * 1152 / 2**20, 144))


def test_explorer_weights_of_deepseek_v3_cross_at_384():
    _, weights = heads.HeadsExplorer().figure().axes
    steps, merged = line(weights, "merged")
    _, apart = line(weights, "apart")
    assert merged == pytest.approx([100.663296] * len(steps))
    assert apart[list(steps).index(128)] == pytest.approx(33.554432)
    (x,), (y,) = line(weights, "even")
    assert (x, y) == pytest.approx((384, 100.663296))
    assert apart[list(steps).index(384)] == pytest.approx(y)
    assert all(left < right for left, right in pairwise(apart))


@pytest.mark.parametrize(
    ("name", "width"),
    [("DeepSeek-V2-Lite", 2048 * 512 / 2560), ("GLM-5.2", 409.6), ("MiniCPM3-4B", 192), ("DeepSeek-V3", 384)],
)
def test_even_nope(name, width):
    assert heads.even_nope(model(name)) == pytest.approx(width)


def test_explorer_follows_its_controls():
    caches, weights = heads.HeadsExplorer().figure(model="Kimi-K2.5", num_heads=32, nope_dim=256).axes
    labels = [text.get_text() for ax in (caches, weights) for text in ax.get_legend().get_texts()]
    # 32 heads: 32·(256+64+128)·2 B·4,096 tokens = 112 MiB; merged 32·1536·512, apart 32·256·2048
    assert "MHA  112 MiB, 32 keys" in labels
    assert "MLA  4.5 MiB, 32 keys" in labels
    assert "merged  25.2 M, 1.50 ×" in labels
    assert "apart  16.8 M" in labels


@pytest.mark.parametrize("name", MODELS)
def test_a_model_brings_its_own_widths(name):
    shape = MODELS[name]
    drawn = heads.HeadsExplorer().figure(model=name)
    (x,), _ = drawn.axes[1].lines[1].get_data()
    assert x == shape.nope_dim
    labels = [text.get_text() for text in drawn.axes[0].get_legend().get_texts()]
    assert any(label.startswith("MLA") and label.endswith(f", {shape.num_heads} keys") for label in labels)
    assert shape.num_heads in heads.HEAD_STEPS
    assert shape.nope_dim in heads.NOPE_STEPS


def test_glm_flash_is_nearer_to_its_even_point_than_deepseek_v3():
    # 192 of 768·512/1280 against 128 of 1536·512/2048
    near, far = (shape.nope_dim / heads.even_nope(shape) for shape in map(model, ("GLM-4.7-Flash", "DeepSeek-V3")))
    assert (near, far) == pytest.approx((0.625, 1 / 3))


def test_every_published_model_stands_left_of_its_even_point():
    assert all(shape.nope_dim < heads.even_nope(shape) for shape in MODELS.values())


def test_explorer_marks_the_published_shape_of_every_model():
    for name, shape in MODELS.items():
        caches, weights = heads.HeadsExplorer().figure(model=name).axes
        assert str(shape.num_heads) in caches.get_xlabel()
        assert str(shape.nope_dim) in weights.get_xlabel()


@pytest.mark.parametrize("name", ["DeepSeek-V3", "DeepSeek-V2-Lite"])
def test_explorer_keeps_its_text_inside(name):
    assert_all_text_inside(heads.HeadsExplorer().figure(model=name, cached_tokens=131072))


def test_packed_weight_names_the_rows_of_each_head():
    fig = heads.packed_weight(128, 128, 128, 512)
    assert "head 1, key: rows 256 … 383" in texts(fig)
    assert "head 127, value: rows 32,640 … 32,767" in texts(fig)
    assert "[127]  512 × 128" in texts(fig)
    assert not any("head 2," in text for text in texts(fig))


def test_packed_weight_writes_the_numbers_and_transposes_the_values():
    ax = heads.packed_weight(2, 2, 1, 3, kv_b=TOY).axes[0]
    numbers = [(text.get_position(), text.get_text()) for text in ax.texts if text.get_text().isdigit()]
    assert sorted(text for _, text in numbers) == sorted(f"{value:g}" for value in [*TOY.flat, *TOY.flat])
    nines = sorted(position for position, text in numbers if text == "9")
    stored, transposed = nines[:3], nines[3:]
    assert len({y for _, y in stored}) == 1
    assert len({x for x, _ in transposed}) == 1


@pytest.mark.parametrize("sizes", [(2, 2, 1, 3), (1, 3, 2, 4), (3, 2, 2, 5), (128, 128, 128, 512), (64, 192, 256, 512)])
def test_packed_weight_keeps_its_text_inside(sizes):
    assert_all_text_inside(heads.packed_weight(*sizes))


def test_placements_draw_a_diagonal_of_as_many_times_the_elements():
    fig = heads.placements(num_heads=4, nope_dim=2, latent_dim=3)
    assert {"8 × 3\n24 elements, 1 query", "8 × 12\n96 elements, 4 queries"} <= set(texts(fig))
    areas = [patch.get_width() * patch.get_height() for patch in fig.axes[0].patches]
    filled = [area for patch, area in zip(fig.axes[0].patches, areas, strict=True) if patch.get_fill()]
    # one grey square of zeros, and three times four matrices of one size
    assert len(filled) == 13
    assert max(filled) == pytest.approx(16 * min(filled))
    assert_all_text_inside(fig)
