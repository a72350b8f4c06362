"""The Triton kernels through their entry points against the float64 oracles: on a GPU, or in Triton's interpreter.

Everything that a kernel must not read is poison: NaN behind the lengths, in unused pages and between the queries, page
numbers that no memory reaches, and NaN in whatever torch allocates and nobody has written.
"""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton is not installed: it is made for Linux")

from kernel_cases import (  # noqa: E402
    BF16,
    DIGITS,
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

from ledger.kernels import gpu  # noqa: E402
from ledger.kernels.gpu.numbers import from_e4m3, rounded, to_e4m3  # noqa: E402
from ledger.kernels.gpu.tuning import Blocks  # noqa: E402
from ledger.kernels.interpret.mode import dot_dtype, tl, triton  # noqa: E402
from ledger.kernels.interpret.watched import OutOfBoundsError, watched  # noqa: E402
from ledger.kernels.loops import (  # noqa: E402
    absorb_query_rows,
    materialize_prefill,
    mla_decode_paged,
    numbers,
    value_up,
    write_cache,
)
from ledger.reference import layer, mla, rope, values  # noqa: E402

pytestmark = pytest.mark.usefixtures("poisoned_memory")

#: Large enough that leaving it out shows.
EPS = 0.5

#: requests, new tokens, heads, lengths
SHORT = [
    (1, 1, 16, [1]),
    (4, 1, 16, [0, 1, 63, 200]),
    (2, 1, 128, [64, 65]),
    (6, 1, 64, [20, 140, 64, 129, 1, 512]),
    (2, 4, 16, [140, 20]),
    (7, 1, 3, [20] * 7),
    (5, 1, 63, [140] * 5),
    (2, 4, 3, [1, 2]),
    (3, 2, 1, [0, 1, 33]),
]
LONG = [(3, 1, 128, [1025, 1027, 4096]), (1, 2, 128, [4096])]


@pytest.fixture
def large_blocks(monkeypatch):
    """Long caches in few steps, where the interpreter has no shared memory to run out of."""
    if gpu.INTERPRETED:
        monkeypatch.setattr(gpu, "decode_blocks", lambda *_: Blocks(128, 256, 4, 1))


@pytest.fixture
def tall_blocks(monkeypatch):
    """Many rows in few steps, over several tiles."""
    if gpu.INTERPRETED:
        monkeypatch.setattr(gpu, "decode_blocks", lambda *_: Blocks(128, 32, 4, 1))


def decode(b: Batch, scale=SCALE, **options) -> gpu.Decoded:
    return gpu.mla_decode(b.queries, b.cache, b.block_table, b.lengths, scale, **options)


def decoded(b: Batch, scale=SCALE) -> tuple[np.ndarray, np.ndarray]:
    """What it must be: each new token is a request of its own, of the length that it sees."""
    queries = wide(b.queries)
    requests, new_tokens, _, width = queries.shape
    latent = b.cache.latent_dim
    cache = np.zeros((requests, max(map(len, b.entries)), width))
    for request, entries in enumerate(b.entries):
        cache[request, : len(entries)] = entries
    outs, lses = [], []
    for i in range(new_tokens):
        seen = [max(0, len(entries) - (new_tokens - 1 - i)) for entries in b.entries]
        out, lse = mla.decode_absorbed(queries[:, i], cache, seen, latent, scale)
        outs.append(out)
        lses.append(lse)
    return np.stack(outs, 1), np.stack(lses, 1)


def decoded_by_torch(b: Batch, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """The same by torch's float64 softmax over one long request after the other."""
    new_tokens = b.queries.shape[1]
    outs, lses = [], []
    for request, entries in enumerate(map(torch.from_numpy, b.entries)):
        scores = scale * b.queries[request].double().cpu() @ entries.T  # [s, h, t]
        last = torch.arange(len(entries) - new_tokens, len(entries))
        scores.masked_fill_(torch.arange(len(entries)) > last[:, None, None], -torch.inf)
        outs.append(scores.softmax(-1) @ entries[:, : b.cache.latent_dim])
        lses.append(scores.logsumexp(-1))
    return torch.stack(outs).numpy(), torch.stack(lses).numpy()


def worst(got: gpu.Decoded, want: tuple[np.ndarray, np.ndarray]) -> float:
    """The largest error of both, infinite where a NaN came out."""
    errors = []
    for a, b in zip(got, want, strict=True):
        with np.errstate(invalid="ignore"):
            difference = np.where(wide(a) == b, 0, np.abs(wide(a) - b))
        errors.append(np.nan_to_num(difference, nan=np.inf).max(initial=0))
    return max(errors)


def test_kernels_run_where_triton_was_imported_before_them():
    program = (
        "import torch.utils.flop_counter, triton, sys; assert 'triton.language' in sys.modules\n"
        "import torch; from ledger.kernels import gpu\n"
        "x = torch.ones(1, 1, 1, 24, device=gpu.DEVICE); cache = gpu.PagedCache(x[0], 16, 8)\n"
        "one = torch.ones(1, 1, dtype=torch.int32, device=gpu.DEVICE)\n"
        "print(gpu.mla_decode(x, cache, one - 1, one[0], 0.5).lse.item())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "12.0\n", done.stderr


def test_fresh_memory_is_poison():
    assert torch.empty(9, device=gpu.DEVICE).isnan().all()
    assert torch.ones(1, dtype=BF16, device=gpu.DEVICE).new_empty(9).isnan().all()
    assert (gpu.PagedCache.empty(2, 3, 128, 16, "fp8_ds_mla").pages == 255).all()


# decode


@pytest.mark.parametrize(("requests", "new_tokens", "heads", "lengths"), SHORT)
def test_decode_is_the_whole_softmax(requests, new_tokens, heads, lengths):
    assert len(lengths) == requests
    b = batch(new_tokens, heads, lengths)
    assert_decoded(decode(b), decoded(b), F32)


@pytest.mark.parametrize(
    ("requests", "new_tokens", "heads", "lengths", "dtype"),
    [(*case, BF16) for case in SHORT] + [(*case, F16) for case in SHORT[:2] + SHORT[-2:]],
)
def test_decode_in_16_bits(tall_blocks, requests, new_tokens, heads, lengths, dtype):
    b = batch(new_tokens, heads, lengths, dtype=dtype)
    assert_decoded(decode(b), decoded(b), dtype)


@pytest.mark.parametrize(("requests", "new_tokens", "heads", "lengths"), LONG)
def test_decode_of_long_caches(large_blocks, requests, new_tokens, heads, lengths):
    b = batch(new_tokens, heads, lengths)
    assert_decoded(decode(b), decoded_by_torch(b, SCALE), F32)


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize(
    ("new_tokens", "heads", "lengths"), [(1, 16, [0, 1, 63, 200]), (1, 128, [65]), (4, 16, [140, 2])]
)
def test_decode_at_a_models_widths(new_tokens, heads, lengths, fp8):
    b = batch(new_tokens, heads, lengths, 512, 64, dtype=BF16, fp8=fp8)
    assert b.cache.pages.shape[2] * b.cache.pages.element_size() == (656 if fp8 else 1152)
    assert_decoded(decode(b, 192**-0.5), decoded(b, 192**-0.5), BF16)


@pytest.mark.parametrize(("requests", "new_tokens", "heads", "lengths"), LONG)
def test_decode_of_long_caches_at_a_models_widths(large_blocks, requests, new_tokens, heads, lengths):
    heads = 16 if requests > 1 else heads
    b = batch(new_tokens, heads, lengths, 512, 64, dtype=BF16)
    assert_decoded(decode(b, 192**-0.5), decoded_by_torch(b, 192**-0.5), BF16)


@pytest.mark.parametrize("rung", gpu.RUNGS)
@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize(("new_tokens", "heads", "lengths"), [(1, 5, [0, 1, 63]), (3, 3, [1, 33, 2]), (1, 1, [64])])
def test_every_rung_gives_the_same(rung, fp8, new_tokens, heads, lengths):
    b = batch(new_tokens, heads, lengths, 160, 16, dtype=F16, fp8=fp8)
    assert_decoded(decode(b, rung=rung), decoded(b), F16)


@pytest.mark.parametrize(("latent", "rope_dim"), [(1, 2), (16, 0), (33, 7), (64, 16), (128, 2), (200, 24)])
def test_decode_at_any_widths(latent, rope_dim):
    for rung in gpu.RUNGS:
        b = batch(2, 3, [1, 35], latent, rope_dim)
        assert_decoded(decode(b, rung=rung), decoded(b), F32)


@pytest.mark.parametrize(("latent", "rope_dim", "dtype"), [
    (4, 2, F32), (128, 0, F32), (132, 16, F32), (256, 32, F32), (300, 6, F32), (256, 32, BF16), (132, 16, F16),
])  # fmt: skip
def test_decode_of_an_fp8_cache(latent, rope_dim, dtype):
    b = batch(1, 3, [0, 1, 70], latent, rope_dim, dtype=dtype, fp8=True, page=16)
    stored = wide(b.cache.entries())
    for entries, table in zip(b.entries, b.block_table.tolist(), strict=True):
        for i, entry in enumerate(entries):
            np.testing.assert_allclose(stored[table[i // 16], i % 16], entry, rtol=1e-6)
    assert_decoded(decode(b), decoded(b), dtype)


@pytest.mark.parametrize("heads", [1, 3, 63, 128])
@pytest.mark.parametrize("new_tokens", [1, 2, 3, 4])
def test_new_tokens_see_each_other_in_order(tall_blocks, heads, new_tokens):
    b = batch(new_tokens, heads, [1, 34], 16, 8)
    assert_decoded(decode(b), decoded(b), F32)
    # the first new token sees nothing of the later ones: shorter lengths alone give the same
    if heads > 3:
        return
    first = b._replace(queries=b.queries[:, :1], lengths=(b.lengths - new_tokens + 1).clamp(min=0))
    np.testing.assert_allclose(wide(decode(first).out[:, 0]), wide(decode(b).out[:, 0]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("page", [1, 2, 53, 61, 64])
def test_pages_of_any_size(page, fp8):
    b = batch(2, 3, [0, 1, 63, 125], 128, 16, page=page, fp8=fp8)
    assert_decoded(decode(b), decoded(b), F32)


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("rung", gpu.RUNGS)
def test_permuted_pages_give_the_same_bits(rung, fp8):
    b = batch(2, 3, [5, 33, 100], 128, 16, page=8, fp8=fp8)
    order = torch.randperm(len(b.cache.pages), generator=torch.Generator().manual_seed(1)).to(gpu.DEVICE)
    pages = torch.empty_like(b.cache.pages)
    pages[order] = b.cache.pages
    valid = b.block_table < len(order)
    table = torch.where(valid, order[torch.where(valid, b.block_table, 0).long()].int(), b.block_table)
    moved = b._replace(cache=gpu.PagedCache(pages, 128, 16), block_table=table)
    assert not torch.equal(table, b.block_table)
    for before, after in zip(decode(b, rung=rung), decode(moved, rung=rung), strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize("num_splits", [1, 2, 3, 5, 7, 20])
def test_splits_do_not_change_the_result(num_splits):
    b = batch(2, 5, [0, 1, 33, 200])
    assert_decoded(decode(b, num_splits=num_splits), decoded(b), F32)


@pytest.mark.parametrize(("rows", "tokens"), [(16, 16), (32, 16), (16, 128), (64, 64)])
def test_blocks_do_not_change_the_result(monkeypatch, rows, tokens):
    b = batch(2, 21, [0, 1, 33, 200])
    monkeypatch.setattr(gpu, "decode_blocks", lambda *_: Blocks(rows, tokens, 4, 1))
    assert_decoded(decode(b), decoded(b), F32)


def sloping(first: float, last: float, tokens: int = 200) -> Batch:
    """One head whose scores run from ``first`` to ``last``, over random latents."""
    b = batch(1, 1, [tokens], 16, 16)
    b.queries.zero_()
    b.queries[..., 31] = 1
    for i, score in enumerate(np.linspace(first, last, tokens, dtype=np.float32)):
        b.cache.pages[b.block_table[0, i // 64].item(), i % 64, 31] = float(score)
        b.entries[0][i, 31] = score
    return b


@pytest.mark.parametrize("rung", gpu.RUNGS)
@pytest.mark.parametrize(("first", "last"), [(800, -800), (-800, 800), (-800, -700), (0, 0)])
def test_scores_that_slope(rung, first, last):
    b = sloping(first, last)
    assert_decoded(decode(b, 1.0, rung=rung), decoded(b, 1.0), F32)


def test_splits_far_apart_merge():
    b = sloping(800, -800)
    for num_splits in (2, 3, 7):
        assert_decoded(decode(b, 1.0, num_splits=num_splits), decoded(b, 1.0), F32)


@pytest.mark.parametrize("rung", gpu.RUNGS)
def test_empty_requests_give_zero_and_minus_infinity(rung):
    b = batch(2, 3, [0, 0], 16, 8)
    out, lse = decode(b, rung=rung)
    assert (out == 0).all()
    assert (lse == -torch.inf).all()


def test_nothing_to_compute():
    b = batch(1, 2, [3], 16, 8)
    none = b._replace(queries=b.queries[:0], block_table=b.block_table[:0], lengths=b.lengths[:0])
    assert [tuple(x.shape) for x in decode(none)] == [(0, 1, 2, 16), (0, 1, 2)]
    assert decode(b._replace(queries=b.queries[:, :, :0])).out.shape == (1, 1, 0, 16)
    assert decode(b._replace(queries=b.queries[:, :0])).lse.shape == (1, 0, 2)


@pytest.mark.parametrize("rung", gpu.RUNGS)
def test_tables_and_queries_may_lie_anyhow(rung):
    b = batch(2, 3, [5, 90, 33], 16, 8, page=16)
    want = decoded(b)
    table = b.block_table.t().contiguous().t()
    lengths = torch.stack([b.lengths, torch.full_like(b.lengths, HUGE)], 1)[:, 0]
    queries = b.queries.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    assert (table.stride(1), lengths.stride(0), queries.stride(0)) == (3, 2, 1)
    assert_decoded(decode(b._replace(block_table=table, lengths=lengths, queries=queries), rung=rung), want, F32)
    wider = b._replace(block_table=b.block_table.long(), lengths=b.lengths.long())
    assert_decoded(decode(wider, rung=rung), want, F32)


@pytest.mark.parametrize(("change", "message"), [
    ({"queries": torch.zeros(2, 3, 24)}, r"queries must be a tensor \(requests, new_tokens, .*; got torch.Size"),
    ({"queries": [1.0]}, "queries must be a tensor .*; got list"),
    ({"queries": torch.zeros(2, 1, 3, 25)}, r"queries are 25 wide; the cache's entries are 16 \+ 8"),
    ({"queries": torch.zeros(2, 1, 3, 24, dtype=torch.float64)}, "bfloat16, float16 or float32; got torch.float64"),
    ({"block_table": torch.zeros(3, 4, dtype=torch.int32)}, r"block_table must be \(requests, entries\) = \(2, None\)"),
    ({"block_table": torch.zeros(2, dtype=torch.int32)}, "block_table must be a tensor"),
    ({"lengths": torch.zeros(3, dtype=torch.int32)}, r"lengths must be \(requests\) = \(2,\); got \(3,\)"),
    ({"lengths": torch.tensor([1, 33], dtype=torch.int32)}, r"lengths lie in 1 … 33; .* room for 32 tokens"),
    ({"lengths": torch.tensor([-1, 3], dtype=torch.int32)}, r"lengths lie in -1 … 3;"),
    ({"rung": "flash"}, "no rung 'flash'; the choices are: one_head, shared_tile, split_kv"),
    ({"num_splits": 0}, "num_splits is 0; it must be at least 1"),
])  # fmt: skip
def test_decode_refuses_what_does_not_fit(change, message):
    arguments = {
        "queries": torch.zeros(2, 1, 3, 24),
        "cache": gpu.PagedCache.empty(2, 8, 16, 8, dtype=F32),
        "block_table": torch.zeros(2, 4, dtype=torch.int32),
        "lengths": torch.tensor([1, 8], dtype=torch.int32),
        "scale": 1.0,
    } | change
    arguments = {name: x.to(gpu.DEVICE) if isinstance(x, torch.Tensor) else x for name, x in arguments.items()}
    with pytest.raises(ValueError, match=message):
        gpu.mla_decode(**arguments)
    if "rung" not in change:
        w_vc = torch.zeros(3, 16, 4, device=gpu.DEVICE)
        with pytest.raises(ValueError, match=message):
            gpu.decode_attention(**arguments, w_vc=w_vc)


def test_tensors_elsewhere_are_refused():
    b = batch(1, 3, [3], 16, 8)
    with pytest.raises(ValueError, match=rf"queries lies on meta; the kernels run on {gpu.DEVICE}: queries.to\("):
        decode(b._replace(queries=b.queries.to("meta")))


def test_cache_formats_and_widths_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="no cache format 'int4'; the choices are: bf16_mla, fp8_ds_mla"):
        gpu.PagedCache.empty(1, 1, 4, 2, "int4")
    with pytest.raises(ValueError, match="latent_dim is 6; the scales behind the codes need a multiple of 4"):
        gpu.PagedCache.empty(1, 1, 6, 2, "fp8_ds_mla")
    with pytest.raises(ValueError, match="rope_dim is 3; it must be even"):
        gpu.PagedCache.empty(1, 1, 4, 3, "fp8_ds_mla")


def test_where_kernels_are_not_interpreted_nothing_is_watched(monkeypatch):
    monkeypatch.setattr("ledger.kernels.interpret.watched.INTERPRETED", False)
    with pytest.raises(RuntimeError, match="set TRITON_INTERPRET=1"), watched():
        pass


# A wrong kernel is found


def battery(**options):
    """The largest errors for inputs that between them find what a decode kernel can get wrong."""
    for b, scale in [
        (batch(2, 3, [0, 1, 33, 50], 16, 8, page=13), SCALE),
        (sloping(-8, 8, 100), 1.0),
        (batch(1, 3, [20], 160, 8, page=13, fp8=True), SCALE),
        (sloping(800, -800), 1.0),
    ]:
        yield worst(decode(b, scale, **options), decoded(b, scale))


def ladder(kernel: str) -> list[dict]:
    """The ways to call ``mla_decode`` that run ``kernel``."""
    return [{"rung": "one_head"}] if kernel == "one_head" else [{"num_splits": 1}, {"num_splits": 3}]


@pytest.mark.parametrize(("kernel", "old", "new"), [
    ("shared_tile", "tl.maximum(m_i, tl.max(b_scores, axis=1))", "tl.max(b_scores, axis=1)"),
    ("one_head", "tl.maximum(m_i, tl.max(b_scores, axis=0))", "tl.max(b_scores, axis=0)"),
    ("shared_tile", "acc * b_rescale[:, None] + tl.dot", "acc + tl.dot"),
    ("one_head", "acc * b_rescale + tl.sum", "acc + tl.sum"),
    ("shared_tile", "l_i * b_rescale + tl.sum(b_weights, axis=1)", "l_i + tl.sum(b_weights, axis=1)"),
    ("shared_tile", "m_token[None, :] & (i_token[None, :] < seen[:, None])", "m_token[None, :]"),
    ("shared_tile", "m_token[None, :] & (i_token[None, :] < seen[:, None])", "i_token[None, :] < seen[:, None] + 1"),
    ("shared_tile", "m_token = i_token < stop", "m_token = i_token < stop + 1"),
    ("one_head", "m_token = i_token < seen", "m_token = i_token < seen + 1"),
    ("one_head", "seen = length - (new_tokens - 1 - i_token_row)\n    i_latent", "seen = length\n    i_latent"),
    ("shared_tile", "i_token_row, i_head = i_row // num_heads, i_row % num_heads\n    m_row",
     "i_token_row, i_head = i_row % new_tokens, i_row // new_tokens\n    m_row"),
    ("shared_tile", "b_scores += tl.dot(b_query_rope, tl.trans(b_rope), input_precision=\"ieee\")", ""),
    ("shared_tile", "float(\"-inf\"), m_i + tl.log(l_safe)", "float(\"-inf\"), m_i + tl.log2(l_safe)"),
    ("shared_tile", "float(\"-inf\"), m_i + tl.log(l_safe)", "float(\"inf\"), m_i + tl.log(l_safe)"),
    ("shared_tile", "tl.where(m_new == float(\"-inf\"), 0.0, m_new)  #", "m_new  #"),
    ("combine", "acc += b_weight[:, None] * b_part", "acc += b_part"),
    ("combine", "m_i = tl.maximum(m_i, b_lse)", "m_i = b_lse"),
    ("combine", "return acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None]", "return acc"),
    ("shared_tile", " * b_scales[:, :, None]", " * tl.max(b_scales, axis=1)[:, None, None]"),
    ("shared_tile", "last = first + least + tl.where(i_split < more, 1, 0)", "last = first + least"),
])  # fmt: skip
def test_a_wrong_decode_kernel_is_found(monkeypatch, tmp_path, root, kernel, old, new):
    if not gpu.INTERPRETED:
        pytest.skip("a wrong kernel may reach outside of its tensors, which only the interpreter survives")
    text = (root / "kernels" / "gpu" / "mla_decode.py").read_text()
    if text.count(old) != 1:  # both kernels may have it
        before, found, after = text.partition(f"def {kernel}(")
        assert found
        assert old in after
        text = before + found + after.replace(old, new, 1)
    else:
        text = text.replace(old, new)
    path = tmp_path / "mutant.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("mutant", path)
    mutant = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mutant)
    for name in ("one_head", "shared_tile", "combine"):
        monkeypatch.setattr(gpu, name, getattr(mutant, name))
    with watched(), np.errstate(all="ignore"):
        try:
            found = any(error > 1e-2 for options in ladder(kernel) for error in battery(**options))
        except OutOfBoundsError:
            found = True
    assert found


@pytest.mark.parametrize("kernel", ["one_head", "shared_tile"])
def test_the_right_decode_kernel_is_not(kernel):
    for options in ladder(kernel):
        assert max(battery(**options)) < 2e-4  # a float32 near 800 has steps of 6e-5


# value_up


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("new_tokens", "heads", "lengths", "value"), [
    (1, 3, [0, 1, 63], 33), (3, 2, [1, 40, 2], 8), (1, 1, [3] * 17, 130), (4, 5, [20, 3], 1),
])  # fmt: skip
def test_decode_attention_projects_what_decode_mixes(new_tokens, heads, lengths, value, dtype):
    latent, rope_dim = 80, 24
    b = batch(new_tokens, heads, lengths, latent, rope_dim, dtype=dtype)
    rng = np.random.default_rng(3)
    w_vc = tensor(rng.standard_normal((heads, latent, value)) * latent**-0.5, dtype)
    cache = np.full((len(lengths), max(1, *lengths), latent + rope_dim), np.nan)
    for request, entries in enumerate(b.entries):
        cache[request, : len(entries)] = entries
    new = [new_tokens] * len(lengths)
    want = layer.decode_absorbed_batch(wide(b.queries), cache, new, lengths, wide(w_vc), latent, SCALE)
    lying = w_vc.transpose(1, 2).contiguous().transpose(1, 2), w_vc, strided(w_vc)
    for weights, num_splits in zip(lying, (3, 1, None), strict=True):
        if num_splits and dtype != F32:
            continue
        got = gpu.decode_attention(*b[:4], weights, SCALE, num_splits=num_splits)
        assert_values(got, want, dtype)
    apart = np.einsum("bshc,hcv->bshv", wide(decode(b).out), wide(w_vc))
    np.testing.assert_allclose(apart, wide(got), rtol=0, atol={F32: 1e-5}.get(dtype, 2.0 ** -DIGITS[dtype] * 4))


def test_decode_attention_at_a_models_widths():
    b = batch(1, 16, [65, 0], 512, 64, dtype=BF16, fp8=True)
    kv_b = tensor(np.random.default_rng(4).standard_normal((16, 256, 512)) * 512**-0.5, BF16)
    w_vc = kv_b[:, 128:].transpose(1, 2)
    got = gpu.decode_attention(b.queries, b.cache, b.block_table, b.lengths, w_vc, 192**-0.5)
    mixed, _ = decoded(b, 192**-0.5)
    assert_values(got, np.einsum("bshc,hcv->bshv", mixed, wide(w_vc)), BF16)


def test_decode_attention_checks_its_matrices_and_takes_nothing():
    b = batch(1, 3, [3], 16, 8)
    with pytest.raises(ValueError, match=r"w_vc must be \(num_heads, latent_dim, value_dim\) = \(3, 16, None\)"):
        gpu.decode_attention(*b[:4], torch.zeros(3, 17, 4, device=gpu.DEVICE), SCALE)
    none = gpu.decode_attention(*b[:4], torch.zeros(3, 16, 0, device=gpu.DEVICE), SCALE)
    assert none.shape == (1, 1, 3, 0)


# absorb_heads


def queries_for(new_tokens, heads, nope, latent, rope_dim, dtype, seed=5):
    rng = np.random.default_rng(seed)
    shapes = (new_tokens, heads, nope), (new_tokens, heads, rope_dim), (heads, nope, latent)
    positions = torch.from_numpy(rng.integers(0, 100_000, new_tokens)).to(gpu.DEVICE)
    if new_tokens > 1:
        positions[0], positions[1] = 0, 131_071
    return *(tensor(rng.standard_normal(shape), dtype) for shape in shapes), positions


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("new_tokens", "heads", "nope", "latent", "rope_dim"), [
    (1, 1, 1, 1, 2), (17, 2, 65, 130, 6), (4, 2, 64, 128, 64), (2, 9, 12, 5, 4), (33, 2, 7, 3, 0),
])  # fmt: skip
def test_absorbed_queries_beside_rotated_ones(new_tokens, heads, nope, latent, rope_dim, dtype, interleaved):
    q_nope, q_rope, w_kc, positions = queries_for(new_tokens, heads, nope, latent, rope_dim, dtype)
    content = mla.absorb_heads(wide(q_nope), wide(w_kc))
    turned = rope.apply_rope(wide(q_rope), positions.cpu().numpy(), 1e4, interleaved)
    lying = strided(q_nope), strided(q_rope), w_kc.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    if dtype != F32:
        lying = q_nope, q_rope, w_kc
    got = gpu.absorb_heads(*lying, positions, 1e4, interleaved=interleaved)
    assert_values(got, np.concatenate([content, turned], -1), dtype)


def test_absorbed_queries_at_a_models_widths_are_the_layers():
    q_nope, q_rope, _, positions = queries_for(3, 4, 128, 512, 64, BF16)
    kv_b = tensor(np.random.default_rng(6).standard_normal((4, 256, 512)) * 128**-0.5, BF16)
    w_kc = kv_b[:, :128]  # as it lies in the packed matrix
    want = layer.absorbed_queries(wide(q_nope), wide(q_rope), wide(w_kc), positions.cpu().numpy(), 1e4)
    assert_values(gpu.absorb_heads(q_nope, q_rope, w_kc, positions, 1e4), want, BF16)


@pytest.mark.parametrize(("which", "size", "message"), [
    (0, (2, 3), r"q_nope must be a tensor \(new_tokens, num_heads, nope_dim\)"),
    (1, (2, 4, 6), r"q_rope must be \(new_tokens, num_heads, rope_dim\) = \(2, 3, None\); got \(2, 4, 6\)"),
    (1, (2, 3, 5), "rope_dim is 5; it must be even"),
    (2, (3, 5, 7), r"w_kc must be \(num_heads, nope_dim, latent_dim\) = \(3, 4, None\)"),
    (3, (3,), r"positions must be \(tokens\) = \(2,\); got \(3,\)"),
])  # fmt: skip
def test_absorb_heads_refuses_what_does_not_fit(which, size, message):
    arguments = list(queries_for(2, 3, 4, 7, 6, F32))
    arguments[which] = torch.zeros(size, device=gpu.DEVICE)
    with pytest.raises(ValueError, match=message):
        gpu.absorb_heads(*arguments, 1e4)
    with pytest.raises(ValueError, match=r"got torch\.float64"):
        gpu.absorb_heads(*(x.double() for x in queries_for(2, 3, 4, 7, 6, F32)), 1e4)


def test_no_queries_are_absorbed_into_none():
    assert gpu.absorb_heads(*queries_for(0, 3, 4, 7, 6, F32), 1e4).shape == (0, 3, 13)


# write_cache


def written(tokens, latent, rope_dim, page, dtype, cache_format, interleaved, seed=7):
    """A cache of random bytes after ``write_cache``, the bytes before, the slots, and what it must hold."""
    rng = np.random.default_rng(seed)
    raw = tensor(3 * rng.standard_normal((tokens, latent + rope_dim)), dtype)  # as one projection makes them
    norm_weight = tensor(1 + 0.2 * rng.standard_normal(latent), dtype)
    positions = torch.from_numpy(rng.integers(0, 100_000, tokens)).to(gpu.DEVICE)
    cache = gpu.PagedCache.empty(-(-tokens // page) + 2, page, latent, rope_dim, cache_format, dtype)
    held = cache.pages.view(torch.uint8)
    held.copy_(torch.from_numpy(rng.integers(0, 256, held.shape, dtype=np.uint8)))
    before = held.clone()
    slots = torch.from_numpy(rng.permutation(len(cache.pages) * page)[:tokens]).to(gpu.DEVICE)
    slots[::3] = -1
    gpu.write_cache(
        *(cache, raw[:, :latent], raw[:, latent:], norm_weight, positions, slots, EPS, 1e4), interleaved=interleaved
    )
    normed = layer.rms_norm(wide(raw[:, :latent]), wide(norm_weight), EPS)
    turned = rope.apply_rope(wide(raw[:, latent:]), positions.cpu().numpy(), 1e4, interleaved)
    if interleaved:
        one = layer.cache_entry(
            *(wide(x) for x in (raw[:, :latent], raw[:, latent:])),
            positions.cpu().numpy(),
            wide(norm_weight),
            EPS,
            1e4,
        )
        np.testing.assert_allclose(one, np.concatenate([normed, turned], -1), atol=1e-12)
    return cache, before, slots, np.concatenate([normed, turned], -1)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("tokens", "latent", "rope_dim", "page"), [
    (1, 1, 2, 1), (20, 33, 6, 7), (5, 512, 64, 64), (4, 130, 0, 2),
])  # fmt: skip
def test_entries_are_normalised_and_rotated(tokens, latent, rope_dim, page, dtype, interleaved):
    cache, before, slots, want = written(tokens, latent, rope_dim, page, dtype, "bf16_mla", interleaved)
    kept = slots >= 0
    places = slots[kept]
    assert_values(cache.pages.flatten(0, 1)[places], want[kept.cpu().numpy()], dtype)
    others = torch.ones(len(before) * page, dtype=torch.bool, device=gpu.DEVICE)
    others[places] = False
    assert torch.equal(cache.pages.view(torch.uint8).flatten(0, 1)[others], before.flatten(0, 1)[others])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("tokens", "latent", "rope_dim", "page"), [
    (5, 512, 64, 64), (20, 132, 6, 7), (4, 4, 2, 2), (3, 128, 0, 5), (2, 300, 16, 3), (4, 300, 0, 3),
])  # fmt: skip
def test_fp8_entries_are_codes_scales_and_a_bf16_key(tokens, latent, rope_dim, page, dtype):
    cache, before, slots, want = written(tokens, latent, rope_dim, page, dtype, "fp8_ds_mla", True)
    kept = (slots >= 0).cpu().numpy()
    got = cache.pages.flatten(0, 1).cpu()[slots.cpu()[kept]].numpy()
    tiles = -(-latent // 128)
    assert got.shape[1] == latent + 4 * tiles + 2 * rope_dim
    codes = torch.from_numpy(got[:, :latent].copy()).view(torch.float8_e4m3fn).double().numpy()
    scales = got[:, latent : latent + 4 * tiles].copy().view(np.float32)
    for tile in range(tiles):
        part = slice(tile * 128, min(latent, (tile + 1) * 128))
        here = want[kept, part]
        np.testing.assert_allclose(scales[:, tile], np.abs(here).max(1) / 448, rtol=1e-5)
        exact = here / scales[:, tile, None].astype(np.float64)
        step = np.ldexp(1.0, np.maximum(np.frexp(exact)[1] - 1, -6) - 3)
        assert (np.abs(codes[:, part] - exact) <= 0.5 * step + 1e-5 * np.abs(exact)).all()
    keys = torch.from_numpy(got[:, latent + 4 * tiles :].copy().view(np.uint16).view(np.int16)).view(BF16)
    assert_values(keys, want[kept, latent:], BF16)
    others = torch.ones(len(before) * page, dtype=torch.bool, device=gpu.DEVICE)
    others[slots[slots >= 0]] = False
    assert torch.equal(cache.pages.flatten(0, 1)[others], before.flatten(0, 1)[others])


def test_an_fp8_tile_of_zeros_is_zero():
    cache = gpu.PagedCache.empty(1, 2, 256, 2, "fp8_ds_mla")
    raw = torch.zeros(1, 256, device=gpu.DEVICE)
    raw[0, 200] = -3
    at = torch.ones(1, dtype=torch.int64, device=gpu.DEVICE)
    gpu.write_cache(
        cache, raw, torch.ones(1, 2, device=gpu.DEVICE), torch.ones(256, device=gpu.DEVICE), 0 * at, at, 1e-6, 1e4
    )
    entry = wide(cache.entries()[0, 1])
    assert entry[200] == pytest.approx(-16, rel=1e-4)
    assert not np.delete(entry, [200, 256, 257]).any()
    assert not cache.latent[0, 1, :128].any()
    np.testing.assert_allclose(wide(cache.scales[0, 1]), [1e-4 / 448, 16 / 448], rtol=1e-4)
    assert entry[256:].tolist() == [1, 1]
    assert (cache.pages[0, 0] == 255).all()


def test_what_is_written_is_what_decode_reads():
    cache, _, slots, want = written(9, 128, 16, 4, BF16, "fp8_ds_mla", True)
    for token in (slots >= 0).nonzero()[:2, 0].tolist():
        alone = gpu.PagedCache(cache.pages.view(-1, 1, cache.pages.shape[2]), 128, 16)
        table = slots[token].int().view(1, 1)
        query = torch.zeros(1, 1, 1, 144, device=gpu.DEVICE)
        out, _ = gpu.mla_decode(query, alone, table, torch.ones_like(table[0]), 1.0)
        np.testing.assert_allclose(wide(out)[0, 0, 0], want[token, :128], rtol=2**-4, atol=2e-2)
        np.testing.assert_allclose(wide(out)[0, 0, 0], wide(alone.entries())[table.item(), 0, :128], rtol=1e-6)


@pytest.mark.parametrize(("change", "message"), [
    ({"latents": (2, 17)}, r"latents \(2, 17\) and k_rope \(2, 8\) do not fit a cache of 16 \+ 8"),
    ({"k_rope": (3, 8)}, r"latents \(2, 16\) and k_rope \(3, 8\) do not fit"),
    ({"latents": (16,)}, "latents must be a tensor"),
    ({"norm_weight": (15,)}, r"norm_weight must be \(latent_dim\) = \(16,\)"),
    ({"slots": (3,)}, r"slots must be \(tokens\) = \(2,\)"),
    ({"positions": (1,)}, r"positions must be \(tokens\) = \(2,\)"),
    ({"slots": [0, 10]}, "slots lie in 0 … 10; the cache has 0 … 9"),
    ({"slots": [-2, 1]}, "slots lie in -2 … 1; the cache has 0 … 9"),
])  # fmt: skip
def test_write_cache_refuses_what_does_not_fit(change, message):
    sizes = {"latents": (2, 16), "k_rope": (2, 8), "norm_weight": (16,), "positions": (2,), "slots": (2,)} | change
    arguments = {
        name: torch.tensor(size, device=gpu.DEVICE)
        if isinstance(size, list)
        else torch.zeros(size, device=gpu.DEVICE, dtype=torch.int64 if name in ("positions", "slots") else F32)
        for name, size in sizes.items()
    }
    cache = gpu.PagedCache.empty(2, 5, 16, 8, dtype=F32)
    with pytest.raises(ValueError, match=message):
        gpu.write_cache(cache, **arguments, eps=1e-6, theta=1e4)
    assert cache.pages.isnan().all()


def test_no_tokens_write_nothing():
    cache, before, _, _ = written(0, 16, 8, 4, BF16, "bf16_mla", True)
    assert torch.equal(cache.pages.view(torch.uint8), before)


# Numbers


@triton.jit
def convert(p_in, p_codes, p_back, p_rounded, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    codes = to_e4m3(tl.load(p_in + at))
    tl.store(p_codes + at, codes)
    tl.store(p_back + at, from_e4m3(codes))
    tl.store(p_rounded + at, rounded(tl.load(p_in + at), p_rounded.dtype.element_ty))


def converted(x: np.ndarray, dtype=BF16):
    """What the kernels' helpers make of float32 ``x``: codes, the numbers behind them, and ``x`` rounded."""
    size = -(-len(x) // 4096) * 4096
    padded = tensor(np.pad(x, (0, size - len(x))))
    codes, back = torch.empty_like(padded, dtype=torch.uint8), torch.empty_like(padded)
    near = torch.empty_like(padded, dtype=dtype)
    convert[(size // 4096,)](padded, codes, back, near, BLOCK=4096)
    return codes[: len(x)].cpu(), back[: len(x)].cpu(), near[: len(x)].cpu()


def every_kind_of_float32() -> np.ndarray:
    """Every upper half of a float32 but NaN, before each lower half that rounding can tell apart."""
    upper = np.arange(2**16, dtype=np.uint32)[:, None] << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    x = (upper | lower).ravel().view(np.float32)
    return x[~np.isnan(x)]


def test_e4m3_codes_are_torchs_for_every_kind_of_number():
    x = every_kind_of_float32()
    codes, back, near = converted(x)
    want = torch.from_numpy(x).clamp(-448, 448).to(torch.float8_e4m3fn)
    np.testing.assert_array_equal(codes.numpy(), want.view(torch.uint8).numpy())
    np.testing.assert_array_equal(back.numpy().view(np.uint32), want.float().numpy().view(np.uint32))
    np.testing.assert_array_equal(
        near.view(torch.int16).numpy(), torch.from_numpy(x).bfloat16().view(torch.int16).numpy()
    )
    np.testing.assert_array_equal(numbers.to_e4m3(x), codes.numpy())
    np.testing.assert_array_equal(numbers.rounded(x, np.uint16), near.view(torch.int16).numpy().view(np.uint16))


def test_every_e4m3_code_is_read_and_written_back():
    codes = torch.arange(256, dtype=torch.uint8)
    numbers_of = codes.view(torch.float8_e4m3fn).float().numpy()
    finite = ~np.isnan(numbers_of)
    assert (~finite).sum() == 2
    again, back, _ = converted(numbers_of[finite])
    np.testing.assert_array_equal(again.numpy(), codes.numpy()[finite])
    np.testing.assert_array_equal(back.numpy().view(np.uint32), numbers_of[finite].view(np.uint32))
    read = numbers.from_e4m3(codes.numpy())[finite]
    np.testing.assert_array_equal(read.view(np.uint32), numbers_of[finite].view(np.uint32))


@pytest.mark.parametrize(("x", "code"), [
    (0.0, 0x00), (-0.0, 0x80), (2.0**-9, 0x01), (2.0**-10, 0x00), (3 * 2.0**-10, 0x02), (7 * 2.0**-9, 0x07),
    (15 * 2.0**-10, 0x08), (2.0**-6, 0x08), (1.0, 0x38), (1.0625, 0x38), (1.1875, 0x3A), (1.9375, 0x40), (448.0, 0x7E),
    (464.0, 0x7E), (1e9, 0x7E), (float("inf"), 0x7E), (-1e9, 0xFE), (1e-30, 0x00), (-1e-30, 0x80),
])  # fmt: skip
def test_codes_at_the_ends_and_on_ties(x, code):
    assert converted(np.array([x], np.float32))[0].item() == code


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_nan_stays_one(dtype):
    x = np.array([0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF800001], np.uint32).view(np.float32)
    assert converted(x, dtype)[2].isnan().all()
    assert np.isnan(numbers.widened(numbers.rounded(x, np.uint16))).all()


def test_float16_is_rounded_to_nearest():
    x = np.concatenate([np.linspace(-3, 3, 4097), [65504, 1e-7, -0.0]]).astype(np.float32)
    near = converted(x, F16)[2]
    np.testing.assert_array_equal(near.view(torch.int16).numpy(), torch.from_numpy(x).half().view(torch.int16).numpy())


def test_products_of_other_numbers_are_refused():
    with pytest.raises(ValueError, match=r"bfloat16, float16 or float32; got torch\.int32"):
        dot_dtype(torch.int32)


# materialize_prefill


def prompt(new_tokens, cached_tokens, heads, nope, rope_dim, latent, value, dtype, seed=8):
    rng = np.random.default_rng(seed)
    shapes = [
        (new_tokens, heads, nope),
        (new_tokens, heads, rope_dim),
        (cached_tokens, latent),
        (cached_tokens, rope_dim),
    ]
    kv_b = rng.standard_normal((heads, nope + value, latent)) * latent**-0.5
    return [*(strided(tensor(rng.standard_normal(shape), dtype)) for shape in shapes), strided(tensor(kv_b, dtype))]


def attended(q_nope, q_rope, latents, k_rope, kv_b, scale, first_position):
    """In float64 from keys and values rounded as the kernel keeps them; a row that sees nothing gives 0 and −inf."""
    nope = q_nope.shape[2]
    expanded = np.einsum("tc,hwc->htw", wide(latents), wide(kv_b))
    expanded = torch.from_numpy(expanded).to(q_nope.dtype).double().numpy()
    keys, vals = expanded[..., :nope], expanded[..., nope:]
    scores = np.einsum("shn,htn->sht", wide(q_nope), keys) + np.einsum("shr,tr->sht", wide(q_rope), wide(k_rope))
    new_tokens, cached_tokens = len(q_nope), len(latents)
    if first_position is not None:
        seen = np.arange(cached_tokens) <= first_position + np.arange(new_tokens)[:, None]
        scores = np.where(seen[:, None], scores, -np.inf)
    weights, lse = values.softmax_lse(scale * scores)
    return np.einsum("sht,htv->shv", weights, vals), lse


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("first_position", [0, None, "after", -2])
@pytest.mark.parametrize(("new_tokens", "cached_tokens", "heads", "nope", "rope_dim", "latent", "value"), [
    (1, 1, 1, 1, 2, 1, 1), (70, 70, 2, 24, 8, 40, 12), (9, 150, 3, 16, 16, 70, 33), (65, 130, 1, 5, 0, 8, 40),
])  # fmt: skip
def test_prefill_attends_to_what_it_expands(
    new_tokens, cached_tokens, heads, nope, rope_dim, latent, value, first_position, dtype
):
    arguments = prompt(new_tokens, cached_tokens, heads, nope, rope_dim, latent, value, dtype)
    first = cached_tokens - new_tokens if first_position == "after" else first_position
    got = gpu.materialize_prefill(*arguments, SCALE, first_position=first)
    # an expanded key on a tie of its 16 bits may be rounded to either side
    assert_decoded(got, attended(*arguments, SCALE, first), dtype, tight=5e-6 if dtype == F32 else 2e-4)


@pytest.mark.parametrize("first_position", [0, 5, None])
def test_prefill_is_the_layer_and_torchs_attention(first_position):
    heads, nope, value = 3, 24, 12
    arguments = prompt(20, 25, heads, nope, 8, 40, value, F32)
    out, _ = gpu.materialize_prefill(*arguments, SCALE, first_position=first_position)
    q_nope, q_rope, latents, k_rope, kv_b = (x.double().cpu() for x in arguments)
    w_kc, w_vc = mla.split_kv_b(kv_b.flatten(0, 1).numpy(), heads, nope, value)
    causal, at = first_position is not None, ((first_position or 0) + np.arange(20), np.arange(25))
    want = layer.attend_materialized(
        *(x.numpy() for x in (q_nope, q_rope, latents, k_rope)), w_kc, w_vc, SCALE, causal, at
    )
    assert_values(out, want, F32)
    expanded = torch.einsum("tc,hwc->htw", latents, kv_b)
    keys = torch.cat([expanded[..., :nope], k_rope.expand(heads, -1, -1)], -1)
    mask = torch.from_numpy(at[1] <= at[0][:, None]) if causal else None
    sdpa = torch.nn.functional.scaled_dot_product_attention(
        torch.cat([q_nope, q_rope], -1).transpose(0, 1), keys, expanded[..., nope:], attn_mask=mask, scale=SCALE
    )
    assert_values(out, sdpa.transpose(0, 1).numpy(), F32)


def test_prefill_at_a_models_widths():
    arguments = prompt(70, 70, 2, 128, 64, 512, 128, BF16)
    got = gpu.materialize_prefill(*arguments, 192**-0.5)
    assert_decoded(got, attended(*arguments, 192**-0.5, 0), BF16, tight=2e-4)


@pytest.mark.parametrize("cut", [0, 1, 64, 100])
def test_a_cached_context_merges_by_its_lse(cut):
    """New tokens after ``cut`` cached ones: the context unmasked, the new ones causal, and their merge."""
    q_nope, q_rope, latents, k_rope, kv_b = prompt(30, cut + 30, 2, 24, 8, 40, 12, F32)
    one = gpu.materialize_prefill(q_nope, q_rope, latents, k_rope, kv_b, SCALE, first_position=cut)
    context = gpu.materialize_prefill(q_nope, q_rope, latents[:cut], k_rope[:cut], kv_b, SCALE, first_position=None)
    new = gpu.materialize_prefill(q_nope, q_rope, latents[cut:], k_rope[cut:], kv_b, SCALE)
    parts = [np.stack([wide(a), wide(b)]) for a, b in zip(context, new, strict=True)]
    assert_decoded(one, values.merge_partials(*parts), F32)


@pytest.mark.parametrize("first_position", [0, None])
def test_prefill_over_no_keys_gives_zero_and_minus_infinity(first_position):
    out, lse = gpu.materialize_prefill(*prompt(3, 0, 2, 4, 2, 5, 6, F32), SCALE, first_position=first_position)
    assert (out == 0).all()
    assert (lse == -torch.inf).all()
    assert gpu.materialize_prefill(*prompt(0, 3, 2, 4, 2, 5, 6, F32), SCALE).out.shape == (0, 2, 6)


@pytest.mark.parametrize(("first", "last"), [(800, -800), (-800, 800)])
def test_prefill_of_scores_that_slope(first, last):
    q_nope, q_rope, latents, k_rope, kv_b = prompt(1, 200, 1, 4, 2, 5, 6, F32)
    q_nope.zero_()
    q_rope.copy_(torch.tensor([1.0, 0.0]))
    k_rope[:, 0] = torch.linspace(first, last, 200)
    arguments = q_nope, q_rope, latents, k_rope, kv_b, 1.0
    got = gpu.materialize_prefill(*arguments, first_position=None)
    assert_decoded(got, attended(*arguments, None), F32)


@pytest.mark.parametrize(("which", "size", "message"), [
    (0, (2, 3), r"q_nope must be a tensor \(new_tokens, num_heads, nope_dim\)"),
    (1, (2, 4, 6), r"q_rope must be \(new_tokens, num_heads, rope_dim\) = \(2, 3, None\)"),
    (2, (5,), r"latents must be a tensor \(cached_tokens, latent_dim\)"),
    (3, (6, 6), r"k_rope must be \(cached_tokens, rope_dim\) = \(5, 6\)"),
    (4, (3, 12, 9), r"kv_b must be \(num_heads, nope_dim \+ value_dim, latent_dim\) = \(3, None, 8\)"),
    (4, (3, 4, 8), "kv_b has 4 rows a head; nope_dim 4 leaves none for values"),
])  # fmt: skip
def test_prefill_refuses_what_does_not_fit(which, size, message):
    arguments = prompt(2, 5, 3, 4, 6, 8, 8, F32)
    arguments[which] = torch.zeros(size, device=gpu.DEVICE)
    with pytest.raises(ValueError, match=message):
        gpu.materialize_prefill(*arguments, SCALE)
    with pytest.raises(ValueError, match=r"got torch\.float64"):
        gpu.materialize_prefill(*(x.double() for x in prompt(2, 5, 3, 4, 6, 8, 8, F32)), SCALE)


# The twins


@pytest.mark.parametrize("rung", gpu.RUNGS)
@pytest.mark.parametrize(("dtype", "fp8"), [(F32, False), (BF16, False), (F16, False), (BF16, True), (F32, True)])
def test_the_decode_twins_are_the_kernels(monkeypatch, rung, dtype, fp8):
    latent, rope_dim, num_splits = 160, 8, 3 if rung == "split_kv" else 1
    b = batch(2, 9 if rung != "one_head" else 2, [0, 1, 50], latent, rope_dim, dtype=dtype, fp8=fp8, page=13)
    monkeypatch.setattr(gpu, "decode_blocks", lambda *_: Blocks(16, 16, 4, 1))
    queries = memory(b.queries)
    requests, new_tokens, heads, _ = queries.shape
    rows = new_tokens * heads
    p_out, p_lse = fresh((requests, num_splits, rows, latent), "f4"), fresh((requests, num_splits, rows), "f4")
    kernel = mla_decode_paged.one_head if rung == "one_head" else mla_decode_paged.shared_tile
    kernel(
        *(queries, *twin_cache(b.cache), memory(b.block_table), memory(b.lengths), p_out, p_lse),
        *(heads, new_tokens, num_splits, 13, SCALE),
        LATENT=latent,
        BLOCK_T=16,
        FP8=fp8,
    )
    out, lse = fresh((requests, rows, latent), queries.dtype), fresh((requests, rows), "f4")
    mla_decode_paged.combine(p_out, p_lse, out, lse, rows)
    got = decode(b, rung=rung, num_splits=num_splits)
    assert_twin(got.out.flatten(1, 2), out)
    assert_twin(got.lse.flatten(1, 2), lse)
    if dtype == F32:
        want = decoded(b)
        assert (
            worst(
                gpu.Decoded(*map(torch.from_numpy, (out, lse))), [x.reshape(requests, rows, *x.shape[3:]) for x in want]
            )
            < 1e-5
        )

    w_vc = tensor(np.random.default_rng(9).standard_normal((heads, latent, 19)) * latent**-0.5, dtype)
    up = fresh((requests, new_tokens, heads, 19), queries.dtype)
    value_up.value_up(p_out, p_lse, memory(w_vc), up, requests, new_tokens, heads, latent, 19, BLOCK_V=8, BLOCK_B=3)
    if rung == "split_kv":
        assert_twin(gpu.decode_attention(*b[:4], w_vc, SCALE, num_splits=num_splits), up)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_absorb_twin_is_the_kernel(dtype, interleaved):
    q_nope, q_rope, w_kc, positions = queries_for(19, 3, 70, 130, 6, dtype)
    got = gpu.absorb_heads(q_nope, q_rope, w_kc, positions, 1e4, interleaved=interleaved)
    cos, sin = rope.rope_tables(positions.cpu().numpy(), 6, 1e4)
    out = fresh((19, 3, 136), memory(q_nope).dtype)
    absorb_query_rows.absorb_heads(
        *(memory(q_nope), memory(q_rope), memory(w_kc), cos.astype("f4"), sin.astype("f4"), out, 19),
        NOPE=70,
        LATENT=130,
        ROPE=6,
        INTERLEAVED=interleaved,
    )
    assert_twin(got, out)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("dtype", "cache_format"), [
    (F32, "bf16_mla"), (F16, "bf16_mla"), (BF16, "bf16_mla"), (BF16, "fp8_ds_mla"), (F32, "fp8_ds_mla"),
])  # fmt: skip
def test_the_write_twin_is_the_kernel(dtype, cache_format, interleaved):
    latent, rope_dim, page = 132, 6, 4
    rng = np.random.default_rng(10)
    raw, k_rope = tensor(rng.standard_normal((5, latent)), dtype), tensor(rng.standard_normal((5, rope_dim)), dtype)
    norm = tensor(1 + 0.2 * rng.standard_normal(latent), dtype)
    positions, slots = torch.tensor([0, 7, 3, 99, 100_000]), torch.tensor([5, -1, 0, 7, 2])
    cache = gpu.PagedCache.empty(2, page, latent, rope_dim, cache_format, dtype)
    latents, scales, keys = twin_cache(cache)
    before = latents.copy(), keys.copy()
    cos, sin = rope.rope_tables(positions.numpy(), rope_dim, 1e4)
    write_cache.write_cache(
        *(memory(raw), memory(k_rope), memory(norm), cos.astype("f4"), sin.astype("f4"), slots.numpy()),
        *(latents, scales, keys, page, 1e-6),
        LATENT=latent,
        INTERLEAVED=interleaved,
        FP8=cache.fp8,
    )
    positions, slots = positions.to(gpu.DEVICE), slots.to(gpu.DEVICE)
    gpu.write_cache(cache, raw, k_rope, norm, positions, slots, 1e-6, 1e4, interleaved=interleaved)
    at = slots[slots >= 0]
    flat = [torch.from_numpy(x.reshape(-1, x.shape[2]))[at.cpu()] for x in (latents, keys)]
    if cache.fp8:
        assert_twin(cache.scales.flatten(0, 1)[at], scales.reshape(-1, 2)[at.cpu()])
        codes = [x.view(torch.float8_e4m3fn).float() for x in (cache.latent.flatten(0, 1)[at].cpu(), flat[0])]
        assert ((codes[0] - codes[1]).abs() <= codes[1].abs() / 8 + 2**-9).all()  # a tie may fall to either side
        assert (codes[0] == codes[1]).float().mean() > 0.99
    else:
        assert_twin(cache.latent.flatten(0, 1)[at], flat[0].numpy())
    assert_twin(cache.rope.flatten(0, 1)[at], flat[1].numpy())
    untouched = [i for i in range(8) if i not in at.tolist()]
    for was, is_now in zip(before, (latents, keys), strict=True):
        one, other = (x.reshape(8, -1)[untouched].tobytes() for x in (was, is_now))
        assert one == other


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("first_position", [0, 60, None])
def test_the_prefill_twins_are_the_kernels(dtype, first_position):
    q_nope, q_rope, latents, k_rope, kv_b = arguments = prompt(70, 130, 2, 24, 6, 70, 20, dtype)
    expanded = fresh((130, 2, 44), memory(kv_b).dtype)
    materialize_prefill.expand(memory(latents), memory(kv_b), expanded, 130, LATENT=70, WIDTH=44)
    out, lse = fresh((70, 2, 20), expanded.dtype), fresh((70, 2), "f4")
    materialize_prefill.attend(
        *(memory(q_nope), memory(q_rope), expanded, memory(k_rope), out, lse),
        *(70, 130, 2, first_position or 0, SCALE),
        NOPE=24,
        VALUE=20,
        CAUSAL=first_position is not None,
    )
    got = gpu.materialize_prefill(*arguments, SCALE, first_position=first_position)
    assert_twin(got.out, out)
    assert_twin(got.lse, lse)
