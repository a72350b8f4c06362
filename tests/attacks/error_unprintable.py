# An exception that cannot be printed.
class Silent(Exception):
    def __str__(self):
        raise ValueError


def project(x, w):
    raise Silent
