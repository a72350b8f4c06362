"""Chapter 10: what one query and one token cost, attention and indexer."""

from dataclasses import replace

from ledger.account.attention import matmul_macs
from ledger.account.crossover import absorb_macs, materialize_macs, widths
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import drawn
from ledger.models import DEEPSEEK_V3, DEEPSEEK_V32, GLM_5, GLM_52, MINICPM3

#: The small model of the statements.
SMALL = replace(
    DEEPSEEK_V32,
    name="small",
    num_heads=2,
    latent_dim=3,
    nope_dim=1,
    rope_dim=1,
    value_dim=1,
    num_mla_layers=4,
    index_heads=1,
    index_dim=2,
    num_indexer_layers=2,
)
#: No two widths alike.
ODD = replace(
    GLM_5,
    name="odd widths",
    num_heads=11,
    latent_dim=386,
    nope_dim=70,
    rope_dim=26,
    value_dim=50,
    index_heads=7,
    index_dim=90,
)


def make(rng, dtype):
    return of(SMALL)(rng, dtype)


def of(shape):
    """A maker of one model."""
    return lambda rng, dtype: {"model": shape}


def drawn_model(rng, **changed):
    """A model with an indexer, of widths drawn at random; an absorbed pair costs more than an expanded one."""
    sizes = drawn(
        rng,
        num_heads=(10, 130),
        latent_dim=(300, 900),
        nope_dim=(70, 130),
        rope_dim=(20, 65),
        value_dim=(140, 250),
        index_heads=(2, 9),
        index_dim=(66, 200),
    )
    return replace(GLM_52, name="drawn", **{**sizes, **changed})


def make_drawn(rng, dtype):
    return {"model": drawn_model(rng)}


def oracle(model):
    """Twice the multiply-adds of each route's products for one new and one cached token."""
    sizes = widths(model)
    routes = (absorb_macs(1, 1, **sizes), materialize_macs(1, 1, **sizes))
    index_macs = [matmul_macs(1, model.index_dim, 1) for _ in range(model.index_heads or 0)]
    return *(2 * route["attention"] for route in routes), 2 * sum(index_macs)


def multiply_adds(model):
    absorbed = model.num_heads * (2 * model.latent_dim + model.rope_dim)
    expanded = model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim)
    return absorbed, expanded, model.index_heads * model.index_dim if model.index_heads else 0


def one_head(model):
    absorbed = 2 * (2 * model.latent_dim + model.rope_dim)
    return absorbed, 2 * (model.nope_dim + model.rope_dim + model.value_dim), 2 * (model.index_dim or 0)


def scores_alone(model):
    absorbed = 2 * model.num_heads * (model.latent_dim + model.rope_dim)
    expanded = 2 * model.num_heads * (model.nope_dim + model.rope_dim)
    return absorbed, expanded, 2 * model.index_heads * model.index_dim if model.index_heads else 0


def rope_forgotten(model):
    absorbed = 4 * model.num_heads * model.latent_dim
    expanded = 2 * model.num_heads * (model.nope_dim + model.value_dim)
    return absorbed, expanded, 2 * model.index_heads * model.index_dim if model.index_heads else 0


def rope_mixed(model):
    absorbed = 4 * model.num_heads * (model.latent_dim + model.rope_dim)
    expanded = 2 * model.num_heads * (model.nope_dim + 2 * model.rope_dim + model.value_dim)
    return absorbed, expanded, 2 * model.index_heads * model.index_dim if model.index_heads else 0


def rope_mixed_when_absorbed(model):
    absorbed = 4 * model.num_heads * (model.latent_dim + model.rope_dim)
    expanded = 2 * model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim)
    return absorbed, expanded, 2 * model.index_heads * model.index_dim if model.index_heads else 0


def rope_left_out_when_expanded(model):
    absorbed = 2 * model.num_heads * (2 * model.latent_dim + model.rope_dim)
    expanded = 2 * model.num_heads * (model.nope_dim + model.value_dim)
    return absorbed, expanded, 2 * model.index_heads * model.index_dim if model.index_heads else 0


def nope_for_value(model):
    absorbed = 2 * model.num_heads * (2 * model.latent_dim + model.rope_dim)
    expanded = 2 * model.num_heads * (2 * model.nope_dim + model.rope_dim)
    return absorbed, expanded, 2 * model.index_heads * model.index_dim if model.index_heads else 0


def attention_heads_in_the_indexer(model):
    absorbed = 2 * model.num_heads * (2 * model.latent_dim + model.rope_dim)
    expanded = 2 * model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim)
    return absorbed, expanded, 2 * model.num_heads * model.index_dim if model.index_heads else 0


def one_indexer_head(model):
    absorbed = 2 * model.num_heads * (2 * model.latent_dim + model.rope_dim)
    expanded = 2 * model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim)
    return absorbed, expanded, 2 * model.index_dim if model.index_heads else 0


def indexer_mixes_too(model):
    absorbed = 2 * model.num_heads * (2 * model.latent_dim + model.rope_dim)
    expanded = 2 * model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim)
    return absorbed, expanded, 4 * model.index_heads * model.index_dim if model.index_heads else 0


def indexer_forgotten(model):
    absorbed = 2 * model.num_heads * (2 * model.latent_dim + model.rope_dim)
    return absorbed, 2 * model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim), 0


def expanded_first(model):
    absorbed = 2 * model.num_heads * (2 * model.latent_dim + model.rope_dim)
    expanded = 2 * model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim)
    return expanded, absorbed, 2 * model.index_heads * model.index_dim if model.index_heads else 0


def no_indexer_not_thought_of(model):
    absorbed = 2 * model.num_heads * (2 * model.latent_dim + model.rope_dim)
    expanded = 2 * model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim)
    return absorbed, expanded, 2 * model.index_heads * model.index_dim


EXERCISE = Exercise(
    id="pair_flops",
    chapter=10,
    order=7,
    title="the price of a pair",
    checks="FLOP of a query and a token: absorbed, expanded, and the indexer's",
    points=2,
    difficulty=1,
    minutes=8,
    make=make,
    oracle=oracle,
    returns=("absorbed", "expanded", "indexer"),
    cases=(
        Case("small widths by hand"),
        Case("DeepSeek-V3.2", make=of(DEEPSEEK_V32)),
        Case("GLM-5", make=of(GLM_5)),
        Case("GLM-5.2", make=of(GLM_52)),
        Case("DeepSeek-V3, without an indexer", make=of(DEEPSEEK_V3)),
        Case("MiniCPM3-4B, without an indexer", make=of(MINICPM3)),
        Case("odd widths", make=of(ODD)),
        Case("widths drawn at random", make=make_drawn),
        Case("one head", make=of(replace(ODD, name="one head", num_heads=1, index_heads=1))),
    ),
    hints=(
        "Attention makes two products for a pair, one for the score and one for the mix. How wide is each of them in "
        "the cache entry, and how wide with a head's own key and value?",
        "A product of two vectors of width w takes w multiply-adds, 2w FLOP. The entry has a latent and a rotary part: "
        "which of them is mixed? The indexer only scores, and its head count is not that of attention.",
        "Fill the gaps:\n\n"
        "    absorbed = 2 * ____ * (____ + ____)  # score, mix\n"
        "    expanded = 2 * ____ * (____ + ____)  # score, mix\n"
        "    indexer = ____  # 0 where model.index_heads is None",
    ),
    mistakes=(
        Mistake("multiply-adds", "these are multiply-adds. Each is 2 FLOP", multiply_adds),
        Mistake("one head", "these are the FLOP of one head. Every head scores and mixes for itself", one_head),
        Mistake(
            "scores alone", "the mix is missing: after the score each head adds up latents or values", scores_alone
        ),
        Mistake("rope part forgotten", "the score has a rope part too, in both forms", rope_forgotten),
        Mistake("rope part mixed", "the rope part is scored, and not mixed: it counts once", rope_mixed),
        Mistake(
            "rope part of the entry mixed",
            "the absorbed form mixes the whole entry. Its rope part is scored, and only the latent is mixed",
            rope_mixed_when_absorbed,
        ),
        Mistake(
            "rope part left out of the expanded key",
            "the expanded key has no rope part here. It is nope_dim + rope_dim wide",
            rope_left_out_when_expanded,
        ),
        Mistake(
            "nope for value",
            "the value is counted nope_dim wide. It is value_dim wide, which is another width in some models",
            nope_for_value,
        ),
        Mistake(
            "attention's heads in the indexer",
            "the indexer was counted with attention's heads. It has index_heads of its own",
            attention_heads_in_the_indexer,
        ),
        Mistake(
            "one indexer head",
            "the indexer was counted with one head. The key is shared, but each head scores it",
            one_indexer_head,
        ),
        Mistake("the indexer mixes", "the indexer was counted with a mix. It makes a score alone", indexer_mixes_too),
        Mistake("indexer forgotten", "the indexer is 0 in a model that has one", indexer_forgotten),
        Mistake("expanded first", "absorbed and expanded are swapped: absorbed comes first", expanded_first),
    ),
    mutants=(
        Mutant(multiply_adds, "multiply-adds"),
        Mutant(one_head, "one head"),
        Mutant(scores_alone, "scores alone"),
        Mutant(rope_forgotten, "rope part forgotten"),
        Mutant(rope_mixed, "rope part mixed"),
        Mutant(rope_mixed_when_absorbed, "rope part of the entry mixed"),
        Mutant(rope_left_out_when_expanded, "rope part left out of the expanded key"),
        Mutant(nope_for_value, "nope for value"),
        Mutant(attention_heads_in_the_indexer, "attention's heads in the indexer"),
        Mutant(one_indexer_head, "one indexer head"),
        Mutant(indexer_mixes_too, "the indexer mixes"),
        Mutant(indexer_forgotten, "indexer forgotten"),
        Mutant(expanded_first, "expanded first"),
        Mutant(no_indexer_not_thought_of, "TypeError", verdict="error"),
    ),
)
