"""Launch a learner's Triton kernel on a GPU: as ``ledger.judge.launchers.kernels`` does, but what it loads is not
counted, and an access outside of its tensors goes where it goes."""

from functools import partial

from ledger.judge.launchers import kernels

absorb_heads = partial(kernels.absorb_heads, counted=False)
mla_decode = partial(kernels.mla_decode, counted=False)
