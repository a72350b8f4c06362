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
from typing import NamedTuple

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
    assert set(nbgrader(folder, *((folder, "generate_assignment", chapter) for chapter in chapters())).statuses) == {0}
    return folder


def chapters():
    return sorted({Path(path).parent.name for path in (ROOT / "course" / "practice").glob("*/*.py")})


def own(folder):
    """Variables that leave this machine's Jupyter settings out."""
    own = {f"JUPYTER_{kind}_DIR": str(folder / ".jupyter" / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"IPYTHONDIR": str(folder / ".jupyter" / "ipython")}
    # nbgrader calls alembic by name, as it would be found in an activated environment.
    return own | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}


#: nbgrader's commands one after the other in one process, which would otherwise begin with seconds of imports each.
COMMANDS = """
import json, os, sys
from nbgrader.apps import NbGraderApp
from traitlets.config import Application
for folder, *arguments in json.load(sys.stdin):
    os.chdir(folder)
    try:
        status = NbGraderApp.launch_instance(arguments)
    except SystemExit as end:
        status = end.code
    print("status", status or 0)
    type(Application.instance()).clear_instance()
"""


class Ran(NamedTuple):
    """The exit status of each command, and what all of them said on standard error."""

    statuses: list[int]
    said: str


def nbgrader(instructor, *commands):
    """Run nbgrader ``commands``, each a folder and its arguments, with the settings of ``instructor``'s machine."""
    run = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        input=json.dumps([[str(part) for part in command] for command in commands]),
        env=os.environ | own(instructor),
        capture_output=True,
        text=True,
        timeout=300,
    )
    statuses = [int(line.split()[1]) for line in run.stdout.splitlines() if line.startswith("status")]
    assert len(statuses) == len(commands), run.stderr[-3000:]
    return Ran(statuses, run.stderr)


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


#: Whose notebook is none: nbgrader names them and gives no points.
REFUSED = [name for name in GOLDEN if GOLDEN[name] == ("error",) * 4]
#: Who hands in through nbgrader's exchange.
SENDER = "twice_the_value"


@pytest.fixture(scope="module")
def graded(instructor):
    """The class of the golden table, one of whom gets and hands in the assignment through an exchange, from the release
    to the pages of feedback and the scores."""
    exchange, desk = instructor / "exchange", instructor / "desk"
    desk.mkdir()
    hand_in(ROOT, desk, [SENDER])
    hand_in(ROOT, instructor / "submitted", [name for name in GOLDEN if name != SENDER])
    shutil.copytree(instructor / "submitted", instructor / "as_handed_in")
    both = ("ch01_keys", f"--Exchange.root={exchange}")
    student = (*both, "--course=attention_ledger", f"--student={SENDER}")
    ran = nbgrader(
        instructor,
        (instructor, "release_assignment", *both),
        (desk, "fetch_assignment", *both, "--course=attention_ledger"),
        (desk / SENDER, "submit", *student),
        (instructor, "collect", *both),
        (instructor, "autograde", "ch01_keys"),
        (instructor, "generate_feedback", "ch01_keys"),
        (instructor, "release_feedback", *both, f"--student={SENDER}"),
        (desk / SENDER, "fetch_feedback", *student),
        (instructor, "export"),
    )
    assert ran.statuses == [0, 0, 0, 0, 1, 0, 0, 0, 0], ran.said[-3000:]
    return ran


def grades(folder, student):
    """The automatic score of each graded cell, and whether a person is to look at one."""
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}", "attention_ledger") as gradebook:
        submission = gradebook.find_submission("ch01_keys", student)
        return {g.name: (g.auto_score, g.needs_manual_grade) for n in submission.notebooks for g in n.grades}


@pytest.mark.parametrize("name", [name for name in GOLDEN if name not in REFUSED])
def test_the_golden_table_comes_out_of_nbgrader_too(instructor, graded, name):
    found, verdicts = grades(instructor, name), GOLDEN[name]
    assert set(found) == {f"{id}_check" for id in IDS}
    assert not any(manual for _, manual in found.values()), "every graded cell has a number"
    for id, verdict, points in zip(IDS, verdicts, points_of(verdicts), strict=True):
        score = found[f"{id}_check"][0]
        assert (0 <= score < 2) if points is None else score == points, (id, verdict)


def test_what_was_handed_in_stays_as_it_is(instructor, graded):
    before = instructor / "as_handed_in"
    for name in set(GOLDEN) - {SENDER}:
        files = {path.relative_to(before): path.read_bytes() for path in (before / name).rglob("*.*")}
        folder = instructor / "submitted"
        assert {path.relative_to(folder): path.read_bytes() for path in (folder / name).rglob("*.*")} == files


def test_of_a_notebook_and_its_copies_the_one_with_most_answers_is_graded(tmp_path):
    from ledger.judge.autograde import Reader, released_names

    folder = tmp_path / "ch01_keys"
    hand_in(ROOT, tmp_path / "class", ["untouched", "solved", "twice_the_value"])
    folder.mkdir()
    for student, name in (("untouched", "keys"), ("solved", "keys (1)"), ("twice_the_value", "keys-Copy2")):
        shutil.copy(tmp_path / "class" / student / "ch01_keys" / "keys.ipynb", folder / f"{name}.ipynb")
    others = [str(folder / f"{name}.ipynb") for name in ("keys_notes (1)", "mine (1)")]
    names = [*map(str, folder.iterdir()), str(folder / "keys-Copy1 (2).ipynb"), *others]
    released_names("ch01_keys", "*", names)
    assert names == [str(folder / "keys.ipynb"), *others]
    assert "return q_nope @ w_k.T" in Reader().from_filename(names[0])[0]


def test_the_exchange_carries_an_assignment_there_and_back(instructor, graded):
    desk = instructor / "desk"
    released = (instructor / "release" / "ch01_keys" / "keys.ipynb").read_bytes()
    assert (desk / "ch01_keys" / "keys.ipynb").read_bytes() == released
    (page,) = (desk / SENDER / "ch01_keys" / "feedback").rglob("keys.html")
    assert page.read_bytes() == (instructor / "feedback" / SENDER / "ch01_keys" / "keys.html").read_bytes()
    assert "constant factor" in page.read_text()


def test_feedback_shows_no_oracle(instructor, graded):
    """No line of an oracle that is not in the lesson or the handed-out notebook stands on anybody's page."""
    pages = {path: text_of(path.read_text()) for path in (instructor / "feedback").rglob("*.html")}
    assert {path.parents[1].name for path in pages} == set(GOLDEN) - set(REFUSED)
    public = "".join((ROOT / tree / "ch01_keys" / "keys.ipynb").read_text() for tree in ("notebooks", "practice"))
    for id in IDS:
        lines = {line.strip() for line in inspect.getsource(exercises.get(id).oracle).splitlines()}
        secret = {line for line in lines if len(line) > 12 and json.dumps(line)[1:-1] not in public}
        assert any(line.startswith("return ") for line in secret)
        for path, text in pages.items():
            assert not {line for line in secret if line in text}, (id, path)
    assert not any("BEGIN SOLUTION" in text or "ledger/exercises" in text for text in pages.values())


def text_of(page):
    """What a reader sees of a page."""
    return unescape(re.sub(r"<[^>]+>", "", page))


def test_the_export_holds_the_sums_and_nothing_for_what_was_refused(instructor, graded):
    with open(instructor / "grades.csv", newline="") as file:
        lines = {line["student_id"]: line for line in csv.DictReader(file) if line["assignment"] == "ch01_keys"}
    assert set(lines) == set(GOLDEN)
    for name in REFUSED:
        assert [lines[name][column] for column in ("raw_score", "late_submission_penalty", "score")] == [""] * 3
    sums = {name: float(line["score"]) for name, line in lines.items() if name not in REFUSED}
    assert {name for name, score in sums.items() if score == 8} == {n for n in GOLDEN if GOLDEN[n] == SOLVED}
    assert sums["untouched"] == 0


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")
def test_a_cell_that_waits_for_a_person_and_a_name_with_quotes_cost_no_score(tmp_path, monkeypatch):
    """nbgrader writes its table without quotes; only a check without a score is one that was refused."""
    from nbgrader.api import Gradebook

    from ledger.judge.autograde import Scores, forget_scores

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)  # nbgrader calls alembic
    with Gradebook("sqlite:///gradebook.db") as gradebook:
        gradebook.add_assignment("a")
        gradebook.add_notebook("keys", "a")
        for name in ("q_check", "essay"):
            gradebook.add_grade_cell(name, "keys", "a", max_score=4, cell_type="code")
        for student, last, score in (("s", '"Bo', None), ("t", "", 4.0), ("u", 'a"b', 3.0)):
            gradebook.add_student(student, last_name=last)
            gradebook.add_submission("a", student)
            gradebook.find_grade("q_check", "keys", "a", student).auto_score = score
        gradebook.db.commit()
        Scores().export(gradebook)
        forget_scores(gradebook, {"notebook": "keys", "assignment": "a", "student": "t"})
        assert gradebook.find_grade("q_check", "keys", "a", "t").auto_score is None, "graded again, from nothing"
        assert gradebook.find_grade("q_check", "keys", "a", "u").auto_score == 3
    lines = [line.split(",") for line in (tmp_path / "grades.csv").read_text().splitlines()]
    assert {line[3]: line[-2] for line in lines[1:]} == {"s": "", "t": "4.0", "u": "3.0"}


def test_unreadable_submissions_are_named(graded):
    told = re.findall(r"error processing assignment 'ch01_keys' for student '(\w+)'", graded.said)
    assert sorted(told) == sorted(REFUSED)


def test_formgrader_opens_the_result(instructor, graded):
    """The pages that an instructor looks at, from a real server, and what they load."""
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
        page = lambda path: fetch(f"http://127.0.0.1:{port}/formgrader/{path}?token=t")  # noqa: E731
        try:
            assert "attention_ledger" in page("manage_assignments")
            assert "ch01_keys" in page("api/assignments")
            assert "gradebook_notebook_submissions.js" in page("gradebook/ch01_keys/keys")
            students = json.loads(page("api/submissions/ch01_keys"))
            scores = {student["student"]: student["score"] for student in students if student["autograded"]}
            assert scores["solved"] == 8
            assert set(scores) == set(GOLDEN) - set(REFUSED)
            submitted = json.loads(page("api/submitted_notebooks/ch01_keys/keys"))
            (id,) = (notebook["id"] for notebook in submitted if notebook["student"] == SENDER)
            read = text_of(page(f"submissions/{id}/"))
            for text in (SENDER, "return 2 * (q_nope @ w_k.T)", "constant factor"):
                assert text in read
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
