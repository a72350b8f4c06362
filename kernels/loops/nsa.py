"""``gpu/nsa.py`` in NumPy: the same loops, the same names. bf16 lies in arrays of uint16.

The merge of the splits is ``combine`` of ``mla_decode_paged.py``.
"""

import numpy as np

from ledger.kernels.loops.mla_decode_paged import part_of
from ledger.kernels.loops.numbers import rounded, widened


def compress(
    # pointers
    p_x: np.ndarray,  # [b, t, g, d], keys or values
    p_lengths: np.ndarray,  # [b]
    p_out: np.ndarray,  # [b, blocks, g, d]
    # sizes
    num_blocks: int,
    num_groups: int,
    # strides: NumPy's own
    # meta-parameters
    BLOCK: int = 32,
    STRIDE: int = 16,
) -> None:
    """One program a block of BLOCK tokens, STRIDE after the one before: their mean, 0 where the block is not full."""
    for i_block in range(num_blocks):
        for i_request, length in enumerate(p_lengths.tolist()):
            for i_group in range(num_groups):
                full = i_block * STRIDE + BLOCK <= length
                # load tile
                i_token = i_block * STRIDE + np.arange(BLOCK if full else 0)
                b_x = widened(p_x[i_request, i_token, i_group])  # [BLOCK, d]
                # store
                p_out[i_request, i_block, i_group] = rounded(b_x.sum(axis=0) / np.float32(BLOCK), p_out.dtype)


def block_scores(
    # pointers
    p_queries: np.ndarray,  # [b, s, h, d]
    p_keys: np.ndarray,  # [b, compressed keys, g, d]
    p_lse: np.ndarray,  # [b, s, h], of the compressed branch
    p_stops: np.ndarray,  # [b · s], compressed keys that a row sees
    p_visible: np.ndarray,  # [b · s], selection blocks that a row sees
    p_scores: np.ndarray,  # [b · s, g, blocks]
    # sizes
    new_tokens: int,
    num_groups: int,
    num_blocks: int,
    scale: float,
    # strides: NumPy's own
    # meta-parameters
    HEADS: int,
    WIDE: int = 2,
    PER: int = 4,
    INITIAL: int = 1,
    LOCAL: int = 2,
    BLOCK_J: int = 32,
) -> None:
    """One program some selection blocks, a row and a group of HEADS: the probabilities of the compressed keys that
    overlap each block, summed over the heads, times the strides of the overlap; +∞ for blocks that are forced.

    A compressed key is WIDE strides long and a selection block PER, so keys PER · j − WIDE + 1 … PER · (j + 1) − 1 meet
    block j. The probabilities come from the branch's lse, so nothing as long as the context is kept.
    """
    for o_block in range(0, num_blocks, BLOCK_J):
        for i_row, (stop, visible) in enumerate(zip(p_stops.tolist(), p_visible.tolist(), strict=True)):
            for i_group in range(num_groups):
                i_block = np.arange(o_block, min(o_block + BLOCK_J, num_blocks))  # [BLOCK_J]
                i_request, i_new = divmod(i_row, new_tokens)
                i_head = slice(i_group * HEADS, (i_group + 1) * HEADS)
                b_query = widened(p_queries[i_request, i_new, i_head])  # [HEADS, d]
                b_lse = p_lse[i_request, i_new, i_head]  # [HEADS]
                b_lse = np.where(b_lse == -np.inf, 0, b_lse)  # a row before the first compressed key
                b_sum = np.zeros(len(i_block), np.float32)  # [BLOCK_J]
                for i_overlap in range(PER + WIDE - 1):
                    # load tile
                    i_key = PER * i_block - (WIDE - 1) + i_overlap
                    m_key = (i_key >= 0) & (i_key < stop)
                    b_key = widened(p_keys[i_request, i_key[m_key], i_group])  # [BLOCK_J, d]
                    # scores
                    b_scores = scale * (b_query @ b_key.T)  # [HEADS, BLOCK_J]
                    b_probs = np.exp(b_scores - b_lse[:, None])
                    # accumulate
                    overlap = min(i_overlap + 1, PER + WIDE - 1 - i_overlap, WIDE, PER)
                    b_sum[m_key] += np.float32(overlap) * b_probs.sum(axis=0)
                # store
                m_forced = (i_block < INITIAL) | (i_block >= visible - LOCAL)
                b_sum = np.where(i_block < visible, np.where(m_forced, np.inf, b_sum), -np.inf)
                p_scores[i_row, i_group, i_block] = b_sum


def pick_blocks(
    # pointers
    p_scores: np.ndarray,  # [b · s, g, blocks]
    p_visible: np.ndarray,  # [b · s]
    p_blocks: np.ndarray,  # [b · s, g, count]
    # sizes
    num_groups: int,
    # strides: NumPy's own
    # meta-parameters
    COUNT: int = 16,
) -> None:
    """One program a row and a group: COUNT times the largest score that is left, the lower block where two are equal;
    −1 where no visible block is left."""
    for i_row, visible in enumerate(p_visible.tolist()):
        for i_group in range(num_groups):
            # load tile
            b_scores = p_scores[i_row, i_group, :visible].copy()  # [blocks]
            for i_pick in range(COUNT):
                # new maximum
                i_best = int(b_scores.argmax()) if i_pick < visible else -1
                # store
                p_blocks[i_row, i_group, i_pick] = i_best
                b_scores[i_best : i_best + 1] = -np.inf


def attend_group(
    # pointers
    p_queries: np.ndarray,  # [b, s, h, d]
    p_keys: np.ndarray,  # [b, t, g, d]
    p_values: np.ndarray,  # [b, t, g, v]
    p_starts: np.ndarray,  # [b · s], first token of a row's range
    p_stops: np.ndarray,  # [b · s], the one behind the last
    p_blocks: np.ndarray,  # [b · s, g, count], SELECTED only
    p_out: np.ndarray,  # [b, splits, s · h, v]
    p_lse: np.ndarray,  # [b, splits, s · h]
    # sizes
    new_tokens: int,
    num_groups: int,
    num_splits: int,
    count: int,
    scale: float,
    # strides: NumPy's own
    # meta-parameters
    VALUE: int,
    HEADS: int,
    SELECTED: int = 0,
    BLOCK_T: int = 64,
) -> None:
    """One program a row, a group of HEADS and a part of its tokens: a tile is loaded once, for all heads of the group.

    The tokens are those of a range or, with SELECTED, of a list of blocks of SELECTED tokens, −1 for none.
    """
    for i_row, (begin, behind) in enumerate(zip(p_starts.tolist(), p_stops.tolist(), strict=True)):
        for i_group in range(num_groups):
            for i_split in range(num_splits):
                i_request, i_new = divmod(i_row, new_tokens)
                i_head = np.arange(i_group * HEADS, (i_group + 1) * HEADS)  # [HEADS]
                b_query = widened(p_queries[i_request, i_new, i_head])  # [HEADS, d]
                m_i = np.full(HEADS, -np.inf, np.float32)
                l_i = np.zeros(HEADS, np.float32)
                acc = np.zeros((HEADS, VALUE), np.float32)  # [HEADS, v]
                TILES = -(-SELECTED // BLOCK_T)
                places = count * TILES * BLOCK_T if SELECTED else behind - begin
                start, stop = part_of(i_split, num_splits, places, BLOCK_T)
                for o_place in range(start, stop, BLOCK_T):
                    # load tile
                    if SELECTED:
                        i_pick, i_tile = divmod(o_place // BLOCK_T, TILES)
                        i_block = int(p_blocks[i_row, i_group, i_pick])
                        i_within = np.arange(i_tile * BLOCK_T, min((i_tile + 1) * BLOCK_T, SELECTED))
                        i_token = i_block * SELECTED + i_within
                        i_token = i_token[(i_block >= 0) & (i_token < behind)]  # [BLOCK_T]
                    else:
                        i_token = np.arange(begin + o_place, min(begin + o_place + BLOCK_T, begin + stop))  # [BLOCK_T]
                    b_key = widened(p_keys[i_request, i_token, i_group])  # [BLOCK_T, d]
                    b_value = widened(p_values[i_request, i_token, i_group])  # [BLOCK_T, v]
                    # scores
                    b_scores = scale * (b_query @ b_key.T)  # [HEADS, BLOCK_T]
                    # new maximum, rescale
                    m_new = np.maximum(m_i, b_scores.max(axis=1, initial=-np.inf))
                    m_safe = np.where(m_new == -np.inf, 0, m_new)  # a list that has shown nothing yet
                    b_rescale = np.exp(m_i - m_safe)
                    b_weights = np.exp(b_scores - m_safe[:, None])
                    m_i, l_i = m_new, l_i * b_rescale + b_weights.sum(axis=1)
                    # accumulate
                    acc = acc * b_rescale[:, None] + b_weights @ b_value
                # store
                empty = l_i == 0
                l_safe = np.where(empty, 1, l_i)
                i_out = i_new * num_groups * HEADS + i_head
                p_out[i_request, i_split, i_out] = acc / l_safe[:, None]
                p_lse[i_request, i_split, i_out] = np.where(empty, -np.inf, m_i + np.log(l_safe))
