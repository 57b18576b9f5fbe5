"""Errors of forecasts, as sums that batches add to: by sensor, by gap, by time of day.

    MAPE, ordinary   100 / (pT) Σ_t Σ_i |y_ti − ŷ_ti| / |y_ti|
    MAPE, printed    100 / (pT) Σ_i |Σ_t (y_ti − ŷ_ti) / y_ti|
    RMSE, global     √(1 / (pT) Σ_t Σ_i (y_ti − ŷ_ti)²)
    RMSE, printed    1 / p Σ_i √(1 / T Σ_t (y_ti − ŷ_ti)²)

p sensors, T times. The paper prints the second and the fourth: in the second, errors of one sign
cancel those of the other. Truths under 1, of which a percentage says nothing, are left out of both
MAPE.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

SMALLEST = 1.0
METRICS = ("rmse", "rmse_per_sensor", "mae", "mape", "mape_printed")


class ErrorSums:
    """Sums over windows, for each member, query and sensor.

    Args:
        shape: `[members, queries, sensors]`
    """

    def __init__(self, shape: tuple[int, int, int], device: torch.device | str) -> None:
        names = ("count", "square", "absolute", "percent", "signed", "percent_count")
        zeros = torch.zeros(len(names), *shape, dtype=torch.float64, device=device)
        self.sums: dict[str, Tensor] = dict(zip(names, zeros, strict=True))

    def add(self, forecast: Tensor, truth: Tensor, mask: Tensor | None = None) -> None:
        """Add a batch.

        Shapes:
            - **forecast:** `[members, batch, queries, sensors]`
            - **truth, mask:** `[batch, queries, sensors]`; mask is False where nothing was measured
        """
        truth = truth.double()
        error = truth - forecast.double()
        there = torch.ones_like(truth) if mask is None else mask.to(truth)
        error = torch.where(there > 0, error, 0.0)
        counts = there * (truth.abs() >= SMALLEST)
        relative = torch.where(counts > 0, error / truth, 0.0)
        self._add("count", there)
        self._add("square", error.square())
        self._add("absolute", error.abs())
        self._add("percent", relative.abs())
        self._add("signed", relative)
        self._add("percent_count", counts)

    def _add(self, name: str, values: Tensor) -> None:
        self.sums[name] += values.sum(-3)

    def metrics(self) -> dict[str, Tensor]:
        """Each of `METRICS`, `[members, queries]`."""
        sums = self.sums
        count, percents = sums["count"].sum(-1), sums["percent_count"].sum(-1)
        seen = sums["count"] > 0
        root = (sums["square"] / sums["count"].clamp(min=1)).sqrt()
        bias = sums["signed"].abs() / sums["percent_count"].clamp(min=1)
        measured = sums["percent_count"] > 0
        return {
            "rmse": (sums["square"].sum(-1) / count).sqrt(),
            "rmse_per_sensor": (root * seen).sum(-1) / seen.sum(-1),
            "mae": sums["absolute"].sum(-1) / count,
            "mape": 100 * sums["percent"].sum(-1) / percents,
            "mape_printed": 100 * (bias * measured).sum(-1) / measured.sum(-1),
        }


def percent_share(parts: Sequence[ErrorSums]) -> float:
    """How many of all truths count for MAPE, as a share."""
    counted, all_of_them = (
        sum(float(part.sums[name].sum()) for part in parts) for name in ("percent_count", "count")
    )
    return counted / max(all_of_them, 1.0)


class GroupedSquares:
    """Sums of squared errors in groups of windows, such as those of one gap.

    Args:
        members: How many.
        groups: Number of the last group and 1; larger numbers go to the last.
    """

    def __init__(self, members: int, groups: int, device: torch.device | str) -> None:
        self.squares = torch.zeros(members, groups, dtype=torch.float64, device=device)
        self.counts = torch.zeros_like(self.squares)

    def add(
        self, forecast: Tensor, truth: Tensor, group: Tensor, mask: Tensor | None = None
    ) -> None:
        """Add a batch; shapes as for `ErrorSums`, **group:** `[batch, queries]`."""
        error = (forecast - truth).double()
        there = torch.ones_like(truth, dtype=torch.float64) if mask is None else mask.double()
        squares = torch.where(there > 0, error, 0.0).square().sum(-1).flatten(1)
        counts = there.sum(-1).flatten().expand_as(squares)
        place = group.flatten().long().clamp(0, self.squares.shape[1] - 1)
        self.squares.index_add_(1, place, squares)
        self.counts.index_add_(1, place, counts)
