# Leaves while its cell runs.
import sys


def project(x, w):
    return x @ w


sys.exit("done")
