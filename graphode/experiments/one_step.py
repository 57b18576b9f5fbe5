"""What particle models are trained for: the error of one step from every state of a trajectory."""

import dataclasses

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphode.experiments.multi_agent import Loss
from graphode.experiments.recorded_loss import Program, RecordedLoss

HELD_OUT = 20  # one state of so many in the training half is for validation


@dataclasses.dataclass
class OneStep:
    """The error of one step, as that of the mean velocity over it: ℓ((Φ(y_t) − y_{t+dt}) / dt).

    The minimiser is that of the plain error, and so, but for its ε, are Adam's steps; the numbers
    are of the size 1 whatever dt. ℓ is the square, or the absolute value.

    Args:
        states: The training half, `[members, time, n, 4]`.
        dt: Between two states.
        stride: An epoch sees one state of so many.
        kind: squared or absolute.
    """

    states: Tensor
    dt: float
    stride: int
    kind: Loss = "squared"
    measures: tuple[str, ...] = ("validation_loss",)

    def __post_init__(self) -> None:
        steps = torch.arange(self.states.shape[1] - 1, device=self.states.device)
        aside = steps % HELD_OUT == HELD_OUT - 1
        # In the precision of the states; what is left of a difference is of the size of dt.
        moves = self.states[:, 1:] - self.states[:, :-1]
        inputs, moves = (part.to(torch.get_default_dtype()) for part in (self.states, moves))
        self.held_out = inputs[:, steps[aside]], moves[:, steps[aside]]
        self.inputs, self.moves = inputs[:, steps[~aside]], moves[:, steps[~aside]]
        # What each epoch sees lies together: `[stride, 2, members, states, n, 4]`.
        count = self.inputs.shape[1] // self.stride
        pairs = torch.stack([self.inputs, self.moves])[:, :, : count * self.stride]
        self.batches = pairs.unflatten(2, (count, self.stride)).movedim(3, 0).contiguous()
        self.epoch = torch.zeros((), dtype=torch.int64, device=steps.device)

    def follow(self, epoch: Tensor) -> None:
        """Whose states differ from epoch to epoch."""
        self.epoch = epoch

    def loss(self, ensemble: nn.Module) -> Tensor:
        """Over this epoch's states, `[members]`."""
        place = (self.epoch % self.stride).reshape(1)
        return self.error(ensemble, *self.batches.index_select(0, place)[0])

    def measure(self, ensemble: nn.Module) -> dict[str, Tensor]:
        """Over the states kept aside."""
        if not self.held_out[0].shape[1]:
            return {"validation_loss": self.error(ensemble, self.inputs, self.moves)}
        return {"validation_loss": self.error(ensemble, *self.held_out)}

    def error(self, ensemble: nn.Module, inputs: Tensor, moves: Tensor) -> Tensor:
        """Over given states and what a step adds to them, `[members]`."""
        moved = ensemble(inputs, None, per_member=True) - inputs
        if self.kind == "absolute":
            sizes = functional.l1_loss(moved, moves, reduction="none")
            return sizes.flatten(1).mean(1) / self.dt
        squares = functional.mse_loss(moved, moves, reduction="none")
        return squares.flatten(1).mean(1) / self.dt**2


@dataclasses.dataclass
class RecordedOneStep(OneStep):
    """The same on a CPU, its loss and gradients recorded once and repeated.

    Args:
        compiled: Whether the program is compiled.
    """

    compiled: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pairs = [(inputs, moves) for inputs, moves in self.batches]
        self.recorded: tuple[nn.Module, RecordedLoss] | None = None

    def loss_and_gradients(self, ensemble: nn.Module) -> tuple[Tensor, list[Tensor]]:
        """Over this epoch's states, `[members]` and one for each parameter."""
        inputs, moves = self.pairs[int(self.epoch) % self.stride]
        if self.recorded is None or self.recorded[0] is not ensemble:
            recorded = RecordedLoss(ensemble, self.error, (inputs, moves), compiled=self.compiled)
            self.recorded = ensemble, recorded
        return self.recorded[1](inputs, moves)


def one_step(
    states: Tensor, dt: float, stride: int, program: Program, kind: Loss = "squared"
) -> OneStep:
    """The objective whose loss and gradients are computed so; a GPU captures the eager one."""
    if program == "eager" or states.is_cuda:
        return OneStep(states, dt, stride, kind)
    return RecordedOneStep(states, dt, stride, kind, compiled=program == "compiled")
