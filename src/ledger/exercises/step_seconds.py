"""Chapter 8: the time of a step with drafts."""

from dataclasses import replace
from fractions import Fraction

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import drawn
from ledger.machines import MACHINES, machine
from ledger.setups import ROUNDED, Setup

SLOW = replace(machine("H100"), name="by hand", bandwidth=2.0, flops={"bf16": 6.0, "fp8": 4.0}, network=2.0)
SMALL = Setup(
    name="by hand",
    attention_bytes=10,
    expert_bytes=4,
    expert_flops=8,
    local_experts=2,
    active_experts=3,
    experts_per_token=2,
    layers=4,
    cache_bytes_per_token=2,
    pair_flops=6,
    token_bytes=6,
)


def make(rng, dtype):
    return given(1, 1, 3, SLOW, SMALL)(rng, dtype)


def given(requests, num_draft_tokens, cached_tokens, device, setup):
    """A maker of exactly these arguments."""
    return lambda rng, dtype: {
        "requests": requests,
        "num_draft_tokens": num_draft_tokens,
        "cached_tokens": cached_tokens,
        "machine": device,
        "setup": setup,
    }


def rounded(requests, num_draft_tokens, cached_tokens, device="H100"):
    """A maker of a step of DeepSeek-V3 in round numbers."""
    return given(requests, num_draft_tokens, cached_tokens, machine(device), ROUNDED)


def drawn_setup(rng):
    """A record that no model has: all of its numbers differ, and every part of a layer may be the longest."""
    sizes = drawn(rng, local_experts=(3, 30), experts_per_token=(2, 6), layers=(5, 90))
    return Setup(
        name="drawn",
        attention_bytes=float(rng.uniform(2e7, 4e8)),
        expert_bytes=float(rng.uniform(5e6, 9e7)),
        expert_flops=float(rng.uniform(2e7, 4e8)),
        active_experts=sizes["experts_per_token"] + int(rng.integers(1, 3)),
        cache_bytes_per_token=int(rng.integers(300, 3000)),
        pair_flops=int(rng.integers(20_000, 300_000)),
        token_bytes=int(rng.integers(2000, 30_000)),
        **sizes,
    )


def make_drawn(rng, dtype):
    device = MACHINES[str(rng.choice(["H100", "H200", "B200"]))]
    sizes = drawn(rng, requests=(5, 90), num_draft_tokens=(1, 5), cached_tokens=(500, 20_000))
    return sizes | {"machine": device, "setup": drawn_setup(rng)}


def exact_layer(requests, tokens, cached_tokens, machine, setup):
    """One layer in exact fractions."""
    whole = {name: Fraction(value) for name, value in vars(setup).items() if name != "name"}
    s, bandwidth, network = type(setup)(name="", **whole), Fraction(machine.bandwidth), Fraction(machine.network)
    bf16, fp8 = Fraction(machine.flops["bf16"]), Fraction(machine.flops["fp8"])
    reading = (s.attention_bytes + requests * cached_tokens * s.cache_bytes_per_token) / bandwidth
    pairs = tokens * cached_tokens * s.pair_flops / bf16
    attention = reading if reading > pairs else pairs
    reading = s.local_experts * s.expert_bytes / bandwidth
    products = tokens * s.active_experts * s.expert_flops / fp8
    experts = reading if reading > products else products
    sent = tokens * s.experts_per_token * s.token_bytes / network
    return sent if sent > attention + experts else attention + experts


def exact_step(requests, num_draft_tokens, cached_tokens, machine, setup):
    """Every layer of the step and of the drafts, added up in exact fractions."""
    rows = requests * (num_draft_tokens + 1)
    layers = [exact_layer(requests, rows, cached_tokens, machine, setup)] * setup.layers
    layers += [exact_layer(requests, requests, cached_tokens, machine, setup)] * num_draft_tokens
    return sum(layers)


def oracle(requests, num_draft_tokens, cached_tokens, machine, setup):
    return float(exact_step(requests, num_draft_tokens, cached_tokens, machine, setup))


# A wrong answer travels alone, so each one has a layer of its own.


def drafts_forgotten(requests, num_draft_tokens, cached_tokens, machine, setup):
    tokens = requests * (num_draft_tokens + 1)
    read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
    attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
    products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
    experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
    sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
    return setup.layers * max(attention + experts, sent)


def drafter_run_once(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + min(num_draft_tokens, 1) * layer(requests)


def drafts_through_all_layers(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    return setup.layers * (layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests))


def drafts_of_all_rows(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    return (setup.layers + num_draft_tokens) * layer(requests * (num_draft_tokens + 1))


def drafts_alone_verified(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    return setup.layers * layer(requests * num_draft_tokens) + num_draft_tokens * layer(requests)


def cache_read_for_each_row(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + tokens * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)


def attention_weights_for_each_request(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = requests * (setup.attention_bytes + cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)


def one_cache_for_all_requests(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)


def network_not_hidden(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        return attention + experts + tokens * setup.experts_per_token * setup.token_bytes / machine.network

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)


def network_left_out(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        return attention + max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)


def sent_once(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        return max(attention + experts, tokens * setup.token_bytes / machine.network)

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)


def sent_to_active_experts(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.active_experts * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)


def both_ways_counted_twice(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = 2 * tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)


def reading_and_arithmetic_added(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = read + tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"]
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = setup.local_experts * setup.expert_bytes / machine.bandwidth + products
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)


def arithmetic_left_out(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token
        read += setup.local_experts * setup.expert_bytes
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(read / machine.bandwidth, sent)

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)


def all_in_fp8(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["fp8"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)


def experts_beside_attention(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention, experts, sent)

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)


def experts_in_bf16(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["bf16"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)


def one_roofline_for_both(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token
        read += setup.local_experts * setup.expert_bytes
        pairs = tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"]
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(read / machine.bandwidth, pairs + products, sent)

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)


def local_experts_at_work(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.local_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)


def active_experts_read(requests, num_draft_tokens, cached_tokens, machine, setup):
    def layer(tokens):
        read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
        attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
        products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
        experts = max(setup.active_experts * setup.expert_bytes / machine.bandwidth, products)
        sent = tokens * setup.experts_per_token * setup.token_bytes / machine.network
        return max(attention + experts, sent)

    return setup.layers * layer(requests * (num_draft_tokens + 1)) + num_draft_tokens * layer(requests)


def one_layer(requests, num_draft_tokens, cached_tokens, machine, setup):
    tokens = requests * (num_draft_tokens + 1)
    read = (setup.attention_bytes + requests * cached_tokens * setup.cache_bytes_per_token) / machine.bandwidth
    attention = max(read, tokens * cached_tokens * setup.pair_flops / machine.flops["bf16"])
    products = tokens * setup.active_experts * setup.expert_flops / machine.flops["fp8"]
    experts = max(setup.local_experts * setup.expert_bytes / machine.bandwidth, products)
    return max(attention + experts, tokens * setup.experts_per_token * setup.token_bytes / machine.network)


EXERCISE = Exercise(
    id="step_seconds",
    chapter=8,
    order=7,
    title="the time of a step",
    checks="seconds of a step: the layers on all rows, and the drafter's passes",
    points=4,
    difficulty=3,
    minutes=15,
    make=make,
    oracle=oracle,
    cases=(
        Case("a slow machine by hand"),
        Case("16 requests at 4K, one draft", make=rounded(16, 1, 4096)),
        Case("64 requests at 4K, one draft", make=rounded(64, 1, 4096)),
        Case("16 requests at 16K, three drafts", make=rounded(16, 3, 16384)),
        Case("64 requests at 16K on a B200, two drafts", make=rounded(64, 2, 16384, "B200")),
        Case("a slow network", make=given(64, 1, 4096, replace(machine("H100"), network=4e9), ROUNDED)),
        Case("no draft", make=rounded(32, 0, 8192, "H200")),
        Case("a setup drawn at random", make=make_drawn),
        Case("another setup drawn at random", make=make_drawn),
        Case("one request", make=rounded(1, 4, 131_072, "H200")),
        Case("nothing cached", make=rounded(200, 2, 0)),
        Case("no request", make=rounded(0, 2, 4096)),
    ),
    hints=(
        "Write one function for the time of a layer, given the tokens in it. How many tokens does the verifying step "
        "have, and how many has a pass of the drafter?",
        "Attention is the longer of its reading (weights once, each request's cache once) and its arithmetic (every "
        "token against its request's cache). The experts alike. These two follow each other; the all-to-all runs "
        "beside both. All layers see requests · (k + 1) tokens; the drafter is one layer, run k times on one token a "
        "request.",
        "Fill the gaps:\n\n"
        "    def one_layer(tokens):\n"
        "        attention, experts = (max(reading, arithmetic) for reading, arithmetic in (____, ____))\n"
        "        network = ____\n"
        "        return max(____, network)\n\n"
        "    verify = one_layer(____)\n"
        "    return ____ * verify + ____ * one_layer(____)",
    ),
    mistakes=(
        Mistake(
            "drafter's passes forgotten",
            "the drafter's passes are missing: one layer for each draft, on one token a request",
            drafts_forgotten,
        ),
        Mistake(
            "drafter run once",
            "the drafter was run once. It makes one draft a pass: num_draft_tokens passes",
            drafter_run_once,
        ),
        Mistake(
            "drafter as deep as the model",
            "the drafter is one layer. It was run through all of them",
            drafts_through_all_layers,
        ),
        Mistake(
            "drafter on all rows",
            "a pass of the drafter has one token a request. It was run on all rows of the verifying step",
            drafts_of_all_rows,
        ),
        Mistake(
            "drafts alone verified",
            "the verifying step has k + 1 rows a request: the drafts, and the token before them",
            drafts_alone_verified,
        ),
        Mistake(
            "cache read for each row",
            "the cache was read once for each row. A request's rows share one reading",
            cache_read_for_each_row,
        ),
        Mistake(
            "attention's weights for each request",
            "attention's weights were read for each request. All requests share one reading of them",
            attention_weights_for_each_request,
        ),
        Mistake("one request's cache", "every request has a cache of its own to be read", one_cache_for_all_requests),
        Mistake(
            "network added",
            "the all-to-all was added. It is hidden behind the rest, or the rest behind it: the longer one counts",
            network_not_hidden,
        ),
        Mistake("sent to one expert", "a token is sent to each of its experts: experts_per_token times", sent_once),
        Mistake(
            "sent to active experts",
            "a token was sent to active_experts experts. Shared ones are on every GPU: it travels to experts_per_token",
            sent_to_active_experts,
        ),
        Mistake(
            "both ways counted twice",
            "the bytes of the all-to-all were doubled. token_bytes holds both ways already",
            both_ways_counted_twice,
        ),
        Mistake("network left out", "the all-to-all is left out, and here it takes longer", network_left_out),
        Mistake(
            "reading and arithmetic added",
            "reading and arithmetic were added. They overlap within attention, and within the experts",
            reading_and_arithmetic_added,
        ),
        Mistake("arithmetic left out", "the arithmetic is left out, and here it takes longer", arithmetic_left_out),
        Mistake("attention in fp8", 'attention computes in bf16: machine.flops["bf16"]', all_in_fp8),
        Mistake("experts in bf16", 'the experts compute in fp8: machine.flops["fp8"]', experts_in_bf16),
        Mistake(
            "experts beside attention",
            "the longer of attention and experts was taken. The experts follow attention: their times add up",
            experts_beside_attention,
        ),
        Mistake(
            "one bound for both",
            "reading and arithmetic were compared for the whole layer. Attention and experts follow each other, and "
            "each waits for its own",
            one_roofline_for_both,
        ),
        Mistake(
            "local experts at work",
            "a token is worked on by active_experts experts, wherever they lie. local_experts is what a GPU reads",
            local_experts_at_work,
        ),
        Mistake(
            "active experts read",
            "the weights of active_experts experts were read. This GPU holds local_experts and reads them all",
            active_experts_read,
        ),
        Mistake("one layer", "this is one layer. A step goes through all of them", one_layer),
    ),
    mutants=(
        Mutant(drafts_forgotten, "drafter's passes forgotten"),
        Mutant(drafter_run_once, "drafter run once"),
        Mutant(drafts_through_all_layers, "drafter as deep as the model"),
        Mutant(drafts_of_all_rows, "drafter on all rows"),
        Mutant(drafts_alone_verified, "drafts alone verified"),
        Mutant(cache_read_for_each_row, "cache read for each row"),
        Mutant(attention_weights_for_each_request, "attention's weights for each request"),
        Mutant(one_cache_for_all_requests, "one request's cache"),
        Mutant(network_not_hidden, "network added"),
        Mutant(network_left_out, "network left out"),
        Mutant(sent_once, "sent to one expert"),
        Mutant(sent_to_active_experts, "sent to active experts"),
        Mutant(both_ways_counted_twice, "both ways counted twice"),
        Mutant(reading_and_arithmetic_added, "reading and arithmetic added"),
        Mutant(arithmetic_left_out, "arithmetic left out"),
        Mutant(all_in_fp8, "attention in fp8"),
        Mutant(experts_in_bf16, "experts in bf16"),
        Mutant(experts_beside_attention, "experts beside attention"),
        Mutant(one_roofline_for_both, "one bound for both"),
        Mutant(local_experts_at_work, "local experts at work"),
        Mutant(active_experts_read, "active experts read"),
        Mutant(one_layer, "one layer"),
    ),
)
