"""``gpu/sparse_mla_decode.py`` in NumPy: the same loops, the same names. bf16 lies in arrays of uint16.

The merge of the splits is ``combine`` of ``mla_decode_paged.py``.
"""

import numpy as np

from ledger.kernels.loops.mla_decode_paged import load_latents, part_of
from ledger.kernels.loops.numbers import widened


def sparse_mla_decode(
    # pointers
    p_queries: np.ndarray,  # [b, s, h, c + r]
    p_latent: np.ndarray,  # [pages, page, c], codes where FP8
    p_scales: np.ndarray,  # [pages, page, c / 128], FP8 only
    p_rope: np.ndarray,  # [pages, page, r]
    p_block_table: np.ndarray,  # [b, entries]
    p_lengths: np.ndarray,  # [b]
    p_indices: np.ndarray,  # [b, s, topk]
    p_out: np.ndarray,  # [b, splits, s · h, c]
    p_lse: np.ndarray,  # [b, splits, s · h]
    # sizes
    num_heads: int,
    new_tokens: int,
    num_splits: int,
    topk: int,
    page_size: int,
    scale: float,
    # strides: NumPy's own
    # meta-parameters
    LATENT: int,
    BLOCK_H: int = 16,
    BLOCK_T: int = 16,
    FP8: bool = False,
) -> None:
    """One program a block of heads of one new token and a part of its list: a gathered tile serves all heads."""
    for o_head in range(0, num_heads, BLOCK_H):
        for i_row in range(len(p_lengths) * new_tokens):
            for i_split in range(num_splits):
                i_request, i_new = divmod(i_row, new_tokens)
                i_head = np.arange(o_head, min(o_head + BLOCK_H, num_heads))  # [BLOCK_H]
                seen = int(p_lengths[i_request]) - (new_tokens - 1 - i_new)
                start, stop = part_of(i_split, num_splits, topk, BLOCK_T)
                b_query = widened(p_queries[i_request, i_new, i_head, :LATENT])  # [BLOCK_H, c]
                b_query_rope = widened(p_queries[i_request, i_new, i_head, LATENT:])  # [BLOCK_H, r]
                m_i = np.full(len(i_head), -np.inf, np.float32)
                l_i = np.zeros(len(i_head), np.float32)
                acc = np.zeros((len(i_head), LATENT), np.float32)  # [BLOCK_H, c]
                for o_pick in range(start, stop, BLOCK_T):
                    # load tile
                    i_token = p_indices[i_request, i_new, o_pick : min(o_pick + BLOCK_T, stop)]
                    i_token = i_token[(i_token >= 0) & (i_token < seen)]  # [BLOCK_T]
                    i_page = p_block_table[i_request, i_token // page_size]
                    i_slot = i_token % page_size
                    b_latent = load_latents(p_latent, p_scales, i_page, i_slot, FP8)  # [BLOCK_T, c]
                    b_rope = widened(p_rope[i_page, i_slot])  # [BLOCK_T, r]
                    # scores
                    b_scores = b_query @ b_latent.T  # [BLOCK_H, BLOCK_T]
                    b_scores += b_query_rope @ b_rope.T
                    b_scores = scale * b_scores
                    # new maximum, rescale
                    m_new = np.maximum(m_i, b_scores.max(axis=1, initial=-np.inf))
                    m_safe = np.where(m_new == -np.inf, 0, m_new)  # a list that has shown nothing yet
                    b_rescale = np.exp(m_i - m_safe)
                    b_weights = np.exp(b_scores - m_safe[:, None])
                    m_i, l_i = m_new, l_i * b_rescale + b_weights.sum(axis=1)
                    # accumulate
                    acc = acc * b_rescale[:, None] + b_weights @ b_latent
                # store
                empty = l_i == 0
                l_safe = np.where(empty, 1, l_i)
                i_out = i_new * num_heads + i_head
                p_out[i_request, i_split, i_out] = acc / l_safe[:, None]
                p_lse[i_request, i_split, i_out] = np.where(empty, -np.inf, m_i + np.log(l_safe))
