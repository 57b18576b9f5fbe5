"""What forecasting members are trained for: the squared error of standardised speeds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from graphode.data import TrafficSeries, TrafficWindows
from graphode.experiments.traffic import TrafficForecast
from graphode.experiments.traffic_data import MemberBatch, MemberData
from graphode.graphs import Graph

# Numbers in the states of an evaluation's batch: as many as a cache, or a GPU, is happy with.
STATE_SIZE = {"cpu": 2**21, "cuda": 2**26}


class TrafficObjective:
    """Windows of each member, in an order of its own, and the errors on them.

    A `BatchedObjective`: an epoch has as many batches as the windows of a typical member fill,
    whoever is trained beside it. A member with more leaves some out of an epoch, one with fewer
    begins again.

    Args:
        data: What each member sees.
        graph: Normalised, on the device.
        config: The settings.
        windows: Of a typical member.
    """

    measures: tuple[str, ...] = ("validation_loss", "validation_rmse")

    def __init__(
        self, data: MemberData, graph: Graph, config: TrafficForecast, windows: int
    ) -> None:
        self.data, self.graph = data, graph
        self.hidden, self.time_unit = config.hidden, config.time_unit
        # STGCN's horizons count alike; after a window's next sample comes what else it asks for.
        self.later = 1.0 if config.protocol == "stgcn" else config.later
        device = data.train[0].inputs.device
        size = min(config.batch_size, windows)
        self.num_batches = max(1, windows // size)
        counts = [(len(data.seeds), self.num_batches, size), (len(data.seeds), size)]
        self.order, self.rows = (
            torch.zeros(shape, dtype=torch.int64, device=device) for shape in counts
        )
        self.turn(0, 0)

    def turn(self, epoch: int, batch: int) -> None:
        """Put the windows of a batch into place; a new order at the first of an epoch."""
        if batch == 0:
            self.order.copy_(torch.stack([self._drawn(k, epoch) for k in range(len(self.order))]))
        self.rows.copy_(self.order[:, batch])

    def _drawn(self, member: int, epoch: int) -> Tensor:
        """A member's windows in the order of an epoch, `[batches, size]`."""
        windows, wanted = len(self.data.train[member]), self.order[0].numel()
        random = np.random.default_rng([self.data.seeds[member], epoch])
        rounds = [random.permutation(windows) for _ in range(math.ceil(wanted / windows))]
        return torch.from_numpy(np.concatenate(rounds)[:wanted]).reshape(self.order[0].shape)

    def loss(self, ensemble: nn.Module) -> Tensor:
        """The mean squared error of the present batch over its queries, `[members]`."""
        batch = MemberBatch.gather(self.data.train, self.rows, self.time_unit)
        squares = (batch.forecast(ensemble, self.graph) - batch.targets).square()
        mask = batch.target_mask
        first, *others = (
            _mean(squares[:, :, k], None if mask is None else mask[:, :, k])
            for k in range(squares.shape[2])
        )
        return (first + self.later * sum(others)) / (1 + self.later * len(others))

    def measure(self, ensemble: nn.Module) -> dict[str, Tensor]:
        """Error on the validation data, standardised and in the unit of the speeds."""
        total = torch.zeros(len(self.data.seeds), dtype=torch.float64, device=self.rows.device)
        count, total_unit = torch.zeros_like(total), torch.zeros_like(total)
        scale = torch.stack([own.std for own in self.data.normalizers])[:, None, None]
        for rows, inside in member_rows(self.data.val, self.hidden):
            batch = MemberBatch.gather(self.data.val, rows, self.time_unit)
            squares = (batch.forecast(ensemble, self.graph) - batch.targets).square().double()
            weight = inside[:, :, None, None].to(squares).expand_as(squares)
            if batch.target_mask is not None:
                weight = weight * batch.target_mask
            total += (squares * weight).sum((1, 2, 3))
            total_unit += (squares * scale.square() * weight).sum((1, 2, 3))
            count += weight.sum((1, 2, 3))
        return {
            "validation_loss": total / count,
            "validation_rmse": (total_unit / count).sqrt(),
        }


@dataclasses.dataclass
class TrafficTask:
    """Makes the objective of any members of a run; what `train` is given.

    Args:
        series: The recording.
        config: The settings.
        graph: Normalised, on the device.
    """

    series: TrafficSeries
    config: TrafficForecast
    graph: Graph
    device: torch.device
    measures: tuple[str, ...] = TrafficObjective.measures

    def for_members(self, seeds: Sequence[int]) -> TrafficObjective:
        """The objective of these members."""
        data = MemberData.of(self.series, self.config, seeds, self.device)
        span = self.series.split.train
        typical = round(self.config.keep * int(self.series.samples[span.start : span.stop].sum()))
        if self.config.protocol == "unseen_times":
            typical //= 2
        if self.config.protocol == "stgcn":
            typical = min(map(len, data.train))  # nothing is dropped: the same for all
        return TrafficObjective(data, self.graph, self.config, typical)

    def loss(self, ensemble: nn.Module) -> Tensor:
        """Of a first batch of an ensemble, to see what it costs."""
        return self._of(ensemble).loss(ensemble)

    def measure(self, ensemble: nn.Module) -> dict[str, Tensor]:
        """Error of an ensemble on its validation data."""
        return self._of(ensemble).measure(ensemble)

    def _of(self, ensemble: nn.Module) -> TrafficObjective:
        return self.for_members(torch.as_tensor(ensemble.seeds).tolist())


def member_rows(windows: Sequence[TrafficWindows], hidden: int) -> list[tuple[Tensor, Tensor]]:
    """All windows of each member in large batches: their numbers, and which are really there.

    Returns:
        Pairs of `[members, batch]`; a member with fewer windows repeats its last.
    """
    device, sensors = windows[0].inputs.device, windows[0].z.shape[1]
    counts = torch.tensor([len(own) for own in windows], device=device)[:, None]
    size = windows_at_once(len(windows) * sensors * hidden, device)
    parts = torch.arange(max(map(len, windows)), device=device).split(size)
    return [(torch.minimum(part, counts - 1), part < counts) for part in parts]


def windows_at_once(state_size: int, device: torch.device) -> int:
    """Windows of a batch in evaluation, from the size of one window's states."""
    return max(1, STATE_SIZE.get(device.type, STATE_SIZE["cpu"]) // state_size)


def _mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """Over all but the members."""
    if mask is None:
        return values.flatten(1).mean(1)
    weight = mask.to(values)
    return (values * weight).flatten(1).sum(1) / weight.flatten(1).sum(1).clamp(min=1)
