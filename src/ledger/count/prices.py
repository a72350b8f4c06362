"""What each NumPy operation costs: multiply-adds and elements from its operands and its result.

A price is a function of (counts, args, kwargs, result) that adds arithmetic to the counts; bytes and new arrays are
recorded elsewhere, for all operations alike. ``args`` and ``kwargs`` hold plain arrays.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ledger.count.counts import Counts

Price = Callable[[Counts, tuple, dict, Any], None]


def _pair(args: tuple, kwargs: dict) -> tuple[Any, Any]:
    """The two operands, by position or by name."""
    named = [kwargs[name] for name in ("a", "b", "x1", "x2") if name in kwargs]
    return tuple([*args, *named][:2])


def _first(args: tuple, kwargs: dict) -> Any:
    return args[0] if args else next(iter(kwargs.values()))


def _inner_length(ufunc: np.ufunc, args: tuple, kwargs: dict) -> int:
    """The contracted length of matmul, vecdot, matvec or vecmat: the last core axis of the first operand."""
    if "axes" in kwargs:
        core = kwargs["axes"][0]
        axis = core if isinstance(core, int) else core[-1]
    else:
        axis = kwargs.get("axis", -1)
    return np.shape(args[0])[axis]


def ufunc_price(ufunc: np.ufunc, method: str) -> Price:
    """The price of ``ufunc`` called by ``method`` ("__call__", "reduce", "accumulate", "reduceat", "outer", "at")."""

    def price(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
        if ufunc.signature is not None:
            if ufunc in (np.matmul, np.vecdot, np.matvec, np.vecmat):
                counts.product(np.size(result) * _inner_length(ufunc, args, kwargs))
            else:
                counts.not_priced(ufunc.__name__)
            return
        if method in ("reduce", "reduceat"):
            elements = np.size(args[0])
        elif method == "at":
            elements = np.size(np.asarray(args[0])[args[1]])
        elif isinstance(result, tuple):
            elements = sum(np.size(part) for part in result)
        else:
            elements = np.size(result)
        if ufunc in (np.multiply, np.square):
            counts.macs += elements
        else:
            counts.elementwise += elements

    return price


def _dot(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    a, b = _pair(args, kwargs)
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        counts.macs += np.size(result)
    else:
        counts.product(np.size(result) * np.shape(a)[-1])


def _vdot(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    counts.product(np.size(_pair(args, kwargs)[0]))


def _linalg_matmul(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    counts.product(np.size(result) * np.shape(_pair(args, kwargs)[0])[-1])


def _linalg_vecdot(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    counts.product(np.size(result) * np.shape(_pair(args, kwargs)[0])[kwargs.get("axis", -1)])


def _tensordot(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    shape = np.shape(_pair(args, kwargs)[0])
    axes = kwargs.get("axes", args[2] if len(args) > 2 else 2)
    if np.ndim(axes) == 0:
        contracted = shape[len(shape) - int(axes) :]
    else:
        contracted = [shape[axis] for axis in np.atleast_1d(axes[0])]
    if len(contracted):
        counts.product(np.size(result) * math.prod(contracted))
    else:
        counts.macs += np.size(result)


def _convolve(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    a, v = [*args, *(kwargs[name] for name in ("a", "v") if name in kwargs)][:2]
    counts.product(np.size(a) * np.size(v))


def _outer(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    counts.macs += np.size(result)


def _cross(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    counts.macs += 2 * np.size(result)


def _norm(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    order = kwargs.get("ord", args[1] if len(args) > 1 else None)
    if order is None:
        counts.macs += np.size(_first(args, kwargs))
    else:
        counts.not_priced("norm")


def _vector_norm(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    if kwargs.get("ord", 2) == 2:
        counts.macs += np.size(_first(args, kwargs))
    else:
        counts.not_priced("vector_norm")


def _terms(args: tuple) -> tuple[list[list], list | None, list]:
    """The labels of each operand, those of the output (None: implied) and the operands, of either form of einsum.

    A label is a letter or a number; an ellipsis stands as ``Ellipsis``.
    """
    if isinstance(args[0], str):
        inputs, arrow, output = args[0].replace(" ", "").partition("->")
        texts = inputs.split(",")
        split = [list(text.replace("...", ".")) for text in (*texts, output)]
        labels = [[Ellipsis if label == "." else label for label in term] for term in split]
        return labels[:-1], labels[-1] if arrow else None, list(args[1:])
    pairs = len(args) // 2
    operands = [args[2 * i] for i in range(pairs)]
    labels = [list(args[2 * i + 1]) for i in range(pairs)]
    return labels, list(args[-1]) if len(args) % 2 else None, operands


def _spread(term: list, dims: int) -> list:
    """``term`` with its ellipsis spelled out as negative places counted from the right."""
    if Ellipsis not in term:
        return term
    at = term.index(Ellipsis)
    free = dims - (len(term) - 1)
    return [*term[:at], *(("...", place) for place in range(-free, 0)), *term[at + 1 :]]


def _einsum(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    terms, output, operands = _terms(args)
    terms = [_spread(term, np.ndim(operand)) for term, operand in zip(terms, operands, strict=True)]
    sizes: dict[Any, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        for label, size in zip(term, np.shape(operand), strict=True):
            if size != 1 or label not in sizes:
                sizes[label] = size
    if output is None:
        every = [label for term in terms for label in term]
        kept = {label for label in every if isinstance(label, tuple) or every.count(label) == 1}
    else:
        kept = {label for label in output if label is not Ellipsis}
        if Ellipsis in output:
            kept |= {label for label in sizes if isinstance(label, tuple)}

    pending = [set(term) for term in terms]
    if kwargs.get("optimize", False) is False:
        path = [tuple(range(len(pending)))]
    else:
        path = np.einsum_path(*args, optimize=kwargs["optimize"])[0][1:]
    itemsize = np.result_type(*operands).itemsize
    for number, step in enumerate(path):
        parts = [pending.pop(place) for place in sorted(step, reverse=True)]
        space = set().union(*parts)
        stay = space & kept.union(*pending)
        pending.append(stay)
        points = math.prod(sizes[label] for label in space)
        if len(parts) == 1:
            counts.elementwise += points if space != stay else 0
        elif space != stay:
            counts.product(points * (len(parts) - 1))
        else:
            counts.macs += points * (len(parts) - 1)
        if number < len(path) - 1:
            shape = tuple(sorted(sizes[label] for label in stay))
            counts.create(shape, "einsum", math.prod(shape) * itemsize)
            counts.bytes_read += math.prod(shape) * itemsize


def _each_input(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    counts.elementwise += np.size(_first(args, kwargs))


def _each_output(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    parts = result if isinstance(result, list | tuple) else [result]
    counts.elementwise += sum(np.size(part) for part in parts)


def _multiply_inputs(counts: Counts, args: tuple, kwargs: dict, result: Any) -> None:
    counts.macs += np.size(_first(args, kwargs))


def _named(module: Any, names: str) -> list[Callable]:
    """The functions of ``module`` called ``names``, without those that this NumPy does not have."""
    return [getattr(module, name) for name in names.split() if hasattr(module, name)]


def _table(*rows: tuple[Price | None, Iterable[Callable]]) -> dict[Callable, Price | None]:
    return {function: price for price, functions in rows for function in functions}


_REDUCTIONS = (
    "all amax amin any argmax argmin count_nonzero cumsum cumulative_sum max mean min nansum nanmax nanmin nanmean"
    " nanargmax nanargmin nancumsum ptp sum trace median nanmedian percentile nanpercentile quantile nanquantile"
)
_SORTS = (
    "argpartition argsort lexsort partition searchsorted sort sort_complex unique unique_all unique_counts"
    " unique_inverse unique_values nonzero argwhere flatnonzero isin intersect1d union1d setdiff1d setxor1d bincount"
    " digitize histogram histogram_bin_edges allclose array_equal array_equiv"
)
_POINTWISE = (
    "angle around clip diff ediff1d fix gradient i0 interp isclose iscomplex isneginf isposinf isreal nan_to_num"
    " real_if_close round sinc unwrap linspace logspace geomspace"
)
_MOVES = (
    "append array_split astype atleast_1d atleast_2d atleast_3d block broadcast_arrays broadcast_to choose column_stack"
    " compress concat concatenate copy copyto delete diag diagflat diagonal diag_indices_from dsplit dstack empty_like"
    " expand_dims extract fill_diagonal flip fliplr flipud full_like hsplit hstack imag insert ix_ matrix_transpose"
    " meshgrid moveaxis ones_like packbits pad permute_dims place put put_along_axis putmask ravel ravel_multi_index"
    " real repeat reshape resize roll rollaxis rot90 select split squeeze stack swapaxes take take_along_axis tile"
    " transpose tril tril_indices_from trim_zeros triu triu_indices_from unpackbits unravel_index unstack vsplit vstack"
    " where zeros_like"
)

#: The price of each function that NumPy lets a subclass override; None for those that only move data.
PRICES: dict[Callable, Price | None] = _table(
    (_dot, [np.dot, np.inner]),
    (_vdot, [np.vdot]),
    (_tensordot, [np.tensordot, np.linalg.tensordot]),
    (_einsum, [np.einsum]),
    (_linalg_matmul, [np.linalg.matmul]),
    (_linalg_vecdot, [np.linalg.vecdot]),
    (_convolve, [np.convolve, np.correlate]),
    (_outer, [np.outer, np.linalg.outer]),
    (_cross, [np.cross, np.linalg.cross]),
    (_norm, [np.linalg.norm]),
    (_vector_norm, [np.linalg.vector_norm]),
    (_multiply_inputs, _named(np, "prod cumprod cumulative_prod nanprod nancumprod")),
    (_each_input, [*_named(np, _REDUCTIONS), *_named(np, _SORTS), np.linalg.trace]),
    (_each_output, _named(np, _POINTWISE)),
    (None, [*_named(np, _MOVES), *_named(np.linalg, "diagonal matrix_transpose")]),
    (None, [np.lib.stride_tricks.sliding_window_view, *_named(np.fft, "fftshift ifftshift")]),
)

#: Functions that ask about an array or print it; they cost nothing.
FREE = frozenset(
    _named(
        np,
        "array2string array_repr array_str can_cast common_type einsum_path iscomplexobj isrealobj may_share_memory"
        " min_scalar_type ndim result_type shape shares_memory size",
    )
)

#: Functions written in Python that keep a subclass, so that their own steps are counted one by one.
STEPWISE = frozenset(
    [
        *_named(np, "apply_along_axis apply_over_axes average corrcoef cov kron piecewise polyval std trapezoid var"),
        *_named(np.linalg, "multi_dot matrix_power"),
    ]
)

#: Functions that read only what they pick, not the whole of their first array.
GATHERS = frozenset(["choose", "compress", "extract", "getitem", "take", "take_along_axis"])
