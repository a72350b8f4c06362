"""The judge's command line. ``main`` returns the exit status:

0 everything selected that this machine can run passed, 1 something did not, 2 usage, 3 the judge or its environment is
at fault.

Only the standard library is imported here, so that the process in which answers run boots while the judge imports
NumPy.
"""

import argparse
import codecs
import contextlib
import errno
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ledger import __version__
from ledger.judge.errors import StateError, Unreadable, UsageError

PASSED, FAILED, USAGE, FAULT = 0, 1, 2, 3
#: Stand-ins for what a terminal without UTF-8 cannot show.
PLAIN = dict(zip("■▣□○✓✗·×−", "#r_ovx.x-", strict=True)) | {"…": "...", "→": "->"}

#: Bytes of a path, and of a name in it, that no common system exceeds.
LONGEST_PATH, LONGEST_NAME = 4095, 255

EPILOG = """\
other commands:
  judge.py list               the exercises and how far you are
  judge.py next               the next exercise, and where it waits
  judge.py watch              grade on every save; one key each for next, hint, list, all, quit
  judge.py hint ID [N]        the next hint of an exercise, or hint N
  judge.py solution ID        the solution, once your answer has passed
  judge.py reset ID           put the untouched stub back (your version is kept)
  judge.py answers save FILE  your answers and own cells as one file; answers load FILE puts them back
  judge.py class DIR          grade a folder of submissions, a folder a student
  judge.py doctor             what this machine can run, and which layers of isolation hold
  judge.py check              the author's gate: references, stubs, mutants, hints

exit status: 0 all passed, 1 something did not, 2 usage, 3 the judge itself failed
"""


def main(argv: Sequence[str] | None = None, root: Path | None = None) -> int:
    """Run the judge on ``argv`` for the course at ``root``; without it, the course around the working folder."""
    argv = list(sys.argv[1:] if argv is None else argv)
    prepare_streams()
    stop_like_ctrl_c()
    try:
        root = root or course_root(Path.cwd())
        status = run(argv, root)
        sys.stdout.flush()
        return status
    except (UsageError, Unreadable) as error:
        return complain(error, USAGE)
    except StateError as error:
        return complain(error, FAULT)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAULT
    except KeyboardInterrupt:
        return complain("stopped", 130)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return complain("there is no space left where the output goes", FAULT)
        return at_fault(error)
    except Exception as error:
        return at_fault(error)


def at_fault(error: Exception) -> int:
    """Say what the judge itself failed on; raise it where that is asked for."""
    if os.environ.get("LEDGER_TRACEBACK"):
        raise error
    text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    return complain(f"{text} (the judge's own fault, or its surroundings'; LEDGER_TRACEBACK=1 shows where)", FAULT)


def prepare_streams() -> None:
    """Let nothing that is printed fail: what a terminal lacks gets a stand-in, a closed stream nothing."""
    codecs.register_error("plain", plain)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        elif mode == "w" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="plain")


def plain(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that a terminal lacks: a mark in ASCII for those that mean something, else ``?``."""
    return "".join(PLAIN.get(character, "?") for character in error.object[error.start : error.end]), error.end


def stop_like_ctrl_c() -> None:
    """Take an order to end, or the end of the terminal, for Ctrl-C: what is to be put back is put back."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    with contextlib.suppress(ValueError, AttributeError):  # another thread than the main one, or no such signal
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:  # nohup has one ignored
                signal.signal(number, stop)


def run(argv: list[str], root: Path | None) -> int:
    """Carry out a command, or grade."""
    refuse_endless(argv)
    if argv and argv[0] in COMMANDS:
        options = command_parser(argv[0]).parse_intermixed_args(argv[1:])
        from ledger.judge import commands

        return getattr(commands, f"run_{argv[0]}")(options, root)
    start = time.perf_counter()
    options = grade_parser().parse_args(argv)
    from ledger.judge.launch import Servers

    hidden = [path for path in (root, options.folder) if path]
    servers = Servers(extra_hidden=hidden, outer=options.require_isolation)
    servers.get()
    from ledger.judge import commands

    return commands.run_grade(options, root, servers, start)


def refuse_endless(argv: list[str]) -> None:
    """Raise UsageError for a word that no system would take for a path: nothing else may be as long either."""
    for word in argv:
        data = os.fsencode(word)
        if len(data) > LONGEST_PATH or any(len(part) > LONGEST_NAME for part in data.split(b"/")):
            raise UsageError(f"{word[:40]}… is longer than the name of any file, and no exercise's id")


def course_root(start: Path) -> Path | None:
    """The folder that holds the course: the nearest one from ``start`` upwards with ``judge.py`` and ``practice``."""
    folders = (start, *start.parents)
    return next((f for f in folders if (f / "judge.py").is_file() and (f / "practice").is_dir()), None)


def complain(what: object, status: int) -> int:
    """Say on standard error why the judge stops: one line, in which nothing acts on a terminal."""
    print("judge: " + "".join(c if c.isprintable() else " " for c in str(what)), file=sys.stderr)
    return status


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str):
        raise UsageError(f"{message} (see {self.prog} --help)")


def grade_parser() -> Parser:
    """The options of grading."""
    parser = Parser(
        prog="judge.py",
        description="Grade the answers in practice/.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="an id, a chapter (2 or ch02) or a notebook")
    parser.add_argument("--from", dest="folder", type=Path, metavar="DIR", help="grade another folder of this shape")
    parser.add_argument("--source", nargs=2, metavar=("FILE.py", "ID"), help="grade a Python file as one answer")
    parser.add_argument("--json", metavar="FILE", help="write the machine-readable result ('-': standard output)")
    parser.add_argument("--seed", type=int, metavar="N", help="repeat the inputs of an earlier run")
    parser.add_argument("--again", action="store_true", help="run what has passed and did not change as well")
    parser.add_argument("--require-isolation", action="store_true", help="refuse to run without every layer")
    parser.add_argument("--cuda", action="store_true", help="run kernels on this machine's GPU as well, without a jail")
    parser.add_argument("-v", "--verbose", action="store_true", help="every case, and what the answers printed")
    parser.add_argument("--version", action="version", version=f"Attention Ledger {__version__}")
    return parser


#: The commands beside grading, with what they take.
COMMANDS: dict[str, tuple[str, list[tuple[str, dict]]]] = {
    "list": ("List the exercises and how far you are.", []),
    "hint": (
        "Show a hint: from the idea to a skeleton.",
        [("id", {"metavar": "ID"}), ("level", {"metavar": "N", "nargs": "?", "type": int})],
    ),
    "next": (
        "Name the next exercise.",
        [("--open", {"action": "store_true", "help": "open it in the JupyterLab that runs"})],
    ),
    "watch": ("Grade on every save.", []),
    "solution": (
        "Show the solution of an exercise that has passed.",
        [
            ("id", {"metavar": "ID"}),
            ("--reveal", {"action": "store_true", "help": "show it before; the ladder marks that"}),
        ],
    ),
    "reset": ("Put the untouched stub back; your version is kept.", [("id", {"metavar": "ID"})]),
    "answers": (
        "Save your answers and your own cells as one file, or put them back into the notebooks that lie in practice/.",
        [("action", {"choices": ["save", "load"]}), ("file", {"metavar": "FILE", "type": Path})],
    ),
    "class": (
        "Grade a folder of submissions: a folder a student, as nbgrader collects them, or a notebook a student.",
        [
            ("folder", {"metavar": "DIR", "type": Path, "help": "the folder that holds the students' folders"}),
            (
                "targets",
                {
                    "metavar": "TARGET",
                    "nargs": "*",
                    "default": [],
                    "help": "ids or chapters; else all that was handed in",
                },
            ),
            ("--out", {"metavar": "DIR", "type": Path, "help": "where the results go (DIR-graded)"}),
            ("--workers", {"metavar": "N", "type": int, "help": "processes that grade (one a core)"}),
            ("--scheduler", {"metavar": "ADDRESS", "help": "a dask scheduler, tcp://host:8786, whose workers grade"}),
            ("--seed", {"metavar": "N", "type": int, "help": "the inputs' seed; kept for later runs"}),
            ("--again", {"action": "store_true", "help": "grade again what did not change"}),
            ("--require-isolation", {"action": "store_true", "help": "refuse to run without every layer"}),
        ],
    ),
    "doctor": ("Say what this machine can run, and which layers of isolation hold.", []),
    "check": ("Hold the exercises to the author's rules.", [("ids", {"metavar": "ID", "nargs": "*"})]),
}


def command_parser(name: str) -> Parser:
    """The options of one of the other commands."""
    description, arguments = COMMANDS[name]
    parser = Parser(prog=f"judge.py {name}", description=description)
    for argument, how in arguments:
        parser.add_argument(argument, **how)
    return parser
