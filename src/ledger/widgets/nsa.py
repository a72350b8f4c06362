"""Chapter 11's pictures: which tokens the branches of NSA read, and the explorer of that map."""

from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from ledger.account.nsa import compressed_seen, tokens_read
from ledger.reference.sparse import pick_blocks
from ledger.setups import NSA_PAPER, NsaConfig
from ledger.widgets.base import COLORS, Choice, Explorer, Steps, plain_ticks, powers_of_two

#: Last positions that the explorer offers: around the first compressed block, then ends of blocks.
POSITIONS = [15, 30, 31, 63, 127, 255, 511, 1023, 2047, 4095, 8191]
#: Lengths at which the explorer draws what a step reads.
LENGTHS = powers_of_two(16, 1 << 20)
HEADS = 4
#: Lanes of the map from the top: overlapping compressed blocks lie in two.
LANES = {"compressed": (0, 1), "selected": (2,), "window": (3,)}
TALL = 0.78


def made_up_scores(tokens: int, heads: int = HEADS) -> np.ndarray:
    """Attention scores (heads, tokens) that hang together in stretches, as those of text do; the same each time.

    Heads share most of what they look for. Nothing of a trained model is in them.
    """
    rng = np.random.default_rng(11)
    stretches = np.repeat(rng.standard_normal((1, -(-tokens // 48))), 48, axis=1)[:, :tokens]
    own = np.repeat(rng.standard_normal((heads, -(-tokens // 80))), 80, axis=1)[:, :tokens]
    return 1.6 * stretches + 0.8 * own + 0.7 * rng.standard_normal((heads, tokens))


SCORES = made_up_scores(POSITIONS[-1] + 1)


def compressed_probs(scores: np.ndarray, config: NsaConfig) -> np.ndarray:
    """Attention of each head to the compressed blocks: scores (heads, tokens) -> (heads, full blocks).

    The score of a mean key is the mean of its tokens' scores, so no key is needed.
    """
    starts = config.stride * np.arange(compressed_seen(scores.shape[1], config))
    sums = np.concatenate([np.zeros((len(scores), 1)), scores.cumsum(axis=1)], axis=1)
    means = (sums[:, starts + config.block] - sums[:, starts]) / config.block
    weights = np.exp(means - means.max(axis=1, keepdims=True, initial=-np.inf))
    return weights / weights.sum(axis=1, keepdims=True)


def block_scores(probs: np.ndarray, tokens: int, config: NsaConfig) -> np.ndarray:
    """Scores of the selection blocks: probs (compressed blocks,) -> (selection blocks of ``tokens``,). Each stride of a
    compressed block gives its probability to the selection block that it lies in."""
    strides = config.block // config.stride
    starts = config.stride * (np.arange(len(probs))[:, None] + np.arange(strides))
    lies_in = starts.ravel() // config.selection_block
    return np.bincount(lies_in, np.repeat(probs, strides), minlength=-(-tokens // config.selection_block))


class Map(NamedTuple):
    """What a query reads: ``ranges`` of tokens, [first, after the last), by the branch's name; the ``scores`` of all
    selection blocks, and the ``picked`` ones in the order of choice."""

    ranges: dict[str, list[tuple[int, int]]]
    scores: np.ndarray
    picked: list[int]


def reading_map(position: int, config: NsaConfig) -> Map:
    """What the query at ``position`` reads of the made-up tokens."""
    tokens, size = position + 1, config.selection_block
    probs = compressed_probs(SCORES[:, :tokens], config).sum(axis=0)
    scores = block_scores(probs, tokens, config)
    picked = pick_blocks(scores, config.count, config.initial, config.local)
    starts = range(0, config.stride * len(probs), config.stride)
    ranges = {
        "compressed": [(start, start + config.block) for start in starts],
        "selected": [(j * size, min((j + 1) * size, tokens)) for j in sorted(picked)],
        "window": [(max(0, tokens - config.window), tokens)],
    }
    return Map(ranges, scores, picked)


def _boxes(ranges, tops, heights) -> np.ndarray:
    """Corners (boxes, 4, 2) of boxes over ranges of tokens, each from its top on by its height."""
    corners = []
    for (left, right), top, height in zip(ranges, tops, heights, strict=True):
        corners.append([(left, top), (right, top), (right, top + height), (left, top + height)])
    return np.array(corners, float).reshape(-1, 4, 2)


class NsaExplorer(Explorer):
    """Which tokens each branch reads for one query, what the selection blocks score, and how the reads grow."""

    title = "The tokens that each branch of NSA reads for one query, the scores of the blocks, and reads by length"
    size = (9.3, 4.6)

    def controls(self):
        sizes = [(16, 8), (32, 16), (64, 32), (32, 32)]
        pairs = [(f"{block}, every {stride}", (block, stride)) for block, stride in sizes]
        return {
            "position": Steps("position of the query", POSITIONS, 4095),
            "compressed": Choice("compressed block", pairs, (NSA_PAPER.block, NSA_PAPER.stride)),
            "selection_block": Steps("selected block, tokens", [32, 64, 128, 256], NSA_PAPER.selection_block),
            "count": Steps("selected blocks", [3, 4, 8, 16, 32], NSA_PAPER.count),
            "window": Steps("window, tokens", powers_of_two(32, 2048), NSA_PAPER.window),
        }

    def setup(self, fig):
        from matplotlib.collections import PolyCollection

        grid = fig.add_gridspec(2, 2, width_ratios=[2.1, 1], height_ratios=[1, 1.5])
        view = SimpleNamespace(scores=fig.add_subplot(grid[0, 0]), map=fig.add_subplot(grid[1, 0]), lanes={})
        view.reads = fig.add_subplot(grid[:, 1])
        view.bars = view.scores.add_collection(PolyCollection([], gid="scores"), autolim=False)
        view.scores.set(ylim=(0, 1.08), ylabel="score of a block\n÷ the largest")
        view.scores.set_yticks([0, 0.5, 1])
        view.scores.tick_params(labelbottom=False)
        look = dict(edgecolors=COLORS["paper"], linewidths=0.4)
        for name, color in zip(LANES, ("latent", "absorb", "rope"), strict=True):
            lane = PolyCollection([], facecolors=COLORS[color], gid=name, **look)
            view.lanes[name] = view.map.add_collection(lane, autolim=False)
        middles = [sum(lanes) / len(lanes) + TALL / 2 for lanes in LANES.values()]
        view.map.set_yticks(middles, list(LANES))
        view.map.set(ylim=(4, -0.2), xlabel="cached token")
        for ax in (view.scores, view.map):
            ax.grid(visible=False)
            ax.locator_params(axis="x", nbins=5)
            plain_ticks(ax.xaxis)
        ax = view.reads
        ax.plot(LENGTHS, LENGTHS, "--", color=COLORS["neutral"], label="all tokens")
        (view.line,) = ax.plot([], [], color=COLORS["absorb"], label="three branches", gid="reads")
        (view.dot,) = ax.plot([], [], "o", color=COLORS["measure"], markersize=9, gid="chosen")
        ax.set(xscale="log", yscale="log", xlim=(10, 1.6e6), ylim=(10, 1.6e6))
        ax.set(xlabel="cached tokens", ylabel="tokens read a step")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_ticks([100, 10_000, 1_000_000])
            plain_ticks(axis)
        ax.legend(loc="upper left")
        return view

    def update(self, view, position: int, compressed: tuple, selection_block: int, count: int, window: int) -> None:
        """``compressed`` is the compressed block and its stride, in tokens."""
        block, stride = compressed
        sizes = dict(block=block, stride=stride, selection_block=selection_block, count=count, window=window)
        config, tokens = replace(NSA_PAPER, **sizes), position + 1
        found = reading_map(position, config)
        for name, lanes in LANES.items():
            ranges = found.ranges[name]
            tops = [lanes[i % len(lanes)] for i in range(len(ranges))]
            view.lanes[name].set_verts(_boxes(ranges, tops, [TALL] * len(ranges)))
        blocks = range(len(found.scores))
        bars = [(j * selection_block, min((j + 1) * selection_block, tokens)) for j in blocks]
        heights = found.scores / max(found.scores.max(), 1e-30)
        view.bars.set_verts(_boxes(bars, [0] * len(bars), heights))
        forced = {*blocks[: config.initial], *blocks[-config.local :]}
        named = ["materialize" if j in forced else "absorb" if j in found.picked else "grid" for j in blocks]
        view.bars.set_facecolors([COLORS[name] for name in named])
        for ax in (view.scores, view.map):
            ax.set_xlim(-0.01 * tokens, 1.01 * tokens)
        now = tokens_read(tokens, config)
        totals = [tokens_read(length, config).total for length in LENGTHS]
        view.line.set_data(LENGTHS, totals)
        view.dot.set_data([tokens], [now.total])
        caught = found.scores[found.picked].sum() / max(found.scores.sum(), 1e-30)
        counted = f"{len(found.picked)} of {len(blocks)} blocks: blue by score, orange forced"
        view.scores.set_title(f"{counted}; {caught:.0%} of the scores", fontsize=10.5)
        view.map.set_title(f"tokens read: {now.compressed:,} + {now.selected:,} + {now.window:,}", fontsize=10.5)
        fewer, most = f"{now.total:,} of {tokens:,}: {tokens / now.total:.2f} ×", LENGTHS[-1] / totals[-1]
        view.reads.set_title(f"{fewer}\nat 1M tokens: {most:.1f} ×", fontsize=10.5)
