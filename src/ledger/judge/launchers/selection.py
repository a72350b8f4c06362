"""Read a learner's selection of tokens as a set: of equal scores any will do."""

from collections.abc import Callable
from typing import Any

import numpy as np


def select_tokens(answer: Callable[..., Any], scores: np.ndarray, lengths: np.ndarray, topk: int) -> Any:
    """What ``answer`` selects from scores (queries, keys), of which lengths (queries,) are seen, with the tokens of a
    row rising and those of equal scores the lowest that there are; padding stays where it stands.

    A result that is no int32 array of (queries, topk) comes back as it is, and so does a row with a token that is
    repeated or not seen.
    """
    selected = answer(scores, lengths, topk)
    fits = isinstance(selected, np.ndarray) and selected.shape == (len(scores), topk) and selected.dtype == np.int32
    if not fits:
        return selected
    plain = np.array(selected)
    for row, seen, picks in zip(scores, lengths.tolist(), plain, strict=True):
        tokens = picks[picks != -1]
        if len(set(tokens.tolist())) == len(tokens) and np.all((tokens >= 0) & (tokens < seen)):
            picks[picks != -1] = lowest(row[:seen], tokens)
    return plain


def lowest(scores: np.ndarray, tokens: np.ndarray) -> list[int]:
    """As many tokens of each score as ``tokens`` holds, the lowest of them, all rising."""
    values, counts = np.unique(scores[tokens], return_counts=True)
    alike = (np.flatnonzero(scores == value)[:count] for value, count in zip(values, counts, strict=True))
    return sorted(token for group in alike for token in group.tolist())
