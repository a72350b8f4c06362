"""Chapter 8: how often a draft must be right."""

from ledger.exercises.base import Case, Exercise, Mistake, Mutant


def make(rng, dtype, step_ratio=1.5):
    return {"step_ratio": step_ratio}


def given(step_ratio):
    """A maker of exactly this ratio."""
    return lambda rng, dtype: {"step_ratio": step_ratio}


def make_drawn(rng, dtype):
    return {"step_ratio": float(rng.uniform(1.05, 1.95))}


def oracle(step_ratio):
    """Where the straight line of the gain, (1 + p) / ratio, through its values at p = 0 and p = 1 meets 1."""
    at_0, at_1 = 1 / step_ratio, 2 / step_ratio
    return (1 - at_0) / (at_1 - at_0)


def the_ratio_itself(step_ratio):
    return float(step_ratio)


def its_reciprocal(step_ratio):
    return 1 / step_ratio


def share_of_the_step(step_ratio):
    return (step_ratio - 1) / step_ratio


def half_of_it(step_ratio):
    return step_ratio / 2


def the_other_way_round(step_ratio):
    return 1.0 - step_ratio


def kept_below_1(step_ratio):
    return min(step_ratio - 1.0, 1.0)


def kept_above_0(step_ratio):
    return max(step_ratio - 1.0, 0.0)


def kept_from_0_to_1(step_ratio):
    return min(max(step_ratio - 1.0, 0.0), 1.0)


def never_is_infinite(step_ratio):
    ratio = step_ratio - 1.0
    return ratio if ratio <= 1 else float("inf")


EXERCISE = Exercise(
    id="break_even_acceptance",
    chapter=8,
    order=9,
    title="break-even acceptance",
    checks="the acceptance at which one draft neither gains nor loses",
    points=1,
    difficulty=1,
    minutes=3,
    make=make,
    oracle=oracle,
    cases=(
        Case("a step half as long again, by hand"),
        Case("a ratio drawn at random", make=make_drawn),
        Case("drafts for nothing", make=given(1.0)),
        Case("a step twice as long", make=given(2.0)),
        Case("a step more than twice as long", make=given(2.25)),
        Case("a step that is shorter with a draft", make=given(0.875)),
    ),
    hints=(
        "What does a step with one draft add on average, and what must that be divided by to compare it with a step "
        "without?",
        "It adds 1 + p tokens in step_ratio times the time. Set that equal to one token in one time, and solve for p.",
        "Fill the gaps:\n\n    # (1 + p) / step_ratio == 1\n    return ____",
    ),
    mistakes=(
        Mistake("the ratio itself", "this is the ratio. A step adds a token even without the draft", the_ratio_itself),
        Mistake("its reciprocal", "this is 1 over the ratio. Solve (1 + p) / ratio = 1 for p", its_reciprocal),
        Mistake(
            "a share of the longer step",
            "this is the part of the longer step that the draft takes. It must be earned in tokens of the shorter one",
            share_of_the_step,
        ),
        Mistake("half of the ratio", "this is half of the ratio. A step adds 1 + p tokens, not 2 p", half_of_it),
        Mistake(
            "the sign turned", "the sign is turned: a longer step asks for a higher acceptance", the_other_way_round
        ),
        Mistake(
            "cut at 1",
            "the result was cut at 1. Above 1 says by how much it cannot pay: return it as it is",
            kept_below_1,
        ),
        Mistake("cut at 0", "the result was cut at 0. Return it as it is", kept_above_0),
        Mistake(
            "cut at 0 and at 1",
            "the result was kept from 0 to 1. Beyond them it says that a draft always or never pays, and by how much: "
            "return it as it is",
            kept_from_0_to_1,
        ),
    ),
    mutants=(
        Mutant(the_ratio_itself, "the ratio itself"),
        Mutant(its_reciprocal, "its reciprocal"),
        Mutant(share_of_the_step, "a share of the longer step"),
        Mutant(half_of_it, "half of the ratio"),
        Mutant(the_other_way_round, "the sign turned"),
        Mutant(kept_below_1, "cut at 1"),
        Mutant(kept_above_0, "cut at 0"),
        Mutant(kept_from_0_to_1, "cut at 0 and at 1"),
        Mutant(never_is_infinite, "wanted"),
    ),
)
