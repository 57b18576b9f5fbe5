"""Every table and figure of the paper, by one command.

    graphode reproduce all --device cuda --data-root DATA
    graphode reproduce all --quick

Each part is the command of its own name with what is given here, and lies in a folder of that name;
what an earlier sitting finished is read. A part whose data is nowhere is left out, and said so.
"""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from graphode.data.store import MissingFileError
from graphode.experiments import figures, table_1, table_2, table_3
from graphode.experiments.checks import check_count
from graphode.experiments.side_by_side import check_jobs
from graphode.experiments.sitting import say

Part = Callable[[Console], object]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Everything:
    """Make every table and figure of the paper, ours beside theirs.

    Args:
        seeds: Members of each cell; by default each table's own number.
        quick: Few members and epochs: shows that all runs, not what is reached.
        device: auto, cpu, cuda, cuda:1 …
        data_root: Folder of the data sets; else GRAPHODE_DATA, the user's cache, a download.
        jobs: Runs of a table at a time, each a program of its own.
        out: Folder of the tables and figures, another one to begin anew; by default runs/all.
    """

    seeds: int | None = None
    quick: bool = False
    device: str = "auto"
    data_root: Path | None = None
    jobs: int = 1
    out: Path | None = None

    def __post_init__(self) -> None:
        check_count("seeds", self.seeds)
        check_jobs(self.jobs)


def run(config: Everything, console: Console | None = None) -> dict[str, str]:
    """Make every part; what became of each, by its name."""
    console = console or Console()
    began = time.perf_counter()
    out = config.out or Path("runs") / ("all-quick" if config.quick else "all")
    found: dict[str, str] = {}
    parts = parts_of(config, out)
    for number, (name, part) in enumerate(parts.items(), 1):
        say(console, f"\n[{number}/{len(parts)}] {name}, {_since(began)} so far")
        try:
            part(console)
        except MissingFileError as reason:
            say(console, f"{name} is left out: {reason}")
            found[name] = "left out for want of data"
        else:
            found[name] = str(out / name)
    say(console, f"\nAll in {_since(began)}:")
    for name, where in found.items():
        say(console, f"  {name:15}{where}")
    return found


def parts_of(config: Everything, out: Path) -> dict[str, Part]:
    """What is made, in its order, each in a folder of its name below `out`."""
    common: dict[str, Any] = {name: getattr(config, name) for name in ("seeds", "quick", "device")}
    data: dict[str, Any] = {"data_root": config.data_root}
    one = table_1.Table1(**common, **data, jobs=config.jobs, out=out / "table-1")
    tuned = dataclasses.replace(one, preset="tuned", out=out / "table-1-tuned")
    pictures = figures.Figures(**common, **data, runs=out / "table-1", out=out / "figures")
    two = table_2.Table2(**common, **data, jobs=config.jobs, out=out / "table-2")
    three = table_3.Table3(**common, jobs=config.jobs, out=out / "table-3")
    return {
        "table-1": lambda console: table_1.run(one, console),
        "table-1-tuned": lambda console: table_1.run(tuned, console),
        "figures": lambda console: figures.run(pictures, console),
        "table-2": lambda console: table_2.run(two, console),
        "table-3": lambda console: table_3.run(three, console),
    }


def _since(began: float) -> str:
    """Minutes and seconds."""
    minutes, seconds = divmod(round(time.perf_counter() - began), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
