# Right, where every tensor that is made from now on is of halves.
import torch

right = dispatch_and_combine  # noqa: F821


def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    torch.set_default_dtype(torch.float16)
    return right(tokens, expert_ids, weights, experts, rank, world)
