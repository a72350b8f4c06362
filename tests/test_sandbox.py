"""The jail: which calls its filter lets through, what stays readable, and that nothing forbidden works inside it."""

import errno
import os
import re
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest

from ledger.judge import launch, sandbox
from ledger.judge.outcome import Call, Cell, Job
from ledger.judge.run import IsolationError, Runner

ARCHITECTURES = ("x86_64", "aarch64")
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
ALLOWED, DENIED, ABSENT, KILLED = "allowed", "denied", "absent", "killed"
every_layer = pytest.mark.skipif(
    not set(sandbox.LAYERS) <= set(sandbox.layers_available()),
    reason="this system does not offer every layer of isolation",
)


def decide(architecture: str, number: int, *arguments: int, arch: int | None = None) -> str:
    """What the filter says to a system call: classic BPF, interpreted after linux/filter.h and linux/seccomp.h."""
    data = {0: number, 4: sandbox._AUDIT_ARCH[architecture] if arch is None else arch}
    for place, argument in enumerate((*arguments, *[0] * (6 - len(arguments)))):
        data[16 + 8 * place] = argument & 0xFFFFFFFF
        data[20 + 8 * place] = argument >> 32 & 0xFFFFFFFF
    program, at, accumulator = sandbox.seccomp_program(), 0, 0
    while True:
        code, if_true, if_false, value = program[at]
        at += 1
        if code == 0x20:  # BPF_LD | BPF_W | BPF_ABS
            accumulator = data[value]
        elif code == 0x06:  # BPF_RET | BPF_K
            return {0x7FFF0000: ALLOWED, 0x00050001: DENIED, 0x00050026: ABSENT, 0x80000000: KILLED}[value]
        else:
            taken = {
                0x15: accumulator == value,  # BPF_JMP | BPF_JEQ
                0x35: accumulator >= value,  # BPF_JMP | BPF_JGE
                0x45: bool(accumulator & value),  # BPF_JMP | BPF_JSET
            }[code]
            at += if_true if taken else if_false


@pytest.fixture(params=ARCHITECTURES)
def architecture(request, monkeypatch) -> str:
    monkeypatch.setattr(sandbox, "_MACHINE", request.param)
    return request.param


def test_calls_that_libraries_need_pass(architecture):
    # read, write, mmap, munmap, futex, openat: arch/x86/entry/syscalls/syscall_64.tbl, asm-generic/unistd.h
    numbers = {"x86_64": (0, 1, 9, 11, 202, 257), "aarch64": (63, 64, 222, 215, 98, 56)}[architecture]
    assert {decide(architecture, number) for number in numbers} == {ALLOWED}


def test_every_forbidden_call_is_denied(architecture):
    for name in sandbox._DENIED:
        number = sandbox._number(name)
        if number is not None:
            assert decide(architecture, number) == DENIED, name


def test_threads_start_and_processes_do_not(architecture):
    clone, clone3 = sandbox._number("clone"), sandbox._number("clone3")
    glibc_thread, sigchld = 0x3D0F00, 17  # pthread_create's flags, fork's
    assert decide(architecture, clone, glibc_thread) == ALLOWED
    assert decide(architecture, clone, sigchld) == DENIED
    assert decide(architecture, clone3, 0x1000, 88) == ABSENT


@pytest.mark.parametrize("name", ["kill", "tgkill"])
def test_signals_reach_only_the_process_itself(architecture, name):
    number = sandbox._number(name)
    assert decide(architecture, number, os.getpid(), 6) == ALLOWED
    for other in (os.getppid(), 0, 1, -1 & 0xFFFFFFFF, -os.getpid() & 0xFFFFFFFF):
        assert decide(architecture, number, other, 9) == DENIED


def test_limits_may_be_asked_for_and_not_set(architecture):
    number = sandbox._number("prlimit64")
    assert decide(architecture, number, 0, 9, 0, 0x7F00_0000_1000) == ALLOWED
    for new_limit in (0x1000, 0x7F00_0000_1000, 0x1_0000_0000):
        assert decide(architecture, number, 0, 9, new_limit, 0) == DENIED


@pytest.mark.parametrize(
    ("name", "command", "answer"),
    [
        ("fcntl", 1030, ALLOWED),  # F_DUPFD_CLOEXEC
        ("fcntl", 8, DENIED),  # F_SETOWN
        ("fcntl", 10, DENIED),  # F_SETSIG
        ("fcntl", 15, DENIED),  # F_SETOWN_EX
        ("ioctl", 0x5401, ALLOWED),  # TCGETS
        ("ioctl", 0x5412, DENIED),  # TIOCSTI
    ],
)
def test_commands_that_signal_or_type_are_denied(architecture, name, command, answer):
    assert decide(architecture, sandbox._number(name), 1, command) == answer


def test_a_process_still_ends_with_its_parent(architecture):
    prctl = sandbox._number("prctl")
    assert decide(architecture, prctl, 1, 0) == DENIED  # PR_SET_PDEATHSIG
    assert decide(architecture, prctl, 1 << 32 | 1, 0) == DENIED  # the kernel reads an int
    assert decide(architecture, prctl, 15, 0x1000) == ALLOWED  # PR_SET_NAME


def test_another_architecture_ends_the_process(architecture):
    i386 = 0x40000003
    assert decide(architecture, 0, arch=i386) == KILLED


def test_the_x32_calls_are_denied(monkeypatch):
    monkeypatch.setattr(sandbox, "_MACHINE", "x86_64")
    assert decide("x86_64", 0x40000000 | 57) == DENIED


def test_call_numbers_are_the_kernels(architecture):
    header = HEADERS[architecture]
    if not header.is_file():
        pytest.skip(f"no {header}: install linux-libc-dev")
    defined = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text()))
    compared = 0
    for name in sandbox._SYSCALLS:
        number = sandbox._number(name)
        if name in defined and (architecture == "x86_64" or number is not None):
            assert str(number) == defined[name], name
            compared += 1
    assert compared > 70


def test_layers_are_named_with_how_far_they_go():
    found = sandbox.layers_available()
    assert set(found) <= set(sandbox.LAYERS)
    assert all(found.values())


@pytest.fixture
def tree(tmp_path) -> Path:
    for path in ("lib/numpy/core", "lib/ledger/exercises", "lib/site/extra", "course/solutions", "course/venv/lib"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "file.py").touch()
    (tmp_path / "lib/link").symlink_to(tmp_path / "course/solutions")
    (tmp_path / "lib/ledger.pth").touch()
    return tmp_path


def names(tree: Path, roots: list[str], hidden: list[str]) -> tuple[set[str], set[str]]:
    found = sandbox.readable([tree / root for root in roots], [tree / path for path in hidden])
    whole, listed = ({str(Path(path).relative_to(tree)) for path in paths} for paths in found)
    return whole, listed


def test_a_root_without_a_secret_is_readable_whole(tree):
    assert names(tree, ["lib"], ["course/solutions"]) == ({"lib"}, set())


def test_beside_a_secret_every_entry_is_allowed_by_itself(tree):
    whole, listed = names(tree, ["lib"], ["lib/ledger"])
    assert whole == {"lib/numpy", "lib/site", "lib/ledger.pth"}
    assert listed == {"lib"}


def test_a_secret_further_down_is_stepped_around(tree):
    whole, listed = names(tree, ["lib"], ["lib/ledger/exercises"])
    assert whole == {"lib/numpy", "lib/site", "lib/ledger.pth"}
    assert listed == {"lib", "lib/ledger"}


def test_a_library_inside_a_hidden_folder_stays_readable(tree):
    assert names(tree, ["course/venv/lib"], ["course"]) == ({"course/venv/lib"}, set())


def test_a_secret_that_is_a_root_is_not_readable(tree):
    assert names(tree, ["lib/ledger"], ["lib/ledger"]) == (set(), set())


def test_a_root_that_is_a_link_is_taken_for_its_target(tree):
    assert names(tree, ["lib/link"], ["course/solutions"]) == (set(), set())


def test_the_courses_own_files_are_hidden():
    package = Path(sandbox.__file__).parents[1]
    whole, _ = sandbox.readable(sandbox.library_paths(), sandbox.hidden_paths())
    for path in (package / "exercises" / "base.py", package.parent, package):
        assert not any(path.is_relative_to(root) for root in whole)


def ask(source: str, runner: Runner) -> object:
    """The value that ``source``'s ``probe(x)`` returns in the jail."""
    job = Job("probe", (Cell("cell", source),), (Call({"x": np.zeros(1)}),))
    outcome = runner.run(job).outcomes[0]
    assert outcome.kind == "returned", outcome
    return outcome.value


@every_layer
@pytest.mark.parametrize("mode", ["fork", "cold"])
def test_nothing_forbidden_works_in_the_jail(mode):
    with Runner(mode=mode, isolation="require") as runner:
        assert runner.isolation.allowed == ()
        assert runner.isolation.holds
        assert runner.layers == sandbox.LAYERS
        assert {probe.layer for probe in runner.isolation.probes} == {"limits", "landlock", "seccomp"}


@every_layer
@pytest.mark.parametrize("missing", ["limits", "landlock", "seccomp"])
def test_a_missing_layer_is_noticed(missing):
    """The self-test bites: without a layer, the actions that only it denies work, and nothing is run."""
    only = {
        "limits": {"use more memory than allowed"},
        "landlock": {
            "read a file",
            "list a folder",
            "read the course's code",
            "open a file for writing",
            "make a file",
        },
        "seccomp": {"fork", "send by UDP", "connect to a Unix socket", "change a file's mode"},
    }[missing]
    with Runner(mode="fork", isolation="require", layers=[n for n in sandbox.LAYERS if n != missing]) as runner:
        assert only <= set(runner.isolation.allowed)
        assert missing not in runner.layers
        with pytest.raises(IsolationError, match=min(only)):
            runner.run(Job("f", (Cell("c", "f = len"),), (Call({"x": [1]}),)))


@every_layer
def test_a_folder_may_be_hidden_among_the_libraries():
    """The libraries around it stay importable, the package beside it too, as when the course is installed there."""
    hidden = Path(np.__file__).parent / "fft"
    source = (
        "import os, numpy.polynomial\n"
        "def probe(x):\n"
        f"    listed = os.listdir({str(hidden.parent)!r})\n"
        "    import numpy.ma.mrecords, colorsys\n"
        f"    try:\n        open({str(hidden / '__init__.py')!r}).read()\n"
        "    except PermissionError:\n        return 'ma' in listed\n"
    )
    with Runner(extra_hidden=[hidden], mode="fork") as runner:
        assert ask(source, runner) is True


def plant_copies(folder: Path) -> tuple[Path, Path]:
    """Two further copies of the course: one in a source tree with its solutions, one among installed packages."""
    package = Path(sandbox.__file__).parents[1]
    source, installed = folder / "other" / "src", folder / "lib" / "site-packages"
    for place in (source, installed):
        shutil.copytree(package / "reference", place / "ledger" / "reference")
        (place / "ledger" / "__init__.py").touch()
        (place / "beside.py").write_text("VALUE = 3\n")
    (folder / "other" / "solutions").mkdir()
    (folder / "other" / "solutions" / "answer.py").write_text("SECRET = 1\n")
    return source, installed


ORACLE = """
import os, sys
def probe(x):
    found = []
    for place in PLACES:
        sys.path.insert(0, place)
        for name in [name for name in sys.modules if name.split('.')[0] == 'ledger']:
            del sys.modules[name]
        try:
            from ledger.reference.mla import absorb_query
            found.append(place)
        except (ImportError, PermissionError):
            pass
        for path in (place + '/ledger/reference/mla.py', place + '/../solutions/answer.py'):
            try:
                open(path).close()
                found.append(path)
            except OSError:
                pass
    return found
"""

FINDER = """
import sys
from importlib.machinery import PathFinder
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [PLACE]) if name == 'ledger' else None
sys.meta_path.append(Finder)
"""


@every_layer
@pytest.mark.parametrize("mode", ["fork", "cold"])
@pytest.mark.parametrize("how", ["path", "finder"])
def test_no_other_copy_of_the_course_is_readable(mode, how, tmp_path, monkeypatch):
    """The interpreter has further copies: a folder on its path, an installed package, an editable install's finder."""
    places = [str(place) for place in plant_copies(tmp_path)]
    starts = {
        "path": f"import sys; sys.path += {[*places, str(tmp_path / 'other')]!r}\n",
        "finder": FINDER.replace("PLACE", repr(places[0])),
    }
    monkeypatch.setattr("ledger.judge.launch._STARTER", starts[how] + launch._STARTER)
    source = f"import beside\nPLACES = {places!r}\n" if how == "path" else f"PLACES = {places!r}\n"
    with Runner(mode=mode) as runner:
        assert ask(source + ORACLE, runner) == []
        meta = "import sys\ndef probe(x):\n    return [str(finder) for finder in sys.meta_path], sys.path"
        finders, path = ask(meta, runner)
    assert not any("__main__.Finder" in finder for finder in finders)
    assert places[0] not in path


@every_layer
def test_the_self_test_tries_every_copy(tmp_path, monkeypatch):
    """A copy that only the judge's own path has lies outside the libraries; it is probed all the same."""
    source, _ = plant_copies(tmp_path)
    monkeypatch.syspath_prepend(source)
    with Runner(mode="fork") as runner:
        probes = {probe.action: probe.denied for probe in runner.isolation.probes}
    assert [denied for action, denied in probes.items() if str(source) in action] == [True]
    with Runner(mode="fork", layers=["limits", "seccomp"]) as runner:
        assert any(str(source) in action for action in runner.isolation.allowed)


def test_copies_are_found_and_other_things_of_the_name_are_not(tmp_path):
    source, installed = plant_copies(tmp_path)
    (tmp_path / "tools" / "ledger" / "accounts").mkdir(parents=True)
    roots = [source, installed.parent, tmp_path / "tools", tmp_path / "nowhere"]
    assert sandbox.course_copies(roots) == [source / "ledger", installed / "ledger"]
    assert sandbox.around(source / "ledger") == [source / "ledger", source, source.parent]
    assert sandbox.around(installed / "ledger") == [installed / "ledger"]


@pytest.mark.parametrize("folder", ["course", "home"])
def test_no_library_makes_the_home_or_the_course_readable(folder, tree, monkeypatch):
    """A folder that somebody put on the path of modules or libraries does not open it."""
    monkeypatch.setenv("HOME", str(tree / "course"))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tree / 'course'}:/:relative")
    monkeypatch.syspath_prepend(tree)
    extra = [tree / "course"] if folder == "course" else []
    whole, _ = sandbox.readable(sandbox.library_paths(), sandbox.hidden_paths(extra))
    secret = tree / "course" / "solutions" / "file.py"
    assert str(tree / "lib") in whole
    assert not any(secret.is_relative_to(path) for path in whole)


@every_layer
@pytest.mark.parametrize("mode", ["fork", "cold"])
def test_the_jail_holds_nothing_of_the_judges(mode, monkeypatch):
    monkeypatch.setenv("LEDGER_TEST_SECRET", "secret")
    source = (
        "import os, sys\n"
        "def probe(x):\n"
        "    opened = []\n"
        "    for fd in range(1024):\n"
        "        try:\n            os.fstat(fd)\n            opened.append(fd)\n"
        "        except OSError:\n            pass\n"
        "    course = sorted(name for name in sys.modules if name.split('.')[0] == 'ledger')\n"
        "    return opened, os.getcwd(), dict(os.environ), course\n"
    )
    with Runner(mode=mode) as runner:
        opened, folder, variables, modules = ask(source, runner)
    assert opened == [0, 1, 2, 3, 4]
    assert folder == "/"
    assert "secret" not in str(variables)
    judge = {f"ledger.judge.{name}" for name in ("guard", "load", "observe", "outcome", "sandbox", "server", "wire")}
    course = {name for name in modules if not name.startswith(("ledger.count", "ledger.judge.launchers"))}
    # What launchers stand on: a world in memory, and the packages around Triton's watcher, empty without its libraries.
    apart = {"ledger.kernels", "ledger.kernels.interpret"}
    apart |= {"ledger.parallel", "ledger.parallel.memory", "ledger.parallel.world"}
    assert course - apart == {"ledger", "ledger.judge", "ledger.machines", "ledger.models", "ledger.setups"} | judge


@pytest.fixture
def bwrap(tmp_path, monkeypatch):
    """A function that puts a stand-in for bubblewrap on the path; it gets the command without bubblewrap's options."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    launch.bubblewrap.cache_clear()
    yield lambda body: (
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\nshift 9\n{body}\n"),
        (tmp_path / "bwrap").chmod(0o755),
    )
    launch.bubblewrap.cache_clear()


def test_servers_stand_in_a_bubblewrap_that_works(bwrap, tmp_path):
    bwrap(f'echo once >> {tmp_path}/asked\nexec "$@"')
    with Runner(outer=True) as runner:
        assert runner.layers[0] == "bubblewrap"
        run = runner.run(Job("f", (Cell("cell", "def f(x):\n    return x + 1"),), (Call({"x": 1}),)))
        assert run.outcomes[0].value == 2
    assert (tmp_path / "asked").read_text().count("once") == 2, "one try, one server"
    with Runner() as runner:
        assert "bubblewrap" not in runner.layers, "a learner's own answers need none"


@pytest.mark.parametrize("body", ["exit 1", "sleep 60"])
def test_a_bubblewrap_that_does_not_work_is_none(bwrap, body, monkeypatch):
    monkeypatch.setattr(launch, "_TRIED_SECONDS", 0.2)
    bwrap(body)
    with Runner(outer=True) as runner:
        assert "bubblewrap" not in runner.layers
        assert runner.run(Job("f", (Cell("cell", "def f():\n    return 1"),), (Call({}),))).outcomes[0].value == 1


@pytest.mark.skipif(not launch.bubblewrap(), reason="no bubblewrap works here: it is not installed, or not allowed to")
@pytest.mark.parametrize("mode", ["fork", "cold"])
def test_a_real_bubblewrap_is_read_only_and_without_a_network(mode, tmp_path):
    """Whatever the other layers do: none of them is on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), 1).close()  # from here it can be reached
        source = f"""
import socket, os
def f():
    found = []
    for act in (lambda: open({str(tmp_path / "made")!r}, "w"),
                lambda: socket.create_connection(("127.0.0.1", {port}), 1),
                lambda: os.kill({os.getpid()}, 0)):
        try:
            act()
            found.append("done")
        except OSError as error:
            found.append(error.errno)
    return tuple(found)
"""
        with Runner(mode=mode, layers=(), outer=True) as runner:
            run = runner.run(Job("f", (Cell("cell", source),), (Call({}),)))
    write, connect, signal = run.outcomes[0].value
    assert write == errno.EROFS
    assert connect in (errno.ECONNREFUSED, errno.ENETUNREACH)
    assert signal == errno.ESRCH
    assert not (tmp_path / "made").exists()
