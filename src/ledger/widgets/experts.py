"""Chapter 9's pictures: schedules as two lanes, and the explorer of two-batch overlap."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

from ledger.account.experts import V3_DENSE_LAYERS, Span, Stages, finish, layer_stages, timeline
from ledger.machines import machine
from ledger.models import model
from ledger.widgets.base import COLORS, Choice, Explorer, Steps, new_figure, plain_ticks, powers_of_two

#: Where each lane stands in a schedule, from the top.
LANES = {"compute": 0, "communication": 1}
WHOLE, HALVES = COLORS["predict"], (COLORS["absorb"], COLORS["materialize"])


def schedule_picture(schedules: Mapping[str, Sequence[Span]], unit: str = "seconds"):
    """Each of ``schedules`` as two lanes of labelled blocks under its name, all on one scale of time; a Figure.

    A block of a lone batch is numbered by its stage, one of two half batches is A1, B1, A2 and so on.
    """
    ends = {name: finish(spans) for name, spans in schedules.items()}
    told = "; ".join(f"{name}: {end:.4g} {unit}" for name, end in ends.items())
    fig = new_figure(8.6, 0.35 + 1.25 * len(schedules), alt=f"Compute and communication over time. {told}")
    axes = fig.subplots(len(schedules), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (name, spans) in zip(axes, schedules.items(), strict=True):
        batches = 1 + max((span.batch for span in spans), default=0)
        for span in spans:
            color = HALVES[span.batch] if batches > 1 else WHOLE
            place, width = LANES[span.lane], span.stop - span.start
            ax.barh(place, width, left=span.start, height=0.8, color=color, edgecolor=COLORS["paper"], linewidth=1.5)
            label = f"{'AB'[span.batch] if batches > 1 else ''}{span.stage + 1}"
            if width > 0.03 * max(ends.values()):
                middle = span.start + width / 2
                ax.text(middle, place, label, ha="center", va="center", color=COLORS["paper"], fontsize=9)
        ax.set_yticks(list(LANES.values()), list(LANES))
        ax.set(ylim=(1.6, -0.6), xlim=(0, 1.02 * max(ends.values())), title=f"{name}: {ends[name]:.4g} {unit}")
        ax.grid(visible=False, axis="y")
    axes[-1].set_xlabel(unit)
    return fig


MODEL, MACHINE = model("DeepSeek-V3"), machine("H200")
MOE_LAYERS = MODEL.num_layers - V3_DENSE_LAYERS
#: Layers that the explorer draws.
SHOWN = 3
TOKENS = powers_of_two(2, 1024)
READ_AGAIN, HALF = "reads all weights", "takes half the time"


def schedules(
    tokens: int, bandwidth: int, floor: int, cached_tokens: int, num_ranks: int, halves: str, layers: int
) -> tuple[list[Span], list[Span]]:
    """The schedules of one batch and of two half batches of DeepSeek-V3's decode on H200 GPUs; ``bandwidth`` in GB/s,
    ``floor`` in µs. ``halves`` says what a stage of a half batch does."""

    def stages(of_tokens: float) -> Stages:
        return layer_stages(of_tokens, cached_tokens, MODEL, MACHINE, num_ranks, 1e9 * bandwidth, floor / 1e6)

    whole = stages(tokens)
    half = stages(tokens / 2) if halves == READ_AGAIN else Stages(*(seconds / 2 for seconds in whole))
    one = timeline(whole.compute * layers, whole.communication * layers)
    return one, timeline(half.compute * layers, half.communication * layers, batches=2)


class OverlapExplorer(Explorer):
    """When each lane works, for one batch and for two half batches, and how much faster the two are by batch size."""

    title = "Compute and communication of three layers over time, as one batch and as two half batches"
    size = (9.3, 4.3)

    def controls(self):
        return {
            "tokens": Steps("tokens a GPU", TOKENS, 64),
            "bandwidth": Steps("GB/s of a GPU's network", [25, 50, 100, 200, 300, 400, 900], 50),
            "floor": Steps("floor of both ways, µs", [0, 10, 20, 50, 100, 200], 20),
            "cached_tokens": Steps("cached tokens a request", powers_of_two(1024, 65536), 4096),
            "num_ranks": Steps("GPUs that share the experts", powers_of_two(8, 256), 128),
            "halves": Choice("a half batch's stage", [READ_AGAIN, HALF], READ_AGAIN),
        }

    def setup(self, fig):
        from matplotlib.colors import to_rgb

        grid = fig.add_gridspec(2, 2, width_ratios=[1.75, 1])
        view = SimpleNamespace(lanes=[], bars=[])
        for row, batches in enumerate((1, 2)):
            ax = fig.add_subplot(grid[row, 0])
            places, colors = [], []
            for stage in range(2 * SHOWN):
                for batch in range(batches):
                    color = to_rgb(WHOLE if batches == 1 else HALVES[batch])
                    places += LANES.values()
                    colors += 2 * [tuple(0.5 + channel / 2 for channel in color) if stage % 2 else color]
            look = dict(height=0.8, edgecolor=COLORS["paper"], linewidth=0.7)
            view.bars.append(ax.barh(places, [1.0] * len(places), color=colors, **look))
            ax.set_yticks(list(LANES.values()), list(LANES))
            ax.set(ylim=(1.6, -0.6))
            ax.grid(visible=False, axis="y")
            ax.locator_params(axis="x", nbins=6)
            view.lanes.append(ax)
        view.lanes[0].tick_params(labelbottom=False)
        view.lanes[1].set_xlabel("µs of three layers. Full: attention, dispatch; pale: experts, combine", fontsize=9)
        gain = view.gain = fig.add_subplot(grid[:, 1])
        gain.axhline(1, color=COLORS["ink"], linewidth=1)
        (view.line,) = gain.plot([], [], color=COLORS["neutral"], gid="gain")
        (view.dot,) = gain.plot([], [], "o", color=COLORS["measure"], markersize=9, gid="chosen")
        gain.set(xscale="log", xlim=(TOKENS[0] / 1.3, TOKENS[-1] * 1.3), ylim=(0.45, 2.05))
        gain.set(xlabel="tokens a GPU", ylabel="time of one batch ÷ of two halves")
        gain.set_xticks([2, 8, 32, 128, 512])
        gain.locator_params(axis="y", nbins=5)
        plain_ticks(gain.xaxis)
        return view

    def update(
        self, view, tokens: int, bandwidth: int, floor: int, cached_tokens: int, num_ranks: int, halves: str
    ) -> None:
        """``tokens`` is one of ``TOKENS``, ``halves`` one of ``READ_AGAIN`` and ``HALF``."""
        setting = (bandwidth, floor, cached_tokens, num_ranks, halves)
        shown = schedules(tokens, *setting, layers=SHOWN)
        steps = [[finish(spans) for spans in schedules(each, *setting, layers=MOE_LAYERS)] for each in TOKENS]
        gains = [one / two for one, two in steps]
        chosen = TOKENS.index(tokens)
        end = 1e6 * max(map(finish, shown))
        names = ("one batch", "halves A (blue) and B (orange)")
        for ax, bars, spans, name, step in zip(view.lanes, view.bars, shown, names, steps[chosen], strict=True):
            for bar, span in zip(bars, spans, strict=True):
                bar.set_x(1e6 * span.start)
                bar.set_width(1e6 * (span.stop - span.start))
            ax.set_xlim(0, 1.01 * end)
            ax.set_title(f"{name}: {1e3 * step:.1f} ms for {MOE_LAYERS} layers", fontsize=10.5)
        view.line.set_data(TOKENS, gains)
        view.dot.set_data([tokens], [gains[chosen]])
        view.gain.set_title(f"halves: {gains[chosen]:.2f} times as fast", fontsize=10.5)
