"""Speeds as numbers a network likes: how far they are from what is usual.

    z = (speed − usual) / std

overall      usual is the mean of all speeds (the paper's data is standardised so)
per_sensor   the mean of the sensor, and std its own
usual        the sensor's average at the time of day, smoothed; std that of the rest, over all

All of it is measured on training data that was kept, and on no other.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.data import Standardizer, TrafficSeries

Normalization = Literal["overall", "per_sensor", "usual"]
SMOOTHED_HOURS = 1.0  # averages of a few days are noisy from one interval to the next


@dataclasses.dataclass(frozen=True)
class Normalizer:
    """What is usual at each time of day, and how far speeds are from it.

    Args:
        usual: `[slots, sensors]`, slots of equal length from midnight to midnight.
        std: `[sensors]`
        steps_per_day: Intervals in a day.
    """

    usual: Float[Tensor, "slots sensors"]
    std: Float[Tensor, " sensors"]
    steps_per_day: int

    @classmethod
    def fit(cls, series: TrafficSeries, kept: Tensor, kind: Normalization) -> Normalizer:
        """Of the training rows that were kept."""
        if kind != "usual":
            found = Standardizer.fit(series, kept, per_sensor=kind == "per_sensor")
            usual = found.mean.expand(1, series.num_sensors)
            return cls(usual, found.std.expand(series.num_sensors), series.steps_per_day)
        usual = smoothed(daily_averages(series, kept), SMOOTHED_HOURS / 24)
        around = cls(usual, torch.ones(series.num_sensors), series.steps_per_day)
        rest = dataclasses.replace(series, speeds=around.standardize(series.speeds, series.times))
        std = Standardizer.fit(rest, kept).std
        return cls(usual, std.expand(series.num_sensors), series.steps_per_day)

    def standardize(self, speeds: Tensor, times: Tensor) -> Tensor:
        """Speeds `[*times, sensors]` to z."""
        return (speeds - self._at(times)) / self.std

    def restore(self, z: Tensor, times: Tensor, sensors: Tensor | None = None) -> Tensor:
        """z `[*times, sensors]` to speeds; of some sensors only, if they are named."""
        usual, std = self._at(times), self.std
        if sensors is not None:
            usual, std = usual[..., sensors], std[sensors]
        return z * std + usual

    def _at(self, times: Tensor) -> Tensor:
        share = times % self.steps_per_day / self.steps_per_day
        return self.usual[(share * len(self.usual)).long()]

    def to(self, device: torch.device | str) -> Normalizer:
        """The same on another device."""
        return dataclasses.replace(self, usual=self.usual.to(device), std=self.std.to(device))


def daily_averages(series: TrafficSeries, kept: Tensor) -> Float[Tensor, "slots sensors"]:
    """The mean of each sensor in each interval of the day, over the training rows that were kept.

    An interval never seen has the sensor's mean over all of them.
    """
    span = series.split.train
    rows = torch.arange(span.start, span.stop)[kept[span.start : span.stop]]
    speeds = series.speeds[rows].double()
    there = torch.ones_like(speeds)
    if series.observed is not None:
        there = series.observed[rows].double()
        speeds = torch.where(there > 0, speeds, 0.0)
    slot = (series.times[rows] % series.steps_per_day).long()
    total, count = speeds.new_zeros(2, series.steps_per_day, series.num_sensors)
    total.index_add_(0, slot, speeds)
    count.index_add_(0, slot, there)
    overall = speeds.sum(0) / there.sum(0).clamp(min=1)
    return torch.where(count > 0, total / count.clamp(min=1), overall).to(series.speeds.dtype)


def smoothed(averages: Float[Tensor, "slots sensors"], share: float) -> Tensor:
    """The mean over a share of the day around each slot; the day is a circle."""
    reach = round(share * len(averages) / 2)
    return torch.stack([averages.roll(k, 0) for k in range(-reach, reach + 1)]).mean(0)
