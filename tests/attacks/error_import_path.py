# Puts the folder of the course back where imports look.
import importlib
import sys

import ledger


def project(x, w):
    sys.path.insert(0, "@COURSE@/..")
    ledger.__path__ = ["@COURSE@"]
    importlib.invalidate_caches()
    for name in [name for name in sys.modules if name.startswith("ledger")]:
        del sys.modules[name]
    return importlib.import_module("ledger.exercises")
