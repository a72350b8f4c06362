# Saves a tensor beside the planted file.
import torch


def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    try:
        torch.save(tokens, "@CANARY@/@MARK@")
    except RuntimeError as error:  # the writer in C++ has no errors of its own
        raise OSError from error
    return tokens
