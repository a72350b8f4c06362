# What notebooks call beside the answer is harmless in the jail.
from ledger import case, check, hint

inputs = case("project", "small", 7)


def project(x, w):
    return x @ w


check("project", project)
hint("project", 1)
project(*inputs)
