"""Feed the judge garbage that is made from a seed: ``python tests/fuzz.py --inputs 20000``.

Three kinds: ``frames`` are what a process that runs an answer may reply, ``notebooks`` what may lie in a learner's
folder, ``arguments`` what may be typed. Whatever comes, the judge raises nothing but errors of its own that say in a
line what is wrong, returns a status from 0 to 3, says ``passed`` of nothing, never blames itself, prints nothing that
a terminal acts on, and keeps every byte of a learner's. What breaks one of these is a ``Finding``.

An input is made from the seed, its kind and its number alone: ``python tests/fuzz.py --seed 1 frames:17`` feeds one.
"""

import argparse
import contextlib
import io
import json
import math
import os
import random
import struct
import sys
import tempfile
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import ledger.build
import ledger.judge.classroom.run
import ledger.judge.launch
from ledger import exercises
from ledger.judge import answers, cli, collect, commands, doctor, gate, onward, report, watch, wire
from ledger.judge.classroom import pool
from ledger.judge.classroom.work import answers_of, grade_answer, row_of, stumble
from ledger.judge.errors import StateError, Unreadable, UsageError
from ledger.judge.grade import calls_of, counted_case, grade
from ledger.judge.launch import Ended
from ledger.judge.outcome import KINDS, Outcome, Run, Unsupported
from ledger.judge.reset import answer_places, reset
from ledger.judge.run import Isolation, Session
from ledger.judge.sandbox import Probe
from ledger.judge.session import job_of
from ledger.judge.verdicts import VERDICTS, ExerciseResult
from ledger.judge.version import course_digest

ROOT = Path(__file__).resolve().parent.parent
SEED = 1

#: Exercises that ask for values of every form: arrays, with a budget and without, tuples, a list, a dict, a string,
#: whole and other numbers, and inputs that must be refused.
GRADED = (  # noqa: SIM905
    "absorb_query scores_absorbed key_path_macs split_kv_b merged_weight_ratio materialize_macs pick_path "
    "cache_bytes_per_token split_plan window_range select_tokens merge_partials single_matrix_residual"
).split()

#: What stands in JSON where something else is wanted. The words become a number of 20,000 digits, and lists in lists
#: that are too deep to be read and as deep as can be, once the JSON is text.
DIGITS, DEEP, NESTED = "@digits@", "@deep@", "@nested@"
ODD = (
    *(None, True, False, 0, 1, -1, 7, 1 << 31, 1 << 63, -(1 << 63) - 1, 10**400, 0.5, -0.0, 1e308, math.nan),
    *(-math.inf, DIGITS, DEEP, NESTED),
    *("", "\0", "\ud800", "\x1b[2J", "\u202eabc", "a\rb\nc", "é注", "x" * 3000, "passed", "code", "absorb_query"),
    *(["int", "0x" + "f" * 6000], ["float", "nan"], ["record", "Model", []], ["dict", [[["float", "nan"], 1]]]),
    *([], {}, [[]], [None], [["array", 0]], {"": ""}, {"source": 1}, ["passed"], [0] * 40, {"a": {"b": {"c": []}}}),
)


class Finding(AssertionError):
    """Something that the judge promises and did not keep."""


def expect(holds: Any, *what: object) -> None:
    """Raise a Finding that says ``what`` unless something holds."""
    if not holds:
        raise Finding(" ".join(map(str, what))[:2000])


def odd(rng: random.Random) -> Any:
    """A value that is rarely what is wanted."""
    return deepcopy(rng.choice(ODD))


def places_in(tree: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON tree: its container, and its key or index there."""
    found, waiting = [], [tree]
    while waiting:
        at = waiting.pop()
        keys = list(at) if isinstance(at, dict) else range(len(at)) if isinstance(at, list) else ()
        found += [(at, key) for key in keys]
        waiting += [at[key] for key in keys]
    return found


def mutate(rng: random.Random, tree: Any) -> None:
    """Change one place of a JSON tree: another value, another type, nothing at all, twice the same, another's value."""
    places = places_in(tree)
    if not places:
        return
    holder, key = rng.choice(places)
    how = rng.choice(("odd", "odd", "gone", "twice", "other", "within", "type"))
    if how == "odd":
        holder[key] = odd(rng)
    elif how == "gone":
        del holder[key]
    elif how == "twice" and isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), deepcopy(holder[key]))
    elif how == "twice":
        holder[rng.choice(("", "id", "\ud800", f"{key} "))] = deepcopy(holder[key])
    elif how == "other":
        other, name = rng.choice(places)
        holder[key] = deepcopy(other[name]) if name in other or isinstance(other, list) else odd(rng)
    elif how == "within":
        holder[key] = [holder[key]] if rng.random() < 0.5 else {"": holder[key]}
    else:
        holder[key] = other_type(rng, holder[key])


def other_type(rng: random.Random, value: Any) -> Any:
    """Nearly ``value``, of the same type or of another."""
    if isinstance(value, str):
        at = rng.randrange(len(value) + 1)
        return rng.choice((list(value[:50]), value[:at], value[:at] + str(odd(rng)) + value[at:], len(value)))
    if isinstance(value, bool | None):
        return rng.choice((0, 1, "true", None, not value))
    if isinstance(value, int | float):
        return rng.choice((-value, value + 1, float(value) if abs(value) < 1e300 else 0, str(value)[:80], [value]))
    return rng.choice((str(value)[:200], len(value), list(value), None))


def to_json(tree: Any) -> bytes:
    """A tree as JSON; what JSON has no text for, and Python writes all the same, is kept."""
    text = json.dumps(tree)
    for word, written in ((DIGITS, "9" * 20_000), (DEEP, "[" * 3000 + "]" * 3000), (NESTED, "[" * 900 + "]" * 900)):
        text = text.replace(f'"{word}"', written)
    return text.encode()


def spoil(rng: random.Random, data: bytes) -> bytes:
    """Bytes with some lost, changed, added or repeated."""
    at, length = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 17, 300))
    some = rng.randbytes(length)
    return rng.choice(
        (data[:at], data[:at] + some + data[at:], data[:at] + some + data[at + length :], data[at:], data + data, some)
    )


def clean(lines: list[str]) -> None:
    """Expect that lines hold nothing that a terminal acts on and nothing of a traceback."""
    for line in lines:
        strange = [c for c in line if unicodedata.category(c) in ("Cc", "Cs") and c not in "\t\n"]
        expect(not strange, "a control character is shown:", ascii(line))
        expect("Traceback" not in line, "a traceback is shown:", line)


def one_clear_line(error: Exception) -> None:
    """Expect that an error of the judge's own is one line."""
    text = str(error)
    expect(text and len(text.splitlines()) == 1, "not one line:", ascii(text))


def check_result(result: ExerciseResult) -> None:
    """Expect that garbage was graded: no pass, no fault of the judge, and a report that can be shown and kept."""
    expect(result.verdict in VERDICTS, "no verdict:", result.verdict)
    expect(result.verdict not in ("passed", "skipped", "judge_error"), result.id, result.verdict, result.message)
    expect(0 <= result.points < result.max_points, "points", result.points, "of", result.max_points)
    clean([*report.failure_text(result, report.Style(), verbose=True), report.one_line(result, report.Style())])
    clean([*report.one_exercise(result).splitlines(), stumble(result)])
    kept = json.loads(report.to_json([result], "", 0.0))["exercises"][0]
    expect(kept["verdict"] == result.verdict, "another verdict was kept")


# Reply frames


@cache
def calls_for(id: str) -> list:
    """The calls of an exercise, made once."""
    return calls_of(exercises.get(id), SEED)


def wrong_value(rng: random.Random, want: Any) -> Any:
    """A value of the form of ``want``, and another one; sometimes of another form."""
    if rng.random() < 0.1:
        return rng.choice((None, 1, 1.5, "x", (), [], {}, {1: 2, "a": 3}, Unsupported("set"), np.arange(3), 1 << 70))
    if isinstance(want, np.ndarray):
        noise = np.random.default_rng(rng.getrandbits(32)).normal(0, 9, want.shape)
        dtype = want.dtype if rng.random() < 0.8 else rng.choice(("f2", "f4", ">f8", "i8", "?", "c16", "g"))
        return noise.astype(dtype)
    if isinstance(want, tuple | list):
        return type(want)([wrong_value(rng, part) for part in want])
    if isinstance(want, dict):
        return {key: wrong_value(rng, part) for key, part in want.items()}
    if isinstance(want, bool | str | None):
        return rng.choice(("neither", True, 3))
    return type(want)(want * 3 + 1)


def reply_outcome(rng: random.Random, id: str, number: int) -> tuple[dict, list[np.ndarray]]:
    """What an honest process might reply to case ``number`` of an exercise for a wrong answer: message and leaves."""
    exercise = exercises.get(id)
    case, call = exercise.cases[number], calls_for(id)[number]
    outcome = Outcome("raised", error=rng.choice(("KeyError", "NotImplementedError")), message="'x'")
    if case.raises is None and rng.random() < 0.9:
        value = exercise.oracle(*call.args.values())
        if case is not counted_case(exercise) or rng.random() < 0.7:  # a right value, so that its counts are looked at
            value = wrong_value(rng, value)
        most = rng.choice((5, 5, 1 << 40, 16**6000))
        counts = {"macs": most, "products": 1, "elementwise": 9, "bytes_read": 8, "bytes_written": 8, "largest": 6}
        shape = [1] * 3000 if rng.random() < 0.05 else [2, 3]
        counts |= {"largest_shape": shape, "left": [], "unpriced": ["sort"], "arrays": [[shape, "matmul"]]}
        outcome = Outcome("returned", value=value, counts=counts, counted_value=value, peak=1 << 12)
    message, leaves = wire.outcome_to_wire(outcome)
    if rng.random() < 0.1:
        message["kind"] = rng.choice(KINDS)
    return message, leaves


def forge(rng: random.Random, message: dict, leaves: list[np.ndarray]) -> bytes:
    """The bytes of a frame of which something is wrong: the message, the table of leaves, a length, any byte."""
    table = [[leaf.dtype.str, list(leaf.shape), leaf.nbytes] for leaf in leaves]
    header, body = deepcopy({"message": message, "leaves": table}), b"".join(leaf.tobytes() for leaf in leaves)
    how = rng.choice(("message", "message", "message", "table", "sizes", "bytes", "length", "noise"))
    for _ in range(rng.choice((1, 1, 2, 5))):
        if how in ("message", "table"):
            mutate(rng, header["message"] if how == "message" else header)
    if how == "sizes":
        dtype = rng.choice(("<f8", "|u1", "|b1", "<f3", "|O", "<c32", ">i2"))
        sizes = (0, 1, 2, -1, 1 << 20, 1 << 62, 10**400, 10**4000, True)
        shape = [rng.choice(sizes) for _ in range(rng.choice((0, 1, 1, 2, 40)))]
        size = math.prod(shape) * rng.choice((1, 2, 8, 32))
        header["leaves"] = [[dtype, shape, size if abs(size) < 10**4200 else 8]]
        body = rng.randbytes(64)
    text = to_json(header)
    data = struct.pack("<I", len(text)) + text + body
    if how == "length":
        said = rng.choice((0, 1, len(text) - 1, len(text) + 1, 1 << 20, (1 << 20) + 1, (1 << 32) - 1))
        data = struct.pack("<I", said) + data[4:]
    return spoil(rng, data) if how == "bytes" else rng.randbytes(rng.randrange(400)) if how == "noise" else data


def read_frames(data: bytes, rng: random.Random | None = None) -> tuple[list[wire.Frame], str]:
    """The frames that a reader finds in ``data``, in any portions with ``rng``, and the error that ends it."""
    reader, frames = wire.FrameReader(1 << 20), []
    while data:
        space = reader.space()
        expect(0 < len(space) <= wire.REPLY_HEADER, "the reader asks for", len(space), "bytes")
        count = min(len(space), len(data), rng.randrange(1, 5000) if rng else len(data))
        space[:count] = data[:count]
        data = data[count:]
        try:
            frame = reader.advance(count)
        except wire.WireError as error:
            one_clear_line(error)
            return frames, f"{type(error).__name__}: {error}"
        frames += [frame] if frame else []
    return frames, ""


class StandIn:
    """A launcher whose processes have said all before they are asked: ``script`` is the bytes of their replies."""

    hello_seconds = 5.0

    def __init__(self, script: bytes, printed: bytes, status: int):
        self.script, self.printed, self.status = script, printed, status

    def ready(self) -> None:
        """There is nothing to wait for."""

    def launch(self, fds: list[int]) -> int:
        """Write the script to the second descriptor and what is printed to the third; then both are closed."""
        threading.Thread(target=self.speak, args=([os.dup(fd) for fd in fds],), daemon=True).start()
        return 1

    def speak(self, fds: list[int]) -> None:
        """What the process does; the first descriptor stays open until the end, for nobody reads from it."""
        with contextlib.suppress(OSError):
            wire.write(fds[2], [memoryview(self.printed)] if self.printed else [])
            wire.write(fds[1], [memoryview(self.script)])
        for fd in fds:
            os.close(fd)

    def reap(self, pid: int) -> Ended:
        """How the process ended."""
        return Ended(self.status, 1, 0.0)


class Frames:
    """Feeds reply frames: to the reader and the comparison, and to a whole session."""

    def __init__(self, folder: Path):
        """Nothing is written into ``folder``."""

    def close(self) -> None:
        """There is nothing to undo."""

    def feed(self, rng: random.Random) -> str:
        """One frame, or the frames of one process."""
        id = rng.choice(GRADED)
        return self.feed_session(rng, id) if rng.random() < 0.15 else self.feed_reader(rng, id)

    def feed_reader(self, rng: random.Random, id: str) -> str:
        """A forged frame, alone."""
        exercise, calls = exercises.get(id), calls_for(id)
        data = forge(rng, *reply_outcome(rng, id, rng.randrange(len(calls))))
        frames, error = read_frames(data)
        again, same = read_frames(data, rng)
        expect(len(frames) == len(again) and error == same, "portions matter:", error, "or", same)
        for frame in frames:
            try:
                outcome = wire.outcome_from_wire(frame, KINDS[:4])
            except wire.WireError as refused:
                one_clear_line(refused)
                continue
            check_outcome(outcome)
            check_result(grade(exercise, SEED, calls, [outcome] * len(calls), 0.0))
            return "graded"
        return "refused"

    def feed_session(self, rng: random.Random, id: str) -> str:
        """A process of which one reply is forged."""
        exercise, calls = exercises.get(id), calls_for(id)
        cells = tuple(collect.Cell(name, "pass") for name in ("above", "answer"))
        job = job_of(collect.Submission(exercise, cells), calls)
        honest = [({"cell": 0}, []), ({"cell": 1}, []), ({"notes": ["n"], "outcome": None}, [])]
        for number in range(len(calls)):
            message, leaves = reply_outcome(rng, id, number)
            honest.append(({"number": number, "outcome": message}, leaves))
        forged = rng.randrange(len(honest))
        frames = [forge(rng, *reply) if at == forged else framed(*reply) for at, reply in enumerate(honest)]
        printed = rng.choice((b"", b"", b"hello\n", b"\x1b[2J\xff\0", b"x" * 5000))
        launcher = StandIn(framed({"layers": []}, []) + b"".join(frames), printed, rng.choice((0, 6, 9, 11, 24, 256)))
        run = Session(job, lambda: launcher).run()
        expect(len(run.outcomes) == len(calls), "not an outcome for each call")
        for outcome in run.outcomes:
            check_outcome(outcome)
        clean([run.output, *run.notes])
        check_result(grade(exercise, SEED, calls, run.outcomes, 0.0))
        return "graded"


def framed(message: dict, leaves: list[np.ndarray]) -> bytes:
    """The bytes of an honest frame."""
    return b"".join(map(bytes, wire.frame_bytes(message, leaves)))


def check_outcome(outcome: Outcome) -> None:
    """Expect that an outcome is what its fields say."""
    expect(outcome.kind in KINDS and outcome.stage in ("load", "call"), "an outcome", outcome.kind, outcome.stage)
    texts = [outcome.error, outcome.message, outcome.subclass, outcome.uncounted, outcome.detail]
    texts += [*outcome.changed, *outcome.shares, *(part for line in outcome.lines for part in (line.file, line.text))]
    expect(all(isinstance(text, str) and len(text) <= 2000 for text in texts), "texts", texts)
    clean(texts)
    expect(outcome.peak is None or type(outcome.peak) is int, "peak", outcome.peak)
    expect(outcome.counts is None or isinstance(outcome.counts, dict), "counts")


# Notebooks

#: The part of the course that is copied: two chapters and their exercises.
CHAPTERS = ("ch01_keys/keys.ipynb", "ch02_heads/heads.ipynb")
BOM = b"\xef\xbb\xbf"
BOOK_NAMES = ("a\0.ipynb", "\ud800.ipynb", "x" * 300 + ".ipynb", "../x.ipynb", "/x.ipynb", f"{CHAPTERS[0]}/x.ipynb")
BOOK_NAMES += ("a/" * 3000 + "x.ipynb", ".x/x.ipynb", "ch01_keys/./keys.ipynb", "ch01_keys//keys.ipynb", "", ".ipynb")
OWN = "mine = 'kept'  # a cell of the learner's own"


@cache
def shipped(tree: str) -> dict[str, str]:
    """The notebooks of two chapters as a build makes them, as JSON, by path from the root."""
    build = {"practice": ledger.build.fresh_practice, "solutions": ledger.build.fresh_solutions}[tree]
    return {name: json.dumps(book) for name, book in build(ROOT).items() if name.endswith(CHAPTERS)}


@cache
def small_registry() -> dict[str, exercises.Exercise]:
    """The exercises of those chapters."""
    return {id: exercise for id, exercise in exercises.registry().items() if exercise.chapter in (1, 2)}


def written(tree: str) -> dict[str, dict]:
    """The notebooks of ``shipped``, each time anew."""
    return {name: json.loads(text) for name, text in shipped(tree).items()}


def small_course(stack: contextlib.ExitStack) -> None:
    """Let the course be two chapters until ``stack`` is closed, so that nothing is built twice."""
    shipped("practice"), shipped("solutions"), small_registry()
    for target, name, instead in (
        (ledger.build, "fresh_practice", lambda root: written("practice")),
        (ledger.build, "fresh_solutions", lambda root: written("solutions")),
        (exercises, "registry", small_registry),
        (exercises, "ids", lambda: tuple(small_registry())),
        (os, "fsync", lambda fd: None),  # what is on the disk after a crash is another test's matter
    ):
        stack.enter_context(mock.patch.object(target, name, instead))


def files_in(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder``."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def put_files(folder: Path, wanted: dict[str, bytes], there: dict[str, bytes]) -> None:
    """Make the files below ``folder``, which are ``there``, those that are ``wanted``."""
    for name in there.keys() - wanted.keys():
        (folder / name).unlink()
    for name, data in wanted.items():
        if there.get(name) != data:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


def expect_kept(before: dict[str, bytes], after: dict[str, bytes], passing: tuple[str, ...] = ()) -> None:
    """Expect that whatever was in a file is still in one; the files ``passing`` may be written over."""
    there = set(after.values())
    for name, data in before.items():
        expect(data in there or name.endswith(passing), name, "was lost")


def answered(rng: random.Random, book: dict) -> None:
    """Write answers and own cells into a practice notebook, as a learner does."""
    for cell in [cell for cell in book["cells"] if cell["id"] in exercises.ids()]:
        if rng.random() < 0.6:
            lines = ["import numpy as np\n", f"def {cell['id']}(*args):\n", f"    return {rng.randrange(100)}\n"]
            cell["source"] = lines if rng.random() < 0.5 else "".join(lines)
    own = {"cell_type": "code", "source": OWN, "metadata": {}, "id": "0a1b2c3d", "outputs": [], "execution_count": 1}
    book["cells"].insert(rng.randrange(len(book["cells"]) + 1), own)


class Notebooks:
    """Feeds notebooks and bundles of answers: to the reader, to ``reset`` and to ``answers``."""

    def __init__(self, folder: Path):
        self.root = folder / "course"
        self.stack = contextlib.ExitStack()
        small_course(self.stack)

    def feed(self, rng: random.Random) -> str:
        """A folder of two notebooks, one of them spoilt, or a spoilt bundle for two good ones."""
        books = written("practice")
        for book in books.values():
            answered(rng, book)
        files = {name: to_json(book) for name, book in books.items()}
        if rng.random() < 0.3:
            return self.feed_bundle(rng, books, files)
        name = rng.choice(list(books))
        files[name] = self.spoilt(rng, books[name])
        put_files(self.root, files, files_in(self.root))
        unreadable = self.check_reading(rng)
        check = rng.choice((self.check_reset, self.check_answers))
        check(rng, files)
        return "refused" if unreadable else "read"

    def spoilt(self, rng: random.Random, tree: Any) -> bytes:
        """A tree of JSON with some places changed, or its bytes."""
        if rng.random() < 0.75:
            target = tree["cells"] if isinstance(tree.get("cells"), list) and rng.random() < 0.7 else tree
            for _ in range(rng.choice((1, 2, 5, 20))):
                mutate(rng, target)
            return to_json(tree)
        data = to_json(tree)
        return rng.choice((spoil(rng, data), BOM + data, data.decode().encode("utf-16"), to_json(odd(rng))))

    def check_reading(self, rng: random.Random) -> bool:
        """Whatever lies there, every exercise has an answer or a line that says why there is none; whether a notebook
        could not be read."""
        read, unreadable = collect.notebooks_under(self.root / "practice")
        for error in unreadable:
            one_clear_line(error)
        expect(len(read) + len(unreadable) == len(CHAPTERS), "a notebook was passed over")
        found, remarks = answers_of(self.root / "practice", small_registry(), SEED)
        clean(remarks)
        for answer in found:
            expect(answer.problem or answer.cells, answer.id, "has neither cells nor a problem")
            expect(not answer.broken or unreadable, answer.id, "is broken in a notebook that can be read")
            wire.frame_bytes({"cells": [[cell.file, cell.source] for cell in answer.cells]})
        answer = rng.choice(found)
        result = grade_answer(answer, GarbageRunner(rng), SEED)
        check_result(result)
        row_of("student", answer, result)
        return bool(unreadable)

    def check_reset(self, rng: random.Random, before: dict[str, bytes]) -> None:
        """Reset keeps the notebook as it was, leaves every other cell alone, and does nothing the second time."""
        exercise = small_registry()[rng.choice(list(small_registry()))]
        try:
            said = reset(exercise, self.root)
        except (Unreadable, StateError) as error:
            one_clear_line(error)
            expect(files_in(self.root) == before, "reset failed and changed something")
            return
        after = files_in(self.root)
        expect_kept(before, after)
        for path, data in before.items():
            if after[path] != data:
                old, new = json.loads(data.decode("utf-8-sig")), json.loads(after[path])
                for book in (old, new):
                    gone = answer_places(book, exercise.id)
                    book["cells"] = [cell for at, cell in enumerate(book["cells"]) if at not in gone]
                expect(repr(old) == repr(new), "reset changed another cell of", path)
        expect("untouched" in reset(exercise, self.root), "reset twice:", said)
        expect({n: d for n, d in files_in(self.root).items() if n in after} == after, "the second reset changed a file")

    def check_answers(self, rng: random.Random, before: dict[str, bytes]) -> None:
        """What is saved can be loaded, into the same notebooks and into new ones, and nothing is lost on the way."""
        bundle = self.root / "bundle.json"
        try:
            answers.save(bundle, self.root)
        except (UsageError, StateError) as error:
            one_clear_line(error)
            expect(files_in(self.root) == before, "nothing was saved, and something changed")
            return
        saved = bundle.read_bytes()
        expect(files_in(self.root) == before | {"bundle.json": saved}, "saving changed a notebook")
        held = json.loads(saved)
        book = self.root / "practice" / CHAPTERS[0]
        kept_own = any(OWN in cell["source"] for kept in held["notebooks"].values() for cell in kept["cells"])
        with contextlib.suppress(Unreadable):
            there = [cell.source for cell in collect.read_notebook(book, "").cells]
            expect(kept_own or OWN not in there, "an own cell was not saved")
        self.load(bundle, before | {"bundle.json": saved})
        new = {name: text.encode() for name, text in shipped("practice").items()} | {"bundle.json": saved}
        put_files(self.root, new, files_in(self.root))
        expect(self.load(bundle, new), "a bundle cannot be loaded into new notebooks")
        for id, entry in held["answers"].items():
            if id not in small_registry():
                continue
            found = collect.collect(exercises.get(id), *collect.notebooks_under(self.root / "practice"))
            same = not found.problem and found.cells[-1].source.rstrip() == entry["source"].rstrip()
            expect(same or collect.is_stub(entry["source"]), "another answer came back:", id, entry["source"])

    def load(self, bundle: Path, before: dict[str, bytes]) -> bool:
        """Load a bundle; whether it could be."""
        try:
            _, lines = answers.load_bundle(bundle, self.root)
        except (Unreadable, StateError) as error:
            one_clear_line(error)
            expect_kept(before, files_in(self.root))
            return False
        clean(lines)
        expect_kept(before, files_in(self.root))
        return True

    def feed_bundle(self, rng: random.Random, books: dict[str, dict], files: dict[str, bytes]) -> str:
        """A spoilt bundle is refused, or loaded with a copy of all that was there."""
        bare = {name.removeprefix("practice/"): book for name, book in books.items()}
        held = answers.bundle(bare, answers.fresh_books(self.root))
        before = files | {"bundle.json": to_json(held), "bundle.left.json": b"what an earlier one left"}
        how = rng.choice(("bundle", "name", "notebook"))
        if how == "notebook":
            name = rng.choice(list(books))
            before[name] = self.spoilt(rng, written("practice")[name])
        else:
            if how == "name":
                held["notebooks"][rng.choice(BOOK_NAMES)] = held["notebooks"].pop(rng.choice(list(held["notebooks"])))
            before["bundle.json"] = to_json(held) if how == "name" else self.spoilt(rng, held)
        put_files(self.root, before, files_in(self.root))
        return "read" if self.load(self.root / "bundle.json", before) else "refused"

    def close(self) -> None:
        """Let the course be whole again."""
        self.stack.close()


class GarbageRunner:
    """Stands in for ``ledger.judge.run.Runner``: nothing is run, and every call ends in one way or another."""

    mode, layers, apart = "none", ("stand-in",), "stand-in"
    isolation = Isolation(layers, (Probe("everything", "stand-in", True, ""),))

    def __init__(self, rng: random.Random):
        self.rng, self.ending = rng, set()

    def run(self, job: Any) -> Run:
        """An outcome for each call, none of them right, or a cell that takes the process along."""
        ended = self.rng.randrange(len(job.cells)) if self.rng.random() < 0.1 else None
        ended = None if ended == len(job.cells) - 1 else ended
        return Run([self.outcome() for _ in job.calls], self.layers, "printed \x1b[0m"[:8], ended_in=ended)

    def outcome(self) -> Outcome:
        """How a call may end."""
        kind = self.rng.choice([kind for kind in KINDS if kind != "judge_error"])
        value = self.rng.choice((None, "x", -1, {1: 2, "a": {3}.__len__()}, np.zeros(0), (), Unsupported("set")))
        error = self.rng.choice(("NotImplementedError", "KeyError", "")) if kind == "raised" else ""
        return Outcome(kind, value=value, error=error, message="it is\nso", detail="detail")

    def start(self, *modules: str) -> None:
        """There is nothing to start."""

    def close(self) -> None:
        """There is nothing to end."""

    def __enter__(self) -> "GarbageRunner":
        return self

    def __exit__(self, *exception: object) -> None:
        """There is nothing to end."""


# Arguments

#: Words that may be typed: commands, options and their values, ids, chapters, and paths from the course's folder.
COMMANDS = [*cli.COMMANDS, *cli.COMMANDS, "grade", "lits", "hint ", "save", "load"]
OPTIONS = (  # noqa: SIM905
    "--from --source --json --seed --again --require-isolation --cuda -v --verbose --version --help -h "
    "--open --reveal --out --workers --scheduler --js --se --from=solutions --json=- --json=out.json --seed=7 -x -- -"
).split()
NAMES = (  # noqa: SIM905
    "absorb_query key_path_macs absorb_heads absorb_querry 1 2 ch01 ch02_heads ch7 0 99 -1 3 save load"
).split()
PATHS = (  # noqa: SIM905
    "practice practice/ch01_keys practice/ch01_keys/keys.ipynb practice/ch02_heads/heads.ipynb solutions students "
    "students/anna students/bo.ipynb notes.txt mine.py latin.py bundle.json old.json broken.ipynb new/none.ipynb "
    "new.json . .. ../out /dev/null ~ * practice/new.json practice/ch01_keys naïve-注意.ipynb naïve-注意 out"
).split()
STRANGE = [
    "",
    " ",
    "a\nb",
    "\x1b[2J",
    "\udcff",
    "x" * 300,
    "y" * 5000,
    "注意",
    "٣",
    "1e9",
    "9" * 30,
    "9" * 5000,
    "a/" * 200,
]
PROGRESS = {"schema": 1, "exercises": {"absorb_query": {"verdict": "wrong", "points": 1.5, "hints": 2, "digest": "0"}}}

#: What a command may change beside ``.ledger/``; grading writes the file of its --json alone.
CHANGES = {
    "reset": ("practice/",),
    "answers": ("practice/", ".json"),
    "class": ("results.sqlite", "grades.csv", "report.html"),
}
#: Files of the judge's own that are written over.
ITS_OWN = ("progress.json", "lock", "old.json", "results.sqlite", "grades.csv", "report.html")


class Arguments:
    """Feeds command lines to ``main``, in a small course with a class of two, where nothing of an answer is run."""

    def __init__(self, folder: Path):
        self.folder, self.rng = folder / "home", random.Random()
        self.stack = contextlib.ExitStack()
        small_course(self.stack)
        self.files = {
            f"course/{name}": text.encode()
            for tree in ("practice", "solutions")
            for name, text in shipped(tree).items()
        }
        solved = self.files[f"course/solutions/{CHAPTERS[0]}"]
        self.files |= {f"course/students/anna/{CHAPTERS[0]}": solved, "course/students/bo.ipynb": solved[:5000]}
        for name in ("course/judge.py", "course/notes.txt", "course/naïve-注意.ipynb", "course/broken.ipynb"):
            self.files[name] = f"{name}: the learner's own".encode()
        self.files["course/mine.py"] = b"def absorb_query(q_nope, w_k):\n    return q_nope\n"
        self.files["course/latin.py"] = "# caf\xe9".encode("latin-1")
        self.files["course/old.json"] = report.to_json([], "", 0.0).encode()
        for target, name, instead in self.stand_ins():
            self.stack.enter_context(mock.patch.object(target, name, instead))
        self.stack.enter_context(mock.patch.dict(os.environ, {"LEDGER_TRACEBACK": "1"}))
        here = Path.cwd()
        self.stack.callback(os.chdir, here)
        put_files(self.folder, self.files, files_in(self.folder))
        os.chdir(self.folder / "course")

    def stand_ins(self) -> Iterator[tuple[Any, str, Any]]:
        """What is slow, or reaches out of the course, and what stands in for it."""
        runner = lambda **how: GarbageRunner(self.rng)  # noqa: E731
        yield ledger.judge.launch, "Servers", mock.MagicMock()
        for module in (commands, doctor, gate, watch):
            yield module, "Runner", runner
        yield ledger.judge.classroom.run, "Runner", runner
        yield pool, "grade_here", self.grade_class
        yield pool, "grade_on_cluster", lambda works, address: self.grade_class(works)
        yield gate, "FRESH_SEEDS", 0
        yield doctor, "describe_machine", lambda: []
        yield onward, "address_in_lab", lambda notebook, id: None
        yield sys, "stdin", self.stack.enter_context(open(os.devnull, encoding="utf-8"))  # noqa: SIM115

    def grade_class(self, works: Any, *how: Any) -> Iterator[list]:
        """Grade a class without a process."""
        for work in works:
            graded = [(answer, grade_answer(answer, GarbageRunner(self.rng), work.seed)) for answer in work.answers]
            yield [row_of(work.student, answer, result) for answer, result in graded]

    def words(self, rng: random.Random) -> list[str]:
        """A command line: mostly one that has a meaning, with some words lost, doubled, strange or in another order."""
        name, path = (lambda: rng.choice(NAMES)), (lambda: rng.choice(PATHS))
        words = rng.choice(
            (
                lambda: [name()],
                lambda: [path(), "--json", path()],
                lambda: ["--from", path(), name()],
                lambda: ["--source", rng.choice(("mine.py", "latin.py", path())), name()],
                lambda: ["hint", name(), *rng.choice(([], ["2"], ["9"]))],
                lambda: ["reset", name()],
                lambda: ["answers", rng.choice(("save", "load")), path()],
                lambda: [
                    "class",
                    rng.choice(("students", path())),
                    *rng.choice(([], ["--out", path()], ["--seed", "3"])),
                ],
                lambda: ["solution", name(), *rng.choice(([], ["--reveal"]))],
                lambda: [rng.choice(("list", "next", "doctor", "watch", "next"))],
                lambda: ["check", name()],
                lambda: [rng.choice(COMMANDS)],
                lambda: [],
            )
        )()
        for _ in range(rng.choice((0, 0, 1, 2, 4))):
            word = rng.choice(
                (rng.choice(COMMANDS), rng.choice(OPTIONS), rng.choice(OPTIONS), name(), path(), rng.choice(STRANGE))
            )
            at = rng.randrange(len(words) + 1)
            words[at : at + rng.choice((0, 0, 1))] = [word]
        return words

    def feed(self, rng: random.Random) -> str:
        """One command line, in a course as it was handed out, half solved or with a damaged state."""
        self.rng = rng
        before = dict(self.files)
        if rng.random() < 0.6:
            books = written("practice")
            for name, book in books.items():
                answered(rng, book)
                before[f"course/{name}"] = to_json(book)
        if rng.random() < 0.5:
            state = deepcopy(PROGRESS)
            if rng.random() < 0.5:
                mutate(rng, state)
            before["course/.ledger/progress.json"] = to_json(state)
        bare = {CHAPTERS[0]: json.loads(before[f"course/solutions/{CHAPTERS[0]}"])}
        before["course/bundle.json"] = answers.to_bytes(answers.bundle(bare, answers.fresh_books(self.folder)))
        put_files(self.folder, before, files_in(self.folder))
        words = self.words(rng)
        status, out, err = self.run(words, rng.random() < 0.05)
        after = files_in(self.folder)
        self.check(words, status, out, err, before, after)
        return f"status {status}"

    def run(self, words: list[str], nowhere: bool) -> tuple[Any, str, str]:
        """The status of a command line, and what it printed; with ``nowhere`` outside of a course."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            if nowhere:
                os.chdir(self.folder)
            try:
                status = cli.main(words, None)
            except SystemExit as stop:
                status = stop.code or 0
                expect(status == 0 and out.buffer.tell(), "it was left with", status)
            finally:
                os.chdir(self.folder / "course")
        return status, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()

    def check(self, words: list[str], status: Any, out: str, err: str, before: dict, after: dict) -> None:
        """Expect the promises of a command line."""
        said = f"{words!r:.300}: {status}: {err[-600:]}"
        expect(type(status) is int and 0 <= status <= 3, said)
        expect("Traceback" not in out + err and "own fault" not in err, said)
        expect(all(line.startswith("judge: ") for line in err.splitlines()), said)
        clean(err.splitlines())
        if not any(set(word) & set("\n\x1b") for word in words):
            clean(out.splitlines())
        expect(status != cli.USAGE or err.splitlines()[-1].startswith("judge: "), said)
        command = words[0] if words and words[0] in cli.COMMANDS else "grade"
        expect_kept(before, after, ITS_OWN)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        changed = {name for name in changed if "/.ledger/" not in name}
        if command == "grade":
            expect(len(changed) <= 1, "grading changed", changed, "by", said)
            for name in changed:
                self.check_json(after[name].decode())
        else:
            may = CHANGES.get(command, ())
            strange = [name for name in changed if not any(part in name for part in may)]
            if command == "answers":  # a bundle may have any name
                strange = [name for name in strange if name in before]
            expect(not strange, "changed", strange, "by", said)
        if command == "grade" and out.startswith("{"):
            self.check_json(out)

    def check_json(self, text: str) -> None:
        """Expect a machine-readable result in which nothing passes."""
        result = json.loads(text)
        expect(result["schema"] == 1 and result["summary"]["passed"] == 0, "passed", result["summary"])
        expect({e["verdict"] for e in result["exercises"]} <= set(VERDICTS) - {"passed", "judge_error"}, "a verdict")

    def close(self) -> None:
        """Let everything be as it was."""
        self.stack.close()


# A run

KINDS_OF_INPUT = {"frames": Frames, "notebooks": Notebooks, "arguments": Arguments}


@contextlib.contextmanager
def fed(kind: str) -> Iterator[Any]:
    """A feeder of one kind, in a folder of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-") as folder,
        contextlib.closing(KINDS_OF_INPUT[kind](Path(folder))) as feeder,
    ):
        yield feeder


def feed(feeder: Any, seed: int, kind: str, number: int) -> str:
    """Feed one input; whatever is raised is a Finding that says how to have it again."""
    try:
        return feeder.feed(random.Random(f"{seed} {kind} {number}"))
    except Exception as error:
        again = f"python tests/fuzz.py --seed {seed} {kind}:{number}"
        raise Finding(f"{again}: {type(error).__name__}: {error}"[:2000]) from error


def feed_many(seed: int, kind: str, numbers: range, until: float = math.inf) -> Counter:
    """How the inputs ``numbers`` were taken, by what became of them; fewer where the clock passes ``until``."""
    became: Counter = Counter()
    with fed(kind) as feeder:
        for number in numbers:
            if time.monotonic() > until:
                break
            became[feed(feeder, seed, kind, number)] += 1
    return became


def main() -> None:
    """Feed one input again, or as many as are asked for of every kind, and keep how many there were."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("again", nargs="*", metavar="KIND:NUMBER", help="one input of a run with this seed")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--inputs", type=int, default=900, help="of all kinds together")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so long; the next run goes on")
    options = parser.parse_args()
    for word in options.again:
        kind, number = word.split(":")
        with fed(kind) as feeder:
            print(word, feed(feeder, options.seed, kind, int(number)))
    if not options.again:
        run(options.seed, options.inputs, options.seconds)


def run(seed: int, inputs: int, seconds: float) -> None:
    """Feed ``inputs`` of all kinds together and record them. It goes on where a run stopped that had this seed and the
    very same judge; a run that finds something records nothing of what it fed."""
    sys.path.insert(0, str(ROOT / "bench"))
    from record import record

    kept, until = ROOT / "bench" / "results" / "fuzz.json", time.monotonic() + seconds
    before = json.loads(kept.read_text())["figures"] if kept.exists() else {}
    asked = {"seed": seed, "asked": inputs, "judge": course_digest()}
    kinds = before["kinds"] if asked.items() <= before.items() else {}
    for kind in KINDS_OF_INPUT:
        had = kinds.get(kind, {"inputs": 0, "became": {}, "seconds": 0.0})
        start = time.monotonic()
        wanted = inputs // len(KINDS_OF_INPUT) + (inputs % len(KINDS_OF_INPUT) if kind == "frames" else 0)
        became = feed_many(seed, kind, range(had["inputs"], wanted), until)
        total = Counter(had["became"]) + became
        kinds[kind] = {
            "inputs": total.total(),
            "became": dict(sorted(total.items())),
            "seconds": round(had["seconds"] + time.monotonic() - start, 1),
        }
        print(f"{kind}: {total.total()} of {wanted}, {kinds[kind]['became']}", flush=True)
    fed_inputs = sum(kind["inputs"] for kind in kinds.values())
    print(record("fuzz", {**asked, "inputs": fed_inputs, "kinds": kinds}))


if __name__ == "__main__":
    main()
