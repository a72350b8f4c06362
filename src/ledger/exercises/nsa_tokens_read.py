"""Chapter 11: how many keys one query of native sparse attention meets."""

from ledger.exercises.base import Case, Exercise, Mutant
from ledger.exercises.making import drawn, rewritten, wrong

ANSWER = """\
def nsa_tokens_read(cached_tokens, block, stride, selection_block, count, window):
    compressed = max(0, (cached_tokens - block) // stride + 1)
    selected = min(count * selection_block, cached_tokens)
    recent = min(window, cached_tokens)
    return compressed + selected + recent
"""


NAMES = ("cached_tokens", "block", "stride", "selection_block", "count", "window")


def make(rng, dtype):
    """Sizes of which every branch reads a part of the tokens only."""
    sizes = drawn(rng, cached_tokens=(5000, 90_000), block=(20, 60), stride=(5, 18), selection_block=(30, 90))
    return sizes | drawn(rng, count=(4, 20), window=(100, 900))


def given(*values):
    return lambda rng, dtype: dict(zip(NAMES, values, strict=True))


def paper(cached_tokens):
    return given(cached_tokens, 32, 16, 64, 16, 512)


def oracle(cached_tokens, block, stride, selection_block, count, window):
    """By counting: the starts of complete blocks, and the tokens of the other branches in a list."""
    tokens = range(cached_tokens)
    compressed = sum(1 for start in tokens[::stride] if start + block <= cached_tokens)
    return compressed + len(tokens[: count * selection_block]) + len(tokens[max(0, cached_tokens - window) :])


MISTAKES = (
    wrong(
        ANSWER,
        "started blocks counted",
        "blocks that have only begun are counted. Only complete ones have a compressed key",
        {"max(0, (cached_tokens - block) // stride + 1)": "-(-cached_tokens // stride)"},
    ),
    wrong(
        ANSWER,
        "one block short",
        "one compressed key is missing: the first block, at start 0, counts too",
        {" + 1)": ")"},
    ),
    wrong(
        ANSWER,
        "one for each stride",
        "a compressed key was counted for each stride. A block that starts in the last strides is not complete: it "
        "needs block tokens",
        {"max(0, (cached_tokens - block) // stride + 1)": "cached_tokens // stride"},
    ),
    wrong(
        ANSWER,
        "less than no block",
        "with few tokens the compressed keys are counted below 0. There is none of them then",
        {"max(0, (cached_tokens - block) // stride + 1)": "(cached_tokens - block) // stride + 1"},
    ),
    wrong(
        ANSWER,
        "blocks side by side",
        "the compressed blocks were laid side by side. They start stride tokens apart",
        {"max(0, (cached_tokens - block) // stride + 1)": "cached_tokens // block"},
    ),
    wrong(
        ANSWER,
        "all tokens compressed again",
        "all tokens are counted for the compressed branch. Their means are cached: one key a block is read",
        {"max(0, (cached_tokens - block) // stride + 1)": "cached_tokens"},
    ),
    wrong(
        ANSWER,
        "blocks for tokens",
        "a selected block counts as one. All its tokens are read",
        {"count * selection_block": "count"},
    ),
    wrong(
        ANSWER,
        "forced on top of count",
        "three blocks were added to count for the forced ones. Those are among the count",
        {"count * selection_block": "(count + 3) * selection_block"},
    ),
    wrong(
        ANSWER,
        "more than there is to select",
        "more tokens are selected than are cached",
        {"min(count * selection_block, cached_tokens)": "count * selection_block"},
    ),
    wrong(
        ANSWER,
        "more than there is in the window",
        "the window holds more tokens than are cached",
        {"min(window, cached_tokens)": "window"},
    ),
    wrong(
        ANSWER,
        "no more than dense",
        "the sum was cut to the tokens cached. Each branch has keys of its own, and at short contexts the three of "
        "them together read more than dense attention would",
        {"return compressed + selected + recent": "return min(compressed + selected + recent, cached_tokens)"},
    ),
    wrong(
        ANSWER,
        "window left out",
        "the window is left out",
        {" + recent": ""},
    ),
    wrong(
        ANSWER,
        "compressed keys left out",
        "the compressed keys are left out",
        {"return compressed + ": "return "},
    ),
)

EXERCISE = Exercise(
    id="nsa_tokens_read",
    chapter=11,
    order=6,
    title="what a step reads",
    checks="compressed keys, tokens of the selected blocks and of the window, added",
    points=2,
    difficulty=1,
    minutes=6,
    make=make,
    oracle=oracle,
    cases=(
        Case("100 tokens by hand", make=given(100, 8, 4, 10, 3, 20)),
        Case("drawn at random", make=make),
        Case("the paper's sizes at 8K", make=paper(8192)),
        Case("the paper's sizes at 64K", make=paper(65_536)),
        Case("a last block that has just ended", make=given(1000, 40, 16, 50, 3, 100)),
        Case("a last block that has only begun", make=given(1003, 40, 16, 50, 3, 100)),
        Case("more blocks than there are tokens for", make=paper(700)),
        Case("fewer tokens than the window", make=paper(200)),
        Case("one token short of a compressed block", make=paper(31)),
        Case("one compressed block", make=paper(32)),
        Case("far fewer tokens than a compressed block", make=given(10, 64, 16, 64, 2, 8)),
        Case("gaps between the compressed blocks", make=given(500, 10, 25, 20, 4, 50)),
        Case("nothing cached", make=paper(0)),
        Case("1M tokens", make=paper(1 << 20)),
    ),
    hints=(
        "Three terms, one a branch. Which of them grows with the context?",
        "The number of complete blocks is what compress_blocks returns in rows: the starts 0, stride, … up to the last "
        "one whose block fits. With too few tokens for a block it is 0, and // of a negative number rounds down.",
        "Fill the gaps:\n\n"
        "    compressed = max(0, ____ // ____ + ____)\n"
        "    return compressed + min(____, ____) + min(____, ____)",
    ),
    mistakes=MISTAKES,
    mutants=(
        *(Mutant(mistake.value, mistake.name) for mistake in MISTAKES),
        Mutant(
            rewritten(
                ANSWER,
                "float_for_a_count",
                {"return compressed": "return 1.0 * compressed"},
            ),
            "wanted an int",
        ),
    ),
)
