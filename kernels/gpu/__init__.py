"""The course's kernels in Triton: on an NVIDIA or AMD GPU, or in Triton's interpreter where torch finds none.

One entry point a kernel: it checks its arguments, launches, and returns tensors. Everything lies on ``DEVICE``.
"""

from operator import index

from ledger.kernels.gpu.absorb_heads import absorb_heads as absorb_heads_kernel
from ledger.kernels.gpu.entry import (
    ROWS,
    Decoded,
    check_shape,
    check_sizes,
    last_axis_dense,
    power_of_two,
    side_by_side,
)
from ledger.kernels.gpu.materialize_prefill import attend, expand
from ledger.kernels.gpu.mla_decode import combine, one_head, shared_tile
from ledger.kernels.gpu.paged import TILE, IndexCache, PagedCache, quantize_index
from ledger.kernels.gpu.sparse import (
    index_scores,
    nsa_attend,
    nsa_compress,
    nsa_select,
    select_topk,
    sparse_mla_decode,
)
from ledger.kernels.gpu.tuning import architecture, decode_blocks, product_blocks
from ledger.kernels.gpu.value_up import value_up
from ledger.kernels.gpu.write_cache import write_cache as write_cache_kernel
from ledger.kernels.interpret.mode import DEVICE, INTERPRETED, dot_dtype, torch

__all__ = [
    "DEVICE",
    "INTERPRETED",
    "RUNGS",
    "Decoded",
    "IndexCache",
    "PagedCache",
    "absorb_heads",
    "decode_attention",
    "index_scores",
    "materialize_prefill",
    "mla_decode",
    "nsa_attend",
    "nsa_compress",
    "nsa_select",
    "quantize_index",
    "select_topk",
    "sparse_mla_decode",
    "write_cache",
]

#: The ladder of decode kernels, from the one that is easiest to read to the one that engines run.
RUNGS = ("one_head", "shared_tile", "split_kv")


def absorb_heads(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    w_kc: torch.Tensor,
    positions: torch.Tensor,
    theta: float,
    *,
    interleaved: bool = True,
) -> torch.Tensor:
    """The queries of absorbed attention, [absorbed | rotated]: q_nope (new_tokens, num_heads, nope_dim), q_rope
    (new_tokens, num_heads, rope_dim), w_kc (num_heads, nope_dim, latent_dim), positions (new_tokens,) ->
    (new_tokens, num_heads, latent_dim + rope_dim) in q_nope's dtype. Raises ValueError for arguments that do not fit.
    """
    new_tokens, num_heads, nope_dim = check_shape("q_nope", q_nope, "new_tokens, num_heads, nope_dim")
    check_sizes("q_rope", q_rope, "new_tokens, num_heads, rope_dim", (new_tokens, num_heads, None))
    check_sizes("w_kc", w_kc, "num_heads, nope_dim, latent_dim", (num_heads, nope_dim, None))
    rope_dim, latent_dim = q_rope.shape[2], w_kc.shape[2]
    cos, sin = _tables(positions, new_tokens, rope_dim, theta)
    q_nope, q_rope, w_kc = map(last_axis_dense, (q_nope, q_rope, w_kc))
    queries = q_nope.new_empty((new_tokens, num_heads, latent_dim + rope_dim))
    if not queries.numel():
        return queries
    blocks = product_blocks(architecture(), "absorb_heads")
    columns = -(-latent_dim // blocks["BLOCK_C"])
    absorb_heads_kernel[(-(-new_tokens // blocks["BLOCK_S"]), num_heads, columns + (rope_dim > 0))](
        *(q_nope, q_rope, w_kc, cos, sin, queries, new_tokens),
        *(*q_nope.stride()[:2], *q_rope.stride()[:2], *w_kc.stride()[:2], *queries.stride()[:2]),
        NOPE=nope_dim,
        LATENT=latent_dim,
        ROPE=rope_dim,
        BLOCK_P=power_of_two(rope_dim // 2),
        INTERLEAVED=interleaved,
        DOT=dot_dtype(q_nope.dtype),
        **blocks,
    )
    return queries


def write_cache(
    cache: PagedCache,
    latents: torch.Tensor,
    k_rope: torch.Tensor,
    norm_weight: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    eps: float,
    theta: float,
    *,
    interleaved: bool = True,
) -> None:
    """Write tokens into ``cache``: latents (tokens, latent_dim) raw, k_rope (tokens, rope_dim) not rotated, norm_weight
    (latent_dim,), positions (tokens,), slots (tokens,) int64, page · page_size + place, −1 for a token to leave out.

    The latent is normalised (RMSNorm with ``eps``), the key rotated at its position. Slots are distinct; where two are
    the same, which token stays is not said. Raises ValueError for arguments that do not fit.
    """
    (tokens, latent_dim) = check_shape("latents", latents, "tokens, latent_dim")
    if (latent_dim, k_rope.shape) != (cache.latent_dim, (tokens, cache.rope_dim)):
        raise ValueError(
            f"latents {tuple(latents.shape)} and k_rope {tuple(k_rope.shape)} do not fit a cache of "
            f"{cache.latent_dim} + {cache.rope_dim}"
        )
    check_sizes("norm_weight", norm_weight, "latent_dim", (latent_dim,))
    check_sizes("slots", slots, "tokens", (tokens,))
    capacity = cache.pages.shape[0] * cache.page_size
    if tokens and not -1 <= int(slots.min()) <= int(slots.max()) < capacity:
        raise ValueError(f"slots lie in {int(slots.min())} … {int(slots.max())}; the cache has 0 … {capacity - 1}")
    cos, sin = _tables(positions, tokens, cache.rope_dim, theta)
    latents, k_rope = last_axis_dense(latents), last_axis_dense(k_rope)
    if not tokens:
        return
    write_cache_kernel[(tokens,)](
        *(latents, k_rope, norm_weight.contiguous(), cos, sin, slots.to(torch.int64).contiguous()),
        *(cache.latent, cache.scales, cache.rope, cache.page_size, eps, latents.stride(0), k_rope.stride(0)),
        *(*cache.latent.stride()[:2], *cache.scales.stride()[:2], *cache.rope.stride()[:2]),
        LATENT=latent_dim,
        ROPE=cache.rope_dim,
        TILES=power_of_two(-(-latent_dim // TILE)),
        TILE=TILE,
        BLOCK_P=power_of_two(cache.rope_dim // 2),
        INTERLEAVED=interleaved,
        FP8=cache.fp8,
    )


def mla_decode(
    queries: torch.Tensor,
    cache: PagedCache,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    *,
    rung: str = "split_kv",
    num_splits: int | None = None,
    longest: int | None = None,
) -> Decoded:
    """One absorbed decode step: queries (requests, new_tokens, num_heads, latent_dim + rope_dim), block_table
    (requests, entries) int32 pages, lengths (requests,) int32 tokens of each request, its new ones included ->
    out (requests, new_tokens, num_heads, latent_dim) in the queries' dtype, lse (requests, new_tokens, num_heads).

    The last new token sees the whole length, the one before it one token fewer. A row that sees nothing gives 0 and
    −inf. What lies behind a length, in the pages and in the block table, is never read. ``rung`` is one of ``RUNGS``;
    ``num_splits`` parts of the cache are read side by side by ``split_kv``. Who knows the ``longest`` of the lengths
    says it: then no length is looked at, and the call does not wait for the GPU. Raises ValueError for what does not
    fit.
    """
    partials = _partials(queries, cache, block_table, lengths, scale, rung, num_splits, longest)
    requests, new_tokens, num_heads, _ = queries.shape
    out = queries.new_empty((requests, new_tokens, num_heads, cache.latent_dim))
    lse = torch.empty((requests, new_tokens, num_heads), dtype=torch.float32, device=queries.device)
    num_rows = new_tokens * num_heads
    if requests and num_rows:
        combine[(-(-num_rows // ROWS), requests)](
            *(*partials, out, lse, num_rows, partials.lse.shape[1]),
            LATENT=cache.latent_dim,
            BLOCK_C=max(16, power_of_two(cache.latent_dim)),
            BLOCK_H=ROWS,
        )
    return Decoded(out, lse)


def decode_attention(
    queries: torch.Tensor,
    cache: PagedCache,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    w_vc: torch.Tensor,
    scale: float,
    *,
    num_splits: int | None = None,
    longest: int | None = None,
) -> torch.Tensor:
    """``mla_decode`` and every head's value projection behind it, fused with the merge of the splits: w_vc (num_heads,
    latent_dim, value_dim) -> (requests, new_tokens, num_heads, value_dim)."""
    requests, new_tokens, num_heads, _ = check_shape(
        "queries", queries, "requests, new_tokens, num_heads, latent_dim + rope_dim"
    )
    check_sizes("w_vc", w_vc, "num_heads, latent_dim, value_dim", (num_heads, cache.latent_dim, None))
    w_vc, value_dim = last_axis_dense(w_vc), w_vc.shape[2]
    partials = _partials(queries, cache, block_table, lengths, scale, "split_kv", num_splits, longest)
    out = queries.new_empty((requests, new_tokens, num_heads, value_dim))
    if not out.numel():
        return out
    blocks = product_blocks(architecture(), "value_up")
    grid = -(-requests * new_tokens // blocks["BLOCK_B"]), num_heads, -(-value_dim // blocks["BLOCK_V"])
    value_up[grid](
        *(*partials, w_vc, out, requests, new_tokens, num_heads, partials.lse.shape[1], *w_vc.stride()[:2]),
        LATENT=cache.latent_dim,
        VALUE=value_dim,
        DOT=dot_dtype(queries.dtype),
        **blocks,
    )
    return out


def materialize_prefill(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    latents: torch.Tensor,
    k_rope: torch.Tensor,
    kv_b: torch.Tensor,
    scale: float,
    *,
    first_position: int | None = 0,
) -> Decoded:
    """Attention over keys and values that are expanded first: q_nope (new_tokens, num_heads, nope_dim), q_rope
    (new_tokens, num_heads, rope_dim) rotated, latents (cached_tokens, latent_dim) normalised, k_rope (cached_tokens,
    rope_dim) rotated, kv_b (num_heads, nope_dim + value_dim, latent_dim) -> out (new_tokens, num_heads, value_dim), lse
    (new_tokens, num_heads).

    New token i sees the keys 0 … first_position + i; with None it sees all. Raises ValueError for what does not fit.
    """
    new_tokens, num_heads, nope_dim = check_shape("q_nope", q_nope, "new_tokens, num_heads, nope_dim")
    check_sizes("q_rope", q_rope, "new_tokens, num_heads, rope_dim", (new_tokens, num_heads, None))
    cached_tokens, latent_dim = check_shape("latents", latents, "cached_tokens, latent_dim")
    rope_dim = q_rope.shape[2]
    check_sizes("k_rope", k_rope, "cached_tokens, rope_dim", (cached_tokens, rope_dim))
    check_sizes("kv_b", kv_b, "num_heads, nope_dim + value_dim, latent_dim", (num_heads, None, latent_dim))
    width = kv_b.shape[1]
    value_dim = width - nope_dim
    if value_dim < 1:
        raise ValueError(f"kv_b has {width} rows a head; nope_dim {nope_dim} leaves none for values")
    dot = dot_dtype(q_nope.dtype)
    q_nope, q_rope, latents, k_rope, kv_b = map(last_axis_dense, (q_nope, q_rope, latents, k_rope, kv_b))
    expanded = q_nope.new_empty((cached_tokens, num_heads, width))
    out = q_nope.new_empty((new_tokens, num_heads, value_dim))
    lse = torch.empty((new_tokens, num_heads), dtype=torch.float32, device=out.device)
    if expanded.numel():
        blocks = product_blocks(architecture(), "expand")
        expand[(-(-cached_tokens // blocks["BLOCK_T"]), num_heads, -(-width // blocks["BLOCK_W"]))](
            *(latents, kv_b, expanded, cached_tokens, latents.stride(0), *kv_b.stride()[:2], *expanded.stride()[:2]),
            LATENT=latent_dim,
            WIDTH=width,
            DOT=dot,
            **blocks,
        )
    if out.numel():
        blocks = product_blocks(architecture(), "attend")
        attend[(-(-new_tokens // blocks["BLOCK_S"]), num_heads)](
            *(q_nope, q_rope, expanded, k_rope, out, lse),
            *(new_tokens, cached_tokens, num_heads, first_position or 0, scale),
            *(*q_nope.stride()[:2], *q_rope.stride()[:2], *expanded.stride()[:2], k_rope.stride(0)),
            NOPE=nope_dim,
            ROPE=rope_dim,
            VALUE=value_dim,
            CAUSAL=first_position is not None,
            BLOCK_N=max(16, power_of_two(nope_dim)),
            BLOCK_R=max(16, power_of_two(rope_dim)),
            BLOCK_V=max(16, power_of_two(value_dim)),
            DOT=dot,
            **blocks,
        )
    return Decoded(out, lse)


def _partials(queries, cache, block_table, lengths, scale, rung, num_splits, longest) -> Decoded:
    """Mixed latents (requests, splits, rows, latent_dim) and lse (requests, splits, rows) in float32."""
    requests, new_tokens, num_heads, width = check_shape(
        "queries", queries, "requests, new_tokens, num_heads, latent_dim + rope_dim"
    )
    if rung not in RUNGS:
        raise ValueError(f"no rung {rung!r}; the choices are: {', '.join(RUNGS)}")
    if width != cache.latent_dim + cache.rope_dim:
        raise ValueError(f"queries are {width} wide; the cache's entries are {cache.latent_dim} + {cache.rope_dim}")
    check_sizes("block_table", block_table, "requests, entries", (requests, None))
    check_sizes("lengths", lengths, "requests", (requests,))
    room = block_table.shape[1] * cache.page_size
    if longest is None:
        longest, least = (int(lengths.max()), int(lengths.min())) if requests else (0, 0)
        if longest > room or least < 0:
            raise ValueError(f"lengths lie in {least} … {longest}; the block table has room for {room} tokens")
    num_rows = new_tokens * num_heads
    blocks = decode_blocks(architecture(), cache.fp8, num_rows)
    if rung != "split_kv":
        num_splits = 1
    elif num_splits is None:
        num_splits = side_by_side(requests * -(-num_rows // blocks.BLOCK_H), longest // (4 * blocks.BLOCK_T))
    elif index(num_splits) < 1:
        raise ValueError(f"num_splits is {num_splits}; it must be at least 1")
    queries, block_table, lengths = map(last_axis_dense, (queries, block_table, lengths))
    out = queries.new_empty((requests, num_splits, num_rows, cache.latent_dim), dtype=torch.float32)
    lse = queries.new_empty((requests, num_splits, num_rows), dtype=torch.float32)
    if not requests or not num_rows:
        return Decoded(out, lse)
    kernel, rows, launch = shared_tile, -(-num_rows // blocks.BLOCK_H), blocks.launch()
    if rung == "one_head":
        kernel, rows, launch = one_head, num_rows, {"BLOCK_H": 1, "BLOCK_T": 16}
    kernel[(rows, requests, num_splits)](
        *(queries, cache.latent, cache.scales, cache.rope, block_table, lengths, out, lse),
        *(num_heads, new_tokens, num_splits, cache.page_size, scale),
        *(*queries.stride()[:3], *cache.latent.stride()[:2], *cache.scales.stride()[:2], *cache.rope.stride()[:2]),
        block_table.stride(0),
        LATENT=cache.latent_dim,
        ROPE=cache.rope_dim,
        BLOCK_C=max(16, power_of_two(cache.latent_dim)),
        BLOCK_R=max(16, power_of_two(cache.rope_dim)),
        FP8=cache.fp8,
        DOT=dot_dtype(queries.dtype),
        **launch,
    )
    return Decoded(out, lse)


def _tables(positions: torch.Tensor, tokens: int, rope_dim: int, theta: float) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, (tokens, rope_dim / 2) float32, from angles in float64: positions of 100,000 keep their digits."""
    check_sizes("positions", positions, "tokens", (tokens,))
    if rope_dim % 2:
        raise ValueError(f"rope_dim is {rope_dim}; it must be even")
    places = torch.arange(rope_dim // 2, dtype=torch.float64, device=positions.device)
    angles = positions.double()[:, None] * theta ** (-2 * places / max(rope_dim, 1))
    return angles.cos().float(), angles.sin().float()
