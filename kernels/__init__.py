"""The course's kernels: ``gpu`` (Triton), ``web`` (WGSL on WebGPU) and ``loops``, the same loops in NumPy to read."""
