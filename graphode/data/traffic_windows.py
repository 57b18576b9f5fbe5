"""Windows of an undersampled recording: a few samples in, the next one, or given horizons, out.

Each timestamp is kept with a probability, for all sensors at once (Poli et al., 2019, traffic
forecasting). A window is `steps` consecutive kept timestamps; what is to be forecast is the next
kept one, or those at fixed horizons after the last. A row without any speed is no sample, kept or
not. Node features are

    speed (standardised),    time since the previous kept sample,    sin(2π · time of day)

the last two the same at every sensor. Windows are kept as numbers of rows, not as copies: months of
data fit on a GPU, and a batch is gathered there.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graphode.data.traffic_series import TrafficSeries


def check_observed(count: Float[Tensor, "*sensors"], names: Sequence[str] | None = None) -> None:
    """Refuse sensors of which nothing was seen in training: what is usual there is not known."""
    if not bool(count.any()):
        raise ValueError(
            "No speed was observed in the training rows that were kept. Give more rows, or keep "
            "more of them."
        )
    silent = (count.reshape(-1) == 0).nonzero()[:, 0].tolist()
    if silent:
        shown = [f"{k if names is None else names[k]}" for k in silent[:5]]
        raise ValueError(
            "Every sensor must have an observed speed in the training rows that were kept, but "
            f"{len(silent)} have none ({'numbers ' * (names is None)}{', '.join(shown)}"
            f"{' …' if len(silent) > 5 else ''}). Leave them out of the table, or keep more rows."
        )


@dataclasses.dataclass(frozen=True)
class Standardizer:
    """z = (speed − mean) / std, with the statistics of the training data.

    Args:
        mean: One for all, or one for each sensor.
        std: Likewise.
    """

    mean: Float[Tensor, "*sensors"]
    std: Float[Tensor, "*sensors"]

    @classmethod
    def fit(
        cls,
        series: TrafficSeries,
        kept: Bool[Tensor, " time"] | None = None,
        per_sensor: bool = False,
    ) -> Standardizer:
        """Mean and deviation of the training rows that were kept and observed, and of no others."""
        rows = _rows(series, series.split.train, kept)
        seen = series.speeds[rows].double()
        weight = (
            torch.ones_like(seen) if series.observed is None else series.observed[rows].double()
        )
        over = (0,) if per_sensor else (0, 1)
        count = weight.sum(over)
        check_observed(count, series.sensor_names)
        seen = torch.where(weight > 0, seen, 0.0)
        mean = seen.sum(over) / count
        std = (((seen - mean).square() * weight).sum(over) / count).sqrt()
        # A sensor that never changes is left at 0 rather than divided by 0.
        std = torch.where(std > 0, std, 1.0)
        return cls(mean.to(series.speeds.dtype), std.to(series.speeds.dtype))

    def standardize(self, speeds: Float[Tensor, "*batch sensors"]) -> Tensor:
        """Speeds in their unit to z."""
        return (speeds - self.mean) / self.std

    def restore(self, z: Float[Tensor, "*batch sensors"]) -> Tensor:
        """z to speeds in their unit."""
        return z * self.std + self.mean

    def to(self, device: torch.device | str) -> Standardizer:
        """The same on another device."""
        return Standardizer(self.mean.to(device), self.std.to(device))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrafficBatch:
    """Some windows, gathered.

    Shapes:
        x: `[batch, steps, sensors, 3]`; times: `[batch, steps]`, float64, in intervals;
        query_times: `[batch, queries]`; targets: `[batch, queries, sensors]`, standardised;
        mask, target_mask: which speeds were observed, `[batch, steps, sensors]` and
        `[batch, queries, sensors]`, or None if all were.
    """

    x: Float[Tensor, "batch steps sensors 3"]
    times: Float[Tensor, "batch steps"]
    query_times: Float[Tensor, "batch queries"]
    targets: Float[Tensor, "batch queries sensors"]
    mask: Bool[Tensor, "batch steps sensors"] | None = None
    target_mask: Bool[Tensor, "batch queries sensors"] | None = None

    @property
    def target(self) -> Float[Tensor, "batch sensors"]:
        """What is to be forecast at the first query, often the only one."""
        return self.targets[:, 0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrafficWindows:
    """Windows by the numbers of their rows; `batch` gathers some of them.

    Args:
        inputs: Rows that are seen `[windows, steps]`.
        queries: Rows to be forecast `[windows, queries]`.
        z: Standardised speeds of the whole recording; 0, the mean, where not observed.
        times: Of the whole recording, in intervals since midnight.
        gaps: Time since the previous kept sample; 0 where there is none before.
        sines: Of the time of day.
        observed: Which speeds were measured; None if all were.
        standardizer: What z was made with.
    """

    inputs: Int[Tensor, "windows steps"]
    queries: Int[Tensor, "windows queries"]
    z: Float[Tensor, "time sensors"]
    times: Float[Tensor, " time"]
    gaps: Float[Tensor, " time"]
    sines: Float[Tensor, " time"]
    observed: Bool[Tensor, "time sensors"] | None
    standardizer: Standardizer

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, windows: Int[Tensor, " batch"] | None = None) -> TrafficBatch:
        """The windows of these numbers, or all of them."""
        inputs = self.inputs if windows is None else self.inputs[windows]
        queries = self.queries if windows is None else self.queries[windows]
        speeds = self.z[inputs]
        clock = torch.stack([self.gaps[inputs], self.sines[inputs]], -1)[:, :, None]
        clock = clock.expand(*speeds.shape, 2)
        return TrafficBatch(
            x=torch.cat([speeds[..., None], clock], -1),
            times=self.times[inputs],
            query_times=self.times[queries],
            targets=self.z[queries],
            mask=None if self.observed is None else self.observed[inputs],
            target_mask=None if self.observed is None else self.observed[queries],
        )

    def batches(self, size: int, seed: int | None = None) -> Iterator[TrafficBatch]:
        """All windows, `size` at a time; in an order drawn by `seed`, or in that of time."""
        order = torch.arange(len(self))
        if seed is not None:
            order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        for rows in order.to(self.inputs.device).split(size):
            yield self.batch(rows)

    def to(self, device: torch.device | str) -> TrafficWindows:
        """The same on another device."""
        moved = {
            field.name: value.to(device)
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) is not None
        }
        return dataclasses.replace(self, **moved)


def keep_mask(num_steps: int, keep: float | int, seed: int = 0) -> Bool[Tensor, " time"]:
    """Which timestamps are kept: each with probability `keep`, by a generator of its own."""
    if not 0 < keep <= 1:
        raise ValueError(
            f"`keep` must be a probability above 0 and at most 1, but it is {keep}. 0.3 keeps "
            "about 30 % of the timestamps."
        )
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(num_steps, generator=generator, dtype=torch.float64) < keep


def traffic_windows(
    series: TrafficSeries,
    span: range,
    kept: Bool[Tensor, " time"],
    standardizer: Standardizer,
    steps: int = 5,
    horizons: Sequence[int] | None = None,
    within_days: bool = False,
    following: int = 1,
) -> TrafficWindows:
    """All windows inside `span`: no window has a row outside, or rows of two stretches.

        kept = keep_mask(series.num_steps, keep=0.3, seed=0)
        standardizer = Standardizer.fit(series, kept)
        train = traffic_windows(series, series.split.train, kept, standardizer)

    Args:
        span: Rows that may be used, such as `series.split.train`.
        kept: Which timestamps are seen.
        standardizer: Fitted on training rows.
        steps: Samples that are seen in a window.
        horizons: Intervals after the last of them to forecast at, kept or not (STGCN: steps = 12,
            horizons = 3, 6, 9); None for the next kept samples.
        within_days: Whether a window must lie in one day, as STGCN's do.
        following: How many kept samples after those are forecast, where no horizons are given.
    """
    if min(steps, following) < 1 or (horizons is not None and (not horizons or min(horizons) < 1)):
        raise ValueError(
            f"A window must see at least one sample and forecast at least one interval ahead, but "
            f"`steps` is {steps}, `following` {following} and `horizons` {horizons}."
        )
    rows = _rows(series, span, kept)
    rows = rows[series.samples[rows]]
    together = series.stretches if series.stretches is not None else torch.zeros(series.num_steps)
    group = series.days if within_days else together
    runs = rows.unfold(0, steps, 1) if len(rows) >= steps else rows.new_zeros(0, steps)
    if horizons is None:
        inputs, queries = runs[:-following], rows[steps:]
        queries = queries.unfold(0, following, 1) if len(inputs) else rows.new_zeros(0, following)
    else:
        inputs, queries = _at_horizons(series, span, runs, horizons)
    one_group = group[inputs[:, 0]] == group[queries[:, -1]]
    if not bool(one_group.any()):
        if horizons is not None and len(runs) and not len(inputs):
            within = series.times[rows].diff()[together[rows].diff() == 0]
            remedy = _no_row_ahead(within, horizons)
        else:
            is_all = bool(kept[span.start : span.stop].all())
            with_speeds = " with a speed" * (len(rows) < len(span))  # the others are no samples
            more = f"give more rows{with_speeds}" if is_all else "keep more"
            remedy = _too_short(series, group[rows], steps, horizons, within_days, following, more)
        raise ValueError(
            f"A window must have {steps} kept samples and what is to be forecast in one "
            f"{'day' if within_days else 'stretch'}, but {len(rows)} of {len(span)} rows are kept "
            f"and no window fits. {remedy}"
        )
    z = standardizer.standardize(series.speeds)
    if series.observed is not None:
        z = torch.where(series.observed, z, 0.0)
    day = 2 * math.pi * series.times / series.steps_per_day
    return TrafficWindows(
        inputs=inputs[one_group],
        queries=queries[one_group],
        z=z,
        times=series.times,
        gaps=_gaps(series, rows, group).to(z.dtype),
        sines=day.sin().to(z.dtype),
        observed=series.observed,
        standardizer=standardizer,
    )


def _rows(series: TrafficSeries, span: range, kept: Tensor | None) -> Tensor:
    """The kept rows of a span."""
    if span.step != 1 or span.start < 0 or span.stop > series.num_steps:
        raise ValueError(
            f"`span` must be consecutive rows from 0 to {series.num_steps}, but is {span}."
        )
    if kept is not None and kept.shape != (series.num_steps,):
        raise ValueError(
            f"`kept` must have shape [{series.num_steps}], one for each row, but it is "
            f"{list(kept.shape)}."
        )
    rows = torch.arange(span.start, span.stop)
    return rows if kept is None else rows[kept[span.start : span.stop]]


def _at_horizons(
    series: TrafficSeries, span: range, runs: Tensor, horizons: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Windows whose last sample has a row at each horizon after it, inside the span."""
    wanted = series.times[runs[:, -1], None] + torch.tensor(sorted(horizons))
    found = torch.searchsorted(series.times, wanted).clamp(max=series.num_steps - 1)
    there = (series.times[found] == wanted).all(1) & (found < span.stop).all(1)
    return runs[there], found[there]


def _no_row_ahead(between: Tensor, horizons: Sequence[int]) -> str:
    """What to do where no sample has a row at each horizon after it.

    Args:
        between: Times from each kept row to the next of its stretch.
    """
    ahead = ", ".join(map(str, sorted(horizons)))
    if bool((between == between.round()).all()):
        why, remedy = "but these rows end before, or lack them", "give more rows"
    else:
        why, remedy = "which times that jitter do not have", "round them"
    return (
        f"There must be rows exactly {ahead} intervals after a sample, {why}: {remedy}, or leave "
        "forecasts at fixed horizons out (--no-studies of table 2)."
    )


def _too_short(
    series: TrafficSeries,
    group: Tensor,
    steps: int,
    horizons: Sequence[int] | None,
    within_days: bool,
    following: int,
    more: str,
) -> str:
    """What to do where the days or stretches of the kept rows are shorter than a window.

    Args:
        group: The day or the stretch of each kept row.
        more: What to do for more samples.
    """
    longest = int(group.unique(return_counts=True)[1].max()) if len(group) else 0
    if horizons is None and steps < longest < steps + following:
        return (
            f"At most {longest - steps} kept samples follow after {steps}, fewer than the "
            f"{following} of `following` (--targets on the command line): ask for fewer."
        )
    if within_days:
        return (
            f"A window takes {steps + max(horizons or [following])} intervals, and no day has more "
            f"than {longest} kept samples: leave out `within_days` (--protocol stgcn, in table 2 "
            f"by --no-studies), or {more}."
        )
    if series.stretches is not None:
        return (
            f"No stretch has more than {longest} kept samples: {more}, or ask for shorter windows."
        )
    return f"{more.capitalize()}, or ask for shorter windows."


def _gaps(series: TrafficSeries, rows: Tensor, group: Tensor) -> Tensor:
    """Time from each kept row to the one before it in its group; 0 elsewhere."""
    gaps = torch.zeros_like(series.times)
    between = series.times[rows].diff()
    gaps[rows[1:]] = torch.where(group[rows[1:]] == group[rows[:-1]], between, 0.0)
    return gaps
