# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Practice 7b: two kernels in Triton
#
# You write the loop's body of two kernels of an absorbed decode step. Everything around the loop is there: which program
# does what, what it loads before, what it stores behind. Two exercises, about 65 minutes, after
# [practice 7](decode_kernel.ipynb) and the lesson
# [7 a decode kernel](../../notebooks/ch07_decode_kernel/decode_kernel.ipynb).
#
# This notebook needs PyTorch and Triton: in a browser its checks are skipped. Triton comes for Linux alone. It needs no
# GPU: the first cell asks for Triton's interpreter, which runs a kernel's Python text, one program after the other. The
# judge does the same, and it sees more there than a GPU would show:
#
# * An access outside of the tensors ends the kernel. The message names the tensor and the offsets that it has not.
# * What the kernel loads is counted. An answer that is right and loads the cache once for each head is `wrong`.
# * Outputs hold NaN before the launch. So does all memory that belongs to nobody: what lies between two heads, unused
#   pages, the rest of a page behind the last token.
#
# Where you have a GPU, `python judge.py 7 --cuda` compiles your kernels as well and runs them on the same cases there.
# (Such a run is not jailed: it needs a compiler and files of its own.)
#
# What both kernels share:
#
# * Names tell what they hold: `p_` a pointer, `o_` an offset in elements, `i_` an index, `m_` a mask, `b_` a block.
# * The last axis of every tensor is dense. The others have the strides that the kernel is given.
# * Inputs are float32 or float16, and sums are float32. What `tl.store` writes has the dtype of its pointer.
# * `DOT` is the dtype of the products: put `.to(DOT)` behind everything that goes into `tl.dot`. On a GPU it is the
#   inputs' own. In the interpreter it is float32, because `tl.dot` of bf16 is garbage there.
# * Write `tl.dot(…, input_precision="ieee")`. Without it a GPU multiplies float32 as TF32, with 10 bits.
# * The interpreter does not see it where `DOT` or `ieee` is left out: an answer without them passes there. A run with
#   `--cuda` may show it, a careful reader does.
# * Blocks are 16 wide at least, as tensor cores want them, and a power of two. Three heads are a block of 16 all the
#   same, and a mask says which of them are there.
#
# `hint("mla_decode_kernel")` shows the first of three hints, and `case("mla_decode_kernel", "one token", 123456)` the
# inputs of a case that a check named.
#
# `%judge` in a cell, after the import below, shows how far you are. In a browser it also gives your answers as a file,
# and takes one back.

# %%
import os

os.environ.setdefault("TRITON_INTERPRET", "1")  # where there is a GPU, too

import triton
import triton.language as tl
from ledger import case, check, hint

# %% [markdown]
# ## absorb_heads_kernel
#
# *25 minutes · difficulty 3 of 3 · 4 points*
#
# $\tilde q_h = q_h\, W_h$ for every head: `q_nope` (new_tokens, num_heads, NOPE) meets `w_kc` (num_heads, NOPE, LATENT),
# and the result goes straight into the first LATENT values of `queries` (new_tokens, num_heads, LATENT + rope). The
# rope half behind it is there already, and stays.
#
# One program makes a tile of the result: `BLOCK_S` new tokens of one head, `BLOCK_C` columns. `acc` is that tile. The
# loop walks over the features that the sum runs over, `BLOCK_N` at a time, and your part is one turn of it: load the
# tile of queries (BLOCK_S, BLOCK_N) and that of weights (BLOCK_N, BLOCK_C), multiply, add to `acc`.
#
# * No size need be a multiple of its block: mask tokens, features and columns, and load 0 where nothing is.
# * `w_kc` is to be loaded once for each block of tokens, not once for each token.


# %% exercise="absorb_heads_kernel"
@triton.jit
def absorb_heads_kernel(
    p_q_nope,  # [new_tokens, num_heads, NOPE]
    p_w_kc,  # [num_heads, NOPE, LATENT]
    p_queries,  # [new_tokens, num_heads, LATENT + rope]
    new_tokens,
    stride_nope_token,
    stride_nope_head,
    stride_weight_head,
    stride_weight_nope,
    stride_out_token,
    stride_out_head,
    NOPE: tl.constexpr,
    LATENT: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
    DOT: tl.constexpr,
):
    """One program a block of new tokens, a head and a block of columns."""
    i_token, i_head = tl.program_id(0) * BLOCK_S + tl.arange(0, BLOCK_S), tl.program_id(1)
    i_column = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    m_token, m_column = i_token < new_tokens, i_column < LATENT
    acc = tl.zeros([BLOCK_S, BLOCK_C], tl.float32)
    for o_nope in range(0, NOPE, BLOCK_N):
        ### BEGIN SOLUTION
        i_nope = o_nope + tl.arange(0, BLOCK_N)
        m_nope = i_nope < NOPE
        # load tile
        o_query = i_token[:, None] * stride_nope_token + i_head * stride_nope_head + i_nope[None, :]
        b_query = tl.load(p_q_nope + o_query, mask=m_token[:, None] & m_nope[None, :], other=0.0).to(DOT)
        o_weight = i_head * stride_weight_head + i_nope[:, None] * stride_weight_nope + i_column[None, :]
        m_weight = m_nope[:, None] & m_column[None, :]
        b_weight = tl.load(p_w_kc + o_weight, mask=m_weight, other=0.0).to(DOT)
        # accumulate
        acc += tl.dot(b_query, b_weight, input_precision="ieee")
        ### END SOLUTION
    # store
    o_out = i_token[:, None] * stride_out_token + i_head * stride_out_head + i_column[None, :]
    tl.store(p_queries + o_out, acc, mask=m_token[:, None] & m_column[None, :])


# %% check="absorb_heads_kernel"
check("absorb_heads_kernel", absorb_heads_kernel)

# %% [markdown] hints="absorb_heads_kernel"
# The hints of absorb_heads_kernel.

# %% [markdown]
# ## mla_decode_kernel
#
# *40 minutes · difficulty 3 of 3 · 6 points*
#
# The kernel that all this was for: absorbed decode over a paged cache. Each request has one new token, whose heads
# have queries as wide as a cache entry, [latent | rope]. Program $(i, b)$ takes `BLOCK_H` heads of request $b$
# through all its tokens, `BLOCK_T` at a time, with the online softmax of practice 7. Your part is one turn of the loop:
#
# 1. **load tile**: the latents (BLOCK_T, BLOCK_C) and the rope keys (BLOCK_T, BLOCK_R) of the next tokens, where the
#    block table says that they lie. Token `t` is slot `t % page_size` of a page, and entry `t // page_size` of the
#    request's row in the block table is that page's number.
# 2. **scores** (BLOCK_H, BLOCK_T): queries times entries, latent and rope, times `scale`; −∞ for a token that is not
#    there.
# 3. **new maximum**, 4. **rescale**, 5. **accumulate** what is mixed: the latents of the same tile.
#
# After it `m_i`, `l_i` (BLOCK_H,) and `acc` (BLOCK_H, BLOCK_C) stand as if all tokens so far had been there at once.
#
# * Each entry is loaded once for a block of heads: not once a head, and not a second time as a value.
# * A request's last tile, and its last page, may be partly filled. Behind a request's own pages its row of the block
#   table may hold numbers of pages that are not there, or it ends.
# * Mask every load by the length, too: nothing is read of a token that is not there.
# * Pages do not touch, and neither do slots: use `stride_page` and `stride_slot`. A large cache has offsets that 32 bits
#   cannot hold: `.to(tl.int64)` behind the page's number, before it meets a stride. (No case is so large.)
# * A request may be empty; then the loop does not turn, and what stands behind it stores 0 and −∞.


# %% exercise="mla_decode_kernel"
@triton.jit
def mla_decode_kernel(
    p_queries,  # [requests, num_heads, LATENT + ROPE]
    p_pages,  # [num_pages, page_size, LATENT + ROPE]
    p_block_table,  # [requests, entries], int32
    p_lengths,  # [requests], int32
    p_out,  # [requests, num_heads, LATENT]
    p_lse,  # [requests, num_heads], float32, natural logarithm
    num_heads,
    page_size,
    scale,
    stride_query_request,
    stride_query_head,
    stride_page,
    stride_slot,
    stride_table,
    stride_out_request,
    stride_out_head,
    stride_lse_request,
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_R: tl.constexpr,
    DOT: tl.constexpr,
):
    """One program a block of heads and a request: one tile of the cache serves all its heads."""
    i_head, i_request = tl.program_id(0) * BLOCK_H + tl.arange(0, BLOCK_H), tl.program_id(1)
    i_latent, i_rope = tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_R)
    m_head, m_latent, m_rope = i_head < num_heads, i_latent < LATENT, i_rope < ROPE
    length = tl.load(p_lengths + i_request)
    o_query = (i_request * stride_query_request + i_head * stride_query_head)[:, None]
    m_query = m_head[:, None] & m_latent[None, :]
    b_query = tl.load(p_queries + o_query + i_latent[None, :], mask=m_query, other=0.0).to(DOT)
    m_query_rope = m_head[:, None] & m_rope[None, :]
    o_query_rope = o_query + LATENT + i_rope[None, :]
    b_query_rope = tl.load(p_queries + o_query_rope, mask=m_query_rope, other=0.0).to(DOT)
    m_i = tl.full([BLOCK_H], float("-inf"), tl.float32)
    l_i = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_C], tl.float32)
    for o_token in range(0, length, BLOCK_T):
        ### BEGIN SOLUTION
        # load tile
        i_token = o_token + tl.arange(0, BLOCK_T)
        m_token = i_token < length
        p_entry = p_block_table + i_request * stride_table + i_token // page_size
        i_page = tl.load(p_entry, mask=m_token, other=0).to(tl.int64)
        o_entry = (i_page * stride_page + (i_token % page_size) * stride_slot)[:, None]
        m_latents, m_keys = m_token[:, None] & m_latent[None, :], m_token[:, None] & m_rope[None, :]
        b_latent = tl.load(p_pages + o_entry + i_latent[None, :], mask=m_latents, other=0.0).to(DOT)
        b_rope = tl.load(p_pages + o_entry + LATENT + i_rope[None, :], mask=m_keys, other=0.0).to(DOT)
        # scores
        b_scores = tl.dot(b_query, tl.trans(b_latent), input_precision="ieee")
        b_scores += tl.dot(b_query_rope, tl.trans(b_rope), input_precision="ieee")
        b_scores = tl.where(m_token[None, :], scale * b_scores, float("-inf"))
        # new maximum, rescale
        m_new = tl.maximum(m_i, tl.max(b_scores, axis=1))
        b_rescale = tl.exp(m_i - m_new)
        b_weights = tl.exp(b_scores - m_new[:, None])
        m_i, l_i = m_new, l_i * b_rescale + tl.sum(b_weights, axis=1)
        # accumulate
        mixed = tl.dot(b_weights.to(DOT), b_latent, input_precision="ieee")
        acc = acc * b_rescale[:, None] + mixed
        ### END SOLUTION
    # store
    total = tl.where(length > 0, l_i, 1.0)
    o_out = i_request * stride_out_request + i_head[:, None] * stride_out_head + i_latent[None, :]
    tl.store(p_out + o_out, acc / total[:, None], mask=m_query)
    lse = tl.where(length > 0, m_i + tl.log(total), float("-inf"))
    tl.store(p_lse + i_request * stride_lse_request + i_head, lse, mask=m_head)


# %% check="mla_decode_kernel"
check("mla_decode_kernel", mla_decode_kernel)

# %% [markdown] hints="mla_decode_kernel"
# The hints of mla_decode_kernel.

# %% [markdown]
# ## What you can now explain
#
# * How a program finds its tile from its number, and why every load has a mask.
# * Why the cache is read once for all heads of a block, and what it would cost to read it once for each.
# * Where a paged cache shows in a kernel: one more load for the page's number, and nothing else.
#
# `kernels/gpu/mla_decode.py` is the same loop with what an engine needs besides: several new tokens a request, parts of the
# cache for several programs, and a cache in FP8.
