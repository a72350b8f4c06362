"""What the judge's command line carries out, once NumPy and the course are loaded."""

import argparse
import contextlib
import difflib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TextIO

from ledger import exercises
from ledger.browser import IN_BROWSER
from ledger.chapters import CHAPTERS
from ledger.exercises import Exercise
from ledger.judge import cuda, ladder, report
from ledger.judge.cli import FAILED, FAULT, PASSED, complain
from ledger.judge.collect import (
    Submission,
    chapter_number,
    collect,
    find_notebooks,
    from_source,
    notebooks_under,
    read_notebook,
    real,
    show_path,
)
from ledger.judge.errors import StateError, Unreadable, UsageError
from ledger.judge.grade import fresh_seed, plural
from ledger.judge.here import Here
from ledger.judge.launch import Servers
from ledger.judge.progress import Progress
from ledger.judge.run import Runner
from ledger.judge.session import grade_all, has_to_run
from ledger.judge.verdicts import ExerciseResult

#: What stands for the layers where no process was needed: the answers are missing or known, or a package is.
NOTHING_RAN = "nothing had to run"


def run_grade(options: argparse.Namespace, root: Path | None, servers: Servers, start: float) -> int:
    """Grade what was asked and report it; ``servers`` have been booting since ``start`` and are ended with it."""
    with Runner(servers=servers) as runner:
        return grade_and_report(options, root, runner, start)


def grade_and_report(options: argparse.Namespace, root: Path | None, runner: Runner, start: float) -> int:
    """Select, grade, print, keep."""
    if options.seed is not None and options.seed < 0:
        raise UsageError("--seed wants a number from 0 up")
    check_json_path(options.json)
    answers = select(options, root)
    if options.require_isolation and not runner.isolation.holds:
        allowed = ", ".join(runner.isolation.allowed) or "the self-test did not run"
        return complain(f"answers cannot be isolated here, so none was run; not denied: {allowed}", FAULT)
    gpu = find_cuda(answers, options) if options.cuda else ""
    if options.cuda and not gpu:
        says = "torch finds no GPU here; without --cuda, kernels are graded in Triton's interpreter"
        return complain(f"--cuda: {says}", FAULT)
    human = sys.stdout if options.json != "-" else open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    style = report.Style(report.use_colour(human))

    def isolation() -> str:
        return runner.apart + (f"; on CUDA {cuda.ISOLATION}" if gpu else "")

    with cuda.Cuda(gpu) if gpu else contextlib.nullcontext() as on_gpu:
        results = grade_and_print(answers, options, root, runner, isolation, human, style, start, on_gpu)
    if options.json:
        told = isolation() if any(map(has_to_run, answers)) else NOTHING_RAN
        write_json(options.json, report.to_json(results, told, time.perf_counter() - start))
    if options.folder is None and options.source is None and root:
        keep_progress(results, answers, root)
    if any(result.verdict == "judge_error" for result in results):
        return complain("the judge failed on some exercises; python judge.py doctor says what holds here", FAULT)
    return PASSED if all(result.verdict in ("passed", "skipped") for result in results) else FAILED


def grade_and_print(
    answers: list[Submission],
    options: argparse.Namespace,
    root: Path | None,
    runner: Runner | Here,
    isolation: Callable[[], str],
    human: TextIO,
    style: report.Style,
    start: float,
    on_gpu: cuda.Cuda | None = None,
) -> list[ExerciseResult]:
    """Grade ``answers`` and print them: as the ladder where the whole course is graded, else one by one. ``isolation``
    says, once something has run, how it was kept apart."""
    seed = fresh_seed() if options.seed is None else options.seed
    as_ladder = not (options.targets or options.folder or options.source or options.verbose)
    entries = {} if options.folder or options.source else entries_of(root)
    known = results_known(answers, options, entries) if as_ladder else {}
    ran = any(has_to_run(answer) for answer in answers if answer.exercise.id not in known)
    if ran and not IN_BROWSER:
        threading.Thread(target=isolation, daemon=True).start()  # its self-test takes as long as a few answers
    graded = with_progress(answers, grade_answers(answers, known, runner, seed, entries, on_gpu), human)
    print(style.dim(f"Attention Ledger · {where_from(answers, options, root)} · seed {seed}"), file=human, flush=True)
    results = print_ladder(graded, entries, human, style) if as_ladder else print_results(answers, graded, human, style)
    told = isolation() if ran else NOTHING_RAN
    seconds = time.perf_counter() - start
    print(*closing(results, told, seconds, style, options, entries if as_ladder else None), sep="\n", file=human)
    return results


def results_known(answers: list[Submission], options: argparse.Namespace, entries: dict) -> dict[str, ExerciseResult]:
    """The results of the ladder that need no run, by exercise: nothing where a run was asked for."""
    if options.again or options.json or options.cuda or options.require_isolation or options.seed is not None:
        return {}
    known = {answer.exercise.id: ladder.known_without_running(answer, entries) for answer in answers}
    return {id: result for id, result in known.items() if result}


def grade_answers(answers, known, runner, seed, entries, on_gpu=None) -> Iterator[ExerciseResult]:
    """The result of each answer in order, from a run where it is not ``known``; kernels ``on_gpu`` as well, where one
    is given. ``entries`` is the learner's progress."""
    graded = grade_all([answer for answer in answers if answer.exercise.id not in known], runner, seed, entries)
    for answer in answers:
        result = known.get(answer.exercise.id) or next(graded)
        yield on_gpu.also(answer, result, seed) if on_gpu else result
    next(graded, None)  # the last has been given: let it end, before it is taken for one that was left


def with_progress(
    answers: list[Submission], graded: Iterable[ExerciseResult], human: TextIO
) -> Iterator[ExerciseResult]:
    """``graded``, and meanwhile on a terminal a line that says how far it is."""
    shown = human.isatty() and sys.stderr.isatty()
    for count, result in enumerate(graded, 1):
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        yield result
        if shown and count < len(answers):
            ahead = answers[count].exercise.id
            print(f"  … {count} of {len(answers)} graded; now {ahead}", end="", file=sys.stderr, flush=True)


def is_learners(answer: Submission, root: Path) -> bool:
    """Whether an answer is the learner's own: it lies in practice/, or nothing of it is there."""
    return answer.path is None or real(answer.path).is_relative_to(real(root / "practice"))


def find_cuda(answers: list[Submission], options: argparse.Namespace) -> str:
    """The GPU for the kernels among the answers; a UsageError where there is none among them, or none may run there."""
    if options.require_isolation:
        raise UsageError("--cuda runs kernels outside of the jail, and --require-isolation forbids that")
    if not any(cuda.is_kernel(answer.exercise) for answer in answers):
        kernels = ", ".join(id for id, exercise in exercises.registry().items() if cuda.is_kernel(exercise))
        raise UsageError(f"--cuda: nothing that was selected is a kernel; there are {kernels}")
    return cuda.find_gpu()


def where_from(answers: list[Submission], options: argparse.Namespace, root: Path | None) -> str:
    """What was graded, in a few words."""
    if options.source:
        return options.source[0]
    if not options.folder and not all(is_learners(answer, root) for answer in answers):
        return ", ".join(options.targets)
    return show_path(options.folder or root / "practice")


def print_results(answers, graded, human, style) -> list[ExerciseResult]:
    """Print each exercise as soon as it is ready, under its chapter's heading."""
    width = max(len(answer.exercise.id) for answer in answers)
    results: list[ExerciseResult] = []
    told: set[str] = set()
    for result in graded:
        if not results or results[-1].chapter != result.chapter:
            print("", report.chapter_line(result.chapter, style), sep="\n", file=human)
        results.append(result)
        print(*report.result_lines(result, style, width, told), sep="\n", file=human, flush=True)
    return results


def print_ladder(graded, entries, human, style) -> list[ExerciseResult]:
    """Print a chapter as soon as all its exercises are ready."""
    results: list[ExerciseResult] = []
    print(file=human)
    for members in ladder.chapters_of(graded):
        results += members
        print(ladder.rung(members, entries, style), file=human, flush=True)
    print("", *ladder.key(results, entries, style), sep="\n", file=human)
    return results


def closing(results, isolation, seconds, style, options, entries=None) -> list[str]:
    """Failures, totals, and what to do next; a bar a chapter as well where no ladder of the learner's ``entries`` was
    shown."""
    lines = [*report.failures_text(results, style, options.verbose), ""]
    if entries is not None:
        lines.append(ladder.totals(results, seconds, style))
    else:
        for chapter in dict.fromkeys(result.chapter for result in results):
            members = [result for result in results if result.chapter == chapter]
            lines.append(f"Chapter {chapter}  {report.chapter_bar(members, style)}")
        lines.append(report.summary_text(results, seconds, style))
    lines.append(style.dim(f"isolation: {isolation}"))
    ahead = next(filter(ladder.is_ahead, results), None)
    if ahead:
        exercise = exercises.get(ahead.goes_on_with)
        what = "Start with" if ahead.verdict in ("todo", "missing") else "Go on with"
        lines.append(f"{what} {style.bold(exercise.id)} (about {exercise.minutes} min): {exercise.title}")
        if ahead.verdict == "todo" and ahead.where:
            lines.append(f"It waits in {ahead.where}. {ladder.SAVE_FIRST}Stuck? python judge.py hint {ahead.id}")
    elif entries is not None:
        lines += ladder.closing_page(results, entries, style)
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
        complain(error, FAILED)


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
    if Path(path).is_file() and not is_result(Path(path)):
        raise UsageError(f"--json: {path} is there and is no result of the judge: choose another name")


def is_result(path: Path) -> bool:
    """Whether a file is empty or a machine-readable result, and so may be written over."""
    try:
        data = path.read_bytes()
        held = json.loads(data) if data else {"exercises": []}
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(held, dict) and isinstance(held.get("exercises"), list)


def write_json(path: str, text: str) -> None:
    """The machine-readable result, to a file or to standard output."""
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StateError(f"the result could not be written to {path}: {error.strerror or error}") from None


def keep_progress(results: list[ExerciseResult], answers: list[Submission], root: Path) -> None:
    """Note how far the learner is, for the answers that are the learner's own; a folder that cannot be written is a
    remark, not a failure."""
    own = {answer.exercise.id: ladder.digests_of(answer) for answer in answers if is_learners(answer, root)}
    try:
        with changing(root) as progress:
            progress.record([result for result in results if result.id in own], own)
    except StateError as error:
        complain(error, FAULT)


@contextlib.contextmanager
def changing(root: Path) -> Iterator[Progress]:
    """The learner's progress, to be changed while no other judge does; one that had to be started anew is said."""
    with Progress.locked(root) as progress:
        say_remark(progress)
        yield progress


def entries_of(root: Path | None) -> dict[str, dict]:
    """The learner's progress by exercise, to be read; none where it cannot be."""
    if root is None:
        return {}
    try:
        progress = Progress(root)
    except StateError as error:
        complain(error, FAULT)
        return {}
    say_remark(progress)
    return progress.exercises


def say_remark(progress: Progress) -> None:
    """Say that progress had to be started anew, where it had to."""
    if progress.remark:
        complain(progress.remark, FAULT)


def need_root(root: Path | None) -> Path:
    """The course's folder, or a UsageError."""
    if root is None:
        raise UsageError("no course was found here: run judge.py from the course's folder")
    return root


def run_list(options: argparse.Namespace, root: Path | None) -> int:
    """Every exercise with its title, minutes, points and state."""
    style = report.Style(report.use_colour(sys.stdout))
    everything = exercises.registry()
    states = dict.fromkeys(everything, "untouched")
    if root:
        entries, answers = entries_of(root), ladder.answers_in(root / "practice")
        states = {id: ladder.state_of(ladder.kept_result(answer, entries), entries) for id, answer in answers.items()}
    width = max(map(len, everything))
    for chapter in dict.fromkeys(exercise.chapter for exercise in everything.values()):
        print(report.chapter_line(chapter, style))
        for exercise in (e for e in everything.values() if e.chapter == chapter):
            points, stars = plural(exercise.points, "point"), "*" * exercise.difficulty
            print(
                f"  {ladder.mark_of(states[exercise.id], style)} {exercise.id:<{width}}  {points:<8}"
                f"  {exercise.minutes:>3} min  {stars:<3}  {style.dim(exercise.title)}"
            )
    print("", style.dim(f"  {ladder.legend(list(states.values()))}"), sep="\n")
    return PASSED


def run_hint(options: argparse.Namespace, root: Path | None) -> int:
    """Show one hint: the next one not yet seen, or the one asked for; and remember it."""
    exercise = known(options.id)
    last = len(exercise.hints)
    level = options.level
    if level is None:
        level = min(entries_of(root).get(exercise.id, {}).get("hints", 0) + 1, last)
    if not 1 <= level <= last:
        raise UsageError(f"{exercise.id} has hints 1 to {last}")
    print(f"{exercise.id}, hint {level} of {last}\n\n{exercise.hints[level - 1]}")
    if level < last:
        print(f"\nMore: python judge.py hint {exercise.id} {level + 1}")
    try:
        if root:
            with changing(root) as progress:
                progress.saw_hint(exercise.id, level)
    except StateError as error:
        complain(f"this hint is not remembered: {error}", FAULT)
    return PASSED


def run_next(options: argparse.Namespace, root: Path | None) -> int:
    """Name the next exercise, and open it in JupyterLab where that is asked for."""
    from ledger.judge import onward

    return onward.show_next(need_root(root), entries_of(root), options.open)


def run_watch(options: argparse.Namespace, root: Path | None) -> int:
    """Grade on every save."""
    from ledger.judge.watch import watch

    return watch(need_root(root))


def run_solution(options: argparse.Namespace, root: Path | None) -> int:
    """Show a solution: after it was passed, or where the learner insists, which the ladder then marks."""
    exercise, root = known(options.id), need_root(root)
    from ledger.judge import onward

    passed = entries_of(root).get(exercise.id, {}).get("passed")
    if not passed and not options.reveal:
        says = f"hint {exercise.id} helps on; solution {exercise.id} --reveal shows it, and the ladder marks that"
        return complain(f"{exercise.id} has not passed yet: judge.py {says}", FAILED)
    shown = onward.solution_of(exercise, root)
    if not passed:
        with changing(root) as progress:
            progress.reveal(exercise.id)
    print(shown)
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


def run_class(options: argparse.Namespace, root: Path | None) -> int:
    """A whole class."""
    from ledger.judge.classroom.run import run_class

    if options.seed is not None and options.seed < 0:
        raise UsageError("--seed wants a number from 0 up")
    everything = exercises.registry()
    chosen = {exercise.id for target in options.targets for exercise in named(target, everything)}
    return run_class(options, [id for id in everything if id in chosen], root)


def run_doctor(options: argparse.Namespace, root: Path | None) -> int:
    """What this machine can run, and which layers of isolation hold."""
    from ledger.judge.doctor import doctor

    return doctor(root, sys.stdout)


def run_check(options: argparse.Namespace, root: Path | None) -> int:
    """The author's gate."""
    from ledger.judge.gate import gate

    return gate([known(id).id for id in options.ids], need_root(root), sys.stdout)
