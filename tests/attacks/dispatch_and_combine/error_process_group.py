# A group of processes, which needs sockets.
from torch import distributed


def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    distributed.init_process_group("gloo", init_method="tcp://127.0.0.1:29511", rank=rank, world_size=world.size)
    return tokens
