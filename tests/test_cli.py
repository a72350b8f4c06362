"""The command line: what it prints, what it returns, and one clear line for every bad call."""

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from ledger import exercises
from ledger.build import fresh_practice
from ledger.judge.cli import main

KEYS = "practice/ch01_keys/keys.ipynb"
SCHEMA = {"id", "chapter", "title", "verdict", "points", "max_points", "seconds", "message", "cases", "counts", "notes"}


@cache
def shipped(root):
    """The untouched practice notebooks of this version, by path, as a build writes them."""
    return {name: json.dumps(book, indent=1, ensure_ascii=False) + "\n" for name, book in fresh_practice(root).items()}


@pytest.fixture
def course(tmp_path, root, monkeypatch):
    """A copy of the course with untouched practice notebooks, and the working folder in it."""
    copy = tmp_path / "course copy"
    copy.mkdir()
    shutil.copy(root / "judge.py", copy)
    shutil.copytree(root / "course", copy / "course")
    shutil.copytree(root / "solutions", copy / "solutions")
    for name, text in shipped(root).items():
        path = copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(copy)
    return copy


def notebook_of(course, id):
    """The practice notebook with exercise ``id``: its path, its JSON and the answer cell."""
    for path in sorted((course / "practice").rglob("*.ipynb")):
        data = json.loads(path.read_text())
        for cell in data["cells"]:
            if cell["id"] == id:
                return path, data, cell
    raise AssertionError(id)


def answer(course, id, source):
    """Write ``source`` into the answer cell of ``id``."""
    path, data, cell = notebook_of(course, id)
    cell["source"] = source
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    return path


def graded(course, *argv, status):
    """The machine-readable result of a run."""
    assert main([*argv, "--json", "result.json"], course) == status
    return json.loads((course / "result.json").read_text())


def test_the_solutions_pass(course, capsys):
    result = graded(course, "--from", "solutions", status=0)
    assert [e["id"] for e in result["exercises"]] == list(exercises.registry())
    assert {e["verdict"] for e in result["exercises"]} == {"passed"}
    assert all(e["points"] == e["max_points"] for e in result["exercises"])
    assert result["schema"] == 1
    assert set(result) == {"schema", "isolation", "exercises", "summary"}
    assert all(set(e) == SCHEMA for e in result["exercises"])
    total = sum(e.points for e in exercises.registry().values())
    summary = {key: value for key, value in result["summary"].items() if key != "seconds"}
    number = len(exercises.registry())
    assert summary == {"passed": number, "total": number, "points": total, "max_points": total}
    assert f"{number} of {number} passed" in capsys.readouterr().out
    assert not (course / ".ledger").exists(), "--from never touches the learner's progress"


def test_what_passed_is_shown_beside_the_formula(course, capsys):
    result = graded(course, "absorb_heads", "--from", "solutions", status=0)
    counts = result["exercises"][0]["counts"]
    assert counts["counted"]
    assert counts["macs"] == counts["predicted_macs"] > 0
    assert f"counted {counts['macs']:,} multiply-adds, as the formula says" in capsys.readouterr().out


def test_untouched_practice_is_todo_and_no_pass(course, capsys):
    result = graded(course, status=1)
    assert {e["verdict"] for e in result["exercises"]} == {"todo"}
    assert result["summary"]["points"] == 0
    out = capsys.readouterr().out
    assert "Start with up_project_keys" in out
    assert (course / ".ledger" / "progress.json").is_file()


def test_a_wrong_answer_tells_its_pattern_and_the_next_step(course, capsys):
    answer(course, "absorb_query", "def absorb_query(q_nope, w_k):\n    return q_nope @ w_k.reshape(w_k.shape[::-1])\n")
    result = graded(course, "absorb_query", "--seed", "7", status=1)
    exercise = result["exercises"][0]
    assert exercise["verdict"] == "wrong"
    assert 0 <= exercise["points"] < exercise["max_points"]
    out = capsys.readouterr().out
    for text in ("transposed weight", "seed 7", "python judge.py hint absorb_query", "cases pass", "Go on with"):
        assert text in out
    assert len(out.splitlines()) < 24, "a failure fits one screen"


def test_an_error_shows_the_learners_own_line(course, capsys):
    answer(course, "absorb_query", "def absorb_query(q_nope, w_k):\n    return q_nope @ weight.T\n")
    assert graded(course, "absorb_query", status=1)["exercises"][0]["verdict"] == "error"
    out = capsys.readouterr().out
    assert "NameError: name 'weight' is not defined" in out
    assert "return q_nope @ weight.T" in out
    assert "Traceback" not in out


def test_a_helper_cell_above_is_run_and_one_below_is_not(course):
    path, data, cell = notebook_of(course, "absorb_query")
    helper = {"cell_type": "code", "id": "mine", "metadata": {}, "outputs": [], "execution_count": None}
    helper["source"] = "def fold(q, w):\n    return q @ w.T\n"
    cell["source"] = "def absorb_query(q_nope, w_k):\n    return fold(q_nope, w_k)\n"
    at = data["cells"].index(cell)
    for place, status in ((at, 0), (at + 1, 1)):
        cells = [c for c in data["cells"] if c is not helper]
        cells.insert(place, helper)
        path.write_text(json.dumps(data | {"cells": cells}))
        assert graded(course, "absorb_query", status=status)


def test_one_broken_notebook_never_stops_the_others(course, capsys):
    answer(course, "absorb_heads", solution(course, "absorb_heads"))
    notebook_of(course, "absorb_query")[0].write_text("{ not json")
    verdicts = {e["id"]: e["verdict"] for e in graded(course, status=1)["exercises"]}
    assert verdicts["absorb_query"] == "error"
    assert verdicts["absorb_heads"] == "passed"
    assert "keys.ipynb is not a notebook" in capsys.readouterr().err


def solution(course, id):
    """The reference of ``id`` as the solutions hold it."""
    for path in (course / "solutions").rglob("*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            if cell["id"] == id:
                return "".join(cell["source"])
    raise AssertionError(id)


@pytest.mark.parametrize(
    "target", ["2", "ch02", "ch02_heads", "practice/ch02_heads", "practice/ch02_heads/heads.ipynb"]
)
def test_targets_of_a_chapter(course, target):
    ids = [e["id"] for e in graded(course, target, status=1)["exercises"]]
    assert ids == [e.id for e in exercises.registry().values() if e.chapter == 2]


def test_several_targets_in_the_courses_order(course):
    ids = [e["id"] for e in graded(course, "absorb_heads", "absorb_query", status=1)["exercises"]]
    assert ids == ["absorb_query", "absorb_heads"]


def test_json_on_standard_output_stands_alone(course, capsys):
    assert main(["absorb_query", "--from", "solutions", "--json", "-"], course) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["passed"] == 1


def test_a_python_file_as_an_answer(course):
    (course / "mine.py").write_text("def absorb_query(q_nope, w_k):\n    return q_nope @ w_k.T\n")
    assert graded(course, "--source", "mine.py", "absorb_query", status=0)
    assert not (course / ".ledger").exists()


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["absorb_qery"], "did you mean absorb_query"),
        (["99"], "there is no exercise, chapter or notebook '99'"),
        (["0"], "chapter 0 has no exercises"),
        (["--from", "nowhere"], "nowhere is not there"),
        (["--from", "judge.py"], "judge.py is not a folder"),
        (["--source", "nowhere.py", "absorb_query"], "nowhere.py is not there"),
        (["--source", "practice", "absorb_query"], "practice is a folder"),
        (["--source", "judge.py", "absorb_qery"], "did you mean absorb_query"),
        (["--source", "judge.py"], "expected 2 arguments"),
        (["--source", "judge.py", "absorb_query", "2"], "leave out targets"),
        (["--json", "practice"], "not the folder practice"),
        (["--json", "no/such/place.json"], "the folder no/such is not there"),
        (["--json", ""], "--json wants a file"),
        (["--from", "x" * 300], "longer than the name of any file"),
        (["--json", "y/" * 3000], "longer than the name of any file"),
        (["--seed", "one"], "invalid int value"),
        (["--seed", "-1"], "from 0 up"),
        (["--sed", "1"], "unrecognized arguments"),
        (["judge.py"], "judge.py is not a notebook"),
        (["binary.ipynb"], "binary.ipynb is not"),
        (["empty"], "empty holds no answer"),
        (["hint"], "required: ID"),
        (["hint", "absorb_qery"], "did you mean absorb_query"),
        (["hint", "absorb_query", "9"], "has hints 1 to 3"),
        (["reset", "nothing"], "no exercise 'nothing'"),
        (["check", "nothing"], "no exercise 'nothing'"),
        (["list", "more"], "unrecognized arguments: more"),
    ],
)
def test_a_bad_call_is_one_clear_line(course, capsys, argv, text):
    (course / "binary.ipynb").write_bytes(bytes(range(256)))
    (course / "empty").mkdir()
    assert main(argv, course) == 2
    captured = capsys.readouterr()
    assert text in captured.err
    assert captured.err.startswith("judge: ")
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""


def test_no_course_around(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([]) == 2
    assert "no course was found here" in capsys.readouterr().err


def test_list_and_hints_follow_the_learner(course, capsys):
    answer(course, "absorb_query", solution(course, "absorb_query"))
    main(["1"], course)
    capsys.readouterr()
    assert main(["list"], course) == 0
    listed = capsys.readouterr().out
    assert "■ absorb_query" in listed
    assert "· up_project_keys" in listed
    assert {e.points for e in exercises.registry().values()} >= {1, 2}
    assert "2 points" in listed
    assert " 1 point " in listed
    assert " 1 points" not in listed
    shown = []
    for _ in range(4):
        assert main(["hint", "absorb_query"], course) == 0
        shown.append(capsys.readouterr().out)
    assert ["hint 1" in shown[0], "hint 2" in shown[1], "hint 3" in shown[2], "hint 3" in shown[3]] == [True] * 4
    assert main(["hint", "absorb_query", "1"], course) == 0
    assert capsys.readouterr().out == shown[0]


def test_reset_puts_the_stub_back_and_keeps_the_answer(course, capsys):
    path = answer(course, "absorb_query", "def absorb_query(q_nope, w_k):\n    return 'mine'\n")
    other = answer(course, "scores_absorbed", "def scores_absorbed(*a):\n    return 'stays'\n")
    assert other == path
    before = path.read_bytes()
    assert main(["reset", "absorb_query"], course) == 0
    said = capsys.readouterr().out
    assert "File > Reload Notebook from Disk" in said
    kept = next((course / ".ledger" / "backups").iterdir())
    assert str(kept.relative_to(course)) in said
    assert kept.read_bytes() == before
    assert 'NotImplementedError("absorb_query' in "".join(notebook_of(course, "absorb_query")[2]["source"])
    assert "'stays'" in "".join(notebook_of(course, "scores_absorbed")[2]["source"])
    assert main(["reset", "absorb_query"], course) == 0
    said = capsys.readouterr().out
    assert "nothing was changed" in said
    assert "Reload" not in said
    assert len(list((course / ".ledger" / "backups").iterdir())) == 1


def test_reset_brings_back_a_cell_that_is_gone(course):
    path, data, cell = notebook_of(course, "absorb_query")
    data["cells"].remove(cell)
    path.write_text(json.dumps(data))
    assert graded(course, "absorb_query", status=1)["exercises"][0]["verdict"] == "missing"
    assert main(["reset", "absorb_query"], course) == 0
    data = notebook_of(course, "absorb_query")[1]
    ids = [cell["id"] for cell in data["cells"]]
    assert ids.index("absorb_query") == ids.index("absorb_query-check") - 1


def test_the_way_on_from_a_notebook_that_cannot_be_read(course, capsys):
    """What is said is done: the file is moved away, and reset makes a new one."""
    path = notebook_of(course, "absorb_query")[0]
    path.write_text("{")
    way = "move that file out of practice/ (nothing in it is lost); then python judge.py reset up_project_keys"
    assert main(["next"], course) == 0
    assert way in " ".join(capsys.readouterr().out.split())
    assert main(["1"], course) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert way in told
    assert "judge.py hint" not in told
    path.rename(course / "keys.ipynb")
    assert main(["reset", "up_project_keys"], course) == 0
    assert "it is new again" in capsys.readouterr().out
    assert main(["next"], course) == 0
    assert "It waits in practice/ch01_keys/keys.ipynb, cell" in capsys.readouterr().out
    assert (course / "keys.ipynb").read_text() == "{"


def test_damaged_progress_is_moved_aside(course):
    (course / ".ledger").mkdir()
    (course / ".ledger" / "progress.json").write_text("{ damaged")
    graded(course, "absorb_query", status=1)
    assert json.loads((course / ".ledger" / "progress.json").read_text())["exercises"]
    aside = [p for p in (course / ".ledger").iterdir() if "damaged" in p.name]
    assert [p.read_text() for p in aside] == ["{ damaged"]


def test_progress_that_cannot_be_kept_is_a_remark(course, capsys):
    (course / ".ledger").write_text("a file where the folder should be")
    assert graded(course, "absorb_query", status=1)
    assert ".ledger" in capsys.readouterr().err


def test_the_script_itself_with_and_without_colour(course):
    command = [sys.executable, "judge.py", "absorb_query", "--from", "solutions"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_colours_only_on_a_terminal(monkeypatch):
    from ledger.judge.report import use_colour

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert use_colour(Terminal())
    assert not use_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not use_colour(Terminal())


def test_doctor_names_the_layers(course, capsys):
    assert main(["doctor"], course) == 0
    out = capsys.readouterr().out
    assert "Isolation of answers" in out
    assert "NumPy" in out


def test_an_answer_in_a_cell_of_ones_own_beside_the_stub(course, capsys):
    path, data, _ = notebook_of(course, "absorb_query")
    own = {"cell_type": "code", "id": "own", "metadata": {}, "outputs": [], "execution_count": None}
    own["source"] = "def absorb_query(q_nope, w_k):\n    return q_nope @ w_k.T\n"
    path.write_text(json.dumps(data | {"cells": [*data["cells"], own]}))
    exercise = graded(course, "absorb_query", status=0)["exercises"][0]
    assert "found by its function's name" in exercise["notes"][0]


def test_a_stub_of_which_only_the_raise_is_left_is_no_stub(course):
    answer(course, "absorb_query", "def absorb_query(q, w):\n    return q @ w.T\n    raise NotImplementedError\n")
    assert graded(course, "absorb_query", status=0)


def test_reset_finds_what_the_judge_finds_and_leaves_one_stub(course, capsys):
    path, data, cell = notebook_of(course, "absorb_query")
    for raw in data["cells"]:
        raw["metadata"] = {}
        raw.pop("id")
    cell["source"] = "def absorb_query(q_nope, w_k):\n    return q_nope @ w_k.T\n"
    data["cells"].append(dict(cell))
    path.write_text(json.dumps(data))
    assert main(["reset", "absorb_query"], course) == 0
    assert "its 2 copies became one" in capsys.readouterr().out
    sources = ["".join(raw["source"]) for raw in json.loads(path.read_text())["cells"]]
    assert sum("def absorb_query" in source for source in sources) == 1
    assert graded(course, "absorb_query", status=1)["exercises"][0]["verdict"] == "todo"


def test_lost_ids_are_said_once_for_a_notebook(course, capsys):
    """What Colab leaves of a notebook: no id, no metadata of nbgrader's."""
    for id in ("up_project_keys", "absorb_query"):
        answer(course, id, solution(course, id))
    path, data, _ = notebook_of(course, "absorb_query")
    for raw in data["cells"]:
        raw["metadata"] = {}
        raw.pop("id")
    path.write_text(json.dumps(data))
    for argv in ([], ["1"]):
        assert main(argv, course) == 1
        told = capsys.readouterr().out
        assert told.count("the cells of practice/ch01_keys/keys.ipynb have lost their ids") == 1, argv
        assert "not the cell made for the answer" not in told


def test_cells_in_another_order_doubled_and_deleted(course, capsys):
    """Every answer that is there is graded, its last copy; a deleted one is missing, and nothing else is."""
    answer(course, "up_project_keys", "def up_project_keys(latents, w_k):\n    return latents @ w_k\n")
    answer(course, "absorb_query", "def absorb_query(q_nope, w_k):\n    return q_nope @ w_k.T\n")
    path, data, cell = notebook_of(course, "absorb_query")
    wrong = {**cell, "source": "def absorb_query(q_nope, w_k):\n    return 2 * q_nope @ w_k.T\n"}
    gone = [raw for raw in data["cells"] if raw["id"] == "scores_absorbed"]
    cells = [raw for raw in data["cells"] if raw not in gone and raw is not cell]
    path.write_text(json.dumps(data | {"cells": [wrong, *cells[::-1], cell]}))
    verdicts = {e["id"]: e["verdict"] for e in graded(course, "1", status=1)["exercises"]}
    assert verdicts == {
        "up_project_keys": "passed",
        "absorb_query": "passed",
        "scores_absorbed": "missing",
        "key_path_macs": "todo",
    }


#: Commands that write, and what each changes.
WRITES = pytest.mark.parametrize(
    ("argv", "changes"),
    [
        (["hint", "absorb_query"], ".ledger/progress.json"),
        (["reset", "absorb_query"], KEYS),
        (["answers", "load", "mine.json"], KEYS),
        (["answers", "save", "mine.json"], "mine.json"),
    ],
    ids=["hint", "reset", "load", "save"],
)


@pytest.fixture
def worked(course, root, monkeypatch):
    """A course with an answer, another answer in a bundle of an earlier day, and some progress."""
    books = lambda _: {name: json.loads(text) for name, text in shipped(root).items()}  # noqa: E731
    monkeypatch.setattr("ledger.build.fresh_practice", books)
    answer(course, "absorb_query", "def absorb_query(q_nope, w_k):\n    return 'earlier'\n")
    assert main(["answers", "save", "mine.json"], course) == 0
    answer(course, "absorb_query", solution(course, "absorb_query"))
    assert main(["hint", "up_project_keys", "2"], course) == 0
    return course


def kept(course):
    """What is the learner's, by path: the notebooks, the bundle, the progress."""
    paths = [*(course / "practice").rglob("*.ipynb"), course / "mine.json", course / ".ledger" / "progress.json"]
    return {path.relative_to(course).as_posix(): path.read_bytes() for path in paths}


@WRITES
def test_a_full_disk_loses_nothing_and_is_one_clear_line(worked, capsys, monkeypatch, argv, changes):
    """The system refuses every file after its first bytes, as a full disk does."""
    import resource

    before, limits = kept(worked), resource.getrlimit(resource.RLIMIT_FSIZE)
    capsys.readouterr()
    real = tempfile.mkstemp
    monkeypatch.setattr(tempfile, "mkstemp", lambda **options: (resource.setrlimit(*full), real(**options))[1])
    full = resource.RLIMIT_FSIZE, (16, limits[1])
    try:
        status = main(argv, worked)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    said = capsys.readouterr().err
    assert status == (0 if changes.startswith(".ledger") else 3)
    assert "File too large" in said
    assert len(said.splitlines()) == 1
    assert kept(worked) == before
    folders = [worked, worked / ".ledger", worked / "practice" / "ch01_keys"]
    assert not [file for folder in folders for file in folder.glob(".*.*")], "what was half written is gone"


@WRITES
def test_a_judge_that_is_killed_before_the_last_step_loses_nothing(worked, argv, changes):
    before = kept(worked)
    if (child := os.fork()) == 0:
        replace = os.replace
        last = (worked / changes).name
        os.replace = lambda old, new: os.kill(os.getpid(), 9) if Path(new).name == last else replace(old, new)
        try:
            main(argv, worked)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
    assert kept(worked) == before
    assert main(argv, worked) == 0, "and the next one works"
    assert kept(worked) != before


def test_a_folder_that_may_not_be_written_loses_nothing(worked):
    """Root may write everywhere, so the commands run without that right."""
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("nothing here takes root's rights away")
    before, folders = kept(worked), [worked / "practice" / "ch01_keys", worked / ".ledger"]
    for folder in folders:
        folder.chmod(0o555)
    bare = ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []
    try:
        for argv, status in (["reset", "absorb_query"], 3), (["absorb_query"], 0):  # what can be read is graded
            done = subprocess.run([*bare, sys.executable, "judge.py", *argv], capture_output=True, text=True)
            assert done.returncode == status
            assert "Permission denied" in done.stderr
            assert len(done.stderr.splitlines()) == 1
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert kept(worked) == before


def test_judges_at_once_keep_the_progress_of_each(course):
    """Two judges and two that watch, on one course."""
    quiet = {"cwd": course, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    watchers = [subprocess.Popen([sys.executable, "-u", "judge.py", "watch"], **quiet) for _ in range(2)]
    try:
        for watcher in watchers:
            assert any("Watching" in line for line in watcher.stdout)
        ids = ["absorb_query", "split_kv_b", "merged_weight_ratio"]
        for id in ids:
            answer(course, id, solution(course, id))
        judges = [subprocess.Popen([sys.executable, "judge.py", id], **quiet) for id in ("up_project_keys", ids[0])]
        for watcher in watchers:
            left = set(ids)
            while left and (line := watcher.stdout.readline()):
                left -= {id for id in left if f"✓ {id}:" in line}
            assert not left
        assert [judge.wait() for judge in judges] == [1, 0]
    finally:
        for process in watchers:
            process.communicate("q\n")
    progress = json.loads((course / ".ledger" / "progress.json").read_text())["exercises"]
    assert {id: entry["verdict"] for id, entry in progress.items()} == {
        "up_project_keys": "todo",
        **dict.fromkeys(ids, "passed"),
    }


@pytest.mark.parametrize(
    "odd",
    [
        {"cell_type": "code", "source": "x", "metadata": "text"},
        {"cell_type": "code", "source": "x", "metadata": {"nbgrader": "text"}},
        {"cell_type": "code", "source": [1, 2], "metadata": []},
        {"cell_type": "code", "source": "half \ud800", "metadata": {}},
        {"cell_type": "code"},
        3,
    ],
)
def test_reset_in_a_notebook_with_an_odd_cell(course, odd):
    path, data, _ = notebook_of(course, "absorb_query")
    answer(course, "absorb_query", "def absorb_query(q, w):\n    return 1\n")
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"cells": [odd, *data["cells"]]}))
    assert main(["reset", "absorb_query"], course) == 0
    assert json.loads(path.read_text())["cells"][0] == odd


def test_reset_compares_a_stub_that_holds_more_than_lines(course, capsys):
    path, data, cell = notebook_of(course, "absorb_query")
    cell["source"].append({"not": "a line"})
    path.write_text(json.dumps(data))
    assert main(["reset", "absorb_query"], course) == 0
    assert "nothing was changed" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["practice/ch01_keys/keys.ipynb", "notes.txt", "list.json", "progress.json"])
def test_a_result_is_never_written_over_what_is_none(course, capsys, name):
    (course / "notes.txt").write_text("mine")
    (course / "list.json").write_text("[1]")
    (course / "progress.json").write_text('{"exercises": {}}')
    before = (course / name).read_bytes()
    assert main(["key_path_macs", "--json", name], course) == 2
    assert "is no result of the judge: choose another name" in capsys.readouterr().err
    assert (course / name).read_bytes() == before


def test_what_is_said_of_a_word_is_one_line_that_no_terminal_acts_on(course, capsys):
    assert main(["list", "a\nb", "\x1b[2J", "\u202egnp"], course) == 2
    said = capsys.readouterr().err
    assert said == "judge: unrecognized arguments: a b  [2J  gnp (see judge.py list --help)\n"


def test_another_notebook_as_a_target_is_not_the_learners_progress(course, capsys):
    assert main(["solutions"], course) == 0
    assert capsys.readouterr().out.startswith("Attention Ledger · solutions")
    assert (
        not (course / ".ledger" / "progress.json").exists()
        or '"passed"' not in (course / ".ledger" / "progress.json").read_text()
    )


def test_a_submission_that_links_to_the_solutions_has_no_answers(course, capsys):
    chapter = course / "handed in" / "ch01_keys"
    chapter.mkdir(parents=True)
    (chapter / "keys.ipynb").symlink_to(course / "solutions" / "ch01_keys" / "keys.ipynb")
    verdicts = {e["verdict"] for e in graded(course, "1", "--from", "handed in", status=1)["exercises"]}
    assert verdicts == {"error"}


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_what_is_no_file_does_not_hang_the_judge(course, kind, capsys):
    path = course / "practice" / "ch01_keys" / "x.ipynb"
    os.mkfifo(path) if kind == "fifo" else path.mkdir()
    assert graded(course, "absorb_query", status=1)["exercises"][0]["verdict"] == "todo"


@pytest.mark.parametrize(
    "source",
    [
        "def merged_weight_ratio(*sizes):\n    return 10**400\n",
        "def merged_weight_ratio(*sizes):\n    return True\n",
        "import numpy as np\ndef merged_weight_ratio(*sizes):\n    return np.longdouble(1)\n",
    ],
)
def test_a_strange_number_is_wrong_and_no_fault_of_the_judge(course, source):
    answer(course, "merged_weight_ratio", source)
    assert graded(course, "merged_weight_ratio", status=1)["exercises"][0]["verdict"] == "wrong"


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "longdouble", "bool", "int8", "float16"])
def test_a_strange_dtype_is_wrong_and_prints_no_warning(course, dtype, capsys):
    source = f"def absorb_query(q_nope, w_k):\n    return (q_nope @ w_k.T).astype('{dtype}')\n"
    answer(course, "absorb_query", source)
    exercise = graded(course, "absorb_query", status=1)["exercises"][0]
    assert exercise["verdict"] == "wrong"
    assert "dtype" in exercise["message"]
    assert capsys.readouterr().err == ""


def test_an_answer_that_calls_one_that_does_not_pass_says_so(course, capsys):
    """A stub; then a wrong answer: in one run, or by what was kept of it, as long as it is the one that was run."""

    def shown(*argv):
        assert main([*argv], course) == 1
        return capsys.readouterr().out

    answer(course, "absorb_query", "def absorb_query(q_nope, w_k):\n    return up_project_keys(q_nope, w_k.T)\n")
    out = shown("absorb_query")
    for text in ("absorb_query: error, 0 of 9", "it calls up_project_keys, which is not written yet: begin there"):
        assert text in out
    assert "judge.py hint up_project_keys" in out
    assert "Go on with up_project_keys" in out
    assert "Written already?" not in out
    says = "up_project_keys, which does not pass: begin there"
    wrong = "def up_project_keys(latents, w_k):\n    return 3 * latents @ w_k\n"
    answer(course, "up_project_keys", wrong)
    assert says not in shown("absorb_query"), "nothing is known yet"
    assert says in shown("up_project_keys", "absorb_query", "-v")
    assert says in shown("absorb_query"), "by the verdict kept"
    answer(course, "up_project_keys", wrong.replace("3", "4"))
    assert says not in shown("absorb_query"), "another answer, not run yet"
    answer(course, "up_project_keys", wrong.replace("3 * ", ""))
    assert main(["up_project_keys", "absorb_query"], course) == 0
    own = "def absorb_query(q_nope, w_k):\n    up_project_keys = len\n    return up_project_keys(w_k) * q_nope\n"
    answer(course, "up_project_keys", wrong)
    answer(course, "absorb_query", own)
    assert says not in shown("up_project_keys", "absorb_query", "-v"), "a name of its own"


@pytest.mark.parametrize(
    "damaged",
    ["[" * 100_000, '{"exercises": []}', '{"exercises": {"absorb_query": 3}}', "null", '{"exercises": {"a": []}}'],
)
def test_progress_damaged_in_any_way_is_said_and_kept(course, damaged, capsys):
    (course / ".ledger").mkdir()
    (course / ".ledger" / "progress.json").write_text(damaged)
    assert main(["list"], course) == 0
    assert "was damaged" in capsys.readouterr().err or damaged == '{"exercises": {"a": []}}'


def test_progress_of_odd_types_is_read_as_far_as_it_goes(course, capsys):
    (course / ".ledger").mkdir()
    odd = {"verdict": [], "hints": -7, "passed": "yes", "mine": 1}
    (course / ".ledger" / "progress.json").write_text(json.dumps({"exercises": {"absorb_query": odd}}))
    assert main(["list"], course) == 0
    assert main(["hint", "absorb_query"], course) == 0
    assert "hint 1 of 3" in capsys.readouterr().out


@pytest.mark.parametrize("how", ["ascii", "closed", "full"])
def test_a_terminal_that_cannot_show_everything(course, how):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"} if how == "ascii" else os.environ
    out = {"ascii": "", "closed": " >&-", "full": " >/dev/full"}[how]
    command = f"{sys.executable} judge.py absorb_query --from solutions --json result.json{out}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment)
    assert "Traceback" not in done.stderr
    assert done.returncode in ((3,) if how == "full" else (0,))
    if how != "full":
        assert json.loads((course / "result.json").read_text())["summary"]["passed"] == 1


def test_a_target_of_absurd_length_is_one_line(course, capsys):
    assert main(["x" * 5000], course) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
