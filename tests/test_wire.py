"""The wire: every value arrives as it left, and no bytes whatever do more than raise WireError."""

import json
import math
import os
import struct
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from ledger.judge import wire
from ledger.judge.outcome import Call, Line, Outcome, Unsupported
from ledger.machines import MACHINES
from ledger.models import MODELS
from ledger.setups import NSA_PAPER, ROUNDED

VALUES = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    2**63,
    -(2**64),
    7**5000,
    0.1,
    -0.0,
    1e-320,
    math.inf,
    -math.inf,
    complex(0.1, -2),
    complex(math.inf, 0.0),
    "",
    "naïve × 注意 \ud800 \0",
    (),
    (1,),
    [],
    [1, [2.0, ("x", None)]],
    {},
    {"a": 1, 2: [3], (1, "b"): {"c": ()}},
    SimpleNamespace(layers=61, rates={"bf16": 1e12}),
]
DTYPES = "? i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 g c8 c16 >f4 >i8".split()  # noqa: SIM905
SHAPES = [(), (0,), (1,), (3, 0, 2), (2, 3), (2, 1, 4)]


def feed(reader: wire.FrameReader, data: bytes, step: int = 1 << 30) -> tuple[wire.Frame | None, int]:
    """Put ``data`` into ``reader``, at most ``step`` bytes at a time: the first frame, and how many bytes it took."""
    taken = 0
    while taken < len(data):
        space = reader.space()[:step]
        part = data[taken : taken + len(space)]
        space[: len(part)] = part
        taken += len(part)
        frame = reader.advance(len(part))
        if frame:
            return frame, taken
    return None, taken


def raw(message: dict, leaves: list = ()) -> bytes:
    return b"".join(bytes(part) for part in wire.frame_bytes(message, leaves))


def through(value: object, strict: bool = False, step: int = 1 << 30) -> object:
    """``value`` after a journey."""
    encoder = wire.Encoder(strict)
    data = raw({"tree": encoder.tree(value)}, encoder.leaves)
    frame, taken = feed(wire.FrameReader(1 << 30, 1 << 26), data, step)
    assert taken == len(data)
    return wire.value_of(frame.message["tree"], frame.leaves)


def forged(header: object, body: bytes = b"") -> bytes:
    """A frame with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<I", len(text)) + text + body


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[31;1mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("\x1b]unended", "]unended"),
        ("\x1bc\x9b2J\x00\x7f\b\rover", "c2Jover"),
        ("naïve × 注意 \u202egnp\u2028", "naïve × 注意 gnp"),
        ("\ud800", "?"),
    ],
)
def test_a_text_holds_nothing_that_a_terminal_acts_on(written, read):
    assert wire.text(written, 100) == read
    sent = Outcome(
        "raised", error="E", message=written, detail=written, lines=(Line("f", 1, written),), uncounted=written
    )
    got = wire.outcome_from_wire(wire.Frame(*wire.outcome_to_wire(sent)))
    assert (got.message, got.detail, got.lines[0].text, got.uncounted) == (read,) * 4


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_a_value_arrives_as_it_left(value, strict):
    # repr tells -0.0 from 0.0 and True from 1; nan has a test of its own.
    sys.set_int_max_str_digits(10_000)
    assert repr(through(value, strict)) == repr(value)


def test_nan_arrives():
    assert math.isnan(through(math.nan))
    assert math.isnan(through(complex(math.nan, 1.0)).real)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_arrives_bit_for_bit(dtype, shape):
    rng = np.random.default_rng(3)
    array = np.asarray(rng.integers(0, 2, shape) if dtype == "?" else rng.normal(0, 50, shape)).astype(dtype)
    got = through(array)
    assert type(got) is np.ndarray
    assert (got.dtype, got.shape) == (array.dtype, array.shape)
    assert got.tobytes() == array.tobytes()
    assert got.flags.writeable


@pytest.mark.parametrize("order", ["transposed", "strided", "reversed", "read-only"])
def test_the_order_in_memory_does_not_matter(order):
    array = np.arange(24.0).reshape(4, 6)
    array = {"transposed": array.T, "strided": array[::2, 1::3], "reversed": array[::-1], "read-only": array}[order]
    array.flags.writeable = order != "read-only"
    np.testing.assert_array_equal(through(array), array)


def test_nan_payloads_and_signed_zeros_of_arrays_survive():
    bits = np.array([0x7FF8_0000_0000_0001, 0xFFF0_0000_0000_0001, 0x8000_0000_0000_0000], np.uint64)
    np.testing.assert_array_equal(through(bits.view(np.float64)).view(np.uint64), bits)


@pytest.mark.parametrize(
    "scalar", [np.float32(0.1), np.int64(-3), np.bool_(True), np.complex128(1j), np.float16("nan")]
)
def test_a_numpy_scalar_stays_one(scalar):
    got = through(scalar)
    assert type(got) is type(scalar)
    assert got.tobytes() == scalar.tobytes()


def test_arrays_within_containers_keep_their_places():
    value = {"pair": (np.arange(3), [np.float32(2), np.ones((2, 2))]), "empty": np.empty((0, 5))}
    got = through(value)
    np.testing.assert_array_equal(got["pair"][0], np.arange(3))
    assert got["pair"][1][0] == np.float32(2)
    np.testing.assert_array_equal(got["pair"][1][1], np.ones((2, 2)))
    assert got["empty"].shape == (0, 5)


RECORDS = [*MODELS.values(), *MACHINES.values(), ROUNDED, NSA_PAPER]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: getattr(record, "name", type(record).__name__))
def test_models_machines_and_setups_cross_by_value(record):
    got = through(record, strict=True)
    assert got == record
    assert got is not record


@pytest.mark.parametrize("step", [1, 2, 3, 7, 64])
def test_bytes_may_come_in_any_portions(step):
    value = (np.arange(7.0), "text", np.arange(5, dtype=np.int8))
    got = through(value, step=step)
    np.testing.assert_array_equal(got[0], value[0])
    np.testing.assert_array_equal(got[2], value[2])


def test_frames_follow_one_another():
    reader = wire.FrameReader(100)
    data = raw({"n": 1}, [np.arange(3)]) + raw({"n": 2}) + raw({"n": 3}, [np.ones(2)])
    numbers = []
    while data:
        frame, taken = feed(reader, data)
        numbers.append(frame.message["n"])
        data = data[taken:]
    assert numbers == [1, 2, 3]


class TestTorch:
    torch = property(lambda self: pytest.importorskip("torch"))

    @pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "int64", "bool", "float8_e4m3fn"])
    def test_a_tensor_arrives_bit_for_bit(self, name):
        tensor = (self.torch.arange(6.0).reshape(2, 3) / 3).to(getattr(self.torch, name))
        got = through(tensor)
        assert type(got) is self.torch.Tensor
        assert (got.dtype, got.shape, got.requires_grad) == (tensor.dtype, tensor.shape, False)
        width = {1: self.torch.uint8, 2: self.torch.int16, 4: self.torch.int32, 8: self.torch.int64}[tensor.itemsize]
        assert self.torch.equal(got.view(width), tensor.view(width))

    def test_a_gradient_is_said_and_not_followed(self):
        got = through(self.torch.ones(2, requires_grad=True) * 2)
        assert got.requires_grad
        assert got.grad_fn is None

    def test_a_sparse_tensor_is_unsupported(self):
        assert through(self.torch.eye(2).to_sparse()).type_name == "Tensor"

    def test_a_tensor_does_not_make_the_judge_import_torch(self, monkeypatch):
        encoder = wire.Encoder()
        tree = encoder.tree(self.torch.ones(2, 3))
        monkeypatch.delitem(sys.modules, "torch")
        got = wire.value_of(tree, encoder.leaves)
        assert got == Unsupported("torch.Tensor", "dtype float32, shape (2, 3)")
        assert "torch" not in sys.modules


class Reduced:
    """Leaves a trace if anything pickles or copies it."""

    used = False

    def __reduce__(self):
        Reduced.used = True
        return (int, ())


UNSUPPORTED = {
    "object": (Reduced(), "Reduced"),
    "generator": ((n for n in ()), "generator"),
    "set": ({1}, "set"),
    "bytes": (b"x", "bytes"),
    "type": (int, "type"),
    "array of objects": (np.array([None]), "ndarray"),
    "array of text": (np.array(["a"]), "ndarray"),
    "array of dates": (np.array(["2020"], "datetime64[Y]"), "ndarray"),
    "structured array": (np.zeros(2, "i4,f8"), "ndarray"),
    "text of a megabyte": ("x" * (1 << 20), "str"),
    "integer of a million bits": (1 << 1_000_000, "int"),
    "list of a million": ([0] * 1_000_000, "list"),
    "many arrays": ([np.zeros(1)] * 600, "list"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_what_cannot_cross_is_named(case):
    value, name = UNSUPPORTED[case]
    got = through(value)
    assert isinstance(got, Unsupported)
    assert got.type_name == name
    assert not Reduced.used


def test_a_list_that_holds_itself_is_unsupported():
    value = []
    value.append(value)
    assert through(value) == Unsupported("list", "it is nested too deeply")


def test_only_the_part_that_cannot_cross_is_replaced():
    got = through((np.arange(2), {1}))
    np.testing.assert_array_equal(got[0], np.arange(2))
    assert got[1] == Unsupported("set")


@pytest.mark.parametrize(
    "value", [Reduced(), {1}, np.array([None]), [Reduced()]], ids=["object", "set", "objects", "list"]
)
def test_an_argument_that_cannot_cross_raises(value):
    with pytest.raises(wire.WireError):
        wire.call_to_wire(Call({"x": value}))


def test_the_largest_outcome_fits_the_header():
    wide = [0.1] * 11_000
    long = "\udfff" * 5000
    outcome = Outcome(
        "raised", value=wide, counted_value=wide, counts={"n": wide}, message=long, error=long, detail=long
    )
    frame, _ = feed(wire.FrameReader(0), raw(*wire.outcome_to_wire(outcome)))
    assert wire.outcome_from_wire(frame).counted_value == wide


def test_an_outcome_arrives_as_it_left():
    outcome = Outcome(
        kind="returned",
        stage="call",
        value=(np.arange(3), 2.5),
        error="E",
        message="m",
        lines=(Line("cell 1", 3, "x = 1"),),
        changed=("x",),
        shares=("w",),
        subclass="Sub",
        counts={"macs": 12, "arrays": [[[2, 3], "matmul"]]},
        counted_value=None,
        peak=99,
        detail="d",
    )
    frame, _ = feed(wire.FrameReader(100), raw(*wire.outcome_to_wire(outcome)))
    got = wire.outcome_from_wire(frame)
    np.testing.assert_array_equal(got.value[0], np.arange(3))
    plain = {name: value for name, value in vars(got).items() if name != "value"}
    assert plain == {name: value for name, value in vars(outcome).items() if name != "value"}


def test_texts_arrive_printable():
    frame, _ = feed(wire.FrameReader(0), raw(*wire.outcome_to_wire(Outcome("raised", message="a\ud800b"))))
    assert wire.outcome_from_wire(frame).message == "a?b"


def test_a_kind_that_a_process_may_not_give_is_refused():
    frame, _ = feed(wire.FrameReader(0), raw(*wire.outcome_to_wire(Outcome("timeout"))))
    assert wire.outcome_from_wire(frame).kind == "timeout"
    with pytest.raises(wire.WireError):
        wire.outcome_from_wire(frame, ("returned",))


def test_a_call_arrives_as_it_left():
    call = Call({"x": np.arange(4.0)[::2], "n": 3}, layout="strided", counted=True)
    message, leaves = wire.call_to_wire(call)
    frame, _ = feed(wire.FrameReader(100), raw(message, leaves))
    got = wire.call_from_wire(frame)
    np.testing.assert_array_equal(got.args["x"], [0, 2])
    assert (list(got.args), got.args["n"], got.layout, got.counted) == (["x", "n"], 3, "strided", True)


def test_a_size_is_refused_before_a_byte_is_read():
    header = forged({"message": {"k": 1}, "leaves": [["<f8", [1 << 40], 8 << 40], ["|u1", [3], 3]]})
    reader = wire.FrameReader(1000)
    with pytest.raises(wire.TooLarge) as caught:
        feed(reader, header)
    assert caught.value.sizes == [8 << 40, 3]
    assert caught.value.message == {"k": 1}


def test_the_size_allowed_is_that_of_all_arrays_together():
    data = raw({}, [np.zeros(5), np.zeros(5)])
    assert feed(wire.FrameReader(80), data)[0]
    with pytest.raises(wire.TooLarge):
        feed(wire.FrameReader(79), data)


def test_a_reader_never_asks_for_more_than_the_frame_holds():
    data = raw({"n": 1}, [np.arange(3)]) + b"more"
    assert feed(wire.FrameReader(100), data)[1] == len(data) - 4


FORGED = {
    "no header": struct.pack("<I", 0),
    "header of 4 GB": struct.pack("<I", 0xFFFFFFFF),
    "not JSON": forged(b"{]"),
    "not UTF-8": forged(b'"\xff\xfe"'),
    "a list": forged([1]),
    "no message": forged({"leaves": []}),
    "message is a list": forged({"message": [], "leaves": []}),
    "leaves is a dict": forged({"message": {}, "leaves": {}}),
    "leaf is a number": forged({"message": {}, "leaves": [3]}),
    "leaf is too short": forged({"message": {}, "leaves": [["<f8", [1]]]}),
    "nesting of 100,000": forged(b'{"message":' + b"[" * 100_000 + b"]" * 100_000 + b',"leaves":[]}'),
    "NaN as a size": forged(b'{"message":{},"leaves":[["<f8",[1],NaN]]}'),
    "Infinity as a size": forged(b'{"message":{},"leaves":[["<f8",[Infinity],8]]}'),
    "NaN in the message": forged(b'{"message":{"x":NaN},"leaves":[]}'),
    "integer of 5,000 digits": forged(b'{"message":{},"leaves":[["<f8",[1],' + b"9" * 5000 + b"]]}"),
    "negative size": forged({"message": {}, "leaves": [["<f8", [-1], -8]]}),
    "negative sizes that cancel": forged({"message": {}, "leaves": [["<f8", [-1, -1], 8]]}, b"x" * 8),
    "true as a size": forged({"message": {}, "leaves": [["|u1", [True], True]]}, b"x"),
    "float as a size": forged({"message": {}, "leaves": [["|u1", [1.0], 1]]}, b"x"),
    "shape and bytes disagree": forged({"message": {}, "leaves": [["<f8", [2], 8]]}, b"x" * 8),
    "dimensions beyond NumPy's": forged({"message": {}, "leaves": [["|u1", [1] * 100, 1]]}, b"x"),
    "empty but huge": forged({"message": {}, "leaves": [["<f8", [0, 1 << 62, 1 << 62], 0]]}),
    "more bytes than any memory": forged({"message": {}, "leaves": [["|u1", [10**4000], 10**4000]]}),
    "objects": forged({"message": {}, "leaves": [["|O", [1], 8]]}, b"x" * 8),
    "structured dtype": forged({"message": {}, "leaves": [["i4,f8", [1], 12]]}, b"x" * 12),
    "text dtype": forged({"message": {}, "leaves": [["<U4", [1], 16]]}, b"x" * 16),
    "dtype of wrong width": forged({"message": {}, "leaves": [["<f3", [1], 3]]}, b"xxx"),
    "dtype is a list": forged({"message": {}, "leaves": [[["a", "i4"], [1], 4]]}, b"xxxx"),
    "a million leaves": forged({"message": {}, "leaves": [["|u1", [0], 0]] * 10_000}),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_frame_raises_wire_error(case):
    with pytest.raises(wire.WireError):
        feed(wire.FrameReader(1 << 20), FORGED[case])


TREES = [
    [],
    {},
    ["unknown", 1],
    [["tuple"], []],
    ["tuple"],
    ["tuple", {}],
    ["tuple", [], 1],
    ["dict", [[1]]],
    ["dict", [[["list", []], 1]]],
    ["array", 1],
    ["array", -1],
    ["array", True],
    ["array", "0"],
    ["scalar", 0],
    ["int", "zz"],
    ["int", 5],
    ["int", "f" * 100_000],
    ["float", "1"],
    ["float", ["nan"]],
    ["complex", 1, 2],
    ["complex", ["array", 0], 1.0],
    ["record", "Call", []],
    ["record", "Model", [["name", "x"]]],
    ["record", "os.system", []],
    ["namespace", [[1, 2]]],
    ["tensor", 0, "float32", False],
    ["tensor", 0, "object", False],
    ["unsupported", 1, ""],
    ["unsupported", "x"],
]


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: json.dumps(tree)[:30])
def test_a_forged_tree_raises_wire_error(tree):
    pytest.importorskip("torch")  # without it a tensor stays a name
    with pytest.raises(wire.WireError):
        wire.value_of(tree, [np.zeros(2)])


def test_a_deep_tree_raises_wire_error():
    tree = 0
    for _ in range(200):
        tree = ["list", [tree]]
    with pytest.raises(wire.WireError):
        wire.value_of(tree, [])


def test_bytes_of_bool_arrays_become_bools():
    frame, _ = feed(wire.FrameReader(10), forged({"message": {}, "leaves": [["|b1", [3], 3]]}, b"\x00\x02\xff"))
    assert frame.leaves[0].tobytes() == b"\x00\x01\x01"


@pytest.mark.parametrize("seed", range(8))
def test_mutated_frames_do_no_more_than_raise_wire_error(seed):
    """Bits flipped, bytes cut out, doubled and replaced by JSON's own words, in frames of every kind."""
    rng = np.random.default_rng(seed)
    outcome = Outcome(
        "returned",
        value={"a": (np.arange(4.0), [1, 2.5, None, 2**70, math.nan]), "b": MODELS["DeepSeek-V3"]},
        lines=(Line("f", 1, "t"),),
        counts={"macs": 5},
        peak=3,
    )
    whole = raw(*wire.outcome_to_wire(outcome))
    words = [b"NaN", b"-1", b"1e999", b"[[", b"{}", b"null", b"true", b'"', b"99999999999999999999", b"<O8", b"\xff"]
    ends = set()
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            at, kind = rng.integers(0, len(data)), rng.integers(0, 4)
            if kind == 0:
                data[at] ^= 1 << rng.integers(0, 8)
            elif kind == 1:
                del data[at : at + rng.integers(1, 9)]
            elif kind == 2:
                data[at:at] = data[at : at + rng.integers(1, 40)]
            else:
                data[at : at + rng.integers(0, 4)] = words[rng.integers(0, len(words))]
        if rng.integers(0, 2):  # a right length lets the mutation through to the parser
            data[:4] = struct.pack("<I", max(2, len(data) - 4 - 32))
        try:
            frame, _ = feed(wire.FrameReader(1 << 16), bytes(data))
            if frame:
                got = wire.outcome_from_wire(frame)
                assert isinstance(got, Outcome)
            ends.add("frame" if frame else "waits")
        except wire.WireError:
            ends.add("refused")
    assert {"frame", "refused"} <= ends


def test_send_and_receive_pass_a_pipe():
    end, start = os.pipe()
    wire.send(start, {"n": 1}, [np.arange(100)])
    os.close(start)
    reader = wire.FrameReader(1 << 20)
    frame = wire.receive(end, reader)
    np.testing.assert_array_equal(frame.leaves[0], np.arange(100))
    with pytest.raises(EOFError):
        wire.receive(end, reader)
    os.close(end)
