# Leaves work for the end of the process, which nobody waits for.
import atexit
import threading
import time
import weakref


class Last:
    pass


last = Last()
weakref.finalize(last, time.sleep, 20)
atexit.register(time.sleep, 20)
threading._register_atexit(time.sleep, 20)


def project(x, w):
    return x @ w
