"""A recording of many sensors over time: what was measured, and which part is for what."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

STEPS_PER_DAY = 288  # 5-minute intervals


@dataclasses.dataclass(frozen=True)
class TimeSplit:
    """Consecutive stretches of time, as rows of the recording; none overlaps another."""

    train: range
    val: range
    test: range


def split_by_fractions(num_steps: int, fractions: Sequence[float] = (0.6, 0.2, 0.2)) -> TimeSplit:
    """The first rows for training, the next for validation, the last for test."""
    if len(fractions) != 3 or min(fractions) <= 0 or not math.isclose(sum(fractions), 1.0):
        raise ValueError(
            f"`fractions` must be three positive numbers that sum to 1, but are {list(fractions)}."
        )
    return _consecutive(
        num_steps, round(fractions[0] * num_steps), round(fractions[1] * num_steps), None
    )


def split_by_days(
    num_steps: int, days: Sequence[int] = (34, 5, 5), steps_per_day: int = STEPS_PER_DAY
) -> TimeSplit:
    """Whole days for training, validation and test; 34, 5 and 5 are STGCN's for PeMSD7(M)."""
    if len(days) != 3 or min(days) < 1 or sum(days) * steps_per_day > num_steps:
        raise ValueError(
            f"`days` must be three positive numbers of days, {num_steps / steps_per_day:g} in all "
            f"at most, but are {list(days)}."
        )
    return _consecutive(num_steps, *(steps_per_day * count for count in days))


def _consecutive(num_steps: int, train: int, val: int, test: int | None) -> TimeSplit:
    end = num_steps if test is None else train + val + test
    return TimeSplit(range(train), range(train, train + val), range(train + val, end))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrafficSeries:
    """Speeds at sensors, in their own unit, with the distances between the sensors.

    Args:
        name: Of the data set.
        speeds: `[time, sensors]`; finite where `observed`.
        times: When each row was taken, in intervals since midnight of the first day, strictly
            increasing; `regular_times` where no row is missing.
        split: The division in time; `split_by_fractions` and `split_by_days` make one.
        distances: `[sensors, sensors]`, symmetric or not; infinite between sensors that have no
            way; None if they are not known.
        observed: Which speeds were measured; None if all were. The others are not looked at.
        steps_per_day: Intervals in a day.
        stretches: A number for each row; no window has rows of different numbers. None: one
            stretch. PeMSD7(M) lacks weekends, so that each of its weeks is a stretch.
        origin: Midnight of the first day by the clock, where the rows have dates.
        offsets: Minutes that the clock is ahead of UTC at each row, where that is known.
        sensor_names: Of the columns, where they have names.
        readings: Lines of the table, if it had one for each reading; None if one for each row.
        checksums: sha256 of every file that was read, by name.

    Shapes:
        speeds, observed: `[time, sensors]`; times, stretches, offsets: `[time]`.
    """

    name: str
    speeds: Float[Tensor, "time sensors"]
    times: Float[Tensor, " time"]
    split: TimeSplit
    distances: Float[Tensor, "sensors sensors"] | None = None
    observed: Bool[Tensor, "time sensors"] | None = None
    steps_per_day: int = STEPS_PER_DAY
    stretches: Tensor | None = None
    origin: np.datetime64 | None = None
    offsets: Float[Tensor, " time"] | None = None
    sensor_names: Sequence[str] | None = None
    readings: int | None = None
    checksums: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        steps, sensors = self.speeds.shape
        check_times(self.times, steps)
        finite = torch.isfinite(self.speeds)
        wrong = ~finite if self.observed is None else self.observed & ~finite
        if bool(wrong.any()):
            step, sensor = wrong.nonzero()[0].tolist()
            raise ValueError(
                f"`speeds` must be finite where they were observed, but at step {step}, sensor "
                f"{sensor} the speed is {self.speeds[step, sensor].item()}; {int(wrong.sum())} of "
                f"{wrong.numel()} are so. Give `observed`, False where nothing was measured "
                '(`missing="mask"` when reading a table).'
            )
        if self.distances is not None and self.distances.shape != (sensors, sensors):
            raise ValueError(
                f"`distances` must be {sensors} × {sensors}, a row and a column for each sensor, "
                f"but is {' × '.join(map(str, self.distances.shape))}. The table of speeds and the "
                "distances are of different sensors."
            )

    @property
    def num_steps(self) -> int:
        """Rows of the recording."""
        return self.speeds.shape[0]

    @property
    def num_sensors(self) -> int:
        """Columns of the recording."""
        return self.speeds.shape[1]

    @property
    def samples(self) -> Bool[Tensor, " time"]:
        """Which rows have a speed at any sensor; the others say nothing `[time]`."""
        if self.observed is None:
            return torch.ones(self.num_steps, dtype=torch.bool)
        return self.observed.any(1)

    @property
    def days(self) -> Tensor:
        """The day of each row, 0 for the first `[time]`."""
        return self.times.div(self.steps_per_day).floor().long()


def regular_times(steps: int) -> Float[Tensor, " time"]:
    """0, 1, 2, …: a row in every interval, from midnight on."""
    return torch.arange(steps, dtype=torch.float64)


def check_times(times: Tensor, steps: int) -> None:
    """Refuse times that are not one for each row, or do not increase."""
    if times.shape != (steps,):
        raise ValueError(
            f"`times` must have shape [{steps}], one for each row, but it is {list(times.shape)}."
        )
    later = times.diff() > 0
    if not bool(later.all()):
        step = int((~later).nonzero()[0]) + 1
        before, now = times[step - 1].item(), times[step].item()
        what = "repeats" if now == before else "comes before"
        raise ValueError(
            f"`times` must increase strictly, but row {step} ({now:g}) {what} the row before it "
            f'({before:g}). Sort the rows, and merge those of one time (`duplicates="mean"` when '
            "reading a table)."
        )
