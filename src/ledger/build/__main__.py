"""``python -m ledger.build``: write the notebooks, prove them in sync, pull an edit back, or record cells' outputs.

Exit status: 0 all is well, 1 something is not in sync, 2 a master, a notebook or the call is at fault.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

from ledger.build.masters import BuildError, masters


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m ledger.build", description="Make notebooks/, practice/ and solutions/ from course/."
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="write nothing; name each file that a build would change")
    action.add_argument(
        "--pull", metavar="NOTEBOOK", help="take an edit made in notebooks/ or solutions/ back to its master"
    )
    action.add_argument(
        "--record", action="store_true", help="run the lessons and keep what cells give that a browser cannot run"
    )
    parser.add_argument("--root", type=Path, help="the course's root (default: found from the current folder upwards)")
    options = parser.parse_args(arguments)
    try:
        root = _root(options.root)
        if options.pull:
            return _pull(root, options.pull)
        if options.record:
            return _record(root)
        return _check(root) if options.check else _build(root)
    except BuildError as fault:
        print(fault, file=sys.stderr)
        return 2
    except ModuleNotFoundError as missing:
        print(f"{missing.name} is not installed; the builder needs the environment of 'make setup'", file=sys.stderr)
        return 2


def _root(given: Path | None) -> Path:
    here = Path.cwd()
    for folder in [given] if given else [here, *here.parents]:
        if masters(folder):
            return folder.resolve()
    raise BuildError(f"There are no masters in {given or here}: run this in the course's root, where course/ is")


def _check(root: Path) -> int:
    from ledger.build.notebook import Course
    from ledger.build.tree import check

    findings = check(Course(root))
    return _report(findings, "in sync with course/")


def _build(root: Path) -> int:
    from ledger.build.notebook import Course
    from ledger.build.tree import build

    written, left = build(Course(root))
    for path in written:
        print(f"wrote     {path}")
    return _report(
        left, f"{len(written)} written, the rest was in sync" if written else "nothing to write, all in sync"
    )


def _report(findings: list, well: str) -> int:
    for finding in findings:
        print(finding)
    failing = Counter(f.kind for f in findings if f.fails)
    print("not in sync: " + ", ".join(f"{n} {kind}" for kind, n in failing.items()) if failing else well)
    return 1 if failing else 0


def _record(root: Path) -> int:
    from ledger.build.record import record

    for cell in record(root):
        print(f"recorded  {cell}")
    return 0


def _pull(root: Path, notebook: str) -> int:
    from ledger.build.edits import pull
    from ledger.build.notebook import Course
    from ledger.build.tree import BUILD, write

    try:
        path = Path(notebook).resolve().relative_to(root).as_posix()
    except ValueError:
        raise BuildError(f"{notebook} is not inside the course at {root}") from None
    pulled = pull(Course(root), path)
    for note in pulled.notes:
        print(f"note      {note}")
    for file, text in pulled.texts.items():
        write(root / file, text)
        print(f"pulled    {path} -> {file}")
    print(f"run {BUILD} to renew the notebooks" if pulled.texts else "nothing to pull")
    return 0


if __name__ == "__main__":
    sys.exit(main())
