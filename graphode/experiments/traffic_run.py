"""A run of traffic forecasting from settings to result: data, members, training, test, folder."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from graphode.data import TrafficSeries
from graphode.data.time_columns import MINUTES_PER_DAY
from graphode.ensembles import Ensemble, members_that_fit
from graphode.experiments.devices import determinism, find_device
from graphode.experiments.progress import counted, display
from graphode.experiments.provenance import provenance
from graphode.experiments.recording import capture_on
from graphode.experiments.run_costs import mean_costs
from graphode.experiments.run_folder import RunFolder, read_metrics, settings_of
from graphode.experiments.sitting import say, sit
from graphode.experiments.traffic import BASELINES, TrafficForecast
from graphode.experiments.traffic_data import (
    STGCN_HORIZONS,
    check_windows,
    described,
    few_days,
    graph_of,
    load_series,
    num_outputs,
    training_mask,
)
from graphode.experiments.traffic_evaluation import HeldOutData, Tested, tested
from graphode.experiments.traffic_forecasters import (
    Forecaster,
    HistoricalAverage,
    MemberForecaster,
    Persistence,
)
from graphode.experiments.traffic_models import builder
from graphode.experiments.traffic_normalization import Normalizer
from graphode.experiments.traffic_objective import TrafficTask
from graphode.experiments.traffic_prediction import state_of_run
from graphode.experiments.traffic_presets import FLOWS
from graphode.experiments.traffic_studies import churn_errors, unseen_errors
from graphode.experiments.traffic_units import Units
from graphode.experiments.trainer import Training
from graphode.experiments.training import Outcome, train
from graphode.graphs import Graph

CHECKPOINT_TENSORS = 5  # every parameter, its two moments, the best one, and those of chunks before


def run(config: TrafficForecast, console: Console | None = None) -> dict[str, Any]:
    """Train and test the members, or go on, or read what was finished; prints the result."""
    return sit(config, console, _made, functools.partial(_line, unit=config.unit))


def _made(config: TrafficForecast, folder: RunFolder, console: Console) -> None:
    with determinism(config.deterministic):
        _finished(config, folder, console)


def _finished(config: TrafficForecast, folder: RunFolder, console: Console) -> None:
    device = find_device(config.device)
    series = load_series(config)
    roads = graph_of(series, config)
    if config.dataset == "file":
        say(console, described(series, roads, config))
        if series.stretches is not None:
            changes = counted(int(series.stretches[-1]), "time")
            say(console, f"The offset from UTC changes {changes}: no window lies across a change.")
    if (warning := few_days(series, config)) is not None:
        say(console, warning)
    check_windows(series, config)
    graph = roads.normalize("sym").to(device, torch.get_default_dtype())
    masks = [training_mask(series, config, seed) for seed in config.seeds]
    normalizers = [Normalizer.fit(series, kept, config.normalization) for kept in masks]
    data = HeldOutData(series, config, normalizers, device)
    forecaster: Forecaster
    outcome, parameters = None, 0
    if config.model in BASELINES:
        folder.open(fresh=config.fresh)
        is_last = config.model == "persistence"
        forecaster = (
            Persistence(series, device) if is_last else HistoricalAverage(series, masks, device)
        )
    else:
        build = builder(config, series.num_sensors, num_outputs(config))
        parameters = sum(p.numel() for p in build(0).parameters())
        outcome = _trained(
            config, TrafficTask(series, config, graph, device), build, folder, console
        )
        ensemble = Ensemble(build, config.seeds).to(device)
        with torch.no_grad():
            for name, parameter in ensemble.named_parameters():
                parameter.copy_(outcome.parameters[name])
        forecaster = MemberForecaster(ensemble, graph, data.normalizers, config.time_unit)
    began = time.perf_counter()
    measured = tested(forecaster, data)
    result = _result(config, series, roads, outcome, measured, folder)
    result["parameters"] = parameters
    result["test_seconds"] = time.perf_counter() - began
    if config.protocol == "unseen_times":
        result["unseen_times"] = unseen_errors(forecaster, data)
    may_churn = config.protocol == "next_sample" and config.model != "gru"
    if may_churn and isinstance(forecaster, MemberForecaster):
        result["churn"] = churn_errors(forecaster, roads, data)
    arrays = _arrays(measured, masks, series)
    if config.dataset == "file":
        arrays |= state_of_run(series, normalizers, roads)
    folder.save_arrays(arrays)
    folder.finish(result)


def _trained(
    config: TrafficForecast,
    task: TrafficTask,
    build: Callable[[int], torch.nn.Module],
    folder: RunFolder,
    console: Console,
) -> Outcome:
    device = task.device
    size = sum(p.numel() * p.element_size() for p in build(0).parameters())
    folder.open(fresh=config.fresh, space=CHECKPOINT_TENSORS * size * config.members)
    chunk = config.chunk
    if chunk is None:
        # On a CPU one member after the other is faster: its tensors stay in the cache.
        fits = 1 if device.type == "cpu" else members_that_fit(build, task.loss, device)
        chunk = min(config.members, fits)
    training = Training(
        epochs=config.epochs,
        lr=config.lr,
        weight_decay=config.weight_decay,
        schedule=config.schedule,
        period=config.period,
        log_every=config.log_every,
        checkpoint_seconds=config.checkpoint_seconds,
        keep_selected=True,
    )
    title = (
        f"{config.model} on {config.dataset}, keep {100 * config.keep:g} %, "
        f"{counted(config.members, 'member')}"
    )
    with display(console, title, config.epochs) as shown:
        return train(
            lambda seeds: Ensemble(build, seeds).to(device),
            task,
            training,
            config.seeds,
            folder,
            shown,
            chunk=chunk,
            capture=capture_on(device, config.gradient) if config.capture else None,
        )


def _result(
    config: TrafficForecast,
    series: TrafficSeries,
    roads: Graph,
    outcome: Outcome | None,
    measured: Tested,
    folder: RunFolder,
) -> dict[str, Any]:
    selected = {} if outcome is None else outcome.selected
    epochs = selected.get("epoch", [0] * config.members)
    kept = [k for k, epoch in enumerate(epochs) if epoch >= 0]
    device = torch.device(config.device)
    return {
        "experiment": "traffic",
        "config": settings_of(config),
        **provenance(device),
        "data": {
            "name": series.name,
            "sensors": series.num_sensors,
            "steps": series.num_steps,
            "edges": roads.num_edges,
            "interval_minutes": MINUTES_PER_DAY / series.steps_per_day,
            "checksums": dict(series.checksums),
        },
        "members": len(kept),
        "failed_seeds": [config.seeds[k] for k in range(config.members) if k not in kept],
        "diverged": {} if outcome is None else outcome.diverged,
        # In the unit of the speeds, or per cent; over members and masks.
        "metrics": {name: _spread(values[kept]) for name, values in measured.metrics.items()},
        "mape_share": measured.mape_share,
        "horizons": _horizons(config, series, measured, kept),
        "selected": selected,
        "test": {name: values[..., 0].tolist() for name, values in measured.metrics.items()},
        "evaluations": _evaluations([] if outcome is None else read_metrics(folder.path)),
        "seconds": 0.0 if outcome is None else outcome.seconds,
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if device.type == "cuda" else None,
    }


def _evaluations(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Per solve, over epochs and members."""
    found = mean_costs(rows)
    # Solves of a replayed update are not seen; those of validation are, and nothing is dropped.
    found["evaluations"] = found["evaluations"] or found["evaluations_without_masks"]
    return found


def _horizons(
    config: TrafficForecast, series: TrafficSeries, measured: Tested, kept: list[int]
) -> dict[str, Any]:
    """Errors at each of STGCN's horizons."""
    if config.protocol != "stgcn":
        return {}
    return {
        f"{ahead * MINUTES_PER_DAY / series.steps_per_day:g} min": {
            name: _spread(values[kept][..., k : k + 1]) for name, values in measured.metrics.items()
        }
        for k, ahead in enumerate(STGCN_HORIZONS)
    }


def _spread(values: Tensor) -> dict[str, float | None]:
    """Mean and standard deviation over members and masks of `[members, masks, queries]`."""
    if not len(values):
        return dict.fromkeys(("mean", "std", "std_over_masks", "std_over_members"))
    values = values.double().mean(-1)
    return {
        "mean": values.mean().item(),
        "std": values.std(correction=0).item(),
        "std_over_masks": values.mean(0).std(correction=0).item(),
        "std_over_members": values.mean(1).std(correction=0).item(),
    }


def _arrays(measured: Tested, masks: list[Tensor], series: TrafficSeries) -> dict[str, np.ndarray]:
    span = series.split.train
    rows = torch.arange(span.start, span.stop)[(masks[0] & series.samples)[span.start : span.stop]]
    gaps = series.times[rows].diff()
    if series.stretches is not None:
        gaps = gaps[series.stretches[rows].diff() == 0]
    return {
        "gap_squares": measured.gaps.squares.cpu().numpy(),
        "gap_counts": measured.gaps.counts.cpu().numpy(),
        "day_squares": measured.day.squares.cpu().numpy(),
        "day_counts": measured.day.counts.cpu().numpy(),
        "training_gaps": gaps.numpy(),
        **measured.arrays,
    }


def _line(result: dict[str, Any], unit: str | None) -> str:
    config, metrics = result["config"], result["metrics"]
    name = f"{config['model']} on {config['dataset']}, keep {100 * config['keep']:g} %"
    if not result["members"]:
        return f"{name}: no member had a finite validation loss. Lower --lr."
    rmse, speed = metrics["rmse"], Units.of([result], unit).speed
    error = "that is not finite"
    if rmse["mean"] is not None:
        error = f"{rmse['mean']:.3f} ± {rmse['std']:.3f}" + (f" {speed}" if speed else "")
    members = counted(result["members"], "member")
    words = [f"{name}: test RMSE {error}, {_percentage(result)} over {members}"]
    if result["failed_seeds"]:
        words.append(f"{counted(len(result['failed_seeds']), 'member')} failed and left out")
    if evaluations := result["evaluations"]["evaluations"]:
        words.append(f"{evaluations:.4g} evaluations per solve")
    line = ", ".join([*words, f"{result['seconds']:.0f} s"])
    if config["dataset"] == "file" and config["model"] in FLOWS:
        line += f"\nWhat comes next: graphode predict {config['out']}"
    return line


def _percentage(result: dict[str, Any]) -> str:
    """MAPE, and of which share of the truths, where those under 1 are too many to pass over."""
    mean, share = result["metrics"]["mape"]["mean"], result.get("mape_share", 1.0)
    if mean is None:
        return "no MAPE (all truths are under 1)"
    return f"MAPE {mean:.2f} %" + (f" (of {100 * share:.2g} % of the truths)" * (share < 0.995))
