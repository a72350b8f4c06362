"""The sparse kernels through their entry points against float64 and against torch's own selection, and their traffic.

Everything that a kernel must not read is poison. Selections are compared as sets of scores, since among equal scores
any choice is right; that the first of them are taken is a promise of its own, and tested apart.
"""

import importlib.util
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton is not installed: it is made for Linux")

from kernel_cases import (  # noqa: E402
    BF16,
    DTYPES,
    F16,
    F32,
    HUGE,
    SCALE,
    Batch,
    assert_decoded,
    assert_twin,
    assert_values,
    batch,
    fresh,
    memory,
    strided,
    tensor,
    twin_cache,
    wide,
)

from ledger.account import sparse_kernels as account  # noqa: E402
from ledger.account.kernels import combine_bytes  # noqa: E402
from ledger.kernels import gpu  # noqa: E402
from ledger.kernels.gpu import sparse  # noqa: E402
from ledger.kernels.gpu.tuning import Blocks, product_blocks  # noqa: E402
from ledger.kernels.interpret.watched import OutOfBoundsError, watched  # noqa: E402
from ledger.kernels.loops import index_scores, mla_decode_paged, nsa, select_topk, sparse_mla_decode  # noqa: E402
from ledger.reference import formats, mla  # noqa: E402
from ledger.reference import sparse as oracle  # noqa: E402

pytestmark = pytest.mark.usefixtures("poisoned_memory")

only_interpreted = pytest.mark.skipif(
    not gpu.INTERPRETED, reason="on a GPU no load or store can be seen: the interpreter counts them"
)


@pytest.fixture
def large_blocks(monkeypatch):
    """Long lists in few steps, where the interpreter has no shared memory to run out of."""
    if gpu.INTERPRETED:
        monkeypatch.setattr(sparse, "decode_blocks", lambda *_: Blocks(128, 256, 4, 1))


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks that the sizes of a test are multiples of."""
    monkeypatch.setattr(sparse, "decode_blocks", lambda *_: Blocks(16, 16, 4, 1))


def ints(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=gpu.DEVICE)


def rows_of(lengths, new_tokens):
    """Request, new token, and the tokens that it sees, of each row."""
    for request, length in enumerate(lengths):
        for new in range(new_tokens):
            yield request, new, max(0, length - (new_tokens - 1 - new))


def moved(pages: torch.Tensor, block_table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same pages in another order, and the block table that finds them."""
    order = torch.randperm(len(pages), generator=torch.Generator().manual_seed(1)).to(gpu.DEVICE)
    there = torch.empty_like(pages)
    there[order] = pages
    valid = block_table < len(order)
    table = torch.where(valid, order[torch.where(valid, block_table, 0).long()].int(), block_table)
    assert not torch.equal(table, block_table)
    return there, table


# index_scores


class Indexed(NamedTuple):
    """Arguments of ``index_scores``, and each request's keys in float64."""

    q_codes: torch.Tensor
    weights: torch.Tensor
    cache: gpu.IndexCache
    block_table: torch.Tensor
    lengths: torch.Tensor
    keys: list[np.ndarray]


def random_codes(rng, *shape) -> torch.Tensor:
    """Any finite e4m3 numbers, the largest and the smallest among them."""
    codes = rng.integers(0, 254, shape, dtype=np.uint8)
    return torch.from_numpy(np.where(codes >= 127, codes + 1, codes).astype(np.uint8)).to(gpu.DEVICE)


def indexed(new_tokens, heads, lengths, dim=128, page=64, seed=0) -> Indexed:
    """Random codes and power-of-two scales on pages in any order; all that is not named by a length is poison."""
    rng = np.random.default_rng(seed)
    counts = [-(-length // page) for length in lengths]
    cache = gpu.IndexCache.empty(sum(counts) + 3, page, dim)
    cache.pages.fill_(255)  # NaN as e4m3, and four of them are NaN as float32
    order = rng.permutation(len(cache.pages))
    table = np.full((len(lengths), max(counts) + 5), HUGE, np.int32)
    keys = []
    for request, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        table[request, :count], order = order[:count], order[count:]
        codes, scales = random_codes(rng, length, dim), tensor(2.0 ** rng.integers(-20, 5, length))
        keys.append(wide(codes.view(torch.float8_e4m3fn)) * wide(scales)[:, None])
        for i in range(count):
            part = slice(i * page, min((i + 1) * page, length))
            cache.codes[int(table[request, i]), : part.stop - part.start] = codes[part]
            cache.scales[int(table[request, i]), : part.stop - part.start] = scales[part]
    q_codes = random_codes(rng, len(lengths), new_tokens, heads + 1, dim)[:, :, :heads]
    weights = strided(tensor(rng.standard_normal((len(lengths), new_tokens, heads))))
    return Indexed(q_codes, weights, cache, torch.from_numpy(table).to(gpu.DEVICE), ints(lengths), keys)


def assert_index_scores(b: Indexed, got: torch.Tensor) -> None:
    """Within a rounding of the sum of all magnitudes, which is what an order of summing can change; the sums of a GPU's
    matrix instructions are cut off."""
    assert got.dtype == F32
    slack = 3e-6 if gpu.INTERPRETED else 3e-5
    queries = wide(b.q_codes.view(torch.float8_e4m3fn))
    for request, new, seen in rows_of(b.lengths.tolist(), got.shape[1]):
        arguments = queries[request, new, None], b.keys[request][:seen], wide(b.weights)[request, new, None]
        want = oracle.index_scores(*arguments)[0]
        room = oracle.index_scores(*map(np.abs, arguments))[0]
        row = wide(got)[request, new]
        assert (np.abs(row[:seen] - want) <= slack * room).all()
        assert np.isneginf(row[seen:]).all()


@pytest.mark.parametrize(("new_tokens", "heads", "lengths", "dim", "page"), [
    (1, 64, [0, 1, 63, 200], 128, 64), (1, 32, [64, 65], 128, 53), (2, 64, [1, 140], 128, 61), (4, 3, [2, 33], 128, 2),
    (3, 1, [1, 70], 36, 64), (1, 63, [129], 4, 1), (2, 100, [66], 64, 7),
])  # fmt: skip
def test_index_scores_are_weighted_and_rectified(new_tokens, heads, lengths, dim, page):
    b = indexed(new_tokens, heads, lengths, dim, page)
    got = gpu.index_scores(*b[:5])
    assert got.shape == (len(lengths), new_tokens, max(lengths))
    assert_index_scores(b, got)


def test_index_scores_of_another_width_end_in_minus_infinity():
    b = indexed(2, 5, [1, 70])
    got = gpu.index_scores(*b[:5], longest=75)
    assert got.shape == (2, 2, 75)
    assert_index_scores(b, got)
    assert gpu.index_scores(*b[:4], torch.zeros_like(b.lengths)).shape == (2, 2, 0)
    assert gpu.index_scores(b.q_codes[:, :0], b.weights[:, :0], *b[2:5]).shape == (2, 0, 70)
    assert (gpu.index_scores(b.q_codes[:, :, :0], b.weights[:, :, :0], *b[2:5])[1, 1] == 0).all()


def test_index_scores_take_any_strides():
    b = indexed(2, 5, [10, 70], page=16)
    table = b.block_table.t().contiguous().t()
    lying = (
        b.q_codes.transpose(0, 3).contiguous().transpose(0, 3),
        b.weights.transpose(0, 2).contiguous().transpose(0, 2),
    )
    assert torch.equal(gpu.index_scores(*lying, b.cache, table.long(), b.lengths.long()), gpu.index_scores(*b[:5]))


def test_permuted_index_pages_give_the_same_bits():
    b = indexed(2, 5, [10, 70], page=8)
    pages, table = moved(b.cache.pages, b.block_table)
    got = gpu.index_scores(b.q_codes, b.weights, gpu.IndexCache(pages), table, b.lengths)
    assert torch.equal(got, gpu.index_scores(*b[:5]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_index_keys_are_quantized_by_a_power_of_two(dtype):
    x = np.random.default_rng(2).standard_normal((40, 128)) * 2.0 ** np.arange(-20, 20)[:, None]
    x[0], x[1, 1:], x[2, 5], x[3] = 0, -0.0, -448, 0
    x[3, 7] = 448
    x = tensor(x.clip(-60000, 60000), dtype)
    codes, scales = gpu.quantize_index(x)
    exact = 2.0 ** np.ceil(np.log2(np.maximum(np.abs(wide(x)).max(1), 1e-4) / 448))
    np.testing.assert_array_equal(wide(scales), exact)
    assert scales[3] == 1
    np.testing.assert_array_equal(codes.cpu().numpy(), formats.quantize_e4m3(wide(x) / exact[:, None]))
    assert (codes[1, 2:] == 0x80).all()
    (higher,) = gpu.quantize_index(tensor([[448.0001, 1]]))[1].tolist()
    assert higher == 2


def test_an_index_entry_has_132_bytes_and_is_written_where_its_slot_says():
    cache = gpu.IndexCache.empty(3, 5)
    assert cache.pages.shape == (3, 5, 132)
    assert cache.pages.element_size() == 1
    cache.pages.fill_(255)
    keys = tensor(np.random.default_rng(3).standard_normal((4, 128)), BF16)
    cache.write(keys, torch.tensor([14, -1, 0, 7], device=gpu.DEVICE))
    codes, scales = gpu.quantize_index(keys)
    flat = cache.pages.cpu().flatten(1).numpy()
    for token, (page, place) in {0: (2, 4), 2: (0, 0), 3: (1, 2)}.items():
        np.testing.assert_array_equal(flat[page, 128 * place : 128 * (place + 1)], codes[token].cpu().numpy())
        behind = flat[page, 640 + 4 * place : 644 + 4 * place].copy().view(np.float32)
        assert behind.item() == scales[token].item()
    assert (flat != 255).sum() <= 3 * 132
    assert cache.scales.isnan().sum() == 12


# select_topk


def chosen(scores: torch.Tensor, lengths: torch.Tensor, topk: int, **options) -> torch.Tensor:
    """The selection, its form checked: distinct indices that the row sees, −1 behind them."""
    got = gpu.select_topk(scores, lengths, topk, **options)
    requests, new_tokens, _ = scores.shape
    assert got.dtype == torch.int32
    assert got.shape == (requests, new_tokens, topk)
    for request, new, seen in rows_of(lengths.tolist(), new_tokens):
        count, row = min(seen, topk), got[request, new].cpu().numpy()
        assert (row[count:] == -1).all()
        assert len(set(row[:count].tolist())) == count
        assert ((row[:count] >= 0) & (row[:count] < seen)).all()
    return got


def assert_selected(scores: torch.Tensor, lengths: torch.Tensor, topk: int, **options) -> None:
    """As a set of scores what torch's own selection gives, and of equal ones the first."""
    got = chosen(scores, lengths, topk, **options)
    for request, new, seen in rows_of(lengths.tolist(), scores.shape[1]):
        count, row = min(seen, topk), scores[request, new, :seen].cpu()
        picks = got[request, new, :count].cpu().long()
        assert torch.equal(row[picks].sort().values, row.topk(count).values.sort().values)
        assert picks.tolist() == row.sort(descending=True, stable=True).indices[:count].sort().values.tolist()


def hard(kind: str, rng, *shape) -> np.ndarray:
    """Scores on which a selection can go wrong."""
    x = rng.standard_normal(shape).astype(np.float32)
    if kind == "ties":
        return np.round(x)
    if kind == "flat":
        return np.full_like(x, -2.5)
    if kind == "zeros":
        return np.where(x > 1, x, np.where(rng.random(shape) < 0.5, np.float32(0.0), np.float32(-0.0)))
    if kind == "rectified":
        return np.maximum(x, 0)
    if kind == "close":  # all in one bucket of the first three passes
        return (np.float32(1).view(np.int32) + rng.integers(0, 256, shape, dtype=np.int32)).view(np.float32)
    if kind == "infinite":
        return np.where(x > 1, np.inf, np.where(x < -0.5, -np.inf, x)).astype(np.float32)
    if kind == "any":
        bits = rng.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)
        return np.where(np.isnan(bits), x, bits)
    return x


KINDS = ["normal", "ties", "flat", "zeros", "rectified", "close", "infinite", "any"]


@pytest.mark.parametrize(("new_tokens", "lengths", "width", "topk", "kind"), [
    *((2, [150, 50], 151, 48, kind) for kind in KINDS),
    (1, [0, 1, 63, 64], 64, 64, "ties"), (1, [400], 400, 399, "ties"), (1, [90], 128, 1, "ties"),
])  # fmt: skip
def test_the_largest_scores_are_selected(monkeypatch, new_tokens, lengths, width, topk, kind):
    monkeypatch.setattr(sparse, "select_blocks", lambda: dict(BLOCK_T=64, num_warps=1))
    scores = tensor(hard(kind, np.random.default_rng(4), len(lengths), new_tokens, width))
    for request, new, seen in rows_of(lengths, new_tokens):
        scores[request, new, seen:] = float("nan")
    assert_selected(strided(scores), ints(lengths), topk, num_parts=1)


@pytest.mark.parametrize("length", [2046, 2047, 2048, 2049, 5000])
def test_2048_of_about_as_many(length):
    scores = tensor(hard("ties", np.random.default_rng(5), 1, 2, length + 3))
    scores[..., length:] = float("nan")
    assert_selected(scores, ints([length]), 2048)


def test_2048_of_128k():
    scores = tensor(hard("rectified", np.random.default_rng(6), 1, 1, 131_072))
    assert_selected(scores, ints([131_072]), 2048, num_parts=1)


@pytest.mark.parametrize("num_parts", [2, 3, 8])
def test_parts_do_not_change_the_selection(monkeypatch, num_parts):
    monkeypatch.setattr(sparse, "select_blocks", lambda: dict(BLOCK_T=64, num_warps=1))
    scores = tensor(hard("ties", np.random.default_rng(7), 1, 1, 330))
    assert_selected(scores, ints([330]), 65, num_parts=num_parts)


def test_a_selection_of_nothing():
    assert gpu.select_topk(torch.zeros(0, 2, 5, device=gpu.DEVICE), ints([]), 3).shape == (0, 2, 3)
    assert (gpu.select_topk(torch.zeros(1, 2, 0, device=gpu.DEVICE), ints([0]), 3) == -1).all()


# sparse_mla_decode


def lists(lengths, new_tokens, topk, rng, share=0.7) -> torch.Tensor:
    """Distinct tokens of each row in any order, and between them all kinds of indices that name none."""
    got = np.full((len(lengths), new_tokens, topk), -1, np.int32)
    for request, new, seen in rows_of(lengths, new_tokens):
        count = min(seen, int(share * topk))
        picks = rng.permutation(seen)[:count]
        none = rng.choice([-1, -7, -(2**31), seen, lengths[request], lengths[request] + 70, HUGE], topk - count)
        got[request, new] = rng.permutation(np.concatenate([picks, none]))
    return torch.from_numpy(got).to(gpu.DEVICE)


def decode(b: Batch, indices: torch.Tensor, scale=SCALE, **options) -> gpu.Decoded:
    return gpu.sparse_mla_decode(b.queries, b.cache, b.block_table, b.lengths, indices, scale, **options)


def decoded(b: Batch, indices: torch.Tensor, scale=SCALE) -> tuple[np.ndarray, np.ndarray]:
    """What it must be, a row at a time."""
    queries, latent = wide(b.queries), b.cache.latent_dim
    out, lse = np.empty((*queries.shape[:3], latent)), np.empty(queries.shape[:3])
    for request, new, seen in rows_of(map(len, b.entries), queries.shape[1]):
        at = request, new
        picks = indices[at].tolist()
        out[at], lse[at] = oracle.sparse_decode(queries[at], b.entries[request][:seen], picks, latent, scale)
    return out, lse


#: new tokens, heads, lengths, topk
LISTED = [
    (1, 16, [0, 1, 63, 200], 64),
    (2, 3, [140, 20], 33),
    (1, 63, [140], 70),
    (4, 1, [2, 65], 16),
    (1, 128, [129], 17),
]


@pytest.mark.parametrize(("new_tokens", "heads", "lengths", "topk", "dtype", "fp8"), [
    *((*case, BF16, fp8) for case in LISTED for fp8 in (False, True)),
    *((*case, F32, False) for case in LISTED[:2]), (*LISTED[1], F32, True), (*LISTED[3], F16, False),
])  # fmt: skip
def test_decode_attends_to_the_listed_tokens(new_tokens, heads, lengths, topk, dtype, fp8):
    b = batch(new_tokens, heads, lengths, 132 if fp8 else 40, 24, dtype=dtype, fp8=fp8)
    indices = lists(lengths, new_tokens, topk, np.random.default_rng(8))
    assert_decoded(decode(b, indices), decoded(b, indices), dtype)


@pytest.mark.parametrize("fp8", [False, True])
def test_decode_at_a_models_widths(fp8):
    b = batch(2, 16, [90, 2], 512, 64, dtype=BF16, fp8=fp8)
    assert b.cache.pages.shape[2] * b.cache.pages.element_size() == (656 if fp8 else 1152)
    indices = lists([90, 2], 2, 48, np.random.default_rng(9))
    assert_decoded(decode(b, indices, 192**-0.5), decoded(b, indices, 192**-0.5), BF16)


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("page", [1, 2, 53, 61, 64])
def test_pages_of_any_size(page, fp8):
    b = batch(1, 3, [0, 63, 125], 128, 16, page=page, fp8=fp8)
    indices = lists([0, 63, 125], 1, 40, np.random.default_rng(10))
    assert_decoded(decode(b, indices), decoded(b, indices), F32)


@pytest.mark.parametrize("fp8", [False, True])
def test_permuted_pages_give_the_same_bits(fp8):
    b = batch(2, 3, [5, 100], 128, 16, page=8, fp8=fp8)
    indices = lists([5, 100], 2, 40, np.random.default_rng(11))
    pages, table = moved(b.cache.pages, b.block_table)
    after = decode(b._replace(cache=gpu.PagedCache(pages, 128, 16), block_table=table), indices)
    for one, other in zip(decode(b, indices), after, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(("length", "topk", "fp8"), [(2046, 2048, False), (300, 300, False), (130, 1000, True)])
def test_all_tokens_are_dense_attention(large_blocks, length, topk, fp8):
    b = batch(1, 3, [length, length - 1], 128, 16, fp8=fp8)
    scores = tensor(np.random.default_rng(12).standard_normal((2, 1, length)))
    indices = gpu.select_topk(scores, b.lengths, topk)
    got = decode(b, indices)
    assert_decoded(got, decoded(b, indices), F32)
    dense = gpu.mla_decode(b.queries, b.cache, b.block_table, b.lengths, SCALE)
    assert_decoded(got, tuple(map(wide, dense)), F32)


def test_slots_go_through_a_block_table_of_all_pages():
    lengths, page = [40, 75], 8
    b = batch(1, 3, lengths, 16, 8, page=page)
    indices = lists(lengths, 1, 32, np.random.default_rng(13)).long()
    seen = (indices >= 0) & (indices < b.lengths[:, None, None])
    within = torch.where(seen, indices, 0)
    slots = b.block_table.long().gather(1, within[:, 0] // page)[:, None] * page + within % page
    slots = torch.where(seen, slots, -1).int()
    everything = torch.arange(len(b.cache.pages), dtype=torch.int32, device=gpu.DEVICE).expand(2, -1)
    capacity = torch.full_like(b.lengths, len(b.cache.pages) * page)
    got = gpu.sparse_mla_decode(b.queries, b.cache, everything, capacity, slots, SCALE)
    for one, other in zip(decode(b, indices), got, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("num_splits", [1, 3, 7])
def test_splits_do_not_change_the_result(small_blocks, num_splits):
    b = batch(2, 5, [0, 33, 200])
    indices = lists([0, 33, 200], 2, 100, np.random.default_rng(14))
    assert_decoded(decode(b, indices, num_splits=num_splits), decoded(b, indices), F32)


@pytest.mark.parametrize("none", [-1, 20, HUGE, -(2**31)])
def test_a_list_that_names_nothing_gives_zero_and_minus_infinity(none):
    b = batch(2, 3, [20, 20], 16, 8)
    indices = torch.full((2, 2, 40), none, dtype=torch.int32, device=gpu.DEVICE)
    out, lse = decode(b, indices)
    assert (out == 0).all()
    assert (lse == -torch.inf).all()
    assert (decode(b, indices[..., :0]).lse == -torch.inf).all()


def test_a_row_does_not_see_the_new_tokens_behind_it():
    b = batch(3, 2, [20], 16, 8)
    indices = ints([[[17, 18, 19, 3]] * 3])
    got = decode(b, indices)
    assert_decoded(got, decoded(b, indices), F32)
    alone = b._replace(queries=b.queries[:, :1], lengths=ints([18]))
    assert torch.equal(decode(alone, ints([[[17, -1, -1, 3]]])).out[:, 0], got.out[:, 0])


@pytest.mark.parametrize(("first", "last"), [(800, -800), (-800, 800), (-800, -700)])
def test_scores_that_slope(small_blocks, first, last):
    b = batch(1, 1, [200], 16, 16)
    b.queries.zero_()
    b.queries[..., 31] = 1
    for i, score in enumerate(np.linspace(first, last, 200, dtype=np.float32)):
        b.cache.pages[b.block_table[0, i // 64].item(), i % 64, 31] = float(score)
        b.entries[0][i, 31] = score
    indices = ints([[list(range(0, 200, 2))]])
    for num_splits in (1, 3):
        assert_decoded(decode(b, indices, 1.0, num_splits=num_splits), decoded(b, indices, 1.0), F32)


def test_tables_lists_and_queries_may_lie_anyhow():
    b = batch(2, 3, [5, 90, 33], 16, 8, page=16)
    indices = lists([5, 90, 33], 2, 20, np.random.default_rng(15))
    room = torch.full((3, 2, 50), 4, dtype=torch.int64, device=gpu.DEVICE)
    room[..., 5:25] = indices
    lying = b._replace(
        block_table=b.block_table.t().contiguous().t(),
        lengths=b.lengths.long(),
        queries=b.queries.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
    )
    for one, other in zip(decode(b, indices), decode(lying, room[..., 5:25], longest=90), strict=True):
        assert torch.equal(one, other)


def test_nothing_to_compute():
    b = batch(1, 2, [3], 16, 8)
    none = b._replace(queries=b.queries[:0], block_table=b.block_table[:0], lengths=b.lengths[:0])
    indices = ints([[[0, 1]]])
    assert [tuple(x.shape) for x in decode(none, indices[:0])] == [(0, 1, 2, 16), (0, 1, 2)]
    assert decode(b._replace(queries=b.queries[:, :, :0]), indices).out.shape == (1, 1, 0, 16)


def test_index_select_and_decode_are_the_whole_path():
    """From queries and keys of the indexer to mixed latents, on one block table for both caches."""
    lengths, page, topk, new_tokens = [3, 150], 16, 24, 2
    b, i = batch(new_tokens, 5, lengths, 128, 16, page=page, fp8=True), indexed(new_tokens, 8, lengths, page=page)
    scores = gpu.index_scores(*i[:5])
    indices = chosen(scores, i.lengths, topk)
    queries = wide(i.q_codes.view(torch.float8_e4m3fn))
    for request, new, seen in rows_of(lengths, new_tokens):
        at = request, new
        own = oracle.index_scores(queries[at][None], i.keys[request][:seen], wide(i.weights)[at][None])[0]
        picks, want = [p for p in indices[at].tolist() if p >= 0], oracle.select_topk(own, topk)
        np.testing.assert_allclose(
            np.sort(own[picks]), np.sort(own[want]), rtol=1e-5, atol=1e-5 * np.abs(own).max(initial=0)
        )
    assert_decoded(decode(b, indices), decoded(b, indices), F32)


# NSA


class Grouped(NamedTuple):
    """Arguments of ``nsa_attend``."""

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    lengths: torch.Tensor


def grouped(new_tokens, heads, groups, lengths, dim=24, value=20, *, dtype=F32, seed=16) -> Grouped:
    """Random; NaN behind every length."""
    rng = np.random.default_rng(seed)
    queries = strided(tensor(rng.standard_normal((len(lengths), new_tokens, heads, dim)), dtype))
    made = []
    for width in (dim, value):
        x = strided(tensor(rng.standard_normal((len(lengths), max(lengths) + 3, groups, width)), dtype))
        for request, length in enumerate(lengths):
            x[request, length:] = float("nan")
        made.append(x)
    return Grouped(queries, *made, ints(lengths))


def attended(b: Grouped, tokens_of) -> tuple[np.ndarray, np.ndarray]:
    """What a branch must give over the tokens that ``tokens_of`` lists for a request, a new token and a group."""
    requests, new_tokens, heads, _ = b.queries.shape
    groups = b.keys.shape[2]
    out, lse = np.empty((requests, new_tokens, heads, b.values.shape[3])), np.empty((requests, new_tokens, heads))
    queries, keys, values = map(wide, b[:3])
    for request in range(requests):
        for new in range(new_tokens):
            for group in range(groups):
                at = request, new, slice(group * heads // groups, (group + 1) * heads // groups)
                own = keys[request, :, group], values[request, :, group]
                out[at], lse[at] = oracle.attend(queries[at], *own, tokens_of(request, new, group), SCALE)
    return out, lse


def compressed(b: Grouped, block=32, stride=16) -> Grouped:
    """The compressed branch by the kernel."""
    keys, values = (gpu.nsa_compress(x, b.lengths, block=block, stride=stride) for x in (b.keys, b.values))
    return b._replace(keys=keys, values=values)


def compressed_seen(seen: int, block: int, stride: int) -> int:
    return len(range(0, seen - block + 1, stride))


@pytest.mark.parametrize(("block", "stride", "dtype"), [
    (32, 16, F32), (32, 16, F16), (32, 16, BF16), (5, 2, F32), (3, 3, BF16), (1, 1, F32), (2, 5, F32),
])  # fmt: skip
def test_full_blocks_are_averaged(block, stride, dtype):
    lengths = [0, 31, 48, 47] if block == 32 else [0, 31]
    b = grouped(1, 2, 2, lengths, dtype=dtype)
    got = gpu.nsa_compress(b.keys, b.lengths, block=block, stride=stride)
    want = np.zeros(got.shape)
    assert got.shape == (len(lengths), compressed_seen(max(lengths) + 3, block, stride), 2, 24)
    for request, length in enumerate(lengths):
        means = oracle.compress_blocks(wide(b.keys)[request, :length], block, stride)
        assert len(means) == compressed_seen(length, block, stride)
        want[request, : len(means)] = means
    assert_values(got, want, dtype)


#: new tokens, heads, groups, lengths, dtype
GROUPS = [
    *((1, 6, 2, [0, 300], dtype) for dtype in DTYPES),
    (2, 16, 1, [1, 140], F32),
    (3, 3, 3, [65], F32),
]


@pytest.mark.parametrize(("new_tokens", "heads", "groups", "lengths", "dtype"), GROUPS)
def test_every_branch_attends_to_its_tokens(new_tokens, heads, groups, lengths, dtype):
    b = grouped(new_tokens, heads, groups, lengths, dtype=dtype)
    seen = {(request, new): seen for request, new, seen in rows_of(lengths, new_tokens)}

    coarse = compressed(b)
    want = attended(coarse, lambda r, s, _: list(range(compressed_seen(seen[r, s], 32, 16))))
    assert_decoded(gpu.nsa_attend(*coarse, SCALE, compressed=(32, 16)), want, dtype)

    want = attended(b, lambda r, s, _: list(range(max(0, seen[r, s] - 50), seen[r, s])))
    assert_decoded(gpu.nsa_attend(*b, SCALE, window=50), want, dtype)

    rng = np.random.default_rng(17)
    blocks = rng.permuted(np.broadcast_to(np.arange(-1, 6), (len(lengths), new_tokens, groups, 7)), axis=-1)[..., :5]
    blocks = np.where((blocks == 5) & (rng.random(blocks.shape) < 0.5), HUGE, blocks)

    def listed(r, s, g):
        own = (range(64 * j, min(64 * j + 64, seen[r, s])) for j in blocks[r, s, g].tolist() if j >= 0)
        return [token for tokens in own for token in tokens]

    assert_decoded(gpu.nsa_attend(*b, SCALE, blocks=tensor(blocks, torch.int32)), attended(b, listed), dtype)


@pytest.mark.parametrize("selection_block", [1, 12, 64, 100])
@pytest.mark.parametrize("num_splits", [1, 2, 5])
def test_selected_blocks_of_any_size_in_any_splits(selection_block, num_splits):
    b = grouped(1, 3, 1, [210])
    blocks = [2, 0, -1, 1]
    tokens = [t for j in blocks if j >= 0 for t in range(j * selection_block, min(210, (j + 1) * selection_block))]
    got = gpu.nsa_attend(*b, SCALE, blocks=ints([[[blocks]]]), selection_block=selection_block, num_splits=num_splits)
    assert_decoded(got, attended(b, lambda *_: tokens), F32)


@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize("window", [1, 64, 65, 1000])
def test_windows_of_any_size(window, num_splits):
    b = grouped(2, 2, 1, [200, 1])
    seen = {(request, new): seen for request, new, seen in rows_of([200, 1], 2)}
    got = gpu.nsa_attend(*b, SCALE, window=window, num_splits=num_splits)
    assert_decoded(got, attended(b, lambda r, s, _: list(range(max(0, seen[r, s] - window), seen[r, s]))), F32)


@pytest.mark.parametrize(("first", "last"), [(800, -800), (-800, 800)])
def test_branches_of_scores_that_slope(first, last):
    b = grouped(1, 1, 1, [300], dim=2)
    b.queries.copy_(torch.tensor([4.0, 0.0]))
    b.keys[0, :300, 0, 0] = torch.linspace(first, last, 300)
    assert_decoded(gpu.nsa_attend(*b, SCALE, window=300), attended(b, lambda *_: list(range(300))), F32)
    blocks = ints([[[[0, 1, 2, 3, 4]]]])
    assert_decoded(gpu.nsa_attend(*b, SCALE, blocks=blocks), attended(b, lambda *_: list(range(300))), F32)


def selection(b: Grouped, request: int, new: int, group: int, seen: int, block=32, stride=16, selection_block=64):
    """One row's and group's scores of its visible blocks, in float64."""
    heads = b.queries.shape[2] // b.keys.shape[2]
    queries = wide(b.queries)[request, new, group * heads : (group + 1) * heads]
    keys = oracle.compress_blocks(wide(b.keys)[request, :seen, group], block, stride)
    scores = SCALE * queries @ keys.T
    probs = torch.from_numpy(scores).softmax(-1).sum(0).numpy() if len(keys) else np.zeros(0)
    return oracle.selection_scores(probs, seen, block, stride, selection_block)


@pytest.mark.parametrize(("new_tokens", "heads", "groups", "lengths", "dtype", "count", "forced", "sizes"), [
    *((*case, 4, (1, 2), (32, 16, 64)) for case in GROUPS),
    (2, 4, 2, [20, 60], F32, 2, (0, 0), (4, 4, 8)), (1, 6, 1, [70], F32, 5, (2, 1), (6, 2, 4)),
])  # fmt: skip
def test_the_blocks_that_weigh_most_are_selected(new_tokens, heads, groups, lengths, dtype, count, forced, sizes):
    initial, local = forced
    block, stride, selection_block = sizes
    b = grouped(new_tokens, heads, groups, lengths, dtype=dtype)
    coarse = compressed(b, block, stride)
    _, lse = gpu.nsa_attend(*coarse, SCALE, compressed=(block, stride))
    sizes = dict(block=block, stride=stride, selection_block=selection_block)
    got = gpu.nsa_select(
        coarse.queries, coarse.keys, lse, b.lengths, SCALE, count=count, initial=initial, local=local, **sizes
    )
    assert got.dtype == torch.int32
    assert got.shape == (len(lengths), new_tokens, groups, count)
    for request, new, seen in rows_of(lengths, new_tokens):
        for group in range(groups):
            scores = selection(b, request, new, group, seen, **sizes)
            want = oracle.pick_blocks(scores, count, initial, local)
            row = got[request, new, group].tolist()
            assert row[len(want) :] == [-1] * (count - len(want))
            row, forced = row[: len(want)], min(len(scores), initial + local, len(want))
            assert len(set(row)) == len(want)
            assert sorted(row[:forced]) == sorted(want[:forced])
            # compressed keys are rounded to the dtype, so scores are equal up to that
            slack = 1e-5 if dtype == F32 else 0.05
            np.testing.assert_allclose(scores[row[forced:]], scores[want[forced:]], rtol=slack, atol=1e-7)


def test_of_equal_blocks_the_lower_are_selected():
    b = grouped(1, 4, 2, [64 * 10 + 16])
    b.queries.zero_()
    coarse = compressed(b)
    _, lse = gpu.nsa_attend(*coarse, SCALE, compressed=(32, 16))
    got = gpu.nsa_select(coarse.queries, coarse.keys, lse, b.lengths, SCALE, count=6)
    # block 0 and the last two are forced; of the others, which weigh the same, the first three
    assert got.tolist() == [[[[0, 9, 10, 1, 2, 3]] * 2]]


def test_positions_before_the_first_compressed_key():
    b = grouped(2, 2, 1, [31, 32], dim=8)
    coarse = compressed(b)
    out, lse = gpu.nsa_attend(*coarse, SCALE, compressed=(32, 16))
    assert torch.isneginf(lse[..., 0]).tolist() == [[True, True], [True, False]]
    assert (out[0] == 0).all()
    got = gpu.nsa_select(coarse.queries, coarse.keys, lse, b.lengths, SCALE, count=3)
    assert (got == ints([0, -1, -1])).all()
    # with blocks of 8 there are four, and none has a score
    got = gpu.nsa_select(
        coarse.queries, coarse.keys, lse, b.lengths, SCALE, count=4, local=1, block=32, stride=8, selection_block=8
    )
    assert got[0].tolist() == [[[0, 3, 1, 2]]] * 2


def test_all_blocks_are_dense_attention():
    b = grouped(1, 8, 2, [500], dim=64, value=32)
    every = torch.arange(8, dtype=torch.int32, device=gpu.DEVICE).expand(1, 1, 2, 8)
    queries, keys, values = (torch.from_numpy(wide(x)).transpose(1, 2) for x in b[:3])
    want = torch.nn.functional.scaled_dot_product_attention(
        queries, keys[:, :, :500], values[:, :, :500], scale=SCALE, enable_gqa=True
    ).transpose(1, 2)
    for way in ({"blocks": every}, {"window": 500}):
        assert_values(gpu.nsa_attend(*b, SCALE, **way).out, want.numpy(), F32)


def test_nsa_at_its_own_widths():
    b = grouped(1, 32, 2, [200], dim=192, value=128, dtype=BF16)
    coarse = compressed(b)
    _, lse = gpu.nsa_attend(*coarse, SCALE, compressed=(32, 16))
    blocks = gpu.nsa_select(coarse.queries, coarse.keys, lse, b.lengths, SCALE, count=16)
    assert (blocks.sort(descending=True).values == ints([3, 2, 1, 0] + 12 * [-1])).all()
    want = attended(b, lambda *_: list(range(200)))
    assert_decoded(gpu.nsa_attend(*b, SCALE, blocks=blocks), want, BF16)


def test_no_rows_and_no_tokens():
    b = grouped(1, 4, 2, [5])
    none = Grouped(b.queries[:0], b.keys[:0], b.values[:0], b.lengths[:0])
    assert gpu.nsa_attend(*none, SCALE, window=3).out.shape == (0, 1, 4, 20)
    assert gpu.nsa_compress(b.keys, b.lengths).shape == (1, 0, 2, 24)
    coarse = compressed(b)
    out, lse = gpu.nsa_attend(*coarse, SCALE, compressed=(32, 16))
    assert (out == 0).all()
    blocks = gpu.nsa_select(coarse.queries, coarse.keys, lse, b.lengths, SCALE)
    assert (blocks == ints([0] + 15 * [-1])).all()
    assert (gpu.nsa_attend(*b, SCALE, blocks=blocks[..., :0]).lse == -torch.inf).all()


# What does not fit is refused

ZEROS = dict(dtype=F32, device=gpu.DEVICE)


@pytest.mark.parametrize(("change", "message"), [
    ({"q_codes": (2, 1, 3)}, r"q_codes must be a tensor \(requests, new_tokens, index_heads, index_dim\)"),
    ({"q_codes": (2, 1, 3, 12)}, r"q_codes are 12 torch.float32 a head; the cache's keys are 8 codes in uint8"),
    ({"weights": (2, 1, 4)}, r"weights must be \(requests, new_tokens, index_heads\) = \(2, 1, 3\)"),
    ({"block_table": (3, 2)}, r"block_table must be \(requests, entries\) = \(2, None\)"),
    ({"lengths": (3,)}, r"lengths must be \(requests\) = \(2,\)"),
    ({"lengths": [1, 9]}, "lengths lie in 1 … 9; the block table has room for 8 tokens"),
    ({"longest": 9}, "lengths lie in 0 … 9; the block table has room for 8"),
    ({"lengths": [-1, 2]}, "lengths lie in -1 … 2;"),
])  # fmt: skip
def test_index_scores_refuse_what_does_not_fit(change, message):
    arguments = {
        "q_codes": torch.zeros(2, 1, 3, 8, dtype=torch.uint8, device=gpu.DEVICE),
        "weights": torch.zeros(2, 1, 3, **ZEROS),
        "cache": gpu.IndexCache.empty(2, 4, 8),
        "block_table": torch.zeros(2, 2, dtype=torch.int32, device=gpu.DEVICE),
        "lengths": ints([1, 8]),
    }
    refused(gpu.index_scores, arguments, change, message)


def refused(entry, arguments, change, message):
    """A shape in ``change`` is a tensor of zeros, a list one of ints."""
    made = {tuple: lambda shape: torch.zeros(shape, **ZEROS), list: ints}
    change = {name: made.get(type(x), lambda x: x)(x) for name, x in change.items()}
    with pytest.raises(ValueError, match=message):
        entry(**arguments | change)


@pytest.mark.parametrize(("change", "message"), [
    ({"scores": (2, 5)}, r"scores must be a tensor \(requests, new_tokens, width\)"),
    ({"scores": torch.zeros(2, 1, 5, dtype=BF16, device=gpu.DEVICE)}, "scores are torch.bfloat16;"),
    ({"lengths": (3,)}, r"lengths must be \(requests\) = \(2,\)"),
    ({"topk": 0}, "topk is 0; it must be at least 1"),
    ({"num_parts": 0}, "num_parts is 0; it must lie in 1 … 8"),
    ({"num_parts": 9}, "num_parts is 9; it must lie in 1 … 8"),
])  # fmt: skip
def test_select_topk_refuses_what_does_not_fit(change, message):
    arguments = {"scores": torch.zeros(2, 1, 5, **ZEROS), "lengths": ints([5, 5]), "topk": 2}
    refused(gpu.select_topk, arguments, change, message)


@pytest.mark.parametrize(("change", "message"), [
    ({"queries": (2, 3, 24)}, r"queries must be a tensor \(requests, new_tokens, num_heads, latent_dim \+ rope_dim\)"),
    ({"queries": (2, 1, 3, 25)}, r"queries are 25 wide; the cache's entries are 16 \+ 8"),
    ({"queries": torch.zeros(2, 1, 3, 24, dtype=torch.float64, device=gpu.DEVICE)}, "got torch.float64"),
    ({"indices": (2, 2, 5)}, r"indices must be \(requests, new_tokens, topk\) = \(2, 1, None\)"),
    ({"block_table": (1, 4)}, r"block_table must be \(requests, entries\) = \(2, None\)"),
    ({"lengths": [1, 33]}, "lengths lie in 1 … 33; the block table has room for 32 tokens"),
    ({"num_splits": 0}, "num_splits is 0; it must be at least 1"),
])  # fmt: skip
def test_sparse_decode_refuses_what_does_not_fit(change, message):
    arguments = {
        "queries": torch.zeros(2, 1, 3, 24, **ZEROS),
        "cache": gpu.PagedCache.empty(2, 8, 16, 8, dtype=F32),
        "block_table": torch.zeros(2, 4, dtype=torch.int32, device=gpu.DEVICE),
        "lengths": ints([1, 8]),
        "indices": ints([[[0]], [[7]]]),
        "scale": 1.0,
    }
    refused(gpu.sparse_mla_decode, arguments, change, message)


@pytest.mark.parametrize(("change", "message"), [
    ({"keys": (2, 9, 2, 5)}, r"keys must be \(requests, tokens, groups, dim\) = \(2, None, None, 4\)"),
    ({"keys": (2, 9, 4, 4)}, "6 heads cannot share 4 groups of keys evenly"),
    ({"values": (2, 8, 2, 3)}, r"values must be \(requests, tokens, groups, value_dim\) = \(2, 9, 2, None\)"),
    ({"lengths": (1,)}, r"lengths must be \(requests\) = \(2,\)"),
    ({"blocks": (2, 1, 3, 2)}, r"blocks must be \(requests, new_tokens, groups, count\) = \(2, 1, 2, None\)"),
    ({"blocks": (2, 1, 2, 2), "window": 4}, "say exactly one of blocks, window and compressed"),
    ({"blocks": None}, "say exactly one of blocks, window and compressed"),
    ({"selection_block": 0}, "selection_block is 0; it must be at least 1"),
    ({"blocks": None, "window": 0}, "window is 0; it must be at least 1"),
    ({"blocks": None, "compressed": (4, 0)}, "block 4 and stride 0 must be at least 1"),
    ({"num_splits": -1}, "num_splits is -1; it must be at least 1"),
])  # fmt: skip
def test_nsa_attend_refuses_what_does_not_fit(change, message):
    arguments = {
        "queries": torch.zeros(2, 1, 6, 4, **ZEROS),
        "keys": torch.zeros(2, 9, 2, 4, **ZEROS),
        "values": torch.zeros(2, 9, 2, 3, **ZEROS),
        "lengths": ints([5, 9]),
        "scale": 1.0,
        "blocks": torch.zeros(2, 1, 2, 1, dtype=torch.int32, device=gpu.DEVICE),
    }
    if isinstance(change.get("compressed"), tuple):
        with pytest.raises(ValueError, match=message):
            gpu.nsa_attend(**arguments | change)
    else:
        refused(gpu.nsa_attend, arguments, change, message)


@pytest.mark.parametrize(("change", "message"), [
    ({"lse": (2, 1, 5)}, r"lse must be \(requests, new_tokens, num_heads\) = \(2, 1, 6\)"),
    ({"count": 2}, "count is 2; 1 initial and 2 local blocks are forced"),
    ({"count": 0, "initial": 0, "local": 0}, "count is 0;"),
    ({"initial": -1}, "count is 3; -1 initial and 2 local"),
    ({"block": 24}, "block 24 and selection_block 64 must be multiples of stride 16"),
    ({"selection_block": 40}, "block 32 and selection_block 40 must be multiples of stride 16"),
    ({"stride": 0}, "block 32 and stride 0 must be at least 1"),
])  # fmt: skip
def test_nsa_select_refuses_what_does_not_fit(change, message):
    arguments = {
        "queries": torch.zeros(2, 1, 6, 4, **ZEROS),
        "compressed_keys": torch.zeros(2, 9, 2, 4, **ZEROS),
        "lse": torch.zeros(2, 1, 6, **ZEROS),
        "lengths": ints([5, 9]),
        "scale": 1.0,
        "count": 3,
    }
    refused(gpu.nsa_select, arguments, change, message)


def test_caches_and_blocks_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="index_dim is 6; the scales behind the codes need a multiple of 4"):
        gpu.IndexCache.empty(1, 1, 6)
    with pytest.raises(ValueError, match="block 0 and stride 1 must be at least 1"):
        gpu.nsa_compress(torch.zeros(1, 2, 1, 4, **ZEROS), ints([2]), block=0, stride=1)


# A wrong kernel is found


def worst(got: gpu.Decoded, want: tuple[np.ndarray, np.ndarray]) -> float:
    """The largest error of both, infinite where a NaN came out."""
    with np.errstate(invalid="ignore"):
        errors = [np.where(wide(a) == b, 0, np.abs(wide(a) - b)) for a, b in zip(got, want, strict=True)]
    return max(np.nan_to_num(error, nan=np.inf).max(initial=0) for error in errors)


def right_scores() -> None:
    b = indexed(2, 5, [0, 21, 70], 16, 16)
    assert_index_scores(b, gpu.index_scores(*b[:5]))


def right_selection() -> None:
    rng = np.random.default_rng(18)
    for kind, topk in (("zeros", 40), ("any", 30)):
        scores = tensor(hard(kind, rng, 2, 1, 100))
        scores[1, :, 20:] = float("nan")
        assert_selected(scores, ints([100, 20]), topk)


def right_decode() -> None:
    b = batch(2, 3, [0, 1, 50], 16, 8, page=13)
    indices = lists([0, 1, 50], 2, 40, np.random.default_rng(19))
    assert worst(decode(b, indices, num_splits=2), decoded(b, indices)) < 1e-4


def right_compression() -> None:
    test_full_blocks_are_averaged(32, 16, F32)


def right_choice() -> None:
    test_of_equal_blocks_the_lower_are_selected()
    test_the_blocks_that_weigh_most_are_selected(1, 2, 1, [70], F32, 5, (2, 1), (6, 2, 4))


def right_branches() -> None:
    test_every_branch_attends_to_its_tokens(2, 2, 1, [100, 0], F32)


RIGHT = [right_scores, right_selection, right_decode, right_compression, right_choice, right_branches]


@pytest.mark.parametrize(("file", "right", "kernels", "old", "new"), [
    ("index_scores", right_scores, "index_scores", "tl.maximum(b_products, 0.0)", "b_products"),
    ("index_scores", right_scores, "index_scores", "b_weight[:, None] * ", ""),
    ("index_scores", right_scores, "index_scores", "acc * b_scale", "acc"),
    ("index_scores", right_scores, "index_scores", "tl.where(i_token < seen, acc", "tl.where(i_token < length, acc"),
    ("index_scores", right_scores, "index_scores", "m_token = i_token < length", "m_token = i_token <= length"),
    ("index_scores", right_scores, "index_scores", "mask=i_token < width", "mask=i_token < seen"),
    ("select_topk", right_selection, "count_digits pick_top", "bits == 0x80000000", "bits == 1"),
    ("select_topk", right_selection, "count_digits pick_top", "bits ^ 0xFFFFFFFF", "bits"),
    ("select_topk", right_selection, "count_digits pick_top", "(i_equal <= need)", "(i_equal < need)"),
    ("select_topk", right_selection, "count_digits pick_top", "tl.minimum(equals, need)", "equals"),
    ("select_topk", right_selection, "count_digits pick_top", "need -= tl.sum(b_here, axis=0)", ""),
    ("select_topk", right_selection, "count_digits pick_top", " & (((b_keys ^ threshold) >> shift >> 8) == 0)", ""),
    ("select_topk", right_selection, "count_digits pick_top", "tl.where(i_place < seen, i_place, -1)", "i_place"),
    ("sparse_mla_decode", right_decode, "sparse_mla_decode", "(i_token >= 0) & (i_token < seen)", "i_token < seen"),
    ("sparse_mla_decode", right_decode, "sparse_mla_decode", "(i_token >= 0) & (i_token < seen)", "i_token >= 0"),
    ("sparse_mla_decode", right_decode, "sparse_mla_decode", " - (new_tokens - 1 - i_new)", ""),
    ("sparse_mla_decode", right_decode, "sparse_mla_decode", "+ i_new * stride_indices_token", ""),
    ("sparse_mla_decode", right_decode, "sparse_mla_decode", "acc = acc * b_rescale[:, None] +", "acc = acc +"),
    ("sparse_mla_decode", right_decode, "sparse_mla_decode", "l_i * b_rescale + tl.sum", "l_i + tl.sum"),
    ("nsa", right_compression, "", "+ BLOCK <= tl.load", "< tl.load"),
    ("nsa", right_choice, "", "i_key = PER * i_block - (WIDE - 1) + i_overlap", "i_key = PER * i_block + i_overlap"),
    ("nsa", right_choice, "", "b_sum += overlap * tl.sum", "b_sum += tl.sum"),
    ("nsa", right_choice, "", "i_block >= visible - LOCAL", "i_block > visible - LOCAL"),
    ("nsa", right_choice, "", "tl.min(tl.where(b_scores == tl.max(b_scores, axis=0), i_block, BLOCK_J), axis=0)",
     "tl.max(tl.where(b_scores == tl.max(b_scores, axis=0), i_block, -1), axis=0)"),
    ("nsa", right_branches, "", "(i_block >= 0) & (i_token < behind)", "(i_token < behind)"),
    ("nsa", right_branches, "", "(i_block >= 0) & (i_token < behind)", "(i_block >= 0)"),
    ("nsa", right_branches, "", "m_token = i_token < begin + stop", "m_token = i_token < behind + 1"),
])  # fmt: skip
@only_interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_wrong_kernel_is_found(monkeypatch, tmp_path, root, file, right, kernels, old, new):
    text = (root / "kernels" / "gpu" / f"{file}.py").read_text()
    assert text.count(old) == 1
    (tmp_path / "mutant.py").write_text(text.replace(old, new))
    spec = importlib.util.spec_from_file_location("mutant", tmp_path / "mutant.py")
    mutant = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mutant)
    if file == "nsa":
        monkeypatch.setattr(sparse, "nsa", mutant)
    for kernel in kernels.split():
        name = kernel if hasattr(mutant, "count_digits") else f"{kernel}_kernel"
        monkeypatch.setattr(sparse, name, getattr(mutant, kernel))
    monkeypatch.setattr(sparse, "decode_blocks", lambda *_: Blocks(16, 16, 4, 1))
    monkeypatch.setattr(sparse, "select_blocks", lambda: dict(BLOCK_T=64, num_warps=1))
    with watched(), pytest.raises((AssertionError, OutOfBoundsError)):
        right()


@pytest.mark.parametrize("right", RIGHT)
def test_the_right_kernels_are_not(monkeypatch, right):
    monkeypatch.setattr(sparse, "decode_blocks", lambda *_: Blocks(16, 16, 4, 1))
    monkeypatch.setattr(sparse, "select_blocks", lambda: dict(BLOCK_T=64, num_warps=1))
    with watched() if gpu.INTERPRETED else nullcontext():
        right()


# The twins


def test_the_indexers_twin_is_the_kernel():
    b = indexed(3, 20, [0, 1, 70], 128, 13)
    scores = fresh((3, 3, 70), "f4")
    arguments = b.q_codes, b.weights, b.cache.codes, b.cache.scales, b.block_table, b.lengths
    index_scores.index_scores(*map(memory, arguments), scores, 3, 70, 13, HEADS=20, BLOCK_H=16, BLOCK_T=32)
    got = gpu.index_scores(*b[:5])
    room = np.abs(np.where(np.isneginf(scores), 0, scores)).max()
    np.testing.assert_allclose(wide(got), scores, rtol=0, atol=2e-6 * room)


@pytest.mark.parametrize("kind", ["any", "ties"])
def test_the_selections_twin_is_the_kernel(kind):
    scores, seen, topk, parts = hard(kind, np.random.default_rng(20), 3, 300), np.array([300, 64, 10]), 64, 3
    counts, indices = fresh((3, 4, parts, 256), "i4"), fresh((3, topk), "i4")
    for i_pass in range(4):
        select_topk.count_digits(scores, seen, counts, topk, parts, i_pass, BLOCK_T=64)
    select_topk.pick_top(scores, seen, counts, indices, topk, parts, BLOCK_T=64)
    assert (counts[0].sum(axis=(1, 2))[0], counts[1:].max()) == (300, np.iinfo("i4").max)
    got = gpu.select_topk(tensor(scores)[:, None], ints(seen), topk)
    np.testing.assert_array_equal(got[:, 0].cpu().numpy(), indices)


def test_keys_are_in_the_order_of_floats():
    bits = (np.arange(2**16, dtype=np.uint32) << 16 | np.uint32(0x1234)).view(np.float32)
    x = np.sort(np.concatenate([bits[~np.isnan(bits)], [0.0, np.inf, -np.inf]]).astype(np.float32))
    keys = select_topk.ordered(x).astype(np.int64)
    assert (np.diff(keys) >= 0).all()
    assert ((np.diff(keys) == 0) == (np.diff(x) == 0))[np.isfinite(np.diff(x))].all()
    assert select_topk.ordered(np.array([-0.0, 0.0], np.float32)).tolist() == [2**31, 2**31]


@pytest.mark.parametrize(("dtype", "fp8"), [(F32, False), (BF16, False), (F16, False), (BF16, True)])
def test_the_sparse_decode_twin_is_the_kernel(small_blocks, dtype, fp8):
    latent, heads, new_tokens, topk, num_splits = 160, 9, 2, 40, 3
    b = batch(new_tokens, heads, [0, 1, 50], latent, 8, dtype=dtype, fp8=fp8, page=13)
    indices = lists([0, 1, 50], new_tokens, topk, np.random.default_rng(21))
    rows = new_tokens * heads
    p_out, p_lse = fresh((3, num_splits, rows, latent), "f4"), fresh((3, num_splits, rows), "f4")
    sparse_mla_decode.sparse_mla_decode(
        *(memory(b.queries), *twin_cache(b.cache), memory(b.block_table), memory(b.lengths), memory(indices)),
        *(p_out, p_lse, heads, new_tokens, num_splits, topk, 13, SCALE),
        LATENT=latent,
        FP8=fp8,
    )
    out, lse = fresh((3, rows, latent), memory(b.queries).dtype), fresh((3, rows), "f4")
    mla_decode_paged.combine(p_out, p_lse, out, lse, rows)
    got = decode(b, indices, num_splits=num_splits)
    assert_twin(got.out.flatten(1, 2), out)
    assert_twin(got.lse.flatten(1, 2), lse)


@pytest.mark.parametrize("topk", [50, 64])
def test_in_float64_the_twin_over_all_tokens_is_dense_attention(topk):
    heads, latent, rope_dim, length, page = 5, 32, 8, 50, 7
    rng = np.random.default_rng(22)
    pages, queries = rng.standard_normal((9, page, latent + rope_dim)), rng.standard_normal((1, 1, heads, 40))
    table, lengths = rng.permutation(9)[None, :8].astype(np.int32), np.array([length])
    indices = np.full((1, 1, topk), -1, np.int32)
    indices[0, 0, rng.permutation(topk)[:length]] = rng.permutation(length)
    shapes = (1, 3, heads, latent), (1, 3, heads), (1, heads, latent), (1, heads)
    p_out, p_lse, out, lse = (np.full(shape, np.nan) for shape in shapes)
    cache = pages[..., :latent], None, pages[..., latent:], table, lengths
    sparse_mla_decode.sparse_mla_decode(
        queries, *cache, indices, p_out, p_lse, heads, 1, 3, topk, page, SCALE, LATENT=latent
    )
    mla_decode_paged.combine(p_out, p_lse, out, lse, heads)
    want = mla.decode_absorbed(queries[:, 0], pages[table].reshape(1, -1, 40), [length], latent, SCALE)
    for got, right in zip((out, lse), want, strict=True):
        np.testing.assert_allclose(got, right, rtol=0, atol=1e-10)


def test_the_nsa_twins_are_the_kernels():
    new_tokens, heads, groups, lengths, value, num_splits = 2, 6, 2, [0, 31, 150], 20, 3
    b = grouped(new_tokens, heads, groups, lengths, value=value, dtype=BF16)
    coarse = compressed(b)
    for x, got in ((b.keys, coarse.keys), (b.values, coarse.values)):
        made = fresh(got.shape, memory(x).dtype)
        nsa.compress(memory(x), np.array(lengths), made, got.shape[1], groups)
        assert_twin(got, made)

    seen = np.array([seen for _, _, seen in rows_of(lengths, new_tokens)])
    stops, rows = np.maximum(0, (seen - 32) // 16 + 1), new_tokens * heads

    def attend(of: Grouped, starts, stops, blocks, selected):
        p_out, p_lse = fresh((3, num_splits, rows, value), "f4"), fresh((3, num_splits, rows), "f4")
        count = 0 if blocks is None else blocks.shape[-1]
        nsa.attend_group(
            *(*map(memory, of[:3]), starts, stops, blocks, p_out, p_lse),
            *(new_tokens, groups, num_splits, count, SCALE),
            VALUE=value,
            HEADS=heads // groups,
            SELECTED=selected,
        )
        out, lse = fresh((3, rows, value), memory(of.queries).dtype), fresh((3, rows), "f4")
        mla_decode_paged.combine(p_out, p_lse, out, lse, rows)
        return out, lse

    def assert_same(got: gpu.Decoded, twin):
        assert_twin(got.out.flatten(1, 2), twin[0])
        assert_twin(got.lse.flatten(1, 2), twin[1])

    first = gpu.nsa_attend(*coarse, SCALE, compressed=(32, 16), num_splits=num_splits)
    assert_same(first, attend(coarse, 0 * stops, stops, None, 0))
    window = gpu.nsa_attend(*b, SCALE, window=70, num_splits=num_splits)
    assert_same(window, attend(b, np.maximum(0, seen - 70), seen, None, 0))

    num_blocks, visible = -(-(coarse.keys.shape[1] * 16 + 31) // 64), -(-seen // 64)
    scores, blocks = fresh((6, groups, num_blocks), "f4"), fresh((6, groups, 3), "i4")
    nsa.block_scores(
        *(memory(b.queries), memory(coarse.keys), memory(first.lse), stops, visible, scores),
        *(new_tokens, groups, num_blocks, SCALE),
        HEADS=heads // groups,
        LOCAL=1,
    )
    nsa.pick_blocks(scores, visible, blocks, groups, COUNT=3)
    got = gpu.nsa_select(b.queries, coarse.keys, first.lse, b.lengths, SCALE, count=3, local=1)
    np.testing.assert_array_equal(got.cpu().numpy().reshape(blocks.shape), blocks)
    selected = gpu.nsa_attend(*b, SCALE, blocks=got, num_splits=num_splits)
    assert_same(selected, attend(b, 0 * seen, seen, blocks, 64))


# What is moved and multiplied


def traffic(work, *others: str) -> tuple[int, int]:
    """Bytes read and written; ``others`` are arguments that an account leaves out."""
    return sum(work.loaded.values()) - sum(work.loaded[name] for name in others), sum(work.stored.values())


@only_interpreted
@pytest.mark.parametrize(("new_tokens", "heads"), [(1, 64), (2, 32)])
def test_the_indexer_reads_each_key_once(new_tokens, heads):
    lengths, step = [128, 192], product_blocks("interpreter", "index_scores")["BLOCK_T"]
    b = indexed(new_tokens, heads, lengths)
    with watched() as works:
        gpu.index_scores(*b[:5], longest=200)
    work, tiles = works["index_scores"], sum(lengths) // step
    assert work.loaded["p_codes"] + work.loaded["p_scales"] == 132 * sum(lengths)
    want = account.index_scores_bytes(sum(lengths), 2 * new_tokens * 200, heads, 128, tiles * new_tokens)
    assert traffic(work, "p_lengths") == want
    assert work.macs == account.index_scores_macs(new_tokens * sum(lengths), heads, 128)


@only_interpreted
@pytest.mark.parametrize("num_parts", [1, 2])
def test_the_selection_reads_a_row_five_times(num_parts):
    rows, topk = [0, 64, 65, 300], 64
    scores = tensor(hard("normal", np.random.default_rng(23), 4, 1, 300))
    with watched() as works:
        gpu.select_topk(scores, ints(rows), topk, num_parts=num_parts)
    want = np.sum([account.select_topk_bytes(seen, topk, num_parts) for seen in rows], axis=0)
    got = np.sum([traffic(works[name], "p_seen") for name in ("count_digits", "pick_top")], axis=0)
    assert got.tolist() == want.tolist()
    read = works["count_digits"].loaded["p_scores"], works["pick_top"].loaded["p_scores"]
    assert read == (4 * 4 * 365, 4 * 365)


@only_interpreted
@pytest.mark.parametrize(("dtype", "fp8", "entry"), [(F32, False, 576), (BF16, False, 288), (BF16, True, 164)])
def test_sparse_decode_reads_what_is_listed(small_blocks, dtype, fp8, entry):
    lengths, new_tokens, heads, latent, rope_dim, topk, num_splits = [64, 3], 2, 32, 128, 16, 48, 3
    b = batch(new_tokens, heads, lengths, latent, rope_dim, dtype=dtype, fp8=fp8)
    indices = lists(lengths, new_tokens, topk, np.random.default_rng(24))
    with watched() as works:
        decode(b, indices, num_splits=num_splits)
    picks = sum(((indices[r, s] >= 0) & (indices[r, s] < seen)).sum().item() for r, s, seen in rows_of(lengths, 2))
    listed, rows, itemsize = indices.numel(), 2 * new_tokens * heads, 4 if dtype == F32 else 2
    want = account.sparse_decode_bytes(
        picks, listed, rows, latent, rope_dim, itemsize, entry, head_blocks=2, splits=num_splits
    )
    work = works["sparse_mla_decode"]
    assert traffic(work, "p_lengths") == want
    assert work.macs == 4 * topk * heads * (2 * latent + rope_dim)
    merge = works["combine"]
    assert merge.stored.total() == combine_bytes(rows, latent, itemsize, num_splits).written


@only_interpreted
def test_a_page_outside_of_the_cache_is_reported():
    b = batch(1, 3, [20], 16, 8)
    room = torch.zeros((len(b.cache.pages) + 2, 64, 24))
    b.block_table[0, 0] = len(b.cache.pages)
    cache = gpu.PagedCache(room[: len(b.cache.pages)], 16, 8)
    with watched(), pytest.raises(OutOfBoundsError, match=r"read 16 elements .* of p_latent, which has"):
        decode(b._replace(cache=cache), ints([[[5, -1, 70]]]))


@only_interpreted
def test_nsa_moves_what_the_account_says():
    lengths, new_tokens, heads, groups, dim, value, count = [192, 64], 2, 32, 2, 32, 16, 4
    b = grouped(new_tokens, heads, groups, lengths, dim, value)
    b = b._replace(keys=b.keys[:, :192], values=b.values[:, :192])
    each = list(rows_of(lengths, new_tokens))
    rows, stops = len(each) * heads, [compressed_seen(seen, 32, 16) for _, _, seen in each]
    with watched() as works:
        keys = gpu.nsa_compress(b.keys, b.lengths)
    full = sum(compressed_seen(length, 32, 16) for length in lengths)
    made = 2 * keys.shape[1]
    assert traffic(works["compress"], "p_lengths") == account.compress_bytes(full, made, groups, dim, 32, 4)

    values = gpu.nsa_compress(b.values, b.lengths)
    with watched() as works:
        _, lse = gpu.nsa_attend(b.queries, keys, values, b.lengths, SCALE, compressed=(32, 16), num_splits=1)
        blocks = gpu.nsa_select(b.queries, keys, lse, b.lengths, SCALE, count=count)
    want = account.attend_group_bytes(sum(stops), rows, groups, dim, value, itemsize=4)
    assert traffic(works["attend_group"], "p_starts", "p_stops") == want

    num_blocks, step = 4, product_blocks("interpreter", "block_scores")["BLOCK_J"]
    pairs = sum(
        min(64 * j + 64, 16 * i + 32) > max(64 * j, 16 * i)
        for stop in stops
        for i in range(stop)
        for j in range(num_blocks)
    )
    work = works["block_scores"]
    want = account.block_scores_bytes(pairs, len(each) * groups * num_blocks, rows, groups, dim, itemsize=4)
    assert traffic(work, "p_stops", "p_visible") == want
    # five overlaps for each place of a tile of blocks, seen or not
    assert work.macs == account.block_scores_macs(5 * step * len(each), heads, dim)
    visible = sum(-(-seen // 64) for _, _, seen in each) * groups
    assert traffic(works["pick_blocks"], "p_visible") == account.pick_blocks_bytes(visible, blocks.numel())

    with watched() as works:
        gpu.nsa_attend(*b, SCALE, blocks=blocks, num_splits=1)
    selected = sum(min(seen, 64 * count) for _, _, seen in each)
    want = account.attend_group_bytes(selected, rows, groups, dim, value, itemsize=4, listed=blocks.numel())
    work = works["attend_group"]
    assert traffic(work, "p_starts", "p_stops") == want
    assert work.macs == account.attend_group_macs(64 * count * len(each), heads, dim, value).total

    with watched() as works:
        gpu.nsa_attend(*b, SCALE, window=64, num_splits=2)
    window = sum(min(seen, 64) for _, _, seen in each)
    want = account.attend_group_bytes(window, rows, groups, dim, value, itemsize=4, splits=2)
    assert traffic(works["attend_group"], "p_starts", "p_stops") == want
