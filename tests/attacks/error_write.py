# Writes to the home folder, the temporary folder and the planted one.
import os
import tempfile


def project(x, w):
    errors = []
    for folder in (os.path.expanduser("~"), tempfile.gettempdir, "@HOME@", "@CANARY@"):
        try:
            open(os.path.join(folder() if callable(folder) else folder, "@MARK@"), "w").close()
        except OSError as error:
            errors.append(error)
    if len(errors) == 4:
        raise errors[-1]
    return x @ w
