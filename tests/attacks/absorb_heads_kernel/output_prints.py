# Prints in the kernel, in two ways.
import triton
import triton.language as tl


@triton.jit
def absorb_heads_kernel(
    p_q_nope, p_w_kc, p_queries, new_tokens,
    stride_nope_token, stride_nope_head, stride_weight_head, stride_weight_nope, stride_out_token, stride_out_head,
    NOPE: tl.constexpr, LATENT: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    for number in range(1_000_000):
        tl.device_print("number", number)
        print("spam " * 1000)
