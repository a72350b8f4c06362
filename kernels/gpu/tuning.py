"""How large the blocks of a kernel are on each GPU: what fits its shared memory and registers without a spill.

``compiled.py`` proves it for every line here. A block of heads shares a tile of the cache; a larger tile hides more of
the memory's latency, and costs shared memory for each of the stages that are in flight.
"""

from dataclasses import asdict, dataclass

from ledger.kernels.interpret.mode import INTERPRETED, torch


@dataclass(frozen=True)
class Blocks:
    """Rows and tokens of a tile, warps of a program, and loads in flight; named as the kernels name them."""

    BLOCK_H: int
    BLOCK_T: int
    num_warps: int
    num_stages: int

    def launch(self) -> dict[str, int]:
        """The keyword arguments of a launch."""
        return asdict(self)


#: By architecture: tiles of the decode kernel for a 16-bit cache, for an FP8 one, and for many rows in a 16-bit one.
DECODE = {
    "sm_75": (Blocks(8, 16, 8, 1), Blocks(8, 16, 8, 1), Blocks(8, 16, 8, 1)),
    "sm_80": (Blocks(16, 64, 8, 2), Blocks(16, 32, 8, 2), Blocks(16, 64, 8, 2)),
    "sm_90": (Blocks(16, 64, 8, 2), Blocks(16, 32, 8, 2), Blocks(64, 32, 8, 2)),
    "gfx942": (Blocks(16, 32, 4, 1), Blocks(16, 16, 4, 1), Blocks(16, 32, 4, 1)),
}
#: For an architecture that is not listed: 64 KB of shared memory will do.
CAREFUL = (Blocks(16, 32, 4, 2), Blocks(16, 16, 8, 2), Blocks(16, 32, 4, 2))
#: Rows of a request from which a block of 64 is worth its registers.
MANY_ROWS = 64


#: The other kernels with products: their blocks, warps and stages. A T4's tensor cores are not used by this Triton, so
#: a product is unrolled into multiply-adds, and smaller blocks keep it in registers.
PRODUCTS = {
    "absorb_heads": dict(BLOCK_S=16, BLOCK_N=64, BLOCK_C=128, num_warps=4, num_stages=2),
    "value_up": dict(BLOCK_B=16, BLOCK_C=64, BLOCK_V=128, num_warps=4, num_stages=2),
    "expand": dict(BLOCK_T=64, BLOCK_W=64, BLOCK_K=64, num_warps=4, num_stages=2),
    "attend": dict(BLOCK_S=64, BLOCK_T=64, num_warps=4, num_stages=2),
    "index_scores": dict(BLOCK_H=64, BLOCK_T=64, num_warps=4, num_stages=1),
    "block_scores": dict(BLOCK_J=32, num_warps=4, num_stages=1),
    "attend_group": dict(BLOCK_T=64, num_warps=4, num_stages=2),
}
PRODUCTS_SM_75 = {
    "absorb_heads": dict(BLOCK_S=16, BLOCK_N=32, BLOCK_C=64, num_warps=8, num_stages=1),
    "value_up": dict(BLOCK_B=16, BLOCK_C=32, BLOCK_V=64, num_warps=8, num_stages=1),
    "expand": dict(BLOCK_T=64, BLOCK_W=32, BLOCK_K=32, num_warps=8, num_stages=1),
    "attend": dict(BLOCK_S=16, BLOCK_T=16, num_warps=8, num_stages=1),
    "index_scores": dict(BLOCK_H=16, BLOCK_T=32, num_warps=8, num_stages=1),
    "block_scores": dict(BLOCK_J=16, num_warps=8, num_stages=1),
    "attend_group": dict(BLOCK_T=16, num_warps=8, num_stages=1),
}
#: Parts of a row that ``select_topk`` reads side by side, at most: each reads the counts of all.
SELECT_PARTS = 8


def product_blocks(target: str, kernel: str) -> dict[str, int]:
    """The blocks of a kernel of ``PRODUCTS`` on ``target``, as a launch takes them."""
    return (PRODUCTS_SM_75 if target == "sm_75" else PRODUCTS)[kernel]


def architecture() -> str:
    """The architecture of the GPU here, as ``DECODE`` names them; ``"interpreter"`` where there is none."""
    if INTERPRETED:
        return "interpreter"
    if torch.version.hip:
        return torch.cuda.get_device_properties(0).gcnArchName.split(":")[0]
    major, minor = torch.cuda.get_device_capability()
    return "sm_90" if major == 9 else f"sm_{major}{minor}"


def decode_blocks(target: str, fp8: bool, num_rows: int) -> Blocks:
    """The decode kernel's blocks on ``target`` for a request of ``num_rows`` (heads times new tokens)."""
    sixteen_bit, eight_bit, many = DECODE.get(target, CAREFUL)
    if fp8:
        return eight_bit
    return many if num_rows >= MANY_ROWS else sixteen_bit


def select_blocks() -> dict[str, int]:
    """The blocks of ``select_topk``'s kernels on every target."""
    return dict(BLOCK_T=2048, num_warps=8)
