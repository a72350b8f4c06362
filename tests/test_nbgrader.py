"""practice/ against nbgrader itself: the real commands, run in a temporary folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from ledger.build.nbgrader_steps import STEPS, Stamp
from ledger.build.notebook import Course, fresh

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def instructor(tmp_path_factory):
    """A folder with the course's nbgrader settings and freshly built solutions, as an instructor has it."""
    folder = tmp_path_factory.mktemp("nbgrader")
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    for path, text in fresh(Course(ROOT), trees=("solutions",)).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8", newline="\n")
    for chapter in chapters():
        nbgrader(folder, "generate_assignment", chapter)
    return folder


def chapters():
    return sorted({Path(path).parent.name for path in (ROOT / "course" / "practice").glob("*/*.py")})


def nbgrader(folder, *arguments):
    """Run nbgrader in ``folder``, with nothing from this machine's Jupyter settings."""
    own = {f"JUPYTER_{kind}_DIR": str(folder / ".jupyter" / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"IPYTHONDIR": str(folder / ".jupyter" / "ipython")}
    # nbgrader calls alembic by name, as it would be found in an activated environment.
    own |= {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    run = subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments],
        cwd=folder,
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run


def read(path):
    return nbformat.read(path, as_version=4)


def test_the_steps_are_nbgraders_own_but_for_the_stub_and_the_record():
    from nbgrader.converters import GenerateAssignment
    from nbgrader.preprocessors import ClearSolutions

    own = GenerateAssignment.preprocessors.default()
    assert STEPS[-1] is Stamp
    assert len(STEPS) == len(own) + 1
    assert [b.__name__ for a, b in zip(own, STEPS, strict=False) if a is not b] == ["NamedStubs"]
    assert issubclass(next(s for s in STEPS if s.__name__ == "NamedStubs"), ClearSolutions)


def test_practice_equals_a_real_generate_assignment_cell_for_cell(instructor, tmp_path):
    built = fresh(Course(ROOT), trees=("practice",))
    released = sorted(p.relative_to(instructor / "release").as_posix() for p in instructor.glob("release/*/*"))
    assert released
    assert [f"practice/{path}" for path in released] == sorted(built)
    for path in released:
        theirs, ours = read(instructor / "release" / path), nbformat.reads(built[f"practice/{path}"], as_version=4)
        assert len(theirs.cells) == len(ours.cells)
        for their_cell, our_cell in zip(theirs.cells, ours.cells, strict=True):
            assert their_cell == our_cell
        assert theirs.metadata == ours.metadata
        assert (theirs.nbformat, theirs.nbformat_minor) == (ours.nbformat, ours.nbformat_minor)
        assert any("checksum" in c.metadata.get("nbgrader", {}) for c in ours.cells)


def test_autograde_gives_a_solved_chapter_full_marks_and_an_untouched_one_none(instructor):
    from nbgrader.api import Gradebook

    chapter = chapters()[0]
    for student, source in (("solved", "solutions"), ("untouched", "release")):
        shutil.copytree(instructor / source / chapter, instructor / "submitted" / student / chapter)
    nbgrader(instructor, "autograde", chapter)
    with Gradebook(f"sqlite:///{instructor / 'gradebook.db'}", "attention_ledger") as gradebook:
        solved, untouched = (gradebook.find_submission(chapter, s) for s in ("solved", "untouched"))
        assert solved.max_score > 0
        assert (solved.score, untouched.score) == (solved.max_score, 0)
