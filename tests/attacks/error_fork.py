# Forks 40 times; each child would sleep for 5 s.
import os
import time


def project(x, w):
    for _ in range(40):
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
    return x @ w
