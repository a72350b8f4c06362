# A result whose memory is gone when it is read.
import ctypes
import mmap

import numpy as np


def project(x, w):
    room = mmap.mmap(-1, 1 << 20)
    result = np.frombuffer(room, float)
    ctypes.CDLL(None).munmap(ctypes.c_void_p(result.ctypes.data), ctypes.c_size_t(1 << 20))
    return result
