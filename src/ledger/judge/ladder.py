"""The ladder: the chapters with what is solved, tried and untouched, and what need not be run again."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ledger import exercises
from ledger.chapters import CHAPTERS
from ledger.judge.collect import Submission, collect, notebooks_under
from ledger.judge.grade import plural
from ledger.judge.report import Style, points_text, summary
from ledger.judge.session import untouched, what_lacks, without_run
from ledger.judge.verdicts import CaseResult, ExerciseResult
from ledger.judge.version import answer_digest

#: The learner's progress, by exercise.
Entries = Mapping[str, Mapping]

#: An exercise on the ladder, by its state.
MARKS = {"solved": "■", "read": "▣", "tried": "✗", "untouched": "·", "missing": "?", "skipped": "-"}
_COLOURS = {"solved": "passed", "read": "passed", "untouched": "todo", "missing": "missing", "skipped": "skipped"}
_WORDS = {
    "solved": "solved",
    "read": "solved after reading the solution",
    "tried": "tried",
    "untouched": "untouched",
    "missing": "not found",
    "skipped": "not for this machine",
}
_STUB = "not written yet: the line that raises NotImplementedError is still there"


def answers_in(practice: Path) -> dict[str, Submission]:
    """The answer to every exercise in a learner's folder, by exercise."""
    pool = notebooks_under(practice)
    return {id: collect(exercise, *pool) for id, exercise in exercises.registry().items()}


def digest_of(submission: Submission) -> str:
    """What tells an answer, with the cells above it and in this version of the course, from every other."""
    return answer_digest(submission.exercise.id, *(cell.source for cell in submission.cells))


def known_without_running(submission: Submission, entries: Entries) -> ExerciseResult | None:
    """The result of an answer that passed and is unchanged since, or of a stub as it was handed out; else None."""
    exercise = submission.exercise
    if untouched(submission):
        result = without_run(submission, "todo", _STUB)
        result.where = submission.where
        return result
    entry = entries.get(exercise.id, {})
    if entry.get("verdict") != "passed" or submission.problem or entry.get("digest") != digest_of(submission):
        return None
    cases = [CaseResult(case.name, "passed") for case in exercise.cases]
    head = (exercise.id, exercise.chapter, exercise.title, "passed", exercise.points, exercise.points, 0.0)
    return ExerciseResult(*head, cases=cases, notes=list(submission.notes), where=submission.where)


def kept_result(submission: Submission, entries: Entries) -> ExerciseResult:
    """An exercise's result as far as it is known without running: an answer that changed since is ``error``, unrun."""
    known = known_without_running(submission, entries)
    if known:
        return known
    lacking = what_lacks(submission.exercise)
    verdict = "skipped" if lacking else "missing" if submission.problem and not submission.broken else "error"
    return without_run(submission, verdict, lacking or submission.problem or "not run since it changed")


def state_of(result: ExerciseResult, entries: Entries) -> str:
    """Where an exercise stands on the ladder: a key of MARKS. ``read`` is solved after its solution was shown."""
    if result.verdict == "passed":
        return "read" if entries.get(result.id, {}).get("revealed") else "solved"
    return {"todo": "untouched", "missing": "missing", "skipped": "skipped"}.get(result.verdict, "tried")


def chapters_of(results: Iterable[ExerciseResult]) -> Iterator[list[ExerciseResult]]:
    """Results a chapter at a time, each as soon as it is whole."""
    members: list[ExerciseResult] = []
    for result in results:
        if members and members[0].chapter != result.chapter:
            yield members
            members = []
        members.append(result)
    if members:
        yield members


def rung(members: list[ExerciseResult], entries: Entries, style: Style) -> str:
    """A chapter as one line: a mark an exercise, how many are solved, and the time that the rest may take."""
    chapter = next(c for c in CHAPTERS if c.number == members[0].chapter)
    states = [state_of(result, entries) for result in members]
    marks = "".join(style.verdict(MARKS[state], _COLOURS.get(state, "wrong")) for state in states)
    room = " " * (widest() - len(states))
    solved = sum(state in ("solved", "read") for state in states)
    left = minutes_left(members)
    width = max(len(c.title) for c in CHAPTERS)
    told = f"{solved:>2} of {len(members):<2}"
    return f"  {chapter.number:>2} {chapter.title:<{width}}  {marks}{room}  {told}" + style.dim(
        f"  about {duration(left)} left" if left else ""
    )


def widest() -> int:
    """The exercises of the chapter that has most."""
    chapters = [exercise.chapter for exercise in exercises.registry().values()]
    return max(map(chapters.count, set(chapters)))


def minutes_left(results: Iterable[ExerciseResult]) -> int:
    """The minutes by estimate of what neither passes nor is skipped."""
    return sum(exercises.get(r.id).minutes for r in results if r.verdict not in ("passed", "skipped"))


def duration(minutes: int) -> str:
    """Minutes as hours where they are many."""
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h".replace(".0 h", " h")


def key(results: list[ExerciseResult], entries: Entries, style: Style) -> list[str]:
    """What the marks on the ladder mean, those that are there, with their number; and what was remarked on answers that
    passed."""
    states = [state_of(result, entries) for result in results]
    told = [f"{MARKS[state]} {states.count(state)} {says}" for state, says in _WORDS.items() if state in states]
    missing = [result.id for result in results if result.verdict == "missing"]
    lines = ["     " + "   ".join(told)]
    lines += [f"     not found: {', '.join(missing)} (judge.py reset ID puts one back)"] if missing else []
    lines += [f"     {r.id}: {note}" for r in results if r.verdict == "passed" for note in r.notes]
    return [style.dim(line) for line in lines]


def totals(results: list[ExerciseResult], seconds: float, style: Style) -> str:
    """Exercises, points, the time that is left, and what this run took."""
    total, left = summary(results, seconds), minutes_left(results)
    points = f"{points_text(total['points'])} of {total['max_points']} points"
    line = f"{total['passed']} of {total['total']} solved · {points} · "
    line += f"about {duration(left)} left · " if left else ""
    line = style.bold(f"{line}{seconds:.1f} s")
    lacking = sorted({result.message for result in results if result.verdict == "skipped"})
    return line + "".join(f"\n{style.dim(f'{text}: not run here, and not counted as solved')}" for text in lacking)


def closing_page(results: list[ExerciseResult], entries: Entries, style: Style) -> list[str]:
    """What to say when everything that can run here is solved."""
    hints = sum(entry.get("hints", 0) for entry in entries.values())
    read = sum(bool(entry.get("revealed")) for entry in entries.values())
    solved = [result for result in results if result.verdict == "passed"]
    points = points_text(sum(result.points for result in solved))
    told = [f"{len(solved)} exercises", f"{points} points", f"{plural(hints, 'hint')} read"]
    told.append(f"{plural(read, 'solution')} read before the exercise was solved" if read else "no solution read first")
    return [
        "",
        style.bold("The course is done."),
        f"{', '.join(told)}.",
        "",
        "What is left is to use it:",
        "  * explain each chapter to somebody: its section How to explain it is the test",
        "  * open an engine's files that the lessons name, and find your functions in them",
        "  * take a model's config.json, predict its decode step on your machine, then measure it",
        "  * on a machine with a GPU: python judge.py 7 --cuda, and python bench/kernels.py",
        "",
        style.dim("All of it once more, on new inputs: python judge.py --again"),
    ]
