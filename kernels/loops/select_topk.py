"""``gpu/select_topk.py`` in NumPy: the same loops, the same names. Keys are uint32, which compare as floats do."""

import numpy as np

from ledger.kernels.loops.mla_decode_paged import part_of


def ordered(b_x: np.ndarray) -> np.ndarray:
    """float32 to uint32 that compares as it does: all bits flipped below zero, the sign alone above; −0 as +0."""
    bits = b_x.view(np.uint32)
    bits = np.where(bits == 0x80000000, np.uint32(0), bits)
    return np.where(bits >= 0x80000000, bits ^ np.uint32(0xFFFFFFFF), bits | np.uint32(0x80000000))


def narrowed(b_counts: np.ndarray, topk: int) -> tuple[int, int, np.ndarray, np.ndarray]:
    """What some passes have told of a row's topk-th largest key, from their counts (passes, parts, 256): its digits so
    far (the others 0), how many of the keys that have them are among the largest; and of each part, (parts,), the keys
    above them and the keys that have them."""
    threshold, need = 0, topk
    b_above = b_equal = np.zeros(b_counts.shape[1], np.int64)
    for i_pass, b_pass in enumerate(b_counts):
        b_reach = b_pass.sum(axis=0)[::-1].cumsum()[::-1]  # keys with this digit or a larger one
        digit = int((b_reach >= need).sum()) - 1
        b_here = b_pass[:, digit + 1 :].sum(axis=1)
        b_equal = b_pass[:, digit]
        b_above = b_above + b_here
        need -= int(b_here.sum())
        threshold |= digit << (24 - 8 * i_pass)
    return threshold, need, b_above, b_equal


def count_digits(
    # pointers
    p_scores: np.ndarray,  # [rows, width]
    p_seen: np.ndarray,  # [rows]
    p_counts: np.ndarray,  # [rows, 4, parts, 256]
    # sizes
    topk: int,
    parts: int,
    i_pass: int,
    # strides: NumPy's own
    # meta-parameters
    BLOCK_T: int = 2048,
) -> None:
    """One program a row and a part of it: count the digit of this pass among the keys that agree so far."""
    for i_row, seen in enumerate(p_seen.tolist()):
        for i_part in range(parts):
            if seen > topk:
                threshold, _, _, _ = narrowed(p_counts[i_row, :i_pass], topk)
                start, stop = part_of(i_part, parts, seen, BLOCK_T)
                shift = 24 - 8 * i_pass
                b_counts = np.zeros(256, np.int32)
                for o_token in range(start, stop, BLOCK_T):
                    # load tile
                    b_keys = ordered(p_scores[i_row, o_token : min(o_token + BLOCK_T, stop)])  # [BLOCK_T]
                    # accumulate
                    m_agrees = ((b_keys ^ np.uint32(threshold)) >> shift >> 8) == 0
                    b_counts += np.bincount((b_keys[m_agrees] >> shift) & 255, minlength=256).astype(np.int32)
                # store
                p_counts[i_row, i_pass, i_part] = b_counts


def pick_top(
    # pointers
    p_scores: np.ndarray,  # [rows, width]
    p_seen: np.ndarray,  # [rows]
    p_counts: np.ndarray,  # [rows, 4, parts, 256]
    p_indices: np.ndarray,  # [rows, topk]
    # sizes
    topk: int,
    parts: int,
    # strides: NumPy's own
    # meta-parameters
    BLOCK_T: int = 2048,
) -> None:
    """One program a row and a part of it: write the indices of its share of the largest, in rising order, −1 last.

    The counts say how many the parts before it write, so each knows where its own begin. Of equals the first stay.
    """
    for i_row, seen in enumerate(p_seen.tolist()):
        for i_part in range(parts):
            if seen > topk:
                threshold, need, b_above, b_equal = narrowed(p_counts[i_row], topk)
                equals = int(b_equal[:i_part].sum())
                o_place = int(b_above[:i_part].sum()) + min(equals, need)
                start, stop = part_of(i_part, parts, seen, BLOCK_T)
                for o_token in range(start, stop, BLOCK_T):
                    # load tile
                    i_token = np.arange(o_token, min(o_token + BLOCK_T, stop))  # [BLOCK_T]
                    b_keys = ordered(p_scores[i_row, i_token])
                    # accumulate
                    m_equal = b_keys == threshold
                    i_equal = equals + m_equal.cumsum()  # the first is 1
                    m_taken = (b_keys > threshold) | (m_equal & (i_equal <= need))
                    i_place = o_place + m_taken.cumsum() - 1
                    equals += int(m_equal.sum())
                    o_place += int(m_taken.sum())
                    # store
                    p_indices[i_row, i_place[m_taken]] = i_token[m_taken]
            else:
                for o_place in range(i_part * BLOCK_T, topk, parts * BLOCK_T):
                    # store
                    i_place = np.arange(o_place, min(o_place + BLOCK_T, topk))
                    p_indices[i_row, i_place] = np.where(i_place < seen, i_place, -1)
