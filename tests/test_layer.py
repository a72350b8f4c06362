"""Latent attention two ways at every published width: absorbed over entries, and from full keys and values.

The materialized route rotates nothing by its position: it puts the rotation of the distance between unrotated parts.
"""

import math
from functools import lru_cache

import numpy as np
import pytest

from ledger.models import MODELS
from ledger.reference import layer, values
from ledger.reference.rope import softmax_scale

#: No rope_theta is stated for it, and its angles are scaled one by one; any base shows the same algebra.
UNSTATED = {"MiniCPM3-4B": 10000.0}
#: It rotates nothing: both routes leave the rope parts as they are.
UNROTATED = {"Kimi-K3"}
NEW, CACHED, EPS = 3, 7, 1e-6


@lru_cache(maxsize=1)
def matrices(num_heads, nope_dim, value_dim, latent_dim):
    rng = np.random.default_rng(7)
    w_kc = rng.standard_normal((num_heads, nope_dim, latent_dim)) / math.sqrt(nope_dim)
    return w_kc, rng.standard_normal((num_heads, latent_dim, value_dim)) / math.sqrt(latent_dim)


def drawn(shape, new=NEW, cached=CACHED, seed=8):
    """Inputs of one layer as the projections leave them: nothing rotated, nothing normed."""
    rng = np.random.default_rng(seed)
    q_nope = rng.standard_normal((new, shape.num_heads, shape.nope_dim))
    q_rope = rng.standard_normal((new, shape.num_heads, shape.rope_dim))
    latent, k_rope = rng.standard_normal((cached, shape.latent_dim)) * 3, rng.standard_normal((cached, shape.rope_dim))
    return q_nope, q_rope, latent, k_rope, rng.standard_normal(shape.latent_dim)


def normed(latent, weight, eps):
    """RMSNorm in its plainest form, token by token."""
    return np.stack([c / math.sqrt(math.fsum(c * c) / len(c) + eps) * weight for c in latent])


class Small:
    """Sizes that no two axes share."""

    num_heads, nope_dim, rope_dim, latent_dim, value_dim = 3, 5, 4, 9, 7


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_materialize_equals_absorb_at_full_width(name, causal):
    shape = MODELS[name]
    theta = UNSTATED.get(name, shape.rope_theta)
    assert (theta is None) == (name in UNROTATED)
    scale = softmax_scale(shape.nope_dim, shape.rope_dim, shape.yarn_factor, shape.mscale_all_dim)
    w_kc, w_vc = matrices(shape.num_heads, shape.nope_dim, shape.value_dim, shape.latent_dim)
    q_nope, q_rope, latent, k_rope, weight = drawn(shape)
    keys_at = np.array([0, 1, 2, 60, 61, 4095, 4096])
    queries_at = keys_at[-NEW:]

    entries = layer.cache_entry(latent, k_rope, keys_at, weight, EPS, theta)
    queries = layer.absorbed_queries(q_nope, q_rope, w_kc, queries_at, theta)
    assert entries.shape == (CACHED, shape.cache_dim)
    assert queries.shape == (NEW, shape.num_heads, shape.cache_dim)
    at = queries_at, keys_at
    absorbed = layer.decode_absorbed(queries, entries, w_vc, shape.latent_dim, scale, causal, at)
    content = normed(latent, weight, EPS)
    full = layer.attend_materialized(q_nope, q_rope, content, k_rope, w_kc, w_vc, scale, causal, at, theta)
    assert absorbed.shape == (NEW, shape.num_heads, shape.value_dim)
    np.testing.assert_allclose(absorbed, full, rtol=0, atol=1e-10 * np.abs(full).max())
    if causal:
        # The mask by hand: of seven tokens the three new ones see five, six and all, cut off and not masked.
        for s, seen in enumerate((5, 6, 7)):
            row = layer.decode_absorbed(queries[[s]], entries[:seen], w_vc, shape.latent_dim, scale)
            np.testing.assert_allclose(row[0], full[s], rtol=0, atol=1e-10 * np.abs(full).max())
        free = layer.decode_absorbed(queries, entries, w_vc, shape.latent_dim, scale, False, at)
        assert np.abs(free[0] - absorbed[0]).max() > 1e-6 * np.abs(free).max()
        np.testing.assert_allclose(free[-1], absorbed[-1], rtol=0, atol=1e-12)


def test_a_layer_from_hidden_states_to_outputs():
    """With the projections in front, both ways: the materialized one takes each head's slice of the packed weight."""
    rng = np.random.default_rng(9)
    hidden_dim, q_lora, heads, nope, rope_dim, latent_dim, value = 11, 6, 3, 5, 4, 9, 7
    weights = {
        "w_dq": rng.standard_normal((hidden_dim, q_lora)),
        "q_norm": rng.standard_normal(q_lora),
        "w_uq": rng.standard_normal((q_lora, heads * (nope + rope_dim))),
        "w_dkv": rng.standard_normal((hidden_dim, latent_dim + rope_dim)),
    }
    w_kc, w_vc = rng.standard_normal((heads, nope, latent_dim)), rng.standard_normal((heads, latent_dim, value))
    hidden, weight = rng.standard_normal((6, hidden_dim)), rng.standard_normal(latent_dim)
    q_nope, q_rope, latent, k_rope = values.project_mla(hidden, weights, heads, nope, EPS)
    at = np.arange(6)
    entries = layer.cache_entry(latent, k_rope, at, weight, EPS, 1e4)
    queries = layer.absorbed_queries(q_nope, q_rope, w_kc, at, 1e4)
    absorbed = layer.decode_absorbed(queries, entries, w_vc, latent_dim, 0.3, causal=True)
    content = normed(latent, weight, EPS)
    full = layer.attend_materialized(q_nope, q_rope, content, k_rope, w_kc, w_vc, 0.3, causal=True, theta=1e4)
    np.testing.assert_allclose(absorbed, full, rtol=1e-10)
    # Decoding token by token from a growing cache gives the rows of the causal prefill.
    for token in range(6):
        step = layer.decode_absorbed(queries[token : token + 1], entries[: token + 1], w_vc, latent_dim, 0.3)
        np.testing.assert_allclose(step[0], absorbed[token], rtol=1e-10)


def small_layer(new, cached, seed=1):
    rng = np.random.default_rng(seed)
    s = Small
    w_kc = rng.standard_normal((s.num_heads, s.nope_dim, s.latent_dim))
    w_vc = rng.standard_normal((s.num_heads, s.latent_dim, s.value_dim))
    return drawn(s, new, cached), w_kc, w_vc


def by_scalars(q_nope, q_rope, content, k_rope, w_kc, w_vc, scale, theta, queries_at, keys_at, causal):
    """Attention by its definition, one scalar after the other; rotations as complex numbers."""
    heads, value = w_vc.shape[0], w_vc.shape[2]
    steps = [theta ** (-2 * i / q_rope.shape[2]) for i in range(q_rope.shape[2] // 2)]
    output = np.zeros((len(q_nope), heads, value))
    for s in range(len(q_nope)):
        for h in range(heads):
            seen, terms = [], []
            for t in range(len(content)):
                if causal and keys_at[t] > queries_at[s]:
                    continue
                score = sum(q_nope[s, h, n] * sum(w_kc[h, n] * content[t]) for n in range(w_kc.shape[1]))
                for i, step in enumerate(steps):
                    q = complex(q_rope[s, h, 2 * i], q_rope[s, h, 2 * i + 1])
                    k = complex(k_rope[t, 2 * i], k_rope[t, 2 * i + 1])
                    turn = complex(math.cos(step * queries_at[s]), math.sin(step * queries_at[s]))
                    other = complex(math.cos(step * keys_at[t]), math.sin(step * keys_at[t]))
                    score += ((q * turn).conjugate() * (k * other)).real
                seen.append(t)
                terms.append(math.exp(scale * score))
            for t, term in zip(seen, terms, strict=True):
                output[s, h] += term / math.fsum(terms) * (content[t] @ w_vc[h])
    return output


@pytest.mark.parametrize("causal", [True, False])
def test_both_ways_are_attention_by_its_definition(causal):
    (q_nope, q_rope, latent, k_rope, weight), w_kc, w_vc = small_layer(3, 5)
    queries_at, keys_at = np.array([9, 30, 31]), np.array([31, 2, 9, 30, 8])
    content = normed(latent, weight, EPS)
    right = by_scalars(q_nope, q_rope, content, k_rope, w_kc, w_vc, 0.2, 50.0, queries_at, keys_at, causal)
    at = queries_at, keys_at
    full = layer.attend_materialized(q_nope, q_rope, content, k_rope, w_kc, w_vc, 0.2, causal, at, theta=50.0)
    entries = layer.cache_entry(latent, k_rope, keys_at, weight, EPS, 50.0)
    queries = layer.absorbed_queries(q_nope, q_rope, w_kc, queries_at, 50.0)
    absorbed = layer.decode_absorbed(queries, entries, w_vc, Small.latent_dim, 0.2, causal, at)
    np.testing.assert_allclose(full, right, rtol=1e-10)
    np.testing.assert_allclose(absorbed, right, rtol=1e-10)
    # Rotated by whoever calls, and not by theta, it is the same.
    rotated = queries[..., Small.latent_dim :], entries[:, Small.latent_dim :]
    given = layer.attend_materialized(q_nope, rotated[0], content, rotated[1], w_kc, w_vc, 0.2, causal, at)
    np.testing.assert_allclose(given, right, rtol=1e-10)


def test_only_distances_count():
    """Everything moved on by a thousand positions: the same output."""
    (q_nope, q_rope, latent, k_rope, weight), w_kc, w_vc = small_layer(2, 5)
    outputs = []
    for start in (0, 1000):
        entries = layer.cache_entry(latent, k_rope, start + np.arange(5), weight, EPS, 1e4)
        queries = layer.absorbed_queries(q_nope, q_rope, w_kc, start + np.arange(3, 5), 1e4)
        outputs.append(layer.decode_absorbed(queries, entries, w_vc, Small.latent_dim, 0.3, causal=True))
    np.testing.assert_allclose(*outputs, rtol=1e-9)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ["small", "DeepSeek-V2-Lite"])
def test_a_ragged_batch_is_its_requests_one_by_one(name, causal):
    """Lengths of 0 and 1, a prefill without a prefix, a chunk behind one, a decode; NaN behind every length."""
    s = MODELS.get(name, Small)
    new_lengths, cached_lengths = [1, 4, 2, 1, 0, 3], [9, 4, 7, 1, 5, 3]
    padded_new, padded_cached = 5, 11
    requests = len(new_lengths)
    w_kc, w_vc = matrices(s.num_heads, s.nope_dim, s.value_dim, s.latent_dim)
    queries = np.full((requests, padded_new, s.num_heads, s.latent_dim + s.rope_dim), np.nan)
    cache = np.full((requests, padded_cached, s.latent_dim + s.rope_dim), np.nan)
    wanted = np.zeros((requests, padded_new, s.num_heads, s.value_dim))
    for b, (new, cached) in enumerate(zip(new_lengths, cached_lengths, strict=True)):
        q_nope, q_rope, latent, k_rope, weight = drawn(s, new, cached, seed=b)
        queries_at, keys_at = layer.default_positions(new, cached)
        cache[b, :cached] = layer.cache_entry(latent, k_rope, keys_at, weight, EPS, 1e4)
        queries[b, :new] = layer.absorbed_queries(q_nope, q_rope, w_kc, queries_at, 1e4)
        content = normed(latent, weight, EPS)
        wanted[b, :new] = layer.attend_materialized(q_nope, q_rope, content, k_rope, w_kc, w_vc, 0.1, causal, theta=1e4)
    got = layer.decode_absorbed_batch(queries, cache, new_lengths, cached_lengths, w_vc, s.latent_dim, 0.1, causal)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
    assert not got[4].any()
    assert not got[0, 1:].any()


def test_nan_within_a_length_is_not_masked():
    """It belongs to what is attended to, so it must show, in its own request alone."""
    s, rng = Small, np.random.default_rng(3)
    entry_dim = s.latent_dim + s.rope_dim
    queries, cache = rng.standard_normal((2, 1, s.num_heads, entry_dim)), rng.standard_normal((2, 4, entry_dim))
    cache[0, 2, 5] = np.nan
    w_vc = rng.standard_normal((s.num_heads, s.latent_dim, s.value_dim))
    got = layer.decode_absorbed_batch(queries, cache, [1, 1], [3, 4], w_vc, s.latent_dim, 0.3)
    assert np.isnan(got[0]).all()
    assert np.isfinite(got[1]).all()


def test_a_new_token_before_the_whole_cache_sees_nothing_and_gives_zero():
    (q_nope, q_rope, latent, k_rope, _), w_kc, w_vc = small_layer(1, 3)
    at = np.array([1]), np.array([2, 3, 4])
    full = layer.attend_materialized(q_nope, q_rope, latent, k_rope, w_kc, w_vc, 1.0, True, at)
    queries = layer.absorbed_queries(q_nope, q_rope, w_kc, at[0], 1e4)
    entries = np.concatenate([latent, k_rope], axis=1)
    absorbed = layer.decode_absorbed(queries, entries, w_vc, Small.latent_dim, 1.0, True, at)
    assert not full.any()
    assert not absorbed.any()


@pytest.mark.parametrize(("new", "cached"), [(0, 3), (2, 0), (0, 0)])
def test_sizes_of_zero(new, cached):
    (q_nope, q_rope, latent, k_rope, weight), w_kc, w_vc = small_layer(new, cached)
    entries = layer.cache_entry(latent, k_rope, np.arange(cached), weight, EPS, 1e4)
    queries = layer.absorbed_queries(q_nope, q_rope, w_kc, np.arange(new), 1e4)
    output = layer.decode_absorbed(queries, entries, w_vc, Small.latent_dim, 1.0)
    full = layer.attend_materialized(q_nope, q_rope, latent, k_rope, w_kc, w_vc, 1.0)
    assert output.shape == full.shape == (new, Small.num_heads, Small.value_dim)
    assert not output.any()
    assert not full.any()


def test_results_keep_the_dtype_of_the_inputs():
    (q_nope, q_rope, latent, k_rope, weight), w_kc, w_vc = small_layer(2, 3)
    narrow = [a.astype(np.float32) for a in (q_nope, q_rope, latent, k_rope, weight, w_kc, w_vc)]
    q_nope, q_rope, latent, k_rope, weight, w_kc, w_vc = narrow
    entries = layer.cache_entry(latent, k_rope, np.arange(3), weight, EPS, 1e4)
    queries = layer.absorbed_queries(q_nope, q_rope, w_kc, np.arange(2), 1e4)
    output = layer.decode_absorbed(queries, entries, w_vc, Small.latent_dim, 0.5)
    batch = layer.decode_absorbed_batch(queries[None], entries[None], [2], [3], w_vc, Small.latent_dim, 0.5)
    full = layer.attend_materialized(q_nope, q_rope, latent, k_rope, w_kc, w_vc, 0.5, theta=1e4)
    assert {a.dtype for a in (entries, queries, output, batch, full)} == {np.dtype("float32")}


def test_huge_scores_do_not_overflow():
    (q_nope, q_rope, latent, k_rope, _), w_kc, w_vc = small_layer(2, 5)
    queries = layer.absorbed_queries(1e4 * q_nope, q_rope, w_kc, np.arange(2), 1e4)
    entries = np.concatenate([latent, k_rope], axis=1)
    output = layer.decode_absorbed(queries, entries, w_vc, Small.latent_dim, 1.0)
    largest = np.argmax(np.einsum("shf,tf->sht", queries, entries), axis=-1)
    np.testing.assert_allclose(output, np.einsum("shc,hcv->shv", latent[largest], w_vc), rtol=1e-10)
