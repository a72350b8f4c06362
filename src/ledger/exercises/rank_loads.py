"""Chapter 9: how many token copies each rank gets, and what the others wait for."""

import numpy as np

from ledger.exercises.base import Case, Exercise, Mistake, Mutant
from ledger.reference import experts


def make(rng, dtype, tokens, top_k, experts_per_rank, num_ranks):
    """Distinct experts a token, the later ones the more popular."""
    total = experts_per_rank * num_ranks
    weight = np.arange(1, total + 1) / np.arange(1, total + 1).sum()
    ids = [rng.choice(total, top_k, replace=False, p=weight) for _ in range(tokens)]
    return given(np.array(ids, np.int64).reshape(tokens, top_k), experts_per_rank, num_ranks)


def given(ids, experts_per_rank, num_ranks):
    return {"expert_ids": ids, "experts_per_rank": experts_per_rank, "num_ranks": num_ranks}


def make_toy(rng, dtype, **dims):
    return given(np.array([[0, 1], [1, 5], [0, 2]]), 2, 3)


def make_first_ranks_only(rng, dtype, tokens, top_k, experts_per_rank, num_ranks):
    """The last rank, and maybe more, get nothing."""
    ids = make(rng, dtype, tokens, top_k, experts_per_rank, num_ranks - 1)["expert_ids"]
    return given(ids, experts_per_rank, num_ranks)


def make_all_on_one(rng, dtype, tokens, top_k, experts_per_rank, num_ranks):
    rank = int(rng.integers(num_ranks))
    ids = [rank * experts_per_rank + rng.permutation(experts_per_rank)[:top_k] for _ in range(tokens)]
    return given(np.array(ids, np.int64), experts_per_rank, num_ranks)


def experts_dealt(expert_ids, experts_per_rank, num_ranks):
    loads = np.bincount((expert_ids % num_ranks).ravel(), minlength=num_ranks).astype(np.int64)
    return loads, float(loads.max() - loads.mean())


def place_within_the_rank(expert_ids, experts_per_rank, num_ranks):
    loads = np.bincount((expert_ids % experts_per_rank).ravel(), minlength=num_ranks).astype(np.int64)
    return loads, float(loads.max() - loads.mean())


def divided_by_the_ranks(expert_ids, experts_per_rank, num_ranks):
    ranks = np.minimum(expert_ids // num_ranks, num_ranks - 1)
    loads = np.bincount(ranks.ravel(), minlength=num_ranks).astype(np.int64)
    return loads, float(loads.max() - loads.mean())


def each_token_once(expert_ids, experts_per_rank, num_ranks):
    pairs = {(token, rank) for token, row in enumerate(expert_ids // experts_per_rank) for rank in row.tolist()}
    ranks = np.array([rank for _, rank in pairs], np.int64)
    loads = np.bincount(ranks.ravel(), minlength=num_ranks).astype(np.int64)
    return loads, float(loads.max() - loads.mean())


def first_choice_alone(expert_ids, experts_per_rank, num_ranks):
    ranks = expert_ids // experts_per_rank
    ranks = ranks[:, :1]
    loads = np.bincount(ranks.ravel(), minlength=num_ranks).astype(np.int64)
    return loads, float(loads.max() - loads.mean())


def loads_of_experts(expert_ids, experts_per_rank, num_ranks):
    experts = experts_per_rank * num_ranks
    loads = np.bincount(expert_ids.ravel(), minlength=experts).astype(np.int64)
    return loads, float(loads.max() - loads.mean())


def idle_ranks_left_out(expert_ids, experts_per_rank, num_ranks):
    ranks = expert_ids // experts_per_rank
    loads = np.bincount(ranks.ravel(), minlength=1).astype(np.int64)
    return loads, float(loads.max() - loads.mean())


def mean_of_the_busy(expert_ids, experts_per_rank, num_ranks):
    ranks = expert_ids // experts_per_rank
    loads = np.bincount(ranks.ravel(), minlength=num_ranks).astype(np.int64)
    busy = loads[loads > 0]
    return loads, float(loads.max() - busy.mean()) if len(busy) else 0.0


def the_largest(expert_ids, experts_per_rank, num_ranks):
    ranks = expert_ids // experts_per_rank
    loads = np.bincount(ranks.ravel(), minlength=num_ranks).astype(np.int64)
    return loads, float(loads.max())


def largest_less_smallest(expert_ids, experts_per_rank, num_ranks):
    ranks = expert_ids // experts_per_rank
    loads = np.bincount(ranks.ravel(), minlength=num_ranks).astype(np.int64)
    return loads, float(loads.max() - loads.min())


def mean_rounded_down(expert_ids, experts_per_rank, num_ranks):
    ranks = expert_ids // experts_per_rank
    loads = np.bincount(ranks.ravel(), minlength=num_ranks).astype(np.int64)
    return loads, float(loads.max() - loads.sum() // num_ranks)


def mean_less_smallest(expert_ids, experts_per_rank, num_ranks):
    ranks = expert_ids // experts_per_rank
    loads = np.bincount(ranks.ravel(), minlength=num_ranks).astype(np.int64)
    return loads, float(loads.mean() - loads.min())


def largest_less_median(expert_ids, experts_per_rank, num_ranks):
    ranks = expert_ids // experts_per_rank
    loads = np.bincount(ranks.ravel(), minlength=num_ranks).astype(np.int64)
    return loads, float(loads.max() - np.median(loads))


def wait_of_all_together(expert_ids, experts_per_rank, num_ranks):
    ranks = expert_ids // experts_per_rank
    loads = np.bincount(ranks.ravel(), minlength=num_ranks).astype(np.int64)
    return loads, float((loads.max() - loads).sum())


def largest_over_mean(expert_ids, experts_per_rank, num_ranks):
    ranks = expert_ids // experts_per_rank
    loads = np.bincount(ranks.ravel(), minlength=num_ranks).astype(np.int64)
    return loads, float(loads.max() / loads.mean()) if loads.any() else 0.0


def floats(expert_ids, experts_per_rank, num_ranks):
    ranks = expert_ids // experts_per_rank
    loads = np.bincount(ranks.ravel(), minlength=num_ranks).astype(np.int64)
    return loads.astype(float), float(loads.max() - loads.mean())


def loads_alone(expert_ids, experts_per_rank, num_ranks):
    ranks = expert_ids // experts_per_rank
    return np.bincount(ranks.ravel(), minlength=num_ranks).astype(np.int64)


def sizes(tokens, top_k, experts_per_rank, num_ranks):
    names = ("tokens", "top_k", "experts_per_rank", "num_ranks")
    return dict(zip(names, (tokens, top_k, experts_per_rank, num_ranks), strict=True))


EXERCISE = Exercise(
    id="rank_loads",
    chapter=9,
    order=4,
    title="who waits for whom",
    checks="the token copies on each rank, and the wait that the largest of them causes",
    points=2,
    difficulty=1,
    minutes=8,
    make=make,
    oracle=experts.rank_loads,
    returns=("loads", "wait"),
    cases=(
        Case("three tokens by hand", sizes(3, 2, 2, 3), make=make_toy),
        Case("odd sizes", sizes(23, 3, 7, 5)),
        Case("one expert a rank", sizes(30, 4, 1, 11)),
        Case("one rank", sizes(9, 3, 12, 1)),
        Case("one token", sizes(1, 4, 3, 9)),
        Case("one choice a token", sizes(17, 1, 4, 6)),
        Case("the last rank gets nothing", sizes(12, 3, 5, 4), make=make_first_ranks_only),
        Case("all tokens on one rank", sizes(10, 4, 6, 7), make=make_all_on_one),
        Case("no tokens", sizes(0, 8, 4, 6)),
        Case("strided inputs", sizes(19, 4, 5, 6), layout="strided"),
        Case("DeepSeek-V3 on 32 ranks", sizes(256, 8, 8, 32)),
    ),
    hints=(
        "Neighbouring experts live on one rank. Which rank does expert 13 live on, when each rank has 4?",
        "np.bincount counts how often each number occurs. Tell it how many ranks there are, or idle ones at the end "
        "are missing. On some machines its integers have 32 bits, so say which you want.",
        "Fill the gaps:\n\n"
        "    ranks = ____  # (tokens, top_k)\n"
        "    loads = np.bincount(____, minlength=____).astype(____)\n"
        "    return loads, float(____)",
    ),
    mistakes=(
        Mistake(
            "experts dealt out",
            "the experts were dealt out to the ranks in turn. Rank 0 has the first experts_per_rank of them, rank 1 "
            "the next ones",
            experts_dealt,
        ),
        Mistake(
            "place within the rank",
            "this counts an expert's place within its rank. The quotient is the rank, the remainder is the place",
            place_within_the_rank,
        ),
        Mistake(
            "divided by the ranks",
            "the ids were divided by the number of ranks. A rank is full after experts_per_rank of them",
            divided_by_the_ranks,
        ),
        Mistake(
            "each token once a rank",
            "a token with two experts on a rank is counted once there. Each of its experts gets a copy",
            each_token_once,
        ),
        Mistake("first choice alone", "only each token's first expert is counted", first_choice_alone),
        Mistake(
            "loads of experts", "these are the loads of the experts; those of the ranks are asked for", loads_of_experts
        ),
        Mistake(
            "idle ranks left out",
            "ranks behind the last busy one are missing. They wait as well: their load is 0",
            idle_ranks_left_out,
        ),
        Mistake(
            "mean of the busy ranks",
            "the mean leaves out the ranks without tokens. They wait as well: their load is 0",
            mean_of_the_busy,
        ),
        Mistake("the largest load", "the wait is the largest load itself. Take the mean off", the_largest),
        Mistake(
            "largest less smallest",
            "this is what the idlest rank waits. Asked is what a rank waits on average: largest less mean",
            largest_less_smallest,
        ),
        Mistake(
            "mean rounded down",
            "the mean was rounded down. It need not be a whole number: divide with /",
            mean_rounded_down,
        ),
        Mistake("mean less smallest", "the wait is mean less smallest; it is largest less mean", mean_less_smallest),
        Mistake("largest less median", "the median was taken off; the mean is to be", largest_less_median),
        Mistake(
            "the wait of all together",
            "this is what all ranks wait, added up. Divide by the ranks",
            wait_of_all_together,
        ),
        Mistake(
            "largest over mean",
            "this is a ratio, largest over mean. Asked is a difference in copies",
            largest_over_mean,
        ),
    ),
    mutants=(
        Mutant(experts_dealt, "experts dealt out"),
        Mutant(place_within_the_rank, "place within the rank"),
        Mutant(divided_by_the_ranks, "divided by the ranks"),
        Mutant(each_token_once, "each token once a rank"),
        Mutant(first_choice_alone, "first choice alone"),
        Mutant(loads_of_experts, "loads of experts"),
        Mutant(idle_ranks_left_out, "idle ranks left out"),
        Mutant(mean_of_the_busy, "mean of the busy ranks"),
        Mutant(the_largest, "the largest load"),
        Mutant(largest_less_smallest, "largest less smallest"),
        Mutant(mean_rounded_down, "mean rounded down"),
        Mutant(mean_less_smallest, "mean less smallest"),
        Mutant(largest_less_median, "largest less median"),
        Mutant(wait_of_all_together, "the wait of all together"),
        Mutant(largest_over_mean, "largest over mean"),
        Mutant(floats, "dtype float64; wanted int64"),
        Mutant(loads_alone, "wanted a tuple of 2 parts"),
    ),
)
