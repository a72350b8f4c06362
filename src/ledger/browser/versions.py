"""A saved notebook keeps its version when the site gets a newer one: say so, and bring the answers over."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from ledger.browser import need_browser
from ledger.exercises import Exercise
from ledger.judge.collect import is_copy, is_set_aside

_FRESH = Path(__file__).parent / "fresh"


def fresh_books(part: str = "") -> dict[str, dict[str, Any]]:
    """The notebooks that this version of the course ships, by path from the course's folder below ``part``.

    Empty where the library is no wheel made for a browser.
    """
    books = {}
    for file in sorted(_FRESH.glob("*.ipynb.json")):
        path = file.name.removesuffix(".json").replace("--", "/")
        if path.startswith(part):
            books[path.removeprefix(part)] = json.loads(file.read_text(encoding="utf-8"))
    return books


def made_from(book: Any) -> tuple[str | None, str | None]:
    """The master that a notebook was made from, and the digest of its cells as they were made."""
    ledger = book.get("metadata", {}).get("ledger", {}) if isinstance(book, dict) else {}
    return ledger.get("made_from"), ledger.get("cells")


def stale(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The course's notebooks in ``folder`` that are not of this version, each with the fresh one."""
    shipped = [file.read_text(encoding="utf-8") for file in _FRESH.glob("*.ipynb.json")]
    old = []
    for path in sorted(folder.glob("*.ipynb")) if shipped else []:
        if is_copy(path) or is_set_aside(path):
            continue
        try:
            master, digest = made_from(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(digest, str) and not any(digest in text for text in shipped):
            old.append((path, master))
    fresh = {made_from(book)[0]: book for book in fresh_books().values()} if old else {}
    return [(path, fresh[master]) for path, master in old if master in fresh]


def notice(folder: Path) -> None:
    """Say in one line that a saved notebook here is of another version of the course."""
    for path, _ in stale(folder):
        print(
            f"{path.name} was saved from another version of the course than this site has now. "
            "To bring your answers into the new one: from ledger import update; update()"
        )


def update() -> None:
    """Renew the notebooks of this folder that are of another version: answers and own cells come along by id, and the
    old notebook stays beside the new one."""
    need_browser("python judge.py answers save FILE, then make build, then answers load FILE")
    from ledger.browser import page, root_above

    folder = Path.cwd()
    root = root_above(folder) or folder
    found = stale(folder)
    if not found:
        print("The notebooks of this folder are of this version of the course.")
        return
    if not page.save_all(root):
        print("Save the notebook (Ctrl+S) and run this cell again; nothing was changed.")
        return
    for path, fresh in found:
        said = " ".join(bring_over(path, fresh, page.write_notebook))
        print(said)
        page.show_anew(root, path, said)


def bring_over(path: Path, fresh: dict[str, Any], write: Callable[[Path, dict], None]) -> list[str]:
    """Replace the notebook at ``path`` by ``fresh`` with the answers and own cells of the old one in it, which is kept
    as ``NAME.old-DIGEST.ipynb``; the sentences that say so. ``write`` writes a notebook."""
    from ledger.judge.answers import Loaded, bundle, put_back
    from ledger.judge.reset import load

    old, name = load(path, path.name), path.name
    aside = name_aside(path, made_from(old)[1] or "unknown", old)
    books, done = {name: deepcopy(fresh)}, Loaded()
    put_back(bundle({name: old}, {name: fresh}), books, {name: fresh}, done)
    write(aside, old)
    write(path, books[name])
    moved = ", ".join([*done.put, *done.replaced]) or "nothing of your own"
    said = [f"{name} is of this version now. Brought over: {moved}.", f"The old notebook: {aside.name}."]
    return said + [f"Only there: {', '.join(done.homeless)}."] * bool(done.homeless)


def reset(exercise: Exercise, root: Path) -> None:
    """Put the stub of ``exercise`` back, as ``judge.py reset`` does, and show the notebook anew where it is open."""
    from ledger.browser import page
    from ledger.judge.reset import reset_to

    said, changed = reset_to(fresh_books(), exercise, root, page.write_notebook)
    print(said)
    if changed:
        page.show_anew(root, changed, said)


def name_aside(path: Path, digest: str, old: dict[str, Any]) -> Path:
    """A name for the old notebook that no other content has."""
    number, aside = 1, path.with_name(f"{path.stem}.old-{digest}.ipynb")
    while aside.exists() and json.loads(aside.read_text(encoding="utf-8")) != old:
        number += 1
        aside = path.with_name(f"{path.stem}.old-{digest}-{number}.ipynb")
    return aside
