"""Every kernel configuration compiled ahead of time for four GPUs, and what the compiler made of it.

Nothing here needs a GPU: Triton's wheel brings the compilers of both makers.
"""

import json
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton is not installed: it is made for Linux")

from ledger.kernels.gpu import compiled
from ledger.kernels.gpu.compiled import TARGETS

#: Configurations that multiply matrices; the others add, scale and move.
PRODUCTS = {
    "absorb_heads",
    "shared_tile",
    "shared_tile, many rows",
    "shared_tile, FP8",
    "value_up",
    "expand",
    "attend",
    "index_scores",
    "sparse_mla_decode",
    "sparse_mla_decode, FP8",
    "block_scores",
    "attend_group",
    "attend_group, range",
}
OTHERS = {
    "write_cache",
    "write_cache, FP8",
    "one_head",
    "combine",
    "count_digits",
    "pick_top",
    "compress",
    "pick_blocks",
}
#: What multiplies matrices on each target. On a T4 this Triton unrolls a product into multiply-adds.
INSTRUCTIONS = {"sm_75": {""}, "sm_80": {"mma"}, "sm_90": {"mma", "wgmma"}, "gfx942": {"mfma"}}


@pytest.fixture(scope="session")
def rows() -> dict[tuple[str, str], compiled.Compiled]:
    """The table, by target and kernel."""
    return {(row.target, row.kernel): row for row in compiled.table()}


def test_every_configuration_compiles_for_every_target(rows):
    assert set(rows) == {(target, kernel) for target in TARGETS for kernel in PRODUCTS | OTHERS}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", sorted(PRODUCTS | OTHERS))
def test_it_fits_the_gpu(rows, target, kernel):
    row = rows[target, kernel]
    assert row.spilled == 0
    assert 0 < row.shared <= TARGETS[target].shared
    # 512 registers of an MI300X count its accumulation registers
    assert 0 < row.registers <= (512 if target == "gfx942" else 255)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", sorted(PRODUCTS))
def test_products_use_the_gpus_matrix_instruction(rows, target, kernel):
    assert rows[target, kernel].matrix in INSTRUCTIONS[target]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", sorted(OTHERS))
def test_what_is_no_product_uses_none(rows, target, kernel):
    assert rows[target, kernel].matrix == ""


@pytest.mark.parametrize("kernel", ["shared_tile, many rows", "expand", "attend", "index_scores", "sparse_mla_decode"])
def test_blocks_of_64_rows_use_a_warp_groups_instruction(rows, kernel):
    assert rows["sm_90", kernel].matrix == "wgmma"


def compiled_with(edit: str, kernels: list[str]) -> list[tuple[int, int]]:
    """Bytes spilled and shared by ``kernels`` on an A100 or H100 after ``edit`` of the blocks."""
    program = (
        "import json, os, sys; os.environ['TRITON_INTERPRET'] = '0'\n"
        "from dataclasses import replace\n"
        "from ledger.kernels.gpu import compiled\n"
        "from ledger.kernels.gpu.tuning import DECODE, CAREFUL\n"
        f"{edit}\n"
        "rows = [compiled.compile_one(*name.split('|')) for name in sys.argv[1:]]\n"
        "print(json.dumps([(row.spilled, row.shared) for row in rows]))"
    )
    done = subprocess.run([sys.executable, "-c", program, *kernels], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_spill_is_seen():
    edit = "DECODE['sm_90'] = (*DECODE['sm_90'][:2], replace(DECODE['sm_90'][2], num_warps=4))"
    ((spilled, _),) = compiled_with(edit, ["shared_tile, many rows|sm_90"])
    assert spilled > 0


def test_a_gpu_that_is_not_listed_gets_blocks_that_fit_64_kilobytes():
    made = compiled_with("del DECODE['sm_80']", ["shared_tile|sm_80", "shared_tile, FP8|sm_80"])
    for spilled, shared in made:
        assert spilled == 0
        assert 0 < shared <= 65_536


def test_a_kernel_that_does_not_compile_is_an_exception_with_the_reason():
    with pytest.raises(RuntimeError, match=r"the kernels do not compile:(.|\n)*KeyError: 'sm_1'"):
        compiled.table(("sm_1",))


def test_only_the_kernels_that_are_asked_for_are_compiled(rows):
    asked = ["combine", "shared_tile, FP8"]
    assert compiled.table(("sm_90",), asked) == [rows["sm_90", name] for name in asked]
    with pytest.raises(RuntimeError, match=r"KeyError: 'shared tile'"):
        compiled.table(("sm_90",), ["shared tile"])


def test_the_table_is_printed(monkeypatch, capsys, rows):
    monkeypatch.setattr(compiled, "table", lambda targets, kernels: [rows[targets[0], kernels[0]]])
    compiled.main(["sm_90", "--kernels", "attend"])
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["kernel", "target", "shared", "registers"]
    assert line.split()[:2] == ["attend", "sm_90"]
    assert line.split()[-1] == "wgmma"
