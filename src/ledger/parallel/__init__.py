"""Layers that run on several ranks at once: the same code on real processes and on ranks that live in one.

``world`` says what ranks can do together, ``memory`` plays all ranks in this process, ``distributed`` runs on
torch.distributed (gloo or NCCL), ``launch`` starts local processes and ends them when one fails. ``moe`` and
``context`` are the layers: experts that tokens travel to, and a cache whose tokens the ranks share.
"""
