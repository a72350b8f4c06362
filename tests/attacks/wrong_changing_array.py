# An array that a thread goes on writing to, between nothing and less.
import threading


def project(x, w):
    y = 0 * (x @ w)

    def change():
        while True:
            y[...] -= 1.0

    threading.Thread(target=change).start()
    return y
