"""The same answers on fresh seeds get the same verdicts: a few of those that ``python tests/repeats.py`` repeats."""

from functools import partial

import pytest
import repeats
from repeats import Answer, Differs, Given

from ledger.judge.collect import Submission
from ledger.judge.outcome import Cell
from ledger.judge.run import Runner

#: An array under a budget, a tuple, a mapping, a number that may be infinite.
IDS = ("absorb_query", "merge_partials", "materialize_macs", "crossover_limit")
HOSTILE = ("ok_plain", "missing_misspelt", "wrong_dtype", "error_fork", "crash_exit", "crash_forged_frame")


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    with Runner(extra_hidden=[tmp_path_factory.getbasetemp()]) as made:
        yield made


def test_a_few_answers_on_three_seeds(runner, tmp_path):
    answers = repeats.answers_to(IDS) + [one for one in repeats.hostile(tmp_path) if one.name in HOSTILE]
    assert [answer.kind for answer in answers].count("hostile") == len(HOSTILE)
    assert len(answers) == 3 * len(IDS) + len(HOSTILE)
    assert repeats.repeat(answers, runner, 5, runs=3) <= set(IDS)


GIVEN = Given("wrong", 1.0, "odd sizes", "transposed")


def in_turn(kind: str, *given: Given) -> Answer:
    """An answer that is given one after the other."""
    left = iter(given)
    return Answer(kind, "it", {"wrong", "passed"}, lambda runner, seed: next(left))


@pytest.mark.parametrize(
    "now",
    [GIVEN._replace(verdict="passed"), GIVEN._replace(points=2.0), GIVEN._replace(case="b"), GIVEN._replace(why="c")],
    ids=["verdict", "points", "case", "why"],
)
def test_what_differs_is_found(now):
    with pytest.raises(Differs, match=r"run 2, seed .* reference it: .*; before it was"):
        repeats.repeat([in_turn("reference", GIVEN, GIVEN, now)], None, 1, runs=3)


def test_a_wrong_answer_may_be_right_by_chance_in_a_case():
    other = GIVEN._replace(points=2.0, case="b")
    assert repeats.repeat([in_turn("wrong", GIVEN, other)], None, 1, runs=2) == {"it"}
    assert repeats.repeat([in_turn("wrong", GIVEN, GIVEN)], None, 1, runs=2) == set()
    for now in (GIVEN._replace(verdict="passed"), other._replace(why="another mistake")):
        with pytest.raises(Differs):
            repeats.repeat([in_turn("wrong", GIVEN, now)], None, 1, runs=2)


def test_a_verdict_that_is_always_false_is_found(runner):
    twice = Submission(repeats.exercises.get("absorb_query"), (Cell("c", "absorb_query = lambda q, w: 2 * q @ w.T"),))
    with pytest.raises(Differs, match="right is passed"):
        repeats.repeat([Answer("reference", "it", {"passed"}, partial(repeats.graded, twice, ""))], runner, 1, runs=1)


def test_each_run_has_a_seed_of_its_own():
    seeds = []
    answer = Answer("stub", "it", {"wrong"}, lambda runner, seed: (seeds.append(seed), GIVEN)[1])
    repeats.repeat([answer], None, 1, runs=50)
    repeats.repeat([answer], None, 2, runs=1)
    assert len(set(seeds)) == 51


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            "wrong in 32 of 1,032 elements; [0, 0] is -1.4e-07, wanted inf",
            "wrong in # of # elements; [#, #] is #, wanted #",
        ),
        ("float64 for float32, w_k transposed", "float64 for float32, w_k transposed"),
        ("holds NaN or infinity; information", "holds NaN or infinity; information"),
    ],
    ids=["numbers", "names", "words"],
)
def test_the_numbers_of_a_reason_are_left_out_and_nothing_else(text, left):
    assert repeats.without_numbers(text) == left
