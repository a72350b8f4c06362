"""Chapter 7: a request's entries out of a paged cache."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import normal
from ledger.reference import kernels


def make(rng, dtype, num_pages, page, width, entries, length, behind=2**30):
    """Pages in any order; what belongs to no token of the request is NaN, and so is the end of its last page. The
    block table goes on behind what is needed with ``behind``."""
    needed = -(-length // page)
    pages = np.full((num_pages, page, width), np.nan, dtype)
    block_table = np.full(entries, behind, np.int32)
    block_table[:needed] = rng.permutation(num_pages)[:needed]
    for entry, number in enumerate(block_table[:needed]):
        rows = min(page, length - entry * page)
        pages[number, :rows] = normal(rng, dtype, rows, width)
    return {"pages": pages, "block_table": block_table, "length": length}


def make_minus_ones(rng, dtype, **dims):
    return make(rng, dtype, **dims, behind=-1)


def make_toy(rng, dtype, **dims):
    pages = np.array([[(10,), (11,)], [(20,), (21,)], [(30,), (31,)]], dtype)
    return {"pages": pages, "block_table": np.array([2, 0], np.int32), "length": 3}


def block_table_ignored(pages, block_table, length):
    return pages.reshape(pages.shape[0] * pages.shape[1], pages.shape[2])[:length].copy()


def whole_pages(pages, block_table, length):
    needed = -(-length // pages.shape[1])
    return pages[block_table[:needed]].reshape(needed * pages.shape[1], pages.shape[2])


def started_page_forgotten(pages, block_table, length):
    full = length // pages.shape[1]
    return pages[block_table[:full]].reshape(full * pages.shape[1], pages.shape[2])


def tokens_dealt_over_the_pages(pages, block_table, length):
    needed = -(-length // pages.shape[1])
    dealt = pages[block_table[:needed]].swapaxes(0, 1)
    return dealt.reshape(needed * pages.shape[1], pages.shape[2])[:length]


def table_backwards(pages, block_table, length):
    needed = -(-length // pages.shape[1])
    own = pages[block_table[:needed][::-1]]
    return own.reshape(needed * pages.shape[1], pages.shape[2])[:length]


def pages_in_order_of_number(pages, block_table, length):
    needed = -(-length // pages.shape[1])
    own = pages[np.sort(block_table[:needed])]
    return own.reshape(needed * pages.shape[1], pages.shape[2])[:length]


def first_page_again(pages, block_table, length):
    return pages[block_table[np.zeros(length, int)], np.arange(length) % pages.shape[1]]


def page_numbers_for_tokens(pages, block_table, length):
    tokens = pages.reshape(pages.shape[0] * pages.shape[1], pages.shape[2])
    at = block_table[np.arange(length) // pages.shape[1]] + np.arange(length) % pages.shape[1]
    return tokens[at]


def whole_table(pages, block_table, length):
    own = pages[block_table]
    return own.reshape(len(block_table) * pages.shape[1], pages.shape[2])[:length]


def size_left_to_reshape(pages, block_table, length):
    own = pages[block_table[: -(-length // pages.shape[1])]]
    return own.reshape(-1, pages.shape[2])[:length]


EXERCISE = Exercise(
    id="gather_pages",
    chapter=7,
    order=3,
    title="pages in the order of tokens",
    checks="the cache entries of one request, in the order of its tokens",
    points=3,
    difficulty=2,
    minutes=10,
    make=make,
    oracle=kernels.gather_pages,
    cases=(
        Case("the toy by hand", {"num_pages": 3, "page": 2, "width": 1, "entries": 2, "length": 3}, make=make_toy),
        Case("odd sizes", {"num_pages": 9, "page": 3, "width": 7, "entries": 6, "length": 13}),
        Case("full pages", {"num_pages": 8, "page": 4, "width": 5, "entries": 6, "length": 20}),
        Case("one token", {"num_pages": 6, "page": 8, "width": 5, "entries": 2, "length": 1}),
        Case("pages of one token", {"num_pages": 12, "page": 1, "width": 4, "entries": 9, "length": 8}),
        Case(
            "an empty request, float32",
            {"num_pages": 4, "page": 8, "width": 5, "entries": 3, "length": 0},
            dtype="float32",
        ),
        Case(
            "the table ends in -1",
            {"num_pages": 8, "page": 5, "width": 3, "entries": 7, "length": 18},
            make=make_minus_ones,
        ),
        Case("entries of no width", {"num_pages": 7, "page": 3, "width": 0, "entries": 6, "length": 11}),
        Case("float32", {"num_pages": 9, "page": 4, "width": 6, "entries": 7, "length": 19}, dtype="float32"),
        Case(
            "strided inputs",
            {"num_pages": 9, "page": 4, "width": 6, "entries": 8, "length": 21},
            layout="strided",
        ),
        Case("DeepSeek-V3's entries", {"num_pages": 12, "page": 64, "width": 576, "entries": 10, "length": 500}),
    ),
    hints=(
        "Take one token t. In which entry of the block table does its page's number stand, and where in the page does "
        "the token stand? Both come from t and the page's size.",
        "Whole pages are quicker than tokens: the table's first entries, as many as have a token, pick the pages in "
        "the right order, and the pages laid end to end are the tokens. What is left to cut off? And which entries "
        "must never be used as an index?",
        "Fill the gaps:\n\n"
        "    needed = ____  # pages, rounded up\n"
        "    own = pages[____]  # (needed, page, width)\n"
        "    return own.reshape(____, ____)[____]",
    ),
    mistakes=(
        Mistake(
            "block table ignored",
            "these are the first entries of the cache. The block table says which pages are the request's",
            block_table_ignored,
        ),
        Mistake(
            "last page whole",
            "the last page was taken whole: cut the result at the request's length",
            whole_pages,
        ),
        Mistake(
            "started page forgotten",
            "the tokens of the last page, which is not full, are missing: round the number of pages up",
            started_page_forgotten,
        ),
        Mistake(
            "tokens dealt over the pages",
            "the first tokens of all pages come first. A page holds neighbouring tokens",
            tokens_dealt_over_the_pages,
        ),
        Mistake("table read backwards", "the pages stand in the reverse of the table's order", table_backwards),
        Mistake(
            "pages in order of their numbers",
            "the pages stand in the order of their numbers. The table's order is the order of the tokens",
            pages_in_order_of_number,
        ),
        Mistake("first page again", "the first page is used for every token", first_page_again),
        Mistake(
            "page numbers for tokens",
            "a page's number was taken for the place of a token: multiply it by the page's size",
            page_numbers_for_tokens,
        ),
    ),
    mutants=(
        Mutant(block_table_ignored, "block table ignored"),
        Mutant(whole_pages, "last page whole"),
        Mutant(started_page_forgotten, "started page forgotten"),
        Mutant(tokens_dealt_over_the_pages, "tokens dealt over the pages"),
        Mutant(table_backwards, "table read backwards"),
        Mutant(pages_in_order_of_number, "pages in order of their numbers"),
        Mutant(first_page_again, "first page again"),
        Mutant(page_numbers_for_tokens, "page numbers for tokens"),
        Mutant(whole_table, "IndexError", verdict="error"),
        Mutant(size_left_to_reshape, "cannot reshape", verdict="error"),
    ),
)
