"""Pictures of the lesson on what DSA costs: the ledger of a whole model by context, and what a cached token takes."""

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

from ledger.account.cache import (
    CACHE_FORMATS,
    cache_bytes_per_token,
    indexer_bytes_per_token,
    model_bytes_per_token,
)
from ledger.account.dsa import (
    Decode,
    Prefill,
    break_even_position,
    break_even_prompt,
    dsa_decode_ledger,
    dsa_prefill_ledger,
    pair_flops,
)
from ledger.models import MODELS, Model
from ledger.published import (
    CACHED_TOKENS,
    PREFILL_MODULE_H200,
    V32_COST,
    crossing,
    decode_module_h200,
    module_requests_h200,
)
from ledger.widgets.base import COLORS, Choice, Explorer, Steps, log_axes, new_figure, plain_ticks, powers_of_two

NAMES = ("DeepSeek-V3.2", "GLM-5", "GLM-5.2")
CONTEXTS = powers_of_two(1024, 1 << 20)
DENSE, SPARSE, KEYS = COLORS["materialize"], COLORS["absorb"], COLORS["value"]


def decode_totals(model: Model, cached_tokens: int, cache_format: str) -> Decode:
    """One query of one request through all latent-attention layers, those that reuse a selection among them."""
    return _over_layers(model, lambda each: dsa_decode_ledger(cached_tokens, each, model.index_topk, cache_format))


def prefill_totals(model: Model, prompt_tokens: int) -> Prefill:
    """A whole prompt through all latent-attention layers, added up over positions."""
    return _over_layers(model, lambda each: dsa_prefill_ledger(prompt_tokens, each, model.index_topk, exact=True))


def _over_layers(model: Model, ledger):
    """Layers with an indexer and layers without one, added up."""
    reusing = replace(model, index_heads=None, index_dim=None, num_indexer_layers=0)
    owners, others = model.num_indexer_layers, model.num_mla_layers - model.num_indexer_layers
    pairs = zip(ledger(model), ledger(reusing), strict=True)
    return type(ledger(model))(*(owners * own + others * other for own, other in pairs))


class Crossings(NamedTuple):
    """Tokens from which on DSA costs less than dense attention without an indexer, for a whole model."""

    decode: float
    reads: float
    prompt: float


def crossings(model: Model, cache_format: str) -> Crossings:
    """By FLOP of a decoded token, by bytes that it reads, and by FLOP of a whole prompt, exact."""
    pair, entry, topk = pair_flops(model), cache_bytes_per_token(model, cache_format), model.index_topk
    share = model.num_indexer_layers / model.num_mla_layers
    read, saved = share * indexer_bytes_per_token(model), pair.expanded - share * pair.indexer
    # saved · L(L + 1)/2 = absorbed · (topk · L − topk(topk − 1)/2)
    half = topk * pair.absorbed / saved - 0.5
    prompt = half + math.sqrt(half * half - topk * (topk - 1) * pair.absorbed / saved)
    return Crossings(
        topk * pair.absorbed / (pair.absorbed - share * pair.indexer), topk * entry / (entry - read), prompt
    )


def thousands(tokens: float) -> str:
    """4,096 as 4K, 1,048,576 as 1M."""
    return f"{tokens / 2**20:.0f}M" if tokens >= 1 << 20 else f"{tokens / 1024:.0f}K"


def about(tokens: float) -> int:
    """As good as a crossing between two published lengths is known: to 500 tokens, from 50,000 on to 10,000."""
    step = 500 if tokens < 50_000 else 10_000
    return step * round(tokens / step)


def times_less(gain: float) -> str:
    """A dense cost over a sparse one in words."""
    return f"{gain:.1f} times less" if gain >= 1 else f"{1 / gain:.1f} times more"


#: (title, unit of the axis, what one unit is) of the three charts.
CHARTS = (
    ("decode, FLOP", "GFLOP a token, all layers", 1e9),
    ("decode, reads", "MB a token, all layers", 1e6),
    ("prefill, FLOP", "TFLOP a prompt, all layers", 1e12),
)


class DsaLedger(Explorer):
    """Dense attention and DSA by context: what a decoded token computes and reads, what a prompt computes, and what
    the cache takes. Where the two lines cross is marked."""

    title = "FLOP and bytes of dense attention and of DSA by context, their crossings, and the bytes of the cache"
    size = (9.3, 5.3)

    def controls(self):
        return {
            "cached_tokens": Steps("context, tokens", CONTEXTS, 1 << 17),
            "model": Choice("model", list(NAMES), NAMES[0]),
            "cache_format": Choice("cache of latents", list(CACHE_FORMATS), "bf16_mla"),
        }

    def setup(self, fig):
        axes = fig.subplots(2, 2)
        view = SimpleNamespace(charts=list(axes.flat[:3]), cache=axes[1, 1], lines=[], marks=[], dots=[], at=[])
        for ax, (_, unit, _) in zip(view.charts, CHARTS, strict=True):
            log_axes(ax)
            ax.set(xlim=(CONTEXTS[0], CONTEXTS[-1]), xlabel="context, tokens", ylabel=unit)
            shown = CONTEXTS[::5]
            ax.set_xticks(shown, [thousands(tokens) for tokens in shown])
            ax.yaxis.get_major_locator().set_params(numticks=4)
            looks = (("dense", DENSE, "--"), ("DSA", SPARSE, "-"))
            view.lines.append([ax.plot([], [], s, color=c, label=n, gid=n)[0] for n, c, s in looks])
            view.at.append(ax.axvline(CONTEXTS[0], color=COLORS["neutral"], linewidth=1))
            view.dots.append(ax.plot([], [], "o", color=COLORS["measure"], gid="chosen", clip_on=False)[0])
            view.marks.append(ax.plot([], [], "D", color=COLORS["ink"], markersize=7, gid="crossing", zorder=4)[0])
        view.charts[0].legend(loc="upper left")
        cache = view.cache
        rows = ("dense", "DSA")
        view.entries = cache.barh(rows, [1.0, 1.0], height=0.5, color=COLORS["latent"], label="latents, rope")
        view.keys = cache.barh(rows, [0.0, 1.0], height=0.5, color=KEYS, label="indexer's keys")
        view.sums = [cache.text(1, place, "", va="center", fontsize=9) for place in range(2)]
        cache.set(ylim=(2.3, -0.5), xlabel="GB a request, all layers")
        cache.grid(visible=False, axis="y")
        cache.locator_params(axis="x", nbins=5)
        cache.legend(loc="lower right", bbox_to_anchor=(1.0, -0.02))
        return view

    def update(self, view, cached_tokens: int, model: str, cache_format: str) -> None:
        """``model`` is a published name of ``NAMES``, ``cached_tokens`` one of ``CONTEXTS``."""
        shape = MODELS[model]
        decode = [decode_totals(shape, tokens, cache_format) for tokens in CONTEXTS]
        prompts = [prefill_totals(shape, tokens) for tokens in CONTEXTS]
        pairs = [[d[:2] for d in decode], [d[2:] for d in decode], [tuple(p) for p in prompts]]
        place = CONTEXTS.index(cached_tokens)
        for chart, (title, _, unit) in enumerate(CHARTS):
            dense, sparse = ([float(pair[side]) / unit for pair in pairs[chart]] for side in (0, 1))
            for line, values in zip(view.lines[chart], (dense, sparse), strict=True):
                line.set_data(CONTEXTS, values)
            view.charts[chart].set_ylim(0.5 * min(dense + sparse), 2 * max(dense + sparse))
            equal = crossings(shape, cache_format)[chart]
            view.marks[chart].set_data([equal], [_dense_at(shape, cache_format, chart, equal) / unit])
            view.at[chart].set_xdata([cached_tokens, cached_tokens])
            view.dots[chart].set_data(2 * [cached_tokens], [dense[place], sparse[place]])
            gain = times_less(dense[place] / sparse[place])
            view.charts[chart].set_title(f"{title}: {gain}, equal at {equal:,.0f}", fontsize=10.5)
        self._update_cache(view, shape, cached_tokens, cache_format)

    def _update_cache(self, view, shape: Model, cached_tokens: int, cache_format: str) -> None:
        entries = cached_tokens * shape.num_mla_layers * cache_bytes_per_token(shape, cache_format) / 1e9
        keys = cached_tokens * shape.num_indexer_layers * indexer_bytes_per_token(shape) / 1e9
        for place, (bar, key, label) in enumerate(zip(view.entries, view.keys, view.sums, strict=True)):
            bar.set_width(entries)
            key.set_x(entries)
            key.set_width(place * keys)
            total = entries + place * keys
            label.set_text(f"{total:.3g}")
            label.set_x(total + 0.02 * entries)
        view.cache.set_xlim(0, 1.4 * entries)
        view.cache.set_title(f"the cache grows by {keys / entries:.1%}", fontsize=10.5)


def _dense_at(model: Model, cache_format: str, chart: int, tokens: float) -> float:
    """What dense attention costs in one of the three charts at a length that need not be whole."""
    pair, layers = pair_flops(model), model.num_mla_layers
    each = (pair.absorbed, cache_bytes_per_token(model, cache_format), pair.expanded * (tokens + 1) / 2)[chart]
    return layers * tokens * each


def overhead_strips(models: Sequence[tuple[Model, str]]):
    """A cached token of each (model, cache format), averaged over its layers, as a strip of bytes to one scale: the
    entry, and the indexer's key. A Figure."""
    fig = new_figure(8.6, 0.75 + 0.5 * len(models), alt="Bytes of a cached token, entry and indexer's key, by format")
    ax = fig.subplots()
    for place, (model, cache_format) in enumerate(models):
        entry = cache_bytes_per_token(model, cache_format)
        key = indexer_bytes_per_token(model) * model.num_indexer_layers / model.num_mla_layers
        ax.barh(place, entry, height=0.6, color=COLORS["latent"])
        ax.barh(place, key, left=entry, height=0.6, color=KEYS)
        ax.text(entry / 2, place, f"{entry:,}", ha="center", va="center", color=COLORS["paper"], fontsize=9)
        ax.text(entry + key + 12, place, f"+ {key:.3g} = {key / entry:.1%}", va="center", fontsize=9)
    ax.set_yticks(range(len(models)), [f"{model.name}, {cache_format}" for model, cache_format in models])
    ax.set(xlim=(0, 1520), ylim=(len(models) - 0.5, -0.5), xlabel="bytes of a token in a layer")
    ax.set_title("entry + indexer's key, and by how much the cache grows", fontsize=10.5)
    ax.grid(visible=False, axis="y")
    return fig


def break_even_pictures(model: Model):
    """One query's FLOP by its position, and a whole prompt's over those of a dense one by its length, with the places
    where they are equal. A Figure."""
    pair, topk = pair_flops(model), model.index_topk
    at = sorted({round(2 ** (n / 16)) for n in range(9 * 16, 16 * 16 + 1)})
    fig = new_figure(9.2, 3.5, alt=f"{model.name}: one query by position, and a prompt by length, dense and sparse")
    one, whole = fig.subplots(1, 2)
    one.plot(at, [p * pair.expanded / 1e9 for p in at], "--", color=DENSE, label="all before it, expanded")
    one.plot(at, [min(p, topk) * pair.absorbed / 1e9 for p in at], color=SPARSE, label="its picks, absorbed")
    here = break_even_position(model, topk)
    one.plot([here], [here * pair.expanded / 1e9], "D", color=COLORS["ink"], zorder=4)
    plateau = topk * pair.absorbed / 1e9
    one.set(xlabel="position", ylabel="GFLOP in a layer", ylim=(0, 2.4 * plateau), title=f"one query: {here:,.0f}")
    prompts = [dsa_prefill_ledger(tokens, model, topk, exact=True) for tokens in at]
    whole.plot(at, [p.sparse_flops / p.dense_flops for p in prompts], color=SPARSE, label="DSA")
    equal = []
    for name, level, alone, color, dash in (
        ("masked MHA", 1 + pair.indexer / pair.expanded, False, KEYS, "-."),
        ("dense, no indexer", 1.0, True, DENSE, "--"),
    ):
        equal.append(break_even_prompt(model, topk, True, alone))
        whole.axhline(level, linestyle=dash, color=color, label=name)
        whole.plot(equal[-1:], [level], "D", color=COLORS["ink"], zorder=4)
    title = f"a whole prompt: {equal[0]:,.0f} and {equal[1]:,.0f}"
    whole.set(xlabel="length of the prompt", ylabel="FLOP ÷ dense", ylim=(0, 4), title=title)
    for ax, place in ((one, "upper left"), (whole, "upper right")):
        ax.set_xscale("log")
        ax.set_xticks([512, 2048, 8192, 32768], ["512", "2K", "8K", "32K"])
        ax.minorticks_off()
        ax.legend(loc=place)
    return fig


def saving_lines(model: Model):
    """How many times less DSA computes and reads than dense attention in decode, by context, and the limits. A
    Figure."""
    fig = new_figure(8.4, 3.4, alt=f"{model.name}: dense over DSA in compute and in reads, by context, and the limits")
    ax = fig.subplots()
    for name, cache_format, side, color, dash in (
        ("compute", "bf16_mla", 0, "absorb", "-"),
        ("reads, bf16", "bf16_mla", 2, "latent", "--"),
        ("reads, FP8", "fp8_ds_mla", 2, "value", "-."),
    ):
        rows = [dsa_decode_ledger(tokens, model, model.index_topk, cache_format) for tokens in CONTEXTS]
        pair = pair_flops(model)
        limit = pair.absorbed / pair.indexer
        if side:
            limit = cache_bytes_per_token(model, cache_format) / indexer_bytes_per_token(model)
        ratios = [row[side] / row[side + 1] for row in rows]
        ax.plot(CONTEXTS, ratios, dash, color=COLORS[color], label=f"{name}, limit {limit:.1f}")
        ax.axhline(limit, color=COLORS[color], linewidth=0.8)
    ax.set(xscale="log", xlabel="cached tokens", ylabel="dense ÷ DSA", ylim=(0, 18.5), title=f"{model.name}, decode")
    ax.set_xticks(CONTEXTS[::2], [thousands(tokens) for tokens in CONTEXTS[::2]])
    ax.minorticks_off()
    ax.legend(loc="upper left", bbox_to_anchor=(0, 0.93))
    return fig


def cost_curves():
    """The costs of V3.2's report as they were read off, one token by its position, prefill and decode: starts and kinks
    are dots, slopes the lines from them. A Figure."""
    fig = new_figure(
        9.0, 3.4, alt="US$ a million tokens by position, V3.1 and V3.2, prefill and decode, from the report"
    )
    for ax, phase in zip(fig.subplots(1, 2), ("prefill", "decode"), strict=True):
        for version, look, color in (("V3.1", "--", DENSE), ("V3.2", "-", SPARSE)):
            line = V32_COST[version, phase]
            at = sorted({0.0, min(line.kink, 131_072.0), 131_072.0})
            ax.plot([p / 1024 for p in at], [line.at(p) for p in at], look, color=color, label=f"DeepSeek-{version}")
            ax.plot([p / 1024 for p in at[:-1]], [line.at(p) for p in at[:-1]], "o", color=color, clip_on=False)
        ax.set(xlabel="position, K tokens", ylabel="US$ a million tokens", title=phase, xlim=(0, 128), ylim=(0, None))
        ax.set_xticks(range(0, 129, 32))
        ax.legend(loc="upper left")
    return fig


def module_times():
    """Published times of a layer on an H200, dense and DSA: decode at 64 requests and at one, and a prompt. A
    Figure."""
    tables = {
        f"decode, {n} request{'s' if n > 1 else ''}": (
            decode_module_h200("dense", "bf16", n),
            decode_module_h200("sparse", "fp8", n),
        )
        for n in (64, 1)
    }
    sides = ({row.tokens: getattr(row, kind) / 1e3 for row in PREFILL_MODULE_H200} for kind in ("dense", "sparse"))
    tables["a prompt, 1 request"] = tuple(sides)
    fig = new_figure(
        9.6, 3.4, alt="Published ms of a layer's attention on an H200, dense and DSA, and where they cross"
    )
    for ax, (name, (dense, sparse)) in zip(fig.subplots(1, 3), tables.items(), strict=True):
        for table, label, look, color in ((dense, "dense", "o--", DENSE), (sparse, "DSA", "s-", SPARSE)):
            ax.plot(list(table), [1e3 * seconds for seconds in table.values()], look, color=color, label=label)
        equal = crossing(dense, sparse)
        ax.axvline(equal, color=COLORS["ink"], linewidth=1)
        title = f"{name}:\nequal at about {about(equal):,}"
        ax.set(xscale="log", yscale="log", xlabel="tokens", ylabel="ms, log scale", title=title)
        ticks = (1024, 8192, 65536) if max(dense) > 65536 else (1024, 4096, 16384)
        ax.set_xticks(ticks, [thousands(tokens) for tokens in ticks])
        low, high = min(*dense.values(), *sparse.values()), max(*dense.values(), *sparse.values())
        shown = (0.15, 0.2, 0.25) if high < 3 * low else (0.2, 0.5, 1, 2, 5, 10, 20, 50)
        ax.set_yticks([y for y in shown if 1e3 * low < y < 1e3 * high])
        ax.minorticks_off()
        ax.yaxis.set_major_formatter("{x:g}")
    fig.axes[0].legend(loc="upper left")
    return fig


def verified_rows(model: Model, cached_tokens: float, cache_format: str, drafts: int, shared: float) -> float:
    """Bytes that a layer reads with ``drafts`` over those without: each verified row picks its own tokens, of which
    the rows after the first find the share ``shared`` already read. The indexer's keys are read once for all rows."""
    keys = cached_tokens * indexer_bytes_per_token(model)
    met = min(cached_tokens, model.index_topk)
    rows = min(met * (1 + drafts * (1 - shared)), cached_tokens)
    entry = cache_bytes_per_token(model, cache_format)
    return (keys + rows * entry) / (keys + met * entry)


def draft_lines(model: Model, cache_format: str):
    """Bytes read with one to three drafts over those without, by the share of picks that rows share and by context. A
    Figure."""
    fig = new_figure(
        9.2, 3.4, alt=f"{model.name}, {cache_format}: bytes read with drafts, by shared picks and by context"
    )
    by_share, by_context = fig.subplots(1, 2)
    shares = [n / 20 for n in range(21)]
    # Eight steps from one power of two to the next, and the lengths at which the rows together read all there is.
    contexts = sorted({1024 * 2 ** (n / 8) for n in range(81)} | {float(model.index_topk * n) for n in (2, 3, 4)})
    for drafts, look, color in ((1, "-", "absorb"), (2, "--", "value"), (3, "-.", "rope")):
        label = f"{drafts} draft{'s' if drafts > 1 else ''}"
        for ax, at, values in (
            (
                by_share,
                [100 * s for s in shares],
                [verified_rows(model, 8192, cache_format, drafts, s) for s in shares],
            ),
            (by_context, contexts, [verified_rows(model, n, cache_format, drafts, 0.0) for n in contexts]),
        ):
            ax.plot(at, values, look, color=COLORS[color], label=label)
    for ax in (by_share, by_context):
        ax.axhline(1, color=COLORS["neutral"], linewidth=1)
        ax.set(ylabel="bytes read ÷ without drafts", ylim=(0.9, None))
    by_share.text(0, 1.02, "dense attention: 1", fontsize=9)
    by_share.set(xlabel="% of a further row's picks already read", title="8,192 cached tokens")
    by_context.set(xscale="log", xlabel="cached tokens", title="no pick shared")
    by_context.set_xticks(CONTEXTS[::2], [thousands(tokens) for tokens in CONTEXTS[::2]])
    by_context.minorticks_off()
    by_share.legend(loc="upper right")
    return fig


class Limits(NamedTuple):
    """Requests of ``cached_tokens`` that fit on a GPU, and whose attention is fast enough, dense and with DSA."""

    cached_tokens: int
    dense_fits: float
    dense_fast: float
    sparse_fits: float
    sparse_fast: float


def limits_by_context(model: Model, memory: float, seconds: float) -> list[Limits]:
    """What ``memory`` bytes hold, and what the attention modules of all layers decode in ``seconds``, not rounded. An
    H200's published times, and the FP8 caches that they are of: a byte a value dense, 656 and the index key with DSA.
    """
    layers, rows = model.num_mla_layers, []
    for tokens in CACHED_TOKENS:
        dense_bytes = layers * cache_bytes_per_token(model, "fp8_plain_mla")
        held = [memory / tokens / size for size in (dense_bytes, model_bytes_per_token(model, "fp8_ds_mla"))]
        fast = [module_requests_h200(kind, "fp8", tokens, seconds / layers) for kind in ("dense", "sparse")]
        rows.append(Limits(tokens, held[0], fast[0], held[1], fast[1]))
    return rows


def two_limits(rows: Sequence[Limits]):
    """Requests of a GPU by context: what fits in memory and what is fast enough, dense and with DSA. What it serves is
    the smaller, shaded. A Figure."""
    fig = new_figure(
        9.0, 3.5, alt="Requests that fit on a GPU, and that are fast enough, dense and with DSA, by context"
    )
    contexts = [float(row.cached_tokens) for row in rows]
    axes = fig.subplots(1, 2, sharey=True)
    for ax, (side, color) in zip(axes, (("dense", DENSE), ("sparse", SPARSE)), strict=True):
        fits, fast = ([float(getattr(row, f"{side}_{limit}")) for row in rows] for limit in ("fits", "fast"))
        ax.plot(contexts, fits, "-", color=COLORS["latent"], label="fits")
        ax.plot(contexts, fast, "o--", color=color, label="fast enough")
        ax.fill_between(contexts, 1.0, [min(pair) for pair in zip(fits, fast, strict=True)], color=color, alpha=0.12)
        log_axes(ax)
        ax.set(xlabel="tokens of each request", ylim=(1, None), title="DSA" if side == "sparse" else "dense")
        ax.set_xticks(contexts[::2], [thousands(tokens) for tokens in contexts[::2]])
        plain_ticks(ax.yaxis)
        ax.legend(loc="upper right")
    axes[0].set_ylabel("requests of a GPU")
    return fig
