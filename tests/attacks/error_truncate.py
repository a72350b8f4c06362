# Truncates a file, by opening and by name.
import os


def project(x, w):
    try:
        open("@CANARY@/keep.txt", "w").close()
    except OSError:
        os.truncate("@CANARY@/keep.txt", 0)
    return x @ w
