"""Hostile and broken submissions: each gets its verdict, and nothing outside its own process notices."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from attacks import suite

from ledger.judge import sandbox

#: One file of each kind, for the mode that starts an interpreter for each job.
SOME = (
    "ok_plain",
    "ok_thread_prints",
    "ok_notebook_helpers",
    "missing_misspelt",
    "wrong_huge_result",
    "error_fork",
    "error_patched_array",
    "error_survivor",
    "error_write",
    "error_import_oracle",
    "error_kill_parent",
    "timeout_loop",
    "memory_kept",
    "output_flood",
    "crash_exit",
)

pytestmark = pytest.mark.skipif(
    set(sandbox.LAYERS) - set(sandbox.layers_available()) != set(),
    reason="this system does not offer every layer of isolation; `python judge.py doctor` names them",
)


def run_suite(mode: str, folder: Path, names: tuple[str, ...] = ()) -> SimpleNamespace:
    """Run the suite in a fresh process on a planted folder, and note the folder before and after."""
    mark = f"mark_{os.getpid()}_{mode}"
    (folder / "solutions").mkdir()
    (folder / "solutions" / "project.py").write_text("def project(x, w):\n    return x @ w\n")
    keep = folder / "keep.txt"
    keep.write_text("keep")
    before = (*listing(folder), keep.read_text(), keep.stat())
    command = [sys.executable, suite.__file__, mode, str(folder), mark, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    after = (*listing(folder), keep.read_text(), keep.stat())
    return SimpleNamespace(**json.loads(done.stdout), mark=mark, folder=folder, before=before, after=after)


def listing(folder: Path) -> list[str]:
    """Every name below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def commands() -> list[str]:
    """The command lines of all processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def forked(tmp_path_factory) -> SimpleNamespace:
    return run_suite("fork", tmp_path_factory.mktemp("canary"))


@pytest.fixture(scope="module")
def cold(tmp_path_factory) -> SimpleNamespace:
    return run_suite("cold", tmp_path_factory.mktemp("canary"), SOME)


@pytest.mark.parametrize("path", suite.FILES, ids=lambda path: path.stem)
def test_verdict(forked, path):
    assert forked.verdicts[path.name] in suite.allowed(path), forked.why[path.name]


@pytest.mark.parametrize("name", SOME)
def test_verdict_of_a_cold_start(cold, name):
    path = next(path for path in suite.FILES if path.stem == name)
    assert cold.verdicts[path.name] in suite.allowed(path), cold.why[path.name]


@pytest.fixture(params=["forked", "cold"])
def ran(request) -> SimpleNamespace:
    return request.getfixturevalue(request.param)


def test_the_next_job_is_not_affected(ran):
    assert set(ran.later.values()) == {"passed"}, ran.later


def test_planted_files_are_intact(ran):
    # Access times may change with the test's own reading; everything else of the file is as it was.
    *names, text, stat = ran.after
    *names_before, text_before, stat_before = ran.before
    assert (names, text) == (names_before, text_before)
    same = ("st_mode", "st_mtime_ns", "st_ctime_ns", "st_nlink", "st_size", "st_uid")
    assert [getattr(stat, name) for name in same] == [getattr(stat_before, name) for name in same]


def test_nothing_was_written_elsewhere(ran):
    for folder in (Path.home(), Path(tempfile.gettempdir()), Path.cwd(), Path("/")):
        assert not (folder / ran.mark).exists()


def test_nothing_is_left_running(ran):
    assert [line for line in commands() if ran.mark in line or str(ran.folder) in line] == []


def test_the_judge_stays_small(ran):
    assert ran.peak_mb < 100
