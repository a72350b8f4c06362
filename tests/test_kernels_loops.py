"""The kernels' NumPy twins against the float64 oracles: odd sizes, ragged lengths, adversarial scores, poison."""

import inspect
import itertools

import numpy as np
import pytest

from ledger.account.attention import decode_absorbed_bytes
from ledger.kernels.loops import absorb_heads as absorb
from ledger.kernels.loops import mla_decode as decode
from ledger.reference import mla

LENGTHS = [0, 1, 63, 64, 65, 200]
HEADS = [1, 3, 5, 16, 128]
WIDTHS = [(33, 7), (64, 16), (5, 0), (1, 1)]


def poisoned(requests, heads, latent, rope, lengths, seed=0):
    """Queries, and a cache that is NaN behind each request's length and has a row more than any needs."""
    rng = np.random.default_rng(seed)
    queries = rng.standard_normal((requests, heads, latent + rope), dtype=np.float32)
    cache = np.full((requests, max(lengths) + 1, latent + rope), np.nan, np.float32)
    for request, length in enumerate(lengths):
        cache[request, :length] = rng.standard_normal((length, latent + rope), dtype=np.float32)
    return queries, cache, np.array(lengths, np.int32)


def run(queries, cache, lengths, latent, scale=0.25, kernel=decode.mla_decode, **meta):
    """The twin's results in arrays that held NaN."""
    requests, heads, width = queries.shape
    out = np.full((requests, heads, latent), np.nan, np.float32)
    lse = np.full((requests, heads), np.nan, np.float32)
    kernel(queries, cache, lengths, out, lse, heads, latent, width - latent, scale, **meta)
    return out, lse


def oracle(queries, cache, lengths, latent, scale=0.25):
    return mla.decode_absorbed(queries.astype(np.float64), cache.astype(np.float64), lengths, latent, scale)


def assert_decoded(got, want):
    out, lse = got
    np.testing.assert_allclose(out, want[0], rtol=0, atol=5e-6 * np.abs(want[0]).max(initial=1))
    np.testing.assert_allclose(lse, want[1], rtol=1e-6, atol=5e-6)


def mutant(function, edit):
    """The same function with one edit, (old, new), to its text."""
    text = inspect.getsource(function)
    assert text.count(edit[0]) == 1
    text = text.replace(*edit)
    names = dict(inspect.getmodule(function).__dict__)
    exec(text, names)
    return names[function.__name__]


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize(("latent", "rope"), WIDTHS)
def test_decode_is_the_whole_softmax(heads, latent, rope):
    queries, cache, lengths = poisoned(len(LENGTHS), heads, latent, rope, LENGTHS)
    assert_decoded(run(queries, cache, lengths, latent), oracle(queries, cache, lengths, latent))


def test_decode_at_a_models_widths():
    queries, cache, lengths = poisoned(2, 16, 512, 64, [65, 200])
    got = run(queries, cache, lengths, 512, scale=192**-0.5)
    assert_decoded(got, oracle(queries, cache, lengths, 512, scale=192**-0.5))


def test_an_empty_request_gives_zero_and_minus_infinity():
    queries, cache, lengths = poisoned(2, 3, 8, 2, [0, 0])
    out, lse = run(queries, cache, lengths, 8)
    assert not out.any()
    assert (lse == -np.inf).all()


@pytest.mark.parametrize("lengths", [[0], [1], [65]])
def test_no_heads_and_no_requests_write_nothing(lengths):
    queries, cache, lengths = poisoned(1, 0, 4, 2, list(lengths))
    assert run(queries, cache, lengths, 4)[0].shape == (1, 0, 4)
    assert run(queries[:0], cache[:0], lengths[:0], 4)[1].shape == (0, 0)


def sloping(first, last, tokens=200):
    """One head whose scores run from ``first`` to ``last``, over random values."""
    cache = np.random.default_rng(1).standard_normal((1, tokens, 6), dtype=np.float32)
    cache[0, :, 5] = np.linspace(first, last, tokens)
    queries = np.zeros((1, 1, 6), np.float32)
    queries[0, 0, 5] = 1
    return queries, cache, np.array([tokens])


@pytest.mark.parametrize(("first", "last"), [(800, -800), (-800, 800), (-800, -700), (0, 0)])
def test_scores_that_slope(first, last):
    inputs = sloping(first, last)
    assert_decoded(run(*inputs, 4, scale=1.0), oracle(*inputs, 4, scale=1.0))


@pytest.mark.parametrize(
    "edit",
    [
        ("np.maximum(m_i, b_scores.max(axis=1))", "b_scores.max(axis=1)"),
        ("acc * b_rescale[:, None]", "acc"),
        ("l_i * b_rescale", "l_i"),
        ("acc / l_i[:, None]", "acc"),
        ("m_i + np.log(l_i)", "m_i + np.log2(l_i)"),
    ],
    ids=["maximum of the tile", "acc not rescaled", "sum not rescaled", "not normalised", "lse to base 2"],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_sloping_scores_find_a_wrong_softmax(edit):
    def worst(kernel):
        errors = []
        for inputs in (sloping(800, -800), sloping(-8, 8)):
            got, want = run(*inputs, 4, scale=1.0, kernel=kernel), oracle(*inputs, 4, scale=1.0)
            errors += [np.nan_to_num(np.abs(a - b), nan=np.inf).max() for a, b in zip(got, want, strict=True)]
        return max(errors)

    assert worst(decode.mla_decode) < 1e-4
    assert worst(mutant(decode.mla_decode, edit)) > 1e-2


@pytest.mark.parametrize(
    "edit",
    [
        (
            "b_tile[m_token] = p_cache[i_request, o_tile : min(o_tile + TILE, length)]",
            "b_tile[:] = p_cache[i_request, o_tile : o_tile + TILE]",
        ),
        (
            "np.where(m_token, np.float32(scale) * (b_queries @ b_tile.T), LOWEST)",
            "np.float32(scale) * (b_queries @ b_tile.T)",
        ),
    ],
    ids=["tail loaded", "tail counted"],
)
def test_the_poison_finds_a_missing_mask(edit):
    queries, cache, lengths = poisoned(2, 3, 8, 2, [9, 63])
    got = run(queries, cache, lengths, 8, kernel=mutant(decode.mla_decode, edit))
    want = oracle(queries, cache, lengths, 8)
    assert not all(np.allclose(a[0], b[0], atol=1e-3) for a, b in zip(got, want, strict=True))


def test_blocks_do_not_change_the_result():
    queries, cache, lengths = poisoned(len(LENGTHS), 5, 33, 7, LENGTHS)
    want = oracle(queries, cache, lengths, 33)
    for heads in (1, 2, 32):
        for tile in (1, 7, 8, 64, 256):
            assert_decoded(run(queries, cache, lengths, 33, HEADS=heads, TILE=tile), want)


@pytest.mark.parametrize("cuts", [[0, 200], [0, 1, 200], [0, 64, 128, 200], [0, 7, 7, 199, 200, 200]])
def test_parts_merge_by_their_lse(cuts):
    """A cache attended to in parts, some of them empty, gives what it gives as a whole."""
    queries, cache, lengths = poisoned(1, 3, 33, 7, [200])
    total, mixed = np.full(3, -np.inf), np.zeros((3, 33))
    for start, stop in itertools.pairwise(cuts):
        out, lse = run(queries, cache[:, start:stop], np.array([stop - start]), 33)
        merged = np.logaddexp(total, lse[0])
        mixed = mixed * np.exp(total - merged)[:, None] + out[0] * np.exp(lse[0] - merged)[:, None]
        total = merged
    assert_decoded((mixed[None], total[None]), oracle(queries, cache, lengths, 33))


def test_reversed_strides_are_read_as_they_lie():
    queries, cache, lengths = poisoned(2, 3, 8, 2, [5, 9])
    strided = [np.ascontiguousarray(array.T).T for array in (queries, cache)]
    assert_decoded(run(*strided, lengths, 8), oracle(queries, cache, lengths, 8))


class Counted:
    """An array that counts the bytes read out of it."""

    def __init__(self, array):
        self.array, self.read = array, 0

    def __getitem__(self, where):
        part = self.array[where]
        self.read += part.nbytes
        return part


@pytest.mark.parametrize(("heads", "passes"), [(1, 1), (32, 1), (33, 2), (128, 4)])
def test_one_pass_over_the_cache_serves_a_block_of_heads(heads, passes):
    queries, cache, lengths = poisoned(3, heads, 33, 7, [0, 9, 64])
    counted = [Counted(queries), Counted(cache)]
    out, lse = np.empty((3, heads, 33), np.float32), np.empty((3, heads), np.float32)
    decode.mla_decode(*counted, lengths, out, lse, heads, 33, 7, 0.25)
    once = decode_absorbed_bytes(9 + 64, heads, 33, 7, itemsize=4, requests=3)
    assert counted[1].read == passes * (9 + 64) * 40 * 4
    assert counted[0].read + counted[1].read // passes == once.read
    assert out.nbytes + lse.nbytes == once.written


@pytest.mark.parametrize(("new_tokens", "heads", "nope", "latent"), [
    (1, 1, 1, 1), (9, 3, 65, 130), (8, 5, 64, 64), (17, 2, 7, 3), (1, 16, 128, 512), (0, 2, 3, 4), (2, 2, 0, 3),
    (2, 0, 3, 4), (1, 128, 12, 5),
])  # fmt: skip
def test_heads_absorb_their_own_matrix(new_tokens, heads, nope, latent):
    rng = np.random.default_rng(2)
    q_nope = rng.standard_normal((new_tokens, heads, nope), dtype=np.float32)
    w_kc = rng.standard_normal((heads, nope, latent), dtype=np.float32)
    want = mla.absorb_heads(q_nope.astype(np.float64), w_kc.astype(np.float64))
    for meta in ({}, {"LANES": 3, "BLOCK_S": 2, "BLOCK_N": 5}):
        out = np.full(want.shape, np.nan, np.float32)
        absorb.absorb_heads(q_nope, w_kc, out, new_tokens, heads, nope, latent, **meta)
        np.testing.assert_allclose(out, want, rtol=0, atol=2e-6 * np.abs(want).max(initial=1))
