# Right, and part of a graph with hooks that would raise.
import torch

right = dispatch_and_combine  # noqa: F821


def strike(*arguments):
    raise RuntimeError


def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    result = right(tokens, expert_ids, weights, experts, rank, world).clone().requires_grad_()
    result.register_hook(strike)
    torch.utils.hooks.unserializable_hook(strike)
    return 1 * result
