"""Build the site: ``python site/build.py [--offline] [--only lite|book] [--out DIR]``.

The book stands at the root of the site and JupyterLite, the course in a browser, under ``lite/``. Online, the browser
takes Pyodide from its CDN; with ``--offline`` the site carries it and asks nothing of anyone else. What a build fetched
or made is kept in ``.cache/site`` by the content it came from.
"""

import argparse
import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pyodide
from pyodide import Files, digest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CACHE = ROOT / ".cache" / "site"
EXTENSIONS = [
    Path(sys.prefix, "share", "jupyter", "labextensions", name)
    for name in ("@jupyterlite/pyodide-kernel-extension", "@jupyter-widgets/jupyterlab-manager", "jupyterlab_pygments")
]
#: What decides, beside its sources, how a wheel comes out.
TOOLS = (Path(pyodide.__file__), HERE / "precompile.mjs", pyodide.LOCK)
#: From the worker that starts Pyodide to the root of JupyterLite: wheels are named relative to it.
WORKER = "../../../.."


def build_lite(out: Path, offline: bool) -> None:
    """JupyterLite with every lesson and untouched practice notebook, and the course's wheel, in ``out``."""
    files = Files(CACHE / "files")
    core = files.core()["pyodide-lock.json"]
    wheels = [course_wheel(files), *other_wheels(files)]
    python = offline_python(files) if offline else None
    notebooks = contents()
    made_from = [Path(__file__), version("jupyterlite-core"), *(path / "package.json" for path in EXTENSIONS)]
    made_from += [*notebooks.items(), *sorted((HERE / "lite").glob("*.json")), *wheels, python or ""]
    work = CACHE / ("lite-offline" if offline else "lite-online")
    with step("JupyterLite", work, made_from) as stale:
        if stale:
            lay_out(work, notebooks, wheels, python, core)
            jupyter_lite(work)
            mend(work / "site")
    replace(work / "site", out)


def lay_out(work: Path, notebooks: dict[str, str], wheels: list[Path], python: Path | None, core: Path) -> None:
    """Write what ``jupyter lite build`` reads into ``work``.

    Packages that are loaded by name need no installer when a kernel starts. Online, only Pyodide's own have names.
    """
    config = {path.stem: path.read_text() for path in (HERE / "lite").glob("*.json")}
    for path, text in notebooks.items():
        write(work / "content" / path, text)
    for path in wheels:
        (work / "wheels").mkdir(exist_ok=True)
        shutil.copy(path, work / "wheels")
    settings = json.loads(config["jupyter-lite"])
    kernel = settings["jupyter-config-data"]["litePluginSettings"]["@jupyterlite/pyodide-kernel-extension:kernel"]
    preload = kernel["loadPyodideOptions"]["packages"]
    if python:
        folder = shutil.copytree(python, work / "static" / "pyodide")
        preload += pyodide.index(folder, wheels, core)
    else:
        preload += [f"{WORKER}/pypi/{path.name}" for path in wheels]
    write(work / "jupyter-lite.json", json.dumps(settings, indent=2))
    write(work / "overrides.json", config["overrides"])
    builder = json.loads(config["jupyter_lite_config"])
    builder["LiteBuildConfig"] |= {"ignore_sys_prefix": True, "federated_extensions": list(map(str, EXTENSIONS))}
    write(work / "jupyter_lite_config.json", json.dumps(builder, indent=2))


def jupyter_lite(work: Path) -> None:
    """Run JupyterLite's own builder in ``work``; the site is then in ``work/site``."""
    command = [sys.executable, "-m", "jupyterlite_core", "build", "--output-dir", "site", "--lite-dir", "."]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"jupyter lite build failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    for unwanted in ("content", "wheels", "static", ".cache"):
        shutil.rmtree(work / unwanted, ignore_errors=True)


#: What is mended in JupyterLite's code: what it does as it comes, where, and what stands there instead.
MENDED = [
    (
        "a notebook is taken for one that is open by its file name alone, whatever its folder",
        re.compile(r"\{path:(\w+),name:(\w+)\}=(\w+),(\w+)=this\._sessions\.find\((\w+)=>\5\.name===\2\)"),
        r"{path:\1,name:\2}=\3,\4=this._sessions.find(\5=>\5.path===\1)",
    ),
    (
        "what opens a notebook waits until the page's layout is saved, half a second after its last change",
        re.compile(r"(\.stop\);return (\w+)\.then\(\(\)=>\{\w+\.navigate\(\w+\)\}\),\2\})await (\w+\.invoke\(\)\})"),
        r"\1\3",
    ),
    (
        "a notebook opens without a wait for the layout of the last visit, whose notebook would then come before it",
        re.compile(
            r"(\w+)\.started(\.then\(async\(\)=>\{var \w+;let \w+=\w+\.PageConfig\.getOption\(.notebookPage.\))"
        ),
        r"\1.restored\2",
    ),
]


def mend(site: Path) -> None:
    """Put what ``MENDED`` has into the code of JupyterLite; a SystemExit where this version of it has other code."""
    texts = {path: path.read_text() for path in (site / "build").rglob("*.js")}
    for what, code, better in MENDED:
        found = [path for path, text in texts.items() for _ in code.finditer(text)]
        if len(found) != 1:
            raise SystemExit(
                f"JupyterLite has not one place but {len(found)} where {what}: see MENDED in site/build.py"
            )
        texts[found[0]] = code.sub(better, texts[found[0]])
        found[0].write_text(texts[found[0]])


def contents() -> dict[str, str]:
    """The notebooks that the browser shows, by path: fresh from their masters, whatever lies in ``practice/``."""
    from ledger.build.notebook import Course, fresh

    return fresh(Course(ROOT), trees=("notebooks", "practice"))


def kernel_wheels() -> list[Path]:
    """The wheels of the Jupyter kernel that the browser needs, as its package carries them."""
    folder = EXTENSIONS[0] / "static" / "pypi"
    return [next(folder.glob(f"{name}-*.whl")) for name in ("piplite", "pyodide_kernel", "ipykernel")]


def other_wheels(files: Files) -> list[Path]:
    """The wheels beside the course's that Pyodide's own index lacks, as bytecode: the kernel's and the widgets'."""
    wheels = [path for name, path in files.wheels(compiled=False).items() if name.startswith(pyodide.APART)]
    wheels += kernel_wheels()
    work = CACHE / "others"
    early = HERE / "lite" / "early.py"
    with step("the kernel's wheels", work, [*TOOLS, early, *wheels]) as stale:
        if stale:
            for path in wheels:
                pyodide.trim(Path(shutil.copy(path, work)))
            pyodide.put_first(next(work.glob("piplite-*.whl")), "piplite/__init__.py", early.read_bytes())
            pyodide.precompile(files.folder, work)
    return sorted(work.glob("*.whl"))


def course_wheel(files: Files) -> Path:
    """The course's wheel: the library with its sources and their bytecode, the kernels, the fresh notebooks."""
    from ledger.build.browser import wheel_files

    made = wheel_files(ROOT)
    files_of = {tree: sorted((ROOT / tree).rglob("*")) for tree in ("src/ledger", "kernels")}
    source = [path for tree in files_of.values() for path in tree if path.suffix in (".py", ".wgsl", ".json")]
    source += [ROOT / name for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE")]
    work = CACHE / "course"
    with step("the course's wheel", work, [*TOOLS, *source, *made.items()]) as stale:
        if stale:
            for path, text in made.items():
                write(work / "source" / "src" / path, text)
            for path in source:
                write(work / "source" / path.relative_to(ROOT), path.read_text())
            command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
            command += ["--no-build-isolation", "--wheel-dir", work, work / "source"]
            subprocess.run(command, check=True)
            shutil.rmtree(work / "source")
            pyodide.precompile(files.folder, work, keep_source=True)
            number_build(next(work.glob("*.whl")))
    return next(work.glob("*.whl"))


def number_build(wheel: Path) -> None:
    """Give a wheel a build number from its content, so that no browser takes an older one from its cache."""
    name, number, *tags = wheel.name.split("-")
    wheel.rename(wheel.with_name("-".join([name, number, f"0{digest(wheel)[:8]}", *tags])))


def offline_python(files: Files) -> Path:
    """The folder with Pyodide, and what the offline site needs of its packages, trimmed and compiled."""
    work = CACHE / "python"
    with step("the browser's Python", work, [*TOOLS, *sorted((HERE / "lite").glob("*.py"))]) as stale:
        if stale:
            sizes = pyodide.assemble(work / "pyodide", files)
            (work / "sizes.json").write_text(json.dumps(sizes, indent=1))
    return work / "pyodide"


class step:
    """One part of a build, done again only where what it is made of has changed: ``with step(...) as stale``.

    ``made_from`` holds files, folders, texts, and pairs of texts. The folder ``work`` is emptied where it is stale.
    """

    def __init__(self, name: str, work: Path, made_from: Iterable):
        self.name, self.work = name, work
        self.key = fingerprint(made_from)

    def __enter__(self) -> bool:
        self.start = time.perf_counter()
        stamp = self.work / "made-from"
        self.stale = not stamp.is_file() or stamp.read_text() != self.key
        if self.stale:
            shutil.rmtree(self.work, ignore_errors=True)
            self.work.mkdir(parents=True)
        return self.stale

    def __exit__(self, kind, *_) -> None:
        if kind is None:
            (self.work / "made-from").write_text(self.key)
            took = f"{time.perf_counter() - self.start:.1f} s" if self.stale else "as it was"
            print(f"== {self.name}: {took}", flush=True)


def fingerprint(made_from: Iterable) -> str:
    """One digest of files and texts."""
    whole = hashlib.sha256()
    for part in made_from:
        if isinstance(part, Path) and part.is_dir():
            part = "".join(digest(path) for path in sorted(part.rglob("*")) if path.is_file())
        elif isinstance(part, Path):
            part = digest(part) if part.is_file() else ""
        whole.update(repr(part).encode())
    return whole.hexdigest()


def write(path: Path, text: str) -> None:
    """Write a text file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def replace(made: Path, out: Path) -> None:
    """Put a copy of the folder ``made`` in the place of ``out``."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(made, out)


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other build uses the cache."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "in-use").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(description="Build the book and the course in a browser.")
    parser.add_argument("--offline", action="store_true", help="carry Python along and ask nothing of anyone else")
    parser.add_argument("--only", choices=("lite", "book"), help="build one part")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder of the site (default: dist)")
    options = parser.parse_args()
    with alone():
        build(options)


def build(options: argparse.Namespace) -> None:
    """Build the parts that are asked for."""
    if options.only != "book":
        build_lite(options.out / "lite", options.offline)
    if options.only != "lite" and (HERE / "book" / "build.py").is_file():
        from book.build import build_book

        build_book(ROOT, options.out, options.offline)
    print(f"== The site is in {options.out}", flush=True)


if __name__ == "__main__":
    main()
