"""How long one step of a slider takes in every explorer: ``python bench/widgets.py``.

A step is what a change of a control does before the page gets its new bytes: the artists' update, the drawing and the
PNG. Median and slowest of 30 steps; beside them the time of the first view, which makes the figure. Lesson 0's explorer
multiplies and times a product at each step: how long that takes is the product's affair, and is left out here.
"""

import importlib
import pkgutil
import statistics
import sys
import time

from record import ROOT, record

from ledger import widgets
from ledger.widgets.base import Explorer, png, style
from ledger.widgets.start import ThreeNumbers

STEPS = 30
TARGET_MS = 100


def explorers() -> list[type[Explorer]]:
    """Every explorer of the course, by the module that it stands in."""
    for module in pkgutil.iter_modules(widgets.__path__):
        importlib.import_module(f"ledger.widgets.{module.name}")
    return Explorer.__subclasses__()


def values_of(control) -> list:
    """What a control can be set to."""
    return [option[1] if isinstance(option, tuple) else option for option in control.options]


def ready(kind: type[Explorer]) -> Explorer:
    """An explorer that draws and does not time anything."""
    return kind(seconds=lambda left, right: 1e-3) if kind is ThreeNumbers else kind()


def measure(explorer: Explorer) -> dict[str, float]:
    """Milliseconds of the first view and of one step, going round through each control's values."""
    start = time.perf_counter()
    fig, view, first = explorer._first_view()
    png(fig)
    began = time.perf_counter() - start
    controls = explorer.controls()
    taken = []
    for step in range(STEPS):
        name = list(controls)[step % len(controls)]
        choices = values_of(controls[name])
        value = choices[(choices.index(first[name]) + 1 + step // len(controls)) % len(choices)]
        values = first | explorer.follow(name, value) | {name: value}
        start = time.perf_counter()
        with style():
            explorer.update(view, **values)
        png(fig)
        taken.append(1e3 * (time.perf_counter() - start))
    return {"first_ms": round(1e3 * began), "step_ms": round(statistics.median(taken)), "slowest_ms": round(max(taken))}


def main() -> None:
    """Measure, print and record."""
    figures = {kind.__name__: measure(ready(kind)) for kind in explorers()}
    for name, figure in figures.items():
        print(f"{name:<20}", *(f"{key} {value:5}" for key, value in figure.items()))
    missed = [name for name, figure in figures.items() if figure["step_ms"] > TARGET_MS]
    print(f"recorded in {record('widgets', figures | {'target_ms': TARGET_MS, 'missed': missed}).relative_to(ROOT)}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
