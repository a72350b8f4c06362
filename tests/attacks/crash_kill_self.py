# Kills itself, which is allowed.
import os
import signal


def project(x, w):
    os.kill(os.getpid(), signal.SIGKILL)
