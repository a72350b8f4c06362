# Adds outside of its tensors, which is neither a load nor a store.
import triton
import triton.language as tl


@triton.jit
def absorb_heads_kernel(
    p_q_nope, p_w_kc, p_queries, new_tokens,
    stride_nope_token, stride_nope_head, stride_weight_head, stride_weight_nope, stride_out_token, stride_out_head,
    NOPE: tl.constexpr, LATENT: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    tl.atomic_add(p_queries + 1_000_000_000, 1.0)
