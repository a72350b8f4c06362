"""What happened when an answer ran on one case: facts only, no verdict.

The same record comes from the sandboxed child and from a check in a notebook, so one comparison serves both.
"""

from dataclasses import dataclass, field
from typing import Any

#: How a call can end. ``missing`` means that no function of the exercise's name was defined.
KINDS = ("returned", "raised", "missing", "timeout", "memory", "output", "crash", "judge_error")


@dataclass(frozen=True)
class Line:
    """One line of the learner's own code, as a traceback names it."""

    file: str
    number: int
    text: str


@dataclass(frozen=True)
class Unsupported:
    """Stands for a result that no exercise asks for (an object, a generator, an array of objects …)."""

    type_name: str
    why: str = ""


@dataclass(frozen=True)
class Outcome:
    """One call of an answer, or why it did not happen.

    ``stage`` is ``load`` while the cells above and the answer's own cell run, then ``call``. ``changed`` and ``shares``
    name arguments that the call modified and arguments whose memory the result shares. ``subclass`` names the type of a
    result that is an array but not a plain one. ``used_torch`` says that torch is loaded where the call ran.

    What further calls found, where ``Call`` asks for them and the first one returned: ``counts`` is
    ``Counts.to_dict()`` of a counted call whose result is ``counted_value``; ``peak`` is the bytes at the height of
    another call above those at its start. Either is None where that call gave nothing; ``uncounted`` then says why (an
    exception, ``timeout``, what ended the process, who stopped the tracing), and the rest is as the first call left it.
    Counts beside a ``timeout`` and no ``counted_value`` are those of the part that ran.
    """

    kind: str
    stage: str = "call"
    value: Any = None
    error: str = ""
    message: str = ""
    lines: tuple[Line, ...] = ()
    changed: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    subclass: str = ""
    counts: dict | None = None
    counted_value: Any = None
    uncounted: str = ""
    peak: int | None = None
    used_torch: bool = False
    detail: str = ""


@dataclass(frozen=True)
class Call:
    """One case to run: arguments by name, how to lay arrays out, and whether to call once more to count, and to measure
    the memory at the height."""

    args: dict[str, Any]
    layout: str = "plain"
    counted: bool = False
    peak: bool = False


@dataclass(frozen=True)
class Cell:
    """A code cell to execute; ``file`` is the name that tracebacks show. Of a job only the last cell is the answer."""

    file: str
    source: str


@dataclass(frozen=True)
class Job:
    """An answer with the cells above it, and the cases to run on it, in order.

    ``count_seconds`` is the time of a further call that counts, and of one that measures beside what the plain call
    took many times over (``observe.time_for``); neither is part of ``total_seconds``. ``launcher`` is that of the
    exercise, and ``needs`` are libraries that its process has imported whatever the cells import.
    """

    function: str
    cells: tuple[Cell, ...]
    calls: tuple[Call, ...]
    case_seconds: float = 2.0
    load_seconds: float = 10.0
    total_seconds: float = 20.0
    count_seconds: float = 4.0
    memory_mb: int = 512
    output_bytes: int = 1 << 20
    result_bytes: int = 64 << 20
    launcher: str = ""
    needs: tuple[str, ...] = ()


@dataclass
class Run:
    """What came of a job: one outcome a call, the layers of isolation that held, and the head of what was printed.
    ``ended_in`` is the number of a cell above the answer, from 0, that took the process with it; ``left_out`` says
    which cells an earlier run did so in."""

    outcomes: list[Outcome]
    layers: tuple[str, ...] = ()
    output: str = ""
    seconds: float = 0.0
    peak_mb: int = 0
    notes: list[str] = field(default_factory=list)
    ended_in: int | None = None
    left_out: list[str] = field(default_factory=list)
