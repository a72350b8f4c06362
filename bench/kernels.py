"""How long the decode kernel takes on this GPU, beside torch and what else is installed: ``python bench/kernels.py``.

Every contender is checked against float64 first. Then all are timed in turn, on inputs that rotate through more memory
than its cache holds, so that each call reads from memory. The figures are microseconds, TFLOPS, GB/s and
the share of the bound that this GPU's own copy and matrix product set. Without a GPU there is nothing to measure.
"""

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from record import ROOT, record

from ledger.account.roofline import decode_work
from ledger.measure import ceilings, fast_half, time_pairs

LATENT, ROPE, NOPE, VALUE, PAGE = 512, 64, 128, 128, 64
SCALE = (NOPE + ROPE) ** -0.5
HEADS, CONTEXTS, REQUESTS = (16, 64, 128), (4096, 65536), 64
#: An element may be off by this much, or by this share of itself; the cosine of all elements by the third.
ABSOLUTE, RELATIVE, COSINE = 8e-4, 2.01 / 128, 5e-6


@dataclass(frozen=True)
class Step:
    """One decode step of 16-bit tensors: queries (b, 1, h, 576), pages (pages, 64, 576), block_table (b, entries)."""

    queries: torch.Tensor
    pages: torch.Tensor
    block_table: torch.Tensor
    lengths: torch.Tensor

    @property
    def longest(self) -> int:
        """Tokens of every request."""
        return self.block_table.shape[1] * PAGE

    def dense(self) -> torch.Tensor:
        """The cache in the order of its tokens: (b, t, 576)."""
        return self.pages[self.block_table.long()].flatten(1, 2)


def steps(num_heads: int, cached_tokens: int, dtype: torch.dtype, many: int) -> list[Step]:
    """``many`` steps on caches of their own, their pages in random order."""
    entries = cached_tokens // PAGE
    made = []
    for _ in range(many):
        pages = torch.randn((REQUESTS * entries, PAGE, LATENT + ROPE), dtype=dtype, device="cuda")
        queries = torch.randn((REQUESTS, 1, num_heads, LATENT + ROPE), dtype=dtype, device="cuda")
        order = torch.randperm(REQUESTS * entries, device="cuda").to(torch.int32).reshape(REQUESTS, entries)
        lengths = torch.full((REQUESTS,), cached_tokens, dtype=torch.int32, device="cuda")
        made.append(Step(queries, pages, order, lengths))
    return made


def ours(step: Step) -> torch.Tensor:
    """This course's split-KV kernel."""
    from ledger.kernels import gpu

    cache = gpu.PagedCache(step.pages, LATENT, ROPE)
    return gpu.mla_decode(step.queries, cache, step.block_table, step.lengths, SCALE, longest=step.longest).out


def torch_bmm(step: Step) -> torch.Tensor:
    """The same in torch: gather the pages, two batched products, a softmax between them."""
    entries = step.dense()
    scores = torch.bmm(step.queries[:, 0], entries.mT) * SCALE
    return torch.bmm(scores.softmax(-1), entries[..., :LATENT])[:, None]


def flash_mla(step: Step) -> torch.Tensor:
    """FlashMLA, where it is installed."""
    from flash_mla import flash_mla_with_kvcache, get_mla_metadata

    metadata, splits = get_mla_metadata(step.lengths, step.queries.shape[2], 1)
    out, _ = flash_mla_with_kvcache(
        step.queries, step.pages[:, :, None], step.block_table, step.lengths, LATENT, metadata, splits, SCALE
    )
    return out


CONTENDERS: dict[str, Callable[[Step], torch.Tensor]] = {"mla_decode": ours, "torch bmm": torch_bmm}


def check(contender: Callable[[Step], torch.Tensor], step: Step) -> None:
    """SystemExit where a contender is wrong, on the first two requests of a step, against float64."""
    few = Step(step.queries[:2], step.pages, step.block_table[:2], step.lengths[:2])
    entries = few.dense().double()
    weights = (torch.bmm(few.queries[:, 0].double(), entries.mT) * SCALE).softmax(-1)
    want, got = torch.bmm(weights, entries[..., :LATENT])[:, None], contender(few).double()
    error = (got - want).abs()
    cosine = 1 - 2 * (got * want).sum() / (got.square().sum() + want.square().sum())
    if not ((error < ABSOLUTE) | (error < RELATIVE * want.abs())).all() or cosine > COSINE:
        sys.exit(f"{contender.__name__} is wrong: largest error {error.max():.2e}, cosine off by {cosine:.1e}")


def rotating(contender: Callable[[Step], torch.Tensor], made: list[Step]) -> Callable[[], torch.Tensor]:
    """Calls of ``contender`` on one step after the other, round and round."""
    turn: Iterator[Step] = itertools.cycle(made)
    return lambda: contender(next(turn))


def main() -> None:
    """Check, measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.5, help="how long each contender is timed in each setting")
    seconds = parser.parse_args().seconds
    if not torch.cuda.is_available():
        sys.exit("torch finds no GPU here, so there is nothing to measure.")
    contenders = dict(CONTENDERS)
    try:
        import flash_mla as _  # noqa: F401

        contenders["FlashMLA"] = flash_mla
    except ImportError:
        print("FlashMLA is not installed: left out")
    half = fast_half()
    ceiling, cache_bytes = ceilings(half, device="cuda"), torch.cuda.get_device_properties(0).L2_cache_size
    figures: dict[str, list] = {name: [] for name in contenders}
    for cached_tokens, num_heads in itertools.product(CONTEXTS, HEADS):
        work = decode_work(REQUESTS * cached_tokens, num_heads, 1, LATENT, ROPE, 2 * (LATENT + ROPE))
        made = steps(num_heads, cached_tokens, getattr(torch, half), 1 + math.ceil(2 * cache_bytes / work.bytes))
        for contender in contenders.values():
            check(contender, made[0])
        bound = max(work.flops / ceiling.flops, work.bytes / ceiling.bandwidth)
        calls = {name: rotating(contender, made) for name, contender in contenders.items()}
        for name, timing in time_pairs(calls, seconds=seconds).items():
            taken = timing.median
            figure = {
                "num_heads": num_heads,
                "requests": REQUESTS,
                "cached_tokens": cached_tokens,
                "us": round(1e6 * taken, 1),
                "tflops": round(work.flops / taken / 1e12, 1),
                "gb_s": round(work.bytes / taken / 1e9),
                "of_bound": round(bound / taken, 3),
            }
            figures[name].append(figure)
            print(f"{name:10}", *(f"{key} {value}" for key, value in figure.items()))
        del made, calls
        torch.cuda.empty_cache()
    device = torch.cuda.get_device_name().replace(" ", "-")
    measured = {
        "bandwidth_gb_s": round(ceiling.bandwidth / 1e9),
        "tflops": round(ceiling.flops / 1e12, 1),
        "dtype": half,
    }
    print(f"recorded in {record(device, {'ceilings': measured, **figures}).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
