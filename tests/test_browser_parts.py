"""What a notebook gets from the browser's part of the library, as far as it runs without a browser."""

import io
import json
import re
import shutil

import nbformat
import pytest
from nbclient import NotebookClient

import ledger
from ledger import exercises
from ledger.browser import apart, cells, exchange, ladder, missing, page, recorded, versions
from ledger.build import fresh_practice, fresh_solutions, record
from ledger.build.browser import wheel_files
from ledger.build.notebook import digest
from ledger.judge import session
from ledger.judge.guard import Limit
from ledger.judge.reset import write

KEYS = "practice/ch01_keys/keys.ipynb"
COUNT = len(exercises.ids())
ANSWER = "def absorb_query(q_nope, w_k):\n    return q_nope @ w_k.T\n"


@pytest.fixture
def course(tmp_path, root):
    """A course as the browser's drive holds it, with judge.py beside, the first answer written."""
    for name, notebook in fresh_practice(root).items():
        if name == KEYS:
            cell_of(notebook, "absorb_query")["source"] = ANSWER
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(notebook))
    shutil.copy(root / "judge.py", tmp_path)
    (tmp_path / "src").symlink_to(root / "src")
    return tmp_path


def cell_of(notebook, id):
    return next(cell for cell in notebook["cells"] if cell["id"] == id)


def ladder_of(course, *arguments):
    out = io.StringIO()
    ladder.run_here(list(arguments), course, out)
    return out.getvalue()


def test_the_ladder_in_this_process_is_the_command_lines(course):
    """Both from the same code: the same text but for times, the layers of isolation and how a command is written."""
    from subprocess import run
    from sys import executable

    there = run([executable, "judge.py", "--seed", "7"], cwd=course, capture_output=True, text=True).stdout
    here = ladder_of(course, "--seed", "7")
    assert "·■··" in here
    assert f"1 of {COUNT} solved" in here
    assert 'hint("up_project_keys")' in here
    there = re.sub(r"python judge\.py hint (\w+)", r'hint("\1")', there).replace("python judge.py", "%judge")
    assert plain(here) == plain(there)


def plain(text):
    return re.sub(r"isolation: .*|\d+\.\d s", "", text)


def test_the_ladder_takes_targets_and_refuses_what_needs_a_command_line(course):
    assert "absorb_query" in ladder_of(course, "absorb_query")
    assert "split_kv_b" not in ladder_of(course, "1")
    assert "hint 2 of 3" in ladder_of(course, "hint", "absorb_query", "2")
    assert "8 min" in ladder_of(course, "list")
    bad = ["doctor"], ["--json", "-"], ["nonsense"], ["--seed", "x"], ["answers", "save", "f"], ["next", "--open"]
    for arguments in bad:
        told = ladder_of(course, *arguments)
        assert told.startswith("judge: ")
        assert len(told.splitlines()) == 1
    assert (course / ".ledger" / "progress.json").is_file()


def test_a_deleted_answer_comes_back_by_the_call_that_is_named(course, wheel, monkeypatch):
    """The page writes the notebook, and shows it anew."""
    shown = []
    monkeypatch.setattr(page, "write_notebook", write)
    monkeypatch.setattr(page, "show_anew", lambda root, path, message: shown.append(path))
    book = json.loads((course / KEYS).read_text())
    book["cells"].remove(cell_of(book, "up_project_keys"))
    (course / KEYS).write_text(json.dumps(book))
    assert "not found: up_project_keys (%judge reset ID puts one back)" in ladder_of(course)
    assert "was found: %judge reset up_project_keys\n" in ladder_of(course, "next")
    assert "up_project_keys is the stub again" in ladder_of(course, "reset", "up_project_keys")
    assert shown == [course / KEYS]
    assert "It waits in practice/ch01_keys/keys.ipynb" in ladder_of(course, "next")
    assert "".join(cell_of(json.loads((course / KEYS).read_text()), "absorb_query")["source"]) == ANSWER


def test_the_help_names_what_works_here(course):
    told = ladder_of(course, "--help")
    for call in re.findall(r"%judge (\w+)", told):
        assert call in ("ID", "2", *ladder._HERE)
    assert "judge.py" not in told


def test_what_cannot_be_read_is_said_beside_the_link(course, wheel):
    (course / "practice" / "ch02_heads" / "heads.ipynb").write_text("{")
    told = exchange.bundle_bytes(course)[1]
    assert told.startswith("absorb_query; not in it, and it may hold answers: ")
    assert "heads.ipynb is not a readable notebook" in told


def test_the_references_pass_in_this_process(course, root):
    for name, notebook in fresh_solutions(root).items():
        path = course / name.replace("solutions", "practice", 1)
        path.write_text(json.dumps(notebook))
    assert f"{COUNT} of {COUNT} solved" in ladder_of(course)


def test_the_magic_in_a_real_kernel_runs_judge_py(course):
    sources = ["from ledger import check", "%judge", "%judge hint absorb_query 1"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    where = {"metadata": {"path": str(course / "practice" / "ch01_keys")}}
    NotebookClient(notebook, kernel_name="python3", resources=where).execute()
    graded, hint = ("".join(o.get("text", "") for o in cell.outputs) for cell in notebook.cells[1:])
    assert "·■··" in graded
    assert f"1 of {COUNT} solved" in graded
    assert "absorb_query, hint 1 of 3" in hint


def test_the_magic_without_a_course_says_what_it_wants(tmp_path, capsys):
    ladder.run_apart([], tmp_path)
    assert "wants the course's folder" in capsys.readouterr().out


def test_packages_that_a_browser_lacks_are_a_sentence():
    for name in ("torch", "torch.nn", "triton.language"):
        with pytest.raises(ModuleNotFoundError, match=r"does not run in a browser.*make lab") as raised:
            missing.NotInBrowser.find_spec(name)
        assert raised.value.name == name
    assert missing.NotInBrowser.find_spec("torchless") is None


def test_what_is_for_a_browser_says_what_to_do_on_a_computer():
    for name in ("download_answers", "load_answers", "update"):
        with pytest.raises(RuntimeError, match=r"on a computer: python judge\.py answers"):
            getattr(ledger, name)()


def test_allow_changes_the_limit_that_runs(monkeypatch):
    monkeypatch.setitem(cells._budget, "seconds", 20.0)
    with Limit(20) as limit:
        ledger.allow(120)
        assert limit.seconds == 120
    assert "Stopped after 120 s" in limit.message
    assert "cannot be stopped" in limit.message
    with pytest.raises(ValueError, match="above 0"):
        ledger.allow(0)


@pytest.fixture
def wheel(tmp_path, root, monkeypatch):
    """The fresh notebooks as the browser's wheel carries them."""
    folder = tmp_path / "fresh"
    for path, text in wheel_files(root).items():
        if path.startswith("ledger/browser/fresh/"):
            folder.mkdir(exist_ok=True)
            (folder / path.rpartition("/")[2]).write_text(text)
    monkeypatch.setattr(versions, "_FRESH", folder)
    return folder


def test_the_wheel_carries_every_notebook_and_import_judge(root, wheel):
    assert versions.fresh_books("practice/") == {
        name.removeprefix("practice/"): notebook for name, notebook in fresh_practice(root).items()
    }
    assert {"notebooks/ch01_keys/keys.ipynb", KEYS} <= set(versions.fresh_books())
    compile(wheel_files(root)["judge/__init__.py"], "judge", "exec")


def test_a_notebook_of_this_version_is_no_news(course, wheel, capsys):
    versions.notice(course / "practice" / "ch01_keys")
    versions.notice(course)
    assert capsys.readouterr().out == ""


def make_newer(wheel):
    """A newer version of the keys notebook in the wheel."""
    file = wheel / f"{KEYS.replace('/', '--')}.json"
    notebook = json.loads(file.read_text())
    cell_of(notebook, "absorb_query-statement")["source"] = ["A NEWER STATEMENT"]
    notebook["metadata"]["ledger"]["cells"] = digest(notebook)
    file.write_text(json.dumps(notebook))
    return notebook


def test_a_newer_version_is_said_in_one_line_and_brought_over(course, wheel, capsys):
    path = course / KEYS
    old = json.loads(path.read_text())
    own = {"cell_type": "code", "id": "ab12cd34", "metadata": {}, "outputs": [], "execution_count": None}
    old["cells"].append({**own, "source": "mine = 1"})
    path.write_text(json.dumps(old))
    newer = make_newer(wheel)
    versions.notice(path.parent)
    told = capsys.readouterr().out
    assert "keys.ipynb was saved from another version" in told
    assert "update()" in told
    assert len(told.splitlines()) == 1
    ((found, fresh),) = versions.stale(path.parent)
    assert (found, fresh) == (path, newer)
    said = " ".join(versions.bring_over(path, fresh, write))
    assert "absorb_query" in said
    made = json.loads(path.read_text())
    assert "".join(cell_of(made, "absorb_query-statement")["source"]) == "A NEWER STATEMENT"
    assert "".join(cell_of(made, "absorb_query")["source"]) == ANSWER
    assert "mine = 1" in ["".join(cell["source"]) for cell in made["cells"]]
    aside = path.with_name(f"keys.old-{old['metadata']['ledger']['cells']}.ipynb")
    assert json.loads(aside.read_text()) == old
    assert versions.stale(path.parent) == []
    assert "also answered" not in ladder_of(course, "absorb_query"), "the old notebook is not graded"


def test_an_old_notebook_never_takes_the_place_of_another(course, wheel):
    path = course / KEYS
    newer = make_newer(wheel)
    first = path.read_text()
    versions.bring_over(path, newer, write)
    second = json.loads(first)
    cell_of(second, "absorb_query")["source"] = "second = 1"
    path.write_text(json.dumps(second))
    versions.bring_over(path, newer, write)
    asides = [json.loads(p.read_text()) for p in sorted(path.parent.glob("*.old-*"))]
    assert sorted(asides, key=str) == sorted([json.loads(first), second], key=str)


def test_the_link_holds_the_bundle(course, wheel):
    from base64 import b64decode

    link = exchange.link(*exchange.bundle_bytes(course))
    data = re.search(r'href="data:application/json;base64,([^"]+)"', link)[1]
    held = json.loads(b64decode(data))
    assert held["answers"]["absorb_query"]["source"] == ANSWER
    assert held["notebooks"] == {}
    assert f'download="{exchange.FILE}"' in link
    assert "Download my answers</a> (absorb_query)" in link


def test_every_cell_that_a_browser_cannot_run_has_its_record(root):
    from ledger.build.record import tagged, unrecorded

    assert len(tagged(root)) >= 2
    assert unrecorded(root) == [], "python -m ledger.build --record"


def in_a_limited_shell(*sources):
    """What a shell with the browser's budgets prints when it runs ``sources``, and the last result's error."""
    import asyncio
    from contextlib import redirect_stdout

    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    cells.install(shell)
    said = io.StringIO()
    with redirect_stdout(said):
        for source in sources:
            result = asyncio.run(shell.run_cell_async(source, transformed_cell=shell.transform_cell(source)))
    return said.getvalue(), result.error_in_exec


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("ch07_decode_kernel/triton_kernels", ["torch", "triton"]),
        ("ch09_experts/ranks", ["torch"]),
    ],
)
def test_a_notebook_for_a_computer_runs_to_its_end_in_a_browser_and_its_checks_are_skipped(
    root, monkeypatch, name, needs
):
    monkeypatch.setattr(session, "installed", lambda package: package not in needs)
    monkeypatch.setattr("ledger.judge.notebook.in_notebook", lambda: True)
    notebook = fresh_solutions(root)[f"solutions/{name}.ipynb"]
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    ids = [cell["id"] for cell in notebook["cells"] if cell["id"] in exercises.ids()]
    said, error = in_a_limited_shell(*code)
    assert error is None
    assert said.startswith("The exercises here need ")
    lacks = f"this needs {' and '.join(needs)}"
    for id in ids:
        assert f"\n{id}: {lacks}. What you write here is kept" in said
        assert f"· {id}: skipped: {lacks}" in said


def test_any_other_cell_runs_as_it_is():
    for source in (
        "import torch",
        "from ledger import check, hint\nimport numpy as np",
        "try:\n    import torch\nexcept ImportError:\n    from ledger import check",
        "def absorb_query(q, w):\n    return q  # torch",
        "%timeit torch",
        "def dispatch_and_combine(:  # torch",
    ):
        assert apart.split(source) == (source, "")


def test_a_recorded_cell_is_shown_and_not_run_until_it_is_changed(monkeypatch, tmp_path):
    source = "raise SystemError('this ran')"
    output = {"output_type": "stream", "name": "stdout", "text": "42 multiply-adds\n"}
    entry = {"needs": ["PyTorch"], "gpu": False, "machine": "a machine", "date": "2026-01-01", "outputs": [output]}
    (tmp_path / "recorded.json").write_text(json.dumps({"cells": {recorded.key(source): entry}}))
    monkeypatch.setattr(recorded, "FILE", tmp_path / "recorded.json")
    text, error = in_a_limited_shell(source + "\n")
    assert text.endswith("a machine, 2026-01-01:\n\n42 multiply-adds\n")
    assert "was not run here" in text
    assert error is None
    _, error = in_a_limited_shell(source + "  # changed")
    assert isinstance(error, SystemError)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "needs PyTorch, which a browser has not. It was not run here; this is what it gave on\nM, D:\n"),
        ({"needs": ["PyTorch", "Triton", "several processes"]}, "needs PyTorch, Triton and several processes, which"),
        ({"outputs": []}, "not run here. It shows nothing: it makes what the cells below it need."),
        ({"needs": ["PyTorch", "a CUDA GPU"]}, "gave on\nM, D, where there was none:\n"),
        ({"needs": ["PyTorch", "a CUDA GPU"], "gpu": True}, "gave on\nM, D:\n"),
    ],
    ids=["torch", "processes", "no output", "no GPU", "GPU"],
)
def test_a_recorded_cell_says_why_it_did_not_run(changes, said):
    entry = {"needs": ["PyTorch"], "gpu": False, "machine": "M", "date": "D", "outputs": [{}]} | changes
    assert said in recorded.words(entry)


def test_what_a_cell_needs_is_read_from_its_text_and_from_the_cells_above(root, monkeypatch):
    sources = [
        "try:\n    import torch\nexcept ImportError:\n    torch = None",
        "print(torch.ones(2))",
        "from ledger.kernels import gpu",
        "gpu.row_sums(torch)",
        "from ledger.parallel import launch\nfound = launch.run()",
        "print(found)",
        "if torch.cuda.is_available():\n    torch = 2",
        "from pathlib import Path\nfor found in Path().glob('*'):\n    print(found)",
    ]
    told = [
        {"cell_type": "code", "id": str(n), "metadata": {"tags": ["no-browser"]}, "source": source}
        for n, source in enumerate(sources)
    ]
    monkeypatch.setattr(record, "tagged", lambda root: {"a": {"cells": told}})
    processes = ["PyTorch", "several processes"]
    kernels = ["PyTorch", "Triton"]
    files = ["files of the course's folder"]
    assert [sorted(needs) for needs in record.needs_of(root).values()] == [
        *(["PyTorch"], ["PyTorch"], kernels, kernels, processes, processes, ["a CUDA GPU"], files),
    ]


def test_the_record_says_what_its_cells_need(root):
    kept = {entry["cell"]: entry["needs"] for entry in json.loads(recorded.FILE.read_text())["cells"].values()}
    needs = record.needs_of(root)
    assert all(needs.values())
    assert {cell: needs[cell] for cell in kept if cell in needs} == {cell: kept[cell] for cell in kept if cell in needs}
