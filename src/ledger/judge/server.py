"""The process that answers run in, and the server that forks it.

Run by ``ledger.judge.run`` in an interpreter of its own, started with ``-I``, so that neither the learner's folder nor
their environment can stand in for a module. A server imports the libraries once and then forks one process for each
job; where forking is not safe the same code serves one job in a process that was started for it. Of ``ledger`` it
imports what an answer may see and nothing that holds a right value; inputs and results pass by it, from the judge to
the process of the job.
"""

import contextlib
import fcntl
import gc
import importlib
import io
import json
import mmap
import os
import pkgutil
import signal
import socket
import sys
import traceback
import types
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NoReturn

import ledger
from ledger.judge import sandbox, wire
from ledger.judge.launchers import launched
from ledger.judge.load import QUIET, load
from ledger.judge.observe import FURTHER, call_plain, further_calls, raised, watch_tracing
from ledger.judge.outcome import Call, Cell, Outcome

#: What of the course an answer may import, each with everything below it.
ALLOWED = ("ledger.count", "ledger.machines", "ledger.models", "ledger.setups")

#: What a process of an answer has imported besides, in the same way.
OWN = ("ledger.judge.launchers",)

#: Libraries that cost more to import than everything else together.
HEAVY = ("matplotlib", "torch", "triton")

#: Where a job's descriptors lie in its process; 0, 1 and 2 are the answer's own.
JOB, REPLY, RULESET = 3, 4, 5
_ABOVE = 10
_RESERVE_BYTES = 8 << 20


def main() -> None:
    """Serve as the JSON in the first argument says: ``control`` is the descriptor of a server's socket, ``job`` the
    three descriptors of the one job of a process without a server."""
    config = json.loads(sys.argv[1])
    control = socket.socket(fileno=config["control"]) if "control" in config else None
    try:
        preload(config["preload"])
        libraries = sandbox.library_paths()
        copies = sandbox.course_copies(libraries)
        hidden = [path for copy in copies for path in sandbox.around(copy)]
        hide_course(copies)
        watch_tracing()
        whole, listed = sandbox.readable(libraries, [*config["hidden"], *hidden])
        wanted = "landlock" in config["layers"]
        ruleset = sandbox.landlock_ruleset(whole, listed, ["/dev/null"]) if wanted else None
    except Exception as error:
        if control:
            control.send(json.dumps({"error": f"{type(error).__name__}: {error}"[:1000]}).encode())
        raise
    if control:
        serve_forks(control, ruleset, tuple(config["layers"]))
    sandbox.die_with_parent()
    serve_job(*config["job"], ruleset, tuple(config["layers"]))


def preload(modules: list[str]) -> None:
    """Import what an answer may use, so that it need not be found and read in the jail.

    A part of the course that needs a heavy library is imported only where ``modules`` ask for that library.
    """
    for name in modules:
        importlib.import_module(name)
    unwanted = [name for name in HEAVY if name not in sys.modules]
    sys.modules.update(dict.fromkeys(unwanted))  # None there makes an import fail
    for name in (*ALLOWED, *OWN):
        module = importlib.import_module(name)
        for found in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
            try:
                importlib.import_module(found.name)
            except ImportError as error:
                if error.name not in unwanted:
                    raise
    for name in unwanted:
        del sys.modules[name]


def hide_course(copies: list[Path]) -> None:
    """Make the rest of ``ledger`` unimportable, from any of its ``copies``, and what notebooks call of it harmless."""
    sources = {str(copy.parent) for copy in copies if not copy.parent.name.endswith("-packages")}
    sys.path[:] = [path for path in sys.path if os.path.realpath(path) not in sources]
    sys.path_importer_cache.clear()
    # An editable install may have a finder of its own.
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder is PathFinder or not finds_course(finder)]
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "ledger" and hasattr(module, "__path__"):
            module.__path__ = []
    vars(ledger).update(QUIET)


def finds_course(finder: Any) -> bool:
    """Whether an import hook knows of ``ledger``."""
    with contextlib.suppress(Exception):
        return finder.find_spec("ledger", None) is not None
    return False


def serve_forks(control: socket.socket, ruleset: int | None, layers: tuple[str, ...]) -> NoReturn:
    """Fork a process for each ``fork`` that comes with the three descriptors of a job, and end it on ``reap``.

    A process is not waited for before its ``reap``, so its number cannot come to mean another one. When the judge has
    gone, everything that was forked ends with this server.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sandbox.adopt_orphans()
    gc.collect()
    gc.freeze()
    workers: set[int] = set()
    control.send(json.dumps({"ready": True}).encode())
    while True:
        data, fds, _, _ = socket.recv_fds(control, 4096, 3)
        if not data:
            break
        request = json.loads(data)
        try:
            answer = fork(fds, workers, ruleset, layers) if request["op"] == "fork" else reap(request["pid"], workers)
        except OSError as error:
            answer = {"error": f"{request['op']}: {error}"}
        finally:
            for fd in fds:
                os.close(fd)
        control.send(json.dumps(answer).encode())
    for pid in list(workers):
        reap(pid, workers)
    os._exit(0)


def fork(fds: list[int], workers: set[int], ruleset: int | None, layers: tuple[str, ...]) -> dict[str, int]:
    """Fork the process of one job."""
    server = os.getpid()
    pid = os.fork()
    if pid:
        workers.add(pid)
        return {"pid": pid}
    try:
        sandbox.die_with_parent()
        if os.getppid() == server:
            serve_job(*fds, ruleset, layers)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def reap(pid: int, workers: set[int]) -> dict[str, float]:
    """End a process that this server forked, if it has not ended, and everything that such processes left behind."""
    if pid not in workers:
        raise ProcessLookupError(f"{pid} is not a process of this server")
    os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    workers.discard(pid)
    end_orphans(workers)
    return {"status": status, "peak_kb": usage.ru_maxrss, "cpu": usage.ru_utime + usage.ru_stime}


def end_orphans(workers: set[int]) -> None:
    """End the children of this process that it did not fork: an answer's own, where no filter kept it from forking."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            orphans = [int(pid) for pid in file.read().split() if int(pid) not in workers]
    except OSError:
        return
    for pid in orphans:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue
    if orphans:
        end_orphans(workers)


def serve_job(job: int, reply: int, output: int, ruleset: int | None, layers: tuple[str, ...]) -> NoReturn:
    """Enter the jail and run one job: load the cells, then one call after another, until the judge closes ``job``."""
    ruleset = arrange_descriptors(job, reply, output, ruleset)
    os.chdir("/")
    reader = wire.FrameReader(sys.maxsize, wire.JOB_HEADER)
    start = wire.receive(JOB, reader).message
    held = sandbox.enter(start["memory_mb"], start["cpu_seconds"], ruleset, layers)
    if ruleset is not None:
        os.close(ruleset)
    wire.send(REPLY, {"layers": list(held)})
    if "probe" in start:
        probe(sandbox.Targets(**start["probe"]))
    run_job(start["function"], start["launcher"], [Cell(*cell) for cell in start["cells"]], reader)


def arrange_descriptors(job: int, reply: int, output: int, ruleset: int | None) -> int | None:
    """Give this process the descriptors of its job and no other, an empty input, and an output that is not buffered."""
    aside = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for fd in (job, reply, output)]
    kept = fcntl.fcntl(ruleset, fcntl.F_DUPFD_CLOEXEC, _ABOVE) if ruleset is not None else None
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(aside[2], 1)
    os.dup2(aside[2], 2)
    os.dup2(aside[0], JOB, inheritable=False)
    os.dup2(aside[1], REPLY, inheritable=False)
    if kept is not None:
        os.dup2(kept, RULESET, inheritable=False)
    close_others({0, 1, 2, JOB, REPLY} | ({RULESET} if kept is not None else set()))
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.FileIO(0))
    # Nothing is held back in a buffer, so a result never waits for a thread that is printing.
    sys.stdout = sys.__stdout__ = _unbuffered(1)
    sys.stderr = sys.__stderr__ = _unbuffered(2)
    return None if kept is None else RULESET


def close_others(kept: set[int]) -> None:
    """Close every descriptor but ``kept``. The number that may be open can be a billion, so those that are, are listed
    where that is possible."""
    try:
        opened = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        opened = range(min(os.sysconf("SC_OPEN_MAX"), 4096))
    for fd in opened:
        if fd not in kept:
            with contextlib.suppress(OSError):
                os.close(fd)


def _unbuffered(fd: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.FileIO(fd, "w", closefd=False), "utf-8", "backslashreplace", write_through=True)


def run_job(function: str, launcher: str, cells: list[Cell], reader: wire.FrameReader) -> NoReturn:
    """Load the cells and answer each call with its outcome."""
    os.environ["HOME"] = "/nonexistent"
    sys.argv[:] = ["answer"]
    sys.dont_write_bytecode = True
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    # Room to say so when an answer has used up its memory.
    reserve = mmap.mmap(-1, _RESERVE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    loaded = load(cells, function, module.__dict__, lambda number: wire.send(REPLY, {"cell": number}))
    if loaded.outcome and loaded.outcome.kind == "memory":
        reserve.close()
    message = wire.outcome_to_wire(loaded.outcome)[0] if loaded.outcome else None
    wire.send(REPLY, {"outcome": message, "notes": [note[:300] for note in loaded.notes[:20]]})
    kept: dict[int, Call] = {}  # those that will be made again
    called = loaded.function and launched(launcher, loaded.function)
    while called:
        try:
            frame = wire.receive(JOB, reader)
        except EOFError:
            break
        number, how = frame.message["number"], frame.message["how"]
        try:
            if "call" in frame.message:
                call = wire.call_from_wire(wire.Frame(frame.message["call"], frame.leaves))
                if further_calls(call):
                    kept[number] = call
            else:
                call = kept[number]
            reply = reply_to(number, answer(called, call, how, frame.message.get("seconds")))
        except MemoryError:
            reserve.close()
            reply = reply_to(number, Outcome("memory", error="MemoryError"))
        except BaseException as error:  # the answer has changed NumPy, or its result is none that can be read
            reply = reply_to(number, raised(error))
        wire.write(REPLY, reply)
    os._exit(0)


def answer(function: Any, call: Call, how: str, seconds: float | None) -> Outcome:
    """One call, ``plain`` or a further one with its time; a KeyboardInterrupt of the answer's own is an exception like
    any other."""
    try:
        return call_plain(function, call) if how == "plain" else FURTHER[how](function, call, seconds)
    except KeyboardInterrupt as error:
        return raised(error)


def reply_to(number: int, outcome: Outcome) -> list[memoryview]:
    """The frame that answers the call of this number, ready to be written."""
    message, leaves = wire.outcome_to_wire(outcome)
    return wire.frame_bytes({"number": number, "outcome": message}, leaves)


def probe(targets: sandbox.Targets) -> NoReturn:
    """Try what is forbidden and report it; the last attempt ends this process where it is not denied."""
    wire.send(REPLY, {"probes": [list(result) for result in sandbox.self_test(targets)]})
    wire.send(REPLY, {"probes": [list(sandbox.try_program())]})
    os._exit(0)
