"""What a person and a program read of graded exercises."""

import json
import os
import shutil
import textwrap
from collections.abc import Iterable
from typing import TextIO

from ledger.chapters import TITLES
from ledger.judge.grade import explain, say_counts
from ledger.judge.verdicts import ExerciseResult

_MARKS = {"passed": "✓", "todo": "·", "missing": "?", "skipped": "-"}
_COLOURS = {"passed": "32", "todo": "2", "skipped": "2", "missing": "33", "judge_error": "35"}
_LABEL = 9


def way_on(id: str) -> str:
    """What to do where the notebook of exercise ``id`` cannot be read."""
    return f"move that file out of practice/ (nothing in it is lost); then python judge.py reset {id} makes a new one"


def use_colour(stream: TextIO) -> bool:
    """Whether to colour what goes to ``stream``: only a terminal, and never with NO_COLOR set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Style:
    """Colours, or none."""

    def __init__(self, colour: bool = False):
        self.colour = colour

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def bold(self, text: str) -> str:
        return self.paint(text, "1")

    def dim(self, text: str) -> str:
        return self.paint(text, "2")

    def verdict(self, text: str, verdict: str) -> str:
        return self.paint(text, _COLOURS.get(verdict, "31"))


def points_text(points: float) -> str:
    """Points without needless digits."""
    return f"{points:.2f}".rstrip("0").rstrip(".")


def one_line(result: ExerciseResult, style: Style, width: int = 0) -> str:
    """An exercise as one line: mark, id, points, the verdict where it is not a pass, and the title, or what is lacking
    where it was skipped."""
    mark = style.verdict(_MARKS.get(result.verdict, "✗"), result.verdict)
    points = f"{points_text(result.points)}/{result.max_points}"
    said = "" if result.verdict == "passed" else style.verdict(result.verdict, result.verdict) + "  "
    told = result.message if result.verdict == "skipped" else result.title
    return f"  {mark} {result.id:<{width}}  {points:>6}  {said}{style.dim(told)}"


def rows_text(rows: Iterable[tuple[str, str]], style: Style, indent: str = "    ") -> list[str]:
    """Labelled rows, wrapped to the terminal, the labels in one column."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 110) - len(indent) - _LABEL - 2
    lines = []
    for label, text in rows:
        folded = textwrap.wrap(text, max(width, 40), break_long_words=False, break_on_hyphens=False) or [""]
        for number, part in enumerate(folded):
            shown = style.dim(f"{label:<{_LABEL}}") if number == 0 else " " * _LABEL
            lines.append(f"{indent}{shown}  {part}")
    return lines


def failure_text(result: ExerciseResult, style: Style, verbose: bool = False, in_notebook: bool = False) -> list[str]:
    """The whole explanation of one exercise that did not pass, at most one screen unless ``verbose``."""
    passed = sum(case.verdict == "passed" for case in result.cases)
    head = f"{result.id}: {result.verdict}, {passed} of {len(result.cases)} cases pass"
    lines = [style.bold(style.verdict(head, result.verdict))]
    if result.where:
        lines[0] += style.dim(f"   {result.where}")
    rows = explain(result, in_notebook) or (("happened", result.message),)
    if result.verdict == "error" and not result.where and not in_notebook:  # nothing was run: no notebook could be read
        rows = (("happened", result.message), ("next", way_on(result.id)))
    lines += rows_text(rows, style)
    if verbose:
        for case in result.cases:
            said = case.verdict if case.verdict == "passed" else f"{case.verdict}: {case.message}"
            lines += rows_text([("case", f"{case.name}: {said}")], style)
        if result.output:
            lines += rows_text([("printed", line) for line in result.output.splitlines()[:20]], style)
    return lines + rows_text([("note", note) for note in result.notes], style)


def success_text(result: ExerciseResult, style: Style) -> list[str]:
    """An exercise that passed, with what was counted beside the formula."""
    cases = f"{len(result.cases)} of {len(result.cases)} cases"
    points = f"{points_text(result.points)}/{result.max_points} points"
    head = f"{style.verdict('✓', 'passed')} {style.bold(result.id)}: {cases}, {points}"
    counted = [("counted", say_counts(result.counts).removeprefix("counted "))] if result.counts else []
    return [head, *rows_text(counted, style), *rows_text([("note", note) for note in result.notes], style)]


def one_exercise(result: ExerciseResult) -> str:
    """One exercise in full, as ``check`` shows it in a notebook."""
    style = Style()
    if result.verdict == "passed":
        return "\n".join(success_text(result, style))
    if result.verdict in ("todo", "missing", "skipped"):
        return f"· {result.id}: {'skipped: ' * (result.verdict == 'skipped')}{result.message}"
    return "\n".join(failure_text(result, style, in_notebook=True))


def chapter_bar(results: list[ExerciseResult], style: Style) -> str:
    """A chapter's progress as blocks, one an exercise."""
    blocks = "".join("■" if result.verdict == "passed" else "□" for result in results)
    passed = sum(result.verdict == "passed" for result in results)
    return f"{style.paint(blocks, '32')} {passed} of {len(results)}"


def chapter_line(chapter: int, style: Style) -> str:
    """The heading of a chapter's results."""
    return style.bold(f"Chapter {chapter} · {TITLES.get(chapter, '')}")


def result_lines(result: ExerciseResult, style: Style, width: int, told: set[str]) -> list[str]:
    """An exercise's line as it is graded; below a pass, what was counted and any note that is not ``told`` yet."""
    lines = [one_line(result, style, width)]
    if result.verdict == "passed":
        said = say_counts(result.counts)
        notes = [note for note in result.notes if note not in told]
        told.update(notes)
        lines += [f"      {style.dim(text)}" for text in ([said] if said else []) + notes]
    return lines


def failures_text(results: list[ExerciseResult], style: Style, verbose: bool) -> list[str]:
    """The first failure in full and the others named; every one in full with ``verbose``."""
    failed = [result for result in results if result.verdict not in ("passed", "todo", "skipped")]
    lines: list[str] = []
    for result in failed if verbose else failed[:1]:
        lines += ["", *failure_text(result, style, verbose)]
    if len(failed) > 1 and not verbose:
        others = ", ".join(result.id for result in failed[1:])
        lines += ["", style.dim(f"Also not passed: {others}. One of them: python judge.py {failed[1].id}; all: -v")]
    return lines


def summary(results: list[ExerciseResult], seconds: float) -> dict:
    """The totals of the machine-readable result."""
    return {
        "passed": sum(result.verdict == "passed" for result in results),
        "total": len(results),
        "points": round(sum(result.points for result in results), 3),
        "max_points": sum(result.max_points for result in results),
        "seconds": round(seconds, 3),
    }


def summary_text(results: list[ExerciseResult], seconds: float, style: Style) -> str:
    """The totals in a sentence, with what was skipped counted and named."""
    total = summary(results, seconds)
    points = f"{points_text(total['points'])} of {total['max_points']} points"
    line = f"{total['passed']} of {total['total']} passed · {points} · {seconds:.1f} s"
    skipped = [result.id for result in results if result.verdict == "skipped"]
    if skipped:
        line += f" · {len(skipped)} skipped, which this machine cannot run: {', '.join(skipped)}"
    return style.bold(line)


def to_json(results: list[ExerciseResult], isolation: str, seconds: float) -> str:
    """The machine-readable result, schema 1."""
    data = {
        "schema": 1,
        "isolation": isolation,
        "exercises": [result.to_json() for result in results],
        "summary": summary(results, seconds),
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
