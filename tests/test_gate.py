"""The author's gate passes the course as it is, and names each way in which an exercise can break the rules."""

import io
from dataclasses import replace

import numpy as np
import pytest

from ledger import exercises
from ledger.exercises import Mistake, Mutant
from ledger.judge import gate as module
from ledger.judge.gate import gate


def run(root, monkeypatch, **changes):
    """The gate's status and text with ``absorb_query`` changed."""
    changed = replace(exercises.get("absorb_query"), **changes)
    monkeypatch.setattr(module.exercises, "registry", lambda: {"absorb_query": changed})
    out = io.StringIO()
    return gate(["absorb_query"], root, out), out.getvalue()


def right(q_nope, w_k):
    return q_nope @ w_k.T


def returns_nothing(q_nope, w_k):
    return None


def ones(q_nope, w_k):
    return np.ones((len(q_nope), len(w_k)), q_nope.dtype)


def test_the_course_keeps_the_rules(root):
    out = io.StringIO()
    assert gate([], root, out) == 0, out.getvalue()
    assert out.getvalue().count("✓") == len(exercises.ids())


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"oracle": lambda q_nope, w_k: q_nope @ w_k.T + 1}, "the reference is wrong with seed"),
        ({"mutants": (Mutant(right, "anything"), Mutant(ones, "wrong in"))}, "the mutant right is passed"),
        ({"mutants": (Mutant(ones, "another reason"), Mutant(returns_nothing, "is None"))}, "not for 'another reason'"),
        ({"mutants": (Mutant(returns_nothing, "is None"),)}, "fewer than two mutants"),
        ({"hints": ("one", "two", " ")}, "has not three hints"),
        ({"hints": ("idea", "shape", "return q_nope @ w_k.T")}, "a hint holds the solution"),
        ({"mistakes": (Mistake("never made", "says", ones),)}, "no mutant makes the mistake 'never made'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_broken_rule_is_named(root, monkeypatch, changes, fault):
    status, text = run(root, monkeypatch, **changes)
    assert status == 1
    assert fault in text


def test_a_stub_that_passes_or_names_nothing_is_a_fault(root, monkeypatch):
    import ledger.build

    built = ledger.build.fresh_practice(root)
    for notebook in built.values():
        for cell in notebook["cells"]:
            if cell["id"] == "absorb_query":
                cell["source"] = "def absorb_query(q_nope, w_k):\n    return q_nope @ w_k.T"
    monkeypatch.setattr(ledger.build, "fresh_practice", lambda root: built)
    status, text = run(root, monkeypatch)
    assert status == 1
    assert "the stub is passed" in text
    assert "practice/ holds a statement of the solution" in text


def test_ids_of_one_side_only_are_faults():
    assert module.id_faults(["a", "b"], ["a"]) == ["b is registered but has no cell in course/practice"]
    assert module.id_faults(["a"], ["a", "b"]) == ["b stands in course/practice but is not registered"]
    assert module.id_faults(["a", "b"], ["b", "a"]) == [
        "the masters hold the exercises in another order than the registry"
    ]
    assert module.id_faults(["a", "b"], ["a", "b"]) == []
