# A view of an input.
def project(x, w):
    return x[:, :]
