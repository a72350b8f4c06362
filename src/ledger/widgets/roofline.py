"""Pictures and the explorer of the lesson on the decode kernel: pages in a pool, and the roofline with decode on it."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

from ledger.account.cache import CACHE_FORMATS, cache_bytes_per_token
from ledger.account.roofline import Bound, Work, decode_work, roofline
from ledger.machines import MACHINES, Machine
from ledger.models import model
from ledger.published import reached_h200
from ledger.widgets.base import COLORS, Choice, Explorer, Steps, log_axes, new_figure, plain_ticks, powers_of_two

BOUND_COLORS = {"memory": COLORS["latent"], "compute": COLORS["materialize"]}
REQUEST_COLORS = (COLORS["absorb"], COLORS["materialize"], COLORS["latent"], COLORS["rope"])


def page_pool(tables: Mapping[str, Sequence[int]], lengths: Sequence[int], num_pages: int, page: int):
    """Block tables above, the pool of pages below, each request in its colour and each slot a small box. A Figure.

    ``tables`` has the page numbers of each request by its name, in the order of its tokens; ``lengths`` its tokens.
    """
    from matplotlib.patches import Rectangle

    slot, gap, row = 0.21, 0.16, 0.36
    pitch = page * slot + gap
    left = 1.6
    width = left + max(num_pages * pitch, 4.9)
    head = 0.28
    top = 0.1 + head + row * len(tables)
    height = top + 1.25
    alt = f"Block tables of {len(tables)} requests that point into a pool of {num_pages} pages of {page} tokens"
    fig = new_figure(width, height, alt=alt)
    fig.set_layout_engine("none")
    ax = fig.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    ax.set_axis_off()

    def box(x: float, y: float, wide: float, high: float, color: str | None) -> None:
        look = dict(facecolor=color or COLORS["paper"], alpha=0.3 if color else 1.0, linewidth=0)
        ax.add_patch(Rectangle((x, y), wide, high, **look))
        ax.add_patch(Rectangle((x, y), wide, high, fill=False, edgecolor=color or COLORS["neutral"], linewidth=1.0))

    owners = {}
    ax.text(left, 0.17, "block table: the request's pages, in the order of its tokens", va="center", fontsize=8.5)
    for place, ((name, table), length, color) in enumerate(zip(tables.items(), lengths, REQUEST_COLORS, strict=False)):
        y = 0.05 + head + row * place
        ax.text(left - 0.1, y + 0.13, f"{name}, {length} tokens", ha="right", va="center", fontsize=9)
        for entry, number in enumerate(table):
            box(left + 0.34 * entry, y, 0.3, 0.26, color)
            ax.text(left + 0.34 * entry + 0.15, y + 0.13, f"{number}", ha="center", va="center", fontsize=9.5)
            owners[number] = color, entry * page, length
    ax.text(left - 0.1, top + 0.53, "pool of pages", ha="right", va="center", fontsize=9)
    for number in range(num_pages):
        x, (color, first, length) = left + number * pitch, owners.get(number, (None, 0, 0))
        for at in range(page):
            box(x + at * slot, top + 0.4, slot, 0.26, color if first + at < length else None)
            if first + at < length:
                ax.text(x + (at + 0.5) * slot, top + 0.53, f"{first + at}", ha="center", va="center", fontsize=7.5)
        ax.text(x + page * slot / 2, top + 0.27, f"page {number}", ha="center", va="center", fontsize=8.5)
    told = "numbers in slots: the token of its request. An empty slot may hold anything."
    ax.text(left, top + 0.95, told, va="center", fontsize=8.5, color=COLORS["neutral"])
    return fig


DEVICES: dict[str, Machine] = {m.name: m for m in (*MACHINES.values(), reached_h200())}
HEAD_STEPS = (1, 8, 16, 32, 64, 96, 128)
MOST_NEW = 4
INTENSITIES = (1.0, 4000.0)


def decode_bound(machine: str, num_heads: int, new_tokens: int, cached_tokens: int, cache_format: str):
    """(Work, Bound) of a decode step in bf16 at DeepSeek-V3's widths on one of ``DEVICES``."""
    v3 = model("DeepSeek-V3")
    entry = cache_bytes_per_token(v3, cache_format)
    work = decode_work(cached_tokens, num_heads, new_tokens, v3.latent_dim, v3.rope_dim, entry)
    return work, roofline(work.flops, work.bytes, DEVICES[machine], "bf16")


class RooflineExplorer(Explorer):
    """Where a decode step stands on a machine's roofline, its least time, and what one more new token would cost."""

    title = "A decode step on a machine's roofline, and its least time for one to five new tokens a request"
    size = (9.3, 4.3)

    def controls(self):
        return {
            "machine": Choice("GPU", list(DEVICES), "H200"),
            "cache_format": Choice("cache", list(CACHE_FORMATS), "bf16_mla"),
            "num_heads": Steps("heads on the GPU", HEAD_STEPS, 16),
            "new_tokens": Steps("new tokens a request", range(1, MOST_NEW + 1), 1),
            "cached_tokens": Steps("cached tokens, all requests", powers_of_two(1 << 16, 1 << 24), 1 << 22),
        }

    def setup(self, fig):
        roof, times = fig.subplots(1, 2)
        view = SimpleNamespace(roof=roof, times=times)
        (view.line,) = roof.plot([], [], color=COLORS["ink"], gid="roof")
        (view.ridge,) = roof.plot([], [], ":", color=COLORS["neutral"], linewidth=1.2)
        look = dict(marker="o", linestyle="", markersize=9, color=COLORS["predict"])
        (view.chosen,) = roof.plot([], [], **look, gid="chosen", label="chosen")
        (view.next,) = roof.plot([], [], **look, fillstyle="none", gid="next", label="one token more")
        view.labels = roof.legend(loc="upper left").get_texts()
        log_axes(roof)
        roof.set(xlim=INTENSITIES, ylim=(1, 9000), xlabel="FLOP for each byte of the cache", ylabel="TFLOP/s")
        plain_ticks(roof.xaxis)
        plain_ticks(roof.yaxis)
        places = range(1, MOST_NEW + 2)
        view.bars = times.bar(places, [1] * len(places), width=0.6, color=COLORS["neutral"])
        (view.memory,) = times.plot([], [], "--", color=BOUND_COLORS["memory"], gid="memory", label="memory")
        (view.compute,) = times.plot([], [], "--", color=BOUND_COLORS["compute"], gid="compute", label="arithmetic")
        times.legend(loc="upper left")
        times.set(xlabel="new tokens a request", ylabel="least time, µs", xlim=(0.5, MOST_NEW + 1.5))
        times.set_xticks(list(places))
        times.locator_params(axis="y", nbins=5)
        plain_ticks(times.yaxis)
        times.grid(visible=False, axis="x")
        return view

    def update(
        self, view, machine: str, cache_format: str, num_heads: int, new_tokens: int, cached_tokens: int
    ) -> None:
        """``machine`` is one of ``DEVICES``, ``cached_tokens`` those of all requests together."""
        steps = [
            decode_bound(machine, num_heads, tokens, cached_tokens, cache_format) for tokens in range(1, MOST_NEW + 2)
        ]
        self._update_roof(view, DEVICES[machine], steps[new_tokens - 1], steps[new_tokens])
        bounds = [bound for _, bound in steps]
        for tokens, (bar, bound) in enumerate(zip(view.bars, bounds, strict=True), 1):
            bar.set_height(1e6 * bound.seconds)
            bar.set_facecolor(BOUND_COLORS[bound.name])
            bar.set_alpha(0.85 if tokens == new_tokens else 0.3)
        places = range(1, MOST_NEW + 2)
        view.memory.set_data(places, [1e6 * bound.memory for bound in bounds])
        view.compute.set_data(places, [1e6 * bound.arithmetic for bound in bounds])
        view.times.set_ylim(0, 1.3e6 * max(bound.seconds for bound in bounds))
        now, then = bounds[new_tokens - 1], bounds[new_tokens]
        view.times.set_title(
            f"{1e6 * now.seconds:,.4g} µs, one token more: +{then.seconds / now.seconds - 1:.0%}", fontsize=10.5
        )

    def _update_roof(self, view, machine: Machine, now: tuple[Work, Bound], then: tuple[Work, Bound]) -> None:
        ridge, best = machine.ridge("bf16"), machine.flops["bf16"] / 1e12
        low, high = INTENSITIES
        view.line.set_data([low, ridge, high], [low * machine.bandwidth / 1e12, best, best])
        view.ridge.set_data([ridge, ridge], [1, best])
        for artist, label, (work, bound) in zip((view.chosen, view.next), view.labels, (now, then), strict=True):
            artist.set_data([work.intensity], [work.flops / bound.seconds / 1e12])
            label.set_text(f"{artist.get_label()}: {work.intensity:,.0f} FLOP/B")
        view.roof.set_title(f"{machine.name}: {now[1].name}-bound, ridge {ridge:.0f} FLOP/B", fontsize=10.5)
