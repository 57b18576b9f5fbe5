"""The demo: simulate ten particles, train four models, see them move.

    make demo
    graphode run demo

A table with the paper's beside ours, and one page, `demo.html`, that opens offline in a browser.
Few epochs: under three minutes on two cores. The full table is `graphode reproduce table-3`.
"""

import dataclasses
import time
from pathlib import Path

from rich.console import Console

from graphode.experiments.demo_page import COLORS, write_page
from graphode.experiments.multi_agent import HORIZONS
from graphode.experiments.multi_agent_claims import claims
from graphode.experiments.multi_agent_run import simulated
from graphode.experiments.sitting import say
from graphode.experiments.table_3 import LINES, Table3, collect, line_config, report

SHOWN = ("Persistence", *COLORS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demo:
    """Simulate ten particles, train four models, and see them move.

    Args:
        members: Of each model, each with a system of its own.
        epochs: Of each model.
        duration: Of the simulation, half of it for training.
        horizons: The numbers of steps K.
        device: auto, cpu, cuda, cuda:1 …
        out: Folder of the page, the table and the runs.
        resume: Go on with what an earlier demo left, rather than train anew.
    """

    members: int = 10
    epochs: int = 800
    duration: float = 5.0
    horizons: tuple[int, ...] = HORIZONS
    device: str = "auto"
    out: Path = Path("runs/multi-agent")
    resume: bool = False


def run(config: Demo, console: Console | None = None) -> Path:
    """Simulate, train, print the table, write the page; returns its path."""
    console = console or Console()
    began = time.perf_counter()
    config.out.mkdir(parents=True, exist_ok=True)
    table = Table3(
        seeds=config.members,
        device=config.device,
        epochs=config.epochs,
        duration=config.duration,
        horizons=config.horizons,
        fresh=not config.resume,
    )
    lines = [line for line in LINES if line.name in SHOWN]
    first = line_config(table, lines[0], config.out)
    say(console, f"Simulating {config.members} systems of {first.n} particles …")
    found = simulated(first.system, first.system_seeds)
    say(console, f"  {int(found.crossings.sum())} times two came close or parted, each located.")
    rows, folders = collect(table, lines, config.out, console)
    title = f"Ten particles, {config.epochs} epochs"
    report(rows, claims(rows), config.out, title, console)
    page = write_page(folders, config.out / "demo.html")
    say(console, f"Page: {page} (open it in a browser)")
    say(console, f"{time.perf_counter() - began:.0f} s in all.")
    return page
