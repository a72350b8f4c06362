"""DeepSeek's indexer against scalar loops and torch, what its explorer draws, and how its record was measured."""

import importlib
import math
import subprocess
import sys

import numpy as np
import pytest

from ledger.models import model
from ledger.reference import indexer, sparse
from ledger.reference.rope import half_split_order
from ledger.widgets import picks
from ledger.widgets.base import png

RNG = np.random.default_rng(10)


# The parts


def test_layer_norm_is_torchs():
    torch = pytest.importorskip("torch")
    x, weight, bias = 3 + RNG.standard_normal((4, 6)), RNG.standard_normal(6), RNG.standard_normal(6)
    want = torch.nn.functional.layer_norm(
        *map(torch.from_numpy, (x,)), (6,), *map(torch.from_numpy, (weight, bias)), 1e-3
    )
    np.testing.assert_allclose(indexer.layer_norm(x, weight, bias, 1e-3), want.numpy(), rtol=1e-12)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_turns_the_first_features_alone(interleaved):
    x, positions, theta = RNG.standard_normal((5, 3, 10)), np.array([0, 1, 7, 100, 4095]), 1e4
    got = indexer.rope_first(x, positions, 6, theta, interleaved)
    for token, position in enumerate(positions.tolist()):
        for pair in range(3):
            first, second = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + 3)
            turn = complex(math.cos(angle := position * theta ** (-2 * pair / 6)), math.sin(angle))
            want = (x[token, :, first] + 1j * x[token, :, second]) * turn
            np.testing.assert_allclose(got[token, :, first] + 1j * got[token, :, second], want, atol=1e-12)
    np.testing.assert_array_equal(got[..., 6:], x[..., 6:])


def test_the_two_layouts_give_other_scores_unless_the_features_move_too():
    q, k, far = RNG.standard_normal((1, 128)), RNG.standard_normal((1, 128)), (np.array([900]), np.array([3]))

    def score(order, interleaved):
        turned = [indexer.rope_first(x[:, order], at, 64, 1e4, interleaved) for x, at in zip((q, k), far, strict=True)]
        return float((turned[0] * turned[1]).sum())

    same = np.arange(128)
    moved = np.concatenate([np.argsort(half_split_order(64)), same[64:]])
    assert abs(score(same, False) - score(same, True)) > 0.1
    assert score(moved, True) == pytest.approx(score(same, False), rel=1e-12)


def test_hadamards_matrix():
    np.testing.assert_allclose(2 * indexer.hadamard(4), [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
    matrix = indexer.hadamard(128)
    np.testing.assert_allclose(np.abs(matrix), 128**-0.5)
    np.testing.assert_allclose(matrix @ matrix, np.eye(128), atol=1e-14)
    np.testing.assert_array_equal(matrix, matrix.T)
    for dim in (0, 3, 96):
        with pytest.raises(ValueError, match=f"dim is {dim}"):
            indexer.hadamard(dim)


@pytest.mark.parametrize(
    ("amax", "scale"),
    [
        (448, 1),
        (448.001, 2),
        (447.9, 1),
        (224, 0.5),
        (224.1, 1),
        (1e5, 256),
        (0, 2.0**-22),
        (1e-4, 2.0**-22),
        (3, 2**-7),
    ],
)
def test_a_scale_is_the_least_power_of_two(amax, scale):
    x = np.array([[amax / 3, -amax, 0, amax / 7]])
    got = indexer.power_of_two_scale(x)
    assert (got.dtype, got.tolist()) == (np.float32, [scale])
    assert max(amax, 1e-4) / scale <= 448 < 2 * max(amax, 1e-4) / scale


def test_codes_are_torchs_e4m3():
    torch = pytest.importorskip("torch")
    x = RNG.standard_normal((60, 2, 128)) * 2.0 ** RNG.integers(-30, 30, (60, 1, 1))
    x[0], x[1, 0, 5] = -0.0, -448
    codes, scales = indexer.quantize(x)
    right = torch.from_numpy(x / scales[..., None]).float().to(torch.float8_e4m3fn).view(torch.uint8)
    np.testing.assert_array_equal(codes, right.numpy())
    assert (codes[0] == 0x80).all()
    assert (codes.dtype, scales.dtype, scales.shape) == (np.uint8, np.float32, (60, 2))


# The whole


def toy(tokens=9, low=7, hidden=11, heads=3, dim=8):
    made = {"w_q": (low, heads * dim), "w_k": (hidden, dim), "w_weights": (hidden, heads)}
    weights = {name: RNG.standard_normal(shape) for name, shape in made.items()}
    weights |= {"k_norm": RNG.standard_normal(dim), "k_bias": RNG.standard_normal(dim)}
    return RNG.standard_normal((tokens, low)), RNG.standard_normal((tokens, hidden)), weights


def test_the_projections_one_token_and_head_at_a_time():
    latent, hidden, w = toy()
    got = indexer.project(latent, hidden, w, np.arange(9), 4, 100.0, 1e-6)
    for t in range(9):
        key = [sum(hidden[t, i] * w["w_k"][i, f] for i in range(11)) for f in range(8)]
        mean = sum(key) / 8
        spread = math.sqrt(sum((x - mean) ** 2 for x in key) / 8 + 1e-6)
        key = [(x - mean) / spread * g + b for x, g, b in zip(key, w["k_norm"], w["k_bias"], strict=True)]
        np.testing.assert_allclose(got.k[t], turned(key, t), rtol=1e-9)
        for j in range(3):
            query = [sum(latent[t, i] * w["w_q"][i, 8 * j + f] for i in range(7)) for f in range(8)]
            np.testing.assert_allclose(got.q[t, j], turned(query, t), rtol=1e-9)
            weight = sum(hidden[t, i] * w["w_weights"][i, j] for i in range(11))
            assert got.weights[t, j] == pytest.approx(weight / math.sqrt(3), rel=1e-12)


def turned(x, position):
    """Features 0 and 2, 1 and 3 of 8 rotated."""
    out = list(x)
    for pair, angle in enumerate((position, position / 10)):
        a, b = x[pair], x[pair + 2]
        out[pair] = a * math.cos(angle) - b * math.sin(angle)
        out[pair + 2] = a * math.sin(angle) + b * math.cos(angle)
    return out


def test_scores_without_rounding_are_the_definition_with_rotation_and_without():
    indexed = indexer.project(*toy(), np.arange(9), 4, 100.0, 1e-6)
    want = sparse.index_scores(indexed.q, indexed.k, indexed.weights * 8**-0.5)
    for rotate in (False, True):
        np.testing.assert_allclose(indexer.scores(indexed, rotate, fp8=False), want, atol=1e-12)


@pytest.mark.parametrize("rotate", [False, True])
def test_scores_from_codes_are_those_of_the_numbers_behind_them(rotate):
    indexed = indexer.project(*toy(), np.arange(9), 4, 100.0, 1e-6)
    indexed = indexed._replace(q=50 * indexed.q, k=indexed.k * 2.0 ** np.arange(9)[:, None])
    turn = indexer.hadamard(8) if rotate else np.eye(8)

    def read_back(x):
        codes, scales = indexer.quantize(x @ turn)
        return indexer.dequantize_e4m3(codes) * scales[..., None].astype(np.float64)

    want = sparse.index_scores(read_back(indexed.q), read_back(indexed.k), indexed.weights * 8**-0.5)
    np.testing.assert_allclose(indexer.scores(indexed, rotate), want, rtol=1e-9, atol=1e-9)
    assert np.abs(want - indexer.scores(indexed, rotate, fp8=False)).max() > 1e-3


def test_the_rotation_saves_picks_where_features_stick_out():
    rng = np.random.default_rng(3)
    q, k, w = rng.standard_normal((2, 64, 128)), rng.standard_normal((1000, 128)), rng.standard_normal((2, 64))
    q[..., 5] *= 6
    k[:, 5] += 40
    case = indexer.Indexed(q, k, w)
    right = [set(indexer.pick(row, 100)) for row in indexer.scores(case, fp8=False)]
    lost = []
    for rotate in (False, True):
        found = indexer.scores(case, rotate)
        lost.append(sum(len(best - set(indexer.pick(row, 100))) for best, row in zip(right, found, strict=True)))
    assert lost[0] > 1.4 * lost[1] > 0


def test_picks_are_the_best_and_of_equal_ones_the_first():
    row = np.array([0, 3.0, -1, 3, 0, 0])
    assert indexer.pick(row, 4).tolist() == [0, 1, 3, 4]
    assert indexer.pick(row, 99).tolist() == [0, 1, 2, 3, 4, 5]
    assert indexer.pick(row, 0).tolist() == []


# What was recorded


def test_the_record_is_of_one_shape_and_in_order():
    figures = picks.recorded()["figures"]
    errors = {name: np.array(rows) for name, rows in figures["errors"].items()}
    assert {rows.shape for rows in errors.values()} == {(30, len(figures["topk"]))}
    assert figures["topk"][-1] == figures["tokens"]
    for rows in (*errors.values(), *(np.array([each["indexer"]]) for each in figures["fitted"])):
        assert np.abs(rows[:, -1]).max() < 1e-5
        assert (np.diff(rows.mean(axis=0)) < 0).all()
    inner = slice(None), slice(0, -1)
    assert (errors["per head"][inner].mean(0) < errors["per layer"][inner].mean(0)).all()
    assert (errors["per layer"][inner].mean(0) < errors["first and last"][inner].mean(0)).all()
    assert 2 < figures["loss"] < 5


def test_what_the_lesson_says_of_the_fitted_indexer_and_of_age():
    """The indexer comes near the exact choice in every layer, least so at large k; age is hopeless in one layer, and
    about as good as the indexer in another."""
    figures = picks.recorded()["figures"]
    at, age_by_layer = figures["topk"].index(256), []
    for each in figures["fitted"]:
        exact, age = (figures["errors"][name][each["layer"]] for name in ("per layer", "first and last"))
        ratios = [ours / best for ours, best in zip(each["indexer"][2:-1], exact[2:-1], strict=True)]
        assert 1 < ratios[2] < 2
        assert max(ratios) == ratios[-1]
        age_by_layer.append(age[at] / each["indexer"][at])
    assert max(age_by_layer) > 5
    assert min(age_by_layer) < 1.25


@pytest.mark.parametrize("layer", [each["layer"] for each in picks.recorded()["figures"]["fitted"]])
def test_a_recorded_query_sees_all_tokens(layer):
    figures, query = picks.recorded()["figures"], picks.last_query(layer)
    assert query.attention.shape == query.scores.shape == (figures["tokens"],)
    assert query.attention.sum() == pytest.approx(1)
    assert query.attention.min() >= 0
    assert np.isfinite(query.scores).all()
    assert picks.chosen(query.rankings["first and last"], 6).tolist() == [0, 1, 2, 3, 4094, 4095]
    mass = {name: query.attention[picks.chosen(rank, 256)].sum() for name, rank in query.rankings.items()}
    assert mass["exact"] > max(mass["indexer"], mass["first and last"])


def lines(fig) -> dict:
    return {line.get_gid(): line for ax in fig.axes for line in ax.lines if line.get_gid()}


@pytest.mark.parametrize("picker", picks.PICKERS)
@pytest.mark.parametrize("topk", [16, 256, 4096])
def test_the_explorer_draws_what_is_chosen_and_what_it_holds(picker, topk):
    layer = picks.recorded()["figures"]["fitted"][2]["layer"]
    fig = picks.PicksExplorer().figure(topk=topk, picker=picker, layer=layer)
    drawn, query = lines(fig), picks.last_query(layer)
    want = sorted(np.lexsort((np.arange(4096), -query.rankings[picker]))[:topk].tolist())
    for name, values in (("indexer's score", query.scores), ("attention", query.attention)):
        x, y = drawn[f"{name}, chosen"].get_data()
        assert list(x) == want
        assert list(y) == [values[token] for token in want]
        assert sorted([*x, *drawn[f"{name}, left out"].get_xdata()]) == list(range(4096))
    titles = [ax.get_title(loc="left") for ax in fig.axes]
    assert titles[1] == f"they hold {math.fsum(query.attention[want]):.1%} of the attention"
    error = query.errors[picker][int(math.log2(topk)) - 4]
    assert titles[2] == f"output off by {error:.1%}"
    assert list(drawn["here"].get_data()[1]) == [max(100 * error, 0.1)]
    for name, found in query.errors.items():
        assert list(drawn[name].get_ydata()) == [100 * each for each in found[:-1]]
    assert drawn["quoted"].get_data() == (256, 9)


def test_the_picture_of_errors_draws_the_means_and_the_quoted_one():
    drawn, figures = lines(picks.error_picture()), picks.recorded()["figures"]
    for name, rows in figures["errors"].items():
        assert list(drawn[name].get_xdata()) == figures["topk"][:-1]
        want = [100 * math.fsum(column) / 30 for column in zip(*rows, strict=True)][:-1]
        assert drawn[name].get_ydata() == pytest.approx(want)
    assert [each.item() for each in drawn["quoted"].get_data()] == [256, 9]


def test_the_figure_in_circulation_looks_alike_in_both_pictures_and_nothing_hides_it():
    explorer = lines(picks.PicksExplorer().figure(topk=256))
    one, other = lines(picks.error_picture())["quoted"], explorer["quoted"]
    assert (one.get_color(), one.get_marker()) == (other.get_color(), other.get_marker())
    assert other.get_zorder() > explorer["here"].get_zorder()
    assert explorer["here"].get_markerfacecolor() == "none"


def test_the_flow_of_the_indexer_shows_every_matrix_and_the_ledgers_prices():
    from matplotlib.text import Text

    shown = "\n".join(text.get_text() for text in picks.indexer_flow(model("DeepSeek-V3.2")).findobj(Text))
    for matrix, weights in (("W_q", 1536 * 64 * 128), ("W_k", 7168 * 128), ("W_w", 7168 * 64)):
        assert matrix in shown
        assert f"{weights / 1e6:.2f} M" in shown
    assert f"{64 * 128:,} a token" in shown
    assert f"{128 * (512 + 64 + 512):,}\na chosen token" in shown


def test_a_picker_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="picker cannot be 'random'; the choices are: exact, indexer, first and last"):
        picks.PicksExplorer().figure(picker="random")


@pytest.mark.parametrize("values", [{}, {"topk": 4096, "picker": "exact"}, {"topk": 16, "picker": "first and last"}])
def test_no_text_leaves_the_picture(values):
    from matplotlib.text import Text

    fig = picks.PicksExplorer().figure(**values)
    png(fig)
    renderer = fig.canvas.get_renderer()
    ticks = {label for ax in fig.axes for axis in (ax.xaxis, ax.yaxis) for label in axis.get_ticklabels(which="both")}
    for text in fig.findobj(Text):
        if text not in ticks and text.get_visible() and text.get_text():
            extent = text.get_window_extent(renderer)
            assert extent.x0 >= -1, text.get_text()
            assert extent.y0 >= -1, text.get_text()
            assert extent.x1 <= fig.bbox.width + 1, text.get_text()
            assert extent.y1 <= fig.bbox.height + 1, text.get_text()


def test_importing_the_explorer_needs_numpy_alone():
    code = "import sys, ledger.widgets.picks; sys.exit(bool({'matplotlib', 'ipywidgets', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# How it was measured


@pytest.fixture
def bench(root, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(root / "bench")
    return importlib.import_module("picks")


def test_weights_are_unpacked_by_the_formats_definitions(bench):
    halves = RNG.standard_normal((3, 2)).astype(np.float16)
    nibbles = RNG.integers(0, 16, (3, 32))
    data = b"".join(
        h.tobytes() + bytes(int(n[i]) | int(n[i + 16]) << 4 for i in range(16))
        for h, n in zip(halves, nibbles, strict=True)
    )
    want = [[float(h[0]) * n + float(h[1]) for n in row] for h, row in zip(halves, nibbles.tolist(), strict=True)]
    np.testing.assert_allclose(bench.unpack(b"??" + data, [32, 3], 3, 2).numpy(), want, rtol=1e-6)
    codes = RNG.integers(-128, 128, (2, 32)).astype(np.int8)
    data = b"".join(h.tobytes() + c.tobytes() for h, c in zip(halves[:2, 0], codes, strict=True))
    want = [[float(h) * n for n in row] for h, row in zip(halves[:2, 0], codes.tolist(), strict=True)]
    np.testing.assert_allclose(bench.unpack(data, [64], 8, 0).numpy(), np.ravel(want), rtol=1e-6)


def test_byte_pairs_are_joined_by_rank(bench):
    tokens = ["a", "b", "c", "Ġ", "ab", "bc", "abc", "Ġa", "1"]
    merges = ["b c", "a b", "a bc", "Ġ a"]  # joined in this order, wherever they stand
    encode = bench.tokenizer({"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": merges})
    assert [tokens[i] for i in encode("abc ab 11")] == ["abc", "Ġ", "ab", "Ġ", "1", "1"]


def test_errors_are_those_of_attention_over_the_chosen(bench, monkeypatch):
    import torch

    monkeypatch.setattr(bench, "TOPK", [2, 5])
    tokens, rows = 12, torch.tensor([7, 11])
    shapes = (tokens, 4), (tokens, 9, 64), (tokens, 3, 64), (tokens, 3, 64)
    layer = [torch.from_numpy(RNG.standard_normal(shape)) for shape in shapes]
    ranking = torch.from_numpy(RNG.random((2, 1, tokens))).masked_fill(torch.arange(tokens) > rows[:, None, None], -1)
    _, q, k, v = (part.numpy() for part in layer)
    want = []
    for topk in (2, 5):
        apart = []
        for i, row in enumerate(rows.tolist()):
            best = sorted(range(row + 1), key=lambda t: -ranking[i, 0, t])[:topk]
            for head in range(9):
                inputs = q[row, head, None], k[:, head // 3], v[:, head // 3]
                right = sparse.attend(*inputs, list(range(row + 1)), 1 / 8)[0]
                few = sparse.attend(*inputs, best, 1 / 8)[0]
                apart.append(np.linalg.norm(few - right) / np.linalg.norm(right))
        want.append(np.mean(apart))
    assert bench.errors(layer, rows, ranking) == pytest.approx(want, rel=1e-9)


def test_the_fitted_indexer_is_deepseeks(bench):
    import torch

    made = bench.Indexer(12)
    with torch.no_grad():
        made.w["bias"] += 0.5
        seen, rows = torch.randn(20, 12), torch.tensor([3, 19])
        got = made.scores(seen, rows).numpy()
    w = {name: weight.detach().numpy() for name, weight in made.w.items()}
    names = {"w_q": "q", "w_k": "k", "w_weights": "weights", "k_norm": "norm", "k_bias": "bias"}
    weights, hidden = {name: w[own] for name, own in names.items()}, seen.numpy()
    right = indexer.project(hidden, hidden, weights, np.arange(20), 16, 1e5, 1e-5)
    np.testing.assert_allclose(got, indexer.scores(right, fp8=False)[rows], rtol=1e-3, atol=1e-4)
