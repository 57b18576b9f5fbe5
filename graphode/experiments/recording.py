"""Epochs as recorded programs: CUDA graphs that are replayed, adaptive solvers included.

Teaching is one program and evaluating another, so that an epoch may go without the second; in a
third an epoch is evaluated beside the teaching of the next. What the first, unrecorded calls have
changed is put back, so that every epoch is a replay, whether the run was interrupted or not. An
adaptive solver is recorded for as many attempts as any member needs; more attempts change nothing,
as who has arrived rests. When a member comes to need more, the block of epochs is taken back,
recorded anew with more attempts, and run again: results never depend on how many were recorded.
Who still needs more than the most that are recorded has failed.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphode import flows
from graphode.experiments.objective import BatchedObjective
from graphode.flows import Flow

if TYPE_CHECKING:
    from graphode.experiments.trainer import Trainer

CALLS_TO_RECORD = 4  # see `graphode.capture`
MORE_ATTEMPTS = 2  # then twice as many, in a block that needs more again
MOST_ATTEMPTS = 500  # of a solve, each a part of the program

Capture = Callable[..., Callable[[], None]]  # see `graphode.capture`, without its device


def capture_on(device: torch.device, gradient: str = "backprop") -> Capture | None:
    """How a device records epochs; None where it cannot: no GPU, or gradients that ask the host."""
    if device.type != "cuda" or gradient != "backprop":
        return None
    return functools.partial(flows.capture, device=device)


def runner(trainer: "Trainer", capture: Capture | None) -> Callable[[int], None]:
    """What runs so many epochs of a trainer: recorded programs where there is a `capture`."""
    return trainer.run if capture is None else Recording(trainer, capture)


class Recording:
    """Runs blocks of epochs of a trainer.

    Args:
        trainer: Whose epochs. Where an epoch has many updates, each update is a replay, and what is
            around them is run as it is.
        capture: Makes a program of a function, as `graphode.capture` does.
    """

    def __init__(self, trainer: "Trainer", capture: Capture) -> None:
        self.trainer, self.capture = trainer, capture
        flows = [part for part in trainer.ensemble.modules() if isinstance(part, Flow)]
        self.adaptive = [flow for flow in flows if flow.options.num_steps is None]
        costs = trainer.count()
        if not self.adaptive:
            # Their solves are not seen in a recorded program, but are always the same.
            trainer.costs = costs
        self._record(trainer.attempts)

    def __call__(self, epochs: int) -> None:
        """So many epochs."""
        before = self._snapshot() if self.adaptive else {}
        self._replay(epochs)
        more = MORE_ATTEMPTS
        while self.adaptive:
            most = min(MOST_ATTEMPTS, *(flow.options.max_steps for flow in self.adaptive))
            if self.attempts >= most or not bool(self.trainer.wants_more.any()):
                return
            self.trainer.load(before)
            self._record(min(self.attempts + more, most))
            self._replay(epochs)
            more *= 2

    def _replay(self, epochs: int) -> None:
        self.trainer.run(epochs, self.teach, self.evaluate, self.both)

    def _record(self, attempts: int) -> None:
        trainer = self.trainer
        self.attempts = attempts
        for flow in self.adaptive:
            flow.recorded_attempts = attempts
        before = self._snapshot()
        if isinstance(trainer.objective, BatchedObjective):
            trainer.learn = self.capture(trainer.update)
            self.teach, self.evaluate, self.both = trainer.teach, trainer.evaluate, None
            programs = [trainer.learn]
        else:
            self.teach = self.capture(trainer.teach)
            self.evaluate = self.capture(trainer.evaluate, sharing=self.teach)
            self.both = self.capture(trainer.evaluate_and_teach, sharing=self.teach)
            programs = [self.teach, self.evaluate, self.both]
        for _ in range(CALLS_TO_RECORD):
            for program in programs:
                program()
        trainer.load(before)
        trainer.wants_more.zero_()

    def _snapshot(self) -> dict[str, Tensor]:
        # Detached: a copy with a history would keep the streams of the present one.
        return {name: tensor.detach().clone() for name, tensor in self.trainer.state().items()}
