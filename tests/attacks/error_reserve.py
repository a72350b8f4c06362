# A terabyte that is only promised.
import mmap


def project(x, w):
    mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
    return x @ w
