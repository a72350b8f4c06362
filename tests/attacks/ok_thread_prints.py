# Right, while a thread keeps standard output busy and open: the verdict does not wait for it.
import threading
import time


def chatter():
    for number in range(10**6):
        print(number, flush=True)
        time.sleep(0.01)


threading.Thread(target=chatter).start()


def project(x, w):
    return x @ w
