# A view that NumPy cannot hold.
import torch

right = dispatch_and_combine  # noqa: F821


def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    result = right(tokens, expert_ids, weights, experts, rank, world)
    return torch.complex(result, result).conj()
