# An object that would run a command when it is unpickled.
import os


class Bomb:
    def __reduce__(self):
        return os.system, ("touch @CANARY@/unpickled",)


def project(x, w):
    return Bomb()
