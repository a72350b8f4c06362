"""Chapter 11: what the compressed branch's weights say about the blocks of the selected branch."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mutant
from ledger.exercises.making import normal, rewritten, wrong

ANSWER = """\
def selection_scores(compression_probs, cached_tokens, block, stride, selection_block):
    blocks = -(-cached_tokens // selection_block)
    first = stride * np.arange(compression_probs.shape[-1])
    own = selection_block * np.arange(blocks)[:, None]
    shared = np.maximum(np.minimum(own + selection_block, first + block) - np.maximum(own, first), 0)
    weights = (shared / stride).astype(compression_probs.dtype)
    return compression_probs @ weights.T
"""
#: The double sum of the paper, whose indices count from 1, with indices from 0.
FORMULA = """\
def selection_scores(compression_probs, cached_tokens, block, stride, selection_block):
    blocks = compression_probs.shape[-1]
    scores = np.zeros((*compression_probs.shape[:-1], -(-cached_tokens // selection_block)), compression_probs.dtype)
    for j in range(scores.shape[-1]):
        for m in range(selection_block // stride):
            for n in range(block // stride):
                i = selection_block // stride * j - m - n
                if 0 <= i < blocks:
                    scores[..., j] += compression_probs[..., i]
    return scores
"""


def make(rng, dtype, heads, cached_tokens, block, stride, selection_block):
    return given(rng, dtype, (heads,), cached_tokens, block, stride, selection_block)


def make_one_row(rng, dtype, cached_tokens, block, stride, selection_block):
    """No head axis."""
    return given(rng, dtype, (), cached_tokens, block, stride, selection_block)


def make_queries(rng, dtype, queries, heads, cached_tokens, block, stride, selection_block):
    return given(rng, dtype, (queries, heads), cached_tokens, block, stride, selection_block)


def given(rng, dtype, rows, cached_tokens, block, stride, selection_block):
    """Softmax weights over the complete blocks."""
    blocks = max(0, (cached_tokens - block) // stride + 1)
    weights = np.exp(2 * normal(rng, dtype, *rows, blocks))
    return {
        "compression_probs": weights / weights.sum(axis=-1, keepdims=True),
        "cached_tokens": cached_tokens,
        "block": block,
        "stride": stride,
        "selection_block": selection_block,
    }


def make_toy(rng, dtype, **dims):
    probs = np.array([[1, 2, 1, 4, 2, 5, 1]], dtype) / 16
    return {"compression_probs": probs, "cached_tokens": 16, "block": 4, "stride": 2, "selection_block": 8}


def oracle(compression_probs, cached_tokens, block, stride, selection_block):
    """Token by token: each token of a compressed block carries its weight over ``stride`` into its selection block."""
    rows = compression_probs.shape[:-1]
    blocks = -(-cached_tokens // selection_block)
    carried = np.zeros((*rows, blocks * selection_block))
    for i in range(compression_probs.shape[-1]):
        carried[..., i * stride : i * stride + block] += compression_probs[..., i, None].astype(np.float64) / stride
    return carried.reshape(*rows, blocks, selection_block).sum(axis=-1).astype(compression_probs.dtype)


def sizes(heads, cached_tokens, block, stride, selection_block):
    names = ("heads", "cached_tokens", "block", "stride", "selection_block")
    return dict(zip(names, (heads, cached_tokens, block, stride, selection_block), strict=True))


MISTAKES = (
    wrong(
        FORMULA,
        "counted from 0",
        "this is the paper's formula with indices from 0. It counts from 1: taken from 0, each compressed block is "
        "taken selection_block / stride - 1 places too early, 3 with the paper's sizes",
        {},
    ),
    wrong(
        FORMULA,
        "counted from 0, and wrapped around",
        "this is the paper's formula with indices from 0. It counts from 1, and here its negative indices took "
        "blocks from the end",
        {"0 <= i": "-blocks <= i"},
    ),
    wrong(
        ANSWER,
        "each block once",
        "every compressed block that meets a selection block counts once. It counts by the tokens they share, over "
        "stride",
        {"shared / stride": "shared > 0"},
    ),
    wrong(
        ANSWER,
        "wholly inside alone",
        "only compressed blocks that lie wholly inside count. One that reaches over the edge counts on both sides",
        {"shared / stride": "np.where(shared == block, block / stride, 0)"},
    ),
    wrong(
        ANSWER,
        "by the first token",
        "each compressed block was given whole to where it starts. It may reach into the next block",
        {"shared / stride": "(first // selection_block == own // selection_block) * (block / stride)"},
    ),
    wrong(
        ANSWER,
        "by the first token, once",
        "each compressed block was counted once, where it starts. It counts by the tokens it shares with a selection "
        "block, over stride, and may reach into the next one",
        {"shared / stride": "(first // selection_block == own // selection_block)"},
    ),
    wrong(
        ANSWER,
        "cut at the end of a block",
        "what reaches over from the block before is missing: a compressed block counts wherever it has tokens",
        {"shared / stride": "(first // selection_block == own // selection_block) * shared / stride"},
    ),
    wrong(
        ANSWER,
        "counted in tokens",
        "the overlaps count in tokens. They count in strides: divide by stride",
        {"shared / stride": "shared"},
    ),
    wrong(
        ANSWER,
        "over the block",
        "the overlaps were divided by block. They are to be divided by stride",
        {"shared / stride": "shared / block"},
    ),
    wrong(
        ANSWER,
        "whole strides",
        "the overlaps were rounded down to whole strides. Where the sizes are no multiples they count in parts",
        {"shared / stride": "shared // stride"},
    ),
    wrong(
        FORMULA,
        "whole strides only",
        "this is right where block and selection_block are multiples of stride. They need not be: count the tokens "
        "that two blocks share",
        {"* j - m - n": "* j + m - n"},
    ),
    wrong(
        FORMULA,
        "the paper's weights",
        "these are the weights 1, 2, 2, 2, 1 whatever the sizes. They hold for 32, 16 and 64 and what is in "
        "proportion; count the tokens that two blocks share",
        {
            "range(selection_block // stride)": "range(4)",
            "range(block // stride)": "range(2)",
            "selection_block // stride * j - m - n": "4 * j + m - n",
        },
    ),
    wrong(
        ANSWER,
        "largest for the sum",
        "this is the largest term of each score; all are added",
        {"compression_probs @ weights.T": "(compression_probs[..., None, :] * weights).max(axis=-1, initial=0)"},
    ),
    wrong(
        ANSWER,
        "mean for the sum",
        "this is a weighted mean. The terms are added and nothing is divided",
        {"shared / stride": "shared / np.maximum(shared.sum(axis=1, keepdims=True), 1)"},
    ),
    wrong(
        ANSWER,
        "last block missing",
        "the last selection block is missing where it has only begun",
        {"-(-cached_tokens // selection_block)": "cached_tokens // selection_block"},
    ),
)

EXERCISE = Exercise(
    id="selection_scores",
    chapter=11,
    order=2,
    title="from compressed blocks to selection blocks",
    checks="the compressed blocks' weights, each times the strides that it shares with a selection block",
    points=4,
    difficulty=3,
    minutes=20,
    make=make,
    oracle=oracle,
    cases=(
        Case("two blocks by hand", make=make_toy),
        Case("the paper's blocks", sizes(3, 300, 32, 16, 64)),
        Case("the tokens end with a block", sizes(2, 256, 32, 16, 64)),
        Case("odd sizes", sizes(5, 61, 7, 3, 11)),
        Case("selection blocks smaller than compressed ones", sizes(3, 58, 12, 4, 5)),
        Case("blocks side by side", sizes(3, 50, 4, 4, 8)),
        Case("gaps between the compressed blocks", sizes(2, 77, 4, 6, 9)),
        Case("selection blocks of one token", sizes(2, 23, 6, 3, 1)),
        Case("one compressed block", sizes(4, 32, 32, 16, 64)),
        Case("no compressed block", sizes(3, 31, 32, 16, 8)),
        Case("nothing cached", sizes(3, 0, 4, 2, 8)),
        Case("one head", sizes(1, 140, 16, 8, 32)),
        Case("no heads", sizes(0, 60, 8, 4, 16)),
        Case(
            "no axis of heads",
            {"cached_tokens": 75, "block": 8, "stride": 4, "selection_block": 16},
            make=make_one_row,
        ),
        Case("queries and heads", sizes(3, 90, 8, 4, 16) | {"queries": 5}, make=make_queries),
        Case("float32", sizes(4, 200, 16, 8, 32), dtype="float32"),
        Case("strided inputs", sizes(3, 110, 16, 8, 24), layout="strided"),
        Case("the paper's blocks at 8K", sizes(16, 8192, 32, 16, 64)),
    ),
    hints=(
        "Compressed block i holds the tokens from i · stride on, block of them. Selection block j holds those from "
        "j · selection_block on. Draw two such ranges: where does what they share begin, and where does it end?",
        "The shared tokens begin at the later of two starts and end at the earlier of two stops; where that is "
        "negative they share nothing. An axis of length 1 on one of the two lists of starts makes a whole table of "
        "weights, and the scores are a product with it.",
        "Fill the gaps:\n\n"
        "    compressed = ____ * np.arange(____)  # first tokens\n"
        "    selected = ____ * np.arange(____)[:, None]\n"
        "    shared = np.minimum(____, ____) - np.maximum(____, ____)\n"
        "    weights = np.maximum(____, 0) / ____  # (selection blocks, compressed blocks)\n"
        "    return compression_probs @ ____.astype(____)",
    ),
    mistakes=MISTAKES,
    mutants=(
        *(Mutant(mistake.value, mistake.name) for mistake in MISTAKES),
        Mutant(
            rewritten(
                ANSWER,
                "heads_added",
                {"return compression_probs @": "return compression_probs.reshape(-1, len(first)).sum(axis=0) @"},
            ),
            "has shape",
        ),
        Mutant(
            rewritten(ANSWER, "always_float64", {".astype(compression_probs.dtype)": ""}),
            "dtype float64; wanted float32",
        ),
    ),
)
