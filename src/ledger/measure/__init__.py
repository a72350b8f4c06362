"""What this machine does: durations of real calls, its own ceilings as denominators, and what it can run.

Nothing here needs more than NumPy; torch is looked for only when a function that can use it is called.
"""

from ledger.measure.machine import Row, describe_machine, fast_half, processor
from ledger.measure.rates import Ceilings, ceilings
from ledger.measure.timing import Timing, time_call, time_pairs

__all__ = [
    "Ceilings",
    "Row",
    "Timing",
    "ceilings",
    "describe_machine",
    "fast_half",
    "processor",
    "time_call",
    "time_pairs",
]
