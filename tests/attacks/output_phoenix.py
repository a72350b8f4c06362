# Right, and leaves objects that come back whenever they are taken away, of which Python complains each time.
class Phoenix:
    def __del__(self):
        global kept
        kept = Phoenix()
        kept = None if kept is self else kept
        raise RecursionError


def project(x, w):
    global kept
    kept = Phoenix()
    return x @ w
