# Raises what Ctrl-C raises.
def project(x, w):
    raise KeyboardInterrupt
