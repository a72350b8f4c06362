"""The record of one counted run, the questions asked of it, and the run that is being counted now."""

import math
import threading
from dataclasses import dataclass, field
from typing import Any

#: How many arrays ``Counts.to_dict`` passes on, the largest first.
MOST_ARRAYS = 1000
#: What no count reaches, and the axes of an array that NumPy can make.
_TOO_MANY = 1 << 128
_MOST_AXES = 64
_NUMBERS = ("macs", "products", "elementwise", "bytes_read", "bytes_written", "largest")


@dataclass
class Counts:
    """What was seen while code ran; ``ledger.count`` says how each operation is counted.

    ``macs`` are multiply-adds, ``products`` the calls that contract, ``elementwise`` the elements of all other
    arithmetic, ``bytes_read`` and ``bytes_written`` what the operations touch. ``largest`` is the number of elements of
    the largest array that an operation created, ``largest_shape`` its shape; inputs and views are none. ``left`` names
    the ways in which values left the counted arrays, ``unpriced`` the functions whose arithmetic is not known: with
    either, the true cost may be higher than the count.
    """

    macs: int = 0
    products: int = 0
    elementwise: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    largest: int = 0
    largest_shape: tuple[int, ...] = ()
    left: list[str] = field(default_factory=list)
    unpriced: list[str] = field(default_factory=list)
    created: dict[tuple[tuple[int, ...], str], None] = field(default_factory=dict, repr=False)

    @property
    def arrays(self) -> tuple[tuple[tuple[int, ...], str], ...]:
        """(shape, operation) of every distinct array that an operation created, in order of appearance."""
        return tuple(self.created)

    def wrap(self, value: Any) -> Any:
        """``value`` with its NumPy arrays, also those in lists, tuples and dicts, replaced by counted views."""
        from ledger.count.numpy_arrays import wrap

        return wrap(value)

    def product(self, macs: int) -> None:
        """Record one call that contracts."""
        self.macs += macs
        self.products += 1

    def create(self, shape: tuple[int, ...], operation: str, nbytes: int) -> None:
        """Record a new array that ``operation`` wrote whole."""
        self.bytes_written += nbytes
        self.created.setdefault((shape, operation))
        elements = math.prod(shape)
        if elements > self.largest:
            self.largest, self.largest_shape = elements, shape

    def leave(self, way: str) -> None:
        """Record that values left the counted arrays."""
        if way not in self.left:
            self.left.append(way)

    def not_priced(self, name: str) -> None:
        """Record a function whose arithmetic is not known."""
        if name not in self.unpriced:
            self.unpriced.append(name)

    def add(self, other: "Counts") -> None:
        """Add the counts of a run inside this one."""
        for name in _NUMBERS[:-1]:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.largest > self.largest:
            self.largest, self.largest_shape = other.largest, other.largest_shape
        self.created.update(other.created)
        for way in other.left:
            self.leave(way)
        for name in other.unpriced:
            self.not_priced(name)

    def to_dict(self) -> dict[str, Any]:
        """The counts in JSON's types; of ``arrays`` the 1,000 largest."""
        arrays = sorted(self.created, key=lambda entry: -math.prod(entry[0]))[:MOST_ARRAYS]
        return {
            **{name: getattr(self, name) for name in _NUMBERS},
            "largest_shape": list(self.largest_shape),
            "left": list(self.left),
            "unpriced": list(self.unpriced),
            "arrays": [[list(shape), operation] for shape, operation in arrays],
        }

    @classmethod
    def from_dict(cls, data: Any) -> "Counts":
        """The counts that ``to_dict`` wrote; anything else raises ValueError, since it may come from a sandbox."""
        try:
            created = {(_shape(shape), _text(operation)): None for shape, operation in data["arrays"]}
            return cls(
                **{name: _whole(data[name]) for name in _NUMBERS},
                largest_shape=_shape(data["largest_shape"]),
                left=[_text(way) for way in data["left"]],
                unpriced=[_text(name) for name in data["unpriced"]],
                created=created,
            )
        except (TypeError, KeyError, ValueError) as fault:
            raise ValueError(f"not the counts of a run: {fault!r}") from None


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _TOO_MANY:
        raise ValueError("not a whole number, or one that no run can count to")
    return value


def _shape(value: Any) -> tuple[int, ...]:
    if len(value) > _MOST_AXES:
        raise ValueError("more axes than an array can have")
    return tuple(_whole(size) for size in value)


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > 200:
        raise ValueError("not a short text")
    return value


def was_counted(counts: Counts, least_macs: int) -> bool:
    """Whether the count can be the cost of a right answer, which needs at least ``least_macs`` multiply-adds.

    False below it, and also when a function of unknown arithmetic ran: then say "not counted", never "cheap".
    """
    return counts.macs >= least_macs and not counts.unpriced


def find_array(counts: Counts, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], str] | None:
    """The (shape, operation) of a created array that has all of ``sizes`` among its axes, or None.

    Each axis serves once, as one size or as the product of several (axes that were merged): sizes (5, 7) are found in
    (3, 7, 5) and (35,), sizes (5, 3, 7) in (5, 21). Sizes of 1 need no axis. The largest such array is returned.
    """
    wanted = tuple(size for size in sizes if size != 1)
    found = [entry for entry in counts.created if _covers(entry[0], wanted)]
    return max(found, key=lambda entry: math.prod(entry[0]), default=None)


def _covers(shape: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether each of ``sizes`` can be given to an axis of ``shape`` that is the product of the sizes it was given."""
    if not sizes:
        return True
    if not shape:
        return False
    axis, others = shape[0], shape[1:]
    for chosen in range(1 << len(sizes)):
        picked = [size for i, size in enumerate(sizes) if chosen >> i & 1]
        rest = tuple(size for i, size in enumerate(sizes) if not chosen >> i & 1)
        if (not picked or math.prod(picked) == axis) and _covers(others, rest):
            return True
    return False


#: Counts of the runs in progress, the innermost last. One thread counts at a time; it may count inside a count.
running: list[Counts] = []
lock = threading.RLock()


def current() -> Counts | None:
    """The counts of the run in progress, None outside one."""
    return running[-1] if running else None
