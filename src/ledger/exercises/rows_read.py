"""Chapter 10: the cache entries that the verified rows of one request read."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant


def make(rng, dtype, rows, topk, cached_tokens):
    """Each row picks as many of its tokens as there are, in any order; a row sees one token more than the row above."""
    selections = np.full((rows, topk), -1, np.int32)
    for row in range(rows):
        seen = cached_tokens + row
        picked = rng.permutation(seen)[:topk]
        selections[row, : len(picked)] = picked
    return {"selections": selections}


def of(selections):
    """A maker of exactly these selections."""
    return lambda rng, dtype, **dims: {"selections": np.array(selections, np.int32)}


def make_scattered(rng, dtype, rows, topk, cached_tokens):
    """Padding stands anywhere in a row, and not in every row; token 0 is picked."""
    selections = make(rng, dtype, rows, topk, cached_tokens)["selections"]
    selections[rng.random(selections.shape) < 0.3] = -1
    selections[0] = rng.permutation(np.arange(topk, dtype=np.int32))
    return {"selections": selections}


def make_shared(rng, dtype, rows, topk, cached_tokens):
    """Seven of ten picks are the same in all rows, the others differ."""
    order = rng.permutation(cached_tokens).astype(np.int32)
    alike = 7 * topk // 10
    own = order[alike : alike + rows * (topk - alike)].reshape(rows, topk - alike)
    both = np.concatenate([np.tile(order[:alike], (rows, 1)), own], axis=1)
    return {"selections": rng.permuted(both, axis=1)}


def make_alike(rng, dtype, rows, topk, cached_tokens):
    order = rng.permutation(cached_tokens)[:topk].astype(np.int32)
    return {"selections": rng.permuted(np.tile(order, (rows, 1)), axis=1)}


def make_disjoint(rng, dtype, rows, topk, cached_tokens):
    return {"selections": rng.permutation(cached_tokens)[: rows * topk].reshape(rows, topk).astype(np.int32)}


def oracle(selections):
    """Mark token after token."""
    read = set()
    for row in selections.tolist():
        read.update(token for token in row if token != -1)
    return len(read)


def padding_counted(selections):
    return len(np.unique(selections))


def every_pick(selections):
    return int((selections >= 0).sum())


def row_by_row(selections):
    return sum(len(np.unique(row)) for row in selections)


def every_place(selections):
    return int(selections.size)


def one_taken_off_for_padding(selections):
    return len(np.unique(selections)) - 1


def token_0_left_out(selections):
    return len(np.unique(selections[selections > 0]))


def first_row(selections):
    return len(np.unique(selections[0][selections[0] >= 0])) if len(selections) else 0


def largest_row(selections):
    return int((selections >= 0).sum(axis=1).max(initial=0))


def common_to_all(selections):
    rows = [set(row[row >= 0].tolist()) for row in selections]
    return len(set.intersection(*rows)) if rows else 0


def up_to_the_last(selections):
    return int(selections.max(initial=-1)) + 1


def neighbours_compared(selections):
    flat = selections[selections >= 0].ravel()
    return int((np.diff(flat) != 0).sum()) + 1 if flat.size else 0


def a_list_of_them(selections):
    return np.unique(selections[selections >= 0])


EXERCISE = Exercise(
    id="rows_read",
    chapter=10,
    order=13,
    title="rows that pick for themselves",
    checks="distinct tokens that the rows of one request read",
    points=1,
    difficulty=1,
    minutes=6,
    make=make,
    oracle=oracle,
    cases=(
        Case("rows [3, 5, -1] and [5, 0, 3]", make=of([[3, 5, -1], [5, 0, 3]])),
        Case("odd sizes", {"rows": 3, "topk": 17, "cached_tokens": 41}),
        Case("rows with few tokens", {"rows": 4, "topk": 30, "cached_tokens": 11}),
        Case("padding anywhere", {"rows": 5, "topk": 13, "cached_tokens": 60}, make=make_scattered),
        Case("seven of ten picks shared", {"rows": 2, "topk": 50, "cached_tokens": 900}, make=make_shared),
        Case("all rows alike", {"rows": 4, "topk": 19, "cached_tokens": 70}, make=make_alike),
        Case("no pick shared", {"rows": 3, "topk": 21, "cached_tokens": 100}, make=make_disjoint),
        Case("one row", {"rows": 1, "topk": 23, "cached_tokens": 55}),
        Case("padding alone", make=of([[-1, -1], [-1, -1], [-1, -1]])),
        Case("no rows", {"rows": 0, "topk": 8, "cached_tokens": 30}),
        Case("no places", {"rows": 3, "topk": 0, "cached_tokens": 30}),
        Case("strided", {"rows": 3, "topk": 29, "cached_tokens": 37}, layout="strided"),
        Case("DeepSeek-V3.2 with one draft at 8K", {"rows": 2, "topk": 2048, "cached_tokens": 8192}),
    ),
    hints=(
        "All rows belong to one request, so the same number in two rows is the same cache entry. What kind of "
        "collection holds each thing once?",
        "First drop what is no token, then drop what comes again: a comparison gives a mask, and NumPy has a function "
        "that returns an array's distinct values. Take care with token 0, and with arrays without any padding.",
        "Fill the gaps:\n\n    valid = selections[____]\n    return len(____(valid))",
    ),
    mistakes=(
        Mistake("padding counted", "−1 was counted as a token. It stands for none", padding_counted),
        Mistake(
            "picks counted twice",
            "a token that several rows pick was counted for each of them. It is read once for all rows",
            every_pick,
        ),
        Mistake(
            "row by row",
            "each row was counted by itself, with its padding as a token. Count distinct tokens of all rows at once, "
            "without −1",
            row_by_row,
        ),
        Mistake("every place counted", "these are all places, padding and repeated picks among them", every_place),
        Mistake(
            "one taken off for padding",
            "one was taken off for the padding, and here is none. Drop −1 before you count",
            one_taken_off_for_padding,
        ),
        Mistake("token 0 left out", "token 0 is a token like any other. Only −1 is none", token_0_left_out),
        Mistake(
            "the longest row alone",
            "this is what the longest row reads. Rows share a reading only where they pick the same token",
            largest_row,
        ),
        Mistake("first row alone", "this is what the first row reads. The others pick for themselves", first_row),
        Mistake(
            "common to all rows",
            "these are the tokens that all rows pick. Count those that any row picks",
            common_to_all,
        ),
        Mistake(
            "all up to the last",
            "this is the last token's number and one: not all tokens before it are picked",
            up_to_the_last,
        ),
        Mistake(
            "neighbours compared",
            "only neighbours were compared. The picks are not sorted, so sort them first",
            neighbours_compared,
        ),
    ),
    mutants=(
        Mutant(padding_counted, "padding counted"),
        Mutant(every_pick, "picks counted twice"),
        Mutant(row_by_row, "row by row"),
        Mutant(every_place, "every place counted"),
        Mutant(one_taken_off_for_padding, "one taken off for padding"),
        Mutant(token_0_left_out, "token 0 left out"),
        Mutant(first_row, "first row alone"),
        Mutant(largest_row, "the longest row alone"),
        Mutant(common_to_all, "common to all rows"),
        Mutant(up_to_the_last, "all up to the last"),
        Mutant(neighbours_compared, "neighbours compared"),
        Mutant(a_list_of_them, "wanted an int"),
    ),
)
