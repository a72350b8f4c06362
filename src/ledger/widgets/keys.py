"""Chapter 1's explorer: what the scores of one head cost on either route, for any model and any lengths."""

import math

from ledger.widgets.base import COLORS, Choice, Explorer, Steps, plain_ticks, powers_of_two

NEW_TOKENS = powers_of_two(1, 4096)


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
        from ledger.models import MODELS

        first = "DeepSeek-V3" if "DeepSeek-V3" in MODELS else next(iter(MODELS))
        return {
            "model": Choice("model", list(MODELS), first),
            "cached_tokens": Steps("cached tokens", powers_of_two(64, 131072), 4096),
            "new_tokens": Steps("new tokens", NEW_TOKENS, 1),
        }

    def draw(self, fig, model: str, cached_tokens: int, new_tokens: int) -> None:
        """``model`` is a published name, ``cached_tokens`` and ``new_tokens`` are counts of tokens."""
        from ledger.account.attention import key_path_absorb, key_path_materialize
        from ledger.models import MODELS

        shape = MODELS[model]
        routes = {"materialize": key_path_materialize, "absorb": key_path_absorb}
        widths = (shape.latent_dim, shape.nope_dim)
        lines, parts = fig.subplots(1, 2, width_ratios=[1.9, 1])
        for name, path in routes.items():
            totals = [path(s, cached_tokens, *widths).total for s in NEW_TOKENS]
            lines.plot(NEW_TOKENS, totals, color=COLORS[name], label=name, gid=name)
            lines.plot([new_tokens], [path(new_tokens, cached_tokens, *widths).total], "o", color=COLORS[name])
        self._mark_crossing(lines, cached_tokens, new_tokens, widths, routes["absorb"])
        lines.set(xscale="log", yscale="log", xlabel="new tokens", ylabel="multiply-adds, one head")
        lines.set_title(f"{model}: latent {widths[0]}, nope {widths[1]}, {cached_tokens:,} cached", fontsize=10)
        plain_ticks(lines.xaxis)
        lines.legend(loc="lower right")
        self._draw_parts(parts, {name: path(new_tokens, cached_tokens, *widths) for name, path in routes.items()})
        parts.set_title(f"at {new_tokens:,} new token{'s' if new_tokens > 1 else ''}", fontsize=10)

    def _mark_crossing(self, ax, cached_tokens, new_tokens, widths, absorb) -> None:
        crossing = key_crossover(cached_tokens, *widths)
        ax.axvline(new_tokens, color=COLORS["neutral"], linewidth=1.0, linestyle=":")
        if crossing > NEW_TOKENS[-1]:
            return
        # Absorb is linear in the new tokens, so its height at the crossing follows from one token.
        height = crossing * absorb(1, cached_tokens, *widths).total
        ax.plot([crossing], [height], "D", color=COLORS["ink"], gid="crossing", zorder=3)
        ax.annotate(
            f"equal at {crossing:.1f}",
            (crossing, height),
            xytext=(8, -16),
            textcoords="offset points",
            fontsize=9.5,
            fontweight="bold",
            bbox=dict(boxstyle="square,pad=0.1", facecolor=COLORS["paper"], edgecolor="none", alpha=0.85),
        )

    def _draw_parts(self, ax, paths) -> None:
        names = list(paths)
        projections, scores = ([getattr(paths[n], part) for n in names] for part in ("projection", "scores"))
        colors = [COLORS[n] for n in names]
        ax.bar(names, projections, width=0.6, color=colors)
        ax.bar(
            names, scores, width=0.6, bottom=projections, color="white", edgecolor=colors, hatch="///", linewidth=1.2
        )
        top = max(path.total for path in paths.values())
        for i, name in enumerate(names):
            text = f"{short(paths[name].total)}\nprojection {_percent(projections[i] / paths[name].total)}"
            ax.text(i, paths[name].total + 0.02 * top, text, ha="center", va="bottom", fontsize=9)
        ax.set_ylim(0, top * 1.22)
        ax.set_yticks([])
        ax.grid(False)
        ax.spines["left"].set_visible(False)
        ax.set_xlabel("filled: projection · hatched: scores")


def _percent(share: float) -> str:
    """A share in whole percent; what rounds to 0 or 100 without being it says so."""
    text = f"{share:.0%}"
    if text == "0%" and share > 0:
        return "under 1%"
    return "over 99%" if text == "100%" and share < 1 else text
