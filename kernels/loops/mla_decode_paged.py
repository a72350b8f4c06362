"""``gpu/mla_decode.py`` in NumPy: the ladder of decode kernels over a paged cache, and the combine.

The same loops, the same names. A launch's grid is the outer loops. What the lanes of a program do is one array, cut off
where a kernel masks. bf16 lies in arrays of uint16.
"""

import numpy as np

from ledger.kernels.loops.numbers import from_e4m3, rounded, widened

#: Latents that share a scale in an FP8 cache.
TILE = 128


def part_of(i_split: int, num_splits: int, length: int, BLOCK_T: int) -> tuple[int, int]:
    """First token of a split and the one behind its last: whole blocks, evenly, larger parts first, empty ones last."""
    least, more = divmod(-(-length // BLOCK_T), num_splits)
    first = i_split * least + min(i_split, more)
    last = first + least + (i_split < more)
    return min(first * BLOCK_T, length), min(last * BLOCK_T, length)


def load_latents(
    p_latent: np.ndarray, p_scales: np.ndarray, i_page: np.ndarray, i_slot: np.ndarray, FP8: bool
) -> np.ndarray:
    """Latents of a tile of tokens, (BLOCK_T, c), in float32; where FP8 from codes with a scale for each 128 of them."""
    b_latent = p_latent[i_page, i_slot]
    if not FP8:
        return widened(b_latent)
    i_tile = np.arange(b_latent.shape[1]) // TILE  # [c]
    return from_e4m3(b_latent) * p_scales[i_page, i_slot][:, i_tile]


def one_head(
    # pointers
    p_queries: np.ndarray,  # [b, s, h, c + r]
    p_latent: np.ndarray,  # [pages, page, c], codes where FP8
    p_scales: np.ndarray,  # [pages, page, c / 128], FP8 only
    p_rope: np.ndarray,  # [pages, page, r]
    p_block_table: np.ndarray,  # [b, entries]
    p_lengths: np.ndarray,  # [b]
    p_out: np.ndarray,  # [b, splits, s · h, c]
    p_lse: np.ndarray,  # [b, splits, s · h]
    # sizes
    num_heads: int,
    new_tokens: int,
    num_splits: int,
    page_size: int,
    scale: float,
    # strides: NumPy's own
    # meta-parameters
    LATENT: int,
    BLOCK_H: int = 1,
    BLOCK_T: int = 16,
    FP8: bool = False,
) -> None:
    """One program a head and query row: each reads every entry for itself. BLOCK_H and splits are not used."""
    for i_row in range(num_heads * new_tokens):
        for i_request, length in enumerate(p_lengths.tolist()):
            i_token_row, i_head = divmod(i_row, num_heads)
            seen = length - (new_tokens - 1 - i_token_row)
            b_query = widened(p_queries[i_request, i_token_row, i_head, :LATENT])  # [c]
            b_query_rope = widened(p_queries[i_request, i_token_row, i_head, LATENT:])  # [r]
            m_i = np.float32(-np.inf)
            l_i = np.float32(0)
            acc = np.zeros(LATENT, np.float32)  # [c]
            for o_token in range(0, seen, BLOCK_T):
                # load tile
                i_token = np.arange(o_token, min(o_token + BLOCK_T, seen))  # [BLOCK_T]
                i_page = p_block_table[i_request, i_token // page_size]
                i_slot = i_token % page_size
                b_latent = load_latents(p_latent, p_scales, i_page, i_slot, FP8)  # [BLOCK_T, c]
                b_rope = widened(p_rope[i_page, i_slot])  # [BLOCK_T, r]
                # scores
                b_scores = np.float32(scale) * (b_latent @ b_query + b_rope @ b_query_rope)  # [BLOCK_T]
                # new maximum, rescale
                m_new = np.maximum(m_i, b_scores.max())
                b_rescale = np.exp(m_i - m_new)
                b_weights = np.exp(b_scores - m_new)
                m_i, l_i = m_new, l_i * b_rescale + b_weights.sum()
                # accumulate
                acc = acc * b_rescale + b_weights @ b_latent
            # store
            empty = seen <= 0
            p_out[i_request, 0, i_row] = 0 if empty else acc / l_i
            p_lse[i_request, 0, i_row] = -np.inf if empty else m_i + np.log(l_i)


def shared_tile(
    # pointers
    p_queries: np.ndarray,  # [b, s, h, c + r]
    p_latent: np.ndarray,  # [pages, page, c], codes where FP8
    p_scales: np.ndarray,  # [pages, page, c / 128], FP8 only
    p_rope: np.ndarray,  # [pages, page, r]
    p_block_table: np.ndarray,  # [b, entries]
    p_lengths: np.ndarray,  # [b]
    p_out: np.ndarray,  # [b, splits, s · h, c]
    p_lse: np.ndarray,  # [b, splits, s · h]
    # sizes
    num_heads: int,
    new_tokens: int,
    num_splits: int,
    page_size: int,
    scale: float,
    # strides: NumPy's own
    # meta-parameters
    LATENT: int,
    BLOCK_H: int = 16,
    BLOCK_T: int = 32,
    FP8: bool = False,
) -> None:
    """One program a block of rows (heads of one or more new tokens) and a part of the cache: a tile serves all rows."""
    num_rows = num_heads * new_tokens
    for o_row in range(0, num_rows, BLOCK_H):
        for i_request, length in enumerate(p_lengths.tolist()):
            for i_split in range(num_splits):
                i_row = np.arange(o_row, min(o_row + BLOCK_H, num_rows))  # [BLOCK_H]
                i_token_row, i_head = i_row // num_heads, i_row % num_heads
                seen = length - (new_tokens - 1 - i_token_row)  # [BLOCK_H]
                start, stop = part_of(i_split, num_splits, length, BLOCK_T)
                b_query = widened(p_queries[i_request, i_token_row, i_head, :LATENT])  # [BLOCK_H, c]
                b_query_rope = widened(p_queries[i_request, i_token_row, i_head, LATENT:])  # [BLOCK_H, r]
                m_i = np.full(len(i_row), -np.inf, np.float32)
                l_i = np.zeros(len(i_row), np.float32)
                acc = np.zeros((len(i_row), LATENT), np.float32)  # [BLOCK_H, c]
                for o_token in range(start, stop, BLOCK_T):
                    # load tile
                    i_token = np.arange(o_token, min(o_token + BLOCK_T, stop))  # [BLOCK_T]
                    i_page = p_block_table[i_request, i_token // page_size]
                    i_slot = i_token % page_size
                    b_latent = load_latents(p_latent, p_scales, i_page, i_slot, FP8)  # [BLOCK_T, c]
                    b_rope = widened(p_rope[i_page, i_slot])  # [BLOCK_T, r]
                    # scores
                    b_scores = b_query @ b_latent.T  # [BLOCK_H, BLOCK_T]
                    b_scores += b_query_rope @ b_rope.T
                    b_scores = np.where(i_token < seen[:, None], np.float32(scale) * b_scores, np.float32(-np.inf))
                    # new maximum, rescale
                    m_new = np.maximum(m_i, b_scores.max(axis=1))
                    m_safe = np.where(m_new == -np.inf, 0, m_new)  # a row that sees nothing of this tile yet
                    b_rescale = np.exp(m_i - m_safe)
                    b_weights = np.exp(b_scores - m_safe[:, None])
                    m_i, l_i = m_new, l_i * b_rescale + b_weights.sum(axis=1)
                    # accumulate
                    acc = acc * b_rescale[:, None] + b_weights @ b_latent
                # store
                empty = l_i == 0
                l_safe = np.where(empty, 1, l_i)
                p_out[i_request, i_split, i_row] = acc / l_safe[:, None]
                p_lse[i_request, i_split, i_row] = np.where(empty, -np.inf, m_i + np.log(l_safe))


def weights_of_splits(b_lse: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the splits of each row weigh together: the largest lse (0 where all are empty) and Σ exp(lse − largest).

    b_lse (splits, rows) -> (rows,) and (rows,).
    """
    m_i = np.full(b_lse.shape[1], -np.inf, np.float32)
    for i_split in range(len(b_lse)):
        m_i = np.maximum(m_i, b_lse[i_split])
    m_safe = np.where(m_i == -np.inf, 0, m_i)
    l_i = np.zeros(b_lse.shape[1], b_lse.dtype)
    for i_split in range(len(b_lse)):
        l_i += np.exp(b_lse[i_split] - m_safe)
    return m_safe, l_i


def merged(b_partials: np.ndarray, b_lse: np.ndarray, m_safe: np.ndarray, l_i: np.ndarray) -> np.ndarray:
    """Some latents of each row, merged from its splits; an empty split is not read.

    b_partials (splits, rows, latents), b_lse (splits, rows) -> (rows, latents).
    """
    acc = np.zeros(b_partials.shape[1:], b_partials.dtype)
    for i_split in range(len(b_lse)):
        b_weight = np.exp(b_lse[i_split] - m_safe)  # [rows]
        mask = b_weight > 0
        acc[mask] += b_weight[mask, None] * b_partials[i_split, mask]
    return acc / np.where(l_i == 0, 1, l_i)[:, None]


def combine(
    # pointers
    p_partials: np.ndarray,  # [b, splits, s · h, c]
    p_lses: np.ndarray,  # [b, splits, s · h]
    p_out: np.ndarray,  # [b, s · h, c]
    p_lse: np.ndarray,  # [b, s · h]
    # sizes
    num_rows: int,
    # strides: NumPy's own
    # meta-parameters
    BLOCK_H: int = 16,
) -> None:
    """Merge the splits of a block of rows by their lse."""
    for o_row in range(0, num_rows, BLOCK_H):
        for i_request in range(len(p_lses)):
            i_row = slice(o_row, min(o_row + BLOCK_H, num_rows))
            b_lse = p_lses[i_request, :, i_row]
            m_safe, l_i = weights_of_splits(b_lse)
            b_out = merged(p_partials[i_request, :, i_row], b_lse, m_safe, l_i)
            # store
            p_out[i_request, i_row] = rounded(b_out, p_out.dtype)
            empty = l_i == 0
            p_lse[i_request, i_row] = np.where(empty, -np.inf, m_safe + np.log(np.where(empty, 1, l_i)))
