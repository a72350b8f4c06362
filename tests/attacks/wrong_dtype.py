# The right numbers in another dtype.
def project(x, w):
    return (x @ w).astype("float32")
