# A tensor of tensors of different lengths.
import torch


def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    return torch.nested.nested_tensor([tokens, tokens[:0]])
