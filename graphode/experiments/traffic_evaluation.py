"""The test: the last part of the recording, undersampled anew a number of times."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from graphode.data import TrafficSeries, TrafficWindows
from graphode.experiments.traffic import TrafficForecast
from graphode.experiments.traffic_data import held_out_mask, normalized, windows
from graphode.experiments.traffic_errors import ErrorSums, GroupedSquares, percent_share
from graphode.experiments.traffic_forecasters import Forecaster
from graphode.experiments.traffic_normalization import Normalizer
from graphode.experiments.traffic_objective import windows_at_once

LONGEST_GAP = 24  # longer ones are counted there
PARTS_OF_DAY = 48  # fewer where intervals are longer than half an hour
SHOWN_SENSORS, SHOWN_DAYS = 3, 1


@dataclasses.dataclass(frozen=True)
class Tested:
    """What the test measured.

    Attributes:
        metrics: By name, `[members, masks, queries]`.
        gaps: Squared errors by the time from the last sample to the forecast, over all masks.
        day: By the half-hour of the day, or by the interval, if that is longer.
        mape_share: Of the truths, how many count for MAPE.
        arrays: Forecasts of the first member for some sensors, to be drawn.
    """

    metrics: dict[str, Tensor]
    gaps: GroupedSquares
    day: GroupedSquares
    mape_share: float
    arrays: dict[str, np.ndarray]


class HeldOutData:
    """The windows of every repetition of the test, one after the other.

    Args:
        series: The recording.
        config: The settings.
        normalizers: Of each member.
        device: Where to compute.
    """

    def __init__(
        self,
        series: TrafficSeries,
        config: TrafficForecast,
        normalizers: Sequence[Normalizer],
        device: torch.device,
    ) -> None:
        self.series, self.config, self.device = series, config, device
        self.normalizers = [own.to(device) for own in normalizers]
        self.speeds = series.speeds.to(device)
        self.observed = None if series.observed is None else series.observed.to(device)
        self.z = [normalized(series, own).to(device) for own in normalizers]

    def of_mask(self, number: int) -> list[TrafficWindows]:
        """The same windows for each member, who sees the speeds in its own way."""
        kept = held_out_mask(self.series, self.config, number)
        first = windows(self.series, self.config, "test", kept).to(self.device)
        return [dataclasses.replace(first, z=own) for own in self.z]

    def batches(self, members: Sequence[TrafficWindows]) -> Iterator[Tensor]:
        """Numbers of windows, many at a time."""
        each = len(members) * self.series.num_sensors * self.config.hidden
        size = windows_at_once(each, self.device)
        yield from torch.arange(len(members[0]), device=self.device).split(size)

    def truth(self, windows: TrafficWindows, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """What was measured at the queries, and where anything was."""
        queries = windows.queries[rows]
        return self.speeds[queries], None if self.observed is None else self.observed[queries]


@torch.no_grad()
def tested(forecaster: Forecaster, data: HeldOutData) -> Tested:
    """Forecast every window of every mask."""
    members, device = len(data.normalizers), data.device
    gaps = GroupedSquares(members, LONGEST_GAP + 1, device)
    parts = min(PARTS_OF_DAY, data.series.steps_per_day)
    day = GroupedSquares(members, parts, device)
    measured: list[ErrorSums] = []
    arrays: dict[str, np.ndarray] = {}
    for number in range(data.config.num_masks):
        windows = data.of_mask(number)
        own = windows[0]
        sums = ErrorSums((members, own.queries.shape[1], data.series.num_sensors), device)
        shown: list[Tensor] = []
        for rows in data.batches(windows):
            forecast = forecaster(windows, rows)
            truth, mask = data.truth(own, rows)
            sums.add(forecast, truth, mask)
            when = own.times[own.queries[rows]]
            gap = (when - own.times[own.inputs[rows, -1:]]).round()
            # Not a quotient rounded down: a GPU divides by a number through its inverse.
            part = (when % data.series.steps_per_day) * parts // data.series.steps_per_day
            gaps.add(forecast, truth, gap, mask)
            day.add(forecast, truth, part, mask)
            if number == 0:
                shown.append(forecast[0, :, 0])
        measured.append(sums)
        if number == 0:
            arrays = _to_draw(torch.cat(shown), own, data.series)
    found = [sums.metrics() for sums in measured]
    metrics = {name: torch.stack([m[name] for m in found], 1) for name in found[0]}
    return Tested(metrics, gaps, day, percent_share(measured), arrays)


def _to_draw(
    forecast: Tensor, windows: TrafficWindows, series: TrafficSeries
) -> dict[str, np.ndarray]:
    """Forecasts and truth of a lively, a middling and a quiet sensor, for the first days."""
    train = slice(series.split.train.start, series.split.train.stop)
    speeds = series.speeds[train]
    if series.observed is not None:
        speeds = torch.where(series.observed[train], speeds, torch.nan)
    liveliness = (speeds - speeds.nanmean(0)).square().nanmean(0).nan_to_num()
    places = torch.linspace(series.num_sensors - 1, series.num_sensors // 4, SHOWN_SENSORS)
    sensors = liveliness.argsort()[places.round().long()]
    when = windows.times[windows.queries[:, 0]].cpu()
    test = series.split.test
    until = series.times[test.start] + SHOWN_DAYS * series.steps_per_day
    rows = torch.arange(test.start, test.stop)[series.times[test.start : test.stop] < until]
    chosen = when < until
    names = series.sensor_names or range(series.num_sensors)
    return {
        "sensors": np.array([f"{names[k]}" for k in sensors.tolist()]),
        "forecast_times": when[chosen].numpy(),
        "forecasts": forecast.cpu()[chosen][:, sensors].float().numpy(),
        "truth_times": series.times[rows].numpy(),
        "truths": series.speeds[rows][:, sensors].float().numpy(),
    }
