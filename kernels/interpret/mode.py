"""Triton, on the GPU or in its interpreter: every kernel imports it from here, so that the choice is made once.

Where torch finds no GPU, ``TRITON_INTERPRET=1`` makes Triton run a kernel's Python text on the CPU, one program after
the other. There a 16-bit float is widened right after it is loaded: the interpreter's ``tl.dot`` of bf16 is wrong, and
its stores to bf16 cut digits off where a GPU rounds (triton-lang/triton issue 11584).
"""

import importlib
import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import triton
import triton.language as tl

__all__ = ["DEVICE", "INTERPRETED", "dot_dtype", "tl", "torch", "triton"]

#: Whether kernels run in the interpreter, on tensors in the computer's own memory.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
#: Where the arguments of kernels lie.
DEVICE = "cpu" if INTERPRETED else "cuda"

if INTERPRETED and isinstance(tl.cdiv, triton.JITFunction):
    # Triton was imported before it was told to interpret; torch's FLOP counter does so. Make its own functions anew.
    for _part in (tl.standard, tl.random, tl):
        importlib.reload(_part)

_DOTS = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


def dot_dtype(dtype: torch.dtype):
    """The dtype in which products of ``dtype`` are computed: its own, and float32 in the interpreter.

    Raises ValueError for any but bf16, float16 and float32.
    """
    if dtype not in _DOTS:
        raise ValueError(f"the kernels compute in bfloat16, float16 or float32; got {dtype}")
    return tl.float32 if INTERPRETED else _DOTS[dtype]
