"""Count what kernels load, store and multiply while the interpreter runs them, and stop one that reaches outside.

An access goes to an address, and the tensors that a kernel was launched with own the addresses of their memory. What is
masked out costs nothing. On a GPU there is nothing to patch, so this works in the interpreter alone.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from ledger.kernels.gpu.mode import INTERPRETED, torch


class OutOfBoundsError(IndexError):
    """A kernel reached outside of the tensors that it was launched with; the message names the nearest one."""


@dataclass
class Work:
    """What one kernel did in all its launches: bytes loaded and stored by the pointer argument whose tensor holds them
    (of overlapping tensors the first), and the multiply-adds of ``tl.dot``, padding included."""

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
    from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, InterpreterError

    works: dict[str, Work] = defaultdict(Work)
    spans: dict[str, tuple[int, int, int]] = {}
    work = Work()
    patched = {
        (GridExecutor, "__call__"): None,
        (GridExecutor, "_init_args_hst"): None,
        (InterpreterBuilder, "create_masked_load"): None,
        (InterpreterBuilder, "create_masked_store"): None,
        (InterpreterBuilder, "create_dot"): None,
    }
    patched = {(owner, name): getattr(owner, name) for owner, name in patched}
    call, launch, load, store, dot = patched.values()

    def watched_call(self, *args, **kwargs):
        try:
            return call(self, *args, **kwargs)
        except InterpreterError as error:
            # the interpreter wraps an exception once for each function of Triton that it leaves
            cause = error
            while isinstance(cause, InterpreterError):
                cause = cause.__cause__
            if isinstance(cause, OutOfBoundsError):
                raise cause from None
            raise

    def watched_launch(self, args, kwargs):
        nonlocal work
        here, named = launch(self, args, kwargs)
        tensors = {**dict(zip(self.arg_names, here, strict=False)), **named}
        spans.clear()
        spans.update({name: _span(t) for name, t in tensors.items() if isinstance(t, torch.Tensor) and t.numel()})
        work = works[self.fn.__name__]
        return here, named

    def watched_load(self, ptrs, mask, *rest):
        _note(work.loaded, spans, ptrs, mask, "read")
        return load(self, ptrs, mask, *rest)

    def watched_store(self, ptrs, value, mask, *rest):
        _note(work.stored, spans, ptrs, mask, "wrote")
        return store(self, ptrs, value, mask, *rest)

    def watched_dot(self, a, b, *rest):
        work.macs += a.data.size * b.data.shape[-1]
        return dot(self, a, b, *rest)

    watching = watched_call, watched_launch, watched_load, watched_store, watched_dot
    for (owner, name), fn in zip(patched, watching, strict=True):
        setattr(owner, name, fn)
    try:
        yield works
    finally:
        for (owner, name), fn in patched.items():
            setattr(owner, name, fn)


def _span(tensor: torch.Tensor) -> tuple[int, int, int]:
    """First address, address behind the last element, bytes of an element."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    first, width = tensor.data_ptr(), tensor.element_size()
    return first, first + (reach + 1) * width, width


def _note(counter: Counter[str], spans: Mapping[str, tuple[int, int, int]], ptrs, mask, verb: str) -> None:
    addresses = np.broadcast_to(ptrs.data, mask.data.shape)[mask.data].astype(np.int64).ravel()
    width = ptrs.get_element_ty().primitive_bitwidth // 8
    left = np.ones(len(addresses), bool)
    for name, (first, behind, _) in spans.items():
        inside = left & (addresses >= first) & (addresses + width <= behind)
        if inside.any():
            counter[name] += width * int(inside.sum())
            left &= ~inside
    if left.any():
        address = int(addresses[left][0])
        nearest = min(spans.values(), key=lambda span: min(abs(address - end) for end in span[:2]))
        overlapping = (item for item in spans.items() if item[1][0] < nearest[1] and nearest[0] < item[1][1])
        name, (first, behind, size) = next(overlapping)
        raise OutOfBoundsError(
            f"the kernel {verb} {int(left.sum())} elements outside of its tensors, the first at offset "
            f"{(address - first) // size} of {name}, which has {(behind - first) // size}: mask the access"
        )
