"""NumPy arrays that record what is done with them.

Every overridden operation goes one way (``_run``): replace counted operands by plain views of the same memory, run
NumPy's own operation on them, record it, and wrap the arrays that it returns. So values and memory layout are those of
the plain run, bit for bit.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ledger.count.counts import Counts, current
from ledger.count.prices import FREE, GATHERS, PRICES, STEPWISE, Price, ufunc_price

_base_of = np.ndarray.base.__get__
_inside = threading.local()


def _stored(array: np.ndarray) -> int:
    """The bytes of memory that ``array`` covers: an axis that was broadcast is stored once."""
    if 0 not in array.strides:
        return array.nbytes
    elements = array.itemsize
    for size, stride in zip(array.shape, array.strides, strict=True):
        elements *= size if stride or not size else 1
    return elements


def _root(array: np.ndarray) -> np.ndarray:
    """The array at the bottom of a chain of views."""
    while isinstance(_base_of(array), np.ndarray):
        array = _base_of(array)
    return array


def _plain(array: "CountedArray") -> np.ndarray:
    return np.ndarray.view(array, np.ndarray)


class _Operands:
    """The plain views of a call's operands, and the counted arrays that they stand for."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self.counted: dict[int, CountedArray] = {}

    def strip(self, value: Any) -> Any:
        if isinstance(value, CountedArray):
            plain = _plain(value)
            self.counted[id(plain)] = value
            self.arrays.append(plain)
            return plain
        if isinstance(value, np.ndarray):
            self.arrays.append(value)
        elif type(value) in (list, tuple):
            return type(value)([self.strip(part) for part in value])
        return value

    def wrap(self, value: Any, counts: Counts | None) -> Any:
        """A result with its plain arrays counted; an operand that comes back is the caller's own object again."""
        if id(value) in self.counted:
            return self.counted[id(value)]
        if type(value) is np.ndarray:
            return value if counts is None else value.view(CountedArray)
        if isinstance(value, list | tuple):
            parts = [self.wrap(part, counts) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        if isinstance(value, np.ndarray) and counts is not None and not isinstance(value, CountedArray):
            counts.leave(type(value).__name__)
        return value


def _arrays_in(value: Any) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, list | tuple):
        return [array for part in value for array in _arrays_in(part)]
    return []


def _record_bytes(
    counts: Counts, operation: str, inputs: list[np.ndarray], outs: list[np.ndarray], result: Any, computes: bool
) -> None:
    """Record the arrays that an operation created and the bytes that it read and wrote; a view costs neither.

    ``computes`` tells that an operand which comes back was given as the place for the result, not looked at.
    """
    before = counts.bytes_written
    results = _arrays_in(result)
    known = {id(_root(array)) for array in inputs}
    if computes and not outs:
        outs = [array for array in inputs if any(array is part for part in results)]
        inputs = [array for array in inputs if not any(array is out for out in outs)]
    for array in results:
        root = _root(array)
        if any(array is out for out in outs):
            counts.bytes_written += array.nbytes
        elif id(root) not in known and _base_of(root) is None:
            known.add(id(root))
            larger = max(array, root, key=lambda either: either.size)
            counts.create(larger.shape, operation, larger.nbytes)
    if result is None and inputs:
        counts.bytes_written += inputs[0].nbytes
        inputs = inputs[1:]
    written = counts.bytes_written - before
    if results and not written:
        return
    read = [_stored(array) for array in inputs]
    if operation in GATHERS and read:
        read[0] = min(read[0], written)
    counts.bytes_read += sum(read)


def _run(
    operation: str,
    function: Callable[..., Any],
    args: tuple,
    kwargs: dict,
    price: Price | None,
    calls_back: bool = False,
) -> Any:
    """Run ``function`` on plain arrays, record it as ``operation`` at ``price`` and wrap what it returns.

    ``calls_back`` says that the function may run code of the learner's, which must stay counted.
    """
    operands = _Operands()
    args = operands.strip(args)
    out = kwargs.get("out")
    kwargs = {name: operands.strip(value) for name, value in kwargs.items() if name != "out"}
    inputs = list(operands.arrays)
    if out is not None:
        kwargs["out"] = operands.strip(out)
    outs = operands.arrays[len(inputs) :]

    was_inside = getattr(_inside, "numpy", False)
    _inside.numpy = not calls_back
    try:
        result = function(*args, **kwargs)
        counts = current()
        if counts is not None:
            _record_bytes(counts, operation, inputs, outs, result, computes=price is not None)
            if price is not None:
                price(counts, args, kwargs, result)
            if any(array.dtype.hasobject for array in (*inputs, *_arrays_in(result))):
                counts.leave("array of objects")
    finally:
        _inside.numpy = was_inside
    return operands.wrap(result, counts)


def _unpriced(name: str) -> Price:
    return lambda counts, args, kwargs, result: counts.not_priced(name)


def _leave(array: "CountedArray", way: str) -> None:
    """Record that values of ``array`` leave; whole numbers, truth values and texts are indices and names and may."""
    counts = current()
    if counts is not None and array.dtype.kind not in "biuSUmM":
        counts.leave(way)


class CountedArray(np.ndarray):
    """An array whose operations are recorded in the counts of the run in progress.

    Outside a run it computes the same and returns plain arrays.
    """

    __slots__ = ()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        operation = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        return _run(operation, getattr(ufunc, method), inputs, kwargs, ufunc_price(ufunc, method))

    def __array_function__(self, func: Callable, types: Any, args: tuple, kwargs: dict) -> Any:
        if func in STEPWISE and all(issubclass(kind, np.ndarray) for kind in types):
            return super().__array_function__(func, types, args, kwargs)
        if func in FREE:
            return func(*_Operands().strip(args), **{name: _Operands().strip(v) for name, v in kwargs.items()})
        name = func.__name__
        return _run(name, func, args, kwargs, PRICES[func] if func in PRICES else _unpriced(name))

    def __getitem__(self, key: Any) -> Any:
        result = _run("getitem", np.ndarray.__getitem__, (self, key), {}, None)
        if not isinstance(result, np.ndarray):
            _leave(self, "scalar indexing")
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        operands = _Operands()
        target, key, value = operands.strip((self, key, value))
        np.ndarray.__setitem__(target, key, value)
        counts = current()
        if counts is not None:
            counts.bytes_written += np.size(target[key]) * target.itemsize
            counts.bytes_read += sum(_stored(array) for array in operands.arrays[1:])

    def __iter__(self) -> Iterator:
        if self.ndim == 1:
            _leave(self, "iteration over scalars")
        return super().__iter__()

    @property
    def data(self) -> memoryview:
        _leave(self, "memoryview")
        return _plain(self).data

    @property
    def ctypes(self) -> Any:
        _leave(self, "ctypes")
        return _plain(self).ctypes

    @property
    def __array_interface__(self) -> dict:
        _leave(self, "__array_interface__")
        return _plain(self).__array_interface__

    @property
    def flat(self) -> Any:
        _leave(self, "flat")
        return _plain(self).flat

    @flat.setter
    def flat(self, values: Any) -> None:
        operands = _Operands()
        _plain(self).flat = operands.strip(values)
        counts = current()
        if counts is not None:
            counts.bytes_written += self.nbytes
            counts.bytes_read += sum(_stored(array) for array in operands.arrays)

    @property
    def base(self) -> Any:
        """The array that this one is a view of, counted too."""
        base = _base_of(self)
        return _Operands().wrap(base, current()) if base is not None else None

    def sort(self, *args: Any, **kwargs: Any) -> None:
        _run("sort", np.ndarray.sort, (self, *args), kwargs, PRICES[np.sort])

    def partition(self, *args: Any, **kwargs: Any) -> None:
        _run("partition", np.ndarray.partition, (self, *args), kwargs, PRICES[np.partition])

    def __repr__(self) -> str:
        return repr(_plain(self))

    def __str__(self) -> str:
        return str(_plain(self))


def _method(name: str, price: Price | None) -> Callable:
    """A method that runs ``np.ndarray``'s own as one recorded operation."""
    original = getattr(np.ndarray, name)

    @functools.wraps(original)
    def method(self: CountedArray, *args: Any, **kwargs: Any) -> Any:
        return _run(name.strip("_"), original, (self, *args), kwargs, price)

    return method


def _leaving(name: str, way: str) -> Callable:
    """A method that hands out values, which is noted."""
    original = getattr(np.ndarray, name)

    @functools.wraps(original)
    def method(self: CountedArray, *args: Any, **kwargs: Any) -> Any:
        _leave(self, way)
        return original(self, *args, **kwargs)

    return method


_LEAVING_METHODS = {
    "__float__": "float()",
    "__int__": "int()",
    "__complex__": "complex()",
    "__reduce_ex__": "pickle",
    **{name: name for name in ("dump", "dumps", "item", "tobytes", "tofile", "tolist")},
}
_MOVING_METHODS = (
    "__array__ __copy__ __deepcopy__ astype byteswap choose compress copy diagonal fill flatten getfield put"
    " ravel repeat reshape squeeze swapaxes take transpose view"
)
_COMPUTING_METHODS = (
    "all any argmax argmin argpartition argsort clip cumprod cumsum dot max mean min nonzero prod round searchsorted"
    " sum trace"
)
for _name, _way in _LEAVING_METHODS.items():
    setattr(CountedArray, _name, _leaving(_name, _way))
for _name in _MOVING_METHODS.split():
    setattr(CountedArray, _name, _method(_name, None))
for _name in _COMPUTING_METHODS.split():
    setattr(CountedArray, _name, _method(_name, PRICES[getattr(np, _name)]))


def wrap(value: Any) -> Any:
    """``value`` with its plain arrays, also those in lists, tuples and dicts, replaced by counted views of them."""
    return _each(value, lambda array: array.view(CountedArray) if type(array) is np.ndarray else array)


def unwrap(value: Any) -> Any:
    """``value`` with its counted arrays, at any depth of lists, tuples and dicts, replaced by plain ones."""
    return _each(value, _bare)


def _bare(array: np.ndarray) -> np.ndarray:
    """The plain array behind ``array``: the very object that was wrapped, where there is one."""
    if not isinstance(array, CountedArray):
        return array
    base, plain = _base_of(array), _plain(array)
    same = type(base) is np.ndarray and base.__array_interface__ == plain.__array_interface__
    return base if same else plain


def _each(value: Any, change: Callable[[np.ndarray], np.ndarray]) -> Any:
    if isinstance(value, np.ndarray):
        return change(value)
    kind = type(value)
    if kind in (list, tuple):
        return kind([_each(part, change) for part in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*(_each(part, change) for part in value))
    if kind is dict:
        return {key: _each(part, change) for key, part in value.items()}
    return value


#: Functions that make arrays of anything without asking the class of their arguments.
_MAKERS = (
    "arange array asanyarray asarray asarray_chkfinite ascontiguousarray asfortranarray broadcast_to copy diag_indices"
    " empty empty_like eye frombuffer from_dlpack fromfile fromfunction fromiter fromstring full full_like geomspace"
    " genfromtxt identity indices linspace load loadtxt logspace mask_indices meshgrid ones ones_like require tri"
    " tril_indices triu_indices zeros zeros_like"
)
#: Those of them that run code of the learner's.
_CALLS_BACK = ("fromfunction", "fromiter")


def _maker(name: str) -> Callable:
    """NumPy's ``name`` returning counted arrays, except while NumPy itself calls it."""
    original = getattr(np, name)

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        if current() is None or getattr(_inside, "numpy", False):
            return original(*args, **kwargs)
        return _run(name, original, args, kwargs, None, calls_back=name in _CALLS_BACK)

    return make


def _walker(name: str) -> Callable:
    """NumPy's iterator ``name``, which hands out plain values."""
    original = getattr(np, name)

    @functools.wraps(original, updated=())
    def walk(*args: Any, **kwargs: Any) -> Any:
        for array in _arrays_in(args):
            if isinstance(array, CountedArray):
                _leave(array, name)
        return original(*_Operands().strip(args), **kwargs)

    return walk


def _as_strided(*args: Any, **kwargs: Any) -> Any:
    return _run("as_strided", _plain_as_strided, args, kwargs, None)


_plain_as_strided = np.lib.stride_tricks.as_strided
_REPLACED: list[tuple[Any, str, Callable, Callable]] = [
    *((np, name, getattr(np, name), _maker(name)) for name in _MAKERS.split()),
    *((np, name, getattr(np, name), _walker(name)) for name in ("nditer", "ndenumerate")),
    (np.lib.stride_tricks, "as_strided", _plain_as_strided, _as_strided),
]
_COUNTED_TWIN = {id(original): twin for _, _, original, twin in _REPLACED}


@contextmanager
def makers_counted(names: dict[str, Any] | None = None) -> Iterator[None]:
    """While open, NumPy's functions that make arrays return counted ones.

    ``names`` are the global names of the code to run: those bound to such a function (``from numpy import array``) are
    replaced too. Everything is put back at the end, whatever happens.
    """
    before = [(module, name, getattr(module, name)) for module, name, _, _ in _REPLACED]
    names = {} if names is None else names
    imported = {name: value for name, value in names.items() if id(value) in _COUNTED_TWIN}
    try:
        for module, name, _, twin in _REPLACED:
            setattr(module, name, twin)
        names.update({name: _COUNTED_TWIN[id(value)] for name, value in imported.items()})
        yield
    finally:
        for module, name, original in before:
            setattr(module, name, original)
        for name, value in imported.items():
            if names.get(name) is _COUNTED_TWIN[id(value)]:
                names[name] = value
