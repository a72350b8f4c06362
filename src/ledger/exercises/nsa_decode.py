"""Chapter 11: one decoding step of native sparse attention, for one group of heads."""

import math
from itertools import permutations

import numpy as np

from ledger.exercises import compress_blocks, pick_blocks, selection_scores
from ledger.exercises.base import Case, Exercise, Mutant
from ledger.exercises.making import normal, rewritten, wrong
from ledger.reference import sparse
from ledger.setups import NSA_PAPER, NsaConfig

ANSWER = """\
def nsa_decode(query, branches, gates, config):
    c, tokens = config, len(branches["selected"][0])

    def logits(keys):
        return c.scale * (query @ keys.T)

    def softmax(scores):
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
        return weights / weights.sum(axis=-1, keepdims=True)

    def attend(keys, values):
        return softmax(logits(keys)) @ values

    def means(x):
        rows = [x[start : start + c.block].mean(axis=0) for start in range(0, tokens - c.block + 1, c.stride)]
        return np.array(rows, x.dtype).reshape(len(rows), x.shape[1])

    def choose(scores):
        last = len(scores)
        forced = sorted({*range(min(c.initial, last)), *range(max(0, last - c.local), last)})
        best = np.argsort(-scores, kind="stable").tolist()
        picks = [*forced, *[j for j in best if j not in forced]][: c.count]
        return [*picks, *[-1] * (c.count - len(picks))]

    def tokens_of(picks):
        own = [range(j * c.selection_block, (j + 1) * c.selection_block) for j in picks if j >= 0]
        return [t for listed in own for t in listed if t < tokens]

    coarse_keys, coarse_values = map(means, branches["compressed"])
    weights = softmax(logits(coarse_keys))
    first = c.stride * np.arange(len(coarse_keys))
    own = c.selection_block * np.arange(-(-tokens // c.selection_block))[:, None]
    shared = np.minimum(own + c.selection_block, first + c.block) - np.maximum(own, first)
    scores = weights @ np.maximum(shared, 0).T.astype(query.dtype)
    keys, values = branches["selected"]
    listed = tokens_of(choose(scores.sum(axis=0)))
    selected = attend(keys[listed], values[listed])
    start, stop = max(0, tokens - c.window), tokens
    window = attend(*(x[start:stop] for x in branches["window"]))
    parts = np.stack([attend(coarse_keys, coarse_values), selected, window])
    return (parts * gates[:, :, None]).sum(axis=0)
"""


#: Scores nearer to each other than this, over the largest, may change places in float32.
APART = 1e-4
BRANCHES = ("compressed", "selected", "window")


def make(rng, dtype, tokens, heads, dim, value_dim, **sizes):
    """Keys of the compressed branch that change slowly, so that its weights differ from block to block."""
    config = NsaConfig(**sizes, scale=float(dim**-0.5 * rng.uniform(0.8, 1.2)))
    while True:
        branches = {name: (normal(rng, dtype, tokens, dim), normal(rng, dtype, tokens, value_dim)) for name in BRANCHES}
        slow = np.repeat(normal(rng, dtype, tokens, dim), config.stride, axis=0)[:tokens]
        branches["compressed"][0][:] = branches["compressed"][0] / 2 + slow
        query = normal(rng, dtype, heads, dim)
        if told_apart(group_scores(query, branches, config)):
            break
    gates = rng.uniform(0.05, 0.95, (3, heads)).astype(dtype)
    return {"query": query, "branches": branches, "gates": gates, "config": config}


def told_apart(scores):
    """Whether no rounding changes the choice: scores are equal without any rounding (all 0, or made from one compressed
    block, whose weight is 1), or a good deal apart."""
    gaps = np.diff(np.sort(scores[scores > 0]))
    return not gaps.any() or bool(gaps.min() > APART * scores.max())


def make_large(rng, dtype, **dims):
    """A key feature of 1 that gives every score of a head 1,000 more, or 1,000 less; attention is the same without."""
    while True:
        args = make(rng, dtype, **dims)
        args["query"][:, 0] = np.resize([1000, -1000], len(args["query"])) / args["config"].scale
        for keys, _ in args["branches"].values():
            keys[:, 0] = 1
        if told_apart(group_scores(args["query"], args["branches"], args["config"])):
            return args


def make_toy(rng, dtype, **dims):
    values, zeros = np.arange(6, dtype=dtype)[:, None], np.zeros((6, 1), dtype)
    coarse = np.array([[math.log(3)]] * 2 + [[0]] * 4, dtype)
    sizes = dict(block=2, stride=2, selection_block=2, count=2, initial=0, local=1, window=1)
    return {
        "query": np.ones((1, 1), dtype),
        "branches": {name: (coarse if name == "compressed" else zeros, values.copy()) for name in BRANCHES},
        "gates": np.ones((3, 1), dtype),
        "config": NsaConfig(**sizes, scale=1.0),
    }


def group_scores(query, branches, config):
    """Scores of the selection blocks, added over the heads; float64, by the oracles of the parts."""
    c, tokens = config, len(branches["selected"][0])
    keys = compress_blocks.oracle(branches["compressed"][0].astype(np.float64), c.block, c.stride)
    weights = softmax(c.scale * (query.astype(np.float64) @ keys.T))
    return selection_scores.oracle(weights, tokens, c.block, c.stride, c.selection_block).sum(axis=0)


def oracle(query, branches, gates, config):
    """Tokens in lists, one branch after the other, float64."""
    c, tokens = config, len(branches["selected"][0])
    coarse = [compress_blocks.oracle(x.astype(np.float64), c.block, c.stride) for x in branches["compressed"]]
    scores = group_scores(query, branches, config)
    picks = pick_blocks.oracle(scores, tokens - 1, c.count, c.initial, c.local, c.selection_block).tolist()
    parts = [
        (coarse, list(range(len(coarse[0])))),
        (branches["selected"], [t for t in range(tokens) if t // c.selection_block in picks]),
        (branches["window"], list(range(tokens))[max(0, tokens - c.window) :]),
    ]
    result = np.zeros((len(query), branches["window"][1].shape[1]))
    for (pair, listed), gate in zip(parts, gates.astype(np.float64), strict=True):
        result += gate[:, None] * sparse.attend(query, *pair, listed, c.scale)[0]
    return result.astype(query.dtype)


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    return weights / weights.sum(axis=-1, keepdims=True)


def sizes(tokens, heads, dim, value_dim, block, stride, selection_block, count, initial, local, window):
    names = ("tokens", "heads", "dim", "value_dim", "block", "stride", "selection_block", "count")
    values = (tokens, heads, dim, value_dim, block, stride, selection_block, count)
    return dict(zip(names, values, strict=True)) | {"initial": initial, "local": local, "window": window}


def paper(tokens, heads, dim, value_dim):
    """The block sizes of the paper."""
    own = {name: value for name, value in vars(NSA_PAPER).items() if name != "scale"}
    return {"tokens": tokens, "heads": heads, "dim": dim, "value_dim": value_dim} | own


_FORCED = "{*range(min(c.initial, last)), *range(max(0, last - c.local), last)}"
_WINDOW = "max(0, tokens - c.window), tokens"
_COARSE = 'coarse_keys, coarse_values = map(means, branches["compressed"])'
#: The window of position ``tokens``, where no token stands.
LATE_WINDOW = {_WINDOW: "max(0, tokens + 1 - c.window), tokens"}
#: The choice of position ``tokens``, where a block begins if the tokens end with one: what the name adds, what was
#: done, and how.
LATE_CHOICES = (
    (
        "",
        "blocks were picked for position `tokens`: where a block has just ended, one local block too few is forced.",
        {"max(0, last - c.local), last)})": "max(0, tokens // c.selection_block + 1 - c.local), last)})"},
    ),
    (
        ", a block without tokens",
        "blocks were picked for position `tokens`: where a block has just ended, a place went to one without tokens.",
        {
            "max(0, last - c.local), last)})": "max(0, tokens // c.selection_block + 1 - c.local), "
            "max(last, tokens // c.selection_block + 1))})"
        },
    ),
)
TOGETHER = {
    "    parts = np.stack([attend(coarse_keys, coarse_values), selected, window])": """\
    cut = [x[start:stop] for x in branches["window"]]
    pairs = [(coarse_keys, coarse_values), (keys[listed], values[listed]), cut]
    shares = softmax(np.concatenate([logits(k) for k, _ in pairs], axis=1))
    ends = np.cumsum([len(k) for k, _ in pairs])[:2]
    parts = np.stack([w @ v for w, (_, v) in zip(np.split(shares, ends, axis=1), pairs)])"""
}

MISTAKES = (
    wrong(
        ANSWER,
        "each head its own blocks",
        "each head chose blocks of its own. The scores are added up over the heads, and all read the same blocks",
        {
            "selected = attend(keys[listed], values[listed])": "chosen = [tokens_of(choose(one)) for one in scores]\n"
            "    rows = [attend(keys[t], values[t])[head] for head, t in enumerate(chosen)]\n"
            "    selected = np.array(rows, query.dtype).reshape(len(query), values.shape[1])"
        },
    ),
    wrong(
        ANSWER,
        "the first head chooses",
        "the blocks were chosen by the first head's scores. Those of all heads are added up",
        {"scores.sum(axis=0)": "scores[:1].sum(axis=0)"},
    ),
    wrong(
        ANSWER,
        "the loudest head chooses",
        "the blocks were chosen by the largest score of any head. Those of all heads are added up",
        {"scores.sum(axis=0)": "scores.max(axis=0, initial=0)"},
    ),
    *(
        wrong(
            ANSWER,
            f"{name} keys for all",
            f"all branches used the keys and values of the {name} branch. Each has its own",
            {"    c, tokens =": f'    branches = dict.fromkeys(branches, branches["{name}"])\n    c, tokens ='},
        )
        for name in BRANCHES
    ),
    *(
        wrong(
            ANSWER,
            f"{other} keys in the {name} branch",
            f"the {name} branch used the keys and values of the {other} branch. Each has its own",
            {"    c, tokens =": f'    branches = branches | {{"{name}": branches["{other}"]}}\n    c, tokens ='},
        )
        for name, other in permutations(BRANCHES, 2)
    ),
    wrong(
        ANSWER,
        "compressed branch not compressed",
        "the compressed branch attended to all of its tokens, whose weights chose the blocks. It attends to means of "
        "blocks, keys and values",
        {_COARSE: 'coarse_keys, coarse_values = branches["compressed"]'},
    ),
    wrong(
        ANSWER,
        "compressed output not compressed",
        "the chosen blocks are right, but the output of the compressed branch is attention over all of its tokens. It "
        "attends to the means of its blocks, keys and values",
        {"attend(coarse_keys, coarse_values)": 'attend(*branches["compressed"])'},
    ),
    wrong(
        ANSWER,
        "values not compressed",
        "the values of the compressed branch are those of the first token of each block. Compress them like the keys",
        {_COARSE: f"{_COARSE}\n    coarse_values = branches['compressed'][1][:: c.stride][: len(coarse_keys)]"},
    ),
    wrong(
        ANSWER,
        "values cut off",
        "the values of the compressed branch are those of its first tokens, as many as there are blocks. Compress them "
        "like the keys",
        {_COARSE: f"{_COARSE}\n    coarse_values = branches['compressed'][1][: len(coarse_keys)]"},
    ),
    wrong(
        ANSWER,
        "chosen by the selected branch's keys",
        "the blocks were chosen by compressing the selected branch's keys. The weights of the compressed branch "
        "choose them",
        {"weights = softmax(logits(coarse_keys))": 'weights = softmax(logits(means(branches["selected"][0])))'},
    ),
    wrong(
        ANSWER,
        "chosen before the softmax",
        "the blocks were chosen by products of query and keys. The softmax weights choose them: large values of one "
        "head must not drown the others",
        {"weights = softmax(logits(coarse_keys))": "weights = logits(coarse_keys)"},
    ),
    wrong(
        ANSWER,
        "counted from 0",
        "the scores follow the paper's formula with indices from 0. It counts from 1",
        {"c.selection_block))[:, None]": "c.selection_block))[:, None] - c.selection_block + c.stride"},
    ),
    wrong(
        ANSWER,
        "started blocks kept",
        "the compressed branch has keys for blocks that have only begun",
        {"tokens - c.block + 1": "tokens"},
    ),
    wrong(
        ANSWER,
        "nothing forced",
        "the first and last blocks are not forced",
        {f"sorted({_FORCED})": "[]"},
    ),
    wrong(
        ANSWER,
        "initial and local swapped",
        "initial counts the first blocks, local the last ones",
        {_FORCED: "{*range(min(c.local, last)), *range(max(0, last - c.initial), last)}"},
    ),
    wrong(
        ANSWER,
        "forced on top of count",
        "the forced blocks came on top of count. They are among the count",
        {"[: c.count]": "[: c.count + c.initial + c.local]"},
    ),
    wrong(
        ANSWER,
        "-1 taken for a block",
        "-1 was taken for a block, and read tokens from the end once more. It stands for none",
        {" if j >= 0": ""},
    ),
    wrong(
        ANSWER,
        "block numbers taken for tokens",
        "the block numbers were taken for tokens. Each stands for selection_block of them",
        {"return [t for listed in own for t in listed if t < tokens]": "return [j for j in picks if j >= 0]"},
    ),
    wrong(
        ANSWER,
        "window at position tokens",
        "the window is that of position `tokens`, and one token short. The last position is tokens - 1",
        LATE_WINDOW,
    ),
    *(
        wrong(ANSWER, f"{what} at position tokens{more}", f"{says} The last position is tokens - 1", late | late_window)
        for what, late_window in (("choice", {}), ("choice and window", LATE_WINDOW))
        for more, says, late in LATE_CHOICES
    ),
    wrong(
        ANSWER,
        "a window of 0 holds all",
        "a window of 0 holds all tokens: x[-0:] is x[0:]. Count the start from the front",
        {_WINDOW: "max(0, tokens - c.window) if c.window else 0, tokens"},
    ),
    wrong(
        ANSWER,
        "own token left out",
        "the window ends before the query's own token. The query sees itself",
        {_WINDOW: "max(0, tokens - 1 - c.window), tokens - 1"},
    ),
    wrong(
        ANSWER,
        "the first tokens for the window",
        "the window holds the first tokens, not the last",
        {_WINDOW: "0, c.window"},
    ),
    wrong(
        ANSWER,
        "scale left out",
        "the products were not multiplied by config.scale",
        {"c.scale * (query @ keys.T)": "query @ keys.T"},
    ),
    wrong(
        ANSWER,
        "a scale of its own",
        "the scale is 1 / sqrt(dim). It is to be config.scale",
        {"c.scale * (query @ keys.T)": "query.shape[1] ** -0.5 * (query @ keys.T)"},
    ),
    wrong(
        ANSWER,
        "no maximum subtracted",
        "the exponential of a large product overflows, and a row of very small ones vanishes. Subtract each row's "
        "maximum first: the weights stay the same",
        {
            "        weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))\n        return": (
                "        with np.errstate(all='ignore'):\n            weights = np.exp(scores)\n            return"
            )
        },
    ),
    wrong(
        ANSWER,
        "one softmax over all",
        "one softmax went over the keys of all branches together. Each branch has its own",
        TOGETHER,
    ),
    wrong(
        ANSWER,
        "one softmax over all, no gates",
        "one softmax went over the keys of all branches together, without gates. Each branch has a softmax and a gate "
        "of its own",
        TOGETHER | {"(parts * gates[:, :, None]).sum(axis=0)": "parts.sum(axis=0)"},
    ),
    wrong(
        ANSWER,
        "gates normalised",
        "the gates were made to add up to 1. Take them as they are",
        {"gates[:, :, None]": "(gates / gates.sum(axis=0))[:, :, None]"},
    ),
    wrong(
        ANSWER,
        "gates left out",
        "the branches were added without their gates",
        {"(parts * gates[:, :, None]).sum(axis=0)": "parts.sum(axis=0)"},
    ),
    *(
        wrong(
            ANSWER,
            f"gates in the order {', '.join(order)}",
            "the branches met each other's gates, whose order is compressed, selected, window",
            {"gates[:, :, None]": f"gates[{[order.index(name) for name in BRANCHES]}, :, None]"},
        )
        for order in permutations(BRANCHES)
        if order != BRANCHES
    ),
    wrong(
        ANSWER,
        "window alone",
        "this is the window branch alone, through its gate",
        {"(parts * gates[:, :, None]).sum(axis=0)": "window * gates[2, :, None]"},
    ),
    wrong(
        ANSWER,
        "all tokens for the selected",
        "the selected branch attends over all tokens. It reads the picked blocks alone",
        {"tokens_of(choose(scores.sum(axis=0)))": "list(range(tokens))"},
    ),
)

EXERCISE = Exercise(
    id="nsa_decode",
    chapter=11,
    order=7,
    title="a whole step",
    checks="one query of one group of heads: compressed, selected and window, through their gates",
    points=5,
    difficulty=3,
    minutes=30,
    make=make,
    oracle=oracle,
    cases=(
        Case("six tokens by hand", make=make_toy),
        Case("the paper's proportions", sizes(203, 4, 6, 7, 8, 4, 16, 5, 1, 2, 30)),
        Case("odd sizes", sizes(157, 3, 5, 4, 9, 4, 11, 6, 1, 2, 23)),
        Case("a selection block has just begun", sizes(129, 5, 4, 6, 8, 4, 16, 4, 1, 2, 20)),
        Case("a selection block has just ended", sizes(128, 5, 4, 6, 8, 4, 16, 4, 1, 2, 20)),
        Case("nothing forced", sizes(180, 3, 6, 5, 8, 4, 16, 3, 0, 0, 25)),
        Case("all blocks forced", sizes(144, 3, 5, 4, 8, 4, 12, 4, 2, 2, 16)),
        Case("more blocks than there are", sizes(90, 2, 4, 5, 8, 4, 16, 9, 1, 2, 20)),
        Case("fewer tokens than a compressed block", sizes(31, 3, 5, 4, 32, 16, 4, 4, 1, 1, 9)),
        Case("one compressed block", sizes(32, 3, 5, 4, 32, 16, 4, 4, 1, 1, 9)),
        Case("a window longer than the context", sizes(70, 3, 4, 6, 8, 4, 8, 4, 1, 2, 100)),
        Case("nothing selected and no window", sizes(60, 3, 4, 5, 8, 4, 8, 0, 0, 0, 0)),
        Case("the first token", paper(1, 3, 5, 4)),
        Case("one head", sizes(110, 1, 6, 3, 8, 4, 16, 4, 1, 2, 20)),
        Case("no heads", sizes(80, 0, 6, 4, 8, 4, 16, 3, 1, 1, 20)),
        Case("large scores", sizes(170, 3, 5, 6, 8, 4, 16, 5, 1, 2, 30), make=make_large),
        Case("float32", sizes(190, 4, 8, 6, 8, 4, 16, 5, 1, 2, 30), dtype="float32"),
        Case("strided inputs", sizes(140, 4, 6, 5, 8, 4, 16, 4, 1, 2, 30), layout="strided"),
        Case("the paper's blocks on 1,300 tokens", paper(1300, 4, 24, 16)),
    ),
    hints=(
        "Attend three times with one small function that takes keys and values and returns outputs and weights. What "
        "differs between the branches is only which keys and values go in.",
        "The weights of the compressed branch are (heads, blocks). They go through selection_scores as they are; add "
        "the scores up over the heads and then pick once, for the last position. Turn block numbers into tokens so "
        "that -1 falls away and the last block ends with the tokens: a mask over all tokens does both.",
        "Fill the gaps:\n\n"
        "    coarse = [compress_blocks(____) for x in branches[____]]\n"
        "    compressed, probs = attend(____)\n"
        "    scores = ____.sum(axis=____)\n"
        "    blocks = pick_blocks(scores, ____, ____)\n"
        "    mask = np.isin(np.arange(tokens) // ____, ____)\n"
        "    selected, _ = attend(____)\n"
        "    window, _ = attend(____)\n"
        "    return gated_sum(____, ____)",
    ),
    mistakes=MISTAKES,
    mutants=(
        *(Mutant(mistake.value, mistake.name) for mistake in MISTAKES),
        Mutant(
            rewritten(
                ANSWER,
                "empty_gives_nan",
                {"@ values\n": "@ values if len(keys) else np.nan * query[:, :1] * values.sum(axis=0)\n"},
            ),
            "holds NaN or infinity",
        ),
        Mutant(
            rewritten(
                ANSWER, "three_outputs", {"(parts * gates[:, :, None]).sum(axis=0)": "parts * gates[:, :, None]"}
            ),
            "has shape",
        ),
        Mutant(
            rewritten(
                ANSWER,
                "always_float64",
                {"parts * gates": "parts.astype(np.float64) * gates"},
            ),
            "dtype float64; wanted float32",
        ),
    ),
)
