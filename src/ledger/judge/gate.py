"""The author's gate: every exercise is held to the same rules before a learner meets it.

Each reference passes, also on ten fresh seeds. Each stub is ``todo``. Each mutant is rejected for the reason that it
names. Hints are three, not empty, and hold no statement of the solution. Ids in masters and registry agree, and so do
signatures. No statement of a solution of any substance appears in ``practice/``.
"""

import ast
import inspect
import re
import textwrap
from pathlib import Path
from typing import TextIO

from ledger import exercises
from ledger.exercises import Exercise, Mutant
from ledger.judge.collect import Notebook, Submission, code_cell, collect
from ledger.judge.grade import fresh_seed
from ledger.judge.outcome import Cell
from ledger.judge.run import Runner
from ledger.judge.session import grade_one
from ledger.judge.verdicts import ExerciseResult

FRESH_SEEDS = 10
_REGION = re.compile(r"^[ \t]*### BEGIN SOLUTION\n(.*?)^[ \t]*### END SOLUTION", re.DOTALL | re.MULTILINE)
_SUBSTANCE = 12


def gate(ids: list[str], root: Path, out: TextIO) -> int:
    """Hold the exercises ``ids`` (all, where the list is empty) to the rules; 0 where none is broken, else 1."""
    from ledger.build import fresh_practice, fresh_solutions, master_ids

    everything = exercises.registry()
    faults = [] if ids else id_faults(list(everything), master_ids(root))
    solutions, practice = notebooks_of(fresh_solutions(root)), notebooks_of(fresh_practice(root))
    with Runner() as runner:
        for id, exercise in everything.items():
            if ids and id not in ids:
                continue
            found = [
                *reference_faults(exercise, solutions, runner),
                *stub_faults(exercise, practice, runner),
                *mutant_faults(exercise, runner),
                *text_faults(exercise, solutions, practice),
            ]
            print(
                f"  {'✗' if found else '✓'} {id}: {len(exercise.cases)} cases, {len(exercise.mutants)} mutants",
                file=out,
            )
            faults += [f"{id}: {fault}" for fault in found]
    for fault in faults:
        print(f"fault: {fault}", file=out)
    print(f"{len(faults)} faults" if faults else "every exercise keeps the rules", file=out)
    return 1 if faults else 0


def notebooks_of(built: dict[str, dict]) -> list[Notebook]:
    """Freshly built notebooks as the collector reads them."""
    return [
        Notebook(Path(path), path, tuple(filter(None, (code_cell(i, c) for i, c in enumerate(notebook["cells"], 1)))))
        for path, notebook in built.items()
    ]


def id_faults(registered: list[str], in_masters: list[str]) -> list[str]:
    """Ids that only one of the registry and the masters knows, or in another order."""
    faults = [f"{id} is registered but has no cell in course/practice" for id in registered if id not in in_masters]
    faults += [f"{id} stands in course/practice but is not registered" for id in in_masters if id not in registered]
    if not faults and registered != in_masters:
        faults.append("the masters hold the exercises in another order than the registry")
    return faults


def reference_faults(exercise: Exercise, solutions: list[Notebook], runner: Runner) -> list[str]:
    """The reference must pass, on a fixed seed and on fresh ones."""
    reference = collect(exercise, solutions, [])
    for seed in [0, *(fresh_seed() for _ in range(FRESH_SEEDS))]:
        result = grade_one(reference, runner, seed)
        if result.verdict != "passed":
            return [f"the reference is {result.verdict} with seed {seed}: {result.message}"]
    return []


def stub_faults(exercise: Exercise, practice: list[Notebook], runner: Runner) -> list[str]:
    """The stub must be ``todo`` and name its exercise."""
    stub = collect(exercise, practice, [])
    result = grade_one(stub, runner, 0)
    if result.verdict != "todo" or result.points:
        return [f"the stub is {result.verdict} with {result.points} points, not todo"]
    return [] if f'NotImplementedError("{exercise.id}:' in stub.cells[-1].source else ["the stub does not name it"]


def mutant_faults(exercise: Exercise, runner: Runner) -> list[str]:
    """Each mutant must be rejected with its verdict and for its reason; each mistake needs one that makes it."""
    faults = [] if len(exercise.mutants) >= 2 else ["has fewer than two mutants"]
    because = set()
    for mutant in exercise.mutants:
        result = grade_one(submission_of(exercise, mutant), runner, fresh_seed())
        because.add(mutant.because)
        if result.verdict != mutant.verdict or not names_reason(result, mutant.because):
            name = mutant.answer.__name__
            faults.append(f"the mutant {name} is {result.verdict}: {result.message!r}, not for {mutant.because!r}")
    unmade = [mistake.name for mistake in exercise.mistakes if mistake.name not in because]
    return faults + [f"no mutant makes the mistake {name!r}" for name in unmade]


def names_reason(result: ExerciseResult, because: str) -> bool:
    """Whether some failed case gives the reason."""
    return any(because in case.message for case in result.cases if case.verdict != "passed")


def submission_of(exercise: Exercise, mutant: Mutant) -> Submission:
    """A mutant as a learner would hand it in: its source under the exercise's name."""
    name = mutant.answer.__name__
    source = re.sub(
        rf"\bdef {name}\b", f"def {exercise.id}", textwrap.dedent(inspect.getsource(mutant.answer)), count=1
    )
    needed = {"torch": "import torch\n", "triton": "import triton\nimport triton.language as tl\n"}
    above = "import numpy as np\n" + "".join(needed[name] for name in exercise.needs)
    cells = (Cell("above", above), Cell(name, source))
    return Submission(exercise, cells, name)


def text_faults(exercise: Exercise, solutions: list[Notebook], practice: list[Notebook]) -> list[str]:
    """Hints, the signature, and statements of the solution where a learner can read them."""
    answer = collect(exercise, solutions, []).cells[-1].source
    statements = [line for region in _REGION.findall(answer) for line in substance(region)]
    faults = [] if statements else ["the solution has no statement between its BEGIN and END"]
    if len(exercise.hints) != 3 or not all(hint.strip() for hint in exercise.hints):
        faults.append("has not three hints with text")
    faults += [f"a hint holds the solution: {s}" for s in statements if any(s in squeeze(h) for h in exercise.hints)]
    shown = "\n".join(squeeze(cell.source) for notebook in practice for cell in notebook.cells)
    faults += [f"practice/ holds a statement of the solution: {s}" for s in statements if s in shown]
    function = next(
        (n for n in ast.parse(answer).body if isinstance(n, ast.FunctionDef) and n.name == exercise.id), None
    )
    parameters = [a.arg for a in function.args.args] if function else []
    named = list(exercise.inputs(exercise.cases[0], 0))
    if parameters != named and not exercise.launcher:
        faults.append(f"the master's parameters are {parameters}, the registry's {named}")
    return faults


def substance(region: str) -> list[str]:
    """The statements of a solution that would give it away, without white space and comments."""
    lines = (squeeze(line.split("  #")[0]) for line in region.splitlines() if not line.strip().startswith("#"))
    return [line for line in lines if len(line) > _SUBSTANCE]


def squeeze(text: str) -> str:
    """Text without white space, but for line ends."""
    return re.sub(r"[ \t]+", "", text)
