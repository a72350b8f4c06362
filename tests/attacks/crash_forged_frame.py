# A well-made frame that announces a negative size.
import os

HEADER = b'{"message":{},"leaves":[["<f8",[-1],-8]]}'


def project(x, w):
    os.write(4, len(HEADER).to_bytes(4, "little") + HEADER)
    return x @ w
