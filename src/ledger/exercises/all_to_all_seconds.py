"""Chapter 9: how long all tokens take to their experts and back."""

from fractions import Fraction

from ledger.exercises import token_bytes as weights
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.models import model


def make(rng, dtype):
    return given(2, 3, 10, 40.0, 1.0)(rng, dtype)


def given(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    """A maker of exactly these arguments."""
    return lambda rng, dtype: {
        "tokens": tokens,
        "experts_per_token": experts_per_token,
        "hidden_dim": hidden_dim,
        "bandwidth": bandwidth,
        "floor": floor,
    }


def of(name, tokens, bandwidth, floor):
    """A maker of a layer of the model called ``name``."""
    m = model(name)
    return given(tokens, m.experts_per_token, m.hidden_dim, bandwidth, floor)


def make_drawn(rng, dtype):
    tokens, experts, hidden = (int(rng.integers(*ends)) for ends in ((20, 900), (2, 20), (1000, 9000)))
    bandwidth, floor = rng.uniform(2e10, 9e11), rng.uniform(5e-6, 9e-5)
    return given(tokens, experts, hidden, float(bandwidth), float(floor))(rng, dtype)


def oracle(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    """Exact: every copy of every token adds its bytes."""
    if bandwidth == 0:
        return float("inf")
    copy = Fraction(sum(weights.oracle(hidden_dim, 128)))
    moved = sum(copy * experts_per_token for _ in range(tokens))
    return float(Fraction(floor) + moved / Fraction(bandwidth))


def floor_for_each_way(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    if bandwidth == 0:
        return float("inf")
    blocks = -(-hidden_dim // 128)
    copies = tokens * experts_per_token
    return 2 * floor + copies * (3 * hidden_dim + 4 * blocks) / bandwidth


def floor_for_each_copy(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    if bandwidth == 0:
        return float("inf")
    blocks = -(-hidden_dim // 128)
    copies = tokens * experts_per_token
    return copies * floor + copies * (3 * hidden_dim + 4 * blocks) / bandwidth


def floor_forgotten(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    if bandwidth == 0:
        return float("inf")
    blocks = -(-hidden_dim // 128)
    copies = tokens * experts_per_token
    return copies * (3 * hidden_dim + 4 * blocks) / bandwidth


def floor_or_bytes(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    if bandwidth == 0:
        return float("inf")
    blocks = -(-hidden_dim // 128)
    copies = tokens * experts_per_token
    return max(floor, copies * (3 * hidden_dim + 4 * blocks) / bandwidth)


def dispatch_alone(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    if bandwidth == 0:
        return float("inf")
    blocks = -(-hidden_dim // 128)
    copies = tokens * experts_per_token
    return floor + copies * (hidden_dim + 4 * blocks) / bandwidth


def combine_alone(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    if bandwidth == 0:
        return float("inf")
    copies = tokens * experts_per_token
    return floor + copies * 2 * hidden_dim / bandwidth


def one_expert(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    if bandwidth == 0:
        return float("inf")
    blocks = -(-hidden_dim // 128)
    return floor + tokens * (3 * hidden_dim + 4 * blocks) / bandwidth


def combine_once_a_token(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    if bandwidth == 0:
        return float("inf")
    blocks = -(-hidden_dim // 128)
    copies = tokens * experts_per_token
    return floor + (copies * (hidden_dim + 4 * blocks) + tokens * 2 * hidden_dim) / bandwidth


def no_scales(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    if bandwidth == 0:
        return float("inf")
    copies = tokens * experts_per_token
    return floor + copies * 3 * hidden_dim / bandwidth


def started_block_forgotten(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    if bandwidth == 0:
        return float("inf")
    copies = tokens * experts_per_token
    return floor + copies * (3 * hidden_dim + 4 * (hidden_dim // 128)) / bandwidth


def both_in_bf16(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    if bandwidth == 0:
        return float("inf")
    copies = tokens * experts_per_token
    return floor + copies * 4 * hidden_dim / bandwidth


def bits(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    if bandwidth == 0:
        return float("inf")
    blocks = -(-hidden_dim // 128)
    copies = tokens * experts_per_token
    return floor + 8 * copies * (3 * hidden_dim + 4 * blocks) / bandwidth


def microseconds(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    if bandwidth == 0:
        return float("inf")
    blocks = -(-hidden_dim // 128)
    copies = tokens * experts_per_token
    return 1e6 * (floor + copies * (3 * hidden_dim + 4 * blocks) / bandwidth)


def no_tokens_first(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    if tokens == 0:
        return floor
    if bandwidth == 0:
        return float("inf")
    blocks = -(-hidden_dim // 128)
    copies = tokens * experts_per_token
    return floor + copies * (3 * hidden_dim + 4 * blocks) / bandwidth


def divides_by_zero(tokens, experts_per_token, hidden_dim, bandwidth, floor):
    blocks = -(-hidden_dim // 128)
    copies = tokens * experts_per_token
    return floor + copies * (3 * hidden_dim + 4 * blocks) / bandwidth


EXERCISE = Exercise(
    id="all_to_all_seconds",
    chapter=9,
    order=2,
    title="to the experts and back",
    checks="seconds of one dispatch and one combine: a floor, and bytes over bandwidth",
    points=2,
    difficulty=1,
    minutes=6,
    make=make,
    oracle=oracle,
    cases=(
        Case("by hand"),
        Case("DeepSeek-V3, 128 tokens over the network", make=of("DeepSeek-V3", 128, 50e9, 22e-6)),
        Case("DeepSeek-V3, 4,096 tokens of a prefill", make=of("DeepSeek-V3", 4096, 50e9, 22e-6)),
        Case("DeepSeek-V3, one token over NVLink", make=of("DeepSeek-V3", 1, 300e9, 22e-6)),
        Case("Kimi K3, 16 experts a token", make=of("Kimi-K3", 64, 50e9, 30e-6)),
        Case("drawn at random", make=make_drawn),
        Case("a width that fills no block", make=given(32, 4, 1025, 50e9, 1e-5)),
        Case("without a floor", make=of("GLM-4.7-Flash", 50, 50e9, 0.0)),
        Case("no tokens", make=of("DeepSeek-V3", 0, 50e9, 22e-6)),
        Case("no bandwidth", make=of("DeepSeek-V3", 16, 0.0, 22e-6)),
        Case("neither tokens nor bandwidth", make=of("DeepSeek-V3", 0, 0.0, 22e-6)),
    ),
    hints=(
        "How many copies of how many bytes leave this GPU, and how many come back? The exercise before this one has "
        "the bytes of one copy.",
        "A copy goes to each of a token's experts, and each of them sends an output back. The floor is there once, "
        "however much travels, and it is added: a fixed delay is not hidden by the bytes that follow it.",
        "Fill the gaps:\n\n"
        "    dispatch, combine = token_bytes(____, ____)\n"
        "    copies = ____\n"
        "    return floor + ____ / bandwidth\n"
        "and deal with a bandwidth of 0 before that, whether there are tokens or not.",
    ),
    mistakes=(
        Mistake("a floor for each way", "the floor is counted twice. It is given for both ways", floor_for_each_way),
        Mistake(
            "a floor for each copy",
            "the floor is counted for each copy of a token. It is there once: copies leave one behind the other",
            floor_for_each_copy,
        ),
        Mistake("floor forgotten", "the floor is missing: a dispatch without a byte takes time too", floor_forgotten),
        Mistake(
            "the longer of floor and bytes",
            "this is the longer of the floor and the bytes' time. They add up: bytes travel after the delay, not "
            "during it",
            floor_or_bytes,
        ),
        Mistake("dispatch alone", "the way back is missing", dispatch_alone),
        Mistake("combine alone", "the way out is missing. It does not hide behind the way back", combine_alone),
        Mistake(
            "one expert a token",
            "each token is counted for one expert. It goes to experts_per_token of them",
            one_expert,
        ),
        Mistake(
            "one output a token",
            "one output a token comes back. Each expert sends its own, and they are summed where the token lives",
            combine_once_a_token,
        ),
        Mistake("no scales", "the scales of the FP8 values are missing, one for each started block of 128", no_scales),
        Mistake(
            "started block forgotten",
            "the number of blocks is rounded down, maybe in your token_bytes: the values at the end need a scale too, "
            "and token_bytes(10, 128) is (14, 20)",
            started_block_forgotten,
        ),
        Mistake("both in bf16", "the way out is counted in bf16. It is in FP8 with its scales", both_in_bf16),
        Mistake("bits", "the bytes were turned into bits. The bandwidth is in bytes a second", bits),
        Mistake("microseconds", "these are microseconds; seconds are asked for", microseconds),
        Mistake(
            "no tokens before no bandwidth",
            "without tokens this is the floor, even where the bandwidth is 0. A bandwidth of 0 gives math.inf whatever "
            "travels: look at it first",
            no_tokens_first,
        ),
    ),
    mutants=(
        Mutant(floor_for_each_way, "a floor for each way"),
        Mutant(floor_for_each_copy, "a floor for each copy"),
        Mutant(floor_forgotten, "floor forgotten"),
        Mutant(floor_or_bytes, "the longer of floor and bytes"),
        Mutant(dispatch_alone, "dispatch alone"),
        Mutant(combine_alone, "combine alone"),
        Mutant(one_expert, "one expert a token"),
        Mutant(combine_once_a_token, "one output a token"),
        Mutant(no_scales, "no scales"),
        Mutant(started_block_forgotten, "started block forgotten"),
        Mutant(both_in_bf16, "both in bf16"),
        Mutant(bits, "bits"),
        Mutant(microseconds, "microseconds"),
        Mutant(no_tokens_first, "no tokens before no bandwidth"),
        Mutant(divides_by_zero, "ZeroDivisionError", verdict="error"),
    ),
)
