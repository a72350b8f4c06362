# Uses no CPU time, so only a wall clock ends it.
import time


def project(x, w):
    time.sleep(10**6)
