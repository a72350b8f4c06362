# Begins a reply and never ends it.
import os
import time


def project(x, w):
    os.write(4, (1000).to_bytes(4, "little") + b'{"message":')
    time.sleep(20)
