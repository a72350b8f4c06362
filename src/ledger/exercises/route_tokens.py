"""Chapter 9: which experts a token takes, as DeepSeek-V3 chooses them."""

import math

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import normal
from ledger.reference import experts

#: Scores nearer to each other than this may change places in float32.
APART = 2e-6


def make(rng, dtype, tokens, num_groups, group_size, top_groups, top_k, offset=0.0):
    """Logits and biases (around ``offset``) whose scores no rounding can put in another order."""
    while True:
        logits = 1.5 * normal(rng, dtype, tokens, num_groups * group_size)
        bias = (offset + 0.2 * rng.standard_normal(num_groups * group_size)).astype(dtype)
        if told_apart(logits, bias, num_groups):
            break
    return {
        "logits": logits,
        "bias": bias,
        "num_groups": num_groups,
        "top_groups": top_groups,
        "top_k": top_k,
        "scale": float(rng.uniform(1.5, 3)),
    }


def told_apart(logits, bias, num_groups):
    scores = experts.sigmoid(logits) + bias
    groups = two_best(in_groups(scores, num_groups))
    gaps = [np.diff(np.sort(each, axis=1), axis=1).min(initial=1.0) for each in (scores, groups)]
    return min(gaps) > APART


def make_below_zero(rng, dtype, **dims):
    """Every biased score is negative, so that 0 would beat them all."""
    return make(rng, dtype, **dims, offset=-3.0)


def make_ties(rng, dtype, tokens, num_groups, group_size, top_groups, top_k):
    """Two values alone: experts and groups tie all over."""
    logits = rng.choice([-1.0, 2.0], (tokens, num_groups * group_size)).astype(dtype)
    sizes = {"num_groups": num_groups, "top_groups": top_groups, "top_k": top_k}
    return {"logits": logits, "bias": np.zeros(num_groups * group_size, dtype), **sizes, "scale": 2.5}


def make_equal(rng, dtype, tokens, num_groups, group_size, top_groups, top_k):
    """One value alone: the numbers decide everything."""
    args = make_ties(rng, dtype, tokens, num_groups, group_size, top_groups, top_k)
    return args | {"logits": np.full_like(args["logits"], 0.5)}


def make_toy(rng, dtype, **dims):
    """Sigmoids 3/4, 1/2 | 1/4, 1/2 | 9/10, 1/10."""
    logits = np.array([[math.log(3), 0, -math.log(3), 0, math.log(9), -math.log(9)]], dtype)
    bias = np.array([0, 0, 0.45, 0.1, 0, 0], dtype)
    return {"logits": logits, "bias": bias, "num_groups": 3, "top_groups": 2, "top_k": 2, "scale": 2.0}


def in_groups(scores, num_groups):
    return scores.reshape(len(scores), num_groups, scores.shape[1] // num_groups)


def two_best(by_group):
    return np.sort(by_group, axis=2)[:, :, -2:].sum(axis=2)


def weights_with_bias(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(selection, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def not_normalised(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen


def normalised_over_all(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen / own.sum(axis=1, keepdims=True)


def scale_forgotten(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, chosen / chosen.sum(axis=1, keepdims=True)


def softmax_for_sigmoid(logits, bias, num_groups, top_groups, top_k, scale):
    powers = np.exp(logits)
    own = powers / powers.sum(axis=1, keepdims=True)
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def softmax_of_the_chosen(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.exp(np.take_along_axis(logits, ids, axis=1))
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def bias_ignored(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def bias_before_the_sigmoid(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = 1 / (1 + np.exp(-logits - bias))
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def groups_without_bias(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = own.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def groups_ignored(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    ids = np.argsort(-selection, axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def best_of_each_group(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = groups.max(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def whole_group_summed(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = groups.sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def closed_groups_at_zero(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, 0), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def groups_dealt(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), own.shape[1] // num_groups, num_groups).swapaxes(1, 2)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) % num_groups).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def numbered_within_the_group(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids % groups.shape[2], scale * chosen / chosen.sum(axis=1, keepdims=True)


def by_number(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    ids = np.sort(ids, axis=1)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def by_weight(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    order = np.argsort(-chosen, axis=1, kind="stable")
    ids, chosen = (np.take_along_axis(part, order, axis=1) for part in (ids, chosen))
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def lowest_first(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    ids = ids[:, ::-1].copy()
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def higher_number_wins(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits[:, ::-1]))
    selection = own + bias[::-1]
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return own.shape[1] - 1 - ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def higher_expert_wins(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    order = np.argsort(np.where(allowed, selection, -np.inf), axis=1, kind="stable")[:, ::-1]
    ids = order[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def higher_group_wins(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(score, axis=1, kind="stable")[:, ::-1][:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def not_stable(logits, bias, num_groups, top_groups, top_k, scale):
    """Equal scores in some order that is neither of the two: what a sort that is not stable may do."""

    def sort(scores):
        places = np.arange(scores.shape[1])
        return np.lexsort((np.broadcast_to(places * 5 % 7, scores.shape), -scores), axis=1)

    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = sort(score)[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = sort(np.where(allowed, selection, -np.inf))[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def stably(scores, count):
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]


#: Ways to the numbers of the largest scores that leave it to the library which of equal ones come first.
UNSTABLE = (
    lambda scores, count: np.argsort(-scores, axis=1)[:, :count],
    lambda scores, count: np.argsort(scores, axis=1)[:, ::-1][:, :count],
    lambda scores, count: in_order(scores, np.argpartition(-scores, count - 1, axis=1)[:, :count]),
    lambda scores, count: in_order(scores, np.argpartition(scores, -count, axis=1)[:, -count:]),
)


def in_order(scores, ids):
    order = stably(np.take_along_axis(scores, ids, axis=1), ids.shape[1])
    return np.take_along_axis(ids, order, axis=1)


def chosen_by(groups_by, experts_by):
    """What an answer gives that finds groups and experts in these two ways."""

    def answer(logits, bias, num_groups, top_groups, top_k, scale):
        own = 1 / (1 + np.exp(-logits))  # in the dtype of logits, on which an unstable order depends
        is_open = np.zeros((len(own), num_groups), bool)
        best = groups_by(two_best(in_groups(own + bias, num_groups)), top_groups)
        np.put_along_axis(is_open, best, True, axis=1)
        allowed = np.repeat(is_open, own.shape[1] // num_groups, axis=1)
        ids = experts_by(np.where(allowed, own + bias, -np.inf), top_k)
        chosen = np.take_along_axis(own, ids, axis=1)
        return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)

    return answer


def two_best_by_partition(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.partition(groups, -2, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def float64_whatever_comes(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1).astype(np.float64)
    return ids, scale * chosen / chosen.sum(axis=1, keepdims=True)


def weights_alone(logits, bias, num_groups, top_groups, top_k, scale):
    own = 1 / (1 + np.exp(-logits))
    selection = own + bias
    groups = selection.reshape(len(own), num_groups, own.shape[1] // num_groups)
    score = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top_groups]
    allowed = (best[:, :, None] == np.arange(own.shape[1]) // groups.shape[2]).any(axis=1)
    ids = np.argsort(np.where(allowed, -selection, np.inf), axis=1, kind="stable")[:, :top_k].astype(np.int64)
    chosen = np.take_along_axis(own, ids, axis=1)
    return scale * chosen / chosen.sum(axis=1, keepdims=True)


def sizes(tokens, num_groups, group_size, top_groups, top_k):
    names = ("tokens", "num_groups", "group_size", "top_groups", "top_k")
    return dict(zip(names, (tokens, num_groups, group_size, top_groups, top_k), strict=True))


EXERCISE = Exercise(
    id="route_tokens",
    chapter=9,
    order=3,
    title="which experts",
    checks="the experts of each token by falling selection score, and their weights",
    points=4,
    difficulty=3,
    minutes=20,
    make=make,
    oracle=experts.route_tokens,
    returns=("ids", "weights"),
    cases=(
        Case("one token by hand", sizes(1, 3, 2, 2, 2), make=make_toy),
        Case("odd sizes", sizes(7, 5, 9, 3, 11)),
        Case("every group open", sizes(6, 4, 8, 4, 5)),
        Case("one group open", sizes(9, 6, 7, 1, 3)),
        Case("biases that make every score negative", sizes(8, 6, 5, 2, 4), make=make_below_zero),
        Case("equal scores everywhere", sizes(12, 6, 4, 3, 7), make=make_ties),
        Case("every score the same", sizes(3, 5, 3, 2, 4), make=make_equal),
        Case("groups of one expert that tie", sizes(6, 7, 1, 3, 2), make=make_ties),
        Case("equal scores at DeepSeek-V3's sizes, float32", sizes(4, 8, 32, 4, 8), make=make_ties, dtype="float32"),
        Case("groups of one expert", sizes(5, 8, 1, 4, 3)),
        Case("all that is open is taken", sizes(5, 4, 3, 2, 6)),
        Case("one of everything", sizes(1, 1, 1, 1, 1)),
        Case("no tokens", sizes(0, 4, 6, 2, 3)),
        Case("float32", sizes(8, 4, 8, 2, 6), dtype="float32"),
        Case("strided inputs", sizes(6, 5, 6, 2, 4), layout="strided"),
        Case("DeepSeek-V3's router", sizes(5, 8, 32, 4, 8)),
        Case("Kimi K2's router, one group", sizes(3, 1, 384, 1, 8)),
    ),
    hints=(
        "There are two scores for each expert: what it is selected by, and what it is weighted by. Which of them has "
        "the bias in it? And what decides whether a group is looked at at all?",
        "Give the selection scores an axis for the group, sort inside each group, and add the last two. Then make the "
        "scores of closed groups so small that nothing can be worse. For the order, a stable sort of the *negated* "
        "scores puts the largest first and leaves equal ones in their order. Go back to the plain sigmoids for the "
        "weights.",
        "Fill the gaps:\n\n"
        "    affinity = ____  # (tokens, experts)\n"
        "    selection = affinity + ____\n"
        "    group_scores = np.sort(selection.reshape(____), axis=2)[:, :, ____].sum(axis=2)\n"
        "    best = np.argsort(____, axis=1, kind=____)[:, :top_groups]\n"
        "    is_open = ____  # (tokens, num_groups), True for the best ones\n"
        "    allowed = np.repeat(is_open, ____, axis=1)\n"
        "    ids = ____  # of the allowed ones, as int64\n"
        "    chosen = np.take_along_axis(____, ids, axis=1)\n"
        "Write all three sizes of the reshape out: without tokens NumPy cannot work out a -1.",
    ),
    mistakes=(
        Mistake(
            "weights with bias",
            "the weights are made of the scores with the bias. The bias steers who is selected and must not change "
            "what the layer computes: weigh with the plain sigmoids",
            weights_with_bias,
        ),
        Mistake(
            "not normalised", "the weights of a token do not add up to the scale: divide by their sum", not_normalised
        ),
        Mistake(
            "normalised over all experts",
            "the weights were divided by the sum over all experts. Only the selected ones count",
            normalised_over_all,
        ),
        Mistake("scale forgotten", "the weights add up to 1; they must add up to the scale", scale_forgotten),
        Mistake(
            "softmax for sigmoid",
            "the scores come from a softmax. DeepSeek-V3 takes a sigmoid: each expert is scored by itself",
            softmax_for_sigmoid,
        ),
        Mistake(
            "softmax of the selected",
            "the weights are a softmax of the selected logits. They are sigmoids over their sum",
            softmax_of_the_chosen,
        ),
        Mistake("bias ignored", "the experts were selected without the bias", bias_ignored),
        Mistake(
            "bias before the sigmoid",
            "the bias was added to the logits. It is added to the sigmoids",
            bias_before_the_sigmoid,
        ),
        Mistake(
            "groups without bias",
            "the groups were scored without the bias. Groups and experts are selected by the same scores",
            groups_without_bias,
        ),
        Mistake(
            "groups ignored",
            "the best experts of all groups were taken. Only those of the best top_groups groups may be",
            groups_ignored,
        ),
        Mistake(
            "best of each group",
            "a group was scored by its best expert alone. Its score is the sum of its two best",
            best_of_each_group,
        ),
        Mistake(
            "whole group summed",
            "a group was scored by the sum of all its experts. Its score is the sum of its two best",
            whole_group_summed,
        ),
        Mistake(
            "closed groups at 0",
            "experts of closed groups got the score 0, and with a bias below 0 that beats the open ones. Give them "
            "minus infinity",
            closed_groups_at_zero,
        ),
        Mistake(
            "groups dealt out",
            "the experts were dealt out to the groups in turn. Neighbours form a group",
            groups_dealt,
        ),
        Mistake(
            "numbered within the group",
            "the ids count from 0 in each group. They are numbers among all experts",
            numbered_within_the_group,
        ),
        Mistake("in the order of numbers", "the experts stand in the order of their numbers", by_number),
        Mistake(
            "in the order of weights",
            "the experts stand in the order of their weights. The scores with the bias decide the order",
            by_weight,
        ),
        Mistake(
            "lowest first", "the right experts, with the lowest score first. The highest comes first", lowest_first
        ),
        Mistake(
            "higher number wins a tie",
            "among equal scores the last one was taken, of groups as of experts. The lower number wins: an ascending "
            "sort read backwards turns ties round, so sort the negated scores, stably",
            higher_number_wins,
        ),
        Mistake(
            "higher number wins among experts",
            "among experts with equal scores the last one was taken. The lower number wins there too: sort the negated "
            "scores, stably",
            higher_expert_wins,
        ),
        Mistake(
            "higher number wins among groups",
            "among groups with equal scores the last one was opened. The lower number wins there too: sort the negated "
            "group scores, stably",
            higher_group_wins,
        ),
        Mistake(
            "not stable",
            "equal scores stand in no certain order: of itself neither np.argsort nor np.argpartition keeps it. Sort "
            'the negated scores with kind="stable"',
            not_stable,
            tuple(chosen_by(*ways) for way in UNSTABLE for ways in ((way, way), (stably, way), (way, stably))),
        ),
    ),
    mutants=(
        Mutant(weights_with_bias, "weights with bias"),
        Mutant(not_normalised, "not normalised"),
        Mutant(normalised_over_all, "normalised over all experts"),
        Mutant(scale_forgotten, "scale forgotten"),
        Mutant(softmax_for_sigmoid, "softmax for sigmoid"),
        Mutant(softmax_of_the_chosen, "softmax of the selected"),
        Mutant(bias_ignored, "bias ignored"),
        Mutant(bias_before_the_sigmoid, "bias before the sigmoid"),
        Mutant(groups_without_bias, "groups without bias"),
        Mutant(groups_ignored, "groups ignored"),
        Mutant(best_of_each_group, "best of each group"),
        Mutant(whole_group_summed, "whole group summed"),
        Mutant(closed_groups_at_zero, "closed groups at 0"),
        Mutant(groups_dealt, "groups dealt out"),
        Mutant(numbered_within_the_group, "numbered within the group"),
        Mutant(by_number, "in the order of numbers"),
        Mutant(by_weight, "in the order of weights"),
        Mutant(lowest_first, "lowest first"),
        Mutant(higher_number_wins, "higher number wins a tie"),
        Mutant(higher_expert_wins, "higher number wins among experts"),
        Mutant(higher_group_wins, "higher number wins among groups"),
        Mutant(not_stable, "not stable"),
        Mutant(two_best_by_partition, "ValueError", verdict="error"),
        Mutant(float64_whatever_comes, "dtype float64; wanted float32"),
        Mutant(weights_alone, "wanted a tuple of 2 parts"),
    ),
)
