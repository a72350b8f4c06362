"""Chapter 9: what one token weighs on its way to an expert and back."""

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import drawn


def make(rng, dtype, hidden_dim, scale_block):
    return {"hidden_dim": hidden_dim, "scale_block": scale_block}


def make_drawn(rng, dtype):
    return drawn(rng, hidden_dim=(1000, 9000), scale_block=(40, 200))


def make_started(rng, dtype):
    """A last block of a few values."""
    block = int(rng.integers(60, 200))
    return {"hidden_dim": block * int(rng.integers(10, 40)) + int(rng.integers(1, 9)), "scale_block": block}


def oracle(hidden_dim, scale_block):
    """Walk over the values, and write a byte for each and a scale where a block starts."""
    sent, back = bytearray(), bytearray()
    for value in range(hidden_dim):
        if value % scale_block == 0:
            sent += bytes(4)
        sent += bytes(1)
        back += bytes(2)
    return len(sent), len(back)


def started_block_forgotten(hidden_dim, scale_block):
    return hidden_dim + 4 * (hidden_dim // scale_block), 2 * hidden_dim


def one_block_too_many(hidden_dim, scale_block):
    return hidden_dim + 4 * (hidden_dim // scale_block + 1), 2 * hidden_dim


def scales_forgotten(hidden_dim, scale_block):
    return hidden_dim, 2 * hidden_dim


def one_scale(hidden_dim, scale_block):
    return hidden_dim + 4 * min(hidden_dim, 1), 2 * hidden_dim


def scales_of_one_byte(hidden_dim, scale_block):
    return hidden_dim - -hidden_dim // scale_block, 2 * hidden_dim


def scales_in_bf16(hidden_dim, scale_block):
    return hidden_dim + 2 * -(-hidden_dim // scale_block), 2 * hidden_dim


def both_in_fp8(hidden_dim, scale_block):
    dispatch = hidden_dim + 4 * -(-hidden_dim // scale_block)
    return dispatch, dispatch


def both_in_bf16(hidden_dim, scale_block):
    return 2 * hidden_dim, 2 * hidden_dim


def combine_with_scales(hidden_dim, scale_block):
    scales = 4 * -(-hidden_dim // scale_block)
    return hidden_dim + scales, 2 * hidden_dim + scales


def combine_in_fp32(hidden_dim, scale_block):
    return hidden_dim + 4 * -(-hidden_dim // scale_block), 4 * hidden_dim


def swapped(hidden_dim, scale_block):
    return 2 * hidden_dim, hidden_dim + 4 * -(-hidden_dim // scale_block)


def added_up(hidden_dim, scale_block):
    return 3 * hidden_dim + 4 * -(-hidden_dim // scale_block)


def through_a_float(hidden_dim, scale_block):
    return hidden_dim + 4 * hidden_dim / scale_block, 2 * hidden_dim


EXERCISE = Exercise(
    id="token_bytes",
    chapter=9,
    order=1,
    title="what a token weighs",
    checks="bytes of a token that goes to one expert, and of what comes back",
    points=2,
    difficulty=1,
    minutes=6,
    make=make,
    oracle=oracle,
    returns=("dispatch", "combine"),
    cases=(
        Case("by hand", {"hidden_dim": 10, "scale_block": 4}),
        Case("DeepSeek-V3", {"hidden_dim": 7168, "scale_block": 128}),
        Case("GLM-5, blocks of 32", {"hidden_dim": 6144, "scale_block": 32}),
        Case("drawn at random", make=make_drawn),
        Case("a block that is only started, drawn at random", make=make_started),
        Case("one block for all", {"hidden_dim": 2560, "scale_block": 4096}),
        Case("a scale for each value", {"hidden_dim": 37, "scale_block": 1}),
        Case("one value", {"hidden_dim": 1, "scale_block": 128}),
        Case("no values", {"hidden_dim": 0, "scale_block": 128}),
    ),
    hints=(
        "How many bytes is a number of each format: FP8, bf16, fp32? And which of them travel on the way out, which on "
        "the way back?",
        "The scales belong to the FP8 values alone. A block that is only started has a scale as well, so the number of "
        "blocks is rounded up, in whole numbers.",
        "Fill the gaps:\n\n"
        "    blocks = ____  # rounded up\n"
        "    dispatch = hidden_dim * ____ + blocks * ____\n"
        "    return dispatch, ____",
    ),
    mistakes=(
        Mistake(
            "started block forgotten",
            "the number of blocks is rounded down. The values at the end need a scale too",
            started_block_forgotten,
        ),
        Mistake(
            "one block too many",
            "a block is added where the last one is full: round up instead of adding one",
            one_block_too_many,
        ),
        Mistake(
            "scales forgotten",
            "the scales are missing. An FP8 value means nothing without the scale of its block",
            scales_forgotten,
        ),
        Mistake("one scale", "this is one scale for the whole token. Each started block has its own", one_scale),
        Mistake("scales of one byte", "each scale takes one byte here. fp32 takes 4", scales_of_one_byte),
        Mistake("scales in bf16", "each scale takes two bytes here. fp32 takes 4", scales_in_bf16),
        Mistake("both in FP8", "what comes back is counted in FP8. It is in bf16, without scales", both_in_fp8),
        Mistake("both in bf16", "what goes out is counted in bf16. It is in FP8, with its scales", both_in_bf16),
        Mistake("combine with scales", "bf16 needs no scales: the way back has none", combine_with_scales),
        Mistake("combine in fp32", "the way back is counted in fp32. It is in bf16: 2 bytes", combine_in_fp32),
        Mistake("ways swapped", "these are the right two numbers in the wrong order: dispatch comes first", swapped),
    ),
    mutants=(
        Mutant(started_block_forgotten, "started block forgotten"),
        Mutant(one_block_too_many, "one block too many"),
        Mutant(scales_forgotten, "scales forgotten"),
        Mutant(one_scale, "one scale"),
        Mutant(scales_of_one_byte, "scales of one byte"),
        Mutant(scales_in_bf16, "scales in bf16"),
        Mutant(both_in_fp8, "both in FP8"),
        Mutant(both_in_bf16, "both in bf16"),
        Mutant(combine_with_scales, "combine with scales"),
        Mutant(combine_in_fp32, "combine in fp32"),
        Mutant(swapped, "ways swapped"),
        Mutant(added_up, "wanted a tuple of 2 parts"),
        Mutant(through_a_float, "counts are whole numbers"),
    ),
)
