"""What is on disk against a fresh build: compare, write, and never touch what somebody else wrote.

Each build records a digest of a notebook's cells in its metadata. A notebook whose cells are neither those of its own
record nor those of a fresh build was edited: in ``practice/`` it is a learner's work, elsewhere an edit that was not
pulled. This needs no git, and survives what editors change besides: outputs, counts, key order, cell ids.
"""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ledger.build.notebook import TREES, Course, digest, fresh, master_of

BUILD = "make build"
PULL = ".venv/bin/python -m ledger.build --pull"


@dataclass(frozen=True)
class Finding:
    """One file that is not as a fresh build makes it: ``kind`` is missing, different, ran, edited, orphan or kept.

    ``ran``: the right cells, but outputs or metadata differ. ``kept``: a learner's own notebook, as it should be.
    """

    path: str
    kind: str
    says: str

    @property
    def fails(self) -> bool:
        return self.kind != "kept"

    def __str__(self) -> str:
        return f"{self.kind:<9} {self.path}: {self.says}"


def state(data: bytes, text: str) -> str:
    """How a file with ``data`` stands to the fresh notebook ``text``: same, ran, old or edited.

    ``ran``: the same cells, but outputs or metadata differ. ``old``: the cells of an earlier build. ``edited``: cells
    that no build wrote, or no readable notebook at all.
    """
    if data == text.encode():
        return "same"
    try:
        cells = digest(json.loads(data))
    except (ValueError, KeyError, TypeError, RecursionError):
        return "edited"
    if cells == digest(json.loads(text)):
        return "ran"
    return "old" if cells == _record(data) else "edited"


def check(course: Course) -> list[Finding]:
    """What keeps the three trees from being what the masters make; nothing is written.

    ``notebooks/`` and ``solutions/`` are compared byte for byte as they lie there. In ``practice/`` a learner's copy
    fails nothing: the notebook in git's index is compared in its place, where there is one.
    """
    texts = fresh(course)
    findings = [found for path, text in texts.items() if (found := _compare(course.root, path, text))]
    return findings + orphans(course.root, texts)


def _compare(root: Path, path: str, text: str) -> Finding | None:
    file = root / path
    if not file.is_file():
        return Finding(path, "missing", f"run {BUILD}")
    stands = state(file.read_bytes(), text)
    if stands == "same":
        return None
    if stands == "old":
        return Finding(path, "different", f"{master_of(path)} has changed since; run {BUILD}")
    if not path.startswith("practice/"):
        if stands == "edited":
            return _edited(path)
        return Finding(path, "ran", f"only outputs or metadata differ; run {BUILD} to clear them")
    blob = committed(root, path)
    if blob is not None and blob != text.encode():
        return Finding(
            path,
            "different",
            "the notebook in git is not what course/ makes, and your copy holds work that a build will not touch; "
            f"move your copy away, run {BUILD}, and git add the new one",
        )
    return Finding(path, "kept", "your work" if stands == "edited" else "your copy, run but not changed")


def _edited(path: str) -> Finding:
    return Finding(
        path,
        "edited",
        f"it holds an edit that {master_of(path)} has not; take it over with {PULL} {path}, "
        f"or delete the file and run {BUILD}",
    )


def orphans(root: Path, texts: dict[str, str]) -> list[Finding]:
    """Files of the three trees that no master makes; in ``practice/`` only those that git tracks."""
    found = []
    for tree in TREES:
        if tree == "practice":
            files = [path for path in tracked(root, tree) if (root / path).is_file()]
        else:
            files = [p.relative_to(root).as_posix() for p in (root / tree).rglob("*") if p.is_file()]
        found += [
            Finding(path, "orphan", f"no master makes it (it would be {master_of(path)}); delete it")
            for path in sorted(files)
            if path not in texts and not _hidden(path)
        ]
    return found


def _hidden(path: str) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in Path(path).parts)


def build(course: Course) -> tuple[list[str], list[Finding]]:
    """Write every notebook that is not as it should be; the paths written, and what was left alone with the reason."""
    texts = fresh(course)
    written, left = [], []
    for path, text in texts.items():
        file = course.root / path
        stands = state(file.read_bytes(), text) if file.is_file() else "missing"
        if stands == "same":
            continue
        if stands != "edited":
            write(file, text)
            written.append(path)
        elif path.startswith("practice/"):
            left.append(Finding(path, "kept", _kept(file.read_bytes(), text)))
        else:
            left.append(_edited(path))
    return written, left + orphans(course.root, texts)


def _kept(data: bytes, text: str) -> str:
    """What to tell a learner whose notebook was left alone, and how to get the new version where there is one."""
    if _record(data) == _record(text.encode()):
        return "your work, on the notebook of this version"
    return (
        "your work, not overwritten; for the new version run python judge.py answers save FILE, move the notebook "
        f"away, run {BUILD}, and then python judge.py answers load FILE"
    )


def _record(data: bytes) -> str | None:
    """The digest that the build of a notebook left in it; None where there is none to read."""
    try:
        return json.loads(data)["metadata"]["ledger"]["cells"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def write(file: Path, text: str) -> None:
    """Replace ``file`` in one step: whoever reads it sees the old text or the new one, never a part."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        part.write_bytes(text.encode())
        if file.exists():
            shutil.copymode(file, part)
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)


def committed(root: Path, path: str) -> bytes | None:
    """The file at ``path`` as git's index has it; None where git does not know it, or there is no git."""
    return _git(root, "show", f":./{path}")


def tracked(root: Path, folder: str) -> list[str]:
    """The files under ``folder`` that git tracks, as paths from ``root``; none where there is no git."""
    listed = _git(root, "ls-files", "-z", "--", folder)
    return [path.decode() for path in (listed or b"").split(b"\0") if path]


def _git(root: Path, *arguments: str) -> bytes | None:
    try:
        run = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout if run.returncode == 0 else None
