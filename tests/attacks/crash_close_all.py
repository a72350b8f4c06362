# Closes every descriptor and goes on for a while.
import os
import time


def project(x, w):
    os.closerange(0, 64)
    time.sleep(30)
