"""Chapter 7: which tokens each part of a split cache takes."""

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import drawn
from ledger.reference import kernels


def make(rng, dtype, cached_tokens, num_splits, block):
    return {"cached_tokens": cached_tokens, "num_splits": num_splits, "block": block}


def make_long(rng, dtype):
    return drawn(rng, cached_tokens=(4000, 9000), num_splits=(5, 30), block=(17, 65))


def make_more_splits(rng, dtype):
    return drawn(rng, cached_tokens=(130, 180), num_splits=(8, 20), block=(30, 60))


def tokens_spread_evenly(cached_tokens, num_splits, block):
    ends = [cached_tokens * part // num_splits for part in range(num_splits + 1)]
    return [(ends[part], ends[part + 1]) for part in range(num_splits)]


def tokens_dealt(cached_tokens, num_splits, block):
    least, more = divmod(cached_tokens, num_splits)
    ends = [least * part + min(part, more) for part in range(num_splits + 1)]
    return [(ends[part], ends[part + 1]) for part in range(num_splits)]


def parts_of_one_size(cached_tokens, num_splits, block):
    blocks = -(-cached_tokens // block)
    size = -(-blocks // num_splits) * block
    ends = [min(size * part, cached_tokens) for part in range(num_splits + 1)]
    return [(ends[part], ends[part + 1]) for part in range(num_splits)]


def rest_in_the_last(cached_tokens, num_splits, block):
    blocks = -(-cached_tokens // block)
    size = blocks // num_splits * block
    ends = [*(min(size * part, cached_tokens) for part in range(num_splits)), cached_tokens]
    return [(ends[part], ends[part + 1]) for part in range(num_splits)]


def started_block_forgotten(cached_tokens, num_splits, block):
    least, more = divmod(cached_tokens // block, num_splits)
    plan, start = [], 0
    for part in range(num_splits):
        stop = start + (least + (part < more)) * block
        plan.append((start, stop))
        start = stop
    return plan


def stops_beyond_the_cache(cached_tokens, num_splits, block):
    least, more = divmod(-(-cached_tokens // block), num_splits)
    plan, start = [], 0
    for part in range(num_splits):
        stop = start + (least + (part < more)) * block
        plan.append((start, stop))
        start = stop
    return plan


def smaller_parts_first(cached_tokens, num_splits, block):
    least, more = divmod(-(-cached_tokens // block), num_splits)
    plan, start = [], 0
    for part in range(num_splits):
        stop = min(start + (least + (part >= num_splits - more)) * block, cached_tokens)
        plan.append((start, stop))
        start = stop
    return plan


def empty_parts_left_out(cached_tokens, num_splits, block):
    least, more = divmod(-(-cached_tokens // block), num_splits)
    plan, start = [], 0
    for part in range(num_splits):
        stop = min(start + (least + (part < more)) * block, cached_tokens)
        plan += [(start, stop)] if stop > start else []
        start = stop
    return plan


def empty_parts_at_zero(cached_tokens, num_splits, block):
    least, more = divmod(-(-cached_tokens // block), num_splits)
    plan, start = [], 0
    for part in range(num_splits):
        stop = min(start + (least + (part < more)) * block, cached_tokens)
        plan.append((start, stop) if stop > start else (0, 0))
        start = stop
    return plan


def start_and_count(cached_tokens, num_splits, block):
    least, more = divmod(-(-cached_tokens // block), num_splits)
    plan, start = [], 0
    for part in range(num_splits):
        stop = min(start + (least + (part < more)) * block, cached_tokens)
        plan.append((start, stop - start))
        start = stop
    return plan


def last_token_included(cached_tokens, num_splits, block):
    least, more = divmod(-(-cached_tokens // block), num_splits)
    plan, start = [], 0
    for part in range(num_splits):
        stop = min(start + (least + (part < more)) * block, cached_tokens)
        plan.append((start, stop - 1))
        start = stop
    return plan


def counted_in_blocks(cached_tokens, num_splits, block):
    least, more = divmod(-(-cached_tokens // block), num_splits)
    plan, start = [], 0
    for part in range(num_splits):
        plan.append((start, start + least + (part < more)))
        start += least + (part < more)
    return plan


EXERCISE = Exercise(
    id="split_plan",
    chapter=7,
    order=2,
    title="who reads which tokens",
    checks="the tokens of each part, as half-open ranges of whole blocks",
    points=3,
    difficulty=2,
    minutes=12,
    make=make,
    oracle=kernels.split_plan,
    cases=(
        Case("ten tokens by hand", {"cached_tokens": 10, "num_splits": 3, "block": 2}),
        Case("a block that is not full", {"cached_tokens": 5, "num_splits": 4, "block": 4}),
        Case("one part", {"cached_tokens": 1000, "num_splits": 1, "block": 64}),
        Case("blocks of one token", {"cached_tokens": 23, "num_splits": 7, "block": 1}),
        Case("parts of equal size", {"cached_tokens": 4096, "num_splits": 8, "block": 64}),
        Case("ten blocks for four", {"cached_tokens": 640, "num_splits": 4, "block": 64}),
        Case("sizes drawn at random", make=make_long),
        Case("more parts than blocks, drawn at random", make=make_more_splits),
        Case("no tokens", {"cached_tokens": 0, "num_splits": 3, "block": 16}),
        Case("one token", {"cached_tokens": 1, "num_splits": 5, "block": 64}),
    ),
    hints=(
        "Forget the tokens at first. How many blocks are there, counting one that is only started, and how many does "
        "each part get if they are dealt out one by one?",
        "divmod gives both: what every part gets, and how many parts get one more. Walk through the parts with a "
        "running start; a part's stop is the next part's start. Turn blocks into tokens, and let no stop pass the end "
        "of the cache.",
        "Fill the gaps:\n\n"
        "    blocks = ____  # rounded up\n"
        "    least, more = divmod(____, ____)\n"
        "    start = 0\n"
        "    for part in ____:\n"
        "        size = least + ____  # in blocks\n"
        "        stop = min(____, ____)\n"
        "        ...",
    ),
    mistakes=(
        Mistake(
            "tokens spread evenly",
            "the tokens are spread evenly, but parts must start where a block starts",
            tokens_spread_evenly,
            also=(tokens_dealt,),
        ),
        Mistake(
            "parts of one size",
            "the size was rounded up for every part. Sizes may differ by one block at most: deal the blocks out",
            parts_of_one_size,
        ),
        Mistake(
            "the rest in the last part",
            "the size was rounded down and the last part takes the rest. Sizes may differ by one block at most",
            rest_in_the_last,
        ),
        Mistake(
            "a started block forgotten",
            "the tokens of the last block, which is not full, are in no part: round the number of blocks up",
            started_block_forgotten,
        ),
        Mistake(
            "stops beyond the cache",
            "the last stop lies behind the last token: a block that is not full ends with the cache",
            stops_beyond_the_cache,
        ),
        Mistake("smaller parts first", "the larger parts must come first", smaller_parts_first),
        Mistake(
            "empty parts left out",
            "there must be num_splits parts: an empty one is (cached_tokens, cached_tokens)",
            empty_parts_left_out,
        ),
        Mistake(
            "empty parts at 0",
            "an empty part is (cached_tokens, cached_tokens), so that the parts still follow each other",
            empty_parts_at_zero,
        ),
        Mistake("start and count", "the second number is a count. It must be the stop", start_and_count),
        Mistake(
            "last token included",
            "the stops are the last tokens of the parts. The ranges are half-open, as Python's",
            last_token_included,
        ),
        Mistake("counted in blocks", "these are numbers of blocks. Tokens are asked for", counted_in_blocks),
    ),
    mutants=(
        Mutant(tokens_spread_evenly, "tokens spread evenly"),
        Mutant(tokens_dealt, "tokens spread evenly"),
        Mutant(parts_of_one_size, "parts of one size"),
        Mutant(rest_in_the_last, "the rest in the last part"),
        Mutant(started_block_forgotten, "a started block forgotten"),
        Mutant(stops_beyond_the_cache, "stops beyond the cache"),
        Mutant(smaller_parts_first, "smaller parts first"),
        Mutant(empty_parts_left_out, "empty parts left out"),
        Mutant(empty_parts_at_zero, "empty parts at 0"),
        Mutant(start_and_count, "start and count"),
        Mutant(last_token_included, "last token included"),
        Mutant(counted_in_blocks, "counted in blocks"),
    ),
)
