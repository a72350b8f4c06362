"""Chapter 11: the blocks of the selected branch."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mutant
from ledger.exercises.making import normal, rewritten, wrong
from ledger.reference import sparse

ANSWER = """\
def pick_blocks(scores, position, count, initial, local, selection_block):
    visible = position // selection_block + 1
    seen = scores[:visible]
    first, last = range(min(initial, visible)), range(max(0, visible - local), visible)
    forced = sorted({*first, *last})
    best = np.argsort(-seen, kind="stable").tolist()
    picks = [*forced, *[j for j in best if j not in forced]][:count]
    return np.array([*picks, *[-1] * (count - len(picks))], np.int32)
"""


def make(rng, dtype, blocks, position, count, initial, local, selection_block):
    """Scores of all ``blocks``; after the position they would win."""
    scores = np.abs(normal(rng, dtype, blocks))
    scores[position // selection_block + 1 :] += 10
    return {
        "scores": scores,
        "position": position,
        "count": count,
        "initial": initial,
        "local": local,
        "selection_block": selection_block,
    }


def make_nan_after(rng, dtype, **dims):
    """What is not visible holds no scores."""
    args = make(rng, dtype, **dims)
    args["scores"][args["position"] // args["selection_block"] + 1 :] = np.nan
    return args


def make_forced_lowest(rng, dtype, **dims):
    """The forced blocks have the lowest scores, and all scores are below 0."""
    args = make(rng, dtype, **dims)
    visible = args["position"] // args["selection_block"] + 1
    args["scores"][:visible] -= 9
    args["scores"][: args["initial"]] -= 50
    args["scores"][max(0, visible - args["local"]) : visible] -= 50
    return args


def make_ties(rng, dtype, **dims):
    """Two values alone."""
    args = make(rng, dtype, **dims)
    return args | {"scores": rng.integers(0, 2, len(args["scores"])).astype(dtype)}


def make_zeros(rng, dtype, **dims):
    """No compressed block yet: every score is 0."""
    args = make(rng, dtype, **dims)
    return args | {"scores": np.zeros_like(args["scores"])}


def make_toy(rng, dtype, **dims):
    scores = np.array([0.1, 0.7, 0.2, 0.7, 0.3, 0.4, 0.9], dtype)
    return dict(scores=scores, position=47, count=4, initial=1, local=1, selection_block=8)


def oracle(scores, position, count, initial, local, selection_block):
    """By lists of the visible blocks, forced ones first."""
    visible = len(range(0, position + 1, selection_block))
    picks = sparse.pick_blocks(scores[:visible], count, initial, local)
    return np.array([*picks, *[-1] * (count - len(picks))], np.int32)


def sizes(blocks, position, count, initial, local, selection_block):
    names = ("blocks", "position", "count", "initial", "local", "selection_block")
    return dict(zip(names, (blocks, position, count, initial, local, selection_block), strict=True))


MISTAKES = (
    wrong(
        ANSWER,
        "nothing forced",
        "the first and last blocks are not forced; scores alone decide",
        {"sorted({*first, *last})": "[]"},
    ),
    wrong(
        ANSWER,
        "first blocks not forced",
        "the first `initial` blocks are not forced",
        {"sorted({*first, *last})": "sorted(last)"},
    ),
    wrong(
        ANSWER,
        "last blocks not forced",
        "the last `local` visible blocks are not forced",
        {"sorted({*first, *last})": "sorted(first)"},
    ),
    wrong(
        ANSWER,
        "local before the own block",
        "the forced last blocks are those before the query's own. Its own is one of the `local` ones",
        {"range(max(0, visible - local), visible)": "range(max(0, visible - 1 - local), visible - 1)"},
    ),
    wrong(
        ANSWER,
        "own block and local ones",
        "one block too many is forced: the query's own block is one of the `local` ones",
        {"visible - local": "visible - 1 - local"},
    ),
    wrong(
        ANSWER,
        "forced on top of count",
        "the forced blocks came on top of count. They are among the count",
        {"seen = scores[:visible]": "seen, count = scores[:visible], count + initial + local"},
    ),
    wrong(
        ANSWER,
        "count beside the forced ones",
        "count blocks were chosen by score beside the forced ones. The forced ones are among the count",
        {"in forced]][:count]": "in forced][:count]]"},
    ),
    wrong(
        ANSWER,
        "count beside the forced ones, padded",
        "count blocks were chosen by score beside the forced ones, and -1 fills up to both. The forced ones are among "
        "the count",
        {"in forced]][:count]": "in forced][:count]]\n    count += len(forced)"},
    ),
    wrong(
        ANSWER,
        "all forced where local is 0",
        "with local = 0 every block is forced: [-0:] is the whole array, not its last 0 elements",
        {"range(max(0, visible - local), visible)": "range(max(0, visible - local) if local else 0, visible)"},
    ),
    wrong(
        ANSWER,
        "forced twice",
        "a forced block was chosen again by its score",
        {" if j not in forced": ""},
    ),
    wrong(
        ANSWER,
        "first and last blocks twice",
        "at early positions a block is among the first and among the last; it was taken twice",
        {"sorted({*first, *last})": "[*first, *last]"},
    ),
    wrong(
        ANSWER,
        "all blocks visible",
        "blocks after the position were chosen, or taken for the last ones. The query sees none of them",
        {"position // selection_block + 1": "len(scores)"},
    ),
    wrong(
        ANSWER,
        "position counted from 1",
        "where a block has just begun it is missing. Positions count from 0: at position 64 there are 65 tokens",
        {"position // selection_block + 1": "-(-position // selection_block)"},
    ),
    wrong(
        ANSWER,
        "own block not visible",
        "the block of the query itself is missing. It is visible, though it may have only begun",
        {"position // selection_block + 1": "position // selection_block"},
    ),
    wrong(
        ANSWER,
        "higher index wins ties",
        "of equal scores the higher block was taken; the lower wins",
        {'np.argsort(-seen, kind="stable")': 'np.argsort(seen, kind="stable")[::-1]'},
    ),
    wrong(
        ANSWER,
        "sorted upwards, then turned around",
        "an ascending order was turned around, and equals with it: the forced blocks stand in descending order, and of "
        "equal scores the higher block comes first. Sort the negative, stably",
        {
            "sorted({*first, *last})": "sorted({*first, *last})[::-1]",
            'np.argsort(-seen, kind="stable")': 'np.argsort(seen, kind="stable")[::-1]',
        },
    ),
    wrong(
        ANSWER,
        "forced ones by score",
        "the forced blocks stand by their scores. They come first in ascending order",
        {"sorted({*first, *last})": "sorted(sorted({*first, *last}), key=lambda j: -seen[j])"},
    ),
    wrong(
        ANSWER,
        "lowest scores",
        "the blocks with the lowest scores were chosen",
        {"-seen": "seen"},
    ),
    wrong(
        ANSWER,
        "0 for none",
        "block 0 stands where no block is left. -1 is to stand there",
        {"[-1]": "[0]"},
    ),
    wrong(
        ANSWER,
        "-1 first",
        "the blocks were sorted, and -1 stands first. The forced ones come first, then the others by descending score, "
        "then -1",
        {"[*picks, *[-1] * (count - len(picks))]": "sorted([*picks, *[-1] * (count - len(picks))])"},
    ),
    wrong(
        ANSWER,
        "blocks sorted",
        "these are the right blocks, sorted. The forced ones come first, then the others by descending score",
        {"[*picks, ": "[*sorted(picks), "},
    ),
    wrong(
        ANSWER,
        "forced last",
        "the forced blocks stand after the others; they come first",
        {"[:count]\n": "[:count]\n    picks = [*picks[len(forced) :], *picks[: len(forced)]]\n"},
    ),
)

EXERCISE = Exercise(
    id="pick_blocks",
    chapter=11,
    order=3,
    title="which blocks a group reads",
    checks="the forced blocks and the best of the others, count in all",
    points=3,
    difficulty=2,
    minutes=15,
    make=make,
    oracle=oracle,
    cases=(
        Case("seven blocks by hand", make=make_toy),
        Case("odd sizes", sizes(29, 171, 9, 2, 3, 7)),
        Case("a block has just begun", sizes(20, 64, 5, 1, 2, 8)),
        Case("a block has just ended", sizes(20, 63, 5, 1, 2, 8)),
        Case("forced blocks with the lowest scores", sizes(24, 150, 8, 1, 2, 10), make=make_forced_lowest),
        Case("all blocks are forced", sizes(40, 300, 5, 2, 3, 9)),
        Case("fewer blocks than count", sizes(30, 44, 12, 1, 2, 5)),
        Case("first and last blocks are the same", sizes(11, 13, 8, 2, 4, 6)),
        Case("the first token", sizes(6, 0, 4, 1, 2, 64)),
        Case("nothing forced", sizes(30, 200, 7, 0, 0, 9)),
        Case("only the first blocks forced", sizes(31, 230, 7, 3, 0, 10)),
        Case("fewer blocks than are forced last", sizes(12, 25, 6, 0, 4, 10), make=make_forced_lowest),
        Case("ties", sizes(40, 330, 12, 1, 2, 10), make=make_ties),
        Case("every score is 0", sizes(8, 30, 6, 1, 2, 5), make=make_zeros),
        Case("NaN after the visible blocks", sizes(33, 140, 10, 1, 2, 8), make=make_nan_after),
        Case("one token a block", sizes(50, 37, 6, 1, 3, 1)),
        Case("no blocks wanted", sizes(9, 50, 0, 0, 0, 8)),
        Case("float32", sizes(25, 180, 8, 1, 2, 9), dtype="float32"),
        Case("strided inputs", sizes(27, 190, 8, 1, 2, 10), layout="strided"),
        Case("the paper's sizes at 64K", sizes(1024, 65_535, 16, 1, 2, 64)),
    ),
    hints=(
        "The query at `position` sees its own block and all before it. How many blocks is that at position 63, and at "
        "64, when a block has 8 tokens?",
        "Lift the scores of forced blocks above all others, in a copy, and they come first by themselves. A stable "
        "sort keeps the order of equals, but it sorts upwards: what do you sort to have the largest first?",
        "Fill the gaps:\n\n"
        "    visible = ____\n"
        "    ranked = ____.copy()\n"
        "    ranked[:____] = np.inf\n"
        "    ranked[max(0, ____) :] = np.inf\n"
        '    best = np.argsort(____, kind="stable")[:____]\n'
        "    picks = np.full(____, ____, np.int32)\n"
        "    picks[: len(best)] = ____\n"
        "    return picks",
    ),
    mistakes=MISTAKES,
    mutants=(
        *(Mutant(mistake.value, mistake.name) for mistake in MISTAKES),
        Mutant(rewritten(ANSWER, "not_padded", {"[*picks, *[-1] * (count - len(picks))]": "picks"}), "has shape"),
        Mutant(rewritten(ANSWER, "wide_integers", {"np.int32": "np.int64"}), "dtype int64; wanted int32"),
    ),
)
