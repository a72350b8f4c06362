"""From outcomes to verdicts: the one place that decides, for the command line, a notebook and a class alike."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

from ledger.count import Counts, find_array, was_counted
from ledger.exercises import Budget, Case, Exercise, ids
from ledger.judge.compare import Difference, difference, show
from ledger.judge.mistakes import Wrong, recognise_each
from ledger.judge.outcome import Call, Outcome
from ledger.judge.verdicts import CaseResult, ExerciseResult
from ledger.models import Model

#: Bytes that Python itself may need beside the arrays of an answer whose memory is judged.
PEAK_SLACK = 64 * 1024

#: What a case line may say of a model.
MODEL_SIZES = tuple(field.name for field in fields(Model) if field.name not in ("name", "source"))

_STOPPED = {
    "timeout": "did not finish in time: is there a loop that never ends, or one over every element?",
    "memory": "asked for more memory than the judge allows",
    "output": "printed far more than the judge keeps: take the print out of the loop",
    "crash": "ended the Python process",
    "judge_error": "the judge itself failed; this is not held against you",
}


def fresh_seed() -> int:
    """A seed for one run, short enough to type."""
    return secrets.randbelow(900_000) + 100_000


def calls_of(exercise: Exercise, seed: int) -> list[Call]:
    """What to run: every case's inputs. The one case that counts is also counted and, under a budget, measured."""
    kept = made_for(seed)
    if exercise not in kept:
        counted = counted_case(exercise)
        kept[exercise] = [
            Call(
                read_only(exercise.inputs(case, seed)),
                case.layout,
                case is counted,
                case is counted and exercise.budget is not None,
            )
            for case in exercise.cases
        ]
    return kept[exercise]


def right_value(exercise: Exercise, case: Case, seed: int, call: Call) -> Any:
    """What the oracle says of the inputs of ``case`` on ``seed``, which ``call`` holds."""
    kept, key = made_for(seed), (exercise, case.name)
    if key not in kept:
        kept[key] = read_only(exercise.oracle(*call.args.values()))
    return kept[key]


@lru_cache(maxsize=1)
def made_for(seed: int) -> dict:
    """The inputs and right values made so far on ``seed``, until another seed is used: in a class every answer to an
    exercise meets the same ones."""
    return {}


def read_only(value: Any) -> Any:
    """``value``, in whose arrays nobody can write any more: whoever comes next meets what the first one met."""
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            read_only(part)
    return value


def counted_case(exercise: Exercise) -> Case | None:
    """The case whose cost is counted: the budget's, else the one with most multiply-adds by formula."""
    if exercise.budget:
        return exercise.case(exercise.budget.case)
    if exercise.least_macs:
        return max(exercise.cases, key=lambda case: exercise.least_macs(**case.dims) if case.dims else 0)
    return None


def grade_case(exercise: Exercise, case: Case, seed: int, call: Call, outcome: Outcome) -> CaseResult | Wrong:
    """The verdict of one case with the message that a learner reads; a wrong value is kept, to be seen with others."""
    rows = head(exercise, case, seed, call)
    if case.raises is not None and outcome.kind in ("returned", "raised") and not unwritten(exercise, outcome):
        return refused(case, outcome, rows)
    if outcome.kind != "returned":
        return stopped(exercise, case, outcome, rows)
    args = tuple(call.args.values())
    want = right_value(exercise, case, seed, call)
    if outcome.subclass:
        message = f"the result is a {outcome.subclass}; return a plain NumPy array"
        return CaseResult(case.name, "wrong", message, (*rows, ("found", message)))
    if difference(outcome.value, want, absolute=exercise.absolute):
        return Wrong(args, outcome.value, want)
    inputs = touched(exercise, outcome)
    if inputs:
        return CaseResult(case.name, "wrong", inputs[0][1], (*rows, *inputs))
    if case is counted_case(exercise):
        found = over_budget(exercise, case, outcome, want)
        if found:
            rows += [("pattern", found.message), *found.rows]
            return CaseResult(case.name, "wrong", found.message, tuple(rows))
    return CaseResult(case.name, "passed")


def refused(case: Case, outcome: Outcome, rows: list) -> CaseResult:
    """The verdict of a case whose inputs the statement wants refused."""
    wanted = case.raises
    if outcome.kind == "raised" and outcome.error == wanted.error:
        missing = [word for word in wanted.names if word not in outcome.message]
        if not missing:
            return CaseResult(case.name, "passed")
        held = "this word" if len(missing) == 1 else "each of these words"
        message = f"the {wanted.error} does not name {', '.join(missing)}: its message must hold {held}"
    elif outcome.kind == "raised":
        message = f"it raised {outcome.error}; these inputs want a {wanted.error}"
    else:
        message = f"it returned a value; these inputs want a {wanted.error}"
    return CaseResult(case.name, "wrong", message, (*rows, ("happened", message)))


def head(exercise: Exercise, case: Case, seed: int, call: Call) -> list[tuple[str, str]]:
    """What was checked, and on which inputs."""
    return [("checked", exercise.checks), ("case", describe(exercise, case, call.args, seed))]


def wrong_case(exercise: Exercise, rows: list, case: Case, outcome: Outcome, wrong: Wrong, mistake) -> CaseResult:
    """A wrong value: where it parts from the right one, and the known mistake if there is one."""
    found = difference(wrong.got, wrong.want, names=exercise.returns, fixed=exercise.fixed_dtypes)
    pattern = [("pattern", f"{mistake.name}: {mistake.says}")] if mistake else []
    rows = [*rows, *(found.rows or (("found", found.message),)), *pattern, *touched(exercise, outcome)]
    return CaseResult(case.name, "wrong", pattern[0][1] if pattern else found.message, tuple(rows))


def describe(exercise: Exercise, case: Case, inputs: dict[str, Any], seed: int) -> str:
    """The case by name, its sizes and what is special about its inputs, and the seed that makes it again."""
    asked = model_sizes(exercise) if any(isinstance(value, Model) for value in inputs.values()) else ()
    told = dict(case.dims) | {name: value for name, value in inputs.items() if name not in case.dims}
    texts = {name: short(value, asked) for name, value in told.items()}
    sizes = ", ".join(f"{name}={text}" for name, text in texts.items() if text)
    special = [case.dtype] * (case.dtype != "float64") + ["non-contiguous, read-only"] * (case.layout == "strided")
    return "; ".join([f'"{case.name}"', *([sizes] if sizes else []), *special, f"seed {seed}"])


def model_sizes(exercise: Exercise) -> tuple[str, ...]:
    """The sizes of a model that count in ``exercise``: those that its known wrong answers read."""
    codes = [mutant.answer.__code__ for mutant in exercise.mutants if hasattr(mutant.answer, "__code__")]
    read = set()
    for code in codes:  # functions within functions are found on the way
        read.update(code.co_names)
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]
    return tuple(name for name in MODEL_SIZES if name in read) or MODEL_SIZES


def short(value: Any, sizes: Sequence[str] = MODEL_SIZES) -> str:
    """A value of one word, a few whole numbers, or a model by ``sizes``; nothing for an array."""
    if isinstance(value, Model):
        return f"Model({', '.join(f'{name}={getattr(value, name)}' for name in sizes)})"
    few = isinstance(value, tuple) and len(value) <= 8 and all(isinstance(part, int) for part in value)
    return f"{value}" if few or value is None or isinstance(value, bool | int | float | str) else ""


def stopped(exercise: Exercise, case: Case, outcome: Outcome, rows: list) -> CaseResult:
    """A case whose call did not return."""
    if outcome.kind == "missing":
        message = f"no function called {exercise.id} was found"
        return CaseResult(case.name, "missing", message, ())
    stub = unwritten(exercise, outcome)
    if stub == exercise.id:
        return CaseResult(case.name, "todo", "not written yet: the line that raises NotImplementedError is still there")
    if stub:
        message, verdict = f"it calls {stub}, which is not written yet: begin there", "error"
    elif outcome.kind == "raised":
        where = " while its cell ran" if outcome.stage == "load" else ""
        message = f"{outcome.error}{': ' * bool(outcome.message)}{first_line(outcome.message)}{where}"
        verdict = "error"
    else:
        reason = _STOPPED[outcome.kind]
        detail = f" ({outcome.detail})" if outcome.detail else ""
        message, verdict = f"{reason}{detail}", outcome.kind
    own = dict.fromkeys(f"{line.text}   [{line.file}, line {line.number}]" for line in outcome.lines)
    lines = [("your line", text) for text in list(own)[-2:]]
    if "read-only" in outcome.message:
        lines.append(("inputs", "your function may not change its inputs: work on a copy, or make a new array"))
    if outcome.stage == "load":
        rows = rows[:1]
    return CaseResult(case.name, verdict, message, (*rows, ("happened", message), *lines), calls=stub)


def unwritten(exercise: Exercise, outcome: Outcome) -> str:
    """The exercise whose stub ended a call: another one that the answer calls, where the error names it as every stub
    does, else ``exercise`` itself. Empty where it was no stub."""
    if outcome.kind != "raised" or outcome.error != "NotImplementedError":
        return ""
    named = outcome.message.partition(":")[0]
    return named if named in ids() else exercise.id


def first_line(text: str) -> str:
    """The first line of a message, at most 200 characters."""
    return text.strip().splitlines()[0][:200] if text.strip() else ""


def touched(exercise: Exercise, outcome: Outcome) -> list[tuple[str, str]]:
    """Inputs that were changed, or whose memory the result shares where it must not."""
    rows = []
    if outcome.changed:
        names = ", ".join(outcome.changed)
        rows.append(("inputs", f"your function changed {names} in place: work on a copy, or make a new array"))
    elif outcome.shares and not exercise.may_share:
        names = ", ".join(outcome.shares)
        rows.append(("inputs", f"the result shares memory with {names}: return a new array"))
    return rows


def over_budget(exercise: Exercise, case: Case, outcome: Outcome, want: Any) -> Difference | None:
    """How the counted call broke the budget, or None. Code that left the counted arrays is judged on its memory."""
    counts, budget = counts_of(outcome), exercise.budget
    whole = counts is not None and not late(outcome)
    if whole and difference(outcome.counted_value, want, absolute=exercise.absolute):
        return Difference("called twice with the same inputs, your function gave two different results")
    if budget is None:
        return None
    allowed = ("budget", budget.text)
    if counts is not None:
        found = overspent(budget, case, counts)
        if found:
            return Difference(found.message, (allowed, *found.rows))
    elif outcome.uncounted != "timeout":
        message = (
            "not counted: your function works on plain arrays, but it failed on the same arrays while they counted"
        )
        return Difference(message, (allowed, ("happened", outcome.uncounted or "its counts could not be read")))
    if whole and was_counted(counts, exercise.least_macs(**case.dims)):
        return None
    why = "counting your function took too long" if late(outcome) else "your code left the arrays that the judge counts"
    limit = 8 * budget.peak_values(**case.dims) + PEAK_SLACK
    if outcome.peak is None and outcome.uncounted == "timeout":
        return None  # in a browser there is no process beside this one that could measure for longer
    if outcome.peak is None:
        message = f"{why}, and its memory could not be measured either"
        return Difference(message, (allowed, ("happened", outcome.uncounted)))
    if outcome.peak > limit:
        message = f"{why}, and it held {outcome.peak:,} bytes at its height"
        return Difference(message, (allowed, ("memory", f"{outcome.peak:,} bytes; at most {limit:,} are allowed")))
    return None


def late(outcome: Outcome) -> bool:
    """Whether counting ran out of time: its counts, if there are any, are of a part of the call."""
    return outcome.counted_value is None and "timeout" in outcome.uncounted


def counts_of(outcome: Outcome) -> Counts | None:
    """The counts of an outcome; None where the counted call did not end well or sent no record of counts."""
    try:
        return None if outcome.counts is None else Counts.from_dict(outcome.counts)
    except ValueError:
        return None


def overspent(budget: Budget, case: Case, counts: Counts) -> Difference | None:
    """What counted code made or spent beyond the budget. A count is never too high, so this holds for code that was
    counted in part as well."""
    most = budget.macs(**case.dims)
    limit = f"{most:,} multiply-adds" + (f", {budget.products} products" if budget.products else "")
    spent = ("counted", f"{counts.macs:,} multiply-adds in {plural(counts.products, 'product')}; at most {limit}")
    for array in budget.forbidden:
        made = find_array(counts, tuple(case.dims[name] for name in array.dims))
        if made:
            shape, op = made
            return Difference(f"{array.name}: {array.says}", (("array", f"{op} made one of shape {shape}"), spent))
    if budget.products is not None and counts.products > budget.products:
        return Difference(f"too many products: {budget.says_products}", (spent,))
    largest = budget.largest(**case.dims)
    if counts.largest > largest:
        row = (
            "array",
            f"one of shape {counts.largest_shape} was made; at most {plural(largest, 'element')} are needed",
        )
        return Difference(f"too large an array: {budget.says}", (row, spent))
    if counts.macs > most:
        return Difference(f"too many multiply-adds: {budget.says}", (spent,))
    return None


def plural(count: int, noun: str) -> str:
    """A count and its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def grade(exercise: Exercise, seed: int, calls: list[Call], outcomes: list[Outcome], seconds: float) -> ExerciseResult:
    """The exercise's verdict, points and counts from one outcome a call, made from ``calls_of(exercise, seed)``."""
    met = list(zip(exercise.cases, calls, outcomes, strict=True))
    cases = [grade_case(exercise, case, seed, call, outcome) for case, call, outcome in met]
    with np.errstate(all="ignore"):
        rights = [
            Wrong(tuple(call.args.values()), outcome.value, outcome.value)
            for (case, call, outcome), result in zip(met, cases, strict=True)
            if isinstance(result, CaseResult) and result.verdict == "passed" and case.raises is None
        ]
        wrongs = [case for case in cases if isinstance(case, Wrong)]
        mistakes = iter(recognise_each(exercise, wrongs, rights))
    for i, (case, call, outcome) in enumerate(met):
        if isinstance(cases[i], Wrong):
            rows = head(exercise, case, seed, call)
            cases[i] = wrong_case(exercise, rows, case, outcome, cases[i], next(mistakes))
    left_out = sum(case.verdict == "todo" for case in cases)
    if left_out < len(cases):
        cases = [unfinished(case, left_out) if case.verdict == "todo" else case for case in cases]
    passed = sum(case.verdict == "passed" for case in cases)
    failure = next((case for case in cases if case.verdict != "passed"), None)
    points = exercise.points if passed == len(cases) else round(exercise.points * passed / len(cases), 3)
    result = ExerciseResult(
        exercise.id,
        exercise.chapter,
        exercise.title,
        failure.verdict if failure else "passed",
        points,
        exercise.points,
        seconds,
        failure.message if failure else "",
        cases,
    )
    if not failure:
        result.counts = ledger_line(exercise, outcomes)
    return result


def unfinished(case: CaseResult, left_out: int) -> CaseResult:
    """A case in which an answer that is written raises the stub's error all the same, as in ``left_out`` cases."""
    where = "in this case only" if left_out == 1 else f"in {left_out} cases"
    message = f"NotImplementedError was raised {where}: which inputs does your function still leave out?"
    return CaseResult(case.name, "error", message, (("case", case.name), ("happened", message)))


def ledger_line(exercise: Exercise, outcomes: list[Outcome]) -> dict:
    """What the formula predicts beside what was counted, for an answer that passed."""
    case = counted_case(exercise)
    if case is None:
        return {}
    outcome = outcomes[exercise.cases.index(case)]
    predicted = exercise.least_macs(**case.dims)
    line = {"case": case.name, "predicted_macs": int(predicted)}
    counts = counts_of(outcome)
    if counts is None or late(outcome):
        return {**line, "counted": False, "late": late(outcome)}
    return {
        **line,
        "counted": bool(was_counted(counts, predicted)),
        "macs": int(counts.macs),
        "products": int(counts.products),
        "bytes_read": int(counts.bytes_read),
        "bytes_written": int(counts.bytes_written),
        "largest": int(counts.largest),
    }


def say_counts(counts: dict) -> str:
    """The ledger line in words."""
    if not counts:
        return ""
    predicted = counts["predicted_macs"]
    if not counts["counted"]:
        why = "counting took too long" if counts.get("late") else "the code left the counted arrays"
        return f"formula {show(predicted)} multiply-adds; not counted: {why}"
    match = "as the formula says" if counts["macs"] == predicted else f"the formula says {show(predicted)}"
    moved = counts["bytes_read"] + counts["bytes_written"]
    return f"counted {show(counts['macs'])} multiply-adds, {match}; {show(moved)} bytes moved"


def explain(result: ExerciseResult, in_notebook: bool = False) -> tuple[tuple[str, str], ...]:
    """The rows of a failed exercise, with the one next command."""
    failure = result.failure
    if failure is None or failure.verdict in ("todo", "missing"):
        return ()
    if failure.verdict == "judge_error":
        command = "python judge.py doctor"
    else:
        id = result.goes_on_with
        command = f'hint("{id}")' if in_notebook else f"python judge.py hint {id}"
    return (*failure.rows, ("next", command))
