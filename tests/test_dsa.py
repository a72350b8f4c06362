"""The account of sparse attention, against a table that is printed elsewhere and against sums over positions."""

import math

import pytest

from ledger.account.dsa import (
    break_even_position,
    break_even_prompt,
    dsa_decode_ledger,
    dsa_prefill_ledger,
    index_cache_overhead,
    pair_flops,
)
from ledger.models import MODELS

V32, GLM, V3 = MODELS["DeepSeek-V3.2"], MODELS["GLM-5.2"], MODELS["DeepSeek-V3"]

#: For each context: GFLOP of a decoded token, MiB that it reads, TFLOP of a whole prompt, and how many times less.
TABLE = """\
   4K     1.14    0.64  1.8     4.5    2.8  1.6      0.7     2.5  0.3
  32K     9.13    1.11  8.2    36.0    6.4  5.6     44.0    27.5  1.6
 128K    36.51    2.72 13.4   144.0   18.8  7.7    703.7   215.5  3.3
"""


def test_the_table_to_its_last_digit():
    lines = []
    for tokens in (4096, 32768, 131072):
        d, p = dsa_decode_ledger(tokens, V32, 2048, "bf16_mla"), dsa_prefill_ledger(tokens, V32, 2048, exact=False)
        lines.append(
            f"{tokens // 1024:>4}K   {d.dense_flops / 1e9:6.2f}  {d.sparse_flops / 1e9:6.2f} "
            f"{d.dense_flops / d.sparse_flops:4.1f}  {d.dense_bytes / 2**20:6.1f} {d.sparse_bytes / 2**20:6.1f} "
            f"{d.dense_bytes / d.sparse_bytes:4.1f}  {p.dense_flops / 1e12:7.1f} {p.sparse_flops / 1e12:7.1f} "
            f"{p.dense_flops / p.sparse_flops:4.1f}\n"
        )
    assert "".join(lines) == TABLE


def test_a_pair():
    assert pair_flops(V32) == (278_528, 81_920, 16_384)
    assert pair_flops(V3) == (278_528, 81_920, 0)
    assert pair_flops(GLM).indexer == 2 * 32 * 128


@pytest.mark.parametrize("model", [V32, GLM], ids=lambda m: m.name)
@pytest.mark.parametrize("tokens", [0, 1, 7, 60])
def test_an_exact_prompt_is_the_sum_over_its_positions(model, tokens):
    pair, topk = pair_flops(model), 7
    dense = sum(seen * pair.expanded for seen in range(1, tokens + 1))
    sparse = sum(seen * pair.indexer + min(seen, topk) * pair.absorbed for seen in range(1, tokens + 1))
    assert dsa_prefill_ledger(tokens, model, topk, exact=True) == (dense, sparse)


def test_the_limits_at_any_length():
    far = dsa_decode_ledger(10**9, V32, 2048, "bf16_mla")
    assert round(far.dense_flops / far.sparse_flops, 1) == 17.0
    assert round(far.dense_bytes / far.sparse_bytes, 1) == 8.7
    fp8 = dsa_decode_ledger(10**9, V32, 2048, "fp8_ds_mla")
    assert round(fp8.dense_bytes / fp8.sparse_bytes, 1) == 5.0


def test_the_break_evens_are_three_questions():
    assert round(break_even_position(V32, 2048)) == 6963
    prompts = {(exact, alone): break_even_prompt(V32, 2048, exact, alone) for exact in (0, 1) for alone in (0, 1)}
    assert {key: round(tokens) for key, tokens in prompts.items()} == {
        (0, 0): 13926,
        (1, 0): 12813,
        (0, 1): 17408,
        (1, 1): 16315,
    }


@pytest.mark.parametrize("alone", [False, True])
def test_around_its_break_even_a_prompt_changes_sides(alone):
    at = break_even_prompt(V32, 2048, True, alone)

    def sparse_pays(tokens):
        found = dsa_prefill_ledger(tokens, V32, 2048, exact=True)
        indexer = 0 if alone else tokens * (tokens + 1) // 2 * pair_flops(V32).indexer
        return found.sparse_flops < found.dense_flops + indexer

    assert not sparse_pays(math.floor(at) - 1)
    assert sparse_pays(math.ceil(at) + 1)


def test_a_short_prompt_costs_more():
    few = dsa_prefill_ledger(4096, V32, 2048, exact=True)
    assert round(few.dense_flops / few.sparse_flops, 2) == 0.36


def test_the_cache_grows_by_the_indexers_keys():
    assert round(100 * index_cache_overhead(V32, "bf16_mla"), 1) == 11.5
    assert round(100 * index_cache_overhead(V32, "fp8_ds_mla"), 1) == 20.1
    assert round(100 * index_cache_overhead(GLM, "fp8_ds_mla"), 1) == 5.4
    assert index_cache_overhead(V3, "bf16_mla") == 0


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="bf16_mla, fp8_ds_mla, fp8_plain_mla"):
        dsa_decode_ledger(10, V32, 2, "int4")
    with pytest.raises(ValueError, match="topk is -1"):
        dsa_prefill_ledger(10, V32, -1, exact=True)
    with pytest.raises(ValueError, match=r"cached_tokens is 1\.5"):
        dsa_decode_ledger(1.5, V32, 2, "bf16_mla")
