"""The query of a decode step: every head's through that head's own matrix, beside its rotated rope half."""

from ledger.kernels.gpu.numbers import rounded
from ledger.kernels.interpret.mode import tl, triton


@triton.jit
def rotated(p_x, o_x, p_cos, p_sin, o_table, mask, i_pair, ROPE: tl.constexpr, INTERLEAVED: tl.constexpr):
    """The two halves of a rotated vector and their places in it: [..., r / 2] each."""
    if INTERLEAVED:
        i_first, i_second = 2 * i_pair, 2 * i_pair + 1
    else:
        i_first, i_second = i_pair, i_pair + ROPE // 2
    b_first = tl.load(p_x + o_x + i_first, mask=mask, other=0.0).to(tl.float32)
    b_second = tl.load(p_x + o_x + i_second, mask=mask, other=0.0).to(tl.float32)
    b_cos = tl.load(p_cos + o_table + i_pair, mask=mask, other=1.0)
    b_sin = tl.load(p_sin + o_table + i_pair, mask=mask, other=0.0)
    return b_first * b_cos - b_second * b_sin, b_first * b_sin + b_second * b_cos, i_first, i_second


@triton.jit
def absorb_heads(
    # pointers
    p_q_nope,  # [s, h, n]
    p_q_rope,  # [s, h, r]
    p_w_kc,  # [h, n, c]
    p_cos,  # [s, r / 2]
    p_sin,  # [s, r / 2]
    p_queries,  # [s, h, c + r]
    # sizes
    new_tokens,
    # strides
    stride_nope_token,
    stride_nope_head,
    stride_rope_token,
    stride_rope_head,
    stride_weight_head,
    stride_weight_nope,
    stride_out_token,
    stride_out_head,
    # meta-parameters
    NOPE: tl.constexpr,
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_P: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    DOT: tl.constexpr,
):
    """One program a block of tokens, a head and a block of columns; the last one along the columns rotates."""
    i_token, i_head = tl.program_id(0) * BLOCK_S + tl.arange(0, BLOCK_S), tl.program_id(1)
    o_column = tl.program_id(2) * BLOCK_C
    m_token = i_token < new_tokens
    dtype: tl.constexpr = p_queries.dtype.element_ty
    o_out = i_token.to(tl.int64)[:, None] * stride_out_token + i_head * stride_out_head
    if o_column < LATENT:
        i_column = o_column + tl.arange(0, BLOCK_C)
        acc = tl.zeros([BLOCK_S, BLOCK_C], tl.float32)
        for o_nope in range(0, NOPE, BLOCK_N):
            # load tile
            i_nope = o_nope + tl.arange(0, BLOCK_N)
            m_query = m_token[:, None] & (i_nope < NOPE)[None, :]
            o_query = i_token.to(tl.int64)[:, None] * stride_nope_token + i_head * stride_nope_head + i_nope[None, :]
            b_query = tl.load(p_q_nope + o_query, mask=m_query, other=0.0).to(DOT)
            m_weight = (i_nope < NOPE)[:, None] & (i_column < LATENT)[None, :]
            o_weight = i_head.to(tl.int64) * stride_weight_head + i_nope[:, None] * stride_weight_nope
            b_weight = tl.load(p_w_kc + o_weight + i_column[None, :], mask=m_weight, other=0.0).to(DOT)
            # accumulate
            acc += tl.dot(b_query, b_weight, input_precision="ieee")
        # store
        m_out = m_token[:, None] & (i_column < LATENT)[None, :]
        tl.store(p_queries + o_out + i_column[None, :], rounded(acc, dtype), mask=m_out)
    else:
        i_pair = tl.arange(0, BLOCK_P)[None, :]
        mask = m_token[:, None] & (i_pair < ROPE // 2)
        o_rope = i_token.to(tl.int64)[:, None] * stride_rope_token + i_head * stride_rope_head
        o_table = i_token[:, None] * (ROPE // 2)
        b_first, b_second, i_first, i_second = rotated(
            p_q_rope, o_rope, p_cos, p_sin, o_table, mask, i_pair, ROPE, INTERLEAVED
        )
        tl.store(p_queries + o_out + LATENT + i_first, rounded(b_first, dtype), mask=mask)
        tl.store(p_queries + o_out + LATENT + i_second, rounded(b_second, dtype), mask=mask)
