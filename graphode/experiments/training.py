"""The training loop, from file to file: chunks of members, blocks of epochs, metrics, checkpoints.

What an epoch is stands in `trainer`.
"""

import dataclasses
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphode.experiments.objective import Objective
from graphode.experiments.progress import Display
from graphode.experiments.recording import Capture, runner
from graphode.experiments.run_folder import METRICS, Checkpoint, RunFolder
from graphode.experiments.selection import Selection
from graphode.experiments.trainer import TAUGHT, Trainer, Training, parameters_of
from graphode.flows import SolveError

SELECTED = "selected."  # in a checkpoint, before the names of parameters kept


@dataclasses.dataclass
class Outcome:
    """What training gave.

    Attributes:
        selected: Of each member its seed, its selected epoch (−1 for none), and its metrics there.
        seconds: Spent training, over all sittings.
        ensemble: The last chunk's members with their final parameters; NaN of who diverged.
        parameters: Of all members at their selected epochs, by name, if `keep_selected` asked for
            them; those of a member without one are its first.
        diverged: By the seed of a member that was set aside, the epoch in which its loss was no
            number.
    """

    selected: dict[str, list[float]]
    seconds: float
    ensemble: Any
    parameters: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    diverged: dict[int, int] = dataclasses.field(default_factory=dict)


def train(
    make_ensemble: Callable[[Sequence[int]], nn.Module],
    objective: Objective,
    training: Training,
    seeds: Sequence[int],
    folder: RunFolder,
    display: Display,
    *,
    chunk: int | None = None,
    capture: Capture | None = None,
) -> Outcome:
    """Train members to the end, from wherever the folder's checkpoint stands.

    A member whose loss becomes NaN is set aside, and the others go on; what was selected of it
    before stays. Where that happens to all, the run ends.

    Args:
        make_ensemble: From seeds to an ensemble, on its device.
        objective: What for.
        training: How.
        seeds: One per member.
        folder: Opened; receives metrics and checkpoints.
        display: Shows the progress.
        chunk: Members trained at once; all of them by default.
        capture: Makes of each half of an epoch, or of one update where it has many, a program
            that repeats it.
    """
    start = folder.checkpoint() or Checkpoint({}, {"chunk": 0, "epoch": 0, "seconds": 0.0})
    # A run goes on as it began, however much memory is free now.
    size = start.facts.get("size", chunk or len(seeds))
    chunks = [list(seeds[k : k + size]) for k in range(0, len(seeds), size)]
    selected: dict[str, list[float]] = start.facts.get("selected", {})
    # JSON has no whole numbers as names.
    diverged: dict[int, int] = {int(k): v for k, v in start.facts.get("diverged", {}).items()}
    seconds, ensemble = start.facts["seconds"], None
    parameters = {
        name.removeprefix(SELECTED): tensor
        for name, tensor in start.tensors.items()
        if name.startswith(SELECTED)
    }

    for number in range(start.facts["chunk"], len(chunks)):
        ensemble = make_ensemble(chunks[number])
        task = objective
        if hasattr(objective, "for_members"):
            task = objective.for_members(chunks[number])  # pyright: ignore[reportAttributeAccessIssue]
        trainer = Trainer(ensemble, task, training)
        epoch = start.facts["epoch"] if number == start.facts["chunk"] else 0
        if epoch:
            trainer.load(start.tensors)
            _set_aside(trainer, diverged)
        run_epochs = runner(trainer, capture)
        display.begin(number, len(chunks), epoch)
        saved = began = time.perf_counter()

        while epoch < training.epochs and not bool(trainer.selection.stopped.all()):
            count = min(training.log_every, training.epochs - epoch)
            try:
                run_epochs(count)
            except SolveError as error:  # of a gradient, which knows no members
                raise _ended(folder, epoch, count, f"a solve failed. {error}") from error
            lost = _lost(trainer, epoch, count, diverged)
            for seed, when in lost.items():
                display.note(f"The member of seed {seed} diverged in epoch {when}: set aside.")
            diverged |= lost
            numbers = [chunks[number].index(seed) for seed in lost]
            trainer.selection.withdraw(numbers, list(lost.values()))
            if diverged.keys() >= set(seeds):
                raise _ended(folder, epoch, count, trainer.why_it_failed())
            healthy = _healthy(trainer, diverged)
            if not healthy:
                break
            rows = _summaries(trainer, epoch, count, number, healthy)
            if lost:
                _set_aside(trainer, diverged)
                run_epochs = runner(trainer, capture)  # for as many attempts as the others need
            epoch += count
            folder.append(rows)
            display.update(rows[-1])
            now = time.perf_counter()
            if now - saved >= training.checkpoint_seconds:
                facts = {"chunk": number, "epoch": epoch, "size": size, "selected": selected}
                facts |= {"diverged": diverged, "seconds": seconds + now - began}
                folder.save(trainer.state() | _selected(parameters), facts)
                saved = now

        seconds += time.perf_counter() - began
        trainer.forget([k for k, seed in enumerate(chunks[number]) if seed in diverged])
        selected = _joined(selected, chunks[number], trainer.selection)
        for (name, _), kept in zip(ensemble.named_parameters(), trainer.kept, strict=False):
            before = [parameters[name].to(kept)] if name in parameters else []
            parameters[name] = torch.cat([*before, kept])
        facts = {"chunk": number + 1, "epoch": 0, "size": size, "selected": selected}
        facts |= {"diverged": diverged, "seconds": seconds}
        folder.save(parameters_of(ensemble) | _selected(parameters), facts)

    if ensemble is None:  # all was trained before
        ensemble = make_ensemble(chunks[-1])
        with torch.no_grad():
            for name, parameter in parameters_of(ensemble).items():
                parameter.copy_(start.tensors[name])
    return Outcome(selected, seconds, ensemble, parameters, diverged)


def _lost(trainer: Trainer, first: int, count: int, known: Collection[int]) -> dict[int, int]:
    """Seeds of members that diverged in these epochs, and when."""
    when = dict(zip(trainer.seeds.tolist(), trainer.diverged(first, count).tolist(), strict=True))
    return {seed: epoch for seed, epoch in when.items() if epoch >= 0 and seed not in known}


def _healthy(trainer: Trainer, diverged: Collection[int]) -> list[int]:
    """The numbers of the members that have not diverged."""
    return [k for k, seed in enumerate(trainer.seeds.tolist()) if seed not in diverged]


def _set_aside(trainer: Trainer, diverged: Collection[int]) -> None:
    healthy = _healthy(trainer, diverged)
    lost = [k for k in range(len(trainer.seeds)) if k not in healthy]
    if lost:
        trainer.set_aside(lost, healthy[0])


def _ended(folder: RunFolder, first: int, count: int, reason: str) -> SolveError:
    return SolveError(
        f"Training ended in epochs {first} to {first + count - 1}, where {reason} If the losses "
        f"in {folder.path / METRICS} grew before, lower --lr."
    )


def _selected(parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    return {SELECTED + name: tensor for name, tensor in parameters.items()}


def _summaries(
    trainer: Trainer, first: int, count: int, chunk: int, healthy: list[int]
) -> list[dict[str, Any]]:
    """A line per epoch: mean and standard deviation (of the members, not of a sample of them).

    An epoch that was not evaluated has a shorter one.
    """
    block = trainer.read(first, count)[:, healthy]
    means, deviations = block.mean(1).tolist(), block.std(1, correction=0).tolist()
    rows = []
    for epoch, mean, deviation in zip(range(first, first + count), means, deviations, strict=True):
        known = trainer.metrics if trainer.training.evaluates(epoch) else TAUGHT
        row: dict[str, Any] = {"epoch": epoch, "chunk": chunk, "members": block.shape[1]}
        for ending, values in (("", mean), ("_std", deviation)):
            named = zip(trainer.metrics, values, strict=True)
            row |= {name + ending: value for name, value in named if name in known}
        rows.append(row)
    return rows


def _joined(
    before: dict[str, list[float]], seeds: list[int], selection: Selection
) -> dict[str, list[float]]:
    """What was selected, of the chunks so far and this one."""
    here = {name: kept.tolist() for name, kept in selection.metrics.items()}
    here = {"seed": seeds, "epoch": selection.epoch.tolist(), **here}
    return {name: [*before.get(name, []), *values] for name, values in here.items()}
