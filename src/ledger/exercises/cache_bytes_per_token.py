"""Chapter 6: what a token's cache entry takes in bytes, in three layouts."""

from dataclasses import replace

from ledger.account import cache
from ledger.exercises.base import Case, Exercise, Mistake, Mutant, Raises
from ledger.exercises.making import drawn
from ledger.models import DEEPSEEK_V3, DEEPSEEK_V32, MINICPM3, MISTRAL_SMALL_4


def make(rng, dtype, cache_format):
    raise NotImplementedError("every case has a maker of its own")


def of(shape, cache_format):
    """A maker of one published model in one format."""
    return lambda rng, dtype: {"model": shape, "cache_format": cache_format}


def with_widths(latent_dim, rope_dim, cache_format):
    """A maker of a model with these two widths."""
    shape = replace(DEEPSEEK_V3, name="by hand", latent_dim=latent_dim, rope_dim=rope_dim)
    return of(shape, cache_format)


def drawn_in(cache_format):
    """A maker of a model with widths drawn at random; the latent is no multiple of a tile."""

    def make_drawn(rng, dtype):
        sizes = drawn(rng, tiles=(2, 8), rest=(5, 120), rope_dim=(20, 100))
        latent_dim = 128 * sizes["tiles"] + sizes["rest"]
        shape = replace(DEEPSEEK_V3, name="drawn at random", latent_dim=latent_dim, rope_dim=sizes["rope_dim"])
        return {"model": shape, "cache_format": cache_format}

    return make_drawn


def oracle(model, cache_format):
    return cache.cache_bytes_per_token(model, cache_format)


def published_constants(model, cache_format):
    return {"bf16_mla": 1152, "fp8_ds_mla": 656, "fp8_plain_mla": 576}[cache_format]


def scales_forgotten(model, cache_format):
    if cache_format == "bf16_mla":
        return 2 * (model.latent_dim + model.rope_dim)
    return model.latent_dim + (2 if cache_format == "fp8_ds_mla" else 1) * model.rope_dim


def one_scale_for_the_latent(model, cache_format):
    if cache_format == "bf16_mla":
        return 2 * (model.latent_dim + model.rope_dim)
    if cache_format == "fp8_ds_mla":
        return model.latent_dim + 4 + 2 * model.rope_dim
    return model.latent_dim + model.rope_dim


def a_started_tile_without_its_scale(model, cache_format):
    if cache_format == "bf16_mla":
        return 2 * (model.latent_dim + model.rope_dim)
    if cache_format == "fp8_ds_mla":
        return model.latent_dim + 4 * (model.latent_dim // 128) + 2 * model.rope_dim
    return model.latent_dim + model.rope_dim


def scales_over_the_rope_part_too(model, cache_format):
    if cache_format == "bf16_mla":
        return 2 * (model.latent_dim + model.rope_dim)
    if cache_format == "fp8_ds_mla":
        return model.latent_dim - (model.latent_dim + model.rope_dim) // -128 * 4 + 2 * model.rope_dim
    return model.latent_dim + model.rope_dim


def any_other_name_is_plain(model, cache_format):
    if cache_format == "bf16_mla":
        return 2 * (model.latent_dim + model.rope_dim)
    if cache_format == "fp8_ds_mla":
        return model.latent_dim - model.latent_dim // -128 * 4 + 2 * model.rope_dim
    return model.latent_dim + model.rope_dim


def a_bare_lookup(model, cache_format):
    return {
        "bf16_mla": 2 * (model.latent_dim + model.rope_dim),
        "fp8_ds_mla": model.latent_dim - model.latent_dim // -128 * 4 + 2 * model.rope_dim,
        "fp8_plain_mla": model.latent_dim + model.rope_dim,
    }[cache_format]


def an_error_without_the_names(model, cache_format):
    if cache_format == "bf16_mla":
        return 2 * (model.latent_dim + model.rope_dim)
    if cache_format == "fp8_ds_mla":
        return model.latent_dim - model.latent_dim // -128 * 4 + 2 * model.rope_dim
    if cache_format == "fp8_plain_mla":
        return model.latent_dim + model.rope_dim
    raise ValueError(f"no such format: {cache_format}")


def scales_of_one_byte(model, cache_format):
    if cache_format == "bf16_mla":
        return 2 * (model.latent_dim + model.rope_dim)
    if cache_format == "fp8_ds_mla":
        return model.latent_dim - model.latent_dim // -128 + 2 * model.rope_dim
    return model.latent_dim + model.rope_dim


def rope_in_e4m3_too(model, cache_format):
    if cache_format == "bf16_mla":
        return 2 * (model.latent_dim + model.rope_dim)
    if cache_format == "fp8_ds_mla":
        return model.latent_dim - model.latent_dim // -128 * 4 + model.rope_dim
    return model.latent_dim + model.rope_dim


def rope_in_bf16_everywhere(model, cache_format):
    if cache_format == "bf16_mla":
        return 2 * (model.latent_dim + model.rope_dim)
    if cache_format == "fp8_ds_mla":
        return model.latent_dim - model.latent_dim // -128 * 4 + 2 * model.rope_dim
    return model.latent_dim + 2 * model.rope_dim


def rope_forgotten(model, cache_format):
    if cache_format == "bf16_mla":
        return 2 * model.latent_dim
    return model.latent_dim + (4 * -(-model.latent_dim // 128) if cache_format == "fp8_ds_mla" else 0)


def values_for_bytes(model, cache_format):
    if cache_format == "fp8_ds_mla":
        return model.latent_dim - model.latent_dim // -128 + model.rope_dim
    return model.latent_dim + model.rope_dim


def indexer_key_added(model, cache_format):
    key = model.index_dim + 4 if model.num_indexer_layers else 0
    if cache_format == "bf16_mla":
        return 2 * (model.latent_dim + model.rope_dim) + key
    if cache_format == "fp8_ds_mla":
        return model.latent_dim - model.latent_dim // -128 * 4 + 2 * model.rope_dim + key
    return model.latent_dim + model.rope_dim + key


EXERCISE = Exercise(
    id="cache_bytes_per_token",
    chapter=6,
    order=2,
    title="bytes a token",
    checks="bytes of a token's entry in one attention block, in the given format",
    points=2,
    difficulty=2,
    minutes=8,
    make=make,
    oracle=oracle,
    cases=(
        Case("DeepSeek-V3 in bf16", make=of(DEEPSEEK_V3, "bf16_mla")),
        Case("DeepSeek-V3.2 in FP8 with scales", make=of(DEEPSEEK_V32, "fp8_ds_mla")),
        Case("DeepSeek-V3 in plain FP8", make=of(DEEPSEEK_V3, "fp8_plain_mla")),
        Case("MiniCPM3-4B in FP8 with scales", make=of(MINICPM3, "fp8_ds_mla")),
        Case("Mistral-Small-4 in bf16", make=of(MISTRAL_SMALL_4, "bf16_mla")),
        Case("one value of each", make=with_widths(1, 1, "fp8_ds_mla")),
        Case("one value more than a tile", make=with_widths(129, 10, "fp8_ds_mla")),
        Case("no rope, plain FP8", make=with_widths(300, 0, "fp8_plain_mla")),
        Case("drawn at random, bf16", make=drawn_in("bf16_mla")),
        Case("drawn at random, with scales", make=drawn_in("fp8_ds_mla")),
        Case("drawn at random, plain", make=drawn_in("fp8_plain_mla")),
        Case(
            "another name",
            make=of(DEEPSEEK_V3, "fp16_mla"),
            raises=Raises("ValueError", names=("bf16_mla", "fp8_ds_mla", "fp8_plain_mla")),
        ),
    ),
    hints=(
        "An entry has two pieces, and a format says for each piece how many bytes a value takes. Write that as a small "
        "table of three rows before you write code.",
        "One row of the table has a third column. A tile of 128 values shares one fp32 scale, and a tile that is not "
        "full needs one as well: round the number of tiles up. `-(-a // b)` does that in whole numbers.",
        "Fill the gaps:\n\n"
        '    if cache_format == "fp8_ds_mla":\n'
        "        tiles = ____\n"
        "        return ____ * model.latent_dim + 4 * tiles + ____ * model.rope_dim\n"
        "    ...  # the other two, and a ValueError that names all three for anything else",
    ),
    mistakes=(
        Mistake(
            "constants",
            "these are the bytes of widths 512 and 64. Compute them from the model's own widths",
            published_constants,
        ),
        Mistake("scales forgotten", "fp8_ds_mla stores an fp32 scale for each tile of 128 values", scales_forgotten),
        Mistake(
            "one scale for the latent",
            "fp8_ds_mla has a scale for each started 128 values of the latent, not one for all of it",
            one_scale_for_the_latent,
        ),
        Mistake(
            "tiles rounded down",
            "a tile that is not full has a scale too: round the number of tiles up",
            a_started_tile_without_its_scale,
        ),
        Mistake(
            "scales over the rope part",
            "the scales are counted over latent and rope part. The rope part is bf16 there, which needs no scale",
            scales_over_the_rope_part_too,
        ),
        Mistake("scales of one byte", "a scale is an fp32 number: 4 bytes", scales_of_one_byte),
        Mistake("rope in e4m3", "fp8_ds_mla keeps the rope part in bf16, 2 bytes a value", rope_in_e4m3_too),
        Mistake("rope in bf16", "fp8_plain_mla stores everything in e4m3, the rope part too", rope_in_bf16_everywhere),
        Mistake("rope dims forgotten", "the rotary key is part of every entry", rope_forgotten),
        Mistake("values for bytes", "these are numbers of values. bf16 takes 2 bytes, fp32 4", values_for_bytes),
        Mistake(
            "indexer's key added",
            "the indexer's key is a cache of its own, and not part of this count",
            indexer_key_added,
        ),
    ),
    mutants=(
        Mutant(published_constants, "constants"),
        Mutant(scales_forgotten, "scales forgotten"),
        Mutant(one_scale_for_the_latent, "one scale for the latent"),
        Mutant(a_started_tile_without_its_scale, "tiles rounded down"),
        Mutant(scales_over_the_rope_part_too, "scales over the rope part"),
        Mutant(scales_of_one_byte, "scales of one byte"),
        Mutant(rope_in_e4m3_too, "rope in e4m3"),
        Mutant(rope_in_bf16_everywhere, "rope in bf16"),
        Mutant(rope_forgotten, "rope dims forgotten"),
        Mutant(values_for_bytes, "values for bytes"),
        Mutant(indexer_key_added, "indexer's key added"),
        Mutant(any_other_name_is_plain, "want a ValueError"),
        Mutant(a_bare_lookup, "it raised KeyError"),
        Mutant(an_error_without_the_names, "does not name bf16_mla, fp8_ds_mla, fp8_plain_mla"),
    ),
)
