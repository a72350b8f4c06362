"""Share the work of a class out: among processes of this machine, or among the workers of a dask cluster.

Either way a student's code runs only in the jailed child of a worker, and whoever asks writes the results alone. A
worker that dies takes nothing along: what it had is given out again. What ends every worker is the judge's own fault.
"""

import contextlib
import itertools
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from ledger.judge.classroom.work import OtherCourse, Row, Work, grade_work, lost, start_worker, surroundings
from ledger.judge.errors import UsageError

#: Work handed out ahead for each worker, so that none waits and few hold the memory of many notebooks.
AHEAD = 3
#: How often work may end the worker that it is alone on.
TRIES = 2
#: Seconds after which a cluster that says nothing is asked whether it has workers left.
SILENCE = 5


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
    with pool_of(workers, hidden) as pool:
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
        with pool_of(1, hidden) as pool:
            try:
                return pool.submit(grade_work, work).result()
            except BrokenProcessPool:
                continue
    return lost(work.student, [a.id for a in work.answers], f"the process that graded it ended {TRIES} times")


@contextlib.contextmanager
def pool_of(workers: int, hidden: list[str]) -> Iterator[ProcessPoolExecutor]:
    """Processes that import the judge afresh, so that none inherits a thread or an open file. Where the caller is
    interrupted nobody waits for them: they end with this process."""
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=spawn, initializer=start_worker, initargs=(hidden,))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def grade_on_cluster(works: Iterable[Work], address: str) -> Iterator[list[Row]]:
    """Grade ``works`` on the workers of the dask scheduler at ``address`` and yield each one's rows as they are ready.

    Raises UsageError where dask is not installed, nothing answers, no worker is there or is left, or one has another
    course or none.
    """
    try:
        import distributed
    except ImportError:
        raise UsageError("--scheduler needs dask: pip install 'attention-ledger[cluster]'") from None
    try:
        client = distributed.Client(address, timeout="5s")
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"no scheduler answers at {address}: {str(error)[:100]}") from None
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise UsageError(f"the scheduler at {address} has no workers: start some with dask worker {address}")
        check_workers(client)
        waiting, given = iter(works), {}
        while True:
            for work in itertools.islice(waiting, AHEAD * threads - len(given)):
                given[client.submit(grade_work, work, pure=False)] = work
            if not given:
                return
            try:
                done = distributed.wait(list(given), timeout=SILENCE, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                if not client.nthreads():
                    raise UsageError(f"no worker is left at {address}: start one, and run this again") from None
                continue
            for future in done:
                work = given.pop(future)
                try:
                    yield future.result()
                except OtherCourse as error:
                    raise UsageError(str(error)) from None
                except distributed.KilledWorker:
                    yield lost(work.student, [a.id for a in work.answers], "every worker that graded it ended")


def check_workers(client: "distributed.Client") -> None:  # noqa: F821
    """Ask every worker for its course before it gets work, with a function that needs no course to arrive."""

    def course_there() -> str:
        try:
            from ledger.judge.classroom.work import surroundings
        except ImportError:
            return ""
        return surroundings()

    for worker, course in client.run(course_there).items():
        if not course:
            raise UsageError(f"the worker {worker} has no course: pip install it in its environment")
        if course != surroundings():
            raise UsageError(f"the worker {worker} has another version of the course, or other libraries")


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
