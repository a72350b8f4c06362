"""Flow pictures: what goes in, what each step does and costs, what comes out.

A picture is a stack of lanes; a lane is boxes (arrays) joined by arrows (operations), drawn left to right.
Every label is measured before anything is placed, so nothing overlaps whatever the labels say.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ledger.widgets.base import COLORS, SCREEN_DPI, SHARPNESS, new_figure

TITLE_SIZE, NAME_SIZE, TEXT_SIZE = 12, 10.5, 9.5  # points
PAGE = 9.2  # inches that a lane may take before it goes on in a second row
PAD = 0.11  # inches between a label and its box, and above and below an arrow
LANE_GAP, ROW_GAP = 0.30, 0.12
MARGIN = 0.12
MIN_ARROW = 0.55
SPACING = 1.15  # of lines
DESCENT = 0.22  # of a font's size: how far the last line reaches below its baseline


@dataclass(frozen=True)
class Box:
    """An array: its name, its shape (a tuple, or text such as ``"4,096 × 512"``), and its own colour if it has one."""

    text: str
    shape: str | Sequence[int] = ""
    color: str | None = None

    @property
    def caption(self) -> str:
        return self.shape if isinstance(self.shape, str) else " × ".join(f"{n:,}" for n in self.shape)


@dataclass(frozen=True)
class Arrow:
    """An operation: what it does stands above the arrow, what it costs (multiply-adds, bytes) below."""

    text: str = ""
    cost: str = ""


@dataclass(frozen=True)
class Lane:
    """One way through the computation: boxes and arrows in turn, under the lane's name and in its colour."""

    name: str
    items: Sequence[Box | Arrow]
    color: str | None = None


def _tint(color: str, share: float = 0.10) -> tuple[float, ...]:
    """``color`` mixed into white: the fill under dark text."""
    from matplotlib.colors import to_rgb

    return tuple(1 - share * (1 - channel) for channel in to_rgb(color))


class _Ruler:
    """Widths and heights of texts, in inches."""

    def __init__(self):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.fig = Figure(figsize=(1, 1), dpi=SCREEN_DPI * SHARPNESS)
        self.renderer = FigureCanvasAgg(self.fig).get_renderer()

    def __call__(self, text: str, size: float, weight: str = "normal") -> tuple[float, float]:
        if not text:
            return 0.0, 0.0
        # The height comes from letters with every stroke, so that "scores" and "keys" stand on one line.
        even = "\n".join("Ág|j" for _ in text.split("\n"))
        extents = []
        for sample in (text, even):
            drawn = self.fig.text(0, 0, sample, fontsize=size, fontweight=weight, linespacing=SPACING)
            extents.append(drawn.get_window_extent(self.renderer))
            drawn.remove()
        return extents[0].width / self.fig.dpi, extents[1].height / self.fig.dpi


def _size(item: Box | Arrow, ruler: _Ruler) -> tuple[float, float]:
    """Width and height in inches that ``item`` needs."""
    if isinstance(item, Box):
        (w1, h1), (w2, h2) = ruler(item.text, NAME_SIZE, "bold"), ruler(item.caption, TEXT_SIZE)
        gap = 0.06 if item.caption else 0.0
        return max(w1, w2) + 2 * PAD + 0.04, h1 + gap + h2 + 2 * PAD
    (w1, h1), (w2, h2) = ruler(item.text, TEXT_SIZE), ruler(item.cost, TEXT_SIZE)
    return max(w1, w2, MIN_ARROW) + 2 * PAD, 2 * (max(h1, h2) + PAD)


def _place(lanes: Sequence[Lane], ruler: _Ruler) -> list[list[list[tuple[Box | Arrow, float]]]]:
    """The rows of each lane, as (item, width) from left to right.

    Where every lane fits in one row, items at the same place share a column. Where one does not, it goes on in a
    second row, which starts with the arrow.
    """
    own = [[_size(item, ruler)[0] for item in lane.items] for lane in lanes]
    columns = [max(widths[i] for widths in own if i < len(widths)) for i in range(max(map(len, own)))]
    if sum(columns) <= PAGE:
        return [[list(zip(lane.items, columns, strict=False))] for lane in lanes]
    placed = []
    for lane, widths in zip(lanes, own, strict=True):
        rows, used = [[]], 0.0
        for i, (item, width) in enumerate(zip(lane.items, widths, strict=True)):
            with_next = width + (widths[i + 1] if isinstance(item, Arrow) and i + 1 < len(widths) else 0.0)
            if rows[-1] and used + with_next > PAGE:
                rows, used = [*rows, []], 0.0
            rows[-1].append((item, width))
            used += width
        placed.append(rows)
    return placed


def flow(title: str, lanes: Sequence[Lane]):
    """The picture of ``lanes`` as a matplotlib Figure, as high as its labels need and about as wide as a page.

    Lanes that fit share their columns, so that they can be compared step by step; a longer lane goes on below.
    """
    ruler = _Ruler()
    placed = _place(lanes, ruler)
    title_width, title_height = ruler(title, TITLE_SIZE, "bold")
    names = [ruler(lane.name, NAME_SIZE, "bold") for lane in lanes]
    row_widths = [sum(width for _, width in row) for rows in placed for row in rows]
    row_heights = [[max(_size(item, ruler)[1] for item, _ in row) for row in rows] for rows in placed]
    title_space = title_height + 0.16 if title else 0.0
    name_spaces = [
        name_height + 0.09 if lane.name else 0.0 for lane, (_, name_height) in zip(lanes, names, strict=True)
    ]
    gaps = LANE_GAP * (len(lanes) - 1) + ROW_GAP * sum(len(rows) - 1 for rows in placed)
    width = max(*row_widths, title_width, *(name_width for name_width, _ in names)) + 2 * MARGIN
    height = title_space + sum(name_spaces) + sum(map(sum, row_heights)) + gaps + 2 * MARGIN

    fig = new_figure(width, height, alt=f"{title}: " + "; ".join(_in_words(lane) for lane in lanes))
    fig.set_layout_engine("none")
    ax = fig.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
    ax.set_axis_off()
    y = height - MARGIN
    ax.text(MARGIN, y, title, fontsize=TITLE_SIZE, fontweight="bold", color=COLORS["ink"], va="top")
    y -= title_space
    for lane, rows, heights, name_space in zip(lanes, placed, row_heights, name_spaces, strict=True):
        color = lane.color or COLORS["neutral"]
        ax.text(MARGIN, y, lane.name, fontsize=NAME_SIZE, fontweight="bold", color=color, va="top")
        y -= name_space
        for row, row_height in zip(rows, heights, strict=True):
            x = MARGIN
            for item, item_width in row:
                draw = _draw_box if isinstance(item, Box) else _draw_arrow
                draw(ax, item, x, y - row_height / 2, item_width, ruler, color)
                x += item_width
            y -= row_height + ROW_GAP
        y -= LANE_GAP - ROW_GAP
    return fig


def _draw_arrow(ax, item: Arrow, x: float, middle: float, width: float, ruler: _Ruler, color: str) -> None:
    from matplotlib.patches import FancyArrowPatch

    ends = (x + 0.03, middle), (x + width - 0.03, middle)
    look = dict(arrowstyle="-|>", mutation_scale=11, linewidth=1.4, shrinkA=0, shrinkB=0)
    ax.add_patch(FancyArrowPatch(*ends, color=color, **look))
    center = x + width / 2
    _write(ax, item.text, center, middle + 0.06, TEXT_SIZE)
    _write(ax, item.cost, center, middle - 0.06 - ruler(item.cost, TEXT_SIZE)[1], TEXT_SIZE)


def _draw_box(ax, item: Box, x: float, middle: float, width: float, ruler: _Ruler, lane_color: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    color = item.color or lane_color
    height = _size(item, ruler)[1]
    inset = 0.05
    corner = (x + inset, middle - height / 2 + inset)
    look = dict(
        boxstyle=f"round,pad={inset},rounding_size=0.07", facecolor=_tint(color), edgecolor=color, linewidth=1.3
    )
    ax.add_patch(FancyBboxPatch(corner, width - 2 * inset, height - 2 * inset, **look))
    _, name_height = ruler(item.text, NAME_SIZE, "bold")
    center, bottom = x + width / 2, middle - height / 2 + PAD
    _write(ax, item.caption, center, bottom, TEXT_SIZE)
    _write(ax, item.text, center, middle + height / 2 - PAD - name_height, NAME_SIZE, "bold")


def _write(ax, text: str, center: float, bottom: float, size: float, weight: str = "normal") -> None:
    """``text`` centred on ``center``, its lowest stroke on ``bottom``."""
    baseline = bottom + DESCENT * size / 72
    style = dict(ha="center", va="baseline", color=COLORS["ink"], linespacing=SPACING)
    ax.text(center, baseline, text, fontsize=size, fontweight=weight, **style)


def _in_words(lane: Lane) -> str:
    parts = [
        f"{item.text} [{item.caption}]" if isinstance(item, Box) else f"-> {item.text} {item.cost} ->"
        for item in lane.items
    ]
    return " ".join([f"{lane.name}:", *parts]).replace("\n", " ")
