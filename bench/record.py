"""Write a benchmark's figures with the machine, the date and the commit that they belong to."""

import json
import subprocess
from datetime import date
from pathlib import Path

from ledger.measure import describe_machine, processor

ROOT = Path(__file__).resolve().parent.parent


def record(name: str, figures: dict) -> Path:
    """Keep ``figures`` as ``bench/results/NAME.json`` and return the path."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    machine = {"processor": processor()} | {row.what: row.state.split(":")[0] for row in describe_machine()}
    data = {"date": date.today().isoformat(), "commit": commit.stdout.strip(), "machine": machine, "figures": figures}
    path = ROOT / "bench" / "results" / f"{name}.json"
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    return path
