"""Packages that a browser cannot have: importing one says so in a sentence."""

import sys

NAMES = {"torch": "PyTorch", "triton": "Triton"}
SAYS = {
    "torch": "PyTorch does not run in a browser. Nothing in the browser's part of the course needs it",
    "triton": "Triton does not run in a browser. The same kernels run here in NumPy and on WebGPU",
}
ELSEWHERE = "To run this cell, take the course to a computer and start it with 'make lab'."


class NotInBrowserError(ModuleNotFoundError):
    """A package that a browser cannot have; IPython shows its message instead of a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class NotInBrowser:
    """A finder that turns the import of a package in ``SAYS`` into an error that says what to do."""

    @staticmethod
    def find_spec(name: str, path=None, target=None) -> None:
        top = name.partition(".")[0]
        if top in SAYS:
            raise NotInBrowserError(f"{SAYS[top]}. {ELSEWHERE}", name=name)


def install() -> None:
    """Put the finder first, once."""
    if NotInBrowser not in sys.meta_path:
        sys.meta_path.insert(0, NotInBrowser)
