"""In which units the numbers of runs are: that of the speeds, and the length of an interval.

Both are read from the runs' results. Folders older than these settings are of speeds in mph, unless
they are of one's own files, and are taken for intervals of five minutes, also of one's own files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from graphode.experiments.traffic import unit_of

MINUTES = 5.0
NAMES = {
    "rmse": "RMSE",
    "rmse_per_sensor": "RMSE by the printed formula (mean over sensors)",
    "mae": "MAE",
    "mape": "MAPE",
    "mape_printed": "MAPE by the printed formula",
}


@dataclasses.dataclass(frozen=True)
class Units:
    """Of a table, a picture or a line.

    Args:
        speed: A word such as mph; None where it is not known.
        minutes: Length of an interval.
        quantity: What the speeds are called: one's own files may hold vehicles.
    """

    speed: str | None
    minutes: float = MINUTES
    quantity: str = "speed"

    @classmethod
    def of(cls, results: Sequence[dict[str, Any]], asked: str | None = None) -> Units:
        """Of runs on one recording.

        Args:
            results: Of the runs, at least one.
            asked: The unit of the speeds, if it was given now; else any that a run was given.
        """
        dataset = results[0]["config"]["dataset"]
        given = (result["config"].get("unit") for result in results)
        unit = asked or next(filter(None, given), None)
        known = (result["data"].get("interval_minutes") for result in results)
        minutes = next(filter(None, known), MINUTES)
        return cls(unit_of(dataset, unit), minutes, "reading" if dataset == "file" else "speed")

    def named(self, what: str) -> str:
        """`RMSE, mph`; without a unit `RMSE`."""
        return what if self.speed is None else f"{what}, {self.speed}"

    def metric(self, name: str) -> str:
        """What tables call a metric of `traffic_errors`."""
        shown = NAMES[name]
        return f"{shown}, %" if name.startswith("mape") else self.named(shown)

    @property
    def intervals(self) -> str:
        """What times are counted in."""
        count, unit = duration(self.minutes)
        return f"{count:g}-{unit} intervals"


def duration(minutes: float) -> tuple[float, str]:
    """So many minutes, or seconds where minutes are not whole."""
    return (minutes, "minute") if minutes == round(minutes) else (60 * minutes, "second")
