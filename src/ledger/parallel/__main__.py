"""``python -m ledger.parallel`` checks the layers on local processes of its own; ``torchrun --nproc-per-node 4 -m
ledger.parallel`` on those that torchrun starts."""

import argparse
import os
import sys

from ledger.parallel import distributed, launch, steps


def main() -> None:
    """Run every step and print what rank 0 found; an error of any rank ends it."""
    parser = argparse.ArgumentParser(prog="python -m ledger.parallel", description=__doc__)
    parser.add_argument("--ranks", type=int, default=4, help="processes to start, where torchrun has not (4)")
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo", help="nccl needs a GPU for each rank")
    parser.add_argument("--seconds", type=float, default=60.0, help="time until a rank that does not come is given up")
    asked = parser.parse_args()
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", asked.ranks))
    try:
        steps.check_ranks(size)
        if "RANK" in os.environ:
            with distributed.joined(asked.backend, asked.seconds) as world:
                lines = steps.check_all(world)
        else:
            lines = launch.run(steps.check_all, size, backend=asked.backend, seconds=asked.seconds)[0]
    except (ValueError, RuntimeError) as error:
        sys.exit(str(error))
    if rank == 0:
        print(f"{size} ranks on {asked.backend}", *lines, sep="\n")


if __name__ == "__main__":
    main()
