"""``gpu/write_cache.py`` in NumPy: the same loops, the same names. bf16 lies in arrays of uint16."""

import numpy as np

from ledger.kernels.loops.absorb_query_rows import rotated
from ledger.kernels.loops.numbers import rounded, to_e4m3, widened


def write_cache(
    # pointers
    p_latents: np.ndarray,  # [t, c], raw
    p_k_rope: np.ndarray,  # [t, r], not rotated
    p_norm: np.ndarray,  # [c]
    p_cos: np.ndarray,  # [t, r / 2]
    p_sin: np.ndarray,  # [t, r / 2]
    p_slots: np.ndarray,  # [t], page · page_size + place in the page, or -1
    p_latent: np.ndarray,  # [pages, page, c], codes where FP8
    p_scales: np.ndarray,  # [pages, page, c / 128], FP8 only
    p_rope: np.ndarray,  # [pages, page, r]
    # sizes
    page_size: int,
    eps: float,
    # strides: NumPy's own
    # meta-parameters
    LATENT: int,
    TILE: int = 128,
    INTERLEAVED: bool = True,
    FP8: bool = False,
) -> None:
    """One program a token; in an FP8 cache a tile of 128 latents has its own scale."""
    for i_token, i_slot in enumerate(p_slots.tolist()):
        if i_slot < 0:
            continue
        i_page, i_place = divmod(i_slot, page_size)
        # load tile
        b_latent = widened(p_latents[i_token])  # [c]
        b_norm = widened(p_norm)  # [c]
        mean = (b_latent * b_latent).sum() / np.float32(LATENT)
        b_latent = b_latent * (np.float32(1) / np.sqrt(mean + np.float32(eps))) * b_norm
        # store
        if FP8:
            # one scale a tile; an all-zero tile has codes of 0 whatever its scale
            for i_tile in range(-(-LATENT // TILE)):
                i_latent = slice(i_tile * TILE, min((i_tile + 1) * TILE, LATENT))
                b_scale = np.maximum(np.abs(b_latent[i_latent]).max(), np.float32(1e-4)) / np.float32(448)
                p_latent[i_page, i_place, i_latent] = to_e4m3(b_latent[i_latent] / b_scale)
                p_scales[i_page, i_place, i_tile] = b_scale
        else:
            p_latent[i_page, i_place] = rounded(b_latent, p_latent.dtype)
        b_first, b_second, i_first, i_second = rotated(p_k_rope[i_token], p_cos[i_token], p_sin[i_token], INTERLEAVED)
        p_rope[i_page, i_place, i_first] = rounded(b_first, p_rope.dtype)
        p_rope[i_page, i_place, i_second] = rounded(b_second, p_rope.dtype)
