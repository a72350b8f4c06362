"""Chapter 3: its oracles against loops, NumPy's and torch's own functions, its formulas against counted code, its
exercises' budgets from both sides, and what its pictures draw against numbers worked out by hand."""

import itertools
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from ledger import exercises
from ledger.account import values as account
from ledger.count import count
from ledger.judge.notebook import run_here
from ledger.models import MODELS, model
from ledger.reference import mla, values
from ledger.widgets import values as widgets

# (new_tokens, cached_tokens, num_heads, nope_dim, latent_dim, value_dim)
SIZES = [(1, 1, 1, 1, 1, 1), (2, 3, 2, 3, 4, 5), (3, 7, 4, 5, 9, 2), (1, 40, 2, 8, 16, 12)]


def drawn(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


# The compression


def test_the_compression_by_hand():
    weights = {
        "w_dq": np.eye(2),
        "q_norm": np.array([5.0, 10.0]),
        "w_uq": np.array([[1.0, 0, 0, 1], [0, 1, 1, 1]]),
        "w_dkv": np.array([[1.0, 0, 2], [0, 1, 1]]),
    }
    made = values.project_mla(np.array([[3.0, 4.0]]), weights, num_heads=2, nope_dim=1, eps=12.5)
    assert [part.tolist() for part in made] == [[[[3], [8]]], [[[8], [11]]], [[3, 4]], [[10]]]


@pytest.mark.parametrize("with_latent", [True, False])
def test_the_compression_against_torch(with_latent):
    torch = pytest.importorskip("torch")
    tokens, hidden_dim, q_lora, latent, heads, nope, rope = 5, 12, 7, 9, 3, 4, 2
    source = q_lora if with_latent else hidden_dim
    hidden, w_uq, w_dkv = drawn(1, (tokens, hidden_dim), (source, heads * (nope + rope)), (hidden_dim, latent + rope))
    weights = {"w_uq": w_uq, "w_dkv": w_dkv}
    low = torch.from_numpy(hidden)
    if with_latent:
        weights["w_dq"], weights["q_norm"] = drawn(2, (hidden_dim, q_lora), q_lora)
        low = torch.nn.functional.linear(low, torch.from_numpy(weights["w_dq"].T))
        low = torch.nn.functional.rms_norm(low, (q_lora,), torch.from_numpy(weights["q_norm"]), eps=0.25)
    query = torch.nn.functional.linear(low, torch.from_numpy(w_uq.T)).numpy()
    entry = hidden @ w_dkv
    q_nope, q_rope, c, k_rope = values.project_mla(hidden, weights, heads, nope, eps=0.25)
    for head in range(heads):
        columns = query[:, head * (nope + rope) : (head + 1) * (nope + rope)]
        np.testing.assert_allclose(np.concatenate([q_nope[:, head], q_rope[:, head]], axis=1), columns, rtol=1e-12)
    np.testing.assert_allclose(np.concatenate([c, k_rope], axis=1), entry, rtol=1e-12)
    assert (c.shape, k_rope.shape) == ((tokens, latent), (tokens, rope))


# From weights to outputs


def test_the_toy_by_hand():
    w_v, latents = np.array([[1.0, 0], [0, 1], [0, 1]]), np.eye(3)
    assert values.materialize_values(latents, w_v).tolist() == [[1, 0], [0, 1], [0, 1]]
    assert values.mix_then_project(np.array([[0.5, 0, 0.5]]), latents, w_v).tolist() == [[0.5, 0.5]]
    two = values.absorb_values_heads(
        np.array([[[0.5, 0, 0.5]], [[0, 0.25, 0.75]]]), latents, np.array([w_v, [[7, 9]] * 3])
    )
    assert two.tolist() == [[[0.5, 0.5], [7, 9]]]


@pytest.mark.parametrize("sizes", SIZES)
def test_outputs_add_what_their_definition_says(sizes):
    new, cached, heads, _, latent, value = sizes
    scores, c, w_vc = drawn(3, (heads, new, cached), (cached, latent), (heads, latent, value))
    weights, _ = values.softmax_lse(scores)
    wanted = np.zeros((new, heads, value))
    for s, h, v in np.ndindex(new, heads, value):
        terms = itertools.product(range(cached), range(latent))
        wanted[s, h, v] = math.fsum(weights[h, s, t] * c[t, i] * w_vc[h, i, v] for t, i in terms)
    np.testing.assert_allclose(values.absorb_values_heads(weights, c, w_vc), wanted, rtol=1e-10, atol=1e-13)
    one_head = values.mix_then_project(weights[0], c, w_vc[0])
    np.testing.assert_allclose(one_head, wanted[:, 0], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("sizes", SIZES)
def test_the_content_path_against_torch_and_against_latent_space(sizes):
    new, cached, heads, nope, latent, value = sizes
    shapes = (new, heads, nope), (heads, nope, latent), (cached, latent), (heads, latent, value)
    q, w_kc, c, w_vc = drawn(4, *shapes)
    output = values.attend_absorbed(q, w_kc, c, w_vc, 0.3)
    absorbed = np.einsum("shn,hnc->shc", q, w_kc)
    for s in range(new):
        mixed, _ = mla.decode_absorbed(absorbed[s : s + 1], c[None], [cached], latent, 0.3)
        np.testing.assert_allclose(np.einsum("hc,hcv->hv", mixed[0], w_vc), output[s], rtol=1e-10, atol=1e-12)
    torch = pytest.importorskip("torch")
    by_torch = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.from_numpy, (q.swapaxes(0, 1).copy(), c @ w_kc.swapaxes(1, 2), c @ w_vc)), scale=0.3
    )
    np.testing.assert_allclose(output, by_torch.numpy().swapaxes(0, 1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_mixing_first_is_building_values_at_the_width_of_every_model(name):
    shape = MODELS[name]
    heads, cached = 2, 9
    scores, c, w_vc = drawn(
        5, (heads, 3, cached), (cached, shape.latent_dim), (heads, shape.latent_dim, shape.value_dim)
    )
    weights, _ = values.softmax_lse(scores)
    built = values.absorb_values_heads(weights, c, w_vc)
    mixed_first = ((weights @ c) @ w_vc).swapaxes(0, 1)
    np.testing.assert_allclose(mixed_first, built, rtol=0, atol=1e-10 * np.abs(built).max())


def test_an_empty_cache_gives_zeros():
    output = values.attend_absorbed(np.ones((2, 3, 4)), np.ones((3, 4, 5)), np.ones((0, 5)), np.ones((3, 5, 6)), 1.0)
    assert output.shape == (2, 3, 6)
    assert not output.any()
    assert not values.mix_then_project(np.ones((2, 0)), np.ones((0, 5)), np.ones((5, 6))).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_keep_the_dtype(dtype):
    one = np.ones((2, 2), dtype)
    by_head = np.ones((2, 2, 2), dtype)
    made = [
        *values.project_mla(one, {"w_uq": np.ones((2, 6), dtype), "w_dkv": np.ones((2, 5), dtype)}, 2, 2, 1e-6),
        values.materialize_values(one, one),
        values.mix_then_project(one, one, one),
        values.absorb_values_heads(by_head, one, by_head),
        values.attend_absorbed(by_head, by_head, one, by_head, 0.5),
        *values.softmax_lse(one),
        *values.merge_partials(by_head, one),
    ]
    assert {part.dtype.name for part in made} == {dtype}


# The softmax of a part, and the merge


def test_lse_is_the_natural_log_of_the_sum_of_exponentials():
    [scores] = drawn(6, (2, 3, 5))
    weights, lse = values.softmax_lse(scores)
    np.testing.assert_allclose(lse, np.logaddexp.reduce(scores, axis=-1), rtol=1e-13)
    np.testing.assert_allclose(weights, np.exp(scores) / np.exp(scores).sum(-1, keepdims=True), rtol=1e-12)
    assert values.softmax_lse(np.array([math.log(2), math.log(3)]))[1] == pytest.approx(math.log(5))


def test_lse_survives_large_scores_and_empty_rows():
    weights, lse = values.softmax_lse(np.array([[800.0, 800.0], [-800.0, -np.inf], [-np.inf, -np.inf]]))
    assert weights.tolist() == [[0.5, 0.5], [1, 0], [0, 0]]
    assert lse.tolist() == [800 + math.log(2), -800, -np.inf]
    assert values.softmax_lse(np.zeros((2, 0)))[1].tolist() == [-np.inf, -np.inf]


def test_two_parts_by_hand():
    output, lse = values.merge_partials(np.array([[1.0, 0], [0, 1]]), np.log([2.0, 3.0]))
    np.testing.assert_allclose(output, [0.4, 0.6], rtol=1e-14)
    assert lse == pytest.approx(math.log(5), rel=1e-14)


@pytest.mark.parametrize("cuts", [(), (1,), (3, 4), (2, 2, 7), (0, 5, 11, 11)])
def test_merged_parts_are_the_softmax_over_the_whole_cache(cuts):
    """Also where a part is empty, at the start, in the middle or at the end: its output is poison."""
    scores, c = drawn(7, (3, 2, 11), (11, 6))
    scores *= 20
    weights, lse_whole = values.softmax_lse(scores)
    ends = itertools.pairwise([0, *cuts, 11])
    parts = []
    for start, end in ends:
        shares, lse = values.softmax_lse(scores[..., start:end])
        parts.append((shares @ c[start:end] if end > start else np.full((3, 2, 6), np.nan), lse))
    outputs, lses = (np.stack(part) for part in zip(*parts, strict=True))
    output, lse = values.merge_partials(outputs, lses)
    np.testing.assert_allclose(output, weights @ c, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(lse, lse_whole, rtol=1e-13)
    by_steps = outputs[0], lses[0]
    for part in zip(outputs[1:], lses[1:], strict=True):
        by_steps = values.merge_partials(*(np.stack(pair) for pair in zip(by_steps, part, strict=True)))
    np.testing.assert_allclose(by_steps[0], output, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_nothing_but_empty_parts_gives_zero_and_minus_infinity(parts):
    output, lse = values.merge_partials(np.full((parts, 2, 4), np.nan), np.full((parts, 2), -np.inf))
    assert output.tolist() == [[0] * 4] * 2
    assert lse.tolist() == [-np.inf] * 2


def projections(columns):
    return {"w_uq": np.ones((2, columns)), "w_dkv": np.ones((2, 5))}


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: values.softmax_lse(np.array([[1.0, 2], [1, np.nan]])), "scores hold NaN or ∞"),
        (lambda: values.softmax_lse(np.array([1, np.inf])), "scores hold NaN or ∞"),
        (lambda: values.softmax_lse(np.array([1, 2])), "scores is of int64; make it floating"),
        (lambda: values.merge_partials(np.ones((2, 3)), np.array([0, np.nan])), "lses hold NaN or ∞"),
        (lambda: values.merge_partials(np.ones((2, 5, 3)), np.ones(2)), r"lses are \(2,\), outputs \(2, 5, 3\)"),
        (lambda: values.merge_partials(np.ones((4, 3)), np.ones(2)), r"lses are \(2,\), outputs \(4, 3\)"),
        (lambda: values.project_mla(np.ones((1, 2)), projections(7), 2, 3, 0.1), "w_uq has 7 columns; 2 heads of 3"),
        (lambda: values.project_mla(np.ones((1, 2)), projections(4), 2, 3, 0.1), "w_uq has 4 columns; 2 heads of 3"),
    ],
)
def test_bad_input_is_refused(ask, says):
    with pytest.raises(ValueError, match=says):
        ask()


# The accounts


@pytest.mark.parametrize("sizes", [*SIZES, (0, 4, 2, 3, 5, 2), (3, 0, 2, 3, 5, 2)])
def test_paths_are_what_counted_code_does(sizes):
    new, cached, heads, nope, latent, value = sizes
    shapes = (new, heads, nope), (heads, nope, latent), (cached, latent), (heads, latent, value), (heads, new, cached)
    q, w_kc, c, w_vc, weights = (np.ones(shape) for shape in shapes)

    def macs(function, *args):
        return count(function, *args)[1].macs

    product = np.matmul
    rebuilt = account.content_path_materialize(*sizes)
    keys, built = c @ w_kc.swapaxes(1, 2), c @ w_vc
    assert rebuilt.keys == macs(product, c, w_kc.swapaxes(1, 2))
    assert rebuilt.scores == macs(product, q.swapaxes(0, 1), keys.swapaxes(1, 2))
    assert rebuilt.mixing == macs(product, weights, built)
    assert rebuilt.values == macs(product, c, w_vc)
    moved = account.content_path_absorb(*sizes)
    absorbed = q.swapaxes(0, 1) @ w_kc
    assert moved.keys == macs(product, q.swapaxes(0, 1), w_kc)
    assert moved.scores == macs(product, absorbed, c.T)
    assert moved.mixing == macs(product, weights, c)
    assert moved.values == macs(product, weights @ c, w_vc)
    for name, whole in (("materialize", rebuilt), ("absorb", moved)):
        one = getattr(account, f"value_path_{name}")(new, cached, latent, value)
        assert heads * one.total == whole.mixing + whole.values
        assert whole.total == sum(whole)


def test_value_paths_at_deepseek_v3():
    assert account.value_path_materialize(1, 4096, 512, 128).total == 268_959_744
    assert account.value_path_absorb(1, 4096, 512, 128).total == 2_162_688


@pytest.mark.parametrize("q_lora", [None, 6])
def test_the_compression_costs_what_its_products_do(q_lora):
    tokens, hidden, latent, heads, nope, rope = 3, 8, 5, 2, 4, 2
    costs = account.compression_macs(tokens, hidden, q_lora, latent, heads, nope, rope)
    state = np.ones((tokens, hidden))
    down = 0 if q_lora is None else count(np.matmul, state, np.ones((hidden, q_lora)))[1].macs
    source = np.ones((tokens, q_lora or hidden))
    up = count(np.matmul, source, np.ones((q_lora or hidden, heads * (nope + rope))))[1].macs
    entry = count(np.matmul, state, np.ones((hidden, latent + rope)))[1].macs
    assert costs == (down, up, entry)


def test_merging_the_output_matrices_at_published_widths():
    v3 = model("DeepSeek-V3")
    weights = account.merged_value_output_elements(v3.hidden_dim, v3.latent_dim, v3.value_dim, v3.num_heads)
    assert weights == (469_762_048, 125_829_120)
    assert weights.ratio == pytest.approx(float(Fraction(512 * 7168, 128 * (512 + 7168))))
    assert round(weights.ratio, 2) == 3.73


def test_partials_have_the_bytes_of_their_arrays():
    outputs, lses = np.zeros((5, 2, 3, 8), np.float32), np.zeros((5, 2, 3), np.float32)
    assert account.partials_bytes(5, 2 * 3, 8) == outputs.nbytes + lses.nbytes
    halves = outputs.astype(np.float16).nbytes + lses.astype(np.float16).nbytes
    assert account.partials_bytes(5, 2 * 3, 8, itemsize=2) == halves


# The exercises


def answer_cases(id):
    exercise = exercises.get(id)
    return [(case, exercise.inputs(case, 3)) for case in exercise.cases]


@pytest.mark.parametrize("id", ["mix_then_project", "absorb_values_heads"])
def test_given_weights_are_past_a_softmax(id):
    """Each row adds to 1, and to less over a part of a longer cache."""
    for case, inputs in answer_cases(id):
        sums = inputs["weights"].sum(axis=-1)
        if case.name == "a part of a longer cache":
            assert ((sums > 0.1) & (sums < 0.9)).all()
        elif case.dims["cached_tokens"]:
            np.testing.assert_allclose(sums, 1, rtol=1e-6)
        assert (inputs["weights"] >= 0).all()


@pytest.mark.parametrize("id", ["materialize_values", "mix_then_project", "absorb_values_heads"])
def test_the_cancelling_case_loses_what_float32_cannot_hold(id):
    exercise = exercises.get(id)
    args = exercise.inputs(exercise.case("huge parts that cancel"), 1).values()
    want = exercise.oracle(*args)
    narrow = exercise.oracle(*(a.astype(np.float32) for a in args))
    assert np.array_equal(want, want.round(3))
    assert np.abs(narrow - want).max() > 1e-2 * np.abs(want).max()


def test_eps_matters_where_the_hidden_states_are_small():
    exercise = exercises.get("project_mla")
    inputs = exercise.inputs(exercise.case("hidden states near zero"), 1)
    without = exercise.oracle(**(inputs | {"eps": 0.0}))[0]
    assert np.abs(without - exercise.oracle(**inputs)[0]).max() > 0.1 * np.abs(without).max()


def test_far_apart_scores_reach_800_and_a_row_stays_near_its_negative():
    exercise = exercises.get("attend_absorbed")
    q, w_kc, c, _, scale = exercise.inputs(exercise.case("scores from 800 to -800"), 1).values()
    scores = scale * np.einsum("shn,hnc,tc->hst", q, w_kc, c)
    assert (scores.max(), scores.min()) == pytest.approx((800, -800))
    assert scores.max(axis=-1).min() < -746, "a row whose exponentials are 0 where no maximum below 0 is subtracted"


@pytest.mark.parametrize(
    ("id", "wanted"),
    [
        ("attend_absorbed", [[[0.4, 0.6], [2, 2]]]),
        ("absorb_values_heads", [[[0.5, 0.5], [7, 9]]]),
        ("mix_then_project", [[0.5, 0.5]]),
    ],
)
def test_the_toys_of_the_statements(id, wanted):
    exercise = exercises.get(id)
    [case] = [case for case in exercise.cases if "toy" in case.name]
    np.testing.assert_allclose(exercise.oracle(*exercise.inputs(case, 0).values()), wanted, rtol=1e-14)


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        ("small widths", 84 / 66),
        ("DeepSeek-V3", 56 / 15),
        ("GLM-5.2", 24 / 13),
        ("no value width", math.inf),
        ("no heads", math.inf),
        ("no latent", 0.0),
    ],
)
def test_merged_output_ratio_at_known_sizes(case, wanted):
    exercise = exercises.get("merged_output_ratio")
    assert exercise.oracle(**exercise.inputs(exercise.case(case), 0)) == pytest.approx(wanted, rel=1e-14)


def mixed_by_einsum(weights, latents, w_v):
    return np.einsum("sc,cv->sv", np.einsum("st,tc->sc", weights, latents), w_v)


def mixed_by_multi_dot(weights, latents, w_v):
    return np.linalg.multi_dot([weights, latents, w_v])


def mixed_row_by_row(weights, latents, w_v):
    output = np.empty((len(weights), w_v.shape[1]), weights.dtype)
    for row, shares in enumerate(weights):
        output[row] = (shares @ latents) @ w_v
    return output


def heads_by_einsum(weights, latents, w_vc):
    return np.einsum("hsc,hcv->shv", np.einsum("hst,tc->hsc", weights, latents), w_vc)


def heads_in_a_loop(weights, latents, w_vc):
    output = np.zeros((weights.shape[1], len(w_vc), w_vc.shape[2]), weights.dtype)
    for head in range(len(w_vc)):
        output[:, head] = weights[head] @ latents @ w_vc[head]
    return output


def path_by_einsum(q_nope, w_kc, latents, w_vc, scale):
    scores = scale * np.einsum("shc,tc->hst", np.einsum("shn,hnc->shc", q_nope, w_kc), latents)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("hsc,hcv->shv", np.einsum("hst,tc->hsc", weights, latents), w_vc)


def path_head_by_head(q_nope, w_kc, latents, w_vc, scale):
    output = np.zeros((len(q_nope), len(w_kc), w_vc.shape[2]), q_nope.dtype)
    for head in range(len(w_kc) if len(latents) else 0):
        scores = (q_nope[:, head] @ w_kc[head]) @ latents.T * scale
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        output[:, head] = (shares @ latents) / shares.sum(axis=-1, keepdims=True) @ w_vc[head]
    return output


def path_normalised_by_a_product(q_nope, w_kc, latents, w_vc, scale):
    scores = (q_nope.swapaxes(0, 1) @ w_kc) @ latents.T * scale
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    with np.errstate(divide="ignore"):  # over an empty cache
        weights = weights * (1 / weights.sum(axis=-1, keepdims=True))
    return (weights @ latents @ w_vc).swapaxes(0, 1)


def merged_by_logaddexp(outputs, lses):
    with np.errstate(invalid="ignore"):
        lse = np.logaddexp.reduce(lses, axis=0, initial=-np.inf)
        shares = np.where(np.isneginf(lses), 0, np.exp(lses - lse))[..., None]
        return np.where(shares > 0, shares * outputs, 0).sum(axis=0).astype(outputs.dtype), lse.astype(lses.dtype)


def merged_one_after_the_other(outputs, lses):
    output = np.zeros(outputs.shape[1:], outputs.dtype)
    lse = np.full(lses.shape[1:], -np.inf, lses.dtype)
    for part, part_lse in zip(outputs, lses, strict=True):
        total = np.logaddexp(lse, part_lse)
        safe = np.where(np.isneginf(total), 0, total)
        old, new = np.exp(lse - safe)[..., None], np.exp(part_lse - safe)[..., None]
        output = old * output + new * np.where(new > 0, part, 0)
        lse = total
    return output, lse


def projected_head_by_head(hidden, weights, num_heads, nope_dim, eps):
    source = hidden
    if weights.get("w_dq") is not None:
        low = hidden @ weights["w_dq"]
        source = low * (np.mean(np.square(low), -1)[:, None] + eps) ** -0.5 * weights["q_norm"]
    heads = np.split(source @ weights["w_uq"], num_heads, axis=1)
    q = np.stack(heads, axis=1)
    rope = q.shape[2] - nope_dim
    entry = hidden @ weights["w_dkv"]
    cut = entry.shape[1] - rope
    return [q[:, :, :nope_dim], q[:, :, nope_dim:], entry[:, :cut], entry[:, cut:]]


RIGHT = {
    "project_mla": [projected_head_by_head],
    "mix_then_project": [mixed_by_einsum, mixed_by_multi_dot, mixed_row_by_row],
    "absorb_values_heads": [heads_by_einsum, heads_in_a_loop],
    "attend_absorbed": [path_by_einsum, path_head_by_head, path_normalised_by_a_product],
    "merge_partials": [merged_by_logaddexp, merged_one_after_the_other],
}


@pytest.mark.parametrize(("id", "answer"), [(id, answer) for id, answers in RIGHT.items() for answer in answers])
def test_other_right_answers_pass(id, answer):
    result = run_here(exercises.get(id), answer, seed=21)
    assert result.verdict == "passed", result.message


def hidden(function):
    """``function`` on arrays that the counter cannot follow."""

    def answer(*args):
        return function(*(np.ndarray.view(a, np.ndarray) if isinstance(a, np.ndarray) else a for a in args))

    return answer


def values_built(weights, latents, w_v):
    return weights @ (latents @ w_v)


def all_values_built(weights, latents, w_vc):
    return (weights @ (latents @ w_vc)).swapaxes(0, 1)


def keys_and_values_built(q_nope, w_kc, latents, w_vc, scale):
    scores = q_nope.swapaxes(0, 1) @ (w_kc @ latents.T) * scale
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    return (weights / weights.sum(axis=-1, keepdims=True) @ (latents @ w_vc)).swapaxes(0, 1)


@pytest.mark.parametrize(
    ("id", "inner", "verdict"),
    [
        ("mix_then_project", mixed_by_einsum, "passed"),
        ("mix_then_project", values_built, "wrong"),
        ("absorb_values_heads", heads_by_einsum, "passed"),
        ("absorb_values_heads", all_values_built, "wrong"),
        ("attend_absorbed", path_by_einsum, "passed"),
        ("attend_absorbed", path_normalised_by_a_product, "passed"),
        ("attend_absorbed", keys_and_values_built, "wrong"),
    ],
)
def test_code_that_leaves_the_counted_arrays_is_judged_on_its_memory(id, inner, verdict):
    result = run_here(exercises.get(id), hidden(inner), seed=22)
    assert result.verdict == verdict, result.message
    if verdict == "wrong":
        assert "left the arrays that the judge counts" in result.message


def one_value_matrix_at_a_time(weights, latents, w_vc):
    output = np.zeros((weights.shape[1], len(w_vc), w_vc.shape[2]), weights.dtype)
    for head, column in itertools.product(range(len(w_vc)), range(w_vc.shape[2])):
        output[:, head, column] = weights[head] @ (latents @ w_vc[head, :, column])
    return output


@pytest.mark.parametrize(
    ("id", "answer", "says"),
    [
        ("absorb_values_heads", one_value_matrix_at_a_time, "too many multiply-adds"),
        ("attend_absorbed", keys_and_values_built, "keys materialized"),
    ],
)
def test_a_budget_is_not_dodged(id, answer, says):
    result = run_here(exercises.get(id), answer, seed=23)
    assert result.verdict == "wrong"
    assert says in result.message


def test_the_budget_of_the_whole_path_is_far_below_materialize():
    """Room for the scale, for two elementwise steps over the scores and one over the outputs, and for nothing that
    grows like cached_tokens × w_kc."""
    exercise = exercises.get("attend_absorbed")
    dims = exercise.case(exercise.budget.case).dims
    least, most = exercise.least_macs(**dims), exercise.budget.macs(**dims)
    rows = dims["new_tokens"] * dims["num_heads"]
    assert least == account.content_path_absorb(**dims).total
    assert most - least == rows * (dims["nope_dim"] + 2 * dims["cached_tokens"] + dims["value_dim"])
    assert most < dims["cached_tokens"] * dims["latent_dim"] * dims["nope_dim"]
    assert len(set(dims.values())) == len(dims), "a size must name an axis"


# The pictures


def shown(fig):
    return [text.get_text() for ax in fig.axes for text in ax.texts if text.get_text() and text.get_visible()]


def drawing(**values):
    pytest.importorskip("matplotlib")
    return widgets.ToyStepper().figure(**values)


def test_importing_the_pictures_does_not_import_matplotlib():
    code = "import sys, ledger.widgets.values; sys.exit('matplotlib' in sys.modules or 'ipywidgets' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_stepper_ends_in_the_numbers_of_the_lesson():
    texts = shown(drawing())
    assert texts.count("1  0  1") == 3, "the absorbed query, and the scores of both routes"
    assert texts.count("0.4  0.2  0.4") == 3, "the weights of both routes, and the mixed latent"
    assert texts.count("0.4  0.6") == 2
    assert "scores equal   outputs equal" in texts
    # keys 3·3·2, scores 3·2, values 3·3·2, mixing 3·2; and 2·3, 3·3, 3·3, 3·2
    assert {"48 multiply-adds so far", "30 multiply-adds so far"} <= set(texts)


def test_the_stepper_with_given_weights_is_the_toy():
    texts = shown(drawing(weights=widgets.GIVEN))
    assert texts.count("0.5  0.5") == 2
    assert texts.count("0.5    0  0.5") == 3


def test_the_stepper_shows_one_step_more_each_time():
    pytest.importorskip("matplotlib")
    counts = [len(shown(widgets.ToyStepper().figure(step=step))) for step in range(1, widgets.LAST_STEP + 1)]
    assert counts == sorted(set(counts))
    first = shown(widgets.ToyStepper().figure(step=1))
    assert not any("multiply-adds" in text or "equal" in text for text in first)
    second = shown(widgets.ToyStepper().figure(step=2))
    assert {"18 multiply-adds so far", "6 multiply-adds so far"} <= set(second), "keys 3·3·2, the query 2·3"
    third = shown(widgets.ToyStepper().figure(step=3))
    assert "scores equal" in third
    assert {"24 multiply-adds so far", "15 multiply-adds so far"} <= set(third)


def test_numbers_are_written_with_three_decimals_at_most():
    assert widgets.written([[1 / 3, -0.0625], [2, -0.0]]) == " 0.333  -0.062\n     2       0"


PIECES = list(itertools.product(widgets.QUERIES, widgets.LATENTS, widgets.W_KS, widgets.W_VS))


def test_every_choice_ends_in_equal_scores_and_outputs():
    for query, latents, w_k, w_v in PIECES:
        q, c = [widgets.QUERIES[query]], widgets.LATENTS[latents]
        key_matrix, value_matrix = widgets.W_KS[w_k], widgets.W_VS[w_v]
        toy = widgets.work_out(q, key_matrix, value_matrix, c)
        head = [np.array(part, float)[None] for part in (q, np.transpose(key_matrix), value_matrix)]
        oracle = values.attend_absorbed(head[0], head[1], np.array(c, float), head[2], math.log(2))
        for route in ("materialize", "absorb"):
            np.testing.assert_allclose(toy.outputs[route], oracle[0], rtol=1e-12, atol=1e-12)
        assert widgets.verdict(toy, widgets.LAST_STEP) == "scores equal   outputs equal"


def test_routes_that_part_are_called_different():
    toy = widgets.work_out([(1, 0)], widgets.TOY_W_K, widgets.TOY_W_V, widgets.TOY_LATENTS)
    broken = toy._replace(outputs=toy.outputs | {"absorb": toy.outputs["absorb"] + 1})
    assert widgets.verdict(broken, widgets.LAST_STEP) == "scores equal   outputs DIFFERENT"


def test_the_steppers_numbers_stay_in_their_boxes():
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    explorer = widgets.ToyStepper()
    fig, view, first = explorer._first_view()
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    renderer = canvas.get_renderer()
    for query, latents, w_k, w_v in PIECES:
        explorer.update(view, **(first | dict(query=query, latents=latents, w_k=w_k, w_v=w_v)))
        for box, numbers, _ in itertools.chain(*view.lanes.values()):
            inner, outer = numbers.get_window_extent(renderer), box.get_window_extent(renderer)
            assert outer.x0 < inner.x0, numbers.get_text()
            assert inner.x1 < outer.x1, numbers.get_text()
    for text in fig.axes[0].texts:
        extent = text.get_window_extent(renderer)
        assert extent.x0 >= 0, text.get_text()
        assert extent.x1 <= fig.bbox.width, text.get_text()
        assert extent.y0 >= 0, text.get_text()
        assert extent.y1 <= fig.bbox.height, text.get_text()


def test_merged_output_bars_show_each_models_ratio():
    pytest.importorskip("matplotlib")
    ax = widgets.merged_output_bars(MODELS).axes[0]
    bars = {container.get_label(): container[0].get_width() for container in ax.containers}
    # latent·hidden / (value·(latent + hidden)), by hand from the configurations
    wanted = {"DeepSeek-V3": 56 / 15, "DeepSeek-V2-Lite": 3.2, "GLM-5.2": 24 / 13, "GLM-4.7-Flash": 1.6}
    assert {name: bars[name] for name in wanted} == pytest.approx(wanted)
    assert "3.73 ×   469.8 M against 125.8 M" in shown(ax.figure)
    assert list(bars) == list(MODELS)
