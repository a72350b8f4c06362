"""The input of an MTP module and the verification of drafts, the slow way in float64, and what a rule of verification
does to the distribution of the tokens, exactly."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from ledger.reference.layer import rms_norm
from ledger.reference.mla import contract, narrow

#: (draft_tokens, draft_probs, target_probs, uniforms) -> the accepted tokens and one more.
Rule = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], tuple[list, int]]
#: The tokens so far -> the probability of each next token, (vocabulary,).
NextToken = Callable[[tuple[int, ...]], np.ndarray]


def mtp_forward(
    hidden: np.ndarray, next_embedding: np.ndarray, weights: dict[str, np.ndarray], eps: float
) -> np.ndarray:
    """What the decoder layer of an MTP module is given: hidden and next_embedding (tokens, hidden_dim) -> (tokens,
    hidden_dim). weights: enorm and hnorm (hidden_dim,), eh_proj (2 · hidden_dim, hidden_dim), the embedding's rows
    first.

    The joined matrix is never made: each half of eh_proj meets its own input. (DeepSeek-V3's report, section 2.2,
    writes the hidden state first; the published weights have the embedding first.)
    """
    hidden_dim = hidden.shape[1]
    upper, lower = weights["eh_proj"][:hidden_dim], weights["eh_proj"][hidden_dim:]
    from_token = contract("sd,de->se", rms_norm(next_embedding, weights["enorm"], eps), upper)
    from_state = contract("sd,de->se", rms_norm(hidden, weights["hnorm"], eps), lower)
    return narrow(np.asarray(from_token) + from_state, hidden, next_embedding, *weights.values())


def verify_greedy(draft_tokens: Sequence[int], target_tokens: Sequence[int]) -> tuple[list[int], int]:
    """Drafts (k) against the target's best tokens (k + 1) -> the drafts up to the first that differs, and the target's
    token in the place after them."""
    agree = [int(draft) == int(best) for draft, best in zip(draft_tokens, target_tokens, strict=False)]
    accepted = [*agree, False].index(False)
    return [int(token) for token in draft_tokens[:accepted]], int(target_tokens[accepted])


def inverse_cdf(weights: np.ndarray, uniform: float) -> int:
    """The first index whose cumulative share of ``weights`` exceeds ``uniform``; the last one with any weight where
    rounding leaves none."""
    weights = np.asarray(weights, np.float64)
    total, passed = float(weights.sum()), 0.0
    for token, weight in enumerate(weights.tolist()):
        passed += weight
        if passed > uniform * total:
            return token
    return int(np.flatnonzero(weights)[-1])


def verify_sampling(
    draft_tokens: np.ndarray, draft_probs: np.ndarray, target_probs: np.ndarray, uniforms: np.ndarray
) -> tuple[list[int], int]:
    """Drafts (k,) drawn from draft_probs (k, vocabulary), against target_probs (k + 1, vocabulary), by uniforms (k +
    1,) -> the accepted drafts and one token more. Source: arXiv 2211.17192, algorithm 1.

    Draft i is accepted while uniforms[i] · q_i < p_i. At the first rejection the token is drawn from max(p − q, 0),
    after none from the last row of target_probs; both by the last uniform.
    """
    accepted: list[int] = []
    for token, q, p, uniform in zip(draft_tokens, draft_probs, target_probs, uniforms, strict=False):
        if not float(uniform) * float(q[token]) < float(p[token]):
            excess = np.asarray(p, np.float64) - np.asarray(q, np.float64)
            return accepted, inverse_cdf(np.where(excess > 0, excess, 0), float(uniforms[-1]))
        accepted.append(int(token))
    return accepted, inverse_cdf(target_probs[-1], float(uniforms[-1]))


def acceptance(draft: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The probability that a draft is accepted which was drawn from ``draft``: Σ min(q, p) over the last axis."""
    return np.minimum(draft, target).sum(axis=-1)


def residual(draft: np.ndarray, target: np.ndarray) -> np.ndarray:
    """What is drawn from after a rejection: max(p − q, 0), normalised over the last axis; the target where they are
    alike, since no draft is then rejected."""
    excess = np.maximum(target - draft, 0)
    total = excess.sum(axis=-1, keepdims=True)
    return np.where(total > 0, excess / np.where(total > 0, total, 1), target)


def exact_distribution(rule: Rule, draft: NextToken, target: NextToken, num_draft_tokens: int) -> np.ndarray:
    """The distribution of the first num_draft_tokens + 1 tokens where each round drafts with ``draft`` and verifies by
    ``rule``, and the target goes on alone after a rejection: an array with one axis of the vocabulary for each token.

    Exact: every series of drafts is tried, and the cube of the uniforms is cut into boxes in which no decision changes,
    at all p ÷ q and at all cumulative probabilities. ``rule`` is called once in the middle of each box.
    """
    vocabulary, length = len(target(())), num_draft_tokens + 1
    found = np.zeros((vocabulary,) * length)
    for drafts in product(range(vocabulary), repeat=num_draft_tokens):
        q = np.array([draft(drafts[:i]) for i in range(num_draft_tokens)]).reshape(num_draft_tokens, vocabulary)
        p = np.array([target(drafts[:i]) for i in range(length)])
        chance = float(np.prod(q[np.arange(num_draft_tokens), drafts]))
        if not chance:
            continue
        for volume, uniforms in boxes(q, p):
            accepted, token = rule(np.array(drafts, int), q, p, uniforms)
            out = (*map(int, accepted), int(token))
            found[out] += chance * volume * _alone(target, out, length)
    return found


def boxes(q: np.ndarray, p: np.ndarray):
    """(volume, middle) of the boxes of [0, 1]^(k + 1) between all numbers at which a decision may change: the ratios
    p ÷ q and the cumulative sums of q, of p and of the residuals."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (p[: len(q)] / q).ravel()
    sums = [np.cumsum(row, axis=-1).ravel() for row in (q, p, residual(q, p[: len(q)]))]
    cuts = np.concatenate([ratios, *sums])
    cuts = np.unique(np.concatenate([[0.0, 1.0], cuts[np.isfinite(cuts) & (cuts > 0) & (cuts < 1)]]))
    widths, middles = np.diff(cuts), (cuts[1:] + cuts[:-1]) / 2
    middles, widths = middles[widths > 1e-13], widths[widths > 1e-13]
    for at in product(range(len(widths)), repeat=len(p)):
        yield float(np.prod(widths[list(at)])), middles[list(at)]


def _alone(target: NextToken, start: tuple[int, ...], length: int) -> np.ndarray:
    """The distribution of the tokens after ``start``, up to ``length`` in all, when the target draws them alone."""
    if len(start) == length:
        return np.ones(())
    here = target(start)
    return np.stack([here[token] * _alone(target, (*start, token), length) for token in range(len(here))])
