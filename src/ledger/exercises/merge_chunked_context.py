"""Chapter 6: attention over a long context, one chunk at a time."""

import math

import numpy as np

from ledger.account.attention import matmul_macs
from ledger.exercises.base import Budget, Case, Exercise, Forbidden, Mistake, Mutant
from ledger.exercises.making import TOY_LATENTS, cancel, normal, whole
from ledger.reference import chunked

#: The rows of the case with scores far apart: how far each rises (or falls) from the first token on, and from where.
RISES, FEET = (-1600, 1600, -10, 800), (800, -800, -790, -770)


def make(rng, dtype, new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, chunk):
    width = latent_dim + rope_dim
    return {
        "queries": normal(rng, dtype, new_tokens, num_heads, width),
        "cache": normal(rng, dtype, cached_tokens, width),
        "chunk": chunk,
        "latent_dim": latent_dim,
        "scale": float(rng.uniform(0.5, 2)) / max(width, 1) ** 0.5,
    }


def make_whole(rng, dtype, new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, chunk):
    width = latent_dim + rope_dim
    return {
        "queries": whole(rng, dtype, new_tokens, num_heads, width),
        "cache": whole(rng, dtype, cached_tokens, width),
        "chunk": chunk,
        "latent_dim": latent_dim,
        "scale": 0.125,
    }


def make_cancelling(rng, dtype, **dims):
    inputs = make_whole(rng, dtype, **dims)
    cancel(inputs["queries"], inputs["cache"], axis=1)
    return inputs


def make_falling(rng, dtype, new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, chunk):
    """Scores that fall or rise through the cache, two tokens at a time, each row on a level of its own: a row rises by
    as much as its place in RISES says, from the number in FEET. The exponential of a score near -790 is 0, not a small
    number."""
    inputs = make(rng, dtype, new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, chunk)
    rows = (np.arange(new_tokens)[:, None] + np.arange(num_heads)) % len(RISES)
    inputs["scale"] = 1.0
    inputs["cache"][:, 0] = np.arange(cached_tokens) // 2 / ((cached_tokens - 1) // 2)
    inputs["cache"][:, 1] = 1
    inputs["queries"] *= 0.01
    inputs["queries"][..., 0], inputs["queries"][..., 1] = np.take(RISES, rows), np.take(FEET, rows)
    return inputs


def make_toy(rng, dtype, **dims):
    """Scores 1, 0, 2 under a scale of ln 2: the exponentials are 2, 1, 4."""
    cache = np.hstack([np.array(TOY_LATENTS, dtype), np.array([[0], [0], [1]], dtype)])
    queries = np.array([[[1, 0, 1, 1]]], dtype)
    return {"queries": queries, "cache": cache, "chunk": 2, "latent_dim": 3, "scale": math.log(2)}


def least_macs(new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, chunk):
    rows = new_tokens * num_heads
    return matmul_macs(rows, latent_dim + rope_dim, cached_tokens) + matmul_macs(rows, cached_tokens, latent_dim)


def most_macs(new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, chunk):
    """The two products; two steps over the scores, whole entries mixed and cut afterwards, in each chunk two steps over
    the result and a few over its rows, and the scale on the queries."""
    sizes = new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, chunk
    rows, chunks = new_tokens * num_heads, -(-cached_tokens // chunk)
    for_a_row = cached_tokens * (2 + rope_dim) + chunks * (2 * latent_dim + 8) + latent_dim + rope_dim
    return least_macs(*sizes) + rows * for_a_row


def largest(new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, chunk):
    """The scores of a chunk with one number more a row, the queries, or the results of all chunks and a first one."""
    chunks = -(-cached_tokens // chunk)
    return new_tokens * num_heads * max(chunk + 1, latent_dim + rope_dim, (chunks + 1) * latent_dim)


def peak_values(new_tokens, cached_tokens, num_heads, latent_dim, rope_dim, chunk):
    """A copy of the queries and of a chunk, four arrays of a chunk's scores, six of the result, and the results of all
    chunks twice."""
    rows, width, chunks = new_tokens * num_heads, latent_dim + rope_dim, -(-cached_tokens // chunk)
    return (rows + chunk) * width + rows * (4 * chunk + (6 + 2 * (chunks + 1)) * latent_dim)


def all_at_once(queries, cache, chunk, latent_dim, scale):
    scores = scale * (queries @ cache.T)
    lse = np.logaddexp.reduce(scores, axis=-1)
    return np.exp(scores - lse[..., None]) @ cache[:, :latent_dim], lse


def scores_first_then_chunks(queries, cache, chunk, latent_dim, scale):
    scores = scale * (queries @ cache.T)
    lse = np.logaddexp.reduce(scores, axis=-1)
    mixed = np.zeros((*lse.shape, latent_dim), queries.dtype)
    for start in range(0, len(cache), chunk):
        weights = np.exp(scores[..., start : start + chunk] - lse[..., None])
        mixed += weights @ cache[start : start + chunk, :latent_dim]
    return mixed, lse


def one_head_at_a_time(queries, cache, chunk, latent_dim, scale):
    mixed = np.zeros((*queries.shape[:2], latent_dim), queries.dtype)
    lse = np.full(queries.shape[:2], -np.inf, queries.dtype)
    for head in range(queries.shape[1] if len(cache) else 0):
        scores = scale * (queries[:, head] @ cache.T)
        lse[:, head] = np.logaddexp.reduce(scores, axis=-1)
        mixed[:, head] = np.exp(scores - lse[:, head, None]) @ cache[:, :latent_dim]
    return mixed, lse


def one_row_at_a_time(queries, cache, chunk, latent_dim, scale):
    mixed = np.zeros((*queries.shape[:2], latent_dim), queries.dtype)
    lse = np.full(queries.shape[:2], -np.inf, queries.dtype)
    for row in np.ndindex(lse.shape if len(cache) else (0,)):
        scores = scale * (cache @ queries[row])
        lse[row] = np.logaddexp.reduce(scores)
        mixed[row] = np.exp(scores - lse[row]) @ cache[:, :latent_dim]
    return mixed, lse


def blocks_of_its_own(queries, cache, chunk, latent_dim, scale):
    dtype = np.result_type(queries, cache)
    mixed = np.zeros((*queries.shape[:2], latent_dim), dtype)
    lse = np.full(queries.shape[:2], -np.inf, dtype)
    for start in range(0, len(cache), 420):
        scores = scale * (queries @ cache[start : start + 420].T)
        after = np.logaddexp(lse, np.logaddexp.reduce(scores, axis=-1))
        weights = np.exp(scores - after[..., None])
        mixed = np.exp(lse - after)[..., None] * mixed + weights @ cache[start : start + 420, :latent_dim]
        lse = after
    return mixed, lse


def chunk_scores_put_together(queries, cache, chunk, latent_dim, scale):
    scores = [scale * (queries @ cache[i : i + chunk].T) for i in range(0, len(cache), chunk)]
    scores = np.concatenate(scores or [np.zeros((*queries.shape[:2], 0), queries.dtype)], axis=-1)
    lse = np.logaddexp.reduce(scores, axis=-1)
    return np.exp(scores - lse[..., None]) @ cache[:, :latent_dim], lse


def the_cache_again_in_each_chunk(queries, cache, chunk, latent_dim, scale):
    dtype = np.result_type(queries, cache)
    mixed = np.zeros((*queries.shape[:2], latent_dim), dtype)
    lse = np.full(queries.shape[:2], -np.inf, dtype)
    for start in range(0, len(cache), chunk):
        for again in range(0, len(cache), chunk):
            scores = scale * (queries @ cache[again : again + chunk].T)
            if again == start:
                entries, mine = cache[start : start + chunk, :latent_dim], scores
        after = np.logaddexp(lse, np.logaddexp.reduce(mine, axis=-1))
        mixed = np.exp(lse - after)[..., None] * mixed + np.exp(mine - after[..., None]) @ entries
        lse = after
    return mixed, lse


def maximum_of_the_block(queries, cache, chunk, latent_dim, scale):
    dtype = np.result_type(queries, cache)
    total, largest = np.zeros(queries.shape[:2], dtype), np.full(queries.shape[:2], -np.inf, dtype)
    mixed = np.zeros((*total.shape, latent_dim), dtype)
    for start in range(0, len(cache), chunk):
        scores = scale * (queries @ cache[start : start + chunk].T)
        largest = scores.max(axis=-1)
        weights = np.exp(scores - largest[..., None])
        mixed += weights @ cache[start : start + chunk, :latent_dim]
        total += weights.sum(axis=-1)
    with np.errstate(all="ignore"):
        return np.where(total[..., None] > 0, mixed / total[..., None], 0), largest + np.log(total)


def old_mix_not_rescaled(queries, cache, chunk, latent_dim, scale):
    dtype = np.result_type(queries, cache)
    mixed = np.zeros((*queries.shape[:2], latent_dim), dtype)
    lse = np.full(queries.shape[:2], -np.inf, dtype)
    for start in range(0, len(cache), chunk):
        scores = scale * (queries @ cache[start : start + chunk].T)
        lse = np.logaddexp(lse, np.logaddexp.reduce(scores, axis=-1))
        mixed = mixed + np.exp(scores - lse[..., None]) @ cache[start : start + chunk, :latent_dim]
    return mixed, lse


def one_maximum_for_all_rows(queries, cache, chunk, latent_dim, scale):
    dtype = np.result_type(queries, cache)
    total, largest = np.zeros(queries.shape[:2], dtype), -np.inf
    mixed = np.zeros((*total.shape, latent_dim), dtype)
    with np.errstate(all="ignore"):
        for start in range(0, len(cache), chunk):
            scores = scale * (queries @ cache[start : start + chunk].T)
            new = np.maximum(largest, scores.max(initial=-np.inf))
            weights = np.exp(scores - new)
            mixed = mixed * np.exp(largest - new) + weights @ cache[start : start + chunk, :latent_dim]
            total = total * np.exp(largest - new) + weights.sum(axis=-1)
            largest = new
        lse = (largest + np.log(total)).astype(dtype)
        return np.where(total[..., None] > 0, mixed / total[..., None], 0).astype(dtype), lse


def scores_clipped(queries, cache, chunk, latent_dim, scale):
    dtype = np.result_type(queries, cache)
    mixed = np.zeros((*queries.shape[:2], latent_dim), dtype)
    lse = np.full(queries.shape[:2], -np.inf, dtype)
    for start in range(0, len(cache), chunk):
        scores = (scale * (queries @ cache[start : start + chunk].T)).clip(-700, 700)
        after = np.logaddexp(lse, np.logaddexp.reduce(scores, axis=-1))
        weights = np.exp(scores - after[..., None])
        mixed = np.exp(lse - after)[..., None] * mixed + weights @ cache[start : start + chunk, :latent_dim]
        lse = after
    return mixed, lse


def lse_0_for_an_empty_cache(queries, cache, chunk, latent_dim, scale):
    dtype = np.result_type(queries, cache)
    if len(cache) == 0:
        return np.zeros((*queries.shape[:2], latent_dim), dtype), np.zeros(queries.shape[:2], dtype)
    scores = scale * (queries @ cache.T)
    lse = np.logaddexp.reduce(scores, axis=-1)
    return np.exp(scores - lse[..., None]) @ cache[:, :latent_dim], lse


def lse_inf_for_an_empty_cache(queries, cache, chunk, latent_dim, scale):
    dtype = np.result_type(queries, cache)
    if len(cache) == 0:
        return np.zeros((*queries.shape[:2], latent_dim), dtype), np.full(queries.shape[:2], np.inf, dtype)
    scores = scale * (queries @ cache.T)
    lse = np.logaddexp.reduce(scores, axis=-1)
    return np.exp(scores - lse[..., None]) @ cache[:, :latent_dim], lse


def mean_of_the_parts(queries, cache, chunk, latent_dim, scale):
    mixed, lses = [], []
    for start in range(0, len(cache), chunk):
        scores = scale * (queries @ cache[start : start + chunk].T)
        lses.append(np.logaddexp.reduce(scores, axis=-1))
        mixed.append(np.exp(scores - lses[-1][..., None]) @ cache[start : start + chunk, :latent_dim])
    return np.stack(mixed).mean(axis=0), np.logaddexp.reduce(lses, axis=0)


def sum_of_the_parts(queries, cache, chunk, latent_dim, scale):
    mixed, lses = [], []
    for start in range(0, len(cache), chunk):
        scores = scale * (queries @ cache[start : start + chunk].T)
        lses.append(np.logaddexp.reduce(scores, axis=-1))
        mixed.append(np.exp(scores - lses[-1][..., None]) @ cache[start : start + chunk, :latent_dim])
    return np.stack(mixed).sum(axis=0), np.logaddexp.reduce(lses, axis=0)


def lses_added(queries, cache, chunk, latent_dim, scale):
    mixed, lses = [], []
    for start in range(0, len(cache), chunk):
        scores = scale * (queries @ cache[start : start + chunk].T)
        lses.append(np.logaddexp.reduce(scores, axis=-1))
        mixed.append(np.exp(scores - lses[-1][..., None]) @ cache[start : start + chunk, :latent_dim])
    shares = np.exp(np.array(lses) - np.logaddexp.reduce(lses, axis=0))
    return np.einsum("psh,pshc->shc", shares, np.stack(mixed)), np.sum(lses, axis=0)


def last_chunk_only(queries, cache, chunk, latent_dim, scale):
    start = (len(cache) - 1) // chunk * chunk
    scores = scale * (queries @ cache[start:].T)
    lse = np.logaddexp.reduce(scores, axis=-1)
    return np.exp(scores - lse[..., None]) @ cache[start:, :latent_dim], lse


def the_rest_dropped(queries, cache, chunk, latent_dim, scale):
    cache = cache[: len(cache) // chunk * chunk]
    scores = scale * (queries @ cache.T)
    lse = np.logaddexp.reduce(scores, axis=-1)
    return np.exp(scores - lse[..., None]) @ cache[:, :latent_dim], lse


def rope_forgotten(queries, cache, chunk, latent_dim, scale):
    scores = scale * (queries[..., :latent_dim] @ cache[:, :latent_dim].T)
    lse = np.logaddexp.reduce(scores, axis=-1)
    return np.exp(scores - lse[..., None]) @ cache[:, :latent_dim], lse


def rope_before_the_latent(queries, cache, chunk, latent_dim, scale):
    scores = scale * (queries @ cache.T)
    lse = np.logaddexp.reduce(scores, axis=-1)
    return np.exp(scores - lse[..., None]) @ cache[:, -latent_dim:], lse


def scale_from_the_width(queries, cache, chunk, latent_dim, scale):
    scores = queries @ cache.T / cache.shape[1] ** 0.5
    lse = np.logaddexp.reduce(scores, axis=-1)
    return np.exp(scores - lse[..., None]) @ cache[:, :latent_dim], lse


def not_scaled(queries, cache, chunk, latent_dim, scale):
    scores = queries @ cache.T
    lse = np.logaddexp.reduce(scores, axis=-1)
    return np.exp(scores - lse[..., None]) @ cache[:, :latent_dim], lse


def lse_in_base_two(queries, cache, chunk, latent_dim, scale):
    scores = scale * (queries @ cache.T)
    lse = np.logaddexp.reduce(scores, axis=-1)
    return np.exp(scores - lse[..., None]) @ cache[:, :latent_dim], lse / np.log(2).astype(lse.dtype)


def not_normalised(queries, cache, chunk, latent_dim, scale):
    scores = scale * (queries @ cache.T)
    lse = np.logaddexp.reduce(scores, axis=-1)
    with np.errstate(all="ignore"):
        return np.exp(scores) @ cache[:, :latent_dim], lse


def without_a_maximum(queries, cache, chunk, latent_dim, scale):
    dtype = np.result_type(queries, cache)
    total, mixed = np.zeros(queries.shape[:2], dtype), np.zeros((*queries.shape[:2], latent_dim), dtype)
    with np.errstate(all="ignore"):
        for start in range(0, len(cache), chunk):
            weights = np.exp(scale * (queries @ cache[start : start + chunk].T))
            mixed += weights @ cache[start : start + chunk, :latent_dim]
            total += weights.sum(axis=-1)
        return np.where(total[..., None] > 0, mixed / total[..., None], 0).astype(dtype), np.log(total)


def maximum_of_at_least_0(queries, cache, chunk, latent_dim, scale):
    dtype = np.result_type(queries, cache)
    largest, total = np.zeros((2, *queries.shape[:2]), dtype)
    mixed = np.zeros((*queries.shape[:2], latent_dim), dtype)
    for start in range(0, len(cache), chunk):
        scores = scale * (queries @ cache[start : start + chunk].T)
        before, largest = largest, np.maximum(largest, scores.max(axis=-1))
        kept, weights = np.exp(before - largest), np.exp(scores - largest[..., None])
        mixed = mixed * kept[..., None] + weights @ cache[start : start + chunk, :latent_dim]
        total = total * kept + weights.sum(axis=-1)
    with np.errstate(divide="ignore"):
        return mixed / np.where(total > 0, total, 1)[..., None], largest + np.log(total)


def an_empty_cache_forgotten(queries, cache, chunk, latent_dim, scale):
    mixed, lses = [], []
    for start in range(0, len(cache), chunk):
        scores = scale * (queries @ cache[start : start + chunk].T)
        lses.append(np.logaddexp.reduce(scores, axis=-1))
        mixed.append(np.exp(scores - lses[-1][..., None]) @ cache[start : start + chunk, :latent_dim])
    mixed, lses = np.stack(mixed), np.stack(lses)
    lse = np.logaddexp.reduce(lses, axis=0)
    return (np.exp(lses - lse)[..., None] * mixed).sum(axis=0), lse


EXERCISE = Exercise(
    id="merge_chunked_context",
    chapter=6,
    order=5,
    title="a context in chunks",
    checks="mixed latents and log-sum-exp of a cache that is read one chunk at a time",
    points=4,
    difficulty=3,
    minutes=20,
    make=make,
    oracle=chunked.merge_chunked_context,
    least_macs=least_macs,
    returns=("mixed latents", "lse"),
    cases=(
        Case(
            "square sizes, whole numbers",
            {"new_tokens": 3, "cached_tokens": 3, "num_heads": 3, "latent_dim": 3, "rope_dim": 3, "chunk": 3},
            make=make_whole,
        ),
        Case(
            "the toy by hand",
            {"new_tokens": 1, "cached_tokens": 3, "num_heads": 1, "latent_dim": 3, "rope_dim": 1, "chunk": 2},
            make=make_toy,
        ),
        Case(
            "odd sizes",
            {"new_tokens": 5, "cached_tokens": 19, "num_heads": 7, "latent_dim": 11, "rope_dim": 9, "chunk": 3},
        ),
        Case(
            "one of everything",
            {"new_tokens": 1, "cached_tokens": 1, "num_heads": 1, "latent_dim": 1, "rope_dim": 1, "chunk": 1},
        ),
        Case(
            "empty cache, float32",
            {"new_tokens": 2, "cached_tokens": 0, "num_heads": 3, "latent_dim": 8, "rope_dim": 4, "chunk": 5},
            dtype="float32",
        ),
        Case(
            "no new token",
            {"new_tokens": 0, "cached_tokens": 9, "num_heads": 3, "latent_dim": 6, "rope_dim": 4, "chunk": 5},
        ),
        Case(
            "no rope width",
            {"new_tokens": 2, "cached_tokens": 11, "num_heads": 3, "latent_dim": 6, "rope_dim": 0, "chunk": 4},
        ),
        Case(
            "a chunk longer than the cache",
            {"new_tokens": 2, "cached_tokens": 12, "num_heads": 3, "latent_dim": 6, "rope_dim": 4, "chunk": 50},
        ),
        Case(
            "huge parts that cancel",
            {"new_tokens": 3, "cached_tokens": 14, "num_heads": 2, "latent_dim": 10, "rope_dim": 6, "chunk": 4},
            make=make_cancelling,
        ),
        Case(
            "scores between 800 and -800, falling and rising",
            {"new_tokens": 3, "cached_tokens": 26, "num_heads": 4, "latent_dim": 8, "rope_dim": 2, "chunk": 5},
            make=make_falling,
        ),
        Case(
            "float32, strided",
            {"new_tokens": 4, "cached_tokens": 22, "num_heads": 2, "latent_dim": 12, "rope_dim": 6, "chunk": 5},
            dtype="float32",
            layout="strided",
        ),
        Case(
            "DeepSeek-V3 widths",
            {"new_tokens": 3, "cached_tokens": 149, "num_heads": 4, "latent_dim": 512, "rope_dim": 64, "chunk": 40},
        ),
        # All chunks' results together are no larger than the scores of one, so a block larger than a chunk is seen.
        Case(
            "many rows, a long cache",
            {"new_tokens": 7, "cached_tokens": 601, "num_heads": 9, "latent_dim": 32, "rope_dim": 2, "chunk": 151},
        ),
    ),
    hints=(
        "A chunk by itself is a small attention: scores, softmax, mixed latents. Its softmax divides by a sum over the "
        "chunk, where a sum over the whole cache belongs. Which number has to be kept to put that right later?",
        "Carry two things through the loop: the mixed latents so far and their lse. Each chunk gives another such "
        "pair. The lse of both together is np.logaddexp of the two; each part then counts with exp(its own lse − the "
        "lse of both). An lse of −inf to start with stands for nothing seen yet.",
        "Fill the gaps:\n\n"
        "    for ____ in range(____):\n"
        "        entries = ____  # the next chunk\n"
        "        scores = ____  # (new_tokens, num_heads, chunk), scaled\n"
        "        both = ____  # the lse of what was seen before and of this chunk together\n"
        "        mixed = ____ * mixed + ____ @ ____  # what was mixed before counts less now\n"
        "        lse = both",
    ),
    budget=Budget(
        text="No array of cached_tokens × num_heads, nor any other as long as the cache: entries, scores and weights "
        "are taken one chunk at a time, and each entry is scored once and mixed once.",
        case="many rows, a long cache",
        macs=most_macs,
        largest=largest,
        peak_values=peak_values,
        says="the result is right, but the shortest way spends less. Look for blocks larger than chunk, for entries "
        "that are scored or mixed twice, and for a mix that is rescaled more than once a chunk",
        forbidden=(
            Forbidden(
                "all scores at once",
                ("cached_tokens", "num_heads"),
                "the result is right, but the scores of the whole cache were made. Score a chunk, mix it, go on",
            ),
            Forbidden(
                "one head's scores at once",
                ("new_tokens", "cached_tokens"),
                "the result is right, but a head's scores of the whole cache were made. Score a chunk, mix it, go on",
            ),
            Forbidden(
                "as long as the cache",
                ("cached_tokens",),
                "the result is right, but an array as long as the cache was made. Slice a chunk, and work on that",
            ),
        ),
    ),
    mistakes=(
        Mistake(
            "block maximum for the running one",
            "each chunk is scaled by its own maximum, and what was summed before is not rescaled to it",
            maximum_of_the_block,
        ),
        Mistake(
            "old mix not rescaled",
            "the weights of a new chunk are shares of all that was seen, but what was mixed before still has its old "
            "shares: multiply it by exp(old lse − new lse)",
            old_mix_not_rescaled,
        ),
        Mistake(
            "mean of the parts",
            "the chunks' results are averaged. Each counts by its share of the sum of exponentials, exp(lse of the "
            "chunk − lse of all)",
            mean_of_the_parts,
        ),
        Mistake(
            "sum of the parts",
            "the chunks' results are added as they are. Each counts by its share of the sum of exponentials, exp(lse "
            "of the chunk − lse of all)",
            sum_of_the_parts,
        ),
        Mistake(
            "lses added",
            "the lses of the chunks are added. Their exponentials add up: that is log-sum-exp once more",
            lses_added,
        ),
        Mistake("last chunk only", "this is the attention over the last chunk alone", last_chunk_only),
        Mistake("the rest dropped", "the last chunk, shorter than the others, was not read", the_rest_dropped),
        Mistake(
            "rope dims forgotten",
            "the scores are taken over the latent alone. The whole entry is the key, latent and rope part",
            rope_forgotten,
        ),
        Mistake(
            "rope before the latent",
            "the last latent_dim features were mixed. An entry is [latent | rope]: the value is its first part",
            rope_before_the_latent,
        ),
        Mistake(
            "scale from the width",
            "the scores are divided by √(latent_dim + rope_dim), 576 at DeepSeek-V3's widths. The scale is given",
            scale_from_the_width,
        ),
        Mistake("not scaled", "the scores are not scaled before the exponential", not_scaled),
        Mistake("lse in base 2", "the lse is a logarithm to base 2. The natural one is asked for", lse_in_base_two),
        Mistake("not normalised", "the mixed latents are not divided by the sum of exponentials", not_normalised),
        Mistake(
            "no maximum subtracted",
            "the exponential of a large score overflows, and a row of very small ones vanishes. Subtract each row's "
            "maximum so far, or its lse",
            without_a_maximum,
        ),
        Mistake(
            "a maximum of at least 0",
            "the running maximum starts at 0, and the exponentials of a row far below 0 vanish. Start from −inf",
            maximum_of_at_least_0,
        ),
        Mistake(
            "one maximum for all rows",
            "the largest score of all rows was subtracted, and the exponentials of a row far below it vanish. Each row "
            "has a maximum of its own",
            one_maximum_for_all_rows,
        ),
        Mistake(
            "scores clipped",
            "the scores were cut off at ±700, and beyond that they count alike. Subtract each row's maximum so far, or "
            "its lse",
            scores_clipped,
        ),
        Mistake(
            "lse 0 for an empty cache",
            "an lse of 0 stands for one exponential of 1. Nothing was seen: the sum is 0, and its logarithm −inf",
            lse_0_for_an_empty_cache,
        ),
    ),
    mutants=(
        Mutant(maximum_of_the_block, "block maximum for the running one"),
        Mutant(old_mix_not_rescaled, "old mix not rescaled"),
        Mutant(mean_of_the_parts, "mean of the parts"),
        Mutant(sum_of_the_parts, "sum of the parts"),
        Mutant(lses_added, "lses added"),
        Mutant(last_chunk_only, "last chunk only"),
        Mutant(the_rest_dropped, "the rest dropped"),
        Mutant(rope_forgotten, "rope dims forgotten"),
        Mutant(rope_before_the_latent, "rope before the latent"),
        Mutant(scale_from_the_width, "scale from the width"),
        Mutant(not_scaled, "not scaled"),
        Mutant(lse_in_base_two, "lse in base 2"),
        Mutant(not_normalised, "not normalised"),
        Mutant(without_a_maximum, "no maximum subtracted"),
        Mutant(maximum_of_at_least_0, "a maximum of at least 0"),
        Mutant(one_maximum_for_all_rows, "one maximum for all rows"),
        Mutant(scores_clipped, "scores clipped"),
        Mutant(lse_0_for_an_empty_cache, "lse 0 for an empty cache"),
        Mutant(lse_inf_for_an_empty_cache, "wanted -inf"),
        Mutant(an_empty_cache_forgotten, "ValueError", verdict="error"),
        Mutant(all_at_once, "all scores at once"),
        Mutant(scores_first_then_chunks, "all scores at once"),
        Mutant(one_head_at_a_time, "one head's scores at once"),
        Mutant(one_row_at_a_time, "as long as the cache"),
        Mutant(blocks_of_its_own, "too large an array"),
        Mutant(chunk_scores_put_together, "all scores at once"),
        Mutant(the_cache_again_in_each_chunk, "too many multiply-adds"),
    ),
)
