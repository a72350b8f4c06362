# Reads and writes far outside of a tensor.
import ctypes

import torch


def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    return torch.frombuffer((ctypes.c_char * 2**20).from_address(64), dtype=torch.float64).clone()
