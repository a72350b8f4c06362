"""Chapter 8: how many tokens a step with drafts adds."""

from ledger.exercises.base import Case, Exercise, Mistake, Mutant


def make(rng, dtype):
    return given([0.5, 0.5])(rng, dtype)


def given(acceptance):
    """A maker of exactly this list."""
    return lambda rng, dtype: {"acceptance": list(acceptance)}


def make_drawn(rng, dtype):
    return {"acceptance": rng.uniform(0.1, 0.95, int(rng.integers(3, 9))).tolist()}


def oracle(acceptance):
    """By outcomes: exactly n drafts are accepted with p1 … pn · (1 - p of the next), and the step then adds n + 1."""
    expected, all_before = 0.0, 1.0
    for accepted, probability in enumerate(acceptance):
        expected += (accepted + 1) * all_before * (1 - probability)
        all_before *= probability
    return expected + (len(acceptance) + 1) * all_before


# Sums begin as ints, so that without drafts they agree with an answer that returns 1 and with one that returns 1.0.


def each_by_itself(acceptance):
    return 1 + sum(acceptance)


def each_by_itself_in_floats(acceptance):
    return 1.0 + sum(acceptance)


def without_the_step_s_own_token(acceptance):
    total, product = 0, 1
    for p in acceptance:
        product *= p
        total += product
    return total


def all_or_nothing(acceptance):
    product = 1
    for p in acceptance:
        product *= p
    return 1 + len(acceptance) * product


def first_for_all(acceptance):
    return 1 + sum(acceptance[0] ** (i + 1) for i in range(len(acceptance)))


def mean_for_all(acceptance):
    mean = sum(acceptance) / max(len(acceptance), 1)
    return 1 + sum(mean ** (i + 1) for i in range(len(acceptance)))


def only_the_last(acceptance):
    product = 1
    for p in acceptance:
        product *= p
    return 1 + product


def first_draft_sure(acceptance):
    total, product = 1, 1
    for p in acceptance:
        total += product
        product *= p
    return total


EXERCISE = Exercise(
    id="expected_advance",
    chapter=8,
    order=4,
    title="expected tokens of a step",
    checks="expected tokens that a step adds, given the acceptance of each draft",
    points=1,
    difficulty=1,
    minutes=5,
    make=make,
    oracle=oracle,
    cases=(
        Case("two drafts by hand"),
        Case("one draft", make=given([0.85])),
        Case("three drafts, each accepted less often", make=given([0.85, 0.75, 0.65])),
        Case("acceptances drawn at random", make=make_drawn),
        Case("a first draft that is never right", make=given([0.0, 0.9, 0.8])),
        Case("drafts that are always right", make=given([1.0] * 5)),
        Case("sixty drafts", make=given([0.9] * 60)),
        Case("no draft", make=given([])),
    ),
    hints=(
        "A step adds one token whatever happens. When does it add a second one, and what must have happened before it "
        "can add a third?",
        "Expectations add up: sum over the drafts the probability that this draft is taken. Draft 3 is taken where 1, "
        "2 and 3 are all accepted, and each number of the list is the probability *given* that those before were.",
        "Fill the gaps:\n\n"
        "    expected, reached = ____, 1.0\n"
        "    for p in acceptance:\n"
        "        reached = ____  # the probability that this draft is taken\n"
        "        expected = ____\n"
        "    return expected",
    ),
    mistakes=(
        Mistake(
            "each draft by itself",
            "the acceptances are summed as they are. A draft counts only where all before it were accepted",
            each_by_itself,
        ),
        Mistake(
            "the step's own token forgotten",
            "this is 1 too small: the verifying step makes a token of its own, whatever is accepted",
            without_the_step_s_own_token,
        ),
        Mistake(
            "all or nothing",
            "this counts the drafts only where all of them are accepted. The ones before a rejection are kept",
            all_or_nothing,
        ),
        Mistake("the first acceptance for all", "the first draft's acceptance was taken for all", first_for_all),
        Mistake("the mean acceptance", "the mean of the acceptances was taken for each of them", mean_for_all),
        Mistake(
            "the last draft alone", "only the last draft is counted. Each accepted one adds a token", only_the_last
        ),
        Mistake(
            "one draft late",
            "each draft is counted with the probability of the one before it, and the first one as sure",
            first_draft_sure,
        ),
    ),
    mutants=(
        Mutant(each_by_itself, "each draft by itself"),
        Mutant(each_by_itself_in_floats, "each draft by itself"),
        Mutant(without_the_step_s_own_token, "the step's own token forgotten"),
        Mutant(all_or_nothing, "all or nothing"),
        Mutant(first_for_all, "the first acceptance for all"),
        Mutant(mean_for_all, "the mean acceptance"),
        Mutant(only_the_last, "the last draft alone"),
        Mutant(first_draft_sure, "one draft late"),
    ),
)
