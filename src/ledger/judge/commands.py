"""What the judge's command line carries out, once NumPy and the course are loaded."""

import argparse
import contextlib
import difflib
import os
import sys
import threading
import time
from pathlib import Path

from ledger import exercises
from ledger.chapters import CHAPTERS
from ledger.exercises import Exercise
from ledger.judge import cuda, report
from ledger.judge.cli import FAILED, FAULT, PASSED, complain
from ledger.judge.collect import (
    Submission,
    chapter_number,
    collect,
    find_notebooks,
    from_source,
    notebooks_under,
    read_notebook,
    show_path,
)
from ledger.judge.errors import StateError, Unreadable, UsageError
from ledger.judge.grade import fresh_seed
from ledger.judge.launch import Servers
from ledger.judge.progress import Progress
from ledger.judge.run import Runner
from ledger.judge.session import grade_all
from ledger.judge.verdicts import ExerciseResult


def run_grade(options: argparse.Namespace, root: Path | None, servers: Servers, start: float) -> int:
    """Grade what was asked and report it; ``servers`` have been booting since ``start`` and are ended with it."""
    with Runner(servers=servers) as runner:
        return grade_and_report(options, root, runner, start)


def grade_and_report(options: argparse.Namespace, root: Path | None, runner: Runner, start: float) -> int:
    """Select, grade, print, keep."""
    if options.seed is not None and options.seed < 0:
        raise UsageError("--seed wants a number from 0 up")
    check_json_path(options.json)
    threading.Thread(target=lambda: runner.isolation, daemon=True).start()
    answers = select(options, root)
    if options.require_isolation and not runner.isolation.holds:
        allowed = ", ".join(runner.isolation.allowed) or "the self-test did not run"
        return complain(f"answers cannot be isolated here, so none was run; not denied: {allowed}", FAULT)
    gpu = find_cuda(answers, options) if options.cuda else ""
    if options.cuda and not gpu:
        says = "torch finds no GPU here; without --cuda, kernels are graded in Triton's interpreter"
        return complain(f"--cuda: {says}", FAULT)
    seed = fresh_seed() if options.seed is None else options.seed
    human = sys.stdout if options.json != "-" else open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    style = report.Style(report.use_colour(human))
    with cuda.Cuda(gpu) if gpu else contextlib.nullcontext() as on_gpu:
        results = run_and_print(answers, runner, seed, human, style, options, root, on_gpu)
    isolation = "+".join(runner.layers) or "none"
    isolation += f"; on CUDA {cuda.ISOLATION}" if gpu else ""
    seconds = time.perf_counter() - start
    print(*closing(results, isolation, seconds, style, options), sep="\n", file=human)
    if options.json:
        write_json(options.json, report.to_json(results, isolation, seconds))
    if options.folder is None and options.source is None and root:
        others = {answer.exercise.id for answer in answers if not is_learners(answer, root)}
        keep_progress([result for result in results if result.id not in others], root)
    if any(result.verdict == "judge_error" for result in results):
        return complain("the judge failed on some exercises; python judge.py doctor says what holds here", FAULT)
    return PASSED if all(result.verdict in ("passed", "skipped") for result in results) else FAILED


def is_learners(answer: Submission, root: Path) -> bool:
    """Whether an answer is the learner's own: it lies in practice/, or nothing of it is there."""
    return answer.path is None or answer.path.resolve().is_relative_to((root / "practice").resolve())


def find_cuda(answers: list[Submission], options: argparse.Namespace) -> str:
    """The GPU for the kernels among the answers; a UsageError where there is none among them, or none may run there."""
    if options.require_isolation:
        raise UsageError("--cuda runs kernels outside of the jail, and --require-isolation forbids that")
    if not any(cuda.is_kernel(answer.exercise) for answer in answers):
        kernels = ", ".join(id for id, exercise in exercises.registry().items() if cuda.is_kernel(exercise))
        raise UsageError(f"--cuda: nothing that was selected is a kernel; there are {kernels}")
    return cuda.find_gpu()


def run_and_print(answers, runner, seed, human, style, options, root, on_gpu=None) -> list[ExerciseResult]:
    """Grade and print each exercise as soon as it is ready, under its chapter's heading; kernels ``on_gpu`` as well,
    where one is given."""
    where = options.source[0] if options.source else show_path(options.folder or root / "practice")
    if not options.source and not options.folder and not all(is_learners(answer, root) for answer in answers):
        where = ", ".join(options.targets)
    print(style.dim(f"Attention Ledger · {where} · seed {seed}"), file=human, flush=True)
    width = max(len(answer.exercise.id) for answer in answers)
    results: list[ExerciseResult] = []
    progress = sys.stderr.isatty() and human.isatty()
    for answer, result in zip(answers, grade_all(answers, runner, seed), strict=True):
        result = on_gpu.also(answer, result, seed) if on_gpu else result
        if progress:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        if not results or results[-1].chapter != result.chapter:
            print("", report.chapter_line(result.chapter, style), sep="\n", file=human)
        results.append(result)
        print(*report.result_lines(result, style, width), sep="\n", file=human, flush=True)
        if progress and len(results) < len(answers):
            ahead = answers[len(results)].exercise.id
            print(f"  … {len(results)} of {len(answers)} graded; now {ahead}", end="", file=sys.stderr, flush=True)
    return results


def closing(results, isolation, seconds, style, options) -> list[str]:
    """Failures, totals, a bar a chapter, and what to do next."""
    lines = [*report.failures_text(results, style, options.verbose), ""]
    for chapter in dict.fromkeys(result.chapter for result in results):
        members = [result for result in results if result.chapter == chapter]
        lines.append(f"Chapter {chapter}  {report.chapter_bar(members, style)}")
    lines.append(report.summary_text(results, seconds, style))
    lines.append(style.dim(f"isolation: {isolation}"))
    ahead = next((r for r in results if r.verdict not in ("passed", "skipped")), None)
    if ahead:
        exercise = exercises.get(ahead.id)
        what = "Start with" if ahead.verdict in ("todo", "missing") else "Go on with"
        lines.append(f"{what} {style.bold(ahead.id)} (about {exercise.minutes} min): {exercise.title}")
        if ahead.verdict == "todo" and ahead.where:
            lines.append(f"It waits in {ahead.where}. Stuck? python judge.py hint {ahead.id}")
    elif results and not options.source:
        lines.append("Everything here passes. Explain each step to somebody: that is the last test.")
    return lines


def select(options: argparse.Namespace, root: Path | None) -> list[Submission]:
    """The answers to grade, in the course's order."""
    if options.source:
        if options.targets or options.folder:
            raise UsageError("--source grades one file as one answer: leave out targets and --from")
        path, exercise = Path(options.source[0]), known(options.source[1])
        if not path.is_file():
            raise UsageError(f"{path} is {'a folder' if path.is_dir() else 'not there'}: --source wants a Python file")
        return [from_source(path, exercise)]
    if options.folder is None and root is None:
        raise UsageError("no course was found here: run judge.py from the course's folder, or name one with --from")
    folder = options.folder or root / "practice"
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "is not there"
        raise UsageError(f"{show_path(folder)} {what}: name a folder of notebooks with --from")
    everything = exercises.registry()
    if not options.targets:
        pool = notebooks_under(folder, links=options.folder is None)
        warn_unreadable(pool[1])
        return [collect(exercise, *pool) for exercise in everything.values()]
    chosen: dict[str, Submission] = {}
    pool = None
    for target in options.targets:
        found = from_path(target, everything)
        if found is None:
            pool = pool or notebooks_under(folder, links=options.folder is None)
            found = [collect(exercise, *pool) for exercise in named(target, everything)]
        chosen |= {answer.exercise.id: answer for answer in found}
    return [chosen[id] for id in everything if id in chosen]


def warn_unreadable(unreadable: list[Unreadable]) -> None:
    """One line for each file that is no notebook; the others are graded all the same."""
    for error in unreadable:
        print(f"judge: {error}", file=sys.stderr)


def from_path(target: str, everything: dict[str, Exercise]) -> list[Submission] | None:
    """The answers that a notebook or a folder holds; None where ``target`` is no path."""
    path = Path(target)
    try:
        if target in everything or not path.exists():
            return None
    except OSError as error:
        raise UsageError(f"{target[:80]} cannot be read: {error.strerror}") from None
    if path.is_dir():
        if chapter_number(target) is not None and not find_notebooks(path, links=True):
            return None
        pool = notebooks_under(path)
        warn_unreadable(pool[1])
    else:
        pool = ([read_notebook(path, show_path(path))], [])
    found = [collect(exercise, *pool) for exercise in everything.values()]
    found = [answer for answer in found if not answer.problem]
    if not found:
        raise UsageError(f"{target} holds no answer to any exercise")
    return found


def named(target: str, everything: dict[str, Exercise]) -> list[Exercise]:
    """The exercises that an id or a chapter names; a UsageError names what comes closest."""
    if target in everything:
        return [everything[target]]
    number = chapter_number(target)
    members = [exercise for exercise in everything.values() if exercise.chapter == number]
    if members:
        return members
    if number is not None and number in {chapter.number for chapter in CHAPTERS}:
        raise UsageError(f"chapter {number} has no exercises")
    raise UsageError(unknown(target, "exercise, chapter or notebook"))


def known(id: str) -> Exercise:
    """The exercise called ``id``; a UsageError names what comes closest."""
    try:
        return exercises.get(id)
    except KeyError:
        raise UsageError(unknown(id, "exercise")) from None


def unknown(name: str, kind: str) -> str:
    """One line about a name that nothing bears."""
    close = difflib.get_close_matches(name, exercises.ids(), n=2)
    guess = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"there is no {kind} {name!r}{guess} (python judge.py list names them all)"


def check_json_path(path: str | None) -> None:
    """Refuse before grading what could not be written after it."""
    if path in (None, "-"):
        return
    if path == "" or Path(path).is_dir():
        raise UsageError(f"--json wants a file, not the folder {path or '.'}")
    if not Path(path).parent.is_dir():
        raise UsageError(f"--json: the folder {Path(path).parent} is not there")


def write_json(path: str, text: str) -> None:
    """The machine-readable result, to a file or to standard output."""
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StateError(f"the result could not be written to {path}: {error.strerror or error}") from None


def keep_progress(results: list[ExerciseResult], root: Path) -> None:
    """Note how far the learner is; a folder that cannot be written is a remark, not a failure."""
    try:
        progress = progress_of(root)
        progress.record(results)
        progress.save()
    except StateError as error:
        print(f"judge: {error}", file=sys.stderr)


def progress_of(root: Path) -> Progress:
    """The learner's progress; one that had to be started anew is said."""
    progress = Progress(root)
    if progress.remark:
        print(f"judge: {progress.remark}", file=sys.stderr)
    return progress


def need_root(root: Path | None) -> Path:
    """The course's folder, or a UsageError."""
    if root is None:
        raise UsageError("no course was found here: run judge.py from the course's folder")
    return root


def run_list(options: argparse.Namespace, root: Path | None) -> int:
    """Every exercise with its title, minutes, points and state."""
    style = report.Style(report.use_colour(sys.stdout))
    state = progress_of(root).exercises if root else {}
    everything = exercises.registry()
    width = max(map(len, everything))
    for chapter in dict.fromkeys(exercise.chapter for exercise in everything.values()):
        print(report.chapter_line(chapter, style))
        for exercise in (e for e in everything.values() if e.chapter == chapter):
            verdict = state.get(exercise.id, {}).get("verdict", "todo")
            mark = "✓" if verdict == "passed" else "·" if verdict in ("todo", "missing") else "✗"
            stars = "*" * exercise.difficulty
            print(
                f"  {style.verdict(mark, verdict)} {exercise.id:<{width}}  {exercise.points} points"
                f"  {exercise.minutes:>3} min  {stars:<3}  {style.dim(exercise.title)}"
            )
    return PASSED


def run_hint(options: argparse.Namespace, root: Path | None) -> int:
    """Show one hint: the next one not yet seen, or the one asked for; and remember it."""
    exercise = known(options.id)
    last = len(exercise.hints)
    progress = progress_of(root) if root else None
    level = options.level
    if level is None:
        level = min((progress.hints_seen(exercise.id) if progress else 0) + 1, last)
    if not 1 <= level <= last:
        raise UsageError(f"{exercise.id} has hints 1 to {last}")
    print(f"{exercise.id}, hint {level} of {last}\n\n{exercise.hints[level - 1]}")
    if level < last:
        print(f"\nMore: python judge.py hint {exercise.id} {level + 1}")
    if progress:
        progress.saw_hint(exercise.id, level)
        with contextlib.suppress(StateError):
            progress.save()
    return PASSED


def run_reset(options: argparse.Namespace, root: Path | None) -> int:
    """Put one exercise's stub back and keep the learner's version."""
    exercise = known(options.id)
    from ledger.judge.reset import reset

    print(reset(exercise, need_root(root)))
    return PASSED


def run_answers(options: argparse.Namespace, root: Path | None) -> int:
    """Save the learner's work as a bundle, or put one back; 1 where something of it had no place."""
    from ledger.judge import answers

    root = need_root(root)
    if options.action == "save":
        print(*answers.save(options.file, root), sep="\n")
        return PASSED
    done, lines = answers.load_bundle(options.file, root)
    print(*lines, sep="\n")
    return FAILED if done.left else PASSED


def run_doctor(options: argparse.Namespace, root: Path | None) -> int:
    """What this machine can run, and which layers of isolation hold."""
    from ledger.judge.doctor import doctor

    return doctor(root, sys.stdout)


def run_check(options: argparse.Namespace, root: Path | None) -> int:
    """The author's gate."""
    from ledger.judge.gate import gate

    return gate([known(id).id for id in options.ids], need_root(root), sys.stdout)
