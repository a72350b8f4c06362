"""Cells of the exercises that no browser can run: what of them runs there all the same, and a sentence about the rest.

Without this, the set-up's import of torch would end a run of the notebook. So each check says that it is skipped.
"""

import ast

from ledger.browser.missing import NAMES


def split(source: str) -> tuple[str, str]:
    """The text that runs in the place of a cell, and what is said about it: the cell as it is, and "", for any other.

    A set-up goes without the imports of what a browser has not. An answer becomes a function that cannot be called.
    """
    if not any(package in source for package in NAMES):
        return source, ""
    from ledger.judge.collect import parsed

    body = parsed(source).body  # of what cannot be parsed, the kernel says where, and it knows magics
    absent = [package for node in body for package in imported(node) if package in NAMES]
    if absent and any(imported(node) == {"ledger"} for node in body):
        kept = [node for node in body if not imported(node) & NAMES.keys()]
        needs = " and ".join(dict.fromkeys(NAMES[package] for package in absent))
        says = f"The exercises here need {needs}, which no browser has: their checks are skipped."
        return ast.unparse(ast.Module(kept, [])), says
    for name in (node.name for node in body if isinstance(node, ast.FunctionDef)):
        if why := lacking(name):
            says = f"{name}: {why}. What you write here is kept, and %judge puts it into the file of your answers."
            return f"def {name}(*given): raise RuntimeError({why!r})", says
    return source, ""


def lacking(name: str) -> str:
    """Why the exercise called ``name`` cannot be run here; "" where it can, and where there is none."""
    from ledger import exercises
    from ledger.judge.session import what_lacks

    return what_lacks(exercises.get(name)) if name in exercises.ids() else ""


def imported(node: ast.stmt) -> set[str]:
    """The packages that a statement imports."""
    match node:
        case ast.Import(names=names):
            return {alias.name.split(".")[0] for alias in names}
        case ast.ImportFrom(module=str(module), level=0):
            return {module.split(".")[0]}
    return set()
