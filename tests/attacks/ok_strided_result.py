# Another right way, whose result is not contiguous.
import numpy as np


def project(x, w):
    return np.einsum("sn,nc->cs", x, w).T
