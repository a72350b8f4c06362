"""Chapter 0's explorer: the three numbers of one matrix product, on this machine."""

from collections.abc import Callable

import numpy as np

from ledger.widgets.base import COLORS, Explorer, Steps, powers_of_two
from ledger.widgets.keys import short


class ThreeNumbers(Explorer):
    """A product of any size against this machine's two ceilings: predicted, counted and measured.

    ``ceilings`` (with ``bandwidth`` in bytes/s and ``flops`` in FLOP/s) and ``seconds(left, right)``, the time of one
    product, are measured here unless given.
    """

    title = "One matrix product against this machine's ceilings: predicted, counted, measured"
    size = (9.0, 4.0)

    def __init__(self, ceilings=None, seconds: Callable[[np.ndarray, np.ndarray], float] | None = None):
        if ceilings is None:
            from ledger.measure import ceilings as measure_ceilings

            ceilings = measure_ceilings("float32", device="cpu")
        self.ceilings = ceilings
        self.seconds = seconds or _measure

    def controls(self):
        return {
            "rows": Steps("rows", powers_of_two(1, 256), 1),
            "inner": Steps("inner", powers_of_two(16, 4096), 4096),
            "cols": Steps("cols", powers_of_two(16, 4096), 4096),
        }

    def draw(self, fig, rows: int, inner: int, cols: int) -> None:
        """Draw the product (``rows`` × ``inner``) · (``inner`` × ``cols``) in float32."""
        from ledger.account.attention import matmul_bytes, matmul_macs
        from ledger.count import count

        macs, moved = matmul_macs(rows, inner, cols), matmul_bytes(rows, inner, cols, itemsize=4).total
        rng = np.random.default_rng(0)
        left = rng.standard_normal((rows, inner), dtype=np.float32)
        right = rng.standard_normal((inner, cols), dtype=np.float32)
        _, counts = count(np.matmul, left, right)
        seconds = self.seconds(left, right)

        roof, table = fig.subplots(1, 2, width_ratios=[1.35, 1])
        self._draw_roof(roof, 2 * macs / moved, 2 * macs / seconds)
        bound = max(2 * macs / self.ceilings.flops, moved / self.ceilings.bandwidth)
        counted = short(counts.macs), short(counts.bytes_read + counts.bytes_written, "B")
        self._draw_table(
            table,
            f"({rows:,} × {inner:,}) · ({inner:,} × {cols:,})",
            {
                "predict": (f"{short(macs)} multiply-adds", short(moved, "B"), f"at least {_time(bound)}"),
                "count": (f"{counted[0]} multiply-adds", counted[1]),
                "measure": (_time(seconds), f"{seconds / bound:,.1f} × the predicted bound"),
            },
        )

    def _draw_roof(self, ax, intensity: float, reached: float) -> None:
        flops, bandwidth = self.ceilings.flops, self.ceilings.bandwidth
        ridge = flops / bandwidth
        span = np.geomspace(0.1, 1000, 200)
        ax.plot(span, np.minimum(flops, span * bandwidth), color=COLORS["predict"], gid="roof", label="ceiling")
        ax.axvline(ridge, color=COLORS["neutral"], linewidth=1.0, linestyle=":")
        ax.annotate(
            f"ridge {ridge:.1f}",
            (ridge, 0.03),
            xycoords=("data", "axes fraction"),
            xytext=(5, 0),
            textcoords="offset points",
            fontsize=9,
            color=COLORS["neutral"],
        )
        bound = min(flops, intensity * bandwidth)
        ax.plot([intensity] * 2, [bound, reached], color=COLORS["measure"], linewidth=1.0)
        ax.plot([intensity], [bound], "o", color=COLORS["predict"], gid="predicted", label="predicted bound")
        ax.plot([intensity], [reached], "D", color=COLORS["measure"], gid="measured", label="measured")
        ax.set(xscale="log", yscale="log", xlabel="FLOP a byte", ylabel="FLOP/s", ylim=(flops / 1e5, flops * 4))
        side = "bandwidth-bound" if intensity < ridge else "compute-bound"
        ax.set_title(f"{intensity:.2f} FLOP a byte: {side}", fontsize=10)
        ax.legend(loc="lower right")

    def _draw_table(self, ax, title: str, lines: dict[str, tuple[str, ...]]) -> None:
        ax.set_axis_off()
        ax.set_title(title, fontsize=10)
        y = 0.90
        for name, texts in lines.items():
            ax.text(0.0, y, name, color=COLORS[name], fontsize=10.5, fontweight="bold", transform=ax.transAxes)
            for text in texts:
                ax.text(0.28, y, text, fontsize=10.5, transform=ax.transAxes)
                y -= 0.09
            y -= 0.06


def _measure(left: np.ndarray, right: np.ndarray) -> float:
    from ledger.measure import time_call

    return time_call(np.matmul, left, right, seconds=0.05).low


def _time(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
