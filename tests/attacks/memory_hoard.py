# Keeps 100 MB more at every turn; it would stop at 6 GB.
def project(x, w):
    hoard = [bytearray(100_000_000) for _ in range(60)]
    return x @ w * len(hoard)
