"""practice/ against nbgrader itself: the real commands, run in a temporary folder."""

import csv
import inspect
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from html import unescape
from pathlib import Path

import nbformat
import pytest
from classroom import GOLDEN, IDS, SOLVED, hand_in, notebooks, points_of

from ledger import exercises
from ledger.build.nbgrader_steps import STEPS, Stamp
from ledger.build.notebook import Course, fresh

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def instructor(tmp_path_factory):
    """A folder with the course's nbgrader settings and freshly built solutions, as an instructor has it."""
    folder = tmp_path_factory.mktemp("nbgrader")
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    for path, text in fresh(Course(ROOT), trees=("solutions",)).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8", newline="\n")
    for chapter in chapters():
        nbgrader(folder, "generate_assignment", chapter)
    return folder


def chapters():
    return sorted({Path(path).parent.name for path in (ROOT / "course" / "practice").glob("*/*.py")})


def own(folder):
    """Variables that leave this machine's Jupyter settings out."""
    own = {f"JUPYTER_{kind}_DIR": str(folder / ".jupyter" / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"IPYTHONDIR": str(folder / ".jupyter" / "ipython")}
    # nbgrader calls alembic by name, as it would be found in an activated environment.
    return own | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}


def nbgrader(folder, *arguments, status=0):
    """Run nbgrader in ``folder``."""
    run = subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments],
        cwd=folder,
        env=os.environ | own(folder),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == status, run.stdout + run.stderr
    return run


def read(path):
    return nbformat.read(path, as_version=4)


def test_the_steps_are_nbgraders_own_but_for_the_stub_and_the_record():
    from nbgrader.converters import GenerateAssignment
    from nbgrader.preprocessors import ClearSolutions

    own = GenerateAssignment.preprocessors.default()
    assert STEPS[-1] is Stamp
    assert len(STEPS) == len(own) + 1
    assert [b.__name__ for a, b in zip(own, STEPS, strict=False) if a is not b] == ["NamedStubs"]
    assert issubclass(next(s for s in STEPS if s.__name__ == "NamedStubs"), ClearSolutions)


def test_practice_equals_a_real_generate_assignment_cell_for_cell(instructor, tmp_path):
    built = fresh(Course(ROOT), trees=("practice",))
    released = sorted(p.relative_to(instructor / "release").as_posix() for p in instructor.glob("release/*/*"))
    assert released
    assert [f"practice/{path}" for path in released] == sorted(built)
    for path in released:
        theirs, ours = read(instructor / "release" / path), nbformat.reads(built[f"practice/{path}"], as_version=4)
        assert len(theirs.cells) == len(ours.cells)
        for their_cell, our_cell in zip(theirs.cells, ours.cells, strict=True):
            assert their_cell == our_cell
        assert theirs.metadata == ours.metadata
        assert (theirs.nbformat, theirs.nbformat_minor) == (ours.nbformat, ours.nbformat_minor)
        assert any("checksum" in c.metadata.get("nbgrader", {}) for c in ours.cells)


@pytest.fixture(scope="module")
def autograded(instructor):
    """A class of everybody who can hand in a notebook that nbgrader reads, autograded in one run."""
    names = [name for name in GOLDEN if "error" not in GOLDEN[name][:1] and name not in ("renamed", "byte_order_mark")]
    hand_in(ROOT, instructor / "submitted", names)
    nbgrader(instructor, "autograde", "ch01_keys", "--create")
    return names


def grades(folder, student):
    """The automatic score of each graded cell, and whether a person is to look at one."""
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}", "attention_ledger") as gradebook:
        submission = gradebook.find_submission("ch01_keys", student)
        return {g.name: (g.auto_score, g.needs_manual_grade) for n in submission.notebooks for g in n.grades}


def test_the_golden_table_comes_out_of_nbgrader_too(instructor, autograded):
    for name in autograded:
        found, verdicts = grades(instructor, name), GOLDEN[name]
        assert set(found) == {f"{id}_check" for id in IDS}
        assert not any(manual for _, manual in found.values()), "every graded cell has a number"
        for id, verdict, points in zip(IDS, verdicts, points_of(verdicts), strict=True):
            score = found[f"{id}_check"][0]
            assert (0 <= score < 2) if points is None else score == points, (name, id, verdict)


def test_feedback_says_why_and_shows_no_oracle(instructor, autograded):
    nbgrader(instructor, "generate_feedback", "ch01_keys")
    page = (instructor / "feedback" / "twice_the_value" / "ch01_keys" / "keys.html").read_text()
    assert "constant factor" in page
    assert "BEGIN SOLUTION" not in page
    text = unescape(re.sub(r"<[^>]+>", "", page))
    oracle = inspect.getsource(exercises.get("absorb_query").oracle).splitlines()[-1].strip()
    assert len(oracle) > 12
    assert oracle not in text
    assert "ledger/exercises" not in text


def test_the_export_holds_the_sums(instructor, autograded):
    nbgrader(instructor, "export", "--to", str(instructor / "grades.csv"))
    with open(instructor / "grades.csv", newline="") as file:
        sums = {
            row["student_id"]: float(row["score"]) for row in csv.DictReader(file) if row["assignment"] == "ch01_keys"
        }
    assert {name for name, score in sums.items() if score == 8} == {n for n in autograded if GOLDEN[n] == SOLVED}
    assert sums["untouched"] == 0


def test_formgrader_opens_the_result(instructor, autograded):
    """The pages that an instructor looks at, from a real server."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [f"--port={port}", "--no-browser", "--allow-root", "--IdentityProvider.token=t", "--ServerApp.password="]
    extensions = (
        "{'nbgrader.server_extensions.formgrader': True, 'nbgrader.server_extensions.validate_assignment': False}"
    )
    options += [f"--ServerApp.jpserver_extensions={extensions}", f"--ServerApp.root_dir={instructor}"]
    command = [sys.executable, "-m", "jupyter_server", *options]
    with subprocess.Popen(
        command, cwd=instructor, env=os.environ | own(instructor), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            assert "ch01_keys" in fetch(f"http://127.0.0.1:{port}/formgrader/api/assignments?token=t")
            students = json.loads(fetch(f"http://127.0.0.1:{port}/formgrader/api/submissions/ch01_keys?token=t"))
            scores = {student["student"]: student["score"] for student in students if student["autograded"]}
            assert scores["solved"] == 8
            assert set(scores) == set(autograded)
        finally:
            server.terminate()


def fetch(address):
    """The body of a page, once the server answers."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(address, timeout=20) as reply:
                return reply.read().decode()
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_what_the_judge_itself_fails_on_is_no_zero(instructor, monkeypatch):
    from nbgrader.converters.base import NbGraderException

    from ledger.judge import autograde
    from ledger.judge.session import without_run

    _, solved = notebooks(ROOT)
    told = {"assignment": "ch01_keys", "notebook": "keys"}
    for verdict in ("judge_error", "skipped"):
        failing = lambda submission, *_, verdict=verdict: without_run(submission, verdict, "of its own")  # noqa: E731
        monkeypatch.setattr(autograde, "grade_one", failing)
        with pytest.raises(NbGraderException, match="of its own"):
            autograde.Judge().preprocess(nbformat.from_dict(solved), {"nbgrader": told})


def test_one_unreadable_submission_does_not_stop_the_others(instructor, autograded):
    hand_in(ROOT, instructor / "submitted", ["not_json"])
    run = nbgrader(instructor, "autograde", "ch01_keys", "--student", "not_json", status=1)
    assert "not_json" in run.stderr
    assert grades(instructor, "solved")["absorb_query_check"][0] == 2
