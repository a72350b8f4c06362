"""What this machine is, and what of the course it can run."""

import importlib
import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

#: Bytes below which a lesson's largest arrays and an open JupyterLab crowd each other.
SMALL_MEMORY = 4e9
#: What the libraries under NumPy's products read, at its import, for the number of threads; the first one set holds.
THREAD_LIMITS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


class Row(NamedTuple):
    """One line of the description: a part of the machine, and its state with what that lets a learner do."""

    what: str
    state: str


def describe_machine() -> list[Row]:
    """Python, NumPy, cores, memory, torch, CUDA device, Triton, WebGPU and browser, read from this machine as it is.

    Imports torch where it is installed, because only torch can say whether it sees a GPU.
    """
    in_browser = sys.platform == "emscripten"
    torch = find_torch()
    gpu = torch is not None and torch.cuda.is_available()
    return [
        Row("Python", f"{platform.python_version()} on {platform.system() or sys.platform} {platform.machine()}"),
        Row("NumPy", f"{np.__version__}: predicts, counts and measures; all that most lessons need"),
        Row("CPU cores", _cores_state(in_browser)),
        Row("memory", _memory_state()),
        Row("torch", _torch_state(torch, in_browser)),
        Row("CUDA device", _cuda_state(torch, gpu, in_browser)),
        Row("Triton", _triton_state(gpu, in_browser)),
        Row("WebGPU", _webgpu_state()),
        Row("browser", _browser_state(in_browser)),
    ]


def processor() -> str:
    """The processor's name, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "an unknown processor"
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, "an unknown processor")


def find_torch() -> Any:
    """torch where it is installed and loads on this machine, otherwise None."""
    try:
        return importlib.import_module("torch")
    except (ImportError, OSError):
        return None


def fast_half() -> str:
    """The name of the 16-bit dtype for this machine's GPU: ``"bfloat16"``, or ``"float16"`` where bf16 is emulated.

    Tensor cores multiply bf16 from compute capability 8.0 on (Ampere); a T4 has 7.5. RuntimeError without a GPU.
    """
    torch = find_torch()
    if torch is None or not torch.cuda.is_available():
        raise RuntimeError("torch finds no GPU on this machine")
    return "bfloat16" if torch.version.hip or torch.cuda.get_device_capability() >= (8, 0) else "float16"


def _cores_state(in_browser: bool) -> str:
    if in_browser:
        return "1: a browser gives Python one thread"
    cores = _cores()
    if not cores:
        return "unknown"
    for name in THREAD_LIMITS:
        if (threads := os.environ.get(name, "")).isdecimal():
            return f"{cores}: {name} keeps NumPy's products to {threads}, its other operations run on one"
    return f"{cores}: products run on all of them, NumPy's other operations on one"


def _cores() -> int | None:
    """Cores that this process may use, where the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _memory_state() -> str:
    memory = _memory_bytes()
    if memory is None:
        return "unknown: start with small sizes"
    if memory < SMALL_MEMORY:
        return f"{memory / 1e9:.1f} GB: little; close other programs before a cell at a model's full widths"
    return f"{memory / 1e9:.1f} GB: arrays at a model's full widths fit"


def _memory_bytes() -> int | None:
    """Physical memory in bytes, where the system tells."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    return memory if memory > 0 else None


def _torch_state(torch: Any, in_browser: bool) -> str:
    if torch is not None:
        return f"{torch.__version__}: torch cells and torch exercises run"
    if in_browser:
        return "not in a browser: torch cells show what they gave elsewhere; to run them: 'make lab' on a computer"
    return "not installed, or not for this machine: torch cells are skipped; 'make setup' installs it"


def _cuda_state(torch: Any, gpu: bool, in_browser: bool) -> str:
    if gpu:
        device = torch.cuda.get_device_properties(0)
        return f"{device.name}, {device.total_memory / 1e9:.1f} GB: kernels run at full size and are measured"
    if in_browser:
        return "not in a browser: kernels run through WebGPU where the browser has it"
    if torch is not None and torch.version.cuda is None:
        return (
            "none that torch can use (a CPU build): kernels run interpreted, at a reduced size; "
            "with an NVIDIA GPU, 'make clean setup TORCH_INDEX=URL' installs a CUDA build"
        )
    return "none: kernels run interpreted, at a reduced size, and GPU times are recorded ones with their source"


def _triton_state(gpu: bool, in_browser: bool) -> str:
    if in_browser:
        return "not in a browser: the same kernels run in NumPy, or in WGSL through WebGPU"
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return "not installed (it is made for Linux): the same kernels run in NumPy; on Linux, 'make setup' installs it"
    if gpu:
        return f"{version}: compiles the kernels for the GPU"
    return f"{version}: runs the kernels in its interpreter (TRITON_INTERPRET=1)"


def _webgpu_state() -> str:
    from ledger.kernels import web

    return web.available() or f"{web.adapter_name()}: the WGSL kernels run on it"


def _browser_state(in_browser: bool) -> str:
    if in_browser:
        return "yes (Pyodide): everything in NumPy runs; download_answers() takes your answers out"
    return "no: Python runs on this computer"
