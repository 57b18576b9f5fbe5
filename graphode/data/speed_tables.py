"""Tables of speeds, time × sensors, from CSV, npz and parquet files.

A CSV may have a line of names at its head and a column of times at its left (`time_columns` says
when it is one), or be numbers alone, as PeMSD7(M) is. An npz holds one array, or the one named by
`key` (`npz_tables`). A CSV or parquet may also be long, a line for each reading (`long_tables` says
when); its rows are the distinct times.
"""

import dataclasses
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from graphode.data.csv_tables import is_number, read_csv
from graphode.data.long_tables import Readings, find_sensors, is_sensor_name
from graphode.data.npz_tables import npz_table
from graphode.data.row_times import RowTimes, means_by_time
from graphode.data.store import file_sha256
from graphode.data.time_columns import (
    MINUTES_PER_DAY,
    TIMES_AS_LARGE,
    check_interval,
    find_times,
    is_date,
    is_time_name,
    usual_minutes,
)
from graphode.data.traffic_series import TrafficSeries, regular_times, split_by_fractions


@dataclasses.dataclass(frozen=True)
class SpeedTable:
    """A table as it stands in its file.

    Args:
        values: `[time, sensors]`, NaN where a cell is empty.
        times: Of the rows, if the file has them.
        names: Of the columns, if the file has them.
        readings: Where the file is long, its lines, of which the rows are made.
    """

    values: np.ndarray
    times: RowTimes | None = None
    names: tuple[str, ...] | None = None
    readings: Readings | None = None

    def place(self, row: int, column: int) -> str:
        """A cell, in words."""
        sensor = f"{column}" if self.names is None else f"{self.names[column]!r}"
        # Of a CSV, where lines are counted from 1 and names are the first.
        line = f"line {row + 1 + (self.names is not None)}"
        return f"sensor {sensor} at {line if self.times is None else self.times.shown(row)}"

    @property
    def between(self) -> np.ndarray:
        """Times from row to row, or from each reading of a sensor to the next."""
        assert self.times is not None
        return np.diff(self.times.elapsed) if self.readings is None else self.readings.between


def read_speeds(
    path: Path | str,
    distances: Tensor | None = None,
    key: str | None = None,
    channel: int | None = None,
    scale: float = 1.0,
    missing: Literal["refuse", "mask"] = "refuse",
    duplicates: Literal["refuse", "mean"] = "refuse",
    interval_minutes: float | None = None,
) -> TrafficSeries:
    """A recording from a file.

    Args:
        path: `.csv`, `.npz`, or `.parquet` (which needs pyarrow).
        distances: Between the sensors, in the order of the columns; see `read_distances`.
        key: The array of an npz that holds several.
        channel: Of an array `[time, sensors, channels]` of an npz, from 0; 2 of PEMS08.npz.
        scale: Multiplies the numbers, 0.1 for tenths.
        missing: What to do with empty cells and NaN: refuse them, or leave them out of
            `observed`.
        duplicates: What to do with rows of one time: refuse them, or take their mean. Of a long
            table with lines of one time and sensor.
        interval_minutes: The unit of time, which divides a day; by default the median distance
            between rows, or between the lines of a sensor, rounded to a usual interval (1, 2, 3, 4,
            5, 6, 10, 12, 15, 20, 30 minutes …) within 10 %, or 5 minutes where the table has no
            times.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind in (".csv", ".parquet") and (key, channel) != (None, None):
        raise ValueError(
            f"`key` and `channel` choose from an npz, but {path.name} is none. Leave them out."
        )
    if kind == ".npz":
        table = SpeedTable(npz_table(path, key, channel))
    elif kind in (".csv", ".parquet"):
        table = _columns(path)
    else:
        raise ValueError(
            f"{path.name} must be one of .csv, .npz and .parquet, by its ending, but ends in "
            f"{path.suffix!r}."
        )
    if table.readings is not None:
        table.readings.check_order(may_repeat=duplicates == "mean")
    elif table.times is not None:
        table.times.check_order(path.name, may_repeat=duplicates == "mean")
        if duplicates == "mean":
            count = table.values.shape[1]
            values, merged = means_by_time(table.values, np.arange(count), count, table.times)
            table = dataclasses.replace(table, values=values, times=merged)
    if missing == "refuse":
        _refuse_empty(table, path.name)
    minutes = interval_minutes
    if minutes is None:
        minutes = 5.0 if table.times is None else usual_minutes(table.between)
    check_interval(minutes, path.name)
    times, stretches, origin, offsets = regular_times(len(table.values)), None, None, None
    if table.times is not None:
        times = torch.from_numpy(table.times.axis(minutes))
        origin = table.times.clock[0].astype("datetime64[D]")
        if table.times.stretches[-1]:
            stretches = torch.from_numpy(table.times.stretches)
        if table.times.offsets is not None:
            offsets = torch.from_numpy(table.times.offsets)
    speeds = torch.from_numpy(table.values * scale).to(torch.get_default_dtype())
    return TrafficSeries(
        name=path.stem,
        speeds=speeds,
        times=times,
        split=split_by_fractions(len(speeds)),
        distances=distances,
        observed=None if missing == "refuse" else torch.isfinite(speeds),
        steps_per_day=round(MINUTES_PER_DAY / minutes),
        stretches=stretches,
        origin=origin,
        offsets=offsets,
        sensor_names=table.names,
        readings=None if table.readings is None else len(table.readings.values),
        checksums={path.name: file_sha256(path)},
    )


def _refuse_empty(table: SpeedTable, file: str) -> None:
    wrong = ~np.isfinite(table.values)
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise ValueError(
            f"{file} must hold a speed in every cell, but {table.place(row, column)} has none; "
            f"{int(wrong.sum())} of {wrong.size} cells are so. Fill them, or leave them out of "
            'training and test with --missing mask (in Python `missing="mask"`).'
        )


def _columns(path: Path) -> SpeedTable:
    is_csv = path.suffix.lower() == ".csv"
    table, named = _read_csv(path) if is_csv else (_read_parquet(path), True)
    if not len(table):
        raise ValueError(f"{path.name} must hold speeds, a row for each time, but has no row.")
    right = table.iloc[:, 1:]
    for name in right.columns:
        if is_time_name(name):
            raise ValueError(
                f"The time of {path.name} must be one column, the first, but {name!r} comes after "
                f"{table.columns[0]!r}. Put it first, date and time in one cell: 2024-05-06 00:05."
            )
    times = find_times(
        table.iloc[:, 0], right.select_dtypes("number").to_numpy(dtype=np.float64), path.name
    )
    if times is not None:
        table = right
    sensor = None if times is None else find_sensors(table, times, path.name)
    if sensor is not None:
        table = right.drop(columns=[sensor])
    if not table.size:
        raise ValueError(f"{path.name} must hold speeds, a column for each sensor, but has none.")
    for name in table.columns:
        if not pd.api.types.is_numeric_dtype(table[name]):
            cells = table[name].tolist()
            row = next((k for k, cell in enumerate(cells) if not is_number(cell)), 0)
            when = f"line {row + 1 + named}" if times is None else f"the row of {times.shown(row)}"
            raise ValueError(
                f"Column {name!r} of {path.name} must hold numbers, but in {when} it holds "
                f"{cells[row]!r}."
                + " A table with a line for each reading has three columns: time, sensor and value."
                * (sensor is None)
            )
    if sensor is not None and times is not None:
        readings = Readings.of(table.iloc[:, 0], right[sensor], times, path.name)
        return SpeedTable(*readings.rows(), readings.names, readings)
    names = tuple(str(name).strip() for name in table.columns) if named else None
    values = table.to_numpy(dtype=np.float64)
    if names is None and times is None:
        _refuse_hidden_names(values, path.name)
    return SpeedTable(values, times, names)


def _refuse_hidden_names(values: np.ndarray, file: str) -> None:
    """Refuse a first line that is numbers, as speeds are, but counts columns or numbers sensors."""
    first, rest = values[0], values[1:]
    rest = np.abs(rest[np.isfinite(rest)])
    counts = len(first) > 2 and first[0] in (0, 1) and bool((np.diff(first) == 1).all())
    whole = bool((first == np.round(first)).all())
    huge = whole and rest.size and first.min() > TIMES_AS_LARGE * max(np.median(rest), 1.0)
    if counts or huge:
        why = "counts the columns" if counts else "is far larger than all below it"
        shown = ", ".join(f"{cell:.12g}" for cell in first[:3]) + ", …" * (len(first) > 3)
        raise ValueError(
            f"The first line of {file}, {shown}, {why}: names, not speeds. Delete it, or put a "
            "column of times at the left, beside which numbers are names. If it is speeds, put a "
            "line of names before it."
        )


def _read_csv(path: Path) -> tuple[pd.DataFrame, bool]:
    """The table, and whether its first line is names."""
    content = path.read_bytes()
    top = read_csv(content, path.name, header=None, nrows=2, dtype=str)
    corner, *others = top.iloc[0].tolist()
    named = not all(is_number(cell) for cell in others)
    # Sensors may be named by numbers; then the corner tells, or what stands under it.
    if not named and not is_number(corner):
        named = not is_date(corner)
    elif not named and pd.isna(corner) and len(top) > 1:
        named = not is_number(top.iloc[1, 0])
    if named:
        if is_date(corner):
            raise ValueError(
                f"The first line of {path.name} begins with a date, {corner!r}, but not all cells "
                "after it are numbers. If these are readings, put a line `time,sensor,value` first."
            )
        names = top.iloc[0].dropna().str.strip()
        if names.duplicated().any():  # pandas would call the second `a` `a.1`
            raise ValueError(
                f"{path.name} must have another name for each column, but "
                f"{names[names.duplicated()].iloc[0]!r} comes twice. Rename one, or delete it."
            )
    # Where a table may be long its sensors' names are text: 01 is not 1.
    text = {
        k: str for k, cell in enumerate(top.iloc[0]) if len(others) == 2 and is_sensor_name(cell)
    }
    return read_csv(content, path.name, header=0 if named else None, dtype=text), named


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_parquet(path)
    except ImportError as error:
        raise ValueError(
            f"{path.name} cannot be read without pyarrow. Install it (`pip install pyarrow`), or "
            "save the table as CSV."
        ) from error
    return table if isinstance(table.index, pd.RangeIndex) else table.reset_index()
