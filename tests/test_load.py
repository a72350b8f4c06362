"""Executing the cells of an answer."""

import linecache

import pytest

from ledger.judge.load import load
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


def test_a_failing_cell_above_is_noted_and_passed_over():
    loaded = load(cells("a = 1\n1 / 0\nb = 2", "def f():\n    return a"), "f")
    assert loaded.function() == 1
    assert loaded.notes == ["nb.ipynb, cell 1, line 2, above the answer, raised ZeroDivisionError: division by zero"]


def test_what_failed_above_is_said_where_the_answer_then_fails():
    loaded = load(cells("import nowhere_at_all\nhelper = 1", "helper\ndef f(): ..."), "f")
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
