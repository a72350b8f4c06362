"""Counting torch code: every operator below autograd, as torch decomposes it, gives the same record as NumPy's.

``matmul``, ``einsum``, ``linear`` and the like reach the mode as ``mm``, ``bmm`` and their kin. A result that shares
the storage of an operand is a view or written in place. An operator whose arithmetic is not known is named in
``Counts.unpriced``. Fused kernels (scaled_dot_product_attention) count the two products of dense attention and none
of their temporaries.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ledger.count.counts import Counts, current
from ledger.count.numpy_arrays import wrap

Price = Callable[[Counts, tuple, dict, Any], None]


def _matrices(first: int, second: int) -> Price:
    """The price of a product whose operands are the arguments number ``first`` and ``second``."""

    def price(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
        left, right = args[first], args[second]
        rows = math.prod(left.shape[:-1]) if left.dim() > 1 else 1
        columns = right.shape[-1] if right.dim() > 1 else 1
        counts.product(rows * left.shape[-1] * columns)

    return price


def _attention(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    query, key, value = args[:3]  # [..., s, d], [..., t, d], [..., t, v]
    points = math.prod(query.shape[:-1]) * key.shape[-2]
    counts.product(points * query.shape[-1])
    counts.product(points * value.shape[-1])


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _elements(value: Any) -> int:
    return sum(tensor.numel() for tensor in _tensors(value))


def _multiply_outputs(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    counts.macs += _elements(result)


def _multiply_inputs(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    counts.macs += _elements(args[:1])


def _each_output(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    counts.elementwise += _elements(result)


def _each_input(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    counts.elementwise += _elements(args[:1])


_MULTIPLY = "mul addcmul square"
_MULTIPLY_ALONG = "prod cumprod linalg_vector_norm"
_REDUCE = (
    "all any amax amin aminmax argmax argmin argsort bincount bucketize count_nonzero cummax cummin cumsum histc"
    " isin kthvalue logcumsumexp logsumexp max mean median min mode msort nansum nonzero searchsorted sort std std_mean"
    " sum topk trace unique unique2 unique_dim var var_mean softmax log_softmax safe_softmax native_layer_norm"
    " fused_rms_norm native_group_norm equal norm unique_consecutive allclose nll_loss_forward"
)
_POINTWISE = "arange gelu index_add index_reduce lerp linspace logspace polar rsub scatter_add scatter_reduce silu"
_MOVE = (
    "alias alias_copy as_strided block_diag cat clone constant_pad_nd copy detach diag_embed embedding empty empty_like"
    " empty_permuted empty_strided expand eye fill fill_diagonal flip full full_like gather index index_copy index_fill"
    " index_put index_put_impl index_select lift lift_fresh local_scalar_dense masked_fill masked_scatter masked_select"
    " new_empty new_empty_strided new_full new_ones new_zeros ones ones_like permute put repeat"
    " repeat_interleave reshape_alias resize roll scalar_tensor scatter select_scatter slice_scatter set slice split"
    " stack take to_copy tril triu tril_indices triu_indices unfold unsafe_view view where zero zeros zeros_like"
    " rand rand_like randn randn_like randint randperm normal uniform bernoulli exponential multinomial"
)

PRICES: dict[str, Price | None] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "int_mm"), _matrices(0, 1)),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm", "addmv", "addmm_activation"), _matrices(1, 2)),
    **dict.fromkeys(("ger", "outer"), _multiply_outputs),
    **dict.fromkeys(
        [
            f"scaled_dot_product_{kind}"
            for kind in (
                "flash_attention",
                "flash_attention_for_cpu",
                "efficient_attention",
                "cudnn_attention",
                "fused_attention_overrideable",
            )
        ],
        _attention,
    ),
    **dict.fromkeys(_MULTIPLY.split(), _multiply_outputs),
    **dict.fromkeys(_MULTIPLY_ALONG.split(), _multiply_inputs),
    **dict.fromkeys(_REDUCE.split(), _each_input),
    **dict.fromkeys(_POINTWISE.split(), _each_output),
    **dict.fromkeys(_MOVE.split(), None),
}
#: Operators that read only what they pick, not the whole of their first tensor.
GATHERS = frozenset(["embedding", "gather", "index", "index_select", "masked_select", "take"])


def _price(func: Any, name: str) -> Price | None:
    """What ``func`` costs: by its name, else by torch's own tags, else unknown."""
    if name in PRICES:
        return PRICES[name]
    if torch.Tag.pointwise in func.tags:
        return _each_output
    if torch.Tag.reduction in func.tags:
        return _each_input
    return lambda counts, args, kwargs, result: counts.not_priced(name)


def _stored(tensor: torch.Tensor) -> int:
    """The bytes of memory that ``tensor`` covers: an axis that was expanded is stored once."""
    axes = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(size for size, stride in axes if stride or not size) * tensor.element_size()


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _record_bytes(counts: Counts, name: str, inputs: list, outs: list, results: list, writes: bool) -> bool:
    """Record the tensors that an operator created and the bytes it read and wrote; whether it did more than a view."""
    before = counts.bytes_written
    known = {_memory(tensor) for tensor in (*inputs, *outs)}
    for tensor in results:
        if _memory(tensor) not in known:
            known.add(_memory(tensor))
            counts.create(tuple(tensor.shape), name, tensor.numel() * tensor.element_size())
        elif writes:
            counts.bytes_written += tensor.numel() * tensor.element_size()
    written = counts.bytes_written - before
    if results and not written:
        return False
    read = [_stored(tensor) for tensor in inputs]
    if name in GATHERS and read:
        read[0] = min(read[0], written)
    counts.bytes_read += sum(read)
    return True


class _CountingMode(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Without torch's compiler around it: that needs a cache to write to, which a jailed answer does not have."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2].strip("_")
        inputs = _tensors((args, {key: value for key, value in kwargs.items() if key != "out"}))
        outs = _tensors(kwargs.get("out"))
        result = func(*args, **kwargs)
        counts = current()
        if counts is not None:
            price = _price(func, name)
            works = _record_bytes(counts, name, inputs, outs, _tensors(result), func._schema.is_mutable)
            if works and price is not None:
                price(counts, args, kwargs, result)
            if name == "local_scalar_dense" and args[0].is_floating_point():
                counts.leave("item")
        return result


def _numpy(self: torch.Tensor, *args: Any, **kwargs: Any) -> np.ndarray:
    return wrap(torch._C.TensorBase.numpy(self, *args, **kwargs))


def _tolist(self: torch.Tensor) -> Any:
    counts = current()
    if counts is not None and self.is_floating_point():
        counts.leave("tolist")
    return torch._C.TensorBase.tolist(self)


_open = 0


@contextmanager
def tensors_counted() -> Iterator[None]:
    """While open, torch's operators add to the counts of the run in progress."""
    global _open
    if _open:
        yield
        return
    _open += 1
    torch.Tensor.numpy, torch.Tensor.tolist = _numpy, _tolist
    try:
        with _CountingMode():
            yield
    finally:
        _open -= 1
        del torch.Tensor.numpy, torch.Tensor.tolist
