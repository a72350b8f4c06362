"""Chapter 3: attention over a split cache, merged by log-sum-exp."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.exercises.making import normal
from ledger.reference import values


def make(rng, dtype, parts, new_tokens, num_heads, value_dim):
    return {
        "outputs": normal(rng, dtype, parts, new_tokens, num_heads, value_dim),
        "lses": 2 * normal(rng, dtype, parts, new_tokens, num_heads),
    }


def make_one_row(rng, dtype, parts, value_dim):
    """Nothing between the first axis and the last: one new token, one head."""
    return {"outputs": normal(rng, dtype, parts, value_dim), "lses": normal(rng, dtype, parts)}


#: What stands in the output of an empty part, in turn.
LEFTOVERS = (np.nan, np.inf, -np.inf, 7.0)


def empty_out(inputs, empty):
    """Make the parts where ``empty`` is true empty, and leave numbers and no numbers in their outputs."""
    places = inputs["outputs"][empty].shape
    inputs["lses"][empty], inputs["outputs"][empty] = -np.inf, np.resize(LEFTOVERS, places)
    return inputs


def make_with_empty(rng, dtype, **dims):
    """Each row has an empty part; the last row has nothing but empty parts."""
    inputs = make(rng, dtype, **dims)
    empty = np.zeros(inputs["lses"].shape, bool)
    empty[rng.integers(dims["parts"]), :, :] = True
    empty[:, -1, -1] = True
    return empty_out(inputs, empty)


def make_all_empty(rng, dtype, **dims):
    inputs = make(rng, dtype, **dims)
    return empty_out(inputs, np.ones(inputs["lses"].shape, bool))


def make_far_apart(rng, dtype, **dims):
    """Log-sums around 900, whose exponentials overflow, around -900, where they vanish, both from part to part, or
    around 0."""
    inputs = make(rng, dtype, **dims)
    by_part = np.where(np.arange(dims["parts"]) % 2, -900, 900)
    for token in range(dims["new_tokens"]):
        levels = (np.full(dims["parts"], 900), np.full(dims["parts"], -900), by_part, 0 * by_part)[token % 4]
        inputs["lses"][:, token] += levels[:, None].astype(dtype)
    return inputs


def make_toy(rng, dtype, **dims):
    """The toy's head 0 under the weights 0.4, 0.2 and 0.4, cut after one token: sums of exponentials of 2 and 3."""
    outputs = np.array([(1, 0), (0, 1)], dtype)
    return {"outputs": outputs, "lses": np.log(np.array([2, 3], dtype))}


def plain_mean(outputs, lses):
    largest = lses.max(axis=0, initial=-np.inf)
    safe = np.where(np.isneginf(largest), 0, largest)
    with np.errstate(divide="ignore"):
        lse = safe + np.log(np.exp(lses - safe).sum(axis=0))
    empty = np.isneginf(lses)[..., None]
    live = (~empty).sum(axis=0).clip(1)
    return np.where(empty, 0, outputs).sum(axis=0) / live.astype(outputs.dtype), lse


def plain_mean_of_everything(outputs, lses):
    largest = lses.max(axis=0, initial=-np.inf)
    safe = np.where(np.isneginf(largest), 0, largest)
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = safe + np.log(np.exp(lses - safe).sum(axis=0))
        return outputs.sum(axis=0) / np.asarray(len(outputs), outputs.dtype), lse


def base_two(outputs, lses):
    largest = lses.max(axis=0, initial=-np.inf)
    safe = np.where(np.isneginf(largest), 0, largest)
    shares = 2 ** (lses - safe)
    total = shares.sum(axis=0)
    with np.errstate(divide="ignore"):
        lse = safe + np.log2(total)
    mixed = (shares[..., None] * np.where(np.isneginf(lses)[..., None], 0, outputs)).sum(axis=0)
    return mixed / np.where(total > 0, total, 1)[..., None], lse


def base_two_in_the_lse(outputs, lses):
    largest = lses.max(axis=0, initial=-np.inf)
    safe = np.where(np.isneginf(largest), 0, largest)
    shares = np.exp(lses - safe)
    total = shares.sum(axis=0)
    with np.errstate(divide="ignore"):
        lse = safe + np.log2(total)
    mixed = (shares[..., None] * np.where(np.isneginf(lses)[..., None], 0, outputs)).sum(axis=0)
    return mixed / np.where(total > 0, total, 1)[..., None], lse


def outputs_added(outputs, lses):
    largest = lses.max(axis=0, initial=-np.inf)
    safe = np.where(np.isneginf(largest), 0, largest)
    with np.errstate(divide="ignore"):
        lse = safe + np.log(np.exp(lses - safe).sum(axis=0))
    return np.where(np.isneginf(lses)[..., None], 0, outputs).sum(axis=0), lse


def not_normalised(outputs, lses):
    largest = lses.max(axis=0, initial=-np.inf)
    safe = np.where(np.isneginf(largest), 0, largest)
    shares = np.exp(lses - safe)
    with np.errstate(divide="ignore"):
        lse = safe + np.log(shares.sum(axis=0))
    return (shares[..., None] * np.where(np.isneginf(lses)[..., None], 0, outputs)).sum(axis=0), lse


def largest_lse(outputs, lses):
    largest = lses.max(axis=0, initial=-np.inf)
    safe = np.where(np.isneginf(largest), 0, largest)
    shares = np.exp(lses - safe)
    total = shares.sum(axis=0)
    mixed = (shares[..., None] * np.where(np.isneginf(lses)[..., None], 0, outputs)).sum(axis=0)
    return mixed / np.where(total > 0, total, 1)[..., None], largest


def lses_added(outputs, lses):
    largest = lses.max(axis=0, initial=-np.inf)
    safe = np.where(np.isneginf(largest), 0, largest)
    shares = np.exp(lses - safe)
    total = shares.sum(axis=0)
    mixed = (shares[..., None] * np.where(np.isneginf(lses)[..., None], 0, outputs)).sum(axis=0)
    return mixed / np.where(total > 0, total, 1)[..., None], lses.sum(axis=0)


def maximum_not_added_back(outputs, lses):
    largest = lses.max(axis=0, initial=-np.inf)
    safe = np.where(np.isneginf(largest), 0, largest)
    shares = np.exp(lses - safe)
    total = shares.sum(axis=0)
    mixed = (shares[..., None] * np.where(np.isneginf(lses)[..., None], 0, outputs)).sum(axis=0)
    with np.errstate(divide="ignore"):
        return mixed / np.where(total > 0, total, 1)[..., None], np.log(total)


def nan_leaks(outputs, lses):
    largest = lses.max(axis=0, initial=-np.inf)
    safe = np.where(np.isneginf(largest), 0, largest)
    shares = np.exp(lses - safe)
    total = shares.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = safe + np.log(total)
        return (shares[..., None] * outputs).sum(axis=0) / np.where(total > 0, total, 1)[..., None], lse


def nan_alone_removed(outputs, lses):
    largest = lses.max(axis=0, initial=-np.inf)
    safe = np.where(np.isneginf(largest), 0, largest)
    shares = np.exp(lses - safe)
    total = shares.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = safe + np.log(total)
        mixed = (shares[..., None] * np.where(np.isnan(outputs), 0, outputs)).sum(axis=0)
        return mixed / np.where(total > 0, total, 1)[..., None], lse


def all_empty_divides_by_zero(outputs, lses):
    largest = lses.max(axis=0, initial=-np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.exp(lses - largest)
        total = shares.sum(axis=0)
        mixed = (shares[..., None] * np.where(np.isneginf(lses)[..., None], 0, outputs)).sum(axis=0)
        return mixed / total[..., None], largest + np.log(total)


def all_empty_subtracts_infinities(outputs, lses):
    largest = lses.max(axis=0, initial=-np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.exp(lses - largest)
        total = shares.sum(axis=0)
        mixed = (shares[..., None] * np.where(np.isneginf(lses)[..., None], 0, outputs)).sum(axis=0)
        return mixed / np.where(total > 0, total, 1)[..., None], largest + np.log(total)


def all_empty_gives_no_lse(outputs, lses):
    largest = lses.max(axis=0, initial=-np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.exp(lses - largest)
        total = shares.sum(axis=0)
        lse = largest + np.log(total)
    some = total > 0
    mixed = (np.where(some, shares, 0)[..., None] * np.where(np.isneginf(lses)[..., None], 0, outputs)).sum(axis=0)
    return mixed / np.where(some, total, 1)[..., None], lse


def maximum_not_subtracted(outputs, lses):
    with np.errstate(all="ignore"):
        shares = np.exp(lses)
        total = shares.sum(axis=0)
        mixed = (shares[..., None] * np.where(np.isneginf(lses)[..., None], 0, outputs)).sum(axis=0)
        return mixed / np.where(total > 0, total, 1)[..., None], np.log(total)


def exponentials_as_they_are(outputs, lses):
    with np.errstate(all="ignore"):
        shares = np.exp(lses)
        total = shares.sum(axis=0)
        return (shares[..., None] * outputs).sum(axis=0) / total[..., None], np.log(total)


def maximum_of_at_least_0(outputs, lses):
    largest = lses.max(axis=0, initial=0)
    shares = np.exp(lses - largest)
    total = shares.sum(axis=0)
    mixed = (shares[..., None] * np.where(np.isneginf(lses)[..., None], 0, outputs)).sum(axis=0)
    with np.errstate(divide="ignore"):
        return mixed / np.where(total > 0, total, 1)[..., None], largest + np.log(total)


def one_maximum_for_all_rows(outputs, lses):
    largest = lses.max(initial=-np.inf)
    largest = 0 if np.isneginf(largest) else largest
    shares = np.exp(lses - largest)
    total = shares.sum(axis=0)
    mixed = (shares[..., None] * np.where(np.isneginf(lses)[..., None], 0, outputs)).sum(axis=0)
    with np.errstate(divide="ignore"):
        return mixed / np.where(total > 0, total, 1)[..., None], largest + np.log(total)


def mean_subtracted(outputs, lses):
    live = ~np.isneginf(lses)
    middle = np.where(live, lses, 0).sum(axis=0) / live.sum(axis=0).clip(1).astype(lses.dtype)
    with np.errstate(all="ignore"):
        shares = np.exp(lses - middle)
        total = shares.sum(axis=0)
        mixed = (shares[..., None] * np.where(np.isneginf(lses)[..., None], 0, outputs)).sum(axis=0)
        return mixed / np.where(total > 0, total, 1)[..., None], middle + np.log(total)


def lse_0_where_all_are_empty(outputs, lses):
    largest = lses.max(axis=0, initial=-np.inf)
    safe = np.where(np.isneginf(largest), 0, largest)
    shares = np.exp(lses - safe)
    total = shares.sum(axis=0)
    mixed = (shares[..., None] * np.where(np.isneginf(lses)[..., None], 0, outputs)).sum(axis=0)
    some = np.where(total > 0, total, 1)
    return mixed / some[..., None], safe + np.log(some)


def lse_inf_where_all_are_empty(outputs, lses):
    largest = lses.max(axis=0, initial=-np.inf)
    safe = np.where(np.isneginf(largest), 0, largest)
    shares = np.exp(lses - safe)
    total = shares.sum(axis=0)
    mixed = (shares[..., None] * np.where(np.isneginf(lses)[..., None], 0, outputs)).sum(axis=0)
    some = np.where(total > 0, total, 1)
    return mixed / some[..., None], np.where(total > 0, safe + np.log(some), np.inf).astype(lses.dtype)


def last_part_alone(outputs, lses):
    return outputs[-1].copy(), lses[-1].copy()


EXERCISE = Exercise(
    id="merge_partials",
    chapter=3,
    order=6,
    title="merge the parts of a split cache",
    checks="the output and lse over all parts, from the output and lse of each",
    points=4,
    difficulty=3,
    minutes=20,
    make=make,
    oracle=values.merge_partials,
    returns=("output", "lse"),
    cases=(
        Case(
            "square sizes",
            {"parts": 3, "new_tokens": 3, "num_heads": 3, "value_dim": 3},
        ),
        Case("the toy by hand", {"parts": 2, "value_dim": 2}, make=make_toy),
        Case("odd sizes", {"parts": 5, "new_tokens": 7, "num_heads": 3, "value_dim": 9}),
        Case("no axes in between", {"parts": 6, "value_dim": 5}, make=make_one_row),
        Case("one part", {"parts": 1, "new_tokens": 4, "num_heads": 2, "value_dim": 6}),
        Case("no value width", {"parts": 3, "new_tokens": 4, "num_heads": 2, "value_dim": 0}),
        Case("no part at all, float32", {"parts": 0, "new_tokens": 4, "num_heads": 2, "value_dim": 6}, dtype="float32"),
        Case(
            "empty parts that hold anything",
            {"parts": 4, "new_tokens": 3, "num_heads": 2, "value_dim": 6},
            make=make_with_empty,
        ),
        Case(
            "every part empty, float32",
            {"parts": 3, "new_tokens": 2, "num_heads": 4, "value_dim": 5},
            dtype="float32",
            make=make_all_empty,
        ),
        Case(
            "lses around 900, 0 and -900",
            {"parts": 4, "new_tokens": 6, "num_heads": 2, "value_dim": 5},
            make=make_far_apart,
        ),
        Case("float32", {"parts": 4, "new_tokens": 3, "num_heads": 5, "value_dim": 8}, dtype="float32"),
        Case("strided inputs", {"parts": 3, "new_tokens": 4, "num_heads": 2, "value_dim": 7}, layout="strided"),
        Case("DeepSeek-V3's mixed latents", {"parts": 6, "new_tokens": 1, "num_heads": 4, "value_dim": 512}),
    ),
    hints=(
        "exp(lse) of a part is the sum of its exponentials: the denominator that its output was divided by. What "
        "would you do with the parts if you had those sums in place of their logarithms?",
        "Each part counts with exp(lse) over the sum of all of them. Subtract the largest lse first, and add it back "
        "to the logarithm. Two traps: where every part is empty the largest is -inf, and -inf minus -inf is NaN; and 0 "
        "times NaN is NaN, so choose what an empty part contributes instead of multiplying it away.",
        "Fill the gaps:\n\n"
        "    largest = ____  # over the parts; 0 where all are empty\n"
        "    shares = np.exp(____)  # (parts, ...): 0 for an empty part\n"
        "    total = ____\n"
        "    live = np.where(____, outputs, 0)\n"
        "    merged = ____ / ____  # never divide by 0\n"
        "    return merged, largest + ____",
    ),
    mistakes=(
        Mistake(
            "plain mean",
            "the parts count alike. A part counts by its share of the sum of exponentials, which is what its lse tells",
            plain_mean,
        ),
        Mistake(
            "plain mean of all outputs",
            "the parts count alike, empty ones too. A part counts by its share of the sum of exponentials, which is "
            "what its lse tells",
            plain_mean_of_everything,
        ),
        Mistake(
            "base two",
            "the lses were taken for logarithms to base 2. These are natural ones, as vLLM and FlashMLA keep them; "
            "FlashInfer uses base 2",
            base_two,
            also=(base_two_in_the_lse,),
        ),
        Mistake(
            "outputs added",
            "the parts' outputs were added as they are. A part counts by its share of the sum of exponentials, which "
            "is what its lse tells",
            outputs_added,
        ),
        Mistake(
            "not normalised",
            "the shares do not add to 1: divide by their sum",
            not_normalised,
        ),
        Mistake(
            "largest lse returned",
            "the merged lse is the largest of the parts. It is the logarithm of the sum of all their exponentials",
            largest_lse,
        ),
        Mistake(
            "lses added",
            "the lses were added, which multiplies the sums. Add the sums, and take the logarithm",
            lses_added,
        ),
        Mistake(
            "maximum not added back",
            "the merged lse lacks the maximum that was subtracted",
            maximum_not_added_back,
        ),
        Mistake(
            "NaN of an empty part leaks",
            "an empty part's output got into the sum: 0 times NaN is NaN. Choose 0 where the lse is -inf",
            nan_leaks,
        ),
        Mistake(
            "infinity of an empty part leaks",
            "NaN was replaced in the outputs, but an empty part may hold infinity as well, and 0 times that is NaN. "
            "Choose 0 where the lse is -inf, whatever the output is",
            nan_alone_removed,
        ),
        Mistake(
            "all empty gives NaN",
            "where every part is empty the largest lse is -inf, and -inf minus -inf is NaN. Wanted: output 0, lse -inf",
            all_empty_divides_by_zero,
            also=(all_empty_subtracts_infinities, all_empty_gives_no_lse),
        ),
        Mistake(
            "maximum not subtracted",
            "the exponential of a large lse overflows, and that of a small one vanishes. Subtract the largest lse "
            "first",
            maximum_not_subtracted,
        ),
        Mistake(
            "exponentials as they are",
            "the formula was taken as it stands: exp overflows on a large lse and vanishes on a small one, an empty "
            "part's output is multiplied by 0 where it may be NaN, and where all are empty 0 is divided by 0",
            exponentials_as_they_are,
        ),
        Mistake(
            "a maximum of at least 0",
            "no row's largest lse is taken to be below 0, as max with initial=0 does, and the exponentials of a row "
            "far below 0 vanish. Start from -inf, and put 0 only where all parts are empty",
            maximum_of_at_least_0,
        ),
        Mistake(
            "one maximum for all rows",
            "the largest lse of all rows was subtracted, and the exponentials of a row far below it vanish. Each row "
            "has a largest lse of its own",
            one_maximum_for_all_rows,
        ),
        Mistake(
            "mean subtracted",
            "the mean of a row's lses was subtracted. Only the largest makes every exponential at most 1",
            mean_subtracted,
        ),
        Mistake(
            "lse 0 where all are empty",
            "an lse of 0 stands for one exponential of 1. Nothing was seen: the sum is 0, and its logarithm -inf",
            lse_0_where_all_are_empty,
        ),
        Mistake(
            "last part alone",
            "this is the result of the last part. All parts are wanted",
            last_part_alone,
        ),
    ),
    mutants=(
        Mutant(plain_mean, "plain mean"),
        Mutant(plain_mean_of_everything, "plain mean of all outputs"),
        Mutant(base_two, "base two"),
        Mutant(base_two_in_the_lse, "base two"),
        Mutant(outputs_added, "outputs added"),
        Mutant(not_normalised, "not normalised"),
        Mutant(largest_lse, "largest lse returned"),
        Mutant(lses_added, "lses added"),
        Mutant(maximum_not_added_back, "maximum not added back"),
        Mutant(nan_leaks, "NaN of an empty part leaks"),
        Mutant(nan_alone_removed, "infinity of an empty part leaks"),
        Mutant(all_empty_divides_by_zero, "all empty gives NaN"),
        Mutant(all_empty_subtracts_infinities, "all empty gives NaN"),
        Mutant(all_empty_gives_no_lse, "all empty gives NaN"),
        Mutant(maximum_not_subtracted, "maximum not subtracted"),
        Mutant(exponentials_as_they_are, "exponentials as they are"),
        Mutant(maximum_of_at_least_0, "a maximum of at least 0"),
        Mutant(one_maximum_for_all_rows, "one maximum for all rows"),
        Mutant(mean_subtracted, "mean subtracted"),
        Mutant(lse_0_where_all_are_empty, "lse 0 where all are empty"),
        Mutant(lse_inf_where_all_are_empty, "wanted -inf"),
        Mutant(last_part_alone, "last part alone"),
    ),
)
