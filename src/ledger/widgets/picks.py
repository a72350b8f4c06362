"""What an indexer picks: one query's scores, the chosen tokens, the attention mass they hold, and the output's error.

The numbers are those of a trained model, recorded by ``bench/picks.py`` with the machine and the date.
"""

import base64
import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ledger.account.dsa import pair_flops
from ledger.models import Model
from ledger.widgets.base import COLORS, Choice, Explorer, Steps, new_figure, plain_ticks
from ledger.widgets.flow import Arrow, Box, Lane, flow

#: Who picks, with the colour and the mark of its line.
PICKERS = {
    "exact": (COLORS["neutral"], "o-"),
    "indexer": (COLORS["absorb"], "D-"),
    "first and last": (COLORS["materialize"], "s--"),
}
NAMES = {"exact": "exact top-k", "indexer": "fitted indexer", "first and last": "first 4 and the latest"}
#: The error of a query's exact best tokens in a figure that circulates: (tokens, share), and its look.
QUOTED = (256, 0.09)
STAR = {"marker": "*", "linestyle": "", "color": COLORS["predict"], "gid": "quoted", "zorder": 4}
#: Where the explorer's axis of errors begins, in percent: all tokens leave none.
FLOOR = 0.1


@cache
def recorded() -> dict[str, Any]:
    """``bench/picks.py``'s record: ``date``, ``commit``, ``machine`` and ``figures``."""
    return json.loads((Path(__file__).parent / "picks.json").read_text(encoding="utf-8"))


def unpacked(text: str, dtype: str) -> np.ndarray:
    """An array of the record, in float64."""
    return np.frombuffer(base64.b64decode(text), dtype).astype(np.float64)


def chosen(ranking: np.ndarray, topk: int) -> np.ndarray:
    """The indices of the ``topk`` largest of ``ranking`` (tokens,), rising."""
    return np.sort(np.argsort(-ranking, kind="stable")[:topk])


@cache
def last_query(layer: int) -> SimpleNamespace:
    """The last query of a recorded layer: ``attention`` (tokens,), its weights' mean over heads, which add up to 1,
    ``scores`` (tokens,) of the fitted indexer, ``rankings`` and ``errors`` at each recorded top-k by picker."""
    figures = recorded()["figures"]
    (found,) = (each for each in figures["fitted"] if each["layer"] == layer)
    attention = unpacked(found["attention"], "<f2")
    attention, scores = attention / attention.sum(), unpacked(found["scores"], "<f4")
    places = np.arange(len(scores))
    latest = np.where(places < figures["sink"], len(places), places)
    rankings = {"exact": attention, "indexer": scores, "first and last": latest}
    return SimpleNamespace(attention=attention, scores=scores, rankings=rankings, errors=found["query"])


def indexer_flow(model: Model):
    """One layer of DSA in ``model``'s shapes: what a query, a token and a step do, and what it costs; a Figure."""
    heads, dim, topk = model.index_heads, model.index_dim, model.index_topk
    hidden, low, pair = model.hidden_dim, model.q_lora_dim, pair_flops(model)

    def millions(weights: int) -> str:
        return f"{weights / 1e6:.2f} M"

    query = [Box("query latent", (1, low)), Arrow("W_q, RoPE,\nHadamard", millions(low * heads * dim))]
    query += [Box("index queries", (heads, dim)), Arrow("to FP8"), Box("codes, scales", f"{heads} × ({dim} + 4) B")]
    weights = [Box("hidden", (1, hidden)), Arrow("W_w", millions(hidden * heads)), Box("weights", (1, heads))]
    key = [Box("hidden", (1, hidden)), Arrow("W_k, LayerNorm,\nRoPE, Hadamard", millions(hidden * dim))]
    key += [Box("index key", (1, dim)), Arrow("to FP8"), Box("cached", f"{dim} + 4 B")]
    pick = [Box("codes, weights"), Arrow("q·k, ReLU, sum", f"{pair.indexer // 2:,} a token")]
    pick += [Box("scores", "1 × tokens"), Arrow(f"best {topk:,},\ngather")]
    pick += [Box("chosen entries", (topk, model.cache_dim))]
    pick += [Arrow("absorbed attention", f"{pair.absorbed // 2:,}\na chosen token")]
    pick += [Box("mixed latents", (model.num_heads, model.latent_dim))]
    lanes = [Lane("once a query", query, COLORS["absorb"]), Lane("its weights", weights, COLORS["absorb"])]
    lanes += [Lane("once a token", key, COLORS["latent"]), Lane("every step", pick, COLORS["rope"])]
    return flow("One layer of DSA (multiply-adds below the arrows)", lanes)


def error_picture():
    """The recorded errors by top-k, mean and middle half of the layers, and the one in circulation; a Figure."""
    figures = recorded()["figures"]
    topk = np.array(figures["topk"][:-1], float)
    fig = new_figure(
        7.6, 3.6, alt="Error of attention's output by top-k on a trained model, with the quoted 256 and 9 %"
    )
    ax = fig.subplots()
    looks = (("first and last", "materialize", "s--"), ("per layer", "absorb", "D-"), ("per head", "latent", "o-"))
    for name, color, mark in looks:
        rows = 100 * np.array(figures["errors"][name])[:, :-1]
        ax.plot(topk, rows.mean(axis=0), mark, color=COLORS[color], label=name, gid=name)
        ax.fill_between(topk, *np.quantile(rows, (0.25, 0.75), axis=0), color=COLORS[color], alpha=0.15, linewidth=0)
    ax.plot(QUOTED[0], 100 * QUOTED[1], markersize=13, label="in circulation: 256 tokens, 9 %", **STAR)
    ax.set(xscale="log", yscale="log", xlabel="tokens picked", ylabel="error of the output, %")
    plain_ticks(ax.xaxis)
    ax.set_xticks(topk, [f"{k:,.0f}" for k in topk])
    ax.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    ax.minorticks_off()
    model = figures["model"].split(",")[0]
    ax.set_title(f"{model}, queries in the last quarter of {figures['tokens']:,} tokens", fontsize=10.5)
    ax.legend(loc="lower left")
    return fig


class PicksExplorer(Explorer):
    """One query over 4,096 tokens of a trained model: who picks, how many, what they hold, how wrong the output is."""

    title = "Scores and attention of one query by token, the chosen ones marked, and the output's error by top-k"
    size = (9.2, 3.9)

    def controls(self):
        figures = recorded()["figures"]
        layers = [each["layer"] for each in figures["fitted"]]
        return {
            "topk": Steps("top-k", figures["topk"], 256),
            "picker": Choice("picked by", [(name, key) for key, name in NAMES.items()], "indexer"),
            "layer": Choice("layer", layers, layers[1]),
        }

    def setup(self, fig):
        grid = fig.add_gridspec(2, 2, width_ratios=[1.6, 1])
        view = SimpleNamespace(rows=[])
        for row, name in enumerate(("indexer's score", "attention")):
            ax = fig.add_subplot(grid[row, 0])
            dots = []
            for gid, color in (("left out", COLORS["grid"]), ("chosen", COLORS["absorb"])):
                dots += ax.plot([], [], "o", ms=1.6, mew=0, color=color, gid=f"{name}, {gid}")
            tokens = recorded()["figures"]["tokens"]
            ax.set(ylabel=name, xlim=(-tokens / 100, 1.01 * tokens))
            ax.locator_params(axis="y", nbins=4)
            ax.set_xticks([tokens * part / 4 for part in range(5)], [f"{tokens * part // 4:,}" for part in range(5)])
            view.rows.append((ax, *dots))
        view.rows[1][0].set(yscale="log", ylim=(1e-8, 1.5), xlabel="token")
        view.rows[1][0].set_yticks([1e-8, 1e-6, 1e-4, 1e-2, 1], ["1e-8", "1e-6", "1e-4", "0.01", "1"])
        view.rows[1][0].minorticks_off()
        view.rows[0][0].tick_params(labelbottom=False)
        ax = view.error = fig.add_subplot(grid[:, 1])
        view.lines = {}
        for picker, (color, mark) in PICKERS.items():
            (view.lines[picker],) = ax.plot([], [], mark, color=color, markersize=4, label=NAMES[picker], gid=picker)
        ax.plot(QUOTED[0], 100 * QUOTED[1], markersize=9, label="in circulation: 256, 9 %", **STAR)
        ring = {"color": COLORS["measure"], "markersize": 13, "markerfacecolor": "none", "markeredgewidth": 2.2}
        (view.dot,) = ax.plot([], [], "o", gid="here", **ring)
        ax.set(
            xscale="log",
            yscale="log",
            xlim=(13, 5000),
            ylim=(FLOOR, 300),
            xlabel="top-k",
            ylabel="error of the output, %",
        )
        ax.set_xticks([16, 64, 256, 1024, 4096])
        ax.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
        ax.minorticks_off()
        plain_ticks(ax.xaxis)
        ax.legend(loc="lower left", fontsize=8)
        return view

    def update(self, view, topk: int, picker: str, layer: int) -> None:
        """``picker`` is one of ``PICKERS``."""
        query = last_query(layer)
        picks = chosen(query.rankings[picker], topk)
        out = np.setdiff1d(np.arange(len(query.scores)), picks)
        for (_, left_out, taken), values in zip(view.rows, (query.scores, query.attention), strict=True):
            left_out.set_data(out, values[out])
            taken.set_data(picks, values[picks])
        low, high = query.scores.min(), query.scores.max()
        room = 0.05 * (high - low)
        view.rows[0][0].set_ylim(low - room, high + room)
        kept = query.attention[picks].sum()
        view.rows[0][0].set_title(f"{len(picks):,} of {len(query.scores):,} tokens", fontsize=10.5)
        view.rows[1][0].set_title(f"they hold {kept:.1%} of the attention", fontsize=10.5)
        topks = recorded()["figures"]["topk"]
        for name, line in view.lines.items():
            line.set_data(topks[:-1], [100 * error for error in query.errors[name][:-1]])
        error = query.errors[picker][topks.index(topk)]
        view.dot.set_data([topk], [max(100 * error, FLOOR)])
        view.error.set_title(f"output off by {error:.1%}", fontsize=10.5)
