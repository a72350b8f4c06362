# No end of recursion.
def project(x, w):
    return project(x, w)
