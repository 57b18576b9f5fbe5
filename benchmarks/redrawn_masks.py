"""Evaluations of dopri5 whose masks are redrawn at each of them: ours beside torchdiffeq's.

    graphode run node-classification --preset authors --model gcde_dpr5 --members 20 --control ours
    python benchmarks/redrawn_masks.py --folder runs/… --out results/redrawn-masks.json
    python benchmarks/redrawn_masks.py --ended runs/… runs/… --out results/redrawn-ended.json

Reads the checkpoint of a run of the authors' preset, whether it has ended or not, and leaves the
folder as it is. For the weights of each member, and for weights at the start of training, one
training solve is counted: by torchdiffeq, at the authors' tolerances, and by ours, with
torchdiffeq's control of steps and with our own. What training solves took along the run, and what
was reached, is in the folder's metrics and is copied, every twentieth epoch; that of a run with
fixed masks too, if it is named. With `--ended` nothing is solved: what the members of runs that
have ended were selected at is copied.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torchdiffeq
from measure import machine
from safetensors.torch import load_file
from torch import Tensor, nn

import graphode as gd
from graphode.data import load_node_data
from graphode.ensembles import Ensemble
from graphode.experiments.node_classification import NodeClassification
from graphode.experiments.node_models import CONTROLS, builder
from graphode.experiments.run_folder import CHECKPOINT, CONFIG, RESULT, read_json, read_metrics

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


def along(folder: Path) -> list[dict[str, float]]:
    """Evaluations along a run, and accuracies where it was evaluated."""
    names = ("epoch", "members", "evaluations", "test_accuracy", "test_accuracy_std")
    rows = [row for row in read_metrics(folder) if row["epoch"] % EVERY == EVERY - 1]
    return [{name: row[name] for name in names if name in row} for row in rows]


def selections(folders: list[Path]) -> dict[str, Any]:
    """Which epoch of each member counts, what it reached there, and the runs' courses."""
    members: list[dict[str, float]] = []
    for folder in folders:
        selected = read_json(folder / RESULT)["selected"]
        names = ("seed", "epoch", "validation_loss", "test_accuracy")
        rows = zip(*(selected[name] for name in names), strict=True)
        members += [dict(zip(names, row, strict=True)) for row in rows]
    accuracy = torch.tensor([row["test_accuracy"] for row in members])
    spread = {"mean": accuracy.mean().item(), "std": accuracy.std(correction=0).item()}
    courses = {str(folder.name): along(folder) for folder in folders}
    return {"members": members, "test_accuracy": spread, "redrawn": courses}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--folder", type=Path)
    which.add_argument("--ended", type=Path, nargs="+", help="folders of runs that have ended")
    parser.add_argument("--fixed", type=Path, help="folder of the same run with fixed masks")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.ended:
        written({"machine": machine(args.device), **selections(args.ended)}, args.out)
        return
    if not (args.folder / CHECKPOINT).exists():
        parser.error(f"{args.folder} has no checkpoint yet. Name the folder of a run that has one.")
    config = NodeClassification(**read_json(args.folder / CONFIG))
    weights = load_file(args.folder / CHECKPOINT)
    data = load_node_data(config.dataset, args.data_root)
    graph = data.graph.normalize("sym").to(args.device, torch.float32)
    x = gd.SparseFeatures(data.features).to(args.device)
    build = builder(config, data.num_features, data.num_classes)
    names = [name for name, _ in Ensemble(build, [0]).named_parameters()]

    rows = []
    for member in range(args.members):
        torch.manual_seed(member)
        model = build(member).to(args.device)
        row: dict[str, Any] = {"seed": member, "at the start": counts(model, x, graph, member)}
        with torch.no_grad():
            for parameter, name in zip(model.parameters(), names, strict=True):
                parameter.copy_(weights[f"parameters.{name}"][member])
        row["trained"] = counts(model, x, graph, member)
        rows.append(row)
        print(row, flush=True)

    redrawn = along(args.folder)
    result = {
        "machine": machine(args.device),
        # The checkpoint of a run that has ended holds weights alone.
        "trained_epochs": int(weights.get("epoch", config.epochs)),
        "solves": rows,
        "redrawn": redrawn,
        "fixed": along(args.fixed)[: len(redrawn)] if args.fixed else [],
    }
    written(result, args.out)


def written(found: dict[str, Any], out: Path | None) -> None:
    """To a file, if one is named, and to the terminal."""
    result = {"benchmark": "redrawn_masks", **found}
    if out:
        out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
