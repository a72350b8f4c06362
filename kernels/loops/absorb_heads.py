"""``web/absorb_heads.wgsl`` in NumPy: the same loops, the same names. What the lanes of a workgroup do is one array."""

import numpy as np


def absorb_heads(
    # pointers
    p_queries: np.ndarray,  # [s, h, n]
    p_weights: np.ndarray,  # [h, n, c]
    p_out: np.ndarray,  # [s, h, c]
    # sizes
    new_tokens: int,
    num_heads: int,
    nope_dim: int,
    latent_dim: int,
    # strides: NumPy's own
    # meta-parameters
    LANES: int = 64,
    BLOCK_S: int = 8,
    BLOCK_N: int = 64,
) -> None:
    """Write every head's absorbed queries into ``p_out``, in float32."""
    for o_token in range(0, new_tokens, BLOCK_S):
        for i_head in range(num_heads):
            for o_column in range(0, latent_dim, LANES):
                i_token = np.arange(o_token, min(o_token + BLOCK_S, new_tokens))
                i_column = np.arange(o_column, min(o_column + LANES, latent_dim))
                acc = np.zeros((len(i_token), len(i_column)), np.float32)  # [BLOCK_S, LANES]
                for o_nope in range(0, nope_dim, BLOCK_N):
                    # load tile
                    i_nope = np.arange(o_nope, min(o_nope + BLOCK_N, nope_dim))
                    b_queries = p_queries[np.ix_(i_token, [i_head], i_nope)][:, 0]  # [BLOCK_S, BLOCK_N]
                    b_weights = p_weights[np.ix_([i_head], i_nope, i_column)][0]  # [BLOCK_N, LANES]
                    # accumulate
                    acc += b_queries @ b_weights
                # store
                p_out[np.ix_(i_token, [i_head], i_column)] = acc[:, None]
