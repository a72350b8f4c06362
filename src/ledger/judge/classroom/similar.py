"""Answers that resemble each other more than chance has it, for a person to look at. Nothing here judges.

Every answer is brought to a form without names, comments, docstrings and layout, and cut into runs of a few tokens.
What many share is how the exercise is solved; two answers that share many runs which few others have are listed. The
idea of comparing rare fingerprints alone is that of MOSS (Schleimer, Wilkerson and Aiken, SIGMOD 2003).
"""

import ast
import io
import keyword
import tokenize
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from itertools import combinations
from typing import NamedTuple

from ledger.judge.classroom.store import Store
from ledger.judge.version import answer_digest

#: Characters of an answer that is compared, and pairs that are listed.
LONGEST, MOST = 20_000, 100
#: Tokens in a run, the students who may share a run that counts (or this part of the class), the runs that two answers
#: must share, and the part of the smaller one's runs that they must be.
RUN, FEW, SHARE, LEAST, ALIKE = 6, 3, 0.05, 12, 0.6

_LAYOUT = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER}


class Pair(NamedTuple):
    """Two students, and by exercise the share of the rarer runs of one answer that the other has too."""

    first: str
    second: str
    exercises: dict[str, float]


def similar(answers: Iterable[tuple[str, str, str]], store: Store | None = None) -> list[Pair]:
    """The pairs among ``answers``, each a student, an exercise and the answer's text; those with most come first, and
    the rest is not listed. Where ``store`` holds an exercise's pairs of the same answers, it is not searched again."""
    by_exercise: dict[str, dict[str, str]] = defaultdict(dict)
    for student, exercise, source in answers:
        if len(source) <= LONGEST:
            by_exercise[exercise][student] = source
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for exercise, sources in by_exercise.items():
        digest = answer_digest(*(text for student in sorted(sources) for text in (student, sources[student])))
        pairs = store.alike(exercise, digest) if store else None
        if pairs is None:
            pairs = list(alike({student: runs_of(source) for student, source in sources.items()}))
            if store:
                store.keep_alike(exercise, digest, pairs)
        for first, second, share in pairs:
            found[first, second][exercise] = share
    pairs = [Pair(*pair, shares) for pair, shares in found.items()]
    pairs.sort(key=lambda pair: (-len(pair.exercises), -sum(pair.exercises.values()), pair[:2]))
    return pairs[:MOST]


def alike(runs: dict[str, set]) -> Iterable[tuple[str, str, float]]:
    """The pairs of students whose answers to one exercise share most of their rare runs, and the share."""
    holders = defaultdict(list)
    for student in sorted(runs):
        for run in runs[student]:
            holders[run].append(student)
    few = max(FEW, SHARE * len(runs))
    rare = {run: students for run, students in holders.items() if len(students) <= few}
    shared: dict[tuple[str, str], int] = defaultdict(int)
    own: dict[str, int] = defaultdict(int)
    for students in rare.values():
        for student in students:
            own[student] += 1
        for pair in combinations(students, 2):
            shared[pair] += 1
    for (first, second), count in shared.items():
        share = count / min(own[first], own[second])
        if count >= LEAST and share >= ALIKE:
            yield first, second, round(share, 2)


def runs_of(source: str) -> set[tuple[str, ...]]:
    """Every run of tokens of an answer; in each, names are replaced by the order in which they come up there, so that
    neither another name nor a line put in above hides what follows. Attributes keep theirs."""
    tokens = plain_tokens(source)
    free = [
        kind == tokenize.NAME and not keyword.iskeyword(text) and (at == 0 or tokens[at - 1][1] != ".")
        for at, (kind, text) in enumerate(tokens)
    ]
    texts = ["0" if kind == tokenize.NUMBER else text for kind, text in tokens]
    runs = set()
    for start in range(len(tokens) - RUN + 1):
        names: dict[str, str] = {}
        places = range(start, start + RUN)
        runs.add(tuple(names.setdefault(texts[at], f"${len(names)}") if free[at] else texts[at] for at in places))
    return runs


def plain_tokens(source: str) -> list[tuple[int, str]]:
    """The tokens of an answer without comments, layout and docstrings; as far as they go where it is no Python."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.Pass()]
        source = ast.unparse(tree)
    tokens = []
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in _LAYOUT:
                tokens.append((token.type, token.string))
    return tokens
