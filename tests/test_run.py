"""Running jobs: how each call ends, what a crash or a lost server costs, and that nothing stays behind."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ledger.judge.outcome import Call, Cell, Job, Outcome, Unsupported
from ledger.judge.run import Runner, modules_of

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


def servers(pid: int | str = "self") -> list[int]:
    """The processes that a process started and that have not ended."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return [child for child in children if Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"]


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
    assert second.counts is None


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


def test_a_lost_server_costs_one_job(forking):
    forking.run(job(PLAIN))
    (server,) = servers()
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


def test_a_server_that_cannot_start_is_the_judges_fault(monkeypatch):
    monkeypatch.setattr("ledger.judge.launch._STARTER", "raise SystemExit(3)")
    for mode in ("fork", "cold"):
        with Runner(mode=mode) as broken:
            outcomes = broken.run(job(PLAIN)).outcomes
            assert kinds(outcomes) == ["judge_error"] * 3


def test_closing_leaves_no_process_and_no_descriptor():
    before = len(os.listdir("/proc/self/fd"))
    with Runner(mode="fork") as made:
        made.run(job(PLAIN))
        made.run(job("import os\ndef f(x):\n    os.abort()\n"))
        started = servers()
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
    ],
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
