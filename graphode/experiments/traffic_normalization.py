"""Speeds as numbers a network likes: how far they are from what is usual.

    z = (speed − usual) / std

overall      usual is the mean of all speeds (the paper's data is standardised so)
per_sensor   the mean of the sensor, and std its own
usual        the sensor's average around the time of day; std that of the rest, over all

All of it is measured on training data that was kept, and on no other.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.data import Standardizer, TrafficSeries
from graphode.data.traffic_windows import check_observed

Normalization = Literal["overall", "per_sensor", "usual"]
SMOOTHED_HOURS = 1.5  # averages of a few days are noisy from one interval to the next


@dataclasses.dataclass(frozen=True)
class Normalizer:
    """What is usual at each time of day, and how far speeds are from it.

    Args:
        usual: `[slots, sensors]`, a slot for each interval of the day, or one for all.
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
        usual = daily_averages(series, kept, SMOOTHED_HOURS)
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
        slot = (times % self.steps_per_day).long()
        return self.usual[slot if len(self.usual) > 1 else torch.zeros_like(slot)]

    def to(self, device: torch.device | str) -> Normalizer:
        """The same on another device."""
        return dataclasses.replace(self, usual=self.usual.to(device), std=self.std.to(device))


def daily_averages(
    series: TrafficSeries, kept: Tensor, hours: float = 0.0
) -> Float[Tensor, "slots sensors"]:
    """The mean of each sensor around each time of day, over the training rows that were kept.

        usual(s) = Σ w(d) sum(s + d) / Σ w(d) count(s + d),    w(d) = max(0, 1 − |d| / half)

    Sums and counts of an interval are over the days, d is counted in intervals, half of `hours` is
    `half` of them, at least one, and the day is a circle. The weights fall to
    0, so that what enters and leaves from one interval to the next hardly counts: where all had
    the same weight the means would jitter, and with them every forecast for a time whose own
    interval was never seen.

    Times of day around which nothing was seen have the sensor's mean over all times.

    Args:
        hours: Length of the stretch around each interval that counts; 0 for the interval alone.
    """
    span = series.split.train
    rows = torch.arange(span.start, span.stop)[kept[span.start : span.stop]]
    speeds = series.speeds[rows].double()
    there = torch.ones_like(speeds)
    if series.observed is not None:
        there = series.observed[rows].double()
        speeds = torch.where(there > 0, speeds, 0.0)
    slot = (series.times[rows] % series.steps_per_day).long()
    sums = speeds.new_zeros(2, series.steps_per_day, series.num_sensors)
    sums[0].index_add_(0, slot, speeds)
    sums[1].index_add_(0, slot, there)
    half = max(1.0, hours / 24 * series.steps_per_day / 2)
    reach = math.ceil(half) - 1
    # Sums are added up, and counts, so that an interval counts by how often it was seen.
    total, count = torch.stack(
        [(1 - abs(d) / half) * sums.roll(d, 1) for d in range(-reach, reach + 1)]
    ).sum(0)
    check_observed(there.sum(0), series.sensor_names)
    overall = speeds.sum(0) / there.sum(0)
    seen = count > 0
    usual = torch.where(seen, total / torch.where(seen, count, 1.0), overall)
    return usual.to(series.speeds.dtype)
