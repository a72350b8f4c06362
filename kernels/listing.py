"""A kernel's text for a page: read from its file, so that it shows where Triton is not installed too."""

import ast
from collections.abc import Sequence
from importlib.resources import files
from textwrap import dedent, wrap

#: Characters of a line that a page shows without breaking it.
WIDTH = 104


def listing(path: str, kernel: str, marks: Sequence[str] = ()) -> str:
    """The body of ``kernel`` in the file at ``path`` below ``kernels/``, without its docstring. In front of the first
    line that begins with a mark stands the mark's number, from 1. A line too long for a page goes on in a second.

    Raises ValueError where the file has no such kernel, or the kernel no such line.
    """
    text = files("ledger.kernels").joinpath(path).read_text(encoding="utf-8")
    kernels = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    if kernel not in kernels:
        raise ValueError(f"{path} has no kernel {kernel!r}; it has: {', '.join(kernels)}")
    found = kernels[kernel]
    first = found.body[1 if ast.get_docstring(found) else 0].lineno - 1
    lines = dedent("\n".join(text.splitlines()[first : found.end_lineno])).splitlines()
    numbers = [""] * len(lines)
    for number, mark in enumerate(marks, 1):
        at = next((i for i, line in enumerate(lines) if line.strip().startswith(mark)), None)
        if at is None:
            raise ValueError(f"no line of {kernel} begins with {mark!r}")
        numbers[at] = f"{number}"
    return "\n".join(f"{number:3}{_folded(line)}".rstrip() for number, line in zip(numbers, lines, strict=True))


def _folded(line: str) -> str:
    """``line``, its rest indented by 8 below it where it is too long."""
    indent = len(line) - len(line.lstrip()) + 8
    options = dict(subsequent_indent=" " * (3 + indent), break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrap(line, WIDTH, **options))
