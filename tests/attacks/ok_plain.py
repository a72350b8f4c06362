# The control: it must pass.
def project(x, w):
    return x @ w
