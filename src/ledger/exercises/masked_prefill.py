"""Chapter 10: a selection as a mask over dense attention with a key and a value for each head."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import normal, rewritten
from ledger.reference import sparse


def make(rng, dtype, queries, keys, topk, num_heads, qk_dim, value_dim, padding=0.2, causal=False):
    """Lists of distinct keys in any order, a share of ``padding`` left out; with ``causal`` no key lies behind its
    query, which is one of the last."""
    indices = np.full((queries, topk), -1, np.int32)
    for row, picks in enumerate(indices):
        seen = max(0, keys - queries + row + 1) if causal else keys
        count = min(topk, seen)
        picks[:count] = rng.permutation(seen)[:count]
        picks[rng.random(topk) < padding] = -1
    return {
        "q": normal(rng, dtype, queries, num_heads, qk_dim),
        "k": normal(rng, dtype, keys, num_heads, qk_dim),
        "v": normal(rng, dtype, keys, num_heads, value_dim),
        "indices": indices,
        "scale": 0.375,
    }


def make_toy(rng, dtype, **dims):
    """Weights of 3/4 and 1/4, and a third key that would have them all."""
    return {
        "q": np.array([[(1,)]], dtype),
        "k": np.array([[(0,)], [(np.log(3),)], [(9,)]], dtype),
        "v": np.array([[(8,)], [(4,)], [(100,)]], dtype),
        "indices": np.array([(1, 0)], np.int32),
        "scale": 1.0,
    }


def make_prompt(rng, dtype, **dims):
    """A query selects among itself and what lies before it; the first have less than topk, and fill up with −1."""
    return make(rng, dtype, **dims, padding=0.0, causal=True)


def make_everything(rng, dtype, **dims):
    return make(rng, dtype, **dims, padding=0.0)


def make_with_the_last_key(rng, dtype, **dims):
    """Every list names the last key, and a −1 stands behind it."""
    inputs = make_everything(rng, dtype, **dims)
    inputs["indices"][:, 1:][inputs["indices"][:, 1:] == dims["keys"] - 1] = -1
    inputs["indices"][:, 0], inputs["indices"][:, -1] = dims["keys"] - 1, -1
    return inputs


def make_with_empty_lists(rng, dtype, **dims):
    inputs = make(rng, dtype, **dims)
    inputs["indices"][::2] = -1
    return inputs


def make_huge(rng, dtype, **dims):
    """Scores in the thousands, both ways; those of the last query are all far below 0."""
    inputs = make(rng, dtype, **dims, padding=0.0)
    inputs["q"] = inputs["q"] * 2000
    inputs["k"][..., 0] = 1 + rng.uniform(0.05, 0.3, inputs["k"].shape[:2])
    inputs["q"][-1] = 0
    inputs["q"][-1, :, 0] = -2000 / inputs["scale"]
    return inputs


def oracle(q, k, v, indices, scale):
    """Sparse attention: for each query and head over gathered keys and values, which a mask never sees."""
    output = np.zeros((len(q), q.shape[1], v.shape[2]))
    for row, picks in enumerate(indices.tolist()):
        tokens = [token for token in picks if token != -1]
        for head in range(q.shape[1]):
            output[row, head] = sparse.attend(q[row, head][None], k[:, head], v[:, head], tokens, scale)[0][0]
    return output.astype(np.result_type(q, k, v))


#: A right answer, which wrong ones are made of.
ANSWER = """def masked_prefill(q, k, v, indices, scale):
    seen = (indices[:, :, None] == np.arange(len(k))).any(axis=1)
    scores = scale * np.einsum("shd,thd->sht", q, k)
    scores = np.where(seen[:, None], scores, -np.inf)
    largest = scores.max(axis=2, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(largest == -np.inf, 0, largest))
    total = weights.sum(axis=2, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    return np.einsum("sht,thv->shv", weights, v)
"""
_SEEN = "seen = (indices[:, :, None] == np.arange(len(k))).any(axis=1)"
_SCORES = 'scores = scale * np.einsum("shd,thd->sht", q, k)'
_MASK = "scores = np.where(seen[:, None], scores, -np.inf)"
_LARGEST = "largest = scores.max(axis=2, keepdims=True, initial=-np.inf)"
_WEIGHTS = "weights = np.exp(scores - np.where(largest == -np.inf, 0, largest))"
_TOTAL = "total = weights.sum(axis=2, keepdims=True)"
_DIVIDED = "weights = weights / np.where(total == 0, 1, total)"
_MIXED = 'return np.einsum("sht,thv->shv", weights, v)'
_BY_EMPTY = "with np.errstate(all='ignore'):\n        weights = weights / np.where(largest == -np.inf, 1, total)"
_OVERFLOWING = {
    _WEIGHTS: "with np.errstate(all='ignore'):\n        weights = np.exp(scores)",
    _DIVIDED: _BY_EMPTY,
    _MIXED: f"with np.errstate(all='ignore'):\n        {_MIXED}",
}

#: Name, sentence and what is changed in ``ANSWER`` of each known mistake.
WRONG = {
    "no_mask": (
        "no mask",
        "every key counts for every query. Only those in its list do",
        {_SEEN: "seen = np.ones((len(q), len(k)), bool)"},
    ),
    "mask_upside_down": (
        "mask upside down",
        "the keys in the list were masked, and the others count",
        {_MASK: "scores = np.where(seen[:, None], -np.inf, scores)"},
    ),
    "masked_with_0": (
        "masked with 0",
        "a key that is not in the list has a score of 0 and takes a part of the weights. Its score must be −∞",
        {_MASK: "scores = np.where(seen[:, None], scores, 0)"},
    ),
    "masked_after_the_softmax": (
        "masked after the softmax",
        "the weights were masked after the softmax, so that they do not add to 1. Mask the scores",
        {_MASK: "scores = scores + 0", _DIVIDED: f"{_DIVIDED} * seen[:, None]"},
    ),
    "padding_is_the_last_key": (
        "padding taken for the last key",
        "−1 was used as an index, which in Python is the last key. It names nothing",
        {
            _SEEN: (
                "seen = np.zeros((len(q), len(k)), bool)\n"
                "    for row, picks in enumerate(indices):\n"
                "        seen[row, picks] = True"
            )
        },
    ),
    "padding_erases_the_last_key": (
        "−1 took the last key out",
        "−1 was used as an index, which in Python is the last key, and took it out of lists that name it. Write True "
        "alone into the table, where the index is 0 or more",
        {
            _SEEN: (
                "seen = np.zeros((len(q), len(k)), bool)\n"
                "    if len(k):\n"
                "        np.put_along_axis(seen, indices, indices >= 0, axis=1)"
            )
        },
    ),
    "padding_is_key_0": (
        "padding taken for key 0",
        "−1 became key 0, which then counts. It names nothing",
        {_SEEN: f"indices = np.maximum(indices, 0)\n    {_SEEN}"},
    ),
    "ends_at_the_first_padding": (
        "the list ends too early",
        "what stands behind the first −1 was left out. It may stand anywhere",
        {_SEEN: f"indices = np.where(np.logical_and.accumulate(indices >= 0, axis=1), indices, -1)\n    {_SEEN}"},
    ),
    "causal_on_top": (
        "a causal mask on top",
        "keys behind the query were masked although its list names them. The list alone is the mask",
        {_MASK: ("seen = seen & (np.arange(len(k)) <= len(k) - len(q) + np.arange(len(q))[:, None])\n    " + _MASK)},
    ),
    "causal_by_number": (
        "a causal mask by number",
        "keys with a number above the query's were masked although its list names them. The list alone is the mask",
        {_MASK: f"seen = seen & np.tri(len(q), len(k), dtype=bool)\n    {_MASK}"},
    ),
    "first_list_for_all": (
        "first list for all",
        "the first query's list was used for all. Each has its own",
        {_SEEN: f"indices = np.broadcast_to(indices[:1], indices.shape)\n    {_SEEN}"},
    ),
    "lists_pooled": (
        "lists pooled",
        "every query attends to the keys of all lists. Each has its own",
        {_MASK: f"seen = np.broadcast_to(seen.any(axis=0), seen.shape)\n    {_MASK}"},
    ),
    "first_head_for_all": (
        "first head's keys for all",
        "every head met the keys of head 0. In this form each head has its own",
        {_SCORES: 'scores = scale * np.einsum("shd,td->sht", q, k[:, 0])'},
    ),
    "first_values_for_all": (
        "first head's values for all",
        "every head mixed the values of head 0. In this form each head has its own",
        {_MIXED: 'return np.einsum("sht,tv->shv", weights, v[:, 0])'},
    ),
    "scale_left_out": (
        "scale left out",
        "the scores were not multiplied by scale",
        {_SCORES: 'scores = np.einsum("shd,thd->sht", q, k)'},
    ),
    "scale_of_the_width": (
        "scale from the width",
        "the scores are divided by √qk_dim. The scale is given",
        {_SCORES: 'scores = (np.einsum("shd,thd->sht", q, k) / np.sqrt(q.shape[2])).astype(q.dtype)'},
    ),
    "softmax_over_heads": (
        "softmax over the heads",
        "the weights add to 1 over the heads. They add to 1 over the keys in the list, for each head",
        {
            _LARGEST: "largest = scores.max(axis=1, keepdims=True, initial=-np.inf)",
            _TOTAL: "total = weights.sum(axis=1, keepdims=True)",
        },
    ),
    "softmax_left_out": (
        "softmax left out",
        "the scores were used as weights",
        {_WEIGHTS: "weights = np.where(seen[:, None], scores, 0)", _DIVIDED: "weights = weights + 0 * total"},
    ),
    "not_divided": (
        "not divided by the sum",
        "the weights do not add to 1: divide by the sum of the exponentials",
        {_DIVIDED: "weights = weights + 0 * total"},
    ),
    "empty_divided": (
        "an empty list gives NaN",
        "a query whose list names nothing gives NaN: 0 was divided by 0, or −∞ taken from −∞. The result is 0",
        {_DIVIDED: "with np.errstate(invalid='ignore'):\n        weights = weights / total"},
    ),
    "empty_sees_all": (
        "an empty list sees everything",
        "a query whose list names nothing attends to all keys alike: a large number below 0 is no −∞. The result is 0",
        {_MASK: "scores = np.where(seen[:, None], scores, -1e30)"},
    ),
    "masked_with_a_thousand": (
        "masked with −1,000",
        "scores that are masked became −1000, and scores may be in the thousands below 0 themselves. Mask with −∞",
        {_MASK: "scores = np.where(seen[:, None], scores, -1e3)"},
    ),
    "a_thousand_taken_off": (
        "1,000 taken off",
        "1000 was taken off masked scores, which may be in the thousands themselves. Mask with −∞",
        {_MASK: "scores = scores + np.where(seen[:, None], 0.0, -1e3).astype(scores.dtype)"},
    ),
    "a_billion_taken_off": (
        "a large number taken off",
        "a query whose list names nothing attends to all keys: all of its scores fell by the same large number, which "
        "changes no weight. Mask with −∞; the result is 0",
        {_MASK: "scores = scores + np.where(seen[:, None], 0.0, -1e9).astype(scores.dtype)"},
    ),
    "no_maximum_taken_off": (
        "no maximum subtracted",
        "the exponential of a large score overflows, and a row of very small ones vanishes. Subtract each row's "
        "maximum first: the weights stay the same",
        _OVERFLOWING,
    ),
    "bare_softmax": (
        "a bare softmax",
        "the exponential of a large score overflows, and a list that names nothing gives 0 / 0. Subtract each row's "
        "maximum first, and put a harmless number where it is −∞ and where the sum is 0",
        _OVERFLOWING | {_DIVIDED: "with np.errstate(all='ignore'):\n        weights = weights / total"},
    ),
    "one_maximum_for_all": (
        "one maximum for all rows",
        "the largest score of all rows was subtracted, and the exponentials of a row far below it vanish. Each row has "
        "a maximum of its own",
        {
            _WEIGHTS: "weights = np.exp(scores - np.where(largest == -np.inf, 0, scores.max(initial=-np.inf)))",
            _DIVIDED: _BY_EMPTY,
        },
    ),
    "maximum_before_the_mask": (
        "maximum of masked keys",
        "the maximum was taken before the mask. Beside a far larger score that is masked, all others vanish",
        {
            _MASK: f"top = scores.max(axis=2, keepdims=True, initial=-np.inf)\n    {_MASK}",
            _WEIGHTS: "weights = np.exp(scores - np.where(largest == -np.inf, 0, top))",
            _DIVIDED: _BY_EMPTY,
        },
    ),
}
MADE = {name: rewritten(ANSWER, name, changes) for name, (_, _, changes) in WRONG.items()}
#: The same mistake beside another care for lists that name nothing: a sum of 0 gives 0, or NaN is made 0.
MORE = {
    "no_maximum_taken_off": [
        rewritten(ANSWER, name, _OVERFLOWING | {_DIVIDED: f"with np.errstate(all='ignore'):\n        {divided}"})
        for name, divided in (
            ("overflow_and_a_sum_of_0", _DIVIDED),
            ("overflow_and_nan_made_0", "weights = np.nan_to_num(weights / total)"),
        )
    ]
}


def maximum_without_initial(q, k, v, indices, scale):
    seen = (indices[:, :, None] == np.arange(len(k))).any(axis=1)
    scores = np.where(seen[:, None], scale * np.einsum("shd,thd->sht", q, k), -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(axis=2, keepdims=True), -1e30))
    total = weights.sum(axis=2, keepdims=True)
    return np.einsum("sht,thv->shv", weights / np.where(total == 0, 1, total), v)


def heads_first(q, k, v, indices, scale):
    seen = (indices[:, :, None] == np.arange(len(k))).any(axis=1)
    scores = np.where(seen[:, None], scale * np.einsum("shd,thd->sht", q, k), -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(axis=2, keepdims=True, initial=-np.inf), -1e30))
    total = weights.sum(axis=2, keepdims=True)
    return np.einsum("sht,thv->hsv", weights / np.where(total == 0, 1, total), v)


def mask_in_float64(q, k, v, indices, scale):
    mask = np.full((len(q), len(k)), -np.inf)
    for row, picks in enumerate(indices):
        mask[row, picks[picks >= 0]] = 0.0
    scores = scale * np.einsum("shd,thd->sht", q, k) + mask[:, None]
    weights = np.exp(scores - np.maximum(scores.max(axis=2, keepdims=True, initial=-np.inf), -1e30))
    total = weights.sum(axis=2, keepdims=True)
    return np.einsum("sht,thv->shv", weights / np.where(total == 0, 1, total), v)


def sizes(queries, keys, topk, num_heads, qk_dim, value_dim):
    return {
        "queries": queries,
        "keys": keys,
        "topk": topk,
        "num_heads": num_heads,
        "qk_dim": qk_dim,
        "value_dim": value_dim,
    }


EXERCISE = Exercise(
    id="masked_prefill",
    chapter=10,
    order=6,
    title="a selection as a mask",
    checks="dense attention in which each query sees its own selection alone",
    points=3,
    difficulty=2,
    minutes=12,
    make=make,
    oracle=oracle,
    cases=(
        Case("the toy by hand", sizes(1, 3, 2, 1, 1, 1), make=make_toy),
        Case("square sizes", sizes(4, 4, 4, 4, 4, 4)),
        Case("odd sizes", sizes(5, 13, 7, 3, 9, 11)),
        Case("a prompt", sizes(9, 9, 4, 2, 6, 5), make=make_prompt),
        Case("every key in every list", sizes(4, 6, 8, 3, 5, 7), make=make_everything),
        Case("lists that name nothing", sizes(5, 8, 4, 2, 6, 3), make=make_with_empty_lists),
        Case("the last key in every list", sizes(4, 7, 5, 2, 6, 3), make=make_with_the_last_key),
        Case("one of everything", sizes(1, 1, 1, 1, 1, 1), make=make_everything),
        Case("no keys", sizes(2, 0, 4, 3, 5, 6)),
        Case("no queries, float32", sizes(0, 6, 4, 3, 5, 7), dtype="float32"),
        Case("no places", sizes(2, 6, 0, 3, 5, 4)),
        Case("huge scores", sizes(4, 12, 5, 3, 8, 6), make=make_huge),
        Case("float32", sizes(6, 15, 5, 2, 12, 7), dtype="float32"),
        Case("strided inputs", sizes(4, 14, 6, 3, 10, 8), layout="strided"),
        Case("DeepSeek-V3.2 widths, two heads", sizes(24, 40, 16, 2, 192, 128), make=make_prompt),
    ),
    hints=(
        "Two steps. First turn the lists into a table that says of every query and key whether it counts; a −1 must "
        "leave no trace in it. Then it is ordinary attention. Which score takes a key out of a softmax?",
        "A table of False, (queries, keys); np.nonzero(indices >= 0) gives the rows and places that set a True. Masked "
        "scores are −∞, and the table needs an axis for the heads. A row of −∞ alone makes trouble twice: its maximum "
        "is −∞, and the sum of its exponentials 0. Put a harmless number in the place of each.",
        "Fill the gaps:\n\n"
        "    seen = ____  # (queries, keys), True where the list names the key\n"
        "    scores = np.where(seen, ____, -np.inf)  # (num_heads, queries, keys)\n"
        "    largest = scores.max(axis=____, keepdims=True, initial=-np.inf)\n"
        "    weights = np.exp(scores - ____)\n"
        "    total = ____\n"
        '    return np.einsum("____", weights / ____, v)',
    ),
    mistakes=tuple(
        Mistake(name, says, MADE[made], tuple(MORE.get(made, ()))) for made, (name, says, _) in WRONG.items()
    ),
    mutants=(
        *(Mutant(MADE[made], name) for made, (name, _, _) in WRONG.items()),
        *(Mutant(answer, WRONG[made][0]) for made, answers in MORE.items() for answer in answers),
        Mutant(maximum_without_initial, "ValueError", verdict="error"),
        Mutant(heads_first, "axes 0 and 1 swapped"),
        Mutant(mask_in_float64, "float64; wanted float32"),
    ),
)
