"""Budgets of whole cells: in a browser nothing else can end a loop that never ends, or a flood of output."""

import os
import sys
from contextlib import suppress
from typing import Any

from ledger.browser import apart, recorded
from ledger.judge.guard import Limit, Spent, output_limit

#: Seconds that a cell may run.
SECONDS = 20.0

_budget = {"seconds": SECONDS}


def message() -> str:
    """What a cell says that was ended for its time."""
    seconds = _budget["seconds"]
    return (
        f"Stopped after {seconds:g} s, the time that a cell has in the browser: a loop without an end ends like this. "
        "What was defined stays, and the next cell works.\n"
        f"A cell that needs longer: from ledger import allow; allow({6 * seconds:g}). "
        "One long call into compiled code, such as a huge matrix product, cannot be stopped: "
        "for that, restart the kernel (Kernel menu)."
    )


def allow(seconds: float) -> None:
    """Give this cell and every later one ``seconds`` to run in the browser; elsewhere a cell has all the time it needs.

    Raises ValueError unless ``seconds`` is above 0.
    """
    if not seconds > 0:
        raise ValueError("allow(seconds) wants a number above 0")
    _budget["seconds"] = float(seconds)
    limit = Limit.current()
    if limit is not None:
        limit.message = message()
        limit.extend(float(seconds))


def ended(error: BaseException | None = None) -> Any:
    """IPython's record of a cell that ended well, or by ``error``."""
    from IPython.core.interactiveshell import ExecutionResult

    result = ExecutionResult(None)
    result.error_in_exec = error
    return result


def look_again() -> None:
    """Let an import find a module that was put beside the notebook since the last one: the folder's time in the
    browser's drive does not tell."""
    with suppress(OSError):  # the folder may have been deleted: then nothing is found there
        finder = sys.path_importer_cache.get(os.getcwd())
        if finder is not None:
            finder.invalidate_caches()


def install(shell: Any) -> None:
    """Run every further cell of ``shell`` within the budgets; one that needs a computer shows what it gave there,
    or what it is for."""
    run_cell = shell.run_cell_async
    if getattr(run_cell, "limited", False):
        return

    async def limited(*args: Any, **options: Any) -> Any:
        source = args[0] if args else options.get("raw_cell", "")
        if (record := recorded.find(source)) is not None:
            recorded.show(record)
            return ended()
        look_again()
        here, says = apart.split(source)
        if says:
            print(says, flush=True)
            instead = dict.fromkeys(options.keys() & {"raw_cell", "transformed_cell"}, here)
            args, options = (here, *args[1:]) if args else (), options | instead
        with output_limit(), Limit(_budget["seconds"], message()):
            try:
                return await run_cell(*args, **options)
            except Spent as spent:  # outside the learner's code, which IPython guards
                shell.showtraceback()
                return ended(spent)
            finally:
                sys.modules.pop("judge", None)  # so that a second `import judge` shows the ladder again

    limited.limited = True
    shell.run_cell_async = limited
