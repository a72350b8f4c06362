"""Budgets of time and output for code that runs in this very process: in a browser there is no other to run it in.

Pyodide's interpreter asks every few hundred loop turns and calls whether somebody wants to interrupt it. ``Limit``
answers that question from a clock, which costs nothing that can be measured (a guard on ``sys.monitoring`` alone makes
loops several times slower). Once time is up it also turns ``sys.monitoring`` on, so that code which catches every
exception still ends at its next loop turn or call. One long call into C (a huge product, ``sum(range(10**12))``) is
not Python and cannot be stopped.

Outside Pyodide a time limit does nothing: a kernel there can be interrupted, and a debugger may hold code for long.
"""

import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, ClassVar, TextIO

#: Bytes that a cell or an answer may print.
OUTPUT_BYTES = 1 << 20

_BROWSER = sys.platform == "emscripten"
_TOOL = 4  # sys.monitoring leaves 3 and 4 to programs of no agreed kind
#: Files whose code is not the learner's. In Pyodide ``sys.prefix`` is the root of everything.
_LIBRARIES = (
    str(Path(os.__file__).parent),
    *(prefix for prefix in (sys.prefix, sys.base_prefix) if prefix != os.sep),
    str(Path(__file__).resolve().parents[1]),
    "<frozen",
)
#: What the interpreter asks: element 0 is 2 (SIGINT) once the time is past ``at``. It looks at the clock every 16th
#: time, and after a 2 leaves Python 50 ms to act on it.
_ALARM = """() => {
  const alarm = {at: Infinity, asked: 0};
  alarm.buffer = {
    get 0() {
      if (++alarm.asked & 15 || performance.now() < alarm.at) return 0;
      alarm.at = performance.now() + 50;
      return 2;
    },
    set 0(value) {},
  };
  return alarm;
}"""


class Spent(KeyboardInterrupt):
    """Code has used up a budget. ``kind`` is the outcome's. No ``except Exception`` catches it, and IPython shows its
    message instead of a traceback."""

    kind = ""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class OutOfTime(Spent):
    """The time of the innermost ``Limit`` is over."""

    kind = "timeout"


class TooMuchOutput(Spent):
    """More was printed than is kept."""

    kind = "output"


class Limit:
    """``with Limit(seconds):`` ends Python code in it by OutOfTime when the time is over; None is no limit.

    An inner limit takes the place of an outer one, whose clock stands still meanwhile.
    """

    _active: ClassVar[list["Limit"]] = []

    def __init__(self, seconds: float | None, message: str = ""):
        self.seconds = math.inf if seconds is None else seconds
        self.message = message or f"Stopped after {self.seconds:g} s."

    def __enter__(self) -> "Limit":
        self.start = time.monotonic()
        self.end = self.start + self.seconds
        self._active.append(self)
        _arm(self.seconds)
        return self

    def __exit__(self, *exception: object) -> None:
        _calm()
        if self in self._active:
            del self._active[self._active.index(self) :]
        if self._active:
            outer = self._active[-1]
            outer.end += time.monotonic() - self.start
            _arm(outer.end - time.monotonic())
        else:
            _arm(math.inf)

    def extend(self, seconds: float) -> None:
        """Let it end ``seconds`` after its start."""
        self.end += seconds - self.seconds
        self.seconds = seconds
        _arm(self.end - time.monotonic())

    @classmethod
    def current(cls) -> "Limit | None":
        """The innermost limit, if there is one."""
        return cls._active[-1] if cls._active else None


def available() -> bool:
    """Whether a time limit holds here."""
    return _alarm() is not None


_state: dict[str, Any] = {}


def _alarm() -> Any:
    """The clock that Pyodide's interpreter asks; made when first needed, None elsewhere."""
    if _BROWSER and "alarm" not in _state:
        import pyodide_js
        from pyodide.code import run_js

        _state["now"] = run_js("() => performance.now()")
        _state["alarm"] = run_js(_ALARM)()
        signal.signal(signal.SIGINT, _ring)
        pyodide_js.setInterruptBuffer(_state["alarm"].buffer)
    return _state.get("alarm")


def _arm(seconds: float) -> None:
    """Let the alarm ring in ``seconds``."""
    alarm = _alarm()
    if alarm is not None:
        alarm.at = math.inf if seconds == math.inf else _state["now"]() + 1000 * max(seconds, 0)


def _ring(number: int, frame: FrameType | None) -> None:
    """What Python runs when the alarm rings: end the code, unless it is this module's own or the time is not up."""
    limit = Limit.current()
    if limit is None or time.monotonic() < limit.end:
        return
    if frame is not None and frame.f_code.co_filename == __file__:
        return  # it rings again
    _arm(math.inf)  # once: what handles the exception must not be ended by another
    insist(limit)
    raise OutOfTime(limit.message)


def insist(limit: Limit) -> None:
    """Raise OutOfTime at every further loop turn and call of the learner's own code, until the limit is left."""
    watch = sys.monitoring

    def again(code: CodeType, *where: Any) -> None:
        if not code.co_filename.startswith(_LIBRARIES):
            raise OutOfTime(limit.message)

    with contextlib.suppress(ValueError):  # it insists already, or another tool is here
        watch.use_tool_id(_TOOL, "ledger")
        for event in (watch.events.JUMP, watch.events.PY_START):
            watch.register_callback(_TOOL, event, again)
        watch.set_events(_TOOL, watch.events.JUMP | watch.events.PY_START)


def _calm() -> None:
    """Stop insisting."""
    watch = getattr(sys, "monitoring", None)
    if watch and watch.get_tool(_TOOL) == "ledger":
        watch.set_events(_TOOL, 0)
        watch.free_tool_id(_TOOL)


class _Stream:
    """A text stream that hands on what is written until a common count of bytes is used up."""

    def __init__(self, stream: TextIO | None, room: "list[int]", most: int, head: list[str] | None):
        self._stream, self._room, self._most, self._head = stream, room, most, head
        self._held: list[str] = []
        self._writes, self._last = 0, time.monotonic()

    def write(self, text: str) -> int:
        data = str(text).encode("utf-8", "replace")
        part = text if len(data) <= self._room[0] else data[: self._room[0]].decode("utf-8", "ignore")
        self._room[0] -= len(data)
        self._writes += 1
        self._held.append(part)
        # A browser's page takes a message for each write: many small ones are handed on together.
        if not _BROWSER or self._room[0] < 0 or self._writes < 200 or time.monotonic() - self._last > 0.2:
            self.flush()
        if self._room[0] < 0:
            self._room[0] = 0
            raise TooMuchOutput(f"Stopped: it printed more than {self._most:,} bytes. Take the print out of the loop.")
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        text, self._held, self._last = "".join(self._held), [], time.monotonic()
        if self._head is not None:
            self._head.append(text)
        elif self._stream is not None:
            if text:
                self._stream.write(text)
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def output_limit(most: int = OUTPUT_BYTES, head: list[str] | None = None) -> Iterator[None]:
    """Raise TooMuchOutput in code that prints more than ``most`` bytes, to both streams together.

    What it prints is handed on, or, where ``head`` is given, kept there instead.
    """
    before, room = (sys.stdout, sys.stderr), [most]
    mine = [_Stream(stream, room, most, head) for stream in before]
    sys.stdout, sys.stderr = mine
    try:
        yield
    finally:
        for name, stream, own in zip(("stdout", "stderr"), before, mine, strict=True):
            own.flush()
            if getattr(sys, name) is own:
                setattr(sys, name, stream)


def within(seconds: float, function: Callable[..., Any], *args: Any) -> Any:
    """``function(*args)``; raises OutOfTime where it takes longer and this can be ended."""
    with Limit(seconds):
        return function(*args)
