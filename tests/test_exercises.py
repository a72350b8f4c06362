"""The exercises of the registry: their cases, their oracles against the masters' reference bodies and scalar loops, the
mistakes they recognise and the answers that their budgets must let through or stop."""

import ast
import itertools
import linecache
import math
import re
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from need import need

from ledger import exercises
from ledger.exercises.making import cancel, drawn, normal, whole
from ledger.judge.compare import difference
from ledger.judge.launchers import launched
from ledger.judge.mistakes import Wrong, recognise
from ledger.judge.notebook import run_here
from ledger.judge.observe import lay_out, same

ROOT = Path(__file__).resolve().parent.parent
MASTERS = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "course" / "practice").glob("*/*.py"))}
REGISTRY = exercises.registry()
#: The exercises of chapters 1 and 2 on arrays: each axis of theirs is one of a case's sizes.
ARRAYS = [
    *("up_project_keys", "absorb_query", "scores_absorbed"),
    *("split_kv_b", "absorb_heads", "scores_shared_latent"),
]
#: Every exercise that is called with an array of floats.
FLOATS = [
    id
    for id, e in REGISTRY.items()
    if not e.launcher
    and any(isinstance(v, np.ndarray) and v.dtype.kind == "f" for v in e.inputs(e.cases[0], 0).values())
]
#: The exercises whose budget is part of what they mean.
BUDGETS = [
    "scores_absorbed",
    "absorb_heads",
    "scores_shared_latent",
    "mix_then_project",
    "absorb_values_heads",
    "attend_absorbed",
    "decode_absorbed",
    "merge_chunked_context",
    "sparse_decode",
]
#: Those of them that scale, take a softmax or merge: elementwise work that ``least_macs`` does not count.
ELEMENTWISE = ["attend_absorbed", "decode_absorbed", "merge_chunked_context", "sparse_decode"]
SEEDS = range(5)
MISTAKES = [(id, mistake.name) for id, exercise in REGISTRY.items() for mistake in exercise.mistakes]
MUTANTS = [(id, mutant.answer.__name__) for id, exercise in REGISTRY.items() for mutant in exercise.mutants]


def master_cells():
    """(path, header, source) of every cell of the practice masters."""
    for path, text in MASTERS.items():
        for cell in re.split(r"^(?=# %%)", text, flags=re.MULTILINE)[1:]:
            header, _, source = cell.partition("\n")
            yield path, header, source


def flagged(flag, id):
    """The source of the cell that carries ``flag="id"``."""
    [source] = [source for _, header, source in master_cells() if f'{flag}="{id}"' in header]
    return source


def reference(id):
    """The reference body of an exercise, from its master; the answers above it are there, as in a notebook."""
    need(REGISTRY[id])
    namespace = {"np": np, "math": math}
    if "torch" in REGISTRY[id].needs:
        import torch

        namespace["torch"] = torch
    if "triton" in REGISTRY[id].needs:
        from ledger.kernels.interpret.mode import tl, triton

        namespace |= {"triton": triton, "tl": tl}
    for other in REGISTRY.values():
        alike = other.chapter == REGISTRY[id].chapter and other.needs == REGISTRY[id].needs
        if alike and other.order <= REGISTRY[id].order:
            source, file = flagged("exercise", other.id), f"<{other.id}>"
            linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # Triton reads it
            exec(compile(source, file, "exec"), namespace)
    return namespace[id]


def statement(id):
    """The markdown cell right before the answer cell, as one line of words."""
    cells = list(master_cells())
    [at] = [i for i, (_, header, _) in enumerate(cells) if f'exercise="{id}"' in header]
    assert cells[at - 1][1].strip() == "# %% [markdown]"
    return " ".join(re.sub(r"^# ?", "", cells[at - 1][2], flags=re.MULTILINE).split())


def mutant(id, name):
    [found] = [m for m in REGISTRY[id].mutants if m.answer.__name__ == name]
    return found


def every_case(id, seeds=SEEDS):
    """(case, seed, arguments) of every case on every seed."""
    for case, seed in itertools.product(REGISTRY[id].cases, seeds):
        if case.raises:
            continue
        yield case, seed, tuple(REGISTRY[id].inputs(case, seed).values())


@cache
def wanted(id):
    """(arguments, right value) of every case on one seed; who may change the arguments gets a copy."""
    return [(args, REGISTRY[id].oracle(*copy(args))) for _, _, args in every_case(id, [1])]


def copy(args):
    """Arguments that may be changed."""
    return lay_out(args, "plain")


# The registry and the masters


#: The exercises of each chapter in their order.
COURSE = {
    1: "up_project_keys absorb_query scores_absorbed key_path_macs",
    2: "split_kv_b absorb_heads scores_shared_latent merged_weight_ratio",
    3: "project_mla materialize_values mix_then_project absorb_values_heads attend_absorbed merge_partials "
    "merged_output_ratio",
    4: "rope_tables apply_rope relative_rotation single_matrix_residual cache_entry absorbed_queries decode_absorbed "
    "softmax_scale",
    5: "materialize_macs absorb_macs crossover_new_tokens crossover_limit crossover_causal pick_path",
    6: "cache_values_per_token cache_bytes_per_token tokens_that_fit requests_that_fit merge_chunked_context",
    7: "online_softmax_step split_plan gather_pages arithmetic_intensity roofline_seconds absorb_heads_kernel "
    "mla_decode_kernel",
    8: "mtp_forward verify_greedy verify_sampling expected_advance attention_params expert_params step_seconds "
    "mtp_speedup break_even_acceptance best_draft_count verify_rows_cost",
    9: "token_bytes all_to_all_seconds route_tokens rank_loads overlap_seconds dispatch_and_combine",
    10: "index_scores quantize_index_keys select_tokens physical_slots sparse_decode masked_prefill pair_flops "
    "dsa_decode_ledger dsa_prefill_ledger break_even_position break_even_prompt index_cache_overhead rows_read",
    11: "compress_blocks selection_scores pick_blocks window_range gated_sum nsa_tokens_read nsa_decode",
}


def test_the_exercises_of_the_course_in_order():
    listed = {id: (chapter, order) for chapter, ids in COURSE.items() for order, id in enumerate(ids.split(), 1)}
    assert {id: (exercise.chapter, exercise.order) for id, exercise in REGISTRY.items()} == listed
    assert list(REGISTRY) == list(listed)


def test_ids_are_file_names_and_stand_in_the_masters_in_order():
    assert set(exercises.ids()) == set(REGISTRY)
    assert all(id == exercise.id for id, exercise in REGISTRY.items())
    headers = "\n".join(header for _, header, _ in master_cells())
    for flag in ("exercise", "hints", "check"):
        assert re.findall(rf'{flag}="(\w+)"', headers) == list(REGISTRY)


def test_helper_modules_are_no_exercises():
    assert not {"base", "making"} & set(exercises.ids())
    with pytest.raises(KeyError):
        exercises.get("making")


@pytest.mark.parametrize("id", REGISTRY)
def test_an_exercise_is_whole(id):
    exercise = REGISTRY[id]
    assert exercise.title
    assert exercise.checks
    assert 1 <= exercise.difficulty <= 3
    assert exercise.points >= 1
    assert exercise.minutes >= 1
    assert len(exercise.cases) >= 5
    assert len(exercise.hints) == 3
    assert all(hint.strip() for hint in exercise.hints)
    assert len(exercise.mutants) >= 2
    for names in ([c.name for c in exercise.cases], [m.name for m in exercise.mistakes]):
        assert max(Counter(names).values()) == 1


@pytest.mark.parametrize("id", REGISTRY)
def test_signature_and_check_cell_agree_with_the_registry(id):
    [function] = [n for n in ast.parse(flagged("exercise", id)).body if isinstance(n, ast.FunctionDef)]
    parameters = [argument.arg for argument in function.args.args]
    assert ast.get_docstring(function)
    for case in REGISTRY[id].cases:
        assert REGISTRY[id].launcher or list(REGISTRY[id].inputs(case, 0)) == parameters
    for wrong in REGISTRY[id].mutants:
        assert list(wrong.answer.__code__.co_varnames[: wrong.answer.__code__.co_argcount]) == parameters
    assert flagged("check", id).strip() == f'check("{id}", {id})'


@pytest.mark.parametrize("id", REGISTRY)
def test_the_statement_tells_effort_and_budget(id):
    exercise, text = REGISTRY[id], statement(id)
    points = "1 point*" if exercise.points == 1 else f"{exercise.points} points*"
    assert text.startswith(f"## {id} *{exercise.minutes} minutes · difficulty {exercise.difficulty} of 3 · {points}")
    assert ("**Budget.**" in text) == bool(exercise.budget)
    assert (id in BUDGETS) == (exercise.budget is not None)
    if exercise.budget:
        assert f"**Budget.** {exercise.budget.text}" in text


# The cases


@pytest.mark.parametrize("id", FLOATS)
def test_cases_with_arrays_have_sizes_of_0_and_1_float32_and_strided_ones(id):
    cases = REGISTRY[id].cases
    assert any(0 in case.dims.values() for case in cases)
    assert any(1 in case.dims.values() for case in cases)
    assert any(case.dtype == "float32" for case in cases)
    assert any(case.layout == "strided" for case in cases)


@pytest.mark.parametrize("id", ARRAYS)
def test_array_cases_cover_what_goes_wrong(id):
    cases = REGISTRY[id].cases
    sizes = [list(case.dims.values()) for case in cases]
    assert any(len(set(s)) == 1 for s in sizes), "a square case, where shapes hide a missing transpose"
    assert any(all(n % 2 for n in s) and len(set(s)) == len(s) for s in sizes), "odd, distinct sizes"
    assert any(1 in s for s in sizes)
    assert any(0 in s for s in sizes)
    assert any(any(n & (n - 1) for n in s) for s in sizes), "a size that is no power of two"
    assert any(case.dims["latent_dim"] >= 256 and case.dims.get("num_heads", 1) <= 4 for case in cases)
    assert any(case.dtype == "float32" for case in cases)
    assert any(case.layout == "strided" for case in cases)


@pytest.mark.parametrize("id", ARRAYS)
def test_sizes_are_distinct_unless_the_case_says_otherwise(id):
    for case in REGISTRY[id].cases:
        if not any(word in case.name for word in ("square", "toy", "one ")):
            assert len(set(case.dims.values())) == len(case.dims), case.name


@pytest.mark.parametrize("id", ARRAYS)
def test_inputs_have_the_sizes_that_the_case_names_and_its_dtype(id):
    """The reference's shapes, worked out from ``dims`` alone."""
    axes = {
        "latents": "cached_tokens latent_dim",
        "w_k": "latent_dim nope_dim",
        "q_absorbed": "new_tokens num_heads latent_dim",
        "w_kc": "num_heads nope_dim latent_dim",
        "q_nope": "new_tokens num_heads nope_dim" if id == "absorb_heads" else "new_tokens nope_dim",
    }
    for case in REGISTRY[id].cases:
        for name, value in REGISTRY[id].inputs(case, 0).items():
            if name == "kv_b":
                rows = case.dims["num_heads"] * (case.dims["nope_dim"] + case.dims["value_dim"])
                wanted = rows, case.dims["latent_dim"]
            elif name in axes:
                wanted = tuple(case.dims[axis] for axis in axes[name].split())
            else:
                assert value == case.dims[name]
                continue
            assert value.shape == wanted, (case.name, name)
            assert value.dtype == case.dtype


@pytest.mark.parametrize("id", REGISTRY)
def test_values_come_from_the_seed(id):
    exercise = REGISTRY[id]
    for case in exercise.cases:
        first, again, other = (exercise.inputs(case, seed) for seed in (1, 1, 2))
        assert same(first, again)
        drawn = any(isinstance(value, np.ndarray) and value.size for value in first.values())
        if id in ARRAYS and drawn and "toy" not in case.name:
            assert not same(first, other), case.name
        if "drawn at random" in case.name:
            assert first != other


@pytest.mark.parametrize("id", [id for id in ARRAYS if id != "split_kv_b"])
def test_the_cancelling_case_catches_what_normal_values_hide(id):
    """An answer that computes in float32 is within 1e-4 on normal values, and wrong by whole numbers here."""
    exercise = REGISTRY[id]
    answer = reference(id)

    def worst(case, seed):
        args = exercise.inputs(case, seed).values()
        want = exercise.oracle(*args)
        got = answer(*(value.astype(np.float32) for value in args))
        return np.max(np.abs(got - want)) / np.max(np.abs(want))

    for seed in SEEDS:
        assert worst(exercise.case("odd sizes"), seed) < 1e-4
        assert worst(exercise.case("huge parts that cancel"), seed) > 1e-2


def test_the_numbered_case_catches_a_detour_through_float32():
    exercise = REGISTRY["split_kv_b"]
    args = exercise.inputs(exercise.case("huge numbered elements"), 0)
    args["kv_b"] = args["kv_b"].astype(np.float32).astype(np.float64)
    want = exercise.oracle(**exercise.inputs(exercise.case("huge numbered elements"), 0))
    assert any(np.any(part != right) for part, right in zip(exercise.oracle(**args), want, strict=True))


# Right answers


@pytest.mark.parametrize("id", REGISTRY)
def test_reference_and_oracle_agree_on_every_case(id):
    answer = launched(REGISTRY[id].launcher, reference(id))
    for case, seed, args in every_case(id, SEEDS[:1] if REGISTRY[id].launcher else SEEDS):
        assert difference(answer(*args), REGISTRY[id].oracle(*args)) is None, (case.name, seed)


@pytest.mark.parametrize("id", REGISTRY)
def test_the_reference_passes_its_check(id):
    result = run_here(REGISTRY[id], reference(id), seed=11)
    assert result.verdict == "passed", result.message
    if REGISTRY[id].least_macs:
        assert result.counts["counted"]
        least, macs = result.counts["predicted_macs"], result.counts["macs"]
        assert least <= macs <= (1.05 * least if id in ELEMENTWISE else least)


@pytest.mark.parametrize(
    ("id", "wanted"),
    [
        ("up_project_keys", [[1, 0], [0, 2], [1, 1]]),
        ("absorb_query", [[1, 0, 1]]),
        ("scores_absorbed", [[1, 0, 1]]),
        ("absorb_heads", [[[1, 0, 1], [1, 1, 3]]]),
        ("scores_shared_latent", [[[1, 0, 1]], [[1, 1, 3]]]),
    ],
)
def test_the_toy_by_hand(id, wanted):
    [case] = [case for case in REGISTRY[id].cases if "toy" in case.name]
    args = REGISTRY[id].inputs(case, 0).values()
    assert REGISTRY[id].oracle(*args).tolist() == wanted
    assert reference(id)(*args).tolist() == wanted


def test_the_packed_toy_by_hand():
    exercise = REGISTRY["split_kv_b"]
    args = exercise.inputs(exercise.case("the toy by hand, two heads"), 0)
    assert args["kv_b"].tolist() == [
        [1, 0, 1],
        [0, 2, 1],
        [1, 0, 0],
        [0, 1, 1],
        [0, 1, 2],
        [1, 0, 1],
        [7, 7, 7],
        [9, 9, 9],
    ]
    w_kc, w_vc = exercise.oracle(**args)
    assert w_kc.tolist() == [[[1, 0, 1], [0, 2, 1]], [[0, 1, 2], [1, 0, 1]]]
    assert w_vc.tolist() == [[[1, 0], [0, 1], [0, 1]], [[7, 9], [7, 9], [7, 9]]]


def multiply_adds_by_counting(new_tokens, cached_tokens, latent_dim, nope_dim):
    """Both ways of a head in scalar loops, counting each multiplication of two numbers."""
    steps = Counter()
    for _ in itertools.product(range(cached_tokens), range(nope_dim), range(latent_dim)):
        steps["materialize"] += 1
    for _ in itertools.product(range(new_tokens), range(cached_tokens), range(nope_dim)):
        steps["materialize"] += 1
    for _ in itertools.product(range(new_tokens), range(latent_dim), range(nope_dim)):
        steps["absorb"] += 1
    for _ in itertools.product(range(new_tokens), range(cached_tokens), range(latent_dim)):
        steps["absorb"] += 1
    return steps["materialize"], steps["absorb"]


@pytest.mark.parametrize("sizes", [(1, 3, 3, 2), (4, 3, 5, 2), (2, 7, 3, 5), (0, 4, 3, 2), (3, 0, 5, 2), (1, 1, 1, 1)])
def test_key_path_macs_counts_scalar_steps(sizes):
    assert REGISTRY["key_path_macs"].oracle(*sizes) == multiply_adds_by_counting(*sizes)


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        ("the toy by hand", (24, 15)),
        ("decode at DeepSeek-V3", (268_959_744, 2_162_688)),
        ("prefill at DeepSeek-V3", (2_415_919_104, 8_858_370_048)),
        ("empty cache", (0, 196_608)),
        ("no new token", (327_680, 0)),
        ("more than a float counts exactly", (19_301_300_829_071_965, 57_601_676_162_976_768)),
    ],
)
def test_key_path_macs_at_known_sizes(case, wanted):
    exercise = REGISTRY["key_path_macs"]
    assert exercise.oracle(**exercise.inputs(exercise.case(case), 0)) == wanted


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        ("small widths", 60 / 54),
        ("DeepSeek-V3", 3.0),
        ("GLM-5.2", 2.1333333333333333),
        ("no nope width", math.inf),
        ("no latent", 0.0),
    ],
)
def test_merged_weight_ratio_at_known_sizes(case, wanted):
    exercise = REGISTRY["merged_weight_ratio"]
    assert exercise.oracle(**exercise.inputs(exercise.case(case), 0)) == pytest.approx(wanted, rel=1e-14)


def test_merged_weight_ratio_counts_the_elements_of_real_arrays():
    q_lora, latent, nope, heads = 6, 5, 2, 3
    w_uq, w_uk = np.ones((heads, q_lora, nope)), np.ones((heads, nope, latent))
    merged = w_uq @ w_uk
    ratio = merged.size / (w_uq.size + w_uk.size)
    assert REGISTRY["merged_weight_ratio"].oracle(q_lora, latent, nope, heads) == pytest.approx(ratio)
    assert REGISTRY["merged_weight_ratio"].oracle(0, 0, 2, 3) == math.inf
    assert REGISTRY["merged_weight_ratio"].oracle(6, 5, 2, 0) == math.inf


# Wrong answers


@pytest.mark.parametrize(("id", "name"), MUTANTS)
def test_a_mutant_is_rejected_for_its_reason(id, name):
    wrong = mutant(id, name)
    need(REGISTRY[id])
    result = run_here(REGISTRY[id], wrong.answer, seed=12)
    assert result.verdict == wrong.verdict
    assert any(wrong.because in case.message for case in result.cases if case.verdict != "passed")


@pytest.mark.parametrize(("id", "name"), MISTAKES)
def test_a_mistake_is_made_by_a_mutant_and_recognised_by_its_value(id, name):
    """The mistake is named, and no other, from all the cases where the mutant goes wrong; the gate does so on a fresh
    seed."""
    exercise = REGISTRY[id]
    need(exercise)
    makers = [m for m in exercise.mutants if m.because == name]
    assert makers
    for maker in makers:
        wrongs = []
        for args, want in wanted(id):
            try:
                got = launched(exercise.launcher, maker.answer)(*copy(args))
            except Exception:
                continue
            if difference(got, want):
                wrongs.append(Wrong(args, got, want))
        assert wrongs, "the mutant is right everywhere"
        assert recognise(exercise, wrongs).name == name


@pytest.mark.parametrize("id", REGISTRY)
def test_no_right_answer_looks_like_a_mistake_alone(id):
    """A mistake that gives the right value on every case would never be seen."""
    for mistake in REGISTRY[id].mistakes:
        assert any(differs(mistake, args, want) for args, want in wanted(id)), mistake.name


def differs(mistake, args, want):
    """Whether code with this mistake gives something else; not where it gives nothing."""
    try:
        return difference(mistake.value(*copy(args)), want) is not None
    except Exception:
        return False


# Budgets


def scores_by_einsum(q_nope, w_k, latents):
    return np.einsum("sc,tc->st", np.einsum("sn,cn->sc", q_nope, w_k), latents)


def scores_by_one_optimized_einsum(q_nope, w_k, latents):
    return np.einsum("sn,cn,tc->st", q_nope, w_k, latents, optimize="optimal")


def scores_by_tensordot(q_nope, w_k, latents):
    return np.tensordot(np.tensordot(q_nope, w_k, axes=(1, 1)), latents, axes=(1, 1))


def scores_by_multi_dot(q_nope, w_k, latents):
    return np.linalg.multi_dot([q_nope, w_k.T, latents.T])


def scores_with_copies(q_nope, w_k, latents):
    absorbed = np.dot(np.ascontiguousarray(q_nope), np.ascontiguousarray(w_k.T))
    return np.ascontiguousarray(np.dot(latents, absorbed.T).T)


def scores_token_by_token(q_nope, w_k, latents):
    scores = np.empty((len(q_nope), len(latents)), q_nope.dtype)
    for row, query in enumerate(q_nope):
        scores[row] = latents @ (w_k @ query)
    return scores


def scores_scaled_by_one(q_nope, w_k, latents):
    return (q_nope @ w_k.T @ latents.T) * 1


def heads_by_einsum(q_nope, w_kc):
    return np.einsum("shn,hnc->shc", q_nope, w_kc)


def heads_by_optimized_einsum(q_nope, w_kc):
    return np.einsum("shn,hnc->shc", q_nope, w_kc, optimize=True)


def heads_by_moveaxis(q_nope, w_kc):
    return np.moveaxis(np.matmul(np.moveaxis(q_nope, 1, 0), w_kc), 0, 1)


def heads_by_broadcast(q_nope, w_kc):
    return np.matmul(q_nope[:, :, None], w_kc)[:, :, 0]


def heads_with_copies(q_nope, w_kc):
    by_head = np.ascontiguousarray(q_nope.transpose(1, 0, 2))
    return np.ascontiguousarray((by_head @ w_kc.copy()).transpose(1, 0, 2))


def shared_by_einsum(q_absorbed, latents):
    return np.einsum("shc,tc->hst", q_absorbed, latents)


def shared_by_optimized_einsum(q_absorbed, latents):
    return np.einsum("shc,tc->hst", q_absorbed, latents, optimize=True)


def shared_by_tensordot(q_absorbed, latents):
    return np.tensordot(q_absorbed, latents, axes=(2, 1)).transpose(1, 0, 2)


def shared_by_rows(q_absorbed, latents):
    new_tokens, num_heads, latent_dim = q_absorbed.shape
    rows = q_absorbed.transpose(1, 0, 2).reshape(num_heads * new_tokens, latent_dim)
    return (rows @ latents.T).reshape(num_heads, new_tokens, len(latents))


def shared_head_by_head(q_absorbed, latents):
    scores = np.zeros((q_absorbed.shape[1], len(q_absorbed), len(latents)), q_absorbed.dtype)
    for head in range(len(scores)):
        scores[head] = q_absorbed[:, head] @ latents.T
    return scores


def shared_by_broadcast_view(q_absorbed, latents):
    for_all = np.broadcast_to(latents, (q_absorbed.shape[1], *latents.shape))
    return q_absorbed.swapaxes(0, 1) @ for_all.swapaxes(1, 2)


RIGHT = {
    "scores_absorbed": [
        scores_by_einsum,
        scores_by_one_optimized_einsum,
        scores_by_tensordot,
        scores_by_multi_dot,
        scores_with_copies,
        scores_token_by_token,
        scores_scaled_by_one,
    ],
    "absorb_heads": [
        heads_by_einsum,
        heads_by_optimized_einsum,
        heads_by_moveaxis,
        heads_by_broadcast,
        heads_with_copies,
    ],
    "scores_shared_latent": [
        shared_by_einsum,
        shared_by_optimized_einsum,
        shared_by_tensordot,
        shared_by_rows,
        shared_head_by_head,
        shared_by_broadcast_view,
    ],
}


@pytest.mark.parametrize(("id", "answer"), [(id, answer) for id, answers in RIGHT.items() for answer in answers])
def test_a_budget_lets_other_right_answers_through(id, answer):
    result = run_here(REGISTRY[id], answer, seed=13)
    assert result.verdict == "passed", result.message


@pytest.mark.parametrize("id", BUDGETS)
def test_a_budget_allows_the_least_and_one_step_over_the_result(id):
    exercise = REGISTRY[id]
    dims = exercise.case(exercise.budget.case).dims
    args = exercise.inputs(exercise.case(exercise.budget.case), 0).values()
    result = exercise.oracle(*args)
    size = sum(part.size for part in result) if isinstance(result, tuple) else result.size
    least, most = exercise.least_macs(**dims), exercise.budget.macs(**dims)
    if id in ELEMENTWISE:
        assert least + size <= most < 1.1 * least
    else:
        assert most == least + size
    assert size < exercise.budget.peak_values(**dims)
    assert len(set(dims.values())) == len(dims), "a size must name an axis"


def hidden(function):
    """``function`` on arrays that the counter cannot follow, with no more memory than it needs itself."""

    def answer(*args):
        return function(*(np.ndarray.view(a, np.ndarray) for a in args))

    return answer


def scores_with_a_copied_weight(q_nope, w_k, latents):
    return (q_nope @ w_k.T.copy() @ latents.T).copy()


def heads_all_copied(q_nope, w_kc):
    return (q_nope.swapaxes(0, 1).copy() @ w_kc.copy()).swapaxes(0, 1).copy()


def keys_hidden(q_nope, w_k, latents):
    return q_nope @ (latents @ w_k).T


def latents_repeated_hidden(q_absorbed, latents):
    for_each = np.repeat(latents[None], q_absorbed.shape[1], axis=0)
    return q_absorbed.swapaxes(0, 1) @ for_each.swapaxes(1, 2)


@pytest.mark.parametrize(
    ("id", "inner", "verdict"),
    [
        ("scores_absorbed", scores_by_einsum, "passed"),
        ("scores_absorbed", scores_by_tensordot, "passed"),
        ("scores_absorbed", scores_with_a_copied_weight, "passed"),
        ("scores_absorbed", keys_hidden, "wrong"),
        ("absorb_heads", heads_by_einsum, "passed"),
        ("absorb_heads", heads_all_copied, "passed"),
        ("scores_shared_latent", shared_by_rows, "passed"),
        ("scores_shared_latent", shared_by_tensordot, "passed"),
        ("scores_shared_latent", latents_repeated_hidden, "wrong"),
    ],
)
def test_code_that_leaves_the_counted_arrays_is_judged_on_its_memory(id, inner, verdict):
    result = run_here(REGISTRY[id], hidden(inner), seed=14)
    assert result.verdict == verdict, result.message
    if verdict == "wrong":
        assert "left the arrays that the judge counts" in result.message
    else:
        assert result.counts["counted"] is False


def refuses_counted_arrays(q_nope, w_kc):
    assert type(q_nope) is np.ndarray
    return np.stack([q_nope[:, head] @ w_kc[head] for head in range(len(w_kc))], axis=1)


def keys_in_plain_arrays_only(q_nope, w_k, latents):
    assert type(latents) is np.ndarray
    return q_nope @ (latents @ w_k).T


def latents_in_a_larger_room(q_absorbed, latents):
    room = np.zeros((q_absorbed.shape[1], len(latents) + 1, latents.shape[1]), latents.dtype)
    room[:, :-1] = latents
    return q_absorbed.swapaxes(0, 1) @ room[:, :-1].swapaxes(1, 2)


def heads_element_by_element(q_nope, w_kc):
    return (q_nope[..., None] * w_kc).sum(axis=2)


def one_head_element_by_element(q_nope, w_kc):
    by_head = [(q_nope[:, head, :, None] * w_kc[head]).sum(1) for head in range(len(w_kc))]
    return np.stack(by_head, 1) if by_head else np.zeros((len(q_nope), 0, w_kc.shape[2]), q_nope.dtype)


@pytest.mark.parametrize(
    ("id", "answer", "says"),
    [
        ("absorb_heads", refuses_counted_arrays, "not counted: "),
        ("scores_absorbed", keys_in_plain_arrays_only, "not counted: "),
        ("scores_shared_latent", latents_in_a_larger_room, "too large an array"),
        ("absorb_heads", heads_element_by_element, "too large an array"),
        ("absorb_heads", one_head_element_by_element, "too large an array"),
    ],
)
def test_a_budget_is_not_dodged(id, answer, says):
    result = run_here(REGISTRY[id], answer, seed=15)
    assert result.verdict == "wrong"
    assert says in result.message


# The makers of inputs


def test_whole_numbers_are_small_and_never_zero():
    values = whole(np.random.default_rng(0), np.dtype("float32"), 50, 40)
    assert values.dtype == np.float32
    assert set(np.unique(values)) == {-4, -3, -2, -1, 1, 2, 3, 4}


def test_normal_values_have_the_shape_and_dtype():
    values = normal(np.random.default_rng(0), np.dtype("float32"), 3, 0, 2)
    assert (values.shape, values.dtype) == ((3, 0, 2), np.float32)


def test_cancelling_leaves_three_times_the_shared_feature():
    left, right = np.zeros((2, 4)), whole(np.random.default_rng(1), np.dtype(float), 4, 3)
    cancel(left, right, axis=0)
    assert (left @ right).tolist() == (3 * right[[0, 0]]).tolist()
    assert (left.astype(np.float32) @ right.astype(np.float32)).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_drawn_sizes_are_ints_in_their_ranges():
    sizes = [drawn(np.random.default_rng(seed), rows=(2, 4), cols=(7, 8)) for seed in range(20)]
    assert {s["rows"] for s in sizes} == {2, 3}
    assert {s["cols"] for s in sizes} == {7}
    assert all(type(size) is int for s in sizes for size in s.values())


def test_a_residual_in_closed_form_is_right_where_it_cancels_to_0():
    """ρ² = 1 − mean |mean turn|²: one position gives 0 but for rounding, which no relative tolerance forgives."""

    def single_matrix_residual(positions, rope_dim, theta):
        if not len(positions):
            raise ValueError("no positions")
        angles = np.outer(positions, theta ** (-2 * np.arange(rope_dim // 2) / rope_dim))
        kept = np.abs(np.exp(1j * angles).mean(axis=0)) ** 2
        return float(np.sqrt(max(0.0, 1 - kept.mean())))

    assert run_here(REGISTRY["single_matrix_residual"], single_matrix_residual, seed=3).verdict == "passed"
