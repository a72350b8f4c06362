"""Draw a graded run as a picture for the README: ``python site/picture.py`` writes ``site/graded_run.svg``.

The run is real: in a copy of the course one exercise is answered rightly, one wrongly, and chapter 1 is graded.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ledger.build import fresh_practice

ROOT = Path(__file__).resolve().parent.parent
WRONG = """\
def absorb_query(q_nope, w_k):
    latent_dim, nope_dim = w_k.shape
    return q_nope @ w_k.reshape(nope_dim, latent_dim)
"""
ARGUMENTS = ("1", "--seed", "2026")


def answered(course: Path) -> None:
    """Practice notebooks in ``course`` with one right and one wrong answer."""
    shutil.copy(ROOT / "judge.py", course)
    solutions = json.loads((ROOT / "solutions" / "ch01_keys" / "keys.ipynb").read_text())
    right = next(cell["source"] for cell in solutions["cells"] if cell["id"] == "up_project_keys")
    for name, notebook in fresh_practice(ROOT).items():
        for cell in notebook["cells"]:
            cell["source"] = {"up_project_keys": right, "absorb_query": WRONG}.get(cell["id"], cell["source"])
        path = course / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(notebook))


def main() -> None:
    """Run the judge as on a terminal and write what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        answered(Path(folder))
        code = (
            "import sys; sys.stdout.isatty = lambda: True; sys.path.insert(0, '.')\n"
            "from pathlib import Path; from ledger.judge.cli import main; main(sys.argv[1:], Path('.').resolve())"
        )
        command = [sys.executable, "-c", code, *ARGUMENTS]
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "104"}
        environment.pop("NO_COLOR", None)
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    console = Console(record=True, width=104, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(Text(f"$ python judge.py {ARGUMENTS[0]}", style="bold"))
    console.print(Text.from_ansi(done.stdout))
    console.save_svg(str(ROOT / "site" / "graded_run.svg"), title="python judge.py", unique_id="graded-run")
    if done.stderr:
        sys.exit(done.stderr)


if __name__ == "__main__":
    main()
