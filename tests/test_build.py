"""The builder, on a small course made here, and the committed notebooks of the course itself."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import jupytext
import nbformat
import pytest

from ledger.build import BuildError, fresh_practice, fresh_solutions, master_ids, stub
from ledger.build.__main__ import main
from ledger.build.edits import pull
from ledger.build.masters import masters, parse
from ledger.build.notebook import Course, fresh
from ledger.build.tree import build, check, committed, state, write

ROOT = Path(__file__).parents[1]
LESSON = "course/lessons/ch01_toy/toy.py"
MASTER = "course/practice/ch01_toy/toy.py"
LESSON_OUT, PRACTICE_OUT, SOLUTIONS_OUT = (
    f"{tree}/ch01_toy/toy.ipynb" for tree in ("notebooks", "practice", "solutions")
)
OUTS = [LESSON_OUT, PRACTICE_OUT, SOLUTIONS_OUT]

LESSON_TEXT = """\
# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Keys: what is cached
#
# $s_t = q \\cdot k_t$ – plain text, naïve × and −.

# %% tags=["no-browser"]
# %matplotlib inline
import numpy as np


# %% include="kernels/toy.py"
# the file's text stands here

# %%
np.zeros(3)

# %%
np.zeros(3)

# %% [markdown]
# ## The next step
"""

MASTER_TEXT = '''\
# %% [markdown]
# # Practice

# %%
from ledger import check

# %% [markdown]
# ## Twice
#
# Return `x` doubled.

# %% exercise="toy_twice"
def toy_twice(x):
    """x doubled."""
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION


# %% check="toy_twice"
check("toy_twice", toy_twice)

# %% [markdown] hints="toy_twice"
# (hints)

# %% [markdown]
# Two regions, and text around them.

# %% exercise="toy_sum"
def toy_sum(a, b):
    ### BEGIN SOLUTION
    c = a
    ### END SOLUTION
    # add up
    ### BEGIN SOLUTION
    return c + b
    ### END SOLUTION

# %% check="toy_sum"
check("toy_sum", toy_sum)
'''

TOYS = {
    "toy_twice": SimpleNamespace(points=2, hints=("Add it to itself.", "`x + x`")),
    "toy_sum": SimpleNamespace(points=3, hints=("A sign.",)),
}


@pytest.fixture(autouse=True)
def no_git_from_outside(monkeypatch):
    """A git hook that runs the tests must not lead them to its own repository."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def course(tmp_path):
    """A small course with a registry of its own, not yet built."""
    for path, text in {LESSON: LESSON_TEXT, MASTER: MASTER_TEXT, "kernels/toy.py": "def loop():\n    pass\n"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8", newline="\n")
    return Course(tmp_path, TOYS.__getitem__)


@pytest.fixture
def built(course):
    build(course)
    return course


def git(root, *arguments):
    settings = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.autocrlf=false")
    subprocess.run(["git", "-C", str(root), *settings, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(built):
    """The built course, committed."""
    git(built.root, "init", "--quiet")
    git(built.root, "add", "--all")
    git(built.root, "commit", "--quiet", "--message", "x")
    return built


def load(course, path):
    return json.loads((course.root / path).read_text(encoding="utf-8"))


def save(course, path, notebook):
    """Save as JupyterLab does: outputs, counts and a longer language_info, other key order and indentation."""
    for n, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            cell["execution_count"] = n
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "run"}]
    notebook["metadata"]["language_info"] = {"name": "python", "version": "3.99"}
    (course.root / path).write_text(json.dumps(notebook, indent=3), encoding="utf-8")


def cell(notebook, id):
    return next(c for c in notebook["cells"] if c["id"] == id)


def edit(course, path, id, text):
    notebook = load(course, path)
    cell(notebook, id)["source"] = text
    save(course, path, notebook)


def sources(notebook):
    return {c["id"]: "".join(c["source"]) for c in notebook["cells"]}


def replace_in(course, path, old, new):
    text = (course.root / path).read_text(encoding="utf-8")
    assert old in text
    (course.root / path).write_text(text.replace(old, new), encoding="utf-8", newline="\n")


def kinds(findings):
    return {f.path: f.kind for f in findings}


def pulled(course, path):
    result = pull(course, path)
    for file, text in result.texts.items():
        write(course.root / file, text)
    return result


# The notebooks


def test_a_build_is_the_same_bytes_each_time_and_in_sync_with_itself(course):
    written, left = build(course)
    assert sorted(written) == sorted(OUTS)
    assert left == []
    before = {path: (course.root / path).read_bytes() for path in OUTS}
    assert build(course) == ([], [])
    assert check(course) == []
    for path in OUTS:
        (course.root / path).unlink()
    build(course)
    assert before == {path: (course.root / path).read_bytes() for path in OUTS}
    for data in before.values():
        assert data.endswith(b"}\n")
        assert b"\r" not in data
    assert "naïve × and −".encode() in before[LESSON_OUT]
    assert not list(course.root.rglob("*.part"))


def test_notebooks_are_valid_and_without_outputs(built):
    for path in OUTS:
        notebook = nbformat.read(built.root / path, as_version=4)
        nbformat.validate(notebook)
        assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
        assert all(not c.outputs and c.execution_count is None for c in notebook.cells if c.cell_type == "code")
        ids = [c.id for c in notebook.cells]
        assert len(set(ids)) == len(ids)
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", id) for id in ids)


def test_text_is_what_jupytext_reads_in_the_master(built):
    read = jupytext.reads(LESSON_TEXT, fmt="py:percent").cells
    made = load(built, LESSON_OUT)["cells"]
    want = [c.source.rstrip("\n") for c in read]
    want[2] = "def loop():\n    pass"
    assert ["".join(c["source"]) for c in made] == want
    assert made[1]["metadata"] == {"tags": ["no-browser"]}
    assert "".join(made[1]["source"]).startswith("%matplotlib")


def test_ids_come_from_exercise_and_role_or_stem_and_heading(built):
    assert [c["id"] for c in load(built, SOLUTIONS_OUT)["cells"]][2:] == [
        "toy_twice-statement",
        "toy_twice",
        "toy_twice-check",
        "toy_twice-hints",
        "toy_sum-statement",
        "toy_sum",
        "toy_sum-check",
    ]
    ids = [c["id"] for c in load(built, LESSON_OUT)["cells"]]
    assert ids[0] == "toy-keys-what-is-cached"
    assert ids[2] == "toy-kernels-toy-py"
    assert ids[5] == "toy-the-next-step"
    assert ids[4] == ids[3] + "-2"


@pytest.mark.parametrize("path", [LESSON_OUT, SOLUTIONS_OUT, PRACTICE_OUT])
def test_an_edit_changes_no_other_cell_id(built, path):
    before = [c["id"] for c in load(built, path)["cells"]]
    for master in (LESSON, MASTER):
        text = (built.root / master).read_text(encoding="utf-8")
        first = text.index("# %% [markdown]")
        new = text[:first] + "# %%\nnew = 1\n\n# %% [markdown]\n# ## New\n\n" + text[first:] + "\n# %%\nlast = 1\n"
        (built.root / master).write_text(new, encoding="utf-8")
    build(built)
    assert [c["id"] for c in load(built, path)["cells"]][2:-1] == before


def test_nbgrader_metadata_points_hints_and_anchor(built):
    solutions, practice = load(built, SOLUTIONS_OUT), load(built, PRACTICE_OUT)
    answer = cell(solutions, "toy_twice")["metadata"]["nbgrader"]
    assert (answer["grade_id"], answer["solution"], answer["grade"], answer["locked"]) == (
        "toy_twice",
        True,
        False,
        False,
    )
    graded = cell(solutions, "toy_twice-check")["metadata"]["nbgrader"]
    assert (graded["grade_id"], graded["solution"], graded["grade"], graded["locked"], graded["points"]) == (
        *("toy_twice_check", False, True, True),
        2,
    )
    text = sources(practice)
    assert text["toy_twice-statement"].startswith('<a id="toy_twice"></a>\n\n## Twice\n')
    assert "Add it to itself." in text["toy_twice-hints"]
    assert "(hints)" not in text["toy_twice-hints"]
    assert text["toy_twice-hints"].count("<details>") == text["toy_twice-hints"].count("</details>") == 2


def test_practice_has_named_stubs_and_no_solution(built):
    text = sources(load(built, PRACTICE_OUT))
    line = 'raise NotImplementedError("toy_twice: write your answer here")'
    assert text["toy_twice"] == f'def toy_twice(x):\n    """x doubled."""\n    {line}'
    assert text["toy_sum"].count('raise NotImplementedError("toy_sum: write your answer here")') == 2
    assert "2 * x" not in (built.root / PRACTICE_OUT).read_text(encoding="utf-8")
    assert "SOLUTION" not in (built.root / PRACTICE_OUT).read_text(encoding="utf-8")
    assert "2 * x" in sources(load(built, SOLUTIONS_OUT))["toy_twice"]


def test_master_ids(course):
    assert master_ids(course.root) == ["toy_twice", "toy_sum"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('check="toy_sum"', 'check="toy_twice"', "a second cell has check='toy_twice'"),
        ('# %% check="toy_sum"', "# %%", "no cell has check='toy_sum'"),
        ("toy_sum", "toy_none", "there is no exercise of this id"),
        (
            "# Two regions, and text around them.",
            "# ok\n\n# %%\nx = 1",
            "the statement of toy_sum must stand right before",
        ),
        ("def toy_sum(", "def sum_toy(", "must define a function toy_sum"),
        (
            "    return c + b\n    ### END SOLUTION",
            "    return c + b",
            "between ### BEGIN SOLUTION and ### END SOLUTION",
        ),
        ('exercise="toy_sum"', 'exercise="toy_sum" mood="good"', "unknown flag mood"),
        ('check("toy_sum", toy_sum)', "pass", 'must call check("toy_sum", toy_sum)'),
        ("from ledger import check", "### BEGIN SOLUTION", "outside an exercise's cell"),
        ("# %% [markdown]\n# # Practice", "x = 1\n# %%", "must start with a cell header"),
        ("# %%\nfrom ledger import check", '# %% include="kernels/none.py"', "kernels/none.py cannot be read"),
        ("# %%\nfrom ledger import check", '# %% include="../none.py"', "must be a path inside the course"),
        ("from ledger import check", 'x = """\n# %%\n"""', "its cells and its '# %%' lines do not agree"),
    ],
)
def test_a_faulty_master_is_named_with_its_fault_and_nothing_is_written(course, old, new, says):
    replace_in(course, MASTER, old, new)
    with pytest.raises(BuildError) as fault:
        build(course)
    assert says in str(fault.value)
    assert str(fault.value).startswith(MASTER)
    assert not (course.root / "notebooks").exists()


def test_exercises_stand_in_practice_only(course):
    shutil.copy(course.root / MASTER, course.root / LESSON)
    with pytest.raises(BuildError, match="exercises stand in course/practice/"):
        fresh(course)


# In sync or not


@pytest.mark.parametrize("path", OUTS)
def test_missing_and_stale_are_named_and_built(repository, path):
    (repository.root / path).unlink()
    assert kinds(check(repository)) == {path: "missing"}
    build(repository)
    assert check(repository) == []
    replace_in(repository, MASTER, "# # Practice", "# # More practice")
    replace_in(repository, LESSON, "np.zeros(3)", "np.ones(3)")
    assert kinds(check(repository)) == dict.fromkeys(OUTS, "different")
    # A second build over one that is not committed: the files are no learner's work.
    build(repository)
    replace_in(repository, MASTER, "# # More practice", "# # Even more practice")
    written, left = build(repository)
    assert sorted(written) == [PRACTICE_OUT, SOLUTIONS_OUT]
    assert left == []
    assert check(repository) == []


@pytest.mark.parametrize("path", [LESSON_OUT, SOLUTIONS_OUT])
def test_a_lesson_is_compared_byte_for_byte(repository, path):
    save(repository, path, load(repository, path))
    assert kinds(check(repository)) == {path: "ran"}
    build(repository)
    assert check(repository) == []
    (repository.root / path).write_bytes((repository.root / path).read_bytes().rstrip(b"\n"))
    assert [f.fails for f in check(repository)] == [True]


@pytest.mark.parametrize("path", [LESSON_OUT, SOLUTIONS_OUT])
def test_an_edit_that_was_not_pulled_is_never_overwritten(repository, path):
    id = load(repository, path)["cells"][0]["id"]
    edit(repository, path, id, "# Edited")
    before = (repository.root / path).read_bytes()
    assert kinds(check(repository)) == {path: "edited"}
    replace_in(repository, MASTER, "# # Practice", "# # More practice")
    assert path in kinds(build(repository)[1])
    assert (repository.root / path).read_bytes() == before


@pytest.mark.parametrize("where", ["in git", "in no repository", "without git"])
def test_a_learners_work_fails_nothing_and_is_never_overwritten(request, monkeypatch, built, where):
    if where != "in no repository":
        request.getfixturevalue("repository")
    if where == "without git":
        monkeypatch.setenv("PATH", "")
    edit(built, PRACTICE_OUT, "toy_twice", "def toy_twice(x):\n    return x + x")
    before = (built.root / PRACTICE_OUT).read_bytes()
    assert "on the notebook of this version" in str(build(built)[1][0])
    findings = check(built)
    assert kinds(findings) == {PRACTICE_OUT: "kept"}
    assert not any(f.fails for f in findings)
    replace_in(built, MASTER, "# # Practice", "# # More practice")
    written, left = build(built)
    assert written == [SOLUTIONS_OUT]
    assert kinds(left) == {PRACTICE_OUT: "kept"}
    assert "judge.py answers save" in str(left[0])
    assert (built.root / PRACTICE_OUT).read_bytes() == before
    # The notebook in git is then the old one, and that is named.
    assert kinds(check(built)) == {PRACTICE_OUT: "different" if where == "in git" else "kept"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda n: n["cells"].append({"cell_type": "markdown", "id": "n", "metadata": {}, "source": "my note"}),
        lambda n: n["cells"].pop(0),
        lambda n: n["cells"].reverse(),
        lambda n: n["metadata"].pop("ledger") and n["cells"].pop(),
        lambda n: n.pop("cells"),
    ],
)
def test_whatever_a_learner_changes_is_theirs(repository, damage):
    notebook = load(repository, PRACTICE_OUT)
    damage(notebook)
    (repository.root / PRACTICE_OUT).write_text(json.dumps(notebook), encoding="utf-8")
    before = (repository.root / PRACTICE_OUT).read_bytes()
    assert kinds(build(repository)[1]) == {PRACTICE_OUT: "kept"}
    assert not any(f.fails for f in check(repository))
    assert (repository.root / PRACTICE_OUT).read_bytes() == before


def test_a_practice_notebook_that_was_only_run_fails_nothing_and_is_renewed(repository):
    save(repository, PRACTICE_OUT, load(repository, PRACTICE_OUT))
    assert not any(f.fails for f in check(repository))
    assert build(repository) == ([PRACTICE_OUT], [])


def test_answers_that_were_committed_are_named(repository):
    edit(repository, PRACTICE_OUT, "toy_twice", "def toy_twice(x):\n    return x + x")
    git(repository.root, "add", "--all")
    assert kinds(check(repository)) == {PRACTICE_OUT: "different"}


def test_orphans(repository):
    stray = ["notebooks/ch01_toy/old.ipynb", "solutions/notes.txt", "practice/ch01_toy/old.ipynb"]
    for path in stray:
        (repository.root / path).write_text("{}")
    git(repository.root, "add", stray[2])
    mine = ["practice/mine.ipynb", "practice/ch01_toy/data.npy", "notebooks/.ipynb_checkpoints/toy.ipynb"]
    for path in mine:
        (repository.root / path).parent.mkdir(exist_ok=True)
        (repository.root / path).write_text("{}")
    assert kinds(check(repository)) == dict.fromkeys(stray, "orphan")
    assert kinds(build(repository)[1]) == dict.fromkeys(stray, "orphan")


def test_a_file_that_is_no_notebook_counts_as_edited():
    text = '{"cells": [], "metadata": {}}\n'
    for data in (b"", b"\xff\x00", b"[]", b"{", b'{"cells": 3}', b"<<<<<<< HEAD\n", b"[" * 100_000):
        assert state(data, text) == "edited"


def test_a_failed_write_leaves_the_old_file(built, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write(built.root / LESSON_OUT, "new")
    assert load(built, LESSON_OUT)
    assert not list(built.root.rglob("*.part"))


# Pull


@pytest.mark.parametrize("path", [LESSON_OUT, SOLUTIONS_OUT])
def test_build_then_pull_changes_nothing(built, path):
    save(built, path, load(built, path))
    assert pull(built, path).texts == {}


@pytest.mark.parametrize(
    ("path", "master", "id", "new", "in_master"),
    [
        (
            LESSON_OUT,
            LESSON,
            "toy-the-next-step",
            "## The last step\n\nMore.",
            ("## The next step", "## The last step\n#\n# More."),
        ),
        (
            SOLUTIONS_OUT,
            MASTER,
            "toy_twice-check",
            'check("toy_twice", toy_twice)  # now',
            ("toy_twice)", "toy_twice)  # now"),
        ),
        (
            SOLUTIONS_OUT,
            MASTER,
            "toy_twice-statement",
            '<a id="toy_twice"></a>\n\n## Twice\n\nReturn `x` twice.',
            ("`x` doubled", "`x` twice"),
        ),
    ],
)
def test_an_edited_cell_ends_up_in_the_master_and_nothing_else_changes(built, path, master, id, new, in_master):
    before = (built.root / master).read_text(encoding="utf-8")
    edit(built, path, id, new)
    edited = load(built, path)
    assert pulled(built, path).texts.keys() == {master}
    assert (built.root / master).read_text(encoding="utf-8") == before.replace(*in_master, 1)
    build(built)
    assert list(sources(load(built, path)).values()) == list(sources(edited).values())
    assert check(built) == []


def test_an_answer_is_pulled_from_solutions(built):
    new = 'def toy_twice(x):\n    """x doubled."""\n    ### BEGIN SOLUTION\n    return x + x\n    ### END SOLUTION'
    edit(built, SOLUTIONS_OUT, "toy_twice", new)
    pulled(built, SOLUTIONS_OUT)
    assert (built.root / MASTER).read_text(encoding="utf-8") == MASTER_TEXT.replace("return 2 * x", "return x + x")
    build(built)
    assert check(built) == []
    assert "x + x" not in sources(load(built, PRACTICE_OUT))["toy_twice"]


def test_new_moved_and_deleted_cells(built):
    notebook = load(built, LESSON_OUT)
    new = {"cell_type": "markdown", "id": "9f", "metadata": {"tags": ["no-browser"], "x": 1}, "source": "## New\n\n$x$"}
    magic = {"cell_type": "code", "id": "9g", "metadata": {}, "source": "%%time\nx = 1\n\n\ny = 2"}
    cells = notebook["cells"]
    notebook["cells"] = [cells[5], new, cells[0], magic, *cells[1:4]]
    save(built, LESSON_OUT, notebook)
    want = list(sources(notebook).values())
    pulled(built, LESSON_OUT)
    text = (built.root / LESSON).read_text(encoding="utf-8")
    assert '# %% [markdown] tags=["no-browser"]\n# ## New\n#\n# $x$\n\n# %% [markdown]\n# # Keys' in text
    assert not re.search("outputs|execution|version", text)
    assert text.endswith("np.zeros(3)\n")
    build(built)
    assert list(sources(load(built, LESSON_OUT)).values()) == want
    assert pull(built, LESSON_OUT).texts == {}
    assert [c.source for c in parse(LESSON, text).cells][1] == "## New\n\n$x$"


def test_an_edited_include_goes_to_its_file(built):
    edit(built, LESSON_OUT, "toy-kernels-toy-py", "def loop():\n    return 1")
    assert pulled(built, LESSON_OUT).texts == {"kernels/toy.py": "def loop():\n    return 1\n"}
    assert (built.root / LESSON).read_text(encoding="utf-8") == LESSON_TEXT
    build(built)
    assert check(built) == []


def test_hints_are_not_pulled_and_that_is_said(built):
    edit(built, SOLUTIONS_OUT, "toy_twice-hints", "Just do it.")
    result = pull(built, SOLUTIONS_OUT)
    assert result.texts == {}
    assert "src/ledger/exercises/toy_twice.py" in result.notes[0]


@pytest.mark.parametrize(
    ("path", "id", "new", "says"),
    [
        (SOLUTIONS_OUT, "toy_twice", "def toy_twice(x):\n    return 2 * x", "would no longer build"),
        (SOLUTIONS_OUT, "toy_twice-check", 'check("toy_twice", toy_twice)\n# %%\nx = 1', "cannot stand in a master"),
        (
            SOLUTIONS_OUT,
            "toy_twice-check",
            'x = """\n# %%\n"""\ncheck("toy_twice", toy_twice)',
            "would no longer build",
        ),
    ],
)
def test_a_pull_that_would_break_the_master_is_refused(built, path, id, new, says):
    edit(built, path, id, new)
    with pytest.raises(BuildError, match=says):
        pull(built, path)


def test_pull_refuses_what_would_lose_something(built):
    with pytest.raises(BuildError, match=r"practice/ is where learners answer.*solutions/ch01_toy"):
        pull(built, PRACTICE_OUT)
    with pytest.raises(BuildError, match="only notebooks in notebooks/ and solutions/"):
        pull(built, LESSON)
    with pytest.raises(BuildError, match="does not exist"):
        pull(built, "notebooks/ch01_toy/none.ipynb")
    edit(built, LESSON_OUT, "toy-the-next-step", "## The last step")
    replace_in(built, LESSON, "np.zeros(3)", "np.ones(3)")
    with pytest.raises(BuildError, match="could undo later edits"):
        pull(built, LESSON_OUT)
    (built.root / LESSON_OUT).write_bytes(b"\x00")
    with pytest.raises(BuildError, match="not a notebook that can be read"):
        pull(built, LESSON_OUT)


def test_a_pasted_picture_is_refused(built):
    notebook = load(built, LESSON_OUT)
    notebook["cells"][0] |= {"attachments": {"a.png": {}}, "source": "![a](attachment:a.png)"}
    save(built, LESSON_OUT, notebook)
    with pytest.raises(BuildError, match="pasted picture"):
        pull(built, LESSON_OUT)


# The command


@pytest.fixture
def plain(course):
    """A course without exercises, which the command line can build with the real registry."""
    (course.root / MASTER).unlink()
    return course


def test_command_line(plain, monkeypatch, capsys):
    monkeypatch.chdir(plain.root / "kernels")
    assert main(["--check"]) == 1
    assert f"missing   {LESSON_OUT}: run make build" in capsys.readouterr().out
    assert main([]) == 0
    assert f"wrote     {LESSON_OUT}" in capsys.readouterr().out
    assert main(["--check"]) == 0
    edit(plain, LESSON_OUT, "toy-the-next-step", "## The last step")
    assert main([]) == 1
    assert f"--pull {LESSON_OUT}" in capsys.readouterr().out
    assert main(["--pull", f"../{LESSON_OUT}"]) == 0
    assert f"-> {LESSON}" in capsys.readouterr().out
    assert main([]) == 0
    assert main(["--pull", f"../{LESSON_OUT}"]) == 0
    assert "nothing to pull" in capsys.readouterr().out


def test_command_line_faults_are_one_line_and_status_2(plain, tmp_path_factory, capsys):
    (plain.root / LESSON).write_text("# %% mood=1\n")
    empty = tmp_path_factory.mktemp("empty")
    calls = [["--root", str(plain.root)], ["--root", str(empty)], ["--root", str(plain.root), "--pull", "/none.ipynb"]]
    for arguments in calls:
        assert main(arguments) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


# The course itself


def test_the_committed_notebooks_are_what_the_masters_make():
    """A lesson that was run here is no fault, as long as git has it as it should be."""
    texts = fresh(Course(ROOT))

    def fails(found):
        return found.fails and not (found.kind == "ran" and committed(ROOT, found.path) == texts[found.path].encode())

    assert [str(f) for f in check(Course(ROOT)) if fails(f)] == []


def test_every_exercise_has_a_stub_by_its_name():
    from ledger.exercises import ids

    assert sorted(master_ids(ROOT)) == sorted(ids())
    practice = fresh_practice(ROOT)
    stubs = {c["id"]: "".join(c["source"]) for n in practice.values() for c in n["cells"]}
    for id in ids():
        assert f'raise NotImplementedError("{id}: write your answer here")' in stubs[id]
    first = master_ids(ROOT)[0]
    assert stub(first, ROOT) == stubs[first]
    with pytest.raises(KeyError):
        stub("no_such_exercise", ROOT)
    assert [path.replace("solutions", "practice", 1) for path in fresh_solutions(ROOT)] == list(practice)


def test_jupyterlab_opens_the_first_lesson_and_hides_answers_without_locking_them(course, monkeypatch):
    from jupyter_server.services.contents.filemanager import FileContentsManager
    from traitlets.config.loader import PyFileConfigLoader

    def settings():
        return PyFileConfigLoader(str(ROOT / "jupyter_lab_config.py")).load_config()

    monkeypatch.delenv("LEDGER_SHOW_SOLUTIONS", raising=False)
    assert settings().LabApp.default_url.removeprefix("/lab/tree/") in fresh(Course(ROOT))
    build(course)
    for shown in (False, True):
        monkeypatch.setenv("LEDGER_SHOW_SOLUTIONS", "1" if shown else "")
        files = FileContentsManager(root_dir=str(course.root), config=settings())
        names = {entry["name"] for entry in files.get("")["content"]}
        assert {"notebooks", "practice", "kernels"} <= names
        assert ("solutions" in names, "course" in names) == (shown, shown)
        assert files.get(SOLUTIONS_OUT)["type"] == "notebook"
        assert len(files.get("notebooks/ch01_toy")["content"]) == 1


@pytest.mark.parametrize("path", masters(ROOT))
def test_pulling_an_unchanged_notebook_leaves_its_master(path, tmp_path):
    from ledger.build.masters import compose, rewrite

    text = (ROOT / path).read_text(encoding="utf-8")
    master = parse(path, text)
    assert compose(master.front, list(master.cells)) == text
    # Writing a cell anew from its own text gives the same cell.
    again = compose(master.front, [rewrite(cell, cell.source) for cell in master.cells])
    assert [c.source for c in parse(path, again).cells] == [c.source for c in master.cells]
