"""Native sparse attention, decode: compressed keys, the choice of blocks, and attention over a range or over blocks.

The heads of a group share one set of keys and values, and so one choice of blocks. Keys and values of a request lie in
the order of its tokens: [tokens, groups, dim].
"""

from ledger.kernels.gpu.mla_decode import part_of
from ledger.kernels.gpu.numbers import rounded
from ledger.kernels.interpret.mode import tl, triton


@triton.jit
def compress(
    # pointers
    p_x,  # [b, t, g, d], keys or values
    p_lengths,  # [b]
    p_out,  # [b, blocks, g, d]
    # sizes
    num_blocks,
    num_groups,
    # strides
    stride_x_request,
    stride_x_token,
    stride_x_group,
    # meta-parameters
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One program a block of BLOCK tokens, STRIDE after the one before: their mean, 0 where the block is not full."""
    i_block, i_request, i_group = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    full = i_block * STRIDE + BLOCK <= tl.load(p_lengths + i_request)
    i_place, i_dim = tl.arange(0, BLOCK_L), tl.arange(0, BLOCK_D)
    # load tile
    i_token = (i_block * STRIDE + i_place).to(tl.int64)
    m_x = ((i_place < BLOCK) & full)[:, None] & (i_dim < DIM)[None, :]
    o_x = i_request * stride_x_request + i_token[:, None] * stride_x_token + i_group * stride_x_group + i_dim[None, :]
    b_x = tl.load(p_x + o_x, mask=m_x, other=0.0).to(tl.float32)
    # store
    o_out = ((i_request * num_blocks + i_block) * num_groups + i_group) * DIM + i_dim
    tl.store(p_out + o_out, rounded(tl.sum(b_x, axis=0) / BLOCK, p_out.dtype.element_ty), mask=i_dim < DIM)


@triton.jit
def block_scores(
    # pointers
    p_queries,  # [b, s, h, d]
    p_keys,  # [b, compressed keys, g, d]
    p_lse,  # [b, s, h], of the compressed branch
    p_stops,  # [b · s], compressed keys that a row sees
    p_visible,  # [b · s], selection blocks that a row sees
    p_scores,  # [b · s, g, blocks]
    # sizes
    new_tokens,
    num_groups,
    num_blocks,
    scale,
    # strides
    stride_query_request,
    stride_query_token,
    stride_query_head,
    stride_key_request,
    stride_key_token,
    stride_key_group,
    # meta-parameters
    DIM: tl.constexpr,
    HEADS: tl.constexpr,
    WIDE: tl.constexpr,
    PER: tl.constexpr,
    INITIAL: tl.constexpr,
    LOCAL: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_J: tl.constexpr,
    DOT: tl.constexpr,
):
    """One program some selection blocks, a row and a group of HEADS: the probabilities of the compressed keys that
    overlap each block, summed over the heads, times the strides of the overlap; +∞ for blocks that are forced.

    A compressed key is WIDE strides long and a selection block PER, so keys PER · j − WIDE + 1 … PER · (j + 1) − 1 meet
    block j. The probabilities come from the branch's lse, so nothing as long as the context is kept.
    """
    i_block, i_group = tl.program_id(0) * BLOCK_J + tl.arange(0, BLOCK_J), tl.program_id(2)
    i_row = tl.program_id(1).to(tl.int64)
    i_request, i_new = i_row // new_tokens, i_row % new_tokens
    stop, visible = tl.load(p_stops + i_row), tl.load(p_visible + i_row)
    i_place, i_dim = tl.arange(0, BLOCK_H), tl.arange(0, BLOCK_D)
    i_head, m_head = i_group * HEADS + i_place, i_place < HEADS
    o_query = i_request * stride_query_request + i_new * stride_query_token + i_head * stride_query_head
    m_query = m_head[:, None] & (i_dim < DIM)[None, :]
    b_query = tl.load(p_queries + o_query[:, None] + i_dim[None, :], mask=m_query, other=0.0).to(DOT)
    b_lse = tl.load(p_lse + i_row * num_groups * HEADS + i_head, mask=m_head, other=0.0)
    b_lse = tl.where(b_lse == float("-inf"), 0.0, b_lse)  # a row before the first compressed key
    b_sum = tl.zeros([BLOCK_J], tl.float32)
    for i_overlap in range(0, PER + WIDE - 1):
        # load tile
        i_key = PER * i_block - (WIDE - 1) + i_overlap
        m_key = (i_key >= 0) & (i_key < stop)
        o_key = i_request * stride_key_request + i_key.to(tl.int64) * stride_key_token + i_group * stride_key_group
        m_key_dim = m_key[:, None] & (i_dim < DIM)[None, :]
        b_key = tl.load(p_keys + o_key[:, None] + i_dim[None, :], mask=m_key_dim, other=0.0).to(DOT)
        # scores
        b_scores = tl.dot(b_query, tl.trans(b_key), input_precision="ieee")
        b_scores = tl.where(m_head[:, None] & m_key[None, :], scale * b_scores, float("-inf"))
        b_probs = tl.exp(b_scores - b_lse[:, None])
        # accumulate
        overlap = tl.minimum(tl.minimum(i_overlap + 1, PER + WIDE - 1 - i_overlap), tl.minimum(WIDE, PER))
        b_sum += overlap * tl.sum(b_probs, axis=0)
    # store
    m_forced = (i_block < INITIAL) | (i_block >= visible - LOCAL)
    b_sum = tl.where(i_block < visible, tl.where(m_forced, float("inf"), b_sum), float("-inf"))
    tl.store(p_scores + (i_row * num_groups + i_group) * num_blocks + i_block, b_sum, mask=i_block < num_blocks)


@triton.jit
def pick_blocks(
    # pointers
    p_scores,  # [b · s, g, blocks]
    p_visible,  # [b · s]
    p_blocks,  # [b · s, g, count]
    # sizes
    num_groups,
    num_blocks,
    # meta-parameters
    COUNT: tl.constexpr,
    BLOCK_J: tl.constexpr,
):
    """One program a row and a group: COUNT times the largest score that is left, the lower block where two are equal;
    −1 where no visible block is left."""
    i_row = tl.program_id(0).to(tl.int64) * num_groups + tl.program_id(1)
    visible = tl.load(p_visible + tl.program_id(0))
    # load tile
    i_block = tl.arange(0, BLOCK_J)
    b_scores = tl.load(p_scores + i_row * num_blocks + i_block, mask=i_block < visible, other=float("-inf"))
    for i_pick in range(0, COUNT):
        # new maximum
        i_best = tl.min(tl.where(b_scores == tl.max(b_scores, axis=0), i_block, BLOCK_J), axis=0)
        b_scores = tl.where(i_block == i_best, float("-inf"), b_scores)
        # store
        tl.store(p_blocks + i_row * COUNT + i_pick, tl.where(i_pick < visible, i_best, -1))


@triton.jit
def attend_group(
    # pointers
    p_queries,  # [b, s, h, d]
    p_keys,  # [b, t, g, d]
    p_values,  # [b, t, g, v]
    p_starts,  # [b · s], first token of a row's range
    p_stops,  # [b · s], the one behind the last
    p_blocks,  # [b · s, g, count], SELECTED only
    p_out,  # [b, splits, s · h, v]
    p_lse,  # [b, splits, s · h]
    # sizes
    new_tokens,
    num_groups,
    num_splits,
    count,
    scale,
    # strides
    stride_query_request,
    stride_query_token,
    stride_query_head,
    stride_key_request,
    stride_key_token,
    stride_key_group,
    stride_value_request,
    stride_value_token,
    stride_value_group,
    # meta-parameters
    DIM: tl.constexpr,
    VALUE: tl.constexpr,
    HEADS: tl.constexpr,
    SELECTED: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_T: tl.constexpr,
    DOT: tl.constexpr,
):
    """One program a row, a group of HEADS and a part of its tokens: a tile is loaded once, for all heads of the group.

    The tokens are those of a range or, with SELECTED, of a list of blocks of SELECTED tokens, −1 for none.
    """
    i_row, i_group, i_split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    i_request, i_new = i_row // new_tokens, i_row % new_tokens
    begin, behind = tl.load(p_starts + i_row), tl.load(p_stops + i_row)
    i_place, i_dim, i_value = tl.arange(0, BLOCK_H), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    i_head, m_head = i_group * HEADS + i_place, i_place < HEADS
    o_query = i_request * stride_query_request + i_new * stride_query_token + i_head * stride_query_head
    m_query = m_head[:, None] & (i_dim < DIM)[None, :]
    b_query = tl.load(p_queries + o_query[:, None] + i_dim[None, :], mask=m_query, other=0.0).to(DOT)
    p_key = p_keys + i_request * stride_key_request + i_group * stride_key_group
    p_value = p_values + i_request * stride_value_request + i_group * stride_value_group
    m_i = tl.full([BLOCK_H], float("-inf"), tl.float32)
    l_i = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_V], tl.float32)
    if SELECTED:
        TILES: tl.constexpr = (SELECTED + BLOCK_T - 1) // BLOCK_T
        places = count * TILES * BLOCK_T
    else:
        places = behind - begin
    start, stop = part_of(i_split, num_splits, places, BLOCK_T)
    for o_place in range(start, stop, BLOCK_T):
        # load tile
        if SELECTED:
            i_pick, i_tile = o_place // BLOCK_T // TILES, o_place // BLOCK_T % TILES
            i_block = tl.load(p_blocks + (i_row * num_groups + i_group) * count + i_pick)
            i_within = i_tile * BLOCK_T + tl.arange(0, BLOCK_T)
            i_token = i_block.to(tl.int64) * SELECTED + i_within
            m_token = (i_within < SELECTED) & (i_block >= 0) & (i_token < behind)
        else:
            i_token = (begin + o_place).to(tl.int64) + tl.arange(0, BLOCK_T)
            m_token = i_token < begin + stop
        m_key, m_value = m_token[:, None] & (i_dim < DIM)[None, :], m_token[:, None] & (i_value < VALUE)[None, :]
        o_token = i_token[:, None]
        b_key = tl.load(p_key + o_token * stride_key_token + i_dim[None, :], mask=m_key, other=0.0).to(DOT)
        b_value = tl.load(p_value + o_token * stride_value_token + i_value[None, :], mask=m_value, other=0.0).to(DOT)
        # scores
        b_scores = tl.dot(b_query, tl.trans(b_key), input_precision="ieee")
        b_scores = tl.where(m_token[None, :], scale * b_scores, float("-inf"))
        # new maximum, rescale
        m_new = tl.maximum(m_i, tl.max(b_scores, axis=1))
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)  # a list that has shown nothing yet
        b_rescale = tl.exp(m_i - m_safe)
        b_weights = tl.exp(b_scores - m_safe[:, None])
        m_i, l_i = m_new, l_i * b_rescale + tl.sum(b_weights, axis=1)
        # accumulate
        acc = acc * b_rescale[:, None] + tl.dot(b_weights.to(DOT), b_value, input_precision="ieee")
    # store
    empty = l_i == 0.0
    l_safe = tl.where(empty, 1.0, l_i)
    o_out = ((i_request * num_splits + i_split) * new_tokens + i_new) * num_groups * HEADS + i_head
    m_out = m_head[:, None] & (i_value < VALUE)[None, :]
    tl.store(p_out + o_out[:, None] * VALUE + i_value[None, :], acc / l_safe[:, None], mask=m_out)
    tl.store(p_lse + o_out, tl.where(empty, float("-inf"), m_i + tl.log(l_safe)), mask=m_head)
