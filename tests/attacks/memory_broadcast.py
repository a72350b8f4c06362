# One number that claims to be 8 TB.
import numpy as np


def project(x, w):
    return np.broadcast_to(1.0, (10**6, 10**6))
