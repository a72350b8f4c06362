"""Pictures of the lesson on what drafts gain: the map of gains, and the number of drafts under a load that changes."""

import math
from collections.abc import Sequence
from types import SimpleNamespace

from ledger.account.mtp import best_draft_count, layer_times, mtp_speedup, refined, setup_for, step_seconds
from ledger.machines import Machine, machine
from ledger.models import model
from ledger.published import as_reached, layer_floor
from ledger.setups import ROUNDED, Setup
from ledger.widgets.base import COLORS, Choice, Explorer, Steps, new_figure, powers_of_two

DEVICES = ("H100", "H200", "B200", "H800")
REQUESTS = powers_of_two(1, 256)
CACHED = powers_of_two(1024, 131_072)
#: The loads of the lesson's table: (cached tokens, requests).
MARKED = ((4096, 16), (4096, 64), (16384, 16), (16384, 64))
MARK_COLORS = (COLORS["absorb"], COLORS["materialize"], COLORS["latent"], COLORS["rope"])
#: A sign for what a layer of the verifying step waits for, by the plain account: the refined one has more parts.
BOUNDS = {"memory": ("o", "memory"), "compute": ("s", "arithmetic"), "network": ("^", "network")}
MOST_DRAFTS = 4
SLOWEST, FASTEST = 0.5, 2.0
#: The plain account takes round numbers and datasheets; the refined one what kernels reach, and what is left out.
ACCOUNTS = ("plain", "refined")


def acceptances(first: int, fall: int) -> list[float]:
    """Conditional acceptances of ``MOST_DRAFTS`` drafts: ``first`` percent, and ``fall`` points less for each next."""
    return [max(first - fall * place, 0) / 100 for place in range(MOST_DRAFTS)]


def account(kind: str, name: str):
    """(speedup(requests, drafts, cached, acceptance), step(requests, drafts, cached), machine) of DeepSeek-V3 with its
    experts on 128 GPUs of the machine called ``name``."""
    if kind == "plain":
        gpu = machine(name)
        return (
            lambda requests, k, cached, acceptance: mtp_speedup(requests, k, cached, acceptance, gpu, ROUNDED),
            lambda requests, k, cached: step_seconds(requests, k, cached, gpu, ROUNDED),
            gpu,
        )
    v3, gpu = model("DeepSeek-V3"), as_reached(machine(name))
    full = refined(v3, setup_for(v3, 128), 128, layer_floor())
    return (
        lambda requests, k, cached, acceptance: full.speedup(requests, k, cached, acceptance, gpu),
        lambda requests, k, cached: full.step(requests, k, cached, gpu),
        gpu,
    )


def held_bytes(requests: float, cached_tokens: float, setup: Setup) -> float:
    """Bytes of the weights of all layers and of the caches of ``requests`` on one GPU, without embedding and head."""
    weights = setup.attention_bytes + setup.local_experts * setup.expert_bytes
    return setup.layers * (weights + requests * cached_tokens * setup.cache_bytes_per_token)


class SpeedMap(Explorer):
    """Where drafts gain: requests of a GPU across, cached tokens of each upwards, the gain as colour. Hatched cells
    are more than the GPU's memory holds."""

    title = "Gain of drafts over requests and cached tokens, what each load waits for, and the gain by number of drafts"
    size = (9.3, 4.9)

    def controls(self):
        return {
            "machine": Choice("GPU", list(DEVICES), "H100"),
            "num_draft_tokens": Steps("drafts", range(1, MOST_DRAFTS + 1), 1),
            "first": Steps("first draft accepted, %", range(50, 100, 5), 85),
            "fall": Steps("each next, points less", range(0, 25, 5), 10),
            "kind": Choice("account", list(ACCOUNTS), "plain"),
        }

    def setup(self, fig):
        from matplotlib.colors import TwoSlopeNorm

        grid, lines = fig.subplots(1, 2, width_ratios=(1.55, 1))
        view = SimpleNamespace(grid=grid, lines=lines)
        edges = [[place - 0.5 for place in range(len(steps) + 1)] for steps in (REQUESTS, CACHED)]
        ones = [[1.0] * len(REQUESTS) for _ in CACHED]
        view.mesh = grid.pcolormesh(*edges, ones, cmap="PuOr", norm=TwoSlopeNorm(1.0, SLOWEST, FASTEST))
        look = dict(facecolor="none", edgecolor=COLORS["neutral"], hatch="////", linewidth=0, width=1)
        view.large = grid.bar(range(len(REQUESTS)), [1] * len(REQUESTS), label="exceeds the GPU's memory", **look)
        bar = fig.colorbar(view.mesh, ax=grid, pad=0.02, ticks=[0.5, 1, 2])
        bar.ax.set_yticklabels(["½ ×", "1 ×", "2 ×"])
        view.signs = {}
        for bound, (sign, name) in BOUNDS.items():
            (view.signs[bound],) = grid.plot(
                [],
                [],
                sign,
                color=COLORS["ink"],
                markersize=5,
                markeredgecolor=COLORS["paper"],
                label=f"waits for {name}",
                gid=bound,
            )
        for (cached, requests), color in zip(MARKED, MARK_COLORS, strict=True):
            place = REQUESTS.index(requests), CACHED.index(cached)
            grid.plot(*place, "o", color=color, markersize=17, fillstyle="none", markeredgewidth=2.4)
        grid.set_xticks(range(0, len(REQUESTS), 2), [f"{n}" for n in REQUESTS[::2]])
        grid.set_yticks(range(0, len(CACHED), 2), [f"{n // 1024}K" for n in CACHED[::2]])
        grid.set(xlabel="requests of a GPU", ylabel="cached tokens of each")
        grid.grid(visible=False)
        grid.set(xlim=(edges[0][0], edges[0][-1]), ylim=(edges[1][0], edges[1][-1]))
        place = dict(loc="lower center", bbox_to_anchor=(0.5, -0.3), ncols=2)
        handles = [*view.signs.values(), view.large]
        view.legend = grid.legend(handles=handles, **place, handletextpad=0.4, columnspacing=1.2, title_fontsize=9)
        view.gains = []
        for (cached, requests), color in zip(MARKED, MARK_COLORS, strict=True):
            label = f"{requests} requests at {cached // 1024}K"
            view.gains += lines.plot([], [], "o-", color=color, label=label, gid=label)
        lines.axhline(1, color=COLORS["neutral"], linewidth=1)
        lines.set(xlim=(-0.3, MOST_DRAFTS + 0.3), ylim=(0.4, 2.55), xlabel="drafts", ylabel="gain")
        lines.set_xticks(range(MOST_DRAFTS + 1))
        lines.locator_params(axis="y", nbins=5)
        lines.legend(loc="upper right")
        return view

    def update(self, view, machine: str, num_draft_tokens: int, first: int, fall: int, kind: str) -> None:
        """``first`` and ``fall`` are in percent, ``kind`` is one of ``ACCOUNTS``."""
        speedup, _, gpu = account(kind, machine)
        acceptance = acceptances(first, fall)
        gains = [[speedup(n, num_draft_tokens, cached, acceptance) for n in REQUESTS] for cached in CACHED]
        view.mesh.set_array([[min(max(gain, SLOWEST), FASTEST) for gain in row] for row in gains])
        fitting = []
        for column, (bar, requests) in enumerate(zip(view.large, REQUESTS, strict=True)):
            fit = sum(held_bytes(requests, cached, ROUNDED) <= gpu.memory for cached in CACHED)
            fitting += [row[column] for row in gains[:fit]]
            bar.set(y=fit - 0.5, height=len(CACHED) - fit)
        places = {bound: ([], []) for bound in BOUNDS}
        for row, cached in enumerate(CACHED):
            for column, requests in enumerate(REQUESTS):
                rows = requests * (num_draft_tokens + 1)
                bound = layer_times(requests, rows, cached, gpu, ROUNDED).bound
                places[bound][0].append(column)
                places[bound][1].append(row)
        for bound, place in places.items():
            view.signs[bound].set_data(*place)
        view.legend.set_title("" if kind == "plain" else "signs: parts of the plain account, at reached rates")
        for line, (cached, requests) in zip(view.gains, MARKED, strict=True):
            counts = range(MOST_DRAFTS + 1)
            line.set_data(counts, [speedup(requests, k, cached, acceptance) for k in counts])
        drafts = "1 draft" if num_draft_tokens == 1 else f"{num_draft_tokens} drafts"
        losing = sum(gain < 1 for gain in fitting)
        view.grid.set_title(f"{machine}, {drafts}: slower in {losing} of {len(fitting)} cells that fit", fontsize=10.5)
        taken = ", ".join(f"{100 * p:.0f}" for p in acceptance[:num_draft_tokens])
        view.lines.set_title(f"accepted: {taken} %", fontsize=10.5)


#: Hours of a day for which a number of drafts is chosen.
HOURS = [hour / 2 for hour in range(48)]


def load(peak: int) -> list[int]:
    """Requests of a GPU at ``HOURS``: a sixteenth of ``peak`` at night, most in the evening, and a dip between noon
    and then. Made up."""
    found = []
    for hour in HOURS:
        noon, evening = (math.exp(-(((hour - at) / wide) ** 2)) for at, wide in ((11, 3.2), (20, 2.6)))
        found.append(max(1, round(peak * (1 / 16 + 15 / 16 * min(1.0, 0.75 * noon + evening)))))
    return found


class DraftChooser(Explorer):
    """The number of drafts that gains most as the load of a day changes, and what the day makes of it."""

    title = "Requests of a GPU over a day, the best number of drafts at each hour, and the tokens of the day by policy"
    size = (9.3, 4.6)

    def controls(self):
        return {
            "machine": Choice("GPU", list(DEVICES), "H100"),
            "peak": Steps("requests at the peak", powers_of_two(4, 256), 64),
            "cached_tokens": Steps("cached tokens of each", powers_of_two(1024, 65_536), 4096),
            "first": Steps("first draft accepted, %", range(50, 100, 5), 85),
            "fall": Steps("each next, points less", range(0, 25, 5), 10),
            "kind": Choice("account", list(ACCOUNTS), "plain"),
        }

    def setup(self, fig):
        left, right = fig.subfigures(1, 2, width_ratios=(1.5, 1))
        above, below = left.subplots(2, 1, sharex=True)
        bars = right.subplots()
        view = SimpleNamespace(above=above, below=below, bars=bars)
        (view.load,) = above.step([], [], where="post", color=COLORS["neutral"], linewidth=2, gid="load")
        (view.best,) = below.step([], [], where="post", color=COLORS["predict"], linewidth=2.2, gid="best")
        above.set(ylabel="requests of a GPU", xlim=(0, 24))
        below.set(xlabel="hour", ylabel="best number of drafts", ylim=(-0.3, MOST_DRAFTS + 0.4))
        below.set_yticks(range(MOST_DRAFTS + 1))
        below.set_xticks(range(0, 25, 4))
        above.locator_params(axis="y", nbins=4)
        names = ["never", *(f"always {k}" for k in range(1, MOST_DRAFTS + 1)), "by load"]
        colors = [COLORS["neutral"]] * (len(names) - 1) + [COLORS["predict"]]
        view.policies = bars.barh(names, [1] * len(names), color=colors, height=0.6)
        look = dict(va="center", fontsize=9, fontweight="bold", color=COLORS["paper"])
        view.numbers = [bars.text(0.04, place, "", **look) for place in range(len(names))]
        bars.axvline(1, color=COLORS["ink"], linewidth=1)
        bars.invert_yaxis()
        bars.set(xlim=(0, 2.6), xlabel="tokens of the day; without drafts: 1")
        bars.locator_params(axis="x", nbins=5)
        bars.grid(visible=False, axis="y")
        return view

    def update(self, view, machine: str, peak: int, cached_tokens: int, first: int, fall: int, kind: str) -> None:
        """``first`` and ``fall`` are in percent, ``kind`` is one of ``ACCOUNTS``."""
        requests, (totals, best) = load(peak), day(machine, peak, cached_tokens, acceptances(first, fall), kind)
        view.load.set_data([*HOURS, 24], [*requests, requests[-1]])
        view.above.set_ylim(0, 1.15 * max(requests))
        view.best.set_data([*HOURS, 24], [*best, best[-1]])
        for bar, number, total in zip(view.policies, view.numbers, totals, strict=True):
            bar.set_width(total / totals[0])
            number.set_text(f"{total / totals[0]:.2f} ×")
        fixed = max(range(len(totals) - 1), key=totals.__getitem__)
        name = "never" if fixed == 0 else f"always {fixed}"
        view.above.set_title(f"{machine}, up to {peak} requests at {cached_tokens // 1024}K", fontsize=10.5)
        view.bars.set_title(f"by load: {totals[-1] / totals[fixed] - 1:+.1%} over {name}", fontsize=10.5)


def day(
    name: str, peak: int, cached_tokens: int, acceptance: Sequence[float], kind: str = "plain"
) -> tuple[list[float], list[int]]:
    """(tokens that a GPU makes in a day with 0, 1 … drafts always and with the best number at each of ``HOURS``, that
    best number)."""
    speedup, step, gpu = account(kind, name)
    totals, best = [0.0] * (MOST_DRAFTS + 2), []
    for requests in load(peak):
        gains = [speedup(requests, k, cached_tokens, acceptance) for k in range(MOST_DRAFTS + 1)]
        if kind == "plain":
            chosen = best_draft_count(requests, cached_tokens, acceptance, gpu, ROUNDED)
        else:
            chosen = max(range(len(gains)), key=gains.__getitem__)
        best.append(chosen)
        made = 86_400 / len(HOURS) * requests / step(requests, 0, cached_tokens)
        for place, gain in enumerate([*gains, gains[chosen]]):
            totals[place] += made * gain
    return totals, best


def waterfall(gains: dict[str, Sequence[float]], labels: Sequence[str]):
    """One line for each of ``labels`` (a load each) over the refinements, the keys of ``gains``. A Figure."""
    fig = new_figure(9.2, 3.9, alt="The gain of one draft at four loads, as one refinement after another is added")
    ax = fig.subplots()
    places = range(len(gains))
    for at, (label, color) in enumerate(zip(labels, MARK_COLORS, strict=True)):
        ax.plot(places, [row[at] for row in gains.values()], "o-", color=color, label=label)
    ax.axhline(1, color=COLORS["neutral"], linewidth=1)
    ax.set_xticks(list(places), list(gains))
    ax.set(ylabel="gain of one draft", ylim=(0.75, 2.0), xlim=(-0.3, len(gains) - 0.7))
    ax.legend(loc="upper right", ncols=2)
    ax.grid(visible=False, axis="x")
    return fig


def layer_bars(loads: Sequence[tuple[int, int]], gpu: Machine, setup: Setup):
    """A layer's parts at each (cached tokens, requests) of ``loads``, without a draft and with one: attention and
    experts on each other, the all-to-all beside them. Hatched is what waits for arithmetic. A Figure."""
    fig = new_figure(9.4, 3.7, alt="Microseconds of a layer's parts at four loads, without a draft and with one")
    axes = fig.subplots(1, len(loads), sharey=True)
    for ax, (cached, requests) in zip(axes, loads, strict=True):
        for k in (0, 1):
            times = layer_times(requests, requests * (k + 1), cached, gpu, setup)
            start = 0.0
            for (memory, compute), color in ((times[:2], "latent"), (times[2:4], "value")):
                height, hatch = 1e6 * max(memory, compute), "////" if compute > memory else None
                look = dict(facecolor=COLORS[color], hatch=hatch, edgecolor=COLORS["paper"], linewidth=0)
                ax.bar(k - 0.19, height, 0.34, bottom=start, **look)
                start += height
            ax.bar(k + 0.19, 1e6 * times.network, 0.34, color=COLORS["rope"])
            ax.text(k, 1e6 * times.seconds + 12, f"{1e6 * times.seconds:.0f}", ha="center", fontsize=9)
        ax.set_title(f"{requests} at {cached // 1024}K", fontsize=10.5)
        ax.set_xticks([0, 1], ["no draft", "1 draft"])
        ax.grid(visible=False, axis="x")
    axes[0].set_ylabel("µs of a layer")
    for place, (name, color) in enumerate((("attention", "latent"), ("experts", "value"), ("all-to-all", "rope"))):
        axes[0].text(0.04, 0.93 - 0.09 * place, name, color=COLORS[color], transform=axes[0].transAxes)
    return fig
