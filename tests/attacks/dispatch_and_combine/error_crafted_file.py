# Loads a file that runs what it holds.
import io

import torch


class Bomb:
    def __reduce__(self):
        return open, ("@CANARY@/@MARK@", "w")


def dispatch_and_combine(tokens, expert_ids, weights, experts, rank, world):
    file = io.BytesIO()
    torch.save(Bomb(), file)
    file.seek(0)
    torch.load(file, weights_only=False)
    return tokens
