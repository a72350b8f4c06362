"""Chapter 0's explorer: the three numbers of one matrix product, on this machine."""

from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace

import numpy as np

from ledger.account.attention import matmul_bytes, matmul_macs
from ledger.count import count
from ledger.widgets.base import COLORS, Explorer, Steps, log_axes, powers_of_two
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
            "rows": Steps("rows", powers_of_two(1, 64), 1),
            "inner": Steps("inner", powers_of_two(16, 4096), 4096),
            "cols": Steps("cols", powers_of_two(16, 4096), 4096),
        }

    def setup(self, fig):
        roof, table = fig.subplots(1, 2, width_ratios=[1.35, 1])
        view = SimpleNamespace(roof=roof, table=table)
        flops, bandwidth = self.ceilings.flops, self.ceilings.bandwidth
        ridge = flops / bandwidth
        span = np.geomspace(0.1, 1000, 200)
        roof.plot(span, np.minimum(flops, span * bandwidth), color=COLORS["predict"], gid="roof", label="ceiling")
        roof.axvline(ridge, color=COLORS["neutral"], linewidth=1.0, linestyle=":")
        roof.annotate(
            f"ridge {ridge:.1f}",
            (ridge, 0.03),
            xycoords=("data", "axes fraction"),
            xytext=(5, 0),
            textcoords="offset points",
            fontsize=9,
            color=COLORS["neutral"],
        )
        (view.gap,) = roof.plot([], [], color=COLORS["measure"], linewidth=1.0)
        (view.bound,) = roof.plot([], [], "o", color=COLORS["predict"], gid="predicted", label="predicted bound")
        (view.reached,) = roof.plot([], [], "D", color=COLORS["measure"], gid="measured", label="measured")
        log_axes(roof)
        roof.set(xlabel="FLOP a byte", ylabel="FLOP/s", ylim=(flops / 1e5, flops * 4))
        roof.legend(loc="lower right")

        table.set_axis_off()
        y, texts = 0.90, {}
        for name, lines in {"predict": 3, "count": 2, "measure": 2}.items():
            table.text(0.0, y, name, color=COLORS[name], fontsize=10.5, fontweight="bold")
            texts[name] = [table.text(0.28, y - 0.09 * line, "", fontsize=10.5) for line in range(lines)]
            y -= 0.09 * lines + 0.06
        view.texts = texts
        return view

    def update(self, view, rows: int, inner: int, cols: int) -> None:
        """Show the product (``rows`` × ``inner``) · (``inner`` × ``cols``) in float32."""
        macs, moved = matmul_macs(rows, inner, cols), matmul_bytes(rows, inner, cols, itemsize=4).total
        left, right = _ones(rows, inner), _ones(inner, cols)
        _, counts = count(np.matmul, left, right)
        seconds = self.seconds(left, right)
        self._update_roof(view, 2 * macs / moved, 2 * macs / seconds)

        bound = max(2 * macs / self.ceilings.flops, moved / self.ceilings.bandwidth)
        counted = short(counts.macs), short(counts.bytes_read + counts.bytes_written, "B")
        says = {
            "predict": (f"{short(macs)} multiply-adds", short(moved, "B"), f"at least {_time(bound)}"),
            "count": (f"{counted[0]} multiply-adds", counted[1]),
            "measure": (_time(seconds), f"{seconds / bound:,.1f} × the predicted bound"),
        }
        for name, texts in says.items():
            for artist, text in zip(view.texts[name], texts, strict=True):
                artist.set_text(text)
        view.table.set_title(f"({rows:,} × {inner:,}) · ({inner:,} × {cols:,})", fontsize=10)

    def _update_roof(self, view, intensity: float, reached: float) -> None:
        flops, bandwidth = self.ceilings.flops, self.ceilings.bandwidth
        bound = min(flops, intensity * bandwidth)
        view.gap.set_data([intensity] * 2, [bound, reached])
        view.bound.set_data([intensity], [bound])
        view.reached.set_data([intensity], [reached])
        side = "bandwidth-bound" if intensity < flops / bandwidth else "compute-bound"
        view.roof.set_title(f"{intensity:.2f} FLOP a byte: {side}", fontsize=10)


@lru_cache(maxsize=4)
def _ones(rows: int, cols: int) -> np.ndarray:
    """A matrix to multiply with; the last few stay, because making one can take longer than the product."""
    return np.ones((rows, cols), np.float32)


def _measure(left: np.ndarray, right: np.ndarray) -> float:
    from ledger.measure import time_call

    return time_call(np.matmul, left, right, seconds=0.02).low


def _time(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
