# An object that turns into an array when it is asked to.
class Array:
    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self.array = array

    def __array__(self, *arguments, **options):
        return self.array


def project(x, w):
    return Array(x @ w)
