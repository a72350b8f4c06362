"""Chapter 6: how many requests of one length one GPU holds."""

from dataclasses import replace

from ledger.account import cache
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.models import DEEPSEEK_V3, DEEPSEEK_V32, GLM_52, KIMI_K3, LONGCAT_FLASH

#: Widths that no published model has: an indexer's key of 96 values, and a latent that does not fill its last tile.
ODD = replace(GLM_52, name="odd widths", latent_dim=450, index_dim=96)
SMALL = replace(DEEPSEEK_V3, name="by hand", num_mla_layers=2, latent_dim=3, rope_dim=1)


def make(rng, dtype):
    return given(1000, 10, SMALL, "bf16_mla", 1)(rng, dtype)


def given(free_bytes, cached_tokens, shape, cache_format, tensor_parallel):
    """A maker of exactly these arguments."""
    return lambda rng, dtype: {
        "free_bytes": free_bytes,
        "cached_tokens": cached_tokens,
        "model": shape,
        "cache_format": cache_format,
        "tensor_parallel": tensor_parallel,
    }


def drawn_for(shape, cache_format, tensor_parallel):
    """A maker that draws the free bytes, 20 to 100 GB, and a context of some thousand tokens."""

    def make_drawn(rng, dtype):
        free_bytes, cached_tokens = int(rng.integers(20 * 10**9, 100 * 10**9)), int(rng.integers(3000, 20000))
        return given(free_bytes, cached_tokens, shape, cache_format, tensor_parallel)(rng, dtype)

    return make_drawn


def make_just_short(rng, dtype):
    requests, cached_tokens = int(rng.integers(20, 90)), int(rng.integers(1000, 9000))
    free_bytes = requests * cached_tokens * cache.model_bytes_per_token(DEEPSEEK_V32, "fp8_ds_mla") - 1
    return given(free_bytes, cached_tokens, DEEPSEEK_V32, "fp8_ds_mla", 1)(rng, dtype)


def oracle(free_bytes, cached_tokens, model, cache_format, tensor_parallel):
    return cache.requests_that_fit(free_bytes, cached_tokens, model, cache_format, tensor_parallel)


# A wrong answer travels alone, so each one computes the bytes of an entry for itself.


def shared_by_the_ranks(free_bytes, cached_tokens, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    keys = model.num_indexer_layers * (model.index_dim + 4) if model.num_indexer_layers else 0
    return int(tensor_parallel * free_bytes // (cached_tokens * (model.num_mla_layers * entry + keys)))


def without_the_indexer(free_bytes, cached_tokens, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    return int(free_bytes // (cached_tokens * model.num_mla_layers * entry.get(cache_format, latent + rope)))


def decoder_layers(free_bytes, cached_tokens, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    keys = model.num_indexer_layers * (model.index_dim + 4) if model.num_indexer_layers else 0
    return int(free_bytes // (cached_tokens * (model.num_layers * entry + keys)))


def tokens_for_requests(free_bytes, cached_tokens, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    keys = model.num_indexer_layers * (model.index_dim + 4) if model.num_indexer_layers else 0
    return int(free_bytes // (model.num_mla_layers * entry + keys))


def rounded_up(free_bytes, cached_tokens, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    keys = model.num_indexer_layers * (model.index_dim + 4) if model.num_indexer_layers else 0
    return int(-(-free_bytes // (cached_tokens * (model.num_mla_layers * entry + keys))))


def gib_for_gb(free_bytes, cached_tokens, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    keys = model.num_indexer_layers * (model.index_dim + 4) if model.num_indexer_layers else 0
    return int(free_bytes * 10**9 // (2**30 * cached_tokens * (model.num_mla_layers * entry + keys)))


def a_share_of_a_request(free_bytes, cached_tokens, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    keys = model.num_indexer_layers * (model.index_dim + 4) if model.num_indexer_layers else 0
    return free_bytes / (cached_tokens * (model.num_mla_layers * entry + keys))


def divided_as_floats(free_bytes, cached_tokens, model, cache_format, tensor_parallel):
    latent, rope = model.latent_dim, model.rope_dim
    entry = {"bf16_mla": 2 * (latent + rope), "fp8_ds_mla": latent - latent // -128 * 4 + 2 * rope}
    entry = entry.get(cache_format, latent + rope)
    keys = model.num_indexer_layers * (model.index_dim + 4) if model.num_indexer_layers else 0
    return int(free_bytes / (cached_tokens * (model.num_mla_layers * entry + keys)))


EXERCISE = Exercise(
    id="requests_that_fit",
    chapter=6,
    order=4,
    title="requests on a GPU",
    checks="whole requests of one length whose cache one GPU holds",
    points=1,
    difficulty=1,
    minutes=4,
    make=make,
    oracle=oracle,
    cases=(
        Case("two small layers"),
        Case("DeepSeek-V3 in bf16 on 8 GPUs", make=drawn_for(DEEPSEEK_V3, "bf16_mla", 8)),
        Case("GLM-5.2 in FP8, an indexer in some layers", make=drawn_for(GLM_52, "fp8_ds_mla", 4)),
        Case("Kimi-K3, latent attention in some layers", make=drawn_for(KIMI_K3, "bf16_mla", 2)),
        Case("LongCat-Flash, plain FP8", make=drawn_for(LONGCAT_FLASH, "fp8_plain_mla", 1)),
        Case("other widths, plain FP8", make=drawn_for(ODD, "fp8_plain_mla", 2)),
        Case("other widths, FP8 with scales", make=drawn_for(ODD, "fp8_ds_mla", 1)),
        Case("one byte short of a request", make=make_just_short),
        Case("less than a request", make=given(10**9, 131_072, DEEPSEEK_V3, "bf16_mla", 8)),
        Case("requests of one token", make=given(10**9, 1, DEEPSEEK_V3, "fp8_plain_mla", 1)),
        Case("free bytes as a float", make=given(0.4 * 141e9, 8192, DEEPSEEK_V3, "bf16_mla", 8)),
        Case(
            "more than a float counts exactly",
            make=given(7 * 70_272 * (10**17 + 5) - 1, 7, DEEPSEEK_V3, "bf16_mla", 1),
        ),
    ),
    hints=(
        "You have counted the tokens that fit. What does a request need, if each of its cached_tokens must be there?",
        "Two divisions, both rounded down, or one by the bytes of a whole request: the results are the same.",
        "Fill the gap:\n\n    return tokens_that_fit(free_bytes, model, cache_format, tensor_parallel) ____",
    ),
    mistakes=(
        Mistake(
            "latent shared out by tensor parallelism",
            "tensor_parallel multiplies the requests here. Every GPU needs the whole entries: the latent is replicated",
            shared_by_the_ranks,
        ),
        Mistake(
            "indexer's keys forgotten",
            "layers that own an indexer cache a key of index_dim + 4 bytes as well",
            without_the_indexer,
        ),
        Mistake(
            "decoder layers counted",
            "num_layers counts decoder layers; num_mla_layers those that keep a latent",
            decoder_layers,
        ),
        Mistake("tokens for requests", "these are tokens. A request needs cached_tokens of them", tokens_for_requests),
        Mistake("rounded up", "a request that does not fit whole does not fit: round down", rounded_up),
        Mistake(
            "GiB for GB",
            "the result is 7 % too small: bytes were turned into GiB (2^30) and then taken for GB (10^9)",
            gib_for_gb,
        ),
    ),
    mutants=(
        Mutant(shared_by_the_ranks, "latent shared out by tensor parallelism"),
        Mutant(without_the_indexer, "indexer's keys forgotten"),
        Mutant(decoder_layers, "decoder layers counted"),
        Mutant(tokens_for_requests, "tokens for requests"),
        Mutant(rounded_up, "rounded up"),
        Mutant(gib_for_gb, "GiB for GB"),
        Mutant(a_share_of_a_request, "counts are whole numbers"),
        Mutant(divided_as_floats, "wanted"),
    ),
)
