"""What the built site refers to is there: links between notebooks, and what the online site loads."""

import hashlib
import json
import re
import subprocess
import sys
import tomllib

import pytest

pytestmark = pytest.mark.browser
KERNEL = "@jupyterlite/pyodide-kernel-extension"
LINK = re.compile(r'\]\(([^)\s]+)\)|href="([^"]+)"')


def links(notebook):
    """The links in a notebook's text that do not lead out of the site; what stands in code is none."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text = re.sub(r"`[^`]*`", "", "".join(cell["source"]))
            yield from (link for pair in LINK.findall(text) for link in pair if link and not link.startswith("http"))


def test_every_link_between_the_browsers_notebooks_leads_to_a_notebook_and_a_cell(site):
    served = site / "lite" / "files"
    notebooks = {path: json.loads(path.read_text()) for path in served.rglob("*.ipynb")}
    ids = {path: {cell["id"] for cell in notebook["cells"]} for path, notebook in notebooks.items()}
    found = [(path, *link.partition("#")) for path, notebook in notebooks.items() for link in links(notebook)]
    assert len(found) > 100
    faults = []
    for path, file, _, place in found:
        target = (path.parent / file).resolve() if file else path
        if target not in ids or (place and place.removeprefix("cell-id=") not in ids[target]):
            faults.append(f"{path.relative_to(served)}: {file}#{place}")
    assert not faults


@pytest.fixture(scope="module")
def online(root, site, tmp_path_factory):
    """JupyterLite as ``make site`` builds it; what it shares with the offline site is in the cache."""
    out = tmp_path_factory.mktemp("online")
    subprocess.run([sys.executable, root / "site" / "build.py", "--only", "lite", "--out", out], check=True)
    return out / "lite"


def test_what_the_online_site_loads_is_its_own_or_from_the_pinned_cdn(root, online):
    settings = json.loads((online / "jupyter-lite.json").read_text())["jupyter-config-data"]["litePluginSettings"]
    kernel = settings[f"{KERNEL}:kernel"]
    (worker,) = online.glob(f"extensions/{KERNEL}/static/comlink.worker.*.js")
    packages = kernel["loadPyodideOptions"]["packages"]
    known = json.loads((root / ".cache" / "site" / "files" / "pyodide-lock.json").read_text())["packages"]
    own = [(worker.parent / path).resolve() for path in packages if path not in known]
    assert {path.parent for path in own} == {online / "pypi"}
    assert [path.name for path in own if not path.is_file()] == []
    assert {"attention_ledger", "ipywidgets", "pyodide_kernel"} <= {path.name.split("-")[0] for path in own}

    for url in kernel["pipliteUrls"]:
        index, sha256 = online / url.split("?")[0], url.split("sha256=")[1]
        assert hashlib.sha256(index.read_bytes()).hexdigest() == sha256
        for project in json.loads(index.read_text()).values():
            for wheel in (file for files in project["releases"].values() for file in files):
                path = index.parent / wheel["url"].split("?")[0]
                assert hashlib.sha256(path.read_bytes()).hexdigest() == wheel["digests"]["sha256"]

    version = tomllib.loads((root / "site" / "wasm.lock").read_text())["npm"]["package"].removeprefix("pyodide@")
    texts = [path.read_text() for kind in ("*.js", "*.json", "*.html") for path in online.rglob(kind)]
    abroad = {url for text in texts for url in re.findall(r"https://cdn\.[^\s\"'`]+", text)}
    assert abroad == {f"https://cdn.jsdelivr.net/pyodide/v{version}/full/pyodide.mjs"}


def test_a_jupyterlite_with_other_code_is_not_mended(root, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(root / "site")
    import build

    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "core.js").write_text("let later = 1;")
    with pytest.raises(SystemExit, match="not one place but 0 where a notebook is taken for one that is open"):
        build.mend(tmp_path)


@pytest.mark.parametrize(("offline", "flag"), [("", False), ("0", False), ("no", False), ("1", True)])
def test_make_site_takes_no_for_no(root, offline, flag):
    command = ["make", "--dry-run", "--always-make", "site", f"OFFLINE={offline}"]
    said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    (line,) = (line for line in said.splitlines() if "site/build.py" in line)
    assert ("--offline" in line) is flag
