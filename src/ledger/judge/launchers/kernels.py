"""Launch a learner's Triton kernel on the inputs of a case, in the interpreter.

The rows of every tensor lie apart, with NaN between and behind them, and outputs hold NaN before the launch. An access
outside of the tensors ends the kernel, and the bytes that it loads of the large one are counted: the last part of each
result, which an oracle compares like any other, though it is this process's own word. ``ledger.judge.launchers.cuda``
launches the same on a GPU, where neither can be seen.
"""

import types
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from ledger.judge.launchers.blocks import BLOCK_H, BLOCK_N, BLOCK_S, BLOCK_T, split
from ledger.kernels.interpret.mode import DEVICE, INTERPRETED, dot_dtype, tl, torch, triton
from ledger.kernels.interpret.watched import unwrapped, watched


def absorb_heads(
    answer: Any, q_nope: np.ndarray, q_rope: np.ndarray, w_kc: np.ndarray, *, counted: bool = True
) -> tuple:
    """q_nope (new_tokens, num_heads, nope_dim), q_rope (new_tokens, num_heads, rope_dim), w_kc (num_heads, nope_dim,
    latent_dim) -> queries (new_tokens, num_heads, latent_dim + rope_dim), and the bytes of w_kc that were loaded where
    they are ``counted``."""
    (new_tokens, num_heads, nope_dim), latent_dim = q_nope.shape, w_kc.shape[2]
    queries = np.full((new_tokens, num_heads, latent_dim + q_rope.shape[2]), np.nan, q_nope.dtype)
    queries[..., latent_dim:] = q_rope
    block_c = min(128, _power(latent_dim))
    p_q_nope, p_w_kc, p_queries = _apart(q_nope), _apart(w_kc), _apart(queries)
    loaded = launch(
        answer,
        (-(-new_tokens // BLOCK_S), num_heads, -(-latent_dim // block_c)),
        *(p_q_nope, p_w_kc, p_queries, new_tokens),
        *(*p_q_nope.stride()[:2], *p_w_kc.stride()[:2], *p_queries.stride()[:2]),
        counted=counted,
        NOPE=nope_dim,
        LATENT=latent_dim,
        BLOCK_S=BLOCK_S,
        BLOCK_N=BLOCK_N,
        BLOCK_C=block_c,
        DOT=dot_dtype(p_q_nope.dtype),
    )
    _show_changes((q_nope, p_q_nope), (w_kc, p_w_kc))
    return _array(p_queries), *loaded[1:2]


def mla_decode(
    answer: Any,
    queries: np.ndarray,
    pages: np.ndarray,
    block_table: np.ndarray,
    lengths: np.ndarray,
    scale: float,
    *,
    counted: bool = True,
) -> tuple:
    """queries (requests, num_heads, latent_dim + rope_dim), of which pages (num_pages, page, latent_dim + rope_dim)
    hold the last ninth as rope, block_table (requests, entries), lengths (requests,) -> out (requests, num_heads,
    latent_dim), lse (requests, num_heads) in float32, and the bytes of the pages that were loaded where they are
    ``counted``."""
    requests, num_heads, width = queries.shape
    latent_dim, rope_dim = split(width)
    out = _apart(np.full((requests, num_heads, latent_dim), np.nan, queries.dtype))
    lse = _apart(np.full((requests, num_heads), np.nan, np.float32))
    p_queries, p_pages, p_table, p_lengths = map(_apart, (queries, pages, block_table, lengths))
    loaded = launch(
        answer,
        (-(-num_heads // BLOCK_H), requests),
        *(p_queries, p_pages, p_table, p_lengths, out, lse),
        *(num_heads, pages.shape[1], scale),
        *(*p_queries.stride()[:2], *p_pages.stride()[:2], p_table.stride(0), *out.stride()[:2], lse.stride(0)),
        counted=counted,
        LATENT=latent_dim,
        ROPE=rope_dim,
        BLOCK_H=BLOCK_H,
        BLOCK_T=BLOCK_T,
        BLOCK_C=_power(latent_dim),
        BLOCK_R=_power(rope_dim),
        DOT=dot_dtype(p_queries.dtype),
    )
    _show_changes((queries, p_queries), (pages, p_pages), (block_table, p_table), (lengths, p_lengths))
    return _array(out), _array(lse), *loaded[1:2]


def launch(answer: Any, grid: tuple[int, ...], *arguments: Any, counted: bool, **blocks: Any) -> list[int]:
    """Launch ``answer``, a kernel or the plain function of one, and say how many bytes it loaded of each argument in
    their order; nothing where they are not ``counted``.

    What the kernel raises is raised as it is, without the interpreter's wrapping. RuntimeError where they are to be
    counted and kernels are not interpreted.
    """
    kernel = _kernel(answer)
    with watched() if counted else nullcontext() as works:
        try:
            kernel[grid](*arguments, **blocks)
        except Exception as error:
            raise unwrapped(error) from None
    return [works[kernel.__name__].loaded[name] for name in kernel.arg_names] if counted else []


def _kernel(answer: Any) -> Any:
    """The kernel of a function, decorated or not, that is compiled exactly where kernels are not interpreted; ``tl``
    and ``triton`` are among its names, wherever it was written."""
    while hasattr(answer, "fn"):
        answer = answer.fn
    known = {**answer.__globals__, "tl": tl, "triton": triton}
    function: Callable = types.FunctionType(
        answer.__code__, known, answer.__name__, answer.__defaults__, answer.__closure__
    )
    function.__annotations__ = answer.__annotations__
    if not INTERPRETED:
        return triton.runtime.JITFunction(function)
    from triton.runtime.interpreter import InterpretedFunction

    return InterpretedFunction(function)


def _apart(array: np.ndarray) -> torch.Tensor:
    """A tensor of these values whose rows lie apart, with poison between and behind them; its last axis is dense."""
    poison = np.nan if array.dtype.kind == "f" else np.iinfo(array.dtype).max
    wide = np.full((*(size + 1 for size in array.shape[:-1]), array.shape[-1] + 3), poison, array.dtype)
    inside = tuple(slice(0, size) for size in array.shape)
    wide[inside] = array
    return torch.from_numpy(wide).to(DEVICE)[inside]


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.cpu().numpy().copy()


def _show_changes(*inputs: tuple[np.ndarray, torch.Tensor]) -> None:
    """Give each array what the kernel left in its tensor, so that whoever looks at the arrays sees what was changed."""
    for array, tensor in inputs:
        array[...] = _array(tensor)


def _power(size: int) -> int:
    return triton.next_power_of_2(max(size, 16))
