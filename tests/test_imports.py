"""The library needs NumPy alone: everything else is imported where it is used, so it also loads in a browser."""

import subprocess
import sys

#: Modules that need more than NumPy by their nature.
APART = (
    "ledger.build",
    "ledger.count.torch_mode",
    "ledger.judge.autograde",
    "ledger.judge.launchers.cuda",
    "ledger.judge.launchers.kernels",
    "ledger.judge.launchers.ranks",
)
PROGRAM = f"""
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in ("numpy", "ledger"):
            raise ImportError(f"{{name}} is not NumPy")
sys.meta_path.insert(0, Nothing())
import pkgutil, ledger
seen = []
for found in pkgutil.walk_packages(ledger.__path__, "ledger."):
    if not found.name.startswith({APART!r}) and not found.name.endswith("__main__"):
        __import__(found.name)
        seen.append(found.name)
from ledger import check
check("absorb_query", lambda q_nope, w_k: q_nope @ w_k.T)
print(len(seen))
"""


def test_every_module_imports_with_numpy_alone():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "✓ absorb_query" in done.stdout
    assert int(done.stdout.split()[-1]) > 30
