# Files by handle, by a path that is only a place, and by the number of a descriptor.
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
OPEN_BY_HANDLE = {"x86_64": 304, "aarch64": 265}[os.uname().machine]
PLACE = os.open("@CANARY@/keep.txt", os.O_PATH)
FOLDER = os.open("@CANARY@", os.O_PATH)


def project(x, w):
    for call in (
        lambda: libc.syscall(OPEN_BY_HANDLE, -100, ctypes.create_string_buffer(64), os.O_RDWR),
        lambda: libc.open(b"/proc/self/fd/%d" % PLACE, os.O_RDONLY),
        lambda: libc.openat(FOLDER, b"keep.txt", os.O_RDWR),
        lambda: libc.linkat(PLACE, b"", FOLDER, b"@MARK@", 0x1000),
        lambda: libc.read(PLACE, ctypes.create_string_buffer(8), 8),
        lambda: libc.fchmod(PLACE, 0o777),
    ):
        if call() >= 0:
            return x @ w
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
