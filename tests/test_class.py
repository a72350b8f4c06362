"""A class of submissions: the golden table, the same scores however the work is shared, and nothing lost on the way."""

import csv
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from classroom import GOLDEN, IDS, hand_in, new_cell, points_of

from ledger.judge.classroom.similar import similar
from ledger.judge.classroom.store import Store
from ledger.judge.classroom.work import Row, students_in
from ledger.judge.cli import main
from ledger.judge.errors import StateError

SEED = "424242"


@pytest.fixture(scope="module")
def submitted(tmp_path_factory, root):
    folder = tmp_path_factory.mktemp("class") / "submitted"
    hand_in(root, folder)
    return folder


@pytest.fixture(scope="module")
def graded(submitted, root):
    """The whole class, graded by two processes."""
    out = submitted.parent / "two"
    assert main(["class", str(submitted), "--out", str(out), "--workers", "2", "--seed", SEED], root) == 0
    return out


def table(out):
    """What ``grades.csv`` says, by student."""
    with open(out / "grades.csv", newline="", encoding="utf-8") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def rows(out):
    with sqlite3.connect(out / "results.sqlite") as db:
        found = db.execute("SELECT student, exercise, verdict, points, message, stumble, notes FROM results").fetchall()
    return {(student, exercise): rest for student, exercise, *rest in found}


@pytest.mark.parametrize("name", GOLDEN)
def test_verdicts_and_points(graded, name):
    kept, line = rows(graded), table(graded)[name]
    verdicts = tuple(kept[name, id][0] for id in IDS)
    assert verdicts == GOLDEN[name]
    for id, verdict, points in zip(IDS, verdicts, points_of(verdicts), strict=True):
        assert float(line[id]) == pytest.approx(kept[name, id][1], abs=0.005)
        if points is None:
            assert verdict == "wrong"
            assert 0 <= float(line[id]) < 2
        else:
            assert float(line[id]) == points
    assert float(line["points"]) == pytest.approx(sum(float(line[id]) for id in IDS), abs=0.02)
    assert line["max_points"] == "8"


def test_everybody_is_in_the_table_once(graded):
    assert list(table(graded)) == sorted(GOLDEN)


def test_what_made_them_stumble_is_named(graded):
    kept = rows(graded)
    assert kept["twice_the_value", "absorb_query"][3] == "constant factor"
    assert kept["syntax", "absorb_query"][3] == "SyntaxError"
    assert kept["calls_a_stub", "absorb_query"][3] == "calls up_project_keys"
    assert kept["loop", "absorb_query"][3] == "timeout"
    assert kept["solved", "absorb_query"][3] == ""
    broken = ("not_json", "empty_file", "latin_1", "cut_off")
    assert {kept[name, id][3] for name in broken for id in IDS} == {"the notebook cannot be read"}
    page = (graded / "report.html").read_text(encoding="utf-8")
    assert "the notebook cannot be read (4)" in page, "all four are one mistake"
    for text in ("constant factor", "SyntaxError", "twice_the_value", "absorb_query"):
        assert text in page


def test_a_cell_that_ended_the_process_is_said(graded):
    assert "was left out" in rows(graded)["exits_above", "key_path_macs"][4]


def test_one_process_gives_the_same_grades_as_two(submitted, graded, root):
    few = ("solved", "twice_the_value", "changes_inputs", "prints_only", "patched_and_wrong", "untouched")
    part = submitted.parent / "part"
    hand_in(root, part, few)
    out = submitted.parent / "one"
    assert main(["class", str(part), "1", "--out", str(out), "--workers", "1", "--seed", SEED], root) == 0
    whole = table(graded)
    assert table(out) == {name: whole[name] for name in few}


def test_what_is_unchanged_is_not_run_again(tmp_path, root, capsys):
    folder, out = tmp_path / "submitted", tmp_path / "out"
    hand_in(root, folder, ("solved", "untouched"))
    command = ["class", str(folder), "--out", str(out), "--workers", "1"]
    assert main(command, root) == 0
    first = (out / "grades.csv").read_text()
    seed = capsys.readouterr().out.split("seed ")[1].split()[0]
    assert main(command, root) == 0
    said = capsys.readouterr().out
    assert "0 graded" in said
    assert f"seed {seed}" in said, "the seed of the class stays"
    assert (out / "grades.csv").read_text() == first
    hand_in(root, tmp_path / "new", ("twice_the_value",))
    (tmp_path / "new" / "twice_the_value").rename(folder / "later")
    (folder / "untouched").rename(tmp_path / "left")
    assert main(command, root) == 0
    said = capsys.readouterr()
    assert list(table(out)) == ["later", "solved"]
    assert "nothing of theirs is there any more: untouched" in (out / "report.html").read_text()
    assert ("untouched", "absorb_query") in rows(out), "what was graded is kept"
    assert main([*command, "--again"], root) == 0
    assert "0 unchanged" in capsys.readouterr().out


def test_a_run_that_is_killed_goes_on_where_it_was(tmp_path, root, graded):
    folder, out = tmp_path / "submitted", tmp_path / "out"
    names = ("solved", "twice_the_value", "changes_inputs", "prints_only", "two_answers", "no_metadata", "renamed")
    hand_in(root, folder, names)
    command = [sys.executable, str(root / "judge.py"), "class", str(folder), "--out", str(out)]
    command += ["--workers", "1", "--seed", SEED]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as judge:
        deadline = time.monotonic() + 60
        while written(out) < 2 and time.monotonic() < deadline:  # the second is begun: the first is on the disk
            time.sleep(0.01)
        os.killpg(judge.pid, signal.SIGKILL)
    with Store(out / "results.sqlite") as store:
        before = len({row.student for row in store.rows()})
    assert 0 < before < len(names), "it was to be killed on its way"
    assert not (out / "grades.csv").exists()
    done = subprocess.run(command[:-2], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert f"{(len(names) - before) * 4} graded, {before * 4} unchanged" in done.stdout
    whole = table(graded)
    assert table(out) == {name: whole[name] for name in sorted(names)}


def written(out):
    """How many students are in the file of results, the one that is just being written among them: the judge holds
    the file alone, so it is read without its lock."""
    try:
        with sqlite3.connect(f"file:{out / 'results.sqlite'}?mode=ro&nolock=1", uri=True) as db:
            return db.execute("SELECT count(DISTINCT student) FROM results").fetchone()[0]
    except sqlite3.Error:
        return 0


def test_a_cluster_of_two_of_whose_workers_one_is_killed(tmp_path, root, graded):
    """A real scheduler and real workers; the same grades, nothing lost, nothing twice."""
    folder, out = tmp_path / "submitted", tmp_path / "out"
    names = sorted(set(GOLDEN) - {"loop", "loop_above", "hoards"})
    hand_in(root, folder, names)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard", "--host", address]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    with subprocess.Popen(dask, **quiet) as scheduler:
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard"]
        workers = [subprocess.Popen([*worker, "--no-nanny"], **quiet) for _ in range(2)]
        try:
            wait_for_workers(address, 2)
            command = [sys.executable, str(root / "judge.py"), "class", str(folder), "--out", str(out)]
            with subprocess.Popen(
                [*command, "--seed", SEED, "--scheduler", address], stdout=subprocess.PIPE, text=True
            ) as judge:
                deadline = time.monotonic() + 60
                while not written(out) and time.monotonic() < deadline:
                    time.sleep(0.01)
                workers[0].kill()
                assert written(out) < len(names), "it was to be killed on the way"
                said = judge.communicate(timeout=120)[0]
            assert judge.returncode == 0
        finally:
            for process in (*workers, scheduler):
                process.kill()
                process.wait()
    asked = sum(verdict != "missing" for name in names for verdict in GOLDEN[name])
    assert f"{asked} graded" in said
    whole = table(graded)
    assert table(out) == {name: whole[name] for name in names}


def wait_for_workers(address, count):
    from distributed import Client

    deadline = time.monotonic() + 60
    while True:
        try:
            with Client(address, timeout="2s", set_as_default=False) as client:
                client.wait_for_workers(count, timeout=60)
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_a_process_that_dies_costs_nobody_anything_and_the_culprit_is_the_judges_fault(tmp_path, root, monkeypatch):
    """Work that takes the grading process itself along, as no answer can: others are graded, it is judge_error."""
    from ledger.judge.classroom import pool

    works = [work(name) for name in ("a", "b", "poison", "c", "d")]
    monkeypatch.setattr(pool, "grade_work", poisonous)
    found = {row.student: row.verdict for rows in pool.grade_here(works, 2, []) for row in rows}
    assert found == {"a": "passed", "b": "passed", "poison": "judge_error", "c": "passed", "d": "passed"}


def work(student):
    from ledger.judge.classroom.work import Answer, Work

    return Work(student, (Answer("absorb_query", "0"),), 1, "")


def poisonous(work):
    if work.student == "poison":
        os._exit(1)
    return [row(work.student)]


def row(student, exercise="absorb_query", verdict="passed", points=2.0, source="", stumble=""):
    return Row(student, exercise, "0", verdict, points, 2, "", stumble, "", "", 0.1, source)


def test_another_version_of_the_course_does_not_grade(root):
    from ledger.judge.classroom.work import OtherCourse, grade_work

    with pytest.raises(OtherCourse, match="another version"):
        grade_work(work("a"))


@pytest.mark.parametrize(
    ("course", "says"), [("", "has no course"), ("another", "another version of the course, or other libraries")]
)
def test_a_worker_that_cannot_grade_is_refused_before_it_gets_work(course, says):
    from ledger.judge.classroom.pool import check_workers
    from ledger.judge.classroom.work import surroundings
    from ledger.judge.errors import UsageError

    class Cluster:
        def run(self, function):
            assert function() == surroundings(), "asked here, it answers for this machine"
            return {"tcp://there:1": surroundings(), "tcp://there:2": course}

    with pytest.raises(UsageError, match=f"tcp://there:2 .*{says}"):
        check_workers(Cluster())


def test_only_one_run_writes(tmp_path):
    with Store(tmp_path / "results.sqlite"), pytest.raises(StateError, match="another run"):
        Store(tmp_path / "results.sqlite")
    (tmp_path / "other.sqlite").write_text("no database, for certain\n" * 100)
    with pytest.raises(StateError, match="--out"):
        Store(tmp_path / "other.sqlite")
    assert (tmp_path / "other.sqlite").read_text().startswith("no database"), "nothing of anybody's is overwritten"


def test_a_row_replaces_its_own_and_no_other(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        store.write([row("a"), row("b", verdict="wrong", points=1.0)])
        store.write([row("a", verdict="wrong", points=0.5), row("c", verdict="judge_error", points=0)])
    with Store(tmp_path / "results.sqlite") as store:
        assert {r.student: (r.verdict, r.points) for r in store.rows()} == {
            "a": ("wrong", 0.5),
            "b": ("wrong", 1.0),
            "c": ("judge_error", 0),
        }
        assert ("c", "absorb_query") not in store.digests(), "what the judge failed on is tried again"


def test_who_is_a_student(tmp_path, root):
    hand_in(root, tmp_path / "class", ("solved",))
    folder = tmp_path / "class"
    (folder / "ada.ipynb").write_bytes((folder / "solved/ch01_keys/keys.ipynb").read_bytes())
    (folder / "bob.zip").write_bytes(b"PK")
    (folder / ".hidden").mkdir()
    (folder / "linked").symlink_to(root / "solutions")
    (folder / "loop").symlink_to("loop")
    (folder / "__MACOSX").mkdir()
    students, strange = students_in(folder)
    assert sorted(students) == ["ada", "solved"]
    assert len(strange) == 3
    assert "unpack it" in strange[0]
    assert "leads outside of this folder" in strange[1]
    assert "or nowhere" in strange[2], "a link to itself"
    assert main(["class", str(folder), "--out", str(tmp_path / "out"), "--workers", "1"], root) == 0
    assert table(tmp_path / "out")["ada"]["points"] == "8"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["class"], "required: DIR"),
        (["class", "nowhere"], "is no folder"),
        (["class", "empty"], "holds no folder of a student"),
        (["class", "full", "--out", "full/results"], "outside of them"),
        (["class", "full", "--out", "x", "1", "--workers", "0"], "from 1 up"),
        (["class", "full", "--seed", "-1"], "from 0 up"),
        (["class", "full", "absorb_qery"], "did you mean"),
        (["class", "full", "--scheduler", "tcp://127.0.0.1:9"], "no scheduler answers"),
    ],
)
def test_a_bad_call_is_one_line(tmp_path, monkeypatch, root, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "full" / "ada").mkdir(parents=True)
    assert main(arguments, root) == 2
    err = capsys.readouterr().err
    assert says in err
    assert len(err.splitlines()) == 1


def test_what_is_odd_about_one_student_is_said_and_costs_nobody_else_anything(tmp_path, root, capsys):
    """Half a character, a name in another encoding, links that lead to themselves, code too deep to parse, nothing."""
    folder, out = tmp_path / "class", tmp_path / "out"
    odd = ("solved", "half", "deep", "loops", "named", "empty", "upper", "flat", "5")
    hand_in(root, folder, ("solved",))
    whole = (folder / "solved" / "ch01_keys" / "keys.ipynb").read_text()
    for name in odd[1:]:
        (folder / name).mkdir()
    right = "def absorb_query(q_nope, w_k):\n    return q_nope @ w_k.T\n"
    put_answer(folder / "half", whole, right + "half = '\ud800'\n")
    put_answer(folder / "deep", whole, right + "x = " + "not " * 50_000 + "1\n")
    put_answer(folder / "loops", whole, right)
    (folder / "loops" / "loop.ipynb").symlink_to("loop.ipynb")
    (folder / "loops" / "self").symlink_to("self")
    put_answer(folder / "upper", whole, right, "KEYS.IPYNB")
    for name in ("flat", "5"):
        (folder / name / "keys.ipynb").write_text("no notebook")
    os.rename(os.fsencode(folder / "named"), os.fsencode(folder) + b"/latin\xff")
    command = ["class", str(folder), "--out", str(out), "--workers", "1"]
    assert main(command, root) == 0
    err = capsys.readouterr().err
    for text in ("empty holds no notebook", "flat/keys.ipynb is not a notebook", "latin\\xff holds no notebook"):
        assert text in err
    lines = table(out)
    assert sorted(lines) == sorted([*(name for name in odd if name != "named"), "latin\\xff"])
    assert {line["max_points"] for line in lines.values()} == {"8"}, "no folder's name makes others' chapters count"
    assert [lines[name]["points"] for name in ("solved", "loops", "upper")] == ["8"] * 3
    assert lines["half"]["points"] in ("6", "8")
    assert lines["deep"]["points"] == "6", "what is too deep to parse is the student's own error"
    assert rows(out)["flat", "absorb_query"][0] == "error"
    assert main(command, root) == 0
    assert " 0 graded" in capsys.readouterr().out


def put_answer(folder, notebook, source, name="keys.ipynb"):
    data = json.loads(notebook)
    next(cell for cell in data["cells"] if cell["id"] == "absorb_query")["source"] = source
    (folder / name).write_text(json.dumps(data))


def test_one_students_cells_cost_no_other_student_anything(tmp_path, root):
    """A cell that ends the process after a patch of the student's own is the same text as everybody's first one."""
    folder, out = tmp_path / "class", tmp_path / "out"
    hand_in(root, folder, ("solved", "untouched"))
    notebook = json.loads((folder / "solved" / "ch01_keys" / "keys.ipynb").read_text())
    patch = "import builtins, os\nbuiltins.__import__ = lambda *a, **k: os._exit(0)\n"
    notebook["cells"].insert(0, new_cell("mine", patch))
    for name in ("aaron", "zoe"):
        (folder / name).mkdir()
    (folder / "aaron" / "keys.ipynb").write_text(json.dumps(notebook))
    (folder / "zoe" / "keys.ipynb").write_bytes((folder / "solved" / "ch01_keys" / "keys.ipynb").read_bytes())
    assert main(["class", str(folder), "--out", str(out), "--workers", "1"], root) == 0
    assert float(table(out)["aaron"]["points"]) < 8
    assert table(out)["zoe"]["points"] == "8"


def test_what_a_machine_could_not_run_is_tried_again(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        store.write([row("a", verdict="skipped", points=0)])
        assert store.digests() == {}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_run_that_ends_takes_its_processes_along(tmp_path, root, how):
    hand_in(root, tmp_path / "class", ("loop", "solved"))
    command = [sys.executable, str(root / "judge.py"), "class", str(tmp_path / "class"), "--workers", "1"]
    with subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as judge:
        deadline = time.monotonic() + 60
        while len(in_group(judge.pid)) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        judge.send_signal(how)
        judge.wait(30)
    deadline = time.monotonic() + 20
    while in_group(judge.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert in_group(judge.pid) == []


def in_group(session):
    """The processes of a session that still run, the zombies that nobody waits for aside."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, sid = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if sid == str(session) and state != "Z":
            found.append(path.parent.name)
    return found


def test_a_class_that_handed_in_nothing_of_the_course(tmp_path, root, capsys):
    (tmp_path / "class" / "ada").mkdir(parents=True)
    assert main(["class", str(tmp_path / "class"), "--workers", "1"], root) == 1
    assert "nobody" in capsys.readouterr().err


def test_a_name_is_no_formula_and_no_markup(tmp_path, root):
    hand_in(root, tmp_path / "class", ("solved",))
    (tmp_path / "class" / "solved").rename(tmp_path / "class" / "=1+1 <b>")
    out = tmp_path / "out"
    assert main(["class", str(tmp_path / "class"), "1", "--out", str(out), "--workers", "1"], root) == 0
    assert list(table(out)) == ["'=1+1 <b>"]
    page = (out / "report.html").read_text()
    assert "<b>" not in page.split("Points</h2>")[1]
    assert "=1+1 &lt;b&gt;" in page


UNUSUAL = '''
def absorb_query(q_nope, w_k):
    """Mine."""
    total = np.zeros((q_nope.shape[0], w_k.shape[0]), dtype=np.result_type(q_nope, w_k))
    for row, vector in enumerate(q_nope):
        for at, weight in enumerate(vector):
            total[row] += weight * w_k[:, at]  # one column of the weight after the other
    return total if total.size else np.zeros_like(total)
'''
RENAMED = """
def absorb_query(queries, weights):
    out = np.zeros((queries.shape[0], weights.shape[0]), dtype=np.result_type(queries, weights))

    for i, q in enumerate(queries):
        for j, x in enumerate(q):
            out[i] += x * weights[:, j]
    return out if out.size else np.zeros_like(out)
"""
USUAL = "def absorb_query(q_nope, w_k):\n    return q_nope @ w_k.T\n"


def test_answers_alike_are_listed_and_the_usual_ones_are_not():
    answers = [(f"s{number:02}", "absorb_query", USUAL) for number in range(20)]
    assert similar(answers) == []
    pairs = similar([*answers, ("ada", "absorb_query", UNUSUAL), ("bob", "absorb_query", RENAMED)])
    assert [(pair.first, pair.second) for pair in pairs] == [("ada", "bob")]
    assert pairs[0].exercises["absorb_query"] > 0.8


def test_what_is_unchanged_is_not_compared_again(tmp_path, monkeypatch):
    """The pairs of each exercise come from the file of results until one of its answers is another."""
    from ledger.judge.classroom import similar as module

    searched, runs_of = [], module.runs_of
    monkeypatch.setattr(module, "runs_of", lambda source: searched.append(source) or runs_of(source))
    answers = [("ada", "absorb_query", UNUSUAL), ("bob", "absorb_query", RENAMED), ("ada", "up_project_keys", USUAL)]
    other = USUAL.replace("q_nope", "q")
    with Store(tmp_path / "results.sqlite") as store:
        first = similar(answers, store)
    assert len(searched) == 3
    with Store(tmp_path / "results.sqlite") as store:
        assert similar(reversed(answers), store) == first == similar(answers)
        searched.clear()
        assert similar([*answers, ("eve", "up_project_keys", other)], store) == first
        assert sorted(searched) == sorted([USUAL, other]), "the other exercise is as it was"
        searched.clear()
        assert similar([("ada", "absorb_query", UNUSUAL), ("bob", "absorb_query", USUAL)], store) == []
        assert similar([("ada", "absorb_query", UNUSUAL), ("eve", "absorb_query", RENAMED)], store) != first
        store.keep_alike("absorb_query", "digest", [])
        store._db.execute("UPDATE alike SET pairs = '[['")
        assert store.alike("absorb_query", "digest") is None, "damaged, and searched anew"


def test_no_source_stops_the_search_for_alike_answers():
    assert (
        similar([("a", "absorb_query", "def f(:\n"), ("b", "absorb_query", "\0" * 9), ("c", "absorb_query", "")]) == []
    )
