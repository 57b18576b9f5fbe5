"""What members are trained for, as the training loop asks for it."""

from typing import Protocol, runtime_checkable

from torch import Tensor, nn


@runtime_checkable
class Objective(Protocol):
    """What members are trained for.

    Attributes:
        measures: Names of what `measure` returns; "validation_loss" is among them and decides
            which epoch counts.

    One that has a method `follow` is handed the number of the epoch once, a tensor `[]` on the
    device that grows in place after an epoch's updates, for a loss that differs between epochs.
    One whose members have data of their own has a method `for_members`, from seeds to the
    objective of these. One that knows its gradients, and draws nothing at random, has a method
    `loss_and_gradients`.
    """

    measures: tuple[str, ...]

    def loss(self, ensemble: nn.Module) -> Tensor:
        """The loss of each member, `[members]`."""
        ...

    def measure(self, ensemble: nn.Module) -> dict[str, Tensor]:
        """How good each member is, each `[members]`."""
        ...


@runtime_checkable
class BatchedObjective(Objective, Protocol):
    """An objective of which an epoch is many updates, each on a batch: `loss` is that of one.

    Attributes:
        num_batches: In an epoch.
    """

    num_batches: int

    def turn(self, epoch: int, batch: int) -> None:
        """Make a batch the present one, in place, so that a captured `loss` sees it."""
        ...
