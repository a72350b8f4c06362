// Compile the Python files of wheels and zip files to bytecode, with the Python that will run them: Pyodide, here in Node.
// usage: node precompile.mjs PYODIDE FOLDER [keep]
//   PYODIDE  folder with pyodide.mjs
//   FOLDER   its *.whl and *.zip are rewritten in place
//   keep     leave each source beside its bytecode, for tracebacks and help() to show
import { pathToFileURL } from "node:url";
import { join, resolve } from "node:path";

const [pyodide, folder, mode] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(join(resolve(pyodide), "pyodide.mjs")).href);
const python = await loadPyodide({ stdout: console.log });
python.mountNodeFS("/folder", resolve(folder));
python.globals.set("keep", mode === "keep");
python.runPython(`
import os
import sys
import zipfile
from importlib._bootstrap_external import _code_to_hash_pyc
from importlib.util import source_hash
from pathlib import Path

TAG = sys.implementation.cache_tag
SITE = f"/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/"

def bytecode(source, name):
    """The .pyc of a source, trusted without a look at the source; None for a file of another Python's syntax."""
    try:
        code = compile(source, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    return bytes(_code_to_hash_pyc(code, source_hash(source), checked=False))

def members(archive, prefix):
    """Name and content of each file that the new archive holds."""
    for entry in archive.infolist():
        if entry.is_dir():
            continue
        name, data = entry.filename, archive.read(entry)
        compiled = bytecode(data, prefix + name) if name.endswith(".py") else None
        if compiled is None or keep:
            yield name, data
        if compiled is not None:
            folder, file = os.path.split(name)
            yield (os.path.join(folder, "__pycache__", f"{file[:-3]}.{TAG}.pyc") if keep else name + "c"), compiled

def rewrite(path):
    """Replace the archive at path by one with bytecode, without the times of the day."""
    prefix = SITE if path.suffix == ".whl" else f"/lib/{path.name}/"
    part = path.with_suffix(".part")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        for name, data in members(old, prefix):
            new.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED, 9)
    os.replace(part, path)

for path in sorted(Path("/folder").iterdir()):
    if path.suffix in (".whl", ".zip"):
        rewrite(path)
`);
