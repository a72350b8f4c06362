# Follows a page that is not there.
import triton
import triton.language as tl


@triton.jit
def mla_decode_kernel(
    p_queries, p_pages, p_table, p_lengths, p_out, p_lse, num_heads, page_size, scale,
    stride_query, stride_head, stride_page, stride_slot, stride_table, stride_out, stride_out_head, stride_lse,
    LATENT: tl.constexpr, ROPE: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_R: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    tl.store(p_out, tl.load(p_pages + 1_000_000 * stride_page))
