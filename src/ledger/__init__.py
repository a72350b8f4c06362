"""Attention Ledger: what latent, multi-token and sparse attention cost at inference time.

Importing this package needs NumPy alone. A notebook uses three names of it:

* ``check(id, answer)`` grades an answer in the running kernel,
* ``case(id, name, seed)`` gives the inputs of one case to look at,
* ``hint(id)`` shows the next hint.

In a notebook the import also makes ``%judge``, which shows how far you are. In a browser it gives ``update``,
``download_answers``, ``load_answers`` and ``allow`` besides: see ``ledger.browser``.
"""

import os
import sys
from importlib import import_module
from importlib.util import spec_from_file_location

__version__ = "0.1.0"
__all__ = ["__version__", "case", "check", "hint"]


def __getattr__(name: str):
    """Load the notebook helpers on first use, so that the jail can import ``ledger`` without any oracle."""
    if name in ("case", "check", "hint"):
        return getattr(import_module("ledger.judge.notebook"), name)
    if name in ("allow", "download_answers", "load_answers", "update"):
        return getattr(import_module("ledger.browser"), name)
    raise AttributeError(f"module 'ledger' has no attribute {name!r}")


class _KernelsBesideSource:
    """Finds a checkout's ``ledger.kernels``, which stands beside src/; a wheel holds it as a package like any other."""

    @staticmethod
    def find_spec(name: str, path=None, target=None):
        if name == "ledger.kernels":
            for folder in path or ():
                beside = os.path.join(folder, "..", "..", "kernels", "__init__.py")
                if os.path.isfile(beside):
                    return spec_from_file_location(name, os.path.abspath(beside))
        return None


sys.meta_path.append(_KernelsBesideSource)

if "IPython" in sys.modules:
    import_module("ledger.browser").install()
