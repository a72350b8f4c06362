"""Chapter 6: what a token leaves in the cache of one attention block, as a latent and as full keys and values."""

from dataclasses import replace

from ledger.account import cache
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import drawn
from ledger.models import DEEPSEEK_V3, GLM_47_FLASH, GLM_52, KIMI_K25, MINICPM3


def of(shape):
    """A maker of one published model."""
    return lambda rng, dtype: {"model": shape}


def make_small(rng, dtype):
    return {
        "model": replace(DEEPSEEK_V3, name="by hand", num_heads=2, latent_dim=3, nope_dim=2, rope_dim=1, value_dim=2)
    }


def make_drawn(rng, dtype):
    sizes = drawn(
        rng, num_heads=(3, 100), latent_dim=(200, 900), nope_dim=(30, 190), rope_dim=(10, 28), value_dim=(200, 300)
    )
    return {"model": replace(DEEPSEEK_V3, name="drawn at random", **sizes)}


def make_one(rng, dtype):
    return {"model": replace(DEEPSEEK_V3, name="ones", num_heads=1, latent_dim=1, nope_dim=1, rope_dim=1, value_dim=1)}


def make_no_rope(rng, dtype):
    return {"model": replace(GLM_52, name="without rope", rope_dim=0)}


def oracle(model):
    return tuple(cache.cache_values_per_token(model))


def rope_forgotten(model):
    return model.latent_dim, model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim)


def rope_left_out_of_the_keys(model):
    return model.latent_dim + model.rope_dim, model.num_heads * (model.nope_dim + model.value_dim)


def rope_kept_once_in_full(model):
    return model.latent_dim + model.rope_dim, model.num_heads * (model.nope_dim + model.value_dim) + model.rope_dim


def a_heads_key_for_the_latent(model):
    qk_dim = model.nope_dim + model.rope_dim
    return qk_dim, model.num_heads * (qk_dim + model.value_dim)


def one_head_in_full(model):
    return model.latent_dim + model.rope_dim, model.nope_dim + model.rope_dim + model.value_dim


def keys_alone(model):
    return model.latent_dim + model.rope_dim, model.num_heads * (model.nope_dim + model.rope_dim)


def values_as_wide_as_keys(model):
    return model.latent_dim + model.rope_dim, model.num_heads * 2 * (model.nope_dim + model.rope_dim)


def an_entry_for_each_head(model):
    qk_dim = model.nope_dim + model.rope_dim
    return model.num_heads * (model.latent_dim + model.rope_dim), model.num_heads * (qk_dim + model.value_dim)


def all_layers(model):
    qk_dim = model.nope_dim + model.rope_dim
    layers = model.num_mla_layers
    return layers * (model.latent_dim + model.rope_dim), layers * model.num_heads * (qk_dim + model.value_dim)


def bytes_in_bf16(model):
    qk_dim = model.nope_dim + model.rope_dim
    return 2 * (model.latent_dim + model.rope_dim), 2 * model.num_heads * (qk_dim + model.value_dim)


EXERCISE = Exercise(
    id="cache_values_per_token",
    chapter=6,
    order=1,
    title="values a token",
    checks="values cached for a token in one attention block: (latent, full)",
    points=1,
    difficulty=1,
    minutes=6,
    make=make_small,
    oracle=oracle,
    returns=("latent", "full"),
    cases=(
        Case("small widths"),
        Case("DeepSeek-V3", make=of(DEEPSEEK_V3)),
        Case("Kimi-K2.5", make=of(KIMI_K25)),
        Case("GLM-5.2", make=of(GLM_52)),
        Case("GLM-4.7-Flash", make=of(GLM_47_FLASH)),
        Case("MiniCPM3-4B", make=of(MINICPM3)),
        Case("one of everything", make=make_one),
        Case("no rope", make=make_no_rope),
        Case("widths drawn at random", make=make_drawn),
    ),
    hints=(
        "First what an engine stores: one entry serves all heads. Which two pieces has it, and which of them is not "
        "made from the latent?",
        "Now the full cache. Write down what one head's key looks like when the scores are taken: it is as wide as the "
        "query that it meets. Then add the value, and ask how many heads there are.",
        "Fill the gaps:\n\n    latent = ____ + ____\n    full = model.num_heads * (____ + model.rope_dim + ____)",
    ),
    mistakes=(
        Mistake(
            "rope dims forgotten",
            "the entry is counted as the latent alone. The rotary key is stored beside it, once for all heads",
            rope_forgotten,
        ),
        Mistake(
            "rope left out of the full keys",
            "each head's full key is nope + rope wide: the shared rotary key is repeated in it",
            rope_left_out_of_the_keys,
        ),
        Mistake(
            "rope shared in the full cache",
            "the full cache keeps whole keys, so the rotary part stands in every head's key, not once",
            rope_kept_once_in_full,
        ),
        Mistake(
            "192 where 576 belongs",
            "nope + rope is the width of one head's query. The cache entry is latent + rope",
            a_heads_key_for_the_latent,
        ),
        Mistake("one head in full", "the full cache has a key and a value for every head", one_head_in_full),
        Mistake("keys alone", "the full cache holds values too, value_dim wide", keys_alone),
        Mistake(
            "values as wide as keys",
            "a value is value_dim wide, which need not be the width of a key",
            values_as_wide_as_keys,
        ),
        Mistake(
            "an entry for each head", "the entry is shared: it does not grow with the heads", an_entry_for_each_head
        ),
        Mistake(
            "all layers", "these are the values of all layers. Those of one attention block are asked for", all_layers
        ),
        Mistake("bytes for values", "these are bytes in bf16. Values are asked for", bytes_in_bf16),
    ),
    mutants=(
        Mutant(rope_forgotten, "rope dims forgotten"),
        Mutant(rope_left_out_of_the_keys, "rope left out of the full keys"),
        Mutant(rope_kept_once_in_full, "rope shared in the full cache"),
        Mutant(a_heads_key_for_the_latent, "192 where 576 belongs"),
        Mutant(one_head_in_full, "one head in full"),
        Mutant(keys_alone, "keys alone"),
        Mutant(values_as_wide_as_keys, "values as wide as keys"),
        Mutant(an_entry_for_each_head, "an entry for each head"),
        Mutant(all_layers, "all layers"),
        Mutant(bytes_in_bf16, "bytes for values"),
    ),
)
