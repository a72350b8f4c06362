# Processes by way of torch.
from torch import multiprocessing


def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    multiprocessing.spawn(print, nprocs=2)
    return tokens
