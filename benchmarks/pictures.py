"""The pictures of the documentation for which committed results are enough, in one go.

    python benchmarks/pictures.py            into docs/figures
    python benchmarks/pictures.py --out DIR

Nothing is measured. The others come from run folders (`graphode reproduce figures`, `table-2`,
`table-3`) and from `benchmarks/order.py`.
"""

import argparse
from pathlib import Path

import ensemble
import growth
import hybrid
import particles
import torch
from committed import ROOT, result

from graphode.data import karate_club
from graphode.experiments import heat_figure
from graphode.experiments.particle_figures import Errors, draw_growth
from graphode.experiments.table_3 import NAMES


def particle_errors() -> Errors:
    """What results/table-3.json says of every line, metric and K."""
    metrics = {title: name for name, title in NAMES.items()}
    found: Errors = {}
    for row in result("table-3"):
        if row["metric"] in metrics:
            of_line = found.setdefault((row["model"], metrics[row["metric"]]), {})
            of_line[int(row["column"].removeprefix("K = "))] = row["mean"], row["std"]
    return found


def heat(path: Path) -> None:
    """Heat on the karate club, and what results/heat.json says of every solver."""
    found = result("heat")
    laplacian = karate_club().normalize("laplacian").to(dtype=torch.float64)
    start = torch.zeros(laplacian.num_nodes, 1, dtype=torch.float64)
    start[found["config"]["hot"]] = 1.0
    heat_figure.draw(found, laplacian, start, path)


PICTURES = {
    "ensemble-growth": ensemble.figure,
    "growth": growth.figure,
    "heat": heat,
    "hybrid-cost": lambda path: hybrid.figure(path, hybrid.committed()),
    "particles-scaling": particles.figure,
    "multi-agent-growth": lambda path: draw_growth(particle_errors(), path),
}


def main() -> None:
    """Draw them all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "figures")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        draw(out / f"{name}.png")


if __name__ == "__main__":
    main()
