"""Chapter 10: the length at which a whole prompt costs the same either way."""

import math
from dataclasses import replace

from ledger.exercises import dsa_prefill_ledger
from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.break_even_position import bisect
from ledger.exercises.making import rewritten
from ledger.exercises.pair_flops import ODD, SMALL, drawn_model
from ledger.models import DEEPSEEK_V3, DEEPSEEK_V32, GLM_5, GLM_52

#: An expanded pair of ODD takes 2 · 11 · 146 = 3,212 FLOP, and so does the indexer's.
AS_DEAR = replace(ODD, name="indexer as dear as attention", index_heads=22, index_dim=73)
DEARER = replace(ODD, name="indexer dearer than attention", index_heads=31)

ANSWER = """\
def break_even_prompt(model, topk, exact, with_indexer):
    absorbed = 2 * model.num_heads * (2 * model.latent_dim + model.rope_dim)
    expanded = 2 * model.num_heads * (model.nope_dim + model.rope_dim + model.value_dim)
    indexer = 2 * model.index_heads * model.index_dim if model.index_heads else 0
    saved = expanded - (indexer if with_indexer else 0)
    if saved <= 0:
        return float("inf")
    ratio = absorbed / saved
    if not exact:
        return 2 * topk * ratio
    half = topk * ratio - 0.5
    return half + (half * half - topk * (topk - 1) * ratio) ** 0.5
"""


def make(rng, dtype):
    return given(SMALL, 6, True, True)(rng, dtype)


def given(shape, topk, exact, with_indexer):
    """A maker of exactly these arguments."""
    return lambda rng, dtype: {"model": shape, "topk": topk, "exact": exact, "with_indexer": with_indexer}


def drawn_with(exact, with_indexer):
    """A maker of widths and topk drawn at random."""

    def make_drawn(rng, dtype):
        return given(drawn_model(rng), int(rng.integers(300, 4000)), exact, with_indexer)(rng, dtype)

    return make_drawn


def oracle(model, topk, exact, with_indexer):
    """Search for it on the parabola through the ledger at three lengths from ``topk`` on."""

    def lead(prompt_tokens):
        """FLOP that dense costs more; with a topk of 0 the sparse side is the indexer alone."""
        flops = dsa_prefill_ledger.oracle(prompt_tokens, model, topk, exact)
        indexer = dsa_prefill_ledger.oracle(prompt_tokens, model, 0, exact)["sparse_flops"]
        return flops["dense_flops"] - flops["sparse_flops"] + (0 if with_indexer else indexer)

    first, second, third = (lead(topk + more) for more in range(3))
    bend = third - 2 * second + first
    if bend <= 0:
        return math.inf

    def dearer(length):
        beyond = length - topk
        return first + beyond * (second - first) + beyond * (beyond - 1) / 2 * bend >= 0

    return bisect(dearer, topk)


#: What the mutants change.
LINES = {
    "saved": "expanded - (indexer if with_indexer else 0)",
    "guard": "saved <= 0",
    "ratio": "absorbed / saved",
    "estimate": "2 * topk * ratio",
    "chosen": "if not exact:",
    "half": "topk * ratio - 0.5",
    "root": "half + (half * half - topk * (topk - 1) * ratio) ** 0.5",
}


def but(name, **changes):
    """The answer with lines changed; each change names the line by what it computes."""
    return rewritten(ANSWER, name, {LINES[line]: text for line, text in changes.items()})


always_exact = but("always_exact", chosen="if False:")
never_exact = but("never_exact", chosen="if True:")
exact_swapped = but("exact_swapped", chosen="if exact:")
with_indexer_swapped = but("with_indexer_swapped", saved="expanded - (0 if with_indexer else indexer)")
indexer_never_charged = but("indexer_never_charged", saved="expanded")
indexer_always_charged = but("indexer_always_charged", saved="expanded - indexer")
indexer_charged_to_dense = but("indexer_charged_to_dense", saved="expanded + (indexer if with_indexer else 0)")
indexer_on_the_picked = but(
    "indexer_on_the_picked", saved="expanded", ratio="(absorbed + (indexer if with_indexer else 0)) / saved"
)
whole_square = but("whole_square", estimate="topk * ratio")
quarter_of_a_square = but("quarter_of_a_square", estimate="4 * topk * ratio")
position = but("position", estimate="topk * ratio", root="topk * ratio")
rectangle_of_picks = but("rectangle_of_picks", root="2 * half")
half_square_of_dense = but("half_square_of_dense", half="topk * ratio")
one_pick_less_each = but("one_pick_less_each", root="half + (half * half - topk * (topk + 1) * ratio) ** 0.5")
other_root = but("other_root", root="half - (half * half - topk * (topk - 1) * ratio) ** 0.5")
topk_of_the_model = but(
    "topk_of_the_model",
    estimate="2 * model.index_topk * ratio",
    half="model.index_topk * ratio - 0.5",
    root="half + (half * half - model.index_topk * (model.index_topk - 1) * ratio) ** 0.5",
)
negative = but("negative", guard="saved == 0")
never_infinite = but("never_infinite", guard="False")
whole_tokens = but(
    "whole_tokens",
    estimate="float(-(-2 * topk * absorbed // saved))",
    root="-(-(half + (half * half - topk * (topk - 1) * ratio) ** 0.5) // 1)",
)

EXERCISE = Exercise(
    id="break_even_prompt",
    chapter=10,
    order=11,
    title="where a prompt costs the same",
    checks="the length at which a whole prompt's dense and sparse prefill cost the same",
    points=4,
    difficulty=3,
    minutes=20,
    make=make,
    oracle=oracle,
    cases=(
        Case("small widths by hand, exact, with the indexer"),
        Case("small widths by hand, half a square", make=given(SMALL, 6, False, False)),
        Case("DeepSeek-V3.2, half a square", make=given(DEEPSEEK_V32, 2048, False, False)),
        Case("DeepSeek-V3.2, half a square, with the indexer", make=given(DEEPSEEK_V32, 2048, False, True)),
        Case("DeepSeek-V3.2, exact", make=given(DEEPSEEK_V32, 2048, True, False)),
        Case("DeepSeek-V3.2, exact, with the indexer", make=given(DEEPSEEK_V32, 2048, True, True)),
        Case("GLM-5, exact", make=given(GLM_5, 2048, True, False)),
        Case("GLM-5.2, other picks, with the indexer", make=given(GLM_52, 1777, False, True)),
        Case("DeepSeek-V3, without an indexer", make=given(DEEPSEEK_V3, 2048, True, True)),
        Case("drawn at random, half a square", make=drawn_with(False, True)),
        Case("drawn at random, exact", make=drawn_with(True, True)),
        Case("one pick, exact", make=given(ODD, 1, True, True)),
        Case("an indexer as dear as attention", make=given(AS_DEAR, 501, True, True)),
        Case("an indexer dearer than attention", make=given(DEARER, 501, False, True)),
        Case("an indexer dearer than attention on both sides", make=given(DEARER, 501, True, False)),
    ),
    hints=(
        "Set the two totals of the prefill ledger equal, at a length above topk. What the indexer costs stands on one "
        "side or on both. In which case does it cancel?",
        "Bring all that has the number of seen pairs to one side: each of them saves an expanded pair, less the "
        "indexer's where only the sparse side pays it. For the estimate one L cancels. The exact form is a quadratic "
        "equation in L, and the larger root is wanted. First see whether anything is saved at all.",
        "Fill the gaps; the exact form is L² − 2·h·L + c = 0:\n\n"
        "    saved = ____\n"
        "    # math.inf where nothing is saved\n"
        "    if not exact:\n"
        "        return ____\n"
        "    h = ____ - 1 / 2\n"
        "    c = ____\n"
        "    return h + ____",
    ),
    mistakes=(
        Mistake(
            "always exact",
            "exact=False asks for half a square and a rectangle of picks. This is the exact length",
            always_exact,
        ),
        Mistake(
            "never exact", "exact=True asks for sums over positions. This is the length by half a square", never_exact
        ),
        Mistake("exact swapped", "exact=True and exact=False are swapped", exact_swapped),
        Mistake(
            "indexer never charged",
            "the indexer is missing. With with_indexer=True the sparse side alone pays for it",
            indexer_never_charged,
        ),
        Mistake(
            "indexer always charged",
            "the indexer was charged to the sparse side alone. With with_indexer=False both sides run it",
            indexer_always_charged,
        ),
        Mistake(
            "with_indexer swapped",
            "with_indexer is swapped: True has the sparse side alone run the indexer, False both, so that it cancels",
            with_indexer_swapped,
        ),
        Mistake(
            "indexer charged to dense",
            "the indexer was charged to the dense side. It belongs to the sparse one",
            indexer_charged_to_dense,
        ),
        Mistake(
            "indexer on the picked tokens",
            "the indexer was charged for the picked tokens alone. It scores every token in sight",
            indexer_on_the_picked,
        ),
        Mistake(
            "a whole square",
            "with exact=False this is half the length: it comes of a whole square. Half a square is L²/2, so that the "
            "length is 2 · topk · absorbed / saved",
            whole_square,
        ),
        Mistake("one query", "this is the position of one query. Asked is the length of a whole prompt", position),
        Mistake(
            "the factor 2 twice",
            "with exact=False this is twice the length. Half a square is L²/2, so that the length is "
            "2 · topk · absorbed / saved",
            quarter_of_a_square,
        ),
        Mistake(
            "a rectangle of picks",
            "a triangle was set against a full rectangle. With exact=True the first topk queries meet fewer tokens",
            rectangle_of_picks,
        ),
        Mistake(
            "half a square of dense pairs",
            "half a square was set against exact picks. With exact=True dense attention has L(L + 1)/2 pairs",
            half_square_of_dense,
        ),
        Mistake(
            "early picks one short",
            "topk(topk + 1)/2 picks were taken off the rectangle. The query at position p meets itself too: p, so that "
            "topk(topk - 1)/2 are missing",
            one_pick_less_each,
        ),
        Mistake(
            "the other root",
            "this is the smaller root. It lies below topk, where the formula for the picks does not hold",
            other_root,
        ),
        Mistake("topk of the model", "the model's own index_topk was taken, not the argument", topk_of_the_model),
        Mistake("a negative length", "a negative length means that sparse never gets cheaper: math.inf", negative),
        Mistake("whole tokens", "the length was rounded up to whole tokens. Return it as it is", whole_tokens),
    ),
    mutants=(
        Mutant(always_exact, "always exact"),
        Mutant(never_exact, "never exact"),
        Mutant(exact_swapped, "exact swapped"),
        Mutant(with_indexer_swapped, "with_indexer swapped"),
        Mutant(indexer_never_charged, "indexer never charged"),
        Mutant(indexer_always_charged, "indexer always charged"),
        Mutant(indexer_charged_to_dense, "indexer charged to dense"),
        Mutant(indexer_on_the_picked, "indexer on the picked tokens"),
        Mutant(position, "one query"),
        Mutant(whole_square, "a whole square"),
        Mutant(quarter_of_a_square, "the factor 2 twice"),
        Mutant(rectangle_of_picks, "a rectangle of picks"),
        Mutant(half_square_of_dense, "half a square of dense pairs"),
        Mutant(one_pick_less_each, "early picks one short"),
        Mutant(other_root, "the other root"),
        Mutant(topk_of_the_model, "topk of the model"),
        Mutant(negative, "a negative length"),
        Mutant(never_infinite, "ZeroDivisionError", verdict="error"),
        Mutant(whole_tokens, "whole tokens"),
    ),
)
