"""``gpu/materialize_prefill.py`` in NumPy: the same loops, the same names. bf16 lies in arrays of uint16."""

import numpy as np

from ledger.kernels.loops.numbers import rounded, widened


def expand(
    # pointers
    p_latents: np.ndarray,  # [t, c], normalised
    p_kv_b: np.ndarray,  # [h, n + v, c]
    p_expanded: np.ndarray,  # [t, h, n + v]
    # sizes
    cached_tokens: int,
    # strides: NumPy's own
    # meta-parameters
    LATENT: int,
    WIDTH: int,
    BLOCK_T: int = 64,
    BLOCK_W: int = 64,
    BLOCK_K: int = 64,
) -> None:
    """One program a block of tokens, a head, and a block of that head's [nope | value] columns."""
    for o_token in range(0, cached_tokens, BLOCK_T):
        for i_head in range(len(p_kv_b)):
            for o_column in range(0, WIDTH, BLOCK_W):
                i_token = slice(o_token, min(o_token + BLOCK_T, cached_tokens))
                i_column = slice(o_column, min(o_column + BLOCK_W, WIDTH))
                acc = np.zeros((i_token.stop - o_token, i_column.stop - o_column), np.float32)  # [BLOCK_T, BLOCK_W]
                for o_latent in range(0, LATENT, BLOCK_K):
                    # load tile
                    i_latent = slice(o_latent, min(o_latent + BLOCK_K, LATENT))
                    b_latent = widened(p_latents[i_token, i_latent])  # [BLOCK_T, BLOCK_K]
                    b_weight = widened(p_kv_b[i_head, i_column, i_latent]).T  # [BLOCK_K, BLOCK_W]
                    # accumulate
                    acc += b_latent @ b_weight
                # store
                p_expanded[i_token, i_head, i_column] = rounded(acc, p_expanded.dtype)


def attend(
    # pointers
    p_q_nope: np.ndarray,  # [s, h, n]
    p_q_rope: np.ndarray,  # [s, h, r], rotated
    p_expanded: np.ndarray,  # [t, h, n + v]
    p_k_rope: np.ndarray,  # [t, r], rotated
    p_out: np.ndarray,  # [s, h, v]
    p_lse: np.ndarray,  # [s, h]
    # sizes
    new_tokens: int,
    cached_tokens: int,
    num_heads: int,
    first_position: int,
    scale: float,
    # strides: NumPy's own
    # meta-parameters
    NOPE: int,
    VALUE: int,
    CAUSAL: bool,
    BLOCK_S: int = 64,
    BLOCK_T: int = 64,
) -> None:
    """One program a block of new tokens and a head. CAUSAL: new token i sees keys 0 … first_position + i."""
    for o_new in range(0, new_tokens, BLOCK_S):
        for i_head in range(num_heads):
            i_new = np.arange(o_new, min(o_new + BLOCK_S, new_tokens))  # [BLOCK_S]
            b_query = widened(p_q_nope[i_new, i_head])  # [BLOCK_S, n]
            b_query_rope = widened(p_q_rope[i_new, i_head])  # [BLOCK_S, r]
            m_i = np.full(len(i_new), -np.inf, np.float32)
            l_i = np.zeros(len(i_new), np.float32)
            acc = np.zeros((len(i_new), VALUE), np.float32)  # [BLOCK_S, v]
            stop = min(cached_tokens, first_position + o_new + BLOCK_S) if CAUSAL else cached_tokens
            for o_token in range(0, stop, BLOCK_T):
                # load tile
                i_token = np.arange(o_token, min(o_token + BLOCK_T, cached_tokens))  # [BLOCK_T]
                b_key = widened(p_expanded[i_token, i_head, :NOPE])  # [BLOCK_T, n]
                b_value = widened(p_expanded[i_token, i_head, NOPE:])  # [BLOCK_T, v]
                b_rope = widened(p_k_rope[i_token])  # [BLOCK_T, r]
                # scores
                b_scores = b_query @ b_key.T  # [BLOCK_S, BLOCK_T]
                b_scores += b_query_rope @ b_rope.T
                m_seen = np.ones(b_scores.shape, bool)
                if CAUSAL:
                    m_seen = i_token <= first_position + i_new[:, None]
                b_scores = np.where(m_seen, np.float32(scale) * b_scores, np.float32(-np.inf))
                # new maximum, rescale
                m_new = np.maximum(m_i, b_scores.max(axis=1))
                m_safe = np.where(m_new == -np.inf, 0, m_new)
                b_rescale = np.exp(m_i - m_safe)
                b_weights = np.exp(b_scores - m_safe[:, None])
                m_i, l_i = m_new, l_i * b_rescale + b_weights.sum(axis=1)
                # accumulate
                acc = acc * b_rescale[:, None] + b_weights @ b_value
            # store
            empty = l_i == 0
            l_safe = np.where(empty, 1, l_i)
            p_out[i_new, i_head] = rounded(acc / l_safe[:, None], p_out.dtype)
            p_lse[i_new, i_head] = np.where(empty, -np.inf, m_i + np.log(l_safe))
