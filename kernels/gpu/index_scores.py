"""The lightning indexer: how much each cached token would matter to a query, judged from keys of 132 bytes.

A score is the sum over the index heads of weight · ReLU(query · key), all from e4m3 codes. The queries' scales are in
the weights; a key's scale is common to all heads, and comes behind their sum.
"""

from ledger.kernels.gpu.numbers import from_e4m3
from ledger.kernels.interpret.mode import tl, triton


@triton.jit
def index_scores(
    # pointers
    p_queries,  # [b, s, j, d], e4m3 codes
    p_weights,  # [b, s, j]
    p_codes,  # [pages, page, d], e4m3 codes
    p_scales,  # [pages, page]
    p_block_table,  # [b, entries]
    p_lengths,  # [b]
    p_scores,  # [b, s, width]
    # sizes
    new_tokens,
    width,
    page_size,
    # strides
    stride_query_request,
    stride_query_token,
    stride_query_head,
    stride_weight_request,
    stride_weight_token,
    stride_codes_page,
    stride_codes_slot,
    stride_scales_page,
    stride_table,
    # meta-parameters
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_T: tl.constexpr,
    DOT: tl.constexpr,
):
    """One program a block of a request's keys: loaded once, for all heads of all its new tokens. Tails are −∞."""
    o_token, i_request = tl.program_id(0) * BLOCK_T, tl.program_id(1).to(tl.int64)
    length = tl.load(p_lengths + i_request)
    i_token, i_dim = o_token + tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_D)
    # load tile
    m_token = i_token < length
    i_page = tl.load(p_block_table + i_request * stride_table + i_token // page_size, mask=m_token, other=0)
    i_page, i_slot = i_page.to(tl.int64), i_token % page_size
    o_key = (i_page * stride_codes_page + i_slot * stride_codes_slot)[:, None] + i_dim[None, :]
    b_key = tl.load(p_codes + o_key, mask=m_token[:, None] & (i_dim < DIM)[None, :], other=0)
    b_key = from_e4m3(b_key).to(DOT)
    b_scale = tl.load(p_scales + i_page * stride_scales_page + i_slot, mask=m_token, other=0.0)
    for i_new in range(0, new_tokens):
        seen = length - (new_tokens - 1 - i_new)
        p_query = p_queries + i_request * stride_query_request + i_new * stride_query_token
        p_weight = p_weights + i_request * stride_weight_request + i_new * stride_weight_token
        acc = tl.zeros([BLOCK_T], tl.float32)
        # a block that the row does not see costs nothing
        for o_head in range(0, tl.where(o_token < seen, HEADS, 0), BLOCK_H):
            i_head = o_head + tl.arange(0, BLOCK_H)
            m_query = (i_head < HEADS)[:, None] & (i_dim < DIM)[None, :]
            b_query = tl.load(p_query + i_head[:, None] * stride_query_head + i_dim[None, :], mask=m_query, other=0)
            b_weight = tl.load(p_weight + i_head, mask=i_head < HEADS, other=0.0)
            # scores
            b_products = tl.dot(from_e4m3(b_query).to(DOT), tl.trans(b_key), input_precision="ieee")
            # accumulate
            acc += tl.sum(b_weight[:, None] * tl.maximum(b_products, 0.0), axis=0)
        # store
        o_row = (i_request * new_tokens + i_new) * width
        b_scores = tl.where(i_token < seen, acc * b_scale, float("-inf"))
        tl.store(p_scores + o_row + i_token, b_scores, mask=i_token < width)
