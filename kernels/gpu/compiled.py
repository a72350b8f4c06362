"""Compile every kernel ahead of time for GPUs that need not be there, and read what the compiler made of it.

``python -m ledger.kernels.gpu.compiled`` prints the table. ``table()`` makes it in a process of its own, because a
process whose Triton interprets cannot compile.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

#: The widths of DeepSeek-V3, its successor's indexer, and NSA's heads, which share keys in groups of 16.
NOPE, LATENT, ROPE, VALUE = 128, 512, 64, 128
INDEX_HEADS, INDEX_DIM = 64, 128
GROUP_HEADS, GROUP_KEY, GROUP_VALUE = 16, 192, 128


class Target(NamedTuple):
    """A GPU as Triton's compiler names it; ``half`` is its 16-bit type, ``shared`` the most bytes of a program."""

    backend: str
    architecture: int | str
    lanes: int
    half: str
    shared: int
    example: str


TARGETS = {
    "sm_75": Target("cuda", 75, 32, "fp16", 65_536, "T4"),
    "sm_80": Target("cuda", 80, 32, "bf16", 166_912, "A100"),
    "sm_90": Target("cuda", 90, 32, "bf16", 232_448, "H100, H200"),
    "gfx942": Target("hip", "gfx942", 64, "bf16", 65_536, "MI300X"),
}

#: Instructions that multiply matrices, by what their names look like in the compiled text.
MATRIX = {"wgmma": r"\bwgmma\.mma_async", "mma": r"\bmma\.sync", "mfma": r"v_mfma_"}


@dataclass(frozen=True)
class Compiled:
    """One kernel on one target: bytes of shared memory, registers of a thread, bytes spilled, matrix instruction."""

    kernel: str
    target: str
    shared: int
    registers: int
    spilled: int
    matrix: str


def configurations(target: str) -> dict[str, tuple]:
    """Of each kernel configuration on ``target``: (kernel, types of pointers, what its launch is given by name)."""
    from ledger.kernels.gpu import nsa
    from ledger.kernels.gpu.absorb_heads import absorb_heads
    from ledger.kernels.gpu.index_scores import index_scores
    from ledger.kernels.gpu.materialize_prefill import attend, expand
    from ledger.kernels.gpu.mla_decode import combine, one_head, shared_tile
    from ledger.kernels.gpu.select_topk import count_digits, pick_top
    from ledger.kernels.gpu.sparse_mla_decode import sparse_mla_decode
    from ledger.kernels.gpu.tuning import (
        MANY_ROWS,
        PRODUCTS,
        SELECT_PARTS,
        decode_blocks,
        product_blocks,
        select_blocks,
    )
    from ledger.kernels.gpu.value_up import value_up
    from ledger.kernels.gpu.write_cache import write_cache
    from ledger.kernels.interpret.mode import tl

    dot = {"bf16": tl.bfloat16, "fp16": tl.float16}[TARGETS[target].half]
    row = dict(LATENT=LATENT, BLOCK_C=LATENT)
    entry = row | dict(ROPE=ROPE, BLOCK_R=ROPE, DOT=dot)
    fp8 = dict(p_latent="u8", p_scales="fp32", p_rope="bf16")
    lists = dict(p_block_table="i32", p_lengths="i32", p_indices="i32")
    partial = dict(p_out="fp32", p_lse="fp32") | lists
    merged = dict(p_partials="fp32", p_lses="fp32", p_lse="fp32")
    tables = dict(p_cos="fp32", p_sin="fp32")
    rotated = dict(LATENT=LATENT, ROPE=ROPE, BLOCK_P=ROPE // 2, INTERLEAVED=True)
    written = rotated | dict(TILES=LATENT // 128, TILE=128)
    seen = dict(NOPE=NOPE, ROPE=ROPE, VALUE=VALUE, CAUSAL=True, BLOCK_N=NOPE, BLOCK_R=ROPE, BLOCK_V=VALUE, DOT=dot)
    few, codes, many = (decode_blocks(target, *how).launch() for how in ((False, 1), (True, 1), (False, MANY_ROWS)))
    indexed = dict(p_queries="u8", p_weights="fp32", p_codes="u8", p_scales="fp32", p_scores="fp32") | lists
    index = dict(HEADS=INDEX_HEADS, DIM=INDEX_DIM, BLOCK_D=INDEX_DIM, DOT=tl.float16)
    ranked = dict(p_scores="fp32", p_seen="i32", p_counts="i32", p_indices="i32")
    rank = dict(PARTS=SELECT_PARTS) | select_blocks()
    shared = dict(DIM=GROUP_KEY, HEADS=GROUP_HEADS, BLOCK_H=GROUP_HEADS, BLOCK_D=256, DOT=dot)
    chosen = dict(p_lse="fp32", p_stops="i32", p_starts="i32", p_visible="i32", p_scores="fp32", p_blocks="i32")
    overlapped = shared | dict(WIDE=2, PER=4, INITIAL=1, LOCAL=2)
    grouped = shared | dict(VALUE=GROUP_VALUE, BLOCK_V=GROUP_VALUE)
    blocks = {name: product_blocks(target, name) for name in PRODUCTS}
    return {
        "absorb_heads": (absorb_heads, tables, rotated | dict(NOPE=NOPE, DOT=dot) | blocks["absorb_heads"]),
        "write_cache": (write_cache, tables | dict(p_slots="i64"), written | dict(FP8=False)),
        "write_cache, FP8": (write_cache, tables | dict(p_slots="i64") | fp8, written | dict(FP8=True)),
        "one_head": (one_head, partial, entry | dict(FP8=False, BLOCK_H=1, BLOCK_T=16)),
        "shared_tile": (shared_tile, partial, entry | dict(FP8=False) | few),
        "shared_tile, many rows": (shared_tile, partial, entry | dict(FP8=False) | many),
        "shared_tile, FP8": (shared_tile, partial | fp8, entry | dict(FP8=True) | codes),
        "combine": (combine, merged, row | dict(BLOCK_H=16)),
        "value_up": (value_up, merged, dict(LATENT=LATENT, VALUE=VALUE, DOT=dot) | blocks["value_up"]),
        "expand": (expand, {}, dict(LATENT=LATENT, WIDTH=NOPE + VALUE, DOT=dot) | blocks["expand"]),
        "attend": (attend, dict(p_lse="fp32"), seen | blocks["attend"]),
        "index_scores": (index_scores, indexed, index | blocks["index_scores"]),
        "count_digits": (count_digits, ranked, rank),
        "pick_top": (pick_top, ranked, rank),
        "sparse_mla_decode": (sparse_mla_decode, partial, entry | dict(FP8=False) | many),
        "sparse_mla_decode, FP8": (sparse_mla_decode, partial | fp8, entry | dict(FP8=True) | codes),
        "compress": (nsa.compress, lists, dict(DIM=192, BLOCK=32, STRIDE=16, BLOCK_L=32, BLOCK_D=256)),
        "block_scores": (nsa.block_scores, chosen, overlapped | blocks["block_scores"]),
        "pick_blocks": (nsa.pick_blocks, chosen, dict(COUNT=16, BLOCK_J=2048)),
        "attend_group": (nsa.attend_group, partial | chosen, grouped | dict(SELECTED=64) | blocks["attend_group"]),
        "attend_group, range": (
            nsa.attend_group,
            partial | chosen,
            grouped | dict(SELECTED=0) | blocks["attend_group"],
        ),
    }


def compile_one(name: str, target: str) -> Compiled:
    """Compile one configuration for one target; Triton must not be interpreting."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    gpu = TARGETS[target]
    kernel, pointers, launch = configurations(target)[name]
    options = {name: launch.get(name, usual) for name, usual in (("num_warps", 4), ("num_stages", 2))}
    constants = {name: value for name, value in launch.items() if name not in options}
    signature = {}
    for argument in kernel.arg_names:
        if argument in constants:
            signature[argument] = "constexpr"
        elif argument.startswith("p_"):
            signature[argument] = "*" + pointers.get(argument, gpu.half)
        else:
            signature[argument] = "fp32" if argument in ("scale", "eps") else "i32"
    # Tensors of torch start at multiples of 16 bytes, and their strides are multiples of 16 at these widths.
    aligned = [i for i, argument in enumerate(kernel.arg_names) if argument.startswith(("p_", "stride_"))]
    source = ASTSource(
        kernel, signature, constexprs=constants, attrs={(i,): [["tt.divisibility", 16]] for i in aligned}
    )
    made = triton.compile(
        source,
        target=GPUTarget(gpu.backend, gpu.architecture, gpu.lanes),
        options=options,
    )
    text = made.asm["ptx" if gpu.backend == "cuda" else "amdgcn"]
    text = text if isinstance(text, str) else text.decode()
    registers, spilled = _resources(made, gpu.backend, text)
    matrix = next((name for name, pattern in MATRIX.items() if re.search(pattern, text)), "")
    return Compiled(name, target, made.metadata.shared, registers, spilled, matrix)


def _resources(made, backend: str, text: str) -> tuple[int, int]:
    """Registers of a thread and bytes that it spills."""
    if backend == "hip":
        registers = int(re.search(r"\.vgpr_count:\s+(\d+)", text)[1])
        return registers, 4 * int(re.search(r"\.vgpr_spill_count:\s+(\d+)", text)[1])
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        usage = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(re.search(r"REG:(\d+)", usage)[1]), int(re.search(r"STACK:(\d+)", usage)[1])


def table(targets: Sequence[str] = tuple(TARGETS), kernels: Sequence[str] | None = None) -> list[Compiled]:
    """The configurations named by ``kernels``, or all, on each of ``targets``, compiled in a process whose Triton does
    not interpret. Raises RuntimeError with the compiler's words, also for a name that is none."""
    command = [sys.executable, "-m", "ledger.kernels.gpu.compiled", "--json", *targets]
    command += [] if kernels is None else ["--kernels", *kernels]
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    root = str(Path(__file__).resolve().parents[2] / "src")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH", "")]))
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"the kernels do not compile:\n{done.stderr[-3000:]}")
    return [Compiled(**row) for row in json.loads(done.stdout)]


def main(arguments: list[str]) -> None:
    """Print the table, as JSON with ``--json``."""
    parser = argparse.ArgumentParser(prog="python -m ledger.kernels.gpu.compiled", description=__doc__.split("\n")[0])
    parser.add_argument("targets", nargs="*", default=list(TARGETS), help=f"all unless named: {', '.join(TARGETS)}")
    parser.add_argument("--kernels", nargs="*", metavar="NAME", help="configurations by their names in the table")
    parser.add_argument("--json", action="store_true", help="print JSON; Triton must not be interpreting")
    asked = parser.parse_args(arguments)
    if asked.json:
        kernels = [configurations(t) if asked.kernels is None else asked.kernels for t in asked.targets]
        rows = [compile_one(name, t) for t, names in zip(asked.targets, kernels, strict=True) for name in names]
        print(json.dumps([asdict(row) for row in rows]))
        return
    rows = table(asked.targets, asked.kernels)
    print(f"{'kernel':23} {'target':7} {'shared':>8} {'registers':>9} {'spilled':>8}  matrix instruction")
    for row in rows:
        print(f"{row.kernel:23} {row.target:7} {row.shared:8,} {row.registers:9} {row.spilled:8,}  {row.matrix}")


if __name__ == "__main__":
    main(sys.argv[1:])
