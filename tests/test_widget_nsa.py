"""Chapter 11's map of NSA: scores, blocks and tokens against lists of tokens, and what the explorer draws of them."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from ledger.account.nsa import compressed_seen, tokens_read
from ledger.reference import sparse
from ledger.setups import NSA_PAPER, NsaConfig
from ledger.widgets.nsa import (
    LANES,
    LENGTHS,
    POSITIONS,
    SCORES,
    NsaExplorer,
    block_scores,
    compressed_probs,
    reading_map,
)

pytest.importorskip("matplotlib")

RNG = np.random.default_rng(11)
TINY = NsaConfig(block=4, stride=2, selection_block=4, count=3, initial=1, local=1, window=4, scale=1.0)
SIZES = [NSA_PAPER, TINY]
SIZES += [replace(NSA_PAPER, block=block, stride=stride) for block, stride in ((16, 8), (64, 32), (32, 32))]
SIZES += [replace(NSA_PAPER, block=48, stride=16, selection_block=128, count=5, window=100)]


def listed(position: int, config: NsaConfig) -> tuple[int, int, int]:
    """Tokens of the three branches, one by one; blocks that are selected may be any, so their number counts."""
    starts = [s for s in range(0, position + 1, config.stride) if s + config.block - 1 <= position]
    visible = {token // config.selection_block for token in range(position + 1)}
    near = [token for token in range(position + 1) if position - token < config.window]
    return len(starts), min(len(visible), config.count), len(near)


@pytest.mark.parametrize("config", SIZES)
@pytest.mark.parametrize("position", [0, 1, 3, 14, 30, 31, 47, 63, 64, 500, 3000])
def test_tokens_read_are_those_of_the_lists(config, position):
    compressed, blocks, near = listed(position, config)
    read = tokens_read(position + 1, config)
    assert read == (compressed, min(blocks * config.selection_block, position + 1), near)
    assert read.total == sum(read)


def test_nothing_is_read_of_nothing():
    assert tokens_read(0, NSA_PAPER) == (0, 0, 0)


@pytest.mark.parametrize(
    ("cached_tokens", "read", "ratio"),
    # Table 4 of the paper counts 2048, 2560, 3584 and 5632, with one compressed block more than there are.
    [(8192, 2047, 4.0), (16384, 2559, 6.4), (32768, 3583, 9.1), (65536, 5631, 11.6)],
)
def test_the_papers_expected_ratios(cached_tokens, read, ratio):
    assert tokens_read(cached_tokens, NSA_PAPER).total == read
    assert round(cached_tokens / read, 1) == ratio


def test_the_ratio_tends_to_the_stride():
    assert 15.9 < 10**7 / tokens_read(10**7, NSA_PAPER).total < 16


@pytest.mark.parametrize(("position", "seen"), [(0, 0), (30, 0), (31, 1), (46, 1), (47, 2), (63, 3), (8191, 511)])
def test_a_compressed_block_is_seen_once_it_is_full(position, seen):
    assert compressed_seen(position + 1, NSA_PAPER) == seen


def test_counts_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="cached_tokens is -1"):
        tokens_read(-1, NSA_PAPER)


@pytest.mark.parametrize("config", SIZES)
@pytest.mark.parametrize("tokens", [4, 31, 64, 100, 257, 400])
def test_blocks_score_what_they_share_with_compressed_blocks(config, tokens):
    probs = RNG.random(compressed_seen(tokens, config))
    want = sparse.selection_scores(probs, tokens, config.block, config.stride, config.selection_block)
    assert block_scores(probs, tokens, config) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("config", SIZES)
def test_means_of_scores_are_scores_of_means(config):
    queries, keys = RNG.standard_normal((3, 8)), RNG.standard_normal((150, 8))
    coarse = sparse.compress_blocks(keys, config.block, config.stride)
    weights = np.exp(queries @ coarse.T)
    got = compressed_probs(queries @ keys.T, config)
    assert got == pytest.approx(weights / weights.sum(axis=1, keepdims=True), rel=1e-9)


def test_no_compressed_block_no_probability():
    assert compressed_probs(np.ones((2, 31)), NSA_PAPER).shape == (2, 0)


@pytest.mark.parametrize("position", POSITIONS)
def test_the_map_shows_what_the_count_says(position):
    found = reading_map(position, NSA_PAPER)
    read = tokens_read(position + 1, NSA_PAPER)
    assert len(found.ranges["compressed"]) == read.compressed
    for name, tokens in (("selected", read.selected), ("window", read.window)):
        assert sum(behind - first for first, behind in found.ranges[name]) == tokens
    assert all(0 <= first < behind <= position + 1 for ranges in found.ranges.values() for first, behind in ranges)
    assert max(behind for _, behind in found.ranges["window"]) == position + 1


def test_the_blocks_of_the_map_are_the_forced_and_the_best():
    found = reading_map(4095, NSA_PAPER)
    forced, picked = {0, 62, 63}, set(found.picked)
    assert forced <= picked
    assert len(picked) == 16
    others = sorted(set(range(64)) - forced, key=lambda j: -found.scores[j])
    assert picked - forced == set(others[:13])
    assert found.scores.sum() == pytest.approx(
        2 * len(SCORES), rel=1e-12
    )  # a probability of each head, twice 16 tokens


def test_below_31_the_forced_blocks_alone_are_left():
    found = reading_map(30, NSA_PAPER)
    assert (found.ranges["compressed"], found.ranges["selected"], found.picked) == ([], [(0, 31)], [0])
    assert not found.scores.any()


def drawn(fig) -> dict:
    """Lines and collections that carry a name, by it."""
    return {one.get_gid(): one for ax in fig.axes for one in (*ax.lines, *ax.collections) if one.get_gid()}


def widths(collection) -> list[tuple[float, float]]:
    return [tuple(np.ptp(path.vertices, axis=0)) for path in collection.get_paths()]


def test_the_explorer_draws_the_map():
    found = drawn(NsaExplorer().figure(position=2047, count=8, window=128))
    config = replace(NSA_PAPER, count=8, window=128)
    want = reading_map(2047, config)
    for name in LANES:
        ends = [(path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in found[name].get_paths()]
        assert ends == want.ranges[name]
    heights = [height for _, height in widths(found["scores"])]
    assert heights == pytest.approx(want.scores / want.scores.max())
    assert list(found["reads"].get_ydata()) == [tokens_read(length, config).total for length in LENGTHS]
    assert found["chosen"].get_xydata().tolist() == [[2048, tokens_read(2048, config).total]]


def test_compressed_blocks_of_a_lane_do_not_overlap():
    for sizes in NsaExplorer().controls()["compressed"].options:
        fig = NsaExplorer().figure(position=511, compressed=sizes[1])
        boxes = [path.get_extents() for path in drawn(fig)["compressed"].get_paths()]
        for top in {box.y0 for box in boxes}:
            lane = sorted((box.x0, box.x1) for box in boxes if box.y0 == top)
            assert all(before[1] <= after[0] for before, after in pairwise(lane))


def test_forced_blocks_stand_out_in_the_bars():
    from matplotlib.colors import to_rgba

    from ledger.widgets.base import COLORS

    bars = drawn(NsaExplorer().figure())["scores"]
    named = [
        next(name for name, color in COLORS.items() if to_rgba(color) == tuple(face)) for face in bars.get_facecolor()
    ]
    found = reading_map(4095, NSA_PAPER)
    for j, name in enumerate(named):
        assert name == ("materialize" if j in (0, 62, 63) else "absorb" if j in found.picked else "grid")


@pytest.mark.parametrize("position", [15, 8191])
def test_titles_say_the_numbers(position):
    fig = NsaExplorer().figure(position=position)
    read, titles = tokens_read(position + 1, NSA_PAPER), [ax.get_title(loc="left") for ax in fig.axes]
    assert f"tokens read: {read.compressed:,} + {read.selected:,} + {read.window:,}" in titles
    at_1m = (1 << 20) / tokens_read(1 << 20, NSA_PAPER).total
    assert (
        f"{read.total:,} of {position + 1:,}: {(position + 1) / read.total:.2f} ×\nat 1M tokens: {at_1m:.1f} ×"
        in titles
    )


@pytest.mark.parametrize(("position", "size", "count"), [(4095, 32, 32), (4095, 128, 8), (30, 64, 16)])
def test_the_title_says_how_much_of_the_scores_the_blocks_have(position, size, count):
    found = reading_map(position, replace(NSA_PAPER, selection_block=size, count=count))
    fig = NsaExplorer().figure(position=position, selection_block=size, count=count)
    (title,) = [t for t in (ax.get_title(loc="left") for ax in fig.axes) if "by score" in t]
    of_picked = sum(score for j, score in enumerate(found.scores) if j in found.picked)
    share = of_picked / found.scores.sum() if position >= 31 else 0
    assert title.endswith(f"; {100 * share:.0f}% of the scores")


def test_the_lengths_of_the_scores_reach_the_last_position():
    assert SCORES.shape[1] == POSITIONS[-1] + 1
