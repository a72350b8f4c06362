# No end of recursion in C, where Python does not count it, on a small stack.
import threading

threading.stack_size(1 << 16)


def project(x, w):
    items = ()
    for _ in range(100_000):
        items = (items,)
    thread = threading.Thread(target=hash, args=(items,))
    thread.start()
    thread.join()
    return x @ w
