# Right, and the input is overwritten.
def project(x, w):
    y = x @ w
    x[...] = 0
    return y
