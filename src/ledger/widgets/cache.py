"""Chapter 6's pictures: the bytes of an entry drawn to scale, which path engines take, and the capacity explorer."""

from collections.abc import Sequence
from types import SimpleNamespace

from ledger.account.cache import (
    CACHE_FORMATS,
    ENGINE_RULES,
    entry_bytes,
    full_bytes_per_token,
    indexer_bytes_per_token,
    model_bytes_per_token,
    requests_that_fit,
)
from ledger.account.crossover import absorb_macs, crossover_new_tokens, materialize_macs, widths
from ledger.machines import MACHINES
from ledger.models import MODELS, Model
from ledger.widgets.base import COLORS, Choice, Explorer, Steps, new_figure, plain_ticks, powers_of_two

#: The parts of a token's bytes, in the order in which they are drawn, with their colours.
PARTS = {
    "latent": COLORS["latent"],
    "scales": COLORS["ink"],
    "rope": COLORS["rope"],
    "indexer's keys": COLORS["value"],
}
FULL = "full bf16"
NAMES = (FULL, *CACHE_FORMATS)


def entry_strips(model: Model):
    """The three layouts of an entry of ``model`` as strips of bytes, one scale for all; a Figure."""
    layouts = [entry_bytes(model, cache_format) for cache_format in CACHE_FORMATS]
    parts = "; ".join(f"{name} {each.total} bytes" for name, each in zip(CACHE_FORMATS, layouts, strict=True))
    fig = new_figure(8.6, 2.6, alt=f"The bytes of one cache entry of {model.name} to scale: {parts}")
    ax = fig.subplots()
    for place, layout in enumerate(layouts):
        start = 0
        for (name, color), size in zip(PARTS.items(), layout, strict=False):
            ax.barh(place, size, left=start, height=0.62, color=color, label=name if place == 1 else "_hidden")
            if size > 0.04 * layouts[0].total:
                words = f"{name} {size:,}" if size > 0.12 * layouts[0].total else f"{size:,}"
                ax.text(start + size / 2, place, words, ha="center", va="center", color=COLORS["paper"], fontsize=9)
            start += size
        ax.text(start + 8, place, f"{layout.total:,} bytes", va="center", fontsize=10, fontweight="bold")
    ax.set_yticks(range(len(layouts)), CACHE_FORMATS)
    ax.set(xlim=(0, 1.16 * layouts[0].total), ylim=(2.6, -0.6), xlabel="bytes of one token in one layer")
    ax.grid(False, axis="y")
    ax.legend(loc="lower right")
    return fig


def overpay(pick, model: Model, new_tokens: int, cached_tokens: int) -> float:
    """How many times the multiply-adds of the cheaper path the path costs that ``pick(new_tokens, cached_tokens)``
    chooses."""
    sizes = widths(model)
    cost = {
        "absorb": absorb_macs(new_tokens, cached_tokens, **sizes)["total"],
        "materialize": materialize_macs(new_tokens, cached_tokens, **sizes)["total"],
    }
    return cost[pick(new_tokens, cached_tokens)] / min(cost.values())


def overpay_lines(model: Model, cached: Sequence[int]):
    """What each engine's rule costs over the cheaper path, for new tokens from 1 to 8,192, one axes for each of the
    lengths ``cached``; a Figure."""
    from matplotlib.ticker import FixedLocator, NullFormatter

    new_tokens = sorted({round(2 ** (k / 8)) for k in range(8 * 13 + 1)} | {r + d for r in (128, 512) for d in (0, 1)})
    title = f"Multiply-adds of the path that an engine picks over those of the cheaper one, {model.name}"
    fig = new_figure(9.2, 3.9, alt=title)
    axes = fig.subplots(1, len(cached), sharey=True, squeeze=False)[0]
    colors = (COLORS["value"], COLORS["rope"], COLORS["latent"], COLORS["ink"])
    for ax, tokens in zip(axes, cached, strict=True):
        for rule, color, dash in zip(ENGINE_RULES, colors, ("-", "--", "-.", ":"), strict=True):
            ratios = [overpay(rule.pick, model, new, tokens) for new in new_tokens]
            ax.plot(new_tokens, ratios, dash, color=color, label=rule.name, gid=rule.name, drawstyle="steps-post")
        ax.set(xscale="log", yscale="log", xlabel="new tokens", title=f"{tokens:,} cached tokens", ylim=(0.93, 110))
        ax.xaxis.set_major_locator(FixedLocator([1, 16, 128, 512, 4096]))
        equal = crossover_new_tokens(tokens, model.latent_dim, model.nope_dim, model.value_dim)
        ax.axvline(equal, color=COLORS["neutral"], linewidth=1.0, linestyle=":", gid="equal")
        ax.text(equal * 0.9, 100, f"equal at {equal:.1f}", ha="right", va="top", fontsize=9)
        plain_ticks(ax.xaxis)
        plain_ticks(ax.yaxis)
        ax.yaxis.set_minor_formatter(NullFormatter())
    axes[0].set(ylabel="times the cheaper path")
    axes[0].legend(loc="upper right", bbox_to_anchor=(1.03, 0.93))
    return fig


class CacheExplorer(Explorer):
    """What a token takes in each format, part by part, and how many requests a GPU then holds: two models at a time."""

    title = "Bytes of a cached token and requests that fit on a GPU, by format, of two models side by side"
    size = (8.6, 4.5)
    #: How far above and below a format's place its two models stand.
    OFFSETS = (-0.2, 0.2)

    def controls(self):
        return {
            "model": Choice("model", list(MODELS), "DeepSeek-V3"),
            "beside": Choice("beside it", list(MODELS), "GLM-5.2"),
            "gpu": Choice("GPU", list(MACHINES), "H200"),
            "free_percent": Steps("% of memory for cache", [5, 10, 20, 30, 40, 50, 60, 70, 80, 90], 30),
            "cached_tokens": Steps("tokens a request", powers_of_two(1024, 1 << 20), 8192),
            "tensor_parallel": Steps("tensor parallel", [1, 2, 4, 8, 16], 8),
        }

    def setup(self, fig):
        sizes, fits = fig.subplots(1, 2, width_ratios=[1.15, 1])
        view = SimpleNamespace(sizes=sizes, fits=fits, bars=[], totals=[], dots=[], counts=[])
        paper, ink = COLORS["paper"], COLORS["ink"]
        for offset, hatch, fill in zip(self.OFFSETS, ("", "////"), (ink, paper), strict=True):
            places = [place + offset for place in range(len(CACHE_FORMATS))]
            look = dict(height=0.34, hatch=hatch, edgecolor=paper, linewidth=0)
            view.bars.append(
                {
                    name: sizes.barh(places, [1] * len(places), color=color, label=name if not hatch else "_", **look)
                    for name, color in PARTS.items()
                }
            )
            view.totals.append([sizes.text(1, place, "", va="center", fontsize=10) for place in places])
            places = [place + offset for place in range(len(NAMES))]
            view.dots.append(
                fits.plot([1] * len(NAMES), places, "o", color=ink, markerfacecolor=fill, markersize=7, clip_on=False)[
                    0
                ]
            )
            view.counts.append([fits.text(1, place, "", va="center", fontsize=10) for place in places])
        sizes.set_yticks(range(len(CACHE_FORMATS)), CACHE_FORMATS)
        sizes.set(ylim=(2.55, -0.55), xlabel="kB a token in all layers, on each GPU")
        sizes.grid(False, axis="y")
        sizes.locator_params(axis="x", nbins=5)
        looks = dict(ncols=4, columnspacing=0.9, handlelength=1.0, fontsize=10)
        # It may reach over the other panel's labels, which stand lower: the layout leaves it out, and leaves it room.
        sizes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), **looks).set_in_layout(False)
        fits.set_yticks(range(len(NAMES)), NAMES)
        fits.set(xscale="log", xlim=(0.08, 3e5), ylim=(3.6, -0.6))
        fits.set_xticks([1, 100, 10000])
        plain_ticks(fits.xaxis)
        for ax in (sizes, fits):
            ax.tick_params(labelsize=10)
        view.heading = fig.text(0.012, 0.985, "", va="top", fontsize=10, fontweight="bold")
        fig.get_layout_engine().set(rect=(0, 0, 1, 0.86))
        return view

    def update(
        self, view, model: str, beside: str, gpu: str, free_percent: int, cached_tokens: int, tensor_parallel: int
    ) -> None:
        """``model``, ``beside`` and ``gpu`` are published names, ``free_percent`` of the GPU's memory is for the cache,
        each request has ``cached_tokens``, and ``tensor_parallel`` GPUs share the heads."""
        free_bytes = MACHINES[gpu].memory * free_percent / 100
        shapes = MODELS[model], MODELS[beside]
        most = max(model_bytes_per_token(shape, name) for shape in shapes for name in CACHE_FORMATS) / 1e3
        view.sizes.set_xlim(0, 1.15 * most)
        for shape, bars, totals in zip(shapes, view.bars, view.totals, strict=True):
            _stack(bars, totals, shape, gap=0.012 * most)
        for shape, dots, labels in zip(shapes, view.dots, view.counts, strict=True):
            full = shape.num_mla_layers * full_bytes_per_token(shape, tensor_parallel)
            counts = [
                int(free_bytes // (full * cached_tokens)),
                *(requests_that_fit(free_bytes, cached_tokens, shape, name, tensor_parallel) for name in CACHE_FORMATS),
            ]
            dots.set_xdata([max(count, 0.1) for count in counts])
            for label, count in zip(labels, counts, strict=True):
                label.set_text(f"{count:,}")
                label.set_x(max(count, 0.1) * 1.6)
        view.fits.set_xlabel(f"requests of {cached_tokens:,} tokens\nin {free_bytes / 1e9:,.1f} GB")
        heads = f"{tensor_parallel} GPUs share the heads" if tensor_parallel > 1 else "one GPU has all heads"
        view.heading.set_text(f"{model} (filled), {beside} (hatched, hollow): {gpu}, {heads}")


def _stack(bars, totals, shape: Model, gap: float) -> None:
    """Give one model's stacked bars its bytes in all layers, in kB, and their labels the sums, ``gap`` to the right."""
    keys = shape.num_indexer_layers * indexer_bytes_per_token(shape)
    for place, name in enumerate(CACHE_FORMATS):
        start = 0.0
        each = [shape.num_mla_layers * part for part in entry_bytes(shape, name)]
        for part, size in zip(bars.values(), [*each, keys], strict=True):
            part[place].set_x(start)
            part[place].set_width(size / 1e3)
            start += size / 1e3
        totals[place].set_text(f"{start:,.1f}")
        totals[place].set_x(start + gap)
