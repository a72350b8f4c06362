"""``judge.py watch``: grade an answer as soon as its notebook is saved, in servers that are warm already.

Notebooks are looked at ten times a second, by size and time: that finds what an editor writes in place and what it puts
there in one step, on any file system. On a terminal one key each asks for more, without the return key; elsewhere a
line of input begins with it.
"""

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from ledger.judge import ladder, onward, report
from ledger.judge.cli import PASSED
from ledger.judge.collect import Submission, find_notebooks, show_path
from ledger.judge.errors import StateError
from ledger.judge.grade import fresh_seed
from ledger.judge.progress import Progress
from ledger.judge.report import way_on
from ledger.judge.run import Runner
from ledger.judge.session import grade_all, untouched
from ledger.judge.verdicts import ExerciseResult

#: Seconds between two looks at the notebooks.
LOOK = 0.1
KEYS = "n next · h hint · l list · a all · q quit"


def watch(root: Path) -> int:
    """Grade on every save until the learner quits or the input ends."""
    with Runner(extra_hidden=[root]) as runner, one_key(sys.stdin) as key_within:
        watcher = Watcher(root, runner, sys.stdout)
        watcher.begin()
        while (key := key_within(LOOK)) != "q":
            if key:
                watcher.press(key)
            watcher.look()
    return PASSED


class Watcher:
    """What was last seen of the notebooks, and what to do when one is saved or a key is pressed."""

    def __init__(self, root: Path, runner: Runner, out: TextIO):
        self.root, self.runner, self.out = root, runner, out
        self.style = report.Style(report.use_colour(out))
        self.stamps = self.answers = self.failed = None

    def begin(self) -> None:
        """Warm the server up, and show how far the learner is."""
        self.stamps, self.answers = self.stamps_now(), self.answers_now()
        self.runner.start()
        self.show_ladder()
        self.say("", self.style.dim(f"Watching practice/: save a notebook and its answer is graded. {KEYS}"))

    def stamps_now(self) -> dict[Path, tuple[int, int]]:
        """When each notebook was last written, and how long it is."""
        stamps = {}
        for path in find_notebooks(self.root / "practice", links=True):
            with contextlib.suppress(OSError):  # it is just being replaced: the next look finds it
                stat = path.stat()
                stamps[path] = (stat.st_mtime_ns, stat.st_size)
        return stamps

    def answers_now(self) -> dict[str, Submission]:
        """Every answer in practice/, by exercise."""
        return ladder.answers_in(self.root / "practice")

    def look(self) -> list[str]:
        """Grade the answers that a save has changed, and return their ids."""
        stamps = self.stamps_now()
        if stamps == self.stamps:
            return []
        answers = self.answers_now()
        if any(answer.broken for answer in answers.values()):
            time.sleep(LOOK)  # half a notebook, it may be: the other half comes
            stamps, answers = self.stamps_now(), self.answers_now()
        for path in self.stamps.keys() - stamps.keys():
            self.say("", f"{show_path(path)} is gone")
        before, self.stamps, self.answers = self.answers, stamps, answers
        changed = changed_between(before, answers)
        if changed:
            self.grade(changed)
        return [answer.exercise.id for answer in changed]

    def grade(self, answers: list[Submission]) -> list[ExerciseResult]:
        """Grade ``answers``, show each in full, and keep how far the learner is."""
        seed, results = fresh_seed(), []
        self.runner.ending.clear()
        for result in grade_all(answers, self.runner, seed, self.entries()):
            results.append(result)
            if result.verdict == "passed":
                self.say("", *report.success_text(result, self.style))
            elif not result.where:
                self.say("", f"{result.message}: save it again, or {way_on(result.id)}")
            else:
                self.say("", *report.failure_text(result, self.style))
        failed = [result.goes_on_with for result in results if ladder.is_ahead(result) and result.where]
        self.failed = failed[0] if failed else self.failed
        self.keep(answers, results)
        return results

    def keep(self, answers: list[Submission], results: list[ExerciseResult]) -> None:
        """Note the verdicts in the learner's progress."""
        digests = {answer.exercise.id: ladder.digests_of(answer) for answer in answers}
        self.change(lambda progress: progress.record(results, digests))

    def change(self, note: Callable[[Progress], None]) -> None:
        """Let ``note`` change the learner's progress; where that fails it is said, and watching goes on."""
        try:
            with Progress.locked(self.root) as progress:
                note(progress)
        except StateError as error:
            self.say(f"judge: {error}")

    def press(self, key: str) -> None:
        """Do what a key asks for."""
        asked = {"n": self.show_next, "h": self.show_hint, "l": self.show_ladder, "a": self.grade_all}.get(key)
        if asked:
            asked()
        else:
            self.say(self.style.dim(KEYS))

    def entries(self) -> dict[str, dict]:
        """The learner's progress by exercise; none where it cannot be read."""
        try:
            return Progress(self.root).exercises
        except StateError as error:
            self.say(f"judge: {error}")
            return {}

    def show_next(self) -> None:
        """Name the exercise that comes next."""
        results = self.results_known()
        self.say("", *onward.told_next(onward.next_answer(results), self.answers, results, self.entries()))

    def show_hint(self) -> None:
        """The next hint of the exercise that failed last, unless it passes now, else of the one that comes next; it is
        remembered."""
        entries = self.entries()
        ahead = onward.next_answer(sorted(self.results_known(), key=lambda result: result.id != self.failed))
        if ahead is None:
            self.say("", f"{onward.ALL_PASSED} A hint of one of them: python judge.py hint ID")
            return
        level = min(entries.get(ahead.id, {}).get("hints", 0) + 1, len(ahead.hints))
        self.say("", f"{ahead.id}, hint {level} of {len(ahead.hints)}", "", ahead.hints[level - 1])
        self.change(lambda progress: progress.saw_hint(ahead.id, level))

    def show_ladder(self) -> None:
        """The ladder as far as it is known without running anything."""
        self.print_ladder(self.results_known())

    def grade_all(self) -> None:
        """Grade every answer that is written anew, on new inputs, and show the ladder."""
        written = [answer for answer in self.answers.values() if not untouched(answer) and not answer.problem]
        fresh = {result.id: result for result in self.grade(written)}
        self.print_ladder([fresh.get(result.id, result) for result in self.results_known()])

    def results_known(self) -> list[ExerciseResult]:
        """A result for each exercise, from what is kept."""
        entries = self.entries()
        return [ladder.kept_result(answer, entries) for answer in self.answers.values()]

    def print_ladder(self, results: list[ExerciseResult]) -> None:
        """A line a chapter, and what the marks mean."""
        entries = self.entries()
        rungs = [ladder.rung(members, entries, self.style) for members in ladder.chapters_of(results)]
        self.say("", *rungs, "", *ladder.key(results, entries, self.style))

    def say(self, *lines: str) -> None:
        print(*lines, sep="\n", file=self.out, flush=True)


def changed_between(before: dict[str, Submission], now: dict[str, Submission]) -> list[Submission]:
    """The answers whose own text a save has changed; where only cells above answers have, the answers below them that
    are written. A notebook that cannot be read is told by one of its answers."""
    broken = [answer for id, answer in now.items() if answer.broken and answer.problem != before[id].problem]
    own = [a for id, a in now.items() if not a.problem and text_of(a) != text_of(before[id]) and not untouched(a)]
    around = [a for id, a in now.items() if not a.problem and a.cells != before[id].cells and not untouched(a)]
    return broken[:1] + (own or around)


def text_of(answer: Submission) -> str:
    """The text of an answer's own cell."""
    return answer.cells[-1].source if answer.cells else ""


@contextlib.contextmanager
def one_key(stream: TextIO) -> Iterator[Callable[[float], str]]:
    """A function that waits for at most some seconds and returns the key that was pressed, an empty text where none
    was, and ``q`` once the input has ended. A terminal is read key by key meanwhile, and put back at the end."""
    if not stream.isatty():
        yield lambda seconds: read_line(stream, seconds)
        return
    import termios
    import tty

    fd = stream.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield lambda seconds: read_key(fd, seconds)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def read_key(fd: int, seconds: float) -> str:
    """One key of a terminal: a letter in lower case. Arrows and the like, several bytes at once, are none."""
    if not ready(fd, seconds):
        return ""
    byte = os.read(fd, 1)
    if byte == b"\x1b":
        while ready(fd, 0):
            os.read(fd, 1)
        return ""
    return "q" if byte in (b"", b"\x04") else byte.decode("utf-8", "replace").lower()


def read_line(stream: TextIO, seconds: float) -> str:
    """The first letter of the next line of a stream that is no terminal."""
    if not ready(stream, seconds):
        return ""
    line = stream.readline()
    return line.strip()[:1].lower() if line else "q"


def ready(stream: TextIO | int, seconds: float) -> bool:
    """Whether something can be read within some seconds."""
    return bool(select.select([stream], [], [], seconds)[0])
