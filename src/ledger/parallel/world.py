"""What ranks do together, and what travels when they do."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

#: An array of NumPy's or a tensor of torch's.
Array = Any


class Sent(NamedTuple):
    """What this rank gave to one all-to-all: its ``name``, and the ``bytes`` for each rank, itself among them."""

    name: str
    bytes: tuple[int, ...]


class World(ABC):
    """This process among ``size`` ranks, as number ``rank`` of 0 … size − 1.

    ``sent`` lists what it gave to each all-to-all, in order. How many rows come is learnt by an exchange of counts,
    which is not in that list.
    """

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size
        self.sent: list[Sent] = []

    def all_to_all(self, tensors: Sequence[Array], name: str = "") -> list[Array]:
        """Give ``tensors[r]`` to rank r and return what each rank gave to this one, in the order of the ranks.

        Every rank must call it equally often, with nothing to send too. Tensors may have any number of rows, 0
        included, but on all ranks the same dtype and the same sizes of the other axes. ``name`` is for ``sent`` and
        for messages. ValueError and TypeError where the tensors are not such.
        """
        tensors = list(tensors)
        self._check(tensors)
        self.sent.append(Sent(name, tuple(int(math.prod(t.shape)) * t.dtype.itemsize for t in tensors)))
        return self._exchange(tensors, name)

    @abstractmethod
    def _exchange(self, tensors: list[Array], name: str) -> list[Array]:
        """``all_to_all`` of tensors that fit together."""

    def bytes_sent(self, *names: str, leaving: bool = False) -> int:
        """Bytes of the all-to-alls called ``names``, of all without any; with ``leaving`` without what this rank gave
        to itself."""
        chosen = [sent for sent in self.sent if not names or sent.name in names]
        return sum(sum(sent.bytes) - leaving * sent.bytes[self.rank] for sent in chosen)

    def _check(self, tensors: list[Array]) -> None:
        if len(tensors) != self.size:
            raise ValueError(f"all_to_all got {len(tensors)} tensors; give {self.size}, one for each rank")
        for tensor in tensors:
            if not (hasattr(tensor, "dtype") and hasattr(tensor, "shape")):
                raise TypeError(f"all_to_all takes tensors, not {type(tensor).__name__}")
            if not tensor.shape:
                raise ValueError("all_to_all takes tensors with rows, not a single number; reshape it to (1,)")
        if len({(str(tensor.dtype), tuple(tensor.shape[1:])) for tensor in tensors}) > 1:
            found = ", ".join(f"{tuple(tensor.shape)} {tensor.dtype}" for tensor in tensors)
            raise ValueError(f"all_to_all got {found}; only the first axis may differ")
