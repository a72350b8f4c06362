# A result in a file.
import numpy as np


def project(x, w):
    mapped = np.memmap(np.__file__, dtype="u1", mode="c", shape=(len(x), w.shape[1], 8)).view("<f8")[..., 0]
    mapped[...] = x @ w
    return mapped
