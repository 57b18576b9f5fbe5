"""The rooms of the house, and which may see which.

graphs and flows stand alone; every other room sees only rooms listed before it; data sees no
model; the library sees no experiment.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "graphode"

# `graphode` itself is the front door (`__init__.py`): it shows the library, not the experiments.
LIBRARY = ("graphs", "flows", "fields", "hybrid", "models", "ensembles", "data")
ROOMS = (*LIBRARY, "graphode", "experiments", "cli")
MODEL_ROOMS = {"fields", "hybrid", "models", "ensembles"}
VISIBLE = {room: set(ROOMS[:place]) for place, room in enumerate(ROOMS)}
VISIBLE["flows"] = set()
VISIBLE["data"] -= MODEL_ROOMS


def room_of(module: str) -> str:
    """Name the room: flows for `graphode.flows.solve`, the door for `graphode.Graph`."""
    parts = module.split(".")
    if len(parts) == 1:
        return "graphode"
    if parts[1] == "__main__":
        return "cli"
    return parts[1] if parts[1] in ROOMS else "graphode"


def dotted_name(path: Path, package: Path) -> str:
    parts = (package.name, *path.relative_to(package).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(source: str, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Line and dotted name of each import of ours, wherever in the file it stands."""
    inside = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = inside[: len(inside) - node.level + 1] if node.level else []
            base = [*start, *([node.module] if node.module else [])]
            names = [".".join([*base, alias.name]) for alias in node.names]
        else:
            continue
        yield from ((node.lineno, n) for n in names if n.split(".")[0] == PACKAGE.name)


def forbidden_imports(package: Path) -> list[str]:
    found = []
    for path in sorted(package.rglob("*.py")):
        module = dotted_name(path, package)
        here = room_of(module)
        for line, name in imported_names(path.read_text(), module, path.stem == "__init__"):
            there = room_of(name)
            if there != here and there not in VISIBLE[here]:
                found.append(f"{path.relative_to(package)}:{line} {here} imports {there}")
    return found


def test_rooms_import_downwards_only():
    assert forbidden_imports(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "line", "arrow"),
    [
        ("flows/solve.py", "from graphode.graphs import Graph", "flows imports graphs"),
        ("flows/solve.py", "import graphode.fields.convolution", "flows imports fields"),
        ("flows/solve.py", "from ..hybrid import cells", "flows imports hybrid"),
        ("flows/__init__.py", "from ..graphs import Graph", "flows imports graphs"),
        ("flows/steps/euler.py", "from ... import graphs", "flows imports graphs"),
        ("flows/solve.py", "from graphode import Graph", "flows imports graphode"),
        ("graphs/graph.py", "def f():\n    from ..flows import solve", "graphs imports flows"),
        ("fields/base.py", "from .. import models", "fields imports models"),
        ("data/traffic.py", "from ..models import GDE", "data imports models"),
        ("models/gde.py", "from graphode.experiments import loop", "models imports experiments"),
        ("__init__.py", "from .experiments import loop", "graphode imports experiments"),
        ("experiments/loop.py", "from ..cli import main", "experiments imports cli"),
    ],
)
def test_a_forbidden_import_is_caught(tmp_path, file, line, arrow):
    path = tmp_path / "graphode" / file
    path.parent.mkdir(parents=True)
    path.write_text(line)
    (found,) = forbidden_imports(tmp_path / "graphode")
    assert found.endswith(arrow)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("flows/solve.py", "from .tableaus import EULER"),
        ("flows/__init__.py", "from .solve import solve as solve"),
        ("fields/base.py", "from ..graphs import Graph\nfrom graphode.flows import solve"),
        ("data/traffic.py", "from ..graphs import Graph\nfrom ..flows import solve"),
        ("experiments/loop.py", "import graphode\nfrom graphode import models"),
        ("__init__.py", "from .models import GDE as GDE"),
        ("__main__.py", "from .cli import main"),
        ("flows/solve.py", "import torch\nfrom experiments import graphs"),
    ],
)
def test_an_allowed_import_is_not(tmp_path, file, line):
    path = tmp_path / "graphode" / file
    path.parent.mkdir(parents=True)
    path.write_text(line)
    assert forbidden_imports(tmp_path / "graphode") == []


def test_every_module_lives_in_a_room():
    names = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py")}
    known = {*LIBRARY, "experiments", "cli.py", "__init__.py", "__main__.py"}
    assert names <= known, f"Which room is this? {sorted(names - known)}"


def test_no_file_is_named_after_nothing():
    vague = {"utils", "util", "misc", "helpers", "helper", "common"}
    folders = (PACKAGE, ROOT / "tests", ROOT / "benchmarks")
    found = [path for folder in folders for path in folder.rglob("*") if path.stem in vague]
    assert found == [], "Name these after what they hold."


def test_every_module_says_what_it_is():
    folders = (PACKAGE, ROOT / "tests", ROOT / "benchmarks")
    silent = [
        str(path.relative_to(ROOT))
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == [], "These modules have no docstring."
