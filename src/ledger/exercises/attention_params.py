"""Chapter 8: the weights of one layer's attention."""

from dataclasses import replace
from math import prod

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import drawn
from ledger.models import DEEPSEEK_V2_LITE, DEEPSEEK_V3, DEEPSEEK_V32, GLM_52, KIMI_K3, MINICPM3

SMALL = replace(
    DEEPSEEK_V3,
    name="by hand",
    hidden_dim=5,
    num_layers=2,
    num_mla_layers=2,
    num_heads=2,
    q_lora_dim=4,
    latent_dim=3,
    nope_dim=2,
    rope_dim=1,
    value_dim=2,
)


def make(rng, dtype):
    return given(SMALL)(rng, dtype)


def given(shape):
    """A maker of exactly this model."""
    return lambda rng, dtype: {"model": shape}


def make_drawn(rng, dtype):
    sizes = drawn(rng, hidden_dim=(900, 3000), num_heads=(3, 90), q_lora_dim=(200, 900), latent_dim=(100, 700))
    sizes |= drawn(rng, nope_dim=(30, 90), rope_dim=(10, 30), value_dim=(100, 200))
    return {"model": replace(GLM_52, name="drawn", **sizes)}


def oracle(model):
    """Each matrix by its two sides."""
    key = model.nope_dim + model.rope_dim
    if model.q_lora_dim is None:
        sides = [(model.hidden_dim, model.num_heads, key)]
    else:
        sides = [(model.hidden_dim, model.q_lora_dim), (model.q_lora_dim, model.num_heads, key)]
    sides += [(model.hidden_dim, model.latent_dim), (model.hidden_dim, model.rope_dim)]
    sides += [(model.latent_dim, model.num_heads, width) for width in (model.nope_dim, model.value_dim)]
    sides += [(model.num_heads, model.value_dim, model.hidden_dim)]
    return sum(map(prod, sides))


# A wrong answer travels alone, so each one has all five products.


def straight_queries(model):
    h, key = model.num_heads, model.nope_dim + model.rope_dim
    rest = model.hidden_dim * (model.latent_dim + model.rope_dim)
    rest += model.latent_dim * h * (model.nope_dim + model.value_dim) + h * model.value_dim * model.hidden_dim
    return model.hidden_dim * h * key + rest


def merged_queries(model):
    h, key = model.num_heads, model.nope_dim + model.rope_dim
    q = model.q_lora_dim or 0
    queries = q * h * key if q else model.hidden_dim * h * key
    rest = model.hidden_dim * (model.latent_dim + model.rope_dim)
    rest += model.latent_dim * h * (model.nope_dim + model.value_dim) + h * model.value_dim * model.hidden_dim
    return queries + rest


def queries_without_rope(model):
    h, q = model.num_heads, model.q_lora_dim
    queries = q * (model.hidden_dim + h * model.nope_dim) if q else model.hidden_dim * h * model.nope_dim
    rest = model.hidden_dim * (model.latent_dim + model.rope_dim)
    rest += model.latent_dim * h * (model.nope_dim + model.value_dim) + h * model.value_dim * model.hidden_dim
    return queries + rest


def entry_without_rope(model):
    h, q, key = model.num_heads, model.q_lora_dim, model.nope_dim + model.rope_dim
    queries = q * (model.hidden_dim + h * key) if q else model.hidden_dim * h * key
    rest = model.hidden_dim * model.latent_dim
    rest += model.latent_dim * h * (model.nope_dim + model.value_dim) + h * model.value_dim * model.hidden_dim
    return queries + rest


def rope_out_of_the_latent(model):
    h, q, key = model.num_heads, model.q_lora_dim, model.nope_dim + model.rope_dim
    queries = q * (model.hidden_dim + h * key) if q else model.hidden_dim * h * key
    rest = model.hidden_dim * (model.latent_dim + model.rope_dim)
    rest += model.latent_dim * h * (key + model.value_dim) + h * model.value_dim * model.hidden_dim
    return queries + rest


def rope_keys_of_all_heads(model):
    h, q, key = model.num_heads, model.q_lora_dim, model.nope_dim + model.rope_dim
    queries = q * (model.hidden_dim + h * key) if q else model.hidden_dim * h * key
    rest = model.hidden_dim * (model.latent_dim + h * model.rope_dim)
    rest += model.latent_dim * h * (model.nope_dim + model.value_dim) + h * model.value_dim * model.hidden_dim
    return queries + rest


def out_of_the_whole_entry(model):
    h, q, key = model.num_heads, model.q_lora_dim, model.nope_dim + model.rope_dim
    queries = q * (model.hidden_dim + h * key) if q else model.hidden_dim * h * key
    entry = model.latent_dim + model.rope_dim
    rest = model.hidden_dim * entry
    rest += entry * h * (model.nope_dim + model.value_dim) + h * model.value_dim * model.hidden_dim
    return queries + rest


def keys_alone(model):
    h, q, key = model.num_heads, model.q_lora_dim, model.nope_dim + model.rope_dim
    queries = q * (model.hidden_dim + h * key) if q else model.hidden_dim * h * key
    rest = model.hidden_dim * (model.latent_dim + model.rope_dim)
    rest += model.latent_dim * h * model.nope_dim + h * model.value_dim * model.hidden_dim
    return queries + rest


def no_output(model):
    h, q, key = model.num_heads, model.q_lora_dim, model.nope_dim + model.rope_dim
    queries = q * (model.hidden_dim + h * key) if q else model.hidden_dim * h * key
    rest = model.hidden_dim * (model.latent_dim + model.rope_dim)
    return queries + rest + model.latent_dim * h * (model.nope_dim + model.value_dim)


def output_of_keys(model):
    h, q, key = model.num_heads, model.q_lora_dim, model.nope_dim + model.rope_dim
    queries = q * (model.hidden_dim + h * key) if q else model.hidden_dim * h * key
    rest = model.hidden_dim * (model.latent_dim + model.rope_dim)
    rest += model.latent_dim * h * (model.nope_dim + model.value_dim) + h * key * model.hidden_dim
    return queries + rest


def square_output(model):
    h, q, key = model.num_heads, model.q_lora_dim, model.nope_dim + model.rope_dim
    queries = q * (model.hidden_dim + h * key) if q else model.hidden_dim * h * key
    rest = model.hidden_dim * (model.latent_dim + model.rope_dim)
    rest += model.latent_dim * h * (model.nope_dim + model.value_dim) + model.hidden_dim**2
    return queries + rest


def with_the_norms(model):
    h, q, key = model.num_heads, model.q_lora_dim, model.nope_dim + model.rope_dim
    queries = q * (model.hidden_dim + h * key) if q else model.hidden_dim * h * key
    rest = model.hidden_dim * (model.latent_dim + model.rope_dim)
    rest += model.latent_dim * h * (model.nope_dim + model.value_dim) + h * model.value_dim * model.hidden_dim
    return queries + rest + model.latent_dim + (q or 0)


def with_the_indexer(model):
    h, q, key = model.num_heads, model.q_lora_dim, model.nope_dim + model.rope_dim
    queries = q * (model.hidden_dim + h * key) if q else model.hidden_dim * h * key
    rest = model.hidden_dim * (model.latent_dim + model.rope_dim)
    rest += model.latent_dim * h * (model.nope_dim + model.value_dim) + h * model.value_dim * model.hidden_dim
    if model.num_indexer_layers:
        rest += q * model.index_heads * model.index_dim + model.hidden_dim * (model.index_dim + model.index_heads)
    return queries + rest


def all_layers(model):
    h, q, key = model.num_heads, model.q_lora_dim, model.nope_dim + model.rope_dim
    queries = q * (model.hidden_dim + h * key) if q else model.hidden_dim * h * key
    rest = model.hidden_dim * (model.latent_dim + model.rope_dim)
    rest += model.latent_dim * h * (model.nope_dim + model.value_dim) + h * model.value_dim * model.hidden_dim
    return model.num_mla_layers * (queries + rest)


def all_layers_of_any_kind(model):
    h, q, key = model.num_heads, model.q_lora_dim, model.nope_dim + model.rope_dim
    queries = q * (model.hidden_dim + h * key) if q else model.hidden_dim * h * key
    rest = model.hidden_dim * (model.latent_dim + model.rope_dim)
    rest += model.latent_dim * h * (model.nope_dim + model.value_dim) + h * model.value_dim * model.hidden_dim
    return model.num_layers * (queries + rest)


def bytes_of_bf16(model):
    h, q, key = model.num_heads, model.q_lora_dim, model.nope_dim + model.rope_dim
    queries = q * (model.hidden_dim + h * key) if q else model.hidden_dim * h * key
    rest = model.hidden_dim * (model.latent_dim + model.rope_dim)
    rest += model.latent_dim * h * (model.nope_dim + model.value_dim) + h * model.value_dim * model.hidden_dim
    return 2 * (queries + rest)


def always_a_query_latent(model):
    h, q, key = model.num_heads, model.q_lora_dim, model.nope_dim + model.rope_dim
    queries = q * model.hidden_dim + q * h * key
    rest = model.hidden_dim * (model.latent_dim + model.rope_dim)
    rest += model.latent_dim * h * (model.nope_dim + model.value_dim) + h * model.value_dim * model.hidden_dim
    return queries + rest


EXERCISE = Exercise(
    id="attention_params",
    chapter=8,
    order=5,
    title="weights of attention",
    checks="weights of the projections of one latent-attention layer",
    points=2,
    difficulty=2,
    minutes=10,
    make=make,
    oracle=oracle,
    cases=(
        Case("small widths by hand"),
        Case("DeepSeek-V3", make=given(DEEPSEEK_V3)),
        Case("DeepSeek-V2-Lite, without a query latent", make=given(DEEPSEEK_V2_LITE)),
        Case("DeepSeek-V3.2, with an indexer", make=given(DEEPSEEK_V32)),
        Case("GLM-5.2, values wider than keys", make=given(GLM_52)),
        Case("Kimi-K3, latent attention in some layers", make=given(KIMI_K3)),
        Case("MiniCPM3-4B", make=given(MINICPM3)),
        Case("widths drawn at random", make=make_drawn),
    ),
    hints=(
        "List the matrices that a hidden state goes through until attention gives one back: to the queries, to the "
        "cache entry, out of the latent, to the output. Which of them come in two?",
        "Down to the query latent and up to all heads' queries (nope and rope); down to the entry (latent and the one "
        "rotary key); up from the latent to every head's nope keys and values; from all heads' values to the hidden "
        "width. A matrix has as many weights as its two sides multiplied.",
        "Fill the gaps:\n\n"
        "    queries = model.num_heads * ____\n"
        "    if model.q_lora_dim:\n"
        "        to_queries = model.q_lora_dim * (____ + queries)\n"
        "    else:\n"
        "        to_queries = ____\n"
        "    to_entry = ____\n"
        "    out_of_the_latent = ____\n"
        "    output = ____",
    ),
    mistakes=(
        Mistake(
            "no query latent",
            "queries are projected straight from the hidden state. This model has a latent for them: down, then up",
            straight_queries,
        ),
        Mistake(
            "no way down to the query latent",
            "the projection from the hidden state to the query latent is missing",
            merged_queries,
        ),
        Mistake("queries without rope", "a query has a rope part too: nope_dim + rope_dim", queries_without_rope),
        Mistake(
            "entry without rope",
            "the rotary key comes straight from the hidden state, beside the latent",
            entry_without_rope,
        ),
        Mistake(
            "rope keys out of the latent",
            "the projection out of the latent makes nope keys and values. The rotary key is not made from the latent",
            rope_out_of_the_latent,
        ),
        Mistake(
            "a rope key for each head",
            "a rotary key was made for each head. All heads share one: rope_dim beside the latent",
            rope_keys_of_all_heads,
        ),
        Mistake(
            "out of the whole entry",
            "keys and values were projected from the whole cache entry. They come from the latent alone",
            out_of_the_whole_entry,
        ),
        Mistake("no values", "the projection from the latent to the heads' values is missing", keys_alone),
        Mistake("no output projection", "the projection back to the hidden width is missing", no_output),
        Mistake(
            "an output projection of keys",
            "the output projection takes nope_dim + rope_dim from each head. What a head gives is value_dim wide",
            output_of_keys,
        ),
        Mistake(
            "a square output projection",
            "the output projection has num_heads · value_dim rows, which is not the hidden width",
            square_output,
        ),
        Mistake(
            "norms counted", "the weights of the norms are counted. Only the projections are asked for", with_the_norms
        ),
        Mistake(
            "indexer counted",
            "the indexer's projections are counted. They are not part of this number",
            with_the_indexer,
        ),
        Mistake(
            "all layers",
            "these are the weights of all layers; one is asked for",
            all_layers,
            (all_layers_of_any_kind,),
        ),
        Mistake("bytes of bf16", "these are bytes of bf16. Count weights", bytes_of_bf16),
    ),
    mutants=(
        Mutant(straight_queries, "no query latent"),
        Mutant(merged_queries, "no way down to the query latent"),
        Mutant(queries_without_rope, "queries without rope"),
        Mutant(entry_without_rope, "entry without rope"),
        Mutant(rope_out_of_the_latent, "rope keys out of the latent"),
        Mutant(rope_keys_of_all_heads, "a rope key for each head"),
        Mutant(out_of_the_whole_entry, "out of the whole entry"),
        Mutant(keys_alone, "no values"),
        Mutant(no_output, "no output projection"),
        Mutant(output_of_keys, "an output projection of keys"),
        Mutant(square_output, "a square output projection"),
        Mutant(with_the_norms, "norms counted"),
        Mutant(with_the_indexer, "indexer counted"),
        Mutant(all_layers, "all layers"),
        Mutant(all_layers_of_any_kind, "all layers"),
        Mutant(bytes_of_bf16, "bytes of bf16"),
        Mutant(always_a_query_latent, "TypeError", verdict="error"),
    ),
)
