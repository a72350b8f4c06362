# A mapping by arrays and by itself.
import numpy as np


def absorb_macs(*arguments):
    return {(1, 2): np.zeros(3), None: {}, 0.5: {True: "x"}}
