"""Absorbed decode over chosen tokens: ``shared_tile`` of ``mla_decode.py`` with a list in the place of a range.

All heads of a new token share its list, and each new token has its own. An index counts tokens of the request, as
``select_topk`` writes it, and goes through the block table here; one that is −1, or that the row does not see, is
nothing.
"""

from ledger.kernels.gpu.mla_decode import load_latents, part_of
from ledger.kernels.interpret.mode import tl, triton


@triton.jit
def sparse_mla_decode(
    # pointers
    p_queries,  # [b, s, h, c + r]
    p_latent,  # [pages, page, c], codes where FP8
    p_scales,  # [pages, page, c / 128], FP8 only
    p_rope,  # [pages, page, r]
    p_block_table,  # [b, entries]
    p_lengths,  # [b]
    p_indices,  # [b, s, topk]
    p_out,  # [b, splits, s · h, c]
    p_lse,  # [b, splits, s · h]
    # sizes
    num_heads,
    new_tokens,
    num_splits,
    topk,
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
    stride_indices_request,
    stride_indices_token,
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
    """One program a block of heads of one new token and a part of its list: a gathered tile serves all heads."""
    i_request, i_new = tl.program_id(1).to(tl.int64) // new_tokens, tl.program_id(1) % new_tokens
    i_head, i_split = tl.program_id(0) * BLOCK_H + tl.arange(0, BLOCK_H), tl.program_id(2)
    m_head = i_head < num_heads
    seen = tl.load(p_lengths + i_request) - (new_tokens - 1 - i_new)
    start, stop = part_of(i_split, num_splits, topk, BLOCK_T)
    p_list = p_indices + i_request * stride_indices_request + i_new * stride_indices_token
    i_latent, i_rope = tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_R)
    o_query = (i_request * stride_query_request + i_new * stride_query_token + i_head * stride_query_head)[:, None]
    m_query, m_query_rope = m_head[:, None] & (i_latent < LATENT)[None, :], m_head[:, None] & (i_rope < ROPE)[None, :]
    b_query = tl.load(p_queries + o_query + i_latent[None, :], mask=m_query, other=0.0).to(DOT)
    b_query_rope = tl.load(p_queries + o_query + LATENT + i_rope[None, :], mask=m_query_rope, other=0.0).to(DOT)
    m_i = tl.full([BLOCK_H], float("-inf"), tl.float32)
    l_i = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_C], tl.float32)
    for o_pick in range(start, stop, BLOCK_T):
        # load tile
        i_pick = o_pick + tl.arange(0, BLOCK_T)
        i_token = tl.load(p_list + i_pick, mask=i_pick < stop, other=-1)
        m_token = (i_token >= 0) & (i_token < seen)
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
        b_scores = tl.where(m_token[None, :], scale * b_scores, float("-inf"))
        # new maximum, rescale
        m_new = tl.maximum(m_i, tl.max(b_scores, axis=1))
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)  # a list that has shown nothing yet
        b_rescale = tl.exp(m_i - m_safe)
        b_weights = tl.exp(b_scores - m_safe[:, None])
        m_i, l_i = m_new, l_i * b_rescale + tl.sum(b_weights, axis=1)
        # accumulate
        acc = acc * b_rescale[:, None] + tl.dot(b_weights.to(DOT), b_latent, input_precision="ieee")
    # store
    empty = l_i == 0.0
    l_safe = tl.where(empty, 1.0, l_i)
    o_out = ((i_request * num_splits + i_split) * new_tokens + i_new) * num_heads + i_head
    tl.store(p_out + o_out[:, None] * LATENT + i_latent[None, :], acc / l_safe[:, None], mask=m_query)
    tl.store(p_lse + o_out, tl.where(empty, float("-inf"), m_i + tl.log(l_safe)), mask=m_head)
