"""Chapter 7: the least time that a machine needs."""

from dataclasses import replace

from ledger.account import roofline
from ledger.exercises.base import Case, Exercise, Mistake, Mutant, Raises
from ledger.machines import MACHINES, machine

SLOW = replace(machine("A100"), name="by hand", bandwidth=5.0, flops={"bf16": 20.0, "fp32": 10.0})


def make(rng, dtype):
    return given(60, 10, SLOW, "bf16")(rng, dtype)


def given(flops, bytes, device, precision):
    """A maker of exactly these arguments."""
    return lambda rng, dtype: {"flops": flops, "bytes": bytes, "machine": device, "dtype": precision}


def decode(device, num_heads, bytes_per_token, precision="bf16"):
    """A maker of a decode step at DeepSeek-V3's widths, over a million tokens or some more."""

    def make_decode(rng, dtype):
        cached_tokens = int(rng.integers(10**6, 10**7))
        work = roofline.decode_work(cached_tokens, num_heads, 1, 512, 64, bytes_per_token)
        return given(work.flops, work.bytes, machine(device), precision)(rng, dtype)

    return make_decode


def make_drawn(rng, dtype):
    """A machine that nobody sells; its formats differ enough to tell them apart."""
    bf16, bandwidth = rng.uniform(1e14, 2e15), rng.uniform(1e12, 9e12)
    device = replace(
        MACHINES["H200"], name="drawn", bandwidth=bandwidth, flops={"bf16": bf16, "fp8": 1.7 * bf16, "fp32": bf16 / 9}
    )
    return given(rng.uniform(0.2, 5) * bf16, rng.uniform(0.2, 5) * bandwidth, device, "fp8")(rng, dtype)


def make_at_the_ridge(rng, dtype):
    device, bytes = machine("H100"), int(rng.integers(10**9, 10**10))
    return given(bytes * device.ridge("bf16"), bytes, device, "bf16")(rng, dtype)


def oracle(flops, bytes, machine, dtype):
    return roofline.roofline_seconds(flops, bytes, machine, dtype)


def both_added(flops, bytes, machine, dtype):
    return flops / machine.flops[dtype] + bytes / machine.bandwidth


def the_shorter(flops, bytes, machine, dtype):
    return min(flops / machine.flops[dtype], bytes / machine.bandwidth)


def arithmetic_alone(flops, bytes, machine, dtype):
    return flops / machine.flops[dtype]


def memory_alone(flops, bytes, machine, dtype):
    return bytes / machine.bandwidth


def always_bf16(flops, bytes, machine, dtype):
    return max(flops / machine.flops["bf16"], bytes / machine.bandwidth)


def microseconds(flops, bytes, machine, dtype):
    return 1e6 * max(flops / machine.flops[dtype], bytes / machine.bandwidth)


def network_for_memory(flops, bytes, machine, dtype):
    return max(flops / machine.flops[dtype], bytes / machine.network)


def multiply_adds_assumed(flops, bytes, machine, dtype):
    return max(2 * flops / machine.flops[dtype], bytes / machine.bandwidth)


def intensity_from_zero_bytes(flops, bytes, machine, dtype):
    if flops / bytes > machine.flops[dtype] / machine.bandwidth:
        return flops / machine.flops[dtype]
    return bytes / machine.bandwidth


def a_bare_lookup(flops, bytes, machine, dtype):
    return max(flops / machine.flops[dtype], bytes / machine.bandwidth)


def an_error_without_the_names(flops, bytes, machine, dtype):
    if dtype not in machine.flops:
        raise ValueError(f"no rate for {dtype}")
    return max(flops / machine.flops[dtype], bytes / machine.bandwidth)


EXERCISE = Exercise(
    id="roofline_seconds",
    chapter=7,
    order=5,
    title="the bound",
    checks="least seconds: the longer of arithmetic and reading",
    points=2,
    difficulty=1,
    minutes=6,
    make=make,
    oracle=oracle,
    cases=(
        Case("a slow machine by hand"),
        Case("16 heads on an H200", make=decode("H200", 16, 1152)),
        Case("128 heads on an H200", make=decode("H200", 128, 1152)),
        Case("128 heads in fp8 on an H100", make=decode("H100", 128, 576, "fp8")),
        Case("float32 on an A100", make=decode("A100", 8, 2304, "fp32")),
        Case("a machine drawn at random", make=make_drawn),
        Case("at the ridge", make=make_at_the_ridge),
        Case("nothing read", make=given(10**15, 0, MACHINES["B200"], "bf16")),
        Case("nothing computed", make=given(0, 10**9, MACHINES["B200"], "bf16")),
        Case("nothing at all", make=given(0, 0, MACHINES["B200"], "fp8")),
        Case(
            "a dtype without a rate",
            make=given(10**15, 10**9, SLOW, "fp8"),
            raises=Raises("ValueError", names=("bf16", "fp32")),
        ),
    ),
    hints=(
        "Two things have to be done, and the machine has a rate for each. How long would each take alone?",
        "A good kernel reads the next tile while it computes on this one. So the times do not add up: the longer one "
        "hides the other.",
        "Fill the gaps:\n\n"
        "    ...  # a ValueError for a dtype that the machine has no rate for\n"
        "    arithmetic, memory = ____, ____\n"
        "    return ____",
    ),
    mistakes=(
        Mistake("both added", "the two times are added. They overlap: only the longer one counts", both_added),
        Mistake("arithmetic alone", "the reading is left out, and here it takes longer", arithmetic_alone),
        Mistake("memory alone", "the arithmetic is left out, and here it takes longer", memory_alone),
        Mistake(
            "the shorter", "this is the shorter of the two times. Both must be over: the longer one counts", the_shorter
        ),
        Mistake("always bf16", "the rate of bf16 was taken. The machine has one for each dtype", always_bf16),
        Mistake("microseconds", "these are microseconds; seconds are asked for", microseconds),
        Mistake(
            "network for memory",
            "the bytes were divided by the network's rate. The cache lies in the GPU's memory: bandwidth",
            network_for_memory,
        ),
        Mistake(
            "taken for multiply-adds",
            "the FLOP were doubled. They are FLOP already, two for each multiply-add",
            multiply_adds_assumed,
        ),
    ),
    mutants=(
        Mutant(both_added, "both added"),
        Mutant(the_shorter, "the shorter"),
        Mutant(arithmetic_alone, "arithmetic alone"),
        Mutant(memory_alone, "memory alone"),
        Mutant(always_bf16, "always bf16"),
        Mutant(microseconds, "microseconds"),
        Mutant(network_for_memory, "network for memory"),
        Mutant(multiply_adds_assumed, "taken for multiply-adds"),
        Mutant(a_bare_lookup, "it raised KeyError"),
        Mutant(an_error_without_the_names, "does not name bf16, fp32"),
        Mutant(intensity_from_zero_bytes, "ZeroDivisionError", verdict="error"),
    ),
)
