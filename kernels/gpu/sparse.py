"""The entry points of sparse attention: DeepSeek's indexer, selection and gathered decode, and the parts of NSA.

As everywhere, lengths count a request's new tokens too, and of several new tokens each sees one more than the last.
"""

from operator import index

from ledger.kernels.gpu import nsa
from ledger.kernels.gpu.entry import (
    ROWS,
    Decoded,
    check_shape,
    check_sizes,
    last_axis_dense,
    power_of_two,
    side_by_side,
)
from ledger.kernels.gpu.index_scores import index_scores as index_scores_kernel
from ledger.kernels.gpu.mla_decode import combine
from ledger.kernels.gpu.paged import IndexCache, PagedCache
from ledger.kernels.gpu.select_topk import count_digits, pick_top
from ledger.kernels.gpu.sparse_mla_decode import sparse_mla_decode as sparse_mla_decode_kernel
from ledger.kernels.gpu.tuning import SELECT_PARTS, architecture, decode_blocks, product_blocks, select_blocks
from ledger.kernels.interpret.mode import dot_dtype, torch

_QUERIES = "requests, new_tokens, num_heads, latent_dim + rope_dim"
_GROUPED = "requests, tokens, groups, dim"


def index_scores(
    q_codes: torch.Tensor,
    weights: torch.Tensor,
    cache: IndexCache,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    longest: int | None = None,
) -> torch.Tensor:
    """The indexer's scores, Σ over heads of weight · ReLU(query · key) · the key's scale: q_codes (requests,
    new_tokens, index_heads, index_dim) e4m3 codes, uint8, weights (requests, new_tokens, index_heads) with the queries'
    scales in them, block_table (requests, entries), lengths (requests,) -> (requests, new_tokens, longest) float32.

    What a row does not see is −inf. Who knows the ``longest`` of the lengths says it, and no length is looked at.
    Raises ValueError for what does not fit.
    """
    requests, new_tokens, heads, dim = check_shape("q_codes", q_codes, "requests, new_tokens, index_heads, index_dim")
    if (q_codes.dtype, dim) != (torch.uint8, cache.index_dim):
        raise ValueError(
            f"q_codes are {dim} {q_codes.dtype} a head; the cache's keys are {cache.index_dim} codes in uint8"
        )
    check_sizes("weights", weights, "requests, new_tokens, index_heads", (requests, new_tokens, heads))
    longest = _longest(block_table, lengths, requests, cache.page_size, longest)
    scores = torch.empty((requests, new_tokens, longest), dtype=torch.float32, device=q_codes.device)
    if not scores.numel():
        return scores
    q_codes, block_table, lengths = map(last_axis_dense, (q_codes, block_table, lengths))
    weights, codes, scales = last_axis_dense(weights.float()), cache.codes, cache.scales
    blocks = product_blocks(architecture(), "index_scores")
    blocks = blocks | dict(BLOCK_H=min(blocks["BLOCK_H"], max(ROWS, power_of_two(heads))))
    index_scores_kernel[(-(-longest // blocks["BLOCK_T"]), requests)](
        *(q_codes, weights, codes, scales, block_table, lengths, scores, new_tokens, longest, cache.page_size),
        *(*q_codes.stride()[:3], *weights.stride()[:2], *codes.stride()[:2], scales.stride(0), block_table.stride(0)),
        HEADS=heads,
        DIM=dim,
        BLOCK_D=max(16, power_of_two(dim)),
        DOT=dot_dtype(torch.float16),  # every e4m3 number is one of float16's
        **blocks,
    )
    return scores


def select_topk(
    scores: torch.Tensor, lengths: torch.Tensor, topk: int, *, num_parts: int | None = None
) -> torch.Tensor:
    """The indices of each row's ``topk`` largest scores: scores (requests, new_tokens, width) float32, lengths
    (requests,) -> (requests, new_tokens, topk) int32, rising, −1 behind them where a row sees fewer.

    Exact; of equal scores, −0 and +0 among them, the first stay. What a row does not see is never read. A row is read
    in ``num_parts`` side by side. Raises ValueError for what does not fit.
    """
    requests, new_tokens, width = check_shape("scores", scores, "requests, new_tokens, width")
    if scores.dtype != torch.float32:
        raise ValueError(f"scores are {scores.dtype}; their keys are those of float32")
    check_sizes("lengths", lengths, "requests", (requests,))
    if index(topk) < 1:
        raise ValueError(f"topk is {topk}; it must be at least 1")
    blocks, num_rows = select_blocks(), requests * new_tokens
    if num_parts is None:
        num_parts = min(side_by_side(num_rows, width // (2 * blocks["BLOCK_T"])), SELECT_PARTS)
    elif not 1 <= index(num_parts) <= SELECT_PARTS:
        raise ValueError(f"num_parts is {num_parts}; it must lie in 1 … {SELECT_PARTS}")
    indices = torch.empty((requests, new_tokens, topk), dtype=torch.int32, device=scores.device)
    if not num_rows:
        return indices
    rows, seen = last_axis_dense(scores.flatten(0, 1)), _seen(lengths, new_tokens).clamp(max=width)
    counts = torch.empty((num_rows, 4, num_parts, 256), dtype=torch.int32, device=scores.device)
    blocks |= dict(PARTS=power_of_two(num_parts))
    if width > topk:
        for i_pass in range(4):
            count_digits[(num_rows, num_parts)](rows, seen, counts, topk, num_parts, i_pass, rows.stride(0), **blocks)
    pick_top[(num_rows, num_parts)](rows, seen, counts, indices, topk, num_parts, rows.stride(0), **blocks)
    return indices


def sparse_mla_decode(
    queries: torch.Tensor,
    cache: PagedCache,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    indices: torch.Tensor,
    scale: float,
    *,
    num_splits: int | None = None,
    longest: int | None = None,
) -> Decoded:
    """``mla_decode`` over chosen tokens: queries (requests, new_tokens, num_heads, latent_dim + rope_dim), block_table
    (requests, entries), lengths (requests,), indices (requests, new_tokens, topk) tokens of the request, for all heads
    of a new token -> out (requests, new_tokens, num_heads, latent_dim) in the queries' dtype, lse (requests,
    new_tokens, num_heads).

    An index that is negative, or that its row does not see, counts for nothing; a row without any gives 0 and −inf. Who
    has slots in the place of indices gives every request the pages 0, 1, 2 … as its block table. ``num_splits`` parts
    of the list are read side by side. Who knows the ``longest`` of the lengths says it, and no length is looked at.
    Raises ValueError for what does not fit.
    """
    requests, new_tokens, num_heads, width = check_shape("queries", queries, _QUERIES)
    if width != cache.latent_dim + cache.rope_dim:
        raise ValueError(f"queries are {width} wide; the cache's entries are {cache.latent_dim} + {cache.rope_dim}")
    _longest(block_table, lengths, requests, cache.page_size, longest)
    check_sizes("indices", indices, "requests, new_tokens, topk", (requests, new_tokens, None))
    dot, topk, blocks = dot_dtype(queries.dtype), indices.shape[2], decode_blocks(architecture(), cache.fp8, num_heads)
    programs = requests * new_tokens * -(-num_heads // blocks.BLOCK_H)
    num_splits = _num_splits(num_splits, programs, topk // (4 * blocks.BLOCK_T))
    queries, block_table, lengths, indices = map(last_axis_dense, (queries, block_table, lengths, indices))
    partials = _empty_partials(queries, num_splits, cache.latent_dim)
    if programs:
        sparse_mla_decode_kernel[(-(-num_heads // blocks.BLOCK_H), requests * new_tokens, num_splits)](
            *(queries, cache.latent, cache.scales, cache.rope, block_table, lengths, indices, *partials),
            *(num_heads, new_tokens, num_splits, topk, cache.page_size, scale),
            *(*queries.stride()[:3], *cache.latent.stride()[:2], *cache.scales.stride()[:2], *cache.rope.stride()[:2]),
            *(block_table.stride(0), *indices.stride()[:2]),
            LATENT=cache.latent_dim,
            ROPE=cache.rope_dim,
            BLOCK_C=max(16, power_of_two(cache.latent_dim)),
            BLOCK_R=max(16, power_of_two(cache.rope_dim)),
            FP8=cache.fp8,
            DOT=dot,
            **blocks.launch(),
        )
    return _merged(partials, queries)


def nsa_compress(x: torch.Tensor, lengths: torch.Tensor, *, block: int = 32, stride: int = 16) -> torch.Tensor:
    """Keys or values of the compressed branch, the mean of ``block`` tokens every ``stride``: x (requests, tokens,
    groups, dim), lengths (requests,) -> (requests, blocks of ``tokens``, groups, dim).

    Only full blocks are made; behind the last of a request stands 0. What lies behind a length is never read. Raises
    ValueError for what does not fit.
    """
    requests, tokens, groups, dim = check_shape("x", x, _GROUPED)
    check_sizes("lengths", lengths, "requests", (requests,))
    _check_block(block, stride)
    x = last_axis_dense(x)
    out = x.new_empty((requests, max(0, (tokens - block) // stride + 1), groups, dim))
    if out.numel():
        nsa.compress[(out.shape[1], requests, groups)](
            *(x, last_axis_dense(lengths), out, out.shape[1], groups, *x.stride()[:3]),
            DIM=dim,
            BLOCK=block,
            STRIDE=stride,
            BLOCK_L=power_of_two(block),
            BLOCK_D=power_of_two(dim),
        )
    return out


def nsa_select(
    queries: torch.Tensor,
    compressed_keys: torch.Tensor,
    lse: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    *,
    count: int = 16,
    initial: int = 1,
    local: int = 2,
    block: int = 32,
    stride: int = 16,
    selection_block: int = 64,
) -> torch.Tensor:
    """The blocks that each group of heads attends to: queries (requests, new_tokens, num_heads, dim), compressed_keys
    (requests, blocks, groups, dim), lse (requests, new_tokens, num_heads) of the compressed branch, lengths (requests,)
    of tokens -> (requests, new_tokens, groups, count) int32, −1 behind them where a row sees fewer.

    A block's score is what the compressed keys that overlap it weigh, summed over the group's heads, each times the
    strides of the overlap. The first ``initial`` blocks and the last ``local`` are forced and count; the others follow
    by falling score, the lower block where two are equal. Raises ValueError for what does not fit.
    """
    requests, new_tokens, num_heads, groups, dim = _check_groups(queries, "compressed_keys", compressed_keys)
    check_sizes("lse", lse, "requests, new_tokens, num_heads", (requests, new_tokens, num_heads))
    check_sizes("lengths", lengths, "requests", (requests,))
    _check_block(block, stride)
    if selection_block < 1 or block % stride or selection_block % stride:
        raise ValueError(f"block {block} and selection_block {selection_block} must be multiples of stride {stride}")
    if min(initial, local) < 0 or count < max(1, initial + local):
        raise ValueError(
            f"count is {count}; {initial} initial and {local} local blocks are forced, and it is at least 1"
        )
    dot = dot_dtype(queries.dtype)
    seen = _seen(lengths, new_tokens)
    stops = _compressed_seen(seen, block, stride).clamp(max=compressed_keys.shape[1])
    # with one token more there would be another compressed key
    num_blocks = -(-(compressed_keys.shape[1] * stride + block - 1) // selection_block)
    visible = (-(-seen // selection_block)).clamp(max=num_blocks)
    blocks = torch.empty((requests, new_tokens, groups, count), dtype=torch.int32, device=queries.device)
    if not blocks.numel():
        return blocks
    queries, keys, lse = last_axis_dense(queries), last_axis_dense(compressed_keys), lse.contiguous()
    scores = torch.empty((requests * new_tokens, groups, num_blocks), dtype=torch.float32, device=queries.device)
    sizes = product_blocks(architecture(), "block_scores")
    heads = num_heads // groups
    nsa.block_scores[(-(-num_blocks // sizes["BLOCK_J"]), requests * new_tokens, groups)](
        *(queries, keys, lse, stops, visible, scores, new_tokens, groups, num_blocks, scale),
        *(*queries.stride()[:3], *keys.stride()[:3]),
        DIM=dim,
        HEADS=heads,
        WIDE=block // stride,
        PER=selection_block // stride,
        INITIAL=initial,
        LOCAL=local,
        BLOCK_H=max(ROWS, power_of_two(heads)),
        BLOCK_D=max(16, power_of_two(dim)),
        DOT=dot,
        **sizes,
    )
    nsa.pick_blocks[(requests * new_tokens, groups)](
        *(scores, visible, blocks, groups, num_blocks),
        COUNT=count,
        BLOCK_J=power_of_two(num_blocks),
    )
    return blocks


def nsa_attend(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    *,
    blocks: torch.Tensor | None = None,
    selection_block: int = 64,
    window: int | None = None,
    compressed: tuple[int, int] | None = None,
    num_splits: int | None = None,
) -> Decoded:
    """One branch of NSA: queries (requests, new_tokens, num_heads, dim), keys (requests, tokens, groups, dim), values
    (requests, tokens, groups, value_dim), lengths (requests,) -> out (requests, new_tokens, num_heads, value_dim) in
    the queries' dtype, lse (requests, new_tokens, num_heads).

    Which branch, exactly one of these says: ``blocks`` (requests, new_tokens, groups, count), as ``nsa_select`` chose
    them, of ``selection_block`` tokens, −1 for none; ``window``, that many of the last tokens; ``compressed``, the
    (block, stride) by which ``nsa_compress`` made the keys and values. A row that sees nothing gives 0 and −inf. What
    lies behind a length is never read. ``num_splits`` parts of the tokens are read side by side. Raises ValueError for
    what does not fit.
    """
    requests, new_tokens, num_heads, groups, dim = _check_groups(queries, "keys", keys)
    check_sizes("values", values, "requests, tokens, groups, value_dim", (requests, keys.shape[1], groups, None))
    check_sizes("lengths", lengths, "requests", (requests,))
    if sum(way is not None for way in (blocks, window, compressed)) != 1:
        raise ValueError("say exactly one of blocks, window and compressed: each is another branch")
    stops = _seen(lengths, new_tokens)
    starts, count = torch.zeros_like(stops), 0
    if blocks is not None:
        check_sizes("blocks", blocks, "requests, new_tokens, groups, count", (requests, new_tokens, groups, None))
        if selection_block < 1:
            raise ValueError(f"selection_block is {selection_block}; it must be at least 1")
        blocks, count = blocks.to(torch.int32).contiguous(), blocks.shape[3]
        most = count * selection_block
    elif window is not None:
        if window < 1:
            raise ValueError(f"window is {window}; it must be at least 1")
        starts, most = (stops - window).clamp(min=0), window
    else:
        _check_block(*compressed)
        stops, most = _compressed_seen(stops, *compressed), keys.shape[1]
    stops = stops.clamp(max=keys.shape[1])
    dot, value_dim, heads = dot_dtype(queries.dtype), values.shape[3], num_heads // groups
    sizes = product_blocks(architecture(), "attend_group")
    programs = requests * new_tokens * groups
    num_splits = _num_splits(num_splits, programs, most // (4 * sizes["BLOCK_T"]))
    queries, keys, values = map(last_axis_dense, (queries, keys, values))
    partials = _empty_partials(queries, num_splits, value_dim)
    if programs and value_dim:
        nsa.attend_group[(requests * new_tokens, groups, num_splits)](
            *(queries, keys, values, starts, stops, starts if blocks is None else blocks, *partials),
            *(new_tokens, groups, num_splits, count, scale),
            *(*queries.stride()[:3], *keys.stride()[:3], *values.stride()[:3]),
            DIM=dim,
            VALUE=value_dim,
            HEADS=heads,
            SELECTED=0 if blocks is None else selection_block,
            BLOCK_H=max(ROWS, power_of_two(heads)),
            BLOCK_D=max(16, power_of_two(dim)),
            BLOCK_V=max(16, power_of_two(value_dim)),
            DOT=dot,
            **sizes,
        )
    return _merged(partials, queries)


def _longest(block_table, lengths, requests: int, page_size: int, longest: int | None) -> int:
    """The longest of the lengths; checked against the room of the block table where it is not given."""
    check_sizes("block_table", block_table, "requests, entries", (requests, None))
    check_sizes("lengths", lengths, "requests", (requests,))
    room = block_table.shape[1] * page_size
    least, most = (int(lengths.min()), int(lengths.max())) if requests and longest is None else (0, longest or 0)
    if not 0 <= least <= most <= room:
        raise ValueError(f"lengths lie in {least} … {most}; the block table has room for {room} tokens")
    return most


def _seen(lengths: torch.Tensor, new_tokens: int) -> torch.Tensor:
    """Tokens that each row sees, (requests · new_tokens,) int32."""
    behind = torch.arange(new_tokens - 1, -1, -1, dtype=torch.int32, device=lengths.device)
    return (lengths.to(torch.int32)[:, None] - behind).clamp(min=0).flatten()


def _compressed_seen(seen: torch.Tensor, block: int, stride: int) -> torch.Tensor:
    """Compressed keys that each row sees: those whose last token it does."""
    return ((seen - block) // stride + 1).clamp(min=0)


def _check_block(block: int, stride: int) -> None:
    """Raises ValueError for a compressed block that is no block."""
    if min(block, stride) < 1:
        raise ValueError(f"block {block} and stride {stride} must be at least 1")


def _check_groups(queries: torch.Tensor, name: str, keys: torch.Tensor) -> tuple[int, int, int, int, int]:
    """requests, new_tokens, num_heads, groups, dim. Raises ValueError where heads and groups do not go together."""
    requests, new_tokens, num_heads, dim = check_shape("queries", queries, "requests, new_tokens, num_heads, dim")
    check_sizes(name, keys, _GROUPED, (requests, None, None, dim))
    groups = keys.shape[2]
    if not groups or num_heads % groups:
        raise ValueError(f"{num_heads} heads cannot share {groups} groups of keys evenly")
    return requests, new_tokens, num_heads, groups, dim


def _num_splits(num_splits: int | None, programs: int, most: int) -> int:
    """The number of parts given, or one that fills the GPU. Raises ValueError for none."""
    if num_splits is None:
        return side_by_side(programs, most)
    if index(num_splits) < 1:
        raise ValueError(f"num_splits is {num_splits}; it must be at least 1")
    return num_splits


def _empty_partials(queries: torch.Tensor, num_splits: int, width: int) -> Decoded:
    """Room for out (requests, splits, rows, width) and lse (requests, splits, rows) in float32."""
    requests, new_tokens, num_heads, _ = queries.shape
    rows = new_tokens * num_heads
    out = queries.new_empty((requests, num_splits, rows, width), dtype=torch.float32)
    return Decoded(out, queries.new_empty((requests, num_splits, rows), dtype=torch.float32))


def _merged(partials: Decoded, queries: torch.Tensor) -> Decoded:
    """The splits of every row merged by their lse."""
    requests, new_tokens, num_heads, _ = queries.shape
    num_rows, width = new_tokens * num_heads, partials.out.shape[3]
    out = queries.new_empty((requests, new_tokens, num_heads, width))
    lse = torch.empty((requests, new_tokens, num_heads), dtype=torch.float32, device=queries.device)
    if lse.numel():
        combine[(-(-num_rows // ROWS), requests)](
            *(*partials, out, lse, num_rows, partials.lse.shape[1]),
            LATENT=width,
            BLOCK_C=max(16, power_of_two(width)),
            BLOCK_H=ROWS,
        )
    return Decoded(out, lse)
