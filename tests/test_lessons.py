"""Every practice notebook runs from top to bottom in a real kernel, as a learner would run it; lessons keep their form.

The lessons run when the book is built: ``tests/site/test_book.py`` looks at what they gave.
"""

import nbformat
import pytest
from nbclient import NotebookClient

from ledger.chapters import LESSONS, PRACTICE


def run(path, folder):
    """The notebook at ``path`` after a run in ``folder``."""
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=place).execute()
    return notebook


@pytest.mark.parametrize("name", PRACTICE)
def test_the_solutions_pass_their_checks_in_a_notebook(root, tmp_path, name):
    notebook = run(root / "solutions" / f"{name}.ipynb", tmp_path)
    checks = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    assert checks
    for cell in checks:
        (output,) = cell.outputs
        assert output.data["text/plain"].startswith("✓"), output.data["text/plain"]


@pytest.mark.parametrize("name", PRACTICE)
def test_untouched_practice_runs_to_its_end_and_says_todo(root, tmp_path, name):
    from ledger.build import fresh_practice

    fresh = nbformat.from_dict(fresh_practice(root)[f"practice/{name}.ipynb"])
    path = tmp_path / "practice.ipynb"
    nbformat.write(fresh, path)
    notebook = run(path, tmp_path)
    checks = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    assert all("not written yet" in cell.outputs[0].data["text/plain"] for cell in checks)


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_keeps_the_form(root, name):
    """A self-test with folded answers first (but for the start), a summary last; short cells that fit the page."""
    notebook = nbformat.read(root / "notebooks" / f"{name}.ipynb", as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown").lower()
    for words in ("predict", "count", "measure", "summary"):
        assert words in text
    if not name.startswith("ch00"):
        assert "<details>" in text
        assert "how to explain it" in text
        assert "python judge.py" in text
    for cell in notebook.cells:
        if cell.cell_type == "code":
            lines = [line for line in cell.source.splitlines() if line.strip()]
            assert len(lines) <= 15, cell.id
            assert max(map(len, lines)) <= 108, f"{cell.id} runs out of the page"
