"""The course's kernels: ``loops`` (NumPy, the same loops: executable pseudo-code) and ``web`` (WGSL on WebGPU)."""
