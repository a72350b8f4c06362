#!/usr/bin/env python3
"""Grade what is in practice/: ``python judge.py --help`` says how."""

import os
import sys
from pathlib import Path

# One BLAS thread: the judge compares small arrays while the answers use the other cores.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

ROOT = Path(__file__).resolve().parent

try:
    import numpy  # noqa: F401
except ImportError:
    python = ROOT / ".venv" / "bin" / "python"
    hint = f"{python} judge.py" if python.exists() else "make judge"
    sys.exit(f"judge: NumPy is not installed for {sys.executable}. Run: {hint}")

sys.path.insert(0, str(ROOT / "src"))

from ledger.judge.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(root=ROOT))
