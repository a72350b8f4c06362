"""Chapter 8: how many drafts to make under a given load."""

from fractions import Fraction

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import drawn
from ledger.exercises.step_seconds import SLOW, SMALL, drawn_setup, exact_step
from ledger.machines import MACHINES, machine
from ledger.setups import ROUNDED

GOOD = (0.95, 0.9, 0.85, 0.8)


def make(rng, dtype):
    return given(1, 3, [0.9, 0.9], SLOW, SMALL)(rng, dtype)


def given(requests, cached_tokens, acceptance, device, setup):
    """A maker of exactly these arguments."""
    return lambda rng, dtype: {
        "requests": requests,
        "cached_tokens": cached_tokens,
        "acceptance": list(acceptance),
        "machine": device,
        "setup": setup,
    }


def rounded(requests, cached_tokens, acceptance=(0.85, 0.75, 0.65), device="H100"):
    """A maker of a step of DeepSeek-V3 in round numbers."""
    return given(requests, cached_tokens, acceptance, machine(device), ROUNDED)


def make_drawn(rng, dtype):
    device = MACHINES[str(rng.choice(["H100", "H200", "B200"]))]
    sizes = drawn(rng, requests=(1, 60), cached_tokens=(500, 9000))
    acceptance = rng.uniform(0.5, 0.95, int(rng.integers(3, 6))).tolist()
    return sizes | {"acceptance": acceptance, "machine": device, "setup": drawn_setup(rng)}


def break_even(more):
    """A maker of one draft whose acceptance is ``more`` above the one that neither gains nor loses."""

    def make_break_even(rng, dtype):
        given_in = {"requests": int(rng.integers(10, 30)), "cached_tokens": 8192}
        one, none = (exact_step(num_draft_tokens=k, machine=machine("H100"), setup=ROUNDED, **given_in) for k in (1, 0))
        return given_in | {"acceptance": [float(one / none - 1) + more], "machine": machine("H100"), "setup": ROUNDED}

    return make_break_even


def oracle(requests, cached_tokens, acceptance, machine, setup):
    """All gains in exact fractions; the first that comes within a share of 1e-12 of the largest."""
    gains, advance, reached = [], Fraction(1), Fraction(1)
    for k in range(len(acceptance) + 1):
        gains.append(advance / exact_step(requests, k, cached_tokens, machine, setup))
        if k < len(acceptance):
            reached *= Fraction(acceptance[k])
            advance += reached
    enough = max(gains) * (1 - Fraction(1, 10**12))
    return next(k for k, gain in enumerate(gains) if gain >= enough)


# A wrong answer travels alone, so each one has gains of its own.


def as_many_as_there_are(requests, cached_tokens, acceptance, machine, setup):
    return len(acceptance)


def never_none(requests, cached_tokens, acceptance, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        return max(attention + experts, tokens * setup.experts_per_token * setup.token_bytes / machine.network)

    best, largest, advance, reached = 0, 0.0, 1.0, 1.0
    for k in range(1, len(acceptance) + 1):
        reached *= acceptance[k - 1]
        advance += reached
        gain = advance / (setup.layers * layer(requests * (k + 1)) + k * layer(requests))
        if gain > largest * (1 + 1e-12):
            best, largest = k, gain
    return best


def ties_to_the_larger(requests, cached_tokens, acceptance, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        return max(attention + experts, tokens * setup.experts_per_token * setup.token_bytes / machine.network)

    best, largest, advance, reached = 0, 0.0, 1.0, 1.0
    for k in range(len(acceptance) + 1):
        gain = advance / (setup.layers * layer(requests * (k + 1)) + k * layer(requests))
        if gain >= largest * (1 - 1e-12):
            best, largest = k, gain
        if k < len(acceptance):
            reached *= acceptance[k]
            advance += reached
    return best


def drafts_for_nothing(requests, cached_tokens, acceptance, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        return max(attention + experts, tokens * setup.experts_per_token * setup.token_bytes / machine.network)

    best, largest, advance, reached = 0, 0.0, 1.0, 1.0
    for k in range(len(acceptance) + 1):
        gain = advance / layer(requests * (k + 1))
        if gain > largest * (1 + 1e-12):
            best, largest = k, gain
        if k < len(acceptance):
            reached *= acceptance[k]
            advance += reached
    return best


def each_acceptance_by_itself(requests, cached_tokens, acceptance, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        return max(attention + experts, tokens * setup.experts_per_token * setup.token_bytes / machine.network)

    best, largest = 0, 0.0
    for k in range(len(acceptance) + 1):
        step = setup.layers * layer(requests * (k + 1)) + k * layer(requests)
        gain = (1 + sum(acceptance[:k])) / step
        if gain > largest * (1 + 1e-12):
            best, largest = k, gain
    return best


def likely_drafts(requests, cached_tokens, acceptance, machine, setup):
    best, reached = 0, 1.0
    for k, p in enumerate(acceptance):
        reached *= p
        if reached > 0.5:
            best = k + 1
    return best


def the_gain(requests, cached_tokens, acceptance, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        return max(attention + experts, tokens * setup.experts_per_token * setup.token_bytes / machine.network)

    gains, advance, reached = [], 1.0, 1.0
    for k in range(len(acceptance) + 1):
        gains.append(advance / (setup.layers * layer(requests * (k + 1)) + k * layer(requests)))
        if k < len(acceptance):
            reached *= acceptance[k]
            advance += reached
    return max(gains) / gains[0]


def no_tolerance(requests, cached_tokens, acceptance, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        return max(attention + experts, tokens * setup.experts_per_token * setup.token_bytes / machine.network)

    gains, advance, reached = [], 1.0, 1.0
    for k in range(len(acceptance) + 1):
        gains.append(advance / (setup.layers * layer(requests * (k + 1)) + k * layer(requests)))
        if k < len(acceptance):
            reached *= acceptance[k]
            advance += reached
    return gains.index(max(gains))


def a_wide_tie(requests, cached_tokens, acceptance, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        return max(attention + experts, tokens * setup.experts_per_token * setup.token_bytes / machine.network)

    best, largest, advance, reached = 0, 0.0, 1.0, 1.0
    for k in range(len(acceptance) + 1):
        gain = advance / (setup.layers * layer(requests * (k + 1)) + k * layer(requests))
        if gain > largest * 1.01:
            best, largest = k, gain
        if k < len(acceptance):
            reached *= acceptance[k]
            advance += reached
    return best


EXERCISE = Exercise(
    id="best_draft_count",
    chapter=8,
    order=10,
    title="how many drafts",
    checks="the number of drafts with the largest gain",
    points=2,
    difficulty=2,
    minutes=8,
    make=make,
    oracle=oracle,
    cases=(
        Case("a slow machine by hand"),
        Case("16 requests at 4K", make=rounded(16, 4096)),
        Case("64 requests at 4K", make=rounded(64, 4096)),
        Case("64 requests at 16K", make=rounded(64, 16384)),
        Case("one request, good drafts", make=rounded(1, 2048, GOOD, "H200")),
        Case("8 requests, good drafts", make=rounded(8, 2048, GOOD)),
        Case("12 requests, good drafts", make=rounded(12, 2048, GOOD)),
        Case("28 requests, good drafts, on an H200", make=rounded(28, 4096, GOOD, "H200")),
        Case("a second draft that is hardly ever right", make=rounded(2, 1024, (0.9, 0.01, 0.9))),
        Case("a setup drawn at random", make=make_drawn),
        Case("another setup drawn at random", make=make_drawn),
        Case("neither gain nor loss, but for rounding", make=break_even(1e-14)),
        Case("a gain of a billionth", make=break_even(1e-9)),
        Case("no acceptance", make=rounded(4, 4096, ())),
    ),
    hints=(
        "The answer is one of a few numbers. What would you compute for each of them?",
        "The gain without drafts is 1. Go up from there, and change your mind only for a gain that is larger by more "
        "than rounding.",
        "Fill the gaps:\n\n"
        "    best, largest = 0, ____\n"
        "    for k in range(1, ____):\n"
        "        gain = ____\n"
        "        if gain > largest * ____:\n"
        "            best, largest = ____\n"
        "    return best",
    ),
    mistakes=(
        Mistake(
            "ties to the larger",
            "two numbers gain alike here, but for rounding: the smaller one is wanted",
            ties_to_the_larger,
        ),
        Mistake(
            "a small gain passed over",
            "a small gain is a gain: only what differs by less than a share of 1e-12 is a tie",
            a_wide_tie,
        ),
        Mistake("never none", "no draft at all is a choice too, and here the best one", never_none),
        Mistake(
            "acceptances summed",
            "the acceptances are summed as they are. They are conditional: a draft needs all before it",
            each_acceptance_by_itself,
        ),
        Mistake("drafter for nothing", "the drafter's own passes were left out of the step", drafts_for_nothing),
        Mistake(
            "likely drafts",
            "every draft that is more likely right than wrong was made. What counts is what it costs",
            likely_drafts,
        ),
        Mistake("as many as there are", "all drafts are made, whatever they cost", as_many_as_there_are),
        Mistake("the gain", "this is the largest gain; the number of drafts that reaches it is asked for", the_gain),
    ),
    mutants=(
        Mutant(as_many_as_there_are, "as many as there are"),
        Mutant(never_none, "never none"),
        Mutant(ties_to_the_larger, "ties to the larger"),
        Mutant(drafts_for_nothing, "drafter for nothing"),
        Mutant(each_acceptance_by_itself, "acceptances summed"),
        Mutant(likely_drafts, "likely drafts"),
        Mutant(the_gain, "the gain"),
        Mutant(no_tolerance, "ties to the larger"),
        Mutant(a_wide_tie, "a small gain passed over"),
    ),
)
