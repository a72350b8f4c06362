# Opens the planted file past Python, in every way that writes or reads.
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


def project(x, w):
    for call in (
        lambda: libc.open(b"@CANARY@/keep.txt", os.O_RDWR),
        lambda: libc.creat(b"@CANARY@/keep.txt", 0o600),
        lambda: libc.openat(-100, b"@CANARY@/keep.txt", os.O_RDONLY),
        lambda: libc.open(b"@CANARY@", os.O_TMPFILE | os.O_RDWR, 0o600),
        lambda: libc.open(b"@CANARY@/@MARK@", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600),
    ):
        if call() >= 0:
            return x @ w
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
