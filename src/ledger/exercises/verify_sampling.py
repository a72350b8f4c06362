"""Chapter 8: verification by rejection sampling, on fixed uniforms and on the distribution that comes out."""

from functools import partial

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.judge.launchers import drafts as rounds
from ledger.reference import mtp

#: Drafts of the rounds that are played: how often in 16 each token is drafted, one of them never.
DRAFTED = (8, 4, 2, 2, 0)


def make(rng, dtype, drafts, vocabulary, accepted=None):
    """Drafts drawn from their own distributions; where ``accepted`` is given, so many of them pass.

    Probabilities are multiples of one share and uniforms odd multiples of a quarter of it, so that no comparison is
    close, in float32 either.
    """
    shares = 64 if dtype == np.float32 else 1024
    while True:
        drawn = [rng.multinomial(shares, rng.dirichlet(np.full(vocabulary, 0.7))) for _ in range(2 * drafts + 1)]
        probs = np.array(drawn).reshape(2 * drafts + 1, vocabulary) / shares
        q, p = probs[:drafts], (probs[:drafts] + probs[drafts : 2 * drafts]) / 2
        p = np.concatenate([p, probs[2 * drafts :]])
        tokens = np.array([rng.choice(vocabulary, p=row) for row in q], np.int64)
        uniforms = (2 * rng.integers(0, 2 * shares, drafts + 1) + 1) / (4 * shares)
        if accepted is None or len(mtp.verify_sampling(tokens, q, p, uniforms)[0]) == accepted:
            return given(dtype, tokens, q, p, uniforms)


def given(dtype, tokens, q, p, uniforms):
    return {
        "draft_tokens": np.asarray(tokens, np.int64),
        "draft_probs": np.asarray(q, dtype),
        "target_probs": np.asarray(p, dtype),
        "uniforms": np.asarray(uniforms, dtype),
    }


def make_toy(rng, dtype, **dims):
    """The first draft passes, the second does not, and the residual is alike on two tokens."""
    q, p = [(0.5, 0.25, 0.25), (0.75, 0.25, 0)], [(0.25, 0.5, 0.25), (0.25, 0.5, 0.25), (0, 0, 1)]
    return given(dtype, [0, 0], q, p, [0.25, 0.5, 0.75])


def make_ties(rng, dtype, **dims):
    """uniform · q is p exactly at the second draft, and a cumulative sum of the residual is the last uniform."""
    q, p = [(0.5, 0.5, 0, 0), (1, 0, 0, 0)], [(0.5, 0.5, 0, 0), (0.5, 0.25, 0.25, 0), (0, 0, 0, 1)]
    return given(dtype, [1, 0], q, p, [0.75, 0.5, 0.5])


def make_one_hot(rng, dtype, drafts, vocabulary, accepted):
    """Greedy drafts: each is sure of its own token."""
    while True:
        inputs = make(rng, dtype, drafts, vocabulary)
        inputs["draft_probs"] = np.eye(vocabulary, dtype=dtype)[inputs["draft_tokens"]]
        if len(mtp.verify_sampling(*inputs.values())[0]) == accepted:
            return inputs


def make_wide(rng, dtype, drafts, vocabulary):
    """Distributions over a real vocabulary, the draft's a disturbed copy of the target's."""
    logits = 3 * rng.standard_normal((drafts + 1, vocabulary))
    p = np.exp(logits)
    q = np.exp(logits[:drafts] + rng.standard_normal((drafts, vocabulary)))
    p, q = (x / x.sum(axis=1, keepdims=True) for x in (p, q))
    tokens = [int(rng.choice(vocabulary, p=row)) for row in q]
    return given(dtype, tokens, q, p, [*(0.98 + 0.02 * rng.random(drafts)), 0.01 + 0.98 * rng.random()])


def make_rounds(rng, dtype, vocabulary):
    """One draft a round, in all rounds as often as its distribution says, with every pair of uniforms of a grid.

    Each cell of the grid lies on one side of every p ÷ q and of every cumulative sum, so that the tokens of a right
    rule come out exactly as often as the target says.
    """
    drafted = np.array(DRAFTED)
    while True:
        wanted = rng.multinomial(16, rng.dirichlet(np.ones(vocabulary)))
        rejected = int(np.maximum(wanted - drafted, 0).sum())
        # Where one token alone is owed, or a draft is always rejected, more rules than the right one would do.
        if rejected <= 8 and np.sum(wanted > drafted) >= 2 and np.all(wanted[drafted > 0] > 0):
            break
    after = rng.multinomial(rejected, rng.dirichlet(np.ones(vocabulary)))
    tokens = np.repeat(np.arange(vocabulary), drafted)
    grid = np.meshgrid(tokens, (np.arange(8) + 0.5) / 8, (np.arange(rejected) + 0.5) / rejected, indexing="ij")
    token, first, last = (axis.ravel() for axis in grid)
    p = np.array([wanted / 16, after / rejected])
    return given(dtype, token[:, None], [drafted / 16], p, np.stack([first, last], axis=1))


def accept_everything(draft_tokens, draft_probs, target_probs, uniforms):
    return [int(x) for x in draft_tokens], int(np.argmax(np.cumsum(target_probs[-1]) > uniforms[-1]))


def reject_everything(draft_tokens, draft_probs, target_probs, uniforms):
    w = np.maximum(target_probs[0] - draft_probs[0], 0) if len(draft_tokens) else target_probs[0]
    return [], int(np.argmax(np.cumsum(w) > uniforms[-1] * w.sum()))


def residual_from_the_target(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * draft_probs[i, x] < target_probs[i, x]:
            w = target_probs[i]
            return accepted, int(np.argmax(np.cumsum(w) > u[-1] * w.sum()))
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(target_probs[-1]) > u[-1]))


def uniform_used_twice(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * draft_probs[i, x] < target_probs[i, x]:
            w = np.maximum(target_probs[i] - draft_probs[i], 0)
            return accepted, int(np.argmax(np.cumsum(w) > u[i] * w.sum()))
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(target_probs[-1]) > u[-1]))


def next_uniform(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * draft_probs[i, x] < target_probs[i, x]:
            w = np.maximum(target_probs[i] - draft_probs[i], 0)
            return accepted, int(np.argmax(np.cumsum(w) > u[i + 1] * w.sum()))
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(target_probs[-1]) > u[-1]))


def bonus_from_the_draft(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * draft_probs[i, x] < target_probs[i, x]:
            w = np.maximum(target_probs[i] - draft_probs[i], 0)
            return accepted, int(np.argmax(np.cumsum(w) > u[-1] * w.sum()))
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(draft_probs[-1] if len(draft_tokens) else target_probs[-1]) > u[-1]))


def bonus_from_the_place_before(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * draft_probs[i, x] < target_probs[i, x]:
            w = np.maximum(target_probs[i] - draft_probs[i], 0)
            return accepted, int(np.argmax(np.cumsum(w) > u[-1] * w.sum()))
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(target_probs[max(len(draft_tokens) - 1, 0)]) > u[-1]))


def accepted_by_size(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not draft_probs[i, x] <= target_probs[i, x]:
            w = np.maximum(target_probs[i] - draft_probs[i], 0)
            return accepted, int(np.argmax(np.cumsum(w) > u[-1] * w.sum()))
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(target_probs[-1]) > u[-1]))


def accepted_by_target_alone(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] < target_probs[i, x]:
            w = np.maximum(target_probs[i] - draft_probs[i], 0)
            return accepted, int(np.argmax(np.cumsum(w) > u[-1] * w.sum()))
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(target_probs[-1]) > u[-1]))


def ratio_upside_down(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * target_probs[i, x] < draft_probs[i, x]:
            w = np.maximum(target_probs[i] - draft_probs[i], 0)
            return accepted, int(np.argmax(np.cumsum(w) > u[-1] * w.sum()))
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(target_probs[-1]) > u[-1]))


def residual_upside_down(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * draft_probs[i, x] < target_probs[i, x]:
            w = np.maximum(draft_probs[i] - target_probs[i], 0)
            return accepted, int(np.argmax(np.cumsum(w) > u[-1] * w.sum()))
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(target_probs[-1]) > u[-1]))


def residual_of_both_signs(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * draft_probs[i, x] < target_probs[i, x]:
            w = np.abs(target_probs[i] - draft_probs[i])
            return accepted, int(np.argmax(np.cumsum(w) > u[-1] * w.sum()))
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(target_probs[-1]) > u[-1]))


def residual_not_normalised(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * draft_probs[i, x] < target_probs[i, x]:
            w = np.maximum(target_probs[i] - draft_probs[i], 0)
            return accepted, int(min(np.sum(np.cumsum(w) <= u[-1]), len(w) - 1))
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(target_probs[-1]) > u[-1]))


def residual_not_normalised_nor_reached(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * draft_probs[i, x] < target_probs[i, x]:
            w = np.maximum(target_probs[i] - draft_probs[i], 0)
            return accepted, int(np.argmax(np.cumsum(w) > u[-1]))
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(target_probs[-1]) > u[-1]))


def residual_not_normalised_past_the_end(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * draft_probs[i, x] < target_probs[i, x]:
            w = np.maximum(target_probs[i] - draft_probs[i], 0)
            return accepted, int(np.searchsorted(np.cumsum(w), u[-1], side="right"))
        accepted.append(int(x))
    return accepted, int(np.searchsorted(np.cumsum(target_probs[-1]), u[-1], side="right"))


def first_uniform(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * draft_probs[i, x] < target_probs[i, x]:
            w = np.maximum(target_probs[i] - draft_probs[i], 0)
            return accepted, int(np.argmax(np.cumsum(w) > u[0] * w.sum()))
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(target_probs[-1]) > u[0]))


def best_of_the_residual(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * draft_probs[i, x] < target_probs[i, x]:
            return accepted, int(np.argmax(target_probs[i] - draft_probs[i]))
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(target_probs[-1]) > u[-1]))


def best_in_both_draws(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * draft_probs[i, x] < target_probs[i, x]:
            return accepted, int(np.argmax(target_probs[i] - draft_probs[i]))
        accepted.append(int(x))
    return accepted, int(np.argmax(target_probs[-1]))


def rejected_draft_returned(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * draft_probs[i, x] < target_probs[i, x]:
            return accepted, int(x)
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(target_probs[-1]) > u[-1]))


def goes_on_after_a_rejection(draft_tokens, draft_probs, target_probs, uniforms):
    accepted, token = [], None
    for i, x in enumerate(draft_tokens):
        if uniforms[i] * draft_probs[i, x] < target_probs[i, x]:
            accepted.append(int(x))
        elif token is None:
            w = np.maximum(target_probs[i] - draft_probs[i], 0)
            token = int(np.argmax(np.cumsum(w) > uniforms[-1] * w.sum()))
    return accepted, int(np.argmax(np.cumsum(target_probs[-1]) > uniforms[-1])) if token is None else token


def drawn_after_the_last_rejection(draft_tokens, draft_probs, target_probs, uniforms):
    accepted, w = [], target_probs[-1]
    for i, x in enumerate(draft_tokens):
        if uniforms[i] * draft_probs[i, x] < target_probs[i, x]:
            accepted.append(int(x))
        else:
            w = np.maximum(target_probs[i] - draft_probs[i], 0)
    return accepted, int(np.argmax(np.cumsum(w) > uniforms[-1] * w.sum()))


def tie_accepted(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * draft_probs[i, x] <= target_probs[i, x]:
            w = np.maximum(target_probs[i] - draft_probs[i], 0)
            return accepted, int(np.argmax(np.cumsum(w) > u[-1] * w.sum()))
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(target_probs[-1]) > u[-1]))


def tie_drawn_early(draft_tokens, draft_probs, target_probs, uniforms):
    u, accepted = uniforms, []
    for i, x in enumerate(draft_tokens):
        if not u[i] * draft_probs[i, x] < target_probs[i, x]:
            w = np.maximum(target_probs[i] - draft_probs[i], 0)
            return accepted, int(np.argmax(np.cumsum(w) >= u[-1] * w.sum()))
        accepted.append(int(x))
    return accepted, int(np.argmax(np.cumsum(target_probs[-1]) > u[-1]))


def known(answer, name, says, *also):
    """A mistake that is recognised in many rounds too."""
    value, *others = (partial(rounds.verify_sampling, wrong) for wrong in (answer, *also))
    return Mistake(name, says, value, tuple(others))


EXERCISE = Exercise(
    id="verify_sampling",
    chapter=8,
    order=3,
    title="verification by rejection sampling",
    checks="accepted drafts and one token more, by rejection sampling with given uniforms",
    points=4,
    difficulty=3,
    minutes=25,
    make=make,
    oracle=partial(rounds.verify_sampling, mtp.verify_sampling),
    launcher="drafts.verify_sampling",
    returns=("accepted", "token"),
    cases=(
        Case("the toy by hand", {"drafts": 2, "vocabulary": 3}, make=make_toy),
        Case("the first draft is rejected", {"drafts": 3, "vocabulary": 40, "accepted": 0}),
        Case("the last of three drafts is rejected", {"drafts": 3, "vocabulary": 40, "accepted": 2}),
        Case("the second of six drafts is rejected", {"drafts": 6, "vocabulary": 40, "accepted": 1}),
        Case("all drafts are accepted", {"drafts": 3, "vocabulary": 40, "accepted": 3}),
        Case("one draft", {"drafts": 1, "vocabulary": 40}),
        Case("no draft", {"drafts": 0, "vocabulary": 40}),
        Case("one token in the vocabulary", {"drafts": 2, "vocabulary": 1}),
        Case("ties", {"drafts": 2, "vocabulary": 4}, make=make_ties),
        Case("greedy drafts, one rejected", {"drafts": 2, "vocabulary": 20, "accepted": 1}, make=make_one_hot),
        Case("float32", {"drafts": 3, "vocabulary": 7, "accepted": 1}, dtype="float32"),
        Case("strided inputs", {"drafts": 4, "vocabulary": 30, "accepted": 2}, layout="strided"),
        Case("DeepSeek-V3's vocabulary", {"drafts": 1, "vocabulary": 129280}, make=make_wide),
        Case("hundreds of rounds, counted", {"vocabulary": len(DRAFTED)}, make=make_rounds),
    ),
    hints=(
        "A token comes out in two ways: as a draft that passed, or as a draw after a rejection. How much of the "
        "target's probability p(x) can the first way bring where q(x) is smaller, and where it is larger? The second "
        "way owes the rest.",
        "Walk along the drafts. Compare uniforms[i] times the draft's own probability with the target's probability of "
        "that token. At the first that fails clip p − q at 0, divide by its sum, and take the first token whose "
        "cumulative sum exceeds uniforms[-1]. If none fails, do the same with the last row of the target.",
        "Fill the gaps:\n\n"
        "    accepted, weights = [], ____  # where no draft fails\n"
        "    for i, x in enumerate(____):\n"
        "        if ____ >= ____:\n"
        "            weights = ____  # what the target gives more than the draft\n"
        "            break\n"
        "        accepted.append(____)\n"
        "    cumulative = ____  # of the normalised weights\n"
        "    return accepted, int(np.argmax(____))",
    ),
    mistakes=(  # the two that one case alone can tell stand first: it may fit others as well
        known(tie_accepted, "a tie accepted", "a draft is accepted only where u · q is *below* p"),
        known(
            tie_drawn_early,
            "a tie drawn one token early",
            "the token is the first whose cumulative probability *exceeds* the uniform",
        ),
        known(accept_everything, "everything accepted", "every draft was accepted, whatever the uniforms say"),
        known(reject_everything, "everything rejected", "no draft was accepted, whatever the uniforms say"),
        known(
            residual_from_the_target,
            "residual drawn from the target",
            "after a rejection the token was drawn from the target itself. Accepted drafts have paid a part of it "
            "already: draw from max(p − q, 0)",
        ),
        known(
            uniform_used_twice,
            "a uniform used twice",
            "the uniform that rejected the draft drew the token as well. It is large whenever a draft is rejected, so "
            "the draw is no longer free: use the last one",
        ),
        known(
            next_uniform,
            "the next draft's uniform",
            "the token after a rejection was drawn with the uniform of the next draft. The last one is kept for it",
        ),
        known(
            first_uniform,
            "the first uniform",
            "the token was drawn with uniforms[0], which the first draft has used. The last one is kept for the draw",
        ),
        known(
            bonus_from_the_draft,
            "bonus from the draft",
            "where all drafts pass, the bonus was drawn from the draft's last row. The target has one row more",
        ),
        known(
            bonus_from_the_place_before,
            "bonus from the place before",
            "where all drafts pass, the bonus was drawn from the target's row of the last draft. The row after it "
            "is the one that follows that draft",
        ),
        known(
            accepted_by_size,
            "accepted by size",
            "a draft was accepted only where the target gives it as much as the draft does. Below that it is accepted "
            "with probability p ÷ q",
        ),
        known(
            accepted_by_target_alone,
            "accepted with the target's probability",
            "the uniform was compared with p alone. A draft is accepted with probability p ÷ q",
        ),
        known(
            ratio_upside_down,
            "ratio upside down",
            "drafts are accepted with probability q ÷ p. It is p ÷ q: the target decides",
        ),
        known(
            residual_upside_down,
            "residual upside down",
            "the residual is max(q − p, 0): what the draft gives too much. Wanted is what it gives too little",
        ),
        known(
            residual_of_both_signs,
            "residual of both signs",
            "the residual is the size of p − q. Where it is negative, accepted drafts have brought all of p: "
            "nothing is owed",
        ),
        known(
            residual_not_normalised,
            "residual not normalised",
            "the cumulative sum of max(p − q, 0) was compared with the uniform, but it does not end at 1: divide it by "
            "its sum",
        ),
        known(
            residual_not_normalised_nor_reached,
            "residual not normalised, token 0 above it",
            "the cumulative sum of max(p − q, 0) does not end at 1: divide it by its sum. No token exceeds a uniform "
            "above that end, and argmax then says 0",
        ),
        known(
            residual_not_normalised_past_the_end,
            "residual not normalised, no token above it",
            "the cumulative sum of max(p − q, 0) does not end at 1: divide it by its sum. A uniform above that end "
            "leads past the vocabulary",
        ),
        known(
            best_of_the_residual,
            "best of the residual",
            "the largest of p − q was taken. It must be a draw, or rare tokens never come",
            best_in_both_draws,
        ),
        known(
            rejected_draft_returned,
            "the rejected draft returned",
            "the rejected draft was returned as the one token more",
        ),
        known(
            goes_on_after_a_rejection,
            "goes on after a rejection",
            "drafts behind a rejected one were accepted too. They continue a text that does not exist",
            drawn_after_the_last_rejection,
        ),
    ),
    mutants=(
        Mutant(accept_everything, "everything accepted"),
        Mutant(reject_everything, "everything rejected"),
        Mutant(residual_from_the_target, "residual drawn from the target"),
        Mutant(uniform_used_twice, "a uniform used twice"),
        Mutant(next_uniform, "the next draft's uniform"),
        Mutant(first_uniform, "the first uniform"),
        Mutant(bonus_from_the_draft, "bonus from the draft"),
        Mutant(bonus_from_the_place_before, "bonus from the place before"),
        Mutant(accepted_by_size, "accepted by size"),
        Mutant(accepted_by_target_alone, "accepted with the target's probability"),
        Mutant(ratio_upside_down, "ratio upside down"),
        Mutant(residual_upside_down, "residual upside down"),
        Mutant(residual_of_both_signs, "residual of both signs"),
        Mutant(residual_not_normalised, "residual not normalised"),
        Mutant(residual_not_normalised_nor_reached, "residual not normalised, token 0 above it"),
        Mutant(residual_not_normalised_past_the_end, "residual not normalised, no token above it"),
        Mutant(best_of_the_residual, "best of the residual"),
        Mutant(best_in_both_draws, "best of the residual"),
        Mutant(rejected_draft_returned, "the rejected draft returned"),
        Mutant(goes_on_after_a_rejection, "goes on after a rejection"),
        Mutant(drawn_after_the_last_rejection, "goes on after a rejection"),
        Mutant(tie_accepted, "a tie accepted"),
        Mutant(tie_drawn_early, "a tie drawn one token early"),
    ),
)
