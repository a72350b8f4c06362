"""Change one token of a reference at a time: whatever still passes is a hole in the cases, or the same answer.

Operators, comparisons, constants and axes, and functions that have a counterpart are changed, each in every place. The
cases must reject what comes out. The few changes that leave an answer right are explained one by one in
``tests/equivalent_changes.json``.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ledger.exercises import Exercise
from ledger.judge.collect import Submission
from ledger.judge.outcome import Cell
from ledger.judge.run import Runner
from ledger.judge.session import grade_all

#: How each operator is written, and what it becomes.
_OPERATORS = {
    ast.Add: ("+", ast.Sub),
    ast.Sub: ("-", ast.Add),
    ast.Mult: ("*", ast.Div),
    ast.Div: ("/", ast.Mult),
    ast.FloorDiv: ("//", ast.Mult),
    ast.Mod: ("%", ast.Mult),
    ast.Pow: ("**", ast.Mult),
    ast.MatMult: ("@", ast.Mult),
    ast.LShift: ("<<", ast.RShift),
    ast.RShift: (">>", ast.LShift),
    ast.BitAnd: ("&", ast.BitOr),
    ast.BitOr: ("|", ast.BitAnd),
    ast.BitXor: ("^", ast.BitOr),
    ast.Lt: ("<", ast.LtE),
    ast.LtE: ("<=", ast.Lt),
    ast.Gt: (">", ast.GtE),
    ast.GtE: (">=", ast.Gt),
    ast.Eq: ("==", ast.NotEq),
    ast.NotEq: ("!=", ast.Eq),
    ast.Is: ("is", ast.IsNot),
    ast.IsNot: ("is not", ast.Is),
    ast.In: ("in", ast.NotIn),
    ast.NotIn: ("not in", ast.In),
    ast.And: ("and", ast.Or),
    ast.Or: ("or", ast.And),
}
#: Functions that stand for each other.
_PAIRS = (
    *(("max", "min"), ("maximum", "minimum"), ("ceil", "floor"), ("zeros", "ones"), ("zeros_like", "ones_like")),
    *(("argmax", "argmin"), ("sum", "mean"), ("cos", "sin"), ("exp", "exp2"), ("log", "log2"), ("any", "all")),
)
_NAMES = {name: other for pair in _PAIRS for name, other in (pair, pair[::-1])}


@dataclass(frozen=True)
class Mutation:
    """A reference with one token changed: which one and where, in words, and the whole text."""

    id: str
    says: str
    source: str


def mutations(id: str, source: str) -> Iterator[Mutation]:
    """Every change of one token of ``source``, an answer to the exercise ``id``, in the order of its tree."""
    tree = ast.parse(ast.unparse(ast.parse(source)))  # without comments, so that lines are those of the changed text
    lines = ast.unparse(tree).splitlines()
    for node in ast.walk(tree):
        for field, value, says in changes(node):
            before = getattr(node, field)
            setattr(node, field, value)
            yield Mutation(id, f"{says} in: {lines[node.lineno - 1].strip()}", ast.unparse(tree))
            setattr(node, field, before)


def changes(node: ast.AST) -> Iterator[tuple[str, Any, str]]:
    """What can be changed about one node: its field, the other value, and the change in words."""
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
        sign, other = _OPERATORS[type(node.op)]
        yield "op", other(), f"{sign} to {_OPERATORS[other][0]}"
    elif isinstance(node, ast.Compare):
        for at, op in enumerate(node.ops):
            sign, other = _OPERATORS[type(op)]
            yield "ops", [*node.ops[:at], other(), *node.ops[at + 1 :]], f"{sign} to {_OPERATORS[other][0]}"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "op", ast.UAdd(), "a minus to a plus"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        other = changed_constant(node.value)
        yield "value", other, f"{node.value} to {other}"
    elif isinstance(node, ast.Attribute) and node.attr in _NAMES:
        yield "attr", _NAMES[node.attr], f"{node.attr} to {_NAMES[node.attr]}"
    elif isinstance(node, ast.Name) and node.id in _NAMES and isinstance(node.ctx, ast.Load):
        yield "id", _NAMES[node.id], f"{node.id} to {_NAMES[node.id]}"


def changed_constant(value: bool | int | float) -> bool | int | float:
    """Another value: the opposite, one more, or twice as much."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else 2 * value or 1.0


def survivors(exercise: Exercise, reference: Submission, runner: Runner, seed: int) -> tuple[int, list[Mutation]]:
    """How many changes of an exercise's reference there are, and those that pass all the same."""
    *above, answer = reference.cells
    made = list(mutations(exercise.id, answer.source))
    changed = [Submission(exercise, (*above, Cell("changed", m.source)), "changed") for m in made]
    results = grade_all(changed, runner, seed)
    return len(made), [m for m, result in zip(made, results, strict=True) if result.verdict == "passed"]
