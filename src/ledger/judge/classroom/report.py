"""What an instructor reads of a graded class: a CSV file of points, and a page of tables."""

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterable
from importlib.resources import files

from ledger import exercises
from ledger.chapters import TITLES
from ledger.judge.classroom.similar import Pair
from ledger.judge.classroom.work import Row
from ledger.judge.report import points_text

#: Stumbles that a table names for an exercise.
NAMED = 5


def to_csv(rows: Iterable[Row]) -> str:
    """A line a student: the sum of points, what could be had, and the points of each exercise. What the judge itself
    failed on is left empty, and so is what this machine could not run; neither is in what could be had."""
    table, ids = by_student(rows)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["student", "points", "max_points", *ids])
    for student, graded in table.items():
        told = [row for row in graded.values() if row.verdict not in ("judge_error", "skipped")]
        sums = (points_text(sum(row.points for row in told)), sum(row.max_points for row in told))
        points = {row.exercise: points_text(row.points) for row in told}
        writer.writerow([harmless(student), *sums, *(points.get(id, "") for id in ids)])
    return out.getvalue()


def harmless(name: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return f"'{name}" if name[:1] in ("=", "+", "-", "@", "\t", "\r") else name


def by_student(rows: Iterable[Row]) -> tuple[dict[str, dict[str, Row]], list[str]]:
    """Rows by student and exercise, and the exercises in the course's order."""
    table: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: row.student):
        table[row.student][row.exercise] = row
    graded = {id for answers in table.values() for id in answers}
    return table, [id for id in exercises.registry() if id in graded]


def stumbles(rows: Iterable[Row]) -> list[dict]:
    """By exercise: how many passed, tried and left it, and where those who tried stumbled, the commonest first."""
    rows = list(rows)
    _, ids = by_student(rows)
    found = []
    for id in ids:
        mine = [row for row in rows if row.exercise == id]
        counted = Counter(row.stumble for row in mine if row.stumble)
        says = {row.stumble: row.message for row in mine}
        found.append(
            {
                "id": id,
                "title": exercises.get(id).title,
                "passed": sum(row.verdict == "passed" for row in mine),
                "tried": sum(row.verdict not in ("passed", "todo", "missing", "skipped") for row in mine),
                "untouched": sum(row.verdict in ("todo", "missing") for row in mine),
                "stumbles": [(name, count, says[name]) for name, count in counted.most_common(NAMED)],
                "others": sum(count for _, count in counted.most_common()[NAMED:]),
            }
        )
    return found


def to_html(rows: Iterable[Row], pairs: list[Pair], remarks: list[str], about: str) -> str:
    """The whole page: what the class stumbled over, who has which points, whose answers resemble each other."""
    from jinja2 import Environment

    rows = list(rows)
    table, ids = by_student(rows)
    students = []
    for student, graded in table.items():
        told = [row for row in graded.values() if row.verdict not in ("judge_error", "skipped")]
        cells = [graded.get(id) for id in ids]
        points, most = sum(row.points for row in told), sum(row.max_points for row in told)
        students.append({"name": student, "points": points_text(points), "max_points": most, "cells": cells})
    chapters = Counter(exercises.get(id).chapter for id in ids)
    text = (files("ledger.judge.classroom") / "report.html.j2").read_text(encoding="utf-8")
    return (
        Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        .from_string(text)
        .render(
            about=about,
            chapters=[(number, TITLES.get(number, ""), count) for number, count in chapters.items()],
            ids=ids,
            students=students,
            stumbles=stumbles(rows),
            pairs=pairs,
            remarks=remarks,
            points_text=points_text,
        )
    )
