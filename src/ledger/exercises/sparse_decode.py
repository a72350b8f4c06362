"""Chapter 10: absorbed attention over the entries that each new token selected."""

import numpy as np

from ledger.account.attention import decode_absorbed_macs
from ledger.exercises.base import Budget, Case, Exercise, Forbidden, Mistake, Mutant
from ledger.exercises.making import TOY_LATENTS, normal, rewritten
from ledger.reference import sparse


def make(rng, dtype, new_tokens, cached_tokens, topk, num_heads, latent_dim, rope_dim, spread=1.0):
    """Lists of distinct entries in any order; entries in no list are NaN."""
    indices = np.full((new_tokens, topk), -1, np.int32)
    for row in indices:
        count = min(topk, cached_tokens)
        row[:count] = rng.permutation(cached_tokens)[:count]
    cache = np.full((cached_tokens, latent_dim + rope_dim), np.nan, dtype)
    picked = np.unique(indices[indices >= 0])
    cache[picked] = normal(rng, dtype, len(picked), latent_dim + rope_dim)
    return {
        "queries": spread * normal(rng, dtype, new_tokens, num_heads, latent_dim + rope_dim),
        "cache": cache,
        "indices": indices,
        "latent_dim": latent_dim,
        "scale": 0.25,
    }


def make_toy(rng, dtype, **dims):
    """The rope scores alone count: weights of 1/3 and 2/3."""
    rope = np.array([(np.log(2), 5), (0, 7), (0, 9)])
    return {
        "queries": np.array([[(0, 0, 0, 2, 0)]], dtype),
        "cache": np.concatenate([TOY_LATENTS, rope], axis=1).astype(dtype),
        "indices": np.array([(2, -1, 0)], np.int32),
        "latent_dim": 3,
        "scale": 0.5,
    }


def make_finite(rng, dtype, spread=1.0, **dims):
    """Entries in no list are finite, so that they would count."""
    inputs = make(rng, dtype, **dims, spread=spread)
    nobody = np.isnan(inputs["cache"])
    inputs["cache"][nobody] = normal(rng, dtype, int(nobody.sum()))
    return inputs


def make_real(rng, dtype, **dims):
    """The scale of the model."""
    return make(rng, dtype, **dims) | {"scale": 0.135}


def make_padded(rng, dtype, **dims):
    """A −1 anywhere but in the first list, entry 0 in no list, and one list that names nothing."""
    inputs = make(rng, dtype, **dims)
    indices, cache = inputs["indices"], inputs["cache"]
    indices[indices == 0] = -1
    indices[1:][rng.random(indices[1:].shape) < 0.3] = -1
    indices[1] = -1
    indices[0] = 1 + rng.permutation(len(cache) - 1)[: indices.shape[1]]
    cache[0] = np.nan
    cache[indices[0]] = normal(rng, dtype, indices.shape[1], cache.shape[1])
    return inputs


def make_outside(rng, dtype, **dims):
    """In place of −1 any number that is no entry's; the last entry is in no list. The first list begins with a number
    beyond the cache and an entry, the second with −2 and an entry, and has no number beyond."""
    inputs = make(rng, dtype, **dims)
    indices, cached = inputs["indices"], len(inputs["cache"])
    inputs["cache"][-1] = np.nan
    indices[:2] = -np.sort(-indices[:2], axis=1)
    nothing = (rng.random(indices.shape) < 0.3) | (indices == cached - 1)
    nothing[:2, 1] = False
    indices[nothing] = rng.choice([-1, -2, -cached, cached, cached + 1, 2**31 - 1, -(2**31)], int(nothing.sum()))
    indices[:2, 0] = cached, -2
    indices[1, indices[1] >= cached] = -1
    return inputs


def make_nothing(rng, dtype, **dims):
    inputs = make(rng, dtype, **dims)
    inputs["cache"][:] = np.nan
    return inputs | {"indices": np.full_like(inputs["indices"], -1)}


def make_huge(rng, dtype, **dims):
    """Scores in the thousands, both ways; the last new token's are all far below 0."""
    inputs = make_finite(rng, dtype, **dims, spread=2000.0)
    inputs["cache"][:, 0] = 1 + rng.uniform(0.05, 0.3, len(inputs["cache"]))
    inputs["queries"][-1] = 0
    inputs["queries"][-1, :, 0] = -2000 / inputs["scale"]
    return inputs


def oracle(queries, cache, indices, latent_dim, scale):
    """Token by token over its list, in float64; an index outside of the cache is left out of it."""
    rows = zip(queries, indices.tolist(), strict=True)
    mixed = [sparse.sparse_decode(query, cache, picks, latent_dim, scale)[0] for query, picks in rows]
    shape = (*queries.shape[:2], latent_dim)
    return np.array(mixed).reshape(shape).astype(np.result_type(queries, cache))


def least_macs(new_tokens, cached_tokens, topk, num_heads, latent_dim, rope_dim):
    """Scores of each new token over its own picks, and their latents mixed."""
    return decode_absorbed_macs(new_tokens * topk, num_heads, latent_dim, rope_dim).total


def most_macs(new_tokens, cached_tokens, topk, num_heads, latent_dim, rope_dim):
    """The same, the scale on the queries, three elementwise steps over the scores, whole entries mixed and cut
    afterwards, and one elementwise step over the result."""
    for_a_row = latent_dim + rope_dim + topk * (3 + rope_dim) + latent_dim
    sizes = new_tokens, cached_tokens, topk, num_heads, latent_dim, rope_dim
    return least_macs(*sizes) + new_tokens * num_heads * for_a_row


def largest(new_tokens, cached_tokens, topk, num_heads, latent_dim, rope_dim):
    """The gathered entries of all new tokens, the queries, or the scores."""
    entry = latent_dim + rope_dim
    return new_tokens * max(topk * entry, num_heads * entry, num_heads * topk)


def peak_values(new_tokens, cached_tokens, topk, num_heads, latent_dim, rope_dim):
    """The gathered entries three times, the queries once, the scores five times, the result three times."""
    entry = latent_dim + rope_dim
    return new_tokens * (3 * topk * entry + num_heads * (entry + 5 * topk + 3 * latent_dim))


#: A right answer over gathered entries of all new tokens at once, which wrong ones are made of.
ANSWER = """def sparse_decode(queries, cache, indices, latent_dim, scale):
    counts = (indices >= 0) & (indices < len(cache))
    width = cache.shape[1]
    picked = np.zeros((*indices.shape, width), cache.dtype)
    picked[counts] = cache[indices[counts]]
    scores = scale * np.einsum("shf,skf->shk", queries, picked)
    scores = np.where(counts[:, None], scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(largest == -np.inf, 0, largest))
    total = weights.sum(axis=-1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    return np.einsum("shk,skc->shc", weights, picked[..., :latent_dim])
"""
_COUNTS = "counts = (indices >= 0) & (indices < len(cache))"
_GATHER = "picked[counts] = cache[indices[counts]]"
_SCORES = 'scores = scale * np.einsum("shf,skf->shk", queries, picked)'
_MASK = "scores = np.where(counts[:, None], scores, -np.inf)"
_LARGEST = "largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)"
_WEIGHTS = "weights = np.exp(scores - np.where(largest == -np.inf, 0, largest))"
_TOTAL = "total = weights.sum(axis=-1, keepdims=True)"
_DIVIDED = "weights = weights / np.where(total == 0, 1, total)"
_MIXED = 'return np.einsum("shk,skc->shc", weights, picked[..., :latent_dim])'

#: Name, sentence and what is changed in ``ANSWER`` of each known mistake.
WRONG = {
    "dense": (
        "every entry attended",
        "every entry of the cache counts. A new token attends to the entries in its list alone",
        {
            "def sparse_decode(queries, cache, indices, latent_dim, scale):\n": (
                "def sparse_decode(queries, cache, indices, latent_dim, scale):\n"
                "    indices = np.broadcast_to(np.arange(len(cache)), (len(queries), len(cache)))\n"
            )
        },
    ),
    "padding_is_the_last_entry": (
        "padding taken for the last entry",
        "−1 was used as an index, which in Python is the last entry. It names nothing",
        {_COUNTS: "counts = (indices >= -1) & (indices < len(cache))"},
    ),
    "nan_times_zero": (
        "a weight of 0 on NaN",
        "an index that names nothing brings in an entry that no list names: its weight is 0, but 0 · NaN is NaN. Leave "
        "it out, or put zeros in its place",
        {_GATHER: "picked[...] = cache[np.where(counts, indices, 0)] if len(cache) else 0"},
    ),
    "padding_is_entry_0": (
        "padding taken for entry 0",
        "an index that names nothing became entry 0, which then counts. It must not weigh at all",
        {
            _COUNTS: f"indices = np.where((indices >= 0) & (indices < len(cache)), indices, 0)\n    {_COUNTS}",
        },
    ),
    "padding_weighs": (
        "padding weighs",
        "an index that names nothing has a score of 0 and takes a part of the weights. Its score must be −∞",
        {_MASK: "scores = scores + 0"},
    ),
    "beyond_is_the_last_entry": (
        "numbers beyond the cache taken for its last entry",
        "an index beyond the cache was cut down to the last entry. It names nothing",
        {_COUNTS: f"indices = np.minimum(indices, len(cache) - 1)\n    {_COUNTS}"},
    ),
    "ends_at_the_first_padding": (
        "the list ends too early",
        "what stands behind the first index that names nothing was left out. Such an index may stand anywhere",
        {_COUNTS: "counts = np.logical_and.accumulate((indices >= 0) & (indices < len(cache)), axis=1)"},
    ),
    "ends_at_the_first_minus_1": (
        "the list ends at the first −1",
        "what stands behind the first −1 was left out. A −1 may stand anywhere",
        {_COUNTS: f"{_COUNTS}\n    counts = counts & np.logical_and.accumulate(indices != -1, axis=1)"},
    ),
    "ends_at_the_first_negative": (
        "the list ends at the first negative index",
        "what stands behind the first index below 0 was left out. Such an index may stand anywhere",
        {_COUNTS: f"{_COUNTS}\n    counts = counts & np.logical_and.accumulate(indices >= 0, axis=1)"},
    ),
    "as_many_places_as_entries": (
        "as many places as entries",
        "the −1 were counted, and as many places at the end of the list left out. A −1 may stand anywhere",
        {
            _COUNTS: (
                f"{_COUNTS}\n"
                "    some = (indices != -1).sum(axis=1, keepdims=True)\n"
                "    counts = counts & (np.arange(indices.shape[1]) < some)"
            )
        },
    ),
    "first_list_for_all": (
        "first list for all",
        "the first new token's list was used for all. Each has its own",
        {_COUNTS: f"indices = np.broadcast_to(indices[:1], indices.shape)\n    {_COUNTS}"},
    ),
    "lists_pooled": (
        "lists pooled",
        "every new token attends to the entries of all lists. Each has its own",
        {
            _COUNTS: (
                "pooled = np.unique(indices[(indices >= 0) & (indices < len(cache))])\n"
                "    indices = np.broadcast_to(pooled, (len(queries), len(pooled)))\n"
                f"    {_COUNTS}"
            )
        },
    ),
    "rope_dims_forgotten": (
        "rope dims forgotten",
        "the scores run over latent_dim features only. The rope part beside them counts too: use whole entries",
        {_SCORES: ('scores = scale * np.einsum("shf,skf->shk", queries[..., :latent_dim], picked[..., :latent_dim])')},
    ),
    "last_columns_mixed": (
        "the wrong end of the entry mixed",
        "the last latent_dim features of each entry are mixed. The latent stands first: [latent | rope key]",
        {"picked[..., :latent_dim]": "picked[..., width - latent_dim :]"},
    ),
    "scale_left_out": (
        "scale left out",
        "the scores were not multiplied by scale",
        {_SCORES: 'scores = np.einsum("shf,skf->shk", queries, picked)'},
    ),
    "scale_of_the_entry_width": (
        "scale from the entry's width",
        "the scores are divided by √(latent_dim + rope_dim). The scale is given",
        {_SCORES: 'scores = (np.einsum("shf,skf->shk", queries, picked) / np.sqrt(width)).astype(queries.dtype)'},
    ),
    "softmax_over_heads": (
        "softmax over the heads",
        "the weights add to 1 over the heads. They add to 1 over the list, for each head",
        {_TOTAL: "total = weights.sum(axis=1, keepdims=True)", _LARGEST: "largest = scores.max(axis=1, keepdims=True)"},
    ),
    "softmax_left_out": (
        "softmax left out",
        "the scores were used as weights",
        {_WEIGHTS: "weights = np.where(counts[:, None], scores, 0)", _DIVIDED: "weights = weights + 0 * total"},
    ),
    "not_divided": (
        "not divided by the sum",
        "the weights do not add to 1: divide by the sum of the exponentials",
        {_DIVIDED: "weights = weights + 0 * total"},
    ),
    "empty_divided": (
        "an empty list gives NaN",
        "a new token whose list names nothing gives NaN: 0 was divided by 0. The result is 0",
        {_DIVIDED: "with np.errstate(invalid='ignore'):\n        weights = weights / total"},
    ),
    "no_maximum_taken_off": (
        "no maximum subtracted",
        "the exponential of a large score overflows, and a row of very small ones vanishes. Subtract each row's "
        "maximum first: the weights stay the same",
        {
            _WEIGHTS: "with np.errstate(all='ignore'):\n        weights = np.exp(scores)",
            _DIVIDED: (
                "with np.errstate(all='ignore'):\n        weights = weights / np.where(largest == -np.inf, 1, total)"
            ),
            _MIXED: f"with np.errstate(all='ignore'):\n        {_MIXED}",
        },
    ),
    "one_maximum_for_all": (
        "one maximum for all rows",
        "the largest score of all rows was subtracted, and the exponentials of a row far below it vanish. Each row has "
        "a maximum of its own",
        {
            _WEIGHTS: "weights = np.exp(scores - np.where(largest == -np.inf, 0, scores.max(initial=-np.inf)))",
            _DIVIDED: (
                "with np.errstate(all='ignore'):\n        weights = weights / np.where(largest == -np.inf, 1, total)"
            ),
        },
    ),
}
MADE = {name: rewritten(ANSWER, name, changes) for name, (_, _, changes) in WRONG.items()}


def masked_over_the_cache(queries, cache, indices, latent_dim, scale):
    """Right, by way of scores for every entry."""
    known = np.zeros(cache.shape, cache.dtype)
    mask = np.zeros((len(queries), len(cache)), bool)
    for row, picks in enumerate(indices):
        picks = picks[(picks >= 0) & (picks < len(cache))]
        known[picks], mask[row, picks] = cache[picks], True
    scores = np.where(mask[:, None], scale * np.einsum("shf,tf->sht", queries, known), -np.inf)
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(largest == -np.inf, 0, largest))
    total = weights.sum(axis=-1, keepdims=True)
    return np.einsum("sht,tc->shc", weights / np.where(total == 0, 1, total), known[:, :latent_dim])


def scored_head_by_head(queries, cache, indices, latent_dim, scale):
    """Right, by way of one head's scores for every entry at a time."""
    mixed = np.zeros((*queries.shape[:2], latent_dim), queries.dtype)
    for row, picks in enumerate(indices):
        picks = picks[(picks >= 0) & (picks < len(cache))]
        for head in range(queries.shape[1] if len(picks) else 0):
            scores = (scale * (cache @ queries[row, head]))[picks]
            weights = np.exp(scores - scores.max())
            mixed[row, head] = weights @ cache[picks, :latent_dim] / weights.sum()
    return mixed


def cache_cleaned_first(queries, cache, indices, latent_dim, scale):
    """Right, by way of a whole cache without NaN."""
    clean = np.nan_to_num(cache)
    mixed = np.zeros((*queries.shape[:2], latent_dim), queries.dtype)
    for row, picks in enumerate(indices):
        picks = picks[(picks >= 0) & (picks < len(cache))]
        if len(picks):
            scores = scale * queries[row] @ clean[picks].T
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed[row] = weights @ clean[picks, :latent_dim] / weights.sum(axis=1, keepdims=True)
    return mixed


def every_list_for_every_token(queries, cache, indices, latent_dim, scale):
    """Right, by way of scores against the entries of all lists."""
    mixed = np.zeros((*queries.shape[:2], latent_dim), queries.dtype)
    pooled = np.unique(indices[(indices >= 0) & (indices < len(cache))])
    entries = cache[pooled]
    for row, picks in enumerate(indices):
        own = np.isin(pooled, picks)
        if own.any():
            scores = np.where(own, scale * queries[row] @ entries.T, -np.inf)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed[row] = weights @ entries[:, :latent_dim] / weights.sum(axis=1, keepdims=True)
    return mixed


def other_negatives_looked_up(queries, cache, indices, latent_dim, scale):
    mixed = np.zeros((*queries.shape[:2], latent_dim), queries.dtype)
    for row, picks in enumerate(indices):
        entries = cache[picks[picks != -1]]
        if len(entries):
            scores = scale * queries[row] @ entries.T
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed[row] = weights @ entries[:, :latent_dim] / weights.sum(axis=1, keepdims=True)
    return mixed


def maximum_of_an_empty_list(queries, cache, indices, latent_dim, scale):
    mixed = np.zeros((*queries.shape[:2], latent_dim), queries.dtype)
    for row, picks in enumerate(indices):
        entries = cache[picks[(picks >= 0) & (picks < len(cache))]]
        scores = scale * queries[row] @ entries.T
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        mixed[row] = weights @ entries[:, :latent_dim] / weights.sum(axis=1, keepdims=True)
    return mixed


def whole_entries_mixed(queries, cache, indices, latent_dim, scale):
    mixed = np.zeros(queries.shape, queries.dtype)
    for row, picks in enumerate(indices):
        entries = cache[picks[(picks >= 0) & (picks < len(cache))]]
        if len(entries):
            scores = scale * queries[row] @ entries.T
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed[row] = weights @ entries / weights.sum(axis=1, keepdims=True)
    return mixed


def sizes(new_tokens, cached_tokens, topk, num_heads, latent_dim, rope_dim):
    return {
        "new_tokens": new_tokens,
        "cached_tokens": cached_tokens,
        "topk": topk,
        "num_heads": num_heads,
        "latent_dim": latent_dim,
        "rope_dim": rope_dim,
    }


EXERCISE = Exercise(
    id="sparse_decode",
    chapter=10,
    order=5,
    title="attention over the selected",
    checks="the mixed latents of every head over each new token's own selection",
    points=4,
    difficulty=3,
    minutes=18,
    make=make,
    oracle=oracle,
    least_macs=least_macs,
    cases=(
        Case("the toy by hand", sizes(1, 3, 3, 1, 3, 2), make=make_toy),
        Case("square sizes", sizes(4, 4, 4, 4, 4, 4), make=make_finite),
        Case("odd sizes", sizes(5, 13, 7, 3, 9, 6), make=make_finite),
        Case("every entry in every list", sizes(3, 8, 11, 4, 6, 5)),
        Case("one of everything", sizes(1, 1, 1, 1, 1, 1)),
        Case("padding anywhere", sizes(4, 17, 9, 3, 7, 5), make=make_padded),
        Case("numbers that are no entry's", sizes(5, 15, 8, 3, 6, 4), make=make_outside),
        Case("nothing selected", sizes(2, 6, 4, 3, 5, 2), make=make_nothing),
        Case("no places, float32", sizes(2, 6, 0, 3, 5, 4), dtype="float32"),
        Case("an empty cache", sizes(2, 0, 5, 3, 6, 4)),
        Case("no new token", sizes(0, 7, 4, 3, 6, 5)),
        Case("no rope width", sizes(2, 9, 5, 3, 6, 0)),
        Case("huge scores", sizes(3, 12, 6, 4, 8, 5), make=make_huge),
        Case("float32", sizes(3, 19, 8, 2, 12, 6), dtype="float32"),
        Case("strided inputs", sizes(3, 14, 6, 4, 10, 5), layout="strided"),
        Case("DeepSeek-V3.2 widths, two heads", sizes(2, 300, 48, 2, 512, 64), make=make_real),
        Case("few of a long cache", sizes(3, 701, 40, 5, 96, 4), make=make_finite),
    ),
    hints=(
        "It is decode_absorbed on a small cache: the entries in a new token's list. Each new token has another small "
        "cache, and a loop over the new tokens is fine. Which of its indices may be looked up?",
        "For one new token: keep the indices that are 0 or more and below len(cache), and gather their entries. One "
        "product with the queries of all heads gives (num_heads, picks); scale, take off each head's maximum, "
        "exponentiate, mix the first latent_dim features, divide by the sum. Where nothing is left, leave the zeros.",
        "Fill the gaps:\n\n"
        "    mixed = ____  # zeros in the right shape and dtype\n"
        "    for ____:  # a new token and its list\n"
        "        entries = cache[____]  # (picks, latent_dim + rope_dim)\n"
        "        if ____:\n"
        "            scores = ____  # (num_heads, picks)\n"
        "            weights = np.exp(____)\n"
        "            mixed[____] = ____",
    ),
    budget=Budget(
        text="Work follows the picks, not the cache: nothing is made or multiplied for entries that are in no list, "
        "and each new token meets its own picks alone.",
        case="few of a long cache",
        macs=most_macs,
        largest=largest,
        peak_values=peak_values,
        says="the result is right, but the shortest way spends less. Look for work on entries that are in no list, or "
        "in another new token's",
        forbidden=(
            Forbidden(
                "work on the whole cache",
                ("cached_tokens",),
                "the result is right, but something was made for every entry. Gather the entries in a list first",
            ),
        ),
    ),
    mistakes=tuple(Mistake(name, says, MADE[made]) for made, (name, says, _) in WRONG.items()),
    mutants=(
        *(Mutant(MADE[made], name) for made, (name, _, _) in WRONG.items()),
        Mutant(masked_over_the_cache, "work on the whole cache"),
        Mutant(scored_head_by_head, "work on the whole cache"),
        Mutant(cache_cleaned_first, "work on the whole cache"),
        Mutant(every_list_for_every_token, "too many multiply-adds"),
        Mutant(other_negatives_looked_up, "IndexError", verdict="error"),
        Mutant(maximum_of_an_empty_list, "ValueError", verdict="error"),
        Mutant(whole_entries_mixed, "has shape"),
    ),
)
