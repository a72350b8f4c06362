"""Hostile and broken submissions: each gets its verdict, and nothing outside its own process notices.

Where the tests run as root, what concerns files, processes and rights is tried as an ordinary user too. With
``LEDGER_ATTACKS_AS_NOBODY=1`` in the environment every submission is: a minute or two more.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from attacks import suite
from need import need

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
    "crash_patched_wire",
    "error_load_oracle",
    "error_outlive_judge",
    "ok_new_session",
    "dispatch_and_combine/error_crafted_file",
)
#: What is tried as another user too: what concerns files, processes and rights, and one of each kind besides.
AS_NOBODY = (
    *SOME,
    "error_c_fork",
    "error_c_open",
    "error_c_socket",
    "error_capabilities",
    "error_change_folder",
    "error_chmod",
    "error_database",
    "error_devices",
    "error_exec",
    "error_handles",
    "error_io_uring",
    "error_kernel_doors",
    "error_kill_all",
    "error_mapped_for_writing",
    "error_namespaces",
    "error_own_memory",
    "error_parent_memory",
    "error_proc_root",
    "error_queues",
    "error_read_oracle",
    "error_read_solution",
    "error_remove",
    "error_signal_owner",
    "error_spawn",
    "error_special_file",
    "error_tcp",
    "error_trace",
    "error_truncate",
    "ok_threads_left",
    "wrong_stack_search",
    "dispatch_and_combine/error_process_group",
    "dispatch_and_combine/error_saved_file",
    "dispatch_and_combine/error_shared_file",
    "dispatch_and_combine/ok_plain",
    "absorb_heads_kernel/error_file_in_kernel",
    "absorb_heads_kernel/ok_plain",
    "absorb_heads_kernel/wrong_numpy_behind",
)
if os.environ.get("LEDGER_ATTACKS_AS_NOBODY"):
    AS_NOBODY = tuple(map(suite.name_of, suite.FILES))
#: The user and the group that nothing belongs to.
NOBODY = 65534

pytestmark = pytest.mark.skipif(
    set(sandbox.LAYERS) - set(sandbox.layers_available()) != set(),
    reason="this system does not offer every layer of isolation; `python judge.py doctor` names them",
)


def run_suite(mode: str, folder: Path, names: tuple[str, ...] = (), user: int | None = None) -> SimpleNamespace:
    """Run the suite in a fresh process on a planted folder, and note the folder before and after; as another ``user``,
    who may write there but for the jail."""
    mark = f"mark_{os.getpid()}_{mode}_{user}"
    for name in ("solutions", "home"):
        (folder / name).mkdir()
    (folder / "solutions" / "project.py").write_text("def project(x, w):\n    return x @ w\n")
    keep = folder / "keep.txt"
    keep.write_text("keep")
    how, variables = [], dict(os.environ)
    if user is not None:
        how, variables = as_user(user), variables | {"HOME": str(folder / "home")}
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, user)
    before = (*listing(folder), keep.read_text(), keep.stat())
    command = [*how, sys.executable, suite.__file__, mode, str(folder), mark, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=variables)
    assert done.returncode == 0, done.stderr
    after = (*listing(folder), keep.read_text(), keep.stat())
    return SimpleNamespace(**json.loads(done.stdout), mark=mark, folder=folder, before=before, after=after)


def as_user(user: int) -> list[str]:
    """What stands before a command that runs as ``user`` without any right but to read, which it needs where Python
    lies in a folder of root's alone."""
    right = "-all,+dac_read_search"
    rights = [f"--{of}={right}" for of in ("inh-caps", "ambient-caps", "bounding-set")]
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *rights]


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


@pytest.fixture(scope="module")
def nobody():
    """The suite as an ordinary user, where these tests run as root; elsewhere they run as one anyway."""
    if os.getuid() != 0:
        pytest.skip("these tests run as an ordinary user already")
    if not shutil.which("setpriv") or subprocess.run([*as_user(NOBODY), sys.executable, "-c", ""]).returncode:
        pytest.skip("no command can be started as another user here: install util-linux")
    # Not below pytest's own folder, which no other user may enter.
    with tempfile.TemporaryDirectory() as folder:
        yield run_suite("fork", Path(folder), AS_NOBODY, NOBODY)


def check_verdict(ran: SimpleNamespace, path: Path) -> None:
    """Hold a file's verdict against its name."""
    if suite.exercise_of(path):
        need(suite.exercise_of(path))
    name = suite.name_of(path)
    assert ran.verdicts[name] in suite.allowed(path), ran.why[name]


@pytest.mark.parametrize("path", suite.FILES, ids=suite.name_of)
def test_verdict(forked, path):
    check_verdict(forked, path)


@pytest.mark.parametrize("name", SOME)
def test_verdict_of_a_cold_start(cold, name):
    check_verdict(cold, next(path for path in suite.FILES if suite.name_of(path) == name))


@pytest.mark.parametrize("name", AS_NOBODY)
def test_verdict_as_nobody(nobody, name):
    check_verdict(nobody, next(path for path in suite.FILES if suite.name_of(path) == name))


def test_the_suite_is_wide():
    """At least a hundred submissions, and some for NumPy, torch and Triton each."""
    needs = [suite.exercise_of(path).needs if suite.exercise_of(path) else () for path in suite.FILES]
    assert len(suite.FILES) >= 200
    assert min(needs.count(()), needs.count(("torch",)), needs.count(("torch", "triton"))) >= 20


@pytest.fixture(params=["forked", "cold", "nobody"])
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
