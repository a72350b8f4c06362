"""Layers on several ranks: played in one process, on processes of the launcher's and of torchrun's, beside one process,
a NumPy reference and counts by hand."""

import itertools
import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest

from ledger import exercises
from ledger.account import ranks
from ledger.account.attention import family
from ledger.account.experts import token_bytes
from ledger.judge import onward
from ledger.judge.compare import difference
from ledger.judge.launchers import ranks as launchers
from ledger.models import model
from ledger.parallel import launch, memory
from ledger.reference import experts as reference
from ledger.reference import values

torch = pytest.importorskip("torch")

from ledger.parallel import context, moe, steps, tour  # noqa: E402

#: Seconds in which an error must come that would otherwise never come.
SOON = 60


# Ranks in one process


def test_every_rank_gets_what_the_others_gave_it_in_their_order():
    def exchange(world):
        got = world.all_to_all([np.full((to, 2), 10 * world.rank + to) for to in range(world.size)], "first")
        assert [part.tolist() for part in got] == [[[10 * r + world.rank] * 2] * world.rank for r in range(3)]
        return sum(part.sum() for part in world.all_to_all([part[:1] for part in got]))

    results, worlds = memory.play(exchange, 3)
    # Rank s gives back the first row [10r + s] * 2 that it got from rank r; rank 0 got none.
    assert results == [2 * sum(10 * rank + source for source in (1, 2)) for rank in range(3)]
    for rank, world in enumerate(worlds):
        first, second = world.sent
        assert first == ("first", (0, 2 * 8, 4 * 8))
        assert second.bytes == ((16, 16, 16) if rank else (0, 0, 0))
        assert world.bytes_sent("first", leaving=True) == 48 - 16 * rank
        assert world.bytes_sent() == 48 + (48 if rank else 0)


def test_what_arrives_is_a_copy():
    kept = np.zeros(3)

    def exchange(world):
        [got] = world.all_to_all([kept])
        got += 1
        return world.all_to_all([got])[0]

    assert memory.play(exchange, 1).results[0].tolist() == [1, 1, 1]
    assert kept.tolist() == [0, 0, 0]


@pytest.mark.parametrize("idle", [0, 1, 2])
def test_a_rank_that_leaves_out_an_exchange_is_named(idle):
    def exchange(world):
        world.all_to_all([np.zeros(1)] * world.size)
        if world.rank != idle:
            world.all_to_all([np.zeros(1)] * world.size)

    with pytest.raises(memory.UnequalCalls, match=rf"rank {idle} returns after 1 call .* rank {int(idle == 0)} waits"):
        memory.play(exchange, 3)


def test_a_loop_without_an_end_ends():
    def exchange(world):
        while True:
            world.all_to_all([np.zeros(1)] * world.size)

    with pytest.raises(memory.UnequalCalls, match="without an end"):
        memory.play(exchange, 2)


def test_a_rank_that_goes_on_although_it_waits_is_found():
    def exchange(world):
        try:
            world.all_to_all([np.zeros(1)] * world.size)
        except BaseException:
            return 0

    with pytest.raises(memory.AnotherCourse, match="do not catch every exception"):
        memory.play(exchange, 2)


def test_a_rank_that_does_something_else_when_it_runs_again_is_found():
    runs = []

    def exchange(world):
        runs.append(world.rank)
        world.all_to_all([np.full(1, len(runs))] * world.size)

    with pytest.raises(memory.AnotherCourse, match="rank 0 does not do the same twice"):
        memory.play(exchange, 2)


@pytest.mark.parametrize(
    ("tensors", "error", "says"),
    [
        (lambda rank: [np.zeros(1)], ValueError, "got 1 tensors; give 2"),
        (lambda rank: [[0.0], [1.0]], TypeError, "takes tensors, not list"),
        (lambda rank: [np.zeros(()), np.zeros(())], ValueError, "not a single number"),
        (lambda rank: [np.zeros((1, 2)), np.zeros((1, 3))], ValueError, "only the first axis may differ"),
        (lambda rank: [np.zeros(1), np.zeros(1, int)], ValueError, "only the first axis may differ"),
        (lambda rank: [np.zeros((1, 2 + rank))] * 2, ValueError, r"rank 1 sent rows \(3,\) of float64 to rank 0"),
    ],
)
def test_tensors_that_cannot_travel_together_are_refused(tensors, error, says):
    with pytest.raises(error, match=says):
        memory.play(lambda world: world.all_to_all(tensors(world.rank)), 2)


# The layer of experts


def make_layer(tokens, hidden, num_experts, top_k, seed, dtype=torch.float32):
    """Tokens of all ranks, ids, weights, and experts as torch and as NumPy functions."""
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(rng.standard_normal((sum(tokens), hidden))).to(dtype)
    ids = np.array([rng.choice(num_experts, top_k, replace=False) for _ in range(sum(tokens))], np.int64)
    ids, weights = ids.reshape(sum(tokens), top_k), rng.random((sum(tokens), top_k))
    drawn = [[rng.standard_normal(s) / 3 for s in ((hidden, 5), (hidden, 5), (5, hidden))] for _ in range(num_experts)]

    def expert(gate, up, down):
        gate, up, down = (torch.from_numpy(weight).to(dtype) for weight in (gate, up, down))
        return lambda x: (torch.nn.functional.silu(x.to(dtype) @ gate) * (x.to(dtype) @ up)) @ down

    in_numpy = [reference.swiglu(*weights) for weights in drawn]
    return rows, torch.from_numpy(ids), torch.from_numpy(weights).to(dtype), [expert(*w) for w in drawn], in_numpy


def on_ranks(tokens, rows, ids, weights, experts, packed):
    """The layer on as many ranks as ``tokens`` has numbers: all outputs, and the worlds."""
    stops = list(itertools.accumulate(tokens))
    per_rank = len(experts) // len(tokens)

    def layer(world):
        mine = slice(stops[world.rank] - tokens[world.rank], stops[world.rank])
        own = experts[world.rank * per_rank :][:per_rank]
        return moe.moe_layer(world, rows[mine], ids[mine], weights[mine], own, packed)

    results, worlds = memory.play(layer, len(tokens))
    assert [len(result) for result in results] == list(tokens)
    return torch.cat(results), worlds


LAYERS = [((5,), 12, 4, 2), ((3, 4), 130, 6, 3), ((6, 0, 9), 256, 9, 1), ((0, 0, 0, 1), 7, 8, 8), ((0, 0), 5, 2, 1)]


@pytest.mark.parametrize("sizes", LAYERS)
def test_the_layer_without_rounding_is_the_reference_to_float64(sizes):
    tokens, *widths = sizes
    rows, ids, weights, experts, in_numpy = make_layer(tokens, *widths, seed=1, dtype=torch.float64)
    got, worlds = on_ranks(tokens, rows, ids, weights, experts, packed=False)
    want = reference.moe_layer(rows.numpy(), ids.numpy(), weights.numpy(), in_numpy)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)
    assert [sent.name for sent in worlds[0].sent] == ["ids", "tokens", "outputs"]


@pytest.mark.parametrize("sizes", LAYERS)
def test_the_layer_in_fp8_and_bf16_is_one_process_to_the_last_bit_and_near_the_rounded_reference(sizes):
    tokens, *widths = sizes
    rows, ids, weights, experts, in_numpy = make_layer(tokens, *widths, seed=2)
    got, worlds = on_ranks(tokens, rows, ids, weights, experts, packed=True)
    assert torch.equal(got, moe.moe_alone(rows, ids, weights, experts))
    assert len({len(world.sent) for world in worlds}) == 1, "a rank without tokens takes part in everything"

    def travelled(expert):
        return lambda x: reference.unpack_combine(reference.pack_combine(expert(x.astype(np.float64))))

    seen = reference.unpack_dispatch(reference.pack_dispatch(rows.numpy()))
    want = reference.moe_layer(seen, ids.numpy(), weights.numpy(), [travelled(expert) for expert in in_numpy])
    # An output may fall on the other side of a step of bf16, 2^-8 of it.
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-2, atol=1e-2 * np.abs(want).max(initial=0))


@pytest.mark.parametrize("sizes", LAYERS)
def test_what_the_layer_sends_is_the_formula(sizes):
    """Copies are counted from the ids, by pairs of ranks."""
    tokens, hidden, num_experts, top_k = sizes
    rows, ids, weights, experts, _ = make_layer(tokens, hidden, num_experts, top_k, seed=3)
    _, worlds = on_ranks(tokens, rows, ids, weights, experts, packed=True)
    size, weigh = len(tokens), token_bytes(hidden)
    copies = np.zeros((size, size), int)  # from, to
    homes = np.repeat(np.arange(size), tokens)
    for token, expert in itertools.chain(*([(t, e) for e in row] for t, row in enumerate(ids.tolist()))):
        copies[homes[token], expert // (num_experts // size)] += 1
    for rank, world in enumerate(worlds):
        sent = {each.name: np.array(each.bytes) for each in world.sent}
        assert (sent["codes"] + sent["scales"] == weigh.dispatch * copies[rank]).all()
        assert (sent["ids"] == 8 * copies[rank]).all()
        assert (sent["outputs"] == weigh.combine * copies[:, rank]).all()


def test_a_copy_at_deepseek_v3s_width_weighs_7392_and_14336_bytes():
    rows = torch.randn(1, 7168, generator=torch.Generator().manual_seed(0))
    ids, weights = torch.tensor([[1]]), torch.ones(1, 1)
    _, worlds = on_ranks((1, 0), rows, ids, weights, [lambda x: x] * 2, packed=True)
    assert worlds[0].bytes_sent("codes", "scales", leaving=True) == 7392
    assert worlds[1].bytes_sent("outputs", leaving=True) == 14336


@pytest.mark.parametrize("shape", [(3, 256), (2, 200), (1, 1), (0, 128), (4, 0)])
def test_packed_tokens_are_the_references_bit_for_bit(shape):
    rng = np.random.default_rng(4)
    rows = rng.standard_normal(shape, dtype=np.float32) * 10 ** rng.uniform(-3, 3, (shape[0], 1)).astype(np.float32)
    rows[:, :1] = 0
    codes, scales = moe.pack_dispatch(torch.from_numpy(rows))
    want = reference.pack_dispatch(rows)
    np.testing.assert_array_equal(codes.view(torch.uint8).numpy(), want.codes)
    np.testing.assert_array_equal(scales.numpy(), want.scales)
    np.testing.assert_array_equal(moe.unpack_dispatch(codes, scales).numpy(), reference.unpack_dispatch(want))


def test_an_expert_is_the_same_in_every_process():
    rows = torch.ones(1, 6)
    assert torch.equal(moe.make_expert(3, 6, 4)(rows), moe.make_expert(3, 6, 4)(rows))
    assert not torch.equal(moe.make_expert(3, 6, 4)(rows), moe.make_expert(2, 6, 4)(rows))


# Decode context parallelism


@pytest.mark.parametrize(("size", "cached"), [(1, 5), (2, 7), (4, 13), (4, 3), (3, 1)])
def test_a_shared_cache_decodes_as_an_undivided_one(size, cached):
    """Three new tokens, six heads or a multiple; with fewer entries than ranks some hold none."""
    rng = np.random.default_rng(size)
    heads, latent, rope, scale = 2 * size, 9, 4, 0.3
    queries = rng.standard_normal((3, heads, latent + rope))
    cache = rng.standard_normal((cached, latent + rope))

    def step(world):
        own = torch.from_numpy(queries[:, 2 * world.rank : 2 * world.rank + 2].copy())
        part = context.own_tokens(torch.from_numpy(cache), world)
        assert len(part) == ranks.tokens_on_rank(cached, world.rank, size)
        return context.decode(world, own, part, latent, scale)

    results, worlds = memory.play(step, size)
    weights, lse = values.softmax_lse(scale * np.einsum("shf,tf->sht", queries, cache))
    want = np.einsum("sht,tc->shc", weights, cache[:, :latent])
    np.testing.assert_allclose(np.concatenate([out for out, _ in results], axis=1), want, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(np.concatenate([part for _, part in results], axis=1), lse, rtol=1e-12)
    assert {tuple(sent.name for sent in world.sent) for world in worlds} == {("queries", "partial outputs", "lse")}


def test_partial_results_are_merged_by_the_rule_of_the_course():
    rng = np.random.default_rng(5)
    outputs, lses = rng.standard_normal((4, 3, 2, 5)), 30 * rng.standard_normal((4, 3, 2))
    lses[0, 0], lses[2] = -np.inf, -np.inf
    lses[:, 2, 1] = -np.inf
    outputs[2] = np.nan
    for got, want in zip(
        context.merge_partials(torch.from_numpy(outputs), torch.from_numpy(lses)),
        values.merge_partials(outputs, lses),
        strict=True,
    ):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-13, atol=1e-300)


def test_in_bf16_the_exchange_is_the_formula_and_the_log_sums_stay_fp32():
    v3, size = model("DeepSeek-V3"), 4

    def step(world):
        own = torch.randn(2, v3.num_heads // size, v3.cache_dim, generator=torch.Generator().manual_seed(1)).bfloat16()
        output, lse = context.decode(world, own, torch.zeros(3, v3.cache_dim).bfloat16(), v3.latent_dim, 0.1)
        assert (output.dtype, lse.dtype) == (torch.bfloat16, torch.float32)

    formula = ranks.exchange_bytes(v3, size, new_tokens=2)
    for world in memory.play(step, size).worlds:
        assert formula == tuple(world.bytes_sent(each.name, leaving=True) for each in world.sent)
    assert formula.total == 3 * 2 * 32 * (576 * 2 + 512 * 2 + 4)


# Who holds what


@pytest.mark.parametrize(
    ("kv_heads", "gpus", "context_ranks"), [(8, 2, 1), (8, 8, 1), (2, 8, 4), (2, 8, 2), (1, 6, 3), (1, 4, 4)]
)
def test_bytes_on_a_gpu_by_handing_out_every_entry(kv_heads, gpus, context_ranks):
    """Query heads are handed out, each GPU keeps the key heads of its own, and the replicas of a head share tokens."""
    query_heads, tokens = 48, 12
    scheme = family(model("DeepSeek-V3"))[1]
    scheme = type(scheme)("GQA", query_heads, kv_heads, kv_heads, 10, 10, 20 * kv_heads, 1)
    per_gpu = query_heads // gpus
    holders = {h: [] for h in range(kv_heads)}
    for gpu in range(gpus):
        own = range(gpu * per_gpu, (gpu + 1) * per_gpu)
        for head in sorted({query // (query_heads // kv_heads) for query in own}):
            holders[head].append(gpu)
    assert {len(found) for found in holders.values()} == {ranks.replicas(kv_heads, gpus)}
    held = np.zeros(gpus)
    for found, token in itertools.product(holders.values(), range(tokens)):
        for place, gpu in enumerate(found):
            held[gpu] += 20 * (token % context_ranks == place % context_ranks)
    assert (held / tokens == ranks.cache_bytes_on_gpu(scheme, gpus, context_ranks)).all()


def test_latent_attention_holds_everything_everywhere_until_the_tokens_are_shared():
    mha, gqa, mqa, mla = family(model("DeepSeek-V3"))
    on_eight = [ranks.cache_bytes_on_gpu(scheme, 8) for scheme in (mha, gqa, mqa, mla)]
    assert on_eight == [mha.cache_bytes / 8, gqa.cache_bytes / 8, mqa.cache_bytes, 1152]
    assert [ranks.cache_bytes_on_gpu(mla, 8, shared) for shared in (1, 2, 4, 8)] == [1152, 576, 288, 144]
    assert ranks.cache_bytes_on_gpu(gqa, 16) == ranks.cache_bytes_on_gpu(gqa, 8)
    assert ranks.cache_bytes_on_gpu(gqa, 16, 2) == ranks.cache_bytes_on_gpu(gqa, 8) / 2


@pytest.mark.parametrize(("kv_heads", "gpus", "shared"), [(3, 2, 1), (4, 4, 2), (1, 4, 3), (1, 0, 1), (1, 2, 0)])
def test_what_cannot_be_shared_evenly_is_refused(kv_heads, gpus, shared):
    scheme = family(model("DeepSeek-V3"))[3]
    scheme = type(scheme)("GQA", 12, kv_heads, kv_heads, 1, 1, 2 * kv_heads)
    with pytest.raises(ValueError, match=r"choose|whole number"):
        ranks.cache_bytes_on_gpu(scheme, gpus, shared)


def test_tokens_are_dealt_out_in_turn():
    assert [ranks.tokens_on_rank(9, rank, 2) for rank in range(2)] == [5, 4]
    assert [ranks.tokens_on_rank(2, rank, 4) for rank in range(4)] == [1, 1, 0, 0]
    with pytest.raises(ValueError, match="128 heads"):
        ranks.exchange_bytes(model("DeepSeek-V3"), 3)


# Processes


def test_four_processes_give_what_one_does_and_send_what_the_formulas_say(root):
    """The layer of experts, the reference answer of ``dispatch_and_combine`` in float64, and a shared cache."""
    found = launch.run(tour.tour, 4, 1001, (64,), onward.solution_of(exercises.get("dispatch_and_combine"), root))
    layers, answers, steps_taken = ([each[name] for each in found] for name in ("experts", "answer", "decode"))
    for layer, tokens in zip(layers, steps.TOKENS, strict=True):
        sent = layer["sent"]
        assert layer["equal"]
        assert sent["codes"] + sent["scales"] == 8 * tokens * (896 + 4 * 7)
        assert sent["outputs"] == layer["load"] * 2 * 896
    assert sum(layer["load"] for layer in layers) == 8 * sum(steps.TOKENS)
    for answer in answers:
        assert answer["error"] <= 1e-12
        assert answer["leaving"] == answer["need"] > 0
    assert [step["tokens"] for step in steps_taken] == [251, 250, 250, 250]
    assert max(step["error"] for step in steps_taken) < 1e-13


@pytest.mark.parametrize(
    ("how", "rank", "says"),
    [
        ("dies", 1, r"rank 1 died after 1 of all_to_all: it ended with exit code 3"),
        (
            "returns",
            1,
            r"^rank 1 returned after 1 of all_to_all, and others came to the next: rank 0 raised Unreachable",
        ),
        ("hangs", None, r"after 3 s: rank 0 waits in all_to_all 2 \(combine\); rank 1 is busy after 1 of all_to_all"),
    ],
)
def test_a_rank_that_dies_hangs_or_leaves_is_an_error_soon(how, rank, says):
    start = time.monotonic()
    with pytest.raises(launch.RankFailed, match=says) as error:
        launch.run(tour.fails, 2, how, seconds=3)
    assert error.value.rank == rank
    assert time.monotonic() - start < SOON


def test_a_function_that_other_processes_cannot_import_is_refused_at_once():
    with pytest.raises(ValueError, match="define it at the top of a module"):
        launch.run(lambda world: 0, 2)
    with pytest.raises(ValueError, match="size is 0"):
        launch.run(steps.check_all, 0)


ANSWER = """\
def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    per_rank, top_k = len(experts), expert_ids.shape[1]
    ids = expert_ids.flatten()
    copies = [(ids // per_rank == r).nonzero().flatten() for r in range(world.size)]
    arrived = world.all_to_all([tokens[chosen // top_k] for chosen in copies])
    numbers = world.all_to_all([ids[chosen] for chosen in copies])
    results = [torch.zeros_like(rows) for rows in arrived]
    for result, rows, wanted in zip(results, arrived, numbers):
        for local, expert in enumerate(experts):
            mine = wanted == rank * per_rank + local
            result[mine] = expert(rows[mine])
    output = torch.zeros_like(tokens)
    for chosen, result in zip(copies, world.all_to_all(results)):
        output.index_add_(0, chosen // top_k, weights.flatten()[chosen, None] * result)
    return output
"""


def test_an_answer_is_held_to_one_process_and_to_the_bytes_that_it_needs():
    found, _ = memory.play(lambda world: steps.answer_step(world, ANSWER), 4)
    for each in found:
        assert each["error"] < 1e-13
        assert each["leaving"] == each["need"] > 0


def test_a_token_may_go_to_a_rank_once_with_all_its_ids_and_weights():
    def once_a_rank(tokens, expert_ids, weights, experts, rank, world):
        wanted = [(expert_ids // len(experts) == r).any(1).nonzero().flatten() for r in range(world.size)]
        sent = [world.all_to_all([x[rows] for rows in wanted]) for x in (tokens, expert_ids.to(tokens.dtype), weights)]
        results = [torch.zeros_like(rows) for rows in sent[0]]
        for result, rows, ids, counts in zip(results, *sent, strict=True):
            for local, expert in enumerate(experts):
                row, choice = (ids == rank * len(experts) + local).nonzero(as_tuple=True)
                result.index_add_(0, row, counts[row, choice, None] * expert(rows[row]))
        output = torch.zeros_like(tokens)
        for rows, result in zip(wanted, world.all_to_all(results), strict=True):
            output[rows] += result
        return output

    exercise = exercises.get("dispatch_and_combine")
    for case in exercise.cases:
        args = exercise.inputs(case, 7).values()
        got, want = launchers.dispatch_and_combine(once_a_rank, *args), exercise.oracle(*args)
        assert difference(got, want) is None, case.name


def test_an_error_in_an_answer_shows_its_line():
    with pytest.raises(launch.RankFailed, match=r"NameError.*helper[^$]*line 4: copies = helper\(ids\)"):
        launch.run(steps.answer_step, 1, ANSWER.replace("copies = ", "copies = helper(ids)  # "))


@pytest.mark.parametrize("size", [0, 3, 64])
def test_experts_that_do_not_go_evenly_onto_the_ranks_are_refused(size):
    with pytest.raises(ValueError, match=rf"32 experts and 128 heads .* {size} ranks; take 1, 2, 4, 8, 16, 32$"):
        steps.check_ranks(size)


@pytest.mark.parametrize(
    ("asked", "says"),
    [(["--ranks", "3"], "onto 3 ranks; take 1, 2"), (["--ranks", "1", "--backend", "nccl"], "nccl needs a GPU")],
)
def test_the_command_says_what_it_cannot_do(asked, says):
    done = subprocess.run(
        [sys.executable, "-m", "ledger.parallel", *asked],
        capture_output=True,
        text=True,
        timeout=3 * SOON,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def torchrun(size, *what):
    """``torchrun`` of ``what`` on ``size`` processes, ended."""
    where = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(size), *where, *what],
        capture_output=True,
        text=True,
        timeout=3 * SOON,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


DYING = """\
import pathlib

from ledger.parallel import distributed, tour

with distributed.joined(seconds=600) as world:
    pathlib.Path(__file__).with_name(f"joined-{world.rank}").touch()
    tour.fails(world, "dies")
"""


def test_torchrun_ends_all_soon_after_a_rank_has_died(tmp_path):
    """Counted from when both have met: without it they would wait for 600 s."""
    script = tmp_path / "dying.py"
    script.write_text(DYING)
    done = torchrun(2, str(script))
    took = time.time() - max((tmp_path / f"joined-{rank}").stat().st_mtime for rank in range(2))
    assert done.returncode != 0
    assert re.search(r"rank +: 1 .*\n *exitcode +: 3 ", done.stderr), done.stderr
    assert took < 20


@pytest.mark.parametrize("size", [2, 4])
def test_torchrun_gives_what_one_process_does(size):
    done = torchrun(size, "-m", "ledger.parallel")
    assert done.returncode == 0, done.stderr
    first, experts, decode = done.stdout.splitlines()
    assert first == f"{size} ranks on gloo"
    assert "to the last bit; 924 + 1792 bytes a copy" in experts
    assert f"{-(-1001 // size)} of 1001 tokens" in decode
