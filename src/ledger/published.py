"""Times that others have published, which lessons set beside predictions. None of them was measured by this course.

Source of the decode kernels on an H200: ai-dynamo/aiconfigurator@095f58a51c4c (Apache-2.0), h200_sxm, the generation
tables of SGLang 0.5.14 (FlashAttention 3) and TensorRT-LLM 1.3.0rc20: the attention kernel of one layer, absorbed, over
a bf16 cache of latent 512 and rope 64, one new token a request.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from ledger.account.dsa import pair_flops
from ledger.account.roofline import decode_work
from ledger.machines import Machine, machine
from ledger.models import Model

#: Cached tokens of a request, for the times below.
CACHED_TOKENS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
#: Microseconds by kernel, heads and requests, one for each of ``CACHED_TOKENS``.
DECODE_H200: Mapping[tuple[str, int, int], tuple[float, ...]] = {
    ("FlashAttention 3", 16, 1): (16.46, 17.11, 18.99, 21.74, 24.61, 29.12, 45.15, 64.59),
    ("FlashAttention 3", 64, 1): (18.33, 19.12, 21.74, 24.21, 27.92, 40.87, 51.21, 71.02),
    ("FlashAttention 3", 128, 1): (19.51, 20.31, 21.7, 26.36, 33.87, 48.27, 63.93, 95.96),
    ("FlashAttention 3", 16, 64): (37.78, 55.4, 92.08, 160.77, 292.78, 562.95, 1103.05, 2269.04),
    ("FlashAttention 3", 64, 64): (49.51, 68.22, 103.92, 173.19, 309.89, 587.66, 1145.29, 2278.81),
    ("FlashAttention 3", 128, 64): (48.21, 76.17, 134.1, 251.35, 478.25, 943.37, 1929.92, 4069.6),
    ("TensorRT-LLM", 16, 64): (39.29, 56.35, 90.88, 156.38, 294.31, 557.37, 1088.39, 2137.56),
    ("TensorRT-LLM", 64, 64): (50.85, 68.51, 103.25, 169.24, 315.92, 580.89, 1111.72, 2166.93),
    ("TensorRT-LLM", 128, 64): (50.58, 79.48, 134.41, 249.78, 479.33, 914.38, 1767.54, 3540.42),
}


def decode_h200(kernel: str, num_heads: int, requests: int) -> dict[int, float]:
    """Seconds of ``kernel`` on an H200 by the cached tokens of each request; a ValueError names what there is."""
    if (kernel, num_heads, requests) not in DECODE_H200:
        rows = "; ".join(f"{k}, {heads} heads, {batch} requests" for k, heads, batch in DECODE_H200)
        raise ValueError(f"no times of {kernel!r} for {num_heads} heads and {requests} requests; there are: {rows}")
    times = DECODE_H200[kernel, num_heads, requests]
    return {tokens: us / 1e6 for tokens, us in zip(CACHED_TOKENS, times, strict=True)}


def reached_h200() -> Machine:
    """The H200 as FlashAttention 3 used it at 64 requests of 65,536 tokens: the bandwidth that 16 heads reached, and
    the bf16 rate that 128 heads did."""
    cached, requests = 65536, 64
    few, many = (decode_h200("FlashAttention 3", heads, requests)[cached] for heads in (16, 128))
    work = decode_work(requests * cached, 128, 1, 512, 64, 1152)
    return replace(
        machine("H200"),
        name="H200, as reached",
        bandwidth=work.bytes / few,
        flops={"bf16": work.flops / many},
        source="this module's times",
    )


class Prefill(NamedTuple):
    """One measured attention kernel call on each route: a prompt without a cached prefix, causal, milliseconds."""

    tokens: int
    absorbed: float
    expanded: float


#: 128 heads of DeepSeek-V3's widths in bf16, one request, on an H200: the attention kernel alone, no projection.
#: Absorbed is SGLang 0.5.14 with FlashAttention 3 on [latent | rope] entries, expanded is TensorRT-LLM 1.3.0rc20.
#: Source: ai-dynamo/aiconfigurator@095f58a5 (Apache-2.0), h200_sxm/mla, context_mla_perf of both, kernel times.
PREFILL_H200 = (
    Prefill(1024, 0.342278, 0.135883),
    Prefill(2048, 1.051478, 0.379771),
    Prefill(4096, 3.917931, 1.249003),
    Prefill(8192, 15.875223, 4.816347),
    Prefill(16384, 62.750702, 19.165488),
    Prefill(32768, 245.762866, 76.992594),
)


class AllToAll(NamedTuple):
    """One measured dispatch (FP8) and combine (bf16) of DeepSeek-V3's layer: microseconds, on each of ``ranks`` GPUs
    that send ``tokens`` tokens to 8 experts each."""

    ranks: int
    tokens: int
    dispatch: float
    combine: float


#: DeepEP's low-latency kernels on H800, a 400 Gb/s network card each, 128 tokens a GPU, hidden width 7,168.
#: Source: the README of deepseek-ai/DeepEP, version 1 (now docs/legacy.md).
DEEPEP_H800 = (
    AllToAll(8, 128, 77, 114),
    AllToAll(16, 128, 118, 195),
    AllToAll(32, 128, 155, 273),
    AllToAll(64, 128, 173, 314),
    AllToAll(128, 128, 192, 369),
    AllToAll(256, 128, 194, 360),
)

#: The same kernels on one node of eight H200, over NVLink, by the tokens of each GPU.
#: Source: ai-dynamo/aiconfigurator@095f58a5 (Apache-2.0), h200_sxm, DeepEP's low-latency mode.
DEEPEP_H200 = (
    AllToAll(8, 1, 11.905, 12.557),
    AllToAll(8, 2, 11.884, 12.754),
    AllToAll(8, 4, 12.016, 13.092),
    AllToAll(8, 8, 12.317, 15.031),
    AllToAll(8, 16, 14.245, 18.275),
    AllToAll(8, 32, 16.493, 24.555),
    AllToAll(8, 64, 22.994, 38.757),
    AllToAll(8, 128, 35.119, 67.745),
    AllToAll(8, 256, 60.522, 124.475),
    AllToAll(8, 512, 112.365, 244.079),
    AllToAll(8, 1024, 211.099, 480.969),
)


def as_reached(m: Machine) -> Machine:
    """``m`` with the shares of its datasheet that others' kernels reached: of bandwidth and arithmetic what
    ``reached_h200`` says of an H200 in bf16 (taken for every GPU and dtype), of the network what DeepEP did between 128
    GPUs with 128 tokens each."""
    reached, full = reached_h200(), machine("H200")
    between = next(row for row in DEEPEP_H800 if row.ranks == 128)
    moved = 8 * between.tokens * (7392 + 14336)
    share = reached.rate() / full.rate()
    return replace(
        m,
        name=f"{m.name}, as reached",
        bandwidth=m.bandwidth * reached.bandwidth / full.bandwidth,
        flops={dtype: rate * share for dtype, rate in m.flops.items()},
        network=m.network * moved / ((between.dispatch + between.combine) / 1e6) / machine("H800").network,
        source="this module's times",
    )


def layer_floor() -> float:
    """Seconds of a layer that hardly work at all: DeepEP's both ways with one token a GPU, and FlashAttention 3 on one
    request of 1,024 tokens, 128 heads. Other kernels of a layer have floors of their own, left out here."""
    least = DEEPEP_H200[0]
    return (least.dispatch + least.combine) / 1e6 + decode_h200("FlashAttention 3", 128, 1)[1024]


class DraftsGain(NamedTuple):
    """A published gain of drafts: tokens a second with them over tokens a second without. None is what was not said."""

    where: str
    requests: int
    cached_tokens: int | None
    num_draft_tokens: int | None
    gain: float


#: Gains of DeepSeek-V3's MTP. Sources: SGLang, docs/basic_usage/deepseek.md (requests of a group of 8 GPUs that share
#: every layer); LMSYS, blog of 2025-07-17 (requests of each of 96 decoding GPUs; 2,000 tokens in, 100 out).
MTP_GAINS = (
    DraftsGain("SGLang, 8 H200, tensor parallel", 1, None, None, 1.8),
    DraftsGain("SGLang, 8 H200, tensor parallel", 32, None, None, 1.5),
    DraftsGain("LMSYS, 96 H200, expert parallel", 128, 2050, 1, 1.142),
)


class DraftsThroughput(NamedTuple):
    """A published throughput of a GPU: whether the CPU's scheduling overlapped with it, drafts, tokens that a step
    added on average, and tokens a second."""

    overlap: bool
    num_draft_tokens: int
    advance: float
    tokens_a_second: float


#: DeepSeek-V3 on 16 decoding H200, two requests on each, 65,536 tokens in and 4,096 out, so 67,584 cached half way.
#: A window of 3 tokens is 2 drafts. Source: LMSYS, blog of 2025-07-17 on MTP in SGLang, the first case.
MTP_16_H200 = (
    DraftsThroughput(False, 0, 1.0, 51.0),
    DraftsThroughput(True, 0, 1.0, 60.4),
    DraftsThroughput(False, 2, 2.18, 81.5),
    DraftsThroughput(False, 3, 2.44, 82.0),
)
MTP_16_H200_REQUESTS, MTP_16_H200_CACHED = 2, 67_584


class CostLine(NamedTuple):
    """A drawn cost of one token at a position, in US$ a million such tokens: a straight line, and after a kink one of
    another slope. Slopes are for each 1,024 positions."""

    start: float
    slope: float
    kink: float = math.inf
    slope_after: float = 0.0

    def at(self, position: float) -> float:
        """The cost at ``position``, the number of tokens before it."""
        return self.start + self.attention(position)

    def attention(self, position: float) -> float:
        """What of it depends on the position."""
        before, after = min(position, self.kink), max(position - self.kink, 0.0)
        return (self.slope * before + self.slope_after * after) / 1024


#: By model and phase. Source: DeepSeek-V3.2's report, figure 3, lines read off the drawing: cost on H800 GPUs at 2 US$
#: an hour for each, by the position of a token. V3.1 is dense, V3.2 has the indexer.
V32_COST: Mapping[tuple[str, str], CostLine] = {
    ("V3.1", "prefill"): CostLine(0.05287, 0.0047883),
    ("V3.2", "prefill"): CostLine(0.06111, 0.005889, 6747, 0.000718),
    ("V3.1", "decode"): CostLine(0.07050, 0.0162802),
    ("V3.2", "decode"): CostLine(0.09519, 0.02458, 2105, 0.00082085),
}
GPU_HOUR = 2.0


def rate_of_slope(slope: float, pair_flops: float, num_layers: int) -> float:
    """FLOP/s at which a GPU must work for a cost to rise by ``slope`` US$ a million tokens each 1,024 positions, where
    each position adds ``pair_flops`` in each of ``num_layers``."""
    return 1024 * num_layers * pair_flops * 1e6 * GPU_HOUR / 3600 / slope


class Rate(NamedTuple):
    """FLOP/s, and the dtype whose peak it is a share of."""

    rate: float
    dtype: str


def v32_rates(model: Model) -> dict[str, Rate]:
    """The speeds that ``V32_COST`` supposes for each part, by the FLOP of a pair of ``model``, DeepSeek-V3.2.

    Masked MHA is what V3.2's prefill runs before its kink, beside the indexer. Attention over the picks is taken at the
    kink, where it is topk pairs high.
    """
    pair, layers = pair_flops(model), model.num_mla_layers
    prefill, decode = V32_COST["V3.2", "prefill"], V32_COST["V3.2", "decode"]

    def picks(line: CostLine) -> float:
        return (line.slope - line.slope_after) * line.kink / model.index_topk

    return {
        "dense, prefill": Rate(rate_of_slope(V32_COST["V3.1", "prefill"].slope, pair.expanded, layers), "bf16"),
        "dense, decode": Rate(rate_of_slope(V32_COST["V3.1", "decode"].slope, pair.absorbed, layers), "bf16"),
        "masked MHA, prefill": Rate(rate_of_slope(prefill.slope - prefill.slope_after, pair.expanded, layers), "bf16"),
        "indexer, prefill": Rate(rate_of_slope(prefill.slope_after, pair.indexer, layers), "fp8"),
        "indexer, decode": Rate(rate_of_slope(decode.slope_after, pair.indexer, layers), "fp8"),
        "over the picks, prefill": Rate(rate_of_slope(picks(prefill), pair.absorbed, layers), "bf16"),
        "over the picks, decode": Rate(rate_of_slope(picks(decode), pair.absorbed, layers), "bf16"),
    }


#: Cached tokens of a request, for the modules below.
MODULE_TOKENS = (512, *CACHED_TOKENS)
#: Microseconds of one layer's whole attention module while it decodes, by kind, cache and requests, one for each of
#: ``MODULE_TOKENS``: projections in FP8, 128 heads, one new token a request. Dense is DeepSeek-V3's, sparse V3.2's with
#: its indexer; "fp8" is one byte a value where dense, FlashMLA's 656 bytes an entry where sparse.
#: Source: ai-dynamo/aiconfigurator@095f58a5 (Apache-2.0), h200_sxm, vLLM 0.24.0, mla and dsa generation modules.
DECODE_MODULE_H200: Mapping[tuple[str, str, int], tuple[float, ...]] = {
    ("dense", "bf16", 1): (138.3, 137.9, 140.0, 142.8, 146.9, 154.1, 163.4, 192.2, 237.8),
    ("dense", "fp8", 1): (149.2, 147.7, 151.2, 155.5, 155.6, 161.4, 167.0, 178.5, 201.6),
    ("sparse", "bf16", 1): (221.6, 234.7, 263.7, 270.8, 273.2, 277.7, 272.6, 276.8, 283.6),
    ("sparse", "fp8", 1): (198.7, 201.0, 199.2, 208.1, 210.3, 212.6, 211.1, 211.8, 215.9),
    ("dense", "bf16", 16): (163.3, 168.3, 175.4, 186.0, 210.8, 262.5, 362.1, 561.5, 954.3),
    ("sparse", "fp8", 16): (251.6, 250.1, 252.4, 260.6, 264.1, 274.0, 279.0, 298.5, 336.6),
    ("dense", "bf16", 64): (188.4, 200.0, 225.3, 275.5, 375.5, 575.1, 969.1, 1778.6, 3379.1),
    ("dense", "fp8", 64): (187.9, 204.7, 224.5, 274.1, 368.6, 572.2, 945.7, 1687.8, 3174.3),
    ("sparse", "bf16", 64): (259.1, 275.2, 307.2, 320.3, 330.3, 351.3, 392.5, 483.1, 635.9),
    ("sparse", "fp8", 64): (337.7, 339.4, 340.3, 355.4, 363.2, 386.4, 426.1, 516.0, 672.2),
}


def decode_module_h200(kind: str, cache: str, requests: int) -> dict[int, float]:
    """Seconds of the module by the cached tokens of each request; a ValueError names what there is."""
    if (kind, cache, requests) not in DECODE_MODULE_H200:
        rows = "; ".join(f"{k}, {c}, {n} requests" for k, c, n in DECODE_MODULE_H200)
        raise ValueError(f"no times of {kind!r} with a {cache!r} cache and {requests} requests; there are: {rows}")
    times = DECODE_MODULE_H200[kind, cache, requests]
    return {tokens: us / 1e6 for tokens, us in zip(MODULE_TOKENS, times, strict=True)}


def module_requests_h200(kind: str, cache: str, cached_tokens: int, seconds: float) -> float:
    """Requests that the module decodes in ``seconds``, each with one of ``MODULE_TOKENS`` cached: between the published
    numbers of requests, and beyond the last, by straight lines. 0 where one takes longer."""
    counts = sorted(n for k, c, n in DECODE_MODULE_H200 if (k, c) == (kind, cache))
    times = [decode_module_h200(kind, cache, n)[cached_tokens] for n in counts]
    if seconds < times[0]:
        return 0.0
    last = min(max(bisect_right(times, seconds), 1), len(times) - 1)
    part = (seconds - times[last - 1]) / (times[last] - times[last - 1])
    return counts[last - 1] + part * (counts[last] - counts[last - 1])


class PrefillModule(NamedTuple):
    """One layer's whole attention module on a prompt without a prefix, milliseconds: dense with expanded keys, and
    sparse with its indexer."""

    tokens: int
    dense: float
    sparse: float


#: One request, 128 heads, projections in FP8, bf16 cache. Source: as above, the context modules.
PREFILL_MODULE_H200 = (
    PrefillModule(1024, 0.7090, 1.6730),
    PrefillModule(2048, 1.4306, 2.9435),
    PrefillModule(4096, 2.9360, 6.3077),
    PrefillModule(8192, 7.2649, 13.4932),
    PrefillModule(16384, 20.6465, 28.7155),
    PrefillModule(32768, 68.6441, 63.2986),
)


def crossing(rising: Mapping[int, float], falling: Mapping[int, float]) -> float:
    """The size from which on ``falling`` is the smaller of two tables over the same sizes, between entries by straight
    lines on logarithmic axes. Infinite where it is not the smaller at the end, 0 where it is all along."""
    gaps = [(math.log(size), math.log(falling[size] / rising[size])) for size in sorted(rising)]
    if gaps[-1][1] >= 0:
        return math.inf
    above = [place for place, (_, gap) in enumerate(gaps) if gap >= 0]
    if not above:
        return 0.0
    (x, y), (x_next, y_next) = gaps[above[-1]], gaps[above[-1] + 1]
    return math.exp(x + (x_next - x) * y / (y - y_next))
