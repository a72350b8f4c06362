"""``check``, ``case`` and ``hint`` in the learner's own process give what the command line gives."""

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from need import need

from ledger import case, check, exercises, hint
from ledger.exercises import Case, Exercise, Mistake, Raises
from ledger.judge import notebook
from ledger.judge.cli import main
from ledger.judge.collect import Submission
from ledger.judge.gate import submission_of
from ledger.judge.grade import calls_of, explain, grade
from ledger.judge.notebook import CheckFailed, run_here
from ledger.judge.outcome import Cell, Outcome
from ledger.judge.progress import Progress
from ledger.judge.run import Runner
from ledger.judge.session import grade_one

ALL = list(exercises.registry().values())


@pytest.fixture(scope="module")
def runner():
    with Runner() as runner:
        yield runner


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.id)
def test_the_same_verdict_case_and_mistake_as_the_command_line(exercise, runner):
    need(exercise)
    for mutant in exercise.mutants[:: max(1, len(exercise.mutants) // 2)]:  # the gate runs all of them apart
        apart = grade_one(submission_of(exercise, mutant), runner, 11)
        here = run_here(exercise, mutant.answer, 11)
        assert (here.verdict, here.message) == (apart.verdict, apart.message)
        assert here.verdict != "passed"
        assert here.points == apart.points
        assert [(c.name, c.verdict, c.message) for c in here.cases] == [
            (c.name, c.verdict, c.message) for c in apart.cases
        ]
        assert rows_of(here) == rows_of(apart)


def rows_of(result):
    """What a failure shows, but for the lines of the answer, which have other files, and for how far a count came in
    the time that it had."""
    rows = [row for row in result.failure.rows if row[0] != "your line"]
    return [(label, "" if label == "counted" else text) for label, text in rows]


def test_a_pass_prints_one_result_and_returns_nothing(capsys):
    assert check("absorb_query", lambda q_nope, w_k: q_nope @ w_k.T) is None
    assert "✓ absorb_query: 9 of 9 cases, 2/2 points" in capsys.readouterr().out


def test_a_failure_raises_with_the_judges_message():
    with pytest.raises(CheckFailed, match="the result is None: is a return statement missing"):
        check("absorb_query", lambda q_nope, w_k: None)


def test_the_stub_is_todo():
    def stub(q_nope, w_k):
        raise NotImplementedError("absorb_query: write your answer here")

    with pytest.raises(CheckFailed, match="not written yet"):
        check("absorb_query", stub)


#: A cell with a stub, and answers that meet it or raise its error themselves: the verdicts of the nine cases, what the
#: first that does not pass says, and the hint that comes next.
STUB = 'def up_project_keys(latents, w_k):\n    raise NotImplementedError("up_project_keys: write your answer here")\n'
CALLS = "it calls up_project_keys, which is not written yet: begin there"
UNFINISHED = {
    "calls a stub": ("return up_project_keys(q_nope, w_k.T)", ["error"] * 9, CALLS, 'hint("up_project_keys")'),
    "calls a stub in one case": (
        "return up_project_keys(q_nope, w_k.T) if len(q_nope) == 7 else q_nope @ w_k.T",
        ["passed"] * 2 + ["error"] + ["passed"] * 6,
        CALLS,
        'hint("up_project_keys")',
    ),
    "leaves out the first": (
        "if len(q_nope) == 3:\n        raise NotImplementedError\n    return q_nope @ w_k.T",
        ["error"] + ["passed"] * 8,
        "NotImplementedError was raised in this case only: which inputs does your function still leave out?",
        'hint("absorb_query")',
    ),
    "leaves out two": (
        "if len(q_nope) == 1:\n        raise NotImplementedError('rows')\n    return q_nope @ w_k.T",
        ["passed", "error", "passed", "error"] + ["passed"] * 5,
        "NotImplementedError was raised in 2 cases: which inputs does your function still leave out?",
        'hint("absorb_query")',
    ),
    "begun": (
        "raise NotImplementedError('absorb_query: later')",
        ["todo"] * 9,
        "not written yet: the line that raises NotImplementedError is still there",
        None,
    ),
}


@pytest.mark.parametrize("name", UNFINISHED)
def test_an_answer_that_meets_a_stub(name, runner):
    """The same here and apart, whichever case it is."""
    body, verdicts, says, next_step = UNFINISHED[name]
    exercise, source = exercises.get("absorb_query"), f"def absorb_query(q_nope, w_k):\n    {body}\n"
    space = {}
    exec(STUB + source, space)
    here = run_here(exercise, space["absorb_query"], 11)
    apart = grade_one(Submission(exercise, (Cell("above", STUB), Cell("answer", source))), runner, 11)
    for result in (here, apart):
        assert [case.verdict for case in result.cases] == verdicts
        assert result.message == says
        assert result.points == pytest.approx(2 * verdicts.count("passed") / 9, abs=1e-3)
        assert dict(explain(result, in_notebook=True)).get("next") == next_step


def test_changed_and_shared_inputs_are_wrong():
    def overwrites(q_nope, w_k):
        out = q_nope @ w_k.T
        if q_nope.flags.writeable:
            q_nope[...] = 0
        return out

    with pytest.raises(CheckFailed, match="changed q_nope in place"):
        check("absorb_query", overwrites)
    with pytest.raises(CheckFailed, match="shares memory with latents"):
        check(
            "up_project_keys",
            lambda latents, w_k: latents @ w_k if latents.shape[1] != 3 else latents[:, : w_k.shape[1]],
        )


def test_right_once_is_not_enough():
    calls = []

    def right_once(q_nope, w_k):
        calls.append(1)
        return q_nope @ w_k.T * (len(calls) == 1)

    with pytest.raises(CheckFailed, match="2 of 9 cases pass"):
        check("absorb_query", right_once)


@pytest.mark.parametrize(("id", "answer", "error"), [("absorb_query", None, TypeError), ("nothing", print, ValueError)])
def test_bad_calls_say_what_to_do(id, answer, error):
    with pytest.raises(error, match="absorb_query"):
        check(id, answer)


def test_a_case_gives_the_judges_inputs():
    first, again, other = (case("absorb_query", "odd sizes", seed) for seed in (5, 5, 6))
    assert first._fields == ("q_nope", "w_k")
    assert np.array_equal(first.q_nope, again.q_nope)
    assert not np.array_equal(first.q_nope, other.q_nope)
    with pytest.raises(ValueError, match="has no case 'off sizes'; its cases are: "):
        case("absorb_query", "off sizes", 5)


def test_the_seed_makes_fresh_values_of_the_same_sizes():
    exercise = exercises.get("absorb_query")
    shapes = [[a.shape for a in exercise.inputs(c, s).values()] for s in (1, 2) for c in exercise.cases]
    half = len(exercise.cases)
    assert shapes[:half] == shapes[half:]


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A folder that is a course to the judge, the working folder in it; this kernel has shown no hint."""
    (tmp_path / "judge.py").touch()
    (tmp_path / "practice" / "ch01_keys").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "practice" / "ch01_keys")
    monkeypatch.setattr(notebook, "_hints_shown", {})
    return tmp_path


def test_hints_one_by_one(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(notebook, "_hints_shown", {})
    shown = []
    for _ in range(4):
        hint("absorb_query")
        shown.append(capsys.readouterr().out[:11])
    assert shown == ["Hint 1 of 3", "Hint 2 of 3", "Hint 3 of 3", "Hint 3 of 3"]
    hint("absorb_query", 1)
    assert capsys.readouterr().out.startswith("Hint 1 of 3")
    with pytest.raises(ValueError, match="hints 1 to 3"):
        hint("absorb_query", 4)


def test_a_hint_is_remembered_where_the_command_line_does(course, capsys, monkeypatch):
    """A kernel that starts anew, and judge.py, go on where the last one was."""
    assert main(["hint", "absorb_query"], course) == 0
    hint("absorb_query")
    monkeypatch.setattr(notebook, "_hints_shown", {})
    hint("absorb_query")
    assert [line[:11] for line in capsys.readouterr().out.splitlines() if line.startswith("Hint ")] == [
        "Hint 2 of 3",
        "Hint 3 of 3",
    ]
    assert Progress(course).hints_seen("absorb_query") == 3


def test_hints_that_cannot_be_remembered_say_so_and_go_on(course, capsys):
    (course / ".ledger").write_text("a file where the folder should be")
    for level in (1, 2):
        hint("absorb_query")
        shown = capsys.readouterr()
        assert shown.out.startswith(f"Hint {level} of 3")
        assert len(shown.err.splitlines()) == 1
        assert "this hint is not remembered" in shown.err


CELLS = """
from ledger import check
def right(q, w): return q @ w.T
def wrong(q, w): return None
def partly(q, w): return q @ w.T if q.dtype == "float64" else (q @ w.T).astype("float64")
""".strip()


def run_cells(tmp_path, monkeypatch, execution):
    """The outputs of three checks in a real kernel, as nbgrader would read them."""
    if execution:
        monkeypatch.setenv("NBGRADER_EXECUTION", execution)
    calls = [f'check("absorb_query", {name})' for name in ("right", "wrong", "partly")]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in (CELLS, *calls)])
    NotebookClient(book, allow_errors=True, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    return [cell.outputs for cell in book.cells[1:]]


def test_in_a_notebook_a_failure_is_shown_and_not_raised(tmp_path, monkeypatch):
    for outputs in run_cells(tmp_path, monkeypatch, None):
        assert [o.output_type for o in outputs] == ["display_data"]
        assert "absorb_query" in outputs[0].data["text/plain"]
        assert "<pre" in outputs[0].data["text/html"]


def test_nbgrader_gets_a_number_or_an_error_for_every_check(tmp_path, monkeypatch):
    right, wrong, partly = run_cells(tmp_path, monkeypatch, "autograde")
    results = [o.data["text/plain"] for o in right if o.output_type == "execute_result"]
    assert results == ["2.0"]
    assert any(o.output_type == "error" for o in wrong)
    (part,) = [float(o.data["text/plain"]) for o in partly if o.output_type == "execute_result"]
    assert part == pytest.approx(2 * 7 / 9, abs=1e-3)


def test_nbgraders_validation_sees_each_failure(tmp_path, monkeypatch):
    right, wrong, partly = run_cells(tmp_path, monkeypatch, "validate")
    assert [any(o.output_type == "error" for o in outputs) for outputs in (right, wrong, partly)] == [False, True, True]


def made(**parts):
    """An exercise of this test's own: double a number; 13 is to be refused."""
    fields = dict(id="double", chapter=1, order=1, title="", checks="", points=2, difficulty=1, minutes=1)
    cases = (
        Case("two", make=lambda rng, dtype: {"x": 2.0}),
        Case("zero", make=lambda rng, dtype: {"x": 0.0}),
        Case("one", make=lambda rng, dtype: {"x": 1.0}),
        Case("unlucky", make=lambda rng, dtype: {"x": 13.0}, raises=Raises("ValueError", ("thirteen",))),
    )
    oracle = parts.pop("oracle", lambda x: 2 * x)
    return Exercise(**fields, make=None, oracle=oracle, cases=cases, hints=(), mutants=(), **parts)


@pytest.mark.parametrize(
    ("reply", "verdict", "message"),
    [
        (ValueError("not thirteen"), "passed", ""),
        (ValueError("no"), "wrong", "the ValueError does not name thirteen: its message must hold this word"),
        (KeyError("thirteen"), "wrong", "it raised KeyError; these inputs want a ValueError"),
        (26.0, "wrong", "it returned a value; these inputs want a ValueError"),
    ],
)
def test_inputs_that_are_to_be_refused(reply, verdict, message):
    def double(x):
        if x == 13 and isinstance(reply, Exception):
            raise reply
        return 2 * x

    result = run_here(made(), double, 1)
    assert (result.cases[3].verdict, result.points) == (verdict, 2 if verdict == "passed" else 1.5)
    assert message in result.cases[3].message


@pytest.mark.parametrize("error", ["", "NotImplementedError"])
def test_a_value_where_inputs_are_to_be_refused_is_wrong_whatever_error_is_said_beside_it(error):
    exercise = made(oracle=lambda x: 2 * x if x != 13 else 1 / 0)
    result = grade(exercise, 1, calls_of(exercise, 1), [Outcome("returned", value=26.0, error=error)] * 4, 0.0)
    assert result.cases[3].verdict == "wrong"
    assert "it returned a value; these inputs want a ValueError" in result.cases[3].message


def test_a_known_mistake_must_fit_the_cases_that_passed_too():
    """Squaring is right at 2 and 0 and wrong at 1; an answer that is wrong at 0 as well made another mistake."""
    squared = Mistake("squared", "the number is squared", lambda x: x**2)
    answers = (lambda x: x**2 if x != 13 else unlucky(), lambda x: [1.0, x**2][x > 0] if x != 13 else unlucky())

    def unlucky():
        raise ValueError("thirteen")

    first, second = (run_here(made(mistakes=(squared,)), answer, 1) for answer in answers)
    assert first.message == "squared: the number is squared"
    assert "squared" not in second.message
    always = Mistake("always 1", "1, whatever comes in", lambda x: 1.0)
    third = run_here(made(mistakes=(always,)), answers[0], 1)
    assert "always 1" not in third.message


def test_an_answer_that_counts_slowly_keeps_what_it_had_counted():
    """One key at a time spends too much however soon counting is given up."""
    exercise = exercises.get("attend_absorbed")
    [mutant] = [m for m in exercise.mutants if m.answer.__name__ == "one_key_at_a_time"]

    def again_and_again(*args):
        """Counted, this takes a quarter of a minute; the judge gives it some seconds."""
        for _ in range(20):
            context = mutant.answer(*args)
        return context

    assert "too many multiply-adds" in run_here(exercise, again_and_again, 5).message
