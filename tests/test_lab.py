"""JupyterLab in a real browser, as ``make lab`` opens it: a learner answers, checks, and plays with a lesson."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from urllib.parse import urlsplit

import chromium
import pytest
from playwright.sync_api import expect, sync_playwright

from ledger.chapters import LESSONS

pytestmark = pytest.mark.browser
ANSWER = "def absorb_query(q_nope, w_k):\n    return q_nope @ w_k.T"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]


@pytest.fixture(scope="module")
def course(root, tmp_path_factory):
    """A copy of the course's notebooks with untouched practice and JupyterLab's settings."""
    from ledger.build import fresh_practice

    copy = tmp_path_factory.mktemp("course")
    for name in ("notebooks", "solutions"):
        shutil.copytree(root / name, copy / name)
    for name in ("jupyter_lab_config.py", "judge.py"):
        shutil.copy(root / name, copy)
    for name, notebook in fresh_practice(root).items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(json.dumps(notebook, indent=1) + "\n")
    return copy


@pytest.fixture(scope="module")
def lab(course, tmp_path_factory):
    """The address of a JupyterLab server on ``course``; it ends with the tests."""
    state = tmp_path_factory.mktemp("jupyter")
    environment = {**os.environ, "JUPYTER_RUNTIME_DIR": str(state), "JUPYTERLAB_WORKSPACES_DIR": str(state / "w")}
    environment |= {"JUPYTERLAB_SETTINGS_DIR": str(state / "s"), "IPYTHONDIR": str(state / "i")}
    command = [sys.executable, "-m", "jupyter", "lab", "--config=jupyter_lab_config.py", "--no-browser", "--allow-root"]
    command += ["--ServerApp.token=t", "--ServerApp.port=0"]
    log = state / "log"
    with log.open("w") as out, subprocess.Popen(command, cwd=course, env=environment, stdout=out, stderr=out) as server:
        try:
            yield address(state, log, server)
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(20)
            server.kill()


def address(state, log, server):
    """Wait until the server says where it listens and answers there."""
    end = time.monotonic() + 60
    while time.monotonic() < end and server.poll() is None:
        for entry in state.glob("jpserver-*.json"):
            with suppress(OSError, ValueError, KeyError):
                url = json.loads(entry.read_text())["url"]
                urllib.request.urlopen(f"{url}api?token=t", timeout=5).close()
                return url
        time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


@pytest.fixture(scope="module")
def browser():
    path = chromium.find()
    assert path, f"no browser was found: {chromium.HELP}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    """A page of its own that notes every request which leaves this machine."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(180_000)
    page.abroad = []
    page.on("request", lambda request: None if is_local(request.url) else page.abroad.append(request.url))
    yield page
    page.close()


def is_local(url):
    """Whether a request stays on this machine."""
    parts = urlsplit(url)
    return parts.scheme not in ("http", "https", "ws", "wss") or parts.hostname in ("localhost", "127.0.0.1")


def open_notebook(page, lab, path):
    """Open a notebook alone in the window and wait for its kernel."""
    page.goto(f"{lab}lab/tree/{path}?token=t&reset")
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")


#: Shows the next part of the notebook; after the last one, the first again.
SCROLL_ON = """() => {
    const [panel] = document.querySelectorAll('.jp-NotebookPanel:not(.lm-mod-hidden) .jp-WindowedPanel-outer');
    const end = panel.scrollHeight - panel.clientHeight;
    panel.scrollTop = panel.scrollTop > end - 10 ? 0 : panel.scrollTop + panel.clientHeight / 2;
}"""


def scroll_to(page, found):
    """Scroll on until something is there: JupyterLab draws the cells alone that are in view, or nearly."""
    end = time.monotonic() + 300
    while not found.count() and time.monotonic() < end:
        page.evaluate(SCROLL_ON)
        page.wait_for_timeout(300)
    assert found.count(), page.locator(".jp-Notebook").first.inner_text()[-3000:]
    found.first.scroll_into_view_if_needed()


def run_all(page):
    """Ask for every cell to be run."""
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator(".lm-Menu-item:visible", has_text="Run All Cells").first.click()


def test_make_lab_opens_the_start_and_hides_the_answers(page, lab):
    page.goto(f"{lab}?token=t&reset")
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    expect(page.locator(".lm-TabBar-tab.jp-mod-current .lm-TabBar-tabLabel").first).to_contain_text("start_here")
    listing = json.loads(page.evaluate("async () => await (await fetch('/api/contents?token=t')).text()"))
    names = {entry["name"] for entry in listing["content"]}
    assert {"notebooks", "practice"} <= names
    assert "solutions" not in names
    assert page.abroad == []


def test_a_learner_answers_and_sees_the_verdict(page, lab, course):
    open_notebook(page, lab, "practice/ch01_keys/keys.ipynb")
    stub = page.locator(".jp-CodeCell", has_text="NotImplementedError").filter(has_text="absorb_query: write").first
    stub.scroll_into_view_if_needed()
    stub.locator(".cm-content").click()
    expect(page.locator(".jp-CodeCell .cm-editor.cm-focused")).to_have_count(1)
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(ANSWER)
    expect(page.locator(".jp-CodeCell .cm-content", has_text="q_nope @ w_k.T")).to_have_count(1)
    run_all(page)
    passed = page.locator(".jp-OutputArea-output", has_text="✓ absorb_query: 9 of 9 cases")
    scroll_to(page, passed)
    scroll_to(page, page.locator(".jp-OutputArea-output", has_text="scores_absorbed: not written yet"))
    page.keyboard.press("Control+S")
    path = course / "practice" / "ch01_keys" / "keys.ipynb"
    end = time.monotonic() + 20
    while "q_nope @ w_k.T" not in path.read_text() and time.monotonic() < end:
        time.sleep(0.1)
    command = [sys.executable, "judge.py", "absorb_query", "--json", "-"]
    done = subprocess.run(command, cwd=course, capture_output=True, text=True)
    assert json.loads(done.stdout)["exercises"][0]["verdict"] == "passed"


@pytest.mark.parametrize("name", [LESSONS[0], LESSONS[-1]])
def test_a_lesson_runs_and_its_widget_redraws(page, lab, shots, name):
    """The first lesson and the last: the others' explorers move in JupyterLite, where tests/site opens every lesson."""
    open_notebook(page, lab, f"notebooks/{name}.ipynb")
    run_all(page)
    widget = page.locator(".jupyter-widgets.widget-container, .jupyter-widgets.widget-vbox").first
    scroll_to(page, widget)
    picture = widget.locator("img").first
    before = picture.get_attribute("src")
    slider = widget.locator(".noUi-handle").first
    slider.focus()
    last = slider.get_attribute("aria-valuenow") == slider.get_attribute("aria-valuemax")
    page.keyboard.press("ArrowLeft" if last else "ArrowRight")
    expect(picture).not_to_have_attribute("src", before, timeout=120_000)
    page.screenshot(path=shots / f"lab-{name.replace('/', '-')}.png")


def test_a_lessons_link_leads_to_the_exercise(page, lab):
    open_notebook(page, lab, "notebooks/ch01_keys/keys.ipynb")
    link = page.locator(".jp-RenderedMarkdown a", has_text="scores_absorbed").last
    link.scroll_into_view_if_needed()
    link.click()
    answer = page.locator(".jp-CodeCell:visible", has_text="scores_absorbed: write your answer here")
    expect(answer).to_be_in_viewport(timeout=120_000)
