# A loop without an end.
def project(x, w):
    while True:
        pass
