# The untouched stub.
def project(x, w):
    raise NotImplementedError("project: write your answer here")
