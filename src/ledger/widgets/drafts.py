"""Pictures of drafts: two distributions and what they share, one step of a request, and the explorer of acceptance."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import numpy as np

from ledger.reference.layer import softmax
from ledger.reference.mtp import acceptance, residual
from ledger.widgets.base import COLORS, Choice, Explorer, Steps, new_figure

#: Accepted, owed after a rejection, drafted in vain.
KEPT, OWED, WASTED = COLORS["latent"], COLORS["predict"], COLORS["materialize"]


def overlap_picture(draft: np.ndarray, target: np.ndarray, names: Sequence[str]):
    """The distributions of a draft and of the target, what they share, and what each has alone; a Figure."""
    share, owed, names = float(acceptance(draft, target)), np.maximum(target - draft, 0), list(names)
    told = f"shared by both: {share:.3f}; the target alone: {owed.sum():.3f}; the draft alone: {owed.sum():.3f}"
    fig = new_figure(8.2, 3.0, alt=f"Probabilities of {len(names)} tokens by a draft q and by the target p. {told}")
    ax = fig.subplots()
    ax.bar(names, np.minimum(draft, target), color=KEPT, width=0.7, label=f"min(p, q): accepted, {share:.2f}")
    low, owing = np.minimum(draft, target), f"p − q: owed after a rejection, {1 - share:.2f}"
    ax.bar(names, owed, bottom=low, color=OWED, width=0.7, label=owing)
    look = dict(width=0.7, facecolor="none", edgecolor=WASTED, hatch="////", linewidth=1.2)
    more = np.where(draft > target, draft - target, np.nan)  # no bar at all elsewhere, not the edge of an empty one
    ax.bar(names, more, bottom=low, label=f"q − p: rejected, {1 - share:.2f}", **look)
    ax.set(xlabel="token", ylabel="probability", ylim=(0, 1.3 * max(draft.max(), target.max())))
    ax.grid(visible=False, axis="x")
    ax.legend(loc="upper right", ncols=3)
    return fig


def acceptance_picture(lines: Mapping[str, Sequence[float]], ylabel: str = "acceptance"):
    """The acceptance of each draft where those before it were accepted, a line for each way to draft; a Figure."""
    told = "; ".join(f"{name}: " + ", ".join(f"{a:.2f}" for a in line) for name, line in lines.items())
    fig = new_figure(8.2, 3.3, alt=f"Acceptance of the first, second and further drafts. {told}")
    ax = fig.subplots()
    looks = (("o-", KEPT), ("s-", OWED), ("D--", WASTED), ("^:", COLORS["neutral"]))
    for (name, line), (mark, color) in zip(lines.items(), looks, strict=False):
        places = list(range(1, len(line) + 1))
        ax.plot(places, list(line), mark, color=color, label=name)
        for x, y in zip(places, line, strict=True):
            ax.annotate(f"{y:.2f}", (x, y), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=9)
    ax.set(xlabel="draft", ylabel=ylabel, ylim=(0, 1.08), xlim=(0.7, max(map(len, lines.values())) + 0.3))
    ax.set_xticks(range(1, max(map(len, lines.values())) + 1))
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3)
    return fig


#: The explorer's vocabulary, the target's logits on it, and those of a draft that knows nothing.
TOKENS = tuple("abcdefghij")
_TARGET = np.array([2.6, 2.0, 1.5, 1.0, 0.6, 0.2, -0.2, -0.7, -1.3, -2.0])
_STRANGER = np.array([0.1, 1.4, -1.0, 2.4, -0.6, 2.0, -1.8, 1.1, 0.4, -0.9])
DRAWN, BEST = "drawn from q", "q's best token"
MOST_DRAFTS = 8


def distributions(apart: int, temperature: float, drafting: str) -> tuple[np.ndarray, np.ndarray]:
    """The draft's and the target's probabilities: logits that are ``apart`` percent of the way to a stranger's, both at
    a temperature; one-hot where ``drafting`` is ``BEST``."""
    draft = softmax((_TARGET + apart / 100 * (_STRANGER - _TARGET)) / temperature)
    if drafting == BEST:
        draft = np.eye(len(TOKENS))[int(draft.argmax())]
    return draft, softmax(_TARGET / temperature)


class DraftsExplorer(Explorer):
    """What a draft and the target share, what is drawn after a rejection, and the tokens that a step then adds."""

    title = "A draft's distribution beside the target's, the residual, and the expected tokens of a step by drafts"
    size = (9.3, 4.4)

    def controls(self):
        return {
            "apart": Steps("draft and target apart, %", list(range(0, 101, 10)), 40),
            "temperature": Steps("temperature", [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0], 1.0),
            "drafting": Choice("a draft is", [DRAWN, BEST], DRAWN),
            "num_drafts": Steps("drafts", list(range(1, MOST_DRAFTS + 1)), 3),
        }

    def setup(self, fig):
        grid = fig.add_gridspec(2, 2, width_ratios=[1.5, 1], height_ratios=[1.7, 1])
        both, after, gain = fig.add_subplot(grid[0, 0]), fig.add_subplot(grid[1, 0]), fig.add_subplot(grid[:, 1])
        view = SimpleNamespace(both=both, after=after, gain=gain)
        places, ones = range(len(TOKENS)), [0.5] * len(TOKENS)
        view.kept = both.bar(places, ones, color=KEPT, width=0.7, label="min(p, q)")
        view.owed = both.bar(places, ones, color=OWED, width=0.7, label="p alone")
        look = dict(facecolor="none", edgecolor=WASTED, hatch="////", linewidth=1.2)
        view.wasted = both.bar(places, ones, width=0.7, label="q alone", **look)
        view.residual = after.bar(places, ones, color=OWED, width=0.7)
        for ax in (both, after):
            ax.set_xticks(places, TOKENS)
            ax.grid(visible=False, axis="x")
            ax.set(ylim=(0, 1.05 if ax is after else 1.25), ylabel="probability")
            ax.locator_params(axis="y", nbins=4)
        both.legend(loc="upper right", ncols=3, columnspacing=1.0)
        both.tick_params(labelbottom=False)
        after.set_xlabel("token")
        drafts = range(MOST_DRAFTS + 1)
        gain.plot(drafts, [k + 1 for k in drafts], ":", color=COLORS["neutral"], label="all accepted")
        (view.line,) = gain.plot(drafts, drafts, "o-", color=KEPT, gid="expected", label="all at this acceptance")
        (view.dot,) = gain.plot([1], [1], "o", color=COLORS["measure"], markersize=9, gid="chosen")
        gain.set(xlabel="drafts", ylabel="expected tokens of a step", ylim=(0.8, MOST_DRAFTS + 1.4))
        gain.locator_params(nbins=5)
        gain.legend(loc="upper left")
        return view

    def update(self, view, apart: int, temperature: float, drafting: str, num_drafts: int) -> None:
        """``drafting`` is one of ``DRAWN`` and ``BEST``; the others are numbers that the controls offer."""
        q, p = distributions(apart, temperature, drafting)
        share, after = float(acceptance(q, p)), residual(q, p)
        for place in range(len(TOKENS)):
            low = min(q[place], p[place])
            view.kept[place].set_height(low)
            for bars, more in ((view.owed, p[place] - q[place]), (view.wasted, q[place] - p[place])):
                bars[place].set_y(low)
                bars[place].set_height(max(more, 0))
                bars[place].set_visible(more > 0)
            view.residual[place].set_height(after[place])
        expected = [sum(share**i for i in range(k + 1)) for k in range(MOST_DRAFTS + 1)]
        view.line.set_ydata(expected)
        view.dot.set_data([num_drafts], [expected[num_drafts]])
        view.both.set_title(f"target p and draft q: acceptance {share:.3f}", fontsize=10.5)
        drawn = "drawn after a rejection" if share < 1 - 1e-12 else "no draft is rejected (this is p)"
        view.after.set_title(drawn, fontsize=10.5)
        drafts = "1 draft" if num_drafts == 1 else f"{num_drafts} drafts"
        view.gain.set_title(f"{drafts}: {expected[num_drafts]:.2f} tokens", fontsize=10.5)
