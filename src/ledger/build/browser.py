"""What the browser's wheel holds beside the library: the fresh notebooks, and a module for ``import judge``.

A browser keeps a notebook that a learner saved, whatever the site ships later. The wheel therefore carries the
notebooks of its version, and ``ledger.browser`` compares.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledger import exercises

JUDGE = '''\
"""``import judge`` shows how far you are, as ``%judge`` does."""

from ledger.browser import ladder

ladder.show()
'''


def wheel_files(root: Path) -> dict[str, str]:
    """The text of each file by its path in the wheel, or below src/; raises BuildError where a master is at fault."""
    from ledger.build.notebook import Course, fresh

    made = fresh(Course(Path(root)), trees=("notebooks", "practice"))
    files = {f"ledger/browser/fresh/{path.replace('/', '--')}.json": squeeze(text) for path, text in made.items()}
    return {"judge/__init__.py": JUDGE, **files}


def wants_computer(notebook: Mapping[str, Any]) -> bool:
    """Whether every answer in a notebook needs a library that a browser has not, torch or Triton: there its checks are
    skipped."""
    flags = (cell["metadata"].get("nbgrader", {}) for cell in notebook["cells"])
    asked = [exercises.get(flag["grade_id"]) for flag in flags if flag.get("solution")]
    return bool(asked) and all(exercise.needs for exercise in asked)


def squeeze(notebook: str) -> str:
    """A notebook's JSON without white space between its parts."""
    return json.dumps(json.loads(notebook), ensure_ascii=False, separators=(",", ":"))
