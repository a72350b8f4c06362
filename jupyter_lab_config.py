"""JupyterLab's settings for the course, as `make lab` starts it."""

import os
from pathlib import Path

c = get_config()  # noqa: F821

c.ServerApp.root_dir = str(Path(__file__).resolve().parent)
c.LabApp.default_url = "/lab/tree/notebooks/ch00_start_here/start_here.ipynb"

# Out of sight until wanted: the answers (solutions/, and the masters in course/ that they are made from) and what only
# authors need. `LEDGER_SHOW_SOLUTIONS=1 make lab` shows everything. This hides names in the file browser and locks
# nothing: a path that is typed still opens.
if os.environ.get("LEDGER_SHOW_SOLUTIONS", "") in ("", "0"):
    c.ContentsManager.hide_globs = [
        *("__pycache__", "*.pyc", "*.pyo", ".DS_Store", "*~"),  # JupyterLab's own defaults
        *("solutions", "course", "src", "tests", "*.egg-info"),
    ]


def without_announcements(handler, page_config):
    """No pop-ups: neither the question whether to fetch news nor a look for newer versions; both call home."""
    disabled = page_config.get("disabledExtensions", [])
    return page_config | {"disabledExtensions": [*disabled, "@jupyterlab/apputils-extension:announcements"]}


c.ServerApp.tornado_settings = {"page_config_hook": without_announcements}
