"""Count what kernels load, store and multiply while the interpreter runs them, and stop one that reaches outside.

An access goes to an address, which is made of a pointer argument, and must lie in that argument's tensor. What is
masked out costs nothing. An atomic operation is a load and a store. On a GPU there is nothing to patch, so this works
in the interpreter alone.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np

from ledger.kernels.interpret.mode import INTERPRETED, tl, torch


class OutOfBoundsError(IndexError):
    """A kernel reached outside of the tensor whose pointer it used, be it into another one; the message names that
    tensor and gives the offsets from its first element."""


@dataclass
class Work:
    """What one kernel did in all its launches: bytes loaded and stored through each pointer argument, and the
    multiply-adds of ``tl.dot``, padding included."""

    loaded: Counter[str] = field(default_factory=Counter)
    stored: Counter[str] = field(default_factory=Counter)
    macs: int = 0


@contextmanager
def watched() -> Iterator[Mapping[str, Work]]:
    """Watch every kernel that is launched in the block; its ``Work`` by the kernel's name.

    Raises OutOfBoundsError at the access, RuntimeError where kernels are not interpreted.
    """
    if not INTERPRETED:
        raise RuntimeError("loads and stores are seen in Triton's interpreter alone: set TRITON_INTERPRET=1")
    from triton.runtime import interpreter
    from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, InterpreterError, TensorHandle

    works: dict[str, Work] = defaultdict(Work)
    spans: dict[str, tuple[int, int, int]] = {}
    named: dict[int, str] = {}
    work = Work()
    patched = {
        (GridExecutor, "__call__"): None,
        (GridExecutor, "_init_args_hst"): None,
        (interpreter, "_implicit_cvt"): None,
        (InterpreterBuilder, "create_masked_load"): None,
        (InterpreterBuilder, "create_masked_store"): None,
        (InterpreterBuilder, "create_atomic_rmw"): None,
        (InterpreterBuilder, "create_atomic_cas"): None,
        (InterpreterBuilder, "create_dot"): None,
    }
    patched = {(owner, name): getattr(owner, name) for owner, name in patched}
    call, launch, convert, load, store, change, swap, dot = patched.values()

    def watched_call(self, *args, **kwargs):
        try:
            return call(self, *args, **kwargs)
        except InterpreterError as error:
            cause = unwrapped(error)
            if isinstance(cause, OutOfBoundsError):
                raise cause from None
            raise

    def watched_launch(self, args, kwargs):
        nonlocal work
        here, by_name = launch(self, args, kwargs)
        arguments = {**dict(zip(self.arg_names, here, strict=False)), **by_name}
        tensors = {
            name: value for name, value in arguments.items() if isinstance(value, torch.Tensor) and value.numel()
        }
        spans.clear()
        spans.update({name: _span(tensor) for name, tensor in tensors.items()})
        named.clear()
        named.update({id(tensor): name for name, tensor in tensors.items()})
        work = works[self.fn.__name__]
        return here, by_name

    def watched_convert(argument):
        """A pointer's type goes along with everything that is made of the pointer, so it can carry a name."""
        made = convert(argument)
        if id(argument) in named:
            made.handle.dtype.argument = named[id(argument)]
        return made

    def watched_load(self, ptrs, mask, *rest):
        _note(work.loaded, spans, ptrs, mask, "read")
        return load(self, ptrs, mask, *rest)

    def watched_store(self, ptrs, value, mask, *rest):
        _note(work.stored, spans, ptrs, mask, "wrote")
        return store(self, ptrs, value, mask, *rest)

    def watched_change(self, operation, ptrs, value, mask, *rest):
        _note(work.loaded, spans, ptrs, mask, "read")
        _note(work.stored, spans, ptrs, mask, "wrote")
        return change(self, operation, ptrs, value, mask, *rest)

    def watched_swap(self, ptrs, *rest):
        everything = TensorHandle(np.ones_like(ptrs.data, dtype=bool), tl.int1)
        _note(work.loaded, spans, ptrs, everything, "read")
        _note(work.stored, spans, ptrs, everything, "wrote")
        return swap(self, ptrs, *rest)

    def watched_dot(self, a, b, *rest):
        work.macs += a.data.size * b.data.shape[-1]
        return dot(self, a, b, *rest)

    watching = watched_call, watched_launch, watched_convert, watched_load, watched_store
    watching += watched_change, watched_swap, watched_dot
    for (owner, name), fn in zip(patched, watching, strict=True):
        setattr(owner, name, fn)
    try:
        yield works
    finally:
        for (owner, name), fn in patched.items():
            setattr(owner, name, fn)


def unwrapped(error: BaseException) -> BaseException:
    """What a kernel raised, from the ``InterpreterError`` that Triton's interpreter wraps it in once for each function
    of its own that it leaves; its traceback then goes all the way, through the kernel's own lines."""
    from triton.runtime.errors import InterpreterError

    steps = []
    while True:
        trace = error.__traceback__
        while trace is not None:
            steps.append((trace.tb_frame, trace.tb_lasti, trace.tb_lineno))
            trace = trace.tb_next
        if not isinstance(error, InterpreterError) or error.__cause__ is None:
            break
        error = error.__cause__
    for step in reversed(steps):
        trace = TracebackType(trace, *step)
    return error.with_traceback(trace)


def _span(tensor: torch.Tensor) -> tuple[int, int, int]:
    """First address, address behind the last element, bytes of an element."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    first, width = tensor.data_ptr(), tensor.element_size()
    return first, first + (reach + 1) * width, width


def _note(counter: Counter[str], spans: Mapping[str, tuple[int, int, int]], ptrs, mask, verb: str) -> None:
    # a mask that a scalar went into holds integers
    addresses = np.broadcast_to(ptrs.data, mask.data.shape)[mask.data.astype(bool)].astype(np.int64)
    width = ptrs.get_element_ty().primitive_bitwidth // 8
    source = getattr(ptrs.dtype, "argument", None)
    left = np.ones(len(addresses), bool)
    for name, (first, behind, _) in spans.items() if source is None else [(source, spans[source])]:
        inside = left & (addresses >= first) & (addresses + width <= behind)
        if inside.any():
            counter[name] += width * int(inside.sum())
            left &= ~inside
    if left.any():
        addresses = addresses[left]
        name = source or _nearest(spans, int(addresses[0]))
        first, behind, size = spans[name]
        offset, *further = ((addresses - first) // size).tolist()
        then = f" (then {', '.join(map(str, further[:3]))}{' …' * (len(further) > 3)})" if further else ""
        raise OutOfBoundsError(
            f"the kernel {verb} {len(addresses)} elements outside of its tensors, the first at offset {offset} of "
            f"{name}, which has {(behind - first) // size}: mask the access{then}"
        )


def _nearest(spans: Mapping[str, tuple[int, int, int]], address: int) -> str:
    """Of the tensors that overlap the one nearest to an address the first, for a pointer that came from none."""
    nearest = min(spans.values(), key=lambda span: min(abs(address - end) for end in span[:2]))
    return next(name for name, span in spans.items() if span[0] < nearest[1] and nearest[0] < span[1])
