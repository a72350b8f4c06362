# A tensor without numbers.
import torch


def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    return torch.empty_like(tokens, device="meta")
