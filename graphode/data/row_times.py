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

DAY, HOUR, MINUTE = (np.timedelta64(1, unit) for unit in "Dhm")


@dataclasses.dataclass(frozen=True)
class RowTimes:
    """The times of rows.

    Args:
        elapsed: In UTC, or as written where no offset is known.
        clock: As written.

    Shapes:
        elapsed, clock: `[rows]`, datetime64
    """

    elapsed: np.ndarray
    clock: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> "RowTimes":
        return RowTimes(self.elapsed[rows], self.clock[rows])

    def is_same(self, other: "RowTimes") -> bool:
        """Whether all rows have the same times."""
        return np.array_equal(self.elapsed, other.elapsed) and np.array_equal(
            self.clock, other.clock
        )

    @property
    def stretches(self) -> np.ndarray:
        """How often the offset has changed before each row."""
        return np.cumsum(np.diff(self._offsets, prepend=self._offsets[:1]) != np.timedelta64(0))

    def axis(self, minutes: float) -> np.ndarray:
        """In intervals of so many minutes since midnight of the first day."""
        placed = self.clock + self.stretches * DAY
        return (placed - self.clock[0].astype("datetime64[D]")) / MINUTE / minutes

    def shown(self, row: int) -> str:
        """A time as people write it; with its offset where offsets change."""
        text = written(self.clock[row])
        if not self.stretches[-1]:
            return text
        minutes = int(self._offsets[row] / MINUTE)
        return f"{text}{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"

    def check_order(self, file: str) -> None:
        """Refuse rows that repeat a time or go back."""
        steps = np.diff(self.elapsed)
        wrong = steps <= np.timedelta64(0)
        if not wrong.any():
            return
        row = int(wrong.argmax()) + 1
        before, now = self.shown(row - 1), self.shown(row)
        if steps[row - 1] == np.timedelta64(0):
            raise ValueError(
                f"{file} must have one row for each time, but that of {now} repeats the row before "
                "it. Delete one, or take the mean of such rows with --duplicates mean (in Python "
                '`duplicates="mean"`).'
            )
        turned = (
            f" If clocks were set back there, write dates with their offset from UTC, {now}+01:00."
            if -steps[row - 1] < HOUR and np.array_equal(self.elapsed, self.clock)
            else ""
        )
        raise ValueError(
            f"The rows of {file} must be in the order of time, but {now} comes before the row "
            f"before it, {before}. Sort the rows.{turned}"
        )

    @property
    def _offsets(self) -> np.ndarray:
        return self.clock - self.elapsed


def written(time: np.datetime64) -> str:
    """A time as people write it."""
    text = str(time.astype("datetime64[s]")).replace("T", " ")
    return text.removesuffix(":00") if text.endswith(":00") else text
