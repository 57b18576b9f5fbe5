"""Long tables: a line for each reading, time, sensor and value, not a column for each sensor.

A table is long if it has a time and two more columns, of which one is headed sensor, station,
detector, node, site, id or name (`sensor_id` and `Station Name` too), or holds text while most
times come several times. What may be long or not is refused.
"""

import dataclasses
import re
from collections.abc import Hashable

import numpy as np
import pandas as pd

from graphode.data.csv_tables import is_number, plain_name
from graphode.data.row_times import NOTHING, RowTimes, means_by_time

SENSOR_NAMES = ("sensor", "station", "detector", "node", "site", "id", "name")
LINES_OF_A_TIME = 1.5  # on average, from which on lines are taken for readings of one time


def is_sensor_name(name: object) -> bool:
    """Whether a column of this name says which sensor it was."""
    plain = plain_name(name)
    return plain in SENSOR_NAMES or plain.removesuffix("id").removesuffix("name") in SENSOR_NAMES


def find_sensors(table: pd.DataFrame, times: RowTimes, file: str) -> Hashable | None:
    """The column that names the sensor of each line; None where a table is not long.

    Args:
        table: What is right of the times.
        times: Of the lines.
        file: Named in errors.
    """
    told = [name for name in table if is_sensor_name(name)]
    several = LINES_OF_A_TIME * len(np.unique(times.elapsed)) <= len(table)
    if table.shape[1] > 2 and told and several:
        raise ValueError(
            f"{file} has a line for each reading, of the sensor that {told[0]!r} names, but "
            f"{table.shape[1] - 1} columns beside it. Keep three: time, sensor and one value."
        )
    if table.shape[1] != 2:
        return None
    text = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    if len(told) == 1:
        return told[0]
    if len(text) == 1 and not any(map(is_number, table[text[0]].unique())):
        if several:
            return text[0]
        unclear = text[0] if table[text[0]].duplicated().any() else None
    else:
        ids = [name for name in table if not text and _are_ids(table.loc[:, name], times)]
        unclear = ids[0] if several and ids else None
    if unclear is not None:
        raise ValueError(
            f"{file} may have a line for each reading, of the sensor that {unclear!r} names, or a "
            f"column for each sensor, of which {unclear!r} is one. Head that column `sensor` if "
            f"it names sensors, else {'delete it' if text else 'merge the lines of one time'}."
        )
    return None


def _are_ids(column: pd.Series, times: RowTimes) -> bool:
    """Whether numbers may be those of sensors: whole ones, that come often, once at a time."""
    cells = column.to_numpy(dtype=np.float64)
    whole = bool((cells == np.round(cells)).all())
    twice = pd.DataFrame({"time": times.elapsed, "sensor": cells}).duplicated().any()
    return whole and not twice and 2 * column.nunique() <= len(column)


@dataclasses.dataclass(frozen=True)
class Readings:
    """The lines of a long table.

    Args:
        values: NaN where a cell is empty.
        sensors: The sensor of each.
        times: Of each.
        names: Of the sensors, by the alphabet, numbers in them by size: s2 before s10.
        file: Named in errors.

    Shapes:
        values, sensors: `[lines]`
    """

    values: np.ndarray
    sensors: np.ndarray
    times: RowTimes
    names: tuple[str, ...]
    file: str

    @classmethod
    def of(cls, values: pd.Series, sensors: pd.Series, times: RowTimes, file: str) -> "Readings":
        """From the columns of a table."""
        cells = sensors.astype(object).where(sensors.notna(), "").astype(str).str.strip()
        if (empty := (cells == "").to_numpy()).any():
            raise ValueError(
                f"Column {sensors.name!r} of {file} must name a sensor in every line, but that of "
                f"{times.shown(int(empty.argmax()))} has none. Name it, or delete the line."
            )
        found = cells.unique().tolist()
        names = sorted(found, key=_in_order)
        number = {name: k for k, name in enumerate(names)}
        places = cells.map(number).to_numpy(dtype=np.int64)
        return cls(values.to_numpy(dtype=np.float64), places, times, tuple(names), file)

    def check_order(self, may_repeat: bool = False) -> None:
        """Refuse lines of a sensor that go back in time, or repeat a time where they may not."""
        order, between = self._by_sensor()
        wrong = between < NOTHING if may_repeat else between <= NOTHING
        if wrong.any():
            line = int(wrong.argmax())
            sensor = self.names[self.sensors[order[line]]]
            pair = self.times[order[line : line + 2]]
            pair.check_order(f"{self.file}, for sensor {sensor!r},", may_repeat)

    def rows(self) -> tuple[np.ndarray, RowTimes]:
        """A row for each time, with NaN at sensors without a reading; the mean of several.

        Shapes:
            - **result:** `[rows, sensors]`, and the times of the rows
        """
        return means_by_time(self.values, self.sensors, len(self.names), self.times)

    @property
    def between(self) -> np.ndarray:
        """Times from each reading to the next of the same sensor."""
        between = self._by_sensor()[1]
        return between[~np.isnat(between)]

    def _by_sensor(self) -> tuple[np.ndarray, np.ndarray]:
        """Lines, sensor after sensor, and the time from each to the next; NaT to another's."""
        order = np.argsort(self.sensors, kind="stable")
        between = np.diff(self.times.elapsed[order])
        between[np.diff(self.sensors[order]) != 0] = np.timedelta64("NaT", "ns")
        return order, between


def _in_order(name: str) -> tuple[list[str | int], str]:
    parts = re.split("([0-9]+)", name)  # text and numbers in turn
    return [int(part) if k % 2 else part for k, part in enumerate(parts)], name
