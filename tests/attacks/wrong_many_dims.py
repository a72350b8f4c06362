# More dimensions than NumPy once had.
def project(x, w):
    return (x @ w).reshape(*[1] * 40, len(x), w.shape[1])
