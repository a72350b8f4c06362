# The name is bound, to something that cannot be called.
project = 3
