"""The formulas against loops that do the work, the arrays that NumPy really moves, and published results."""

import numpy as np
import pytest

from ledger.account import attention as account
from ledger.models import MODELS, model

SIZES = [(1, 1, 1, 1), (1, 5, 3, 2), (2, 7, 5, 3), (4, 3, 2, 6), (0, 4, 3, 2), (3, 0, 5, 2)]


def loop_macs(rows: int, inner: int, cols: int) -> int:
    """Multiply-adds of a product, one at a time."""
    macs = 0
    for _ in range(rows):
        for _ in range(cols):
            for _ in range(inner):
                macs += 1
    return macs


class Ledger:
    """Runs real products, head by head or at once, and adds up what each reads, writes and multiplies."""

    def __init__(self):
        self.macs, self.read, self.written = [], 0, 0

    def product(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        result = left @ right
        self.macs.append(loop_macs(*left.shape, right.shape[1]))
        self.read += left.nbytes + right.nbytes
        self.written += result.nbytes
        return result


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize(("new_tokens", "cached_tokens", "latent_dim", "nope_dim"), SIZES)
def test_key_paths_are_what_the_products_do(new_tokens, cached_tokens, latent_dim, nope_dim, itemsize):
    dtype = {2: np.float16, 4: np.float32}[itemsize]
    queries = np.ones((new_tokens, nope_dim), dtype)
    w_k = np.ones((latent_dim, nope_dim), dtype)
    latents = np.ones((cached_tokens, latent_dim), dtype)
    sizes = (new_tokens, cached_tokens, latent_dim, nope_dim)

    ledger = Ledger()
    ledger.product(queries, ledger.product(latents, w_k).T)
    assert account.key_path_materialize(*sizes) == tuple(ledger.macs)
    assert account.key_path_bytes_materialize(*sizes, itemsize) == (ledger.read, ledger.written)

    ledger = Ledger()
    ledger.product(ledger.product(queries, w_k.T), latents.T)
    assert account.key_path_absorb(*sizes) == tuple(ledger.macs)
    assert account.key_path_bytes_absorb(*sizes, itemsize) == (ledger.read, ledger.written)


@pytest.mark.parametrize(("new_tokens", "num_heads", "nope_dim", "latent_dim", "cached_tokens"), [
    (1, 1, 1, 1, 1),
    (2, 3, 5, 7, 4),
    (3, 4, 2, 6, 1),
    (0, 2, 3, 4, 5),
])  # fmt: skip
def test_heads_are_what_the_products_do(new_tokens, num_heads, nope_dim, latent_dim, cached_tokens):
    q_nope = np.ones((new_tokens, num_heads, nope_dim), np.float32)
    w_kc = np.ones((num_heads, nope_dim, latent_dim), np.float32)
    latents = np.ones((cached_tokens, latent_dim), np.float32)

    ledger = Ledger()
    absorbed = np.stack([ledger.product(q_nope[:, h], w_kc[h]) for h in range(num_heads)], axis=1)
    sizes = (new_tokens, num_heads, nope_dim, latent_dim)
    assert account.absorb_heads_macs(*sizes) == sum(ledger.macs)
    assert account.absorb_heads_bytes(*sizes, 4) == (ledger.read, ledger.written)

    ledger = Ledger()
    ledger.product(absorbed.reshape(new_tokens * num_heads, latent_dim), latents.T)
    sizes = (new_tokens, cached_tokens, num_heads, latent_dim)
    assert account.shared_latent_scores_macs(*sizes) == sum(ledger.macs)
    assert account.shared_latent_scores_bytes(*sizes, 4) == (ledger.read, ledger.written)


@pytest.mark.parametrize(("lengths", "num_heads", "latent_dim", "rope_dim"), [
    ([1], 1, 1, 1),
    ([5, 0, 2], 3, 4, 2),
    ([], 2, 3, 1),
    ([7], 4, 3, 0),
])  # fmt: skip
def test_absorbed_decode_is_what_the_products_do(lengths, num_heads, latent_dim, rope_dim):
    width, scores, values, entries = latent_dim + rope_dim, 0, 0, 0
    queries = np.ones((len(lengths), num_heads, width), np.float16)
    lse = np.ones((len(lengths), num_heads), np.float32)
    for request, length in enumerate(lengths):
        cache = np.ones((length, width), np.float16)
        ledger = Ledger()
        ledger.product(ledger.product(queries[request], cache.T), cache[:, :latent_dim])
        scores, values = scores + ledger.macs[0], values + ledger.macs[1]
        entries += cache.nbytes
    sizes = (sum(lengths), num_heads, latent_dim, rope_dim)
    assert account.decode_absorbed_macs(*sizes) == (scores, values)
    assert account.decode_absorbed_bytes(*sizes, 2, requests=len(lengths)) == (
        queries.nbytes + entries,
        queries[..., :latent_dim].nbytes + lse.nbytes,
    )


def test_absorbed_decode_grows_as_the_scheme_says():
    mla = account.family(model("DeepSeek-V3"))[-1]
    macs = account.decode_absorbed_macs(4096, 128, 512, 64)
    assert macs == (mla.decode_score_macs(4096), mla.decode_value_macs(4096))
    assert macs.total == 128 * 4096 * 1088
    # 242 FLOP for each byte of a bf16 cache, once the queries and results no longer count
    short, long = (account.decode_absorbed_bytes(tokens, 128, 512, 64, 2) for tokens in (4096, 8192))
    assert 2 * macs.total / (long.total - short.total) == pytest.approx(241.8, abs=0.05)


def test_absorbing_takes_the_cache_out_of_the_projection():
    for cached_tokens in (1, 4096, 131072):
        assert account.key_path_absorb(1, cached_tokens, 512, 128).projection == 65_536
        assert account.key_path_materialize(1, cached_tokens, 512, 128).projection == 65_536 * cached_tokens


def test_decode_at_deepseek_v3_widths():
    assert account.key_path_materialize(1, 4096, 512, 128) == (268_435_456, 524_288)
    assert account.key_path_absorb(1, 4096, 512, 128) == (65_536, 2_097_152)
    assert account.key_path_materialize(1, 4096, 512, 128).total == 268_959_744


def test_totals_add_both_parts():
    assert account.Path(3, 4).total == 7
    assert account.Traffic(5, 6).total == 11


def test_sizes_beyond_a_machine_word_stay_exact_and_fractions_are_refused():
    big = np.int32(2_000_000)
    assert account.matmul_macs(big, big, big) == 8 * 10**18
    assert type(account.key_path_absorb(big, big, big, big).scores) is int
    with pytest.raises(TypeError):
        account.matmul_macs(2.5, 2, 2)


def test_merging_offline_needs_three_times_the_weights():
    weights = account.merged_query_key_elements(q_lora_dim=1536, latent_dim=512, nope_dim=128, num_heads=128)
    assert weights == (100_663_296, 33_554_432)
    assert weights.ratio == 3.0


def test_merged_and_kept_apart_are_sizes_of_real_matrices():
    w_uq, w_uk = np.ones((3, 7, 2)), np.ones((3, 2, 5))  # [h, q_lora, n], [h, n, c]
    weights = account.merged_query_key_elements(q_lora_dim=7, latent_dim=5, nope_dim=2, num_heads=3)
    assert weights == ((w_uq @ w_uk).size, w_uq.size + w_uk.size)


def test_cache_entry_is_latent_beside_one_rotary_key():
    entry = account.mla_cache_entry(latent_dim=512, rope_dim=64)
    assert (entry.latent, entry.k_rope, entry.total) == (512, 64, 576)


@pytest.mark.parametrize(("name", "full"), [("DeepSeek-V3", 40_960), ("Kimi-K2.5", 20_480), ("GLM-5.2", 32_768)])
def test_caches_beside_each_other(name, full):
    mha, gqa, mqa, mla = account.family(model(name))
    assert [s.name for s in (mha, gqa, mqa, mla)] == ["MHA", "GQA", "MQA", "MLA"]
    assert mha.cache_values == full
    assert gqa.cache_values * model(name).num_heads == full * 8
    assert mqa.cache_values * model(name).num_heads == full
    assert (mla.cache_values, mla.cache_bytes) == (576, 1152)


def test_mla_has_the_cache_of_one_head_and_the_keys_of_all():
    schemes = account.family(model("DeepSeek-V3"), kv_groups=4)
    assert [s.kv_heads for s in schemes] == [128, 4, 1, 1]
    assert [s.distinct_keys for s in schemes] == [128, 4, 1, 128]


def test_bytes_follow_the_width_of_a_value():
    assert [s.cache_bytes for s in account.family(model("DeepSeek-V3"), bytes_per_value=1)] == [40_960, 2_560, 320, 576]


@pytest.mark.parametrize("name", ["DeepSeek-V3", "MiniCPM3-4B", "GLM-5.2"])
def test_decode_multiply_adds_a_cached_token(name):
    m = model(name)
    *full, mla = account.family(m)
    expanded = m.num_heads * (m.nope_dim + m.rope_dim + m.value_dim)
    assert {s.decode_macs() for s in full} == {expanded}
    assert mla.decode_macs() == m.num_heads * (m.latent_dim + m.rope_dim + m.latent_dim)
    assert (
        mla.decode_macs(1000) == 1000 * mla.decode_macs() == mla.decode_score_macs(1000) + mla.decode_value_macs(1000)
    )


def test_decode_scores_and_values_of_a_tiny_model_one_multiplication_at_a_time():
    tiny = MODELS["MiniCPM3-4B"]
    for scheme in account.family(tiny):
        keys = np.ones((3, scheme.key_width))
        queries = np.ones((scheme.query_heads, scheme.key_width))
        ledger = Ledger()
        weights = ledger.product(queries, keys.T)
        ledger.product(weights, np.ones((3, scheme.value_width)))
        assert [scheme.decode_score_macs(3), scheme.decode_value_macs(3)] == ledger.macs


def test_absorbed_decode_does_1_889_flop_a_byte_and_head():
    assert account.family(model("DeepSeek-V3"))[3].intensity == pytest.approx(1.889 * 128, rel=1e-4)
    assert account.family(model("Kimi-K2.5"))[3].intensity == pytest.approx(1.889 * 64, rel=1e-4)


def test_sharing_key_heads_raises_the_work_a_byte_by_the_share():
    mha, gqa, mqa, _ = account.family(model("DeepSeek-V3"))
    assert (mha.intensity, gqa.intensity, mqa.intensity) == (1.0, 16.0, 128.0)


@pytest.mark.parametrize("kv_groups", [0, 3, -1, 21])
def test_heads_that_cannot_be_shared_evenly_name_the_choices(kv_groups):
    with pytest.raises(ValueError, match="the choices are: 1, 2, 4, 5, 10, 20"):
        account.family(model("GLM-4.7-Flash"), kv_groups=kv_groups)
