# Traces itself and its parent, and reads its parent's memory without a file.
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
ROOM = ctypes.create_string_buffer(64)
HERE = (ctypes.c_void_p * 2)(ctypes.addressof(ROOM), 64)
THERE = (ctypes.c_void_p * 2)(id(os), 64)


def project(x, w):
    for call in (
        lambda: libc.ptrace(0, 0, None, None),
        lambda: libc.ptrace(16, os.getppid(), None, None),
        lambda: libc.process_vm_readv(os.getppid(), HERE, 1, THERE, 1, 0),
        lambda: libc.process_vm_writev(os.getppid(), HERE, 1, THERE, 1, 0),
    ):
        if call() >= 0:
            return x @ w
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
