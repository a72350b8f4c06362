"""The last product of a decode step: merge the splits of a row and send the mixed latents through the head's w_vc."""

from ledger.kernels.gpu.mla_decode import merged, weights_of_splits
from ledger.kernels.gpu.numbers import rounded
from ledger.kernels.interpret.mode import tl, triton


@triton.jit
def value_up(
    # pointers
    p_partials,  # [b, splits, s · h, c]
    p_lses,  # [b, splits, s · h]
    p_w_vc,  # [h, c, v]
    p_out,  # [b, s, h, v]
    # sizes
    requests,
    new_tokens,
    num_heads,
    num_splits,
    # strides
    stride_weight_head,
    stride_weight_latent,
    # meta-parameters
    LATENT: tl.constexpr,
    VALUE: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_V: tl.constexpr,
    DOT: tl.constexpr,
):
    """One program a block of new tokens (of any request), a head and a block of value columns."""
    i_token = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    i_head, o_value = tl.program_id(1), tl.program_id(2) * BLOCK_V
    m_token = i_token < requests * new_tokens
    i_request, i_new = i_token // new_tokens, i_token % new_tokens
    num_rows = new_tokens * num_heads
    i_row = i_request.to(tl.int64) * num_splits * num_rows + i_new * num_heads + i_head
    m_safe, l_i = weights_of_splits(p_lses, 0, num_rows, num_splits, i_row, m_token)
    i_value = o_value + tl.arange(0, BLOCK_V)
    acc = tl.zeros([BLOCK_B, BLOCK_V], tl.float32)
    for o_latent in range(0, LATENT, BLOCK_C):
        # load tile
        i_latent = o_latent + tl.arange(0, BLOCK_C)
        b_mixed = merged(p_partials, p_lses, 0, num_rows, num_splits, i_row, m_token, m_safe, l_i, i_latent, LATENT)
        m_weight = (i_latent < LATENT)[:, None] & (i_value < VALUE)[None, :]
        o_weight = i_head.to(tl.int64) * stride_weight_head + i_latent[:, None] * stride_weight_latent
        b_weight = tl.load(p_w_vc + o_weight + i_value[None, :], mask=m_weight, other=0.0).to(DOT)
        # accumulate
        acc += tl.dot(b_mixed.to(DOT), b_weight, input_precision="ieee")
    # store
    o_out = (i_token.to(tl.int64) * num_heads + i_head)[:, None] * VALUE + i_value[None, :]
    m_out = m_token[:, None] & (i_value < VALUE)[None, :]
    tl.store(p_out + o_out, rounded(acc, p_out.dtype.element_ty), mask=m_out)
