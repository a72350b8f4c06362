"""Timing against a clock that only the test moves; ceilings and the machine's description against fakes."""

import importlib
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from ledger import measure
from ledger.measure import machine, rates


class Clock:
    """A clock that stands still until work moves it, or that moves by ``tick`` each time it is read."""

    def __init__(self, tick: float = 0.0):
        self.now, self.tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now

    def work(self, seconds: float):
        """A call that lasts ``seconds`` on this clock."""

        def call(*_):
            self.now += seconds

        return call


@pytest.fixture
def no_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)


def test_a_steady_call_is_timed_exactly():
    clock = Clock()
    timing = measure.time_call(clock.work(0.25), seconds=1.0, clock=clock)
    assert timing == (0.25, 0.25, 0.25, 4)


def test_a_short_call_is_repeated_until_the_clock_can_read_it():
    clock = Clock()
    calls = []

    def call():
        calls.append(clock.now)
        clock.now += 2**-10  # about 1 ms; a run must last 5

    timing = measure.time_call(call, seconds=2**-4, clock=clock)
    # 1 untimed, then runs of 1, 2, 4 and 8 to find the repeats, then runs of 8 for a sixteenth of a second
    assert timing == (2**-10, 2**-10, 2**-10, 8)
    assert len(calls) == 1 + 1 + 2 + 4 + 8 + 8 * 8


def test_a_clock_that_stands_still_does_not_hang():
    clock = Clock()
    calls = iter(range(300_000))
    timing = measure.time_pairs({"nothing": lambda: next(calls)}, seconds=-1, clock=clock)["nothing"]
    assert timing[:3] == (0, 0, 0)


def test_median_and_quartiles_of_known_durations():
    clock = Clock()
    durations = iter([9.0, 9.0, 1.0, 5.0, 2.0, 4.0, 3.0])  # the first two: warm-up, repeats

    def call():
        clock.now += next(durations)

    assert measure.time_call(call, seconds=14.5, clock=clock) == (3.0, 2.0, 4.0, 5)


def test_a_slow_call_is_still_timed_three_times():
    clock = Clock()
    assert measure.time_call(clock.work(100.0), seconds=0.1, clock=clock).runs == 3


def test_pairs_run_in_turn():
    clock = Clock()
    order = []

    def thunk(name, seconds):
        def call():
            order.append(name)
            clock.now += seconds

        return call

    timings = measure.time_pairs({"a": thunk("a", 1.0), "b": thunk("b", 3.0)}, seconds=7.9, clock=clock)
    # warm-up and repeats of each, then rounds of both for about 7.9 seconds each
    assert "".join(order) == "aabb" + "ab" * 4
    assert timings == {"a": (1.0, 1.0, 1.0, 4), "b": (3.0, 3.0, 3.0, 4)}


def test_a_machine_that_slows_down_slows_both():
    clock = Clock()
    speed = iter([1, 1, 1, 1, *[1, 1, 2, 2, 3, 3]])

    def call():
        clock.now += next(speed)

    timings = measure.time_pairs({"a": call, "b": call}, seconds=5.9, clock=clock)
    assert timings["a"] == timings["b"] == (2.0, 1.5, 2.5, 3)


def test_nothing_to_time():
    assert measure.time_pairs({}) == {}


def test_arguments_reach_the_call_and_errors_come_back():
    seen = []
    clock = Clock(tick=1.0)
    measure.time_call(lambda a, b: seen.append((a, b)), 1, 2, clock=clock)
    assert set(seen) == {(1, 2)}
    with pytest.raises(ZeroDivisionError):
        measure.time_call(lambda: 1 / 0)


def test_timing_waits_for_the_gpu_inside_the_clock(monkeypatch):
    clock = Clock()
    pending = []

    def synchronize():
        while pending:
            clock.now += pending.pop()

    cuda = SimpleNamespace(is_initialized=lambda: True, synchronize=synchronize)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert measure.time_call(lambda: pending.append(0.5), seconds=2.0, clock=clock).median == 0.5


def test_cpu_ceilings_count_both_directions_and_two_flop_a_multiply_add(no_torch, monkeypatch):
    monkeypatch.setattr(rates, "LEAST_COPY", 1 << 20)
    monkeypatch.setattr(rates, "_last_cache_bytes", lambda: 3 << 19)
    found = measure.ceilings("float32", clock=Clock(tick=0.03125))
    assert found.bandwidth == 2 * (3 << 20) / 0.03125
    assert found.flops == 2 * 256**3 / 0.03125
    assert found.device == "CPU (NumPy)"


def test_a_browsers_product_does_not_grow_out_of_its_cache(no_torch, monkeypatch):
    monkeypatch.setattr(rates, "LEAST_COPY", 1 << 20)
    monkeypatch.setattr(sys, "platform", "emscripten")
    tick = 2**-7
    assert tick < rates.LONG_PRODUCT
    assert measure.ceilings("float32", clock=Clock(tick=tick)).flops == 2 * 256**3 / tick


@pytest.mark.parametrize(
    ("copy", "read", "moved"),
    [(0.5, 0.25, 2 * (1 << 20) / 0.5), (0.5, 0.125, (1 << 20) / 0.125), (0.25, 0.25, 2 * (1 << 20) / 0.25)],
)
def test_cpu_bandwidth_is_the_larger_of_a_copy_and_a_read(no_torch, monkeypatch, copy, read, moved):
    clock, sizes = Clock(), []

    def dot(left, right):
        assert left is right, "one array is read, once"
        sizes.append((left.nbytes, left.dtype))
        clock.now += read

    def matmul(left, right, out):
        clock.now += 1.0

    for name, call in (("copyto", clock.work(copy)), ("dot", dot), ("matmul", matmul)):
        monkeypatch.setattr(np, name, call)
    monkeypatch.setattr(rates, "LEAST_COPY", 1 << 20)
    monkeypatch.setattr(rates, "_last_cache_bytes", lambda: 0)
    found = measure.ceilings("float64", clock=clock)
    assert found[:2] == (moved, 2 * 256**3)
    assert set(sizes) == {(1 << 20, np.dtype(np.float32))}


def test_a_busy_sample_lowers_no_ceiling():
    clock = Clock()
    speed = {"copy": iter([4.0, 4.0, 2.0, 4.0, 4.0]), "read": iter([3.0, 1.0, 3.0, 3.0, 3.0])}
    now = {}

    def call(name):
        def thunk():
            clock.now += now[name]

        return thunk

    def pairs(calls, seconds, clock):
        now.update({name: next(speed[name]) for name in calls})
        return measure.time_pairs(calls, seconds=seconds, clock=clock)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rates, "time_pairs", pairs)
        assert rates._fastest({name: call(name) for name in speed}, clock) == {"copy": 2.0, "read": 1.0}
    assert not [*speed["copy"], *speed["read"]], "each sample is taken"


def test_a_product_grows_until_it_lasts():
    clock = Clock()
    sizes = []

    def matmul(left, right, out):
        sizes.append(left.shape[0])
        clock.now += left.shape[0] / 4096  # 16 ms at 64, 31 ms at 128

    product, flop = rates._long_product(lambda n: np.empty((n, n)), matmul, 64, 4096, clock)
    assert set(sizes) == {64, 128}
    assert flop == 2 * 128**3
    product()
    assert sizes[-1] == 128


def test_a_product_stops_at_the_largest_size():
    clock = Clock()
    _, flop = rates._long_product(lambda n: np.empty((n, n)), lambda *_, out: clock.work(0.01)(), 8, 16, clock)
    assert flop == 2 * 16**3


def test_gpu_ceilings_are_taken_where_torch_sees_one(monkeypatch):
    clock = Clock()

    def ones(shape, dtype, device):
        assert device == "cuda"
        return SimpleNamespace(nbytes=shape, copy_=clock.work(0.125), dtype=dtype)

    def matmul(left, right, out):
        assert (left.dtype, right.dtype, out.dtype) == ("bf16", "bf16", "bf16")
        clock.now += 0.25

    cuda = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        synchronize=lambda: None,
        get_device_name=lambda: "a GPU of this test",
    )
    torch = SimpleNamespace(
        cuda=cuda, ones=ones, empty_like=lambda a: a, matmul=matmul, uint8="u8", bfloat16="bf16", float32="f32"
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    found = measure.ceilings("bfloat16", clock=clock)
    assert found == (2 * (512 << 20) / 0.125, 2 * 4096**3 / 0.25, "a GPU of this test")


def test_a_dtype_that_this_machine_cannot_multiply_names_the_choices(no_torch):
    with pytest.raises(ValueError, match=r"'bfloat16'.*float16, float32, float64"):
        measure.ceilings("bfloat16")


def describe() -> dict[str, str]:
    rows = measure.describe_machine()
    assert [row.what for row in rows] == [
        "Python",
        "NumPy",
        "CPU cores",
        "memory",
        "torch",
        "CUDA device",
        "Triton",
        "WebGPU",
        "browser",
    ]
    return dict(rows)


def test_a_machine_without_torch_learns_what_to_do(no_torch):
    state = describe()
    assert np.__version__ in state["NumPy"]
    assert state["torch"].startswith("not installed")
    assert "make setup" in state["torch"]
    assert state["CUDA device"].startswith("none")
    assert state["browser"].startswith("no")


def test_a_torch_that_does_not_load_counts_as_absent(monkeypatch):
    def broken(name):
        raise OSError("libcudart.so: cannot open shared object file")

    monkeypatch.setattr(importlib, "import_module", broken)
    assert describe()["torch"].startswith("not installed, or not for this machine")


def test_a_cpu_build_names_the_way_to_a_gpu(monkeypatch):
    cuda = SimpleNamespace(is_available=lambda: False)
    torch = SimpleNamespace(__version__="9.9+cpu", cuda=cuda, version=SimpleNamespace(cuda=None))
    monkeypatch.setitem(sys.modules, "torch", torch)
    state = describe()
    assert state["torch"].startswith("9.9+cpu")
    assert "TORCH_INDEX" in state["CUDA device"]


def test_a_gpu_is_named_by_torch(monkeypatch):
    device = SimpleNamespace(name="a GPU of this test", total_memory=12_300_000_000)
    cuda = SimpleNamespace(is_available=lambda: True, get_device_properties=lambda index: device)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="9.9", cuda=cuda))
    assert describe()["CUDA device"].startswith("a GPU of this test, 12.3 GB")


def test_a_browser_has_no_affinity_no_sysconf_and_no_torch(monkeypatch, no_torch):
    def no_sysconf(name):
        raise ValueError(name)

    monkeypatch.setattr(sys, "platform", "emscripten")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "sysconf", no_sysconf)
    monkeypatch.setattr(machine, "_webgpu_state", lambda: "no adapter")  # tests/site asks a real browser
    state = describe()
    assert state["browser"].startswith("yes")
    assert state["memory"].startswith("unknown")
    assert "make lab" in state["torch"]
    for what in ("torch", "CUDA device", "Triton"):
        assert state[what].startswith("not in a browser"), what


@pytest.mark.parametrize(("pages", "says"), [(500_000, "2.0 GB: little"), (4_000_000, "16.4 GB: arrays")])
def test_memory_is_pages_times_their_size(monkeypatch, pages, says):
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": pages}.__getitem__)
    assert machine._memory_state().startswith(says)


def test_cores_without_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert machine._cores_state(in_browser=False).startswith("6:")


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({}, "6: products run on all of them"),
        ({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "4"}, "6: OPENBLAS_NUM_THREADS keeps NumPy's products to 1"),
        ({"OMP_NUM_THREADS": "2"}, "6: OMP_NUM_THREADS keeps NumPy's products to 2"),
        ({"MKL_NUM_THREADS": "all"}, "6: products run on all of them"),
    ],
)
def test_cores_say_what_keeps_products_to_fewer(monkeypatch, limits, says):
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in limits.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(machine, "_cores", lambda: 6)
    assert machine._cores_state(in_browser=False).startswith(says)


def test_a_system_without_a_cache_file_tells_nothing(monkeypatch):
    def missing(*args, **kwargs):
        raise FileNotFoundError

    monkeypatch.setattr(rates.Path, "read_text", missing)
    assert rates._last_cache_bytes() == 0


def test_importing_and_timing_do_not_import_torch():
    code = "import sys; from ledger import measure; measure.time_call(int, seconds=0); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(("capability", "dtype"), [((7, 5), "float16"), ((8, 0), "bfloat16"), ((9, 0), "bfloat16")])
def test_a_gpu_without_bf16_of_its_own_gets_fp16(monkeypatch, capability, dtype):
    cuda = SimpleNamespace(is_available=lambda: True, get_device_capability=lambda: capability)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=None)))
    assert measure.fast_half() == dtype


def test_fast_half_without_a_gpu_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False)))
    with pytest.raises(RuntimeError, match="no GPU"):
        measure.fast_half()
