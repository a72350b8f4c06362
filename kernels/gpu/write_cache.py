"""What a new token leaves behind: RMSNorm of its latent and RoPE of its one key, written into a page in one pass."""

from ledger.kernels.gpu.absorb_heads import rotated
from ledger.kernels.gpu.numbers import rounded, to_e4m3
from ledger.kernels.interpret.mode import tl, triton


@triton.jit
def write_cache(
    # pointers
    p_latents,  # [t, c], raw
    p_k_rope,  # [t, r], not rotated
    p_norm,  # [c]
    p_cos,  # [t, r / 2]
    p_sin,  # [t, r / 2]
    p_slots,  # [t], page · page_size + place in the page, or -1
    p_latent,  # [pages, page, c], codes where FP8
    p_scales,  # [pages, page, c / 128], FP8 only
    p_rope,  # [pages, page, r]
    # sizes
    page_size,
    eps,
    # strides
    stride_latents,
    stride_k_rope,
    stride_latent_page,
    stride_latent_slot,
    stride_scales_page,
    stride_scales_slot,
    stride_rope_page,
    stride_rope_slot,
    # meta-parameters
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
    TILES: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK_P: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    FP8: tl.constexpr,
):
    """One program a token; the latent is read as TILES × TILE values, so that a tile of 128 has its own scale."""
    i_token = tl.program_id(0).to(tl.int64)
    i_slot = tl.load(p_slots + i_token)
    if i_slot >= 0:
        i_page, i_place = i_slot // page_size, i_slot % page_size
        # load tile
        i_tile = tl.arange(0, TILES)
        i_latent = i_tile[:, None] * TILE + tl.arange(0, TILE)[None, :]
        m_latent = i_latent < LATENT
        b_latent = tl.load(p_latents + i_token * stride_latents + i_latent, mask=m_latent, other=0.0).to(tl.float32)
        b_norm = tl.load(p_norm + i_latent, mask=m_latent, other=0.0).to(tl.float32)
        mean = tl.sum(tl.sum(b_latent * b_latent, axis=1), axis=0) / LATENT
        b_latent = b_latent * (1.0 / tl.sqrt(mean + eps)) * b_norm
        # store
        p_entry = p_latent + i_page * stride_latent_page + i_place * stride_latent_slot
        if FP8:
            # one scale a tile; an all-zero tile has codes of 0 whatever its scale
            b_scale = tl.maximum(tl.max(tl.abs(b_latent), axis=1), 1e-4) / 448.0
            tl.store(p_entry + i_latent, to_e4m3(b_latent / b_scale[:, None]), mask=m_latent)
            o_scales = i_page * stride_scales_page + i_place * stride_scales_slot
            tl.store(p_scales + o_scales + i_tile, b_scale, mask=i_tile * TILE < LATENT)
        else:
            tl.store(p_entry + i_latent, rounded(b_latent, p_latent.dtype.element_ty), mask=m_latent)
        i_pair = tl.arange(0, BLOCK_P)
        m_pair = i_pair < ROPE // 2
        b_first, b_second, i_first, i_second = rotated(
            p_k_rope, i_token * stride_k_rope, p_cos, p_sin, i_token * (ROPE // 2), m_pair, i_pair, ROPE, INTERLEAVED
        )
        p_key = p_rope + i_page * stride_rope_page + i_place * stride_rope_slot
        dtype: tl.constexpr = p_rope.dtype.element_ty
        tl.store(p_key + i_first, rounded(b_first, dtype), mask=m_pair)
        tl.store(p_key + i_second, rounded(b_second, dtype), mask=m_pair)
