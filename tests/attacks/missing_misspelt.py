# The function has another name.
def projekt(x, w):
    return x @ w
