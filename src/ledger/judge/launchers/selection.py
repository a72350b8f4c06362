"""Read a learner's selection of tokens as a set: of equal scores any will do."""

from collections.abc import Callable
from typing import Any

import numpy as np


def select_tokens(answer: Callable[..., Any], scores: np.ndarray, lengths: np.ndarray, topk: int) -> Any:
    """What ``answer`` selects from scores (queries, keys), of which lengths (queries,) are seen, with the tokens of a
    row rising and those of equal scores the lowest that there are; padding stays where it stands.

    So that wrong rows are alike, too, tokens that a query does not see count as equal scores, and tokens that stand
    again where padding should become the last seen. Other rows with a repeated token, and a result that is no int32
    array of (queries, topk), come back as they are.
    """
    selected = answer(scores, lengths, topk)
    fits = isinstance(selected, np.ndarray) and selected.shape == (len(scores), topk) and selected.dtype == np.int32
    if not fits:
        return selected
    plain = np.array(selected)
    for row, seen, picks in zip(scores, lengths.tolist(), plain, strict=True):
        first, rest = picks[:seen], picks[seen:]
        if len(rest) and np.isin(rest, first).all() and np.array_equal(np.sort(first), np.arange(seen)):
            first[:], rest[:] = np.arange(seen), seen - 1
            continue
        own, unseen = (picks >= 0) & (picks < seen), (picks >= seen) & (picks < len(row))
        if distinct(picks[own]) and distinct(picks[unseen]):
            picks[own] = lowest(row[:seen], picks[own])
            picks[unseen] = np.arange(seen, seen + unseen.sum())
    return plain


def distinct(tokens: np.ndarray) -> bool:
    return len(set(tokens.tolist())) == len(tokens)


def lowest(scores: np.ndarray, tokens: np.ndarray) -> list[int]:
    """As many tokens of each score as ``tokens`` holds, the lowest of them, all rising."""
    values, counts = np.unique(scores[tokens], return_counts=True)
    alike = (np.flatnonzero(scores == value)[:count] for value, count in zip(values, counts, strict=True))
    return sorted(token for group in alike for token in group.tolist())
