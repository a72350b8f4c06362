"""``gpu/absorb_heads.py`` in NumPy: the same loops, the same names. bf16 lies in arrays of uint16.

It has what the browser's kernel, whose twin is ``absorb_heads.py``, leaves out: the rotated rope half.
"""

import numpy as np

from ledger.kernels.loops.numbers import rounded, widened


def rotated(
    b_x: np.ndarray, b_cos: np.ndarray, b_sin: np.ndarray, INTERLEAVED: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The two halves of rotated vectors, (..., r / 2) each, and their places in them, (r / 2,) each."""
    ROPE = b_x.shape[-1]
    i_pair = np.arange(ROPE // 2)
    i_first, i_second = (2 * i_pair, 2 * i_pair + 1) if INTERLEAVED else (i_pair, i_pair + ROPE // 2)
    b_first, b_second = widened(b_x[..., i_first]), widened(b_x[..., i_second])
    return b_first * b_cos - b_second * b_sin, b_first * b_sin + b_second * b_cos, i_first, i_second


def absorb_heads(
    # pointers
    p_q_nope: np.ndarray,  # [s, h, n]
    p_q_rope: np.ndarray,  # [s, h, r]
    p_w_kc: np.ndarray,  # [h, n, c]
    p_cos: np.ndarray,  # [s, r / 2]
    p_sin: np.ndarray,  # [s, r / 2]
    p_queries: np.ndarray,  # [s, h, c + r]
    # sizes
    new_tokens: int,
    # strides: NumPy's own
    # meta-parameters
    NOPE: int,
    LATENT: int,
    ROPE: int,
    BLOCK_S: int = 16,
    BLOCK_N: int = 64,
    BLOCK_C: int = 128,
    INTERLEAVED: bool = True,
) -> None:
    """One program a block of tokens, a head and a block of columns; the last one along the columns rotates."""
    columns = -(-LATENT // BLOCK_C)
    for o_token in range(0, new_tokens, BLOCK_S):
        for i_head in range(len(p_w_kc)):
            for o_column in range(0, (columns + (ROPE > 0)) * BLOCK_C, BLOCK_C):
                i_token = slice(o_token, min(o_token + BLOCK_S, new_tokens))
                if o_column < LATENT:
                    i_column = slice(o_column, min(o_column + BLOCK_C, LATENT))
                    acc = np.zeros((i_token.stop - o_token, i_column.stop - o_column), np.float32)
                    for o_nope in range(0, NOPE, BLOCK_N):
                        # load tile
                        i_nope = slice(o_nope, min(o_nope + BLOCK_N, NOPE))
                        b_query = widened(p_q_nope[i_token, i_head, i_nope])  # [BLOCK_S, BLOCK_N]
                        b_weight = widened(p_w_kc[i_head, i_nope, i_column])  # [BLOCK_N, BLOCK_C]
                        # accumulate
                        acc += b_query @ b_weight
                    # store
                    p_queries[i_token, i_head, i_column] = rounded(acc, p_queries.dtype)
                else:
                    b_first, b_second, i_first, i_second = rotated(
                        p_q_rope[i_token, i_head], p_cos[i_token], p_sin[i_token], INTERLEAVED
                    )
                    p_queries[i_token, i_head, LATENT + i_first] = rounded(b_first, p_queries.dtype)
                    p_queries[i_token, i_head, LATENT + i_second] = rounded(b_second, p_queries.dtype)
