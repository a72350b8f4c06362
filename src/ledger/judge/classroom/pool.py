"""Share the work of a class out: among processes of this machine, or among the workers of a dask cluster.

Either way a student's code runs only in the jailed child of a worker, and whoever asks writes the results alone. A
worker that dies takes nothing along: what it had is given out again. What ends every worker is the judge's own fault.
"""

import itertools
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from ledger.judge.classroom.work import OtherCourse, Row, Work, grade_work, lost, start
from ledger.judge.errors import UsageError

#: Work handed out ahead for each worker, so that none waits and few hold the memory of many notebooks.
AHEAD = 3
#: How often work may end the worker that it is alone on.
TRIES = 2


def grade_here(works: Iterable[Work], workers: int, hidden: Iterable[str]) -> Iterator[list[Row]]:
    """Grade ``works`` in ``workers`` processes of this machine and yield each one's rows as they are ready.

    Where a process ends, everything that was handed out is tried again, one at a time, to find what ends it.
    """
    waiting, hidden = iter(works), [str(path) for path in hidden]
    suspects: list[Work] | None = []
    while suspects is not None:
        for work in suspects:
            yield grade_alone(work, hidden)
        suspects = yield from grade_until_lost(waiting, workers, hidden)


def grade_until_lost(waiting: Iterator[Work], workers: int, hidden: list[str]) -> Iterator[list[Row]]:
    """Yield the rows of ``waiting`` until a process ends, and return what was handed out then; None at the end."""
    with new_pool(workers, hidden) as pool:
        given: dict[Future, Work] = {}
        while True:
            for work in itertools.islice(waiting, AHEAD * workers - len(given)):
                try:
                    given[pool.submit(grade_work, work)] = work
                except BrokenProcessPool:
                    return [*given.values(), work]
            if not given:
                return None
            for future in wait(given, return_when=FIRST_COMPLETED).done:
                try:
                    rows = future.result()
                except BrokenProcessPool:
                    return list(given.values())
                del given[future]
                yield rows


def grade_alone(work: Work, hidden: list[str]) -> list[Row]:
    """Grade one work in a process of its own, and again where that ends."""
    for _ in range(TRIES):
        with new_pool(1, hidden) as pool:
            try:
                return pool.submit(grade_work, work).result()
            except BrokenProcessPool:
                continue
    return lost(work.student, [a.id for a in work.answers], f"the process that graded it ended {TRIES} times")


def new_pool(workers: int, hidden: list[str]) -> ProcessPoolExecutor:
    """Processes that import the judge afresh, so that none inherits a thread or an open file."""
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=spawn, initializer=start, initargs=(hidden,))


def grade_on_cluster(works: Iterable[Work], address: str) -> Iterator[list[Row]]:
    """Grade ``works`` on the workers of the dask scheduler at ``address`` and yield each one's rows as they are ready.

    Raises UsageError where dask is not installed, nothing answers, no worker is there, or one has another course.
    """
    try:
        from distributed import Client, as_completed
        from distributed.scheduler import KilledWorker
    except ImportError:
        raise UsageError("--scheduler needs dask: pip install 'attention-ledger[cluster]'") from None
    try:
        client = Client(address, timeout="5s", set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"no scheduler answers at {address}: {str(error)[:100]}") from None
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise UsageError(f"the scheduler at {address} has no workers: start some with dask worker {address}")
        waiting, given = iter(works), {}
        running = as_completed(loop=client.loop)

        def hand_out(count: int) -> None:
            for work in itertools.islice(waiting, count):
                future = client.submit(grade_work, work, pure=False)
                given[future] = work
                running.add(future)

        hand_out(AHEAD * threads)
        for future in running:
            work = given.pop(future)
            try:
                rows = future.result()
            except OtherCourse as error:
                raise UsageError(str(error)) from None
            except KilledWorker:
                rows = lost(work.student, [a.id for a in work.answers], "every worker that graded it ended")
            yield rows
            hand_out(1)


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
