"""Chapter 11: the tokens of the window branch."""

from ledger.exercises.base import Case, Exercise, Mistake, Mutant


def make(rng, dtype, window):
    """A position after a whole window."""
    return {"position": int(rng.integers(window, 10 * window + 10)), "window": window}


def make_early(rng, dtype, window):
    """A position at which the window is not full yet."""
    return {"position": int(rng.integers(1, window - 1)), "window": window}


def given(position, window):
    return lambda rng, dtype: {"position": position, "window": window}


def oracle(position, window):
    """By listing: the last ``window`` of all tokens up to the position."""
    seen = list(range(position + 1))
    tokens = seen[len(seen) - min(window, len(seen)) :]
    return (tokens[0], tokens[-1] + 1) if tokens else (position + 1, position + 1)


def own_token_left_out(position, window):
    return max(0, position - window), position


def closed(position, window):
    return max(0, position + 1 - window), position


def one_too_many(position, window):
    return max(0, position - window), position + 1


def negative_start(position, window):
    return position + 1 - window, position + 1


def start_and_length(position, window):
    start = max(0, position + 1 - window)
    return start, position + 1 - start


def looking_ahead(position, window):
    return position, position + window


def around(position, window):
    return max(0, position - window // 2), position + window - window // 2


def blocks_of_the_window(position, window):
    return position // window * window, position + 1


def floats(position, window):
    return float(max(0, position + 1 - window)), float(position + 1)


def listed(position, window):
    return list(range(max(0, position + 1 - window), position + 1))


EXERCISE = Exercise(
    id="window_range",
    chapter=11,
    order=4,
    title="the last tokens",
    checks="first token of the window, and the one after the last",
    points=1,
    difficulty=1,
    minutes=4,
    make=make,
    oracle=oracle,
    returns=("start", "stop"),
    cases=(
        Case("position 9 by hand", make=given(9, 4)),
        Case("drawn at random", {"window": 7}),
        Case("an early position", {"window": 50}, make=make_early),
        Case("the window has just filled", make=given(7, 8)),
        Case("one token short of a full window", make=given(6, 8)),
        Case("the window has just moved on", make=given(8, 8)),
        Case("the first token", make=given(0, 512)),
        Case("a window of one", {"window": 1}),
        Case("no window", make=given(20, 0)),
        Case("the paper's window, drawn at random", {"window": 512}),
    ),
    hints=(
        "The query sees itself. How many tokens are there up to position 9, and which of them are the last four?",
        "A half-open range ends one after its last token, and its length is stop less start. At early positions there "
        "are fewer tokens than the window is long.",
        "Fill the gaps:\n\n    stop = ____\n    return max(____, ____), stop",
    ),
    mistakes=(
        Mistake(
            "own token left out",
            "the window ends before the query's own token. The query sees itself, so the range ends at position + 1",
            own_token_left_out,
        ),
        Mistake("closed range", "stop is the last token itself; it is to be the one after it", closed),
        Mistake("one too many", "the range holds one token more than the window", one_too_many),
        Mistake("negative start", "start is negative at early positions. No token stands there", negative_start),
        Mistake("start and length", "these are start and length; start and stop are asked for", start_and_length),
        Mistake("looking ahead", "the window begins at the query. It ends there", looking_ahead),
        Mistake("around the query", "the window lies around the query. It ends there", around),
        Mistake(
            "windows side by side",
            "the windows lie side by side, like blocks. The window moves on with every token",
            blocks_of_the_window,
        ),
    ),
    mutants=(
        Mutant(own_token_left_out, "own token left out"),
        Mutant(closed, "closed range"),
        Mutant(one_too_many, "one too many"),
        Mutant(negative_start, "negative start"),
        Mutant(start_and_length, "start and length"),
        Mutant(looking_ahead, "looking ahead"),
        Mutant(around, "around the query"),
        Mutant(blocks_of_the_window, "windows side by side"),
        Mutant(floats, "wanted an int"),
        Mutant(listed, "wanted 2"),
    ),
)
