"""Answers out of the browser and back: the bundle of ``judge.py answers``, as a link and a button."""

import base64
import html
from pathlib import Path
from typing import Any

from ledger.browser import need_browser, root_above
from ledger.browser.versions import fresh_books

FILE = "attention-ledger-answers.json"


def course_root() -> Path:
    """The course's folder in the browser's drive."""
    root = root_above(Path.cwd())
    if root is None:
        raise RuntimeError("no course was found here: open a notebook of the course")
    return root


def bundle_bytes(root: Path) -> tuple[bytes, str]:
    """Everything of the learner's in ``root/practice`` as a bundle; and in words, with what could not be read."""
    from ledger.judge import answers

    books, faults = answers.read_books(root / "practice")
    held = answers.bundle(books, fresh_books("practice/"))
    missing = [f"not in it, and it may hold answers: {fault}" for fault in faults]
    return answers.to_bytes(held), "; ".join([answers.said(held), *missing])


def link(data: bytes, says: str) -> str:
    """A link that downloads ``data``; it works with the keyboard like any other."""
    target = f"data:application/json;base64,{base64.b64encode(data).decode()}"
    return f'<a download="{FILE}" href="{target}">Download my answers</a> ({html.escape(says)})'


def download_answers() -> None:
    """Show a link that downloads your answers and own cells as one file.

    ``python judge.py answers load FILE`` takes it on a computer, ``load_answers()`` in another browser.
    """
    need_browser("python judge.py answers save FILE")
    from IPython.display import HTML, display

    from ledger.browser import page

    root = course_root()
    page.save_all(root)
    display(HTML(link(*bundle_bytes(root))))


def load_answers(file: str | None = None) -> None:
    """Put a bundle back into the notebooks: the one at ``file`` in the file browser, or one that a button asks for."""
    need_browser("python judge.py answers load FILE")
    from ledger.browser import page

    root = course_root()
    if file is None:
        from IPython.display import display

        display(upload_button(root))
    else:
        page.save_all(root)
        print(load_bytes(Path(file).read_bytes(), file, root))


def load_bytes(data: bytes, name: str, root: Path) -> str:
    """Put the bundle ``data`` back into the notebooks below ``root``; what was done, or why it is no bundle."""
    from ledger.browser import page
    from ledger.judge import answers
    from ledger.judge.errors import StateError, Unreadable
    from ledger.judge.progress import back_up

    try:
        held = answers.read_bundle(data, name)
        changed: list[Path] = []

        def keep(path: Path) -> Path:
            changed.append(path)
            return back_up(path, root)

        beside = root / ".ledger" / f"{Path(name).stem}.left.json"
        _, lines = answers.load_into(held, root, fresh_books("practice/"), beside, keep, page.write_notebook)
    except (Unreadable, StateError) as error:
        return str(error)
    for path in changed:
        page.show_anew(root, path, "Answers were loaded.")
    return "\n".join(lines)


def upload_button(root: Path) -> Any:
    """A button that asks for a bundle, with what became of it under it."""
    import ipywidgets

    from ledger.browser import page

    button = ipywidgets.FileUpload(accept=".json", multiple=False, description="Load answers")
    below = ipywidgets.Output()

    def loaded(change: dict) -> None:
        with below:
            page.save_all(root)
            for file in change["new"]:
                print(load_bytes(bytes(file["content"]), file["name"], root))

    button.observe(loaded, "value")
    return ipywidgets.VBox([button, below])


def offer(root: Path) -> None:
    """The link and the button, under the ladder."""
    from IPython.display import HTML, display

    display(HTML(link(*bundle_bytes(root))))
    display(upload_button(root))
