"""Start the processes that answers run in. Only the standard library: a server boots while the judge imports NumPy."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ledger.judge import sandbox
from ledger.judge.errors import UsageError

#: What a server imports before it forks, where an answer asks for it; each kind of server starts when first needed.
PRELOADED = {"matplotlib": "matplotlib.pyplot", "torch": "torch", "triton": "triton"}

_BOOT_SECONDS = 120.0
_HELLO_SECONDS = 30.0
_SERVER_REPLY_SECONDS = 30.0
_CLOSE_SECONDS = 1.0
_TRIED_SECONDS = 10.0
_STARTER = (
    "import json, sys; config = json.loads(sys.argv[1]); sys.path[3:3] = [config['source']]; "
    "sys.path += [path for path in config['paths'] if path not in sys.path]; "
    "from ledger.judge.server import main; main()"
)


class ServerLost(Exception):
    """The judge's own server has died or does not answer."""


class Ended(NamedTuple):
    """How a process ended: its wait status, its largest resident size in MB, its CPU seconds."""

    status: int
    peak_mb: int
    cpu: float


class Servers:
    """The servers of one judge, by the modules that they have imported; each starts when it is first asked for.

    ``mode`` is ``fork`` (a warm server that forks), ``cold`` (a new interpreter for each job) or ``auto``: fork on
    Linux, cold elsewhere; the environment variable LEDGER_JUDGE_MODE decides where it is ``auto``. ``extra_hidden``
    are folders that no answer may read, even where they lie among the libraries. ``layers`` may leave layers out, and
    ``variables`` are set in the environment of every process. With ``outer`` every server stands in a bubblewrap, where
    this machine has one that works: a class is graded so.
    """

    def __init__(
        self,
        mode: str = "auto",
        extra_hidden: Iterable[str | os.PathLike] = (),
        layers: Iterable[str] = sandbox.LAYERS,
        variables: Mapping[str, str] = MappingProxyType({}),
        outer: bool = False,
    ):
        if mode == "auto":
            mode = os.environ.get("LEDGER_JUDGE_MODE") or ("fork" if sys.platform == "linux" else "cold")
        if mode not in ("fork", "cold"):
            raise UsageError(f"the judge's mode is auto, fork or cold, not {mode!r} (LEDGER_JUDGE_MODE sets it)")
        self.mode = mode
        self._hidden = sandbox.hidden_paths(extra_hidden)
        self._layers = list(layers)
        self._variables = dict(variables)
        self.outer = bubblewrap() if outer else ()
        self._running: dict[tuple[str, ...], ForkServer | ColdStart] = {}
        self._closed = False
        self._lock = threading.Lock()

    def get(self, *modules: str) -> "ForkServer | ColdStart":
        """The server for ``modules``: the one that runs, or a new one where there is none or it was lost. One that
        forks and has imported more will do, but not in the place of one with NumPy alone. It returns at once, while a
        new one boots. Raises OSError where no process can be started, ServerLost after ``close``."""
        wanted = tuple(name for name in PRELOADED if name in modules and find_spec(name))
        with self._lock:
            if self._closed:
                raise ServerLost("the judge is closing")
            if wanted and wanted not in self._running and self.mode == "fork":
                wanted = next((names for names in self._running if set(wanted) < set(names)), wanted)
            server = self._running.get(wanted)
            if server is None or server.lost:
                if server:
                    server.close()
                kind = ForkServer if self.mode == "fork" else ColdStart
                server = self._running[wanted] = kind(self.outer, wanted, self._hidden, self._layers, self._variables)
            return server

    def close(self) -> None:
        """End every server and whatever it still runs, at once; none starts afterwards."""
        with self._lock:
            self._closed = True
            running, self._running = list(self._running.values()), {}
        for server in running:
            server.close()


@cache
def bubblewrap() -> tuple[str, ...]:
    """What to put in front of a command to give it a file system that it cannot write, no network and processes of its
    own; nothing where bubblewrap is not installed, or this system does not let it work."""
    path = shutil.which("bwrap")
    if path is None:
        return ()
    command = (path, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--die-with-parent")
    try:
        tried = subprocess.run([*command, sys.executable, "-I", "-c", ""], capture_output=True, timeout=_TRIED_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return () if tried.returncode else command


def interpreter(
    outer: tuple[str, ...], modules: tuple[str, ...], hidden: list[str], layers: list[str], **descriptors: Any
) -> list[str]:
    """The command that starts ``ledger.judge.server`` in an interpreter of its own, behind ``outer``."""
    package = Path(__file__).resolve().parents[1]
    libraries = {str(Path(find_spec(name).origin).resolve().parents[1]) for name in ("numpy", *modules)}
    config = {
        "source": str(package.parent),
        "paths": sorted(libraries),
        "preload": [PRELOADED[name] for name in modules],
        "hidden": hidden,
        "layers": layers,
        **descriptors,
    }
    return [*outer, sys.executable, "-I", "-c", _STARTER, json.dumps(config)]


def start_process(command: list[str], **how: Any) -> subprocess.Popen:
    """Start a process of the judge's own in a session of its own; raises OSError with what to look at."""
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **how)
    except OSError as error:
        raise OSError(
            error.errno, f"no process for the answers could be started ({error.strerror}; ulimit -u?)"
        ) from None


def environment(modules: tuple[str, ...], variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server: nothing of the learner's, and one thread for each numerical library; ``variables``
    come last."""
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
    made = dict.fromkeys(threads, "1") | {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "MPLBACKEND": "Agg"}
    made |= {"HOME": "/nonexistent", "TRITON_INTERPRET": "1"}
    kept = ["LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"]
    if "matplotlib" in modules:  # its cache of fonts saves a second of the start
        kept += ["HOME", "MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"]
    return made | {name: os.environ[name] for name in kept if name in os.environ} | dict(variables)


class ForkServer:
    """A server process, the socket to it, and the processes that it forks."""

    hello_seconds = _HELLO_SECONDS

    def __init__(
        self,
        outer: tuple[str, ...],
        modules: tuple[str, ...],
        hidden: list[str],
        layers: list[str],
        variables: Mapping[str, str],
    ):
        self.lost = False
        self._lock = threading.Lock()
        self._ready = False
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self.process = start_process(
                    interpreter(outer, modules, hidden, layers, control=theirs.fileno()),
                    pass_fds=[theirs.fileno()],
                    env=environment(modules, variables),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            except OSError:
                self._control.close()
                raise

    def ready(self) -> None:
        """Wait until the server has booted; raises ServerLost where it does not."""
        with self._lock:
            if not self._ready:
                self._hear(_BOOT_SECONDS)
                self._ready = True

    def launch(self, fds: list[int]) -> int:
        """Fork a process that reads jobs from the first of ``fds``, replies to the second and prints to the third."""
        return self._ask({"op": "fork"}, fds)["pid"]

    def reap(self, pid: int) -> Ended:
        """End a process and say how it ended."""
        told = self._ask({"op": "reap", "pid": pid})
        return Ended(told["status"], told["peak_kb"] >> 10, told["cpu"])

    def close(self) -> None:
        """End the server and everything that it forked, at once, and whoever waits for either of them."""
        self.lost = True
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        try:
            self.process.wait(_CLOSE_SECONDS if self._ready else 0)
        except subprocess.TimeoutExpired:  # it boots still, or is in trouble
            self.process.kill()
            self.process.wait()
        self._control.close()

    def _ask(self, request: dict, fds: list[int] = ()) -> dict:
        with self._lock:
            if self.lost:
                raise ServerLost("the server has gone")
            try:
                socket.send_fds(self._control, [json.dumps(request).encode()], fds)
            except OSError as error:
                self.lost = True
                raise ServerLost(f"the server has gone: {error.strerror}") from None
            return self._hear(_SERVER_REPLY_SECONDS)

    def _hear(self, seconds: float) -> dict:
        try:
            self._control.settimeout(seconds)
            data = self._control.recv(4096)
        except OSError as error:
            self.lost = True
            raise ServerLost(f"the server does not answer: {error}") from None
        answer = json.loads(data) if data else {"error": "the server has gone"}
        if "error" in answer:
            self.lost = True
            raise ServerLost(answer["error"])
        return answer


class ColdStart:
    """Starts a new interpreter for each job: slower by its start, and safe where forking is not."""

    hello_seconds = _BOOT_SECONDS

    def __init__(
        self,
        outer: tuple[str, ...],
        modules: tuple[str, ...],
        hidden: list[str],
        layers: list[str],
        variables: Mapping[str, str],
    ):
        self.lost = False
        self._command = (outer, modules, hidden, layers)
        self._environment = environment(modules, variables)
        self._lock = threading.Lock()
        self._processes: dict[int, subprocess.Popen] = {}

    def ready(self) -> None:
        """There is nothing to wait for."""

    def launch(self, fds: list[int]) -> int:
        """Start a process on the three descriptors of a job, as ``ForkServer.launch`` does."""
        command = interpreter(*self._command, job=list(fds))
        with self._lock:
            if self.lost:
                raise ServerLost("the judge is closing")
            process = start_process(command, pass_fds=fds, env=self._environment, stdout=fds[2], stderr=fds[2])
            self._processes[process.pid] = process
        return process.pid

    def reap(self, pid: int) -> Ended:
        """End a process and its group and say how it ended."""
        process = self._processes.pop(pid, None)
        if process is None:
            raise ServerLost("the judge is closing")
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()
        _, status, usage = os.wait4(pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        kilobytes = usage.ru_maxrss >> (10 if sys.platform == "darwin" else 0)
        return Ended(status, kilobytes >> 10, usage.ru_utime + usage.ru_stime)

    def close(self) -> None:
        """End every process that still runs."""
        with self._lock:
            self.lost = True
        for pid in list(self._processes):
            with contextlib.suppress(ServerLost):  # its job has ended meanwhile
                self.reap(pid)
