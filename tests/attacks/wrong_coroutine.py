# The result of an asynchronous function, which nobody awaits.
async def project(x, w):
    return x @ w
