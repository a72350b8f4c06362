"""Chapter 1's explorer: what the scores of one head cost on either route, for any model and any lengths."""

import math
from types import SimpleNamespace

from ledger.account.attention import key_path_absorb, key_path_materialize
from ledger.models import MODELS
from ledger.widgets.base import COLORS, Choice, Explorer, Steps, log_axes, plain_ticks, powers_of_two

NEW_TOKENS = powers_of_two(1, 4096)
ROUTES = {"materialize": key_path_materialize, "absorb": key_path_absorb}


def key_crossover(cached_tokens: int, latent_dim: int, nope_dim: int) -> float:
    """The number of new tokens at which both routes to one head's scores take the same multiply-adds.

    C·L·n + S·C·n = S·L·n + S·C·L, solved for S. Infinite where absorb never loses: C·(L − n) + L·n ≤ 0.
    """
    gain = latent_dim * nope_dim + cached_tokens * (latent_dim - nope_dim)
    return cached_tokens * latent_dim * nope_dim / gain if gain > 0 else math.inf


def short(number: float, unit: str = "") -> str:
    """A count for a label: three digits and a unit, ``67.1 M``; below ten thousand the number itself."""
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size and number >= 1e4:
            return f"{number / size:.3g} {prefix}{unit}"
    return f"{number:,.0f} {unit}".strip()


class KeysExplorer(Explorer):
    """Two cost lines over new tokens with their crossing, and beside them where the chosen point's work goes."""

    title = "Multiply-adds of one head's key scores: materialize and absorb over new tokens"
    size = (9.0, 4.0)

    def controls(self):
        return {
            "model": Choice("model", list(MODELS), "DeepSeek-V3"),
            "cached_tokens": Steps("cached tokens", powers_of_two(64, 131072), 4096),
            "new_tokens": Steps("new tokens", NEW_TOKENS, 1),
        }

    def setup(self, fig):
        lines, parts = fig.subplots(1, 2, width_ratios=[1.9, 1])
        view = SimpleNamespace(lines=lines, parts=parts)
        paper, neutral = COLORS["paper"], COLORS["neutral"]
        log_axes(lines)
        view.totals = {n: lines.plot(NEW_TOKENS, NEW_TOKENS, color=COLORS[n], label=n, gid=n)[0] for n in ROUTES}
        view.points = {n: lines.plot([], [], "o", color=COLORS[n])[0] for n in ROUTES}
        view.chosen = lines.axvline(1, color=neutral, linewidth=1.0, linestyle=":")
        view.crossing = lines.plot([], [], "D", color=COLORS["ink"], gid="crossing", zorder=3)[0]
        view.equal = lines.annotate(
            "",
            (1, 1),
            xytext=(8, -16),
            textcoords="offset points",
            fontsize=9.5,
            fontweight="bold",
            bbox=dict(boxstyle="square,pad=0.1", facecolor=paper, edgecolor="none", alpha=0.85),
        )
        lines.set(xlabel="new tokens", ylabel="multiply-adds, one head")
        plain_ticks(lines.xaxis)
        lines.legend(loc="lower right")

        names, colors = list(ROUTES), [COLORS[n] for n in ROUTES]
        view.projections = parts.bar(names, [1, 1], width=0.6, color=colors)
        view.scores = parts.bar(
            names, [1, 1], width=0.6, color=paper, edgecolor=colors, hatch="///", linewidth=1.2, bottom=1
        )
        view.sums = [parts.text(i, 1, "", ha="center", va="bottom", fontsize=9) for i in range(len(names))]
        parts.set_yticks([])
        parts.grid(False)
        parts.spines["left"].set_visible(False)
        parts.set_xlabel("filled: projection · hatched: scores")
        return view

    def update(self, view, model: str, cached_tokens: int, new_tokens: int) -> None:
        """``model`` is a published name, ``cached_tokens`` and ``new_tokens`` are counts of tokens."""
        shape = MODELS[model]
        widths = (shape.latent_dim, shape.nope_dim)
        view.lines.set_title(f"{model}: latent {widths[0]}, nope {widths[1]}, {cached_tokens:,} cached", fontsize=10)
        view.parts.set_title(f"at {new_tokens:,} new token{'s' if new_tokens > 1 else ''}", fontsize=10)
        view.chosen.set_xdata([new_tokens, new_tokens])
        paths = {name: path(new_tokens, cached_tokens, *widths) for name, path in ROUTES.items()}
        for name, path in ROUTES.items():
            view.totals[name].set_ydata([path(s, cached_tokens, *widths).total for s in NEW_TOKENS])
            view.points[name].set_data([new_tokens], [paths[name].total])

        crossing = key_crossover(cached_tokens, *widths)
        # Absorb is linear in the new tokens, so its height at the crossing follows from one token.
        at = (crossing, crossing * key_path_absorb(1, cached_tokens, *widths).total)
        shown = crossing <= NEW_TOKENS[-1]
        view.crossing.set_data(([at[0]], [at[1]]) if shown else ([], []))
        view.equal.set(visible=shown, text=f"equal at {crossing:.1f}")
        view.equal.xy = at
        view.lines.relim()
        view.lines.autoscale_view()
        self._update_parts(view, paths)

    def _update_parts(self, view, paths) -> None:
        top = max(path.total for path in paths.values())
        bars = zip(paths.values(), view.projections, view.scores, view.sums, strict=True)
        for path, projection, scores, label in bars:
            # As floats: a browser's Python has C integers of 32 bits, and Matplotlib takes a bar's height for one.
            projection.set_height(float(path.projection))
            scores.set(y=float(path.projection), height=float(path.scores))
            label.set(y=path.total + 0.02 * top)
            label.set_text(f"{short(path.total)}\nprojection {_percent(path.projection / path.total)}")
        view.parts.set_ylim(0, top * 1.22)


def _percent(share: float) -> str:
    """A share in whole percent; what rounds to 0 or 100 without being it says so."""
    text = f"{share:.0%}"
    if text == "0%" and share > 0:
        return "under 1%"
    return "over 99%" if text == "100%" and share < 1 else text
