"""Tables of speeds, time × sensors, from CSV, npz and parquet files.

A CSV may have a line of names at its head and a column of dates or times at its left, or be numbers
alone, as PeMSD7(M) is. An npz holds one array, or the one named by `key`, of shape
`[time, sensors]` or `[time, sensors, channels]`, of which `channel` is taken, as in the published
PEMS08.npz (channel 2).
"""

import io
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from graphode.data.traffic_series import TrafficSeries, regular_times, split_by_fractions

MINUTES_PER_DAY = 1440


def read_speeds(
    path: Path | str,
    distances: Tensor | None = None,
    key: str | None = None,
    channel: int = 0,
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
        channel: Of an array `[time, sensors, channels]`.
        scale: Multiplies the numbers, 0.1 for tenths.
        missing: What to do with empty cells and NaN: refuse them, or leave them out of
            `observed`.
        duplicates: What to do with rows of one time: refuse them, or take their mean.
        interval_minutes: The unit of time; by default the most common distance between rows, or
            5 minutes where the table has no times.
    """
    path = Path(path)
    minutes = 5.0 if interval_minutes is None else interval_minutes
    if path.suffix == ".npz":
        values, dates = _array(path, key, channel), None
    elif path.suffix in (".csv", ".parquet"):
        values, dates = _columns(path)
    else:
        raise ValueError(
            f"{path.name} must be one of .csv, .npz and .parquet, by its ending, but ends in "
            f"{path.suffix!r}."
        )
    times = regular_times(len(values))
    if dates is not None:
        if duplicates == "mean":
            values, dates = _merged(values, dates)
        if interval_minutes is None:
            minutes = _usual_minutes(dates)
        midnight = dates[0].astype("datetime64[D]")
        times = torch.from_numpy((dates - midnight) / np.timedelta64(1, "m") / minutes)
    speeds = torch.from_numpy(values * scale).to(torch.get_default_dtype())
    return TrafficSeries(
        name=path.stem,
        speeds=speeds,
        times=times,
        split=split_by_fractions(len(speeds)),
        distances=distances,
        observed=None if missing == "refuse" else torch.isfinite(speeds),
        steps_per_day=round(MINUTES_PER_DAY / minutes),
    )


def read_numbers(content: bytes, name: str) -> np.ndarray:
    """A CSV of numbers alone, no names, no dates."""
    table = pd.read_csv(io.BytesIO(content), header=None)
    for column in table.columns:
        if not pd.api.types.is_numeric_dtype(table[column]):
            raise ValueError(
                f"{name} must hold numbers only, but column {column} holds "
                f"{table[column].tolist()[0]!r}."
            )
    return table.to_numpy(dtype=np.float64)


def is_number(cell: object) -> bool:
    """Whether a cell is a number, or empty."""
    try:
        float(str(cell).strip() or "nan")
    except ValueError:
        return False
    return True


def _array(path: Path, key: str | None, channel: int) -> np.ndarray:
    with np.load(path, allow_pickle=False) as loaded:
        arrays = dict(loaded)
    if key is None and len(arrays) == 1:
        (key,) = arrays
    if key is None or key not in arrays:
        raise ValueError(
            f"{path.name} holds the arrays {', '.join(arrays)}, but "
            f"{'no `key` says which' if key is None else f'not {key!r}'}. Give `key`."
        )
    values = arrays[key]
    if values.ndim == 3 and channel < values.shape[2]:
        values = values[:, :, channel]
    if values.ndim != 2:
        raise ValueError(
            f"{key!r} of {path.name} must have shape [time, sensors], or [time, sensors, channels] "
            f"with more than {channel} channels, but has shape {list(values.shape)}."
        )
    return values.astype(np.float64)


def _columns(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """The numbers, and the dates of the first column if it holds dates."""
    table = _read_csv(path) if path.suffix == ".csv" else _read_parquet(path)
    first = table.iloc[:, 0]
    dates = None
    if not pd.api.types.is_numeric_dtype(first):
        dates = _dates(first)
        if np.isnat(dates).any():
            row = int(np.isnat(dates).argmax())
            raise ValueError(
                f"The first column of {path.name} must hold dates, or numbers, but in row {row} "
                f"it holds {first.iloc[row]!r}."
            )
        table = table.iloc[:, 1:]
    for name in table.columns:
        if not pd.api.types.is_numeric_dtype(table[name]):
            cells = table[name].tolist()
            row = next(row for row, cell in enumerate(cells) if not is_number(cell))
            raise ValueError(
                f"Column {name!r} of {path.name} must hold numbers, but in row {row} it holds "
                f"{cells[row]!r}."
            )
    return table.to_numpy(dtype=np.float64), dates


def _read_csv(path: Path) -> pd.DataFrame:
    top = pd.read_csv(path, header=None, nrows=2, dtype=str)
    corner, *others = top.iloc[0].tolist()
    named = not all(is_number(cell) for cell in others)
    # Sensors may be named by numbers; then the corner tells, or what stands under it.
    if not named and not is_number(corner):
        named = bool(np.isnat(_dates(top.iloc[:1, 0]))[0])
    elif not named and pd.isna(corner) and len(top) > 1:
        named = not is_number(top.iloc[1, 0])
    return pd.read_csv(path, header=0 if named else None)


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_parquet(path)
    except ImportError as error:
        raise ValueError(
            f"{path.name} cannot be read without pyarrow. Install it (`pip install pyarrow`), or "
            "save the table as CSV."
        ) from error
    return table if isinstance(table.index, pd.RangeIndex) else table.reset_index()


def _dates(column: pd.Series) -> np.ndarray:
    """The cells as dates, "not a time" where they are none."""
    found = pd.to_datetime(column, format="mixed", errors="coerce")
    return np.asarray(found, dtype="datetime64[ns]")


def _merged(values: np.ndarray, dates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean of the rows of one time, NaN left out, in the place of the first of them."""
    distinct, first, place = np.unique(dates, return_index=True, return_inverse=True)
    known = ~np.isnan(values)
    total, count = (np.zeros((len(distinct), values.shape[1])) for _ in range(2))
    np.add.at(total, place, np.where(known, values, 0.0))
    np.add.at(count, place, known)
    means = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    order = first.argsort()
    return means[order], distinct[order]


def _usual_minutes(dates: np.ndarray) -> float:
    """The most common distance between rows."""
    between, count = np.unique(np.diff(dates), return_counts=True)
    later = between > np.timedelta64(0, "ns")
    if not later.any():
        return 5.0
    return float(between[later][count[later].argmax()] / np.timedelta64(1, "m"))
