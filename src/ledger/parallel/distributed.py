"""A world over torch.distributed: gloo between processes on CPUs, NCCL between GPUs. torch is needed."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from ledger.parallel.world import Array, World


class Unreachable(RuntimeError):
    """This rank could not exchange: another one has died, is elsewhere, or takes too long."""


class DistributedWorld(World):
    """This process in the default group of torch.distributed.

    All tensors of a call travel in one message to each rank, as bytes, so every dtype does. ``place`` is told where
    this rank is: the number and name of an all-to-all when it comes to it, and an empty name when it is through.
    """

    def __init__(self, place: Callable[[int, str], None] = lambda number, name: None):
        import torch
        import torch.distributed as dist

        super().__init__(dist.get_rank(), dist.get_world_size())
        on_gpu = dist.get_backend() == "nccl"
        self.device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        self._place = place

    def _exchange(self, tensors: list[Array], name: str) -> list[Array]:
        import torch
        import torch.distributed as dist

        rest, dtype = tensors[0].shape[1:], tensors[0].dtype
        each = rest.numel() * dtype.itemsize  # bytes a row
        rows = torch.tensor([[len(tensor), each] for tensor in tensors], device=self.device)
        number, start = len(self.sent), time.monotonic()
        self._place(number, name or "all_to_all")
        try:
            coming = torch.empty_like(rows)
            dist.all_to_all_single(coming, rows)
            coming = coming.tolist()
            for source, (_, width) in enumerate(coming):
                if width != each:
                    raise ValueError(
                        f"rank {source} sends rows of {width} bytes, rank {self.rank} rows of {each}; in one "
                        "all_to_all they must be alike on all ranks"
                    )
            out = torch.cat([_as_bytes(tensor.to(self.device)) for tensor in tensors])
            splits = [count * each for count, _ in coming]  # bytes from each rank
            buffer = out.new_empty(sum(splits))
            dist.all_to_all_single(buffer, out, splits, [len(tensor) * each for tensor in tensors])
        except RuntimeError as error:
            where = f"rank {self.rank} waited {time.monotonic() - start:.0f} s in all_to_all {number}"
            raise Unreachable(f"{where}{f' ({name})' if name else ''}: {first_line(error)}") from error
        self._place(number, "")
        counts = [count for count, _ in coming]
        if not each:  # rows without values
            return [buffer.new_empty((count, *rest), dtype=dtype) for count in counts]
        parts = buffer.split(splits)
        return [part.view(dtype).reshape(count, *rest) for part, count in zip(parts, counts, strict=True)]


def _as_bytes(tensor: Array) -> Array:
    import torch

    return tensor.contiguous().reshape(-1).view(torch.uint8)


def first_line(error: BaseException) -> str:
    """The first sentence of an error of a library, without its place in that library's source."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return text.split("] ", 1)[-1].split(". ")[0]


def loopback() -> str:
    """The name of the interface that leads nowhere else."""
    return "lo0" if sys.platform == "darwin" else "lo"


@contextmanager
def joined(
    backend: str = "gloo", seconds: float = 30.0, place: Callable[[int, str], None] | None = None, **group: Any
) -> Iterator[DistributedWorld]:
    """This process's world for a while. Where ``group`` gives no ``rank``, ``world_size`` and ``store``, they come from
    the environment, as ``torchrun`` sets it; ``LOCAL_RANK`` chooses the GPU.

    A rank that waits longer than ``seconds`` in an exchange raises ``Unreachable``; ValueError where NCCL has no GPU
    for this rank. Ranks of one machine talk over its loopback interface unless ``GLOO_SOCKET_IFNAME`` or
    ``NCCL_SOCKET_IFNAME`` say otherwise.
    """
    import torch
    import torch.distributed as dist

    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback())
    os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback())
    if backend == "nccl":
        local, gpus = int(os.environ.get("LOCAL_RANK", group.get("rank", 0))), torch.cuda.device_count()
        if local >= gpus:
            raise ValueError(f"nccl needs a GPU for each rank; this machine has {gpus}, take gloo or fewer ranks")
        torch.cuda.set_device(local)
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=seconds), **group)
    except RuntimeError as error:
        raise Unreachable(f"the other ranks did not come: {first_line(error)}") from error
    yield DistributedWorld(place) if place else DistributedWorld()
    dist.destroy_process_group()  # not where something was raised: others may never come to that
