# The function is there, and is taken away again.
def project(x, w):
    return x @ w


del project
