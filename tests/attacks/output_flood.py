# A gigabyte of print.
def project(x, w):
    for _ in range(1000):
        print("spam " * 200_000)
    return x @ w
