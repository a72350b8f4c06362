"""The ladder: the chapters with what is solved, tried and untouched, and what need not be run again."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ledger import exercises
from ledger.browser import IN_BROWSER
from ledger.chapters import CHAPTERS
from ledger.judge.collect import Submission, collect, notebooks_under
from ledger.judge.grade import plural
from ledger.judge.progress import Digests
from ledger.judge.report import Style, points_text, summary
from ledger.judge.session import untouched, what_lacks, without_run
from ledger.judge.verdicts import CaseResult, ExerciseResult
from ledger.judge.version import answer_digest, text_digest

#: The learner's progress, by exercise.
Entries = Mapping[str, Mapping]

#: An exercise on the ladder, by its state.
MARKS = {
    "solved": "■",
    "read": "▣",
    "before": "□",
    "tried": "✗",
    "unrun": "○",
    "untouched": "·",
    "missing": "?",
    "skipped": "-",
}
_COLOURS = {"solved": "passed", "read": "passed", "before": "passed", "tried": "wrong", "missing": "missing"}
_WORDS = {
    "solved": "solved",
    "read": "solved after reading the solution",
    "before": "passed before, to be run again",
    "tried": "tried",
    "unrun": "written, not run yet",
    "untouched": "untouched",
    "missing": "not found",
    "skipped": "not for this machine",
}
#: What to do about an answer that is written in an open notebook and a stub in its file. In a browser %judge saves.
SAVE_FIRST = "" if IN_BROWSER else "Written already? Save the notebook (Ctrl+S): the judge reads its file. "
_STUB = "not written yet: the line that raises NotImplementedError is still there"


def answers_in(practice: Path) -> dict[str, Submission]:
    """The answer to every exercise in a learner's folder, by exercise."""
    pool = notebooks_under(practice)
    return {id: collect(exercise, *pool) for id, exercise in exercises.registry().items()}


def digests_of(submission: Submission) -> Digests:
    """What tells an answer from every other."""
    id, texts = submission.exercise.id, [cell.source for cell in submission.cells]
    return Digests(answer_digest(id, *texts), text_digest(id, *texts[-1:]))


def known_without_running(submission: Submission, entries: Entries) -> ExerciseResult | None:
    """The result of an answer that passed and is unchanged since, or of a stub as it was handed out; else None."""
    exercise = submission.exercise
    if untouched(submission):
        result = without_run(submission, "todo", _STUB)
        result.where = submission.where
        return result
    entry = entries.get(exercise.id, {})
    if entry.get("verdict") != "passed" or submission.problem or entry.get("digest") != digests_of(submission).digest:
        return None
    cases = [CaseResult(case.name, "passed") for case in exercise.cases]
    head = (exercise.id, exercise.chapter, exercise.title, "passed", exercise.points, exercise.points, 0.0)
    return ExerciseResult(*head, cases=cases, notes=list(submission.notes), where=submission.where)


def kept_result(submission: Submission, entries: Entries) -> ExerciseResult:
    """An exercise's result as far as it is known without running.

    Beside the verdicts of a run there are two: ``before`` is an answer that passed in another version of the course, or
    below other cells, and ``unrun`` is one that was never run as it stands.
    """
    known = known_without_running(submission, entries)
    if known:
        return known
    lacking = what_lacks(submission.exercise)
    if lacking:
        return without_run(submission, "skipped", lacking)
    if submission.problem:
        return without_run(submission, "error" if submission.broken else "missing", submission.problem)
    entry, own = entries.get(submission.exercise.id, {}), digests_of(submission).own
    if entry.get("verdict") == "passed" and entry.get("own") == own:
        return without_run(submission, "before", "passed before; not run with this version of the course")
    if entry.get("own") == own:
        return without_run(submission, "error", "it did not pass when it was last run")
    return without_run(submission, "unrun", "not run since it changed")


def state_of(result: ExerciseResult, entries: Entries) -> str:
    """Where an exercise stands on the ladder: a key of MARKS. ``read`` is solved after its solution was shown."""
    if result.verdict == "passed":
        return "read" if entries.get(result.id, {}).get("revealed") else "solved"
    return "untouched" if result.verdict == "todo" else result.verdict if result.verdict in MARKS else "tried"


def mark_of(state: str, style: Style) -> str:
    """The mark of a state, in its colour."""
    return style.verdict(MARKS[state], _COLOURS.get(state, "todo"))


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
    marks = "".join(mark_of(state, style) for state in states)
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
    """The minutes by estimate of what is ahead."""
    return sum(exercises.get(result.id).minutes for result in results if is_ahead(result))


def is_ahead(result: ExerciseResult) -> bool:
    """Whether an exercise is still to be solved: it neither passes, nor did before, nor is skipped."""
    return result.verdict not in ("passed", "before", "skipped")


def duration(minutes: int) -> str:
    """Minutes as hours where they are many."""
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h".replace(".0 h", " h")


def key(results: list[ExerciseResult], entries: Entries, style: Style) -> list[str]:
    """What the marks on the ladder mean, those that are there, with their number; and what was remarked on answers that
    passed, a remark on several once."""
    missing = [result.id for result in results if result.verdict == "missing"]
    lines = [legend([state_of(result, entries) for result in results])]
    lines += [f"not found: {', '.join(missing)} (python judge.py reset ID puts one back)"] if missing else []
    remarks: dict[str, list[str]] = {}
    for result in results:
        for note in result.notes if result.verdict == "passed" else ():
            remarks.setdefault(note, []).append(result.id)
    lines += [f"{ids[0]}: {note}" if len(ids) == 1 else note for note, ids in remarks.items()]
    return [style.dim(f"     {line}") for line in lines]


def legend(states: list[str]) -> str:
    """The marks of ``states`` with how many have each, and what it means."""
    return "   ".join(f"{MARKS[state]} {states.count(state)} {_WORDS[state]}" for state in _WORDS if state in states)


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
        "  * on a computer with a GPU, at its command line: judge.py 7 --cuda, and bench/kernels.py",
        "",
        style.dim("All of it once more, on new inputs: python judge.py --again"),
    ]
