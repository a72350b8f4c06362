# 50 MB of message.
def project(x, w):
    raise ValueError("x" * 50_000_000)
