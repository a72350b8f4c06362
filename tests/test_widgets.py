"""The pictures: what they draw is compared with numbers worked out here, and labels are checked for overlaps."""

import builtins
import subprocess
import sys
from fractions import Fraction
from importlib import import_module
from itertools import combinations
from pkgutil import iter_modules

import numpy as np
import pytest
from matplotlib.text import Text

from ledger import widgets
from ledger.widgets import base
from ledger.widgets.cache import CacheExplorer
from ledger.widgets.crossover import CrossoverExplorer
from ledger.widgets.flow import Arrow, Box, Lane, flow
from ledger.widgets.keys import NEW_TOKENS, KeysExplorer, key_crossover, short
from ledger.widgets.rope import RopeDial
from ledger.widgets.start import ThreeNumbers

# (latent, nope) as published; the account and the explorer must agree with arithmetic done from these.
WIDTHS = {"DeepSeek-V3": (512, 128), "MiniCPM3-4B": (256, 64), "GLM-5.2": (512, 192)}


def lines(fig) -> dict:
    """The lines of a figure that carry a name, by name."""
    return {line.get_gid(): line for ax in fig.axes for line in ax.lines if line.get_gid()}


@pytest.mark.parametrize("name", WIDTHS)
@pytest.mark.parametrize("cached", [64, 4096, 131072])
def test_keys_explorer_draws_the_two_costs(name, cached):
    latent, nope = WIDTHS[name]
    drawn = lines(KeysExplorer().figure(model=name, cached_tokens=cached, new_tokens=2))
    materialize = [cached * latent * nope + s * cached * nope for s in NEW_TOKENS]
    absorb = [s * latent * nope + s * cached * latent for s in NEW_TOKENS]
    for gid, expected in (("materialize", materialize), ("absorb", absorb)):
        assert list(drawn[gid].get_xdata()) == NEW_TOKENS
        assert list(drawn[gid].get_ydata()) == expected


@pytest.mark.parametrize("name", WIDTHS)
def test_keys_explorer_marks_the_crossing_on_both_lines(name):
    latent, nope = WIDTHS[name]
    cached = 4096
    drawn = lines(KeysExplorer().figure(model=name, cached_tokens=cached))
    (x,), (y,) = drawn["crossing"].get_data()
    assert y == pytest.approx(cached * latent * nope + x * cached * nope, rel=1e-12)
    assert y == pytest.approx(x * latent * nope + x * cached * latent, rel=1e-12)


def test_keys_explorer_shows_the_parts_of_the_chosen_point():
    fig = KeysExplorer().figure(model="DeepSeek-V3", cached_tokens=1024, new_tokens=16)
    heights = [bar.get_height() for bar in fig.axes[1].patches]
    assert heights == [1024 * 512 * 128, 16 * 128 * 512, 16 * 1024 * 128, 16 * 1024 * 512]


def test_key_crossover_is_where_exact_totals_are_equal():
    for cached, latent, nope in [(4096, 512, 128), (1, 512, 128), (777, 256, 64), (10**6, 512, 192)]:
        s = Fraction(cached * latent * nope, latent * nope + cached * (latent - nope))
        assert cached * latent * nope + s * cached * nope == s * latent * nope + s * cached * latent
        assert key_crossover(cached, latent, nope) == pytest.approx(float(s), rel=1e-14)
    assert key_crossover(0, 512, 128) == 0
    assert key_crossover(4096, 64, 512) == float("inf")


class Ceilings:
    bandwidth, flops = 10e9, 100e9


@pytest.mark.parametrize(
    ("rows", "inner", "cols", "intensity", "bound"),
    [
        # 2·1·1024·1024 FLOP over 4·(1024 + 1024² + 1024) bytes: on the slope, so intensity × 10 GB/s.
        (1, 1024, 1024, 2097152 / 4202496, 10e9 * 2097152 / 4202496),
        # 2·64·1024² over 4·(2·64·1024 + 1024²): right of the ridge at 10.
        (64, 1024, 1024, 256 / 9, 100e9),
    ],
)
def test_three_numbers_puts_the_points_where_the_numbers_say(rows, inner, cols, intensity, bound):
    explorer = ThreeNumbers(Ceilings, seconds=lambda left, right: 0.5)
    drawn = lines(explorer.figure(rows=rows, inner=inner, cols=cols))
    assert drawn["predicted"].get_xdata() == pytest.approx([intensity])
    assert drawn["predicted"].get_ydata() == pytest.approx([bound])
    assert drawn["measured"].get_xdata() == pytest.approx([intensity])
    assert drawn["measured"].get_ydata() == pytest.approx([2 * rows * inner * cols / 0.5])
    roof = drawn["roof"]
    assert roof.get_ydata() == pytest.approx(np.minimum(100e9, 10e9 * roof.get_xdata()))


def test_three_numbers_prints_what_was_counted():
    texts = [
        t.get_text() for t in ThreeNumbers(Ceilings, lambda a, b: 1.0).figure(rows=4, inner=16, cols=32).axes[1].texts
    ]
    assert texts.count("2,048 multiply-adds") == 2  # predicted and counted
    assert texts.count("2,816 B") == 2  # 4·(4·16 + 16·32 + 4·32)


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [(0, "", "0"), (9999, "B", "9,999 B"), (65536, "", "65.5 k"), (268_959_744, "", "269 M"), (4.2e6, "B", "4.2 MB")],
)
def test_short_numbers(number, unit, text):
    assert short(number, unit) == text


def test_no_explorer_is_wider_than_a_page_of_900_pixels():
    for module in iter_modules(widgets.__path__):
        import_module(f"ledger.widgets.{module.name}")
    pixels = {kind.__name__: kind.size[0] * base.SCREEN_DPI for kind in base.Explorer.__subclasses__()}
    assert {"CacheExplorer", "HeadsExplorer", "SpeedMap"} <= pixels.keys()
    assert {name: wide for name, wide in pixels.items() if wide > 900} == {}


def test_the_cache_explorers_labels_have_10_points_and_room():
    fig = CacheExplorer().figure(model="Mistral-Small-4-119B", beside="Mistral-Small-4-119B", tensor_parallel=16)
    fig.draw_without_rendering()
    texts = [text for text in fig.findobj(Text) if text.get_visible() and text.get_text()]
    assert min(text.get_fontsize() for text in texts) >= 10
    assert fig.texts[0].get_window_extent().x1 <= fig.bbox.x1
    for ax in fig.axes:
        ticks = [label.get_window_extent() for label in ax.get_xticklabels()]
        assert not any(first.overlaps(second) for first, second in combinations(ticks, 2))


def test_the_rope_dials_matrices_name_their_axes_and_colours():
    _, turned, best, _ = RopeDial().figure(position=3).axes
    assert turned.get_ylabel() == "row: feature"
    assert turned.get_xlabel() == best.get_xlabel() == "column: feature"
    assert "purple 1, white 0, orange −1" in turned.get_title(loc="left")
    for ax in (turned, best):
        (image,) = ax.images
        (r, g, b), white, (red, green, blue) = (image.to_rgba(np.array([[x]]))[0, 0, :3] for x in (1, 0, -1))
        assert b > r > g
        assert min(white) > 0.95
        assert red > green > blue


def test_the_crossover_explorers_bars_say_what_they_count():
    assert "multiply-adds" in CrossoverExplorer().figure(new_tokens=1).axes[1].get_title(loc="left")


def test_unknown_values_are_refused():
    with pytest.raises(ValueError, match=r"new_token.*cached_tokens"):
        KeysExplorer().figure(new_token=3)
    with pytest.raises(ValueError, match="new_tokens cannot be 3; the choices are: 1, 2, 4"):
        KeysExplorer().figure(new_tokens=3)
    with pytest.raises(ValueError, match="DeepSeek-V3"):
        KeysExplorer().figure(model="GPT")


LANES = [
    [Lane("short", [Box("a"), Arrow(), Box("b")])],
    [
        Lane("one", [Box("latents", (4096, 512)), Arrow("× W_K", "268 M multiply-adds"), Box("keys", (4096, 128))]),
        Lane(
            "two", [Box("q", (1, 128)), Arrow("an operation with a long name\nin two lines", "1"), Box("a\nb\nc", "d")]
        ),
        Lane("", [Box("a box of its own whose name is longer than all the rest")]),
    ],
    [Lane("longer than a page", [Box("q_nope", (1, 128, 128)), Arrow("a step of some length", "8.4 M")] * 6)],
]


@pytest.mark.parametrize("lanes", LANES)
def test_no_label_of_a_flow_picture_overlaps_another_or_leaves_the_page(lanes):
    fig = flow("A title", lanes)
    fig.set_dpi(base.SCREEN_DPI * base.SHARPNESS)
    fig.canvas.draw()
    texts = [t for t in fig.axes[0].texts if t.get_text()]
    boxes = [t.get_window_extent() for t in texts]
    for (i, first), (j, second) in combinations(enumerate(boxes), 2):
        assert not first.overlaps(second), (texts[i].get_text(), texts[j].get_text())
    for text, box in zip(texts, boxes, strict=True):
        assert fig.bbox.x0 <= box.x0, text.get_text()
        assert box.x1 <= fig.bbox.x1, text.get_text()
        assert text.get_fontsize() >= 9
    assert fig.get_figwidth() <= 9.6


def test_a_flow_picture_names_every_array_and_step():
    fig = flow("Route", [Lane("absorb", [Box("q", (1, 128)), Arrow("× W_Kᵀ", "65,536"), Box("q_absorbed", (1, 512))])])
    shown = [t.get_text() for t in fig.axes[0].texts]
    assert shown == ["Route", "absorb", "1 × 128", "q", "× W_Kᵀ", "65,536", "1 × 512", "q_absorbed"]
    assert fig.get_label() == "Route: absorb: q [1 × 128] -> × W_Kᵀ 65,536 -> q_absorbed [1 × 512]"


def luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def test_every_colour_that_carries_text_is_readable_on_the_paper():
    paper = luminance(base.COLORS["paper"])
    for name in base.COLORS.keys() - {"paper", "grid"}:
        contrast = (paper + 0.05) / (luminance(base.COLORS[name]) + 0.05)
        assert contrast >= 4.5, f"{name}: {contrast:.2f}"


# Linear RGB as a reader without one kind of cone sees it (Machado and others 2009, severity 1).
BLIND = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}


@pytest.mark.parametrize("kind", BLIND)
def test_the_two_routes_stay_apart_for_colour_blind_readers(kind):
    def seen(color):
        srgb = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
        return np.clip(np.array(BLIND[kind]) @ linear, 0, 1) ** (1 / 2.2)

    apart = np.abs(seen(base.COLORS["materialize"]) - seen(base.COLORS["absorb"])).max()
    assert apart > 0.3


@pytest.fixture
def displayed(monkeypatch):
    """What is displayed, as (data, metadata)."""
    shown = []
    import IPython.display

    def display(obj, metadata=None, raw=False):
        shown.append((obj, metadata) if raw else base.bundle(obj))

    monkeypatch.setattr(IPython.display, "display", display)
    monkeypatch.delenv("LEDGER_STATIC", raising=False)
    return shown


def test_show_gives_controls_and_a_picture_for_static_frontends(displayed):
    KeysExplorer().show()
    ((data, metadata),) = displayed
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["image/png"]
    assert metadata["image/png"]["width"] == round(KeysExplorer.size[0] * base.SCREEN_DPI)


def test_a_change_redraws_in_place(displayed, monkeypatch):
    import ipywidgets

    pictures, sliders = [], []
    monkeypatch.setattr(ipywidgets, "Image", record(ipywidgets.Image, pictures))
    monkeypatch.setattr(ipywidgets, "SelectionSlider", record(ipywidgets.SelectionSlider, sliders))
    KeysExplorer().show()
    (picture,) = pictures
    before = picture.value
    next(s for s in sliders if s.description == "new tokens").value = 64
    assert picture.value != before
    assert picture.value == base.png(KeysExplorer().figure(new_tokens=64))
    assert len(displayed) == 1


def test_a_chosen_model_sets_the_sliders_and_redraws_once(displayed, monkeypatch):
    import ipywidgets

    from ledger.widgets.heads import HeadsExplorer

    pictures, controls = [], []
    monkeypatch.setattr(ipywidgets, "Image", record(ipywidgets.Image, pictures))
    for kind in ("Dropdown", "SelectionSlider"):
        monkeypatch.setattr(ipywidgets, kind, record(getattr(ipywidgets, kind), controls))
    HeadsExplorer().show()
    by_name = {control.description: control for control in controls}
    drawn = []
    pictures[0].observe(drawn.append, names="value")
    by_name["cached tokens"].value = 1024
    by_name["model"].value = "GLM-4.7-Flash"
    assert {name: control.value for name, control in by_name.items()} == {
        "model": "GLM-4.7-Flash",
        "num_heads": 20,
        "cached tokens": 1024,
        "nope_dim": 192,
    }
    assert len(drawn) == 2
    assert pictures[0].value == base.png(HeadsExplorer().figure(model="GLM-4.7-Flash", cached_tokens=1024))
    by_name["nope_dim"].value = 128
    assert by_name["num_heads"].value == 20


def record(kind, made):
    def make(*args, **kwargs):
        made.append(kind(*args, **kwargs))
        return made[-1]

    return make


def test_pages_made_without_a_kernel_show_the_first_view(displayed, monkeypatch):
    monkeypatch.setenv("LEDGER_STATIC", "1")
    KeysExplorer().show()
    ((data, _),) = displayed
    assert data["image/png"]
    assert "application/vnd.jupyter.widget-view+json" not in data


def test_show_without_ipywidgets_shows_the_first_view(displayed, monkeypatch):
    real = builtins.__import__

    def without_widgets(name, *args, **kwargs):
        if name.split(".")[0] == "ipywidgets":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_widgets)
    KeysExplorer().show()
    ((data, _),) = displayed
    assert data["image/png"]
    assert "application/vnd.jupyter.widget-view+json" not in data


def test_importing_the_widgets_needs_numpy_alone():
    code = (
        "import sys, ledger.widgets.base, ledger.widgets.flow, ledger.widgets.keys, ledger.widgets.start;"
        "sys.exit(bool({'matplotlib', 'ipywidgets', 'IPython', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
