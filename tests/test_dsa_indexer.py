"""The exercises of DSA's first part against scalar loops, torch and other routes; what their budgets let through; the
selection as the judge reads it."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest

from ledger import exercises
from ledger.exercises.quantize_index_keys import MIDDLES, NUMBERS
from ledger.judge.launchers import selection
from ledger.judge.notebook import run_here
from ledger.reference import layer, sparse
from ledger.reference.formats import dequantize_e4m3

IDS = ["index_scores", "quantize_index_keys", "select_tokens", "physical_slots", "sparse_decode", "masked_prefill"]
MASTER = Path(__file__).parents[1] / "course" / "practice" / "ch10_dsa" / "indexer.py"
RNG = np.random.default_rng(10)


def bodies():
    """The reference bodies of the master by id."""
    namespace = {"np": np}
    for cell in re.split(r"^(?=# %%)", MASTER.read_text(encoding="utf-8"), flags=re.MULTILINE):
        if 'exercise="' in cell.partition("\n")[0]:
            exec(cell, namespace)
    return {id: namespace[id] for id in IDS}


BODIES = bodies()


def both(id):
    """The master's answer and the oracle of an exercise: what follows holds for either."""
    return pytest.mark.parametrize("answer", [BODIES[id], exercises.get(id).oracle], ids=["answer", "oracle"])


def case(id, name, seed=0):
    exercise = exercises.get(id)
    return tuple(exercise.inputs(exercise.case(name), seed).values())


# Scores


@both("index_scores")
def test_scores_are_those_of_scalar_loops(answer):
    q, k, w = RNG.standard_normal((3, 4, 5)), RNG.standard_normal((7, 5)), RNG.standard_normal((3, 4))
    got = answer(q, k, w)
    for s, t in itertools.product(range(3), range(7)):
        terms = (w[s, h] * max(0.0, math.fsum(q[s, h] * k[t])) for h in range(4))
        assert got[s, t] == pytest.approx(math.fsum(terms), abs=1e-12)


@both("index_scores")
def test_scores_by_hand(answer):
    assert answer(*case("index_scores", "the toy by hand")).tolist() == [[8, 6, 0]]


# Codes


@both("quantize_index_keys")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_codes_and_scales_are_torchs(answer, dtype):
    torch = pytest.importorskip("torch")
    for size in 10.0 ** np.arange(-8, 9, 2):
        k = (size * RNG.standard_normal((20, 128))).astype(np.float32).astype(dtype)
        codes, scales = answer(k)
        exponents = [math.ceil(math.log2(max(np.abs(row).max(), 1e-4) / 448)) for row in k.astype(float)]
        assert scales.dtype == np.float32
        assert scales.tolist() == [2.0**n for n in exponents]
        assert codes.tolist() == torch_codes(torch, k / scales[:, None].astype(dtype))


@both("quantize_index_keys")
def test_every_code_its_neighbours_middles_and_what_lies_just_beside_them_are_torchs(answer):
    torch = pytest.importorskip("torch")
    near = [np.nextafter(np.float32(m), np.float32(end)) for m in MIDDLES[MIDDLES > 0] for end in (0, 1e9)]
    magnitudes = np.concatenate([NUMBERS, MIDDLES, near, [448.0]])
    k = np.concatenate([magnitudes, -magnitudes])[None]
    codes, scales = answer(k)
    assert scales.tolist() == [1.0]
    assert codes.tolist() == torch_codes(torch, k)
    assert set(codes[0].tolist()) == set(range(256)) - {0x7F, 0xFF}


def torch_codes(torch, x):
    return torch.from_numpy(x.astype(np.float32)).to(torch.float8_e4m3fn).view(torch.uint8).tolist()


@both("quantize_index_keys")
@pytest.mark.parametrize(
    ("key", "codes", "scale"),
    [
        ([448, -1, 0.0625, 17], [126, 184, 24, 88], 1),
        ([1, -2], [112, 248], 2**-7),
        ([15.5, 448], [0b0_1011_000, 126], 1),  # a carry
        ([-0.0, 0.0], [0x80, 0], 2**-22),
        ([-1e-9, 300], [0x80, 0b0_1111_001], 1),  # a sign that outlives its number
        ([1e-4, -1e-5], None, 2**-22),
        ([1e-12], [0], 2**-22),
        ([448.001, 2], None, 2),
        ([-447.9, 1], [254, 0b0_0111_000], 1),
        ([2**-9, 448], [1, 126], 1),  # the least subnormal
        ([2**-10, 448], [0, 126], 1),  # a tie with 0
        ([7.5 * 2**-9, 448], [8, 126], 1),  # a subnormal that becomes normal
    ],
)
def test_codes_by_hand(answer, key, codes, scale):
    got, scales = answer(np.array([key], float))
    assert scales.tolist() == [scale]
    if codes is not None:
        assert got.tolist() == [codes]


@both("quantize_index_keys")
def test_what_is_read_back_is_near_and_never_saturated(answer):
    k = RNG.standard_normal((50, 64)) * 10.0 ** RNG.uniform(-3, 3, (50, 1))
    codes, scales = answer(k)
    back = dequantize_e4m3(codes) * scales[:, None]
    allowed = np.maximum(np.abs(k) / 16, scales[:, None] * 2.0**-10)
    assert np.all(np.abs(back - k) <= allowed * (1 + 1e-12))
    assert np.all(np.abs(k).max(axis=1) <= 448 * scales)
    assert np.all(np.abs(k).max(axis=1) > 224 * scales)


def test_nothing_is_drawn_that_float32_does_not_hold_but_the_largest_just_above_a_power():
    """Else a way through float32 would round twice, and miss a code now and then."""
    exercise = exercises.get("quantize_index_keys")
    for one, seed in itertools.product(exercise.cases, range(5)):
        k = exercise.inputs(one, seed)["k"]
        if one.name == "just above a power of two":
            k = k[np.abs(k) < np.abs(k).max(axis=1, keepdims=True)]
        assert np.array_equal(k, k.astype(np.float32).astype(k.dtype)), one.name


@both("quantize_index_keys")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scales_on_both_sides_of_a_power_of_two(answer, dtype):
    powers = [2.0**e for e in range(-15, 30)]
    at = np.array([448 * power for power in powers], dtype)
    for k, want in ((at, powers), (np.nextafter(at, dtype(0)), powers), (np.nextafter(at, dtype(1e30)), at / 224)):
        assert answer(-k[:, None])[1].tolist() == list(want)


# Selection


@both("select_tokens")
def test_selected_are_the_scores_that_torch_selects(answer):
    torch = pytest.importorskip("torch")
    scores = RNG.integers(-3, 4, (30, 40)).astype(float)  # many ties
    lengths = RNG.integers(0, 41, 30)
    scores[np.arange(40) >= lengths[:, None]] = np.nan
    selected = answer(scores, lengths, 12)
    assert (selected.dtype, selected.shape) == (np.int32, (30, 12))
    for row, seen, picks in zip(scores, lengths.tolist(), selected.tolist(), strict=True):
        count = min(seen, 12)
        assert picks[count:] == [-1] * (12 - count)
        assert len(set(picks[:count])) == count
        assert all(0 <= pick < seen for pick in picks[:count])
        right = torch.topk(torch.from_numpy(row[:seen]), count).values.tolist()
        assert sorted(row[picks[:count]], reverse=True) == right


def others(scores, lengths, topk):
    """Of equal scores the last, and in another order."""
    selected = np.full((len(scores), topk), -1, np.int32)
    for row, seen in enumerate(lengths.tolist()):
        best = np.lexsort((-np.arange(seen), -scores[row, :seen]))[:topk]
        selected[row, : len(best)] = np.sort(best)[::-1]
    return selected


def by_partition(scores, lengths, topk):
    selected = np.full((len(scores), topk), -1, np.int32)
    for row, seen in enumerate(lengths.tolist()):
        own = scores[row, :seen]
        best = np.argpartition(own, seen - topk)[seen - topk :] if topk < seen else np.arange(seen)
        selected[row, : len(best)] = best
    return selected


@pytest.mark.parametrize("answer", [others, by_partition])
def test_any_choice_among_equal_scores_passes_in_any_order(answer):
    scores, lengths, topk = case("select_tokens", "many zeros of both signs")
    assert not np.array_equal(answer(scores, lengths, topk), BODIES["select_tokens"](scores, lengths, topk))
    for seed in range(5):
        result = run_here(exercises.get("select_tokens"), answer, seed)
        assert result.verdict == "passed", result.message


def given(rows):
    return lambda scores, lengths, topk: rows


def test_a_selection_is_read_as_a_set():
    scores, lengths = np.array([[2, 0, -0.0, 5, 0, np.nan]]), np.array([5])

    def read(*picks):
        return selection.select_tokens(given(np.array([picks], np.int32)), scores, lengths, len(picks)).tolist()

    assert read(4, 3, 0) == [[0, 1, 3]]
    assert read(0, 2, 3) == [[0, 1, 3]]
    assert read(4, 1, 3) == [[1, 2, 3]]  # token 0 is missing still
    assert read(3, -1, 0) == [[0, -1, 3]]  # padding stays in its place
    assert read(3, 5, 0) == [[0, 5, 3]]  # so does what is not seen
    assert read(3, 0, 6) == [[0, 3, 6]]
    for bad in ((3, 3, 0), (3, 0, 3), (5, 5, 3)):
        assert read(*bad) == [list(bad)]


def test_wrong_selections_of_a_kind_are_read_alike_and_none_becomes_right():
    scores = np.array([[2, 7, np.nan, np.inf, -1, 3]])

    def read(seen, *picks):
        inputs = scores, np.array([seen]), len(picks)
        found = selection.select_tokens(given(np.array([picks], np.int32)), *inputs)
        assert found.tolist() != exercises.get("select_tokens").oracle(*inputs).tolist()
        return found[0].tolist()

    assert read(2, 1, 5, 0, 3) == read(2, 0, 2, 1, 3) == [0, 2, 1, 3]  # tokens that are not seen, by number
    assert read(2, 1, 0, 1, 0) == read(2, 1, 0, 0, 0) == read(2, 0, 1, 1, 1) == [0, 1, 1, 1]  # filled up
    assert read(0, 3, 1) == [0, 1]
    assert read(0, 0, 0) == [0, 0]


@pytest.mark.parametrize(
    "rows", [None, [[0, 1]], np.zeros((1, 2)), np.zeros((1, 2), np.int64), np.zeros((2, 1), np.int32)]
)
def test_what_is_no_selection_comes_back_as_it_is(rows):
    assert selection.select_tokens(given(rows), np.zeros((1, 4)), np.array([4]), 2) is rows


# Slots


@both("physical_slots")
def test_slots_lead_to_the_entries_of_the_tokens(answer):
    """A pool is filled page by page; what lies in a slot must be the token's own entry."""
    page, entries, queries = 5, 6, 4
    tables = RNG.permutation(40)[: queries * entries].reshape(queries, entries).astype(np.int32)
    pool = np.full((40, page), -1)
    for row, token in itertools.product(range(queries), range(entries * page)):
        pool[tables[row, token // page], token % page] = 1000 * row + token
    indices = RNG.integers(-1, entries * page, (queries, 50))
    slots = answer(indices, tables, page)
    assert slots.dtype == np.int64
    assert np.array_equal(slots == -1, indices == -1)
    wanted = 1000 * np.arange(queries)[:, None] + indices
    assert np.array_equal(pool.reshape(-1)[slots[slots >= 0]], wanted[indices >= 0])


@both("physical_slots")
def test_slots_by_hand_and_beyond_32_bits(answer):
    assert answer(*case("physical_slots", "three indices by hand")).tolist() == [[9, 28, -1]]
    assert answer(np.array([[3]], np.int32), np.array([[2**31 - 1]], np.int32), 64).tolist() == [[64 * 2**31 - 61]]


# Attention over the selected


def attention(queries=3, cached=11, heads=2, latent=6, rope=4):
    return RNG.standard_normal((queries, heads, latent + rope)), RNG.standard_normal((cached, latent + rope)), latent


def dense(queries, cache, latent_dim, scale):
    """Mixed latents of dense attention, by torch's own."""
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(x) for x in (queries.swapaxes(0, 1), cache, cache[:, :latent_dim]))
    heads = queries.shape[1]
    out = torch.nn.functional.scaled_dot_product_attention(
        q[None], k.expand(1, heads, *k.shape), v.expand(1, heads, *v.shape), scale=scale
    )
    return out[0].swapaxes(0, 1).numpy()


@both("sparse_decode")
@pytest.mark.parametrize("topk", [11, 12, 40])
def test_top_k_of_the_length_or_more_is_dense_attention(answer, topk):
    queries, cache, latent_dim = attention()
    scores = exercises.get("index_scores").oracle(*(RNG.standard_normal(s) for s in ((3, 4, 5), (11, 5), (3, 4))))
    indices = BODIES["select_tokens"](scores, np.full(3, 11), topk)
    got = answer(queries, cache, indices, latent_dim, 0.3)
    np.testing.assert_allclose(got, dense(queries, cache, latent_dim, 0.3), rtol=0, atol=1e-10)


@both("sparse_decode")
def test_a_selection_is_dense_attention_over_its_entries(answer):
    queries, cache, latent_dim = attention()
    indices = np.array([[4, -1, 7, 2], [10, 0, 3, 1], [-1, 9, 99, -5]], np.int32)
    poisoned = cache.copy()
    poisoned[[5, 6, 8]] = np.nan
    got = answer(queries, poisoned, indices, latent_dim, 0.3)
    for row, picks in enumerate([[4, 7, 2], [10, 0, 3, 1], [9]]):
        right = dense(queries[row : row + 1], cache[picks], latent_dim, 0.3)
        np.testing.assert_allclose(got[row : row + 1], right, rtol=0, atol=1e-12)


@both("sparse_decode")
def test_what_names_nothing_gives_0_even_on_a_cache_of_nan(answer):
    queries, cache, latent_dim = attention()
    for indices in (np.full((3, 5), -1), np.full((3, 5), 11), np.zeros((3, 0), int)):
        got = answer(queries, np.full_like(cache, np.nan), indices, latent_dim, 0.3)
        assert got.shape == (3, 2, latent_dim)
        assert not got.any()


@both("sparse_decode")
def test_the_order_of_a_list_is_nothing(answer):
    queries, cache, latent_dim = attention()
    indices = np.array([RNG.permutation(11)[:5] for _ in range(3)])
    right = answer(queries, cache, indices, latent_dim, 0.3)
    np.testing.assert_allclose(answer(queries, cache, indices[:, ::-1], latent_dim, 0.3), right, atol=1e-14)


@both("sparse_decode")
def test_the_decode_by_hand(answer):
    got = answer(*case("sparse_decode", "the toy by hand"))
    assert got == pytest.approx(np.array([[[2 / 3, 0, 1 / 3]]]))


@both("sparse_decode")
def test_a_float32_cache_keeps_its_dtype(answer):
    queries, cache, latent_dim = attention()
    got = answer(queries.astype(np.float32), cache.astype(np.float32), np.zeros((3, 1), np.int64), latent_dim, 0.3)
    assert got.dtype == np.float32


# Masks


@both("masked_prefill")
def test_a_mask_is_torchs(answer):
    torch = pytest.importorskip("torch")
    q, k, v = (RNG.standard_normal(s) for s in ((4, 3, 5), (9, 3, 5), (9, 3, 7)))
    indices = np.array([[0, 8, -1], [3, -1, 5], [2, 7, 4], [-1, 1, 6]])
    mask = torch.zeros(4, 9, dtype=torch.bool)
    for row, picks in enumerate(indices.tolist()):
        mask[row, [pick for pick in picks if pick >= 0]] = True
    heads_first = (torch.from_numpy(x.swapaxes(0, 1).copy())[None] for x in (q, k, v))
    right = torch.nn.functional.scaled_dot_product_attention(*heads_first, attn_mask=mask, scale=0.4)
    np.testing.assert_allclose(answer(q, k, v, indices, 0.4), right[0].swapaxes(0, 1).numpy(), rtol=0, atol=1e-12)


@both("masked_prefill")
def test_masks_by_hand(answer):
    assert answer(*case("masked_prefill", "the toy by hand")) == pytest.approx(np.array([[[5.0]]]))


@pytest.mark.parametrize("topk", [4, 12, 20])
def test_sparse_prefill_is_masked_prefill(topk):
    """A prompt two ways: latents gathered by index in the absorbed form, and keys and values of every head, masked."""
    tokens, heads, nope, rope, latent, value = 12, 3, 5, 4, 6, 7
    scale = (nope + rope) ** -0.5
    q_nope, q_rope = RNG.standard_normal((tokens, heads, nope)), RNG.standard_normal((tokens, heads, rope))
    latents, k_rope = RNG.standard_normal((tokens, latent)), RNG.standard_normal((tokens, rope))
    w_kc, w_vc = RNG.standard_normal((heads, nope, latent)), RNG.standard_normal((heads, latent, value))
    scores = BODIES["index_scores"](*(RNG.standard_normal(s) for s in ((tokens, 4, 5), (tokens, 5), (tokens, 4))))
    indices = BODIES["select_tokens"](scores, np.arange(1, tokens + 1), topk)

    queries = np.concatenate([np.einsum("shn,hnc->shc", q_nope, w_kc), q_rope], axis=2)
    mixed = BODIES["sparse_decode"](queries, np.concatenate([latents, k_rope], axis=1), indices, latent, scale)
    absorbed = np.einsum("shc,hcv->shv", mixed, w_vc)

    keys = np.concatenate([np.einsum("tc,hnc->thn", latents, w_kc), np.repeat(k_rope[:, None], heads, axis=1)], axis=2)
    values = np.einsum("tc,hcv->thv", latents, w_vc)
    masked = BODIES["masked_prefill"](np.concatenate([q_nope, q_rope], axis=2), keys, values, indices, scale)
    np.testing.assert_allclose(absorbed, masked, rtol=0, atol=1e-10)
    if topk >= tokens:
        causal = layer.attend_materialized(q_nope, q_rope, latents, k_rope, w_kc, w_vc, scale, causal=True)
        np.testing.assert_allclose(masked, causal, rtol=0, atol=1e-10)


def test_selected_decode_from_fp8_keys_to_a_paged_cache():
    """The whole way of one new token: keys in FP8, scores, selection, slots, and entries gathered from the pool."""
    cached, page, latent, rope, topk = 37, 4, 6, 4, 9
    codes, scales = BODIES["quantize_index_keys"](RNG.standard_normal((cached, 8)))
    keys = dequantize_e4m3(codes) * scales[:, None].astype(float)
    scores = BODIES["index_scores"](RNG.standard_normal((1, 4, 8)), keys, RNG.standard_normal((1, 4)))
    indices = BODIES["select_tokens"](scores, np.array([cached]), topk)
    entries, queries = RNG.standard_normal((cached, latent + rope)), RNG.standard_normal((1, 2, latent + rope))
    table = RNG.permutation(20)[:10][None]
    pool = np.full((20 * page, latent + rope), np.nan)
    pool[BODIES["physical_slots"](np.arange(cached)[None], table, page)[0]] = entries
    slots = BODIES["physical_slots"](indices, table, page)
    got = BODIES["sparse_decode"](queries, pool, slots, latent, 0.3)
    best = np.argsort(-scores[0])[:topk]
    np.testing.assert_allclose(got, dense(queries, entries[best], latent, 0.3), rtol=0, atol=1e-12)


# The budget


def gathered_at_once(queries, cache, indices, latent_dim, scale):
    """All new tokens at once, padding as zeros under a mask."""
    counts = (indices >= 0) & (indices < len(cache))
    picked = np.zeros((*indices.shape, cache.shape[1]), cache.dtype)
    picked[counts] = cache[indices[counts]]
    scores = np.where(counts[:, None], (queries @ picked.swapaxes(1, 2)) * scale, -np.inf)
    largest = scores.max(axis=2, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(largest == -np.inf, 0, largest))
    total = weights.sum(axis=2, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ picked[..., :latent_dim]


def whole_entries_mixed(queries, cache, indices, latent_dim, scale):
    mixed = np.zeros((*queries.shape[:2], latent_dim), queries.dtype)
    for row in range(len(queries)):
        entries = cache[[i for i in indices[row] if 0 <= i < len(cache)]]
        if len(entries):
            scores = scale * (queries[row] @ entries.T)
            weights = np.exp(scores - scores.max(1, keepdims=True))
            mixed[row] = (weights @ entries / weights.sum(1, keepdims=True))[:, :latent_dim]
    return mixed


def head_by_head(queries, cache, indices, latent_dim, scale):
    mixed = np.zeros((*queries.shape[:2], latent_dim), queries.dtype)
    for row, head in np.ndindex(queries.shape[:2]):
        picks = indices[row][(indices[row] >= 0) & (indices[row] < len(cache))]
        if len(picks):
            scores = scale * (cache[picks] @ queries[row, head])
            weights = np.exp(scores - scores.max())
            mixed[row, head] = (weights / weights.sum()) @ cache[picks, :latent_dim]
    return mixed


def views_of_the_cache(queries, cache, indices, latent_dim, scale):
    keys, latents = cache.T, cache[:, :latent_dim]
    mixed = np.zeros((*queries.shape[:2], latent_dim), queries.dtype)
    for row, picks in enumerate(indices):
        picks = picks[(picks >= 0) & (picks < len(cache))]
        if len(picks):
            scores = np.einsum("hf,fk->hk", scale * queries[row], keys[:, picks])
            weights = np.exp(scores - scores.max(1, keepdims=True))
            mixed[row] = np.einsum("hk,kc->hc", weights / weights.sum(1, keepdims=True), latents[picks])
    return mixed


@pytest.mark.parametrize("answer", [gathered_at_once, whole_entries_mixed, head_by_head, views_of_the_cache])
def test_the_budget_lets_other_right_answers_through(answer):
    result = run_here(exercises.get("sparse_decode"), answer, seed=3)
    assert result.verdict == "passed", result.message
    assert result.counts["counted"]


def test_the_budget_does_not_follow_the_cache():
    budget = exercises.get("sparse_decode").budget
    dims = exercises.get("sparse_decode").case(budget.case).dims
    longer = dims | {"cached_tokens": 100 * dims["cached_tokens"]}
    for spent in (budget.macs, budget.largest, budget.peak_values, exercises.get("sparse_decode").least_macs):
        assert spent(**dims) == spent(**longer)


# Every input is legal


@pytest.mark.parametrize("id", IDS)
def test_inputs_are_what_the_statements_say(id):
    exercise = exercises.get(id)
    for one, seed in itertools.product(exercise.cases, range(3)):
        args = exercise.inputs(one, seed)
        indices = args.get("indices")
        if indices is None:
            continue
        length = len(args["cache"]) if id == "sparse_decode" else len(args["k"]) if id == "masked_prefill" else None
        if id == "physical_slots":
            length = args["block_table"].shape[1] * args["page"]
            assert args["block_table"].shape[1] >= 1
        for row in indices.tolist():
            counted = [i for i in row if 0 <= i < length]
            assert len(set(counted)) == len(counted), one.name
            if id != "sparse_decode":
                assert all(-1 <= i < length for i in row), one.name


def test_select_tokens_draws_finite_scores_where_they_are_seen():
    exercise = exercises.get("select_tokens")
    poisoned = 0
    for one, seed in itertools.product(exercise.cases, range(3)):
        scores, lengths, _ = exercise.inputs(one, seed).values()
        seen = np.arange(scores.shape[1]) < lengths[:, None]
        assert np.isfinite(scores[seen]).all()
        poisoned += np.isnan(scores[~seen]).sum()
    assert poisoned


def test_the_oracle_selects_as_the_kernels_reference():
    scores = RNG.standard_normal((1, 30))
    assert exercises.get("select_tokens").oracle(scores, np.array([30]), 7)[0].tolist() == sparse.select_topk(
        scores[0], 7
    )
