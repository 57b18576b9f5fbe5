"""Windows: what is in them, against a plain loop, and what never is."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphode.data import (
    Standardizer,
    TimeSplit,
    TrafficSeries,
    TrafficWindows,
    keep_mask,
    split_by_days,
    split_by_fractions,
    traffic_windows,
)


def recording(steps: int = 60, sensors: int = 3, **fields) -> TrafficSeries:
    given_fields = {
        "name": "test",
        "speeds": 50 + 10 * torch.randn(steps, sensors),
        "times": torch.arange(steps, dtype=torch.float64),
        "split": split_by_fractions(steps),
        "steps_per_day": 24,
    }
    return TrafficSeries(**{**given_fields, **fields})


def by_loop(series: TrafficSeries, span: range, kept: torch.Tensor, steps: int) -> list[dict]:
    """The definition, one window at a time."""
    rows = [row for row in span if kept[row]]
    train = [row for row in series.split.train if kept[row]]
    mean = series.speeds[train].mean()
    std = series.speeds[train].std(correction=0)
    windows = []
    for first in range(len(rows) - steps):
        chosen = rows[first : first + steps]
        x = torch.zeros(steps, series.num_sensors, 3)
        for k, row in enumerate(chosen):
            before = rows[first + k - 1] if first + k > 0 else row
            x[k, :, 0] = (series.speeds[row] - mean) / std
            x[k, :, 1] = series.times[row] - series.times[before]
            x[k, :, 2] = math.sin(2 * math.pi * float(series.times[row]) / series.steps_per_day)
        last = rows[first + steps]
        target = (series.speeds[last] - mean) / std
        windows.append({"x": x, "times": series.times[chosen], "rows": [*chosen, last]})
        windows[-1].update(query=series.times[last], target=target)
    return windows


@given(st.floats(0.2, 1.0), st.integers(0, 1000), st.integers(1, 5), st.sampled_from("tve"))
def test_windows_are_those_of_a_plain_loop(keep, seed, steps, part):
    series = recording()
    span = {"t": series.split.train, "v": series.split.val, "e": series.split.test}[part]
    kept = keep_mask(series.num_steps, keep, seed)
    kept[[0, *list(span)[: steps + 1]]] = True  # training data, and at least one window
    expected = by_loop(series, span, kept, steps)
    batch = traffic_windows(series, span, kept, Standardizer.fit(series, kept), steps).batch()
    assert len(batch.x) == len(expected)
    for name, key in [("x", "x"), ("times", "times"), ("target", "target")]:
        torch.testing.assert_close(
            getattr(batch, name), torch.stack([window[key] for window in expected])
        )
    assert batch.query_times[:, 0].tolist() == [float(window["query"]) for window in expected]


def all_windows(series: TrafficSeries, kept: torch.Tensor) -> dict[str, TrafficWindows]:
    standardizer = Standardizer.fit(series, kept)
    return {
        part: traffic_windows(series, getattr(series.split, part), kept, standardizer)
        for part in ("train", "val", "test")
    }


@pytest.mark.parametrize("following", [1, 2, 3])
def test_the_samples_after_a_window_are_the_next_kept_ones(following):
    series = recording()
    kept = keep_mask(series.num_steps, 0.5, 3)
    span, seen = series.split.train, Standardizer.fit(series, kept)
    rows = [row for row in span if kept[row]]
    found = traffic_windows(series, span, kept, seen, steps=4, following=following)
    expected = [rows[k : k + 4 + following] for k in range(len(rows) - 3 - following)]
    together = torch.cat([found.inputs, found.queries], 1)
    assert together.tolist() == expected


def test_a_row_without_any_speed_is_no_sample():
    """An outage of all sensors is a longer gap, as if its rows were not kept."""
    series = recording()
    dark = torch.zeros(series.num_steps, dtype=torch.bool)
    dark[[0, 7, 8, 9, 20, 40]] = True
    outage = dataclasses.replace(series, observed=~dark[:, None].expand(-1, series.num_sensors))
    assert torch.equal(outage.samples, ~dark)
    span, scale = series.split.train, Standardizer.fit(series)
    for kept in (torch.ones_like(dark), keep_mask(series.num_steps, 0.7, 1)):
        found = traffic_windows(outage, span, kept, scale, following=2)
        expected = traffic_windows(series, span, kept & ~dark, scale, following=2)
        assert torch.equal(found.batch().x, expected.batch().x)
        assert torch.equal(found.batch().query_times, expected.batch().query_times)
        mask = found.batch().mask
        assert mask is not None
        assert bool(mask.all())
    silent = dataclasses.replace(series, observed=torch.zeros(60, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="no window fits"):
        traffic_windows(silent, span, torch.ones_like(dark), scale)


def test_no_window_crosses_a_split():
    series = recording(200)
    kept = keep_mask(200, 0.5, seed=1)
    for part, windows in all_windows(series, kept).items():
        span = getattr(series.split, part)
        rows = torch.cat([windows.inputs, windows.queries], 1)
        assert rows.min() >= span.start
        assert rows.max() < span.stop
        assert windows.batch().x[0, 0, 0, 1] == 0, "the first gap looks behind no split"


@pytest.mark.parametrize("horizons", [None, (1, 3)])
def test_nothing_after_the_last_input_reaches_an_input(horizons):
    """Whatever comes after a window's last input time is replaced: its input does not change."""
    series = recording(200)
    kept = keep_mask(200, 0.6, seed=3)
    standardizer = Standardizer.fit(series, kept)
    span = series.split.test
    windows = traffic_windows(series, span, kept, standardizer, horizons=horizons)
    before = windows.batch()
    for window in (0, len(windows) // 2, len(windows) - 1):
        last = int(windows.inputs[window, -1])
        speeds = series.speeds.clone()
        speeds[last + 1 :] = 1e6 * torch.rand_like(speeds[last + 1 :])
        observed = torch.ones_like(speeds, dtype=torch.bool)
        observed[last + 1 :] = torch.rand(speeds[last + 1 :].shape) < 0.5
        other_kept = kept.clone()
        other_kept[last + 1 :] = torch.rand(len(kept) - last - 1) < 0.9
        other_kept[-1] = True  # something to forecast
        changed = dataclasses.replace(series, speeds=speeds, observed=observed)
        after = traffic_windows(changed, span, other_kept, standardizer, horizons=horizons).batch()
        (same,) = (after.times == before.times[window]).all(1).nonzero()[:1, 0].tolist() or [None]
        if same is None:  # with horizons a window at the very end may have lost its queries
            assert horizons is not None
            continue
        assert torch.equal(after.x[same], before.x[window])
        assert after.mask is not None
        assert bool(after.mask[same].all())


def test_an_input_depends_on_its_own_rows_alone():
    """By gradients: which speeds does a window's input, and which does its target, depend on?"""
    series = recording(100)
    kept = keep_mask(100, 0.5, seed=5)
    standardizer = Standardizer.fit(series, kept)
    speeds = series.speeds.clone().requires_grad_()
    series = dataclasses.replace(series, speeds=speeds)
    windows = traffic_windows(series, series.split.val, kept, standardizer)
    for window in range(len(windows)):
        batch = windows.batch(torch.tensor([window]))
        (seen,) = torch.autograd.grad(batch.x.sum(), speeds, retain_graph=True)
        (asked,) = torch.autograd.grad(batch.targets.sum(), speeds, retain_graph=True)
        assert seen.any(1).nonzero()[:, 0].tolist() == windows.inputs[window].tolist()
        assert asked.any(1).nonzero()[:, 0].tolist() == windows.queries[window].tolist()
        assert windows.inputs[window].max() < windows.queries[window].min()
        assert batch.times.max() < batch.query_times.min()


@pytest.mark.parametrize("per_sensor", [False, True])
def test_statistics_come_from_kept_training_rows_alone(per_sensor):
    series = recording(100)
    kept = keep_mask(100, 0.5, seed=2)
    fitted = Standardizer.fit(series, kept, per_sensor)
    rows = kept[:60].nonzero()[:, 0]
    over = 0 if per_sensor else (0, 1)
    torch.testing.assert_close(fitted.mean, series.speeds[rows].mean(over))
    torch.testing.assert_close(fitted.std, series.speeds[rows].std(over, correction=0))
    speeds = series.speeds.clone()
    speeds[60:] = 1e9
    speeds[:60][~kept[:60]] = -1e9
    again = Standardizer.fit(dataclasses.replace(series, speeds=speeds), kept, per_sensor)
    assert torch.equal(fitted.mean, again.mean)
    assert torch.equal(fitted.std, again.std)


def test_standardising_is_undone_by_restoring():
    series = recording()
    fitted = Standardizer.fit(series, per_sensor=True)
    z = fitted.standardize(series.speeds)
    torch.testing.assert_close(fitted.restore(z), series.speeds)
    constant = dataclasses.replace(series, speeds=torch.full((60, 3), 5.0))
    assert not Standardizer.fit(constant).standardize(constant.speeds).any()


def test_the_share_of_kept_timestamps_is_the_probability():
    for keep in (0.3, 0.5, 0.7):
        assert abs(keep_mask(20_000, keep, seed=1).double().mean() - keep) < 0.02
    assert keep_mask(100, 1).all()


def test_a_mask_is_decided_by_its_seed_alone():
    state = torch.get_rng_state()
    first = keep_mask(500, 0.5, seed=1)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(first, keep_mask(500, 0.5, seed=1))
    assert not torch.equal(first, keep_mask(500, 0.5, seed=2))
    assert torch.equal(first[:100], keep_mask(100, 0.5, seed=1)), "longer data, same beginning"


@pytest.mark.parametrize("keep", [0, -0.1, 1.01, 30, float("nan")])
def test_a_probability_outside_its_range_is_refused(keep):
    with pytest.raises(ValueError, match="`keep` must be a probability above 0 and at most 1"):
        keep_mask(10, keep)


def test_horizons_are_times_after_the_last_input():
    series = recording(100)
    kept = torch.zeros(100, dtype=torch.bool)
    kept[::2] = True
    fitted = Standardizer.fit(series, kept)
    windows = traffic_windows(series, series.split.test, kept, fitted, 3, horizons=(3, 1))
    batch = windows.batch()
    expected = batch.times[:, -1:] + torch.tensor([1.0, 3.0])
    assert torch.equal(batch.query_times, expected)
    assert not kept[windows.queries].any(), "samples that were never seen"
    assert windows.queries.max() < 100
    torch.testing.assert_close(fitted.restore(batch.targets), series.speeds[windows.queries])


def test_stgcns_windows_stay_within_a_day():
    series = recording(24 * 10, split=split_by_days(240, (6, 2, 2), 24))
    kept = torch.ones(240, dtype=torch.bool)
    fitted = Standardizer.fit(series)
    windows = traffic_windows(
        series, series.split.test, kept, fitted, steps=12, horizons=(3, 6, 9), within_days=True
    )
    assert len(windows) == 2 * (24 - 12 - 9 + 1)
    assert torch.equal(series.days[windows.inputs[:, 0]], series.days[windows.queries[:, -1]])


def test_no_window_crosses_into_another_stretch():
    stretches = torch.arange(60) // 10
    series = recording(60, stretches=stretches)
    kept = torch.ones(60, dtype=torch.bool)
    windows = traffic_windows(series, range(60), kept, Standardizer.fit(series))
    assert len(windows) == 6 * (10 - 5)
    assert torch.equal(stretches[windows.inputs[:, 0]], stretches[windows.queries[:, 0]])
    assert windows.gaps[10] == 0, "a gap looks behind no stretch"


def test_rows_at_irregular_times_have_their_own_gaps():
    times = torch.tensor([0.0, 1, 2.5, 7, 8, 9, 20, 21.25, 30, 31])
    split = TimeSplit(range(8), range(8, 9), range(9, 10))
    series = recording(10, times=times, split=split)
    windows = traffic_windows(
        series, range(10), torch.ones(10, dtype=torch.bool), Standardizer.fit(series), steps=3
    )
    batch = windows.batch()
    assert batch.x[0, :, 0, 1].tolist() == [0, 1, 1.5]
    assert batch.x[4, :, 0, 1].tolist() == [1, 1, 11]
    assert batch.times[4].tolist() == [8, 9, 20]
    assert batch.query_times[4].tolist() == [21.25]
    with pytest.raises(ValueError, match="no window fits"):
        traffic_windows(
            series,
            range(7),
            torch.ones(10, dtype=torch.bool),
            windows.standardizer,
            steps=3,
            horizons=(4,),
        )


def test_missing_speeds_are_masked_and_read_as_the_mean():
    speeds = 50 + torch.randn(40, 2)
    observed = torch.rand(40, 2) < 0.7
    observed[0] = True
    broken = torch.where(observed, speeds, torch.nan)
    series = recording(40, speeds=broken, observed=observed)
    fitted = Standardizer.fit(series)
    seen = speeds[:24][observed[:24]]
    torch.testing.assert_close(fitted.mean, seen.mean())
    torch.testing.assert_close(fitted.std, seen.std(correction=0))
    windows = traffic_windows(series, range(40), torch.ones(40, dtype=torch.bool), fitted)
    batch = windows.batch()
    assert batch.mask is not None
    assert batch.target_mask is not None
    assert torch.equal(batch.mask, observed[windows.inputs])
    assert torch.equal(batch.target_mask, observed[windows.queries])
    assert torch.isfinite(batch.x).all()
    assert not batch.x[..., 0][~batch.mask].any()


def test_batches_hold_every_window_once():
    series = recording(100)
    windows = traffic_windows(
        series, range(100), torch.ones(100, dtype=torch.bool), Standardizer.fit(series)
    )
    in_time = torch.cat([batch.times for batch in windows.batches(7)])
    assert torch.equal(in_time, windows.batch().times)
    mixed = torch.cat([batch.times for batch in windows.batches(7, seed=1)])
    assert not torch.equal(mixed, in_time)
    assert torch.equal(mixed[mixed[:, 0].argsort()], in_time)
    again = torch.cat([batch.times for batch in windows.batches(7, seed=1)])
    assert torch.equal(mixed, again)


def test_windows_move_to_a_device_whole():
    series = recording()
    windows = traffic_windows(
        series, range(60), torch.ones(60, dtype=torch.bool), Standardizer.fit(series)
    )
    moved = windows.to("meta")
    assert {moved.z.device.type, moved.inputs.device.type, moved.standardizer.mean.device.type} == {
        "meta"
    }
    assert len(moved) == len(windows)


def test_windows_are_numbers_of_rows_not_copies():
    """Two months of 170 sensors at 5 in, 1 out: tens of megabytes, not hundreds."""
    series = recording(17_856, 170, speeds=torch.zeros(17_856, 170, dtype=torch.float32))
    windows = traffic_windows(
        series, range(17_856), torch.ones(17_856, dtype=torch.bool), Standardizer.fit(series)
    )
    fields = (getattr(windows, field.name) for field in dataclasses.fields(windows))
    size = sum(value.nbytes for value in fields if isinstance(value, torch.Tensor))
    assert size < 20e6
    assert windows.batch(torch.arange(8)).x.dtype == torch.float32


def test_a_sensor_without_training_data_is_refused():
    observed = torch.ones(60, 3, dtype=torch.bool)
    observed[:36, 1] = False
    with pytest.raises(ValueError, match="Every sensor must have an observed speed"):
        Standardizer.fit(recording(observed=observed), per_sensor=True)
