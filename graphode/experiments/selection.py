"""Which epoch of each member counts: the one of lowest validation loss, within a range of epochs.

Everything is a tensor per member, changed in place, so that it can be part of a captured program.
Of the metrics only the validation loss decides; the others are taken along.
"""

import torch
from torch import Tensor

NONE_YET = -1


class Selection:
    """The best epoch so far of each member.

    Args:
        members: How many.
        metrics: Names of what is taken along.
        select_from: First epoch that can be chosen.
        patience: Stop a member once so many epochs in a row (of those that can be chosen) were not
            better; its best stays as it is. None for never.
    """

    def __init__(
        self,
        members: int,
        metrics: tuple[str, ...],
        select_from: int,
        patience: int | None,
        device: torch.device | None = None,
    ) -> None:
        self.select_from, self.patience = select_from, patience
        self.loss = torch.full((members,), torch.inf, dtype=torch.float64, device=device)
        self.epoch = torch.full((members,), NONE_YET, dtype=torch.int64, device=device)
        self.waited = torch.zeros(members, dtype=torch.int64, device=device)
        self.stopped = torch.zeros(members, dtype=torch.bool, device=device)
        self.metrics = {
            name: torch.full((members,), torch.nan, dtype=torch.float64, device=device)
            for name in metrics
        }

    def update(self, epoch: Tensor, validation_loss: Tensor, metrics: dict[str, Tensor]) -> Tensor:
        """Look at an epoch; returns for which members it is the best so far.

        Shapes:
            - **epoch:** `[]`
            - **validation_loss** and each of **metrics:** `[members]`
        """
        counts = (epoch >= self.select_from) & ~self.stopped
        better = counts & (validation_loss < self.loss)
        self.loss.copy_(torch.where(better, validation_loss, self.loss))
        self.epoch.copy_(torch.where(better, epoch, self.epoch))
        for name, kept in self.metrics.items():
            kept.copy_(torch.where(better, metrics[name], kept))
        if self.patience is not None:
            self.waited.copy_(torch.where(better, 0, self.waited + counts))
            self.stopped.logical_or_(self.waited >= self.patience)
        return better

    def withdraw(self, members: list[int], since: list[int]) -> None:
        """Stop members; what was selected of one from an epoch on counts for nothing."""
        for member, epoch in zip(members, since, strict=True):
            self.stopped[member] = True
            if self.epoch[member] >= epoch:
                self.loss[member], self.epoch[member] = torch.inf, NONE_YET
                for kept in self.metrics.values():
                    kept[member] = torch.nan

    def state(self) -> dict[str, Tensor]:
        """The tensors themselves, by name."""
        named = {f"metrics.{name}": kept for name, kept in self.metrics.items()}
        return {
            "loss": self.loss,
            "epoch": self.epoch,
            "waited": self.waited,
            "stopped": self.stopped,
            **named,
        }
