"""The account of sparse attention, against a table that is printed elsewhere and against sums over positions; and its
exercises, whose oracles go other ways."""

import math
from importlib import import_module

import numpy as np
import pytest

from ledger import exercises
from ledger.account.dsa import (
    break_even_position,
    break_even_prompt,
    dsa_decode_ledger,
    dsa_prefill_ledger,
    index_cache_overhead,
    pair_flops,
)
from ledger.count import count
from ledger.exercises.making import rewritten
from ledger.judge.compare import difference
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


# The exercises


@pytest.mark.parametrize("model", [V32, GLM, V3, MODELS["MiniCPM3-4B"]], ids=lambda m: m.name)
def test_a_pair_is_what_its_products_count(model):
    """One query and one token, multiplied as arrays."""

    def attend(queries, keys, values):
        scores = queries[:, None] @ keys[..., None]
        return scores @ values[:, None]

    heads, entry = model.num_heads, np.ones(model.latent_dim + model.rope_dim)
    shared = np.tile(entry, (heads, 1))
    _, absorbed = count(attend, shared, shared, shared[:, : model.latent_dim])
    keys = np.ones((heads, model.nope_dim + model.rope_dim))
    _, expanded = count(attend, keys, keys, np.ones((heads, model.value_dim)))
    counted = [absorbed.macs, expanded.macs, 0]
    if model.index_heads:
        _, indexer = count(lambda q, k: q @ k, np.ones((model.index_heads, model.index_dim)), np.ones(model.index_dim))
        counted[2] = indexer.macs
    assert list(pair_flops(model)) == [2 * macs for macs in counted]


#: Every exercise on this account, and how it answers.
ACCOUNT = {
    "pair_flops": lambda *args: tuple(pair_flops(*args)),
    "dsa_decode_ledger": lambda *args: dsa_decode_ledger(*args)._asdict(),
    "dsa_prefill_ledger": lambda *args: dsa_prefill_ledger(*args)._asdict(),
    "break_even_position": break_even_position,
    "break_even_prompt": break_even_prompt,
    "index_cache_overhead": index_cache_overhead,
}


def every_case(id, seeds=range(5)):
    """(name, arguments) of every case that wants a value, on every seed."""
    exercise = exercises.get(id)
    for seed in seeds:
        for case in exercise.cases:
            if not case.raises:
                yield case.name, exercise.inputs(case, seed).values()


@pytest.mark.parametrize("id", ACCOUNT)
def test_account_and_oracle_go_different_ways_to_the_same_number(id):
    exercise = exercises.get(id)
    for name, args in every_case(id):
        assert difference(ACCOUNT[id](*args), exercise.oracle(*args), absolute=exercise.absolute) is None, name


@pytest.mark.parametrize("id", ["dsa_decode_ledger", "dsa_prefill_ledger", "break_even_prompt", "index_cache_overhead"])
def test_the_answer_that_wrong_ones_are_made_from_is_right(id):
    exercise = exercises.get(id)
    answer = rewritten(import_module(f"ledger.exercises.{id}").ANSWER, "answer", {})
    for name, args in every_case(id):
        assert difference(answer(*args), exercise.oracle(*args), absolute=exercise.absolute) is None, name


def test_lengths_to_be_found_lie_beyond_topk():
    """Where the statements say that the ledger's formulas hold."""
    for id in ("break_even_position", "break_even_prompt"):
        for name, args in every_case(id, range(50)):
            model, topk, *_ = args
            assert pair_flops(model).absorbed > pair_flops(model).expanded, name
            assert exercises.get(id).oracle(*args) > topk, name


def test_rows_that_pick_for_themselves_do_not_share_a_reading():
    """One draft at 8K, FP8: bytes of both rows over those of one, by how many picks they share."""
    ledger, rows_read = dsa_decode_ledger(8192, V32, 2048, "fp8_ds_mla"), exercises.get("rows_read").oracle
    index_keys = ledger.sparse_bytes - 2048 * 656

    def times(shared):
        first = np.arange(2048, dtype=np.int32)
        both = np.stack([first, first[::-1] + 2048 - round(shared * 2048)])
        return (index_keys + rows_read(both) * 656) / ledger.sparse_bytes

    assert [round(times(shared), 2) for shared in (0, 0.7, 1)] == [1.55, 1.17, 1.0]


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        ("rows [3, 5, -1] and [5, 0, 3]", 3),
        ("rows with few tokens", 14),
        ("seven of ten picks shared", 65),
        ("all rows alike", 19),
        ("no pick shared", 63),
        ("one row", 23),
        ("padding alone", 0),
    ],
)
def test_rows_read_in_cases_that_say_what_they_share(case, wanted):
    exercise = exercises.get("rows_read")
    for seed in range(5):
        selections = exercise.inputs(exercise.case(case), seed)["selections"]
        assert selections.dtype == np.int32
        assert exercise.oracle(selections) == wanted


def test_selections_hold_a_token_once_in_a_row():
    for name, (selections,) in every_case("rows_read"):
        for row in selections:
            assert len(set(row[row >= 0])) == (row >= 0).sum(), name


def test_rows_at_random_share_as_many_picks_as_chance_has_it():
    """Of N tokens two rows of k leave out (1 - k/N)² on average."""
    exercise = exercises.get("rows_read")
    case = exercise.case("DeepSeek-V3.2 with one draft at 8K")
    read = [exercise.oracle(**exercise.inputs(case, seed)) for seed in range(20)]
    assert np.mean(read) == pytest.approx(8192 * (1 - 0.75**2), rel=0.01)
