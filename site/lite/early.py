# The first Python that the kernel runs. Its folder is in the browser's drive, where each look takes a request of some
# milliseconds; with "" at the front of sys.path every import of the start looked there first. IPython puts "" back,
# behind the standard library, as kernels elsewhere have it.
import sys

if "" in sys.path:
    sys.path.remove("")
