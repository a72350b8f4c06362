# The right numbers with their bytes the other way round.
def project(x, w):
    return (x @ w).astype(">f8").view("<f8")
