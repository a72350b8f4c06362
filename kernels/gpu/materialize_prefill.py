"""Prefill the other way: keys and values expanded from the latents, then causal attention of ordinary width.

``expand`` is one product a head. ``attend`` is a flash-attention forward whose key is [nope | rope] with one rope half
for all heads, and whose value is narrower than its key. Its lse lets a cached context be attended to apart and merged.
"""

from ledger.kernels.gpu.numbers import rounded
from ledger.kernels.interpret.mode import tl, triton


@triton.jit
def expand(
    # pointers
    p_latents,  # [t, c], normalised
    p_kv_b,  # [h, n + v, c]
    p_expanded,  # [t, h, n + v]
    # sizes
    cached_tokens,
    # strides
    stride_latents,
    stride_weight_head,
    stride_weight_row,
    stride_out_token,
    stride_out_head,
    # meta-parameters
    LATENT: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_K: tl.constexpr,
    DOT: tl.constexpr,
):
    """One program a block of tokens, a head, and a block of that head's [nope | value] columns."""
    i_token, i_head = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T), tl.program_id(1)
    i_column = tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W)
    m_token, m_column = i_token < cached_tokens, i_column < WIDTH
    acc = tl.zeros([BLOCK_T, BLOCK_W], tl.float32)
    for o_latent in range(0, LATENT, BLOCK_K):
        # load tile
        i_latent = o_latent + tl.arange(0, BLOCK_K)
        m_latent = i_latent < LATENT
        o_latents = i_token.to(tl.int64)[:, None] * stride_latents + i_latent[None, :]
        b_latent = tl.load(p_latents + o_latents, mask=m_token[:, None] & m_latent[None, :], other=0.0).to(DOT)
        o_weight = i_head.to(tl.int64) * stride_weight_head + i_column[None, :] * stride_weight_row + i_latent[:, None]
        b_weight = tl.load(p_kv_b + o_weight, mask=m_latent[:, None] & m_column[None, :], other=0.0).to(DOT)
        # accumulate
        acc += tl.dot(b_latent, b_weight, input_precision="ieee")
    # store
    o_out = i_token.to(tl.int64)[:, None] * stride_out_token + i_head * stride_out_head + i_column[None, :]
    b_out = rounded(acc, p_expanded.dtype.element_ty)
    tl.store(p_expanded + o_out, b_out, mask=m_token[:, None] & m_column[None, :])


@triton.jit
def attend(
    # pointers
    p_q_nope,  # [s, h, n]
    p_q_rope,  # [s, h, r], rotated
    p_expanded,  # [t, h, n + v]
    p_k_rope,  # [t, r], rotated
    p_out,  # [s, h, v]
    p_lse,  # [s, h]
    # sizes
    new_tokens,
    cached_tokens,
    num_heads,
    first_position,
    scale,
    # strides
    stride_nope_token,
    stride_nope_head,
    stride_rope_token,
    stride_rope_head,
    stride_expanded_token,
    stride_expanded_head,
    stride_k_rope,
    # meta-parameters
    NOPE: tl.constexpr,
    ROPE: tl.constexpr,
    VALUE: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_V: tl.constexpr,
    DOT: tl.constexpr,
):
    """One program a block of new tokens and a head. CAUSAL: new token i sees keys 0 … first_position + i."""
    i_new, i_head = tl.program_id(0) * BLOCK_S + tl.arange(0, BLOCK_S), tl.program_id(1)
    m_new_token = i_new < new_tokens
    i_nope, i_rope, i_value = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_R), tl.arange(0, BLOCK_V)
    m_nope, m_rope, m_value = i_nope < NOPE, i_rope < ROPE, i_value < VALUE
    o_new = i_new.to(tl.int64)[:, None]
    o_query = o_new * stride_nope_token + i_head * stride_nope_head + i_nope[None, :]
    b_query = tl.load(p_q_nope + o_query, mask=m_new_token[:, None] & m_nope[None, :], other=0.0).to(DOT)
    o_query = o_new * stride_rope_token + i_head * stride_rope_head + i_rope[None, :]
    b_query_rope = tl.load(p_q_rope + o_query, mask=m_new_token[:, None] & m_rope[None, :], other=0.0).to(DOT)
    m_i = tl.full([BLOCK_S], float("-inf"), tl.float32)
    l_i = tl.zeros([BLOCK_S], tl.float32)
    acc = tl.zeros([BLOCK_S, BLOCK_V], tl.float32)
    stop = cached_tokens
    if CAUSAL:
        stop = tl.minimum(cached_tokens, first_position + (tl.program_id(0) + 1) * BLOCK_S)
    for o_token in range(0, stop, BLOCK_T):
        # load tile
        i_token = o_token + tl.arange(0, BLOCK_T)
        m_token = i_token < cached_tokens
        o_expanded = i_token.to(tl.int64)[:, None] * stride_expanded_token + i_head * stride_expanded_head
        b_key = tl.load(
            p_expanded + o_expanded + i_nope[None, :], mask=m_token[:, None] & m_nope[None, :], other=0.0
        ).to(DOT)
        b_value = tl.load(
            p_expanded + o_expanded + NOPE + i_value[None, :], mask=m_token[:, None] & m_value[None, :], other=0.0
        ).to(DOT)
        o_rope = i_token.to(tl.int64)[:, None] * stride_k_rope + i_rope[None, :]
        b_rope = tl.load(p_k_rope + o_rope, mask=m_token[:, None] & m_rope[None, :], other=0.0).to(DOT)
        # scores
        b_scores = tl.dot(b_query, tl.trans(b_key), input_precision="ieee")
        b_scores += tl.dot(b_query_rope, tl.trans(b_rope), input_precision="ieee")
        m_seen = m_token[None, :]
        if CAUSAL:
            m_seen = m_seen & (i_token[None, :] <= first_position + i_new[:, None])
        b_scores = tl.where(m_seen, scale * b_scores, float("-inf"))
        # new maximum, rescale
        m_new = tl.maximum(m_i, tl.max(b_scores, axis=1))
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        b_rescale = tl.exp(m_i - m_safe)
        b_weights = tl.exp(b_scores - m_safe[:, None])
        m_i, l_i = m_new, l_i * b_rescale + tl.sum(b_weights, axis=1)
        # accumulate
        acc = acc * b_rescale[:, None] + tl.dot(b_weights.to(DOT), b_value, input_precision="ieee")
    # store
    empty = l_i == 0.0
    l_safe = tl.where(empty, 1.0, l_i)
    o_row = o_new * num_heads + i_head
    b_out = rounded(acc / l_safe[:, None], p_out.dtype.element_ty)
    tl.store(p_out + o_row * VALUE + i_value[None, :], b_out, mask=m_new_token[:, None] & m_value[None, :])
    b_lse = tl.where(empty, float("-inf"), m_i + tl.log(l_safe))
    tl.store(p_lse + i_new.to(tl.int64) * num_heads + i_head, b_lse, mask=m_new_token)
