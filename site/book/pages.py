"""The pages that Sphinx reads: lessons as they are, exercises without answers, tables and the front page computed.

Pages lie as notebooks do (``notebooks/ch01_keys/keys.ipynb``), so that the links between notebooks hold in the book.
"""

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from book.launch import FIRST, LITE

from ledger.browser.missing import NAMES
from ledger.build.browser import wants_computer
from ledger.build.notebook import Course, fresh
from ledger.chapters import CHAPTERS, Chapter
from ledger.exercises import registry
from ledger.machines import MACHINES
from ledger.measure import processor
from ledger.models import MODELS

HERE = Path(__file__).resolve().parent
SHORT = 3  # lines of a cell that are not worth a fold

# The last cell of each lesson in the book: who measured what stands above it, and when.
RAN = """\
from datetime import date
from importlib.metadata import version
from platform import python_version
from IPython.display import Markdown
Markdown(f"*All outputs on this page are from one run: PROCESSOR, Python {python_version()}, "
         f"NumPy {version('numpy')}, {date.today()}.*")
"""
READING = """\
This page is for reading. To answer, <a href="{browser}">open it in the browser</a>, or open `{path}` on your machine.
"""
READING_APART = """\
This page is for reading. To answer, open `{path}` on a computer: it needs {needs}, which no browser has. There you can
<a href="{browser}">read and write it</a>, and its checks are skipped.
"""


def write(root: Path, source: Path) -> None:
    """Write every page of the course at ``root`` into the empty folder ``source``."""
    lessons, practice = (
        {path: json.loads(text) for path, text in fresh(Course(root), trees=(tree,)).items()}
        for tree in ("notebooks", "practice")
    )
    for path, notebook in lessons.items():
        _write(source / path, json.dumps(lesson(notebook)))
    for path, notebook in practice.items():
        _write(source / path, json.dumps(exercises(path, notebook)))
    order = [
        f"{tree}/{name}"
        for chapter in CHAPTERS
        for tree, kind in (("notebooks", "lessons"), ("practice", "practice"))
        for name in chapter.paths(kind)
    ]
    computed = {
        "processor": processor(),
        "chapters": chapter_table(lessons),
        "pages": "\n".join(order),
        "models": model_table(),
        "models_sources": sources(MODELS),
        "machines": machine_table(),
        "machines_sources": sources(MACHINES),
        "first": FIRST,
    }
    for page in HERE.glob("*.md"):
        text = re.sub(r"<!-- (\w+) -->", lambda m: computed[m[1]], page.read_text())
        _write(source / page.name, text)
    picture = (root / "site" / "graded_run.svg").read_text()
    _write(source / "graded_run.svg", re.sub(r',\s*url\("https?://[^"]*"\) format\("\w+"\)', "", picture))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def lesson(notebook: dict[str, Any]) -> dict[str, Any]:
    """``notebook`` for the book: cells that only draw are folded, the last one says where all of it ran.

    A link to a statement's cell, which is how JupyterLab finds it, becomes one to the exercise's anchor.
    """
    for cell in notebook["cells"]:
        cell["source"] = re.sub(r"#cell-id=(\w+)-statement\b", r"#\1", "".join(cell["source"]))
        if cell["cell_type"] == "code" and only_draws(cell["source"]):
            _tag(cell, "hide-input")
    notebook["cells"].append(
        _cell("code", RAN.replace("PROCESSOR", processor()), id="where-it-ran", tags=["remove-input"])
    )
    return notebook


def only_draws(code: str) -> bool:
    """Whether ``code`` ends in a figure and has nothing to say beside it: it prints, asserts and defines nothing."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return False
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr) or len(code.strip().splitlines()) <= SHORT:
        return False
    value = last.value.func if isinstance(last.value, ast.Call) else last.value
    if not isinstance(value, ast.Name) or value.id not in ("fig", "flow"):
        return False
    speaks = (ast.Assert, ast.FunctionDef)
    return not any(
        isinstance(node, speaks) or (isinstance(node, ast.Name) and node.id == "print") for node in ast.walk(tree)
    )


def exercises(path: str, notebook: dict[str, Any]) -> dict[str, Any]:
    """A practice notebook for reading: statements, signatures and folded hints; no set-up, no checks."""
    kept = []
    for cell in notebook["cells"]:
        is_answer = cell["metadata"].get("nbgrader", {}).get("solution")
        if cell["cell_type"] == "markdown" or is_answer:
            kept.append(cell)
    needed = {need for cell in kept if cell["id"] in registry() for need in registry()[cell["id"]].needs}
    told = READING_APART if wants_computer(notebook) else READING
    needs, browser = " and ".join(NAMES[need] for need in sorted(needed)), "../" * path.count("/") + LITE + path
    told = told.format(path=path, needs=needs, browser=browser)
    kept.insert(1, _cell("markdown", told, id="reading"))
    return notebook | {"cells": kept, "metadata": notebook["metadata"] | {"mystnb": {"execution_mode": "off"}}}


def _tag(cell: dict[str, Any], tag: str) -> None:
    cell["metadata"]["tags"] = [*cell["metadata"].get("tags", ()), tag]


def _cell(kind: str, source: str, *, id: str, tags: list[str] | None = None) -> dict[str, Any]:
    cell = {"cell_type": kind, "id": id, "metadata": {"tags": tags or []}, "source": source}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def chapter_table(lessons: dict[str, Any]) -> str:
    """The chapters with the question that each asks, from its first lesson's first cell, and what there is to solve."""
    rows = ["| chapter | its question | exercises |", "|---|---|---|"]
    for chapter in CHAPTERS:
        first, *more = (f"notebooks/{name}.ipynb" for name in chapter.paths("lessons"))
        title = f"[{chapter.number} {chapter.title}]({first})"
        title += "".join(f", [{Path(path).stem.replace('_', ' ')}]({path})" for path in more)
        rows.append(f"| {title} | {_question(lessons[first])} | {_to_solve(chapter)} |")
    return "\n".join(rows)


def _question(notebook: dict[str, Any]) -> str:
    opening = "".join(notebook["cells"][0]["source"])
    found = re.search(r"\*\*The question:\*\*\s*(.+?)(?:\n\n|\Z)", opening, re.DOTALL)
    asked = " ".join(found[1].split())
    return asked[0].upper() + asked[1:]


def _to_solve(chapter: Chapter) -> str:
    paths = [f"practice/{name}.ipynb" for name in chapter.paths("practice")]
    mine = [e for e in registry().values() if e.chapter == chapter.number]
    if not mine:
        return ""
    amount = f"{len(mine)}, about {sum(e.minutes for e in mine)} minutes"
    if len(paths) == 1:
        return f"[{amount}]({paths[0]})"
    return f"{amount}: " + ", ".join(f"[{Path(path).stem.replace('_', ' ')}]({path})" for path in paths)


def model_table() -> str:
    """Every model's shape."""
    columns = ("model", "layers with MLA", "hidden", "heads", "query latent", "latent", "nope", "rope", "value")
    columns += ("cached values", "bytes in bf16")
    rows = [
        (
            m.name,
            f"{m.num_mla_layers}" if m.num_mla_layers == m.num_layers else f"{m.num_mla_layers} in {m.num_layers}",
            m.hidden_dim,
            m.num_heads,
            m.q_lora_dim,
            m.latent_dim,
            m.nope_dim,
            m.rope_dim,
            m.value_dim,
            m.cache_dim,
            2 * m.cache_dim * m.num_mla_layers,
        )
        for m in MODELS.values()
    ]
    return _table(columns, rows)


def machine_table() -> str:
    """Every machine's limits."""
    columns = (
        "machine",
        "memory, GB",
        "TB/s",
        "TFLOP/s in bf16",
        "in fp8",
        "in fp32",
        "ridge in bf16",
        "network, GB/s",
    )
    rows = [
        (
            m.name,
            f"{m.memory / 1e9:g}",
            f"{m.bandwidth / 1e12:g}",
            *(f"{m.flops[dtype] / 1e12:,g}" if dtype in m.flops else None for dtype in ("bf16", "fp8", "fp32")),
            f"{m.ridge():.0f}",
            f"{m.network / 1e9:g}",
        )
        for m in MACHINES.values()
    ]
    return _table(columns, rows)


def _table(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """A table in Markdown: the first column is words, the others are numbers, None is a dash."""
    marks = [":--", *("--:" for _ in columns[1:])]
    lines = [columns, marks, *(tuple(_entry(value) for value in row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def sources(entries: Mapping[str, Any]) -> str:
    """Where the numbers of each model or machine are from, as a list."""
    return "\n".join(f"* **{name}**: {entry.source}" for name, entry in entries.items())


def _entry(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else str(value)
