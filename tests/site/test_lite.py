"""The course in a browser: lessons run, answers are graded as on the command line, widgets move, faults are said."""

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

import pytest
from conftest import fresh_context
from lab import (
    allow,
    cell_output,
    cells,
    errors,
    execute,
    open_next,
    open_notebook,
    run_all,
    run_cell,
    said,
    show,
    type_into_cell,
)

from ledger import exercises
from ledger.build import fresh_lessons, fresh_practice, fresh_solutions
from ledger.build.browser import wants_computer
from ledger.build.record import for_record
from ledger.judge.gate import submission_of

pytestmark = pytest.mark.browser
SEED = 20_260
ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "notebooks").rglob("*.ipynb"))
APART, PRACTICE = (
    sorted(path for path, notebook in fresh_practice(ROOT).items() if wants_computer(notebook) is apart)
    for apart in (True, False)
)

GRADE = """
import json
import math
import numpy as np
from ledger import exercises
from ledger.judge.notebook import run_here

def graded(answers):
    space = {{"np": np, "math": math}}
    for id, source in answers.items():
        exec(source, space)
        yield id, run_here(exercises.get(id), space[id], {seed}).to_json()

print(json.dumps(dict(graded(json.loads({answers!r})))))
"""
COMPLETE = """async code => {
    const {kernel} = jupyterapp.shell.currentWidget.context.sessionContext.session;
    return (await kernel.requestComplete({code, cursor_pos: code.length})).content.matches;
}"""
#: The picture of the explorer that the page shows last, as its bytes' address.
PICTURE = """() => [...document.querySelectorAll(
    '.jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea .widget-image')].at(-1)?.src"""


class Pages:
    """The page of all tests: it shows one notebook after the other, each with a kernel of its own.

    A test that failed may leave anything behind, so the next one gets a page of a new profile.
    """

    def __init__(self, browser):
        self.browser, self.profile, self.failures = browser, ExitStack(), None

    def page(self, failures):
        """The page, after so many failures in this run."""
        if failures != self.failures:
            self.profile.close()
            self.shown = self.profile.enter_context(fresh_context(self.browser)).new_page()
            self.failures = failures
        return self.shown


@pytest.fixture(scope="module")
def pages(browser):
    pages = Pages(browser)
    with pages.profile:
        yield pages


@pytest.fixture
def page(request, pages):
    """The page, of a new profile after a test that failed."""
    return pages.page(request.session.testsfailed)


def open_here(page, address, path):
    """Follow the link to a notebook, or open it in the place of the one that is there; cells have all the time."""
    if page.url.startswith(address):
        open_next(page, path)
    else:
        open_notebook(page, address, path)
    allow(page)


@pytest.fixture
def shoot(shots, page):
    """Leave a screenshot to be looked at."""
    return lambda name: page.screenshot(path=shots / f"lite-{name}.png")


def answers():
    """Of each exercise that a browser has, every answer whose verdict is compared, as (name, source): reference, stub,
    mutants."""
    asked = {id: exercise for id, exercise in exercises.registry().items() if not exercise.needs}
    sources = {}
    for name, notebooks in (("reference", fresh_solutions(ROOT)), ("stub", fresh_practice(ROOT))):
        for cell in (cell for notebook in notebooks.values() for cell in notebook["cells"]):
            if cell["id"] in asked:
                sources.setdefault(cell["id"], []).append((name, "".join(cell["source"])))
    for id, exercise in asked.items():
        for mutant in exercise.mutants:
            source = submission_of(exercise, mutant).cells[-1].source
            sources[id].append((mutant.answer.__name__, f"import math\nimport numpy as np\n{source}"))
    return sources


def on_the_command_line(folder, sources):
    """What ``judge.py`` says of one answer to each of some exercises: ``sources`` by id."""
    for path, notebook in fresh_practice(ROOT).items():
        for cell in notebook["cells"]:
            cell["source"] = sources.get(cell["id"], cell["source"])
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(notebook))
    command = [sys.executable, ROOT / "judge.py", *sources, "--from", folder / "practice", "--seed", str(SEED)]
    done = subprocess.run([*command, "--json", "-"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode in (0, 1), done.stderr
    return {result["id"]: result for result in json.loads(done.stdout)["exercises"]}


def judged(result):
    """What must be the same wherever an answer is judged; numbers in messages may differ in their last digits, and
    newer Pythons say less of a division by zero."""

    def worded(message):
        message = re.sub(r"(float |integer )(division|modulo)( or modulo)? by zero", "division by zero", message)
        return re.sub(r"\d[\d.,e+-]*", "#", message)

    cases = [(case["name"], case["verdict"], worded(case["message"])) for case in result["cases"]]
    return result["verdict"], result["points"], cases


@pytest.mark.parametrize("path", LESSONS)
def test_a_lesson_runs_and_its_sliders_redraw(page, address, shoot, path):
    open_here(page, address, path)
    ran = [cell for cell in run_all(page) if cell["type"] == "code"]
    assert not [(cell["id"], error) for cell in ran for error in errors(cell["outputs"])]
    assert len([cell for cell in ran if cell["outputs"]]) > len(ran) / 2
    recorded = {cell["id"] for cell in for_record(fresh_lessons(ROOT)[path]["cells"])}
    assert recorded == {cell["id"] for cell in ran if "It was not run here" in said(cell["outputs"])}
    shoot(Path(path).stem)

    slider = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea .noUi-handle").last
    slider.scroll_into_view_if_needed()
    page.wait_for_function(PICTURE)
    seen = [page.evaluate(PICTURE)]
    for key in ("ArrowRight", "ArrowLeft") if page_end(slider) else ("ArrowLeft", "ArrowLeft"):
        slider.press(key)
        page.wait_for_function(f"before => ({PICTURE})() !== before", arg=seen[-1])
        seen.append(page.evaluate(PICTURE))
    shoot(f"{Path(path).stem}-slider")
    assert len(seen) == 3


def page_end(slider):
    """Whether the slider stands at its first value."""
    return slider.get_attribute("aria-valuenow") == slider.get_attribute("aria-valuemin")


def cells_with_answers(page):
    """The ids of the open notebook's answer cells."""
    return [cell["id"] for cell in cells(page) if cell["id"] in exercises.ids()]


def test_a_practice_notebook_for_a_computer_is_skipped_and_says_why(page, address):
    open_here(page, address, APART[0])
    ran = run_all(page)
    assert not [error for cell in ran if cell["type"] == "code" for error in errors(cell["outputs"])]
    checks = {cell["id"]: said(cell["outputs"]) for cell in ran if cell["id"].endswith("-check")}
    assert len(checks) == len(cells_with_answers(page)) >= 1
    why = r"· \w+: skipped: this needs torch and triton, which no browser has: open the course on a computer"
    assert all(re.match(why, text) for text in checks.values()), checks


@pytest.mark.parametrize("path", PRACTICE)
def test_a_practice_notebook_is_todo_and_with_its_answers_passed(page, address, shoot, path):
    open_here(page, address, path)
    checks = {cell["id"]: said(cell["outputs"]) for cell in run_all(page) if cell["id"].endswith("-check")}
    assert len(checks) == len(cells_with_answers(page))
    assert all(re.match(r"· \w+: not written yet", text) for text in checks.values()), checks

    solved = {cell["id"]: "".join(cell["source"]) for n in fresh_solutions(ROOT).values() for cell in n["cells"]}
    for check in checks:
        id = check.removesuffix("-check")
        type_into_cell(page, id, solved[id])
    checks = {cell["id"]: said(cell["outputs"]) for cell in run_all(page) if cell["id"] in checks}
    assert all(re.match(r"✓ \w+: (\d+) of \1 cases", text) for text in checks.values()), checks
    show(page, next(iter(checks)))
    shoot(f"{Path(path).stem}-graded")


@pytest.fixture
def answer(page, address):
    """The id of an answer cell of the practice notebook that is open; one is opened where none is."""
    if page.evaluate("() => window.jupyterapp?.shell.currentWidget?.context?.path") not in PRACTICE:
        open_here(page, address, PRACTICE[0])
        run_all(page)
    return cells_with_answers(page)[0]


def test_the_browser_judges_as_the_command_line_does(page, answer, tmp_path):
    """All references in one run, all stubs in the next, then one mutant of each exercise in each further run."""
    given = answers()
    named = [
        {id: answer for id, answer in zip(given, answers_of_a_run, strict=True) if answer}
        for answers_of_a_run in zip_longest(*given.values())
    ]
    rounds = [{id: source for id, (_, source) in chosen.items()} for chosen in named]
    browser = [  # a round a cell: together they print more than a cell may
        json.loads(said(execute(page, GRADE.format(seed=SEED, answers=json.dumps(sources))))) for sources in rounds
    ]
    differ = []
    for chosen, sources, found in zip(named, rounds, browser, strict=True):
        expected = on_the_command_line(tmp_path, sources)
        pairs = {(id, name): (judged(found[id]), judged(expected[id])) for id, (name, _) in chosen.items()}
        differ += [(which, *pair) for which, pair in pairs.items() if pair[0] != pair[1]]
    assert not differ
    verdicts = [{result["verdict"] for result in found.values()} for found in browser[:2]]
    assert verdicts == [{"passed"}, {"todo"}]


def test_a_syntax_error_is_shown_and_the_next_cell_runs(page, answer):
    type_into_cell(page, answer, f"def {answer}(q)\n    return q")
    (error,) = errors(run_cell(page, answer))
    assert "SyntaxError" in error["ename"]
    assert "expected ':'" in "".join(error["traceback"])
    type_into_cell(page, answer, f"def {answer}(q):\n    return q")
    assert run_cell(page, answer) == []
    assert "wrong" in said(run_cell(page, f"{answer}-check")) or "error" in said(cell_output(page, f"{answer}-check"))


def test_an_import_of_torch_says_what_a_browser_cannot_do(page, answer):
    type_into_cell(page, answer, "import torch")
    (error,) = errors(run_cell(page, answer))
    shown = "\n".join(error["traceback"])
    assert "PyTorch does not run in a browser" in shown
    assert len(shown.splitlines()) == 1


def test_names_are_completed_from_the_kernel(page, answer):
    said(execute(page, "import numpy as np"))
    assert page.evaluate(COMPLETE, "np.eins") == ["einsum", "einsum_path"]
    assert "NotImplementedError" in page.evaluate(COMPLETE, "NotImpl")


def test_mathematics_in_a_picture_finds_its_fonts(page, answer):
    draw = "from ledger.widgets.base import new_figure\nfig = new_figure()\n"
    draw += "fig.text(0, 0, r'$\\mathcal{L} = \\sum_i \\alpha_i \\cdot \\mathbf{W}$')\nfig"
    assert "stream" not in [output["output_type"] for output in execute(page, draw)]
