"""Table 2 of the paper: traffic forecasting from irregular observations.

    graphode reproduce table-2 --dataset pems08 --data-root DATA
    graphode reproduce table-2 --quick

Every cell is a run with a folder of its own under `out`; the table, its pictures and what it claims
are made from the folders' files. The paper's numbers are of PeMSD7(M), whatever the data set.
Beside its models stand two that learn nothing of the kind (persistence, historical average), the
tuned settings, and the variants with an LSTM and a plain RNN.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape

from graphode.experiments.run_folder import RESULT
from graphode.experiments.side_by_side import check_jobs, make_side_by_side
from graphode.experiments.sitting import say
from graphode.experiments.tables import (
    NOT_JUDGED,
    Row,
    check_asked,
    label_of,
    rich_table,
    taken,
    write,
)
from graphode.experiments.traffic import BASELINES, Dataset, TrafficForecast
from graphode.experiments.traffic_claims import claims
from graphode.experiments.traffic_normalization import Normalization
from graphode.experiments.traffic_presets import Model, Preset
from graphode.experiments.traffic_run import run as run_traffic
from graphode.experiments.traffic_units import Units

SHOWN = ("rmse", "mape")  # on the terminal
KEEPS = (0.3, 0.5, 0.7, 1.0)

# fmt: off
Cells = tuple[tuple[float, float | None], ...]  # mean and deviation at 30, 50, 70, 100 %
PAPER: dict[str, dict[str, Cells]] = {
    "gru": {
        "mape": ((27.14, 0.45), (27.08, 0.26), (27.24, 0.19), (27.20, None)),
        "rmse": ((13.25, 0.11), (13.22, 0.07), (13.28, 0.05), (13.29, None)),
    },
    "gcgru": {
        "mape": ((23.60, 0.38), (22.86, 0.22), (21.33, 0.16), (20.92, None)),
        "rmse": ((11.97, 0.03), (11.78, 0.06), (11.20, 0.04), (10.87, None)),
    },
    "gcde_gru": {
        "mape": ((22.95, 0.37), (21.25, 0.21), (20.94, 0.14), (20.46, None)),
        "rmse": ((11.67, 0.10), (11.04, 0.05), (10.95, 0.04), (10.766, None)),
    },
}
# fmt: on


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of the table.

    Args:
        paper: Whether the paper's numbers of this model stand beside ours.
    """

    name: str
    model: Model
    preset: Preset = "tuned"
    paper: bool = False


LINES = (
    Line("Persistence", "persistence"),
    Line("Historical average", "historical_average"),
    Line("GRU, printed", "gru", "printed", paper=True),
    Line("GCGRU, printed", "gcgru", "printed", paper=True),
    Line("GCDE-GRU, printed", "gcde_gru", "printed", paper=True),
    Line("GRU", "gru"),
    Line("GCGRU", "gcgru"),
    Line("GCDE-GRU", "gcde_gru"),
    Line("GCLSTM", "gclstm"),
    Line("GCDE-LSTM", "gcde_lstm"),
    Line("GCRNN", "gcrnn"),
    Line("GCDE-RNN", "gcde_rnn"),
)
STGCN_LINES = ("Persistence", "Historical average", "GCGRU", "GCDE-GRU")
CHURN_LINES = ("GCGRU", "GCDE-GRU")  # whose sensors come and go in a test of their own
# Within three minutes on two cores, with simulated traffic.
QUICK: dict[str, Any] = {
    "hidden": 8,
    "epochs": 3,
    "batch_size": 256,
    "masks": 3,
    "sensors": 8,
    "days": 10,
}
QUICK_MEMBERS, QUICK_KEEPS = 2, (0.3, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table2:
    """Make the paper's table 2, traffic forecasting, with ours beside theirs.

    Args:
        dataset: pems08, pemsd7m, simulated, or file with --speeds and --distances; by default
            pems08, simulated with --quick.
        preset: Only lines of printed or of tuned settings; both by default.
        seeds: Members of each cell; 5, or 2 with --quick.
        quick: Few members, epochs and masks, narrow models: shows that all runs, not what is
            reached.
        device: auto, cpu, cuda, cuda:1 …
        models: Only these: persistence, historical_average, gru, gcgru, gcde_gru, gclstm,
            gcde_lstm, gcrnn, gcde_rnn.
        keeps: Probabilities to keep a timestamp.
        finished: Only cells whose runs are finished: the table of what is there, nothing trained.
        studies: Also STGCN's protocol, and forecasts at times never seen in training.
        epochs: Another number of epochs than the presets'.
        percentile: Of the distances, under which there are edges; another than the presets'.
        normalization: How speeds are seen: overall, per_sensor or usual; another than the presets'.
        masks: Undersampled versions of the test data; 20, or 3 with --quick.
        sensors: Of simulated traffic.
        days: Of simulated traffic.
        speeds: Table of speeds of --dataset file.
        distances: Its distances.
        key: The array of that table, an npz that holds several.
        channel: Of an npz time × sensors × channels, the one of the speeds, from 0.
        missing: What to do with empty cells of that table: refuse or mask.
        duplicates: What to do with its rows of one time: refuse or mean.
        interval_minutes: The unit of its time; by default the median distance between rows.
        directed: Whether its distances may be longer one way than back.
        unit: Of its speeds, a word that stands beside errors, such as km/h.
        jobs: Runs at a time, each a program of its own. A GPU is shared where NVIDIA's MPS runs,
            else they take turns.
        chunk: Members trained at once; None for as many as fit.
        capture: Record updates as CUDA graphs where solver and device allow it.
        data_root: Folder of the data sets; else GRAPHODE_DATA, the user's cache, a download.
        out: Folder of the table, its pictures and its runs; by default runs/table-2.
        fresh: Run every cell anew.
    """

    dataset: Dataset | None = None
    preset: Literal["printed", "tuned", "both"] = "both"
    seeds: int | None = None
    quick: bool = False
    device: str = "auto"
    models: tuple[str, ...] = ()
    keeps: tuple[float, ...] = ()
    finished: bool = False
    studies: bool = True
    epochs: int | None = None
    percentile: float | None = None
    normalization: Normalization | None = None
    masks: int | None = None
    sensors: int | None = None
    days: int | None = None
    speeds: Path | None = None
    distances: Path | None = None
    key: str | None = None
    channel: int | None = None
    missing: Literal["refuse", "mask"] = "refuse"
    duplicates: Literal["refuse", "mean"] = "refuse"
    interval_minutes: float | None = None
    directed: bool = False
    unit: str | None = None
    jobs: int = 1
    chunk: int | None = None
    capture: bool = True
    data_root: Path | None = None
    out: Path | None = None
    fresh: bool = False

    def __post_init__(self) -> None:
        check_asked("table 2", self.models, (line.model for line in LINES), self.seeds)
        check_jobs(self.jobs)
        columns = [column_of(keep) for keep in self.probabilities]
        if len(set(columns)) < len(columns):
            raise ValueError(
                f"`keeps` must differ, since each is a column, but are {', '.join(columns)}. Give "
                "each once."
            )
        for line in self.lines[:1]:  # what is wrong with the settings is wrong in every cell
            for keep in self.probabilities:
                cell_config(self, line, keep, Path())

    @property
    def lines(self) -> list[Line]:
        """Those asked for."""
        return [
            line
            for line in LINES
            if (not self.models or line.model in self.models)
            and (self.preset in ("both", line.preset) or line.model in BASELINES)
        ]

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The columns."""
        return self.keeps or (QUICK_KEEPS if self.quick else KEEPS)


def run(config: Table2, console: Console | None = None) -> list[Row]:
    """Run the cells, print the table, write its files and pictures."""
    from graphode.experiments import traffic_figures

    console = console or Console()
    out = config.out or Path("runs") / ("table-2-quick" if config.quick else "table-2")
    cells = _cells(config, out)
    if config.finished:
        cells = [cell for cell in cells if (Path(str(cell[2].out)) / RESULT).is_file()]
        if not cells:
            raise ValueError(f"No run of the table is finished in {out}. Leave out --finished.")
    if config.jobs > 1:
        named = [(f"{line.name}, {column}", cell) for line, column, cell in cells]
        made = make_side_by_side(run_traffic, named, config.jobs, console)
        cells = [(*cell[:2], read) for cell, read in zip(cells, made, strict=True)]
    results: dict[tuple[str, str], dict[str, Any]] = {}
    for number, (line, column, cell) in enumerate(cells, 1):
        say(console, f"[{number}/{len(cells)}] {line.name}, {column}")
        results[line.name, column] = run_traffic(cell, console)
    units = Units.of(list(results.values()), config.unit)
    rows = [
        row
        for line, column, _ in cells
        for row in rows_of(results[line.name, column], line, column, units, config.quick)
    ]
    rows = [_labelled(row, rows) for row in rows]
    rows.sort(key=lambda row: [line.name for line in LINES].index(row.model))
    first = cells[0][2]
    dataset = first.speeds.name if first.dataset == "file" and first.speeds else first.dataset
    title = f"Table 2, traffic forecasting on {dataset}"
    if config.quick:
        title += " – QUICK: few members, epochs and masks"
    found = claims(results, units.minutes)
    notes = _notes(rows, dataset, units, [] if config.quick else found)
    notes += _of_percentages(list(results.values()))
    if config.quick:
        notes.append(NOT_JUDGED)
    write(rows, out, title, notes, costs=False)
    (out / "claims.json").write_text(json.dumps(found, indent=2) + "\n")
    for metric in SHOWN:
        name = units.metric(metric)
        chosen = [row for row in rows if row.metric == name]
        if not chosen:
            continue
        console.print(rich_table(chosen, escape(f"{title}: {name}"), costs=False))
    for note in notes:
        say(console, note)
    folders = {key: Path(result["config"]["out"]) for key, result in results.items()}
    for picture in traffic_figures.draw_all(folders, out, units):
        say(console, f"Picture: {picture}")
    say(console, f"Table: {out / 'table.md'}, table.csv, table.json")
    return rows


def _cells(config: Table2, out: Path) -> list[tuple[Line, str, TrafficForecast]]:
    """Line, column and run of every cell."""
    cells = [
        (line, column_of(keep), cell_config(config, line, keep, out))
        for line in config.lines
        for keep in config.probabilities
    ]
    if not config.studies:
        return cells
    for line in config.lines:
        if line.name in STGCN_LINES:
            stgcn = cell_config(config, line, 1.0, out, protocol="stgcn")
            cells.append((line, "12 in", stgcn))
        if line.name == "GCDE-GRU":
            unseen = cell_config(config, line, 0.5, out, protocol="unseen_times")
            cells.append((line, "unseen times", unseen))
    return cells


def column_of(keep: float) -> str:
    """The name of a column."""
    return f"{100 * keep:g} %"


def cell_config(
    config: Table2, line: Line, keep: float, out: Path, **changes: Any
) -> TrafficForecast:
    """The run that fills a cell."""
    settings: dict[str, Any] = {**QUICK} if config.quick else {}
    if line.name not in CHURN_LINES:
        settings["churn"] = 0.0
    names = ("epochs", "percentile", "normalization", "masks", "sensors", "days")
    given = {name: value for name in names if (value := getattr(config, name)) is not None}
    protocol = f"-{changes['protocol']}" if changes else ""
    name = f"{line.model}-{line.preset}-{100 * keep:g}{protocol}"
    return TrafficForecast.of(
        line.model,
        config.dataset or ("simulated" if config.quick else "pems08"),
        line.preset,
        **{**settings, **given, **changes},
        keep=keep,
        members=config.seeds or (QUICK_MEMBERS if config.quick else 5),
        device=config.device,
        speeds=config.speeds,
        distances=config.distances,
        key=config.key,
        channel=config.channel,
        missing=config.missing,
        duplicates=config.duplicates,
        interval_minutes=config.interval_minutes,
        directed=config.directed,
        unit=config.unit,
        chunk=config.chunk,
        capture=config.capture,
        data_root=config.data_root,
        out=out / name,
        fresh=config.fresh,
    )


def rows_of(
    result: dict[str, Any], line: Line, column: str, units: Units, quick: bool
) -> list[Row]:
    """Every metric of a cell; of STGCN's protocol at every horizon."""
    if result["config"]["protocol"] == "unseen_times":
        return []
    columns = {f"12 in, {ahead} out": found for ahead, found in result["horizons"].items()}
    return [
        Row(
            model=line.name,
            column=name,
            metric=units.metric(metric),
            mean=value["mean"],
            std=value["std"],
            **_paper(line, name, metric),
            members=result["members"],
            evaluations=result["evaluations"]["evaluations"],
            seconds=result["seconds"],
            epochs=0 if line.model in BASELINES else result["config"]["epochs"],
            label=label_of(result, quick),
            folder=str(result["config"]["out"]),
            **taken(result),
        )
        for name, metrics in (columns or {column: result["metrics"]}).items()
        for metric, value in metrics.items()
        # Where all truths are under 1 there is no percentage; a failed run is told by its row.
        if value["mean"] is not None or not (result["members"] and metric.startswith("mape"))
    ]


def _paper(line: Line, column: str, metric: str) -> dict[str, float | None]:
    """The paper's number, where it has one: of which formula, printed or not, it does not show."""
    kind = {"rmse_per_sensor": "rmse", "mape_printed": "mape"}.get(metric, metric)
    places = [column_of(keep) for keep in KEEPS]
    if not line.paper or kind not in PAPER[line.model] or column not in places:
        return {}
    mean, std = PAPER[line.model][kind][places.index(column)]
    return {"paper": mean, "paper_std": std}


def _labelled(row: Row, rows: Sequence[Row]) -> Row:
    """With a word on what a model loses to that learns nothing of the kind."""
    beaten = [
        other.model.lower()
        for other in rows
        if other.model in ("Persistence", "Historical average")
        and (other.column, other.metric) == (row.column, row.metric)
        and None not in (other.mean, row.mean)
        and other.mean < row.mean  # pyright: ignore[reportOperatorIssue]
        and row.model not in ("Persistence", "Historical average")
    ]
    words = [row.label, *(f"loses to {name}" for name in beaten)]
    return dataclasses.replace(row, label=", ".join(filter(None, words)))


def _of_percentages(results: Sequence[dict[str, Any]]) -> list[str]:
    """A note on MAPE where many truths are too small for it."""
    share = min(result.get("mape_share", 1.0) for result in results)
    if share >= 0.995:
        return []
    if share == 0:
        return ["There is no MAPE: truths are under 1."]
    return [f"MAPE is of the truths of 1 and more, {100 * share:.2g} % of them in places."]


def _notes(rows: list[Row], dataset: str, units: Units, found: list[dict[str, Any]]) -> list[str]:
    notes = [
        "Mean ± standard deviation over training seeds and masks of the test data. Columns are "
        "the probability to keep a timestamp; 5 samples in, the next one out. Of each member the "
        "epoch of lowest validation loss is tested.",
    ]
    if any(row.paper is not None for row in rows):
        unit = "" if units.speed == "mph" else ", in mph"
        other = "" if dataset == "pemsd7m" else f", not of {dataset}: other roads, other speeds"
        notes.append(f"The paper's numbers (below ours) are of PeMSD7(M){unit}{other}.")
    for claim in found:
        where = f" {'; '.join(claim['where'])}." if claim["where"] else ""
        notes.append(f"{claim['verdict'].upper()}: {claim['claim']}.{where}")
    return notes
