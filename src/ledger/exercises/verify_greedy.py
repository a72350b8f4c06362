"""Chapter 8: which drafts the target's best tokens confirm, and the token that comes for free."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.reference import mtp


def make(rng, dtype, drafts, vocabulary, right):
    """The first ``right`` drafts are the target's, the next one is not, and later ones are again as often as not."""
    target = rng.integers(0, vocabulary, drafts + 1)
    draft = target[:drafts].copy()
    if right < drafts:
        later = rng.random(drafts) < 0.5
        later[: right + 1] = False
        later[right] = True
        draft[later] = (draft[later] + rng.integers(1, vocabulary, int(later.sum()))) % vocabulary
        if right + 1 < drafts:  # what a count of all that agree would count
            draft[-1] = target[drafts - 1]
    return {"draft_tokens": draft.tolist(), "target_tokens": target.tolist()}


def make_drawn(rng, dtype):
    drafts = int(rng.integers(3, 9))
    return make(rng, dtype, drafts=drafts, vocabulary=1000, right=int(rng.integers(0, drafts)))


def make_toy(rng, dtype, **dims):
    return {"draft_tokens": [5, 9, 2], "target_tokens": [5, 7, 2, 4]}


def make_shifted(rng, dtype, drafts):
    """Drafts that are the target's tokens one place early."""
    target = rng.permutation(100)[: drafts + 1].tolist()
    return {"draft_tokens": target[1:], "target_tokens": target}


def make_array(rng, dtype, **dims):
    return {name: np.array(tokens, np.int64) for name, tokens in make(rng, dtype, **dims).items()}


def all_that_agree(draft_tokens, target_tokens):
    accepted = [int(d) for d, t in zip(draft_tokens, target_tokens) if d == t]  # noqa: B905
    return accepted, int(target_tokens[len(accepted)])


def counted_after_the_mismatch(draft_tokens, target_tokens):
    agree = [int(d) == int(t) for d, t in zip(draft_tokens, target_tokens)]  # noqa: B905
    accepted = [int(d) for d, right in zip(draft_tokens, agree) if right]  # noqa: B905
    return accepted, int(target_tokens[[*agree, False].index(False)])


def all_that_agree_and_the_last(draft_tokens, target_tokens):
    return [int(d) for d, t in zip(draft_tokens, target_tokens) if d == t], int(target_tokens[-1])  # noqa: B905


def all_accepted(draft_tokens, target_tokens):
    return [int(d) for d in draft_tokens], int(target_tokens[-1])


def none_accepted(draft_tokens, target_tokens):
    return [], int(target_tokens[0])


def bonus_is_the_last(draft_tokens, target_tokens):
    n = 0
    while n < len(draft_tokens) and draft_tokens[n] == target_tokens[n]:
        n += 1
    return [int(d) for d in draft_tokens[:n]], int(target_tokens[-1])


def bonus_one_late(draft_tokens, target_tokens):
    n = 0
    while n < len(draft_tokens) and draft_tokens[n] == target_tokens[n]:
        n += 1
    return [int(d) for d in draft_tokens[:n]], int(target_tokens[min(n + 1, len(target_tokens) - 1)])


def bonus_is_the_rejected_draft(draft_tokens, target_tokens):
    n = 0
    while n < len(draft_tokens) and draft_tokens[n] == target_tokens[n]:
        n += 1
    return [int(d) for d in draft_tokens[:n]], int(draft_tokens[n] if n < len(draft_tokens) else target_tokens[n])


def bonus_among_the_accepted(draft_tokens, target_tokens):
    n = 0
    while n < len(draft_tokens) and draft_tokens[n] == target_tokens[n]:
        n += 1
    return [int(d) for d in draft_tokens[:n]] + [int(target_tokens[n])], int(target_tokens[n])


def compared_one_late(draft_tokens, target_tokens):
    n = 0
    while n < len(draft_tokens) and draft_tokens[n] == target_tokens[n + 1]:
        n += 1
    return [int(d) for d in draft_tokens[:n]], int(target_tokens[n])


def count_for_list(draft_tokens, target_tokens):
    n = 0
    while n < len(draft_tokens) and draft_tokens[n] == target_tokens[n]:
        n += 1
    return n, int(target_tokens[n])


EXERCISE = Exercise(
    id="verify_greedy",
    chapter=8,
    order=2,
    title="verification by the best token",
    checks="drafts that are the target's best tokens, and the target's token after them",
    points=1,
    difficulty=1,
    minutes=6,
    make=make,
    oracle=mtp.verify_greedy,
    returns=("accepted", "bonus"),
    cases=(
        Case("the toy by hand", {"drafts": 3, "vocabulary": 10, "right": 1}, make=make_toy),
        Case("the first draft is wrong", {"drafts": 4, "vocabulary": 50, "right": 0}),
        Case("two of five are right", {"drafts": 5, "vocabulary": 50, "right": 2}),
        Case("all drafts are right", {"drafts": 3, "vocabulary": 50, "right": 3}),
        Case("one draft", {"drafts": 1, "vocabulary": 50, "right": 1}),
        Case("one wrong draft", {"drafts": 1, "vocabulary": 50, "right": 0}),
        Case("no draft", {"drafts": 0, "vocabulary": 50, "right": 0}),
        Case("drafts that are one place early", {"drafts": 6}, make=make_shifted),
        Case("arrays in place of lists", {"drafts": 6, "vocabulary": 50, "right": 4}, make=make_array),
        Case("drafts drawn at random", make=make_drawn),
    ),
    hints=(
        "The target's token in a place is its answer to all drafts before that place. Up to which place are those "
        "answers about the right text?",
        "Walk along while draft and target agree. Where they part, the target's token is still right: it followed "
        "accepted drafts alone. Where they never part, one entry of the target is left.",
        "Fill the gaps:\n\n"
        "    n = 0\n"
        "    while n < ____ and draft_tokens[n] == ____:\n"
        "        n += 1\n"
        "    return ____, ____",
    ),
    mistakes=(
        Mistake(
            "all that agree",
            "every draft that agrees was taken, also behind a wrong one. What follows a wrong draft answers a text "
            "that does not exist",
            all_that_agree,
        ),
        Mistake(
            "drafts counted after the mismatch",
            "the bonus is right, but drafts behind the first wrong one were taken too. They continue a text that does "
            "not exist",
            counted_after_the_mismatch,
        ),
        Mistake(
            "all that agree, and the last entry",
            "drafts behind a wrong one were taken, and the bonus is the target's last entry. Stop at the first that "
            "differs: the target's token in its place is the bonus",
            all_that_agree_and_the_last,
        ),
        Mistake("all accepted", "every draft was accepted; compare them with the target's tokens", all_accepted),
        Mistake("none accepted", "no draft was accepted; take them while they agree with the target", none_accepted),
        Mistake(
            "the bonus is always the last",
            "the bonus is the target's last entry. It is the entry right after the accepted drafts",
            bonus_is_the_last,
        ),
        Mistake(
            "bonus one late",
            "the bonus is the entry after the rejected draft. The target's token in the place of that draft is right",
            bonus_one_late,
        ),
        Mistake(
            "the rejected draft as bonus",
            "the rejected draft was returned as the bonus. The target's token takes its place",
            bonus_is_the_rejected_draft,
        ),
        Mistake(
            "bonus among the accepted",
            "the bonus stands in the list as well; only drafts belong there",
            bonus_among_the_accepted,
        ),
        Mistake(
            "compared one place late",
            "draft i was compared with the target's entry i + 1. Entry i is the target's choice for draft i's place",
            compared_one_late,
        ),
    ),
    mutants=(
        Mutant(all_that_agree, "all that agree"),
        Mutant(counted_after_the_mismatch, "drafts counted after the mismatch"),
        Mutant(all_that_agree_and_the_last, "all that agree, and the last entry"),
        Mutant(all_accepted, "all accepted"),
        Mutant(none_accepted, "none accepted"),
        Mutant(bonus_is_the_last, "the bonus is always the last"),
        Mutant(bonus_one_late, "bonus one late"),
        Mutant(bonus_is_the_rejected_draft, "the rejected draft as bonus"),
        Mutant(bonus_among_the_accepted, "bonus among the accepted"),
        Mutant(compared_one_late, "compared one place late"),
        Mutant(count_for_list, "accepted is"),
    ),
)
