# The right numbers, some of them hidden.
import numpy as np


def project(x, w):
    y = x @ w
    return np.ma.masked_array(y, y < 0)
