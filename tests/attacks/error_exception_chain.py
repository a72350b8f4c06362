# Ten thousand exceptions, each the cause of the next.
def project(x, w):
    error = ValueError(0)
    for number in range(10_000):
        later = ExceptionGroup("more", [ValueError(number)])
        later.__cause__ = error
        error = later
    raise error
