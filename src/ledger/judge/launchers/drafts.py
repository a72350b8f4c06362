"""Play many rounds of verification with a learner's rule, and count the tokens that come out."""

from collections.abc import Callable
from typing import Any

import numpy as np


def verify_sampling(
    answer: Callable[..., tuple],
    draft_tokens: np.ndarray,
    draft_probs: np.ndarray,
    target_probs: np.ndarray,
    uniforms: np.ndarray,
) -> Any:
    """What ``answer`` returns for draft_tokens (k,) and uniforms (k + 1,); for draft_tokens (rounds, k) and uniforms
    (rounds, k + 1) how often each token came out first, and how often second: two int64 arrays (vocabulary,)."""
    if uniforms.ndim == 1:
        return answer(draft_tokens, draft_probs, target_probs, uniforms)
    counts = np.zeros((2, target_probs.shape[1]), np.int64)
    for drafts, drawn in zip(draft_tokens, uniforms, strict=True):
        accepted, token = answer(drafts, draft_probs, target_probs, drawn)
        for place, out in enumerate([*accepted, token][:2]):
            counts[place, out] += 1
    return counts[0], counts[1]
