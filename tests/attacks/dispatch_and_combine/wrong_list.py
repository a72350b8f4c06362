# The right numbers in lists.

right = dispatch_and_combine  # noqa: F821


def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    return right(tokens, expert_ids, weights, experts, rank, world).tolist()
