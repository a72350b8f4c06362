# Has the kernel send a signal to its parent: the owner of a pipe, by fcntl.
import fcntl
import os


def project(x, w):
    fcntl.fcntl(1, fcntl.F_SETOWN, os.getppid())
    return x @ w
