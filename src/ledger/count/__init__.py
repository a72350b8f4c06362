"""Counting real code while it runs: multiply-adds, bytes moved, the largest intermediate.

``count(fn, *args)`` runs ``fn`` once on counted views of its arrays and returns the plain result and ``Counts``. In a
lesson ``with counting() as counts: scores = counts.wrap(queries) @ keys.T`` counts inline.

What an operation counts
------------------------
*Multiply-adds* (``macs``). A product counts one for every point of its index space.

* ``@``, ``matmul``, ``dot``, ``inner``, ``vdot``, ``vecdot``, ``matvec``, ``vecmat``, ``tensordot``: output elements ×
  contracted length. ``linalg.multi_dot``, ``linalg.matrix_power``, ``kron``, ``cov``, ``average``, ``var`` and ``std``
  are counted step by step as they run.
* ``einsum`` of two operands: the product of the sizes of all its labels; of n operands without ``optimize``: that × (n
  − 1), since NumPy then runs over the whole index space; with ``optimize`` each step of ``np.einsum_path`` by itself,
  its intermediate as an array; a size-1 axis stretched to another takes the other's size. One operand is a view, or
  a sum of its elements.
* ``convolve``, ``correlate``: both lengths multiplied. ``outer`` and multiplication element by element (``*``,
  ``square``, ``multiply`` by any method, ``prod``, ``cumprod``): one an element; for a reduction its input elements.
  ``cross``: two an output element; ``linalg.norm`` without ``ord``: one an input element.

``products`` are the calls among these that contract; an outer product and ``*`` are none.

*Elements* (``elementwise``). Every other ufunc (``+``, ``/``, ``exp``, ``**`` …) counts its output elements, and a
reduction, a sort or a search its input elements.

*Bytes*. An operation reads each operand once (an axis that was broadcast is stored once) and writes its result or its
``out``. A view (slices, ``transpose``, most ``reshape``) costs nothing, a copy (fancy indexing, ``concatenate``,
``pad``, ``astype``) reads and writes but has no multiply-adds; picking (``take``, ``a[indices]``) reads what it picks.
Functions that fill an array in place (``copyto``, ``put``) count it whole.

*Arrays*. Each new array that an operation returns is noted with its shape, and so are arrays from ``zeros``,
``empty`` and the like; inputs and views are not, and neither are NumPy's temporary buffers.

A function whose arithmetic is not known (``linalg.solve``, ``fft`` …) counts bytes and is named in ``unpriced``.

What is not seen
----------------
Arithmetic on Python or NumPy scalars, of two arrays that NumPy made plain (``np.random``, a plain array's methods,
closures over arrays), behind ``memoryview`` or an unbound ``np.ndarray.view``, inside SciPy or C. ``left`` names the
ways out that can be noticed; ``was_counted`` tells a count too small to be true. ``np.asarray`` and its kind stay
counted, since they are replaced while a run is counted: for the whole process, so one thread counts at a time, and
other threads' arrays are counted with it.
A counted array is a view, so ``a.resize(...)`` in place raises ValueError where a plain one would grow.

torch
-----
Tensors among the arguments are counted by ``ledger.count.torch_mode``, operator by operator as torch decomposes them;
a judge in a sandbox imports that module beforehand.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ledger.count.counts import Counts, current, find_array, lock, running, was_counted
from ledger.count.memory import peak_bytes
from ledger.count.numpy_arrays import CountedArray, makers_counted, unwrap, wrap

__all__ = [
    "CountedArray",
    "Counts",
    "count",
    "counting",
    "find_array",
    "peak_bytes",
    "unwrap",
    "was_counted",
    "wrap",
]


def count(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> tuple[Any, Counts]:
    """Run ``fn`` once on counted views of its arrays: its result in plain arrays, and what it did.

    Arrays are found in lists, tuples and dicts too; the caller owns copying them. What ``fn`` raises passes through.
    Inside another run the result stays counted.
    """
    while isinstance(fn, functools.partial):
        fn, args, kwargs = fn.func, (*fn.args, *args), {**fn.keywords, **kwargs}
    with _counted(getattr(fn, "__globals__", None), _has_tensor((args, kwargs))) as counts:
        result = fn(*wrap(args), **wrap(kwargs))
    return (unwrap(result) if current() is None else result), counts


@contextmanager
def counting() -> Iterator[Counts]:
    """Count what is done with ``counts.wrap(array)`` inside the block; afterwards such arrays compute as plain ones."""
    with _counted(None, "torch" in sys.modules) as counts:
        yield counts


@contextmanager
def _counted(names: dict[str, Any] | None, with_torch: bool) -> Iterator[Counts]:
    """One run: the lock, NumPy's makers, torch's mode; a run inside another adds to it."""
    counts = Counts()
    with lock, ExitStack() as stack:
        stack.enter_context(makers_counted(names))
        if with_torch or "ledger.count.torch_mode" in sys.modules:
            from ledger.count.torch_mode import tensors_counted

            stack.enter_context(tensors_counted())
        running.append(counts)
        try:
            yield counts
        finally:
            running.pop()
            outer = current()
            if outer is not None:
                outer.add(counts)


def _has_tensor(value: Any) -> bool:
    """Whether a torch tensor is among the arguments; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(value, list | tuple):
        return any(_has_tensor(part) for part in value)
    if isinstance(value, dict):
        return any(_has_tensor(part) for part in value.values())
    return isinstance(value, torch.Tensor)
