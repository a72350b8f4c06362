"""The compression into latents, the way from scores to outputs, and the merging of partial results, in float64.

Each function goes the long way: every head, key and value is made and named, and scores meet keys. Results come back in
the common dtype of the floating inputs.
"""

import math
from collections.abc import Mapping

import numpy as np

from ledger.checks import check_floating
from ledger.reference.mla import contract, narrow


def project_mla(
    hidden: np.ndarray, weights: Mapping[str, np.ndarray], num_heads: int, nope_dim: int, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What latent attention makes of hidden states (tokens, hidden_dim), one token after the other: q_nope (tokens,
    num_heads, nope_dim), q_rope (tokens, num_heads, rope_dim), both not rotated, latent (tokens, latent_dim), not
    normalised, and k_rope (tokens, rope_dim), not rotated.

    ``weights`` has its features on the left: ``w_dq`` (hidden_dim, q_lora_dim), ``q_norm`` (q_lora_dim,) and ``w_uq``
    (q_lora_dim, num_heads·(nope_dim + rope_dim)), each head [nope | rope]; without a query latent only ``w_uq``, from
    hidden_dim. ``w_dkv`` (hidden_dim, latent_dim + rope_dim) has the columns [latent | k_rope]. RMSNorm with ``eps``
    stands on the query latent alone. Each result has the common dtype of ``hidden`` and of the weights that it comes
    from. A ValueError where ``w_uq`` does not split into such heads. Source: DeepSeek-V2, arXiv 2405.04434, section
    2.1, and its released code.
    """
    w_uq, w_dkv = weights["w_uq"], weights["w_dkv"]
    head_width, left_over = divmod(w_uq.shape[1], num_heads)
    rope_dim = head_width - nope_dim
    if left_over or rope_dim < 0:
        raise ValueError(f"w_uq has {w_uq.shape[1]} columns; {num_heads} heads of {nope_dim} + rope do not fill them")
    latent_dim = w_dkv.shape[1] - rope_dim
    q = np.zeros((len(hidden), num_heads, head_width))
    latent, k_rope = np.zeros((len(hidden), latent_dim)), np.zeros((len(hidden), rope_dim))
    for token, state in enumerate(np.asarray(hidden, np.float64)):
        source = state
        if "w_dq" in weights:
            low = contract("i,ij->j", state, weights["w_dq"])
            root = math.sqrt(math.fsum(low**2) / len(low) + eps)
            source = np.array([x / root * float(g) for x, g in zip(low, weights["q_norm"], strict=True)])
        for head in range(num_heads):
            columns = slice(head * head_width, (head + 1) * head_width)
            q[token, head] = contract("i,ij->j", source, w_uq[:, columns])
        latent[token] = contract("i,ij->j", state, w_dkv[:, :latent_dim])
        k_rope[token] = contract("i,ij->j", state, w_dkv[:, latent_dim:])
    of_queries = [hidden, *(weight for name, weight in weights.items() if name != "w_dkv")]
    queries = (narrow(part, *of_queries) for part in (q[..., :nope_dim], q[..., nope_dim:]))
    return (*queries, *(narrow(part, hidden, w_dkv) for part in (latent, k_rope)))


def materialize_values(latents: np.ndarray, w_v: np.ndarray) -> np.ndarray:
    """Values of one head: latents (cached_tokens, latent_dim), w_v (latent_dim, value_dim) ->
    (cached_tokens, value_dim)."""
    return narrow(contract("tc,cv->tv", latents, w_v), latents, w_v)


def mix_then_project(weights: np.ndarray, latents: np.ndarray, w_v: np.ndarray) -> np.ndarray:
    """Output of one head, from its values: weights (new_tokens, cached_tokens), latents (cached_tokens, latent_dim),
    w_v (latent_dim, value_dim) -> (new_tokens, value_dim)."""
    values = contract("tc,cv->tv", latents, w_v)
    return narrow(contract("st,tv->sv", weights, values), weights, latents, w_v)


def absorb_values_heads(weights: np.ndarray, latents: np.ndarray, w_vc: np.ndarray) -> np.ndarray:
    """Outputs of all heads, from every head's values: weights (num_heads, new_tokens, cached_tokens), latents
    (cached_tokens, latent_dim), w_vc (num_heads, latent_dim, value_dim) -> (new_tokens, num_heads, value_dim)."""
    output = np.zeros((weights.shape[1], len(w_vc), w_vc.shape[2]))
    for head, w_v in enumerate(w_vc):
        values = contract("tc,cv->tv", latents, w_v)
        output[:, head] = contract("st,tv->sv", weights[head], values)
    return narrow(output, weights, latents, w_vc)


def attend_absorbed(
    q_nope: np.ndarray, w_kc: np.ndarray, latents: np.ndarray, w_vc: np.ndarray, scale: float
) -> np.ndarray:
    """The content path of all heads, from every head's keys and values: q_nope (new_tokens, num_heads, nope_dim), w_kc
    (num_heads, nope_dim, latent_dim), latents (cached_tokens, latent_dim), w_vc (num_heads, latent_dim, value_dim) ->
    (new_tokens, num_heads, value_dim). Every new token sees every cached one; an empty cache gives 0."""
    new_tokens, num_heads, _ = q_nope.shape
    output = np.zeros((new_tokens, num_heads, w_vc.shape[2]))
    for head in range(num_heads):
        keys = contract("tc,nc->tn", latents, w_kc[head])
        values = contract("tc,cv->tv", latents, w_vc[head])
        weights, _ = softmax_lse(scale * contract("sn,tn->st", q_nope[:, head], keys))
        output[:, head] = contract("st,tv->sv", weights, values)
    return narrow(output, q_nope, w_kc, latents, w_vc)


def softmax_lse(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Softmax over the last axis and the natural log of its denominator: scores (…, cached_tokens) -> weights of that
    shape, lse (…). A row without any finite score gets weights of 0 and an lse of −inf. A ValueError for NaN and ∞."""
    _check_logs(scores=scores)
    wide = np.asarray(scores, np.float64)
    weights, lse = np.zeros(wide.shape), np.full(wide.shape[:-1], -np.inf)
    for row in np.ndindex(lse.shape):
        largest = wide[row].max(initial=-np.inf)
        if largest > -np.inf:
            terms = np.exp(wide[row] - largest)
            total = math.fsum(terms)
            weights[row], lse[row] = terms / total, largest + math.log(total)
    return narrow(weights, scores), narrow(lse, scores)


def merge_partials(outputs: np.ndarray, lses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Attention over all parts of a cache, from the results of the parts: outputs (parts, …, value_dim), each
    normalised, lses (parts, …), natural log -> output (…, value_dim), lse (…).

    A part with lse −inf is empty: its output is not read. Where all are empty the output is 0 and the lse −inf. A
    ValueError where an lse is NaN or ∞, and where outputs and lses do not match.
    """
    _check_logs(lses=lses)
    if lses.shape != outputs.shape[:-1]:
        raise ValueError(f"lses are {lses.shape}, outputs {outputs.shape}: give one lse for each output's last axis")
    merged, lse = np.zeros(outputs.shape[1:]), np.full(lses.shape[1:], -np.inf)
    for row in np.ndindex(lse.shape):
        live = [part for part in range(len(lses)) if lses[(part, *row)] > -np.inf]
        if not live:
            continue
        logs = [float(lses[(part, *row)]) for part in live]
        lse[row] = max(logs) + math.log(math.fsum(math.exp(log - max(logs)) for log in logs))
        for part, log in zip(live, logs, strict=True):
            merged[row] += math.exp(log - lse[row]) * np.asarray(outputs[(part, *row)], np.float64)
    return narrow(merged, outputs, lses), narrow(lse, lses)


def _check_logs(**logs: np.ndarray) -> None:
    check_floating(**logs)
    for name, log in logs.items():
        if not np.all(log < np.inf):
            raise ValueError(f"{name} hold NaN or ∞; they must be finite, or −inf for what is masked or empty")
