"""Where the packages are: below src/, and the kernels, which stand apart for readers, in kernels/.

A wheel takes them as ``ledger.kernels``. An editable install maps src/ alone: then src/ is one folder on ``sys.path``,
which the judge can take away from an answer, and ``ledger`` itself looks for its kernels beside it.
"""

import sys

from setuptools import find_packages, setup

packages, package_dir = find_packages("src"), {"": "src"}
if "editable_wheel" not in sys.argv:
    packages += [f"ledger.{name}" for name in find_packages(".", include=["kernels", "kernels.*"])]
    package_dir["ledger.kernels"] = "kernels"
setup(packages=packages, package_dir=package_dir)
