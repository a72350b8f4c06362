"""JupyterLab's settings for the course, as `make lab` starts it."""

import os
from pathlib import Path

c = get_config()  # noqa: F821

c.ServerApp.root_dir = str(Path(__file__).resolve().parent)
c.LabApp.default_url = "/lab/tree/notebooks/ch00_start_here/start_here.ipynb"

# Out of sight until wanted: the answers (solutions/, and the masters in course/ that they are made from) and what only
# authors need. `LEDGER_SHOW_SOLUTIONS=1 make lab` shows everything. This hides names in the file browser and locks
# nothing: a path that is typed still opens.
learner = os.environ.get("LEDGER_SHOW_SOLUTIONS", "") in ("", "0")
if learner:
    c.ContentsManager.hide_globs = [
        *("__pycache__", "*.pyc", "*.pyo", ".DS_Store", "*~"),  # JupyterLab's own defaults
        *("solutions", "course", "src", "tests", "*.egg-info"),
    ]


# Without pop-ups: neither the question whether to fetch news nor a look for newer versions, both of which call home. A
# learner does not see nbgrader's tools for authors either.
not_wanted = ["@jupyterlab/apputils-extension:announcements"] + ["@jupyter/nbgrader"] * learner


def without_extensions(handler, page_config):
    """The settings of a page with the extensions above switched off."""
    return page_config | {"disabledExtensions": [*page_config.get("disabledExtensions", []), *not_wanted]}


c.ServerApp.tornado_settings = {"page_config_hook": without_extensions}
