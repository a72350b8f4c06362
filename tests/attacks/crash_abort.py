# Aborts.
import os


def project(x, w):
    os.abort()
