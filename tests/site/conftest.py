"""The offline site, built once and served under a sub-path on loopback, and a Chromium that can go nowhere else."""

import subprocess
import sys
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

import chromium
import pytest
from filelock import FileLock
from playwright.sync_api import sync_playwright

FLAGS = [
    *("--no-sandbox", "--no-first-run", "--disable-quic", "--disable-sync", "--disable-component-update"),
    *("--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"),
]


@pytest.fixture(scope="session")
def site(root, tmp_path_factory, worker_id):
    """The folder of the site that ``make site OFFLINE=1`` builds, book and JupyterLite; what is cached is reused.

    Processes that share the tests share the one site.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "site"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            command = [sys.executable, root / "site" / "build.py", "--offline", "--out", folder]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def address(root, site):
    """Where the site is served, under a sub-path as on a pages host; it ends with a slash."""
    sys.path.insert(0, str(root / "site"))
    from serve import server

    with server(site, under="/a-course/") as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}/a-course/"
        serving.shutdown()


@pytest.fixture(scope="module")
def browser(request):
    """Chromium; no name but 127.0.0.1 resolves in it. A module may ask for ``MORE_FLAGS``."""
    flags = [*FLAGS, *getattr(request.module, "MORE_FLAGS", ())]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=flags)
        yield browser
        browser.close()


@contextmanager
def fresh_context(browser, **options):
    """A new profile of the browser; a request to anywhere but 127.0.0.1 is an AssertionError at its end."""
    with browser.new_context(**{"viewport": {"width": 1280, "height": 1000}, **options}) as context:
        abroad = []
        context.on("request", lambda request: None if at_home(request.url) else abroad.append(request.url))
        yield context
    assert not abroad, f"requests left the site: {abroad}"


def at_home(address):
    """Whether a request stays on this computer."""
    parts = urlsplit(address)
    return parts.scheme in ("data", "blob") or parts.hostname == "127.0.0.1"


@pytest.fixture(scope="module")
def context(browser):
    """One profile for a module's tests."""
    with fresh_context(browser) as context:
        yield context
