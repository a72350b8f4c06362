"""Run answers apart from the judge: hand jobs to their processes, and give up on them in time.

The judge's side of ``ledger.judge.server``. It decides how a call ended from what it sees itself (a deadline, a closed
pipe, a signal, the size that a result announces) and takes from the answer's process only values and what it says about
its own exceptions.
"""

import contextlib
import math
import os
import re
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ledger.judge import sandbox, wire
from ledger.judge.launch import PRELOADED, ColdStart, Ended, ForkServer, ServerLost, Servers
from ledger.judge.observe import add_further, further_calls, time_for
from ledger.judge.outcome import Call, Cell, Job, Outcome, Run, Unsupported

#: Bytes of an answer's output that are kept.
OUTPUT_KEPT = 4096

_HELLO_SECONDS = 30.0
_CHILD_KINDS = ("returned", "raised", "missing", "memory")
#: How the names of folders begin that the self-test plants, and after how many seconds one is taken for left.
_PLANTED = "ledger-judge-"
_LEFT_SECONDS = 300


class IsolationError(RuntimeError):
    """Isolation was required and does not hold here; the text names what was not denied."""


class Isolation(NamedTuple):
    """The layers that held, and every forbidden action that was tried in the jail; none of either, and ``lost``, why,
    where the self-test came to no end."""

    layers: tuple[str, ...]
    probes: tuple[sandbox.Probe, ...]
    lost: str = ""

    @property
    def holds(self) -> bool:
        """Whether everything forbidden was denied."""
        return bool(self.probes) and all(probe.denied for probe in self.probes)

    @property
    def allowed(self) -> tuple[str, ...]:
        """The forbidden actions that were not denied."""
        return tuple(probe.action for probe in self.probes if not probe.denied)


class Stopped(Exception):
    """A process that gave no answer: ``kind`` is the outcome's, or ``died`` where its wait status will say."""

    def __init__(self, kind: str, detail: str = ""):
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class Runner:
    """Runs jobs, each in a jailed process of its own, from any number of threads.

    ``isolation="require"`` raises IsolationError rather than run anything where a forbidden action is not denied.
    ``servers`` may be started before; without them they are made from ``how``, the arguments of ``Servers``, and
    either way ``close`` ends them.
    """

    def __init__(self, isolation: str = "auto", servers: Servers | None = None, **how: Any):
        if isolation not in ("auto", "require"):
            raise ValueError("isolation is auto or require")
        self.isolation_wanted = isolation
        #: Cells above an answer the last of which has ended the process.
        self.ending: set[tuple[Cell, ...]] = set()
        self.servers = servers or Servers(**how)
        self._isolation: Isolation | None = None
        self._isolation_lock = threading.Lock()

    @property
    def mode(self) -> str:
        """How processes are started: ``fork`` or ``cold``."""
        return self.servers.mode

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self, *modules: str) -> None:
        """Start the server for answers that use ``modules`` and return at once; it boots meanwhile."""
        self.servers.get(*modules)

    def run(self, job: Job) -> Run:
        """Run every call of ``job`` in order and say how each ended.

        Nothing that an answer does raises here; a fault of the judge is an outcome of its own. Raises IsolationError
        where isolation is required and does not hold.
        """
        if self.isolation_wanted == "require" and not self.isolation.holds:
            allowed = ", ".join(self.isolation.allowed) or "the self-test did not run"
            raise IsolationError(f"answers cannot be isolated here; not denied: {allowed}")
        return Session(job, lambda: self.servers.get(*modules_of(job))).run()

    @property
    def isolation(self) -> Isolation:
        """What the self-test in a jailed process found; it runs once, when first asked for. It is ``lost`` where no
        such process could be started, or its server was closed meanwhile."""
        with self._isolation_lock:
            if self._isolation is None:
                try:
                    self._isolation = self_test(self.servers.get())
                except (ServerLost, Stopped, OSError) as error:
                    self._isolation = Isolation((), (), str(error) or type(error).__name__)
            return self._isolation

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that hold, by name."""
        return (*(["bubblewrap"] if self.servers.outer else []), *self.isolation.layers)

    @property
    def apart(self) -> str:
        """How answers are kept apart here, in a few words: the layers that hold, or why they are not known."""
        if self.isolation.lost:
            return f"not known, for the self-test was lost: {self.isolation.lost}"
        return "+".join(self.layers) or "none"

    def close(self) -> None:
        """End every server and whatever it still runs."""
        self.servers.close()


def modules_of(job: Job) -> tuple[str, ...]:
    """Which of the preloaded modules the cells of ``job`` import, its arguments are of or its launcher needs."""
    text = "\n".join(cell.source for cell in job.cells)
    # At most once a line: what is tried from every import on takes hours on a long line of them.
    imports = "\n".join(re.findall(r"^[^\n#]*?\b(?:import|from)\b([^\n#]*)", text, re.MULTILINE))
    torch = sys.modules.get("torch")
    tensors = torch and any(isinstance(value, torch.Tensor) for call in job.calls for value in call.args.values())
    named = (name for name in PRELOADED if re.search(rf"\b{name}\b", imports))
    return (*named, *job.needs, *(["torch"] if tensors else []))


class Worker:
    """The judge's ends of one process: what it is sent, what it replies and what it prints."""

    def __init__(self, launcher: ForkServer | ColdStart, output_bytes: int, printed: bytearray):
        self.launcher = launcher
        self.output_left = output_bytes
        self.kept: set[int] = set()  # the numbers of the calls whose inputs it has and keeps
        self._printed = printed
        self._pending: deque[memoryview] = deque()
        self._reader = wire.FrameReader(0)
        self._output_open = True
        job, self._job = os.pipe()
        self._reply, reply = os.pipe()
        self._output, output = os.pipe()
        try:
            self.pid = launcher.launch([job, reply, output])
        except BaseException:
            self._close_pipes()
            raise
        finally:
            for fd in (job, reply, output):
                os.close(fd)
        for fd in (self._job, self._reply, self._output):
            os.set_blocking(fd, False)

    def send(self, message: dict, leaves: list[np.ndarray] = ()) -> None:
        """Queue a frame; it is written while a reply is waited for."""
        self._pending.extend(wire.frame_bytes(message, leaves))

    def receive(self, seconds: float, max_bytes: int = 0) -> wire.Frame:
        """The next frame of the process, whose arrays are at most ``max_bytes``.

        Raises Stopped with ``timeout``, ``output`` (more printed than allowed) or ``died``; WireError and TooLarge as
        the wire does. What was sent before too much was printed is returned first: ``flooded`` is true then.
        """
        self._reader.max_bytes = max_bytes
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Stopped("timeout")
            flooded = self.flooded
            events = dict(self._poll(0 if flooded else left))
            if self._job in events:
                self._write()
            frame = self._read() if self._reply in events else None
            self._drain()
            if frame:
                return frame
            if flooded and self._reply not in events:
                raise Stopped("output")

    def _read(self) -> wire.Frame | None:
        try:
            count = os.readv(self._reply, [self._reader.space()])
        except BlockingIOError:
            return None
        if not count:
            self._drain()
            raise Stopped("output" if self.flooded else "died")
        return self._reader.advance(count)

    def _poll(self, seconds: float) -> list[tuple[int, int]]:
        poll = select.poll()
        poll.register(self._reply, select.POLLIN)
        if self._output_open:
            poll.register(self._output, select.POLLIN)
        if self._pending:
            poll.register(self._job, select.POLLOUT)
        return poll.poll(math.ceil(seconds * 1000))

    def _write(self) -> None:
        try:
            count = os.write(self._job, self._pending[0])
        except BlockingIOError:
            return
        except BrokenPipeError:  # it has ended or reads no more; the reply will tell
            self._pending.clear()
            return
        self._pending[0] = self._pending[0][count:]
        if not self._pending[0]:
            self._pending.popleft()

    def _drain(self) -> None:
        """Take what was printed, until it is more than allowed; only the first bytes are kept."""
        while self._output_open and not self.flooded:
            try:
                data = os.read(self._output, 1 << 16)
            except BlockingIOError:
                return
            self._output_open = bool(data)
            self._printed += data[: max(0, OUTPUT_KEPT - len(self._printed))]
            self.output_left -= len(data)

    @property
    def flooded(self) -> bool:
        """Whether more was printed than allowed."""
        return self.output_left < 0

    def end(self) -> Ended:
        """End the process, keep the rest of what it printed, and say how it ended."""
        try:
            ended = self.launcher.reap(self.pid)
            self._drain()
            return ended
        finally:
            self._close_pipes()

    def _close_pipes(self) -> None:
        for fd in (self._job, self._reply, self._output):
            os.close(fd)


class Session:
    """One job on its way: its process, its budget of time, and what every call that is left will get."""

    def __init__(self, job: Job, launcher: Any):
        self.job = job
        self._launcher = launcher
        self._worker: Worker | None = None
        self._final: Outcome | None = None
        self._stage = "load"
        self._deadline = math.inf
        self._printed = bytearray()
        self._output_left = job.output_bytes
        self._cell = -1
        self._took: dict[int, float] = {}  # seconds of each plain call
        self._result = Run([])

    def run(self) -> Run:
        """Every call of the job in order, then the further calls that count and measure."""
        start = time.monotonic()
        outcomes = self._result.outcomes
        try:
            for number, call in enumerate(self.job.calls):
                outcomes.append(self._final or self._outcome(number, call))
            self._result.output = wire.plain(self._printed.decode("utf-8", "replace"))
            self._grant_further()
            for number, call in enumerate(self.job.calls):
                for how in further_calls(call):
                    outcomes[number] = self._further(number, call, how, outcomes[number])
        finally:
            self._end()
        self._result.seconds = time.monotonic() - start
        return self._result

    def _grant_further(self) -> None:
        """Give the further calls time and output of their own, and a new process where the job was ended: what they
        use, and what came before, is not held against them."""
        self._final, self._deadline, self._output_left = None, math.inf, self.job.output_bytes
        if self._worker:
            self._worker.output_left = self._output_left

    def _further(self, number: int, call: Call, how: str, before: Outcome) -> Outcome:
        """``before`` with what a further call found, or why it found nothing. A fault of the judge is the outcome."""
        if before.kind != "returned" or isinstance(before.value, Unsupported):
            return before
        found = self._outcome(number, call, how)
        self._final = None
        if found.kind == "judge_error":
            return found
        return add_further(before, replace(found, uncounted=found.uncounted or why_uncounted(found)))

    def _outcome(self, number: int, call: Call, how: str = "plain") -> Outcome:
        """The outcome of one call, whatever happens."""
        try:
            if self._worker is None:
                self._begin()
            return self._final or self._call(number, call, how)
        except wire.TooLarge as large:
            self._end()
            return too_large(large, self.job.result_bytes)
        except wire.WireError as error:
            self._end()
            return Outcome("crash", self._stage, detail=f"its process sent something that is no result: {error}")
        except Stopped as stopped:
            return self._stopped(stopped)
        except Exception as error:
            self._final = Outcome("judge_error", self._stage, detail=f"{type(error).__name__}: {error}"[:500])
            self._end()
            return self._final

    def _begin(self) -> None:
        """Start a process for the job and have it load the cells."""
        launcher = self._launcher()
        launcher.ready()
        if self._deadline == math.inf:
            self._deadline = time.monotonic() + self.job.total_seconds
        self._stage = "load"
        self._worker = Worker(launcher, self._output_left, self._printed)
        cells = [[cell.file, cell.source] for cell in self.job.cells]
        what = {"function": self.job.function, "launcher": self.job.launcher, "cells": cells}
        self._worker.send(what | limits_of(self.job))
        self._result.layers = hello(self._worker)
        message = self._loaded()
        try:
            notes = [wire.text(note, 300) for note in message["notes"][:20]]
            outcome = message["outcome"]
        except (KeyError, TypeError) as error:
            raise wire.WireError("no outcome of loading") from error
        self._result.notes = list(dict.fromkeys([*self._result.notes, *notes]))
        if outcome is not None:
            self._final = wire.outcome_from_wire(wire.Frame(outcome, []), _CHILD_KINDS)

    def _loaded(self) -> dict:
        """What the process says of loading, after it has named each cell that it began."""
        start, self._cell = time.monotonic(), -1
        while True:
            message = self._receive(self.job.load_seconds, start=start).message
            if "cell" not in message:
                self._refuse_flood()
                return message
            if message["cell"] != self._cell + 1:
                raise wire.WireError("not the next cell")
            self._cell += 1

    def _call(self, number: int, call: Call, how: str) -> Outcome:
        """Send one call, ``plain`` or a further one, and take its outcome."""
        self._stage = "call"
        # Counting ends itself before the judge ends it, and so keeps what it counted.
        ends_itself = {"seconds": 0.75 * self.job.count_seconds} if how == "counted" else {}
        message, leaves = {"number": number, "how": how, **ends_itself}, []
        if number not in self._worker.kept:
            try:
                message["call"], leaves = wire.call_to_wire(call)
            except wire.WireError as error:
                return Outcome("judge_error", detail=str(error))
        self._worker.send(message, leaves)
        if further_calls(call):
            self._worker.kept.add(number)
        start, seconds = time.monotonic(), self.job.case_seconds
        if how != "plain":
            seconds = time_for(how, self.job.count_seconds, self._took[number])
        reply = self._receive(seconds, self.job.result_bytes)
        self._refuse_flood()
        if how == "plain":
            self._took[number] = time.monotonic() - start
        if reply.message.get("number") != number or type(reply.message.get("outcome")) is not dict:
            raise wire.WireError("not the outcome of this call")
        return wire.outcome_from_wire(wire.Frame(reply.message["outcome"], reply.leaves), _CHILD_KINDS)

    def _refuse_flood(self) -> None:
        if self._worker.flooded:
            raise Stopped("output")

    def _receive(self, seconds: float, max_bytes: int = 0, start: float | None = None) -> wire.Frame:
        """The next frame, within ``seconds`` from ``start`` (from now) and what is left of the job's own time."""
        now = time.monotonic()
        end = (now if start is None else start) + seconds
        try:
            return self._worker.receive(min(end, self._deadline) - now, max_bytes)
        except Stopped as stopped:
            if stopped.kind == "timeout":
                all_cases = f"{self.job.total_seconds:g} s for all cases together"
                raise Stopped("timeout", f"{seconds:g} s" if end <= self._deadline else all_cases) from None
            raise

    def _stopped(self, stopped: Stopped) -> Outcome:
        """The outcome of a process that gave none, and what the calls after it get."""
        ended = self._end()
        kind, detail = stopped.kind, stopped.detail
        if ended is None:
            self._final = Outcome("judge_error", self._stage, detail="the judge's server has gone")
            return self._final
        if kind == "died":
            kind, detail = why_it_died(ended, limits_of(self.job)["cpu_seconds"])
        elif kind == "output":
            detail = f"more than {self.job.output_bytes:,} bytes"
        if self._stage == "load" and 0 <= self._cell < len(self.job.cells) - 1:
            self._result.ended_in = self._cell
            detail += f", while {self.job.cells[self._cell].file} ran, above the answer"
        outcome = Outcome(kind, self._stage, detail=detail)
        if kind in ("timeout", "output"):
            self._final = replace(outcome, detail="not run" if self._stage == "call" else detail)
        elif self._stage == "load":
            self._final = outcome
        return outcome

    def _end(self) -> Ended | None:
        """End the process of the job, if there is one; None where there was none or its server has gone."""
        worker, self._worker = self._worker, None
        if worker is None:
            return None
        try:
            ended = worker.end()
        except ServerLost:
            return None
        self._output_left = worker.output_left
        self._result.peak_mb = max(self._result.peak_mb, ended.peak_mb)
        return ended


def limits_of(job: Job) -> dict[str, int]:
    """The limits that a job's process sets itself: memory beyond the start in MB, CPU time in whole seconds."""
    further = [how for call in job.calls for how in further_calls(call)]
    seconds = job.total_seconds + sum(time_for(how, job.count_seconds, job.case_seconds) for how in further)
    return {"memory_mb": job.memory_mb, "cpu_seconds": math.ceil(seconds) + 1}


def why_uncounted(outcome: Outcome) -> str:
    """Why a further call gives nothing, in a few words; nothing where it gives something."""
    if outcome.kind == "returned":
        return outcome.value.why if isinstance(outcome.value, Unsupported) else ""
    if outcome.error:
        return f"{outcome.error}: {outcome.message}".removesuffix(": ")
    return "timeout" if outcome.kind == "timeout" else f"{outcome.kind}: {outcome.detail}"


def hello(worker: Worker) -> tuple[str, ...]:
    """Wait until a process is in its jail, before a line of the answer has run, and return the layers that hold.

    A process that does not come so far is the judge's fault: raises ServerLost.
    """
    try:
        return tuple(worker.receive(worker.launcher.hello_seconds).message["layers"])
    except (Stopped, wire.WireError, KeyError) as error:
        raise ServerLost(f"a process did not start: {error!r}") from None


def too_large(large: wire.TooLarge, allowed: int) -> Outcome:
    """The outcome of a result that was refused from its header, without a byte of its arrays being read."""
    outcome = large.message.get("outcome")
    tree = outcome.get("value") if isinstance(outcome, dict) else None
    kind = tree[0] if isinstance(tree, list) and tree and isinstance(tree[0], str) else ""
    name = {"array": "ndarray", "tensor": "torch.Tensor"}.get(kind, kind[:20] or "result")
    why = f"a result of {sum(large.sizes) / 1e6:,.0f} MB; the judge takes {allowed / 1e6:,.0f} MB"
    return Outcome("returned", value=Unsupported(name, why))


def why_it_died(ended: Ended, cpu_seconds: int) -> tuple[str, str]:
    """The kind and the detail of a process that ended by itself."""
    if not os.WIFSIGNALED(ended.status):
        return "crash", f"exit status {os.waitstatus_to_exitcode(ended.status)} before a result"
    number = os.WTERMSIG(ended.status)
    if number == signal.SIGXCPU or (number == signal.SIGKILL and ended.cpu >= cpu_seconds):
        return "timeout", f"{cpu_seconds} s of CPU time"
    if number == signal.SIGKILL:
        return "crash", "it closed its channel to the judge or was killed"
    try:
        return "crash", f"signal {number}, {signal.Signals(number).name}"
    except ValueError:
        return "crash", f"signal {number}"


def take_away_left_folders() -> None:
    """Remove what the self-test of a judge that was killed has left."""
    for folder in os.scandir(tempfile.gettempdir()):
        if folder.name.startswith(_PLANTED):
            with contextlib.suppress(OSError):
                if time.time() - folder.stat(follow_symlinks=False).st_mtime > _LEFT_SECONDS:
                    shutil.rmtree(folder)


def self_test(launcher: ForkServer | ColdStart, memory_mb: int = 64) -> Isolation:
    """Try everything forbidden in a jailed process, on files and sockets planted for it.

    Raises ServerLost where no process starts.
    """
    launcher.ready()
    take_away_left_folders()
    with (
        tempfile.TemporaryDirectory(prefix=_PLANTED) as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        planted = Path(folder, "planted.txt")
        planted.write_text("planted")
        address = os.path.join(folder, "socket")
        unix.bind(address)
        unix.listen()
        own = Path(wire.__file__).resolve()
        copies = [copy for copy in sandbox.course_copies(sys.path) if copy not in own.parents]
        sources = [str(own), *(str(path) for copy in copies for path in list(copy.rglob("*.py"))[:1])]
        port = server.getsockname()[1]
        targets = sandbox.Targets(str(planted), folder, sources, port, address, os.getpid(), memory_mb)
        worker = Worker(launcher, 1 << 20, bytearray())
        try:
            worker.send({"probe": targets._asdict(), "memory_mb": memory_mb, "cpu_seconds": 10})
            layers = hello(worker)
            probes = [sandbox.Probe(*probe) for probe in worker.receive(_HELLO_SECONDS).message["probes"]]
            try:
                probes += [sandbox.Probe(*probe) for probe in worker.receive(_HELLO_SECONDS).message["probes"]]
            except Stopped:
                probes.append(sandbox.Probe("run a program", "seccomp", False, "it worked"))
        finally:
            worker.end()
    return Isolation(layers, tuple(probes))
