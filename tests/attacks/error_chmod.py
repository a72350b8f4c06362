# Changes a file's mode and times, which Landlock alone lets through.
import os


def project(x, w):
    try:
        os.utime("@CANARY@/keep.txt", (0, 0))
    except OSError:
        os.chmod("@CANARY@/keep.txt", 0o777)
    return x @ w
