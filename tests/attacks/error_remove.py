# Removes, renames and links files.
import os

ACTS = (os.remove, lambda p: os.rename(p, p + "2"), lambda p: os.link(p, p + "3"), lambda p: os.symlink(p, p + "4"))


def project(x, w):
    errors = []
    for act in ACTS:
        try:
            act("@CANARY@/keep.txt")
        except OSError as error:
            errors.append(error)
    if len(errors) == len(ACTS):
        raise errors[0]
    return x @ w
