# The right numbers in a nested list.
def project(x, w):
    return (x @ w).tolist()
