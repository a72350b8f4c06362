"""Start local processes, one a rank, and end all of them as soon as one fails. This process needs no torch.

A rank's process is a new interpreter that imports the function by its name, on every system, so the function must lie
in a module; the ``__main__`` of a script or a notebook is not run again in it.
"""

import contextlib
import importlib
import os
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

#: Seconds in which all ranks must have imported torch and found each other.
_JOIN_SECONDS = 120.0
#: Seconds in which ranks that fail because another one did may say so before they are ended.
_GRACE = 1.0
#: Characters of what a rank wrote to its error stream that a message holds.
_TAIL = 1500
_STARTER = (
    "import sys, pickle; sys.path[:] = pickle.load(sys.stdin.buffer); from ledger.parallel.launch import serve; serve()"
)
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class RankFailed(RuntimeError):
    """A rank raised, died or did not come to its end. ``rank`` is the one that began it, None where that is not
    known."""

    def __init__(self, message: str, rank: int | None = None):
        super().__init__(message)
        self.rank = rank


def run(
    function: Callable[..., Any], size: int, *args: Any, seconds: float = 60.0, backend: str = "gloo", **kwargs: Any
) -> list[Any]:
    """What ``function(world, *args, **kwargs)`` returns on each of ``size`` ranks, in their order.

    Each rank is a process of its own with one thread. ``function`` must be importable by its name, arguments and
    results must pickle. What ranks print appears when all have ended. RankFailed where a rank raises or dies, at once,
    and where not all have ended ``seconds`` after they have found each other; no process is left behind.
    """
    if size < 1:
        raise ValueError(f"size is {size}; it must be 1 or more")
    _check_importable(function)
    job = pickle.dumps((function, args, kwargs))
    with tempfile.TemporaryDirectory(prefix="ledger-ranks-", ignore_cleanup_errors=True) as folder:
        ranks = [_Rank(number, size, Path(folder)) for number in range(size)]
        try:
            for rank in ranks:
                rank.start(job, backend, seconds)
            results = _collect(ranks, seconds)
        finally:
            for rank in ranks:
                rank.end()
    for rank in ranks:
        if rank.printed:
            print("".join(f"rank {rank.number}: {line}\n" for line in rank.printed.splitlines()), end="")
    return results


def _check_importable(function: Callable[..., Any]) -> None:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "?")
    found = None
    if module and module != "__main__":
        with contextlib.suppress(ImportError, AttributeError):
            found = getattr(importlib.import_module(module), name)
    if found is not function:
        raise ValueError(f"{name} cannot be imported by other processes; define it at the top of a module (a .py file)")


class _Rank:
    """One process from this side. ``events`` gets what it says: (number, what, …)."""

    events: "queue.Queue[tuple]"

    def __init__(self, number: int, size: int, folder: Path):
        self.number, self.size, self.folder = number, size, folder
        self.process: subprocess.Popen | None = None
        self.printed = ""
        self.ended = ""  # how, in a word

    def start(self, job: bytes, backend: str, seconds: float) -> None:
        """Start the process and hand it its job."""
        self.place_file.write_bytes(bytes(_Place.SIZE))
        with self.errors_file.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _STARTER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | _ONE_THREAD | {"LOCAL_RANK": str(self.number)},
            )
        how = {"backend": backend, "seconds": seconds, "rank": self.number, "world_size": self.size}
        with contextlib.suppress(BrokenPipeError):  # it has died; that is seen elsewhere
            pickle.dump(sys.path, self.process.stdin)
            pickle.dump((str(self.folder), how, job), self.process.stdin)
            self.process.stdin.flush()

    def listen(self, events: "queue.Queue[tuple]") -> None:
        """Put everything that the process says into ``events``, its end last."""
        try:
            while True:
                events.put((self, *pickle.load(self.process.stdout)))
        except Exception:  # the end of the pipe, within a message too
            events.put((self, "ended"))

    @property
    def place_file(self) -> Path:
        return self.folder / f"place-{self.number}"

    @property
    def errors_file(self) -> Path:
        return self.folder / f"errors-{self.number}"

    @property
    def place(self) -> tuple[int, str]:
        """The number of its last all-to-all and, while it is in it, its name."""
        return _Place.read(self.place_file)

    def where(self) -> str:
        """Where it is, in words."""
        number, name = self.place
        if name:
            return f"{self.ended or 'waits'} in all_to_all {number}" + (f" ({name})" if name != "all_to_all" else "")
        return f"{self.ended or 'is busy'} after {number} of all_to_all"

    def how_it_died(self) -> str:
        """Its exit code or signal, and the last that it wrote to its error stream."""
        try:
            code = self.process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        tail = self.errors_file.read_text(errors="replace")[-_TAIL:].strip()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return how + (f":\n{tail}" if tail else "")

    def end(self) -> None:
        """End the process, whatever it does."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()


def _collect(ranks: list[_Rank], seconds: float) -> list[Any]:
    """The results of all ranks, or RankFailed for the first cause."""
    events: queue.Queue[tuple] = queue.Queue()
    for rank in ranks:
        threading.Thread(target=rank.listen, args=(events,), daemon=True).start()
    results: dict[int, Any] = {}
    failures: list[tuple[bool, int, str]] = []  # whether another rank may be the cause, the rank, in words
    joined, limit = 0, _JOIN_SECONDS
    end = time.monotonic() + limit
    while len(results) < len(ranks):
        try:
            rank, what, *rest = events.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            break
        if what == "joined":
            joined += 1
            if joined == len(ranks) and not failures:
                limit = seconds
                end = time.monotonic() + limit
        elif what == "returned":
            results[rank.number], rank.printed = pickle.loads(rest[0]), rest[1]
            rank.ended = "returned"
        elif what == "raised":
            consequence, text = rest
            failures.append((consequence, rank.number, f"rank {rank.number} raised {text}"))
            rank.ended = "gave up" if consequence else "raised"
        elif not rank.ended:
            rank.ended = "died"
            failures.append((False, rank.number, f"rank {rank.number} {rank.where()}: it {rank.how_it_died()}"))
        if len(failures) == 1:
            end = min(end, time.monotonic() + _GRACE)
        if any(not consequence for consequence, *_ in failures):
            break
    if len(results) == len(ranks):
        return [results[rank.number] for rank in ranks]
    others = "; ".join(f"rank {rank.number} {rank.where()}" for rank in ranks)
    if not failures:
        what = "ended" if joined == len(ranks) else "found each other"
        raise RankFailed(f"not all ranks have {what} after {limit:g} s: {others}")
    consequence, number, text = min(failures, key=lambda failure: failure[0])
    if not consequence:
        raise RankFailed(text, number)
    # A rank that has returned closed its connections; it began this where it came to fewer exchanges than another.
    last = max(rank.place[0] for rank in ranks)
    left = next((rank for rank in ranks if rank.ended == "returned" and rank.place[0] < last), None)
    began = f"rank {left.number} {left.where()}, and others came to the next: " if left else ""
    raise RankFailed(f"{began}{text}\n({others})", left.number if left else None)


class _Place:
    """Where a rank is, written to a file in memory, so that telling costs no call of the system."""

    SIZE = 64

    def __init__(self, file: Path):
        import mmap

        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), self.SIZE)

    def __call__(self, number: int, name: str) -> None:
        self._map[:] = f"{number} {name}".encode()[: self.SIZE].ljust(self.SIZE, b"\0")

    @staticmethod
    def read(file: Path) -> tuple[int, str]:
        """The number of the last all-to-all, 0 before the first, and its name while the rank is in it."""
        number, _, name = file.read_bytes().rstrip(b"\0").decode(errors="replace").partition(" ")
        return int(number or 0), name


def serve() -> None:
    """What the process of a rank does: read its job, join the others, run the function, say what came of it."""
    folder, how, job = pickle.load(sys.stdin.buffer)
    say = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not stand between messages
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        message = ("returned", *_work(Path(folder), job, partial(_say, say), **how))
    except BaseException as error:
        message = ("raised", *_told(error))
    _say(say, *message)
    os._exit(0)


def _say(pipe: IO[bytes], *message: Any) -> None:
    pickle.dump(message, pipe)
    pipe.flush()


def _work(folder: Path, job: bytes, say: Callable[..., None], rank: int, seconds: float, **how: Any) -> tuple:
    """What the function returns, pickled, and what it printed."""
    import io

    import torch
    import torch.distributed as dist

    from ledger.parallel.distributed import joined

    torch.set_num_threads(1)
    function, args, kwargs = pickle.loads(job)
    store = dist.FileStore(str(folder / "store"), how["world_size"])
    printed = io.StringIO()
    how |= {"store": store, "seconds": seconds + _JOIN_SECONDS}  # the other side ends what takes longer
    with joined(rank=rank, place=_Place(folder / f"place-{rank}"), **how) as world:
        say("joined")
        with contextlib.redirect_stdout(printed):
            result = function(world, *args, **kwargs)
        return pickle.dumps(result), printed.getvalue()


def _told(error: BaseException) -> tuple[bool, str]:
    """Whether another rank may be the cause, and the error in words with the lines that led to it."""
    import traceback

    from ledger.parallel.distributed import Unreachable

    text = f"{type(error).__name__}: {error}"
    if isinstance(error, Unreachable):
        return True, text
    here = str(Path(__file__).parent)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(here)]
    return False, "\n".join([text, *(f"  {f.filename}, line {f.lineno}: {f.line}" for f in frames[-6:])])


def _end_with_parent() -> None:
    """End this process when its parent has gone, whatever it does."""
    sys.stdin.buffer.read()
    os._exit(1)
