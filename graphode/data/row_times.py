"""When the rows of a table were taken: by time that has passed, and by the clock on the wall.

The two differ where dates have an offset from UTC that changes, as in summer. A recording has one
axis of time, from which both the distance between rows and the time of day are read. On it a row is
where its clock says, and each change of the offset begins a new stretch, a day later:

    axis = clock + changes before the row · 1 day

Within a stretch distances are those in UTC, the time of day is the clock's everywhere, and an hour
that the clock shows twice comes twice. No window has rows of two stretches.
"""

import dataclasses

import numpy as np

DAY, HOUR, MINUTE, NANOSECOND = (np.timedelta64(1, unit) for unit in ("D", "h", "m", "ns"))
NOTHING = 0 * NANOSECOND
# Of an interval. Sums and differences of its multiples are exact, unlike those of 7/15.
FINEST = 2.0**-28


@dataclasses.dataclass(frozen=True)
class RowTimes:
    """The times of rows.

    Args:
        elapsed: In UTC, or as written where no offset is known.
        clock: As written.
        has_offsets: Whether it is known how far the clock is from UTC.

    Shapes:
        elapsed, clock: `[rows]`, datetime64
    """

    elapsed: np.ndarray
    clock: np.ndarray
    has_offsets: bool

    def __getitem__(self, rows: np.ndarray) -> "RowTimes":
        return RowTimes(self.elapsed[rows], self.clock[rows], self.has_offsets)

    def is_same(self, other: "RowTimes") -> bool:
        """Whether all rows have the same times."""
        return np.array_equal(self.elapsed, other.elapsed) and np.array_equal(
            self.clock, other.clock
        )

    @property
    def stretches(self) -> np.ndarray:
        """How often the offset has changed before each row."""
        return np.cumsum(np.diff(self._offsets, prepend=self._offsets[:1]) != NOTHING)

    def axis(self, minutes: float) -> np.ndarray:
        """In intervals of so many minutes, which divide a day, since midnight of the first day.

        Rows on the interval's multiples have whole numbers, and rows so many intervals apart differ
        by exactly that, wherever they begin.
        """
        placed = self.clock + self.stretches * DAY
        passed = (placed - self.clock[0].astype("datetime64[D]")) // NANOSECOND
        interval = round(DAY // NANOSECOND / round(DAY / MINUTE / minutes))
        whole, rest = np.divmod(passed, interval)
        return whole + np.rint(rest / interval / FINEST) * FINEST

    def shown(self, row: int) -> str:
        """A time as people write it; with its offset where offsets change."""
        text = written(self.clock[row])
        if not self.stretches[-1]:
            return text
        return f"{text}{offset_written(round(self._offsets[row] / MINUTE))}"

    @property
    def offsets(self) -> np.ndarray | None:
        """Minutes that the clock is ahead of UTC at each row; None where that is not known."""
        return self._offsets / MINUTE if self.has_offsets else None

    def check_order(self, file: str, may_repeat: bool = False) -> None:
        """Refuse rows that go back, or repeat a time where they may not."""
        steps = np.diff(self.elapsed)
        wrong = steps < NOTHING if may_repeat else steps <= NOTHING
        if not wrong.any():
            return
        row = int(wrong.argmax()) + 1
        before, now = self.shown(row - 1), self.shown(row)
        turned = (
            f" If clocks were set back there, write dates with their offset from UTC, {now}+01:00."
            if -steps[row - 1] <= HOUR and not self.has_offsets
            else ""
        )
        if steps[row - 1] == NOTHING:
            raise ValueError(
                f"{file} must have one row for each time, but that of {now} repeats the row before "
                "it. Delete one, or take the mean of such rows with --duplicates mean (in Python "
                f'`duplicates="mean"`).{turned}'
            )
        raise ValueError(
            f"The rows of {file} must be in the order of time, but {now} comes before the row "
            f"before it, {before}. Sort the rows.{turned}"
        )

    @property
    def _offsets(self) -> np.ndarray:
        return self.clock - self.elapsed


def means_by_time(
    values: np.ndarray, sensors: np.ndarray, num_sensors: int, times: RowTimes
) -> tuple[np.ndarray, RowTimes]:
    """A row for each distinct time: the mean of what a sensor has then, NaN if it has nothing.

    Args:
        values: NaN where there is none.
        sensors: Whose values they are.
        num_sensors: How many there are.
        times: Of the rows of `values`.

    Shapes:
        values: `[rows]` or `[rows, columns]`; sensors: `[rows]` or `[columns]`
    """
    distinct, first, row = np.unique(times.elapsed, return_index=True, return_inverse=True)
    known = ~np.isnan(values)
    place = (row.reshape(-1, *(1,) * (values.ndim - 1)) * num_sensors + sensors)[known]
    size = len(distinct) * num_sensors
    count = np.bincount(place, minlength=size)
    total = np.bincount(place, values[known], minlength=size)
    means = np.divide(total, count, out=np.full(size, np.nan), where=count > 0)
    return means.reshape(-1, num_sensors), times[first]


def offset_written(minutes: int) -> str:
    """How far a clock is ahead of UTC, as people write it: +02:00."""
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def written(time: np.datetime64) -> str:
    """A time as people write it."""
    text = str(time.astype("datetime64[s]")).replace("T", " ")
    return text.removesuffix(":00") if text.endswith(":00") else text
