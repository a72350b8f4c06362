"""Pictures and the explorer of the lesson on values: the toy, step by step on both routes, and the merged weights."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from ledger.account.values import (
    content_path_absorb,
    content_path_materialize,
    merged_value_output_elements,
)
from ledger.exercises.making import TOY_LATENTS, TOY_W_K, TOY_W_V
from ledger.models import Model
from ledger.widgets.base import COLORS, Choice, Explorer, Steps, new_figure

QUERIES = {"[1, 0]": (1, 0), "[0, 1]": (0, 1), "[1, 1]": (1, 1), "[2, -1]": (2, -1)}
W_KS = {
    "as in lesson 1": TOY_W_K,
    "forgets the third feature": ((1, 0), (0, 1), (0, 0)),
    "with a sign": ((1, -1), (0, 2), (1, 0)),
}
W_VS = {
    "as in the lesson": TOY_W_V,
    "forgets the third feature": ((1, 0), (0, 1), (0, 0)),
    "swaps two features": ((0, 1), (1, 0), (2, 2)),
}
LATENTS = {
    "unit vectors": TOY_LATENTS,
    "two alike": ((1, 0, 1), (1, 0, 1), (0, 1, 0)),
    "all mixed": ((1, 2, 0), (0, 1, 1), (2, 0, 1)),
}
SOFTMAX, GIVEN = "softmax, scale ln 2", "given: 0.5, 0, 0.5"
#: What is given, and five things made of it.
LAST_STEP = 6


class Toy(NamedTuple):
    """Everything that the two routes make on their way, for one query and one head: arrays of two axes."""

    keys: np.ndarray
    q_absorbed: np.ndarray
    scores: dict[str, np.ndarray]
    weights: np.ndarray
    values: np.ndarray
    mixed: np.ndarray
    outputs: dict[str, np.ndarray]


def work_out(q, w_k, w_v, latents, weights=None) -> Toy:
    """The toy along both routes: q (1, nope), w_k (latent, nope), w_v (latent, value), latents (cached, latent);
    ``weights`` (1, cached), or None for a softmax of the scores to base 2."""
    q, w_k, w_v, latents = (np.array(given, float) for given in (q, w_k, w_v, latents))
    keys, q_absorbed = latents @ w_k, q @ w_k.T
    scores = {"materialize": q @ keys.T, "absorb": q_absorbed @ latents.T}
    if weights is None:
        shares = 2.0 ** (scores["absorb"] - scores["absorb"].max())
        weights = shares / shares.sum()
    weights = np.array(weights, float)
    values, mixed = latents @ w_v, weights @ latents
    return Toy(
        keys=keys,
        q_absorbed=q_absorbed,
        scores=scores,
        weights=weights,
        values=values,
        mixed=mixed,
        outputs={"materialize": weights @ values, "absorb": mixed @ w_v},
    )


class ToyStepper(Explorer):
    """Both routes through the toy, side by side and one product at a time, from the query to the output."""

    title = "The toy, step by step: materialize above, absorb below, with the numbers and the multiply-adds so far"
    size = (9.2, 4.7)
    PLACES = (0.0, 1.84, 3.68, 5.52, 7.36)  # from the left, of the five boxes in a lane; in inches, like all here
    WIDTH, HEIGHT = 1.6, 0.76

    def controls(self):
        return {
            "query": Choice("query", list(QUERIES), "[1, 0]"),
            "latents": Choice("latents", list(LATENTS), "unit vectors"),
            "w_k": Choice("W_K", list(W_KS), "as in lesson 1"),
            "w_v": Choice("W_V", list(W_VS), "as in the lesson"),
            "weights": Choice("weights", [SOFTMAX, GIVEN], SOFTMAX),
            "step": Steps("step", range(1, LAST_STEP + 1), LAST_STEP),
        }

    def setup(self, fig):
        from matplotlib.patches import Rectangle

        width, height = self.size
        ax = fig.subplots()
        ax.set(xlim=(-0.1, width - 0.1), ylim=(height, 0))
        ax.set_axis_off()
        ax.grid(False)
        number = dict(ha="center", va="center", fontsize=9, family="monospace", linespacing=1.2)
        view = SimpleNamespace(given=[], lanes={}, says={})
        for place, name in zip(self.PLACES, ("query q", "latents c", "W_K", "W_V"), strict=False):
            color = COLORS["latent" if name.startswith("latents") else "neutral"]
            ax.add_patch(
                Rectangle((place, 0.3), self.WIDTH, self.HEIGHT, facecolor="none", edgecolor=color, linewidth=1.2)
            )
            ax.text(place, 0.24, name, fontsize=10, fontweight="bold", color=color)
            view.given.append(ax.text(place + self.WIDTH / 2, 0.3 + self.HEIGHT / 2, "", **number))
        for lane, top in (("materialize", 1.65), ("absorb", 3.2)):
            color = COLORS[lane]
            ax.text(0, top - 0.1, lane, fontsize=11, fontweight="bold", color=color)
            view.says[lane] = ax.text(1.2, top - 0.1, "", fontsize=9.5)
            view.lanes[lane] = []
            for place in self.PLACES:
                box = Rectangle((place, top), self.WIDTH, self.HEIGHT, edgecolor=color)
                ax.add_patch(box)
                numbers = ax.text(place + self.WIDTH / 2, top + self.HEIGHT / 2, "", **number)
                below = ax.text(place, top + self.HEIGHT + 0.06, "", fontsize=9, va="top")
                view.lanes[lane].append((box, numbers, below))
        view.verdict = ax.text(0, height - 0.04, "", fontsize=10.5, fontweight="bold")
        return view

    def update(self, view, query: str, latents: str, w_k: str, w_v: str, weights: str, step: int) -> None:
        """Show the first ``step`` steps of the toy made of the named pieces; step 1 shows what is given."""
        given = ([QUERIES[query]], LATENTS[latents], W_KS[w_k], W_VS[w_v])
        for text, piece in zip(view.given, given, strict=True):
            text.set_text(written(piece))
        q, c, key_matrix, value_matrix = given
        toy = work_out(q, key_matrix, value_matrix, c, None if weights == SOFTMAX else [[0.5, 0, 0.5]])
        softmax = "weights = softmax" if weights == SOFTMAX else "weights, given"
        boxes = {
            "materialize": [
                ("K = c · W_K", toy.keys),
                ("scores = q · Kᵀ", toy.scores["materialize"]),
                (softmax, toy.weights),
                ("V = c · W_V", toy.values),
                ("output = weights · V", toy.outputs["materialize"]),
            ],
            "absorb": [
                ("q̃ = q · W_Kᵀ", toy.q_absorbed),
                ("scores = q̃ · cᵀ", toy.scores["absorb"]),
                (softmax, toy.weights),
                ("mixed = weights · c", toy.mixed),
                ("output = mixed · W_V", toy.outputs["absorb"]),
            ],
        }
        costs = step_costs(len(c), key_matrix, value_matrix)
        for lane, contents in boxes.items():
            self._update_lane(view, lane, contents, costs[lane], step)
        view.verdict.set_text(verdict(toy, step))

    def _update_lane(self, view, lane, contents, costs, step) -> None:
        spent = sum(costs[: step - 1])
        view.says[lane].set_text(f"{spent} multiply-adds so far" if step > 1 else "")
        for place, ((name, numbers), cost, (box, text, below)) in enumerate(
            zip(contents, costs, view.lanes[lane], strict=True), start=2
        ):
            done, now = place <= step, place == step
            box.set(linewidth=2.6 if now else 1.1, alpha=1.0 if done else 0.3, linestyle="-" if done else ":")
            box.set_facecolor(COLORS["grid"] if now else COLORS["paper"])
            text.set_text(written(numbers) if done else "")
            below.set_text(f"{name}\n{f'{cost} multiply-adds' if cost else 'no product'}" if done else "")


def step_costs(cached: int, w_k, w_v) -> dict[str, list[int]]:
    """Multiply-adds of the five steps after the first, by route; the softmax is no product."""
    (latent, nope), value = np.shape(w_k), np.shape(w_v)[1]
    sizes = dict(new_tokens=1, cached_tokens=cached, num_heads=1, nope_dim=nope, latent_dim=latent, value_dim=value)
    rebuilt, absorbed = content_path_materialize(**sizes), content_path_absorb(**sizes)
    return {
        "materialize": [rebuilt.keys, rebuilt.scores, 0, rebuilt.values, rebuilt.mixing],
        "absorb": [absorbed.keys, absorbed.scores, 0, absorbed.mixing, absorbed.values],
    }


def written(matrix) -> str:
    """The rows of a matrix as lines of numbers in columns, three decimals each at most."""
    cells = [[f"{round(number, 3) + 0.0:g}" for number in row] for row in np.array(matrix, float)]
    wide = max(len(cell) for row in cells for cell in row)
    return "\n".join("  ".join(cell.rjust(wide) for cell in row) for row in cells)


def verdict(toy: Toy, step: int) -> str:
    """What can be said of the two routes after ``step`` steps."""
    if step < 3:
        return "" if step == 1 else "W_K met every cached token above, and the query alone below"
    met = [np.allclose(*toy.scores.values())] + [np.allclose(*toy.outputs.values())] * (step == LAST_STEP)
    words = ["scores", "outputs"][: len(met)]
    return "   ".join(f"{word} {'equal' if same else 'DIFFERENT'}" for word, same in zip(words, met, strict=True))


def merged_output_bars(models: Mapping[str, Model]):
    """W_UV·W_O merged over its factors, one bar a model, with both element counts beside it. A Figure."""
    fig = new_figure(8.2, 0.9 + 0.27 * len(models), alt="W_UV·W_O merged offline over its factors, by model")
    ax = fig.subplots()
    for place, shape in enumerate(models.values()):
        weights = merged_value_output_elements(shape.hidden_dim, shape.latent_dim, shape.value_dim, shape.num_heads)
        ax.barh(place, weights.ratio, color=COLORS["materialize"], height=0.66, label=shape.name)
        text = f"{weights.ratio:.2f} ×   {weights.merged / 1e6:.1f} M against {weights.apart / 1e6:.1f} M"
        ax.text(weights.ratio + 0.05, place, text, va="center", fontsize=9)
    ax.axvline(1, color=COLORS["absorb"], linewidth=2)
    ax.set_yticks(range(len(models)), list(models))
    ax.set_ylim(len(models) - 0.4, -0.6)
    ax.grid(visible=False)
    ax.set_xlim(0, 6)
    ax.set_xlabel("elements merged ÷ elements apart   (blue line: no difference)")
    return fig
