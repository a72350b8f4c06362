# A gigabyte past Python's own files.
import os


def project(x, w):
    for _ in range(1000):
        os.write(2, b"spam " * 200_000)
    return x @ w
