"""``gpu/value_up.py`` in NumPy: the same loops, the same names. bf16 lies in arrays of uint16."""

import numpy as np

from ledger.kernels.loops.mla_decode_paged import merged, weights_of_splits
from ledger.kernels.loops.numbers import rounded, widened


def value_up(
    # pointers
    p_partials: np.ndarray,  # [b, splits, s · h, c]
    p_lses: np.ndarray,  # [b, splits, s · h]
    p_w_vc: np.ndarray,  # [h, c, v]
    p_out: np.ndarray,  # [b, s, h, v]
    # sizes
    requests: int,
    new_tokens: int,
    num_heads: int,
    # strides: NumPy's own
    # meta-parameters
    LATENT: int,
    VALUE: int,
    BLOCK_C: int = 64,
    BLOCK_B: int = 16,
    BLOCK_V: int = 128,
) -> None:
    """One program a block of new tokens (of any request), a head and a block of value columns."""
    for o_token in range(0, requests * new_tokens, BLOCK_B):
        for i_head in range(num_heads):
            for o_value in range(0, VALUE, BLOCK_V):
                i_token = np.arange(o_token, min(o_token + BLOCK_B, requests * new_tokens))
                i_request, i_new = i_token // new_tokens, i_token % new_tokens
                i_row = i_new * num_heads + i_head
                b_lse = p_lses[i_request, :, i_row].T  # [splits, BLOCK_B]
                m_safe, l_i = weights_of_splits(b_lse)
                i_value = slice(o_value, min(o_value + BLOCK_V, VALUE))
                acc = np.zeros((len(i_token), i_value.stop - o_value), np.float32)  # [BLOCK_B, BLOCK_V]
                for o_latent in range(0, LATENT, BLOCK_C):
                    # load tile
                    i_latent = slice(o_latent, min(o_latent + BLOCK_C, LATENT))
                    b_partials = p_partials[i_request, :, i_row, i_latent].swapaxes(0, 1)  # [splits, BLOCK_B, BLOCK_C]
                    b_mixed = merged(b_partials, b_lse, m_safe, l_i)  # [BLOCK_B, BLOCK_C]
                    b_weight = widened(p_w_vc[i_head, i_latent, i_value])  # [BLOCK_C, BLOCK_V]
                    # accumulate
                    acc += b_mixed @ b_weight
                # store
                p_out[i_request, i_new, i_head, i_value] = rounded(acc, p_out.dtype)
