"""Chapter 10: where selected tokens lie in a paged cache."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant


def make(rng, dtype, queries, topk, entries, page, num_pages=1000, filled=1.0):
    """Pages in any order, distinct tokens in any order, and a −1 here and there. A table's entries that no index needs
    hold anything."""
    indices = np.full((queries, topk), -1, np.int32)
    block_table = np.full((queries, entries), 2**31 - 1, np.int32)
    for row in range(queries):
        count = min(topk, int(filled * entries * page))
        indices[row, :count] = rng.permutation(entries * page)[:count]
        indices[row, rng.random(topk) < 0.2] = -1
        needed = np.unique(indices[row][indices[row] >= 0] // page)
        block_table[row, needed] = num_pages - 1 - rng.permutation(num_pages)[: len(needed)]
    return {"indices": indices, "block_table": block_table, "page": page}


def make_toy(rng, dtype, **dims):
    return {"indices": np.array([(5, 0, -1)], np.int32), "block_table": np.array([(7, 2)], np.int32), "page": 4}


def make_nothing(rng, dtype, **dims):
    """Nothing is selected, and the tables hold −1."""
    inputs = make(rng, dtype, **dims)
    return inputs | {name: np.full_like(inputs[name], -1) for name in ("indices", "block_table")}


def make_large_pool(rng, dtype, **dims):
    """Slots beyond 2³¹."""
    inputs = make(rng, dtype, **dims)
    table = inputs["block_table"]
    return inputs | {"block_table": np.where(table < 2**30, table + 2**29, table).astype(np.int32)}


def make_int64(rng, dtype, **dims):
    inputs = make(rng, dtype, **dims)
    return inputs | {name: inputs[name].astype(np.int64) for name in ("indices", "block_table")}


def oracle(indices, block_table, page):
    """Every page that a query's indices need laid out as its slots, and looked up token by token."""
    slots = np.full(indices.shape, -1, np.int64)
    for row, picks in enumerate(indices.tolist()):
        pages = block_table[row].tolist()
        for place, token in enumerate(picks):
            if token != -1:
                slots[row, place] = range(pages[token // page] * page, (pages[token // page] + 1) * page)[token % page]
    return slots


def block_table_ignored(indices, block_table, page):
    return indices.astype(np.int64)


def pages_for_slots(indices, block_table, page):
    pages = np.take_along_axis(block_table, np.maximum(indices, 0) // page, axis=1).astype(np.int64)
    return np.where(indices < 0, -1, pages)


def page_not_multiplied(indices, block_table, page):
    pages = np.take_along_axis(block_table, np.maximum(indices, 0) // page, axis=1).astype(np.int64)
    return np.where(indices < 0, -1, pages + indices % page)


def start_of_the_page(indices, block_table, page):
    pages = np.take_along_axis(block_table, np.maximum(indices, 0) // page, axis=1).astype(np.int64)
    return np.where(indices < 0, -1, pages * page)


def whole_index_added(indices, block_table, page):
    pages = np.take_along_axis(block_table, np.maximum(indices, 0) // page, axis=1).astype(np.int64)
    return np.where(indices < 0, -1, pages * page + indices)


def entry_and_place_swapped(indices, block_table, page):
    entries = block_table.shape[1]
    pages = np.take_along_axis(block_table, np.maximum(indices, 0) % entries, axis=1).astype(np.int64)
    return np.where(indices < 0, -1, pages * page + indices // entries)


def place_multiplied(indices, block_table, page):
    pages = np.take_along_axis(block_table, np.maximum(indices, 0) // page, axis=1).astype(np.int64)
    return np.where(indices < 0, -1, indices % page * page + pages)


def first_table_for_all(indices, block_table, page):
    pages = block_table[0][np.maximum(indices, 0) // page].astype(np.int64)
    return np.where(indices < 0, -1, pages * page + indices % page)


def padding_looked_up(indices, block_table, page):
    pages = np.take_along_axis(block_table, indices // page, axis=1).astype(np.int64)
    return pages * page + indices % page


def padding_looked_up_in_32_bits(indices, block_table, page):
    pages = np.take_along_axis(block_table, indices // page, axis=1)
    return (pages * page + indices % page).astype(np.int64)


def token_0_taken_for_none(indices, block_table, page):
    pages = np.take_along_axis(block_table, np.maximum(indices, 0) // page, axis=1).astype(np.int64)
    return np.where(indices > 0, pages * page + indices % page, -1)


def padding_as_token_0(indices, block_table, page):
    tokens = np.maximum(indices, 0)
    pages = np.take_along_axis(block_table, tokens // page, axis=1).astype(np.int64)
    return pages * page + tokens % page


def padding_as_0(indices, block_table, page):
    pages = np.take_along_axis(block_table, np.maximum(indices, 0) // page, axis=1).astype(np.int64)
    return np.where(indices < 0, 0, pages * page + indices % page)


def padding_left_out_of_order(indices, block_table, page):
    pages = np.take_along_axis(block_table, np.maximum(indices, 0) // page, axis=1).astype(np.int64)
    slots = np.where(indices < 0, -1, pages * page + indices % page)
    order = np.argsort(indices < 0, axis=1, kind="stable")
    return np.take_along_axis(slots, order, axis=1)


def multiplied_in_32_bits(indices, block_table, page):
    pages = np.take_along_axis(block_table, np.maximum(indices, 0) // page, axis=1).astype(np.int32)
    slots = pages * np.int32(page) + (indices % page).astype(np.int32)
    return np.where(indices < 0, -1, slots).astype(np.int64)


def in_32_bits(indices, block_table, page):
    pages = np.take_along_axis(block_table, np.maximum(indices, 0) // page, axis=1)
    return np.where(indices < 0, -1, pages * page + indices % page).astype(np.int32)


def sizes(queries, topk, entries, page):
    return {"queries": queries, "topk": topk, "entries": entries, "page": page}


EXERCISE = Exercise(
    id="physical_slots",
    chapter=10,
    order=4,
    title="from tokens to slots",
    checks="the slot of every selected token in the pool of pages",
    points=2,
    difficulty=2,
    minutes=8,
    make=make,
    oracle=oracle,
    cases=(
        Case("three indices by hand", sizes(1, 3, 2, 4), make=make_toy),
        Case("odd sizes", sizes(3, 11, 5, 7)),
        Case("one of everything", sizes(1, 1, 1, 1)),
        Case("pages of one token", sizes(4, 6, 9, 1)),
        Case("more places than tokens", sizes(3, 20, 3, 4)),
        Case("nothing selected", sizes(2, 5, 3, 4), make=make_nothing),
        Case("no place in the lists", sizes(3, 0, 4, 8)),
        Case("no queries", sizes(0, 6, 4, 8)),
        Case("slots beyond 32 bits", sizes(3, 9, 6, 16), make=make_large_pool),
        Case("numbers in int64", sizes(4, 8, 6, 5), make=make_int64),
        Case("strided inputs", sizes(4, 10, 5, 6), layout="strided"),
        Case("2,048 of 8,192 tokens", sizes(2, 2048, 128, 64)),
    ),
    hints=(
        "Take one index that is not −1. In which entry of the block table does its page's number stand, and at which "
        "place of the page does the token lie? Both come from the index and the page's size.",
        "Row s of the indices belongs with row s of the block table. np.nonzero(indices >= 0) lists the rows and the "
        "places of what counts: look up those alone, and −1 never becomes an index. Leave 32 bits before you multiply.",
        "Fill the gaps:\n\n"
        "    slots = ____  # full of -1\n"
        "    query, place = ____\n"
        "    tokens = indices[query, place]\n"
        "    pages = block_table[query, ____]\n"
        "    slots[query, place] = pages.astype(np.int64) * ____ + ____",
    ),
    mistakes=(
        Mistake(
            "block table ignored",
            "these are the tokens' own numbers. The block table says where their pages lie",
            block_table_ignored,
        ),
        Mistake("pages for slots", "these are the numbers of the pages. A page has many slots", pages_for_slots),
        Mistake(
            "page not multiplied",
            "a page's number was taken for the slot where it begins: multiply it by the page's size",
            page_not_multiplied,
        ),
        Mistake(
            "start of the page",
            "these are the slots where the pages begin. Add the token's place within its page",
            start_of_the_page,
        ),
        Mistake(
            "whole index added",
            "the token's whole number was added. Add its place within its page: the rest of the division",
            whole_index_added,
        ),
        Mistake(
            "divided by the entries",
            "the index was divided by the number of entries. Neighbours share a page: divide by the page's size",
            entry_and_place_swapped,
        ),
        Mistake(
            "page and place swapped",
            "the token's place was multiplied by the page's size. The page's number is: its slots begin there",
            place_multiplied,
        ),
        Mistake(
            "first table for all",
            "the first block table was used for all queries. Row s belongs to query s",
            first_table_for_all,
        ),
        Mistake(
            "padding looked up",
            "−1 was taken for the last token of the table. It names none, and stays −1",
            padding_looked_up,
        ),
        Mistake(
            "padding looked up in 32 bits",
            "−1 was taken for the last token of the table. It names none, and stays −1. And slots beyond 2³¹ came out "
            "wrong: turn the pages into int64 before you multiply",
            padding_looked_up_in_32_bits,
        ),
        Mistake(
            "token 0 taken for none",
            "token 0 was given no slot. It is a token: only −1 stays −1",
            token_0_taken_for_none,
        ),
        Mistake("padding taken for token 0", "−1 became the slot of token 0. It stays −1", padding_as_token_0),
        Mistake("padding made slot 0", "−1 became slot 0, which belongs to somebody. It stays −1", padding_as_0),
        Mistake(
            "padding moved",
            "the −1 were moved behind the slots. Each stays in its place",
            padding_left_out_of_order,
        ),
        Mistake(
            "multiplied in 32 bits",
            "slots beyond 2³¹ came out wrong: the product was made in int32. Turn the pages into int64 first",
            multiplied_in_32_bits,
        ),
    ),
    mutants=(
        Mutant(block_table_ignored, "block table ignored"),
        Mutant(pages_for_slots, "pages for slots"),
        Mutant(page_not_multiplied, "page not multiplied"),
        Mutant(start_of_the_page, "start of the page"),
        Mutant(whole_index_added, "whole index added"),
        Mutant(entry_and_place_swapped, "divided by the entries"),
        Mutant(place_multiplied, "page and place swapped"),
        Mutant(first_table_for_all, "first table for all"),
        Mutant(padding_looked_up, "padding looked up"),
        Mutant(padding_looked_up_in_32_bits, "padding looked up in 32 bits"),
        Mutant(token_0_taken_for_none, "token 0 taken for none"),
        Mutant(padding_as_token_0, "padding taken for token 0"),
        Mutant(padding_as_0, "padding made slot 0"),
        Mutant(padding_left_out_of_order, "padding moved"),
        Mutant(multiplied_in_32_bits, "multiplied in 32 bits"),
        Mutant(in_32_bits, "dtype int32; wanted int64"),
    ),
)
