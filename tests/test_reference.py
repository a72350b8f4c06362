"""The oracles against scalar loops, the worked example and the properties that define them."""

import itertools
import math

import numpy as np
import pytest

from ledger.reference import mla

Q_NOPE = [[1, 0]]
W_K = [[1, 0], [0, 2], [1, 1]]
LATENTS = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]

# (new_tokens, cached_tokens, num_heads, nope_dim, value_dim, latent_dim): looped sizes, and sizes left to einsum.
SIZES = [(2, 3, 2, 3, 2, 4), (1, 1, 1, 1, 1, 1), (3, 2, 3, 4, 5, 6), (7, 9, 3, 10, 11, 13)]


def floats(*rows):
    return [np.array(r, float) for r in rows]


def by_hand(output_shape, summed, term):
    """An array of Python floats: ``term(*output_index, i)`` added over ``i`` in ``range(summed)``."""
    result = np.zeros(output_shape)
    for index in itertools.product(*map(range, output_shape)):
        result[index] = sum(term(*index, i) for i in range(summed))
    return result


def test_the_worked_example():
    q_nope, w_k, latents = floats(Q_NOPE, W_K, LATENTS)
    assert mla.up_project_keys(latents, w_k).tolist() == [[1, 0], [0, 2], [1, 1]]
    assert mla.absorb_query(q_nope, w_k).tolist() == [[1, 0, 1]]
    assert mla.scores_absorbed(q_nope, w_k, latents).tolist() == [[1, 0, 1]]


def test_the_packed_weight_by_hand():
    kv_b = np.array([[1, 0, 1], [0, 2, 1], [7, 7, 7], [0, 1, 2], [1, 0, 1], [9, 8, 9]], float)
    w_kc, w_vc = mla.split_kv_b(kv_b, num_heads=2, nope_dim=2, value_dim=1)
    assert w_kc.tolist() == [[[1, 0, 1], [0, 2, 1]], [[0, 1, 2], [1, 0, 1]]]
    assert w_vc.tolist() == [[[7], [7], [7]], [[9], [8], [9]]]


def test_two_heads_by_hand():
    q_nope = np.array([[[1, 0], [1, 1]]], float)
    w_kc = np.array([[[1, 0, 1], [0, 2, 1]], [[0, 1, 2], [1, 0, 1]]], float)
    assert mla.absorb_heads(q_nope, w_kc).tolist() == [[[1, 0, 1], [1, 1, 3]]]
    q_absorbed = np.array([[[1, 0, 1], [1, 1, 3]]], float)
    latents = np.array([[1, 0, 0], [2, 5, 1]], float)
    assert mla.scores_shared_latent(q_absorbed, latents).tolist() == [[[1, 3]], [[1, 10]]]


@pytest.mark.parametrize("sizes", SIZES)
def test_oracles_add_what_their_definitions_say(sizes):
    new, cached, heads, nope, _, latent = sizes
    rng = np.random.default_rng(3)
    q, w_k, c = (rng.standard_normal(shape) for shape in [(new, nope), (latent, nope), (cached, latent)])
    q_heads, w_kc = rng.standard_normal((new, heads, nope)), rng.standard_normal((heads, nope, latent))
    q_absorbed = rng.standard_normal((new, heads, latent))

    keys = by_hand((cached, nope), latent, lambda t, n, i: c[t, i] * w_k[i, n])
    np.testing.assert_allclose(mla.up_project_keys(c, w_k), keys, rtol=1e-12)
    absorbed = by_hand((new, latent), nope, lambda s, i, n: q[s, n] * w_k[i, n])
    np.testing.assert_allclose(mla.absorb_query(q, w_k), absorbed, rtol=1e-12, atol=1e-13)
    scores = by_hand((new, cached), latent, lambda s, t, i: absorbed[s, i] * c[t, i])
    np.testing.assert_allclose(mla.scores_absorbed(q, w_k, c), scores, rtol=1e-11, atol=1e-12)
    every = by_hand((new, heads, latent), nope, lambda s, h, i, n: q_heads[s, h, n] * w_kc[h, n, i])
    np.testing.assert_allclose(mla.absorb_heads(q_heads, w_kc), every, rtol=1e-12, atol=1e-13)
    shared = by_hand((heads, new, cached), latent, lambda h, s, t, i: q_absorbed[s, h, i] * c[t, i])
    np.testing.assert_allclose(mla.scores_shared_latent(q_absorbed, c), shared, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("sizes", SIZES)
def test_the_split_weight_acts_as_the_packed_one(sizes):
    """Up-projecting with the packed weight gives each head [key | value], whichever way the halves are stored."""
    _, cached, heads, nope, value, latent = sizes
    rng = np.random.default_rng(4)
    kv_b, c = rng.standard_normal((heads * (nope + value), latent)), rng.standard_normal((cached, latent))
    w_kc, w_vc = mla.split_kv_b(kv_b, heads, nope, value)
    packed = c @ kv_b.T  # [t, h (n + v)]
    for head in range(heads):
        start = head * (nope + value)
        np.testing.assert_allclose(c @ w_kc[head].T, packed[:, start : start + nope])
        np.testing.assert_allclose(c @ w_vc[head], packed[:, start + nope : start + nope + value])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_results_keep_the_dtype_of_the_inputs(dtype):
    q, w_k, w_kc = np.ones((2, 4), dtype), np.ones((3, 4), dtype), np.ones((5, 4, 3), dtype)
    assert mla.up_project_keys(np.ones((6, 3), dtype), w_k).dtype == dtype
    assert mla.absorb_query(q, w_k).dtype == dtype
    assert mla.scores_absorbed(q, w_k, np.ones((6, 3), dtype)).dtype == dtype
    assert mla.absorb_heads(np.ones((2, 5, 4), dtype), w_kc).dtype == dtype
    assert mla.scores_shared_latent(np.ones((2, 5, 3), dtype), np.ones((6, 3), dtype)).dtype == dtype
    assert [part.dtype for part in mla.split_kv_b(np.ones((10, 3), dtype), 2, 3, 2)] == [dtype, dtype]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_narrow_inputs_are_added_in_float64(dtype):
    """The 1 between two numbers that cancel is lost where it is added in the inputs' own precision."""
    large = 2 / np.finfo(dtype).eps
    q = np.array([[large, 1, -large]], dtype)
    assert mla.absorb_query(q, np.ones((1, 3), dtype)).tolist() == [[1]]


def test_decode_by_hand():
    """Two entries whose scores differ by ln 3: weights 1/4 and 3/4; of the second request only one entry counts."""
    cache = np.array([[[1, 0, 0], [0, 4, math.log(3)]], [[5, 6, 7], [np.nan] * 3]])
    queries = np.array([[[0, 0, 1]], [[0, 0, 0]]], float)
    mixed, lse = mla.decode_absorbed(queries, cache, [2, 1], latent_dim=2, scale=1.0)
    np.testing.assert_allclose(mixed, [[[0.25, 3]], [[5, 6]]], rtol=1e-12)
    np.testing.assert_allclose(lse, [[math.log(4)], [0]], rtol=1e-12)


@pytest.mark.parametrize("sizes", SIZES)
def test_decode_attends_with_every_heads_own_keys_and_values(sizes):
    """Absorbed attention, its result brought up, equals attention over keys and values made from the latents."""
    _, cached, heads, nope, value, latent = sizes
    rng = np.random.default_rng(5)
    kv_b = rng.standard_normal((heads * (nope + value), latent))
    w_kc, w_vc = mla.split_kv_b(kv_b, heads, nope, value)
    q_nope, q_rope = rng.standard_normal((1, heads, nope)), rng.standard_normal((1, heads, 2))
    c, k_rope = rng.standard_normal((cached, latent)), rng.standard_normal((cached, 2))

    queries = np.concatenate([mla.absorb_heads(q_nope, w_kc), q_rope], axis=2)
    mixed, lse = mla.decode_absorbed(queries, np.concatenate([c, k_rope], axis=1)[None], [cached], latent, scale=0.3)
    for head in range(heads):
        scores = [0.3 * (q_nope[0, head] @ (w_kc[head] @ c[t]) + q_rope[0, head] @ k_rope[t]) for t in range(cached)]
        total = sum(map(math.exp, scores))
        attended = sum(math.exp(scores[t]) / total * (c[t] @ w_vc[head]) for t in range(cached))
        np.testing.assert_allclose(mixed[0, head] @ w_vc[head], attended, rtol=1e-10)
        assert lse[0, head] == pytest.approx(math.log(total), rel=1e-12)


def test_decode_of_an_empty_request_and_of_large_scores():
    queries, cache = np.full((2, 1, 2), 1000.0), np.ones((2, 3, 2))
    mixed, lse = mla.decode_absorbed(queries, cache, [0, 3], latent_dim=1, scale=1.0)
    assert mixed.tolist() == [[[0]], [[1]]]
    assert lse[0] == -np.inf
    assert lse[1] == pytest.approx(2000 + math.log(3))
    assert [part.dtype for part in mla.decode_absorbed(queries.astype("f4"), cache.astype("f4"), [1, 1], 1, 1.0)] == [
        np.float32, np.float32,
    ]  # fmt: skip


def test_sizes_of_zero_give_empty_results_of_the_right_shape():
    assert mla.up_project_keys(np.ones((0, 3)), np.ones((3, 2))).shape == (0, 2)
    assert mla.absorb_query(np.ones((0, 2)), np.ones((3, 2))).shape == (0, 3)
    assert mla.scores_absorbed(np.ones((4, 2)), np.ones((3, 2)), np.ones((0, 3))).shape == (4, 0)
    assert mla.absorb_heads(np.ones((0, 2, 5)), np.ones((2, 5, 3))).shape == (0, 2, 3)
    assert mla.scores_shared_latent(np.ones((4, 2, 3)), np.ones((0, 3))).shape == (2, 4, 0)
    w_kc, w_vc = mla.split_kv_b(np.ones((6, 3)), 2, 3, 0)
    assert (w_kc.shape, w_vc.shape) == ((2, 3, 3), (2, 3, 0))


def test_an_empty_sum_is_zero():
    assert mla.up_project_keys(np.ones((2, 0)), np.ones((0, 3))).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_sizes_that_do_not_meet_are_refused():
    with pytest.raises(ValueError, match=r"\(3, 2\) does not fit 'tc'"):
        mla.up_project_keys(np.ones((3, 2)), np.ones((4, 5)))
    with pytest.raises(ValueError, match="kv_b has 7 rows"):
        mla.split_kv_b(np.ones((7, 3)), 2, 2, 1)
