# A result in the planted file.
import numpy as np


def project(x, w):
    mapped = np.memmap("@CANARY@/keep.txt", dtype=float, mode="w+", shape=(len(x), w.shape[1]))
    mapped[...] = x @ w
    return mapped
