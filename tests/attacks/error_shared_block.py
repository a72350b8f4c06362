# A block of shared memory by name.
from multiprocessing import shared_memory


def project(x, w):
    shared_memory.SharedMemory("@MARK@", create=True, size=x.nbytes)
    return x @ w
