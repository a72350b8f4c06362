"""Chapter 7's exercises: their values by hand and by another route, what a plan must keep, and the lesson's claims."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from ledger import exercises
from ledger.judge.notebook import run_here
from ledger.kernels import listing
from ledger.kernels.loops import mla_decode_paged
from ledger.machines import machine
from ledger.reference import kernels, values

ROOT = Path(__file__).resolve().parent.parent
MASTER = (ROOT / "course/practice/ch07_decode_kernel/decode_kernel.py").read_text(encoding="utf-8")
IDS = ["online_softmax_step", "split_plan", "gather_pages", "arithmetic_intensity", "roofline_seconds"]


def reference(id):
    """The reference body of an exercise, from its master."""
    [source] = re.findall(rf'^# %% exercise="{id}"\n(.*?)^# %%', MASTER, flags=re.MULTILINE | re.DOTALL)
    namespace = {"np": np, "math": __import__("math")}
    exec(source, namespace)
    return namespace[id]


def wanted(id, case):
    exercise = exercises.get(id)
    return exercise.oracle(*exercise.inputs(exercise.case(case), 3).values())


def test_the_chapter_has_its_exercises_in_order():
    chapter = [e for e in exercises.registry().values() if e.chapter == 7]
    assert [e.id for e in sorted(chapter, key=lambda e: e.order)][: len(IDS)] == IDS


# The online softmax


def test_one_step_by_hand():
    m, total, acc = wanted("online_softmax_step", "the toy by hand")
    assert m == pytest.approx([np.log(4)])
    assert total == pytest.approx([1.75])
    assert acc == pytest.approx(np.array([[9, 3]]))


def steps(step, scores, given, cuts):
    """The last state after the blocks between ``cuts``."""
    rows, width = len(scores), given.shape[1]
    state = np.full(rows, -np.inf), np.zeros(rows), np.zeros((rows, width))
    for start, stop in itertools.pairwise([0, *cuts, len(given)]):
        state = step(*state, scores[:, start:stop], given[start:stop])
    return state


@pytest.mark.parametrize("step", [kernels.online_softmax_step, reference("online_softmax_step")])
@pytest.mark.parametrize("cuts", [[], [1], [3, 3, 4], [2, 5, 6, 10], list(range(1, 13))])
@pytest.mark.parametrize("spread", [1, 800])
def test_steps_over_any_blocks_make_the_whole_softmax(step, cuts, spread):
    rng = np.random.default_rng(len(cuts))
    scores, given = spread * rng.standard_normal((4, 13)), rng.standard_normal((13, 3))
    scores[0] = np.linspace(spread, -spread, 13)
    scores[1, 4:9] = -np.inf
    scores[2] = -np.inf
    m, total, acc = steps(step, scores, given, cuts)
    weights, lse = values.softmax_lse(scores)
    assert np.array_equal(m, scores.max(axis=1))
    assert (total[2], *acc[2]) == (0, 0, 0, 0)
    seen = [0, 1, 3]
    assert acc[seen] / total[seen, None] == pytest.approx(weights[seen] @ given, abs=1e-12)
    assert m[seen] + np.log(total[seen]) == pytest.approx(lse[seen], rel=1e-12)


@pytest.mark.filterwarnings("error")
def test_the_reference_step_warns_of_nothing():
    exercise, step = exercises.get("online_softmax_step"), reference("online_softmax_step")
    for case in exercise.cases:
        state = step(*exercise.inputs(case, 5).values())
        assert not any(np.isnan(part).any() for part in state), case.name


def test_cases_of_the_step_hold_what_their_names_say():
    exercise = exercises.get("online_softmax_step")
    inputs = exercise.inputs(exercise.case("masked tokens"), 1)
    assert np.isneginf(inputs["scores"][:2]).all()
    assert np.isfinite(inputs["m"][0])
    assert np.isneginf(inputs["m"][1:3]).all()
    assert np.isfinite(inputs["scores"][2]).any()
    assert np.isfinite(inputs["values"]).all()
    for name, sign in (("above", 1), ("below", -1)):
        far = exercise.inputs(exercise.case(f"scores far {name} those before"), 1)
        assert (sign * (far["scores"].max(axis=1) - far["m"]) > 1000).all()


# The plan


@pytest.mark.parametrize(
    ("sizes", "plan"),
    [
        ((10, 3, 2), [(0, 4), (4, 8), (8, 10)]),
        ((5, 4, 4), [(0, 4), (4, 5), (5, 5), (5, 5)]),
        ((640, 4, 64), [(0, 192), (192, 384), (384, 512), (512, 640)]),
        ((0, 3, 16), [(0, 0)] * 3),
        ((1, 2, 64), [(0, 1), (1, 1)]),
    ],
)
def test_plans_by_hand(sizes, plan):
    assert kernels.split_plan(*sizes) == plan
    assert reference("split_plan")(*sizes) == plan


@pytest.mark.parametrize("make_plan", [kernels.split_plan, reference("split_plan")])
def test_a_plan_keeps_its_rules(make_plan):
    for cached, parts, block in itertools.product((0, 1, 5, 63, 64, 65, 1000), (1, 2, 3, 7, 40), (1, 4, 64)):
        plan = make_plan(cached, parts, block)
        assert len(plan) == parts
        assert [0, *(stop for _, stop in plan)] == [*(start for start, _ in plan), cached]
        sizes = [-(-(stop - start) // block) for start, stop in plan]
        assert all(start % block == 0 for start, stop in plan if stop > start)
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] - sizes[-1] <= 1
        assert sum(sizes) == -(-cached // block)


def test_the_plan_is_the_kernels():
    for cached, parts, block in itertools.product((0, 1, 65, 1000), (1, 3, 40), (16, 64)):
        split = [mla_decode_paged.part_of(i, parts, cached, block) for i in range(parts)]
        assert split == kernels.split_plan(cached, parts, block)


# Pages


def test_pages_by_hand():
    assert wanted("gather_pages", "the toy by hand").tolist() == [[30], [31], [10]]


def test_no_case_of_the_pages_gives_nan_and_every_one_hides_some():
    exercise = exercises.get("gather_pages")
    for case in exercise.cases:
        inputs = exercise.inputs(case, 2)
        assert np.isfinite(exercise.oracle(*inputs.values())).all(), case.name
        assert any(word in case.name for word in ("toy", "no width")) or np.isnan(inputs["pages"]).any(), case.name


def test_entries_behind_the_need_point_nowhere():
    exercise = exercises.get("gather_pages")
    for case in exercise.cases:
        inputs = exercise.inputs(case, 2)
        needed = -(-inputs["length"] // inputs["pages"].shape[1])
        behind = inputs["block_table"][needed:]
        assert "toy" in case.name or behind.size, case.name
        assert ((behind < 0) | (behind >= len(inputs["pages"]))).all()


def test_a_gathered_request_is_a_copy():
    def view_of_one_page(pages, block_table, length):
        if length <= pages.shape[1] and length:
            return pages[block_table[0], :length]
        return kernels.gather_pages(pages, block_table, length)

    result = run_here(exercises.get("gather_pages"), view_of_one_page, seed=4)
    assert result.verdict == "wrong"
    assert "shares memory with pages" in result.message


# Intensity and time


@pytest.mark.parametrize(
    ("case", "value"),
    [
        ("an entry by hand", 3.5),
        ("DeepSeek-V3", 241.7777777777778),
        ("an eighth of its heads, FP8", 2 * 16 * 1088 / 656),
        ("three drafts verified", 2 * 160 * 544 / 576),
        ("no new token", 0.0),
        ("nothing cached", float("inf")),
    ],
)
def test_intensities_at_known_sizes(case, value):
    assert wanted("arithmetic_intensity", case) == pytest.approx(value, rel=1e-14)


def test_bounds_at_known_rates():
    assert wanted("roofline_seconds", "a slow machine by hand") == pytest.approx(3)
    assert wanted("roofline_seconds", "nothing read") == pytest.approx(1e15 / 2.25e15)
    assert wanted("roofline_seconds", "nothing computed") == pytest.approx(1e9 / 8e12)
    assert wanted("roofline_seconds", "nothing at all") == 0


def test_the_cases_of_the_bound_lie_on_both_sides_of_the_ridge():
    exercise = exercises.get("roofline_seconds")
    sides = set()
    for case in exercise.cases:
        given = exercise.inputs(case, 6)
        if given["bytes"] and not case.raises:
            at = given["flops"] / given["bytes"] / given["machine"].ridge(given["dtype"])
            sides.add(np.sign(round(at - 1, 9)))
    assert sides == {-1, 0, 1}


def test_the_reference_bound_refuses_a_dtype_and_names_the_choices():
    with pytest.raises(ValueError, match="bf16, fp16, fp32"):
        reference("roofline_seconds")(1, 1, machine("A100"), "fp8")


# What the lesson reads and tries


def test_a_listing_numbers_its_marks_and_is_the_kernels_own_text():
    text = listing.listing("gpu/mla_decode.py", "shared_tile", ["seen =", "m_safe ="])
    lines = text.splitlines()
    assert [line[:3] for line in lines if line[:3].strip()] == ["1  ", "2  "]
    assert next(line for line in lines if line.startswith("2")).lstrip("2 ").startswith("m_safe =")
    assert max(map(len, lines)) <= listing.WIDTH + 3
    source = (ROOT / "kernels/gpu/mla_decode.py").read_text(encoding="utf-8")
    body = source.split("def shared_tile(")[1].split("\n@triton.jit")[0].split('"""')[2]
    assert "".join(line[3:] for line in lines).replace(" ", "") == "".join(body.split("\n")).replace(" ", "")


@pytest.mark.parametrize(("kernel", "mark"), [("half_tile", "seen ="), ("shared_tile", "no such line")])
def test_a_listing_refuses_what_is_not_there(kernel, mark):
    with pytest.raises(ValueError, match=kernel):
        listing.listing("gpu/mla_decode.py", kernel, [mark])


@pytest.fixture
def trial():
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    from ledger.kernels.gpu import trial

    return trial


def test_a_trial_takes_the_kernel_and_none_of_its_mistakes(trial, monkeypatch):
    batch, scale = trial.make_batch([70, 0, 64], 3, new_tokens=2), 0.135
    assert 0 < trial.error(batch, scale) < 0.01
    right = trial.mla_decode(*batch, scale)
    out, lse = right.out.float(), right.lse
    mistakes = [
        ("an element is off", (out + 0.1, lse)),
        ("an element is off by nan", (out * float("nan"), lse)),
        ("an lse is −∞", (out, lse.nan_to_num(neginf=0.0))),
        ("an lse is off", (out, lse + 0.01)),
    ]
    for message, given in mistakes:
        monkeypatch.setattr(trial, "mla_decode", lambda *_, given=given: given)
        with pytest.raises(AssertionError, match=message):
            trial.error(batch, scale)


def test_a_trial_poisons_what_is_unused_and_its_falling_scores_fall(trial):
    batch = trial.make_batch([70, 0, 64], 3)
    pages = batch.cache.entries().isfinite().all(dim=-1).sum(dim=1).tolist()
    assert sorted(pages) == [0, 0, 6, 64, 64]
    assert batch.block_table.ne(trial.NOWHERE).sum(dim=1).tolist() == [2, 0, 1]
    falling = trial.falling_batch(3, scale=0.25)
    entries = falling.cache.entries()[falling.block_table[0, :8].long()].flatten(0, 1)
    scores = 0.25 * (falling.queries[0, 0].double() @ entries.double().cpu().T.to(falling.queries.device))
    assert (scores[0, 0].item(), scores[0, -1].item()) == (800, -800)
    assert (scores.diff(dim=-1) <= 0).all()
    assert trial.error(falling, 0.25) < 0.01
