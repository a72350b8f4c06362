"""How long the decode kernel takes on this GPU, beside torch and what else is installed: ``python bench/kernels.py``.

Every contender is checked against float64 first. Then all are timed in turn, on inputs that rotate through more memory
than its cache holds, so that each call reads from memory. The figures are microseconds, and the TFLOPS and GB/s of the
absorbed step, whoever runs it, with its share of the bound that this GPU's own copy and matrix product set. Without a
GPU there is nothing to measure.

Then dense against sparse decode over the context: all entries, or index scores, a selection and the 2,048 chosen. The
context from which the sparse step is the faster one is read off between the two around it.

Last, blocks against scattered tokens: NSA's selected branch reads 16 blocks of 64 tokens for each of four groups, about
as many bytes as the 2,048 chosen entries; GB/s of both are figures.
"""

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

import torch
from record import ROOT, record

from ledger.account.roofline import Work, decode_work
from ledger.account.sparse_kernels import index_scores_macs
from ledger.measure import Ceilings, ceilings, fast_half, time_pairs
from ledger.setups import NSA_PAPER

LATENT, ROPE, NOPE, VALUE, PAGE = 512, 64, 128, 128, 64
SCALE = (NOPE + ROPE) ** -0.5
HEADS, CONTEXTS, REQUESTS = (16, 64, 128), (4096, 65536), 64
#: An element may be off by this much, or by this share of itself; the cosine of all elements by the third.
ABSOLUTE, RELATIVE, COSINE = 8e-4, 2.01 / 128, 5e-6
#: torch's own products hand their scores on in 16 bits, and expanded keys are rounded to them: the cosine alone, wider.
ROUNDED = {"torch bmm": 2e-4, "torch SDPA, expanded": 2e-4}
#: Splits of vLLM's kernel, as its Triton backend sets them.
VLLM_SPLITS = 4

#: Dense against sparse: one and many requests of a model with 128 heads, its indexer, and tokens written at a time.
SPARSE_REQUESTS, SPARSE_CONTEXTS, SPARSE_HEADS = (1, 64), tuple(2**k for k in range(11, 18)), 128
INDEX_HEADS, INDEX_DIM, TOPK, CHUNK = 64, 128, 2048, 65_536
#: Groups of NSA's paper, heads of each, and the widths of a key and a value.
NSA_GROUPS, NSA_HEADS, NSA_KEY, NSA_VALUE = 4, 16, 192, 128
ENTRY_BYTES = {"bf16_mla": 2 * (LATENT + ROPE), "fp8_ds_mla": LATENT + 16 + 2 * ROPE}

Call = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Step:
    """One decode step of 16-bit tensors: q_nope (b, 1, h, 128) and the weights that absorb it, w_kc (h, 128, 512) and
    w_vc (h, 512, 128); queries (b, 1, h, 576), pages (pages, 64, 576), block_table (b, entries), lengths (b,)."""

    q_nope: torch.Tensor
    w_kc: torch.Tensor
    w_vc: torch.Tensor
    queries: torch.Tensor
    pages: torch.Tensor
    block_table: torch.Tensor
    lengths: torch.Tensor

    @property
    def longest(self) -> int:
        """Tokens of every request."""
        return self.block_table.shape[1] * PAGE

    def first(self, requests: int) -> "Step":
        """The step of its first requests alone, on the same pages."""
        names = ("q_nope", "queries", "block_table", "lengths")
        return replace(self, **{name: getattr(self, name)[:requests] for name in names})

    def dense(self) -> torch.Tensor:
        """The cache in the order of its tokens: (b, t, 576)."""
        return self.pages[self.block_table.long()].flatten(1, 2)


def steps(num_heads: int, cached_tokens: int, dtype: torch.dtype, many: int) -> list[Step]:
    """``many`` steps on caches of their own, their pages in random order."""
    entries = cached_tokens // PAGE

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=dtype, device="cuda")

    w_kc, w_vc = normal(num_heads, NOPE, LATENT) / NOPE**0.5, normal(num_heads, LATENT, VALUE) / LATENT**0.5
    made = []
    for _ in range(many):
        pages, q_nope = normal(REQUESTS * entries, PAGE, LATENT + ROPE), normal(REQUESTS, 1, num_heads, NOPE)
        absorbed = torch.einsum("bshn,hnc->bshc", q_nope, w_kc)
        queries = torch.cat([absorbed, normal(REQUESTS, 1, num_heads, ROPE)], dim=-1)
        order = torch.randperm(REQUESTS * entries, device="cuda").to(torch.int32).reshape(REQUESTS, entries)
        lengths = torch.full((REQUESTS,), cached_tokens, dtype=torch.int32, device="cuda")
        made.append(Step(q_nope, w_kc, w_vc, queries, pages, order, lengths))
    return made


# The contenders: each prepares a step, as an engine does once for all layers, and returns the call that is timed.


def ours(step: Step) -> Call:
    """This course's split-KV kernel."""
    from ledger.kernels import gpu

    cache = gpu.PagedCache(step.pages, LATENT, ROPE)
    return lambda: gpu.mla_decode(step.queries, cache, step.block_table, step.lengths, SCALE, longest=step.longest).out


def torch_bmm(step: Step) -> Call:
    """The same in torch: gather the pages, two batched products, a softmax between them."""

    def call() -> torch.Tensor:
        entries = step.dense()
        scores = torch.bmm(step.queries[:, 0], entries.mT) * SCALE
        return torch.bmm(scores.softmax(-1), entries[..., :LATENT])[:, None]

    return call


def expanded_sdpa(step: Step) -> Call:
    """torch's attention on keys (b, h, t, 192) and values (b, h, t, 128) that were expanded before: what a cache
    without latents holds. It gives the projected values."""
    entries = step.dense()
    latents, k_rope = entries[..., :LATENT], entries[:, None, :, LATENT:]
    keys = torch.einsum("btc,hnc->bhtn", latents, step.w_kc)
    keys = torch.cat([keys, k_rope.expand(*keys.shape[:3], ROPE)], dim=-1)
    values = torch.einsum("btc,hcv->bhtv", latents, step.w_vc)
    query = torch.cat([step.q_nope, step.queries[..., LATENT:]], dim=-1).transpose(1, 2)
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(query, keys, values, scale=SCALE).transpose(1, 2)


def flash_mla(step: Step) -> Call:
    """FlashMLA, where it is installed."""
    from flash_mla import flash_mla_with_kvcache, get_mla_metadata

    pages = step.pages[:, :, None]
    metadata, splits = get_mla_metadata(step.lengths, step.queries.shape[2], 1)
    return lambda: flash_mla_with_kvcache(
        step.queries, pages, step.block_table, step.lengths, LATENT, metadata, splits, SCALE
    )[0]


def flash_infer(step: Step) -> Call:
    """FlashInfer, where it is installed; its queries come as two tensors."""
    from flashinfer.mla import BatchMLAPagedAttentionWrapper

    requests, entries = step.block_table.shape
    starts = torch.arange(requests + 1, dtype=torch.int32, device="cuda")
    wrapper = BatchMLAPagedAttentionWrapper(torch.empty(128 << 20, dtype=torch.int8, device="cuda"))
    heads, dtype, pages = step.queries.shape[2], step.queries.dtype, step.block_table.flatten()
    wrapper.plan(
        *(starts, starts * entries, pages, step.lengths, heads, LATENT, ROPE, PAGE, False, SCALE, dtype, dtype)
    )
    q_latent, q_rope = (part.contiguous() for part in step.queries[:, 0].split([LATENT, ROPE], dim=-1))
    latents, k_rope = step.pages[..., :LATENT], step.pages[..., LATENT:]
    return lambda: wrapper.run(q_latent, q_rope, latents, k_rope)[:, None]


def vllm_triton(step: Step) -> Call:
    """vLLM's two-stage Triton kernel, where vLLM is installed."""
    from vllm.v1.attention.ops.triton_decode_attention import decode_attention_fwd

    query, pages = step.queries[:, 0], step.pages[:, :, None]
    requests, heads, _ = query.shape
    out, lse = query.new_empty((requests, heads, LATENT)), query.new_empty((requests, heads))
    # a split's output and its lse, side by side
    partial = torch.empty((requests, heads, VLLM_SPLITS, LATENT + 1), dtype=torch.float32, device="cuda")

    def call() -> torch.Tensor:
        given = (query, pages, pages[..., :LATENT], out, lse, step.block_table, step.lengths, partial)
        decode_attention_fwd(*given, VLLM_SPLITS, SCALE, PAGE)
        return out[:, None]

    return call


#: Each with the package that it comes from.
CONTENDERS: dict[str, tuple[Callable[[Step], Call], str]] = {
    "mla_decode": (ours, "triton"),
    "torch bmm": (torch_bmm, "torch"),
    "torch SDPA, expanded": (expanded_sdpa, "torch"),
    "FlashMLA": (flash_mla, "flash_mla"),
    "FlashInfer": (flash_infer, "flashinfer"),
    "vLLM Triton": (vllm_triton, "vllm"),
}


def fits(name: str, step: Step) -> bool:
    """Whether what ``name`` prepares has room on the GPU: expanded keys and values, twice while they are made."""
    if name != "torch SDPA, expanded":
        return True
    requests, heads = len(step.lengths), step.queries.shape[2]
    need = 2 * requests * step.longest * heads * (NOPE + ROPE + VALUE) * step.pages.element_size()
    return need < torch.cuda.mem_get_info()[0]


def check(name: str, prepare: Callable[[Step], Call], step: Step) -> None:
    """SystemExit where a contender is wrong, on the first two requests of a step, against float64."""
    few = step.first(2)
    entries = few.dense().double()
    weights = (torch.bmm(few.queries[:, 0].double(), entries.mT) * SCALE).softmax(-1)
    want, got = torch.bmm(weights, entries[..., :LATENT])[:, None], prepare(few)().double()
    if got.shape[-1] == VALUE:
        want = torch.einsum("bshc,hcv->bshv", want, few.w_vc.double())
    error = (got - want).abs()
    cosine = 1 - 2 * (got * want).sum() / (got.square().sum() + want.square().sum())
    near = name in ROUNDED or ((error < ABSOLUTE) | (error < RELATIVE * want.abs())).all()
    if not near or not cosine < ROUNDED.get(name, COSINE):
        sys.exit(f"{name} is wrong: largest error {error.max():.2e}, cosine off by {cosine:.1e}")


def rotating(calls: list[Call]) -> Call:
    """One call after the other, round and round."""
    turn: Iterator[Call] = itertools.cycle(calls)
    return lambda: next(turn)()


# Dense against sparse


@dataclass(frozen=True)
class SparseStep:
    """A decode step of one new token with an indexer: queries (b, 1, h, 576), its q_codes (b, 1, 64, 128) and weights
    (b, 1, 64), and two caches on one block_table (b, entries)."""

    queries: torch.Tensor
    q_codes: torch.Tensor
    weights: torch.Tensor
    cache: object
    keys: object
    block_table: torch.Tensor
    lengths: torch.Tensor

    def calls(self) -> dict[str, Call]:
        """The dense step, the sparse one, and the three kernels of the sparse one."""
        from ledger.kernels import gpu

        longest = self.block_table.shape[1] * PAGE
        where = self.block_table, self.lengths

        def index() -> torch.Tensor:
            return gpu.index_scores(self.q_codes, self.weights, self.keys, *where, longest=longest)

        def sparse(indices: torch.Tensor) -> torch.Tensor:
            return gpu.sparse_mla_decode(self.queries, self.cache, *where, indices, SCALE, longest=longest).out

        scores = index()
        indices = gpu.select_topk(scores, self.lengths, TOPK)
        return {
            "dense": lambda: gpu.mla_decode(self.queries, self.cache, *where, SCALE, longest=longest).out,
            "sparse": lambda: sparse(gpu.select_topk(index(), self.lengths, TOPK)),
            "index_scores": index,
            "select_topk": lambda: gpu.select_topk(scores, self.lengths, TOPK),
            "sparse_mla_decode": lambda: sparse(indices),
        }


def sparse_step(requests: int, cached_tokens: int, cache_format: str, dtype: torch.dtype) -> SparseStep:
    """A step on caches of its own, their pages in random order."""
    from ledger.kernels import gpu

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=dtype, device=gpu.DEVICE)

    pages = requests * cached_tokens // PAGE
    cache = gpu.PagedCache.empty(pages, PAGE, LATENT, ROPE, cache_format, dtype)
    keys, norm = gpu.IndexCache.empty(pages, PAGE, INDEX_DIM), torch.ones(LATENT, dtype=dtype, device=gpu.DEVICE)
    for slots in torch.arange(pages * PAGE, device=gpu.DEVICE).split(CHUNK):
        tokens = len(slots)
        gpu.write_cache(cache, normal(tokens, LATENT), normal(tokens, ROPE), norm, slots, slots, 1e-6, 1e4)
        keys.write(normal(tokens, INDEX_DIM), slots)
    q_codes, scales = gpu.quantize_index(normal(requests, 1, INDEX_HEADS, INDEX_DIM))
    table = torch.randperm(pages, device=gpu.DEVICE).to(torch.int32).reshape(requests, -1)
    lengths = torch.full((requests,), cached_tokens, dtype=torch.int32, device=gpu.DEVICE)
    queries = normal(requests, 1, SPARSE_HEADS, LATENT + ROPE)
    return SparseStep(queries, q_codes, normal(*scales.shape) * scales, cache, keys, table, lengths)


def check_sparse(step: SparseStep) -> None:
    """SystemExit where a kernel is wrong, on the first request, against float64 and torch's own selection."""
    from ledger.kernels import gpu

    pages, length = step.block_table[:1].long(), int(step.lengths[0])
    first = replace(step, **{
        name: getattr(step, name)[:1] for name in ("queries", "q_codes", "weights", "block_table", "lengths")
    })  # fmt: skip
    calls = first.calls()
    codes = step.keys.codes[pages].flatten(0, 2).view(torch.float8_e4m3fn).double()
    keys = codes * step.keys.scales[pages].flatten()[:, None].double()
    products = first.q_codes[0, 0].view(torch.float8_e4m3fn).double() @ keys.T
    want, scores = first.weights[0, 0].double() @ products.relu(), calls["index_scores"]()
    error = (scores[0, 0].double() - want).abs().max() / want.abs().max()
    if not error < 1e-5:
        sys.exit(f"index_scores is wrong: largest error {error:.1e} of the largest score")
    indices = calls["select_topk"]()[0, 0].long()
    chosen = indices[indices >= 0]
    best = scores[0, 0].topk(min(TOPK, length)).values.sort().values
    if not torch.equal(scores[0, 0][chosen].sort().values, best):
        sys.exit("select_topk is wrong: another set of scores than torch's")
    cache = gpu.PagedCache(step.cache.pages[pages.flatten()], LATENT, ROPE)
    entries = cache.entries().flatten(0, 1)
    for name, tokens in (("dense", slice(None)), ("sparse", chosen)):
        seen = entries[tokens].double()
        weights = (SCALE * first.queries[0, 0].double() @ seen.T).softmax(-1)
        want, got = weights @ seen[:, :LATENT], calls[name]()[0, 0].double()
        error = (got - want).abs()
        cosine = 1 - 2 * (got * want).sum() / (got.square().sum() + want.square().sum())
        if not ((error < ABSOLUTE) | (error < RELATIVE * want.abs())).all() or not cosine < COSINE:
            sys.exit(f"{name} decode is wrong: largest error {error.max():.2e}, cosine off by {cosine:.1e}")


def sparse_work(requests: int, cached_tokens: int, entry_bytes: int) -> Work:
    """FLOP and bytes that the sparse step cannot do without: every index key, and the chosen entries."""
    picks = decode_work(requests * min(TOPK, cached_tokens), SPARSE_HEADS, 1, LATENT, ROPE, entry_bytes)
    index = index_scores_macs(requests * cached_tokens, INDEX_HEADS, INDEX_DIM)
    return Work(picks.flops + 2 * index, picks.bytes + requests * cached_tokens * (INDEX_DIM + 4))


def crossing(contexts: Sequence[int], dense: Sequence[float], sparse: Sequence[float]) -> float | None:
    """The context from which on the sparse step is the faster one, from seconds at rising contexts: the logarithm of
    their ratio is taken for straight over that of the context. The first context where the sparse step is ahead at all
    of them, None where it is not at the last."""
    lead = [math.log(a / b) for a, b in zip(dense, sparse, strict=True)]
    behind = [i for i, ahead in enumerate(lead) if ahead <= 0]
    if not behind:
        return float(contexts[0])
    last = behind[-1]
    if last + 1 == len(lead):
        return None
    share = -lead[last] / (lead[last + 1] - lead[last])
    return contexts[last] * (contexts[last + 1] / contexts[last]) ** share


def dense_against_sparse(seconds: float, half: str, ceiling: Ceilings, cache_bytes: int) -> tuple[list, list]:
    """Measure both steps over the contexts: a figure for each setting, and where the lines cross."""
    figures, crossings = [], []
    for cache_format, requests in itertools.product(ENTRY_BYTES, SPARSE_REQUESTS):
        entry, times = ENTRY_BYTES[cache_format], {"dense": [], "sparse": []}
        contexts = []
        for cached_tokens in SPARSE_CONTEXTS:
            dense = decode_work(requests * cached_tokens, SPARSE_HEADS, 1, LATENT, ROPE, entry)
            work = {"dense": dense, "sparse": sparse_work(requests, cached_tokens, entry)}
            many = 1 + math.ceil(2 * cache_bytes / work["sparse"].bytes)
            if many * (dense.bytes + requests * cached_tokens * (INDEX_DIM + 4)) > 0.8 * torch.cuda.mem_get_info()[0]:
                print(f"{cached_tokens} tokens of {requests} requests in {cache_format} do not fit on this GPU")
                break
            made = [sparse_step(requests, cached_tokens, cache_format, getattr(torch, half)) for _ in range(many)]
            check_sparse(made[0])
            steps = [step.calls() for step in made]
            calls = {name: rotating([step[name] for step in steps]) for name in steps[0]}
            taken = {name: timing.median for name, timing in time_pairs(calls, seconds=seconds).items()}
            figure = {"cache_format": cache_format, "requests": requests, "cached_tokens": cached_tokens}
            figure |= {f"{name} us": round(1e6 * each, 1) for name, each in taken.items()}
            chosen = requests * min(TOPK, cached_tokens) * entry
            figure["sparse_mla_decode gb_s"] = round(chosen / taken["sparse_mla_decode"] / 1e9)
            for name, least in work.items():
                bound = max(least.flops / ceiling.flops, least.bytes / ceiling.bandwidth)
                figure[f"{name} tflops"] = round(least.flops / taken[name] / 1e12, 1)
                figure[f"{name} gb_s"] = round(least.bytes / taken[name] / 1e9)
                figure[f"{name} of_bound"] = round(bound / taken[name], 3)
                times[name].append(taken[name])
            contexts.append(cached_tokens)
            figures.append(figure)
            print(*(f"{key} {value}" for key, value in figure.items()))
            del made, steps, calls
            torch.cuda.empty_cache()
        if contexts:
            found = crossing(contexts, times["dense"], times["sparse"])
            found = found and round(found)
            crossings.append({"cache_format": cache_format, "requests": requests, "cached_tokens": found})
            where = f"from {found} tokens on" if found else f"at none up to {contexts[-1]}"
            print(f"{cache_format}, {requests} requests: the sparse step is the faster one {where}")
    return figures, crossings


# Blocks against scattered tokens


@dataclass(frozen=True)
class BlockStep:
    """The selected branch of one new token: queries (b, 1, 64, 192), keys (b, t, 4, 192), values (b, t, 4, 128),
    lengths (b,), and blocks (b, 1, 4, 16) of 64 tokens, rising."""

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    lengths: torch.Tensor
    blocks: torch.Tensor

    def attend(self) -> torch.Tensor:
        """The kernel's outputs (b, 1, 64, 128)."""
        from ledger.kernels import gpu

        given = self.queries, self.keys, self.values, self.lengths, NSA_PAPER.scale
        return gpu.nsa_attend(*given, blocks=self.blocks, selection_block=NSA_PAPER.selection_block).out

    @property
    def read_bytes(self) -> int:
        """Bytes of the keys and values in the blocks."""
        tokens = self.blocks.numel() * NSA_PAPER.selection_block
        return tokens * (NSA_KEY + NSA_VALUE) * self.keys.element_size()


def block_step(requests: int, cached_tokens: int, dtype: torch.dtype) -> BlockStep:
    """A step whose blocks are drawn at random, other ones for each request and group. ``cached_tokens`` is a multiple
    of 64."""
    from ledger.kernels.gpu import DEVICE

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=dtype, device=DEVICE)

    many = cached_tokens // NSA_PAPER.selection_block
    blocks = torch.rand(requests, 1, NSA_GROUPS, many, device=DEVICE).argsort(-1)[..., : NSA_PAPER.count]
    return BlockStep(
        queries=normal(requests, 1, NSA_GROUPS * NSA_HEADS, NSA_KEY),
        keys=normal(requests, cached_tokens, NSA_GROUPS, NSA_KEY),
        values=normal(requests, cached_tokens, NSA_GROUPS, NSA_VALUE),
        lengths=torch.full((requests,), cached_tokens, dtype=torch.int32, device=DEVICE),
        blocks=blocks.sort(-1).values.to(torch.int32),
    )


def check_blocks(step: BlockStep) -> None:
    """SystemExit where the kernel is wrong, on the first request, against float64."""
    got, inside = step.attend()[0, 0], torch.arange(NSA_PAPER.selection_block, device=step.keys.device)
    for group in range(NSA_GROUPS):
        heads = slice(group * NSA_HEADS, (group + 1) * NSA_HEADS)
        tokens = (step.blocks[0, 0, group, :, None] * NSA_PAPER.selection_block + inside).flatten()
        keys, values = (part[0, tokens, group].double() for part in (step.keys, step.values))
        weights = (NSA_PAPER.scale * step.queries[0, 0, heads].double() @ keys.T).softmax(-1)
        want, mine = weights @ values, got[heads].double()
        error = (mine - want).abs()
        cosine = 1 - 2 * (mine * want).sum() / (mine.square().sum() + want.square().sum())
        if not ((error < ABSOLUTE) | (error < RELATIVE * want.abs())).all() or not cosine < COSINE:
            sys.exit(f"nsa_attend is wrong: largest error {error.max():.2e}, cosine off by {cosine:.1e}")


def blocks_over_contexts(seconds: float, half: str, cache_bytes: int) -> list:
    """Measure the selected branch over the contexts: a figure for each setting."""
    figures = []
    for requests, cached_tokens in itertools.product(SPARSE_REQUESTS, SPARSE_CONTEXTS):
        first = block_step(requests, cached_tokens, getattr(torch, half))
        many = 1 + math.ceil(2 * cache_bytes / first.read_bytes)
        held = sum(part.nbytes for part in (first.keys, first.values))
        if (many - 1) * held > 0.8 * torch.cuda.mem_get_info()[0]:
            print(f"{cached_tokens} tokens of {requests} requests do not fit on this GPU as keys and values of groups")
            continue
        check_blocks(first)
        made = [first, *(block_step(requests, cached_tokens, getattr(torch, half)) for _ in range(many - 1))]
        calls = {"nsa_attend": rotating([step.attend for step in made])}
        taken = time_pairs(calls, seconds=seconds)["nsa_attend"].median
        figure = {"requests": requests, "cached_tokens": cached_tokens, "us": round(1e6 * taken, 1)}
        figure["gb_s"] = round(first.read_bytes / taken / 1e9)
        figures.append(figure)
        print("nsa_attend, selected blocks", *(f"{key} {value}" for key, value in figure.items()))
        del made, first, calls
        torch.cuda.empty_cache()
    return figures


def main() -> None:
    """Check, measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.5, help="how long each contender is timed in each setting")
    seconds = parser.parse_args().seconds
    if not torch.cuda.is_available():
        sys.exit("torch finds no GPU here, so there is nothing to measure.")
    contenders = {name: prepare for name, (prepare, package) in CONTENDERS.items() if find_spec(package)}
    for name in CONTENDERS.keys() - contenders.keys():
        print(f"{name} is not installed: left out")
    half = fast_half()
    ceiling, cache_bytes = ceilings(half, device="cuda"), torch.cuda.get_device_properties(0).L2_cache_size
    figures: dict[str, list] = {name: [] for name in contenders}
    for cached_tokens, num_heads in itertools.product(CONTEXTS, HEADS):
        work = decode_work(REQUESTS * cached_tokens, num_heads, 1, LATENT, ROPE, 2 * (LATENT + ROPE))
        made = steps(num_heads, cached_tokens, getattr(torch, half), 1 + math.ceil(2 * cache_bytes / work.bytes))
        bound = max(work.flops / ceiling.flops, work.bytes / ceiling.bandwidth)
        calls = {}
        for name, prepare in contenders.items():
            if fits(name, made[0]):
                check(name, prepare, made[0])
                calls[name] = rotating([prepare(step) for step in made])
            else:
                print(f"{name}: {cached_tokens} tokens of {num_heads} heads do not fit on this GPU")
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
            print(f"{name:20}", *(f"{key} {value}" for key, value in figure.items()))
        del made, calls
        torch.cuda.empty_cache()
    device = torch.cuda.get_device_name().replace(" ", "-")
    measured = {
        "bandwidth_gb_s": round(ceiling.bandwidth / 1e9),
        "tflops": round(ceiling.flops / 1e12, 1),
        "dtype": half,
    }
    against, crossings = dense_against_sparse(seconds, half, ceiling, cache_bytes)
    figures |= {"dense against sparse": against, "crossover": crossings}
    figures["nsa_attend, selected blocks"] = blocks_over_contexts(seconds, half, cache_bytes)
    print(f"recorded in {record(device, {'ceilings': measured, **figures}).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
