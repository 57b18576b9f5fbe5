"""Table 3 of the paper: extrapolating ten interacting particles.

    graphode reproduce table-3
    graphode reproduce table-3 --quick

Every line is a run of ten members with a folder of its own under `out`; the table, its pictures and
what it claims are made from the folders' files. Beside the paper's models stand two that know
nothing (persistence, harmonic motion), two that the paper does not have, and its side studies.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from graphode.experiments.checks import check_count
from graphode.experiments.multi_agent import HORIZONS, MultiAgent, Preset
from graphode.experiments.multi_agent_claims import MEDIAN, claims
from graphode.experiments.multi_agent_run import run as run_multi_agent
from graphode.experiments.particle_models import BASELINES, Model
from graphode.experiments.run_folder import ARRAYS
from graphode.experiments.side_by_side import check_jobs, make_side_by_side
from graphode.experiments.sitting import say
from graphode.experiments.tables import NOT_JUDGED, Row, check_asked, label_of, taken, write

NAMES = {
    "mape": "MAPE, %",
    "printed_mape": "MAPE by the printed formula, %",
    "median_ape": "median APE, %",
    "mae": "MAE",
    "rmse": "RMSE",
}
SHOWN = ("mape", "median_ape", "rmse")  # on the terminal

# fmt: off
PAPER: dict[str, tuple[float, ...]] = {
    "static":     (26.12, 160.56, 197.20, 235.21, 261.56, 275.60, 360.39),
    "neural_ode": (26.12, 52.26, 92.31, 156.26, 238.14, 301.85, 668.47),
    "gde":        (13.53, 15.22, 18.76, 27.76, 33.90, 42.22, 77.64),
    "gde_ii":     (13.46, 14.75, 17.81, 27.77, 32.28, 40.64, 73.75),
}
# fmt: on


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of the table: a model, where its settings come from, and where it departs from them.

    Args:
        paper: Whether the paper's numbers of this model stand beside ours.
        side: Whether it belongs to the side studies.
    """

    name: str
    model: Model
    preset: Preset = "printed"
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    paper: bool = False
    side: bool = False


LINES = (
    Line("Persistence", "persistence"),
    Line("Harmonic motion", "harmonic"),
    Line("Static", "static", paper=True),
    Line("Neural ODE", "neural_ode", paper=True),
    Line("GDE", "gde", paper=True),
    Line("GDE-II", "gde_ii", paper=True),
    Line("GDE-II, oracle graph", "gde_ii", changes={"oracle": True}),
    Line("GDE-II, self-loops", "gde_ii_self_loops"),
    Line("GDE-II, latent", "gde_ii_latent"),
    Line("GDE-II, literal", "gde_ii_literal"),
    Line("GMDE-II", "gmde_ii"),
    Line("Pair force (tuned)", "pair_force", "tuned", {"transfer": True}),
    Line("Static, 16n", "static", changes={"hidden": 16}, side=True),
    Line("Static, 32n", "static", changes={"hidden": 32}, side=True),
    Line("Static, A fed", "static", changes={"adjacency": True}, side=True),
    Line("Neural ODE, 16n", "neural_ode", changes={"hidden": 16}, side=True),
    Line("Neural ODE, 32n", "neural_ode", changes={"hidden": 32}, side=True),
    Line("Neural ODE, A fed", "neural_ode", changes={"adjacency": True}, side=True),
)
# Within two minutes on two cores.
QUICK_MEMBERS, QUICK_SHARE = 3, 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table3:
    """Make the paper's table 3, extrapolated particles, with ours beside theirs.

    Args:
        seeds: Members of each line, each with a system of its own; 10 as in the paper, 3 with
            --quick.
        quick: Few members and epochs, no side studies: shows that all runs, not what is reached.
        device: auto, cpu, cuda, cuda:1 …
        models: Only these: persistence, harmonic, static, neural_ode, gde, gde_ii,
            gde_ii_self_loops, gde_ii_latent, gde_ii_literal, gmde_ii, pair_force.
        side: The side studies: wider layers, adjacency fed to Static and Neural ODE.
        epochs: Another number of epochs than the presets'.
        n: Particles.
        duration: Of the simulations, half of it for training.
        dt: Time between two states.
        horizons: The numbers of steps K.
        jobs: Runs at a time, each a program of its own. A GPU is shared where NVIDIA's MPS runs,
            else they take turns.
        out: Folder of the table, its pictures and its runs; by default runs/table-3.
        fresh: Run every line anew.
    """

    seeds: int | None = None
    quick: bool = False
    device: str = "auto"
    models: tuple[str, ...] = ()
    side: bool = True
    epochs: int | None = None
    n: int = 10
    duration: float = 5.0
    dt: float = 1 / 512
    horizons: tuple[int, ...] = HORIZONS
    jobs: int = 1
    out: Path | None = None
    fresh: bool = False

    def __post_init__(self) -> None:
        check_asked("table 3", self.models, (line.model for line in LINES), self.seeds)
        check_count("epochs", self.epochs)
        check_jobs(self.jobs)

    @property
    def lines(self) -> list[Line]:
        """Those asked for."""
        return [
            line
            for line in LINES
            if (not self.models or line.model in self.models)
            and (not line.side or (self.side and not self.quick))
        ]


def run(config: Table3, console: Console | None = None) -> list[Row]:
    """Run the lines, print the table, write its files and pictures."""
    from graphode.experiments import particle_figures

    console = console or Console()
    out = config.out or Path("runs") / ("table-3-quick" if config.quick else "table-3")
    rows, folders = collect(config, config.lines, out, console)
    title = f"Table 3, extrapolation of {config.n} interacting particles"
    if config.quick:
        title += " – QUICK: few members and epochs"
    found = claims(rows)
    report(rows, found, out, title, console, config.quick)
    for picture in particle_figures.draw_all(folders, out):
        say(console, f"Picture: {picture}")
    return rows


def collect(
    config: Table3, lines: Sequence[Line], out: Path, console: Console
) -> tuple[list[Row], dict[str, Path]]:
    """The rows of lines, and where their runs lie."""
    rows: list[Row] = []
    folders = {}
    cells = [line_config(config, line, out) for line in lines]
    if config.jobs > 1:
        named = [(line.name, cell) for line, cell in zip(lines, cells, strict=True)]
        cells = make_side_by_side(run_multi_agent, named, config.jobs, console)
    for number, (line, cell) in enumerate(zip(lines, cells, strict=True), 1):
        say(console, f"[{number}/{len(lines)}] {line.name}")
        assert cell.out is not None
        folders[line.name] = cell.out
        rows += rows_of(run_multi_agent(cell, console), cell.out, line, config.quick)
    return rows, folders


def report(
    rows: list[Row],
    found: list[dict[str, Any]],
    out: Path,
    title: str,
    console: Console,
    quick: bool = False,
) -> None:
    """The table on the terminal and in files, and which claims hold."""
    notes = [
        "Mean ± standard deviation over members, each with its own system and initial weights; the "
        "paper's means below. K steps from a true state, then the true state again, along the "
        "whole test half. Graphs are rebuilt from predicted positions unless a line says oracle.",
    ]
    if quick:
        notes.append(NOT_JUDGED)
    for claim in [] if quick else found:
        where = f" Not at: {'; '.join(claim['where'])}." if claim["where"] else ""
        notes.append(f"{'HOLDS' if claim['holds'] else 'FAILS'}: {claim['claim']}.{where}")
    write(rows, out, title, notes, costs=False)
    (out / "claims.json").write_text(json.dumps(found, indent=2) + "\n")
    for metric in SHOWN:
        chosen = [row for row in rows if row.metric == NAMES[metric]]
        console.print(compact(chosen, f"{title}: {NAMES[metric]}"))
    for note in notes:
        say(console, note)
    say(console, f"Table: {out / 'table.md'}, table.csv, table.json")


def compact(rows: Sequence[Row], title: str) -> Table:
    """Means in eighty columns, the paper's below ours."""
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    columns = list(dict.fromkeys(row.column for row in rows))
    table.add_column("K", no_wrap=True)
    for column in columns:
        table.add_column(column.removeprefix("K = "), justify="right", no_wrap=True)
    for model in dict.fromkeys(row.model for row in rows):
        cells = {row.column: row for row in rows if row.model == model}
        shown = (cells[column].mean for column in columns)
        table.add_row(model, *("failed" if mean is None else _short(mean) for mean in shown))
        if any(row.paper is not None for row in cells.values()):
            paper = (_short(cells[column].paper) for column in columns)
            table.add_row("[dim]  paper", *(f"[dim]{number}" for number in paper))
    return table


def _short(number: float | None) -> str:
    """Six places at most, but for the very large."""
    if number is None:
        return ""
    if number >= 1:
        return f"{number:.1f}" if number < 1000 else f"{number:.0f}"
    return f"{number:#.2g}" if number >= 1e-3 else f"{number:.1e}".replace("e-0", "e-")


def line_config(config: Table3, line: Line, out: Path) -> MultiAgent:
    """The run that fills a line."""
    name = "-".join([line.model, *(f"{key}={value}" for key, value in line.changes.items())])
    found = MultiAgent.of(
        line.model,
        line.preset,
        **line.changes,
        members=config.seeds or (QUICK_MEMBERS if config.quick else 10),
        n=config.n,
        duration=config.duration,
        dt=config.dt,
        horizons=config.horizons,
        device=config.device,
        fresh=config.fresh,
        out=out / (name if line.preset == "printed" else f"{name}-{line.preset}"),
    )
    if line.model in BASELINES:
        return found
    epochs = config.epochs or round(found.epochs * (QUICK_SHARE if config.quick else 1))
    return dataclasses.replace(found, epochs=epochs)


def rows_of(result: dict[str, Any], folder: Path, line: Line, quick: bool) -> list[Row]:
    """Every metric at every K, and what was transferred."""
    common = {
        "members": result["members"],
        "evaluations": result["evaluations"],
        "seconds": result["seconds"],
        "epochs": result["config"]["epochs"],
        "label": label_of(result, quick),
        "folder": str(folder),
        **taken(result),
    }
    rows = []
    for metric, values in result["metrics"].items():
        for K, value in zip(result["horizons"], values, strict=True):
            paper = PAPER[line.model] if line.paper and metric == "mape" else None
            rows.append(
                Row(
                    model=line.name,
                    column=f"K = {K}",
                    metric=NAMES[metric],
                    **value,
                    paper=paper[HORIZONS.index(K)] if paper and K in HORIZONS else None,
                    **common,
                )
            )
    for K, median in zip(result["horizons"], _medians(folder), strict=True):
        column = f"K = {K}"
        rows.append(
            Row(model=line.name, column=column, metric=MEDIAN, mean=median, std=None, **common)
        )
    # Harmonic motion, measured beside the model, cost no training.
    label = label_of({**result, "label": ""}, quick)
    untrained = {**common, "evaluations": 0.0, "seconds": 0.0, "epochs": 0, "label": label}
    for where, measured in result.get("transfer", {}).items():
        metric = f"RMSE, {where}, without retraining"
        for who, name, cost in (
            ("model", line.name, common),
            ("harmonic", "Harmonic motion", untrained),
        ):
            for K, value in zip(measured["horizons"], measured[who]["rmse"], strict=True):
                rows.append(Row(model=name, column=f"K = {K}", metric=metric, **value, **cost))
    return rows


def _medians(folder: Path) -> list[float | None]:
    """Over systems, since a few with many zero crossings decide the mean of MAPE."""
    with np.load(folder / ARRAYS) as arrays:
        medians = np.median(arrays["mape"], 0).tolist()
    return [value if math.isfinite(value) else None for value in medians]
