"""Evaluations of dopri5 whose masks are redrawn at each of them: ours beside torchdiffeq's.

    graphode run node-classification --preset authors --model gcde_dpr5 --members 20
    python benchmarks/redrawn_masks.py --folder runs/… --out results/redrawn-masks.json

Reads the checkpoint of a run of the authors' preset, whether it is finished or not. For the weights
of each member, and for weights at the start of training, one training solve is counted: by
torchdiffeq, at the authors' tolerances, and by ours, with torchdiffeq's control of steps and with
our own. What a training solve took along the run is in the folder's metrics and is copied, every
twentieth epoch.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torchdiffeq
from measure import machine
from torch import Tensor, nn

import graphode as gd
from graphode.data import load_node_data
from graphode.ensembles import Ensemble
from graphode.experiments.node_classification import NodeClassification
from graphode.experiments.node_models import CONTROLS, builder
from graphode.experiments.run_folder import RunFolder, read_json, read_metrics

EVERY = 20  # epochs
TOLERANCES = {"rtol": 1e-3, "atol": 1e-4}  # the authors'
SAME_TEST = {name: 1.5 * value for name, value in TOLERANCES.items()}  # see the preset


def counts(model: nn.Module, x: Any, graph: gd.Graph, seed: int) -> dict[str, int]:
    """Evaluations of a training solve by each solver, its masks never the same."""
    field = model.train().get_submodule("flow.field")
    with torch.no_grad(), gd.stochastic(seed, 0):
        h = model.get_submodule("encoder")(x, graph)

    def counted(solve: Callable[[Callable[..., Tensor]], object]) -> int:
        count = 0

        def f(t: Tensor, y: Tensor) -> Tensor:
            nonlocal count
            count += 1
            with gd.stochastic(seed, count):
                return field(t, y, graph)

        with torch.no_grad():
            solve(f)
        return count

    span = torch.tensor([0.0, 1.0])
    found = {
        "torchdiffeq": counted(
            lambda f: torchdiffeq.odeint(f, h, span, method="dopri5", **TOLERANCES)
        )
    }
    for name, control in CONTROLS.items():
        options: Any = {"solver": "dopri5", **SAME_TEST, "control": control}
        key = "graphode" if name == "ours" else f"graphode, {name}'s control"
        found[key] = counted(lambda f, o=options: gd.solve(f, h, span, **o))
    return found


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    settings = read_json(args.folder / "config.json")
    config = NodeClassification.of(settings["model"], settings["dataset"], "authors")
    checkpoint = RunFolder(args.folder, config).checkpoint()
    assert checkpoint is not None, f"{args.folder} has no checkpoint."
    data = load_node_data(config.dataset, args.data_root)
    graph = data.graph.normalize("sym").to(dtype=torch.float32)
    x = gd.SparseFeatures(data.features)
    build = builder(config, data.num_features, data.num_classes)

    rows = []
    for member in range(args.members):
        ensemble = Ensemble(build, [member])
        torch.manual_seed(member)
        model = build(member)
        row: dict[str, Any] = {"seed": member, "at the start": counts(model, x, graph, member)}
        with torch.no_grad():
            own = [name for name, _ in model.named_parameters()]
            names = [name for name, _ in ensemble.named_parameters()]
            for short, long in zip(own, names, strict=True):
                trained = checkpoint.tensors[f"parameters.{long}"][member]
                model.get_parameter(short).copy_(trained)
        row["trained"] = counts(model, x, graph, member)
        rows.append(row)
        print(row, flush=True)

    along = [row for row in read_metrics(args.folder) if row["epoch"] % EVERY == EVERY - 1]
    result = {
        "benchmark": "redrawn_masks",
        "machine": machine("cpu"),
        "run": {"members": along[-1]["members"], "epochs": along[-1]["epoch"] + 1},
        "trained_epochs": checkpoint.facts["epoch"],
        "solves": rows,
        "along_training": [
            {"epoch": row["epoch"] + 1}
            | {name: row[name] for name in ("evaluations", "test_accuracy", "test_accuracy_std")}
            for row in along
        ],
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
