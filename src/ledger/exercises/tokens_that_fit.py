"""Chapter 6: how many tokens' cache one GPU holds."""

from dataclasses import replace

from ledger.account import cache
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.models import DEEPSEEK_V3, DEEPSEEK_V32, GLM_52, KIMI_K3, LONGCAT_FLASH, MINICPM3

#: Widths that no published model has: an indexer's key of 96 values, and a latent that does not fill its last tile.
ODD = replace(GLM_52, name="odd widths", latent_dim=450, index_dim=96)
SMALL = replace(DEEPSEEK_V3, name="by hand", num_mla_layers=2, latent_dim=3, rope_dim=1)


def make(rng, dtype):
    return given(1000, SMALL, "bf16_mla", 1)(rng, dtype)


def given(free_bytes, shape, cache_format, tensor_parallel):
    """A maker of exactly these arguments."""
    return lambda rng, dtype: {
        "free_bytes": free_bytes,
        "model": shape,
        "cache_format": cache_format,
        "tensor_parallel": tensor_parallel,
    }


def drawn_for(shape, cache_format, tensor_parallel):
    """A maker that draws the free bytes, 20 to 100 GB."""

    def make_drawn(rng, dtype):
        free_bytes = int(rng.integers(20 * 10**9, 100 * 10**9))
        return given(free_bytes, shape, cache_format, tensor_parallel)(rng, dtype)

    return make_drawn


def make_just_short(rng, dtype):
    tokens = int(rng.integers(1000, 9000))
    free_bytes = tokens * cache.model_bytes_per_token(GLM_52, "bf16_mla") - 1
    return given(free_bytes, GLM_52, "bf16_mla", 1)(rng, dtype)


def oracle(free_bytes, model, cache_format, tensor_parallel):
    return cache.tokens_that_fit(free_bytes, model, cache_format, tensor_parallel)


# A wrong answer travels alone, so each one computes the bytes of an entry for itself.


def shared_by_the_ranks(free_bytes, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    keys = model.num_indexer_layers * (model.index_dim + 4) if model.num_indexer_layers else 0
    return int(tensor_parallel * free_bytes // (model.num_mla_layers * entry + keys))


def without_the_indexer(free_bytes, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    return int(free_bytes // (model.num_mla_layers * entry.get(cache_format, latent + rope)))


def an_indexer_in_every_layer(free_bytes, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    key = model.index_dim + 4 if model.num_indexer_layers else 0
    return int(free_bytes // (model.num_mla_layers * (entry + key)))


def indexer_keys_without_a_scale(free_bytes, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    keys = model.num_indexer_layers * model.index_dim if model.num_indexer_layers else 0
    return int(free_bytes // (model.num_mla_layers * entry + keys))


def indexer_keys_of_132_bytes(free_bytes, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    keys = model.num_indexer_layers * 132 if model.num_indexer_layers else 0
    return int(free_bytes // (model.num_mla_layers * entry + keys))


def tiles_rounded_down(free_bytes, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent + latent // 128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    keys = model.num_indexer_layers * (model.index_dim + 4) if model.num_indexer_layers else 0
    return int(free_bytes // (model.num_mla_layers * entry + keys))


def decoder_layers(free_bytes, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    keys = model.num_indexer_layers * (model.index_dim + 4) if model.num_indexer_layers else 0
    return int(free_bytes // (model.num_layers * entry + keys))


def one_layer(free_bytes, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    key = model.index_dim + 4 if model.num_indexer_layers else 0
    return int(free_bytes // (entry.get(cache_format, latent + rope) + key))


def a_layer_for_the_drafts(free_bytes, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    keys = model.num_indexer_layers * (model.index_dim + 4) if model.num_indexer_layers else 0
    return int(free_bytes // ((model.num_mla_layers + (model.num_mtp_layers or 0)) * entry + keys))


def gib_for_gb(free_bytes, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    keys = model.num_indexer_layers * (model.index_dim + 4) if model.num_indexer_layers else 0
    return int(free_bytes * 10**9 // (2**30 * (model.num_mla_layers * entry + keys)))


def full_keys_and_values(free_bytes, model, cache_format, tensor_parallel):
    each = 2 if cache_format == "bf16_mla" else 1
    values = model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim)
    return int(free_bytes // (model.num_mla_layers * each * values))


def rounded_up(free_bytes, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    keys = model.num_indexer_layers * (model.index_dim + 4) if model.num_indexer_layers else 0
    return int(-(-free_bytes // (model.num_mla_layers * entry + keys)))


def divided_as_floats(free_bytes, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    keys = model.num_indexer_layers * (model.index_dim + 4) if model.num_indexer_layers else 0
    return int(free_bytes / (model.num_mla_layers * entry + keys))


EXERCISE = Exercise(
    id="tokens_that_fit",
    chapter=6,
    order=3,
    title="tokens on a GPU",
    checks="whole tokens whose cache one GPU holds, all layers and the indexer's keys",
    points=2,
    difficulty=2,
    minutes=10,
    make=make,
    oracle=oracle,
    cases=(
        Case("two small layers"),
        Case("DeepSeek-V3 in bf16 on 8 GPUs", make=drawn_for(DEEPSEEK_V3, "bf16_mla", 8)),
        Case("DeepSeek-V3.2 in FP8, an indexer in each layer", make=drawn_for(DEEPSEEK_V32, "fp8_ds_mla", 1)),
        Case("GLM-5.2 in FP8, an indexer in some layers", make=drawn_for(GLM_52, "fp8_ds_mla", 4)),
        Case("Kimi-K3, latent attention in some layers", make=drawn_for(KIMI_K3, "bf16_mla", 2)),
        Case("LongCat-Flash, two attentions a layer", make=drawn_for(LONGCAT_FLASH, "fp8_plain_mla", 1)),
        Case("other widths, plain FP8", make=drawn_for(ODD, "fp8_plain_mla", 2)),
        Case("other widths, FP8 with scales", make=drawn_for(ODD, "fp8_ds_mla", 1)),
        Case("one byte short of a token", make=make_just_short),
        Case("less than a token", make=given(70_271, DEEPSEEK_V3, "bf16_mla", 16)),
        Case("free bytes as a float", make=given(0.3 * 141e9, MINICPM3, "bf16_mla", 2)),
        Case("more than a float counts exactly", make=given(70_272 * (10**17 + 5) - 1, DEEPSEEK_V3, "bf16_mla", 1)),
    ),
    hints=(
        "How many bytes does one token leave on this GPU? Everything else is one division.",
        "A token leaves an entry in every layer of latent attention, and a key of index_dim + 4 bytes in every layer "
        "that owns an indexer. The model counts both kinds of layer. Then think about what each of the GPUs of a "
        "tensor-parallel group needs for its heads: which part of an entry could it do without?",
        "Fill the gaps:\n\n"
        "    per_token = model.____ * cache_bytes_per_token(model, cache_format)\n"
        "    if ____:  # an indexer somewhere\n"
        "        per_token += ____\n"
        "    return int(____)  # floored, in whole numbers",
    ),
    mistakes=(
        Mistake(
            "latent shared out by tensor parallelism",
            "tensor_parallel multiplies the tokens here. It shares out heads, and every GPU needs the whole entry for "
            "its heads: the latent is replicated",
            shared_by_the_ranks,
        ),
        Mistake(
            "indexer's keys forgotten",
            "layers that own an indexer cache a key of index_dim + 4 bytes as well",
            without_the_indexer,
        ),
        Mistake(
            "an indexer in every layer",
            "the indexer's keys stand in num_indexer_layers layers only",
            an_indexer_in_every_layer,
        ),
        Mistake(
            "indexer's scale forgotten",
            "an indexer's key is index_dim e4m3 values and an fp32 scale of 4 bytes",
            indexer_keys_without_a_scale,
        ),
        Mistake(
            "indexer's keys of 132 bytes",
            "132 bytes are the key of an index_dim of 128. Compute it from the model's own",
            indexer_keys_of_132_bytes,
        ),
        Mistake(
            "tiles rounded down",
            "in fp8_ds_mla a tile that is not full has a scale too: round the number of tiles up",
            tiles_rounded_down,
        ),
        Mistake(
            "decoder layers counted",
            "num_layers counts decoder layers. num_mla_layers counts those that keep a latent: fewer in a hybrid, more "
            "where a layer holds two attentions",
            decoder_layers,
        ),
        Mistake("one layer only", "this is the capacity for a single layer. A token needs every layer", one_layer),
        Mistake("a layer for the drafts", "the MTP layer's cache is not part of this count", a_layer_for_the_drafts),
        Mistake(
            "GiB for GB",
            "the result is 7 % too small: bytes were turned into GiB (2^30) and then taken for GB (10^9)",
            gib_for_gb,
        ),
        Mistake(
            "full keys and values",
            "these are the tokens that fit when keys and values are cached for every head. Latent attention caches the "
            "entry",
            full_keys_and_values,
        ),
        Mistake("rounded up", "a token that does not fit whole does not fit: round down", rounded_up),
    ),
    mutants=(
        Mutant(shared_by_the_ranks, "latent shared out by tensor parallelism"),
        Mutant(without_the_indexer, "indexer's keys forgotten"),
        Mutant(an_indexer_in_every_layer, "an indexer in every layer"),
        Mutant(indexer_keys_without_a_scale, "indexer's scale forgotten"),
        Mutant(indexer_keys_of_132_bytes, "indexer's keys of 132 bytes"),
        Mutant(tiles_rounded_down, "tiles rounded down"),
        Mutant(decoder_layers, "decoder layers counted"),
        Mutant(one_layer, "one layer only"),
        Mutant(a_layer_for_the_drafts, "a layer for the drafts"),
        Mutant(gib_for_gb, "GiB for GB"),
        Mutant(full_keys_and_values, "full keys and values"),
        Mutant(rounded_up, "rounded up"),
        Mutant(divided_as_floats, "wanted"),
    ),
)
