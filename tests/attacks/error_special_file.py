# A pipe, a device and a socket in the planted folder.
import os
import stat


def project(x, w):
    errors = []
    for kind in (stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK, stat.S_IFREG):
        try:
            os.mknod("@CANARY@/@MARK@", kind | 0o600)
        except OSError as error:
            errors.append(error)
    if len(errors) == 4:
        raise errors[0]
    return x @ w
