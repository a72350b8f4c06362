# Something that is no kernel, though it can be called.

absorb_heads_kernel = print
