"""``answers save`` and ``answers load``: nothing that a learner wrote is lost on the way."""

import json
import re
import shutil

import pytest
from test_cli import shipped

from ledger.build import fresh_practice
from ledger.build.notebook import digest
from ledger.judge.answers import KIND, bundle, fresh_books, read_books
from ledger.judge.cli import main

KEYS = "practice/ch01_keys/keys.ipynb"
ANSWER = "def absorb_query(q_nope, w_k):\n    # é: mine\n    return q_nope @ w_k.T\n"


@pytest.fixture
def course(tmp_path, root, monkeypatch):
    """A course with untouched practice notebooks, the working folder in it."""
    copy = tmp_path / "a course"
    copy.mkdir()
    (copy / "judge.py").touch()
    shutil.copytree(root / "course", copy / "course")
    for name, text in shipped(root).items():
        put(copy / name, json.loads(text))
    monkeypatch.chdir(copy)
    return copy


def put(path, notebook):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def edit(course, change, name=KEYS):
    """Change a notebook's cells in place."""
    notebook = json.loads((course / name).read_text())
    change(notebook["cells"])
    put(course / name, notebook)


def answer(course, source=ANSWER, id="absorb_query"):
    edit(course, lambda cells: cell_of(cells, id).update(source=source))


def cell_of(cells, id):
    return next(cell for cell in cells if cell["id"] == id)


def sources(course, name=KEYS):
    return ["".join(cell["source"]) for cell in json.loads((course / name).read_text())["cells"]]


def own(source, kind="code", id="0a1b2c3d"):
    code = {"outputs": [], "execution_count": None} if kind == "code" else {}
    return {"cell_type": kind, "id": id, "metadata": {}, "source": source, **code}


def afresh(course):
    """What ``make build`` gives a learner who moved the old notebooks away."""
    for name, notebook in fresh_practice(course).items():
        put(course / name, notebook)


def run(course, capsys, *arguments, status=0):
    """What the command prints, both streams."""
    assert main(["answers", *arguments], course) == status
    told = capsys.readouterr()
    return told.out + told.err


def test_answers_and_own_cells_come_back_where_they_were(course, capsys):
    answer(course)
    edit(course, lambda cells: cells.insert(2, own("helper = 1")))
    edit(course, lambda cells: cells.insert(3, own("My note: é", "markdown", "0a1b2c3e")))
    edit(course, lambda cells: cells.append(own("%judge", id="0a1b2c3f")))
    before = sources(course)
    assert "absorb_query; 3 own cells" in run(course, capsys, "save", "mine.json")
    held = json.loads((course / "mine.json").read_text())
    assert (held["kind"], held["schema"], held["course"]) == (KIND, 1, "0.1.0")
    assert held["answers"] == {"absorb_query": {"source": ANSWER, "notebook": "ch01_keys/keys.ipynb"}}
    afresh(course)
    told = run(course, capsys, "load", "mine.json")
    assert "put back: absorb_query, 3 own cells of ch01_keys/keys.ipynb" in told
    assert sources(course) == before
    assert len(list((course / ".ledger" / "backups").iterdir())) == 1
    again = run(course, capsys, "load", "mine.json")
    assert "there already: absorb_query, 3 own cells" in again
    assert "backups" not in again
    assert "Reload" not in again
    assert sources(course) == before


def test_another_answer_is_backed_up_and_then_replaced(course, capsys):
    answer(course)
    run(course, capsys, "save", "mine.json")
    answer(course, "def absorb_query(q_nope, w_k):\n    return 'another'\n")
    told = run(course, capsys, "load", "mine.json")
    assert "put in place of another answer: absorb_query" in told
    assert "File > Reload Notebook from Disk" in told
    (kept,) = (course / ".ledger" / "backups").iterdir()
    assert kept.name in told
    assert "return 'another'" in kept.read_text()
    assert ANSWER in sources(course)


def test_a_newer_course_keeps_its_text_and_gets_the_answers(course, capsys):
    answer(course)
    run(course, capsys, "save", "mine.json")
    master = course / "course" / "practice" / "ch01_keys" / "keys.py"
    text = master.read_text().replace("## absorb_query", "## absorb_query\n#\n# A NEWER STATEMENT")
    master.write_text(text.replace('"""Queries of one head', '"""Newer queries of one head'))
    afresh(course)
    run(course, capsys, "load", "mine.json")
    assert any("A NEWER STATEMENT" in source for source in sources(course))
    assert ANSWER in sources(course)
    answer(course, "# nothing")
    put(course / KEYS, fresh_practice(course)[KEYS])
    assert bundle(*both(course))["answers"] == {}, "a newer stub is no answer"


def both(course):
    return read_books(course / "practice")[0], fresh_books(course)


def test_an_older_stub_is_no_answer(course, root):
    """The stub of another version is told by nbgrader's checksum, though no fresh notebook has its text."""
    master = course / "course" / "practice" / "ch01_keys" / "keys.py"
    master.write_text(master.read_text().replace('"""Queries of one head', '"""# Newer queries of one head'))
    held = bundle(*both(course))
    assert held["answers"] == {}
    assert held["notebooks"] == {}


def test_half_an_answer_is_kept(course):
    half = "def absorb_query(q_nope, w_k):\n    folded = q_nope  # idea\n    raise NotImplementedError\n"
    answer(course, half)
    assert bundle(*both(course))["answers"]["absorb_query"]["source"] == half


def test_copies_lost_ids_and_lost_cells(course, capsys):
    """The written copy is the answer, the other is kept; an answer without its id is found by its function's name."""
    answer(course)
    edit(course, lambda cells: cells.insert(1, {**cell_of(cells, "absorb_query"), "id": "copy", "source": "x = 1"}))
    named = "def up_project_keys(latents, w_k):\n    return latents @ w_k\n"
    edit(course, lambda cells: cell_of(cells, "up_project_keys").update(id="gone", metadata={}, source=named))
    run(course, capsys, "save", "mine.json")
    held = json.loads((course / "mine.json").read_text())
    assert held["answers"]["absorb_query"]["source"] == ANSWER
    assert held["answers"]["up_project_keys"]["source"] == named
    assert [cell["source"] for cell in held["notebooks"]["ch01_keys/keys.ipynb"]["cells"]] == ["x = 1"]
    afresh(course)
    edit(course, lambda cells: cells.remove(cell_of(cells, "absorb_query")))
    run(course, capsys, "load", "mine.json")
    after = sources(course)
    assert {ANSWER, named, "x = 1"} <= set(after)
    check = next(i for i, source in enumerate(after) if source.startswith('check("absorb_query"'))
    assert after[check - 1] == ANSWER


def test_a_missing_notebook_is_made_again_and_a_learners_own_one_too(course, capsys):
    answer(course)
    skeleton = {"cells": [own("mine = 1")], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    put(course / "practice" / "mine" / "scratch.ipynb", skeleton)
    run(course, capsys, "save", "mine.json")
    shutil.rmtree(course / "practice")
    run(course, capsys, "load", "mine.json")
    assert ANSWER in sources(course)
    assert sources(course, "practice/mine/scratch.ipynb") == ["mine = 1"]


def test_what_has_no_place_is_kept_beside(course, capsys):
    answer(course)
    run(course, capsys, "save", "mine.json")
    held = json.loads((course / "mine.json").read_text())
    held["answers"]["of_a_later_course"] = {"source": "later = 1", "notebook": "ch99/later.ipynb"}
    (course / "mine.json").write_text(json.dumps(held))
    told = run(course, capsys, "load", "mine.json", status=1)
    assert "no place here, kept in mine.left.json: of_a_later_course" in told
    left = json.loads((course / "mine.left.json").read_text())
    assert left["answers"] == {"of_a_later_course": {"source": "later = 1", "notebook": "ch99/later.ipynb"}}
    assert "there already: absorb_query" in told


def test_what_an_earlier_bundle_left_is_kept(course, capsys):
    (course / "mine.json").write_text(json.dumps(GOOD | {"answers": {"of_a_later_course": {"source": "later = 1"}}}))
    (course / "mine.left.json").write_text("what an earlier one left")
    run(course, capsys, "load", "mine.json", status=1)
    kept = [path.read_text() for path in (course / ".ledger" / "backups").iterdir()]
    assert "what an earlier one left" in kept


def odd_cells():
    """Cells that an editor or another tool can leave, each with a text of the learner's."""
    graded = {"nbgrader": {"grade_id": "cell-0a1b2c3d", "solution": True, "grade": False}}
    return [
        own("of a kind that is a list") | {"cell_type": ["code"]},
        own("of an old kind") | {"cell_type": "heading"},
        own("with attachments in a list", "markdown") | {"attachments": ["a.png"]},
        own("of another assignment", id="cell-0a1b2c3d") | {"metadata": graded},
    ]


@pytest.mark.parametrize("odd", odd_cells(), ids=lambda cell: cell["source"])
def test_an_odd_cell_is_saved_so_that_it_can_be_loaded(course, capsys, odd):
    answer(course)
    edit(course, lambda cells: cells.insert(2, odd))
    run(course, capsys, "save", "mine.json")
    assert "there already" in run(course, capsys, "load", "mine.json")
    assert sources(course).count(odd["source"]) == 1
    afresh(course)
    run(course, capsys, "load", "mine.json")
    assert odd["source"] in sources(course)
    assert ANSWER in sources(course)


@pytest.mark.parametrize("version", [None, "4", [4]], ids=repr)
def test_a_notebook_of_no_version_takes_cells(course, capsys, version):
    edit(course, lambda cells: cells.append(own("mine = 1")))
    run(course, capsys, "save", "mine.json")
    afresh(course)
    notebook = json.loads((course / KEYS).read_text())
    put(course / KEYS, notebook | {"nbformat": version, "nbformat_minor": version})
    run(course, capsys, "load", "mine.json")
    assert "mine = 1" in sources(course)


def test_a_name_with_a_colon_comes_back(course, capsys):
    skeleton = {"cells": [own("mine = 1")], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    put(course / "practice" / "12:30.ipynb", skeleton)
    run(course, capsys, "save", "mine.json")
    (course / "practice" / "12:30.ipynb").unlink()
    run(course, capsys, "load", "mine.json")
    assert sources(course, "practice/12:30.ipynb") == ["mine = 1"]


def test_a_folder_that_cannot_be_made_is_one_line(course, capsys):
    cells = [{"cell_type": "code", "source": "x"}]
    (course / "bad.json").write_text(json.dumps(GOOD | {"notebooks": {f"{KEYS[9:]}/x.ipynb": {"cells": cells}}}))
    told = run(course, capsys, "load", "bad.json", status=3)
    assert "could not be made" in told
    assert len(told.splitlines()) == 1


def test_an_edited_cell_of_the_course_comes_back_to_its_own_version_alone(course, capsys):
    edit(course, lambda cells: cell_of(cells, "absorb_query-statement").update(source="my summary"))
    run(course, capsys, "save", "mine.json")
    afresh(course)
    run(course, capsys, "load", "mine.json")
    assert "my summary" in sources(course)
    notebook = fresh_practice(course)[KEYS]
    cell_of(notebook["cells"], "absorb_query-statement")["source"] = "another version's"
    notebook["metadata"]["ledger"]["cells"] = digest(notebook)
    put(course / KEYS, notebook)
    run(course, capsys, "load", "mine.json", status=1)
    assert "another version's" in sources(course)
    assert "my summary" in (course / "mine.left.json").read_text()


def test_nothing_to_save_and_names_that_are_taken(course, capsys):
    assert "there is nothing to save" in run(course, capsys, "save", "mine.json", status=2)
    assert not (course / "mine.json").exists()
    answer(course)
    assert "is no bundle of answers: choose another name" in run(course, capsys, "save", KEYS, status=2)
    assert "a file in a folder that exists" in run(course, capsys, "save", "nowhere/mine.json", status=2)
    run(course, capsys, "save", "mine.json")
    answer(course, ANSWER + "# more\n")
    told = run(course, capsys, "save", "mine.json")
    older = re.search(r"the older bundle of this name: (\S+)", told)[1]
    assert "# more" not in (course / older).read_text()


def test_a_notebook_that_cannot_be_read_is_said_and_never_written_over(course, capsys):
    answer(course)
    broken = course / "practice" / "ch02_heads" / "heads.ipynb"
    broken.write_text("{")
    assert "not saved, for it cannot be read" in run(course, capsys, "save", "mine.json")
    held = json.loads((course / "mine.json").read_text())
    held["answers"]["split_kv_b"] = {"source": "x = 1", "notebook": "ch02_heads/heads.ipynb"}
    (course / "mine.json").write_text(json.dumps(held))
    assert "heads.ipynb" in run(course, capsys, "load", "mine.json", status=2)
    assert broken.read_text() == "{"


def test_a_notebook_that_cannot_be_read_may_hold_the_only_answers(course, capsys):
    (course / KEYS).write_text("{")
    told = run(course, capsys, "save", "mine.json", status=2)
    assert "nothing was saved: practice/ch01_keys/keys.ipynb is not a readable notebook, and may hold answers" in told
    assert len(told.splitlines()) == 1
    assert not (course / "mine.json").exists()


GOOD = {"kind": KIND, "schema": 1, "course": "0.1.0", "answers": {}, "notebooks": {}}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff\xfe", "is not UTF-8"),
        (b"{", "is not a bundle of answers"),
        (b"[]", "is not a bundle of answers"),
        (b'{"nbformat": 4}', "but a notebook"),
        (b"[" * 100_000, "is not a bundle of answers"),
        (GOOD | {"schema": 2}, "update the course"),
        (GOOD | {"answers": []}, "damaged"),
        (GOOD | {"answers": {"absorb_query": "text"}}, "the answer 'absorb_query' has no source"),
        (GOOD | {"answers": {"a-b": {"source": ""}}}, "damaged"),
        (GOOD | {"notebooks": {"../../evil.ipynb": {"cells": []}}}, "no notebook below practice/"),
        (GOOD | {"notebooks": {"/etc/evil.ipynb": {"cells": []}}}, "no notebook below practice/"),
        (GOOD | {"notebooks": {"a/.git/x.ipynb": {"cells": []}}}, "no notebook below practice/"),
        (GOOD | {"notebooks": {"a.sh": {"cells": []}}}, "no notebook below practice/"),
        (GOOD | {"notebooks": {"a\0.ipynb": {"cells": []}}}, "no notebook below practice/"),
        (GOOD | {"notebooks": {"\ud800.ipynb": {"cells": []}}}, "no notebook below practice/"),
        (GOOD | {"notebooks": {"x" * 300 + ".ipynb": {"cells": []}}}, "no notebook below practice/"),
        (GOOD | {"notebooks": {"a/" * 3000 + "x.ipynb": {"cells": []}}}, "no notebook below practice/"),
        (GOOD | {"notebooks": {"ch01_keys/./keys.ipynb": {"cells": []}}}, "no notebook below practice/"),
        (GOOD | {"notebooks": {"ch01_keys//keys.ipynb": {"cells": []}}}, "no notebook below practice/"),
        (GOOD | {"notebooks": {"a.ipynb": {"cells": [{"cell_type": "code"}]}}}, "the cells of 'a.ipynb'"),
        (GOOD | {"notebooks": {"a.ipynb": {"cells": [{"cell_type": "evil", "source": ""}]}}}, "the cells of 'a.ipynb'"),
    ],
)
def test_a_bad_bundle_is_one_clear_line(course, capsys, data, says):
    (course / "bad.json").write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    before = {path: path.read_bytes() for path in (course / "practice").rglob("*.ipynb")}
    told = run(course, capsys, "load", "bad.json", status=2)
    assert says in told
    assert len(told.splitlines()) == 1
    assert {path: path.read_bytes() for path in (course / "practice").rglob("*.ipynb")} == before


def test_a_bundle_that_is_not_there(course, capsys):
    assert "nothing.json cannot be read: No such file" in run(course, capsys, "load", "nothing.json", status=2)
    assert "invalid choice" in run(course, capsys, "keep", "x.json", status=2)
