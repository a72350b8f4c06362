"""What the entry points share: checks of their arguments, the sizes of a launch, and what decoding returns."""

from typing import NamedTuple

from ledger.kernels.interpret.mode import DEVICE, INTERPRETED, torch, triton

#: Rows of a block where nothing depends on it but the shape of a product: the least that tensor cores take.
ROWS = 16


class Decoded(NamedTuple):
    """``out`` and the natural-log-sum-exp of the scaled scores, ``lse`` in float32; the call says their shapes."""

    out: torch.Tensor
    lse: torch.Tensor


def check_shape(name: str, tensor: torch.Tensor, axes: str) -> tuple[int, ...]:
    """The shape of a tensor with these axes on the kernels' device. Raises ValueError for anything else."""
    if not isinstance(tensor, torch.Tensor) or tensor.ndim != axes.count(",") + 1:
        raise ValueError(f"{name} must be a tensor ({axes}); got {getattr(tensor, 'shape', type(tensor).__name__)}")
    if tensor.device.type != DEVICE:
        raise ValueError(f"{name} lies on {tensor.device}; the kernels run on {DEVICE}: {name}.to({DEVICE!r})")
    return tuple(tensor.shape)


def check_sizes(name: str, tensor: torch.Tensor, axes: str, wanted: tuple[int | None, ...]) -> None:
    """Check the sizes that other arguments set; None is any size. Raises ValueError for another."""
    shape = check_shape(name, tensor, axes)
    if any(size is not None and size != got for size, got in zip(wanted, shape, strict=True)):
        raise ValueError(f"{name} must be ({axes}) = {wanted}; got {shape}")


def last_axis_dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where its last axis is contiguous, which is what the kernels step along; else a copy."""
    return tensor if tensor.stride(-1) == 1 or not tensor.numel() else tensor.contiguous()


def power_of_two(size: int) -> int:
    """The least power of two that is not smaller."""
    return triton.next_power_of_2(max(size, 1))


def side_by_side(programs: int, most: int) -> int:
    """Enough parts of the work of each of ``programs`` to give every multiprocessor two of them, and not more than
    ``most``, nor none."""
    if INTERPRETED:
        return 2
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    return max(1, min(-(-2 * processors // max(programs, 1)), most))
