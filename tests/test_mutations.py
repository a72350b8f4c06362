"""Every reference with one token changed, over and over: the cases reject it, or the change is explained.

``pytest tests/test_mutations.py`` says at its end which share of all changes is rejected, and so does ``make test``.
One exercise alone, ``-k my_exercise``, has no share: it is that of the whole course.
"""

import json
from pathlib import Path

import pytest

from ledger import exercises
from ledger.build import fresh_solutions
from ledger.judge.collect import collect
from ledger.judge.gate import notebooks_of
from ledger.judge.mutate import mutations, survivors
from ledger.judge.run import Runner
from ledger.judge.session import what_lacks

#: Changes that leave an answer right, by exercise: the change as it is named, and why it is none.
EXPLAINED = json.loads(Path(__file__).with_name("equivalent_changes.json").read_text())
SEED = 77
SHARE = 0.95


@pytest.fixture(scope="module")
def solutions(root):
    return notebooks_of(fresh_solutions(root))


@pytest.fixture(scope="module")
def runner():
    with Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def counted():
    """Of each exercise that was tried, its changes and how many survived."""
    return {}


def test_one_token_at_a_time():
    source = "def f(a, axis=-1):\n    return (a + 1).sum(axis) if a is not None and a < 2.5 else True\n"
    said = {m.says.split(" in: ")[0] for m in mutations("f", source)}
    assert said == {
        "+ to -",
        "1 to 2",
        "sum to mean",
        "is not to is",
        "and to or",
        "< to <=",
        "2.5 to 5.0",
        "True to False",
        "a minus to a plus",
    }
    texts = [m.source for m in mutations("f", source)]
    assert len(set(texts)) == len(texts) == 10, "the constant of the axis is one of them"
    assert all(compile(text, "changed", "exec") for text in texts)


@pytest.mark.parametrize("id", list(exercises.registry()))
def test_what_survives_is_explained(id, solutions, runner, counted):
    exercise = exercises.get(id)
    if what_lacks(exercise):
        pytest.skip(what_lacks(exercise))
    made, left = survivors(exercise, collect(exercise, solutions, []), runner, SEED)
    counted[id] = made, len(left)
    explained = EXPLAINED.get(id, {})
    assert made > 0
    assert {m.says for m in left} <= explained.keys(), "a hole in the cases, or a change to explain"
    assert explained.keys() <= {m.says for m in left}, "explained, and yet rejected, or gone from the reference"


def test_the_share_that_is_rejected(counted, record_property):
    """Of the changes of every reference that can run here: those of a few say nothing of the course."""
    missing = {id for id, exercise in exercises.registry().items() if not what_lacks(exercise)} - counted.keys()
    assert not missing, f"{len(missing)} references were not tried: run the whole file, without -k"
    made, left = (sum(column) for column in zip(*counted.values(), strict=True))
    share = 1 - left / made
    told = f"{made:,} one-token changes of {len(counted)} references, {made - left:,} rejected: {share:.1%}"
    record_property("mutations", told)
    assert share >= SHARE


def test_explanations_are_of_exercises_and_say_something():
    assert EXPLAINED.keys() <= set(exercises.ids())
    assert all(len(why) > 20 for changes in EXPLAINED.values() for why in changes.values())
