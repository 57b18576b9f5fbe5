"""By which clock the rows of a table are dated, and whether it is that of a run."""

import datetime

import numpy as np
import pandas as pd

from graphode.data import TrafficSeries
from graphode.data.row_times import offset_written

SECONDS_PER_DAY = 86_400


def moment(series: TrafficSeries, row: int) -> pd.Timestamp | None:
    """When a row was taken, by its clock, with its offset if known; None without times."""
    if series.origin is None:
        return None
    days = series.times[row].item() / series.steps_per_day
    if series.stretches is not None:  # of a file, each lies a day later than it was
        days -= series.stretches[row].item()
    passed = np.timedelta64(round(SECONDS_PER_DAY * days), "s")
    shown = pd.Timestamp(str(series.origin.astype("datetime64[s]") + passed))
    if series.offsets is not None:
        ahead = datetime.timedelta(minutes=series.offsets[row].item())
        shown = shown.tz_localize(datetime.timezone(ahead))
    return shown  # pyright: ignore[reportReturnType]


def offsets(series: TrafficSeries) -> list[float]:
    """Minutes that the clock was ahead of UTC, now and then; none where nobody knows."""
    return [] if series.offsets is None else series.offsets.unique().tolist()


def other_clock(series: TrafficSeries, row: int, known: list[float]) -> str | None:
    """A warning where the time of day of a row may not be what it was in training.

    Args:
        known: The `offsets` of the rows in training.
    """
    now = [] if series.offsets is None else [series.offsets[row].item()]
    if series.origin is None or (set(now) <= set(known) and len(now) == min(len(known), 1)):
        return None
    return (
        f"Warning: these dates have {_shown(now)}, those that the run was trained with "
        f"{_shown(known)}. The time of day is taken from the clock as it is written: it must be "
        "the same clock for what is usual to be that of the hour."
    )


def _shown(minutes: list[float]) -> str:
    if not minutes:
        return "no offset from UTC"
    return " and ".join(offset_written(round(ahead)) for ahead in minutes)
