"""When members of preset `tuned` should stop, by halves of the validation nodes.

    python benchmarks/early_stopping.py --dataset citeseer --out results/early-stopping.json

Accuracy at the epoch of lowest validation loss flatters long training on the very nodes that chose
the epoch. So the validation nodes are halved, at random and several times: one half chooses the
epoch, under each patience, and the other half measures, both ways. Members train once, to the last
epoch; where a patience would have stopped them follows from their losses. Test labels are wiped,
and the members' seeds are those of the search.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from measure import machine
from search_table_1 import FIRST_SEED, ValidationObjective
from torch import Tensor

from graphode.data import load_node_data
from graphode.ensembles import Ensemble
from graphode.experiments.node_classification import NodeClassification
from graphode.experiments.node_models import builder
from graphode.experiments.trainer import Trainer, Training

SPLITS = 5
PATIENCES = (50, 100, 200, 400, None)


def halves_of(nodes: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Pairs of halves: who chooses, who measures."""
    pairs = []
    for seed in range(SPLITS):
        order = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed))
        first, second = nodes[order].tensor_split(2)
        pairs += [(first, second), (second, first)]
    return pairs


def chosen_epoch(losses: list[float], patience: int | None) -> int:
    """The epoch of lowest loss before the patience is over."""
    best, lowest = 0, float("inf")
    for epoch, loss in enumerate(losses):
        if loss < lowest:
            best, lowest = epoch, loss
        if patience is not None and epoch - best >= patience:
            break
    return best


def accuracies(member: dict[str, Any], patience: int | None) -> list[float]:
    """Of one member for every pair of halves, where the other half has chosen."""
    pairs = zip(member["losses"], member["accuracies"], strict=True)
    return [accuracy[chosen_epoch(loss, patience)] for loss, accuracy in pairs]


def trained(
    config: NodeClassification, data: Any, seed: int, device: torch.device
) -> dict[str, Any]:
    """One member's losses of who chooses and accuracies of who measures, `[pairs][epochs]`."""
    objective = ValidationObjective.of(data, device)
    build = builder(config, data.num_features, data.num_classes)
    ensemble = Ensemble(build, [seed]).to(device)
    training = Training(epochs=config.epochs, lr=config.lr, weight_decay=config.decays)
    trainer = Trainer(ensemble, objective, training)
    pairs = halves_of(objective.val)
    losses: list[list[float]] = [[] for _ in pairs]
    measured: list[list[float]] = [[] for _ in pairs]
    for _ in range(config.epochs):
        ensemble.train()
        trainer.learn()
        ensemble.eval()
        with torch.no_grad():
            logits = ensemble(objective.x, objective.graph)
            for place, (first, second) in enumerate(pairs):
                losses[place].append(objective._cross_entropy(logits, first).item())
                measured[place].append(objective._accuracy(logits, second).item())
    return {"losses": losses, "accuracies": measured}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", default="citeseer")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--members", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    data = load_node_data(args.dataset, args.data_root)
    length = {"epochs": args.epochs, "patience": None}
    config = NodeClassification.of("diffusion", args.dataset, "tuned", **length)
    found: dict[int | None, list[float]] = {patience: [] for patience in PATIENCES}
    for seed in range(FIRST_SEED, FIRST_SEED + args.members):
        member = trained(config, data, seed, torch.device(args.device))
        for patience, means in found.items():
            means.append(statistics.fmean(accuracies(member, patience)))
        line = {str(p): round(statistics.fmean(means), 4) for p, means in found.items()}
        print(f"{seed - FIRST_SEED + 1} of {args.members} members: {line}", flush=True)
    rows = [
        {"patience": p, "mean": statistics.fmean(means), "members": means}
        for p, means in found.items()
    ]
    result = {
        "benchmark": "early_stopping",
        "machine": machine(args.device),
        "dataset": args.dataset,
        "epochs": args.epochs,
        "splits": SPLITS,
        "accuracy": rows,
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
