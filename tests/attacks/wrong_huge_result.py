# 400 MB, refused before a byte of it is read.
import numpy as np


def project(x, w):
    return np.zeros((5_000, 10_000))
