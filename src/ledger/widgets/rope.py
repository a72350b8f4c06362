"""Pictures and the explorer of the lesson on RoPE: rotations as matrices, and the one that cannot replace them."""

import math
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from ledger.models import MODELS
from ledger.widgets.base import COLORS, Choice, Explorer, Steps, new_figure, plain_ticks, powers_of_two

#: One model for each base of the angles, and one that rotates nothing; all rotate 64 features.
CHOICES = ("DeepSeek-V3", "Kimi-K2.5", "GLM-5", "GLM-5.2", "LongCat-Flash", "Kimi-K3")
POSITIONS = [*range(9), 12, *powers_of_two(16, 131072)]
CACHED = powers_of_two(1, 131072)
#: The elements of a rotation: orange −1, white 0, purple 1, told apart by colour-blind readers.
ELEMENTS = "PuOr"
#: Every fourth of the 32 pairs, from the fastest on, stands in the pictures of matrices.
SHOWN = list(range(0, 32, 4))
#: The pairs that have a dial.
DIAL_PAIRS = (0, 4, 12, 24)


def mean_turn(rope_dim: int, theta: float | None, tokens: int) -> np.ndarray:
    """The mean of e^(i·p·step) over positions p = 0 … tokens − 1, one complex number a pair: (rope_dim/2,).

    Its parts are the cosine and the sine of the best single matrix. Without ``theta`` nothing turns.
    """
    half = _steps(rope_dim, theta) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        length = np.where(half == 0, 1.0, np.sin(tokens * half) / (tokens * np.sin(half)))
    return np.exp(1j * (tokens - 1) * half) * length


def residual_over(rope_dim: int, theta: float | None, counts: Sequence[int]) -> list[float]:
    """What the best single matrix for positions 0 … count − 1 leaves over of their rotations, for each of ``counts``.

    √Σ‖R_p − M‖² / Σ‖R_p‖²: between 0 and 1, without unit.
    """
    left = [1 - float(np.mean(np.abs(mean_turn(rope_dim, theta, count)) ** 2)) for count in counts]
    return [math.sqrt(max(share, 0.0)) for share in left]


def blocks(turns: np.ndarray) -> np.ndarray:
    """The matrix with one 2 × 2 block [[cos, −sin], [sin, cos]] for each of the complex ``turns``, interleaved."""
    matrix = np.zeros((2 * len(turns), 2 * len(turns)))
    even = np.arange(0, 2 * len(turns), 2)
    matrix[even, even] = matrix[even + 1, even + 1] = turns.real
    matrix[even, even + 1], matrix[even + 1, even] = -turns.imag, turns.imag
    return matrix


def matrix_panels(matrices: Sequence[np.ndarray], titles: Sequence[str], alt: str):
    """Square matrices of rotations side by side, their elements as colours from −1 to 1. A Figure."""
    fig = new_figure(2.25 * len(matrices) + 0.7, 2.75, alt=alt)
    axes = fig.subplots(1, len(matrices), squeeze=False)[0]
    for ax, matrix, title in zip(axes, matrices, titles, strict=True):
        image = _matrix_image(ax, matrix)
        ax.set_title(title, fontsize=10)
    axes[0].set(ylabel="row: feature")
    bar = fig.colorbar(image, ax=axes, ticks=[-1, 0, 1], shrink=0.8)
    bar.set_label("value of an element")
    bar.outline.set_visible(False)
    return fig


def layout_picture(rope_dim: int = 8):
    """Which features are a pair in either layout: one colour a pair, and where the conversion takes each. A Figure."""
    half = rope_dim // 2
    colors = [COLORS[name] for name in ("absorb", "materialize", "latent", "rope", "value", "neutral")]
    alt = f"{rope_dim} features interleaved and half-split: the same pairs at other places"
    fig = new_figure(7.6, 2.2, alt=alt)
    ax = fig.subplots()
    for feature in range(rope_dim):
        pair, part = divmod(feature, 2)
        to = pair + part * half
        ax.plot([feature, to], [0.82, 0.18], color=colors[pair % len(colors)], linewidth=1.2, alpha=0.6)
        for x, y in ((feature, 1), (to, 0)):
            box = dict(boxstyle="square,pad=0.45", facecolor=colors[pair % len(colors)], edgecolor="none")
            name = f"{'ab'[part]}{pair}"
            ax.text(x, y, name, ha="center", va="center", color=COLORS["paper"], fontsize=10, bbox=box)
    ax.set_yticks([1, 0], ["interleaved", "half-split"], fontsize=10)
    ax.set(xticks=range(rope_dim), xlabel="place in the vector", xlim=(-0.6, rope_dim - 0.4), ylim=(-0.35, 1.35))
    ax.grid(visible=False)
    ax.spines["left"].set_visible(False)
    ax.tick_params(left=False)
    return fig


class RopeDial(Explorer):
    """Turn the position: hands on dials, the rotation's matrix, the best single matrix, and what that leaves over."""

    title = (
        "Rotation of a chosen position, the best single matrix for a cache, and its residual over the cache's length"
    )
    size = (9.0, 4.7)

    def controls(self):
        return {
            "model": Choice("model", list(CHOICES), "DeepSeek-V3"),
            "position": Steps("position n", POSITIONS, 3),
            "cached_tokens": Steps("cached tokens", CACHED, 8),
        }

    def setup(self, fig):
        grid = fig.add_gridspec(2, 3, height_ratios=[1.6, 1], width_ratios=[1, 1, 1])
        dials, turned, best = (fig.add_subplot(grid[0, i]) for i in range(3))
        curve = fig.add_subplot(grid[1, :])
        view = SimpleNamespace(dials=dials, turned=turned, best=best, curve=curve, hands={})
        self._setup_dials(view)
        empty = np.zeros((2 * len(SHOWN), 2 * len(SHOWN)))
        view.turned_image, view.best_image = _matrix_image(turned, empty), _matrix_image(best, empty)
        turned.set_ylabel("row: feature")

        ink, neutral = COLORS["ink"], COLORS["neutral"]
        curve.set(xscale="log", xlim=(0.9, CACHED[-1] * 1.4), ylim=(0, 1.05), yticks=[0, 0.5, 1])
        curve.set(xlabel="cached tokens: positions 0 … C − 1", ylabel="residual")
        plain_ticks(curve.xaxis)
        view.residual = curve.plot(CACHED, CACHED, "-", color=COLORS["rope"], gid="residual")[0]
        view.at = curve.axvline(1, color=neutral, linewidth=1.0, linestyle=":")
        view.chosen = curve.plot([], [], "D", color=ink, gid="chosen")[0]
        return view

    def _setup_dials(self, view) -> None:
        ax = view.dials
        around = np.linspace(0, 2 * np.pi, 73)
        for pair in DIAL_PAIRS:
            x, y = center(pair)
            ax.plot(x + np.cos(around), y + np.sin(around), color=COLORS["grid"], linewidth=1.2)
            ax.plot([x, x + 1], [y, y], color=COLORS["grid"], linewidth=1.2)
            (view.hands[pair],) = ax.plot([], [], color=COLORS["rope"], linewidth=2.2, gid=f"hand {pair}")
            ax.text(x, y - 1.42, f"pair {pair}", ha="center", va="center", fontsize=9)
        ax.set(xlim=(-1.3, 4.1), ylim=(-4.4, 1.2), aspect="equal")
        ax.set_axis_off()

    def update(self, view, model: str, position: int, cached_tokens: int) -> None:
        """``model`` is one of CHOICES, ``position`` that of a key, ``cached_tokens`` how many positions M serves."""
        shape = MODELS[model]
        width, theta = shape.rope_dim, shape.rope_theta
        turns = np.exp(1j * position * _steps(width, theta))
        for pair, hand in view.hands.items():
            x, y = center(pair)
            hand.set_data([x, x + turns[pair].real], [y, y + turns[pair].imag])
        view.dials.set_title(f"{model}: " + (f"θ = {theta:,.0f}" if theta else "rotates nothing"), fontsize=10)
        view.turned.set_title(f"R at n = {position:,}\n(purple 1, white 0, orange −1)", fontsize=10)
        view.turned_image.set_data(blocks(turns[SHOWN]))
        view.best_image.set_data(blocks(mean_turn(width, theta, cached_tokens)[SHOWN]))
        tokens = f"{cached_tokens:,} token{'s' if cached_tokens > 1 else ''}"
        view.best.set_title(f"best M, {tokens}\n(one for all their positions)", fontsize=10)

        curve = residual_over(width, theta, CACHED)
        left = curve[CACHED.index(cached_tokens)]
        view.residual.set_ydata(curve)
        view.at.set_xdata([cached_tokens, cached_tokens])
        view.chosen.set_data([cached_tokens], [left])
        view.curve.set_title(f"what M leaves over of the rotations: {left:.1%}", fontsize=10)


def center(pair: int) -> tuple[float, float]:
    """Where the dial of a pair stands in its axes, two in a row."""
    row, column = divmod(DIAL_PAIRS.index(pair), 2)
    return 2.8 * column, -2.9 * row


def _steps(rope_dim: int, theta: float | None) -> np.ndarray:
    """Radians a position of every pair; zeros without ``theta``."""
    pairs = np.arange(rope_dim // 2)
    return np.zeros(len(pairs)) if theta is None else theta ** (-2 * pairs / rope_dim)


def _matrix_image(ax, matrix: np.ndarray):
    """The elements of ``matrix`` as colours, with ticks at nothing: the title says what it is."""
    ax.grid(visible=False)
    ax.set(xticks=[], yticks=[], xlabel="column: feature")
    return ax.imshow(matrix, cmap=ELEMENTS, vmin=-1, vmax=1, interpolation="nearest")
