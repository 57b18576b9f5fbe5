"""Small runs for the tests of the harness: the karate club's factions, in milliseconds an epoch.

As a script it trains and, asked to, is killed at an epoch as by a power cut.

    python karate_runs.py FOLDER [EPOCH]
"""

import dataclasses
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import graphode as gd
from graphode.data import karate_club, karate_club_factions
from graphode.ensembles import Ensemble
from graphode.experiments.node_run import NodeObjective
from graphode.experiments.run_folder import RunFolder
from graphode.experiments.trainer import Training
from graphode.experiments.training import Outcome, train


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of a small run."""

    lr: float = 0.05
    members: int = 3


def objective() -> NodeObjective:
    """Who goes where: a few known, the rest for validation and test."""
    x = gd.SparseFeatures(torch.eye(34))
    graph = karate_club().normalize("sym").to(dtype=torch.get_default_dtype())
    nodes = torch.arange(34)
    return NodeObjective(x, graph, karate_club_factions(), nodes[::6], nodes[1::3], nodes[2::3])


def build(seed: int) -> nn.Module:
    """A model with masks that are drawn at every evaluation."""
    del seed
    return gd.GCDE.rk2(34, 4, 2, field_dropout=0.5, redraw="per_eval")


class Silent:
    """A display that shows nothing, and calls `at_epoch` with the epochs done."""

    def __init__(self, at_epoch: Any = None) -> None:
        self.at_epoch = at_epoch
        self.begun: list[tuple[int, int, int]] = []
        self.notes: list[str] = []

    def begin(self, chunk: int, chunks: int, epoch: int) -> None:
        """Remember what began where."""
        self.begun.append((chunk, chunks, epoch))

    def update(self, row: dict[str, Any]) -> None:
        """Pass the epoch on."""
        if self.at_epoch is not None:
            self.at_epoch(row["epoch"] + 1)

    def note(self, line: str) -> None:
        """Remember what is to be known."""
        self.notes.append(line)

    def __enter__(self) -> "Silent":
        return self

    def __exit__(self, *error: object) -> None: ...


def training(**changes: Any) -> Training:
    """Twelve epochs, a checkpoint every third."""
    given = {"epochs": 12, "lr": 0.05, "weight_decay": 5e-4, "select_from": 4, "log_every": 3}
    return Training(**{**given, "checkpoint_seconds": 0.0, **changes})


def capture_into(calls: list[str]):
    """A recorder that, as a GPU's, runs a program unseen and cannot count its solves."""

    def capture(function, sharing=None):
        def program():
            calls.append(function.__name__)
            function()

        return program

    return capture


def train_in(path: Path, display: Silent | None = None, **options: Any) -> Outcome:
    """Train three members in a folder, or go on there."""
    folder = RunFolder(path, Config())
    folder.open()
    changes = {
        name: options.pop(name) for name in list(options) if name in Training.__annotations__
    }
    given = {"objective": objective(), "seeds": [5, 6, 7], **options}
    given.setdefault("make_ensemble", lambda seeds: Ensemble(build, seeds))
    return train(
        training=training(**changes),
        folder=folder,
        display=display or Silent(),
        **given,
    )


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    last = int(sys.argv[2]) if len(sys.argv) > 2 else None

    def cut(epoch: int) -> None:
        """No handler runs, no file is closed."""
        if epoch == last:
            os.kill(os.getpid(), signal.SIGKILL)

    train_in(Path(sys.argv[1]), Silent(cut))
