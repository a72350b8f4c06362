"""What a GPU's datasheet promises: the denominators of every predicted time.

Rates are dense (NVIDIA's tensor rates "with sparsity" are twice these) and are limits, not what a kernel reaches.
``network`` is one direction of the network card that a server gives each GPU, not NVLink.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One GPU by its datasheet.

    ``bandwidth`` is that of its memory in bytes/s; ``flops`` maps ``"bf16"``, ``"fp16"``, ``"fp8"`` and ``"fp32"`` to
    FLOP/s, without the formats that the GPU has no fast path for; ``network`` is in bytes/s and ``memory`` in bytes
    (of 1e9 to the GB, as datasheets count). ``"fp32"`` is that of the plain cores: TF32 rounds its inputs.
    """

    name: str
    bandwidth: float
    flops: Mapping[str, float] = field(hash=False)
    network: float
    memory: float
    source: str

    def rate(self, dtype: str = "bf16") -> float:
        """FLOP/s in ``dtype``. A ValueError names the formats of this machine."""
        if dtype not in self.flops:
            raise ValueError(f"{self.name} has no rate for {dtype!r}; the choices are: {', '.join(self.flops)}")
        return self.flops[dtype]

    def ridge(self, dtype: str = "bf16") -> float:
        """FLOP for each byte read at which arithmetic in ``dtype`` takes as long as the reading.

        Below it memory sets the pace, above it arithmetic. A ValueError names the formats of this machine.
        """
        return self.rate(dtype) / self.bandwidth


_HOPPER = {"bf16": 989e12, "fp16": 989e12, "fp8": 1979e12, "fp32": 67e12}

#: Every machine by its short name.
MACHINES: dict[str, Machine] = {
    m.name: m
    for m in (
        Machine(
            name="A100",
            bandwidth=2.039e12,
            flops={"bf16": 312e12, "fp16": 312e12, "fp32": 19.5e12},
            network=25e9,
            memory=80e9,
            source="NVIDIA A100 datasheet, 80GB SXM (no FP8 tensor cores); DGX A100: one 200 Gb/s card a GPU",
        ),
        Machine(
            name="H100",
            bandwidth=3.35e12,
            flops=dict(_HOPPER),
            network=50e9,
            memory=80e9,
            source="NVIDIA H100 datasheet, SXM; DGX H100: one 400 Gb/s card a GPU",
        ),
        Machine(
            name="H800",
            bandwidth=3.35e12,
            flops=dict(_HOPPER),
            network=50e9,
            memory=80e9,
            source="NVIDIA H100 datasheet, SXM: the H800 differs in NVLink and FP64 alone; "
            "network: DeepSeek-V3 technical report (arXiv 2412.19437), InfiniBand at 50 GB/s",
        ),
        Machine(
            name="H200",
            bandwidth=4.8e12,
            flops=dict(_HOPPER),
            network=50e9,
            memory=141e9,
            source="NVIDIA H200 datasheet, SXM; DGX H200: one 400 Gb/s card a GPU",
        ),
        Machine(
            name="B200",
            bandwidth=8e12,
            flops={"bf16": 2.25e15, "fp16": 2.25e15, "fp8": 4.5e15, "fp32": 75e12},
            network=50e9,
            memory=180e9,
            source="NVIDIA DGX B200 datasheet, an eighth of the system (1,440 GB, 64 TB/s, 72 PFLOPS FP8 with "
            "sparsity); FP32: HGX B200; one 400 Gb/s card a GPU",
        ),
    )
}


def machine(name: str) -> Machine:
    """The machine called ``name``; a ValueError names the choices."""
    if name not in MACHINES:
        raise ValueError(f"no machine {name!r}; the choices are: {', '.join(MACHINES)}")
    return MACHINES[name]
