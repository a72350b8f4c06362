"""Chapter 11: the compressed branch's keys, one mean for each complete block."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mutant
from ledger.exercises.making import normal, rewritten, wrong

ANSWER = """\
def compress_blocks(keys, block, stride):
    first, size = 0, block
    starts = range(first, len(keys) - block + 1, stride)
    rows = [keys[start : start + size].mean(axis=0) for start in starts]
    return np.array(rows, keys.dtype).reshape(len(rows), keys.shape[1])
"""


def make(rng, dtype, tokens, block, stride, dim):
    return {"keys": normal(rng, dtype, tokens, dim), "block": block, "stride": stride}


def make_toy(rng, dtype, **dims):
    keys = np.array([(2, 0), (4, 0), (6, 4), (8, 4), (0, 8), (2, 8), (7, 7)], dtype)
    return {"keys": keys, "block": 4, "stride": 2}


def oracle(keys, block, stride):
    """A matrix that holds 1 where a token is in a block, over the tokens in it."""
    token = np.arange(len(keys))
    starts = np.array([start for start in token[::stride] if start + block <= len(keys)], int)
    held = (starts[:, None] <= token) & (token < starts[:, None] + block)
    return (held / block @ np.asarray(keys, np.float64)).astype(keys.dtype)


def sizes(tokens, block, stride, dim):
    return dict(zip(("tokens", "block", "stride", "dim"), (tokens, block, stride, dim), strict=True))


MISTAKES = (
    wrong(
        ANSWER,
        "started blocks kept",
        "a block that has only begun has a row as well. Only complete blocks have one",
        {"len(keys) - block + 1": "len(keys)"},
    ),
    wrong(
        ANSWER,
        "one block short",
        "the block that ends with the last token is missing",
        {"block + 1": "block"},
    ),
    wrong(
        ANSWER,
        "no overlap",
        "the blocks lie side by side. They start stride tokens apart, whatever their length",
        {"block + 1, stride": "block + 1, block"},
    ),
    wrong(
        ANSWER,
        "block and stride exchanged",
        "block and stride are exchanged",
        {"    first, size": "    block, stride = stride, block\n    first, size"},
    ),
    wrong(
        ANSWER,
        "stride tokens of each block",
        "only the first stride tokens of each block are in its mean. It has block of them",
        {"0, block": "0, stride"},
    ),
    wrong(
        ANSWER,
        "counted from the end",
        "the blocks are laid out from the last token backwards. The first block starts at token 0",
        {"0, block": "(len(keys) - block) % stride if len(keys) >= block else 0, block"},
    ),
    wrong(
        ANSWER,
        "added up",
        "the tokens were added up. Divide by how many a block has",
        {".mean(axis=0)": ".sum(axis=0)"},
    ),
    wrong(
        ANSWER,
        "divided by the stride",
        "the sum was divided by stride. A block has block tokens",
        {".mean(axis=0)": ".sum(axis=0) / stride"},
    ),
    wrong(
        ANSWER,
        "first token of each block",
        "this is the first token of each block",
        {"0, block": "0, 1"},
    ),
    wrong(
        ANSWER,
        "largest of each block",
        "this is the largest of each block; the mean is asked for",
        {".mean(axis=0)": ".max(axis=0)"},
    ),
)

EXERCISE = Exercise(
    id="compress_blocks",
    chapter=11,
    order=1,
    title="one key for a block",
    checks="the mean of each complete block, stride tokens apart",
    points=2,
    difficulty=1,
    minutes=8,
    make=make,
    oracle=oracle,
    cases=(
        Case("seven tokens by hand", make=make_toy),
        Case("odd sizes", sizes(45, 7, 3, 5)),
        Case("the last token ends a block", sizes(43, 7, 3, 5)),
        Case("blocks side by side", sizes(26, 4, 4, 3)),
        Case("gaps between the blocks", sizes(41, 3, 7, 4)),
        Case("a block at every token", sizes(12, 5, 1, 3)),
        Case("blocks of one token", sizes(11, 1, 2, 3)),
        Case("one block", sizes(8, 8, 3, 5)),
        Case("fewer tokens than a block", sizes(31, 32, 16, 6)),
        Case("no tokens", sizes(0, 4, 2, 3)),
        Case("float32", sizes(50, 8, 4, 16), dtype="float32"),
        Case("strided inputs", sizes(37, 6, 4, 5), layout="strided"),
        Case("the paper's blocks on 1,000 tokens", sizes(1000, 32, 16, 192)),
    ),
    hints=(
        "Write down where the blocks start: 0, stride, 2 · stride and so on. What is the last start whose block still "
        "lies within the tokens?",
        "`range` has a first, a last and a step. It leaves its end out, so a block that ends with the last token needs "
        "an end one further. Without any block the result still has `dim` columns.",
        "Fill the gaps:\n\n"
        "    starts = range(0, ____, ____)\n"
        "    rows = [____ for start in starts]\n"
        "    return np.array(rows, ____).reshape(____, ____)",
    ),
    mistakes=MISTAKES,
    mutants=(
        *(Mutant(mistake.value, mistake.name) for mistake in MISTAKES),
        Mutant(
            rewritten(
                ANSWER, "one_number_a_block", {".mean(axis=0)": ".mean()", ".reshape(len(rows), keys.shape[1])": ""}
            ),
            "has shape",
        ),
        Mutant(
            rewritten(ANSWER, "always_float64", {"rows, keys.dtype": "rows, np.float64"}),
            "dtype float64; wanted float32",
        ),
    ),
)
