"""From settings to what a run sees: the recording, its graph, and windows for each member."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from graphode.data import (
    STGCN_BANDWIDTH,
    Standardizer,
    TrafficSeries,
    TrafficWindows,
    keep_mask,
    load_traffic,
    read_distances,
    read_speeds,
    shortest_paths,
    simulated_traffic,
    traffic_graph,
    traffic_windows,
)
from graphode.data.store import file_sha256
from graphode.data.time_columns import MINUTES_PER_DAY
from graphode.experiments.progress import counted
from graphode.experiments.traffic import BASELINES, FIRST_TEST_MASK, TrafficForecast
from graphode.experiments.traffic_normalization import Normalizer
from graphode.experiments.traffic_units import duration
from graphode.graphs import Graph

STGCN_STEPS, STGCN_HORIZONS = 12, (3, 6, 9)
STEPS = 5
PARTS = {"train": "training", "val": "validation", "test": "test"}  # of the recording, in words
DAYS_THAT_TELL = 3  # of training, for what is usual at a time of day to be more than noise
# Ahead of the last sample, in intervals: training knew the even ones only.
UNSEEN_HORIZONS = (1, 2, 3, 4, 5, 6)


def load_series(config: TrafficForecast) -> TrafficSeries:
    """The recording that the settings name."""
    if config.dataset == "simulated":
        return simulated_traffic(config.sensors, config.days)
    if config.dataset == "file":
        assert config.speeds is not None
        assert config.distances is not None
        series = read_speeds(
            config.speeds,
            key=config.key,
            channel=config.channel,
            missing=config.missing,
            duplicates=config.duplicates,
            interval_minutes=config.interval_minutes,
        )
        between = read_distances(
            config.distances, series.num_sensors, config.directed, series.sensor_names
        )
        files = (config.speeds, config.distances)
        checksums = {str(path): file_sha256(path) for path in files}
        return dataclasses.replace(series, distances=between, checksums=checksums)
    return load_traffic(config.dataset, config.data_root)


def graph_of(series: TrafficSeries, config: TrafficForecast) -> Graph:
    """The sensors' graph, not normalised; distances are along the roads."""
    if series.distances is None:
        raise ValueError(
            f"The recording {series.name} has no distances between its sensors, so that there is "
            "no graph. Give them with --distances."
        )
    bandwidth = STGCN_BANDWIDTH if config.dataset == "pemsd7m" else None
    between = shortest_paths(series.distances)
    return traffic_graph(
        between, config.graph, config.percentile, bandwidth, directed=config.directed
    )


def described(series: TrafficSeries, graph: Graph, config: TrafficForecast) -> str:
    """What was read, in a line, for its owner to compare with what was meant."""
    minutes = MINUTES_PER_DAY / series.steps_per_day
    days = _days(series, range(series.num_steps))
    count, unit = duration(minutes)
    every = unit if count == 1 else f"{count:g} {unit}s"
    lines = "" if series.readings is None else f"{series.readings} readings, a line for each: "
    sensors = counted(series.num_sensors, "sensor")
    words = (
        f"{lines}{series.num_steps} rows of {sensors}, every {every}, "
        f"{days:.1f} days; {graph.num_edges} edges"
    )
    touched = torch.zeros(graph.num_nodes, dtype=torch.bool)
    touched[graph.edge_index.flatten().cpu()] = True
    if bool(touched.all()):
        return words
    rule = "" if config.graph == "percentile" else "--graph percentile with "
    remedy = f"{rule}a higher --percentile adds some"
    if not bool(_have_roads(series)[~touched].any()):
        remedy = "--distances has no road there"
    alone = counted(int((~touched).sum()), "sensor")
    return f"{words}; warning: {alone} without an edge, {remedy}"


def _have_roads(series: TrafficSeries) -> Tensor:
    """Which sensors have a way to another, or from one `[sensors]`."""
    assert series.distances is not None
    ways = torch.isfinite(series.distances).fill_diagonal_(False)
    return ways.any(0) | ways.any(1)


def few_days(series: TrafficSeries, config: TrafficForecast) -> str | None:
    """A warning where training is too short to tell what is usual at a time of day."""
    days = _days(series, series.split.train)
    if config.normalization != "usual" or config.model in BASELINES or days >= DAYS_THAT_TELL:
        return None
    return (
        f"Warning: what is usual at a time of day is known from {days:.1f} days of training, "
        "nearly each speed itself: errors will look small in training and large in validation. "
        f"With fewer than {DAYS_THAT_TELL} days compare --normalization overall and per_sensor."
    )


def _days(series: TrafficSeries, span: range) -> float:
    """How many days some rows cover."""
    first, last = span[0], span[-1]
    days = (series.times[last] - series.times[first] + 1).item() / series.steps_per_day
    if series.stretches is not None:  # of a file, each lies a day later than it was
        days -= float(series.stretches[last] - series.stretches[first])
    return days


def training_mask(series: TrafficSeries, config: TrafficForecast, seed: int) -> Tensor:
    """Which timestamps a member sees in training and validation."""
    return _seen(series, config, keep_mask(series.num_steps, config.keep, seed))


def held_out_mask(series: TrafficSeries, config: TrafficForecast, number: int) -> Tensor:
    """Which timestamps are seen in a repetition of the test, the same ones for every member."""
    seed = FIRST_TEST_MASK + number
    return _seen(series, config, keep_mask(series.num_steps, config.keep, seed))


def _seen(series: TrafficSeries, config: TrafficForecast, kept: Tensor) -> Tensor:
    """Of unseen times, every second interval from where a stretch begins."""
    if config.protocol != "unseen_times":
        return kept
    begins = torch.ones(series.num_steps, dtype=torch.bool)
    begins[1:] = False if series.stretches is None else series.stretches.diff() != 0
    start = series.times[begins][begins.cumsum(0) - 1]
    # Halves go up, where `round` would make them even: rows an interval apart are never both seen.
    interval = (series.times - start + 0.5).floor()
    return kept & (interval % 2 == 0)


def windows(
    series: TrafficSeries,
    config: TrafficForecast,
    part: Literal["train", "val", "test"],
    kept: Tensor,
) -> TrafficWindows:
    """The windows of a part that the protocol asks for, of speeds as they are."""
    span = getattr(series.split, part)
    as_they_are = Standardizer(torch.zeros(()), torch.ones(()))
    steps, ahead, following, within_days = STEPS, None, 1, False
    if config.protocol == "stgcn":
        steps, ahead, within_days = STGCN_STEPS, STGCN_HORIZONS, True
    elif config.protocol == "unseen_times" and part == "test":
        ahead = UNSEEN_HORIZONS
    elif part == "train":  # validation asks for what the test asks for
        following = config.targets
    try:
        return traffic_windows(
            series, span, kept, as_they_are, steps, ahead, within_days, following
        )
    except ValueError as error:
        raise ValueError(f"The {PARTS[part]} part has no window. {error}") from error


def check_windows(series: TrafficSeries, config: TrafficForecast) -> None:
    """Refuse, before anything is trained, parts of the recording that have no window."""
    for seed in () if config.model in BASELINES else config.seeds:
        kept = training_mask(series, config, seed)
        windows(series, config, "train", kept)
        windows(series, config, "val", kept)
    for number in range(config.num_masks):
        windows(series, config, "test", held_out_mask(series, config, number))


def normalized(series: TrafficSeries, normalizer: Normalizer) -> Tensor:
    """All speeds as a member sees them; 0, the usual one, where nothing was observed."""
    z = normalizer.standardize(series.speeds, series.times)
    return z if series.observed is None else torch.where(series.observed, z, 0.0)


def num_outputs(config: TrafficForecast) -> int:
    """Outputs of a model that holds its state, which has one answer for each horizon.

    A flow has one output, which is read at as many times as are asked for.
    """
    return len(STGCN_HORIZONS) if config.protocol == "stgcn" else 1


@dataclasses.dataclass(frozen=True)
class MemberData:
    """What each member is trained and selected on, by its own mask.

    Args:
        seeds: One for each member.
        normalizers: By each member's training data.
        train: Each member's windows.
        val: Likewise.
    """

    seeds: list[int]
    normalizers: list[Normalizer]
    train: list[TrafficWindows]
    val: list[TrafficWindows]

    @classmethod
    def of(
        cls,
        series: TrafficSeries,
        config: TrafficForecast,
        seeds: Sequence[int],
        device: torch.device,
    ) -> MemberData:
        """The masks of these seeds, and what they leave."""
        masks = [training_mask(series, config, seed) for seed in seeds]
        fitted = [Normalizer.fit(series, kept, config.normalization) for kept in masks]
        z = [normalized(series, own).to(device) for own in fitted]
        train, val = (
            [
                dataclasses.replace(windows(series, config, part, kept).to(device), z=own)
                for kept, own in zip(masks, z, strict=True)
            ]
            for part in ("train", "val")
        )
        return cls(list(seeds), [own.to(device) for own in fitted], train, val)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemberBatch:
    """A `TrafficBatch` of each member; every tensor has the members first.

    Gaps and times are in units of the flow's time; `moments` are the query times in intervals.
    """

    x: Tensor
    times: Tensor
    query_times: Tensor
    moments: Tensor
    targets: Tensor
    mask: Tensor | None = None
    target_mask: Tensor | None = None

    @classmethod
    def gather(
        cls, windows: Sequence[TrafficWindows], rows: Tensor, time_unit: float
    ) -> MemberBatch:
        """Some windows of each member.

        Args:
            time_unit: In intervals.

        Shapes:
            - **rows:** numbers of windows, `[members, batch]`
        """
        batches = [own.batch(chosen) for own, chosen in zip(windows, rows, strict=True)]
        names = ("x", "times", "query_times", "targets", "mask", "target_mask")
        lists = {name: [getattr(batch, name) for batch in batches] for name in names}
        present = {name: parts for name, parts in lists.items() if parts[0] is not None}
        whole = {name: torch.stack(parts) for name, parts in present.items()}
        whole["moments"] = whole["query_times"]
        if time_unit != 1:
            speed, gap, sine = whole["x"].unbind(-1)
            whole["x"] = torch.stack([speed, gap / time_unit, sine], -1)
            whole |= {name: whole[name] / time_unit for name in ("times", "query_times")}
        return cls(**whole)

    def forecast(self, ensemble: nn.Module, graph: Graph) -> Tensor:
        """What each member says, standardised, `[members, batch, queries, sensors]`."""
        inputs = (self.x, self.times, graph, self.query_times)
        return ensemble(*inputs, mask=self.mask, per_member=True)[..., 0]
