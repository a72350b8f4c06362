"""Nothing of a learner's is lost in a browser: reload, a new kernel, a new version of the course, loops, floods."""

import hashlib
import json
import shutil
import subprocess
import sys
import threading
import time
import zipfile

import pytest
from conftest import fresh_context
from lab import cells, execute, open_notebook, place, run_cell, said, type_into_cell

from ledger import exercises
from ledger.build import fresh_practice
from ledger.build.notebook import digest

pytestmark = pytest.mark.browser

KEYS, OTHER = "practice/ch01_keys/keys.ipynb", "practice/ch02_heads/heads.ipynb"
COUNT = len(exercises.ids())
ANSWER = "def absorb_query(q_nope, w_k):\n    # mine\n    return q_nope @ w_k.T"

SAVED = "async path => (await jupyterapp.serviceManager.contents.get(path, {content: true})).content"
PUT_TEXT = "([path, content]) => jupyterapp.serviceManager.contents.save(path, {type: 'file', format: 'text', content})"
PUT = "([path, content]) => jupyterapp.serviceManager.contents.save(path, {type: 'notebook', format: 'json', content})"
SAVE = "() => jupyterapp.shell.currentWidget.context.save()"
OPEN = "() => [...jupyterapp.shell.widgets('main')].filter(widget => widget.context).map(({context}) => context.path)"
REVERT = "() => jupyterapp.shell.currentWidget.context.revert()"
RESTART = "() => jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.restart()"
LAST = """() => {
    const {content} = jupyterapp.shell.currentWidget;
    content.activeCellIndex = content.widgets.length - 1;
    return jupyterapp.commands.execute('notebook:insert-cell-below');
}"""
SET = "code => jupyterapp.shell.currentWidget.content.activeCell.model.sharedModel.setSource(code)"
ACTIVE = "() => jupyterapp.shell.currentWidget.content.activeCell.model.id"
SEND = """code => {
    jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.requestExecute({code});
}"""
START = "() => { jupyterapp.commands.execute('notebook:run-cell'); }"


@pytest.fixture
def page(browser):
    """A page of a profile that has never seen the site."""
    with fresh_context(browser, accept_downloads=True) as context:
        yield context.new_page()


def add_cell(page, code):
    """A new cell at the end of the open notebook; its place."""
    page.evaluate(LAST)
    page.evaluate(SET, code)
    return len(cells(page)) - 1


def run_new(page, code):
    """Run a new cell at the end; what it says."""
    return said(run_cell(page, add_cell(page, code)))


def run_first(page):
    """Run the notebook's first code cell, which imports the course; its outputs."""
    return run_cell(page, next(at for at, cell in enumerate(cells(page)) if cell["type"] == "code"))


def source(page, cell):
    """The text of a cell as the page shows it."""
    return cells(page)[place(page, cell)]["source"]


def source_of(notebook, id):
    """The text of a saved notebook's cell."""
    return next(("".join(cell["source"]) for cell in notebook["cells"] if cell["id"] == id), None)


def renew(lite):
    """Turn a built site into a later version of the course: another statement, another stub."""
    served = lite / "files" / KEYS
    notebook = json.loads(served.read_text())
    for cell in notebook["cells"]:
        if cell["id"] == "absorb_query-statement":
            cell["source"] = ["# A NEWER STATEMENT\n"]
        if cell["id"] == "absorb_query":
            cell["source"] = "".join(cell["source"]).replace('"""Queries', '"""Newer queries')
    notebook["metadata"]["ledger"]["cells"] = digest(notebook)
    served.unlink()  # it may be a link to the file of the site that this one is a copy of
    served.write_text(json.dumps(notebook))
    wheel = next((lite / "pypi").glob("attention_ledger-*.whl"))
    inside = f"ledger/browser/fresh/{KEYS.replace('/', '--')}.json"
    patched = lite / "patched"
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(patched, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry, json.dumps(notebook) if entry.filename == inside else old.read(entry))
    patched.replace(wheel)
    index = lite / "static" / "pyodide" / "pyodide-lock.json"
    listed = json.loads(index.read_text())
    (entry,) = (package for package in listed["packages"].values() if package["file_name"].endswith(wheel.name))
    entry["sha256"] = hashlib.sha256(wheel.read_bytes()).hexdigest()
    index.write_text(json.dumps(listed))


def test_reload_kernel_restart_and_a_newer_course(page, root, site, tmp_path):
    sys.path.insert(0, str(root / "site"))
    from serve import server

    copy = shutil.copytree(site, tmp_path / "site")
    with server(copy, under="/a-course/") as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{serving.server_port}/a-course/"
        answer_and_reload(page, address)
        before = page.evaluate(SAVED, KEYS)
        renew(copy / "lite")
        bring_over(page, address, before)
        serving.shutdown()


def answer_and_reload(page, address):
    """An answer and a cell of one's own are there after a save, a new kernel and a reload."""
    asked = []
    page.on("request", lambda request: asked.append(1) if request.url.endswith("/api/drive") else None)
    open_notebook(page, address, KEYS)
    assert "update()" not in said(run_first(page))
    assert 0 < len(asked) < 60, "the drive was asked for modules of the standard library"
    page.evaluate(PUT_TEXT, [KEYS.replace("keys.ipynb", "beside.py"), "found = 'beside the notebook'"])
    assert said(execute(page, "import beside; print(beside.found)")) == "beside the notebook\n"
    type_into_cell(page, "absorb_query", ANSWER)
    run_cell(page, "absorb_query")
    assert "✓ absorb_query: 9 of 9 cases" in said(run_cell(page, "absorb_query-check"))
    run_new(page, "note = 'a cell of my own'")
    page.evaluate(SAVE)
    page.evaluate(RESTART)
    assert "NameError" in said(execute(page, "absorb_query"))
    open_notebook(page, address, KEYS)
    assert source(page, "absorb_query") == ANSWER
    assert page.evaluate(OPEN) == [KEYS], "the layout came back and the address was followed, to one notebook"


def bring_over(page, address, before):
    """A saved notebook keeps its version, says so, and is renewed with the answer, the old one beside it."""
    open_notebook(page, address, KEYS)
    assert "NEWER" not in source(page, "absorb_query-statement")
    assert "keys.ipynb was saved from another version" in said(run_first(page))
    type_into_cell(page, "key_path_macs", "not_saved_yet = 1")
    add_cell(page, "from ledger import update; update()")
    page.evaluate(START)
    page.wait_for_function("() => document.querySelector('.jp-Notebook').innerText.includes('A NEWER STATEMENT')")
    renewed = page.evaluate(SAVED, KEYS)
    assert source(page, "absorb_query") == source_of(renewed, "absorb_query") == ANSWER
    assert source_of(renewed, "key_path_macs") == "not_saved_yet = 1"
    assert "Newer queries" not in json.dumps(renewed)
    assert "note = 'a cell of my own'" in ["".join(cell["source"]) for cell in renewed["cells"]]
    aside = page.evaluate(SAVED, KEYS.replace(".ipynb", f".old-{before['metadata']['ledger']['cells']}.ipynb"))
    assert source_of(aside, "absorb_query") == ANSWER
    assert source_of(aside, "absorb_query-statement") == source_of(before, "absorb_query-statement")
    assert "another version" not in said(run_first(page))
    open_notebook(page, address, KEYS)
    assert "another version" not in said(run_first(page))
    open_notebook(page, address, OTHER)
    assert sorted(page.evaluate(OPEN)) == [KEYS, OTHER], "the layout came back, behind the notebook of the address"


def test_the_keyboard_alone_leads_to_a_verdict_and_the_answer_outlives_its_kernel(page, address, shots):
    open_notebook(page, address, KEYS)
    first = next(cell["id"] for cell in cells(page) if cell["type"] == "code")
    press, answer = page.keyboard.press, "def absorb_query(q_nope, w_k):\n    return q_nope @ w_k.T"
    walk_to(page, first)
    press("Shift+Enter")
    walk_to(page, "absorb_query")
    press("Enter")
    press("Control+a")
    page.keyboard.type(answer.replace("    ", ""))  # the editor indents
    press("Shift+Enter")
    press("Shift+Enter")
    page.get_by_text("✓ absorb_query: 9 of 9 cases").wait_for()
    page.screenshot(path=shots / "lite-keyboard.png")
    assert source(page, "absorb_query") == answer

    deadline = time.monotonic() + 60
    while source_of(page.evaluate(SAVED, KEYS), "absorb_query") != answer and time.monotonic() < deadline:
        time.sleep(0.1)  # it saves by itself
    (worker,) = page.workers
    with worker.expect_event("close"):
        page.evaluate(SEND, "import js; js.close()")
    open_notebook(page, address, KEYS)
    assert source(page, "absorb_query") == answer


def walk_to(page, id):
    """Go down from cell to cell, by the keyboard, as far as the one called ``id``."""
    for _ in cells(page):
        if page.evaluate(ACTIVE) == id:
            return
        page.keyboard.press("ArrowDown")
    raise AssertionError(f"no arrow leads to {id}")


def test_endless_loops_floods_and_what_is_missing(page, address):
    open_notebook(page, address, KEYS)
    run_first(page)

    def run(code):
        return said(execute(page, code))

    run("from ledger import allow; allow(2)")
    for loop in (
        "kept = 1\nwhile True: pass",
        "def f(n): return f(n - 1) + f(n - 2) if n > 1 else n\nf(60)",
        "while True:\n    try:\n        while True: x = 1\n    except BaseException:\n        pass",
    ):
        assert "Stopped after 2 s" in run(loop)
        assert run("print('next', kept)") == "next 1\n"
    answer = "def absorb_query(q, w):\n    while True: {}\ncheck('absorb_query', absorb_query)"
    timeout = run(answer.format("pass"))
    assert "absorb_query: timeout, 0 of 9 cases pass" in timeout
    assert "your line  while True: pass" in timeout
    assert "absorb_query: output, 0 of 9 cases pass" in run(answer.format("print('x' * 100)"))
    run("allow(20)")
    for flood in ("for i in range(1_000_000): print('x' * 100)", "print('x' * 100_000_000)"):
        out = run(flood)
        assert "it printed more than 1,048,576 bytes" in out
        assert len(out) < 1_100_000
    assert run("print('next')") == "next\n"
    assert "SyntaxError" in run("def f(:\n    pass")
    assert "PyTorch does not run in a browser" in run("import torch")
    assert "Triton does not run in a browser" in run("import triton.language as tl")
    assert run("try:\n    import torch\nexcept ImportError:\n    print('guarded')") == "guarded\n"


def test_changed_cells_and_answers_out_and_back(page, browser, address, root, tmp_path):
    open_notebook(page, address, KEYS)
    run_first(page)
    change(page)
    ladder = run_new(page, "%judge")
    for words in (
        "?■··",
        "answer it; cell",
        "not found: up_project_keys",
        f"1 of {COUNT} solved",
        "Start with up_project_keys",
    ):
        assert words in ladder
    assert "python judge.py" not in ladder

    with page.expect_download() as download:
        page.get_by_role("link", name="Download my answers").last.focus()
        page.keyboard.press("Enter")
    bundle = tmp_path / "answers.json"
    download.value.save_as(bundle)
    course = course_copy(root, tmp_path / "course")
    assert "put back: absorb_query" in judge(course, "answers", "load", str(bundle)).stdout
    told = judge(course, "absorb_query", "--json", "-").stdout
    assert json.loads(told)["exercises"][0]["verdict"] == "passed"
    back = json.loads((course / KEYS).read_text())
    assert source_of(back, "absorb_query") == ANSWER
    assert "My own note: é" in ["".join(cell["source"]) for cell in back["cells"]]

    keys = next(cell for cell in back["cells"] if cell["id"] == "up_project_keys")
    keys["source"] = "def up_project_keys(latents, w_k):\n    return latents @ w_k"
    (course / KEYS).write_text(json.dumps(back))
    assert judge(course, "answers", "save", str(bundle)).returncode == 0
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    with fresh_context(browser) as elsewhere:
        other = elsewhere.new_page()
        open_notebook(other, address, KEYS)
        run_new(other, "from ledger import load_answers; load_answers()")
        upload(other, bad)
        other.get_by_text("bad.json is not a bundle of answers").wait_for()
        upload(other, bundle)
        other.wait_for_function("() => document.querySelector('.jp-Notebook').innerText.includes('# mine')")
        assert source(other, "absorb_query") == ANSWER
        assert f"2 of {COUNT} solved" in run_new(other, "import judge")
        assert f"2 of {COUNT} solved" in run_new(other, "import judge")


def upload(page, file):
    """Choose a file with the button, by the keyboard alone."""
    button = page.get_by_role("button", name="Load answers").last
    with page.expect_file_chooser(timeout=20_000) as chooser:
        button.press("Space")
    chooser.value.set_files(file)


def change(page):
    """Write an answer into the saved notebook, double its cell, delete another answer's, and add a note."""
    notebook = page.evaluate(SAVED, KEYS)
    changed = notebook["cells"]
    cell = next(cell for cell in changed if cell["id"] == "absorb_query")
    changed.insert(changed.index(cell), {**cell, "id": "a-copy", "source": ANSWER.replace("w_k.T", "w_k")})
    cell["source"] = ANSWER
    changed[:] = [cell for cell in changed if cell["id"] != "up_project_keys"]
    changed.append({"cell_type": "markdown", "id": "mine", "metadata": {}, "source": "My own note: é"})
    page.evaluate(PUT, [KEYS, notebook])
    page.evaluate(REVERT)


def course_copy(root, to):
    """The course with untouched practice notebooks."""
    to.mkdir()
    shutil.copy(root / "judge.py", to)
    shutil.copytree(root / "course", to / "course")
    (to / "src").symlink_to(root / "src")
    for name, notebook in fresh_practice(root).items():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_text(json.dumps(notebook))
    return to


def judge(course, *arguments):
    """What the judge's command line says."""
    return subprocess.run([sys.executable, "judge.py", *arguments], cwd=course, capture_output=True, text=True)
