"""Executing the cells of an answer."""

import asyncio
import linecache
import math

import pytest

import ledger
from ledger.judge.here import patch_dict
from ledger.judge.load import QUIET, load
from ledger.judge.outcome import Cell, Line


def cells(*sources: str) -> tuple[Cell, ...]:
    return tuple(Cell(f"nb.ipynb, cell {number}", source) for number, source in enumerate(sources, 1))


def test_cells_share_one_namespace():
    loaded = load(cells("two = 2", "def double(x):\n    return two * x"), "double")
    assert loaded.function(4) == 8
    assert (loaded.outcome, loaded.notes) == (None, [])


def test_the_name_of_the_namespace_is_main():
    assert load(cells("def f():\n    return __name__"), "f").function() == "__main__"


def test_tracebacks_find_the_text_of_a_cell():
    load(cells("x = 1\ny = 2"), "x")
    assert linecache.getline("nb.ipynb, cell 1", 2) == "y = 2"


def test_a_failing_statement_above_is_noted_and_the_next_ones_run():
    loaded = load(cells("a = 1\n1 / 0\nb = 2", "def f():\n    return a + b"), "f")
    assert loaded.function() == 3
    assert loaded.notes == ["nb.ipynb, cell 1, line 2, above the answer, raised ZeroDivisionError: division by zero"]


@pytest.mark.parametrize("end", ["raise SystemExit", "raise KeyboardInterrupt"])
def test_a_cell_above_that_ends_itself_has_ended(end):
    assert load(cells(f"f = len\n{end}\nf = abs", ""), "f").function is len


def test_the_answers_cell_ends_at_its_first_exception():
    loaded = load(cells("def f(): ...\n1 / 0\nf = 3"), "f")
    assert loaded.outcome.error == "ZeroDivisionError"
    assert loaded.outcome.lines == (Line("nb.ipynb, cell 1", 2, "1 / 0"),)


def test_a_cell_that_does_not_compile_runs_not_at_all():
    loaded = load(cells("f = len\nreturn f", "f = f"), "f")
    assert loaded.outcome.error == "NameError"
    assert "SyntaxError: 'return' outside function" in loaded.outcome.detail


def test_a_line_of_the_course_that_is_not_there_loses_no_other_line():
    loaded = load(cells("from ledger.nowhere import x\nimport math", "def f():\n    return math.pi"), "f")
    assert loaded.function() == math.pi


@pytest.mark.parametrize("above", ["def f():\n    return 5\n", ""])
@pytest.mark.parametrize(
    "use",
    ["q, w = case('f')", "q = case('f').q\nprint(2 @ q, len(q))", "with open('/dev/null') as q:\n    q = case('f')[0]"],
)
def test_statements_on_inputs_that_are_not_there_are_passed_over(above, use):
    source = f"from ledger import case\n{above}{use}\nr = q * 2\nnumpy.asarray(r).sum()\nfor n in r: pass\n"
    source = "import numpy\n" + source + "def f(x=0):\n    return 5\n"
    with patch_dict(vars(ledger), QUIET):
        loaded = load(cells(source), "f")
    assert loaded.function() == 5
    assert len(loaded.notes) == 1
    assert "passed over: case() has no inputs" in loaded.notes[0]


def test_an_answer_made_of_inputs_that_are_not_there_is_missing():
    with patch_dict(vars(ledger), QUIET):
        loaded = load(cells("from ledger import case\nf = case('f').q"), "f")
    assert loaded.outcome.kind == "missing"


def test_what_a_running_notebook_has_is_harmless():
    source = (
        "get_ipython().run_line_magic('matplotlib', 'inline')\nip = get_ipython()\nip.events.register('x', len)\n"
        "ip.config.InlineBackend.rc = {}\ndisplay(ip)\ndef f():\n    return 5\n"
    )
    loaded = load(cells(source), "f")
    assert (loaded.function(), loaded.notes) == (5, [])


@pytest.mark.parametrize("inside", [False, True])
def test_top_level_await_runs_to_its_end(inside):
    source = (
        "import asyncio\nasync def double(x):\n    await asyncio.sleep(0.01)\n    return 2 * x\n"
        "five = await double(2) + 1\nboth = await asyncio.gather(double(1), double(2))\n"
        "def f():\n    return five, both\n"
    )

    async def run_inside():
        return load(cells(source), "f")

    loaded = asyncio.run(run_inside()) if inside else load(cells(source), "f")
    assert loaded.function() == (5, [2, 4])
    failed = load(cells("async def g():\n    1 / 0\nawait g()"), "f").outcome
    assert [(line.number, line.text) for line in failed.lines] == [(3, "await g()"), (2, "1 / 0")]


def test_annotations_may_be_postponed_for_the_cells_below():
    loaded = load(cells("from __future__ import annotations", "def f(x: Nowhere) -> Nowhere:\n    return 5"), "f")
    assert loaded.function(0) == 5


def test_each_cell_is_announced():
    entered = []
    load(cells("1 / 0", "", "f = len"), "f", entering=entered.append)
    assert entered == [0, 1, 2]


def test_what_failed_above_is_said_where_the_answer_then_fails():
    loaded = load(cells("import nowhere_at_all\nhelper = nowhere_at_all.x", "helper\ndef f(): ..."), "f")
    assert (loaded.outcome.kind, loaded.outcome.error, loaded.outcome.stage) == ("raised", "NameError", "load")
    assert "ModuleNotFoundError" in loaded.outcome.detail


@pytest.mark.parametrize("name", ["SystemExit", "KeyboardInterrupt", "NotImplementedError", "MemoryError"])
def test_whatever_the_answers_cell_raises_is_its_outcome(name):
    loaded = load(cells(f"def f(): ...\nraise {name}('why')"), "f")
    assert loaded.function is None
    assert (loaded.outcome.error, loaded.outcome.message) == (name, "why")
    assert loaded.outcome.kind == ("memory" if name == "MemoryError" else "raised")
    assert loaded.outcome.lines == (Line("nb.ipynb, cell 1", 2, f"raise {name}('why')"),)


def test_a_syntax_error_names_its_line():
    loaded = load(cells("x = 1\ndef f(x:\n    return x"), "f")
    assert loaded.outcome.error == "SyntaxError"
    assert loaded.outcome.lines[0].number == 2


def test_lines_are_those_of_the_cells_alone():
    loaded = load(cells("import json\njson.loads('{')"), "f")
    assert [line.text for line in loaded.outcome.lines] == ["json.loads('{')"]


@pytest.mark.parametrize("source", ["", "def g(): ...", "f = 3", "def f(): ...\ndel f"])
def test_no_function_of_the_name_is_missing(source):
    assert load(cells(source), "f").outcome.kind == "missing"


@pytest.mark.parametrize(
    "magic", ["%matplotlib inline", "!rm -rf /", "%pip install 'x", "!echo (", "files = !ls", "f?", "??f", "%time f()"]
)
@pytest.mark.parametrize("indent", ["", "    "])
def test_magics_are_left_out_and_noted(magic, indent):
    source = f"if True:\n{indent or '    pass # '}{magic}\ndef f():\n    return 5"
    source = source if indent else f"{magic}\ndef f():\n    return 5"
    loaded = load(cells(source), "f")
    assert loaded.function() == 5
    assert loaded.notes == [f"nb.ipynb, cell 1, line {2 if indent else 1} was not run: {magic}"]


def test_lines_of_python_that_look_like_magics_stay():
    loaded = load(cells('%time 1\ndef f():\n    return (7\n    % 4), """\n%not a magic?\n!nor this\n"""'), "f")
    assert loaded.function() == (3, "\n%not a magic?\n!nor this\n")


def test_a_cell_of_another_language_is_not_run():
    loaded = load(cells("%%bash\nrm -rf /", "%%time\ndef f():\n    return 5"), "f")
    assert loaded.function() == 5
    assert loaded.notes[0] == "nb.ipynb, cell 1 was not run: %%bash"


def test_text_that_is_no_text_is_an_error_of_the_answer():
    assert load(cells("x = '\udcff'"), "f").outcome.error == "UnicodeEncodeError"
    assert load(cells("x = 1\0"), "f").outcome.kind == "raised"
