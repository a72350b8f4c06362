"""Garbage from a fixed seed: whatever the judge is fed, it keeps its promises.

``python tests/fuzz.py --inputs 20000`` feeds more, ``python tests/fuzz.py --seed 1 frames:17`` one of them again.
"""

import random

import fuzz
import pytest

from ledger.judge import wire
from ledger.judge.collect import Cell, Submission
from ledger.judge.grade import counted_case, grade
from ledger.judge.outcome import Outcome
from ledger.judge.run import Session
from ledger.judge.session import job_of

INPUTS = 300

#: What must become of some of the inputs of a kind: a generator whose garbage is all turned away tests one line.
BECOMES = {
    "frames": {"graded", "refused"},
    "notebooks": {"read", "refused"},
    "arguments": {"status 0", "status 1", "status 2"},
}


@pytest.mark.parametrize("kind", fuzz.KINDS_OF_INPUT)
def test_garbage(kind):
    became = fuzz.feed_many(fuzz.SEED, kind, range(INPUTS))
    assert became.total() == INPUTS
    assert BECOMES[kind] <= set(became)
    assert all(became[what] >= INPUTS // 50 for what in BECOMES[kind]), became


@pytest.mark.parametrize("id", [id for id in fuzz.GRADED if not counted_case(fuzz.exercises.get(id))])
def test_an_honest_process_with_the_right_values_passes(id):
    # The same way as the garbage goes: what is refused there is refused for what is wrong with it.
    exercise, calls = fuzz.exercises.get(id), fuzz.calls_for(id)
    frames = [({"layers": []}, []), ({"cell": 0}, []), ({"notes": [], "outcome": None}, [])]
    for number, (case, call) in enumerate(zip(exercise.cases, calls, strict=True)):
        if case.raises:
            outcome = Outcome("raised", error=case.raises.error, message=" ".join(case.raises.names))
        else:
            outcome = Outcome("returned", value=exercise.oracle(*call.args.values()))
        message, leaves = wire.outcome_to_wire(outcome)
        frames.append(({"number": number, "outcome": message}, leaves))
    launcher = fuzz.StandIn(b"".join(fuzz.framed(*frame) for frame in frames), b"", 0)
    run = Session(job_of(Submission(exercise, (Cell("answer", "pass"),)), calls), lambda: launcher).run()
    assert grade(exercise, fuzz.SEED, calls, run.outcomes, 0.0).verdict == "passed"


def test_a_finding_says_how_to_have_it_again(monkeypatch):
    def break_at_two(self, rng):
        fuzz.expect(rng.random() != random.Random("5 frames 2").random(), "the promise")
        return "graded"

    monkeypatch.setattr(fuzz.Frames, "feed", break_at_two)
    with pytest.raises(fuzz.Finding, match=r"fuzz.py --seed 5 frames:2: Finding: the promise"):
        fuzz.feed_many(5, "frames", range(4))


def test_an_input_is_made_from_its_number_alone():
    made = [fuzz.forge(rng, *fuzz.reply_outcome(rng, "split_plan", 1)) for rng in map(random.Random, "aab")]
    assert made[0] == made[1] != made[2]


def test_mutations_change_a_tree():
    tree = {"cells": [{"id": "a", "source": ["x\n"], "metadata": {}}], "nbformat": 4}
    rng, made = random.Random(1), set()
    for _ in range(200):
        changed = fuzz.deepcopy(tree)
        fuzz.mutate(rng, changed)
        made.add(fuzz.to_json(changed))
    assert len(made) > 100
