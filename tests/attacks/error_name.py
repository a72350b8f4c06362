# Relies on a helper of a cell that is not there.
def project(x, w):
    return helper(x, w)  # noqa: F821
