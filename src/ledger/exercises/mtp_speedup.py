"""Chapter 8: what drafts gain."""

from fractions import Fraction

from ledger.exercises.base import Case, Exercise, Mistake, Mutant, Raises
from ledger.exercises.making import drawn
from ledger.exercises.step_seconds import SLOW, SMALL, drawn_setup, exact_step
from ledger.machines import MACHINES, machine
from ledger.setups import ROUNDED

ACCEPTANCE = (0.85, 0.75, 0.65)


def make(rng, dtype):
    return given(1, 1, 3, [0.5], SLOW, SMALL)(rng, dtype)


def given(requests, num_draft_tokens, cached_tokens, acceptance, device, setup):
    """A maker of exactly these arguments."""
    return lambda rng, dtype: {
        "requests": requests,
        "num_draft_tokens": num_draft_tokens,
        "cached_tokens": cached_tokens,
        "acceptance": list(acceptance),
        "machine": device,
        "setup": setup,
    }


def rounded(requests, num_draft_tokens, cached_tokens, acceptance=ACCEPTANCE, device="H100"):
    """A maker of a step of DeepSeek-V3 in round numbers."""
    return given(requests, num_draft_tokens, cached_tokens, acceptance, machine(device), ROUNDED)


def make_drawn(rng, dtype):
    device = MACHINES[str(rng.choice(["H100", "H200", "B200"]))]
    sizes = drawn(rng, requests=(5, 90), num_draft_tokens=(2, 5), cached_tokens=(500, 20_000))
    acceptance = rng.uniform(0.3, 0.95, sizes["num_draft_tokens"] + int(rng.integers(0, 3))).tolist()
    return sizes | {"acceptance": acceptance, "machine": device, "setup": drawn_setup(rng)}


def oracle(requests, num_draft_tokens, cached_tokens, acceptance, machine, setup):
    """Tokens a second with drafts over tokens a second without, in exact fractions."""
    plain, drafted = (exact_step(requests, k, cached_tokens, machine, setup) for k in (0, num_draft_tokens))
    advance, reached = Fraction(1), Fraction(1)
    for probability in acceptance[:num_draft_tokens]:
        reached *= Fraction(probability)
        advance += reached
    return float((requests or 1) * advance / drafted / ((requests or 1) / plain))


# A wrong answer travels alone, so each one has a step of its own.


def list_not_cut(requests, num_draft_tokens, cached_tokens, acceptance, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    advance = reached = 1.0
    for p in acceptance:
        reached *= p
        advance += reached
    step = setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)
    return advance * setup.layers * layer(requests) / step


def a_short_list_taken_as_it_is(requests, num_draft_tokens, cached_tokens, acceptance, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    advance = reached = 1.0
    for p in acceptance[:num_draft_tokens]:
        reached *= p
        advance += reached
    step = setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)
    return advance * setup.layers * layer(requests) / step


def every_draft_accepted(requests, num_draft_tokens, cached_tokens, acceptance, machine, setup):
    if len(acceptance) < num_draft_tokens:
        raise ValueError(f"{len(acceptance)} acceptances for num_draft_tokens {num_draft_tokens}")

    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    step = setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)
    return (num_draft_tokens + 1) * setup.layers * layer(requests) / step


def acceptances_summed(requests, num_draft_tokens, cached_tokens, acceptance, machine, setup):
    if len(acceptance) < num_draft_tokens:
        raise ValueError(f"{len(acceptance)} acceptances for num_draft_tokens {num_draft_tokens}")

    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    step = setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)
    return (1 + sum(acceptance[:num_draft_tokens])) * setup.layers * layer(requests) / step


def drafter_for_nothing(requests, num_draft_tokens, cached_tokens, acceptance, machine, setup):
    if len(acceptance) < num_draft_tokens:
        raise ValueError(f"{len(acceptance)} acceptances for num_draft_tokens {num_draft_tokens}")

    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    advance = reached = 1.0
    for p in acceptance[:num_draft_tokens]:
        reached *= p
        advance += reached
    return advance * layer(requests) / layer(requests * (num_draft_tokens + 1))


def step_forgotten(requests, num_draft_tokens, cached_tokens, acceptance, machine, setup):
    if len(acceptance) < num_draft_tokens:
        raise ValueError(f"{len(acceptance)} acceptances for num_draft_tokens {num_draft_tokens}")
    advance = reached = 1.0
    for p in acceptance[:num_draft_tokens]:
        reached *= p
        advance += reached
    return advance


def ratio_of_the_steps(requests, num_draft_tokens, cached_tokens, acceptance, machine, setup):
    if len(acceptance) < num_draft_tokens:
        raise ValueError(f"{len(acceptance)} acceptances for num_draft_tokens {num_draft_tokens}")

    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    step = setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)
    return step / (setup.layers * layer(requests))


def upside_down(requests, num_draft_tokens, cached_tokens, acceptance, machine, setup):
    if len(acceptance) < num_draft_tokens:
        raise ValueError(f"{len(acceptance)} acceptances for num_draft_tokens {num_draft_tokens}")

    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    advance = reached = 1.0
    for p in acceptance[:num_draft_tokens]:
        reached *= p
        advance += reached
    step = setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)
    return step / (advance * setup.layers * layer(requests))


def steps_inverted(requests, num_draft_tokens, cached_tokens, acceptance, machine, setup):
    if len(acceptance) < num_draft_tokens:
        raise ValueError(f"{len(acceptance)} acceptances for num_draft_tokens {num_draft_tokens}")

    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    advance = reached = 1.0
    for p in acceptance[:num_draft_tokens]:
        reached *= p
        advance += reached
    step = setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)
    return advance * step / (setup.layers * layer(requests))


def tokens_a_second(requests, num_draft_tokens, cached_tokens, acceptance, machine, setup):
    if len(acceptance) < num_draft_tokens:
        raise ValueError(f"{len(acceptance)} acceptances for num_draft_tokens {num_draft_tokens}")

    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    advance = reached = 1.0
    for p in acceptance[:num_draft_tokens]:
        reached *= p
        advance += reached
    step = setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)
    return requests * advance / step


EXERCISE = Exercise(
    id="mtp_speedup",
    chapter=8,
    order=8,
    title="the gain",
    checks="tokens a second with drafts over tokens a second without",
    points=2,
    difficulty=2,
    minutes=8,
    make=make,
    oracle=oracle,
    cases=(
        Case("a slow machine by hand"),
        Case("16 requests at 4K, one draft of three possible", make=rounded(16, 1, 4096)),
        Case("64 requests at 4K, two drafts", make=rounded(64, 2, 4096)),
        Case("16 requests at 16K, three drafts", make=rounded(16, 3, 16384)),
        Case("64 requests at 16K on a B200", make=rounded(64, 3, 16384, device="B200")),
        Case("a setup drawn at random", make=make_drawn),
        Case("no draft", make=rounded(32, 0, 8192)),
        Case("no draft, no acceptance", make=rounded(32, 0, 8192, ())),
        Case("drafts that are never right", make=rounded(8, 2, 2048, (0.0, 0.0))),
        Case("no request", make=rounded(0, 2, 4096)),
        Case(
            "fewer acceptances than drafts",
            make=rounded(16, 3, 4096, (0.85, 0.75)),
            raises=Raises("ValueError", ("acceptance",)),
        ),
    ),
    hints=(
        "Tokens a second are tokens of a step over seconds of a step. What do both become with drafts?",
        "expected_advance and step_seconds give you all of it. The requests cancel: every one of them advances alike. "
        "Mind the length of the list before you use it.",
        "Fill the gaps:\n\n"
        "    if len(acceptance) < ____:\n"
        '        raise ValueError("acceptance ____")\n'
        "    advance = expected_advance(____)\n"
        "    plain, drafted = (step_seconds(____) for k in (____))\n"
        "    return ____",
    ),
    mistakes=(
        Mistake("list not cut", "the acceptances beyond num_draft_tokens were counted too. Cut the list", list_not_cut),
        Mistake(
            "every draft accepted",
            "num_draft_tokens + 1 tokens were counted, as if all drafts were right",
            every_draft_accepted,
        ),
        Mistake(
            "acceptances summed",
            "the acceptances are summed as they are. They are conditional: a draft needs all before it",
            acceptances_summed,
        ),
        Mistake("drafter for nothing", "the drafter's passes are missing in the step with drafts", drafter_for_nothing),
        Mistake("step forgotten", "these are the tokens of a step. The step became longer as well", step_forgotten),
        Mistake(
            "ratio of the steps",
            "this is by how much the step became longer. It brings more tokens",
            ratio_of_the_steps,
        ),
        Mistake(
            "steps inverted",
            "the tokens of a step were multiplied by how much longer it takes. A longer step makes the gain smaller",
            steps_inverted,
        ),
        Mistake("upside down", "this is the gain upside down: more than 1 must mean faster", upside_down),
        Mistake(
            "tokens a second", "these are tokens a second. Compare them with those without drafts", tokens_a_second
        ),
    ),
    mutants=(
        Mutant(list_not_cut, "list not cut"),
        Mutant(a_short_list_taken_as_it_is, "ValueError"),
        Mutant(every_draft_accepted, "every draft accepted"),
        Mutant(acceptances_summed, "acceptances summed"),
        Mutant(drafter_for_nothing, "drafter for nothing"),
        Mutant(step_forgotten, "step forgotten"),
        Mutant(ratio_of_the_steps, "ratio of the steps"),
        Mutant(steps_inverted, "steps inverted"),
        Mutant(upside_down, "upside down"),
        Mutant(tokens_a_second, "tokens a second"),
    ),
)
