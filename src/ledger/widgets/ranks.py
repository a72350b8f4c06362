"""Chapter 9's pictures of ranks: who sends how much to whom, and the explorer of who holds what."""

import math
from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np

from ledger.account.attention import family
from ledger.account.experts import token_bytes
from ledger.account.ranks import cache_bytes_on_gpu, replicas
from ledger.models import Model, model
from ledger.widgets.base import COLORS, Choice, Explorer, Steps, new_figure, plain_ticks, powers_of_two
from ledger.widgets.flow import Arrow, Box, Lane, flow


def journey_picture(model: Model):
    """The stations of a rank's n tokens, k copies each, and of the m copies that come to it; a Figure."""
    d, k, size = model.hidden_dim, model.experts_per_token, token_bytes(model.hidden_dim)
    out = [Box("tokens", f"n × {d:,}"), Arrow("sort by rank"), Box("copies", f"{k} n × {d:,}")]
    out += [Arrow("dispatch", f"{size.dispatch:,} bytes each"), Box("arrived", f"m × {d:,}")]
    home = [Box("outputs", f"m × {d:,}"), Arrow("combine", f"{size.combine:,} bytes each")]
    home += [Box("returned", f"{k} n × {d:,}"), Arrow("undo the sorting"), Box("slots", f"n × {k} × {d:,}")]
    home += [Arrow("weighted sum"), Box("layer", f"n × {d:,}")]
    lanes = [Lane("out: FP8 codes and scales, the experts' numbers apart", out, COLORS["rope"])]
    lanes += [Lane("own experts compute; home: bf16", home, COLORS["value"])]
    return flow("One rank's n tokens, and the m copies that come to it", lanes)


def traffic_picture(tables: Mapping[str, np.ndarray], unit: str, digits: int = 0):
    """Tables (ranks, ranks) of what each rank (rows) sends to each (columns), side by side, with their numbers; a
    Figure. All have one scale of colour."""
    told = "; ".join(f"{name}: {table.sum():,.{digits}f} {unit}" for name, table in tables.items())
    fig = new_figure(0.4 + 3.1 * len(tables), 3.3, alt=f"What each rank sends to each, in {unit}. {told}")
    largest = max(float(table.max(initial=0)) for table in tables.values()) or 1.0
    for ax, (name, table) in zip(fig.subplots(1, len(tables), squeeze=False)[0], tables.items(), strict=True):
        ranks = len(table)
        ax.imshow(table, cmap="Blues", vmin=0, vmax=1.25 * largest, aspect="equal")
        for source, target in np.ndindex(*table.shape):
            value = table[source, target]
            dark = value > 0.7 * largest
            color = COLORS["paper" if dark else "ink"]
            ax.text(target, source, f"{value:,.{digits}f}", ha="center", va="center", color=color, fontsize=9)
        ax.set_xticks(range(ranks), [str(rank) for rank in range(ranks)])
        ax.set_yticks(range(ranks), [str(rank) for rank in range(ranks)])
        ax.set(xlabel="to rank", ylabel="from rank", title=f"{name}, {unit}")
        ax.grid(visible=False)
    return fig


def holding_picture(groups: Mapping[str, tuple[int, int, int]], tokens: int = 16):
    """Which tokens and heads each GPU holds; ``groups`` gives (key heads, GPUs, GPUs that share tokens) under a
    name. A Figure with a strip for each GPU, a column for each token, filled as high as the share of the heads."""
    fig = new_figure(9.2, 2.9, alt="What each GPU of a group holds of a cache: " + "; ".join(groups))
    for ax, (name, group) in zip(fig.subplots(1, len(groups), squeeze=False)[0], groups.items(), strict=True):
        kv_heads, gpus, sharing = group
        _strip_axes(ax, gpus, tokens).set_verts(_blocks(*group, gpus, tokens))
        ax.set_title(f"{name}:\neach token {_stored(replicas(kv_heads, gpus) // sharing)}", fontsize=10)
    return fig


def _stored(times: int) -> str:
    return "stored once" if times == 1 else f"stored {times} times"


def _strip_axes(ax, strips: int, tokens: int):
    """Make ``ax`` one of strips, a strip a GPU; the collection that their blocks go into."""
    from matplotlib.collections import PolyCollection

    ax.set_yticks(np.arange(strips) + TALL / 2, [str(gpu) for gpu in range(strips)])
    ax.set(xlim=(-0.7, tokens - 0.3), ylim=(strips, -0.2), xlabel="cached token", ylabel="GPU")
    ax.locator_params(axis="x", nbins=4)
    ax.grid(visible=False)
    return ax.add_collection(PolyCollection([], facecolors=COLORS["latent"], gid="held"), autolim=False)


def _blocks(kv_heads: int, gpus: int, sharing: int, strips: int, tokens: int) -> np.ndarray:
    """Corners (blocks, 4, 2) of what the first ``strips`` GPUs hold of each token; heads are dealt out from the top."""
    held, height = replicas(kv_heads, gpus), TALL * max(1, kv_heads // gpus) / kv_heads
    corners = []
    for gpu in range(min(gpus, strips)):
        top = gpu + TALL * (gpu * kv_heads // gpus) / kv_heads
        for token in range(gpu % held % sharing, tokens, sharing):
            left, right = token - TALL / 2, token + TALL / 2
            corners.append([(left, top), (right, top), (right, top + height), (left, top + height)])
    return np.array(corners, float).reshape(-1, 4, 2)


#: Height of a GPU's strip and width of a token's column, of 1.
TALL = 0.82
MODEL = model("DeepSeek-V3")
SCHEMES = {scheme.name: scheme for scheme in family(MODEL)}
GPUS = powers_of_two(1, 128)
LINES = {"MHA": "neutral", "GQA": "rope", "MQA": "value", "MLA": "latent"}
#: GPUs and tokens that the explorer draws.
STRIPS, COLUMNS = 8, 16


class HoldingExplorer(Explorer):
    """What each GPU of a group holds of the cache, and how many tokens fit, by the way attention is shared out."""

    title = "What the GPUs of a group hold of a cache, and the tokens that fit on the group by its size"
    size = (9.3, 4.2)

    def controls(self):
        names = [(f"{name}, {SCHEMES[name].kv_heads} key heads", name) for name in LINES if name != "MLA"]
        return {
            "attention": Choice("attention", [("MLA, one latent", "MLA"), *names], "MLA"),
            "gpus": Steps("GPUs of the group", GPUS, 8),
            "sharing": Steps("GPUs that share the tokens", GPUS, 1),
            "free": Steps("GB for the cache on each GPU", [5, 10, 20, 40, 80], 40),
            "request": Steps("tokens of a request", powers_of_two(1024, 1 << 20), 8192),
        }

    def setup(self, fig):
        grid = fig.add_gridspec(1, 2, width_ratios=[1, 1.25])
        view = SimpleNamespace(strips=fig.add_subplot(grid[0, 0]), fits=fig.add_subplot(grid[0, 1]), lines={})
        view.blocks = _strip_axes(view.strips, STRIPS, COLUMNS)
        ax = view.fits
        for name, color in LINES.items():
            label = f"{name}, heads shared out"
            (view.lines[name],) = ax.plot([], [], color=COLORS[color], label=label, gid=f"heads {name}")
        (view.shared,) = ax.plot(
            [], [], "--", color=COLORS["absorb"], label="chosen, tokens shared out too", gid="tokens"
        )
        (view.dot,) = ax.plot([], [], "o", color=COLORS["measure"], markersize=9, gid="chosen")
        ax.set(xscale="log", yscale="log", xlim=(0.85, 150), ylim=(300, 3e8))
        ax.set(xlabel="GPUs of the group", ylabel="tokens that fit on the group")
        ax.set_xticks(GPUS[::2], [str(gpus) for gpus in GPUS[::2]])
        ax.set_yticks([1e3, 1e5, 1e7])
        ax.minorticks_off()
        plain_ticks(ax.yaxis)
        ax.legend(loc="upper left", fontsize=8)
        return view

    def follow(self, name, value):
        return {"sharing": 1} if name in ("gpus", "attention") else {}

    def update(self, view, attention: str, gpus: int, sharing: int, free: int, request: int) -> None:
        """``attention`` is a name of ``SCHEMES``, ``free`` is in GB. Only GPUs that hold the same heads can share
        tokens, so ``sharing`` is cut to their number, and the title says so."""
        scheme = SCHEMES[attention]
        held = replicas(scheme.kv_heads, gpus)
        asked, sharing = sharing, math.gcd(sharing, held)

        def fit(of, many, sharing=1):
            return int(1e9 * free / (MODEL.num_layers * cache_bytes_on_gpu(of, many, sharing)))

        view.blocks.set_verts(_blocks(scheme.kv_heads, gpus, sharing, STRIPS, COLUMNS))
        each = cache_bytes_on_gpu(scheme, gpus, sharing)
        more = f", {STRIPS} of {gpus} drawn" if gpus > STRIPS else ""
        cut = f"; {f'only {held}' if held > 1 else 'none'} can share" if asked > sharing else ""
        told = f"each token {_stored(held // sharing)}{cut or more}\n{each:,.0f} bytes a GPU, token, layer"
        view.strips.set_title(told, fontsize=10.5)
        for name, line in view.lines.items():
            line.set_data(GPUS, [fit(SCHEMES[name], many) for many in GPUS])
            line.set_alpha(1.0 if name == attention else 0.35)
        view.shared.set_data(GPUS, [fit(scheme, many, replicas(scheme.kv_heads, many)) for many in GPUS])
        tokens = fit(scheme, gpus, sharing)
        view.dot.set_data([gpus], [tokens])
        view.fits.set_title(f"{tokens:,} tokens fit,\n{tokens // request:,} requests of {request:,}", fontsize=10.5)
