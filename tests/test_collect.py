"""Answers are found whatever an editor or a learner did to a notebook, and a broken file is one clear line."""

import json

import pytest

from ledger import exercises
from ledger.judge.collect import (
    Unreadable,
    chapter_number,
    collect,
    from_source,
    is_stub,
    notebooks_under,
    read_notebook,
)

ID = "absorb_query"


def cell(source, kind="code", id=None, grade_id=None, grade=False):
    metadata = {"nbgrader": {"grade_id": grade_id, "grade": grade}} if grade_id else {}
    return {"cell_type": kind, "source": source, "metadata": metadata, **({"id": id} if id else {})}


@pytest.fixture
def gather(tmp_path):
    """Write cells as ch01_keys/keys.ipynb and collect the answer to absorb_query."""

    def run(*cells, name="ch01_keys/keys.ipynb", raw=None):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(raw if raw is not None else json.dumps({"cells": list(cells), "nbformat": 4}).encode())
        return collect(exercises.get(ID), *notebooks_under(tmp_path))

    return run


def test_by_id_with_the_cells_above_but_no_checks(gather):
    found = gather(
        cell("# text", "markdown"),
        cell("import numpy as np", id="top"),
        cell("check('other', other)", grade_id="other_check", grade=True),
        cell("def absorb_query(q, w): return 1", grade_id=ID),
        cell("check('absorb_query', absorb_query)", grade_id=f"{ID}_check", grade=True),
        cell("late = 1"),
    )
    assert [c.source for c in found.cells] == ["import numpy as np", "def absorb_query(q, w): return 1"]
    assert found.where.endswith("ch01_keys/keys.ipynb, cell 4")
    assert found.notes == []


def test_by_the_functions_name_where_metadata_is_gone(gather):
    found = gather(cell("x = 1"), cell("def absorb_query(q, w):\n    return q"))
    assert found.cells[-1].source.startswith("def absorb_query")
    assert found.notes[0].endswith("keys.ipynb have lost their ids: answers were found by their functions' names")


def test_a_longer_name_is_another_function(gather):
    assert "no cell" in gather(cell("def absorb_query_old(q, w): return q")).problem


def test_of_two_cells_the_last_that_is_no_stub(gather):
    stub = 'def absorb_query(q, w):\n    raise NotImplementedError("absorb_query: write your answer here")'
    found = gather(cell("def absorb_query(q, w): return 1", id=ID), cell(stub, grade_id=ID))
    assert found.cells[-1].source == "def absorb_query(q, w): return 1"
    assert "cells 1, 2" in found.notes[0]
    assert "cell 1 was graded" in found.notes[0]


def test_a_copy_of_the_notebook_is_passed_over_and_named(gather):
    gather(cell("def absorb_query(q, w): return 'copy'", id=ID), name="ch01_keys/keys-Copy1.ipynb")
    found = gather(cell("def absorb_query(q, w): return 'own'", id=ID))
    assert "'own'" in found.cells[-1].source
    assert "keys-Copy1.ipynb" in found.notes[-1]


def test_another_chapters_notebook_is_second_choice(gather):
    gather(cell("def absorb_query(q, w): return 'elsewhere'", id=ID), name="ch00_start/a.ipynb")
    assert "'own'" in gather(cell("def absorb_query(q, w): return 'own'", id=ID)).cells[-1].source


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "is not a notebook"),
        (b"{", "is not a notebook"),
        (b"[]", "no list of cells"),
        (b'{"cells": 3}', "no list of cells"),
        (b'{"worksheets": []}', "old format"),
        (b"\x00\x01\x02", "is not a notebook"),
        (b'{"cells": ["d\xe9j\xe0"]}', "is not UTF-8"),
        (b"[" * 100_000, "is not a notebook"),
        (b'{"cells": [' + b"9" * 50_000 + b"]}", "a number in it has thousands of digits"),
    ],
)
def test_a_broken_notebook_is_one_line_and_its_exercises_are_errors(gather, tmp_path, raw, text):
    found = gather(raw=raw)
    assert found.broken
    assert text in found.problem
    assert "\n" not in found.problem
    with pytest.raises(Unreadable, match=r"keys\.ipynb"):
        read_notebook(tmp_path / "ch01_keys/keys.ipynb", "keys.ipynb")


def test_a_broken_notebook_elsewhere_harms_nothing(gather):
    gather(raw=b"{", name="ch02_heads/heads.ipynb")
    assert not gather(cell("def absorb_query(q, w): return 1", id=ID)).problem


@pytest.mark.parametrize("odd", [3, {"cell_type": "code"}, {"cell_type": "code", "source": 3}, None, "text"])
def test_odd_cells_are_passed_over(gather, odd):
    assert not gather(odd, cell("def absorb_query(q, w): return 1", id=ID)).problem


def test_byte_order_mark_and_dos_line_ends(gather):
    data = json.dumps({"cells": [cell(["def absorb_query(q, w):\r\n", "    return 1\r\n"], id=ID)]})
    found = gather(raw=b"\xef\xbb\xbf" + data.encode())
    assert found.cells[-1].source == "def absorb_query(q, w):\n    return 1\n"


def test_checkpoints_are_not_read(gather, tmp_path):
    hidden = tmp_path / ".ipynb_checkpoints"
    hidden.mkdir()
    (hidden / "keys-checkpoint.ipynb").write_text("{")
    assert notebooks_under(tmp_path) == ([], [])


@pytest.mark.parametrize(
    ("name", "number"),
    [("2", 2), ("ch02", 2), ("ch2", 2), ("ch02_heads", 2), ("12", 12), ("chapter", None), ("absorb_query", None)],
)
def test_chapter_numbers(name, number):
    assert chapter_number(name) == number


def test_a_python_file_may_name_its_encoding(tmp_path):
    path = tmp_path / "answer.py"
    path.write_bytes("# -*- coding: latin-1 -*-\ns = 'd\xe9j\xe0'\n".encode("latin-1"))
    assert "déjà" in from_source(path, exercises.get(ID)).cells[0].source
    path.write_bytes("s = 'd\xe9j\xe0'\n".encode("latin-1"))
    broken = from_source(path, exercises.get(ID))
    assert broken.broken
    assert "is not Python text" in broken.problem


@pytest.mark.parametrize(
    ("body", "stub"),
    [
        ("raise NotImplementedError('f: write your answer here')", True),
        ("'What it does.'\n    raise NotImplementedError", True),
        ("x = 1\n    for i in x:\n        raise NotImplementedError('f: write your answer here')\n    return x", True),
        ("x = 1\n    for i in x:\n        y = i\n        raise NotImplementedError\n    return x", False),
        ("if x:\n        raise NotImplementedError\n    return x", False),
        ("return x", False),
    ],
)
def test_a_stub_does_nothing_or_has_a_loop_that_does_nothing(body, stub):
    assert is_stub(f"def f(x):\n    {body}\n") is stub


@pytest.mark.parametrize(
    "line",
    ["-" * 99_000 + "1", "not " * 20_000 + "1", "1" + "+1" * 40_000, "f" + "()" * 40_000, "x = 'a\0b'", "'\ud800'"],
    ids=["minus", "not", "plus", "calls", "null", "surrogate"],
)
def test_text_that_python_cannot_parse_is_no_stub(line):
    """The parser gives some of these up with a MemoryError, which has nothing to do with memory."""
    assert not is_stub(f"def f(x):\n    raise NotImplementedError\n{line}\n")


def test_what_nobody_types_is_not_parsed_by_the_judge(monkeypatch):
    stub = "def f(x):\n    raise NotImplementedError\n"
    assert is_stub(stub)
    monkeypatch.setattr("ast.parse", lambda *arguments: pytest.fail("parsed"))
    assert not is_stub(stub + "# \n" * 50_000)
