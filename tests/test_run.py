"""Running jobs: how each call ends, what a crash or a lost server costs, and that nothing stays behind."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ledger import exercises
from ledger.judge import cli, sandbox
from ledger.judge.collect import Submission
from ledger.judge.launch import Servers
from ledger.judge.observe import observe
from ledger.judge.outcome import Call, Cell, Job, Outcome, Run, Unsupported
from ledger.judge.run import Runner, Session, modules_of
from ledger.judge.session import grade_all

PLAIN = "def f(x):\n    return 2 * x\n"


@pytest.fixture(scope="module", params=["fork", "cold"])
def runner(request):
    with Runner(mode=request.param) as made:
        made.start()
        yield made


@pytest.fixture
def forking():
    with Runner(mode="fork") as made:
        yield made


def job(source: str, values=(1.0, 2.0, 3.0), **limits) -> Job:
    """A job whose cases give ``values`` to ``f`` as arrays of one element, or as they are."""
    calls = (Call({"x": np.array([value]) if isinstance(value, float) else value}) for value in values)
    return Job("f", (Cell("cell", source),), tuple(calls), **limits)


def kinds(outcomes: list[Outcome]) -> list[str]:
    return [outcome.kind for outcome in outcomes]


def servers(pid: int | str = "self", besides: frozenset[int] = frozenset()) -> list[int]:
    """The processes that a process started and that have not ended."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split() if int(child) not in besides]
    return [child for child in children if Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"]


@pytest.fixture
def strangers():
    """What this process had started before a test, say in an earlier test's file."""
    return frozenset(servers())


def gone(pids: list[int]) -> bool:
    """Whether all of ``pids`` have ended, or do so within ten seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        left = [pid for pid in pids if Path(f"/proc/{pid}").exists() and "Z (zombie)" not in status(pid)]
        if not left:
            return True
        time.sleep(0.02)
    return False


def status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "Z (zombie)"


def test_every_call_gets_its_own_result(runner):
    run = runner.run(job(PLAIN))
    assert [outcome.value.tolist() for outcome in run.outcomes] == [[2.0], [4.0], [6.0]]
    assert run.seconds > 0
    assert run.notes == []
    assert run.peak_mb > 0


def test_values_of_every_kind_go_and_come(runner):
    values = ([1, (2.5, None)], {"a": np.arange(3)}, "text", 2**70, (), float("-inf"))
    calls = tuple(Call({"x": value}) for value in values)
    run = runner.run(Job("f", (Cell("cell", "def f(x):\n    return x"),), calls))
    assert repr([outcome.value for outcome in run.outcomes]) == repr(list(values))


def test_a_counted_call_brings_its_counts(runner):
    calls = (Call({"x": np.ones((3, 4)), "w": np.ones((4, 5))}, counted=True), Call({"x": np.eye(2), "w": np.eye(2)}))
    first, second = runner.run(Job("f", (Cell("cell", "def f(x, w):\n    return x @ w"),), calls)).outcomes
    assert first.counts["macs"] == 3 * 4 * 5
    np.testing.assert_array_equal(first.counted_value, first.value)
    assert (first.uncounted, first.peak) == ("", None)
    assert second.counts is None


def further(source: str, counted: bool = True, peak: bool = True, others: int = 0, **limits) -> Job:
    """A job whose first case asks for further calls on a vector of 1,000 numbers, and others that ask for none."""
    call = Call({"x": np.ones(1000)}, counted=counted, peak=peak)
    calls = (call, *[Call({"x": np.ones(3)})] * others)
    return Job("f", (Cell("cell", "import numpy as np\n" + source),), calls, **limits)


def test_the_memory_at_the_height_is_measured_where_it_is_asked_for(runner):
    source = "def f(x):\n    x = np.zeros(1 << 20)\n    del x\n    return 1\n"
    (asked,) = runner.run(further(source)).outcomes
    assert 8 << 20 <= asked.peak < 9 << 20
    assert asked.counts is not None
    assert runner.run(further(source, peak=False)).outcomes[0].peak is None


def test_an_answer_that_is_slow_only_for_being_counted_is_right(runner, monkeypatch):
    """Counted it would never end. The judge is patient, so that the process gives up first, however busy the machine
    is, and sends what it has counted till then."""
    monkeypatch.setattr("ledger.judge.run.time_for", lambda how, seconds, plain: 100.0)
    source = (
        "def f(x):\n    total = x[0] * x[0]\n    while type(x) is not np.ndarray:\n"
        "        total += x[1] * x[1]\n    return float(total)\n"
    )
    (outcome,) = runner.run(further(source, peak=False, count_seconds=1.0, total_seconds=120.0)).outcomes
    assert (outcome.kind, outcome.value) == ("returned", 1.0)
    assert (outcome.counts["left"], outcome.counted_value, outcome.uncounted) == (["scalar indexing"], None, "timeout")


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("raise TypeError('only plain')", "TypeError: only plain"),
        ("import os; os._exit(3)", "crash: exit status 3 before a result"),
        ("import time; time.sleep(60)", "timeout"),
        ("print('x' * 100_000)", "output: more than 50,000 bytes"),
        ("return np.zeros(1 << 20)", "a result of 8 MB; the judge takes 4 MB"),
    ],
)
def test_a_counted_call_that_fails_costs_the_counts_alone(runner, does, why):
    source = f"def f(x):\n    if type(x) is not np.ndarray:\n        {does}\n    return 1\n"
    limits = {"output_bytes": 50_000, "result_bytes": 4 << 20} | ({"count_seconds": 0.5} if why == "timeout" else {})
    run = runner.run(further(source, others=1, **limits))
    assert [outcome.value for outcome in run.outcomes] == [1, 1]
    assert (run.outcomes[0].counts, run.outcomes[0].uncounted) == (None, why)
    assert run.outcomes[0].peak is not None


def test_a_check_in_a_notebook_gives_up_counting_soon(monkeypatch):
    def slow(x):
        return sum(x[i] * x[i] for _ in range(1000) for i in range(len(x)))

    monkeypatch.setattr("ledger.judge.observe.FURTHER_SECONDS", 0.1)
    before = sys.getprofile()
    outcome = observe(slow, Call({"x": np.ones(100)}, counted=True, peak=True))
    assert (outcome.value, outcome.counted_value, outcome.uncounted) == (100_000.0, None, "timeout")
    assert outcome.counts["left"] == ["scalar indexing"]
    assert sys.getprofile() is before
    quick = observe(lambda x: x @ x, Call({"x": np.ones(100)}, counted=True, peak=True))
    assert (quick.counts["macs"], quick.uncounted) == (100, "")
    assert quick.peak < 10_000


def test_whatever_a_check_in_a_notebook_meets_is_an_outcome():
    class Trap(list):
        def __iter__(self):
            return 1 / 0

    assert observe(lambda x: Trap(), Call({"x": 1})).error == "ZeroDivisionError"


def test_the_memory_of_a_slow_loop_is_known(runner):
    """Memory is traced ten times slower than such a loop runs, so its time grows with the loop's."""
    source = (
        "def f(x):\n    for _ in range(300):\n        for i in range(1000):\n            x[i] * x[i]\n    return 1\n"
    )
    (outcome,) = runner.run(further(source, count_seconds=1.0, case_seconds=60.0)).outcomes
    assert (outcome.counts["left"], outcome.counted_value, outcome.uncounted) == (["scalar indexing"], None, "timeout")
    assert outcome.peak < 100_000


def test_counts_do_not_depend_on_how_the_other_cases_end(runner):
    """A case that ends the job leaves the counted one to be judged as if it had been alone."""
    source = "import time\ndef f(x):\n    time.sleep(60 * (len(x) == 3))\n    return x @ x\n"
    first, second = runner.run(further(source, others=1, case_seconds=0.5)).outcomes
    assert (first.kind, first.counts["macs"], first.uncounted) == ("returned", 1000, "")
    assert first.peak is not None
    assert second.kind == "timeout"


def test_a_fault_of_the_judge_while_it_counts_is_its_own(forking, monkeypatch):
    def refuse(session, number, call, how="plain"):
        return call_as_before(session, number, call, how) if how == "plain" else 1 / 0

    call_as_before = Session._call
    monkeypatch.setattr(Session, "_call", refuse)
    assert kinds(forking.run(further("def f(x):\n    return x @ x\n", others=1)).outcomes) == [
        "judge_error",
        "returned",
    ]


def test_what_further_calls_print_is_not_kept(runner):
    assert runner.run(further("def f(x):\n    print('once')\n    return 1\n")).output == "once\n"


@pytest.mark.parametrize("imported", [False, True])
@pytest.mark.parametrize("name", ["stop", "reset_peak", "clear_traces"])
def test_memory_that_was_not_traced_is_not_known(runner, name, imported):
    source = f"from _tracemalloc import {name}\n" if imported else f"import tracemalloc\n{name} = tracemalloc.{name}\n"
    run = runner.run(further(source + f"def f(x):\n    np.zeros(1 << 20)\n    {name}()\n    return 1\n"))
    assert (run.outcomes[0].kind, run.outcomes[0].peak) == ("returned", None)
    assert run.outcomes[0].uncounted == f"it called tracemalloc.{name}"
    assert run.outcomes[0].counts is not None


def test_whether_torch_was_used_is_noted(forking):
    assert not forking.run(job(PLAIN)).outcomes[0].used_torch
    assert forking.run(job("import torch\n" + PLAIN)).outcomes[0].used_torch


def test_what_is_printed_holds_nothing_that_a_terminal_acts_on(runner):
    run = runner.run(job("def f(x):\n    print('\\x1b[2Jclean\\x07')\n    raise ValueError('\\x1b[31mred')\n", (1.0,)))
    assert (run.output, run.outcomes[0].message) == ("clean\n", "red")


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np\nnp.array = lambda *args, **kwargs: 1 / 0\n" + PLAIN,
        "class Trap(list):\n    def __iter__(self):\n        return 1 / 0\ndef f(x):\n    return Trap()\n",
    ],
)
def test_what_an_answer_breaks_is_its_own_error(runner, source):
    outcomes = runner.run(job(source)).outcomes
    assert {(outcome.kind, outcome.error) for outcome in outcomes} == {("raised", "ZeroDivisionError")}
    assert outcomes[0].lines[-1].file == "cell"


def test_a_strided_call_hands_over_read_only_views(runner):
    source = "def f(x):\n    return x.flags.writeable, x.flags.c_contiguous"
    calls = (Call({"x": np.ones((3, 4))}, layout="strided"),)
    assert runner.run(Job("f", (Cell("cell", source),), calls)).outcomes[0].value == (False, False)


def test_arguments_larger_than_a_pipe_cross(runner):
    x = np.random.default_rng(0).standard_normal(2_000_000)
    run = runner.run(Job("f", (Cell("cell", "def f(x):\n    return x[::-1]"),), (Call({"x": x}),)))
    np.testing.assert_array_equal(run.outcomes[0].value, x[::-1])


def test_after_a_crash_the_next_case_runs_in_a_fresh_process(runner):
    source = "import os\ncalls = []\ndef f(x):\n    calls.append(x)\n    if x == 2: os.abort()\n    return len(calls)\n"
    run = runner.run(job(source, (1.0, 1.0, 2.0, 1.0)))
    assert kinds(run.outcomes) == ["returned", "returned", "crash", "returned"]
    assert [run.outcomes[n].value for n in (0, 1, 3)] == [1, 2, 1]
    assert "SIGABRT" in run.outcomes[2].detail


def test_after_the_first_timeout_nothing_is_run(runner):
    source = "import time\ndef f(x):\n    time.sleep(60 * (x[0] == 2))\n    return x\n"
    run = runner.run(job(source, (1.0, 2.0, 3.0), case_seconds=0.5))
    assert kinds(run.outcomes) == ["returned", "timeout", "timeout"]
    assert [outcome.detail for outcome in run.outcomes[1:]] == ["0.5 s", "not run"]


def test_a_job_has_a_time_of_its_own(runner):
    source = "import time\ndef f(x):\n    time.sleep(0.3)\n    return x\n"
    run = runner.run(job(source, (1.0,) * 9, total_seconds=1.0))
    assert kinds(run.outcomes)[-2:] == ["timeout", "timeout"]
    assert "1 s for all cases together" in [outcome.detail for outcome in run.outcomes]


def test_loading_has_a_limit_and_counts_for_every_case(runner):
    run = runner.run(job("import time\ntime.sleep(60)\n" + PLAIN, load_seconds=0.5))
    assert run.outcomes == [Outcome("timeout", "load", detail="0.5 s")] * 3


@pytest.mark.parametrize(
    ("ending", "kind", "detail"),
    [
        ("import time\ntime.sleep(60)", "timeout", "1 s"),
        ("import os\nos._exit(3)", "crash", "exit status 3 before a result"),
        ("print('x' * 10_000_000)", "output", "more than 50,000 bytes"),
    ],
)
def test_the_cell_in_which_loading_ended_is_named(runner, ending, kind, detail):
    cells = (Cell("cell 1", "1 / 0"), Cell("cell 2", ending), Cell("cell 3", PLAIN))
    run = runner.run(Job("f", cells, (Call({"x": 1}),), load_seconds=1.0, output_bytes=50_000))
    where = ", while cell 2 ran, above the answer"
    assert run.outcomes == [Outcome(kind, "load", detail=detail + where)]


def test_cells_above_together_have_ten_seconds():
    assert Job.load_seconds == 10.0


def test_cells_that_a_process_makes_up_are_no_cells(forking):
    frame = (
        "import os, json\nf = json.dumps({'message': {'cell': 7}, 'leaves': []}).encode()\n"
        "os.write(4, len(f).to_bytes(4, 'little') + f)\n"
    )
    outcomes = forking.run(job(frame + PLAIN)).outcomes
    assert kinds(outcomes) == ["crash"] * 3
    assert "not the next cell" in outcomes[0].detail


@pytest.mark.parametrize("handler", ["", "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"])
def test_cpu_time_has_a_limit_that_no_handler_lifts(runner, handler, monkeypatch):
    monkeypatch.setattr("ledger.judge.run.limits_of", lambda job: {"memory_mb": 100, "cpu_seconds": 1})
    run = runner.run(job(handler + "def f(x):\n    while True:\n        pass\n", (1.0, 2.0), case_seconds=60.0))
    assert run.outcomes == [
        Outcome("timeout", detail="1 s of CPU time"),
        Outcome("timeout", detail="not run"),
    ]


def test_output_is_kept_in_part_and_a_flood_ends_the_job(runner):
    run = runner.run(job("def f(x):\n    print('ab' * 100_000)\n    return x\n", output_bytes=500_000))
    assert kinds(run.outcomes) == ["returned", "returned", "output"]
    assert run.output == "ab" * 2048


def test_output_of_a_crash_is_kept(runner):
    source = "import os, sys\nprint('first')\ndef f(x):\n    print('last', file=sys.stderr)\n    os._exit(3)\n"
    run = runner.run(job(source, (1.0,)))
    assert run.output == "first\nlast\n"
    assert run.outcomes[0].detail == "exit status 3 before a result"


def test_a_large_result_is_refused_from_its_header(runner):
    run = runner.run(job("import numpy\ndef f(x):\n    return numpy.zeros(3_000_000)\n", (1.0,), result_bytes=1 << 20))
    assert run.outcomes[0].kind == "returned"
    assert run.outcomes[0].value == Unsupported("ndarray", "a result of 24 MB; the judge takes 1 MB")


def test_memory_is_limited_and_the_process_goes_on(runner):
    source = "def f(x):\n    if x == 1:\n        bytearray(400 << 20)\n    return x\n"
    run = runner.run(job(source, (1.0, 2.0), memory_mb=200))
    assert kinds(run.outcomes) == ["memory", "returned"]


def test_a_failing_load_is_the_outcome_of_every_case(runner):
    run = runner.run(job("def f(x:\n"))
    assert {(outcome.kind, outcome.stage, outcome.error) for outcome in run.outcomes} == {
        ("raised", "load", "SyntaxError")
    }


def test_notes_say_what_was_passed_over(runner):
    cells = (Cell("cell 1", "1 / 0"), Cell("cell 2", "%matplotlib inline\n" + PLAIN))
    run = runner.run(Job("f", cells, (Call({"x": 1}),)))
    assert run.outcomes[0].value == 2
    assert len(run.notes) == 2


def test_an_argument_that_cannot_cross_is_the_judges_fault(runner):
    assert kinds(runner.run(job(PLAIN, ({1},))).outcomes) == ["judge_error"]


def test_the_jail_has_no_part_of_the_course_that_holds_answers(runner):
    source = (
        "import importlib\ndef f(x):\n    found = []\n"
        "    for name in ('exercises', 'reference', 'account', 'judge.compare', 'judge.run', 'models', 'count'):\n"
        "        try:\n            importlib.import_module('ledger.' + name)\n            found.append(name)\n"
        "        except ModuleNotFoundError:\n            pass\n"
        "    return found\n"
    )
    assert runner.run(job(source, (1.0,))).outcomes[0].value == ["models", "count"]


def test_jobs_run_at_the_same_time(runner):
    def run(number: int) -> list:
        source = f"def f(x):\n    print({number})\n    return {number} * x\n"
        done = runner.run(job(source, (1.0, 2.0)))
        return [outcome.value.tolist() for outcome in done.outcomes] + [done.output]

    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(run, range(12))):
            assert found == [[1.0 * number], [2.0 * number], f"{number}\n{number}\n"]


def test_a_lost_server_costs_one_job(forking, strangers):
    forking.run(job(PLAIN))
    (server,) = servers(besides=strangers)
    source = "import time\ndef f(x):\n    time.sleep(x)\n    return x\n"
    with ThreadPoolExecutor(1) as pool:
        calls = tuple(Call({"x": seconds}) for seconds in (0, 20, 0))
        pending = pool.submit(forking.run, Job("f", (Cell("cell", source),), calls, case_seconds=30.0))
        while not servers(server):
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(server, signal.SIGKILL)
        lost = pending.result(20).outcomes
    assert lost[-1].kind == "judge_error"
    assert set(kinds(lost)) <= {"returned", "judge_error"}
    assert kinds(forking.run(job(PLAIN)).outcomes) == ["returned"] * 3


@pytest.mark.skipif(not find_spec("triton"), reason="Triton is not installed")
def test_a_server_with_triton_serves_what_needs_torch_alone(forking):
    """Each import of torch takes a second; an answer in NumPy is not made to fork a process with torch in it."""
    forking.start("torch", "triton")
    forking.start("torch")
    forking.start()
    get = forking.servers.get
    assert get("torch") is get("torch", "triton") is not get()


def test_a_flood_is_never_the_judges_fault(forking):
    """What is printed before the judge has heard of the jail does not keep it from hearing."""
    for _ in range(20):
        assert (
            kinds(forking.run(job("print('x' * 10_000_000)\n" + PLAIN, output_bytes=1000)).outcomes) == ["output"] * 3
        )


def test_a_server_that_cannot_start_is_the_judges_fault(monkeypatch):
    monkeypatch.setattr("ledger.judge.launch._STARTER", "raise SystemExit(3)")
    for mode in ("fork", "cold"):
        with Runner(mode=mode) as broken:
            outcomes = broken.run(job(PLAIN)).outcomes
            assert kinds(outcomes) == ["judge_error"] * 3


@pytest.mark.parametrize("mode", ["fork", "cold"])
def test_closing_ends_what_runs_at_once_and_lets_nothing_start(mode, strangers):
    runner = Runner(mode=mode)
    runner.run(job(PLAIN))
    slow = "import time\ndef f(x):\n    print('begun')\n    time.sleep(60)\n"
    with ThreadPoolExecutor(2) as pool:
        pending = [pool.submit(runner.run, job(slow, case_seconds=50.0, total_seconds=50.0)) for _ in range(2)]
        time.sleep(1.0)
        runner.close()
        for future in pending:  # it would be 50 s
            assert kinds(future.result(10).outcomes) == ["judge_error"] * 3
    assert kinds(runner.run(job(PLAIN)).outcomes) == ["judge_error"] * 3
    assert servers(besides=strangers) == []


def test_closing_does_not_wait_for_a_server_that_boots(monkeypatch, strangers):
    monkeypatch.setattr("ledger.judge.launch._STARTER", "import time; time.sleep(60)")
    monkeypatch.setattr("ledger.judge.launch._CLOSE_SECONDS", 60.0)
    runner = Runner(mode="fork")
    with ThreadPoolExecutor(2) as pool:
        pending = pool.submit(runner.run, job(PLAIN))
        while not servers(besides=strangers):
            time.sleep(0.01)
        pool.submit(runner.close).result(20)
        assert kinds(pending.result(10).outcomes) == ["judge_error"] * 3


def test_no_room_for_a_process_is_said(monkeypatch):
    def refuse(*args, **kwargs):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", refuse)
    before = len(os.listdir("/proc/self/fd"))
    for mode in ("fork", "cold"):
        with Runner(mode=mode) as runner:
            outcomes = runner.run(job(PLAIN)).outcomes
            assert kinds(outcomes) == ["judge_error"] * 3
            assert "no process for the answers could be started" in outcomes[0].detail
            assert not runner.isolation.holds
    with pytest.raises(OSError, match="ulimit -u"):
        Servers(mode="fork").get()
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_folder_of_a_self_test_that_was_killed_is_taken_away(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left, fresh = tmp_path / "ledger-judge-left", tmp_path / "ledger-judge-fresh"
    for folder in (left, fresh):
        folder.mkdir()
        (folder / "planted.txt").touch()
    os.utime(left, (0, 0))
    with Runner() as runner:
        assert runner.isolation.probes
    assert sorted(tmp_path.iterdir()) == [fresh]


def test_closing_leaves_no_process_and_no_descriptor(strangers):
    before = len(os.listdir("/proc/self/fd"))
    with Runner(mode="fork") as made:
        made.run(job(PLAIN))
        made.run(job("import os\ndef f(x):\n    os.abort()\n"))
        started = servers(besides=strangers)
        assert started
    assert gone(started)
    assert len(os.listdir("/proc/self/fd")) == before


def test_when_the_judge_is_killed_its_servers_and_jobs_end():
    script = (
        "from ledger.judge.run import Runner\nfrom ledger.judge.outcome import *\nimport threading\n"
        "r = Runner(mode='fork')\n"
        "source = 'print(1)\\nwhile True: pass'\n"
        "job = Job('f', (Cell('c', source),), (Call({'x': 1}),), load_seconds=60.0, total_seconds=60.0)\n"
        "threading.Thread(target=r.run, args=(job,)).start()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as judge:
        while not (found := [(child, grand) for child in servers(judge.pid) for grand in servers(child)]):
            time.sleep(0.02)
        judge.kill()
    assert gone([pid for pair in found for pid in pair])


def test_orphans_end_where_nothing_keeps_an_answer_from_forking():
    """Without the filter an answer can fork twice to leave a process behind; the server adopts it and ends it."""
    source = (
        "import os, time\ndef f(x):\n"
        "    end, start = os.pipe()\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        "            os.write(start, str(os.getpid()).encode())\n"
        "            time.sleep(30)\n"
        "        os._exit(0)\n"
        "    os.wait()\n    return int(os.read(end, 20))\n"
    )
    with Runner(mode="fork", layers=["limits"]) as runner:
        run = runner.run(job(source, (1.0,)))
        assert run.layers == ("limits",)
        assert gone([run.outcomes[0].value])


def test_the_environment_chooses_the_mode(monkeypatch):
    monkeypatch.setenv("LEDGER_JUDGE_MODE", "cold")
    assert Runner().mode == "cold"
    assert Runner(mode="fork").mode == "fork"
    monkeypatch.setenv("LEDGER_JUDGE_MODE", "warm")
    with pytest.raises(ValueError, match="fork or cold"):
        Runner()


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        ("import numpy as np", ()),
        ("import torch", ("torch",)),
        ("from torch.nn import functional", ("torch",)),
        ("import numpy, torch", ("torch",)),
        ("x = 1  # torch would do\ntorch = 2", ()),
        ("import numpy  # not torch", ()),
        ("import matplotlib.pyplot as plt", ("matplotlib",)),
        ("import " * 300_000, ()),
        ("from " * 300_000 + "torch", ("torch",)),
    ],
    ids=["numpy", "torch", "from", "two", "named", "comment", "matplotlib", "long", "long with torch"],
)
def test_a_server_is_chosen_by_what_the_cells_import(source, modules):
    wanted = tuple(name for name in modules if find_spec(name))
    assert modules_of(Job("f", (Cell("c", source),), ())) == wanted


def test_torch_answers_run_with_torch_ready(forking):
    import torch

    source = "import torch\ndef f(x):\n    return (x @ x.T).to(torch.bfloat16)\n"
    x = torch.arange(6.0).reshape(2, 3)
    run = forking.run(Job("f", (Cell("cell", source),), (Call({"x": x}, counted=True),)))
    assert torch.equal(run.outcomes[0].value, (x @ x.T).to(torch.bfloat16))
    assert run.outcomes[0].counts["macs"] == 2 * 3 * 2


def test_an_interpreted_kernel_runs_in_the_jail(forking):
    import torch

    pytest.importorskip("triton")
    source = (
        "import torch\nimport triton\nimport triton.language as tl\n"
        "@triton.jit\ndef kernel(p_x, n, BLOCK: tl.constexpr):\n"
        "    o_x = tl.arange(0, BLOCK)\n"
        "    tl.store(p_x + o_x, 2 * tl.load(p_x + o_x, mask=o_x < n), mask=o_x < n)\n"
        "def f(x):\n    y = x.clone()\n    kernel[(1,)](y, len(y), 16)\n    return y\n"
    )
    run = forking.run(Job("f", (Cell("cell", source),), (Call({"x": torch.arange(10.0)}),), case_seconds=20.0))
    assert torch.equal(run.outcomes[0].value, 2 * torch.arange(10.0))


def test_a_cell_above_may_plot(forking):
    pytest.importorskip("matplotlib")
    plot = "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1, 2])\nax.set_title('t')\n"
    cells = (Cell("cell 1", plot + "fig.canvas.draw()\nplt.show()"), Cell("cell 2", PLAIN))
    run = forking.run(Job("f", cells, (Call({"x": 2}),)))
    assert (run.outcomes[0].value, run.notes) == (4, [])


# What a run says of how its answers were kept apart

QUICK = "def key_path_macs(new_tokens, cached_tokens, latent_dim, nope_dim):\n    return new_tokens, cached_tokens\n"


class Waiting:
    """Stands in for a Runner: a job whose cell says so runs until the runner is closed, any other not at all."""

    def __init__(self):
        self.ending, self.closed = set(), threading.Event()

    def run(self, job):
        if job.cells[-1].file == "endless":
            self.closed.wait(60)
        return Run([Outcome("returned", value=None)] * len(job.calls))

    def close(self):
        self.closed.set()


def answers_in(*files: str) -> list[Submission]:
    """A wrong answer in each of the files."""
    return [Submission(exercises.get("key_path_macs"), (Cell(file, QUICK),)) for file in files]


def test_results_taken_one_by_one_leave_the_runner_open():
    """The last result is taken, and the generator is dropped without being asked for more."""
    runner = Waiting()
    given = grade_all(answers_in("one", "two"), runner, 1)
    assert [next(given).verdict, next(given).verdict] == ["wrong", "wrong"]
    given.close()
    assert not runner.closed.is_set()


def test_results_that_nobody_waits_for_end_the_runner():
    runner = Waiting()
    given = grade_all(answers_in("one", "endless", "endless"), runner, 1)
    assert next(given).verdict == "wrong"
    given.close()
    assert runner.closed.is_set()


def test_the_layers_are_named_after_a_quick_answer(tmp_path, capsys):
    """Ten fresh runners, whose self-test takes longer than the answer."""
    path = tmp_path / "quick.py"
    path.write_text(QUICK)
    layers = "+".join(name for name in sandbox.LAYERS if name in sandbox.layers_available()) or "none"
    for _ in range(10):
        assert cli.main(["--source", str(path), "key_path_macs"], None) == 1
        assert f"isolation: {layers}\n" in capsys.readouterr().out


@pytest.mark.parametrize("broken", [False, True], ids=["missing", "unreadable"])
def test_nothing_is_said_of_layers_where_nothing_ran(tmp_path, capsys, broken):
    if broken:
        (tmp_path / "keys.ipynb").write_text("{")
    command = ["key_path_macs", "--from", str(tmp_path)]
    assert cli.main(command, None) == 1
    assert "isolation: nothing had to run\n" in capsys.readouterr().out
    assert cli.main([*command, "--json", "-"], None) == 1
    assert json.loads(capsys.readouterr().out)["isolation"] == "nothing had to run"


def test_a_lost_self_test_is_said(forking):
    forking.close()
    assert forking.apart == "not known, for the self-test was lost: the judge is closing"
    assert not forking.isolation.holds
