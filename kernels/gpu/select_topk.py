"""The topk largest of each row of scores, exactly, by four radix passes: no sort, and no order among the chosen.

A float32 becomes an unsigned integer that sorts as it does. Each pass looks at eight bits of it, from the top: it
counts the 256 digits among the keys that agree with what is known of the topk-th largest, and the counts tell its next
digit. After four passes that key is known, and a last reading picks what lies above it and as many equals as fit.
"""

from ledger.kernels.gpu.mla_decode import part_of
from ledger.kernels.interpret.mode import tl, triton


@triton.jit
def ordered(b_x):
    """float32 to uint32 that compares as it does: all bits flipped below zero, the sign alone above; −0 as +0."""
    bits = b_x.to(tl.uint32, bitcast=True)
    bits = tl.where(bits == 0x80000000, 0, bits)
    return tl.where(bits >= 0x80000000, bits ^ 0xFFFFFFFF, bits | 0x80000000)


@triton.jit
def narrowed(p_counts, o_row, topk, passes, parts, PARTS: tl.constexpr):
    """What ``passes`` have told of a row's topk-th largest key: its digits so far (the others 0), how many of the keys
    that have them are among the largest; and of each part, [PARTS], the keys above them and the keys that have them."""
    i_part, i_digit = tl.arange(0, PARTS), tl.arange(0, 256)
    o_count = i_part[:, None] * 256 + i_digit[None, :]
    threshold = tl.full([], 0, tl.uint32)
    need = tl.full([], 0, tl.int32) + topk
    b_above, b_equal = tl.zeros([PARTS], tl.int32), tl.zeros([PARTS], tl.int32)
    for i_pass in range(0, passes):
        o_pass = (o_row * 4 + i_pass) * parts * 256
        b_counts = tl.load(p_counts + o_pass + o_count, mask=(i_part < parts)[:, None], other=0)  # [PARTS, 256]
        b_all = tl.sum(b_counts, axis=0)
        b_reach = tl.sum(b_all, axis=0) - tl.cumsum(b_all, axis=0) + b_all  # keys with this digit or a larger one
        digit = tl.sum((b_reach >= need).to(tl.int32), axis=0) - 1
        b_here = tl.sum(tl.where(i_digit[None, :] > digit, b_counts, 0), axis=1)
        b_equal = tl.sum(tl.where(i_digit[None, :] == digit, b_counts, 0), axis=1)
        b_above += b_here
        need -= tl.sum(b_here, axis=0)
        threshold |= digit.to(tl.uint32) << (24 - 8 * i_pass)
    return threshold, need, b_above, b_equal


@triton.jit(do_not_specialize=["i_pass"])
def count_digits(
    # pointers
    p_scores,  # [rows, width]
    p_seen,  # [rows]
    p_counts,  # [rows, 4, parts, 256]
    # sizes
    topk,
    parts,
    i_pass,
    # strides
    stride_row,
    # meta-parameters
    PARTS: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """One program a row and a part of it: count the digit of this pass among the keys that agree so far."""
    i_row, i_part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    seen = tl.load(p_seen + i_row)
    if seen > topk:
        threshold, _, _, _ = narrowed(p_counts, i_row, topk, i_pass, parts, PARTS)
        start, stop = part_of(i_part, parts, seen, BLOCK_T)
        shift = 24 - 8 * i_pass
        b_counts = tl.zeros([256], tl.int32)
        for o_token in range(start, stop, BLOCK_T):
            # load tile
            i_token = o_token + tl.arange(0, BLOCK_T)
            m_token = i_token < stop
            b_keys = ordered(tl.load(p_scores + i_row * stride_row + i_token, mask=m_token, other=0.0))
            # accumulate
            m_agrees = m_token & (((b_keys ^ threshold) >> shift >> 8) == 0)
            b_counts += tl.histogram(((b_keys >> shift) & 255).to(tl.int32), 256, mask=m_agrees)
        # store
        o_pass = ((i_row * 4 + i_pass) * parts + i_part) * 256
        tl.store(p_counts + o_pass + tl.arange(0, 256), b_counts)


@triton.jit
def pick_top(
    # pointers
    p_scores,  # [rows, width]
    p_seen,  # [rows]
    p_counts,  # [rows, 4, parts, 256]
    p_indices,  # [rows, topk]
    # sizes
    topk,
    parts,
    # strides
    stride_row,
    # meta-parameters
    PARTS: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """One program a row and a part of it: write the indices of its share of the largest, in rising order, −1 last.

    The counts say how many the parts before it write, so each knows where its own begin. Of equals the first stay.
    """
    i_row, i_part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    seen = tl.load(p_seen + i_row)
    p_row = p_indices + i_row * topk
    if seen > topk:
        threshold, need, b_above, b_equal = narrowed(p_counts, i_row, topk, 4, parts, PARTS)
        m_before = tl.arange(0, PARTS) < i_part
        equals = tl.sum(tl.where(m_before, b_equal, 0), axis=0)
        o_place = tl.sum(tl.where(m_before, b_above, 0), axis=0) + tl.minimum(equals, need)
        start, stop = part_of(i_part, parts, seen, BLOCK_T)
        for o_token in range(start, stop, BLOCK_T):
            # load tile
            i_token = o_token + tl.arange(0, BLOCK_T)
            m_token = i_token < stop
            b_keys = ordered(tl.load(p_scores + i_row * stride_row + i_token, mask=m_token, other=0.0))
            # accumulate
            m_equal = m_token & (b_keys == threshold)
            i_equal = equals + tl.cumsum(m_equal.to(tl.int32), axis=0)  # the first is 1
            m_taken = (m_token & (b_keys > threshold)) | (m_equal & (i_equal <= need))
            i_place = o_place + tl.cumsum(m_taken.to(tl.int32), axis=0) - 1
            equals += tl.sum(m_equal.to(tl.int32), axis=0)
            o_place += tl.sum(m_taken.to(tl.int32), axis=0)
            # store
            tl.store(p_row + i_place, i_token, mask=m_taken)
    else:
        for o_place in range(i_part * BLOCK_T, topk, parts * BLOCK_T):
            # store
            i_place = o_place + tl.arange(0, BLOCK_T)
            tl.store(p_row + i_place, tl.where(i_place < seen, i_place, -1), mask=i_place < topk)
