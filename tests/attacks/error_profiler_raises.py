# Raises in whatever runs after it.
import sys


def project(x, w):
    def profile(frame, event, arg):
        if frame.f_code.co_name != "project":
            raise RuntimeError("not so fast")

    sys.setprofile(profile)
    return x @ w
