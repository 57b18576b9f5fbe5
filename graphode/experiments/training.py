"""The training loop: every member of an ensemble at once, epoch after epoch, from file to file.

`Trainer.step` is one epoch: masks keyed by (seed of the member, epoch), training loss, gradients,
Adam, evaluation, selection. It works in place on device tensors and never asks the host, so that
it can be captured as one CUDA graph; what it measures goes into a block of rows that the host
reads every `log_every` epochs. `train` is the loop around it: chunks of members, blocks of epochs,
metrics and checkpoints.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from graphode.experiments.member_adam import MemberAdam
from graphode.experiments.progress import Display
from graphode.experiments.run_folder import Checkpoint, RunFolder
from graphode.experiments.selection import Selection
from graphode.flows import Stats, record_stats, stochastic

CALLS_TO_RECORD = 4  # see `graphode.capture`
COSTS = ("evaluations", "backward_evaluations", "evaluations_without_masks")


@runtime_checkable
class Objective(Protocol):
    """What members are trained for.

    Attributes:
        measures: Names of what `measure` returns; "validation_loss" is among them and decides
            which epoch counts.
    """

    measures: tuple[str, ...]

    def loss(self, ensemble: nn.Module) -> Tensor:
        """The loss of each member, `[members]`."""
        ...

    def measure(self, ensemble: nn.Module) -> dict[str, Tensor]:
        """How good each member is, each `[members]`."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """How to train.

    Args:
        epochs: How many.
        lr: Adam's learning rate, for all members or each `[members]`.
        weight_decay: L2 penalty on all parameters, for all members or each.
        decayed: The penalty is on parameters whose names contain this; on all by default.
        select_from: First epoch that can be selected.
        patience: Epochs without improvement after which a member stops; None for never.
        log_every: Epochs between two looks at the device.
        checkpoint_seconds: Between two checkpoints, at least.
    """

    epochs: int
    lr: float | Tensor
    weight_decay: float | Tensor = 0.0
    decayed: str = ""
    select_from: int = 0
    patience: int | None = None
    log_every: int = 10
    checkpoint_seconds: float = 30.0


class Trainer:
    """Members in training: parameters, moments, the epoch, and the best epoch so far of each.

    Args:
        ensemble: `[members, …]` from shared arguments; `ensemble.seeds` are the members' seeds.
        objective: What they are trained for.
        training: How.
        costs: Evaluations per solve, `[members, 3]`, where solves cannot be counted as they
            happen, in a captured program; by default they are counted.
    """

    def __init__(
        self,
        ensemble: nn.Module,
        objective: Objective,
        training: Training,
        costs: Tensor | None = None,
    ) -> None:
        self.ensemble, self.objective, self.costs = ensemble, objective, costs
        names, self.parameters = zip(*ensemble.named_parameters(), strict=True)
        device, members = self.parameters[0].device, self.parameters[0].shape[0]
        self.seeds = torch.as_tensor(ensemble.seeds, device=device)
        self.epoch = torch.zeros((), dtype=torch.int64, device=device)
        decays = [training.weight_decay if training.decayed in name else 0.0 for name in names]
        self.optimizer = MemberAdam(self.parameters, training.lr, decays)
        self.metrics = ("train_loss", *objective.measures, *COSTS)
        self.selection = Selection(
            members, objective.measures, training.select_from, training.patience, device
        )
        shape = (training.log_every, members, len(self.metrics))
        self.block = torch.zeros(shape, dtype=torch.float64, device=device)

    def step(self) -> None:
        """One epoch of every member."""
        self.ensemble.train()
        with record_stats() as solves, stochastic(self.seeds, self.epoch):
            loss = self.objective.loss(self.ensemble)
            gradients = torch.autograd.grad(
                loss.sum(), self.parameters, allow_unused=True, materialize_grads=True
            )
        self.optimizer.step(gradients)

        self.ensemble.eval()
        with torch.no_grad(), record_stats() as solves_without_masks:
            measured = self.objective.measure(self.ensemble)
        self.selection.update(self.epoch, measured["validation_loss"], measured)

        costs = self._counted(solves, solves_without_masks) if self.costs is None else self.costs
        values = [loss.detach(), *(measured[name] for name in self.objective.measures)]
        row = torch.cat([torch.stack(values, -1).to(costs), costs], -1)
        place = (self.epoch % len(self.block)).reshape(1)
        self.block.index_copy_(0, place, row[None])
        self.epoch += 1

    def count(self) -> Tensor:
        """Evaluations per solve at the present parameters, `[members, 3]`."""
        self.ensemble.train()
        with record_stats() as solves, stochastic(self.seeds, self.epoch):
            torch.autograd.grad(
                self.objective.loss(self.ensemble).sum(), self.parameters, allow_unused=True
            )
        self.ensemble.eval()
        with torch.no_grad(), record_stats() as solves_without_masks:
            self.objective.measure(self.ensemble)
        return self._counted(solves, solves_without_masks)

    def state(self) -> dict[str, Tensor]:
        """The tensors that change, by name; to go on, copy values into them."""
        state = _parameters(self.ensemble)
        state |= {f"adam.{name}": tensor for name, tensor in self.optimizer.state().items()}
        state |= {f"selection.{name}": tensor for name, tensor in self.selection.state().items()}
        return {**state, "epoch": self.epoch}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what `state` held."""
        for name, tensor in self.state().items():
            tensor.copy_(tensors[name])

    def read(self, first: int, count: int) -> Tensor:
        """The rows of the last `count` epochs, `[count, members, metrics]`, on the host."""
        start = first % len(self.block)
        return self.block[start : start + count].cpu()

    def _counted(self, solves: list[Stats], solves_without_masks: list[Stats]) -> Tensor:
        members = len(self.seeds)
        backward = sum(stats.backward_evaluations for stats in solves)
        columns = (_evaluations(solves), backward, _evaluations(solves_without_masks))
        tensors = [torch.as_tensor(c, device=self.block.device).expand(members) for c in columns]
        return torch.stack(tensors, -1).to(self.block)


def _evaluations(solves: list[Stats]) -> Tensor | float:
    """Mean over solves, for each member."""
    return sum(stats.evaluations.double() for stats in solves) / max(len(solves), 1)


@dataclasses.dataclass
class Outcome:
    """What training gave.

    Attributes:
        selected: Of each member its seed, its selected epoch (−1 for none), and its metrics there.
        seconds: Spent training, over all sittings.
        ensemble: The last chunk's members with their final parameters.
    """

    selected: dict[str, list[float]]
    seconds: float
    ensemble: Any


def train(
    make_ensemble: Callable[[Sequence[int]], nn.Module],
    objective: Objective,
    training: Training,
    seeds: Sequence[int],
    folder: RunFolder,
    display: Display,
    *,
    chunk: int | None = None,
    capture: Callable[[Callable[[], None]], Callable[[], None]] | None = None,
) -> Outcome:
    """Train members to the end, from wherever the folder's checkpoint stands.

    Args:
        make_ensemble: From seeds to an ensemble, on its device.
        objective: What for.
        training: How.
        seeds: One per member.
        folder: Opened; receives metrics and checkpoints.
        display: Shows the progress.
        chunk: Members trained at once; all of them by default.
        capture: Makes of an epoch a program that repeats it; for solvers of fixed step.
    """
    start = folder.checkpoint() or Checkpoint({}, {"chunk": 0, "epoch": 0, "seconds": 0.0})
    # A run goes on as it began, however much memory is free now.
    size = start.facts.get("size", chunk or len(seeds))
    chunks = [list(seeds[k : k + size]) for k in range(0, len(seeds), size)]
    selected: dict[str, list[float]] = start.facts.get("selected", {})
    seconds, ensemble = start.facts["seconds"], None

    for number in range(start.facts["chunk"], len(chunks)):
        ensemble = make_ensemble(chunks[number])
        trainer = Trainer(ensemble, objective, training)
        epoch = start.facts["epoch"] if number == start.facts["chunk"] else 0
        if epoch:
            trainer.load(start.tensors)
        step = trainer.step if capture is None else _captured(trainer, capture)
        display.begin(number, len(chunks), epoch)
        saved = began = time.perf_counter()

        while epoch < training.epochs and not bool(trainer.selection.stopped.all()):
            count = min(training.log_every, training.epochs - epoch)
            for _ in range(count):
                step()
            rows = _summaries(trainer.read(epoch, count), trainer.metrics, epoch, number)
            epoch += count
            folder.append(rows)
            display.update(rows[-1])
            now = time.perf_counter()
            if now - saved >= training.checkpoint_seconds:
                facts = {"chunk": number, "epoch": epoch, "size": size, "selected": selected}
                folder.save(trainer.state(), {**facts, "seconds": seconds + now - began})
                saved = now

        seconds += time.perf_counter() - began
        selected = _joined(selected, chunks[number], trainer.selection)
        facts = {"chunk": number + 1, "epoch": 0, "size": size, "selected": selected}
        folder.save(_parameters(ensemble), {**facts, "seconds": seconds})

    if ensemble is None:  # all was trained before
        ensemble = make_ensemble(chunks[-1])
        with torch.no_grad():
            for name, parameter in _parameters(ensemble).items():
                parameter.copy_(start.tensors[name])
    return Outcome(selected, seconds, ensemble)


def _captured(
    trainer: Trainer, capture: Callable[[Callable[[], None]], Callable[[], None]]
) -> Callable[[], None]:
    """An epoch as one program.

    What its first, unrecorded calls have changed is put back: every epoch is then a replay,
    whether the run was interrupted or not.
    """
    trainer.costs = trainer.count()
    before = {name: tensor.clone() for name, tensor in trainer.state().items()}
    program = capture(trainer.step)
    for _ in range(CALLS_TO_RECORD):
        program()
    trainer.load(before)
    return program


def _parameters(ensemble: nn.Module) -> dict[str, Tensor]:
    return {f"parameters.{name}": p for name, p in ensemble.named_parameters()}


def _summaries(
    block: Tensor, metrics: tuple[str, ...], first: int, chunk: int
) -> list[dict[str, Any]]:
    """A line per epoch: mean and standard deviation (of the members, not of a sample of them)."""
    means, deviations = block.mean(1).tolist(), block.std(1, correction=0).tolist()
    return [
        {
            "epoch": first + k,
            "chunk": chunk,
            "members": block.shape[1],
            **dict(zip(metrics, mean, strict=True)),
            **{f"{name}_std": value for name, value in zip(metrics, deviation, strict=True)},
        }
        for k, (mean, deviation) in enumerate(zip(means, deviations, strict=True))
    ]


def _joined(
    before: dict[str, list[float]], seeds: list[int], selection: Selection
) -> dict[str, list[float]]:
    """What was selected, of the chunks so far and this one."""
    here = {name: kept.tolist() for name, kept in selection.metrics.items()}
    here = {"seed": seeds, "epoch": selection.epoch.tolist(), **here}
    return {name: [*before.get(name, []), *values] for name, values in here.items()}
