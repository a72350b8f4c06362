"""Find a Chromium for the browser's tests, or install one: ``python tests/chromium.py``.

It looks at ``$CHROMIUM``, then for an installed Chromium or Chrome, then for Playwright's own. Where there is none it
lets Playwright fetch its own, and on Debian or Ubuntu, as root, falls back to the system's package.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HELP = "install Chromium or Chrome, or name one: CHROMIUM=/path/to/chromium make test"


def find() -> str | None:
    """The path of a browser to drive, or None."""
    named = os.environ.get("CHROMIUM")
    if named:
        found = shutil.which(named)
        if not found:
            sys.exit(f"CHROMIUM={named} is no program that runs: {HELP}")
        return found
    installed = next(filter(None, map(shutil.which, NAMES)), None)
    if installed:
        return installed
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).is_file() else None


def install() -> str | None:
    """Install a browser and return its path, or None where no way worked."""
    commands = [[sys.executable, "-m", "playwright", "install", "chromium"]]
    if shutil.which("apt-get") and os.geteuid() == 0:
        commands += [["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "chromium"]]
    for command in commands:
        print("==", " ".join(command), flush=True)
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if find():
            break
    return find()


if __name__ == "__main__":
    path = find() or install()
    if not path:
        sys.exit(f"No browser was found for the browser's tests: {HELP}")
    print(f"== Browser: {path}")
