# A tensor of 80 TB.
import torch


def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    return torch.empty(10**13)
