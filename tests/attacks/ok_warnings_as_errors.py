# Right, where every warning is an exception and floating arithmetic raises.
import warnings

import numpy as np

warnings.simplefilter("error")
np.seterr(all="raise")


def project(x, w):
    return x @ w
