"""The search behind preset `tuned` of table 1: settings of a family, by validation data alone.

    python benchmarks/search_table_1.py --dataset cora --out results/table-1-search.json

First come the settings that the family's authors published, those found by hand, and those that are
the best on other data sets or with another length of training, then random ones, then changes of
the best three so far. All are tried
with few members, the best third again with more, and so on: members 5 20 100 make three rounds.
Ranks are by mean validation accuracy. Test labels are wiped before anything is trained, and the
members' seeds are not those of the table. What was tried is in the file, member by member; the same
command goes on from there, and searches of several data sets may share the file at the same time.
"""

import argparse
import dataclasses
import fcntl
import itertools
import json
import os
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from search_spaces import FAMILIES, Choices, Family, Settings
from torch import Tensor, nn

from graphode.data import load_node_data
from graphode.ensembles import Ensemble, members_that_fit
from graphode.experiments.node_classification import NodeClassification
from graphode.experiments.node_models import builder
from graphode.experiments.node_run import NodeObjective
from graphode.experiments.recording import capture_on, runner
from graphode.experiments.trainer import Trainer, Training

FIRST_SEED = 1000
KEPT = 3  # of so many settings one goes into the next round
PARENTS = 3  # how many of the best are changed …
CHANGED = 2  # … in so many choices
DIGITS = 6
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


def proposed(
    number: int,
    attempt: int,
    choices: Choices,
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
    return settings


class Trials:
    """What was tried of a family, in a file that grows member by member."""

    def __init__(self, path: Path, model: str) -> None:
        self.path, self.model = path, model
        self.rows = [row for row in _read(path) if row["model"] == model]

    def best(self, dataset: str) -> Row:
        """The best on a data set, of those that were tried with the most members."""
        rows = [row for row in self.rows if row["dataset"] == dataset]
        most = max(len(row["seeds"]) for row in rows)
        return ranked([row for row in rows if len(row["seeds"]) == most], most)[0]

    def best_elsewhere(self, dataset: str) -> list[Settings]:
        """The settings that are the best so far on each other data set."""
        others = {row["dataset"] for row in self.rows} - {dataset}
        return [self.best(other)["settings"] for other in sorted(others)]

    def best_of_other_lengths(self, dataset: str, length: Row) -> list[Settings]:
        """The best on this data set of those that were trained for other lengths."""
        own = self.of(dataset, length)
        others = [row for row in self.rows if row["dataset"] == dataset and row not in own]
        most = max((len(row["seeds"]) for row in others), default=0)
        best = ranked([row for row in others if len(row["seeds"]) == most], most)
        return [row["settings"] for row in best[:PARENTS]]

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
        self.rows.append({"model": self.model, **key, **empty, "seconds": 0.0})
        return self.rows[-1]

    def save(self, dataset: str) -> None:
        """Write the rows of a data set and leave the others; the file is whole at any time."""
        own = (self.model, dataset)
        with _alone(self.path.parent):
            rows = [row for row in _read(self.path) if (row["model"], row["dataset"]) != own]
            rows += [row for row in self.rows if row["dataset"] == dataset]
            temporary = self.path.with_suffix(".part")
            lines = ",\n".join(json.dumps(row) for row in rows)
            temporary.write_text(f"[\n{lines}\n]\n")
            temporary.replace(self.path)


def _read(path: Path) -> list[Row]:
    return json.loads(path.read_text()) if path.exists() else []


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


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
    run = runner(trainer, capture_on(ensemble.seeds.device))
    for _ in range(0, config.epochs, training.log_every):
        run(training.log_every)
        if bool(trainer.selection.stopped.all()):
            break
    found = {
        name: [round(value, DIGITS) for value in kept.tolist()]
        for name, kept in trainer.selection.metrics.items()
    }
    return {"epoch": trainer.selection.epoch.tolist(), **found}


def ranked(rows: list[Row], members: int) -> list[Row]:
    """The best first."""
    return sorted(rows, key=lambda row: -mean(row, "validation_accuracy", members))


def mean(row: Row, name: str, members: int) -> float:
    """Over the first members, those of the round; a member that failed has accuracy 0."""
    return statistics.fmean(0.0 if a != a else a for a in row[name][:members])


def search(args: argparse.Namespace) -> None:
    """All rounds on one data set."""
    family: Family = FAMILIES[args.model]
    device = torch.device(args.device)
    data = load_node_data(args.dataset, args.data_root)
    objective = ValidationObjective.of(data, device)
    trials = Trials(args.out, family.model)
    length = {"epochs": args.epochs, "patience": args.patience}

    def tried(settings: Settings, members: int) -> Row:
        row = trials.row({"dataset": args.dataset, **length, "settings": settings})
        seeds = list(range(FIRST_SEED + len(row["seeds"]), FIRST_SEED + members))
        config = NodeClassification.of(family.model, args.dataset, **settings, **length)
        build = builder(config, data.num_features, data.num_classes)
        # On a CPU one by one is faster, and each stops when it is done.
        size = 1
        if seeds and device.type != "cpu":
            size = min(len(seeds), members_that_fit(build, objective.loss, device))
        for chunk in (seeds[k : k + size] for k in range(0, len(seeds), size)):
            began = time.perf_counter()
            found = train(config, Ensemble(build, chunk).to(device), objective)
            row["seconds"] = round(row["seconds"] + time.perf_counter() - began, 1)
            for name, values in {"seeds": chunk, **found}.items():
                row.setdefault(name, []).extend(values)
            trials.save(args.dataset)
        print(_line(row, members), flush=True)
        return row

    choices = family.choices(args.hidden)
    first = [
        *trials.best_of_other_lengths(args.dataset, length),
        *family.first(args.dataset),
        *trials.best_elsewhere(args.dataset),
    ]
    few, *more = args.members
    rows = [tried(row["settings"], few) for row in trials.of(args.dataset, length)]
    for number in range(len(rows), args.configurations):
        best = [row["settings"] for row in ranked(rows, few)[:PARENTS]]
        best = best if number >= args.random else []
        known = [row["settings"] for row in rows]
        others = (
            family.finished(proposed(number, attempt, choices, best))
            for attempt in itertools.count()
        )
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
    settings = " ".join(f"{name}={value}" for name, value in sorted(row["settings"].items()))
    return (
        f"{row['dataset']}, {members} members: validation accuracy {accuracy:.4f}, loss "
        f"{loss:.4f}, epoch {epoch:.0f}; {settings}"
    )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="diffusion", choices=FAMILIES)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--configurations", type=int, default=60)
    parser.add_argument(
        "--random", type=int, default=20, help="so many before the best are changed"
    )
    parser.add_argument(
        "--members", type=int, nargs="+", default=[5, 20, 100], help="of each round"
    )
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 32, 128])
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--patience", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("results/table-1-search.json"))
    search(parser.parse_args())


if __name__ == "__main__":
    main()
