"""Chapter 8: the weights of one expert."""

from dataclasses import replace
from math import prod

from ledger.exercises.base import Case, Exercise, Mistake, Mutant, Raises
from ledger.exercises.making import drawn
from ledger.models import DEEPSEEK_V3, GLM_47_FLASH, KIMI_K3, LONGCAT_FLASH, MINICPM3

SMALL = replace(DEEPSEEK_V3, name="by hand", hidden_dim=5, expert_dim=2, num_experts=4, num_shared_experts=2)


def make(rng, dtype):
    return given(SMALL)(rng, dtype)


def given(shape):
    """A maker of exactly this model."""
    return lambda rng, dtype: {"model": shape}


def make_drawn(rng, dtype):
    sizes = drawn(rng, hidden_dim=(900, 9000), expert_dim=(300, 4000), num_experts=(10, 90), num_shared_experts=(2, 5))
    return {"model": replace(KIMI_K3, name="drawn", **sizes)}


def oracle(model):
    """Gate and up lead to the hidden width of the expert, down leads back."""
    wide, narrow = model.hidden_dim, model.expert_dim
    return sum(map(prod, [(wide, narrow), (wide, narrow), (narrow, wide)]))


def without_a_gate(model):
    return 2 * model.hidden_dim * model.expert_dim


def with_the_shared_ones(model):
    return 3 * model.hidden_dim * model.expert_dim * (1 + model.num_shared_experts)


def all_of_them(model):
    return 3 * model.hidden_dim * model.expert_dim * model.num_experts


def those_of_a_token(model):
    return 3 * model.hidden_dim * model.expert_dim * model.experts_per_token


def flops(model):
    return 6 * model.hidden_dim * model.expert_dim


def dense_taken_for_none(model):
    return 3 * model.hidden_dim * (model.expert_dim or 0)


EXERCISE = Exercise(
    id="expert_params",
    chapter=8,
    order=6,
    title="weights of an expert",
    checks="weights of one routed expert",
    points=1,
    difficulty=1,
    minutes=4,
    make=make,
    oracle=oracle,
    cases=(
        Case("small widths by hand"),
        Case("DeepSeek-V3", make=given(DEEPSEEK_V3)),
        Case("Kimi-K3, 16 experts a token", make=given(KIMI_K3)),
        Case("GLM-4.7-Flash", make=given(GLM_47_FLASH)),
        Case("LongCat-Flash, no shared expert", make=given(LONGCAT_FLASH)),
        Case("widths drawn at random", make=make_drawn),
        Case("a dense model", make=given(MINICPM3), raises=Raises("ValueError", ("MiniCPM3-4B",))),
    ),
    hints=(
        "An expert is a small feed-forward network. These models gate theirs: how many matrices are that?",
        "Gate and up both go from hidden_dim to expert_dim, and down goes back. A model without experts has None for "
        "expert_dim: refuse it, and say which model it is.",
        "Fill the gaps:\n\n"
        "    if ____ is None:\n"
        '        raise ValueError(f"{model.name} ____")\n'
        "    return ____ * model.hidden_dim * ____",
    ),
    mistakes=(
        Mistake("no gate", "these experts have three matrices: gate, up and down", without_a_gate),
        Mistake(
            "shared experts counted",
            "the shared experts are counted too. One routed expert is asked for",
            with_the_shared_ones,
        ),
        Mistake("all experts", "these are the weights of all routed experts; one is asked for", all_of_them),
        Mistake("a token's experts", "these are the experts of a token; one is asked for", those_of_a_token),
        Mistake("twice as many", "this is twice as many: FLOP of a token, or bytes of bf16. Count weights", flops),
    ),
    mutants=(
        Mutant(without_a_gate, "no gate"),
        Mutant(with_the_shared_ones, "shared experts counted"),
        Mutant(all_of_them, "all experts"),
        Mutant(those_of_a_token, "a token's experts"),
        Mutant(flops, "twice as many"),
        Mutant(dense_taken_for_none, "ValueError"),
    ),
)
