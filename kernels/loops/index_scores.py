"""``gpu/index_scores.py`` in NumPy: the same loops, the same names."""

import numpy as np

from ledger.kernels.loops.numbers import from_e4m3


def index_scores(
    # pointers
    p_queries: np.ndarray,  # [b, s, j, d], e4m3 codes
    p_weights: np.ndarray,  # [b, s, j]
    p_codes: np.ndarray,  # [pages, page, d], e4m3 codes
    p_scales: np.ndarray,  # [pages, page]
    p_block_table: np.ndarray,  # [b, entries]
    p_lengths: np.ndarray,  # [b]
    p_scores: np.ndarray,  # [b, s, width]
    # sizes
    new_tokens: int,
    width: int,
    page_size: int,
    # strides: NumPy's own
    # meta-parameters
    HEADS: int,
    BLOCK_H: int = 64,
    BLOCK_T: int = 64,
) -> None:
    """One program a block of a request's keys: loaded once, for all heads of all its new tokens. Tails are −∞."""
    for o_token in range(0, width, BLOCK_T):
        for i_request, length in enumerate(p_lengths.tolist()):
            # load tile
            i_token = np.arange(o_token, max(o_token, min(o_token + BLOCK_T, length)))  # [BLOCK_T]
            i_page = p_block_table[i_request, i_token // page_size]
            i_slot = i_token % page_size
            b_key = from_e4m3(p_codes[i_page, i_slot])  # [BLOCK_T, d]
            b_scale = p_scales[i_page, i_slot]  # [BLOCK_T]
            for i_new in range(new_tokens):
                seen = length - (new_tokens - 1 - i_new)
                acc = np.zeros(len(i_token), np.float32)  # [BLOCK_T]
                # a block that the row does not see costs nothing
                for o_head in range(0, HEADS if o_token < seen else 0, BLOCK_H):
                    i_head = slice(o_head, min(o_head + BLOCK_H, HEADS))
                    b_query = from_e4m3(p_queries[i_request, i_new, i_head])  # [BLOCK_H, d]
                    b_weight = p_weights[i_request, i_new, i_head]  # [BLOCK_H]
                    # scores
                    b_products = b_query @ b_key.T  # [BLOCK_H, BLOCK_T]
                    # accumulate
                    acc += (b_weight[:, None] * np.maximum(b_products, 0)).sum(axis=0)
                # store
                p_scores[i_request, i_new, o_token : o_token + BLOCK_T] = -np.inf
                p_scores[i_request, i_new, i_token] = np.where(i_token < seen, acc * b_scale, np.float32(-np.inf))
