# Waits for a keyboard that is not there.
def project(x, w):
    return float(input("scale? ")) * (x @ w)
