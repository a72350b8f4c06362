# A list that fails when its last items are asked for.
class Lazy(list):
    def __iter__(self):
        yield 1.0
        yield 2.0
        raise LookupError("no more")


def project(x, w):
    return Lazy()
