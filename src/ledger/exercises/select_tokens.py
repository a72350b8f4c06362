"""Chapter 10: which tokens a query attends to, by their scores."""

from functools import partial

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import normal, rewritten
from ledger.judge.launchers import selection
from ledger.reference import sparse


def make(rng, dtype, queries, keys, topk, least=0, draw=normal):
    """Lengths from ``least`` to keys, and behind a length NaN, +∞ and large numbers. A score is drawn with ``draw``."""
    scores, lengths = draw(rng, dtype, queries, keys), rng.integers(least, keys + 1, queries)
    behind = np.arange(keys) >= lengths[:, None]
    scores[behind] = rng.choice([np.nan, np.inf, 1e6, -1e6], int(behind.sum()))
    return {"scores": scores, "lengths": lengths.astype(np.int32), "topk": topk}


def make_toy(rng, dtype, **dims):
    scores = [(3, 7, 5, 7), (3, 7, 5, np.nan), (3, np.inf, np.nan, 9), (4, 0, 0, np.nan)]
    return {"scores": np.array(scores, dtype), "lengths": np.array([4, 3, 1, 3], np.int32), "topk": 2}


def make_full(rng, dtype, **dims):
    """Every query sees every key."""
    return make(rng, dtype, **dims, least=dims["keys"])


def relus(rng, dtype, *shape):
    """Many zeros of both signs, a few equal numbers above, and a few below."""
    numbers = np.array([-1, -0.0, -0.0, 0, 0, 0, 2, 3])
    return rng.choice(numbers, shape).astype(dtype)


def equals(rng, dtype, *shape):
    return np.full(shape, 0.5, dtype)


def below_zero(rng, dtype, *shape):
    return -1 - np.abs(normal(rng, dtype, *shape))


def far_below_zero(rng, dtype, *shape):
    """Below what stands for −∞ in a careless mask, and far enough from float32's least number to add a few up."""
    return (1e36 * below_zero(rng, np.dtype("float64"), *shape)).astype(dtype)


def apart_in_the_last_digits(rng, dtype, *shape):
    """Scores that only float64 tells apart."""
    digits = np.array([rng.permutation(shape[1]) for _ in range(shape[0])]) * 1e-12
    return rng.integers(1, 4, shape) + digits


def make_growing(rng, dtype, queries, keys, topk):
    """A prompt: query s sees s + 1 tokens."""
    inputs = make(rng, dtype, queries, keys, topk, least=keys)
    lengths = np.arange(1, queries + 1, dtype=np.int32)
    inputs["scores"][np.arange(keys) >= lengths[:, None]] = np.nan
    return inputs | {"lengths": lengths}


def drawing(draw, **more):
    return partial(make, draw=draw, **more)


def oracle(scores, lengths, topk):
    """Each row by itself: sorted, and of equal scores the lowest."""
    selected = np.full((len(scores), topk), -1, np.int32)
    for row, (own, seen) in enumerate(zip(scores, lengths.tolist(), strict=True)):
        tokens = sparse.select_topk(own[:seen].tolist(), topk)
        selected[row, : len(tokens)] = tokens
    return selected


#: A right answer, which wrong masks are made of.
ANSWER = """def select_tokens(scores, lengths, topk):
    places = np.arange(scores.shape[1])
    seen = places < lengths[:, None]
    visible = np.where(seen, scores, -np.inf)
    best = np.argsort(-visible, axis=1, kind="stable")[:, :topk]
    selected = np.full((len(scores), topk), -1, np.int32)
    for own, picks, length in zip(selected, best, lengths):
        own[: len(picks)] = np.where(places[: len(picks)] < length, picks, -1)
    return selected
"""
_VISIBLE = "visible = np.where(seen, scores, -np.inf)"
_ORDER = 'np.argsort(-visible, axis=1, kind="stable")'
_KEPT = "own[: len(picks)] = np.where(places[: len(picks)] < length, picks, -1)"
#: Of equal scores the first, any, or the last. NaN stands last, and first where the order is turned round.
ORDERS = {
    "": {},
    "_unstable": {_ORDER: "np.argsort(-visible, axis=1)"},
    "_from_the_right": {_ORDER: 'np.argsort(visible, axis=1, kind="stable")[:, ::-1]'},
    "_from_the_right_unstable": {_ORDER: "np.argsort(visible, axis=1)[:, ::-1]"},
}

#: Name, sentence and what is changed in ``ANSWER`` of each wrong mask.
MASKS = {
    "unseen_at_a_number": (
        "unseen scores at a number",
        "what a query does not see was given a large number below 0, and scores may lie below that. Give it −∞",
        {_VISIBLE: "visible = np.where(seen, scores, -1e9)"},
    ),
    "unseen_at_0": (
        "unseen scores at 0",
        "what a query does not see was given the score 0, which beats scores below 0. Give it −∞",
        {_VISIBLE: "visible = np.where(seen, scores, 0)"},
    ),
    "times_the_mask": (
        "scores times the mask",
        "the scores were multiplied by the mask: what a query does not see becomes 0, or NaN where it was NaN or ∞. "
        "Put −∞ there with np.where",
        {_VISIBLE: "with np.errstate(invalid='ignore'):\n        visible = scores * seen"},
    ),
    "one_more_seen": (
        "one token too many",
        "a query sees the tokens 0 to lengths − 1: < lengths, not <=",
        {"places < lengths": "places <= lengths"},
    ),
}
#: What becomes of the tokens that a mask lets through: what the name adds, and what is changed in ``ANSWER``, by the
#: end of the changed answer's name.
ENDINGS = {
    "": {"": {}},
    ", and kept": {"_and_kept": {_KEPT: "own[: len(picks)] = picks"}},
    ", then made −1 or taken out": {
        "_then_padding": {_KEPT: "own[: len(picks)] = np.where(picks < length, picks, -1)"},
        "_then_taken_out": {_KEPT: "picks = picks[picks < length]\n        own[: len(picks)] = picks"},
    },
}
COUNTED = {"_and_counted": {_KEPT: "own[: len(picks)] = np.where(places[: len(picks)] <= length, picks, -1)"}}


def masked_answers():
    """(name, sentence, an answer for each order) of each wrong mask with each ending."""
    ends = [(made, *end) for made in MASKS for end in ENDINGS.items()]
    for made, after, changes in [*ends, ("one_more_seen", ", and counted", COUNTED)]:
        name, says, mask = MASKS[made]
        says += ". Fill a short row up with −1" if after else ""
        answers = (
            rewritten(ANSWER, f"{made}{how}{order}", mask | change | turn)
            for how, change in changes.items()
            for order, turn in ORDERS.items()
        )
        yield (f"{name}{after}", says, *answers)


MASKED = tuple(masked_answers())


def length_ignored(scores, lengths, topk):
    known = np.where(np.isnan(scores), -np.inf, scores)
    best = np.argsort(-known, axis=1, kind="stable")[:, :topk]
    selected = np.full((len(scores), topk), -1, np.int32)
    selected[:, : best.shape[1]] = best
    return selected


def one_token_too_few(scores, lengths, topk):
    visible = np.where(np.arange(scores.shape[1]) < lengths[:, None] - 1, scores, -np.inf)
    best = np.argsort(-visible, axis=1, kind="stable")[:, :topk]
    selected = np.full((len(scores), topk), -1, np.int32)
    selected[:, : best.shape[1]] = np.where(np.arange(best.shape[1]) < lengths[:, None] - 1, best, -1)
    return selected


def unseen_to_fill_up(scores, lengths, topk):
    seen = np.arange(scores.shape[1]) < lengths[:, None]
    best = np.argsort(-np.where(seen, scores, -np.inf), axis=1, kind="stable")[:, :topk]
    selected = np.full((len(scores), topk), -1, np.int32)
    selected[:, : best.shape[1]] = best
    return selected


def padded_with_zeros(scores, lengths, topk):
    seen = np.arange(scores.shape[1]) < lengths[:, None]
    best = np.argsort(-np.where(seen, scores, -np.inf), axis=1, kind="stable")[:, :topk]
    selected = np.zeros((len(scores), topk), np.int32)
    selected[:, : best.shape[1]] = np.where(np.arange(best.shape[1]) < lengths[:, None], best, 0)
    return selected


def padded_with_its_own(scores, lengths, topk):
    seen = np.arange(scores.shape[1]) < lengths[:, None]
    best = np.argsort(-np.where(seen, scores, -np.inf), axis=1, kind="stable")
    selected = np.full((len(scores), topk), -1, np.int32)
    for row, (own, count) in enumerate(zip(best, lengths.tolist(), strict=True)):
        selected[row] = own[np.minimum(np.arange(topk), count - 1)] if count else -1
    return selected


def padding_in_front(scores, lengths, topk):
    seen = np.arange(scores.shape[1]) < lengths[:, None]
    best = np.argsort(-np.where(seen, scores, -np.inf), axis=1, kind="stable")[:, :topk]
    selected = np.full((len(scores), topk), -1, np.int32)
    selected[:, : best.shape[1]] = np.where(np.arange(best.shape[1]) < lengths[:, None], best, -1)
    return selected[:, ::-1].copy()


def smallest(scores, lengths, topk):
    seen = np.arange(scores.shape[1]) < lengths[:, None]
    best = np.argsort(np.where(seen, scores, np.inf), axis=1, kind="stable")[:, :topk]
    selected = np.full((len(scores), topk), -1, np.int32)
    selected[:, : best.shape[1]] = np.where(np.arange(best.shape[1]) < lengths[:, None], best, -1)
    return selected


def by_magnitude(scores, lengths, topk):
    seen = np.arange(scores.shape[1]) < lengths[:, None]
    best = np.argsort(-np.where(seen, np.abs(scores), -np.inf), axis=1, kind="stable")[:, :topk]
    selected = np.full((len(scores), topk), -1, np.int32)
    selected[:, : best.shape[1]] = np.where(np.arange(best.shape[1]) < lengths[:, None], best, -1)
    return selected


def above_zero_alone(scores, lengths, topk):
    seen = (np.arange(scores.shape[1]) < lengths[:, None]) & (scores > 0)
    best = np.argsort(-np.where(seen, scores, -np.inf), axis=1, kind="stable")[:, :topk]
    selected = np.full((len(scores), topk), -1, np.int32)
    selected[:, : best.shape[1]] = np.where(np.arange(best.shape[1]) < seen.sum(axis=1)[:, None], best, -1)
    return selected


def latest(scores, lengths, topk):
    """A window: the last tokens that each query sees."""
    selected = lengths[:, None] - 1 - np.arange(topk)
    return np.where(selected >= 0, selected, -1).astype(np.int32)


def earliest(scores, lengths, topk):
    selected = np.broadcast_to(np.arange(topk), (len(scores), topk))
    return np.where(selected < lengths[:, None], selected, -1).astype(np.int32)


def first_length_for_all(scores, lengths, topk):
    seen = np.broadcast_to(np.arange(scores.shape[1]) < lengths[0], scores.shape)
    best = np.argsort(-np.where(seen, scores, -np.inf), axis=1, kind="stable")[:, :topk]
    selected = np.full((len(scores), topk), -1, np.int32)
    selected[:, : best.shape[1]] = np.where(np.arange(best.shape[1]) < lengths[0], best, -1)
    return selected


def one_row_for_all(scores, lengths, topk):
    """All queries share the tokens with the largest sums."""
    seen = np.arange(scores.shape[1]) < lengths[:, None]
    total = np.where(seen, scores, 0).sum(axis=0, keepdims=True)
    best = np.argsort(-np.where(seen, total, -np.inf), axis=1, kind="stable")[:, :topk]
    selected = np.full((len(scores), topk), -1, np.int32)
    selected[:, : best.shape[1]] = np.where(np.arange(best.shape[1]) < lengths[:, None], best, -1)
    return selected


def in_float32(scores, lengths, topk):
    seen = np.arange(scores.shape[1]) < lengths[:, None]
    best = np.argsort(-np.where(seen, scores, -np.inf).astype(np.float32), axis=1, kind="stable")[:, :topk]
    selected = np.full((len(scores), topk), -1, np.int32)
    selected[:, : best.shape[1]] = np.where(np.arange(best.shape[1]) < lengths[:, None], best, -1)
    return selected


def by_a_threshold(scores, lengths, topk):
    """Everything that reaches the topk-th largest score, cut where the row is full: of equals too many, of others too
    few."""
    selected = np.full((len(scores), topk), -1, np.int32)
    for row, seen in enumerate(lengths):
        own = scores[row, :seen]
        threshold = np.sort(own)[::-1][:topk].min(initial=np.inf)
        picks = np.flatnonzero(own >= threshold)[:topk]
        selected[row, : len(picks)] = picks
    return selected


def ranks(scores, lengths, topk):
    """The place of each token in the order, not the token at each place."""
    seen = np.arange(scores.shape[1]) < lengths[:, None]
    order = np.argsort(-np.where(seen, scores, -np.inf), axis=1, kind="stable")
    places = np.argsort(order, axis=1)[:, :topk]
    selected = np.full((len(scores), topk), -1, np.int32)
    selected[:, : places.shape[1]] = np.where(np.arange(places.shape[1]) < lengths[:, None], places, -1)
    return selected


def repeated(scores, lengths, topk):
    """The best token stands again where another would."""
    seen = np.arange(scores.shape[1]) < lengths[:, None]
    best = np.argsort(-np.where(seen, scores, -np.inf), axis=1, kind="stable")[:, :topk]
    best[:, 1:2] = best[:, :1]
    selected = np.full((len(scores), topk), -1, np.int32)
    selected[:, : best.shape[1]] = np.where(np.arange(best.shape[1]) < lengths[:, None], best, -1)
    return selected


def in_int64(scores, lengths, topk):
    seen = np.arange(scores.shape[1]) < lengths[:, None]
    best = np.argsort(-np.where(seen, scores, -np.inf), axis=1, kind="stable")[:, :topk].astype(np.int64)
    return np.where(np.arange(best.shape[1]) < lengths[:, None], best, -1)


def narrow_where_keys_are_few(scores, lengths, topk):
    seen = np.arange(scores.shape[1]) < lengths[:, None]
    best = np.argsort(-np.where(seen, scores, -np.inf), axis=1, kind="stable")[:, :topk].astype(np.int32)
    return np.where(np.arange(best.shape[1]) < lengths[:, None], best, np.int32(-1))


def partition_of_too_few(scores, lengths, topk):
    seen = np.arange(scores.shape[1]) < lengths[:, None]
    best = np.argpartition(np.where(seen, scores, -np.inf), -topk, axis=1)[:, -topk:]
    return np.where(best < lengths[:, None], best, -1).astype(np.int32)


#: Name, sentence and an answer that makes it, of each known mistake.
WRONG = (
    (
        "lengths ignored",
        "tokens beyond a query's length are selected. What lies there is not its own",
        length_ignored,
    ),
    ("one token too few", "a query sees the token lengths − 1, too: it is the last one", one_token_too_few),
    (
        "filled up with unseen tokens",
        "rows of short queries are filled up with tokens that they do not see: −∞ puts them last, but they still stand "
        "there. Put −1 in their places",
        unseen_to_fill_up,
    ),
    (
        "filled up with tokens that stand there",
        "rows of short queries are filled up with tokens that they hold already, or with 0, which is one of them. Put "
        "−1 there",
        padded_with_its_own,
    ),
    (
        "filled up with 0",
        "rows of short queries are filled up with 0, which is a token. Put −1 there",
        padded_with_zeros,
    ),
    ("padding in front", "the −1 stand in front of the tokens. They fill the row up behind them", padding_in_front),
    ("smallest scores", "these are the tokens with the smallest scores", smallest),
    ("by magnitude", "the tokens were selected by the magnitude of their scores", by_magnitude),
    (
        "scores above 0 alone",
        "tokens with scores of 0 or below were left out, although there was room for them",
        above_zero_alone,
    ),
    ("the latest tokens", "these are the last tokens that each query sees, whatever their scores", latest),
    ("the first tokens", "these are the first tokens, whatever their scores", earliest),
    (
        "first length for all",
        "the first query's length was used for all. Each has its own",
        first_length_for_all,
    ),
    ("one selection for all", "all queries share a selection. Each makes its own", one_row_for_all),
    (
        "float32 on the way",
        "scores that differ in float64 were compared in float32",
        in_float32,
    ),
    (
        "cut at the threshold",
        "every token that reaches the topk-th largest score was taken from the left until the row was full. Those "
        "above it come first, and its equals fill what is left",
        by_a_threshold,
    ),
    (
        "ranks for tokens",
        "these are the places of the first tokens in the order of scores. Asked are the tokens at the first places",
        ranks,
    ),
)


def selecting(answer):
    """``answer`` as the judge runs it, which reads a selection as a set."""
    return partial(selection.select_tokens, answer)


def sizes(queries, keys, topk):
    return {"queries": queries, "keys": keys, "topk": topk}


EXERCISE = Exercise(
    id="select_tokens",
    chapter=10,
    order=3,
    title="the best tokens of each query",
    checks="that each query selects tokens with its largest scores, as a set: of equal ones any (shown are the lowest)",
    points=3,
    difficulty=2,
    minutes=12,
    make=make,
    oracle=oracle,
    launcher="selection.select_tokens",
    cases=(
        Case("four queries by hand", sizes(4, 4, 2), make=make_toy),
        Case("odd sizes", sizes(7, 13, 5)),
        Case("every key seen", sizes(3, 9, 4), make=make_full),
        Case("a prompt", sizes(9, 9, 4), make=make_growing),
        Case("one of everything", sizes(1, 1, 1), make=make_full),
        Case("no keys", sizes(3, 0, 4)),
        Case("no queries, float32", sizes(0, 6, 4), dtype="float32"),
        Case("more places than keys", sizes(5, 6, 9)),
        Case("many zeros of both signs", sizes(24, 16, 6), make=drawing(relus)),
        Case("all scores equal", sizes(4, 10, 3), make=drawing(equals)),
        Case("all scores below zero", sizes(6, 12, 5), make=drawing(below_zero)),
        Case("scores far below zero", sizes(6, 12, 5), dtype="float32", make=drawing(far_below_zero, least=1)),
        Case("scores close to each other", sizes(9, 20, 8), make=drawing(apart_in_the_last_digits, least=12)),
        Case("float32", sizes(5, 17, 6), dtype="float32"),
        Case("strided inputs", sizes(6, 11, 4), layout="strided"),
        Case("2,048 of up to 6,000 tokens", sizes(3, 6000, 2048), dtype="float32"),
    ),
    hints=(
        "What score must a token have that is never to be selected while others are left? Give it to all that a query "
        "does not see, and the lengths are dealt with, but for rows that see fewer than topk.",
        "np.where(places < lengths[:, None], scores, -np.inf) leaves NaN and ∞ behind. Sort the negated scores with "
        "np.argsort (np.argpartition is quicker, and cannot take more than there is): unseen tokens then stand last. "
        "So the first lengths[s] places of row s are real, and the others become −1.",
        "Fill the gaps:\n\n"
        "    visible = np.where(____, scores, ____)\n"
        "    best = np.argsort(____, axis=1)[:, :topk]  # maybe fewer than topk columns\n"
        "    selected = np.full(____, -1, np.int32)\n"
        "    selected[:, : best.shape[1]] = np.where(____, best, -1)",
    ),
    mistakes=tuple(
        Mistake(name, says, selecting(made), tuple(map(selecting, more)))
        for name, says, made, *more in (*WRONG, *MASKED)
    ),
    mutants=(
        *(Mutant(made, name) for name, _, made, *_ in (*WRONG, *MASKED)),
        *(Mutant(made, name) for name, _, _, *more in MASKED if "," not in name for made in more),
        Mutant(repeated, "the result is wrong in"),
        Mutant(in_int64, "has dtype int64; wanted int32"),
        Mutant(narrow_where_keys_are_few, "has shape"),
        Mutant(partition_of_too_few, "the −1 stand in front of the tokens"),
    ),
)
