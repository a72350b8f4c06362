# A list too long to cross as a tree.
def project(x, w):
    return [0.5] * 100_000
