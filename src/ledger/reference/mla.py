"""Latent attention by its definitions, in float64.

Sums of products are written out index by index where they are short, and left to einsum at a model's widths. Where an
exercise goes one way through the algebra, its oracle here goes the other: scores are made from keys.
Results come back in the common dtype of the inputs.
"""

import math

import numpy as np

#: Sums of at most this many terms in all are added one by one.
_LOOPED_TERMS = 200


def up_project_keys(latents: np.ndarray, w_k: np.ndarray) -> np.ndarray:
    """Keys of one head: latents (cached_tokens, latent_dim), w_k (latent_dim, nope_dim) ->
    (cached_tokens, nope_dim)."""
    return narrow(contract("tc,cn->tn", latents, w_k), latents, w_k)


def absorb_query(q_nope: np.ndarray, w_k: np.ndarray) -> np.ndarray:
    """Queries of one head in latent space: q_nope (new_tokens, nope_dim), w_k (latent_dim, nope_dim) ->
    (new_tokens, latent_dim)."""
    return narrow(contract("sn,cn->sc", q_nope, w_k), q_nope, w_k)


def scores_absorbed(q_nope: np.ndarray, w_k: np.ndarray, latents: np.ndarray) -> np.ndarray:
    """Raw scores of one head, from the keys: q_nope (new_tokens, nope_dim), w_k (latent_dim, nope_dim), latents
    (cached_tokens, latent_dim) -> (new_tokens, cached_tokens)."""
    keys = contract("tc,cn->tn", latents, w_k)
    return narrow(contract("sn,tn->st", q_nope, keys), q_nope, w_k, latents)


def split_kv_b(kv_b: np.ndarray, num_heads: int, nope_dim: int, value_dim: int) -> tuple[np.ndarray, np.ndarray]:
    """The packed up-projection, row by row: kv_b (num_heads·(nope_dim + value_dim), latent_dim), its rows head-major
    and each head [nope | value], -> w_kc (num_heads, nope_dim, latent_dim), w_vc (num_heads, latent_dim, value_dim).

    Raises ValueError where the number of rows is another.
    """
    rows, latent_dim = kv_b.shape
    if rows != num_heads * (nope_dim + value_dim):
        raise ValueError(f"kv_b has {rows} rows; {num_heads} heads of {nope_dim} + {value_dim} need another number")
    w_kc = np.empty((num_heads, nope_dim, latent_dim), kv_b.dtype)
    w_vc = np.empty((num_heads, latent_dim, value_dim), kv_b.dtype)
    for row, weights in enumerate(kv_b):
        head, feature = divmod(row, nope_dim + value_dim)
        if feature < nope_dim:
            w_kc[head, feature] = weights
        else:
            w_vc[head, :, feature - nope_dim] = weights
    return w_kc, w_vc


def absorb_heads(q_nope: np.ndarray, w_kc: np.ndarray) -> np.ndarray:
    """Every head's queries in latent space: q_nope (new_tokens, num_heads, nope_dim), w_kc (num_heads, nope_dim,
    latent_dim) -> (new_tokens, num_heads, latent_dim)."""
    return narrow(contract("shn,hnc->shc", q_nope, w_kc), q_nope, w_kc)


def scores_shared_latent(q_absorbed: np.ndarray, latents: np.ndarray) -> np.ndarray:
    """Raw scores of every head against the one set of latents: q_absorbed (new_tokens, num_heads, latent_dim), latents
    (cached_tokens, latent_dim) -> (num_heads, new_tokens, cached_tokens)."""
    return narrow(contract("shc,tc->hst", q_absorbed, latents), q_absorbed, latents)


def decode_absorbed(
    queries: np.ndarray, cache: np.ndarray, lengths: np.ndarray, latent_dim: int, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """One decode step in latent space, head by head with the whole softmax at once: queries (requests, num_heads,
    latent_dim + rope_dim), cache (requests, max_tokens, latent_dim + rope_dim), lengths (requests,) ->
    mixed latents (requests, num_heads, latent_dim) and the natural log of the sum of exp(scale · score), (requests,
    num_heads). A request attends to its first ``lengths`` entries; one without any gives 0 and −inf."""
    requests, num_heads, _ = queries.shape
    mixed = np.zeros((requests, num_heads, latent_dim))
    lse = np.full((requests, num_heads), -np.inf)
    for request, length in enumerate(lengths):
        entries = np.asarray(cache[request, :length], np.float64)
        for head in range(num_heads if length else 0):
            scores = scale * contract("tf,f->t", entries, queries[request, head])
            largest = scores.max()
            weights = np.exp(scores - largest)
            mixed[request, head] = contract("t,tc->c", weights / weights.sum(), entries[:, :latent_dim])
            lse[request, head] = largest + math.log(weights.sum())
    return narrow(mixed, queries, cache), narrow(lse, queries, cache)


def contract(subscripts: str, *arrays: np.ndarray) -> np.ndarray:
    """``np.einsum`` in float64, by its definition where few terms are added.

    Raises ValueError where two arrays give one letter different sizes.
    """
    terms, output = subscripts.split("->")
    axes = terms.split(",")
    wide = [np.asarray(array, np.float64) for array in arrays]
    sizes: dict[str, int] = {}
    for names, array in zip(axes, wide, strict=True):
        sizes.update(zip(names, array.shape, strict=True))
    for names, array in zip(axes, wide, strict=True):
        if array.shape != tuple(sizes[letter] for letter in names):
            raise ValueError(f"shape {array.shape} does not fit {names!r} in {subscripts!r} with sizes {sizes}")
    if math.prod(sizes.values()) > _LOOPED_TERMS:
        return np.einsum(subscripts, *wide, optimize=True)
    total = np.zeros([sizes[letter] for letter in output])
    for index in np.ndindex(*sizes.values()):
        at = dict(zip(sizes, index, strict=True))
        factors = (array[tuple([at[letter] for letter in names])] for names, array in zip(axes, wide, strict=True))
        total[tuple([at[letter] for letter in output])] += math.prod(factors)
    return total


def narrow(result: np.ndarray, *inputs: np.ndarray) -> np.ndarray:
    """``result`` in the common dtype of ``inputs``."""
    return result.astype(np.result_type(*inputs), copy=False)
