"""Chapter 7: absorbed decode over a paged cache, as a Triton kernel in which all heads share a tile."""

from functools import partial

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import normal, rewritten
from ledger.judge.launchers.blocks import BLOCK_H, BLOCK_T, split
from ledger.reference.kernels import gather_pages
from ledger.reference.values import softmax_lse

KERNEL = """\
def mla_decode_kernel(
    p_queries, p_pages, p_block_table, p_lengths, p_out, p_lse, num_heads, page_size, scale,
    stride_query_request, stride_query_head, stride_page, stride_slot, stride_table,
    stride_out_request, stride_out_head, stride_lse_request,
    LATENT: tl.constexpr, ROPE: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_R: tl.constexpr, DOT: tl.constexpr,
):
    i_head, i_request = tl.program_id(0) * BLOCK_H + tl.arange(0, BLOCK_H), tl.program_id(1)
    i_latent, i_rope = tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_R)
    m_head, m_latent, m_rope = i_head < num_heads, i_latent < LATENT, i_rope < ROPE
    length = tl.load(p_lengths + i_request)
    o_query = (i_request * stride_query_request + i_head * stride_query_head)[:, None]
    m_query = m_head[:, None] & m_latent[None, :]
    b_query = tl.load(p_queries + o_query + i_latent[None, :], mask=m_query, other=0.0).to(DOT)
    m_query_rope = m_head[:, None] & m_rope[None, :]
    b_query_rope = tl.load(p_queries + o_query + LATENT + i_rope[None, :], mask=m_query_rope, other=0.0).to(DOT)
    m_i = tl.full([BLOCK_H], float("-inf"), tl.float32)
    l_i = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_C], tl.float32)
    for o_token in range(0, length, BLOCK_T):
        i_token = o_token + tl.arange(0, BLOCK_T)
        m_token = i_token < length
        p_entry = p_block_table + i_request * stride_table + i_token // page_size
        i_page = tl.load(p_entry, mask=m_token, other=0).to(tl.int64)
        o_entry = (i_page * stride_page + (i_token % page_size) * stride_slot)[:, None]
        m_latents = m_token[:, None] & m_latent[None, :]
        b_latent = tl.load(p_pages + o_entry + i_latent[None, :], mask=m_latents, other=0.0).to(DOT)
        m_keys = m_token[:, None] & m_rope[None, :]
        b_rope = tl.load(p_pages + o_entry + LATENT + i_rope[None, :], mask=m_keys, other=0.0).to(DOT)
        b_scores = tl.dot(b_query, tl.trans(b_latent), input_precision="ieee")
        b_scores += tl.dot(b_query_rope, tl.trans(b_rope), input_precision="ieee")
        b_scores = tl.where(m_token[None, :], scale * b_scores, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(b_scores, axis=1))
        b_rescale = tl.exp(m_i - m_new)
        b_weights = tl.exp(b_scores - m_new[:, None])
        m_i, l_i = m_new, l_i * b_rescale + tl.sum(b_weights, axis=1)
        acc = acc * b_rescale[:, None] + tl.dot(b_weights.to(DOT), b_latent, input_precision="ieee")
    total = tl.where(length > 0, l_i, 1.0)
    o_out = i_request * stride_out_request + i_head[:, None] * stride_out_head + i_latent[None, :]
    tl.store(p_out + o_out, acc / total[:, None], mask=m_query)
    lse = tl.where(length > 0, m_i + tl.log(total), float("-inf"))
    tl.store(p_lse + i_request * stride_lse_request + i_head, lse, mask=m_head)
"""


def make(rng, dtype, num_heads, width, page, lengths, behind=2):
    """Each request's pages lie anywhere among others; what belongs to no token is NaN, and the block table goes on for
    ``behind`` entries with pages that are not there."""
    needed = [-(-length // page) for length in lengths]
    total = sum(needed) + 2
    numbers = rng.permutation(total)
    pages = np.full((total, page, width), np.nan, dtype)
    block_table = np.full((len(lengths), max(needed) + behind), 2**20, np.int32)
    for request, (length, entries) in enumerate(zip(lengths, needed, strict=True)):
        own, numbers = numbers[:entries], numbers[entries:]
        block_table[request, :entries] = own
        rows = np.full((entries * page, width), np.nan, dtype)
        rows[:length] = normal(rng, dtype, length, width)
        pages[own] = rows.reshape(entries, page, width)
    return {
        "queries": normal(rng, dtype, len(lengths), num_heads, width),
        "pages": pages,
        "block_table": block_table,
        "lengths": np.array(lengths, np.int32),
        "scale": float(width**-0.5),
    }


def make_steep(rng, dtype, **dims):
    """Scores that fall from 800 to -800 over the tokens of one request and rise over those of the next."""
    inputs = make(rng, dtype, **dims)
    pages = inputs["pages"]
    inputs["queries"][...], inputs["queries"][..., 0] = 0, 1 / inputs["scale"]
    for request, (table, length) in enumerate(zip(inputs["block_table"], inputs["lengths"], strict=True)):
        start = 800 if request % 2 == 0 else -800
        for token, score in enumerate(np.linspace(start, -start, length)):
            pages[table[token // pages.shape[1]], token % pages.shape[1], 0] = score
    return inputs


def requests_of(queries, pages, block_table, lengths):
    """Queries (num_heads, width) and entries (length, width) of each request."""
    for rows, table, length in zip(queries, block_table, lengths.tolist(), strict=True):
        yield rows, gather_pages(pages, table, length)


def whole_softmax(queries, pages, block_table, lengths, scale, score=lambda scores, *_: scores):
    """out and lse from all tokens of a request at once, in float64; a mistake may change the scores by
    ``score(scores, queries, entries, latent_dim, scale)``."""
    latent_dim, _ = split(queries.shape[2])
    found = []
    for rows, entries in requests_of(queries.astype(np.float64), pages.astype(np.float64), block_table, lengths):
        weights, lse = softmax_lse(score(scale * rows @ entries.T, rows, entries, latent_dim, scale))
        found.append((weights @ entries[:, :latent_dim], lse))
    out, lse = (np.stack(part) for part in zip(*found, strict=True))
    return out.astype(queries.dtype), lse.astype(np.float32)


def once(queries, pages, lengths):
    """Bytes of the pages where a block of heads loads each entry once."""
    return int(-(-queries.shape[1] // BLOCK_H) * lengths.sum()) * pages.shape[2] * pages.itemsize


def oracle(queries, pages, block_table, lengths, scale):
    return *whole_softmax(queries, pages, block_table, lengths, scale), once(queries, pages, lengths)


def wrong_scores(score):
    """What a change of the scores leads to."""

    def value(queries, pages, block_table, lengths, scale):
        found = whole_softmax(queries, pages, block_table, lengths, scale, score)
        return *found, once(queries, pages, lengths)

    return value


unscaled = wrong_scores(lambda scores, rows, entries, latent_dim, scale: scores / scale)
without_rope = wrong_scores(
    lambda scores, rows, entries, latent_dim, scale: scale * rows[:, :latent_dim] @ entries[:, :latent_dim].T
)
rope_from_the_latent = wrong_scores(
    lambda scores, rows, entries, latent_dim, scale: (
        scale * rows @ np.hstack([entries[:, :latent_dim], entries[:, : entries.shape[1] - latent_dim]]).T
    )
)


def wrong_loop(maximum=max, acc_rescaled=True, l_rescaled=True, tail=-np.inf):
    """What a loop over tiles in float32 gives with another new maximum than the larger of the old one and the tile's,
    without a rescaling, or with the score ``tail`` for tokens behind the last."""

    def value(queries, pages, block_table, lengths, scale):
        latent_dim, _ = split(queries.shape[2])
        found = []
        for rows, entries in requests_of(queries.astype(np.float32), pages.astype(np.float32), block_table, lengths):
            total = -(-len(entries) // BLOCK_T) * BLOCK_T
            scores = np.full((len(rows), total), tail, np.float32)
            scores[:, : len(entries)] = np.float32(scale) * (rows @ entries.T)
            values = np.zeros((total, latent_dim), np.float32)
            values[: len(entries)] = entries[:, :latent_dim]
            out, lse = by_tiles(scores, values, maximum, acc_rescaled, l_rescaled)
            found.append((out, lse))
        out, lse = (np.stack(part) for part in zip(*found, strict=True))
        return out.astype(queries.dtype), lse, once(queries, pages, lengths)

    return value


@np.errstate(all="ignore")
def by_tiles(scores, values, maximum, acc_rescaled, l_rescaled):
    """The loop of the exercise for one request: scores (num_heads, tokens), values (tokens, latent_dim)."""
    m = np.full(len(scores), -np.inf, np.float32)
    l = np.zeros_like(m)  # noqa: E741
    acc = np.zeros((len(scores), values.shape[1]), np.float32)
    for start in range(0, len(values), BLOCK_T):
        tile = scores[:, start : start + BLOCK_T]
        m_new = np.array([maximum(*pair) for pair in zip(m, tile.max(axis=1), strict=True)], np.float32)
        rescale, weights = np.exp(m - m_new), np.exp(tile - m_new[:, None])
        l = (rescale if l_rescaled else 1) * l + weights.sum(axis=1)  # noqa: E741
        acc = (rescale[:, None] if acc_rescaled else 1) * acc + weights @ values[start : start + BLOCK_T]
        m = m_new
    if not len(values):
        return acc, m
    return acc / l[:, None], m + np.log(l)


tile_maximum = wrong_loop(maximum=lambda old, new: new)
first_maximum = wrong_loop(maximum=lambda old, new: new if np.isneginf(old) else old)
acc_not_rescaled = wrong_loop(acc_rescaled=False)
l_not_rescaled = wrong_loop(l_rescaled=False)
tail_counted = wrong_loop(tail=0)


def once_a_head(queries, pages, block_table, lengths, scale):
    out, lse, _ = oracle(queries, pages, block_table, lengths, scale)
    return out, lse, int(queries.shape[1] * lengths.sum()) * pages.shape[2] * pages.itemsize


def latents_twice(queries, pages, block_table, lengths, scale):
    out, lse, loaded = oracle(queries, pages, block_table, lengths, scale)
    latent_dim, _ = split(pages.shape[2])
    return out, lse, loaded // pages.shape[2] * (pages.shape[2] + latent_dim)


def unmasked(latents, rope):
    """What loads give that do not ask which tokens are there; page 0 stands in for those that are not."""

    def value(queries, pages, block_table, lengths, scale):
        out, lse, loaded = oracle(queries, pages, block_table, lengths, scale)
        latent_dim, rope_dim = split(pages.shape[2])
        for request, length in enumerate(lengths.tolist()):
            absent = np.arange(length, -(-length // BLOCK_T) * BLOCK_T)
            if latents and np.isnan(pages[0, absent % pages.shape[1], :latent_dim]).any():
                out[request] = np.nan
            one = (latents * latent_dim + rope * rope_dim) * pages.itemsize
            loaded += -(-queries.shape[1] // BLOCK_H) * len(absent) * one
        return out, lse, int(loaded)

    return value


def last_tile_alone(queries, pages, block_table, lengths, scale):
    """m_i stays -inf, so that each tile wipes out what was before it."""
    latent_dim, _ = split(queries.shape[2])
    out, lse, loaded = oracle(queries, pages, block_table, lengths, scale)
    for request, (rows, entries) in enumerate(requests_of(queries, pages, block_table, lengths)):
        tile = entries[max(len(entries) - 1, 0) // BLOCK_T * BLOCK_T :].astype(np.float64)
        weights, _ = softmax_lse(scale * rows.astype(np.float64) @ tile.T)
        out[request] = weights @ tile[:, :latent_dim]
    return out, np.full_like(lse, -np.inf), loaded


def first_table_for_all(queries, pages, block_table, lengths, scale):
    return oracle(queries, pages, np.repeat(block_table[:1], len(block_table), axis=0), lengths, scale)


def pages_side_by_side(queries, pages, block_table, lengths, scale):
    """Pages lie one slot of NaN apart here (``ledger.judge.launchers.kernels``), which this takes for a token's."""
    latent_dim, _ = split(queries.shape[2])
    slots = np.pad(pages, ((0, 0), (0, 1), (0, 0)), constant_values=np.nan).reshape(-1, pages.shape[2])
    out, lse, loaded = oracle(queries, pages, block_table, lengths, scale)
    for request, (rows, table, length) in enumerate(zip(queries, block_table, lengths.tolist(), strict=True)):
        token = np.arange(length)
        entries = slots[table[token // pages.shape[1]] * pages.shape[1] + token % pages.shape[1]].astype(np.float64)
        if np.isnan(entries).any():
            out[request], lse[request] = np.nan, np.nan
        else:
            weights, lse[request] = softmax_lse(scale * rows.astype(np.float64) @ entries.T)
            out[request] = weights @ entries[:, :latent_dim]
    return out, lse, loaded


def mutant(name, because, changes, verdict="wrong"):
    return Mutant(rewritten(KERNEL, name, changes), because, verdict)


_LATENTS = "b_latent = tl.load(p_pages + o_entry + i_latent[None, :], mask=m_latents, other=0.0).to(DOT)\n"
_ROPE = "b_rope = tl.load(p_pages + o_entry + LATENT + i_rope[None, :], mask=m_keys, other=0.0).to(DOT)\n"
_ROPE_SCORES = 'b_scores += tl.dot(b_query_rope, tl.trans(b_rope), input_precision="ieee")'
_MIX = 'acc = acc * b_rescale[:, None] + tl.dot(b_weights.to(DOT), b_latent, input_precision="ieee")'
_RUNNING = "m_new = tl.maximum(m_i, tl.max(b_scores, axis=1))"

EXERCISE = Exercise(
    id="mla_decode_kernel",
    chapter=7,
    order=7,
    title="a tile of the cache for all heads",
    checks="the mixed latents and their log-sum-exp, and what is read of the cache",
    points=6,
    difficulty=3,
    minutes=40,
    make=make,
    oracle=oracle,
    returns=("out", "lse", "bytes of the cache loaded"),
    needs=("torch", "triton"),
    case_seconds=6.0,  # twenty times what the slowest takes
    launcher="kernels.mla_decode",
    cases=(
        Case("one token", {"num_heads": 16, "width": 18, "page": 8, "lengths": (1,)}, dtype="float32"),
        Case("two tiles, one page", {"num_heads": 16, "width": 18, "page": 64, "lengths": (32,)}, dtype="float32"),
        Case(
            "pages that tiles straddle",
            {"num_heads": 16, "width": 36, "page": 5, "lengths": (40, 1, 17)},
            dtype="float32",
        ),
        Case("ragged, one empty", {"num_heads": 3, "width": 45, "page": 8, "lengths": (0, 50, 16, 7)}, dtype="float32"),
        Case("two blocks of heads", {"num_heads": 20, "width": 27, "page": 16, "lengths": (33, 20)}, dtype="float32"),
        Case(
            "scores from 800 to -800, and from -800 to 800",
            {"num_heads": 4, "width": 18, "page": 16, "lengths": (80, 75)},
            dtype="float32",
            make=make_steep,
        ),
        Case(
            "a row of the block table that ends with the request",
            {"num_heads": 6, "width": 18, "page": 4, "lengths": (9, 21)},
            dtype="float32",
            make=partial(make, behind=0),
        ),
        Case("float16", {"num_heads": 5, "width": 72, "page": 64, "lengths": (70, 9)}, dtype="float16"),
        Case("DeepSeek-V3 widths", {"num_heads": 16, "width": 576, "page": 64, "lengths": (70,)}, dtype="float32"),
    ),
    hints=(
        "The five words of the step, as in online_softmax_step: load tile, scores, new maximum, rescale, accumulate. "
        "Token i_token lies in slot i_token % page_size of a page; entry i_token // page_size of the block table is "
        "that page's number.",
        "Load a tile of latents [BLOCK_T, BLOCK_C] and of rope keys [BLOCK_T, BLOCK_R] once. Every head multiplies by "
        "them: tl.dot with tl.trans(b_latent) gives scores of shape [BLOCK_H, BLOCK_T], and the same tile is mixed "
        "again at the end. A token from length on gets the score −inf, whatever was loaded in its place.",
        "The end of the loop, with two gaps:\n\n    m_new = tl.maximum(____, tl.max(b_scores, axis=1))\n"
        "    b_rescale = tl.exp(____)\n    b_weights = tl.exp(b_scores - ____)\n"
        "    l_i = l_i * b_rescale + tl.sum(b_weights, axis=1)\n    (and acc likewise, before m_i becomes m_new)",
    ),
    mistakes=(
        Mistake("unscaled scores", "the scores are not multiplied by scale", unscaled),
        Mistake("rope left out", "the scores lack the rope part of queries and entries", without_rope),
        Mistake(
            "block maximum for running maximum",
            "m_i is the largest score of the tile. It must be the largest of all so far, or rescaling overflows as "
            "soon as scores fall",
            tile_maximum,
        ),
        Mistake(
            "first maximum kept",
            "m_i stays what the first tile made it, and the exponentials overflow as soon as scores rise",
            first_maximum,
        ),
        Mistake("acc not rescaled", "l_i was rescaled to the new maximum, acc was not", acc_not_rescaled),
        Mistake("l not rescaled", "acc was rescaled to the new maximum, l_i was not", l_not_rescaled),
        Mistake(
            "tokens behind the last",
            "the last tile's tokens that are not there count with a score of 0. Their scores must be -inf",
            tail_counted,
        ),
        Mistake(
            "m_i never brought up to date",
            "m_i is -inf after every tile, so that the next one wipes out what was before it. Let it become m_new at "
            "the end of each turn",
            last_tile_alone,
        ),
        Mistake(
            "rope read from the latent",
            "the rope keys are the first numbers of the entries. They stand behind the latent: add LATENT to the "
            "offset",
            rope_from_the_latent,
        ),
        Mistake(
            "first row of the block table for all",
            "every request reads the pages of request 0. A request has a row of its own, stride_table apart",
            first_table_for_all,
        ),
        Mistake(
            "pages side by side",
            "a token's place was counted in slots from the first page on, as if pages touched. There may be something "
            "between them: page times stride_page, and slot times stride_slot",
            pages_side_by_side,
        ),
        Mistake(
            "latents of no token",
            "latents are loaded of tokens that are not there. Their memory may hold NaN, and 0 times NaN is NaN: "
            "mask every load by the length too",
            unmasked(latents=True, rope=False),
            also=(unmasked(latents=True, rope=True),),
        ),
        Mistake(
            "rope keys of no token",
            "rope keys are loaded of tokens that are not there. Nothing is read of such a token: mask every load "
            "by the length too",
            unmasked(latents=False, rope=True),
        ),
        Mistake(
            "cache once a head",
            "every head loads the cache for itself. Load a tile once and let tl.dot use it for all BLOCK_H heads",
            once_a_head,
        ),
        Mistake(
            "latents twice",
            "the latents are loaded twice, as keys and as values. They are one tile: keep it and use it again",
            latents_twice,
        ),
    ),
    mutants=(
        mutant("scale_forgotten", "unscaled scores", {"scale * b_scores": "b_scores"}),
        mutant(
            "rope_forgotten",
            "rope left out",
            {_ROPE_SCORES: "b_scores += 0 * tl.max(b_rope)"},
        ),
        mutant(
            "maximum_of_the_tile", "block maximum for running maximum", {_RUNNING: "m_new = tl.max(b_scores, axis=1)"}
        ),
        mutant(
            "maximum_of_the_first_tile",
            "first maximum kept",
            {_RUNNING: "m_new = tl.where(o_token == 0, tl.max(b_scores, axis=1), m_i)"},
        ),
        mutant("acc_not_rescaled", "acc not rescaled", {"acc = acc * b_rescale[:, None] +": "acc = acc +"}),
        mutant("sum_not_rescaled", "l not rescaled", {"l_i * b_rescale + tl.sum": "l_i + tl.sum"}),
        mutant(
            "tail_not_masked",
            "tokens behind the last",
            {'tl.where(m_token[None, :], scale * b_scores, float("-inf"))': "scale * b_scores"},
        ),
        mutant(
            "tile_once_a_head",
            "cache once a head",
            {
                _LATENTS: (
                    "m_each = m_head[:, None, None] & m_latents[None, :, :]\n"
                    "        o_each = (o_entry + i_latent[None, :])[None, :, :] + 0 * i_head[:, None, None]\n"
                    "        b_latent = tl.load(p_pages + o_each, mask=m_each, other=0.0).to(DOT)\n"
                ),
                _ROPE: (
                    "m_own = m_head[:, None, None] & m_keys[None, :, :]\n"
                    "        o_own = (o_entry + LATENT + i_rope[None, :])[None, :, :] + 0 * i_head[:, None, None]\n"
                    "        b_rope = tl.load(p_pages + o_own, mask=m_own, other=0.0).to(DOT)\n"
                ),
                'b_scores = tl.dot(b_query, tl.trans(b_latent), input_precision="ieee")': (
                    "b_scores = tl.sum(b_query[:, None, :] * b_latent, axis=2)"
                ),
                _ROPE_SCORES: "b_scores += tl.sum(b_query_rope[:, None, :] * b_rope, axis=2)",
                _MIX: "acc = acc * b_rescale[:, None] + tl.sum(b_weights[:, :, None] * b_latent, axis=1)",
            },
        ),
        mutant(
            "latents_loaded_again",
            "latents twice",
            {_MIX: f"{_LATENTS}        {_MIX}".replace("b_latent", "b_values")},
        ),
        mutant("page_ignored", "NaN or infinity", {"i_page * stride_page + ": "0 * i_page + "}),
        mutant(
            "cache_taken_in_order",
            "NaN or infinity",
            {"i_page * stride_page + (i_token % page_size) * stride_slot": "i_token * stride_slot + 0 * i_page"},
        ),
        mutant(
            "slots_taken_for_dense",
            "NaN or infinity",
            {"(i_token % page_size) * stride_slot": "(i_token % page_size) * (LATENT + ROPE)"},
        ),
        mutant("latents_of_no_token", "latents of no token", {"m_latents = m_token[:, None] & ": "m_latents = "}),
        mutant(
            "entries_of_no_token",
            "latents of no token",
            {"m_latents = m_token[:, None] & ": "m_latents = ", "m_keys = m_token[:, None] & ": "m_keys = "},
        ),
        mutant("rope_keys_of_no_token", "rope keys of no token", {"m_keys = m_token[:, None] & ": "m_keys = "}),
        mutant("maximum_not_kept", "m_i never brought up to date", {"m_i, l_i = m_new, l_i": "l_i = l_i"}),
        mutant("rope_at_the_latent", "rope read from the latent", {"o_entry + LATENT + i_rope": "o_entry + i_rope"}),
        mutant("row_of_the_table_ignored", "first row of the block table for all", {" + i_request * stride_table": ""}),
        mutant(
            "place_counted_in_slots",
            "pages side by side",
            {
                "i_page * stride_page + (i_token % page_size) * stride_slot": (
                    "(i_page * page_size + i_token % page_size) * stride_slot"
                )
            },
        ),
        mutant(
            "page_numbers_unmasked",
            "mask the access",
            {
                "tl.load(p_entry, mask=m_token, other=0)": "tl.load(p_entry)",
                "m_latents = m_token[:, None] & m_latent[None, :]": "m_latents = m_latent[None, :]",
            },
            "error",
        ),
        mutant(
            "block_table_unmasked",
            "mask the access",
            {"tl.load(p_entry, mask=m_token, other=0)": "tl.load(p_entry)"},
            "error",
        ),
        mutant(
            "heads_unmasked",
            "mask the access",
            {"acc / total[:, None], mask=m_query)": "acc / total[:, None])"},
            "error",
        ),
        mutant("exponent_of_two", "out is wrong", {"b_weights = tl.exp(": "b_weights = tl.exp2("}),
        mutant("logarithm_of_two", "lse is wrong", {"tl.log(total)": "tl.log2(total)"}),
        mutant("empty_request_divided", "NaN or infinity", {"total = tl.where(length > 0, l_i, 1.0)": "total = l_i"}),
    ),
)
