"""The ladder, the exercise that comes next, solutions and watching: what a learner sees from one save to the next."""

import io
import json
import os
import subprocess
import sys
import threading
import time

import pytest
from test_cli import answer, course, notebook_of  # noqa: F401

from ledger import exercises
from ledger.judge import commands, onward
from ledger.judge.cli import main
from ledger.judge.progress import Progress
from ledger.judge.run import Runner
from ledger.judge.watch import Watcher, one_key

RIGHT = "def absorb_query(q_nope, w_k):\n    return q_nope @ w_k.T\n"
WRONG = "def absorb_query(q_nope, w_k):\n    return 2 * q_nope @ w_k.T\n"
COUNT = len(exercises.registry())


@pytest.fixture
def runs(monkeypatch):
    """The ids that were really run, in the order of the calls."""
    ran = []
    real = commands.grade_all

    def recorded(submissions, runner, seed, entries):
        submissions = list(submissions)
        ran.append([submission.exercise.id for submission in submissions])
        return real(submissions, runner, seed, entries)

    monkeypatch.setattr(commands, "grade_all", recorded)
    return ran


def said(capsys, *argv, course, status):  # noqa: F811
    assert main(list(argv), course) == status
    return capsys.readouterr().out


def test_a_chapter_is_a_line_with_a_mark_an_exercise(course, capsys):  # noqa: F811
    answer(course, "absorb_query", RIGHT)
    answer(course, "scores_absorbed", "def scores_absorbed(q_nope, w_k, latents):\n    return q_nope\n")
    out = said(capsys, course=course, status=1)
    line = next(line for line in out.splitlines() if " keys " in line)
    assert "·■✗·" in line
    assert "1 of 4" in line
    left = sum(exercises.get(id).minutes for id in ("up_project_keys", "scores_absorbed", "key_path_macs"))
    assert f"about {left} min left" in line
    assert f"■ 1 solved   ✗ 1 tried   · {COUNT - 2} untouched" in out
    assert f"1 of {COUNT} solved · 2 of " in out
    assert "scores_absorbed: wrong" in out, "the first failure is told in full"
    assert "Go on with" not in out.split("scores_absorbed: wrong")[0]
    assert "Start with up_project_keys" in out


def test_what_passed_and_did_not_change_is_not_run_again(course, capsys, runs):  # noqa: F811
    answer(course, "absorb_query", RIGHT)
    first = said(capsys, course=course, status=1)
    second = said(capsys, course=course, status=1)
    assert runs == [["absorb_query"], []], "stubs are not run either"
    assert "nothing had to run" in second
    assert first.split("isolation")[0].split("\n\n")[1] == second.split("isolation")[0].split("\n\n")[1]
    said(capsys, "--again", course=course, status=1)
    assert len(runs[-1]) == COUNT
    answer(course, "absorb_query", RIGHT + "# and a remark\n")
    said(capsys, course=course, status=1)
    assert runs[-1] == ["absorb_query"]
    answer(course, "absorb_query", WRONG)
    assert "constant factor" in said(capsys, course=course, status=1)
    assert "constant factor" in said(capsys, course=course, status=1), "what failed is run, and explained, every time"
    assert runs[-2:] == [["absorb_query"]] * 2


def test_a_cell_above_is_part_of_the_answer(course, capsys, runs):  # noqa: F811
    answer(course, "up_project_keys", "def up_project_keys(latents, w_k):\n    return latents @ w_k\n")
    answer(course, "absorb_query", RIGHT)
    said(capsys, course=course, status=1)
    answer(course, "up_project_keys", "def up_project_keys(latents, w_k):\n    return latents.dot(w_k)\n")
    said(capsys, course=course, status=1)
    assert runs[-1] == ["up_project_keys", "absorb_query"]


def test_another_version_of_the_course_runs_everything(course, capsys, runs, monkeypatch):  # noqa: F811
    from ledger.judge import version

    answer(course, "absorb_query", RIGHT)
    said(capsys, course=course, status=1)
    monkeypatch.setattr(version, "course_digest", lambda: "another")
    said(capsys, course=course, status=1)
    assert runs == [["absorb_query"]] * 2


def test_what_passed_in_another_version_is_no_failure(course, capsys, monkeypatch):  # noqa: F811
    """It has a mark of its own until it is run again, and what comes next is what was never solved."""
    from ledger.judge import version

    answer(course, "up_project_keys", "def up_project_keys(latents, w_k):\n    return latents @ w_k\n")
    answer(course, "absorb_query", RIGHT)
    answer(course, "scores_absorbed", "def scores_absorbed(q_nope, w_k, latents):\n    return q_nope\n")
    said(capsys, course=course, status=1)
    monkeypatch.setattr(version, "course_digest", lambda: "another")
    listed = said(capsys, "list", course=course, status=0)
    for words in "□ up_project_keys", "□ absorb_query", "✗ scores_absorbed", "□ 2 passed before, to be run again":
        assert words in listed
    ahead = said(capsys, "next", course=course, status=0)
    assert "Go on with: scores_absorbed" in ahead
    assert "2 exercises passed with another version" in ahead
    answer(course, "absorb_query", WRONG)
    assert "○ absorb_query" in said(capsys, "list", course=course, status=0), "another text is another answer"
    assert "Go on with: absorb_query" in said(capsys, "next", course=course, status=0)
    said(capsys, course=course, status=1)
    listed = said(capsys, "list", course=course, status=0)
    for words in "■ up_project_keys", "✗ absorb_query", "■ 1 solved   ✗ 2 tried":
        assert words in listed


def test_an_answer_that_was_never_run_is_not_marked_like_a_wrong_one(course, capsys):  # noqa: F811
    answer(course, "absorb_query", WRONG)
    assert "○ absorb_query" in said(capsys, "list", course=course, status=0)
    said(capsys, "absorb_query", course=course, status=1)
    assert "✗ absorb_query" in said(capsys, "list", course=course, status=0)


def test_progress_of_an_older_judge_does_not_vouch_for_an_answer(course, capsys):  # noqa: F811
    """It has no digest of the answer's own text, which may be another by now, and the course has changed since."""
    answer(course, "absorb_query", RIGHT)
    entry = {"verdict": "passed", "passed": True, "points": 2, "digest": "0123456789abcdef"}
    (course / ".ledger").mkdir()
    (course / ".ledger" / "progress.json").write_text(json.dumps({"schema": 1, "exercises": {"absorb_query": entry}}))
    assert "○ absorb_query" in said(capsys, "list", course=course, status=0)


@pytest.mark.parametrize("argv", [["--seed", "3"], ["--json", "result.json"], ["absorb_query"], ["1"]])
def test_a_run_that_is_asked_for_runs(course, capsys, runs, argv):  # noqa: F811
    answer(course, "absorb_query", RIGHT)
    said(capsys, course=course, status=1)
    main(argv, course)
    assert "absorb_query" in runs[-1]


def test_a_stub_that_is_bound_anew_below_is_an_answer(course, capsys, runs):  # noqa: F811
    stub = "".join(notebook_of(course, "absorb_query")[2]["source"])
    answer(course, "absorb_query", f"{stub}\n\nabsorb_query = lambda q_nope, w_k: q_nope @ w_k.T\n")
    assert "·■··" in said(capsys, course=course, status=1)
    assert runs == [["absorb_query"]]


def test_the_course_is_done(course, capsys):  # noqa: F811
    for path in (course / "solutions").rglob("*.ipynb"):
        target = course / "practice" / path.relative_to(course / "solutions")
        target.write_bytes(path.read_bytes())
    said(capsys, "hint", "absorb_query", course=course, status=0)
    said(capsys, "solution", "key_path_macs", "--reveal", course=course, status=0)
    out = said(capsys, course=course, status=0)
    assert "The course is done." in out
    assert "python judge.py 7" not in out, "what %judge in a browser would turn into a call that is refused there"
    assert "1 hint read, 1 solution read" in out
    assert "▣ 1 solved after reading the solution" in out
    assert f"{COUNT} of {COUNT} solved" in out
    assert "nothing had to run" in said(capsys, course=course, status=0)


def test_next_names_the_first_that_has_not_passed(course, capsys):  # noqa: F811
    out = said(capsys, "next", course=course, status=0)
    assert "Next: up_project_keys" in out
    assert "Save the notebook (Ctrl+S): the judge reads its file." in out
    answer(course, "up_project_keys", "def up_project_keys(latents, w_k):\n    return latents @ w_k\n")
    answer(course, "absorb_query", WRONG)
    said(capsys, course=course, status=1)
    out = said(capsys, "next", course=course, status=0)
    assert "Go on with: absorb_query" in out
    assert "practice/ch01_keys/keys.ipynb, cell" in out
    assert "Hints read: 0 of 3" in out
    assert main(["next", "--open"], course) == 1
    assert "no JupyterLab runs on this course" in capsys.readouterr().err


def test_next_opens_the_exercise_in_the_lab_that_runs(course, capsys, monkeypatch):  # noqa: F811
    from jupyter_server import serverapp

    servers = [
        {"root_dir": str(course / "elsewhere"), "url": "http://127.0.0.1:1/", "token": ""},
        {"root_dir": str(course), "url": "http://127.0.0.1:8888/", "token": "secret"},
    ]
    opened = []
    monkeypatch.setattr(serverapp, "list_running_servers", lambda: iter(servers))
    monkeypatch.setattr(onward.webbrowser, "open", opened.append)
    said(capsys, "next", "--open", course=course, status=0)
    address = "http://127.0.0.1:8888/lab/tree/practice/ch01_keys/keys.ipynb?token=secret"
    assert opened == [f"{address}#cell-id=up_project_keys-statement"]


def test_a_solution_is_shown_after_passing_or_on_demand(course, capsys):  # noqa: F811
    assert main(["solution", "absorb_query"], course) == 1
    out, err = capsys.readouterr()
    assert "@" not in out
    assert "has not passed yet" in err
    answer(course, "absorb_query", RIGHT)
    said(capsys, course=course, status=1)
    shown = said(capsys, "solution", "absorb_query", course=course, status=0)
    assert shown.startswith("def absorb_query")
    assert "SOLUTION" not in shown
    assert not Progress(course).exercises["absorb_query"].get("revealed"), "seen afterwards is not seen before"
    said(capsys, "solution", "up_project_keys", "--reveal", course=course, status=0)
    answer(course, "up_project_keys", "def up_project_keys(latents, w_k):\n    return latents @ w_k\n")
    assert "▣■··" in said(capsys, course=course, status=1)


def test_two_judges_at_once_lose_nothing(course):  # noqa: F811
    """Many that read, change and write the progress: every change is there at the end."""
    ids = list(exercises.ids())[:40]

    def note(id):
        with Progress.locked(course) as progress:
            progress.saw_hint(id, 2)

    threads = [threading.Thread(target=note, args=[id]) for id in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = Progress(course).exercises
    assert {id for id in ids if kept.get(id, {}).get("hints") == 2} == set(ids)


@pytest.fixture
def watcher(course):  # noqa: F811
    out = io.StringIO()
    with Runner() as runner:
        made = Watcher(course, runner, out)
        made.begin()
        yield made, out


def news(out):
    """What was said since the last look."""
    text = out.getvalue()
    out.seek(0)
    out.truncate()
    return text


def test_a_save_grades_the_answer_that_changed(course, watcher):  # noqa: F811
    watch, out = watcher
    assert "Watching practice/" in news(out)
    assert watch.look() == []
    answer(course, "absorb_query", WRONG)
    assert watch.look() == ["absorb_query"]
    assert "constant factor" in news(out)
    answer(course, "absorb_query", RIGHT)
    assert watch.look() == ["absorb_query"]
    assert "absorb_query: 9 of 9 cases" in news(out)
    assert Progress(course).exercises["absorb_query"]["verdict"] == "passed"
    os.utime(notebook_of(course, "absorb_query")[0])
    assert watch.look() == [], "saved, and nothing changed"


def test_a_helper_cell_grades_what_stands_below(course, watcher):  # noqa: F811
    watch, _ = watcher
    answer(course, "absorb_query", "def absorb_query(q_nope, w_k):\n    return mine(q_nope, w_k)\n")
    watch.look()
    path, data, cell = notebook_of(course, "absorb_query")
    helper = {**cell, "id": "mine", "metadata": {}, "source": "def mine(a, b):\n    return a @ b.T\n"}
    data["cells"].insert(1, helper)
    path.write_text(json.dumps(data))
    assert watch.look() == ["absorb_query"]
    assert Progress(course).exercises["absorb_query"]["verdict"] == "passed"


def test_half_a_notebook_is_waited_for(course, watcher):  # noqa: F811
    watch, out = watcher
    path = answer(course, "absorb_query", RIGHT)
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    later = threading.Timer(0.03, path.write_text, [whole])
    later.start()
    assert watch.look() == ["absorb_query"]
    later.join()
    news(out)
    path.write_text(whole[: len(whole) // 2])
    watch.look()
    told = news(out)
    assert "is not a notebook" in told, "a notebook that stays broken is said"
    assert "save it again, or move that file out of practice/" in told


def test_keys(course, watcher):  # noqa: F811
    watch, out = watcher
    answer(course, "absorb_query", RIGHT)
    watch.look()
    news(out)
    watch.press("n")
    assert "Next: up_project_keys" in news(out)
    watch.press("h")
    assert "up_project_keys, hint 1 of 3" in news(out)
    watch.press("h")
    assert "hint 2 of 3" in news(out)
    watch.press("l")
    assert "·■··" in news(out)
    watch.press("a")
    assert "✓ absorb_query" in news(out)
    watch.press("x")
    assert "q quit" in news(out)


def test_a_hint_is_for_the_answer_that_failed_until_it_passes(course, watcher):  # noqa: F811
    watch, out = watcher
    answer(course, "absorb_query", WRONG)
    watch.look()
    watch.press("h")
    assert "absorb_query, hint 1 of 3" in news(out)
    assert Progress(course).hints_seen("absorb_query") == 1
    answer(course, "absorb_query", RIGHT)
    watch.look()
    watch.press("h")
    assert "up_project_keys, hint 1 of 3" in news(out)
    answer(course, "key_path_macs", "def key_path_macs(*sizes):\n    return scores_absorbed(1, 2, 3)\n")
    watch.look()
    watch.press("h")
    assert "scores_absorbed, hint 1 of 3" in news(out), "a stub that the answer calls"


def test_a_hint_when_all_is_solved(course, watcher, monkeypatch):  # noqa: F811
    watch, out = watcher
    monkeypatch.setattr(watch, "results_known", list)
    watch.press("h")
    assert "Every exercise that can run here has passed. A hint of one of them: python judge.py hint ID" in news(out)


def test_the_command_grades_what_is_saved_and_quits(course):  # noqa: F811
    command = [sys.executable, "-u", "judge.py", "watch"]
    with subprocess.Popen(command, cwd=course, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as judge:
        lines = iter(judge.stdout.readline, "")
        assert any("Watching" in line for line in lines)
        answer(course, "absorb_query", RIGHT)
        assert any("✓ absorb_query" in line for line in lines)
        judge.stdin.write("q\n")
        judge.stdin.flush()
        assert judge.wait(20) == 0


def test_a_terminal_gives_keys_one_by_one_and_is_put_back():
    import pty
    import termios

    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal:
        before = termios.tcgetattr(theirs)
        with one_key(terminal) as key_within:
            assert termios.tcgetattr(theirs)[3] != before[3]
            assert key_within(0.01) == ""
            os.write(ours, b"hQ")
            assert [key_within(5), key_within(5)] == ["h", "q"], "keys typed at once are two"
            os.write(ours, b"\x1b[A")
            assert [key_within(5), key_within(0.01)] == ["", ""], "an arrow is no key"
            os.write(ours, b"\x04")
            assert key_within(5) == "q"
        assert termios.tcgetattr(theirs) == before
    os.close(ours)


def test_the_end_of_the_input_ends_watching(tmp_path):
    (tmp_path / "empty").touch()
    with open(tmp_path / "empty") as stream, one_key(stream) as key_within:
        start = time.monotonic()
        assert key_within(5) == "q"
        assert time.monotonic() - start < 4
