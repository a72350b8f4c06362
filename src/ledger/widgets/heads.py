"""Pictures and the explorer of the lesson on many heads: the packed weight, its placements, the merged matrix."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from ledger.account.attention import Scheme, family, merged_query_key_elements
from ledger.models import MODELS, Model
from ledger.widgets.base import COLORS, Choice, Explorer, Steps, log_axes, new_figure, plain_ticks, powers_of_two

KEYS, VALUES = COLORS["absorb"], COLORS["value"]
HEAD_COLORS = (COLORS["absorb"], COLORS["materialize"], COLORS["latent"], COLORS["rope"])
SCHEME_COLORS = {
    "MHA": COLORS["materialize"],
    "GQA": COLORS["rope"],
    "MQA": COLORS["neutral"],
    "MLA": COLORS["latent"],
}
WEIGHT_COLORS = {"merged": COLORS["materialize"], "apart": COLORS["absorb"]}


def _canvas(width: float, height: float, alt: str):
    """A figure and its one axes, measured in inches, origin at the top left and y downwards."""
    fig = new_figure(width, height, alt=alt)
    fig.set_layout_engine("none")
    ax = fig.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    ax.set_axis_off()
    return fig, ax


def _label(ax, x: float, y: float, text: str, color: str = COLORS["ink"], **how) -> None:
    ax.text(x, y, text, color=color, **how)


def _matrix(ax, x: float, y: float, rows: int, cols: int, unit: float, color: str, numbers=None, alpha=0.25):
    """A matrix of ``rows`` × ``cols`` elements of ``unit`` inches, with its numbers where they are given."""
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((x, y), cols * unit, rows * unit, facecolor=color, alpha=alpha, linewidth=0))
    ax.add_patch(Rectangle((x, y), cols * unit, rows * unit, fill=False, edgecolor=color, linewidth=1.2))
    if numbers is not None:
        for (i, j), number in np.ndenumerate(numbers):
            center = x + (j + 0.5) * unit, y + (i + 0.5) * unit
            _label(ax, *center, f"{number:g}", ha="center", va="center", fontsize=10)


def packed_weight(num_heads: int, nope_dim: int, value_dim: int, latent_dim: int, kv_b=None):
    """The packed weight beside the small matrices that it is cut into, as a Figure.

    With more than three heads the first two and the last are drawn, to scale. ``kv_b``, an array of
    ``(num_heads · (nope_dim + value_dim), latent_dim)``, writes its numbers into the picture.
    """
    per_head = nope_dim + value_dim
    shown = list(range(num_heads)) if num_heads <= 3 else [0, 1, num_heads - 1]
    unit = 1.08 / max(latent_dim, per_head)
    gap = 0.3 if num_heads > 3 else 0.0
    pitch = max(nope_dim, latent_dim) * unit + 0.42
    top = 0.72
    wide = latent_dim * unit
    left = 2.55
    x_keys = left + wide + 1.0
    x_values = x_keys + wide + 0.8
    alt = f"kv_b, {num_heads * per_head:,} rows by {latent_dim:,}, cut into a key and a value matrix for each head"
    fig, ax = _canvas(x_values + max(value_dim * unit, 2.3), top + pitch * len(shown) + gap - 0.12, alt)

    for x, text in ((left, "kv_b, as stored"), (x_keys, "w_kc: keys"), (x_values, "w_vc: values, transposed")):
        _label(ax, x, 0.2, text, fontsize=11, fontweight="bold", va="center")
    y_packed = top + (pitch - per_head * unit) * len(shown) / 2 - 0.2
    for place, head in enumerate(shown):
        skipped = gap if place and head != shown[place - 1] + 1 else 0.0
        y, y_piece = y_packed + place * per_head * unit + skipped, top + place * pitch + skipped
        if skipped:
            for x, y_dots in ((left, y - gap / 2), (x_keys, y_piece - 0.4), (x_values, y_piece - 0.4)):
                _label(ax, x + 0.15, y_dots, "⋮", ha="center", va="center", fontsize=13)
        first = head * per_head
        block = None if kv_b is None else np.asarray(kv_b)[first : first + per_head]
        for start, count, color, name in ((0, nope_dim, KEYS, "key"), (nope_dim, value_dim, VALUES, "value")):
            numbers = None if block is None else block[start : start + count]
            _matrix(ax, left, y + start * unit, count, latent_dim, unit, color, numbers)
            rows = f"row {first + start:,}"
            if count > 1:
                rows = f"rows {first + start:,} … {first + start + count - 1:,}"
            text = f"head {head}, {name}: {rows}"
            _label(ax, left - 0.08, y + (start + count / 2) * unit, text, ha="right", va="center", fontsize=8.5)
        keys, values = (None, None) if block is None else (block[:nope_dim], block[nope_dim:].T)
        _matrix(ax, x_keys, y_piece, nope_dim, latent_dim, unit, KEYS, keys)
        _matrix(ax, x_values, y_piece, latent_dim, value_dim, unit, VALUES, values)
        _label(ax, x_keys, y_piece - 0.05, f"[{head}]  {nope_dim} × {latent_dim}", fontsize=9, va="bottom")
        _label(ax, x_values, y_piece - 0.05, f"[{head}]  {latent_dim} × {value_dim}", fontsize=9, va="bottom")
        ax.annotate(
            "",
            (x_keys - 0.08, y_piece + nope_dim * unit / 2),
            (left + wide + 0.06, y + per_head * unit / 2),
            arrowprops=dict(arrowstyle="-|>", color=COLORS["neutral"], linewidth=1.0),
        )
    return fig


def placements(num_heads: int, nope_dim: int, latent_dim: int):
    """Three ways to put the heads' matrices in memory: apart, stacked into one, on a diagonal. A Figure."""
    from matplotlib.patches import Rectangle

    unit = min(0.2, 2.6 / (num_heads * latent_dim))
    tall, wide = num_heads * nope_dim * unit, latent_dim * unit
    step = nope_dim * unit + 0.12
    top, height = 1.0, 1.0 + num_heads * step + 0.15
    elements = num_heads * nope_dim * latent_dim
    titles = (
        (
            0.25,
            "apart: a bmm",
            f"{num_heads} × ({nope_dim} × {latent_dim})\n{elements:,} elements, {num_heads} queries",
        ),
        (2.75, "stacked: one product", f"{num_heads * nope_dim} × {latent_dim}\n{elements:,} elements, 1 query"),
        (
            5.25,
            "on a diagonal: one product",
            f"{num_heads * nope_dim} × {num_heads * latent_dim}\n"
            f"{elements * num_heads:,} elements, {num_heads} queries",
        ),
    )
    fig, ax = _canvas(5.25 + max(num_heads * wide, 2.6) + 0.3, height, "The heads' matrices apart, stacked, diagonal")
    for x, title, text in titles:
        _label(ax, x, 0.2, title, fontsize=11, fontweight="bold", va="center")
        _label(ax, x, 0.62, text, fontsize=9, va="center", linespacing=1.4)
    (x_apart, *_), (x_stacked, *_), (x_diagonal, *_) = titles
    ax.add_patch(
        Rectangle((x_diagonal, top), num_heads * wide, tall, facecolor=COLORS["grid"], alpha=0.55, linewidth=0)
    )
    for head in range(num_heads):
        color = HEAD_COLORS[head % len(HEAD_COLORS)]
        y = top + head * nope_dim * unit
        _matrix(ax, x_apart, top + head * step, nope_dim, latent_dim, unit, color, alpha=0.4)
        _label(
            ax, x_apart + wide + 0.1, top + head * step + nope_dim * unit / 2, f"head {head}", fontsize=9, va="center"
        )
        _matrix(ax, x_stacked, y, nope_dim, latent_dim, unit, color, alpha=0.4)
        _matrix(ax, x_diagonal + head * wide, y, nope_dim, latent_dim, unit, color, alpha=0.4)
    _label(ax, x_stacked + wide + 0.1, top + tall / 2, "summed over\nthe heads", fontsize=9, va="center")
    _label(ax, x_diagonal + 0.06, top + tall - 0.05, "zeros", fontsize=9, va="bottom", color=COLORS["neutral"])
    return fig


def merged_bars(models: Mapping[str, Model]):
    """W_UQ·W_UK merged over its factors, one bar a model, with both element counts beside it. A Figure.

    A model that has no query latent gets a word and no bar.
    """
    fig = new_figure(8.2, 0.9 + 0.27 * len(models), alt="Weights merged offline over weights kept apart, by model")
    ax = fig.subplots()
    for place, shape in enumerate(models.values()):
        if shape.q_lora_dim is None:
            _label(ax, 1.08, place, "no query latent, so no W_UQ", va="center", fontsize=9, color=COLORS["neutral"])
            continue
        weights = merged_query_key_elements(shape.q_lora_dim, shape.latent_dim, shape.nope_dim, shape.num_heads)
        ax.barh(place, weights.ratio, color=COLORS["materialize"], height=0.66, label=shape.name)
        text = f"{weights.ratio:.2f} ×   {weights.merged / 1e6:.1f} M against {weights.apart / 1e6:.1f} M"
        _label(ax, weights.ratio + 0.05, place, text, va="center", fontsize=9)
    ax.axvline(1, color=COLORS["absorb"], linewidth=2)
    ax.set_yticks(range(len(models)), list(models))
    ax.set_ylim(len(models) - 0.4, -0.6)
    ax.grid(visible=False)
    ax.set_xlim(0, 5.2)
    ax.set_xlabel("elements merged ÷ elements apart   (blue line: no difference)")
    return fig


def family_bars(schemes: Sequence[Scheme], title: str = ""):
    """Cache, different keys and multiply-adds of each scheme, side by side. A Figure."""
    names = [scheme.name for scheme in schemes]
    panels = (
        ("cache, bytes a token", "log", [scheme.cache_bytes for scheme in schemes]),
        ("different keys a token", "log", [scheme.distinct_keys for scheme in schemes]),
        ("multiply-adds a cached token", "linear", [scheme.decode_macs(1) for scheme in schemes]),
    )
    fig = new_figure(9.0, 3.0, alt=f"{title}: cache, different keys and multiply-adds of {', '.join(names)}")
    for ax, (label, scale, values) in zip(fig.subplots(1, 3), panels, strict=True):
        ax.bar(names, values, color=[SCHEME_COLORS[name] for name in names], width=0.65)
        for place, value in enumerate(values):
            _label(ax, place, value, f"{value:,}", ha="center", va="bottom", fontsize=9)
        ax.set_title(label, loc="left", fontsize=10.5, fontweight="bold")
        ax.set_yscale(scale)
        ax.set_ylim(min(values) * 0.4 if scale == "log" else 0, max(values) * (2 if scale == "log" else 1.12))
        ax.set_yticks([], minor=True)
        ax.set_yticks([])
        ax.set_ylabel(f"{scale} scale", color=COLORS["neutral"])
        ax.grid(visible=False)
    return fig


# Every model's own number is among the steps; four groups divide each number of heads.
HEAD_STEPS = tuple(sorted({8, 16, 32, 64, 128, 192, 256} | {shape.num_heads for shape in MODELS.values()}))
NOPE_STEPS = tuple(sorted({32, 64, 128, 256, 384, 512} | {shape.nope_dim for shape in MODELS.values()}))
KV_GROUPS = 4


def query_width(shape: Model) -> int:
    """What W_UQ reads: the query's latent, or the hidden state in a model that has none."""
    return shape.hidden_dim if shape.q_lora_dim is None else shape.q_lora_dim


def even_nope(shape: Model) -> float:
    """The nope width at which the merged matrix and its two factors have the same number of elements."""
    width = query_width(shape)
    return width * shape.latent_dim / (width + shape.latent_dim)


class HeadsExplorer(Explorer):
    """What more heads do to four caches, and what wider heads do to the merged matrix and to its factors."""

    title = "Cache over the number of heads for MHA, GQA, MQA and MLA; weights merged and apart over nope_dim"
    size = (9.3, 4.3)

    def controls(self):
        return {
            "model": Choice("model", list(MODELS), "DeepSeek-V3"),
            "num_heads": Steps("num_heads", HEAD_STEPS, 128),
            "cached_tokens": Steps("cached tokens", powers_of_two(1024, 131072), 4096),
            "nope_dim": Steps("nope_dim", NOPE_STEPS, 128),
        }

    def follow(self, name, value):
        if name != "model":
            return {}
        return {"num_heads": MODELS[value].num_heads, "nope_dim": MODELS[value].nope_dim}

    def setup(self, fig):
        caches, weights = fig.subplots(1, 2)
        view = SimpleNamespace(caches=caches, weights=weights, curves={}, points={})
        for ax, steps, colors in ((caches, HEAD_STEPS, SCHEME_COLORS), (weights, NOPE_STEPS, WEIGHT_COLORS)):
            for name, color in colors.items():
                (view.curves[name],) = ax.plot(steps, steps, color=color, gid=name, label="_hidden")
                (view.points[name],) = ax.plot([], [], "o", color=color, label="_hidden")
                ax.plot([], [], "o-", color=color, label=name)
        (view.even,) = weights.plot([], [], "D", color=COLORS["ink"], gid="even", label="equal")
        view.own_heads, view.own_nope = (
            ax.axvline(1, color=COLORS["neutral"], linewidth=1.0, linestyle=":") for ax in (caches, weights)
        )
        view.cache_labels, view.weight_labels = (
            ax.legend(loc="upper left", frameon=True, edgecolor="none").get_texts() for ax in (caches, weights)
        )
        log_axes(caches)
        caches.set(ylabel="MiB in one layer", xticks=[8, 16, 32, 64, 128, 256], xlim=(6.7, 305))
        plain_ticks(caches.xaxis)
        plain_ticks(caches.yaxis)
        weights.locator_params(nbins=5)
        weights.set(ylabel="M elements in one layer", xlim=(0, 1.04 * NOPE_STEPS[-1]))
        return view

    def update(self, view, model: str, num_heads: int, cached_tokens: int, nope_dim: int) -> None:
        """``model`` is a published name; the widths that no control sets are that model's."""
        shape = replace(MODELS[model], num_heads=num_heads, nope_dim=nope_dim)
        self._update_caches(view, shape, cached_tokens)
        self._update_weights(view, shape)

    def _update_caches(self, view, shape: Model, cached_tokens: int) -> None:
        by_heads = [family(replace(shape, num_heads=h), KV_GROUPS) for h in HEAD_STEPS]
        for i, (scheme, label) in enumerate(zip(family(shape, KV_GROUPS), view.cache_labels, strict=True)):
            sizes = [schemes[i].cache_bytes * cached_tokens / 2**20 for schemes in by_heads]
            size = scheme.cache_bytes * cached_tokens / 2**20
            view.curves[scheme.name].set_ydata(sizes)
            view.points[scheme.name].set_data([shape.num_heads], [size])
            keys = f"{scheme.distinct_keys} key{'s' if scheme.distinct_keys > 1 else ''}"
            label.set_text(f"{scheme.name}  {size:,.4g} MiB, {keys}")
        own = MODELS[shape.name].num_heads
        view.own_heads.set_xdata([own, own])
        view.caches.set_xlabel(f"num_heads (dotted: {own}, as published)")
        view.caches.set_title(f"cache of {cached_tokens:,} tokens", fontsize=10.5)
        drawn = np.concatenate([view.curves[name].get_ydata() for name in SCHEME_COLORS])
        low, high = drawn.min(), drawn.max()
        view.caches.set_ylim(low * 0.6, high * (high / low) ** 0.6)

    def _update_weights(self, view, shape: Model) -> None:
        width, own = query_width(shape), MODELS[shape.name].nope_dim
        by_width = [merged_query_key_elements(width, shape.latent_dim, n, shape.num_heads) for n in NOPE_STEPS]
        chosen = merged_query_key_elements(width, shape.latent_dim, shape.nope_dim, shape.num_heads)
        even = even_nope(shape)
        for name in WEIGHT_COLORS:
            view.curves[name].set_ydata([getattr(row, name) / 1e6 for row in by_width])
            view.points[name].set_data([shape.nope_dim], [getattr(chosen, name) / 1e6])
        view.even.set_data([even], [chosen.merged / 1e6])
        for label, text in zip(
            view.weight_labels,
            (
                f"merged  {chosen.merged / 1e6:,.1f} M, {chosen.ratio:.2f} ×",
                f"apart  {chosen.apart / 1e6:,.1f} M",
                f"equal at {even:.0f}",
            ),
            strict=True,
        ):
            label.set_text(text)
        view.own_nope.set_xdata([own, own])
        reads = "hidden_dim" if shape.q_lora_dim is None else "q_lora_dim"
        view.weights.set_title(f"W_UQ·W_UK, from {reads} {width:,}", fontsize=10.5)
        view.weights.set(ylim=(0, 1.45e-6 * max(by_width[-1])), xlabel=f"nope_dim (dotted: {own}, as published)")
