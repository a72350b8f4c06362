"""Try the decode kernel on batches as an engine has them, with poison in all that is unused, against float64.

Widths are DeepSeek-V3's. The tests' own cases, on more widths, formats and dtypes, are in ``tests/``.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ledger.kernels.gpu import DEVICE, INTERPRETED, PagedCache, mla_decode
from ledger.kernels.interpret.mode import torch
from ledger.measure import fast_half
from ledger.models import model
from ledger.reference import mla
from ledger.reference.kernels import gather_pages

LATENT, ROPE, PAGE = model("DeepSeek-V3").latent_dim, model("DeepSeek-V3").rope_dim, 64
#: The 16-bit dtype of queries and cache.
HALF = torch.bfloat16 if INTERPRETED else getattr(torch, fast_half())
#: A page that no cache has.
NOWHERE = 2**30


class Batch(NamedTuple):
    """The first arguments of ``mla_decode``."""

    queries: torch.Tensor
    cache: PagedCache
    block_table: torch.Tensor
    lengths: torch.Tensor


def make_batch(lengths: Sequence[int], num_heads: int, new_tokens: int = 1) -> Batch:
    """Random queries and entries; pages in random order, NaN where no token is, absurd pages behind a table's end."""
    needed = [-(-length // PAGE) for length in lengths]
    cache = PagedCache.empty(sum(needed) + 2, PAGE, LATENT, ROPE, dtype=HALF)
    cache.pages.fill_(float("nan"))
    block_table = torch.full((len(lengths), max(needed) + 2), NOWHERE, dtype=torch.int32)
    order = iter(torch.randperm(sum(needed) + 2).tolist())
    for request, length in enumerate(lengths):
        for entry in range(needed[request]):
            block_table[request, entry] = number = next(order)
            cache.pages[number, : min(PAGE, length - entry * PAGE)].normal_()
    queries = torch.randn(len(lengths), new_tokens, num_heads, LATENT + ROPE, dtype=HALF)
    of_requests = (a.int().to(DEVICE) for a in (block_table, torch.tensor(lengths)))
    return Batch(queries.to(DEVICE), cache, *of_requests)


def falling_batch(num_heads: int, scale: float, cached_tokens: int = 512) -> Batch:
    """One request whose scores fall from 800 to −800 along its tokens: what a block maximum does not survive."""
    batch = make_batch([cached_tokens], num_heads)
    batch.queries[...] = 0
    batch.queries[..., 0] = 1 / scale
    down = torch.linspace(800, -800, cached_tokens).to(batch.cache.pages)
    for entry, scores in enumerate(down.split(PAGE)):
        batch.cache.pages[int(batch.block_table[0, entry]), : len(scores), 0] = scores
    return batch


def exact(batch: Batch, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """out and lse in float64: each request's pages gathered, one softmax over all of its tokens."""
    pages, tables = batch.cache.entries().cpu().numpy(), batch.block_table.cpu().numpy()
    lengths, queries = batch.lengths.tolist(), batch.queries.double().cpu().numpy()
    entries = np.zeros((len(lengths), max(lengths), LATENT + ROPE))
    for request, length in enumerate(lengths):
        entries[request, :length] = gather_pages(pages, tables[request], length)
    new_tokens = queries.shape[1]
    steps = []
    for token in range(new_tokens):
        seen = [max(0, length - (new_tokens - 1 - token)) for length in lengths]
        steps.append(mla.decode_absorbed(queries[:, token], entries, seen, LATENT, scale))
    out, lse = (np.stack(parts, axis=1) for parts in zip(*steps, strict=True))
    return out, lse


def error(batch: Batch, scale: float, **how) -> float:
    """The kernel's largest error over the largest element. ``how`` goes to ``mla_decode``.

    Raises AssertionError where an element, all of them together, or a log-sum-exp is farther off than FlashMLA's own
    tests allow.
    """
    with np.errstate(divide="ignore"):  # the interpreter takes the logarithm of 0
        got, got_lse = (part.double().cpu().numpy() for part in mla_decode(*batch, scale, **how))
    right, right_lse = exact(batch, scale)
    off = np.abs(got - right)
    assert ((off < 8e-4) | (off < 2.01 / 128 * np.abs(right))).all(), f"an element is off by {off.max():.1e}"
    assert 1 - 2 * (got * right).sum() / (got**2 + right**2).sum() < 5e-6, "the elements together are off"
    assert np.array_equal(np.isneginf(got_lse), np.isneginf(right_lse)), "an lse is −∞ where it must not be, or not"
    seen = np.isfinite(right_lse)
    off_lse, limit = np.abs(got_lse[seen] - right_lse[seen]), 8.01 / 65536 * np.abs(right_lse[seen])
    assert (off_lse < np.maximum(1e-6, limit)).all(), f"an lse is off by {off_lse.max():.1e}"
    return float(off.max() / np.abs(right).max())
