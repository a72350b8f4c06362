# Queues and memory of System V and POSIX, which outlive a process.
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


def project(x, w):
    for call in (
        lambda: libc.shmget(0, 4096, 0o1600),
        lambda: libc.semget(0, 1, 0o1600),
        lambda: libc.msgget(0, 0o1600),
        lambda: libc.mq_open(b"/@MARK@", os.O_CREAT | os.O_RDWR, 0o600, None),
        lambda: libc.shm_open(b"/@MARK@", os.O_CREAT | os.O_RDWR, 0o600),
    ):
        if call() >= 0:
            return x @ w
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
