"""Run one case of an answer in this process and note what happened.

The sandboxed child and the check in a notebook both call this, so that an answer meets the same inputs and leaves the
same facts in both. Nothing here knows the right value.
"""

import sys
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ledger.count import count, counting, peak_bytes, unwrap
from ledger.judge.guard import Spent
from ledger.judge.outcome import Call, Line, Outcome, Unsupported

#: Seconds that ``observe`` gives to a further call, which counts or measures, before ``time_for`` adds to them.
FURTHER_SECONDS = 1.5
#: How many times slower code may be while its memory is traced; 12 was seen, in a loop over the numbers of an array.
_TRACED = 15

_MESSAGE_CHARS = 500
_NEST = 8
_PACKAGE = Path(__file__).parents[1]
_LIBRARY_DIRS = tuple({sys.prefix, sys.base_prefix, str(_PACKAGE), str(_PACKAGE.parents[1] / "kernels")})


class TooSlow(BaseException):
    """Ends a further call whose time is up; no ``except Exception`` of the answer catches it."""


def observe(function: Callable[..., Any], call: Call) -> Outcome:
    """Call ``function`` on laid-out copies of ``call.args``; where that returned and ``call`` asks for it, call it once
    more to measure its memory and once more to count, each for a short time.

    Every exception but KeyboardInterrupt becomes part of the outcome.
    """
    start = time.monotonic()
    outcome = call_plain(function, call)
    plain = time.monotonic() - start
    for name in further_calls(call) if outcome.kind == "returned" else ():
        outcome = add_further(outcome, FURTHER[name](function, call, time_for(name, FURTHER_SECONDS, plain)))
    return outcome


def call_plain(function: Callable[..., Any], call: Call) -> Outcome:
    """The outcome of one call, neither counted nor measured."""
    try:
        args = {name: lay_out(value, call.layout) for name, value in call.args.items()}
        value = function(*args.values())
        plain, subclass = simplify(value)
        return Outcome(
            "returned",
            value=plain,
            subclass=subclass,
            changed=tuple(name for name in args if not same(args[name], call.args[name])),
            shares=tuple(name for name in args if shares(value, args[name])),
            used_torch=sys.modules.get("torch") is not None,
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return raised(error)


def call_counted(function: Callable[..., Any], call: Call, seconds: float | None = None) -> Outcome:
    """The counts of one call on counted arrays; without a limit of ``seconds``, somebody else must end it.

    A call whose time is up leaves what it had counted till then, and no value: a count is never too high.
    """

    def run(*args: Any) -> Outcome:
        with counting() as counts:
            try:
                with time_limit(seconds):
                    value, _ = count(function, *args)
            except TooSlow:
                return Outcome("returned", counts=counts.to_dict(), uncounted="timeout")
        return Outcome("returned", counts=counts.to_dict(), counted_value=simplify(unwrap(value))[0])

    return _further(run, call)


def call_measured(function: Callable[..., Any], call: Call, seconds: float | None = None) -> Outcome:
    """The memory at the height of one call, in bytes; without a limit of ``seconds``, somebody else must end it."""

    def measured(*args: Any) -> str:
        """Call, and say what kept the memory from being traced meanwhile."""
        _meddled.clear()
        function(*args)
        return ", ".join(_meddled) or ("" if tracemalloc.is_tracing() else "tracemalloc.stop")

    def run(*args: Any) -> Outcome:
        with time_limit(seconds):
            meddled, peak = peak_bytes(measured, *args)
        return Outcome("returned", uncounted=f"it called {meddled}") if meddled else Outcome("returned", peak=peak)

    return _further(run, call)


def _further(run: Callable[..., Outcome], call: Call) -> Outcome:
    """What ``run`` makes of fresh arguments, or why it gave nothing."""
    try:
        return run(*(lay_out(value, call.layout) for value in call.args.values()))
    except TooSlow:
        return Outcome("returned", uncounted="timeout")
    except Spent as spent:
        return Outcome("returned", uncounted=spent.kind)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        name, text = type(error).__name__[:60], text_of(error)
        return Outcome("returned", uncounted=f"{name}: {text}" if text else name)


#: The further calls by name, in the order in which they run: the one that may take long comes last.
FURTHER: dict[str, Callable[..., Outcome]] = {"peak": call_measured, "counted": call_counted}


def further_calls(call: Call) -> list[str]:
    """The names of the further calls that ``call`` asks for."""
    return [name for name in FURTHER if getattr(call, name)]


def time_for(name: str, seconds: float, plain: float) -> float:
    """The seconds of a further call after a plain one that took ``plain``: counting can take a hundred times longer and
    is given up soon, but the memory can always be known."""
    return seconds + _TRACED * plain if name == "peak" else seconds


def add_further(outcome: Outcome, further: Outcome) -> Outcome:
    """``outcome`` with what a further call found, or why it found nothing."""
    return replace(
        outcome,
        counts=further.counts if outcome.counts is None else outcome.counts,
        counted_value=further.counted_value if outcome.counts is None else outcome.counted_value,
        peak=further.peak if outcome.peak is None else outcome.peak,
        uncounted="; ".join(filter(None, dict.fromkeys((outcome.uncounted, further.uncounted)))),
    )


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TooSlow in code that takes longer, at its next call of a function; None is no limit.

    Counted arrays are slow because every operation on them is many calls, so this reaches code that is slow only for
    being counted, on every system and in every thread.
    """
    if seconds is None:
        yield
        return
    end, before = time.monotonic() + seconds, sys.getprofile()

    def look(*event: Any) -> None:
        if time.monotonic() > end:
            sys.setprofile(before)
            raise TooSlow

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


#: Which functions of ``tracemalloc`` were called since this was last cleared.
_meddled: list[str] = []


def watch_tracing() -> None:
    """Note in ``_meddled`` from now on whoever stops the tracing of memory or makes it forget; for good, so only in a
    process of an answer's own."""
    for name in ("stop", "reset_peak", "clear_traces"):
        for module in (tracemalloc, import_module("_tracemalloc")):
            setattr(module, name, _noting(f"tracemalloc.{name}", getattr(module, name)))


def _noting(name: str, function: Callable[[], None]) -> Callable[[], None]:
    def noted() -> None:
        _meddled.append(name)
        function()

    return noted


def lay_out(value: Any, layout: str) -> Any:
    """A copy of ``value`` whose arrays are contiguous and writable, or ``strided``: every second element of a poisoned
    buffer, read-only. Lists, tuples and dicts are followed."""
    if isinstance(value, np.ndarray):
        return strided(value) if layout == "strided" else np.array(value, order="C")
    if isinstance(value, list | tuple):
        return type(value)(lay_out(item, layout) for item in value)
    if isinstance(value, dict):
        return {key: lay_out(item, layout) for key, item in value.items()}
    return value


def strided(array: np.ndarray) -> np.ndarray:
    """``array`` as a read-only view of every second element of a buffer that is poisoned in between."""
    if array.ndim == 0:
        room = array.copy()
    else:
        poison = np.nan if array.dtype.kind in "fc" else np.iinfo(array.dtype).max if array.dtype.kind in "iu" else True
        buffer = np.full((*array.shape[:-1], 2 * array.shape[-1] + 1), poison, array.dtype)
        room = buffer[..., 1::2]
        room[...] = array
    room.flags.writeable = False
    return room


def simplify(value: Any, depth: int = 0) -> tuple[Any, str]:
    """``value`` made of plain arrays, numbers, strings, tuples, lists and dicts, and the name of an array subclass in
    it, if any. Anything else becomes an ``Unsupported``."""
    if depth > _NEST:
        return Unsupported(type(value).__name__, "nested too deeply"), ""
    if isinstance(value, np.ndarray):
        subclass = "" if type(value) is np.ndarray else type(value).__name__
        return np.ndarray.view(value, np.ndarray), subclass
    if value is None or type(value) in (bool, int, float, complex, str) or isinstance(value, np.generic):
        return value, ""
    if isinstance(value, list | tuple):
        parts = [simplify(item, depth + 1) for item in value]
        made = [part for part, _ in parts]
        return made if isinstance(value, list) else tuple(made), next((s for _, s in parts if s), "")
    if isinstance(value, Mapping) and all(type(key) is str for key in value):
        parts = {key: simplify(value[key], depth + 1) for key in value}
        return {key: part for key, (part, _) in parts.items()}, next((s for _, s in parts.values() if s), "")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return value, "" if type(value) is torch.Tensor else type(value).__name__
    return Unsupported(type(value).__name__), ""


def same(after: Any, before: Any) -> bool:
    """Whether an argument still holds what it held."""
    if isinstance(before, np.ndarray):
        alike = after.shape == before.shape and after.dtype == before.dtype
        return alike and np.array_equal(after, before, equal_nan=before.dtype.kind in "fc")
    if isinstance(before, list | tuple):
        return len(after) == len(before) and all(map(same, after, before))
    if isinstance(before, dict):
        return after.keys() == before.keys() and all(same(after[key], before[key]) for key in before)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(before, torch.Tensor):
        return bool(torch.equal(after, before))
    return after is before or after == before


def shares(result: Any, argument: Any) -> bool:
    """Whether some array of ``result`` lies in the memory of some array of ``argument``."""
    return any(np.may_share_memory(a, b) for a in arrays_in(result) for b in arrays_in(argument) if a.size and b.size)


def arrays_in(value: Any, depth: int = 0) -> list[np.ndarray]:
    """Every array in ``value``, following lists, tuples and dicts."""
    if isinstance(value, np.ndarray):
        return [np.ndarray.view(value, np.ndarray)]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [array for item in items if depth < _NEST for array in arrays_in(item, depth + 1)]


def raised(error: BaseException, stage: str = "call") -> Outcome:
    """The outcome of an exception: its type, its text cut short, and the lines of the learner's own code."""
    kind = "memory" if isinstance(error, MemoryError) or "DefaultCPUAllocator" in text_of(error) else "raised"
    return Outcome(kind, stage, error=type(error).__name__[:60], message=text_of(error), lines=own_lines(error))


def text_of(error: BaseException) -> str:
    """The message of an exception, cut short; an exception that cannot be printed has none."""
    try:
        return str(error)[:_MESSAGE_CHARS]
    except BaseException:
        return ""


def own_lines(error: BaseException) -> tuple[Line, ...]:
    """The lines of the traceback that are not of a library or of the course, outermost first, at most four; for a
    SyntaxError the line that does not parse."""
    if isinstance(error, SyntaxError) and error.lineno:
        return (Line(error.filename or "?", error.lineno, (error.text or "").strip()[:200]),)
    frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), limit=-60, lookup_lines=False)
    own = [f for f in frames if not f.filename.startswith((*_LIBRARY_DIRS, "<frozen"))]
    return tuple(Line(f.filename, f.lineno or 0, (f.line or "").strip()[:200]) for f in own[-4:])
