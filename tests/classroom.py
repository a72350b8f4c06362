"""A class of students to whom everything has happened that happens to notebooks: what each hands in, and the verdicts
that it deserves. Tests grade it with ``judge.py class`` and with nbgrader."""

import copy
import json
import re
from pathlib import Path

from ledger.build import fresh_practice, fresh_solutions

IDS = ("up_project_keys", "absorb_query", "scores_absorbed", "key_path_macs")
KEYS = "ch01_keys/keys.ipynb"
SOLVED, UNTOUCHED = ("passed",) * 4, ("todo",) * 4

#: The verdicts of each student, in the order of IDS.
GOLDEN = {
    "solved": SOLVED,
    "untouched": UNTOUCHED,
    "twice_the_value": ("passed", "wrong", "passed", "passed"),
    "syntax": ("passed", "error", "passed", "passed"),
    "loop": ("passed", "timeout", "passed", "passed"),
    "exits": ("passed", "crash", "passed", "passed"),
    "loop_above": SOLVED,
    "exits_above": SOLVED,
    "segfault": ("passed", "crash", "passed", "passed"),
    "floods": ("passed", "output", "passed", "passed"),
    "prints_without_end": ("passed", "output", "passed", "passed"),
    "hoards": ("passed", "memory", "passed", "passed"),
    "asks_for_input": ("passed", "error", "passed", "passed"),
    "prints_only": ("passed", "wrong", "passed", "passed"),
    "changes_inputs": ("passed", "wrong", "passed", "passed"),
    "reads_solutions": ("passed", "error", "passed", "passed"),
    "patched_numpy": SOLVED,
    "patched_and_wrong": ("passed", "wrong", "passed", "passed"),
    "names_of_the_course": SOLVED,
    "no_checks": SOLVED,
    "two_checks": SOLVED,
    "edited_checks": ("passed", "wrong", "passed", "passed"),
    "reordered": SOLVED,
    "two_answers": SOLVED,
    "no_metadata": SOLVED,
    "no_answer": ("passed", "missing", "passed", "passed"),
    "calls_a_stub": ("todo", "error", "passed", "passed"),
    "renamed": SOLVED,
    "byte_order_mark": SOLVED,
    "carriage_returns": SOLVED,
    "old_outputs": SOLVED,
    "not_json": ("error",) * 4,
    "empty_file": ("error",) * 4,
    "latin_1": ("error",) * 4,
    "cut_off": ("error",) * 4,
    "nul_bytes": ("passed", "error", "passed", "passed"),
}


def points_of(verdicts: tuple[str, ...]) -> list[int | None]:
    """What passed and what was not written; None where the share of cases decides."""
    most = (1, 2, 3, 2)
    return [m if v == "passed" else 0 if v != "wrong" else None for m, v in zip(most, verdicts, strict=True)]


def notebooks(root: Path) -> tuple[dict, dict]:
    """Chapter 1 as it is handed out, and with every answer filled in."""
    released = copy.deepcopy(fresh_practice(root)[f"practice/{KEYS}"])
    solutions = fresh_solutions(root)[f"solutions/{KEYS}"]
    answers = {
        cell["id"]: re.sub(r"### (BEGIN|END) SOLUTION", "# mine", cell_text(cell)) for cell in solutions["cells"]
    }
    solved = copy.deepcopy(released)
    for cell in solved["cells"]:
        if cell["id"] in IDS:
            cell["source"] = answers[cell["id"]]
    return released, solved


def cell_text(cell: dict) -> str:
    return "".join(cell["source"])


def hand_in(root: Path, folder: Path, names=GOLDEN) -> None:
    """Write what each of ``names`` hands in, in nbgrader's layout."""
    released, solved = notebooks(root)
    for name in names:
        path = folder / name / ("ch01_keys/keys (1).ipynb" if name == "renamed" else KEYS)
        path.parent.mkdir(parents=True)
        path.write_bytes(handed_in(name, released, solved))


def handed_in(name: str, released: dict, solved: dict) -> bytes:
    """The bytes of one student's notebook."""
    notebook = copy.deepcopy(released if name == "untouched" else solved)
    if name in CELLS:
        CELLS[name](notebook["cells"])
    data = (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()
    return BYTES.get(name, lambda data: data)(data)


def answer(source: str):
    """A change that puts ``source`` into the answer cell of absorb_query, or below what stands in it."""

    def change(cells: list) -> None:
        cell = cell_of(cells, "absorb_query")
        cell["source"] = source.replace("ANSWER", "".join(cell["source"]))

    return change


def above(source: str):
    """A change that puts a cell of the student's own on top."""
    return lambda cells: cells.insert(0, new_cell("mine", source))


def new_cell(id: str, source: str, **metadata) -> dict:
    return {
        "cell_type": "code",
        "id": id,
        "metadata": metadata,
        "source": source,
        "outputs": [],
        "execution_count": None,
    }


def cell_of(cells: list, id: str) -> dict:
    return next(cell for cell in cells if cell["id"] == id)


def drop(*ids: str):
    def change(cells: list) -> None:
        cells[:] = [cell for cell in cells if cell["id"] not in ids]

    return change


def again(id: str, first_source: str | None = None):
    """A change that copies a cell as Jupyter does: the same role, another id; the first one then gets another text."""

    def change(cells: list) -> None:
        at = next(i for i, cell in enumerate(cells) if cell["id"] == id)
        cells.insert(at + 1, copy.deepcopy(cells[at]) | {"id": f"{id[:20]}-copy"})
        cells[at]["source"] = first_source or cells[at]["source"]

    return change


def edited_checks(cells: list) -> None:
    """A wrong answer whose check gives itself the points, and a right one whose check ends the process."""
    CELLS["twice_the_value"](cells)
    cell_of(cells, "absorb_query-check")["source"] = "2.0"
    cell_of(cells, "scores_absorbed-check")["source"] = "import os\n\nos._exit(0)\n"


def reordered(cells: list) -> None:
    """Everything below the imports upside down: each check above its answer, the last answer first."""
    first = next(cell for cell in cells if cell["cell_type"] == "code")
    cells[:] = [first, *(cell for cell in reversed(cells) if cell is not first)]


def calls_a_stub(cells: list) -> None:
    """An answer that is left as it was handed out, and one that calls it."""
    stub = 'raise NotImplementedError("up_project_keys: write your answer here")'
    cell_of(cells, "up_project_keys")["source"] = f"def up_project_keys(latents, w_k):\n    {stub}\n"
    cell_of(cells, "absorb_query")["source"] = f"{HEAD}    return up_project_keys(q_nope, w_k.T)\n"


def no_metadata(cells: list) -> None:
    for number, cell in enumerate(cells):
        cell["metadata"], cell["id"] = {}, f"c{number}"


def old_outputs(cells: list) -> None:
    for cell in cells:
        if cell["cell_type"] == "code":
            text = "x" * 200_000
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text}]


STUB = 'def absorb_query(q_nope, w_k):\n    raise NotImplementedError("absorb_query: write your answer here")\n'
HEAD = "def absorb_query(q_nope, w_k):\n"
CELLS = {
    "twice_the_value": answer(f"{HEAD}    return 2 * (q_nope @ w_k.T)\n"),
    "syntax": answer("def absorb_query(q_nope, w_k:\n    return q_nope @ w_k.T\n"),
    "loop": answer(f"{HEAD}    while True:\n        pass\n"),
    "exits": answer("import os\n\nos._exit(0)\n"),
    "loop_above": above("while True:\n    pass\n"),
    "exits_above": above("import os\n\nos._exit(0)\n"),
    "segfault": answer(f"{HEAD}    import ctypes\n\n    return ctypes.string_at(0)\n"),
    "floods": answer(f"{HEAD}    print('x' * 5_000_000)\n    return q_nope @ w_k.T\n"),
    "prints_without_end": answer(f"{HEAD}    while True:\n        print('x' * 9_999)\n"),
    "hoards": answer(f"{HEAD}    return bytearray(8 << 30)\n"),
    "asks_for_input": answer(f"{HEAD}    input('which way? ')\n    return q_nope @ w_k.T\n"),
    "prints_only": answer(f"{HEAD}    print(q_nope @ w_k.T)\n"),
    "changes_inputs": answer(f"{HEAD}    q_nope *= 2\n    return q_nope @ w_k.T / 2\n"),
    "reads_solutions": answer(f"{HEAD}    return open('solutions/{KEYS}').read()\n"),
    "patched_numpy": above("import numpy as np\n\nnp.allclose = np.array_equal = lambda *a, **k: True\n"),
    "patched_and_wrong": answer(
        f"import numpy as np\n\nnp.allclose = np.array_equal = lambda *a, **k: True\n\n{HEAD}    return w_k[:0]\n"
    ),
    "names_of_the_course": above("t = case = check = hint = exercises = ledger = 3\njudge = None\n"),
    "no_checks": drop(*(f"{id}-check" for id in IDS)),
    "two_checks": again("absorb_query-check"),
    "edited_checks": edited_checks,
    "reordered": reordered,
    "two_answers": again("absorb_query", STUB),
    "no_metadata": no_metadata,
    "no_answer": drop("absorb_query"),
    "calls_a_stub": calls_a_stub,
    "old_outputs": old_outputs,
    "nul_bytes": answer("ANSWER\n\0"),
}
BYTES = {
    "byte_order_mark": lambda data: b"\xef\xbb\xbf" + data,
    "carriage_returns": lambda data: data.replace(b"\\n", b"\\r\\n").replace(b"\n", b"\r\n"),
    "not_json": lambda data: b"the notebook is on my other computer",
    "empty_file": lambda data: b"",
    "latin_1": lambda data: data.replace(b'"cells"', b'"\xe9": 1, "cells"'),
    "cut_off": lambda data: data[: len(data) // 2],
}
