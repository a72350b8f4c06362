"""Absorbed decode over a paged cache, as a ladder of three kernels with one signature, and the combine of the third.

A cache entry is [latent | rope]. All heads of a request meet the same entries, and mix their latents. Derivation and
pictures: ``kernels/README.md``; the same loops in NumPy: ``kernels/loops/mla_decode_paged.py``.
"""

from ledger.kernels.gpu.numbers import from_e4m3, rounded
from ledger.kernels.interpret.mode import tl, triton


@triton.jit
def part_of(i_split, num_splits, length, BLOCK_T: tl.constexpr):
    """First token of a split and the one behind its last: whole blocks, evenly, larger parts first, empty ones last."""
    blocks = tl.cdiv(length, BLOCK_T)
    least, more = blocks // num_splits, blocks % num_splits
    first = i_split * least + tl.minimum(i_split, more)
    last = first + least + tl.where(i_split < more, 1, 0)
    return tl.minimum(first * BLOCK_T, length), tl.minimum(last * BLOCK_T, length)


@triton.jit
def load_latents(
    p_latent,
    p_scales,
    o_latent,
    o_scales,
    m_token,
    LATENT: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
    FP8: tl.constexpr,
):
    """Latents of a tile of tokens, in the cache's own dtype, or from e4m3 codes with a scale for each 128 of them."""
    i_latent = tl.arange(0, BLOCK_C)
    mask = m_token[:, None] & (i_latent < LATENT)[None, :]
    b_latent = tl.load(p_latent + o_latent[:, None] + i_latent[None, :], mask=mask, other=0)
    if FP8:
        TILES: tl.constexpr = (BLOCK_C + 127) // 128
        i_tile = tl.arange(0, TILES)
        m_tile = m_token[:, None] & (i_tile * 128 < LATENT)[None, :]
        b_scales = tl.load(p_scales + o_scales[:, None] + i_tile[None, :], mask=m_tile, other=0.0)
        b_tiles = tl.reshape(from_e4m3(b_latent), (BLOCK_T, TILES, BLOCK_C // TILES)) * b_scales[:, :, None]
        b_latent = tl.reshape(b_tiles, (BLOCK_T, BLOCK_C))
    return b_latent


@triton.jit
def one_head(
    # pointers
    p_queries,  # [b, s, h, c + r]
    p_latent,  # [pages, page, c], codes where FP8
    p_scales,  # [pages, page, c / 128], FP8 only
    p_rope,  # [pages, page, r]
    p_block_table,  # [b, entries]
    p_lengths,  # [b]
    p_out,  # [b, splits, s · h, c]
    p_lse,  # [b, splits, s · h]
    # sizes
    num_heads,
    new_tokens,
    num_splits,
    page_size,
    scale,
    # strides
    stride_query_request,
    stride_query_token,
    stride_query_head,
    stride_latent_page,
    stride_latent_slot,
    stride_scales_page,
    stride_scales_slot,
    stride_rope_page,
    stride_rope_slot,
    stride_table,
    # meta-parameters
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_T: tl.constexpr,
    FP8: tl.constexpr,
    DOT: tl.constexpr,
):
    """One program a head and query row: each reads every entry for itself. BLOCK_H, DOT and splits are not used."""
    i_row, i_request = tl.program_id(0), tl.program_id(1)
    i_token_row, i_head = i_row // num_heads, i_row % num_heads
    length = tl.load(p_lengths + i_request)
    seen = length - (new_tokens - 1 - i_token_row)
    i_latent, i_rope = tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_R)
    p_query = (
        p_queries
        + i_request.to(tl.int64) * stride_query_request
        + i_token_row * stride_query_token
        + i_head * stride_query_head
    )
    b_query = tl.load(p_query + i_latent, mask=i_latent < LATENT, other=0.0).to(tl.float32)
    b_query_rope = tl.load(p_query + LATENT + i_rope, mask=i_rope < ROPE, other=0.0).to(tl.float32)
    m_i = tl.full([], float("-inf"), tl.float32)
    l_i = tl.full([], 0.0, tl.float32)
    acc = tl.zeros([BLOCK_C], tl.float32)
    for o_token in range(0, seen, BLOCK_T):
        # load tile
        i_token = o_token + tl.arange(0, BLOCK_T)
        m_token = i_token < seen
        i_page = tl.load(p_block_table + i_request * stride_table + i_token // page_size, mask=m_token, other=0)
        i_page, i_slot = i_page.to(tl.int64), i_token % page_size
        o_latent = i_page * stride_latent_page + i_slot * stride_latent_slot
        o_scales = i_page * stride_scales_page + i_slot * stride_scales_slot
        b_latent = load_latents(p_latent, p_scales, o_latent, o_scales, m_token, LATENT, BLOCK_T, BLOCK_C, FP8).to(
            tl.float32
        )
        o_rope = (i_page * stride_rope_page + i_slot * stride_rope_slot)[:, None] + i_rope[None, :]
        m_rope = m_token[:, None] & (i_rope < ROPE)[None, :]
        b_rope = tl.load(p_rope + o_rope, mask=m_rope, other=0.0).to(tl.float32)
        # scores
        b_scores = tl.sum(b_latent * b_query[None, :], axis=1) + tl.sum(b_rope * b_query_rope[None, :], axis=1)
        b_scores = tl.where(m_token, scale * b_scores, float("-inf"))
        # new maximum, rescale
        m_new = tl.maximum(m_i, tl.max(b_scores, axis=0))
        b_rescale = tl.exp(m_i - m_new)
        b_weights = tl.exp(b_scores - m_new)
        m_i, l_i = m_new, l_i * b_rescale + tl.sum(b_weights, axis=0)
        # accumulate
        acc = acc * b_rescale + tl.sum(b_weights[:, None] * b_latent, axis=0)
    # store
    empty = seen <= 0
    o_row = i_request.to(tl.int64) * num_heads * new_tokens + i_row
    b_out = acc / tl.where(empty, 1.0, l_i)
    tl.store(p_out + o_row * LATENT + i_latent, b_out, mask=i_latent < LATENT)
    tl.store(p_lse + o_row, tl.where(empty, float("-inf"), m_i + tl.log(tl.where(empty, 1.0, l_i))))


@triton.jit
def shared_tile(
    # pointers
    p_queries,  # [b, s, h, c + r]
    p_latent,  # [pages, page, c], codes where FP8
    p_scales,  # [pages, page, c / 128], FP8 only
    p_rope,  # [pages, page, r]
    p_block_table,  # [b, entries]
    p_lengths,  # [b]
    p_out,  # [b, splits, s · h, c]
    p_lse,  # [b, splits, s · h]
    # sizes
    num_heads,
    new_tokens,
    num_splits,
    page_size,
    scale,
    # strides
    stride_query_request,
    stride_query_token,
    stride_query_head,
    stride_latent_page,
    stride_latent_slot,
    stride_scales_page,
    stride_scales_slot,
    stride_rope_page,
    stride_rope_slot,
    stride_table,
    # meta-parameters
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_T: tl.constexpr,
    FP8: tl.constexpr,
    DOT: tl.constexpr,
):
    """One program a block of rows (heads of one or more new tokens) and a part of the cache: a tile serves all rows."""
    o_row, i_request, i_split = tl.program_id(0) * BLOCK_H, tl.program_id(1), tl.program_id(2)
    i_row = o_row + tl.arange(0, BLOCK_H)
    i_token_row, i_head = i_row // num_heads, i_row % num_heads
    m_row = i_row < num_heads * new_tokens
    length = tl.load(p_lengths + i_request)
    seen = length - (new_tokens - 1 - i_token_row)  # [BLOCK_H]
    start, stop = part_of(i_split, num_splits, length, BLOCK_T)
    i_latent, i_rope = tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_R)
    o_query = (
        i_request.to(tl.int64) * stride_query_request + i_token_row * stride_query_token + i_head * stride_query_head
    )[:, None]
    m_query, m_query_rope = m_row[:, None] & (i_latent < LATENT)[None, :], m_row[:, None] & (i_rope < ROPE)[None, :]
    b_query = tl.load(p_queries + o_query + i_latent[None, :], mask=m_query, other=0.0).to(DOT)
    b_query_rope = tl.load(p_queries + o_query + LATENT + i_rope[None, :], mask=m_query_rope, other=0.0).to(DOT)
    m_i = tl.full([BLOCK_H], float("-inf"), tl.float32)
    l_i = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_C], tl.float32)
    for o_token in range(start, stop, BLOCK_T):
        # load tile
        i_token = o_token + tl.arange(0, BLOCK_T)
        m_token = i_token < stop
        i_page = tl.load(p_block_table + i_request * stride_table + i_token // page_size, mask=m_token, other=0)
        i_page, i_slot = i_page.to(tl.int64), i_token % page_size
        o_latent = i_page * stride_latent_page + i_slot * stride_latent_slot
        o_scales = i_page * stride_scales_page + i_slot * stride_scales_slot
        b_latent = load_latents(p_latent, p_scales, o_latent, o_scales, m_token, LATENT, BLOCK_T, BLOCK_C, FP8).to(DOT)
        o_rope = (i_page * stride_rope_page + i_slot * stride_rope_slot)[:, None] + i_rope[None, :]
        m_rope = m_token[:, None] & (i_rope < ROPE)[None, :]
        b_rope = tl.load(p_rope + o_rope, mask=m_rope, other=0.0).to(DOT)
        # scores
        b_scores = tl.dot(b_query, tl.trans(b_latent), input_precision="ieee")
        b_scores += tl.dot(b_query_rope, tl.trans(b_rope), input_precision="ieee")
        b_scores = tl.where(m_token[None, :] & (i_token[None, :] < seen[:, None]), scale * b_scores, float("-inf"))
        # new maximum, rescale
        m_new = tl.maximum(m_i, tl.max(b_scores, axis=1))
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)  # a row that sees nothing of this tile yet
        b_rescale = tl.exp(m_i - m_safe)
        b_weights = tl.exp(b_scores - m_safe[:, None])
        m_i, l_i = m_new, l_i * b_rescale + tl.sum(b_weights, axis=1)
        # accumulate
        acc = acc * b_rescale[:, None] + tl.dot(b_weights.to(DOT), b_latent, input_precision="ieee")
    # store
    empty = l_i == 0.0
    l_safe = tl.where(empty, 1.0, l_i)
    o_out = (i_request.to(tl.int64) * num_splits + i_split) * num_heads * new_tokens + i_row
    tl.store(p_out + o_out[:, None] * LATENT + i_latent[None, :], acc / l_safe[:, None], mask=m_query)
    tl.store(p_lse + o_out, tl.where(empty, float("-inf"), m_i + tl.log(l_safe)), mask=m_row)


@triton.jit
def weights_of_splits(p_lses, o_first, stride_split, num_splits, i_row, m_row):
    """What the splits of each row weigh together: the largest lse (0 where all are empty) and Σ exp(lse − largest)."""
    m_i = tl.full([i_row.shape[0]], float("-inf"), tl.float32)
    for i_split in range(0, num_splits):
        b_lse = tl.load(p_lses + o_first + i_split * stride_split + i_row, mask=m_row, other=float("-inf"))
        m_i = tl.maximum(m_i, b_lse)
    m_safe = tl.where(m_i == float("-inf"), 0.0, m_i)
    l_i = tl.zeros([i_row.shape[0]], tl.float32)
    for i_split in range(0, num_splits):
        b_lse = tl.load(p_lses + o_first + i_split * stride_split + i_row, mask=m_row, other=float("-inf"))
        l_i += tl.exp(b_lse - m_safe)
    return m_safe, l_i


@triton.jit
def merged(p_partials, p_lses, o_first, stride_split, num_splits, i_row, m_row, m_safe, l_i, i_latent, LATENT):
    """Some latents of each row, [rows, latents], merged from its splits; an empty split is not read."""
    acc = tl.zeros([i_row.shape[0], i_latent.shape[0]], tl.float32)
    for i_split in range(0, num_splits):
        o_row = o_first + i_split * stride_split + i_row
        b_weight = tl.exp(tl.load(p_lses + o_row, mask=m_row, other=float("-inf")) - m_safe)
        mask = (b_weight > 0)[:, None] & (i_latent < LATENT)[None, :]
        b_part = tl.load(p_partials + o_row[:, None] * LATENT + i_latent[None, :], mask=mask, other=0.0)
        acc += b_weight[:, None] * b_part
    return acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None]


@triton.jit
def combine(
    # pointers
    p_partials,  # [b, splits, s · h, c]
    p_lses,  # [b, splits, s · h]
    p_out,  # [b, s · h, c]
    p_lse,  # [b, s · h]
    # sizes
    num_rows,
    num_splits,
    # meta-parameters
    LATENT: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_H: tl.constexpr,
):
    """Merge the splits of a block of rows by their lse."""
    i_row, i_request = tl.program_id(0) * BLOCK_H + tl.arange(0, BLOCK_H), tl.program_id(1).to(tl.int64)
    m_row, i_latent = i_row < num_rows, tl.arange(0, BLOCK_C)
    o_first = i_request * num_splits * num_rows
    m_safe, l_i = weights_of_splits(p_lses, o_first, num_rows, num_splits, i_row, m_row)
    b_out = merged(p_partials, p_lses, o_first, num_rows, num_splits, i_row, m_row, m_safe, l_i, i_latent, LATENT)
    # store
    o_row = i_request * num_rows + i_row
    mask = m_row[:, None] & (i_latent < LATENT)[None, :]
    tl.store(p_out + o_row[:, None] * LATENT + i_latent[None, :], rounded(b_out, p_out.dtype.element_ty), mask=mask)
    empty = l_i == 0.0
    b_lse = tl.where(empty, float("-inf"), m_safe + tl.log(tl.where(empty, 1.0, l_i)))
    tl.store(p_lse + o_row, b_lse, mask=m_row)
