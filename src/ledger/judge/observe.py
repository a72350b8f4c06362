"""Run one case of an answer in this process and note what happened.

The sandboxed child and the check in a notebook both call this, so that an answer meets the same inputs and leaves the
same facts in both. Nothing here knows the right value.
"""

import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ledger.count import count, peak_bytes
from ledger.judge.outcome import Call, Line, Outcome, Unsupported

_MESSAGE_CHARS = 500
_NEST = 8
_LIBRARY_DIRS = tuple({sys.prefix, sys.base_prefix, str(Path(__file__).parent.parent)})


def observe(function: Callable[..., Any], call: Call) -> Outcome:
    """Call ``function`` on laid-out copies of ``call.args``; with ``call.counted`` a second time, counted.

    Every exception but KeyboardInterrupt becomes part of the outcome.
    """
    args = {name: lay_out(value, call.layout) for name, value in call.args.items()}
    peak = None
    try:
        if call.counted:
            value, peak = peak_bytes(function, *args.values())
        else:
            value = function(*args.values())
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return raised(error)
    plain, subclass = simplify(value)
    facts = {
        "value": plain,
        "subclass": subclass,
        "changed": tuple(name for name in args if not same(args[name], call.args[name])),
        "shares": tuple(name for name in args if shares(value, args[name])),
        "peak": peak,
    }
    if call.counted:
        facts |= counted_call(function, call)
    return Outcome("returned", **facts)


def counted_call(function: Callable[..., Any], call: Call) -> dict[str, Any]:
    """The counts of one more call, or nothing where the answer does not run on counted arrays."""
    args = [lay_out(value, call.layout) for value in call.args.values()]
    try:
        value, counts = count(function, *args)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return {}
    return {"counts": counts.to_dict(), "counted_value": simplify(value)[0]}


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
