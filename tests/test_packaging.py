"""Version and dependencies are told the same way wherever they are told."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import graphode

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pinned_versions() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def test_version_is_the_same_everywhere():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited
    assert cited[1] == PROJECT["version"]
    assert graphode.__version__ == PROJECT["version"]
    assert importlib.metadata.version("graphode") == PROJECT["version"]


def test_changelog_knows_this_version():
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {PROJECT["version"], "Unreleased"} & set(headings)


def test_torch_is_pinned_within_its_bounds():
    (torch,) = (r for r in map(Requirement, PROJECT["dependencies"]) if r.name == "torch")
    assert torch.specifier.contains(Version(pinned_versions()["torch"]))


@pytest.mark.parametrize("extra", [None, *PROJECT["optional-dependencies"]])
def test_every_dependency_has_a_tested_version(extra):
    listed = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    names = {canonicalize_name(Requirement(line).name) for line in listed} - {"graphode"}
    assert names <= pinned_versions().keys()


def test_type_information_is_shipped():
    assert (Path(graphode.__file__).parent / "py.typed").exists()


def test_importing_the_library_does_not_wait_for_scipy():
    look = "import sys, graphode; print('scipy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "False"
