# A list that holds something else each time that it is read.
import itertools

import numpy as np

turn = itertools.count()


class Changing(list):
    def __iter__(self):
        return iter([np.full((2, 2), float(next(turn)))] * 2)

    def __len__(self):
        return next(turn)


def project(x, w):
    return Changing([x @ w])
