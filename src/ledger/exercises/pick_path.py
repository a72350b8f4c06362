"""Chapter 5: which route to run."""

from dataclasses import replace

from ledger.account.crossover import absorb_steps, materialize_steps, widths
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.models import model as published


def at(name, **changed):
    """A maker of inputs for the model called ``name``, with some of its sizes changed."""

    def make(rng, dtype, new_tokens, cached_tokens):
        model = replace(published(name), **changed)
        return {"new_tokens": new_tokens, "cached_tokens": cached_tokens, "model": model}

    return make


def make_near(rng, dtype):
    """Up to five tokens on either side of the crossing, in a cache of any length."""
    model = published(str(rng.choice(["DeepSeek-V3", "GLM-5.2", "MiniCPM3-4B", "Mistral-Small-4-119B"])))
    cached_tokens = int(rng.integers(600, 9000))
    latent, heads = model.latent_dim, model.nope_dim + model.value_dim
    crossing = cached_tokens * latent * heads // (latent * heads + cached_tokens * (2 * latent - heads))
    return {"new_tokens": crossing + int(rng.integers(-4, 6)), "cached_tokens": cached_tokens, "model": model}


def oracle(new_tokens, cached_tokens, model):
    """Every product of both routes, added up."""
    sizes = widths(model)
    materialize, absorb = (
        sum(step.macs for step in steps(new_tokens, cached_tokens, **sizes))
        for steps in (materialize_steps, absorb_steps)
    )
    return "materialize" if materialize < absorb else "absorb"


def swapped(new_tokens, cached_tokens, model):
    projection = model.latent_dim * (model.nope_dim + model.value_dim)
    extra = 2 * model.latent_dim - model.nope_dim - model.value_dim
    dearer = new_tokens * projection + new_tokens * cached_tokens * extra - cached_tokens * projection
    return "materialize" if dearer <= 0 else "absorb"


def ties_materialize(new_tokens, cached_tokens, model):
    projection = model.latent_dim * (model.nope_dim + model.value_dim)
    extra = 2 * model.latent_dim - model.nope_dim - model.value_dim
    dearer = new_tokens * projection + new_tokens * cached_tokens * extra - cached_tokens * projection
    return "absorb" if dearer < 0 else "materialize"


def one_number_for_all_models(new_tokens, cached_tokens, model):
    return "absorb" if new_tokens <= 512 / 3 else "materialize"


def long_context_rule(new_tokens, cached_tokens, model):
    extra = 2 * model.latent_dim - model.nope_dim - model.value_dim
    never_crosses = extra <= 0
    projection = model.latent_dim * (model.nope_dim + model.value_dim)
    return "absorb" if never_crosses or new_tokens * extra <= projection else "materialize"


def by_label(new_tokens, cached_tokens, model):
    return "absorb" if new_tokens <= 1 else "materialize"


def projections_only(new_tokens, cached_tokens, model):
    return "absorb" if new_tokens <= cached_tokens else "materialize"


def attention_only(new_tokens, cached_tokens, model):
    return "absorb" if 2 * model.latent_dim <= model.nope_dim + model.value_dim else "materialize"


def always_absorb(new_tokens, cached_tokens, model):
    return "absorb"


def rope_on_one_side(new_tokens, cached_tokens, model):
    heads = model.nope_dim + model.value_dim
    projection = model.latent_dim * heads
    absorb = new_tokens * projection + new_tokens * cached_tokens * (2 * model.latent_dim + model.rope_dim)
    materialize = cached_tokens * projection + new_tokens * cached_tokens * heads
    return "absorb" if absorb <= materialize else "materialize"


def crossing_in_floats(new_tokens, cached_tokens, model):
    projection = float(model.latent_dim * (model.nope_dim + model.value_dim))
    extra = 2 * model.latent_dim - model.nope_dim - model.value_dim
    absorb = new_tokens * projection + new_tokens * cached_tokens * extra
    return "absorb" if absorb <= cached_tokens * projection else "materialize"


def capitals(new_tokens, cached_tokens, model):
    return "Absorb" if new_tokens <= 1 else "Materialize"


EXERCISE = Exercise(
    id="pick_path",
    chapter=5,
    order=6,
    title="which route to run",
    checks="the route with fewer multiply-adds for a step of a given model",
    points=2,
    difficulty=2,
    minutes=8,
    make=at("DeepSeek-V3"),
    oracle=oracle,
    cases=(
        Case("decode at DeepSeek-V3", {"new_tokens": 1, "cached_tokens": 4096}),
        Case("prefill at DeepSeek-V3", {"new_tokens": 2048, "cached_tokens": 4096}),
        Case("the last token below the crossing", {"new_tokens": 163, "cached_tokens": 4096}),
        Case("the first token above it", {"new_tokens": 164, "cached_tokens": 4096}),
        Case("a tie", {"new_tokens": 128, "cached_tokens": 512}),
        Case("300 tokens at GLM-5.2", {"new_tokens": 300, "cached_tokens": 4096}, make=at("GLM-5.2")),
        Case("100 tokens at MiniCPM3-4B", {"new_tokens": 100, "cached_tokens": 4096}, make=at("MiniCPM3-4B")),
        Case("a short cache", {"new_tokens": 90, "cached_tokens": 100}),
        Case("near the crossing, drawn at random", make=make_near),
        Case("empty cache", {"new_tokens": 1, "cached_tokens": 0}),
        Case("no new token", {"new_tokens": 0, "cached_tokens": 300}),
        Case(
            "heads wider than the latents",
            {"new_tokens": 4000, "cached_tokens": 3000},
            make=at("DeepSeek-V3", latent_dim=96, value_dim=160),
        ),
        Case(
            "heads wider than the latents, a short cache",
            {"new_tokens": 200, "cached_tokens": 100},
            make=at("DeepSeek-V3", latent_dim=96, value_dim=160),
        ),
        Case("no new token, empty cache", {"new_tokens": 0, "cached_tokens": 0}),
        # Both routes pay the same for a pair, so one more new token than cached ones decides.
        Case(
            "more than a float counts exactly",
            {"new_tokens": 10**17 + 1, "cached_tokens": 10**17},
            make=at("DeepSeek-V3", latent_dim=128),
        ),
    ),
    hints=(
        "The two exercises with _macs in their names answer this already. What do you compare, and which way does a "
        "tie go?",
        "The model carries all widths as attributes: latent_dim, nope_dim, rope_dim, value_dim, num_heads. Heads and "
        "rope cancel in the comparison, so a short expression in integers is enough; do not divide, since the "
        "denominator may be negative.",
        "Fill the gaps:\n\n"
        "    projection = model.latent_dim * ____  # one token, one head\n"
        "    materialize = cached_tokens * projection + ____\n"
        "    absorb = ____ * projection + ____\n"
        '    return "absorb" if ____ else "materialize"',
    ),
    mistakes=(
        Mistake("a tie is absorb", "both routes cost the same here, and then the answer is absorb", ties_materialize),
        Mistake(
            "rope dims on one side",
            "the rope dims are counted for absorb alone. Both routes score them, so they cancel",
            rope_on_one_side,
        ),
        Mistake(
            "the long-context rule",
            "the crossing is lower in a short cache. Compare the counts of this step, not a limit",
            long_context_rule,
        ),
        Mistake(
            "one number for all models",
            "170.67 new tokens is DeepSeek-V3's crossing in a long context. Other widths cross elsewhere",
            one_number_for_all_models,
        ),
        Mistake(
            "by label",
            "one token is taken for decode and more for prefill. The counts know no labels: absorb wins up to the "
            "crossing",
            by_label,
        ),
        Mistake(
            "projections only",
            "the projections alone are compared. The pairs cost more on one route than on the other",
            projections_only,
        ),
        Mistake(
            "attention only",
            "the pairs alone are compared. Each route has a projection to pay as well",
            attention_only,
        ),
        Mistake("always absorb", "absorb is not always the cheaper route", always_absorb),
        Mistake("names swapped", "this is the dearer route in every case", swapped),
    ),
    mutants=(
        Mutant(ties_materialize, "a tie is absorb"),
        Mutant(rope_on_one_side, "rope dims on one side"),
        Mutant(long_context_rule, "the long-context rule"),
        Mutant(one_number_for_all_models, "one number for all models"),
        Mutant(by_label, "by label"),
        Mutant(projections_only, "projections only"),
        Mutant(attention_only, "attention only"),
        Mutant(always_absorb, "always absorb"),
        Mutant(swapped, "names swapped"),
        Mutant(crossing_in_floats, "wanted 'materialize'"),
        Mutant(capitals, "wanted 'absorb'"),
    ),
)
