# Tensors that are kept and written to, 400 MB each.
import torch

kept = []


def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    while len(kept) < 20:
        kept.append(torch.ones(100_000_000))
    return tokens
