"""The places that name versions agree: pyproject.toml asks, two lock files pin, environment.yml repeats the first."""

import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def asked(project):
    """Every direct requirement of the course by name; what the site is built with is apart."""
    extras = [extra for name, extra in project["optional-dependencies"].items() if name != "site"]
    return {r.name: r for r in map(Requirement, [*project["dependencies"], *(line for e in extras for line in e)])}


@pytest.fixture(scope="module")
def locked(root):
    return versions(root / "requirements.lock")


@pytest.fixture(scope="module")
def locked_for_the_site(root):
    return versions(root / "requirements-site.lock")


def versions(lock):
    """The locked versions by name that Python 3.11 on Linux takes; each is followed by its hashes."""
    text = lock.read_text()
    entries = re.findall(r"^([^\s#-][^\\\n]*?) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.MULTILINE)
    assert len(entries) == len(re.findall(r"^\S.*==", text, re.MULTILINE)) > 50
    here = {"python_version": "3.11", "python_full_version": "3.11.9", "sys_platform": "linux"}
    found = [Requirement(entry) for entry, _ in entries]
    return {r.name: str(r.specifier).removeprefix("==") for r in found if not r.marker or r.marker.evaluate(here)}


@pytest.fixture(scope="module")
def conda(root):
    """The requirements of environment.yml's pip section by name."""
    parts = yaml.safe_load((root / "environment.yml").read_text())["dependencies"]
    lines = next(part["pip"] for part in parts if isinstance(part, dict))
    assert "--editable ." in lines
    return {r.name: r for r in (Requirement(line) for line in lines if not line.startswith("-"))}


def test_the_lock_satisfies_every_direct_requirement(asked, locked):
    for name in asked.keys() - {"torch", "triton"}:
        assert locked[name] in asked[name].specifier, name


def test_the_sites_lock_satisfies_its_requirements_and_adds_to_the_first(project, locked, locked_for_the_site):
    for requirement in map(Requirement, project["optional-dependencies"]["site"]):
        assert locked_for_the_site[requirement.name] in requirement.specifier, requirement
    both = locked.keys() & locked_for_the_site.keys()
    assert "numpy" in both
    assert {name: locked_for_the_site[name] for name in both} == {name: locked[name] for name in both}


def test_torch_and_triton_stand_outside_the_lock_at_one_version(asked, locked):
    assert str(asked["torch"].specifier) == "==2.13.0"
    assert str(asked["triton"].specifier) == "==3.7.1"
    assert not [name for name in locked if name.startswith(("torch", "triton", "nvidia", "cuda"))]


def test_conda_gets_the_same_versions(asked, locked, conda):
    assert conda.keys() == asked.keys()
    for name, requirement in conda.items():
        if name in ("torch", "triton"):
            assert requirement == asked[name]
        else:
            assert str(requirement.specifier) == f"=={locked[name]}", name


def test_the_installed_versions_are_the_locked_ones(locked):
    from importlib.metadata import version

    wrong = {
        name: version(name)
        for name in ("numpy", "matplotlib", "nbgrader", "jupyterlab")
        if version(name) != locked[name]
    }
    assert not wrong


def test_make_keeps_the_same_packages_out_of_the_lock(root):
    makefile = (root / "Makefile").read_text()
    left_out = re.search(r"BY_MACHINE := ((?:.*\\\n)*.*)\n", makefile)[1].replace("\\\n", " ").split()
    assert {"torch", "triton"} <= set(left_out)
    assert all(name.startswith(("torch", "triton", "nvidia", "cuda")) for name in left_out)
