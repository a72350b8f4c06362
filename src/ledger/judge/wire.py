"""What crosses between the judge and an answer's process: frames of a JSON header and raw bytes, never pickles.

A frame is 4 bytes, little-endian, that hold the header's length; the header, ``{"message": ..., "leaves": [[dtype,
shape, bytes], ...]}`` in JSON; and the bytes of every leaf, in C order. A value is a JSON tree whose array leaves are
numbers of leaves. Whoever reads trusts nothing: a frame that is not exactly this raises ``WireError``, and one that
announces more than the reader allows raises ``TooLarge`` before a byte of it is read.
"""

import json
import math
import os
import re
import struct
import sys
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ledger.judge.outcome import KINDS, Call, Line, Outcome, Unsupported

#: Most bytes of a header that comes from an answer, and of one that comes from the judge.
REPLY_HEADER = 1 << 20
JOB_HEADER = 64 << 20

_MAX_LEAVES = 512
_MAX_CHARS = {"answer": 300_000, "judge": 60_000_000}
_NUMBER_CHARS = 26
_MAX_DEPTH = 24
_MAX_INT_BITS = 1 << 18
_MAX_DIMS = 64
_MAX_NBYTES = (1 << 63) - 1
_DTYPE = re.compile(r"[<>|=]?(b1|i[1248]|u[1248]|f2|f4|f8|f16|c8|c16|c32)")
_RECORDS = {
    "Model": "ledger.models",
    "Machine": "ledger.machines",
    "Setup": "ledger.setups",
    "NsaConfig": "ledger.setups",
}
#: torch dtypes that NumPy lacks cross as integers of the same width.
_TORCH_AS_INT = {
    "bfloat16": "int16",
    "float8_e4m3fn": "uint8",
    "float8_e5m2": "uint8",
    "float8_e4m3fnuz": "uint8",
    "float8_e5m2fnuz": "uint8",
}
_TORCH_PLAIN = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
_TORCH_PLAIN += ("complex64", "complex128")
_SHORT, _LONG = 200, 2000
#: What no text from an answer may hold: escape sequences of terminals whole, then every other control character but
#: tab and line end, and the marks that turn the direction of text around.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_CONTROL = dict.fromkeys(
    [*range(9), *range(11, 32), *range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
)


class WireError(ValueError):
    """Bytes that are not a frame, a tree that is not a value, or a value that must not cross."""


class TooLarge(WireError):
    """A frame that announces more bytes of arrays than the reader allows: the bytes of each, and the message."""

    def __init__(self, sizes: list[int], message: dict):
        super().__init__("a frame that is too large")
        self.sizes = sizes
        self.message = message


class Frame(NamedTuple):
    """A whole frame: the JSON message and the arrays of its leaves."""

    message: dict
    leaves: list[np.ndarray]


class Encoder:
    """Turns values into trees and keeps the arrays that the trees refer to in ``leaves``.

    A value that cannot cross becomes an ``Unsupported``; with ``strict`` it raises WireError instead.
    """

    def __init__(self, strict: bool = False):
        self.leaves: list[np.ndarray] = []
        self.strict = strict
        self._room = 0

    def tree(self, value: Any) -> Any:
        """``value`` as a JSON tree; the whole of it is ``Unsupported`` where it is too large or too deep."""
        kept = len(self.leaves)
        self._room = _MAX_CHARS["judge" if self.strict else "answer"]
        try:
            return self._tree(value, 0)
        except _Refused as refused:
            del self.leaves[kept:]
            return ["unsupported", type(value).__name__[:_SHORT], str(refused)]

    def _tree(self, value: Any, depth: int) -> Any:
        self._room -= _NUMBER_CHARS
        if depth > _MAX_DEPTH:
            return self._refuse("it is nested too deeply")
        if self._room < 0:
            return self._refuse("it is too large for anything but an array")
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, np.ndarray):
            return self._array("array", np.ndarray.view(value, np.ndarray))
        if isinstance(value, np.generic):
            return self._array("scalar", np.array(value))
        if isinstance(value, str):
            return self._str(str.__str__(value))
        if isinstance(value, int):
            return self._int(int.__index__(value))
        if isinstance(value, float):
            return self._float(float.__float__(value))
        if isinstance(value, complex):
            return ["complex", self._float(value.real), self._float(value.imag)]
        return self._container(value, depth)

    def _container(self, value: Any, depth: int) -> Any:
        if isinstance(value, tuple):
            if self.strict and hasattr(value, "_fields"):
                raise WireError(f"a named tuple ({type(value).__name__}) would arrive as a plain one")
            return ["tuple", [self._tree(item, depth + 1) for item in tuple.__iter__(value)]]
        if isinstance(value, list):
            return ["list", [self._tree(item, depth + 1) for item in list.__iter__(value)]]
        if isinstance(value, Mapping):
            return ["dict", self._pairs(dict(value), depth)]
        if type(value) is SimpleNamespace:
            return ["namespace", self._pairs(vars(value), depth)]
        if isinstance(value, Unsupported):
            return ["unsupported", value.type_name[:_SHORT], value.why[:_SHORT]]
        name = type(value).__name__
        if type(value).__module__ == _RECORDS.get(name):
            record = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
            return ["record", name, self._pairs(record, depth)]
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            return self._tensor(torch, value)
        return self._unsupported(value, "")

    def _pairs(self, mapping: dict, depth: int) -> list:
        return [[self._tree(key, depth + 1), self._tree(item, depth + 1)] for key, item in mapping.items()]

    def _str(self, value: str) -> Any:
        self._room -= 6 * len(value)
        return value if self._room >= 0 else self._refuse("its text is too long")

    def _int(self, value: int) -> Any:
        if -(1 << 63) <= value < 1 << 63:
            return value
        if value.bit_length() > _MAX_INT_BITS:
            return self._refuse("an integer has too many digits")
        self._room -= value.bit_length() // 4
        return ["int", hex(value)]

    def _float(self, value: float) -> Any:
        return value if math.isfinite(value) else ["float", repr(value)]

    def _array(self, tag: str, array: np.ndarray, *extra: Any) -> list:
        if _DTYPE.fullmatch(array.dtype.str) is None:
            return self._unsupported(array, f"dtype {array.dtype}"[:_SHORT])
        if len(self.leaves) >= _MAX_LEAVES:
            return self._refuse(f"it holds more than {_MAX_LEAVES} arrays")
        self.leaves.append(array)
        return [tag, len(self.leaves) - 1, *extra]

    def _tensor(self, torch: Any, tensor: Any) -> list:
        name = str(tensor.dtype).removeprefix("torch.")
        if name not in _TORCH_PLAIN and name not in _TORCH_AS_INT:
            return self._unsupported(tensor, f"dtype {name}"[:_SHORT])
        grad = bool(tensor.requires_grad)
        try:
            plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
            array = (plain.view(getattr(torch, _TORCH_AS_INT[name])) if name in _TORCH_AS_INT else plain).numpy()
        except (RuntimeError, TypeError) as error:
            return self._unsupported(tensor, str(error)[:_SHORT])
        return self._array("tensor", array, name, grad)

    def _unsupported(self, value: Any, why: str) -> list:
        if self.strict:
            raise WireError(f"a {type(value).__name__} cannot be sent to an answer {why}".rstrip())
        return ["unsupported", type(value).__name__[:_SHORT], why]

    def _refuse(self, why: str) -> Any:
        raise WireError(f"an argument cannot be sent: {why}") if self.strict else _Refused(why)


class _Refused(Exception):
    """A value that is too large or too deep to cross at all."""


def value_of(tree: Any, leaves: list[np.ndarray], depth: int = 0) -> Any:
    """The value of a tree. Raises WireError where ``tree`` is none.

    A tensor becomes a torch tensor only where torch is imported already, so an answer cannot make the judge load it;
    elsewhere it is an ``Unsupported``.
    """
    if tree is None or type(tree) in (bool, int, float, str):
        return tree
    if type(tree) is not list or not tree or type(tree[0]) is not str or depth > _MAX_DEPTH + 1:
        raise WireError("a tree is a plain value or a list that begins with its kind")
    decode = _DECODERS.get(tree[0])
    if decode is None:
        raise WireError("a tree of an unknown kind")
    try:
        return decode(leaves, depth, *tree[1:])
    except WireError:
        raise
    except Exception as error:
        raise WireError(f"a malformed {tree[0]}: {type(error).__name__}") from None


def _decode_items(make: type) -> Any:
    def decode(leaves: list, depth: int, items: list) -> Any:
        return make(value_of(item, leaves, depth + 1) for item in _checked(items, list))

    return decode


def _decode_dict(leaves: list, depth: int, pairs: list) -> dict:
    return {value_of(key, leaves, depth + 1): value_of(item, leaves, depth + 1) for key, item in _checked(pairs, list)}


def _decode_namespace(leaves: list, depth: int, pairs: list) -> SimpleNamespace:
    return SimpleNamespace(**_decode_dict(leaves, depth, pairs))


def _decode_record(leaves: list, depth: int, name: str, pairs: list) -> Any:
    make = getattr(import_module(_RECORDS[name]), name)
    return make(**_decode_dict(leaves, depth, pairs))


def _decode_array(leaves: list, depth: int, index: int) -> np.ndarray:
    return leaves[_index(index)]


def _decode_scalar(leaves: list, depth: int, index: int) -> np.generic:
    array = leaves[_index(index)]
    if array.ndim:
        raise WireError("a scalar has no dimensions")
    return array[()]


def _decode_tensor(leaves: list, depth: int, index: int, dtype: str, grad: bool) -> Any:
    array = leaves[_index(index)]
    if dtype not in _TORCH_PLAIN and dtype not in _TORCH_AS_INT:
        raise WireError("a tensor of an unknown dtype")
    torch = sys.modules.get("torch")
    if torch is None:
        return Unsupported("torch.Tensor", f"dtype {dtype}, shape {array.shape}")
    if array.dtype != np.dtype(_TORCH_AS_INT.get(dtype, dtype)):
        raise WireError("a tensor whose bytes are of another dtype")
    tensor = torch.from_numpy(array)
    if dtype in _TORCH_AS_INT:
        tensor = tensor.view(getattr(torch, dtype))
    return tensor.requires_grad_() if _checked(grad, bool) else tensor


def _decode_int(leaves: list, depth: int, digits: str) -> int:
    if len(_checked(digits, str)) > _MAX_INT_BITS // 4 + 3:
        raise WireError("an integer has too many digits")
    return int(digits, 16)


def _decode_float(leaves: list, depth: int, name: str) -> float:
    return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[name]


def _decode_complex(leaves: list, depth: int, real: Any, imag: Any) -> complex:
    parts = [value_of(part, leaves, depth + 1) for part in (real, imag)]
    return complex(*(_checked(part, float) for part in parts))


def _decode_unsupported(leaves: list, depth: int, type_name: str, why: str) -> Unsupported:
    return Unsupported(text(type_name, _SHORT), text(why, _SHORT))


_DECODERS = {
    "tuple": _decode_items(tuple),
    "list": _decode_items(list),
    "dict": _decode_dict,
    "namespace": _decode_namespace,
    "record": _decode_record,
    "array": _decode_array,
    "scalar": _decode_scalar,
    "tensor": _decode_tensor,
    "int": _decode_int,
    "float": _decode_float,
    "complex": _decode_complex,
    "unsupported": _decode_unsupported,
}


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise WireError(f"expected a {kind.__name__}, got a {type(value).__name__}")
    return value


def _index(value: Any) -> int:
    if _checked(value, int) < 0:
        raise WireError("a negative number of a leaf")
    return value


def text(value: Any, length: int) -> str:
    """A string of at most ``length`` characters that every terminal and file can take."""
    return plain(_checked(value, str)[:length])


def plain(value: str) -> str:
    """``value`` without what a terminal would act on, and without lone surrogates."""
    return _ESCAPE.sub("", value).translate(_CONTROL).encode("utf-8", "replace").decode()


def call_to_wire(call: Call) -> tuple[dict, list[np.ndarray]]:
    """A call as a message and its leaves; raises WireError where an argument cannot cross."""
    encoder = Encoder(strict=True)
    tree = encoder.tree(call.args)
    return {"args": tree, "layout": call.layout, "counted": call.counted, "peak": call.peak}, encoder.leaves


def call_from_wire(frame: Frame) -> Call:
    """The call that a frame holds."""
    message = frame.message
    return Call(value_of(message["args"], frame.leaves), message["layout"], message["counted"], message["peak"])


def outcome_to_wire(outcome: Outcome) -> tuple[dict, list[np.ndarray]]:
    """An outcome as a message and its leaves; long texts are cut."""
    encoder = Encoder()
    message = {
        "kind": outcome.kind,
        "stage": outcome.stage,
        "value": encoder.tree(outcome.value),
        "counted_value": encoder.tree(outcome.counted_value),
        "error": outcome.error[:_SHORT],
        "message": outcome.message[:_LONG],
        "lines": [[line.file[:_SHORT], line.number, line.text[:_SHORT]] for line in outcome.lines],
        "changed": list(outcome.changed),
        "shares": list(outcome.shares),
        "subclass": outcome.subclass[:_SHORT],
        "counts": encoder.tree(outcome.counts),
        "peak": outcome.peak,
        "uncounted": outcome.uncounted[:_SHORT],
        "used_torch": outcome.used_torch,
        "detail": outcome.detail[:_LONG],
    }
    return message, encoder.leaves


def outcome_from_wire(frame: Frame, kinds: tuple[str, ...] = KINDS) -> Outcome:
    """The outcome that a frame holds. Raises WireError where it holds none, or one of a kind not in ``kinds``."""
    message, leaves = frame
    try:
        if message["kind"] not in kinds or message["stage"] not in ("load", "call"):
            raise WireError("an outcome of an unknown kind")
        counts = value_of(message["counts"], leaves)
        peak = message["peak"]
        return Outcome(
            kind=message["kind"],
            stage=message["stage"],
            value=value_of(message["value"], leaves),
            counted_value=value_of(message["counted_value"], leaves),
            error=text(message["error"], _SHORT),
            message=text(message["message"], _LONG),
            lines=tuple(
                Line(text(file, _SHORT), _checked(number, int), text(line, _SHORT))
                for file, number, line in message["lines"][:8]
            ),
            changed=tuple(text(name, _SHORT) for name in message["changed"][:64]),
            shares=tuple(text(name, _SHORT) for name in message["shares"][:64]),
            subclass=text(message["subclass"], _SHORT),
            counts=counts if counts is None else _checked(counts, dict),
            peak=peak if peak is None else _checked(peak, int),
            uncounted=text(message["uncounted"], _SHORT),
            used_torch=_checked(message["used_torch"], bool),
            detail=text(message["detail"], _LONG),
        )
    except WireError:
        raise
    except Exception as error:
        raise WireError(f"a malformed outcome: {type(error).__name__}") from None


def frame_bytes(message: dict, leaves: list[np.ndarray] = ()) -> list[memoryview]:
    """A frame as buffers to write one after another; arrays are copied only where they are not contiguous."""
    arrays = [np.ascontiguousarray(leaf) for leaf in leaves]
    table = [[leaf.dtype.str, list(leaf.shape), leaf.nbytes] for leaf in leaves]
    header = json.dumps({"message": message, "leaves": table}, allow_nan=False, separators=(",", ":")).encode()
    buffers = [memoryview(struct.pack("<I", len(header)) + header)]
    return buffers + [memoryview(array.reshape(-1).view(np.uint8)) for array in arrays if array.nbytes]


class FrameReader:
    """Reads one frame after another from whatever bytes arrive.

    ``space()`` is where the next bytes belong: never more than the frame at hand still needs. ``advance(count)`` says
    how many arrived and returns the frame once it is whole. ``max_bytes`` bounds the arrays of a frame and may be set
    anew between frames. After a WireError the reader is of no further use.
    """

    def __init__(self, max_bytes: int, max_header: int = REPLY_HEADER):
        self.max_bytes = max_bytes
        self.max_header = max_header
        self._begin()

    def _begin(self) -> None:
        self._length = bytearray(4)
        self._header: bytearray | None = None
        self._message: dict | None = None
        self._specs: list[tuple[np.dtype, tuple[int, ...]]] = []
        self._sections: list[bytearray] = []
        self._current, self._filled = self._length, 0

    def space(self) -> memoryview:
        """The memory that the next bytes go to; it is never empty."""
        return memoryview(self._current)[self._filled :]

    def advance(self, count: int) -> Frame | None:
        """Take ``count`` bytes that were put into ``space()``; the frame if that completes it."""
        self._filled += count
        if self._filled < len(self._current):
            return None
        if self._header is None:
            size = struct.unpack("<I", self._length)[0]
            if not 2 <= size <= self.max_header:
                raise WireError("a header of an impossible length")
            self._header = bytearray(size)
            self._current, self._filled = self._header, 0
            return None
        if self._message is None:
            self._read_header()
        return self._next_section()

    def _read_header(self) -> None:
        try:
            header = json.loads(self._header, parse_constant=_no_constant)
            message, table = header["message"], header["leaves"]
            if type(message) is not dict or type(table) is not list or len(table) > _MAX_LEAVES:
                raise WireError("a header of the wrong form")
            sizes = [_leaf_spec(*leaf) for leaf in table]
        except WireError:
            raise
        except Exception as error:
            raise WireError(f"a malformed header: {type(error).__name__}") from None
        if sum(nbytes for _, _, nbytes in sizes) > self.max_bytes:
            raise TooLarge([nbytes for _, _, nbytes in sizes], message)
        self._message = message
        self._specs = [(dtype, shape) for dtype, shape, _ in sizes]
        self._sections = [bytearray(nbytes) for _, _, nbytes in sizes]
        self._waiting = [section for section in self._sections if section]

    def _next_section(self) -> Frame | None:
        if self._waiting:
            self._current, self._filled = self._waiting.pop(0), 0
            return None
        try:
            leaves = [_leaf(*spec, raw) for spec, raw in zip(self._specs, self._sections, strict=True)]
        except (ValueError, TypeError, OverflowError) as error:
            raise WireError(f"a malformed leaf: {type(error).__name__}") from None
        frame = Frame(self._message, leaves)
        self._begin()
        return frame


def _leaf_spec(dtype: str, shape: list, nbytes: int) -> tuple[np.dtype, tuple[int, ...], int]:
    """What a leaf announces, checked: its dtype, its shape and its bytes, which must agree."""
    if _DTYPE.fullmatch(_checked(dtype, str)) is None:
        raise WireError("a leaf of a dtype that does not cross")
    made = np.dtype(dtype)
    dims = tuple(_index(size) for size in _checked(shape, list))
    if len(dims) > _MAX_DIMS or math.prod(dims) * made.itemsize != _index(nbytes):
        raise WireError("a leaf whose shape and bytes do not agree")
    if nbytes > _MAX_NBYTES:
        raise WireError("a leaf that no memory can hold")
    return made, dims, nbytes


def _leaf(dtype: np.dtype, shape: tuple[int, ...], raw: bytearray) -> np.ndarray:
    """The array of a leaf, writable, in the memory that it was read into."""
    if dtype.kind == "b":
        return (np.frombuffer(raw, np.uint8) != 0).reshape(shape)
    return np.frombuffer(raw, dtype).reshape(shape)


def _no_constant(name: str) -> Any:
    raise WireError(f"{name} is not JSON")


def send(fd: int, message: dict, leaves: list[np.ndarray] = ()) -> None:
    """Write a frame to a blocking descriptor."""
    write(fd, frame_bytes(message, leaves))


def write(fd: int, frame: list[memoryview]) -> None:
    """Write the buffers of a frame to a blocking descriptor."""
    for buffer in frame:
        while buffer:
            buffer = buffer[os.write(fd, buffer) :]


def receive(fd: int, reader: FrameReader) -> Frame:
    """Read a frame from a blocking descriptor; raises EOFError where it is closed."""
    while True:
        count = os.readv(fd, [reader.space()])
        if not count:
            raise EOFError("the other side has gone")
        frame = reader.advance(count)
        if frame:
            return frame
