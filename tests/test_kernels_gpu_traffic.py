"""What the Triton kernels load, store and multiply, counted in the interpreter, against what the account predicts.

The sizes are multiples of the blocks, since a block's padding is multiplied too. A GPU cannot be watched.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton is not installed: it is made for Linux")

from triton.runtime.errors import InterpreterError  # noqa: E402

from ledger.account import attention, cache, kernels  # noqa: E402
from ledger.kernels import gpu  # noqa: E402
from ledger.kernels.gpu.tuning import Blocks, product_blocks  # noqa: E402
from ledger.kernels.interpret import watched  # noqa: E402
from ledger.kernels.interpret.mode import tl, triton  # noqa: E402
from ledger.models import model  # noqa: E402

F32, BF16 = torch.float32, torch.bfloat16
SIZE = {F32: 4, BF16: 2}
V3 = model("DeepSeek-V3")
SCALE = 0.1


@pytest.fixture(autouse=True)
def interpreted():
    """Only the interpreter's loads and stores can be seen."""
    if not gpu.INTERPRETED:
        pytest.skip("on a GPU no load or store can be seen: the interpreter counts them")


@pytest.fixture
def blocks(monkeypatch):
    """The decode kernels in blocks of 16 rows and 16 tokens."""
    monkeypatch.setattr(gpu, "decode_blocks", lambda *_: Blocks(16, 16, 4, 1))


def randn(*shape, dtype=F32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def batch(new_tokens, heads, lengths, latent, rope, dtype=F32, fp8=False, page=16):
    """Arguments of ``mla_decode``; pages follow one another."""
    counts = [-(-length // page) for length in lengths]
    pages = gpu.PagedCache.empty(sum(counts) + 1, page, latent, rope, "fp8_ds_mla" if fp8 else "bf16_mla", dtype)
    pages.pages.zero_() if fp8 else pages.pages.copy_(randn(*pages.pages.shape))
    table = torch.full((len(lengths), max(counts) + 1), 2**31 - 1, dtype=torch.int32)
    for request, (count, end) in enumerate(zip(counts, np.cumsum(counts), strict=True)):
        table[request, :count] = torch.arange(end - count, end)
    queries = randn(len(lengths), new_tokens, heads, latent + rope, dtype=dtype)
    return queries, pages, table, torch.tensor(lengths, dtype=torch.int32), SCALE


def entries(work: watched.Work) -> int:
    """Bytes read of a cache: the parts of an entry lie in one memory, and count for the first that holds them."""
    return sum(work.loaded[name] for name in ("p_latent", "p_scales", "p_rope"))


def test_one_block_of_rows_reads_the_cache_once(blocks):
    lengths, latent, rope = [32, 48], 64, 16
    with watched.watched() as works:
        gpu.mla_decode(*batch(1, 16, lengths, latent, rope), num_splits=1)
    work = works["shared_tile"]
    want = attention.decode_absorbed_bytes(sum(lengths), 16, latent, rope, itemsize=4, requests=2)
    assert work.loaded["p_queries"] + entries(work) == want.read
    assert sum(work.stored.values()) == want.written
    assert work.macs == attention.decode_absorbed_macs(sum(lengths), 16, latent, rope).total
    assert work.loaded["p_block_table"] == 4 * sum(lengths)
    assert work.loaded["p_lengths"] == 4 * 2
    assert set(work.loaded) <= {"p_queries", "p_latent", "p_scales", "p_rope", "p_block_table", "p_lengths"}


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize(("rung", "new_tokens", "heads", "num_splits"), [
    ("one_head", 1, 5, 1), ("one_head", 1, 16, 1), ("shared_tile", 1, 16, 1), ("shared_tile", 1, 48, 1),
    ("shared_tile", 2, 32, 1), ("split_kv", 1, 32, 2), ("split_kv", 1, 16, 3), ("split_kv", 4, 8, 5),
])  # fmt: skip
def test_a_rung_moves_what_the_account_says(blocks, rung, new_tokens, heads, num_splits, dtype):
    lengths, latent, rope, rows = [32, 48], 64, 16, new_tokens * heads
    with watched.watched() as works:
        gpu.mla_decode(*batch(new_tokens, heads, lengths, latent, rope, dtype), rung=rung, num_splits=num_splits)
    work = works["one_head" if rung == "one_head" else "shared_tile"]
    row_blocks = rows if rung == "one_head" else rows // 16
    entry = (latent + rope) * SIZE[dtype]
    want = kernels.decode_paged_bytes(
        sum(lengths), rows, latent, rope, SIZE[dtype], entry, requests=2, row_blocks=row_blocks, splits=num_splits
    )
    assert entries(work) == row_blocks * sum(lengths) * entry
    assert sum(work.loaded.values()) - work.loaded["p_lengths"] == want.read
    assert sum(work.stored.values()) == want.written
    # one_head multiplies without a matrix product
    macs = attention.decode_absorbed_macs(sum(lengths), rows, latent, rope).total
    assert work.macs == (0 if rung == "one_head" else macs)

    merge = works["combine"]
    want = kernels.combine_bytes(2 * rows, latent, SIZE[dtype], num_splits)
    live = merge.loaded["p_partials"] + merge.loaded["p_lses"] // 3  # each lse is read three times
    assert live == want.read - 4 * latent * rows * sum(max(0, num_splits - length // 16) for length in lengths)
    assert sum(merge.stored.values()) == want.written
    assert merge.macs == 0


def test_one_program_a_head_reads_the_cache_once_a_head(blocks):
    read = {}
    for rung in ("one_head", "shared_tile"):
        with watched.watched() as works:
            gpu.mla_decode(*batch(1, 16, [64], 32, 16), rung=rung)
        read[rung] = entries(works[rung])
    assert read == {"one_head": 16 * 64 * 48 * 4, "shared_tile": 64 * 48 * 4}


def test_what_is_masked_out_costs_nothing(blocks):
    lengths, latent, rope = [0, 1, 19], 33, 6
    with watched.watched() as works:
        gpu.mla_decode(*batch(1, 5, lengths, latent, rope), num_splits=1)
    want = attention.decode_absorbed_bytes(20, 5, latent, rope, itemsize=4, requests=3)
    work = works["shared_tile"]
    assert (work.loaded["p_queries"] + entries(work), sum(work.stored.values())) == want
    assert work.macs > attention.decode_absorbed_macs(20, 5, latent, rope).total  # padding is multiplied


@pytest.mark.parametrize("cache_format", ["bf16_mla", "fp8_ds_mla"])
def test_an_entry_has_its_formats_bytes(blocks, cache_format):
    fp8 = cache_format == "fp8_ds_mla"
    each = cache.cache_bytes_per_token(V3, cache_format)
    assert each == (656 if fp8 else 1152)
    arguments = batch(1, 16, [16], V3.latent_dim, V3.rope_dim, BF16, fp8)
    with watched.watched() as works:
        gpu.mla_decode(*arguments, num_splits=1)
    assert entries(works["shared_tile"]) == 16 * each

    tokens, slots = 3, torch.tensor([5, 0, 9])
    latents, k_rope = randn(tokens, V3.latent_dim, dtype=BF16), randn(tokens, V3.rope_dim, dtype=BF16)
    norm = torch.ones(V3.latent_dim, dtype=BF16)
    with watched.watched() as works:
        gpu.write_cache(arguments[1], latents, k_rope, norm, torch.arange(tokens), slots, 1e-6, 1e4)
    work = works["write_cache"]
    want = kernels.write_cache_bytes(tokens, V3.latent_dim, V3.rope_dim, itemsize=2, entry_bytes=each)
    assert (sum(work.loaded.values()), sum(work.stored.values())) == want


@pytest.mark.parametrize(("new_tokens", "heads", "nope", "latent", "rope"), [
    (16, 3, 64, 128, 16), (32, 2, 128, 128, 64), (16, 2, 64, 256, 8), (48, 1, 192, 384, 0),
])  # fmt: skip
def test_absorb_reads_each_heads_queries_and_matrix(new_tokens, heads, nope, latent, rope):
    arguments = randn(new_tokens, heads, nope), randn(new_tokens, heads, rope), randn(heads, nope, latent)
    with watched.watched() as works:
        gpu.absorb_heads(*arguments, torch.arange(new_tokens), 1e4)
    work, step = works["absorb_heads"], product_blocks("interpreter", "absorb_heads")
    tall, across = new_tokens // step["BLOCK_S"], latent // step["BLOCK_C"]
    want = attention.absorb_heads_bytes(new_tokens, heads, nope, latent, itemsize=4)
    assert work.loaded["p_q_nope"] // across + work.loaded["p_w_kc"] // tall == want.read
    assert work.loaded["p_q_rope"] == 4 * new_tokens * heads * rope
    assert work.loaded["p_cos"] + work.loaded["p_sin"] == 4 * new_tokens * heads * rope
    assert sum(work.stored.values()) == want.written + 4 * new_tokens * heads * rope
    assert work.macs == attention.absorb_heads_macs(new_tokens, heads, nope, latent)


@pytest.mark.parametrize(("requests", "heads", "latent", "value", "num_splits"), [
    (16, 2, 64, 128, 1), (32, 1, 128, 128, 2), (16, 1, 64, 256, 1),
])  # fmt: skip
def test_value_up_reads_partials_and_matrices(blocks, requests, heads, latent, value, num_splits):
    w_vc = randn(heads, latent, value)
    with watched.watched() as works:
        gpu.decode_attention(*batch(1, heads, [32] * requests, latent, 16)[:4], w_vc, SCALE, num_splits=num_splits)
    work, step = works["value_up"], product_blocks("interpreter", "value_up")
    tall, across = requests // step["BLOCK_B"], value // step["BLOCK_V"]
    want = kernels.value_up_bytes(requests, heads, latent, value, 4, num_splits)
    lses = work.loaded["p_lses"] // (2 + latent // step["BLOCK_C"])  # twice, and once more for each block of latents
    assert (work.loaded["p_partials"] + lses) // across + work.loaded["p_w_vc"] // tall == want.read
    assert sum(work.stored.values()) == want.written
    assert work.macs == kernels.value_up_macs(requests, heads, latent, value)


@pytest.mark.parametrize("first_position", [None, 0, 64, 70])
@pytest.mark.parametrize(("new_tokens", "cached_tokens", "heads", "value"), [(64, 64, 2, 32), (128, 192, 1, 16)])
def test_prefill_expands_and_attends(new_tokens, cached_tokens, heads, value, first_position):
    nope, rope, latent = 32, 16, 64
    q_nope, q_rope = randn(new_tokens, heads, nope), randn(new_tokens, heads, rope)
    latents, k_rope, kv_b = randn(cached_tokens, latent), randn(cached_tokens, rope), randn(heads, nope + value, latent)
    with watched.watched() as works:
        gpu.materialize_prefill(q_nope, q_rope, latents, k_rope, kv_b, SCALE, first_position=first_position)
    work, step = works["expand"], product_blocks("interpreter", "expand")
    want = kernels.expand_bytes(cached_tokens, heads, latent, nope, value, itemsize=4)
    assert work.loaded["p_latents"] + work.loaded["p_kv_b"] // (cached_tokens // step["BLOCK_T"]) == want.read
    assert sum(work.stored.values()) == want.written
    if (nope + value) % step["BLOCK_W"] == 0:
        assert work.macs == kernels.expand_macs(cached_tokens, heads, latent, nope, value)

    work, step = works["attend"], product_blocks("interpreter", "attend")
    pairs = kernels.seen_pairs(new_tokens, cached_tokens, first_position, step["BLOCK_S"], step["BLOCK_T"])
    reads = pairs // step["BLOCK_S"]
    want = kernels.attend_bytes(new_tokens, reads, heads, nope, rope, value, itemsize=4)
    assert (sum(work.loaded.values()), sum(work.stored.values())) == want
    assert work.macs == kernels.attend_macs(pairs, heads, nope, rope, value).total
    assert pairs >= kernels.seen_pairs(new_tokens, cached_tokens, first_position)


# Watching


@triton.jit
def doubled(p_x, p_y, size, BLOCK: tl.constexpr, WIDE: tl.constexpr, SHIFT: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(p_x + i + SHIFT, mask=i < size + WIDE, other=0.0)
    tl.store(p_y + i, 2 * x, mask=i < size)


@triton.jit
def written_behind(p_y, size, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(p_y + i, 1.0 + i, mask=i <= size)


@triton.jit
def one_value(p_x, p_y):
    tl.store(p_y, tl.load(p_x + 1))


@triton.jit
def added(p_x, p_y, size, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.atomic_add(p_x + i, 0.0, mask=i < size + WIDE)  # what is there, as a load would give it
    tl.atomic_max(p_y + i, x, mask=i < size)


@triton.jit
def swapped(p_x, at):
    tl.atomic_cas(p_x + at, 0, 7)


def apart(size: int) -> torch.Tensor:
    """A tensor in the middle of memory that is its own, so that reaching beside it harms nothing."""
    return torch.zeros(size + 64)[32 : 32 + size]


def test_a_right_kernel_is_counted_in_every_launch():
    x, y = apart(10).copy_(torch.arange(10.0)), apart(10)
    with watched.watched() as works:
        doubled[(2,)](x, y, 10, BLOCK=8, WIDE=0, SHIFT=0)
        one_value[(1,)](x, y)
        doubled[(1,)](x, y, 3, BLOCK=8, WIDE=0, SHIFT=0)
    assert works["doubled"] == watched.Work({"p_x": 52}, {"p_y": 52}, 0)
    assert works["one_value"] == watched.Work({"p_x": 4}, {"p_y": 4}, 0)
    assert y.tolist() == [0.0, 2, 4, 6, 8, 10, 12, 14, 16, 18]


def test_an_atomic_operation_is_a_load_and_a_store():
    x, y, numbers = apart(10).copy_(torch.arange(10.0)), apart(10), apart(3).int()
    with watched.watched() as works:
        added[(1,)](x, y, 10, BLOCK=16, WIDE=0)
        swapped[(1,)](numbers, 2)
    assert works["added"] == watched.Work({"p_x": 40, "p_y": 40}, {"p_x": 40, "p_y": 40}, 0)
    assert works["swapped"] == watched.Work({"p_x": 4}, {"p_x": 4}, 0)
    assert (y.tolist(), numbers.tolist()) == (x.tolist(), [0, 0, 7])
    outside = pytest.raises(watched.OutOfBoundsError, match=r"read 2 elements .* the first at offset 10 of p_x")
    with watched.watched(), outside:
        added[(1,)](x, y, 10, BLOCK=16, WIDE=2)
    with watched.watched(), pytest.raises(watched.OutOfBoundsError, match="offset 3 of p_x, which has 3"):
        swapped[(1,)](numbers, 3)


@pytest.mark.parametrize(("wide", "shift", "message"), [
    (1, 0, "the kernel read 1 elements outside of its tensors, the first at offset 10 of p_x, which has 10: mask"),
    (3, 0, "the kernel read 3 elements .* the first at offset 10 of p_x"),
    (0, -2, "the kernel read 2 elements .* the first at offset -2 of p_x, which has 10"),
    (0, 5, "the kernel read 5 elements .* the first at offset 10 of p_x"),
])  # fmt: skip
def test_a_read_outside_is_reported_with_its_offset(wide, shift, message):
    y = apart(10)
    with watched.watched(), pytest.raises(watched.OutOfBoundsError, match=message):
        doubled[(1,)](apart(10), y, 10, BLOCK=16, WIDE=wide, SHIFT=shift)
    assert not y.any()


def test_memory_of_another_tensor_is_outside_too():
    room = torch.zeros(40)
    with watched.watched(), pytest.raises(watched.OutOfBoundsError, match=r"read 10 elements .* offset 20 of p_x"):
        doubled[(1,)](room[:10], room[20:30], 10, BLOCK=16, WIDE=0, SHIFT=20)


def test_a_write_outside_is_reported_and_not_done():
    y = apart(5)
    with (
        watched.watched(),
        pytest.raises(watched.OutOfBoundsError, match=r"wrote 1 elements .* offset 5 of p_y, which"),
    ):
        written_behind[(1,)](y, 5, BLOCK=8)
    assert not y.any()


def test_a_read_of_one_value_outside_is_reported():
    with watched.watched(), pytest.raises(watched.OutOfBoundsError, match="offset 1 of p_x, which has 1"):
        one_value[(1,)](apart(1), apart(1))


def test_between_the_rows_of_a_view_is_inside_and_behind_its_last_is_not():
    room = torch.zeros(4, 64)
    view = room[1:3, :10]  # reaches from 64 to 138
    with watched.watched() as works:
        doubled[(1,)](view, apart(64), 64, BLOCK=64, WIDE=0, SHIFT=0)
    assert works["doubled"].loaded == {"p_x": 256}
    with watched.watched(), pytest.raises(watched.OutOfBoundsError, match="offset 74 of p_x, which has 74"):
        doubled[(1,)](view, apart(64), 64, BLOCK=64, WIDE=0, SHIFT=64)


def test_a_page_that_no_cache_has_is_reported():
    """The memory behind the cache is nobody's: a part of a larger tensor that the kernel was not given."""
    queries, pages, table, lengths, scale = batch(1, 3, [20], 16, 8)
    count, *shape = pages.pages.shape
    room = torch.zeros((count + 2, *shape), dtype=pages.pages.dtype)
    room[:count] = pages.pages
    pages = gpu.PagedCache(room[:count], pages.latent_dim, pages.rope_dim)
    table[0, 1] = count
    with (
        watched.watched(),
        pytest.raises(watched.OutOfBoundsError, match=r"read 64 elements .* of p_latent, which has"),
    ):
        gpu.mla_decode(queries, pages, table, lengths, scale)


def test_watching_ends_with_its_block():
    with pytest.raises(watched.OutOfBoundsError), watched.watched():
        one_value[(1,)](apart(1), apart(1))
    with watched.watched() as works:
        pass
    one_value[(1,)](apart(2), apart(1))
    assert not works


def test_other_mistakes_in_a_kernel_stay_what_they_are():
    with watched.watched(), pytest.raises(InterpreterError, match="power of 2"):
        doubled[(1,)](apart(8), apart(8), 8, BLOCK=7, WIDE=0, SHIFT=0)
