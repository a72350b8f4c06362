# Right, and leaves two hundred threads that sleep.
import threading
import time

threading.stack_size(1 << 16)
for _ in range(200):
    threading.Thread(target=time.sleep, args=(20,)).start()


def project(x, w):
    return x @ w
