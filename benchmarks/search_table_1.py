"""The search behind preset `tuned` of table 1: settings of GCNII's flow, by validation data alone.

    python benchmarks/search_table_1.py --dataset cora --out results/table-1-search.json

First come the settings of Chen et al. (2020) and those that are the best on other data sets, then
random ones, then changes of the best three so far. All are tried with few members, the best third
again with more, and so on: members 1 3 9 make three rounds. Ranks are by mean validation accuracy.
Test labels are wiped before anything is trained, and the members' seeds are not those of the
table. What was tried is in the file, member by member; the same command goes on from there.
"""

import argparse
import dataclasses
import functools
import itertools
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphode.data import load_node_data
from graphode.ensembles import Ensemble, members_that_fit
from graphode.experiments.node_classification import NodeClassification
from graphode.experiments.node_models import builder
from graphode.experiments.node_run import NodeObjective
from graphode.experiments.presets import CHEN
from graphode.experiments.recording import Recording
from graphode.experiments.training import Trainer, Training
from graphode.flows import capture

FIRST_SEED = 1000
KEPT = 3  # of so many settings one goes into the next round
PARENTS = 3  # how many of the best are changed …
CHANGED = 2  # … in so many choices
MANY = 2  # stands for one weight for each unit of depth
STAGES = {"euler": 1, "midpoint": 2, "rk4": 4}
SEARCHED = (
    "solver", "num_steps", "t1", "layers", "depth_terms", "alpha", "mixing", "redraw",
    "input_dropout", "field_dropout", "readout_dropout", "lr", "weight_decay", "field_decay",
)  # fmt: skip
# What Chen et al. have for other sets than Cora, in which their settings differ.
PUBLISHED = {
    "citeseer": {"mixing": 0.6, "field_dropout": 0.7, "readout_dropout": 0.7, "input_dropout": 0.7},
    "pubmed": {
        "mixing": 0.4,
        "field_dropout": 0.5,
        "readout_dropout": 0.5,
        "input_dropout": 0.5,
        "field_decay": 5e-4,
    },
}
Settings = dict[str, Any]
Row = dict[str, Any]


@dataclasses.dataclass
class ValidationObjective(NodeObjective):
    """Node classification without test nodes."""

    measures: tuple[str, ...] = ("validation_loss", "validation_accuracy")

    @classmethod
    def of(cls, data: Any, device: torch.device) -> "ValidationObjective":
        """As for a run, but of the labels only those for training and validation are left."""
        labels, seen = torch.zeros_like(data.labels), torch.cat([data.train, data.val])
        labels[seen] = data.labels[seen]
        found = super().of(dataclasses.replace(data, labels=labels), device)
        assert isinstance(found, cls)
        return found

    def measure(self, ensemble: nn.Module) -> dict[str, Tensor]:
        """Loss and accuracy of the validation nodes."""
        logits = ensemble(self.x, self.graph)
        return {
            "validation_loss": self._cross_entropy(logits, self.val),
            "validation_accuracy": self._accuracy(logits, self.val),
        }


def space(widths: list[int], evaluations: list[int]) -> dict[str, list[Settings]]:
    """What is searched: for every choice the settings among which it is made."""

    def each(name: str, *values: Any) -> list[Settings]:
        return [{name: value} for value in values]

    steps = [(s, max(1, e // stages)) for s, stages in STAGES.items() for e in evaluations]
    return {
        "width": each("hidden", *widths),
        # Explicit methods are stable up to steps of 1 (Euler's 1.05, rk4's 1.4).
        "flow": [
            {"solver": solver, "num_steps": count, "t1": count * length}
            for solver, count in steps
            for length in (0.5, 1.0)
        ],
        "alpha": each("alpha", 0.05, 0.1, 0.15, 0.2, 0.3),
        "mixing": each("mixing", 0.25, 0.5, 1.0),
        "variation": each("depth_terms", 0, 2),
        # One mask for the whole solve, multiplied at every step, drives members apart (tried).
        "redraw": each("redraw", "per_eval", "per_step"),
        "input_dropout": each("input_dropout", 0.4, 0.5, 0.6, 0.7, 0.8),
        "dropout": [
            {"field_dropout": rate, "readout_dropout": rate} for rate in (0.4, 0.5, 0.6, 0.7, 0.8)
        ],
        "lr": each("lr", 0.01, 0.02, 0.03),
        "weight_decay": each("weight_decay", 2e-4, 5e-4, 1e-3, 2e-3, 5e-3),
        # One weight for all depths, or one for each unit of depth, which feels less of the loss.
        "weights": [
            *({"layers": 1, "field_decay": decay} for decay in (0.03, 0.1, 0.3, 1.0)),
            *({"layers": MANY, "field_decay": decay} for decay in (0.003, 0.01, 0.03, 0.1)),
        ],
    }


def proposed(
    number: int,
    attempt: int,
    choices: dict[str, list[Settings]],
    best: list[Settings],
) -> Settings:
    """Settings of a trial: random ones, or one of the best changed.

    Args:
        number: Of the trial.
        attempt: How many proposals had been tried before.
        choices: What can be chosen.
        best: The best so far; where there are none, choices are random.
    """
    random_number = random.Random(f"{number}, {attempt}")
    drawn = {name: random_number.choice(options) for name, options in choices.items()}
    settings = dict(random_number.choice(best)) if best else {}
    for name in random_number.sample(list(choices), CHANGED if best else len(choices)):
        settings |= drawn[name]
    many = settings["layers"] > 1
    return {**settings, "layers": max(1, round(settings["t1"])) if many else 1}


class Trials:
    """What was tried, in a file that grows member by member."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = json.loads(path.read_text()) if path.exists() else []

    def best(self, dataset: str) -> Row:
        """The best on a data set, of those that were tried with the most members."""
        rows = [row for row in self.rows if row["dataset"] == dataset]
        most = max(len(row["seeds"]) for row in rows)
        return ranked([row for row in rows if len(row["seeds"]) == most], most)[0]

    def best_elsewhere(self, dataset: str) -> list[Settings]:
        """The settings that are the best so far on each other data set."""
        others = {row["dataset"] for row in self.rows} - {dataset}
        return [self.best(other)["settings"] for other in sorted(others)]

    def of(self, dataset: str, length: Row) -> list[Row]:
        """Those on a data set with this length of training."""
        key = {"dataset": dataset, **length}
        return [row for row in self.rows if row.items() >= key.items()]

    def row(self, key: Row) -> Row:
        """The row of a trial; a new one, of no member, where there is none."""
        for row in self.rows:
            if all(row[name] == value for name, value in key.items()):
                return row
        empty: dict[str, list[float]] = {"seeds": []}
        self.rows.append({**key, **empty, "seconds": 0.0})
        return self.rows[-1]

    def save(self) -> None:
        """Write the file, whole or not at all."""
        temporary = self.path.with_suffix(".part")
        temporary.write_text(json.dumps(self.rows, indent=1) + "\n")
        temporary.replace(self.path)


def train(
    config: NodeClassification, ensemble: Ensemble, objective: NodeObjective
) -> dict[str, list[float]]:
    """Of each member its selected epoch, and validation loss and accuracy there."""
    training = Training(
        epochs=config.epochs,
        lr=config.lr,
        weight_decay=config.decays,
        patience=config.patience,
    )
    trainer = Trainer(ensemble, objective, training)
    run, device = trainer.run, ensemble.seeds.device
    if device.type == "cuda":
        run = Recording(trainer, functools.partial(capture, device=device))
    for _ in range(0, config.epochs, training.log_every):
        run(training.log_every)
        if bool(trainer.selection.stopped.all()):
            break
    found = {name: kept.tolist() for name, kept in trainer.selection.metrics.items()}
    return {"epoch": trainer.selection.epoch.tolist(), **found}


def ranked(rows: list[Row], members: int) -> list[Row]:
    """The best first."""
    return sorted(rows, key=lambda row: -mean(row, "validation_accuracy", members))


def mean(row: Row, name: str, members: int) -> float:
    """Over the first members, those of the round; a member that failed has accuracy 0."""
    return statistics.fmean(0.0 if a != a else a for a in row[name][:members])


def search(args: argparse.Namespace) -> None:
    """All rounds on one data set."""
    data = load_node_data(args.dataset, args.data_root)
    objective = ValidationObjective.of(data, torch.device(args.device))
    trials = Trials(args.out)
    length = {"epochs": args.epochs, "patience": args.patience}

    def tried(settings: Settings, members: int) -> Row:
        row = trials.row({"dataset": args.dataset, **length, "settings": settings})
        seeds = list(range(FIRST_SEED + len(row["seeds"]), FIRST_SEED + members))
        config = NodeClassification.of("gcnii", args.dataset, **settings, **length)
        build = builder(config, data.num_features, data.num_classes)
        # On a CPU one by one is faster, and each stops when it is done.
        size = 1
        if seeds and args.device != "cpu":
            size = min(len(seeds), members_that_fit(build, objective.loss, args.device))
        for chunk in (seeds[k : k + size] for k in range(0, len(seeds), size)):
            began = time.perf_counter()
            found = train(config, Ensemble(build, chunk).to(args.device), objective)
            row["seconds"] = round(row["seconds"] + time.perf_counter() - began, 1)
            for name, values in {"seeds": chunk, **found}.items():
                row.setdefault(name, []).extend(values)
            trials.save()
        print(_line(row, members), flush=True)
        return row

    choices = space(args.hidden, args.evaluations)
    first = [{"hidden": args.hidden[0], **{name: CHEN[name] for name in SEARCHED}}]
    first[0] |= PUBLISHED.get(args.dataset, {})
    first += trials.best_elsewhere(args.dataset)
    few, *more = args.members
    rows = [tried(row["settings"], few) for row in trials.of(args.dataset, length)]
    for number in range(len(rows), args.configurations):
        best = [row["settings"] for row in ranked(rows, few)[:PARENTS]]
        best = best if number >= args.random else []
        known = [row["settings"] for row in rows]
        others = (proposed(number, k, choices, best) for k in itertools.count())
        rows.append(tried(next(s for s in itertools.chain(first, others) if s not in known), few))
    for members in more:
        kept = ranked(rows, few)[: -(-len(rows) // KEPT)]
        rows, few = [tried(row["settings"], members) for row in kept], members
    best = ranked(rows, few)[0]
    print(f"best: {_line(best, few)}")
    found = {name: mean(best, name, few) for name in objective.measures}
    counted = {"configurations": len(trials.of(args.dataset, length)), "members": few}
    print(json.dumps({"dataset": args.dataset, **counted, **found, "settings": best["settings"]}))


def _line(row: Row, members: int) -> str:
    accuracy, loss, epoch = (
        mean(row, name, members) for name in ("validation_accuracy", "validation_loss", "epoch")
    )
    settings = " ".join(str(value) for value in row["settings"].values())
    return (
        f"{row['dataset']}, {members} members: validation accuracy {accuracy:.4f}, loss "
        f"{loss:.4f}, epoch {epoch:.0f}; {settings}"
    )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--configurations", type=int, default=60)
    parser.add_argument(
        "--random", type=int, default=20, help="so many before the best are changed"
    )
    parser.add_argument("--members", type=int, nargs="+", default=[1, 3, 9], help="of each round")
    parser.add_argument("--hidden", type=int, nargs="+", default=[64])
    parser.add_argument("--evaluations", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--epochs", type=int, default=1500)
    parser.add_argument("--patience", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("results/table-1-search.json"))
    search(parser.parse_args())


if __name__ == "__main__":
    main()
