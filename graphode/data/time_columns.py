"""The column of times at the left of a table: whether there is one, and what its cells say.

A first column is the time if it is headed time, date, datetime or timestamp, or if its cells are
not numbers. Numbers are unix seconds. Dates have one format for the whole column: year first
(2024-05-06 00:05), or day and month first where only one of the two orders makes every cell a date.
Offsets from UTC (2024-05-06T00:05+02:00) stand in every cell or in none. The time of day is that of
the clock, as it is written; of unix seconds it is UTC's.

Numbers under another name, or none, are a sensor, unless they look like a time or a count of rows:
never falling over 12 rows or more, or typically 100 times as large as all else. Those are refused.
"""

import numpy as np
import pandas as pd

from graphode.data.csv_tables import plain_name
from graphode.data.row_times import RowTimes, written

TIME_NAMES = ("time", "date", "datetime", "timestamp")
UNIX_SECONDS = (1e8, 1e10)  # 1973 to 2286: neither milliseconds nor 202405060005 lie in it
ROWS_THAT_TELL, TIMES_AS_LARGE = 12, 100

SIXTIETHS = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)
USUAL_MINUTES = np.array(
    [s / 60 for s in SIXTIETHS] + [*SIXTIETHS] + [60 * h for h in (1, 2, 3, 4, 6, 8, 12, 24)]
)
TOLERANCE = 0.1
MINUTES_PER_DAY = 1440

ORDERS = ("%d{0}%m{0}%Y", "%m{0}%d{0}%Y", "%Y{0}%m{0}%d")
CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
# What is written before an offset, and the offset; a date alone, 2024-05-06, has none.
WITH_OFFSET = r"^(.*[T ].*\d)\s*(Z|[+-]\d\d(?::?\d\d)?)$"


def is_time_name(name: object) -> bool:
    """Whether a column of this name is the time: in any case, `Date_Time` too."""
    return plain_name(name) in TIME_NAMES


def is_date(cell: object) -> bool:
    """Whether a cell, not a number, is written as a date."""
    return bool(_readings(pd.Series([cell])))


def find_times(column: pd.Series, others: np.ndarray, file: str) -> RowTimes | None:
    """The times in the first column of a table, None if it is a sensor's.

    Args:
        column: The first column, with its name.
        others: What is right of it, as far as it is numbers.
        file: Named in errors.
    """
    numeric = pd.api.types.is_numeric_dtype(column)
    if is_time_name(column.name):
        return _unix_times(column, file) if numeric else _dates(column, file)
    if not numeric:
        return _dates(column, file)
    _refuse_hidden_time(column, others, file)
    return None


def usual_minutes(between: np.ndarray) -> float:
    """The median of distances between rows; a usual interval if it is within 10 % of one.

    Distances that divide a day into whole minutes stay as they are.
    """
    minutes = between / np.timedelta64(1, "m")
    later = minutes[minutes > 0]
    if not later.size:
        return 5.0
    median = float(np.median(later))
    if median >= 1 and MINUTES_PER_DAY % median == 0 and median == round(median):
        return median
    nearest = _nearest_usual(median)
    return nearest if abs(nearest / median - 1) <= TOLERANCE else median


def _nearest_usual(minutes: float) -> float:
    return float(USUAL_MINUTES[np.abs(USUAL_MINUTES / minutes - 1).argmin()]) if minutes > 0 else 5


def check_interval(minutes: float, file: str) -> None:
    """Refuse intervals that do not divide a day: the time of day would drift."""
    steps = MINUTES_PER_DAY / minutes if minutes > 0 else 0.0
    if steps < 1 or abs(steps - round(steps)) > 1e-6 * steps:
        raise ValueError(
            f"The interval must divide a day, but that of {file} is {minutes:g} minutes. Rows need "
            f"not lie on its multiples: name one near it that does, such as "
            f"{_nearest_usual(minutes):g}, with --interval-minutes (in Python `interval_minutes`)."
        )


def _unix_times(column: pd.Series, file: str) -> RowTimes:
    seconds = column.to_numpy(dtype=np.float64)
    wrong = ~((seconds >= UNIX_SECONDS[0]) & (seconds < UNIX_SECONDS[1]))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"Column {column.name!r} of {file} must hold dates, 2024-05-06 00:05, or unix seconds, "
            f"1714953900, but line {_line(column, row)} holds {column.iloc[row]}. Write it "
            "so, or delete the column: rows without times are 5 minutes apart."
        )
    times = (seconds * 1e3).round().astype("datetime64[ms]").astype("datetime64[ns]")
    return RowTimes(times, times, has_offsets=True)


def _dates(column: pd.Series, file: str) -> RowTimes:
    readings = _readings(column)
    if not readings:
        cells = column.tolist()
        row = next((k for k, cell in enumerate(cells) if not is_date(cell)), None)
        held = "several formats" if row is None else f"{cells[row]!r} in line {_line(column, row)}"
        has_offsets = column.astype(str).str.strip().str.match(WITH_OFFSET).any()
        raise ValueError(
            f"The first column of {file} must hold dates of one format, or numbers, but it holds "
            f"{held}. Write 2024-05-06 00:05{'+02:00 in every cell' if has_offsets else ''}."
        )
    if len(readings) > 1:
        row = int((readings[0].clock != readings[1].clock).argmax())
        days = " or ".join(written(reading.clock[row]).split(" ")[0] for reading in readings)
        raise ValueError(
            f"The dates of {file} may have the day first or the month first: {column.iloc[row]!r} "
            f"is {days}. Write {written(readings[0].clock[row])}, the year first."
        )
    return readings[0]


def _line(column: pd.Series, row: int) -> int:
    """Of the file, from 1; the first is names where columns have them."""
    return row + 1 + isinstance(column.name, str)


def _readings(column: pd.Series) -> list[RowTimes]:
    """Every way to read all cells as dates of one format."""
    if pd.api.types.is_datetime64_any_dtype(column):
        if column.isna().any():
            return []
        elapsed = column if column.dt.tz is None else column.dt.tz_convert("UTC")
        return [RowTimes(_plain(elapsed), _plain(column), column.dt.tz is not None)]
    cells = column.astype(object).fillna("").astype(str).str.strip()
    formats = ["ISO8601"]
    if separator := next((mark for mark in "/.-" if mark in cells.iloc[0]), None):
        formats += [order.format(separator) + clock for order in ORDERS for clock in CLOCKS]
    parts = cells.str.extract(WITH_OFFSET)
    without = parts[0].fillna(cells)
    if parts[1].isna().nunique() > 1:  # a clock of which the offset is not known, and others
        return []
    found: list[RowTimes] = []
    for format in formats:
        if pd.isna(pd.to_datetime(cells.iloc[0], format=format, errors="coerce")):
            continue
        elapsed, clock = (
            pd.to_datetime(part, format=format, errors="coerce", utc=True)
            for part in (cells, without)
        )
        if elapsed.isna().any() or clock.isna().any():
            continue
        reading = RowTimes(_plain(elapsed), _plain(clock), bool(parts[1].notna().all()))
        if not any(reading.is_same(other) for other in found):
            found.append(reading)
    return found


def _plain(dates: pd.Series) -> np.ndarray:
    """As the clock shows them, without an offset."""
    return np.asarray(dates.dt.tz_localize(None), dtype="datetime64[ns]")


def _refuse_hidden_time(column: pd.Series, others: np.ndarray, file: str) -> None:
    cells = column.dropna().to_numpy(dtype=np.float64)
    steps = np.diff(cells)
    counts = len(cells) >= ROWS_THAT_TELL and (steps >= 0).all() and (steps > 0).mean() > 0.5
    rest = np.abs(others[np.isfinite(others)])
    huge = rest.size and np.median(np.abs(cells)) > TIMES_AS_LARGE * max(np.median(rest), 1.0)
    if counts or huge:
        why = "never falls" if counts else "is far larger than all else"
        raise ValueError(
            f"The first column of {file}, {str(column.name)!r}, {why} ({cells[0]:.12g}, "
            f"{cells[min(1, len(cells) - 1)]:.12g}, …): a time or a count of rows, not a speed. "
            "Head it `time` if it holds unix seconds, else delete it."
        )
