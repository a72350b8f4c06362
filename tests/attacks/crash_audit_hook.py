# Refuses whatever Python asks its audit hooks about, for good.
import ctypes
import sys


def refuse(event, arguments):
    raise RuntimeError(event)


def project(x, w):
    sys.addaudithook(refuse)
    ctypes.string_at(ctypes.create_string_buffer(b"asked"))
    return x @ w
