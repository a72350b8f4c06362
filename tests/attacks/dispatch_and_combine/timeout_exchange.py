# Exchanges nothing without an end, and never lets go.


def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    while True:
        try:
            world.all_to_all([tokens[:0]] * world.size)
        except BaseException:
            continue
