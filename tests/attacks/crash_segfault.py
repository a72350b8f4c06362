# Reads address 0.
import ctypes


def project(x, w):
    ctypes.string_at(0)
