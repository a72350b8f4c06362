"""Chapter 10: a whole prompt, dense and sparse, by an estimate and exactly."""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from ledger.exercises import pair_flops
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import rewritten
from ledger.exercises.pair_flops import ODD, SMALL, drawn_model
from ledger.models import DEEPSEEK_V3, DEEPSEEK_V32, GLM_5, GLM_52

#: With this, FLOP of a pair are twice an odd number, and those of a long prompt need more than a float's digits.
LARGE = replace(ODD, name="many heads", num_heads=131, value_dim=51)

ANSWER = """\
def dsa_prefill_ledger(prompt_tokens, model, topk, exact):
    absorbed = 2 * model.num_heads * (2 * model.latent_dim + model.rope_dim)
    expanded = 2 * model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim)
    indexer = 2 * model.index_heads * model.index_dim if model.index_heads else 0
    picked = min(prompt_tokens, topk)
    seen = prompt_tokens * (prompt_tokens + 1 if exact else prompt_tokens)
    met = prompt_tokens * picked - (picked * (picked - 1) // 2 if exact else 0)
    return {
        "dense_flops": seen * expanded // 2,
        "sparse_flops": seen * indexer // 2 + met * absorbed,
    }
"""


def make(rng, dtype):
    return given(5, SMALL, 2, True)(rng, dtype)


def given(prompt_tokens, shape, topk, exact):
    """A maker of exactly these arguments."""
    return lambda rng, dtype: {"prompt_tokens": prompt_tokens, "model": shape, "topk": topk, "exact": exact}


def drawn_with(exact):
    """A maker of widths and lengths drawn at random, the prompt longer than topk and odd."""

    def make_drawn(rng, dtype):
        prompt_tokens, topk = 2 * int(rng.integers(3000, 20_000)) + 1, int(rng.integers(300, 3000))
        return given(prompt_tokens, drawn_model(rng), topk, exact)(rng, dtype)

    return make_drawn


def oracle(prompt_tokens, model, topk, exact):
    """The pairs of every position added up, or all positions alike with half the prompt in sight."""
    if exact:
        positions = np.arange(1, prompt_tokens + 1, dtype=np.int64)
        seen, met = (int(tokens.sum()) for tokens in (positions, positions.clip(max=topk)))
    else:
        seen, met = prompt_tokens * Fraction(prompt_tokens, 2), prompt_tokens * min(prompt_tokens, topk)
    absorbed, expanded, indexer = pair_flops.oracle(model)
    return {"dense_flops": int(seen * expanded), "sparse_flops": int(seen * indexer) + met * absorbed}


#: What the mutants change.
LINES = {
    "absorbed": "2 * model.num_heads * (2 * model.latent_dim + model.rope_dim)",
    "expanded": "2 * model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim)",
    "indexer": "2 * model.index_heads * model.index_dim if model.index_heads else 0",
    "has_indexer": " if model.index_heads else 0",
    "picked": "min(prompt_tokens, topk)",
    "seen": "prompt_tokens * (prompt_tokens + 1 if exact else prompt_tokens)",
    "met": "prompt_tokens * picked - (picked * (picked - 1) // 2 if exact else 0)",
    "dense": "seen * expanded // 2",
    "sparse": "seen * indexer // 2 + met * absorbed",
}


def but(name, **changes):
    """The answer with lines changed; each change names the line by what it computes."""
    return rewritten(ANSWER, name, {LINES[line]: text for line, text in changes.items()})


multiply_adds = but("multiply_adds", dense="seen * expanded // 4", sparse="(seen * indexer // 2 + met * absorbed) // 2")
one_query = but("one_query", dense="prompt_tokens * expanded", sparse="prompt_tokens * indexer + picked * absorbed")
picks_expanded = but("picks_expanded", sparse="seen * indexer // 2 + met * expanded")
dense_absorbed = but("dense_absorbed", dense="seen * absorbed // 2")
indexer_forgotten = but("indexer_forgotten", indexer="0")
indexer_on_both_sides = but("indexer_on_both_sides", dense="seen * (expanded + indexer) // 2")
indexer_on_the_picked = but("indexer_on_the_picked", sparse="met * (indexer + absorbed)")
no_causal_mask = but(
    "no_causal_mask",
    seen="2 * prompt_tokens * prompt_tokens",
    met="prompt_tokens * picked",
)
always_a_triangle = but(
    "always_a_triangle",
    seen="prompt_tokens * (prompt_tokens + 1)",
    met="prompt_tokens * picked - picked * (picked - 1) // 2",
)
always_a_rectangle = but("always_a_rectangle", seen="prompt_tokens * prompt_tokens", met="prompt_tokens * picked")
swapped = but(
    "swapped",
    seen="prompt_tokens * (prompt_tokens if exact else prompt_tokens + 1)",
    met="prompt_tokens * picked - (0 if exact else picked * (picked - 1) // 2)",
)
square_of_pairs = but("square_of_pairs", seen="prompt_tokens * prompt_tokens")
square_halved_first = but(
    "square_halved_first",
    seen="prompt_tokens * prompt_tokens",
    dense="seen // 2 * expanded",
    sparse="seen // 2 * indexer + met * absorbed",
)
square_in_floats = but(
    "square_in_floats",
    seen="prompt_tokens * prompt_tokens",
    dense="int(seen / 2 * expanded)",
    sparse="int(seen / 2 * indexer) + met * absorbed",
)
rectangle_of_picks = but("rectangle_of_picks", met="prompt_tokens * picked")
triangle_of_picks = but("triangle_of_picks", met="prompt_tokens * picked - picked * (picked - 1) // 2")
itself_not_seen = but(
    "itself_not_seen",
    seen="prompt_tokens * (prompt_tokens - 1 if exact else prompt_tokens)",
    met="prompt_tokens * picked - (picked * (picked + 1) // 2 if exact else 0)",
)
one_less_scored = but("one_less_scored", seen="prompt_tokens * (prompt_tokens - 1 if exact else prompt_tokens)")
topk_not_capped = but("topk_not_capped", picked="topk")
estimate_not_capped = but(
    "estimate_not_capped",
    met="prompt_tokens * picked - picked * (picked - 1) // 2 if exact else prompt_tokens * topk",
)
sum_not_capped = but(
    "sum_not_capped",
    met="prompt_tokens * topk - topk * (topk - 1) // 2 if exact else prompt_tokens * picked",
)
topk_of_the_model = but("topk_of_the_model", picked="min(prompt_tokens, model.index_topk)")
half_a_pair_lost = but("half_a_pair_lost", dense="seen // 2 * expanded", sparse="seen // 2 * indexer + met * absorbed")
half_a_prompt = but(
    "half_a_prompt",
    seen="prompt_tokens * (prompt_tokens + 1) if exact else prompt_tokens // 2 * 2 * prompt_tokens",
)
half_a_prompt_always = but("half_a_prompt_always", seen="prompt_tokens // 2 * 2 * prompt_tokens")
through_floats = but(
    "through_floats", dense="int(seen * expanded / 2)", sparse="int(seen * indexer / 2 + met * absorbed)"
)
in_floats = but("in_floats", dense="seen / 2 * expanded")
no_indexer_not_thought_of = but("no_indexer_not_thought_of", has_indexer="")

EXERCISE = Exercise(
    id="dsa_prefill_ledger",
    chapter=10,
    order=9,
    title="a prompt, dense and sparse",
    checks="FLOP of all queries of a prompt in one layer, dense and sparse",
    points=3,
    difficulty=2,
    minutes=12,
    make=make,
    oracle=oracle,
    cases=(
        Case("small widths by hand, exact"),
        Case("small widths by hand, half a square", make=given(5, SMALL, 2, False)),
        Case("DeepSeek-V3.2 at 4K, exact", make=given(4096, DEEPSEEK_V32, 2048, True)),
        Case("DeepSeek-V3.2 at 128K, half a square", make=given(131_072, DEEPSEEK_V32, 2048, False)),
        Case("GLM-5.2 at 32K, half the picks, exact", make=given(32_768, GLM_52, 1024, True)),
        Case("GLM-5, an odd prompt, half a square", make=given(9999, GLM_5, 2048, False)),
        Case("a prompt shorter than topk, exact", make=given(777, ODD, 1000, True)),
        Case("a prompt shorter than topk, half a square", make=given(777, ODD, 1000, False)),
        Case("a model without an indexer", make=given(5001, DEEPSEEK_V3, 2048, True)),
        Case("sizes drawn at random, exact", make=drawn_with(True)),
        Case("sizes drawn at random, half a square", make=drawn_with(False)),
        Case("one token", make=given(1, GLM_52, 2048, True)),
        Case("an empty prompt", make=given(0, DEEPSEEK_V32, 2048, False)),
        Case("more than a float counts exactly", make=given(999_997, LARGE, 2001, True)),
    ),
    hints=(
        "Draw a square: a row for each query, a column for each token. Shade what dense attention meets. Then shade, "
        "in another colour, what is left of it when no row may be longer than topk. Count both areas, and the same for "
        "the estimate.",
        "The exact areas: a triangle of L rows, and a triangle of the first min(L, topk) rows on top of a rectangle. "
        "The estimate: half a square, and a rectangle. Dense pairs are expanded, picked ones absorbed, and the indexer "
        "scores all that dense attention would meet. Halve last, so that no half pair is lost.",
        "Fill the gaps:\n\n"
        "    absorbed, expanded, indexer = ____\n"
        "    seen_twice = ____ if exact else ____\n"
        "    met = ____ if exact else ____\n"
        '    return {"dense_flops": seen_twice * ____ // 2, "sparse_flops": ____}',
    ),
    mistakes=(
        Mistake("multiply-adds", "these are multiply-adds. Each is 2 FLOP", multiply_adds),
        Mistake("one query", "this is the last query alone. Every token of the prompt is a query", one_query),
        Mistake(
            "picks expanded",
            "the picks are priced as expanded pairs. Each query has its own picks, so only the absorbed form serves",
            picks_expanded,
        ),
        Mistake("dense absorbed", "dense prefill expands keys and values: its pairs are expanded ones", dense_absorbed),
        Mistake("indexer forgotten", "the indexer is missing. It scores all that a query sees", indexer_forgotten),
        Mistake(
            "indexer on both sides",
            "dense attention was charged with the indexer. It runs none here",
            indexer_on_both_sides,
        ),
        Mistake(
            "indexer on the picked tokens",
            "the indexer was charged for the picked tokens alone. To pick them it must score every one in sight",
            indexer_on_the_picked,
        ),
        Mistake(
            "no causal mask",
            "every query was shown the whole prompt. It sees itself and what is before it",
            no_causal_mask,
        ),
        Mistake(
            "a triangle for the estimate",
            "these are exact counts. exact=False asks for the estimate: half a square, and a rectangle of picks",
            always_a_triangle,
        ),
        Mistake(
            "an estimate for the triangle",
            "this is the estimate. exact=True adds up over positions: p tokens in sight, min(p, topk) met",
            always_a_rectangle,
        ),
        Mistake("exact swapped", "exact=True and exact=False are swapped", swapped),
        Mistake(
            "a rectangle of picks",
            "the picks were counted as a full rectangle. With exact=True the first queries have fewer tokens in sight",
            rectangle_of_picks,
        ),
        Mistake(
            "a triangle of picks",
            "early queries were given fewer picks. With exact=False every query meets min(L, topk)",
            triangle_of_picks,
        ),
        Mistake("itself not seen", "a query sees itself too: p tokens at position p, counted from 1", itself_not_seen),
        Mistake(
            "itself not scored",
            "the pairs in sight are L(L - 1)/2 here: a query sees itself too, so with exact=True they are L(L + 1)/2",
            one_less_scored,
        ),
        Mistake(
            "estimate not capped",
            "with exact=False more tokens were picked than the prompt has. Every query meets min(L, topk)",
            estimate_not_capped,
        ),
        Mistake(
            "sum not capped",
            "with exact=True the sum runs on to topk positions. In a shorter prompt there are only L",
            sum_not_capped,
        ),
        Mistake(
            "topk not capped", "more tokens were picked than the prompt has. Take the smaller number", topk_not_capped
        ),
        Mistake("topk of the model", "the model's own index_topk was taken, not the argument", topk_of_the_model),
        Mistake(
            "half a pair lost",
            "half a square of an odd prompt is not whole, and its half pair was dropped. Multiply first, then halve",
            half_a_pair_lost,
        ),
        Mistake(
            "half of an odd prompt",
            "L // 2 drops half a token of an odd prompt, and with it half a row of pairs. Multiply first, then halve",
            half_a_prompt,
            also=(half_a_prompt_always,),
        ),
        Mistake(
            "half a square of pairs",
            "the pairs in sight are L²/2 here, the estimate. With exact=True they are L(L + 1)/2: p at position p",
            square_of_pairs,
            also=(square_halved_first, square_in_floats),
        ),
        Mistake(
            "through floats",
            "the counts went through floats, which round beyond 2^53. Use // in place of /",
            through_floats,
        ),
    ),
    mutants=(
        Mutant(multiply_adds, "multiply-adds"),
        Mutant(one_query, "one query"),
        Mutant(picks_expanded, "picks expanded"),
        Mutant(dense_absorbed, "dense absorbed"),
        Mutant(indexer_forgotten, "indexer forgotten"),
        Mutant(indexer_on_both_sides, "indexer on both sides"),
        Mutant(indexer_on_the_picked, "indexer on the picked tokens"),
        Mutant(no_causal_mask, "no causal mask"),
        Mutant(always_a_triangle, "a triangle for the estimate"),
        Mutant(always_a_rectangle, "an estimate for the triangle"),
        Mutant(swapped, "exact swapped"),
        Mutant(square_of_pairs, "half a square of pairs"),
        Mutant(square_halved_first, "half a square of pairs"),
        Mutant(square_in_floats, "half a square of pairs"),
        Mutant(rectangle_of_picks, "a rectangle of picks"),
        Mutant(triangle_of_picks, "a triangle of picks"),
        Mutant(itself_not_seen, "itself not seen"),
        Mutant(one_less_scored, "itself not scored"),
        Mutant(estimate_not_capped, "estimate not capped"),
        Mutant(sum_not_capped, "sum not capped"),
        Mutant(topk_not_capped, "topk not capped"),
        Mutant(topk_of_the_model, "topk of the model"),
        Mutant(half_a_pair_lost, "half a pair lost"),
        Mutant(half_a_prompt, "half of an odd prompt"),
        Mutant(half_a_prompt_always, "half of an odd prompt"),
        Mutant(through_floats, "through floats"),
        Mutant(in_floats, "counts are whole numbers"),
        Mutant(no_indexer_not_thought_of, "TypeError", verdict="error"),
    ),
)
