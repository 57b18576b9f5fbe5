"""What comes after the last rows of one's own table, by the members of a finished run.

    graphode predict runs/traffic/gcde_gru-file-100 --minutes 15 60

A run of `--dataset file` leaves in its folder what a forecast needs beside the table: weights, what
is usual at a time of day, the sensors and their graph. So a table may have grown since, or be
another one of the same sensors.
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import safetensors.torch
import torch
from rich.console import Console
from torch import Tensor

from graphode.data import Standardizer, TrafficSeries, read_speeds, traffic_windows
from graphode.data.time_columns import MINUTES_PER_DAY
from graphode.ensembles import Ensemble
from graphode.experiments.progress import counted
from graphode.experiments.run_folder import ARRAYS, CHECKPOINT, RESULT, read_json
from graphode.experiments.sitting import say
from graphode.experiments.traffic import TrafficForecast
from graphode.experiments.traffic_clock import moment, offsets, other_clock
from graphode.experiments.traffic_data import (
    STEPS,
    STGCN_STEPS,
    MemberBatch,
    normalized,
    num_outputs,
)
from graphode.experiments.traffic_forecasters import MemberForecaster
from graphode.experiments.traffic_models import builder
from graphode.experiments.traffic_normalization import Normalizer
from graphode.experiments.traffic_presets import FLOWS
from graphode.experiments.training import SELECTED
from graphode.graphs import Graph


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrafficPrediction:
    """Forecast what comes after the last row with a speed of a table, by what a run has trained.

    Args:
        run: Folder of a finished run of --dataset file whose model has a flow.
        minutes: How long after the last row with a speed, one or several.
        speeds: A newer table of the same sensors, in any order, of which some may be silent or not
            be there; by default the run's own, as it is now.
        key: The array of that table, an npz that holds several; by default the run's.
        channel: Of an npz time × sensors × channels; by default the run's.
        duplicates: What to do with its rows of one time, refuse or mean; by default the run's.
        out: CSV to write; by default forecast.csv in the run's folder.
    """

    run: Path
    minutes: tuple[float, ...] = (15.0, 30.0, 60.0)
    speeds: Path | None = None
    key: str | None = None
    channel: int | None = None
    duplicates: Literal["refuse", "mean"] | None = None
    out: Path | None = None

    def __post_init__(self) -> None:
        if not self.minutes or not all(0 < m < float("inf") for m in self.minutes):
            raise ValueError(f"`minutes` must be positive numbers, but are {self.minutes}.")


def predict(settings: TrafficPrediction, console: Console | None = None) -> pd.DataFrame:
    """The mean of the members, a row for each time and a column for each sensor; written too."""
    config, result, kept = _finished(settings.run)
    series = _newest(settings, config, result, kept)
    rows = _seen(series, config)
    row = int(rows[-1])
    last = moment(series, row)
    table = pd.DataFrame(
        _said(settings.run, config, result, kept, series, rows, sorted(settings.minutes)),
        index=pd.Index(sorted(settings.minutes), name="minutes"),
        columns=_names(series),
    )
    if last is not None:
        table.insert(0, "time", last + pd.to_timedelta(table.index, unit="min"))
    out = settings.out or settings.run / "forecast.csv"
    table.to_csv(out)
    after = "the last row" if last is None else f"{last}"
    if row + 1 < series.num_steps:
        after = f"row {row + 1}" if last is None else after
        after += f", the last of {series.num_steps} rows with a speed"
    sensors = counted(series.num_sensors, "sensor")
    console = console or Console()
    say(console, f"{sensors}, {counted(len(table), 'time')} after {after}: {out}")
    known = kept.get("offsets")  # which an older folder does not tell
    if known is not None and (warning := other_clock(series, row, known.tolist())) is not None:
        say(console, warning)
    if silent := _silent(series, rows):
        say(
            console,
            f"Without a speed in the last {len(rows)} rows, so that theirs are from what is usual "
            f"and from their neighbours: {', '.join(silent[:10])}{' …' * (len(silent) > 10)}.",
        )
    return table


def state_of_run(series: TrafficSeries, normalizers: list[Normalizer], roads: Graph) -> Any:
    """Arrays of a run by which it can forecast later, whatever becomes of its files."""
    return {
        "usual": torch.stack([own.usual for own in normalizers]).cpu().numpy(),
        "std": torch.stack([own.std for own in normalizers]).cpu().numpy(),
        "edge_index": roads.edge_index.cpu().numpy(),
        "edge_weight": roads.edge_weight.cpu().numpy(),
        "sensor_names": np.array(_names(series)),
        "has_times": np.array(series.origin is not None),
        "offsets": np.array(offsets(series)),
    }


def _names(series: TrafficSeries) -> list[str]:
    return list(series.sensor_names or map(str, range(series.num_sensors)))


def _finished(run: Path) -> tuple[TrafficForecast, dict[str, Any], dict[str, np.ndarray]]:
    """Settings, result and arrays of a run that can forecast."""
    if not (run / RESULT).is_file():
        raise ValueError(f"There is no finished run in {run}: it lacks {RESULT}.")
    result = read_json(run / RESULT)
    told = result.get("config", {})
    if result.get("experiment") != "traffic" or told.get("dataset") != "file":
        raise ValueError(f"{run} is no run of `graphode run traffic --dataset file`.")
    if told["model"] not in FLOWS:
        raise ValueError(
            f"{run} is of {told['model']}, which has one answer for every time. Train one of "
            f"{', '.join(FLOWS)} to ask for any."
        )
    if not result["members"]:
        raise ValueError(f"{run} has no member that can forecast. Train it anew with a lower --lr.")
    with np.load(run / ARRAYS, allow_pickle=False) as arrays:
        kept = dict(arrays)
    if "sensor_names" not in kept:
        raise ValueError(f"{run} was made by an older version: make it again with --fresh.")
    named: dict[str, Any] = {
        field.name: told[field.name]
        for field in dataclasses.fields(TrafficForecast)
        if field.name in told  # a folder may be older than a setting
    }
    named |= {name: Path(told[name]) for name in ("speeds", "distances", "out")}
    return TrafficForecast(**named), result, kept


def _newest(
    settings: TrafficPrediction,
    config: TrafficForecast,
    result: dict[str, Any],
    kept: dict[str, np.ndarray],
) -> TrafficSeries:
    """The table as it is now, its sensors in the order of the run.

    What was not measured is left out, whatever the run was trained with: a sensor that is silent
    today must not keep the others from a forecast.
    """
    path = settings.speeds or config.speeds
    assert path is not None
    if not path.is_file():
        raise ValueError(f"There is no file {path}. Name it with --speeds.")
    minutes = result["data"]["interval_minutes"]
    key, channel = settings.key, settings.channel
    if path.suffix.lower() == ".npz":  # a newer table may be of another kind than the run's
        key, channel = key or config.key, config.channel if channel is None else channel
    series = read_speeds(
        path,
        key=key,
        channel=channel,
        missing="mask",
        duplicates=settings.duplicates or config.duplicates,
        interval_minutes=minutes,
    )
    has_times = series.origin is not None
    if has_times != kept.get("has_times", has_times):  # which an older folder does not tell
        these, those = ("a time for each row", "none")[:: 1 if has_times else -1]
        raise ValueError(
            f"{path} has {these}, but the table that the run was trained with has {those}: it "
            "would not be known what time of day a row is. Give a table of the same kind."
        )
    return _in_the_order_of(kept["sensor_names"].tolist(), series, path)


def _in_the_order_of(wanted: list[str], series: TrafficSeries, path: Path) -> TrafficSeries:
    """The series with these sensors, of which those that are not there were not observed."""
    names = _names(series)
    if names == wanted:
        return series
    # Of columns without names nobody knows which one is not there.
    unknown = set(names) - set(wanted) if series.sensor_names is not None else names
    if unknown or len(set(names)) < len(names):
        raise ValueError(
            f"{path} must have sensors of the run, {', '.join(wanted[:5])} …, {len(wanted)} in "
            f"all, but has {', '.join(sorted(unknown)[:5])} …, {len(names)} in all. Leave out what "
            f"the run does not know."
        )
    place = {name: k for k, name in enumerate(names)}
    columns = torch.tensor([place.get(name, -1) for name in wanted])
    observed = series.observed
    if observed is None:
        observed = torch.ones_like(series.speeds, dtype=torch.bool)
    return dataclasses.replace(
        series,
        speeds=series.speeds[:, columns],
        observed=observed[:, columns] & (columns >= 0),
        sensor_names=wanted,
    )


def _silent(series: TrafficSeries, rows: Tensor) -> list[str]:
    """Sensors that a forecast knows nothing new of."""
    if series.observed is None:
        return []
    speaks = series.observed[rows].any(0).tolist()
    return [name for name, it in zip(_names(series), speaks, strict=True) if not it]


def _seen(series: TrafficSeries, config: TrafficForecast) -> Tensor:
    """The last rows with a speed, as many as a window has `[steps]`."""
    rows = series.samples.nonzero()[:, 0]
    where = ""
    if series.stretches is not None and len(rows):
        rows = rows[series.stretches[rows] == series.stretches[rows[-1]]]
        where = " since its offset from UTC changed" * bool(series.stretches[rows[-1]])
    steps = STGCN_STEPS if config.protocol == "stgcn" else STEPS
    if len(rows) < steps:
        raise ValueError(
            f"A forecast sees the last {steps} rows with a speed, but the table has "
            f"{len(rows)}{where}."
        )
    return rows[-steps:]


def _said(
    run: Path,
    config: TrafficForecast,
    result: dict[str, Any],
    kept: dict[str, np.ndarray],
    series: TrafficSeries,
    rows: Tensor,
    minutes: list[float],
) -> np.ndarray:
    """The mean over members, `[times, sensors]`."""
    stored = safetensors.torch.load_file(run / CHECKPOINT)
    build = builder(config, series.num_sensors, num_outputs(config))
    ensemble = Ensemble(build, config.seeds)
    with torch.no_grad():
        for name, parameter in ensemble.named_parameters():
            parameter.copy_(stored[SELECTED + name])
    arrays = {name: torch.from_numpy(kept[name]) for name in ("usual", "std")}
    normalizers = [
        Normalizer(usual, std, series.steps_per_day)
        for usual, std in zip(arrays["usual"], arrays["std"], strict=True)
    ]
    roads = Graph(kept["edge_index"], series.num_sensors, torch.from_numpy(kept["edge_weight"]))
    forecaster = MemberForecaster(ensemble, roads.normalize("sym"), normalizers, config.time_unit)

    every = torch.ones(series.num_steps, dtype=torch.bool)
    as_they_are = Standardizer(torch.zeros(()), torch.ones(()))
    known = traffic_windows(series, range(series.num_steps), every, as_they_are, steps=1)
    last = dataclasses.replace(known, inputs=rows[None], queries=rows[None, -1:])
    windows = [dataclasses.replace(last, z=normalized(series, own)) for own in normalizers]
    first = torch.zeros(len(windows), 1, dtype=torch.long)
    batch = MemberBatch.gather(windows, first, config.time_unit)
    ahead = torch.tensor(minutes, dtype=torch.float64) * series.steps_per_day / MINUTES_PER_DAY
    moments = batch.moments + ahead
    batch = dataclasses.replace(batch, moments=moments, query_times=moments / config.time_unit)
    with torch.no_grad():
        speeds = forecaster.restored(batch.forecast(ensemble, forecaster.graph), moments)
    good = [epoch >= 0 for epoch in result["selected"]["epoch"]]
    return speeds[torch.tensor(good), 0].mean(0).numpy()
