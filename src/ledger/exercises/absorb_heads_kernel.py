"""Chapter 7: the absorb of every head, as a Triton kernel."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import normal, rewritten, whole
from ledger.judge.launchers.blocks import BLOCK_N, BLOCK_S
from ledger.reference import mla

KERNEL = """\
def absorb_heads_kernel(
    p_q_nope, p_w_kc, p_queries, new_tokens,
    stride_nope_token, stride_nope_head, stride_weight_head, stride_weight_nope, stride_out_token, stride_out_head,
    NOPE: tl.constexpr, LATENT: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, DOT: tl.constexpr,
):
    i_token, i_head = tl.program_id(0) * BLOCK_S + tl.arange(0, BLOCK_S), tl.program_id(1)
    i_column = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    m_token, m_column = i_token < new_tokens, i_column < LATENT
    acc = tl.zeros([BLOCK_S, BLOCK_C], tl.float32)
    for o_nope in range(0, NOPE, BLOCK_N):
        i_nope = o_nope + tl.arange(0, BLOCK_N)
        m_nope = i_nope < NOPE
        o_query = i_token[:, None] * stride_nope_token + i_head * stride_nope_head + i_nope[None, :]
        b_query = tl.load(p_q_nope + o_query, mask=m_token[:, None] & m_nope[None, :], other=0.0).to(DOT)
        o_weight = i_head * stride_weight_head + i_nope[:, None] * stride_weight_nope + i_column[None, :]
        b_weight = tl.load(p_w_kc + o_weight, mask=m_nope[:, None] & m_column[None, :], other=0.0).to(DOT)
        acc += tl.dot(b_query, b_weight, input_precision="ieee")
    o_out = i_token[:, None] * stride_out_token + i_head * stride_out_head + i_column[None, :]
    tl.store(p_queries + o_out, acc, mask=m_token[:, None] & m_column[None, :])
"""


def make(rng, dtype, new_tokens, num_heads, nope_dim, rope_dim, latent_dim, values=normal):
    return {
        "q_nope": values(rng, dtype, new_tokens, num_heads, nope_dim),
        "q_rope": values(rng, dtype, new_tokens, num_heads, rope_dim),
        "w_kc": values(rng, dtype, num_heads, nope_dim, latent_dim),
    }


def make_whole(rng, dtype, **dims):
    return make(rng, dtype, **dims, values=whole)


def oracle(q_nope, q_rope, w_kc):
    """The queries, and the bytes of w_kc, which each block of tokens loads once."""
    return queries_of(q_nope, q_rope, w_kc), -(-len(q_nope) // BLOCK_S) * w_kc.nbytes


def queries_of(q_nope, q_rope, w_kc):
    """The queries by way of float64."""
    absorbed = mla.absorb_heads(q_nope.astype(np.float64), w_kc.astype(np.float64))
    return np.concatenate([absorbed, q_rope], axis=-1).astype(q_nope.dtype)


def last_block_alone(q_nope, q_rope, w_kc):
    """What is left where each block's product replaces the sum of those before."""
    first = (q_nope.shape[2] - 1) // BLOCK_N * BLOCK_N
    if not first:
        raise ValueError("one block holds the whole sum")
    return queries_of(q_nope[..., first:], q_rope, w_kc[:, first:]), oracle(q_nope, q_rope, w_kc)[1]


def first_head_for_all(q_nope, q_rope, w_kc):
    return oracle(q_nope, q_rope, np.repeat(w_kc[:1], len(w_kc), axis=0))


def weight_once_a_token(q_nope, q_rope, w_kc):
    """The right queries, from a weight that every token reads for itself."""
    return queries_of(q_nope, q_rope, w_kc), len(q_nope) * w_kc.nbytes


_WEIGHT = "        b_weight = tl.load(p_w_kc + o_weight, mask=m_nope[:, None] & m_column[None, :], other=0.0).to(DOT)\n"


def mutant(name, because, changes, **more):
    return Mutant(rewritten(KERNEL, name, changes), because, **more)


EXERCISE = Exercise(
    id="absorb_heads_kernel",
    chapter=7,
    order=6,
    title="the absorb as a kernel",
    checks="each program's sum over blocks of nope, and what it reads",
    points=4,
    difficulty=3,
    minutes=25,
    make=make,
    oracle=oracle,
    returns=("queries", "bytes of w_kc loaded"),
    needs=("torch", "triton"),
    case_seconds=6.0,  # twenty times what the slowest takes
    launcher="kernels.absorb_heads",
    cases=(
        Case(
            "one block of everything",
            {"new_tokens": 16, "num_heads": 1, "nope_dim": 16, "rope_dim": 2, "latent_dim": 16},
            dtype="float32",
            make=make_whole,
        ),
        Case(
            "two blocks of nope",
            {"new_tokens": 16, "num_heads": 2, "nope_dim": 32, "rope_dim": 4, "latent_dim": 64},
            dtype="float32",
        ),
        Case(
            "nothing a multiple of its block",
            {"new_tokens": 5, "num_heads": 3, "nope_dim": 21, "rope_dim": 6, "latent_dim": 37},
            dtype="float32",
        ),
        Case(
            "two blocks of tokens, nope of one",
            {"new_tokens": 19, "num_heads": 2, "nope_dim": 1, "rope_dim": 2, "latent_dim": 70},
            dtype="float32",
        ),
        Case(
            "one new token, float16",
            {"new_tokens": 1, "num_heads": 4, "nope_dim": 40, "rope_dim": 8, "latent_dim": 96},
            dtype="float16",
        ),
        Case(
            "DeepSeek-V3 widths, two heads",
            {"new_tokens": 3, "num_heads": 2, "nope_dim": 128, "rope_dim": 64, "latent_dim": 512},
            dtype="float32",
        ),
    ),
    hints=(
        "One turn of the loop multiplies a block of features: (BLOCK_S, BLOCK_N) of q_nope by (BLOCK_N, BLOCK_C) of "
        "w_kc. Which numbers of each do you need, and where do they lie?",
        "i_nope is o_nope and the next BLOCK_N - 1 features; those from NOPE on are not there. The axis that runs down "
        "a tile gets [:, None], the one that runs across it [None, :], in the offsets and in the mask alike.",
        "Two loads and a product that is added up:\n\n"
        "    b_query = tl.load(p_q_nope + ____, mask=____, other=0.0).to(DOT)\n"
        "    b_weight = tl.load(p_w_kc + ____, mask=____, other=0.0).to(DOT)\n    acc += ____",
    ),
    mistakes=(
        Mistake("last block alone", "this is the last block's product: add it to acc, not over it", last_block_alone),
        Mistake(
            "first head's weight", "every head gets head 0's weight: stride_weight_head is missing", first_head_for_all
        ),
        Mistake(
            "weight once a token",
            "w_kc is read once for each new token. Load a tile once, and let tl.dot use it for all BLOCK_S tokens",
            weight_once_a_token,
        ),
    ),
    mutants=(
        mutant("last_block_kept", "last block alone", {"acc += tl.dot": "acc = tl.dot"}),
        mutant("head_forgotten", "first head's weight", {"i_head * stride_weight_head + ": ""}),
        mutant(
            "tile_once_a_token",
            "weight once a token",
            {
                '        acc += tl.dot(b_query, b_weight, input_precision="ieee")\n': (
                    "        o_each = o_weight[None, :, :] + 0 * i_token[:, None, None]\n"
                    "        m_each = m_token[:, None, None] & m_nope[None, :, None] & m_column[None, None, :]\n"
                    "        b_each = tl.load(p_w_kc + o_each, mask=m_each, other=0.0).to(DOT)\n"
                    "        acc += tl.sum(b_query[:, :, None] * b_each, axis=1)\n"
                ),
                _WEIGHT: "",
            },
        ),
        mutant(
            "columns_unmasked",
            "mask the access",
            {"mask=m_nope[:, None] & m_column[None, :]": "mask=m_nope[:, None]"},
            verdict="error",
        ),
        mutant(
            "features_unmasked",
            "mask the access",
            {"mask=m_nope[:, None] & m_column[None, :]": "mask=m_column[None, :]"},
            verdict="error",
        ),
        mutant(
            "strides_taken_for_dense",
            "NaN or infinity",
            {"i_head * stride_nope_head": "i_head * NOPE"},
        ),
        mutant("offset_of_the_block_forgotten", "wrong in", {"i_nope = o_nope + tl.arange": "i_nope = tl.arange"}),
        mutant(
            "nothing_added",
            "wrong in",
            {'        acc += tl.dot(b_query, b_weight, input_precision="ieee")\n': ""},
        ),
    ),
)
