"""Who forecasts: trained members, persistence, or the average of the past.

A forecaster is called with windows of each member and the numbers of some of them, and answers in
the unit of the speeds, `[members, batch, queries, sensors]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from graphode.data import TrafficSeries, TrafficWindows
from graphode.experiments.traffic_data import MemberBatch
from graphode.experiments.traffic_normalization import Normalizer, daily_averages
from graphode.graphs import Graph


@runtime_checkable
class Forecaster(Protocol):
    """From windows to forecasts."""

    def __call__(self, windows: Sequence[TrafficWindows], rows: Tensor) -> Tensor:
        """Forecasts of the windows `rows [batch]`, of each member."""
        ...


class MemberForecaster:
    """The members of an ensemble.

    Args:
        ensemble: Trained, on the device of the windows.
        graph: Normalised.
        normalizers: Of each member, on the device.
        time_unit: Of the flow, in intervals.
    """

    def __init__(
        self,
        ensemble: nn.Module,
        graph: Graph,
        normalizers: Sequence[Normalizer],
        time_unit: float,
    ) -> None:
        self.ensemble, self.graph, self.time_unit = ensemble.eval(), graph, time_unit
        self.normalizers = list(normalizers)

    def __call__(self, windows: Sequence[TrafficWindows], rows: Tensor) -> Tensor:
        """What the members say."""
        batch = self.gather(windows, rows)
        return self.restored(batch.forecast(self.ensemble, self.graph), batch.moments)

    def gather(self, windows: Sequence[TrafficWindows], rows: Tensor) -> MemberBatch:
        """The same windows of each member."""
        return MemberBatch.gather(windows, rows.expand(len(windows), -1), self.time_unit)

    def restored(self, z: Tensor, times: Tensor, sensors: Tensor | None = None) -> Tensor:
        """Speeds from what the members say `[members, batch, queries, sensors]`."""
        parts = zip(self.normalizers, z, times, strict=True)
        return torch.stack([own.restore(part, when, sensors) for own, part, when in parts])


class Persistence:
    """The last observation of each sensor; its training mean if none is in the window.

    Args:
        series: The recording, on the device of the windows.
    """

    def __init__(self, series: TrafficSeries, device: torch.device) -> None:
        self.speeds = series.speeds.to(device)
        self.observed = None if series.observed is None else series.observed.to(device)
        every = torch.ones(series.num_steps, dtype=torch.bool)
        self.means = Normalizer.fit(series, every, "per_sensor").usual[0].to(device)

    def __call__(self, windows: Sequence[TrafficWindows], rows: Tensor) -> Tensor:
        """The same for all members and queries."""
        inputs, queries = windows[0].inputs[rows], windows[0].queries[rows]
        shape = (len(windows), *queries.shape, self.speeds.shape[1])
        if self.observed is None:
            return self.speeds[inputs[:, -1]][:, None].expand(shape)
        steps = torch.arange(1, inputs.shape[1] + 1, device=rows.device)[:, None]
        latest = torch.where(self.observed[inputs], steps, 0).amax(1)  # [batch, sensors]
        found = self.speeds[inputs].gather(1, (latest - 1).clamp(min=0)[:, None])
        known = torch.where(latest > 0, found[:, 0], self.means)
        return known[:, None].expand(shape)


class HistoricalAverage:
    """The mean of each sensor at the time of day, over the training data that a member has seen.

    Args:
        series: The recording.
        masks: Which timestamps each member has seen.
        device: Of the windows.
    """

    def __init__(
        self, series: TrafficSeries, masks: Sequence[Tensor], device: torch.device
    ) -> None:
        averages = [daily_averages(series, kept) for kept in masks]
        ones = torch.ones(series.num_sensors)
        self.usual = [
            Normalizer(average, ones, series.steps_per_day).to(device) for average in averages
        ]

    def __call__(self, windows: Sequence[TrafficWindows], rows: Tensor) -> Tensor:
        """The average at the time of each query."""
        times = windows[0].times[windows[0].queries[rows]]
        zero = torch.zeros(*times.shape, windows[0].z.shape[1]).to(windows[0].z)
        return torch.stack([own.restore(zero, times) for own in self.usual])
