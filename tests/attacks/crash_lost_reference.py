# Takes references away that are not its own.
import ctypes

import numpy as np


def project(x, w):
    y = np.zeros((len(x), w.shape[1]))
    for _ in range(20):
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(y))
    return y
