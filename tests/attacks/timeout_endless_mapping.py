# A mapping whose names never end.
from collections.abc import Mapping


class Endless(Mapping):
    def __getitem__(self, key):
        return 0.0

    def __iter__(self):
        while True:
            yield "x"

    def __len__(self):
        return 1


def project(x, w):
    return Endless()
