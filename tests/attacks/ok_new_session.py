# Leaves its session and its group of processes, and is ended all the same.
import contextlib
import os
import threading
import time

with contextlib.suppress(OSError):
    os.setsid()
with contextlib.suppress(OSError):
    os.setpgid(0, 0)
threading.Thread(target=time.sleep, args=(20,)).start()


def project(x, w):
    return x @ w
