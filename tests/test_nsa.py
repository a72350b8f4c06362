"""Chapter 11: the exercises' oracles and reference bodies against sets of tokens, the paper's formula and table, scalar
loops, torch and the kernels' NumPy twins."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ledger import exercises
from ledger.exercises import nsa_decode as decode
from ledger.judge.notebook import run_here
from ledger.reference import sparse
from ledger.setups import NSA_PAPER, NsaConfig

MASTER = Path(__file__).resolve().parent.parent / "course" / "practice" / "ch11_nsa" / "nsa.py"
IDS = [
    *("compress_blocks", "selection_scores", "pick_blocks", "window_range"),
    *("gated_sum", "nsa_tokens_read", "nsa_decode"),
]
PAPER = {"block": 32, "stride": 16, "selection_block": 64}
RNG = np.random.default_rng(11)


def reference_bodies():
    """The answers of the master, in one namespace as in a notebook."""
    cells = re.split(r"^# %%", MASTER.read_text(encoding="utf-8"), flags=re.MULTILINE)
    namespace = {"np": np}
    for cell in cells:
        if cell.startswith(" exercise="):
            exec(compile(cell.partition("\n")[2], "<master>", "exec"), namespace)
    return namespace


BODIES = reference_bodies()
#: Every function that gives right values: the oracle, and the body that learners see.
ROUTES = {id: [exercises.get(id).oracle, BODIES[id]] for id in IDS}


def both(id):
    return pytest.mark.parametrize(id, ROUTES[id], ids=["oracle", "body"])


# The sizes


def test_the_sizes_of_the_paper():
    c = NSA_PAPER
    assert (c.block, c.stride, c.selection_block) == (32, 16, 64)
    assert (c.count, c.initial, c.local, c.window) == (16, 1, 2, 512)


# Compression


@both("compress_blocks")
@pytest.mark.parametrize(
    ("tokens", "block", "stride", "first"),
    [
        (31, 32, 16, []),
        (32, 32, 16, [0]),
        (47, 32, 16, [0]),
        (48, 32, 16, [0, 16]),
        (10, 4, 3, [0, 3, 6]),
        (9, 2, 5, [0, 5]),
        (0, 3, 1, []),
    ],
)
def test_complete_blocks_and_their_means(compress_blocks, tokens, block, stride, first):
    keys = RNG.standard_normal((tokens, 3))
    right = [[math.fsum(keys[t, d] for t in range(s, s + block)) / block for d in range(3)] for s in first]
    got = compress_blocks(keys, block, stride)
    assert got.shape == (len(first), 3)
    assert got == pytest.approx(np.array(right).reshape(-1, 3), rel=1e-12, abs=1e-12)


# Scores


def shared_tokens(i, j, block, stride, selection_block):
    compressed = set(range(i * stride, i * stride + block))
    return len(compressed & set(range(j * selection_block, (j + 1) * selection_block)))


@both("selection_scores")
@pytest.mark.parametrize(
    ("tokens", "block", "stride", "selection_block"),
    [(300, 32, 16, 64), (61, 7, 3, 11), (58, 12, 4, 5), (77, 4, 6, 9), (23, 6, 3, 1), (40, 8, 8, 4), (31, 32, 16, 8)],
)
def test_scores_count_the_tokens_that_two_blocks_share(selection_scores, tokens, block, stride, selection_block):
    blocks = len([s for s in range(0, tokens, stride) if s + block <= tokens])
    probs = RNG.dirichlet(np.ones(blocks), 3) if blocks else np.zeros((3, 0))
    right = [
        [sum(p[i] * shared_tokens(i, j, block, stride, selection_block) for i in range(blocks)) / stride
         for j in range(math.ceil(tokens / selection_block))]
        for p in probs
    ]  # fmt: skip
    got = selection_scores(probs, tokens, block, stride, selection_block)
    assert got == pytest.approx(np.array(right), rel=1e-12)
    kernels = [sparse.selection_scores(p, tokens, block, stride, selection_block) for p in probs]
    assert got == pytest.approx(np.array(kernels), rel=1e-12)


@both("selection_scores")
def test_the_weights_of_the_paper_are_1_2_2_2_1_and_those_of_block_0_2_2_2_1(selection_scores):
    tokens = 64 * 5
    blocks = (tokens - 32) // 16 + 1
    weights = selection_scores(np.eye(blocks), tokens, **PAPER)  # (compressed, selection)
    for j in range(1, 4):
        met = np.flatnonzero(weights[:, j])
        assert met.tolist() == [4 * j - 1, 4 * j, 4 * j + 1, 4 * j + 2, 4 * j + 3]
        assert weights[met, j].tolist() == [1, 2, 2, 2, 1]
    assert weights[:, 0].tolist() == [2, 2, 2, 1] + [0] * (blocks - 4)
    assert weights[-4:, 4].tolist() == [1, 2, 2, 2]  # a fifth would have only begun


@both("selection_scores")
def test_no_weight_is_lost_where_the_blocks_lie_in_the_tokens(selection_scores):
    """Every compressed block is given away whole: block over stride in all."""
    probs = RNG.dirichlet(np.ones(17), 4)
    assert selection_scores(probs, 300, **PAPER).sum(axis=1) == pytest.approx(np.full(4, 2.0))


TRAPS = [mistake for mistake in exercises.get("selection_scores").mistakes if "counted from 0" in mistake.name]


def test_the_papers_formula_is_right_where_indices_count_from_1_and_wrong_from_0():
    """p'[j] = Σ over m < 4 and n < 2 of p[4 j − m − n]."""
    tokens = 64 * 5
    p = RNG.dirichlet(np.ones((tokens - 32) // 16 + 1))
    right = exercises.get("selection_scores").oracle(p, tokens, **PAPER)
    from_1 = [
        sum(p[4 * j - m - n - 1] for m in range(4) for n in range(2) if 1 <= 4 * j - m - n <= len(p))
        for j in range(1, 6)
    ]
    assert right == pytest.approx(np.array(from_1), rel=1e-12)
    from_0 = TRAPS[0].value(p, tokens, **PAPER)
    by_hand = [sum(w * p[4 * j - 4 + i] for i, w in enumerate((1, 2, 2, 2, 1)) if 4 * j - 4 + i >= 0) for j in range(5)]
    assert from_0 == pytest.approx(np.array(by_hand), rel=1e-12)
    assert np.abs(from_0 - right).max() > 0.01


@pytest.mark.parametrize("mistake", TRAPS, ids=lambda mistake: mistake.name)
def test_the_trap_of_the_formula_is_named(mistake):
    exercise = exercises.get("selection_scores")
    for seed in range(4):
        result = run_here(exercise, mistake.value, seed=seed)
        assert result.verdict != "passed"
        assert any("It counts from 1" in case.message for case in result.cases if case.verdict == "wrong")


# The choice


def picks(pick_blocks, scores, position, count, initial=1, local=2, selection_block=8):
    got = pick_blocks(np.array(scores, float), position, count, initial, local, selection_block)
    assert (got.shape, got.dtype) == ((count,), np.int32)
    return got.tolist()


@both("pick_blocks")
def test_forced_blocks_come_first_and_are_among_the_count(pick_blocks):
    scores = [0.0, 5.0, 4.0, 3.0, 2.0, 0.0, 0.0]
    assert picks(pick_blocks, scores, 55, 5) == [0, 5, 6, 1, 2]
    assert picks(pick_blocks, scores, 55, 3) == [0, 5, 6]
    assert picks(pick_blocks, scores, 55, 3, initial=0, local=0) == [1, 2, 3]
    assert picks(pick_blocks, scores, 55, 3, initial=2, local=1) == [0, 1, 6]


@both("pick_blocks")
def test_a_block_is_visible_with_its_first_token(pick_blocks):
    scores = [0.0] * 9
    assert picks(pick_blocks, scores, 0, 4) == [0, -1, -1, -1]
    assert picks(pick_blocks, scores, 7, 4) == [0, -1, -1, -1]
    assert picks(pick_blocks, scores, 8, 4) == [0, 1, -1, -1]
    assert picks(pick_blocks, scores, 16, 4) == [0, 1, 2, -1]


@both("pick_blocks")
def test_the_lower_block_wins_a_tie(pick_blocks):
    scores = [0, 1, 2, 1, 2, 1, 2, 1, 0, 0]
    assert picks(pick_blocks, scores, 79, 7) == [0, 8, 9, 2, 4, 6, 1]
    assert picks(pick_blocks, [0] * 10, 79, 6) == [0, 8, 9, 1, 2, 3]


@both("pick_blocks")
def test_what_comes_after_the_position_does_not_count(pick_blocks):
    assert picks(pick_blocks, [0, 1, 2, 3, 0, math.nan, math.inf, 99], 39, 4) == [0, 3, 4, 2]


@both("pick_blocks")
def test_the_choice_is_that_of_the_kernels(pick_blocks):
    """Their scores are +∞ where a block is forced."""
    nsa = pytest.importorskip("ledger.kernels.loops.nsa")
    for position, selection_block in ((171, 7), (13, 6), (0, 64), (230, 10)):
        visible = position // selection_block + 1
        scores = RNG.choice([0.0, 0.25, 0.5, 0.75], visible).astype(np.float32)
        forced = scores.copy()
        forced[:1] = forced[max(0, visible - 2) :] = np.inf
        blocks = np.zeros((1, 1, 9), np.int32)
        nsa.pick_blocks(forced[None, None], np.array([visible]), blocks, 1, COUNT=9)
        assert picks(pick_blocks, scores, position, 9, selection_block=selection_block) == blocks[0, 0].tolist()


# Window and gates


@both("window_range")
@pytest.mark.parametrize(
    ("position", "window", "wanted"),
    [
        (0, 512, (0, 1)),
        (511, 512, (0, 512)),
        (512, 512, (1, 513)),
        (30, 512, (0, 31)),
        (9, 1, (9, 10)),
        (9, 0, (10, 10)),
    ],
)
def test_the_window_ends_with_the_query(window_range, position, window, wanted):
    assert window_range(position, window) == wanted
    assert len(range(*window_range(position, window))) == min(window, position + 1)


@both("gated_sum")
def test_gates_are_taken_as_they_are(gated_sum):
    branches, gates = RNG.standard_normal((3, 4, 5)), RNG.uniform(0, 1, (3, 4))
    right = [[sum(gates[b, h] * branches[b, h, d] for b in range(3)) for d in range(5)] for h in range(4)]
    assert gated_sum(branches, gates) == pytest.approx(np.array(right), rel=1e-12)
    assert gated_sum(branches, np.ones((3, 4))) == pytest.approx(branches[0] + branches[1] + branches[2])


# What a step reads


@both("nsa_tokens_read")
@pytest.mark.parametrize(
    ("cached", "compressed", "printed"),
    [(8192, 511, "4.0"), (16_384, 1023, "6.4"), (32_768, 2047, "9.1"), (65_536, 4095, "11.6")],
)
def test_the_papers_table_of_tokens_read(nsa_tokens_read, cached, compressed, printed):
    """The expected speed-ups of the paper's table of memory access are tokens cached over tokens read."""
    read = nsa_tokens_read(cached, 32, 16, 64, 16, 512)
    assert read == compressed + 1024 + 512
    assert f"{cached / read:.1f}" == printed


@both("nsa_tokens_read")
def test_short_contexts_read_more_than_dense_attention(nsa_tokens_read):
    for cached, wanted in ((0, 0), (1, 2), (31, 62), (32, 65), (512, 31 + 512 + 512), (1024, 63 + 1024 + 512)):
        assert nsa_tokens_read(cached, 32, 16, 64, 16, 512) == wanted


@both("nsa_tokens_read")
def test_tokens_read_are_those_that_the_step_meets(nsa_tokens_read):
    """Where all selection blocks are full."""
    sizes = dict(block=8, stride=4, selection_block=16, count=4, initial=1, local=2, window=20)
    args = decode.make(RNG, np.dtype(float), tokens=128, heads=2, dim=4, value_dim=3, **sizes)
    met = slow_parts(**args)
    wanted = nsa_tokens_read(128, 8, 4, 16, 4, 20)
    assert sum(len(tokens) for tokens in met) == wanted == 31 + 64 + 20


# The whole step


def slow_parts(query, branches, gates, config):
    """Which compressed blocks, selected tokens and window tokens a step meets, by scalar loops and sets."""
    c, tokens = config, len(branches["window"][0])
    starts = [s for s in range(0, tokens, c.stride) if s + c.block <= tokens]
    means = slow_means(branches["compressed"][0], starts, c.block)
    scores = [0.0] * math.ceil(tokens / c.selection_block)
    for q in query.tolist():
        weights = slow_softmax([c.scale * dot(q, k) for k in means])
        for (i, weight), j in ((pair, j) for pair in enumerate(weights) for j in range(len(scores))):
            scores[j] += weight * shared_tokens(i, j, c.block, c.stride, c.selection_block) / c.stride
    last = len(scores)
    chosen = [j for j in range(last) if j < c.initial or j >= last - c.local]
    while len(chosen) < min(c.count, last):
        chosen.append(max((j for j in range(last) if j not in chosen), key=lambda j: (round(scores[j], 9), -j)))
    selected = [
        t for t in range(tokens) if any(t in range(j * c.selection_block, (j + 1) * c.selection_block) for j in chosen)
    ]
    return starts, selected, [t for t in range(tokens) if t > tokens - 1 - c.window]


def slow_decode(query, branches, gates, config):
    """The step by scalar loops, a head and a feature at a time."""
    c = config
    starts, selected, window = slow_parts(query, branches, gates, config)
    coarse = [slow_means(x, starts, c.block) for x in branches["compressed"]]
    parts = [
        coarse,
        *(
            [[x[t].tolist() for t in listed] for x in branches[name]]
            for name, listed in (("selected", selected), ("window", window))
        ),
    ]
    width = branches["window"][1].shape[1]
    result = np.zeros((len(query), width))
    for h, q in enumerate(query.tolist()):
        for b, (keys, values) in enumerate(parts):
            weights = slow_softmax([c.scale * dot(q, k) for k in keys])
            for d in range(width):
                result[h, d] += gates[b, h] * math.fsum(w * v[d] for w, v in zip(weights, values, strict=True))
    return result


def slow_means(x, starts, block):
    return [[math.fsum(x[s : s + block, d].tolist()) / block for d in range(x.shape[1])] for s in starts]


def slow_softmax(logits):
    powers = [math.exp(x - max(logits)) for x in logits]
    return [power / math.fsum(powers) for power in powers]


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


FLOAT64 = [case for case in decode.EXERCISE.cases if case.dtype == "float64" and case.dims.get("tokens") != 1300]


@both("nsa_decode")
@pytest.mark.parametrize("case", FLOAT64, ids=lambda case: case.name)
def test_the_step_is_that_of_scalar_loops(nsa_decode, case):
    for seed in range(3):
        args = decode.EXERCISE.inputs(case, seed)
        assert nsa_decode(**args) == pytest.approx(slow_decode(**args), rel=1e-10, abs=1e-12)


@both("nsa_decode")
def test_a_step_that_reads_everything_is_dense_attention_three_times(nsa_decode):
    torch = pytest.importorskip("torch")
    sizes = dict(block=1, stride=1, selection_block=8, count=9, initial=1, local=2, window=70)
    args = decode.make(RNG, np.dtype(float), tokens=65, heads=3, dim=6, value_dim=5, **sizes)
    gates = torch.tensor(args["gates"])
    right = 0
    for gate, (keys, values) in zip(gates, args["branches"].values(), strict=True):
        q, k, v = (torch.tensor(x)[None] for x in (args["query"], keys, values))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=args["config"].scale)
        right = right + gate[:, None] * out[0]
    assert nsa_decode(**args) == pytest.approx(right.numpy(), rel=1e-10)


@both("nsa_decode")
@pytest.mark.parametrize("position", [0, 15, 30])
def test_below_position_31_the_compressed_branch_is_empty(nsa_decode, position):
    own = {name: value for name, value in vars(NSA_PAPER).items() if name != "scale"}
    args = decode.make(RNG, np.dtype(float), tokens=position + 1, heads=3, dim=5, value_dim=4, **own)
    got = nsa_decode(**args)
    shut = args | {"gates": args["gates"] * [[0], [1], [1]]}
    assert np.isfinite(got).all()
    assert got == pytest.approx(nsa_decode(**shut), rel=1e-12)
    args = decode.make(RNG, np.dtype(float), tokens=32, heads=3, dim=5, value_dim=4, **own)
    assert np.abs(nsa_decode(**args) - nsa_decode(**(args | {"gates": args["gates"] * [[0], [1], [1]]}))).max() > 0.01


@both("nsa_decode")
def test_without_scores_the_lower_blocks_are_read(nsa_decode):
    sizes = dict(block=32, stride=16, selection_block=4, count=4, initial=0, local=1, window=0)
    args = decode.make(RNG, np.dtype(float), tokens=30, heads=2, dim=4, value_dim=3, **sizes)
    keys, values = args["branches"]["selected"]
    listed = [*range(12), 28, 29]  # blocks 0, 1, 2 and the last
    right, _ = sparse.attend(args["query"], keys, values, listed, args["config"].scale)
    assert nsa_decode(**args) == pytest.approx(args["gates"][1, :, None] * right, rel=1e-12)


@both("nsa_decode")
def test_the_heads_of_a_group_share_their_blocks(nsa_decode):
    """Two heads that look at different blocks, with room for one: the louder one chooses for both."""
    config = NsaConfig(block=2, stride=2, selection_block=2, count=2, initial=0, local=1, window=1, scale=1.0)
    coarse = np.zeros((10, 2))
    coarse[2:4, 0], coarse[4:6, 1] = 9.0, 9.0  # head 0 looks at block 1, head 1 at block 2
    query = np.array([[1.0, 0.0], [0.0, 0.4]])
    zeros, values = np.zeros((10, 2)), np.arange(10.0)[:, None]
    branches = {"compressed": (coarse, values), "selected": (zeros, values), "window": (zeros, values)}
    gates = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    assert nsa_decode(query, branches, gates, config).ravel() == pytest.approx([(2 + 3 + 8 + 9) / 4] * 2)
    alone = nsa_decode(query[1:], branches, gates[:, 1:], config)
    assert alone.ravel() == pytest.approx([(4 + 5 + 8 + 9) / 4])


@both("nsa_decode")
def test_forced_blocks_leave_less_room_for_the_others(nsa_decode):
    sizes = dict(block=8, stride=4, selection_block=16, count=4, initial=1, local=2, window=20)
    args = decode.make(RNG, np.dtype(float), tokens=200, heads=3, dim=5, value_dim=4, **sizes)
    c = args["config"]
    assert len(slow_parts(**args)[1]) == 3 * 16 + 200 % 16
    free = replace(c, initial=0, local=0)
    assert nsa_decode(**(args | {"config": free})) == pytest.approx(slow_decode(**(args | {"config": free})), rel=1e-10)


def test_block_means_are_those_of_the_kernels():
    nsa = pytest.importorskip("ledger.kernels.loops.nsa")
    x = RNG.standard_normal((1, 75, 1, 6)).astype(np.float32)
    out = np.zeros((1, 3, 1, 6), np.float32)
    nsa.compress(x, np.array([75]), out, 3, 1)
    assert out[0, :, 0] == pytest.approx(BODIES["compress_blocks"](x[0, :, 0], 32, 16), rel=1e-5, abs=1e-6)
