"""The pictures of ranks: who sends how much to whom, who holds what, and the explorer."""

import itertools

import numpy as np
import pytest

from ledger.account.attention import family
from ledger.models import model
from ledger.widgets import base
from ledger.widgets import ranks as pictures

V3 = model("DeepSeek-V3")


def rectangles(blocks):
    """Left, top, right and bottom of each block of a collection."""
    corners = np.array([path.vertices[:4] for path in blocks.get_paths()])
    return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)


def held_by(fig):
    """The blocks of a strip picture's only axes as {(gpu, token): (lower, upper share of the heads)}."""
    [blocks] = fig.axes[0].collections
    found = {}
    for left, top, right, bottom in rectangles(blocks):
        gpu, token = int(top), round((left + right) / 2)
        assert (gpu, token) not in found
        found[gpu, token] = ((top - gpu) / pictures.TALL, (bottom - gpu) / pictures.TALL)
    return found


@pytest.mark.parametrize(
    ("kv_heads", "gpus", "sharing", "stored"),
    [(8, 8, 1, 1), (8, 4, 1, 1), (1, 8, 1, 8), (1, 8, 8, 1), (1, 8, 2, 4), (2, 8, 1, 4), (2, 8, 4, 1), (128, 2, 1, 1)],
)
def test_the_strips_hold_every_head_of_every_token_equally_often(kv_heads, gpus, sharing, stored):
    fig = pictures.holding_picture({"it": (kv_heads, gpus, sharing)}, tokens=16)
    held = held_by(fig)
    for head, token in itertools.product(range(kv_heads), range(16)):
        middle = (head + 0.5) / kv_heads
        copies = [gpu for gpu in range(gpus) for low, high in [held.get((gpu, token), (2, 2))] if low < middle < high]
        assert len(copies) == stored
    times = "once" if stored == 1 else f"{stored} times"
    assert fig.axes[0].get_title(loc="left").endswith(f"stored {times}")
    assert len({sum(gpu == rank for gpu, _ in held) for rank in range(gpus)}) == 1, "no rank holds more than another"


def test_a_table_of_traffic_shows_its_numbers_and_totals():
    table = np.array([[3.0, 0.0], [1.25, 2.0]])
    fig = pictures.traffic_picture({"dispatch": table, "combine": table.T}, "MB", digits=2)
    for ax, shown in zip(fig.axes, (table, table.T), strict=True):
        read = {text.get_position(): float(text.get_text()) for text in ax.texts}
        assert read == {(to, source): shown[source, to] for source in range(2) for to in range(2)}
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("to rank", "from rank")
    assert "dispatch: 6.25 MB" in fig.get_label()


def test_the_journey_says_what_a_copy_weighs():
    fig = pictures.journey_picture(V3)
    said = " ".join(text.get_text() for ax in fig.axes for text in ax.texts)
    for words in ("7,392 bytes", "14,336 bytes", "8 n × 7,168", "m × 7,168"):
        assert words in said


def explorer(**values):
    return pictures.HoldingExplorer().figure(**values)


@pytest.mark.parametrize(
    ("values", "each"),
    [
        ({}, 1152),
        ({"sharing": 8}, 144),
        ({"sharing": 128}, 144),  # no more than there are GPUs
        ({"attention": "MHA"}, 81920 / 8),
        ({"attention": "MHA", "sharing": 8}, 81920 / 8),  # nobody holds the same heads
        ({"attention": "GQA", "gpus": 32}, 640),
        ({"attention": "GQA", "gpus": 32, "sharing": 4}, 160),
        ({"attention": "MQA", "gpus": 2, "sharing": 2}, 320),
    ],
)
def test_the_explorer_divides_the_free_bytes(values, each):
    fig = explorer(**values, free=10)
    strips, fits = fig.axes
    assert f"{each:,.0f} bytes a GPU" in strips.get_title(loc="left")
    named = {line.get_gid(): line for line in fits.lines}
    tokens = int(10e9 / (V3.num_layers * each))
    assert named["chosen"].get_ydata()[0] == tokens
    assert fits.get_title(loc="left").startswith(f"{tokens:,} tokens fit")
    assert f"{tokens // 8192:,} requests of 8,192" in fits.get_title(loc="left")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"sharing": 16}, "stored once; only 8 can share\n"),
        ({"sharing": 8}, "stored once\n"),
        ({"attention": "MHA", "sharing": 2}, "stored once; none can share\n"),
        ({"gpus": 16, "sharing": 8}, "stored 2 times, 8 of 16 drawn\n"),
    ],
)
def test_the_explorer_says_where_fewer_gpus_share_the_tokens_than_asked(values, says):
    assert says in explorer(**values).axes[0].get_title(loc="left")


def test_the_explorers_lines_are_flat_where_the_cache_is_copied():
    fits = explorer().axes[1]
    named = {line.get_gid(): np.array(line.get_ydata()) for line in fits.lines}
    assert len(set(named["heads MLA"])) == len(set(named["heads MQA"])) == 1
    assert named["heads GQA"][3] == named["heads GQA"][-1] == named["heads MQA"][0]
    mha = family(V3)[0].cache_bytes
    assert list(named["heads MHA"]) == [int(40e9 * gpus / (V3.num_layers * mha)) for gpus in pictures.GPUS]
    assert named["tokens"] == pytest.approx(named["heads MLA"][0] * np.array(pictures.GPUS), rel=1e-5)


def test_the_explorer_keeps_its_points_and_texts_inside():
    controls = pictures.HoldingExplorer().controls()
    ends = itertools.product(*([c.options[0], c.options[-1]] for c in controls.values()))
    for values in itertools.islice(ends, 0, None, 5):
        plain = [value[1] if isinstance(value, tuple) else value for value in values]
        fig = explorer(**dict(zip(controls, plain, strict=True)))
        low, high = fig.axes[1].get_ylim()
        for line in fig.axes[1].lines:
            assert all(low < y < high for y in line.get_ydata())
    base.png(fig)
    for ax in fig.axes:
        where = ax.get_tightbbox(fig.canvas.get_renderer())
        assert fig.bbox.x0 <= where.x0 < where.x1 <= fig.bbox.x1
        assert fig.bbox.y0 <= where.y0 < where.y1 <= fig.bbox.y1
