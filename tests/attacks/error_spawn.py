# Processes by way of libraries: spawn, pools, a shell, a pseudo-terminal.
import multiprocessing
import os
import pty


def project(x, w):
    errors = []
    for start in (
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        lambda: multiprocessing.get_context("fork").Process(target=os._exit, args=(0,)).start(),
        lambda: multiprocessing.Pool(1),
        lambda: os.popen("exit").close(),
        pty.fork,
    ):
        try:
            start()
        except OSError as error:
            errors.append(error)
    if len(errors) == 5:
        raise errors[0]
    return x @ w
