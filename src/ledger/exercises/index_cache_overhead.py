"""Chapter 10: by what share the index keys make the cache grow."""

from dataclasses import replace
from fractions import Fraction

from ledger.account.cache import cache_bytes_per_token, model_bytes_per_token
from ledger.exercises.base import Case, Exercise, Mistake, Mutant, Raises
from ledger.exercises.making import rewritten
from ledger.exercises.pair_flops import ODD, SMALL, drawn_model
from ledger.models import DEEPSEEK_V3, DEEPSEEK_V32, GLM_5, GLM_52

#: Layers with two attention blocks each, and few indexers.
TWO_BLOCKS = replace(ODD, name="two blocks a layer", num_layers=14, num_mla_layers=28, num_indexer_layers=5)

ANSWER = """\
def index_cache_overhead(model, cache_format):
    formats = {
        "bf16_mla": 2 * (model.latent_dim + model.rope_dim),
        "fp8_ds_mla": model.latent_dim + 4 * -(-model.latent_dim // 128) + 2 * model.rope_dim,
        "fp8_plain_mla": model.latent_dim + model.rope_dim,
    }
    if cache_format not in formats:
        raise ValueError(f"choose one of {', '.join(formats)}")
    entries = model.num_mla_layers * formats[cache_format]
    keys = model.num_indexer_layers * (model.index_dim + 4) if model.num_indexer_layers else 0
    return keys / entries
"""


def make(rng, dtype):
    return given(SMALL, "bf16_mla")(rng, dtype)


def given(shape, cache_format):
    """A maker of exactly these arguments."""
    return lambda rng, dtype: {"model": shape, "cache_format": cache_format}


def make_drawn(rng, dtype):
    layers = int(rng.integers(40, 90))
    counts = {"num_layers": layers, "num_mla_layers": layers, "num_indexer_layers": int(rng.integers(11, 35))}
    return given(drawn_model(rng, **counts), "fp8_ds_mla")(rng, dtype)


def oracle(model, cache_format):
    """A token's bytes in the whole model beside those without its index keys."""
    entries = sum(cache_bytes_per_token(model, cache_format) for _ in range(model.num_mla_layers))
    return float(Fraction(model_bytes_per_token(model, cache_format), entries) - 1)


#: What the mutants change.
LINES = {
    "check": "if cache_format not in formats:",
    "started": "4 * -(-model.latent_dim // 128)",
    "layers": "model.num_mla_layers * ",
    "entry": "formats[cache_format]",
    "keys": "model.num_indexer_layers * (model.index_dim + 4) if",
    "has_indexer": " if model.num_indexer_layers else 0",
    "share": "keys / entries",
}


def but(name, **changes):
    """The answer with lines changed; each change names the line by what it computes."""
    return rewritten(ANSWER, name, {LINES[line]: text for line, text in changes.items()})


one_layer = but("one_layer", keys="(model.index_dim + 4) if", layers="")
a_key_in_every_layer = but("a_key_in_every_layer", keys="model.num_mla_layers * (model.index_dim + 4) if")
num_layers_taken = but("num_layers_taken", layers="model.num_layers * ")
scale_forgotten = but("scale_forgotten", keys="model.num_indexer_layers * model.index_dim if")
index_key_in_bf16 = but("index_key_in_bf16", keys="model.num_indexer_layers * 2 * model.index_dim if")
a_key_for_each_head = but(
    "a_key_for_each_head", keys="model.num_indexer_layers * model.index_heads * (model.index_dim + 4) if"
)
width_of_deepseek = but("width_of_deepseek", keys="model.num_indexer_layers * 132 if")
entries_in_bf16 = but("entries_in_bf16", entry='formats["bf16_mla"]')
latent_alone = but(
    "latent_alone", entry="formats[cache_format] - (2 if cache_format != 'fp8_plain_mla' else 1) * model.rope_dim"
)
started_tile_dropped = but("started_tile_dropped", started="4 * (model.latent_dim // 128)")
share_of_the_whole = but("share_of_the_whole", share="keys / (entries + keys)")
whole_over_entries = but("whole_over_entries", share="(entries + keys) / entries")
percent = but("percent", share="100 * keys / entries")
upside_down = but("upside_down", share='entries / keys if keys else float("inf")')
unknown_format_in_bf16 = but(
    "unknown_format_in_bf16", check="if not cache_format:", entry="formats.get(cache_format, 1)"
)
no_indexer_not_thought_of = but("no_indexer_not_thought_of", has_indexer="")

EXERCISE = Exercise(
    id="index_cache_overhead",
    chapter=10,
    order=12,
    title="what the index keys add",
    checks="bytes of the index keys over bytes of the latent entries, in all layers",
    points=2,
    difficulty=2,
    minutes=8,
    make=make,
    oracle=oracle,
    absolute=1e-15,
    cases=(
        Case("small widths by hand"),
        Case("DeepSeek-V3.2 in bf16", make=given(DEEPSEEK_V32, "bf16_mla")),
        Case("DeepSeek-V3.2 in FP8 with scales", make=given(DEEPSEEK_V32, "fp8_ds_mla")),
        Case("GLM-5 in plain FP8", make=given(GLM_5, "fp8_plain_mla")),
        Case("GLM-5.2 in bf16", make=given(GLM_52, "bf16_mla")),
        Case("GLM-5.2 in FP8 with scales", make=given(GLM_52, "fp8_ds_mla")),
        Case("two attention blocks a layer", make=given(TWO_BLOCKS, "fp8_ds_mla")),
        Case("sizes drawn at random", make=make_drawn),
        Case("a model without an indexer", make=given(DEEPSEEK_V3, "bf16_mla")),
        Case(
            "an unknown cache format",
            make=given(GLM_52, "fp8_mla"),
            raises=Raises("ValueError", ("bf16_mla", "fp8_ds_mla", "fp8_plain_mla")),
        ),
    ),
    hints=(
        "How many layers hold an entry, and how many hold an index key? In GLM-5.2 these are two numbers.",
        "Count one token in the whole model: bytes of all its index keys, and bytes of all its entries in the given "
        "format. A key has a scale of 4 bytes. Without an indexer index_dim is None, which does not add up.",
        "Fill the gaps:\n\n"
        "    entries = model.num_mla_layers * ____  # a ValueError first\n"
        "    keys = model.____ * ____  # 0 without an indexer\n"
        "    return ____",
    ),
    mistakes=(
        Mistake(
            "not averaged over layers",
            "this is the share in a layer with an indexer. Layers without one hold entries too, and dilute it",
            one_layer,
        ),
        Mistake(
            "num_layers for num_mla_layers",
            "the entries were counted over num_layers. Each attention block has one: num_mla_layers",
            num_layers_taken,
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
            a_key_for_each_head,
        ),
        Mistake(
            "DeepSeek's width", "these are keys of 132 bytes. Compute from the model's index_dim", width_of_deepseek
        ),
        Mistake(
            "entries in bf16",
            "this is the share of bf16 entries, 11 % in DeepSeek-V3.2. Beside smaller entries the same keys weigh more",
            entries_in_bf16,
        ),
        Mistake("rope part forgotten", "an entry has a rope part beside the latent", latent_alone),
        Mistake(
            "a started tile without its scale",
            "fp8_ds_mla has a scale for each started 128 values of the latent. Round up",
            started_tile_dropped,
        ),
        Mistake(
            "share of the whole cache",
            "this is the keys' share of the whole cache. Asked is by how much it grows: keys over entries",
            share_of_the_whole,
        ),
        Mistake(
            "the whole over the entries",
            "this is the whole cache over the entries. Take 1 off: the growth alone",
            whole_over_entries,
        ),
        Mistake("percent", "this is in percent. A tenth is 0.1", percent),
        Mistake("wrong way round", "these are entries over keys", upside_down),
    ),
    mutants=(
        Mutant(one_layer, "not averaged over layers"),
        Mutant(a_key_in_every_layer, "not averaged over layers"),
        Mutant(num_layers_taken, "num_layers for num_mla_layers"),
        Mutant(scale_forgotten, "the index key's scale forgotten"),
        Mutant(index_key_in_bf16, "index keys in bf16"),
        Mutant(a_key_for_each_head, "a key for each indexer head"),
        Mutant(width_of_deepseek, "DeepSeek's width"),
        Mutant(entries_in_bf16, "entries in bf16"),
        Mutant(latent_alone, "rope part forgotten"),
        Mutant(started_tile_dropped, "a started tile without its scale"),
        Mutant(share_of_the_whole, "share of the whole cache"),
        Mutant(whole_over_entries, "the whole over the entries"),
        Mutant(percent, "percent"),
        Mutant(upside_down, "wrong way round"),
        Mutant(unknown_format_in_bf16, "want a ValueError"),
        Mutant(no_indexer_not_thought_of, "TypeError", verdict="error"),
    ),
)
