"""Chapter 10: the position at which one query costs the same either way."""

from ledger.exercises import pair_flops
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.pair_flops import ODD, SMALL, drawn_model
from ledger.models import DEEPSEEK_V3, DEEPSEEK_V32, GLM_5, GLM_52, MINICPM3


def make(rng, dtype):
    return given(SMALL, 6)(rng, dtype)


def given(shape, topk):
    """A maker of exactly these arguments."""
    return lambda rng, dtype: {"model": shape, "topk": topk}


def make_drawn(rng, dtype):
    return given(drawn_model(rng), int(rng.integers(300, 4000)))(rng, dtype)


def bisect(dearer, start):
    """The length from which on ``dearer(length)`` holds, for one that does not hold at ``start``."""
    low, high = float(start), 2.0 * start
    while not dearer(high):
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if dearer(middle) else (middle, high)
    return high


def oracle(model, topk):
    """Search for it from ``topk`` tokens on, where the picks are the dearer ones."""
    absorbed, expanded, _ = pair_flops.oracle(model)
    return bisect(lambda position: position * expanded >= topk * absorbed, topk)


def of_a_prompt(model, topk):
    absorbed = 2 * model.latent_dim + model.rope_dim
    return 2 * topk * absorbed / (model.nope_dim + model.rope_dim + model.value_dim)


def indexer_charged(model, topk):
    absorbed = 2 * model.num_heads * (2 * model.latent_dim + model.rope_dim)
    expanded = 2 * model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim)
    return topk * absorbed / (expanded - 2 * model.index_heads * model.index_dim)


def indexer_on_the_picked(model, topk):
    absorbed = 2 * model.num_heads * (2 * model.latent_dim + model.rope_dim)
    expanded = 2 * model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim)
    return topk * (absorbed + 2 * model.index_heads * model.index_dim) / expanded


def topk_of_the_model(model, topk):
    absorbed = 2 * model.latent_dim + model.rope_dim
    return model.index_topk * absorbed / (model.nope_dim + model.rope_dim + model.value_dim)


def the_ratio(model, topk):
    return (2 * model.latent_dim + model.rope_dim) / (model.nope_dim + model.rope_dim + model.value_dim)


def wrong_way_round(model, topk):
    absorbed = 2 * model.latent_dim + model.rope_dim
    return topk * (model.nope_dim + model.rope_dim + model.value_dim) / absorbed


def of_deepseek(model, topk):
    return topk * 278_528 / 81_920


def a_whole_token(model, topk):
    absorbed = 2 * model.latent_dim + model.rope_dim
    return float(-(-topk * absorbed // (model.nope_dim + model.rope_dim + model.value_dim)))


EXERCISE = Exercise(
    id="break_even_position",
    chapter=10,
    order=10,
    title="where one query costs the same",
    checks="the position at which one query's dense and sparse attention cost the same",
    points=1,
    difficulty=1,
    minutes=4,
    make=make,
    oracle=oracle,
    cases=(
        Case("small widths by hand"),
        Case("DeepSeek-V3.2", make=given(DEEPSEEK_V32, 2048)),
        Case("DeepSeek-V3.2, half the picks", make=given(DEEPSEEK_V32, 1024)),
        Case("GLM-5", make=given(GLM_5, 2048)),
        Case("GLM-5.2, other picks", make=given(GLM_52, 777)),
        Case("DeepSeek-V3, without an indexer", make=given(DEEPSEEK_V3, 2048)),
        Case("MiniCPM3-4B, without an indexer", make=given(MINICPM3, 512)),
        Case("odd widths", make=given(ODD, 501)),
        Case("sizes drawn at random", make=make_drawn),
        Case("one pick", make=given(ODD, 1)),
    ),
    hints=(
        "Write the cost of one query at position p twice, dense and sparse. Which of the two depends on p?",
        "Dense costs p expanded pairs, sparse topk absorbed pairs. Set them equal. The heads cancel.",
        "Fill the gaps:\n\n    absorbed, expanded, _ = ____\n    return ____ * ____ / ____",
    ),
    mistakes=(
        Mistake(
            "that of a prompt", "this is the length of a whole prompt by half a square. Asked is one query", of_a_prompt
        ),
        Mistake(
            "indexer charged",
            "the indexer was charged to the sparse side. This compares attention alone",
            indexer_charged,
        ),
        Mistake(
            "indexer on the picked tokens",
            "the indexer was added to the picked pairs. This compares attention alone",
            indexer_on_the_picked,
        ),
        Mistake("topk of the model", "the model's own index_topk was taken, not the argument", topk_of_the_model),
        Mistake(
            "the ratio alone",
            "this is what an absorbed pair costs over an expanded one. There are topk of them",
            the_ratio,
        ),
        Mistake(
            "wrong way round",
            "the ratio is upside down: this position lies below topk, where sparse attention meets all tokens anyway",
            wrong_way_round,
        ),
        Mistake("DeepSeek's widths", "these are the pairs of DeepSeek-V3.2. Compute those of the model", of_deepseek),
        Mistake("a whole token", "the position was rounded up to a whole token. Return it as it is", a_whole_token),
    ),
    mutants=(
        Mutant(of_a_prompt, "that of a prompt"),
        Mutant(indexer_charged, "indexer charged"),
        Mutant(indexer_on_the_picked, "indexer on the picked tokens"),
        Mutant(topk_of_the_model, "topk of the model"),
        Mutant(the_ratio, "the ratio alone"),
        Mutant(wrong_way_round, "wrong way round"),
        Mutant(of_deepseek, "DeepSeek's widths"),
        Mutant(a_whole_token, "a whole token"),
    ),
)
