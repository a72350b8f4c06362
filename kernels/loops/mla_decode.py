"""``web/mla_decode.wgsl`` in NumPy: the same loops, the same names. What the lanes of a workgroup do is one array."""

import numpy as np

LOWEST = np.float32(-1e30)


def mla_decode(
    # pointers
    p_queries: np.ndarray,  # [b, h, c + r]
    p_cache: np.ndarray,  # [b, max_tokens, c + r]
    p_lengths: np.ndarray,  # [b]
    p_out: np.ndarray,  # [b, h, c]
    p_lse: np.ndarray,  # [b, h]
    # sizes
    num_heads: int,
    latent_dim: int,
    rope_dim: int,
    scale: float,
    # strides: NumPy's own
    # meta-parameters
    HEADS: int = 32,
    TILE: int = 8,
) -> None:
    """Write the mixed latents of every head into ``p_out`` and their natural-log-sum-exp into ``p_lse``, in float32."""
    width = latent_dim + rope_dim
    for i_request, length in enumerate(p_lengths):
        for o_head in range(0, num_heads, HEADS):
            heads = slice(o_head, min(o_head + HEADS, num_heads))
            b_queries = p_queries[i_request, heads]  # [HEADS, c + r]
            m_i = np.full(len(b_queries), LOWEST)  # [HEADS]
            l_i = np.zeros(len(b_queries), np.float32)  # [HEADS]
            acc = np.zeros((len(b_queries), latent_dim), np.float32)  # [HEADS, c]
            for o_tile in range(0, length, TILE):
                # load tile
                m_token = o_tile + np.arange(TILE) < length  # [TILE]
                b_tile = np.zeros((TILE, width), np.float32)  # [TILE, c + r]
                b_tile[m_token] = p_cache[i_request, o_tile : min(o_tile + TILE, length)]
                # scores
                b_scores = np.where(m_token, np.float32(scale) * (b_queries @ b_tile.T), LOWEST)  # [HEADS, TILE]
                # new maximum, rescale
                m_new = np.maximum(m_i, b_scores.max(axis=1))
                b_rescale = np.exp(m_i - m_new)
                b_weights = np.exp(b_scores - m_new[:, None])  # [HEADS, TILE], 0 where there is no token
                m_i, l_i = m_new, l_i * b_rescale + b_weights.sum(axis=1)
                # accumulate
                acc = acc * b_rescale[:, None] + b_weights @ b_tile[:, :latent_dim]
            # store
            p_out[i_request, heads] = acc / l_i[:, None] if length > 0 else 0
            p_lse[i_request, heads] = m_i + np.log(l_i) if length > 0 else -np.inf
