"""Chapter 5's pictures: both routes' totals and terms over new tokens, and the explorer that moves their crossing."""

import math
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from ledger.account.crossover import (
    absorb_macs,
    absorb_steps,
    crossover_causal,
    crossover_limit,
    crossover_new_tokens,
    log_slopes,
    materialize_macs,
    materialize_steps,
    widths,
)
from ledger.models import MODELS, Model
from ledger.widgets.base import COLORS, Choice, Explorer, Steps, log_axes, new_figure, plain_ticks, powers_of_two
from ledger.widgets.keys import short

ROUTES = {"materialize": materialize_macs, "absorb": absorb_macs}
STYLES = {"total": "-", "projection": "--", "attention": ":"}
MOST_TOKENS = 8192
#: Where a total is drawn, dense enough that it looks bent; a term is straight on logarithmic axes, and needs its ends.
NEW_TOKENS = {
    "total": np.geomspace(1, MOST_TOKENS, 40),
    "projection": np.array([1, MOST_TOKENS]),
    "attention": np.array([1, MOST_TOKENS]),
}


def lines_over_new_tokens(model, cached_tokens: int) -> dict[tuple[str, str], np.ndarray]:
    """Multiply-adds of one layer of ``model`` at a part's ``NEW_TOKENS``, by (route, part).

    On plain axes every part is a straight line, so its values at 0 and 1 new tokens say all.
    """
    lines = {}
    for route, macs in ROUTES.items():
        start, one = (macs(new_tokens, cached_tokens, **widths(model)) for new_tokens in (0, 1))
        for part in STYLES:
            lines[route, part] = start[part] + NEW_TOKENS[part] * float(one[part] - start[part])
    return lines


def step_bars(model: Model, cached_tokens: int, new_tokens: Sequence[int]):
    """Which products take a route's multiply-adds, as shares of its total: two bars for each of ``new_tokens``, one a
    route, the total beside each. Filled is projection, hatched is attention. A Figure."""
    fig = new_figure(9.0, 0.7 + 0.52 * 2 * len(new_tokens), alt=f"Where the multiply-adds of {model.name} go, by route")
    ax = fig.subplots()
    bars = [
        (1.1 * group + 0.5 * lane, new, route, steps(new, cached_tokens, **widths(model)))
        for group, new in enumerate(new_tokens)
        for lane, (route, steps) in enumerate((("materialize", materialize_steps), ("absorb", absorb_steps)))
    ]
    for place, new, route, steps in bars:
        total, start = sum(step.macs for step in steps), 0.0
        for step in steps:
            share = 100 * step.macs / total
            _step_bar(ax, place, start, share, step, COLORS[route], label=f"{route} {new} {step.name}")
            start += share
        ax.text(101, place, short(total), va="center", fontsize=9.5, fontweight="bold")
    ax.set_yticks([place for place, *_ in bars], [f"{new:,} new: {route}" for _, new, route, _ in bars])
    ax.set(xlim=(0, 109), ylim=(bars[-1][0] + 0.25, -0.3), xlabel="% of the route's multiply-adds, one layer")
    ax.set_xticks(range(0, 101, 20))
    ax.set_title(f"{model.name}, {cached_tokens:,} cached   (filled: projection, hatched: attention)")
    ax.grid(visible=False)
    return fig


def _step_bar(ax, place: float, start: float, share: float, step, color: str, label: str) -> None:
    """One product's part of a bar of ``step_bars``, with its name and share where they fit."""
    paper, box = COLORS["paper"], None
    look, ink = dict(color=color, edgecolor=paper), paper
    if step.part == "attention":
        look, ink = dict(color=paper, edgecolor=color, hatch="///"), COLORS["ink"]
        box = dict(boxstyle="square,pad=0.15", facecolor=paper, edgecolor="none")
    ax.barh(place, share, left=start, height=0.36, label=label, **look)
    if share > 5:
        words = f"{step.name}\n{share:.1f} %" if share > 15 else f"{share:.1f} %"
        ax.text(start + share / 2, place, words, ha="center", va="center", color=ink, fontsize=8.5, bbox=box)


def slopes_chart(model: Model, cached_tokens: int):
    """Both totals over new tokens on logarithmic axes, and materialize's tangent where they cross. A Figure."""
    alt = f"Both totals of {model.name} over new tokens, log-log, with a tangent at the crossing"
    fig = new_figure(7.5, 3.9, alt=alt)
    ax = fig.subplots()
    lines = lines_over_new_tokens(model, cached_tokens)
    for route in ROUTES:
        ax.plot(NEW_TOKENS["total"], lines[route, "total"], color=COLORS[route], label=route, gid=route)
    at = crossover_new_tokens(cached_tokens, model.latent_dim, model.nope_dim, model.value_dim)
    one = absorb_macs(1, cached_tokens, **widths(model))["total"]  # absorb's line is proportional to the new tokens
    slope, reach = log_slopes(round(at), cached_tokens, **widths(model))[0], np.array([at / 12, at * 12])
    tangent = at * one * (reach / at) ** slope
    ax.plot([at], [at * one], "D", color=COLORS["ink"], gid="crossing")
    ax.plot(reach, tangent, "--", color=COLORS["ink"], linewidth=1.3, gid="tangent")
    beside = dict(textcoords="offset points", fontsize=9.5, va="center")
    ax.annotate(f"its tangent: slope {slope:.2f}", (reach[1], tangent[1]), (0, -24), ha="right", **beside)
    ax.annotate("slope 1", (8, 8 * one), (10, -4), **beside)
    ax.annotate(f"{at:.1f} new tokens", (at, at * one), (-8, 18), ha="right", fontweight="bold", **beside)
    ax.set(xscale="log", yscale="log", xlabel="new tokens", ylabel="multiply-adds, one layer")
    ax.set_title(f"{model.name}, {cached_tokens:,} cached tokens")
    ax.legend(loc="lower right")
    plain_ticks(ax.xaxis)
    return fig


class CrossoverExplorer(Explorer):
    """Two totals over new tokens with their terms and their crossing, and beside them the chosen point's parts."""

    title = "Multiply-adds of one layer over new tokens: materialize and absorb, their terms and their crossing"
    size = (9.0, 4.2)

    def controls(self):
        return {
            "model": Choice("model", list(MODELS), "DeepSeek-V3"),
            "cached_tokens": Steps("cached tokens", powers_of_two(64, 131072), 4096),
            "new_tokens": Steps("new tokens", powers_of_two(1, MOST_TOKENS), 128),  # both bars can be seen
        }

    def setup(self, fig):
        chart, parts = fig.subplots(1, 2, width_ratios=[2.1, 1])
        view = SimpleNamespace(chart=chart, parts=parts)
        neutral, ink, paper = COLORS["neutral"], COLORS["ink"], COLORS["paper"]
        log_axes(chart)
        chart.set(xlim=(1, MOST_TOKENS), xlabel="new tokens", ylabel="multiply-adds, one layer")
        view.sides = {
            "absorb": chart.axvspan(1, 2, color=COLORS["absorb"], alpha=0.07, linewidth=0),
            "materialize": chart.axvspan(2, MOST_TOKENS, color=COLORS["materialize"], alpha=0.07, linewidth=0),
        }
        view.lines = {}
        for route in ROUTES:
            for part, style in STYLES.items():
                (view.lines[route, part],) = chart.plot(
                    NEW_TOKENS[part],
                    NEW_TOKENS[part],
                    style,
                    color=COLORS[route],
                    linewidth=2.2 if part == "total" else 1.3,
                    gid=f"{route} {part}",
                    label=route if part == "total" else "_hidden",
                )
        for part in ("projection", "attention"):
            chart.plot([], [], STYLES[part], color=neutral, linewidth=1.3, label=f"its {part}")
        view.chosen = chart.axvline(1, color=neutral, linewidth=1.0)
        (view.crossing,) = chart.plot([], [], "D", color=ink, gid="crossing", zorder=4)
        view.equal = chart.annotate(
            "",
            (1, 1),
            xytext=(-8, 10),
            textcoords="offset points",
            ha="right",
            fontsize=10,
            fontweight="bold",
            bbox=dict(boxstyle="square,pad=0.1", facecolor=paper, edgecolor="none", alpha=0.85),
            zorder=5,
        )
        plain_ticks(chart.xaxis)
        chart.yaxis.get_major_locator().set_params(numticks=5)
        chart.legend(loc="lower right")

        names, colors = list(ROUTES), [COLORS[route] for route in ROUTES]
        view.projections = parts.bar(names, [1, 1], width=0.6, color=colors)
        view.attentions = parts.bar(
            names, [1, 1], width=0.6, color=paper, edgecolor=colors, hatch="///", linewidth=1.2, bottom=1
        )
        view.sums = [parts.text(i, 1, "", ha="center", va="bottom", fontsize=9) for i in range(len(names))]
        parts.set_yticks([])
        parts.grid(False)
        parts.spines["left"].set_visible(False)
        parts.set_xlabel("filled: projection · hatched: attention")
        return view

    def update(self, view, model: str, cached_tokens: int, new_tokens: int) -> None:
        """``model`` is a published name, ``cached_tokens`` and ``new_tokens`` are counts of tokens."""
        shape = MODELS[model]
        lines = lines_over_new_tokens(shape, cached_tokens)
        for key, values in lines.items():
            view.lines[key].set_ydata(values)
        view.chart.set_ylim(0.5 * min(map(np.min, lines.values())), 2 * max(map(np.max, lines.values())))
        view.chosen.set_xdata([new_tokens, new_tokens])
        self._update_crossing(view, shape, cached_tokens)
        self._update_parts(view, shape, cached_tokens, new_tokens)

    def _update_crossing(self, view, shape, cached_tokens: int) -> None:
        sizes = shape.latent_dim, shape.nope_dim, shape.value_dim
        exact, limit = crossover_new_tokens(cached_tokens, *sizes), crossover_limit(*sizes)
        causal = crossover_causal(cached_tokens, *sizes)
        # Absorb is proportional to the new tokens, so its height at the crossing follows from one token.
        at = (exact, exact * absorb_macs(1, cached_tokens, **widths(shape))["total"])
        shown = 1 <= exact <= MOST_TOKENS
        edge = min(max(exact, 1), MOST_TOKENS) if exact < math.inf else MOST_TOKENS
        view.sides["absorb"].set(x=1, width=edge - 1)
        view.sides["materialize"].set(x=edge, width=MOST_TOKENS - edge)
        view.crossing.set_data(([at[0]], [at[1]]) if shown else ([], []))
        view.equal.set(visible=shown, text=f"equal at {exact:.1f}")
        view.equal.xy = at
        view.chart.set_title(
            f"{shape.name}, {cached_tokens:,} cached: they cross at {exact:.1f}\n"
            f"(causal {causal:.1f}, in a long context {limit:.1f})",
            fontsize=10,
        )

    def _update_parts(self, view, shape, cached_tokens: int, new_tokens: int) -> None:
        counts = [macs(new_tokens, cached_tokens, **widths(shape)) for macs in ROUTES.values()]
        top = max(parts["total"] for parts in counts)
        bars = zip(counts, view.projections, view.attentions, view.sums, strict=True)
        for parts, projection, attention, label in bars:
            # As floats: a browser's Python has C integers of 32 bits, and Matplotlib takes a bar's height for one.
            projection.set_height(float(parts["projection"]))
            attention.set(y=float(parts["projection"]), height=float(parts["attention"]))
            label.set(y=parts["total"] + 0.02 * top, text=short(parts["total"]))
        view.parts.set_ylim(0, top * 1.12)
        tokens = f"{new_tokens:,} new token{'s' if new_tokens > 1 else ''}"
        view.parts.set_title(f"multiply-adds, one layer,\nat {tokens}", fontsize=10)
