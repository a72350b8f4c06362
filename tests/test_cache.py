"""Chapter 6: the accounting of caches against published numbers and packed bytes, the number formats against torch, the
chunked context against other routes, and the data behind the pictures."""

import itertools
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from ledger import exercises
from ledger.account import cache
from ledger.account.crossover import pick_path
from ledger.judge.notebook import run_here
from ledger.machines import MACHINES, machine
from ledger.models import MODELS, model
from ledger.reference import chunked, formats, layer, mla, values
from ledger.widgets import cache as pictures

V3 = model("DeepSeek-V3")


# Values and bytes


@pytest.mark.parametrize(
    ("name", "latent", "full", "times"),
    [
        ("DeepSeek-V3", 576, 40_960, 71),
        ("Kimi-K2.5", 576, 20_480, 36),
        ("GLM-5.2", 576, 32_768, 57),
        ("DeepSeek-V2-Lite", 576, 5_120, 9),
        ("MiniCPM3-4B", 288, 6_400, 22),
    ],
)
def test_values_a_token_as_published(name, latent, full, times):
    found = cache.cache_values_per_token(model(name))
    assert found == (latent, full)
    assert round(found.ratio) == times


def test_values_a_token_are_those_of_real_arrays():
    """One token's entry, and its keys and values as the expanding reference would hand them to a cache."""
    shape = replace(V3, num_heads=3, latent_dim=5, nope_dim=4, rope_dim=2, value_dim=7)
    rng = np.random.default_rng(0)
    kv_b = rng.standard_normal((3 * (4 + 7), 5))
    w_kc, w_vc = mla.split_kv_b(kv_b, 3, 4, 7)
    latent, k_rope = rng.standard_normal(5), rng.standard_normal(2)
    keys = np.concatenate([w_kc @ latent, np.broadcast_to(k_rope, (3, 2))], axis=1)
    full = keys.size + (latent @ w_vc).size
    assert cache.cache_values_per_token(shape) == (np.concatenate([latent, k_rope]).size, full)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("DeepSeek-V3", [1152, 656, 576]),
        ("GLM-5.2", [1152, 656, 576]),
        ("MiniCPM3-4B", [576, 328, 288]),
        ("Mistral-Small-4-119B", [640, 392, 320]),
    ],
)
def test_bytes_a_token_by_format(name, wanted):
    assert [cache.cache_bytes_per_token(model(name), f) for f in cache.CACHE_FORMATS] == wanted


@pytest.mark.parametrize(("latent", "scales"), [(1, 1), (128, 1), (129, 2), (256, 2), (300, 3), (0, 0)])
def test_each_started_tile_has_a_scale(latent, scales):
    entry = cache.entry_bytes(replace(V3, latent_dim=latent, rope_dim=10), "fp8_ds_mla")
    assert entry == (latent, 4 * scales, 20)
    assert entry.total == latent + 4 * scales + 20


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("cache_format", cache.CACHE_FORMATS)
def test_the_bytes_are_those_of_a_packed_entry(name, cache_format):
    """An entry put together from codes, scales and 16-bit numbers is as long as the formula says."""
    shape = MODELS[name]
    rng = np.random.default_rng(1)
    latent, k_rope = rng.standard_normal(shape.latent_dim), rng.standard_normal(shape.rope_dim)
    half = np.float16  # as wide as bf16
    tiles = -(-shape.latent_dim // 128)
    packed = {
        "bf16_mla": latent.astype(half).tobytes() + k_rope.astype(half).tobytes(),
        "fp8_ds_mla": formats.quantize_e4m3(latent).tobytes()
        + np.ones(tiles, np.float32).tobytes()
        + k_rope.astype(half).tobytes(),
        "fp8_plain_mla": formats.quantize_e4m3(np.concatenate([latent, k_rope])).tobytes(),
    }
    assert cache.cache_bytes_per_token(shape, cache_format) == len(packed[cache_format])


@pytest.mark.parametrize(
    "ask",
    [
        lambda: cache.cache_bytes_per_token(V3, "fp8"),
        lambda: cache.tokens_that_fit(1e9, V3, "fp8"),
        lambda: cache.entry_bytes(V3, ["bf16_mla"]),
        lambda: formats.round_entry(np.ones((1, 2)), np.ones((1, 1)), "fp8"),
    ],
)
def test_an_unknown_format_names_the_choices(ask):
    with pytest.raises(ValueError, match="bf16_mla, fp8_ds_mla, fp8_plain_mla"):
        ask()


def test_what_an_indexer_adds():
    v32, glm = model("DeepSeek-V3.2"), model("GLM-5.2")
    assert cache.indexer_bytes_per_token(v32) == 132
    assert cache.indexer_bytes_per_token(V3) == 0
    assert 132 / cache.cache_bytes_per_token(v32, "bf16_mla") == pytest.approx(0.115, abs=5e-4)
    assert 132 / cache.cache_bytes_per_token(v32, "fp8_ds_mla") == pytest.approx(0.201, abs=5e-4)
    added = cache.model_bytes_per_token(glm, "fp8_ds_mla") - 78 * 656
    assert added == 21 * 132
    assert added / (78 * 656) == pytest.approx(0.054, abs=5e-4)


def test_an_indexers_key_is_as_wide_as_the_model_says():
    shape = replace(model("GLM-5.2"), index_dim=96, num_indexer_layers=5, num_mla_layers=7)
    assert cache.indexer_bytes_per_token(shape) == 96 + 4
    assert cache.model_bytes_per_token(shape, "fp8_plain_mla") == 7 * 576 + 5 * 100


@pytest.mark.parametrize(
    ("name", "cache_format", "wanted"),
    [
        ("DeepSeek-V3", "bf16_mla", 61 * 1152),
        ("DeepSeek-V3.2", "fp8_ds_mla", 61 * (656 + 132)),
        ("GLM-5.2", "bf16_mla", 78 * 1152 + 21 * 132),
        ("Kimi-K3", "bf16_mla", 24 * 1152),
        ("LongCat-Flash", "fp8_plain_mla", 56 * 576),
    ],
)
def test_bytes_of_a_token_in_the_whole_model(name, cache_format, wanted):
    assert cache.model_bytes_per_token(model(name), cache_format) == wanted


# What fits


def test_tokens_that_fit_are_counted_out_one_by_one():
    shape, free = replace(V3, num_mla_layers=2, latent_dim=3, rope_dim=1), 1000
    tokens = 0
    while (tokens + 1) * 2 * (3 + 1) * 2 <= free:
        tokens += 1
    assert cache.tokens_that_fit(free, shape, "bf16_mla") == tokens == 62
    assert cache.requests_that_fit(free, 10, shape, "bf16_mla") == 6


@pytest.mark.parametrize("tensor_parallel", [1, 2, 8, 64])
def test_tensor_parallelism_changes_nothing(tensor_parallel):
    for name, cache_format in itertools.product(("DeepSeek-V3", "GLM-5.2"), cache.CACHE_FORMATS):
        one = cache.tokens_that_fit(40e9, model(name), cache_format, 1)
        assert cache.tokens_that_fit(40e9, model(name), cache_format, tensor_parallel) == one
        alone = cache.requests_that_fit(40e9, 4096, model(name), cache_format, 1)
        assert cache.requests_that_fit(40e9, 4096, model(name), cache_format, tensor_parallel) == alone


def test_counts_are_whole_and_exact():
    per_token = 61 * 1152
    assert cache.tokens_that_fit(per_token - 1, V3, "bf16_mla") == 0
    assert cache.tokens_that_fit(per_token * (10**17 + 5) - 1, V3, "bf16_mla") == 10**17 + 4
    found = cache.tokens_that_fit(0.3 * 141e9, V3, "bf16_mla")
    assert type(found) is int
    assert found == 42_300_000_000 // per_token
    assert cache.requests_that_fit(7 * 100 * per_token - 1, 100, V3, "bf16_mla") == 6


@pytest.mark.parametrize(
    ("says", "ask"),
    [
        ("free_bytes is 0", lambda: cache.tokens_that_fit(0, V3, "bf16_mla")),
        ("free_bytes is inf", lambda: cache.tokens_that_fit(math.inf, V3, "bf16_mla")),
        ("free_bytes is nan", lambda: cache.requests_that_fit(math.nan, 1, V3, "bf16_mla")),
        ("tensor_parallel is 0", lambda: cache.tokens_that_fit(1, V3, "bf16_mla", 0)),
        ("tensor_parallel is 1.5", lambda: cache.tokens_that_fit(1, V3, "bf16_mla", 1.5)),
        ("tensor_parallel is 0", lambda: cache.full_bytes_per_token(V3, 0)),
        ("tensor_parallel is -1", lambda: cache.full_bytes_per_token(V3, -1)),
        ("cached_tokens is 0", lambda: cache.requests_that_fit(1, 0, V3, "bf16_mla")),
    ],
)
def test_sizes_that_make_no_sense_are_named(says, ask):
    with pytest.raises(ValueError, match=f"{says}; it must be"):
        ask()


def test_full_caches_are_shared_out_by_heads():
    assert [cache.full_bytes_per_token(V3, n) for n in (1, 8, 128)] == [81_920, 10_240, 640]
    assert cache.full_bytes_per_token(model("GLM-4.7-Flash"), 16) == 2 * 2 * 512  # 20 heads: two on the fullest GPU
    assert cache.full_bytes_per_token(V3, 8, bytes_per_value=1) == 5_120


# What engines choose


def test_engines_rules_against_the_cheaper_path():
    rules = dict(cache.ENGINE_RULES)
    assert list(rules) == ["vLLM, default", "vLLM, FlashMLA", "vLLM, FlashAttention 3", "SGLang"]
    absorbs = {name: [new for new in range(1, 601) if pick(new, 4096) == "absorb"] for name, pick in cache.ENGINE_RULES}
    assert [len(absorbs[f"vLLM, {b}"]) for b in ("default", "FlashMLA", "FlashAttention 3")] == [1, 128, 512]
    assert len(absorbs["SGLang"]) == 600
    assert [rules["SGLang"](2, cached) for cached in (0, 1, 8191, 8192)] == [
        "materialize", "absorb", "absorb", "materialize",
    ]  # fmt: skip
    assert rules["SGLang"](1, 100_000) == "absorb"
    best = [new for new in range(1, 601) if pick_path(new, 4096, V3) == "absorb"]
    assert best[-1] == 163  # 163.84 by the formula


@pytest.mark.parametrize(
    ("new", "chosen"), [(2, "materialize"), (512, "absorb"), (163, "absorb"), (164, "materialize"), (1, "materialize")]
)
def test_overpay_is_the_ratio_of_the_two_totals(new, chosen):
    cached = 4096
    absorb = new * 512 * 256 + new * cached * 1088
    materialize = cached * 512 * 256 + new * cached * 320
    cost = {"absorb": absorb, "materialize": materialize}[chosen]
    assert pictures.overpay(lambda *_: chosen, V3, new, cached) == pytest.approx(cost / min(absorb, materialize))


# Number formats


def test_e4m3_by_its_definition():
    codes = {0x00: 0.0, 0x01: 2**-9, 0x08: 2**-6, 0x38: 1.0, 0x39: 1.125, 0x7E: 448.0, 0xB8: -1.0, 0x80: -0.0}
    found = formats.dequantize_e4m3(np.array(list(codes), np.uint8))
    assert found.tolist() == list(codes.values())
    assert np.signbit(found[-1])
    assert np.isnan(formats.dequantize_e4m3(np.array([0x7F, 0xFF], np.uint8))).all()


def test_e4m3_rounds_ties_to_even_and_saturates():
    ties = np.array([1.0625, 1.1875, 2**-10, 3 * 2**-10, 448.1, 1e9, np.inf, -np.inf, -500.0])
    assert formats.round_e4m3(ties).tolist() == [1.0, 1.25, 0.0, 2**-8, 448, 448, 448, -448, -448]
    assert np.isnan(formats.round_e4m3(np.array(np.nan)))
    assert formats.quantize_e4m3(np.array([np.nan, -0.0, 1.0])).tolist() == [0x7F, 0x80, 0x38]


def test_every_e4m3_code_survives():
    codes = np.delete(np.arange(256, dtype=np.uint8), [0x7F, 0xFF])
    assert np.array_equal(formats.quantize_e4m3(formats.dequantize_e4m3(codes)), codes)


def many_numbers():
    """float32 numbers of every size, both signs, neighbours of every e4m3 number and of every tie between two."""
    rng = np.random.default_rng(2)
    drawn = rng.standard_normal((8, 4000)) * np.array([[1e-5], [1e-3], [1e-2], [0.1], [1], [30], [200], [1e4]])
    numbers = np.sort(formats.dequantize_e4m3(np.arange(0x7F, dtype=np.uint8)))
    corners = np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / 2]).astype(np.float32)
    near = [np.nextafter(corners, np.float32(to)) for to in (-1e30, 1e30)]
    return np.concatenate([drawn.ravel().astype(np.float32), corners, *near, -corners])


def test_e4m3_agrees_with_torch_bit_by_bit():
    torch = pytest.importorskip("torch")
    numbers = many_numbers()
    numbers = numbers[np.abs(numbers) <= 448]  # what torch does beyond has changed between versions
    theirs = torch.from_numpy(numbers).to(torch.float8_e4m3fn)
    assert np.array_equal(formats.quantize_e4m3(numbers), theirs.view(torch.uint8).numpy())
    assert np.array_equal(formats.round_e4m3(numbers), theirs.float().numpy())
    codes = torch.arange(256, dtype=torch.uint8)
    decoded = formats.dequantize_e4m3(codes.numpy())
    assert np.array_equal(decoded, codes.view(torch.float8_e4m3fn).float().numpy(), equal_nan=True)


def test_bf16_agrees_with_torch_bit_by_bit():
    torch = pytest.importorskip("torch")
    extremes = np.array([0, -0.0, 1e-45, 1e-40, 3.3895e38, 3.4e38, -3.4e38, np.inf, -np.inf], np.float32)
    numbers = np.concatenate([many_numbers(), extremes])
    ours, theirs = formats.round_bf16(numbers), torch.from_numpy(numbers).bfloat16().float().numpy()
    assert np.array_equal(ours, theirs)
    assert np.array_equal(np.signbit(ours), np.signbit(theirs))
    assert np.isnan(formats.round_bf16(np.array(np.nan)))


def test_bf16_at_both_ends_of_its_range():
    """Its largest finite number and the tie to 2^128 above it; steps of 2^-133 below 2^-126."""
    largest = 2.0**127 * (2 - 2**-7)
    tie = 2.0**127 * (2 - 2**-8)
    found = formats.round_bf16(np.array([np.nextafter(tie, 0), tie, -tie, 2.0**128]))
    assert found.tolist() == [largest, math.inf, -math.inf, math.inf]
    small = np.array([0.5, 0.75, 1.5, 2.5, 127.5]) * 2.0**-133
    assert (formats.round_bf16(small) / 2.0**-133).tolist() == [0, 1, 2, 2, 128]


@pytest.mark.parametrize("rounding", [formats.round_bf16, formats.round_e4m3, formats.round_tiles])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_keeps_dtype_shape_and_input(rounding, dtype):
    x = np.random.default_rng(3).standard_normal((3, 5)).astype(dtype)
    before = x.copy()
    assert rounding(x).dtype == dtype
    assert rounding(x).shape == x.shape
    assert np.array_equal(x, before)
    empty = x[:, :0]
    assert rounding(empty).shape == (3, 0)
    assert rounding(empty) is not empty


@pytest.mark.parametrize("rounding", [formats.round_bf16, formats.round_e4m3, formats.round_tiles])
def test_integers_are_not_rounded(rounding):
    with pytest.raises(ValueError, match="x is of int64; make it floating"):
        rounding(np.arange(3))


@pytest.mark.parametrize("codes", [-1, np.array([-1]), np.array([1.0])])
def test_codes_are_bytes(codes):
    with pytest.raises(ValueError, match="make them uint8"):
        formats.dequantize_e4m3(codes)


def test_a_tile_is_scaled_by_its_own_largest_value():
    x = np.ones((2, 300)) * 3e-4
    x[0, 128], x[1, 299] = 7000.0, -5.0
    back = formats.round_tiles(x)
    assert back[0, :128] == pytest.approx(3e-4, rel=1e-6)  # the tile's largest is met exactly
    assert back[0, 128] == pytest.approx(7000, rel=1e-6)
    assert back[0, 129:256].tolist() == [0.0] * 127  # far below the steps of that tile
    assert back[1, 299] == pytest.approx(-5, rel=1e-6)
    assert back[1, 128:256] == pytest.approx(3e-4, rel=1e-6)
    assert formats.round_tiles(np.zeros((1, 4))).tolist() == [[0, 0, 0, 0]]


def test_the_scale_of_a_tile_is_an_fp32_number():
    """It is stored in 4 bytes: 1/448 is no such number, so that the largest value of a tile comes back almost."""
    back = formats.round_tiles(np.array([[1.0, -0.5]]))
    assert back.tolist() == [[448 * float(np.float32(1 / 448)), -224 * float(np.float32(1 / 448))]]
    assert back[0, 0] != 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tiles_of_any_magnitude_come_back(dtype):
    with np.errstate(all="raise"):
        for size in (1e-30, 1e-3, 1e30, 3e38):
            assert formats.round_tiles(np.array([[size, 0]], dtype)) == pytest.approx(np.array([[size, 0]]), rel=1e-6)
    least, most = (float(limit) for limit in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))
    # under the least scale, in steps of 2^-9 of it: 2.3e-41
    assert formats.round_tiles(np.array([1e-44, -1e-40, 0], dtype)).tolist() == [0, -4 * 2.0**-9 * least, 0]
    assert formats.round_tiles(np.array([1e60, -1.0])).tolist() == [448 * most, 0]
    mixed = formats.round_tiles(np.array([np.nan, 2, 1], dtype))
    assert np.isnan(mixed[0])
    assert mixed[1:] == pytest.approx([2, 1], rel=1e-6)


def test_an_entry_is_rounded_as_its_format_says():
    rng = np.random.default_rng(4)
    latents, k_rope = rng.standard_normal((5, 200)), 1000 * rng.standard_normal((5, 8))
    read = {f: formats.round_entry(latents, k_rope, f) for f in cache.CACHE_FORMATS}
    for name in ("bf16_mla", "fp8_ds_mla"):
        assert np.array_equal(read[name][1], formats.round_bf16(k_rope))
    assert np.array_equal(read["bf16_mla"][0], formats.round_bf16(latents))
    assert np.array_equal(read["fp8_ds_mla"][0], formats.round_tiles(latents))
    assert np.array_equal(read["fp8_plain_mla"][0], formats.round_e4m3(latents))
    assert np.abs(read["fp8_plain_mla"][1]).max() == 448
    scaled = formats.round_entry(latents, k_rope, "fp8_plain_mla", scale=16.0)
    assert scaled[1] == pytest.approx(k_rope, rel=2**-4)
    halves = [a.astype(np.float32) for a in (latents, k_rope)]
    for name, scale in itertools.product(cache.CACHE_FORMATS, (16.0, np.float64(16))):
        assert {part.dtype for part in formats.round_entry(*halves, name, scale)} == {np.dtype("float32")}


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_a_scale_must_be_positive_and_finite(scale):
    with pytest.raises(ValueError, match=f"scale is {scale}"):
        formats.round_entry(np.ones((1, 2)), np.ones((1, 1)), "fp8_plain_mla", scale)


@pytest.mark.parametrize(("rounding", "bits"), [(formats.round_bf16, 7), (formats.round_e4m3, 3)])
def test_a_normal_number_is_off_by_half_a_step_at_most(rounding, bits):
    x = np.geomspace(0.016, 440, 5001)
    worst = np.max(np.abs(rounding(x) - x) / x)
    assert 0.9 * 2.0 ** -(bits + 1) < worst <= 2.0 ** -(bits + 1)


# Rounding: the claims of the lesson, on other inputs than the lesson's


def attention_errors(sharpness, rope_size, seed=21):
    """Relative error of the absorbed output at DeepSeek-V3's widths, by format; two heads, 200 tokens."""
    rng = np.random.default_rng(seed)
    latents = formats.round_bf16(rng.standard_normal((200, 512)))
    k_rope = formats.round_bf16(rope_size * rng.standard_normal((200, 64)))
    w_kc, w_vc = (formats.round_bf16(rng.standard_normal(s) / 512**0.5) for s in ((2, 128, 512), (2, 512, 128)))
    q_nope, q_rope = (sharpness * rng.standard_normal((4, 2, width)) for width in (128, 64))

    def attend(latents, k_rope, rounding):
        content = rounding(np.einsum("shn,hnc->shc", q_nope, w_kc, optimize=True))
        queries = np.concatenate([content, q_rope], axis=-1)
        mixed, _ = chunked.merge_chunked_context(queries, np.hstack([latents, k_rope]), 200, 512, 192**-0.5)
        return rounding(np.einsum("shc,hcv->shv", rounding(mixed), w_vc, optimize=True))

    right = attend(latents, k_rope, lambda x: x)
    size = np.linalg.norm(right)
    return {
        f: np.linalg.norm(attend(*formats.round_entry(latents, k_rope, f), formats.round_bf16) - right) / size
        for f in cache.CACHE_FORMATS
    }


def test_fp8_caches_round_more_and_a_large_rope_hurts_the_plain_one_alone():
    small, large = attention_errors(0.5, 1.0), attention_errors(0.5, 32.0)
    assert 0.001 < small["bf16_mla"] < 0.005
    assert 0.01 < small["fp8_ds_mla"] < 0.04
    assert small["fp8_ds_mla"] <= 1.1 * small["fp8_plain_mla"]
    assert large["fp8_ds_mla"] < 1.5 * small["fp8_ds_mla"]
    assert large["fp8_plain_mla"] > 3 * large["fp8_ds_mla"]


# Chunked context


SIZES = [(3, 13, 2, 6, 4), (1, 1, 1, 1, 1), (2, 9, 3, 5, 0)]  # new, cached, heads, latent, rope


def drawn(new, cached, heads, latent, rope, seed=5):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((new, heads, latent + rope)), rng.standard_normal((cached, latent + rope))


@pytest.mark.parametrize("sizes", SIZES)
def test_one_pass_is_the_softmax_by_scalar_loops(sizes):
    new, _, heads, latent, _ = sizes
    queries, entries = drawn(*sizes)
    mixed, lse = chunked.merge_chunked_context(queries, entries, 4, latent, 0.3)
    for s, h in itertools.product(range(new), range(heads)):
        terms = [math.exp(0.3 * sum(queries[s, h] * entry)) for entry in entries]
        assert lse[s, h] == pytest.approx(math.log(math.fsum(terms)), rel=1e-12)
        for c in range(latent):
            wanted = math.fsum(term * entry[c] for term, entry in zip(terms, entries, strict=True)) / math.fsum(terms)
            assert mixed[s, h, c] == pytest.approx(wanted, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("chunk", [1, 4, 13, 50])
def test_merged_parts_are_one_pass(sizes, chunk):
    latent = sizes[3]
    queries, entries = drawn(*sizes)
    outputs, lses = chunked.parts(queries, entries, chunk, latent, 0.3)
    assert len(outputs) == len(lses) == -(-len(entries) // chunk)
    whole = chunked.merge_chunked_context(queries, entries, chunk, latent, 0.3)
    for merged, right in zip(values.merge_partials(outputs, lses), whole, strict=True):
        np.testing.assert_allclose(merged, right, rtol=1e-12, atol=1e-13)


def test_one_pass_is_materialized_attention_before_the_last_projection():
    rng = np.random.default_rng(6)
    w_kc, w_vc = rng.standard_normal((3, 4, 5)), rng.standard_normal((3, 5, 7))
    q_nope, q_rope = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 3, 2))
    latents, k_rope = rng.standard_normal((11, 5)), rng.standard_normal((11, 2))
    queries = np.concatenate([np.einsum("shn,hnc->shc", q_nope, w_kc), q_rope], axis=-1)
    mixed, _ = chunked.merge_chunked_context(queries, np.hstack([latents, k_rope]), 3, 5, 0.4)
    right = layer.attend_materialized(q_nope, q_rope, latents, k_rope, w_kc, w_vc, 0.4)
    np.testing.assert_allclose(np.einsum("shc,hcv->shv", mixed, w_vc), right, rtol=1e-11, atol=1e-12)


def test_an_empty_context_and_its_dtype():
    queries, entries = (a.astype("float32") for a in drawn(2, 0, 3, 4, 2))
    mixed, lse = chunked.merge_chunked_context(queries, entries, 5, 4, 1.0)
    assert (mixed.shape, mixed.dtype, lse.dtype) == ((2, 3, 4), np.float32, np.float32)
    assert not mixed.any()
    assert np.isneginf(lse).all()
    outputs, lses = chunked.parts(queries, entries, 5, 4, 1.0)
    assert (outputs.shape, lses.shape) == ((0, 2, 3, 4), (0, 2, 3))
    assert (outputs.dtype, lses.dtype) == (np.float32, np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parts_keep_the_dtype(dtype):
    queries, entries = (a.astype(dtype) for a in drawn(2, 5, 3, 4, 2))
    made = chunked.parts(queries, entries, 2, 4, 1.0)
    assert {part.dtype.name for part in [*made, *values.merge_partials(*made)]} == {dtype}


@pytest.mark.parametrize("chunk", [0, -1, 2.0])
@pytest.mark.parametrize("read", [chunked.merge_chunked_context, chunked.parts])
def test_a_chunk_has_a_token_at_least(read, chunk):
    with pytest.raises(ValueError, match=f"chunk is {chunk}; it must be a whole number, 1 or more"):
        read(*drawn(2, 5, 3, 4, 2), chunk, 4, 1.0)


def online(queries, cache, chunk, latent_dim, scale):
    """The running maximum, in place of the running lse."""
    rows = queries.shape[:2]
    largest, total = np.full(rows, -np.inf, queries.dtype), np.zeros(rows, queries.dtype)
    mixed = np.zeros((*rows, latent_dim), queries.dtype)
    for start in range(0, len(cache), chunk):
        entries = cache[start : start + chunk]
        scores = queries @ entries.T * scale
        new = np.maximum(largest, scores.max(axis=-1))
        keep, weights = np.exp(largest - new), np.exp(scores - new[..., None])
        mixed = mixed * keep[..., None] + weights @ entries[:, :latent_dim]
        total = total * keep + weights.sum(axis=-1)
        largest = new
    with np.errstate(all="ignore"):
        lse = largest + np.log(total)
        return np.where(total[..., None] > 0, mixed / total[..., None], 0).astype(queries.dtype), lse


def parts_then_merge(queries, cache, chunk, latent_dim, scale):
    """All parts first, as rows of one matrix, merged at the end."""
    rows, dtype = queries.shape[:2], np.result_type(queries, cache)
    flat = (queries * scale).reshape(-1, cache.shape[1])
    outputs, lses = [np.zeros((len(flat), latent_dim), dtype)], [np.full(len(flat), -np.inf, dtype)]
    for start in range(0, len(cache), chunk):
        entries = np.ascontiguousarray(cache[start : start + chunk])
        scores = flat @ entries.T
        top = scores.max(axis=1, keepdims=True)
        weights = np.exp(scores - top)
        total = weights.sum(axis=1, keepdims=True)
        outputs.append(weights @ entries[:, :latent_dim] / total)
        lses.append((top + np.log(total))[:, 0])
    lses = np.stack(lses)
    lse = np.logaddexp.reduce(lses, axis=0)
    shares = np.exp(lses - np.where(np.isfinite(lse), lse, 0))
    mixed = np.einsum("pr,prc->rc", shares, np.stack(outputs))
    return mixed.reshape(*rows, latent_dim).astype(dtype), lse.reshape(rows)


@pytest.mark.parametrize("answer", [online, parts_then_merge])
def test_the_budget_of_the_chunked_context_lets_other_right_answers_through(answer):
    result = run_here(exercises.get("merge_chunked_context"), answer, seed=13)
    assert result.verdict == "passed", result.message
    assert result.counts["counted"]


def test_scores_of_the_whole_cache_are_found_by_their_memory_too():
    def hidden(queries, cache, chunk, latent_dim, scale):
        queries, cache = np.ndarray.view(queries, np.ndarray), np.ndarray.view(cache, np.ndarray)
        scores = scale * (queries @ cache.T)
        lse = np.logaddexp.reduce(scores, axis=-1)
        return np.exp(scores - lse[..., None]) @ cache[:, :latent_dim], lse

    result = run_here(exercises.get("merge_chunked_context"), hidden, seed=14)
    assert result.verdict == "wrong"
    assert "left the arrays that the judge counts" in result.message


# The exercises against numbers worked out by hand


@pytest.mark.parametrize(
    ("id", "case", "wanted"),
    [
        ("cache_values_per_token", "small widths", (4, 10)),
        ("cache_values_per_token", "no rope", (512, 64 * 448)),
        ("cache_values_per_token", "GLM-4.7-Flash", (576, 10_240)),
        ("cache_bytes_per_token", "DeepSeek-V3.2 in FP8 with scales", 656),
        ("cache_bytes_per_token", "one value more than a tile", 129 + 8 + 20),
        ("cache_bytes_per_token", "one value of each", 1 + 4 + 2),
        ("tokens_that_fit", "two small layers", 62),
        ("tokens_that_fit", "less than a token", 0),
        ("tokens_that_fit", "more than a float counts exactly", 10**17 + 4),
        ("tokens_that_fit", "free bytes as a float", 42_300_000_000 // (62 * 576)),
        ("requests_that_fit", "two small layers", 6),
        ("requests_that_fit", "less than a request", 0),
        ("requests_that_fit", "requests of one token", 10**9 // (61 * 576)),
    ],
)
def test_counts_of_the_cases(id, case, wanted):
    exercise = exercises.get(id)
    assert exercise.oracle(**exercise.inputs(exercise.case(case), 0)) == wanted


def test_the_chunked_toy_by_hand():
    exercise = exercises.get("merge_chunked_context")
    mixed, lse = exercise.oracle(**exercise.inputs(exercise.case("the toy by hand"), 0))
    np.testing.assert_allclose(mixed, [[[2 / 7, 1 / 7, 4 / 7]]], rtol=1e-14)
    np.testing.assert_allclose(lse, [[math.log(7)]], rtol=1e-14)


def test_the_extreme_scores_reach_the_ends():
    exercise = exercises.get("merge_chunked_context")
    case = exercise.case("scores between 800 and -800, falling and rising")
    given = exercise.inputs(case, 3)
    scores = given["queries"] @ given["cache"].T
    assert scores.max() > 780
    assert scores.min() < -780
    assert (np.argmax(scores[0], axis=-1) < 6).tolist() == [True, False, True, False]


# The pictures


def bars(axes):
    """The bars of each part of an entry, as (start, width): those of the chosen model, and of the one beside it."""
    drawn = [[(bar.get_x(), bar.get_width()) for bar in container] for container in axes.containers]
    return [dict(zip(pictures.PARTS, half, strict=True)) for half in (drawn[:4], drawn[4:])]


def requests(fig):
    """The counts of requests by row, as drawn and as written: of the chosen model, and of the one beside it."""
    fits = fig.axes[1]
    written = [text.get_text() for text in fits.texts]
    return [(list(dots.get_xdata()), written[4 * i : 4 * i + 4]) for i, dots in enumerate(fits.lines)]


@pytest.mark.parametrize("place", [0, 1])
def test_the_explorer_stacks_a_tokens_bytes(place):
    sizes, _ = pictures.CacheExplorer().figure(**{("model", "beside")[place]: "GLM-5.2"}).axes
    drawn = bars(sizes)[place]
    # 78 layers, kB: latent 1024, 512, 512; scales 0, 16, 0; rope 128, 128, 64; 21 keys of 132 bytes
    assert [w for _, w in drawn["latent"]] == pytest.approx([79.872, 39.936, 39.936])
    assert [w for _, w in drawn["scales"]] == pytest.approx([0, 1.248, 0])
    assert [w for _, w in drawn["rope"]] == pytest.approx([9.984, 9.984, 4.992])
    assert [w for _, w in drawn["indexer's keys"]] == pytest.approx([2.772] * 3)
    assert drawn["indexer's keys"][1][0] == pytest.approx(39.936 + 1.248 + 9.984)
    labels = sizes.texts[3 * place : 3 * place + 3]
    assert [text.get_text() for text in labels] == ["92.6", "53.9", "47.7"]
    rows = [bar.get_y() + bar.get_height() / 2 for bar in sizes.containers[4 * place]]
    for text, (start, width), row in zip(labels, drawn["indexer's keys"], rows, strict=True):
        x, y = text.get_position()
        assert 0 < x - (start + width) < 0.03 * sizes.get_xlim()[1]
        assert y == pytest.approx(row)


def test_the_explorer_counts_requests_on_a_gpu():
    free = 0.5 * 141e9
    wanted = [int(free // size // 4096) for size in (61 * 10_240, 61 * 1152, 61 * 656, 61 * 576)]
    fig = pictures.CacheExplorer().figure(
        model="DeepSeek-V3", beside="Kimi-K2.5", gpu="H200", free_percent=50, cached_tokens=4096, tensor_parallel=8
    )
    chosen, beside = requests(fig)
    assert chosen == (wanted, [f"{count:,}" for count in wanted])
    # Kimi K2.5: half the heads, the same entry
    assert beside[0] == [int(free // (61 * 5120) // 4096), *wanted[1:]]
    places = [place for dots in fig.axes[1].lines for place in zip(*dots.get_data(), strict=True)]
    for text, (x, y) in zip(fig.axes[1].texts, places, strict=True):
        assert 1.2 < text.get_position()[0] / x < 2
        assert text.get_position()[1] == y


def test_a_full_cache_lies_in_the_layers_with_latent_attention():
    """24 of 93 in Kimi K3, and 56 in the 28 of LongCat-Flash, which hold two each."""
    both = requests(pictures.CacheExplorer().figure(model="Kimi-K3", beside="LongCat-Flash", tensor_parallel=8))
    sizes = 24 * 2 * 12 * 320, 56 * 2 * 8 * 320
    assert [drawn[0] for drawn, _ in both] == [int(0.3 * 141e9 // size // 8192) for size in sizes]


def test_tensor_parallelism_moves_the_full_cache_alone():
    one, many = (requests(pictures.CacheExplorer().figure(tensor_parallel=n)) for n in (1, 16))
    for (few, _), (more, _) in zip(one, many, strict=True):
        assert few[1:] == more[1:]
        assert more[0] > few[0]


def test_a_cache_that_holds_no_request_says_0():
    fig = pictures.CacheExplorer().figure(gpu="A100", free_percent=5, cached_tokens=1 << 20, tensor_parallel=1)
    assert [written for _, written in requests(fig)] == [["0"] * 4] * 2


def test_the_heading_names_models_gpu_and_group():
    headings = [
        pictures.CacheExplorer().figure(gpu="A100", tensor_parallel=n, beside="Kimi-K3").texts[0].get_text()
        for n in (1, 4)
    ]
    assert all(word in heading for heading in headings for word in ("DeepSeek-V3", "Kimi-K3", "A100"))
    assert "one GPU has all heads" in headings[0]
    assert "4 GPUs share the heads" in headings[1]


def test_the_engine_lines_hold_what_the_rules_cost():
    fig = pictures.overpay_lines(V3, (4096, 32768))
    line = next(line for line in fig.axes[0].lines if line.get_gid() == "vLLM, FlashAttention 3")
    found = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
    assert found[1] == 1
    assert found[513] == 1
    # (512·512·256 + 512·4096·1088) / (4096·512·256 + 512·4096·320)
    assert found[512] == pytest.approx((512 + 17 * 1024) / (4096 + 5120))
    crossing = [line.get_xdata()[0] for ax in fig.axes for line in ax.lines if line.get_gid() == "equal"]
    assert crossing == pytest.approx([163.84, 169.78], abs=0.005)


def assert_all_text_inside(fig):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    for text in [*fig.texts, *(t for ax in fig.axes for t in [*ax.texts, ax.xaxis.label, ax.yaxis.label])]:
        if text.get_text():
            box = text.get_window_extent(canvas.get_renderer())
            assert box.x0 >= 0, text.get_text()
            assert box.x1 <= fig.bbox.width, text.get_text()
            assert box.y0 >= 0, text.get_text()
            assert box.y1 <= fig.bbox.height, text.get_text()


@pytest.mark.parametrize("name", ["DeepSeek-V2-Lite", "Mistral-Small-4-119B", "GLM-5.2"])
def test_the_explorer_keeps_its_text_inside(name):
    explorer = pictures.CacheExplorer()
    for gpu, tokens in itertools.product(MACHINES, (1024, 1 << 20)):
        both = dict(model=name, beside="Mistral-Small-4-119B")
        assert_all_text_inside(explorer.figure(**both, gpu=gpu, cached_tokens=tokens, free_percent=90))


def test_the_strips_name_every_format_and_size():
    fig = pictures.entry_strips(V3)
    shown = [text.get_text() for text in fig.axes[0].texts]
    assert {"1,152 bytes", "656 bytes", "576 bytes", "latent 1,024", "latent 512"} <= set(shown)
    assert_all_text_inside(fig)


def test_importing_the_pictures_needs_numpy_alone():
    code = (
        "import sys, ledger.widgets.cache, ledger.reference.formats, ledger.reference.chunked;"
        "sys.exit(bool({'matplotlib', 'ipywidgets', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_memory_of_a_gpu_is_counted_in_billions():
    assert machine("H200").memory == 141e9
    assert cache.tokens_that_fit(machine("H200").memory, V3, "bf16_mla") == 141 * 10**9 // 70_272
