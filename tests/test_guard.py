"""Budgets of time and output inside one process. The clock that rings is Pyodide's: tests/site has it in a browser."""

import subprocess
import sys

import pytest

from ledger import check
from ledger.judge import guard
from ledger.judge.guard import Limit, OutOfTime, Spent, TooMuchOutput, output_limit
from ledger.judge.here import Here
from ledger.judge.notebook import CheckFailed, run_here
from ledger.judge.outcome import Call, Cell, Job
from ledger.judge.run import Runner

PRINTS = "import numpy as np\n\ndef f(a):\n    while True:\n        print('x' * 1000)\n"


def test_a_spent_budget_passes_by_except_exception():
    assert issubclass(Spent, KeyboardInterrupt)
    assert not issubclass(Spent, Exception)
    assert OutOfTime("Stopped.")._render_traceback_() == ["Stopped."]


def test_outside_a_browser_a_time_limit_does_nothing_and_says_so():
    assert not guard.available()
    with Limit(0.001):
        assert sum(range(100_000)) == 4_999_950_000


def test_an_inner_limit_stops_the_clock_of_an_outer_one(monkeypatch):
    now, armed = [100.0], []
    monkeypatch.setattr(guard.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(guard, "_arm", armed.append)
    with Limit(20) as outer:
        now[0] += 5
        with Limit(2):
            assert armed[-1] == 2
            now[0] += 1
        assert armed[-1] == 15
        with Limit(None):
            assert armed[-1] == float("inf")
            now[0] += 1000
        assert armed[-1] == 15
        outer.extend(60)
        assert armed[-1] == 55
        assert Limit.current() is outer
    assert armed[-1] == float("inf")
    assert Limit.current() is None


def test_the_alarm_ends_code_only_when_the_time_is_over_and_outside_the_guard(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(guard.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(guard, "insist", lambda limit: None)
    frame = sys._getframe()
    guard._ring(2, frame)  # no limit
    with Limit(2):
        guard._ring(2, frame)  # too early
        now[0] = 3.0
        with pytest.raises(OutOfTime, match="Stopped after 2 s"):
            guard._ring(2, frame)


INSIST = """
import sys
from ledger.judge import guard
def swallows():
    turns = 0
    guard.insist(guard.Limit.current())
    while True:
        try:
            while True:
                turns += 1
        except BaseException:
            pass
for attempt in range(2):
    try:
        with guard.Limit(1):
            swallows()
    except guard.OutOfTime:
        print("ended")
turns = 0
while turns < 1000:
    turns += 1
print("goes on", sys.monitoring.get_tool(4))
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
def test_code_that_catches_everything_ends_all_the_same():
    done = subprocess.run([sys.executable, "-c", INSIST], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["ended", "ended", "goes on None"], done.stderr


def test_output_up_to_the_limit_is_handed_on_and_more_is_ended(capsys):
    def floods():
        print("a" * 600)
        print("é" * 10, file=sys.stderr)
        print("b" * 600)
        print("never")

    with output_limit(1000), pytest.raises(TooMuchOutput, match="more than 1,000 bytes"):
        floods()
    told = capsys.readouterr()
    assert len((told.out + told.err).encode()) == 1000
    assert told.err == "é" * 10 + "\n"
    assert "never" not in told.out
    print("after")
    assert capsys.readouterr().out == "after\n"


def test_output_that_is_kept_does_not_show(capsys):
    head = []
    with output_limit(1000, head):
        print("kept")
    assert "".join(head) == "kept\n"
    assert capsys.readouterr().out == ""


def test_a_check_that_floods_is_output(capsys):
    def floods(q_nope, w_k):
        while True:
            print("x" * 1000)

    with pytest.raises(CheckFailed, match="absorb_query: output, 0 of 9 cases pass"):
        check("absorb_query", floods)
    assert len(capsys.readouterr().out) <= 1 << 20


def test_a_flood_is_the_same_verdict_here_and_apart():
    job = Job("f", (Cell("answer", PRINTS),), (Call({"a": 1}), Call({"a": 2})))
    with Runner() as runner:
        apart = runner.run(job).outcomes
    here = Here().run(job)
    assert [(o.kind, o.stage, o.detail) for o in here.outcomes] == [(o.kind, o.stage, o.detail) for o in apart]
    assert here.outcomes[0].lines[-1].text == "print('x' * 1000)"
    assert here.output == ("x" * 1000 + "\n") * 4 + "x" * 92


@pytest.mark.parametrize("after", [0, 2])
def test_out_of_time_is_a_timeout_that_ends_the_exercise(after, monkeypatch):
    """With the alarm's exception in place of the alarm: the case that took too long, and those not run."""
    calls = []

    def answer(q_nope, w_k):
        calls.append(1)
        if len(calls) > after:
            raise OutOfTime("Stopped.")
        return q_nope @ w_k.T

    from ledger import exercises

    result = run_here(exercises.get("absorb_query"), answer, 5)
    assert result.verdict == "timeout"
    assert [case.verdict for case in result.cases] == ["passed"] * after + ["timeout"] * (9 - after)
    assert "(2 s)" in result.message
    assert "not run" in result.cases[-1].message
    assert len(calls) == after + 1


def test_a_spent_budget_while_cells_load_is_of_the_load():
    source = "from ledger.judge.guard import OutOfTime\nraise OutOfTime('Stopped.')\n"
    cells = (Cell("above", source), Cell("answer", "def f(a): return a\n"))
    run = Here().run(Job("f", cells, (Call({"a": 1}),)))
    assert (run.outcomes[0].kind, run.outcomes[0].stage, run.outcomes[0].detail) == (
        "timeout",
        "load",
        f"{Job.load_seconds:g} s",
    )


def test_here_gives_the_outcomes_of_the_jail():
    sources = {
        "returns": "def f(a):\n    return a + 1\n",
        "raises": "def f(a):\n    return a + missing\n",
        "no function": "g = 1\n",
        "does not parse": "def f(a:\n",
        "a stub": "def f(a):\n    raise NotImplementedError('f')\n",
        "leaves out the first": "def f(a):\n    if a == 1:\n        raise NotImplementedError('f')\n    return a\n",
        "uses the notebook's helpers": "from ledger import case, check, hint\ncheck('f', 1)\ndef f(a):\n    return 2\n",
    }
    with Runner() as runner:
        for name, source in sources.items():
            job = Job("f", (Cell("answer", source),), (Call({"a": 1}), Call({"a": 2})))
            here, apart = Here().run(job).outcomes, runner.run(job).outcomes
            for mine, theirs in zip(here, apart, strict=True):
                for fact in ("kind", "stage", "value", "error", "message", "lines"):
                    assert getattr(mine, fact) == getattr(theirs, fact), name
    from ledger import hint

    assert hint.__module__ == "ledger.judge.notebook"
