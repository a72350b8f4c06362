"""Chapter 10: one decoded query, dense and sparse."""

from ledger.account.attention import matmul_macs
from ledger.account.cache import entry_bytes, indexer_bytes_per_token
from ledger.account.crossover import absorb_macs, widths
from ledger.exercises.base import Case, Exercise, Mistake, Mutant, Raises
from ledger.exercises.making import rewritten
from ledger.exercises.pair_flops import ODD, SMALL, drawn_model
from ledger.models import DEEPSEEK_V3, DEEPSEEK_V32, GLM_5, GLM_52

ANSWER = """\
def dsa_decode_ledger(cached_tokens, model, topk, cache_format):
    formats = {
        "bf16_mla": 2 * (model.latent_dim + model.rope_dim),
        "fp8_ds_mla": model.latent_dim + 4 * -(-model.latent_dim // 128) + 2 * model.rope_dim,
        "fp8_plain_mla": model.latent_dim + model.rope_dim,
    }
    if cache_format not in formats:
        raise ValueError(f"choose one of {', '.join(formats)}")
    entry = formats[cache_format]
    absorbed = 2 * model.num_heads * (2 * model.latent_dim + model.rope_dim)
    indexer = 2 * model.index_heads * model.index_dim if model.index_heads else 0
    index_key = model.index_dim + 4 if model.num_indexer_layers else 0
    picked = min(cached_tokens, topk)
    return {
        "dense_flops": cached_tokens * absorbed,
        "sparse_flops": cached_tokens * indexer + picked * absorbed,
        "dense_bytes": cached_tokens * entry,
        "sparse_bytes": cached_tokens * index_key + picked * entry,
    }
"""


def make(rng, dtype):
    return given(10, SMALL, 4, "bf16_mla")(rng, dtype)


def given(cached_tokens, shape, topk, cache_format):
    """A maker of exactly these arguments."""
    return lambda rng, dtype: {
        "cached_tokens": cached_tokens,
        "model": shape,
        "topk": topk,
        "cache_format": cache_format,
    }


def make_drawn(rng, dtype):
    cached_tokens, topk = int(rng.integers(5000, 90_000)), int(rng.integers(300, 4000))
    latent_dim = 128 * int(rng.integers(3, 7)) + int(rng.integers(5, 120))
    return given(cached_tokens, drawn_model(rng, latent_dim=latent_dim), topk, "fp8_ds_mla")(rng, dtype)


def oracle(cached_tokens, model, topk, cache_format):
    """Dense, and the same again over the picked tokens, with the indexer's part for every cached one."""
    every, picked = (
        (2 * absorb_macs(1, tokens, **widths(model))["attention"], tokens * sum(entry_bytes(model, cache_format)))
        for tokens in (cached_tokens, cached_tokens - max(0, cached_tokens - topk))
    )
    index_macs = matmul_macs(model.index_heads or 0, model.index_dim or 0, cached_tokens)
    return {
        "dense_flops": every[0],
        "sparse_flops": picked[0] + 2 * index_macs,
        "dense_bytes": every[1],
        "sparse_bytes": picked[1] + indexer_bytes_per_token(model) * cached_tokens,
    }


def but(name, **changes):
    """The answer with lines changed; each change names the line by what it computes."""
    return rewritten(ANSWER, name, {LINES[line]: text for line, text in changes.items()})


#: What the mutants change.
LINES = {
    "absorbed": "2 * model.num_heads * (2 * model.latent_dim + model.rope_dim)",
    "indexer": "2 * model.index_heads * model.index_dim if model.index_heads else 0",
    "index_key": "model.index_dim + 4 if model.num_indexer_layers else 0",
    "has_indexer": "if model.num_indexer_layers else 0",
    "picked": "min(cached_tokens, topk)",
    "entry": "formats[cache_format]",
    "check": "if cache_format not in formats:",
    "started": "4 * -(-model.latent_dim // 128)",
    "formats": "    formats = {",
    "flops": "cached_tokens * indexer + picked * absorbed",
    "bytes": "cached_tokens * index_key + picked * entry",
    "dense_flops": '"dense_flops": cached_tokens * absorbed',
    "dense_bytes": '"dense_bytes": cached_tokens * entry',
}

multiply_adds = but(
    "multiply_adds",
    absorbed="model.num_heads * (2 * model.latent_dim + model.rope_dim)",
    indexer="model.index_heads * model.index_dim if model.index_heads else 0",
)
expanded_pairs = but(
    "expanded_pairs", absorbed="2 * model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim)"
)
indexer_forgotten = but("indexer_forgotten", indexer="0", index_key="0")
indexer_computes_for_nothing = but("indexer_computes_for_nothing", indexer="0")
index_keys_not_read = but("index_keys_not_read", index_key="0")
scale_forgotten = but("scale_forgotten", index_key="model.index_dim if model.num_indexer_layers else 0")
index_key_in_bf16 = but("index_key_in_bf16", index_key="2 * model.index_dim if model.num_indexer_layers else 0")
a_key_for_each_indexer_head = but(
    "a_key_for_each_indexer_head",
    index_key="model.index_heads * (model.index_dim + 4) if model.num_indexer_layers else 0",
)
topk_not_capped = but("topk_not_capped", picked="topk")
topk_of_the_model = but("topk_of_the_model", picked="min(cached_tokens, model.index_topk)")
indexer_of_the_picked = but(
    "indexer_of_the_picked", flops="picked * indexer + picked * absorbed", bytes="picked * index_key + picked * entry"
)
indexer_on_the_dense_side = but(
    "indexer_on_the_dense_side",
    dense_flops='"dense_flops": cached_tokens * (absorbed + indexer)',
    dense_bytes='"dense_bytes": cached_tokens * (entry + index_key)',
)
indexer_idle_while_all_fit = but(
    "indexer_idle_while_all_fit",
    flops="(cached_tokens * indexer if cached_tokens > topk else 0) + picked * absorbed",
    bytes="(cached_tokens * index_key if cached_tokens > topk else 0) + picked * entry",
)
no_scores_while_all_fit = but(
    "no_scores_while_all_fit",
    flops="(cached_tokens * indexer if cached_tokens > topk else 0) + picked * absorbed",
)
averaged_over_layers = but(
    "averaged_over_layers",
    flops="cached_tokens * indexer * model.num_indexer_layers // model.num_mla_layers + picked * absorbed",
    bytes="cached_tokens * index_key * model.num_indexer_layers // model.num_mla_layers + picked * entry",
)
entry_for_each_head = but("entry_for_each_head", entry="model.num_heads * formats[cache_format]")
entries_in_bf16 = but("entries_in_bf16", entry='formats["bf16_mla"]')
own_token_counted = but("own_token_counted", formats="    cached_tokens += 1\n    formats = {")
scale_for_each_32 = but("scale_for_each_32", started="4 * model.latent_dim // 128")
started_tile_dropped = but("started_tile_dropped", started="4 * (model.latent_dim // 128)")
unknown_format_in_bf16 = but(
    "unknown_format_in_bf16", check="if not cache_format:", entry="formats.get(cache_format, 0)"
)
no_indexer_not_thought_of = but("no_indexer_not_thought_of", has_indexer="")
in_floats = but("in_floats", picked="float(min(cached_tokens, topk))")

EXERCISE = Exercise(
    id="dsa_decode_ledger",
    chapter=10,
    order=8,
    title="a decoded token, dense and sparse",
    checks="FLOP and bytes read of one query in one layer, dense and sparse",
    points=3,
    difficulty=2,
    minutes=12,
    make=make,
    oracle=oracle,
    cases=(
        Case("small widths by hand"),
        Case("DeepSeek-V3.2 at 4K", make=given(4096, DEEPSEEK_V32, 2048, "bf16_mla")),
        Case("DeepSeek-V3.2 at 128K in FP8", make=given(131_072, DEEPSEEK_V32, 2048, "fp8_ds_mla")),
        Case("GLM-5 at 32K", make=given(32_768, GLM_5, 2048, "fp8_plain_mla")),
        Case("GLM-5.2, half the picks", make=given(65_536, GLM_52, 1024, "fp8_ds_mla")),
        Case("fewer tokens than topk", make=given(1500, DEEPSEEK_V32, 2048, "bf16_mla")),
        Case("a model without an indexer", make=given(9000, DEEPSEEK_V3, 2048, "bf16_mla")),
        Case("odd widths", make=given(7777, ODD, 501, "fp8_ds_mla")),
        Case("sizes drawn at random", make=make_drawn),
        Case("nothing cached", make=given(0, GLM_52, 2048, "bf16_mla")),
        Case("nothing picked", make=given(300, ODD, 0, "bf16_mla")),
        Case("beyond 63 bits", make=given(10**14 + 61, DEEPSEEK_V32, 2049, "bf16_mla")),
        Case(
            "an unknown cache format",
            make=given(4096, DEEPSEEK_V32, 2048, "bf8_mla"),
            raises=Raises("ValueError", ("bf16_mla", "fp8_ds_mla", "fp8_plain_mla")),
        ),
    ),
    hints=(
        "Write down three numbers of tokens: those that dense attention meets, those that the indexer scores, and "
        "those that sparse attention meets. Which two are the same?",
        "Each number of tokens is multiplied twice: with FLOP of a pair, and with bytes of what is read for it, an "
        "entry or an index key. Decode is absorbed on both sides. An index key has one scale of 4 bytes.",
        "Fill the gaps:\n\n"
        "    absorbed, indexer = ____, ____  # from pair_flops\n"
        "    entry, index_key = ____, ____  # bytes; a ValueError first\n"
        "    met = ____\n"
        "    sparse_flops = cached_tokens * ____ + met * ____\n"
        "    sparse_bytes = ____\n"
        "and return both beside the dense ones.",
    ),
    mistakes=(
        Mistake("multiply-adds", "these are multiply-adds. Each is 2 FLOP", multiply_adds),
        Mistake(
            "expanded pairs",
            "the pairs are expanded ones. A decoded query meets the cache entries themselves: absorbed",
            expanded_pairs,
        ),
        Mistake(
            "indexer idle while all fit",
            "the indexer was left out where all cached tokens are picked. It always runs here",
            indexer_idle_while_all_fit,
        ),
        Mistake(
            "no scores while all fit",
            "the indexer's FLOP were left out where all cached tokens are picked. It always runs here",
            no_scores_while_all_fit,
        ),
        Mistake(
            "indexer forgotten",
            "the indexer is missing. It scores every cached token, and reads the key of each",
            indexer_forgotten,
        ),
        Mistake(
            "the indexer's FLOP forgotten",
            "the indexer's FLOP are missing: it scores every cached token",
            indexer_computes_for_nothing,
        ),
        Mistake(
            "index keys not read", "the index keys are missing among the bytes: every one is read", index_keys_not_read
        ),
        Mistake(
            "the index key's scale forgotten",
            "an index key is counted with its values alone. It has an fp32 scale: 4 bytes more, 132 for a width of 128",
            scale_forgotten,
        ),
        Mistake("index keys in bf16", "an index key is FP8, a byte a value, and an fp32 scale", index_key_in_bf16),
        Mistake(
            "a key for each indexer head",
            "every indexer head was given a key of its own. All share one key a token",
            a_key_for_each_indexer_head,
        ),
        Mistake("topk not capped", "more tokens were picked than are cached. Take the smaller number", topk_not_capped),
        Mistake("topk of the model", "the model's own index_topk was taken, not the argument", topk_of_the_model),
        Mistake(
            "indexer on the picked tokens",
            "the indexer was charged for the picked tokens alone. To pick them it must score every cached one",
            indexer_of_the_picked,
        ),
        Mistake(
            "indexer on the dense side",
            "dense attention was charged with the indexer. It runs none",
            indexer_on_the_dense_side,
        ),
        Mistake(
            "averaged over layers",
            "the indexer was averaged over the layers. Asked is a layer that has one",
            averaged_over_layers,
        ),
        Mistake("an entry for each head", "an entry is read once, for all heads", entry_for_each_head),
        Mistake("entries in bf16", "these are the bytes of bf16 entries. Take those of cache_format", entries_in_bf16),
        Mistake(
            "a started tile without its scale",
            "fp8_ds_mla has a scale for each started 128 values of the latent. Round up",
            started_tile_dropped,
            also=(scale_for_each_32,),
        ),
        Mistake(
            "own token counted",
            "the token's own key is counted too. The query meets the cached tokens alone",
            own_token_counted,
        ),
    ),
    mutants=(
        Mutant(multiply_adds, "multiply-adds"),
        Mutant(expanded_pairs, "expanded pairs"),
        Mutant(indexer_forgotten, "indexer forgotten"),
        Mutant(indexer_computes_for_nothing, "the indexer's FLOP forgotten"),
        Mutant(index_keys_not_read, "index keys not read"),
        Mutant(scale_forgotten, "the index key's scale forgotten"),
        Mutant(index_key_in_bf16, "index keys in bf16"),
        Mutant(a_key_for_each_indexer_head, "a key for each indexer head"),
        Mutant(topk_not_capped, "topk not capped"),
        Mutant(topk_of_the_model, "topk of the model"),
        Mutant(indexer_of_the_picked, "indexer on the picked tokens"),
        Mutant(indexer_on_the_dense_side, "indexer on the dense side"),
        Mutant(indexer_idle_while_all_fit, "indexer idle while all fit"),
        Mutant(no_scores_while_all_fit, "no scores while all fit"),
        Mutant(averaged_over_layers, "averaged over layers"),
        Mutant(entry_for_each_head, "an entry for each head"),
        Mutant(entries_in_bf16, "entries in bf16"),
        Mutant(started_tile_dropped, "a started tile without its scale"),
        Mutant(scale_for_each_32, "a started tile without its scale"),
        Mutant(own_token_counted, "own token counted"),
        Mutant(unknown_format_in_bf16, "want a ValueError"),
        Mutant(no_indexer_not_thought_of, "TypeError", verdict="error"),
        Mutant(in_floats, "counts are whole numbers"),
    ),
)
