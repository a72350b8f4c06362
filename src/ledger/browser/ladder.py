"""``%judge``: how far the learner is, from the same code and in the same words as the command line.

On a computer it runs ``judge.py``, whose answers run apart. In a browser there is no other process: the notebooks are
saved and graded in this kernel, each answer in a namespace of its own.
"""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TextIO

from ledger.browser import IN_BROWSER, root_above
from ledger.judge.errors import StateError, Unreadable, UsageError
from ledger.judge.guard import Limit

#: Commands of judge.py that make sense in a browser.
_HERE = ("list", "next", "hint", "reset")
_CALLS = "%judge, %judge ID, %judge 2, %judge list, %judge next, %judge hint ID, %judge reset ID"


def show(line: str = "") -> None:
    """Show the ladder, or what ``line`` asks of the judge: ``2``, ``absorb_query``, ``hint absorb_query``, ``list``."""
    arguments = shlex.split(line)
    if not IN_BROWSER:
        run_apart(arguments, Path.cwd())
        return
    from ledger.browser import exchange, page

    root = root_above(Path.cwd())
    if root is None:
        print("No course was found here: open a notebook of the course.")
        return
    with Limit(None):
        page.save_all(root)
        run_here(arguments, root, sys.stdout)
        if not arguments:
            exchange.offer(root)


def run_apart(arguments: list[str], start: Path) -> None:
    """Run ``judge.py`` of the course around ``start`` and show what it says."""
    from ledger.judge.cli import course_root

    root = course_root(start)
    if root is None:
        print("No course was found here: %judge wants the course's folder, with judge.py and practice/.")
        return
    command = [sys.executable, str(root / "judge.py"), *arguments]
    environment = os.environ | {"PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"}
    environment.pop("NBGRADER_EXECUTION", None)
    options = {"cwd": root, "env": environment, "stdin": subprocess.DEVNULL, "encoding": "utf-8"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options) as judge:
        for text in judge.stdout:
            print(text, end="", flush=True)


class Words:
    """A text stream that gives the report's commands as a notebook has them."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        text = text.replace("python judge.py doctor", "restart the kernel (Kernel menu), then %judge")
        text = re.sub(r"python judge\.py hint (\w+) (\d)", r'hint("\1", \2)', text)
        text = re.sub(r"python judge\.py hint (\w+)", r'hint("\1")', text)
        return self._stream.write(text.replace("python judge.py", "%judge"))

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return False


def run_here(arguments: list[str], root: Path, out: TextIO) -> None:
    """Grade the notebooks below ``root`` in this process and report to ``out``; a bad call is one line."""
    from ledger.browser import versions
    from ledger.judge import cli, commands

    human = Words(out)
    try:
        with contextlib.chdir(root), contextlib.redirect_stderr(human):
            if {"-h", "--help"} & set(arguments):
                print(f"Here the judge takes: {_CALLS}", file=human)
            elif arguments and arguments[0] in cli.COMMANDS:
                refused = arguments[0] if arguments[0] not in _HERE else "--open" if "--open" in arguments else ""
                if refused:
                    raise UsageError(f"{refused} is for the command line; here: {_CALLS}")
                options = cli.command_parser(arguments[0]).parse_args(arguments[1:])
                with contextlib.redirect_stdout(human):
                    if arguments[0] == "reset":
                        versions.reset(commands.known(options.id), root)
                    else:
                        getattr(commands, f"run_{arguments[0]}")(options, root)
            else:
                grade_here(cli.grade_parser().parse_args(arguments), root, human)
    except (UsageError, Unreadable, StateError) as error:
        print(f"judge: {error}", file=human)
    except SystemExit:  # --version has printed
        pass


def grade_here(options, root: Path, human: Words) -> None:
    """Select, grade, print, keep: what ``commands.grade_and_report`` does with processes."""
    from ledger.judge import commands, report
    from ledger.judge.here import Here

    start = time.perf_counter()
    if options.folder or options.source or options.json or options.require_isolation or options.cuda:
        raise UsageError("here %judge takes ids, chapters, --seed N, --again and -v; the rest is for the command line")
    answers = commands.select(options, root)
    apart = lambda: "none, all in this kernel"  # noqa: E731
    results = commands.grade_and_print(answers, options, root, Here(), apart, human, report.Style(), start)
    commands.keep_progress(results, answers, root)
