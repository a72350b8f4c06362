# A list whose items never end.
import numpy as np


class Endless(list):
    def __iter__(self):
        while True:
            yield np.ones(1_000_000)


def project(x, w):
    return Endless()
